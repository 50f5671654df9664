/* dev_host.c: memory and clock of the devices whose memory is the host's. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "dev_impl.h"

static uint64_t read_number(const char *path, const char *format)
{
        unsigned long long x = 0;
        char line[256];
        FILE *f = fopen(path, "re");
        int found = 0;
        while (f && !found && fgets(line, sizeof line, f))
                found = sscanf(line, format, &x) == 1;
        if (f)
                fclose(f);
        return found ? x : 0;
}

/* What the machine and the container's limit (cgroup 2) both allow. */
int host_memory(Device *d, uint64_t *available, uint64_t *total, Err *e)
{
        (void)d;
        (void)e;
        *total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        *available = read_number("/proc/meminfo", "MemAvailable: %llu kB") << 10;
        uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "%llu");
        uint64_t used = read_number("/sys/fs/cgroup/memory.current", "%llu");
        if (!*available)
                *available = *total;
        if (limit && limit < *total)
                *total = limit;
        if (limit && limit > used && limit - used < *available)
                *available = limit - used;
        return TGC_OK;
}

uint64_t dev_host_free(void)
{
        uint64_t available = 0, total;
        host_memory(NULL, &available, &total, NULL);
        return available;
}

int host_alloc(Device *d, size_t size, void **mem, Err *e)
{
        (void)d;
        void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (p == MAP_FAILED)
                return err_set(e, TGC_NO_MEMORY, "no %zu bytes of memory", size);
        madvise(p, size, MADV_HUGEPAGE);
        *mem = p;
        return TGC_OK;
}

void host_free(Device *d, void *mem, size_t size)
{
        (void)d;
        munmap(mem, size);
}

int host_copy(Device *d, void *to, const void *from, size_t n, Err *e)
{
        (void)d;
        (void)e;
        memmove(to, from, n);
        return TGC_OK;
}

int host_clear(Device *d, void *mem, size_t n, Err *e)
{
        (void)d;
        (void)e;
        memset(mem, 0, n);
        return TGC_OK;
}

int host_sync(Device *d, Err *e)
{
        (void)d;
        (void)e;
        return TGC_OK;
}

int host_fetch(Device *d, int slot, const void *from, size_t n, bool aside, Err *e)
{
        (void)aside;
        return host_copy(d, ((HostDevice *)d)->slot[slot], from, n, e);
}

int host_fetched(Device *d, int slot, void *to, size_t n, Err *e)
{
        return host_copy(d, to, ((HostDevice *)d)->slot[slot], n, e);
}

double clock_ms(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int host_mark(Device *d, int i, Err *e)
{
        (void)e;
        ((HostDevice *)d)->mark[i] = clock_ms();
        return TGC_OK;
}

int host_elapsed(Device *d, int from, int to, double *ms, Err *e)
{
        HostDevice *h = (HostDevice *)d;
        (void)e;
        *ms = h->mark[to] - h->mark[from];
        return TGC_OK;
}
