/* dev_cuda_host.c: pinned memory of the host.
 *
 * The driver's own way clears and pins page after page in one thread: seconds for each 10 GB.  Here
 * several threads touch an ordinary mapping, of huge pages where the system has them, and the
 * driver pins what is there.  Where it refuses to, or would give kernels another address, the
 * driver's own way is taken. */
#include <string.h>
#include <sys/mman.h>
#include "dev_cuda.h"
#include "../util/parallel.h"

enum { SLICE = 8 << 20, THREADS = 32 };

typedef struct Touch {
        volatile char *mem;
        size_t n;
} Touch;

/* Pages come zeroed. */
static void touch_slice(void *ctx, int i)
{
        const Touch *t = ctx;
        const size_t at = (size_t)i * SLICE, end = t->n - at < SLICE ? t->n : at + SLICE;
        for (size_t k = at; k < end; k += 4096)
                t->mem[k] = 0;
}

static void clear_slice(void *ctx, int i)
{
        const Touch *t = ctx;
        const size_t at = (size_t)i * SLICE;
        memset((char *)t->mem + at, 0, t->n - at < SLICE ? t->n - at : SLICE);
}

/* NULL: not so. */
static void *pin_mapping(CudaDevice *c, size_t size)
{
        CUdeviceptr there;
        Touch t = { .n = size };
        void *p;
        if (host_alloc(&c->d, size, &p, NULL))
                return NULL;
        madvise(p, size, MADV_DONTFORK); /* a fork would copy pinned pages */
        t.mem = p;
        parallel_for((int)((size + SLICE - 1) / SLICE), THREADS, touch_slice, &t);
        if (!c->api.cuMemHostRegister_v2(p, size, CU_HOST_REGISTER_MAPPED)) {
                if (!c->api.cuMemHostGetDevicePointer_v2(&there, p, 0) &&
                    there == (CUdeviceptr)(uintptr_t)p)
                        return p;
                c->api.cuMemHostUnregister(p);
        }
        host_free(&c->d, p, size);
        return NULL;
}

int cuda_alloc_host(Device *d, size_t size, void **mem, Err *e)
{
        int i = 0;
        void *p;
        ENTER;
        while (i < HOST_BLOCKS && c->host[i].mem)
                i++;
        if (i < HOST_BLOCKS && (p = pin_mapping(c, size))) {
                c->host[i] = (HostBlock) { p, size };
                *mem = p;
                return TGC_OK;
        }
        CUresult r = c->api.cuMemAllocHost_v2(&p, size);
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
                return err_set(e, TGC_NO_MEMORY,
                               "%.2f GB of pinned host memory needed, %.2f GB free",
                               (double)size / 1e9, (double)dev_host_free() / 1e9);
        if (r)
                return cuda_failed(c, r, "allocating pinned memory", e);
        Touch t = { p, size };
        parallel_for((int)((size + SLICE - 1) / SLICE), THREADS, clear_slice, &t);
        *mem = p;
        return TGC_OK;
}

void cuda_free_host(Device *d, void *mem)
{
        CudaDevice *c = (CudaDevice *)d;
        c->api.cuCtxSetCurrent(c->ctx);
        c->api.cuStreamSynchronize(c->stream);
        for (int i = 0; i < HOST_BLOCKS; i++)
                if (c->host[i].mem == mem) {
                        c->api.cuMemHostUnregister(mem);
                        host_free(d, mem, c->host[i].size);
                        c->host[i] = (HostBlock) { 0 };
                        return;
                }
        c->api.cuMemFreeHost(mem);
}
