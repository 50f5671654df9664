/* test_random.c: random graphs through compile, JSON and back, and every back end, against the
 * evaluator.
 *
 *      test_random                                     what `make check` runs: tests/random/, then
 *                                                      75 graphs and 75 chains
 *      test_random --seed S --count N [--first K]      graphs K .. K+N-1 of seed S
 *                  [--legs NAMES]                      cpu, emulate, sm_90a, and 0 or 3 for a
 *                                                      level; default: all; mixed: what `make
 *                                                      check` gives each graph
 *                  [--batch N] [--keep DIR]            graphs compiled together; where those that
 *                                                      fail go
 *                  [--chains]                          chains of views and rows (random_chain.h),
 *                                                      cS-K, in place of rS-K
 *      test_random --shrink FILE.json [KNOBS]          the smallest graph found that fails in the
 *                                                      same way
 *      test_random FILE.json [KNOBS]                   one graph
 *      test_random --print K [--seed S] [--chains]     a graph, to standard output
 *
 * The verdict of each is random_run.h's. */
#include <time.h>
#include "random_run.h"

typedef struct Options {
        uint64_t seed;
        int first, count, batch;
        unsigned legs;
        const char *keep, *file, *knobs;
        bool shrink, print, quick, mixed, chains;
} Options;

static char work[256]; /* temporary folder, with a cache of its own */

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
        struct rusage self, children;
        getrusage(RUSAGE_SELF, &self);
        getrusage(RUSAGE_CHILDREN, &children);
        return (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec +
                        children.ru_stime.tv_sec) +
               1e-6 * (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec +
                               children.ru_utime.tv_usec + children.ru_stime.tv_usec);
}

static Draw draw_of(uint64_t seed, int i)
{
        Draw d = { .state = seed * 0x9E3779B97F4A7C15u + (uint64_t)i };
        draw64(&d);
        return (Draw) { .state = draw64(&d) };
}

/* ---- cases ---- */

static void make_case(Plans *unused, Case *c, Leg which, Verdict *v)
{
        Diag d = { 0 };
        Text t = { 0 };
        (void)unused, (void)which;
        if (DIAG_CATCH(&d)) {
                Draw seed = draw_of(strtoull(v->msg, NULL, 10), c->k.seed), k = seed;
                const Kind kind = *c->name == 'c' ? KIND_CHAIN
                                  : c->k.seed % 2 ? KIND_WIDE
                                                  : KIND_SMALL;
                Model *m = kind == KIND_CHAIN  ? chain_model(seed)
                           : kind == KIND_WIDE ? wide_model(seed)
                                               : random_model(seed);
                k.state ^= 0x5bd1e995;
                c->k = draw_knobs(&k, m, kind);
                write_json(m, &t);
                diag_end(&d);
                v->outcome = write_file(c->path, t.s, t.n) ? PASSED : FAILED;
                v->msg[0] = 0;
                return;
        }
        v->outcome = FAILED;
        snprintf(v->msg, sizeof v->msg, "the generator made a graph that is refused: %.500s",
                 d.msg);
}

/* The quick run has every graph on one leg of the CPU, and some in the emulator. */
static unsigned legs_of(const Options *o, int i)
{
        if (!o->quick && !o->mixed)
                return o->legs;
        return 1u << (i % 3 ? LEG_CPU3 : LEG_CPU0) | (i % 10 == 0 ? 1u << LEG_CUDA3 : 0) |
               (i % 20 == 3 ? 1u << LEG_HOPPER3 : 0) | (i % 50 == 7 ? 1u << LEG_CUDA0 : 0);
}

static void new_case(Case *c, const Options *o, int i)
{
        *c = (Case) { .legs = legs_of(o, i), .k.seed = i };
        snprintf(c->name, sizeof c->name, "%c%llu-%d", o->chains ? 'c' : 'r',
                 (unsigned long long)o->seed, i);
        snprintf(c->path, sizeof c->path, "%s/%s.json", work, c->name);
        snprintf(c->compiled.msg, sizeof c->compiled.msg, "%llu", (unsigned long long)o->seed);
        in_child(make_case, NULL, c, 0, &c->compiled, 20);
}

static bool old_case(Case *c, const char *path, const char *knobs, unsigned legs)
{
        const char *slash = strrchr(path, '/');
        char *text;
        size_t n;
        *c = (Case) { .legs = legs };
        snprintf(c->name, sizeof c->name, "%.60s", slash ? slash + 1 : path);
        snprintf(c->path, sizeof c->path, "%s/%s", work, c->name);
        if (!knobs_parse(&c->k,
                         knobs ? knobs
                               : "f32 both batch 2 block 7 chunk 0 tokens 7 greedy 0 seed 1") ||
            file_read_text(path, 64 << 20, &text, &n, &(Err) { 0 }))
                return false;
        bool ok = write_file(c->path, text, n);
        free(text);
        c->compiled.outcome = PASSED;
        return ok;
}

static void show_case(const Case *c)
{
        char knobs[160];
        printf("%s: %s\n", c->name, knobs_text(&c->k, knobs));
        if (c->compiled.outcome != PASSED)
                printf("    compiled: %s: %s\n", outcome_name[c->compiled.outcome],
                       c->compiled.msg);
        for (int l = 0; l < N_LEGS; l++)
                if (c->ran[l].outcome > PASSED)
                        printf("    %s: %s: %.*s\n", leg_info[l].name,
                               outcome_name[c->ran[l].outcome], (int)strcspn(c->ran[l].msg, "\n"),
                               c->ran[l].msg);
}

/* ---- shrinking ---- */

typedef struct Smaller {
        Ref from, to;
        bool fill;
        const char *drop;
} Smaller;

static Ref visit_smaller(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Smaller *s = ctx;
        if (r == s->from && s->fill) {
                Attr a = { .num = { 0.5 } };
                Type t = NODE(old, r)->type;
                return graph_leaf(g, OP_FILL, t, &a, NODE(old, r)->loc, NODE(old, r)->name);
        }
        if (r == s->from)
                return map[s->to];
        return graph_copy_node(old, r, g, map);
}

/* The file's graph with one change, to c->path.  False: not a graph any more. */
static bool shrunk(const char *from, Case *c, const Smaller *s)
{
        Diag d = { 0 };
        Text t = { 0 };
        Model *volatile m = NULL;
        volatile bool ok = false;
        if (DIAG_CATCH(&d)) {
                m = read_json(from);
                Graph *g = m->graph;
                if (s->drop) {
                        int k = 0;
                        for (int i = 0; i < g->n_out; i++)
                                if (strcmp(g->out[i].name, s->drop))
                                        g->out[k++] = g->out[i];
                        g->n_out = k;
                } else {
                        graph_rebuild(g, visit_smaller, (void *)(uintptr_t)s);
                }
                graph_sweep(g);
                int k = 0;
                for (int i = 0; i < m->n_map; i++)
                        if (graph_find(g, m->map[i].param))
                                m->map[k++] = m->map[i];
                m->n_map = k;
                if (!graph_find(g, "ids"))
                        error_at((Loc) { 0 }, "no ids");
                write_json(m, &t);
                diag_end(&d);
                ok = write_file(c->path, t.s, t.n);
        }
        text_free(&t);
        model_free(m);
        return ok;
}

static int count_nodes(const char *path, Graph **g, Model **m)
{
        Diag d = { 0 };
        *m = NULL;
        if (!DIAG_CATCH(&d))
                return 0;
        *m = read_json(path);
        diag_end(&d);
        *g = (*m)->graph;
        return (*g)->n_nodes;
}

static const char *worst_message(const Case *c)
{
        for (int i = 0; i < N_LEGS; i++)
                if (c->ran[i].outcome == worst_of(c))
                        return c->ran[i].msg;
        return c->compiled.msg;
}

/* The legs that failed worst, alone; with the same message, as far as the first number or name. */
static bool fails_alike(Case *c, Outcome want, const char *says, unsigned legs)
{
        const bool ran = strncmp(says, "compiled", 8) != 0;
        says += ran ? 0 : 8;
        c->legs = legs;
        c->compiled = (Verdict) { .outcome = PASSED };
        memset(c->ran, 0, sizeof c->ran);
        run_cases(c, 1, work);
        return worst_of(c) == want && (c->compiled.outcome == PASSED) == ran &&
               !strncmp(worst_message(c), says, strcspn(says, "0123456789%"));
}

static void shrink(Case *all, Case *c, double seconds)
{
        Outcome want = worst_of(c);
        unsigned legs = c->legs;
        int tried[N_LEGS], n_tried = 0;
        double end = now() + seconds;
        char best[600], says[600];
        bool again = true;
        snprintf(says, sizeof says, "%s%.580s", c->compiled.outcome == PASSED ? "" : "compiled",
                 worst_message(c));
        for (int l = 0; l < N_LEGS; l++)
                if (c->ran[l].outcome == want)
                        tried[n_tried++] = l;
        for (int i = 0; i < n_tried;
             i++) { /* kernels of two levels are one source: which of them is it? */
                legs = 1u << tried[i];
                if (fails_alike(c, want, says, legs))
                        break;
        }
        snprintf(best, sizeof best, "%.500s.best", c->path);
        if (rename(c->path, best))
                return;
        (void)all;
        while (again && now() < end) {
                Graph *g;
                Model *m;
                int n = count_nodes(best, &g, &m);
                again = false;
                static const char *const outputs[] = { "loss", "aux_loss", "ce", "logits" };
                Smaller s = { 0 };
                for (int i = 0; i < 4 && !again; i++) {
                        s.drop = outputs[i];
                        if (m && graph_out(g, s.drop) && g->n_out > 1)
                                again = shrunk(best, c, &s) && fails_alike(c, want, says, legs) &&
                                        !rename(c->path, best);
                }
                s.drop = NULL;
                for (Ref r = n - 1; r > 0 && !again && now() < end; r--) {
                        const Node *x = NODE(g, r);
                        s.from = r;
                        if (x->op == OP_INPUT || op_info[x->op].cls == CLASS_LEAF)
                                continue;
                        for (Ref to = r - 1; to > 0 && !again && now() < end; to--) {
                                s.to = to;
                                if (type_eq(&NODE(g, to)->type, &x->type))
                                        again = shrunk(best, c, &s) &&
                                                fails_alike(c, want, says, legs) &&
                                                !rename(c->path, best);
                        }
                        if (!again && x->op != OP_FILL && dt_is_float(x->type.dt)) {
                                s.fill = true;
                                again = shrunk(best, c, &s) && fails_alike(c, want, says, legs) &&
                                        !rename(c->path, best);
                                s.fill = false;
                        }
                }
                model_free(m);
        }
        if (rename(best, c->path))
                return;
        fails_alike(c, want, says, legs);
}

static void keep_case(const Options *o, const Case *c)
{
        char path[700], knobs[160];
        char *text;
        size_t n;
        if (!o->keep || file_read_text(c->path, 64 << 20, &text, &n, &(Err) { 0 }))
                return;
        mkdir(o->keep, 0777);
        snprintf(path, sizeof path, "%.300s/%s%s", o->keep, c->name,
                 strstr(c->name, ".json") ? "" : ".json");
        write_file(path, text, n);
        free(text);
        snprintf(path, sizeof path, "%.300s/cases.txt", o->keep);
        FILE *f = fopen(path, "a");
        if (f)
                fprintf(f, "%s%s %s\n", c->name, strstr(c->name, ".json") ? "" : ".json",
                        knobs_text(&c->k, knobs));
        if (f)
                fclose(f);
}

/* ---- many ---- */

typedef struct Sum {
        int n[N_OUTCOMES], ops[N_OPS], compared, shaken, legs[N_LEGS];
} Sum;

static void add_up(Sum *s, const Case *c)
{
        s->n[worst_of(c)]++;
        for (int i = 0; i < N_OPS; i++)
                s->ops[i] += c->used[i];
        for (int l = 0; l < N_LEGS; l++) {
                s->compared += c->ran[l].compared;
                s->shaken += c->ran[l].shaken;
                s->legs[l] += c->ran[l].outcome != NOT_RUN;
        }
}

static int bad_of(const Sum *s)
{
        int bad = 0;
        for (int i = BAD_REFUSAL; i < N_OUTCOMES; i++)
                bad += s->n[i];
        return bad;
}

static void forget_cache(void)
{
        char cmd[600];
        snprintf(cmd, sizeof cmd, "rm -rf '%.250s/cache'", work);
        if (system(cmd))
                perror("rm");
}

static Sum run_many(const Options *o)
{
        Sum s = { 0 };
        Case *c = shared_memory((size_t)o->batch * sizeof *c);
        double t0 = now(), c0 = cpu_seconds();
        for (int at = o->first; at < o->first + o->count; at += o->batch) {
                int n = o->first + o->count - at < o->batch ? o->first + o->count - at : o->batch;
                for (int i = 0; i < n; i++)
                        new_case(&c[i], o, at + i);
                for (int i = 0; i < n; i++) /* those that the generator could not make stay out */
                        if (c[i].compiled.outcome != PASSED)
                                c[i].legs = 0;
                Outcome made[256];
                for (int i = 0; i < n; i++)
                        made[i] = c[i].compiled.outcome;
                for (int i = 0, k; i < n; i = k) { /* runs of good ones; nearly always all */
                        for (k = i; k < n && made[k] == PASSED; k++)
                                ;
                        if (k > i)
                                run_cases(c + i, k - i, work);
                        else
                                k++;
                }
                for (int i = 0; i < n; i++) {
                        add_up(&s, &c[i]);
                        if (worst_of(&c[i]) > (o->quick ? REFUSED : PASSED))
                                show_case(&c[i]);
                        if (worst_of(&c[i]) > REFUSED)
                                keep_case(o, &c[i]);
                        unlink(c[i].path);
                }
                forget_cache();
                if (!o->quick)
                        printf("# %d graphs, %d bad, %.1f s, %.1f s of CPU\n", at + n - o->first,
                               bad_of(&s), now() - t0, cpu_seconds() - c0);
                fflush(stdout);
        }
        munmap(c, (size_t)o->batch * sizeof *c);
        return s;
}

static void report(const Sum *s)
{
        for (int i = 0; i < N_OUTCOMES; i++)
                if (s->n[i])
                        printf("%6d %s\n", s->n[i], outcome_name[i]);
        printf("%6d outputs compared, %d of them moved by the reference's own rounding\nlegs:",
               s->compared, s->shaken);
        for (int l = 0; l < N_LEGS; l++)
                printf("  %s %d", leg_info[l].name, s->legs[l]);
        printf("\nops:");
        for (int op = 1; op < N_OPS; op++)
                if (op_is_public((Op)op))
                        printf("  %s %d", op_info[op].text, s->ops[op]);
        printf("\n");
}

/* ---- tests/random: what was found before ---- */

enum { MOST_KEPT = 256 };

static int replay(unsigned legs)
{
        FILE *f = fopen("tests/random/cases.txt", "r");
        char line[400], path[300];
        Case *c = shared_memory(MOST_KEPT * sizeof *c);
        int n = 0, bad = 0;
        while (f && fgets(line, sizeof line, f) && n < MOST_KEPT) {
                char *space = strchr(line, ' ');
                if (!space || *line == '#')
                        continue;
                *space = 0;
                snprintf(path, sizeof path, "tests/random/%.200s", line);
                if (!old_case(&c[n++], path, space + 1, legs)) {
                        printf("not ok replay %s (no such file, or its knobs are none)\n", line);
                        n--, bad++;
                }
        }
        if (f)
                fclose(f);
        run_cases(c, n, work);
        for (int i = 0; i < n; i++) {
                bool ok = worst_of(&c[i]) <= REFUSED;
                if (!ok)
                        show_case(&c[i]);
                printf("%s replay %s\n", ok ? "ok" : "not ok", c[i].name);
                bad += !ok;
        }
        forget_cache();
        munmap(c, MOST_KEPT * sizeof *c);
        return bad;
}

static unsigned legs_named(const char *s)
{
        unsigned legs = 0;
        for (int l = 0; l < N_LEGS; l++) {
                bool device = strstr(s, leg_info[l].arch                     ? "sm_90a"
                                        : !strcmp(leg_info[l].device, "cpu") ? "cpu"
                                                                             : "emulate");
                bool level = strchr(s, '0' + leg_info[l].opt) ||
                             (!strpbrk(s, "03") ||
                              (!strchr(s, '3') && strstr(s, "90a") && !strstr(s, ",0")));
                if (device && level)
                        legs |= 1u << l;
        }
        return legs;
}

static int quick(void)
{
        const char *count = getenv("TGC_GRAPHS");
        Options o = { .seed = 1, .count = count ? atoi(count) : 75, .batch = 50, .quick = true };
        int bad = replay(1u << LEG_CPU0 | 1u << LEG_CPU3 | 1u << LEG_CUDA3);
        for (int i = 0; i < 2; i++) {
                o.chains = i;
                Sum s = run_many(&o);
                printf("%s random_%s %d\n", bad_of(&s) ? "not ok" : "ok", i ? "chains" : "graphs",
                       o.count);
                report(&s);
                bad += bad_of(&s);
        }
        return bad != 0;
}

static bool parse(Options *o, int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
                bool took = true;
                if (!strcmp(a, "--seed"))
                        o->seed = strtoull(v, NULL, 10);
                else if (!strcmp(a, "--count"))
                        o->count = atoi(v);
                else if (!strcmp(a, "--first"))
                        o->first = atoi(v);
                else if (!strcmp(a, "--batch"))
                        o->batch = atoi(v);
                else if (!strcmp(a, "--legs"))
                        o->mixed = !strcmp(v, "mixed"),
                        o->legs = o->mixed ? (1u << N_LEGS) - 1 : legs_named(v);
                else if (!strcmp(a, "--keep"))
                        o->keep = v;
                else if (!strcmp(a, "--print"))
                        o->print = true, o->first = atoi(v);
                else
                        took = false;
                i += took;
                if (took)
                        continue;
                if (!strcmp(a, "--shrink"))
                        o->shrink = true;
                else if (!strcmp(a, "--chains"))
                        o->chains = true;
                else if (*a == '-')
                        return false;
                else if (!o->file)
                        o->file = a;
                else
                        o->knobs = a;
        }
        return o->batch > 0 && o->batch <= 256 && o->legs;
}

static int one(const Options *o)
{
        Case *c = shared_memory(sizeof *c);
        if (o->file ? !old_case(c, o->file, o->knobs, o->legs)
                    : (new_case(c, o, o->first), c->compiled.outcome != PASSED)) {
                fprintf(stderr, "%s: %s\n", o->file ? o->file : c->name,
                        o->file ? "cannot be read, or the knobs are none" : c->compiled.msg);
                return 2;
        }
        if (o->print) {
                char knobs[160], *text;
                size_t n;
                fprintf(stderr, "%s\n", knobs_text(&c->k, knobs));
                if (!file_read_text(c->path, 64 << 20, &text, &n, &(Err) { 0 }))
                        fwrite(text, 1, n, stdout);
                return 0;
        }
        run_cases(c, 1, work);
        if (o->shrink && worst_of(c) > REFUSED)
                shrink(c, c, 600);
        show_case(c);
        keep_case(o, c);
        if (worst_of(c) == PASSED)
                printf("passed\n");
        return worst_of(c) > REFUSED;
}

int main(int argc, char **argv)
{
        Options o = { .seed = 1, .count = 100, .batch = 24, .legs = (1u << N_LEGS) - 1 };
        char cache[300];
        int rc;
        setvbuf(stdout, NULL, _IOLBF, 0);
        snprintf(work, sizeof work, "%s/tgc-random-XXXXXX",
                 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        if (!mkdtemp(work))
                return 1;
        snprintf(cache, sizeof cache, "%s/cache", work);
        setenv("TGC_CACHE_DIR", cache, 1);
        /* half of gcc's time */
        if (!getenv("CC") && !getenv("CXX") && !system("clang++ --version > /dev/null 2>&1")) {
                setenv("CC", "clang", 1);
                setenv("CXX", "clang++", 1);
        }
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 0);
        setenv("TGC_CXXFLAGS", "-O0", 0);
        setenv("OMP_NUM_THREADS", "1", 1);
        if (!parse(&o, argc, argv)) {
                fprintf(stderr, "usage: see the head of tests/test_random.c\n");
                rc = 2;
        } else if (argc == 1) {
                rc = quick();
        } else if (o.file || o.print) {
                rc = one(&o);
        } else {
                Sum s = run_many(&o);
                report(&s);
                rc = bad_of(&s) != 0;
        }
        char cmd[400];
        snprintf(cmd, sizeof cmd, "rm -rf '%s'", work);
        return system(cmd) ? 1 : rc;
}
