/* objective_judge.c: calls an objective's functions reward and group on sampled texts, while the
 * model trains. */
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "objective_impl.h"

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

/* Under sandbox_call: objective_module, and `embed` for judges. */
static int open_module(lua_State *L)
{
        const int n = objective_module(L);
        lua_register(L, "embed", embed_texts);
        return n;
}

Objective *objective_open(const char *spec, const ReadOptions *o)
{
        Objective *x = objective_begin(spec, NULL, o, open_module, 2);
        objective_say(&x->r, &(ReadOptions) { 0 }); /* applying it has said it */
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
        if (!lua_istable(L, t))
                luaL_error(L, "`group` must return a table, and returned a %s",
                           luaL_typename(L, t));
        for (int k = 0; k < x->facts.n_feeds; k++) {
                const char *name = x->facts.feed[k];
                out->has[k] = take_values(L, t, name, in->n, out->value[k]);
                if (!out->has[k] && !objective_own_feed(name))
                        luaL_error(L, "`group` returned no `%s`, which is one of `feeds`", name);
        }
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
