/* lua_sandbox.c: a Lua state for code that nobody has read.
 *
 * A model sees the language, `math` without random, `table` and `string` without
 * what can run long inside one C call (patterns, move), `pairs` in sorted order,
 * `require` for modules of models/ and files beside the model, and the graph.  It
 * has no io, os, debug, load, pcall, coroutines or metatables, so nothing can
 * catch the errors that its limits raise and nothing runs outside of them:
 *
 *      memory          256 MiB (twice that for one allocation, then at once)
 *      instructions    200 million
 *      one string      16 MiB from string.rep
 *
 * Errors of C code (error_at) are caught before they cross Lua's frames, kept in
 * the Reader and thrown again when Lua has unwound. */
#include "read.h"
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        MEMORY_SOFT = 256 << 20, MEMORY_HARD = 512 << 20,
        MAX_STEPS = 200000000, HOOK_STEPS = 1000, MAX_REP = 16 << 20, LONG_STRING = 1 << 20
};

#define BLOCKS "@blocks.lua"

/* What Lua itself says best.  Its frames are passed over when a line is looked for. */
static const char prelude[] =
        "local next, type, sort, error = next, type, table.sort, error\n"
        "local push, pop = scope_push, scope_pop\n"
        "scope_push, scope_pop = nil, nil\n"
        "local function before(a, b)\n"
        "        local x, y = type(a), type(b)\n"
        "        if x ~= y then return x < y end\n"
        "        return a < b\n"
        "end\n"
        "function pairs(t)\n"
        "        local keys, i = {}, 0\n"
        "        for k in next, t do\n"
        "                if type(k) ~= 'string' and type(k) ~= 'number' then\n"
        "                        error('pairs: keys must be strings or numbers, here is a ' .. type(k), 2)\n"
        "                end\n"
        "                keys[#keys + 1] = k\n"
        "        end\n"
        "        sort(keys, before)\n"
        "        return function()\n"
        "                i = i + 1\n"
        "                if keys[i] ~= nil then return keys[i], t[keys[i]] end\n"
        "        end\n"
        "end\n"
        "local function leave(...) pop() return ... end\n"
        "function scope(name, f, ...)\n"
        "        push(name)\n"
        "        return leave(f(...))\n"
        "end\n";

Reader *reader_of(lua_State *L)
{
        return *(Reader **)lua_getextraspace(L);
}

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
                if (strcmp(ar.source, BLOCKS))
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
        if (!msg)
                msg = "the model raised an error that is not a string";
        else
                msg = without_place(L, msg);
        if (loc.line)
                snprintf(r->msg, sizeof r->msg, "%s:%d: error: %s", loc.file, loc.line, msg);
        else
                snprintf(r->msg, sizeof r->msg, "%s%serror: %s", r->path ? r->path : "", r->path ? ": " : "", msg);
        return 1;
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
        if (!r->msg[0]) {                               /* the handler did not run, or had no room to */
                const char *file = r->last.file ? r->last.file : r->path ? r->path : "model";
                r->code = rc == LUA_ERRMEM && r->starved ? 5 : 3;
                snprintf(r->msg, sizeof r->msg, "%s:%d: error: %s", file, r->last.line ? r->last.line : 1,
                         r->code == 5 ? "no memory to read the model"
                         : rc == LUA_ERRMEM ? "the model needs more than 256 MiB" : "calls are nested too deep");
        }
        return false;
}

/* Limits --------------------------------------------------------------- */

static void *allocate(void *ctx, void *p, size_t old, size_t size)
{
        Reader *r = ctx;
        if (!p) {                                       /* old is then the kind of object */
                if (old == LUA_TSTRING && size > LONG_STRING && r->L)
                        r->last = sandbox_here(r->L);   /* doubling takes few instructions: no hook may come */
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
                r->starved = true;
        return p;
}

static void hook(lua_State *L, lua_Debug *ar)
{
        Reader *r = reader_of(L);
        (void)ar;
        r->last = sandbox_here(L);
        r->steps += HOOK_STEPS;
        if (r->steps > MAX_STEPS)
                luaL_error(L, "the model runs for too long (more than %d million instructions)", MAX_STEPS / 1000000);
        if (r->memory > MEMORY_SOFT) {
                lua_gc(L, LUA_GCCOLLECT, 0);
                if (r->memory > MEMORY_SOFT)
                        luaL_error(L, "the model needs more than %d MiB", MEMORY_SOFT >> 20);
        }
}

static int rep(lua_State *L)
{
        size_t n, n_sep;
        const char *s = luaL_checklstring(L, 1, &n), *sep = luaL_optlstring(L, 3, "", &n_sep);
        lua_Integer times = luaL_checkinteger(L, 2);
        luaL_Buffer b;
        if (times > 0 && (n + n_sep) && (lua_Unsigned)times > MAX_REP / (n + n_sep))
                return luaL_error(L, "rep: the string would be longer than %d MiB", MAX_REP >> 20);
        luaL_buffinit(L, &b);
        for (lua_Integer i = 0; i < times && n + n_sep; i++) {
                luaL_addlstring(&b, s, n);
                if (i + 1 < times)
                        luaL_addlstring(&b, sep, n_sep);
        }
        luaL_pushresult(&b);
        return 1;
}

/* Modules -------------------------------------------------------------- */

void sandbox_load(lua_State *L, const char *text, size_t n, const char *chunk)
{
        Reader *r = reader_of(L);
        int rc = luaL_loadbufferx(L, text, n, chunk, "t");
        if (rc == LUA_OK)
                return;
        /* "short name:LINE: what": put the whole name in place of the short one */
        const char *msg = lua_tostring(L, -1), *line = msg, *what;
        while ((line = strchr(line, ':')) && strspn(line + 1, "0123456789") == 0)
                line++;
        what = line ? strstr(line + 1, ": ") : NULL;
        r->code = rc == LUA_ERRMEM && r->starved ? 5 : 3;
        if (what)
                snprintf(r->msg, sizeof r->msg, "%s%.*s: error: %s", chunk + 1, (int)(what - line), line, what + 2);
        else
                snprintf(r->msg, sizeof r->msg, "%s: error: %s", chunk + 1, msg);
        lua_error(L);
}

static const ModelFile *embedded(const char *file)
{
        for (const ModelFile *f = model_files; f->name; f++)
                if (!strcmp(f->name, file))
                        return f;
        return NULL;
}

/* Push the chunk of a file, if it exists. */
static bool load_file(lua_State *L, const char *path, const char *chunk)
{
        Reader *r = reader_of(L);
        FILE *f = fopen(path, "rb");
        Diag d;
        char *volatile text = NULL;
        size_t n;
        if (!f)
                return false;
        fclose(f);
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                text = read_text(path, READ_MAX_LUA, &n);
                diag_end(&d);
        } else {
                snprintf(r->msg, sizeof r->msg, "%s", d.msg);
                r->code = d.code;
                lua_error(L);
        }
        lua_pushlstring(L, text, n);                    /* Lua's own copy, so that no error leaks ours */
        free(text);
        text = NULL;
        const char *own = lua_tolstring(L, -1, &n);
        sandbox_load(L, own, n, chunk);
        lua_remove(L, -2);
        return true;
}

void sandbox_load_path(lua_State *L, const char *path)
{
        if (!load_file(L, path, lua_pushfstring(L, "@%s", path)))
                luaL_error(L, "cannot be opened");
}

/* Beside the model, in the folder of models, embedded. */
static bool load_module(lua_State *L, const char *module)
{
        Reader *r = reader_of(L);
        const char *slash = r->path ? strrchr(r->path, '/') : NULL;
        const char *file = lua_pushfstring(L, "%s.lua", module), *chunk = lua_pushfstring(L, "@%s", file), *path;
        const ModelFile *f;
        if (r->path) {
                if (slash)
                        lua_pushlstring(L, r->path, (size_t)(slash - r->path));
                else
                        lua_pushliteral(L, ".");
                path = lua_pushfstring(L, "%s/%s", lua_tostring(L, -1), file);
                /* the library's own blocks keep their short name wherever the library lies */
                if (load_file(L, path, strcmp(chunk, BLOCKS) ? lua_pushfstring(L, "@%s", path) : chunk))
                        return true;
        }
        if (r->o->models_dir && load_file(L, lua_pushfstring(L, "%s/%s", r->o->models_dir, file), chunk))
                return true;
        f = embedded(file);
        if (f)
                sandbox_load(L, f->text, f->n, chunk);
        return f != NULL;
}

bool sandbox_has(const Reader *r, const char *module)
{
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.lua", r->o->models_dir ? r->o->models_dir : "", module);
        if (r->o->models_dir && !access(path, R_OK))
                return true;
        return embedded(strrchr(path, '/') + 1);
}

void sandbox_require(lua_State *L, const char *module)
{
        int top = lua_gettop(L);
        if (!name_is_plain(module) || strpbrk(module, ".-"))
                luaL_error(L, "require: '%s' is not the name of a module", module);
        luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
        if (lua_getfield(L, -1, module) == LUA_TNIL) {
                lua_pushboolean(L, 1);                  /* a module that requires itself gets true */
                lua_setfield(L, top + 1, module);
                if (!load_module(L, module))
                        luaL_error(L, "require: no module '%s' beside the model or among tgc's models", module);
                lua_call(L, 0, 1);
                lua_pushvalue(L, -1);
                lua_setfield(L, top + 1, module);
        }
        lua_replace(L, top + 1);
        lua_settop(L, top + 1);
}

static int require(lua_State *L)
{
        sandbox_require(L, luaL_checkstring(L, 1));
        return 1;
}

/* The state ------------------------------------------------------------- */

static const struct { const char *lib, *field; } forbidden[] = {
        { "_G", "collectgarbage" }, { "_G", "dofile" }, { "_G", "getmetatable" }, { "_G", "load" },
        { "_G", "loadfile" }, { "_G", "pcall" }, { "_G", "print" }, { "_G", "rawequal" }, { "_G", "rawget" },
        { "_G", "rawlen" }, { "_G", "rawset" }, { "_G", "setmetatable" }, { "_G", "warn" }, { "_G", "xpcall" },
        { "math", "random" }, { "math", "randomseed" }, { "table", "move" },
        { "string", "dump" }, { "string", "find" }, { "string", "gmatch" }, { "string", "gsub" },
        { "string", "match" }, { "string", "pack" }, { "string", "packsize" }, { "string", "unpack" },
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
        luaL_newmetatable(L, "loaded");                 /* modules are kept apart from Lua's own table */
        lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
        lua_register(L, "require", require);
        graph_open(L);
        sandbox_load(L, prelude, sizeof prelude - 1, "=prelude");
        lua_call(L, 0, 0);
        lua_pushnil(L);
        lua_setglobal(L, "next");
        lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_STEPS);
        return 0;
}

void sandbox_open(Reader *r)
{
        r->L = lua_newstate(allocate, r);
        if (!r->L)
                error_code(5, (Loc){ r->path, 0, 0 }, "no memory for Lua");
        *(Reader **)lua_getextraspace(r->L) = r;
        lua_pushcfunction(r->L, populate);
        sandbox_call(r, 0, 0);
}

void sandbox_close(Reader *r)
{
        if (r->L)
                lua_close(r->L);
        r->L = NULL;
}
