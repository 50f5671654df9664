/* lua.c: reads a Model from a Lua file.
 *
 *      return {
 *              name   = "gpt",
 *              params = { n_layer = 12, tied = true, ... },    -- -D n_layer=6 changes one
 *              config = function(c) return { n_layer = c.num_hidden_layers } end,
 *              graph  = function(p) ... return { logits = y, loss = l } end,
 *      }
 *
 * `config` maps a Hugging Face config.json to the model's parameters (null is a light userdata);
 * config_error(KEY, WHAT) refuses the file.  A model without `config` can still be compiled by
 * itself.  A config.json that `tgc export` wrote for a Lua model holds the parameters themselves,
 * as tgc_params.  The user's model reads a config.json (read_lua_config), else the one that
 * models/families.lua names.  p.ctx, if there is one, is the context. */
#include "read.h"
#include <cjson/cJSON.h>
#include <lauxlib.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"

/* Parameters --------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **keys_of(lua_State *L, int i, int *n)
{
        const char **key;
        int cap = 0;
        *n = 0;
        for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
                cap++;
        if (cap > READ_MAX_KEYS)
                luaL_error(L, "a table of parameters or outputs has more than %d keys",
                           READ_MAX_KEYS);
        key = arena_alloc(reader_of(L)->m->arena, (size_t)(cap + 1) * sizeof *key);
        for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
                if (lua_type(L, -2) == LUA_TSTRING)
                        key[(*n)++] = lua_tostring(L, -2);
        qsort(key, (size_t)*n, sizeof *key, by_text);
        return key;
}

static _Noreturn void fail(lua_State *L, int code, const char *fmt, ...)
{
        Reader *r = reader_of(L);
        va_list ap;
        va_start(ap, fmt);
        const char *msg = lua_pushvfstring(L, fmt, ap);
        va_end(ap);
        snprintf(r->msg, sizeof r->msg, "%s%serror: %s", r->path ? r->path : "",
                 r->path ? ": " : "", msg);
        r->code = code;
        lua_error(L);
        __builtin_unreachable();
}

/* p[key] = the value on top, which is popped; it gets the type that p[key] has. */
static void set_param(lua_State *L, int p, const char *key, bool define)
{
        int v = lua_gettop(L), n;
        const char *given = luaL_tolstring(L, v, NULL);
        lua_pushstring(L, key);
        switch (lua_rawget(L, p)) {
        case LUA_TNIL: {
                const char **all = keys_of(L, p, &n), *near = nearest(key, all, n);
                fail(L, define ? 2 : 3, "the model has no parameter '%s'%s%s%s", key,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
        case LUA_TBOOLEAN:
                if (lua_type(L, v) == LUA_TBOOLEAN)
                        lua_pushvalue(L, v);
                else if (!strcmp(given, "true") || !strcmp(given, "True") || !strcmp(given, "1"))
                        lua_pushboolean(L, 1);
                else if (!strcmp(given, "false") || !strcmp(given, "False") || !strcmp(given, "0"))
                        lua_pushboolean(L, 0);
                else
                        fail(L, define ? 2 : 3, "parameter '%s' is true or false, not '%s'", key,
                             given);
                break;
        case LUA_TNUMBER: {
                bool whole = lua_isinteger(L, -1);
                lua_Number x;
                int ok;
                x = lua_tonumberx(L, v, &ok);
                if (!ok || !isfinite(x))
                        fail(L, define ? 2 : 3, "parameter '%s' is a number, not '%s'", key, given);
                if (whole && (x != floor(x) || fabs(x) > 0x1p44))
                        fail(L, define ? 2 : 3, "parameter '%s' is a whole number, not '%s'", key,
                             given);
                if (whole)
                        lua_pushinteger(L, (lua_Integer)x);
                else
                        lua_pushnumber(L, x);
                break;
        }
        default:
                if (lua_type(L, v) != LUA_TSTRING)
                        fail(L, define ? 2 : 3, "parameter '%s' is a word, not '%s'", key, given);
                lua_pushvalue(L, v);
        }
        lua_pushstring(L, key);
        lua_insert(L, -2);
        lua_rawset(L, p);
        lua_settop(L, v - 1);
}

static int no_such_param(lua_State *L)
{
        return luaL_error(L, "the model's params have no '%s'", luaL_tolstring(L, 2, NULL));
}

/* Pushes a copy of the defaults of the module at `module`. */
static void push_defaults(lua_State *L, int module)
{
        lua_newtable(L);
        int p = lua_gettop(L);
        if (lua_getfield(L, module, "params") == LUA_TTABLE)
                for (lua_pushnil(L); lua_next(L, p + 1); lua_pop(L, 1)) {
                        int t = lua_type(L, -1);
                        if (lua_type(L, -2) != LUA_TSTRING ||
                            (t != LUA_TNUMBER && t != LUA_TSTRING && t != LUA_TBOOLEAN))
                                fail(L, 3,
                                     "params must be words with numbers, strings or booleans");
                        lua_pushvalue(L, -2);
                        lua_pushvalue(L, -2);
                        lua_rawset(L, p);
                }
        lua_settop(L, p);
        lua_newtable(L);
        lua_pushcfunction(L, no_such_param);
        lua_setfield(L, -2, "__index");
        lua_setmetatable(L, p);
}

void push_json(lua_State *L, const cJSON *j)
{
        const cJSON *c;
        lua_Integer i = 0;
        luaL_checkstack(L, 4, "config.json lies too deep");
        if (cJSON_IsBool(j)) {
                lua_pushboolean(L, cJSON_IsTrue(j));
        } else if (cJSON_IsNumber(j)) {
                double x = j->valuedouble;
                if (x == floor(x) && fabs(x) < 0x1p53)
                        lua_pushinteger(L, (lua_Integer)x);
                else
                        lua_pushnumber(L, x);
        } else if (cJSON_IsString(j)) {
                lua_pushstring(L, j->valuestring);
        } else if (cJSON_IsArray(j) || cJSON_IsObject(j)) {
                lua_newtable(L);
                cJSON_ArrayForEach(c, j)
                {
                        push_json(L, c);
                        if (cJSON_IsArray(j))
                                lua_rawseti(L, -2, ++i);
                        else
                                lua_setfield(L, -2, c->string);
                }
        } else {
                lua_pushlightuserdata(L, NULL);
        }
}

/* Where `"key":` first stands in the text.  False: nowhere, as for a key that is missing. */
static bool key_place(const char *text, const char *key, int *line, int *column)
{
        size_t n = strlen(key);
        const char *begin = text;
        for (*line = 1; *text; text++) {
                if (*text == '\n') {
                        ++*line;
                        begin = text + 1;
                }
                if (*text != '"' || strncmp(text + 1, key, n) || text[n + 1] != '"' ||
                    text[n + 2 + strspn(text + n + 2, " \t\r\n")] != ':')
                        continue;
                *column = (int)(text - begin) + 1;
                return true;
        }
        return false;
}

/* config_error(KEY, WHAT): the configuration is refused, where it says KEY. */
static int config_error(lua_State *L)
{
        Reader *r = reader_of(L);
        int line, column;
        const char *key = luaL_checkstring(L, 1), *what = luaL_checkstring(L, 2);
        if (key_place(r->config_text, key, &line, &column))
                snprintf(r->msg, sizeof r->msg, "config.json:%d:%d: %s", line, column, what);
        else
                snprintf(r->msg, sizeof r->msg, "error: %s", what);
        r->code = 3;
        return lua_error(L);
}

/* Modules ------------------------------------------------------------------- */

static const char *text_of(const cJSON *o, const char *key)
{
        return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
}

/* Pushes the module that families.lua names. */
static void push_family(lua_State *L)
{
        Reader *r = reader_of(L);
        const char *names[3] = {
                r->family, text_of(r->config, "model_type"),
                cJSON_GetStringValue(cJSON_GetArrayItem(
                        cJSON_GetObjectItemCaseSensitive(r->config, "architectures"), 0))
        };
        int n;
        sandbox_require(L, "families");
        int t = lua_gettop(L);
        luaL_checktype(L, t, LUA_TTABLE);
        for (int i = 0; i < 3; i++)
                if (names[i] && lua_getfield(L, t, names[i]) == LUA_TSTRING) {
                        lua_pushstring(L, names[i]);
                        lua_setfield(L, LUA_REGISTRYINDEX, "family");
                        r->m->main_source = r->m->n_source;
                        sandbox_require(L, lua_tostring(L, -1));
                        return;
                }
        const char **all = keys_of(L, t, &n), *said = names[0]   ? names[0]
                                                      : names[1] ? names[1]
                                                                 : names[2];
        luaL_Buffer b;
        luaL_buffinit(L, &b);
        const char *sep = "";
        for (int i = 0; i < n; i++)
                if (*all[i] >= 'a') { /* architectures begin with a capital: the same again */
                        luaL_addstring(&b, sep);
                        luaL_addstring(&b, all[i]);
                        sep = ", ";
                }
        luaL_pushresult(&b);
        fail(L, 3,
             "no model is known for '%s'; known are %s.  With a model of your own: tgc compile "
             "FOLDER --model FILE.lua, whose function `config` gets this file "
             "(docs/graph-language.md)",
             said ? said : "this config.json", lua_tostring(L, -1));
}

/* Pushes what the user's file returns, or the embedded model of that name. */
void push_file(lua_State *L)
{
        Reader *r = reader_of(L);
        if ((!file_exists(r->path) || file_is_dir(r->path)) && !strchr(r->path, '/')) {
                size_t n = strlen(r->path);
                if (n > 4 && !strcmp(r->path + n - 4, ".lua"))
                        n -= 4;
                lua_pushlstring(L, r->path, n);
                if (name_is_plain(lua_tostring(L, -1)) && !strpbrk(lua_tostring(L, -1), ".-")) {
                        if (!sandbox_has(r, lua_tostring(L, -1)))
                                fail(L, 8,
                                     "no such file, and no model of that name comes with tgc");
                        r->m->main_source = r->m->n_source;
                        sandbox_require(L, lua_tostring(L, -1));
                        return;
                }
        }
        r->m->main_source = r->m->n_source;
        sandbox_load_path(L, r->path);
        lua_call(L, 0, 1);
}

/* What the model gets, as text and numbers.  The table at p has keys of push_defaults alone. */
static void keep_params(lua_State *L, int p)
{
        Model *m = reader_of(L)->m;
        int n;
        const char **key = keys_of(L, p, &n);
        m->params = arena_alloc(m->arena, (size_t)(n + 1) * sizeof *m->params);
        for (int i = 0; i < n; i++) {
                ModelParam *to = &m->params[m->n_params++];
                lua_getfield(L, p, key[i]);
                to->name = arena_str(m->arena, key[i]);
                switch (lua_type(L, -1)) {
                case LUA_TBOOLEAN:
                        to->kind = PARAM_BOOLEAN;
                        to->number = lua_toboolean(L, -1);
                        break;
                case LUA_TNUMBER:
                        to->kind = lua_isinteger(L, -1) ? PARAM_INTEGER : PARAM_REAL;
                        to->number = lua_tonumber(L, -1);
                        break;
                default: to->kind = PARAM_WORD; to->word = arena_str(m->arena, lua_tostring(L, -1));
                }
                lua_settop(L, p);
        }
}

/* Pushes what config.json says of the parameters: tgc_params, or what `config` makes of it. */
static void push_configured(lua_State *L, int module)
{
        Reader *r = reader_of(L);
        const cJSON *saved = cJSON_GetObjectItemCaseSensitive(r->config, "tgc_params");
        if (saved) {
                if (!cJSON_IsObject(saved))
                        fail(L, 3, "\"tgc_params\" is no object");
                push_json(L, saved);
                return;
        }
        if (lua_getfield(L, module, "config") != LUA_TFUNCTION)
                fail(L, 3, "the model has no function `config`, so no config.json describes it");
        if (r->path) { /* push_family has said it for ours */
                const char *type = r->family ? r->family : text_of(r->config, "model_type");
                lua_pushstring(L, type ? type : "");
                lua_setfield(L, LUA_REGISTRYINDEX, "family");
        }
        push_json(L, r->config);
        lua_register(L, "config_error", config_error);
        lua_getfield(L, LUA_REGISTRYINDEX, "family");
        lua_call(L, 2, 1);
        luaL_checktype(L, -1, LUA_TTABLE);
}

/* Defaults, then config.json, then -D.  Pushes the parameters. */
void push_params(lua_State *L, int module)
{
        Reader *r = reader_of(L);
        push_defaults(L, module);
        int p = lua_gettop(L), n;
        if (r->config) {
                push_configured(L, module);
                int c = lua_gettop(L);
                const char **key = keys_of(L, c, &n);
                for (int i = 0; i < n; i++) {
                        lua_getfield(L, c, key[i]);
                        set_param(L, p, key[i], false);
                }
                key = keys_of(L, p, &n);
                /* a default of ours may be another than the reference's */
                for (int i = 0; i < n; i++) {
                        if (lua_getfield(L, c, key[i]) == LUA_TNIL)
                                fail(L, 3, "%s does not say what '%s' is",
                                     cJSON_GetObjectItemCaseSensitive(r->config, "tgc_params")
                                             ? "tgc_params of config.json"
                                             : "the model's `config`",
                                     key[i]);
                        lua_pop(L, 1);
                }
                lua_settop(L, p);
        }
        for (int i = 0; i < r->o->n_define; i++) {
                const char *d = r->o->define[i], *eq = strchr(d, '=');
                if (!eq || eq == d)
                        fail(L, 2, "-D needs KEY=VALUE, not '%s'", d);
                const char *key = lua_pushlstring(L, d, (size_t)(eq - d));
                lua_pushstring(L, eq + 1);
                set_param(L, p, key, true);
                lua_settop(L, p);
        }
        const char **key = keys_of(L, p, &n);
        for (int i = 0; i < n; i++) { /* n_layer = -1 would be a loop that never runs */
                lua_getfield(L, p, key[i]);
                if (!strncmp(key[i], "n_", 2) && lua_isnumber(L, -1) && lua_tonumber(L, -1) < 0)
                        fail(L, 3, "parameter '%s' is a count, not %s", key[i],
                             lua_tostring(L, -1));
                lua_settop(L, p);
        }
}

/* The model ------------------------------------------------------------------ */

/* What is not known has no effect.  loose: what is not near to a known name may be there, as a file
 * may be a library of others too. */
static void only(lua_State *L, int t, const char *what, const char *const *known, int count,
                 bool loose)
{
        int n;
        const char **key = keys_of(L, t, &n);
        for (int i = 0; i < n; i++) {
                int k = 0;
                while (k < count && strcmp(key[i], known[k]))
                        k++;
                const char *near = k < count ? NULL : nearest(key[i], known, count);
                if (k == count && (near || !loose))
                        fail(L, 3, "%s '%s'%s%s%s", what, key[i], near ? "; did you mean '" : "",
                             near ? near : "", near ? "'?" : "");
        }
}

static void take_outputs(lua_State *L, int t)
{
        static const char *const first[] = { "logits", "loss", "aux_loss" }, *const all[] = {
                "logits", "loss", "aux_loss", "ce", "hidden"
        };
        Model *m = reader_of(L)->m;
        only(L, t, "a model returns no", all, 5, false);
        int n, at;
        const char **key = keys_of(L, t, &n);
        for (int round = 0; round < 2; round++) /* the known ones in their order, then the others */
                for (int i = 0; i < (round ? n : 3); i++) {
                        const char *name = round ? key[i] : first[i];
                        for (at = 0; round && at < 3 && strcmp(name, first[at]); at++)
                                ;
                        if (round && at < 3)
                                continue;
                        if (lua_getfield(L, t, name) == LUA_TNIL && !round) {
                                lua_pop(L, 1);
                                continue;
                        }
                        if (!tensor_at(L, -1))
                                fail(L, 3, "output '%s' is a %s, but must be a tensor", name,
                                     luaL_typename(L, -1));
                        if (!name_is_plain(name))
                                fail(L, 3, "'%s' cannot be the name of an output", name);
                        graph_output(m->graph, name, tensor_at(L, -1));
                        lua_pop(L, 1);
                }
}

/* Runs under sandbox_call; all that a failure leaves behind is Lua's or the arena's. */
static int build(lua_State *L)
{
        static const char *const field[] = { "name", "params", "config", "graph" };
        Reader *r = reader_of(L);
        if (r->config && !r->path)
                push_family(L);
        else
                push_file(L);
        int module = lua_gettop(L);
        if (!lua_istable(L, module) || lua_getfield(L, module, "graph") != LUA_TFUNCTION)
                fail(L, 3, "the model must return a table with a function `graph`");
        only(L, module, "the file's table has a", field, 4, true);
        if (lua_getfield(L, module, "config") != LUA_TNIL && !lua_isfunction(L, -1))
                fail(L, 3, "`config` must be a function, not a %s", luaL_typename(L, -1));
        lua_pop(L, 1);
        lua_getfield(L, module, "name");
        const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "model";
        if (!name_is_plain(name))
                fail(L, 3, "'%s' cannot be the name of a model", name);
        r->m->name = arena_str(r->m->arena, name);
        lua_pop(L, 1);
        push_params(L, module);
        keep_params(L, lua_gettop(L));
        lua_pushstring(L, "ctx");
        if (lua_rawget(L, -2) == LUA_TNUMBER) {
                r->m->ctx = (int64_t)lua_tonumber(L, -1);
                if (r->m->ctx < 1 || r->m->ctx > 1 << 24)
                        fail(L, 3, "ctx must be between 1 and 2^24");
        }
        lua_pop(L, 1);
        lua_call(L, 1, 1);
        if (!lua_istable(L, -1))
                fail(L, 3, "the function `graph` must return a table of outputs, not a %s",
                     luaL_typename(L, -1));
        take_outputs(L, lua_gettop(L));
        return 0;
}

/* Token ids that end and begin a text, as config.json has them, but those that no token has
 * (models/config.lua refuses others than a default). */
static void take_meta(Reader *r)
{
        static const char *const keys[] = { "bos_token_id", "eos_token_id" };
        const cJSON *size = cJSON_GetObjectItemCaseSensitive(r->config, "vocab_size");
        const int n = cJSON_IsNumber(size) ? size->valueint : INT_MAX;
        Text t = { 0 };
        for (int i = 0; r->config && i < 2; i++) {
                const cJSON *v = cJSON_GetObjectItemCaseSensitive(r->config, keys[i]), *c;
                if (cJSON_IsNumber(v) && v->valueint < n)
                        text_add(&t, "meta %s %d\n", keys[i], v->valueint);
                if (!cJSON_IsArray(v) || !v->child)
                        continue;
                text_add(&t, "meta %s", keys[i]);
                cJSON_ArrayForEach(c, v) if (cJSON_IsNumber(c)) text_add(&t, " %d", c->valueint);
                text_add(&t, "\n");
        }
        if (t.s)
                r->m->meta = arena_str(r->m->arena, t.s);
        text_free(&t);
}

static Model *read_model(Reader *r)
{
        Model *m = model_new("model");
        Diag d;
        r->m = m;
        r->used.a = m->arena;
        d.source = NULL;
        locale_t was = c_locale_begin();
        if (DIAG_CATCH(&d)) {
                sandbox_open(r);
                if (!r->msg[0]) {
                        lua_pushcfunction(r->L, build);
                        sandbox_call(r, 0, 0);
                }
                sandbox_close(r);
                if (!r->msg[0]) {
                        take_meta(r);
                        model_finish(m, NULL);
                }
                diag_end(&d);
        } else {
                snprintf(r->msg, sizeof r->msg, "%s", d.msg);
                r->code = d.code;
                sandbox_close(r);
        }
        c_locale_end(was);
        if (r->o->said && r->n_said)
                r->o->said(r->o->said_to, r->said, r->n_said, r->said_more);
        free(r->said);
        r->said = NULL;
        if (r->msg[0]) {
                model_free(m);
                return NULL;
        }
        return m;
}

Model *read_lua(const char *path, const ReadOptions *o)
{
        Reader r = { .o = o, .path = path };
        Model *m = read_model(&r);
        if (!m)
                error_code(r.code, (Loc) { 0 }, "%s", r.msg);
        return m;
}

static Model *read_configured(Reader *r, const char *config_json)
{
        cJSON *config = NULL;
        Err e = { 0 };
        if (json_parse(&config, config_json, strlen(config_json), "config.json", &e))
                error_code(e.code, (Loc) { 0 }, "%s", e.msg);
        r->config_text = config_json;
        r->config = config;
        Model *m = read_model(r);
        cJSON_Delete(config);
        if (!m)
                error_code(r->code, (Loc) { 0 }, "%s", r->msg);
        return m;
}

Model *read_lua_family(const char *family, const char *config_json, const ReadOptions *o)
{
        return read_configured(&(Reader) { .o = o, .family = family }, config_json);
}

Model *read_lua_config(const char *path, const char *family, const char *config_json,
                       const ReadOptions *o)
{
        return read_configured(&(Reader) { .o = o, .path = path, .family = family }, config_json);
}
