/* run.h: the state that `tgc run` keeps for one text in generation. */
#ifndef TGC_RUN_H
#define TGC_RUN_H

#include "prompts.h"
#include "sampling.h"
#include "../load/open.h"

typedef struct Gen {
        const Args *a;
        const Plan *plan;
        Tokenizer *tok; /* NULL: ids only */
        int *ids;
        int n, n_prompt, cap;
        int which, of;   /* this prompt, from 0, and how many there are */
        bool text;       /* stream it */
        bool answers;    /* --messages: the prompt is not shown */
        int end_of_turn; /* it ends an answer, as end-of-text does; -1: none */
        /* why it ended, as --json says it: eos, stop, signal, context, length, non_finite */
        const char *stop;
        int ctx;    /* most tokens that the model can look at here */
        int shifts; /* how often --context-shift made room */
        TokStream at;
        char *hold;
        size_t n_hold, cap_hold; /* text not written yet */
        const Session *session;
        RtDrawn *drawn; /* with --logprobs: of each token that was sampled */
        int n_drawn;
        size_t own;          /* where in it the model's own text begins */
        GrammarText grammar; /* where there is one */
        Draft draft;         /* most 0: none */
        Err *e;
        int code;
        bool follows; /* something was printed before it */
        bool whole;   /* its text is printed when it has ended, not as it comes */
} Gen;

typedef struct Clock {
        double load, prompt, decode;
} Clock;

/* ---- cmd_run.c ---- */

/* It begins with a prompt, and nothing was said. */
int gen_begin(Gen *r, const Prompt *p);
/* It says a token; nonzero: it ends here, and r->code and r->stop say why. */
int gen_take(Gen *r, int token, const RtDrawn *drawn);
int gen_report(Gen *r, const Clock *c, const Session *s, uint64_t seed, Err *e);
void gen_free(Gen *r);

/* Tokens that --context-shift keeps of n of a prompt: --keep, and what stands before a text. */
int shift_keeps(const Args *a, const Tokenizer *tok, const int *ids, int n, int ctx, int *keep,
                Err *e);

/* ---- run_together.c ---- */

/* Every prompt `parallel` times, decoded together; each is printed as it ends, ids in order.  like:
 * the options that all have in common. */
int run_together(const Gen *like, Session *s, const Prompts *p, int parallel, const Sampling *how,
                 Clock *c, Err *e);

#endif
