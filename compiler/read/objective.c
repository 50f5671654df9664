/* objective.c: reads an objective from a Lua file: a loss that replaces the model's own, and
 * functions that judge the texts that the model samples.
 *
 *      return {
 *              params = { beta = 0.1 },                -- --objective NAME,beta=0.2 changes one
 *              data = "pairs",                         -- or "prompts"; nil: what any training
 *                                                      reads
 *              learn = "continuations",                -- or "completion": what counts, of prompts
 *              feeds = { "reference", "side" },        -- numbers that the runtime gives, a (B,T)
 *                                                      each
 *              loss = function(m, p) ... return l end, -- or { loss = l, aux_loss = a, ce = c }
 *              reward = function(c, p) ... end,        -- a number for a continuation
 *              group = function(g, p) ... end,         -- { NAME = number or list of numbers }
 *      }
 *
 * m: ids, targets, logits (B,T,V), and where these are the product of one matrix and perhaps a bias
 * hidden (B,T,C), head (V,C), head_bias (V); extra, what the model's loss has beside its
 * cross-entropy; and the feeds.  The graph's inputs are called objective.NAME.  g: prompt,
 * completion and the continuations, each with text, ids, tokens (how many), ended, prompt,
 * completion, reward. */
#include <limits.h>
#include <lauxlib.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "objective_impl.h"

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

static int whole_param(lua_State *L, const char *name, double own)
{
        const double v = number_param(L, name, own);
        if (!(v >= INT_MIN && v <= INT_MAX) || v != (int)v)
                luaL_error(L, "%s is %f, and must be a whole number", name, v);
        return (int)v;
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
                if (!lua_istable(L, t))
                        luaL_error(L, "`feeds` is a list of names, not a %s", luaL_typename(L, t));
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
        f->samples = whole_param(L, "samples", 0);
        f->max_tokens = whole_param(L, "max_tokens", 64);
        f->temp = number_param(L, "temp", 1);
        f->top_p = number_param(L, "top_p", 1);
        f->updates = whole_param(L, "updates", 1);
        f->every = whole_param(L, "every", 1);
        if (f->data == OBJECTIVE_PROMPTS &&
            (f->samples < 1 || f->samples > 64 || f->max_tokens < 1 || f->updates < 1 ||
             f->every < 1 || f->temp < 0 || f->top_p <= 0 || f->top_p > 1))
                luaL_error(L, "of prompts: samples 1 to 64, max_tokens, updates and every from 1, "
                              "temp from 0, top_p above 0 up to 1");
        lua_settop(L, PARAMS);
        objective_check(L, f);
}

bool objective_feeds(const ObjectiveFacts *f, const char *name)
{
        for (int i = 0; i < f->n_feeds; i++)
                if (!strcmp(f->feed[i], name))
                        return true;
        return false;
}

Objective *objective_at(lua_State *L)
{
        return (Objective *)(void *)((char *)reader_of(L) - offsetof(Objective, r));
}

/* Leaves the module and its parameters on the stack. */
int objective_module(lua_State *L)
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

Objective *objective_begin(const char *spec, Model *m, const ReadOptions *o, lua_CFunction f,
                           int results)
{
        Objective *x = calloc(1, sizeof *x);
        Diag d;
        if (!x)
                error_code(5, (Loc) { 0 }, "no memory for --objective");
        d.source = NULL;
        const locale_t was = c_locale_begin();
        if (DIAG_CATCH(&d)) {
                x->o = *o;
                x->r.o = &x->o;
                x->r.m = m ? m : model_new("objective");
                x->r.used.a = x->r.m->arena;
                take_spec(x, spec);
                sandbox_open(&x->r);
                if (!x->r.msg[0]) {
                        lua_pushcfunction(x->r.L, f);
                        sandbox_call(&x->r, 0, results);
                }
                diag_end(&d);
        } else {
                snprintf(x->r.msg, sizeof x->r.msg, "%s", d.msg);
                x->r.code = d.code;
        }
        c_locale_end(was);
        return x;
}

void objective_say(Reader *r, const ReadOptions *o)
{
        if (o->said && r->n_said)
                o->said(o->said_to, r->said, r->n_said, r->said_more);
        free(r->said);
        r->said = NULL;
        r->n_said = 0;
}
