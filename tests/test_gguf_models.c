/* test_gguf_models.c: GGUF files as models: every architecture's logits against transformers',
 * every block type's values against the package gguf's (data/make_gguf.py), and what is refused. */
#include <math.h>
#include "../cli/load/gguf_model.h"
#include "../runtime/util/json.h"
#include "../runtime/weights/gguf.h"
#include "../runtime/weights/npy.h"
#include "eval_models.h"

static const Defines no_dropout = { { "dropout=0" } }; /* gpt2's configuration has some */

static int read_list(const char *path, const char *key, double *out, int most)
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

static Loaded open_model(const char *path, bool gpt2)
{
        GgufModel g;
        CHECK_MSG(!gguf_model(&g, path, false, &err), "%s", err.msg);
        Loaded l = load_named(family(NULL, g.config, gpt2 ? &no_dropout : NULL), path, g.names);
        gguf_model_free(&g);
        return l;
}

/* Logits of `ids` against transformers', or the last ones against expected.json. */
static void check_logits(const char *name)
{
        char path[200], folder[200];
        double ids[512], want[512], worst = 0;
        Npy all = { 0 };
        int64_t count, first = 0;
        snprintf(path, sizeof path, "tests/data/gguf/%s.gguf", name);
        const char *of = strcmp(name, "exaone4_windows") ? name : "exaone4";
        snprintf(folder, sizeof folder, "tests/data/families/%s/expected.json", of);
        int n = 40, n_want = read_list("tests/data/gguf/expected.json", name, want, 512);
        for (int i = 0; i < n; i++)
                ids[i] = (7 * i * i + 3 * i) % 512;
        if (strcmp(name, "kinds"))
                n = read_list(folder, "prompt_ids", ids, 64);
        Loaded l = open_model(path, !strcmp(name, "gpt2"));
        Eval *e = evaluate(&l, 1, n, ids, ids);
        const double *got = eval_output(e, "logits", &count);
        if (n_want) {
                first = count - n_want;
                CHECK(count == (int64_t)n * n_want);
        } else {
                snprintf(folder, sizeof folder, "tests/data/families/%s/expected_logits.npy", of);
                CHECK_MSG(!npy_open(&all, folder, &err), "%s", err.msg);
                first = count - all.count; /* of some families the last tokens alone */
                CHECK(first >= 0 && all.count >= 96);
        }
        for (int64_t i = first; i < count; i++) {
                const double x = n_want ? want[i - first] : all.u.f32[i - first];
                worst = worse(worst, fabs(got[i] - x) / (1 + fabs(x)));
        }
        npy_close(&all);
        eval_free(e);
        unload(&l);
        /* expected.json: double precision, six digits, but for gains that lost bits to plus 1; else
         * float32 arithmetic of some hundred products against double */
        CHECK_MSG(worst < (n_want ? 2e-6 : 2e-4), "%s: logits differ by %g", path, worst);
}

#define MODEL(name)                  \
        TEST (model_##name) {        \
                check_logits(#name); \
        }
MODEL(llama31)
MODEL(llama_tied_bias)
MODEL(mixtral)
MODEL(qwen2)
MODEL(qwen3)
MODEL(gpt_oss)
MODEL(qwen2_moe)
MODEL(deepseek_v2)
MODEL(deepseek_v3)
MODEL(qwen3_moe)
MODEL(gemma2)
MODEL(phi3)
MODEL(olmo2)
MODEL(smollm3)
MODEL(olmoe)
MODEL(starcoder2)
MODEL(stablelm)
MODEL(phi)
MODEL(olmo)
MODEL(glm4)
MODEL(exaone4)
MODEL(cohere)
MODEL(cohere2)
MODEL(glm)
MODEL(olmo3)
MODEL(ernie4_5)
MODEL(hunyuan_v1_dense)
MODEL(exaone4_windows)
MODEL(bloom)
MODEL(gpt2)
MODEL(gpt_neox)
MODEL(falcon)
MODEL(mpt)
MODEL(kinds)

/* The same parameters as the folder gives, bit for bit, where the file has the folder's weights. */
TEST (same_parameters) {
        static const char *const name[] = { "llama31", "olmo2", "phi3", "gpt2", "gpt_neox" };
        for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
                char path[200], folder[200];
                snprintf(path, sizeof path, "tests/data/gguf/%s.gguf", name[i]);
                snprintf(folder, sizeof folder, "tests/data/families/%s", name[i]);
                Loaded a = open_model(path, false), b = load(hf_model(folder, NULL), folder);
                CHECK(a.n == b.n);
                for (int k = 0; k < a.n; k++) {
                        int64_t n = 1;
                        for (int d = 0; d < a.p[k].rank; d++)
                                n *= a.p[k].dim[d];
                        CHECK(!strcmp(a.p[k].name, b.p[k].name));
                        CHECK_MSG(!memcmp(a.data[k], b.data[k], (size_t)n * sizeof(float)),
                                  "%s: %s differs", name[i], a.p[k].name);
                }
                unload(&a);
                unload(&b);
        }
}

/* 512 values of each type from random bytes, NaN and infinite scales among them. */
TEST (every_block_type) {
        Gguf *g;
        int n_types = 0;
        CHECK_MSG(!gguf_open(&g, "tests/data/gguf/blocks.gguf", &err), "%s", err.msg);
        for (int i = 0; i < gguf_n_tensors(g); i++) {
                const CkTensor *t = gguf_tensor(g, i);
                char plain[80];
                float got[512], want[512];
                if (t->dtype == CK_F32)
                        continue;
                snprintf(plain, sizeof plain, "%s.f32", t->name);
                const CkTensor *f = gguf_find_tensor(g, plain);
                CHECK(f && f->dtype == CK_F32 && f->rank == 2 && f->dim[0] == 2 &&
                      f->dim[1] == 256);
                CHECK(!strcmp(t->name, ck_dtype_name(t->dtype)));
                memcpy(want, f->data, sizeof want);
                CHECK(ck_convert(got, CK_F32, t->data, t->dtype, 512, 1));
                for (int k = 0; k < 512; k++)
                        CHECK_MSG(isnan(want[k]) ? isnan(got[k]) : !memcmp(&got[k], &want[k], 4),
                                  "%s: value %d is %a, not %a", t->name, k, got[k], want[k]);
                n_types++;
        }
        CHECK(n_types == 14);
        gguf_free(g);
}

/* ---- what metadata means ---- */

/* The configuration that `meta` makes, or the message that refuses it. */
static char *config_of(const char *meta, bool own, char msg[2048])
{
        Diag d;
        Text config = { 0 }, names = { 0 };
        d.source = NULL;
        *msg = 0;
        if (DIAG_CATCH(&d)) {
                read_gguf(meta, own, &config, &names);
                diag_end(&d);
        } else {
                CHECK(d.code == 3);
                snprintf(msg, 2048, "%s", d.msg);
        }
        text_free(&names);
        return config.s;
}

#define LLAMA                                                                                     \
        "\"general.architecture\":\"llama\",\"llama.context_length\":64,"                         \
        "\"llama.embedding_length\":32,\"llama.block_count\":1,\"llama.feed_forward_length\":64," \
        "\"llama.attention.head_count\":4,\"llama.attention.layer_norm_rms_epsilon\":1e-05"
#define TENSORS ",\"tensors\":{\"token_embd.weight\":{\"shape\":[96,32]}"
#define BLOCK ",\"blk.0.attn_q.weight\":{\"shape\":[32,32]}"

#define PHI3                                                                               \
        "\"general.architecture\":\"phi3\",\"phi3.context_length\":64,"                    \
        "\"phi3.embedding_length\":32,\"phi3.block_count\":1,"                             \
        "\"phi3.feed_forward_length\":64,\"phi3.attention.head_count\":4,"                 \
        "\"phi3.attention.layer_norm_rms_epsilon\":1e-05,\"phi3.rope.dimension_count\":8," \
        "\"phi3.rope.scaling.original_context_length\":16"
#define ATTN_FACTOR ",\"phi3.rope.scaling.attn_factor\":1.19"
#define LONG_FACTORS ",\"rope_factors_long.weight\":{\"shape\":[4],\"values\":[2,3,4,5]}"
#define SHORT_FACTORS ",\"rope_factors_short.weight\":{\"shape\":[4],\"values\":[1,1,1.5,1]}"

#define OLMO3(pattern)                                                                            \
        "\"general.architecture\":\"olmo2\",\"olmo2.context_length\":64,"                         \
        "\"olmo2.embedding_length\":32,\"olmo2.block_count\":1,\"olmo2.feed_forward_length\":64," \
        "\"olmo2.attention.head_count\":4,\"olmo2.attention.layer_norm_rms_epsilon\":1e-05,"      \
        "\"olmo2.attention.sliding_window\":8,\"olmo2.attention.sliding_window_pattern\":" pattern

/* V2 or V3 by the function of its gates */
#define DEEPSEEK(heads, key, value)                                                        \
        "\"general.architecture\":\"deepseek2\",\"deepseek2.context_length\":64,"          \
        "\"deepseek2.embedding_length\":32,\"deepseek2.block_count\":1,"                   \
        "\"deepseek2.feed_forward_length\":64,\"deepseek2.attention.head_count\":4,"       \
        "\"deepseek2.attention.head_count_kv\":" heads                                     \
        ",\"deepseek2.attention.layer_norm_rms_epsilon\":1e-06,"                           \
        "\"deepseek2.attention.kv_lora_rank\":16,\"deepseek2.attention.key_length\":" key  \
        ",\"deepseek2.attention.value_length\":" value                                     \
        ",\"deepseek2.rope.dimension_count\":8,\"deepseek2.leading_dense_block_count\":0," \
        "\"deepseek2.expert_count\":8,\"deepseek2.expert_used_count\":2,"                  \
        "\"deepseek2.expert_shared_count\":1,\"deepseek2.expert_feed_forward_length\":8,"  \
        "\"deepseek2.expert_weights_scale\":1.0"
#define K_B ",\"blk.0.attn_k_b.weight\":{\"shape\":[4,16,8]}"

TEST (metadata) {
        static const struct {
                const char *meta, *has;
        } cases[] = {
                { "{" LLAMA TENSORS BLOCK "}}", "\"num_key_value_heads\": 4" },
                { "{" LLAMA TENSORS BLOCK "}}", "\"tie_word_embeddings\": true" },
                { "{" LLAMA TENSORS BLOCK ",\"output.weight\":{\"shape\":[96,32]}}}",
                  "\"tie_word_embeddings\": false" },
                { "{" LLAMA ",\"llama.attention.head_count_kv\":[2,2]" TENSORS BLOCK "}}",
                  "\"num_key_value_heads\": 2" },
                { "{" LLAMA ",\"llama.rope.scaling.type\":\"linear\","
                  "\"llama.rope.scaling.factor\":2.0" TENSORS BLOCK "}}",
                  "\"rope_type\": \"linear\"" },
                { "{" LLAMA ",\"llama.rope.scale_linear\":4.0" TENSORS BLOCK "}}",
                  "\"factor\": 4" },
                { "{" LLAMA ",\"llama.rope.freq_base\":1000000.0" TENSORS BLOCK "}}",
                  "\"rope_theta\": 1000000" },
                { "{" LLAMA ",\"llama.expert_count\":4,\"llama.expert_used_count\":2" TENSORS BLOCK
                  "}}",
                  "\"model_type\": \"mixtral\"" },
                { "{" LLAMA ",\"tokenizer.ggml.eos_token_id\":7" TENSORS BLOCK "}}",
                  "\"eos_token_id\": 7" },
                { "{" LLAMA TENSORS BLOCK ",\"blk.0.attn_q.bias\":{\"shape\":[32]},"
                  "\"blk.0.ffn_up.bias\":{\"shape\":[64]}}}",
                  "\"attention_bias\": true" },
                { "{" DEEPSEEK("4", "16", "12") TENSORS BLOCK "}}", "\"q_lora_rank\": null" },
                { "{" PHI3 ATTN_FACTOR TENSORS BLOCK LONG_FACTORS SHORT_FACTORS "}}",
                  "\"long_factor\": [2, 3, 4, 5]" },
                { "{" PHI3 TENSORS BLOCK "}}", "\"original_max_position_embeddings\": 16" },
                { "{" OLMO3("[true]") TENSORS BLOCK "}}",
                  "\"layer_types\": [\"sliding_attention\"]" },
                { "{" OLMO3("1") TENSORS BLOCK "}}", "\"layer_types\": [\"full_attention\"]" },
                /* factors that are all 1 scale nothing */
                { "{" LLAMA TENSORS BLOCK
                  ",\"rope_freqs.weight\":{\"shape\":[4],\"values\":[1,1,1,1]}}}",
                  "\"model_type\": \"llama\"" },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                char msg[2048], *config = config_of(cases[i].meta, false, msg);
                CHECK_MSG(config, "%s", msg);
                CHECK_MSG(strstr(config, cases[i].has), "%s: %s", cases[i].has, config);
                model_free(family(NULL, config, NULL));
                free(config);
        }
}

TEST (metadata_refused) {
        static const struct {
                const char *meta, *says;
        } bad[] = {
                { "{\"tensors\":{}}", "general.architecture: is missing" },
                { "{\"general.architecture\":\"frob\",\"tensors\":{}}",
                  "no model is known for 'frob'; known are bert, bloom, chatglm" },
                { "{\"general.architecture\":\"llama\",\"tensors\":{}}",
                  "llama.context_length: is missing" },
                { "{" LLAMA ",\"tensors\":{}}", "tensor token_embd.weight: is missing" },
                { "{" LLAMA ",\"llama.frobnicate\":3" TENSORS "}}",
                  "llama.frobnicate: 3 is of no key that tgc knows of llama" },
                { "{" LLAMA ",\"llama.attention.head_count_kv\":[2,1]" TENSORS "}}",
                  "llama.attention.head_count_kv: differs from layer to layer" },
                { "{" LLAMA ",\"llama.attention.key_length\":0" TENSORS "}}",
                  "llama.attention.key_length: 0 should be a whole number" },
                { "{" LLAMA
                  ",\"llama.attention.key_length\":16,\"llama.attention.value_length\":8" TENSORS
                  "}}",
                  "llama.attention.value_length: 8 is not supported" },
                { "{" LLAMA ",\"llama.rope.scaling.type\":\"spiral\"" TENSORS "}}",
                  "llama.rope.scaling.type: \"spiral\" is a kind" },
                { "{" LLAMA ",\"llama.rope.dimension_count\":4" TENSORS "}}",
                  "llama.rope.dimension_count: 4 is not supported for llama, only the head's 8" },
                { "{" LLAMA TENSORS ",\"rope_freqs.weight\":{\"shape\":[4],\"values\":[1,2,3,4]}}}",
                  "tensor rope_freqs.weight: does not hold the factors" },
                { "{" LLAMA TENSORS ",\"rope_freqs.weight\":{\"shape\":[2],\"values\":[1,2]}}}",
                  "tensor rope_freqs.weight: is not 4 float32 numbers" },
                { "{" LLAMA ",\"llama.attention.causal\":false" TENSORS "}}",
                  "llama.attention.causal: false is not supported for llama, only true is" },
                { "{" LLAMA TENSORS ",\"blk.1.attn_q.weight\":{\"shape\":[32,32]}}}",
                  "llama.block_count: 1, and the file has no tensor of block 0" },
                { "{" DEEPSEEK("4", "16", "12") ",\"deepseek2.expert_gating_func\":2" TENSORS BLOCK
                                                "}}",
                  "deepseek2.expert_group_count: is missing" },
                { "{" DEEPSEEK("4", "16",
                               "12") ",\"deepseek2.expert_weights_norm\":true" TENSORS BLOCK "}}",
                  "deepseek2.expert_weights_norm: true is not supported beside softmax" },
                { "{" DEEPSEEK("4", "16", "12") ",\"deepseek2.expert_gating_func\":3" TENSORS BLOCK
                                                "}}",
                  "deepseek2.expert_gating_func: 3 is not supported" },
                { "{" DEEPSEEK("1", "16", "12") TENSORS BLOCK "}}",
                  "deepseek2.attention.head_count_kv: 1 is not supported for a file without "
                  "attn_k_b" },
                { "{" DEEPSEEK("4", "8", "12") TENSORS BLOCK "}}",
                  "deepseek2.attention.key_length: 8 leaves nothing" },
                { "{" DEEPSEEK("1", "24", "16") TENSORS K_B "}}",
                  "deepseek2.attention.key_length_mla: is missing" },
                { "{" DEEPSEEK("1", "16",
                               "16") ",\"deepseek2.attention.key_length_mla\":16,"
                                     "\"deepseek2.attention.value_length_mla\":12" TENSORS K_B "}}",
                  "deepseek2.attention.key_length: 16 is not supported for a file with attn_k_b, "
                  "only 24" },
                { "{" PHI3 ATTN_FACTOR TENSORS BLOCK SHORT_FACTORS "}}",
                  "tensor rope_factors_short.weight: needs the other factors" },
                { "{" PHI3 TENSORS BLOCK LONG_FACTORS SHORT_FACTORS "}}",
                  "rope.scaling.attn_factor" },
                { "{" PHI3 ATTN_FACTOR TENSORS BLOCK LONG_FACTORS
                  ",\"rope_factors_short.weight\":{\"shape\":[2],\"values\":[1,1]}}}",
                  "tensor rope_factors_short.weight: is not 4 float32 numbers" },
                { "{" OLMO3("[true,false]") TENSORS BLOCK "}}",
                  "olmo2.attention.sliding_window_pattern: has 2 values, and block_count is 1" },
                { "{" OLMO3("[1]") TENSORS BLOCK "}}",
                  "olmo2.attention.sliding_window_pattern: 1 in the list is not true or false" },
                { "{" OLMO3("0") TENSORS BLOCK "}}",
                  "olmo2.attention.sliding_window_pattern: 0 should be a whole number of at least "
                  "1" },
                { "{", "the metadata" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048], *config = config_of(bad[i].meta, false, msg);
                CHECK_MSG(!config && strstr(msg, bad[i].says), "%s: %s", bad[i].meta,
                          config ? config : msg);
        }
        char msg[2048];
        CHECK(!config_of("{\"general.architecture\":\"frob\",\"tensors\":{}}", true, msg) && !*msg);
}

/* ---- vocabulary and chat ---- */

TEST (tokenizer_of_a_file) {
        Tokenizer *ours, *same;
        ChatSource chat = { 0 };
        static const char text[] =
                "Once upon a time, Tim  saw a big red ball.\n\xc3\xa9\xe6\x97\xa5";
        int *a, *b, na, nb;
        const int *eos;
        CHECK_MSG(!gguf_tokenizer(&ours, "tests/data/gguf/kinds.gguf", 512, &err), "%s", err.msg);
        CHECK_MSG(!tokenizer_open(&same, "tests/data/models/story/tok.bin", 512, &err), "%s",
                  err.msg);
        CHECK(tokenizer_vocab(ours) == 512 && tokenizer_bos(ours) == 1 && tokenizer_adds_bos(ours));
        CHECK(tokenizer_eos(ours, &eos) == 1 && *eos == 2);
        CHECK(!tokenizer_encode(ours, text, strlen(text), 1, &a, &na, &err));
        CHECK(!tokenizer_encode(same, text, strlen(text), 1, &b, &nb, &err));
        CHECK(na == nb && !memcmp(a, b, (size_t)na * sizeof *a));
        free(a);
        free(b);
        tokenizer_free(ours);
        tokenizer_free(same);
        CHECK(gguf_tokenizer(&ours, "tests/data/gguf/kinds.gguf", 511, &err) == TGC_BAD_FILE &&
              strstr(err.msg, "tokenizer.ggml.tokens has 512, the model's vocabulary is 511"));
        CHECK(!gguf_tokenizer(&ours, "tests/data/gguf/mpt.gguf", 96, &err) && !ours);
        CHECK_MSG(!gguf_chat(&chat, "tests/data/gguf/kinds.gguf", &err), "%s", err.msg);
        CHECK(!strncmp(chat_template(&chat, "default"), "{% for m in messages %}", 23));
        CHECK(chat.n_tokens == 3 && !strcmp(chat.token[1].name, "eos_token") &&
              !strcmp(chat.token[1].text, "</s>"));
        chat_source_free(&chat);
}

TEST_MAIN
