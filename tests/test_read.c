/* test_read.c: models from Lua and JSON, the block library, the weight maps.
 *
 * tests/read/NAME.lua fail where a line says `-- error: TEXT`: the message must be
 * NAME.lua:LINE: error: ... TEXT.  Numbers are checked with the double-precision
 * evaluator against logits and losses that transformers and PyTorch computed. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "../compiler/compiler.h"
#include "../runtime/checkpoint.h"
#include "../runtime/file.h"
#include "../runtime/json.h"
#include "../runtime/npy.h"
#include "../runtime/weight_map.h"
#include "test.h"

#define DATA "../shared/data/"
#define NEED_DATA() do { if (!file_is_dir(DATA)) SKIP("no " DATA); } while (0)

static Err err;

/* Helpers ----------------------------------------------------------------- */

typedef struct Defines { const char *d[16]; } Defines;

static ReadOptions options(const Defines *d)
{
        ReadOptions o = { .models_dir = "models" };
        while (d && d->d[o.n_define])
                o.n_define++;
        o.define = d ? d->d : NULL;
        return o;
}

/* NULL on error, whose message goes to msg. */
static Model *try_lua(const char *path, const Defines *defines, char msg[2048], int *code)
{
        ReadOptions o = options(defines);
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_lua(path, &o);
                diag_end(&d);
        } else {
                snprintf(msg, 2048, "%s", d.msg);
                if (code)
                        *code = d.code;
        }
        return m;
}

static Model *lua(const char *path, const Defines *defines)
{
        char msg[2048];
        Model *m = try_lua(path, defines, msg, NULL);
        CHECK_MSG(m, "%s", msg);
        return m;
}

static Model *family(const char *name, const char *config, const Defines *defines)
{
        ReadOptions o = options(defines);
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_lua_family(name, config, &o);
                diag_end(&d);
        }
        CHECK_MSG(m, "%s", d.msg);
        return m;
}

static char *slurp(const char *path)
{
        char *text = NULL;
        size_t n;
        CHECK_MSG(!file_read_text(path, 64 << 20, &text, &n, &err), "%s", err.msg);
        return text;
}

static Model *from_json(const char *text, char msg[2048])
{
        char path[300];
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-read-%ld.json", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "w");
        CHECK(f && fputs(text, f) >= 0 && !fclose(f));
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_json(path);
                diag_end(&d);
        } else {
                char *colon = strstr(d.msg, ".json");
                snprintf(msg, 2048, "%s", colon ? colon + 5 : d.msg);
        }
        unlink(path);
        return m;
}

static Model *read_embedded(const char *name)
{
        ReadOptions o = { 0 };
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_lua(name, &o);
                diag_end(&d);
        }
        CHECK_MSG(m, "%s", d.msg);
        return m;
}

static int64_t n_params(const Model *m)
{
        int64_t n = 0;
        for (Ref r = 1; r < m->graph->n_nodes; r++)
                if (m->graph->node[r].op == OP_PARAM)
                        n += type_elems(&m->graph->node[r].type).n;
        return n;
}

/* Every model of models/ at its own size and at a tiny one --------------------- */

static const struct { const char *path; Defines tiny; int64_t count; } all[] = {
        { "models/gpt.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "dropout=0.1" } },
          124439808 },
        { "models/llama.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
                                  "head_dim=8",
                                  "n_ff=44", "qk_norm=true", "qkv_bias=true", "mlp_bias=true", "window=8" } },
                                  1235814400 },
        { "models/moe.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32", "head_dim=8",
                                "n_ff=24", "n_expert=4", "top_k=3", "router_bias=true" } }, 46702792704 },
        { "models/naive_gpt.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "variant=custom" } }, 819532 },
        { "models/naive_moe.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4", "n_expert=4" } },
          481981631 },
        { "models/lhk_gpt.lua", { { "vocab=10", "ctx=5", "n_layer=2", "n_embd=4", "n_head=2", "n_ff=8",
                                    "tied=false" } }, 0 },
        { "models/gemma2.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
                                   "head_dim=8",
                                   "n_ff=24" } }, 2614341888 },
        { "models/gpt_neox.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "n_ff=24" } },
          162322944 },
        { "models/falcon.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "n_ff=24", "bias=true",
                                   "n_kv_head=2", "new_decoder=true", "n_norm=2" } }, 6921720704 },
        { "models/mpt.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=6", "n_embd=48" } }, 6649286656 },
        { "models/tinylm.lua", { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32" } }, 0 },
};
enum { N_ALL = sizeof all / sizeof *all };

TEST(parameter_counts)
{
        for (int i = 0; i < N_ALL; i++) {
                Model *m = lua(all[i].path, NULL);
                CHECK_MSG(!all[i].count || n_params(m) == all[i].count, "%s has %lld parameters, not %lld", all[i].path,
                          (long long)n_params(m), (long long)all[i].count);
                model_free(m);
        }
}

static Graph *parse(const char *text)
{
        Diag d;
        Graph *volatile g = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                g = graph_parse(text, "printed");
                diag_end(&d);
        }
        CHECK_MSG(g, "%s", d.msg);
        return g;
}

static char *print(const Model *m)
{
        Text t = { 0 };
        graph_print(m->graph, &t, PRINT_LOC);
        return t.s;
}

TEST(text_and_json_round_trip)
{
        for (int i = 0; i < 2 * N_ALL; i++) {
                char msg[2048] = "";
                Model *m = lua(all[i / 2].path, i % 2 ? &all[i / 2].tiny : NULL), *back;
                Text json = { 0 }, again = { 0 }, text = { 0 };
                char *one = print(m), *two;
                verify(m->graph, "read");

                Graph *parsed = parse(one);
                graph_print(parsed, &text, PRINT_LOC);
                CHECK_MSG(!strcmp(one, text.s), "%s: print and parse differ", all[i / 2].path);
                graph_free(parsed);

                write_json(m, &json);
                back = from_json(json.s, msg);
                CHECK_MSG(back, "%s: %s", all[i / 2].path, msg);
                two = print(back);
                write_json(back, &again);
                CHECK_MSG(!strcmp(one, two), "%s: the graph through JSON differs", all[i / 2].path);
                CHECK_MSG(!strcmp(json.s, again.s), "%s: JSON through JSON differs", all[i / 2].path);
                CHECK(m->graph->next_id == back->graph->next_id && m->vocab == back->vocab && m->ctx == back->ctx);
                CHECK(!strcmp(m->name, back->name));
                for (Ref r = 1; r < m->graph->n_nodes; r++)
                        if (m->graph->node[r].op != OP_CONST)
                                CHECK(!memcmp(&m->graph->node[r].a, &back->graph->node[r].a, sizeof(Attr)));
                text_free(&json);
                text_free(&again);
                text_free(&text);
                free(one);
                free(two);
                model_free(m);
                model_free(back);
        }
}

TEST(embedded_models_are_the_files)
{
        for (int i = 0; i < N_ALL; i++) {
                char name[64];
                Model *a = lua(all[i].path, NULL), *b;
                snprintf(name, sizeof name, "%.*s", (int)(strlen(all[i].path) - 11), all[i].path + 7);
                b = read_embedded(name);
                Text x = { 0 }, y = { 0 };
                graph_print(a->graph, &x, 0);
                graph_print(b->graph, &y, 0);
                CHECK(!strcmp(x.s, y.s));
                text_free(&x);
                text_free(&y);
                model_free(a);
                model_free(b);
        }
}

/* Equal layers must read the same once the layer's prefix is gone: equal kernels are found by their text. */
TEST(layers_differ_in_prefix_only)
{
        for (int i = 0; i < N_ALL; i++) {
                Model *m = lua(all[i].path, &all[i].tiny);
                Graph *g = m->graph;
                int n = 0;
                for (Ref r = 1; r < g->n_nodes; r++) {
                        const char *s = g->node[r].name;
                        char other[256];
                        if (strncmp(s, "blk0.", 5))
                                continue;
                        snprintf(other, sizeof other, "blk1.%s", s + 5);
                        CHECK_MSG(graph_find(g, other), "%s: no %s", all[i].path, other);
                        n++;
                }
                CHECK(n > 20);
                model_free(m);
        }
}

/* What the pipeline does first to a model that is to be trained: its logits are not wanted. */
static void run_passes(Model *m, const char *path)
{
        Graph *g = m->graph;
        int n = 0;
        for (int i = 0; i < g->n_out; i++)
                if (strcmp(g->out[i].name, "logits"))
                        g->out[n++] = g->out[i];
        g->n_out = n;
        Arena *tmp = arena_new();
        Diag d;
        volatile bool done = false;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                simplify(m->graph, tmp);
                verify(m->graph, "simplify");
                merge_linears(m, tmp);
                verify(m->graph, "merge_linears");
                fuse_loss(m->graph, tmp);
                verify(m->graph, "fuse_loss");
                differentiate(m->graph, tmp);
                verify(m->graph, "differentiate");
                done = true;
                diag_end(&d);
        }
        arena_free(tmp);
        CHECK_MSG(done, "%s: %s", path, d.msg);
}

TEST(passes_take_every_model)
{
        for (int i = 0; i < N_ALL; i++) {
                Model *m = lua(all[i].path, &all[i].tiny);
                bool fused = false;
                run_passes(m, all[i].path);
                for (Ref r = 1; r < m->graph->n_nodes; r++)
                        fused |= m->graph->node[r].op == OP_LINEAR_CE;
                fused |= strstr(all[i].path, "gemma2") != NULL;         /* its logits pass a tanh */
                CHECK_MSG(fused, "%s: the loss was not fused", all[i].path);
                model_free(m);
        }
}

static void compile_both(Model *m, Compiled *out)
{
        CompileOptions o = { .dtype = DT_BF16, .opt = 3, .infer = true, .train = true, .batch = 2, .ctx = 32,
                             .block = 16,
                             .cpu = true, .cuda = true };
        Diag d;
        volatile bool done = false;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                compile(m, &o, out);
                done = true;
                diag_end(&d);
        }
        CHECK_MSG(done, "%s", d.msg);
}

/* Whichever way a model is written, the plan is the same to the byte. */
TEST(lua_and_json_compile_alike)
{
        static Compiled a, b;
        char msg[2048] = "";
        Text json = { 0 };
        Model *m = lua("models/llama.lua", &all[1].tiny), *back;
        write_json(m, &json);
        back = from_json(json.s, msg);
        CHECK_MSG(back, "%s", msg);
        compile_both(m, &a);
        compile_both(back, &b);
        const Text *x[] = { &a.manifest, &a.consts, &a.ir, &a.program[0], &a.program[1], &a.source[0], &a.source[1] };
        const Text *y[] = { &b.manifest, &b.consts, &b.ir, &b.program[0], &b.program[1], &b.source[0], &b.source[1] };
        for (int i = 0; i < 7; i++)
                CHECK_MSG(x[i]->n && x[i]->n == y[i]->n && !memcmp(x[i]->s, y[i]->s, x[i]->n),
                          "part %d of the plan differs", i);
        text_free(&json);
        compiled_free(&a);
        compiled_free(&b);
        model_free(m);
        model_free(back);
}

/* Numbers ------------------------------------------------------------------------ */

typedef struct Loaded { Model *m; WeightParam *p; float **data; int n; } Loaded;

static char *map_text(const Model *m)
{
        Text t = { 0 };
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                text_add(&t, "map %s", l->param);
                if (l->end)
                        text_add(&t, "[%lld:%lld:%lld]", (long long)l->begin, (long long)l->end, (long long)l->step);
                text_add(&t, "%s %s\n", l->deeper, l->rest);
        }
        for (int i = 0; i < m->n_ignore; i++)
                text_add(&t, "map ignore %s\n", m->ignore[i]);
        return t.s;
}

/* All parameters of m from a checkpoint, which must hold nothing else. */
static Loaded load(Model *m, const char *path)
{
        Loaded l = { .m = m };
        WeightMap *map;
        WeightReport report = { 0 };
        Checkpoint *ck;
        char *text = map_text(m);
        l.p = calloc((size_t)m->graph->n_nodes, sizeof *l.p);
        l.data = calloc((size_t)m->graph->n_nodes, sizeof *l.data);
        for (Ref r = 1; r < m->graph->n_nodes; r++) {
                const Node *n = NODE(m->graph, r);
                if (n->op != OP_PARAM)
                        continue;
                WeightParam *p = &l.p[l.n];
                *p = (WeightParam){ .name = n->name, .dtype = CK_F32, .rank = n->type.rank };
                for (int i = 0; i < p->rank; i++)
                        p->dim[i] = n->type.dim[i].n;
                p->data = l.data[l.n++] = calloc((size_t)type_elems(&n->type).n, sizeof(float));
        }
        CHECK_MSG(!weight_map_parse(&map, text, path, &err), "%s", err.msg);
        CHECK_MSG(!checkpoint_open(&ck, path, &err), "%s", err.msg);
        WeightSet set = { .n = l.n, .param = l.p };
        CHECK_MSG(!weight_map_import(map, ck, &set, &report, &err), "%s: %s", path, err.msg);
        CHECK_MSG(!report.n_unused, "%s: tensor %s is not used", path, report.unused[0]);
        CHECK_MSG(!report.n_absent, "%s: parameter %s was not filled", path, report.absent[0]);
        weight_report_free(&report);
        weight_map_free(map);
        checkpoint_close(ck);
        free(text);
        return l;
}

static void unload(Loaded *l)
{
        for (int i = 0; i < l->n; i++)
                free(l->data[i]);
        free(l->data);
        free(l->p);
        model_free(l->m);
}

static Eval *evaluate(Loaded *l, int b, int t, const double *ids, const double *targets)
{
        EvalCtx c = { .sizes = { { b, t, t } }, .share = 1, .inv_tokens = 1.0 / (b * t), .n_micro = 1 };
        Eval *e = eval_new(l->m->graph, &c);
        for (int i = 0; i < l->n; i++) {
                int64_t n = 1;
                for (int k = 0; k < l->p[i].rank; k++)
                        n *= l->p[i].dim[k];
                double *v = malloc((size_t)n * sizeof *v);
                for (int64_t k = 0; k < n; k++)
                        v[k] = l->data[i][k];
                eval_set(e, l->p[i].name, v, n);
                free(v);
        }
        eval_set(e, "ids", ids, b * t);
        eval_set(e, "targets", targets, b * t);
        eval_run(e);
        return e;
}

static Model *hf_model(const char *dir, const Defines *defines)
{
        char *config = NULL;
        CHECK_MSG(!hf_config_read(dir, &config, &err), "%s", err.msg);
        Model *m = family(NULL, config, defines);
        free(config);
        return m;
}

static int read_ids(const char *path, const char *key, double *out, int most)
{
        cJSON *json;
        int n = 0;
        const cJSON *c;
        CHECK_MSG(!json_read(&json, path, 1 << 20, &err), "%s", err.msg);
        cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(json, key))
                if (n < most)
                        out[n++] = c->valuedouble;
        cJSON_Delete(json);
        return n;
}

static void check_family(const char *name)
{
        static const Defines no_dropout = { { "dropout=0" } };  /* gpt2's configuration has some */
        char path[256];
        double ids[64], worst = 0;
        NEED_DATA();
        snprintf(path, sizeof path, DATA "families/%s", name);
        if (!file_is_dir(path))
                SKIP("no such family in the data");
        Loaded l = load(hf_model(path, strcmp(name, "gpt2") ? NULL : &no_dropout), path);
        snprintf(path, sizeof path, DATA "families/%s/expected.json", name);
        int n = read_ids(path, "prompt_ids", ids, 64);
        Npy want = { 0 };
        snprintf(path, sizeof path, DATA "families/%s/expected_logits.npy", name);
        CHECK_MSG(!npy_open(&want, path, &err), "%s", err.msg);
        Eval *e = evaluate(&l, 1, n, ids, ids);
        int64_t count;
        const double *got = eval_output(e, "logits", &count);
        CHECK(count == want.count && want.dtype == CK_F32);
        for (int64_t i = 0; i < count; i++)
                worst = fmax(worst, fabs(got[i] - want.u.f32[i]) / (1 + fabs(want.u.f32[i])));
        eval_free(e);
        npy_close(&want);
        unload(&l);
        /* float32 arithmetic of some hundred products against double */
        CHECK_MSG(worst < 2e-4, "logits of %s differ by %g", name, worst);
}

TEST(family_gpt2) { check_family("gpt2"); }
TEST(family_llama) { check_family("llama"); }
TEST(family_llama31) { check_family("llama31"); }
TEST(family_llama_tied_bias) { check_family("llama_tied_bias"); }
TEST(family_mistral) { check_family("mistral"); }
TEST(family_qwen2) { check_family("qwen2"); }
TEST(family_qwen3) { check_family("qwen3"); }
TEST(family_phi3) { check_family("phi3"); }
TEST(family_mixtral) { check_family("mixtral"); }
TEST(family_gemma2) { check_family("gemma2"); }
TEST(family_gpt_neox) { check_family("gpt_neox"); }
TEST(family_falcon) { check_family("falcon"); }
TEST(family_mpt) { check_family("mpt"); }
TEST(family_qwen3_moe) { check_family("qwen3_moe"); }

static Model *llama2c_model(const char *path)
{
        Llama2cConfig c;
        char json[300];
        CHECK_MSG(!llama2c_config(path, &c, &err), "%s", err.msg);
        snprintf(json, sizeof json, "{\"dim\":%d,\"hidden_dim\":%d,\"n_layers\":%d,\"n_heads\":%d,\"n_kv_heads\":%d,"
                 "\"vocab_size\":%d,\"seq_len\":%d,\"shared\":%s}", c.dim, c.hidden_dim, c.n_layers, c.n_heads,
                 c.n_kv_heads,
                 c.vocab_size, c.seq_len, c.shared ? "true" : "false");
        return family("llama2c", json, NULL);
}

static double worst_logit(Loaded *l, const char *ids_path, const char *logits_path, int n, int vocab)
{
        double ids[512], worst = 0;
        char *text = slurp(ids_path), *at = text, *raw = NULL;
        size_t size;
        int64_t count;
        for (int i = 0; i < n; i++, at++)
                ids[i] = strtod(at, &at);
        free(text);
        FILE *f = fopen(logits_path, "rb");
        CHECK(f);
        size = (size_t)n * (size_t)vocab * 4;
        raw = malloc(size);
        CHECK(fread(raw, 1, size, f) == size);
        fclose(f);
        Eval *e = evaluate(l, 1, n, ids, ids);
        const double *got = eval_output(e, "logits", &count);
        CHECK(count == (int64_t)n * vocab);
        for (int64_t i = 0; i < count; i++) {
                float want;
                memcpy(&want, raw + 4 * i, 4);
                worst = fmax(worst, fabs(got[i] - want));
        }
        eval_free(e);
        free(raw);
        return worst;
}

TEST(stories260k)
{
        NEED_DATA();
        Loaded l = load(llama2c_model(DATA "models/stories260K/stories260K.bin"),
                        DATA "models/stories260K/stories260K.bin");
        CHECK(n_params(l.m) == 260032);
        double worst = worst_logit(&l, DATA "expected/stories260K_bos_ids.txt",
                                   DATA "expected/stories260K_bos_logits32.f32",
                                   32, 512);
        CHECK_MSG(worst < 1e-3, "logits differ by %g", worst);
        unload(&l);
}

/* The same model from Hugging Face's names (rotate-half) and from llama2.c's (interleaved). */
TEST(tinystories656k)
{
        NEED_DATA();
        for (int i = 0; i < 2; i++) {
                const char *path = i ? DATA "models/tinystories656k/ts656k_llama2c_v0.bin"
                                     : DATA "models/tinystories656k";
                static const Defines eps = { { "eps=1e-6" } };
                Loaded l = load(i ? llama2c_model(path) : hf_model(path, &eps), path);
                if (i)                                  /* llama2.c's format has no epsilon: it is 1e-5 */
                        for (Ref r = 1; r < l.m->graph->n_nodes; r++)
                                if (l.m->graph->node[r].op == OP_RMSNORM)
                                        l.m->graph->node[r].a.num.x = 1e-6;
                double worst = worst_logit(&l, DATA "expected/ts656k_p0_ids.txt",
                                           DATA "expected/ts656k_p0_logits16.f32", 16, 2048);
                CHECK_MSG(worst < 1e-3, "%s: logits differ by %g", path, worst);
                unload(&l);
        }
}

/* lhk_gpt against that repository's own forward pass: its tensors are files of their own. */
TEST(lhk_gpt_vectors)
{
        static const Defines d = { { "vocab=10", "ctx=5", "n_layer=2", "n_embd=4", "n_head=2", "n_ff=8",
                                     "tied=false" } };
        static const struct { const char *part, *file; } outer[] = {
                { "tok.weight", "token_embedding" }, { "pos.weight", "pos_embedding" }, { "norm.weight",
                                                                                          "final_ln_gamma" },
                { "norm.bias", "final_ln_beta" }, { "logits.weight", "lm_head_weight" },
        }, inner[] = {
                { "attn.norm.weight", "ln1_gamma" }, { "attn.norm.bias", "ln1_beta" }, { "attn.q.weight", "mhsa_w_q" },
                { "attn.k.weight", "mhsa_w_k" }, { "attn.v.weight", "mhsa_w_v" }, { "attn.out.weight", "mhsa_w_o" },
                { "attn.out.bias", "mhsa_w_o_bias" }, { "mlp.norm.weight", "ln2_gamma" }, { "mlp.norm.bias",
                                                                                            "ln2_beta" },
                { "mlp.up.weight", "mlp_w1" }, { "mlp.up.bias", "mlp_b1" }, { "mlp.down.weight", "mlp_w2" },
                { "mlp.down.bias", "mlp_b2" },
        };
        static const double ids[4] = { 1, 4, 2, 7 };
        float want[40], w[64];
        double v[64];
        int64_t count;
        NEED_DATA();
        Model *m = lua("models/lhk_gpt.lua", &d);
        EvalCtx c = { .sizes = { { 1, 4, 4 } }, .share = 1, .inv_tokens = 0.25, .n_micro = 1 };
        Eval *e = eval_new(m->graph, &c);
        for (int i = 0; i < 5 + 2 * 13 + 1; i++) {
                char path[256], param[64];
                const char *file = i < 5 ? outer[i].file : i < 31 ? inner[(i - 5) % 13].file : "logits";
                int layer = (i - 5) / 13;
                if (i < 5 || i == 31)
                        snprintf(path, sizeof path, DATA "vectors/gpt_in_cuda/gpt_forward_multi_token_test_%s.bin",
                                 file);
                else
                        snprintf(path, sizeof path,
                                 DATA "vectors/gpt_in_cuda/gpt_forward_multi_token_test_layer_%d_%s.bin",
                                 layer, file);
                FILE *f = fopen(path, "rb");
                CHECK_MSG(f, "no %s", path);
                size_t n = fread(i == 31 ? want : w, 4, i == 31 ? 40 : 64, f);
                fclose(f);
                if (i == 31)
                        break;
                if (i < 5)
                        snprintf(param, sizeof param, "%s", outer[i].part);
                else
                        snprintf(param, sizeof param, "blk%d.%s", layer, inner[(i - 5) % 13].part);
                for (size_t k = 0; k < n; k++)
                        v[k] = w[k];
                eval_set(e, param, v, (int64_t)n);
        }
        eval_set(e, "ids", ids, 4);
        eval_set(e, "targets", ids, 4);
        eval_run(e);
        const double *got = eval_output(e, "logits", &count);
        for (int i = 0; i < 40; i++)
                CHECK_MSG(fabs(got[i] - want[i]) < 1e-6, "logit %d is %g, not %g", i, got[i], want[i]);
        CHECK(count == 40);
        eval_free(e);
        model_free(m);
}

typedef struct Batch { int n, tokens; double *ids, *targets; } Batch;

/* The batch of a run's first step: characters from the starts, and those after them. */
static Batch first_batch(const char *run, int tokens)
{
        char path[256], *text = slurp(DATA "text/tinyshakespeare.txt");
        int id[256] = { 0 }, k = 0;
        Npy starts = { 0 };
        for (const char *s = text; *s; s++)
                id[(unsigned char)*s] = 1;
        for (int c = 0; c < 256; c++)
                id[c] = id[c] ? k++ : -1;
        CHECK(k == 65);
        snprintf(path, sizeof path, DATA "training/%s/starts.npy", run);
        CHECK_MSG(!npy_open(&starts, path, &err), "%s", err.msg);
        Batch b = { (int)(starts.dim[1] * starts.dim[2]), tokens, NULL, NULL };
        b.ids = calloc((size_t)(b.n * tokens), sizeof *b.ids);
        b.targets = calloc((size_t)(b.n * tokens), sizeof *b.targets);
        for (int i = 0; i < b.n * tokens; i++) {
                const char *at = text + starts.u.i64[i / tokens] + i % tokens;
                b.ids[i] = id[(unsigned char)at[0]];
                b.targets[i] = id[(unsigned char)at[1]];
        }
        npy_close(&starts);
        free(text);
        return b;
}

/* The first step of a training run in PyTorch: mean cross-entropy, balance loss, and every gradient, clipped to
 * norm 1, after the passes that come before kernels.  The gradients' file may spell names in its own way. */
static void check_step(Model *m, Model *spelled, const char *weights, const char *run, int tokens, double aux_coef)
{
        char path[256], *csv;
        int64_t count;
        double lr, want, want_aux, want_norm, norm = 0, worst = 0;
        run_passes(m, run);
        run_passes(spelled, run);
        Loaded l = load(m, weights), g;
        snprintf(path, sizeof path, DATA "training/%s/grad_step0_clipped.safetensors", run);
        g = load(spelled, path);
        snprintf(path, sizeof path, DATA "training/%s/loss.csv", run);
        csv = slurp(path);
        CHECK(sscanf(strchr(csv, '\n') + 1, "0,%lf,%lf,%lf,%lf", &lr, &want, &want_aux, &want_norm) == 4);
        free(csv);
        Batch b = first_batch(run, tokens);
        Eval *e = evaluate(&l, b.n, tokens, b.ids, b.targets);
        double aux = aux_coef ? eval_output(e, "aux_loss", &count)[0] : 0;
        double loss = eval_output(e, "loss", &count)[0] - aux_coef * aux;
        CHECK_MSG(fabs(loss - want) < 1e-5, "%s: loss %.8f, not %.8f", run, loss, want);
        CHECK_MSG(fabs(aux - want_aux) < 1e-5, "%s: balance loss %.8f, not %.8f", run, aux, want_aux);
        CHECK(l.n == g.n);
        for (int i = 0; i < l.n; i++) {
                const double *d = eval_grad(e, l.p[i].name, &count);
                CHECK_MSG(d && !strcmp(l.p[i].name, g.p[i].name), "%s: no gradient of %s", run, l.p[i].name);
                for (int64_t k = 0; k < count; k++)
                        norm += d[k] * d[k];
        }
        norm = sqrt(norm);
        CHECK_MSG(fabs(norm - want_norm) < 1e-4, "%s: gradient's norm %.8f, not %.8f", run, norm, want_norm);
        for (int i = 0; i < l.n; i++) {
                const double *d = eval_grad(e, l.p[i].name, &count);
                for (int64_t k = 0; k < count; k++)
                        worst = fmax(worst, fabs(d[k] / fmax(norm, 1) - g.data[i][k]));
        }
        /* single gradients are around 1e-3; float32 sums over the batch leave 1e-6 */
        CHECK_MSG(worst < 2e-6, "%s: a gradient differs by %g", run, worst);
        eval_free(e);
        free(b.ids);
        free(b.targets);
        unload(&l);
        unload(&g);
}

static void check_hf_step(const char *run, int tokens, const Defines *spelling, double aux_coef)
{
        char path[256];
        NEED_DATA();
        snprintf(path, sizeof path, DATA "training/%s/init", run);
        check_step(hf_model(path, NULL), hf_model(path, spelling), path, run, tokens, aux_coef);
}

TEST(first_step_gpt2) { check_hf_step("gpt2", 48, NULL, 0); }
TEST(first_step_llama) { check_hf_step("llama_accum2", 48, NULL, 0); }

TEST(first_step_mixtral)
{
        static const Defines stacked = { { "spelling=stacked" } };
        check_hf_step("mixtral_aux", 32, &stacked, 0.01);
}

TEST(first_step_naive)
{
        static const Defines d = { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=64", "dropout=0" } };
        NEED_DATA();
        check_step(lua("models/naive_gpt.lua", &d), lua("models/naive_gpt.lua", &d),
                   DATA "training/naive_postnorm/init.safetensors", "naive_postnorm", 32, 0);
}

/* Errors --------------------------------------------------------------------------- */

/* The line that says `-- error: TEXT`; TEXT is copied out. */
static int marked_line(const char *text, char *want, size_t n)
{
        int line = 1;
        const char *mark = strstr(text, "-- error: ");
        CHECK(mark);
        for (const char *s = text; s < mark; s++)
                line += *s == '\n';
        snprintf(want, n, "%.*s", (int)strcspn(mark + 10, "\n"), mark + 10);
        return line;
}

TEST(lua_errors_are_on_their_lines)
{
        DIR *dir = opendir("tests/read");
        int n = 0, bad = 0;
        CHECK(dir);
        for (struct dirent *d; (d = readdir(dir));) {
                char path[300], want[300], place[320], msg[2048] = "";
                size_t k = strlen(d->d_name);
                if (k < 4 || strcmp(d->d_name + k - 4, ".lua") || !strncmp(d->d_name, "ok_", 3))
                        continue;
                snprintf(path, sizeof path, "tests/read/%s", d->d_name);
                char *text = slurp(path);
                int line = marked_line(text, want, sizeof want);
                snprintf(place, sizeof place, "%s:%d: error: ", path, line);
                Model *m = try_lua(path, NULL, msg, NULL);
                free(text);
                n++;
                if (m || strncmp(msg, place, strlen(place)) || !strstr(msg, want)) {
                        printf("  wanted %s... %s\n  got %s\n", place, want, m ? "no error" : msg);
                        model_free(m);
                        bad++;
                }
        }
        closedir(dir);
        CHECK(n > 20 && !bad);
}

TEST(a_model_needs_ids)
{
        char msg[2048] = "";
        CHECK(!try_lua("tests/read/ok_no_ids.lua", NULL, msg, NULL));
        CHECK_MSG(strstr(msg, "ok_no_ids.lua") && strstr(msg, "no input `ids: i32[B,T]`"), "%s", msg);
}

TEST(bytecode_is_refused)
{
        char path[300], msg[2048] = "";
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite("\x1bLua\x54\0\x19\x93\r\n\x1a\n", 1, 12, f) == 12 && !fclose(f));
        CHECK(!try_lua(path, NULL, msg, NULL) && strstr(msg, "attempt to load a binary chunk"));
        unlink(path);
}

TEST(definitions)
{
        static const struct { Defines d; const char *want; } bad[] = {
                { { { "n_layr=3" } }, "no parameter 'n_layr'; did you mean 'n_layer'?" },
                { { { "qqq=3" } }, "no parameter 'qqq'" },
                { { { "n_layer=three" } }, "'n_layer' is a number, not 'three'" },
                { { { "n_layer=2.5" } }, "'n_layer' is a whole number, not '2.5'" },
                { { { "tied=maybe" } }, "'tied' is true or false, not 'maybe'" },
                { { { "eps=nan" } }, "'eps' is a number" },
                { { { "n_layer" } }, "-D wants KEY=VALUE" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048] = "";
                int code = 0;
                CHECK(!try_lua("models/gpt.lua", &bad[i].d, msg, &code));
                CHECK_MSG(strstr(msg, bad[i].want) && code == 2, "%s (code %d)", msg, code);
        }
        static const Defines good = { { "n_layer=2", "tied=false", "eps=1e-6", "act=gelu" } };
        Model *m = lua("models/gpt.lua", &good);
        CHECK(graph_find(m->graph, "blk1.mlp.sum") && !graph_find(m->graph, "blk2.mlp.sum"));
        CHECK(graph_find(m->graph, "logits.weight"));
        model_free(m);
}

TEST(families_unknown)
{
        ReadOptions o = options(NULL);
        Diag d;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua_family(NULL, "{\"model_type\": \"bert\"}", &o));
                diag_end(&d);
                CHECK(0);
        }
        CHECK_MSG(strstr(d.msg, "no model is known for 'bert'; known are falcon, gemma2, gpt2, ") && strstr(d.msg,
                                                                                                            "mixtral"),
                                                                                                            "%s",
                                                                                                            d.msg);
}

TEST(ordered_and_loadable_twice)
{
        Model *a = lua("tests/read/ok_order.lua", NULL), *b = lua("tests/read/ok_order.lua", NULL);
        char *x = print(a), *y = print(b);
        CHECK(!strcmp(x, y));
        CHECK_MSG(strstr(x, "%a = ") < strstr(x, "%b = ") && strstr(x, "%b = ") < strstr(x, "%zz = "), "%s", x);
        free(x);
        free(y);
        model_free(a);
        model_free(b);
}

#define IDS "{\"name\":\"ids\",\"op\":\"input\",\"type\":\"i32[B,T]\"},"
#define W "{\"name\":\"w\",\"op\":\"param\",\"type\":\"f32[8,4]\"},"
#define GRAPH(nodes) "{\"tgc_graph\":1,\"nodes\":[\n" IDS "\n" W "\n" nodes "],\n\"outputs\":{\"logits\":\"y\"}}"
#define Y "{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\",\"ids\"]}"

TEST(json_errors)
{
        static const struct { const char *json, *want; } bad[] = {
                { "[]", "must be an object" },
                { "{\"nodes\":[]}", "\"tgc_graph\" must be 1" },
                { "{\"tgc_graph\":1,\"nodez\":[]}", "no key 'nodez'; did you mean 'nodes'?" },
                { "{\"tgc_graph\":1,\"nodes\":[]}", "no \"outputs\"" },
                { "{\"tgc_graph\":1,", ".json" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gathr\",\"in\":[\"w\",\"ids\"]}"),
                  ":4: error: %y: unknown op 'gathr'" },
                { GRAPH("{\"name\":\"y\",\"op\":\"adamw\",\"in\":[\"w\"]}"),
                  ":4: error: %y: 'adamw' is made by the compiler" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\",\"idz\"]}"),
                  ":4: error: %y reads 'idz', and no node" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"y\"]}"),
                  ":4: error: %y reads %y, which does not stand before" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"z\"]},\n"
                        "{\"name\":\"z\",\"op\":\"neg\",\"in\":[\"y\"]}"),
                  ":4: error: %y reads %z, which does not stand before it: a cycle" },
                { GRAPH(Y ",\n" Y), ":5: error: %y is defined twice" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\"]}"),
                  ":4: error: gather: 1 inputs given, 2 needed" },
                { GRAPH("{\"name\":\"y\",\"op\":\"matmul\",\"in\":[\"w\",\"w\"]}"),
                  ":4: error: matmul: inner dimensions differ, 4 in %w" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"attr\":{\"q\":1}}"),
                  ":4: error: neg has no attribute 'q'" },
                { GRAPH("{\"name\":\"y\",\"op\":\"matmul\",\"in\":[\"w\",\"w\"],\"attr\":{\"tb\":0.5}}"),
                  ":4: error: attribute 'tb' must be a whole number" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8]\"}"),
                  ":4: error: %y: neg gives f32[8,4], the file says f32[8]" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8\"}"),
                  ":4: error: 'f32[8' is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[1099511627776,1099511627776]\"}"),
                  ":4: error: param: the shape [1099511627776,1099511627776] is out of range" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[99999999999999999999]\"}"), "is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B*B*B*B*B]\"}"), "is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B]\"}"),
                  ":4: error: param: parameters are f32" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\"}"), ":4: error: %y: param needs a \"type\"" },
                { GRAPH("{\"name\":\"y\",\"op\":\"const\",\"type\":\"f32[3]\",\"attr\":{\"data\":[1,2]}}"),
                  ":4: error: const: 2 numbers do not fill f32[3]" },
                { GRAPH("{\"name\":\"y y\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  ":4: error: 'y y' cannot be a node's name" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"loc\":\"nowhere\"}"),
                  ":4: error: \"loc\" must be FILE:LINE" },
                { GRAPH("{\"name\":\"x\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  "output 'logits' must be the name of a node" },
                { GRAPH("{\"name\":\"y\",\"op\":\"transpose\",\"in\":[\"w\"],\"attr\":{\"perm\":[1,0,5]}}"),
                  "more axes are named" },
                { GRAPH("{\"name\":\"y\",\"op\":\"dropout\",\"in\":[\"w\"],\"attr\":{\"p\":1}}"),
                  "the probability is 1" },
                { GRAPH("{\"name\":\"y\",\"op\":\"bucket\",\"in\":[\"ids\"],\"attr\":{\"k\":1e300}}"),
                  "must be a whole number" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048] = "";
                Model *m = from_json(bad[i].json, msg);
                CHECK_MSG(!m, "no error from %s", bad[i].json);
                CHECK_MSG(strstr(msg, bad[i].want) || !strcmp(bad[i].want, ".json"), "wanted %s\n    got %s",
                          bad[i].want, msg);
        }
        char msg[2048] = "";
        Model *m = from_json(GRAPH(Y), msg);
        CHECK_MSG(m, "%s", msg);
        CHECK(NODE(m->graph, graph_find(m->graph, "y"))->loc.line == 4);
        model_free(m);
}

/* Every prefix and many single-byte changes of a real file: an error or a model, never a crash. */
TEST(json_damaged)
{
        Model *m = lua("models/naive_moe.lua", &all[4].tiny);
        Text t = { 0 };
        char msg[2048];
        unsigned x = 1;
        write_json(m, &t);
        model_free(m);
        for (int i = 0; i < 300; i++) {
                x = x * 1664525u + 1013904223u;
                size_t at = (x >> 8) % t.n;
                char old = t.s[at];
                t.s[at] = i % 3 ? "{}[]\",:0917BTx"[x % 14] : 0;
                m = from_json(t.s, msg);
                model_free(m);
                t.s[at] = old;
        }
        text_free(&t);
}

/* The same for Lua: changed bytes in the text of a model. */
TEST(lua_damaged)
{
        char path[300], msg[2048], *text = slurp("models/naive_gpt.lua");
        const char *base = getenv("TMPDIR");
        size_t n = strlen(text);
        unsigned x = 7;
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        for (int i = 0; i < 200; i++) {
                x = x * 1664525u + 1013904223u;
                size_t at = (x >> 8) % n;
                char old = text[at];
                text[at] = "{}[]\",:0917-."[x % 13];
                FILE *f = fopen(path, "w");
                CHECK(f && fputs(text, f) >= 0 && !fclose(f));
                model_free(try_lua(path, &all[3].tiny, msg, NULL));
                text[at] = old;
        }
        unlink(path);
        free(text);
}

TEST_MAIN
