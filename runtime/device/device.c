/* device.c: chooses a device, and checks the arguments of every call. */
#include "device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "dev_impl.h"

static const char *const kind_name[] = {
        [DEV_AUTO] = "auto", [DEV_CPU] = "cpu", [DEV_CUDA] = "cuda", [DEV_EMULATE] = "emulate"
};

int dev_kind(const char *name)
{
        for (int i = 0; i < 4; i++)
                if (!strcmp(kind_name[i], name))
                        return i;
        return -1;
}

int dev_open(Device **d, DevKind kind, const DevOptions *o, Err *e)
{
        static const DevOptions none;
        char text[128];
        Err ignored;

        *d = 0;
        o = o ? o : &none;
        if (o->index < 0 || o->threads < 0)
                return err_set(e, TGC_USAGE, "device number and threads must not be negative");
        switch (kind) {
        case DEV_CUDA: return dev_open_cuda(d, o, e);
        case DEV_EMULATE: return dev_open_emulate(d, o, e);
        case DEV_AUTO:
                if (cuda_describe(text, sizeof text, &ignored) == TGC_OK)
                        return dev_open_cuda(d, o, e);
                break;
        case DEV_CPU: break;
        }
        return dev_open_cpu(d, o, e);
}

void dev_close(Device *d)
{
        if (d)
                d->ops->close(d);
}

DevKind dev_which(const Device *d) { return d->kind; }

const char *dev_name(const Device *d) { return d->name; }

const char *dev_target(const Device *d) { return d->kind == DEV_CPU ? "cpu" : "cuda"; }

int dev_host_memory(const Device *d) { return d->kind != DEV_CUDA; }

const char *dev_load_note(const Device *d) { return d->note; }

const char *dev_load_warning(const Device *d) { return d->warning; }

int dev_memory(Device *d, uint64_t *available, uint64_t *total, Err *e)
{
        return d->ops->memory(d, available, total, e);
}

int dev_ceiling(Device *d, Ceiling *c, Err *e)
{
        enum { SIZE = 128 << 20, RUNS = 6, MARK = DEV_MARKS - 2 };
        void *from = 0, *to = 0;
        double ms, best = 0;
        int code = TGC_OK;
        *c = (Ceiling) { 0 };
        if (!d->ops->peak)
                return TGC_OK;
        d->ops->peak(d, c->flops);
        if (!dev_alloc(d, SIZE, &from, e) && !dev_alloc(d, SIZE, &to, e))
                for (int i = 0; i < RUNS && !code; i++)
                        if (!(code = dev_mark(d, MARK, e)) &&
                            !(code = dev_copy(d, to, from, SIZE, e)) &&
                            !(code = dev_mark(d, MARK + 1, e)) &&
                            !(code = dev_elapsed(d, MARK, MARK + 1, &ms, e)) &&
                            (!best || ms < best))
                                best = ms;
        if (best > 0)
                c->bytes = 2. * SIZE / (best * 1e-3);
        dev_free(d, from, SIZE);
        dev_free(d, to, SIZE);
        return code;
}

int dev_alloc(Device *d, size_t size, void **mem, Err *e)
{
        *mem = 0;
        if (!size)
                return TGC_OK;
        uint64_t total;
        int code = TGC_OK;
        if (!d->held && !d->free_before && d->kind == DEV_CUDA)
                code = dev_memory(d, &d->free_before, &total, e);
        if (code)
                return code;
        code = d->ops->alloc(d, size, mem, e);
        d->held += code ? 0 : size;
        d->most_held = d->held > d->most_held ? d->held : d->most_held;
        return code;
}

void dev_held(Device *d, uint64_t *most, uint64_t *driver)
{
        uint64_t available = 0, total;
        *most = d->most_held;
        *driver = d->free_before && !dev_memory(d, &available, &total, NULL) &&
                                  available < d->free_before
                          ? d->free_before - available
                          : 0;
}

void dev_free(Device *d, void *mem, size_t size)
{
        if (mem) {
                d->ops->free(d, mem, size);
                d->held -= size;
        }
}

int dev_alloc_host(Device *d, size_t size, void **mem, Err *e)
{
        *mem = 0;
        if (!d->ops->alloc_host)
                return err_set(e, TGC_USAGE, "%s: all of its memory is the host's", d->name);
        return size ? d->ops->alloc_host(d, size, mem, e) : TGC_OK;
}

void dev_free_host(Device *d, void *mem)
{
        if (mem)
                d->ops->free_host(d, mem);
}

int dev_upload(Device *d, void *to, const void *from, size_t n, Err *e)
{
        return n ? d->ops->upload(d, to, from, n, e) : TGC_OK;
}

int dev_download(Device *d, void *to, const void *from, size_t n, Err *e)
{
        return n ? d->ops->download(d, to, from, n, e) : TGC_OK;
}

int dev_copy(Device *d, void *to, const void *from, size_t n, Err *e)
{
        return n ? d->ops->copy(d, to, from, n, e) : TGC_OK;
}

int dev_clear(Device *d, void *mem, size_t n, Err *e)
{
        return n ? d->ops->clear(d, mem, n, e) : TGC_OK;
}

int dev_sync(Device *d, Err *e) { return d->ops->sync(d, e); }

int dev_fetch(Device *d, int slot, const void *from, size_t n, bool aside, Err *e)
{
        if (slot < 0 || slot >= DEV_FETCH_SLOTS || n > DEV_FETCH_BYTES)
                return err_set(e, TGC_FAIL, "fetch of %zu bytes into slot %d", n, slot);
        return d->ops->fetch(d, slot, from, n, aside, e);
}

int dev_settle(Device *d, int slot, Err *e)
{
        if (slot < 0 || slot >= DEV_FETCH_SLOTS)
                return err_set(e, TGC_FAIL, "no slot %d", slot);
        return d->ops->settle ? d->ops->settle(d, slot, e) : TGC_OK;
}

int dev_fetched(Device *d, int slot, void *to, size_t n, Err *e)
{
        if (slot < 0 || slot >= DEV_FETCH_SLOTS || n > DEV_FETCH_BYTES)
                return err_set(e, TGC_FAIL, "fetch of %zu bytes from slot %d", n, slot);
        return d->ops->fetched(d, slot, to, n, e);
}

int dev_passed(Device *d, int place, Err *e)
{
        return d->ops->passed ? d->ops->passed(d, place, e) : TGC_OK;
}

int dev_upload_ahead(Device *d, int place, void *to, const void *from, size_t n, Err *e)
{
        if (!d->ops->upload_ahead || !n)
                return dev_upload(d, to, from, n, e);
        return d->ops->upload_ahead(d, place, to, from, n, e);
}

int dev_join(Device *d, Err *e) { return d->ops->join ? d->ops->join(d, e) : TGC_OK; }

/* Where all memory is the host's the copy is done at both ends: who touches a side in between
 * shows. */
static int move_here(Device *d, const DevMove *m, Err *e)
{
        return dev_copy(d, m->out ? m->host : m->device, m->out ? m->device : m->host, m->n, e);
}

int dev_move(Device *d, int i, const DevMove *m, Err *e)
{
        if (i < 0 || i >= DEV_MOVES)
                return err_set(e, TGC_FAIL, "move %d", i);
        return d->ops->move ? d->ops->move(d, i, m, e) : move_here(d, m, e);
}

int dev_moved(Device *d, int i, const DevMove *m, Err *e)
{
        if (i < 0 || i >= DEV_MOVES)
                return err_set(e, TGC_FAIL, "move %d", i);
        return d->ops->moved ? d->ops->moved(d, i, e) : move_here(d, m, e);
}

int dev_load(Device *d, const Plan *plan, const Program *prog, const char *need, Err *e)
{
        char why[1024];
        if (d->prog && (d->prog != prog || !need))
                return err_set(e, TGC_FAIL, "this device has a program already");
        if (d->prog && d->kind != DEV_CUDA)
                return TGC_OK;
        if (!d->opt.no_cache && cache_check(e))
                return TGC_IO;
        d->prog = prog;
        if (!d->opt.no_cache && cache_state(why, sizeof why) == CACHE_SKIPPED)
                snprintf(d->warning, sizeof d->warning, "%.140s; no cache", why);
        return d->ops->load(d, plan, need, e);
}

int dev_arch(const Device *d) { return d->arch; }

const FormDef *dev_form(const Device *d, const KernelDef *k)
{
        return &k->form[k->form[d->arch].threads ? d->arch : FORM_ANY];
}

int dev_sms(const Device *d) { return d->sms; }

int dev_tensor_map(Device *d, void *out, const MapDef *m, void *matrix, Err *e)
{
        return d->ops->tensor_map(d, out, m, matrix, e);
}

int dev_launch(Device *d, int k, unsigned grid, void *const *arg, Err *e)
{
        return grid ? d->ops->launch(d, k, grid, arg, e) : TGC_OK;
}

int dev_can_capture(const Device *d) { return d->ops->replay && !d->no_graphs && !d->opt.sync; }

int dev_capture_begin(Device *d, Err *e) { return d->ops->capture_begin(d, e); }

int dev_capture_end(Device *d, DevGraph **g, Err *e) { return d->ops->capture_end(d, g, e); }

int dev_replay(Device *d, DevGraph *g, Err *e) { return d->ops->replay(d, g, e); }

void dev_graph_free(Device *d, DevGraph *g)
{
        if (g)
                d->ops->graph_free(d, g);
}

int dev_mark(Device *d, int i, Err *e)
{
        return i < 0 || i >= DEV_MARKS ? err_set(e, TGC_FAIL, "time stamp %d", i)
                                       : d->ops->mark(d, i, e);
}

int dev_elapsed(Device *d, int from, int to, double *ms, Err *e)
{
        if (from < 0 || to < 0 || from >= DEV_MARKS || to >= DEV_MARKS)
                return err_set(e, TGC_FAIL, "time stamps %d and %d", from, to);
        return d->ops->elapsed(d, from, to, ms, e);
}

/* ---- sources ---- */

int plan_source(const Plan *plan, const char *target, Pack *units, Pack *headers, Err *e)
{
        char source[32] = "source.", header[32] = "headers.";
        strncat(source, target, 8);
        strncat(header, target, 8);
        const Section *s = plan_find(plan, source), *h = plan_find(plan, header);

        *units = *headers = (Pack) { 0 };
        if (!s)
                return err_set(e, TGC_NO_DEVICE,
                               "the plan has no %s: compile the model with --target %s", source,
                               target);
        int code = pack_units(units, s->data, s->size, source, e);
        if (!code && h)
                code = pack_read(headers, h->data, h->size, header, e);
        if (code)
                pack_free(units);
        return code;
}

static int by_name(const void *a, const void *b)
{
        return strcmp((*(PackFile *const *)a)->name, (*(PackFile *const *)b)->name);
}

int kernel_units(const Program *p, const Pack *units, int **unit_of, Err *e)
{
        PackFile **sorted = malloc(((size_t)units->n + 1) * sizeof *sorted), key = { 0 },
                 *want = &key, **hit;
        *unit_of = malloc(((size_t)p->n_kernels + 1) * sizeof **unit_of);
        if (!sorted || !*unit_of) {
                free(sorted);
                free(*unit_of);
                *unit_of = 0;
                return err_set(e, TGC_NO_MEMORY, "no memory for the list of units");
        }
        for (int i = 0; i < units->n; i++)
                sorted[i] = &units->file[i];
        qsort(sorted, (size_t)units->n, sizeof *sorted, by_name);
        int code = TGC_OK;
        for (int k = 0; k < p->n_kernels && !code; k++) {
                size_t n = strlen(p->kernel[k].unit);
                hit = 0;
                if (n < sizeof key.name) {
                        memcpy(key.name, p->kernel[k].unit, n + 1);
                        hit = bsearch(&want, sorted, (size_t)units->n, sizeof *sorted, by_name);
                }
                if (hit)
                        (*unit_of)[k] = (int)(*hit - units->file);
                else
                        code = err_set(e, TGC_BAD_FILE,
                                       "kernel %.60s belongs to unit %.60s, which is missing",
                                       p->kernel[k].name, p->kernel[k].unit);
        }
        free(sorted);
        if (code) {
                free(*unit_of);
                *unit_of = 0;
        }
        return code;
}
