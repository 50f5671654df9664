/* jinja_items.c: filters of several items.  Those that are generators in jinja2 yield one item
 * after the other, and check their arguments when the first one is asked for. */
#include <string.h>
#include "jinja.h"

static bool given(Val v) { return v.t != V_MISSING && v.t != V_NONE; }
static bool flag(J *j, Val v) { return v.t != V_MISSING && v_true(j, v); }

/* ---- attributes: "a.0.b" ---- */

typedef struct Path {
        const List *part;
        Val dflt; /* V_MISSING: none */
        bool fold;
} Path;

static Val path_part(J *j, const char *p, size_t n)
{
        int64_t i = 0;
        bool digits = n > 0;
        for (size_t k = 0; k < n; k++) {
                if ((unsigned char)p[k] >= 128)
                        digits = false;
                digits &= p[k] >= '0' && p[k] <= '9';
        }
        if (!digits)
                return v_str(j, p, n);
        for (size_t k = 0; k < n; k++)
                if (__builtin_mul_overflow(i, 10, &i) || __builtin_add_overflow(i, p[k] - '0', &i))
                        j_lacks(j, "an integer beyond 64 bits");
        return v_int(i);
}

/* n bytes of an attribute's text, or the value as it is. */
static const List *path_parts(J *j, Val v, const char *p, size_t n)
{
        Val l;
        size_t k = 1, from = 0, at = 0;
        if (!given(v))
                return v_list(j, V_LIST, 0).l;
        if (!is_str(v)) {
                l = v_list(j, V_LIST, 1);
                l.l->v[0] = v;
                return l.l;
        }
        for (size_t i = 0; i < n; i++)
                k += p[i] == '.';
        l = v_list(j, V_LIST, k);
        for (size_t i = 0; i <= n; i++)
                if (i == n || p[i] == '.') {
                        l.l->v[at++] = path_part(j, p + from, i - from);
                        from = i + 1;
                }
        return l.l;
}

static Path path_of(J *j, Val v, Val dflt, bool fold)
{
        return (Path) { path_parts(j, v, is_str(v) ? v.s->p : "", is_str(v) ? v.s->n : 0), dflt,
                        fold };
}

static Val fold_case(J *j, Val v)
{
        return is_str(v) ? str_builtin("lower")(j, v, &(Args) { 0 }) : v;
}

static Val path_get(J *j, const Path *p, Val v)
{
        for (size_t i = 0; i < p->part->n; i++) {
                v = v_getitem(j, v, p->part->v[i]);
                if (v.t == V_UNDEF && given(p->dflt))
                        v = p->dflt;
        }
        return p->fold ? fold_case(j, v) : v;
}

/* ---- map, select and their kin ---- */

typedef struct Gen {
        char kind; /* m map, s select, r reject, u unique */
        bool attr, begun;
        const char *name; /* of the filter or test; NULL: none */
        Args a;
        Path path;
        Iter *from;
        Dict *seen;
} Gen;

static void gen_begin(J *j, Gen *g, Val of)
{
        int off = g->attr;
        g->begun = true;
        g->from = NULL;
        if (g->kind != 'u' && !v_true(j, of))
                return;
        if (g->kind == 'm' && !g->a.n && g->a.n_kw) {
                Val attribute = { .t = V_MISSING }, dflt = { .t = V_MISSING };
                for (int i = 0; i < g->a.n_kw; i++)
                        if (!strcmp(g->a.key[i], "attribute"))
                                attribute = g->a.kw[i];
                for (int i = 0; i < g->a.n_kw; i++)
                        if (!strcmp(g->a.key[i], "default"))
                                dflt = g->a.kw[i];
                        else if (strcmp(g->a.key[i], "attribute"))
                                j_fail(j, "map: unexpected keyword argument '%.60s'", g->a.key[i]);
                if (attribute.t == V_MISSING)
                        j_fail(j, "map requires a filter argument");
                g->path = path_of(j, attribute, dflt, false);
                g->attr = true;
        } else if (g->kind != 'u') {
                if (g->attr && !g->a.n)
                        j_fail(j, "missing parameter for attribute name");
                if (g->attr)
                        g->path = path_of(j, g->a.v[0], (Val) { .t = V_MISSING }, false);
                if (g->a.n > off) {
                        Val name = g->a.v[off];
                        if (!is_str(name))
                                j_fail(j, "the name of a filter or test is wanted, not %s",
                                       v_type(name));
                        g->name = j_copy(j, name.s->p, name.s->n);
                        g->a.v += off + 1;
                        g->a.n -= off + 1;
                } else if (g->kind == 'm') {
                        j_fail(j, "map requires a filter argument");
                }
        }
        g->from = iter_of(j, of);
}

static bool gen_next(J *j, Iter *it, Val *out)
{
        Gen *g = it->state;
        Val x, key;
        if (!g->begun)
                gen_begin(j, g, it->of);
        while (g->from && iter_next(j, g->from, &x)) {
                *out = x;
                key = g->attr || g->kind == 'u' ? path_get(j, &g->path, x) : x;
                if (g->kind == 'm') {
                        *out = g->name ? filter_call(j, g->name, x, &g->a) : key;
                        return true;
                }
                if (g->kind == 'u') {
                        if (dict_find(j, g->seen, key))
                                continue;
                        dict_set(j, g->seen, key, v_none());
                        return true;
                }
                if ((g->name ? test_call(j, g->name, key, &g->a) : v_true(j, key)) ==
                    (g->kind == 's'))
                        return true;
        }
        return false;
}

static Val gen_new(J *j, Val v, const Args *a, char kind, bool attr)
{
        Gen *g = j_get(j, sizeof *g);
        *g = (Gen) { .kind = kind, .attr = attr, .a = *a, .seen = v_dict(j).m };
        return v_iter(j, gen_next, v, g);
}

static Val f_map(J *j, Val v, const Args *a) { return gen_new(j, v, a, 'm', false); }
static Val f_select(J *j, Val v, const Args *a) { return gen_new(j, v, a, 's', false); }
static Val f_reject(J *j, Val v, const Args *a) { return gen_new(j, v, a, 'r', false); }
static Val f_selectattr(J *j, Val v, const Args *a) { return gen_new(j, v, a, 's', true); }
static Val f_rejectattr(J *j, Val v, const Args *a) { return gen_new(j, v, a, 'r', true); }

static Val f_unique(J *j, Val v, const Args *a)
{
        Val x[2], g = gen_new(j, v, a, 'u', false);
        args_take(j, a, "unique", "case_sensitive? attribute?", x);
        ((Gen *)g.it->state)->path = path_of(j, x[1], (Val) { .t = V_MISSING }, !flag(j, x[0]));
        return g;
}

/* ---- order ---- */

typedef struct Keyed {
        Val key, v;
} Keyed;

/* Python's sort asks `<` alone and is stable; with reverse, too. */
static bool before(J *j, Val a, Val b, bool reverse)
{
        int c = reverse ? v_compare(j, b, a, "<") : v_compare(j, a, b, "<");
        return c < 0;
}

static void merge_sort(J *j, Keyed *x, Keyed *tmp, size_t n, bool reverse)
{
        if (n < 2)
                return;
        size_t m = n / 2, i = 0, k = m, o = 0;
        merge_sort(j, x, tmp, m, reverse);
        merge_sort(j, x + m, tmp, n - m, reverse);
        memcpy(tmp, x, n * sizeof *x);
        while (i < m && k < n)
                x[o++] = before(j, tmp[k].key, tmp[i].key, reverse) ? tmp[k++] : tmp[i++];
        while (i < m)
                x[o++] = tmp[i++];
        while (k < n)
                x[o++] = tmp[k++];
}

static Val sorted(J *j, const List *keys, const List *items, bool reverse)
{
        Val out = v_list(j, V_LIST, items->n);
        Keyed *x = j_get(j, (items->n + 1) * sizeof *x),
              *tmp = j_get(j, (items->n + 1) * sizeof *x);
        for (size_t i = 0; i < items->n; i++)
                x[i] = (Keyed) { keys->v[i], items->v[i] };
        merge_sort(j, x, tmp, items->n, reverse);
        for (size_t i = 0; i < items->n; i++)
                out.l->v[i] = x[i].v;
        return out;
}

/* attribute "a,b": the key is a list of both. */
static Val sort_key(J *j, Val attribute, Val v, bool fold)
{
        size_t n = 1, from = 0, at = 0;
        const char *p = is_str(attribute) ? attribute.s->p : "";
        size_t len = is_str(attribute) ? attribute.s->n : 0;
        for (size_t i = 0; i < len; i++)
                n += p[i] == ',';
        Val key = v_list(j, V_LIST, n);
        for (size_t i = 0; i <= len; i++)
                if (i == len || p[i] == ',') {
                        Path path = { path_parts(j, attribute, p + from, i - from),
                                      { .t = V_MISSING },
                                      fold };
                        key.l->v[at++] = path_get(j, &path, v);
                        from = i + 1;
                }
        return key;
}

static Val f_sort(J *j, Val v, const Args *a)
{
        Val x[3];
        args_take(j, a, "sort", "reverse? case_sensitive? attribute?", x);
        Val items = list_of(j, v, V_LIST), keys = v_list(j, V_LIST, items.l->n);
        for (size_t i = 0; i < items.l->n; i++)
                keys.l->v[i] = sort_key(j, x[2], items.l->v[i], !flag(j, x[1]));
        return sorted(j, keys.l, items.l, flag(j, x[0]));
}

static Val f_dictsort(J *j, Val v, const Args *a)
{
        Val x[3];
        args_take(j, a, "dictsort", "case_sensitive? by? reverse?", x);
        bool by_value = is_str(x[1]) && x[1].s->n == 5 && !memcmp(x[1].s->p, "value", 5),
             by_key = x[1].t == V_MISSING ||
                      (is_str(x[1]) && x[1].s->n == 3 && !memcmp(x[1].s->p, "key", 3));
        if (!by_value && !by_key)
                j_fail(j, "You can only sort by either \"key\" or \"value\"");
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (v.t != V_DICT)
                j_fail(j, "dictsort: a dict is wanted, not %s", v_type(v));
        v.t = V_VIEW;
        v.markup = 'i';
        Val items = list_of(j, v, V_LIST), keys = v_list(j, V_LIST, items.l->n);
        for (size_t i = 0; i < items.l->n; i++) {
                Val k = items.l->v[i].l->v[by_value];
                keys.l->v[i] = flag(j, x[0]) ? k : fold_case(j, k);
        }
        return sorted(j, keys.l, items.l, flag(j, x[2]));
}

static Val extreme(J *j, Val v, const Args *a, bool largest)
{
        Val x[2], item, best = { .t = V_MISSING }, best_key = best;
        args_take(j, a, largest ? "max" : "min", "case_sensitive? attribute?", x);
        Path p = path_of(j, x[1], (Val) { .t = V_MISSING }, !flag(j, x[0]));
        for (Iter *it = iter_of(j, v); iter_next(j, it, &item);) {
                Val key = path_get(j, &p, item);
                if (best.t != V_MISSING && !v_order(j, key, best_key, largest ? OP_GT : OP_LT))
                        continue;
                best = item;
                best_key = key;
        }
        return best.t == V_MISSING ? v_undef(j, "No aggregated item, sequence was empty.") : best;
}

static Val f_min(J *j, Val v, const Args *a) { return extreme(j, v, a, false); }
static Val f_max(J *j, Val v, const Args *a) { return extreme(j, v, a, true); }

static Val f_sum(J *j, Val v, const Args *a)
{
        Val x[2], item;
        args_take(j, a, "sum", "attribute? start?", x);
        Val all = x[1].t == V_MISSING ? v_int(0) : x[1];
        Path p = path_of(j, x[0], (Val) { .t = V_MISSING }, false);
        if (is_str(all))
                j_fail(j, "sum() can't sum strings");
        for (Iter *it = iter_of(j, v); iter_next(j, it, &item);)
                all = v_binary(j, N_ADD, all, path_get(j, &p, item));
        return all;
}

/* ---- parts of sequences ---- */

static Val f_list(J *j, Val v, const Args *a)
{
        args_take(j, a, "list", "", NULL);
        return list_of(j, v, V_LIST);
}

static Val f_first(J *j, Val v, const Args *a)
{
        Val x;
        args_take(j, a, "first", "", NULL);
        return iter_next(j, iter_of(j, v), &x) ? x
                                               : v_undef(j, "No first item, sequence was empty.");
}

static Val f_last(J *j, Val v, const Args *a)
{
        bool found;
        args_take(j, a, "last", "", NULL);
        if (!v_has_len(v) || v.t == V_LOOP)
                j_fail(j, "'%s' object is not reversible", v_type(v));
        if (v.t == V_DICT || v.t == V_VIEW)
                v = list_of(j, v, V_LIST);
        if (!v_len(j, v))
                return v_undef(j, "No last item, sequence was empty.");
        return v_index(j, v, -1, &found);
}

static bool next_back(J *j, Iter *it, Val *out)
{
        const List *l = it->of.l;
        (void)j;
        if (it->i >= l->n)
                return false;
        *out = l->v[l->n - ++it->i];
        return true;
}

static Val f_reverse(J *j, Val v, const Args *a)
{
        args_take(j, a, "reverse", "", NULL);
        if (is_str(v))
                return v_slice(j, v, v_none(), v_none(), v_int(-1));
        if (!has_iter(v) || v.t == V_LOOP)
                j_fail(j, "argument must be iterable");
        Val l = list_of(j, v, V_LIST);
        if (v.t != V_ITER)
                return v_iter(j, next_back, l, NULL);
        Val out = v_list(j, V_LIST, l.l->n);
        for (size_t i = 0; i < l.l->n; i++)
                out.l->v[i] = l.l->v[l.l->n - 1 - i];
        return out;
}

static bool next_pair(J *j, Iter *it, Val *out)
{
        if (it->of.t == V_UNDEF)
                return false;
        if (it->of.t != V_DICT)
                j_fail(j, "can only get item pairs from a mapping, not %s", v_type(it->of));
        if (it->i >= it->of.m->n)
                return false;
        *out = v_list(j, V_TUPLE, 2);
        out->l->v[0] = it->of.m->e[it->i].key;
        out->l->v[1] = it->of.m->e[it->i++].value;
        return true;
}

static Val f_items(J *j, Val v, const Args *a)
{
        args_take(j, a, "items", "", NULL);
        return v_iter(j, next_pair, v, NULL);
}

static Val f_join(J *j, Val v, const Args *a)
{
        Val x[2], item;
        Buf b = { 0 };
        bool first = true;
        args_take(j, a, "join", "d? attribute?", x);
        Val by = x[0].t == V_MISSING ? v_text(j, "") : to_str(j, x[0]);
        Path p = path_of(j, x[1], (Val) { .t = V_MISSING }, false);
        for (Iter *it = iter_of(j, v); iter_next(j, it, &item); first = false) {
                size_t was = b.n;
                if (!first)
                        out_put(j, &b, by.s->p, by.s->n);
                put_str(j, &b, path_get(j, &p, item));
                j_step(j, (b.n - was) / 64);
        }
        return out_str(j, &b);
}

typedef struct Batch {
        int64_t n;
        Val fill;
        Iter *from;
        List all;
} Batch;

static bool next_batch(J *j, Iter *it, Val *out)
{
        Batch *b = it->state;
        Val x, l;
        int64_t n = 0;
        if (!b->from)
                b->from = iter_of(j, it->of);
        /* the item that begins the next batch waits in `all` */
        Val *row = j_get(j, (size_t)(b->n + 1) * sizeof *row);
        if (b->all.n)
                row[n++] = *b->all.v;
        b->all.n = 0;
        while (iter_next(j, b->from, &x)) {
                if (n == b->n && n) {
                        b->all.v[0] = x;
                        b->all.n = 1;
                        break;
                }
                if (b->n <= 0)
                        j_lacks(j, "batches of no items");
                row[n++] = x;
        }
        if (!n)
                return false;
        while (given(b->fill) && n < b->n)
                row[n++] = b->fill;
        l = v_list(j, V_LIST, (size_t)n);
        memcpy(l.l->v, row, (size_t)n * sizeof *row);
        *out = l;
        return true;
}

static Val f_batch(J *j, Val v, const Args *a)
{
        Val x[2];
        Batch *b = j_get(j, sizeof *b);
        args_take(j, a, "batch", "linecount fill_with?", x);
        if (!is_integer(x[0], &b->n) || b->n < 1 || b->n > MOST_RANGE)
                j_lacks(j, "this size of batches");
        b->fill = x[1];
        b->all.v = j_get(j, sizeof *b->all.v);
        return v_iter(j, next_batch, v, b);
}

/* fn NULL: jinja2 has it, this does not. */
static const Named filter[] = {
        { "batch", f_batch },
        { "dictsort", f_dictsort },
        { "first", f_first },
        { "groupby", NULL },
        { "items", f_items },
        { "join", f_join },
        { "last", f_last },
        { "list", f_list },
        { "map", f_map },
        { "max", f_max },
        { "min", f_min },
        { "reject", f_reject },
        { "rejectattr", f_rejectattr },
        { "reverse", f_reverse },
        { "select", f_select },
        { "selectattr", f_selectattr },
        { "slice", NULL },
        { "sort", f_sort },
        { "sum", f_sum },
        { "unique", f_unique },
};

const Named *items_filter_find(const char *name)
{
        for (size_t i = 0; i < sizeof filter / sizeof *filter; i++)
                if (!strcmp(filter[i].name, name))
                        return &filter[i];
        return NULL;
}
