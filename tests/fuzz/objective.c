/* objective.c: an objective in Lua, with little time: its loss on a small model, and what it says
 * of two continuations. */
#include "model.h"

static const char small[] =
        "{\"tgc_graph\":1,\"name\":\"small\",\"ctx\":8,\"nodes\":[{\"name\":\"ids\","
        "\"op\":\"input\",\"type\":\"i32[B,T]\"},{\"name\":\"targets\",\"op\":\"input\","
        "\"type\":\"i32[B,T]\"},{\"name\":\"wte.weight\",\"op\":\"param\",\"attr\":{\"init\":2,"
        "\"a\":0.02,\"decay\":1},\"type\":\"f32[7,4]\"},{\"name\":\"wte\",\"op\":\"gather\","
        "\"in\":[\"wte.weight\",\"ids\"],\"type\":\"f32[B,T,4]\"},{\"name\":\"gelu\","
        "\"op\":\"gelu\",\"in\":[\"wte\"],\"type\":\"f32[B,T,4]\"},{\"name\":\"out.weight\","
        "\"op\":\"param\",\"attr\":{\"init\":2,\"a\":0.02,\"decay\":1},\"type\":\"f32[7,4]\"},"
        "{\"name\":\"out.bias\",\"op\":\"param\",\"type\":\"f32[7]\"},{\"name\":\"out.product\","
        "\"op\":\"matmul\",\"in\":[\"gelu\",\"out.weight\"],\"attr\":{\"tb\":1},\"type\":\"f32[B,"
        "T,7]\"},{\"name\":\"out\",\"op\":\"add\",\"in\":[\"out.product\",\"out.bias\"],"
        "\"type\":\"f32[B,T,7]\"},{\"name\":\"loss.token\",\"op\":\"ce\",\"in\":[\"out\","
        "\"targets\"],\"type\":\"f32[B,T]\"},{\"name\":\"loss.flat\",\"op\":\"reshape\","
        "\"in\":[\"loss.token\"],\"type\":\"f32[B*T]\"},{\"name\":\"loss.sum\",\"op\":\"sum\","
        "\"in\":[\"loss.flat\"],\"type\":\"f32[1]\"},{\"name\":\"loss.total\",\"op\":\"reshape\","
        "\"in\":[\"loss.sum\"],\"type\":\"f32[]\"},{\"name\":\"inv_tokens\",\"op\":\"inv_tokens\","
        "\"type\":\"f32[]\"},{\"name\":\"loss\",\"op\":\"mul\",\"in\":[\"loss.total\","
        "\"inv_tokens\"],\"type\":\"f32[]\"}],\"outputs\":{\"logits\":\"out\",\"loss\":\"loss\"}}";

static int embed(void *user, const char *const *text, const size_t *bytes, int n, float **v,
                 int *width, char *why, size_t cap)
{
        (void)user, (void)text;
        *width = 2;
        if (bytes[0] > 20)
                return snprintf(why, cap, "too long"), 1;
        HOLDS(*v = calloc((size_t)n * 2, sizeof **v));
        return 0;
}

/* An objective's loss may do without the tokens, or their targets; a model's own may not, and is
 * refused when it is read. */
static bool reads_all(const Model *m)
{
        Text json = { 0 };
        Diag d = { 0 };
        bool volatile ok = true;
        write_json(m, &json);
        if (DIAG_CATCH(&d)) {
                model_free(read_json_text(json.s, json.n, "again.json"));
                diag_end(&d);
        } else {
                HOLDS(strstr(d.msg, "the loss, ") && strstr(d.msg, "not depend on %"));
                ok = false;
        }
        text_free(&json);
        return ok;
}

/* Its loss in place of the model's. */
static void apply(const char *spec, const ReadOptions *o)
{
        Model *volatile m;
        Diag d = { 0 };
        READS(m, read_json_text(small, sizeof small - 1, "small.json"));
        HOLDS(m);
        if (DIAG_CATCH(&d)) {
                objective_apply(m, spec, o);
                diag_end(&d);
                if (reads_all(m))
                        use_model(m);
        } else {
                HOLDS(d.code && *d.msg);
        }
        model_free(m);
}

static void judge(Objective *x)
{
        static const int ids[2] = { 1, 2 };
        ObjectiveGroup g = { .prompt = "a", .n_prompt = 1, .n = 2 };
        ObjectiveValues *v = malloc(sizeof *v);
        const char *why;
        size_t n_said;
        HOLDS(v);
        for (int i = 0; i < 2; i++) {
                g.text[i] = i ? "b c" : "";
                g.n_text[i] = i ? 3 : 0;
                g.ids[i] = ids;
                g.tokens[i] = 1 + i;
        }
        objective_embedder(x, embed, NULL);
        HOLDS(!objective_judge(x, &g, v, &why) || *why);
        objective_said(x, &n_said);
        free(v);
}

FUZZ(objective)
{
        const ReadOptions o = { .seconds = FUZZ_SECONDS };
        Objective *volatile x;
        char spec[80], more[100];
        snprintf(spec, sizeof spec, "%s", file_of_bytes(data, n));
        snprintf(more, sizeof more, "%s,weight=1", spec);
        apply(n & 1 ? more : spec, &o); /* one of the two: this takes most of the time */
        READS(x, objective_open(spec, &o));
        if (x)
                judge(x);
        objective_close(x);
}
