/* train_save.c: saves a run in OUT_DIR, one generation of files at a time.
 *
 * The files of a step are written beside the old ones.  Writing the state commits them; then they
 * get their final names.  If the run is killed in between, run_settle, or a reader through
 * run_file, still finds the files of one step.
 *
 * The next step waits only for a copy of what is saved (session_snapshot); a thread writes the
 * files while steps go on.  A save that comes meanwhile has its own copy, and its files follow.
 * One more waits for both, and so does every message that says something was saved.  If the host
 * has no memory for a copy, the steps wait for the files. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "../load/lora.h"
#include "train.h"

#define ADAPTER "adapter" /* a PEFT folder in OUT_DIR */

/* A generation on its way. */
struct Saving {
        Train *t;
        Session *s;       /* the snapshot of the step, or the run itself */
        TrainState state; /* of the step */
        pthread_t thread;
        int slot; /* of t->snapshot */
        bool running, lora, weights, improved;
        atomic_bool done;
        int code;
        double seconds; /* of making files */
        Err err;
};

/* p with the weights of s, whose average has been put in place. */
static int write_plan(Plan *p, Session *s, const char *path, Err *e)
{
        void *mem = NULL;
        int code = plan_take_weights(p, s, &mem, e);
        if (!code)
                code = plan_write(p, path, e);
        plan_remove(p, "weights");
        free(mem);
        return code;
}

int train_save_last(Train *t, Err *e)
{
        char *path = train_path(t, "model.plan");
        int code = path ? train_saved(t, true, e) : err_set(e, TGC_NO_MEMORY, "no memory");
        if (!code)
                code = ema_swap(t, EMA_EXPORT, e);
        if (!code && !(code = write_plan(&t->l.plan, t->s, path, e)))
                code = ema_swap(t, EMA_EXPORT, e);
        free(path);
        return code;
}

/* A plan that is trained where it lies is the only copy of its graph, and gets the weights.  Its
 * table of sections is copied, since steps read the run's. */
static int plan_in_place(const Saving *w, Err *e)
{
        const Plan *from = &w->t->l.plan;
        const size_t n = (size_t)from->n_sections;
        Plan p = { malloc((n + 1) * sizeof *p.section), from->n_sections, NULL, 0 };
        char *path = NULL;
        if (!p.section)
                return err_set(e, TGC_NO_MEMORY, "no memory");
        memcpy(p.section, from->section, n * sizeof *p.section);
        int code = run_file_next(opt_str(w->t->a, O_OUT_DIR), "model.plan", w->state.step, &path,
                                 e);
        if (!code)
                code = write_plan(&p, w->s, path, e);
        free(path);
        free(p.section);
        return code;
}

/* The adapter alone, or all weights by their checkpoint names. */
static int save_weights(const Saving *w, Err *e)
{
        const Train *t = w->t;
        const char *dir = opt_str(t->a, O_OUT_DIR), *old = ADAPTER "/adapter_model.safetensors";
        char *path = NULL, *folder = w->lora ? train_path(t, ADAPTER) : NULL;
        int code = w->lora && !folder ? err_set(e, TGC_NO_MEMORY, "no memory") : TGC_OK;
        if (!code && w->lora)
                code = make_folder(folder, e);
        if (!code)
                code = run_file_next(dir, w->lora ? old : "ckpt.safetensors", w->state.step, &path,
                                     e);
        if (!code)
                code = w->lora ? adapter_export(w->s, &t->l.plan, NULL, path, NULL, e)
                               : export_params(w->s, &t->l.plan, path, EXPORT_WEIGHTS, CK_F32, 1,
                                               e);
        if (!code && w->lora)
                code = adapter_words(&t->l.plan, folder, train_called(t), e);
        free(path);
        free(folder);
        return code;
}

static int save_state(const Saving *w, Err *e)
{
        char *path = train_path(w->t, "state.safetensors");
        int code = path ? state_save(w->s, path, &w->state, ema_for(w->t, EMA_EXPORT), e)
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
static int before_state(const Saving *w, Err *e)
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

static int after_state(const Saving *w, Err *e)
{
        int code = run_settle(opt_str(w->t->a, O_OUT_DIR), e);
        return code || !w->weights ? code
                                   : keep_checkpoint(w->t, w->state.step, w->lora, w->improved, e);
}

static void *writer(void *arg)
{
        Saving *w = arg;
        const locale_t was = c_locale_begin();
        const double began = clock_s();
        int code = w->weights ? save_weights(w, &w->err) : TGC_OK;
        if (!code && w->t->in_place)
                code = plan_in_place(w, &w->err);
        if (!code && !(code = before_state(w, &w->err)) && !(code = save_state(w, &w->err)))
                code = after_state(w, &w->err);
        w->code = code;
        w->seconds = clock_s() - began;
        c_locale_end(was);
        atomic_store(&w->done, true);
        return NULL;
}

/* Signals are the main thread's. */
static void start(Saving *w)
{
        sigset_t all, was;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &was);
        w->running = !pthread_create(&w->thread, NULL, writer, w);
        pthread_sigmask(SIG_SETMASK, &was, NULL);
        if (!w->running)
                writer(w); /* no thread: now */
}

/* The first of them is done: the next one begins. */
static int finish(Train *t, Err *e)
{
        Saving *w = t->saving;
        const double began = clock_s();
        if (w->running)
                pthread_join(w->thread, NULL);
        t->save_waits += clock_s() - began;
        t->save_writes += w->seconds;
        const int code = w->code ? err_set(e, w->code, "%s", w->err.msg) : TGC_OK;
        if (!code)
                t->saved = w->state.step;
        free(w);
        t->saving = t->queued;
        t->queued = NULL;
        if (code) {
                free(t->saving);
                t->saving = NULL;
        } else if (t->saving) {
                start(t->saving);
        }
        return code;
}

int train_saved(Train *t, bool wait, Err *e)
{
        int code = TGC_OK;
        while (!code && t->saving && (wait || atomic_load(&t->saving->done)))
                code = finish(t, e);
        return code;
}

void train_save_close(Train *t)
{
        Err e;
        if (train_saved(t, true, &e)) /* another error ends the run */
                say(&t->talk, "%s\n", e.msg);
        for (int i = 0; i < 2; i++) {
                session_snapshot_free(t->snapshot[i]);
                t->snapshot[i] = NULL;
        }
}

/* Is there memory for a snapshot?  What the last one in this slot had is used again. */
static bool has_room(Train *t, int slot, SnapshotWhat what)
{
        const uint64_t want = session_snapshot_bytes(t->s, what), had = t->snapshot_bytes[slot];
        if (want > had && want - had > dev_host_free() / 2)
                return false;
        t->snapshot_bytes[slot] = want > had ? want : had;
        return true;
}

/* Copies what w saves, if there is room, else writes it. */
static int take(Train *t, Saving *w, SnapshotWhat what, Err *e)
{
        int code = ema_swap(t, EMA_EXPORT, e);
        if (!code && has_room(t, w->slot, what) &&
            !(code = session_snapshot(t->s, what, &t->snapshot[w->slot], e)))
                w->s = t->snapshot[w->slot];
        if (!code && w->s == t->s)
                writer(w);
        return code ? code : ema_swap(t, EMA_EXPORT, e);
}

int train_save(Train *t, bool improved, Err *e)
{
        const bool weights = improved || opt_flag(t->a, O_ALWAYS_SAVE),
                   lora = plan_has_lora(&t->l.plan);
        const SnapshotWhat what = t->in_place        ? SNAPSHOT_STORAGE
                                  : weights && !lora ? SNAPSHOT_WEIGHTS
                                                     : SNAPSHOT_STATE;
        int code = train_saved(t, false, e);
        if (!code && t->saving && (t->queued || !has_room(t, !t->saving->slot, what)))
                code = train_saved(t, true, e);
        const double began = clock_s();
        Saving *w = code ? NULL : calloc(1, sizeof *w);
        if (!w)
                return code ? code : err_set(e, TGC_NO_MEMORY, "no memory to save");
        *w = (Saving) { .t = t,
                        .s = t->s,
                        .state = t->state,
                        .slot = t->saving ? !t->saving->slot : 0,
                        .lora = lora,
                        .improved = improved,
                        .weights = weights };
        if ((code = take(t, w, what, e))) {
                free(w);
                return code;
        }
        *(t->saving ? &t->queued : &t->saving) = w;
        if (t->saving == w && w->s != t->s)
                start(w);
        t->save_waits += clock_s() - began;
        t->n_saves++;
        return train_saved(t, false, e);
}
