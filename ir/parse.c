/* parse.c: reads the text of a graph.  Mistakes go to error_at with line and column.  `#` starts a
 * comment.  The printed types must be what the shape rules say; a mismatch is reported with
 * both. */
#include "ir.h"
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parser {
        const char *s, *line_start;
        int line;
        const char *file;
        Graph *g;
        Ref *slot; /* open-addressing table from name to node */
        unsigned cap;
} Parser;

static Loc here(const Parser *p)
{
        return (Loc) { p->file, p->line, (int)(p->s - p->line_start) + 1 };
}

static void skip(Parser *p)
{
        for (;; p->s++) {
                if (*p->s == '#')
                        p->s += strcspn(p->s, "\n");
                if (*p->s == '\n') {
                        p->line++;
                        p->line_start = p->s + 1;
                } else if (*p->s != ' ' && *p->s != '\t' && *p->s != '\r') {
                        return;
                }
        }
}

static bool accept(Parser *p, const char *word)
{
        size_t n = strlen(word);
        skip(p);
        if (strncmp(p->s, word, n))
                return false;
        p->s += n;
        return true;
}

static void expect(Parser *p, const char *word)
{
        if (accept(p, word))
                return;
        int len = (int)strcspn(p->s, "\n ");
        error_at(here(p), "expected '%s', found '%.*s'", word, len > 20 ? 20 : len, p->s);
}

static bool is_name(char c)
{
        return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-' || c == '/';
}

static const char *word(Parser *p, const char *what)
{
        const char *s;
        char *w;
        skip(p);
        for (s = p->s; is_name(*p->s); p->s++)
                ;
        if (p->s == s)
                error_at(here(p), "expected %s", what);
        w = arena_alloc(p->g->arena, (size_t)(p->s - s) + 1);
        memcpy(w, s, (size_t)(p->s - s));
        return w;
}

static int64_t integer(Parser *p)
{
        char *end;
        skip(p);
        long long v = strtoll(p->s, &end, 10);
        if (end == p->s)
                error_at(here(p), "expected an integer");
        p->s = end;
        return v;
}

static double real(Parser *p)
{
        char *end;
        skip(p);
        double v = num_read(p->s, &end);
        if (end == p->s)
                error_at(here(p), "expected a number");
        p->s = end;
        return v;
}

static unsigned hash(const char *s)
{
        unsigned h = 2166136261u;
        while (*s)
                h = (h ^ (unsigned char)*s++) * 16777619u;
        return h;
}

static Ref *lookup(Parser *p, const char *name)
{
        unsigned i = hash(name) & (p->cap - 1);
        while (p->slot[i] && strcmp(p->g->node[p->slot[i]].name, name))
                i = (i + 1) & (p->cap - 1);
        return &p->slot[i];
}

static void define(Parser *p, const char *name, Ref r, Loc loc)
{
        if ((unsigned)r * 2 > p->cap) {
                Ref *old = p->slot;
                unsigned cap = p->cap;
                p->cap *= 2;
                p->slot = arena_alloc(p->g->arena, p->cap * sizeof *p->slot);
                for (unsigned i = 0; i < cap; i++)
                        if (old[i])
                                *lookup(p, p->g->node[old[i]].name) = old[i];
        }
        if (*lookup(p, name))
                error_at(loc, "%%%s is defined twice", name);
        *lookup(p, name) = r;
}

static Ref value(Parser *p)
{
        Loc loc;
        const char *name;
        expect(p, "%");
        loc = here(p);
        name = word(p, "a value's name");
        Ref r = *lookup(p, name);
        if (!r)
                error_at(loc, "%%%s is not defined", name);
        return r;
}

static Type type(Parser *p)
{
        Type t = { 0 };
        int dt;
        skip(p);
        for (dt = 0; dt < N_DT; dt++) {
                size_t n = strlen(dt_name[dt]);
                if (!strncmp(p->s, dt_name[dt], n) && p->s[n] == '[')
                        break;
        }
        if (dt == N_DT)
                error_at(here(p), "expected a type such as f32[B,T,64]");
        p->s += strlen(dt_name[dt]);
        t.dt = (DType)dt;
        expect(p, "[");
        while (!accept(p, "]")) {
                Dim d = DIM(1);
                if (t.rank == MAX_RANK)
                        error_at(here(p), "more than %d dimensions", MAX_RANK);
                if (t.rank)
                        expect(p, ",");
                do {
                        skip(p);
                        if (isdigit((unsigned char)*p->s)) {
                                Loc l = here(p);
                                int64_t v = integer(p);
                                if (v < 1 || v > (int64_t)1 << 40 || d.n > ((int64_t)1 << 40) / v)
                                        error_at(l, "dimension out of range");
                                d.n *= v;
                        } else if (*p->s && strchr("BTS", *p->s)) {
                                int sym = (int)(strchr("BTS", *p->s) - "BTS");
                                if (d.e[sym] == 8)
                                        error_at(here(p), "dimension out of range");
                                d = dim_mul(d, DIM_SYM(sym));
                                p->s++;
                        } else {
                                error_at(here(p), "expected a dimension: a number, B, T or S");
                        }
                } while (accept(p, "*"));
                t.dim[t.rank++] = d;
        }
        return t;
}

static void attrs(Parser *p, Op op, Attr *a)
{
        const AttrField *all = attr_fields[op_info[op].attr], *f;
        for (f = all; f->name; f++)
                if (f->count == 1) {
                        if (f->real)
                                *(double *)((char *)a + f->offset) = f->dflt;
                        else
                                *(int64_t *)((char *)a + f->offset) = (int64_t)f->dflt;
                }
        if (!accept(p, "{"))
                return;
        do {
                Loc loc;
                const char *name;
                skip(p);
                loc = here(p);
                name = word(p, "an attribute's name");
                for (f = all; f->name && strcmp(f->name, name); f++)
                        ;
                if (!f->name)
                        error_at(loc, "%s has no attribute '%s'", op_info[op].text, name);
                expect(p, "=");
                if (f->count == 0) {
                        int64_t n = 0, cap = 16;
                        double *d = arena_alloc(p->g->arena, (size_t)cap * sizeof *d);
                        do {
                                if (n == cap) {
                                        double *e = arena_alloc(p->g->arena,
                                                                (size_t)cap * 2 * sizeof *e);
                                        memcpy(e, d, (size_t)cap * sizeof *e);
                                        d = e;
                                        cap *= 2;
                                }
                                d[n++] = real(p);
                        } while (accept(p, ":"));
                        a->data.data = d;
                        a->data.n = n;
                } else if (f->word) {
                        Loc at = (skip(p), here(p));
                        const char *value = word(p, "a word");
                        const int64_t k = attr_word(f, value);
                        if (k < 0)
                                error_at(at, "'%s' is no value of '%s'", value, name);
                        *(int64_t *)(void *)((char *)a + f->offset) = k;
                } else {
                        char *q = (char *)a + f->offset;
                        int i = 0;
                        do {
                                if (i == f->count)
                                        error_at(here(p), "'%s' takes at most %d numbers", name,
                                                 f->count);
                                if (f->real)
                                        ((double *)(void *)q)[i++] = real(p);
                                else
                                        ((int64_t *)(void *)q)[i++] = integer(p);
                        } while (accept(p, ":"));
                }
        } while (accept(p, ","));
        expect(p, "}");
}

static void node(Parser *p)
{
        Graph *g = p->g;
        Loc loc, at;
        const char *name, *text;
        Ref in[MAX_IN], r;
        int n = 0;
        Attr a = { 0 };
        Type t;
        char x[256], y[256];
        expect(p, "%");
        loc = here(p);
        name = word(p, "a value's name");
        expect(p, "=");
        skip(p);
        at = here(p);
        text = word(p, "an op");
        Op op = op_find(text);
        if (!op)
                error_at(at, "unknown op '%s'", text);
        skip(p);
        if (*p->s == '%')
                do {
                        if (n == MAX_IN)
                                error_at(here(p), "more than %d inputs", MAX_IN);
                        in[n++] = value(p);
                } while (accept(p, ","));
        attrs(p, op, &a);
        expect(p, ":");
        t = type(p);
        r = graph_typed(g, op, &t, in, n, &a, at, name);
        if (!shape_eq(&NODE(g, r)->type, &t))
                error_at(at, "%s gives %s, the text says %s", text,
                         shape_text(&NODE(g, r)->type, x), shape_text(&t, y));
        NODE(g, r)->type.dt = t.dt;
        define(p, name, r, loc);
        if (accept(p, "!"))
                NODE(g, r)->group = (int)integer(p);
        skip(p);
        if (*p->s == '@') {
                const char *s = ++p->s, *colon = NULL;
                for (; *p->s && !isspace((unsigned char)*p->s); p->s++)
                        if (*p->s == ':')
                                colon = p->s;
                char *end = NULL;
                const long line = colon && isdigit((unsigned char)colon[1])
                                          ? strtol(colon + 1, &end, 10)
                                          : 0;
                if (line < 1 || line > INT_MAX || end != p->s)
                        error_at(here(p), "expected @file:line, with a line from 1");
                char *file = arena_alloc(g->arena, (size_t)(colon - s) + 1);
                memcpy(file, s, (size_t)(colon - s));
                NODE(g, r)->loc = (Loc) { file, (int)line, 0 };
        }
}

static void graph(Parser *p)
{
        Graph *g = p->g;
        expect(p, "graph");
        expect(p, "@");
        g->name = word(p, "the graph's name");
        expect(p, "(");
        while (!accept(p, ")")) {
                Loc loc;
                const char *name;
                Type t;
                if (g->n_nodes > 1)
                        expect(p, ",");
                expect(p, "%");
                loc = here(p);
                name = word(p, "an input's name");
                expect(p, ":");
                t = type(p);
                Ref r = graph_leaf(g, OP_INPUT, t, NULL, loc, name);
                define(p, name, r, loc);
        }
        while (!accept(p, "{")) {
                skip(p);
                const char *s = *p->s ? strchr("BTS", *p->s) : NULL;
                if (!s)
                        error_at(here(p), "expected '{'");
                p->s++;
                expect(p, "=");
                skip(p);
                Loc loc = here(p);
                int64_t v = integer(p);
                if (v < 1 || v > (int64_t)1 << 31)
                        error_at(loc, "%c must be positive", *s);
                g->sizes.v[s - "BTS"] = v;
        }
        for (;;) {
                skip(p);
                if (*p->s == '%') {
                        node(p);
                } else if (accept(p, "return")) {
                        do {
                                const char *name = "out";
                                skip(p);
                                if (*p->s != '%') {
                                        name = word(p, "an output");
                                        expect(p, "=");
                                }
                                graph_output(g, name, value(p));
                        } while (accept(p, ","));
                } else {
                        expect(p, "}");
                        return;
                }
        }
}

/* A graph that did not parse is freed before the error goes on. */
Graph *graph_parse(const char *text, const char *file)
{
        Graph *g = graph_new("graph");
        Diag *outer = diag_top, d;
        if (DIAG_CATCH(&d)) {
                Parser p = { text, text, 1, arena_str(g->arena, file), g, NULL, 256 };
                p.slot = arena_alloc(g->arena, p.cap * sizeof *p.slot);
                d.source = text;
                d.source_file = p.file;
                graph(&p);
                skip(&p);
                if (*p.s)
                        error_at(here(&p), "text after the graph");
                if (outer) { /* passes may point into it too */
                        outer->source = text;
                        outer->source_file = p.file;
                }
                diag_end(&d);
                return g;
        }
        graph_free(g);
        diag_pass_on(&d);
}
