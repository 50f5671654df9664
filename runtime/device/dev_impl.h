/* dev_impl.h: private to runtime/device: what the three devices share.
 *
 * A device is a struct that begins with Device, and a table of functions.
 * device.c checks arguments, so the functions need not. */
#ifndef TGC_DEV_IMPL_H
#define TGC_DEV_IMPL_H

#include "device.h"

typedef struct DevOps {
        void (*close)(Device *d);
        int (*memory)(Device *d, uint64_t *available, uint64_t *total, Err *e);
        int (*alloc)(Device *d, size_t size, void **mem, Err *e);
        void (*free)(Device *d, void *mem, size_t size);
        int (*alloc_host)(Device *d, size_t size, void **mem, Err *e); /* NULL: all memory is */
        void (*free_host)(Device *d, void *mem);
        int (*upload)(Device *d, void *to, const void *from, size_t n, Err *e);
        int (*download)(Device *d, void *to, const void *from, size_t n, Err *e);
        int (*copy)(Device *d, void *to, const void *from, size_t n, Err *e);
        int (*clear)(Device *d, void *mem, size_t n, Err *e);
        int (*sync)(Device *d, Err *e);
        int (*fetch)(Device *d, int slot, const void *from, size_t n, bool aside, Err *e);
        int (*settle)(Device *d, int slot, Err *e); /* NULL where copies are done at once */
        int (*fetched)(Device *d, int slot, void *to, size_t n, Err *e);
        /* all three NULL where copies are done at once */
        int (*passed)(Device *d, int place, Err *e);
        int (*upload_ahead)(Device *d, int place, void *to, const void *from, size_t n, Err *e);
        int (*join)(Device *d, Err *e);
        /* both NULL where all memory is the host's */
        int (*move)(Device *d, int i, const DevMove *m, Err *e);
        int (*moved)(Device *d, int i, Err *e);
        int (*load)(Device *d, const Plan *plan, const char *need, Err *e);
        int (*launch)(Device *d, int k, unsigned grid, void *const *arg, Err *e);
        int (*mark)(Device *d, int i, Err *e);
        int (*elapsed)(Device *d, int from, int to, double *ms, Err *e);
        void (*peak)(Device *d, double flops[2]); /* NULL: not known */
        /* NULL: it has no such maps */
        int (*tensor_map)(Device *d, void *out, const MapDef *m, void *matrix, Err *e);
        /* NULL on devices without graphs */
        int (*capture_begin)(Device *d, Err *e);
        int (*capture_end)(Device *d, DevGraph **g, Err *e);
        int (*replay)(Device *d, DevGraph *g, Err *e);
        void (*graph_free)(Device *d, DevGraph *g);
} DevOps;

struct Device {
        const DevOps *ops;
        DevKind kind;
        DevOptions opt;
        const Program *prog;      /* loaded; borrowed */
        int arch;                 /* FORM_* of the code loaded */
        int sms;                  /* multiprocessors of a GPU; 0: it is none */
        uint64_t held, most_held; /* bytes that dev_alloc gave */
        uint64_t free_before;     /* of a GPU's memory, before the first of them */
        bool no_graphs;           /* the code loaded cannot be replayed */
        char name[192], note[160], warning[160];
};

int dev_open_cpu(Device **d, const DevOptions *o, Err *e);
int dev_open_emulate(Device **d, const DevOptions *o, Err *e);
int dev_open_cuda(Device **d, const DevOptions *o, Err *e);

/* Memory, copies and clocks of the devices that work in host memory (dev_host.c). */
typedef struct HostDevice {
        Device d;
        char slot[DEV_FETCH_SLOTS][DEV_FETCH_BYTES];
        double mark[DEV_MARKS]; /* ms */
} HostDevice;

int host_memory(Device *d, uint64_t *available, uint64_t *total, Err *e);
int host_alloc(Device *d, size_t size, void **mem, Err *e);
void host_free(Device *d, void *mem, size_t size);
int host_copy(Device *d, void *to, const void *from, size_t n, Err *e);
int host_clear(Device *d, void *mem, size_t n, Err *e);
int host_sync(Device *d, Err *e);
int host_fetch(Device *d, int slot, const void *from, size_t n, bool aside, Err *e);
int host_fetched(Device *d, int slot, void *to, size_t n, Err *e);
int host_mark(Device *d, int i, Err *e);
int host_elapsed(Device *d, int from, int to, double *ms, Err *e);
double clock_ms(void);

#define HOST_OPS                                                                            \
        .memory = host_memory, .alloc = host_alloc, .free = host_free, .upload = host_copy, \
        .download = host_copy, .copy = host_copy, .clear = host_clear, .sync = host_sync,   \
        .fetch = host_fetch, .fetched = host_fetched, .mark = host_mark, .elapsed = host_elapsed

/* Units and headers of a plan's source.TARGET and headers.TARGET. */
int plan_source(const Plan *plan, const char *target, Pack *units, Pack *headers, Err *e);
/* For each kernel the index of its unit in `units`, malloc'd; TGC_BAD_FILE if it has none. */
int kernel_units(const Program *p, const Pack *units, int **unit_of, Err *e);

#endif
