/* attention_short_backward_sm90.cuh: all gradients of attention on Hopper, in one launch, for
 * sequences that fit in shared memory (attention_short_common_sm90.cuh says which).
 *
 *      attention_short_backward_wgmma<E, Att, Tile, PREFETCH>(in, rows, lse, T, tile, smem,
 *              epilogue, epilogue_k, epilogue_v)
 *              B*H*Tile::PARTS tiles: a head, or half of the columns of its gradients.  rows: o,
 *              its gradient g, their strides.
 *
 * Five GEMMs for every pair of 64 queries and 64 keys.  Warpgroups 1 and 2 own 64 keys at a time
 * and compute their transposed scores, as AttDkvSm90 does, and dk, dv:
 *
 *      S = k q^T   Y = v g^T   P = 2^(S - lse)   dS = P (Y - delta)   dv += P g   dk += dS q
 *
 * Of up to four key blocks warpgroup 1 has 0 and 3, warpgroup 2 has 1 and 2, which under CAUSAL
 * meet equally many query blocks.  They leave dS in shared memory.  Warpgroup 0 computes delta =
 * sum(o g) first, then dq += dS k.  All sums have one order. */
#ifndef TGC_ATTENTION_SHORT_BACKWARD_SM90_CUH
#define TGC_ATTENTION_SHORT_BACKWARD_SM90_CUH

#include "attention_short_common_sm90.cuh"
#ifdef TGC_SM90A

/* PARTS: blocks per head.  With 2, each has half of D and both compute dS: for heads too few to
 * fill the GPU, as a warpgroup's epilogue takes as long as its GEMMs.  CAUSAL: half of the pairs.
 * KEEP_K, KEEP_V: the operand stays in registers.  MANY, SOME: registers per thread of the
 * warpgroups of dk and dv, and of dq. */
template <int NB_, bool CAUSAL, int PARTS_, bool KEEP_K, bool KEEP_V, int MANY_, int SOME_>
struct AttShortBackwardTile {
        static constexpr int PARTS = PARTS_, D = 64 / PARTS, NB = NB_, THREADS = 384, MANY = MANY_,
                             SOME = SOME_;
        typedef AttPanel<64, 64> Panel, Step;
        template <bool KEEP_> /* the parameter that AttOwn expects */
        struct Side {
                static constexpr int D = 64, BM = 64;
                static constexpr bool KEEP = KEEP_;
                typedef AttPanel<64, 64> Own, Step;
        };
        typedef Side<KEEP_K> K;
        typedef Side<KEEP_V> V;
        /* Shared memory: keys, queries, values, gradients of o; dS, a panel of keys per pair; lse
         * and delta per query block; barriers per block (keys and queries landed; values and
         * gradients landed; lse and delta ready) and per pair (dS ready). */
        static constexpr int PAIRS = CAUSAL ? NB * (NB + 1) / 2 : NB * NB;
        static constexpr int Q = NB * Panel::BYTES, V_ = 2 * Q, G = 3 * Q, DS = 4 * Q;
        static constexpr int ROWS = DS + PAIRS * Panel::BYTES, BARS = ROWS + NB * 512,
                             N_BARS = 3 * NB + PAIRS;
        static constexpr int SMEM = BARS + N_BARS * 8;
        static constexpr unsigned TALL = (64 * 128 - 16) >> 4 << 16;
        static_assert(SOME + 2 * MANY <= 504, "registers");
        static_assert(SMEM <= 232448, "shared memory");

        /* Index of the pair of key block j and query block i. */
        static __device__ __forceinline__ int pair(int j, int i)
        {
                return CAUSAL ? j * (2 * NB + 1 - j) / 2 + i - j : j * NB + i;
        }
        static __device__ __forceinline__ Mbar *bar(char *smem, int i)
        {
                return (Mbar *)(smem + BARS) + i;
        }
        static __device__ __forceinline__ Mbar *keys(char *smem, int i) { return bar(smem, i); }
        static __device__ __forceinline__ Mbar *values(char *smem, int i)
        {
                return bar(smem, NB + i);
        }
        static __device__ __forceinline__ Mbar *rows(char *smem, int i)
        {
                return bar(smem, 2 * NB + i);
        }
        static __device__ __forceinline__ Mbar *stored(char *smem, int i)
        {
                return bar(smem, 3 * NB + i);
        }
};

template <class E, class Att, class Tile, class Epilogue, class EpilogueK, class EpilogueV>
struct AttShortBackward {
        static constexpr int D = Tile::D, NB = Tile::NB;
        typedef typename Tile::Panel Panel;
        typedef AttDkvSm90<E, Att, Tile, false, EpilogueK, EpilogueV> Dkv;
        static_assert(att_short_sm90_serves<E, Att>(), "what the form of whole sequences computes");
        const AttIn<E, Att> &in;
        const AttGradRows<E> &rows;
        const float *lse;
        int T, b, h, col; /* col: first column of this part */
        char *smem;
        Epilogue &epilogue;
        EpilogueK &epilogue_k;
        EpilogueV &epilogue_v;

        static __device__ __forceinline__ void arrive(Mbar *bar)
        {
                if ((threadIdx.x & 31) == 0)
                        mbarrier_arrive(bar);
        }

        /* Operands of block i; called by a warpgroup. */
        __device__ __forceinline__ void load(int i) const
        {
                const int x = threadIdx.x % 128;
                char *const panel = smem + i * Panel::BYTES;
                att_fetch_sm90(panel, in.k, in.sk, b, h, i * 64, T, x);
                att_fetch_sm90(panel + Tile::Q, in.q, in.sq, b, h, i * 64, T, x);
                cp_async_arrive(Tile::keys(smem, i));
                att_fetch_sm90(panel + Tile::V_, in.v, in.sv, b, h, i * 64, T, x);
                pdl_wait();
                att_fetch_sm90(panel + Tile::G, rows.g, rows.sg, b, h, i * 64, T, x);
                cp_async_arrive(Tile::values(smem, i));
        }

        /* ---- warpgroup 0: delta, dq ---- */

        /* Computes lse (in powers of two) and delta.  Queries behind T get lse = inf, so that P =
         * 0.  Eight threads share a row of o, requested while g's is in flight. */
        __device__ __forceinline__ void make_rows() const
        {
                const int x = threadIdx.x, at = x / 8, k = x % 8;
                float *const to = (float *)(smem + Tile::ROWS);
                Raw<8, E> u[NB][4];
                float l[(NB + 1) / 2];
#pragma unroll
                for (int i = 0; i < (NB + 1) / 2; i++)
                        l[i] = i * 128 + x < T
                                       ? lse[((long)b * Att::H + h) * T + i * 128 + x] * ATT_LOG2E
                                       : INFINITY;
#pragma unroll
                for (int i = 0; i < NB; i++)
#pragma unroll
                        for (int c = 0; c < 4; c++) {
                                const int t = i * 64 + c * 16 + at;
                                u[i][c].get(rows.o + b * rows.so.b +
                                            (t < T ? t : T - 1) * rows.so.t + h * rows.so.h +
                                            k * 8);
                        }
#pragma unroll
                for (int i = 2; i < NB; i++)
                        load(i);
#pragma unroll
                for (int i = 0; i < (NB + 1) / 2; i++)
                        if (i * 128 + x < NB * 64)
                                to[(2 * i + x / 64) * 128 + att_column_sm90(x % 64)] = l[i];
                bar_sync(1, 128);
#pragma unroll
                for (int i = 0; i < NB; i++) {
                        const char *const g = smem + Tile::G + i * Panel::BYTES;
                        float sum[4];
                        att_wait_sm90(Tile::values(smem, i), 0);
#pragma unroll
                        for (int c = 0; c < 4; c++) {
                                const int r = c * 16 + at;
                                float y[8], z[8];
                                u[i][c].template floats<0, 1>(y);
                                ::load(z, (const E *)(g + r * 128 + ((k ^ r) & 7) * 16));
                                sum[c] = 0.f;
#pragma unroll
                                for (int d = 0; d < 8; d++)
                                        sum[c] = fmaf(y[d], z[d], sum[c]);
                        }
#pragma unroll
                        for (int d = 4; d; d >>= 1)
#pragma unroll
                                for (int c = 0; c < 4; c++)
                                        sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], d);
                        /* row c*16 + at, in the thread of eight with k = 2c */
                        const float mine = k < 4   ? k < 2 ? sum[0] : sum[1]
                                             : k < 6 ? sum[2]
                                                   : sum[3];
                        const int r = k / 2 * 16 + at;
                        if (k % 2 == 0)
                                to[i * 128 + 64 + att_column_sm90(r)] = i * 64 + r < T ? mine : 0.f;
                        __syncwarp();
                        arrive(Tile::rows(smem, i));
                }
        }

        /* dS arrives in the order of key blocks 1, 0, 2, 3. */
        __device__ __forceinline__ void make_dq() const
        {
                const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
                const unsigned long long k = Panel::tall(smem) + col / 8,
                                         first = Panel::tall(smem + Tile::DS);
#pragma unroll 1
                for (int i = 0; i < NB; i++) {
                        const int n = Att::CAUSAL ? i + 1 : NB;
                        float acc[D / 2];
#pragma unroll 1
                        for (int c = 0; c < n; c++) {
                                const int j = n > 1 && c < 2 ? 1 - c : c;
                                const int pair = Tile::pair(j, i);
                                const unsigned long long ds = first + pair * (Panel::BYTES / 16),
                                                         kj = k + j * (Panel::BYTES / 16);
                                att_wait_sm90(Tile::keys(smem, j), 0);
                                att_wait_sm90(Tile::stored(smem, pair), 0);
                                fence_proxy_async();
                                wgmma_fence();
#pragma unroll
                                for (int ks = 0; ks < 4; ks++)
                                        wgmma<1, 1>(acc, ds + Panel::tall_k(ks),
                                                    kj + Panel::tall_k(ks), c + ks > 0, E());
                                wgmma_commit();
                                wgmma_wait<0>();
                                wgmma_hold(acc);
                        }
                        att_put_short(acc, Att::SCALE, b * T + i * 64 + warp * 16, b * T + T,
                                      h * 64 + col, T % 64 == 0, epilogue);
                }
        }

        /* ---- warpgroups 1, 2: dk, dv ---- */

        /* GEMMs over whole rows, where the step's columns are counted from this part's first on. */
        template <class Side>
        struct Own : AttOwn<Side> {
                unsigned before;
                __device__ __forceinline__ void product(float (&x)[32], unsigned own, unsigned step,
                                                        E tag) const
                {
                        AttOwn<Side>::product(x, own, step - before, tag);
                }
        };

        /* As AttDkvSm90's State, without the pipeline. */
        struct State {
                char *smem;
                int m, here, w0, T; /* query blocks (twice the same); first key */
                int pair, place;    /* which dS comes next; where in it this lane's part goes */
                int edge, reach[2]; /* documents: none here */
                /* descriptors: own keys, own values, columns of the first queries */
                unsigned k, v, q;
                const float *rows;
                Own<typename Tile::K> own_k;
                Own<typename Tile::V> own_v;

                __device__ __forceinline__ unsigned at(int i, int panel) const
                {
                        return q + i * (Panel::BYTES / 16) + panel * ((Tile::G - Tile::Q) / 16);
                }
                __device__ __forceinline__ void move_on()
                {
                        here = ++m;
                        att_wait_sm90(Tile::keys(smem, m), 0);
                        att_wait_sm90(Tile::values(smem, m), 0);
                        att_wait_sm90(Tile::rows(smem, m), 0);
                        fence_proxy_async();
                }
                __device__ __forceinline__ void give_back(int) const {}
                __device__ __forceinline__ void arrive(Mbar *) const {}
                /* Keys behind T contribute nothing to dq. */
                __device__ __forceinline__ void put(const unsigned (&ds)[4][4])
                {
                        const int to = Tile::DS + pair * Panel::BYTES + place;
                        const int key = w0 + (int)threadIdx.x / 32 % 4 * 16 +
                                        (threadIdx.x & 31) / 4;
#pragma unroll
                        for (int ks = 0; ks < 4; ks++) {
                                unsigned x[4];
#pragma unroll
                                for (int e = 0; e < 4; e++)
                                        x[e] = Att::CAUSAL || key + e % 2 * 8 < T ? ds[ks][e] : 0u;
                                stmatrix_x4(smem + (to ^ ks * 32), x);
                        }
                        __syncwarp();
                        AttShortBackward::arrive(Tile::stored(smem, pair++));
                }
        };

        __device__ __forceinline__ void make_dkv() const
        {
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0),
                          warp = threadIdx.x / 32 % 4;
                const int lane = threadIdx.x & 31;
                State s;
                load(group);
                s.smem = smem;
                s.T = T;
                s.rows = (const float *)(smem + Tile::ROWS);
                s.own_k.before = s.own_v.before = col / 8;
                s.q = (unsigned)Panel::wide(smem + Tile::Q) + col / 8;
                s.place = (warp * 16 + (lane & 15)) * 128 + ((lane >> 4) ^ (lane & 7)) * 16;
#pragma unroll 1
                for (int n = 0; n < 2; n++) {
                        const int j = n ? 3 - group : group;
                        if (j >= NB)
                                break;
                        float x[32], y[32], dk[D / 2], dv[D / 2];
                        char *const k = smem + j * Panel::BYTES, *const v = k + Tile::V_;
                        s.w0 = j * 64;
                        s.m = s.here = Att::CAUSAL ? j : 0;
                        s.pair = Tile::pair(j, s.m);
                        s.k = (unsigned)Panel::wide(k);
                        s.v = (unsigned)Panel::wide(v);
                        att_fill(dk, 0.f);
                        att_fill(dv, 0.f);
                        wgmma_hold(dk); /* zeroed here, not between wgmmas */
                        wgmma_hold(dv);
                        att_wait_sm90(Tile::keys(smem, j), 0);
                        att_wait_sm90(Tile::keys(smem, s.m), 0);
                        fence_proxy_async();
                        s.own_k.init(k, warp * 16);
                        wgmma_fence();
                        s.own_k.product(x, s.k, s.at(s.here, 0), E());
                        wgmma_commit();
                        att_wait_sm90(Tile::values(smem, j), 0);
                        att_wait_sm90(Tile::values(smem, s.m), 0);
                        fence_proxy_async();
                        s.own_v.init(v, warp * 16);
                        wgmma_fence();
                        s.own_v.product(y, s.v, s.at(s.here, 1), E());
                        wgmma_commit();
                        att_wait_sm90(Tile::rows(smem, s.m), 0);
#pragma unroll 1
                        for (int left = NB - s.m; left > 1; left--)
                                Dkv::template one_step<true>(s, x, y, dk, dv, 0);
                        Dkv::template one_step<false>(s, x, y, dk, dv, 0);
                        const int row = b * T + s.w0 + warp * 16, end = b * T + T;
                        wgmma_wait<0>();
                        wgmma_hold(dv);
                        wgmma_hold(dk);
                        att_put_short(dv, 1.f, row, end, h * 64 + col, T % 64 == 0, epilogue_v);
                        att_put_short(dk, Att::SCALE, row, end, h * 64 + col, T % 64 == 0,
                                      epilogue_k);
                }
        }
};

template <class E, class Att, class Tile, bool PREFETCH, class Epilogue, class EpilogueK,
          class EpilogueV>
TGC_DEV void attention_short_backward_wgmma(const AttIn<E, Att> &in, const AttGradRows<E> &rows,
                                            const float *lse, int T, int tile, char *smem,
                                            Epilogue epilogue, EpilogueK epilogue_k,
                                            EpilogueV epilogue_v)
{
        const AttShortBackward<E, Att, Tile, Epilogue, EpilogueK, EpilogueV> work = {
                in,
                rows,
                lse,
                T,
                tile / Tile::PARTS / Att::H,
                tile / Tile::PARTS % Att::H,
                tile % Tile::PARTS * Tile::D,
                smem,
                epilogue,
                epilogue_k,
                epilogue_v
        };
        const int x = threadIdx.x, group = __shfl_sync(0xffffffffu, x / 128, 0);
        if (x % 32 == 0) { /* spread over all warps */
                for (int i = x / 32; i < Tile::N_BARS; i += Tile::THREADS / 32)
                        mbarrier_init(Tile::bar(smem, i), i < 2 * Tile::NB ? 128 : 4);
                fence_barrier_init();
        }
        __syncthreads();
        if (!PREFETCH)
                pdl_wait();
        if (group == 0) {
                setmaxnreg_dec<Tile::SOME>();
                work.make_rows();
                work.make_dq();
        } else {
                setmaxnreg_inc<Tile::MANY>();
                work.make_dkv();
        }
}

#endif
#endif
