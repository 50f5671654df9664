/* peft_config.c: an adapter_config.json, or, behind a '-', a line of --lora. */
#include "../../runtime/weights/peft_config.h"
#include "fuzz.h"

FUZZ(peft_config)
{
        static const char *const module[] = { "model.layers.0.self_attn.q_proj",
                                              "model.layers.11.mlp.down_proj",
                                              "transformer.h.3.attn.c_attn", "lm_head", "" };
        PeftConfig *c = NULL;
        char *line = NULL;
        double scale;
        Err e;
        int code;
        if (n > 1 << 16)
                return;
        if (n && data[0] == '-') {
                line = strndup((const char *)data + 1, n - 1);
                code = line ? peft_config_line(&c, line, &e) : 1;
        } else {
                code = peft_config_parse(&c, (const char *)data, n, "fuzz", &e);
        }
        free(line);
        HOLDS(!code == (c != NULL));
        if (code)
                return;
        for (int i = 0; i < 5; i++)
                HOLDS(peft_config_rank(c, module[i], i == 3, &scale) >= 0);
        /* what it writes says the same */
        char *text = peft_config_text(c, "base", true);
        PeftConfig *again = NULL;
        if (text && !peft_config_failed(c, &e)) {
                HOLDS(!peft_config_parse(&again, text, strlen(text), "again", &e));
                for (int i = 0; i < 5; i++) {
                        double other;
                        const int r = peft_config_rank(c, module[i], i == 3, &scale);
                        HOLDS(r == peft_config_rank(again, module[i], i == 3, &other));
                        HOLDS(!r || scale == other);
                }
        }
        peft_config_free(again);
        peft_config_free(c);
        free(text);
}
