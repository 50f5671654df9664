/* fp8_gemm_test.cu: gemm_fp8_sm90.cuh and gemm_fp8_persistent_sm90.cuh against a plain loop, on
 * what round_fp8.cuh wrote; played, or on a Hopper GPU:
 *
 *      nvcc -O1 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 $(make -s
 *      kernel-includes) -Icodegen/forms -Iruntime -Iruntime/weights -Itests -Itests/emulate
 *      tests/emulate/fp8_gemm_test.cu */
#ifndef TGC_SM90A
#define TGC_SM90A 1
#endif
#include "task.h"
#include "decode_run.h"
#ifndef TGC_EMULATE
#include "../bench/hopper.h"
#endif
#include "gemm_fp8_persistent_sm90.cuh"
#include "round_fp8.cuh"
#include "stored_decode.cuh"

TGC_STORED_TYPE(F8_128, 128, 132, f8)

template <class T>
struct From {
        static constexpr int MAXV = 8, MINV = 1;
        const T *p;
        long ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, p + row * ld + col);
        }
};

struct To {
        static constexpr int MAXV = 8, MINV = 1;
        float *p;
        long ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + row * ld + col, v);
        }
};

template <int K, int G, int THREADS, class T>
struct CodesRun {
        static constexpr int MOST = THREADS;
        From<T> from;
        unsigned char *to;
        int rows;
        __device__ void operator()(int tile, char *smem) const
        {
                round_fp8_codes_task<K, G, THREADS>(to, 2 * K, rows, tile, smem, from);
        }
};

template <int K, int G, int THREADS, class T>
struct ValuesRun {
        static constexpr int MOST = THREADS;
        From<T> from;
        To to;
        int rows;
        __device__ void operator()(int tile, char *smem) const
        {
                round_fp8_task<K, G, THREADS>(rows, tile, smem, from, to);
        }
};

template <class Tile, int N, int K, int G, int V>
struct GemmRun {
        static constexpr int MOST = Tile::THREADS;
        const unsigned char *x, *w;
        int M, splits;
        float *ws;
        int *joined;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                fp8_gemm_task<Stored_F8_128, Tile, N, K, G>(x, 2 * K, w, M,
                                                            (M + Tile::BM - 1) / Tile::BM, splits,
                                                            ws, joined, tile, smem, epilogue);
        }
};

/* Rows of codes as 16-bit values. */
static TmaMap codes_map(unsigned char *codes, int M, int K)
{
#ifdef TGC_EMULATE
        const emu::Map m = {
                (const char *)codes, 2, (unsigned)M, (unsigned)K, (unsigned)K, 64, 128
        };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
#else
        return map_of(codes, M, K, MAP_BF16);
#endif
}

/* In blocks that stay; splits: how many of them. */
template <int ROWS, int N, int K, int G, int V>
struct GemmRun<Fp8Stream<ROWS>, N, K, G, V> {
        typedef Fp8Stream<ROWS> Tile;
        static constexpr int MOST = Tile::THREADS;
        const unsigned char *x, *w;
        int M, splits;
        float *ws;
        int *joined;
        Keep<V> epilogue;
        TmaMap map = {}; /* of x */
        __device__ void operator()(int tile, char *smem) const
        {
                fp8_gemm_persistent<Stored_F8_128, Tile, N, K, G>(&map, x, 2 * K, w, M,
                                                                  (M + Tile::BM - 1) / Tile::BM,
                                                                  tile, splits, smem, epilogue);
        }
};

template <class Tile>
struct Stays {
        static constexpr bool value = false;
};
template <int ROWS>
struct Stays<Fp8Stream<ROWS>> {
        static constexpr bool value = true;
};

static double e4m3_value(unsigned code)
{
        const int e = code >> 3 & 15, m = code & 7;
        const double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        return code & 0x80 ? -v : v;
}

template <class T, class Tile, int N, int K, int G, int V = 4>
static void gemm_case(int M, int splits)
{
        enum { THREADS = 128 };
        char name[128];
        snprintf(name, sizeof name, "fp8 %s %dx%dx%d, %d to a scale, tile %dx%d splits %d",
                 type_name<T>(), M, N, K, G, Tile::BM, Tile::BN, splits);
        const int places = (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN),
                  groups = M * (K / G),
                  rounds = (groups + ROW_ROWS(G, THREADS) - 1) / ROW_ROWS(G, THREADS);
        const size_t blocks = (size_t)N * K / 128;
        unsigned char *w = (unsigned char *)mem(blocks * 132 + 16),
                      *codes = (unsigned char *)mem((size_t)M * 2 * K);
        float *dense = (float *)mem((size_t)N * K * 4), *values = (float *)mem((size_t)M * K * 4),
              *ws = (float *)mem((size_t)places * splits * Tile::BM * Tile::BN * 4);
        int *joined = (int *)mem((size_t)places * 4);
        memset(joined, 0, (size_t)places * 4);
        for (size_t b = 0; b < blocks; b++) {
                const float d = (float)(1 + next_random() % 64) / 512.f;
                memcpy(w + b * 132, &d, 4);
                for (int i = 4; i < 132; i++) {
                        const unsigned c = next_random() & 255;
                        w[b * 132 + i] = (unsigned char)((c & 0x7f) == 0x7f ? c - 1 : c);
                }
        }
        Matrix<T> x(M, K, K, false);
        for (int i = 0; i < M; i++) /* tokens of other sizes */
                for (int k = 0; k < K; k++)
                        put(x.p + (size_t)i * K + k,
                            get(x.p[(size_t)i * K + k]) * (float)(1 + i % 7 * 3));
        Result r(M, N);
        const From<T> from = { x.p, K };
        GemmRun<Tile, N, K, G, V> product = { codes, w, M, splits, ws, joined, Keep<V>(r) };
        if constexpr (Stays<Tile>::value)
                product.map = codes_map(codes, M, K);
        bool ok = task_run(CodesRun<K, G, THREADS, T> { from, codes, M }, rounds, THREADS, 256,
                           name) &&
                  task_run(ValuesRun<K, G, THREADS, T> { from, { values, K }, M }, rounds, THREADS,
                           256, name) &&
                  task_run(DecodeRun<Stored_F8_128> { w, dense, (long)N * K },
                           (int)(((long)N * K + 2047) / 2048), 64, 0, name) &&
                  task_run(product, Stays<Tile>::value ? splits : places * splits, Tile::THREADS,
                           Tile::template smem<Stored_F8_128, K>(), name,
                           Stays<Tile>::value ? 2 : 1);
        for (int i = 0; ok && i < M; i++)
                for (int k = 0; ok && k < K; k++) {
                        float scale;
                        memcpy(&scale, codes + (size_t)i * 2 * K + K + k / G * 4, 4);
                        const double is = e4m3_value(codes[(size_t)i * 2 * K + k]) * scale,
                                     want = values[(size_t)i * K + k];
                        if (!(fabs(is - want) <= 1e-6 * fabs(want))) {
                                printf("  %s: code %d,%d is %g, the value %g\n", name, i, k, is,
                                       want);
                                ok = false;
                        }
                }
        for (int i = 0; i < places; i++)
                ok = ok && joined[i] == 0;
#ifdef TGC_EMULATE
        const double rounds_off = 1e-5;
#else
        const double rounds_off = 5e-3; /* 14 bits of a sum, cut off */
#endif
        double worst = 0;
        for (int i = 0; ok && i < M; i++)
                for (int j = 0; ok && j < N; j++) {
                        double sum = 0, size = 0;
                        for (int k = 0; k < K; k++) {
                                const double p = (double)values[(size_t)i * K + k] *
                                                 dense[(size_t)j * K + k];
                                sum += p, size += p * p;
                        }
                        const double is = r.c[(size_t)i * N + j], off = fabs(is - sum) / sqrt(size);
                        worst = off > worst ? off : worst;
                        if (!(off <= rounds_off) || r.count[(size_t)i * N + j] != 1) {
                                printf("  %s: C[%d][%d] is %g, delivered %d times; want %g\n", name,
                                       i, j, is, r.count[(size_t)i * N + j], sum);
                                ok = false;
                        }
                }
        printf("  %s: off by %.1e of the terms' root mean square times sqrt(K)\n", name, worst);
        report(ok, name);
        mem_free(w), mem_free(codes), mem_free(dense), mem_free(values), mem_free(ws),
                mem_free(joined);
}

int main()
{
        gemm_case<bf16, Fp8Tile<64, 2, 1>, 128, 256, 128>(64, 1);
        gemm_case<bf16, Fp8Tile<64, 2, 1>, 72, 384, 128>(11, 1);
        gemm_case<f16, Fp8Tile<64, 2, 1>, 200, 384, 384>(70, 2);
        gemm_case<bf16, Fp8Tile<64, 2, 1>, 100, 128, 128>(5, 1);
        gemm_case<bf16, Fp8Tile<128, 2, 1>, 136, 1024, 1024, 8>(130, 3);
        gemm_case<f16, Fp8Tile<128, 2, 1>, 99, 640, 128, 1>(150, 2);
        gemm_case<bf16, Fp8Stream<128>, 256, 1024, 1024, 8>(130, 2);
        gemm_case<f16, Fp8Stream<128>, 256, 512, 128, 1>(150, 4);
        gemm_case<bf16, Fp8Stream<256>, 512, 1536, 128>(270, 4);
        gemm_case<bf16, Fp8Stream<256>, 256, 512, 512, 8>(70, 2);
#ifndef TGC_EMULATE
        gemm_case<bf16, Fp8Stream<128>, 4096, 4096, 4096>(333, 90);
        gemm_case<bf16, Fp8Stream<256>, 1024, 4096, 128, 8>(1100, 40);
        gemm_case<f16, Fp8Stream<256>, 6144, 1024, 1024, 8>(517, 132);
        gemm_case<bf16, Fp8Tile<128, 2, 1>, 4096, 4096, 4096>(333, 1);
        gemm_case<bf16, Fp8Tile<128, 2, 1>, 1000, 4096, 128>(1100, 2);
        gemm_case<bf16, Fp8Tile<64, 2, 1>, 6144, 2048, 128>(64, 4);
#endif
        printf("%d of %d products are right\n", runs - failures, runs);
        return failures != 0;
}
