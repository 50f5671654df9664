/* token_axis.c: decides whether a model can generate text token by token.
 *
 * A program with a cache sees a few tokens at a time.  It has the keys and values of the tokens
 * before them, nothing else.  So generation is right only if tokens meet in causal attention alone.
 *
 * This file follows the axes B and T through every value that the logits depend on.  An axis is a
 * list of factors, outermost first: B*T*4 is (B, T, 4).  Reshapes regroup the list, transpositions
 * permute it.  An op that adds, sorts or compares along B or T is refused with its line.  So is an
 * op that is not known to keep tokens apart (column `tokens` of ops.def).
 *
 * Experts permute tokens and put them back.  Rows in the order of a bucket carry the bucket's name
 * until a GEMM scatters them. */
#include "compiler.h"
#include <string.h>

enum { AXIS_B = -1, AXIS_T = -2, MOST_FACTORS = 5 }; /* each letter once, numbers between them */

typedef struct Axis {
        int n;
        int64_t f[MOST_FACTORS];
} Axis;

typedef enum { VALUE, PERM, OFFS } Kind; /* PERM, OFFS: a bucket's results */

typedef struct Lie {
        Axis axis[MAX_RANK];
        Ref bucket; /* rows are in its order; of PERM and OFFS: whose they are */
        Kind kind;
        bool uniform; /* one number everywhere: lies like anything */
} Lie;

typedef struct Ctx {
        const Graph *g;
        Lie *lie;
} Ctx;

static _Noreturn void refuse(const Node *n, const char *why)
{
        error_at(n->loc,
                 "%s: %%%s %s; text is generated token by token with a cache, which is right only "
                 "where tokens meet in causal attention and nowhere else: use that, or compile "
                 "with --mode train",
                 op_info[n->op].text, n->name, why);
}

static void put(const Node *n, Axis *a, int64_t f)
{
        if (f == 1)
                return;
        if (f > 0 && a->n && a->f[a->n - 1] > 0) {
                a->f[a->n - 1] *= f;
                return;
        }
        if (a->n == MOST_FACTORS)
                refuse(n, "has tokens in an order that is not followed");
        a->f[a->n++] = f;
}

static bool axis_eq(const Axis *a, const Axis *b)
{
        return a->n == b->n && !memcmp(a->f, b->f, (size_t)a->n * sizeof *a->f);
}

static int count(const Axis *a, int64_t f)
{
        int n = 0;
        for (int i = 0; i < a->n; i++)
                n += a->f[i] == f;
        return n;
}

static bool is_tokens(const Axis *a) { return count(a, AXIS_B) || count(a, AXIS_T); }
static bool is_only(const Axis *a, int64_t f) { return a->n == 1 && a->f[0] == f; }

static bool has_tokens(const Lie *l, int rank)
{
        for (int i = 0; i < rank; i++)
                if (is_tokens(&l->axis[i]))
                        return true;
        return false;
}

static Axis natural_axis(const Node *n, Dim d)
{
        Axis a = { 0 };
        if (d.e[SYM_B] > 1 || d.e[SYM_T] > 1 || d.e[SYM_S])
                refuse(n, "has an axis of tokens by tokens");
        for (int i = 0; i < d.e[SYM_B]; i++)
                put(n, &a, AXIS_B);
        for (int i = 0; i < d.e[SYM_T]; i++)
                put(n, &a, AXIS_T);
        put(n, &a, d.n);
        return a;
}

static Lie natural(const Node *n, const Type *t)
{
        Lie l = { 0 };
        for (int i = 0; i < t->rank; i++)
                l.axis[i] = natural_axis(n, t->dim[i]);
        return l;
}

/* Of a result: a token is in one place. */
static void need_once(const Node *n, const Lie *l, int rank)
{
        int b = 0, t = 0;
        for (int i = 0; i < rank; i++) {
                b += count(&l->axis[i], AXIS_B);
                t += count(&l->axis[i], AXIS_T);
        }
        if (t > 1)
                refuse(n, "has a value for each two tokens");
        if (b > 1)
                refuse(n, "has a value for each two sequences");
}

static void need_alone(const Node *n, const Axis *a, const char *why)
{
        if (is_tokens(a))
                refuse(n, why);
}

/* ---- views ---- */

static Axis flat(const Node *n, const Lie *l, int rank)
{
        Axis a = { 0 };
        for (int i = 0; i < rank; i++)
                for (int k = 0; k < l->axis[i].n; k++)
                        put(n, &a, l->axis[i].f[k]);
        return a;
}

/* The next factors of `from` that make the dimension d. */
static Axis take(const Node *n, Axis *from, int *at, Dim d)
{
        static const char why[] =
                "cuts tokens and what belongs to them in another order than they have";
        int letters = d.e[SYM_B] + d.e[SYM_T];
        Axis a = { 0 };
        while (letters || d.n > 1) {
                if (*at == from->n)
                        refuse(n, why);
                int64_t f = from->f[*at];
                if (f < 0) {
                        if (!d.e[f == AXIS_B ? SYM_B : SYM_T])
                                refuse(n, why);
                        d.e[f == AXIS_B ? SYM_B : SYM_T]--;
                        letters--;
                } else if (d.n % f == 0) {
                        d.n /= f;
                } else if (!letters && f % d.n == 0) {
                        put(n, &a, d.n);
                        from->f[*at] /= d.n;
                        break;
                } else {
                        refuse(n, why);
                }
                put(n, &a, f);
                ++*at;
        }
        return a;
}

static Lie reshape(const Node *n, const Lie *x, int rank)
{
        Axis all = flat(n, x, rank);
        Lie l = *x;
        int at = 0;
        if (x->uniform) {
                l = natural(n, &n->type);
                l.uniform = true;
                return l;
        }
        for (int i = 0; i < n->type.rank; i++)
                l.axis[i] = take(n, &all, &at, n->type.dim[i]);
        if (l.bucket && (!n->type.rank || !axis_eq(&l.axis[0], &x->axis[0])))
                refuse(n, "cuts rows that lie in the order of experts");
        return l;
}

static Lie expand(const Node *n, const Lie *x, const Type *t)
{
        Lie l = { .bucket = x->bucket, .uniform = x->uniform };
        for (int i = 0; i < n->type.rank; i++) {
                int k = i - (n->type.rank - t->rank);
                bool same = k >= 0 && dim_eq(t->dim[k], n->type.dim[i]);
                l.axis[i] = same ? x->axis[k] : natural_axis(n, n->type.dim[i]);
        }
        if (l.bucket && n->type.rank != t->rank)
                refuse(n, "repeats rows that lie in the order of experts");
        need_once(n, &l, n->type.rank);
        return l;
}

static Lie transpose(const Node *n, const Lie *x)
{
        Lie l = *x;
        for (int i = 0; i < n->type.rank; i++)
                l.axis[i] = x->axis[n->a.perm.perm[i]];
        if (l.bucket && n->a.perm.perm[0])
                refuse(n, "turns rows that lie in the order of experts");
        return l;
}

/* ---- values that stand side by side ---- */

/* An order of rows that all of a node's inputs have, where they have tokens. */
static void join_order(const Node *n, Lie *l, const Lie *x, int rank, bool *any)
{
        if (x->uniform || !has_tokens(x, rank))
                return;
        if (*any && l->bucket != x->bucket)
                refuse(n, "puts rows in the order of experts beside rows in another");
        l->bucket = x->bucket;
        *any = true;
}

/* skip: the last axis is left out, which concat makes. */
static Lie broadcast(const Ctx *c, const Node *n, int skip)
{
        Lie l = { .uniform = true };
        bool any = false;
        for (int i = 0; i < n->n_in; i++)
                l.uniform &= c->lie[n->in[i]].uniform;
        for (int i = 0; i < n->n_in; i++)
                join_order(n, &l, &c->lie[n->in[i]], NODE(c->g, n->in[i])->type.rank, &any);
        for (int i = 0; i < n->type.rank; i++) {
                bool set = i >= n->type.rank - skip;
                l.axis[i] = natural_axis(n, n->type.dim[i]);
                for (int j = 0; j < n->n_in && i < n->type.rank - skip; j++) {
                        const Lie *x = &c->lie[n->in[j]];
                        const Type *t = &NODE(c->g, n->in[j])->type;
                        int k = i - (n->type.rank - t->rank);
                        if (k < 0 || dim_eq(t->dim[k], DIM(1)) || x->uniform)
                                continue;
                        if (set && !axis_eq(&l.axis[i], &x->axis[k]))
                                refuse(n, "puts tokens beside others of another place");
                        l.axis[i] = x->axis[k];
                        set = true;
                }
        }
        need_once(n, &l, n->type.rank);
        return l;
}

/* ---- products, tables, experts ---- */

static Lie matmul(const Ctx *c, const Node *n)
{
        const Lie *a = &c->lie[n->in[0]], *b = &c->lie[n->in[1]];
        int ra = NODE(c->g, n->in[0])->type.rank, rb = NODE(c->g, n->in[1])->type.rank;
        Lie l = *a;
        need_alone(n, &a->axis[ra - 1 - (n->a.mm.ta ? 1 : 0)], "sums over tokens");
        need_alone(n, &b->axis[rb - 2 + (n->a.mm.tb ? 1 : 0)], "sums over tokens");
        if ((a->bucket || b->bucket) && (n->a.mm.ta || has_tokens(b, rb)))
                refuse(n, "multiplies rows that lie in the order of experts with others");
        for (int i = 0; i < rb - 2; i++)
                if (!axis_eq(&a->axis[i], &b->axis[i]) && !a->uniform && !b->uniform)
                        refuse(n, "multiplies tokens with others of another place");
        l.uniform = false;
        if (n->a.mm.ta)
                l.axis[ra - 2] = a->axis[ra - 1];
        l.axis[ra - 1] = b->axis[rb - 1 - (n->a.mm.tb ? 1 : 0)];
        need_once(n, &l, n->type.rank);
        return l;
}

static Lie gather(const Ctx *c, const Node *n)
{
        const Lie *table = &c->lie[n->in[0]], *ids = &c->lie[n->in[1]];
        int rt = NODE(c->g, n->in[0])->type.rank, ri = NODE(c->g, n->in[1])->type.rank;
        Lie l = *ids;
        if (table->kind != VALUE || ids->kind == OFFS)
                refuse(n, "reads how many tokens each bucket has, or their order");
        if (ids->kind == PERM) {
                if (table->bucket || !axis_eq(&table->axis[0], &ids->axis[0]))
                        refuse(n, "sorts other rows than those of its bucket");
                l = *table;
                l.bucket = ids->bucket;
                l.uniform = false;
                return l;
        }
        if (has_tokens(table, rt))
                refuse(n, "picks among tokens");
        for (int i = 1; i < rt; i++)
                l.axis[ri + i - 1] = table->axis[i];
        l.uniform = false;
        return l;
}

static Lie expert(const Ctx *c, const Node *n)
{
        const Lie *a = &c->lie[n->in[0]], *perm = &c->lie[n->in[2]], *offs = &c->lie[n->in[3]];
        Lie l = { .bucket = n->a.expert.scatter ? 0 : perm->bucket };
        if (perm->kind != PERM || offs->kind != OFFS || perm->bucket != offs->bucket)
                refuse(n, "reads an order that no bucket made");
        if (a->kind != VALUE || c->lie[n->in[1]].kind != VALUE || has_tokens(&c->lie[n->in[1]], 3))
                refuse(n, "has rows or weights made of the order of tokens");
        need_alone(n, &a->axis[1], "sums over tokens");
        Axis rows = a->axis[0];
        if (n->a.expert.adiv)
                put(n, &rows, n->a.expert.adiv);
        if (a->bucket != (n->a.expert.adiv ? 0 : perm->bucket) || !axis_eq(&rows, &perm->axis[0]))
                refuse(n, "reads rows in another order than its bucket's");
        l.axis[0] = perm->axis[0];
        l.axis[1] = natural_axis(n, n->type.dim[1]);
        return l;
}

static Lie item(const Ctx *c, const Node *n)
{
        const Node *x = NODE(c->g, n->in[0]);
        Lie l = c->lie[n->in[0]];
        if (!n->a.item.index)
                return l;
        if (x->op == OP_BUCKET) {
                l.kind = OFFS;
                l.axis[0] = natural_axis(n, n->type.dim[0]);
        } else if (x->op == OP_ATTENTION) {
                l = natural(n, &n->type);
        } else if (x->op != OP_TOPK && x->op != OP_ROUTE) {
                refuse(n, "is not known to leave tokens alone");
        }
        return l;
}

/* ---- attention ---- */

static Lie attention(const Ctx *c, const Node *n)
{
        for (int i = 0; i < 3; i++) {
                const Lie *x = &c->lie[n->in[i]];
                if (x->uniform)
                        continue;
                if (x->bucket || !is_only(&x->axis[0], AXIS_B) || !is_only(&x->axis[1], AXIS_T))
                        refuse(n, "has something else than tokens on the second axis");
        }
        if (!n->a.att.causal)
                refuse(n, "sees tokens that come later, for it has causal=0");
        if (n->a.att.mask)
                refuse(n, "has a mask, with a row for each token that is there at once");
        if (att_extra(n) && has_tokens(&c->lie[n->in[att_extra(n)]], 1))
                refuse(n, "has slopes made of tokens");
        return natural(n, &n->type);
}

/* ---- elementwise ---- */

static Lie each(const Ctx *c, const Node *n, Lie l)
{
        const Lie *x = n->n_in ? &c->lie[n->in[0]] : NULL;
        const int last = n->n_in ? NODE(c->g, n->in[0])->type.rank - 1 : 0;
        switch (n->op) {
        case OP_POSITION: return l;
        case OP_FILL: l.uniform = true; return l;
        case OP_ROPE:
                if (!x->uniform &&
                    (x->bucket || !is_only(&x->axis[0], AXIS_B) || !is_only(&x->axis[1], AXIS_T)))
                        refuse(n, "turns by the second axis, which is not that of tokens");
                if (has_tokens(&c->lie[n->in[1]], 1))
                        refuse(n, "turns by frequencies made of tokens");
                l.uniform = false;
                return l;
        case OP_INTERLEAVE:
                l = broadcast(c, n, 1);
                l.axis[last] = x->axis[last];
                need_alone(n, &c->lie[n->in[1]].axis[last], "interleaves tokens");
                put(n, &l.axis[last], 2);
                l.uniform = false;
                return l;
        default:
                if (!n->n_in)
                        refuse(n, n->op == OP_INV_TOKENS ? "knows how many targets there are"
                                                         : "is not known to leave tokens alone");
                return broadcast(c, n, 0);
        }
}

/* ---- all ---- */

static Lie lie_of(const Ctx *c, const Node *n)
{
        const Lie *x = n->n_in ? &c->lie[n->in[0]] : NULL;
        const int rank = n->n_in ? NODE(c->g, n->in[0])->type.rank : 0, last = rank - 1;
        Lie l = x ? *x : natural(n, &n->type);
        for (int i = 0; i < n->n_in; i++)
                if (c->lie[n->in[i]].kind != VALUE && n->op != OP_ITEM &&
                    n->op != OP_EXPERT_MATMUL && n->op != OP_GATHER)
                        refuse(n, "reads how many tokens each bucket has, or their order");
        switch (op_info[n->op].tokens) {
        case TOKENS_LEAF: return l;
        case TOKENS_EACH: return each(c, n, l);
        case TOKENS_RESHAPE: return reshape(n, x, rank);
        case TOKENS_EXPAND: return expand(n, x, &NODE(c->g, n->in[0])->type);
        case TOKENS_TRANSPOSE: return transpose(n, x);
        case TOKENS_MATMUL: return matmul(c, n);
        case TOKENS_GATHER: return gather(c, n);
        case TOKENS_ITEM: return item(c, n);
        case TOKENS_ATTENTION: return attention(c, n);
        case TOKENS_EXPERT: return expert(c, n);
        case TOKENS_CONCAT:
                l = broadcast(c, n, 1);
                l.uniform = false;
                return l;
        case TOKENS_SLICE:
                if (x->bucket && !n->a.slice.axis)
                        refuse(n, "takes some of the rows that lie in the order of experts");
                l.axis[n->a.slice.axis] = natural_axis(n, DIM(n->a.slice.len));
                return l;
        case TOKENS_LAST:
                need_alone(n, &x->axis[last], "works along the axis of tokens");
                if (n->type.rank == rank)
                        l.axis[last] = natural_axis(n, n->type.dim[last]);
                l.uniform = false;
                return l;
        case TOKENS_COLSUM:
                for (int i = 0; i < n->a.k.k; i++)
                        need_alone(n, &x->axis[i], "sums over tokens");
                for (int i = 0; i < n->type.rank; i++)
                        l.axis[i] = x->axis[i + n->a.k.k];
                l.uniform = false;
                return l;
        case TOKENS_COMBINE:
                if (n->n_in == 2)
                        join_order(n, &l, &c->lie[n->in[1]], last, &(bool) { has_tokens(x, rank) });
                for (int i = 0; n->n_in == 2 && i < last; i++)
                        if (!c->lie[n->in[1]].uniform && !x->uniform &&
                            !axis_eq(&x->axis[i], &c->lie[n->in[1]].axis[i]))
                                refuse(n, "puts tokens beside others of another place");
                need_alone(n, &x->axis[last - 1], "sums over tokens");
                l.axis[last - 1] = x->axis[last];
                l.uniform = false;
                return l;
        case TOKENS_BUCKET:
                if (x->bucket || x->uniform)
                        refuse(n, "sorts rows that lie in the order of experts, or all alike");
                l = (Lie) { .kind = PERM, .bucket = (Ref)(n - c->g->node) };
                l.axis[0] = flat(n, x, rank);
                return l;
        case TOKENS_NEVER: break;
        }
        refuse(n, "is not known to leave tokens alone");
}

void check_token_axis(const Model *m)
{
        const Graph *g = m->graph;
        const Ref out = graph_out(g, "logits"), loss = graph_out(g, "loss");
        Diag d;
        if (!out)
                error_at(loss ? NODE(g, loss)->loc : (Loc) { m->name, 0, 0 },
                         "the model returns no logits, so it cannot generate text; compile with "
                         "--mode train");
        Arena *tmp = arena_new();
        d.source = NULL;
        if (!DIAG_CATCH(&d)) {
                arena_free(tmp);
                diag_pass_on(&d);
        }
        Ctx c = { g, arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Lie)) };
        bool *live = arena_alloc(tmp, (size_t)g->n_nodes);
        live[out] = true;
        for (Ref r = out; r > 0; r--)
                for (int i = 0; live[r] && i < NODE(g, r)->n_in; i++)
                        live[NODE(g, r)->in[i]] = true;
        for (Ref r = 1; r <= out; r++)
                if (live[r])
                        c.lie[r] = lie_of(&c, NODE(g, r));
        const Node *n = NODE(g, out);
        const Axis all = flat(n, &c.lie[out], n->type.rank);
        if (c.lie[out].kind != VALUE || c.lie[out].bucket || all.n < 2 || all.f[0] != AXIS_B ||
            all.f[1] != AXIS_T)
                refuse(n, "are not the logits of each token, [B,T,V]");
        diag_end(&d);
        arena_free(tmp);
}
