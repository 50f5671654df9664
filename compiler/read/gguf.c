/* gguf.c: interprets a GGUF file's metadata by models/gguf.lua.  The result is the configuration
 * that a Hugging Face folder would have, and the map from the file's tensors to that folder's.
 * Also the reverse: from a folder's configuration to a file's keys. */
#include <cjson/cJSON.h>
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/json.h"
#include "read.h"

typedef struct Work {
        const cJSON *meta;
        bool own;
        Text *config, *names;
} Work;

/* config_error(KEY, WHAT): the file is refused for what it says under KEY. */
static int config_error(lua_State *L)
{
        Reader *r = reader_of(L);
        snprintf(r->msg, sizeof r->msg, "%s: %s", luaL_checkstring(L, 1), luaL_checkstring(L, 2));
        r->code = 3;
        return lua_error(L);
}

static void put_text(Text *t, const char *s)
{
        text_put(t, "\"", 1);
        for (; *s; s++) {
                if (*s == '"' || *s == '\\')
                        text_put(t, "\\", 1);
                if ((unsigned char)*s < 32)
                        text_add(t, "\\u%04x", *s);
                else
                        text_put(t, s, 1);
        }
        text_put(t, "\"", 1);
}

static void put_number(Text *t, double x)
{
        char s[40];
        for (int digits = 1; digits <= 17; digits++) {
                c_format(s, sizeof s, "%.*g", digits, x);
                if (c_strtod(s, NULL) == x)
                        break;
        }
        text_add(t, "%s%s", s, strpbrk(s, ".e") ? "" : ".0");
}

/* The value on top as JSON; tables have names, sorted, or are lists. */
static void put_value(lua_State *L, Text *t, int depth)
{
        const int at = lua_gettop(L);
        const char *sep = "";
        switch (lua_type(L, at)) {
        case LUA_TSTRING: put_text(t, lua_tostring(L, at)); break;
        case LUA_TBOOLEAN: text_add(t, "%s", lua_toboolean(L, at) ? "true" : "false"); break;
        case LUA_TNUMBER:
                if (lua_isinteger(L, at))
                        text_add(t, "%lld", (long long)lua_tointeger(L, at));
                else
                        put_number(t, lua_tonumber(L, at));
                break;
        case LUA_TLIGHTUSERDATA: text_add(t, "null"); break;
        case LUA_TTABLE: {
                const lua_Unsigned n = lua_rawlen(L, at);
                if (depth > 4)
                        luaL_error(L, "a configuration is nested too deep");
                text_add(t, n ? "[" : "{");
                for (lua_Unsigned i = 1; i <= n; i++, sep = ", ") {
                        text_add(t, "%s", sep);
                        lua_rawgeti(L, at, (lua_Integer)i);
                        put_value(L, t, depth + 1);
                        lua_pop(L, 1);
                }
                int n_keys = 0;
                const char **key = n ? NULL : keys_of(L, at, &n_keys);
                for (int i = 0; i < n_keys; i++) {
                        text_add(t, "%s\n%*s", i ? "," : "", 2 * depth + 2, "");
                        put_text(t, key[i]);
                        text_add(t, ": ");
                        lua_getfield(L, at, key[i]);
                        put_value(L, t, depth + 1);
                        lua_pop(L, 1);
                }
                if (n)
                        text_add(t, "]");
                else
                        text_add(t, "\n%*s}", 2 * depth, "");
                break;
        }
        default: luaL_error(L, "a configuration has a %s", luaL_typename(L, at));
        }
}

static void put_lines(lua_State *L, int lines, Text *to)
{
        for (lua_Integer i = 1; lua_rawgeti(L, lines, i) == LUA_TSTRING; i++, lua_pop(L, 1))
                text_add(to, "%s\n", lua_tostring(L, -1));
}

/* Runs under sandbox_call; the upvalue is a Work: gguf_write.lua's four results. */
static int run_write(lua_State *L)
{
        static const char *const part[] = { "keys", "extra", NULL, "sizes" };
        const Work *w = lua_touserdata(L, lua_upvalueindex(1));
        lua_register(L, "config_error", config_error);
        lua_pushlightuserdata(L, NULL); /* as push_json has it */
        lua_setglobal(L, "json_null");
        sandbox_require(L, "gguf_write");
        lua_getfield(L, -1, "folder");
        push_json(L, w->meta);
        lua_call(L, 1, 4);
        const int first = lua_gettop(L) - 3;
        put_lines(L, first + 2, w->names);
        lua_newtable(L);
        for (int i = 0; i < 4; i++)
                if (part[i]) {
                        lua_pushvalue(L, first + i);
                        lua_setfield(L, -2, part[i]);
                }
        put_value(L, w->config, 0);
        return 0;
}

/* Runs under sandbox_call; the upvalue is a Work. */
static int run(lua_State *L)
{
        const Work *w = lua_touserdata(L, lua_upvalueindex(1));
        lua_register(L, "config_error", config_error);
        lua_pushlightuserdata(L, NULL); /* as push_json has it */
        lua_setglobal(L, "json_null");
        sandbox_require(L, "gguf");
        lua_getfield(L, -1, "read");
        push_json(L, w->meta);
        lua_pushboolean(L, w->own);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2))
                return 0;
        const int lines = lua_gettop(L);
        put_lines(L, lines, w->names);
        lua_pushvalue(L, lines - 1);
        put_value(L, w->config, 0);
        text_add(w->config, "\n");
        return 0;
}

static void with_gguf(const char *meta_json, lua_CFunction run_it, Work w)
{
        ReadOptions o = { 0 };
        Reader r = { .o = &o, .m = model_new("gguf") };
        cJSON *meta = NULL;
        Err e = { 0 };
        r.used.a = r.m->arena;
        locale_t was = c_locale_begin();
        if (json_parse(&meta, meta_json, strlen(meta_json), "the metadata", &e)) {
                r.code = e.code;
                snprintf(r.msg, sizeof r.msg, "%s", e.msg);
        } else {
                w.meta = meta;
                sandbox_open(&r);
                if (!r.msg[0]) {
                        lua_pushlightuserdata(r.L, &w);
                        lua_pushcclosure(r.L, run_it, 1);
                        sandbox_call(&r, 0, 0);
                }
                sandbox_close(&r);
        }
        c_locale_end(was);
        cJSON_Delete(meta);
        model_free(r.m);
        if (r.msg[0])
                error_code(r.code, (Loc) { 0 }, "%s", r.msg);
}

void read_gguf(const char *meta_json, bool own, Text *config, Text *names)
{
        with_gguf(meta_json, run, (Work) { .own = own, .config = config, .names = names });
}

void write_gguf(const char *folder_json, Text *keys, Text *names)
{
        with_gguf(folder_json, run_write, (Work) { .config = keys, .names = names });
}
