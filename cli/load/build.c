/* build.c: compiles a model file into the sections of a plan.  Includes the compiler's headers. */
#include <stdlib.h>
#include <string.h>
#include "../../compiler/compiler.h"
#include "../../runtime/weights/checkpoint.h"
#include "../../runtime/util/file.h"
#include "load.h"
#include "keep_blocks.h"
#include "lora.h"
#include "../check/quick_check.h"
#include "../train/select_params.h"

/* What must be freed however the work ends. */
typedef struct Build {
        Model *model;
        Compiled made;
        char *config; /* JSON text */
        const char **define;
        Text graph, json, dot, source, sums;
        Text said; /* by the model as it was read last */
        bool said_more;
} Build;

static DType dtype_of(const char *name)
{
        for (DType t = DT_F32; t < N_DT; t++)
                if (!strcmp(name, dt_name[t]))
                        return t;
        return DT_F32;
}

static int llama2c_json(const char *path, char **json, Err *e)
{
        Llama2cConfig c;
        int code = llama2c_config(path, &c, e);
        if (code)
                return code;
        *json = malloc(512);
        if (!*json)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        snprintf(*json, 512,
                 "{\"model_type\":\"llama2c\",\"dim\":%d,\"hidden_dim\":%d,\"n_layers\":%d,"
                 "\"n_heads\":%d,\"n_kv_heads\":%d,\"vocab_size\":%d,\"seq_len\":%d,\"shared\":%s}",
                 c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.seq_len,
                 c.shared ? "true" : "false");
        return TGC_OK;
}

static bool has_config(const BuildOptions *o)
{
        return o->kind == MODEL_HF || o->kind == MODEL_LLAMA2C || o->kind == MODEL_GGUF;
}

static bool is_json(const char *path)
{
        const size_t n = path ? strlen(path) : 0;
        return n > 5 && !strcmp(path + n - 5, ".json");
}

/* A message about a graph has the line of its Lua.  If that is ours, the user's folder or file
 * stands before it; the user's own Lua begins the message, as editors want it. */
static int graph_failed(const BuildOptions *o, const Diag *d, Err *e)
{
        const int code = d->code ? d->code : TGC_BAD_FILE;
        const char *own = o->choices_name; /* a file that has its own lines */
        const bool names = own && !strncmp(d->msg, own, strlen(own));
        if (o->own && has_config(o) && !is_json(o->own) && code != TGC_NO_MEMORY)
                return err_set(e, code, "%s (for %s)", d->msg, o->model);
        return has_config(o) && !o->own && !names && code != TGC_NO_MEMORY
                       ? err_set(e, code, "%s: %s", o->model, d->msg)
                       : err_set(e, code, "%s", d->msg);
}

/* A model of ours names its own line; what is wrong is in the user's file. */
static int read_failed(const BuildOptions *o, const Diag *d, Err *e)
{
        static const char word[] = "error: ";
        const char *msg = strncmp(d->msg, word, sizeof word - 1) ? d->msg
                                                                 : d->msg + sizeof word - 1;
        int code = d->code ? d->code : TGC_BAD_FILE;
        if (!has_config(o) || (o->own && strncmp(msg, "config.json:", 12)))
                return graph_failed(o, d, e);
        if (!strncmp(msg, "config.json:", 12) && o->kind == MODEL_GGUF) { /* made of metadata */
                const char *at = strstr(msg, ": ");
                return err_set(e, code, "%s: its metadata, as a config.json%s", o->model,
                               at ? at : msg);
        }
        if (!strncmp(msg, "config.json:", 12)) /* and perhaps the line there */
                return err_set(e, code, "%s%s%s", o->model, o->kind == MODEL_HF ? "/" : ": ", msg);
        return err_set(e, code, "%s%s: %s", o->model, o->kind == MODEL_HF ? "/config.json" : "",
                       msg);
}

static void keep_said(void *to, const char *text, size_t n, bool more)
{
        Build *b = to;
        text_put(&b->said, text, n);
        b->said_more = more;
}

static void show_said(const Build *b)
{
        put_plain(stderr, b->said.s, b->said.n);
        if (b->said_more)
                fprintf(stderr, "%s... the model prints more than can be shown\n",
                        b->said.s[b->said.n - 1] == '\n' ? "" : "\n");
}

/* One attempt to read; -D values are o's and `extra`, which may be NULL. */
static int read_once(Build *b, const BuildOptions *o, const char *extra, Err *e)
{
        Diag d = { 0 };
        int n = 0;
        for (; n < o->n_define; n++)
                b->define[n] = o->define[n];
        if (extra)
                b->define[n++] = extra;
        ReadOptions r = { .define = b->define,
                          .n_define = n,
                          .seconds = o->lua_seconds,
                          .said = keep_said,
                          .said_to = b };
        const char *family = o->kind == MODEL_LLAMA2C ? "llama2c" : NULL;
        text_free(&b->said);
        b->said_more = false;
        model_free(b->model);
        b->model = NULL;
        if (!DIAG_CATCH(&d))
                return read_failed(o, &d, e);
        switch (o->kind) {
        case MODEL_LUA: b->model = read_lua(o->model, &r); break;
        case MODEL_JSON: b->model = read_json(o->model); break;
        default:
                b->model = is_json(o->own) ? read_json(o->own)
                           : o->own        ? read_lua_config(o->own, family, b->config, &r)
                                           : read_lua_family(family, b->config, &r);
        }
        diag_end(&d);
        return TGC_OK;
}

static bool defines_vocab(const BuildOptions *o)
{
        for (int i = 0; i < o->n_define; i++)
                if (!strncmp(o->define[i], "vocab", 5))
                        return true;
        return false;
}

/* Models call it one or the other; one that has neither keeps its own. */
static int fit_vocab(Build *b, const BuildOptions *o, Err *e)
{
        static const char *const name[] = { "vocab_size", "vocab" };
        char extra[64];
        for (int i = 0; i < 2; i++) {
                Err why;
                snprintf(extra, sizeof extra, "%s=%d", name[i], o->vocab);
                int code = read_once(b, o, extra, &why);
                if (code == TGC_NO_MEMORY)
                        *e = why;
                if (!code || code == TGC_NO_MEMORY)
                        return code;
        }
        return read_once(b, o, NULL, e);
}

static int read_model(Build *b, const BuildOptions *o, Err *e)
{
        int code = TGC_OK;
        b->define = calloc((size_t)o->n_define + 1, sizeof *b->define);
        if (!b->define)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", o->model);
        if (o->kind == MODEL_HF)
                code = hf_config_read(o->model, &b->config, e);
        else if (o->kind == MODEL_LLAMA2C)
                code = llama2c_json(o->model, &b->config, e);
        else if (o->kind == MODEL_GGUF && !(b->config = strdup(o->config)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", o->model);
        if (code || (code = read_once(b, o, NULL, e)))
                return code;
        if ((o->kind == MODEL_JSON || is_json(o->own)) && o->n_define)
                return err_set(e, TGC_USAGE,
                               "%s: a JSON graph has no parameters, so -D %s has no effect",
                               o->own ? o->own : o->model, o->define[0]);
        if (o->vocab && o->kind == MODEL_LUA && b->model->vocab != o->vocab && !defines_vocab(o))
                code = fit_vocab(b, o, e);
        if (!code && o->vocab > b->model->vocab)
                code = err_set(e, TGC_BAD_FILE,
                               "%s: the model's vocabulary is %lld, the tokenizer's is "
                               "%d",
                               o->model, (long long)b->model->vocab, o->vocab);
        if (!code && o->documents && *o->documents >= b->model->vocab)
                code = err_set(e, TGC_USAGE, "--documents %d: the vocabulary has %lld",
                               *o->documents, (long long)b->model->vocab);
        return code;
}

/* For Graphviz: parameters are boxes, edges carry types. */
static void write_dot(const Graph *g, Text *out)
{
        char type[256];
        text_add(out, "digraph \"%s\" {\n  node [shape=ellipse fontname=monospace];\n", g->name);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                text_add(out, "  n%d [label=\"%s\\n%s\"%s];\n", r, n->name, op_info[n->op].text,
                         op_info[n->op].cls == CLASS_LEAF ? " shape=box" : "");
                for (int i = 0; i < n->n_in; i++)
                        text_add(out, "  n%d -> n%d [label=\"%s\"];\n", n->in[i], r,
                                 type_text(&NODE(g, n->in[i])->type, type));
        }
        for (int i = 0; i < g->n_out; i++)
                text_add(out, "  out%d [label=\"%s\" shape=box style=bold];\n  n%d -> out%d;\n", i,
                         g->out[i].name, g->out[i].ref, i);
        text_add(out, "}\n");
}

bool model_is_ours(ModelKind kind, const char *path)
{
        char *text;
        size_t n;
        bool ours = false;
        if (kind != MODEL_LUA && kind != MODEL_JSON)
                return true;
        if (kind == MODEL_JSON || file_read_text(path, 4 << 20, &text, &n, &(Err) { 0 }))
                return kind == MODEL_LUA && !file_exists(path); /* the name of one inside tgc */
        for (const ModelFile *f = model_files; f->name && !ours; f++)
                ours = f->n == n && !memcmp(f->text, text, n);
        free(text);
        return ours;
}

bool model_is_within(const char *name)
{
        for (const ModelFile *f = model_files; f->name; f++) {
                const size_t n = strlen(name);
                if (!strncmp(f->name, name, n) && (!f->name[n] || !strcmp(f->name + n, ".lua")))
                        return true;
        }
        return false;
}

bool model_is_ours_by(const char *name, const char *text)
{
        for (const ModelFile *f = model_files; f->name; f++)
                if (!strcmp(f->name, name) && f->n == strlen(text) && !memcmp(f->text, text, f->n))
                        return true;
        return false;
}

/* Can the model generate text?  If not, `why` says it. */
static int generates(const Model *m, bool *can, Err *why, Err *e)
{
        Diag d = { 0 };
        *can = false;
        if (!DIAG_CATCH(&d))
                return d.code == TGC_NO_MEMORY ? err_set(e, d.code, "%s", d.msg)
                                               : (err_set(why, TGC_BAD_FILE, "%s", d.msg), TGC_OK);
        check_token_axis(m);
        diag_end(&d);
        *can = true;
        return TGC_OK;
}

static int apply_objective(Build *b, const BuildOptions *o, Err *e)
{
        Diag d = { 0 };
        const ReadOptions how = { .seconds = o->lua_seconds,
                                  .said = o->reference ? NULL : keep_said,
                                  .said_to = b };
        if (!DIAG_CATCH(&d))
                return graph_failed(o, &d, e);
        objective_apply(b->model, o->objective, &how);
        diag_end(&d);
        if (b->said.n && !o->quiet)
                show_said(b);
        return TGC_OK;
}

static int window_of(const Model *m, const BuildOptions *o)
{
        const int64_t ctx = o->ctx ? o->ctx : m->ctx;
        return o->block_at_most && o->block > ctx ? (int)ctx : o->block;
}

static int run_compiler(Build *b, const BuildOptions *o, Err *e)
{
        Diag d = { 0 };
        int code;
        if (o->tf32 && dtype_of(o->dtype) != DT_F32)
                return err_set(
                        e, TGC_USAGE,
                        "--tf32 is for --dtype f32, and --dtype is %s: leave one of them out",
                        o->dtype);
        const DType cache = o->cache ? dtype_of(o->cache) : DT_F32;
        CompileOptions c = { .dtype = dtype_of(o->dtype),
                             .cache = o->cache ? &cache : NULL,
                             .opt = o->opt,
                             .infer = o->mode & BUILD_INFER,
                             .train = o->mode & BUILD_TRAIN && !o->reference,
                             .has_params = o->kind == MODEL_LUA,
                             .batch = o->batch,
                             .ctx = o->ctx,
                             .ctx_at_least = o->ctx_at_least,
                             .cache_tokens = o->cache_tokens,
                             .chunk = o->chunk,
                             .block = window_of(b->model, o),
                             .sequences = o->sequences,
                             .reference = o->reference,
                             .cuda = o->cuda,
                             .cpu = o->cpu,
                             .recompute = (Recompute)o->recompute,
                             .optimizer = o->optimizer,
                             .masters = o->masters,
                             .ema = o->ema && o->mode & BUILD_TRAIN && !o->reference,
                             .offload = o->offload,
                             .act_int8 = o->act_int8,
                             .act_fp8 = o->act_fp8,
                             .sums = o->sums,
                             .tf32 = o->tf32,
                             .fast = o->fast,
                             .print_after = o->print_after,
                             .time_passes = o->time_passes,
                             .choices = o->choices,
                             .choices_name = o->choices_name };
        if (o->no_infer && b->model->width) /* no mode was asked for */
                c.infer = true, c.train = false;
        if (o->no_infer && c.infer && c.train &&
            (code = generates(b->model, &c.infer, o->no_infer, e)))
                return code;
        if (c.infer && !o->quiet && o->ctx > b->model->ctx && o->kind != MODEL_LUA &&
            o->kind != MODEL_JSON)
                fprintf(stderr,
                        "%s: warning: --ctx-size %d: the model was trained with %lld tokens, and "
                        "what it says after these may be worth nothing\n",
                        o->model, o->ctx, (long long)b->model->ctx);
        if (!c.batch)
                c.batch = c.train ? 8 : 1;
        if (o->objective && (code = apply_objective(b, o, e)))
                return code;
        int *const columns = o->act_fp8 ? &c.act_fp8 : NULL;
        if ((o->keep && (code = keep_blocks(b->model, o->keep, columns, e))) ||
            (o->mixture && (code = keep_mixture(b->model, o->mixture, columns, e))) ||
            (code = adapters_add(b->model, o, e)) || (code = select_params(b->model, o, e)))
                return code;
        if (!DIAG_CATCH(&d))
                return graph_failed(o, &d, e);
        if (o->documents)
                split_documents(b->model, *o->documents);
        if (o->sums) {
                input_sums(b->model, &b->sums);
                model_map_text(b->model, &b->sums);
        }
        graph_print(b->model->graph, &b->graph, 0);
        write_json(b->model, &b->json);
        write_dot(b->model->graph, &b->dot);
        write_source(b->model, &b->source);
        compile(b->model, &c, &b->made);
        diag_end(&d);
        if (o->check && !b->model->width &&
            (code = quick_check(b->model, &c, &b->made.ir, c.infer, c.train, o->check, CHECK_SAYS,
                                e)))
                return code;
        if (o->fast && b->model->width)
                return err_set(e, TGC_USAGE,
                               "--fast has no effect: it is about sequences that decode, and an "
                               "encoder has none");
        if (b->made.n_choices && !b->made.n_chosen)
                return err_set(
                        e, TGC_USAGE,
                        "%s: none of its %d choices fits a GEMM of this model; choices hold for "
                        "one model, --dtype, --batch-size and --block-size",
                        o->choices_name, b->made.n_choices);
        return TGC_OK;
}

static int add_sections(Plan *p, const Build *b, Err *e)
{
        const Compiled *c = &b->made;
        const struct {
                const char *name;
                const void *data;
                size_t n;
        } s[] = { { "manifest", c->manifest.s, c->manifest.n },
                  { "program.cuda", c->program[0].s, c->program[0].n },
                  { "program.cpu", c->program[1].s, c->program[1].n },
                  { "source.cuda", c->source[0].s, c->source[0].n },
                  { "source.cpu", c->source[1].s, c->source[1].n },
                  { "ir", c->ir.s, c->ir.n },
                  { "fused", c->fused.s, c->fused.n },
                  { "why", c->why.s, c->why.n },
                  { "memory", c->memory.s, c->memory.n },
                  { "dot", b->dot.s, b->dot.n },
                  { "model", b->source.s, b->source.n },
                  { "graph", b->graph.s, b->graph.n },
                  { "graph.json", b->json.s, b->json.n },
                  { "sums", b->sums.s, b->sums.n },
                  { "consts", c->consts.s, c->consts.n },
                  { "products", c->products.s, c->products.n },
                  { "launches", c->launches.s, c->launches.n },
                  { "choices", c->choices.s, b->made.n_chosen ? c->choices.n : 0 } };
        int code = TGC_OK;
        for (size_t i = 0; i < sizeof s / sizeof *s && !code; i++)
                if (s[i].n)
                        code = plan_add(p, s[i].name, s[i].data, s[i].n, e);
        return code;
}

static void build_free(Build *b)
{
        compiled_free(&b->made);
        model_free(b->model);
        text_free(&b->graph);
        text_free(&b->json);
        text_free(&b->dot);
        text_free(&b->source);
        text_free(&b->sums);
        text_free(&b->said);
        free(b->define);
        free(b->config);
}

int build_plan(Plan *p, const BuildOptions *o, Err *e)
{
        Build b = { 0 };
        int code = read_model(&b, o, e);
        if (b.said.n && !o->quiet)
                show_said(&b);
        text_free(&b.said);
        if (!code)
                code = run_compiler(&b, o, e);
        if (b.made.passes.n)
                fwrite(b.made.passes.s, 1, b.made.passes.n, stdout);
        if (b.made.times.n)
                fwrite(b.made.times.s, 1, b.made.times.n, stderr);
        if (!code)
                code = add_sections(p, &b, e);
        build_free(&b);
        return code;
}

/* ---- again ---- */

/* "compiled dtype bf16 opt 3 ...", the second line of `products`. */
static int how_compiled(const Plan *p, BuildOptions *o, char dtype[8], Err *e)
{
        const Section *s = plan_find(p, "products");
        int infer, train, recompute, tf32 = 0;
        char head[256] = "";
        if (s)
                snprintf(head, sizeof head, "%.*s", (int)(s->size < 255 ? s->size : 255),
                         (const char *)s->data);
        const char *second = strchr(head, '\n');
        if (!second ||
            sscanf(head,
                   "tgc-products 1\n"
                   "compiled dtype %7s opt %d infer %d train %d batch %d ctx %d chunk %d block %d "
                   "recompute %d tf32 %d\n",
                   dtype, &o->opt, &infer, &train, &o->batch, &o->ctx, &o->chunk, &o->block,
                   &recompute, &tf32) < 9)
                return err_set(
                        e, TGC_BAD_FILE,
                        "the plan does not hold its compile options: compile the model again");
        const int most = 1 << 24;
        if (o->opt < 0 || o->opt > 3 || o->batch < 0 || o->batch > 256 || o->ctx < 0 ||
            recompute < 0 || recompute > RECOMPUTE_BLOCK || o->ctx > most || o->chunk < 0 ||
            o->chunk > most || o->block < 0 || o->block > most || !(infer || train))
                return err_set(e, TGC_BAD_FILE,
                               "the plan's compile options are out of range: compile the model "
                               "again");
        o->mode = (infer ? BUILD_INFER : 0) | (train ? BUILD_TRAIN : 0);
        o->recompute = recompute;
        o->tf32 = tf32;
        o->act_int8 = strstr(head, " act8 1") != NULL;
        const char *act = strstr(head, " act_fp8 ");
        if (act && (sscanf(act, " act_fp8 %d", &o->act_fp8) != 1 || o->act_fp8 < 0 ||
                    o->act_fp8 > 1 << 20))
                return err_set(e, TGC_BAD_FILE,
                               "the plan says act_fp8 %d, which is out of range: compile the model "
                               "again",
                               o->act_fp8);
        o->ema = strstr(head, " ema 1") != NULL;
        o->fast = strstr(head, " fast 1") != NULL;
        o->offload = strstr(head, " offload 1") != NULL;
        o->dtype = dtype;
        o->optimizer = OPTIMIZER_ADAMW;
        const char *line_end = strchr(second + 1, '\n'), *name = strstr(head, " optimizer ");
        char rule[16] = "";
        line_end = line_end ? line_end : head + strlen(head);
        if (name && name < line_end) {
                sscanf(name, " optimizer %15s", rule);
                o->optimizer = optimizer_find(rule);
        }
        const char *cache = strstr(head, " cache ");
        if (cache && cache < line_end) {
                char word[8] = "";
                sscanf(cache, " cache %7s", word);
                o->cache = dt_name[dtype_of(word)];
        }
        const char *masters = strstr(head, " masters ");
        if (masters && masters < line_end)
                o->masters = masters[9] == 's' ? MASTERS_STOCHASTIC : MASTERS_NONE;
        if (o->optimizer == N_OPTIMIZERS)
                return err_set(e, TGC_BAD_FILE,
                               "the plan was compiled for the optimiser '%s', which this tgc does "
                               "not have: compile the model again",
                               rule);
        return TGC_OK;
}

static int read_again(Build *b, const Plan *from, Err *e)
{
        const Section *s = plan_find(from, "graph.json");
        Diag d = { 0 };
        if (!s)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has no section graph.json: compile the model again");
        if (!(b->config = malloc(s->size + 1)))
                return err_set(e, TGC_NO_MEMORY, "no memory for the graph");
        memcpy(b->config, s->data, s->size);
        b->config[s->size] = 0;
        if (!DIAG_CATCH(&d))
                return err_set(e, d.code ? d.code : TGC_BAD_FILE, "%s", d.msg);
        b->model = read_json_text(b->config, s->size, "the plan's graph.json");
        diag_end(&d);
        return TGC_OK;
}

int plan_again(Plan *to, const Plan *from, const char *choices, Err *e)
{
        Build b = { 0 };
        char dtype[8];
        BuildOptions o = { .cuda = plan_find(from, "program.cuda"),
                           .cpu = plan_find(from, "program.cpu"),
                           .choices = choices,
                           .choices_name = "choices" };
        int code = how_compiled(from, &o, dtype, e);
        if (!code && !(code = read_again(&b, from, e)))
                code = run_compiler(&b, &o, e);
        for (int i = 0; i < from->n_sections && !code; i++) {
                const Section *s = &from->section[i];
                if (strncmp(s->name, "cubin.", 6) && strcmp(s->name, "choices") &&
                    strcmp(s->name, "why"))
                        code = plan_add(to, s->name, s->data, s->size, e);
        }
        if (!code)
                code = add_sections(to, &b, e);
        build_free(&b);
        return code;
}

/* ---- from data alone ---- */

int plan_rebuild(Plan *to, const Plan *from, Err *e)
{
        static const char *const data[] = { "tokenizer", "chat", "weights", "model", "embedding" };
        const Section *s = plan_find(from, "choices");
        Build b = { 0 };
        char dtype[8], *choices = s ? strndup(s->data, s->size) : NULL;
        BuildOptions o = { .cuda = plan_find(from, "program.cuda"),
                           .cpu = plan_find(from, "program.cpu"),
                           .choices = choices,
                           .choices_name = "the plan's choices" };
        int code = s && !choices ? err_set(e, TGC_NO_MEMORY, "no memory for the choices")
                                 : how_compiled(from, &o, dtype, e);
        if (!code && !(code = read_again(&b, from, e)))
                code = run_compiler(&b, &o, e);
        if (!code)
                code = add_sections(to, &b, e);
        for (size_t i = 0; i < sizeof data / sizeof *data && !code; i++)
                if ((s = plan_find(from, data[i])))
                        code = plan_add(to, data[i], s->data, s->size, e);
        for (int i = 0; i < from->n_sections && !code; i++)
                if (!strncmp(from->section[i].name, "file.", 5))
                        code = plan_add(to, from->section[i].name, from->section[i].data,
                                        from->section[i].size, e);
        if (!code)
                code = plan_add_headers(to, e);
        build_free(&b);
        free(choices);
        return code;
}
