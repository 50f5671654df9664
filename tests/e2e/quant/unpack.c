/* unpack.c: a tensor of a quantised folder as float32 on stdout, for decode.py.
 *
 *     unpack FOLDER TENSOR */
#include <stdio.h>
#include <stdlib.h>
#include "../../../runtime/weights/checkpoint.h"
#include "../../../runtime/weights/packed.h"

int main(int argc, char **argv)
{
        Checkpoint *ck;
        Err e;
        if (argc != 3)
                return 2;
        if (checkpoint_open(&ck, argv[1], &e)) {
                fprintf(stderr, "%s\n", e.msg);
                return 3;
        }
        const CkTensor *t = checkpoint_find(ck, argv[2]);
        if (!t || !t->packed)
                return 2;
        const size_t n = t->bytes / ck_dtype_size(t->dtype);
        void *mem = malloc(t->bytes);
        float *v = malloc(n * sizeof *v);
        if (!mem || !v)
                return 5;
        if (ck_unpack(t, mem, &e)) {
                fprintf(stderr, "%s\n", e.msg);
                return 3;
        }
        ck_convert(v, CK_F32, mem, t->dtype, n, 1);
        const bool whole = fwrite(v, sizeof *v, n, stdout) == n;
        free(v);
        free(mem);
        checkpoint_close(ck);
        return whole ? 0 : 8;
}
