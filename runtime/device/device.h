/* device.h: one interface over the three devices.
 *
 * Device memory is addressed by `void *`; on cuda it must not be dereferenced.
 * All work goes to one queue in order; what reads back (download, fetched, sync)
 * waits for it.  A Device is used by one thread at a time, any thread; on cuda
 * the calls leave the GPU's primary context current in the calling thread. */
#ifndef TGC_DEVICE_H
#define TGC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"
#include "../plan/plan.h"
#include "../plan/program.h"
#include "../util/stop.h"

typedef enum { DEV_AUTO, DEV_CPU, DEV_CUDA, DEV_EMULATE } DevKind;

enum {
        DEV_FETCH_SLOTS = 16,       /* reads under way at once */
        DEV_FETCH_BYTES = 44 << 10, /* largest of them */
        DEV_PLACES = 2,             /* in the queue, for uploads ahead */
        DEV_MARKS = 8192,           /* time stamps */
        DEV_MOVES = 4096            /* copies beside the kernels of a program */
};

typedef struct Device Device;
typedef struct DevGraph DevGraph;

typedef struct DevOptions {
        int index;       /* which GPU, in CUDA_VISIBLE_DEVICES' order */
        int threads;     /* cpu: OpenMP threads; 0: OpenMP's own choice */
        int from_source; /* ignore compiled code in the plan */
        int no_cache;    /* neither read nor write the disk cache */
        /* wait after each launch, so that a fault names its kernel; no graphs.  TGC_SYNC=1 in the
         * environment does the same */
        int sync;
        Stop *stop; /* dev_load may be asked to end; NULL: it is not */
        /* told what is about to be compiled, once a dev_load at most, and not of what a cache has:
         * n "kernels" or "units" for "cpu", "sm_90a" ...; from any thread; NULL: nobody is */
        void (*compiling)(void *to, int n, const char *what, const char *target);
        void *compiling_to;
} DevOptions;

/* auto|cpu|cuda|emulate; -1: none of these. */
int dev_kind(const char *name);

/* DEV_AUTO is cuda when the driver sees a GPU, else cpu; a GPU that then cannot be
 * used is an error, not a reason to go on slowly.  o may be NULL. */
int dev_open(Device **d, DevKind kind, const DevOptions *o, Err *e);
void dev_close(Device *d); /* frees what the caller did not; NULL is fine */

DevKind dev_which(const Device *d);
const char *dev_name(const Device *d); /* "NVIDIA H100 80GB HBM3, sm_90a" */
/* sections: program.cpu or program.cuda => "cpu" "cuda" */
const char *dev_target(const Device *d);
int dev_host_memory(const Device *d); /* 1: addresses are ordinary pointers */
/* Bytes that dev_alloc had given at once; those that are gone by a GPU's driver's count since the
 * first of them (with code, graphs and what other processes took), 0: it has none. */
void dev_held(Device *d, uint64_t *most, uint64_t *driver);
int dev_memory(Device *d, uint64_t *available, uint64_t *total, Err *e);
uint64_t dev_host_free(void); /* bytes of the host that are free, as far as is known */

/* zeroed, 4096-aligned; size 0 gives NULL */
int dev_alloc(Device *d, size_t size, void **mem, Err *e);
void dev_free(Device *d, void *mem, size_t size);
/* Pinned memory of the host, zeroed, that kernels read and write where it lies, over the bus; in
 * the calls below it is memory of the device.  dev_held does not count it.  TGC_USAGE where all
 * memory is the host's (dev_host_memory). */
int dev_alloc_host(Device *d, size_t size, void **mem, Err *e);
void dev_free_host(Device *d, void *mem);
/* `from` is free on return */
int dev_upload(Device *d, void *to, const void *from, size_t n, Err *e);
int dev_download(Device *d, void *to, const void *from, size_t n, Err *e);
int dev_copy(Device *d, void *to, const void *from, size_t n, Err *e);
int dev_clear(Device *d, void *mem, size_t n, Err *e);
int dev_sync(Device *d, Err *e);

/* Read n <= DEV_FETCH_BYTES without waiting for what is queued later: fetch
 * queues the copy into a slot, fetched waits for that copy alone.  aside: what is queued later
 * does not wait for the copy either, and leaves `from` alone until fetched has returned, or
 * comes after settle, from which on the queue waits for the slot's copy. */
int dev_fetch(Device *d, int slot, const void *from, size_t n, bool aside, Err *e);
int dev_settle(Device *d, int slot, Err *e);
int dev_fetched(Device *d, int slot, void *to, size_t n, Err *e);

/* Uploads beside the queue.  passed marks where the queue is now, in place 0..DEV_PLACES-1. 
 * upload_ahead copies as soon as the queue has come to such a mark (a place never marked: at once),
 * whatever was queued after it and leaves `to` alone; `from` is free on return.  What is queued
 * after join waits for all of them. */
int dev_passed(Device *d, int place, Err *e);
int dev_upload_ahead(Device *d, int place, void *to, const void *from, size_t n, Err *e);
int dev_join(Device *d, Err *e);

/* Copies between the device's memory and dev_alloc_host's, beside the queue and one after the
 * other: move number i (0..DEV_MOVES-1) begins when what was queued before it is done; what is
 * queued after moved waits for it.  Until then nobody touches either side.  Both may be recorded in
 * a graph, moved after move. */
typedef struct DevMove {
        void *device, *host;
        size_t n;
        bool out; /* to the host */
} DevMove;
int dev_move(Device *d, int i, const DevMove *m, Err *e);
int dev_moved(Device *d, int i, const DevMove *m, Err *e);

/* Make the kernels of `prog` ready, from the plan's compiled code, the disk
 * cache or the plan's source.  One program per device, borrowed until dev_close.
 * need: by kernel, or NULL: all.  On cuda others may stay out, for further calls (with need) to ask
 * for. */
int dev_load(Device *d, const Plan *plan, const Program *prog, const char *need, Err *e);
const char *dev_load_note(const Device *d); /* for people: "12 units compiled in 1.400 s" */

/* what a person should know about it; "" if nothing */
const char *dev_load_warning(const Device *d);

/* Which forms its kernels have (program.h)?  Before dev_load: would those made from source? */
int dev_arch(const Device *d);
const FormDef *dev_form(const Device *d, const KernelDef *k); /* how it launches this kernel */
int dev_sms(const Device *d);
/* The tensor map of a matrix of 16-bit elements in device memory: MAP_BYTES at `out`, aligned to as
 * many.  Only where dev_arch has such maps. */
int dev_tensor_map(Device *d, void *out, const MapDef *m, void *matrix, Err *e);

/* Queue kernel number k of the loaded program; arg holds its n_args addresses, of a tensor map that
 * of its bytes on the host, which are free on return. */
int dev_launch(Device *d, int k, unsigned grid, void *const *arg, Err *e);

/* Between begin and end launches, copies and clears on the device are recorded
 * instead of executed.  Devices without graphs return 0 from dev_can_capture. */
int dev_can_capture(const Device *d);
int dev_capture_begin(Device *d, Err *e);
int dev_capture_end(Device *d, DevGraph **g, Err *e); /* ends the capture on failure too */
int dev_replay(Device *d, DevGraph *g, Err *e);
void dev_graph_free(Device *d, DevGraph *g);

/* Time stamps 0..DEV_MARKS-1 in the queue. */
int dev_mark(Device *d, int i, Err *e);
int dev_elapsed(Device *d, int from, int to, double *ms, Err *e); /* waits for `to` */

/* What no kernel can pass: bytes a second, read and written, as a copy that is timed here does it;
 * and operations a second in float32 and in 16 bits (tensor cores), from the GPU's clock and size. 
 * 0: not known. */
typedef struct Ceiling {
        double bytes, flops[2];
} Ceiling;
int dev_ceiling(Device *d, Ceiling *c, Err *e);

/* ---- building without a device, for `tgc compile` (dev_cuda.c, dev_cpu.c) ----
 * Both give a pack for plan_add, malloc'd: cubin.ARCH and object.cpu.  Neither
 * needs the hardware; the first needs NVRTC, the second a C compiler. */
int cuda_compile_plan(const Plan *plan, const char *arch, int no_cache, void **pack, size_t *size,
                      Err *e);
int cpu_compile_plan(const Plan *plan, int no_cache, Stop *stop, void **pack, size_t *size, Err *e);

/* One line each on what was found, for `tgc doctor`; status as of opening. */
int cuda_describe(char *out, size_t cap, Err *e);
int nvrtc_describe(char *out, size_t cap, Err *e);
int host_cc_describe(char *out, size_t cap, int cxx, Err *e);

#endif
