/* stored_gemv_sm90_test.cu: gemv_stored_sm90.cuh against a plain loop over decoded weights, every
 * type of blocks that it takes, in the emulator or on a GPU:
 *
 *      tests/emulate/play.sh stored_gemv_sm90_test            the emulator
 *      tests/emulate/play.sh --gpu stored_gemv_sm90_test      a GPU
 *
 * A row has the same bits among eight as alone. */
#define TGC_SM90A 1
#include "stored_gemv_case.h"
#include "gemv_shape.h"
#include "gemv_stored_sm90.cuh"

template <class S, int M, int N, int K, class Tile, int NORM, int HV, int V>
struct MmaRun {
        static constexpr int MOST = Tile::THREADS;
        const unsigned char *w;
        Give<HV> prologue;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                gemv_stored_sm90_task<S, M, N, K, Tile, NORM>(w, K, 1e-5f, tile, smem, prologue,
                                                              epilogue);
        }
};

template <class S, int M, int N, int K, class Tile, int NORM, int HV = 8, int V = 2>
static bool mma_run(const unsigned char *w, const float *x, const Result &r, const char *name)
{
        const MmaRun<S, M, N, K, Tile, NORM, HV, V> f = { w, { x, K, M }, r };
        return task_run(f, Tile::BLOCKS, Tile::THREADS, blocks_mma_smem<S, M, K, Tile>(), name);
}

template <class S, int M, int N, int K, class Tile, int NORM, int HV = 8, int V = 2>
static void mma_case(const char *type)
{
        char name[200];
        snprintf(name, sizeof name, "%s mma M %d N %d K %d blocks %d norm %d", type, M, N, K,
                 Tile::BLOCKS, NORM);
        const Case<S, M, N, K> c(type, NORM);
        const Result r(M, N);
        if (!mma_run<S, M, N, K, Tile, NORM, HV, V>(c.w, c.x, r, name)) {
                report(false, name);
                return;
        }
        c.compare(r, DotOf<S>::HALVES ? 0x1p-11 : 0x1p-14, name);
        if (M == 1)
                return;
        /* the last row by itself */
        const Result one(1, N);
        bool same = mma_run<S, 1, N, K, Tile, NORM, HV, V>(c.w, c.x + (M - 1) * K, one, name);
        for (int n = 0; n < N; n++)
                same &= one.c[n] == r.c[(M - 1) * N + n];
        if (!same)
                printf("  %s: row %d differs from itself alone\n", name, M - 1);
        report(same, name);
}

/* What codegen chooses has the shared memory that the kernel takes. */
template <class S, int M, int N, int K, class Tile>
static void shape_case(const char *type)
{
        typedef DotOf<S> D;
        const GemvBlocksMma s = gemv_blocks_mma(S::VALUES, S::BYTES, D::UNITS, D::RUNS, M, N, K,
                                                132);
        const bool ok = s.warps == Tile::WARPS && s.blocks == Tile::BLOCKS &&
                        s.stages == Tile::STAGES && s.ksteps == Tile::KSTEPS &&
                        s.group == Tile::GROUP && s.smem >= blocks_mma_smem<S, M, K, Tile>();
        if (!ok)
                printf("  %s M %d N %d K %d: %d, %d, %d, %d, %d, %d bytes; kernel %d\n", type, M, N,
                       K, s.warps, s.blocks, s.stages, s.ksteps, s.group, s.smem,
                       blocks_mma_smem<S, M, K, Tile>());
        report(ok, type);
}

/* Of launches behind each other a block each fits on a multiprocessor; of a narrow product, which
 * may share a launch with a wide one, two do. */
template <class S>
static void room_case(const char *type)
{
        typedef DotOf<S> D;
        enum { ALL = 228 << 10, OWN = 1 << 10 };
        const long shape[][2] = {
                { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 }, { 4096, 14336 }
        };
        GemvBlocksMma s[4];
        bool ok = true;
        for (int i = 0; i < 4; i++)
                s[i] = gemv_blocks_mma(S::VALUES, S::BYTES, D::UNITS, D::RUNS, 1, shape[i][0],
                                       (int)shape[i][1], 132);
        for (int i = 0; i < 4; i++) {
                const int both = s[i].smem + s[(i + 1) % 4].smem + 2 * OWN;
                if (both > ALL)
                        printf("  %s: %ld and %ld columns, %d bytes\n", type, shape[i][0],
                               shape[(i + 1) % 4][0], both);
                ok &= both <= ALL;
        }
        const GemvBlocksMma v = gemv_blocks_mma(S::VALUES, S::BYTES, D::UNITS, D::RUNS, 1, 1024,
                                                4096, 132);
        ok &= 2 * (v.smem + OWN) <= ALL;
        report(ok, type);
}

template <class S>
static void mma_type(const char *type)
{
        typedef BlocksMma<S, 1, 4096, BlocksMmaTile<8, 1, 2, 1>> Any;
        constexpr int L = Any::STEP;
        mma_case<S, 1, 19, 8 * L, BlocksMmaTile<8, 2, 3, 1>, NORM_NONE, 8, 1>(type);
        mma_case<S, 1, 166, 16 * L, BlocksMmaTile<8, 2, 2, 1>, NORM_RMS>(type);
        mma_case<S, 3, 40, 24 * L, BlocksMmaTile<8, 3, 2, 2>, NORM_RMS, 4>(type);
        mma_case<S, 8, 34, 8 * L, BlocksMmaTile<8, 2, 4, 1>, NORM_NONE, 2>(type);
        mma_case<S, 5, 34, 8 * L, BlocksMmaTile<8, 2, 3, 1, 2>, NORM_RMS>(type);
}

int main()
{
        // clang-format off
#define TYPE(t) mma_type<Stored_##t>(#t);
        TYPE(Q8_0)
        TYPE(Q4_K) TYPE(Q6_K) TYPE(I4_128) TYPE(NF4) TYPE(FP4) TYPE(F8_128);
#ifndef SOME_TYPES
        TYPE(Q4_0) TYPE(Q4_1) TYPE(Q5_0) TYPE(Q5_1) TYPE(Q2_K) TYPE(Q3_K) TYPE(Q5_K)
        TYPE(IQ4_NL) TYPE(IQ4_XS) TYPE(MXFP4) TYPE(NVFP4) TYPE(I4_32) TYPE(I4_64)
        TYPE(I8_32) TYPE(I8_64) TYPE(I8_128) TYPE(SCB_32) TYPE(SCB_128)
        TYPE(F8_32) TYPE(F8_64);
#endif
        // clang-format on
        room_case<Stored_Q4_K>("Q4_K");
        room_case<Stored_Q6_K>("Q6_K");
        room_case<Stored_I4_128>("I4_128");
        room_case<Stored_NF4>("NF4");
        room_case<Stored_Q8_0>("Q8_0");
        room_case<Stored_F8_128>("F8_128");
        shape_case<Stored_Q4_K, 1, 28672, 4096, BlocksMmaTile<8, 256, 5, 1, 1>>("Q4_K");
        shape_case<Stored_Q8_0, 8, 4096, 14336, BlocksMmaTile<8, 128, 5, 1, 4>>("Q8_0");
        shape_case<Stored_I4_128, 3, 6144, 4096, BlocksMmaTile<8, 128, 4, 2, 3>>("I4_128");
        shape_case<Stored_F8_128, 1, 2048, 2048, BlocksMmaTile<8, 128, 2, 1, 1>>("F8_128");
        shape_case<Stored_Q6_K, 1, 128256, 4096, BlocksMmaTile<8, 132, 7, 1, 1>>("Q6_K");
        printf("%d of %d failed\n", failures, runs);
        return failures != 0;
}
