/* sentence.c: what says how an encoder's text gets its vector: modules.json, the pooling's
 * config.json, sentence_bert_config.json and config_sentence_transformers.json, each with a NUL
 * behind it, then a plan's section `embedding`; what is read is written the same way. */
#include <sys/stat.h>
#include "../../runtime/util/line_reader.h"
#include "../../runtime/weights/sentence.h"
#include "folder.h"

static void look(Sentence *s)
{
        Sentence u;
        char *text, *again;
        size_t k, l;
        Err e;
        HOLDS((int)s->pooling >= 0 && s->pooling < N_POOLINGS && s->max_tokens >= 0);
        HOLDS(!sentence_pack(s, &text, &k, &e));
        HOLDS(!sentence_unpack(&u, text, k, &e));
        HOLDS(!sentence_pack(&u, &again, &l, &e) && l == k && !memcmp(text, again, k));
        free(text);
        free(again);
        sentence_free(&u);
        sentence_free(s);
}

FUZZ(sentence)
{
        static const char *const file[] = { "modules.json", "1_Pooling/config.json",
                                            "sentence_bert_config.json",
                                            "config_sentence_transformers.json" };
        Sentence s;
        Err e = { 0 };
        mkdir(in_folder("1_Pooling"), 0700);
        for (int i = 0; i < 4; i++) {
                size_t m;
                const uint8_t *p = part_of_bytes(&data, &n, &m);
                folder_put(file[i], p, m);
        }
        if (!sentence_folder(&s, folder, &e))
                look(&s);
        else
                HOLDS(*e.msg);
        if (!sentence_unpack(&s, (const char *)data, n, &e))
                look(&s);
}
