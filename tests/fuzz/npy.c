/* npy.c: a .npy file, such as --batch_offsets */
#include "file.h"
#include "../../runtime/weights/npy.h"

FUZZ(npy)
{
        Npy a;
        Err e;

        if (npy_open(&a, file_of_bytes(data, n), &e))
                return;
        uint64_t sum = 0;
        for (size_t i = 0; i < (size_t)a.count * ck_dtype_size(a.dtype); i++)
                sum += ((const uint8_t *)a.u.data)[i];
        HOLDS(sum <= 255 * (uint64_t)n);
        npy_close(&a);
}
