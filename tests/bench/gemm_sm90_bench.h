/* gemm_sm90.h: a product of gemm_sm90.cuh or gemm_single_wave_sm90.cuh on the Hopper at hand, its
 * inputs, and the float64 sums that it is compared with; gemm_sm90_test.cu and gemm_sm90_bench.cu.
 *
 * Inputs are normal numbers.  A place of C is compared with a float64 sum, relative to the root of
 * the sum of squares of the products: about 2^-9 from rounding to bf16 times |c| over that root, up
 * to ~0.012; guards behind C must stay as they were. Of float factors are rounded to tf32's 11
 * bits: ~1e-3.  Waits are bounded (TGC_BOUNDED). */
#ifndef BENCH_MATMUL_SM90_H
#define BENCH_MATMUL_SM90_H

#define TGC_BOUNDED 1
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "product_bench.h"
#include "product_epilogues.h"
#include "gemm_single_wave_sm90.cuh"
#include "transpose.cuh"

#define SM90_TILE(name, bm, bn, share, stages, parts, threads, smem, ps, ps32, ta) \
        static_assert(name::BM == bm && name::BN == bn && name::SHARE == share &&  \
                              name::STAGES == stages && name::PARTS == parts &&    \
                              name::THREADS == threads && name::SMEM == smem,      \
                      #name);
#include "../../codegen/forms/sm90_gemm_tiles.def"
#undef SM90_TILE

struct Problem {
        int TA, TB, M, N, K;
};

/* ---- kernels --------------------------------------------------------------------- */

/* a, b: maps.  n: splits, or multiprocessors.  sums: parts of A's row sums. */
struct Args {
        TmaMap a, b;
        void *c;
        float *ws, *sums;
        int M, N, K, n;
        int *joined;
        const void *raw_b;
        TmaMap box[2], from;
};

/* The same tile, whose epilogue's results the copy engine stores. */
template <class Tile>
struct Boxes : Tile {
};
/* Which fetches what that reads. */
template <class Tile>
struct Fetches : Tile {
};
template <class Tile>
struct IsBoxes {
        static constexpr bool is = false, fetches = false;
};
template <class Tile>
struct IsBoxes<Boxes<Tile>> {
        static constexpr bool is = true, fetches = false;
};
template <class Tile>
struct IsBoxes<Fetches<Tile>> {
        static constexpr bool is = true, fetches = true;
};

/* One launch does it all. */
template <class T, class Tile, bool TA, bool TB, class Epilogue>
TGC_DEV void whole(const Args &g, char *smem, const Epilogue &epilogue)
{
        if constexpr (Tile::SHARE == 0)
                gemm_single_wave<T, Tile, TA, TB, 0>(&g.a, &g.b, g.M, g.N, g.K, (int)blockIdx.x,
                                                     smem, epilogue);
        else if constexpr (Tile::PARTS > 1)
                gemm_tma_split_k<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, g.sums, g.joined, g.n,
                                                  smem, epilogue);
        else if constexpr (IsBoxes<Tile>::fetches)
                gemm_tma_persistent<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, (int)blockIdx.x,
                                                     (int)gridDim.x, smem,
                                                     fetched(epilogue, &g.from, &g.box[0],
                                                             &g.box[1]));
        else if constexpr (IsBoxes<Tile>::is)
                gemm_tma_persistent<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, (int)blockIdx.x,
                                                     (int)gridDim.x, smem,
                                                     boxed(epilogue, &g.box[0], &g.box[1]));
        else
                gemm_tma_persistent<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, (int)blockIdx.x,
                                                     (int)gridDim.x, smem, epilogue);
}

template <class T, class Tile, bool TA, bool TB, Mode MODE>
TGC_DEV void one(const Args &g)
{
        TGC_SMEM(smem);
        const int at = (int)blockIdx.x, step = (int)gridDim.x;
        const Store<T, MODE != WIDE && sizeof(T) == 2, MODE == WIDE ? 8 : 16 / sizeof(T)>
                epilogue = { (T *)g.c, g.N };
        const AddStore<T, MODE == TWICE ? 2 : MODE == ADDED> added = { (T *)g.c,
                                                                       (T *)g.ws + (long)g.M * g.N,
                                                                       (const T *)g.ws, g.N };
        if constexpr (MODE == PERSISTENT || MODE == WIDE)
                whole<T, Tile, TA, TB>(g, smem, epilogue);
        else if constexpr (adds(MODE))
                whole<T, Tile, TA, TB>(g, smem, added);
        else if constexpr (MODE == HALVES)
                whole<T, Tile, TA, TB>(g, smem, Halves<T> { (T *)g.c, (T *)g.ws, g.N });
        else if constexpr (MODE == SPREAD)
                whole<T, Tile, TA, TB>(g, smem,
                                       Spread<T> { (T *)g.ws + (long)g.M * g.N * 2, (const T *)g.ws,
                                                   g.N });
        else if constexpr (MODE == GELU)
                whole<T, Tile, TA, TB>(g, smem,
                                       GeluStore<T> { (T *)g.c, (T *)g.ws + (long)g.M * g.N,
                                                      (const T *)g.ws, g.N });
        else if constexpr (MODE == TIMES)
                whole<T, Tile, TA, TB>(g, smem, TimesStore<T> { (T *)g.c, (const T *)g.ws, g.N });
        else if constexpr (MODE == SUMMED && IsBoxes<Tile>::is)
                gemm_tma_persistent<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, at, step, smem,
                                                     boxed(epilogue, &g.box[0]),
                                                     RowSums { g.sums });
        else if constexpr (MODE == SUMMED)
                gemm_tma_persistent<T, Tile, TA, TB>(&g.a, &g.b, g.M, g.N, g.K, at, step, smem,
                                                     epilogue, RowSums { g.sums });
        else if constexpr (MODE == SUMMED_SPLIT)
                gemm_tma_split_k_parts<T, Tile, TA, TB, 4>(&g.a, &g.b, g.M, g.N, g.K, g.n, g.ws, at,
                                                           step, smem, RowSums { g.sums });
        else
                gemm_tma_split_k_parts<T, Tile, TA, TB, 4>(&g.a, &g.b, g.M, g.N, g.K, g.n, g.ws, at,
                                                           step, smem);
}

template <class T, class Tile, bool TA, bool TB, Mode MODE>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_one(const __grid_constant__ Args g)
{
        one<T, Tile, TA, TB, MODE>(g);
}
template <class T, class Tile, bool TA, bool TB, Mode MODE>
__global__ void __launch_bounds__(Tile::THREADS, 1) __cluster_dims__(2, 1, 1)
        k_pair(const __grid_constant__ Args g)
{
        one<T, Tile, TA, TB, MODE>(g);
}

template <class T>
__global__ void __launch_bounds__(256) k_split_sum(Args g)
{
        const Store<T, 0, 8> epilogue = { (T *)g.c, g.N };
        splitk_reduce_task<256>(g.ws, g.n, g.M, g.N, blockIdx.x, epilogue);
}

/* B as (K,N) of words: in slabs. */
__global__ void __launch_bounds__(256) k_transpose(const float *from, int K, int N, float *to)
{
        TGC_SMEM(smem);
        transpose_task(from, N, K, N, to, blockIdx.x, smem);
}

static TmaMap turned(const void *b, int K, int N, cudaStream_t s)
{
        static float *to;
        static size_t most;
        const size_t rows = (size_t)(K + 31) / 32 * N;
        if (rows * 128 > most) {
                cudaFree(to);
                CUDA(cudaMalloc(&to, most = rows * 128));
        }
        k_transpose<<<(K + 63) / 64 * ((N + 63) / 64), 256, TRANSPOSE_SMEM, s>>>((const float *)b,
                                                                                 K, N, to);
        return map_of(to, (long)rows, 32, MAP_TF32);
}

/* Of words A is as it lies, B turned first if need be. */
template <class T, class Tile, bool TB>
struct Way32 {
        typedef Tile Form;
        static constexpr bool B = TB, TURNS = false;
};
template <class Tile>
struct Way32<float, Tile, false> {
        typedef Slabs<Tile> Form;
        static constexpr bool B = true, TURNS = true;
};

/* Maps of what an epilogue of `mode` stores, of pairs' values in parts of a panel's rows of 128
 * bytes. */
static void boxes_of(Args *g, Mode mode, int type)
{
        const long M = g->M, N = g->N;
        if (mode == SPREAD) {
                g->box[0] = map_of((short *)g->ws + M * N * 2, M, 2 * N, type, 16, 128);
                g->from = map_of(g->ws, M, 2 * N, type, 16, 128);
                return;
        }
        const bool two = mode == TWICE || mode == HALVES || mode == GELU;
        g->box[0] = map_of(g->c, M, N, type, 16, two ? 64 : 128);
        g->from = map_of(g->ws, M, N, type, 16, two ? 64 : 128);
        if (mode == TWICE || mode == GELU)
                g->box[1] = map_of((short *)g->ws + M * N, M, N, type, 16, 64);
        if (mode == HALVES)
                g->box[1] = map_of(g->ws, M, N / 2, type, 16, 32);
}

/* `n`: SPLIT splits; else blocks at most, 0: as many as fit. */
template <class T, class Tile, bool TA, bool TB, Mode MODE>
void launch(Args g, int n, cudaStream_t s)
{
        const int rows = (g.M + Tile::WHOLE_M - 1) / Tile::WHOLE_M * (Tile::WHOLE_M / Tile::BM);
        const int tiles = rows * ((g.N + Tile::BN - 1) / Tile::BN);
        const bool split = MODE == SPLIT || MODE == SUMMED_SPLIT;
        const int work = (split ? tiles * n : tiles) * Tile::PARTS,
                  fit = Tile::PARTS > 1 || !Tile::SHARE ? work
                        : split || !n                   ? sms
                                                        : n;
        const int smem = Tile::SMEM + (MODE == SUMMED || MODE == SUMMED_SPLIT ? ROW_SUMS_SMEM : 0);
        typedef Way32<T, Tile, TB> W;
        void (*k)(Args);
        if constexpr (Tile::PAIR)
                k = k_pair<T, typename W::Form, TA, W::B, MODE>;
        else
                k = k_one<T, typename W::Form, TA, W::B, MODE>;
        if (W::TURNS)
                g.b = turned(g.raw_b, g.K, g.N, s);
        g.n = n;
        if (IsBoxes<Tile>::is)
                boxes_of(&g, MODE, map_type<T>());
        CUDA(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        k < <<work<fit ? work : fit, Tile::THREADS, smem, s>>>(g);
        if (split)
                k_split_sum<T><<<(int)(((long)g.M * g.N + 2047) / 2048), 256, 0, s>>>(g);
}

typedef void Launch(Args, int, cudaStream_t);

/* ---- a problem on the device --------------------------------------------------------- */

enum { GUARD = 4096 };

/* Weights of a few copies, so that as in a model L2 has not those of the launch that comes. */
enum { COPIES = 16, COPIES_BYTES = 200 << 20 };
struct Data {
        void *a, *b, *c;
        TmaMap map_a, map_b[COPIES];
        int copies;
        int *joined;
        float *ws, *sums, *err;
        size_t ws_bytes;
};
enum { TILES = 4096, PROMPT = 2048 };

/* Parts of the sums of A's rows, as many as the narrowest tiles across N, of at most 16 splits; or
 * what up to four parts of K send each other. */
static long sums_most(Problem p)
{
        const long sums = ((p.N + 127) / 128) * 16L * p.M,
                   parts = (p.N + 255) / 256 * 256L * ((p.M + 255) / 256 * 256) * 3;
        return p.M <= PROMPT && parts > sums ? parts : sums;
}

/* Behind A's rows the map has others, of NaN, as a prompt that is shorter than a program's longest
 * has. */
template <class T>
static Data data_new(Problem p, size_t ws_bytes, long places, unsigned seed)
{
        const long na = (long)p.M * p.K, nb = (long)p.N * p.K, nc = (long)p.M * p.N;
        const int behind = p.TA ? 0 : 64, E = sizeof(T);
        Data d;
        d.copies = nb * E * COPIES < COPIES_BYTES ? COPIES : (int)(COPIES_BYTES / (nb * E)) + 1;
        CUDA(cudaMalloc(&d.a, (na + behind * (long)p.K) * E));
        CUDA(cudaMalloc(&d.b, nb * E * d.copies));
        CUDA(cudaMalloc(&d.c, nc * E + GUARD));
        CUDA(cudaMalloc(&d.ws, ws_bytes + GUARD));
        CUDA(cudaMalloc(&d.joined, TILES * sizeof(int)));
        CUDA(cudaMemset(d.joined, 0, TILES * sizeof(int)));
        CUDA(cudaMalloc(&d.sums, sums_most(p) * sizeof(float)));
        CUDA(cudaMalloc(&d.err, places * sizeof(float)));
        fill_normal<<<1024, 256>>>((T *)d.a, na, seed);
        fill_normal<<<1024, 256>>>((T *)d.b, nb, seed + 1);
        CUDA(cudaMemset((T *)d.a + na, 0xff, behind * (long)p.K * E));
        d.map_a = map_of(d.a, p.TA ? p.K : p.M + behind, p.TA ? p.M : p.K, map_type<T>());
        for (int i = 0; i < d.copies; i++) {
                char *b = (char *)d.b + i * nb * E;
                CUDA(cudaMemcpy(b, d.b, i ? nb * E : 0, cudaMemcpyDeviceToDevice));
                d.map_b[i] = map_of(b, p.TB ? p.N : p.K, p.TB ? p.K : p.N, map_type<T>());
        }
        d.ws_bytes = ws_bytes;
        CUDA(cudaDeviceSynchronize());
        return d;
}

static void data_free(Data *d)
{
        cudaFree(d->a);
        cudaFree(d->b);
        cudaFree(d->c);
        cudaFree(d->ws);
        cudaFree(d->sums);
        cudaFree(d->err);
        cudaFree(d->joined);
}

/* Poison the outputs, so that what is not written shows. */
template <class T>
static void data_poison(const Data &d, Problem p, Mode mode)
{
        CUDA(cudaMemset(d.c, 0xff, (size_t)p.M * p.N * sizeof(T)));
        CUDA(cudaMemset((char *)d.c + (size_t)p.M * p.N * sizeof(T), 0x5a, GUARD));
        CUDA(cudaMemset(d.ws, 0xff, d.ws_bytes));
        if (adds(mode) || mode == SPREAD || mode == GELU || mode == TIMES)
                fill_normal<<<1024, 256>>>((T *)d.ws, (long)p.M * p.N * (mode == SPREAD ? 2 : 1),
                                           5);
        CUDA(cudaMemset((char *)d.ws + d.ws_bytes, 0x5a, GUARD));
        CUDA(cudaMemset(d.sums, 0xff, sums_most(p) * sizeof(float)));
}

/* Of ws. */
static size_t ws_bytes(Mode mode, Problem p, int n, int elem)
{
        if (adds(mode) || mode == HALVES || mode == SPREAD || mode == GELU || mode == TIMES)
                return (size_t)p.M * p.N * elem * (mode == SPREAD ? 4 : 2);
        if (mode == SPLIT || mode == SUMMED_SPLIT)
                return (size_t)p.M * p.N * n * 4;
        return 16;
}

static Args args_of(const Data &d, Problem p, int copy, int elem)
{
        return { d.map_a,
                 d.map_b[copy % d.copies],
                 d.c,
                 d.ws,
                 d.sums,
                 p.M,
                 p.N,
                 p.K,
                 0,
                 d.joined,
                 (char *)d.b + (size_t)(copy % d.copies) * p.N * p.K * elem };
}

/* ---- checks ------------------------------------------------------------------------------ */

/* A warp per place of C: |c - sum| / sqrt(sum of squares); inf where a second result is not what it
 * should be. ADDED: ws is a matrix that the epilogue added, and its first row to each row.
 * places < M * N picks them at random, mostly near the edges; otherwise all are taken in order. 
 * err: one per place. */
template <class T>
__global__ void check_places(const T *a, const T *b, const T *c, const T *ws, Mode mode, Problem p,
                             long places, unsigned seed, float *err)
{
        const long i = blockIdx.x * 8L + threadIdx.x / 32, lane = threadIdx.x % 32;
        if (i >= places)
                return;
        long m = i / p.N, n = i % p.N;
        if (places < (long)p.M * p.N) {
                const uint4 r = philox(make_uint4((unsigned)i, 0, 0, 1), seed, 1);
                m = i & 1 ? p.M - 1 - r.x % (p.M < 9 ? p.M : 9) : r.x % p.M;
                n = i & 2 ? p.N - 1 - r.y % (p.N < 9 ? p.N : 9) : r.y % p.N;
        }
        double s = 0, q = 0;
        for (long k = lane; k < p.K; k += 32) {
                double x = (double)to_float(a[p.TA ? k * p.M + m : m * p.K + k]) *
                           (double)to_float(b[p.TB ? n * p.K + k : k * p.N + n]);
                s += x;
                q += x * x;
        }
        for (int d = 16; d; d >>= 1) {
                s += __shfl_xor_sync(~0u, s, d);
                q += __shfl_xor_sync(~0u, q, d);
        }
        const long at = m * p.N + n, all = (long)p.M * p.N;
        double got = to_float(c[at]);
        bool same = true;
        if (adds(mode))
                s += (double)to_float(ws[at]) + (double)to_float(ws[n]);
        if (mode == TWICE)
                same = to_float(ws[all + at]) == -to_float(c[at]);
        if (mode == TIMES) {
                const double by = to_float(ws[at]);
                s *= by;
                q *= by * by;
        }
        if (mode == GELU) {
                const double x = s + (double)to_float(ws[n]), r = 0.7978845608028654,
                             t = tanh(r * (x + 0.044715 * x * x * x));
                s = 0.5 * x * (1 + t);
                same = fabs(to_float(ws[all + at]) -
                            (0.5 * (1 + t) +
                             0.5 * x * (1 - t * t) * r * (1 + 3 * 0.044715 * x * x))) < 0.01;
        }
        if (mode == HALVES)
                same = to_float(ws[at / 2]) == to_float(c[at & ~1L]);
        if (mode == SPREAD) {
                got = to_float(ws[2 * (all + at)]);
                s += (double)to_float(ws[2 * at]);
                same = to_float(ws[2 * (all + at) + 1]) == -to_float(ws[2 * at + 1]);
        }
        if (lane == 0)
                err[i] = same ? (float)(fabs(got - s) / sqrt(q + 1e-30)) : INFINITY;
}

static bool guard_whole(const void *p)
{
        static unsigned char g[GUARD];
        CUDA(cudaMemcpy(g, p, GUARD, cudaMemcpyDeviceToHost));
        for (int i = 0; i < GUARD; i++)
                if (g[i] != 0x5a)
                        return false;
        return true;
}

/* The largest error; -1 when something wrote past the end.  *at: the first wrong place, or -1. */
template <class T>
static double data_check(const Data &d, Problem p, Mode mode, long places, unsigned seed, long *at)
{
        float *host = (float *)malloc(places * sizeof(float));
        double worst = 0;
        check_places<T><<<(int)((places + 7) / 8), 256>>>((const T *)d.a, (const T *)d.b,
                                                          (const T *)d.c, (const T *)d.ws, mode, p,
                                                          places, seed, d.err);
        CUDA(cudaMemcpy(host, d.err, places * sizeof(float), cudaMemcpyDeviceToHost));
        *at = -1;
        for (long i = 0; i < places; i++)
                if (!(host[i] <= 0.02) && *at < 0)
                        *at = i;
        for (long i = 0; i < places; i++)
                worst = host[i] <= worst ? worst : host[i]; /* a NaN stays */
        free(host);
        if (!guard_whole((char *)d.c + (size_t)p.M * p.N * sizeof(T)) ||
            !guard_whole((char *)d.ws + d.ws_bytes))
                return -1;
        return worst;
}

#endif
