/* config.c: a byte that picks the family, then its config.json */
#include "model.h"

FUZZ(config)
{
        static const char *const family[] = { NULL,    "falcon",  "gemma2",  "gpt2",     "gpt_neox",
                                              "llama", "llama2c", "mistral", "mixtral",  "mpt",
                                              "phi3",  "qwen2",   "qwen3",   "qwen3_moe" };
        const ReadOptions o = { .seconds = FUZZ_SECONDS };
        Model *volatile m;

        if (!n)
                return;
        char *text = text_of_bytes(data + 1, n - 1);
        READS(m, read_lua_family(family[*data % (sizeof family / sizeof *family)], text, &o));
        if (m)
                use_model(m);
        model_free(m);
        free(text);
}
