/* session.h: a plan at work on a device.
 *
 * A session owns the arenas and the host's Rt, and borrows the Plan, which must
 * outlive it.  One thread at a time.  Every function returns a status of err.h;
 * after a failed device call the session is good only for session_close. */
#ifndef TGC_SESSION_H
#define TGC_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../device/device.h"
#include "../util/err.h"
#include "../plan/manifest.h"
#include "../plan/plan.h"
#include "../plan/program.h"
#include "../rt.h"
#include "../weights/sentence.h"
#include "../tgc.h"

typedef struct Session Session;

enum { SESSION_INFER = 1, SESSION_TRAIN = 2 };

typedef struct SessionOptions {
        DevKind device;
        DevOptions dev;
        int mode;      /* SESSION_*; 0: all that the plan has */
        uint64_t seed; /* initial weights of a plan without any; dropout, sampling */
        /* Programs whose kernels are loaded when the session opens, separated by spaces; those of
         * other programs are loaded when they first run.  NULL: all. */
        const char *ready;
        /* The name "decode" means the program that decodes so many sequences, and of a plan with
         * pages those for fewer, too; 0: the plan's largest. */
        int batch;
        /* Master weights, optimiser states and averages lie in pinned memory of the host, and the
         * update reads and writes them over the bus: the same bits, less memory of the GPU.
         * TGC_USAGE where the device's memory is the host's. */
        bool offload;
} SessionOptions;

/* o may be NULL.  DEV_AUTO is the GPU if there is one and the plan has code for
 * it, else the CPU.  Weights come from the plan, else from the initialisers. */
int session_open(Session **s, const Plan *plan, const SessionOptions *o, Err *e);
void session_close(Session *s); /* NULL is fine */

const Manifest *session_manifest(const Session *s);
const Program *session_program(const Session *s);
Device *session_device(const Session *s);
/* Are the weights the plan's own bytes?  Then these must stay. */
bool session_borrows(const Session *s);
int session_mode(const Session *s);
/* Is the program there, with its arenas allocated? */
bool session_has(const Session *s, const char *prog);

typedef struct ArenaUse {
        const char *name;
        uint64_t size;
        bool allocated, host; /* host: SessionOptions.offload */
} ArenaUse;
int session_arenas(const Session *s, ArenaUse *use, int cap); /* how many there are */

/* ---- one program (session_run.c) ---- */

/* The host's Rt; what is set here holds for the next run.  B, T and the fields
 * named in the calls below are set by them.  A decode program moves pos on the
 * device: who calls session_run("decode") again and again sets pos and calls
 * session_rt_changed before the cache is full. */
Rt *session_rt(Session *s);
void session_rt_changed(Session *s); /* upload before the next run */
int session_write(Session *s, const char *prog, const char *io, const void *data, size_t bytes,
                  Err *e);
int session_read(Session *s, const char *prog, const char *io, void *data, size_t bytes, Err *e);
int session_run(Session *s, const char *prog, int B, int T, Err *e);
int session_sync(Session *s, Err *e);

/* One run with a time stamp around every launch.  ms[i] belongs to run i of the
 * program; n_ms is the number written, at most cap. */
int session_time_kernels(Session *s, const char *prog, int B, int T, double *ms, int cap, int *n_ms,
                         Err *e);

/* ---- inference (session_infer.c, session_draft.c, session_score.c) ---- */

typedef TgcSampling Sampling;

Sampling sampling_default(void); /* llama.cpp's */

/* Called with tokens (B) of step i, one step behind the device; nonzero ends. */
typedef int TokenFn(void *user, int i, const int *token, int B);
/* What was drawn for sequence b; in a TokenFn alone. */
const RtDrawn *session_drawn(const Session *s, int b);

int session_reset(Session *s, Err *e); /* forget the cache */
/* Keep the first n of the tokens given so far, as if the others had not been: their place in the
 * cache is written again.  The last one kept is pending, so decoding may follow at once. */
int session_truncate(Session *s, int n, Err *e);
/* Make room in a full context, as llama.cpp does: of the tokens given and sampled so far the first
 * `keep` stay, of the others the older half goes (*gone of them; at least one).  The rest is
 * digested again at its new positions, so what follows is what would follow these tokens alone;
 * random numbers go on.  keep: at most 2 less than there are. */
int session_shift(Session *s, int keep, int *gone, Err *e);
int session_pos(const Session *s); /* tokens given so far, the undigested last one included */
/* Append n tokens to each of B sequences, ids (B,n) row-major.  The last one is
 * kept back as the first input of session_decode. */
int session_prefill(Session *s, const int *ids, int B, int n, Err *e);
/* Sample n tokens for each sequence; the seed of sequence b is how->seed + b, and its random
 * numbers depend on that and on how many tokens it has drawn since session_reset alone.  Stops at
 * the context's end with TGC_USAGE and a message, all tokens until then delivered; n below 0 asks
 * for just these. */
int session_decode(Session *s, const Sampling *how, int n, TokenFn *fn, void *user, Err *e);

/* The same for one sequence, with drafts: what followed the last tokens when they stood in the text
 * before is taken for the next ones, and looked at in one call.  The tokens are those of
 * session_decode, drawn by the same random numbers; where two are equally likely but for rounding,
 * they may be others. */
enum { DRAFT_MOST = 64 };
typedef struct Draft {
        int most;               /* tokens of a draft, 1 to DRAFT_MOST */
        int proposed, accepted; /* are added to */
} Draft;
int session_decode_drafted(Session *s, const Sampling *how, int n, Draft *draft, TokenFn *fn,
                           void *user, Err *e);

/* Teacher-forced pass over ids[0..n), n <= ctx; forgets the cache.  logits
 * (n,V) and nll (n-1: of ids[i+1] after ids[0..i]) may each be NULL. */
int session_score(Session *s, const int *ids, int n, float *logits, double *nll, Err *e);

/* The same of several texts, in calls that hold tokens of many of them where the plan is for
 * several sequences; a text's numbers do not depend on the others.  NULL: not wanted. */
typedef struct ScoreText {
        const int *ids;
        int n;           /* 1 to the context's size; without logits one more */
        int from;        /* nll and likeliest are of ids[from..n), from >= 1 */
        float *logits;   /* (n,V) */
        double *nll;     /* (n): [i] of ids[i]; what lies before `from` stays as it is */
        bool *likeliest; /* (n): was ids[i] the likeliest token?  Of equal ones the first is. */
} ScoreText;
/* most: sequences in the cache at once; 0: as many as there is room for. */
int session_score_texts(Session *s, const ScoreText *text, int n, int most, Err *e);
int session_score_rows(const Session *s, int most, int longest); /* how many that are */

/* ---- embedding (session_embed.c): a plan of an encoder ---- */

typedef struct EmbedText {
        const int *ids;
        int n; /* 1 to the context's size */
} EmbedText;
/* out (n, width), width the manifest's `hidden`: in calls that hold as many texts as there is room
 * for; a text's numbers depend on it alone.  unit: of length 1. */
int session_embed(Session *s, const EmbedText *text, int n, Pooling how, bool unit, float *out,
                  Err *e);
/* The vectors of all their tokens, text by text, before any pooling. */
int session_embed_tokens(Session *s, const EmbedText *text, int n, float *out, Err *e);

/* ---- training (session_train.c) ---- */

/* Numbers beside the tokens, for the input objective.NAME of programs that have it. */
enum { MOST_FEEDS = 16 };
typedef struct Feed {
        const char *name; /* of the input, objective.NAME */
        const float *v;   /* (n_micro, B, T, each) */
        size_t each;
} Feed;

typedef struct TrainStep {
        int B, T, n_micro;
        const int *ids, *targets; /* (n_micro, B, T); targets < 0 do not count */
        /* (n_micro, B, T, 2) as session_documents writes it, for programs with that input; NULL: by
         * the ids */
        const int *documents;
        const Feed *feed; /* every input of the program that is called so needs one */
        int n_feeds;
        double lr, beta1, beta2, eps, weight_decay, clip;
        double most_norm; /* a larger gradient norm is a spike: nothing is changed; 0: none is */
        int step;         /* from 0: bias correction, dropout's counter */
        /* steps before this one that changed nothing: bias correction leaves them out */
        int skipped;
        double scale; /* of the loss, for gradients that 16 bits would lose; 0: 1 */
        double ema;   /* weight of this step's parameters in their average; 0: it stays */
} TrainStep;

typedef struct TrainResult {
        double loss; /* cross-entropy, nats per counted token */
        double aux_loss;
        double grad_norm; /* before clipping */
        bool bad;         /* non-finite gradient: the update was skipped */
        bool spike;       /* the norm was above most_norm: so was this one */
        uint64_t tokens;  /* counted */
} TrainResult;

int session_train_step(Session *s, const TrainStep *in, TrainResult *out, Err *e);
/* The same in two halves: begin queues a step (ids and targets are free on
 * return), end waits for the oldest one begun.  Two may be under way, which keeps
 * a GPU with short steps busy. */
int session_train_begin(Session *s, const TrainStep *in, Err *e);
int session_train_end(Session *s, TrainResult *out, Err *e);
/* Where the document of each token of ids (B,T) begins and ends in its row, out (B,T,2): one begins
 * with each row and with each token that the manifest calls `documents`. */
void session_documents(const Session *s, const int *ids, int B, int T, int *out);
/* The same to a program's input `documents`, if it has one. */
int session_write_documents(Session *s, const char *prog, const int *ids, int B, int T, Err *e);
/* Mean loss over one batch (B,T), dropout off. */
int session_eval(Session *s, const int *ids, const int *targets, int B, int T, double *loss,
                 uint64_t *tokens, Err *e);
/* The same with documents and feeds; and any program of training windows: its output out (n
 * floats).  Of `batch` sizes, tokens, documents and feeds are read, n_micro is 1. */
int session_eval_fed(Session *s, const TrainStep *batch, double *loss, uint64_t *tokens, Err *e);
int session_eval_output(Session *s, const char *prog, const char *out, const TrainStep *batch,
                        float *v, size_t n, Err *e);

/* ---- parameters (session_param.c) ---- */

/* M8 .. VMAX: moments of 8 bits and the largest of each 256 elements, where a plan has them; then M
 * and V are those of small parameters alone (ir/optimizer.h). */
typedef enum {
        PART_WEIGHT,
        PART_MASTER,
        PART_GRAD,
        PART_M,
        PART_V,
        PART_M8,
        PART_V8,
        PART_MMAX,
        PART_VMAX,
        PART_EMA, /* the average of the parameters, float32 */
        N_PARTS
} Part;

bool session_has_part(const Session *s, Part part);
size_t session_part_size(const Session *s, Part part, int param); /* bytes; 0: it has none */
/* Raw storage of one parameter: weights in the plan's dtype, M8 and V8 bytes, the rest float32. */
int session_part_read(Session *s, Part part, int param, void *data, Err *e);
int session_part_write(Session *s, Part part, int param, const void *data, Err *e);
/* As float32: reads the master copy if there is one; writes master and weight. */
int session_param_get(Session *s, int param, float *data, Err *e);
int session_param_set(Session *s, int param, const float *data, Err *e);

/* ---- session_snapshot.c ---- */

typedef enum {
        SNAPSHOT_STATE,   /* of what is trained: weights by session_param_get, and states */
        SNAPSHOT_WEIGHTS, /* and weights that are frozen */
        SNAPSHOT_STORAGE  /* and all weights as they are stored (PART_WEIGHT) */
} SnapshotWhat;

/* A copy of the parameters in the host's memory, of the steps that are queued; waits for them.  It
 * is read by session_param_get and session_part_read, by any one thread, while s goes on; it is
 * freed before s.  *copy NULL: a new one; else its memory is used again, what it had is gone. */
int session_snapshot(Session *s, SnapshotWhat what, Session **copy, Err *e);
uint64_t session_snapshot_bytes(const Session *s, SnapshotWhat what);
void session_snapshot_free(Session *copy);
/* Initial value of elements [first, first+n) of a parameter (init.c). */
void param_init(const Param *p, int index, uint64_t seed, uint64_t first, uint64_t n, float *out);

#endif
