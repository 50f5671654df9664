/* hopper.h: what the benches of Hopper's kernels share: checked calls, tensor maps, launches as
 * programs make them. */
#ifndef BENCH_HOPPER_H
#define BENCH_HOPPER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>
#include "checked.h"
#include "tgc.cuh"

/* The map of a (rows, cols) matrix with row stride cols; boxes and swizzle as gemm_sm90.cuh says,
 * or of box_rows by as many columns as fill 128, 64 or 32 bytes.  The driver is opened here, so
 * that no bench links it. */
enum MapOf { MAP_BF16, MAP_F16, MAP_TF32 };
static TmaMap map_of(void *p, long rows, long cols, int type, int box_rows = 0, int box_bytes = 128)
{
        typedef CUresult EncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                     const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                     const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
        static EncodeTiled *encode;
        CUtensorMap map;
        TmaMap to;
        void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        const cuuint64_t dims[2] = { (cuuint64_t)cols, (cuuint64_t)rows };
        const cuuint64_t stride[1] = { (cuuint64_t)cols * (type == MAP_TF32 ? 4 : 2) };
        const cuuint32_t elem = type == MAP_TF32 ? 4 : 2, step[2] = { 1, 1 };
        const cuuint32_t box[2] = { box_bytes / elem,
                                    box_rows ? (cuuint32_t)box_rows : 128 / elem };
        const CUtensorMapSwizzle swizzle = box_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                           : box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                             : CU_TENSOR_MAP_SWIZZLE_32B;
        static const CUtensorMapDataType types[] = { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                     CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                                     CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 };

        if (!encode && !(lib && (encode = (EncodeTiled *)dlsym(lib, "cuTensorMapEncodeTiled")))) {
                printf("no cuTensorMapEncodeTiled\n");
                exit(4);
        }
        const CUresult r = encode(&map, types[type], 2, p, dims, stride, box, step,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (r != CUDA_SUCCESS) {
                printf("cuTensorMapEncodeTiled: error %d for %ld x %ld\n", (int)r, rows, cols);
                exit(4);
        }
        static_assert(sizeof to == sizeof map && alignof(TmaMap) >= alignof(CUtensorMap),
                      "a tensor map");
        memcpy(&to, &map, sizeof to);
        return to;
}

static cudaStream_t stream()
{
        static cudaStream_t s;
        if (!s)
                CUDA(cudaStreamCreate(&s));
        return s;
}

/* Started before the kernel before it has ended, for which it waits (pdl_wait). */
template <class K, class M>
static void launch(K *kernel, int grid, int threads, int smem, const M &m)
{
        cudaLaunchConfig_t c = {};
        cudaLaunchAttribute a = {};
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a.val.programmaticStreamSerializationAllowed = 1;
        c.gridDim = grid, c.blockDim = threads, c.dynamicSmemBytes = smem, c.stream = stream();
        c.attrs = &a, c.numAttrs = 1;
        CUDA(cudaLaunchKernelEx(&c, kernel, m));
}

/* Microseconds of f(m), the median of nine: n times in a graph, as a step is one. */
template <class M>
static double time_us(void (*f)(const M &), const M &m, int n)
{
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t x, y;
        std::vector<float> t;
        CUDA(cudaEventCreate(&x));
        CUDA(cudaEventCreate(&y));
        f(m);
        CUDA(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < n; i++)
                f(m);
        CUDA(cudaStreamEndCapture(stream(), &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        for (int r = 0; r < 11; r++) {
                float ms = 0;
                CUDA(cudaEventRecord(x, stream()));
                CUDA(cudaGraphLaunch(exec, stream()));
                CUDA(cudaEventRecord(y, stream()));
                CUDA(cudaEventSynchronize(y));
                CUDA(cudaEventElapsedTime(&ms, x, y));
                if (r > 1)
                        t.push_back(ms / n);
        }
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
        std::sort(t.begin(), t.end());
        return t[t.size() / 2] * 1e3;
}

#endif
