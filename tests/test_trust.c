/* test_trust.c: plans and names from strangers: compiled code belongs to its sources, --rebuild
 * takes data only, nothing that a terminal obeys is printed, and a path leaves no trace in a
 * plan. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/load/open.h"
#include "runtime/device/device.h"
#include "runtime/util/file.h"
#include "runtime/tgc.h"
#include "plan_file.h"
#include "child.h"
#include "test.h"

static char dir[128], out_text[1 << 18], err_text[1 << 14];

static const char *scratch(const char *name)
{
        static char path[8][300];
        static int k;
        if (!*dir) {
                snprintf(dir, sizeof dir, "%.80s/tgc-trust-XXXXXX",
                         getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
                CHECK(mkdtemp(dir));
        }
        k = (k + 1) % 8;
        snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
        return path[k];
}

/* tgc WORDS..., ended by NULL; what it prints goes to out_text and err_text. */
static int tgc(const char *word, ...)
{
        char *argv[32] = { "tgc" };
        int argc = 1;
        va_list ap;
        va_start(ap, word);
        for (const char *w = word; w; w = va_arg(ap, const char *))
                argv[argc++] = (char *)w;
        va_end(ap);
        int code = child_end(child_begin(argc, argv, "/dev/null", scratch("out"), scratch("err")));
        child_read(scratch("out"), out_text, sizeof out_text);
        child_read(scratch("err"), err_text, sizeof err_text);
        return code;
}

#define RUN(...)                                                        \
        do {                                                            \
                int code_ = tgc(__VA_ARGS__, NULL);                     \
                CHECK_MSG(!code_, "exit code %d: %s", code_, err_text); \
        } while (0)

static void write_text(const char *path, const char *text)
{
        Err e;
        CHECK_MSG(!file_write_atomic(path, text, strlen(text), &e), "%s", e.msg);
}

static const char model[] =
        "local b = require 'blocks'\n"
        "return { name = 'tiny', params = { vocab = 11, ctx = 8 }, graph = function(p)\n"
        "        local ids, targets = b.inputs()\n"
        "        local x = b.embedding(ids, 'tok', p.vocab, 4, { std = 0.5 })\n"
        "        return b.outputs(b.linear(x, 'logits', p.vocab, { std = 0.5 }), targets)\n"
        "end }\n";

static Plan read_plan(const char *name)
{
        Plan p;
        Err e;
        CHECK_MSG(!plan_open(&p, scratch(name), &e), "%s", e.msg);
        return p;
}

static void add(Plan *p, const char *section, const void *data, size_t n)
{
        Err e;
        CHECK_MSG(!plan_add(p, section, data, n, &e), "%s", e.msg);
}

static void write_plan(Plan *p, const char *name)
{
        Err e;
        CHECK_MSG(!plan_write(p, scratch(name), &e), "%s", e.msg);
}

static bool have_compiler(void)
{
        char text[512];
        Err e;
        setenv("OMP_NUM_THREADS", "1", 1);
        return !host_cc_describe(text, sizeof text, 0, &e);
}

static void compiled(void)
{
        static bool done;
        if (!have_compiler())
                SKIP("no C compiler");
        if (done)
                return;
        write_text(scratch("m.lua"), model);
        RUN("compile", scratch("m.lua"), "-q", "-b", "1", "--block-size", "4", "-o",
            scratch("good.plan"), "--target", "cpu");
        done = true;
}

/* ---- code ---- */

/* good.plan with a source that leaves a mark when it is loaded. */
static Plan marking(const char *mark)
{
        Plan p = read_plan("good.plan");
        const Section *s = plan_find(&p, "source.cpu");
        char *text = NULL;
        CHECK(asprintf(&text,
                       "%.*s\n"
                       "#include <fcntl.h>\n"
                       "__attribute__((constructor)) static void leave(void)\n"
                       "{ open(\"%s\", O_CREAT | O_WRONLY, 0600); }\n",
                       (int)s->size, (const char *)s->data, mark) > 0);
        add(&p, "source.cpu", text, strlen(text));
        free(text);
        return p;
}

static bool marked(const char *mark) { return !unlink(mark); }

/* What `tgc run` says of a plan, ids alone. */
static void run(const char *name, bool rebuild, char ids[256])
{
        RUN("run", scratch(name), "--prompt-ids", "1,2", "-n", "4", "--temp", "0", "--print-ids",
            "--device", "cpu", rebuild ? "--rebuild" : "-t1");
        snprintf(ids, 256, "%.255s", out_text);
}

TEST (objects_belong_to_their_sources) {
        char mark[300], want[256], got[256];
        void *pack, *forged;
        size_t n, n_forged;
        Err e;
        compiled();
        snprintf(mark, sizeof mark, "%s", scratch("mark"));
        Plan good = read_plan("good.plan"), evil = marking(mark);
        run("good.plan", false, want);
        CHECK_MSG(!*err_text || !strstr(err_text, "not made of"), "%s", err_text);
        CHECK_MSG(!cpu_compile_plan(&evil, 1, NULL, &pack, &n, &e), "%s", e.msg);

        /* clean sources beside an object of others: built again, and said */
        Plan p = read_plan("good.plan");
        add(&p, "object.cpu", pack, n);
        write_plan(&p, "mixed.plan");
        run("mixed.plan", false, got);
        CHECK(!marked(mark) && !strcmp(got, want));
        CHECK_MSG(strstr(err_text,
                         "mixed.plan: object.cpu was not made of the plan's cpu sources and flags: "
                         "it is built again"),
                  "%s", err_text);

        /* its key forged as well: a plan is a program; --rebuild takes none of it */
        Pack a, b;
        const Section *s = plan_find(&good, "object.cpu");
        CHECK(!pack_read(&a, pack, n, "a", &e) && !pack_read(&b, s->data, s->size, "b", &e) &&
              a.n == 2 && b.n == 2);
        a.file[1] = b.file[1];
        CHECK(!pack_write(a.file, 2, &forged, &n_forged, &e));
        add(&p, "object.cpu", forged, n_forged);
        write_plan(&p, "forged.plan");
        run("forged.plan", false, got);
        CHECK(marked(mark));
        run("forged.plan", true, got);
        CHECK(!marked(mark) && !strcmp(got, want));

        /* sources that do it */
        plan_remove(&evil, "object.cpu");
        write_plan(&evil, "evil.plan");
        run("evil.plan", false, got);
        CHECK(marked(mark));
        run("evil.plan", true, got);
        CHECK(!marked(mark) && !strcmp(got, want));
        write_text(scratch("ids"), "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9");
        write_text(scratch("text"), "0123456789012345678901234567890123456789");
        for (int i = 0; i < 2; i++) { /* every command that runs a plan */
                const char *how = i ? "--rebuild" : "-q";
                char plan[300];
                snprintf(plan, sizeof plan, "%s", scratch("evil.plan"));
                RUN("eval", plan, "--ids", scratch("ids"), "--device", "cpu", "-t1", how);
                CHECK(marked(mark) == !i);
                RUN("check", plan, "--device", "cpu", "-t1", how);
                CHECK(marked(mark) == !i);
                RUN("bench", plan, "--decode", "--reps", "1", "--device", "cpu", "-t1", how);
                CHECK(marked(mark) == !i);
                RUN("train", plan, "--data", scratch("text"), "--tokenizer", "char", "--max_iters",
                    "1", "--eval_iters", "0", "--device", "cpu", "-t1", "--out_dir",
                    scratch(i ? "o1" : "o0"), how);
                CHECK(marked(mark) == !i);
        }
        /* what a run with it wrote */
        RUN("run", scratch("o1"), "-p", "12", "-n", "2", "--device", "cpu", "-t1", "-q");
        CHECK(!marked(mark));
        RUN("dump", scratch("evil.plan"), "--c");
        CHECK(strstr(out_text, "constructor"));
        RUN("dump", scratch("evil.plan"), "--c", "--rebuild");
        CHECK(!strstr(out_text, "constructor") && strstr(out_text, "//@ unit"));
        pack_free(&a);
        pack_free(&b);
        free(pack);
        free(forged);
        plan_close(&p);
        plan_close(&good);
        plan_close(&evil);
}

TEST (rebuild_is_for_plans) {
        compiled();
        CHECK(tgc("run", scratch("m.lua"), "--rebuild", "--prompt-ids", "1", NULL) == TGC_USAGE);
        CHECK_MSG(strstr(err_text, "run: --rebuild has no effect: it is for plans"), "%s",
                  err_text);
        /* headers, programs, all that is not data, damaged */
        static const char *const damaged[] = { "headers.cpu", "program.cpu", "object.cpu", "ir",
                                               "fused" };
        Plan p = read_plan("good.plan");
        char want[256], got[256];
        run("good.plan", true, want);
        for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
                add(&p, damaged[i], "damaged", 7);
        write_plan(&p, "damaged.plan");
        CHECK(tgc("run", scratch("damaged.plan"), "--prompt-ids", "1", "--device", "cpu", NULL));
        run("damaged.plan", true, got);
        CHECK(!strcmp(got, want));
        /* weights, and a manifest that has them elsewhere */
        static float weights[256];
        const Section *s = plan_find(&p, "manifest");
        char *text = strndup(s->data, s->size), *at = strstr(text, "tok.weight");
        CHECK(at);
        add(&p, "weights", weights, sizeof weights);
        *at = 'r';
        add(&p, "manifest", text, strlen(text));
        write_plan(&p, "moved.plan");
        CHECK(tgc("run", scratch("moved.plan"), "--rebuild", "--prompt-ids", "1", NULL) ==
              TGC_BAD_FILE);
        CHECK_MSG(
                strstr(err_text,
                       "moved.plan: --rebuild: the plan's weights do not lie where its graph puts "
                       "them"),
                "%s", err_text);
        static const char how[] =
                "tgc-products 1\n"
                "compiled dtype f32 opt 9 infer 1 train 0 batch 1 ctx 8 chunk 0 block 8 recompute "
                "0\n";
        add(&p, "products", how, strlen(how));
        write_plan(&p, "moved.plan");
        CHECK(tgc("run", scratch("moved.plan"), "--rebuild", "--prompt-ids", "1", NULL) ==
              TGC_BAD_FILE);
        CHECK_MSG(strstr(err_text, "out of range"), "%s", err_text);
        /* all on one line: nothing ends where a line should */
        static const char one_line[] =
                "tgc-products 1 compiled dtype f32 opt 3 infer 1 train 0 batch 1 ctx 8 chunk 0 "
                "block 8 recompute 0 tf32 0";
        add(&p, "products", one_line, strlen(one_line));
        write_plan(&p, "moved.plan");
        CHECK(tgc("run", scratch("moved.plan"), "--rebuild", "--prompt-ids", "1", NULL) ==
              TGC_BAD_FILE);
        CHECK_MSG(strstr(err_text, "the plan does not hold its compile options"), "%s", err_text);
        free(text);
        plan_close(&p);
}

/* ---- terminals ---- */

/* No control character but newline and tab, no C1, nothing that turns the direction. */
static bool harmless(const char *s)
{
        for (const unsigned char *c = (const unsigned char *)s; *c; c++)
                if ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 127 ||
                    (*c == 0xc2 && c[1] < 0xa0) ||
                    (*c == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae))
                        return false;
        return true;
}

#define NASTY                                \
        "\033[31m \033]0;title\007 \xc2\x9b" \
        "1m \xe2\x80\xae"                    \
        "drawkcab \xff \x7f\b\r"

TEST (dump_prints_no_escapes) {
        static const char *const part[][2] = {
                { "fused", "--fused" },       { "ir", "--ir" },          { "graph", "--graph" },
                { "memory", "--memory" },     { "dot", "--dot" },        { "source.cpu", "--c" },
                { "manifest", "--manifest" }, { "choices", "--choices" }
        };
        compiled();
        Plan p = read_plan("good.plan");
        for (size_t i = 0; i < sizeof part / sizeof *part; i++)
                add(&p, part[i][0], NASTY "\xc3\xa9 end\n", sizeof NASTY + 7);
        write_plan(&p, "nasty.plan");
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
                RUN("dump", scratch("nasty.plan"), part[i][1]);
                CHECK_MSG(harmless(out_text) &&
                                  strstr(out_text,
                                         "\\x1b[31m \\x1b]0;title\\x07 \\u009b1m \\u202edrawkcab "
                                         "\\xff \\x7f\\x08\\x0d\xc3\xa9 end\n"),
                          "%s", out_text);
        }
        plan_close(&p);
}

TEST (info_prints_no_escapes) {
        compiled();
        Plan p = read_plan("good.plan");
        const Section *s = plan_find(&p, "manifest");
        char text[4096];
        snprintf(text, sizeof text, "%.*s", (int)s->size, (const char *)s->data);
        char *at = strstr(text, "model tiny\n");
        CHECK(at);
        memcpy(at, "model \033\xc2\x9by\n", 11);
        add(&p, "manifest", text, strlen(text));
        add(&p, "choices", "tgc-choices 1\ngpu \033[31m\n", 24);
        write_plan(&p, "info.plan");
        RUN("info", scratch("info.plan"));
        CHECK_MSG(harmless(out_text) && strstr(out_text, "\\x1b\\u009by"), "%s", out_text);
        RUN("info", scratch("info.plan"), "--json");
        CHECK_MSG(harmless(out_text) && strstr(out_text, "\\u001b\\u009by"), "%s", out_text);
        plan_close(&p);
}

/* As much as one line of a terminal that is not ours to see. */
static void on_terminal(const char *text, char *shown, size_t cap)
{
        int master = posix_openpt(O_RDWR | O_NOCTTY), status;
        if (master < 0 || grantpt(master) || unlockpt(master))
                SKIP("no pseudo terminals");
        int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                dup2(slave, 1);
                put_generated(text, strlen(text));
                fflush(stdout);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        ssize_t n = read(master, shown, cap - 1);
        shown[n > 0 ? n : 0] = 0;
        close(slave);
        close(master);
}

TEST (generated_text_on_a_terminal) {
        char shown[512];
        on_terminal("a\033[31mb\xc2\x9b"
                    "c\x9b"
                    "d\tm\xc3\xbc\xe2\x80\xaf.",
                    shown, sizeof shown);
        CHECK_MSG(!strcmp(shown, "a[31mbc\xef\xbf\xbd"
                                 "d\tm\xc3\xbc\xe2\x80\xaf."),
                  "%s", shown);
}

/* ---- paths ---- */

static bool same_files(const char *a, const char *b)
{
        char *x, *y;
        size_t n, m;
        Err e;
        CHECK(!file_read_text(a, 1 << 26, &x, &n, &e) && !file_read_text(b, 1 << 26, &y, &m, &e));
        bool same = n == m && !memcmp(x, y, n);
        free(x);
        free(y);
        return same;
}

TEST (paths_leave_no_trace) {
        char here[512], way[600];
        write_text(scratch("m.lua"), model);
        CHECK(!mkdir(scratch("d"), 0700) && getcwd(here, sizeof here) && !chdir(dir));
        int bad = tgc("compile", "m.lua", "-q", "-o", "a.plan", NULL);
        snprintf(way, sizeof way, "%s/m.lua", dir);
        const char *const same[] = { "./m.lua", "d/../m.lua", ".//m.lua", way };
        for (int i = 0; i < 4 && !bad; i++)
                bad = tgc("compile", same[i], "-q", "-o", "b.plan", NULL) ||
                                      !same_files("a.plan", "b.plan")
                              ? i + 2
                              : 0;
        CHECK(!chdir(here));
        CHECK_MSG(!bad, "%d: %s", bad, err_text);
        /* messages say the path as it was typed */
        CHECK(tgc("compile", scratch("d/../m.lua"), "-D", "vocab=0", "-o", scratch("b.plan"),
                  NULL) == TGC_BAD_FILE);
        CHECK_MSG(strstr(err_text, "/d/../m.lua:"), "%s", err_text);
}

TEST (odd_names_survive) {
        static const char *const name[] = { "two\nlines.lua", "esc\033[31m.lua",
                                            "bytes\xff\xfe.lua", "a b \"c\" \\.lua",
                                            "m\xc3\xbc.lua" };
        for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
                write_text(scratch(name[i]), model);
                RUN("compile", scratch(name[i]), "-q", "--mode", "infer", "-o",
                    scratch("odd.plan"));
                RUN("dump", scratch("odd.plan"), "--graph", "--json");
                CHECK_MSG(harmless(out_text), "%s", out_text);
                write_text(scratch("odd.json"), out_text);
                RUN("compile", scratch("odd.json"), "-q", "--mode", "infer", "-o",
                    scratch("again.plan"));
                CHECK(without_model(scratch("odd.plan"), scratch("odd.plan")));
                CHECK_MSG(same_files(scratch("odd.plan"), scratch("again.plan")),
                          "%s: another plan by way of JSON", name[i]);
                RUN("compile", scratch(name[i]), "--json", "--mode", "infer", "-o",
                    scratch("odd.plan"));
                CHECK(harmless(out_text) && harmless(err_text));
                CHECK(tgc("compile", scratch(name[i]), "-D", "x=1", "-o", scratch("odd.plan"),
                          NULL) == TGC_USAGE);
                CHECK_MSG(harmless(err_text) && strstr(err_text, "no parameter 'x'"), "%s",
                          err_text);
        }
}

/* ---- files that get shorter ---- */

static int sum_of(const FileMap *m)
{
        int sum = 0;
        for (size_t i = 0; i < m->size; i += 512)
                sum += ((const char *)m->data)[i];
        return sum;
}

/* Maps a file of n bytes, cuts it, reads it: the exit code of a process that does so as tgc
 * would. */
static int cut_while_mapped(const char *path, size_t n, bool copy)
{
        Err e;
        FileMap m;
        int f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(f >= 0 && !ftruncate(f, (off_t)n) && pwrite(f, "x", 1, 0) == 1);
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                redirect(scratch("err"), 2, O_CREAT | O_WRONLY | O_TRUNC);
                signals_install();
                if ((copy ? file_copy : file_map)(&m, path, &e) || ftruncate(f, 0))
                        _exit(90);
                _exit(sum_of(&m) == 'x' ? 0 : 91);
        }
        int code = child_end(pid);
        child_read(scratch("err"), err_text, sizeof err_text);
        close(f);
        return code;
}

TEST (a_file_that_shrinks) {
        int code = cut_while_mapped(scratch("big \033file"), 8 << 20, false);
        CHECK_MSG(code == TGC_IO, "exit code %d", code);
        CHECK_MSG(strstr(err_text, "/big ?file") &&
                          strstr(err_text, "the file got shorter while it was read"),
                  "%s", err_text);
        CHECK(harmless(err_text));
        CHECK(cut_while_mapped(scratch("big copy"), 40 << 20, true) == 0 && !*err_text);
        CHECK(cut_while_mapped(scratch("small"), 4096, false) == 0 && !*err_text);
}

/* The library takes no signals: its plan is its own. */
TEST (a_plan_that_shrinks_under_the_library) {
        static char padding[4 << 20];
        Plan p;
        int status;
        compiled();
        p = read_plan("good.plan");
        const Section *s = plan_find(&p, "program.cpu");
        char *text = strndup(s->data, s->size), *at = strstr(text, "arena w ");
        CHECK(at);
        size_t n = (size_t)atoll(at + 8);
        free(text);
        char *weights = calloc(1, n);
        add(&p, "padding", padding, sizeof padding);
        add(&p, "weights", weights, n);
        write_plan(&p, "long.plan");
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                Tgc *t;
                TgcError e;
                int ids[3] = { 1, 2, 3 };
                float logits[33];
                const char *path = scratch("long.plan");
                if (tgc_open(&t, path, &(TgcOptions) { .device = "cpu", .threads = 1, .infer = 1 },
                             &e) ||
                    truncate(path, 0) || tgc_score(t, ids, 3, logits, NULL, &e) ||
                    tgc_prompt(t, ids, 3, &e) || tgc_generate(t, NULL, 2, NULL, NULL, &e))
                        _exit(1);
                tgc_close(t);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
        plan_close(&p);
        free(weights);
}

TEST (cleaned_up) {
        char command[400];
        snprintf(command, sizeof command, "rm -rf '%s'", dir);
        CHECK(!*dir || !system(command));
}

TEST_MAIN
