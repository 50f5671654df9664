/* tgc.h: libtgc, the runtime of tgc plans, for use in other programs.
 *
 *      Tgc *t;
 *      TgcError err;
 *      if (tgc_open(&t, "gpt.plan", NULL, &err))
 *              fail(err.message);
 *      tgc_prompt(t, ids, n, &err);
 *      tgc_generate(t, NULL, 100, on_token, user, &err);
 *      tgc_close(t);
 *
 * The library has no global state, never prints and never exits.  A Tgc is used by
 * one thread at a time.  Functions return 0 or a TgcStatus; the error (may be NULL)
 * is filled only on failure.  Where a pointer that a function needs is NULL it returns
 * TGC_STATUS_USAGE and says which; what returns no status returns 0 or NULL.  Without memory
 * functions return TGC_STATUS_NO_MEMORY with the size that was refused; libgomp and NVRTC, which
 * the compiled code and the CUDA device use, end the process
 * themselves where theirs is refused.  Loading a plan runs the code inside it: open only plans you
 * would also run as programs (SECURITY.md).  The plan is read into memory: what happens to its file
 * afterwards changes nothing. */
#ifndef TGC_PUBLIC_H
#define TGC_PUBLIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TGC_VERSION "0.1.0"

typedef struct Tgc Tgc;

enum TgcStatus {
        TGC_STATUS_OK = 0,
        TGC_STATUS_FAILURE = 1,
        TGC_STATUS_USAGE = 2,
        TGC_STATUS_BAD_FILE = 3,
        TGC_STATUS_NO_DEVICE = 4,
        TGC_STATUS_NO_MEMORY = 5,
        TGC_STATUS_NON_FINITE = 6,
        TGC_STATUS_CHECK_FAILED = 7,
        TGC_STATUS_IO = 8
};

typedef struct TgcError {
        int status;
        char message[1024];
} TgcError;

typedef struct TgcOptions {
        const char *device; /* "auto" (default), "cuda", "cpu", "emulate" */
        int device_index;
        int threads;      /* cpu; 0: OpenMP's choice */
        int infer, train; /* which halves to load; both 0: all the plan has */
        uint64_t seed;    /* initial weights of a plan without any; dropout */
} TgcOptions;

int tgc_open(Tgc **t, const char *path, const TgcOptions *options, TgcError *error);
void tgc_close(Tgc *t); /* NULL is fine */

const char *tgc_device(const Tgc *t); /* "NVIDIA H100 80GB HBM3, sm_90a" */
int tgc_vocab(const Tgc *t);
int tgc_context(const Tgc *t); /* most tokens of one sequence */
int tgc_batch(const Tgc *t);   /* most sequences */

/* ---- text; TGC_STATUS_USAGE when the plan has no tokenizer ---- */

/* Ids of n bytes of text; *ids is freed with tgc_free. */
int tgc_encode(Tgc *t, const char *text, size_t n, int **ids, int *n_ids, TgcError *error);
/* The text of ids, UTF-8, as Hugging Face decodes them; *text is freed with tgc_free and ends with
 * a NUL. */
int tgc_text(Tgc *t, const int *ids, int n_ids, char **text, size_t *n, TgcError *error);
/* Bytes that id adds after previous; writes at most cap, returns how many it wrote.  previous -1,
 * or a special token: a text begins, and loses the space that some tokenizers put before it. */
size_t tgc_decode(Tgc *t, int previous, int id, char *out, size_t cap);
int tgc_is_end(const Tgc *t, int id); /* does id end a text? */
void tgc_free(void *p);

/* ---- generation ---- */

/* llama.cpp's samplers under its names.  Zero is off, but where 1 is, or another number stands
 * beside it. */
typedef struct TgcSampling {
        float temp;                              /* 0: always the likeliest token */
        float dynatemp_range, dynatemp_exponent; /* temp +- range, by the entropy */
        int top_k;
        float top_p, min_p, typical_p; /* 1, 0, 1: off */
        float top_n_sigma;
        float xtc_probability, xtc_threshold; /* a threshold above 0.5: off */
        float repeat_penalty;                 /* 1: off */
        float presence_penalty, frequency_penalty;
        int repeat_last_n; /* tokens that these three look back, at most 8192 */
        float dry_multiplier, dry_base;
        int dry_allowed_length, dry_last_n;
        int mirostat; /* 2: mirostat 2, in place of all but temp */
        float mirostat_tau, mirostat_eta;
        uint64_t seed;
        /* Order of the samplers: enum TgcSampler, 0 ends; one that is not named is off.  All 0: the
         * default order, as the enum has them */
        unsigned char order[16];
        /* Added to the logits of tokens; -INFINITY bans one.  At most 512. */
        const struct TgcBias *bias;
        int n_bias;
        /* DRY's repetitions end at these: bits, one a token of the vocabulary, and sequences of
         * tokens, each as its first token, the number of the others, and those.  NULL: none */
        const uint32_t *dry_breaker_bits;
        const int *dry_breakers;
        int n_dry_breakers; /* ints, at most 1024 */
        /* Log-probabilities of the tokens, and of the n_logprobs likeliest (at most 20), of the
         * softmax of the model's own logits: before any of the above */
        int logprobs, n_logprobs;
        /* Which tokens may come next: bits, one a token of the vocabulary, that stay until the next
         * call.  Called once for every token of a sequence (its number, in a TgcBatch), with the
         * token before it, which was sampled, or -1 for the first, while the device computes the
         * logits.  NULL, or no bit, ends with an error.  NULL here: all tokens. */
        const uint32_t *(*mask)(void *user, int sequence, int token);
        void *mask_user;
} TgcSampling;

enum TgcSampler {
        TGC_PENALTIES = 1,
        TGC_DRY,
        TGC_TOP_N_SIGMA,
        TGC_TOP_K,
        TGC_TYP_P,
        TGC_TOP_P,
        TGC_MIN_P,
        TGC_XTC,
        TGC_TEMPERATURE
};

typedef struct TgcBias {
        int token;
        float bias;
} TgcBias;

TgcSampling tgc_sampling(void); /* the defaults */

/* Called for each token; nonzero ends the generation.  Until tgc_generate returns, what would use
 * the model meanwhile is refused: of the functions below tgc_param_get alone is not. */
typedef int TgcTokenFn(void *user, int token);

int tgc_reset(Tgc *t, TgcError *error); /* forget the conversation */
int tgc_prompt(Tgc *t, const int *ids, int n, TgcError *error);
/* n tokens, at most; below 0: until the context is full.  More than fit: all that fit are told,
 * then the error. */
int tgc_generate(Tgc *t, const TgcSampling *how, int n, TgcTokenFn *fn, void *user,
                 TgcError *error);

/* ---- several sequences at once; the plan was compiled with --batch-size 2 or more ---- */

/* Sequences of any length come and go; each step serves all of them, and each says what it would
 * say alone (docs/library.md: but for last bits, in three cases).  Between tgc_batch_open and
 * tgc_batch_close the Tgc serves nothing else: what would use the model is refused. */
typedef struct TgcBatch TgcBatch; /* close it before its Tgc */

typedef struct TgcSequence {
        const TgcSampling *sampling; /* NULL: the defaults */
        int predict;                 /* most tokens; below 0: until the context is full */
        const int *stop;             /* tokens that end it, at most 16; they are told, too */
        int n_stop;
        int adapter; /* of a plan compiled with --lora-switch: what tgc_adapter says; 0: none */
} TgcSequence;

/* The adapter of that name, from 1; 0: the plan has none. */
int tgc_adapter(const Tgc *t, const char *name);

enum TgcEnd { TGC_END_NONE, TGC_END_STOP, TGC_END_LENGTH, TGC_END_CONTEXT, TGC_END_FAILED };

typedef struct TgcToken {
        int sequence, token; /* TGC_END_FAILED: token -1 */
        int end;             /* TgcEnd: why it is the sequence's last one */
        float logprob; /* of the softmax of the logits, where sampling asks for it (logprobs) */
} TgcToken;

enum { TGC_MOST_TOKENS = 256 }; /* of one step */

int tgc_batch_open(TgcBatch **b, Tgc *t, TgcError *error);
void tgc_batch_close(TgcBatch *b); /* NULL is fine */
/* A sequence of n tokens, which are copied; its number, from 1, to *sequence.  how: NULL, the
 * defaults, until the context is full.  A refusal says the numbers: too long for the context, or
 * for all pages of the cache. */
int tgc_batch_add(TgcBatch *b, const int *ids, int n, const TgcSequence *how, int *sequence,
                  TgcError *error);
/* Another one that goes on from where `sequence` is. */
int tgc_batch_fork(TgcBatch *b, int sequence, const TgcSequence *how, int *child, TgcError *error);
int tgc_batch_drop(TgcBatch *b, int sequence, TgcError *error);
int tgc_batch_left(const TgcBatch *b); /* sequences that have not ended */
/* Up to TGC_MOST_TOKENS tokens to out, their number to *n; on a GPU they come a step or two
 * late.  What fails for one sequence (its mask allows no token, its logits are not finite) ends
 * that one: the step returns the error with the tokens of all, and the next step serves the
 * others.  After any other failure every call returns it again, but tgc_batch_close. */
int tgc_batch_step(TgcBatch *b, TgcToken *out, int *n, TgcError *error);

/* Log-probabilities: nll[i] is -log p(ids[i+1] | ids[0..i]), n-1 of them; logits
 * (n, vocab).  Either may be NULL.  Forgets the conversation. */
int tgc_score(Tgc *t, const int *ids, int n, float *logits, double *nll, TgcError *error);

/* ---- embedding; the plan is of an encoder (BERT, MiniLM ...) ---- */

int tgc_width(const Tgc *t); /* of a vector; 0: the plan is of no encoder */
/* The vectors of n_texts texts, text[i] of n[i] bytes, to out (n_texts, tgc_width), pooled and
 * normalised as the model's folder said.  A text that is too long loses its end.  They go through
 * the model many at a time; each gets the vector that it would get alone. */
int tgc_embed(Tgc *t, const char *const *text, const size_t *n, int n_texts, float *out,
              TgcError *error);
/* The same of tokens, ids[i] n[i] of them, the model's special ones included. */
int tgc_embed_ids(Tgc *t, const int *const *ids, const int *n, int n_texts, float *out,
                  TgcError *error);

/* ---- training ---- */

typedef struct TgcStep {
        int batch, tokens, micro; /* micro batches of (batch, tokens) */
        const int *ids, *targets; /* (micro, batch, tokens); a target < 0 does not count */
        double lr, beta1, beta2, eps, weight_decay, clip;
        int step;                         /* from 0 */
        double loss, aux_loss, grad_norm; /* out: loss in nats per token */
        int skipped; /* out: the gradient was not finite, nothing was changed */
} TgcStep;

int tgc_train_step(Tgc *t, TgcStep *step, TgcError *error);

/* ---- parameters, as float32 ---- */

int tgc_param_count(const Tgc *t);
const char *tgc_param_name(const Tgc *t, int i);
/* Dimensions into dim[8]; returns how many; *n is the number of elements.  Both may be NULL. */
int tgc_param_shape(const Tgc *t, int i, int64_t dim[8], uint64_t *n);
int tgc_param_get(Tgc *t, int i, float *data, TgcError *error);
int tgc_param_set(Tgc *t, int i, const float *data, TgcError *error);

#ifdef __cplusplus
}
#endif

#endif
