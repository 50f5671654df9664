/* read.h: private to compiler/read.  Functions are grouped by the file that defines them. */
#ifndef TGC_READ_H
#define TGC_READ_H

#include <lua.h>
#include "../compiler.h"

/* Limits on models, which may come from strangers. */
enum {
        READ_MAX_NODES = 1 << 20,
        READ_MAX_PARAMS = 1 << 14,
        READ_MAX_MAP = 1 << 17,   /* lines of the weight map */
        READ_MAX_KEYS = 1 << 12,  /* of a table that the reader sorts */
        READ_MAX_CONST = 1 << 24, /* numbers in all constants together */
        READ_MAX_TEXT = 64 << 20, /* bytes of a JSON graph */
        READ_MAX_LUA = 4 << 20,   /* bytes of a Lua file */
        READ_MAX_SAID = 64 << 10  /* bytes that a model prints */
};

/* ---- check.c ---- */

/* Ops a model may use: not those that passes and the runtime make. */
bool op_is_public(Op op);
/* Every product of dimensions of t stays far below 2^63. */
bool type_is_sane(const Type *t);
/* Graph-building with all checks that the graph itself leaves to its callers. */
Ref read_node(Graph *g, Op op, const Type *stated, const Ref *in, int n_in, const Attr *a, Loc loc,
              const char *name);
void attr_default(Op op, Attr *a); /* clears, then sets every field's default */
/* Letters, digits, _ . - only: names stand in text forms and C comments. */
bool name_is_plain(const char *s);
bool map_text_is_plain(const char *s); /* one line of UTF-8, printable */
/* The candidate nearest to `word` in edits, or NULL if none is near. */
const char *nearest(const char *word, const char *const *candidate, int n);

/* Strings to numbers; a new key starts at 0.  Lives in its arena. */
typedef struct Names {
        Arena *a;
        struct NameSlot *slot;
        unsigned n, cap;
} Names;
int *names_at(Names *t, const char *key);

/* The whole file, at most `most` bytes; caller frees.  error_at if it cannot be read. */
char *read_text(const char *path, size_t most, size_t *n);

/* ---- json.c ---- */

void json_put_string(Text *out, const char *s);

/* ---- lua_sandbox.c ---- */

typedef struct Reader {
        lua_State *L;
        Model *m;
        const ReadOptions *o;
        const char *path;           /* the user's file; NULL for a family */
        const char *family;         /* may be NULL */
        const struct cJSON *config; /* of a family; NULL for a file */
        const char *config_text;
        size_t memory, n_const;
        int n_params;
        int64_t steps;
        unsigned calls;
        /* CPU time of the thread when it began; when to ask for it again */
        double began, next_look;
        Loc last;             /* where the code was a moment ago, for memory errors */
        Names used;           /* names given to nodes: highest suffix handed out */
        const char *file[64]; /* names of source files, in the model's arena */
        int n_file;
        char msg[2048]; /* the error that is unwinding, "" if none */
        int code;
        size_t starved; /* bytes that the machine did not have: not the model's fault */
        char why[96];   /* that as a text */
        char *said;     /* what print said, at most READ_MAX_SAID bytes; malloc'd */
        size_t n_said;
        bool said_more;               /* there was more, which is gone */
        bool long_string, own_string; /* one was refused; the one being made is ours */
} Reader;

Reader *reader_of(lua_State *L);
void sandbox_open(Reader *r); /* a Lua state with the globals a model may use */
void sandbox_close(Reader *r);
void sandbox_again(Reader *r); /* its time begins anew */
/* innermost line of the user's; of the blocks if there is none */
Loc sandbox_here(lua_State *L);
/* Call what lies under n_args arguments.  False: r->msg and r->code say why. */
bool sandbox_call(Reader *r, int n_args, int n_results);
double sandbox_seconds(const Reader *r); /* that a model may take */
bool sandbox_is_late(Reader *r);
#define SANDBOX_TOO_LONG \
        "the model runs for too long (more than %f seconds; --lua-timeout allows more)"
const char *sandbox_no_memory(Reader *r); /* what a refused allocation means */

/* ---- lua_modules.c ---- */

#define SANDBOX_BLOCKS "@blocks.lua" /* the chunk of the blocks, whose lines are nobody's */
/* They push the chunk. */
void sandbox_load(lua_State *L, const char *text, size_t n, const char *chunk);
void sandbox_load_path(lua_State *L, const char *path);
/* in the folder of models, or embedded */
bool sandbox_has(const Reader *r, const char *module);
void sandbox_require(lua_State *L, const char *module); /* pushes its value */

/* ---- lua.c, for gguf.c too ---- */

/* All keys of the table at i, sorted; lives in the model's arena. */
const char **keys_of(lua_State *L, int i, int *n);
void push_json(lua_State *L, const struct cJSON *j); /* null as a light userdata */
/* ---- lua.c, for objective.c too ---- */

void push_file(lua_State *L);               /* what the user's file returns, or the embedded one */
void push_params(lua_State *L, int module); /* defaults, then config.json, then -D */

/* ---- lua_graph.c ---- */

void graph_open(lua_State *L);        /* tensors, dimensions, ops */
Ref tensor_at(lua_State *L, int i);   /* 0 if it is none */
void graph_push(lua_State *L, Ref r); /* as a tensor */

#endif
