/* gemv_shape.h: launch shapes of kernels/gemv/, for the C side.  The kernels compute the same from
 * their template arguments (GemvShapeOf and others); tests/emulate/gemm_test.cu compares them. */
#ifndef TGC_GEMV_SHAPE_H
#define TGC_GEMV_SHAPE_H

#include <stdbool.h>

typedef struct GemvShape {
        int unit;   /* elements per load */
        int flight; /* loads in flight per lane and column */
        int kc;     /* K per pass through shared memory, padded */
        int cols;   /* columns of y per tile: ceil(N / cols) blocks */
        int smem;   /* bytes                                             */
} GemvShape;

/* esize: bytes per element of W; the rest as the template arguments. */
static inline GemvShape gemv_shape(int esize, int M, int K, int threads, int rows, int split,
                                   int align)
{
        GemvShape s;
        int batch, fit;

        s.unit = align / esize;
        s.flight = rows >= 8 ? 1 : 8 / rows;
        while (s.flight > 1 && (s.flight / 2 * split * 32 * s.unit >= K ||
                                s.flight * split * 32 * s.unit * M > 16384))
                s.flight /= 2;
        batch = s.flight * split * 32 * s.unit;
        fit = 16384 / M / batch;
        s.kc = (fit < 1 ? 1 : fit) * batch;
        if (s.kc > (K + batch - 1) / batch * batch)
                s.kc = (K + batch - 1) / batch * batch;
        s.cols = threads / 32 / split * rows;
        s.smem = (M * s.kc + 32 + threads / 32 * rows * M) * 4;
        return s;
}

/* gemv_kn: W stored (K,N), `cols` columns per tile. */
static inline int gemv_kn_smem(int M, int K, int threads, int cols)
{
        int fit = 16384 / M / 64 * 64, kc = fit < K ? fit : K;

        return (M * kc + 32 + threads / 32 * cols * M) * 4;
}

/* kernels/gemv/gemv_chunks.cuh (ChunksShape): block-quantised W, K a multiple of 32. */
typedef struct GemvChunks {
        int cols, smem;
} GemvChunks;

static inline GemvChunks gemv_chunks_shape(int M, int K, int threads, int rows)
{
        const int fit = 12288 / M / 32 * 32, kc = fit < K ? fit : K;
        return (GemvChunks) { threads / 32 * rows, (M * (kc / 32 * 36) + 32) * 4 };
}

/* kernels/gemv/gemv_stored.cuh: template arguments of DotTile; ceil(N / cols) blocks. */
typedef struct GemvStored {
        int warps, rows, split, rounds, stages, ksteps;
        int cols, smem;
} GemvStored;

/* Four and five bits in blocks of 32 take so many instructions that 16 warps are needed to hide
 * latency: 28672 x 4096 of MXFP4 and Q4_0 run at 2.3 TB/s on an H100; with 8 warps 1.2 and 2.3 on
 * an H200. */
static inline int gemv_stored_warps(int values, int bytes, int units)
{
        return units == 2 && bytes < values ? 16 : 8;
}

/* values, bytes: of a block; units of 16 per lane, in runs; digits: of x.  One block per
 * multiprocessor, with room for one of the next launch, which fetches while this one ends: each
 * has about 80 KB of W in flight.  SPLIT and ROUNDS balance the warps. */
static inline GemvStored gemv_stored_shape(int values, int bytes, int units, int runs, int digits,
                                           int M, long N, int K, int sms)
{
        enum { MOST_X = 49152, RING = 86016, BLOCK = 112 << 10 };
        GemvStored s = { gemv_stored_warps(values, bytes, units), 2, 1, 1, 0, 1, 0, 0 };
        const int step = 512 * units, steps = (K + step - 1) / step, row = K / values * bytes,
                  of_step = step * digits + 256 * runs, fit = MOST_X / M / of_step,
                  chunk = fit < 1       ? 1
                          : fit < steps ? fit
                                        : steps,
                  x = M * chunk * of_step, room = BLOCK - x < RING ? BLOCK - x : RING;
        int slot = step / values * bytes;
        long least = 0;

        for (int split = 1; split <= 4 && split <= steps && (chunk == steps || split == 1);
             split *= 2) {
                const long across = (long)s.warps / split * s.rows,
                           rounds = (N + across * sms - 1) / (across * sms),
                           time = rounds * ((steps + split - 1) / split);
                if (least && time >= least)
                        continue;
                least = time;
                s.split = split;
                s.rounds = chunk < steps ? 1 : (int)rounds;
        }
        if (steps % 2 == 0 && s.split == 1 && chunk == steps &&
            2 * s.warps * (s.rows * 2 * slot + 16) <= room)
                slot *= s.ksteps = 2;
        if (row % 16)
                slot = (slot + 31) / 16 * 16;
        s.stages = room / (s.warps * (s.rows * slot + 16));
        s.stages = s.stages < 2 ? 2 : s.stages > 8 ? 8 : s.stages;
        s.cols = s.warps / s.split * s.rows * s.rounds;
        s.smem = x + M * s.warps * 4 + 128 + (s.split > 1 ? s.warps * s.rows * M * 4 : 0) +
                 s.warps * s.stages * (s.rows * slot + 16) + 16;
        return s;
}

/* kernels/gemv/gemv_stored_sm90.cuh: template arguments of BlocksMmaTile; a launch has `blocks`
 * blocks.  blocks 0: the kernel does not serve this problem. */
typedef struct GemvBlocksMma {
        int warps, blocks, stages, ksteps, group;
        int smem;
} GemvBlocksMma;

/* values, bytes, units, runs: as in gemv_stored_shape.  A block of this launch and one of the next
 * share a multiprocessor (227 KB), so that the next one's W loads meanwhile.  Launches of a
 * transformer alternate; wide ones (N > K: QKV; gate and up) get at most LESS, the others ALONE to
 * MORE: one block per multiprocessor (two of a narrow one, which may share a launch).  From WIDE
 * slabs per multiprocessor on, two blocks of a wide launch hide each other's latency.  A very wide
 * launch, or rows of x that do not fit otherwise, get WHOLE. */
static inline GemvBlocksMma gemv_blocks_mma(int values, int bytes, int units, int runs, int M,
                                            long N, int K, int sms)
{
        enum { WARPS = 8, ROWS = 16, FLUSH = 4, MOST = 8 };
        enum { LESS = 110 << 10, ALONE = 117 << 10, MORE = 123 << 10, WHOLE = 225 << 10 };
        enum { WIDE = 4, VERY_WIDE = 32 };
        const GemvBlocksMma none = { 0 };
        GemvBlocksMma s = { WARPS, 0, 0, 1, 0, 0 };
        const int step = 64 * units, steps = K / step;
        const long slabs = (N + ROWS - 1) / ROWS;
        int part = WARPS * step / values * bytes;

        if (K % step || K / values * bytes % 16 || part % 16)
                return none;
        if (part < 1024 && steps % (2 * WARPS) == 0)
                part *= s.ksteps = 2;
        const int slot = ROWS * ((part + 31) / 32 * 32 + 16) + 16,
                  row = K * 2 + K / 16 / units * runs * 8 + FLUSH * WARPS * ROWS * 4 + WARPS * 4,
                  fixed = 16 + 32 * units,
                  half = slabs > (long)VERY_WIDE * sms ? WHOLE
                         : N > K                       ? LESS
                                                       : MORE;
        for (int groups = 1; !s.group && groups <= M; groups++) {
                const int group = (M + groups - 1) / groups;
                s.stages = (half - fixed - group * row) / slot;
                if (s.stages < 2)
                        s.stages = (WHOLE - fixed - group * row) / slot;
                if (s.stages >= 2)
                        s.group = group;
        }
        if (!s.group)
                return none;
        s.stages = s.stages > MOST ? MOST : s.stages;
        s.smem = s.stages * slot + fixed + s.group * row;
        /* as few blocks as need no more rounds */
        const bool two = half == LESS && s.smem <= LESS && slabs > (long)WIDE * sms;
        const long room = two ? 2L * sms : sms, rounds = (slabs + room - 1) / room;
        s.blocks = (int)((slabs + rounds - 1) / rounds);
        /* no more slots than a block fills */
        const int each = WARPS * s.ksteps;
        const long pieces = rounds * ((steps + each - 1) / each), all = pieces < 2 ? 2 : pieces;
        if (s.stages > all) {
                s.stages = (int)all;
                s.smem = s.stages * slot + fixed + s.group * row;
        }
        /* too large for a second block of this kind, small enough for one of LESS */
        if (s.smem < ALONE && half == MORE && 2 * slabs > sms)
                s.smem = ALONE;
        return s;
}

/* kernels/gemv/gemv_short.cuh: all of W in flight at once. */
typedef struct GemvShort {
        int rows, split; /* template arguments; rows 0: does not serve this problem */
        int threads, cols, smem;
} GemvShort;

/* minv: the epilogue's; sms: multiprocessors.  One block on each, so that the next launch's blocks
 * fit beside them: W takes at most 48 KB of a multiprocessor's registers. */
static inline GemvShort gemv_short(int esize, long N, int K, int align, int minv, int sms)
{
        GemvShort s = { 0, 1, 0, 0, 0 };
        int unit = align / esize, rows = 4, per;
        long groups;

        if (N * K * esize > 48L * 1024 * sms || K < 64)
                return s;
        while (s.split < 8 && (K + 32 * unit * s.split - 1) / (32 * unit * s.split) * unit > 32)
                s.split *= 2;
        per = (K + 32 * unit * s.split - 1) / (32 * unit * s.split);
        if (per * unit > 32)
                return s;
        while (rows > minv &&
               (N + rows - 1) / rows * s.split < 4L * sms) /* a warp for each of its schedulers */
                rows /= 2;
        groups = (N + rows - 1) / rows;
        if (groups * s.split > 16) /* else one block has it all */
                groups = (groups + sms - 1) / sms;
        if (groups * s.split > 16)
                return s;
        s.rows = rows;
        s.threads = (int)groups * s.split * 32;
        s.cols = (int)groups * rows;
        s.smem = s.threads / 32 * (rows + 3) * 4;
        return s;
}

/* kernels/gemv/gemv_mma.cuh: 2 to 64 rows of 16-bit x; more than 16 only if W is all in flight at
 * once, and without a norm. */
typedef struct GemvMma {
        int warps, tiles, rounds; /* template arguments; warps 0: does not serve this problem */
        int cols, smem;           /* ceil(N / cols) blocks */
} GemvMma;

/* norm: x is standardised, in registers.  A lane holds at most 8 chunks of 32 of W and of x, 4 if
 * 16 rows of x stay in registers.  A W that fits in the registers of the whole GPU is all in
 * flight at once, one block per multiprocessor, so that the next launch's blocks fit beside them.
 * For larger ones each multiprocessor has 16 warps, which keep reading. */
static inline GemvMma gemv_mma(int M, long N, int K, bool norm, int sms)
{
        GemvMma s = { 0 };
        int most = M > 8 && M <= 16 ? 4 : 8, chunks = (K + 31) / 32,
            warps = chunks > 8 * most ? 16 : 8;
        int steps = (chunks + most * warps - 1) / (most * warps),
            per = (chunks + warps * steps - 1) / (warps * steps);
        int tiles = 1;
        long blocks, all = (N + 7) / 8, least = (all + sms - 1) / sms, many = 16 / warps * sms;
        bool at_once = steps == 1 && per * least <= 12 && least <= 4;

        if (M < 2 || M > 64 || K % 8 || (norm && (steps > 1 || M > 16)) || (M > 16 && !at_once))
                return s;
        if (at_once)
                tiles = (int)least;
        while (!at_once && tiles < 4 && 2 * tiles * per <= 8 && all >= 2L * tiles * sms)
                tiles *= 2;
        blocks = (all + tiles - 1) / tiles;
        s.warps = warps;
        s.tiles = tiles;
        s.rounds = at_once ? 1 : (int)((blocks + many - 1) / many);
        s.cols = 8 * tiles * s.rounds;
        s.smem = ((s.rounds > 1 ? 2 : 1) * warps * M * 8 * tiles + warps * 32) * 4;
        return s;
}

/* kernels/gemv/gemv_narrow.cuh: short rows of W out of L2. */
/* template arguments; lanes 0: does not serve this problem */
typedef struct GemvNarrow {
        int lanes, tiles;
} GemvNarrow;

enum {
        NARROW_THREADS = 128,
        NARROW_BLOCKS = 3,     /* per multiprocessor: 168 registers */
        NARROW_REGISTERS = 108 /* for a lane's part of x and of one row of W */
};

/* For a W too large for gemv_short but no larger than L2.  As few lanes as can hold their parts of
 * a row: at least four (64 bytes), at most eight; longer rows keep a warp busy as they are. */
static inline GemvNarrow gemv_narrow(int esize, long N, int K, int align, int sms)
{
        GemvNarrow s = { 0, 0 };
        int unit = align / esize;
        long runs;

        if (N * K * esize > 32L << 20)
                return s;
        for (int lanes = 4; lanes <= 8 && !s.lanes; lanes *= 2)
                if (K % (lanes * unit) == 0 &&
                    K / lanes + K / lanes * esize / 4 <= NARROW_REGISTERS)
                        s.lanes = lanes;
        if (!s.lanes)
                return s;
        runs = (N + NARROW_THREADS / s.lanes - 1) / (NARROW_THREADS / s.lanes);
        s.tiles = runs < NARROW_BLOCKS * sms ? (int)runs : NARROW_BLOCKS * sms;
        return s;
}

#endif
