/* fuse_why.c: explains fusion as text (fuse.h): what was fused, and what was refused.
 *
 * One line for each node that stays out of a kernel: the reason, and the bytes that this costs.
 * One line for each kernel of several nodes: the bytes that it moves, and what it saves over a
 * kernel for each node.  The programs of a model repeat each other; a line is written once. */
#include "fuse.h"
#include <string.h>

/* The slot of the line at text[at]. */
static unsigned *said_slot(const Fuse *f, size_t at)
{
        const char *line = f->why->s + at;
        const size_t len = strcspn(line, "\n");
        unsigned h = 2166136261u;
        for (size_t i = 0; i < len; i++)
                h = (h ^ (unsigned char)line[i]) * 16777619u;
        for (h &= f->cap_said - 1; f->said[h]; h = (h + 1) & (f->cap_said - 1)) {
                const char *other = f->why->s + f->said[h] - 1;
                if (!strncmp(other, line, len) && other[len] == '\n')
                        break;
        }
        return &f->said[h];
}

/* Is the line at text[at] new?  It is not any more. */
static bool is_new(Fuse *f, size_t at)
{
        if (f->n_said * 2 >= f->cap_said) {
                const unsigned *old = f->said, cap = f->cap_said;
                f->cap_said = cap ? cap * 2 : 256;
                f->said = arena_alloc(f->tmp, f->cap_said * sizeof *f->said);
                for (unsigned i = 0; i < cap; i++)
                        if (old[i])
                                *said_slot(f, old[i] - 1) = old[i];
        }
        unsigned *slot = said_slot(f, at);
        if (*slot)
                return false;
        *slot = (unsigned)at + 1;
        f->n_said++;
        return true;
}

void why_begin(Fuse *f)
{
        for (size_t at = 0; f->why && at < f->why->n; at += strcspn(f->why->s + at, "\n") + 1)
                is_new(f, at);
}

/* The line that begins at text[at] is complete. */
static void end_line(Fuse *f, size_t at)
{
        if (!is_new(f, at)) /* the same in another program */
                f->why->n = at, f->why->s[at] = 0;
}

static const char *file_of(Loc loc, char *buf) { return loc.file ? loc_name(loc, buf) : "?"; }

void refuse(Fuse *f, Ref r, int id, const char *reason)
{
        if (!f->why)
                return;
        const Node *n = NODE(f->g, r),
                   *o = NODE(f->g, f->gr[id].anchor ? f->gr[id].anchor : f->order->least[id]);
        const Together kernel = { .kernel = { id } },
                       rest = n->group ? (Together) { .kernel = { n->group } }
                                       : (Together) { .node = { r } };
        char file[LOC_NAME];
        const size_t at = f->why->n;
        text_add(f->why, "%%%s = %s (%s:%d) stays out of the kernel of %%%s = %s: %s", n->name,
                 op_info[n->op].text, file_of(n->loc, file), n->loc.line, o->name,
                 op_info[o->op].text, reason);
        text_add(f->why, " (%lld bytes)\n",
                 (long long)(n->group == id ? 0 : saved_bytes(f->bytes, &kernel, &rest)));
        end_line(f, at);
}

void why_kernels(Fuse *f)
{
        const Graph *g = f->g;
        for (int id = 1; f->why && id <= f->n; id++) {
                int64_t apart = 0, together;
                int n = 0;
                char file[LOC_NAME];
                const Ref first = f->gr[id].anchor ? f->gr[id].anchor : f->order->least[id];
                for (Ref r = f->order->first[id]; r; r = f->order->next[r]) {
                        apart += kernel_bytes(f->bytes, &(Together) { .node = { r } });
                        n += g->node[r].op != OP_ITEM; /* a result of the anchor's */
                }
                if (n < 2)
                        continue;
                const Node *o = &g->node[first];
                const size_t at = f->why->n;
                together = kernel_bytes(f->bytes, &(Together) { .kernel = { id } });
                text_add(f->why,
                         "the kernel of %%%s = %s (%s:%d): %d ops, moves %lld bytes, saves %lld\n",
                         o->name, op_info[o->op].text, file_of(o->loc, file), o->loc.line, n,
                         (long long)together, (long long)(apart - together));
                end_line(f, at);
        }
}
