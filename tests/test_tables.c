/* test_tables.c: an index that can lie beyond its table is refused where the model is compiled. */
#include "e2e/infer/run.h"

#define SIZES "n_layer=1", "n_embd=16", "n_head=2", "vocab=20", "ctx=16"

typedef struct Case {
        const char *path;
        int mode, ctx, block;
        bool documents;
        const char *define; /* one more */
        int code;
        const char *says; /* NULL: it compiles */
} Case;

static void compile_cases(const Case *c, size_t n)
{
        static const int token = 3;
        for (size_t i = 0; i < n; i++, c++) {
                const char *define[8] = { SIZES, c->define };
                bool lua = !strstr(c->path, ".json");
                Plan p = { 0 };
                Err e = { 0 };
                BuildOptions o = { .kind = lua ? MODEL_LUA : MODEL_JSON,
                                   .model = c->path,
                                   .dtype = "f32",
                                   .define = define,
                                   .n_define = lua ? 5 + (c->define != NULL) : 0,
                                   .mode = c->mode,
                                   .batch = 1,
                                   .ctx = c->ctx,
                                   .block = c->block,
                                   .cpu = true,
                                   .documents = c->documents ? &token : NULL };
                int code = build_plan(&p, &o, &e);
                plan_close(&p);
                CHECK_MSG(code == c->code, "%zu: %d, not %d: %s", i, code, c->code, e.msg);
                CHECK_MSG(!c->says || strstr(e.msg, c->says), "%zu: no '%s' in: %s", i, c->says,
                          e.msg);
        }
}

#define COMPILE(...)                                                \
        do {                                                        \
                static const Case cases[] = { __VA_ARGS__ };        \
                compile_cases(cases, sizeof cases / sizeof *cases); \
        } while (0)

enum { BOTH = BUILD_INFER | BUILD_TRAIN };

TEST (positions_end_with_their_table) {
#define ROWS "models/gpt.lua:62: error: position table %wpe.weight has 16 rows, "
        COMPILE({ "models/gpt.lua", BOTH, 16, 16, false, NULL, 0, NULL },
                { "models/gpt.lua", BOTH, 8, 0, false, NULL, 0, NULL },
                { "models/gpt.lua", BOTH, 0, 0, true, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_INFER, 0, 99, false, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_TRAIN, 99, 16, false, NULL, 0, NULL },
                { "models/gpt.lua", BUILD_INFER, 17, 0, false, NULL, TGC_USAGE,
                  ROWS "--ctx-size 17 needs 17; compile with --ctx-size 16, or with -D ctx=17" },
                { "models/gpt.lua", BOTH, 0, 17, false, NULL, TGC_USAGE,
                  ROWS
                  "--block-size 17 needs 17; compile with --block-size 16, or with -D ctx=17" },
                { "models/gpt.lua", BUILD_TRAIN, 16, 32, true, NULL, TGC_USAGE,
                  ROWS "--block-size 32 needs 32" });
        COMPILE({ "models/naive_gpt.lua", BOTH, 17, 0, false, NULL, TGC_USAGE,
                  "--ctx-size 17 needs 17" },
                { "models/tinylm.lua", BOTH, 40, 90, false, NULL, 0,
                  NULL }); /* rotates them: any number */
}

#define OFFSET "tests/e2e/check/offset.lua"

/* Some models leave the first rows out, or give all that is far the last one. */
TEST (positions_may_be_moved_and_bounded) {
        COMPILE({ OFFSET, BOTH, 0, 0, false, NULL, 0, NULL },
                { OFFSET, BOTH, 0, 0, true, NULL, 0, NULL },
                { OFFSET, BOTH, 17, 0, false, NULL, TGC_USAGE,
                  "has 18 rows, --ctx-size 17 needs 19; compile with "
                  "--ctx-size 16, or give it more" },
                { OFFSET, BOTH, 99, 50, false, "bound=true", 0, NULL },
                { OFFSET, BOTH, 0, 0, false, "rows=17", TGC_BAD_FILE,
                  "the model's ctx of 16 needs 18" });
}

TEST (what_is_generated_is_a_row_of_tokens) {
        COMPILE({ OFFSET, BOTH, 0, 0, false, "tokens=25", 0, NULL },
                { OFFSET, BOTH, 0, 0, false, "tokens=19", TGC_BAD_FILE,
                  "offset.lua:15: error: table %wte.weight has 19 rows, and ids need 20: there "
                  "are 20 logits" });
}

#define INDEX "tests/e2e/check/index.lua"
#define HOW(how, code, says)                                     \
        {                                                        \
                INDEX, BOTH, 0, 0, false, "how=" how, code, says \
        }

/* Of an index that a graph computes both ends are known, or it is clamped. */
TEST (an_index_stays_within_its_table) {
        static const Case cases[] = {
                HOW("far", TGC_BAD_FILE,
                    "table %table has 20 rows, and the index %cast.2 runs from -1000000 to "
                    "-999981; bound it"),
                HOW("before", TGC_BAD_FILE,
                    "table %table has 20 rows, and the index %cast.2 runs from -1 to 18; bound it "
                    "by 0 and 19"),
                HOW("behind", TGC_BAD_FILE, "table %table has 20 rows, and ids need 21"),
                HOW("const", TGC_BAD_FILE,
                    "table %table has 20 rows, and the index %cast.2 runs from 0 to 20"),
                HOW("buckets", TGC_BAD_FILE,
                    "bucket sorts into 19 buckets, and the index %reshape.2 runs from 0 to 19"),
                HOW("perm", TGC_BAD_FILE,
                    "expert_matmul: %reshape.2 and %item must be the two results of one bucket"),
                HOW("other", TGC_BAD_FILE, "must be the two results of one bucket"),
                HOW("square", 0, NULL),
                HOW("float", 0, NULL),
                HOW("nan", 0, NULL),
                HOW("bounded", 0, NULL),
                HOW("same", 0, NULL),
                HOW("any", 0, NULL),
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const char *define[] = { cases[i].define };
                Plan p = { 0 };
                Err e = { 0 };
                BuildOptions o = { .kind = MODEL_LUA,
                                   .model = INDEX,
                                   .dtype = "f32",
                                   .define = define,
                                   .n_define = 1,
                                   .mode = BUILD_INFER | BUILD_TRAIN,
                                   .batch = 1,
                                   .cpu = true };
                int code = build_plan(&p, &o, &e);
                plan_close(&p);
                CHECK_MSG(code == cases[i].code, "%s: %d, not %d: %s", cases[i].define, code,
                          cases[i].code, e.msg);
                CHECK_MSG(!cases[i].says || strstr(e.msg, cases[i].says), "%s: no '%s' in: %s",
                          cases[i].define, cases[i].says, e.msg);
        }
}

/* ... and 16 bits round a bound up: 511 is 512 in bf16. */
TEST (a_bound_in_16_bits_is_none) {
        const char *define[] = { "how=bounded", "rows=512" };
        for (int i = 0; i < 2; i++) {
                Plan p = { 0 };
                Err e = { 0 };
                BuildOptions o = { .kind = MODEL_LUA,
                                   .model = INDEX,
                                   .dtype = i ? "bf16" : "f32",
                                   .define = define,
                                   .n_define = 2,
                                   .mode = BUILD_INFER,
                                   .batch = 1,
                                   .cpu = true };
                int code = build_plan(&p, &o, &e);
                const Section *ir = code ? NULL : plan_find(&p, "ir");
                CHECK_MSG(ir && (memmem(ir->data, ir->size, " = clamp ", 9) != NULL) == i, "%d: %s",
                          i, e.msg);
                plan_close(&p);
        }
}

TEST_MAIN
