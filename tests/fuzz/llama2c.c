/* llama2c.c: a llama2.c checkpoint: as it is; and its header, the rest being as long as that asks
 * for (256 KiB at most) */
#include "file.h"
#include "../../runtime/weights/checkpoint.h"

static void use_llama2c(const uint8_t *data, size_t n)
{
        const char *path = file_of_bytes(data, n);
        Llama2cConfig c;
        Checkpoint *ck;
        Err e;
        uint64_t sum = 0;

        if (llama2c_config(path, &c, &e))
                return;
        HOLDS(!checkpoint_new(&ck, path, &e));
        if (!checkpoint_add_llama2c(ck, path, &e)) {
                HOLDS(!checkpoint_seal(ck, &e));
                for (int i = 0; i < checkpoint_count(ck); i++)
                        for (size_t k = 0; k < checkpoint_at(ck, i)->bytes; k++)
                                sum += ((const uint8_t *)checkpoint_at(ck, i)->data)[k];
        }
        HOLDS(sum <= 255 * 4 * (uint64_t)n + 4096);
        checkpoint_close(ck);
}

FUZZ(llama2c)
{
        Llama2cConfig c;
        const char *makes;
        Err e;
        size_t want;

        use_llama2c(data, n);
        if (n < 28 || !llama2c_config(file_of_bytes(data, n), &c, &e) ||
            !(makes = strrchr(e.msg, ' ')) || (want = strtoull(makes, NULL, 10)) > 1 << 18 ||
            want < n)
                return;
        uint8_t *all = calloc(want, 1);
        HOLDS(all);
        memcpy(all, data, n);
        use_llama2c(all, want);
        free(all);
}
