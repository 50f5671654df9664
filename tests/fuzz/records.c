/* records.c: lines of a JSONL that is trained on, through a chat template; behind the first NUL, if
 * there is one, stands that of --fields. */
#include "file.h"
#include "../../cli/data/data.h"

static const char letters[] =
        " !\"'(),-.:;?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<>|_\n";
static const char template[] =
        "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>\n{% endif %}";

FUZZ(records)
{
        const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
        const size_t m = nul ? (size_t)(nul - data) : n;
        char *text = text_of_bytes(data, m),
             *fields = nul ? text_of_bytes(nul + 1, n - m - 1) : NULL;
        static Tokenizer *tok;
        static Chat chat = { .of = "fuzz" };
        Progress quiet = { .quiet = true };
        Records r;
        bool warned = false;
        Err e;
        if (!tok) {
                HOLDS(!tokenizer_new(&tok, TOK_CHAR, letters, sizeof letters - 1, &e));
                HOLDS(!chat_template_new(&chat.plain, template, sizeof template - 1, "t", &e));
        }
        for (int i = 0; i < 3 * (LOSS_ALL + 1); i++) {
                const RecordsKind kind = (RecordsKind)(i % 3);
                const LossOn loss = (LossOn)(i / 3);
                RecordsHow how = { .kind = kind,
                                   .tok = tok,
                                   .vocab = tokenizer_vocab(tok),
                                   .chat = &chat,
                                   .no_chat = "none",
                                   .join = loss == LOSS_LAST,
                                   .loss = loss,
                                   .fields = fields,
                                   .identity = "",
                                   .talk = &quiet,
                                   .warned = &warned };
                if (records_read(&r, &how, text, m, "fuzz", &e)) {
                        HOLDS(*e.msg && !r.n);
                        continue;
                }
                HOLDS(r.n > 0 && !r.start[0] && (kind != RECORDS_PAIRS || r.n % 2 == 0));
                void *bytes;
                size_t size;
                Records again;
                HOLDS(!records_pack(&r, &bytes, &size, &e));
                HOLDS(!records_unpack(&again, bytes, size, how.vocab, &e) && again.n == r.n);
                for (int64_t k = 0; k < r.n; k++) {
                        bool counts = kind == RECORDS_PROMPTS;
                        for (uint64_t j = r.start[k] + 1; j < r.start[k + 1]; j++)
                                counts |= r.id[j] >> 31;
                        HOLDS(counts);
                }
                records_free(&again);
                records_free(&r);
        }
        void *bytes = malloc(n + 1);
        HOLDS(bytes);
        memcpy(bytes, data, n);
        if (!records_unpack(&r, bytes, n, 500, &e))
                records_free(&r);
        free(text);
        free(fields);
}
