/* boxes_test.cu: products of Hopper whose results the copy engine stores (Boxed in
 * epilogue_pair_sm90.cuh), and what is read for them it fetches (Fetched), played: every number of
 * values that an epilogue stores of two sums, with and without reads, edges, several tiles a block;
 * the same bits as by ordinary loads and stores, and nothing written outside.  And tiles whose K
 * pairs of blocks have in parts, each of which finishes 64 or 32 of its columns. */
#define TGC_SM90A 1
#include "gemm_sm90.cuh"
#include "bench/product_epilogues.h"
#include <cstdio>
#include <cstring>

enum { M = 200, N = 328, K = 72, LONG = 200, LD = 208, MOST = 2 * M * N, GUARD = 64 };

enum How { ORDINARY, BOXES, FETCHES, WAYS, JOINT = FETCHES };

template <int MODE>
static constexpr int stores()
{
        return MODE == TWICE || MODE == HALVES ? 2 : 1;
}
/* Values of two sums, in all rows of C. */
template <int MODE>
static constexpr int width(int k)
{
        return MODE == SPREAD ? 4 : k && MODE == HALVES ? 1 : 2;
}

template <int MODE>
static auto epilogue_of(bf16 *c, bf16 *d, const bf16 *r)
{
        if constexpr (MODE == PERSISTENT)
                return Store<bf16, 1, 8> { c, N };
        else if constexpr (MODE == ADDED || MODE == TWICE)
                return AddStore < bf16, MODE == TWICE ? 2 : 1 > { c, d, r, N };
        else if constexpr (MODE == GELU)
                return GeluStore<bf16> { c, d, r, N };
        else if constexpr (MODE == HALVES)
                return Halves<bf16> { c, d, N };
        else
                return Spread<bf16> { c, r, N };
}

template <class Tile, int MODE, int HOW>
static void kernel(bf16 *c, bf16 *d, const bf16 *r, const __grid_constant__ TmaMap map_a,
                   const __grid_constant__ TmaMap map_b, const __grid_constant__ TmaMap map_c,
                   const __grid_constant__ TmaMap map_d, const __grid_constant__ TmaMap map_r)
{
        TGC_SMEM(smem);
        const auto epilogue = epilogue_of<MODE>(c, d, r);
        const int first = (int)blockIdx.x, step = (int)gridDim.x;
        if constexpr (HOW == FETCHES)
                gemm_tma_persistent<bf16, Tile, false, true>(&map_a, &map_b, M, N, K, first, step,
                                                             smem,
                                                             fetched(epilogue, &map_r, &map_c,
                                                                     &map_d));
        else if constexpr (HOW == BOXES)
                gemm_tma_persistent<bf16, Tile, false, true>(&map_a, &map_b, M, N, K, first, step,
                                                             smem, boxed(epilogue, &map_c, &map_d));
        else
                gemm_tma_persistent<bf16, Tile, false, true>(&map_a, &map_b, M, N, K, first, step,
                                                             smem, epilogue);
}

enum { TILES = (M + 255) / 256 * 2 * ((N + 127) / 128) };
static float parts[TILES * 3 * 128 * 128];
static int joined[1 + TILES];

/* K of LONG, in parts or not. */
template <class Tile, int MODE, int HOW>
static void kernel_long(bf16 *c, bf16 *d, const bf16 *r, const __grid_constant__ TmaMap map_a,
                        const __grid_constant__ TmaMap map_b)
{
        TGC_SMEM(smem);
        const auto epilogue = epilogue_of<MODE>(c, d, r);
        if constexpr (HOW == JOINT)
                gemm_tma_split_k<bf16, Tile, false, true>(&map_a, &map_b, M, N, LONG, parts, joined,
                                                          (int)gridDim.x, smem, epilogue);
        else
                gemm_tma_persistent<bf16, Tile, false, true>(&map_a, &map_b, M, N, LONG,
                                                             (int)blockIdx.x, (int)gridDim.x, smem,
                                                             epilogue);
}

static TmaMap map_of(const void *p, unsigned rows, unsigned cols, unsigned ld, int box_rows,
                     int box_bytes)
{
        const emu::Map m = { (const char *)p, 2, rows, cols, ld, box_rows, box_bytes };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

static unsigned short a[M * LD], b[N * LD], r[MOST], c[WAYS][MOST + GUARD], d[WAYS][MOST + GUARD];

template <class Tile, int MODE, int HOW>
static bool run(char *err, size_t n)
{
        /* of a panel's row, a store of width 2's; 4's is 128 */
        const int bytes = 64 / stores<MODE>() * (MODE == SPREAD ? 1 : 2);
        TmaMap map_a = map_of(a, M, K, LD, 64, 128), map_b = map_of(b, N, K, LD, 64, 128),
               map_c = map_of(c[HOW], M, N * width<MODE>(0) / 2, N * width<MODE>(0) / 2, 16,
                              bytes * width<MODE>(0) / 2),
               map_d = map_of(d[HOW], M, N * width<MODE>(1) / 2, N * width<MODE>(1) / 2, 16,
                              bytes * width<MODE>(1) / 2),
               map_r = map_of(r, M, N * width<MODE>(0) / 2, N * width<MODE>(0) / 2, 16,
                              bytes * width<MODE>(0) / 2);
        emu::Entry<8> k("kernel", kernel<Tile, MODE, HOW>);
        void *args[] = { c[HOW], d[HOW], r, &map_a, &map_b, &map_c, &map_d, &map_r };
        const unsigned cluster = Tile::PAIR ? 2 : 1;
        memset(c[HOW], 0x7f, sizeof c[HOW]);
        memset(d[HOW], 0x7f, sizeof d[HOW]);
        tgc_emulate_clusters(cluster, cluster);
        const bool ran = !tgc_emulate_launch("kernel", cluster, Tile::THREADS, Tile::SMEM, args, 8,
                                             err, (unsigned)n);
        emu::kernels = k.next;
        return ran;
}

template <class Tile, int MODE, int HOW>
static bool run_long(char *err, size_t n)
{
        const unsigned blocks = HOW == JOINT ? TILES * Tile::PARTS : 2;
        TmaMap map_a = map_of(a, M, LONG, LD, 64, 128), map_b = map_of(b, N, LONG, LD, 64, 128);
        emu::Entry<5> k("kernel", kernel_long<Tile, MODE, HOW>);
        void *args[] = { c[HOW], d[HOW], r, &map_a, &map_b };
        memset(c[HOW], 0x7f, sizeof c[HOW]);
        memset(d[HOW], 0x7f, sizeof d[HOW]);
        memset(parts, 0xff, sizeof parts);
        tgc_emulate_clusters(2, blocks);
        const bool ran = !tgc_emulate_launch("kernel", blocks, Tile::THREADS, Tile::SMEM, args, 5,
                                             err, (unsigned)n);
        emu::kernels = k.next;
        return ran;
}

static int failures;

template <class Tile, int MODE>
static void test(const char *tile, const char *mode)
{
        char err[600] = "";
        bool ok = run<Tile, MODE, ORDINARY>(err, sizeof err) &&
                  run<Tile, MODE, BOXES>(err, sizeof err);
        int ways = 2;
        if constexpr (Tile::BOTH && (MODE == ADDED || MODE == TWICE || MODE == SPREAD))
                ok = ok && run<Tile, MODE, FETCHES>(err, sizeof err), ways = 3;
        for (int i = 1; i < ways; i++)
                ok = ok && !memcmp(c[0], c[i], sizeof c[0]) && !memcmp(d[0], d[i], sizeof d[0]) &&
                     c[i][0] != 0x7f7f && c[i][M * N * width<MODE>(0) / 2 - 1] != 0x7f7f;
        printf("%s %s, %s%s%s\n", ok ? "ok" : "not ok", tile, mode, err[0] ? ": " : "", err);
        failures += !ok;
}

template <class Tile, int MODE>
static void test_split_k(const char *tile, const char *mode)
{
        char err[600] = "";
        const bool ok = run_long<S128x128p, MODE, ORDINARY>(err, sizeof err) &&
                        run_long<Tile, MODE, JOINT>(err, sizeof err) &&
                        !memcmp(c[0], c[JOINT], sizeof c[0]) &&
                        !memcmp(d[0], d[JOINT], sizeof d[0]) && c[0][0] != 0x7f7f &&
                        c[0][M * N - 1] != 0x7f7f;
        printf("%s %s, %s%s%s\n", ok ? "ok" : "not ok", tile, mode, err[0] ? ": " : "", err);
        failures += !ok;
}

template <class Tile>
static void all(const char *tile)
{
        test<Tile, PERSISTENT>(tile, "a value a sum");
        test<Tile, ADDED>(tile, "a value that is added");
        test<Tile, TWICE>(tile, "two results");
        test<Tile, HALVES>(tile, "two results, one of every other sum");
        test<Tile, SPREAD>(tile, "two values a sum, and as many read");
}

int main()
{
        for (int i = 0; i < N * LD; i++) {
                if (i < M * LD)
                        a[i] = emu_to_bf16((float)(i * 37 % 17 - 8));
                b[i] = emu_to_bf16((float)(i * 11 % 13 - 6));
        }
        for (int i = 0; i < MOST; i++)
                r[i] = emu_to_bf16((float)(i * 29 % 31));
        all<S128x256>("128x256");
        all<S128x192t>("128x192, in turns");
        all<S128x128p>("128x128, in pairs");
        all<S128x192p>("128x192, in pairs");
        all<S256x128>("256x128");
        test_split_k<S128x128p2, ADDED>("K in two parts", "a value that is added");
        test_split_k<S128x128p2, GELU>("K in two parts", "a bias and two results");
        test_split_k<S128x128p4, ADDED>("K in four parts", "a value that is added");
        test_split_k<S128x128p4, GELU>("K in four parts", "a bias and two results");
        return failures != 0;
}
