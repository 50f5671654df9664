/* lua_sandbox.c: a Lua state for code that nobody has read.
 *
 * A model sees the language, `math` without random, `table` and `string` without
 * what can run long inside one C call (patterns, move), `pairs` in sorted order,
 * `require` for modules of models/ and files beside the model, and the graph.  It
 * has no io, os, debug, load, pcall, coroutines or metatables, so nothing can
 * catch the errors that its limits raise and nothing runs outside of them:
 *
 *      time            5 s of the thread's CPU time (ReadOptions.seconds)
 *      memory          256 MiB, Lua's and the graph's together (twice that for one allocation, then
 *                      at once)
 *      instructions    200 million
 *      one string      1 MiB
 *
 * The clock is read between instructions, before every 16th call, and while a file is parsed.
 * No C function may take long by itself: strings and memory are bounded, so one that walks
 * its arguments once is fine.  What walks a table by `#t` is not (a table of a few entries may
 * have a length of 2^40) and is written in Lua, where its instructions count.
 *
 * Nothing that a model can see differs between two runs: no addresses, no random pivots.  What it
 * prints is bounded text, handed over when it has been read (ReadOptions.said).
 *
 * Errors of C code (error_at) are caught before they cross Lua's frames, kept in
 * the Reader and thrown again when Lua has unwound.  lua_modules.c loads files into it. */
#include "read.h"
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
        MEMORY_SOFT = 256 << 20,
        MEMORY_HARD = 512 << 20,
        MAX_STEPS = 200000000,
        HOOK_STEPS = 200,
        HOOK_CALLS = 16,
        MAX_STRING = 1 << 20
};
static const double MAX_SECONDS = 5, LOOK_SECONDS = 0.02;

/* What Lua itself says best.  Its frames are passed over when a line is looked for. */
static const char prelude[] =
        "local next, type, error, select, floor = next, type, error, select, math.floor\n"
        "local push, pop = scope_push, scope_pop\n"
        "scope_push, scope_pop = nil, nil\n"
        "local function before(a, b)\n"
        "        local x, y = type(a), type(b)\n"
        "        if x ~= y then return x < y end\n"
        "        return a < b\nend\n"
        "local function is_table(t, what)\n"
        "        if type(t) ~= 'table' then error(what .. ': a table is wanted, here is a ' .. "
        "type(t), 3) end\n"
        "end\n"
        /* stable, n log n whatever the order */
        "local function sort(t, less)\n"
        "        is_table(t, 'sort')\n"
        "        less = less or function(a, b) return a < b end\n"
        "        local n, from, to, width = #t, t, {}, 1\n"
        "        while width < n do\n"
        "                for low = 1, n, 2 * width do\n"
        "                        local i, i_end, j_end = low, low + width, low + 2 * width\n"
        "                        if i_end > n + 1 then i_end = n + 1 end\n"
        "                        if j_end > n + 1 then j_end = n + 1 end\n"
        "                        local j = i_end\n"
        "                        for k = low, j_end - 1 do\n"
        "                                if i < i_end and (j >= j_end or not less(from[j], "
        "from[i])) then\n"
        "                                        to[k] = from[i] i = i + 1\n"
        "                                else\n"
        "                                        to[k] = from[j] j = j + 1\n"
        "                                end\n                        end\n                end\n"
        "                if from == t then from, to = to, {} else from, to = to, from end\n"
        "                width = 2 * width\n        end\n"
        "        if from ~= t then for k = 1, n do t[k] = from[k] end end\nend\n"
        "table.sort = function(t, less)\n"
        "        if less ~= nil and type(less) ~= 'function' then error('sort: the order is no "
        "function', 2) end\n"
        "        sort(t, less)\nend\n"
        "local function place(p, low, high, what)\n"
        "        local i = type(p) == 'number' and floor(p)\n"
        "        if not i or i ~= p or i < low or i > high then error(what .. ': the position is "
        "out of bounds', 3) end\n"
        "        return i\nend\n"
        "table.insert = function(t, ...)\n"
        "        is_table(t, 'insert')\n"
        "        local n, k = #t + 1, select('#', ...)\n"
        "        if k == 1 then t[n] = ... return end\n"
        "        if k ~= 2 then error('insert: two or three arguments are wanted', 2) end\n"
        "        local p, v = ...\n"
        "        p = place(p, 1, n, 'insert')\n"
        "        for i = n, p + 1, -1 do t[i] = t[i - 1] end\n"
        "        t[p] = v\nend\n"
        "table.remove = function(t, p)\n"
        "        is_table(t, 'remove')\n"
        "        local n = #t\n"
        "        if p == nil then p = n else p = place(p, n == 0 and 0 or 1, n + 1, 'remove') "
        "end\n"
        "        local v = t[p]\n"
        "        for i = p, n - 1 do t[i] = t[i + 1] end\n"
        "        if p <= n then t[n] = nil end\n"
        "        return v\nend\n"
        "function pairs(t)\n"
        "        local keys, i = {}, 0\n"
        "        for k in next, t do\n"
        "                if type(k) ~= 'string' and type(k) ~= 'number' then\n"
        "                        error('pairs: keys must be strings or numbers, here is a ' .. "
        "type(k), 2)\n"
        "                end\n"
        "                keys[#keys + 1] = k\n        end\n"
        "        sort(keys, before)\n"
        "        return function()\n"
        "                i = i + 1\n"
        "                if keys[i] ~= nil then return keys[i], t[keys[i]] end\n        end\nend\n"
        "local function leave(...) pop() return ... end\n"
        "function scope(name, f, ...)\n"
        "        push(name)\n"
        "        return leave(f(...))\nend\n";

Reader *reader_of(lua_State *L) { return *(Reader **)lua_getextraspace(L); }

/* Places --------------------------------------------------------------- */

/* The arena's copy of a file's name: Lua's dies with its state. */
static const char *file_name(Reader *r, const char *name)
{
        for (int i = 0; i < r->n_file; i++)
                if (!strcmp(r->file[i], name))
                        return r->file[i];
        name = arena_str(r->m->arena, name);
        if (r->n_file < (int)(sizeof r->file / sizeof *r->file))
                r->file[r->n_file++] = name;
        return name;
}

Loc sandbox_here(lua_State *L)
{
        Reader *r = reader_of(L);
        Loc block = { 0 };
        lua_Debug ar;
        for (int level = 0; lua_getstack(L, level, &ar); level++) {
                lua_getinfo(L, "Sl", &ar);
                if (ar.currentline < 1 || *ar.source != '@')
                        continue;
                Loc at = { file_name(r, ar.source + 1), ar.currentline, 0 };
                if (strcmp(ar.source, SANDBOX_BLOCKS))
                        return at;
                if (!block.line)
                        block = at;
        }
        return block;
}

/* Lua begins messages with its own "file:line: " of the frame that failed, which
 * may lie in blocks.lua and be cut short: that goes. */
static const char *without_place(lua_State *L, const char *msg)
{
        lua_Debug ar;
        char place[LUA_IDSIZE + 16];
        for (int level = 0; level < 4 && lua_getstack(L, level, &ar); level++) {
                lua_getinfo(L, "Sl", &ar);
                if (ar.currentline < 1)
                        continue;
                int n = snprintf(place, sizeof place, "%s:%d: ", ar.short_src, ar.currentline);
                if (!strncmp(msg, place, (size_t)n))
                        return msg + n;
        }
        return msg;
}

/* A message handler: runs where the error happened, before Lua unwinds. */
static int explain(lua_State *L)
{
        Reader *r = reader_of(L);
        if (r->msg[0])
                return 1;
        Loc loc = sandbox_here(L);
        const char *msg = lua_tostring(L, 1);
        r->code = 3;
        if (!loc.line) /* what is closed while an error unwinds has no caller */
                loc = r->last;
        if (!msg)
                msg = "the model raised an error that is not a string";
        else
                msg = without_place(L, msg);
        if (loc.line)
                snprintf(r->msg, sizeof r->msg, "%s:%d: error: %s", loc.file, loc.line, msg);
        else
                snprintf(r->msg, sizeof r->msg, "%s%serror: %s", r->path ? r->path : "",
                         r->path ? ": " : "", msg);
        return 1;
}

/* What a refused allocation means. */
const char *sandbox_no_memory(Reader *r)
{
        r->code = r->starved ? 5 : 3;
        if (r->starved)
                snprintf(r->why, sizeof r->why, "no memory to read the model: no %zu bytes for Lua",
                         r->starved);
        return r->starved       ? r->why
               : r->long_string ? "a string is longer than 1 MiB"
                                : "the model needs more than 256 MiB";
}

bool sandbox_call(Reader *r, int n_args, int n_results)
{
        int base = lua_gettop(r->L) - n_args, rc;
        lua_pushcfunction(r->L, explain);
        lua_insert(r->L, base);
        rc = lua_pcall(r->L, n_args, n_results, base);
        if (!rc) {
                lua_remove(r->L, base);
                return true;
        }
        if (!r->msg[0]) { /* the handler did not run, or had no room to */
                const char *file = r->last.file ? r->last.file : r->path ? r->path : "model";
                r->code = 3;
                snprintf(r->msg, sizeof r->msg, "%s:%d: error: %s", file,
                         r->last.line ? r->last.line : 1,
                         rc == LUA_ERRMEM ? sandbox_no_memory(r) : "calls are nested too deep");
        }
        return false;
}

/* Limits --------------------------------------------------------------- */

static void *allocate(void *ctx, void *p, size_t old, size_t size)
{
        Reader *r = ctx;
        if (!p) { /* old is then the kind of object */
                if (old == LUA_TSTRING && size > MAX_STRING + 64 && r->L && !r->own_string) {
                        r->last = sandbox_here(r->L);
                        r->long_string = true;
                        return NULL;
                }
                old = 0;
        }
        if (size == 0) {
                r->memory -= old;
                free(p);
                return NULL;
        }
        if (size > old && size - old > MEMORY_HARD - r->memory)
                return NULL;
        p = realloc(p, size);
        if (p)
                r->memory += size - old;
        else
                r->starved = size;
        return p;
}

static double now(clockid_t clock)
{
        struct timespec t;
        clock_gettime(clock, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double sandbox_seconds(const Reader *r) { return r->o->seconds ? r->o->seconds : MAX_SECONDS; }

/* CPU time cannot pass faster than time, which is cheaper to ask for. */
bool sandbox_is_late(Reader *r)
{
        double t;
        if (sandbox_seconds(r) < 0 || (t = now(CLOCK_MONOTONIC)) < r->next_look)
                return false;
        r->next_look = t + fmin(LOOK_SECONDS, sandbox_seconds(r) / 4);
        return now(CLOCK_THREAD_CPUTIME_ID) - r->began > sandbox_seconds(r);
}

static void check_memory(lua_State *L)
{
        Reader *r = reader_of(L);
        const size_t graph = arena_size(r->m->arena);
        if (r->memory + graph <= MEMORY_SOFT)
                return;
        if (graph <= MEMORY_SOFT)
                lua_gc(L, LUA_GCCOLLECT, 0);
        if (r->memory + graph > MEMORY_SOFT)
                luaL_error(L, "the model needs more than %d MiB", MEMORY_SOFT >> 20);
}

static void hook(lua_State *L, lua_Debug *ar)
{
        Reader *r = reader_of(L);
        if (ar->event == LUA_HOOKCOUNT) {
                r->last = sandbox_here(L);
                r->steps += HOOK_STEPS;
                if (r->steps > MAX_STEPS)
                        luaL_error(
                                L,
                                "the model runs for too long (more than %d million instructions)",
                                MAX_STEPS / 1000000);
        }
        const bool look = ar->event == LUA_HOOKCOUNT || ++r->calls % HOOK_CALLS == 0;
        if (look && sandbox_is_late(r))
                luaL_error(L, SANDBOX_TOO_LONG, sandbox_seconds(r));
        check_memory(L);
}

static int rep(lua_State *L)
{
        size_t n, n_sep;
        const char *s = luaL_checklstring(L, 1, &n), *sep = luaL_optlstring(L, 3, "", &n_sep);
        lua_Integer times = luaL_checkinteger(L, 2);
        luaL_Buffer b;
        if (times > 0 && (n + n_sep) && (lua_Unsigned)times > MAX_STRING / (n + n_sep))
                return luaL_error(L, "rep: the string would be longer than %d MiB",
                                  MAX_STRING >> 20);
        luaL_buffinit(L, &b);
        for (lua_Integer i = 0; i < times && n + n_sep; i++) {
                luaL_addlstring(&b, s, n);
                if (i + 1 < times)
                        luaL_addlstring(&b, sep, n_sep);
        }
        luaL_pushresult(&b);
        return 1;
}

/* Addresses: what tostring and %s would show of such a value, and %p of any. */
static bool has_address(lua_State *L, int i)
{
        int t = lua_type(L, i);
        if (t != LUA_TTABLE && t != LUA_TFUNCTION && t != LUA_TUSERDATA && t != LUA_TLIGHTUSERDATA)
                return false;
        if (luaL_getmetafield(L, i, "__tostring") == LUA_TNIL)
                return true;
        lua_pop(L, 1);
        return false;
}

static int to_string(lua_State *L)
{
        luaL_checkany(L, 1);
        if (has_address(L, 1))
                lua_pushstring(L, luaL_typename(L, 1));
        else
                luaL_tolstring(L, 1, NULL);
        return 1;
}

/* Text of print is kept until the model is read: whoever asked for it says where it goes. */
static void keep_said(Reader *r, const char *s, size_t n)
{
        size_t room = READ_MAX_SAID - r->n_said;
        r->said_more |= n > room;
        n = n < room ? n : room;
        memcpy(r->said + r->n_said, s, n);
        r->n_said += n;
}

static int print(lua_State *L)
{
        Reader *r = reader_of(L);
        int n = lua_gettop(L);
        if (!r->said && !(r->said = malloc(READ_MAX_SAID)))
                return luaL_error(L, "no memory for what is printed");
        for (int i = 1; i <= n; i++) {
                size_t k;
                const char *s = has_address(L, i) ? luaL_typename(L, i) : NULL;
                s = s ? lua_pushstring(L, s) : luaL_tolstring(L, i, NULL);
                s = lua_tolstring(L, -1, &k);
                keep_said(r, i > 1 ? "\t" : "", i > 1);
                keep_said(r, s, k);
                lua_pop(L, 1);
        }
        keep_said(r, "\n", 1);
        return 0;
}

/* string.format, the upvalue, without addresses. */
static int format(lua_State *L)
{
        const char *s = luaL_checkstring(L, 1);
        int n = lua_gettop(L);
        for (; *s; s++)
                if (*s == '%') {
                        s += 1 + strspn(s + 1, "-+ #0123456789.");
                        if (*s == 'p')
                                return luaL_error(L, "format: %%p is not known");
                        if (!*s)
                                break;
                }
        for (int i = 2; i <= n; i++)
                if (has_address(L, i)) {
                        lua_pushstring(L, luaL_typename(L, i));
                        lua_replace(L, i);
                }
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_insert(L, 1);
        lua_call(L, n, 1);
        return 1;
}

/* The state ------------------------------------------------------------- */

static int require(lua_State *L)
{
        sandbox_require(L, luaL_checkstring(L, 1));
        return 1;
}

static const struct {
        const char *lib, *field;
} forbidden[] = {
        { "_G", "collectgarbage" },
        { "_G", "dofile" },
        { "_G", "getmetatable" },
        { "_G", "load" },
        { "_G", "loadfile" },
        { "_G", "pcall" },
        { "_G", "rawequal" },
        { "_G", "rawget" },
        { "_G", "rawlen" },
        { "_G", "rawset" },
        { "_G", "setmetatable" },
        { "_G", "warn" },
        { "_G", "xpcall" },
        { "math", "random" },
        { "math", "randomseed" },
        /* prelude's own */
        { "table", "insert" },
        { "table", "move" },
        { "table", "remove" },
        { "table", "sort" },
        { "string", "dump" },
        { "string", "find" },
        { "string", "gmatch" },
        { "string", "gsub" },
        { "string", "match" },
        { "string", "pack" },
        { "string", "packsize" },
        { "string", "unpack" },
};

static int populate(lua_State *L)
{
        luaL_requiref(L, LUA_GNAME, luaopen_base, 1);
        luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 1);
        luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 1);
        luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 1);
        lua_settop(L, 0);
        for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
                lua_getglobal(L, forbidden[i].lib);
                lua_pushnil(L);
                lua_setfield(L, -2, forbidden[i].field);
                lua_pop(L, 1);
        }
        lua_getglobal(L, LUA_STRLIBNAME);
        lua_pushcfunction(L, rep);
        lua_setfield(L, -2, "rep");
        lua_getfield(L, -1, "format");
        lua_pushcclosure(L, format, 1);
        lua_setfield(L, -2, "format");
        lua_register(L, "tostring", to_string);
        lua_register(L, "print", print);
        luaL_newmetatable(L, "loaded"); /* modules are kept apart from Lua's own table */
        lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
        lua_register(L, "require", require);
        graph_open(L);
        sandbox_load(L, prelude, sizeof prelude - 1, "=prelude");
        lua_call(L, 0, 0);
        lua_pushnil(L);
        lua_setglobal(L, "next");
        lua_sethook(L, hook, LUA_MASKCALL | LUA_MASKCOUNT, HOOK_STEPS);
        return 0;
}

void sandbox_open(Reader *r)
{
        r->began = now(CLOCK_THREAD_CPUTIME_ID);
        r->L = lua_newstate(allocate, r);
        if (!r->L)
                error_code(5, (Loc) { r->path, 0, 0 }, "no memory for Lua (%zu bytes)", r->starved);
        *(Reader **)lua_getextraspace(r->L) = r;
        lua_pushcfunction(r->L, populate);
        sandbox_call(r, 0, 0);
}

void sandbox_again(Reader *r)
{
        r->began = now(CLOCK_THREAD_CPUTIME_ID);
        r->steps = 0;
}

void sandbox_close(Reader *r)
{
        if (r->L)
                lua_close(r->L);
        r->L = NULL;
}
