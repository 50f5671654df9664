/* tok.h: what is done with a tokenizer that a target has built. */
#ifndef TGC_FUZZ_TOK_H
#define TGC_FUZZ_TOK_H

#include "fuzz.h"
#include "../../runtime/tokenizer/tokenizer.h"

static inline void use_tokenizer(const Tokenizer *t, const char *text, size_t n)
{
        int *ids, n_ids;
        Err e;

        if (tokenizer_encode(t, text, n, 1, &ids, &n_ids, &e) == TGC_OK) {
                TokStream at = { 0 };
                char *back;
                size_t m;

                for (int i = 0; i < n_ids; i++) {
                        HOLDS(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
                        tokenizer_next(t, &at, ids[i], &m);
                }
                HOLDS(tokenizer_text(t, ids, n_ids, &back, &m, &e) == TGC_OK && !back[m]);
                free(back);
                free(ids);
        }
}

/* The file, and its last bytes as a text; a packed tokenizer is the same one. */
static inline void use_file(int kind, const uint8_t *data, size_t n)
{
        static const char fixed[] =
                "Ab  a\xcc\x81 12 <s>\xe2\x96\x81\xe4\xb8\xad\n\xff\xf0\x9f\x98\x80'll";
        Tokenizer *t, *u;
        size_t m, tail = n < 64 ? n : 64;
        void *pack;
        Err e;

        if (tokenizer_new(&t, kind, data, n, &e) != TGC_OK) {
                HOLDS(!t && e.code != TGC_OK && *e.msg);
                return;
        }
        use_tokenizer(t, fixed, sizeof fixed - 1);
        use_tokenizer(t, (const char *)data + n - tail, tail);
        HOLDS(tokenizer_pack(t, &pack, &m, &e) == TGC_OK);
        HOLDS(tokenizer_unpack(&u, pack, m, &e) == TGC_OK &&
              tokenizer_vocab(u) == tokenizer_vocab(t));
        tokenizer_free(u);
        free(pack);
        tokenizer_free(t);
}

#endif
