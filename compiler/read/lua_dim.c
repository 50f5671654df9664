/* lua_dim.c: dimensions, shapes and element types as Lua sees them: whole numbers, B, T, and
 * products and quotients of these. */
#include <lauxlib.h>
#include "lua_graph.h"

#define DIMENSION "dimension"

void lua_push_dim(lua_State *L, Dim d)
{
        if (dim_is_const(d)) {
                lua_pushinteger(L, d.n);
                return;
        }
        *(Dim *)lua_newuserdatauv(L, sizeof d, 0) = d;
        luaL_setmetatable(L, DIMENSION);
}

static Dim lua_dim_at(lua_State *L, int i)
{
        Dim *d = luaL_testudata(L, i, DIMENSION);
        lua_Integer n;
        int ok;
        if (d)
                return *d;
        n = lua_tointegerx(L, i, &ok);
        if (!ok || lua_type(L, i) != LUA_TNUMBER)
                luaL_error(L,
                           "a dimension is a whole number, B or T, or a product of these, not %s",
                           lua_type(L, i) == LUA_TNUMBER ? "a fraction" : luaL_typename(L, i));
        if (n < 1 || n > (lua_Integer)1 << 44)
                luaL_error(L, "a dimension is at least 1 and at most 2^44, not %I", n);
        return DIM(n);
}

static int dim_mul_lua(lua_State *L)
{
        Type t = type_of(DT_F32, 2, lua_dim_at(L, 1), lua_dim_at(L, 2));
        if (!type_is_sane(&t))
                return luaL_error(L, "the product of dimensions is out of range");
        lua_push_dim(L, dim_mul(t.dim[0], t.dim[1]));
        return 1;
}

static int dim_div_lua(lua_State *L)
{
        Dim a = lua_dim_at(L, 1), b = lua_dim_at(L, 2), q;
        char x[64], y[64];
        if (!dim_div(a, b, &q))
                return luaL_error(L, "the dimension %s cannot be divided by %s", dim_text(a, x),
                                  dim_text(b, y));
        lua_push_dim(L, q);
        return 1;
}

static int dim_eq_lua(lua_State *L)
{
        lua_pushboolean(L, dim_eq(lua_dim_at(L, 1), lua_dim_at(L, 2)));
        return 1;
}

static int dim_text_lua(lua_State *L)
{
        char t[64];
        lua_pushstring(L, dim_text(lua_dim_at(L, 1), t));
        return 1;
}

Type lua_shape_at(lua_State *L, int i, DType dt)
{
        Type t = { .dt = dt };
        luaL_checktype(L, i, LUA_TTABLE);
        lua_Integer n = (lua_Integer)lua_rawlen(L, i);
        if (n > MAX_RANK)
                luaL_error(L, "a shape has at most %d dimensions, here are %I", MAX_RANK, n);
        for (lua_Integer k = 1; k <= n; k++) {
                lua_rawgeti(L, i, k);
                t.dim[t.rank++] = lua_dim_at(L, -1);
                lua_pop(L, 1);
        }
        return t;
}

DType lua_dtype_at(lua_State *L, int i)
{
        return (DType)luaL_checkoption(L, i, NULL,
                                       (const char *const[]) { "f32", "bf16", "f16", "i32", NULL });
}

void lua_dim_open(lua_State *L)
{
        static const luaL_Reg meta[] = { { "__mul", dim_mul_lua },       { "__div", dim_div_lua },
                                         { "__idiv", dim_div_lua },      { "__eq", dim_eq_lua },
                                         { "__tostring", dim_text_lua }, { NULL, NULL } };
        luaL_newmetatable(L, DIMENSION);
        luaL_setfuncs(L, meta, 0);
        lua_push_dim(L, DIM_SYM(SYM_B));
        lua_setglobal(L, "B");
        lua_push_dim(L, DIM_SYM(SYM_T));
        lua_setglobal(L, "T");
}
