/* cuda_api.h: the driver and NVRTC, opened with dlopen.
 *
 * The declarations are our own, so that builds need no CUDA and one binary runs
 * with and without a GPU.  Names carry the version of the ABI they declare. */
#ifndef TGC_CUDA_API_H
#define TGC_CUDA_API_H

#include <stddef.h>
#include "../util/err.h"

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
        CUDA_SUCCESS = 0,
        CUDA_ERROR_OUT_OF_MEMORY = 2,
        CUDA_ERROR_NO_DEVICE = 100,
        CU_ATTR_CLOCK = 13,
        CU_ATTR_SMS = 16,
        CU_ATTR_MAJOR = 75,
        CU_ATTR_MINOR = 76,
        CU_ATTR_SMEM_OPTIN = 97,
        CU_FUNC_MAX_DYNAMIC_SMEM = 8,
        CU_STREAM_NON_BLOCKING = 1,
        CU_HOST_REGISTER_MAPPED = 2,
        CU_EVENT_DEFAULT = 0,
        CU_EVENT_DISABLE_TIMING = 2,
        CU_CAPTURE_THREAD_LOCAL = 1,
        CU_TENSOR_MAP_F16 = 6,
        CU_TENSOR_MAP_BF16 = 9,
        CU_TENSOR_MAP_TF32 = 11,
        CU_TENSOR_MAP_SWIZZLE_32 = 1,
        CU_TENSOR_MAP_SWIZZLE_64 = 2,
        CU_TENSOR_MAP_SWIZZLE_128 = 3,
        CU_TENSOR_MAP_L2_256 = 3,
        CU_LAUNCH_CLUSTER = 4, /* size of a cluster */
        CU_LAUNCH_EARLY = 6    /* programmatic stream serialization */
};

typedef struct CUlaunchAttribute {
        int id, pad;
        union {
                char size[64];
                int allowed;
                unsigned cluster[3];
        } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
        unsigned gx, gy, gz, bx, by, bz, smem;
        CUstream stream;
        CUlaunchAttribute *attr;
        unsigned n_attr;
} CUlaunchConfig;

#define CUDA_FUNCTIONS(F)                                                                      \
        F(cuInit, (unsigned flags))                                                            \
        F(cuDriverGetVersion, (int *version))                                                  \
        F(cuGetErrorName, (CUresult r, const char **text))                                     \
        F(cuGetErrorString, (CUresult r, const char **text))                                   \
        F(cuDeviceGetCount, (int *n))                                                          \
        F(cuDeviceGet, (CUdevice * d, int index))                                              \
        F(cuDeviceGetName, (char *name, int cap, CUdevice d))                                  \
        F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice d))                       \
        F(cuDevicePrimaryCtxRetain, (CUcontext * c, CUdevice d))                               \
        F(cuDevicePrimaryCtxRelease_v2, (CUdevice d))                                          \
        F(cuCtxSetCurrent, (CUcontext c))                                                      \
        F(cuMemGetInfo_v2, (size_t * available, size_t * total))                               \
        F(cuMemAlloc_v2, (CUdeviceptr * p, size_t n))                                          \
        F(cuMemFree_v2, (CUdeviceptr p))                                                       \
        F(cuMemAllocHost_v2, (void **p, size_t n))                                             \
        F(cuMemFreeHost, (void *p))                                                            \
        F(cuMemHostRegister_v2, (void *p, size_t n, unsigned flags))                           \
        F(cuMemHostUnregister, (void *p))                                                      \
        F(cuMemHostGetDevicePointer_v2, (CUdeviceptr * to, void *p, unsigned flags))           \
        F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream s))      \
        F(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream s))            \
        F(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s))      \
        F(cuMemsetD8Async, (CUdeviceptr p, unsigned char x, size_t n, CUstream s))             \
        F(cuStreamCreate, (CUstream * s, unsigned flags))                                      \
        F(cuStreamSynchronize, (CUstream s))                                                   \
        F(cuStreamWaitEvent, (CUstream s, CUevent v, unsigned flags))                          \
        F(cuStreamDestroy_v2, (CUstream s))                                                    \
        F(cuStreamBeginCapture_v2, (CUstream s, int mode))                                     \
        F(cuStreamEndCapture, (CUstream s, CUgraph * g))                                       \
        F(cuGraphInstantiateWithFlags, (CUgraphExec * x, CUgraph g, unsigned long long flags)) \
        F(cuGraphLaunch, (CUgraphExec x, CUstream s))                                          \
        F(cuGraphExecDestroy, (CUgraphExec x))                                                 \
        F(cuGraphDestroy, (CUgraph g))                                                         \
        F(cuEventCreate, (CUevent * v, unsigned flags))                                        \
        F(cuEventRecord, (CUevent v, CUstream s))                                              \
        F(cuEventSynchronize, (CUevent v))                                                     \
        F(cuEventElapsedTime, (float *ms, CUevent from, CUevent to))                           \
        F(cuEventDestroy_v2, (CUevent v))                                                      \
        F(cuModuleLoadData, (CUmodule * m, const void *image))                                 \
        F(cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name))                 \
        F(cuModuleUnload, (CUmodule m))                                                        \
        F(cuFuncSetAttribute, (CUfunction f, int attribute, int value))                        \
        F(cuLaunchKernel,                                                                      \
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
           unsigned bz, unsigned smem, CUstream s, void **params, void **extra))               \
        F(cuTensorMapEncodeTiled,                                                              \
          (void *map, int type, unsigned rank, void *p, const unsigned long long *dims,        \
           const unsigned long long *strides, const unsigned *box, const unsigned *step,       \
           int interleave, int swizzle, int l2, int fill))                                     \
        F(cuLaunchKernelEx, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra))

typedef struct Cuda {
#define F(name, args) CUresult(*name) args;
        CUDA_FUNCTIONS(F)
#undef F
        int driver; /* 13000 is CUDA 13.0 */
} Cuda;

typedef struct NvrtcProgram_st *NvrtcProgram;

#define NVRTC_FUNCTIONS(F)                                                                  \
        F(nvrtcVersion, (int *major, int *minor))                                           \
        F(nvrtcGetNumSupportedArchs, (int *n))                                              \
        F(nvrtcGetSupportedArchs, (int *arch))                                              \
        F(nvrtcCreateProgram,                                                               \
          (NvrtcProgram * p, const char *text, const char *name, int n_headers,             \
           const char *const *headers, const char *const *names))                           \
        F(nvrtcDestroyProgram, (NvrtcProgram * p))                                          \
        F(nvrtcCompileProgram, (NvrtcProgram p, int n_options, const char *const *options)) \
        F(nvrtcGetCUBINSize, (NvrtcProgram p, size_t * n))                                  \
        F(nvrtcGetCUBIN, (NvrtcProgram p, char *cubin))                                     \
        F(nvrtcGetProgramLogSize, (NvrtcProgram p, size_t * n))                             \
        F(nvrtcGetProgramLog, (NvrtcProgram p, char *log))

typedef struct Nvrtc {
#define F(name, args) int(*name) args;
        NVRTC_FUNCTIONS(F)
#undef F
        int major, minor;
        char path[512];    /* of the library */
        char include[512]; /* folder with cuda_fp16.h; "" if not found */
} Nvrtc;

/* TGC_NO_DEVICE with the reason: no driver, no GPU, or one too old. */
int cuda_api_open(Cuda *c, Err *e);
/* Places: TGC_NVRTC (a file), TGC_CUDA_HOME, CUDA_HOME, CUDA_PATH, the loader's
 * own, /usr/local/cuda.  driver: prefer the NVRTC of that CUDA version; 0: any. */
int nvrtc_open(Nvrtc *n, int driver, Err *e);

#endif
