/* gguf_write.c: implements gguf_write.h.  Calls the compiler, whose Lua makes the file's keys.
 *
 * The map of names is the one that a reader of the file would use (models/gguf.lua), run backwards:
 * the folder's tensors stand for parameters, and the file's tensors are exported from them. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../../compiler/compiler.h"
#include "../../runtime/chat/chat_source.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "../../runtime/weights/gguf_out.h"
#include "../../runtime/weights/packed.h"
#include "../../runtime/weights/weight_map.h"
#include "gguf_write.h"
#include "../quantize/mixtures.h"

#define KEY "tokenizer.ggml."

typedef struct Work {
        const GgufOf *of;
        const Args *a;
        const char *folder;
        int mixture, plain; /* of one of them: CK_*, or -1 */
        Imatrix *imatrix;
        Checkpoint *ck;
        cJSON *keys; /* write_gguf's */
        WeightMap *map;
        WeightParam *param;
        void *decoded; /* of a quantised tensor, while it is used */
        WeightExport *x;
        MixtureModel model;
        Tokenizer *own; /* the folder's */
        GgufKeys *out;
        CkTensor *tensor; /* those of x, then the extra ones */
        int n, n_extra, without;
} Work;

static void work_free(Work *w)
{
        weight_export_close(w->x);
        weight_map_free(w->map);
        checkpoint_close(w->ck);
        cJSON_Delete(w->keys);
        tokenizer_free(w->own);
        gguf_keys_free(w->out);
        free(w->param);
        free(w->decoded);
        free(w->tensor);
}

static int plain_type(const char *type)
{
        const int t = ck_dtype_find(type);
        return t == CK_F32 || t == CK_F16 || t == CK_BF16 ? t : -1;
}

bool is_gguf_type(const char *type) { return mixture_find(type) >= 0 || plain_type(type) >= 0; }

/* ---- what the folder says ---- */

static int folder_json(const char *folder, const Checkpoint *ck, Text *t, Err *e)
{
        char *config;
        const int code = hf_config_read(folder, &config, e);
        if (code)
                return code;
        text_add(t, "{\"config\": %s, \"tensors\": {", config);
        for (int i = 0; i < checkpoint_count(ck); i++) {
                const CkTensor *x = checkpoint_at(ck, i);
                text_add(t, "%s", i ? ", " : "");
                text_put(t, "\"", 1);
                for (const char *s = x->name; *s; s++) {
                        if (*s == '"' || *s == '\\')
                                text_put(t, "\\", 1);
                        text_put(t, s, 1);
                }
                text_add(t, "\": {\"shape\": [");
                for (int d = 0; d < x->rank; d++)
                        text_add(t, "%s%lld", d ? "," : "", (long long)x->dim[d]);
                text_add(t, "]}");
        }
        text_add(t, "}}");
        free(config);
        return TGC_OK;
}

/* What Lua makes of it. */
static int run_lua(const char *folder, const char *said, Text *keys, Text *names, Err *e)
{
        static const char word[] = "error: ";
        Diag d = { 0 };
        if (!DIAG_CATCH(&d)) {
                const bool is_word = !strncmp(d.msg, word, sizeof word - 1);
                return err_set(e, d.code ? d.code : TGC_BAD_FILE, "%s: %s", folder,
                               d.msg + (is_word ? sizeof word - 1 : 0));
        }
        write_gguf(said, keys, names);
        diag_end(&d);
        return TGC_OK;
}

static int ask_lua(const char *folder, const Checkpoint *ck, Text *keys, Text *names, Err *e)
{
        Text said = { 0 };
        int code = folder_json(folder, ck, &said, e);
        if (!code)
                code = run_lua(folder, said.s, keys, names, e);
        text_free(&said);
        return code;
}

int gguf_names_of_folder(const char *folder, char **map, Err *e)
{
        Checkpoint *ck;
        Text keys = { 0 }, names = { 0 };
        int code = checkpoint_open(&ck, folder, e);
        *map = NULL;
        if (code)
                return code;
        if (!(code = ask_lua(folder, ck, &keys, &names, e)) &&
            !(*map = strndup(names.n ? names.s : "", names.n)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", folder);
        text_free(&keys);
        text_free(&names);
        checkpoint_close(ck);
        return code;
}

static int read_folder(Work *w, Err *e)
{
        Text keys = { 0 }, names = { 0 };
        int code = checkpoint_open(&w->ck, w->folder, e);
        if (!code)
                code = ask_lua(w->folder, w->ck, &keys, &names, e);
        if (!code)
                code = json_parse(&w->keys, keys.s, keys.n, "keys", e);
        if (!code)
                code = weight_map_parse(&w->map, names.s, "names", e);
        if (!code)
                code = weight_map_twins(w->map, w->ck, e);
        text_free(&keys);
        text_free(&names);
        return code;
}

static int64_t size_of(const Work *w, const char *name)
{
        const cJSON *sizes = cJSON_GetObjectItemCaseSensitive(w->keys, "sizes"),
                    *v = cJSON_GetObjectItemCaseSensitive(sizes, name);
        return cJSON_IsNumber(v) ? (int64_t)v->valuedouble : cJSON_IsTrue(v);
}

/* ---- tensors ---- */

/* Weights lie in mapped files, or are decoded one at a time. */
static int begin(void *ctx, int i, void **data, Err *e)
{
        Work *w = ctx;
        const CkTensor *t = checkpoint_at(w->ck, i);
        if (!t->packed) {
                *data = (void *)(uintptr_t)t->data;
                return TGC_OK;
        }
        w->decoded = malloc(t->bytes + 1);
        if (!w->decoded)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %.200s", w->folder, t->name);
        *data = w->decoded;
        return ck_unpack(t, w->decoded, e);
}

static int end(void *ctx, int i, bool ok, Err *e)
{
        Work *w = ctx;
        (void)i, (void)ok, (void)e;
        free(w->decoded);
        w->decoded = NULL;
        return TGC_OK;
}

/* llama.cpp's converter keeps in float32 what is no matrix, and what routes. */
static int type_of_tensor(const Work *w, const CkTensor *t)
{
        const int64_t cols = t->rank ? t->dim[t->rank - 1] : 1;
        const int q8 = mixture_type_of(mixture_find("q8_0"), &w->model, t->name, t->rank, 32);
        if (q8 < 0)
                return CK_F32;
        return w->plain >= 0 ? w->plain
                             : mixture_type_of(w->mixture, &w->model, t->name, t->rank, cols);
}

static int plan_tensors(Work *w, WeightSet *set, Err *e)
{
        const int n = checkpoint_count(w->ck);
        const cJSON *extra = cJSON_GetObjectItemCaseSensitive(w->keys, "extra"), *c;
        w->param = calloc((size_t)n + 1, sizeof *w->param);
        if (!w->param)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->folder);
        for (int i = 0; i < n; i++) {
                const CkTensor *t = checkpoint_at(w->ck, i);
                w->param[i] = (WeightParam) { .name = t->name, .dtype = t->dtype, .rank = t->rank };
                memcpy(w->param[i].dim, t->dim, sizeof t->dim);
        }
        *set = (WeightSet) { .n = n, .param = w->param, .ctx = w, .begin = begin, .end = end };
        int code = weight_export_open(&w->x, w->map, set, CK_F32, e);
        if (code)
                return code;
        w->n = weight_export_count(w->x);
        w->n_extra = cJSON_GetArraySize(extra);
        w->tensor = calloc((size_t)(w->n + w->n_extra) + 1, sizeof *w->tensor);
        if (!w->tensor)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->folder);
        w->model = (MixtureModel) {
                .n_layers = size_of(w, "n_layers"),
                .experts = size_of(w, "experts"),
                .grouped = size_of(w, "kv_heads") &&
                           size_of(w, "heads") / size_of(w, "kv_heads") >= 4,
                .tied = size_of(w, "tied") != 0,
        };
        for (int i = 0; i < w->n; i++)
                w->tensor[i] = *weight_export_tensor(w->x, i);
        if (w->a->cmd == CMD_QUANTIZE && (code = check_patterns(w->a, w->tensor, w->n, e)))
                return code;
        for (int i = 0; i < w->n; i++) {
                CkTensor *t = &w->tensor[i];
                int64_t count;
                const int kept = w->a->cmd == CMD_QUANTIZE ? kept_type(w->a, t, e) : -1;
                if (kept == -2)
                        return TGC_USAGE;
                t->dtype = kept >= 0 ? kept : type_of_tensor(w, t);
                ck_count(t->rank, t->dim, &count);
                t->bytes = (size_t)(count / ck_block_values(t->dtype)) * ck_block_bytes(t->dtype);
        }
        if ((code = check_importance(w->a, w->imatrix, w->tensor, w->n, e)))
                return code;
        int k = w->n;
        cJSON_ArrayForEach(c, extra)
        {
                const int count = cJSON_GetArraySize(c);
                w->tensor[k++] = (CkTensor) { .name = c->string,
                                              .dtype = CK_F32,
                                              .rank = 1,
                                              .dim = { count },
                                              .bytes = (size_t)count * sizeof(float) };
        }
        return TGC_OK;
}

static int write_tensor(Work *w, GgufOut *o, int i, Err *e)
{
        const CkTensor *from = weight_export_tensor(w->x, i), *to = &w->tensor[i];
        const size_t n = from->bytes / sizeof(float);
        float *v = malloc(from->bytes + 1);
        void *mem = malloc(to->bytes + 1);
        int code = v && mem ? weight_export_make(w->x, i, v, e)
                            : err_set(e, TGC_NO_MEMORY, "%s: no memory for %.200s", w->folder,
                                      to->name);
        if (!code && ck_block_values(to->dtype) > 1)
                code = encode_tensor(w->folder, w->imatrix, to, mem, v, (int64_t)n, &w->without, e);
        else if (!code)
                ck_convert(mem, to->dtype, v, CK_F32, n, 1);
        if (!code)
                code = gguf_out_write(o, mem, to->bytes, e);
        free(v);
        free(mem);
        return code;
}

static int write_extra(Work *w, GgufOut *o, Err *e)
{
        const cJSON *extra = cJSON_GetObjectItemCaseSensitive(w->keys, "extra"), *c, *v;
        int code = TGC_OK;
        cJSON_ArrayForEach(c, extra)
        {
                float *f = malloc((size_t)cJSON_GetArraySize(c) * sizeof *f + 1);
                int n = 0;
                if (!f)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->folder);
                cJSON_ArrayForEach(v, c) f[n++] = (float)v->valuedouble;
                if (!code)
                        code = gguf_out_write(o, f, (size_t)n * sizeof *f, e);
                free(f);
        }
        return code;
}

/* ---- keys ---- */

static void put_text(GgufKeys *k, const char *name, const char *s)
{
        gguf_put_text(k, name, s, strlen(s));
}

/* The last part of a path. */
static void put_name(Work *w)
{
        if (w->of->name) {
                put_text(w->out, "general.name", w->of->name);
                return;
        }
        const char *end = w->folder + strlen(w->folder), *at;
        while (end > w->folder && end[-1] == '/')
                end--;
        for (at = end; at > w->folder && at[-1] != '/'; at--)
                ;
        gguf_put_text(w->out, "general.name", at, (size_t)(end - at));
}

static void put_bools(GgufKeys *k, const char *name, const cJSON *list)
{
        const cJSON *c;
        gguf_put_array(k, name, GGUF_BOOL, (uint64_t)cJSON_GetArraySize(list));
        cJSON_ArrayForEach(c, list)
        {
                const uint8_t yes = cJSON_IsTrue(c);
                gguf_put_item(k, &yes, 1);
        }
}

static void put_model(Work *w)
{
        const cJSON *keys = cJSON_GetObjectItemCaseSensitive(w->keys, "keys"), *c;
        const char *first = cJSON_GetStringValue(
                cJSON_GetArrayItem(cJSON_GetArrayItem(keys, 0), 0));
        gguf_put_text(w->out, "general.architecture", first, strcspn(first, "."));
        put_text(w->out, "general.type", "model");
        put_name(w);
        cJSON_ArrayForEach(c, keys)
        {
                const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(c, 0)),
                           *kind = cJSON_GetStringValue(cJSON_GetArrayItem(c, 1));
                const cJSON *v = cJSON_GetArrayItem(c, 2);
                if (!strcmp(kind, "u32"))
                        gguf_put_u32(w->out, name, (uint32_t)v->valuedouble);
                else if (!strcmp(kind, "f32"))
                        gguf_put_f32(w->out, name, (float)v->valuedouble);
                else if (!strcmp(kind, "bool"))
                        gguf_put_bool(w->out, name, cJSON_IsTrue(v));
                else if (!strcmp(kind, "bools"))
                        put_bools(w->out, name, v);
                else
                        put_text(w->out, name, v->valuestring);
        }
        const int plain = w->plain == CK_F32 ? 0 : w->plain == CK_F16 ? 1 : 32;
        gguf_put_u32(w->out, "general.file_type",
                     (uint32_t)(w->plain >= 0 ? plain : mixture_file_type(w->mixture)));
        gguf_put_u32(w->out, "general.quantization_version", 2);
}

static void put_texts(GgufKeys *k, const char *name, const TokText *s, int n)
{
        gguf_put_array(k, name, GGUF_STRING, (uint64_t)n);
        for (int i = 0; i < n; i++)
                gguf_put_text_item(k, s[i].p, s[i].n);
}

static void put_id(GgufKeys *k, const char *name, int id)
{
        if (id >= 0)
                gguf_put_u32(k, name, (uint32_t)id);
}

static int put_tokenizer(Work *w, const Tokenizer *tok, int vocab, Err *e)
{
        static const char *const ends[] = { KEY "eos_token_id", KEY "eot_token_id",
                                            KEY "eom_token_id" };
        GgufKeys *k = w->out;
        TokParts p;
        void *owned;
        Err why;
        int code = tok_to_parts(tok, vocab, &p, &owned, &why);
        if (code)
                return err_set(e, code, "%s: %s", w->folder, why.msg);
        put_text(k, KEY "model", p.model);
        put_text(k, KEY "pre", p.pre);
        put_texts(k, KEY "tokens", p.piece, p.n_piece);
        if (p.score) {
                gguf_put_array(k, KEY "scores", GGUF_F32, (uint64_t)p.n_piece);
                gguf_put_item(k, p.score, (size_t)p.n_piece * sizeof *p.score);
        }
        gguf_put_array(k, KEY "token_type", GGUF_I32, (uint64_t)p.n_piece);
        for (int i = 0; i < p.n_piece; i++) {
                const int32_t kind = p.kind[i];
                gguf_put_item(k, &kind, sizeof kind);
        }
        if (p.n_merge)
                put_texts(k, KEY "merges", p.merge, p.n_merge);
        put_id(k, KEY "bos_token_id", p.bos);
        for (int i = 0; i < p.n_eos && i < 3; i++)
                put_id(k, ends[i], p.eos[i]);
        put_id(k, KEY "unknown_token_id", p.unk);
        gguf_put_bool(k, KEY "add_bos_token", p.add_bos > 0);
        gguf_put_bool(k, KEY "add_eos_token", p.add_eos > 0);
        if (p.add_space_prefix >= 0)
                gguf_put_bool(k, KEY "add_space_prefix", p.add_space_prefix);
        free(owned);
        return TGC_OK;
}

static void put_templates(Work *w, const ChatSource *s)
{
        static const char head[] = "tokenizer.chat_template";
        int named = 0;
        for (int i = 0; i < s->n_templates; i++) {
                char key[200];
                const bool plain = !strcmp(s->template[i].name, "default");
                snprintf(key, sizeof key, "%s%s%.100s", head, plain ? "" : ".",
                         plain ? "" : s->template[i].name);
                put_text(w->out, key, s->template[i].text);
                named += !plain;
        }
        if (!named)
                return;
        gguf_put_array(w->out, "tokenizer.chat_templates", GGUF_STRING, (uint64_t)named);
        for (int i = 0; i < s->n_templates; i++)
                if (strcmp(s->template[i].name, "default"))
                        gguf_put_text_item(w->out, s->template[i].name,
                                           strlen(s->template[i].name));
}

static int put_chat(Work *w, Err *e)
{
        ChatSource s = { 0 };
        const int code = w->of->chat ? TGC_OK : chat_source_folder(&s, w->folder, e);
        if (!code)
                put_templates(w, w->of->chat ? w->of->chat : &s);
        chat_source_free(&s);
        return code;
}

static int put_keys(Work *w, Err *e)
{
        int64_t vocab = 0;
        for (int i = 0; i < w->n; i++)
                if (!strcmp(w->tensor[i].name, "token_embd.weight"))
                        vocab = w->tensor[i].dim[0];
        if (!(w->out = gguf_keys_new()))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->folder);
        put_model(w);
        int code = w->of->tok ? TGC_OK
                              : tokenizer_for(&w->own, NULL, w->folder, MODEL_HF, (int)vocab, e);
        const Tokenizer *tok = w->of->tok ? w->of->tok : w->own;
        if (!code && tok)
                code = put_tokenizer(w, tok, (int)vocab, e);
        return code || !tok ? code : put_chat(w, e);
}

/* ---- all of it ---- */

static int write_all(Work *w, const char *path, Err *e)
{
        Progress talk = progress_new(w->a);
        GgufOut *o;
        int code = gguf_out_open(&o, path, NULL, w->out, w->tensor, w->n + w->n_extra, e);
        if (code)
                return code;
        for (int i = 0; i < w->n && !code; i++) {
                progress_bar(&talk, (double)i / w->n, "%d of %d tensors", i, w->n);
                code = write_tensor(w, o, i, e);
        }
        if (!code)
                code = write_extra(w, o, e);
        progress_bar_end(&talk);
        if (code) {
                gguf_out_abort(o);
                return code;
        }
        return gguf_out_commit(o, e);
}

int gguf_of_folder(const GgufOf *of, const char *path, Err *e)
{
        Work w = { .of = of,
                   .a = of->a,
                   .folder = of->folder,
                   .mixture = mixture_find(of->type),
                   .plain = plain_type(of->type),
                   .imatrix = of->imatrix };
        WeightSet set;
        int code = read_folder(&w, e);
        if (!code && !(code = plan_tensors(&w, &set, e)) && !(code = put_keys(&w, e)))
                code = write_all(&w, path, e);
        if (!code)
                say_tensors(of->a, path, w.tensor, w.n + w.n_extra, w.without);
        work_free(&w);
        return code;
}
