/* stored_gemv_test.cu: gemv_stored.cuh and gemv_chunks.cuh against a plain loop over decoded
 * weights, every type of blocks, in the emulator or on a GPU:
 *
 *      tests/emulate/play.sh stored_gemv_test            the emulator
 *      tests/emulate/play.sh --gpu stored_gemv_test      a GPU
 *
 * x is random, of all sizes.  What rounding it to two or three digits may change is allowed, and
 * float32's own rounding. */
#include "task.h"
#include "gemv_chunks.cuh"
#include "gemv_shape.h"
#include "gemv_stored.cuh"
#include "stored_gemv_case.h"

template <class S, int M, int N, int K, int DIGITS, class Tile, int NORM, int HV, int V>
struct StoredRun {
        static constexpr int MOST = Tile::THREADS;
        const unsigned char *w;
        Give<HV> prologue;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                gemv_stored_task<S, M, N, K, DIGITS, Tile, NORM>(w, K, 1e-5f, tile, smem, prologue,
                                                                 epilogue);
        }
};

template <class S, int M, int N, int K, int NORM, int HV, int V>
struct ChunksRun {
        const unsigned char *w;
        Give<HV> prologue;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                gemv_chunks_task<S, M, N, K, 256, 2, NORM>(w, K, 1e-5f, tile, smem, prologue,
                                                           epilogue);
        }
};

template <class S, int M, int N, int K, int DIGITS, class Tile, int NORM, int HV = 8, int V = 2>
static void stored_case(const char *type)
{
        char name[200];
        snprintf(name, sizeof name,
                 "%s M %d N %d K %d digits %d rows %d split %d rounds %d norm %d", type, M, N, K,
                 DIGITS, Tile::ROWS, Tile::SPLIT, Tile::ROUNDS, NORM);
        const Case<S, M, N, K> c(type, NORM);
        const Result r(M, N);
        const StoredRun<S, M, N, K, DIGITS, Tile, NORM, HV, V> f = { c.w, { c.x, K, M }, r };
        if (task_run(f, (N + Tile::COLS - 1) / Tile::COLS, Tile::THREADS,
                     dot_smem<S, M, N, K, DIGITS, Tile>(), name))
                c.compare(r, DIGITS == 3 ? 0x1p-22 : 0x1p-14, name);
        else
                report(false, name);
}

template <class S, int M, int N, int K, int NORM>
static void chunks_case(const char *type)
{
        char name[200];
        snprintf(name, sizeof name, "%s by chunks, M %d N %d K %d norm %d", type, M, N, K, NORM);
        const Case<S, M, N, K> c(type, NORM);
        const Result r(M, N);
        const ChunksRun<S, M, N, K, NORM, 4, 1> f = { c.w, { c.x, K, M }, r };
        const GemvChunks s = gemv_chunks_shape(M, K, 256, 2);
        if (task_run(f, (N + s.cols - 1) / s.cols, 256, s.smem, name))
                c.compare(r, 0, name);
        else
                report(false, name);
}

/* What codegen chooses has the shared memory that the kernel takes. */
template <class S, int M, int N, int K, int DIGITS, int WARPS, int ROWS, int SPLIT, int ROUNDS,
          int STAGES, int KSTEPS>
static void shape_case(const char *type)
{
        const GemvStored s = gemv_stored_shape(S::VALUES, S::BYTES, DotOf<S>::UNITS, DotOf<S>::RUNS,
                                               DIGITS, M, N, K, 132);
        typedef DotTile<WARPS, ROWS, SPLIT, ROUNDS, STAGES, KSTEPS> Tile;
        const bool ok = s.warps == WARPS && s.rows == ROWS && s.split == SPLIT &&
                        s.rounds == ROUNDS && s.stages == STAGES && s.ksteps == KSTEPS &&
                        s.cols == Tile::COLS && s.smem == dot_smem<S, M, N, K, DIGITS, Tile>();
        if (!ok)
                printf("  %s M %d N %d K %d: %d, %d, %d, %d, %d, %d, %d bytes; kernel %d\n", type,
                       M, N, K, s.warps, s.rows, s.split, s.rounds, s.stages, s.ksteps, s.smem,
                       dot_smem<S, M, N, K, DIGITS, Tile>());
        report(ok, type);
}

template <class S>
static void stored_type(const char *type)
{
        constexpr int B = S::VALUES;
        typedef DotTile<4, 2, 1, 1, 3> Plain;
        stored_case<S, 1, 19, 3 * B, 2, Plain, NORM_NONE, 8, 1>(type);
        stored_case<S, 1, 37, 2048 + B, 2, DotTile<4, 2, 1, 3, 4>, NORM_RMS, 8, 1>(type);
        stored_case<S, 3, 22, 4096, 3, DotTile<4, 2, 2, 2, 3>, NORM_NONE, 2>(type);
        stored_case<S, 2, 7, 2048, 3, DotTile<2, 1, 1, 2, 5>, NORM_LAYER, 4, 1>(type);
        stored_case<S, 8, 6, 8192 + 2 * B, 2, Plain, NORM_RMS>(type);
}

int main()
{
        // clang-format off
#define TYPE(t) stored_type<Stored_##t>(#t);
        TYPE(Q8_0)
        TYPE(Q4_K)
        TYPE(Q6_K) TYPE(I4_128);
#ifndef SOME_TYPES
        TYPE(Q4_0) TYPE(Q4_1) TYPE(Q5_0) TYPE(Q5_1) TYPE(Q2_K) TYPE(Q3_K) TYPE(Q5_K)
        TYPE(IQ4_NL) TYPE(IQ4_XS) TYPE(MXFP4) TYPE(NVFP4) TYPE(I4_32) TYPE(I4_64)
        TYPE(I8_32) TYPE(I8_64) TYPE(I8_128) TYPE(SCB_32) TYPE(SCB_128);
#endif
        // clang-format on
        chunks_case<Stored_NF4, 1, 19, 192, NORM_RMS>("NF4");
        chunks_case<Stored_FP4, 3, 8, 128, NORM_NONE>("FP4");
        chunks_case<Stored_F8_128, 2, 5, 512, NORM_LAYER>("F8_128");
        chunks_case<Stored_Q4_K, 8, 6, 4096, NORM_NONE>("Q4_K");
        shape_case<Stored_Q4_K, 1, 28672, 4096, 2, 8, 2, 1, 14, 2, 2>("Q4_K");
        shape_case<Stored_Q4_K, 1, 4096, 14336, 2, 8, 2, 1, 2, 4, 1>("Q4_K");
        shape_case<Stored_Q6_K, 1, 1024, 4096, 2, 8, 2, 2, 1, 3, 1>("Q6_K");
        shape_case<Stored_Q4_0, 1, 4096, 4096, 2, 16, 2, 1, 1, 2, 2>("Q4_0");
        shape_case<Stored_Q8_0, 8, 576, 576, 3, 8, 2, 1, 1, 4, 1>("Q8_0");
        shape_case<Stored_Q8_0, 8, 4096, 4096, 3, 8, 2, 1, 1, 4, 1>("Q8_0");
        printf("%d of %d failed\n", failures, runs);
        return failures != 0;
}
