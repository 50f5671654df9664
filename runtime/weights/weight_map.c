/* weight_map.c: parses and prints weight maps. */
#include "weight_map_internal.h"
#include "../util/c_locale.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a transform is called, and how many arguments it takes. */
static const struct {
        const char *name;
        int min, max;
} steps[N_STEPS] = {
        [STEP_T] = { "t", 0, 0 },
        [STEP_ROWS] = { "rows", 2, 2 },
        [STEP_COLS] = { "cols", 2, 2 },
        [STEP_INDEX] = { "index", 1, 1 },
        [STEP_RESHAPE] = { "reshape", 1, CK_MAX_RANK },
        [STEP_ROPE] = { "rope", 1, 2 },
        [STEP_UNROPE] = { "unrope", 1, 2 },
        [STEP_GROUP] = { "group", 2, 2 },
        [STEP_SCALE] = { "scale", 1, 1 },
        [STEP_ADD] = { "add", 1, 1 },
};

/* Parser -------------------------------------------------------------- */

typedef struct Line {
        WeightMap *m;
        char *at; /* rest of the line, cut into words as they are taken */
        int number;
        Err *e;
} Line;

static int fail(Line *l, const char *what, const char *word)
{
        return err_set(l->e, TGC_BAD_FILE, "%s:%d: error: %s%s%.200s%s", l->m->name, l->number,
                       what, word ? " '" : "", word ? word : "", word ? "'" : "");
}

/* The next word, or NULL at the end of the line. */
static char *word(Line *l)
{
        char *w;

        while (*l->at == ' ' || *l->at == '\t')
                l->at++;
        if (!*l->at)
                return 0;
        for (w = l->at; *l->at && *l->at != ' ' && *l->at != '\t'; l->at++)
                ;
        if (*l->at)
                *l->at++ = 0;
        return w;
}

/* Digits at *s, which moves behind them; below 2^56. */
static bool number(const char **s, int64_t *v)
{
        const char *p = *s;

        for (*v = 0; *p >= '0' && *p <= '9'; p++) {
                *v = *v * 10 + (*p - '0');
                if (*v >= (int64_t)1 << 56)
                        return false;
        }
        if (p == *s)
                return false;
        *s = p;
        return true;
}

static bool whole_number(const char *s, int64_t *v) { return number(&s, v) && !*s; }

/* "[3][0:64:2]" */
static bool parse_ranges(Entry *n, const char *s)
{
        while (*s) {
                Range *r;

                if (*s++ != '[' || n->n_ranges == CK_MAX_RANK)
                        return false;
                r = &n->range[n->n_ranges++];
                *r = (Range) { RANGE_ALL, 0, 0, 1 };
                if (*s == ':') {
                        s++;
                } else {
                        if (!number(&s, &r->begin))
                                return false;
                        r->kind = RANGE_ONE;
                        r->end = r->begin + 1;
                        if (*s == ':') {
                                s++;
                                r->kind = RANGE_SLICE;
                                if (!number(&s, &r->end) || r->end <= r->begin)
                                        return false;
                                if (*s == ':') {
                                        s++;
                                        if (!number(&s, &r->step) || r->step < 1)
                                                return false;
                                }
                        }
                }
                if (*s++ != ']')
                        return false;
        }
        return true;
}

/* "768x768", "scalar" */
static bool parse_shape(Entry *n, const char *s)
{
        n->rank = 0;
        if (!strcmp(s, "scalar"))
                return true;
        for (;;) {
                if (n->rank == CK_MAX_RANK || !number(&s, &n->dim[n->rank++]))
                        return false;
                if (!*s)
                        return true;
                if (*s++ != 'x')
                        return false;
        }
}

static int parse_step(Line *l, Entry *n, char *w, char **next)
{
        Step *s;
        int op = 0;

        if (!w)
                return fail(l, "a transform is missing behind '|'", 0);
        while (op < N_STEPS && strcmp(w, steps[op].name))
                op++;
        if (op == N_STEPS)
                return fail(l,
                            "transforms are t, rows, cols, index, reshape, rope, unrope, group, "
                            "scale, add; not",
                            w);
        if (n->n_steps == MAP_MAX_STEPS)
                return fail(l, "more than 8 transforms", 0);
        s = &n->step[n->n_steps++];
        s->op = op;
        while ((*next = word(l)) && strcmp(*next, "|")) {
                char *end;

                if (s->n == steps[op].max)
                        return fail(l, "too many arguments: behind the last of the transform comes",
                                    *next);
                if (op == STEP_SCALE || op == STEP_ADD) {
                        s->u.x = c_strtod(*next, &end);
                        if (*end || !isfinite(s->u.x) || (op == STEP_SCALE && s->u.x == 0))
                                return fail(l,
                                            op == STEP_ADD
                                                    ? "add wants a finite number; here is"
                                                    : "scale wants a finite number, not 0; here is",
                                            *next);
                        s->n++;
                } else if (!whole_number(*next, &s->u.arg[s->n++])) {
                        return fail(l, "not a number:", *next);
                }
        }
        if (s->n < steps[op].min)
                return fail(l, "too few arguments of transform", w);
        if ((op == STEP_ROWS || op == STEP_COLS) && s->u.arg[0] >= s->u.arg[1])
                return fail(l, "an empty slice:", w);
        if (op == STEP_GROUP && (s->u.arg[1] < 1 || s->u.arg[0] < 1 || s->u.arg[0] % s->u.arg[1]))
                return fail(l, "group HEADS KV_HEADS: the second divides the first", 0);
        if ((op == STEP_ROPE || op == STEP_UNROPE) &&
            (s->u.arg[0] < 1 || (s->n == 2 && (s->u.arg[1] < 2 || s->u.arg[1] % 2))))
                return fail(l,
                            "rope HEADS [ROTARY]: at least one head, an even number of rotary rows",
                            0);
        return TGC_OK;
}

static bool good_name(const char *s)
{
        if (!*s)
                return false;
        for (; *s; s++)
                if ((unsigned char)*s < 0x21 || *s == 0x7f || strchr("[]=|", *s))
                        return false;
        return true;
}

/* What stands behind `map PARAM =`. */
static int parse_map(Line *l, char *w, Entry *n)
{
        char *bracket, *shape = 0;
        size_t k;

        n->param = w;
        bracket = strchr(w, '[');
        if (bracket) {
                if (!parse_ranges(n, bracket))
                        return fail(l, "the target wants [b:e], [b:e:step], [i] or [:], here is",
                                    w);
                *bracket = 0;
        }
        if (!good_name(n->param))
                return fail(l, "not a parameter's name:", n->param);
        do { /* NAME [|| NAME]... */
                w = word(l);
                if (!w)
                        return fail(l, "the tensor's name is missing", 0);
                if (n->n_names == MAP_MAX_NAMES)
                        return fail(l, "more than 4 names", 0);
                k = strlen(w);
                if (k > 1 && w[k - 1] == ':') {
                        w[k - 1] = 0;
                        shape = word(l);
                        if (!shape || !parse_shape(n, shape))
                                return fail(l,
                                            "a shape like 768x768 or scalar is wanted behind ':'",
                                            shape);
                }
                if (!good_name(w))
                        return fail(l, "not a tensor's name:", w);
                n->name[n->n_names++] = w;
                w = word(l);
        } while (w && !strcmp(w, "||") && !shape);
        while (w) {
                int rc;

                if (strcmp(w, "|"))
                        return fail(l, "expected '|' and a transform, here is", w);
                rc = parse_step(l, n, word(l), &w);
                if (rc)
                        return rc;
        }
        return TGC_OK;
}

static int parse_line(Line *l)
{
        WeightMap *m = l->m;
        char *w = word(l), *relation;

        if (!w || *w == '#')
                return TGC_OK;
        if (strcmp(w, "map"))
                return fail(l, "a line begins with map, not", w);
        w = word(l);
        if (!w)
                return fail(l, "map PARAM = NAME: the parameter is missing", 0);
        relation = word(l);
        if (!relation)
                return fail(l, "expected '=' behind the parameter", 0);
        if (!strcmp(relation, "=") || !strcmp(relation, "=?")) {
                m->entry[m->n] = (Entry) { .line = l->number,
                                           .optional = relation[1] == '?',
                                           .rank = -1 };
                return parse_map(l, w, &m->entry[m->n++]);
        }
        if (strcmp(w, "ignore"))
                return fail(l, "expected '=' or '=?' behind the parameter, here is", relation);
        if (word(l))
                return fail(l, "map ignore wants one pattern", 0);
        m->ignore[m->n_ignore++] = relation;
        return TGC_OK;
}

int weight_map_parse(WeightMap **out, const char *text, const char *name, Err *e)
{
        WeightMap *m = calloc(1, sizeof *m);
        int rc = TGC_OK, number = 0;
        size_t n_lines = 1;
        char *at, *next;

        *out = 0;
        for (const char *s = text; *s; s++)
                n_lines += *s == '\n';
        if (n_lines > MAP_MAX_ENTRIES) {
                free(m);
                return err_set(e, TGC_BAD_FILE, "%s: %zu lines, the limit of a weight map is %d",
                               name, n_lines, MAP_MAX_ENTRIES);
        }
        if (m) {
                m->name = strdup(name);
                m->text = strdup(text);
                m->entry = malloc(n_lines * sizeof *m->entry);
                m->ignore = malloc(n_lines * sizeof *m->ignore);
        }
        if (!m || !m->name || !m->text || !m->entry || !m->ignore) {
                weight_map_free(m);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", name);
        }
        for (at = m->text; !rc && at; at = next) {
                Line l = { m, at, ++number, e };

                next = strchr(at, '\n');
                if (next)
                        *next++ = 0;
                rc = parse_line(&l);
        }
        if (rc) {
                weight_map_free(m);
                return rc;
        }
        *out = m;
        return TGC_OK;
}

void weight_map_free(WeightMap *m)
{
        if (!m)
                return;
        free(m->name);
        free(m->text);
        free(m->entry);
        free(m->ignore);
        free(m);
}

bool weight_map_line(const WeightMap *m, const Checkpoint *ck, int i, WeightLine *line)
{
        if (i >= m->n)
                return false;
        const Entry *x = &m->entry[i];
        *line = (WeightLine) {
                .param = x->param, .name = x->name[0], .to = -1, .from = -1, .of = 1
        };
        if (x->rank > 0)
                line->of = x->dim[0];
        for (int k = 0; ck && k < x->n_names && !line->tensor; k++)
                line->tensor = checkpoint_find(ck, x->name[k]);
        if (x->n_ranges && x->range[0].kind != RANGE_ALL &&
            x->range[0].end == x->range[0].begin + 1)
                line->to = x->range[0].begin;
        for (int k = 0; k < x->n_steps; k++)
                if (x->step[k].op == STEP_INDEX)
                        line->from = x->step[k].u.arg[0];
        return true;
}

/* Printer -------------------------------------------------------------- */

/* The shortest form that reads back. */
static void print_double(FILE *f, double x)
{
        char buf[40];

        for (int digits = 1; digits <= 17; digits++) {
                c_format(buf, sizeof buf, "%.*g", digits, x);
                if (c_strtod(buf, 0) == x)
                        break;
        }
        fputs(buf, f);
}

static void print_entry(FILE *f, const Entry *n)
{
        fprintf(f, "map %s", n->param);
        for (int i = 0; i < n->n_ranges; i++) {
                const Range *r = &n->range[i];

                switch (r->kind) {
                case RANGE_ALL: fputs("[:]", f); break;
                case RANGE_ONE: fprintf(f, "[%lld]", (long long)r->begin); break;
                case RANGE_SLICE:
                        fprintf(f, "[%lld:%lld", (long long)r->begin, (long long)r->end);
                        if (r->step != 1)
                                fprintf(f, ":%lld", (long long)r->step);
                        fputs("]", f);
                }
        }
        for (int i = 0; i < n->n_names; i++)
                fprintf(f, "%s%s", i ? " || " : n->optional ? " =? " : " = ", n->name[i]);
        for (int i = 0; i < n->rank; i++)
                fprintf(f, "%s%lld", i ? "x" : ": ", (long long)n->dim[i]);
        if (n->rank == 0)
                fputs(": scalar", f);
        for (int i = 0; i < n->n_steps; i++) {
                const Step *s = &n->step[i];

                fprintf(f, " | %s", steps[s->op].name);
                for (int k = 0; k < s->n; k++) {
                        fputs(" ", f);
                        if (s->op == STEP_SCALE || s->op == STEP_ADD)
                                print_double(f, s->u.x);
                        else
                                fprintf(f, "%lld", (long long)s->u.arg[k]);
                }
        }
        fputs("\n", f);
}

char *weight_map_print(const WeightMap *m)
{
        char *text = 0;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        bool bad;

        if (!f)
                return 0;
        for (int i = 0; i < m->n; i++)
                print_entry(f, &m->entry[i]);
        for (int i = 0; i < m->n_ignore; i++)
                fprintf(f, "map ignore %s\n", m->ignore[i]);
        bad = ferror(f);
        if (fclose(f) || bad) {
                free(text);
                return 0;
        }
        return text;
}
