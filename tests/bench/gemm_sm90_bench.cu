/* gemm_sm90_bench.cu: how fast are gemm_sm90.cuh and gemm_single_wave_sm90.cuh on the Hopper at
 * hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms
 *      $(make -s kernel-includes) -Iruntime \
 *           -o gemm_sm90_bench tests/bench/gemm_sm90_bench.cu -lcublas -lcublasLt
 *      ./gemm_sm90_bench [part of a shape] [alone]
 *
 * A time is the median of seven runs of ten launches, in turn with those of the others; alone: that
 * of each way for 0.3 s after 0.5 s of itself, by when the clock is what its own power leaves it. 
 * 512 places of C are checked.  Peers: cuBLAS of plain products, cuBLASLt of epilogues that it has
 * an epilogue for.  The fastest with each kind of epilogue is marked *. Exit status 1 when
 * something is wrong, 4 without a GPU that fits. */
#include "cublas.h"

/* ---- ways ------------------------------------------------------------------------------- */

/* pair: rows of a tile, of which M has an even number */
struct Way {
        const char *name;
        Mode mode;
        int n, pair;
        Launch *launch;
};
struct Ways {
        const Way *way;
        int n;
};
#define ALL(list)                                \
        {                                        \
                list, sizeof list / sizeof *list \
        }

#define WAY_OF(T, Tile, TA, TB, MODE, n)                              \
        { #MODE " " #Tile " " #n, MODE, n, Tile::PAIR ? Tile::BM : 0, \
          launch<T, Tile, TA, TB, MODE> },
#define WAY(Tile, TA, TB, MODE, n) WAY_OF(bf16, Tile, TA, TB, MODE, n)
/* clang-format off: it finds no rest in lists of macros */
#define WAYS(TA, TB, MODE, n)           \
        WAY(S128x256, TA, TB, MODE, n)  \
        WAY(S128x192, TA, TB, MODE, n)  \
        WAY(S256x128, TA, TB, MODE, n)  \
        WAY(S128x128, TA, TB, MODE, n)  \
        WAY(S128x128t, TA, TB, MODE, n) \
        WAY(S128x192t, TA, TB, MODE, n) \
        WAY(S128x128p, TA, TB, MODE, n) \
        WAY(S128x192p, TA, TB, MODE, n)

/* As programs have them in training: results by the copy engine. */
#define BOXES(TA, TB, MODE)                    \
        WAY(Boxes<S128x256>, TA, TB, MODE, 0)  \
        WAY(Boxes<S128x192>, TA, TB, MODE, 0)  \
        WAY(Boxes<S256x128>, TA, TB, MODE, 0)  \
        WAY(Boxes<S128x128>, TA, TB, MODE, 0)  \
        WAY(Boxes<S128x128p>, TA, TB, MODE, 0) \
        WAY(Boxes<S128x192p>, TA, TB, MODE, 0) \
        WAY(Boxes<Pairs<S128x256>>, TA, TB, MODE, 0)
/* And fetches what epilogues read. */
#define FETCHES(TA, TB, MODE)                    \
        WAY(Fetches<S128x128p>, TA, TB, MODE, 0) \
        WAY(Fetches<S128x192p>, TA, TB, MODE, 0)
/* clang-format on */

static const Way ways_01[] = { BOXES(0, 1, PERSISTENT) BOXES(0, 1, ADDED) FETCHES(0, 1, ADDED)
                                       BOXES(0, 1, GELU) BOXES(0, 1, HALVES) };
static const Way ways_00[] = { BOXES(0, 0, PERSISTENT) BOXES(0, 0, TIMES) FETCHES(0, 0, TIMES)
                                       BOXES(0, 0, SPREAD) FETCHES(0, 0, SPREAD) };
static const Way ways_10[] = {
        BOXES(1, 0, PERSISTENT) WAY(S128x192t, 1, 0, PERSISTENT, 0) WAY(S128x256, 1, 0, SPLIT, 2)
                WAY(S128x192p, 1, 0, SPLIT, 2) WAY(S128x256, 1, 0, SPLIT, 3)
                        WAY(S128x192p, 1, 0, SPLIT, 3) WAY(Boxes<S128x128>, 1, 0, SUMMED, 0)
                                WAY(Boxes<S128x192>, 1, 0, SUMMED, 0)
                                        WAY(S128x192p, 1, 0, SUMMED_SPLIT, 2) WAY(S128x192p, 1, 0,
                                                                                  SUMMED_SPLIT, 4)
                                                WAY(S128x192t, 1, 0, SUMMED_SPLIT, 4)
                                                        WAY(S128x256, 1, 0, SUMMED_SPLIT, 4)
                                                                WAY(S128x256, 1, 0, SUMMED_SPLIT, 7)
};

static const Way ways_prompt[] = {
        WAYS(0, 1, PERSISTENT, 0) WAYS(0, 1, ADDED, 0) WAYS(0, 1, SPLIT, 2) WAYS(0, 1, SPLIT, 4)
                WAY(S128x128p2, 0, 1, PERSISTENT, 0) WAY(S128x128p4, 0, 1, PERSISTENT, 0)
                        WAY(S128x128p2, 0, 1, ADDED, 132) WAY(S128x128p4, 0, 1, ADDED, 132)
};

/* Words, as programs have them: in pairs. */
#define WORDS_WAYS(TA, TB, MODE, n)                     \
        WAY_OF(float, Pairs<S128x256>, TA, TB, MODE, n) \
        WAY_OF(float, Pairs<S128x192>, TA, TB, MODE, n) \
        WAY_OF(float, Pairs<S128x128>, TA, TB, MODE, n)
#define WORDS_WAYS_0(TB, MODE)                         \
        WORDS_WAYS(0, TB, MODE, 0)                     \
        WAY_OF(float, Pairs<S256x128>, 0, TB, MODE, 0) \
        WAY_OF(float, S128x128p, 0, TB, MODE, 0) WAY_OF(float, S128x192p, 0, TB, MODE, 0)
static const Way words_01[] = { WORDS_WAYS_0(1, PERSISTENT) WORDS_WAYS_0(1, WIDE_ADDED) };
static const Way words_00[] = { WORDS_WAYS_0(0, PERSISTENT) };
static const Way words_10[] = { WORDS_WAYS(1, 0, PERSISTENT, 0) WORDS_WAYS(1, 0, SPLIT, 3)
                                        WORDS_WAYS(1, 0, SPLIT, 7) WAY_OF(float, Pairs<S128x256>, 1,
                                                                          0, SUMMED_SPLIT, 7) };

/* By TA and TB. */
static const Ways ways[2][2] = { { ALL(ways_00), ALL(ways_01) }, { ALL(ways_10), {} } },
                  prompt = ALL(ways_prompt),
                  ways_of_words[2][2] = { { ALL(words_00), ALL(words_01) }, { ALL(words_10), {} } };

/* TA, TB, M, N, K: y = x Wt, dx = dy W, dW = dyt x, of GPT-2's and Llama-1B's steps; Llama's
 * logits, which take a second each, come last. */
static const Problem problems[] = {
        { 0, 1, 511, 3072, 2048 },    { 0, 1, 511, 2048, 2048 },    { 0, 1, 511, 16384, 2048 },
        { 0, 1, 511, 2048, 8192 },    { 0, 1, 1999, 3072, 2048 },   { 0, 1, 1999, 2048, 2048 },
        { 0, 1, 1999, 16384, 2048 },  { 0, 1, 1999, 2048, 8192 },   { 0, 1, 511, 2304, 768 },
        { 0, 1, 511, 768, 768 },      { 0, 1, 511, 3072, 768 },     { 0, 1, 511, 768, 3072 },
        { 0, 1, 32768, 2304, 768 },   { 0, 1, 32768, 768, 768 },    { 0, 1, 32768, 3072, 768 },
        { 0, 1, 32768, 768, 3072 },   { 0, 1, 8192, 50304, 768 },   { 0, 1, 8192, 8192, 2048 },
        { 0, 1, 8192, 2048, 8192 },   { 0, 1, 4096, 4096, 4096 },   { 0, 1, 8192, 3072, 2048 },
        { 0, 1, 8192, 2048, 2048 },   { 0, 1, 8192, 16384, 2048 },  { 0, 0, 32768, 768, 2304 },
        { 0, 0, 32768, 768, 768 },    { 0, 0, 32768, 768, 3072 },   { 0, 0, 32768, 3072, 768 },
        { 0, 0, 8192, 768, 50304 },   { 0, 0, 8192, 2048, 3072 },   { 0, 0, 8192, 2048, 2048 },
        { 0, 0, 8192, 8192, 2048 },   { 0, 0, 8192, 2048, 8192 },   { 0, 0, 8192, 2048, 16384 },
        { 1, 0, 2304, 768, 32768 },   { 1, 0, 768, 768, 32768 },    { 1, 0, 3072, 768, 32768 },
        { 1, 0, 768, 3072, 32768 },   { 1, 0, 50304, 768, 8192 },   { 1, 0, 3072, 2048, 8192 },
        { 1, 0, 2048, 2048, 8192 },   { 1, 0, 16384, 2048, 8192 },  { 1, 0, 2048, 8192, 8192 },
        { 0, 1, 8192, 128256, 2048 }, { 0, 0, 8192, 2048, 128256 }, { 1, 0, 128256, 2048, 8192 },
};
static const Problem words[] = {
        { 0, 1, 8192, 2304, 768 },  { 0, 1, 8192, 768, 768 },   { 0, 1, 8192, 3072, 768 },
        { 0, 1, 8192, 768, 3072 },  { 0, 1, 8192, 50304, 768 }, { 0, 1, 4096, 4096, 4096 },
        { 0, 0, 8192, 768, 2304 },  { 0, 0, 8192, 768, 50304 }, { 0, 0, 8192, 768, 768 },
        { 0, 0, 8192, 3072, 768 },  { 1, 0, 2304, 768, 8192 },  { 1, 0, 768, 768, 8192 },
        { 1, 0, 3072, 768, 8192 },  { 1, 0, 768, 3072, 8192 },  { 1, 0, 50304, 768, 8192 },
        { 1, 0, 4096, 4096, 4096 },
};

/* ---- times ------------------------------------------------------------------------------ */

enum { PLACES = 512, RUNS = 7, LAUNCHES = 10 };

/* cuBLAS, or (lt) cuBLASLt with what the epilogues of its mode do. */
struct Peer {
        const char *name;
        Mode mode;
        const Lt *lt;
        bool compared;
        double err, run[RUNS];
};

/* Of what is compared with one peer: epilogues of SPLIT have none, and SUMMED_SPLIT is SUMMED in
 * parts. */
static Mode kind_of(Mode m) { return m == SPLIT ? PERSISTENT : m == SUMMED_SPLIT ? SUMMED : m; }

static bool alone;

/* Milliseconds per launch. */
template <class Launches>
static double time_launches(const Launches &launch)
{
        double ms = time_ms<1, LAUNCHES>(launch);
        if (alone) {
                for (double t = 0; t < 500; t += 2 * LAUNCHES * ms)
                        ms = time_ms<1, LAUNCHES>(launch);
                double sum = 0;
                int n = 0;
                for (; sum < 150; n++)
                        sum += LAUNCHES * time_ms<1, LAUNCHES>(launch);
                ms = sum / (n * LAUNCHES);
        }
        return ms;
}
template <class T>
static double time_of(const Way &w, const Data &d, Problem p)
{
        return time_launches([&](int i) { w.launch(args_of(d, p, i, sizeof(T)), w.n, 0); });
}
template <class T>
static double time_of(const Peer &peer, const Data &d, Problem p)
{
        return time_launches([&](int i) {
                if (peer.lt)
                        lt_run(peer.lt, d, p, i);
                else
                        blas_run(d.a, (T *)d.b + (size_t)(i % d.copies) * p.N * p.K, d.c, p,
                                 sizeof(T) == 4);
        });
}

static double median(const double *v, int n)
{
        std::vector<double> s(v, v + n);
        std::sort(s.begin(), s.end());
        return s[n / 2];
}

__global__ void k_spin(long long cycles)
{
        for (const long long from = clock64(); clock64() - from < cycles;) {}
}

static bool is_near(double err) { return err >= 0 && err <= 0.02; }

/* The clock right after the load before, which power limits hold below the nominal one. */
static double clock_mhz()
{
        cudaEvent_t from, to;
        float ms;
        CUDA(cudaEventCreate(&from));
        CUDA(cudaEventCreate(&to));
        CUDA(cudaEventRecord(from));
        k_spin<<<1, 1>>>(2000000);
        CUDA(cudaEventRecord(to));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms, from, to));
        cudaEventDestroy(from);
        cudaEventDestroy(to);
        return 2000 / ms;
}

/* The peers that can do p with the epilogues of ways; how many.  lt: room. */
template <class T>
static int peers_of(const Data &d, Problem p, Ways ways, unsigned seed, Lt *lt, Peer *peers)
{
        const bool words = sizeof(T) == 4;
        int n = 0;
        long at;

        blas_run(d.a, d.b, d.c, p, words);
        CUDA(cudaDeviceSynchronize());
        peers[n++] = {
                "cuBLAS", PERSISTENT, 0, true, data_check<T>(d, p, PERSISTENT, PLACES, seed, &at),
                {}
        };
        for (const Fused &f : fused) {
                bool asked = false;
                for (int i = 0; i < ways.n; i++)
                        asked |= kind_of(ways.way[i].mode) == f.mode;
                if (!asked || words)
                        continue;
                if (!lt_open(lt, f, d, p)) {
                        lt_close(lt);
                        continue;
                }
                data_poison<T>(d, p, f.mode);
                lt_run(lt, d, p, 0);
                CUDA(cudaDeviceSynchronize());
                /* Of GELU something else is kept, and TIMES takes GELU's slope itself: these are
                 * timed alone. */
                const bool like_ours = f.mode == ADDED || f.mode == SUMMED;
                peers[n++] = { f.name,
                               f.mode,
                               lt++,
                               like_ours,
                               like_ours ? data_check<T>(d, p, f.mode, PLACES, seed, &at) : 0,
                               {} };
        }
        return n;
}

/* Prints a line per way of running p; how many were wrong. */
template <class T>
static int speed_of(Problem p, Ways ways, const char *name, unsigned seed)
{
        const Way *const way = ways.way;
        const int n = ways.n;
        const double flops = 2. * p.M * p.N * p.K;
        double ms[64] = {}, err[64], run[64][RUNS], best[TIMES + 1] = {};
        size_t ws = 16;
        int bad = 0;
        long at;
        Lt lt[sizeof fused / sizeof *fused] = {};
        Peer peers[1 + sizeof fused / sizeof *fused];

        for (int i = 0; i < n; i++) {
                const size_t need = ws_bytes(way[i].mode, p, way[i].n, sizeof(T));
                if (need < (size_t)9 << 30)
                        ws = need > ws ? need : ws;
        }
        Data d = data_new<T>(p, ws, PLACES, seed);
        for (int i = 0; i < n; i++) {
                const Way *w = way + i;
                if (ws_bytes(w->mode, p, w->n, sizeof(T)) > ws ||
                    (w->pair && (p.M + w->pair - 1) / w->pair % 2))
                        continue;
                data_poison<T>(d, p, w->mode);
                w->launch(args_of(d, p, 0, sizeof(T)), w->n, 0);
                CUDA(cudaGetLastError());
                CUDA(cudaDeviceSynchronize());
                err[i] = data_check<T>(d, p, w->mode, PLACES, seed, &at);
                ms[i] = 1;
        }
        const int n_peers = peers_of<T>(d, p, ways, seed, lt, peers);
        const int runs = alone ? 1 : RUNS;
        /* in turn: what uses more power must not leave the next one less */
        for (int r = 0; r < runs; r++) {
                for (int i = 0; i < n; i++)
                        if (ms[i] > 0)
                                run[i][r] = time_of<T>(way[i], d, p);
                for (int i = 0; i < n_peers; i++)
                        peers[i].run[r] = time_of<T>(peers[i], d, p);
        }
        for (int i = 0; i < n; i++)
                if (ms[i] > 0) {
                        double *const least = best + kind_of(way[i].mode);
                        ms[i] = median(run[i], runs);
                        *least = !*least || ms[i] < *least ? ms[i] : *least;
                }
        for (int i = 0; i < n; i++)
                if (ms[i] > 0) {
                        const bool ok = is_near(err[i]);
                        printf("%-28s %-36s %9.4f ms %6.0f TF  %8.1e%s%s\n", name, way[i].name,
                               ms[i], flops / ms[i] * 1e-9, err[i],
                               ms[i] == best[kind_of(way[i].mode)] ? " *" : "",
                               ok ? "" : "  WRONG");
                        bad += !ok;
                }
        for (int i = 0; i < n_peers; i++) {
                const Peer &b = peers[i];
                const bool ok = is_near(b.err);
                const double t = median(b.run, runs);
                printf("%-28s %-36s %9.4f ms %6.0f TF  ", name, b.name, t, flops / t * 1e-9);
                if (b.compared)
                        printf("%8.1e", b.err);
                else
                        printf("%8s", "-");
                printf("   best of ours %.2fx, at %.0f MHz%s\n", t / best[b.mode], clock_mhz(),
                       ok ? "" : "  WRONG");
                bad += !ok;
        }
        fflush(stdout);
        for (Lt &l : lt)
                lt_close(&l);
        data_free(&d);
        return bad;
}

/* A factor the other way round, before the product. */
static void speed_transpose(int rows, int cols)
{
        const size_t n = (size_t)rows * cols;
        float *a, *b;
        CUDA(cudaMalloc(&a, n * 4));
        CUDA(cudaMalloc(&b, n * 4));
        fill_normal<<<1024, 256>>>(a, n, 1);
        const double ms = time_ms<RUNS, LAUNCHES>([&](int) {
                k_transpose<<<(rows + 63) / 64 * ((cols + 63) / 64), 256, TRANSPOSE_SMEM>>>(a, rows,
                                                                                            cols,
                                                                                            b);
        });
        CUDA(cudaGetLastError());
        printf("transpose %dx%d %9.4f ms %6.0f GB/s\n", rows, cols, ms, n * 8 / ms * 1e-6);
        cudaFree(a);
        cudaFree(b);
}

template <class T, size_t N>
static int speed_each(const Problem (&list)[N], const Ways (&ways)[2][2], const char *type,
                      const char *part, unsigned seed)
{
        int bad = 0;
        for (const Problem &p : list) {
                char name[64];
                const bool few = sizeof(T) == 2 && p.M <= PROMPT && !p.TA && p.TB;
                snprintf(name, sizeof name, "%s%d%d %dx%dx%d", type, p.TA, p.TB, p.M, p.N, p.K);
                if (!part || strstr(name, part))
                        bad += speed_of<T>(p, few ? prompt : ways[p.TA][p.TB], name, seed++);
        }
        return bad;
}

static int speed_all(const char *part, unsigned seed)
{
        printf("%-28s %-36s\n", "TA TB shape (M x N x K)", "way, mode, tile");
        int bad = speed_each<bf16>(problems, ways, "", part, seed);
        bad += speed_each<float>(words, ways_of_words, "tf32 ", part, seed);
        if (!part || strstr("transpose", part) || strstr(part, "tf32")) {
                speed_transpose(8192, 768);
                speed_transpose(8192, 3072);
                speed_transpose(2304, 768);
                speed_transpose(50304, 768);
        }
        return bad;
}

int main(int argc, char **argv)
{
        alone = argc > 2 && !strcmp(argv[2], "alone");
        return speed_main(argc > 1 ? argv[1] : 0, speed_all);
}
