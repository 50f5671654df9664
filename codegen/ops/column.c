/* column.c: emits sums over the rows of a matrix: gradients of biases and of norms' parameters.
 *
 * Few rows take one launch.  Many rows are summed in chunks, and a second launch adds the chunks'
 * sums in order, so that the result does not depend on which block is first.  On sm_90a a GEMM that
 * reads the matrix may also sum it (ops.h). */
#include "ops.h"

enum { COLUMN_TILES = 400 };

/* Found once for a program for GPUs: by node, how many accums a parameter has, the products that
 * read a value's storage as op(A), and the first sum of columns that goes beside a product. */
typedef struct Reads {
        Ref product;
        struct Reads *next;
} Reads;
struct Columns {
        int *accums;
        Reads **products;
        const Group **beside;
};

void column_parts(Emit *e, const Group *gr, int work, const char *parts, int64_t parts_sm90,
                  const Functor *epilogue, const char *title)
{
        Build b = build_start(e, gr, is_cuda(e) ? "columns" : "rows", title);
        b.beside = is_cuda(e);
        const char *w = arg_done(e, &b.args, work, C_F32, "partial");
        build_functor(&b, epilogue, "epilogue");
        if (is_cuda(e)) {
                b.any.threads = 256;
                b.any.smem = 32 * 256;
                build_line(&b, "\1_epilogue epilogue = { a };");
                if (parts_sm90)
                        parts = form_constant(&b, "PARTS", parts, ARCH_SM90A, parts_sm90);
                build_line(&b, "columns_reduce_task<%lld, 256>(%s, a.%s, tile, smem, epilogue);",
                           (long long)epilogue->n, parts, w);
                build_end(&b, grid_ceil(e, DIM(epilogue->n), 32));
        } else {
                build_cpu_rows(&b, DT_F32, w, epilogue->n);
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "column_sum_tiles(%lld)", (long long)epilogue->n), 0,
                        arena_fmt(e->tmp,
                                  "column_sum_task(%s, %lld, tile, &a, \1_prologue, \1_epilogue);",
                                  parts, (long long)epilogue->n));
                build_end(&b, grid_blocks(1));
        }
}

/* What is summed: rows are the summed axes, columns the rest. */
static Functor column_prologue(Emit *e, const Group *gr)
{
        Functor x = gr->prologue[0];
        x.rows = DIM(1);
        x.n = 1;
        for (int i = 0; i < x.shape.rank; i++)
                if (i < NODE(e->g, gr->anchor)->a.k.k)
                        x.rows = dim_mul(x.rows, x.shape.dim[i]);
                else
                        x.n *= x.shape.dim[i].n;
        return x;
}

static int64_t column_chunks(Emit *e, const Functor *x)
{
        int64_t rows = dim_most(e, x->rows), col_tiles = (x->n + 255) / 256, chunks = 1;
        while (is_cuda(e) && chunks * col_tiles < COLUMN_TILES && rows / chunks > 64)
                chunks *= 2;
        return chunks;
}

/* May the sum wait for the product?  A bias's gradient, to which nothing else adds. */
static bool column_waits(Emit *e, const Group *gr)
{
        const Functor *t = &gr->epilogue[0];
        const Node *to = t->n_nodes == 1 ? NODE(e->g, t->node[0]) : NULL;
        return to && to->op == OP_ACCUM && !e->stored[gr->anchor] &&
               e->columns->accums[to->in[0]] == 1;
}

/* Does the product read the matrix, as op(A), whose columns are summed? */
static bool reads_columns(Emit *e, Ref product, const Group *gr)
{
        const Node *p = NODE(e->g, product);
        Slot a, x;
        int64_t lda, ldx;
        if (p->op != OP_MATMUL || !p->a.mm.ta || gr->prologue[0].n_nodes ||
            !slot_of(e, p->in[0], &a, &lda))
                return false;
        const Type *at = &NODE(e->g, p->in[0])->type;
        Functor f = column_prologue(e, gr);
        return slot_of(e, f.root, &x, &ldx) && x.id == a.id && x.off == a.off && ldx == lda &&
               f.n == at->dim[at->rank - 1].n && f.n == f.shape.dim[f.shape.rank - 1].n &&
               dim_eq(f.rows, type_rows(at)) && column_chunks(e, &f) > 1 && column_waits(e, gr);
}

/* The first product, in the order of kernels, that reads what a sum sums. */
static Ref product_of(Emit *e, const Group *gr)
{
        Slot x;
        int64_t ld;
        if (!e->columns || gr->prologue[0].n_nodes ||
            !slot_of(e, column_prologue(e, gr).root, &x, &ld))
                return 0;
        for (const Reads *r = e->columns->products[x.id]; r; r = r->next)
                if (reads_columns(e, r->product, gr))
                        return r->product;
        return 0;
}

void columns_find(Emit *e)
{
        const size_t n = (size_t)e->g->n_nodes;
        Arena *a = e->m->arena;
        struct Columns *c = e->columns = arena_alloc(a, sizeof *c);
        c->accums = arena_alloc(a, n * sizeof *c->accums);
        c->products = arena_alloc(a, n * sizeof *c->products);
        c->beside = arena_alloc(a, n * sizeof *c->beside);
        for (Ref r = 1; r < e->g->n_nodes; r++)
                if (NODE(e->g, r)->op == OP_ACCUM)
                        c->accums[NODE(e->g, r)->in[0]]++;
        for (int i = e->n_groups - 1; i >= 0; i--) {
                const Ref p = e->groups[i].anchor;
                Slot s;
                int64_t ld;
                if (!p || NODE(e->g, p)->op != OP_MATMUL || !NODE(e->g, p)->a.mm.ta ||
                    !slot_of(e, NODE(e->g, p)->in[0], &s, &ld))
                        continue;
                Reads *r = arena_alloc(a, sizeof *r);
                *r = (Reads) { p, c->products[s.id] };
                c->products[s.id] = r;
        }
        for (int i = e->n_groups - 1; i >= 0; i--)
                if (e->groups[i].anchor && NODE(e->g, e->groups[i].anchor)->op == OP_COLSUM)
                        c->beside[product_of(e, &e->groups[i])] = &e->groups[i];
        c->beside[0] = NULL;
}

const Group *column_beside(Emit *e, Ref product)
{
        return e->columns ? e->columns->beside[product] : NULL;
}

int column_work(Emit *e, const Group *gr, int64_t parts)
{
        Functor x = column_prologue(e, gr);
        int64_t chunks = column_chunks(e, &x);
        return work_new(e, DIM((parts > chunks ? parts : chunks) * x.n), 4);
}

void gen_column(Emit *e, const Group *gr)
{
        Ref product = product_of(e, gr);
        if (!product || column_beside(e, product) != gr) /* gemm.c calls for those that it gives */
                column_sums(e, gr, -1, 0);
}

/* Few rows in one launch; many in chunks, then the chunks' sums in order. */
void column_sums(Emit *e, const Group *gr, int work, int64_t parts_sm90)
{
        Functor x = column_prologue(e, gr), t = gr->epilogue[0];
        t.n = x.n;
        t.rows = DIM(1);
        int64_t col_tiles = (x.n + 255) / 256, chunks = column_chunks(e, &x);
        const char *rows_c = dim_c(e, x.rows);
        if (work < 0 && chunks > 1)
                work = column_work(e, gr, 0);
        Build b = build_start(e, gr, is_cuda(e) ? "columns" : "rows", "colsum");
        b.beside = is_cuda(e);
        build_functor(&b, &x, "prologue");
        if (!is_cuda(e)) {
                build_functor(&b, &t, "epilogue");
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "column_sum_tiles(%lld)", (long long)x.n), b.bytes,
                        arena_fmt(e->tmp,
                                  "column_sum_task(%s, %lld, tile, &a, \1_prologue, \1_epilogue);",
                                  rows_c, (long long)x.n));
                build_end(&b, grid_blocks(1));
                return;
        }
        b.any.threads = 256;
        b.any.smem = 32 * 256;
        build_line(&b, "\1_prologue prologue = { a };");
        if (chunks == 1) {
                build_functor(&b, &t, "epilogue");
                build_line(&b, "\1_epilogue epilogue = { a };");
        } else {
                const char *w = arg_work(e, &b.args, work, C_F32, "partial");
                build_line(&b, "ColumnsStore<%lld> epilogue = { a.%s };", (long long)x.n, w);
        }
        build_line(&b, "column_sum_task<%lld, 256, 256>(%s, %lld, tile, smem, prologue, epilogue);",
                   (long long)x.n, rows_c, (long long)chunks);
        if (parts_sm90)
                form_leave_out(&b, ARCH_SM90A);
        build_end(&b, grid_blocks(chunks * col_tiles));
        if (chunks > 1)
                column_parts(e, gr, work, arena_fmt(e->tmp, "%lld", (long long)chunks), parts_sm90,
                             &t, "colsum_parts");
}
