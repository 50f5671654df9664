/* weights.c: imports a checkpoint into a plan's weights and exports them, by the map in the plan's
 * manifest. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/plan/manifest.h"
#include "../../runtime/plan/program.h"
#include "../../runtime/weights/weight_map.h"
#include "load.h"
#include "gguf_model.h"

char *manifest_map(const Plan *p)
{
        const Section *s = plan_find(p, "manifest");
        char *out = s ? malloc(s->size + 2) : NULL, *to = out;
        const char *at = s ? s->data : NULL, *end = s ? at + s->size : NULL;
        if (!out)
                return NULL;
        while (at < end) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                size_t n = (size_t)((eol ? eol : end) - at);
                if (n > 4 && !memcmp(at, "map ", 4)) {
                        memcpy(to, at, n);
                        to[n] = '\n';
                        to += n + 1;
                }
                at += n + 1;
        }
        *to = 0;
        return out;
}

int weight_map_for(const char *text, const Checkpoint *from, WeightMap **map, WeightMap **names,
                   Err *e)
{
        GgufModel g = { 0 };
        const char *path = from ? checkpoint_path(from) : "";
        *map = *names = NULL;
        int code = weight_map_parse(map, text, "manifest", e);
        if (!code && from && is_gguf(path))
                code = gguf_model(&g, path, true, e);
        if (!code && g.names && !(code = weight_map_parse(names, g.names, path, e)))
                code = weight_map_compose(*map, *names, from, e);
        gguf_model_free(&g);
        return code;
}

int plan_weight_map(const Plan *p, const Checkpoint *from, WeightMap **map, WeightMap **names,
                    Err *e)
{
        char *text = manifest_map(p);
        *map = *names = NULL;
        int code = text ? weight_map_for(text, from, map, names, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory",
                                  from ? checkpoint_path(from) : "a plan's map");
        free(text);
        return code;
}

/* Size of arena w: what the section must have so that it can be used in place. */
static int arena_size(const Plan *p, const Manifest *m, size_t *size, Err *e)
{
        *size = (size_t)m->n_all * store_size(m->dtype);
        static const char *const name[] = { "program.cpu", "program.cuda" };
        for (int i = 0; i < 2; i++) {
                const Section *s = plan_find(p, name[i]);
                Program g;
                int code = s ? program_parse(&g, s->data, s->size, name[i], e) : TGC_OK;
                if (code == TGC_NO_MEMORY)
                        return code;
                if (!s || code)
                        continue;
                int a = program_arena(&g, "w");
                if (a >= 0 && g.arena[a].size > *size)
                        *size = (size_t)g.arena[a].size;
                program_free(&g);
        }
        return TGC_OK;
}

static void say_absent(const Progress *s, const char *path, const WeightReport *r)
{
        for (int i = 0, said = 0; i < r->n_absent && said < 5; i++)
                if (!strstr(r->absent[i], ".lora_")) /* adapters lie elsewhere */
                        said++, say(s, "%s: has nothing for the parameter %s\n", path,
                                    r->absent[i]);
}

/* The parameters as they lie in the section; malloc'd. */
static WeightParam *in_section(const Manifest *m, char *mem)
{
        WeightParam *p = calloc((size_t)m->n_params + 1, sizeof *p);
        for (int i = 0; i < m->n_params && p; i++) {
                const Param *from = &m->param[i];
                p[i] = (WeightParam) { .name = from->name,
                                       .dtype = param_ck(m, i),
                                       .rank = from->n_dims,
                                       .data = mem + from->offset * store_size(m->dtype) };
                memcpy(p[i].dim, from->dim, sizeof from->dim);
        }
        return p;
}

static int import(const Plan *plan, Manifest *m, const WeightMap *map, const Checkpoint *ck,
                  char *mem, const Progress *talk, Err *e)
{
        WeightParam *p = in_section(m, mem);
        Place *place = p ? param_places(plan, p, m->n_params) : NULL;
        WeightReport report = { 0 };
        WeightSet set = { .n = m->n_params, .param = p, .left_over = PASS_OVER };
        int code = p ? weight_map_import(map, ck, &set, &report, e)
                     : err_set(e, TGC_NO_MEMORY, "%s: no memory", checkpoint_path(ck));
        if (!code)
                say_absent(talk, checkpoint_path(ck), &report);
        weight_report_free(&report);
        free(place);
        free(p);
        return code;
}

static int import_from(Plan *p, Manifest *m, const char *path, void **mem, const Progress *talk,
                       Err *e)
{
        Checkpoint *ck = NULL;
        WeightMap *map = NULL, *names = NULL;
        size_t size = 0;
        int code = arena_size(p, m, &size, e);
        if (!code)
                code = checkpoint_open(&ck, path, e);
        if (!code && !(code = plan_weight_map(p, ck, &map, &names, e))) {
                *mem = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
                if (!*mem)
                        code = err_set(e, TGC_NO_MEMORY, "%s: no memory for %.3f GB of weights",
                                       path, (double)size / 1e9);
                else
                        memset(*mem, 0, size);
        }
        if (!code)
                code = import(p, m, map, ck, *mem, talk, e);
        if (!code)
                code = plan_add(p, "weights", *mem, size, e);
        if (code) {
                free(*mem);
                *mem = NULL;
        }
        weight_map_free(map);
        weight_map_free(names);
        checkpoint_close(ck);
        return code;
}

int weights_import(Plan *p, const char *path, void **mem, const Progress *talk, Err *e)
{
        const Section *s = plan_find(p, "manifest");
        Manifest m;
        int code = s ? manifest_parse(&m, s->data, s->size, e)
                     : err_set(e, TGC_BAD_FILE,
                               "the plan has no manifest: compile the model again");
        *mem = NULL;
        if (code)
                return code;
        /* A folder that training left: its checkpoint has a name of its own. */
        char *trained = NULL;
        if (file_is_dir(path))
                code = run_file(path, "ckpt.safetensors", &trained, e);
        if (!code)
                code = import_from(p, &m, trained && file_exists(trained) ? trained : path, mem,
                                   talk, e);
        free(trained);
        manifest_free(&m);
        return code;
}

int weights_export(const Plan *p, const char *path, const char *dtype, uint64_t shard, int *n_files,
                   Err *e)
{
        static const StMeta meta[] = { { "format", "pt" } };
        const Section *s = plan_find(p, "manifest"), *w = plan_find(p, "weights");
        WeightMap *map = NULL;
        Manifest m;
        int code = s && w ? manifest_parse(&m, s->data, s->size, e)
                          : err_set(e, TGC_USAGE,
                                    "the plan has no weights: compile it with --weights");
        if (code)
                return code;
        char *text = manifest_map(p);
        WeightParam *param = in_section(&m, (char *)w->data); /* export does not write there */
        WeightSet set = { .n = m.n_params, .param = param };
        if (!text || !param)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        else if (w->size < m.n_all * store_size(m.dtype))
                code = err_set(e, TGC_BAD_FILE,
                               "section weights has %zu bytes, the parameters need %llu", w->size,
                               (unsigned long long)(m.n_all * store_size(m.dtype)));
        else if (!(code = weight_map_parse(&map, text, "manifest", e))) {
                const int dt = ck_dtype_find(dtype ? dtype : store_name(m.dtype));
                code = shard ? weight_map_export_folder(map, &set, dt, path, shard, meta, 1,
                                                        n_files, e)
                             : weight_map_export(map, &set, dt, path, meta, 1, e);
        }
        weight_map_free(map);
        free(param);
        free(text);
        manifest_free(&m);
        return code;
}
