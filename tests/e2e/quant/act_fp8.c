/* act_fp8.c: floats from standard input, rounded as the evaluator does for --act fp8, as floats to
 * standard output; every N of them share a scale (act_fp8.py). */
#include <stdio.h>
#include <stdlib.h>
#include "../../../ir/ir.h"

int main(int argc, char **argv)
{
        const int n = argc > 1 ? atoi(argv[1]) : 128;
        float *x = malloc((size_t)n * sizeof *x);
        double *v = malloc((size_t)n * sizeof *v);
        while (fread(x, sizeof *x, (size_t)n, stdin) == (size_t)n) {
                for (int i = 0; i < n; i++)
                        v[i] = (double)x[i];
                fp8_round_scaled(v, n);
                for (int i = 0; i < n; i++)
                        x[i] = (float)v[i];
                fwrite(x, sizeof *x, (size_t)n, stdout);
        }
        free(x);
        free(v);
        return 0;
}
