/* test_tune.c: tiles that were measured: the text of choices, what the compiler makes of it, `tgc
 * tune`. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "cli/load/open.h"
#include "runtime/util/file.h"
#include "child.h"
#include "test.h"

/* ---- plans in memory ---- */

#define UP "bf16:32768x3072x768:nt:add+gelu_tanh+gelu_tanh_slope:4"
#define DW "bf16:2304x768x32768:tn:accum:2:sums"
#define ONE "bf16:<=64x64x64:nt:store:4"
#define HEAD "tgc-choices 1\ngpu Some GPU\n"

static Err err;

static int build(Plan *p, const char *model, int mode, const char *dtype, int batch, int block,
                 const char *choices)
{
        static const char *define[] = { "n_layer=2" };
        BuildOptions o = { .kind = MODEL_LUA,
                           .model = model,
                           .dtype = dtype,
                           .define = define,
                           .n_define = 1,
                           .mode = mode,
                           .opt = 3,
                           .batch = batch,
                           .block = block,
                           .cuda = true,
                           .cpu = true,
                           .choices = choices,
                           .choices_name = "c.txt" };
        *p = (Plan) { 0 };
        return build_plan(p, &o, &err);
}

/* GPT-2's products at a size where every kind of tile promises something. */
static int gpt(Plan *p, const char *choices)
{
        return build(p, "gpt", BUILD_TRAIN, "bf16", 32, 1024, choices);
}

static const char *text_of(const Plan *p, const char *section)
{
        static char text[1 << 20];
        const Section *s = plan_find(p, section);
        snprintf(text, sizeof text, "%.*s", s ? (int)s->size : 0, s ? (const char *)s->data : "");
        return text;
}

/* What stands behind `product KEY has`, up to the end of the line. */
static const char *has(const Plan *p, const char *key)
{
        static char line[1024];
        char head[256];
        snprintf(head, sizeof head, "product %s has ", key);
        const char *at = strstr(text_of(p, "products"), head);
        snprintf(line, sizeof line, "%.*s", at ? (int)strcspn(at, "\n") - (int)strlen(head) : 0,
                 at ? at + strlen(head) : "");
        return line;
}

static void same_plans(const Plan *a, const Plan *b, const char *what)
{
        CHECK_MSG(a->n_sections == b->n_sections, "%s: %d sections, %d", what, a->n_sections,
                  b->n_sections);
        for (int i = 0; i < a->n_sections; i++) {
                const Section *x = &a->section[i], *y = plan_find(b, x->name);
                CHECK_MSG(y && x->size == y->size && !memcmp(x->data, y->data, x->size),
                          "%s: %s differs", what, x->name);
        }
}

/* A plan holds all that compiling it once more needs. */
TEST (a_plan_is_compiled_again_to_the_same_bytes) {
        static const struct {
                const char *model, *dtype;
                int mode, batch, block;
        } all[] = {
                { "gpt", "bf16", BUILD_TRAIN, 32, 1024 },
                { "llama", "f16", BUILD_INFER, 4, 0 },
                { "naive_gpt", "f32", BUILD_TRAIN | BUILD_INFER, 0, 24 },
                { "moe", "bf16", BUILD_TRAIN | BUILD_INFER, 2, 64 },
                { "gemma2", "bf16", BUILD_INFER, 0, 0 },
                { "tinylm", "f32", BUILD_TRAIN, 3, 17 },
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                Plan a, b = { 0 };
                CHECK_MSG(!build(&a, all[i].model, all[i].mode, all[i].dtype, all[i].batch,
                                 all[i].block, NULL),
                          "%s", err.msg);
                CHECK_MSG(!plan_again(&b, &a, NULL, &err), "%s: %s", all[i].model, err.msg);
                same_plans(&a, &b, all[i].model);
                plan_close(&b);
                plan_close(&a);
        }
}

/* What is neither type nor size: tf32's products, documents. */
TEST (so_is_one_with_other_products_or_documents) {
        for (int i = 0; i < 4; i++) {
                const bool tf32 = i & 1, documents = i & 2;
                Plan a = { 0 }, b = { 0 };
                BuildOptions o = { .kind = MODEL_LUA,
                                   .model = "gpt",
                                   .dtype = "f32",
                                   .mode = BUILD_TRAIN,
                                   .opt = 3,
                                   .batch = 2,
                                   .block = 64,
                                   .cuda = true,
                                   .cpu = true,
                                   .tf32 = tf32,
                                   .documents = documents ? &(int) { 7 } : NULL };
                CHECK_MSG(!build_plan(&a, &o, &err) && !plan_again(&b, &a, NULL, &err), "%s",
                          err.msg);
                same_plans(&a, &b, tf32 ? "tf32" : "float32");
                CHECK(tf32 == !!strstr(text_of(&b, "source.cuda"), "#define TGC_TF32 1"));
                CHECK(tf32 == !!strstr(text_of(&b, "manifest"), "\ntf32 1\n"));
                CHECK(documents == !!strstr(text_of(&b, "manifest"), "\ndocuments 7\n"));
                CHECK(documents == !!strstr(text_of(&b, "source.cuda"), "DOCUMENTS = true"));
                CHECK(!strstr(text_of(&b, "source.c"), "TGC_TF32"));
                plan_close(&b);
                plan_close(&a);
        }
}

/* ---- choices ---- */

TEST (a_choice_is_obeyed) {
        static const struct {
                const char *line, *key, *now, *source;
        } all[] = {
                { "choose " UP " S256x128/1\n", UP, "W128x128x64/1 S256x128/1 or",
                  "S256x128, false, true>" },
                { "choose " UP " W64x128x64/1\n", UP, "W64x128x64/1 or",
                  "bf16, W64x128x64, false, true, 16>" },
                { "choose " DW " S256x128/4\n", DW, "W128x128x64/2 S256x128/4 or", NULL },
                { "choose " DW " S256x128/1\n", DW, "W128x128x64/2 S256x128/1 or", NULL },
                { "choose " DW " W128x128x64/5\n", DW, "W128x128x64/5 or", NULL },
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                Plan p, again = { 0 };
                char text[512];
                snprintf(text, sizeof text, HEAD "# for people\n\n%s", all[i].line);
                CHECK_MSG(!gpt(&p, text), "%s: %s", all[i].line, err.msg);
                CHECK_MSG(!strncmp(has(&p, all[i].key), all[i].now, strlen(all[i].now)),
                          "%s: it has %s", all[i].line, has(&p, all[i].key));
                snprintf(text, sizeof text, HEAD "%s", all[i].line);
                CHECK_MSG(!strcmp(text_of(&p, "choices"), text), "%s: the plan says %s",
                          all[i].line, text_of(&p, "choices"));
                CHECK_MSG(!all[i].source || strstr(text_of(&p, "source.cuda"), all[i].source),
                          "%s: no %s in the source", all[i].line, all[i].source);
                /* from its own section the plan comes again, and without it the model's choice */
                CHECK_MSG(!plan_again(&again, &p, text, &err), "%s", err.msg);
                same_plans(&p, &again, all[i].line);
                plan_close(&again);
                plan_close(&p);
        }
}

/* With another tile for one product the kernels of all others stay as they are. */
TEST (a_choice_changes_one_product) {
        Plan a, b;
        char before[4096], after[4096];
        static const char *const other[] = { "bf16:32768x2304x768:nt:add:2",
                                             "bf16:32768x768x3072:nt:add+add:4" };
        CHECK(!gpt(&a, NULL) && !gpt(&b, HEAD "choose " UP " S256x128/1\n"));
        for (int i = 0; i < 2; i++) {
                snprintf(before, sizeof before, "%s", has(&a, other[i]));
                snprintf(after, sizeof after, "%s", has(&b, other[i]));
                CHECK_MSG(*before && !strcmp(before, after), "%s: %s became %s", other[i], before,
                          after);
        }
        CHECK(!plan_find(&a, "choices"));
        CHECK(!strstr(text_of(&a, "source.cuda"), "S256x128") &&
              strstr(text_of(&b, "source.cuda"), "S256x128"));
        plan_close(&a);
        plan_close(&b);
}

/* The order of lines and what is of other models leave no trace. */
TEST (equal_choices_make_equal_plans) {
        Plan a, b;
        CHECK(!gpt(&a, HEAD "choose " UP " S256x128/1\nchoose " DW " S256x128/4\n"));
        CHECK(!gpt(&b, HEAD "choose " DW " S256x128/4\r\nchoose bf16:1x2x3:nn:store:2 W64x64x64/1\n"
                            "  choose " UP " S256x128/1"));
        same_plans(&a, &b, "choices in another order");
        plan_close(&a);
        plan_close(&b);
}

TEST (choices_that_cannot_be) {
        static const struct {
                const char *text;
                int code;
                const char *says;
        } all[] = {
                { "", TGC_BAD_FILE, "c.txt:1: error: not a text of choices" },
                { "choose a b/1\n", TGC_BAD_FILE, "c.txt:1: error: not a text of choices" },
                { HEAD "chose a b/1\n", TGC_BAD_FILE,
                  "c.txt:3: error: 'chose' is neither gpu nor choose" },
                { HEAD "choose " UP "\n", TGC_BAD_FILE,
                  "c.txt:3: error: a line is: choose KEY TILE/PARTS" },
                { HEAD "choose " UP " S256x128\n", TGC_BAD_FILE, "a line is" },
                { HEAD "choose " UP " S256x128/\n", TGC_BAD_FILE, "a line is" },
                { HEAD "choose " UP " S256x128/0\n", TGC_BAD_FILE, "a line is" },
                { HEAD "choose " UP " S256x128/1x\n", TGC_BAD_FILE, "a line is" },
                { HEAD "choose " UP " S256x128/1 2\n", TGC_BAD_FILE, "a line is" },
                { HEAD "choose " UP " S256x129/1\n", TGC_BAD_FILE, "no tile is called S256x129" },
                { HEAD "choose " UP " S256x128/1\nchoose " UP " S128x256/1\n", TGC_BAD_FILE,
                  "in line 3" },
                { HEAD "choose " UP " S256x128/2\n", TGC_BAD_FILE,
                  "cannot take S256x128/2; it can take S128x192t/1" },
                { HEAD "choose " UP " F64x64x16/1\n", TGC_BAD_FILE, "cannot take F64x64x16/1" },
                /* 192 KB */
                { HEAD "choose " UP " W128x256x64/1\n", TGC_BAD_FILE, "cannot take W128x256x64/1" },
                { HEAD "choose " DW " S128x256/17\n", TGC_BAD_FILE, "cannot take S128x256/17" },
                { HEAD "choose bf16:1x2x3:nn:store:2 W64x64x64/1\n", TGC_USAGE,
                  "none of its 1 choices" },
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                Plan p;
                int code = gpt(&p, all[i].text);
                CHECK_MSG(code == all[i].code, "%s: %d, not %d", all[i].text, code, all[i].code);
                CHECK_MSG(strstr(err.msg, all[i].says), "%s: no '%s' in: %s", all[i].text,
                          all[i].says, err.msg);
                plan_close(&p);
        }
}

/* A plan of before has no section products, or one of another program. */
TEST (a_plan_that_does_not_say_how_it_was_compiled) {
        Plan p, again = { 0 };
        CHECK(!gpt(&p, NULL));
        CHECK(!plan_add(&p, "products", "tgc-products 2\n", 15, &err));
        CHECK(plan_again(&again, &p, NULL, &err) == TGC_BAD_FILE &&
              strstr(err.msg, "compile the model again"));
        plan_remove(&p, "products");
        CHECK(plan_again(&again, &p, NULL, &err) == TGC_BAD_FILE &&
              strstr(err.msg, "compile the model again"));
        plan_close(&again);
        plan_close(&p);
}

/* ---- the command ---- */

static char dir[256], out[1 << 16], talk[1 << 14];

static const char *scratch(const char *name)
{
        static char path[4][512];
        static int k;
        if (!*dir) {
                snprintf(dir, sizeof dir, "%s/tgc-test-tune-XXXXXX",
                         getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
                CHECK(mkdtemp(dir));
                setenv("TGC_CACHE_DIR", scratch("cache"), 1);
        }
        k = (k + 1) % 4;
        snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
        return path[k];
}

/* Words are separated by blanks; @ stands for the scratch folder.  stop_after: milliseconds, then
 * SIGINT; 0: never. */
static int tgc(const char *line, int stop_after)
{
        char words[4096] = "", *argv[64] = { "tgc" };
        int argc = 1;
        scratch("");
        for (const char *s = line; *s; s++)
                snprintf(words + strlen(words), sizeof words - strlen(words),
                         *s == '@' ? "%s" : "%.1s", *s == '@' ? dir : s);
        for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
                argv[argc++] = w;
        pid_t pid = child_begin(argc, argv, "/dev/null", scratch("out"), scratch("err"));
        if (stop_after) {
                usleep((useconds_t)stop_after * 1000);
                kill(pid, SIGINT);
        }
        int code = child_end(pid);
        child_read(scratch("out"), out, sizeof out);
        child_read(scratch("err"), talk, sizeof talk);
        return code;
}

#define EXPECT(line, want, says)                                                                  \
        do {                                                                                      \
                int code_ = tgc(line, 0);                                                         \
                CHECK_MSG(code_ == (want), "tgc %s: exit code %d, not %d: %s", line, code_, want, \
                          talk);                                                                  \
                CHECK_MSG(strstr(talk, says), "tgc %s: no '%s' in: %s", line, says, talk);        \
        } while (0)

/* One product in score, and one a layer in nothing else: as little to compile as can be. */
static void write_model(void)
{
        static const char text[] =
                "local b = require \"blocks\"\n"
                "return { name = \"one\", params = { ctx = 64 }, graph = function(p)\n"
                "        local ids = b.inputs()\n"
                "        local x = b.embedding(ids, \"wte\", 64, 64, { std = 0.02 })\n"
                "        return { logits = b.linear(x, \"logits\", 64, { std = 0.02 }) }\n"
                "end }\n";
        CHECK_MSG(!file_write_atomic(scratch("one.lua"), text, sizeof text - 1, &err), "%s",
                  err.msg);
}

TEST (tuned_plans_on_the_command_line) {
        static const char choices[] = HEAD "choose " UP " S256x128/1\n";
#define GPT "compile gpt -D n_layer=1 --dtype bf16 --mode train -b 32 --block-size 1024 -q -o @/"
        CHECK(!file_write_atomic(scratch("c.txt"), choices, sizeof choices - 1, &err));
        EXPECT(GPT "plain.plan", 0, "");
        EXPECT(GPT "a.plan --tuned @/c.txt", 0, "");
        EXPECT(GPT "b.plan --tuned @/a.plan", 0, "");
        snprintf(out, sizeof out, "cmp -s %s %s", scratch("a.plan"), scratch("b.plan"));
        CHECK(system(out) == 0);
        snprintf(out, sizeof out, "cmp -s %s %s", scratch("a.plan"), scratch("plain.plan"));
        CHECK(WEXITSTATUS(system(out)) == 1);
        CHECK(!tgc("dump @/a.plan --choices", 0) && !strcmp(out, choices));
        CHECK(!tgc("info @/a.plan", 0) && strstr(out, "tuned      1 product, on Some GPU\n"));
        CHECK(!tgc("info @/plain.plan", 0) && !strstr(out, "tuned"));
        EXPECT("dump @/plain.plan --choices", TGC_BAD_FILE,
               "no tiles were chosen for this plan; `tgc tune`");
        EXPECT("info gpt --tuned @/plain.plan", TGC_BAD_FILE,
               "`tgc tune` chose no tiles in this plan");
        EXPECT("info gpt --tuned @/none.txt", TGC_IO, "none.txt");
        EXPECT("info gpt --tuned @/c.txt", TGC_USAGE,
               "none of its 1 choices fits a GEMM of this model");
        EXPECT("info @/plain.plan --tuned @/c.txt", TGC_USAGE,
               "give --tuned with the model that it was made of");
}

TEST (tune_refuses) {
        write_model();
        EXPECT("compile @/one.lua --mode infer --dtype bf16 -o @/one.plan -q", 0, "");
        EXPECT("tune @/one.lua --device emulate", TGC_USAGE, "tgc tune ");
        EXPECT("tune @/one.plan --device cpu", TGC_USAGE, "no tiles");
        EXPECT("tune @/one.plan --device emulate --dtype f16", TGC_USAGE, "is compiled already");
        EXPECT("tune @/nothing.plan", TGC_IO, "no such file");
        EXPECT("tune @/one.plan --tuned @/c.txt", TGC_USAGE, "--tuned");
        if (dev_open(&(Device *) { NULL }, DEV_CUDA, NULL, &err))
                EXPECT("tune @/one.plan", TGC_NO_DEVICE, "`tgc doctor` tells what is missing");
}

/* Times of an emulator say nothing, so what is chosen here may be anything; what is written must be
 * a plan that holds what it says. */
TEST (tune_on_the_emulator) {
        static char plain[sizeof out];
        char compiler[256];
        write_model();
        if (host_cc_describe(compiler, sizeof compiler, 1, &err))
                SKIP("no C++ compiler");
        EXPECT("compile @/one.lua --mode infer --dtype bf16 -o @/one.plan -q", 0, "");
        EXPECT("run @/one.plan --prompt-ids 1,2,3 --temp 0 -s 1 -n 8 --print-ids --device cpu -q",
               0, "");
        memcpy(plain, out, sizeof out);
        struct stat before, after;
        CHECK(!stat(scratch("one.plan"), &before));
        /* leaves the plan as it was */
        CHECK(tgc("tune @/one.plan --device emulate -r 2", 300) == 130);
        CHECK(!stat(scratch("one.plan"), &after) && before.st_ino == after.st_ino);
        static const char tuned[] = HEAD "choose " ONE " W64x64x64/1\n"; /* is forgotten */
        CHECK(!file_write_atomic(scratch("c.txt"), tuned, sizeof tuned - 1, &err));
        EXPECT("compile @/one.lua --mode infer --dtype bf16 -o @/two.plan -q --tuned @/c.txt", 0,
               "");
        EXPECT("tune @/two.plan --device emulate -r 2 --json", 0, "two.plan: "); /* in place */
        cJSON *o = cJSON_Parse(out), *list = cJSON_GetObjectItem(o, "products"),
              *x = cJSON_GetArrayItem(list, 0);
        CHECK_MSG(cJSON_GetArraySize(list) == 1 && x, "%s", out);
        CHECK(!strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(x, "product")), ONE));
        CHECK(!strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(x, "model")), "H16x64x64/1"));
        CHECK(cJSON_GetNumberValue(cJSON_GetObjectItem(x, "model_us")) > 0);
        CHECK(cJSON_GetArraySize(cJSON_GetObjectItem(x, "tried_us")) >= 4);
        bool chosen = strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(x, "model")),
                             cJSON_GetStringValue(cJSON_GetObjectItem(x, "best")));
        cJSON_Delete(o);
        CHECK(tgc("dump @/two.plan --choices", 0) == (chosen ? 0 : TGC_BAD_FILE));
        CHECK(!chosen || strstr(out, "\ngpu emulated GPU\nchoose " ONE " "));
        EXPECT("run @/two.plan --prompt-ids 1,2,3 --temp 0 -s 1 -n 8 --print-ids --device cpu -q",
               0, "");
        CHECK_MSG(!strcmp(plain, out), "%s is not %s", out, plain);
}

TEST (zz_clean_up) {
        char line[300];
        snprintf(line, sizeof line, "rm -rf '%s'", dir);
        CHECK(!*dir || system(line) == 0);
}

TEST_MAIN
