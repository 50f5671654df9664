/* functor_domain.c: how the columns of a functor's members relate (see functor.c).
 *
 *      node                             domain                        its element j is the root's
 *      %v: 768 columns                  root                          j
 *      %q = slice %v, 0 to 256          slice 0, 256: a branch        j
 *      %a = slice %q, every second      half of that                  2 j
 *      %p = interleave %a, %b           twice the half: 256 again     j
 *
 * An address takes the column of its own domain; the text of that column is functor_value.c's. */
#include "functor.h"

static int dom_child(F *f, int parent, DomKind kind, int64_t start, int64_t n)
{
        Dom *p = &f->dom[parent], d = { kind, parent, p->loop, start, n, p->num, p->den, 0 };
        for (int i = 0; i < f->n_dom; i++)
                if (f->dom[i].kind == kind && f->dom[i].parent == parent &&
                    f->dom[i].start == start && f->dom[i].n == n)
                        return i;
        if (f->n_dom == MAX_DOM)
                error_internal((Loc) { 0 }, "a kernel has too many domains");
        if (kind == DOM_SLICE && p->num != p->den) /* its columns are counted one for one */
                error_internal((Loc) { 0 }, "a kernel slices columns that it takes in pairs");
        if (kind == DOM_SLICE)
                d.loop = f->n_dom, d.num = d.den = 1;
        else if (kind == DOM_HALF)
                d.den *= 2;
        else
                d.num *= 2;
        if (d.num % 2 == 0 && d.den % 2 == 0)
                d.num /= 2, d.den /= 2;
        f->dom[f->n_dom] = d;
        return f->n_dom++;
}

/* The domain of value r as a reader sees it through views from its base. */
int f_dom_seen(F *f, Ref r)
{
        Ref b = value_base(f->g, r);
        int d = f->dom_of[b] - 1;
        Span s;
        if (!span_of(f->g, r, b, f->dom[d].n, &s))
                error_internal(f->g->node[r].loc, "%%%s was fused through a view it cannot follow",
                               f->g->node[r].name);
        if (s.step == 2) {
                if (s.start >= 2 || s.len * 2 != f->dom[d].n)
                        d = dom_child(f, d, DOM_SLICE, s.start & ~(int64_t)1, s.len * 2);
                return dom_child(f, d, DOM_HALF, s.start & 1, s.len);
        }
        return s.len == f->dom[d].n ? d : dom_child(f, d, DOM_SLICE, s.start, s.len);
}

void f_place_members(F *f)
{
        const Functor *fn = f->f;
        f->dom[f->n_dom++] = (Dom) { DOM_ROOT, 0, 0, 0, fn->n, 1, 1, 0 };
        if (!fn->prologue && fn->root)
                f->dom_of[fn->root] = 1;
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                const Node *n = NODE(f->g, r);
                int d = 0;
                for (int j = 0; j < n->n_in; j++) {
                        Ref b = value_base(f->g, n->in[j]);
                        if (f_internal(f, b) && !(n->op == OP_GATHER)) {
                                int s = f_dom_seen(f, n->in[j]);
                                d = s;
                                if (f->dom[s].loop != f->dom[f->dom_of[b] - 1].loop)
                                        f->exported[b] = true;
                        }
                }
                if (n->op == OP_INTERLEAVE)
                        d = dom_child(f, d, DOM_TWICE, 0, f->dom[d].n * 2);
                f->dom_of[r] = d + 1;
        }
        /* lanes per step: enough that every domain of the loop has whole elements, and rotary pairs
         * stay together */
        for (int l = 0; l < f->n_dom; l++) {
                int base = 1;
                if (f->dom[l].loop != l)
                        continue;
                for (int again = 1; again;) {
                        again = 0;
                        for (int d = 0; d < f->n_dom; d++)
                                if (f->dom[d].loop == l && (base * f->dom[d].num) % f->dom[d].den)
                                        base *= 2, again = 1;
                }
                for (int i = 0; i < fn->n_nodes; i++) {
                        Dom *d = &f->dom[f->dom_of[fn->node[i]] - 1];
                        while (NODE(f->g, fn->node[i])->op == OP_ROPE && d->loop == l &&
                               (base * d->num / d->den) % 2)
                                base *= 2;
                }
                for (int d = 0; d < f->n_dom; d++)
                        if (f->dom[d].loop == l)
                                f->dom[d].lanes = base * f->dom[d].num / f->dom[d].den;
                if (base > 2) /* kernels do not promise more (kernels/common/tgc.cuh) */
                        error_internal((Loc) { 0 }, "a kernel takes more than two columns at once");
                if (base > f->out->minv)
                        f->out->minv = base;
        }
}
