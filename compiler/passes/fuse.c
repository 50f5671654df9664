/* fuse.c: decides which nodes share a kernel.  Writes Node.group; moves nothing.
 * needs: types.   keeps: everything else.
 *
 * Every op with structure of its own (matmul, norm, attention, sum ...) anchors a kernel.  An
 * elementwise op joins the kernel that makes its input, as its epilogue, unless that kernel would
 * then wait for itself.  An op that joins nothing starts a map, which later ops may join.  In the
 * end, a map becomes the prologue of a row op that reads it.
 *
 * The bytes saved decide between several kernels (fuse_bytes.h).  An elementwise op joins the
 * kernel where it saves most.  It stays out of an epilogue if its only reader is a row op that
 * saves more by computing it, or as much when the input is stored anyway.  A map that several row
 * ops read becomes the prologue of the one that saves most; on a tie, of the first.
 *
 * In an expert MLP, gate * up becomes the prologue of `down`.  Then gate and up do not wait for
 * each other, and schedule.c may make them one launch.
 *
 * From level 2 on, a norm joins the GEMV that reads it.  If others read it too, one block of a
 * small GEMV of one row also stores it.
 *
 * At level 0 nothing joins anything. */
#include "fuse.h"

static int new_group(Fuse *f, Ref anchor, Ref first)
{
        Gr *k = &f->gr[++f->n];
        *k = (Gr) { .anchor = anchor };
        if (!anchor) {
                const Type *t = &NODE(f->g, first)->type;
                if (NODE(f->g, first)->op == OP_APPEND)
                        t = &NODE(f->g, NODE(f->g, first)->in[1])->type;
                domain_of(t, &k->n, &k->rows);
                if (NODE(f->g, first)->op == OP_INTERLEAVE)
                        k->n /= 2;
        }
        return f->n;
}

static void enter(Fuse *f, Ref r, int id)
{
        order_enter(f->order, r, id);
        f->gr[id].members++;
}

/* All of kernel `from` goes into `to`. */
static void absorb(Fuse *f, int from, int to)
{
        for (Ref s = f->order->first[from]; s; s = f->order->next[s])
                f->gr[to].members++;
        order_merge(f->order, from, to);
        f->gr[from].members = 0;
}

/* Does r, of one map, read value b, which another makes, column for column? */
static bool reads_whole(const Fuse *f, Ref r, Ref in)
{
        const Graph *g = f->g;
        const Node *n = &g->node[r];
        const Ref b = base_of(f, in);
        return sees_whole(g, r, in) && has_all_columns(f, b, g->node[b].group) &&
               (n->op == OP_INTERLEAVE ? !f->dom[r].span.step : has_all_columns(f, r, n->group));
}

/* Put all of map `from` into map or epilogue `to`. */
static bool merge(Fuse *f, int from, int to)
{
        Graph *g = f->g;
        if (f->gr[from].anchor || f->gr[to].anchor || !dim_eq(f->gr[from].rows, f->gr[to].rows) ||
            f->gr[from].n != f->gr[to].n || f->gr[from].members + f->gr[to].members > MAX_MEMBERS)
                return false;
        for (int k = 0; k < 2; k++) { /* nothing between the two */
                const int other = k ? from : to;
                for (Ref r = f->order->first[k ? to : from]; r; r = f->order->next[r]) {
                        if (cuts_pairs(f, other, r, f->dom[r]))
                                return false;
                        for (int i = 0; i < NODE(g, r)->n_in; i++) {
                                Ref b = f->order->base[NODE(g, r)->in[i]];
                                int gb = NODE(g, b)->group;
                                if (gb == other && (op_from_memory(NODE(g, r)->op, i) ||
                                                    !reads_whole(f, r, NODE(g, r)->in[i])))
                                        return false;
                                if (gb != from && gb != to && depends(f, b, other))
                                        return false;
                        }
                }
        }
        order_merge(f->order, from, to);
        f->gr[to].members += f->gr[from].members;
        f->gr[from].members = 0;
        return true;
}

/* gate * up of experts whose only reader is the product down: a prologue there. */
static bool joins_experts(const Fuse *f, Ref r)
{
        const Graph *g = f->g;
        const Node *n = &g->node[r];
        Ref a = 0;
        if (n->uses != 1 || f->only_reader[r] <= 0 ||
            g->node[f->only_reader[r]].op != OP_EXPERT_ROWS ||
            g->node[f->only_reader[r]].in[0] != r)
                return false;
        for (int i = 0; i < n->n_in; i++) {
                Ref b = base_of(f, n->in[i]), made = f->gr[g->node[b].group].anchor;
                if (!g->node[b].group || !made || g->node[made].op != OP_EXPERT_ROWS || made == a)
                        return false;
                a = made;
        }
        return n->n_in == 2;
}

/* A row op, not of the router's, is the only reader of r: whose prologue r may become. */
static bool feeds_rows(const Fuse *f, Ref r)
{
        const Ref u = f->only_reader[r];
        const Op op = u > 0 ? f->g->node[u].op : OP_NONE;
        return u > 0 && f->g->node[r].uses == 1 && op_takes_rows(op, 0) &&
               op_info[op].cls != CLASS_MATMUL &&
               (op_info[op].cls != CLASS_ROUTE || op == OP_COMBINE);
}

/* Do a's bytes say more than b's?  1: a is more, -1: less; 0: the difference is within one sector
 * of memory, which is no difference: the order of the graph decides. */
static int more_bytes(int64_t a, int64_t b)
{
        enum { SECTOR = 32 };
        return a - b > SECTOR ? 1 : b - a > SECTOR ? -1 : 0;
}

static void place_member(Fuse *f, Ref r, int level)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        int best = 0;
        Extent dom = { 0 };
        const Together self = { .node = { r } };
        const int64_t as_prologue = level && feeds_rows(f, r)
                                            ? saved_bytes(f->bytes, &self,
                                                          &(Together) {
                                                                  .node = { f->only_reader[r] } })
                                            : 0;
        int64_t most = 0;
        bool apart = level && joins_experts(f, r);
        for (int i = n->n_in - 1; level && !apart && i >= 0; i--) {
                Ref b = base_of(f, n->in[i]);
                int id = NODE(g, b)->group;
                const char *no;
                Extent s;
                if (!id || id == best)
                        continue;
                if ((no = join(f, r, id, &s))) {
                        refuse(f, r, id, no);
                        continue;
                }
                const int64_t saved = saved_bytes(f->bytes, &(Together) { .kernel = { id } },
                                                  &self);
                /* the row op that reads r makes it itself, if that saves more; or as much, and the
                 * input is stored for others anyway */
                if (as_prologue && f->gr[id].anchor &&
                    more_bytes(as_prologue, saved) + (NODE(g, b)->uses > 1) > 0) {
                        refuse(f, r, id,
                               "it is cheaper as the prologue of the row op that reads it");
                        continue;
                }
                const int more = best ? more_bytes(saved, most) : 1;
                if (more > 0 || (!more && (f->gr[id].anchor || id > best)))
                        best = id, dom = s, most = saved;
        }
        if (!best) {
                best = new_group(f, 0, r);
                dom.twice = n->op == OP_INTERLEAVE; /* of the columns of its inputs */
        }
        f->dom[r] = dom;
        enter(f, r, best);
        for (int i = 0; level && i < n->n_in; i++) { /* maps that feed the same map become one */
                Ref b = base_of(f, n->in[i]);
                int id = NODE(g, b)->group;
                if (id && id != best && b == n->in[i] &&
                    dim_eq(type_elems(&NODE(g, b)->type), type_elems(&n->type)))
                        merge(f, id, best);
        }
}

/* The first node before r that does the same to input a or a0 and b or b0, among readers of x. */
static Ref equal_before(const KernelOrder *o, Ref r, Ref x, Ref a0, Ref b0)
{
        const Node *n = &o->g->node[r];
        const Ref a = n->in[0], b = n->in[n->n_in - 1];
        for (int i = x ? o->readers.start[x] : 0;
             x && i < o->readers.start[x + 1] && o->readers.reader[i] < r; i++) {
                const Node *s = &o->g->node[o->readers.reader[i]];
                if (s->op == n->op && s->n_in == n->n_in && shape_eq(&s->type, &n->type) &&
                    (s->in[0] == a || s->in[0] == a0) &&
                    (s->in[n->n_in - 1] == b || s->in[n->n_in - 1] == b0))
                        return o->readers.reader[i];
        }
        return 0;
}

/* The node that recompute made r from, or 0: an equal one that stands before it. */
static void find_originals(Fuse *f)
{
        const Graph *g = f->g;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                if (n->n_in < 1 || n->n_in > 2 || op_info[n->op].cls != CLASS_MAP ||
                    n->op == OP_CAST || n->type.dt == DT_I32)
                        continue;
                const Ref a0 = n->n_in > 1 ? f->original[n->in[0]] : 0,
                          b0 = n->n_in > 1 ? f->original[n->in[1]] : 0;
                if (n->n_in > 1 && !a0 && !b0)
                        continue;
                const Ref s = equal_before(f->order, r, n->in[0], a0, b0),
                          s0 = equal_before(f->order, r, a0, a0, b0);
                f->original[r] = s && (!s0 || s < s0) ? s : s0;
        }
}

/* Rows of experts' biases, each slot's its own: read where the product's epilogue adds them, not
 * copied out before. */
static bool is_bias(const Fuse *f, Ref r)
{
        const Graph *g = f->g;
        const Node *n = &g->node[r],
                   *reader = &g->node[f->only_reader[r] > 0 ? f->only_reader[r] : 0];
        if (n->op != OP_GATHER || n->uses != 1 || g->node[n->in[0]].op != OP_PARAM ||
            reader->op != OP_ADD)
                return false;
        return g->node[reader->in[0]].op == OP_EXPERT_MATMUL && reader->in[1] == r;
}

/* Does kernel id wait for kernel goal? */
static bool waits(Fuse *f, int id, int goal)
{
        for (Ref s = f->order->first[id]; s; s = f->order->next[s])
                for (int i = 0; i < NODE(f->g, s)->n_in; i++) {
                        Ref in = NODE(f->g, s)->in[i];
                        if (NODE(f->g, in)->group != id && depends(f, in, goal))
                                return true;
                }
        return false;
}

/* Does kernel id wait for a reader of r? */
static bool waits_for_reader(Fuse *f, int id, Ref r)
{
        const KernelOrder *o = f->order;
        for (int i = o->base_readers.start[r]; i < o->base_readers.start[r + 1]; i++) {
                const Node *n = NODE(f->g, o->base_readers.reader[i]);
                if (n->group && waits(f, id, n->group))
                        return true;
        }
        return false;
}

/* Does an input of r that kernel m does not make wait for it? */
static bool inputs_wait(Fuse *f, Ref r, int m)
{
        const Node *n = NODE(f->g, r);
        for (int i = 0; i < n->n_in; i++)
                if (NODE(f->g, base_of(f, n->in[i]))->group != m && depends(f, n->in[i], m))
                        return true;
        return false;
}

/* May r, which has all columns of kernel id, go there?  What it reads there, it reads whole. */
static bool fits_whole(const Fuse *f, Ref r, int id)
{
        const Graph *g = f->g;
        const Node *n = &g->node[r];
        if (n->op == OP_INTERLEAVE || cuts_pairs(f, id, r, (Extent) { 0 }))
                return false;
        for (int i = 0; i < n->n_in; i++) {
                const Ref b = base_of(f, n->in[i]);
                if (g->node[b].group == id &&
                    (b != n->in[i] || op_from_memory(n->op, i) ||
                     !shape_eq(&g->node[b].type, &n->type) || !has_all_columns(f, b, id)))
                        return false;
        }
        return true;
}

/* A value made again joins a kernel that computes one of its inputs again, as that kernel has the
 * others at hand. */
static bool follow(Fuse *f, Ref r)
{
        Graph *g = f->g;
        const Type *t = &NODE(g, r)->type;
        for (int i = 0; i < NODE(g, r)->n_in; i++) {
                Ref in = NODE(g, r)->in[i];
                int id = NODE(g, in)->group;
                Ref anchor = id ? f->gr[id].anchor : 0;
                if (anchor && f->original[in] && f->gr[id].members < MAX_MEMBERS &&
                    shape_eq(&NODE(g, anchor)->type, t) && shape_eq(&NODE(g, in)->type, t) &&
                    fits_whole(f, r, id) && !waits_for_reader(f, id, r) && !inputs_wait(f, r, id)) {
                        enter(f, r, id);
                        return true;
                }
        }
        return false;
}

/* Does kernel id wait for node b, which is in none, through others? */
static bool waits_between(Fuse *f, int id, Ref b)
{
        for (Ref s = f->order->first[id]; s; s = f->order->next[s])
                for (int i = 0; i < NODE(f->g, s)->n_in; i++) {
                        const Ref in = NODE(f->g, s)->in[i], base = base_of(f, in);
                        if (base != b && NODE(f->g, base)->group != id &&
                            order_waits_node(f->order, in, b))
                                return true;
                }
        return false;
}

/* Inputs of r that wait for their reader go where it went. */
static void adopt(Fuse *f, Ref r, int level)
{
        Graph *g = f->g;
        for (int i = 0; i < NODE(g, r)->n_in; i++) {
                Ref b = NODE(g, r)->in[i];
                Gr *k = &f->gr[NODE(g, r)->group];
                if (NODE(g, b)->group || !is_member(g, b))
                        continue;
                if (!op_from_memory(NODE(g, r)->op, i) && k->members < MAX_MEMBERS &&
                    b > k->anchor && shape_eq(&NODE(g, b)->type, &NODE(g, r)->type) &&
                    (k->anchor ? shape_eq(&NODE(g, k->anchor)->type, &NODE(g, r)->type)
                               : fits(&NODE(g, b)->type, k->n)) &&
                    has_all_columns(f, r, NODE(g, r)->group) &&
                    fits_whole(f, b, NODE(g, r)->group) && !waits_between(f, NODE(g, r)->group, b))
                        enter(f, b, NODE(g, r)->group);
                else
                        place_member(f, b, level);
        }
}

/* May the map that makes input k of node r be the prologue of r's kernel id?  0: r is in none. */
static bool fits_prologue(Fuse *f, Ref r, int k, int id)
{
        Graph *g = f->g;
        const KernelOrder *o = f->order;
        const Node *n = NODE(g, r);
        const Ref b = n->in[k];
        const int m = NODE(g, b)->group;
        const Type *t = &NODE(g, b)->type;
        const bool again = op_reads(n->op, k) == 'W';
        int64_t cols = t->dim[t->rank - 1].n;
        if (op_info[n->op].cls == CLASS_COL) {
                cols = 1;
                for (int i = (int)n->a.k.k; i < t->rank; i++)
                        cols *= t->dim[i].n;
        }
        if (!dim_is_const(t->dim[t->rank - 1]) || (again && NODE(g, b)->uses > 1))
                return false;
        for (Ref s = o->first[m]; s; s = o->next[s]) {
                /* one domain: a row op's prologue sees rows of the last axis */
                if (!shape_eq(&NODE(g, s)->type, t) || !fits(&NODE(g, s)->type, cols) ||
                    op_is(NODE(g, s)->op, FACT_PAIRS) || op_updates(NODE(g, s)->op, 0))
                        return false;
                for (int i = 0; i < NODE(g, s)->n_in; i++) {
                        const Ref in = NODE(g, s)->in[i], base = base_of(f, in);
                        if (NODE(g, base)->group == m ? in != base : id && depends(f, in, id))
                                return false;
                }
                /* prologues that store read nothing they store, and are asked for a row once */
                for (int i = o->base_readers.start[s];
                     again && s != b && i < o->base_readers.start[s + 1]; i++)
                        if (NODE(g, o->base_readers.reader[i])->group != m)
                                return false;
        }
        return true;
}

/* May op r take a map that makes its input k as a prologue? */
static bool takes_prologue(const Fuse *f, Ref r, int k)
{
        const Node *n = &f->g->node[r];
        const Ref b = n->in[k];
        const int m = f->g->node[b].group;
        return m && m != n->group && !f->gr[m].anchor && is_member(f->g, b) &&
               f->g->node[b].type.rank > 0 && op_takes_rows(n->op, k) &&
               (op_info[n->op].cls != CLASS_MATMUL || joins_experts(f, b));
}

/* A row op behind r that reads b and saves more bytes by making it, or 0. */
static Ref better_reader(Fuse *f, Ref b, Ref r, int64_t saved)
{
        const KernelOrder *o = f->order;
        const Together map = { .kernel = { NODE(f->g, b)->group } };
        for (int i = o->readers.start[b]; i < o->readers.start[b + 1]; i++) {
                const Ref u = o->readers.reader[i];
                const Node *n = NODE(f->g, u);
                for (int k = 0; u > r && !n->group && k < n->n_in; k++)
                        if (n->in[k] == b && takes_prologue(f, u, k) &&
                            more_bytes(saved_bytes(f->bytes, &map, &(Together) { .node = { u } }),
                                       saved) > 0 &&
                            fits_prologue(f, u, k, 0) && !inputs_wait(f, u, map.kernel[0]))
                                return u;
        }
        return 0;
}

/* A map whose every member lies in the domain of the anchor's input becomes its prologue, unless
 * another op saves more bytes by it. */
static void take_prologues(Fuse *f, Ref r)
{
        const Node *n = NODE(f->g, r);
        const int id = n->group;
        for (int k = 0; k < n->n_in; k++) {
                const Ref b = n->in[k];
                const int m = NODE(f->g, b)->group;
                if (!takes_prologue(f, r, k))
                        continue;
                if (!fits_prologue(f, r, k, id)) {
                        refuse(f, b, id, "it does not fit the rows of the op that reads it");
                        continue;
                }
                if (inputs_wait(f, r, m))
                        continue;
                const int64_t saved = saved_bytes(f->bytes, &(Together) { .kernel = { id } },
                                                  &(Together) { .kernel = { m } });
                if (better_reader(f, b, r, saved)) {
                        refuse(f, b, id, "another op that reads it saves more as its kernel");
                        continue;
                }
                absorb(f, m, id);
        }
}

/* Does kernel id wait for kernel goal through another one, or through a copy between them? */
static bool waits_around(Fuse *f, int id, int goal)
{
        for (Ref s = f->order->first[id]; s; s = f->order->next[s])
                for (int i = 0; i < NODE(f->g, s)->n_in; i++) {
                        const Ref in = NODE(f->g, s)->in[i];
                        const int made = NODE(f->g, base_of(f, in))->group;
                        if (made != id && made != goal && depends(f, in, goal))
                                return true;
                }
        return false;
}

/* What may stand between a norm and the matrix-vector product that applies both: with
 * rmsnorm, factors alone, since the product is scaled last. */
static bool is_gain(const Fuse *f, Ref s, Ref norm)
{
        Graph *g = f->g;
        const Node *n = NODE(g, s);
        int inside = 0;
        if (!is_member(g, s) || op_info[n->op].cls != CLASS_MAP ||
            op_is(n->op, FACT_PAIRS | FACT_RANDOM) || s < norm ||
            !shape_eq(&n->type, &NODE(g, norm)->type))
                return false;
        for (int i = 0; i < n->n_in; i++) {
                Ref b = base_of(f, n->in[i]);
                if (NODE(g, b)->group != n->group)
                        continue;
                if (b != n->in[i])
                        return false;
                inside++;
        }
        return NODE(g, norm)->op == OP_LAYERNORM ||
               (inside == 1 && (n->op == OP_MUL || n->op == OP_CAST));
}

/* May reader s of the norm's result b read what the kernel of product r stores? */
static bool may_read_later(Fuse *f, Ref r, Ref s, Ref b, Ref seen)
{
        Graph *g = f->g;
        if (seen != b || !gemv_keeps(g, r) || NODE(g, s)->group == NODE(g, r)->group)
                return false;
        return !depends(f, r, NODE(g, s)->group);
}

/* Does u read what the norm's kernel, whose result product r reads as b, makes, and cannot have it
 * from the product's? */
static bool keeps_norm(Fuse *f, Ref u, Ref r, Ref b)
{
        const Graph *g = f->g;
        const Node *n = &g->node[u];
        const int id = g->node[b].group;
        for (int i = 0; i < n->n_in && n->group != id && !op_is(n->op, FACT_FOLLOWED); i++) {
                Ref seen = f->order->base[n->in[i]];
                /* of concat its parts are stored in place, others are turned or stretched */
                if (g->node[seen].group == id && op_info[n->op].cls == CLASS_VIEW)
                        return true;
                if (g->node[seen].group == id && !(n->in[i] == b && u == r && i == 0) &&
                    !may_read_later(f, r, u, b, seen))
                        return true;
        }
        return false;
}

/* Decoding: a norm that a matrix-vector product reads needs no kernel of its own.  Every block
 * of the product reads the whole row anyway, and the first can store it for others. */
static void take_norm(Fuse *f, Ref r)
{
        Graph *g = f->g;
        Ref b = NODE(g, r)->in[0];
        int id = NODE(g, b)->group;
        const KernelOrder *o = f->order;
        Ref norm = id ? f->gr[id].anchor : 0;
        if (!norm || !op_is(NODE(g, norm)->op, FACT_NORM))
                return;
        for (int i = 0; i < g->n_out; i++)
                if (NODE(g, base_of(f, g->out[i].ref))->group == id)
                        return;
        /* the first member that cannot come along, the first reader that waits */
        Ref other = 0, reader = 0;
        for (Ref s = o->first[id]; s; s = o->next[s]) {
                if (s != norm && (!other || s < other) && !is_gain(f, s, norm))
                        other = s;
                for (int i = o->base_readers.start[s]; i < o->base_readers.start[s + 1]; i++) {
                        const Ref u = o->base_readers.reader[i];
                        if ((!reader || u < reader) && keeps_norm(f, u, r, b))
                                reader = u;
                }
        }
        if (reader && (!other || reader < other))
                refuse(f, norm, NODE(g, r)->group, "it has another reader");
        if (!reader && !other && !waits_around(f, NODE(g, r)->group, id))
                absorb(f, id, NODE(g, r)->group);
}

/* What reads from memory must not be in the kernel that writes it there. */
static void check_stored(const Graph *g)
{
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++) {
                        const Node *n = &g->node[r];
                        if (!n->group || !op_from_memory(n->op, i))
                                continue;
                        const Node *b = &g->node[value_base(g, n->in[i])];
                        if (b->group == n->group)
                                error_internal(n->loc,
                                               "%%%s reads %%%s in the kernel that makes it",
                                               n->name, b->name);
                }
}

void fuse(Graph *g, Arena *tmp, int level, bool same_bits, Text *why)
{
        size_t n = (size_t)g->n_nodes;
        Fuse f = { .g = g, .why = why, .tmp = tmp };
        f.gr = arena_alloc(tmp, (n + 1) * sizeof *f.gr);
        f.original = arena_alloc(tmp, n * sizeof *f.original);
        f.only_reader = arena_alloc(tmp, n * sizeof *f.only_reader);
        f.dom = arena_alloc(tmp, n * sizeof *f.dom);
        graph_count_uses(g);
        for (Ref r = 1; r < g->n_nodes; r++) {
                NODE(g, r)->group = 0;
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        f.only_reader[NODE(g, r)->in[i]] = f.only_reader[NODE(g, r)->in[i]] ? -1
                                                                                            : r;
        }
        f.order = order_new(g, tmp);
        find_originals(&f);
        f.bytes = fuse_bytes_new(f.order, tmp);
        why_begin(&f);
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *x = NODE(g, r);
                Class c = op_info[x->op].cls;
                if (is_member(g, r)) {
                        if (level &&
                            (f.original[r] || is_bias(&f, r))) /* it is computed where it is read */
                                continue;
                        place_member(&f, r, level);
                        adopt(&f, r, level);
                } else if (x->op == OP_ITEM) {
                        if (NODE(g, x->in[0])->group)
                                order_enter(f.order, r, NODE(g, x->in[0])->group);
                } else if (c != CLASS_LEAF && c != CLASS_VIEW && !is_virtual(g, r)) {
                        enter(&f, r, new_group(&f, r, r));
                        if (level)
                                take_prologues(&f, r);
                }
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                if (is_member(g, r) && !NODE(g, r)->group &&
                    !(level && f.original[r] && follow(&f, r)))
                        place_member(&f, r, level);
        for (Ref r = 1; r < g->n_nodes && level >= 2; r++)
                if (NODE(g, r)->op == OP_MATMUL && gemv_norms(g, r) &&
                    !(same_bits && dt_size[NODE(g, NODE(g, r)->in[1])->type.dt] == 2))
                        take_norm(&f, r);
        /* what is computed wherever it is read still needs a place if an anchor or the outside
         * reads it whole */
        for (Ref r = 1; r < g->n_nodes; r++) {
                if (!is_virtual(g, r))
                        continue;
                bool whole = false;
                for (int i = 0; i < g->n_out; i++)
                        whole |= base_of(&f, g->out[i].ref) == r;
                for (int k = f.order->base_readers.start[r];
                     k < f.order->base_readers.start[r + 1] && !whole; k++) {
                        const Ref u = f.order->base_readers.reader[k];
                        if (is_member(g, u) || op_info[NODE(g, u)->op].cls == CLASS_VIEW) {
                                for (int i = 0; i < NODE(g, u)->n_in; i++)
                                        whole |= NODE(g, u)->in[i] == r &&
                                                 (NODE(g, u)->op == OP_EXPAND ||
                                                  NODE(g, u)->op == OP_TRANSPOSE ||
                                                  NODE(g, u)->op == OP_CONCAT);
                                continue;
                        }
                        for (int i = 0; i < NODE(g, u)->n_in; i++)
                                whole |= base_of(&f, NODE(g, u)->in[i]) == r;
                }
                if (whole)
                        enter(&f, r, new_group(&f, 0, r));
        }
        check_stored(g);
        why_kernels(&f);
}
