/* lua_graph.h: private to lua_graph.c, lua_dim.c and lua_leaf.c: the graph functions that Lua
 * calls. */
#ifndef TGC_LUA_GRAPH_H
#define TGC_LUA_GRAPH_H

#include "read.h"

/* All that creating a node needs. */
typedef struct Call {
        Op op;
        bool typed;
        Type type;
        Ref in[MAX_IN];
        int n_in;
        Attr attr;
} Call;

/* ---- lua_graph.c ---- */

Call lua_call_of(Op op);
/* Make the node, under a name of its own within the scope, or under this one; pushes the tensor. */
int lua_make(lua_State *L, const Call *c);
int lua_make_leaf(lua_State *L, const Call *c, const char *name);
double lua_real_at(lua_State *L, int i, Op op,
                   const char *field); /* a number; an error names op and field */

/* ---- lua_dim.c ---- */

void lua_dim_open(lua_State *L); /* also the globals B and T */
void lua_push_dim(lua_State *L, Dim d);
Type lua_shape_at(lua_State *L, int i, DType dt);
DType lua_dtype_at(lua_State *L, int i);

/* ---- lua_leaf.c ---- */

void lua_leaf_open(lua_State *L);

#endif
