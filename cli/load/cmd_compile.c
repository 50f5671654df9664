/* cmd_compile.c: tgc compile */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/plan/manifest.h"
#include "open.h"

/* sm_80, sm_90a: two or three digits, perhaps a letter. */
static bool is_arch(const char *s)
{
        if (strncmp(s, "sm_", 3))
                return false;
        size_t digits = strspn(s + 3, "0123456789");
        return digits >= 2 && digits <= 3 &&
               (!s[3 + digits] || (strchr("af", s[3 + digits]) && !s[4 + digits]));
}

/* keep: code is added to a plan, nothing goes. */
typedef struct Targets {
        bool all, cpu, cuda, cpu_code, keep;
        const char **arch;
        int n_arch;
} Targets;

static int parse_targets(Targets *t, const Args *a, Err *e)
{
        const OptionValue *v = &a->v[O_TARGET];
        *t = (Targets) { .arch = calloc((size_t)v->n + 1, sizeof *t->arch),
                         .cpu = !v->n,
                         .cuda = !v->n };
        if (!t->arch)
                return err_set(e, TGC_NO_MEMORY, "no memory for targets");
        for (int i = 0; i < v->n; i++) {
                const char *s = v->list[i];
                if (is_arch(s))
                        t->arch[t->n_arch++] = s;
                else if (strcmp(s, "cpu") && strcmp(s, "cuda") && strcmp(s, "all"))
                        return err_set(e, TGC_USAGE,
                                       "--target: '%.60s' is not one of cpu, cuda, sm_80, "
                                       "sm_90a, all",
                                       s);
                t->all |= !strcmp(s, "all");
                t->cpu_code |= !strcmp(s, "cpu");
                t->cpu |= !strcmp(s, "cpu") || !strcmp(s, "all");
                t->cuda |= !strcmp(s, "cuda") || !strcmp(s, "all") || is_arch(s);
        }
        return TGC_OK;
}

static void drop_target(Plan *p, const char *target)
{
        static const char *const kind[] = { "program", "source", "headers" };
        char name[32];
        for (int i = 0; i < 3; i++) {
                snprintf(name, sizeof name, "%s.%s", kind[i], target);
                plan_remove(p, name);
        }
}

/* `all` builds what can be built here; a target asked for by name must succeed. */
static int add_code(Plan *p, const Targets *t, const Progress *talk, Err *e)
{
        int code = TGC_OK;
        Err why;
        if (!t->cpu && !t->keep)
                drop_target(p, "cpu");
        if (!t->cuda && !t->keep)
                drop_target(p, "cuda");
        if (t->cpu_code)
                code = plan_add_target(p, "cpu", e);
        else if (t->all && (code = plan_add_target(p, "cpu", &why)) && code < 128) {
                say(talk, "no compiled CPU code: %s\n", why.msg);
                code = TGC_OK;
        }
        for (int i = 0; i < t->n_arch && !code; i++)
                code = plan_add_target(p, t->arch[i], e);
        return code;
}

static int count_kernels(const Plan *p, int *n, Err *e)
{
        const Section *s = plan_find(p, "program.cuda");
        Program g;
        if (!s)
                s = plan_find(p, "program.cpu");
        int code = s ? program_parse(&g, s->data, s->size, s->name, e) : TGC_OK;
        *n = 0;
        if (!s || code)
                return code == TGC_NO_MEMORY ? code : TGC_OK;
        *n = g.n_kernels;
        program_free(&g);
        return TGC_OK;
}

static int summary(const Args *a, const Loaded *l, const char *path, double seconds, Err *e)
{
        const Section *s = plan_find(&l->plan, "manifest");
        const Progress talk = progress_new(a);
        char n[32], size[32];
        size_t bytes = 0;
        Manifest m;
        int kernels, code = manifest_parse(&m, s->data, s->size, e);
        if (code)
                return code;
        if ((code = count_kernels(&l->plan, &kernels, e))) {
                manifest_free(&m);
                return code;
        }
        for (int i = 0; i < l->plan.n_sections; i++)
                bytes += l->plan.section[i].size;
        if (opt_flag(a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddStringToObject(o, "plan", path);
                cJSON_AddStringToObject(o, "model", m.model);
                cJSON_AddNumberToObject(o, "parameters", (double)manifest_elements(&m));
                cJSON_AddNumberToObject(o, "kernels", kernels);
                cJSON_AddNumberToObject(o, "plan_bytes", (double)bytes);
                cJSON_AddBoolToObject(o, "weights", plan_find(&l->plan, "weights") != NULL);
                cJSON_AddNumberToObject(o, "compile_s", l->seconds);
                cJSON_AddNumberToObject(o, "total_s", seconds);
                code = json_print(o, e);
        } else {
                say(&talk, "%s: %s, %s parameters (%s%s), %d kernels, %s in %.2f s\n", path,
                    m.model, text_count_si(n, sizeof n, (double)manifest_elements(&m)),
                    store_name(m.dtype), plan_find(&l->plan, "weights") ? ", with weights" : "",
                    kernels, text_bytes(size, sizeof size, (double)bytes), seconds);
        }
        manifest_free(&m);
        return code;
}

int cmd_compile(const Args *a, Err *e)
{
        Loaded l = { 0 };
        Targets t;
        Progress talk = progress_new(a);
        double start = clock_s();
        int code = parse_targets(&t, a, e);
        if (!code && !opt_str(a, O_OUT))
                code = err_set(e, TGC_USAGE, "compile: -o PLAN is missing: tgc compile %s -o PLAN",
                               a->pos[0]);
        if (!code)
                code = load(&l, a, &(LoadHow) { 0 }, e);
        if (!code && l.kind == MODEL_PLAN && t.n_arch + t.cpu_code == 0 && !opt_str(a, O_TOKENIZER))
                code = err_set(
                        e, TGC_USAGE,
                        "%s is a plan already; --target cpu or sm_XX would add compiled code to "
                        "it, --tokenizer a tokenizer",
                        a->pos[0]);
        t.keep = l.kind == MODEL_PLAN;
        if (!code && !(code = add_code(&l.plan, &t, &talk, e)))
                code = plan_write(&l.plan, opt_str(a, O_OUT), e);
        if (!code)
                code = summary(a, &l, opt_str(a, O_OUT), clock_s() - start, e);
        loaded_free(&l);
        free(t.arch);
        return code;
}
