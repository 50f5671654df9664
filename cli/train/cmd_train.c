/* cmd_train.c: tgc train: the loop.
 *
 * Two steps are in flight at a time.  Both are waited for before anything that reads the weights: a
 * validation, a checkpoint, the end. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "../../runtime/weights/ck_tensor.h"
#include "../load/lora.h"
#include "../check/find_nan.h"
#include "../objective/objective.h"

/* ---- saving ---- */

/* What clipping made of the gradients; the update reads them unclipped. */
static int save_grads(Train *t, Err *e)
{
        double clip = opt_num(t->a, O_CLIP), norm = t->last.grad_norm;
        double scale = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
        scale /= t->scaling ? t->grads_scale : 1;
        return export_params(t->s, &t->l.plan, opt_str(t->a, O_GRADS_OUT), EXPORT_GRADS, CK_F32,
                             scale, e);
}

/* ---- talk ---- */

static double tokens_per_second(const Train *t, int64_t done)
{
        double s = clock_s() - t->began;
        return s > 0 ? (double)(done - t->first) * t->B * t->T * t->n_micro / s : 0;
}

/* By the rate of this process: what an earlier one did took no time of it. */
static double seconds_left(const Train *t, int64_t done)
{
        const double rate = tokens_per_second(t, done);
        return rate > 0 ? (double)(t->max_steps - done) * t->B * t->T * t->n_micro / rate : 0;
}

/* As nanoGPT counts: losses at step N are of the weights after N updates; iteration N is the update
 * that follows, and its loss is of the batch that it learns from. */
static void say_losses(Train *t, double train, double val)
{
        progress_bar_end(&t->talk);
        say(&t->talk, "step %lld: train loss %.4f, val loss %.4f%s\n", (long long)t->state.step,
            train, val, ema_for(t, EMA_EVAL) ? ", of the averaged weights" : "");
}

static int log_step(Train *t, int64_t step, double train, double val, Err *e)
{
        const TrainResult *r = &t->last;
        double lr = schedule_lr(&t->schedule, step), rate = tokens_per_second(t, step + 1);
        const LogRow row = { .step = step,
                             .lr = lr,
                             .loss = r->loss,
                             .aux_loss = r->aux_loss,
                             .grad_norm = r->grad_norm,
                             .val_loss = val,
                             .tokens = (double)(step + 1) * t->B * t->T * t->n_micro,
                             .seconds = clock_s() - t->began,
                             .tokens_per_s = rate,
                             .score = t->aim.n_scores ? t->aim.scores / t->aim.n_scores : NAN };
        char n[32], score[40] = "";
        int code = log_step_row(&t->log, &row, e);
        if (code)
                return code;
        text_count_si(n, sizeof n, rate);
        if (t->talk.tty) {
                const int left = (int)seconds_left(t, step + 1);
                char memory[32];
                progress_bar(&t->talk, (double)(step + 1) / t->max_steps,
                             "%lld/%d loss %.4f %s tok/s, %s, %d:%02d:%02d left",
                             (long long)step + 1, t->max_steps, r->loss, n,
                             text_bytes(memory, sizeof memory, t->memory), left / 3600,
                             left / 60 % 60, left % 60);
        } else if (step % opt_int(t->a, O_LOG_INTERVAL) == 0 || step == t->first ||
                   step + 1 == t->max_steps) {
                if (!isnan(row.score))
                        snprintf(score, sizeof score, "score %.4g, ", row.score);
                say(&t->talk, "iter %lld: loss %.4f, %slr %.3g, norm %.3f, %s tok/s\n",
                    (long long)step, r->loss, score, lr, r->grad_norm, n);
        }
        if (!isnan(val))
                say_losses(t, train, val);
        return TGC_OK;
}

/* ---- steps ---- */

/* Of --skip_spikes.  The first SPIKE_FIRST norms make the mean, which moves with the last
 * SPIKE_MEAN; a row of SPIKE_ROW is no accident, so the step behind it counts. */
enum { SPIKE_FIRST = 20, SPIKE_MEAN = 50, SPIKE_ROW = 5 };

static double most_norm(const Train *t)
{
        return t->state.norms.n < SPIKE_FIRST || t->state.norms.row >= SPIKE_ROW
                       ? 0
                       : opt_num(t->a, O_SKIP_SPIKES) * t->state.norms.mean;
}

/* true: the step was a spike, and changed nothing. */
static bool spike_step(Train *t)
{
        const double x = opt_num(t->a, O_SKIP_SPIKES);
        if (t->last.spike) {
                say(&t->talk,
                    "iter %lld: loss %.4f, gradient norm above %g times its mean %.4g: step "
                    "skipped\n",
                    (long long)t->state.step, t->last.loss, x, t->state.norms.mean);
                t->state.norms.row++;
                t->state.step++;
                return true;
        }
        if (x > 0 && !t->last.bad) {
                const int64_t n = ++t->state.norms.n;
                t->state.norms.mean += (t->last.grad_norm - t->state.norms.mean) /
                                       (double)(n < SPIKE_MEAN ? n : SPIKE_MEAN);
                t->state.norms.row = 0;
        }
        return false;
}

static int begin_step(Train *t, int64_t step, Err *e)
{
        const Args *a = t->a;
        size_t n = (size_t)t->B * (size_t)t->T;
        for (int m = 0; m < t->n_micro && !aim_drives(t); m++)
                windows_fill(&t->train, step, m, t->n_micro, t->B, t->x + n * (size_t)m,
                             t->y + n * (size_t)m, t->d ? t->d + 2 * n * (size_t)m : NULL);
        TrainStep in = { .B = t->B,
                         .T = t->T,
                         .n_micro = t->n_micro,
                         .ids = t->x,
                         .targets = t->y,
                         .documents = t->d,
                         .lr = schedule_lr(&t->schedule, step),
                         .beta1 = t->beta1,
                         .beta2 = t->beta2,
                         .eps = t->eps,
                         .weight_decay = opt_num(a, O_WEIGHT_DECAY),
                         .clip = opt_num(a, O_CLIP),
                         .most_norm = most_norm(t),
                         .step = (int)step,
                         .skipped = t->scaling ? (int)t->state.scale.skipped : 0,
                         .scale = t->scaling ? t->state.scale.scale : 1,
                         .ema = ema_weight(t, step) };
        int code = aim_drives(t) ? aim_fill(t, &t->train, step, t->n_micro, &in, e) : TGC_OK;
        return code ? code : session_train_begin(t->s, &in, e);
}

/* The run ends for a loss or a gradient that is not finite; what is in the folder stays. */
static int not_finite(Train *t, Err *e)
{
        char where[600] = "nothing of this run was saved";
        const int code = train_saved(t, true, e);
        if (code)
                return code;
        if (t->saved)
                snprintf(where, sizeof where,
                         "what was saved at step %lld is in %.500s, for --resume",
                         (long long)t->saved, opt_str(t->a, O_OUT_DIR));
        return err_set(e, TGC_NON_FINITE,
                       "iter %lld: the loss or the gradient was not finite, %d step%s in a row "
                       "(--max_skips %d); %s; try a lower --learning_rate, more --warmup_iters or "
                       "--grad_clip 1",
                       (long long)t->state.step - 1, t->skipped, t->skipped == 1 ? "" : "s",
                       opt_int(t->a, O_MAX_SKIPS), where);
}

/* The scale of the loss follows the step.  true: it was too large, which is no fault of the run. */
static bool scaled_step(Train *t)
{
        LossScale *s = &t->state.scale;
        t->grads_scale = s->scale;
        loss_scale_step(s, t->last.bad, t->scale_window);
        if (!t->last.bad || !t->scale_window || s->scale < 1 || !isfinite(t->last.loss))
                return false;
        say(&t->talk, "iter %lld: gradients beyond f16, step skipped; the loss's scale is %g now\n",
            (long long)t->state.step, s->scale);
        t->state.step++;
        return true;
}

/* --find_nan: the step changed nothing, so its weights are still there; the run ends. */
static int trace(Train *t, Err *e)
{
        const size_t n = (size_t)t->B * (size_t)t->T;
        const Section *ir = plan_find(&t->l.plan, "ir");
        char says[NAN_SAYS] = "";
        int code = TGC_OK;
        if (!ir)
                return err_set(e, TGC_BAD_FILE, "%s: the plan has no graph to look in",
                               t->a->pos[0]);
        for (int m = 0; m < t->n_micro && !code && !*says; m++) {
                Feed feed[OBJECTIVE_FEEDS];
                const NanBatch b = { .B = t->B,
                                     .T = t->T,
                                     .ids = t->x + n * (size_t)m,
                                     .targets = t->y + n * (size_t)m,
                                     .documents = t->d ? t->d + 2 * n * (size_t)m : NULL,
                                     .feed = feed,
                                     .n_feeds = aim_feeds(t, m, feed) };
                code = find_nan(t->s, ir, &b, says, e);
        }
        if (code)
                return code;
        return err_set(
                e, TGC_NON_FINITE,
                "iter %lld: the loss or the gradient was not finite; --find_nan: %s",
                (long long)t->state.step,
                *says ? says
                      : "the evaluator finds every value of it finite, so it is the device's");
}

/* A step whose gradient is not finite changed nothing; too many of them end the run. */
static int end_step(Train *t, Err *e)
{
        int code = session_train_end(t->s, &t->last, e);
        if (code)
                return code;
        if (spike_step(t))
                return TGC_OK;
        if (t->scaling && scaled_step(t))
                return TGC_OK;
        t->skipped = t->last.bad ? t->skipped + 1 : 0;
        if (t->last.bad)
                say(&t->talk, "iter %lld: loss %g, gradient norm %g: not finite, step skipped\n",
                    (long long)t->state.step, t->last.loss, t->last.grad_norm);
        if (t->last.bad && opt_flag(t->a, O_FIND_NAN))
                return trace(t, e);
        t->state.step++;
        return t->skipped > opt_int(t->a, O_MAX_SKIPS) ? not_finite(t, e) : TGC_OK;
}

static bool every(int64_t done, int interval) { return interval && done % interval == 0; }

static bool is_boundary(const Train *t, int64_t step)
{
        return every(step + 1, opt_int(t->a, O_SAMPLE_INTERVAL)) ||
               (step + 1) % opt_int(t->a, O_EVAL_INTERVAL) == 0 || step + 1 == t->max_steps ||
               (step == t->first && opt_str(t->a, O_GRADS_OUT));
}

/* The last step before a boundary is done: look at the weights, then keep them. */
static int at_boundary(Train *t, int64_t step, Err *e)
{
        double val = NAN, train = NAN;
        bool improved = false;
        int code = TGC_OK;
        if (step == t->first && opt_str(t->a, O_GRADS_OUT) && (code = save_grads(t, e)))
                return code;
        bool due = (step + 1) % opt_int(t->a, O_EVAL_INTERVAL) == 0 || step + 1 == t->max_steps;
        if (due && t->val.T && (code = train_validate(t, &train, &val, e)))
                return code;
        if (due && t->val.T && !isfinite(val)) { /* the loss was, before this step's update */
                say(&t->talk, "step %lld: validation loss %g: not finite, nothing saved\n",
                    (long long)t->state.step, val);
                t->skipped += !t->skipped;
        } else if (due && t->val.T) {
                t->last_val = val;
                improved = val < t->state.best;
                t->state.best = improved ? val : t->state.best;
        }
        if ((code = log_step(t, step, train, val, e)) ||
            ((due || t->save_now) && !t->skipped && (code = train_save(t, improved, e))) ||
            (t->save_now && (code = train_saved(t, true, e))))
                return code;
        if (t->save_now && t->saved == t->state.step) {
                progress_bar_end(&t->talk);
                say(&t->talk, "step %lld: saved, as SIGUSR1 asked\n", (long long)t->state.step);
                t->save_now = false;
        }
        return every(step + 1, opt_int(t->a, O_SAMPLE_INTERVAL)) ? train_sample(t, e) : TGC_OK;
}

/* Wait until at most `keep` steps are under way. */
static int drain(Train *t, int64_t begun, int keep, bool boundary, Err *e)
{
        int code = TGC_OK;
        while (begun - t->state.step > keep && !code) {
                int64_t step = t->state.step;
                if (!(code = end_step(t, e)))
                        code = boundary && step + 1 == begun ? at_boundary(t, step, e)
                                                             : log_step(t, step, NAN, NAN, e);
        }
        return code;
}

static bool out_of_time(const Train *t)
{
        return t->max_seconds > 0 && clock_s() - t->opened >= t->max_seconds;
}

static int loop(Train *t, Err *e)
{
        int64_t step = t->state.step;
        int code = TGC_OK;
        while (step < t->max_steps && !code &&
               !(aim_between(t, step) && (signal_seen() || out_of_time(t)))) {
                t->save_now |= signal_save_seen();
                bool boundary = is_boundary(t, step) || (t->save_now && aim_between(t, step + 1));
                if ((code = train_saved(t, false, e)) || (code = begin_step(t, step, e)))
                        return code;
                step++;
                /* a scale follows the step before */
                const bool waits = boundary || t->scaling || opt_flag(t->a, O_FIND_NAN) ||
                                   aim_drives(t) || opt_num(t->a, O_SKIP_SPIKES) > 0;
                code = drain(t, step, waits ? 0 : 1, boundary, e);
        }
        return code ? code : drain(t, step, 0, false, e);
}

/* A row of --summary_csv, with the columns of the benchmark that it is compared with. */
static int summary(const Train *t, double seconds, Err *e)
{
        static const char head[] =
                "Timestamp,Mode,Wall_Time_s,Total_Tokens,Tokens_Sec,Tokens_Min\n";
        const double tokens = (double)(t->state.step - t->first) * t->B * t->T * t->n_micro,
                     rate = seconds > 0 ? tokens / seconds : 0;
        LogFile f = { .path = (char *)opt_str(t->a, O_SUMMARY_CSV) };
        char when[32], line[256], dtype[16] = "";
        const time_t now = time(NULL);
        struct stat st;
        struct tm tm;
        if (!f.path)
                return TGC_OK;
        f.fd = open(f.path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
        if (f.fd < 0)
                return err_set(e, TGC_IO, "%s: %s", f.path, strerror(errno));
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
        manifest_word(&t->l.plan, "dtype", dtype, sizeof dtype);
        const int n = snprintf(line, sizeof line, "%s%s,tgc %s,%.4f,%.0f,%.2f,%.2f\n",
                               fstat(f.fd, &st) || !st.st_size ? head : "", when, dtype, seconds,
                               tokens, rate, rate * 60);
        int code = log_write(&f, line, (size_t)n, e);
        close(f.fd);
        return code;
}

static int report(const Train *t, double seconds, Err *e)
{
        char n[32], said[32], driver[32] = "";
        uint64_t most, gone;
        dev_held(session_device(t->s), &most, &gone);
        double rate = seconds > 0 ? (double)(t->state.step - t->first) * t->B * t->T * t->n_micro /
                                            seconds
                                  : 0;
        if (!opt_flag(t->a, O_JSON) && t->state.step == t->first) {
                say(&t->talk, "%s: has %lld steps already, --max_iters is %d\n",
                    opt_str(t->a, O_OUT_DIR), (long long)t->state.step, t->max_steps);
                return TGC_OK;
        }
        if (!opt_flag(t->a, O_JSON)) {
                say(&t->talk, "%s: %lld steps, loss %.4f, %.1f s, %s tok/s on %s\n",
                    opt_str(t->a, O_OUT_DIR), (long long)t->state.step, t->last.loss, seconds,
                    text_count_si(n, sizeof n, rate), dev_name(session_device(t->s)));
                if (t->n_saves)
                        say(&t->talk,
                            "checkpoints: %d; steps waited %.2f s for them, their files took %.2f "
                            "s\n",
                            t->n_saves, t->save_waits, t->save_writes);
                if (gone)
                        text_bytes(driver, sizeof driver, (double)gone);
                say(&t->talk, "memory: %s as said before, %s allocated at most%s%s\n",
                    text_bytes(said, sizeof said, t->memory), text_bytes(n, sizeof n, (double)most),
                    *driver ? ", by the driver's count with code and graphs " : "", driver);
                aim_report(t, seconds);
                return TGC_OK;
        }
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "out_dir", opt_str(t->a, O_OUT_DIR));
        cJSON_AddNumberToObject(o, "steps", (double)t->state.step);
        if (t->state.step > t->first)
                cJSON_AddNumberToObject(o, "loss_nats_per_token", t->last.loss);
        if (!isnan(t->last_val))
                cJSON_AddNumberToObject(o, "val_loss_nats_per_token", t->last_val);
        cJSON_AddNumberToObject(o, "tokens_per_s", rate);
        cJSON_AddNumberToObject(o, "seconds", seconds);
        cJSON_AddNumberToObject(o, "memory_forecast_bytes", t->memory);
        cJSON_AddNumberToObject(o, "memory_allocated_bytes", (double)most);
        if (gone)
                cJSON_AddNumberToObject(o, "memory_driver_bytes", (double)gone);
        cJSON_AddStringToObject(o, "device", dev_name(session_device(t->s)));
        return json_print(o, e);
}

/* Before the first step, and all that --eval_only does. */
static int look(Train *t, Err *e)
{
        double train, val;
        int code = train_validate(t, &train, &val, e);
        if (code)
                return code;
        say_losses(t, train, val);
        if (isfinite(val) && val < t->state.best)
                t->state.best = val;
        if (!opt_flag(t->a, O_EVAL_ONLY)) { /* a row's losses are of the weights behind its step */
                LogRow row = LOG_ROW_NONE;
                row.step = -1;
                row.val_loss = val;
                return log_step_row(&t->log, &row, e);
        }
        if (opt_flag(t->a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddNumberToObject(o, "steps", (double)t->state.step);
                cJSON_AddNumberToObject(o, "train_loss_nats_per_token", train);
                cJSON_AddNumberToObject(o, "val_loss_nats_per_token", val);
                cJSON_AddStringToObject(o, "device", dev_name(session_device(t->s)));
                if ((code = json_print(o, e)))
                        return code;
        }
        if (!isfinite(val))
                return err_set(e, TGC_NON_FINITE,
                               "the validation loss is not finite: `tgc check` tells whether the "
                               "weights or the kernels are to blame");
        return TGC_OK;
}

/* All that the device holds for the run, in arenas; their sizes are known before the first step. */
static void say_memory(const Train *t)
{
        static const struct {
                const char *arenas, *what;
        } kind[] = { { " w ", "weights" },
                     { " p lo ", "float32 masters" },
                     { " g gsum ", "gradients" },
                     { " m v m8 v8 mmax vmax ", "optimiser states" },
                     { " ema ", "averaged weights" },
                     { " act keep kv const host ", "activations" } };
        ArenaUse use[24];
        char n[32], word[40], parts[2][300] = { "", "" };
        size_t at[2] = { 0, 0 };
        const int have = session_arenas(t->s, use, 24);
        for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
                double bytes[2] = { 0, 0 };
                for (int i = 0; i < have && i < 24; i++) {
                        snprintf(word, sizeof word, " %.30s ", use[i].name);
                        if ((use[i].allocated ||
                             (t->n_micro > 1 && !strcmp(use[i].name, "gsum"))) &&
                            strstr(kind[k].arenas, word))
                                bytes[use[i].host] += (double)use[i].size;
                }
                for (int h = 0; h < 2; h++)
                        if (bytes[h] > 0)
                                at[h] += (size_t)snprintf(parts[h] + at[h], sizeof parts[h] - at[h],
                                                          "%s%s %s", at[h] ? ", " : "",
                                                          text_bytes(n, sizeof n, bytes[h]),
                                                          kind[k].what);
        }
        say(&t->talk, "memory: %s: %s%s%s\n", text_bytes(n, sizeof n, t->memory), parts[0],
            at[1] ? "; of the host: " : "", parts[1]);
}

static int train(Train *t, Err *e)
{
        char n[32];
        say(&t->talk,
            "%s: %s parameters, %lld tokens of data, batches of %d x %d x %d, steps %d to %d\n",
            dev_name(session_device(t->s)),
            text_count_si(n, sizeof n, (double)session_manifest(t->s)->n_all),
            (long long)t->state.tokens, t->n_micro, t->B, t->T, t->first, t->max_steps);
        say_memory(t);
        signals_defer();
        signals_save();
        if (opt_flag(t->a, O_EVAL_ONLY))
                return look(t, e);
        int code = !t->state.step && t->val.T ? look(t, e) : TGC_OK;
        if (code)
                return code;
        t->began = clock_s();
        code = loop(t, e);
        progress_bar_end(&t->talk);
        if (code)
                return code;
        double seconds = clock_s() - t->began;
        if (signal_seen()) {
                if (t->skipped)
                        say(&t->talk,
                            "interrupted; nothing saved, as the last step was not finite\n");
                else if ((code = train_save(t, false, e)))
                        return code;
                if ((code = train_saved(t, true, e)))
                        return code;
                say(&t->talk, "interrupted after step %lld; go on with `tgc train %s --resume`\n",
                    (long long)t->state.step, opt_str(t->a, O_OUT_DIR));
                return 128 + signal_seen();
        }
        if (t->skipped) /* the weights gave it: no model is made of them */
                return not_finite(t, e);
        if (t->state.step < t->max_steps) {
                if ((code = train_save(t, false, e)) || (code = train_saved(t, true, e)))
                        return code;
                say(&t->talk,
                    "--max_time %s: stopped after step %lld; go on with `tgc train %s --resume`\n",
                    opt_str(t->a, O_MAX_TIME), (long long)t->state.step, opt_str(t->a, O_OUT_DIR));
        }
        if ((code = train_save_last(t, e)) || (code = summary(t, seconds, e)))
                return code;
        return report(t, seconds, e);
}

int cmd_train(const Args *a, Err *e)
{
        Train t;
        int code = opt_int(a, O_SHOW_DATA) ? TGC_OK : out_dir_check(a, e);
        if (code)
                return code;
        if (!(code = train_open(&t, a, e)))
                code = opt_int(a, O_SHOW_DATA) ? data_show(&t, e) : train(&t, e);
        train_close(&t);
        return code;
}
