/* cublas.h: the peers of Hopper's products: cuBLAS, and cuBLASLt with what it can do in a product's
 * epilogue; -lcublas -lcublasLt.
 *
 * A problem is row-major C = op(A) op(B), of M x N x K, which both take as the column-major Ct
 * (N,M) = op(B)t op(A)t.  Each takes its first choice of algorithm, cuBLASLt with 32 MiB of
 * workspace, as PyTorch does. */
#ifndef BENCH_CUBLAS_H
#define BENCH_CUBLAS_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include "gemm_sm90.h"

#define BLAS(call)                                                           \
        do {                                                                 \
                cublasStatus_t s_ = (call);                                  \
                if (s_ != CUBLAS_STATUS_SUCCESS) {                           \
                        printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                               cublasGetStatusString(s_));                   \
                        exit(1);                                             \
                }                                                            \
        } while (0)

/* C = op(A) op(B) of bf16 or (words) tf32, on stream 0. */
static void blas_run(const void *a, const void *b, void *c, Problem p, bool words)
{
        static cublasHandle_t handle;
        const float one = 1.f, zero = 0.f;
        const cudaDataType type = words ? CUDA_R_32F : CUDA_R_16BF;

        if (!handle)
                BLAS(cublasCreate(&handle));
        BLAS(cublasGemmEx(handle, p.TB ? CUBLAS_OP_T : CUBLAS_OP_N,
                          p.TA ? CUBLAS_OP_T : CUBLAS_OP_N, p.N, p.M, p.K, &one, b, type,
                          p.TB ? p.K : p.N, a, type, p.TA ? p.M : p.K, &zero, c, type, p.N,
                          words ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT));
}

/* What cuBLASLt's epilogue does that a mode's epilogue does: ADDED: the bias, and C read and added.
 *  GELU: bias and GELU, and what GELU was taken of stored (ours: its slope).  TIMES: times the
 *  slope of GELU, computed from that (ours: times that slope).
 * SUMMED: sums of A's rows. */
struct Fused {
        const char *name;
        Mode mode;
        cublasLtEpilogue_t epilogue;
        bool reads_c;
};
static const Fused fused[] = {
        { "cuBLASLt ADDED", ADDED, CUBLASLT_EPILOGUE_BIAS, true },
        { "cuBLASLt GELU", GELU, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, false },
        { "cuBLASLt TIMES", TIMES, CUBLASLT_EPILOGUE_DGELU, false },
        { "cuBLASLt SUMMED", SUMMED, CUBLASLT_EPILOGUE_BGRADB, false },
};

/* One such product of bf16, ready to run; bias, what is kept and what is added lie where the modes
 * of product_epilogues.h have them. */
struct Lt {
        cublasLtHandle_t handle;
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t a, b, c;
        cublasLtMatmulAlgo_t algo;
        void *space;
        bool reads_c;
};

enum { LT_SPACE = 32 << 20 };

/* false: it has no such product. */
static bool lt_open(Lt *lt, const Fused &f, const Data &d, Problem p)
{
        const cublasOperation_t op_a = p.TB ? CUBLAS_OP_T : CUBLAS_OP_N,
                                op_b = p.TA ? CUBLAS_OP_T : CUBLAS_OP_N;
        const void *bias = f.mode == SUMMED ? d.sums : d.ws,
                   *aux = (char *)d.ws + (f.mode == GELU ? (size_t)p.M * p.N * 2 : 0);
        const int64_t ld = p.N;
        const size_t space = LT_SPACE;
        cublasLtMatmulPreference_t wish;
        cublasLtMatmulHeuristicResult_t got;
        int n = 0;
        const auto set = [&](cublasLtMatmulDescAttributes_t what, const void *to, size_t bytes) {
                BLAS(cublasLtMatmulDescSetAttribute(lt->desc, what, to, bytes));
        };

        *lt = {};
        lt->reads_c = f.reads_c;
        CUDA(cudaMalloc(&lt->space, LT_SPACE));
        BLAS(cublasLtCreate(&lt->handle));
        BLAS(cublasLtMatmulDescCreate(&lt->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        set(CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
        set(CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, &f.epilogue, sizeof f.epilogue);
        if (f.mode != TIMES)
                set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        if (f.mode == TIMES || f.mode == GELU) {
                set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
                set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
        }
        BLAS(cublasLtMatrixLayoutCreate(&lt->a, CUDA_R_16BF, p.TB ? p.K : p.N, p.TB ? p.N : p.K,
                                        p.TB ? p.K : p.N));
        BLAS(cublasLtMatrixLayoutCreate(&lt->b, CUDA_R_16BF, p.TA ? p.M : p.K, p.TA ? p.K : p.M,
                                        p.TA ? p.M : p.K));
        BLAS(cublasLtMatrixLayoutCreate(&lt->c, CUDA_R_16BF, p.N, p.M, p.N));
        BLAS(cublasLtMatmulPreferenceCreate(&wish));
        BLAS(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &space, sizeof space));
        const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->desc, lt->a, lt->b,
                                                                lt->c, lt->c, wish, 1, &got, &n);
        cublasLtMatmulPreferenceDestroy(wish);
        lt->algo = got.algo;
        return s == CUBLAS_STATUS_SUCCESS && n == 1;
}

/* Also of one that did not open. */
static void lt_close(Lt *lt)
{
        if (!lt->handle)
                return;
        cublasLtMatrixLayoutDestroy(lt->a);
        cublasLtMatrixLayoutDestroy(lt->b);
        cublasLtMatrixLayoutDestroy(lt->c);
        cublasLtMatmulDescDestroy(lt->desc);
        cublasLtDestroy(lt->handle);
        cudaFree(lt->space);
        lt->handle = 0;
}

/* With d's copy `i` of B, on stream 0. */
static void lt_run(const Lt *lt, const Data &d, Problem p, int i)
{
        const float one = 1.f, beta = lt->reads_c ? 1.f : 0.f;
        BLAS(cublasLtMatmul(lt->handle, lt->desc, &one,
                            (bf16 *)d.b + (size_t)(i % d.copies) * p.N * p.K, lt->a, d.a, lt->b,
                            &beta, lt->reads_c ? (void *)d.ws : d.c, lt->c, d.c, lt->c, &lt->algo,
                            lt->space, LT_SPACE, 0));
}

#endif
