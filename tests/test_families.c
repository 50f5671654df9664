/* test_families.c: weights of real checkpoints under the models that read them, against logits,
 * losses and gradients that transformers and PyTorch computed: every family, trained models in
 * Hugging Face's form and llama2.c's, first training steps. */
#include <ctype.h>
#include <math.h>
#include "../runtime/util/json.h"
#include "../runtime/weights/npy.h"
#include "eval_models.h"
#include "vectors.h"

static int read_ids(const char *path, const char *key, double *out, int most)
{
        cJSON *json;
        int n = 0;
        const cJSON *c;
        CHECK_MSG(!json_read(&json, path, 1 << 20, &err), "%s", err.msg);
        cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(json, key)) if (n < most)
                out[n++] = c->valuedouble;
        cJSON_Delete(json);
        return n;
}

static const Defines no_dropout = { { "dropout=0" } };

/* Configurations of these have some. */
static const Defines *defines_of(const char *type)
{
        return !strcmp(type, "gpt2") || !strcmp(type, "opt") ? &no_dropout : NULL;
}

static void check_folder(const char *dir, const char *name)
{
        char path[500];
        double ids[64], worst = 0;
        Loaded l = load(hf_model(dir, defines_of(name)), dir);
        snprintf(path, sizeof path, "%s/expected.json", dir);
        int n = read_ids(path, "prompt_ids", ids, 64);
        Npy want = { 0 };
        snprintf(path, sizeof path, "%s/expected_logits.npy", dir);
        CHECK_MSG(!npy_open(&want, path, &err), "%s", err.msg);
        Eval *e = evaluate(&l, 1, n, ids, ids);
        int64_t count;
        const double *got = eval_output(e, "logits", &count);
        CHECK(count >= want.count && count % want.dim[1] == 0 && want.dtype == CK_F32);
        got += count - want.count; /* of some families the last tokens are kept */
        for (int64_t i = 0; i < want.count; i++)
                worst = worse(worst, fabs(got[i] - want.u.f32[i]) / (1 + fabs(want.u.f32[i])));
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
        cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(change, "set"))
        {
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
        cJSON_ArrayForEach(k, keys) named |= strstr(d.msg, k->valuestring) != NULL;
        CHECK_MSG(d.code == 3 && named, "%s: code %d, %s", what, d.code, d.msg);
}

static void refuse_defined(const char *config, const char *define, const char *says)
{
        const Defines own = { { define } };
        ReadOptions o = options(&own);
        Diag d;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua_family(NULL, config, &o));
                diag_end(&d);
                CHECK_MSG(0, "%s: not refused", define);
        }
        CHECK_MSG(strstr(d.msg, says), "%s: %s", define, d.msg);
}

/* Of texts of all lengths at once no set of factors is right: what is not said is refused. */
TEST_DATA (positions_beyond_the_original_context) {
        static const struct {
                const char *scaling, *define, *says;
        } refused[] = {
                { "{\"rope_type\":\"dynamic\",\"factor\":2}", "ctx=5000", "rope_use=long" },
                { "{\"rope_type\":\"dynamic\",\"factor\":2}", "rope_use=long", "no effect" },
                { "{\"rope_type\":\"linear\",\"factor\":2}", "rope_use=long", "no effect" },
                { "{\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
                  "\"long_factor\":[2,2,2,2,2,2,2,2],\"original_max_position_embeddings\":16}",
                  "rope_use=short", "ctx=16" },
                { "{\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
                  "\"long_factor\":[2,2,2,2,2,2,2,2],\"original_max_position_embeddings\":16}",
                  "rope_use=both", "rope_use is auto, short or long" },
        };
        const char *dir = data_at("families/llama");
        char *text;
        data_need(dir);
        CHECK_MSG(!hf_config_read(dir, &text, &err), "%s", err.msg);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
                cJSON *config, *scaling;
                CHECK(!json_parse(&config, text, strlen(text), dir, &err));
                CHECK(!json_parse(&scaling, refused[i].scaling, strlen(refused[i].scaling), "rope",
                                  &err));
                cJSON_DeleteItemFromObject(config, "rope_parameters");
                cJSON_DeleteItemFromObject(config, "rope_scaling");
                cJSON_AddItemToObject(config, "rope_scaling", scaling);
                char *said = cJSON_Print(config);
                cJSON_Delete(config);
                refuse_defined(said, refused[i].define, refused[i].says);
                free(said);
        }
        free(text);
}

/* Every 12th logit of the last of n tokens. */
static void check_change(const char *dir, const char *type, const char *what, const char *config,
                         const cJSON *change, const double *ids, int n)
{
        const cJSON *want = cJSON_GetObjectItemCaseSensitive(change, "logits"), *v;
        Defines own = { { NULL } };
        int n_own = 0;
        cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(change, "define"))
        {
                CHECK(n_own < (int)(sizeof own.d / sizeof *own.d) - 1);
                own.d[n_own++] = v->valuestring;
        }
        Model *m = family(NULL, config, n_own ? &own : defines_of(type));
        Loaded l = load(m, dir);
        Eval *e = evaluate(&l, 1, n, ids, ids);
        int64_t count, i = 0;
        const double *got = eval_output(e, "logits", &count), *last = got + count / n * (n - 1);
        const cJSON *w;
        cJSON_ArrayForEach(w, want)
                CHECK_MSG(fabs(last[12 * i++] - w->valuedouble) < 1e-4 * (1 + fabs(w->valuedouble)),
                          "%s: logit %d is %g, not %g", what, (int)(12 * (i - 1)),
                          last[12 * (i - 1)], w->valuedouble);
        CHECK(i > 4);
        eval_free(e);
        unload(&l);
}

/* Changed configurations of the same weights: as transformers computes them, or refused. */
static void check_changes(const char *dir)
{
        char path[500], *text;
        const char *type;
        double ids[64];
        cJSON *changes, *config, *c;
        int used = 0, refused = 0;
        snprintf(path, sizeof path, "%s/changes.json", dir);
        CHECK_MSG(!json_read(&changes, path, 1 << 20, &err), "%s", err.msg);
        CHECK_MSG(!hf_config_read(dir, &text, &err) &&
                          !json_parse(&config, text, strlen(text), dir, &err),
                  "%s", err.msg);
        free(text);
        type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
        CHECK(type);
        snprintf(path, sizeof path, "%s/expected.json", dir);
        int n = read_ids(path, "prompt_ids", ids, 64);
        cJSON_ArrayForEach(c, changes)
        {
                const cJSON *keys = cJSON_GetObjectItemCaseSensitive(c, "refused");
                char *line = cJSON_PrintUnformatted(c), what[700];
                snprintf(what, sizeof what, "%s: %s", dir, line);
                free(line);
                text = changed(config, c);
                if (keys)
                        check_refused(what, text, keys);
                else
                        check_change(dir, type, what, text, c, ids, n);
                *(keys ? &refused : &used) += 1;
                free(text);
        }
        CHECK_MSG(used > 3 && refused > 20, "%s: %d computed, %d refused", dir, used, refused);
        cJSON_Delete(changes);
        cJSON_Delete(config);
}

static void check_family(const char *name)
{
        char dir[400];
        snprintf(dir, sizeof dir, "%s", data_at("families/%s", name));
        data_need(dir);
        check_folder(dir, name);
        if (data_is_own())
                check_changes(dir);
}

#define FAMILY(name)                 \
        TEST_DATA (family_##name) {  \
                check_family(#name); \
        }
#include "families.def"

/* Every model_type of models/families.lua has a folder; encoders are test_embed's. */
TEST (every_family_has_a_folder) {
        static const char *const tested[] = {
                "llama2c",
                "bert",
                "roberta",
                "nomic_bert",
#define FAMILY(name) #name,
#include "families.def"
        };
        char *text = slurp("models/families.lua"), word[64], file[64];
        int n = 0;
        for (const char *s = text; (s = strchr(s, '=')); s++) {
                const char *from = s - 1;
                while (from > text && (isalnum((unsigned char)from[-1]) || from[-1] == '_'))
                        from--;
                if (sscanf(s, "= \"%63[a-z0-9_]\"", file) != 1 ||
                    sscanf(from, "%63[a-z0-9_] =", word) != 1)
                        continue; /* an architecture, or a name in quotes */
                bool found = false;
                for (size_t i = 0; i < sizeof tested / sizeof *tested; i++)
                        found |= !strcmp(tested[i], word);
                CHECK_MSG(found, "%s: no row in tests/families.def", word);
                n++;
        }
        CHECK(n > 35);
        free(text);
}

static Model *llama2c_model(const char *path)
{
        Llama2cConfig c;
        char json[300];
        CHECK_MSG(!llama2c_config(path, &c, &err), "%s", err.msg);
        snprintf(json, sizeof json,
                 "{\"dim\":%d,\"hidden_dim\":%d,\"n_layers\":%d,\"n_heads\":%d,\"n_kv_heads\":%d,"
                 "\"vocab_size\":%d,\"seq_len\":%d,\"shared\":%s}",
                 c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.seq_len,
                 c.shared ? "true" : "false");
        return family("llama2c", json, NULL);
}

static double worst_logit(Loaded *l, const char *ids_path, const char *logits_path, int n,
                          int vocab)
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
                worst = worse(worst, fabs(got[i] - want));
        }
        eval_free(e);
        free(raw);
        return worst;
}

/* A model in llama2.c's form. */
TEST_DATA (llama2c_file) {
        const bool own = data_is_own();
        const char *path = data_at(own ? "models/story/story.bin"
                                       : "models/stories260K/stories260K.bin");
        data_need(path);
        Loaded l = load(llama2c_model(path), path);
        CHECK(n_params(l.m) == (own ? 75504 : 260032));
        double worst = worst_logit(&l,
                                   data_at(own ? "expected/story_ids.txt"
                                               : "expected/stories260K_bos_ids.txt"),
                                   data_at(own ? "expected/story_logits.f32"
                                               : "expected/stories260K_bos_logits32.f32"),
                                   own ? 16 : 32, 512);
        CHECK_MSG(worst < (own ? 1e-5 : 1e-3), "logits differ by %g", worst);
        unload(&l);
}

/* The same model from Hugging Face's names (rotate-half) and from llama2.c's (interleaved). */
TEST_DATA (hf_and_llama2c) {
        static const Defines eps = { { "eps=1e-6" } };
        const bool own = data_is_own();
        for (int i = 0; i < 2; i++) {
                const char *dir = data_at(own ? "models/story" : "models/tinystories656k");
                const char *path =
                        !i ? dir
                           : data_at(own ? "models/story/story.bin"
                                         : "models/tinystories656k/ts656k_llama2c_v0.bin");
                data_need(path);
                Loaded l = load(i ? llama2c_model(path) : hf_model(path, own ? NULL : &eps), path);
                if (i && !own) /* llama2.c's format has no epsilon: it is 1e-5 */
                        for (Ref r = 1; r < l.m->graph->n_nodes; r++)
                                if (l.m->graph->node[r].op == OP_RMSNORM)
                                        l.m->graph->node[r].a.num.x = 1e-6;
                double worst = worst_logit(&l,
                                           data_at(own ? "expected/story_ids.txt"
                                                       : "expected/ts656k_p0_ids.txt"),
                                           data_at(own ? "expected/story_logits.f32"
                                                       : "expected/ts656k_p0_logits16.f32"),
                                           16, own ? 512 : 2048);
                CHECK_MSG(worst < (own ? 1e-5 : 1e-3), "%s: logits differ by %g", path, worst);
                unload(&l);
        }
}

/* The loss of llama2.c's version 2, whose weights are decoded: near that of the float32 weights,
 * and near runq's, which rounds activations too. */
TEST_SHARED(llama2c_q80_loss)
{
        static const struct {
                const char *path, *ids;
                double whole, runq;
        } m[] = { { "models/stories260K/stories260K_q80_gs4.bin",
                    "expected/stories260K_nll_sample_ids.txt", 1.238555, 1.240722 },
                  { "models/tinystories656k/ts656k_llama2c_q80_gs64.bin",
                    "expected/ts656k_nll_sample_ids.txt", 2.781337, 2.777114 } };
        for (int i = 0; i < 2; i++) {
                double ids[512];
                char *text = slurp(data_at("%s", m[i].ids)), *at = text, *end;
                int n = 0;
                int64_t count;
                for (double x; n < 512 && (x = strtod(at, &end), end != at); at = end)
                        ids[n++] = x;
                free(text);
                Loaded l = load(llama2c_model(data_at("%s", m[i].path)), data_at("%s", m[i].path));
                Eval *e = evaluate(&l, 1, n - 1, ids, ids + 1);
                const double loss = *eval_output(e, "loss", &count);
                CHECK_MSG(fabs(loss - m[i].whole) < 3e-3 && fabs(loss - m[i].runq) < 4e-3,
                          "%s: loss %.6f, float32 weights %.6f, runq %.6f", m[i].path, loss,
                          m[i].whole, m[i].runq);
                eval_free(e);
                unload(&l);
        }
}

/* lhk_gpt against another forward pass of that model. */
TEST_DATA (lhk_gpt_vectors) {
        static const Defines d = { { "vocab=10", "ctx=5", "n_layer=2", "n_embd=4", "n_head=2",
                                     "n_ff=8", "tied=false" } };
        static const struct {
                const char *part, *file;
        } outer[] = {
                { "tok.weight", "token_embedding" },
                { "pos.weight", "pos_embedding" },
                { "norm.weight", "final_ln_gamma" },
                { "norm.bias", "final_ln_beta" },
                { "logits.weight", "lm_head_weight" },
        }, inner[] = {
                { "attn.norm.weight", "ln1_gamma" },
                { "attn.norm.bias", "ln1_beta" },
                { "attn.q.weight", "mhsa_w_q" },
                { "attn.k.weight", "mhsa_w_k" },
                { "attn.v.weight", "mhsa_w_v" },
                { "attn.out.weight", "mhsa_w_o" },
                { "attn.out.bias", "mhsa_w_o_bias" },
                { "mlp.norm.weight", "ln2_gamma" },
                { "mlp.norm.bias", "ln2_beta" },
                { "mlp.up.weight", "mlp_w1" },
                { "mlp.up.bias", "mlp_b1" },
                { "mlp.down.weight", "mlp_w2" },
                { "mlp.down.bias", "mlp_b2" },
        };
        static const double ids[4] = { 1, 4, 2, 7 };
        double v[64];
        int64_t count;
        Model *m = lua("models/lhk_gpt.lua", &d);
        EvalCtx c = { .sizes = { { 1, 4, 4 } }, .share = 1, .inv_tokens = 0.25, .n_micro = 1 };
        Eval *e = eval_new(m->graph, &c);
        for (Ref r = 1; r < m->graph->n_nodes; r++) {
                const Node *n = NODE(m->graph, r);
                char name[120] = "", *dot;
                int layer;
                if (n->op != OP_PARAM)
                        continue;
                const int64_t count_of = type_elems(&n->type).n;
                for (int i = 0; i < 5; i++)
                        if (!strcmp(n->name, outer[i].part))
                                snprintf(name, sizeof name, "gpt_forward_multi_token_test_%s",
                                         outer[i].file);
                for (int i = 0; i < 13 && sscanf(n->name, "blk%d", &layer) == 1; i++)
                        if ((dot = strchr(n->name, '.')) && !strcmp(dot + 1, inner[i].part))
                                snprintf(name, sizeof name,
                                         "gpt_forward_multi_token_test_layer_%d_%s", layer,
                                         inner[i].file);
                CHECK_MSG(*name && count_of <= 64, "no tensor is for %s", n->name);
                float *w = vector_of(name, (size_t)count_of);
                for (int64_t k = 0; k < count_of; k++)
                        v[k] = w[k];
                free(w);
                eval_set(e, n->name, v, count_of);
        }
        float *want = vector_of("gpt_forward_multi_token_test_logits", 40);
        eval_set(e, "ids", ids, 4);
        eval_set(e, "targets", ids, 4);
        eval_run(e);
        const double *got = eval_output(e, "logits", &count);
        for (int i = 0; i < 40; i++)
                CHECK_MSG(fabs(got[i] - want[i]) < 1e-6, "logit %d is %g, not %g", i, got[i],
                          want[i]);
        CHECK(count == 40);
        free(want);
        eval_free(e);
        model_free(m);
}

/* 12 queries against 16 keys: the queries are the last 12 of 16 tokens, the first four's are not
 * allowed to see anything. In double precision: models with masks are not decoded, and `tgc check`
 * compares devices with this. */
TEST_DATA (attention_with_a_mask) {
        enum { N = 4, Q = 12, S = 16, D = 64 };
        static const Defines d = { { "what=sdpa", "rows=64", "width=64", "ctx=16" } };
        static const struct {
                const char *name;
                int from, width;
        } in[] = { { "q", Q, D }, { "k", S, D }, { "v", S, D }, { "mask", Q, S } };
        double ids[N * S];
        int64_t count;
        Model *m = lua("tests/e2e/infer/vectors.lua", &d);
        EvalCtx c = { .sizes = { { N, S, S } }, .share = 1, .inv_tokens = 1, .n_micro = 1 };
        Eval *e = eval_new(m->graph, &c);
        for (int i = 0; i < 4; i++) {
                const int n = in[i].from * in[i].width;
                char name[20];
                snprintf(name, sizeof name, "sdpa_%s", in[i].name);
                float *v = vector_of(name, (size_t)(N * n));
                double *all = calloc((size_t)(N * S * in[i].width), sizeof *all);
                for (int k = 0; k < N * n; k++)
                        all[k / n * S * in[i].width + (S - in[i].from) * in[i].width + k % n] =
                                v[k];
                eval_set(e, in[i].name, all, (int64_t)N * S * in[i].width);
                free(all);
                free(v);
        }
        for (int i = 0; i < N * S; i++)
                ids[i] = i;
        eval_set(e, "ids", ids, N * S);
        eval_run(e);
        const double *got = eval_output(e, "logits", &count);
        float *want = vector_of("sdpa_out", N * Q * D);
        CHECK(count == N * S * D);
        for (int k = 0; k < N * Q * D; k++) {
                double y = got[k / (Q * D) * S * D + (S - Q) * D + k % (Q * D)];
                CHECK_MSG(fabs(y - want[k]) < 1e-5, "number %d is %g, not %g", k, y, want[k]);
        }
        free(want);
        eval_free(e);
        model_free(m);
}

typedef struct Batch {
        int n, tokens;
        double *ids, *targets;
} Batch;

/* The batch of a run's first step: characters from the starts, and those after them. */
static Batch first_batch(const char *run, int tokens)
{
        char *text = slurp(
                data_at(data_is_own() ? "text/stories.txt" : "text/tinyshakespeare.txt"));
        int id[256] = { 0 }, k = 0;
        Npy starts = { 0 };
        for (const char *s = text; *s; s++)
                id[(unsigned char)*s] = 1;
        for (int c = 0; c < 256; c++)
                id[c] = id[c] ? k++ : -1;
        CHECK(k == 65);
        CHECK_MSG(!npy_open(&starts, data_at("training/%s/starts.npy", run), &err), "%s", err.msg);
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

/* The first step of a training run in PyTorch: mean cross-entropy, balance loss, and every
 * gradient, clipped to norm 1, after the passes that come before kernels.  The gradients' file may
 * spell names in its own way. */
static void check_step(Model *m, Model *spelled, const char *weights, const char *run, int tokens,
                       double aux_coef)
{
        char *csv;
        int64_t count;
        double lr, want, want_aux, want_norm, norm = 0, worst = 0;
        run_passes(m, run);
        run_passes(spelled, run);
        Loaded l = load(m, weights), g;
        g = load(spelled, data_at("training/%s/grad_step0_clipped.safetensors", run));
        csv = slurp(data_at("training/%s/loss.csv", run));
        CHECK(sscanf(strchr(csv, '\n') + 1, "0,%lf,%lf,%lf,%lf", &lr, &want, &want_aux,
                     &want_norm) == 4);
        free(csv);
        Batch b = first_batch(run, tokens);
        Eval *e = evaluate(&l, b.n, tokens, b.ids, b.targets);
        double aux = aux_coef ? eval_output(e, "aux_loss", &count)[0] : 0;
        double loss = eval_output(e, "loss", &count)[0] - aux_coef * aux;
        CHECK_MSG(fabs(loss - want) < 1e-5, "%s: loss %.8f, not %.8f", run, loss, want);
        CHECK_MSG(fabs(aux - want_aux) < 1e-5, "%s: balance loss %.8f, not %.8f", run, aux,
                  want_aux);
        CHECK(l.n == g.n);
        for (int i = 0; i < l.n; i++) {
                const double *d = eval_grad(e, l.p[i].name, &count);
                CHECK_MSG(d && !strcmp(l.p[i].name, g.p[i].name), "%s: no gradient of %s", run,
                          l.p[i].name);
                for (int64_t k = 0; k < count; k++)
                        norm += d[k] * d[k];
        }
        norm = sqrt(norm);
        CHECK_MSG(fabs(norm - want_norm) < 1e-4, "%s: gradient's norm %.8f, not %.8f", run, norm,
                  want_norm);
        for (int i = 0; i < l.n; i++) {
                const double *d = eval_grad(e, l.p[i].name, &count);
                for (int64_t k = 0; k < count; k++)
                        worst = worse(worst, fabs(d[k] / fmax(norm, 1) - g.data[i][k]));
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
        const char *path = data_at("training/%s/init", run);
        data_need(path);
        check_step(hf_model(path, NULL), hf_model(path, spelling), path, run, tokens, aux_coef);
}

TEST_DATA (first_step_gpt2) {
        check_hf_step("gpt2", 48, NULL, 0);
}
TEST_DATA (first_step_llama) {
        check_hf_step("llama_accum2", 48, NULL, 0);
}

TEST_DATA (first_step_mixtral) {
        static const Defines stacked = { { "spelling=stacked" } };
        check_hf_step("mixtral_aux", 32, &stacked, 0.01);
}

TEST_DATA (first_step_naive) {
        const Defines d = { { "vocab=65", "ctx=32", "n_layer=2", "dropout=0",
                              data_is_own() ? "n_embd=32" : "n_embd=64" } };
        check_step(lua("models/naive_gpt.lua", &d), lua("models/naive_gpt.lua", &d),
                   data_at("training/naive_postnorm/init.safetensors"), "naive_postnorm", 32, 0);
}

TEST_MAIN
