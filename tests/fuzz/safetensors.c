/* safetensors.c: a file as it is; and header, a NUL, data, with the length put before it */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../runtime/weights/safetensors.h"

static void use_safetensors(const uint8_t *data, size_t n)
{
        Safetensors st;
        bool there;
        Err e;

        safetensors_probe(data, n);
        if (safetensors_parse(&st, data, n, "fuzz", &e)) {
                HOLDS(*e.msg);
                return;
        }
        for (int i = 0; i < st.n_tensors; i++) {
                const CkTensor *t = &st.tensor[i];
                int64_t count;
                HOLDS(t->bytes <= n &&
                      (t->bytes == 0 || ((const uint8_t *)t->data >= data &&
                                         (const uint8_t *)t->data + t->bytes <= data + n)));
                HOLDS(ck_count(t->rank, t->dim, &count) &&
                      (size_t)count * ck_dtype_size(t->dtype) == t->bytes && ck_name_ok(t->name));
        }
        safetensors_free(&st);
        safetensors_check_hash(data, n, &there, "fuzz", &e);
}

FUZZ(safetensors)
{
        const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
        size_t head = nul ? (size_t)(nul - data) : n, rest = n - head - (nul != NULL);
        uint8_t *file = malloc(8 + head + rest);
        uint64_t length = head;

        use_safetensors(data, n);
        HOLDS(file);
        memcpy(file, &length, 8);
        memcpy(file + 8, data, head);
        if (rest)
                memcpy(file + 8 + head, nul + 1, rest);
        use_safetensors(file, 8 + head + rest);
        free(file);
}
