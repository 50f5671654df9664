/* ring_repeat_test.cu: attention_decode_ring_sm90.cuh on a Hopper GPU, many times over: every run
 * and every number of blocks, clusters and stages gives the same bits, near to what one block of
 * attention_decode_task says.
 *
 * Keys and values fit in L2.  That makes the copy engine as fast as it can be: a stage that is
 * requested before its last values are read is overwritten too early here, and in no emulator. */
#define TGC_SM90A 1
#include "../bench/hopper.h"
#include "attention_decode_ring_sm90.cuh"
#include <math.h>
#include <vector>

template <int LEAST>
using Parts = AttDecode<4, 16, 128, LEAST>;
enum { SEQUENCES = 32, TOKENS = 513, RUNS = 100, PAGES = (TOKENS + 63) / 64 };
static int failures;

template <int D_>
struct Att : AttBase {
        static constexpr int D = D_, H = 32, K = 8, VEC = 8, PAGE = 64;
        static constexpr float SCALE = D_ == 64 ? 0.125f : 0.08838834764f;
        static constexpr bool CACHED = true;
};

struct Cache {
        const Rt *rt;
        const bf16 *q, *k, *v;
        bf16 *o;
        float *work;
        int *done;
        TmaMap map_k, map_v;
};

struct Put {
        static constexpr int MAXV = 8, MINV = 1;
        bf16 *p;
        int cols;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long)row * cols + col, v);
        }
};

template <class A>
__device__ AttIn<bf16, A> inputs(const Cache &c)
{
        const Strides q = { A::H * A::D, A::H * A::D, A::D }, kv = { 0, A::K * A::D, A::D };
        return { c.q, c.k, c.v, q, kv, kv, 0, 0, 0, 1, 0, 0 };
}

template <class A, int LEAST, int BLOCKS, int CLUSTERS, int STAGES>
__global__ void __launch_bounds__(128) by_rings(const __grid_constant__ Cache c)
{
        TGC_SMEM(smem);
        pdl_launch();
        attention_decode_ring<bf16, A, Parts<LEAST>, BLOCKS, CLUSTERS, STAGES>(
                AttMap { &c.map_k, 0, A::D }, AttMap { &c.map_v, 0, A::D }, inputs<A>(c), c.work,
                c.done, SEQUENCES, 1, c.rt, (int)blockIdx.x, smem, Put { c.o, A::H * A::D });
}

template <class A>
__global__ void __launch_bounds__(128) by_one(const __grid_constant__ Cache c)
{
        TGC_SMEM(smem);
        attention_decode_task<bf16, A, AttDecode<4, 1, 128>>(inputs<A>(c), 0, 0, SEQUENCES, 1, c.rt,
                                                             (int)blockIdx.x, smem,
                                                             Put { c.o, A::H * A::D });
}

__global__ void fill(bf16 *p, size_t n, unsigned seed)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                const uint4 r = philox(make_uint4((unsigned)i, 0, 0, 0), seed, 1);
                p[i] = __float2bfloat16_rn(((float)(r.x >> 8) / 8388608.f - 1.f) * 1.7f);
        }
}

static bf16 *noise(size_t n, unsigned seed)
{
        bf16 *p;
        CUDA(cudaMalloc((void **)&p, n * sizeof(bf16)));
        fill<<<256, 256>>>(p, n, seed);
        return p;
}

static std::vector<unsigned short> bits(const Cache &c, size_t n)
{
        std::vector<unsigned short> o(n);
        CUDA(cudaStreamSynchronize(stream()));
        CUDA(cudaMemcpy(o.data(), c.o, n * 2, cudaMemcpyDeviceToHost));
        return o;
}

static float value(unsigned short x)
{
        const unsigned wide = (unsigned)x << 16;
        float f;
        memcpy(&f, &wide, 4);
        return f;
}

template <class K>
static void start(K *kernel, int heads, int blocks, int cluster, int smem, const Cache &c)
{
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute a = {};
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        a.id = cudaLaunchAttributeClusterDimension;
        a.val.clusterDim.x = cluster, a.val.clusterDim.y = a.val.clusterDim.z = 1;
        config.gridDim = heads * blocks, config.blockDim = 128, config.dynamicSmemBytes = smem;
        config.stream = stream(), config.attrs = &a, config.numAttrs = 1;
        CUDA(cudaLaunchKernelEx(&config, kernel, c));
}

template <class A, int LEAST, int BLOCKS, int CLUSTERS, int STAGES>
static void repeat(const Cache &c, const std::vector<unsigned short> &want)
{
        const int smem =
                attention_decode_ring_smem<bf16, A, Parts<LEAST>, BLOCKS, CLUSTERS, STAGES>();
        int bad = 0;
        for (int i = 0; i < RUNS; i++) {
                CUDA(cudaMemsetAsync(c.o, 0xff, want.size() * 2, stream()));
                start(by_rings<A, LEAST, BLOCKS, CLUSTERS, STAGES>, SEQUENCES * A::K,
                      BLOCKS * CLUSTERS, BLOCKS, smem, c);
                bad += bits(c, want.size()) != want;
        }
        printf("%s heads of %d, parts of %d, %d blocks, %d clusters, %d stages",
               bad ? "not ok" : "ok", A::D, LEAST ? LEAST : 64, BLOCKS, CLUSTERS, STAGES);
        if (bad)
                printf(": %d of %d runs differ", bad, RUNS);
        printf("\n");
        failures += bad > 0;
}

template <int D, int LEAST>
static void heads_of()
{
        typedef Att<D> A;
        const size_t n = (size_t)SEQUENCES * A::H * D, keys = (size_t)SEQUENCES * PAGES * 64;
        std::vector<int> table(SEQUENCES * PAGES);
        for (size_t i = 0; i < table.size(); i++) /* 197 shares no factor with 288 */
                table[i] = (int)(i * 197 % table.size());
        Rt rt;
        memset((void *)&rt, 0, sizeof rt);
        rt.B = rt.sampled = SEQUENCES, rt.T = 1, rt.slot_pages = PAGES;
        for (int b = 0; b < SEQUENCES; b++)
                rt.slot[b] = b, rt.pos[b] = b % 16 ? TOKENS - 1 : b * 20;
        int *pages;
        Rt *on;
        Cache c = {};
        CUDA(cudaMalloc((void **)&pages, table.size() * 4));
        CUDA(cudaMemcpy(pages, table.data(), table.size() * 4, cudaMemcpyHostToDevice));
        rt.pages[0] = pages;
        CUDA(cudaMalloc((void **)&on, sizeof rt));
        CUDA(cudaMemcpy(on, &rt, sizeof rt, cudaMemcpyHostToDevice));
        c.rt = on, c.q = noise(n, 1), c.o = noise(n, 2);
        bf16 *k = noise(keys * A::K * D, 3), *v = noise(keys * A::K * D, 4);
        c.k = k, c.v = v;
        CUDA(cudaMalloc((void **)&c.work, (size_t)SEQUENCES * A::H * 16 * att_record<A>() * 4));
        CUDA(cudaMalloc((void **)&c.done, SEQUENCES * A::K * 4));
        CUDA(cudaMemset(c.done, 0, SEQUENCES * A::K * 4));
        c.map_k = map_of(k, keys, A::K * D, MAP_BF16, 16);
        c.map_v = map_of(v, keys, A::K * D, MAP_BF16, 16);
        CUDA(cudaDeviceSynchronize());

        start(by_one<A>, SEQUENCES * A::K, 1, 1,
              attention_decode_smem<bf16, A, AttDecode<4, 1, 128>>(), c);
        const std::vector<unsigned short> one = bits(c, n);
        start(by_rings<A, LEAST, 1, 1, 2>, SEQUENCES * A::K, 1, 1,
              attention_decode_ring_smem<bf16, A, Parts<LEAST>, 1, 1, 2>(), c);
        const std::vector<unsigned short> want = bits(c, n);
        double far = 0;
        for (size_t i = 0; i < n; i++) {
                const double d = fabs(value(one[i]) - value(want[i]));
                if (!(d <= far))
                        far = d;
        }
        const bool near = far < 4e-3;
        printf("%s heads of %d: %.1e from one block's\n", near ? "ok" : "not ok", D, far);
        failures += !near;
        repeat<A, LEAST, 1, 1, 2>(c, want);
        repeat<A, LEAST, 1, 1, 3>(c, want);
        repeat<A, LEAST, 2, 1, 2>(c, want);
        repeat<A, LEAST, 2, 1, 3>(c, want);
        repeat<A, LEAST, 4, 1, 2>(c, want);
        repeat<A, LEAST, 8, 1, 3>(c, want);
        repeat<A, LEAST, 8, 2, 2>(c, want);
}

int main()
{
        heads_of<64, 0>();
        heads_of<64, 128>();
        heads_of<128, 128>();
        return failures != 0;
}
