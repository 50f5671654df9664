/* test_read.c: every model of models/ as Lua and JSON give it, and what the passes and the compiler
 * make of it. */
#include "model_files.h"
#include "read_models.h"

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

/* Every model of models/ at its own size and at a tiny one --------------------- */

static const struct {
        const char *path;
        Defines tiny;
        int64_t count;
} all[] = {
        { "models/gpt.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "dropout=0.1" } },
          124439808 },
        { "models/llama.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=44", "qk_norm=true", "qkv_bias=true", "mlp_bias=true",
              "window=8" } },
          1235814400 },
        { "models/moe.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24", "n_expert=4", "top_k=3", "router_bias=true" } },
          46702792704 },
        { "models/naive_gpt.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "variant=custom" } },
          819532 },
        { "models/naive_moe.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4", "n_expert=4" } },
          481981631 },
        { "models/lhk_gpt.lua",
          { { "vocab=10", "ctx=5", "n_layer=2", "n_embd=4", "n_head=2", "n_ff=8", "tied=false" } },
          0 },
        { "models/gemma2.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          2614341888 },
        { "models/gpt_neox.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "n_ff=24" } },
          162322944 },
        { "models/falcon.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32", "n_ff=24", "bias=true",
              "n_kv_head=2", "new_decoder=true", "n_norm=2" } },
          6921720704 },
        { "models/mpt.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=6", "n_embd=48" } },
          6649286656 },
        { "models/smollm3.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          3075098624 },
        { "models/olmo.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          7298617344 },
        { "models/stablelm.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24", "qk_norm=each" } },
          1644515328 },
        { "models/granite.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          2533531648 },
        { "models/phi.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          2779683840 },
        { "models/starcoder2.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          3030371328 },
        { "models/gemma.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24", "pattern=s", "turns=l" } },
          999885952 },
        { "models/cohere.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24", "qk_norm=heads" } },
          8028033024 },
        { "models/opt.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=4", "n_embd=32",
              "head_dim=8", "n_ff=24", "n_word=16" } },
          125239296 },
        { "models/bloom.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=4", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          559214592 },
        { "models/gptj.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=4", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          6050882784 },
        { "models/exaone4.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          32003216384 },
        { "models/glm4.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          9400279040 },
        { "models/ernie.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          360748032 },
        { "models/hunyuan.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24" } },
          7504568320 },
        { "models/sparse.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=32",
              "head_dim=8", "n_ff=24", "n_expert=4", "top_k=2", "n_ff_expert=16",
              "n_ff_shared=24" } },
          14315784192 },
        { "models/deepseek.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4", "n_kv_head=4",
              "head_dim=8", "nope_dim=8", "v_dim=12", "kv_rank=16", "n_ff=24", "n_expert=8",
              "top_k=3", "n_ff_expert=8", "n_shared=1", "n_dense=0", "n_group=4", "top_group=2",
              "sigmoid=true" } },
          15706484224 },
        { "models/gptoss.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4", "n_kv_head=2",
              "head_dim=8", "n_ff=16", "n_expert=4", "top_k=2", "window=8", "pattern=s" } },
          20914757184 },
        { "models/tinylm.lua",
          { { "vocab=65", "ctx=32", "n_layer=2", "n_head=4", "n_embd=32" } },
          0 },
};
enum { N_ALL = sizeof all / sizeof *all };

/* bert.lua and nomic_bert.lua give vectors, which test_embed compares. */
TEST (every_model_has_a_row) {
        for (const ModelFile *f = model_files; f->name; f++) {
                char path[80];
                snprintf(path, sizeof path, "models/%s", f->name);
                bool found = strstr(f->name, "bert.lua") || !is_model_file(path);
                for (int i = 0; i < N_ALL; i++)
                        found |= !strcmp(strrchr(all[i].path, '/') + 1, f->name);
                CHECK_MSG(found, "models/%s: the table above has no row", f->name);
        }
}

TEST (parameter_counts) {
        for (int i = 0; i < N_ALL; i++) {
                Model *m = lua(all[i].path, NULL);
                CHECK_MSG(!all[i].count || n_params(m) == all[i].count,
                          "%s has %lld parameters, not %lld", all[i].path, (long long)n_params(m),
                          (long long)all[i].count);
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

TEST (text_and_json_round_trip) {
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
                CHECK_MSG(!strcmp(json.s, again.s), "%s: JSON through JSON differs",
                          all[i / 2].path);
                CHECK(m->graph->next_id == back->graph->next_id && m->vocab == back->vocab &&
                      m->ctx == back->ctx);
                CHECK(!strcmp(m->name, back->name));
                for (Ref r = 1; r < m->graph->n_nodes; r++)
                        if (m->graph->node[r].op != OP_CONST)
                                CHECK(!memcmp(&m->graph->node[r].a, &back->graph->node[r].a,
                                              sizeof(Attr)));
                text_free(&json);
                text_free(&again);
                text_free(&text);
                free(one);
                free(two);
                model_free(m);
                model_free(back);
        }
}

TEST (embedded_models_are_the_files) {
        for (int i = 0; i < N_ALL; i++) {
                char name[64];
                Model *a = lua(all[i].path, NULL), *b;
                snprintf(name, sizeof name, "%.*s", (int)(strlen(all[i].path) - 11),
                         all[i].path + 7);
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

/* Equal layers must read the same once the layer's prefix is gone: equal kernels are found by their
 * text. */
TEST (layers_differ_in_prefix_only) {
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

TEST (passes_take_every_model) {
        for (int i = 0; i < N_ALL; i++) {
                Model *m = lua(all[i].path, &all[i].tiny);
                bool fused = false;
                run_passes(m, all[i].path);
                for (Ref r = 1; r < m->graph->n_nodes; r++)
                        fused |= m->graph->node[r].op == OP_LINEAR_CE;
                fused |= strstr(all[i].path, "gemma2") != NULL; /* its logits pass a tanh */
                CHECK_MSG(fused, "%s: the loss was not fused", all[i].path);
                model_free(m);
        }
}

static void compile_both(Model *m, Compiled *out)
{
        CompileOptions o = { .dtype = DT_BF16,
                             .opt = 3,
                             .infer = true,
                             .train = true,
                             .batch = 2,
                             .ctx = 32,
                             .block = 16,
                             .cpu = true,
                             .cuda = true };
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
TEST (lua_and_json_compile_alike) {
        static Compiled a, b;
        char msg[2048] = "";
        Text json = { 0 };
        Model *m = lua("models/llama.lua", &all[1].tiny), *back;
        split_documents(m, 7);
        write_json(m, &json);
        back = from_json(json.s, msg);
        CHECK_MSG(back, "%s", msg);
        CHECK(back->documents == 7);
        compile_both(m, &a);
        compile_both(back, &b);
        const Text *x[] = { &a.manifest,   &a.consts,    &a.ir,       &a.program[0],
                            &a.program[1], &a.source[0], &a.source[1] };
        const Text *y[] = { &b.manifest,   &b.consts,    &b.ir,       &b.program[0],
                            &b.program[1], &b.source[0], &b.source[1] };
        for (int i = 0; i < 7; i++)
                CHECK_MSG(x[i]->n && x[i]->n == y[i]->n && !memcmp(x[i]->s, y[i]->s, x[i]->n),
                          "part %d of the plan differs", i);
        text_free(&json);
        compiled_free(&a);
        compiled_free(&b);
        model_free(m);
        model_free(back);
}

TEST (ordered_and_loadable_twice) {
        Model *a = lua("tests/read/ok_order.lua", NULL), *b = lua("tests/read/ok_order.lua", NULL);
        char *x = print(a), *y = print(b);
        CHECK(!strcmp(x, y));
        CHECK_MSG(strstr(x, "%a = ") < strstr(x, "%b = ") &&
                          strstr(x, "%b = ") < strstr(x, "%zz = "),
                  "%s", x);
        free(x);
        free(y);
        model_free(a);
        model_free(b);
}

TEST_MAIN
