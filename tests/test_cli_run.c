/* test_cli_run.c: a model from end to end on the CPU: training that is interrupted and goes on,
 * plans, tokens, checks; and a signal while a compiler runs. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include "cli_test.h"
#include "runtime/tgc.h"
#include "plan_file.h"
#include "runtime/util/file.h"
#include "runtime/weights/safetensors.h"

/* What works here; the reason if something does not. */
static void need_cpu(void)
{
        char text[256];
        Err e;
        if (host_cc_describe(text, sizeof text, 0, &e))
                SKIP("no C compiler");
        setenv("TGC_CACHE_DIR", scratch("cache"), 1);
        setenv("OMP_NUM_THREADS", "2", 1);
        FILE *f = fopen(scratch("text.txt"), "w");
        CHECK(f);
        for (int i = 0; i < 400; i++)
                fprintf(f, "line %d of the text\xc3\xa9\n", i * 7919 % 1000);
        fclose(f);
}

#define MODEL                                                                                     \
        "llama -D n_layer=1 -D n_embd=32 -D n_head=4 -D n_kv_head=2 -D head_dim=8 -D n_ff=48 -D " \
        "ctx=16"

static bool same_file(const char *a, const char *b)
{
        FileMap x, y;
        Err e;
        if (file_map(&x, a, &e))
                return false;
        if (file_map(&y, b, &e)) {
                file_unmap(&x);
                return false;
        }
        bool same = x.size == y.size && !memcmp(x.data, y.data, x.size);
        file_unmap(&x);
        file_unmap(&y);
        return same;
}

static void train_line(char *line, size_t cap, const char *out, const char *more)
{
        snprintf(line, cap,
                 "train " MODEL " --data %s --block_size 16 --batch_size 3 --max_iters 600 "
                 "--eval_interval 100 "
                 "--eval_iters 2 --warmup_iters 10 --gradient_accumulation_steps 2 --device cpu "
                 "--out_dir %s --log_csv %s.csv "
                 "-q %s",
                 scratch("text.txt"), out, out, more);
}

/* A state whose metadata are another tgc's: key has that value. */
static void rewrite_state(const char *path, const char *key, const char *value)
{
        FileMap m;
        Safetensors st;
        SafetensorsOut *out;
        Err e;
        bool found = false;
        CHECK_MSG(!file_copy(&m, path, &e) && !safetensors_parse(&st, m.data, m.size, path, &e),
                  "%s", e.msg);
        for (int i = 0; i < st.n_meta; i++) {
                if (!strcmp(st.meta[i].key, SAFETENSORS_HASH))
                        st.meta[i].value = SAFETENSORS_NO_HASH;
                if (!strcmp(st.meta[i].key, key))
                        st.meta[i].value = value, found = true;
        }
        CHECK_MSG(found, "no %s", key);
        CHECK_MSG(!safetensors_out_open(&out, path, st.tensor, st.n_tensors, st.meta, st.n_meta,
                                        &e),
                  "%s", e.msg);
        for (int i = 0; i < st.n_tensors; i++) {
                const CkTensor *t = &st.tensor[safetensors_out_order(out)[i]];
                CHECK(!safetensors_out_write(out, t->data, t->bytes, &e));
        }
        CHECK_MSG(!safetensors_out_commit(out, &e), "%s", e.msg);
        safetensors_free(&st);
        file_unmap(&m);
}

/* --recompute was a flag once: its runs go on, and end as those with the word that it is now. */
TEST (a_run_of_the_old_recompute_goes_on) {
        static const char *const was[] = { "1", "0" }, *const now[] = { "cheap", "none" };
        char line[2048], more[600], a[512], b[512];
        need_cpu();
        for (int k = 0; k < 2; k++) {
                snprintf(a, sizeof a, "%s/old%d", dir, k);
                snprintf(b, sizeof b, "%s/new%d", dir, k);
                for (int i = 0; i < 2; i++) {
                        snprintf(more, sizeof more,
                                 "--recompute %s --max_iters 2 --lr_decay_iters 4", now[k]);
                        train_line(line, sizeof line, i ? b : a, more);
                        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
                }
                snprintf(more, sizeof more, "%s/state.safetensors", a);
                rewrite_state(more, "run.recompute", was[k]);
                for (int i = 0; i < 2; i++) {
                        train_line(line, sizeof line, i ? b : a, "--resume --max_iters 4");
                        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
                        snprintf(i ? b + strlen(b) : a + strlen(a), 30, "/state.safetensors");
                }
                CHECK(same_file(a, b));
        }
}

/* A plan whose kernels know nothing of spikes would train as if none had been asked for. */
TEST (an_old_plan_skips_no_spikes) {
        char line[2048];
        Plan p;
        Err e;
        need_cpu();
        snprintf(line, sizeof line,
                 "compile " MODEL " --mode train -b 3 --block-size 16 --tokenizer char:%s -q -o %s",
                 scratch("text.txt"), scratch("new.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        CHECK_MSG(!plan_open(&p, scratch("new.plan"), &e), "%s", e.msg);
        const Section *h = plan_find(&p, "headers.cpu");
        char *text = malloc(h->size), *at;
        const size_t n = h->size;
        memcpy(text, h->data, n);
        while ((at = memmem(text, n, "most_norm", 9)))
                memcpy(at, "any_norms", 9);
        CHECK(!plan_add(&p, "headers.cpu", text, n, &e));
        CHECK_MSG(!plan_write(&p, scratch("old.plan"), &e), "%s", e.msg);
        plan_close(&p);
        free(text);
#define TRAIN_PLAN \
        "train %s --data %s --max_iters 2 --device cpu -q --out_dir %s --skip_spikes 3 %s"
        snprintf(line, sizeof line, TRAIN_PLAN, scratch("old.plan"), scratch("text.txt"),
                 scratch("os"), "");
        EXPECT(line, TGC_USAGE, "--skip_spikes has no effect");
        CHECK_MSG(strstr(r.err, "--rebuild"), "%s", r.err);
        snprintf(line, sizeof line, TRAIN_PLAN, scratch("old.plan"), scratch("text.txt"),
                 scratch("os"), "--rebuild");
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, TRAIN_PLAN, scratch("new.plan"), scratch("text.txt"),
                 scratch("os"), "");
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
}

TEST (train_resume_run) {
        static const char *const file[] = { "ckpt.safetensors", "state.safetensors", "model.plan" };
        char line[2048], a[512], b[512];
        need_cpu();
        train_line(line, sizeof line, scratch("A"), "");
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        train_line(line, sizeof line, scratch("B"), "");
        pid_t pid = begin(line);
        for (int i = 0; i < 2000; i++) { /* until some steps are logged */
                struct stat st;
                if (!stat(scratch("B.csv"), &st) && st.st_size > 1500)
                        break;
                usleep(1000);
        }
        kill(pid, SIGTERM);
        finish(pid);
        /* 0: it was done already */
        CHECK_MSG(r.code == 143 || r.code == 0, "%d: %s", r.code, r.err);
        if (r.code == 143) {
                train_line(line, sizeof line, scratch("B"), "--resume");
                CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        }
        for (int i = 0; i < 3; i++) {
                snprintf(a, sizeof a, "%s/A/%s", dir, file[i]);
                snprintf(b, sizeof b, "%s/B/%s", dir, file[i]);
                CHECK_MSG(same_file(a, b), "%s differs after an interruption", file[i]);
        }
        CHECK(same_file(scratch("A.csv"), scratch("B.csv")));

        snprintf(line, sizeof line, "run %s -p line --temp 0 -n 8 --device cpu --print-ids",
                 scratch("A"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        int words = 0;
        for (const char *s = r.out; *s; s++)
                words += *s == ' ' || *s == '\n';
        CHECK_MSG(words == 4 + 8, "%d ids: %s", words, r.out);
        snprintf(line, sizeof line, "eval %s --data %s --device cpu --json", scratch("A"),
                 scratch("text.txt"));
        CHECK_MSG(tgc(line) == 0 && strstr(r.out, "loss_nats_per_token"), "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "export %s -o %s", scratch("A"), scratch("hf"));
        CHECK_MSG(tgc(line) == 0 && file_exists(scratch("hf/model.safetensors")), "%d: %s", r.code,
                  r.err);

        train_line(line, sizeof line, scratch("B"), "--resume --seed 5");
        EXPECT(line, TGC_USAGE, "--seed 1337");
        train_line(line, sizeof line, scratch("C"), "--resume");
        EXPECT(line, TGC_IO, "nothing to resume");
        train_line(line, sizeof line, scratch("C"),
                   "--learning_rate 1000 --max_skips 0 --grad_clip 0 --weight_decay "
                   "100");
        tgc(line);
        CHECK_MSG(r.code == TGC_NON_FINITE || r.code == 0, "%d: %s", r.code, r.err);
}

TEST (plan_mistakes) {
        char line[2048];
        need_cpu();
        snprintf(line, sizeof line, "compile " MODEL " -D vocab=50 -o %s", scratch("m.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s -p hi", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "no tokenizer");
        snprintf(line, sizeof line, "run %s --prompt-ids 1,50 --device cpu", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "id 50 is outside the vocabulary, 0 to 49");
        snprintf(line, sizeof line, "run %s --prompt-ids 1 -D n_layer=2", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "is compiled already");
        snprintf(line, sizeof line, "compile %s -D n_layer=2 -o %s", scratch("m.plan"),
                 scratch("x.plan"));
        EXPECT(line, TGC_USAGE,
               "m.plan is compiled already; give --define with the model that it was made of");
        snprintf(line, sizeof line, "dump %s --time-passes", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "m.plan is compiled already");
        snprintf(line, sizeof line, "dump %s --choices", scratch("m.plan"));
        EXPECT(line, TGC_BAD_FILE, "`tgc tune` measures them");
        snprintf(line, sizeof line, "dump %s --cuda --kernel k999", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "no kernel k999");
        snprintf(line, sizeof line, "compile " MODEL " -D n_lager=2 -o %s", scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "did you mean 'n_layer'?");
        snprintf(line, sizeof line, "info %s --json", scratch("m.plan"));
        CHECK(tgc(line) == 0 && strstr(r.out, "\"vocab\":\t50"));
        snprintf(line, sizeof line, "run " MODEL " -c 4 -q --device cpu --prompt-ids 1,2,3,4,5");
        EXPECT(line, TGC_USAGE, "the prompt has 5 tokens, --ctx-size is 4");
        snprintf(line, sizeof line,
                 "run %s -q --device cpu --prompt-ids 1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8",
                 scratch("m.plan"));
        EXPECT(line, TGC_USAGE, "the plan's context is 16; compile with a larger --ctx-size");
        snprintf(line, sizeof line,
                 "compile gpt -D n_layer=1 -D n_embd=16 -D n_head=2 -D vocab=9 -D ctx=4 -o %s",
                 scratch("g.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s -q --device cpu --prompt-ids 1,2,3,4,5",
                 scratch("g.plan"));
        EXPECT(line, TGC_USAGE,
               "has no positions beyond; shorten the prompt, or compile a model with more of them");
}

TEST (tokenize_both_ways_as_json) {
        char line[2048], from[512];
        write_file(scratch("abc"), "abc\303\251");
        snprintf(from, sizeof from, "%s", scratch("stdin"));
        input = from;
        write_file(from, "2 0 3 1");
        snprintf(line, sizeof line, "tokenize char:%s --ids --json", scratch("abc"));
        CHECK_MSG(tgc(line) == 0 && strstr(r.out, "\"text\":\t\"ca\303\251b\"") &&
                          strstr(r.out, "\"tokens\":\t4") && strstr(r.out, "\"text_bytes\":\t5"),
                  "%d: %s%s", r.code, r.out, r.err);
        write_file(from, "ca\303\251b");
        snprintf(line, sizeof line, "tokenize char:%s --json", scratch("abc"));
        CHECK_MSG(tgc(line) == 0 && strstr(r.out, "[2, 0, 3, 1]"), "%d: %s%s", r.code, r.out,
                  r.err);
        input = "/dev/null";
}

TEST (same_plan_twice_and_by_json) {
        char line[2048];
        need_cpu();
        for (int i = 0; i < 2; i++) {
                snprintf(line, sizeof line, "compile " MODEL " -o %s",
                         scratch(i ? "2.plan" : "1.plan"));
                CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        }
        CHECK(same_file(scratch("1.plan"), scratch("2.plan")));
        snprintf(line, sizeof line, "dump %s --cuda", scratch("1.plan"));
        CHECK(tgc(line) == 0);
        snprintf(line, sizeof line, "dump " MODEL " --graph --json");
        static char json[1 << 16];
        CHECK(tgc(line) == 0 && strlen(r.out) + 1 < sizeof r.out);
        memcpy(json, r.out, sizeof json);
        write_file(scratch("g.json"), json);
        snprintf(line, sizeof line, "compile %s -o %s", scratch("g.json"), scratch("3.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        CHECK(without_model(scratch("1.plan"), scratch("2.plan")));
        CHECK(same_file(scratch("2.plan"), scratch("3.plan")));
}

TEST (check_command) {
        need_cpu();
        CHECK_MSG(tgc("check " MODEL " -D vocab=37 --device cpu --json") == 0, "%d: %s", r.code,
                  r.err);
        CHECK(strstr(r.out, "\"differ\":\t0"));
        CHECK_MSG(tgc("check " MODEL " -D vocab=37 --device cpu --greedy 5 --json") == 0, "%d: %s",
                  r.code, r.err);
        CHECK(strstr(r.out, "\"5 greedy tokens, "));
        EXPECT("check " MODEL " -D vocab=37 --device cpu --greedy 5000", TGC_USAGE,
               "do not fit the context");
        /* before it compares anything */
        CHECK(!strstr(r.out, "agree") && !strstr(r.out, "logits"));
        EXPECT("check " MODEL " -D vocab=37 --device cpu --tokens 17", TGC_USAGE,
               "--tokens 17: the context is 16");
        char line[1024];
        snprintf(line, sizeof line, "compile " MODEL " -D vocab=37 --block-size 4 -o %s",
                 scratch("check.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "check %s --device cpu --tokens 17", scratch("check.plan"));
        EXPECT(line, TGC_USAGE, "--tokens 17: the context is 16");
        snprintf(line, sizeof line, "check %s --device cpu --tokens 16", scratch("check.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        CHECK_MSG(tgc("check " MODEL " -D vocab=37 --device cpu --tolerance 1e-12") ==
                          TGC_CHECK_FAILED,
                  "%d: %s", r.code, r.err);
        CHECK(!strstr(r.err, "an expert"));
        snprintf(line, sizeof line,
                 "check moe -D vocab=37 -D ctx=16 -D n_layer=1 -D n_embd=16 -D n_head=2 -D "
                 "n_kv_head=2 -D head_dim=8 -D n_ff=16 -D n_expert=8 --dtype bf16 --device cpu "
                 "--tolerance 1e-12");
        EXPECT(line, TGC_CHECK_FAILED, "of its probability, and 16 bits may choose the next one");
}

/* A window of training may be longer than the context of what is run, where no table of positions
 * ends. */
TEST (windows_longer_than_the_context) {
        char line[2048];
        need_cpu();
        snprintf(line, sizeof line,
                 "compile " MODEL " -D vocab=90 --block-size 24 -b 2 --tokenizer char:%s -o %s",
                 scratch("text.txt"), scratch("w.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line,
                 "train %s --data %s --max_iters 2 --eval_iters 1 --device cpu --out_dir %s -q",
                 scratch("w.plan"), scratch("text.txt"), scratch("W"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s -p line -n -1 --ignore-eos --device cpu --print-ids",
                 scratch("W"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        CHECK_MSG(tgc("check gpt -D n_layer=1 -D n_embd=16 -D n_head=2 -D vocab=20 -D ctx=16 -c 2 "
                      "--device cpu") == 0,
                  "%d: %s", r.code, r.err);
}

/* An empty prompt is what the tokenizer puts before a text; nothing at all is an error, as in
 * llama.cpp. */
TEST (empty_prompt) {
        char line[2048];
        need_cpu();
        snprintf(line, sizeof line,
                 "compile " MODEL " -D vocab=700 -D tied=false --mode infer -O0 -q "
                 "--tokenizer tests/data/tokenizers/gpt2 -o %s",
                 scratch("e.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s --prompt= -n 0 -q --print-ids --device cpu",
                 scratch("e.plan"));
        EXPECT(line, TGC_USAGE,
               "the prompt is empty, and the tokenizer puts nothing before a text");
        strcat(line, " --tokenizer tests/data/tokenizers/llama2.json");
        CHECK_MSG(tgc(line) == 0 && !strcmp(r.out, "1\n"), "%d: '%s' %s", r.code, r.out, r.err);
}

/* A plan without weights is run with the same random ones each time, and that is said. */
TEST (random_weights) {
        static char first[sizeof r.out];
        char line[2048];
        need_cpu();
        snprintf(line, sizeof line, "compile " MODEL " -D vocab=50 -D tied=false -o %s",
                 scratch("r.plan"));
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s --prompt-ids 1,2 -n 12 --temp 0 --device cpu",
                 scratch("r.plan"));
        EXPECT(line, 0, "r.plan: compiled without weights, so they will be random");
        memcpy(first, r.out, sizeof first);
        CHECK(tgc(line) == 0 && !strcmp(first, r.out));
        strcat(line, " --seed 5");
        CHECK(tgc(line) == 0 && strcmp(first, r.out));
        write_file(scratch("ids"), "1 2 3 4 5 6");
        snprintf(line, sizeof line, "eval %s --ids %s --device cpu", scratch("r.plan"),
                 scratch("ids"));
        EXPECT(line, 0, "so they will be random");
        train_line(line, sizeof line, scratch("R"), "--max_iters 1");
        CHECK_MSG(tgc(line) == 0, "%d: %s", r.code, r.err);
        snprintf(line, sizeof line, "run %s -p line -n 2 --device cpu", scratch("R"));
        CHECK(tgc(line) == 0 && !strstr(r.err, "random"));
}

/* ---- Ctrl-C while a compiler runs ---- */

/* A compiler that writes its process id down and takes a minute. */
static void play_compiler(const char *before)
{
        char text[2048];
        snprintf(text, sizeof text,
                 "#!/bin/sh\n[ \"$1\" = --version ] && echo played && exit\n%s\n"
                 "echo $$ >> %s/compiling\nsleep 60\n",
                 before, dir);
        write_file(scratch("cc"), text);
        CHECK(!chmod(scratch("cc"), 0700));
        setenv("CC", scratch("cc"), 1);
        setenv("CXX", scratch("cc"), 1);
        setenv("TMPDIR", scratch("tmp"), 1);
}

static bool any_of(const char *folder)
{
        DIR *d = opendir(folder);
        bool found = false;
        for (struct dirent *f; d && (f = readdir(d));)
                found |= *f->d_name != '.';
        if (d)
                closedir(d);
        return found;
}

/* Is one of the processes written down still there? */
static bool any_alive(const char *path)
{
        FILE *f = fopen(path, "r");
        int pid, alive = 0;
        while (f && fscanf(f, "%d", &pid) == 1)
                alive += !kill(pid, 0);
        if (f)
                fclose(f);
        return alive;
}

static int interrupted(const char *line, int number)
{
        struct stat st;
        remove(scratch("compiling"));
        pid_t pid = begin(line);
        for (int i = 0; i < 10000 && (stat(scratch("compiling"), &st) || !st.st_size); i++)
                usleep(1000);
        usleep(20000);
        kill(pid, number);
        return finish(pid);
}

TEST (a_signal_while_compiling_leaves_nothing) {
        static const struct {
                const char *line, *before;
                int number, code;
        } want[] = {
                { "compile " MODEL " --target cpu -o /dev/null", "", SIGINT, 130 },
                { "compile " MODEL " --target all -o /dev/null", "", SIGINT, 130 },
                { "run " MODEL " --prompt-ids 1 --device cpu", "", SIGTERM, 143 },
                { "run " MODEL " --prompt-ids 1 --device emulate", "", SIGINT, 130 },
                { "bench " MODEL " --device cpu", "", SIGTERM, 143 },
                /* it must be killed */
                { "check " MODEL " --device cpu", "trap '' TERM", SIGTERM, 143 },
        };
        static const char *const name[] = { "CC", "CXX", "TMPDIR" };
        enum { N = sizeof want / sizeof *want };
        char *old[3];
        bool folder[N], alive[N], started[N];
        int code[N];
        need_cpu();
        for (int i = 0; i < 3; i++)
                old[i] = getenv(name[i]) ? strdup(getenv(name[i])) : NULL;
        CHECK(!mkdir(scratch("tmp"), 0700) || errno == EEXIST);
        for (int i = 0; i < N; i++) {
                play_compiler(want[i].before);
                code[i] = interrupted(want[i].line, want[i].number);
                started[i] = file_exists(scratch("compiling"));
                folder[i] = any_of(scratch("tmp"));
                alive[i] = any_alive(scratch("compiling"));
        }
        for (int i = 0; i < 3; i++) {
                old[i] ? setenv(name[i], old[i], 1) : unsetenv(name[i]);
                free(old[i]);
        }
        for (int i = 0; i < N; i++) {
                CHECK_MSG(started[i], "tgc %s: no compiler was started: %s", want[i].line, r.err);
                CHECK_MSG(code[i] == want[i].code, "tgc %s: exit code %d, not %d: %s", want[i].line,
                          code[i], want[i].code, r.err);
                CHECK_MSG(!folder[i], "tgc %s: a temporary folder stays", want[i].line);
                CHECK_MSG(!alive[i], "tgc %s: a compiler goes on", want[i].line);
        }
}

/* Attention that sees later tokens can be trained, not generated with. */
TEST (models_that_only_train) {
        char line[600];
        const char *plan = scratch("mask.plan"),
                   *why = "%blk5.att sees tokens that come later, for it has causal=0";
        snprintf(line, sizeof line, "compile tests/e2e/check/widths.lua -O0 -D mask=true -o %s",
                 plan);
        CHECK(tgc(line) == 0);
        CHECK_MSG(strstr(r.err, "widths.lua:") && strstr(r.err, ": note: attention") &&
                          strstr(r.err, why) && strstr(r.err, "training alone"),
                  "%s", r.err);
        snprintf(line, sizeof line,
                 "compile tests/e2e/check/widths.lua -O0 -D mask=true --mode both -o %s", plan);
        CHECK(tgc(line) == 3);
        CHECK_MSG(strstr(r.err, ": error: attention") && strstr(r.err, why), "%s", r.err);
        CHECK(tgc("run tests/e2e/check/widths.lua -D mask=true --prompt-ids 1,2") == 3);
        CHECK_MSG(strstr(r.err, why), "%s", r.err);
}

/* A graph of the user's is compared with its programs; one that comes with tgc is not, and a PLAN
 * has been. */
TEST (quick_check_of_a_users_graph) {
        char line[1200];
        snprintf(line, sizeof line, "compile tests/e2e/check/weighted.lua -o %s",
                 scratch("quick.plan"));
        CHECK_MSG(tgc(line) == 0 && !strstr(r.err, "checked"), "%s", r.err);
        snprintf(line, sizeof line, "compile tests/e2e/check/weighted.lua --no-check -o %s",
                 scratch("quick.plan"));
        CHECK_MSG(tgc(line) == 0, "%s", r.err);
        snprintf(line, sizeof line,
                 "compile tests/e2e/check/weighted.lua -D vocab=20000000 -D ctx=8 -b 1 -o %s",
                 scratch("quick.plan"));
        EXPECT(line, 0, "not checked, for it is too large");
        snprintf(line, sizeof line, "run %s --no-check -p a", scratch("quick.plan"));
        EXPECT(line, TGC_USAGE, "--check has no effect");
}

/* Last: what the others made. */
TEST (zz_clean_up) {
        char line[300];
        snprintf(line, sizeof line, "rm -rf '%s'", dir);
        CHECK(!*dir || system(line) == 0);
}

TEST_MAIN
