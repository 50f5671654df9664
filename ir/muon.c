/* muon.c: Muon's step of a matrix (Jordan et al., 2024), in double, as torch.optim.Muon with
 * match_rms_adamw has it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir.h"
#include "optimizer.h"

/* The nearest bf16: what the iteration keeps is rounded, which it enlarges where a matrix is of
 * low rank. */
static double to_bf16(double x)
{
        const float f = (float)x;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        float y;
        memcpy(&y, &bits, 4);
        return y;
}

/* z (n,n) = x x^T of x (n,k). */
static void gram(double *z, const double *x, int64_t n, int64_t k, bool round)
{
        for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                        double s = 0;
                        for (int64_t c = 0; c < k; c++)
                                s += x[i * k + c] * x[j * k + c];
                        z[i * n + j] = round ? to_bf16(s) : s;
                }
}

/* x (n,k), n <= k: singular values become about 1 (Newton and Schulz), in bf16. */
static void orthogonalize(double *x, int64_t n, int64_t k)
{
        const double a = 3.4445, b = -4.7750, c = 2.0315;
        double *g = mem_new((size_t)(n * n) * sizeof *g), *p = mem_new((size_t)(n * n) * sizeof *p),
               *y = mem_new((size_t)(n * k) * sizeof *y), length = 0;
        for (int64_t i = 0; i < n * k; i++) {
                x[i] = to_bf16(x[i]);
                length += x[i] * x[i];
        }
        length = sqrt(length) > 1e-7 ? sqrt(length) : 1e-7;
        for (int64_t i = 0; i < n * k; i++)
                x[i] = to_bf16(x[i] / length);
        for (int step = 0; step < MUON_STEPS; step++) {
                gram(g, x, n, k, true);
                gram(p, g, n, n, false); /* g is symmetric */
                for (int64_t i = 0; i < n * n; i++)
                        p[i] = to_bf16(b * g[i] + c * p[i]);
                for (int64_t i = 0; i < n; i++)
                        for (int64_t j = 0; j < k; j++) {
                                double s = a * x[i * k + j];
                                for (int64_t h = 0; h < n; h++)
                                        s += p[i * n + h] * x[h * k + j];
                                y[i * k + j] = to_bf16(s);
                        }
                memcpy(x, y, (size_t)(n * k) * sizeof *x);
        }
        free(g), free(p), free(y);
}

void muon_step(const OptimizerStep *c, double *p, const double *g, double *m, int64_t rows,
               int64_t cols, int64_t ld, bool decays)
{
        const double mu = 0.95, keep = decays ? 1 - c->lr * c->weight_decay : 1;
        const bool tall = rows > cols;
        const int64_t n = tall ? cols : rows, k = tall ? rows : cols;
        double *x = mem_new((size_t)(rows * cols) * sizeof *x);
        for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++) {
                        const int64_t at = i * ld + j;
                        m[at] += (1 - mu) * (g[at] - m[at]);
                        x[tall ? j * rows + i : i * cols + j] = g[at] + mu * (m[at] - g[at]);
                }
        orthogonalize(x, n, k);
        for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++)
                        p[i * ld + j] = keep * p[i * ld + j] -
                                        c->lr * 0.2 * sqrt((double)k) *
                                                x[tall ? j * rows + i : i * cols + j];
        free(x);
}
