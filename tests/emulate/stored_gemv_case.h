/* stored_gemv_case.h: a product of a few random rows by random blocks, its operands and what it
 * must give. */
#ifndef TGC_TEST_STORED_GEMV_CASE_H
#define TGC_TEST_STORED_GEMV_CASE_H

#include "task.h"
#include "stored_decode.cuh"
#include "stored_blocks.h"
#include "decode_run.h"

/* Mostly near 1, a few a thousand times as large or as small. */
static float some_x()
{
        const unsigned r = next_random();
        const float u = (float)(next_random() % 4096) / 2048.f - 1.f;
        return r % 64 == 0 ? u * 100.f : r % 64 == 1 ? u * 1e-3f : u;
}

template <class S, int M, int N, int K>
struct Case {
        unsigned char *w;
        float *decoded, *x;
        double scale[M], mean[M];

        explicit Case(const char *type, int norm)
        {
                w = (unsigned char *)mem((size_t)N * K / S::VALUES * S::BYTES);
                decoded = (float *)mem((size_t)N * K * 4);
                x = (float *)mem((size_t)M * K * 4);
                random_blocks<S>(type, w, (long)N * K / S::VALUES);
                for (int i = 0; i < M * K; i++)
                        x[i] = i / 32 % 5 == 4 ? 0.f : some_x();
                const DecodeRun<S> decode = { w, decoded, (long)N * K };
                report(task_run(decode, (N * K + 2047) / 2048, 64, 0, "decode"), type);
                for (int m = 0; m < M; m++) {
                        double sum = 0, squares = 0;
                        for (int k = 0; k < K; k++)
                                sum += x[m * K + k];
                        mean[m] = norm == NORM_LAYER ? sum / K : 0;
                        for (int k = 0; k < K; k++)
                                squares += (x[m * K + k] - mean[m]) * (x[m * K + k] - mean[m]);
                        scale[m] = norm == NORM_NONE ? 1 : 1 / sqrt(squares / K + 1e-5);
                }
        }
        ~Case() { mem_free(w), mem_free(decoded), mem_free(x); }
        Case(const Case &) = delete;

        /* The largest of x's 32 neighbours that k is of. */
        double largest(int m, int k) const
        {
                double most = 0;
                for (int i = k / 32 * 32; i < k / 32 * 32 + 32; i++)
                        most = fmax(most, fabs((x[m * K + i] - mean[m]) * scale[m]));
                return most;
        }

        /* step: to what x is rounded, of the largest of 32. */
        void compare(const Result &r, double step, const char *name) const
        {
                for (int m = 0; m < M; m++)
                        for (int n = 0; n < N; n++) {
                                double want = 0, size = 0, most = 0, tolerance = 1e-6;
                                for (int k = 0; k < K; k++) {
                                        most = k % 32 ? most : largest(m, k);
                                        tolerance += step / 2 * most *
                                                     fabs(decoded[(size_t)n * K + k]);
                                        const double p = (x[m * K + k] - mean[m]) * scale[m] *
                                                         decoded[(size_t)n * K + k];
                                        want += p;
                                        size += fabs(p);
                                }
                                const double c = r.c[(size_t)m * N + n];
                                const int count = r.count[(size_t)m * N + n];
                                if (!(fabs(c - want) <= tolerance + 1e-6 * size) || count != 1 ||
                                    *r.wrong) {
                                        printf("  %s: C[%d][%d] is %g, delivered %d times; want %g "
                                               "of %g\n",
                                               name, m, n, c, count, want, size);
                                        report(false, name);
                                        return;
                                }
                        }
                report(true, name);
        }
};

#endif
