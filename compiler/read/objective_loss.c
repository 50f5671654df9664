/* objective_loss.c: replaces a model's loss by an objective's. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include "objective_impl.h"

/* The product that makes the logits, through reshapes and a bias; 0: it is another. */
static Ref head_of(const Graph *g, Ref r, Ref *bias)
{
        for (*bias = 0;;) {
                const Node *n = NODE(g, r);
                const Node *b = n->op == OP_ADD ? NODE(g, n->in[1]) : NULL;
                if (n->op == OP_MATMUL)
                        return !n->a.mm.ta && n->a.mm.tb && NODE(g, n->in[1])->type.rank == 2 ? r
                                                                                              : 0;
                if (n->op == OP_RESHAPE && n->type.rank &&
                    dim_eq(n->type.dim[n->type.rank - 1],
                           NODE(g, n->in[0])->type.dim[NODE(g, n->in[0])->type.rank - 1]))
                        r = n->in[0];
                else if (b && !*bias && b->op == OP_PARAM && b->type.rank == 1)
                        *bias = n->in[1], r = n->in[0];
                else
                        return 0;
        }
}

static void give(lua_State *L, const char *name, Ref r)
{
        if (!r)
                return;
        graph_push(L, r);
        lua_setfield(L, -2, name);
}

/* Pushes m. */
static void push_model(lua_State *L, const Objective *x)
{
        Graph *g = x->r.m->graph;
        const Ref logits = graph_out(g, "logits"), loss = graph_out(g, "loss"),
                  ce = graph_out(g, "ce");
        Ref bias, head = head_of(g, logits, &bias);
        lua_newtable(L);
        give(L, "ids", graph_find(g, "ids"));
        give(L, "targets", graph_find(g, "targets"));
        give(L, "logits", logits);
        if (head) {
                Type t = NODE(g, logits)->type;
                const Type *from = &NODE(g, NODE(g, head)->in[0])->type;
                t.dt = from->dt;
                t.dim[t.rank - 1] = from->dim[from->rank - 1];
                give(L, "hidden", graph_reshape(g, NODE(g, head)->in[0], t));
                give(L, "head", NODE(g, head)->in[1]);
                give(L, "head_bias", bias);
        }
        if (ce && loss && NODE(g, loss)->op == OP_ADD)
                give(L, "extra", NODE(g, loss)->in[NODE(g, loss)->in[0] == ce]);
}

/* objective.NAME: (B,T) of a number, but the teacher's logits. */
static void push_feeds(lua_State *L, const Objective *x)
{
        const Graph *g = x->r.m->graph;
        for (int i = 0; i < x->facts.n_feeds; i++) {
                const char *name = x->facts.feed[i];
                const bool wide = !strcmp(name, "teacher");
                lua_getglobal(L, "input");
                lua_pushstring(L, name);
                lua_createtable(L, 3, 0);
                lua_getglobal(L, "B");
                lua_rawseti(L, -2, 1);
                lua_getglobal(L, "T");
                lua_rawseti(L, -2, 2);
                if (wide) {
                        const Type *t = &NODE(g, graph_out(g, "logits"))->type;
                        lua_pushinteger(L, t->dim[t->rank - 1].n);
                        lua_rawseti(L, -2, 3);
                }
                lua_pushliteral(L, "f32");
                lua_call(L, 3, 1);
                lua_setfield(L, -2, name);
        }
}

static void take_loss(lua_State *L, Graph *g)
{
        static const char *const name[] = { "loss", "aux_loss", "ce" };
        const int t = lua_gettop(L);
        int k = 0;
        if (lua_istable(L, t))
                objective_known(L, t, "`loss` returned a", name, 3, false);
        for (int i = 0; i < g->n_out; i++)
                if (strcmp(g->out[i].name, "loss") && strcmp(g->out[i].name, "aux_loss") &&
                    strcmp(g->out[i].name, "ce"))
                        g->out[k++] = g->out[i];
        g->n_out = k;
        for (int i = 0; i < 3; i++) {
                Ref r = tensor_at(L, t);
                if (!r && lua_istable(L, t)) {
                        lua_getfield(L, t, name[i]);
                        r = tensor_at(L, -1);
                        if (!r && !lua_isnil(L, -1))
                                luaL_error(L, "the objective's %s must be a tensor, and is a %s",
                                           name[i], luaL_typename(L, -1));
                } else if (i) {
                        r = 0;
                }
                if (r && !dim_eq(type_elems(&NODE(g, r)->type), DIM(1)))
                        luaL_error(L, "the objective's %s must be one number", name[i]);
                if (r)
                        graph_output(g, name[i], r);
                else if (!i)
                        luaL_error(L, "`loss` must return a tensor, or a table with one as `loss`");
        }
}

/* x:NAME(y) of fields of the table at m; leaves the result. */
static void method(lua_State *L, int m, const char *field, const char *name, const char *other)
{
        lua_getfield(L, m, field);
        lua_getfield(L, -1, name);
        lua_insert(L, -2);
        if (other)
                lua_getfield(L, m, other);
        lua_call(L, other ? 2 : 1, 1);
}

/* Within the scope `objective`: m, with the loss of each token, and what `loss` makes of it. */
static int call_loss(lua_State *L)
{
        Objective *x = objective_at(L);
        const int module = lua_upvalueindex(1), params = lua_upvalueindex(2);
        Graph *g = x->r.m->graph;
        if (!graph_out(g, "logits") || !graph_find(g, "targets"))
                luaL_error(L, "the model has no logits, or no input `targets`: it has no objective "
                              "but its own");
        push_model(L, x);
        const int m = lua_gettop(L);
        method(L, m, "logits", "ce", "targets");
        lua_setfield(L, m, "nll");
        push_feeds(L, x);
        lua_getfield(L, module, "loss");
        lua_pushvalue(L, m);
        lua_pushvalue(L, params);
        lua_call(L, 2, 1);
        take_loss(L, g);
        if (x->facts.data || objective_feeds(&x->facts, "reference") ||
            objective_feeds(&x->facts, "old")) {
                method(L, m, "nll", "neg", NULL);
                graph_output(g, "logp", tensor_at(L, -1));
        }
        return 0;
}

static int build_loss(lua_State *L)
{
        objective_module(L);
        lua_getglobal(L, "scope");
        lua_pushliteral(L, "objective");
        lua_pushvalue(L, MODULE);
        lua_pushvalue(L, PARAMS);
        lua_pushcclosure(L, call_loss, 2);
        lua_call(L, 2, 0);
        return 0;
}

/* Nodes from `first` on that no line made (feeds, the loss of each token) are the file's. */
static void place_nodes(Model *m, Ref first, const char *path)
{
        const size_t n = strlen(path);
        Text name = { 0 };
        text_add(&name, "%s%s", path, n > 4 && !strcmp(path + n - 4, ".lua") ? "" : ".lua");
        const char *file = arena_str(m->arena, name.s);
        text_free(&name);
        for (Ref r = first; r < m->graph->n_nodes; r++)
                if (!NODE(m->graph, r)->loc.line)
                        NODE(m->graph, r)->loc = (Loc) { file, 1, 0 };
}

void objective_apply(Model *m, const char *spec, const ReadOptions *o)
{
        const Ref first = m->graph->n_nodes;
        /* the model's own sources and parameters stay those of its file */
        const int n_source = m->n_source, main_source = m->main_source;
        Objective *x = objective_begin(spec, m, o, build_loss, 0);
        sandbox_close(&x->r);
        m->n_source = n_source;
        m->main_source = main_source;
        objective_say(&x->r, o);
        free(x->text);
        char msg[sizeof x->r.msg];
        const int code = *x->r.msg ? x->r.code : 0;
        snprintf(msg, sizeof msg, "%s", x->r.msg);
        if (!code)
                place_nodes(m, first, x->path);
        free(x);
        if (code)
                error_code(code, (Loc) { 0 }, "%s", msg);
        graph_sweep(m->graph); /* the loss that was */
}
