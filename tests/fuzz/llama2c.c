/* llama2c.c: a llama2.c checkpoint: as it is; and its header, the rest being as long as that asks
 * for (64 KiB at most) */
#include "file.h"
#include "../../runtime/weights/checkpoint.h"

/* All of them are there. */
static void use_bytes(const CkTensor *t)
{
        static uint8_t some[4096];
        for (size_t k = 0; k < t->bytes; k += sizeof some)
                memcpy(some, (const uint8_t *)t->data + k,
                       t->bytes - k < sizeof some ? t->bytes - k : sizeof some);
}

static void use_llama2c(const uint8_t *data, size_t n)
{
        const char *path = file_of_bytes(data, n);
        Llama2cConfig c;
        Checkpoint *ck;
        Err e;

        if (llama2c_config(path, &c, &e))
                return;
        HOLDS(!checkpoint_new(&ck, path, &e));
        if (!checkpoint_add_llama2c(ck, path, &e)) {
                HOLDS(!checkpoint_seal(ck, &e));
                for (int i = 0; i < checkpoint_count(ck); i++)
                        use_bytes(checkpoint_at(ck, i));
        }
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
            !(makes = strrchr(e.msg, ' ')) || (want = strtoull(makes, NULL, 10)) > 1 << 16 ||
            want < n)
                return;
        uint8_t *all = calloc(want, 1);
        HOLDS(all);
        memcpy(all, data, n);
        use_llama2c(all, want);
        free(all);
}
