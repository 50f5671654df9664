/* json.c: a Model as JSON, and back.
 *
 *      {"tgc_graph": 1, "name": "mlp", "ctx": 128, "documents": 50256,
 *       "nodes": [
 *        {"name": "ids", "op": "input", "type": "i32[B,T]"},
 *        {"name": "w", "op": "param", "attr": {"init": 2, "a": 0.02, "decay": 1}, "type": "f32[8,4]"},
 *        {"name": "y", "op": "matmul", "in": ["x", "w"], "attr": {"tb": 1}, "loc": "mlp.lua:4"}],
 *       "outputs": {"logits": "y"},
 *       "map": [{"param": "w", "rows": [0, 4, 1], "from": "up.weight | t", "optional": true}],
 *       "ignore": ["*.bias"], "meta": "meta eos_token_id 2\n"}
 *
 * Nodes stand after their inputs.  A type is needed where the op cannot know it
 * (leaves, reshape, expand, cast); elsewhere it is checked.  What write_json
 * prints gives the identical graph: names, order, attributes, source lines. */
#include "read.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/json.h"

/* Reading ---------------------------------------------------------------- */

typedef struct File {
        Model      *m;
        const char *path;
        Names       seen;               /* name -> node; -1: it comes later */
        int        *line;               /* of each node's brace, in order */
        int         n_lines;
        size_t      n_const;
        int         n_params;
} File;

static Loc place(const File *f, int line) { return (Loc){ f->path, line, 0 }; }

static void need_keys(const File *f, int line, const cJSON *o, const char *const *known, const char *what)
{
        const cJSON *c;
        int n = 0, i;
        if (!cJSON_IsObject(o))
                error_at(place(f, line), "%s must be an object", what);
        while (known[n])
                n++;
        cJSON_ArrayForEach(c, o) {
                for (i = 0; i < n && strcmp(known[i], c->string); i++)
                        ;
                if (i == n) {
                        const char *near = nearest(c->string, known, n);
                        error_at(place(f, line), "%s has no key '%.100s'%s%s%s", what, c->string,
                                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
                }
        }
}

static const char *need_text(const File *f, int line, const cJSON *o, const char *key, const char *what)
{
        const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
        if (!s)
                error_at(place(f, line), "%s: \"%s\" must be a string", what, key);
        return s;
}

static const cJSON *need_list(const File *f, int line, const cJSON *o, const char *key, const char *what)
{
        const cJSON *c = cJSON_GetObjectItemCaseSensitive(o, key);
        if (c && !cJSON_IsArray(c))
                error_at(place(f, line), "%s: \"%s\" must be a list", what, key);
        return c;
}

static double need_number(const File *f, int line, const cJSON *c, const char *what, bool whole)
{
        double x = cJSON_IsNumber(c) ? c->valuedouble : cJSON_IsBool(c) ? cJSON_IsTrue(c) : NAN;
        if (!isfinite(x) || (whole && (x != floor(x) || fabs(x) > 0x1p44)))
                error_at(place(f, line), "%s must be a %s number", what, whole ? "whole" : "finite");
        return x;
}

/* "f32[B,2*T,64]" */
static Type type_from(const File *f, int line, const char *s)
{
        Type t = { 0 };
        const char *at = strchr(s, '['), *sym;
        int dt = 0;
        size_t n_name = at ? (size_t)(at - s) : 0;
        while (dt < N_DT && (strlen(dt_name[dt]) != n_name || strncmp(s, dt_name[dt], n_name)))
                dt++;
        if (dt == N_DT)
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
        error_at(place(f, line), "'%.100s' is no type; one is f32[B,T,64], with dimensions of numbers, B and T", s);
}

static void read_data(File *f, int line, const cJSON *v, Attr *a)
{
        const cJSON *c;
        int n = cJSON_GetArraySize(v), i = 0;
        double *d;
        if (!cJSON_IsArray(v) || !n || (size_t)n > READ_MAX_CONST - f->n_const)
                error_at(place(f, line), "\"data\" must be a list of 1 to %d numbers in all", READ_MAX_CONST);
        f->n_const += (size_t)n;
        a->data.data = d = arena_alloc(f->m->arena, (size_t)n * sizeof *d);
        a->data.n = n;
        cJSON_ArrayForEach(c, v)
                d[i++] = need_number(f, line, c, "every element of \"data\"", false);
}

static void read_attr(File *f, int line, Op op, const cJSON *o, Attr *a)
{
        const AttrField *all = attr_fields[op_info[op].attr], *q;
        const cJSON *v, *c;
        attr_default(op, a);
        if (!o)
                return;
        if (!cJSON_IsObject(o))
                error_at(place(f, line), "\"attr\" must be an object");
        cJSON_ArrayForEach(v, o) {
                int i = 0;
                for (q = all; q->name && strcmp(q->name, v->string); q++)
                        ;
                if (!q->name)
                        error_at(place(f, line), "%s has no attribute '%.100s'", op_info[op].text, v->string);
                if (q->count == 0) {
                        read_data(f, line, v, a);
                        continue;
                }
                if (q->count > 1 && (!cJSON_IsArray(v) || cJSON_GetArraySize(v) > q->count))
                        error_at(place(f, line), "attribute '%s' is a list of at most %d numbers", q->name, q->count);
                for (c = q->count > 1 ? v->child : v; c; c = q->count > 1 ? c->next : NULL, i++) {
                        char *p = (char *)a + q->offset;
                        double x = need_number(f, line, c, arena_fmt(f->m->arena, "attribute '%s'", q->name), !q->real);
                        if (q->real)
                                ((double *)(void *)p)[i] = x;
                        else
                                ((int64_t *)(void *)p)[i] = (int64_t)x;
                }
        }
}

static bool is_typed(Op op)
{
        Class c = op_info[op].cls;
        return c == CLASS_LEAF || op == OP_FILL || op == OP_POSITION || op == OP_RESHAPE || op == OP_EXPAND
            || op == OP_CAST;
}

/* "file:line" of the original model. */
static Loc read_loc(const File *f, int line, const char *s)
{
        const char *colon = strrchr(s, ':');
        char *end;
        long v = colon ? strtol(colon + 1, &end, 10) : 0;
        if (!colon || colon == s || *end || v < 1 || v > 1 << 30 || !map_text_is_plain(s))
                error_at(place(f, line), "\"loc\" must be FILE:LINE, not '%.100s'", s);
        return (Loc){ arena_fmt(f->m->arena, "%.*s", (int)(colon - s), s), (int)v, 0 };
}

static void read_inputs(File *f, int line, const char *name, const cJSON *list, Ref *in, int *n)
{
        const cJSON *c;
        *n = 0;
        cJSON_ArrayForEach(c, list) {
                const char *s = cJSON_GetStringValue(c);
                if (!s)
                        error_at(place(f, line), "%%%s: an input is the name of a node", name);
                int r = *names_at(&f->seen, s);
                if (!r)
                        error_at(place(f, line), "%%%s reads '%.100s', and no node has that name", name, s);
                if (r < 0)
                        error_at(place(f, line),
                                 "%%%s reads %%%s, which does not stand before it: a cycle, or nodes out of "
                                 "order", name, s);
                if (*n == MAX_IN)
                        error_at(place(f, line), "%%%s has more than %d inputs", name, MAX_IN);
                in[(*n)++] = r;
        }
}

static void read_one(File *f, int line, const cJSON *o)
{
        Graph *g = f->m->graph;
        const char *name = need_text(f, line, o, "name", "the node");
        const char *text = need_text(f, line, o, "op", arena_fmt(f->m->arena, "%%%s", name));
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(o, "type");
        const cJSON *loc = cJSON_GetObjectItemCaseSensitive(o, "loc");
        Op op = op_find(text);
        Type t = { 0 };
        Attr a;
        Ref in[MAX_IN], r;
        int n;
        char x[256], y[256];
        if (!op)
                error_at(place(f, line), "%%%s: unknown op '%.100s'", name, text);
        if (!op_is_public(op))
                error_at(place(f, line), "%%%s: '%s' is made by the compiler and cannot stand in a model", name, text);
        if (op == OP_PARAM && ++f->n_params > READ_MAX_PARAMS)
                error_at(place(f, line), "the graph has more than %d parameters", READ_MAX_PARAMS);
        read_inputs(f, line, name, need_list(f, line, o, "in", name), in, &n);
        read_attr(f, line, op, cJSON_GetObjectItemCaseSensitive(o, "attr"), &a);
        if (type)
                t = type_from(f, line, need_text(f, line, o, "type", name));
        else if (is_typed(op))
                error_at(place(f, line), "%%%s: %s needs a \"type\"", name, text);
        r = read_node(g, op, is_typed(op) ? &t : NULL, in, n, &a, place(f, line), name);
        if (type && !type_eq(&NODE(g, r)->type, &t))
                error_at(place(f, line), "%%%s: %s gives %s, the file says %s", name, text,
                         type_text(&NODE(g, r)->type, x), type_text(&t, y));
        if (loc)
                NODE(g, r)->loc = read_loc(f, line, need_text(f, line, o, "loc", name));
        if (op == OP_DROPOUT && a.drop.id >= g->next_id)
                g->next_id = a.drop.id < 1 << 30 ? (int)a.drop.id + 1 : g->next_id;
        if (op == OP_ATTENTION && a.att.id >= g->next_id)
                g->next_id = a.att.id < 1 << 30 ? (int)a.att.id + 1 : g->next_id;
        *names_at(&f->seen, name) = r;
}

/* The line of each object in the list "nodes"; the text is valid JSON. */
static void find_lines(File *f, const char *s, int n)
{
        int depth = 0, line = 1;
        const char *key = "";
        bool nodes = false;
        f->line = arena_alloc(f->m->arena, (size_t)(n + 1) * sizeof *f->line);
        for (; *s; s++) {
                if (*s == '\n') {
                        line++;
                } else if (*s == '"') {
                        if (depth == 1)
                                key = s;
                        for (s++; *s != '"'; s++)
                                if (*s == '\\')
                                        s++;
                } else if (*s == '{' || *s == '[') {
                        if (depth++ == 1)
                                nodes = !strncmp(key, "\"nodes\"", 7);
                        if (depth == 3 && nodes && *s == '{' && f->n_lines < n)
                                f->line[f->n_lines++] = line;
                } else if (*s == '}' || *s == ']') {
                        depth--;
                }
        }
}

static void read_nodes(File *f, const cJSON *list, const char *text)
{
        static const char *const keys[] = { "name", "op", "in", "attr", "type", "loc", NULL };
        const cJSON *c;
        int n = cJSON_GetArraySize(list), i = 0;
        if (n > READ_MAX_NODES)
                error_at(place(f, 0), "the graph has %d nodes, more than %d", n, READ_MAX_NODES);
        find_lines(f, text, n);
        cJSON_ArrayForEach(c, list) {
                int line = i < f->n_lines ? f->line[i] : 0;
                need_keys(f, line, c, keys, "a node");
                const char *name = need_text(f, line, c, "name", "the node");
                if (!name_is_plain(name))
                        error_at(place(f, line), "'%.100s' cannot be a node's name: letters, digits, _ . - only", name);
                if (*names_at(&f->seen, name))
                        error_at(place(f, line), "%%%s is defined twice", name);
                *names_at(&f->seen, name) = -1;
                i++;
        }
        i = 0;
        cJSON_ArrayForEach(c, list) {
                read_one(f, i < f->n_lines ? f->line[i] : 0, c);
                i++;
        }
}

static void read_map(File *f, const cJSON *list)
{
        static const char *const keys[] = { "param", "rows", "from", "optional", NULL };
        const cJSON *c;
        if (cJSON_GetArraySize(list) > READ_MAX_MAP)
                error_at(place(f, 0), "the map has more than %d lines", READ_MAX_MAP);
        cJSON_ArrayForEach(c, list) {
                MapLine line = { .step = 1 };
                need_keys(f, 0, c, keys, "a line of the map");
                line.param = need_text(f, 0, c, "param", "a line of the map");
                int r = *names_at(&f->seen, line.param);
                if (r <= 0 || NODE(f->m->graph, r)->op != OP_PARAM)
                        error_at(place(f, 0), "the map names '%.100s', and no parameter has that name", line.param);
                const char *from = need_text(f, 0, c, "from", line.param);
                if (!map_text_is_plain(from))
                        error_at(place(f, 0), "the map of '%s' is not one line of text", line.param);
                line.optional = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "optional"));
                line.rest = arena_fmt(f->m->arena, line.optional ? "=? %s" : "= %s", from);
                const cJSON *rows = need_list(f, 0, c, "rows", line.param);
                if (rows) {
                        const Type *t = &NODE(f->m->graph, r)->type;
                        if (cJSON_GetArraySize(rows) != 3)
                                error_at(place(f, 0), "the map of '%s': \"rows\" is [begin, end, step]", line.param);
                        line.begin = (int64_t)need_number(f, 0, cJSON_GetArrayItem(rows, 0), "\"rows\"", true);
                        line.end = (int64_t)need_number(f, 0, cJSON_GetArrayItem(rows, 1), "\"rows\"", true);
                        line.step = (int64_t)need_number(f, 0, cJSON_GetArrayItem(rows, 2), "\"rows\"", true);
                        if (!t->rank || line.begin < 0 || line.end <= line.begin || line.step < 1
                            || line.end > t->dim[0].n)
                                error_at(place(f, 0), "the map of '%s': rows %lld to %lld do not lie in it", line.param,
                                         (long long)line.begin, (long long)line.end);
                }
                model_map(f->m, line);
        }
}

static void read_root(File *f, const cJSON *o, const char *text)
{
        static const char *const keys[] = { "tgc_graph", "name", "ctx", "documents", "nodes", "outputs", "map", "ignore", "meta",
                                            NULL };
        const cJSON *c, *v;
        need_keys(f, 0, o, keys, "the graph");
        c = cJSON_GetObjectItemCaseSensitive(o, "tgc_graph");
        if (!cJSON_IsNumber(c) || c->valuedouble != 1)
                error_at(place(f, 0), "not a graph of version 1: \"tgc_graph\" must be 1");
        if (cJSON_HasObjectItem(o, "name")) {
                f->m->name = arena_str(f->m->arena, need_text(f, 0, o, "name", "the graph"));
                if (!name_is_plain(f->m->name))
                        error_at(place(f, 0), "'%.100s' cannot be a model's name: letters, digits, _ . - only",
                                 f->m->name);
        }
        c = cJSON_GetObjectItemCaseSensitive(o, "ctx");
        if (c && ((f->m->ctx = (int64_t)need_number(f, 0, c, "\"ctx\"", true)) < 1 || f->m->ctx > 1 << 24))
                error_at(place(f, 0), "\"ctx\" must be between 1 and 2^24");
        c = cJSON_GetObjectItemCaseSensitive(o, "documents");
        if (c && ((f->m->documents = (int64_t)need_number(f, 0, c, "\"documents\"", true)) < 0 ||
                  f->m->documents >= 1 << 28))
                error_at(place(f, 0), "\"documents\" must be a token's id");
        c = need_list(f, 0, o, "nodes", "the graph");
        if (!c)
                error_at(place(f, 0), "the graph has no \"nodes\"");
        read_nodes(f, c, text);
        c = cJSON_GetObjectItemCaseSensitive(o, "outputs");
        if (!cJSON_IsObject(c))
                error_at(place(f, 0), "the graph has no \"outputs\": {NAME: NODE}");
        cJSON_ArrayForEach(v, c) {
                const char *s = cJSON_GetStringValue(v);
                int r = s ? *names_at(&f->seen, s) : 0;
                if (r <= 0 || !name_is_plain(v->string))
                        error_at(place(f, 0), "output '%.100s' must be the name of a node", v->string);
                graph_output(f->m->graph, v->string, r);
        }
        read_map(f, need_list(f, 0, o, "map", "the graph"));
        cJSON_ArrayForEach(v, need_list(f, 0, o, "ignore", "the graph")) {
                const char *s = cJSON_GetStringValue(v);
                if (!s || !map_text_is_plain(s) || strchr(s, ' ') || f->m->n_ignore >= 4096)
                        error_at(place(f, 0), "\"ignore\" is a list of at most 4096 patterns");
                model_ignore(f->m, s);
        }
        if (cJSON_HasObjectItem(o, "meta")) {
                f->m->meta = arena_str(f->m->arena, need_text(f, 0, o, "meta", "the graph"));
                for (const char *s = f->m->meta; *s; s += strcspn(s, "\n") + 1)
                        if (strncmp(s, "meta ", 5) || !strchr(s, '\n'))
                                error_at(place(f, 0), "\"meta\" is lines that begin with the word meta");
        }
        model_finish(f->m, f->path);
}

Model *read_json_text(const char *text, size_t n, const char *name)
{
        cJSON *json = NULL;
        Err e = { 0 };
        Diag d;
        if (json_parse(&json, text, n, name, &e))
                error_code(e.code, (Loc){ 0 }, "%s", e.msg);
        File f = { .m = model_new("model") };
        f.path = arena_str(f.m->arena, name);
        f.seen.a = f.m->arena;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                read_root(&f, json, text);
                diag_end(&d);
        } else {
                model_free(f.m);
                f.m = NULL;
        }
        cJSON_Delete(json);
        if (!f.m)
                error_code(d.code, (Loc){ 0 }, "%s", d.msg);
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

static void put_string(Text *out, const char *s)
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
                put_string(out, loc.s);
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
                text_add(out, "%s\"%s\": \"%s\"", i ? ", " : "", g->out[i].name, g->node[g->out[i].ref].name);
        text_add(out, "},\n \"map\": [");
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                text_add(out, "%s  {\"param\": \"%s\"", i ? ",\n" : "\n", l->param);
                if (l->end)
                        text_add(out, ", \"rows\": [%lld, %lld, %lld]", (long long)l->begin, (long long)l->end,
                                 (long long)l->step);
                text_add(out, ", \"from\": ");
                put_string(out, l->rest + (l->optional ? 3 : 2));
                text_add(out, "%s}", l->optional ? ", \"optional\": true" : "");
        }
        text_add(out, "\n ],\n \"ignore\": [");
        for (int i = 0; i < m->n_ignore; i++) {
                text_add(out, i ? ", " : "");
                put_string(out, m->ignore[i]);
        }
        text_add(out, "],\n \"meta\": ");
        put_string(out, m->meta);
        text_add(out, "\n}\n");
}
