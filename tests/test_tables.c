/* test_tables.c: an index that can lie beyond its table is refused where the model is compiled. */
#include "e2e/infer/run.h"

#define SIZES "n_layer=1", "n_embd=16", "n_head=2", "vocab=20", "ctx=16"

typedef struct Case {
        const char *path;
        int         mode, ctx, block;
        bool        documents;
        const char *define;             /* one more */
        int         code;
        const char *says;               /* NULL: it compiles */
} Case;

static void compile_cases(const Case *c, size_t n)
{
        static const int token = 3;
        for (size_t i = 0; i < n; i++, c++) {
                const char *define[8] = { SIZES, c->define };
                bool lua = !strstr(c->path, ".json");
                Plan p = { 0 };
                Err e = { 0 };
                BuildOptions o = { .kind = lua ? MODEL_LUA : MODEL_JSON, .model = c->path, .dtype = "f32", .define = define,
                                   .n_define = lua ? 5 + (c->define != NULL) : 0, .mode = c->mode, .batch = 1, .ctx = c->ctx,
                                   .block = c->block, .cpu = true, .documents = c->documents ? &token : NULL };
                int code = build_plan(&p, &o, &e);
                plan_close(&p);
                CHECK_MSG(code == c->code, "%zu: %d, not %d: %s", i, code, c->code, e.msg);
                CHECK_MSG(!c->says || strstr(e.msg, c->says), "%zu: no '%s' in: %s", i, c->says, e.msg);
        }
}

#define COMPILE(...) do { \
        static const Case cases[] = { __VA_ARGS__ }; \
        compile_cases(cases, sizeof cases / sizeof *cases); \
} while (0)

enum { BOTH = BUILD_INFER | BUILD_TRAIN };

TEST(positions_end_with_their_table)
{
#define ROWS "models/gpt.lua:54: error: position table %wpe.weight has 16 rows, "
        COMPILE({ "models/gpt.lua", BOTH, 16, 16, false, NULL, 0, NULL },
                { "models/gpt.lua", BOTH, 8, 0, false, NULL, 0, NULL },
                { "models/gpt.lua", BOTH, 0, 0, true, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_INFER, 0, 99, false, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_TRAIN, 99, 16, false, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_INFER, 17, 0, false, NULL, TGC_USAGE,
                  ROWS "--ctx-size 17 needs 17; compile with --ctx-size 16, or with -D ctx=17" },
                { "models/gpt.lua", BOTH, 0, 17, false, NULL, TGC_USAGE,
                  ROWS "--block-size 17 needs 17; compile with --block-size 16, or with -D ctx=17" },
                { "models/gpt.lua", BUILD_TRAIN, 16, 32, true, NULL, TGC_USAGE, ROWS "--block-size 32 needs 32" });
        COMPILE({ "models/naive_gpt.lua", BOTH, 17, 0, false, NULL, TGC_USAGE, "--ctx-size 17 needs 17" },
                { "models/tinylm.lua", BOTH, 40, 90, false, NULL, 0, NULL });   /* rotates them: any number */
}

#define OFFSET "tests/e2e/check/offset.lua"

/* Some models leave the first rows out, or give all that is far the last one. */
TEST(positions_may_be_moved_and_bounded)
{
        COMPILE({ OFFSET, BOTH, 0, 0, false, NULL, 0, NULL },
                { OFFSET, BOTH, 0, 0, true, NULL, 0, NULL },
                { OFFSET, BOTH, 17, 0, false, NULL, TGC_USAGE, "has 18 rows, --ctx-size 17 needs 19; compile with "
                  "--ctx-size 16, or give it more" },
                { OFFSET, BOTH, 99, 50, false, "bound=true", 0, NULL },
                { OFFSET, BOTH, 0, 0, false, "rows=17", TGC_BAD_FILE, "the model's ctx of 16 needs 18" });
}

TEST(what_is_generated_is_a_row_of_tokens)
{
        COMPILE({ OFFSET, BOTH, 0, 0, false, "tokens=25", 0, NULL },
                { OFFSET, BOTH, 0, 0, false, "tokens=19", TGC_BAD_FILE,
                  "offset.lua:12: error: table %wte.weight has 19 rows, and ids need 20: there are 20 logits" });
}

TEST_MAIN
