/* json.c: reads a Model from JSON, and writes it.
 *
 *      {"tgc_graph": 1, "name": "mlp", "ctx": 128, "documents": 50256,
 *       "nodes": [
 *        {"name": "ids", "op": "input", "type": "i32[B,T]"},
 *        {"name": "w", "op": "param", "attr": {"init": 2, "a": 0.02, "decay": 1}, "type":
 *        "f32[8,4]"}, {"name": "y", "op": "matmul", "in": ["x", "w"], "attr": {"tb": 1}, "loc":
 *        "mlp.lua:4"}],
 *       "outputs": {"logits": "y"},
 *       "map": [{"param": "w", "rows": [0, 4, 1], "from": "up.weight | t", "optional": true}],
 *       "ignore": ["*.bias"], "meta": "meta eos_token_id 2\n"}
 *
 * Nodes come after their inputs.  A type is required if the op cannot infer it (leaves, reshape,
 * expand, cast); elsewhere it is checked.  What write_json prints gives the identical graph: names,
 * order, attributes, source lines. */
#include "read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/json.h"

/* Reading ---------------------------------------------------------------- */

typedef struct File {
        Model *m;
        const char *path;
        Names seen;     /* name -> node; -1: it comes later */
        const char *at; /* how far lines are counted */
        int line;
        size_t n_const;
        int n_params;
} File;

static Loc place(const File *f, int line) { return (Loc) { f->path, line, 0 }; }

/* A string's text, kept as long as the model; NULL: not a string. */
static const char *text_of(const File *f, Json v)
{
        JsonBuf b = { 0 };
        size_t n;
        const char *s = json_string(v, &b, &n);
        if (s)
                s = arena_fmt(f->m->arena, "%.*s", (int)n, s);
        else if (json_type(v) == '"')
                error_code(TGC_NO_MEMORY, (Loc) { 0 }, "no memory for a string of %s", f->path);
        json_buf_free(&b);
        return s;
}

static void need_keys(const File *f, int line, Json o, const char *const *known, const char *what)
{
        int n = 0, i;
        if (json_type(o) != '{')
                error_at(place(f, line), "%s must be an object", what);
        while (known[n])
                n++;
        for (JsonEach each = json_each(o); json_next(&each);) {
                for (i = 0; i < n && !json_is(each.key, known[i]); i++)
                        ;
                if (i == n) {
                        const char *key = text_of(f, each.key), *near = nearest(key, known, n);
                        error_at(place(f, line), "%s has no key '%.100s'%s%s%s", what, key,
                                 near ? "; did you mean '" : "", near ? near : "",
                                 near ? "'?" : "");
                }
        }
}

static const char *need_text(const File *f, int line, Json o, const char *key, const char *what)
{
        const char *s = text_of(f, json_get(o, key));
        if (!s)
                error_at(place(f, line), "%s: \"%s\" must be a string", what, key);
        return s;
}

/* Not there, or a list. */
static Json need_list(const File *f, int line, Json o, const char *key, const char *what)
{
        Json c = json_get(o, key);
        if (json_type(c) && json_type(c) != '[')
                error_at(place(f, line), "%s: \"%s\" must be a list", what, key);
        return c;
}

static double need_number(const File *f, int line, Json c, const char *what, bool whole)
{
        char type = json_type(c);
        double x = type == 't' || type == 'f' ? type == 't' : json_number(c);
        if (!isfinite(x) || (whole && (x != floor(x) || fabs(x) > 0x1p44)))
                error_at(place(f, line), "%s must be a %s number", what,
                         whole ? "whole" : "finite");
        return x;
}

/* "f32[B,2*T,64]" */
static Type type_from(const File *f, int line, const char *s)
{
        Type t = { 0 };
        const char *at = strchr(s, '['), *sym;
        int dt = 0;
        size_t n_name = at ? (size_t)(at - s) : 0;
        while (dt < DT_FP8 && (strlen(dt_name[dt]) != n_name || strncmp(s, dt_name[dt], n_name)))
                dt++;
        if (dt == DT_FP8)
                goto bad;
        t.dt = (DType)dt;
        if (!strcmp(++at, "]"))
                return t;
        for (;;) {
                Dim d = DIM(1);
                do {
                        if (*at >= '0' && *at <= '9') {
                                char *end;
                                long long n = strtoll(at, &end, 10);
                                if (end - at > 14 || n < 1 || (d.n *= n) > (int64_t)1 << 44)
                                        goto bad;
                                at = end;
                        } else if (*at && (sym = strchr("BTS", *at))) {
                                if (++d.e[sym - "BTS"] > 4)
                                        goto bad;
                                at++;
                        } else {
                                goto bad;
                        }
                } while (*at == '*' && at++ && d.n < (int64_t)1 << 20);
                if (t.rank == MAX_RANK)
                        goto bad;
                t.dim[t.rank++] = d;
                if (*at == ']' && !at[1])
                        return t;
                if (*at++ != ',')
                        goto bad;
        }
bad:
        error_at(place(f, line),
                 "'%.100s' is not a type; write one as f32[B,T,64], with dimensions of numbers, "
                 "B and T",
                 s);
}

static void read_data(File *f, int line, Json v, Attr *a)
{
        size_t n = json_count(v), i = 0;
        double *d;
        if (json_type(v) != '[' || !n || n > READ_MAX_CONST - f->n_const)
                error_at(place(f, line), "\"data\" must be a list of 1 to %d numbers in all",
                         READ_MAX_CONST);
        f->n_const += n;
        a->data.data = d = arena_alloc(f->m->arena, n * sizeof *d);
        a->data.n = (int)n;
        for (JsonEach each = json_each(v); json_next(&each);)
                d[i++] = need_number(f, line, each.value, "every element of \"data\"", false);
}

static void read_attr(File *f, int line, Op op, Json o, Attr *a)
{
        const AttrField *all = attr_fields[op_info[op].attr], *q;
        attr_default(op, a);
        if (!json_type(o))
                return;
        if (json_type(o) != '{')
                error_at(place(f, line), "\"attr\" must be an object");
        for (JsonEach each = json_each(o); json_next(&each);) {
                Json v = each.value;
                for (q = all; q->name && !json_is(each.key, q->name); q++)
                        ;
                if (!q->name)
                        error_at(place(f, line), "%s has no attribute '%.100s'", op_info[op].text,
                                 text_of(f, each.key));
                if (q->count == 0) {
                        read_data(f, line, v, a);
                        continue;
                }
                const char *what = arena_fmt(f->m->arena, "attribute '%s'", q->name);
                if (q->word) {
                        const int64_t k = json_type(v) == '"' ? attr_word(q, text_of(f, v)) : -1;
                        if (k < 0)
                                error_at(place(f, line), "%s has no such value", what);
                        *(int64_t *)(void *)((char *)a + q->offset) = k;
                        continue;
                }
                if (q->count > 1 && (json_type(v) != '[' || json_count(v) > (size_t)q->count))
                        error_at(place(f, line), "%s is a list of at most %d numbers", what,
                                 q->count);
                JsonEach list = json_each(v);
                for (int i = 0; q->count > 1 ? json_next(&list) : i == 0; i++) {
                        char *p = (char *)a + q->offset;
                        double x = need_number(f, line, q->count > 1 ? list.value : v, what,
                                               !q->real);
                        if (q->real)
                                ((double *)(void *)p)[i] = x;
                        else
                                ((int64_t *)(void *)p)[i] = (int64_t)x;
                }
        }
}

/* "file:line" of the original model. */
static Loc read_loc(const File *f, int line, const char *s)
{
        const char *colon = strrchr(s, ':');
        char *end;
        long v = colon ? strtol(colon + 1, &end, 10) : 0;
        if (!colon || colon == s || *end || v < 1 || v > 1 << 30 || !map_text_is_plain(s))
                error_at(place(f, line), "\"loc\" must be FILE:LINE, not '%.100s'", s);
        return (Loc) { arena_fmt(f->m->arena, "%.*s", (int)(colon - s), s), (int)v, 0 };
}

static void read_inputs(File *f, int line, const char *name, Json list, Ref *in, int *n)
{
        *n = 0;
        for (JsonEach each = json_each(list); json_next(&each);) {
                const char *s = text_of(f, each.value);
                if (!s)
                        error_at(place(f, line), "%%%s: an input is the name of a node", name);
                int r = *names_at(&f->seen, s);
                if (!r)
                        error_at(place(f, line), "%%%s reads '%.100s', and no node has that name",
                                 name, s);
                if (r < 0)
                        error_at(place(f, line),
                                 "%%%s reads %%%s, which does not stand before it: a cycle, or "
                                 "nodes out of order",
                                 name, s);
                if (*n == MAX_IN)
                        error_at(place(f, line), "%%%s has more than %d inputs", name, MAX_IN);
                in[(*n)++] = r;
        }
}

static void read_one(File *f, int line, Json o)
{
        Graph *g = f->m->graph;
        const char *name = need_text(f, line, o, "name", "the node");
        const char *text = need_text(f, line, o, "op", arena_fmt(f->m->arena, "%%%s", name));
        const bool typed = json_type(json_get(o, "type"));
        Op op = op_find(text);
        Type t = { 0 };
        Attr a;
        Ref in[MAX_IN], r;
        int n;
        char x[256], y[256];
        if (!op)
                error_at(place(f, line), "%%%s: unknown op '%.100s'", name, text);
        if (!op_is_public(op))
                error_at(place(f, line),
                         "%%%s: '%s' is made by the compiler and cannot stand in a model", name,
                         text);
        if (op == OP_PARAM && ++f->n_params > READ_MAX_PARAMS)
                error_at(place(f, line), "the graph has more than %d parameters", READ_MAX_PARAMS);
        read_inputs(f, line, name, need_list(f, line, o, "in", name), in, &n);
        read_attr(f, line, op, json_get(o, "attr"), &a);
        if (typed)
                t = type_from(f, line, need_text(f, line, o, "type", name));
        else if (op_is(op, FACT_STATED))
                error_at(place(f, line), "%%%s: %s needs a \"type\"", name, text);
        r = read_node(g, op, op_is(op, FACT_STATED) ? &t : NULL, in, n, &a, place(f, line), name);
        if (typed && !type_eq(&NODE(g, r)->type, &t))
                error_at(place(f, line), "%%%s: %s gives %s, the file says %s", name, text,
                         type_text(&NODE(g, r)->type, x), type_text(&t, y));
        if (json_type(json_get(o, "loc")))
                NODE(g, r)->loc = read_loc(f, line, need_text(f, line, o, "loc", name));
        if (op == OP_DROPOUT && a.drop.id >= g->next_id)
                g->next_id = a.drop.id < 1 << 30 ? (int)a.drop.id + 1 : g->next_id;
        if (op == OP_ATTENTION && a.att.id >= g->next_id)
                g->next_id = a.att.id < 1 << 30 ? (int)a.att.id + 1 : g->next_id;
        *names_at(&f->seen, name) = r;
}

/* The line of a value that stands behind those asked for before. */
static int line_of(File *f, Json v)
{
        for (; f->at < v.at; f->at++)
                f->line += *f->at == '\n';
        return f->line;
}

static void read_nodes(File *f, Json list)
{
        static const char *const keys[] = { "name", "op", "in", "attr", "type", "loc", NULL };
        size_t n = json_count(list);
        if (n > READ_MAX_NODES)
                error_at(place(f, 0), "the graph has %zu nodes, more than %d", n, READ_MAX_NODES);
        f->at = list.in->text;
        f->line = 1;
        for (JsonEach i = json_each(list); json_next(&i);) {
                int line = line_of(f, i.value);
                need_keys(f, line, i.value, keys, "a node");
                const char *name = need_text(f, line, i.value, "name", "the node");
                if (!name_is_plain(name))
                        error_at(place(f, line),
                                 "'%.100s' cannot be a node's name: letters, digits, _ . - only",
                                 name);
                if (*names_at(&f->seen, name))
                        error_at(place(f, line), "%%%s is defined twice", name);
                *names_at(&f->seen, name) = -1;
        }
        f->at = list.in->text;
        f->line = 1;
        for (JsonEach i = json_each(list); json_next(&i);)
                read_one(f, line_of(f, i.value), i.value);
}

static void read_map(File *f, Json list)
{
        static const char *const keys[] = { "param", "rows", "from", "optional", NULL };
        if (json_count(list) > READ_MAX_MAP)
                error_at(place(f, 0), "the map has more than %d lines", READ_MAX_MAP);
        for (JsonEach i = json_each(list); json_next(&i);) {
                Json c = i.value;
                MapLine line = { .step = 1 };
                need_keys(f, 0, c, keys, "a line of the map");
                line.param = need_text(f, 0, c, "param", "a line of the map");
                int r = *names_at(&f->seen, line.param);
                if (r <= 0 || NODE(f->m->graph, r)->op != OP_PARAM)
                        error_at(place(f, 0),
                                 "the map names '%.100s', and no parameter has that name",
                                 line.param);
                const char *from = need_text(f, 0, c, "from", line.param);
                if (!map_text_is_plain(from))
                        error_at(place(f, 0), "the map of '%s' is not one line of text",
                                 line.param);
                line.optional = json_type(json_get(c, "optional")) == 't';
                line.rest = arena_fmt(f->m->arena, line.optional ? "=? %s" : "= %s", from);
                Json rows = need_list(f, 0, c, "rows", line.param);
                if (json_type(rows)) {
                        const Type *t = &NODE(f->m->graph, r)->type;
                        int64_t *to[] = { &line.begin, &line.end, &line.step };
                        JsonEach k = json_each(rows);
                        if (json_count(rows) != 3)
                                error_at(place(f, 0),
                                         "the map of '%s': \"rows\" is [begin, end, step]",
                                         line.param);
                        for (int at = 0; json_next(&k); at++)
                                *to[at] = (int64_t)need_number(f, 0, k.value, "\"rows\"", true);
                        if (!t->rank || line.begin < 0 || line.end <= line.begin || line.step < 1 ||
                            line.end > t->dim[0].n)
                                error_at(place(f, 0),
                                         "the map of '%s': rows %lld to %lld do not lie in it",
                                         line.param, (long long)line.begin, (long long)line.end);
                }
                model_map(f->m, line);
        }
}

static void read_root(File *f, Json o)
{
        static const char *const keys[] = { "tgc_graph", "name", "ctx",    "documents", "nodes",
                                            "outputs",   "map",  "ignore", "meta",      NULL };
        Json c;
        need_keys(f, 0, o, keys, "the graph");
        if (json_number(json_get(o, "tgc_graph")) != 1)
                error_at(place(f, 0), "not a graph of version 1: \"tgc_graph\" must be 1");
        if (json_type(json_get(o, "name"))) {
                f->m->name = arena_str(f->m->arena, need_text(f, 0, o, "name", "the graph"));
                if (!name_is_plain(f->m->name))
                        error_at(place(f, 0),
                                 "'%.100s' cannot be a model's name: letters, digits, _ . - only",
                                 f->m->name);
        }
        c = json_get(o, "ctx");
        if (json_type(c) && ((f->m->ctx = (int64_t)need_number(f, 0, c, "\"ctx\"", true)) < 1 ||
                             f->m->ctx > 1 << 24))
                error_at(place(f, 0), "\"ctx\" must be between 1 and 2^24");
        c = json_get(o, "documents");
        if (json_type(c) &&
            ((f->m->documents = (int64_t)need_number(f, 0, c, "\"documents\"", true)) < 0 ||
             f->m->documents >= 1 << 28))
                error_at(place(f, 0), "\"documents\" must be a token's id");
        c = need_list(f, 0, o, "nodes", "the graph");
        if (!json_type(c))
                error_at(place(f, 0), "the graph has no \"nodes\"");
        read_nodes(f, c);
        c = json_get(o, "outputs");
        if (json_type(c) != '{')
                error_at(place(f, 0), "the graph has no \"outputs\": {NAME: NODE}");
        for (JsonEach i = json_each(c); json_next(&i);) {
                const char *s = text_of(f, i.value), *name = text_of(f, i.key);
                int r = s ? *names_at(&f->seen, s) : 0;
                if (r <= 0 || !name_is_plain(name))
                        error_at(place(f, 0), "output '%.100s' must be the name of a node", name);
                graph_output(f->m->graph, name, r);
        }
        read_map(f, need_list(f, 0, o, "map", "the graph"));
        c = need_list(f, 0, o, "ignore", "the graph");
        for (JsonEach i = json_each(c); json_next(&i);) {
                const char *s = text_of(f, i.value);
                if (!s || !map_text_is_plain(s) || strchr(s, ' ') || f->m->n_ignore >= 4096)
                        error_at(place(f, 0), "\"ignore\" is a list of at most 4096 patterns");
                model_ignore(f->m, s);
        }
        if (json_type(json_get(o, "meta"))) {
                f->m->meta = arena_str(f->m->arena, need_text(f, 0, o, "meta", "the graph"));
                for (const char *s = f->m->meta; *s; s += strcspn(s, "\n") + 1)
                        if (strncmp(s, "meta ", 5) || !strchr(s, '\n'))
                                error_at(place(f, 0),
                                         "\"meta\" is lines that begin with the word meta");
        }
        model_finish(f->m, f->path);
}

Model *read_json_text(const char *text, size_t n, const char *name)
{
        JsonText json;
        Json root;
        Err e = { 0 };
        Diag d;
        if (json_open(&json, &root, text, n, name, false, &e))
                error_code(e.code, (Loc) { 0 }, "%s", e.msg);
        File f = { .m = model_new("model") };
        f.path = arena_str(f.m->arena, name);
        f.seen.a = f.m->arena;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                read_root(&f, root);
                diag_end(&d);
        } else {
                model_free(f.m);
                f.m = NULL;
        }
        json_close(&json);
        if (!f.m)
                error_code(d.code, (Loc) { 0 }, "%s", d.msg);
        return f.m;
}

Model *read_json(const char *path)
{
        size_t n;
        char *text = read_text(path, READ_MAX_TEXT, &n);
        Diag d;
        if (!DIAG_CATCH(&d)) {
                free(text);
                diag_pass_on(&d);
        }
        Model *m = read_json_text(text, n, path);
        diag_end(&d);
        free(text);
        return m;
}

/* Writing ---------------------------------------------------------------- */

void json_put_string(Text *out, const char *s)
{
        text_add(out, "\"");
        for (; *s; s++) {
                if (*s == '"' || *s == '\\')
                        text_add(out, "\\%c", *s);
                else if (*s == '\n')
                        text_add(out, "\\n");
                else if ((unsigned char)*s < 0x20)
                        text_add(out, "\\u%04x", *s);
                else
                        text_put(out, s, 1);
        }
        text_add(out, "\"");
}

static void put_attr(const Node *n, Text *out)
{
        const char *sep = ", \"attr\": {";
        char num[32];
        for (const AttrField *f = attr_fields[op_info[n->op].attr]; f->name; f++) {
                const char *p = (const char *)&n->a + f->offset;
                const double *real = (const double *)(const void *)p;
                const int64_t *whole = (const int64_t *)(const void *)p;
                if (f->count == 1 && (f->real ? *real == f->dflt : *whole == (int64_t)f->dflt))
                        continue;
                text_add(out, "%s\"%s\": ", sep, f->name);
                sep = ", ";
                if (f->count == 1) {
                        if (f->real)
                                num_text(*real, num);
                        else if (f->word)
                                snprintf(num, sizeof num, "\"%s\"", f->word[*whole]);
                        else
                                snprintf(num, sizeof num, "%lld", (long long)*whole);
                        text_add(out, "%s", num);
                        continue;
                }
                int64_t k = f->count ? n->type.rank : n->a.data.n;
                for (int64_t i = 0; i < k; i++) {
                        if (f->count)
                                snprintf(num, sizeof num, "%lld", (long long)whole[i]);
                        else
                                num_text(n->a.data.data[i], num);
                        text_add(out, "%s%s", i ? ", " : "[", num);
                }
                text_add(out, k ? "]" : "[]");
        }
        if (sep[2] != '"')
                text_add(out, "}");
}

static void put_node(const Graph *g, const Node *n, Text *out)
{
        char t[256], file[LOC_NAME];
        text_add(out, "  {\"name\": \"%s\", \"op\": \"%s\"", n->name, op_info[n->op].text);
        for (int i = 0; i < n->n_in; i++)
                text_add(out, "%s\"%s\"", i ? ", " : ", \"in\": [", g->node[n->in[i]].name);
        if (n->n_in)
                text_add(out, "]");
        put_attr(n, out);
        text_add(out, ", \"type\": \"%s\"", type_text(&n->type, t));
        if (n->loc.file && n->loc.line) {
                Text loc = { 0 };
                text_add(&loc, "%s:%d", loc_name(n->loc, file), n->loc.line);
                text_add(out, ", \"loc\": ");
                json_put_string(out, loc.s);
                text_free(&loc);
        }
        text_add(out, "}");
}

void write_json(const Model *m, Text *out)
{
        const Graph *g = m->graph;
        text_add(out, "{\n \"tgc_graph\": 1,\n \"name\": \"%s\",\n \"ctx\": %lld,\n", m->name,
                 (long long)m->ctx);
        if (m->documents >= 0)
                text_add(out, " \"documents\": %lld,\n", (long long)m->documents);
        text_add(out, " \"nodes\": [");
        for (Ref r = 1; r < g->n_nodes; r++) {
                text_add(out, r > 1 ? ",\n" : "\n");
                put_node(g, &g->node[r], out);
        }
        text_add(out, "\n ],\n \"outputs\": {");
        for (int i = 0; i < g->n_out; i++)
                text_add(out, "%s\"%s\": \"%s\"", i ? ", " : "", g->out[i].name,
                         g->node[g->out[i].ref].name);
        text_add(out, "},\n \"map\": [");
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                text_add(out, "%s  {\"param\": \"%s\"", i ? ",\n" : "\n", l->param);
                if (l->end)
                        text_add(out, ", \"rows\": [%lld, %lld, %lld]", (long long)l->begin,
                                 (long long)l->end, (long long)l->step);
                text_add(out, ", \"from\": ");
                json_put_string(out, l->rest + (l->optional ? 3 : 2));
                text_add(out, "%s}", l->optional ? ", \"optional\": true" : "");
        }
        text_add(out, "\n ],\n \"ignore\": [");
        for (int i = 0; i < m->n_ignore; i++) {
                text_add(out, i ? ", " : "");
                json_put_string(out, m->ignore[i]);
        }
        text_add(out, "],\n \"meta\": ");
        json_put_string(out, m->meta);
        text_add(out, "\n}\n");
}
