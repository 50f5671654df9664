/* embed_text.c: implements embed_text.h. */
#include "embed_text.h"
#include <stdlib.h>
#include <string.h>

int embed_settings(Sentence *s, const Plan *p, Err *e)
{
        const Section *x = plan_find(p, "embedding");
        *s = (Sentence) { 0 };
        return x ? sentence_unpack(s, x->data, x->size, e) : TGC_OK;
}

/* The text behind the prompt; malloc'ed. */
static char *join(const char *prompt, const char *text, size_t *n)
{
        const size_t p = strlen(prompt);
        char *all = malloc(p + *n + 1);
        if (!all)
                return NULL;
        memcpy(all, prompt, p);
        memcpy(all + p, text, *n);
        all[ *n += p] = 0;
        return all;
}

int embed_encode(const Tokenizer *tok, const Sentence *s, int most, const char *text, size_t n,
                 int **ids, int *n_ids, int *cut, Err *e)
{
        const int *suffix, n_suffix = tokenizer_suffix(tok, &suffix);
        char *all = s->prompt ? join(s->prompt, text, &n) : NULL;
        int code;
        *ids = NULL;
        *cut = 0;
        if (s->prompt && !all)
                return err_set(e, TGC_NO_MEMORY, "no memory for a text");
        code = tokenizer_encode(tok, all ? all : text, n, -1, ids, n_ids, e);
        free(all);
        if (code)
                return code;
        if (s->max_tokens && s->max_tokens < most)
                most = s->max_tokens;
        if (most <= n_suffix + (tokenizer_adds_bos(tok) != 0))
                code = err_set(e, TGC_USAGE,
                               "a text may have %d tokens, and the tokenizer puts %d around it, so "
                               "none is left for the text%s",
                               most, n_suffix + (tokenizer_adds_bos(tok) != 0),
                               most == s->max_tokens ? "" : ": give a larger --ctx-size");
        int *more = code ? NULL
                         : realloc(*ids, ((size_t)*n_ids + (size_t)n_suffix + 1) * sizeof *more);
        if (!code && !more)
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d ids", *n_ids);
        if (code) {
                free(*ids);
                *ids = NULL;
                return code;
        }
        *ids = more;
        if (*n_ids > most - n_suffix) {
                *cut = *n_ids - (most - n_suffix);
                *n_ids = most - n_suffix;
        }
        for (int i = 0; i < n_suffix; i++)
                more[(*n_ids)++] = suffix[i];
        return TGC_OK;
}
