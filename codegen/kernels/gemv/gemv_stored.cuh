/* gemv_stored.cuh: y = norm(x) W^T for 1..8 rows of x and block-quantised W, by dp4a.
 *
 *      gemv_stored_task<S, M, N, K, DIGITS, Tile, NORM>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              as gemv_task (gemv.cuh); W (N, K), blocks of storage type S
 *              (../common/stored_dot.cuh), rows ldw values apart
 *
 * Memory-bound: the time is that of reading W.
 *
 * W (gemv_stored_ring.cuh).  Each warp streams its own rows, ROWS at a time, as raw bytes through
 * its own STAGES slots of shared memory.  A step is what 32 lanes read of a row at once; a slot
 * holds a K block, KSTEPS steps of ROWS rows.  No block barrier is needed.  All slots are requested
 * before pdl_wait.  The next launch may start once all of W is requested (pdl_launch_late), so it
 * fills its slots while this one computes.
 *
 * x (gemv_stored_x.cuh).  Each block converts x to fixed point in shared memory once, through the
 * prologue.
 *
 * Products.  dp4a multiplies codes and digits exactly.  Once per run (16 or 32 values) the integer
 * sum becomes float32 and is multiplied by W's scale and x's.
 *
 * Tile: WARPS warps; SPLIT of them share rows and split K; a tile is ROUNDS passes of all warps'
 * rows (COLS columns of y).  If shared memory cannot hold x (DotX::KC < K), SPLIT and ROUNDS are
 * 1.
 *
 * Shared memory (dot_smem, ../../forms/gemv_shape.h):
 *
 *     x         M x (DIGITS planes of KC bytes, then { scale, scale * sum } per run)
 *     red       M x WARPS floats, then 32
 *     partial   WARPS x ROWS x M floats, if SPLIT > 1
 *     rings     per warp: STAGES slots, then STAGES mbarriers */
#ifndef TGC_GEMV_STORED_CUH
#define TGC_GEMV_STORED_CUH

#include "gemv_epilogue.cuh"
#include "gemv_prologue.cuh"
#include "gemv_stored_ring.cuh"
#include "gemv_stored_x.cuh"

/* KSTEPS: steps of a K block.  EARLY: so many slots before its last request of W a block lets the
 * next launch start. */
template <int WARPS_, int ROWS_, int SPLIT_, int ROUNDS_, int STAGES_, int KSTEPS_ = 1,
          bool BULK_ = DOT_BULK, int EARLY_ = 0>
struct DotTile {
        static constexpr int WARPS = WARPS_, ROWS = ROWS_, SPLIT = SPLIT_, ROUNDS = ROUNDS_,
                             STAGES = STAGES_, KSTEPS = KSTEPS_, THREADS = WARPS * 32;
        static constexpr bool BULK = BULK_;
        static constexpr int EARLY = EARLY_;
        static constexpr int ACROSS = WARPS / SPLIT * ROWS, COLS = ACROSS * ROUNDS;
};

template <class S, int M, int N, int K, int DIGITS, class Tile>
__host__ __device__ constexpr int dot_smem()
{
        /* 16: decoders read words behind the last slot and ignore them */
        return M * DotX<S, M, K, DIGITS>::ROW + M * Tile::WARPS * 4 + 128 +
               (Tile::SPLIT > 1 ? Tile::WARPS * Tile::ROWS * M * 4 : 0) +
               DotRing<S, N, K, Tile>::BYTES + 16;
}

/* ---- products ---------------------------------------------------------------- */

/* sum[d] += the 16 products of a unit's codes with digit d of x. */
template <bool SIGNED, int DIGITS>
TGC_DEV void dot_unit(int (&sum)[DIGITS], const unsigned (&code)[4], const uint4 (&x)[DIGITS])
{
#pragma unroll
        for (int d = 0; d < DIGITS; d++) {
                const unsigned v[4] = { x[d].x, x[d].y, x[d].z, x[d].w };
#pragma unroll
                for (int j = 0; j < 4; j++)
                        sum[d] = d ? dot4<SIGNED, false>(code[j], v[j], sum[d])
                                   : dot4<SIGNED, true>(code[j], v[j], sum[d]);
        }
}

/* The integer whose digits' sums these are, as float32. */
template <int DIGITS>
TGC_DEV float dot_number(const int (&sum)[DIGITS])
{
        const float head = (float)(sum[0] * 256 + sum[1]);
        if constexpr (DIGITS == 3)
                return fmaf(head, 256.f, (float)sum[2]);
        else
                return head;
}

/* acc[r][m] += the lane's units of row r of W times row m of x. */
template <class S, class X, int M, int DIGITS, int ROWS>
TGC_DEV void dot_multiply(float (&acc)[ROWS][M], const unsigned char *const (&block)[ROWS], int sub,
                          char *x, int xlane)
{
        typedef DotOf<S> D;
        constexpr int PER = D::UNITS / D::RUNS;
        typename D::Units u[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
                D::read(u[r], block[r], sub);
#pragma unroll
        for (int m = 0; m < M; m++) {
                float by[D::RUNS][2];
#pragma unroll
                for (int i = 0; i < D::RUNS; i += X::PAIRED)
                        load<2 * X::PAIRED>(reinterpret_cast<float(&)[2 * X::PAIRED]>(by[i]),
                                            X::scales(x, m, i, xlane));
#pragma unroll
                for (int i = 0; i < D::RUNS; i++) {
                        int sum[ROWS][DIGITS];
#pragma unroll
                        for (int e = 0; e < PER; e++) {
                                uint4 v[DIGITS];
#pragma unroll
                                for (int d = 0; d < DIGITS; d++)
                                        v[d] = *(const uint4 *)X::digits(x, m, d, i * PER + e,
                                                                         xlane);
#pragma unroll
                                for (int r = 0; r < ROWS; r++) {
#pragma unroll
                                        for (int d = 0; d < DIGITS; d++)
                                                sum[r][d] = e == 0        ? 0
                                                            : !D::SIXTEEN ? sum[r][d]
                                                                          : sum[r][d] * 16;
                                        dot_unit<D::SIGNED, DIGITS>(sum[r], u[r].code[i * PER + e],
                                                                    v);
                                }
                        }
#pragma unroll
                        for (int r = 0; r < ROWS; r++) {
                                acc[r][m] = fmaf(u[r].scale[i] * by[i][0],
                                                 dot_number<DIGITS>(sum[r]), acc[r][m]);
                                if (D::OFFSETS)
                                        acc[r][m] = fmaf(u[r].offset[i], by[i][1], acc[r][m]);
                        }
                }
        }
}

/* ---- task ---------------------------------------------------------------------- */

/* A warp's way through its rows of W: what it requests next, and which slot it reads. */
template <class Ring, class Tile>
struct DotStream {
        Ring ring;
        int end; /* the tile's columns end here */
        int next_col,
                next_block; /* next request: rows from next_col on, K block of the warp's part */
        int until;          /* requests before the next launch may start */
        int slot;
        unsigned phase;

        /* The next K block goes to slot i. */
        __device__ __forceinline__ void request(int i)
        {
                ring.fetch(next_col, ring.first + next_block, i);
                if (++next_block == ring.k_blocks)
                        next_block = 0, next_col += Tile::ACROSS;
        }
        /* Fills the ring. */
        __device__ __forceinline__ void start()
        {
#pragma unroll 1
                for (int i = 0; i < Tile::STAGES; i++) {
                        if (next_col < end && ring.k_blocks > 0) {
                                request(i);
                                until--;
                        }
                        if (!Ring::BULK)
                                cp_async_commit();
                }
        }
        /* The slot was read: refills it, and goes to the next. */
        __device__ __forceinline__ void next()
        {
                if (next_col < end) {
                        request(slot);
                        if (--until == 0)
                                pdl_launch_late();
                }
                if (!Ring::BULK)
                        cp_async_commit();
                if (++slot == Tile::STAGES)
                        slot = 0, phase ^= 1;
        }
};

/* RMSNorm: scale, from the warps' sums of squares. */
template <int M, int K, int WARPS>
TGC_DEV void dot_get_scales(float (&scale)[M], const float *red, float eps, int lane)
{
#pragma unroll
        for (int m = 0; m < M; m++) {
                const float all = warp_sum(lane < WARPS ? red[m * WARPS + lane] : 0.f);
                scale[m] = rsqrtf(all * (1.f / K) + eps);
        }
}

/* Columns [k0, k0 + KC) of x to fixed point.  RMSNorm: scale, once all of K was read. */
template <class X, int M, int K, int DIGITS, class Tile, int NORM, class Prologue, class Gain>
TGC_DEV void dot_x_ready(char *x, float *red, int k0, float eps, float (&square)[M],
                         const float (&mean)[M], float (&scale)[M], int warp, int lane,
                         const Prologue &prologue, const Gain &gain)
{
        constexpr int THREADS = Tile::THREADS;
        const bool last = NORM == NORM_RMS && k0 + X::KC >= K;
        if (k0)
                __syncthreads();
        if constexpr (NORM == NORM_LAYER) {
                const Standardised<M, Prologue, Gain> h = { prologue, gain, mean, scale, 0 };
                dot_x_fill<X, M, K, DIGITS, THREADS, NORM_NONE>(x, 0, k0, square, h, NoGain());
        } else {
                dot_x_fill<X, M, K, DIGITS, THREADS, NORM>(x, 0, k0, square, prologue, gain);
        }
        if (last)
                put_squares<M, Tile::WARPS>(red, square, warp, lane);
        __syncthreads();
        if (last)
                dot_get_scales<M, K, Tile::WARPS>(scale, red, eps, lane);
}

/* acc += K block l of rows col0 .. col0+ROWS-1, which slot holds.  step0: first step that x in
 * shared memory has. */
template <class S, class X, int M, int K, int DIGITS, class Tile, class Ring>
TGC_DEV void dot_k_block(float (&acc)[Tile::ROWS][M], const Ring &ring, char *x, int col0, int l,
                         int slot, int step0, int sub, int lane)
{
        constexpr int KSTEPS = Tile::KSTEPS, ROWS = Tile::ROWS;
#pragma unroll 1
        for (int j = 0; j < KSTEPS; j++) {
                const int s = l * KSTEPS + j, own = s * 32 + lane;
                const unsigned char *block[ROWS];
                if (K % (DotStep<S, K>::VALUES * KSTEPS) && own / DotOf<S>::LANES >= K / S::VALUES)
                        break;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        block[r] = ring.block(r, col0, l, j, slot);
                dot_multiply<S, X, M, DIGITS, ROWS>(acc, block, sub, x, own - step0 * 32);
        }
}

template <class S, int M, int N, int K, int DIGITS, class Tile, int NORM, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_stored_task(const unsigned char *w, long ldw, float eps, int tile, char *smem,
                              const Prologue &prologue, const Epilogue &epilogue,
                              const Gain &gain = Gain())
{
        typedef DotStep<S, K> Step;
        typedef DotX<S, M, K, DIGITS> X;
        typedef DotRing<S, N, K, Tile> Ring;
        constexpr int ROWS = Tile::ROWS, SPLIT = Tile::SPLIT, ROUNDS = Tile::ROUNDS,
                      THREADS = Tile::THREADS, KC = X::KC;
        constexpr int K_BLOCKS = (Step::STEPS + Tile::KSTEPS - 1) / Tile::KSTEPS,
                      PART = (K_BLOCKS + SPLIT - 1) / SPLIT, CHUNK = KC / Step::VALUES;
        static_assert(KC >= K || (SPLIT == 1 && ROUNDS == 1 && Tile::KSTEPS == 1),
                      "sums stay while x changes");
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp % SPLIT;
        const int sub = lane % DotOf<S>::LANES;
        int col0 = tile * Tile::COLS + warp / SPLIT * ROWS;
        char *const x = smem;
        float *const red = (float *)(x + M * X::ROW), *const partial = red + M * Tile::WARPS + 32;
        const Ring ring = { w,
                            ldw / S::VALUES * S::BYTES,
                            lane,
                            part * PART,
                            K_BLOCKS - part * PART < PART ? K_BLOCKS - part * PART : PART,
                            (char *)(partial + (SPLIT > 1 ? Tile::WARPS * ROWS * M : 0)) +
                                    warp * (Ring::BYTES / Tile::WARPS) };

        /* requests that warp 0 makes before the next launch may start */
        int until = warp ? -1
                    : (N - col0 + Tile::ACROSS - 1) / Tile::ACROSS < ROUNDS
                            ? (N - col0 + Tile::ACROSS - 1) / Tile::ACROSS * ring.k_blocks
                            : ROUNDS * ring.k_blocks;
        until -= Tile::EARLY;
        const int end = N < (tile + 1) * Tile::COLS ? N : (tile + 1) * Tile::COLS;
        DotStream<Ring, Tile> stream = { ring, end, col0, 0, until, 0, 0 };
        ring.begin();
        /* 1. request all slots; then wait for x */
        stream.start();
        if (warp == 0 && stream.until <= 0)
                pdl_launch_late();
        pdl_wait();

        float acc[ROWS][M], square[M], mean[M], scale[M];
#pragma unroll
        for (int m = 0; m < M; m++) {
                square[m] = 0.f;
                mean[m] = 0.f;
                scale[m] = 1.f;
        }
        if (NORM == NORM_LAYER)
                x_moments<M, K, THREADS>(0, eps, mean, scale, prologue, red);

#pragma unroll 1
        for (int round = 0; round < ROUNDS; round++, col0 += Tile::ACROSS) {
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                acc[r][m] = 0.f;
#pragma unroll 1
                for (int k0 = 0; k0 < K; k0 += KC) {
                        /* 2. x, in the first round */
                        if (round == 0)
                                dot_x_ready<X, M, K, DIGITS, Tile, NORM>(x, red, k0, eps, square,
                                                                         mean, scale, warp, lane,
                                                                         prologue, gain);
                        if (col0 >= end)
                                continue;
                        /* 3. this warp's K blocks; refill each slot as soon as it is read */
                        const int step0 = k0 / Step::VALUES,
                                  blocks = KC < K && Step::STEPS - step0 > CHUNK
                                                   ? CHUNK
                                                   : ring.k_blocks - step0;
#pragma unroll 1
                        for (int i = 0; i < blocks; i++) {
                                ring.wait(stream.slot, stream.phase);
                                dot_k_block<S, X, M, K, DIGITS, Tile>(acc, ring, x, col0,
                                                                      ring.first + step0 + i,
                                                                      stream.slot, step0, sub,
                                                                      lane);
                                __syncwarp();
                                stream.next();
                        }
                }
                /* 4. add lanes, then the SPLIT warps; epilogue */
                lanes_finish<NORM == NORM_RMS, N, SPLIT, ROWS, M>(acc, scale, partial, 0, col0,
                                                                  warp, part, lane, epilogue);
                if (SPLIT > 1)
                        __syncthreads();
        }
        ring.end();
        __syncthreads();
}

#endif
