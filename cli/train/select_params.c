/* select_params.c: --train PATTERN and --group 'PATTERN: lr=X, wd=X': selects which parameters
 * train, and at which rates.
 *
 * A pattern (* and ? as in file names) matches a parameter's name in the graph, its tensor's name
 * in checkpoints, or dot-separated parts of such a name: q_proj, layers.3, *mlp*.  A parameter that
 * no --train pattern matches is frozen.  If several groups match, the last one counts.  Frozen is
 * an attribute of the graph: differentiate makes no gradient, and no moments are allocated. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "select_params.h"

/* ---- names ---- */

/* The whole name, or parts of it between dots. */
static bool name_matches(const char *pattern, const char *name)
{
        char part[512];
        const size_t n = strlen(name);
        if (n >= sizeof part)
                return !fnmatch(pattern, name, 0);
        for (size_t from = 0; from < n; from++) {
                if (from && name[from - 1] != '.')
                        continue;
                for (size_t to = from + 1; to <= n; to++) {
                        if (to < n && name[to] != '.')
                                continue;
                        memcpy(part, name + from, to - from);
                        part[to - from] = 0;
                        if (!fnmatch(pattern, part, 0))
                                return true;
                }
        }
        return false;
}

/* The names in a line of the map: "= NAME || NAME2: shape | ...".  False: there are no more. */
static bool next_name(const char **at, char *name, size_t cap)
{
        *at += strspn(*at, "=?| ");
        const size_t n = strcspn(*at, " :|");
        if (!n)
                return false;
        snprintf(name, cap, "%.*s", (int)n, *at);
        *at += n;
        *at += strspn(*at, " ");
        if (strncmp(*at, "||", 2))
                *at = "";
        return true;
}

/* The first name of a checkpoint in a MapLine's rest. */
static bool map_first_name(const char *rest, char *name, size_t cap)
{
        return next_name(&rest, name, cap);
}

/* NO, ALL, or PART: some of the tensors that fill the parameter, not all; *yes, *no: such names. */
typedef enum { NO, ALL, PART } Match;

static Match matches(const Model *m, const char *param, const char *pattern, char yes[512],
                     char no[512])
{
        bool some = false, every = true;
        if (name_matches(pattern, param))
                return ALL;
        for (int i = 0; i < m->n_map; i++) {
                const char *at = m->map[i].rest;
                char name[512], first[512] = "";
                bool hit = false;
                if (strcmp(m->map[i].param, param))
                        continue;
                while (next_name(&at, name, sizeof name)) {
                        if (!*first)
                                memcpy(first, name, sizeof first);
                        hit |= name_matches(pattern, name);
                }
                memcpy(hit ? yes : no, first, sizeof first);
                some |= hit;
                every &= hit;
        }
        return !some ? NO : every ? ALL : PART;
}

/* The names nearest to a pattern, of parameters and of their parts; for a message. */
static void nearest(const Model *m, const char *pattern, char *out, size_t cap)
{
        const Graph *g = m->graph;
        char best[3][128] = { "", "", "" };
        int d[3] = { 1 << 20, 1 << 20, 1 << 20 };
        for (Ref r = 1; r < g->n_nodes; r++) {
                if (g->node[r].op != OP_PARAM)
                        continue;
                char name[512], *part, *rest = name;
                snprintf(name, sizeof name, "%s", g->node[r].name);
                for (int i = 0; i < m->n_map; i++)
                        if (!strcmp(m->map[i].param, g->node[r].name) &&
                            map_first_name(m->map[i].rest, name, sizeof name))
                                break;
                while ((part = strsep(&rest, "."))) {
                        int x = edit_distance(pattern, part), k = 3;
                        if (strspn(part, "0123456789") == strlen(part) || strlen(part) > 100)
                                continue;
                        for (int i = 0; i < 3; i++)
                                if (!strcmp(best[i], part))
                                        x = 1 << 20;
                        while (k > 0 && x < d[k - 1])
                                k--;
                        if (k == 3)
                                continue;
                        memmove(d + k + 1, d + k, (size_t)(2 - k) * sizeof *d);
                        memmove(best + k + 1, best + k, (size_t)(2 - k) * sizeof *best);
                        d[k] = x;
                        snprintf(best[k], sizeof *best, "%s", part);
                }
        }
        snprintf(out, cap, "%s%s%s%s%s", best[0], *best[1] ? ", " : "", best[1],
                 *best[2] ? ", " : "", best[2]);
}

static int nothing(const Model *m, const char *option, const char *pattern, Err *e)
{
        char near[512];
        nearest(m, pattern, near, sizeof near);
        return err_set(e, TGC_USAGE,
                       "--%s %.100s: no parameter of %.100s has such a name; nearest are %s (names "
                       "are those of `tgc dump --manifest`, * stands for anything)",
                       option, pattern, m->name, near);
}

static int in_part(const char *option, const char *pattern, const char *param, const char *yes,
                   const char *no, Err *e)
{
        return err_set(e, TGC_USAGE,
                       "--%s %.100s: it means %.150s and not %.150s, which are one parameter here, "
                       "%.100s",
                       option, pattern, yes, no, param);
}

/* Calls fn for every parameter that the pattern means. */
static int each(Model *m, const char *option, const char *pattern, void (*fn)(Node *, void *),
                void *ctx, Err *e)
{
        Graph *g = m->graph;
        bool any = false;
        char yes[512], no[512];
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *n = NODE(g, r);
                if (n->op != OP_PARAM)
                        continue;
                const Match x = matches(m, n->name, pattern, yes, no);
                if (x == PART)
                        return in_part(option, pattern, n->name, yes, no, e);
                any |= x == ALL;
                if (x == ALL)
                        fn(n, ctx);
        }
        return any ? TGC_OK : nothing(m, option, pattern, e);
}

/* ---- the options ---- */

static void keep(Node *n, void *kept) { ((bool *)kept)[n->a.param.trainable ? 1 : 0] = true; }

static int train_only(Model *m, const char **pattern, int n, Err *e)
{
        Graph *g = m->graph;
        char yes[512], no[512];
        for (int i = 0; i < n; i++) {
                bool kept[2] = { false, false };
                int code = each(m, "train", pattern[i], keep, kept, e);
                if (code)
                        return code;
                if (!kept[1])
                        return err_set(e, TGC_USAGE,
                                       "--train %.100s: the model itself holds these parameters "
                                       "frozen",
                                       pattern[i]);
        }
        for (Ref r = 1; r < g->n_nodes && n; r++) {
                Node *x = NODE(g, r);
                bool hit = false;
                for (int i = 0; i < n && x->op == OP_PARAM; i++)
                        hit |= matches(m, x->name, pattern[i], yes, no) == ALL;
                if (x->op == OP_PARAM && !hit)
                        x->a.param.trainable = 0;
        }
        return TGC_OK;
}

/* What a group is about; below 0: not. */
typedef struct Group {
        bool freeze, any;
        double rate, decay;
} Group;

static void apply(Node *n, void *ctx)
{
        Group *g = ctx;
        g->any |= n->a.param.trainable != 0;
        if (g->freeze)
                n->a.param.trainable = 0;
        if (g->rate > 0)
                n->a.param.rate = g->rate;
        if (g->decay >= 0) { /* none is no decay, of matrices too */
                n->a.param.decay = g->decay > 0;
                n->a.param.own_decay = g->decay;
        }
}

/* "lr=1e-4, wd=0" */
static int parse_group(Group *g, char *what, const char *text, double lr, Err *e)
{
        *g = (Group) { .rate = -1, .decay = -1 };
        for (char *s = strtok(what, ", "); s; s = strtok(NULL, ", ")) {
                char *end = "";
                const double x = strchr(s, '=') ? c_strtod(strchr(s, '=') + 1, &end) : 0;
                if (!strcmp(s, "freeze"))
                        g->freeze = true;
                else if (!strncmp(s, "lr=", 3) && !*end && x > 0 && x < 1e6)
                        g->rate = x / lr;
                else if (!strncmp(s, "wd=", 3) && s[3] && !*end && x >= 0 && x < 1e6)
                        g->decay = x;
                else
                        return err_set(
                                e, TGC_USAGE,
                                "--group '%.100s': '%.40s' is not one of freeze, lr=X above 0 "
                                "and wd=X of 0 or more",
                                text, s);
        }
        if (g->rate > 0 && !(lr > 0))
                return err_set(e, TGC_USAGE,
                               "--group '%.100s': lr= is for `tgc train`, which has a "
                               "--learning_rate above 0",
                               text);
        return TGC_OK;
}

static int group(Model *m, const char *text, double lr, Err *e)
{
        char *pattern = strdup(text), *colon = pattern ? strrchr(pattern, ':') : NULL;
        Group g;
        int code = TGC_OK;
        if (!pattern)
                return err_set(e, TGC_NO_MEMORY, "no memory");
        if (!colon || colon == pattern || !colon[1 + strspn(colon + 1, ", ")])
                code = err_set(e, TGC_USAGE,
                               "--group '%.100s': give 'PATTERN: lr=1e-4, wd=0' or 'PATTERN: "
                               "freeze'",
                               text);
        if (!code) {
                *colon = 0;
                code = parse_group(&g, colon + 1, text, lr, e);
        }
        if (!code && !(code = each(m, "group", pattern, apply, &g, e)) && !g.any && !g.freeze)
                code = err_set(e, TGC_USAGE, "--group '%.100s': these are frozen already", text);
        free(pattern);
        return code;
}

int select_params(Model *m, const BuildOptions *o, Err *e)
{
        int code = train_only(m, o->train, o->n_train, e);
        for (int i = 0; i < o->n_group && !code; i++)
                code = group(m, o->group[i], o->lr, e);
        for (Ref r = 1; r < m->graph->n_nodes && !code; r++)
                if (m->graph->node[r].op == OP_PARAM && m->graph->node[r].a.param.trainable)
                        return TGC_OK;
        return code || (!o->n_train && !o->n_group)
                       ? code
                       : err_set(e, TGC_USAGE, "--group %.100s: nothing is left to train",
                                 o->group[o->n_group - 1]);
}
