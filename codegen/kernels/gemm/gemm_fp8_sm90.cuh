/* gemm_fp8_sm90.cuh: y = x W^T with x and W (blocks F8_128) both e4m3, on sm_90a: wgmma takes W's
 * codes from registers, as they lie in the blocks, and x's from shared memory.
 *
 *      fp8_gemm_task<S, Tile, N, K, G>(x, ldx, w, M, down, splits, ws, joined, tile, smem,
 *              epilogue)
 *              x: as round_fp8_codes_task writes it, rows of ldx bytes: K codes, then a float32
 *              scale per G of them (G is 128, or K).  x and ldx are 16-byte aligned.  K is a
 *              multiple of 128.  The rest as in stored_gemm_task.
 *
 * wgmma keeps about 14 bits of a sum of e4m3 products.  So it sums 128 of K, a block of W, and
 * those sums are added in float32, times W's scale and x's (as DeepGEMM does).
 *
 * A warpgroup has 64 rows of W as wgmma's m; tokens are n.  It works on halves of the tile's
 * tokens: while the tensor cores have one half, the other is scaled and added.  Slices of 256 of K
 * of W are loaded two ahead, x two steps of 128 of K ahead. */
#ifndef TGC_GEMM_FP8_SM90_CUH
#define TGC_GEMM_FP8_SM90_CUH

#include "gemm_stored.cuh"
#include "gemm_mma.cuh"
#ifdef TGC_SM90A

/* ROWS of x (64, 128) by 64 of W for each of GROUPS warpgroups. */
template <int ROWS_, int GROUPS_, int MINB_>
struct Fp8Tile {
        static constexpr int BM = ROWS_, GROUPS = GROUPS_, STAGES = 4, SLICES = 3, MINB = MINB_;
        static constexpr int MI = 1, MJ = BM / 8, WN = 16, BN = 64 * GROUPS, THREADS = 128 * GROUPS,
                             LDC = BN + 4;
        static constexpr int X_BYTES = BM * 128;

        template <class S, int K>
        static __host__ __device__ constexpr int smem()
        {
                constexpr int ALL = STAGES * (X_BYTES + BM * 4) +
                                    SLICES * BN * StoredSlice<S, K>::STRIDE,
                              SUMS = BM * LDC * 4 + 16;
                return ALL > SUMS ? ALL : SUMS;
        }
};

/* sum += part * scales, for 64 rows of W by 4 R tokens; two scales of W per lane, one of x per
 * token. */
template <bool SCALED, int R>
TGC_DEV void fp8_add(float (&sum)[R], const float (&part)[R], const float (&of_w)[2],
                     const float *of_x)
{
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int j = 0; j < R / 4; j++) {
                float x[2] = { 1.f, 1.f };
                if constexpr (SCALED) {
                        const float2 two = *(const float2 *)(of_x + 8 * j + 2 * t);
                        x[0] = two.x, x[1] = two.y;
                }
#pragma unroll
                for (int k = 0; k < 4; k++)
                        sum[4 * j + k] = fmaf(part[4 * j + k],
                                              SCALED ? of_w[k >> 1] * x[k & 1] : of_w[k >> 1],
                                              sum[4 * j + k]);
        }
}

/* A warpgroup's 64 rows of W, 128 of K: this lane's codes as A fragments, and its two rows'
 * scales. */
template <class S>
struct Fp8Rows {
        unsigned a[4][4];
        float scale[2];

        /* Step s of a slice. */
        __device__ __forceinline__ void load(int s, const unsigned char *const (&rows)[2])
        {
                const int t = threadIdx.x & 3;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        const unsigned char *p = rows[h] + s * S::BYTES;
                        scale[h] = *(const float *)p;
#pragma unroll
                        for (int ks = 0; ks < 4; ks++) {
                                const unsigned *word = (const unsigned *)(p + 4 + 32 * ks + 4 * t);
                                a[ks][h] = word[0];
                                a[ks][2 + h] = word[4];
                        }
                }
        }
        /* Issues the wgmmas with 2 R tokens, whose codes are at `panel`; the caller waits. */
        template <int R>
        __device__ __forceinline__ void multiply(float (&part)[R], unsigned long long panel)
        {
                wgmma_fence();
#pragma unroll
                for (int ks = 0; ks < 4; ks++)
                        wgmma<0>(part, a[ks], panel + ks * 2, ks > 0, e4m3());
                wgmma_commit();
        }
};

/* Addresses of this lane's two rows of W in a slice that stored_copy loaded. */
template <class S, int N, int K>
TGC_DEV void fp8_rows(const unsigned char *(&rows)[2], const char *slice, const unsigned char *w,
                      int row, int n0, int kt)
{
        typedef StoredSlice<S, K> Slice;
#pragma unroll
        for (int h = 0; h < 2; h++) {
                const int r = row + 8 * h, n = n0 + r < N ? n0 + r : N - 1;
                rows[h] = (const unsigned char *)slice + r * Slice::STRIDE +
                          Slice::shift(w, n * (int)Slice::ROW + kt * Slice::BYTES);
        }
}

/* Copies the scales of BM tokens; tokens beyond M repeat the last one. */
template <int BM, int THREADS>
TGC_DEV void fp8_copy_scales(float *to, const unsigned char *x, long ldx, int m, int M, int at)
{
        for (int i = threadIdx.x % THREADS; i < BM; i += THREADS) {
                const int r = m + i;
                cp_async4(to + i, x + (r < M ? r : M - 1) * ldx + at);
        }
}

/* Multiplies by per-token scales (G == K): PIECES pieces of 2 R tokens from m on. */
template <int PIECES, int R>
TGC_DEV void fp8_scale_tokens(float (&acc)[PIECES][R], const unsigned char *x, long ldx, int m,
                              int M, int at)
{
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int h = 0; h < PIECES; h++)
#pragma unroll
                for (int i = 0; i < R; i++) {
                        const int r = m + h * 2 * R + i / 4 * 8 + 2 * t + i % 2;
                        acc[h][i] *= *(const float *)(x + (r < M ? r : M - 1) * ldx + at);
                }
}

/* Sums of the tile at `at` over slices [kt0, kt1) of 256 of K. */
template <class S, class Tile, int N, int K, int G>
TGC_DEV void fp8_block(float (&acc)[2][Tile::BM / 4], const unsigned char *x, long ldx,
                       const unsigned char *w, int M, TileAt at, int kt0, int kt1, char *smem)
{
        typedef Panel<unsigned short, true, Tile::BM, 64, Tile::THREADS, 16, SameRows> PanelX;
        constexpr int STAGES = Tile::STAGES, X = Tile::X_BYTES,
                      W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE;
        constexpr bool SCALED = G != K;
        static_assert(S::VALUES == 128 && K % 128 == 0 && (G == 128 || G == K), "a block a step");
        char *const blocks = smem + STAGES * X;
        float *const scales = (float *)(blocks + Tile::SLICES * W_BYTES);
        const unsigned long long first = panel_desc<true, 64>(smem, 0);
        const int row = (int)threadIdx.x / 32 * 16 + (int)(threadIdx.x & 31) / 4, step0 = kt0 * 2,
                  steps = (kt1 * 2 < K / 128 ? kt1 * 2 : K / 128) - step0;
        const PanelX px((const unsigned short *)x, ldx / 2, at.m, M, K / 2, SameRows());

        /* One group of copies: a step's codes of x, and its scales. */
        const auto fetch_x = [&](int step) {
                const int stage = step % STAGES;
                if (step < steps) {
                        panel_copy<1, true>(px, smem + stage * X, (step0 + step) * 64, 0);
                        if (SCALED)
                                fp8_copy_scales<Tile::BM, Tile::THREADS>(scales + stage * Tile::BM,
                                                                         x, ldx, at.m, M,
                                                                         K + 4 * (step0 + step));
                }
                cp_async_commit();
        };
        const auto fetch_w = [&](int kt) {
                if (kt < kt1)
                        stored_copy<S, Tile, N, K>(blocks + (kt - kt0) % Tile::SLICES * W_BYTES, w,
                                                   at.n, kt);
        };

        fetch_w(kt0);
        fetch_w(kt0 + 1);
        pdl_wait();
        fetch_x(0);
        cp_async_commit(); /* three groups in flight, as later */
        fetch_x(1);
        float part[2][Tile::BM / 4];
        Fp8Rows<S> of_w[2];
#pragma unroll
        for (int i = 0; i < Tile::BM / 4; i++)
                acc[0][i] = acc[1][i] = 0.f;

        /* Waits until the step's data has landed and all threads are done with the step before the
         * last. */
        const auto begin = [&](int kt, int s) {
                const unsigned char *rows[2];
                cp_async_wait<2>();
                fence_proxy_async();
                __syncthreads();
                fp8_rows<S, N, K>(rows, blocks + (kt - kt0) % Tile::SLICES * W_BYTES, w, row, at.n,
                                  kt);
                of_w[s].load(s, rows);
        };
        /* multiply issues the wgmmas of one half of the tokens; add scales and adds its sums. */
        const auto multiply = [&](int s, int half, int stage) {
                of_w[s].multiply(part[half],
                                 first + (unsigned long long)(stage * (X / 16) + half * (X / 32)));
        };
        const auto add = [&](int s, int half, int stage) {
                wgmma_hold(part[half]);
                fp8_add<SCALED>(acc[half], part[half], of_w[s].scale,
                                scales + stage * Tile::BM + half * (Tile::BM / 2));
        };
#pragma unroll 1
        for (int kt = kt0; kt < kt1; kt++) {
                const int step = (kt - kt0) * 2, now = step % STAGES, then = now + 1;
                if (K % 256 != 0 && step + 1 == steps)
                        break;
                begin(kt, 0);
                multiply(0, 0, now);
                multiply(0, 1, now);
                fetch_x(step + 2);
                fetch_w(kt + 2);
                cp_async_commit();
                wgmma_wait<1>();
                add(0, 0, now);
                begin(kt, 1);
                multiply(1, 0, then);
                fetch_x(step + 3);
                wgmma_wait<1>();
                add(0, 1, now);
                multiply(1, 1, then);
                wgmma_wait<1>();
                add(1, 0, then);
                wgmma_wait<0>();
                add(1, 1, then);
        }
        if (K % 256 != 0 && steps % 2) { /* the last slice is half of one */
                const int now = (steps - 1) % STAGES;
                begin(kt1 - 1, 0);
                multiply(0, 0, now);
                multiply(0, 1, now);
                wgmma_wait<1>();
                add(0, 0, now);
                wgmma_wait<0>();
                add(0, 1, now);
        }
        if constexpr (!SCALED)
                fp8_scale_tokens(acc, x, ldx, at.m, M, K);
        cp_async_wait<0>();
        __syncthreads();
}

template <class S, class Tile, int N, int K, int G, class Epilogue>
TGC_DEV void fp8_gemm_task(const unsigned char *x, long ldx, const unsigned char *w, int M,
                           int down, int splits, float *ws, int *joined, int tile, char *smem,
                           const Epilogue &epilogue)
{
        const StoredPart part = stored_part<Tile, K>(tile, down, splits);
        float acc[1][Tile::MJ][4];
        fp8_block<S, Tile, N, K, G>(reinterpret_cast<float(&)[2][Tile::BM / 4]>(acc), x, ldx, w, M,
                                    part.at, part.kt0, part.kt1, smem);
        stored_end<Tile>(acc, part, M, N, ws, joined, smem, epilogue);
}

#endif
#endif
