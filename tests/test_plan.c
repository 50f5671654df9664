/* test_plan.c: the container, packs, program text and manifest: round trips, and
 * refusal of everything that was damaged or made to harm. */
#include <stdlib.h>
#include <unistd.h>
#include "../runtime/weights/ck_tensor.h"
#include "../runtime/util/file.h"
#include "../runtime/plan/manifest.h"
#include "../runtime/plan/plan.h"
#include "../runtime/plan/program.h"
#include "test.h"

static char path[] = "/tmp/tgc-test-plan-XXXXXX";

static void temp_path(void)
{
        memcpy(path + sizeof path - 7, "XXXXXX", 6);
        int fd = mkstemp(path);
        if (fd < 0)
                SKIP("no temporary files in /tmp");
        close(fd);
}

static char big[9000];

static void make(Plan *p)
{
        Err e;
        *p = (Plan) { 0 };
        for (size_t i = 0; i < sizeof big; i++)
                big[i] = (char)(i * 7 + i / 256);
        CHECK(!plan_add(p, "manifest", "tgc 1\n", 6, &e));
        CHECK(!plan_add(p, "empty", "", 0, &e));
        CHECK(!plan_add(p, "future-section", "?", 1, &e));
        CHECK(!plan_add(p, "weights", big, sizeof big, &e));
}

TEST (container_round_trip) {
        Plan a, b;
        Err e;
        char *one, *two;
        size_t n, m;

        make(&a);
        temp_path();
        CHECK_MSG(!plan_write(&a, path, &e), "%s", e.msg);
        CHECK_MSG(!plan_open(&b, path, &e), "%s", e.msg);
        CHECK(b.n_sections == 4 && plan_find(&b, "empty")->size == 0 && !plan_find(&b, "nothing"));
        CHECK(plan_find(&b, "weights")->size == sizeof big &&
              !memcmp(plan_find(&b, "weights")->data, big, sizeof big));
        CHECK((size_t)plan_find(&b, "weights")->data % PLAN_ALIGN == 0);
        CHECK(!file_read_text(path, 1 << 20, &one, &n, &e));
        CHECK_MSG(!plan_write(&b, path, &e), "%s", e.msg); /* over the file it maps */
        CHECK(!file_read_text(path, 1 << 20, &two, &m, &e));
        CHECK(n == m && !memcmp(one, two, n));
        free(one);
        free(two);
        plan_close(&b);
        plan_close(&a);
        unlink(path);
}

TEST (container_every_byte_counts) {
        Plan a, b;
        Err e;
        char *file;
        size_t n;

        make(&a);
        temp_path();
        CHECK(!plan_write(&a, path, &e));
        CHECK(!file_read_text(path, 1 << 20, &file, &n, &e));
        CHECK(!plan_open_memory(&b, file, n, &e));
        plan_close(&b);
        for (size_t i = 0; i < n; i++) {
                file[i] ^= 0x10;
                CHECK_MSG(plan_open_memory(&b, file, n, &e) == TGC_BAD_FILE,
                          "byte %zu of %zu may change", i, n);
                file[i] ^= 0x10;
        }
        /* cut short: an exact copy, so that ASan sees */
        for (size_t k = 0; k < n; k += k < 400 ? 1 : 509) {
                char *cut = malloc(k + 1);
                memcpy(cut, file, k);
                cut = realloc(cut, k ? k : 1);
                CHECK_MSG(plan_open_memory(&b, cut, k, &e) == TGC_BAD_FILE, "cut at %zu", k);
                free(cut);
        }
        free(file);
        plan_close(&a);
        unlink(path);
}

TEST (container_replace_and_remove) {
        Plan p = { 0 };
        Err e;
        CHECK(!plan_add(&p, "a", "1", 1, &e) && !plan_add(&p, "b", "2", 1, &e) &&
              !plan_add(&p, "a", "333", 3, &e));
        CHECK(p.n_sections == 2 && plan_find(&p, "a")->size == 3);
        plan_remove(&p, "a");
        plan_remove(&p, "a");
        CHECK(p.n_sections == 1 && !strcmp(p.section[0].name, "b"));
        CHECK(plan_add(&p, "a name with blanks", "", 0, &e) && plan_add(&p, "", "", 0, &e));
        CHECK(plan_add(&p, "a-name-of-more-than-thirty-one-characters", "", 0, &e));
        plan_close(&p);
}

TEST (container_missing_file) {
        Plan p;
        Err e;
        CHECK(plan_open(&p, "/nonexistent/x.plan", &e) == TGC_IO &&
              strstr(e.msg, "/nonexistent/x.plan"));
        CHECK(plan_open(&p, "/tmp", &e) == TGC_BAD_FILE);
}

TEST (packs) {
        PackFile f[3] = { { .name = "a.h", .data = "int a;\n", .size = 7 },
                          { .name = "b.cuh", .data = "" },
                          { .name = "k0", .data = "//@ file a.h 3\nxyz", .size = 18 } };
        Pack k;
        Err e;
        void *blob;
        size_t n;

        CHECK(!pack_write(f, 3, &blob, &n, &e));
        CHECK_MSG(!pack_read(&k, blob, n, "headers", &e), "%s", e.msg);
        CHECK(k.n == 3 && !strcmp(k.file[0].name, "a.h") && !strcmp(k.file[0].data, "int a;\n"));
        CHECK((size_t)k.file[2].data % 64 == 0);
        CHECK(k.file[1].size == 0 && k.file[2].size == 18 &&
              !memcmp(k.file[2].data, f[2].data, 18));
        pack_free(&k);
        for (size_t cut = 1; cut < n; cut++) {
                char *part = malloc(cut);
                memcpy(part, blob, cut);
                if (!pack_read(&k, part, cut, "headers", &e))
                        pack_free(&k); /* only whole files may remain */
                free(part);
        }
        free(blob);
        static const char *const bad[] = { "//@ file ../x 0\n\n",
                                           "//@ file x 99999999999999999999\n\n",
                                           "//@ file x -1\n\n",
                                           "//@ file x\n\n",
                                           "//@ file x 5\nabc\n",
                                           "garbage",
                                           "//@ file x 0\n\n//@ file x 0\n\n",
                                           "//@ file .x 0\n\n",
                                           "//@ file  0\n\n" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                CHECK_MSG(pack_read(&k, bad[i], strlen(bad[i]), "p", &e) == TGC_BAD_FILE,
                          "accepted: %s", bad[i]);
}

TEST (units) {
        static const char text[] = "// comment\n//@ unit a\nint x;\n//@ unit b\n//@ unit c\nint z;";
        Pack k;
        Err e;
        CHECK_MSG(!pack_units(&k, text, strlen(text), "source", &e), "%s", e.msg);
        CHECK(k.n == 3 && !strcmp(k.file[0].data, "int x;\n") && k.file[1].size == 0);
        CHECK(!strcmp(k.file[2].data, "int z;"));
        pack_join(&k, 2); /* what stood between them is blank */
        CHECK(k.n == 2 && !strcmp(k.file[0].name, "a") && !strcmp(k.file[1].name, "c"));
        CHECK(k.file[0].size >= 7 && !memcmp(k.file[0].data, "int x;\n", 7));
        CHECK(strspn(k.file[0].data + 7, "\n") == k.file[0].size - 7);
        CHECK(k.file[1].size == 6 && !strcmp(k.file[1].data, "int z;"));
        pack_free(&k);
        CHECK(pack_units(&k, "int x;", 6, "source", &e) == TGC_BAD_FILE);
        CHECK(pack_units(&k, "//@ unit a/b\n", 13, "source", &e) == TGC_BAD_FILE);
        CHECK(pack_units(&k, "//@ unit a\n//@ unit a\n", 22, "source", &e) == TGC_BAD_FILE);
}

TEST (expressions) {
        static const struct {
                const char *text;
                long long value;
        } t[] = { { "1", 1 },
                  { "0", 0 },
                  { "B*T", 21 },
                  { "ceil(B*T/4)*12", 72 },
                  { "ceil(21/21)", 1 },
                  { "ceil(ceil(T/2)*B/5)", 3 },
                  { "ceil(0/64)", 0 },
                  { "2*3*B", 18 },
                  { "", -1 },
                  { "*", -1 },
                  { "B*", -1 },
                  { "B T", -1 },
                  { "ceil(B/0)", -1 },
                  { "ceil(B/T)", -1 },
                  { "ceil(B", -1 },
                  { "ceil(B/2", -1 },
                  { "-1", -1 },
                  { "X", -1 },
                  { "BT", -1 },
                  { "1e3", -1 },
                  { "99999999999999999999", -1 },
                  { "99999999999*99999999999", -1 },
                  { "ceil(ceil(ceil(ceil(ceil(ceil(ceil(ceil(ceil(ceil("
                    "1/1)/1)/1)/1)/1)/1)/1)/1)/1)/1)",
                    -1 } };
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)
                CHECK_MSG(expr_eval(t[i].text, 3, 7) == t[i].value, "%s: %lld, not %lld", t[i].text,
                          (long long)expr_eval(t[i].text, 3, 7), t[i].value);
}

#define HEAD                                            \
        "tgc-program 2\narena w 4096\narena act 1024\n" \
        "kernel k0 unit u threads 128 smem 0 args 3 flops 10 bytes 1.5e3 title add two things\n"

TEST (program_text) {
        static const char text[] = HEAD
                "pdl k0\nform sm_90a k0 threads 384 smem 200000 cluster 8\nmap 0 f16 w+32 4 24 32\n"
                "map 1 tf32 w+0 4 32 32\nmap 2 bf16 w+64 40 24 32 box 16 64\n"
                "program prefill B 2 T 16\nio ids i32 act+0 B*T\nzero act+512 64\n"
                "run k0 grid ceil(B*T/128) sm_90a B*T*8 args rt map:0 act+1024\nend\n"
                "program decode B 1 T 1\nrun k0 grid 1 sm_90a 8 args rt map:0 w+16\nend\n";
        Program p;
        Err e;
        CHECK_MSG(!program_parse(&p, text, strlen(text), "program.cpu", &e), "%s", e.msg);
        CHECK(p.n_arenas == 2 && p.n_kernels == 1 && p.n_progs == 2 && p.n_zeros == 1);
        CHECK(!strcmp(p.kernel[0].title, "add two things") && p.kernel[0].bytes == 1500 &&
              p.kernel[0].pdl);
        const FormDef *form = &p.kernel[0].form[FORM_SM90A];
        CHECK(form->threads == 384 && form->smem == 200000 && form->cluster == 8 &&
              !form->persistent && p.n_maps == 3 && p.map[0].type == MAP_F16);
        CHECK(p.map[0].of.offset == 32 && p.map[0].rows == 4 && p.map[0].ld == 32);
        CHECK(p.map[0].box_rows == 64 && p.map[0].box_bytes == 128 && p.map[1].box_rows == 32 &&
              p.map[1].box_bytes == 128);
        CHECK(p.map[2].box_rows == 16 && p.map[2].box_bytes == 64);
        const Prog *g = program_find(&p, "prefill");
        CHECK(g && g->n_run == 1 && !strcmp(g->run[0].grid[FORM_SM90A], "B*T*8"));
        CHECK(g && g->n_run == 1 && g->run[0].arg[0].arena == REF_RT &&
              g->run[0].arg[2].offset == 1024);
        CHECK(g->run[0].arg[1].arena == REF_MAP && g->run[0].arg[1].offset == 0 &&
              p.kernel[0].arg == g->run[0].arg);
        CHECK(prog_io(g, "ids")->elem == 4 && !prog_io(g, "logits") && !program_find(&p, "score"));
        program_free(&p);
}

/* `sums` of a model has a sum for each linear: four or more a layer, hundreds in all. */
TEST (many_outputs) {
        enum { N = 2000, ROOM = 64 * N };
        char *text = malloc(ROOM);
        Program p;
        Err e;
        int at = snprintf(text, ROOM, "%sprogram sums B 1 T 1\n", HEAD);
        for (int i = 0; i < N; i++)
                at += snprintf(text + at, (size_t)(ROOM - at), "io sum.%d f32 act+0 1\n", i);
        at += snprintf(text + at, (size_t)(ROOM - at), "end\n");
        CHECK_MSG(!program_parse(&p, text, (size_t)at, "program.cpu", &e), "%s", e.msg);
        CHECK(prog_io(program_find(&p, "sums"), "sum.1999"));
        program_free(&p);
        free(text);
}

/* Every message names the line. */
TEST (program_refusals) {
        static const struct {
                const char *text, *says;
        } t[] = { { "", "program:0" },
                  { "tgc-program 1\n", "program:1" },
                  { "tgc-program 2\narena w 5\narena w 5\n",
                    "program:3: arena w is declared twice" },
                  { "tgc-program 2\narena w 99999999999999999999\n", "program:2" },
                  { "tgc-program 2\narena w -5\n", "program:2" },
                  { "tgc-program 2\n"
                    "kernel k unit u threads 2048 smem 0 args 1 flops 0 bytes 0 title\n",
                    "program:2" },
                  { "tgc-program 2\n"
                    "kernel k unit u threads 1 smem 0 args 0 flops 0 bytes 0 title x\n",
                    "program:2" },
                  { "tgc-program 2\n"
                    "kernel k unit u threads 1 smem 0 args 1 flops nan bytes 0 title x\n",
                    "finite" },
                  { HEAD "kernel k0 unit u threads 1 smem 0 args 1 flops 0 bytes 0 title x\n",
                    "program:5" },
                  { HEAD "pdl k1\n", "program:5: no kernel named 'k1'" },
                  { HEAD "form sm_90a k1 threads 384 smem 0 persistent\n",
                    "program:5: no kernel named 'k1'" },
                  { HEAD "form sm_90a k0 threads 0 smem 0 persistent\n", "needs threads" },
                  { HEAD "form sm_90a k0 threads 32 smem 0\n", "'cluster' expected" },
                  { HEAD "form sm_200 k0 threads 32 smem 0 persistent\n",
                    "no forms are known for 'sm_200'" },
                  { HEAD "form sm_90a k0 threads 384 smem 0 persistent\n"
                         "program a B 1 T 1\n"
                         "run k0 grid 1 args rt w+0 w+0\nend\n",
                    "has a form for sm_90a, and its run has none" },
                  { HEAD "form sm_90a k0 threads 384 smem 0 cluster 9\n", "program:5" },
                  { HEAD "form sm_90a k0 threads 384 smem 0 cluster 8\n"
                         "program a B 1 T 1\n"
                         "run k0 grid 1 sm_90a 12 args rt w+0 w+0\nend\n",
                    "not whole clusters" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 sm_90a 1 args rt w+0 w+0\nend\n",
                    "has no form for sm_90a, and its run has one" },
                  { HEAD "map 0 f32 w+0 4 32 32\n", "bf16, f16 or tf32" },
                  { HEAD "map 0 bf16 w+0 64 33 40\n", "reach beyond the arena's 4096" },
                  { HEAD "map 0 bf16 w+8 4 32 32\n", "multiples of 16 bytes" },
                  { HEAD "map 0 bf16 w+0 4 32 36\n", "multiples of 16 bytes" },
                  { HEAD "map 0 bf16 w+0 4 32 24\n", "must not overlap" },
                  { HEAD "map 0 tf32 w+0 4 32 34\n", "multiples of 16 bytes" },
                  { HEAD "map 0 tf32 w+0 33 33 36\n", "reach beyond the arena's 4096" },
                  { HEAD "map 0 bf16 w+0 0 32 32\n", "cannot be made" },
                  { HEAD "map 0 bf16 w+0 4 32 32 16\n", "box is wanted" },
                  { HEAD "map 0 bf16 w+0 4 32 32 box 0 128\n", "1 to 256 of 32, 64 or 128" },
                  { HEAD "map 0 bf16 w+0 4 32 32 box 16 48\n", "1 to 256 of 32, 64 or 128" },
                  { HEAD "map 0 bf16 w+0 4 32 32 box 16\n", "bytes of a box's row" },
                  { HEAD "map 1 bf16 w+0 4 32 32\n", "program:5: tensor map 0 is due, not '1'" },
                  { HEAD "map map+0 bf16 w+0 4 32 32\n", "compile the model again" },
                  { HEAD "map 0 bf16 rt 4 32 32\n", "must be ARENA+OFFSET" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 args rt map:0 w+0\nend\n",
                    "'map:0' is not one of the 0 tensor maps" },
                  { HEAD "map 0 bf16 w+0 4 32 32\n"
                         "program a B 1 T 1\n"
                         "run k0 grid 1 args rt map:1 w+0\nend\n",
                    "'map:1' is not one of the 1 tensor maps" },
                  { HEAD "map 0 bf16 w+0 4 32 32\n"
                         "program a B 1 T 1\n"
                         "run k0 grid 1 args map:0 w+0 w+0\nend\n",
                    "must be rt" },
                  { HEAD
                    "map 0 bf16 w+0 4 32 32\nprogram a B 1 T 1\nrun k0 grid 1 args rt map:0 w+0\n"
                    "run k0 grid 1 args rt w+0 w+0\nend\n",
                    "program:8: argument 1 of k0 is a tensor map in some runs" },
                  { HEAD "map 0 bf16 w+0 4 32 32\nprogram a B 1 T 1\nio x f32 map:0 1\nend\n",
                    "must be ARENA+OFFSET" },
                  { HEAD "program a B 1 T 1\nrun k1 grid 1 args rt w+0 w+0\nend\n",
                    "program:6: no kernel named 'k1'" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 args rt w+0\nend\n",
                    "takes 3 arguments, 2 are given" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 args w+0 w+0 w+0\nend\n", "must be rt" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 args rt w+0 q+0\nend\n",
                    "no arena named 'q'" },
                  { HEAD "program a B 1 T 1\nrun k0 grid 1 args rt w+0 act+1025\nend\n",
                    "program:6" },
                  { HEAD "program a B 1 T 1\nrun k0 grid B*Q args rt w+0 w+0\nend\n",
                    "not an expression" },
                  { HEAD "program a B 2 T 2\nrun k0 grid B*T*1000000000 args rt w+0 w+0\nend\n",
                    "program:6" },
                  { HEAD "program a B 2 T 200\nio x f32 act+0 B*T\nend\n", "reach beyond" },
                  { HEAD "program a B 1 T 1\nio x f64 act+0 1\nend\n", "unknown dtype" },
                  { HEAD "program a B 1 T 1\nio x f32 rt 1\nend\n", "must be ARENA+OFFSET" },
                  { HEAD "program a B 1 T 1\nio x f32 act+0 1\nio x f32 act+0 1\nend\n",
                    "program:7" },
                  { HEAD "program a B 1 T 1\nzero act+1000 25\nend\n", "reach beyond" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move away act+0 host+0 256 0 1\nend\n",
                    "'away' is neither out nor in" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+0 w+0 16 0 1\nend\n",
                    "between arena act and arena host" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move in host+0 host+256 256 0 1\nend\n",
                    "between arena act and arena host" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+0 host+0 256 1 0\nend\n",
                    "moves stand in the order" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+0 host+0 256 1 1\nmove in act+0 host+0 256 0 1\nend\n",
                    "moves stand in the order" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+0 host+0 256 0 2\nend\n",
                    "move 0 ends before run 2 of 1" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+0 host+264 256 0 1\nend\n",
                    "reach beyond" },
                  { HEAD "arena host 512\nprogram a B 1 T 1\nrun k0 grid 1 args rt w+0 w+0\n"
                         "move out act+800 host+0 256 0 1\nend\n",
                    "reach beyond" },
                  { HEAD "program a B 1 T 1\n", "has no end" },
                  { HEAD "program a B 0 T 1\nend\n", "at least 1" },
                  { HEAD "program a B 257 T 1\nend\n", "program:5" },
                  { HEAD "program a B 1 T 1\nend\nprogram a B 1 T 1\nend\n", "program:7" },
                  { HEAD "program a B 1 T 1\nend of it\n", "unexpected 'of it'" },
                  { HEAD "banana\n", "program:5: 'banana'" } };
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
                Program p;
                Err e;
                CHECK_MSG(program_parse(&p, t[i].text, strlen(t[i].text), "program", &e) ==
                                  TGC_BAD_FILE,
                          "accepted:\n%s", t[i].text);
                CHECK_MSG(strstr(e.msg, t[i].says), "\"%s\" does not say \"%s\"", e.msg, t[i].says);
        }
        Program p;
        CHECK(program_parse(&p, "tgc-program 2\n\0", 15, "program", 0) == TGC_BAD_FILE);
}

#define MANIFEST             \
        "tgc 1\n"            \
        "model tiny\n"       \
        "dtype bf16\n"       \
        "mode both\n"        \
        "vocab 16\nctx 32\n" \
        "batch 2\n"          \
        "chunk 8\n"          \
        "params 20 12 24\n"

TEST (manifest_text) {
        static const char text[] = MANIFEST
                "param a 3x4 0 trainable normal 0.02\nparam b 8 12 trainable uniform -1 1\n"
                "param c 2x2 20 frozen value 3\nmap anything at all\nmeta licence MIT\n";
        Manifest m;
        Err e;
        CHECK_MSG(!manifest_parse(&m, text, strlen(text), &e), "%s", e.msg);
        CHECK(m.dtype == STORE_BF16 && m.infer && m.train && m.vocab == 16 && m.ctx == 32 &&
              m.chunk == 8);
        CHECK(m.n_params == 3 && m.param[0].n_dims == 2 && m.param[0].count == 12 &&
              m.param[1].init_arg[0] == -1);
        CHECK(manifest_param(&m, "c") == 2 && manifest_param(&m, "d") == -1 &&
              !m.param[2].trainable);
        CHECK(m.documents == -1);
        manifest_free(&m);
        CHECK(!manifest_parse(&m, MANIFEST "documents 5\n", strlen(MANIFEST) + 12, &e) &&
              m.documents == 5);
        manifest_free(&m);
        static const char *const bad[] = {
                "",
                "tgc 2\n",
                "tgc 1\n",
                MANIFEST "param a 3x4 0 trainable magic\n",
                MANIFEST "param a 3x4 10 trainable zeros\n",
                MANIFEST "param a 3x4 0 frozen zeros\n",
                MANIFEST "param a 0x4 0 trainable zeros\n",
                MANIFEST "param a 4294967296x4294967296 0 trainable zeros\n",
                MANIFEST "param a 2 0 trainable zeros\nparam b 2 1 trainable zeros\n",
                MANIFEST "param a 2 0 trainable zeros\nparam a 2 2 trainable zeros\n",
                MANIFEST "param a 2 0 trainable normal inf\n",
                MANIFEST "param a 2 0 trainable normal\n",
                MANIFEST "param a 1x1x1x1x1x1x1x1x1 0 trainable zeros\n",
                MANIFEST "param a 1x32 20 trainable Q8_0 zeros\n",
                MANIFEST "param a 1x33 20 frozen Q8_0 zeros\n",
                MANIFEST "param a 1x64 20 frozen Q8_0 zeros\n",
                MANIFEST "param a 1x32 20 frozen Q8_1 zeros\n",
                MANIFEST "param a 1x32 20 frozen F32 zeros\n",
                MANIFEST "quantise 4\n",
                MANIFEST "params 20 22 24\n",
                MANIFEST "batch 257\n"
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                CHECK_MSG(manifest_parse(&m, bad[i], strlen(bad[i]), &e) == TGC_BAD_FILE,
                          "accepted:\n%s", bad[i]);
}

/* Blocks take as many of the arena's elements as hold their bytes. */
TEST (manifest_of_blocks) {
        static const char text[] = "tgc 1\n"
                                   "model tiny\n"
                                   "dtype bf16\n"
                                   "mode infer\n"
                                   "vocab 16\nctx 32\n"
                                   "batch 1\n"
                                   "chunk 8\n"
                                   "params 0 0 55\n"
                                   "param a 2x32 0 frozen Q8_0 zeros\n"
                                   "param b 1x32 34 frozen MXFP4 zeros\n"
                                   "param c 12 43 frozen zeros\n";
        Manifest m;
        Err e;
        CHECK_MSG(!manifest_parse(&m, text, strlen(text), &e), "%s", e.msg);
        CHECK(m.param[0].slots == 34 && param_bytes(&m, 0) == 68 && param_ck(&m, 0) == CK_Q8_0);
        CHECK(m.param[1].slots == 9 && param_bytes(&m, 1) == 17);
        CHECK(m.param[2].slots == 12 && param_bytes(&m, 2) == 24 && param_ck(&m, 2) == CK_BF16);
        CHECK(manifest_elements(&m) == 64 + 32 + 12);
        manifest_free(&m);
}

/* Any change of one byte of the texts is either refused or still in bounds. */
TEST (texts_survive_mutation) {
        static const char program[] = HEAD
                "program prefill B 2 T 16\nio ids i32 act+0 B*T\nzero act+512 64\n"
                "run k0 grid ceil(B*T/128) args rt w+16 act+1024\nend\n";
        static const char manifest[] = MANIFEST
                "param a 3x4 0 trainable normal 0.02\nparam c 2x2 20 frozen value 3\n";
        static const char with[] = " \n+*/()0919BTx-.";
        char text[1024];
        for (size_t i = 0; i < strlen(program); i++)
                for (size_t k = 0; k < sizeof with; k++) {
                        Program p;
                        memcpy(text, program, sizeof program);
                        text[i] = with[k];
                        if (!program_parse(&p, text, strlen(program), "program", 0))
                                program_free(&p);
                }
        for (size_t i = 0; i < strlen(manifest); i++)
                for (size_t k = 0; k < sizeof with; k++) {
                        Manifest m;
                        memcpy(text, manifest, sizeof manifest);
                        text[i] = with[k];
                        if (!manifest_parse(&m, text, strlen(manifest), 0))
                                manifest_free(&m);
                }
}

TEST_MAIN
