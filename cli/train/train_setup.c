/* train_setup.c: opens what a run needs: data, tokenizer, plan, session, and an earlier run's
 * state. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "../../runtime/util/file.h"
#include "../load/lora.h"
#include "../objective/objective.h"

/* ---- offsets ---- */

static int open_offsets(Train *t, Err *e)
{
        const char *path = opt_str(t->a, O_BATCH_OFFSETS);
        Npy *o = &t->offsets;
        int code;
        if (!path)
                return TGC_OK;
        if ((code = npy_open(o, path, e)))
                return code;
        if (o->dtype != CK_I64 || o->rank != 3)
                return err_set(e, TGC_BAD_FILE,
                               "%s: rank %d of %s; int64 [steps, accumulation, batch] is wanted",
                               path, o->rank, ck_dtype_name(o->dtype));
        if (!o->count || o->dim[1] > 1 << 20 || o->dim[2] > 256 || o->dim[0] > 1 << 30)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: %lld steps of %lld x %lld windows; there must be one of each, and at "
                        "most 2^30, 2^20 and 256",
                        path, (long long)o->dim[0], (long long)o->dim[1], (long long)o->dim[2]);
        if (opt_set(t->a, O_BATCH) && opt_int(t->a, O_BATCH) != o->dim[2])
                return err_set(e, TGC_USAGE, "--batch_size %d: %s has %lld windows",
                               opt_int(t->a, O_BATCH), path, (long long)o->dim[2]);
        if (opt_set(t->a, O_ACCUM) && opt_int(t->a, O_ACCUM) != o->dim[1])
                return err_set(e, TGC_USAGE, "--gradient_accumulation_steps %d: %s has %lld",
                               opt_int(t->a, O_ACCUM), path, (long long)o->dim[1]);
        if (opt_set(t->a, O_MAX_ITERS) && opt_int(t->a, O_MAX_ITERS) > o->dim[0])
                return err_set(e, TGC_USAGE, "--max_iters %d: %s has %lld steps",
                               opt_int(t->a, O_MAX_ITERS), path, (long long)o->dim[0]);
        return TGC_OK;
}

static int check_offsets(const Train *t, Err *e)
{
        const Npy *o = &t->offsets;
        const int64_t n = t->data.source[0].tokens.n;
        if (o->rank && (t->data.n > 1 || t->records))
                return err_set(e, TGC_USAGE, "--batch_offsets needs one text or one stream of ids");
        for (int64_t i = 0; i < o->count; i++)
                if (o->u.i64[i] < 0 || o->u.i64[i] > n - t->T - 1)
                        return err_set(
                                e, TGC_BAD_FILE,
                                "%s: offset %lld at %lld; a window of %d in %lld tokens begins "
                                "at 0 to %lld",
                                opt_str(t->a, O_BATCH_OFFSETS), (long long)o->u.i64[i],
                                (long long)i, t->T, (long long)n, (long long)n - t->T - 1);
        return TGC_OK;
}

/* ---- the plan ---- */

static bool is_own_plan(const Train *t, const char *path)
{
        char *own = train_path(t, "model.plan");
        struct stat a, b;
        bool same = own && !stat(own, &a) && !stat(path, &b) && a.st_dev == b.st_dev &&
                    a.st_ino == b.st_ino;
        free(own);
        return same;
}

static bool has_frozen(const Session *s)
{
        const Manifest *m = session_manifest(s);
        return m->n_train < m->n_all;
}

/* --lora DIR goes on with that adapter. */
static int load_adapter(Train *t, Err *e)
{
        const OptionValue *v = &t->a->v[O_LORA];
        Adapters s;
        if (v->n > 1)
                return err_set(e, TGC_USAGE, "train: trains one adapter, and there are %d --lora",
                               v->n);
        int code = v->n ? adapters_open(&s, v->list, v->n, t->a->pos[0], e) : TGC_OK;
        if (code || !v->n)
                return code;
        if (s.a[0].scale != 1)
                code = err_set(e, TGC_USAGE,
                               "train: --lora %.200s: a scale has no effect in training: leave "
                               "it out",
                               v->list[0]);
        else
                code = adapters_into_session(t->s, &t->l.plan, &s, e);
        adapters_free(&s);
        return code;
}

/* What training takes its sizes from; they are the same for every target. */
static int read_programs(Train *t, Err *e)
{
        static const char *const target[] = { "program.cpu", "program.cuda" };
        const Section *m = plan_find(&t->l.plan, "manifest"), *p = NULL;
        int i = 0;
        while (i < 2 && !(p = plan_find(&t->l.plan, target[i])))
                i++;
        if (!m || !p)
                return err_set(e, TGC_BAD_FILE, "%s: the plan has no %s: compile the model again",
                               t->a->pos[0], m ? "programs" : "manifest");
        int code = manifest_parse(&t->m, m->data, m->size, e);
        return code ? code : program_parse(&t->p, p->data, p->size, target[i], e);
}

/* The plan, from which no kernel is compiled yet.  *init: where weights come from, or NULL; it may
 * be path, which has room for 4400 bytes. */
static int open_plan(Train *t, char *path, const char **init, Err *e)
{
        ModelKind kind;
        bool there = false;
        Args a = *t->a;
        LoadHow how = { .mode = BUILD_INFER | BUILD_TRAIN, .no_weights = true };
        int code = model_kind(a.pos[0], &kind, path, 4400, e);
        *init = opt_str(t->a, O_INIT_FROM);
        how.bounds = data_packs(t);
        how.sequences = aim_sequences(t);
        if (code || (code = data_tokenizer(t, kind, path, &how.tok, e)))
                return code;
        t->in_place = is_own_plan(t, path);
        t->plan = kind == MODEL_PLAN;
        if (opt_int(&a, O_PAD_TO) && !opt_int(&a, O_BLOCK))
                a.v[O_BLOCK].i = opt_int(&a, O_PAD_TO);
        if (t->offsets.rank)
                a.v[O_BATCH].i = t->offsets.dim[2];
        if (!*init && kind == MODEL_HF &&
            (code = folder_weights(path, "--init_from scratch", &there, e)))
                return code;
        if ((code = load(&t->l, &a, &how, e)) || (code = settings_same(t, e)) ||
            (code = read_programs(t, e)))
                return code;
        if (!*init && (there || kind == MODEL_LLAMA2C || kind == MODEL_GGUF))
                *init = path;
        if (!*init && kind == MODEL_HF)
                say(&t->talk, "%s: no weights here, so training begins with random ones\n", path);
        if (*init && !strcmp(*init, "scratch")) {
                plan_remove(&t->l.plan, "weights");
                *init = NULL;
        }
        return TGC_OK;
}

/* Kernels.  Weights go into the session in float32, past the plan's rounding. */
static int open_kernels(Train *t, const char *init, Err *e)
{
        const int samples = opt_int(t->a, O_SAMPLE_INTERVAL) > 0 || aim_sequences(t);
        int code;
        if ((code = open_session(&t->s, &t->l.plan, t->a,
                                 SESSION_TRAIN | (samples ? SESSION_INFER : 0), t->state.seed,
                                 samples ? "step add_grads update ema_swap eval logp prefill decode"
                                         : "step add_grads update ema_swap eval logp",
                                 aim_sequences(t) ? aim_sequences(t) : samples, e)) ||
            (code = offload_check(t->s, t->a, e)))
                return code;
        /* of a run that goes on only what is frozen comes from there */
        if (opt_flag(t->a, O_RESUME) && !has_frozen(t->s))
                init = NULL;
        if (init && (code = import_params(t->s, &t->l.plan, init, e)))
                return code;
        return load_adapter(t, e);
}

/* ---- settings ---- */

/* Of f16 alone: bf16 has float32's range. */
static int set_loss_scale(Train *t, Err *e)
{
        static const OptionId option[] = { O_LOSS_SCALE, O_LOSS_SCALE_WINDOW };
        const double fixed = opt_num(t->a, O_LOSS_SCALE);
        t->scaling = session_manifest(t->s)->dtype == STORE_F16;
        for (int i = 0; i < 2 && !t->scaling; i++)
                if (opt_set(t->given, option[i]))
                        return err_set(
                                e, TGC_USAGE,
                                "--%s has no effect: it is for --dtype f16, and this plan is %s",
                                option_info[option[i]].name,
                                session_manifest(t->s)->dtype == STORE_BF16 ? "bf16" : "f32");
        t->state.scale = (LossScale) { .scale = fixed > 0 ? fixed : LOSS_SCALE_FIRST };
        t->scale_window = fixed > 0 ? 0 : opt_int(t->a, O_LOSS_SCALE_WINDOW);
        return TGC_OK;
}

/* What the plan's optimiser has: asked for, or its own default.  What it has not cannot be asked
 * for. */
static int set_optimizer(Train *t, Err *e)
{
        const char *name = session_manifest(t->s)->optimizer;
        t->optimizer = optimizer_find(name);
        if (t->optimizer == N_OPTIMIZERS)
                return err_set(e, TGC_BAD_FILE, "the plan trains with '%.40s', which is not known",
                               name);
        const OptimizerInfo *o = &optimizer_info[t->optimizer];
        const struct {
                OptionId option;
                double own, *to;
        } number[] = { { O_BETA1, o->beta1, &t->beta1 },
                       { O_BETA2, o->beta2, &t->beta2 },
                       { O_EPS, o->eps, &t->eps } };
        for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
                if (number[i].own < 0 && opt_set(t->given, number[i].option))
                        return err_set(e, TGC_USAGE, "--%s has no effect: %s has none",
                                       option_info[number[i].option].name, o->text);
                if (number[i].option == O_EPS && opt_set(t->given, O_EPS) &&
                    opt_num(t->given, O_EPS) < 1e-38)
                        return err_set(e, TGC_USAGE,
                                       "--eps: %g is too small: a weight whose gradients are all 0 "
                                       "would become NaN; %s has %g by default",
                                       opt_num(t->given, O_EPS), o->text, o->eps);
                *number[i].to = opt_set(t->a, number[i].option) ? opt_num(t->a, number[i].option)
                                : number[i].own < 0             ? 0
                                                                : number[i].own;
        }
        return TGC_OK;
}

/* Do its kernels look at Rt's most_norm? */
static bool knows_spikes(const Train *t)
{
        static const char word[] = "most_norm";
        char name[32];
        snprintf(name, sizeof name, "headers.%s",
                 dev_which(session_device(t->s)) == DEV_CPU ? "cpu" : "cuda");
        const Section *h = plan_find(&t->l.plan, name);
        return h && memmem(h->data, h->size, word, sizeof word - 1);
}

/* What the data is cut to. */
static int sizes(Train *t, Err *e)
{
        const Prog *step = program_find(&t->p, "step");
        const Args *a = t->a;
        const Npy *o = &t->offsets;
        if (!step)
                return err_set(e, TGC_USAGE,
                               "%s was compiled for inference only; compile it with --mode train",
                               a->pos[0]);
        t->B = o->rank ? (int)o->dim[2] : opt_int(a, O_BATCH) ? opt_int(a, O_BATCH) : step->B;
        t->T = opt_int(a, O_BLOCK) ? opt_int(a, O_BLOCK) : step->T;
        t->n_micro = o->rank ? (int)o->dim[1] : opt_int(a, O_ACCUM);
        t->max_steps = o->rank && !opt_set(a, O_MAX_ITERS) ? (int)o->dim[0]
                                                           : opt_int(a, O_MAX_ITERS);
        if (t->B != step->B || t->T != step->T) /* training kernels know their sizes */
                return err_set(
                        e, TGC_USAGE,
                        "batches of %d x %d tokens: the plan was compiled for %d x %d; compile "
                        "with "
                        "--batch-size %d --block-size %d",
                        t->B, t->T, step->B, step->T, t->B, t->T);
        const bool bounds = prog_io(step, "documents");
        if (data_packs(t) && !bounds)
                return err_set(
                        e, TGC_USAGE,
                        "%s: records share rows, and the plan knows no documents: compile it "
                        "with --documents TOKEN, or give --no-packing",
                        a->pos[0]);
        if (opt_int(a, O_PAD_TO) > t->T)
                return err_set(e, TGC_USAGE, "--pad_to %d: a row has %d tokens (--block-size)",
                               opt_int(a, O_PAD_TO), t->T);
        size_t n = (size_t)t->n_micro * (size_t)t->B * (size_t)t->T;
        if (t->records && bounds && !(t->d = malloc(2 * n * sizeof *t->d)))
                return err_set(e, TGC_NO_MEMORY, "no memory for batches of %zu tokens", n);
        t->x = malloc(n * sizeof *t->x);
        t->y = malloc(n * sizeof *t->y);
        return t->x && t->y ? TGC_OK
                            : err_set(e, TGC_NO_MEMORY, "no memory for batches of %zu tokens", n);
}

static int settings(Train *t, Err *e)
{
        const Args *a = t->a;
        const Npy *o = &t->offsets;
        t->schedule = (Schedule) {
                .lr = opt_num(a, O_LR),
                .min_lr = opt_set(a, O_MIN_LR) ? opt_num(a, O_MIN_LR) : opt_num(a, O_LR) / 10,
                .warmup = opt_int(a, O_WARMUP),
                .decay_steps = opt_set(a, O_DECAY_ITERS) ? opt_int(a, O_DECAY_ITERS) : t->max_steps,
                .decay = opt_set(a, O_DECAY_LR) ? opt_flag(a, O_DECAY_LR) : !o->rank,
                .kind = (ScheduleKind)opt_int(a, O_LR_SCHEDULE)
        };
        t->schedule.cooldown = opt_set(a, O_COOLDOWN) ? opt_int(a, O_COOLDOWN)
                                                      : (t->schedule.decay_steps + 4) / 5;
        if (t->schedule.kind == SCHEDULE_WSD && t->schedule.cooldown > t->schedule.decay_steps)
                return err_set(e, TGC_USAGE,
                               "--lr_cooldown_iters %d: the rate falls in the last of %d steps "
                               "(%s); give fewer, or more steps",
                               (int)t->schedule.cooldown, (int)t->schedule.decay_steps,
                               opt_set(a, O_DECAY_ITERS) ? "--lr_decay_iters" : "--max_iters");
        if (t->schedule.decay && t->schedule.min_lr > t->schedule.lr)
                return err_set(
                        e, TGC_USAGE,
                        "--min_lr %g: the rate falls to it from --learning_rate, which is %g",
                        t->schedule.min_lr, t->schedule.lr);
        int code = set_optimizer(t, e);
        if (code || (code = set_loss_scale(t, e)))
                return code;
        if (t->max_steps > 0 && t->schedule.warmup > t->max_steps)
                say(&t->talk,
                    "warning: the learning rate rises for %d steps (%s--warmup_iters), and the run "
                    "has %lld: it ends at %.3g, and never reaches %g\n",
                    (int)t->schedule.warmup, opt_set(a, O_WARMUP) ? "" : "the default of ",
                    (long long)t->max_steps, schedule_lr(&t->schedule, t->max_steps - 1),
                    t->schedule.lr);
        if (opt_num(a, O_SKIP_SPIKES) > 0 && opt_num(a, O_SKIP_SPIKES) <= 1)
                return err_set(
                        e, TGC_USAGE,
                        "--skip_spikes %g: give a number above 1, or 0 for none: at 1 a step "
                        "with the mean norm would be skipped",
                        opt_num(a, O_SKIP_SPIKES));
        if (opt_num(a, O_SKIP_SPIKES) > 0 && !knows_spikes(t))
                return err_set(e, TGC_USAGE,
                               "--skip_spikes has no effect: an older tgc compiled %s; compile "
                               "the model again, or give --rebuild",
                               a->pos[0]);
        return TGC_OK;
}

/* What makes a step but for the optimiser's settings, which may change. */
static int describe(Train *t, Err *e)
{
        const Section *graph = plan_find(&t->l.plan, "graph"),
                      *vocab = plan_find(&t->l.plan, "tokenizer");
        TrainState *st = &t->state;
        if (is_bin(t->data.source[0].file[0]))
                vocab = NULL;
        st->tokens = sources_tokens(&t->data);
        st->batch = t->B;
        st->block = t->T;
        st->accum = t->n_micro;
        st->graph = graph ? XXH3_64bits(graph->data, graph->size) : 0;
        st->text = data_hash(t);
        if (vocab)
                st->text = XXH3_64bits_withSeed(vocab->data, vocab->size, st->text);
        return has_frozen(t->s) ? state_frozen(t->s, &st->frozen, e) : TGC_OK;
}

/* A resumed run equals an uninterrupted one, so it must be the same. */
static int same_run(const TrainState *was, const TrainState *now, const char *path, const Args *a,
                    Err *e)
{
        const struct {
                OptionId option;
                uint64_t was, now;
        } size[] = { { O_TRAIN_SEED, was->seed, now->seed },
                     { O_BATCH, (uint64_t)was->batch, (uint64_t)now->batch },
                     { O_BLOCK, (uint64_t)was->block, (uint64_t)now->block },
                     { O_ACCUM, (uint64_t)was->accum, (uint64_t)now->accum } };
        const char *data = a->v[O_TRAIN_DATA].list[0];
        if (was->tokens != now->tokens)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the run that is resumed had %lld tokens of data, %s has "
                               "%lld",
                               path, (long long)was->tokens, data, (long long)now->tokens);
        if (was->text != now->text)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the run before had %lld other tokens of data than %s has%s",
                               path, (long long)was->tokens, data,
                               a->v[O_VAL_DATA].n ? ", or another --val_data" : "");
        if (was->graph != now->graph)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the run that is resumed trained another model than %s with "
                               "these -D; --init_from takes only its weights",
                               path, a->pos[0]);
        if (was->frozen && was->frozen != now->frozen)
                return err_set(
                        e, TGC_USAGE,
                        "%s: the weights that are not trained are not those of the run before; "
                        "--init_from says where they are now",
                        path);
        for (size_t i = 0; i < sizeof size / sizeof *size; i++)
                if (size[i].was != size[i].now)
                        return err_set(e, TGC_USAGE, "--%s %llu: the run before had --%s %llu",
                                       option_info[size[i].option].name,
                                       (unsigned long long)size[i].now,
                                       option_info[size[i].option].name,
                                       (unsigned long long)size[i].was);
        return TGC_OK;
}

static int resume(Train *t, Err *e)
{
        char *path = train_path(t, "state.safetensors");
        TrainState was = t->state;
        int code;
        if (!path)
                return err_set(e, TGC_NO_MEMORY, "no memory");
        if (!(code = state_peek(path, &was, e)) &&
            !(code = same_run(&was, &t->state, path, t->a, e)) &&
            !(code = state_load(t->s, path, &was, e))) {
                if (!t->scale_window) /* what is asked for, or of a plan that has none */
                        was.scale.scale = t->state.scale.scale;
                t->state = was;
        }
        free(path);
        return code;
}

/* nanoGPT's default begins anew too; a forgotten --resume should not go unnoticed. */
static void say_replaced(const Train *t)
{
        char *path = train_path(t, "state.safetensors");
        TrainState was = { 0 };
        if (path && file_exists(path) && !state_peek(path, &was, NULL))
                say(&t->talk,
                    "%s holds a run of %lld steps, which the first checkpoint will replace; "
                    "--resume continues it\n",
                    opt_str(t->a, O_OUT_DIR), (long long)was.step);
        free(path);
}

/* One run at a time.  The file stays: who removes a lock takes it from whoever waits. */
static int lock_folder(Train *t, Err *e)
{
        char *path = train_path(t, ".lock");
        int code = path ? file_lock(&t->lock, path, opt_str(t->a, O_OUT_DIR), e)
                        : err_set(e, TGC_NO_MEMORY, "no memory");
        free(path);
        return code ? code : run_settle(opt_str(t->a, O_OUT_DIR), e);
}

/* Before anything is compiled: whose folder it is, and the settings of the run in it. */
static int go_on(Train *t, Err *e)
{
        char *path = train_path(t, "state.safetensors"), real[4400];
        ModelKind kind;
        int code = TGC_OK;
        if (!path)
                return err_set(e, TGC_NO_MEMORY, "no memory");
        if (!file_exists(path)) /* makes no folder of a misspelt name */
                code = err_set(e, TGC_IO, "%s: no such file, so there is nothing to resume", path);
        else if (!(code = lock_folder(t, e)) && !(code = state_check(path, e)) &&
                 !(code = model_kind(t->a->pos[0], &kind, real, sizeof real, e)))
                code = settings_take(t, path, kind == MODEL_PLAN, e);
        free(path);
        return code;
}

/* nanoGPT's words for it that are no files here; NULL: none. */
static const char *init_word(const Args *a)
{
        const char *s = opt_str(a, O_INIT_FROM);
        if (!s || file_exists(s) || file_is_dir(s))
                return NULL;
        return !strcmp(s, "resume") ? "it is --resume"
               : !strncmp(s, "gpt2", 4)
                       ? "nothing is downloaded: give the model's folder as MODEL, its weights are "
                         "taken"
                       : NULL;
}

static int eval_only(const Train *t, Err *e)
{
        return t->val.T ? TGC_OK
                        : err_set(e, TGC_USAGE,
                                  "--eval_only: nothing is kept for validation (--val_fraction, "
                                  "--eval_iters)");
}

/* What is held already, and sums of gradients, which the first step of several micro-steps
 * makes.  Of a GPU the driver's count, which has kernels' code and what is lost between arenas: on
 * a small run that is some per cent. */
static double forecast(const Train *t)
{
        enum { PAGE = 2 << 20 }; /* of a GPU's memory */
        ArenaUse use[24];
        uint64_t held, driver;
        dev_held(session_device(t->s), &held, &driver);
        double bytes = (double)(driver > held ? driver : held);
        for (int i = 0, n = session_arenas(t->s, use, 24); i < n && i < 24; i++)
                if (t->n_micro > 1 && !use[i].allocated && !strcmp(use[i].name, "gsum"))
                        bytes += driver > held ? (double)((use[i].size + PAGE - 1) / PAGE * PAGE)
                                               : (double)use[i].size;
        return bytes;
}

int train_open(Train *t, const Args *a, Err *e)
{
        const char *init = NULL;
        char real[4400];
        Err why;
        int code;
        *t = (Train) { .args = *a,
                       .opened = clock_s(),
                       .talk = progress_new(a),
                       .last_val = NAN,
                       .log = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 } },
                       .lock = -1 };
        t->a = &t->args;
        t->state.best = INFINITY;
        t->given = a;
        if ((code = again_take(t, e)))
                return code;
        a = t->a;
        if (init_word(a))
                return err_set(e, TGC_USAGE, "--init_from %s: %s", opt_str(a, O_INIT_FROM),
                               init_word(a));
        if (!opt_set(a, O_TRAIN_DATA) && file_exists(a->pos[0]) && !file_is_dir(a->pos[0]) &&
            model_kind(a->pos[0], &(ModelKind) { 0 }, real, sizeof real, &why))
                return err_set(e, TGC_USAGE,
                               "train: %s is not a model; the model comes first: tgc train gpt "
                               "--data %s",
                               a->pos[0], a->pos[0]);
        if (!opt_set(a, O_TRAIN_DATA) && opt_flag(a, O_RESUME) && !file_exists(a->pos[0]))
                return err_set(e, TGC_IO, "%s: no such folder, so there is nothing to resume",
                               a->pos[0]);
        if (!opt_set(a, O_TRAIN_DATA))
                return err_set(e, TGC_USAGE,
                               "train: --data FILE is missing: tgc train %s --data "
                               "FILE",
                               a->pos[0]);
        if ((code = read_max_time(a, &t->max_seconds, e)) || (code = data_find(t, e)))
                return code;
        if (opt_flag(a, O_RESUME) && (code = go_on(t, e)))
                return code;
        t->state.seed = (uint64_t)t->a->v[O_TRAIN_SEED].i;
        if ((code = open_offsets(t, e)) || (code = aim_open(t, e)) ||
            (code = open_plan(t, real, &init, e)) || (code = sizes(t, e)) ||
            (code = data_read(t, e)) || (code = check_offsets(t, e)) || (code = data_split(t, e)))
                return code;
        if (opt_int(a, O_SHOW_DATA) && !opt_flag(a, O_RESUME)) /* no kernel is wanted for that */
                return TGC_OK;
        if ((code = open_kernels(t, init, e)) || (code = settings(t, e)) ||
            (code = aim_ready(t, e)))
                return code;
        if ((code = ema_open(t, e)) || (code = describe(t, e)) ||
            (opt_flag(a, O_RESUME) && (code = resume(t, e))))
                return code;
        if (opt_int(a, O_SHOW_DATA))
                return TGC_OK;
        t->first = (int)t->state.step;
        if (opt_flag(a, O_EVAL_ONLY)) {
                t->memory = forecast(t);
                return eval_only(t, e);
        }
        if ((code = train_samples(t, e)) || (code = make_folder(opt_str(a, O_OUT_DIR), e)) ||
            (!opt_flag(a, O_RESUME) && (code = lock_folder(t, e))))
                return code;
        if (!opt_flag(a, O_RESUME))
                say_replaced(t);
        if ((code = settings_keep(t, t->plan, e)) || (code = again_keep(t, e)))
                return code;
        t->memory = forecast(t);
        t->saved = t->state.step;
        return log_open(&t->log, opt_str(a, O_OUT_DIR), opt_str(a, O_LOG_CSV),
                        opt_flag(a, O_TENSORBOARD), t->state.step, e);
}

void train_close(Train *t)
{
        train_save_close(t);
        log_close(&t->log);
        eval_score_free(&t->score);
        settings_free(t);
        prompts_free(&t->samples);
        again_free(t, t->given);
        file_unlock(t->lock);
        aim_close(t);
        session_close(t->s);
        program_free(&t->p);
        manifest_free(&t->m);
        loaded_free(&t->l);
        npy_close(&t->offsets);
        data_close(t);
        free(t->d);
        free(t->x);
        free(t->y);
        *t = (Train) { 0 };
}
