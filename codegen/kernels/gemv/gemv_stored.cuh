/* gemv_stored.cuh: y = norm(x) W^T for 1..8 rows of x and block-quantised W, by dp4a.
 *
 *      gemv_stored_task<S, M, N, K, DIGITS, Tile, NORM>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              as gemv_task (gemv.cuh); W (N, K), blocks of storage type S
 *              (../common/stored_dot.cuh), rows ldw values apart
 *
 * Memory-bound: the time is that of reading W.
 *
 * W.  Each warp streams its own rows, ROWS at a time, as raw bytes through its own STAGES slots of
 * shared memory.  A step is what 32 lanes read of a row at once; a slot holds LUMP steps of ROWS
 * rows.  Copies are cp.async, on sm_90a bulk copies where rows are multiples of 16 bytes.  No
 * block barrier is needed.  All slots are requested before pdl_wait.  The next launch may start
 * once all of W is requested (pdl_launch_late), so it fills its slots while this one computes.
 *
 * x.  Each block converts x to fixed point in shared memory once, through the prologue.  32
 * neighbouring values share a power-of-two scale, chosen by the largest of them.  An integer has
 * DIGITS bytes (base-256 digits, the first signed).  Two digits are finer than bf16 and f16; three
 * match float32 relative to the largest of 32.
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
#include "stored_dot.cuh"

#if defined TGC_SM90A && TGC_SM90A
constexpr bool DOT_BULK = true; /* bulk copies bring W, where rows are multiples of 16 bytes */
#else
constexpr bool DOT_BULK = false;
#endif
/* EARLY: so many slots before its last request of W a block lets the next launch start. */

template <int WARPS_, int ROWS_, int SPLIT_, int ROUNDS_, int STAGES_, int LUMP_ = 1,
          bool BULK_ = DOT_BULK, int EARLY_ = 0>
struct DotTile {
        static constexpr int WARPS = WARPS_, ROWS = ROWS_, SPLIT = SPLIT_, ROUNDS = ROUNDS_,
                             STAGES = STAGES_, LUMP = LUMP_, THREADS = WARPS * 32;
        static constexpr bool BULK = BULK_;
        static constexpr int EARLY = EARLY_;
        static constexpr int ACROSS = WARPS / SPLIT * ROWS, COLS = ACROSS * ROUNDS;
};

/* A step: what a warp's 32 lanes read of one row at once. */
template <class S, int K>
struct DotStep {
        typedef DotOf<S> D;
        static constexpr int VALUES = 512 * D::UNITS, STEPS = (K + VALUES - 1) / VALUES;
        static constexpr int BYTES = VALUES / S::VALUES * S::BYTES, ROW = K / S::VALUES * S::BYTES;
        static constexpr bool WHOLE = ROW % 16 == 0; /* rows are 16-byte aligned */
        static_assert(K % S::VALUES == 0, "rows are whole blocks");
};

/* x in shared memory, KC of K at a time.  A row: DIGITS planes of bytes, then for each lane's run
 * two floats, the scale and scale * sum of its integers.  The units e of all lanes are neighbours,
 * so lanes read without bank conflicts; so are runs, in pairs. */
template <class S, int M, int K, int DIGITS>
struct DotX {
        typedef DotOf<S> D;
        typedef DotStep<S, K> Step;
        static constexpr int ALL = Step::STEPS * Step::VALUES, MOST = 49152 / M;
        static constexpr int PAIRED = D::RUNS > 1 ? 2 : 1; /* runs stored side by side */
        static constexpr int BYTES_OF_STEP = Step::VALUES * DIGITS + 32 * D::RUNS * 8;
        static constexpr int FIT = MOST / BYTES_OF_STEP < 1 ? 1 : MOST / BYTES_OF_STEP;
        static constexpr int KC = FIT < Step::STEPS ? FIT * Step::VALUES : ALL;
        static constexpr int LANES = KC / 16 / D::UNITS, PLANE = KC;
        static constexpr int ROW = KC * DIGITS + LANES * D::RUNS * 8;
        static_assert(DIGITS == 2 || DIGITS == 3, "digits of x");

        static __device__ __forceinline__ char *digits(char *x, int m, int digit, int e, int lane)
        {
                return x + m * ROW + digit * PLANE + (e * LANES + lane) * 16;
        }
        static __device__ __forceinline__ float *scales(char *x, int m, int run, int lane)
        {
                return (float *)(x + m * ROW + DIGITS * PLANE +
                                 (run / PAIRED * LANES + lane) * (8 * PAIRED)) +
                       run % PAIRED * 2;
        }
};

/* ---- x ------------------------------------------------------------------------ */

/* Converts v = x[m][k0 + k .. +7] to fixed point and stores it.  Four neighbouring threads hold
 * the 32 values that share a scale.  there: false behind K; the thread still takes part in the
 * shuffles. */
template <class X, int DIGITS>
TGC_DEV void dot_x_put(char *x, int m, int k, const float (&v)[8], bool there)
{
        typedef typename X::D D;
        /* magnitudes as bits: NaN and infinity compare largest */
        unsigned most = 0, sum = 0;
        int n[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
                const unsigned size = __float_as_uint(v[j]) & 0x7fffffffu;
                most = size > most ? size : most;
        }
#pragma unroll
        for (int d = 1; d <= 2; d *= 2) {
                const unsigned other = __shfl_xor_sync(0xffffffffu, most, d);
                most = other > most ? other : most;
        }
        /* 2^power: the least power of two with largest < 2^power * 2^(8 DIGITS - 1) */
        constexpr int FINE = 8 * DIGITS - 2;
        int power = (int)(most >> 23) - FINE;
        power = power < 1 ? 1 : power;
        const float inverse = __uint_as_float((unsigned)(254 - power) << 23);
#pragma unroll
        for (int j = 0; j < 8; j++) {
                /* adding 1.5 * 2^23 leaves the integer in the low bits */
                if constexpr (DIGITS == 2)
                        n[j] = (int)(__float_as_uint(fmaf(v[j], inverse, 12582912.f)) -
                                     0x4b400000u);
                else
                        n[j] = __float2int_rn(v[j] * inverse);
                n[j] = n[j] > (2 << FINE) - 1 ? (2 << FINE) - 1 : n[j];
                sum += (unsigned)n[j];
        }
        constexpr int PER = D::UNITS / D::RUNS; /* units per run */
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (PER == 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (!there)
                return;
        const int unit = k / 16, e = D::part_of(unit), lane = D::lane_of(unit);
        const float scale = __uint_as_float(most < 0x7f800000u ? (unsigned)power << 23
                                                               : 0x7fc00000u);
#pragma unroll
        for (int digit = 0; digit < DIGITS; digit++) {
                unsigned w[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned at = (unsigned)(DIGITS - 1 - digit),
                                       take = at | (at + 4) << 4;
                        const unsigned a = __byte_perm((unsigned)n[4 * i], (unsigned)n[4 * i + 1],
                                                       take),
                                       b = __byte_perm((unsigned)n[4 * i + 2],
                                                       (unsigned)n[4 * i + 3], take);
                        w[i] = __byte_perm(a, b, 0x5410);
                }
                *(uint2 *)(X::digits(x, m, digit, e, lane) + k % 16) = { w[0], w[1] };
        }
        if (k % (16 * PER) == 0) {
                float *to = X::scales(x, m, e / PER, lane);
                to[0] = scale;
                to[1] = scale * (float)(int)sum;
        }
}

/* Fills x[m][k0 .. k0+KC) through the prologue.  square[m] += squares of this thread's elements.
 * With NORM_RMS gain only multiplies.  Units behind K are not written: no lane reads them. */
template <class X, int M, int K, int DIGITS, int THREADS, int NORM, class Prologue, class Gain>
TGC_DEV void dot_x_fill(char *x, int row0, int k0, float (&square)[M], const Prologue &prologue,
                        const Gain &gain)
{
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                const float q = x_row<(X::KC < K ? X::KC : K), 4, THREADS, NORM>(
                        row0 + m, k0, prologue, gain,
                        [&](int k) { return k < X::KC && k0 + k < K; },
                        [&](int k, const float(&v)[8], bool there) {
                                dot_x_put<X, DIGITS>(x, m, k, v, there);
                        });
#pragma unroll
                for (int i = 0; i < M; i++)
                        if (i == m)
                                square[i] += q;
        }
}

/* ---- W ------------------------------------------------------------------------ */

/* The ring of one warp: STAGES slots, each LUMP steps of ROWS rows.  A "lump" of K is what one
 * slot holds of a row. */
template <class S, int N, int K, class Tile>
struct DotRing {
        typedef DotStep<S, K> Step;
        static constexpr int ROWS = Tile::ROWS, LUMP = Tile::LUMP * Step::BYTES,
                             SLOT = Step::WHOLE ? LUMP : (LUMP + 31) / 16 * 16, SIZE = ROWS * SLOT;
        static constexpr bool BULK = Tile::BULK && Step::WHOLE;
        static constexpr int BYTES = Tile::WARPS * Tile::STAGES * (SIZE + 16); /* with mbarriers */
        const unsigned char *w;
        long row_bytes;
        int lane, first, lumps; /* this warp's part of K: lumps from `first` on */
        char *slots;

        /* Address of lump l of row n. */
        __device__ __forceinline__ const unsigned char *source(int n, int l) const
        {
                return w + (n < N ? n : N - 1) * row_bytes + (long)l * LUMP;
        }
        /* Bytes between the 16-byte boundary below p, where copies start, and p. */
        __device__ __forceinline__ int shift(const unsigned char *p) const
        {
                return Step::WHOLE ? 0 : (int)((unsigned long long)p & 15);
        }
#ifdef TGC_SM90A
        __device__ __forceinline__ Mbar *bar(int i) const
        {
                return (Mbar *)(slots + Tile::STAGES * SIZE) + i;
        }
#endif
        __device__ __forceinline__ void begin() const
        {
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        if (lane == 0) {
                                for (int i = 0; i < Tile::STAGES; i++)
                                        mbarrier_init(bar(i), 1);
                                fence_barrier_init();
                        }
                        __syncwarp();
                }
#endif
        }
        __device__ __forceinline__ void end() const
        {
#ifdef TGC_SM90A
                if constexpr (BULK)
                        if (lane < Tile::STAGES)
                                mbarrier_inval(bar(lane));
#endif
                if (!BULK)
                        cp_async_wait<0>();
        }
        /* Waits until slot i has landed. */
        __device__ __forceinline__ void wait(int i, unsigned phase) const
        {
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        mbarrier_wait(bar(i), phase);
                        __syncwarp();
                        return;
                }
#endif
                cp_async_wait<Tile::STAGES - 1>();
                __syncwarp();
        }
        /* Requests lump l of rows n .. n+ROWS-1 into slot i. */
        __device__ __forceinline__ void fetch(int n, int l, int i) const
        {
                constexpr int PIECES = SLOT / 16;
                const int bytes = Step::ROW - l * LUMP;
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        const int each = Step::ROW % LUMP && bytes < LUMP ? bytes : LUMP;
                        if (lane)
                                return;
                        mbarrier_expect_tx(bar(i), each * ROWS);
                        if constexpr (Step::ROW == LUMP && N % ROWS == 0) {
                                bulk_load(slots + i * SIZE, source(n, l), each * ROWS, bar(i));
                        } else {
#pragma unroll
                                for (int r = 0; r < ROWS; r++)
                                        bulk_load(slots + i * SIZE + r * SLOT, source(n + r, l),
                                                  each, bar(i));
                        }
                        return;
                }
#endif
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const unsigned char *from = source(n + r, l);
                        const int by = shift(from), all = bytes + by;
                        char *const to = slots + i * SIZE + r * SLOT;
                        from -= by;
#pragma unroll
                        for (int p = 0; p < PIECES; p += 32) {
                                const int at = (p + lane) * 16;
                                if ((PIECES - p < 32 && p + lane >= PIECES) ||
                                    ((Step::ROW % LUMP || !Step::WHOLE) && at >= all))
                                        continue;
                                if constexpr (Step::WHOLE)
                                        cp_async16(to + at, from + at);
                                else
                                        cp_async16_part(to + at, from + at, left(from + at));
                        }
                }
        }
        /* Bytes of W from p on, at most 16. */
        __device__ __forceinline__ int left(const unsigned char *p) const
        {
                const long n = w + (N - 1) * row_bytes + Step::ROW - p;
                return n < 16 ? (int)n : 16;
        }
        /* The lane's block in slot i: row n + r, step j of lump l. */
        __device__ __forceinline__ const unsigned char *block(int r, int n, int l, int j,
                                                              int i) const
        {
                return (const unsigned char *)slots + i * SIZE + r * SLOT +
                       shift(source(n + r, l)) + j * Step::BYTES +
                       lane / DotOf<S>::LANES * S::BYTES;
        }
};

template <class S, int M, int N, int K, int DIGITS, class Tile>
__host__ __device__ constexpr int dot_smem()
{
        /* 16: decoders read words behind the last slot and ignore them */
        return M * DotX<S, M, K, DIGITS>::ROW + M * Tile::WARPS * 4 + 128 +
               (Tile::SPLIT > 1 ? Tile::WARPS * Tile::ROWS * M * 4 : 0) +
               DotRing<S, N, K, Tile>::BYTES + 16;
}

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
                      STAGES = Tile::STAGES, THREADS = Tile::THREADS, KC = X::KC;
        constexpr int LUMP = Tile::LUMP, LUMPS = (Step::STEPS + LUMP - 1) / LUMP,
                      PART = (LUMPS + SPLIT - 1) / SPLIT, CHUNK = KC / Step::VALUES;
        static_assert(KC >= K || (SPLIT == 1 && ROUNDS == 1 && LUMP == 1),
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
                            LUMPS - part * PART < PART ? LUMPS - part * PART : PART,
                            (char *)(partial + (SPLIT > 1 ? Tile::WARPS * ROWS * M : 0)) +
                                    warp * (Ring::BYTES / Tile::WARPS) };

        /* the next request: rows from next_col on, lump next_lump of this warp's part of K */
        int next_col = col0, next_lump = 0;
        /* requests that warp 0 makes before the next launch may start */
        int until = warp ? -1
                    : (N - col0 + Tile::ACROSS - 1) / Tile::ACROSS < ROUNDS
                            ? (N - col0 + Tile::ACROSS - 1) / Tile::ACROSS * ring.lumps
                            : ROUNDS * ring.lumps;
        until -= Tile::EARLY;
        ring.begin();
        const int end = N < (tile + 1) * Tile::COLS ? N : (tile + 1) * Tile::COLS;
        /* 1. request all slots; then wait for x */
#pragma unroll 1
        for (int i = 0; i < STAGES; i++) {
                if (next_col < end && ring.lumps > 0) {
                        ring.fetch(next_col, ring.first + next_lump, i);
                        if (++next_lump == ring.lumps)
                                next_lump = 0, next_col += Tile::ACROSS;
                        until--;
                }
                if (!Ring::BULK)
                        cp_async_commit();
        }
        const bool all_under_way = until <= 0;
        if (warp == 0 && all_under_way)
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

        int slot = 0;
        unsigned phase = 0;
#pragma unroll 1
        for (int round = 0; round < ROUNDS; round++, col0 += Tile::ACROSS) {
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                acc[r][m] = 0.f;
#pragma unroll 1
                for (int k0 = 0; k0 < K; k0 += KC) {
                        /* 2. x to fixed point, in the first round; RMSNorm's scale once all of K
                         *    was read */
                        if (round == 0) {
                                if (k0)
                                        __syncthreads();
                                if constexpr (NORM == NORM_LAYER) {
                                        const Standardised<M, Prologue, Gain> h = { prologue, gain,
                                                                                    mean, scale,
                                                                                    0 };
                                        dot_x_fill<X, M, K, DIGITS, THREADS, NORM_NONE>(x, 0, k0,
                                                                                        square, h,
                                                                                        NoGain());
                                } else {
                                        dot_x_fill<X, M, K, DIGITS, THREADS, NORM>(x, 0, k0, square,
                                                                                   prologue, gain);
                                }
                                if (NORM == NORM_RMS && k0 + KC >= K) {
#pragma unroll
                                        for (int m = 0; m < M; m++) {
                                                square[m] = warp_sum(square[m]);
                                                if (lane == 0)
                                                        red[m * Tile::WARPS + warp] = square[m];
                                        }
                                }
                                __syncthreads();
                                if (NORM == NORM_RMS && k0 + KC >= K) {
#pragma unroll
                                        for (int m = 0; m < M; m++) {
                                                const float all = warp_sum(
                                                        lane < Tile::WARPS
                                                                ? red[m * Tile::WARPS + lane]
                                                                : 0.f);
                                                scale[m] = rsqrtf(all * (1.f / K) + eps);
                                        }
                                }
                        }
                        if (col0 >= end)
                                continue;
                        /* 3. this warp's lumps of K; refill each slot as soon as it is read */
                        const int chunk0 = k0 / Step::VALUES,
                                  lumps = KC < K && Step::STEPS - chunk0 > CHUNK
                                                  ? CHUNK
                                                  : ring.lumps - chunk0;
#pragma unroll 1
                        for (int i = 0; i < lumps; i++) {
                                const int l = ring.first + chunk0 + i;
                                ring.wait(slot, phase);
#pragma unroll 1
                                for (int j = 0; j < LUMP; j++) {
                                        const int s = l * LUMP + j, own = s * 32 + lane;
                                        const unsigned char *block[ROWS];
                                        if (K % (Step::VALUES * LUMP) &&
                                            own / DotOf<S>::LANES >= K / S::VALUES)
                                                break;
#pragma unroll
                                        for (int r = 0; r < ROWS; r++)
                                                block[r] = ring.block(r, col0, l, j, slot);
                                        dot_multiply<S, X, M, DIGITS, ROWS>(acc, block, sub, x,
                                                                            own - chunk0 * 32);
                                }
                                __syncwarp();
                                if (next_col < end) {
                                        ring.fetch(next_col, ring.first + next_lump, slot);
                                        if (++next_lump == ring.lumps)
                                                next_lump = 0, next_col += Tile::ACROSS;
                                        if (--until == 0)
                                                pdl_launch_late();
                                }
                                if (!Ring::BULK)
                                        cp_async_commit();
                                if (++slot == STAGES)
                                        slot = 0, phase ^= 1;
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
