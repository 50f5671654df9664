/* attention_short.cuh: float32 attention of up to 64 tokens, forward and all gradients; one block
 * per head of a sequence.
 *
 *      attention_short_task<Att>(in, lse, B, T, rt, tile, smem, epilogue)
 *              B*H tiles
 *      attention_short_grad_task<Att>(in, g, sg, lse, B, T, rt, tile, smem, epilogue, epilogue_k,
 *              epilogue_v)
 *              B*H tiles, H == K
 *
 * The functions of attention.cuh and attention_backward.cuh, with the same `in` and epilogues.
 * All scores exist at once: softmax is one pass, the gradients take five GEMMs instead of seven,
 * delta is the row sum of P * dP, and dq, dk, dv are one launch instead of three.
 *
 * A GEMM is three tf32 mmas (gemm_tf32.cuh), in separate accumulators, since with few warps the
 * chains of sums are the latency.  Eight warps: warp w has 16 queries, w % 4, and half of the
 * keys, w / 4; later 16 rows and half of the columns of each result.
 *
 * Requires: D 32 or 64, VEC 4, not CACHED, 256 threads, SMEM_FWD or SMEM_GRAD bytes. */
#ifndef TGC_ATTENTION_SHORT_CUH
#define TGC_ATTENTION_SHORT_CUH

#include "attention.cuh"
#include "gemm_tf32.cuh"

template <class Att>
struct AttShort {
        static constexpr int MOST = 64, D = Att::D, THREADS = 256;
        static constexpr int LD = D + 8, LP = MOST + 8; /* padded rows, in floats */
        static constexpr int NJ = D / 16;               /* fragments in half a row */
        static constexpr int X = MOST * LD, P = MOST * LP;
        static constexpr int SMEM_FWD = (3 * X + P + 4 * MOST) * 4,
                             SMEM_GRAD = (3 * X + 2 * P + 2 * MOST) * 4;
        static_assert(D % 32 == 0 && LD <= LP && Att::VEC == 4 && !Att::CACHED, "see above");

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        static __device__ __forceinline__ int rows() { return (threadIdx.x >> 5) % 4 * 16; }
        static __device__ __forceinline__ int half() { return threadIdx.x >> 7; }

        /* Copies one head's rows, zeros from T on. */
        static __device__ __forceinline__ void copy(float *s, const float *x, long stride, int T)
        {
#pragma unroll
                for (int i = 0; i < MOST * D / 4 / THREADS; i++) {
                        const int e = (int)threadIdx.x + i * THREADS, r = e / (D / 4),
                                  c = e % (D / 4) * 4;
                        cp_async16(s + r * LD + c, x + (r < T ? r : 0) * stride + c, r < T);
                }
        }

        /* 3xTF32: d[0] += hi hi; d[1] and d[2] += the products with a lo part. */
        template <int N>
        static __device__ __forceinline__ void mma(float (&d)[3][N][4], unsigned (&a)[4],
                                                   unsigned (&b)[N][2])
        {
#if TGC_TF32
#pragma unroll
                for (int x = 0; x < 4; x++)
                        a[x] = to_tf32(__uint_as_float(a[x]));
                round_tf32(b);
#pragma unroll
                for (int j = 0; j < N; j++)
                        mma_1688_tf32(d[0][j], a, b[j]);
#else
                unsigned al[4], bl[N][2];
#pragma unroll
                for (int x = 0; x < 4; x++)
                        al[x] = split_tf32(a[x]);
#pragma unroll
                for (int j = 0; j < N; j++)
#pragma unroll
                        for (int x = 0; x < 2; x++)
                                bl[j][x] = split_tf32(b[j][x]);
#pragma unroll
                for (int j = 0; j < N; j++)
                        mma_1688_tf32(d[1][j], al, b[j]);
#pragma unroll
                for (int j = 0; j < N; j++)
                        mma_1688_tf32(d[0][j], a, b[j]);
#pragma unroll
                for (int j = 0; j < N; j++)
                        mma_1688_tf32(d[2][j], a, bl[j]);
#endif
        }

        template <int N>
        static __device__ __forceinline__ void zero(float (&d)[3][N][4])
        {
#pragma unroll
                for (int x = 0; x < 3 * N * 4; x++)
                        d[x / (N * 4)][x / 4 % N][x % 4] = 0.f;
        }
        template <int N>
        static __device__ __forceinline__ void sum(float (&x)[N][4], const float (&d)[3][N][4])
        {
#pragma unroll
                for (int i = 0; i < N * 4; i++)
                        x[i / 4][i % 4] = d[0][i / 4][i % 4] +
                                          (d[1][i / 4][i % 4] + d[2][i / 4][i % 4]);
        }

        /* A fragments of 16 rows, 8 of K from k on: from a matrix with A's rows as rows (rows g
         * and g + 8) ... */
        static __device__ __forceinline__ void rows_a(unsigned (&f)[4], const float *a, int ld,
                                                      int k)
        {
                ldmatrix_x4(f, a + (lane() & 15) * ld + k + (lane() >> 4) * 4);
        }
        /* ... and from one with K as rows (columns 2g and 2g + 1). */
        static __device__ __forceinline__ void columns_a(unsigned (&f)[4], const float *a, int ld,
                                                         int k)
        {
#pragma unroll
                for (int u = 0; u < 2; u++) {
                        float v[2];
                        load<2>(v, a + (k + u * 4 + (lane() & 3)) * ld + lane() / 4 * 2);
                        f[2 * u] = __float_as_uint(v[0]), f[2 * u + 1] = __float_as_uint(v[1]);
                }
        }

        /* x = the warp's 16 rows of a times its 32 rows of b: x[j][2h + c] is row g + 8h, column
         * 8j + 2t + c. */
        static __device__ __forceinline__ void scores(float (&x)[4][4], const float *a,
                                                      const float *b)
        {
                float d[3][4][4];
                zero(d);
                a += rows() * LD;
                b += half() * 32 * LD;
#pragma unroll
                for (int k = 0; k < D; k += 8) {
                        unsigned fa[4], fb[4][2];
                        rows_a(fa, a, LD, k);
#pragma unroll
                        for (int j = 0; j < 4; j += 2) {
                                unsigned r[4];
                                ldmatrix_x4(r, b + (j * 8 + (lane() & 7) + (lane() >> 4) * 8) * LD +
                                                       k + (lane() >> 3 & 1) * 4);
                                fb[j][0] = r[0], fb[j][1] = r[1], fb[j + 1][0] = r[2],
                                fb[j + 1][1] = r[3];
                        }
                        mma(d, fa, fb);
                }
                sum(x, d);
        }

        /* The warp's 16 rows of p (TRANS: of p^T) times its columns of b, row by row times f, to
         * the epilogue.  h = 0, 1 is row g + 8h (TRANS: 2g + h); a pair of fragments j, j + 1 has
         * columns 2g + j. */
        template <bool TRANS, class Factor, class Epilogue>
        static __device__ __forceinline__ void result(const float *p, const float *b, int T,
                                                      int row_base, int col_base,
                                                      const Factor &factor, Epilogue &epilogue)
        {
                float o[NJ][4], d[3][NJ][4];
                zero(d);
                p += rows() * (TRANS ? 1 : LP);
                b += half() * (D / 2);
#pragma unroll
                for (int k = 0; k < MOST; k += 8) {
                        unsigned fa[4], fb[NJ][2];
                        if (TRANS)
                                columns_a(fa, p, LP, k);
                        else
                                rows_a(fa, p, LP, k);
#pragma unroll
                        for (int j = 0; j < NJ; j += 2)
#pragma unroll
                                for (int u = 0; u < 2; u++) {
                                        float v[2];
                                        load<2>(v, b + (k + u * 4 + (lane() & 3)) * LD + j * 8 +
                                                           lane() / 4 * 2);
                                        fb[j][u] = __float_as_uint(v[0]),
                                        fb[j + 1][u] = __float_as_uint(v[1]);
                                }
                        mma(d, fa, fb);
                }
                sum(o, d);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        const int t = rows() + (TRANS ? lane() / 4 * 2 + h : lane() / 4 + h * 8);
                        const float f = factor(t);
                        if (t >= T)
                                continue;
#pragma unroll
                        for (int j = 0; j < NJ; j += 2)
                                att_put4(epilogue, row_base + t,
                                         col_base + half() * (D / 2) + j * 8 + (lane() & 3) * 4,
                                         o[j][2 * h] * f, o[j + 1][2 * h] * f, o[j][2 * h + 1] * f,
                                         o[j + 1][2 * h + 1] * f);
                }
        }

        static __device__ __forceinline__ int query(int h) { return rows() + lane() / 4 + h * 8; }
        static __device__ __forceinline__ int key(int j, int c)
        {
                return half() * 32 + j * 8 + (lane() & 3) * 2 + c;
        }

        static __device__ __forceinline__ void put(float *p, const float (&x)[4][4])
        {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                                const float v[2] = { x[j][2 * h], x[j][2 * h + 1] };
                                store<2>(p + query(h) * LP + key(j, 0), v);
                        }
        }

        /* Stores a row's value over one half of the keys to red[half][row]. */
        static __device__ __forceinline__ void half_row(float *red, int h, float v)
        {
                if ((lane() & 3) == 0)
                        red[half() * MOST + query(h)] = v;
        }
};

template <class Att, class Epilogue>
TGC_DEV void attention_short_task(const AttIn<float, Att> &in, float *lse, int, int T, const Rt *rt,
                                  int tile, char *smem, Epilogue epilogue)
{
        typedef AttShort<Att> S;
        const int b = tile / Att::H, h = tile % Att::H, hk = h / (Att::H / Att::K);
        const AttHead<float, Att> hd(in, rt, b, h, T);
        float *q = (float *)smem, *k = q + S::X, *v = k + S::X, *p = v + S::X;
        float *most = p + S::P, *sums = most + 2 * S::MOST;
        float x[4][4];

        S::copy(q, in.q + b * in.sq.b + h * in.sq.h, in.sq.t, T);
        S::copy(k, in.k + b * in.sk.b + hk * in.sk.h, in.sk.t, T);
        S::copy(v, in.v + b * in.sv.b + hk * in.sv.h, in.sv.t, T);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        S::scores(x, q, k);
#pragma unroll
        for (int i = 0; i < 2; i++) {
                float top = -INFINITY;
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                        for (int c = 0; c < 2; c++) {
                                const int t = S::query(i), s = S::key(j, c);
                                float &y = x[j][2 * i + c], derivative;
                                y = hd.attends(t, s) ? hd.score(y, t, s, derivative) * hd.BASE2
                                                     : -INFINITY;
                                top = fmaxf(top, y);
                        }
                S::half_row(most, i, quad_max(top));
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const int t = S::query(i);
                const float top = fmaxf(most[t], most[S::MOST + t]),
                            zero = top == -INFINITY ? 0.f : top;
                float part = 0.f;
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                        for (int c = 0; c < 2; c++) {
                                float &y = x[j][2 * i + c];
                                y = exp2f(y - zero);
                                part += y;
                                if (Att::DROPOUT > 0.f)
                                        y = hd.drop(y, t, S::key(j, c));
                        }
                S::half_row(sums, i, quad_sum(part));
        }
        S::put(p, x);
        __syncthreads();
        S::template result<false>(
                p, v, T, b * T, h * Att::D,
                [=](int t) {
                        const float sum = sums[t] + sums[S::MOST + t],
                                    top = fmaxf(most[t], most[S::MOST + t]);
                        if (lse && S::half() == 0 && (S::lane() & 3) == 0 && t < T)
                                lse[(long)hd.bh * T + t] = sum > 0.f ? (top + log2f(sum)) * ATT_LN2
                                                                     : -INFINITY;
                        return sum > 0.f ? 1.f / sum : 0.f;
                },
                epilogue);
        __syncthreads();
}

template <class Att, class Epilogue, class EpilogueK, class EpilogueV>
TGC_DEV void attention_short_grad_task(const AttIn<float, Att> &in, const float *g, Strides sg,
                                       const float *lse, int, int T, const Rt *rt, int tile,
                                       char *smem, Epilogue epilogue, EpilogueK epilogue_k,
                                       EpilogueV epilogue_v)
{
        static_assert(Att::H == Att::K, "a head's keys are its own");
        typedef AttShort<Att> S;
        const int b = tile / Att::H, h = tile % Att::H;
        const AttHead<float, Att> hd(in, rt, b, h, T);
        /* P replaces v. */
        float *q = (float *)smem, *k = q + S::X, *dy = k + S::X, *v = dy + S::X;
        float *p = v, *ds = p + S::P, *red = ds + S::P;
        float x[4][4], y[4][4], prob[4][4], slope[4][4];

        S::copy(q, in.q + b * in.sq.b + h * in.sq.h, in.sq.t, T);
        S::copy(k, in.k + b * in.sk.b + h * in.sk.h, in.sk.t, T);
        S::copy(dy, g + b * sg.b + h * sg.h, sg.t, T);
        S::copy(v, in.v + b * in.sv.b + h * in.sv.h, in.sv.t, T);
        cp_async_commit();
        float ls[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
                ls[i] = S::query(i) < T ? lse[(long)hd.bh * T + S::query(i)] * ATT_LOG2E : 0.f;
        cp_async_wait<0>();
        __syncthreads();
        S::scores(x, q, k);
        S::scores(y, dy, v);
#pragma unroll
        for (int i = 0; i < 2; i++) {
                float delta = 0.f;
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                        for (int c = 0; c < 2; c++) {
                                const int t = S::query(i), s = S::key(j, c), e = 2 * i + c;
                                const float score = hd.SHAPED ? hd.score(x[j][e], t, s, slope[j][e])
                                                              : x[j][e];
                                prob[j][e] = hd.attends(t, s) ? exp2f(score * hd.BASE2 - ls[i])
                                                              : 0.f;
                                x[j][e] = prob[j][e];
                                if (Att::DROPOUT > 0.f) {
                                        const float keep = hd.drop(1.f, t, s);
                                        x[j][e] *= keep;
                                        y[j][e] *= keep;
                                }
                                delta = fmaf(prob[j][e], y[j][e], delta);
                        }
                S::half_row(red, i, quad_sum(delta));
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const float delta = red[S::query(i)] + red[S::MOST + S::query(i)];
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                        for (int e = 2 * i; e < 2 * i + 2; e++)
                                y[j][e] = prob[j][e] * (y[j][e] - delta) *
                                          (Att::SOFTCAP > 0.f ? slope[j][e] : 1.f);
        }
        S::put(p, x);
        S::put(ds, y);
        __syncthreads();
        const auto scale = [](int) { return Att::SCALE; };
        const auto one = [](int) { return 1.f; };
        S::template result<false>(ds, k, T, b * T, h * Att::D, scale, epilogue);
        S::template result<true>(ds, q, T, b * T, h * Att::D, scale, epilogue_k);
        S::template result<true>(p, dy, T, b * T, h * Att::D, one, epilogue_v);
        __syncthreads();
}

#endif
