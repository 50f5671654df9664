/* jinja_value.c: strings, lists, dicts. */
#include <string.h>
#include "jinja.h"

Val v_str_at(J *j, const char *p, size_t n)
{
        Str *s = j_get(j, sizeof *s);
        *s = (Str) { p, n, count_codes(p, n) };
        return (Val) { .t = V_STR, .s = s };
}

Val v_str(J *j, const char *p, size_t n) { return v_str_at(j, j_copy(j, p, n), n); }

Val v_text(J *j, const char *s) { return v_str_at(j, s, strlen(s)); }

Val v_markup(Val s, bool markup)
{
        s.markup = markup;
        return s;
}

Val v_undef(J *j, const char *fmt, ...)
{
        char msg[300];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        Undef *u = j_get(j, sizeof *u);
        u->why = j_copy(j, msg, strlen(msg));
        return (Val) { .t = V_UNDEF, .u = u };
}

Val v_list(J *j, VType t, size_t n)
{
        List *l = j_get(j, sizeof *l);
        if (n > MOST_POOL / sizeof *l->v)
                j_no_memory(j);
        l->v = j_get(j, (n + !n) * sizeof *l->v);
        l->n = n;
        return (Val) { .t = (uint8_t)t, .l = l };
}

Val v_dict(J *j) { return (Val) { .t = V_DICT, .m = j_get(j, sizeof(Dict)) }; }

const char *v_type(Val v)
{
        switch (v.t) {
        case V_NONE: return "None";
        case V_BOOL: return "bool";
        case V_INT: return "int";
        case V_FLOAT: return "float";
        case V_STR: return v.markup ? "Markup" : "str";
        case V_LIST: return "list";
        case V_TUPLE: return "tuple";
        case V_DICT: return "dict";
        case V_VIEW:
                return v.markup == 'k'   ? "dict_keys"
                       : v.markup == 'v' ? "dict_values"
                                         : "dict_items";
        case V_RANGE: return "range";
        case V_ITER: return "generator";
        case V_SPACE: return "namespace";
        case V_FUNC: return v.f->fn ? "function" : "macro";
        case V_LOOP: return "loop";
        default: return "undefined";
        }
}

/* ---- dicts ---- */

static uint64_t mix(uint64_t h)
{
        h ^= h >> 33;
        h *= 0xff51afd7ed558ccdu;
        return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *p, size_t n)
{
        uint64_t h = 14695981039346656037u;
        for (size_t i = 0; i < n; i++)
                h = (h ^ (unsigned char)p[i]) * 1099511628211u;
        return mix(h);
}

/* Equal values have equal hashes: 1, 1.0 and True too. */
static uint64_t v_hash(J *j, Val v)
{
        uint64_t h = 7;
        double d;
        switch (v.t) {
        case V_BOOL: return mix((uint64_t)v.b);
        case V_INT: return mix((uint64_t)v.i);
        case V_FLOAT:
                d = v.d;
                if (d >= -9e18 && d <= 9e18 && (double)(int64_t)d == d)
                        return mix((uint64_t)(int64_t)d);
                memcpy(&h, &d, sizeof h);
                return mix(h);
        case V_STR: j_step(j, v.s->n / 64); return hash_bytes(v.s->p, v.s->n);
        case V_TUPLE:
                j_down(j);
                for (size_t i = 0; i < v.l->n; i++)
                        h = mix(h * 31 + v_hash(j, v.l->v[i]));
                j->depth--;
                return h;
        case V_NONE:
        case V_UNDEF: return mix(v.t + 1000u);
        case V_RANGE: j_lacks(j, "a range as a key");
        case V_FUNC:
        case V_ITER:
        case V_SPACE:
        case V_LOOP: j_lacks(j, "a %s as a key", v_type(v));
        default: j_fail(j, "unhashable type: '%s'", v_type(v));
        }
}

enum { SMALL = 8 };

static Entry *lookup(J *j, const Dict *d, Val key, uint64_t h)
{
        if (!d->slot) {
                for (size_t i = 0; i < d->n; i++)
                        if (d->e[i].hash == h && v_equal(j, d->e[i].key, key))
                                return &d->e[i];
                return NULL;
        }
        for (size_t at = h & (d->n_slots - 1); d->slot[at]; at = (at + 1) & (d->n_slots - 1)) {
                Entry *e = &d->e[d->slot[at] - 1];
                j_step(j, 1);
                if (e->hash == h && v_equal(j, e->key, key))
                        return e;
        }
        return NULL;
}

Val *dict_find(J *j, const Dict *d, Val key)
{
        Entry *e = lookup(j, d, key, v_hash(j, key));
        return e ? &e->value : NULL;
}

Val *dict_at(J *j, const Dict *d, const char *key)
{
        Str s = { key, strlen(key), 0 };
        Val k = { .t = V_STR, .s = &s };
        s.chars = count_codes(key, s.n);
        return dict_find(j, d, k);
}

static void index_all(J *j, Dict *d, size_t n_slots)
{
        d->slot = j_get(j, n_slots * sizeof *d->slot);
        d->n_slots = n_slots;
        for (size_t i = 0; i < d->n; i++) {
                size_t at = d->e[i].hash & (n_slots - 1);
                while (d->slot[at])
                        at = (at + 1) & (n_slots - 1);
                d->slot[at] = (uint32_t)i + 1;
        }
}

void dict_set(J *j, Dict *d, Val key, Val value)
{
        uint64_t h = v_hash(j, key);
        Entry *e = lookup(j, d, key, h);
        if (e) {
                e->value = value;
                return;
        }
        if (d->n == d->cap) {
                d->e = j_grow(j, d->e, d->n * sizeof *d->e, (d->cap + 4) * sizeof *d->e);
                d->cap = d->cap * 2 + 4;
        }
        d->e[d->n++] = (Entry) { key, value, h };
        if (d->n > SMALL && (!d->slot || d->n * 2 > d->n_slots)) {
                index_all(j, d, d->n_slots ? d->n_slots * 2 : 32);
        } else if (d->slot) {
                size_t at = h & (d->n_slots - 1);
                while (d->slot[at])
                        at = (at + 1) & (d->n_slots - 1);
                d->slot[at] = (uint32_t)d->n;
        }
}

/* ---- buffers ---- */

void out_put(J *j, Buf *b, const char *p, size_t n)
{
        if (b->n + n + 1 > b->cap) {
                size_t more = b->cap + n + 64;
                b->p = j_grow(j, b->p, b->n, more);
                b->cap = b->n + more;
        }
        if (n)
                memcpy(b->p + b->n, p, n);
        b->n += n;
        b->p[b->n] = 0;
}

void out_text(J *j, Buf *b, const char *s) { out_put(j, b, s, strlen(s)); }

void out_code(J *j, Buf *b, uint32_t c)
{
        char s[4];
        out_put(j, b, s, put_code(s, c));
}

Val out_str(J *j, Buf *b) { return v_str_at(j, b->p ? b->p : "", b->n); }
