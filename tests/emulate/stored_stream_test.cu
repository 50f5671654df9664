/* stored_stream_test.cu: gemm_stored_persistent_sm90.cuh against a plain loop; played, or on a
 * Hopper GPU.
 *
 * Blocks are random bytes, scales of theirs small numbers.  Products may differ by what bf16 rounds
 * of weights, scales and minima. */
#ifndef TGC_SM90A
#define TGC_SM90A 1
#endif
#include "task.h"
#include "decode_run.h"
#ifndef TGC_EMULATE
#include "../bench/hopper.h"
#endif
#include "gemm_stored_persistent_sm90.cuh"
#include "stored_blocks.h"

template <class T>
static TmaMap rows_map(T *x, int M, int K)
{
#ifdef TGC_EMULATE
        const emu::Map m = { (const char *)x, 2, (unsigned)M, (unsigned)K, (unsigned)K, 64, 128 };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
#else
        return map_of(x, M, K, SameType<T, bf16>::value ? MAP_BF16 : MAP_F16);
#endif
}

template <class T, class S, class Tile, int N, int K, int V, int SPLITS>
struct StreamRun {
        static constexpr int MOST = Tile::THREADS;
        TmaMap map;
        const unsigned char *w;
        int M, blocks;
        float *ws;
        int *joined;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                stored_gemm_persistent<T, S, Tile, N, K, SPLITS>(&map, w, M,
                                                                 (M + Tile::BM - 1) / Tile::BM, ws,
                                                                 joined, tile, blocks, smem,
                                                                 epilogue);
        }
};

template <class T, class S, class Tile, int N, int K, int V = 4, int SPLITS = 1>
static void stream_case(const char *type, int M, int stay)
{
        char name[128];
        snprintf(name, sizeof name, "%s %s %dx%dx%d tile %dx%d, %d splits, %d blocks stay", type,
                 type_name<T>(), M, N, K, Tile::BM, Tile::BN, SPLITS, stay);
        const long blocks = (long)N * K / S::VALUES;
        unsigned char *w = (unsigned char *)mem((size_t)(blocks * S::BYTES) + 16);
        float *dense = (float *)mem((size_t)N * K * 4);
        const int places = (M + Tile::BM - 1) / Tile::BM * (N / Tile::BN);
        float *ws = (float *)mem((size_t)places * SPLITS * Tile::BM * Tile::BN * 4);
        int *joined = (int *)mem((size_t)places * 8 * 4);
        memset(joined, 0, (size_t)places * 8 * 4);
        random_blocks<S>(type, w, blocks);
        Matrix<T> x(M, K, K, false);
        Result r(M, N);
        StreamRun<T, S, Tile, N, K, V, SPLITS> f = { rows_map(x.p, M, K), w, M, stay, ws, joined,
                                                     Keep<V>(r) };
        DecodeRun<S> g = { w, dense, (long)N * K };
        bool ok = task_run(f, stay, Tile::THREADS, Tile::template smem<S, K>(), name, 2) &&
                  task_run(g, (int)(((long)N * K + 2047) / 2048), 64, 0, name);
        for (int i = 0; i < places * 8; i++)
                ok = ok && joined[i] == 0;
        for (int i = 0; ok && i < M; i++)
                for (int j = 0; ok && j < N; j++) {
                        double sum = 0, size = 0;
                        for (int k = 0; k < K; k++) {
                                const double p = x.at(i, k) * dense[(long)j * K + k];
                                sum += p, size += p * p;
                        }
                        const double is = r.c[(size_t)i * N + j], may = 2e-2 * sqrt(size);
                        if (!(fabs(is - sum) <= may) || r.count[(size_t)i * N + j] != 1) {
                                printf("  %s: C[%d][%d] is %g (may differ by %g), delivered %d "
                                       "times; want %g\n",
                                       name, i, j, is, may, r.count[(size_t)i * N + j], sum);
                                ok = false;
                        }
                }
        report(ok, name);
        mem_free(w), mem_free(dense), mem_free(ws), mem_free(joined);
}

/* A tile, a part of one, and more than blocks; W's slices that begin at any byte. */
template <class S, int W_STAGES>
static void type_cases(const char *type)
{
        stream_case<bf16, S, StoredStream<128, W_STAGES>, 256, 512>(type, 130, 2);
        stream_case<f16, S, StoredStream<256, W_STAGES>, 512, 256, 1>(type, 270, 2);
}

int main()
{
        type_cases<Stored_Q4_0, 3>("Q4_0");
        type_cases<Stored_Q4_K, 3>("Q4_K");
        type_cases<Stored_Q5_K, 3>("Q5_K");
        type_cases<Stored_Q6_K, 2>("Q6_K");
        type_cases<Stored_Q8_0, 2>("Q8_0");
        type_cases<Stored_I4_128, 3>("I4_128");
        type_cases<Stored_NF4, 3>("NF4");
        type_cases<Stored_F8_128, 2>("F8_128");
        stream_case<bf16, Stored_I4_128, StoredStream<256, 3>, 512, 1024, 8>("I4_128", 300, 6);
        stream_case<bf16, Stored_I4_128, StoredStream<256, 3>, 512, 1024, 8, 3>("I4_128", 300, 6);
        stream_case<f16, Stored_Q4_K, StoredStream<256, 3>, 256, 512, 2, 2>("Q4_K", 70, 4);
        stream_case<bf16, Stored_MXFP4, StoredStream<128, 3>, 256, 768, 8>("MXFP4", 5, 2);
#ifndef TGC_EMULATE
        stream_case<bf16, Stored_I4_128, StoredStream<256, 3>, 6144, 4096, 8>("I4_128", 517, 132);
        stream_case<bf16, Stored_Q6_K, StoredStream<256, 2>, 4096, 1024, 8>("Q6_K", 1100, 40);
        stream_case<f16, Stored_Q8_0, StoredStream<128, 2>, 4096, 4096>("Q8_0", 333, 90);
        stream_case<bf16, Stored_I4_128, StoredStream<256, 3>, 4096, 14336, 8, 4>("I4_128", 200,
                                                                                  128);
#endif
        printf("%d of %d products are right\n", runs - failures, runs);
        return failures != 0;
}
