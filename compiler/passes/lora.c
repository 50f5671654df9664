/* lora.c: adds low-rank adapters beside linears (Hu et al., ICLR 2022), in the forward graph.
 * needs: the model's map.   Runs before merge_linears, which joins the A of linears that read one
 * x.
 *
 *      %y = matmul %x, %w {tb=1}       ->      %d = dropout %x {p}
 *                                              %h = matmul %d, %w.lora_A {tb=1}       (..., r)
 *                                              %y = matmul %x, %w {tb=1}
 *                                              %y.2 = add %y, (matmul %h s, %w.lora_B {tb=1})
 *
 * If tokens choose among adapters, %h is multiplied by 1 or 0, an element of the input `adapters`.
 * A (r,K) starts uniform within 1/sqrt(K), B (N,r) at zero.  Linears whose weights are rows of one
 * checkpoint tensor (qkv_proj) share its A; each has its own rows of B.  Linears that read one x
 * share its dropout, so that all their A become one product.  The map gets an optional line for
 * each tensor, with PEFT's names, since a base model's checkpoint has no adapters.  B's rows are
 * reordered as the weight's are. */
#include "../compiler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAME = 512 };

/* What is shared: an A of a module, a dropout of an x. */
typedef struct Shared {
        const char *module; /* NULL: a dropout */
        Ref x, of;          /* as in the old graph; the node made */
        struct Shared *next;
} Shared;

typedef struct Ctx {
        Model *m;
        const Lora *lora;
        LoraFound *found;
        Arena *tmp;
        Ref output; /* the matmul that makes the logits */
        Type ids;
        Shared *shared;
        int *lines;        /* of the map, by parameter */
        const char **rest; /* of one of them */
} Ctx;

/* ---- names ---- */

/* "= NAME.weight || ...: shape | steps": the first name, without .weight. */
static bool module_of(const char *rest, char *name)
{
        rest += strspn(rest, "=? ");
        const size_t n = strcspn(rest, " :|");
        if (!n || n >= MOST_NAME)
                return false;
        snprintf(name, MOST_NAME, "%.*s", (int)n, rest);
        char *end = n > 7 ? name + n - 7 : NULL;
        if (end && !strcmp(end, ".weight"))
                *end = 0;
        return true;
}

/* All names of a line as those of a part of the adapter, "A || B"; *end: what follows them.  tag
 * ".1": those of a second adapter begin with "1/". */
static void put_names(const char *rest, const char *tag, const char *part, Text *out,
                      const char **end)
{
        rest += strspn(rest, "=? ");
        for (bool first = true;; first = false) {
                size_t n = strcspn(rest, " :|"), k = n;
                if (k > 7 && !strncmp(rest + k - 7, ".weight", 7))
                        k -= 7;
                text_add(out, "%s%s%sbase_model.model.%.*s.%s.weight", first ? "" : " || ",
                         *tag ? tag + 1 : "", *tag ? "/" : "", (int)k, rest, part);
                rest += n;
                if (strncmp(rest, " || ", 4))
                        break;
                rest += 4;
        }
        *end = rest;
}

/* ---- a weight's line of the map, for B ---- */

/* Rows of B go where the weight's go: the same steps, with r columns in the place of K.  A first
 * `t` is of the weight alone (Conv1D).  False: a step mixes rows and columns. */
static bool rows_steps(const char *steps, int64_t N, int64_t K, int64_t r, Text *out)
{
        int rank = 2;
        bool first = true, cuts = false;
        long long shape[2] = { 0, 0 };
        char end = 0;
        steps += strspn(steps, " ");
        if (*steps == ':') {
                if (sscanf(steps, ": %lldx%lld%c", &shape[0], &shape[1], &end) < 2 || end == 'x')
                        return false;
                steps++;
                steps += strspn(steps, " ");
                steps += strcspn(steps, " ");
        }
        steps += strspn(steps, " ");
        for (const char *s = steps; (s = strchr(s, '|')); s++)
                cuts |= !strncmp(s, "| rows", 6) || !strncmp(s, "| cols", 6) ||
                        !strncmp(s, "| index", 7);
        if (shape[0])
                text_add(out, ": %lldx%lld", strncmp(steps, "| t", 3) ? shape[0] : shape[1],
                         (long long)r);
        else if (!cuts)
                text_add(out, ": %lldx%lld", (long long)N, (long long)r);
        for (; *(steps += strspn(steps, " ")) == '|'; first = false) {
                char op[16] = "";
                long long v[MAX_RANK];
                int n = 0, used = 0;
                steps++;
                if (sscanf(steps, " %15[a-z]%n", op, &used) != 1)
                        return false;
                const char *args = steps + used;
                size_t len = strcspn(args, "|");
                for (const char *s = args; n < MAX_RANK && sscanf(s, " %lld%n", &v[n], &used) == 1;
                     s += used)
                        n++;
                steps = args + len;
                if (!strcmp(op, "t") && first)
                        continue;
                if (!strcmp(op, "reshape") && n >= 2 && v[n - 1] % K == 0) {
                        text_add(out, " | reshape");
                        for (int i = 0; i < n - 1; i++)
                                text_add(out, " %lld", v[i]);
                        text_add(out, " %lld", v[n - 1] / K * r);
                        rank = n;
                        continue;
                }
                const bool kept = !strcmp(op, "rows") || !strcmp(op, "rope") ||
                                  !strcmp(op, "unrope") || !strcmp(op, "group") ||
                                  !strcmp(op, "scale") || (!strcmp(op, "cols") && rank > 2) ||
                                  (!strcmp(op, "index") && rank > 2);
                if (!kept)
                        return false;
                rank -= !strcmp(op, "index");
                while (len && args[len - 1] == ' ')
                        len--;
                text_add(out, " | %s%.*s", op, (int)len, args);
        }
        return rank == 2;
}

static void add_line(Ctx *c, const char *param, const char *rest, const char *part,
                     const char *steps)
{
        Text t = { 0 };
        const char *end;
        text_add(&t, "=? ");
        put_names(rest, c->lora->tag, part, &t, &end);
        text_add(&t, "%s", steps ? steps : "");
        model_map(c->m, (MapLine) { .param = param, .rest = t.s, .optional = true });
        text_free(&t);
}

/* ---- targets ---- */

/* The matmul that makes the logits, through views and maps. */
Ref output_linear(const Graph *g)
{
        Ref r = graph_out(g, "logits");
        while (r && NODE(g, r)->op != OP_MATMUL && NODE(g, r)->n_in &&
               (op_info[NODE(g, r)->op].cls == CLASS_VIEW ||
                op_info[NODE(g, r)->op].cls == CLASS_MAP))
                r = NODE(g, r)->in[0];
        return r && NODE(g, r)->op == OP_MATMUL ? r : 0;
}

static bool is_linear(const Graph *g, const Node *n)
{
        return n->op == OP_MATMUL && NODE(g, n->in[1])->op == OP_PARAM &&
               NODE(g, n->in[1])->type.rank == 2 && NODE(g, n->in[0])->op != OP_PARAM;
}

_Noreturn static void refuse(const Node *n, const char *module, const char *why)
{
        error_at(n->loc,
                 "--lora: %s (%%%s) cannot have an adapter: %s; name others with targets=", module,
                 n->name, why);
}

/* What its weight's only line of the map says, or a refusal. */
static const char *line_of(const Ctx *c, const Graph *g, const Node *n, const char *module)
{
        const Node *w = NODE(g, n->in[1]);
        if (n->a.mm.ta || !n->a.mm.tb)
                refuse(n, module, "its weight is not stored (outputs, inputs)");
        if (w->uses != 1)
                refuse(n, module, "its weight is used elsewhere, too");
        if (c->lines[n->in[1]] != 1)
                refuse(n, module, "its weight is made of several tensors");
        return c->rest[n->in[1]];
}

/* ---- building ---- */

static Ref *shared_at(Ctx *c, const char *module, Ref x)
{
        for (Shared *s = c->shared; s; s = s->next)
                if (s->x == x && (module ? s->module && !strcmp(s->module, module) : !s->module))
                        return &s->of;
        Shared *s = arena_alloc(c->tmp, sizeof *s);
        *s = (Shared) { module ? arena_str(c->tmp, module) : NULL, x, 0, c->shared };
        c->shared = s;
        return &s->of;
}

static Ref parameter(Ctx *c, Graph *g, const Node *w, const char *part, int64_t rows, int64_t cols,
                     double bound)
{
        const size_t n = strlen(w->name);
        const bool tail = n > 7 && !strcmp(w->name + n - 7, ".weight");
        Attr a = { .param = { bound > 0 ? INIT_UNIFORM : INIT_ZEROS, -bound, bound, 1, 1 } };
        if (bound <= 0)
                a.param.a = a.param.b = 0;
        return graph_leaf(g, OP_PARAM, type_of(DT_F32, 2, DIM(rows), DIM(cols)), &a, w->loc,
                          arena_fmt(g->arena, "%.*s.%s%s", (int)(tail ? n - 7 : n), w->name, part,
                                    c->lora->tag));
}

/* of the linear n, whose name it has before its own */
static Ref product(Graph *g, const Node *n, Ref x, Ref w, const char *name)
{
        Attr t = { .mm = { 0, 1 } };
        return graph_add(g, OP_MATMUL, (Ref[]) { x, w }, 2, &t, n->loc,
                         arena_fmt(g->arena, "%s.%s", n->name, name));
}

/* Where tokens choose: 1 for those that have this adapter, 0 for the others. */
static Ref chosen(const Ctx *c, Graph *g, const Node *n, const char *module, Ref h)
{
        static const char name[] = "adapters";
        Ref in = 0;
        for (Ref r = 1; r < g->n_nodes && !in; r++)
                if (NODE(g, r)->op == OP_INPUT && !strcmp(NODE(g, r)->name, name))
                        in = r;
        if (NODE(g, h)->type.rank != 3 || !dim_eq(NODE(g, h)->type.dim[0], c->ids.dim[0]) ||
            !dim_eq(NODE(g, h)->type.dim[1], c->ids.dim[1]))
                refuse(n, module, "--lora-switch, and its input is not of each token");
        if (!in) {
                Type t = c->ids;
                t.dt = DT_F32;
                t.dim[t.rank++] = DIM(c->lora->of);
                in = graph_leaf(g, OP_INPUT, t, NULL, n->loc, name);
        }
        return op2(g, OP_MUL, h, op_slice(g, in, 2, c->lora->number, 1, 1));
}

/* x after A, scaled: of all linears of the module that read x. */
static Ref through_a(Ctx *c, Graph *g, const Node *n, const Node *w, Ref x, Ref old_x,
                     const char *module, const char *rest, int r, double scale)
{
        const int64_t K = w->type.dim[1].n;
        Ref *h = shared_at(c, module, old_x);
        if (*h)
                return *h;
        if (c->lora->dropout > 0) {
                Ref *d = shared_at(c, NULL, old_x);
                Attr a = { .drop = { c->lora->dropout, g->next_id } };
                if (!*d) {
                        g->next_id++;
                        *d = graph_add(g, OP_DROPOUT, &x, 1, &a, n->loc,
                                       graph_name(g, NODE(g, x)->name));
                }
                x = *d;
        }
        const Ref A = parameter(c, g, w, "lora_A", r, K, 1 / sqrt((double)K));
        add_line(c, NODE(g, A)->name, rest, "lora_A",
                 arena_fmt(c->tmp, ": %dx%lld", r, (long long)K));
        *h = product(g, n, x, A, "low");
        if (scale != 1)
                *h = op1x(g, OP_SCALE, *h, scale);
        if (c->lora->of)
                *h = chosen(c, g, n, module, *h);
        return *h;
}

static Ref adapt(Ctx *c, Graph *old, Graph *g, Ref *map, Ref r, const char *module, int rank,
                 double scale)
{
        const Node *n = NODE(old, r), *w = NODE(old, n->in[1]);
        const int64_t N = w->type.dim[0].n, K = w->type.dim[1].n;
        const char *rest = line_of(c, old, n, module), *at = rest;
        Text steps = { 0 }, names = { 0 };
        put_names(rest, "", "", &names, &at);
        text_free(&names);
        if (!rows_steps(at, N, K, rank, &steps)) {
                text_free(&steps);
                refuse(n, module, "its tensor is cut in a way that is not one of rows");
        }
        const Ref h = through_a(c, g, n, w, map[n->in[0]], n->in[0], module, rest, rank, scale);
        const Ref B = parameter(c, g, w, "lora_B", N, rank, 0);
        add_line(c, NODE(g, B)->name, rest, "lora_B", steps.s);
        text_free(&steps);
        const Ref d = product(g, n, h, B, "delta");
        const Ref y = graph_copy_node(old, r, g, map);
        return op2(g, OP_ADD, y, d);
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        const Node *n = NODE(old, r);
        char module[MOST_NAME];
        double scale = 1;
        int rank = 0;
        if (!is_linear(old, n) || !c->rest[n->in[1]] || !module_of(c->rest[n->in[1]], module))
                return graph_copy_node(old, r, g, map);
        /* an adapter's own products are none of the model's linears */
        if (strstr(module, "base_model.model."))
                return graph_copy_node(old, r, g, map);
        rank = c->lora->rank(c->lora->ctx, module, r == c->output, &scale);
        if (!rank)
                return graph_copy_node(old, r, g, map);
        c->found->n++;
        return adapt(c, old, g, map, r, module, rank, scale);
}

void lora(Model *m, const Lora *l, LoraFound *found, Arena *tmp)
{
        Graph *g = m->graph;
        Ctx c = { .m = m, .lora = l, .found = found, .tmp = tmp, .output = output_linear(g) };
        *found = (LoraFound) { 0 };
        c.ids = NODE(g, graph_find(g, "ids"))->type;
        c.lines = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *c.lines);
        c.rest = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *c.rest);
        for (int i = 0; i < m->n_map; i++) {
                const Ref p = graph_find(g, m->map[i].param);
                c.lines[p]++;
                c.rest[p] = m->map[i].rest;
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                if (NODE(g, r)->op == OP_EXPERT_MATMUL)
                        found->experts = NODE(g, r)->loc;
        graph_count_uses(g);
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
