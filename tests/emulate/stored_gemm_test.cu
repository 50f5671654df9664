/* stored_gemm_test.cu: gemm_stored.cuh and, for Hopper, gemm_stored_sm90.cuh against a plain loop,
 * every type of blocks, played.
 *
 * Blocks are random bytes, scales of theirs small numbers.  Products may differ by what 16 bits
 * round of a weight. */
#define TGC_SM90A 1
#include "task.h"
#include "decode_run.h"
#include "gemm_stored_sm90.cuh"
#include "stored_decode.cuh"

#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode) TGC_STORED_TYPE(e, values, bytes, decode)
#include "../../ir/storage.def"

/* ---- random blocks ------------------------------------------------------------- */

/* Where a type has halves: offsets, -1 ends. */
template <class S>
struct Halves {
        static constexpr int at[2] = { 0, -1 };
};
#define HALVES(type, a, b)                             \
        template <>                                    \
        struct Halves<Stored_##type> {                 \
                static constexpr int at[2] = { a, b }; \
        }
HALVES(Q4_1, 0, 2);
HALVES(Q5_1, 0, 2);
HALVES(Q2_K, 80, 82);
HALVES(Q3_K, 108, -1);
HALVES(Q4_K, 0, 2);
HALVES(Q5_K, 0, 2);
HALVES(Q6_K, 208, -1);
HALVES(MXFP4, -1, -1);
HALVES(NVFP4, -1, -1);

/* Blocks that begin with a scale in float32, of whose type the name begins so. */
static bool is_float(const char *type)
{
        static const char *const begins[] = { "NF4", "FP4", "I4_", "I8_", "SCB", "F8_" };
        for (const char *b : begins)
                if (!strncmp(type, b, 3))
                        return true;
        return false;
}

template <class S>
static void random_blocks(const char *type, unsigned char *p, long blocks)
{
        for (long b = 0; b < blocks; b++, p += S::BYTES) {
                for (int i = 0; i < S::BYTES; i++)
                        p[i] = (unsigned char)(next_random() & 255);
                for (int i = 0; i < 2 && Halves<S>::at[i] >= 0; i++) {
                        const unsigned h = 0x1000u + next_random() % 0x1000u +
                                           (next_random() & 1 ? 0x8000u : 0u);
                        p[Halves<S>::at[i]] = (unsigned char)(h & 255);
                        p[Halves<S>::at[i] + 1] = (unsigned char)(h >> 8);
                }
                if (is_float(type)) {
                        const float d = (float)(1 + next_random() % 64) / 512.f;
                        const unsigned char zero = p[0] % 16;
                        memcpy(p, &d, 4);
                        if (type[0] == 'I' && type[1] == '4')
                                p[0] = zero;
                        for (int i = 4; *type == 'F' && i < S::BYTES; i++)
                                p[i] -= (p[i] & 0x7f) == 0x7f; /* NaN */
                }
                if (S::BYTES == 17)
                        p[0] = (unsigned char)(118 + next_random() % 6);
        }
}

/* ---- products ------------------------------------------------------------------ */

template <class T, class S, class Tile, int N, int K, int ALIGN, int V>
struct StoredRun {
        static constexpr int MOST = Tile::THREADS;
        const T *x;
        long ldx;
        const unsigned char *w;
        int M, splits;
        float *ws;
        int *joined;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                const int down = (M + Tile::BM - 1) / Tile::BM;
                if constexpr (Tile::BK == 64)
                        stored_wgmma_task<T, S, Tile, N, K, ALIGN>(x, ldx, w, M, down, splits, ws,
                                                                   joined, tile, smem, epilogue);
                else
                        stored_gemm_task<T, S, Tile, N, K, ALIGN>(x, ldx, w, M, down, splits, ws,
                                                                  joined, tile, smem, epilogue);
        }
};

template <class T, class S>
struct DecodeTask {
        const unsigned char *w;
        T *to;
        long n;
        __device__ void operator()(int tile, char *) const
        {
                stored_decode_task<S, T, 64>(to, w, n, tile);
        }
};

/* What is decoded into memory is float32 to the last bits. */
template <class S>
static void decode_case(const char *type, long n)
{
        unsigned char *w = (unsigned char *)mem((size_t)(n / S::VALUES * S::BYTES));
        float *is = (float *)mem((size_t)n * 4), *want = (float *)mem((size_t)n * 4);
        char name[64];
        snprintf(name, sizeof name, "%s decoded, %ld", type, n);
        random_blocks<S>(type, w, n / S::VALUES);
        DecodeTask<float, S> f = { w, is, n };
        DecodeRun<S> g = { w, want, n };
        bool ok = task_run(f, (int)((n + 2 * STORED_DECODED - 1) / (2 * STORED_DECODED)), 64, 0,
                           name) &&
                  task_run(g, (int)((n + 2047) / 2048), 64, 0, name);
        for (long i = 0; ok && i < n; i++) {
                float most = 0;
                for (long k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
                        most = fmaxf(most, fabsf(want[k]));
                if (!(fabsf(is[i] - want[i]) <= 1e-5f * most)) {
                        printf("  %s: value %ld is %g, want %g\n", name, i, is[i], want[i]);
                        ok = false;
                }
        }
        report(ok, name);
        mem_free(w), mem_free(is), mem_free(want);
}

template <class T, class S, class Tile, int N, int K, int ALIGN = 16, int V = 4>
static void stored_case(const char *type, int M, int splits)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name, "%s %s %dx%dx%d tile %dx%d splits %d", type, type_name<T>(), M,
                 N, K, Tile::BM, Tile::BN, splits);
        const long blocks = (long)N * K / S::VALUES;
        const int places = (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
        unsigned char *w = (unsigned char *)mem((size_t)(blocks * S::BYTES));
        float *dense = (float *)mem((size_t)N * K * 4);
        float *ws = (float *)mem((size_t)places * splits * Tile::BM * Tile::BN * 4);
        int *joined = (int *)mem((size_t)places * 4);
        memset(joined, 0, (size_t)places * 4);
        random_blocks<S>(type, w, blocks);
        if (!strncmp(type, "F8_", 3)) /* a row of NaN */
                w[(blocks / 2 + 1) * S::BYTES - 1] = 0xff;
        Matrix<T> x(M, K, K + PAD, false);
        Result r(M, N);
        StoredRun<T, S, Tile, N, K, ALIGN, V> f = {
                x.p, x.ld, w, M, splits, ws, joined, Keep<V>(r)
        };
        DecodeRun<S> g = { w, dense, (long)N * K };
        constexpr int SMEM = Tile::template smem<S, K>();
        /* of weights and scales: some standard deviations of 8 bits' roundings */
        typedef typename CodesOf<S>::Type C;
        const bool exact = !strncmp(type, "F8_", 3) || !C::VALUE, /* codes; tables are rounded */
                sums = Tile::HOW == STORED_SUMS && !C::HALVES && exact;
        const double rounds = sums ? 3e-4 : Tile::HOW != STORED_ROUNDED ? 2e-2 : 1e-2;
        bool ok = task_run(f, places * splits, Tile::THREADS, SMEM, name) &&
                  task_run(g, (int)(((long)N * K + 2047) / 2048), 64, 0, name);
        for (int i = 0; i < places; i++)
                ok = ok && joined[i] == 0;
        for (int i = 0; ok && i < M; i++)
                for (int j = 0; ok && j < N; j++) {
                        double sum = 0, size = 0;
                        for (int k = 0; k < K; k++) {
                                const double p = x.at(i, k) * dense[(long)j * K + k];
                                sum += p, size += p * p;
                        }
                        const double is = r.c[(size_t)i * N + j], may = rounds * sqrt(size);
                        if (!(isnan(sum) ? isnan(is) : fabs(is - sum) <= may) ||
                            r.count[(size_t)i * N + j] != 1) {
                                printf("  %s: C[%d][%d] is %g (may differ by %g), delivered %d "
                                       "times; want %g\n",
                                       name, i, j, is, may, r.count[(size_t)i * N + j], sum);
                                ok = false;
                        }
                }
        report(ok, name);
        mem_free(w), mem_free(dense), mem_free(ws), mem_free(joined);
}

template <class S>
static void type_cases(const char *type)
{
        constexpr int B = S::VALUES == 32 ? 160 : S::VALUES == 64 ? 192 : S::VALUES;
        stored_case<bf16, S, StoredTile<2, 1, 4, 3, 2>, 72, 512 + B>(type, 11, 2);
        stored_case<bf16, S, StoredGroups<32, 1, 4, 1>, 72, 512 + B>(type, 41, 2);
        decode_case<S>(type, 4096 + B);
}

/* Kinds of tiles. */
template <class S>
static void tile_cases(const char *type)
{
        constexpr int B = S::VALUES == 32 ? 160 : S::VALUES == 64 ? 192 : S::VALUES;
        stored_case<bf16, S, StoredTile<2, 2, 2, 3, 2>, 100, 512>(type, 16, 1);
        stored_case<f16, S, StoredTile<4, 2, 2, 2, 2>, 64, B, 2, 1>(type, 37, 1);
        stored_case<bf16, S, StoredTile<2, 2, 2, 3, 2, STORED_SUMS>, 72, 512>(type, 16, 1);
        stored_case<f16, S, StoredTile<1, 1, 4, 3, 2, STORED_SUMS>, 72, B>(type, 7, 1);
        stored_case<bf16, S, StoredTile<2, 1, 4, 3, 2, STORED_BF16>, 72, 512>(type, 11, 1);
        stored_case<f16, S, StoredGroups<64, 2, 3, 1>, 100, B>(type, 5, 1);
        stored_case<bf16, S, StoredGroups<64, 2, 4, 1, STORED_BF16>, 136, 1024, 8, 8>(type, 70, 3);
}

int main()
{
#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode) type_cases<Stored_##e>(name);
#include "../../ir/storage.def"
        tile_cases<Stored_Q4_0>("Q4_0");
        tile_cases<Stored_Q4_K>("Q4_K");
        tile_cases<Stored_Q6_K>("Q6_K");
        tile_cases<Stored_I4_64>("I4_64");
        tile_cases<Stored_F8_128>("F8_128");
        tile_cases<Stored_NF4>("NF4");
        tile_cases<Stored_Q8_0>("Q8_0");
        tile_cases<Stored_IQ4_NL>("IQ4_NL");
        tile_cases<Stored_I4_128>("I4_128");
        printf("%d of %d products are right\n", runs - failures, runs);
        return failures != 0;
}
