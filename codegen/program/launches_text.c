/* launches_text.c: describes every launch of a program as text: its groups of nodes and its
 * buffers.
 *
 * Equal layers share kernels, so only a launch, not a kernel, knows which nodes it computes.  The
 * plan's section `launches` (runtime/plan/plan.h has its grammar) joins the launches of program.*
 * with the groups of `ir`, for `tgc dump --html`. */
#include "program.h"
#include <string.h>

/* What a slot is, how large, and its name. */
typedef struct Seen {
        const char *kind, *name;
        int64_t bytes;
} Seen;

/* A tensor map stands for its matrix. */
static Slot matrix_of(const Emit *e, Slot s) { return s.kind == SLOT_MAP ? e->map[s.id].of : s; }

static Seen slot_seen(Emit *e, Slot s, CType type)
{
        bool map = s.kind == SLOT_MAP;
        s = matrix_of(e, s);
        if (s.kind == SLOT_WORK) {
                const Work *w = &e->work[s.id];
                return (Seen) { w->keep ? "kept" : "scratch", w->keep ? w->keep : "scratch",
                                dim_most(e, w->elems) * w->size };
        }
        if (s.kind == SLOT_ARENA)
                return (Seen) { "arena", s.arena, 0 };
        if (s.kind != SLOT_NODE && s.kind != SLOT_GRAD)
                return (Seen) { NULL, NULL, 0 };
        const Node *n = NODE(e->g, s.id);
        int64_t elems = dim_most(e, type_elems(&n->type));
        if (s.kind == SLOT_GRAD) /* float32, or 16 bits */
                return (Seen) { "gradient", n->name, elems * (!map && type == C_F32 ? 4 : 2) };
        return (Seen) { n->op == OP_PARAM   ? "parameter"
                        : n->op == OP_STATE ? "cache"
                        : n->op == OP_CONST ? "constant"
                                            : "value",
                        n->name,
                        node_storage(n) ? storage_bytes(node_storage(n), elems)
                                        : elems * dt_size[n->type.dt] };
}

/* Arguments from `first` on are the piece's. */
static void piece_text(Emit *e, const Launch *l, const Piece *p, int first, Text *out)
{
        text_add(out, "piece %d %d %.0f %.0f %s %s\n", p->group, p->any.threads, p->flops, p->bytes,
                 grid_text(e->tmp, &p->any.grid), p->title);
        for (int i = 0; i < p->n_args && first + i < l->n_args; i++) {
                const Slot s = matrix_of(e, l->arg[first + i]);
                bool again = false;
                for (int j = 0; j < i; j++) {
                        const Slot t = matrix_of(e, l->arg[first + j]);
                        again |= same_storage(e, &s, &t) &&
                                 l->use[first + i].written == l->use[first + j].written;
                }
                const Seen b = slot_seen(e, l->arg[first + i], p->ctype[i]);
                if (b.kind && !again)
                        text_add(out, "%s %s %lld %s\n",
                                 l->use[first + i].written ? "write" : "read", b.kind,
                                 (long long)b.bytes, b.name);
        }
}

void launches_text(Emit *e, const char *program)
{
        Text *out = e->m->launches;
        if (!out)
                return;
        if (!out->n)
                text_add(out, "tgc-launches 1\n");
        text_add(out, "program %s %s\n", is_cuda(e) ? "cuda" : "cpu", program);
        for (int i = 0; i < e->n_launch; i++) {
                const Launch *l = &e->launch[i];
                text_add(out, "launch %s\n", l->kernel);
                for (int j = 0, first = 0; j < l->n_pieces; first += l->piece[j++]->n_args)
                        piece_text(e, l, l->piece[j], first, out);
        }
}
