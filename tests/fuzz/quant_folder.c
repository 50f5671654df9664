/* quant_folder.c: config.json, a NUL, the header of model.safetensors, a NUL, its data: the weights
 * that quantised tensors stand for, decoded where they are small. */
#include <math.h>
#include "folder.h"
#include "../../runtime/weights/checkpoint.h"
#include "../../runtime/weights/packed.h"

enum { MOST_BYTES = 1 << 20 };

static void put_tensors(const uint8_t *head, size_t n, const uint8_t *data, size_t size)
{
        uint8_t *file = calloc(8 + n + size, 1);
        const uint64_t length = n;
        HOLDS(file);
        memcpy(file, &length, 8);
        memcpy(file + 8, head, n);
        memcpy(file + 8 + n, data, size);
        folder_put("model.safetensors", file, 8 + n + size);
        free(file);
}

/* In blocks the values are the same, to the bit. */
static void check_blocks(const CkTensor *t, const float *plain, size_t n)
{
        const CkTensor b = ck_as_blocks(t, t->blocks);
        uint8_t *mem = malloc(b.bytes);
        float *v = malloc(n * sizeof *v);
        Err e;
        HOLDS(mem && v && !ck_unpack(&b, mem, &e));
        HOLDS(ck_convert(v, CK_F32, mem, b.dtype, n, 1));
        for (size_t i = 0; i < n; i++)
                HOLDS(!memcmp(v + i, plain + i, sizeof *v) || (isnan(v[i]) && isnan(plain[i])));
        free(mem);
        free(v);
}

FUZZ(quant_folder)
{
        Checkpoint *ck;
        Err e;
        size_t m;
        const uint8_t *p = part_of_bytes(&data, &n, &m);

        folder_put("config.json", p, m);
        p = part_of_bytes(&data, &n, &m);
        put_tensors(p, m, data, n);
        if (checkpoint_open(&ck, folder, &e)) {
                HOLDS(*e.msg);
                return;
        }
        for (int i = 0; i < checkpoint_count(ck); i++) {
                const CkTensor *t = checkpoint_at(ck, i);
                int64_t count;
                HOLDS(checkpoint_find(ck, t->name) == t && ck_name_ok(t->name));
                HOLDS(ck_count(t->rank, t->dim, &count) &&
                      (size_t)count * ck_dtype_size(t->dtype) == t->bytes);
                if (!t->packed || t->bytes > MOST_BYTES)
                        continue;
                void *mem = malloc(t->bytes);
                HOLDS(mem);
                if (ck_unpack(t, mem, &e))
                        HOLDS(*e.msg);
                else if (t->blocks && t->dtype == CK_F32)
                        check_blocks(t, mem, (size_t)count);
                free(mem);
        }
        checkpoint_close(ck);
}
