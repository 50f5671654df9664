/* batch_test.cu: products of one size, whose matrices lie one below another, by one launch on
 * Hopper (gemm_tma_batch), played: every way to lie, edges that are rows of another matrix, pairs
 * of blocks, and symmetric ones of which half is multiplied.  Sums are integers: each value is
 * known. */
#define TGC_SM90A 1
#include "gemm_sm90.cuh"
#include "bench/product_epilogues.h"
#include <cstdio>
#include <cstring>

enum { M = 200, N = 328, K = 128, Z = 3, SIDE = 384, GUARD = 64 };

static unsigned short a[Z * SIDE * SIDE], b[Z * SIDE * SIDE], c[Z * SIDE * SIDE + GUARD];
static int failures;

template <class Tile, bool TA, bool TB, int ROWS, int COLS, bool TRIANGLE>
static void kernel(bf16 *out, const __grid_constant__ TmaMap map_a,
                   const __grid_constant__ TmaMap map_b)
{
        TGC_SMEM(smem);
        const Store<bf16, 0, 8> epilogue = { out, COLS };
        const int first = (int)blockIdx.x, step = (int)gridDim.x;
        if constexpr (TRIANGLE)
                gemm_tma_batch<bf16, Tile, TA, TB, true>(&map_a, &map_b, ROWS, COLS, K, Z, first,
                                                         step, smem,
                                                         Mirrored<Tile, bf16, Store<bf16, 0, 8>> {
                                                                 epilogue, out, COLS });
        else
                gemm_tma_batch<bf16, Tile, TA, TB, false>(&map_a, &map_b, ROWS, COLS, K, Z, first,
                                                          step, smem, epilogue);
}

static TmaMap map_of(const void *p, unsigned rows, unsigned cols)
{
        const emu::Map m = { (const char *)p, 2, rows, cols, cols, 64, 128 };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

static int value(const unsigned short *x, int z, int row, int k, int rows, bool across)
{
        const float v = emu_from_bf16(
                x[across ? (z * K + k) * rows + row : (z * rows + row) * K + k]);
        return (int)v;
}

template <class Tile, bool TA, bool TB, int ROWS, int COLS, bool TRIANGLE>
static void test(const char *what)
{
        const unsigned short *w = TRIANGLE ? a : b;
        TmaMap map_a = map_of(a, Z * (TA ? K : ROWS), TA ? ROWS : K),
               map_b = map_of(w, Z * (TB ? COLS : K), TB ? K : COLS);
        emu::Entry<3> k("kernel", kernel<Tile, TA, TB, ROWS, COLS, TRIANGLE>);
        void *args[] = { c, &map_a, &map_b };
        const unsigned cluster = Tile::PAIR ? 2 : 1, blocks = 2;
        char err[600] = "";
        memset(c, 0x7f, sizeof c);
        tgc_emulate_clusters(cluster, blocks);
        bool ok = !tgc_emulate_launch("kernel", blocks, Tile::THREADS, Tile::SMEM, args, 3, err,
                                      (unsigned)sizeof err);
        emu::kernels = k.next;
        for (int z = 0; z < Z; z++)
                for (int i = 0; i < ROWS; i++)
                        for (int j = 0; j < COLS; j++) {
                                int sum = 0;
                                for (int x = 0; x < K; x++)
                                        sum += value(a, z, i, x, ROWS, TA) *
                                               value(w, z, j, x, COLS, !TB);
                                ok &= c[(z * ROWS + i) * COLS + j] == emu_to_bf16((float)sum);
                        }
        for (int i = Z * ROWS * COLS; i < Z * ROWS * COLS + GUARD; i++)
                ok &= c[i] == 0x7f7f;
        printf("%s %s%s%s\n", ok ? "ok" : "not ok", what, err[0] ? ": " : "", err);
        failures += !ok;
}

int main()
{
        for (int i = 0; i < Z * SIDE * SIDE; i++) {
                a[i] = emu_to_bf16((float)(i * 37 % 17 - 8));
                b[i] = emu_to_bf16((float)(i * 11 % 13 - 6));
        }
        test<S128x256, false, true, M, N, false>("128x256, x y^T");
        test<S128x192t, false, false, M, N, false>("128x192 in turns, x y");
        test<S128x128p, true, false, M, N, false>("128x128 in pairs, x^T y");
        test<S256x128, true, true, M, N, false>("256x128, x^T y^T");
        test<S128x128, false, true, N, N, true>("128x128, x x^T");
        test<S128x128t, true, false, N, N, true>("128x128 in turns, x^T x");
        /* the end of the second matrix is one of a tile */
        test<S128x256, false, true, 192, 256, false>("128x256, x y^T of 192 x 256");
        test<S128x128p, false, true, 192, 128, false>("128x128 in pairs, x y^T of 192 x 128");
        test<S128x128t, false, true, 104, 104, true>("one tile");
        return failures != 0;
}
