/* tile_choice.c: chooses a GEMM's tile: as measured by `tgc tune`, else by the cost model.
 *
 * GEMMs with the same key share a choice.  A key has everything that decides a tile's speed, and
 * nothing that differs between layers.
 *
 *      bf16:32768x3072x768:nt:add+gelu_tanh:4          y = gelu(x W^T + bias); the epilogue moves 4
 *                                                      bytes per element of y
 *      bf16:3072x768x32768:tn:accum:2:sums             dW = dy^T x, with sums of dy's columns
 *
 * Parts of a key: M x N x K, with <= before an M that is only an upper bound; n or t per operand,
 * plain or transposed; the epilogue's ops and the bytes it moves; then, if they apply, batch=N,
 * align=BYTES and sums.  Choices are a text, one per line:
 *
 *      tgc-choices 1
 *      gpu NVIDIA H100 80GB HBM3, sm_90a               where they were measured, for people
 *      choose bf16:3072x768x32768:tn:accum:2:sums S256x128/4           a tile, and splits of K
 *
 * A tile of gemm_tiles.def serves every architecture; one of sm90_gemm_tiles.def is the kernel's
 * form for sm_90a. */
#include "forms.h"
#include <stdlib.h>
#include <string.h>

/* ---- the text ------------------------------------------------------------- */

/* Keeps the first mistake, which is the one reported. */
static void mistake(Choices *c, Loc loc, const char *what)
{
        if (!c->wrong)
                c->wrong = what, c->at = loc;
}

/* The next word of a line; "" at its end. */
static char *word(char **s)
{
        char *w = *s + strspn(*s, " ");
        *s = w + strcspn(w, " ");
        if (**s)
                *(*s)++ = 0;
        return w;
}

static void read_choice(Choices *c, char *s, Loc loc)
{
        Choice x = { .key = word(&s), .tile = word(&s) };
        char *slash = strchr(x.tile, '/'), *end = slash;
        if (slash)
                *slash = 0, x.splits = (int)strtol(slash + 1, &end, 10);
        if (!*x.key || !slash || x.splits < 1 || end == slash + 1 || *end || *word(&s))
                mistake(c, loc, "a line is: choose KEY TILE/PARTS");
        else if (!tile_known(x.tile))
                mistake(c, loc,
                        arena_fmt(c->arena,
                                  "no tile is called %.40s; gemm_tiles.def and sm90_gemm_tiles.def "
                                  "have them all, `tgc tune` measures them",
                                  x.tile));
        for (int i = 0; i < c->n; i++)
                if (!strcmp(c->choice[i].key, x.key))
                        mistake(c, loc,
                                arena_fmt(c->arena, "%.200s has been chosen a tile for in line %d",
                                          x.key, c->choice[i].loc.line));
        x.loc = loc;
        c->choice[c->n++] = x;
}

Choices *choices_read(Arena *a, const char *text, const char *name)
{
        Choices *c = arena_alloc(a, sizeof *c);
        char *s = arena_str(a, text), *next;
        int lines = 1, n = 0;
        for (const char *p = text; (p = strchr(p, '\n')); p++)
                lines++;
        c->choice = arena_alloc(a, (size_t)lines * sizeof *c->choice);
        c->gpu = "";
        c->arena = a;
        for (; s; s = next) {
                Loc loc = { name, ++n, 0 };
                if ((next = strchr(s, '\n')))
                        *next++ = 0;
                s[strcspn(s, "\r")] = 0;
                if (n == 1) {
                        if (strcmp(s, "tgc-choices 1"))
                                mistake(c, loc,
                                        "not a text of choices: the first line must be "
                                        "tgc-choices 1");
                        continue;
                }
                char *w = word(&s);
                if (!strcmp(w, "gpu"))
                        c->gpu = s;
                else if (!strcmp(w, "choose"))
                        read_choice(c, s, loc);
                else if (*w && *w != '#')
                        mistake(c, loc, arena_fmt(a, "'%.40s' is neither gpu nor choose", w));
        }
        return c;
}

static int by_key(const void *a, const void *b)
{
        return strcmp(((const Choice *)a)->key, ((const Choice *)b)->key);
}

int choices_used(Choices *c, Text *out)
{
        int n = 0;
        qsort(c->choice, (size_t)c->n, sizeof *c->choice, by_key);
        text_add(out, "tgc-choices 1\n");
        if (*c->gpu)
                text_add(out, "gpu %s\n", c->gpu);
        for (int i = 0; i < c->n; i++)
                if (c->choice[i].used) {
                        text_add(out, "choose %s %s/%d\n", c->choice[i].key, c->choice[i].tile,
                                 c->choice[i].splits);
                        n++;
                }
        return n;
}

/* ---- keys ------------------------------------------------------------------ */

const char *epilogue_key(Emit *e, const Functor *f)
{
        Text t = { 0 };
        for (int i = 0; i < f->n_nodes; i++) {
                const OpInfo *o = &op_info[NODE(e->g, f->node[i])->op];
                if (o->cls != CLASS_VIEW && o->op != OP_CAST)
                        text_add(&t, "%s%s", t.n ? "+" : "", o->text);
        }
        const char *s = arena_str(e->tmp, t.n ? t.s : "store");
        text_free(&t);
        return s;
}

static const char *key_of(Emit *e, const Gemm *p, const Ways *w)
{
        Text t = { 0 };
        text_add(&t, "%s:%s%lldx%lldx%lld:%c%c:%s:%.0f", dt_name[p->dt], w->most ? "<=" : "",
                 (long long)p->M, (long long)p->N, (long long)p->K, "nt"[p->ta], "nt"[p->tb],
                 w -> epilogue, p -> epilogue_bytes);
        if (w->batch > 1)
                text_add(&t, ":batch=%lld", (long long)w->batch);
        if (p->align < 16)
                text_add(&t, ":align=%d", p->align);
        if (w->sums)
                text_add(&t, ":sums");
        const char *s = arena_str(e->m->arena, t.s);
        text_free(&t);
        return s;
}

/* ---- candidates ------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
        const Candidate *x = a, *y = b;
        return x->us != y->us ? (x->us > y->us) - (x->us < y->us) : strcmp(x->t->name, y->t->name);
}

static bool same(const Candidate *a, const char *name, int splits)
{
        return a->splits == splits && !strcmp(a->t->name, name);
}

/* All ways that the plan can hold, fastest estimate first. */
static int ways(const Gemm *p, const Ways *w, int model_splits, Candidate *c)
{
        int n = tile_list(p->dt, p->M, p->N, p->K, w->batch, w->cut, c);
        if (w->maps) {
                for (int i = 0; i < n; i++)
                        c[i].us = tile_time_epilogue(c[i].t, p, c[i].splits);
                n += sm90_tile_list(p, model_splits > 1, c + n);
        }
        qsort(c, (size_t)n, sizeof *c, by_time);
        return n;
}

/* The list for `tgc tune`, best first: each promising tile with its best number of splits, then
 * each with its second best. */
static const char *promising(Emit *e, const Candidate *c, int n)
{
        Text t = { 0 };
        for (int place = 0; place < 2; place++)
                for (int i = 0; i < n && c[i].us < 1.5 * c[0].us; i++) {
                        int better = 0;
                        for (int k = 0; k < i; k++)
                                better += !strcmp(c[k].t->name, c[i].t->name);
                        if (better == place)
                                text_add(&t, " %s/%d", c[i].t->name, c[i].splits);
                }
        const char *s = arena_str(e->m->arena, t.s ? t.s : "");
        text_free(&t);
        return s;
}

static int product_new(Module *m, Product x)
{
        for (int i = 0; i < m->n_products; i++)
                if (!strcmp(m->product[i].key, x.key))
                        return i;
        m->product = arena_grow(m->arena, m->product, m->n_products, &m->cap_products,
                                sizeof *m->product);
        m->product[m->n_products] = x;
        return m->n_products++;
}

Pick product_pick(Emit *e, const Gemm *asked, const Ways *w)
{
        Gemm own = *asked;
        const Gemm *p = &own;
        own.one_order = e->ragged;
        Candidate *c = arena_alloc(e->tmp, MOST_CANDIDATES * sizeof *c);
        Pick k = { .splits = { 1, 1 } };
        Choices *all = e->m->choices;
        const char *key = key_of(e, p, w);
        k.tile[ARCH_ANY] = tile_pick(p->dt, p->M, p->N, p->K, w->batch,
                                     w->cut && !p->one_order ? &k.splits[ARCH_ANY] : NULL);
        if (w->maps)
                k.tile[ARCH_SM90A] = sm90_tile_pick(p, k.tile[ARCH_ANY], k.splits[ARCH_ANY],
                                                    &k.splits[ARCH_SM90A]);
        int n = ways(p, w, k.splits[ARCH_ANY], c), i;
        for (int j = 0; all && j < all->n; j++) {
                Choice *x = &all->choice[j];
                if (strcmp(x->key, key))
                        continue;
                for (i = 0; i < n && !same(&c[i], x->tile, x->splits); i++)
                        ;
                x->used = true;
                if (i == n) {
                        mistake(all, x->loc,
                                arena_fmt(all->arena, "%.200s cannot take %s/%d; it can take%.500s",
                                          key, x->tile, x->splits, promising(e, c, n)));
                        continue;
                }
                /* a measured portable tile serves every architecture */
                k.forced = true;
                k.tile[ARCH_SM90A] = NULL, k.splits[ARCH_SM90A] = 1;
                k.tile[c[i].t->arch] = c[i].t, k.splits[c[i].t->arch] = c[i].splits;
        }
        Product x = { key,
                      arena_fmt(e->m->arena, "%s/%d", k.tile[ARCH_ANY]->name, k.splits[ARCH_ANY]),
                      NULL, promising(e, c, n), false };
        if (k.tile[ARCH_SM90A])
                x.tile_sm90 = arena_fmt(e->m->arena, "%s/%d", k.tile[ARCH_SM90A]->name,
                                        k.splits[ARCH_SM90A]);
        k.product = product_new(e->m, x);
        k.first = e->n_launch;
        return k;
}

void product_end(Emit *e, const Pick *k)
{
        for (int i = k->first; i < e->n_launch; i++)
                e->launch[i].piece[0]->product = k->product + 1;
}

/* ---- for `tgc tune` --------------------------------------------------------- */

/* In joined launches a time says nothing about one GEMM. */
void products_run(Emit *e, const char *program, Text *out)
{
        Module *m = e->m;
        for (int l = 0; l < e->n_launch; l++) {
                const Launch *x = &e->launch[l];
                for (int i = 0; i < x->n_pieces; i++) {
                        int product = x->piece[i]->product - 1;
                        if (product < 0 || (x->piece[i]->beside && x->n_pieces > 1))
                                continue;
                        if (x->n_pieces > 1)
                                m->product[product].joined = true;
                        else
                                text_add(out, "run %s %d %s\n", program, l,
                                         m->product[product].key);
                }
        }
}

void products_text(const Module *m, Text *out)
{
        for (int i = 0; i < m->n_products; i++) {
                const Product *p = &m->product[i];
                if (!p->joined)
                        text_add(out, "product %s has %s%s%s or%s\n", p->key, p->tile,
                                 p->tile_sm90 ? " " : "", p->tile_sm90 ? p->tile_sm90 : "",
                                 p->others);
        }
}
