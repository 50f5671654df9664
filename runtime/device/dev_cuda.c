/* dev_cuda.c: one GPU through the driver API, one stream.
 *
 * Uploads go through pinned memory in two halves: the host fills one while the copy engine empties
 * the other, and small uploads never wait for kernels queued before them.  The primary context is
 * retained and released, so that closing leaves the GPU's memory as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dev_cuda.h"
#include "nvrtc.h"
#include "../util/parallel.h"

enum { HALF = 16 << 20, SLICE = 2 << 20 };

int cuda_failed(CudaDevice *c, CUresult r, const char *doing, Err *e)
{
        const char *name = "?", *text = "?";
        c->api.cuGetErrorName(r, &name);
        c->api.cuGetErrorString(r, &text);
        return err_set(e, r == CUDA_ERROR_OUT_OF_MEMORY ? TGC_NO_MEMORY : TGC_NO_DEVICE,
                       "%s: %s failed: %s (%s)", c->d.name, doing, text, name);
}

static CUdeviceptr addr(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* ---- memory ---- */

static int cuda_memory(Device *d, uint64_t *available, uint64_t *total, Err *e)
{
        size_t a, t;
        ENTER;
        TRY(cuMemGetInfo_v2(&a, &t), "asking for memory");
        *available = a;
        *total = t;
        return TGC_OK;
}

/* Operations of a multiprocessor in a clock: float32, and 16-bit products added up in float32
 * (NVIDIA's white papers of each generation). */
static void cuda_peak(Device *d, double flops[2])
{
        static const struct {
                int sm, f32, half;
        } known[] = {
                { 80, 128, 2048 }, { 86, 256, 512 },   { 87, 256, 1024 },  { 89, 256, 1024 },
                { 90, 256, 4096 }, { 100, 256, 8192 }, { 103, 256, 8192 }, { 120, 256, 512 },
        };
        CudaDevice *c = (CudaDevice *)d;
        int khz = 0, sm = atoi(c->arch + 3);
        if (c->api.cuDeviceGetAttribute(&khz, CU_ATTR_CLOCK, c->gpu))
                return;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (known[i].sm == sm) {
                        flops[0] = 1e3 * khz * c->d.sms * known[i].f32;
                        flops[1] = 1e3 * khz * c->d.sms * known[i].half;
                }
}

static int cuda_alloc(Device *d, size_t size, void **mem, Err *e)
{
        CUdeviceptr p;
        ENTER;
        CUresult r = c->api.cuMemAlloc_v2(&p, size);
        if (r == CUDA_ERROR_OUT_OF_MEMORY) {
                size_t a = 0, t = 0;
                c->api.cuMemGetInfo_v2(&a, &t);
                return err_set(e, TGC_NO_MEMORY, "%s: %.2f GB needed, %.2f of %.2f GB free",
                               d->name, (double)size / 1e9, (double)a / 1e9, (double)t / 1e9);
        }
        if (r)
                return cuda_failed(c, r, "allocating memory", e);
        *mem = (void *)(uintptr_t)p;
        TRY(cuMemsetD8Async(p, 0, size, c->stream), "clearing memory");
        return TGC_OK;
}

static void cuda_free(Device *d, void *mem, size_t size)
{
        CudaDevice *c = (CudaDevice *)d;
        (void)size;
        c->api.cuCtxSetCurrent(c->ctx);
        c->api.cuStreamSynchronize(c->stream);
        c->api.cuMemFree_v2(addr(mem));
}

/* One thread copies slower than the bus takes it. */
typedef struct Slices {
        char *to;
        const char *from;
        size_t n;
} Slices;

static void copy_slice(void *ctx, int i)
{
        Slices *x = ctx;
        size_t at = (size_t)i * SLICE;
        memcpy(x->to + at, x->from + at, x->n - at < SLICE ? x->n - at : SLICE);
}

static int cuda_passed(Device *d, int place, Err *e)
{
        ENTER;
        TRY(cuEventRecord(c->place[place], c->stream), "recording an event");
        return TGC_OK;
}

static int cuda_join(Device *d, Err *e)
{
        ENTER;
        TRY(cuEventRecord(c->joined, c->ahead), "recording an event");
        TRY(cuStreamWaitEvent(c->stream, c->joined, 0), "waiting for an event");
        return TGC_OK;
}

/* n <= HALF bytes of pinned memory that no earlier copy still reads. */
static int stage(CudaDevice *c, size_t n, char **to, Err *e)
{
        if (c->half_used + n > HALF) {
                int code = cuda_join(&c->d, e);
                if (code)
                        return code;
                TRY(cuEventRecord(c->half_done[c->half], c->stream), "recording an event");
                c->half = !c->half;
                c->half_used = 0;
                TRY(cuEventSynchronize(c->half_done[c->half]), "waiting for the GPU");
        }
        *to = c->staging + (size_t)c->half * HALF + c->half_used;
        c->half_used += (n + 255) / 256 * 256;
        return TGC_OK;
}

static int upload(CudaDevice *c, void *to, const void *from, size_t n, CUstream s, Err *e)
{
        for (size_t at = 0; at < n; at += HALF) {
                Slices x = { 0, (const char *)from + at, n - at < HALF ? n - at : HALF };
                int code = stage(c, x.n, &x.to, e);
                if (code)
                        return code;
                parallel_for((int)((x.n + SLICE - 1) / SLICE), 8, copy_slice, &x);
                TRY(cuMemcpyHtoDAsync_v2(addr(to) + at, x.to, x.n, s), "uploading");
        }
        return TGC_OK;
}

static int cuda_upload(Device *d, void *to, const void *from, size_t n, Err *e)
{
        ENTER;
        return upload(c, to, from, n, c->stream, e);
}

static int cuda_upload_ahead(Device *d, int place, void *to, const void *from, size_t n, Err *e)
{
        ENTER;
        TRY(cuStreamWaitEvent(c->ahead, c->place[place], 0), "waiting for an event");
        return upload(c, to, from, n, c->ahead, e);
}

static int cuda_sync(Device *d, Err *e)
{
        ENTER;
        TRY(cuStreamSynchronize(c->stream), "a kernel");
        return TGC_OK;
}

/* Piece by piece through pinned memory: while one is copied out of a half, the next comes into the
 * other.  The driver's own way through pageable memory is many times slower. */
static int download_pinned(CudaDevice *c, char *to, const char *from, size_t n, Err *e)
{
        Slices was = { 0 };
        for (size_t at = 0; at < n || was.n;) {
                char *pinned = NULL;
                const size_t k = n - at < HALF ? n - at : HALF;
                const int half = c->half;
                int code = k ? stage(c, HALF, &pinned, e) : TGC_OK;
                if (code)
                        return code;
                if (k)
                        TRY(cuMemcpyDtoHAsync_v2(pinned, addr(from) + at, k, c->stream),
                            "downloading");
                if (was.n && k) /* stage has marked the end of its copy */
                        TRY(cuEventSynchronize(c->half_done[half]), "a kernel");
                else if (was.n)
                        TRY(cuStreamSynchronize(c->stream), "a kernel");
                parallel_for((int)((was.n + SLICE - 1) / SLICE), 8, copy_slice, &was);
                was = (Slices) { to + at, pinned, k };
                at += k;
        }
        return TGC_OK;
}

static int cuda_download(Device *d, void *to, const void *from, size_t n, Err *e)
{
        ENTER;
        if (n > SLICE)
                return download_pinned(c, to, from, n, e);
        TRY(cuMemcpyDtoHAsync_v2(to, addr(from), n, c->stream), "downloading");
        TRY(cuStreamSynchronize(c->stream), "a kernel");
        return TGC_OK;
}

static int cuda_copy(Device *d, void *to, const void *from, size_t n, Err *e)
{
        ENTER;
        TRY(cuMemcpyDtoDAsync_v2(addr(to), addr(from), n, c->stream), "copying");
        return TGC_OK;
}

static int cuda_clear(Device *d, void *mem, size_t n, Err *e)
{
        ENTER;
        TRY(cuMemsetD8Async(addr(mem), 0, n, c->stream), "clearing");
        return TGC_OK;
}

static int cuda_fetch(Device *d, int slot, const void *from, size_t n, bool aside, Err *e)
{
        ENTER;
        CUstream s = aside ? c->aside : c->stream;
        if (aside) {
                TRY(cuEventRecord(c->slot_ready[slot], c->stream), "recording an event");
                TRY(cuStreamWaitEvent(s, c->slot_ready[slot], 0), "waiting for an event");
        }
        TRY(cuMemcpyDtoHAsync_v2(c->slot + slot * DEV_FETCH_BYTES, addr(from), n, s),
            "downloading");
        TRY(cuEventRecord(c->slot_done[slot], s), "recording an event");
        return TGC_OK;
}

static int cuda_move(Device *d, int i, const DevMove *m, Err *e)
{
        ENTER;
        if (!c->moves) {
                TRY(cuStreamCreate(&c->moves, CU_STREAM_NON_BLOCKING), "creating a stream");
                TRY(cuEventCreate(&c->leaving, CU_EVENT_DISABLE_TIMING), "creating an event");
        }
        if (!c->move_done[i])
                TRY(cuEventCreate(&c->move_done[i], CU_EVENT_DISABLE_TIMING), "creating an event");
        TRY(cuEventRecord(c->leaving, c->stream), "recording an event");
        TRY(cuStreamWaitEvent(c->moves, c->leaving, 0), "waiting for an event");
        if (m->out)
                TRY(cuMemcpyDtoHAsync_v2(m->host, addr(m->device), m->n, c->moves), "moving out");
        else
                TRY(cuMemcpyHtoDAsync_v2(addr(m->device), m->host, m->n, c->moves), "moving in");
        TRY(cuEventRecord(c->move_done[i], c->moves), "recording an event");
        return TGC_OK;
}

static int cuda_moved(Device *d, int i, Err *e)
{
        ENTER;
        TRY(cuStreamWaitEvent(c->stream, c->move_done[i], 0), "waiting for an event");
        c->moved = true;
        return TGC_OK;
}

static int cuda_settle(Device *d, int slot, Err *e)
{
        ENTER;
        TRY(cuStreamWaitEvent(c->stream, c->slot_done[slot], 0), "waiting for an event");
        return TGC_OK;
}

static int cuda_fetched(Device *d, int slot, void *to, size_t n, Err *e)
{
        ENTER;
        TRY(cuEventSynchronize(c->slot_done[slot]), "a kernel");
        memcpy(to, c->slot + slot * DEV_FETCH_BYTES, n);
        return TGC_OK;
}

/* ---- launches ---- */

static int cuda_launch(Device *d, int k, unsigned grid, void *const *arg, Err *e)
{
        const KernelDef *def = &d->prog->kernel[k];
        void *param[PROGRAM_MAX_ARGS];
        char doing[100];
        ENTER;
        for (int i = 0; i < def->n_args; i++)
                param[i] = def->arg && def->arg[i].arena == REF_MAP ? arg[i] : (void *)&arg[i];
        CUlaunchAttribute attr[2];
        const FormDef *form = dev_form(d, def);
        unsigned threads = (unsigned)form->threads, n_attr = 0;
        if (def->pdl && c->pdl && !c->moved)
                attr[n_attr++] = (CUlaunchAttribute) { .id = CU_LAUNCH_EARLY,
                                                       .value = { .allowed = 1 } };
        c->moved = false;
        if (form->cluster)
                attr[n_attr++] = (CUlaunchAttribute) {
                        .id = CU_LAUNCH_CLUSTER, .value = { .cluster = { form->cluster, 1, 1 } }
                };
        if (form->persistent) /* an even number: some work in pairs */
                grid = grid < (unsigned)c->d.sms ? grid : (unsigned)c->d.sms & ~1u;
        CUlaunchConfig how = { grid, 1, 1, threads, 1, 1, form->smem, c->stream, attr, n_attr };
        CUresult r = n_attr ? c->api.cuLaunchKernelEx(&how, c->fn[k], param, 0)
                            : c->api.cuLaunchKernel(c->fn[k], grid, 1, 1, threads, 1, 1, form->smem,
                                                    c->stream, param, 0);
        if (!r && d->opt.sync)
                r = c->api.cuStreamSynchronize(c->stream);
        if (r) {
                snprintf(doing, sizeof doing, "kernel %.60s (grid %u)", def->name, grid);
                return cuda_failed(c, r, doing, e);
        }
        return TGC_OK;
}

/* As kernels/gemm/gemm_sm90.cuh wants it: swizzled boxes, zeros outside. */
static int cuda_tensor_map(Device *d, void *out, const MapDef *m, void *matrix, Err *e)
{
        static const int type[] = { [MAP_BF16] = CU_TENSOR_MAP_BF16,
                                    [MAP_F16] = CU_TENSOR_MAP_F16,
                                    [MAP_TF32] = CU_TENSOR_MAP_TF32 };
        const unsigned long long dims[2] = { m->cols, m->rows }, strides[1] = { m->ld * m->elem };
        const unsigned box[2] = { (unsigned)(m->box_bytes / m->elem), (unsigned)m->box_rows },
                       step[2] = { 1, 1 };
        const int swizzle = m->box_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128
                            : m->box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64
                                                 : CU_TENSOR_MAP_SWIZZLE_32;
        ENTER;
        TRY(cuTensorMapEncodeTiled(out, type[m->type], 2, matrix, dims, strides, box, step, 0,
                                   swizzle, CU_TENSOR_MAP_L2_256, 0),
            "making a tensor map");
        return TGC_OK;
}

/* ---- graphs ---- */

static int cuda_capture_begin(Device *d, Err *e)
{
        ENTER;
        TRY(cuStreamBeginCapture_v2(c->stream, CU_CAPTURE_THREAD_LOCAL), "beginning a graph");
        return TGC_OK;
}

static int cuda_capture_end(Device *d, DevGraph **out, Err *e)
{
        CUgraph g = 0;
        ENTER;
        TRY(cuStreamEndCapture(c->stream, &g), "recording a graph");
        DevGraph *graph = calloc(1, sizeof *graph);
        CUresult r = graph ? c->api.cuGraphInstantiateWithFlags(&graph->exec, g, 0)
                           : CUDA_ERROR_OUT_OF_MEMORY;
        c->api.cuGraphDestroy(g);
        if (r) {
                free(graph);
                return cuda_failed(c, r, "building a graph", e);
        }
        *out = graph;
        return TGC_OK;
}

static int cuda_replay(Device *d, DevGraph *g, Err *e)
{
        ENTER;
        TRY(cuGraphLaunch(g->exec, c->stream), "launching a graph");
        return TGC_OK;
}

static void cuda_graph_free(Device *d, DevGraph *g)
{
        CudaDevice *c = (CudaDevice *)d;
        c->api.cuCtxSetCurrent(c->ctx);
        c->api.cuStreamSynchronize(c->stream);
        c->api.cuGraphExecDestroy(g->exec);
        free(g);
}

/* ---- time ---- */

static int cuda_mark(Device *d, int i, Err *e)
{
        ENTER;
        if (!c->mark[i])
                TRY(cuEventCreate(&c->mark[i], CU_EVENT_DEFAULT), "creating an event");
        TRY(cuEventRecord(c->mark[i], c->stream), "recording an event");
        return TGC_OK;
}

static int cuda_elapsed(Device *d, int from, int to, double *ms, Err *e)
{
        float t;
        ENTER;
        if (!c->mark[from] || !c->mark[to])
                return err_set(e, TGC_FAIL, "time stamps %d and %d were not taken", from, to);
        TRY(cuEventSynchronize(c->mark[to]), "a kernel");
        TRY(cuEventElapsedTime(&t, c->mark[from], c->mark[to]), "reading time stamps");
        *ms = t;
        return TGC_OK;
}

/* ---- opening and closing ---- */

static void cuda_close(Device *d)
{
        CudaDevice *c = (CudaDevice *)d;
        if (c->ctx) {
                c->api.cuCtxSetCurrent(c->ctx);
                if (c->stream)
                        c->api.cuStreamSynchronize(c->stream);
                if (c->aside)
                        c->api.cuStreamSynchronize(c->aside);
                if (c->ahead)
                        c->api.cuStreamSynchronize(c->ahead);
                if (c->moves)
                        c->api.cuStreamSynchronize(c->moves);
                cuda_unload(c);
                for (int i = 0; i < DEV_MOVES; i++)
                        if (c->move_done[i])
                                c->api.cuEventDestroy_v2(c->move_done[i]);
                if (c->leaving)
                        c->api.cuEventDestroy_v2(c->leaving);
                if (c->moves)
                        c->api.cuStreamDestroy_v2(c->moves);
                for (int i = 0; i < DEV_MARKS; i++)
                        if (c->mark[i])
                                c->api.cuEventDestroy_v2(c->mark[i]);
                for (int i = 0; i < DEV_FETCH_SLOTS; i++)
                        for (int k = 0; k < 2; k++) {
                                CUevent v = k ? c->slot_ready[i] : c->slot_done[i];
                                if (v)
                                        c->api.cuEventDestroy_v2(v);
                        }
                for (int i = 0; i < 2; i++)
                        if (c->half_done[i])
                                c->api.cuEventDestroy_v2(c->half_done[i]);
                for (int i = 0; i < DEV_PLACES; i++)
                        if (c->place[i])
                                c->api.cuEventDestroy_v2(c->place[i]);
                if (c->joined)
                        c->api.cuEventDestroy_v2(c->joined);
                if (c->staging)
                        c->api.cuMemFreeHost(c->staging);
                if (c->slot)
                        c->api.cuMemFreeHost(c->slot);
                if (c->aside)
                        c->api.cuStreamDestroy_v2(c->aside);
                if (c->ahead)
                        c->api.cuStreamDestroy_v2(c->ahead);
                if (c->stream)
                        c->api.cuStreamDestroy_v2(c->stream);
                c->api.cuCtxSetCurrent(0);
                c->api.cuDevicePrimaryCtxRelease_v2(c->gpu);
        }
        free(c);
}

static int set_up(CudaDevice *c, Err *e)
{
        int n = 0, major = 0, minor = 0;
        char gpu_name[128] = "GPU";
        void *pinned;

        snprintf(c->d.name, sizeof c->d.name, "GPU %d", c->d.opt.index);
        TRY(cuDeviceGetCount(&n), "counting GPUs");
        if (c->d.opt.index >= n)
                return err_set(e, TGC_NO_DEVICE, "no GPU %d: %d visible", c->d.opt.index, n);
        TRY(cuDeviceGet(&c->gpu, c->d.opt.index), "finding the GPU");
        TRY(cuDeviceGetName(gpu_name, sizeof gpu_name, c->gpu), "asking for the GPU's name");
        TRY(cuDeviceGetAttribute(&major, CU_ATTR_MAJOR, c->gpu), "asking for the GPU's kind");
        TRY(cuDeviceGetAttribute(&minor, CU_ATTR_MINOR, c->gpu), "asking for the GPU's kind");
        TRY(cuDeviceGetAttribute(&c->smem_optin, CU_ATTR_SMEM_OPTIN, c->gpu),
            "asking for shared memory");
        TRY(cuDeviceGetAttribute(&c->d.sms, CU_ATTR_SMS, c->gpu), "asking for the GPU's size");
        snprintf(c->arch, sizeof c->arch, "sm_%d%d%s", major, minor,
                 major == 9 && minor == 0 ? "a" : "");
        snprintf(c->d.name, sizeof c->d.name, "%.120s, %s", gpu_name, c->arch);
        c->d.arch = arch_of(c->arch);
        c->pdl = major >= 9 && c->api.driver >= 12030 && !getenv("TGC_SERIAL");
        if (major < 8)
                return err_set(e, TGC_NO_DEVICE,
                               "%s is too old: the kernels need compute capability 8.0", c->d.name);
        TRY(cuDevicePrimaryCtxRetain(&c->ctx, c->gpu), "opening the GPU");
        TRY(cuCtxSetCurrent(c->ctx), "selecting the GPU");
        TRY(cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING), "creating a stream");
        TRY(cuStreamCreate(&c->aside, CU_STREAM_NON_BLOCKING), "creating a stream");
        TRY(cuStreamCreate(&c->ahead, CU_STREAM_NON_BLOCKING), "creating a stream");
        TRY(cuMemAllocHost_v2(&pinned, 2 * (size_t)HALF), "allocating pinned memory");
        c->staging = pinned;
        TRY(cuMemAllocHost_v2(&pinned, DEV_FETCH_SLOTS * DEV_FETCH_BYTES),
            "allocating pinned memory");
        c->slot = pinned;
        for (int i = 0; i < 2; i++)
                TRY(cuEventCreate(&c->half_done[i], CU_EVENT_DISABLE_TIMING), "creating an event");
        for (int i = 0; i < DEV_PLACES; i++)
                TRY(cuEventCreate(&c->place[i], CU_EVENT_DISABLE_TIMING), "creating an event");
        TRY(cuEventCreate(&c->joined, CU_EVENT_DISABLE_TIMING), "creating an event");
        for (int i = 0; i < DEV_FETCH_SLOTS; i++) {
                TRY(cuEventCreate(&c->slot_ready[i], CU_EVENT_DISABLE_TIMING), "creating an event");
                TRY(cuEventCreate(&c->slot_done[i], CU_EVENT_DISABLE_TIMING), "creating an event");
        }
        return TGC_OK;
}

static const DevOps cuda_ops = { .close = cuda_close,
                                 .memory = cuda_memory,
                                 .alloc = cuda_alloc,
                                 .free = cuda_free,
                                 .alloc_host = cuda_alloc_host,
                                 .free_host = cuda_free_host,
                                 .upload = cuda_upload,
                                 .download = cuda_download,
                                 .copy = cuda_copy,
                                 .clear = cuda_clear,
                                 .sync = cuda_sync,
                                 .fetch = cuda_fetch,
                                 .settle = cuda_settle,
                                 .fetched = cuda_fetched,
                                 .passed = cuda_passed,
                                 .upload_ahead = cuda_upload_ahead,
                                 .join = cuda_join,
                                 .move = cuda_move,
                                 .moved = cuda_moved,
                                 .load = cuda_load,
                                 .launch = cuda_launch,
                                 .mark = cuda_mark,
                                 .elapsed = cuda_elapsed,
                                 .peak = cuda_peak,
                                 .tensor_map = cuda_tensor_map,
                                 .capture_begin = cuda_capture_begin,
                                 .capture_end = cuda_capture_end,
                                 .replay = cuda_replay,
                                 .graph_free = cuda_graph_free };

int dev_open_cuda(Device **out, const DevOptions *o, Err *e)
{
        CudaDevice *c = calloc(1, sizeof *c);
        if (!c)
                return err_set(e, TGC_NO_MEMORY, "no memory for a device");
        c->d.ops = &cuda_ops;
        c->d.kind = DEV_CUDA;
        c->d.opt = *o;
        c->d.opt.sync |= getenv("TGC_SYNC") != 0;
        int code = cuda_api_open(&c->api, e);
        if (!code)
                code = set_up(c, e);
        if (code) {
                cuda_close(&c->d);
                return code;
        }
        *out = &c->d;
        return TGC_OK;
}
