/* offload.c: --offload activations: values that only the backward pass reads again wait in the
 * host's memory.
 *
 * For each buffer, the longest gap between two launches that use it counts.  If a copy to the host
 * and a copy back fit into the gap at the bus's rate, the buffer becomes two: one lives until the
 * first copy is done, the other from the start of the second copy.  Copies out go in the order in
 * which values are made, copies back in the order in which they are needed.  Each starts as late as
 * it can, so that memory is free until then.  Times are estimates: if a copy takes longer, kernels
 * wait. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "program.h"

/* Operations and bytes of a microsecond in kernels, and bytes of one on the bus, both on the slow
 * side where that costs memory and not time; a launch's and a copy's own microseconds. */
static const double FLOPS = 6e8, BYTES = 2.5e6, BUS = 3.5e4, LAUNCH = 2, COPY = 10;
/* What is smaller than such a part of the largest buffer stays, and what rests no longer than SHORT
 * copies of it take, or than a SHORT_PART of the program: a layer's own values in its backward
 * pass. */
enum { LEAST_PART = 256, SHORT = 4, SHORT_PART = 16 };

typedef struct Rest {
        int buffer, before, after; /* the launches between which nobody uses it */
        int out_end, in_begin;
} Rest;

static double launch_us(const Launch *l)
{
        double us = LAUNCH;
        for (int i = 0; i < l->n_pieces; i++) {
                const double f = l->piece[i]->flops / FLOPS, m = l->piece[i]->bytes / BYTES;
                us += f > m ? f : m;
        }
        return us;
}

static double copy_us(const Buffer *b) { return COPY + (double)b->bytes / BUS; }

static int by_before(const void *x, const void *y)
{
        const Rest *a = x, *b = y;
        return a->before != b->before ? a->before - b->before : a->buffer - b->buffer;
}

static int by_after(const void *x, const void *y)
{
        const Rest *a = x, *b = y;
        return a->after != b->after ? b->after - a->after : b->buffer - a->buffer;
}

static int by_begin(const void *x, const void *y)
{
        const HostMove *a = x, *b = y;
        return a->begin != b->begin ? a->begin - b->begin
               : a->out != b->out   ? b->out - a->out
                                    : a->buffer - b->buffer;
}

/* The longest pauses of all buffers, but of what the host writes or reads. */
static int find_rests(Emit *e, const Buffer *b, int n, const double *start, Rest *rest, int *seen)
{
        for (int i = 0; i < n; i++)
                rest[i] = (Rest) { .buffer = i, .before = -1, .after = -1 }, seen[i] = -1;
        for (int l = 0; l < e->n_launch; l++)
                for (int i = 0; i < e->launch[l].n_args; i++) {
                        Slot s;
                        if (!act_argument(e, l, i, &s))
                                continue;
                        const int at = *buffer_of(e, &s) - 1;
                        if (seen[at] >= 0 && l - seen[at] > rest[at].after - rest[at].before)
                                rest[at].before = seen[at], rest[at].after = l;
                        seen[at] = l;
                }
        int64_t most = 0;
        int k = 0;
        for (int i = 0; i < n; i++)
                most = b[i].bytes > most ? b[i].bytes : most;
        for (int i = 0; i < n; i++)
                if (b[i].first >= 0 && b[i].last < e->n_launch && rest[i].before >= 0 &&
                    b[i].bytes >= most / LEAST_PART &&
                    start[rest[i].after] - start[rest[i].before + 1] >
                            fmax(SHORT * copy_us(&b[i]), start[e->n_launch] / SHORT_PART))
                        rest[k++] = rest[i];
        return k;
}

/* Copies out, in order; those that would not be back in time are left out.  How many are not. */
static int copies_out(const Emit *e, const Buffer *b, const double *start, Rest *rest, int k)
{
        double at = 0;
        int kept = 0;
        qsort(rest, (size_t)k, sizeof *rest, by_before);
        for (int i = 0; i < k; i++) {
                int l = rest[i].before + 1;
                const double us = copy_us(&b[rest[i].buffer]),
                             done = (at > start[l] ? at : start[l]) + us;
                if (done + us > start[rest[i].after])
                        continue;
                at = done;
                while (l < e->n_launch && start[l] < at)
                        l++;
                rest[i].out_end = l;
                rest[kept++] = rest[i];
        }
        return kept;
}

/* And back, from the last one on. */
static int copies_back(const Emit *e, const Buffer *b, const double *start, Rest *rest, int k)
{
        double at = start[e->n_launch];
        int kept = 0;
        qsort(rest, (size_t)k, sizeof *rest, by_after);
        for (int i = 0; i < k; i++) {
                int l = rest[i].after;
                const double begin = (at < start[l] ? at : start[l]) - copy_us(&b[rest[i].buffer]);
                while (l > 0 && start[l] > begin)
                        l--;
                if (l <= rest[i].out_end)
                        continue;
                at = begin;
                rest[i].in_begin = l;
                rest[kept++] = rest[i];
        }
        return kept;
}

int offload_split(Emit *e, Arena *a, Buffer *b, int n)
{
        Rest *rest = arena_alloc(a, (size_t)(n + 1) * sizeof *rest);
        int *seen = arena_alloc(a, (size_t)(n + 1) * sizeof *seen);
        double *start = arena_alloc(a, (size_t)(e->n_launch + 1) * sizeof *start);
        for (int i = 0; i < e->n_launch; i++)
                start[i + 1] = start[i] + launch_us(&e->launch[i]);
        int k = find_rests(e, b, n, start, rest, seen);
        k = copies_out(e, b, start, rest, k);
        k = copies_back(e, b, start, rest, k);
        e->move = arena_alloc(a, (size_t)(2 * k + 1) * sizeof *e->move);
        e->n_move = 0;
        e->host_bytes = 0;
        for (int i = 0; i < k; i++) {
                const Rest *r = &rest[i];
                Buffer *x = &b[r->buffer];
                b[n] = *x;
                b[n].first = r->in_begin;
                b[n].from = r->after;
                x->last = r->out_end - 1;
                x->again = n + 1;
                e->move[e->n_move++] = (HostMove) { r->buffer, r->before + 1, r->out_end,
                                                    e->host_bytes, true };
                e->move[e->n_move++] = (HostMove) { n, r->in_begin, r->after, e->host_bytes,
                                                    false };
                e->host_bytes += x->bytes;
                n++;
        }
        qsort(e->move, (size_t)e->n_move, sizeof *e->move, by_begin);
        return n;
}
