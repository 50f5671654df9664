/* session_impl.h: private to runtime/session and runtime/batch: the state of a session. */
#ifndef TGC_SESSION_IMPL_H
#define TGC_SESSION_IMPL_H

#include "session.h"

typedef struct ArenaState {
        void *mem;     /* on the device; NULL: not allocated in this mode */
        bool borrowed; /* it is the plan's own mapping: read only */
        bool host;     /* dev_alloc_host's */
} ArenaState;

/* All launches of a program, or these parts of them: the last is the sampler. */
typedef enum { RUN_ALL, RUN_BUT_LAST, RUN_LAST } RunPart;

typedef struct ProgState {
        void **addr; /* arguments of all runs, one after the other */
        int lacks;   /* an arena that it needs and that is missing, or -1 */
        bool ready;  /* its kernels are there */
        DevGraph *graph;
        int B, T; /* of the graph, or of the last run */
        RunPart part;
        int seen; /* runs in a row at this shape */
} ProgState;

/* An optimiser step that is queued and whose numbers are not read yet. */
enum { N_FLIGHTS = 2, TRAIN_RING = 3 };

typedef struct Flight {
        int n_micro;
        uint64_t tokens;
        double scale;            /* of the loss */
        double loss, aux_loss;   /* of the micro-steps read so far */
        float share[TRAIN_RING]; /* of the others */
        bool has_loss, has_aux, has_norm, has_bad;
} Flight;

struct Session {
        const Plan *plan;
        Manifest m;
        Program p;
        Device *d;
        int mode;
        bool offload; /* of SessionOptions */
        uint64_t seed;
        ArenaState *arena;
        ProgState *prog;
        char *map; /* MAP_BYTES of each tensor map, on the host */
        Rt rt;
        /* "update" has an Rt of its own, so that the next step's can be uploaded */
        bool rt_changed[2];
        void *rt_mem[2]; /* while it runs */
        /* inference: pos tokens are in the cache, then one is pending for each of B sequences */
        int B, pos;
        bool has_pending;
        int pending[TGC_MAX_BATCH];
        int *hist; /* (batch, ctx): token at each position */
        /* a paged cache (session_pages.c): each pool's table (batch + 1, slot_pages) here and, one
         * after the other, on the device; tokens of a ragged call */
        int slot_pages, n_pools;
        int *table[TGC_POOLS], *call_ids;
        RtToken *token;
        void *table_mem, *token_mem;
        size_t table_bytes, token_bytes;
        bool plain_pages; /* sequence b has slot b, whose pages follow each other, in a ring */
        bool laid;        /* rt.start and the tokens are those of the ragged call that comes */
        RtDrawn *drawn;   /* (batch): of the step that is delivered */
        int n_drawn;      /* tokens sampled since the reset */
        float mu[TGC_MAX_BATCH]; /* of mirostat; 0: it has not begun */
        /* training */
        /* the last step had several micro-steps: its gradients lie in gsum */
        bool grads_summed;
        Flight flight[N_FLIGHTS];
        int first_flight, n_flights;
        /* Has the device passed this place (device.h)?  Since then nobody has touched what "step"
         * [0] reads of the host, or the Rt of "update" [1]. */
        bool passed[2];
};

/* ---- session.c ---- */

void set_seed(Session *s, uint64_t seed);
int session_load_kernels(Session *s, Err *e); /* of programs that are ready, or shall be */

/* ---- session_arenas.c ---- */

bool is_state_arena(const char *name); /* masters, optimiser states, averages */
bool is_update(const Prog *g);
void *ref_mem(const Session *s, Ref r);
int session_alloc_arenas(Session *s, Err *e); /* what the mode needs, if there is room for it */
int session_fill_arenas(Session *s, Err *e);  /* weights, constants, zeros */
int session_resolve(Session *s, Err *e);   /* addresses, and tensor maps, once an arena has moved */
int session_sum_grads(Session *s, Err *e); /* the first time: memory for sums over micro-steps */

/* ---- session_run.c ---- */

int session_run_part(Session *s, const char *name, int B, int T, RunPart part, Err *e);
int find_prog(Session *s, const char *name, const Prog **g, Err *e);
int find_io(Session *s, const char *prog, const char *io, const Io **out, void **mem, size_t *bytes,
            Err *e);
/* As find_io, and the input or output must have so many bytes. */
int io_at(Session *s, const char *prog, const char *io, size_t bytes, void **mem, Err *e);

void session_set_pos(Session *s); /* B sequences at s->pos, in slots 0 .. B - 1 */

/* ---- session_pages.c ---- */

/* Does the program take several tokens of each of several sequences, one after the other (rt.h)? */
bool is_ragged(const Session *s, const Prog *g);
int session_pages_open(Session *s, Err *e);
void session_pages_close(Session *s);
int session_plain_pages(Session *s, int B, Err *e);  /* for B sequences of equal length */
int session_pool_window(const Session *s, int pool); /* most that its layers look back; 0: all */
/* Where `rows` slots share the second pool, a slot's pages there are a ring.  Most tokens that a
 * call may write for a sequence, or that may be written beyond where it goes on: queries find all
 * keys then. */
int session_ring_room(const Session *s, int rows);
/* Slots 0 .. rows - 1 get pages for so many tokens, one after the other; in the second pool a
 * ring. */
int session_ring(Session *s, int rows, int tokens, Err *e);
/* The B rows of a decoding call have slot and pos; the others are nobody's. */
void session_rows(Session *s, int B);
/* T tokens, dealt out evenly to sequences at rt.pos. */
int session_even_call(Session *s, int B, int T, Err *e);
/* Tokens [pos, pos + n) of the sequence in a slot, whose table has pages for them.  The first parts
 * of a call of `mixed` have no ids: their one token is in the program's ids, and the next one is
 * sampled. */
typedef struct SeqPart {
        int slot, pos, n;
        const int *ids;
        int adapter; /* 0: none */
} SeqPart;
/* Which adapter the tokens of a call have: n of them, which[i] of 1 .. m.n_adapters, 0: none.  To
 * be written before each call of a plan whose sequences choose. */
int session_no_adapters(const Session *s, Err *e); /* a refusal, where sequences choose */
int session_write_adapters(Session *s, const Prog *g, const int *which, int n, Err *e);
int session_ragged(Session *s, const Prog *g, const SeqPart *part, int B, Err *e);
/* Entries [first, first + n) of a slot's row of a pool's table. */
int session_set_pages(Session *s, int pool, int slot, int first, const int *page, int n, Err *e);
int session_check_ids(const Session *s, const int *ids, size_t n, Err *e);
int session_load_weights(Session *s, Err *e); /* session_param.c: fill w, and p if there is one */

/* ---- session_sample.c ---- */

/* Where a decode program's slots and the ring of what was drawn lie; NULL: it has none. */
typedef struct SampleMemory {
        int *slots;
        RtDrawn *drawn;
        int n, cap; /* slots, tokens of a history */
} SampleMemory;

int sample_memory(const Session *s, const Prog *g, SampleMemory *m, Err *e);
int sample_check(const Session *s, const SampleMemory *m, const Sampling *how, Err *e);
/* What a sequence has said so far: its tokens, how many of them its random numbers drew, mirostat's
 * mu (0: it has not begun), its seed. */
typedef struct SampleState {
        const int *ids;
        int n_ids, drawn;
        float mu;
        uint64_t seed;
} SampleState;
int sample_slot(Session *s, const SampleMemory *m, const Sampling *how, const SampleState *q,
                int slot, Err *e);
/* Check `how` and write the slots of sequences 0..B-1: their parameters, counters and histories. */
int sample_begin(Session *s, const SampleMemory *m, const Sampling *how, Err *e);
/* Ask for the masks of the next tokens, token (B) being the last ones (NULL: none yet), and write
 * them. */
int sample_mask(Session *s, const SampleMemory *m, const Sampling *how, int sequence, int slot,
                int token, Err *e); /* of one: its last token, or -1 */
int sample_masks(Session *s, const SampleMemory *m, const Sampling *how, const int *token, Err *e);

/* ---- session_infer.c, session_draft.c ---- */

typedef struct Decode {
        Session *s;
        const Prog *g;
        void *ids, *next;
        SampleMemory m;
        const Sampling *how;
        TokenFn *fn;
        void *user;
        int first; /* position of the first sampled token */
        int delivered;
        int stop;
} Decode;

int decode_queue(Decode *x, int i, Err *e);   /* step i */
int decode_deliver(Decode *x, int i, Err *e); /* its tokens, to fn */
/* At most n tokens of one sequence, several of them by one call where a draft is right. */
int decode_drafted(Decode *x, int n, Draft *d, Err *e);
/* What may follow ids[0..n), by what followed the last few of them before: at most `most` tokens to
 * out; how many. */
int ngram_draft(const int *ids, int n, int most, int *out);

#endif
