/* attention_short_sm90.cuh: attention forward on Hopper for sequences that fit in shared memory
 * (attention_short_common_sm90.cuh says which).
 *
 *      attention_short_wgmma<E, Att, Tile>(in, lse, B, T, tile, smem, epilogue)
 *              B*H*Tile::NB tiles: 64 queries of a head, those with most keys first.  in, lse: as
 *              attention_task's.
 *
 * A warpgroup holds all scores of its queries in registers.  Its threads copy queries, keys and
 * values at once; scores of a key block start when its panel lands, then softmax over the whole
 * row, then P V. */
#ifndef TGC_ATTENTION_SHORT_SM90_CUH
#define TGC_ATTENTION_SHORT_SM90_CUH

#include "attention_short_common_sm90.cuh"
#ifdef TGC_SM90A

/* NB: blocks of 64 tokens. */
template <int NB_>
struct AttShortTileSm90 {
        static constexpr int NB = NB_, THREADS = 128;
        typedef AttPanel<64, 64> Panel;
        /* Shared memory: queries, keys, values. */
        static constexpr int KEYS = Panel::BYTES, VALUES = KEYS + NB * Panel::BYTES,
                             SMEM = VALUES + NB * Panel::BYTES;
};

template <class E, class Att, class Tile>
struct AttShortSm90 {
        static constexpr int D = 64, NB = Tile::NB;
        static constexpr float BASE2 = Att::SCALE * ATT_LOG2E;
        typedef typename Tile::Panel Panel;
        static_assert(att_short_sm90_serves<E, Att>(), "what the form of whole sequences computes");

        /* All but the last MORE copies of all threads have landed. */
        template <int MORE>
        static __device__ __forceinline__ void arrived()
        {
                cp_async_wait<MORE>();
                fence_proxy_async();
                __syncthreads();
        }

        /* Scores of key blocks J .. N - 1, as their panels land. */
        template <int N, int J = 0>
        static __device__ __forceinline__ void scores(float (&x)[N][32], unsigned long long q,
                                                      unsigned long long k)
        {
                if constexpr (J < N) {
                        arrived<N - J>();
                        wgmma_fence();
#pragma unroll
                        for (int ks = 0; ks < 4; ks++)
                                wgmma<0, 0>(x[J], q + Panel::wide_k(ks),
                                            k + J * (Panel::BYTES / 16) + Panel::wide_k(ks), ks > 0,
                                            E());
                        wgmma_commit();
                        scores<N, J + 1>(x, q, k);
                }
        }

        /* Requests queries, then each key block, then all values: N + 1 groups of copies. */
        template <int N>
        static __device__ __forceinline__ void fetch(const AttIn<E, Att> &in, int m, int b, int h,
                                                     int T, char *smem)
        {
                att_fetch_sm90(smem, in.q, in.sq, b, h, m * 64, T, threadIdx.x);
#pragma unroll
                for (int j = 0; j < N; j++) {
                        att_fetch_sm90(smem + Tile::KEYS + j * Panel::BYTES, in.k, in.sk, b, h,
                                       j * 64, T, threadIdx.x);
                        cp_async_commit();
                }
#pragma unroll
                for (int j = 0; j < N; j++)
                        att_fetch_sm90(smem + Tile::VALUES + j * Panel::BYTES, in.v, in.sv, b, h,
                                       j * 64, T, threadIdx.x);
                cp_async_commit();
        }

        /* Masks scores and takes the rows' maxima, in powers of two.  Keys after the query, or
         * behind T, are all in the last block.  Maxima use four chains per row, exponents both
         * rows at once: with attention_fragment.cuh's order ptxas generates other code. */
        template <int N>
        static __device__ __forceinline__ void mask_and_top(float (&x)[N][32], float (&top)[2],
                                                            int row, int first, int T)
        {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int end = (Att::CAUSAL ? row + i * 8 + 1 : T - (N - 1) * 64) - first;
#pragma unroll
                        for (int n = 0; n < 8; n++)
#pragma unroll
                                for (int c = 0; c < 2; c++)
                                        if (n * 8 + c >= end)
                                                x[N - 1][n * 4 + i * 2 + c] = -INFINITY;
                        float most[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
#pragma unroll
                        for (int j = 0; j < N; j++)
#pragma unroll
                                for (int e = 0; e < 16; e++)
                                        most[e % 4] = fmaxf(most[e % 4],
                                                            x[j][e / 2 * 4 + i * 2 + e % 2]);
                        most[0] = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
                        top[i] = quad_max(most[0]) * BASE2;
                }
        }

        /* The scores x of a key block become probabilities, and sum gets theirs. */
        static __device__ __forceinline__ void probabilities(float (&x)[32], const float (&top)[2],
                                                             float (&sum)[2])
        {
                float part[2][2] = {};
#pragma unroll
                for (int e = 0; e < 32; e++) {
                        x[e] = fast_exp2(x[e] * BASE2 - top[e / 2 % 2]);
                        part[e / 2 % 2][e % 2] += x[e];
                }
                sum[0] += part[0][0] + part[0][1];
                sum[1] += part[1][0] + part[1][1];
        }

        /* Queries [64m, 64m + 64) of head h of sequence b, which meet N key blocks. */
        template <int N, class Epilogue>
        static __device__ __forceinline__ void compute(const AttIn<E, Att> &in, int m, int b, int h,
                                                       int T, float *lse, char *smem,
                                                       const Epilogue &epilogue)
        {
                const int warp = (int)threadIdx.x / 32, lane = threadIdx.x & 31;
                const unsigned long long q = Panel::wide(smem), k = Panel::wide(smem + Tile::KEYS),
                                         v = Panel::tall(smem + Tile::VALUES);
                float x[N][32], o[D / 2], top[2], sum[2] = { 0.f, 0.f };
                unsigned p[N][4][4];
                fetch<N>(in, m, b, h, T, smem);
                scores<N>(x, q, k);
                wgmma_wait<0>();
#pragma unroll
                for (int j = 0; j < N; j++)
                        wgmma_hold(x[j]);
                /* the first row and column of this lane's sums */
                const int row = warp * 16 + lane / 4, first = lane % 4 * 2;
                mask_and_top(x, top, row, first, T);
                arrived<0>();
#pragma unroll
                for (int j = 0; j < N; j++) {
                        probabilities(x[j], top, sum);
                        att_pack<E>(p[j], x[j]);
                        wgmma_fence();
#pragma unroll
                        for (int ks = 0; ks < 4; ks++)
                                wgmma<1>(o, p[j][ks],
                                         v + j * (Panel::BYTES / 16) + Panel::tall_k(ks),
                                         j + ks > 0, E());
                        wgmma_commit();
                }
                float inv[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int t = m * 64 + row + i * 8;
                        sum[i] = quad_sum(sum[i]);
                        inv[i] = fast_rcp(sum[i]);
                        if (lse && lane % 4 == 0 && t < T)
                                lse[((long)b * Att::H + h) * T + t] = (top[i] + fast_log2(sum[i])) *
                                                                      ATT_LN2;
                }
                wgmma_wait<0>();
                wgmma_hold(o);
                att_scale_rows(o, inv);
                att_put_short(o, 1.f, b * T + m * 64 + warp * 16, b * T + T, h * D, T % 64 == 0,
                              epilogue);
        }

        template <int N, class Epilogue>
        static __device__ __forceinline__ void compute_for(int n, const AttIn<E, Att> &in, int m,
                                                           int b, int h, int T, float *lse,
                                                           char *smem, const Epilogue &epilogue)
        {
                if (n == N)
                        compute<N>(in, m, b, h, T, lse, smem, epilogue);
                else if constexpr (N > 1)
                        compute_for<N - 1>(n, in, m, b, h, T, lse, smem, epilogue);
        }
};

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_short_wgmma(const AttIn<E, Att> &in, float *lse, int B, int T, int tile,
                                   char *smem, const Epilogue &epilogue)
{
        const int heads = B * Att::H, bh = tile % heads, m = Tile::NB - 1 - tile / heads;
        pdl_wait();
        AttShortSm90<E, Att, Tile>::template compute_for<Tile::NB>(Att::CAUSAL ? m + 1 : Tile::NB,
                                                                   in, m, bh / Att::H, bh % Att::H,
                                                                   T, lse, smem, epilogue);
}

#endif
#endif
