/* test_fuzz.c: every target of tests/fuzz over its seeds, among them what fuzzing has found.
 *
 * A new target is a line here. */
#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include "test.h"

/* Each file, and what is left of it when it is cut off and when a byte of it changes. */
static void replay(const char *name, void (*target)(const uint8_t *, size_t))
{
        char path[512];
        struct dirent *f;
        uint32_t x = 1;
        int n_file = 0;
        DIR *d;

        snprintf(path, sizeof path, "tests/fuzz/seeds/%s", name);
        CHECK_MSG((d = opendir(path)), "%s: no seeds", path);
        while ((f = readdir(d))) {
                if (*f->d_name == '.')
                        continue;
                snprintf(path, sizeof path, "tests/fuzz/seeds/%s/%s", name, f->d_name);
                FILE *in = fopen(path, "rb");
                CHECK_MSG(in, "%s", path);
                fseek(in, 0, SEEK_END);
                size_t n = (size_t)ftell(in);
                rewind(in);
                uint8_t *all = malloc(n + 1);
                CHECK(fread(all, 1, n, in) == n);
                fclose(in);
                target(all, n);
                for (int i = 0; i < 8 && n; i++) {
                        x = x * 1664525 + 1013904223;
                        size_t at = (x >> 8) % n, m = i % 2 ? n : at;
                        /* as long as it is, for sanitizers */
                        uint8_t *part = malloc(m + !m), was = all[at];
                        all[at] = (uint8_t)x;
                        memcpy(part, all, m);
                        all[at] = was;
                        target(part, m);
                        free(part);
                }
                free(all);
                n_file++;
        }
        closedir(d);
        CHECK(n_file > 0);
}

#define TARGET(name)                                     \
        void fuzz_##name(const uint8_t *data, size_t n); \
        TEST (fuzz_##name) {                             \
                replay(#name, fuzz_##name);              \
        }

TARGET(args)
TARGET(chat)
TARGET(chat_section)
TARGET(choices)
TARGET(config)
TARGET(continuations)
TARGET(gbnf)
TARGET(gguf)
TARGET(graph_json)
TARGET(graph_text)
TARGET(ids)
TARGET(imatrix)
TARGET(json)
TARGET(llama2c)
TARGET(lua)
TARGET(manifest)
TARGET(npy)
TARGET(objective)
TARGET(pack)
TARGET(peft_config)
TARGET(plan)
TARGET(plan_file)
TARGET(program)
TARGET(quant_folder)
TARGET(records)
TARGET(run)
TARGET(safetensors)
TARGET(schema)
TARGET(sentence)
TARGET(shards)
TARGET(state)
TARGET(tok_bert)
TARGET(tok_char)
TARGET(tok_gpt2)
TARGET(tok_json)
TARGET(tok_llama2c)
TARGET(tok_parts)
TARGET(tok_ranks)
TARGET(tok_spm)
TARGET(tok_train)
TARGET(token_bin)
TARGET(weight_map)

TEST_MAIN
