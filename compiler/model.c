/* model.c: a Model: its forward graph, checkpoint map, vocabulary and context. */
#include "compiler.h"
#include <stdlib.h>
#include <string.h>

Model *model_new(const char *name)
{
        Graph *g = graph_new("forward");
        Model *m = arena_alloc(g->arena, sizeof *m);
        m->arena = g->arena;
        m->graph = g;
        m->name = arena_str(g->arena, name);
        m->documents = -1;
        m->meta = "";
        return m;
}

void model_free(Model *m)
{
        if (m)
                arena_free(m->arena);
}

void model_map(Model *m, MapLine line)
{
        m->map = arena_grow(m->arena, m->map, m->n_map, &m->cap_map, sizeof *m->map);
        line.param = arena_str(m->arena, line.param);
        line.deeper = arena_str(m->arena, line.deeper ? line.deeper : "");
        line.rest = arena_str(m->arena, line.rest);
        if (!line.step)
                line.step = 1;
        m->map[m->n_map++] = line;
}

void model_ignore(Model *m, const char *glob)
{
        const char **p = arena_alloc(m->arena, (size_t)(m->n_ignore + 1) * sizeof *p);
        if (m->n_ignore)
                memcpy(p, m->ignore, (size_t)m->n_ignore * sizeof *p);
        p[m->n_ignore++] = arena_str(m->arena, glob);
        m->ignore = p;
}

void model_map_text(const Model *m, Text *t)
{
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                text_add(t, "map %s", l->param);
                if (l->end) {
                        text_add(t, "[%lld:%lld", (long long)l->begin, (long long)l->end);
                        if (l->step != 1)
                                text_add(t, ":%lld", (long long)l->step);
                        text_add(t, "]");
                } else if (*l->deeper) {
                        text_add(t, "[:]");
                }
                text_add(t, "%s %s\n", l->deeper, l->rest);
        }
        for (int i = 0; i < m->n_ignore; i++)
                text_add(t, "map ignore %s\n", m->ignore[i]);
}

static Node *input(Graph *g, const char *name)
{
        Ref r = graph_find(g, name);
        return r && NODE(g, r)->op == OP_INPUT ? NODE(g, r) : NULL;
}

/* The inputs that the runtime fills (runtime/session/session.c); nothing feeds any other.  Those of
 * an objective (read/objective.c) come by its name. */
static void check_input(const Node *n)
{
        if (!strncmp(n->name, "objective.", 10) && n->type.dt == DT_F32 && n->type.rank >= 2 &&
            dim_eq(n->type.dim[0], DIM_SYM(SYM_B)) && dim_eq(n->type.dim[1], DIM_SYM(SYM_T)))
                return;
        const Dim b = DIM_SYM(SYM_B), t = DIM_SYM(SYM_T);
        const struct {
                const char *name;
                Type type;
                const char *what;
        } fed[] = { { "ids", type_of(DT_I32, 2, b, t), "the tokens" },
                    { "targets", type_of(DT_I32, 2, b, t),
                      "the token after each, negative where the loss does not count it" },
                    { "documents", type_of(DT_I32, 3, b, t, DIM(2)),
                      "where the document of each token begins and ends" } };
        char have[256], want[3][256];
        for (int i = 0; i < 3; i++) {
                type_text(&fed[i].type, want[i]);
                if (strcmp(n->name, fed[i].name))
                        continue;
                if (!type_eq(&n->type, &fed[i].type))
                        error_at(n->loc, "input %%%s is %s, but must be %s: %s", n->name,
                                 type_text(&n->type, have), want[i], fed[i].what);
                return;
        }
        error_at(n->loc,
                 "nothing feeds the input %%%s, %s; there are %%ids, %s (%s), %%targets, %s (%s), "
                 "and %%documents, %s (%s); make a constant tensor a const or a param",
                 n->name, type_text(&n->type, have), want[0], fed[0].what, want[1], fed[1].what,
                 want[2], fed[2].what);
}

/* What is given at every call must be asked for: a program has no place for what it does not
 * read. */
static void check_reads(const Graph *g, Ref out, const char *what, const char *leaf)
{
        const Ref in = graph_find(g, leaf);
        bool *reads = mem_new((size_t)g->n_nodes);
        for (Ref r = in; r && r <= out; r++) {
                reads[r] = r == in;
                for (int i = 0; i < g->node[r].n_in && !reads[r]; i++)
                        reads[r] = reads[g->node[r].in[i]];
        }
        const bool ok = in && reads[out];
        free(reads);
        if (!ok)
                error_at(g->node[out].loc, "the %s, %%%s, do%s not depend on %%%s", what,
                         g->node[out].name, !strcmp(what, "logits") ? "" : "es", leaf);
}

/* Of a model without logits: ids are rows of the tables that they pick from, and classes of the
 * losses whose targets they are. */
static void vocab_of(Model *m, Ref out)
{
        const Graph *g = m->graph;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                const Type *in = n->n_in ? &NODE(g, n->in[0])->type : NULL;
                Dim rows = DIM_SYM(SYM_T);
                if (n->op == OP_GATHER && n->in[1] == graph_find(g, "ids"))
                        rows = in->dim[0];
                else if (n->op == OP_CE)
                        rows = in->dim[in->rank - 1];
                else if (n->op == OP_LINEAR_CE)
                        rows = NODE(g, n->in[1])->type.dim[0];
                if (dim_is_const(rows) && (!m->vocab || rows.n < m->vocab))
                        m->vocab = rows.n;
        }
        if (!m->vocab)
                error_at(NODE(g, out)->loc,
                         "no table is indexed by %%ids, so the vocabulary is not known");
        if (m->vocab > 1 << 28)
                error_at(NODE(g, out)->loc, "the vocabulary is %lld, the limit is %d",
                         (long long)m->vocab, 1 << 28);
}

static void finish_encoder(Model *m, Ref hidden)
{
        const Graph *g = m->graph;
        const Type *h = &NODE(g, hidden)->type;
        char t[256];
        if (h->rank != 3 || !dim_eq(h->dim[0], DIM_SYM(SYM_B)) ||
            !dim_eq(h->dim[1], DIM_SYM(SYM_T)) || !dim_is_const(h->dim[2]))
                error_at(NODE(g, hidden)->loc, "hidden must be [B,T,C], not %s", shape_text(h, t));
        check_reads(g, hidden, "hidden", "ids");
        m->width = h->dim[2].n;
        vocab_of(m, hidden);
}

void model_finish(Model *m, const char *file)
{
        Graph *g = m->graph;
        Loc where = { file ? file : g->n_nodes > 1 ? NODE(g, 1)->loc.file : m->name, 0, 0 };
        Ref logits = graph_out(g, "logits"), loss = graph_out(g, "loss"),
            hidden = graph_out(g, "hidden");
        char t[256];
        bool *mapped = arena_alloc(m->arena, (size_t)g->n_nodes);
        for (int i = 0; i < m->n_map; i++)
                mapped[graph_find(g, m->map[i].param)] = true;
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *n = NODE(g, r);
                if (n->op == OP_INPUT)
                        check_input(n);
                if (n->op != OP_PARAM || mapped[r])
                        continue;
                char d[64];
                Text s = { 0 };
                text_add(&s, "= %s:", n->name);
                for (int i = 0; i < n->type.rank; i++)
                        text_add(&s, "%s%s", i ? "x" : " ", dim_text(n->type.dim[i], d));
                if (!n->type.rank)
                        text_add(&s, " scalar");
                model_map(m, (MapLine) { .param = n->name, .rest = s.s });
                text_free(&s);
        }
        if (!logits && !loss && !hidden)
                error_at(where,
                         "the model returns neither logits nor loss, nor hidden (an encoder's)");
        if (hidden && (logits || loss))
                error_at(NODE(g, hidden)->loc,
                         "the model returns hidden, as an encoder does, and %s as well; a model is "
                         "for one of them",
                         logits ? "logits" : "a loss");
        if (!input(g, "ids"))
                error_at(where, "the model has no input `ids: i32[B,T]`");
        if (logits) {
                const Type *l = &NODE(g, logits)->type;
                if (l->rank < 1 || !dim_is_const(l->dim[l->rank - 1]))
                        error_at(NODE(g, logits)->loc, "logits must be [B,T,V], not %s",
                                 shape_text(l, t));
                m->vocab = l->dim[l->rank - 1].n;
                if (m->vocab > 1 << 28)
                        error_at(NODE(g, logits)->loc, "the vocabulary is %lld, the limit is %d",
                                 (long long)m->vocab, 1 << 28);
        }
        if (loss && !dim_eq(type_elems(&NODE(g, loss)->type), DIM(1)))
                error_at(NODE(g, loss)->loc, "the loss must be one number, not %s",
                         shape_text(&NODE(g, loss)->type, t));
        if (hidden)
                finish_encoder(m, hidden);
        if (logits)
                check_reads(g, logits, "logits", "ids");
        if (loss)
                check_reads(g, loss, "loss", "ids");
        if (loss)
                check_reads(g, loss, "loss", "targets");
        if (loss && !logits)
                vocab_of(m, loss);
        if (!m->ctx)
                m->ctx = 1024;
}
