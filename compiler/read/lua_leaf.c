/* lua_leaf.c: input, param, const, fill, position, and ignore, as Lua calls them (lua_graph.c). */
#include <lauxlib.h>
#include <string.h>
#include "lua_graph.h"

static int input(lua_State *L)
{
        Call c = lua_call_of(OP_INPUT);
        const char *name = luaL_checkstring(L, 1);
        c.typed = true;
        c.type = lua_shape_at(L, 2, lua_isnoneornil(L, 3) ? DT_I32 : lua_dtype_at(L, 3));
        return lua_make_leaf(L, &c, name);
}

/* The field of the options at index 3; pushes it. */
static bool option(lua_State *L, const char *key) { return lua_getfield(L, 3, key) != LUA_TNIL; }

static double number_option(lua_State *L, const char *key)
{
        return lua_real_at(L, lua_gettop(L), OP_PARAM, key);
}

static const char *const param_options[] = {
#define PARAM_OPTION(name, text) #name,
#include "language.def"
        NULL
};

static const char *const init_kinds[] = {
#define INIT(name, text) #name,
#include "language.def"
        NULL
};

/* Where the word at the top of the stack stands in the list; an error names the nearest, and all of
 * them. */
static int word_of(lua_State *L, const char *const *list, const char *what)
{
        const char *word = luaL_tolstring(L, -1, NULL), *near;
        luaL_Buffer b;
        int n = 0;
        for (; list[n]; n++)
                if (!strcmp(list[n], word)) {
                        lua_pop(L, 1);
                        return n;
                }
        near = nearest(word, list, n);
        luaL_buffinit(L, &b);
        for (int i = 0; i < n; i++) {
                luaL_addstring(&b, i ? ", " : "");
                luaL_addstring(&b, list[i]);
        }
        luaL_pushresult(&b);
        return luaL_error(L, "param: no %s '%s'%s%s%s there are %s", what, word,
                          near ? ", did you mean '" : ";", near ? near : "", near ? "'?" : "",
                          lua_tostring(L, -1));
}

static int param(lua_State *L)
{
        Call c = lua_call_of(OP_PARAM);
        const char *name = luaL_checkstring(L, 1);
        if (++reader_of(L)->n_params > READ_MAX_PARAMS)
                return luaL_error(L, "param: the model has more than %d parameters",
                                  READ_MAX_PARAMS);
        c.typed = true;
        c.type = lua_shape_at(L, 2, DT_F32);
        for (int i = 0; i < c.type.rank; i++)
                if (!dim_is_const(c.type.dim[i]))
                        return luaL_error(L, "param: '%s' cannot depend on B or T", name);
        c.attr.param.decay = c.type.rank >= 2;
        if (c.type.rank >= 2) {
                c.attr.param.init = INIT_NORMAL;
                c.attr.param.a = 0.02;
        }
        if (!lua_isnoneornil(L, 3)) {
                luaL_checktype(L, 3, LUA_TTABLE);
                for (lua_pushnil(L); lua_next(L, 3); lua_pop(L, 1)) {
                        lua_pushvalue(L, -2);
                        word_of(L, param_options, "option");
                        lua_pop(L, 1);
                }
                if (option(L, "init"))
                        c.attr.param.init = word_of(L, init_kinds, "way to begin");
                if (c.attr.param.init == INIT_ZEROS || c.attr.param.init == INIT_ONES)
                        c.attr.param.a = 0;
                if (option(L, "std")) {
                        c.attr.param.init = INIT_NORMAL;
                        c.attr.param.a = number_option(L, "std");
                }
                if (option(L, "value")) {
                        c.attr.param.init = INIT_VALUE;
                        c.attr.param.a = number_option(L, "value");
                }
                if (option(L, "uniform")) {
                        luaL_checktype(L, -1, LUA_TTABLE);
                        int t = lua_gettop(L);
                        c.attr.param.init = INIT_UNIFORM;
                        lua_rawgeti(L, t, 1);
                        c.attr.param.a = number_option(L, "uniform");
                        lua_rawgeti(L, t, 2);
                        c.attr.param.b = number_option(L, "uniform");
                }
                if (option(L, "trainable"))
                        c.attr.param.trainable = lua_toboolean(L, -1);
                if (option(L, "decay"))
                        c.attr.param.decay = lua_toboolean(L, -1);
        }
        return lua_make_leaf(L, &c, name);
}

static int constant(lua_State *L)
{
        Reader *r = reader_of(L);
        Call c = lua_call_of(OP_CONST);
        const char *name = luaL_checkstring(L, 1);
        luaL_checktype(L, 2, LUA_TTABLE);
        size_t n = lua_rawlen(L, 2);
        if (!n || n > READ_MAX_CONST - r->n_const)
                return luaL_error(L, "const: %s",
                                  n ? "the constants are too large" : "no numbers given");
        c.typed = true;
        c.type = lua_isnoneornil(L, 3) ? type_of(DT_F32, 1, DIM((int64_t)n))
                                       : lua_shape_at(L, 3, DT_F32);
        if (!type_is_sane(&c.type) || !dim_eq(type_elems(&c.type), DIM((int64_t)n)))
                return luaL_error(L, "const: %d numbers do not fill the shape", (int)n);
        double *v = arena_alloc(r->m->arena, n * sizeof *v);
        r->n_const += n;
        for (size_t i = 0; i < n; i++) {
                lua_rawgeti(L, 2, (lua_Integer)i + 1);
                v[i] = lua_real_at(L, -1, OP_CONST, "every element");
                lua_pop(L, 1);
        }
        c.attr.data.data = v;
        c.attr.data.n = (int64_t)n;
        return lua_make_leaf(L, &c, name);
}

static int fill(lua_State *L)
{
        Call c = lua_call_of(OP_FILL);
        c.attr.num.x = lua_real_at(L, 1, OP_FILL, "the value");
        c.typed = true;
        c.type = lua_isnoneornil(L, 2) ? type_of(DT_F32, 0) : lua_shape_at(L, 2, DT_F32);
        return lua_make(L, &c);
}

static int position(lua_State *L)
{
        Call c = lua_call_of(OP_POSITION);
        c.typed = true;
        c.type = type_of(DT_I32, 2, DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        return lua_make(L, &c);
}

static int ignore(lua_State *L)
{
        Reader *r = reader_of(L);
        const char *glob = luaL_checkstring(L, 1);
        if (!map_text_is_plain(glob) || strchr(glob, ' '))
                return luaL_error(L, "ignore: '%s' is no pattern", glob);
        if (r->m->n_ignore >= 4096)
                return luaL_error(L, "ignore: too many patterns");
        model_ignore(r->m, glob);
        return 0;
}

void lua_leaf_open(lua_State *L)
{
        static const luaL_Reg globals[] = {
                { "input", input }, { "param", param },       { "const", constant },
                { "fill", fill },   { "position", position }, { "ignore", ignore },
                { NULL, NULL }
        };
        for (const luaL_Reg *f = globals; f->name; f++)
                lua_register(L, f->name, f->func);
}
