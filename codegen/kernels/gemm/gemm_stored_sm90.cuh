/* gemm_stored_sm90.cuh: gemm_stored.cuh's GEMM for more rows of x, by wgmma (sm_90a): A is the
 * weights, decoded in registers; B is x, in shared memory.
 *
 *      stored_wgmma_task<T, S, Tile, N, K, ALIGN>(x, ldx, w, M, down, splits, ws, joined, tile,
 *              smem, epilogue)
 *              as stored_gemm_task
 *
 * A warpgroup has 64 rows of W.  W is loaded one slice (256 of K) ahead, x 64 of K at a time.
 * While the tensor cores multiply 64 of K, the next 64 are decoded. */
#ifndef TGC_GEMM_STORED_SM90_CUH
#define TGC_GEMM_STORED_SM90_CUH

#include "gemm_stored.cuh"
#include "gemm_mma.cuh"
#ifdef TGC_SM90A

/* ROWS of x (8, 32, 64, 96, 128, 192, 256) by 64 of W for each of GROUPS warpgroups. */
template <int ROWS_, int GROUPS_, int STAGES_, int MINB_, StoredHow HOW_ = STORED_ROUNDED>
struct StoredGroups {
        static constexpr StoredHow HOW = HOW_;
        static constexpr int BM = ROWS_, GROUPS = GROUPS_, STAGES = STAGES_, MINB = MINB_;
        static constexpr int MI = 1, MJ = BM / 8, WN = 16, BN = 64 * GROUPS, BK = 64,
                             THREADS = 128 * GROUPS, LDC = BN + 4;
        static constexpr int X_BYTES = BM * BK * 2, AHEAD = STAGES - 2;
        static_assert(AHEAD >= 1 && AHEAD <= 4, "a slice of W is ordered with the step before it");

        template <class S, int K>
        static __host__ __device__ constexpr int smem()
        {
                constexpr int ALL = STAGES * X_BYTES + 2 * BN * StoredSlice<S, K>::STRIDE,
                              SUMS = BM * LDC * 4 + 16;
                return ALL > SUMS ? ALL : SUMS;
        }
};

/* A fragments of 64 of K: chunks c and c + 1 of the slice; zeros beyond K. */
template <class T, class C, bool WHOLE, StoredHow HOW>
TGC_DEV void stored_fragments(unsigned (&a)[4][4], const typename C::Head (&head)[2],
                              typename C::Raw (&raw)[2], const unsigned char *const (&rows)[2],
                              int c0, int left)
{
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int e = 0; e < 2; e++) {
                const int c = c0 + e;
                const bool there = WHOLE || c * 32 < left;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        unsigned w[2][2];
                        Codes y;
                        if (c % C::SHARE == 0)
                                raw[h] = C::template fetch<CODES_PAIRS>(rows[h], c, t);
                        C::template codes<CODES_PAIRS>(y, head[h], raw[h], rows[h], c, t);
                        stored_words<T, C, HOW>(w, y);
#pragma unroll
                        for (int s = 0; s < 2; s++) {
                                a[2 * e + s][h] = there ? w[s][0] : 0;
                                a[2 * e + s][2 + h] = there ? w[s][1] : 0;
                        }
                }
        }
}

template <class T, class S, class Tile, int N, int K, int ALIGN, class Rows>
TGC_DEV void stored_groups_block(float (&acc)[1][Tile::MJ][4], const T *x, long ldx,
                                 const Rows &rows_x, const unsigned char *w, int M, TileAt at,
                                 int kt0, int kt1, char *smem)
{
        typedef StoredSlice<S, K> Slice;
        typedef typename CodesOf<S>::Type C;
        constexpr int STAGES = Tile::STAGES, AHEAD = Tile::AHEAD, X = Tile::X_BYTES,
                      W_BYTES = Tile::BN * Slice::STRIDE;
        constexpr bool WHOLE = K % 256 == 0;
        char *const blocks = smem + STAGES * X;
        const unsigned long long first = panel_desc<true, 64>(smem, 0);
        const int warp = threadIdx.x >> 5, g = (int)(threadIdx.x & 31) >> 2, row = warp * 16 + g,
                  last = kt1 * 256 < K ? kt1 * 256 : K, steps = (last - kt0 * 256 + 63) / 64;
        float(&d)[Tile::BM / 2] = reinterpret_cast<float(&)[Tile::BM / 2]>(acc);

        stored_copy<S, Tile, N, K>(blocks, w, at.n, kt0);
        pdl_wait();
        const Panel<T, true, Tile::BM, Tile::BK, Tile::THREADS, ALIGN, Rows> px(x, ldx, at.m, M, K,
                                                                                rows_x);
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
                if (s < steps)
                        panel_copy<1, true>(px, smem + s * X, kt0 * 256 + s * 64, 0);
                cp_async_commit();
        }
        int now = 0, into = AHEAD;
        unsigned a[2][4][4];
#pragma unroll 1
        for (int kt = kt0; kt < kt1; kt++) {
                const unsigned char *rows[2];
                typename C::Head head[2];
                typename C::Raw raw[2];
#pragma unroll
                for (int s = 0; s < 4; s++) {
                        const int step = (kt - kt0) * 4 + s;
                        if (!WHOLE && step >= steps)
                                break;
                        cp_async_wait<AHEAD - 1>();
                        fence_proxy_async();
                        __syncthreads();
                        if (s == 0 && kt + 1 < kt1)
                                stored_copy<S, Tile, N, K>(blocks + (kt + 1 - kt0) % 2 * W_BYTES, w,
                                                           at.n, kt + 1);
                        if (step + AHEAD < steps)
                                panel_copy<1, true>(px, smem + into * X,
                                                    kt0 * 256 + (step + AHEAD) * 64, 0);
                        cp_async_commit();
                        if (s == 0) {
#pragma unroll
                                for (int h = 0; h < 2; h++) {
                                        const int r = row + 8 * h,
                                                  n = at.n + r < N ? at.n + r : N - 1;
                                        rows[h] = (const unsigned char *)blocks +
                                                  (kt - kt0) % 2 * W_BYTES + r * Slice::STRIDE +
                                                  Slice::shift(w, n * (int)Slice::ROW +
                                                                          kt * Slice::BYTES);
                                        head[h] = C::head(rows[h]);
                                }
                        }
                        stored_fragments<T, C, WHOLE, Tile::HOW>(a[s & 1], head, raw, rows, 2 * s,
                                                                 K - kt * 256);
                        const unsigned long long panel = first +
                                                         (unsigned long long)(now * (X / 16));
                        wgmma_fence();
#pragma unroll
                        for (int ks = 0; ks < 4; ks++)
                                wgmma<0>(d, a[s & 1][ks], panel + ks * 2, ks > 0 || step > 0, T());
                        wgmma_commit();
                        wgmma_wait<1>();
                        now = now == STAGES - 1 ? 0 : now + 1;
                        into = into == STAGES - 1 ? 0 : into + 1;
                }
        }
        wgmma_wait<0>();
        wgmma_hold(d);
        cp_async_wait<0>();
        __syncthreads();
}

template <class T, class S, class Tile, int N, int K, int ALIGN, class Epilogue>
TGC_DEV void stored_wgmma_task(const T *x, long ldx, const unsigned char *w, int M, int down,
                               int splits, float *ws, int *joined, int tile, char *smem,
                               const Epilogue &epilogue)
{
        const StoredPart part = stored_part<Tile, K>(tile, down, splits);
        float acc[1][Tile::MJ][4];
        stored_groups_block<T, S, Tile, N, K, ALIGN>(acc, x, ldx, SameRows(), w, M, part.at,
                                                     part.kt0, part.kt1, smem);
        stored_end<Tile>(acc, part, M, N, ws, joined, smem, epilogue);
}

#endif
#endif
