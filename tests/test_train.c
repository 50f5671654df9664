/* test_train.c: training through the command line, from checkpoint to checkpoint.
 *
 * Against PyTorch: the first gradient, the losses and norms of a hundred steps and the
 * final weights of four small models; tests/e2e/train/README.md has the commands.
 * Beyond it: interruptions, threads, dropout and accumulation.
 *
 * With TGC_LONG=1 the same runs unfused (-O0) and on the emulated GPU too. */
#include "e2e/train/run.h"

typedef struct Job {
        const char *name, *model, *init, *final; /* model NULL: init; files below training/name */
        const char *define;
        int B, T, n_micro;
        double weight_decay;
        bool stacked; /* the gradient file has the experts of a layer in one tensor */
} Job;

static const Job job[] = {
        { "naive_postnorm", "models/naive_gpt.lua", "init.safetensors", "final.safetensors",
          "-D vocab=65 -D ctx=32 -D n_layer=2 -D dropout=0", 8, 32, 1, 0.01, false },
        { "gpt2", NULL, "init", "final", "", 8, 48, 1, 0.1, false },
        { "llama_accum2", NULL, "init", "final", "", 4, 48, 2, 0.1, false },
        { "mixtral_aux", NULL, "init", "final", "", 8, 32, 1, 0.1, true },
};
enum { NAIVE, GPT2, LLAMA, MIXTRAL, STEPS = 100 };

static void need_long(void)
{
        if (!getenv("TGC_LONG"))
                SKIP("TGC_LONG is not set");
}

/* The job's plan, made once of each data. */
static const char *plan_of(const Job *j, const char *device, int opt)
{
        char name[80];
        snprintf(name, sizeof name, "%s%d.%s.O%d.plan", j->name, data_on, device, opt);
        const char *path = in_scratch(name), *was = getenv("TGC_CFLAGS");
        char *flags = was && j->init ? strdup(was) : NULL;
        if (flags) /* run.sh's; what is compared with PyTorch is built as for users */
                unsetenv("TGC_CFLAGS");
        if (!file_exists(path))
                tgc(0,
                    "compile %s %s%s -o %s --mode train -O %d -b %d --block-size %d --tokenizer "
                    "char:%s%s -q",
                    j->model ? j->model : data_at("training/%s/init", j->name), j->define,
                    j != &job[NAIVE] ? ""
                    : data_is_own()  ? " -D n_embd=32"
                                     : " -D n_embd=64",
                    path, opt, j->B, j->T, text_file(),
                    strcmp(device, "cpu") ? " --target cuda" : " --target cpu");
        if (flags)
                setenv("TGC_CFLAGS", flags, 1);
        free(flags);
        return path;
}

/* ---- against PyTorch ---- */

static void check_curve(const Job *j, const char *csv, int steps)
{
        static Row got[STEPS], want[STEPS];
        CHECK(read_csv(data_at("training/%s/loss.csv", j->name), want, steps) == steps);
        int n = read_csv(csv, got, STEPS);
        CHECK_MSG(n == steps, "%s: %d lines, not %d", csv, n, steps);
        for (int i = 0; i < steps; i++) {
                const Row *a = &got[i], *b = &want[i];
                CHECK_MSG(a->step == i && fabs(a->lr - b->lr) <= 1e-9 * b->lr,
                          "%s: step %g, lr %.9g, not %.9g", j->name, a->step, a->lr, b->lr);
                /* two orders of adding float32: 1e-6 was seen */
                CHECK_MSG(fabs(a->loss - b->loss) <= 2e-5 &&
                                  fabs(a->aux_loss - b->aux_loss) <= 2e-5 &&
                                  fabs(a->grad_norm - b->grad_norm) <= 2e-5 * b->grad_norm,
                          "%s: step %d: loss %.7f, aux_loss %.7f, norm %.7f; PyTorch has %.7f, "
                          "%.7f, %.7f",
                          j->name, i, a->loss, a->aux_loss, a->grad_norm, b->loss, b->aux_loss,
                          b->grad_norm);
        }
}

static const float *floats(const Checkpoint *ck, const char *name, size_t *n)
{
        const CkTensor *t = checkpoint_find(ck, name);
        CHECK_MSG(t && t->dtype == CK_F32, "%s: no float32 tensor %s", checkpoint_path(ck), name);
        *n = t->bytes / 4;
        return t->data;
}

/* Where the reference keeps our tensor: mlp.experts.gate_up_proj (E, 2F, C) is w1 over
 * w3 of each expert, down_proj (E, C, F) is w2. */
static const float *in_stack(const Checkpoint *ck, const char *name, size_t n)
{
        char other[300];
        const char *at = strstr(name, ".block_sparse_moe.");
        int layer = (int)(at - name), expert, w;
        size_t all;
        const float *x;
        if (sscanf(at, ".block_sparse_moe.experts.%d.w%d", &expert, &w) == 2) {
                snprintf(other, sizeof other, "%.*s.mlp.experts.%s", layer, name,
                         w == 2 ? "down_proj" : "gate_up_proj");
                x = floats(ck, other, &all) + (size_t)expert * n * (w == 2 ? 1 : 2) +
                    (w == 3 ? n : 0);
                CHECK((size_t)expert * n * (w == 2 ? 1 : 2) + (w == 3 ? n : 0) + n <= all);
                return x;
        }
        snprintf(other, sizeof other, "%.*s.mlp.%s", layer, name,
                 at + strlen(".block_sparse_moe."));
        x = floats(ck, other, &all);
        CHECK(all == n);
        return x;
}

/* Relative norms of every tensor, and of all together.  All together have a norm of about 1: a
 * tensor a millionth of that (the keys of a first step, whose scores are all alike) is what larger
 * numbers leave, and rounds as they do. */
static void check_tensors(const char *ours, const char *theirs, bool stacked, double each,
                          double all)
{
        Checkpoint *a = weights_of(ours), *b = weights_of(theirs);
        Gap sum = { 0, 0 };
        size_t counted = 0, owed = 0;
        for (int i = 0; i < checkpoint_count(a); i++) {
                const char *name = checkpoint_at(a, i)->name;
                size_t n, m;
                const float *x = floats(a, name, &n), *y;
                if (stacked && strstr(name, ".block_sparse_moe.")) {
                        y = in_stack(b, name, n);
                } else {
                        y = floats(b, name, &m);
                        CHECK_MSG(m == n, "%s: %zu values, not %zu", name, n, m);
                }
                Gap g = gap(x, y, n);
                CHECK_MSG(gap_of(g) <= each || sqrt(g.diff) <= 1e-10,
                          "%s: %s is off by %.3g of its norm %.3g", ours, name, gap_of(g),
                          sqrt(g.size));
                sum.diff += g.diff;
                sum.size += g.size;
                counted += n;
        }
        for (int i = 0; i < checkpoint_count(b); i++)
                owed += checkpoint_at(b, i)->bytes / 4;
        CHECK_MSG(counted == owed, "%s has %zu values, %s %zu", ours, counted, theirs, owed);
        CHECK_MSG(gap_of(sum) <= all, "%s is off by %.3g of its norm", ours, gap_of(sum));
        checkpoint_close(a);
        checkpoint_close(b);
}

/* One thread of a CPU; a GPU has none to set. */
static const char *threads_of(const char *device) { return strcmp(device, "cuda") ? "-t 1" : ""; }

static void repeat(const Job *j, const char *device, int opt, int steps)
{
        char dir[300], out[80];
        snprintf(dir, sizeof dir, "%s", data_at("training/%s", j->name));
        data_need(dir);
        const char *plan = plan_of(j, device, opt);
        const char *grads = in_scratch("grads.safetensors"), *csv = in_scratch("loss.csv");
        snprintf(out, sizeof out, "%s%d.out", j->name, data_on);
        const char *to = in_scratch(out);
        tgc(0,
            "train %s --device %s %s -q --data %s --init_from %s/%s --batch_offsets %s/starts.npy "
            "--max_iters %d --learning_rate 1e-3 --warmup_iters 5 --weight_decay %g --grad_clip 1 "
            "--grads_out %s --log_csv %s -o %s",
            plan, device, threads_of(device), text_file(), dir, j->init, dir, steps,
            j->weight_decay, grads, csv, to);
        check_curve(j, csv, steps);
        char a[400], b[400];
        snprintf(b, sizeof b, "%s/grad_step0_clipped.safetensors", dir);
        check_tensors(grads, b, j->stacked, 1e-5, 1e-5);
        if (steps < STEPS)
                return;
        /* AdamW makes steps of the noise in what has no gradient (the key's bias): part of a tensor
         * may be off more */
        snprintf(a, sizeof a, "%s/ckpt.safetensors", to);
        snprintf(b, sizeof b, "%s/%s", dir, j->final);
        check_tensors(a, b, false, 5e-3, 1e-4);
}

/* tests/cuda.sh names the GPU. */
static const char *device(void)
{
        const char *d = getenv("TGC_TEST_DEVICE");
        return d ? d : "cpu";
}

/* With kernels built as for users (run.sh has others of most tests built faster): it runs long. */
static void repeat_as_built(const Job *j)
{
        char *flags = getenv("TGC_CFLAGS") ? strdup(getenv("TGC_CFLAGS")) : NULL;
        unsetenv("TGC_CFLAGS");
        repeat(j, device(), 3, STEPS);
        if (flags)
                setenv("TGC_CFLAGS", flags, 1);
        free(flags);
}

TEST_DATA (naive_postnorm_as_pytorch) {
        repeat_as_built(&job[NAIVE]);
}
TEST_DATA (gpt2_as_pytorch) {
        repeat_as_built(&job[GPT2]);
}
TEST_DATA (llama_accumulating_as_pytorch) {
        repeat_as_built(&job[LLAMA]);
}
TEST_DATA (mixtral_with_balance_loss_as_pytorch) {
        repeat_as_built(&job[MIXTRAL]);
}

TEST_DATA (unfused_as_pytorch) {
        need_long();
        for (int i = 0; i <= MIXTRAL; i++)
                repeat(&job[i], "cpu", 0, STEPS);
}

TEST_DATA (emulated_as_pytorch) {
        need_long();
        for (int i = 0; i <= MIXTRAL; i++)
                repeat(&job[i], "emulate", 3, 3);
}

/* ---- accumulation: the gradient of n micro-batches is the mean of theirs ---- */

static void micro_batches(const Job *j, const char *device, const char *more)
{
        enum { MICRO = 4, MOST_B = 8 };
        int64_t at[MICRO * MOST_B];
        const int B = j->B;
        char line[2000], one[80];
        data_need(text_file());
        for (int i = 0; i < MICRO * B; i++)
                at[i] = (int64_t)i * 31337 % (data_is_own() ? 98000 : 1000000);
        const char *plan = plan_of(j, device, 3);
        snprintf(line, sizeof line, "train %s --device %s %s -q --data %s %s --grad_clip 0 -o %s",
                 plan, device, threads_of(device), text_file(), more, in_scratch("accum"));
        write_offsets(in_scratch("all.npy"), 1, MICRO, B, at);
        tgc(0, "%s --batch_offsets %s --grads_out %s --log_csv %s", line, in_scratch("all.npy"),
            in_scratch("all.safetensors"), in_scratch("all.csv"));
        double loss = 0;
        Row row;
        Checkpoint *part[MICRO], *all = weights_of(in_scratch("all.safetensors"));
        for (int m = 0; m < MICRO; m++) {
                snprintf(one, sizeof one, "one%d.safetensors", m);
                write_offsets(in_scratch("one.npy"), 1, 1, B, at + m * B);
                tgc(0, "%s --batch_offsets %s --grads_out %s --log_csv %s", line,
                    in_scratch("one.npy"), in_scratch(one), in_scratch("one.csv"));
                CHECK(read_csv(in_scratch("one.csv"), &row, 1) == 1);
                loss += row.loss / MICRO;
                part[m] = weights_of(in_scratch(one));
        }
        CHECK(read_csv(in_scratch("all.csv"), &row, 1) == 1);
        CHECK_MSG(fabs(row.loss - loss) < 2e-6, "the loss is %.8f, the mean of the parts %.8f",
                  row.loss, loss);
        for (int i = 0; i < checkpoint_count(all); i++) {
                const CkTensor *t = checkpoint_at(all, i);
                size_t n = t->bytes / 4;
                const float *x = t->data;
                Gap g = { 0, 0 };
                for (size_t k = 0; k < n; k++) {
                        double mean = 0;
                        for (int m = 0; m < MICRO; m++)
                                mean += ((const float *)checkpoint_at(part[m], i)->data)[k] /
                                        (double)MICRO;
                        g.diff += (x[k] - mean) * (x[k] - mean);
                        g.size += mean * mean;
                }
                CHECK_MSG(gap_of(g) <= 2e-6, "%s: off by %.3g of the mean's norm", t->name,
                          gap_of(g));
        }
        for (int m = 0; m < MICRO; m++)
                checkpoint_close(part[m]);
        checkpoint_close(all);
}

TEST (four_micro_batches_are_one_batch) {
        char more[600];
        snprintf(more, sizeof more, "--init_from %s",
                 data_at("training/naive_postnorm/init.safetensors"));
        micro_batches(&job[NAIVE], "cpu", more);
}

/* Each one's gradients are bf16 on the GPU; their quarters are exact, and so is the sum, but for
 * float32's rounding. */
TEST (bf16_gradients_add_up_in_float32) {
        static const Job narrow = {
                .name = "narrow",
                .model = "models/naive_gpt.lua",
                .B = 2,
                .T = 16,
                .define =
                        "-D vocab=65 -D ctx=16 -D n_layer=1 -D n_embd=32 -D n_head=2 -D dropout=0 "
                        "--dtype bf16"
        };
        micro_batches(&narrow, "emulate", "");
}

/* ---- interruptions, threads: the same bytes, dropout and all ---- */

static const Job dropping = {
        .name = "dropout",
        .model = "models/naive_gpt.lua",
        .B = 4,
        .T = 24,
        .define = "-D vocab=65 -D ctx=24 -D n_layer=1 -D n_embd=32 -D n_head=2 -D dropout=0.1"
};
static const char *const left[] = { "ckpt.safetensors", "state.safetensors", "model.plan",
                                    "log.csv" };
enum { LONG_RUN = 600, CUT = 40 };

static const char *train_line(const char *out, const char *more)
{
        static char line[2000];
        const char *plan = plan_of(&dropping, "cpu", 3);
        mkdir(in_scratch(out), 0777);
        snprintf(line, sizeof line,
                 "train %s --device cpu -q --data %s --warmup_iters 10 --eval_iters 2 "
                 "--eval_interval 25 --log_csv %s/log.csv -o %s %s",
                 plan, text_file(), in_scratch(out), in_scratch(out), more);
        return line;
}

static void check_same(const char *a, const char *b, const char *why)
{
        for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
                char x[600], y[600];
                snprintf(x, sizeof x, "%s/%s", in_scratch(a), left[i]);
                snprintf(y, sizeof y, "%s/%s", in_scratch(b), left[i]);
                CHECK_MSG(same_bytes(x, y), "%s is not the same %s", left[i], why);
        }
}

static int lines_of(const char *path)
{
        FILE *f = fopen(path, "r");
        int n = 0, c;
        while (f && (c = getc(f)) != EOF)
                n += c == '\n';
        if (f)
                fclose(f);
        return n;
}

TEST (an_interrupted_run_goes_on_to_the_same_bytes) {
        char more[80], csv[600];
        snprintf(more, sizeof more, "-t 1 --max_iters %d", LONG_RUN);
        tgc(0, "%s", train_line("whole", more));
        pid_t pid = begin(train_line("cut", more));
        snprintf(csv, sizeof csv, "%s/log.csv", in_scratch("cut"));
        for (int i = 0; i < 20000 && lines_of(csv) <= CUT; i++)
                wait_ms(1);
        kill(pid, SIGINT);
        int code = finish(pid);
        CHECK_MSG(code == 130, "exit code %d, not 130: %s", code, run_said);
        int done = lines_of(csv) - 1;
        CHECK_MSG(done >= CUT && done < LONG_RUN, "interrupted after %d steps", done);
        snprintf(more, sizeof more, "-t 1 --resume --max_iters %d", LONG_RUN);
        tgc(0, "%s", train_line("cut", more));
        check_same("whole", "cut", "after an interruption");
}

/* ---- a text of many documents ---- */

/* Lines of words, 3 to 20 letters each; `:` begins a line. */
static const char *lines_text(void)
{
        const char *path = in_scratch("lines.txt");
        unsigned rng = 3;
        if (file_exists(path))
                return path;
        FILE *f = fopen(path, "w");
        for (int i = 0; i < 600; i++) {
                fputc(':', f);
                for (unsigned n = 3 + (rng = rng * 1664525u + 1013904223u) / 8 % 18, k = 0; k < n;
                     k++)
                        fputc("abcdefgh "[(rng >> 16) * (k + 7) % 9], f);
        }
        CHECK(!fclose(f));
        return path;
}

static double last_loss(const char *csv)
{
        static Row row[100];
        int n = read_csv(csv, row, 100);
        CHECK(n > 0);
        return row[n - 1].loss;
}

TEST (documents_resume_to_the_same_bytes) {
        static const char model[] =
                "models/gpt.lua -D n_layer=1 -D n_head=2 -D n_embd=16 -D ctx=40 -b 3 --device cpu "
                "-t 1 -q";
        char line[1000];
        snprintf(line, sizeof line,
                 "train %s --documents : --data %s --warmup_iters 2 --eval_iters 2 --eval_interval "
                 "10",
                 model, lines_text());
        tgc(0, "%s --max_iters 40 --log_csv %s -o %s", line, in_scratch("docs.csv"),
            in_scratch("docs"));
        tgc(0, "%s --max_iters 20 --lr_decay_iters 40 -o %s", line, in_scratch("parts"));
        tgc(0, "%s --max_iters 40 --resume -o %s", line, in_scratch("parts"));
        CHECK(same_bytes(in_scratch("parts/state.safetensors"),
                         in_scratch("docs/state.safetensors")));
        /* the id of `:` is 1, after the blank; a plan knows its own */
        tgc(0, "compile %s --tokenizer char:%s --mode train --documents 1 -o %s",
            "models/gpt.lua -D n_layer=1 -D n_head=2 "
            "-D n_embd=16 -D ctx=40 -b 3 -q",
            lines_text(), in_scratch("docs.plan"));
        tgc(0,
            "train %s --data %s --warmup_iters 2 --eval_iters 2 --eval_interval 10 --max_iters 40 "
            "--log_csv %s -o %s --device cpu -t 1 -q",
            in_scratch("docs.plan"), lines_text(), in_scratch("plan.csv"), in_scratch("plan"));
        CHECK(last_loss(in_scratch("plan.csv")) == last_loss(in_scratch("docs.csv")));
        tgc(2, "train %s --documents 1 --data %s", in_scratch("docs.plan"), lines_text());
        tgc(2, "train %s --documents zz --data %s", model, lines_text());
        tgc(2, "train %s --documents 99 --data %s", model, lines_text());
}

TEST (two_threads_give_the_bytes_of_one) {
        tgc(0, "%s", train_line("one", "-t 1 --max_iters 30"));
        tgc(0, "%s", train_line("two", "-t 2 --max_iters 30"));
        check_same("one", "two", "with two threads");
        setenv("OMP_NUM_THREADS", "1", 1);
        tgc(0, "%s", train_line("again", "--max_iters 30"));
        check_same("one", "again", "the second time");
        tgc(0, "%s", train_line("other", "-t 1 --max_iters 30 --seed 2"));
        char a[600], b[600];
        snprintf(a, sizeof a, "%s/ckpt.safetensors", in_scratch("one"));
        snprintf(b, sizeof b, "%s/ckpt.safetensors", in_scratch("other"));
        CHECK(!same_bytes(a, b));
}

static bool saved(const char *dir)
{
        char path[600];
        bool all = true;
        for (int k = 0; k < 2; k++) {
                snprintf(path, sizeof path, "%s/%s", in_scratch(dir), left[k]);
                all = all && access(path, F_OK) == 0;
        }
        return all;
}

/* Killed while it saves at every step: what is there is whole, and goes on. */
TEST (a_killed_run_leaves_a_whole_state) {
        char path[600];
        for (int i = 0; i < 8; i++) {
                pid_t pid = begin(
                        train_line("killed",
                                   "-t 1 --max_iters 100000 --eval_interval 1 --eval_iters 1"));
                snprintf(path, sizeof path, "%s/log.csv", in_scratch("killed"));
                remove(path);
                /* the header, the validation before, two steps; a save goes on beside them */
                for (int k = 0; k < 20000 && (lines_of(path) < 4 || !saved("killed")); k++)
                        wait_ms(1);
                wait_ms(i * 3);
                kill(pid, SIGKILL);
                CHECK(finish(pid) == 1000 + SIGKILL);
                for (int k = 0; k < 2; k++) {
                        snprintf(path, sizeof path, "%s/%s", in_scratch("killed"), left[k]);
                        checkpoint_close(weights_of(path));
                }
        }
        tgc(0, "%s", train_line("killed", "-t 1 --resume --max_iters 60"));
}

TEST (a_gradient_that_is_not_finite_keeps_the_checkpoint) {
        char state[600], kept[600];
        tgc(0, "%s", train_line("bad", "-t 1 --max_iters 25"));
        snprintf(state, sizeof state, "%s/state.safetensors", in_scratch("bad"));
        snprintf(kept, sizeof kept, "%s/kept", in_scratch("bad"));
        CHECK(!link(state, kept));
        tgc(6, "%s --learning_rate 1000 --min_lr 1000 --weight_decay 10",
            train_line("bad", "-t 1 --resume --max_iters 99"));
        CHECK(same_bytes(state, kept));
}

/* ---- a small run over a text of its own ---- */

static const char *small_data; /* NULL: lines_text() */

static const char *small_line(const char *out, const char *more)
{
        static char line[2000];
        snprintf(line, sizeof line,
                 "train models/gpt.lua -D n_layer=1 -D n_head=2 -D n_embd=16 -D ctx=40 -b 3 --data "
                 "%s --eval_iters 1 --device cpu -t 1 -o %s %s",
                 small_data ? small_data : lines_text(), in_scratch(out), more);
        return line;
}

static void check_says(const char *words)
{
        CHECK_MSG(strstr(run_said, words), "no '%s' in: %s", words, run_said);
}

/* Rates at which the last steps have no loss, but not as many as --max_skips. */
#define DIVERGE                                                                                    \
        " --max_skips 1000 --learning_rate 1000 --min_lr 1000 --weight_decay 10 --warmup_iters 0 " \
        "--grad_clip 0"

TEST (a_last_step_that_is_not_finite_keeps_all) {
        static const char *const kept[] = { "ckpt.safetensors", "state.safetensors", "model.plan" };
        char line[1000], a[100], b[100];
        tgc(6, "%s", small_line("nan", "--max_iters 60" DIVERGE));
        check_says("nothing of this run was saved; try a lower --learning_rate");
        tgc(6, "%s", small_line("nan", "--max_iters 4" DIVERGE)); /* the update of step 3 did it */
        check_says("validation loss");
        check_says("1 step in a row");
        for (int i = 0; i < 3; i++) {
                snprintf(a, sizeof a, "nan/%s", kept[i]);
                CHECK_MSG(!file_exists(in_scratch(a)), "%s was written", kept[i]);
        }
        tgc(0, "%s", small_line("nan", "--max_iters 5"));
        snprintf(line, sizeof line, "cp -r %s %s", in_scratch("nan"), in_scratch("nan.before"));
        CHECK(!system(line));
        tgc(6, "%s", small_line("nan", "--resume --max_iters 60" DIVERGE));
        check_says("what was saved at step 5 is in ");
        tgc(6, "%s", small_line("nan", "--max_iters 60" DIVERGE));
        for (int i = 0; i < 3; i++) {
                snprintf(a, sizeof a, "nan/%s", kept[i]);
                snprintf(b, sizeof b, "nan.before/%s", kept[i]);
                CHECK_MSG(same_bytes(in_scratch(a), in_scratch(b)), "%s is another", kept[i]);
        }
}

/* Start it, and interrupt it after some steps. */
static void interrupt(const char *line, int number)
{
        const char *csv = in_scratch("interrupted.csv");
        char all[2200];
        remove(csv);
        snprintf(all, sizeof all, "%s --log_csv %s --max_iters 100000000", line, csv);
        pid_t pid = begin(all);
        for (int i = 0; i < 20000 && lines_of(csv) < 3; i++)
                wait_ms(1);
        kill(pid, number);
        int code = finish(pid);
        CHECK_MSG(code == 128 + number, "exit code %d, not %d: %s", code, 128 + number, run_said);
}

TEST (no_plan_of_an_earlier_run_stays) {
        char line[1200];
        tgc(0, "%s", small_line("stale", "--max_iters 5"));
        interrupt(small_line("stale", "-q --resume"), SIGINT);
        CHECK(!file_exists(in_scratch("stale/model.plan")));
        tgc(3, "info %s", in_scratch("stale"));
        check_says("training has not finished here");
        snprintf(line, sizeof line, "cp -r %s %s", in_scratch("stale"), in_scratch("stale.copy"));
        CHECK(!system(line));
        tgc(0, "%s", small_line("stale", "--max_iters 5 --resume"));
        CHECK(file_exists(in_scratch("stale/model.plan")));
        /* killed before it saves: as it was */
        pid_t pid = begin(
                small_line("stale", "-q --max_iters 100000000 --eval_interval 100000000"));
        wait_ms(300);
        kill(pid, SIGKILL);
        finish(pid);
        CHECK(file_exists(in_scratch("stale/model.plan")));
        CHECK(same_bytes(in_scratch("stale/state.safetensors"),
                         in_scratch("stale.copy/state.safetensors")));
}

TEST (a_plan_trained_where_it_lies_stays) {
        char line[1200];
        tgc(0, "%s", small_line("place", "--max_iters 5"));
        snprintf(line, sizeof line,
                 "train %s --data %s --eval_iters 1 --device cpu -t 1 -o %s -q --resume",
                 in_scratch("place"), lines_text(), in_scratch("place"));
        interrupt(line, SIGINT);
        snprintf(line, sizeof line, "cp -r %s %s", in_scratch("place"), in_scratch("place.copy"));
        CHECK(!system(line));
        CHECK(!remove(in_scratch("place.copy/model.plan")));
        tgc(0, "%s", small_line("place.copy", "--resume --max_iters 5"));
        CHECK(same_bytes(in_scratch("place/model.plan"), in_scratch("place.copy/model.plan")));
}

TEST (another_run_is_not_resumed) {
        static const struct {
                int code;
                const char *with, *says;
        } other[] = {
                { 3, "-D act=relu", "another model than models/gpt.lua" },
                { 3, "-D n_head=4", "another model than" },
                { 3, "-D dropout=0.5", "another model than" },
                { 2, "-b 4", "--batch-size 4: the run before had --batch-size 3" },
                { 2, "--block-size 20", "--block-size 20: the run before had --block-size 40" },
                { 2, "--gradient_accumulation_steps 2", "had --gradient_accumulation_steps 1" },
        };
        char line[1200], sed[1200];
        snprintf(sed, sizeof sed, "tr a-h A-H < %s > %s && tr ab ba < %s > %s", lines_text(),
                 in_scratch("caps.txt"), lines_text(), in_scratch("swapped.txt"));
        CHECK(!system(sed));
        tgc(0, "%s", small_line("same", "--max_iters 3"));
        for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
                snprintf(line, sizeof line, "--max_iters 6 --resume %s", other[i].with);
                tgc(other[i].code, "%s", small_line("same", line));
                check_says(other[i].says);
        }
        /* as many characters, the same ids; the same characters, other ids */
        for (int i = 0; i < 2; i++) {
                char other_text[600];
                snprintf(other_text, sizeof other_text, "%s",
                         in_scratch(i ? "swapped.txt" : "caps.txt"));
                small_data = other_text;
                tgc(3, "%s", small_line("same", "--max_iters 6 --resume"));
                small_data = NULL;
                check_says("other tokens of data");
        }
        tgc(0, "%s",
            small_line("same",
                       "--max_iters 6 --resume --learning_rate 1e-3 --grad_clip 2 --dtype f32"));
}

TEST (a_run_that_is_replaced_is_named) {
        tgc(0, "%s", small_line("twice", "--max_iters 3"));
        CHECK(!strstr(run_said, "holds a run"));
        tgc(0, "%s", small_line("twice", "--max_iters 3 --resume"));
        CHECK(!strstr(run_said, "holds a run"));
        tgc(0, "%s", small_line("twice", "--max_iters 4"));
        check_says(
                "twice holds a run of 3 steps, which the first checkpoint will replace; --resume "
                "continues it");
}

TEST (nothing_to_resume_makes_nothing) {
        tgc(8, "%s", small_line("typo/deep", "--max_iters 3 --resume"));
        check_says("nothing to resume");
        CHECK(!file_is_dir(in_scratch("typo")));
}

/* Metadata as it was written before sizes and hashes were kept. */
TEST (an_older_state_goes_on) {
        char sed[1200];
        tgc(0, "%s", small_line("older", "--max_iters 3"));
        snprintf(sed, sizeof sed,
                 "sed -i "
                 "'s/\"batch\"/\"b____\"/;s/\"block\"/\"c____\"/;s/\"graph\"/\"g____\"/;"
                 "s/\"text\"/\"t___\"/;s/\"accumulation\"/\"a___________\"/;s/\"xxh3\"/\"x___\"/;"
                 "s/\"run\\./\"was./g' %s",
                 in_scratch("older/state.safetensors"));
        CHECK(!system(sed));
        tgc(0, "%s", small_line("older", "--max_iters 6 --resume -b 4"));
        tgc(2, "%s", small_line("older", "--max_iters 9 --resume -b 3"));
        check_says("had --batch-size 4");
}

TEST (a_lost_terminal_saves) {
        void (*was)(int) = signal(SIGHUP, SIG_DFL);
        interrupt(small_line("hup", "-q"), SIGHUP);
        tgc(0, "%s", small_line("hup", "-q --resume --max_iters 3"));
        signal(SIGHUP, SIG_IGN); /* as nohup does */
        pid_t pid = begin(small_line("nohup", "-q --max_iters 300"));
        wait_ms(100);
        kill(pid, SIGHUP);
        int code = finish(pid);
        signal(SIGHUP, was);
        CHECK_MSG(!code, "exit code %d: %s", code, run_said);
}

TEST (weights_of_other_shapes_are_named) {
        char line[1200];
        tgc(0, "%s", small_line("narrow", "--max_iters 2"));
        snprintf(line, sizeof line, "-D n_embd=32 --max_iters 2 --init_from %s",
                 in_scratch("narrow"));
        tgc(3, "%s", small_line("wide", line));
        check_says("narrow/ckpt.safetensors: shapes differ: parameter wte.weight (gpt.lua:");
        tgc(3,
            "compile models/gpt.lua -D n_layer=1 -D n_head=2 -D n_embd=32 -D vocab=10 -D ctx=40 "
            "--weights %s -o %s",
            in_scratch("narrow"), in_scratch("x.plan"));
        check_says("narrow/ckpt.safetensors: shapes differ: parameter wte.weight (gpt.lua:");
}

/* ---- what eval refuses of it ---- */

TEST (eval_refuses_windows_that_do_not_fit) {
        tgc(0, "%s", small_line("scored", "--max_iters 2"));
        tgc(2, "eval %s --data %s --device cpu -c 1", in_scratch("scored"), lines_text());
        check_says("windows of 1 token; a loss needs two");
        tgc(2, "eval %s --data %s --device cpu -c 41", in_scratch("scored"), lines_text());
        check_says("--ctx-size 41: the plan was compiled for 40");
        tgc(0, "eval %s --data %s --device cpu -c 2", in_scratch("scored"), lines_text());
        tgc(0, "eval %s --data %s --device cpu -c 40 --json", in_scratch("scored"), lines_text());
}

TEST (eval_without_a_loss_says_so_in_json_too) {
        char sed[1200];
        tgc(0, "%s", small_line("scored", "--max_iters 2"));
        /* the last 16 weights are NaNs */
        snprintf(sed, sizeof sed,
                 "f=%s && head -c -64 $f > $f.nan && head -c 64 /dev/zero | tr '\\0' '\\377' >> "
                 "$f.nan && mv $f.nan $f",
                 in_scratch("scored/ckpt.safetensors"));
        CHECK(!system(sed));
        tgc(0,
            "compile models/gpt.lua -D n_layer=1 -D n_head=2 -D n_embd=16 -D ctx=40 --tokenizer "
            "char:%s --weights %s -o %s -q",
            lines_text(), in_scratch("scored/ckpt.safetensors"), in_scratch("nan.plan"));
        tgc(6, "eval %s --data %s --device cpu", in_scratch("nan.plan"), lines_text());
        tgc(6, "eval %s --data %s --device cpu --json", in_scratch("nan.plan"), lines_text());
        check_says("the loss of 7678 tokens is not finite");
}

/* ---- */

TEST (zz_clean_up) {
        char line[300];
        if (!*run_dir)
                SKIP("nothing was made");
        snprintf(line, sizeof line, "rm -rf '%s'", run_dir);
        CHECK(!system(line));
}

TEST_MAIN
