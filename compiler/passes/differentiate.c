/* differentiate.c: append the backward pass.
 * needs: outputs loss and, if there is one, aux_loss (reported, not added: the
 * loss already holds it).   keeps: types.
 *
 * Walks the nodes from the loss back and applies each op's gradient rule (ir/grad.c).  The seed is
 * `share`, this micro-step's weight, so that micro-batches add up to the batch.  Each contribution
 * to a trainable parameter becomes `accum`; the first of a step overwrites.
 *
 * A gradient's nodes carry the line of the op that they belong to.  The gradient of x is named
 * x.grad.
 *
 * If all readers of a value only slice it (q, k, v of one linear), its gradient is their concat or
 * interleave, and each part writes its own place. */
#include "../compiler.h"
#include <string.h>

typedef struct Piece {
        Ref slice, grad;
        int64_t start, len; /* of grad, with zeros between a slice's elements */
        bool done;
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

/* Those of the nodes from `from` on that were made of r's gradients: what becomes the gradient of
 * an input is named for it, the rest for r.  Others are forward values in another form. */
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

/* All of them take every second of an even number of last elements. */
static bool halves(const Graph *g, Ref r, const Piece *p)
{
        const Type *t = &NODE(g, r)->type;
        for (; p; p = p->next) {
                const Attr *a = &NODE(g, p->slice)->a;
                if (a->slice.axis != t->rank - 1 || a->slice.step != 2 ||
                    a->slice.len * 2 != t->dim[t->rank - 1].n)
                        return false;
        }
        return true;
}

static Ref interleave_halves(Ctx *c, Type t, Piece *p, Loc loc)
{
        Graph *g = c->g;
        Ref half[2] = { 0, 0 };
        for (; p; p = p->next) {
                Ref *h = &half[NODE(g, p->slice)->a.slice.start];
                *h = *h ? op2(g, OP_ADD, *h, p->grad) : p->grad;
        }
        t.dim[t.rank - 1].n /= 2;
        for (int i = 0; i < 2; i++)
                if (!half[i])
                        half[i] = zeros(g, t, loc);
        return op2(g, OP_INTERLEAVE, half[0], half[1]);
}

/* A gradient (rows, len, inner) of every step-th element: the same with zeros between them, from
 * the first element to the last (rows, (len - 1) step + 1, inner), flattened but for the rows. */
static Ref spread(Graph *g, Ref d, Dim rows, int64_t len, int64_t step, int64_t inner, Loc loc)
{
        const DType dt = NODE(g, d)->type.dt;
        const Type all = type_of(dt, 2, rows, DIM(len * inner));
        d = graph_reshape(g, d, all);
        if (step == 1 || len == 1)
                return d;
        Attr head = { .slice = { 1, 0, (len - 1) * inner, 1 } },
             last = { .slice = { 1, (len - 1) * inner, inner, 1 } };
        Ref in[2] = { graph_add(g, OP_SLICE, &d, 1, &head, loc, NULL),
                      graph_add(g, OP_SLICE, &d, 1, &last, loc, NULL) };
        const Type each = type_of(dt, 3, rows, DIM(len - 1), DIM(inner)),
                   gap = type_of(dt, 3, rows, DIM(len - 1), DIM((step - 1) * inner)),
                   flat = type_of(dt, 2, rows, DIM((len - 1) * step * inner));
        Ref wide[2] = { graph_reshape(g, in[0], each), zeros(g, gap, loc) };
        in[0] = graph_reshape(g, graph_add(g, OP_CONCAT, wide, 2, NULL, loc, NULL), flat);
        return graph_add(g, OP_CONCAT, in, 2, NULL, loc, NULL);
}

/* Gradients that arrived through slices of r along one axis, put side by side. */
static Ref assemble_axis(Ctx *c, Ref r, Piece *list)
{
        Graph *g = c->g;
        Type t = NODE(g, r)->type;
        const int ax = (int)NODE(g, list->slice)->a.slice.axis;
        const Loc loc = NODE(g, r)->loc;
        t.dt = NODE(g, list->grad)->type.dt;
        if (halves(g, r, list))
                return interleave_halves(c, t, list, loc);

        /* Work on the last axis: everything from ax on folded into one. */
        int64_t inner = 1;
        Type flat = t;
        Dim rows = DIM(1);
        for (int i = ax + 1; i < t.rank; i++)
                inner *= t.dim[i].n;
        for (int i = 0; i < ax; i++)
                rows = dim_mul(rows, t.dim[i]);
        flat.rank = ax + 1;
        flat.dim[ax].n = t.dim[ax].n * inner;
        for (Piece *p = list; p; p = p->next) {
                const Attr a = NODE(g, p->slice)->a;
                p->start = a.slice.start;
                p->len = (a.slice.len - 1) * a.slice.step + 1;
                if (a.slice.step > 1)
                        p->grad = spread(g, p->grad, rows, a.slice.len, a.slice.step, inner, loc);
        }
        Ref part[MAX_IN], sum = 0;
        int n = 0;
        int64_t at = 0;
        for (;;) {
                /* the piece that starts lowest at or after `at` */
                Piece *best = NULL;
                for (Piece *p = list; p; p = p->next)
                        if (!p->done && p->start >= at && (!best || p->start < best->start))
                                best = p;
                if (best && n < MAX_IN - 2) {
                        Type pt = flat;
                        Ref d = best->grad;
                        best->done = true;
                        for (Piece *p = list; p; p = p->next) /* the same slice taken twice */
                                if (!p->done && p->start == best->start && p->len == best->len &&
                                    type_eq(&NODE(g, p->grad)->type, &NODE(g, d)->type)) {
                                        d = op2(g, OP_ADD, d, p->grad);
                                        p->done = true;
                                }
                        if (best->start > at) {
                                pt.dim[ax].n = (best->start - at) * inner;
                                part[n++] = zeros(g, pt, loc);
                        }
                        pt.dim[ax].n = best->len * inner;
                        part[n++] = graph_reshape(g, d, pt);
                        at = best->start + best->len;
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
                for (Piece *p = list; p; p = p->next)
                        left |= !p->done;
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
                        *p = (Piece) { .slice = r, .grad = c.grad[r][0] };
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
