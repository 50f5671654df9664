/* objective.c: what a model is trained for, from a Lua file: a loss in place of the model's own, and
 * what is said of the texts that the model samples.
 *
 *      return {
 *              params = { beta = 0.1 },                -- --objective NAME,beta=0.2 changes one
 *              data = "pairs",                         -- or "prompts"; nil: what any training reads
 *              learn = "continuations",                -- or "completion": what counts, of prompts
 *              feeds = { "reference", "side" },        -- numbers that the runtime gives, a (B,T) each
 *              loss = function(m, p) ... return l end, -- or { loss = l, aux_loss = a, ce = c }
 *              reward = function(c, p) ... end,        -- a number for a continuation
 *              group = function(g, p) ... end,         -- { NAME = number or list of numbers }
 *      }
 *
 * m: ids, targets, logits (B,T,V), and where these are the product of one matrix and perhaps a bias
 * hidden (B,T,C), head (V,C), head_bias (V); extra, what the model's loss has beside its cross-entropy; and
 * the feeds.  The graph's inputs are called objective.NAME.  g: prompt, completion and the
 * continuations, each with text, ids, tokens (how many), ended, prompt, completion, reward. */
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "read.h"

struct Objective {
        Reader r;
        ReadOptions o;
        ObjectiveFacts facts;
        char path[4096];
        const char *define[32];
        char *text; /* the words of the spec, which define and facts point into */
        ObjectiveEmbed *embed;
        void *embed_user;
        const ObjectiveGroup *group; /* of the call under way */
        ObjectiveValues *values;
};

enum { MODULE = 1, PARAMS = 2 }; /* on the stack of an open objective */

/* ---- reading ---- */

/* "FILE,beta=0.1,n=4" */
static void take_spec(Objective *x, const char *spec)
{
        char *s = x->text = strdup(spec), *rest = s ? strchr(s, ',') : NULL;
        if (!s)
                error_code(5, (Loc) { 0 }, "no memory for --objective");
        if (rest)
                *rest++ = 0;
        snprintf(x->path, sizeof x->path, "%s", s);
        if (!*s)
                error_code(2, (Loc) { 0 }, "--objective: FILE.lua or a name is wanted");
        x->r.path = x->path;
        x->o.define = x->define;
        x->o.n_define = 0;
        while (rest && *rest) {
                char *next = strchr(rest, ',');
                if (next)
                        *next++ = 0;
                if (x->o.n_define == (int)(sizeof x->define / sizeof *x->define))
                        error_code(2, (Loc) { 0 }, "--objective: more than %d parameters",
                                   x->o.n_define);
                x->define[x->o.n_define++] = rest;
                rest = next;
        }
}

static const char *word(lua_State *L, const char *key, const char *const *known, int n, int *which)
{
        *which = 0;
        if (lua_getfield(L, MODULE, key) == LUA_TNIL)
                return NULL;
        const char *s = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?";
        for (int i = 0; i < n; i++)
                if (!strcmp(s, known[i])) {
                        *which = i + 1;
                        return s;
                }
        luaL_error(L, "the objective's `%s` is \"%s\" or \"%s\"", key, known[0], known[1]);
        return NULL;
}

static double number_param(lua_State *L, const char *key, double otherwise)
{
        lua_pushstring(L, key);
        double v = lua_rawget(L, PARAMS) == LUA_TNUMBER ? lua_tonumber(L, -1) : otherwise;
        lua_pop(L, 1);
        return v;
}

static void take_facts(lua_State *L, Objective *x)
{
        static const char *const data[] = { "pairs", "prompts" }, *const learn[] = {
                "continuations", "completion"
        };
        ObjectiveFacts *f = &x->facts;
        int kind, counts;
        word(L, "data", data, 2, &kind);
        word(L, "learn", learn, 2, &counts);
        f->data = (ObjectiveData)kind;
        f->completion = counts == 2;
        if (lua_getfield(L, MODULE, "feeds") != LUA_TNIL) {
                const int t = lua_gettop(L);
                luaL_checktype(L, t, LUA_TTABLE);
                for (int i = 1; lua_rawgeti(L, t, i) != LUA_TNIL; i++, lua_pop(L, 1)) {
                        if (lua_type(L, -1) != LUA_TSTRING || !name_is_plain(lua_tostring(L, -1)))
                                luaL_error(L, "`feeds` is a list of names");
                        if (f->n_feeds == OBJECTIVE_FEEDS)
                                luaL_error(L, "more than %d feeds", OBJECTIVE_FEEDS);
                        f->feed[f->n_feeds++] = arena_str(x->r.m->arena, lua_tostring(L, -1));
                }
        }
        f->reward = lua_getfield(L, MODULE, "reward") == LUA_TFUNCTION;
        f->group = lua_getfield(L, MODULE, "group") == LUA_TFUNCTION;
        f->samples = (int)number_param(L, "samples", 0);
        f->max_tokens = (int)number_param(L, "max_tokens", 64);
        f->temp = number_param(L, "temp", 1);
        f->top_p = number_param(L, "top_p", 1);
        f->updates = (int)number_param(L, "updates", 1);
        f->every = (int)number_param(L, "every", 1);
        if (f->data == OBJECTIVE_PROMPTS &&
            (f->samples < 1 || f->samples > 64 || f->max_tokens < 1 || f->updates < 1 ||
             f->every < 1 || f->temp < 0 || f->top_p <= 0 || f->top_p > 1))
                luaL_error(L, "of prompts: samples 1 to 64, max_tokens, updates and every from 1, "
                              "temp from 0, top_p above 0 up to 1");
        lua_settop(L, PARAMS);
}

bool objective_feeds(const ObjectiveFacts *f, const char *name)
{
        for (int i = 0; i < f->n_feeds; i++)
                if (!strcmp(f->feed[i], name))
                        return true;
        return false;
}

static Objective *objective_at(lua_State *L)
{
        return (Objective *)(void *)((char *)reader_of(L) - offsetof(Objective, r));
}

/* Leaves the module and its parameters on the stack. */
static int open_module(lua_State *L)
{
        Objective *x = objective_at(L);
        lua_settop(L, 0);
        lua_pushnil(L);
        push_file(L);
        lua_replace(L, MODULE);
        if (!lua_istable(L, MODULE) || lua_getfield(L, MODULE, "loss") != LUA_TFUNCTION)
                luaL_error(L, "an objective must return a table with a function `loss`");
        lua_settop(L, MODULE);
        push_params(L, MODULE);
        lua_settop(L, PARAMS);
        take_facts(L, x);
        return 2;
}

static void sandbox_begin(Objective *x, lua_CFunction f, int results)
{
        sandbox_open(&x->r);
        if (x->r.msg[0])
                return;
        lua_pushcfunction(x->r.L, f);
        sandbox_call(&x->r, 0, results);
}

/* ---- the loss ---- */

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
        open_module(L);
        lua_getglobal(L, "scope");
        lua_pushliteral(L, "objective");
        lua_pushvalue(L, MODULE);
        lua_pushvalue(L, PARAMS);
        lua_pushcclosure(L, call_loss, 2);
        lua_call(L, 2, 0);
        return 0;
}

static void say(Reader *r, const ReadOptions *o)
{
        if (o->said && r->n_said)
                o->said(o->said_to, r->said, r->n_said, r->said_more);
        free(r->said);
        r->said = NULL;
        r->n_said = 0;
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
        Objective *x = calloc(1, sizeof *x);
        Diag d;
        if (!x)
                error_code(5, (Loc) { 0 }, "no memory for --objective");
        d.source = NULL;
        locale_t was = c_locale_begin();
        if (DIAG_CATCH(&d)) {
                x->o = *o;
                x->r.o = &x->o;
                x->r.m = m;
                x->r.used.a = m->arena;
                take_spec(x, spec);
                sandbox_begin(x, build_loss, 0);
                diag_end(&d);
        } else {
                snprintf(x->r.msg, sizeof x->r.msg, "%s", d.msg);
                x->r.code = d.code;
        }
        sandbox_close(&x->r);
        c_locale_end(was);
        m->n_source = n_source;
        m->main_source = main_source;
        say(&x->r, o);
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

/* ---- what it says of samples ---- */

static int embed_texts(lua_State *L)
{
        Objective *x = objective_at(L);
        const char *text[OBJECTIVE_MOST];
        size_t bytes[OBJECTIVE_MOST];
        char why[300] = "";
        float *v;
        int width;
        luaL_checktype(L, 1, LUA_TTABLE);
        const int n = (int)lua_rawlen(L, 1);
        if (!x->embed)
                return luaL_error(L, "embed: there is no model that embeds (--embedder MODEL)");
        if (n < 1 || n > OBJECTIVE_MOST)
                return luaL_error(L, "embed: 1 to %d texts", OBJECTIVE_MOST);
        for (int i = 0; i < n; i++) {
                if (lua_rawgeti(L, 1, i + 1) != LUA_TSTRING)
                        return luaL_error(L, "embed: a list of texts is wanted");
                text[i] = lua_tolstring(L, -1, &bytes[i]); /* the table keeps it */
                lua_pop(L, 1);
        }
        if (x->embed(x->embed_user, text, bytes, n, &v, &width, why, sizeof why))
                return luaL_error(L, "embed: %s", why);
        lua_createtable(L, n, 0);
        for (int i = 0; i < n; i++) {
                lua_createtable(L, width, 0);
                for (int c = 0; c < width; c++) {
                        lua_pushnumber(L, v[(size_t)i * (size_t)width + (size_t)c]);
                        lua_rawseti(L, -2, c + 1);
                }
                lua_rawseti(L, -2, i + 1);
        }
        free(v); /* Lua's lack of memory loses it, and ends the run */
        return 1;
}

Objective *objective_open(const char *spec, const ReadOptions *o)
{
        Objective *x = calloc(1, sizeof *x);
        Diag d;
        if (!x)
                error_code(5, (Loc) { 0 }, "no memory for --objective");
        d.source = NULL;
        locale_t was = c_locale_begin();
        if (DIAG_CATCH(&d)) {
                x->o = *o;
                x->r.o = &x->o;
                x->r.m = model_new("objective");
                x->r.used.a = x->r.m->arena;
                take_spec(x, spec);
                sandbox_begin(x, open_module, 2);
                if (!*x->r.msg)
                        lua_register(x->r.L, "embed", embed_texts);
                diag_end(&d);
        } else {
                snprintf(x->r.msg, sizeof x->r.msg, "%s", d.msg);
                x->r.code = d.code;
        }
        c_locale_end(was);
        say(&x->r, &(ReadOptions) { 0 }); /* applying it has said it */
        if (*x->r.msg) {
                char msg[sizeof x->r.msg];
                const int code = x->r.code;
                snprintf(msg, sizeof msg, "%s", x->r.msg);
                objective_close(x);
                error_code(code, (Loc) { 0 }, "%s", msg);
        }
        return x;
}

void objective_close(Objective *x)
{
        if (!x)
                return;
        sandbox_close(&x->r);
        model_free(x->r.m);
        free(x->r.said);
        free(x->text);
        free(x);
}

const ObjectiveFacts *objective_facts(const Objective *x) { return &x->facts; }

void objective_embedder(Objective *x, ObjectiveEmbed *embed, void *user)
{
        x->embed = embed;
        x->embed_user = user;
}

static void push_text(lua_State *L, const char *key, const char *text, size_t n)
{
        if (!text)
                return;
        lua_pushlstring(L, text, n);
        lua_setfield(L, -2, key);
}

static double number_at_top(lua_State *L, const char *what)
{
        const double v = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !isfinite(v))
                luaL_error(L, "%s must be a finite number, and is %s", what,
                           lua_type(L, -1) == LUA_TNUMBER ? "none" : luaL_typename(L, -1));
        return v;
}

/* A field of what `group` returned: one number for all, or a list of one each. */
static bool take_values(lua_State *L, int t, const char *name, int n, double *to)
{
        const int type = lua_getfield(L, t, name);
        if (type == LUA_TTABLE) {
                for (int i = 0; i < n; i++) {
                        lua_rawgeti(L, -1, i + 1);
                        to[i] = number_at_top(L, name);
                        lua_pop(L, 1);
                }
        } else if (type != LUA_TNIL) {
                for (int i = 0; i < n; i++)
                        to[i] = number_at_top(L, name);
        }
        lua_settop(L, t);
        return type != LUA_TNIL;
}

static int judge(lua_State *L)
{
        Objective *x = objective_at(L);
        const ObjectiveGroup *in = x->group;
        ObjectiveValues *out = x->values;
        const int module = 1, params = 2, g = 3;
        lua_createtable(L, in->n, 2); /* 3: g */
        push_text(L, "prompt", in->prompt, in->n_prompt);
        push_text(L, "completion", in->completion, in->n_completion);
        double sum = 0;
        for (int i = 0; i < in->n; i++) {
                lua_newtable(L);
                push_text(L, "text", in->text[i], in->n_text[i]);
                push_text(L, "prompt", in->prompt, in->n_prompt);
                push_text(L, "completion", in->completion, in->n_completion);
                lua_pushinteger(L, in->tokens[i]);
                lua_setfield(L, -2, "tokens");
                lua_pushboolean(L, in->ended[i]);
                lua_setfield(L, -2, "ended");
                lua_createtable(L, in->tokens[i], 0);
                for (int k = 0; k < in->tokens[i]; k++) {
                        lua_pushinteger(L, in->ids[i][k]);
                        lua_rawseti(L, -2, k + 1);
                }
                lua_setfield(L, -2, "ids");
                if (x->facts.reward) {
                        lua_getfield(L, module, "reward");
                        lua_pushvalue(L, -2);
                        lua_pushvalue(L, params);
                        lua_call(L, 2, 1);
                        sum += number_at_top(L, "reward");
                        lua_setfield(L, -2, "reward");
                }
                lua_rawseti(L, g, i + 1);
        }
        out->has_score = x->facts.reward;
        out->score = sum / in->n;
        if (!x->facts.group)
                return 0;
        lua_getfield(L, module, "group");
        lua_pushvalue(L, g);
        lua_pushvalue(L, params);
        lua_call(L, 2, 1);
        const int t = lua_gettop(L);
        luaL_checktype(L, t, LUA_TTABLE);
        for (int k = 0; k < x->facts.n_feeds; k++)
                out->has[k] = take_values(L, t, x->facts.feed[k], in->n, out->value[k]);
        double score[OBJECTIVE_MOST];
        if (take_values(L, t, "score", in->n, score)) {
                out->has_score = true;
                out->score = score[0];
        }
        return 0;
}

/* Each call has the time that a model has to be read. */
int objective_judge(Objective *x, const ObjectiveGroup *in, ObjectiveValues *out, const char **why)
{
        lua_State *L = x->r.L;
        memset(out, 0, sizeof *out);
        x->group = in;
        x->values = out;
        *x->r.msg = 0;
        x->r.n_said = 0;
        locale_t was = c_locale_begin();
        sandbox_again(&x->r);
        lua_settop(L, PARAMS);
        lua_pushcfunction(L, judge);
        lua_pushvalue(L, MODULE);
        lua_pushvalue(L, PARAMS);
        const bool ok = sandbox_call(&x->r, 2, 0);
        lua_settop(L, PARAMS);
        c_locale_end(was);
        *why = x->r.msg;
        return ok ? 0 : x->r.code;
}

const char *objective_said(const Objective *x, size_t *n)
{
        *n = x->r.n_said;
        return x->r.said;
}
