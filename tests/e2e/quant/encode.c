/* encode.c: float32 on stdin to blocks on stdout, for encode.py.
 *
 *     encode NUMBER       ggml's number of the type */
#include <stdio.h>
#include <stdlib.h>
#include "../../../runtime/weights/block_encode.h"

enum { BLOCKS = 4096 };

int main(int argc, char **argv)
{
        const int type = argc == 2 ? ck_dtype_of_gguf((uint32_t)atoi(argv[1])) : -1;
        if (!ck_can_encode(type)) {
                fprintf(stderr, "encode: which type?\n");
                return 2;
        }
        const size_t bytes = ck_block_bytes(type), values = (size_t)ck_block_values(type);
        float *in = malloc(BLOCKS * values * sizeof *in);
        unsigned char *out = malloc(BLOCKS * bytes);
        if (!in || !out)
                return 5;
        for (size_t n; (n = fread(in, values * sizeof *in, BLOCKS, stdin)) > 0;) {
                if (!ck_encode(out, type, in, (int64_t)n, (int64_t)values, NULL))
                        return 3;
                if (fwrite(out, bytes, n, stdout) != n)
                        return 8;
        }
        free(in);
        free(out);
        return 0;
}
