/* imatrix.c: an importance matrix, in GGUF or llama.cpp's older form. */
#include "../../cli/quantize/imatrix.h"
#include "file.h"

FUZZ(imatrix)
{
        const float *means;
        int64_t matrices;
        Imatrix *m;
        Err e;

        if (imatrix_open(&m, file_of_bytes(data, n), &e)) {
                HOLDS(*e.msg && !m);
                return;
        }
        HOLDS(imatrix_count(m) > 0);
        if (!imatrix_find(m, "a.w", 4, &means, &matrices, &e) && means)
                for (int64_t i = 0; i < 4 * matrices; i++)
                        HOLDS(means[i] >= 0);
        imatrix_close(m);
}
