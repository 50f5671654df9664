/* sm90_gemm_norm.c: on sm_90a a GEMM and the norm of its result are one launch
 * (kernels/gemm/gemm_norm.cuh).
 *
 * Other architectures run two kernels.  On sm_90a the GEMM's kernel also has the norm's arguments
 * and body, tiles of the same rows form a cluster, and the norm's own kernel is skipped. */
#include "forms.h"
#include <string.h>

/* Cluster size limit of every GPU of the kind; shared memory of a multiprocessor, and what a block
 * takes beside its own.  Clusters do not fill an H100 evenly: of 128 blocks in clusters of 4 some
 * share a multiprocessor while others are idle.  So with more than SPREAD blocks only short GEMMs
 * qualify (docs/notebook/training.md). */
enum {
        MOST_CLUSTER = 8,
        SM_SMEM = 227 << 10,
        BLOCK_MORE = 1 << 10,
        SPREAD = SM90A_SMS * 7 / 8,
        SINGLE_WAVE_PS = 1000000
};

/* Per program, by kernel number: position, and the norms that read the kernel's result, in
 * order. */
typedef struct Norm {
        const Group *norm;
        struct Norm *next;
} Norm;
struct Norms {
        int *place;
        Norm **of;
};

/* Is it a norm of rows of N whose input is `of`, as this GEMM's epilogue stores it? */
static bool norms_epilogue(Emit *e, const Group *norm, const Group *product, int64_t N, Ref *of)
{
        Graph *g = e->g;
        const Node *n = NODE(g, norm->anchor);
        Access a;
        Dim ld;
        if (!norm->anchor || !op_is(n->op, FACT_NORM) || norm->prologue[0].n_nodes)
                return false;
        *of = value_base(g, n->in[0]);
        if (NODE(g, *of)->group != product->id || !access_of(g, e->place, n->in[0], &a) ||
            !access_rows(&a, &ld))
                return false;
        return norm->prologue[0].n == N && a.base == *of && a.off == 0 && dim_eq(ld, DIM(N)) &&
               dim_eq(type_elems(&n->type), type_elems(&NODE(g, *of)->type));
}

/* Does every member of the epilogue compute all of its columns, one by one? */
static bool is_plain(const Graph *g, const Functor *epilogue)
{
        for (int i = 0; i < epilogue->n_nodes; i++) {
                const Node *n = &g->node[epilogue->node[i]];
                if (n->op == OP_ROPE || !dim_eq(type_elems(&n->type), type_elems(&epilogue->shape)))
                        return false;
        }
        return true;
}

/* Is the value that the epilogue hands back the last one assigned to v? */
static bool hands_back(const Emit *e, const Group *product, Ref of)
{
        const Functor *f = &product->epilogue[0];
        bool found = of == product->anchor;
        for (int i = 0; i < f->n_nodes; i++)
                found |= f->node[i] == of;
        return found && is_plain(e->g, f) && (of == product->anchor || !e->stored[product->anchor]);
}

/* Do the norm epilogue's other inputs exist before the GEMM runs? */
static bool reads_ready(const Emit *e, const Group *norm, const Group *product)
{
        const Graph *g = e->g;
        for (int i = 0; i < norm->n_nodes; i++) {
                const Node *n = &g->node[norm->node[i]];
                for (int j = norm->node[i] == norm->anchor ? 1 : 0; j < n->n_in; j++) {
                        Ref b = value_base(g, n->in[j]);
                        const int id = g->node[b].group;
                        bool early = !b || is_virtual(g, b) ||
                                     op_info[g->node[b].op].cls == CLASS_LEAF || id == norm->id;
                        if (!early && (!id || e->norms->place[id] >= product - e->groups))
                                return false;
                }
        }
        return true;
}

void norms_find(Emit *e)
{
        Arena *a = e->m->arena;
        const Graph *g = e->g;
        struct Norms *all = e->norms = arena_alloc(a, sizeof *all);
        all->place = arena_alloc(a, ((size_t)g->n_nodes + 1) * sizeof *all->place);
        all->of = arena_alloc(a, ((size_t)g->n_nodes + 1) * sizeof *all->of);
        for (int i = e->n_groups - 1; i >= 0; i--) {
                const Node *n = &g->node[e->groups[i].anchor];
                all->place[e->groups[i].id] = i;
                if (!e->groups[i].anchor || !op_is(n->op, FACT_NORM))
                        continue;
                const int id = g->node[value_base(g, n->in[0])].group;
                Norm *x = arena_alloc(a, sizeof *x);
                *x = (Norm) { &e->groups[i], all->of[id] };
                all->of[id] = x;
        }
}

const Group *gemm_norm_find(Emit *e, const Group *product, int64_t N, Ref *of)
{
        for (const Norm *l = e->norms->of[product->id]; l; l = l->next) {
                const Group *x = l->norm;
                if (x > product && norms_epilogue(e, x, product, N, of) &&
                    hands_back(e, product, *of) && is_plain(e->g, &x->epilogue[0]) &&
                    reads_ready(e, x, product))
                        return x;
        }
        return NULL;
}

/* Prints a cluster of `across` blocks that runs `task` (C text up to KIND), then operands. */
static void put_norm(Build *b, const Group *norm, int64_t across, const char *task,
                     const char *operands)
{
        Emit *e = b->e;
        const Node *n = NODE(e->g, norm->anchor);
        char eps[32];
        num_text(n->a.num.x, eps);
        build_functor(b, &norm->epilogue[0], "norm_epilogue");
        build_line(b, "\1_norm_epilogue norm_epilogue = { a };");
        build_line(b, "%s, RowNorm<%s, %lld>>(%s, %s, tile, smem, epilogue, norm_epilogue);", task,
                   norm_text(norm_kind(n->op)), (long long)across, operands,
                   arena_fmt(e->tmp, strpbrk(eps, ".en") ? "%sf" : "%s.f", eps));
        e->done_sm90[norm->anchor] = true;
}

/* Shared memory for sums, with blocks of bm rows, behind the GEMM's own. */
static int64_t sums_bytes(const Emit *e, const Group *norm, int64_t across, int bm)
{
        return across * bm * (norm_kind(NODE(e->g, norm->anchor)->op) == NORM_LAYER ? 8 : 4) + 16;
}

bool sm90_gemm_norm(Build *b, const void *problem)
{
        const GemmNormWork *work = problem;
        const Gemm *p = work->p;
        const Group *norm = work->norm;
        const Tile *t = work->pick->tile[ARCH_ANY];
        Emit *e = b->e;
        int64_t across = (p->N + t->bn - 1) / t->bn, blocks = (p->M + t->bm - 1) / t->bm * across;
        int64_t smem = t->smem + sums_bytes(e, norm, across, t->bm);
        if (work->pick->tile[ARCH_SM90A] || (t->math != MATH_WGMMA && t->math != MATH_TF32X3) ||
            across > MOST_CLUSTER || blocks > SM90A_SMS * (SM_SMEM / (smem + BLOCK_MORE)) ||
            (blocks > SPREAD && p->K * t->ps > SINGLE_WAVE_PS))
                return false;
        Form *f = form_begin(b, ARCH_SM90A, "gemm_norm");
        f->threads = t->threads;
        f->smem = (int)smem;
        f->cluster = (int)across;
        f->grid = grid_blocks(blocks);
        put_norm(b, norm, across, arena_fmt(e->tmp, "gemm_norm_task<%s", work->shape),
                 work->operands);
        return true;
}

bool sm90_gemm_norm_single_wave(Build *b, const void *problem)
{
        const GemmNormWork *work = problem;
        const Gemm *p = work->p;
        const Group *norm = work->norm;
        const Tile *t = work->pick->tile[ARCH_SM90A];
        if (!t)
                return false;
        Emit *e = b->e;
        int64_t across = (p->N + t->bn - 1) / t->bn, blocks = (p->M + t->bm - 1) / t->bm * across;
        int64_t smem = t->smem + sums_bytes(e, norm, across, t->bm);
        if (t->schedule != SINGLE_WAVE || across > MOST_CLUSTER || blocks > SPREAD ||
            smem > SM_SMEM)
                return false;
        Form *f = form_begin(b, ARCH_SM90A, "gemm_norm_sm90");
        f->threads = t->threads;
        f->smem = (int)smem;
        f->cluster = (int)across;
        f->grid = grid_blocks(blocks);
        f->waits = true;
        build_prefetch(b, PREFETCH_EACH, &p->a, &p->w);
        put_norm(b, norm, across,
                 arena_fmt(e->tmp, "gemm_norm_single_wave<%s, %s, %s, %s, PREFETCH", c_type(p->dt),
                           t->name, p->ta ? "true" : "false", p->tb ? "true" : "false"),
                 sm90_gemm_maps(b, p));
        return true;
}
