/* adapter.c: adapters' tensors between PEFT folders and a session.  An adapter's lines in the
 * plan's weight map begin with PEFT's prefix `base_model.model.` (compiler/passes/lora.c).
 *
 * A parameter may hold rows of several linears and of several adapters.  Reading one adapter
 * requires all of its lines; the elements of other adapters keep their values. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/plan/manifest.h"
#include "../../runtime/util/file.h"
#include "../../runtime/weights/weight_map.h"
#include "lora.h"
#include "open.h"

static const char FILE_NAME[] = "adapter_model.safetensors", PEFT[] = "base_model.model.";

/* Of a line of the map: the number of its adapter, or -1. */
static int adapter_of(const char *line)
{
        const char *name = strstr(line, "=? ");
        char *end;
        long i = 0;
        if (!name)
                return -1;
        name += 3;
        if (*name >= '0' && *name <= '9') {
                i = strtol(name, &end, 10);
                name = *end == '/' ? end + 1 : name;
        }
        return strncmp(name, PEFT, sizeof PEFT - 1) ? -1 : (int)i;
}

bool map_line_is_adapters(const char *line) { return adapter_of(line) >= 0; }

/* A line's names without the number of their adapter; those of another one under names that no file
 * has. */
static void put_line(FILE *f, const char *line, bool other)
{
        const char *name = strstr(line, "=? ");
        fprintf(f, "%.*s%s ", (int)(name - line), line, other ? "=?" : "=");
        for (const char *s = name + 3; *s;) {
                const size_t digits = s[-1] == ' ' ? strspn(s, "0123456789") : 0;
                if (digits && s[digits] == '/')
                        s += digits + 1;
                if (other && !strncmp(s, PEFT, sizeof PEFT - 1))
                        fputs("other/", f);
                fputc(*s++, f);
        }
        fputc('\n', f);
}

/* Lines of adapters alone, those of number i required and under PEFT's own names.  Caller frees. */
static char *adapter_map(const Plan *p, int i)
{
        char *all = manifest_map(p), *text = NULL;
        size_t size = 0;
        FILE *f = all ? open_memstream(&text, &size) : NULL;
        for (char *line = all, *eol; f && line && (eol = strchr(line, '\n')); line = eol + 1) {
                *eol = 0;
                if (adapter_of(line) >= 0)
                        put_line(f, line, adapter_of(line) != i);
        }
        if (f && fclose(f)) {
                free(text);
                text = NULL;
        }
        free(all);
        return text;
}

/* "meta lora I SCALE JSON" of adapter i, and where the JSON is; NULL: there is none. */
static const char *meta_of(const Plan *p, int i, size_t *n)
{
        const Section *s = plan_find(p, "manifest");
        const char *at = s ? s->data : NULL, *end = s ? at + s->size : NULL;
        while (at && at < end) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                int of, used = 0;
                char head[96];
                const size_t line = (size_t)((eol ? eol : end) - at);
                snprintf(head, sizeof head, "%.*s", (int)(line < 95 ? line : 95), at);
                if (sscanf(head, "meta lora %d %*s %n", &of, &used) == 1 && used && of == i) {
                        *n = line - (size_t)used;
                        return at + used;
                }
                at += line + 1;
        }
        return NULL;
}

bool plan_has_lora(const Plan *p)
{
        size_t n;
        return meta_of(p, 0, &n) != NULL;
}

/* ---- through a session or a plan's weights ---- */

typedef struct Through {
        Manifest m;
        int *param; /* those of the set, by the manifest's numbers */
        WeightParam *p;
        int n;
        Session *s;
        float *x; /* one of them, of a session */
        WeightMap *map;
} Through;

static void through_close(Through *t)
{
        weight_map_free(t->map);
        free(t->param);
        free(t->p);
        free(t->x);
        manifest_free(&t->m);
}

static bool is_named(const char *map, const char *param)
{
        const size_t n = strlen(param);
        for (const char *s = map; (s = strstr(s, "map ")); s += 4)
                if (!strncmp(s + 4, param, n) && (s[4 + n] == ' ' || s[4 + n] == '['))
                        return true;
        return false;
}

/* mem: of section weights; s: or of a session; into: or float32 by the manifest's numbers. */
static int through_open(Through *t, const Plan *p, char *mem, Session *s, float *const *into, int i,
                        Err *e)
{
        static const int dtype[] = {
                [STORE_F32] = CK_F32, [STORE_BF16] = CK_BF16, [STORE_F16] = CK_F16
        };
        const Section *man = plan_find(p, "manifest");
        uint64_t most = 1;
        *t = (Through) { .s = s };
        int code = man ? manifest_parse(&t->m, man->data, man->size, e)
                       : err_set(e, TGC_BAD_FILE,
                                 "the plan has no manifest: compile the model again");
        if (code)
                return code;
        char *map = adapter_map(p, i);
        t->param = calloc((size_t)t->m.n_params + 1, sizeof *t->param);
        t->p = calloc((size_t)t->m.n_params + 1, sizeof *t->p);
        if (!map || !t->param || !t->p)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the adapter");
        for (int k = 0; k < t->m.n_params && !code; k++) {
                const Param *q = &t->m.param[k];
                if (!is_named(map, q->name))
                        continue;
                WeightParam *w = &t->p[t->n];
                *w = (WeightParam) { .name = q->name,
                                     .dtype = s || into ? CK_F32 : dtype[t->m.dtype],
                                     .rank = q->n_dims,
                                     .data = s      ? NULL
                                             : into ? (void *)into[k]
                                                    : mem + q->offset * store_size(t->m.dtype) };
                memcpy(w->dim, q->dim, sizeof w->dim);
                t->param[t->n++] = k;
                most = q->count > most ? q->count : most;
        }
        if (!code && !(t->x = malloc(most * sizeof *t->x)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for the adapter");
        if (!code)
                code = weight_map_parse(&t->map, map, "manifest", e);
        free(map);
        if (code)
                through_close(t);
        return code;
}

static int begin(void *ctx, int i, void **data, Err *e)
{
        Through *t = ctx;
        *data = t->x;
        return session_param_get(t->s, t->param[i], t->x, e);
}

static int end_import(void *ctx, int i, bool ok, Err *e)
{
        Through *t = ctx;
        return ok ? session_param_set(t->s, t->param[i], t->x, e) : TGC_OK;
}

static int import_one(Through *t, const Adapter *a, Err *e)
{
        char *path = a->names ? strdup(a->dir) : file_join(a->dir, FILE_NAME);
        Checkpoint *ck = NULL;
        WeightMap *names = NULL;
        WeightSet set = { .n = t->n,
                          .param = t->p,
                          .ctx = t,
                          .begin = t->s ? begin : NULL,
                          .end = t->s ? end_import : NULL };
        int code = path ? checkpoint_open(&ck, path, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory", a->dir);
        if (!code && a->names && !(code = weight_map_parse(&names, a->names, path, e)))
                code = weight_map_compose(t->map, names, ck, e);
        if (!code && (code = weight_map_import(t->map, ck, &set, NULL, e)) == TGC_BAD_FILE && e) {
                const Err why = *e;
                err_set(e, code,
                        "--lora %.200s: %.600s; %s and the model's linears say which tensors it "
                        "has, and of which shapes",
                        a->dir, why.msg, names ? "its metadata" : "its adapter_config.json");
        }
        if (names) { /* t->map has strings of it */
                weight_map_free(t->map);
                t->map = NULL;
        }
        weight_map_free(names);
        checkpoint_close(ck);
        free(path);
        return code;
}

/* As training begins. */
static int begin_anew(Through *t, Err *e)
{
        for (int i = 0; i < t->n; i++) {
                const Param *q = &t->m.param[t->param[i]];
                param_init(q, t->param[i], WEIGHTS_SEED, 0, q->count, t->x);
                if (!ck_convert(t->p[i].data, t->p[i].dtype, t->x, CK_F32, q->count, 1))
                        return err_set(e, TGC_FAIL, "%s: no conversion", q->name);
        }
        return TGC_OK;
}

int adapters_import(Plan *p, void *weights, const Adapters *s, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < s->n && !code; i++) {
                Through t;
                if ((code = through_open(&t, p, weights, NULL, NULL, i, e)))
                        break;
                code = s->a[i].dir ? import_one(&t, &s->a[i], e) : begin_anew(&t, e);
                through_close(&t);
        }
        return code;
}

int adapters_read(const Plan *p, const Adapters *s, float *const *into, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < s->n && !code; i++) {
                Through t;
                if ((code = through_open(&t, p, NULL, NULL, into, i, e)))
                        break;
                code = import_one(&t, &s->a[i], e);
                through_close(&t);
        }
        return code;
}

int adapters_into_session(Session *session, const Plan *p, const Adapters *from, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < from->n && !code; i++) {
                Through t;
                if (!from->a[i].dir || (code = through_open(&t, p, NULL, session, NULL, i, e)))
                        continue;
                code = import_one(&t, &from->a[i], e);
                through_close(&t);
        }
        return code;
}

/* ---- out ---- */

static int write_text(const char *dir, const char *name, const char *text, Err *e)
{
        char *path = file_join(dir, name);
        int code = path && text ? file_write_atomic(path, text, strlen(text), e)
                                : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        free(path);
        return code;
}

/* The card that Hugging Face's hub reads. */
static int write_card(const char *dir, const char *base, Err *e)
{
        char *text = NULL;
        size_t n;
        FILE *f = open_memstream(&text, &n);
        if (!f)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        fprintf(f, "---\n");
        if (base)
                fprintf(f, "base_model: %s\n", base);
        fprintf(f,
                "library_name: peft\n"
                "pipeline_tag: text-generation\ntags:\n- lora\n---\n\n"
                "# Adapter\n\n"
                "A LoRA adapter that tgc trained%s%s. With tgc:\n\n"
                "    tgc run %s --lora DIR -p \"...\"\n"
                "    tgc export %s --merge --lora DIR -o FOLDER\n\n"
                "With PEFT:\n\n"
                "    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(\"%s\"), "
                "\"DIR\")\n",
                base ? " beside " : "", base ? base : "", base ? base : "MODEL",
                base ? base : "MODEL", base ? base : "MODEL");
        int code = fclose(f) ? err_set(e, TGC_NO_MEMORY, "%s: no memory", dir)
                             : write_text(dir, "README.md", text, e);
        free(text);
        return code;
}

int adapter_words(const Plan *p, const char *dir, const char *base, Err *e)
{
        PeftConfig *c;
        size_t n;
        const char *json = meta_of(p, 0, &n);
        int code = json ? peft_config_parse(&c, json, n, "the plan's adapter", e)
                        : err_set(e, TGC_USAGE,
                                  "the plan has no adapter: it was not compiled with --lora");
        if (code)
                return code;
        char *text = peft_config_text(c, base, true);
        code = write_text(dir, "adapter_config.json", text, e);
        free(text);
        peft_config_free(c);
        return code ? code : write_card(dir, base, e);
}

int adapter_export(Session *s, const Plan *p, const char *dir, const char *file, const char *base,
                   Err *e)
{
        static const StMeta meta[] = { { "format", "pt" } };
        const Section *w = plan_find(p, "weights");
        size_t n;
        Through t;
        if (meta_of(p, 1, &n))
                return err_set(e, TGC_USAGE,
                               "the plan has several adapters: each is in its own folder already");
        if (!s && !w)
                return err_set(e, TGC_USAGE, "the plan has no weights: compile it with --weights");
        int code = through_open(&t, p, w ? (char *)w->data : NULL, s, NULL, 0, e);
        if (code)
                return code;
        char *path = dir ? file_join(dir, FILE_NAME) : strdup(file);
        if (!s && w->size < t.m.n_all * store_size(t.m.dtype))
                code = err_set(e, TGC_BAD_FILE,
                               "the plan's weights have %zu bytes, the parameters need %llu",
                               w->size, (unsigned long long)(t.m.n_all * store_size(t.m.dtype)));
        WeightSet set = { .n = t.n, .param = t.p, .ctx = &t, .begin = s ? begin : NULL };
        if (!code)
                code = path ? weight_map_export(t.map, &set, CK_F32, path, meta, 1, e)
                            : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir ? dir : file);
        free(path);
        through_close(&t);
        return code || file ? code : adapter_words(p, dir, base, e);
}
