/* lua_graph.c: the graph functions that Lua calls.
 *
 *      B, T                            dimensions; 2*B*T, (B*T)//2 are too
 *      input(name, {B, T} [, dtype])   dtype i32 unless said
 *      param(name, {N, K} [, {std=, init=, uniform={lo,hi}, value=, trainable=, decay=}])
 *      const(name, {numbers} [, shape])
 *      fill(x [, shape]), position(), inv_tokens()
 *      op.NAME(inputs..., {attributes})        every public row of ops.def;
 *      x:NAME(more inputs..., {attributes})    a lone number is the op's first attribute
 *      x + y, x * 2, 1 - x, -x, x ^ 2          elementwise, with broadcasting
 *      x.shape, x.rank, x.dtype, x.name
 *      x:as "q"                        names the value, within the current scope
 *      w:from("NAME || OTHER: 4x4 | t" [, {rows={b,e}, optional=true}])        checkpoint map
 *      scope("blk0", f, ...)           f(...), with names beginning blk0.
 *      ignore "GLOB"                   checkpoint tensors that may go unused
 *
 * Attributes come from the op's table, so a new op needs no code here.  No graph error crosses a
 * Lua frame as a longjmp: guarded() turns it into a Lua error. */
#include "lua_graph.h"
#include <lauxlib.h>
#include <math.h>
#include <string.h>

#define TENSOR "tensor"

/* Errors ----------------------------------------------------------------- */

static _Noreturn void raise(lua_State *L, const Diag *d)
{
        Reader *r = reader_of(L);
        snprintf(r->msg, sizeof r->msg, "%s", d->msg);
        r->code = d->code;
        lua_pushliteral(L, "");
        lua_error(L);
        __builtin_unreachable();
}

/* read_node, its error as a Lua error. */
static Ref guarded(lua_State *L, const Call *c, const char *name)
{
        Diag d;
        Loc loc = sandbox_here(L);
        d.source = NULL;
        if (!DIAG_CATCH(&d))
                raise(L, &d);
        Ref r = read_node(reader_of(L)->m->graph, c->op, c->typed ? &c->type : NULL, c->in, c->n_in,
                          &c->attr, loc, name);
        diag_end(&d);
        return r;
}

/* Names ------------------------------------------------------------------- */

static const char scope_key; /* registry: the current prefix, "" or "blk0.attn." */

/* Pushes it. */
static const char *scope_text(lua_State *L)
{
        lua_rawgetp(L, LUA_REGISTRYINDEX, &scope_key);
        return lua_tostring(L, -1);
}

static const char *plain(lua_State *L, const char *name)
{
        if (!name_is_plain(name))
                luaL_error(L, "'%s' cannot be a name: letters, digits, _ . - only", name);
        return name;
}

/* Scope and name joined; pushes it. */
static const char *full_name(lua_State *L, const char *name)
{
        const char *s = lua_pushfstring(L, "%s%s", scope_text(L), name);
        lua_remove(L, -2);
        return plain(L, s);
}

/* base, base.2, base.3 ...; pushes it. */
static const char *free_name(lua_State *L, const char *base)
{
        Names *used = &reader_of(L)->used;
        int k = *names_at(used, base);
        const char *name = lua_pushstring(L, base);
        if (k) {
                do {
                        lua_pop(L, 1);
                        name = lua_pushfstring(L, "%s.%d", base, ++k);
                } while (*names_at(used, name));
                *names_at(used, name) = 1;
        }
        *names_at(used, base) = k ? k : 1;
        return name;
}

/* Undo free_name, where nothing was numbered after it. */
static void give_back(Names *used, const char *name)
{
        const char *dot = strrchr(name, '.');
        char base[256];
        int k, *v = names_at(used, name);
        if (*v != 1)
                return;
        *v = 0;
        if (!dot || sscanf(dot + 1, "%d", &k) != 1)
                return;
        snprintf(base, sizeof base, "%.*s", (int)(dot - name), name);
        v = names_at(used, base);
        if (*v == k)
                *v = k - 1;
}

static int scope_push(lua_State *L)
{
        const char *name = luaL_checkstring(L, 1);
        luaL_getsubtable(L, LUA_REGISTRYINDEX, "scopes");
        scope_text(L);
        if (lua_rawlen(L, -2) >= 32)
                return luaL_error(L, "scopes lie too deep");
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        plain(L, name);
        full_name(L, name);
        lua_pushfstring(L, "%s.", lua_tostring(L, -1));
        lua_rawsetp(L, LUA_REGISTRYINDEX, &scope_key);
        return 0;
}

static int scope_pop(lua_State *L)
{
        luaL_getsubtable(L, LUA_REGISTRYINDEX, "scopes");
        lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
        lua_rawgeti(L, -1, n);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &scope_key);
        lua_pushnil(L);
        lua_rawseti(L, -2, n);
        return 0;
}

/* Tensors ------------------------------------------------------------------ */

Ref tensor_at(lua_State *L, int i)
{
        Ref *r = luaL_testudata(L, i, TENSOR);
        return r ? *r : 0;
}

static Ref need_tensor(lua_State *L, int i) { return *(Ref *)luaL_checkudata(L, i, TENSOR); }

static Node *node_at(lua_State *L, int i)
{
        return NODE(reader_of(L)->m->graph, need_tensor(L, i));
}

static int push_tensor(lua_State *L, Ref r)
{
        *(Ref *)lua_newuserdatauv(L, sizeof r, 0) = r;
        luaL_setmetatable(L, TENSOR);
        return 1;
}

void graph_push(lua_State *L, Ref r) { push_tensor(L, r); }

/* Make the node under a name of its own: scope.op, scope.op.2 ... */
int lua_make(lua_State *L, const Call *c)
{
        const char *name = free_name(L, full_name(L, op_info[c->op].text));
        Ref r = guarded(L, c, name);
        lua_pop(L, 2);
        return push_tensor(L, r);
}

/* A leaf whose name is the user's and final. */
int lua_make_leaf(lua_State *L, const Call *c, const char *name)
{
        const char *full = full_name(L, name);
        int *used = names_at(&reader_of(L)->used, full);
        if (*used)
                return luaL_error(L, "there is a value named '%s' already", full);
        *used = 1;
        Ref r = guarded(L, c, full);
        lua_pop(L, 1);
        return push_tensor(L, r);
}

Call lua_call_of(Op op)
{
        Call c = { .op = op };
        attr_default(op, &c.attr);
        return c;
}

/* Attributes ---------------------------------------------------------------- */

double lua_real_at(lua_State *L, int i, Op op, const char *field)
{
        double x = lua_isboolean(L, i) ? lua_toboolean(L, i) : lua_tonumber(L, i);
        if ((lua_type(L, i) != LUA_TNUMBER && !lua_isboolean(L, i)) || !isfinite(x))
                luaL_error(L, "%s: %s must be a finite number", op_info[op].text, field);
        return x;
}

static void set_field(lua_State *L, int i, Op op, const AttrField *f, int k, Attr *a)
{
        char *p = (char *)a + f->offset;
        double x = lua_real_at(L, i, op, f->name);
        if (f->real)
                ((double *)(void *)p)[k] = x;
        else if (x == floor(x) && fabs(x) <= 0x1p44)
                ((int64_t *)(void *)p)[k] = (int64_t)x;
        else
                luaL_error(L, "%s: %s must be a whole number of reasonable size", op_info[op].text,
                           f->name);
}

static const AttrField *field_named(lua_State *L, Op op, const char *name)
{
        const AttrField *all = attr_fields[op_info[op].attr], *f;
        luaL_Buffer b;
        for (f = all; f->name; f++)
                if (f->count && !strcmp(f->name, name))
                        return f;
        luaL_buffinit(L, &b);
        for (f = all; f->name; f++) {
                luaL_addstring(&b, f == all ? "" : ", ");
                luaL_addstring(&b, f->name);
        }
        luaL_pushresult(&b);
        luaL_error(L, "%s has no attribute '%s'%s%s", op_info[op].text, name,
                   all->name ? "; it has " : "", lua_tostring(L, -1));
        return NULL;
}

/* {key = number, ...}; the list part is a permutation, or the shape of reshape and expand. */
static void attr_table(lua_State *L, int i, Call *c)
{
        const AttrField *list = attr_fields[op_info[c->op].attr];
        lua_Integer n = (lua_Integer)lua_rawlen(L, i);
        if (op_info[c->op].cls == CLASS_VIEW && op_is(c->op, FACT_STATED)) {
                c->type = lua_shape_at(L, i, DT_F32);
                c->typed = true;
        } else if (list->count > 1 && n <= list->count) {
                for (lua_Integer k = 1; k <= n; k++) {
                        lua_rawgeti(L, i, k);
                        set_field(L, -1, c->op, list, (int)k - 1, &c->attr);
                        lua_pop(L, 1);
                }
        } else if (n) {
                luaL_error(L, "%s takes no list of numbers", op_info[c->op].text);
        }
        for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
                if (lua_type(L, -2) == LUA_TSTRING)
                        set_field(L, lua_gettop(L), c->op,
                                  field_named(L, c->op, lua_tostring(L, -2)), 0, &c->attr);
}

static Ref scalar(lua_State *L, double x)
{
        Call c = lua_call_of(OP_FILL);
        c.typed = true;
        c.type = type_of(DT_F32, 0);
        c.attr.num.x = x;
        lua_make(L, &c);
        Ref r = tensor_at(L, -1);
        lua_pop(L, 1);
        return r;
}

/* Dropout masks are told apart by a number. */
static void number_dropout(lua_State *L, Call *c)
{
        Graph *g = reader_of(L)->m->graph;
        if (c->op == OP_DROPOUT && !c->attr.drop.id)
                c->attr.drop.id = g->next_id++;
        if (c->op == OP_ATTENTION && c->attr.att.p > 0 && !c->attr.att.id)
                c->attr.att.id = g->next_id++;
}

/* op.NAME and x:NAME: the op is the upvalue. */
static int op_call(lua_State *L)
{
        Call c = lua_call_of((Op)lua_tointeger(L, lua_upvalueindex(1)));
        const AttrField *first = attr_fields[op_info[c.op].attr];
        int n = lua_gettop(L);
        bool elementwise = op_info[c.op].shape == op_info[OP_ADD].shape, attr_done = false;
        for (int i = 1; i <= n; i++) {
                Ref r = tensor_at(L, i);
                if (!r && lua_type(L, i) == LUA_TNUMBER && elementwise)
                        r = scalar(L, lua_tonumber(L, i));
                if (r) {
                        if (c.n_in == MAX_IN)
                                return luaL_error(L, "%s: more than %d inputs", op_info[c.op].text,
                                                  MAX_IN);
                        c.in[c.n_in++] = r;
                } else if (lua_type(L, i) == LUA_TTABLE) {
                        attr_table(L, i, &c);
                } else if (lua_type(L, i) == LUA_TNUMBER && first->count == 1 && !attr_done) {
                        set_field(L, i, c.op, first, 0, &c.attr);
                        attr_done = true;
                } else if (lua_type(L, i) == LUA_TSTRING && c.op == OP_CAST) {
                        c.type = c.n_in ? NODE(reader_of(L)->m->graph, c.in[0])->type : c.type;
                        c.type.dt = lua_dtype_at(L, i);
                        c.typed = true;
                } else {
                        return luaL_error(L, "%s: argument %d is a %s, but must be a tensor%s",
                                          op_info[c.op].text, i, luaL_typename(L, i),
                                          first->name ? ", a number or a table of attributes" : "");
                }
        }
        if (!c.typed && op_is(c.op, FACT_STATED))
                return luaL_error(L,
                                  c.op == OP_CAST ? "cast: say to which type"
                                                  : "%s: the new shape is missing",
                                  op_info[c.op].text);
        number_dropout(L, &c);
        return lua_make(L, &c);
}

/* Operators ------------------------------------------------------------------ */

static int unary(lua_State *L, Op op, Ref x)
{
        Call c = lua_call_of(op);
        c.in[c.n_in++] = x;
        return lua_make(L, &c);
}

static int with_number(lua_State *L, Op op, Ref x, double v)
{
        Call c = lua_call_of(op);
        c.in[c.n_in++] = x;
        c.attr.num.x = v;
        return lua_make(L, &c);
}

/* Two tensors: the op itself.  One number: an op with that number. */
static int arith(lua_State *L, Op op)
{
        Ref a = tensor_at(L, 1), b = tensor_at(L, 2);
        if (a && b) {
                Call c = lua_call_of(op);
                c.in[c.n_in++] = a;
                c.in[c.n_in++] = b;
                return lua_make(L, &c);
        }
        int other = a ? 2 : 1;
        if (lua_type(L, other) != LUA_TNUMBER)
                return luaL_error(L, "%s: one side is a tensor, the other a %s", op_info[op].text,
                                  luaL_typename(L, other));
        double v = lua_real_at(L, other, op, "the number");
        Ref x = a ? a : b;
        switch (op) {
        case OP_ADD: return with_number(L, OP_OFFSET, x, v);
        case OP_MUL: return with_number(L, OP_SCALE, x, v);
        case OP_SUB:
                if (a)
                        return with_number(L, OP_OFFSET, x, -v);
                unary(L, OP_NEG, x);
                return with_number(L, OP_OFFSET, tensor_at(L, -1), v);
        default:
                if (a && v == 0)
                        return luaL_error(L, "div: by zero");
                if (a)
                        return with_number(L, OP_SCALE, x, 1 / v);
                unary(L, OP_RECIP, x);
                return with_number(L, OP_SCALE, tensor_at(L, -1), v);
        }
}

static int meta_add(lua_State *L) { return arith(L, OP_ADD); }
static int meta_sub(lua_State *L) { return arith(L, OP_SUB); }
static int meta_mul(lua_State *L) { return arith(L, OP_MUL); }
static int meta_div(lua_State *L) { return arith(L, OP_DIV); }
static int meta_neg(lua_State *L) { return unary(L, OP_NEG, need_tensor(L, 1)); }

static int meta_pow(lua_State *L)
{
        static const struct {
                double x;
                Op op;
        } power[] = { { 2, OP_SQUARE }, { 0.5, OP_SQRT }, { -0.5, OP_RSQRT }, { -1, OP_RECIP } };
        Ref x = need_tensor(L, 1);
        double v = luaL_checknumber(L, 2);
        for (size_t i = 0; i < sizeof power / sizeof *power; i++)
                if (power[i].x == v)
                        return unary(L, power[i].op, x);
        return luaL_error(L, "a tensor can be raised to 2, 0.5, -0.5 or -1, not to %f", v);
}

/* Fields and methods ---------------------------------------------------------- */

static int as(lua_State *L)
{
        Reader *r = reader_of(L);
        Node *n = node_at(L, 1);
        const char *name = luaL_checkstring(L, 2);
        if (op_info[n->op].cls == CLASS_LEAF)
                return luaL_error(L, "'%s' is %s and keeps its name", n->name, op_info[n->op].text);
        give_back(&r->used, n->name);
        graph_rename(r->m->graph, (Ref)(n - r->m->graph->node),
                     arena_str(r->m->arena, free_name(L, full_name(L, plain(L, name)))));
        lua_settop(L, 1);
        return 1;
}

/* w:from(text, {rows = {b, e [, step]}, optional = bool}) */
static int from(lua_State *L)
{
        Reader *r = reader_of(L);
        Node *n = node_at(L, 1);
        const char *text = luaL_checkstring(L, 2);
        MapLine line = { .param = n->name, .step = 1 };
        if (n->op != OP_PARAM)
                return luaL_error(L, "from: '%s' is no parameter", n->name);
        if (!map_text_is_plain(text))
                return luaL_error(L, "from: a map is one line of text, in UTF-8");
        if (lua_istable(L, 3)) {
                lua_getfield(L, 3, "optional");
                line.optional = lua_toboolean(L, -1);
                if (lua_getfield(L, 3, "rows") == LUA_TTABLE) {
                        lua_rawgeti(L, -1, 1);
                        lua_rawgeti(L, -2, 2);
                        lua_rawgeti(L, -3, 3);
                        line.begin = luaL_checkinteger(L, -3);
                        line.end = luaL_checkinteger(L, -2);
                        line.step = luaL_optinteger(L, -1, 1);
                        if (!n->type.rank || line.begin < 0 || line.end <= line.begin ||
                            line.step < 1 || line.end > n->type.dim[0].n)
                                return luaL_error(L, "from: rows %I to %I do not lie in '%s'",
                                                  line.begin, line.end, n->name);
                }
        }
        line.rest = lua_pushfstring(L, line.optional ? "=? %s" : "= %s", text);
        if (r->m->n_map >= READ_MAX_MAP)
                return luaL_error(L, "from: the map has more than %d lines", READ_MAX_MAP);
        model_map(r->m, line);
        lua_settop(L, 1);
        return 1;
}

static int no_such_op(lua_State *L, const char *key)
{
        const char *all[N_OPS], *near;
        int n = 0;
        for (int op = 1; op < N_OPS; op++)
                if (op_is_public((Op)op) && *op_info[op].inputs)
                        all[n++] = op_info[op].text;
        near = nearest(key, all, n);
        return luaL_error(L, "unknown op '%s'%s%s%s", key, near ? "; did you mean '" : "",
                          near ? near : "", near ? "'?" : "");
}

static int tensor_index(lua_State *L)
{
        Node *n = node_at(L, 1);
        const char *key = luaL_checkstring(L, 2);
        if (lua_getfield(L, lua_upvalueindex(1), key) != LUA_TNIL)
                return 1;
        if (!strcmp(key, "shape")) {
                lua_createtable(L, n->type.rank, 0);
                for (int i = 0; i < n->type.rank; i++) {
                        lua_push_dim(L, n->type.dim[i]);
                        lua_rawseti(L, -2, i + 1);
                }
        } else if (!strcmp(key, "rank")) {
                lua_pushinteger(L, n->type.rank);
        } else if (!strcmp(key, "dtype")) {
                lua_pushstring(L, dt_name[n->type.dt]);
        } else if (!strcmp(key, "name")) {
                lua_pushstring(L, n->name);
        } else {
                return no_such_op(L, key);
        }
        return 1;
}

static int tensor_text(lua_State *L)
{
        Node *n = node_at(L, 1);
        char t[256];
        lua_pushfstring(L, "%%%s: %s", n->name, type_text(&n->type, t));
        return 1;
}

static int unknown_op(lua_State *L) { return no_such_op(L, luaL_tolstring(L, 2, NULL)); }

/* Registration ------------------------------------------------------------------- */

static const luaL_Reg tensor_meta[] = { { "__add", meta_add },         { "__sub", meta_sub },
                                        { "__mul", meta_mul },         { "__div", meta_div },
                                        { "__unm", meta_neg },         { "__pow", meta_pow },
                                        { "__tostring", tensor_text }, { NULL, NULL } };

void graph_open(lua_State *L)
{
        lua_dim_open(L);
        luaL_newmetatable(L, TENSOR);
        luaL_setfuncs(L, tensor_meta, 0);

        lua_newtable(L); /* all ops, for op.NAME and x:NAME */
        for (int op = 1; op < N_OPS; op++)
                if (op_is_public((Op)op) && (*op_info[op].inputs || !op_is((Op)op, FACT_STATED))) {
                        lua_pushinteger(L, op);
                        lua_pushcclosure(L, op_call, 1);
                        lua_setfield(L, -2, op_info[op].text);
                }
        lua_getfield(L, -1, "inv_tokens");
        lua_setglobal(L, "inv_tokens");
        lua_newtable(L);
        lua_pushcfunction(L, unknown_op);
        lua_setfield(L, -2, "__index");
        lua_setmetatable(L, -2);
        lua_pushvalue(L, -1);
        lua_setglobal(L, "op");

        lua_newtable(L); /* methods: the ops, as, from */
        for (int op = 1; op < N_OPS; op++) {
                lua_pushstring(L, op_info[op].text);
                lua_pushvalue(L, -1);
                if (lua_rawget(L, -4) == LUA_TNIL)
                        lua_pop(L, 2);
                else
                        lua_rawset(L, -3);
        }
        lua_pushcfunction(L, as);
        lua_setfield(L, -2, "as");
        lua_pushcfunction(L, from);
        lua_setfield(L, -2, "from");
        lua_pushcclosure(L, tensor_index, 1);
        lua_setfield(L, -3, "__index");
        lua_settop(L, 0);

        lua_leaf_open(L);
        lua_register(L, "scope_push", scope_push);
        lua_register(L, "scope_pop", scope_pop);
        lua_pushliteral(L, "");
        lua_rawsetp(L, LUA_REGISTRYINDEX, &scope_key);
}
