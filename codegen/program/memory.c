/* memory.c: decides which values of a program need memory, and places them in the arena of
 * activations. */
#include <stdlib.h>
#include <string.h>
#include "program.h"

/* The functor that a member is evaluated in: prologues 1.., epilogues -1.. */
static int part_of(const Group *gr, Ref r)
{
        for (int k = 0; k < MAX_IN; k++)
                for (int i = 0; i < gr->prologue[k].n_nodes; i++)
                        if (gr->prologue[k].node[i] == r)
                                return 1 + k;
        for (int o = 0; o < gr->n_out; o++) {
                if (gr->epilogue[o].root == r)
                        return -1 - o;
                for (int i = 0; i < gr->epilogue[o].n_nodes; i++)
                        if (gr->epilogue[o].node[i] == r)
                                return -1 - o;
        }
        return 0;
}

static bool same_part(const Group *gr, Ref r, Ref reader)
{
        if (part_of(gr, r) == part_of(gr, reader))
                return true;
        /* a prologue's member may be evaluated in several prologues */
        for (int k = 0; k < MAX_IN; k++) {
                bool a = false, b = false;
                for (int i = 0; i < gr->prologue[k].n_nodes; i++) {
                        a |= gr->prologue[k].node[i] == r;
                        b |= gr->prologue[k].node[i] == reader;
                }
                if (a && b)
                        return true;
        }
        return false;
}

void stored_find(Emit *e)
{
        Graph *g = e->g;
        const Group **of = arena_alloc(e->m->arena, (size_t)g->n_nodes * sizeof *of);
        for (int i = 0; i < e->n_groups; i++)
                for (int j = 0; j < e->groups[i].n_nodes; j++)
                        of[e->groups[i].node[j]] = &e->groups[i];
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (op_is_view(n->op))
                        continue;
                for (int i = 0; i < n->n_in; i++) {
                        Ref in = n->in[i], b = in;
                        bool direct = true;
                        /* through every view, the functors' own included */
                        while (op_is_view(NODE(g, b)->op)) {
                                direct &= op_is(NODE(g, b)->op, FACT_FOLLOWED);
                                b = NODE(g, b)->in[0];
                        }
                        if (n->op == OP_ITEM || (op_appends(n->op) && i == 0) ||
                            (n->op == OP_ACCUM && i == 0))
                                continue;
                        if (is_virtual(g, b) && !of[b])
                                continue;
                        const Group *gr = of[r];
                        bool inside = gr && gr == of[b] && direct;
                        if (inside && r == gr->anchor) { /* a prologue delivers it */
                                bool prologue = false;
                                for (int k = 0; k < n->n_in; k++)
                                        prologue |= gr->prologue[k].root == b &&
                                                    gr->prologue[k].n_nodes && n->in[k] == in;
                                inside = prologue;
                        } else if (inside) {
                                inside = is_member(g, r) && (n->op != OP_GATHER) &&
                                         same_part(gr, b, r);
                        }
                        if (!inside)
                                e->stored[b] = true;
                }
        }
        for (int i = 0; i < g->n_out; i++) {
                Ref b = g->out[i].ref;
                while (op_is_view(NODE(g, b)->op))
                        b = NODE(g, b)->in[0];
                e->stored[b] = true;
        }
        for (int i = 0; i < e->n_groups;
             i++) /* a virtual value with a kernel of its own exists to be stored */
                for (int j = 0; j < e->groups[i].n_nodes; j++)
                        if (is_virtual(g, e->groups[i].node[j]))
                                e->stored[e->groups[i].node[j]] = true;
}

Ref storage_of(Emit *e, Ref r)
{
        while (e->place[r].whole)
                r = e->place[r].whole;
        if (NODE(e->g, r)->op == OP_SAMPLE) {
                Ref ids = graph_find(e->g, "ids");
                if (ids &&
                    dim_eq(type_elems(&NODE(e->g, ids)->type), type_elems(&NODE(e->g, r)->type)))
                        return ids;
        }
        return r;
}

int64_t buffer_bytes(Emit *e, const Slot *s)
{
        if (s->kind == SLOT_WORK)
                return dim_most(e, e->work[s->id].elems) * e->work[s->id].size;
        const Type *t = &NODE(e->g, s->id)->type;
        const Storage blocks = node_storage(NODE(e->g, s->id));
        if (blocks)
                return storage_bytes(blocks, type_elems(t).n);
        return dim_most(e, type_elems(t)) * dt_size[t->dt];
}

bool in_act(Emit *e, const Slot *s)
{
        if (s->kind == SLOT_WORK)
                return !e->work[s->id].keep;
        if (s->kind != SLOT_NODE)
                return false;
        Op op = NODE(e->g, s->id)->op;
        return op != OP_PARAM && op != OP_CONST && op != OP_STATE;
}

bool act_argument(Emit *e, int l, int i, Slot *s)
{
        *s = e->launch[l].arg[i];
        if (s->kind == SLOT_NODE)
                s->id = storage_of(e, s->id);
        return in_act(e, s);
}

int *buffer_of(Emit *e, const Slot *s)
{
        return s->kind == SLOT_WORK ? &e->buffer_of[e->g->n_nodes + s->id] : &e->buffer_of[s->id];
}

static Buffer *buffer_for(Emit *e, Buffer *b, int *n, const Slot *s)
{
        int *at = buffer_of(e, s);
        if (!*at) {
                *at = *n + 1;
                b[*n] = (Buffer) { .slot = *s, .first = 1 << 30, .last = -1 };
                b[(*n)++].slot.off = 0;
        }
        return &b[*at - 1];
}

static int by_size(const void *x, const void *y)
{
        const Buffer *a = *(Buffer *const *)x, *b = *(Buffer *const *)y;
        if (a->bytes != b->bytes)
                return a->bytes < b->bytes ? 1 : -1;
        if (a->first != b->first)
                return a->first < b->first ? -1 : 1;
        return a->slot.id < b->slot.id ? -1 : a->slot.id > b->slot.id;
}

/* Buffers that have an offset, lowest first, in blocks: of each the launches that any of it is
 * alive between, and the highest end, so that most are passed over. */
enum { BLOCK = 256 };
typedef struct Placed {
        int64_t offset, end;
        int first, last;
} Placed;
typedef struct Block {
        Placed at[BLOCK];
        int n, first, last;
        int64_t end;
        struct Block *next;
} Block;

/* full: of each RUN launches, from the one before the first on, bytes at the bottom that buffers
 * alive in all of them fill without a gap: nothing fits there any more. */
enum { RUN = 16 };

static int64_t bottom_of(const int64_t *full, const Buffer *x)
{
        int64_t at = 0;
        for (int k = (x->first + 1) / RUN; k <= (x->last + 1) / RUN; k++)
                at = full[k] > at ? full[k] : at;
        return at;
}

static void fill_bottom(int64_t *full, const Buffer *x)
{
        for (int k = (x->first + RUN) / RUN; (k + 1) * RUN <= x->last + 2; k++)
                if (x->offset <= full[k] && full[k] < x->offset + x->bytes)
                        full[k] = x->offset + x->bytes;
}

/* The lowest place for x, not below `at`, among those that are alive with it. */
static int64_t lowest_place(const Block *k, const Buffer *x, int64_t at)
{
        for (; k && k->at[0].offset < at + x->bytes; k = k->next) {
                if (x->first > k->last || k->first > x->last || k->end <= at)
                        continue;
                for (int j = 0; j < k->n && k->at[j].offset < at + x->bytes; j++) {
                        const Placed *y = &k->at[j];
                        if (x->first <= y->last && y->first <= x->last && at < y->end)
                                at = y->end;
                }
        }
        return at;
}

static void span(Block *k)
{
        k->first = k->at[0].first, k->last = k->at[0].last, k->end = k->at[0].end;
        for (int j = 1; j < k->n; j++) {
                k->first = k->at[j].first < k->first ? k->at[j].first : k->first;
                k->last = k->at[j].last > k->last ? k->at[j].last : k->last;
                k->end = k->at[j].end > k->end ? k->at[j].end : k->end;
        }
}

/* The list begins with a block, which may be empty. */
static void put_placed(Arena *a, Block *k, const Buffer *x)
{
        const Placed p = { x->offset, x->offset + x->bytes, x->first, x->last };
        while (k->next && k->next->at[0].offset <= p.offset)
                k = k->next;
        if (k->n == BLOCK) { /* in two */
                Block *half = arena_alloc(a, sizeof *half);
                half->n = BLOCK / 2;
                k->n -= half->n;
                memcpy(half->at, k->at + k->n, (size_t)half->n * sizeof *half->at);
                half->next = k->next;
                k->next = half;
                span(k), span(half);
                k = half->at[0].offset <= p.offset ? half : k;
        }
        int j = k->n++;
        for (; j && k->at[j - 1].offset > p.offset; j--)
                k->at[j] = k->at[j - 1];
        k->at[j] = p;
        k->first = k->n == 1 || p.first < k->first ? p.first : k->first;
        k->last = k->n == 1 || p.last > k->last ? p.last : k->last;
        k->end = p.end > k->end ? p.end : k->end;
}

int64_t plan_memory(Emit *e, Arena *a, Buffer **out, int *count)
{
        Graph *g = e->g;
        int most = g->n_nodes + e->n_work + 8, n = 0;
        Buffer *b = arena_alloc(a, (size_t)most * (e->offload ? 2 : 1) * sizeof *b), **order;
        e->buffer_of = arena_alloc(a, ((size_t)g->n_nodes + (size_t)e->n_work + 1) *
                                              sizeof *e->buffer_of);
        int64_t total = 0;
        for (int l = 0; l < e->n_launch; l++)
                for (int i = 0; i < e->launch[l].n_args; i++) {
                        Slot s;
                        if (!act_argument(e, l, i, &s))
                                continue;
                        Buffer *x = buffer_for(e, b, &n, &s);
                        x->first = l < x->first ? l : x->first;
                        x->last = l > x->last ? l : x->last;
                }
        for (Ref r = 1; r < g->n_nodes;
             r++) /* the host writes inputs before and reads outputs after */
                if (NODE(g, r)->op == OP_INPUT) {
                        Buffer *x = buffer_for(e, b, &n, &(Slot) { .kind = SLOT_NODE, .id = r });
                        x->first = -1;
                        x->last = e->n_launch;
                }
        for (int i = 0; i < g->n_out; i++) {
                Ref r = g->out[i].ref;
                while (op_is_view(NODE(g, r)->op))
                        r = NODE(g, r)->in[0];
                Slot s = { .kind = SLOT_NODE, .id = storage_of(e, r) };
                if (op_appends(NODE(g, r)->op) || !in_act(e, &s))
                        continue;
                Buffer *x = buffer_for(e, b, &n, &s);
                x->first = x->first < 0 ? -1 : x->first > e->n_launch ? 0 : x->first;
                x->last = e->n_launch;
        }
        for (int i = 0; i < n; i++) {
                b[i].bytes = (buffer_bytes(e, &b[i].slot) + 255) & ~(int64_t)255;
                b[i].name = b[i].slot.kind == SLOT_WORK ? "scratch" : NODE(g, b[i].slot.id)->name;
        }
        if (e->offload)
                n = offload_split(e, a, b, n);
        order = arena_alloc(a, (size_t)(n + 1) * sizeof *order);
        for (int i = 0; i < n; i++)
                order[i] = &b[i];
        qsort(order, (size_t)n, sizeof *order, by_size);
        Block *placed = arena_alloc(a, sizeof *placed);
        int64_t *full = arena_alloc(a, ((size_t)e->n_launch / RUN + 2) * sizeof *full);
        for (int i = 0; i < n; i++) {
                Buffer *x = order[i];
                x->offset = placed->n ? lowest_place(placed, x, bottom_of(full, x)) : 0;
                if (x->offset + x->bytes > total)
                        total = x->offset + x->bytes;
                put_placed(a, placed, x);
                fill_bottom(full, x);
        }
        *out = b;
        *count = n;
        return total;
}
