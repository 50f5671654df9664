/* dev_cuda.h: private to dev_cuda*.c: one GPU through the driver API. */
#ifndef TGC_DEV_CUDA_H
#define TGC_DEV_CUDA_H

#include "cuda_api.h"
#include "dev_impl.h"

enum { HOST_BLOCKS = 32 };
typedef struct HostBlock {
        void *mem;
        size_t size;
} HostBlock;

typedef struct CudaDevice {
        Device d;
        Cuda api;
        CUdevice gpu;
        CUcontext ctx;
        CUstream stream;
        char arch[16]; /* "sm_90a" */
        int smem_optin;
        /* launches may overlap: sm_90, CUDA 12.3 for graphs of such; not TGC_SERIAL */
        int pdl;
        CUmodule *module;
        int n_modules;
        CUfunction *fn; /* by kernel; NULL: not needed so far */
        /* made ready from source, and of them those that the cache had */
        int n_units, n_cached;
        double load_ms;
        char *staging; /* 2 * HALF, pinned */
        CUevent half_done[2];
        int half;
        size_t half_used;
        char *slot; /* DEV_FETCH_SLOTS * DEV_FETCH_BYTES, pinned */
        CUevent slot_ready[DEV_FETCH_SLOTS], slot_done[DEV_FETCH_SLOTS];
        CUstream aside; /* for copies that no kernel waits for */
        CUstream ahead; /* for uploads that wait for a place in the queue, not for its end */
        CUevent place[DEV_PLACES], joined;
        /* of dev_move, made when it is called first; a launch behind dev_moved may not overlap with
         * the one before */
        CUstream moves;
        CUevent leaving, move_done[DEV_MOVES];
        bool moved;
        CUevent mark[DEV_MARKS];
        HostBlock host[HOST_BLOCKS]; /* of dev_alloc_host, mapped here and registered */
} CudaDevice;

struct DevGraph {
        CUgraphExec exec;
};

/* ---- dev_cuda.c ---- */

int cuda_failed(CudaDevice *c, CUresult r, const char *doing, Err *e);

/* Return from the caller when a driver call fails. */
#define TRY(call, doing)                                     \
        do {                                                 \
                CUresult r_ = c->api.call;                   \
                if (r_)                                      \
                        return cuda_failed(c, r_, doing, e); \
        } while (0)

/* Every entry: this GPU is the calling thread's. */
#define ENTER                            \
        CudaDevice *c = (CudaDevice *)d; \
        TRY(cuCtxSetCurrent(c->ctx), "selecting the GPU")

/* ---- dev_cuda_host.c: pinned memory ---- */

int cuda_alloc_host(Device *d, size_t size, void **mem, Err *e);
void cuda_free_host(Device *d, void *mem);

/* ---- dev_cuda_code.c: kernels of a plan, from its cubins, the cache or NVRTC ---- */

/* need: by kernel, those that will run; NULL: all. */
int cuda_load(Device *d, const Plan *plan, const char *need, Err *e);
void cuda_unload(CudaDevice *c);

#endif
