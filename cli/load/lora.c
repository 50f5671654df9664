/* lora.c: --lora: adds adapters to the model's graph. */
#include "lora.h"
#include <stdlib.h>
#include <string.h>
#include "../../compiler/compiler.h"
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "gguf_model.h"

/* ---- what was typed ---- */

/* DIR or DIR:scale */
static int open_dir(Adapter *a, const char *typed, const char *base, Err *e)
{
        const char *colon = strrchr(typed, ':');
        char *end = NULL;
        a->scale = 1;
        if (!(a->dir = strdup(typed)))
                return err_set(e, TGC_NO_MEMORY, "no memory");
        if (!file_is_dir(typed) && !file_exists(typed) && colon) {
                a->scale = c_strtod(colon + 1, &end);
                if (end == colon + 1 || *end || !(a->scale >= -1e6 && a->scale <= 1e6) ||
                    a->scale == 0)
                        return err_set(e, TGC_USAGE,
                                       "--lora %.200s: '%.40s' is not a scale: give a number "
                                       "other than 0",
                                       typed, colon + 1);
                a->dir[colon - typed] = 0;
        }
        if (is_gguf(a->dir))
                return gguf_adapter(&a->config, &a->names, a->dir, base, e);
        if (!file_is_dir(a->dir))
                return file_exists(a->dir)
                               ? err_set(e, TGC_USAGE,
                                         "--lora %.200s: neither a folder nor a GGUF file; a PEFT "
                                         "adapter is adapter_config.json and "
                                         "adapter_model.safetensors",
                                         a->dir)
                               : err_set(e, TGC_IO, "--lora %.200s: no such folder", a->dir);
        return peft_config_read(&a->config, a->dir, e);
}

int adapters_open(Adapters *s, const char *const *typed, int n, const char *base, Err *e)
{
        int code = TGC_OK;
        *s = (Adapters) { 0 };
        if (n > MOST_ADAPTERS)
                return err_set(e, TGC_USAGE, "--lora: %d adapters; the most is %d", n,
                               MOST_ADAPTERS);
        for (int i = 0; i < n && !code; i++) {
                Adapter *a = &s->a[s->n++];
                a->scale = 1;
                code = strchr(typed[i], '=') && !file_is_dir(typed[i])
                               ? peft_config_line(&a->config, typed[i], e)
                               : open_dir(a, typed[i], base, e);
                if (!code && !a->dir && n > 1)
                        code = err_set(e, TGC_USAGE,
                                       "--lora %.100s: a new adapter must be the only --lora, "
                                       "and there are %d",
                                       typed[i], n);
        }
        if (code)
                adapters_free(s);
        return code;
}

void adapters_free(Adapters *s)
{
        for (int i = 0; i < s->n; i++) {
                peft_config_free(s->a[i].config);
                free(s->a[i].dir);
                free(s->a[i].names);
        }
        *s = (Adapters) { 0 };
}

/* ---- into the graph ---- */

typedef struct Asking {
        const Adapter *a;
        char near[128]; /* a part of a module's path that is like `name` */
        const char *name;
        int distance;
        int number, of; /* where sequences choose among adapters; of 0: they do not */
} Asking;

static int rank(void *ctx, const char *module, bool output, double *scale)
{
        Asking *s = ctx;
        const char *dot = strrchr(module, '.'), *last = dot ? dot + 1 : module;
        const int d = s->name ? edit_distance(s->name, last) : 0;
        if (s->name && d < s->distance) {
                s->distance = d;
                snprintf(s->near, sizeof s->near, "%s", last);
        }
        const int r = s->name ? 0 : peft_config_rank(s->a->config, module, output, scale);
        *scale *= s->a->scale;
        return r;
}

static int said_by_compiler(const Diag *d, Err *e)
{
        return err_set(e, d->code ? d->code : TGC_BAD_FILE, "%s", d->msg);
}

/* Once through the graph.  s->name: only for what is near to it. */
static int pass(Model *m, Asking *s, const char *tag, LoraFound *found, Err *e)
{
        Lora l = { tag, peft_config_dropout(s->a->config), rank, s, s->number, s->of };
        Arena *volatile tmp = NULL;
        Diag d = { 0 };
        if (!DIAG_CATCH(&d)) {
                if (tmp)
                        arena_free(tmp);
                return said_by_compiler(&d, e);
        }
        tmp = arena_new();
        lora(m, &l, found, tmp);
        diag_end(&d);
        arena_free(tmp);
        return peft_config_failed(s->a->config, e);
}

static int no_such(Model *m, const Adapter *a, const char *name, Err *e)
{
        LoraFound none;
        Asking s = { .a = a, .name = name, .distance = 1 << 20 };
        int code = pass(m, &s, "", &none, e);
        return code ? code
                    : err_set(e, TGC_USAGE,
                              "--lora: no linear of %.100s is called %.100s; nearest is %.100s "
                              "(targets are the ends of checkpoint names, see `tgc dump "
                              "--manifest`)",
                              m->name, name, *s.near ? s.near : "none");
}

/* What a sequence calls it: the last part of its folder's name. */
static int name_of(const Adapters *s, int i, char name[64], Err *e)
{
        char other[64];
        const char *dir = s->a[i].dir;
        size_t n = strlen(dir);
        while (n > 1 && dir[n - 1] == '/')
                n--;
        size_t from = n;
        while (from && dir[from - 1] != '/')
                from--;
        if (n - from >= 64 || n == from || strcspn(dir + from, " \t\n\r") < n - from)
                return err_set(
                        e, TGC_USAGE,
                        "--lora-switch: the last part of %.200s is the adapter's name: 1 to 63 "
                        "letters without spaces",
                        dir);
        snprintf(name, 64, "%.*s", (int)(n - from), dir + from);
        for (int k = 0; k < i; k++)
                if (!name_of(s, k, other, e) && !strcmp(other, name))
                        return err_set(
                                e, TGC_USAGE,
                                "--lora-switch: two adapters are called %.63s: %.200s and %.200s",
                                name, s->a[k].dir, dir);
        return TGC_OK;
}

static int add(Model *m, const Adapter *a, int i, int of, Err *e)
{
        char tag[16] = "", x[32];
        LoraFound found;
        Asking s = { .a = a, .number = i, .of = of };
        if (i)
                snprintf(tag, sizeof tag, ".%d", i);
        int code = pass(m, &s, tag, &found, e);
        if (code)
                return code;
        const char *unmet = a->dir ? NULL : peft_config_unmet(a->config);
        if (found.experts.file && peft_config_all_linear(a->config))
                return err_set(e, TGC_USAGE,
                               "--lora: all-linear would be the experts' linears, too (%s:%d), and "
                               "they cannot have adapters; name others with targets=",
                               found.experts.file, found.experts.line);
        if (unmet || !found.n)
                return unmet ? no_such(m, a, unmet, e)
                             : err_set(e, a->dir ? TGC_BAD_FILE : TGC_USAGE,
                                       "--lora %.200s: none of its target modules is a linear of "
                                       "%.100s; is it of this model?",
                                       a->dir ? a->dir : "", m->name);
        char *text = peft_config_text(a->config, NULL, false);
        if (!text)
                return err_set(e, TGC_NO_MEMORY, "no memory");
        num_text(a->scale, x);
        m->meta = arena_fmt(m->arena, "%smeta lora %d %s %s\n", m->meta, i, x, text);
        free(text);
        return TGC_OK;
}

int adapters_add(Model *m, const BuildOptions *o, Err *e)
{
        Adapters s;
        char name[64];
        if (!o->n_lora)
                return TGC_OK;
        if (o->n_train)
                return err_set(e, TGC_USAGE,
                               "--train: --lora trains only adapters: leave --train out");
        int code = adapters_open(&s, o->lora, o->n_lora, o->model, e);
        if (!code && o->switch_lora && !s.a[0].dir) {
                adapters_free(&s);
                return err_set(e, TGC_USAGE,
                               "--lora-switch: --lora %.100s would begin a new "
                               "adapter: give folders of trained ones",
                               o->lora[0]);
        }
        for (Ref r = 1; r < m->graph->n_nodes && !code; r++)
                if (NODE(m->graph, r)->op == OP_PARAM)
                        NODE(m->graph, r)->a.param.trainable = 0;
        for (int i = 0; i < s.n && !code; i++)
                if (!(code = add(m, &s.a[i], i, o->switch_lora ? s.n : 0, e)) && o->switch_lora &&
                    !(code = name_of(&s, i, name, e)))
                        m->meta = arena_fmt(m->arena, "%smeta adapter %d %s\n", m->meta, i + 1,
                                            name);
        if (!code && o->switch_lora)
                m->meta = arena_fmt(m->arena, "%sadapters %d\n", m->meta, s.n);
        adapters_free(&s);
        return code;
}
