/* lua_modules.c: loads files into a sandbox: the model, and the modules that it requires.
 *
 * A module lies beside the model, in the folder of models, or in this program.  The sandbox checks
 * its time limit while a text is parsed.  The Model keeps the text of every file. */
#include "read.h"
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"

/* Bytes parsed between two looks at the clock: the parser takes quadratic time. */
enum { READ_PIECE = 256 };

typedef struct Piece {
        const char *at, *chunk;
        size_t left;
} Piece;

static const char *next_piece(lua_State *L, void *ctx, size_t *n)
{
        Piece *p = ctx;
        const char *at = p->at;
        Reader *r = reader_of(L);
        if (sandbox_is_late(r)) {
                r->code = 3;
                snprintf(r->msg, sizeof r->msg, "%s: error: %s", p->chunk + 1,
                         lua_pushfstring(L, SANDBOX_TOO_LONG, sandbox_seconds(r)));
                lua_error(L);
        }
        *n = p->left < READ_PIECE ? p->left : READ_PIECE;
        p->at += *n;
        p->left -= *n;
        return *n ? at : NULL;
}

/* Pushes the chunk. */
void sandbox_load(lua_State *L, const char *text, size_t n, const char *chunk)
{
        Reader *r = reader_of(L);
        Piece p = { text, chunk, n };
        int rc = lua_load(L, next_piece, &p, chunk, "t");
        if (rc == LUA_OK)
                return;
        if (r->msg[0])
                lua_error(L);
        /* "short name:LINE: what": put the whole name in place of the short one */
        const char *msg = lua_tostring(L, -1), *line = msg, *what;
        while ((line = strchr(line, ':')) && strspn(line + 1, "0123456789") == 0)
                line++;
        what = line ? strstr(line + 1, ": ") : NULL;
        r->code = 3;
        if (rc == LUA_ERRMEM)
                snprintf(r->msg, sizeof r->msg, "%s: error: %s", chunk + 1, sandbox_no_memory(r));
        else if (what)
                snprintf(r->msg, sizeof r->msg, "%s%.*s: error: %s", chunk + 1, (int)(what - line),
                         line, what + 2);
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

/* The model's copy of a file that is about to be loaded. */
static void keep_source(Reader *r, const char *path, const char *text, size_t n)
{
        Model *m = r->m;
        char name[LOC_NAME];
        const ModelFile *f = embedded(loc_name((Loc) { path, 1, 0 }, name));
        const bool ours = f && f->n == n && !memcmp(f->text, text, n);
        char *own = ours ? NULL : arena_alloc(m->arena, n + 1);
        if (own)
                memcpy(own, text, n);
        m->source = arena_grow(m->arena, m->source, m->n_source, &m->cap_source, sizeof *m->source);
        m->source[m->n_source++] = (ModelSource) { arena_str(m->arena, name), ours ? f->text : own,
                                                   n, ours };
}

/* Push the chunk of a file, if it exists. */
static bool load_file(lua_State *L, const char *path, const char *chunk)
{
        Reader *r = reader_of(L);
        Diag d;
        char *volatile text = NULL;
        size_t n;
        if (!file_exists(path))
                return false;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                text = read_text(path, READ_MAX_LUA, &n);
                diag_end(&d);
        } else {
                snprintf(r->msg, sizeof r->msg, "%s", d.msg);
                r->code = d.code;
                lua_error(L);
        }
        r->own_string = true;
        lua_pushlstring(L, text, n); /* Lua's own copy, so that no error leaks ours */
        r->own_string = false;
        free(text);
        text = NULL;
        const char *own = lua_tolstring(L, -1, &n);
        keep_source(r, path, own, n);
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
        const char *file = lua_pushfstring(L, "%s.lua", module),
                   *chunk = lua_pushfstring(L, "@%s", file), *path;
        const ModelFile *f;
        if (r->path) {
                if (slash)
                        lua_pushlstring(L, r->path, (size_t)(slash - r->path));
                else
                        lua_pushliteral(L, ".");
                path = lua_pushfstring(L, "%s/%s", lua_tostring(L, -1), file);
                /* the library's own blocks keep their short name wherever the library lies */
                if (load_file(L, path,
                              strcmp(chunk, SANDBOX_BLOCKS) ? lua_pushfstring(L, "@%s", path)
                                                            : chunk))
                        return true;
        }
        if (r->o->models_dir &&
            load_file(L, lua_pushfstring(L, "%s/%s", r->o->models_dir, file), chunk))
                return true;
        f = embedded(file);
        if (f)
                keep_source(r, file, f->text, f->n);
        if (f)
                sandbox_load(L, f->text, f->n, chunk);
        return f != NULL;
}

bool sandbox_has(const Reader *r, const char *module)
{
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.lua", r->o->models_dir ? r->o->models_dir : "", module);
        if (r->o->models_dir && file_exists(path))
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
                lua_pushboolean(L, 1); /* a module that requires itself gets true */
                lua_setfield(L, top + 1, module);
                if (!load_module(L, module))
                        luaL_error(L,
                                   "require: no module '%s' beside the model or among tgc's models",
                                   module);
                lua_call(L, 0, 1);
                lua_pushvalue(L, -1);
                lua_setfield(L, top + 1, module);
        }
        lua_replace(L, top + 1);
        lua_settop(L, top + 1);
}
