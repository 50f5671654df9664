/* sampling.h: how `tgc run` samples (sampling.c). */
#ifndef TGC_CLI_SAMPLING_H
#define TGC_CLI_SAMPLING_H

#include "work.h"

/* s, and what it points to. */
typedef struct SamplingOptions {
        Sampling s;
        TgcBias *bias;
        uint32_t *bits;
        int *breakers;
} SamplingOptions;

/* tok may be NULL.  sampling_free also after a failure. */
int sampling_read(SamplingOptions *o, const Args *a, const Tokenizer *tok, int vocab, uint64_t seed,
                  Err *e);
void sampling_free(SamplingOptions *o);

/* {"content": [...]} of n tokens; tok may be NULL */
cJSON *logprobs_json(const Tokenizer *tok, const RtDrawn *d, int n);

#endif
