/* late_test.cu: what emulate_sm90.h promises of Hopper's asynchronous instructions: right kernels
 * are right, and those that leave out a wait, give a tile's memory back early, or wait for nobody
 * are found out.
 *
 * A kernel of a warpgroup and a warp that asks for tiles: D (64,64) = A (64,64) B (64,64)^T, all
 * bf16, k contiguous. */
#define TGC_SM90A 1
#include "ptx.cuh"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum { THREADS = 160, TILE = 8192, SMEM = 2 * TILE + 16 };
enum Mistake {
        NONE,
        NO_TILE_WAIT,
        NO_PRODUCT_WAIT,
        PREFETCH_READS,
        OVERWRITES,
        NO_ARRIVAL,
        TOO_MANY_ARRIVALS,
        NO_INIT
};

template <int MISTAKE>
static void product(float *to, const __grid_constant__ TmaMap map_a,
                    const __grid_constant__ TmaMap map_b)
{
        TGC_SMEM(smem);
        Mbar *full = (Mbar *)(smem + 2 * TILE);
        const int x = (int)threadIdx.x, lane = x & 31;
        if (x == 0 && MISTAKE != NO_INIT)
                mbarrier_init(full, 1);
        __syncthreads();
        if (x >= 128) {
                if (lane == 0 && MISTAKE != NO_ARRIVAL) {
                        mbarrier_expect_tx(full, 2 * TILE);
                        if (MISTAKE == TOO_MANY_ARRIVALS)
                                mbarrier_arrive(full);
                        tma_load_2d(smem, &map_a, full, 0, 0);
                        tma_load_2d(smem + TILE, &map_b, full, 0, 0);
                }
                bar_sync(1, THREADS);
                if (MISTAKE == OVERWRITES && lane == 0) {
                        tma_load_2d(smem, &map_b, full, 0, 0);
                        mbarrier_expect_tx(full, TILE);
                }
                bar_sync(2, THREADS);
                return;
        }
        float d[32];
        for (int j = 0; j < 32; j++)
                d[j] = 1.f;
        if (MISTAKE != NO_TILE_WAIT)
                mbarrier_wait(full, 0);
        wgmma_fence();
        for (int ks = 0; ks < 4; ks++)
                wgmma<0, 0>(d, wgmma_desc_k128(smem + ks * 32),
                            wgmma_desc_k128(smem + TILE + ks * 32), ks > 0, bf16());
        wgmma_commit();
        float early = MISTAKE == PREFETCH_READS ? d[0] + d[31] : 0.f;
        bar_sync(1, THREADS);
        bar_sync(2, THREADS);
        if (MISTAKE != NO_PRODUCT_WAIT)
                wgmma_wait<0>();
        wgmma_hold(d);
        for (int j = 0; j < 32; j++)
                to[(x / 32 * 16 + lane / 4 + j / 2 % 2 * 8) * 64 + j / 4 * 8 + lane % 4 * 2 +
                   j % 2] = d[j] + early;
}

/* Each block gives its number to the next of its cluster; FORGETS: but the last. */
template <bool FORGETS>
static void hand_on(float *to)
{
        TGC_SMEM(smem);
        Mbar *bar = (Mbar *)(smem + 16);
        const unsigned rank = cluster_rank();
        if (threadIdx.x == 0) {
                mbarrier_init(bar, 1);
                mbarrier_expect_tx(bar, 4);
        }
        __syncthreads();
        cluster_sync();
        if (threadIdx.x == 0 && !(FORGETS && rank == 3))
                send_cluster(smem, bar, (rank + 1) % 4, blockIdx.x);
        mbarrier_wait(bar, 0);
        if (threadIdx.x == 0)
                to[blockIdx.x] = (float)*(int *)smem;
        cluster_sync();
}

static int failures;

static void say(bool ok, const char *what, const char *why)
{
        printf("%s %s%s%s\n", ok ? "ok" : "not ok", what, ok ? "" : ": ", ok ? "" : why);
        failures += !ok;
}

/* a: pointers, and of tensor maps by value those to them. */
template <class... P, class... A>
static bool launch(void (*fn)(P...), unsigned grid, unsigned cluster, char *err, A *...a)
{
        emu::Entry<sizeof...(P)> k("kernel", fn);
        void *args[] = { (void *)a... };
        *err = 0;
        tgc_emulate_clusters(cluster, cluster);
        int bad = tgc_emulate_launch("kernel", grid, THREADS, SMEM, args, sizeof...(P), err, 600);
        emu::kernels = k.next;
        return !bad;
}

/* Random enough; A has 61 rows and both 60 columns, beyond which tiles have zeros. */
static unsigned short at(int m, int r, int c)
{
        return emu_to_bf16((float)((r * 37 + c * 11 + m * 5) % 17 - 8));
}

static TmaMap map_of(const unsigned short *p, unsigned rows)
{
        const emu::Map m = { (const char *)p, 2, rows, 60, 72, 64, 128 };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

/* message: part of the error it must give; NULL: none, and whether the results are right says
 * `right`. */
template <int MISTAKE>
static void test(const char *what, bool right, const char *message)
{
        static unsigned short a[61 * 72], b[64 * 72];
        static float d[64 * 64];
        const TmaMap map_a = map_of(a, 61), map_b = map_of(b, 64);
        char err[600], why[700];
        double worst = 0;
        for (int r = 0; r < 64; r++)
                for (int c = 0; c < 72; c++) {
                        if (r < 61)
                                a[r * 72 + c] = at(0, r, c);
                        b[r * 72 + c] = at(1, r, c);
                }
        bool ran = launch(product<MISTAKE>, 1, 1, err, d, &map_a, &map_b);
        for (int r = 0; r < 64; r++)
                for (int c = 0; c < 64; c++) {
                        double want = 0;
                        for (int k = 0; k < 60 && r < 61; k++)
                                want += (double)emu_from_bf16(a[r * 72 + k]) *
                                        emu_from_bf16(b[c * 72 + k]);
                        double e = fabs(d[r * 64 + c] - want);
                        worst = e <= worst ? worst : e; /* a NaN stays out; counted below */
                        if (d[r * 64 + c] != d[r * 64 + c])
                                worst = INFINITY;
                }
        snprintf(why, sizeof why, "ran %d, worst %g, %s", ran, worst, err);
        say(message ? !ran && strstr(err, message) : ran && right == (worst == 0), what, why);
}

int main()
{
        char err[600];
        float d[8] = { 0 };
        test<NONE>("a product", true, 0);
        test<NO_TILE_WAIT>("tiles not waited for are not there", false, 0);
        test<PREFETCH_READS>("sums read before the wait are not there", false, 0);
        test<OVERWRITES>("a tile overwritten while it is read is lost", false, 0);
        test<NO_PRODUCT_WAIT>("a product not waited for", false, "wgmma's not waited for");
        test<NO_ARRIVAL>("a barrier at which nobody arrives", false, "nobody can go on");
        test<TOO_MANY_ARRIVALS>("more arrivals than the barrier counts", false,
                                "more than the barrier's 1");
        test<NO_INIT>("a barrier that is none", false, "not initialised");
        bool ran = launch(hand_on<false>, 8, 4, err, d),
             right = d[0] == 3 && d[1] == 0 && d[3] == 2 && d[4] == 7 && d[7] == 6;
        say(ran && right, "blocks of a cluster hand on", err);
        say(!launch(hand_on<true>, 8, 4, err, d) && strstr(err, "nobody can go on"),
            "a block that nothing is sent to", err);
        say(!launch(hand_on<false>, 6, 4, err, d) &&
                    strstr(err, "6 blocks do not make clusters of 4"),
            "half a cluster", err);
        return failures != 0;
}
