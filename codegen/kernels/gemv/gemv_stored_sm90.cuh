/* gemv_stored_sm90.cuh: y = norm(x) W^T for a few rows of x and block-quantised W, on integer
 * tensor cores.
 *
 *      gemv_stored_sm90_task<S, M, N, K, Tile, NORM>(w, ldw, eps, tile, smem,
 *              prologue, epilogue[, gain])
 *              x (M, K) from the prologue; W (N, K), blocks of storage type S
 *              (../common/stored_dot.cuh), rows ldw values apart; y (M, N) to the epilogue.
 *              NORM is none or RMS.  K is a multiple of STEP, and a row of W is a multiple of 16
 *              bytes (gemv_blocks_mma in ../../forms/gemv_shape.h decides).
 *
 * A slab is 16 rows of W, the m of an mma.  Block b computes slabs b, b + BLOCKS, b + 2 BLOCKS,
 * ...
 *
 * Producer (warp WARPS) copies W into a ring of STAGES slots, one bulk copy per row.  A slot holds
 * 16 rows by LUMP steps of every consumer warp.  Its first copies precede pdl_wait; after its last
 * one the next launch may start.
 *
 * Consumers (WARPS warps):
 * 1. Wait for the previous launch.  Convert GROUP rows of x to fixed point in shared memory.
 * 2. Multiply slot by slot.  Warps split K: each has its own steps of a slot.
 * 3. After FLUSH slabs, add the warps' partial sums in order, scale, call the epilogue.
 *
 * Fixed point: 32 neighbouring values of x share a power-of-two scale; a value is 256 * high +
 * low, two signed bytes.
 *
 * The mma is m16n8k32: A = codes of W, B = bytes of x.  A run is 16 or 32 neighbouring codes with
 * one scale.  Lane (g, t) = (lane / 4, lane % 4) loads a run of rows g and g + 8; the four lanes
 * of a row load four different runs.  B is block diagonal: columns 2t and 2t + 1 are the high and
 * low bytes of run t's x, and 0 in the k of the other runs.  So the two sums of run t arrive in
 * lane (g, t), which holds that run's scale.  One mma takes 8 codes of each run, and no sum leaves
 * its lane before the slab ends.
 *
 * NF4 and FP4 need two passes of two planes (../common/stored_dot_sm90.cuh).  F8 codes become f16;
 * x is then f16 too, with the same scales and 11 bits, and the mma sums in float32.
 *
 * The order of summation does not depend on M.
 *
 * Shared memory (blocks_mma_smem), G = min(M, GROUP) rows of x:
 *
 *     slots     STAGES x 16 rows of W, PITCH bytes apart; 16 spare bytes
 *     x         G x (2 K bytes, then float2 { scale, scale * sum of x } per run)
 *     zero      32 UNITS zero bytes: B for lanes off the diagonal
 *     partial   float [FLUSH][G][WARPS][16]
 *     red       float [G][WARPS], sums of squares
 *     full, empty   STAGES mbarriers each */
#ifndef TGC_GEMV_STORED_SM90_CUH
#define TGC_GEMV_STORED_SM90_CUH

#include "gemv_epilogue.cuh"
#include "gemv_prologue.cuh"
#include "stored_dot_sm90.cuh"
#ifdef TGC_SM90A

/* BLOCKS: blocks of the launch.  Interleaved slabs let all blocks read neighbouring rows of W.
 * GROUP: rows of x per pass over W. */
template <int WARPS_, int BLOCKS_, int STAGES_, int LUMP_, int GROUP_ = 8>
struct BlocksMmaTile {
        static constexpr int WARPS = WARPS_, BLOCKS = BLOCKS_, STAGES = STAGES_, LUMP = LUMP_,
                             GROUP = GROUP_;
        static constexpr int ROWS = 16, FLUSH = 4;
        static constexpr int THREADS = (WARPS + 1) * 32;
};

/* The lookup table that D::read takes, in registers, or nothing. */
struct NoTable {
};
template <class D, int PASSES = D::PASSES>
struct BlocksTable {
        typedef NoTable Type;
        static __device__ __forceinline__ NoTable of(const char *) { return NoTable(); }
};
template <class D>
struct BlocksTable<D, 2> {
        typedef typename D::Table Type;
        static __device__ __forceinline__ Type of(const char *zero)
        {
                return D::table(zero ? *(const volatile unsigned *)zero : 0);
        }
};

template <class S, int M, int K, class Tile>
struct BlocksMma {
        typedef DotOf<S> D;
        typedef typename BlocksTable<D>::Type Table;
        static constexpr int RUN_UNITS = D::UNITS / D::RUNS;
        static constexpr int STEP = 64 * D::UNITS, STEPS = K / STEP; /* values per warp and step */
        static constexpr int EACH = Tile::WARPS * Tile::LUMP,        /* steps per slot */
                CHUNKS = (STEPS + EACH - 1) / EACH;                  /* slots per slab */
        static constexpr int ROW = K / S::VALUES * S::BYTES;
        static constexpr int PART = EACH * STEP / S::VALUES * S::BYTES;
        /* bytes between a slot's rows; 16 modulo 32, against bank conflicts */
        static constexpr int PITCH = (PART + 31) / 32 * 32 + 16;
        static constexpr int SLOT = Tile::ROWS * PITCH;
        /* one row of x: the bytes of each lane's units, high then low; then scale and sum per
         * run */
        static constexpr int DIGITS = K * 2, X = DIGITS + K / 16 / D::UNITS * D::RUNS * 8;
        static constexpr int ZERO = D::UNITS * 32;
        static constexpr int PARTIAL = Tile::FLUSH * Tile::WARPS * Tile::ROWS * M * 4;
        static_assert(K % STEP == 0 && ROW % 16 == 0 && PART % 16 == 0, "whole steps and pieces");

        /* Lanes that share a block rotate the order of their four words by this much, so that they
         * read different banks.  x is stored in the same order. */
        static __device__ __forceinline__ int turn(int lane)
        {
                return D::TURNS ? lane % D::LANES * (4 / D::LANES) : 0;
        }
        static __device__ __forceinline__ char *digits(char *x, int m, int digit, int e, int lane)
        {
                return x + m * X + (lane * 2 + digit) * (D::UNITS * 16) + e * 16;
        }
        static __device__ __forceinline__ float *scales(char *x, int m, int run, int lane)
        {
                return (float *)(x + m * X + DIGITS + (lane * D::RUNS + run) * 8);
        }
};

template <class Tile>
__host__ __device__ constexpr int blocks_mma_group(int M)
{
        return Tile::GROUP < M ? Tile::GROUP : M;
}
template <class S, int M, int K, class Tile>
__host__ __device__ constexpr int blocks_mma_smem()
{
        constexpr int G = blocks_mma_group<Tile>(M);
        typedef BlocksMma<S, G, K, Tile> B;
        return Tile::STAGES * (B::SLOT + 16) + 16 + G * B::X + B::ZERO + B::PARTIAL +
               G * Tile::WARPS * 4;
}

/* ---- x ------------------------------------------------------------------------ */

/* Interleaves the bytes of this lane (w: x[k .. k+7]) with those of lane ^ 2, which has x[k ^ 16
 * ..]: NF4 and FP4 codes k and k + 16 are neighbours in W.  The lane of the lower k gets the first
 * four of both, the other lane the last four. */
TGC_DEV void blocks_x_pair(unsigned (&w)[2], int k)
{
        const bool late = k & 16;
        const unsigned own = late ? w[1] : w[0],
                       other = __shfl_xor_sync(0xffffffffu, late ? w[0] : w[1], 2),
                       a = late ? other : own, b = late ? own : other;
        w[0] = __byte_perm(a, b, 0x5140);
        w[1] = __byte_perm(a, b, 0x7362);
}

/* Converts v = x[m][k .. k+7] to fixed point and stores it.  Four neighbouring threads hold the 32
 * values that share a scale.  there: false where x has no such element; the thread still takes
 * part in the shuffles. */
template <class B>
TGC_DEV void blocks_x_put(char *x, int m, int k, const float (&v)[8], bool there)
{
        typedef typename B::D D;
        float largest = fabsf(v[0]);
        unsigned n[8];
#pragma unroll
        for (int j = 1; j < 8; j++)
                largest = max_nan(largest, fabsf(v[j]));
#pragma unroll
        for (int d = 1; d <= 2; d *= 2)
                largest = max_nan(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        const unsigned most = __float_as_uint(largest) & 0x7fffffffu;
        /* Smallest power of two with largest < 127.49 * 256, so that high bytes are at most 127. */
        int power = (int)((most + 0x10400u) >> 23) - 14;
        power = power < 1 ? 1 : power;
        const float inverse = __uint_as_float((unsigned)(254 - power) << 23),
                    scale = __uint_as_float(most < 0x7f800000u ? (unsigned)power << 23
                                                               : 0x7fc00000u);
        const int unit = k / 16, e = D::part_of(unit), lane = D::lane_of(unit);
        if constexpr (D::HALVES) {
                if (!there)
                        return;
                unsigned w[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                        w[i] = pack2<f16>(v[2 * i] * inverse, v[2 * i + 1] * inverse);
                char *const to = B::digits(x, m, 0, 0, lane) + e * 32;
                const int word = k / 4 % 4 - B::turn(lane);
                *(uint2 *)(to + (word & 3) * 8) = { w[0], w[1] };
                *(uint2 *)(to + ((word + 1) & 3) * 8) = { w[2], w[3] };
                if (k % 32 == 0)
                        *(float2 *)B::scales(x, m, 0, lane) = { scale, 0.f };
                return;
        }
        /* Adding 1.5 * 2^23 leaves the integer in the low bits.  The extra 128 rounds the high
         * byte, and flips the sign bit of the low one. */
#pragma unroll
        for (int j = 0; j < 8; j++)
                n[j] = __float_as_uint(fmaf(v[j], inverse, 12583040.f));
        unsigned high[2], low[2];
        int sums[2] = { 0, 0 };
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const unsigned a = __byte_perm(n[4 * i], n[4 * i + 1], 0x5140),
                               b = __byte_perm(n[4 * i + 2], n[4 * i + 3], 0x5140);
                low[i] = __byte_perm(a, b, 0x5410) ^ 0x80808080u;
                high[i] = __byte_perm(a, b, 0x7632);
                sums[0] = dot4<true, true>(high[i], 0x01010101u, sums[0]);
                sums[1] = dot4<true, true>(low[i], 0x01010101u, sums[1]);
        }
        int sum = sums[0] * 256 + sums[1];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (B::RUN_UNITS == 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        constexpr bool PAIRED = D::PASSES == 2;
        if (PAIRED)
                blocks_x_pair(high, k), blocks_x_pair(low, k);
        if (!there)
                return;
        const int part = PAIRED ? k >> 3 & 1 : e, at = PAIRED ? k >> 1 & 8 : k % 16;
        char *const to[2] = { B::digits(x, m, 0, part, lane), B::digits(x, m, 1, part, lane) };
        if constexpr (D::TURNS) {
                const int word = at / 4 - B::turn(lane), a = (word & 3) * 4,
                          b = ((word + 1) & 3) * 4;
                *(unsigned *)(to[0] + a) = high[0];
                *(unsigned *)(to[0] + b) = high[1];
                *(unsigned *)(to[1] + a) = low[0];
                *(unsigned *)(to[1] + b) = low[1];
        } else {
                *(uint2 *)(to[0] + at) = { high[0], high[1] };
                *(uint2 *)(to[1] + at) = { low[0], low[1] };
        }
        if (k % (16 * B::RUN_UNITS) == 0)
                *(float2 *)B::scales(x, m, e / B::RUN_UNITS, lane) = { scale, scale * (float)sum };
}

/* Fills rows row0 .. row0+M-1 of x through the prologue; zeros from row ROWS on.  square[m]: sum
 * of squares of this thread's elements of row m.  gain only multiplies. */
template <class B, int ROWS, int M, int K, int THREADS, int NORM, class Prologue, class Gain>
TGC_DEV void blocks_x_fill(char *x, int row0, float (&square)[M], const Prologue &prologue,
                           const Gain &gain)
{
        /* Without a branch between the vectors of 8, a thread's shuffles overlap. */
        constexpr bool EVEN = K % (THREADS * 8) == 0;
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                const float q = x_row<K, 8, THREADS, NORM>(
                        row0 + m, 0, prologue, gain,
                        [&](int k) {
                                return (EVEN || k < K) && (ROWS % M == 0 || row0 + m < ROWS);
                        },
                        [&](int k, const float(&v)[8], bool) {
                                blocks_x_put<B>(x, m, k, v, EVEN || k < K);
                        });
#pragma unroll
                for (int i = 0; i < M; i++)
                        if (i == m)
                                square[i] = q;
        }
}

/* ---- products ----------------------------------------------------------------- */

/* sum[r] = the integer dot product of run i of row g + 8r with x, for byte codes.  xb: this lane's
 * column of B. */
template <class B, class Units>
TGC_DEV void run_bytes(float (&sum)[2], const Units (&u)[2], int i, const char *xb)
{
        typedef typename B::D D;
        int c[D::PLANES][4];
#pragma unroll
        for (int e = i * B::RUN_UNITS; e < (i + 1) * B::RUN_UNITS; e++) {
                const uint4 v = *(const uint4 *)(xb + e * 16);
                const unsigned b[2][2] = { { v.x, v.y }, { v.z, v.w } };
#pragma unroll
                for (int p = 0; p < D::PLANES; p++) {
                        const int at = p * D::UNITS + e;
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                c[p][j] = e == i * B::RUN_UNITS ? 0
                                          : D::SIXTEEN          ? c[p][j] * 16
                                                                : c[p][j];
#pragma unroll
                        for (int j = 0; j < 4; j += 2) {
                                const unsigned a[4] = { u[0].code[at][j], u[1].code[at][j],
                                                        u[0].code[at][j + 1],
                                                        u[1].code[at][j + 1] };
                                mma_16832<D::SIGNED>(c[p], a, b[j / 2]);
                        }
                }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
                int n[2] = { c[0][2 * r], c[0][2 * r + 1] };
                if constexpr (D::PLANES == 2)
                        n[0] -= c[1][2 * r], n[1] -= c[1][2 * r + 1];
                sum[r] = (float)(n[0] * 256 + n[1]);
        }
}

/* The same for F8's f16 codes; x is in the even columns of B alone. */
template <class B, class Units>
TGC_DEV void run_halves(float (&sum)[2], const Units (&u)[2], const char *xb)
{
        float c[4] = { 0.f, 0.f, 0.f, 0.f };
#pragma unroll
        for (int e = 0; e < 4; e++) {
                const uint4 v = *(const uint4 *)(xb + e * 16);
                const unsigned b[2][2] = { { v.x, v.y }, { v.z, v.w } };
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                        const unsigned a[4] = { u[0].code[e][j], u[1].code[e][j],
                                                u[0].code[e][j + 1], u[1].code[e][j + 1] };
                        mma_16816<f16>(c, a, b[j / 2]);
                }
        }
        sum[0] = c[0], sum[1] = c[2];
}
/* Reads the units of one block's lane `sub`: D::read with the arguments that D takes. */

template <class D, class Units, class Table>
TGC_DEV void blocks_read(Units &u, const unsigned char *p, int sub, const Table &table, int pass,
                         int turn)
{
        if constexpr (D::PASSES == 2)
                D::read(u, p, sub, table, pass);
        else if constexpr (D::TURNS)
                D::read(u, p, sub, turn);
        else
                D::read(u, p, sub);
}

/* acc[r][m] += this lane's runs of row g + 8r times row m of x.  own: index of the lane's units
 * within the row's K.  xb, stride: this lane's column of B in row 0 and from row to row of x
 * (lanes off the diagonal: zeros, 0). */
template <class B, int M>
TGC_DEV void blocks_multiply(float (&acc)[2][M], const unsigned char *const (&block)[2], int sub,
                             char *x, int own, const char *xb, int stride,
                             const typename B::Table &table)
{
        typedef typename B::D D;
        /* unroll 1: registers need not keep x of many rows between passes */
#pragma unroll(M == 1 ? D::PASSES : 1)
        for (int pass = 0; pass < D::PASSES; pass++) {
                typename D::Units u[2];
                blocks_read<D>(u[0], block[0], sub, table, pass, B::turn(sub));
                blocks_read<D>(u[1], block[1], sub, table, pass, B::turn(sub));
#pragma unroll
                for (int m = 0; m < M; m++) {
                        float by[D::RUNS][2];
                        if constexpr (D::RUNS == 1)
                                load<2>(by[0], B::scales(x, m, 0, own));
                        else
#pragma unroll
                                for (int i = 0; i < D::RUNS; i += 2)
                                        load<4>(reinterpret_cast<float(&)[4]>(by[i]),
                                                B::scales(x, m, i, own));
#pragma unroll
                        for (int i = 0; i < D::RUNS; i++) {
                                float sum[2];
                                if constexpr (D::HALVES)
                                        run_halves<B>(sum, u, xb + m * stride);
                                else
                                        run_bytes<B>(sum, u, i, xb + m * stride);
#pragma unroll
                                for (int r = 0; r < 2; r++) {
                                        acc[r][m] = fmaf(u[r].scale[i] * by[i][0], sum[r],
                                                         acc[r][m]);
                                        if (D::OFFSETS)
                                                acc[r][m] = fmaf(u[r].offset[i], by[i][1],
                                                                 acc[r][m]);
                                }
                        }
                }
        }
}

/* This warp's steps of chunk s (one slot) of K.  mine: this lane's column of B is on the
 * diagonal. */
template <class B, class S, int M, class Tile>
TGC_DEV void blocks_stage(float (&acc)[2][M], char *x, const char *zero, bool mine,
                          const char *slot, int s, int warp, int lane,
                          const typename B::Table &table)
{
        typedef DotOf<S> D;
        const int g = lane >> 2, t = lane & 3;
        mine &= !D::HALVES || !(g & 1);
        const unsigned char *const rows = (const unsigned char *)slot + g * B::PITCH;
#pragma unroll
        for (int l = 0; l < Tile::LUMP; l++) {
                const int step = l * Tile::WARPS + warp, all = s * B::EACH + step, u = step * 4 + t,
                          own = all * 4 + t;
                if (B::STEPS % B::EACH && all >= B::STEPS)
                        break;
                const unsigned char *const block[2] = { rows + u / D::LANES * S::BYTES,
                                                        rows + u / D::LANES * S::BYTES +
                                                                8 * B::PITCH };
                blocks_multiply<B, M>(acc, block, u % D::LANES, x, own,
                                      mine ? B::digits(x, 0, g & 1, 0, own) : zero, mine ? B::X : 0,
                                      table);
        }
}

/* Adds the warps' partial sums of `slabs` slabs (first, first + each, ...), applies RMSNorm's
 * scale, calls the epilogue. */
template <int N, int K, int M, int WARPS, int THREADS, int NORM, class Epilogue>
TGC_DEV void blocks_finish(const float *partial, const float *red, float eps, int row0, int rows,
                           int first, int each, int slabs, const Epilogue &epilogue)
{
        constexpr int V = epilogue_width<Epilogue, 8>(), PARTS = 16 / V;
#pragma unroll 1
        for (int i = threadIdx.x; i < slabs * M * PARTS; i += THREADS) {
                const int part = i % PARTS * V, m = i / PARTS % M, b = i / PARTS / M,
                          n = (first + b * each) * 16 + part;
                float v[V];
                if (n >= N || m >= rows)
                        continue;
                parts_sum<WARPS>(v, partial, (b * M + m) * WARPS * 16 + part, 16);
                if (NORM == NORM_RMS) {
                        float q = 0.f;
#pragma unroll
                        for (int j = 0; j < WARPS; j++)
                                q += red[m * WARPS + j];
                        const float scale = rsqrtf(q * (1.f / K) + eps);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] *= scale;
                }
                epilogue(row0 + m, n, v);
        }
}

template <class S, int M, int N, int K, class Tile, int NORM, class Prologue, class Epilogue,
          class Gain = NoGain>
TGC_DEV void gemv_stored_sm90_task(const unsigned char *w, long ldw, float eps, int tile,
                                   char *smem, const Prologue &prologue, const Epilogue &epilogue,
                                   const Gain &gain = Gain())
{
        constexpr int G = blocks_mma_group<Tile>(M);
        typedef BlocksMma<S, G, K, Tile> B;
        typedef DotOf<S> D;
        constexpr int WARPS = Tile::WARPS, STAGES = Tile::STAGES, LUMP = Tile::LUMP,
                      CONSUMERS = WARPS * 32, FLUSH = Tile::FLUSH, ALL = 1;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        char *const slots = smem, *const x = slots + STAGES * B::SLOT + 16,
                    *const zero = x + G * B::X;
        float *const partial = (float *)(zero + B::ZERO), *const red = partial + B::PARTIAL / 4;
        Mbar *const full = (Mbar *)(red + G * WARPS), *const empty = full + STAGES;
        constexpr int SLABS = (N + 15) / 16, BLOCKS = Tile::BLOCKS;
        const int slabs = (SLABS - tile + BLOCKS - 1) / BLOCKS;

        /* one arrival (and its bytes) fills a slot; every consumer warp's arrival empties it */
        if (threadIdx.x == CONSUMERS) {
                for (int i = 0; i < STAGES; i++) {
                        mbarrier_init(full + i, 1);
                        mbarrier_init(empty + i, WARPS);
                }
                fence_barrier_init();
        }
        __syncthreads();

        /* position in the ring; the producer and each consumer step through it alike */
        int slot = 0;
        unsigned phase = 0;
        if (warp == WARPS) {
                /* producer: lanes 0 to 15 copy a row of the slab each */
                const long row_bytes = ldw / S::VALUES * S::BYTES;
#pragma unroll 1
                for (int i = 0; i < (M + G - 1) / G * slabs; i++) {
                        const int n = (tile + i % slabs * BLOCKS) * 16 + (lane & 15);
                        const unsigned char *from = w + (n < N ? n : N - 1) * row_bytes;
#pragma unroll 1
                        for (int s = 0; s < B::CHUNKS; s++, from += B::PART) {
                                const int left = B::ROW - s * B::PART,
                                          bytes = left < B::PART ? left : B::PART;
                                mbarrier_wait(empty + slot, phase ^ 1);
                                if (lane == 0)
                                        mbarrier_expect_tx(full + slot, bytes * 16);
                                __syncwarp();
                                if (lane < 16)
                                        bulk_load(slots + slot * B::SLOT + lane * B::PITCH, from,
                                                  bytes, full + slot);
                                if (++slot == STAGES)
                                        slot = 0, phase ^= 1;
                        }
                }
                if (lane == 0)
                        pdl_launch_late();
        } else {
                /* consumers */
                const int g = lane >> 2, t = lane & 3;
                /* this lane's column of B, column g, is on the diagonal */
                const bool mine = g >> 1 == t;
                float square[G], acc[2][G];
                if (threadIdx.x < B::ZERO / 4)
                        ((unsigned *)zero)[threadIdx.x] = 0;
                pdl_wait();
#pragma unroll 1
                for (int row0 = 0; row0 < M; row0 += G) {
                        if (row0)
                                bar_sync(ALL, CONSUMERS);
                        /* 1. x to fixed point, and its sums of squares */
                        blocks_x_fill<B, M, G, K, CONSUMERS, NORM>(x, row0, square, prologue, gain);
                        if (NORM == NORM_RMS) {
#pragma unroll
                                for (int m = 0; m < G; m++) {
                                        square[m] = warp_sum(square[m]);
                                        if (lane == 0)
                                                red[m * WARPS + warp] = square[m];
                                }
                        }
                        bar_sync(ALL, CONSUMERS);
                        const typename B::Table table = BlocksTable<D>::of(G == 1 ? zero : NULL);
#pragma unroll 1
                        for (int slab = 0; slab < slabs; slab++) {
#pragma unroll
                                for (int m = 0; m < G; m++)
                                        acc[0][m] = acc[1][m] = 0.f;
#pragma unroll 1
                                for (int s = 0; s < B::CHUNKS; s++) {
                                        /* 2. this warp's steps of a slot */
                                        mbarrier_wait(full + slot, phase);
                                        blocks_stage<B, S, G, Tile>(acc, x, zero, mine,
                                                                    slots + slot * B::SLOT, s, warp,
                                                                    lane, table);
                                        __syncwarp();
                                        if (lane == 0)
                                                mbarrier_arrive(empty + slot);
                                        if (++slot == STAGES)
                                                slot = 0, phase ^= 1;
                                }
                                const int at = slab % FLUSH;
                                /* 3. add a quad's four runs; per FLUSH slabs, the warps */
#pragma unroll
                                for (int m = 0; m < G; m++)
#pragma unroll
                                        for (int r = 0; r < 2; r++) {
                                                float v = acc[r][m];
                                                v += __shfl_xor_sync(0xffffffffu, v, 1);
                                                v += __shfl_xor_sync(0xffffffffu, v, 2);
                                                if (t == 0)
                                                        partial[((at * G + m) * WARPS + warp) * 16 +
                                                                r * 8 + g] = v;
                                        }
                                if (at != FLUSH - 1 && slab != slabs - 1)
                                        continue;
                                bar_sync(ALL, CONSUMERS);
                                blocks_finish<N, K, G, WARPS, CONSUMERS, NORM>(
                                        partial, red, eps, row0, M - row0 < G ? M - row0 : G,
                                        tile + (slab - at) * BLOCKS, BLOCKS, at + 1, epilogue);
                                if (slab != slabs - 1)
                                        bar_sync(ALL, CONSUMERS);
                        }
                }
        }
        __syncthreads();
        if (threadIdx.x < 2 * STAGES)
                mbarrier_inval(full + threadIdx.x);
}

#endif
#endif
