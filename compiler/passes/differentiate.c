/* differentiate.c: append the backward pass.
 * needs: outputs loss and, if there is one, aux_loss (reported, not added: the
 * loss already holds it).   keeps: types.
 *
 * Walks the nodes from the loss back and applies each op's gradient rule
 * (ir/grad.c).  The seed is `share`, this micro-step's weight, so that
 * micro-batches add up to the batch.  Each contribution to a trainable parameter
 * becomes `accum`; the first of a step overwrites.
 *
 * What a rule makes stands at the line of the op whose gradient it is, and is named for the value
 * that it is the gradient of: x.grad.
 *
 * The readers of a value that only take slices of it (q, k, v of one linear)
 * give one gradient by concat or interleave, written in place by its parts. */
#include "../compiler.h"
#include <string.h>

typedef struct Piece {
        Ref slice, grad;
        struct Piece *next;
} Piece;

typedef struct Ctx {
        Graph *g;
        Arena *tmp;
        Ref (*grad)[MAX_OUT];
        Piece **piece; /* contributions to a parameter, in their order */
        Piece **cut;   /* gradients that arrived through slices */
        bool *wanted;  /* some trainable parameter lies below */
        int n;
} Ctx;

/* The node becomes NAME.grad, or, where that is taken, NAME.grad.N, at the line of `at`. */
static void name_grad(Graph *g, Ref d, Ref of, Ref at)
{
        char full[256];
        const char *base = NODE(g, of)->name, *name = full;
        int n = snprintf(full, sizeof full, "%s.grad", base);
        if (n >= (int)sizeof full)
                name = arena_fmt(g->arena, "%s.grad", base);
        name = graph_find(g, name) ? graph_name(g, name) : arena_str(g->arena, name);
        graph_rename(g, d, name);
        NODE(g, d)->loc = NODE(g, at)->loc;
}

/* Those of the nodes from `from` on that were made of r's gradients: what becomes the gradient of an
 * input is named for it, the rest for r.  Others are forward values in another form. */
static void name_grads(Ctx *c, Ref from, Ref r, const Ref *din)
{
        Graph *g = c->g;
        bool *made = arena_alloc(c->tmp, (size_t)(g->n_nodes - from + 1));
        for (Ref d = from; d < g->n_nodes; d++) {
                Ref of = r;
                for (int i = 0; i < NODE(g, d)->n_in; i++) {
                        Ref in = NODE(g, d)->in[i];
                        made[d - from] |= in >= from ? made[in - from] : in >= c->n;
                }
                for (int i = 0; din && i < NODE(g, r)->n_in; i++)
                        if (din[i] == d)
                                of = NODE(g, r)->in[i];
                if (made[d - from])
                        name_grad(g, d, of, r);
        }
}

static void add_grad(Ctx *c, Ref r, int out, Ref d)
{
        Graph *g = c->g;
        if (!d || !c->wanted[r])
                return;
        if (NODE(g, r)->op == OP_ITEM) {
                add_grad(c, NODE(g, r)->in[0], (int)NODE(g, r)->a.item.index, d);
                return;
        }
        if (NODE(g, r)->op == OP_PARAM) { /* contributions stay apart: each becomes an accum */
                Piece *p = arena_alloc(c->tmp, sizeof *p), **end = &c->piece[r];
                p->grad = d;
                while (*end)
                        end = &(*end)->next;
                *end = p;
                return;
        }
        if (c->grad[r][out]) {
                d = op2(g, OP_ADD, c->grad[r][out], d);
                name_grad(g, d, r, r);
        }
        c->grad[r][out] = d;
}

static Ref zeros(Graph *g, Type t, Loc loc)
{
        Attr z = { .num = { 0 } };
        return graph_leaf(g, OP_FILL, t, &z, loc, NULL);
}

/* Gradients that arrived through slices of r along one axis, put side by side. */
static Ref assemble_axis(Ctx *c, Ref r, Piece *list)
{
        Graph *g = c->g;
        Piece *p = list;
        Type t = NODE(g, r)->type;
        int ax = (int)NODE(g, p->slice)->a.slice.axis;
        int64_t step = NODE(g, p->slice)->a.slice.step, len = NODE(g, p->slice)->a.slice.len;
        Loc loc = NODE(g, r)->loc;
        t.dt = NODE(g, p->grad)->type.dt;

        if (step == 2 && ax == t.rank - 1 && len * 2 == t.dim[ax].n) {
                Ref half[2] = { 0, 0 };
                for (; p; p = p->next) {
                        const Attr *a = &NODE(g, p->slice)->a;
                        if (a->slice.axis != ax || a->slice.step != 2 || a->slice.len != len)
                                error_at(NODE(g, p->slice)->loc,
                                         "%%%s is sliced in ways that have no common gradient",
                                         NODE(g, r)->name);
                        Ref *h = &half[a->slice.start];
                        *h = *h ? op2(g, OP_ADD, *h, p->grad) : p->grad;
                }
                t.dim[ax].n = len;
                for (int i = 0; i < 2; i++)
                        if (!half[i])
                                half[i] = zeros(g, t, loc);
                return op2(g, OP_INTERLEAVE, half[0], half[1]);
        }

        /* Work on the last axis: everything from ax on folded into one. */
        int64_t inner = 1;
        Type flat = t;
        for (int i = ax + 1; i < t.rank; i++)
                inner *= t.dim[i].n;
        flat.rank = ax + 1;
        flat.dim[ax].n = t.dim[ax].n * inner;
        Ref part[MAX_IN], sum = 0;
        int n = 0;
        int64_t at = 0;
        bool *done = arena_alloc(c->tmp, 4096);
        for (;;) {
                /* the piece that starts lowest at or after `at` */
                Piece *best = NULL;
                int k = 0, best_k = 0;
                for (p = list; p && k < 4096; p = p->next, k++) {
                        const Attr *a = &NODE(g, p->slice)->a;
                        if (a->slice.step != 1 || a->slice.axis != ax)
                                error_at(NODE(g, p->slice)->loc,
                                         "%%%s is sliced in ways that have no common gradient",
                                         NODE(g, r)->name);
                        if (!done[k] && a->slice.start >= at &&
                            (!best || a->slice.start < NODE(g, best->slice)->a.slice.start))
                                best = p, best_k = k;
                }
                if (best && n < MAX_IN - 2) {
                        const Attr *a = &NODE(g, best->slice)->a;
                        Type pt = flat;
                        Ref d = best->grad;
                        done[best_k] = true;
                        k = 0;
                        for (p = list; p && k < 4096;
                             p = p->next, k++) /* the same slice taken twice */
                                if (!done[k] &&
                                    NODE(g, p->slice)->a.slice.start == a->slice.start &&
                                    NODE(g, p->slice)->a.slice.len == a->slice.len) {
                                        d = op2(g, OP_ADD, d, p->grad);
                                        done[k] = true;
                                }
                        if (a->slice.start > at) {
                                pt.dim[ax].n = (a->slice.start - at) * inner;
                                part[n++] = zeros(g, pt, loc);
                        }
                        pt.dim[ax].n = a->slice.len * inner;
                        part[n++] = graph_reshape(g, d, pt);
                        at = a->slice.start + a->slice.len;
                        continue;
                }
                if (at < t.dim[ax].n) {
                        Type pt = flat;
                        pt.dim[ax].n = (t.dim[ax].n - at) * inner;
                        part[n++] = zeros(g, pt, loc);
                }
                Ref whole = n == 1 ? part[0]
                                   : graph_add(g, OP_CONCAT, part, n, NULL, loc,
                                               graph_name(g, NODE(g, r)->name));
                sum = sum ? op2(g, OP_ADD, sum, whole) : whole;
                bool left = false;
                k = 0;
                for (p = list; p && k < 4096; p = p->next, k++)
                        left |= !done[k];
                if (!left)
                        return graph_reshape(g, sum, t);
                n = 0; /* overlapping slices, or many: another round */
                at = 0;
        }
}

/* All gradients that arrived through slices of r: those of each axis, added up. */
static Ref assemble(Ctx *c, Ref r)
{
        Ref sum = 0;
        for (int ax = 0; ax < NODE(c->g, r)->type.rank; ax++) {
                Piece *list = NULL, **end = &list, *p = c->cut[r], *next;
                for (c->cut[r] = NULL; p; p = next) {
                        next = p->next;
                        if (NODE(c->g, p->slice)->a.slice.axis == ax) {
                                *end = p;
                                end = &p->next;
                        } else {
                                p->next = c->cut[r];
                                c->cut[r] = p;
                        }
                        *end = NULL;
                }
                Ref d = list ? assemble_axis(c, r, list) : 0;
                sum = sum && d ? op2(c->g, OP_ADD, sum, d) : sum ? sum : d;
        }
        return sum;
}

void differentiate(Graph *g, Arena *tmp)
{
        Ref loss = graph_out(g, "loss");
        Ctx c = { .g = g, .tmp = tmp, .n = g->n_nodes };
        c.grad = arena_alloc(tmp, (size_t)c.n * sizeof *c.grad);
        c.piece = arena_alloc(tmp, (size_t)c.n * sizeof *c.piece);
        c.cut = arena_alloc(tmp, (size_t)c.n * sizeof *c.cut);
        c.wanted = arena_alloc(tmp, (size_t)c.n);
        if (!loss)
                error_at((Loc) { 0 }, "the model returns no loss, so it cannot be trained");
        for (Ref r = 1; r < c.n; r++) {
                const Node *n = NODE(g, r);
                c.wanted[r] = n->op == OP_PARAM && n->a.param.trainable;
                for (int i = 0; i < n->n_in; i++)
                        c.wanted[r] |= c.wanted[n->in[i]];
        }
        if (!c.wanted[loss])
                error_at(NODE(g, loss)->loc, "the loss depends on no trainable parameter");
        Ref share = graph_leaf(g, OP_SHARE, type_of(DT_F32, 0), NULL, NODE(g, loss)->loc,
                               graph_name(g, "share"));
        add_grad(&c, loss, 0, graph_reshape(g, share, NODE(g, loss)->type));

        for (Ref r = c.n - 1; r > 0; r--) {
                Ref din[MAX_IN] = { 0 };
                bool any = false;
                if (!c.wanted[r])
                        continue;
                if (c.cut[r]) {
                        Ref from = g->n_nodes, d = assemble(&c, r);
                        name_grads(&c, from, r, NULL);
                        add_grad(&c, r, 0, d);
                }
                if (NODE(g, r)->op == OP_PARAM)
                        continue;
                for (int i = 0; i < MAX_OUT; i++)
                        any |= c.grad[r][i] != 0;
                if (!any)
                        continue;
                if (NODE(g, r)->op == OP_SLICE) {
                        Piece *p = arena_alloc(tmp, sizeof *p);
                        Ref whole = NODE(g, r)->in[0];
                        *p = (Piece) { r, c.grad[r][0], NULL };
                        p->next = c.cut[whole];
                        c.cut[whole] = p;
                        continue;
                }
                Ref from = g->n_nodes;
                op_info[NODE(g, r)->op].grad(g, r, c.grad[r], din);
                name_grads(&c, from, r, din);
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        add_grad(&c, NODE(g, r)->in[i], 0, din[i]);
        }
        for (Ref r = 1; r < c.n; r++) {
                if (NODE(g, r)->op != OP_PARAM || !NODE(g, r)->a.param.trainable)
                        continue;
                Attr a = { .accum = { 0 } };
                for (Piece *p = c.piece[r]; p; p = p->next) {
                        Type t = NODE(g, r)->type;
                        Ref d = graph_reshape(g, p->grad, t);
                        graph_add(g, OP_ACCUM, (Ref[]) { r, d }, 2, &a, NODE(g, r)->loc,
                                  graph_name(g, "accum"));
                        a.accum.more = 1;
                }
                if (!c.piece[r]) { /* unused: its gradient is zero, and the optimiser reads it */
                        Type t = NODE(g, r)->type;
                        t.dt = DT_F32;
                        graph_add(g, OP_ACCUM, (Ref[]) { r, zeros(g, t, NODE(g, r)->loc) }, 2, &a,
                                  NODE(g, r)->loc, graph_name(g, "accum"));
                }
        }
}
