/* train_save.c: what a run leaves in OUT_DIR, a generation at a time.
 *
 * The files of a step are written beside the old ones, the state makes them true, then they get
 * their names.  Whoever is killed in between leaves what run_settle, or a reader by run_file, finds
 * of one step.
 *
 * All of it is made in memory (file_hold.h), which is what a step waits for; a thread takes it to
 * the disk, in the same order.  The next save waits for it, as do all that say that something was
 * saved.  Where the host has no memory for that, the steps wait for the disk. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../runtime/util/file.h"
#include "../runtime/util/file_hold.h"
#include "lora.h"
#include "train.h"

#define ADAPTER "adapter" /* a PEFT folder in OUT_DIR */

/* A generation on its way. */
struct Saving {
        Train *t;
        FileHold *hold; /* the run's: the last file is the state; NULL: nothing is held */
        pthread_t thread;
        bool running, lora, weights, improved;
        int64_t step;
        atomic_bool done;
        int code;
        double seconds; /* on the disk */
        Err err;
};

/* The plan with what was learnt, so that `tgc run OUT_DIR` works. */
static int save_plan(Train *t, const char *path, Err *e)
{
        void *mem = NULL;
        int code = path ? ema_swap(t, EMA_EXPORT, e) : err_set(e, TGC_NO_MEMORY, "no memory");
        if (!code && !(code = plan_take_weights(&t->l.plan, t->s, &mem, e)))
                code = ema_swap(t, EMA_EXPORT, e);
        if (!code)
                code = plan_write(&t->l.plan, path, e);
        plan_remove(&t->l.plan, "weights");
        free(mem);
        return code;
}

int train_save_last(Train *t, Err *e)
{
        char *path = train_path(t, "model.plan");
        int code = train_saved(t, true, e);
        if (!code)
                code = save_plan(t, path, e);
        free(path);
        return code;
}

/* One that is trained where it lies is the only copy of its graph, and gets the weights. */
static int plan_in_place(Train *t, Err *e)
{
        char *path;
        int code = run_file_next(opt_str(t->a, O_OUT_DIR), "model.plan", t->state.step, &path, e);
        if (!code)
                code = save_plan(t, path, e);
        free(path);
        return code;
}

/* The adapter alone, or all weights by their checkpoint names. */
static int save_weights(Train *t, bool lora, Err *e)
{
        const char *dir = opt_str(t->a, O_OUT_DIR), *old = ADAPTER "/adapter_model.safetensors";
        char *path = NULL, *folder = lora ? train_path(t, ADAPTER) : NULL;
        int code = lora && !folder ? err_set(e, TGC_NO_MEMORY, "no memory") : TGC_OK;
        if (!code && lora)
                code = make_folder(folder, e);
        if (!code)
                code = run_file_next(dir, lora ? old : "ckpt.safetensors", t->state.step, &path, e);
        if (!code)
                code = ema_swap(t, EMA_EXPORT, e);
        if (!code)
                code = lora ? adapter_export(t->s, &t->l.plan, NULL, path, NULL, e)
                            : export_params(t->s, &t->l.plan, path, EXPORT_WEIGHTS, CK_F32, 1, e);
        if (!code)
                code = ema_swap(t, EMA_EXPORT, e);
        if (!code && lora)
                code = adapter_words(&t->l.plan, folder, t->a->pos[0], e);
        free(path);
        free(folder);
        return code;
}

static int save_state(Train *t, Err *e)
{
        char *path = train_path(t, "state.safetensors");
        int code = path ? state_save(t->s, path, &t->state, e)
                        : err_set(e, TGC_NO_MEMORY, "no memory");
        free(path);
        return code;
}

static int gone(const Train *t, const char *name, Err *e)
{
        char *path = train_path(t, name);
        int code = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
        if (path && unlink(path) && errno != ENOENT && errno != ENOTDIR)
                code = err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        free(path);
        return code;
}

/* Before the state is another: what the folder has of another kind of run goes, and so does a
 * model.plan of another run, or of fewer steps. */
static int before_state(Saving *w, Err *e)
{
        Train *t = w->t;
        int code = TGC_OK;
        if (w->weights)
                code = gone(t, w->lora ? "ckpt.safetensors" : ADAPTER "/adapter_model.safetensors",
                            e);
        if (!code && !t->in_place)
                code = gone(t, "model.plan", e);
        if (!code)
                log_sync(&t->log);
        return code;
}

static int after_state(Saving *w, Err *e)
{
        int code = run_settle(opt_str(w->t->a, O_OUT_DIR), e);
        return code || !w->weights ? code : keep_checkpoint(w->t, w->step, w->lora, w->improved, e);
}

static void *writer(void *arg)
{
        Saving *w = arg;
        const int last = file_hold_count(w->hold) - 1;
        const double began = clock_s();
        int code = TGC_OK;
        for (int i = 0; i < last && !code; i++)
                code = file_hold_write(w->hold, i, &w->err);
        if (!code && !(code = before_state(w, &w->err)) &&
            !(code = file_hold_write(w->hold, last, &w->err)))
                code = after_state(w, &w->err);
        w->code = code;
        w->seconds = clock_s() - began;
        atomic_store(&w->done, true);
        return NULL;
}

/* Signals are the main thread's. */
static bool start(Saving *w)
{
        sigset_t all, was;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &was);
        w->running = !pthread_create(&w->thread, NULL, writer, w);
        pthread_sigmask(SIG_SETMASK, &was, NULL);
        return w->running;
}

/* Bytes of state and weights, at most. */
static double bytes_of(const Train *t, const Saving *w)
{
        const Manifest *m = session_manifest(t->s);
        double n = t->in_place ? (double)m->n_all * 4 : 0;
        for (int i = 0; i < m->n_params; i++) {
                const Param *p = &m->param[i];
                n += w->weights && !w->lora ? (double)p->count * 4 : 0;
                n += p->trainable ? (double)p->count * 8 : 0;
                for (int part = PART_M; part < N_PARTS && p->trainable; part++)
                        n += (double)session_part_size(t->s, part, i);
        }
        return n;
}

static void forget(Train *t)
{
        free(t->saving);
        t->saving = NULL;
}

int train_saved(Train *t, bool wait, Err *e)
{
        Saving *w = t->saving;
        if (!w || (!wait && !atomic_load(&w->done)))
                return TGC_OK;
        const double began = clock_s();
        if (w->running)
                pthread_join(w->thread, NULL);
        t->save_waits += clock_s() - began;
        t->save_writes += w->seconds;
        const int code = w->code ? err_set(e, w->code, "%s", w->err.msg) : TGC_OK;
        if (!code)
                t->saved = w->step;
        forget(t);
        return code;
}

void train_save_close(Train *t)
{
        Err e;
        if (train_saved(t, true, &e)) /* another error ends the run */
                say(&t->talk, "%s\n", e.msg);
        file_hold_free(t->hold);
        t->hold = NULL;
}

int train_save(Train *t, bool improved, Err *e)
{
        int code = train_saved(t, true, e);
        const double began = clock_s();
        Saving *w = code ? NULL : calloc(1, sizeof *w);
        if (!w)
                return code ? code : err_set(e, TGC_NO_MEMORY, "no memory to save");
        *w = (Saving) { .t = t,
                        .lora = plan_has_lora(&t->l.plan),
                        .improved = improved,
                        .weights = improved || opt_flag(t->a, O_ALWAYS_SAVE),
                        .step = t->state.step };
        t->saving = w;
        if (bytes_of(t, w) < (double)dev_host_free() / 2)
                code = file_hold_begin(&t->hold, e), w->hold = t->hold;
        if (!code && w->weights)
                code = save_weights(t, w->lora, e);
        if (!code && t->in_place)
                code = plan_in_place(t, e);
        if (!code && !w->hold)
                code = before_state(w, e);
        if (!code)
                code = save_state(t, e);
        file_hold_end();
        if (!code && !w->hold)
                code = after_state(w, e);
        if (code) {
                forget(t);
                return code;
        }
        if (!w->hold)
                atomic_store(&w->done, true);
        else if (!start(w))
                writer(w); /* no thread: now */
        t->save_waits += clock_s() - began;
        t->n_saves++;
        return atomic_load(&w->done) ? train_saved(t, true, e) : TGC_OK;
}
