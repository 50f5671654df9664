/* sm90_gemm_rows.c: linears of a decode step over a paged cache on sm_90a
 * (kernels/gemm/gemm_rows_sm90.cuh).
 *
 * Every number of sequences takes this form, even one, so that a row's bits do not depend on its
 * company.  (Under --fast a single sequence uses a GEMV, which reads weights faster.)  The number
 * of rows is an argument, so that programs for different numbers share kernels. */
#include "forms.h"
#include "gemm_rows_shape.h"

enum { BLOCK_SMEM = 225000 }; /* shared memory of a multiprocessor */

static bool matrix_of(Emit *e, Ref r, DType dt, Slot *s, int64_t *ld)
{
        return slot_of(e, r, s, ld) && NODE(e->g, s->id)->type.dt == dt && *ld % 8 == 0 &&
               s->off % 16 == 0;
}

bool gemm_rows_problem(Emit *e, const Node *n, int align, Gemm *p)
{
        const Type *x = &NODE(e->g, n->in[0])->type, *w = &NODE(e->g, n->in[1])->type;
        *p = (Gemm) { .dt = w->dt, .tb = true, .align = align, .fixed = true };
        if (!is_cuda(e) || !e->paged || e->ragged || n->a.mm.ta || !n->a.mm.tb || w->rank != 2 ||
            dt_size[w->dt] != 2 || align < 16 || !dim_known(e, type_rows(x)) ||
            !dim_is_const(w->dim[0]) || !dim_is_const(w->dim[1]) ||
            !matrix_of(e, n->in[0], w->dt, &p->a, &p->lda) ||
            !matrix_of(e, n->in[1], w->dt, &p->w, &p->ldw))
                return false;
        p->rows = type_rows(x);
        p->M = dim_most(e, p->rows), p->N = w->dim[0].n, p->K = w->dim[1].n;
        return p->M <= GEMM_ROWS_MOST && !(e->m->fast && p->M == 1);
}

bool sm90_gemm_rows(Build *b, const void *problem)
{
        const Gemm *p = problem;
        Emit *e = b->e;
        const int rows = gemm_rows_tile((int)p->M), parts = gemm_rows_parts(p->N, p->K, SM90A_SMS),
                  stages = gemm_rows_stages(rows, BLOCK_SMEM);
        const TensorMap x = { .of = p->a,
                              .dt = p->dt,
                              .rows = p->M,
                              .cols = p->K,
                              .ld = p->lda,
                              .box_rows = rows < 64 ? rows : 64,
                              .box_bytes = 128 },
                        w = { .of = p->w, .dt = p->dt, .rows = p->N, .cols = p->K, .ld = p->ldw };
        const char *map_x = arg_map(e, &b->args, &x, "map_x"),
                   *map_w = arg_map(e, &b->args, &w, "map_w"),
                   *M = arg_int(e, &b->args, (int)p->M, "rows");
        Form *f = form_begin(b, ARCH_SM90A, "gemm_rows_sm90");
        f->threads = GEMM_ROWS_THREADS;
        f->smem = gemm_rows_smem(rows, stages);
        f->min_blocks = 1;
        f->cluster = parts;
        f->grid = grid_blocks((p->N + GEMM_ROWS_COLS - 1) / GEMM_ROWS_COLS * parts);
        f->waits = true;
        b->alone = true;
        build_prefetch(b, PREFETCH_EACH, &p->a, &p->w);
        /* the portable form may have no shared memory, or another amount */
        build_line(b, "{");
        build_line(b, "        TGC_SMEM(smem);");
        build_line(b,
                   "        gemm_rows<%s, RowsTile<%d, %d>, %d, PREFETCH>(a.%s, a.%s, *a.%s, %lld, "
                   "%lld, tile, smem, epilogue);",
                   c_type(p->dt), rows, stages, parts, map_x, map_w, M, (long long)p->N,
                   (long long)p->K);
        build_line(b, "}");
        return true;
}
