/* lua_modules.h: tgc's own modules in Lua are parsed once, not for every input: this takes half of
 * a configuration's time.  Stands in for lua_load (ld's --wrap); what an input holds goes through
 * the true one. */
#ifndef TGC_FUZZ_LUA_MODULES_H
#define TGC_FUZZ_LUA_MODULES_H

#ifdef FUZZ_ALONE
#include <lua.h>
#include "fuzz.h"
#include "../../compiler/compiler.h"

int __real_lua_load(lua_State *L, lua_Reader read, void *ctx, const char *chunk, const char *mode);
int __wrap_lua_load(lua_State *L, lua_Reader read, void *ctx, const char *chunk, const char *mode);

typedef struct Chunk {
        const char *text; /* where the library has it */
        char *code;
        size_t n, at;
} Chunk;

typedef struct Begun {
        lua_Reader read;
        void *ctx;
        const char *first;
        size_t n;
} Begun;

static int keep_code(lua_State *L, const void *code, size_t n, void *ctx)
{
        Chunk *c = ctx;
        (void)L;
        HOLDS(c->code = realloc(c->code, c->n + n));
        memcpy(c->code + c->n, code, n);
        c->n += n;
        return 0;
}

static const char *read_code(lua_State *L, void *ctx, size_t *n)
{
        Chunk *c = ctx;
        (void)L;
        *n = c->n - c->at;
        c->at = c->n;
        return *n ? c->code : NULL;
}

static const char *read_on(lua_State *L, void *ctx, size_t *n)
{
        Begun *b = ctx;
        const char *first = b->first;
        b->first = NULL;
        *n = b->n;
        return first ? first : b->read(L, b->ctx, n);
}

static bool is_ours(const char *text, const char *chunk)
{
        for (const ModelFile *f = model_files; f->name; f++)
                if (f->text == text)
                        return true;
        return !strcmp(chunk, "=prelude");
}

int __wrap_lua_load(lua_State *L, lua_Reader read, void *ctx, const char *chunk, const char *mode)
{
        static Chunk kept[128];
        Begun b = { .read = read, .ctx = ctx };
        int i = 0;

        b.first = read(L, ctx, &b.n);
        if (!b.first || !is_ours(b.first, chunk))
                return __real_lua_load(L, read_on, &b, chunk, mode);
        while (i < 128 && kept[i].text && kept[i].text != b.first)
                i++;
        HOLDS(i < 128);
        kept[i].at = 0;
        if (kept[i].text)
                return __real_lua_load(L, read_code, &kept[i], chunk, "b");
        const char *text = b.first;
        int rc = __real_lua_load(L, read_on, &b, chunk, mode);
        if (rc == LUA_OK && !lua_dump(L, keep_code, &kept[i], 0))
                kept[i].text = text;
        return rc;
}
#endif

#endif
