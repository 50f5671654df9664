/* shards.c: config.json, a NUL, model.safetensors.index.json, a NUL, and the headers of two shards,
 * each with a NUL behind it.  Their data is zeros, as many as the headers ask for (64 KiB at
 * most). */
#include "../../runtime/util/line_reader.h"
#include "folder.h"
#include "../../runtime/weights/checkpoint.h"

/* The largest number in it. */
static size_t largest_of(const uint8_t *s, size_t n)
{
        size_t most = 0, x = 0;

        for (size_t i = 0; i < n; i++) {
                x = s[i] >= '0' && s[i] <= '9' ? x * 10 + (size_t)(s[i] - '0') : 0;
                most = x > most && x <= 65536 ? x : most;
                x = x > 65536 ? 65536 : x;
        }
        return most;
}

static void put_shard(const char *name, const uint8_t *head, size_t n)
{
        size_t zeros = largest_of(head, n);
        uint64_t length = n;
        uint8_t *file = calloc(8 + n + zeros, 1);

        HOLDS(file);
        memcpy(file, &length, 8);
        memcpy(file + 8, head, n);
        folder_put(name, file, n ? 8 + n + zeros : 0);
        free(file);
}

FUZZ(shards)
{
        const char *const file[] = { "config.json", "model.safetensors.index.json", "a.safetensors",
                                     "b.safetensors" };
        Checkpoint *ck;
        char *config;
        Err e;

        for (int i = 0; i < 4; i++) {
                size_t m;
                const uint8_t *p = part_of_bytes(&data, &n, &m);
                if (i < 2)
                        folder_put(file[i], p, m);
                else
                        put_shard(file[i], p, m);
        }
        if (!hf_config_read(folder, &config, &e))
                free(config);
        if (checkpoint_open(&ck, folder, &e)) {
                HOLDS(*e.msg);
                return;
        }
        uint64_t sum = 0;
        for (int i = 0; i < checkpoint_count(ck); i++) {
                const CkTensor *t = checkpoint_at(ck, i);
                HOLDS(checkpoint_find(ck, t->name) == t);
                for (size_t k = 0; k < t->bytes; k++)
                        sum += ((const uint8_t *)t->data)[k];
        }
        HOLDS(!sum);
        checkpoint_close(ck);
}
