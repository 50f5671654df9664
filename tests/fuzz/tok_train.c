/* tok_train.c: a vocabulary learned from any bytes can be read, and gives every byte back */
#include "tok.h"

FUZZ(tok_train)
{
        static const char *const special[] = { "<|x|>", "ab" };
        int want = n ? 258 + 4 * data[0] : 258, *ids, n_ids;
        TokTrainer *t;
        TokTrained what;
        Tokenizer *tok;
        char *json;
        size_t m, back = 0;
        Err e;

        HOLDS(tok_trainer_new(&t, want, special, 2, &e) == TGC_OK);
        HOLDS(tok_trainer_add(t, (const char *)data, n, &e) == TGC_OK);
        HOLDS(tok_trainer_run(t, &json, &m, &what, &e) == TGC_OK && what.vocab <= want);
        tok_trainer_free(t);
        HOLDS(tokenizer_new(&tok, TOK_HF, json, m, &e) == TGC_OK);
        HOLDS(tokenizer_vocab(tok) == what.vocab);
        HOLDS(tokenizer_encode(tok, (const char *)data, n, 0, &ids, &n_ids, &e) == TGC_OK);
        TokStream at = { 0 };
        for (int i = 0; i < n_ids; i++) {
                const char *s = tokenizer_next(tok, &at, ids[i], &m);
                if (tokenizer_is_special(tok, ids[i]))
                        m = strlen(special[ids[i]]);
                else
                        HOLDS(back + m <= n && !memcmp(s, data + back, m));
                back += m;
        }
        HOLDS(back == n);
        free(ids);
        free(json);
        tokenizer_free(tok);
}
