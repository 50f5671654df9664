/* decode.c: blocks on stdin to float32 on stdout, for decode.py.
 *
 *     decode NUMBER       ggml's number of the type */
#include <stdio.h>
#include <stdlib.h>
#include "../../../runtime/weights/ck_tensor.h"

enum { BLOCKS = 4096 };

int main(int argc, char **argv)
{
        const int type = argc == 2 ? ck_dtype_of_gguf((uint32_t)atoi(argv[1])) : -1;
        if (type < 0 || !ck_dtype_is_float(type)) {
                fprintf(stderr, "decode: which type?\n");
                return 2;
        }
        const size_t bytes = ck_block_bytes(type), values = (size_t)ck_block_values(type);
        unsigned char *in = malloc(BLOCKS * bytes);
        float *out = malloc(BLOCKS * values * sizeof *out);
        if (!in || !out)
                return 5;
        for (size_t n; (n = fread(in, bytes, BLOCKS, stdin)) > 0;) {
                ck_convert(out, CK_F32, in, type, n * values, 1);
                if (fwrite(out, sizeof *out, n * values, stdout) != n * values)
                        return 8;
        }
        free(in);
        free(out);
        return 0;
}
