/* random_run.h: a graph, given as JSON text, compiled and run every way, and what came of it.
 *
 * A case is a graph and its knobs (sizes, element type, mode); a leg is a device and a level of
 * optimisation.  Starting the host's compiler costs more than the kernels do, so the kernels of
 * many cases make one source, each under names of its own: the first session that wants it compiles
 * it, and the others find the object in the cache.  Everything runs in children, so that a crash or
 * an endless loop is a verdict like others. */
#ifndef TGC_RANDOM_RUN_H
#define TGC_RANDOM_RUN_H

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "worse.h"
#include "../cli/check/check.h"
#include "../cli/load/load.h"
#include "../cli/check/quick_check.h"
#include "../runtime/util/file.h"
#include "random_chain.h"
#include "random_stack.h"

typedef enum { LEG_CPU0, LEG_CPU3, LEG_CUDA0, LEG_CUDA3, LEG_HOPPER0, LEG_HOPPER3, N_LEGS } Leg;

typedef struct LegInfo {
        const char *name, *device;
        const char *target;
        int opt;
        const char *arch;
} LegInfo;

static const LegInfo leg_info[N_LEGS] = {
        { "cpu -O0", "cpu", "cpu", 0, NULL },
        { "cpu -O3", "cpu", "cpu", 3, NULL },
        { "emulate -O0", "emulate", "cuda", 0, NULL },
        { "emulate -O3", "emulate", "cuda", 3, NULL },
        { "sm_90a -O0", "emulate", "cuda", 0, "sm_90a" },
        { "sm_90a -O3", "emulate", "cuda", 3, "sm_90a" },
};

typedef struct Knobs {
        int dtype, tf32, mode, batch, block, chunk, tokens, greedy, seed, recompute, fast;
        int documents; /* the token, or -1 */
} Knobs;

/* From good to bad. */
typedef enum {
        NOT_RUN,
        PASSED,
        REFUSED,
        BAD_REFUSAL,
        UNSTABLE,
        DIFFERS,
        NO_BUILD,
        FAILED,
        HANGS,
        CRASHES,
        N_OUTCOMES
} Outcome;

static const char *const outcome_name[N_OUTCOMES] = { "not run",
                                                      "passed",
                                                      "refused",
                                                      "refused without a place",
                                                      "compiles differently",
                                                      "differs",
                                                      "kernels do not compile",
                                                      "failed",
                                                      "does not end",
                                                      "crashed" };

typedef struct Verdict {
        Outcome outcome;
        int compared, shaken;
        char msg[600];
} Verdict;

typedef struct Case {
        char name[64], path[512]; /* the JSON */
        Knobs k;
        unsigned legs;             /* wanted, as bits */
        unsigned char used[N_OPS]; /* ops of the graph */
        Verdict compiled, ran[N_LEGS];
} Case;

static Outcome worst_of(const Case *c)
{
        Outcome o = c->compiled.outcome;
        for (int i = 0; i < N_LEGS; i++)
                o = c->ran[i].outcome > o ? c->ran[i].outcome : o;
        return o;
}

/* ---- knobs ---- */

typedef enum { KIND_SMALL, KIND_WIDE, KIND_CHAIN } Kind; /* random_graph.h, _stack.h, _chain.h */

/* Wide ones have sizes of several tiles, documents, decoding of more sequences. */
static Knobs draw_knobs(Draw *d, const Model *m, Kind kind)
{
        const bool trains = graph_out(m->graph, "loss") != 0;
        static const int types[] = { DT_F32, DT_F32, DT_F32, DT_BF16, DT_BF16, DT_F16 };
        Knobs k = { .dtype = types[draw(d, 6)],
                    .batch = 1 + draw(d, 3),
                    .block = 1 + draw(d, 9),
                    .seed = draw(d, 1000) };
        int mode = draw(d, 100);
        k.mode = !trains     ? BUILD_INFER
                 : mode < 65 ? BUILD_INFER | BUILD_TRAIN
                 : mode < 85 ? BUILD_INFER
                             : BUILD_TRAIN;
        k.tf32 = k.dtype == DT_F32 && chance(d, 15);
        k.chunk = chance(d, 50) ? 0 : 1 + draw(d, 6);
        k.tokens = 1 + draw(d, 8);
        k.greedy = chance(d, 20) ? 3 : 0;
        k.documents = -1;
        if (kind == KIND_WIDE) {
                const int ctx = (int)m->ctx;
                k.batch = 1 + draw(d, 6);
                k.block = 1 + draw(d, chance(d, 50) ? 12 : ctx < 80 ? ctx : 80);
                k.chunk = chance(d, 50) ? 0 : 1 + draw(d, 40);
                k.tokens = 1 + draw(d, ctx - 3);
                k.recompute = chance(d, 15);
        } else if (kind == KIND_CHAIN) {
                k.recompute = chance(d, 30);
        }
        if (kind != KIND_SMALL && k.mode & BUILD_TRAIN && chance(d, 30))
                k.documents = draw(d, (int)m->vocab);
        k.fast = k.mode == BUILD_INFER && k.batch > 1 && chance(d, 60);
        return k;
}

static const char *knobs_text(const Knobs *k, char out[160])
{
        snprintf(out, 160, "%s%s %s batch %d block %d chunk %d tokens %d greedy %d seed %d",
                 dt_name[k->dtype], k->tf32 ? " tf32" : "",
                 k->mode == BUILD_INFER   ? "infer"
                 : k->mode == BUILD_TRAIN ? "train"
                                          : "both",
                 k->batch, k->block, k->chunk, k->tokens, k->greedy, k->seed);
        if (k->documents >= 0)
                snprintf(out + strlen(out), 160 - strlen(out), " documents %d", k->documents);
        if (k->recompute)
                snprintf(out + strlen(out), 160 - strlen(out), " recompute");
        if (k->fast)
                snprintf(out + strlen(out), 160 - strlen(out), " fast");
        return out;
}

static bool knobs_parse(Knobs *k, const char *s)
{
        char dtype[16], mode[16], tf32[8] = "";
        *k = (Knobs) { .dtype = -1 };
        if (sscanf(s, "%15s %7[t]f32", dtype, tf32) == 2 && strstr(s, " tf32 ")) {
                k->tf32 = 1;
                s = strstr(s, " tf32 ") + 6;
        } else {
                s = strchr(s, ' ') ? strchr(s, ' ') + 1 : s;
        }
        for (int t = 0; t < N_DT; t++)
                if (!strcmp(dt_name[t], dtype))
                        k->dtype = t;
        if (sscanf(s, "%15s batch %d block %d chunk %d tokens %d greedy %d seed %d", mode,
                   &k->batch, &k->block, &k->chunk, &k->tokens, &k->greedy, &k->seed) != 7 ||
            k->dtype < 0)
                return false;
        const char *documents = strstr(s, " documents ");
        k->documents = documents ? atoi(documents + 11) : -1;
        k->recompute = strstr(s, " recompute") != NULL;
        k->fast = strstr(s, " fast") != NULL;
        k->mode = !strcmp(mode, "infer")   ? BUILD_INFER
                  : !strcmp(mode, "train") ? BUILD_TRAIN
                                           : BUILD_INFER | BUILD_TRAIN;
        return true;
}

/* ---- children ---- */

static void *shared_memory(size_t n)
{
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                abort();
        return p;
}

typedef struct Plans Plans;
typedef void Work(Plans *p, Case *c, Leg leg, Verdict *v);

/* work in a child of its own, which has so many seconds. */
static void in_child(Work *work, Plans *p, Case *c, Leg leg, Verdict *v, unsigned seconds)
{
        int status = 0;
        char path[600];
        snprintf(path, sizeof path, "%s.log", c->path);
        fflush(stdout);
        pid_t pid = fork();
        if (pid < 0)
                abort();
        if (!pid) {
                int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
                dup2(fd, 1);
                dup2(fd, 2);
                setrlimit(RLIMIT_CORE, &(struct rlimit) { 0, 0 });
                signal(SIGALRM, SIG_DFL);
                alarm(seconds);
                v->outcome = NOT_RUN;
                work(p, c, leg, v);
                fflush(NULL);
                _exit(0);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (WIFEXITED(status) && !WEXITSTATUS(status) && v->outcome != NOT_RUN) {
                unlink(path);
                return;
        }
        bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        char *log = NULL, *line;
        size_t n;
        v->outcome = late ? HANGS : CRASHES;
        if (late)
                snprintf(v->msg, sizeof v->msg, "more than %u s", seconds);
        else if (WIFSIGNALED(status))
                snprintf(v->msg, sizeof v->msg, "signal %d", WTERMSIG(status));
        else
                snprintf(v->msg, sizeof v->msg, "exit %d", WEXITSTATUS(status));
        if (!file_read_text(path, 1 << 20, &log, &n, &(Err) { 0 }) && n) {
                line = strstr(log, "ERROR: AddressSanitizer")
                               ? strstr(log, "ERROR: AddressSanitizer")
                       : strstr(log, "runtime error") ? strstr(log, "runtime error")
                                                      : log;
                snprintf(v->msg + strlen(v->msg), sizeof v->msg - strlen(v->msg), ": %.*s",
                         (int)strcspn(line, "\n"), line);
        }
        free(log);
        unlink(path);
}

/* ---- compiling ---- */

struct Plans {
        Case *c; /* shared memory */
        int n;
        const char *dir;
        Text source;         /* of all cases, for the legs of one device */
        const char *program; /* "program.cpu", and */
        const char *section; /* "source.cpu" */
};

static void file_of(const Plans *p, const Case *c, Leg leg, const char *what, char out[600])
{
        snprintf(out, 600, "%.500s/%d.%d.%s", p->dir, (int)(c - p->c), (int)leg, what);
}

static bool write_file(const char *path, const char *s, size_t n)
{
        FILE *f = fopen(path, "wb");
        bool ok = f && fwrite(s, 1, n, f) == n;
        return f && !fclose(f) && ok;
}

static int build(Plan *plan, const Case *c, const char *path, int opt, Err *e)
{
        char says[CHECK_SAYS] = "";
        BuildOptions o = { .kind = MODEL_JSON,
                           .model = path,
                           .dtype = dt_name[c->k.dtype],
                           .mode = c->k.mode,
                           .opt = opt,
                           .batch = c->k.batch,
                           .block = c->k.block,
                           .chunk = c->k.chunk,
                           .cuda = true,
                           .cpu = true,
                           .tf32 = c->k.tf32,
                           .recompute = c->k.recompute,
                           .fast = c->k.fast,
                           .documents = c->k.documents >= 0 && c->k.mode & BUILD_TRAIN
                                                ? &c->k.documents
                                                : NULL,
                           .check = says };
        return build_plan(plan, &o, e);
}

static bool same_plans(const Plan *a, const Plan *b, char *what, size_t cap)
{
        for (int i = 0; i < a->n_sections; i++) {
                const Section *s = &a->section[i], *t = plan_find(b, s->name);
                snprintf(what, cap, "section %s", s->name);
                if (!t || s->size != t->size || memcmp(s->data, t->data, s->size))
                        return false;
        }
        return a->n_sections == b->n_sections;
}

/* Names of kernels, k3_matmul and what begins with that, under a prefix; units become one. */
static void put_renamed(Text *out, const char *s, size_t n, const char *prefix, bool program)
{
        bool inside = false;
        for (size_t i = 0; i < n; i++) {
                bool word = isalnum((unsigned char)s[i]) || s[i] == '_';
                if (word && !inside && s[i] == 'k' && i + 1 < n &&
                    isdigit((unsigned char)s[i + 1])) {
                        size_t k = i + 1;
                        while (k < n && isdigit((unsigned char)s[k]))
                                k++;
                        if (k < n && s[k] == '_')
                                text_put(out, prefix, strlen(prefix));
                }
                inside = word;
                if (program && !strncmp(s + i, " unit ", 6)) {
                        text_put(out, " unit all", 9);
                        i += 6 + strcspn(s + i + 6, " \n") - 1;
                        continue;
                }
                if (!program && (i == 0 || s[i - 1] == '\n') && !strncmp(s + i, "//@ unit ", 9)) {
                        i += strcspn(s + i, "\n") - 1;
                        continue;
                }
                text_put(out, s + i, 1);
        }
}

static bool save_leg(Plans *p, Case *c, Leg leg, const Plan *plan, Err *e)
{
        const char *target = leg_info[leg].target;
        char name[32], prefix[32], path[600];
        Text source = { 0 };
        snprintf(prefix, sizeof prefix, "g%d_%d_", (int)(c - p->c), leg_info[leg].opt);
        snprintf(name, sizeof name, "source.%s", target);
        const Section *s = plan_find(plan, name);
        put_renamed(&source, s->data, s->size, prefix, false);
        file_of(p, c, leg, "src", path);
        bool ok = write_file(path, source.s, source.n);
        text_free(&source);
        Plan small = { 0 };
        static const char *const take[] = { "manifest", "ir", "consts", "graph.json" };
        for (int i = 0; i < 4 && ok; i++)
                if ((s = plan_find(plan, take[i])))
                        ok = !plan_add(&small, take[i], s->data, s->size, e);
        snprintf(name, sizeof name, "program.%s", target);
        s = plan_find(plan, name);
        put_renamed(&source, s->data, s->size, prefix, true);
        ok = ok && !plan_add(&small, name, source.s, source.n, e);
        text_free(&source);
        file_of(p, c, leg, "plan", path);
        ok = ok && !plan_write(&small, path, e);
        plan_close(&small);
        return ok;
}

/* A refusal names a place: file:line. */
static void refused(Verdict *v, const Err *e, int code)
{
        const char *json = strstr(e->msg, ".json:");
        v->outcome = code == TGC_CHECK_FAILED ? DIFFERS
                     : code == TGC_BAD_FILE || code == TGC_USAGE
                             ? json && isdigit((unsigned char)json[6]) ? REFUSED : BAD_REFUSAL
                             : FAILED;
        snprintf(v->msg, sizeof v->msg, "%.590s",
                 json ? json + 6 + strspn(json + 6, "0123456789:") : e->msg);
}

static void note_ops(Case *c)
{
        Diag d = { 0 };
        Model *volatile m = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_json(c->path);
                for (Ref r = 1; r < m->graph->n_nodes; r++)
                        c->used[NODE(m->graph, r)->op] = 1;
                diag_end(&d);
        }
        model_free(m);
}

/* ---- what is done once for all programs: simplify, merge_linears ---- */

static uint64_t named_noise(const char *name, uint64_t i)
{
        uint64_t h = 1469598103934665603u;
        for (; *name && *name != ':'; name++)
                h = (h ^ (unsigned char)*name) * 1099511628211u;
        return draw64(&(Draw) { .state = h + i * 0x9E3779B97F4A7C15u });
}

/* Each row of a merged parameter is one of those that it was made of: the map says which. */
static void set_by_map(Eval *e, const Model *m)
{
        const Graph *g = m->graph;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (n->op != OP_PARAM)
                        continue;
                int64_t count = type_elems(&n->type).n, rows = n->type.rank ? n->type.dim[0].n : 1,
                        per = count / rows;
                double *v = calloc((size_t)count, sizeof *v);
                for (int i = 0; i < m->n_map; i++) {
                        const MapLine *l = &m->map[i];
                        if (strcmp(l->param, n->name) || strncmp(l->rest, "= ", 2))
                                continue;
                        long long begin = l->end ? l->begin : 0, end = l->end ? l->end : rows,
                                  step = l->step;
                        int64_t outer = 1, k = 0, cut = rows, each = per;
                        /* experts' rows */
                        if (*l->deeper &&
                            sscanf(l->deeper, "[%lld:%lld:%lld]", &begin, &end, &step) == 3) {
                                outer = rows;
                                cut = n->type.dim[1].n;
                                each = per / cut;
                        }
                        for (int64_t x = 0; x < outer; x++)
                                for (int64_t at = begin; at < end; at += step)
                                        for (int64_t j = 0; j < each; j++, k++)
                                                v[(x * cut + at) * each + j] =
                                                        (double)(named_noise(l->rest + 2,
                                                                             (uint64_t)k) >>
                                                                 11) *
                                                                0x1p-53 -
                                                        0.5;
                }
                eval_set(e, n->name, v, count);
                free(v);
        }
}

/* The model read and the model cleaned give the same. */
static bool same_when_merged(const Case *c, char *msg, size_t cap)
{
        static const char *const name[] = { "logits", "loss", "aux_loss" };
        Diag d = { 0 };
        Model *m[2] = { NULL, NULL };
        Eval *e[2] = { NULL, NULL };
        volatile bool same = true;
        if (!DIAG_CATCH(&d)) {
                snprintf(msg, cap, "simplify, merge_linears: %.400s", d.msg);
                return false;
        }
        for (int i = 0; i < 2; i++) {
                EvalCtx ctx = { .sizes = { { 2, 3, 3 } }, .inv_tokens = 1.0 / 6, .share = 1 };
                double ids[6], targets[6];
                m[i] = read_json(c->path);
                Graph *g = m[i]->graph;
                Arena *tmp = arena_new();
                if (i) {
                        simplify(g, tmp);
                        verify(g, "simplify");
                        merge_linears(m[i], tmp);
                        verify(g, "merge_linears");
                }
                arena_free(tmp);
                e[i] = eval_new(g, &ctx);
                set_by_map(e[i], m[i]);
                for (int k = 0; k < 6; k++) {
                        ids[k] = (double)((k * 7 + 3) % m[i]->vocab);
                        targets[k] = (double)((k * 5 + 1) % m[i]->vocab);
                }
                eval_set(e[i], "ids", ids, 6);
                if (graph_find(g, "targets"))
                        eval_set(e[i], "targets", targets, 6);
                eval_run(e[i]);
        }
        for (int o = 0; o < 3 && same; o++) {
                int64_t n = 0, k = 0;
                const double *a = graph_out(m[0]->graph, name[o]) ? eval_output(e[0], name[o], &n)
                                                                  : NULL;
                const double *b = a && graph_out(m[1]->graph, name[o])
                                          ? eval_output(e[1], name[o], &k)
                                          : NULL;
                double most = 1e-3, worst = 0;
                for (int64_t i = 0; b && i < n; i++) {
                        most = fabs(a[i]) > most ? fabs(a[i]) : most;
                        worst = worse(worst, fabs(a[i] - b[i]));
                }
                if (n != k || !(worst <= 1e-6 * most)) {
                        same = false;
                        snprintf(msg, cap,
                                 "%s differ by %.1e when the model was simplified and its linears "
                                 "merged",
                                 name[o], worst / most);
                }
        }
        diag_end(&d);
        for (int i = 0; i < 2; i++) {
                eval_free(e[i]);
                model_free(m[i]);
        }
        return same;
}

/* Every level that a leg wants; twice each, and from the plan's own graph. */
static void compile_case(Plans *p, Case *c, Leg unused, Verdict *v)
{
        static const int levels[] = { 0, 3 };
        Err e = { 0 };
        (void)unused;
        note_ops(c);
        if (!same_when_merged(c, v->msg, sizeof v->msg)) {
                v->outcome = DIFFERS;
                return;
        }
        for (int i = 0; i < 2; i++) {
                Plan a = { 0 }, b = { 0 };
                char what[64], again[600];
                int code = 0;
                unsigned want = 0;
                for (int l = 0; l < N_LEGS; l++)
                        if (c->legs >> l & 1 && leg_info[l].opt == levels[i])
                                want |= 1u << l;
                if (!want)
                        continue;
                if ((code = build(&a, c, c->path, levels[i], &e))) {
                        refused(v, &e, code);
                        return;
                }
                const Section *g = plan_find(&a, "graph.json");
                snprintf(again, sizeof again, "%s.again.json", c->path);
                if (!write_file(again, g->data, g->size) || build(&b, c, again, levels[i], &e)) {
                        v->outcome = UNSTABLE;
                        snprintf(v->msg, sizeof v->msg, "the plan's own graph is refused: %.500s",
                                 e.msg);
                        return;
                }
                unlink(again);
                if (!same_plans(&a, &b, what, sizeof what)) {
                        v->outcome = UNSTABLE;
                        snprintf(v->msg, sizeof v->msg, "-O%d: %s differs when compiled again",
                                 levels[i], what);
                        return;
                }
                for (int l = 0; l < N_LEGS; l++)
                        if (want >> l & 1 && !save_leg(p, c, (Leg)l, &a, &e)) {
                                v->outcome = FAILED;
                                snprintf(v->msg, sizeof v->msg, "%.590s", e.msg);
                                return;
                        }
                plan_close(&a);
                plan_close(&b);
        }
        v->outcome = PASSED;
}

/* ---- running ---- */

static int open_leg(Plans *p, Case *c, Leg leg, Plan *plan, Err *e)
{
        char path[600];
        int code;
        if (leg_info[leg].arch)
                setenv("TGC_EMULATE_ARCH", leg_info[leg].arch, 1);
        else
                unsetenv("TGC_EMULATE_ARCH");
        file_of(p, c, leg, "plan", path);
        if ((code = plan_open(plan, path, e)) ||
            (code = plan_add(plan, p->section, p->source.s, p->source.n, e)))
                return code;
        return plan_add_headers(plan, e);
}

static void warm_leg(Plans *p, Case *c, Leg leg, Verdict *v)
{
        Plan plan;
        Err e = { 0 };
        int code = open_leg(p, c, leg, &plan, &e);
        if (!code)
                code = check_plan(&plan, leg_info[leg].device, NULL, NULL, &e);
        v->outcome = code ? NO_BUILD : PASSED;
        snprintf(v->msg, sizeof v->msg, "%.590s", code ? e.msg : "");
}

static void run_leg(Plans *p, Case *c, Leg leg, Verdict *v)
{
        Plan plan;
        CheckSum sum;
        Err e = { 0 };
        CheckOptions o = { .tolerance = -1,
                           .tokens = c->k.tokens,
                           .greedy = c->k.greedy,
                           .shake = true,
                           .seed = (uint64_t)c->k.seed };
        int code = open_leg(p, c, leg, &plan, &e);
        if (!code)
                code = check_plan(&plan, leg_info[leg].device, &o, &sum, &e);
        if (code) {
                v->outcome = FAILED;
                snprintf(v->msg, sizeof v->msg, "%.590s", e.msg);
                return;
        }
        v->outcome = sum.bad ? DIFFERS : PASSED;
        v->compared = sum.compared;
        v->shaken = sum.shaken;
        if (sum.bad)
                snprintf(v->msg, sizeof v->msg, "%d of %d, first %s; the reference by itself: %.1e",
                         sum.bad, sum.compared, sum.first, sum.natural);
}

/* CUDA sources begin with macros that say how exact their arithmetic is (codegen/program/entry.c),
 * and headers are read once. */
enum { N_KINDS = 3 };
static int kind_of(const Case *c, Leg leg)
{
        return !strcmp(leg_info[leg].target, "cpu") ? 0
               : c->k.dtype != DT_F32               ? 1
               : c->k.tf32                          ? 2
                                                    : 0;
}

static bool wants(const Case *c, Leg leg, Leg first, int kind)
{
        if (kind_of(c, leg) != kind)
                return false;
        return c->legs >> leg & 1 && c->compiled.outcome == PASSED && leg / 2 == first / 2;
}

/* Both levels of one device, for cases [from, to) of a kind. */
static void run_device(Plans *p, Leg first, int kind, int from, int to)
{
        char path[600], section[32];
        Verdict *warm = shared_memory(sizeof *warm);
        Case *any = NULL;
        Leg any_leg = first;
        snprintf(section, sizeof section, "source.%s", leg_info[first].target);
        p->section = section;
        p->source = (Text) { 0 };
        text_add(&p->source, "//@ unit all\n");
        for (int i = from; i < to; i++)
                for (Leg l = first; l < first + 2; l++) {
                        char *text;
                        size_t n;
                        if (!wants(&p->c[i], l, first, kind))
                                continue;
                        file_of(p, &p->c[i], l, "src", path);
                        if (file_read_text(path, 64 << 20, &text, &n, &(Err) { 0 }))
                                abort();
                        text_put(&p->source, text, n);
                        free(text);
                        any = &p->c[i];
                        any_leg = l;
                }
        if (any)
                in_child(warm_leg, p, any, any_leg, warm, 900);
        if (any && warm->outcome != PASSED && to - from > 1) { /* which one? */
                text_free(&p->source);
                for (int i = from; i < to; i++)
                        run_device(p, first, kind, i, i + 1);
                munmap(warm, sizeof *warm);
                return;
        }
        for (int i = from; i < to; i++)
                for (Leg l = first; l < first + 2; l++) {
                        Case *c = &p->c[i];
                        if (!wants(c, l, first, kind))
                                continue;
                        if (warm->outcome != PASSED)
                                c->ran[l] = *warm;
                        else
                                in_child(run_leg, p, c, l, &c->ran[l], 60);
                }
        text_free(&p->source);
        munmap(warm, sizeof *warm);
}

/* Cases in shared memory, their JSON files there; dir: for temporary files, TGC_CACHE_DIR of its
 * own. */
static void run_cases(Case *c, int n, const char *dir)
{
        Plans p = { .c = c, .n = n, .dir = dir };
        char path[600];
        for (int i = 0; i < n; i++)
                in_child(compile_case, &p, &c[i], 0, &c[i].compiled, 60);
        for (Leg l = 0; l < N_LEGS; l += 2)
                for (int kind = 0; kind < N_KINDS; kind++)
                        run_device(&p, l, kind, 0, n);
        for (int i = 0; i < n; i++)
                for (Leg l = 0; l < N_LEGS; l++) {
                        file_of(&p, &c[i], l, "src", path);
                        unlink(path);
                        file_of(&p, &c[i], l, "plan", path);
                        unlink(path);
                }
}

#endif
