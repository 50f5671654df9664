/* test_locale.c: in a program whose locale writes 0,5 plans, graphs and tables are as in any other,
 * and libtgc opens them. */
#include <glob.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "compiler/compiler.h"
#include "runtime/util/c_locale.h"
#include "runtime/util/file.h"
#include "runtime/device/host_cc.h"
#include "runtime/tgc.h"
#include "child.h"
#include "test.h"
#include "plan_file.h"

static char dir[128];

static const char *scratch(const char *name)
{
        static char path[8][300];
        static int k;
        k = (k + 1) % 8;
        snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
        return path[k];
}

/* glibc's LC_NUMERIC with decimal_point "," thousands_sep "." grouping 3;3, as localedef writes
 * it. */
static const unsigned char lc_numeric[] = { 0x14, 0x11, 0x03, 0x20, 0x06, 0x00, 0x00, 0x00, 0x20,
                                            0x00, 0x00, 0x00, 0x22, 0x00, 0x00, 0x00, 0x24, 0x00,
                                            0x00, 0x00, 0x28, 0x00, 0x00, 0x00, 0x2c, 0x00, 0x00,
                                            0x00, 0x30, 0x00, 0x00, 0x00, 0x2c, 0x00, 0x2e, 0x00,
                                            0x03, 0x03, 0x00, 0x00, 0x2c, 0x00, 0x00, 0x00, 0x2e,
                                            0x00, 0x00, 0x00, 0x41, 0x4e, 0x53, 0x49, 0x5f, 0x58,
                                            0x33, 0x2e, 0x34, 0x2d, 0x31, 0x39, 0x36, 0x38, 0x00 };

static void write_bytes(const char *path, const void *p, size_t n)
{
        Err e;
        CHECK_MSG(!file_write_atomic(path, p, n, &e), "%s", e.msg);
}

/* From here on the process has decimal commas. */
static void commas(void)
{
        static const char *const known[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                             "fr_FR.utf8" };
        char half[16];
        if (!*dir) {
                snprintf(dir, sizeof dir, "%.80s/tgc-locale-XXXXXX",
                         getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
                CHECK(mkdtemp(dir) && !mkdir(scratch("comma"), 0700));
                write_bytes(scratch("comma/LC_NUMERIC"), lc_numeric, sizeof lc_numeric);
        }
        setenv("LOCPATH", dir, 1);
        bool there = setlocale(LC_NUMERIC, "comma");
        unsetenv("LOCPATH");
        for (size_t i = 0; i < sizeof known / sizeof *known && !there; i++)
                there = setlocale(LC_NUMERIC, known[i]);
        if (!there)
                SKIP("this C library reads no locale of ours");
        snprintf(half, sizeof half, "%.1f", 0.5);
        CHECK_MSG(!strcmp(half, "0,5"), "%s", half);
}

static void points(void) { setlocale(LC_NUMERIC, "C"); }

static char talk[1 << 14];

/* tgc WORDS..., ended by NULL, in a child; standard output to the file `to`. */
static int tgc(const char *to, ...)
{
        char *argv[40] = { "tgc" };
        int argc = 1;
        va_list ap;
        va_start(ap, to);
        for (const char *w; (w = va_arg(ap, const char *));)
                argv[argc++] = (char *)w;
        va_end(ap);
        int code = child_end(child_begin(argc, argv, "/dev/null", to, scratch("err")));
        child_read(scratch("err"), talk, sizeof talk);
        return code;
}

#define RUN(to, ...)                                                \
        do {                                                        \
                int code_ = tgc(scratch(to), __VA_ARGS__, NULL);    \
                CHECK_MSG(!code_, "exit code %d: %s", code_, talk); \
        } while (0)

static char *slurp(const char *name, size_t *n)
{
        static char *text;
        Err e;
        CHECK_MSG(!file_read_text(scratch(name), 1 << 26, &text, n, &e), "%s", e.msg);
        return text;
}

static void same(const char *a, const char *b)
{
        size_t n, m;
        char *x = slurp(a, &n), *y = slurp(b, &m);
        CHECK_MSG(n == m && !memcmp(x, y, n), "%s and %s differ", a, b);
        free(x);
        free(y);
}

static const char model[] =
        "local b = require 'blocks'\n"
        "assert(tostring(0.5) == '0.5' and ('%.2f'):format(1.25) == '1.25' and '0.5' + 0 == 0.5)\n"
        "return { name = 'tiny', params = { vocab = 11, ctx = 8, drop = 0.125 }, graph = "
        "function(p)\n"
        "        local ids, targets = b.inputs()\n"
        "        local x = b.embedding(ids, 'tok', p.vocab, 4, { std = 0.5 })\n"
        "        x = b.rmsnorm(x, 'norm', { eps = 1e-5 }) * 0.0625 + const('c', { 1.5, 2.5e-7, "
        "-0.1, 3 })\n"
        "        return b.outputs(b.linear(x, 'logits', p.vocab, { std = 0.25 }), targets)\n"
        "end }\n";

TEST (plans_are_the_same) {
        commas();
        points();
        write_bytes(scratch("m.lua"), model, strlen(model));
        write_bytes(scratch("t.txt"), "0123456789\n0123456789\n0123456789\n0123456789\n", 44);
        for (int comma = 0; comma < 2; comma++) {
                comma ? commas() : points();
                RUN("out", "compile", scratch("m.lua"), "-q", "-D", "drop=0.25", "-b", "1",
                    "--block-size", "4", "-o", scratch(comma ? "b.plan" : "a.plan"));
                RUN(comma ? "b.json" : "a.json", "dump", scratch("a.plan"), "--graph", "--json");
                RUN(comma ? "b.txt" : "a.txt", "dump", scratch("a.plan"), "--fused", "--ir",
                    "--manifest");
                RUN("out", "compile", scratch("a.json"), "-q", "-b", "1", "--block-size", "4", "-o",
                    scratch(comma ? "d.plan" : "c.plan"));
        }
        points();
        same("a.plan", "b.plan");
        same("a.json", "b.json");
        same("a.txt", "b.txt");
        same("c.plan", "d.plan");
        CHECK(without_model(scratch("a.plan"), scratch("e.plan")));
        same("e.plan", "c.plan");
}

/* Compiled in this very process: no thread's locale but the compiler's own doing. */
TEST (graphs_have_points) {
        char buf[32];
        double x[] = { 0.5, 1e-7, 3, 123456789.125, -2.25e300 };
        commas();
        for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
                num_text(x[i], buf);
                bool good = !strchr(buf, ',') && num_read(buf, NULL) == x[i] &&
                            c_strtod(buf, NULL) == x[i];
                if (!good)
                        points();
                CHECK_MSG(good, "%s", buf);
        }
        Text t = { 0 };
        text_add(&t, "%g", 0.5);
        bool good = !strcmp(t.s, "0.5");
        snprintf(buf, sizeof buf, "%g", 0.5); /* the program's own is as it was */
        points();
        CHECK(good && !strcmp(buf, "0,5"));
        text_free(&t);
}

TEST (the_library_opens_plans) {
        char text[512];
        Err e;
        HostCc cc;
        TgcError error;
        Tgc *t;
        float w[44];
        int n = 0;
        setenv("OMP_NUM_THREADS", "1", 1);
        if (host_cc_find(&cc, 0, &e))
                SKIP("no C compiler");
        commas();
        int code = tgc_open(&t, scratch("a.plan"),
                            &(TgcOptions) { .device = "cpu", .infer = 1, .seed = 7 }, &error);
        snprintf(text, sizeof text, "%.1f", 0.5);
        if (!code) {
                n = tgc_param_count(t);
                code = tgc_param_get(t, 0, w, &error);
                tgc_close(t);
        }
        points();
        CHECK_MSG(!code, "%s", error.message);
        CHECK(n == 3 && !strcmp(text, "0,5"));
}

TEST (tables_have_points) {
        HostCc cc;
        Err e;
        size_t n;
        if (host_cc_find(&cc, 0, &e))
                SKIP("no C compiler");
        commas();
        int code = tgc(scratch("out"), "train", scratch("a.plan"), "--data", scratch("t.txt"),
                       "--tokenizer", "char", "--device", "cpu", "-t1", "--max_iters", "2",
                       "--eval_interval", "2", "--eval_iters", "1", "--learning_rate", "0.015625",
                       "--warmup_iters", "0", "--no-decay_lr", "--val_fraction", "0.25",
                       "--out_dir", scratch("o"), "--log_csv", scratch("log.csv"), NULL);
        if (!code)
                code = tgc(scratch("out"), "train", scratch("a.plan"), "--data", scratch("t.txt"),
                           "--device", "cpu", "-t1", "--max_iters", "3", "--out_dir", scratch("o"),
                           "--resume", NULL);
        points();
        CHECK_MSG(!code, "exit code %d: %s", code, talk);
        char *csv = slurp("log.csv", &n);
        CHECK_MSG(strstr(csv, "\n0,0.015625,"), "%s", csv);
        for (const char *s = strchr(csv, '\n') + 1; *s; s = strchr(s, '\n') + 1) {
                int commas = 0;
                for (const char *c = s; *c != '\n'; c++)
                        commas += *c == ',';
                CHECK_MSG(commas == 5, "%s", s);
        }
        free(csv);
}

/* Nothing reads a number with the program's own locale. */
TEST (no_bare_strtod) {
        static const char *const files_of[] = { "ir/*.c",         "codegen/*/*.c", "compiler/*.c",
                                                "compiler/*/*.c", "runtime/*.c",   "runtime/*/*.c",
                                                "cli/*.c" };
        static const char *const word[] = { "strtod(", "strtof(", "strtold(", "atof(" };
        int files = 0, bad = 0;
        for (size_t i = 0; i < sizeof files_of / sizeof *files_of; i++) {
                glob_t found;
                CHECK_MSG(!glob(files_of[i], 0, NULL, &found), "%s", files_of[i]);
                for (size_t f = 0; f < found.gl_pathc; f++, files++) {
                        const char *path = found.gl_pathv[f];
                        char *text;
                        Err e;
                        CHECK(!file_read_text(path, 1 << 24, &text, NULL, &e));
                        for (size_t k = 0; k < sizeof word / sizeof *word; k++)
                                for (const char *at = text; (at = strstr(at, word[k])); at++)
                                        if (at > text &&
                                            !strchr("_abcdefghijklmnopqrstuvwxyz", at[-1])) {
                                                printf("  %s: %.40s\n", path, at);
                                                bad++;
                                        }
                        free(text);
                }
                globfree(&found);
        }
        CHECK(files > 100 && !bad);
}

TEST (cleaned_up) {
        char command[400];
        snprintf(command, sizeof command, "rm -rf '%s'", dir);
        CHECK(!*dir || !system(command));
}

TEST_MAIN
