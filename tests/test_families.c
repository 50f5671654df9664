/* test_families.c: weights of real checkpoints under the models that read them, against logits, losses and gradients that
 * transformers and PyTorch computed: every family, two llama2.c models, first training steps. */
#include <math.h>
#include "../runtime/json.h"
#include "../runtime/npy.h"
#include "eval_models.h"
#include "family_data.h"

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

static const Defines no_dropout = { { "dropout=0" } };  /* gpt2's configurations have some */

static void check_folder(const char *dir, const char *name)
{
        char path[300];
        double ids[64], worst = 0;
        Loaded l = load(hf_model(dir, strcmp(name, "gpt2") ? NULL : &no_dropout), dir);
        snprintf(path, sizeof path, "%s/expected.json", dir);
        int n = read_ids(path, "prompt_ids", ids, 64);
        Npy want = { 0 };
        snprintf(path, sizeof path, "%s/expected_logits.npy", dir);
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
        CHECK_MSG(worst < 2e-4, "%s: logits differ by %g", dir, worst);
}

/* The configuration with one line of changes.json done to it; caller frees. */
static char *changed(const cJSON *config, const cJSON *change)
{
        cJSON *c = cJSON_Duplicate(config, true), *v;
        cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(change, "drop"))
                cJSON_DeleteItemFromObjectCaseSensitive(c, v->valuestring);
        cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(change, "set")) {
                cJSON_DeleteItemFromObjectCaseSensitive(c, v->string);
                cJSON_AddItemToObject(c, v->string, cJSON_Duplicate(v, true));
        }
        char *text = cJSON_Print(c);
        cJSON_Delete(c);
        return text;
}

/* Refused with exit code 3 and one of the keys in the message. */
static void check_refused(const char *what, const char *config, const cJSON *keys)
{
        ReadOptions o = options(NULL);
        Diag d;
        const cJSON *k;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua_family(NULL, config, &o));
                diag_end(&d);
                CHECK_MSG(0, "%s: not refused", what);
        }
        bool named = false;
        cJSON_ArrayForEach(k, keys)
                named |= strstr(d.msg, k->valuestring) != NULL;
        CHECK_MSG(d.code == 3 && named, "%s: code %d, %s", what, d.code, d.msg);
}

/* Every 12th logit of the last of n tokens. */
static void check_change(const char *dir, const char *what, const char *config, const cJSON *want, const double *ids, int n)
{
        Model *m = family(NULL, config, strstr(config, "\"gpt2\"") ? &no_dropout : NULL);
        Loaded l = load(m, dir);
        Eval *e = evaluate(&l, 1, n, ids, ids);
        int64_t count, i = 0;
        const double *got = eval_output(e, "logits", &count), *last = got + count / n * (n - 1);
        const cJSON *w;
        cJSON_ArrayForEach(w, want)
                CHECK_MSG(fabs(last[12 * i++] - w->valuedouble) < 1e-4 * (1 + fabs(w->valuedouble)),
                          "%s: logit %d is %g, not %g", what, (int)(12 * (i - 1)), last[12 * (i - 1)], w->valuedouble);
        CHECK(i > 4);
        eval_free(e);
        unload(&l);
}

/* Changed configurations of the same weights: as transformers computes them, or refused. */
static void check_changes(const char *dir)
{
        char path[300], *text;
        double ids[64];
        cJSON *changes, *config, *c;
        int used = 0, refused = 0;
        snprintf(path, sizeof path, "%s/changes.json", dir);
        CHECK_MSG(!json_read(&changes, path, 1 << 20, &err), "%s", err.msg);
        CHECK_MSG(!hf_config_read(dir, &text, &err) && !json_parse(&config, text, strlen(text), dir, &err), "%s", err.msg);
        free(text);
        snprintf(path, sizeof path, "%s/expected.json", dir);
        int n = read_ids(path, "prompt_ids", ids, 64);
        cJSON_ArrayForEach(c, changes) {
                const cJSON *keys = cJSON_GetObjectItemCaseSensitive(c, "refused");
                char *line = cJSON_PrintUnformatted(c), what[700];
                snprintf(what, sizeof what, "%s: %s", dir, line);
                free(line);
                text = changed(config, c);
                if (keys)
                        check_refused(what, text, keys);
                else
                        check_change(dir, what, text, cJSON_GetObjectItemCaseSensitive(c, "logits"), ids, n);
                *(keys ? &refused : &used) += 1;
                free(text);
        }
        CHECK_MSG(used > 20 && refused > 20, "%s: %d computed, %d refused", dir, used, refused);
        cJSON_Delete(changes);
        cJSON_Delete(config);
}

static void check_family(const char *name)
{
        char dir[256];
        CHECK(family_dir(dir, sizeof dir, 0, name));
        check_folder(dir, name);
        check_changes(dir);
        if (family_dir(dir, sizeof dir, 1, name))
                check_folder(dir, name);
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

TEST_MAIN
