/* test_experts.c: what the balance loss is for.  The router of a small mixture begins by sending
 * every token to the same two of eight experts.  Trained on text with the loss it comes to use all
 * of them; without it the others never get a gradient.
 *
 * Mixtral's loss, which ours is, adds the layers up before it asks for balance: an expert that one
 * layer leaves out another makes up for.  So of one layer every expert is owed, of two their sum.
 *
 * Usage is counted by the double-precision evaluator over the trained weights, from the offsets at
 * which each expert's begin. */
#include "e2e/infer/run.h"
#include "../cli/check/oracle.h"

enum {
        MAX_LAYERS = 2,
        E = 8,
        TOP_K = 2,
        VOCAB = 128,
        B = 8,
        T = 32,
        STEPS = 150,
        COUNTED = 8, /* batches of other text that usage is counted over */
        SLOTS = COUNTED * B * T * TOP_K
};
#define TEXT "tests/data/text/stories.txt"

typedef struct Usage {
        int64_t slots[MAX_LAYERS][E];
} Usage;
typedef struct Outcome {
        Usage before, after;
        double first_loss, last_loss, first_aux, last_aux;
} Outcome;

/* ---- data ---- */

typedef struct Data {
        char *text;
        size_t n;
} Data;

/* Window i: (B,T) ids and the ids that follow them. */
static void window(const Data *d, int i, int *ids, int *targets)
{
        for (int b = 0; b < B; b++) {
                size_t at = (size_t)(i * B + b) * 7919 % (d->n - T - 1);
                for (int t = 0; t < T; t++) {
                        ids[b * T + t] = d->text[at + (size_t)t] & 127;
                        targets[b * T + t] = d->text[at + (size_t)t + 1] & 127;
                }
        }
}

/* ---- the router ---- */

/* By so much that no token goes elsewhere. */
static void favour_two(Trial *r)
{
        const Manifest *m = session_manifest(r->s);
        int found = 0;
        Err e = { 0 };
        for (int i = 0; i < m->n_params; i++)
                if (strstr(m->param[i].name, "router.bias")) {
                        float bias[E] = { 2, 2 };
                        CHECK(m->param[i].count == E);
                        must(session_param_set(r->s, i, bias, &e), &e);
                        found++;
                }
        CHECK(found);
}

static void set_leaves(Trial *r, Oracle *o, const int *ids, const int *targets)
{
        const Manifest *m = session_manifest(r->s);
        double at[2][B * T];
        Err e = { 0 };
        for (int i = 0; i < m->n_params; i++) {
                size_t n = m->param[i].count;
                float *f = malloc(n * sizeof *f);
                double *x = malloc(n * sizeof *x);
                must(session_param_get(r->s, i, f, &e), &e);
                for (size_t k = 0; k < n; k++)
                        x[k] = f[k];
                must(oracle_set(o, m->param[i].name, x, (int64_t)n, &e), &e);
                free(f);
                free(x);
        }
        for (int i = 0; i < B * T; i++) {
                at[0][i] = ids[i];
                at[1][i] = targets[i];
        }
        must(oracle_set(o, "ids", at[0], B * T, &e), &e);
        must(oracle_set(o, "targets", at[1], B * T, &e), &e);
}

/* The whole model, which also returns where each layer's experts begin: usage0, usage1; caller
 * frees. */
static char *model_text(const Trial *r, int layers)
{
        const Section *ir = plan_find(&r->plan, "ir");
        CHECK(ir);
        char *text = malloc(ir->size + 200), *end;
        memcpy(text, ir->data, ir->size);
        text[ir->size] = 0;
        /* of the first graph, whose last line it returns by */
        CHECK((end = strstr(text, "\n}\n")));
        for (int l = 0; l < layers; l++)
                end += sprintf(end, ", usage%d=%%blk%d.mlp.offs", l, l);
        strcpy(end, "\n}\n");
        return text;
}

/* How many (token, choice) slots of COUNTED batches each expert gets. */
static Usage count(Trial *r, int layers, const Data *d)
{
        int ids[B * T], targets[B * T];
        char *text = model_text(r, layers), name[16];
        Usage u = { 0 };
        Oracle *o;
        Err e = { 0 };
        int64_t n;
        must(oracle_new(&o, text, strlen(text), false, B, T, session_rt(r->s)->seed, NULL, &e), &e);
        for (int batch = 0; batch < COUNTED; batch++) {
                window(d, 1000 + batch, ids, targets);
                set_leaves(r, o, ids, targets);
                must(oracle_run(o, &e), &e);
                for (int l = 0; l < layers; l++) {
                        snprintf(name, sizeof name, "usage%d", l);
                        const double *offs = oracle_output(o, name, &n);
                        CHECK(offs && n == E + 1 && offs[E] == SLOTS / COUNTED);
                        for (int k = 0; k < E; k++)
                                u.slots[l][k] += (int64_t)(offs[k + 1] - offs[k]);
                }
        }
        oracle_free(o);
        free(text);
        return u;
}

/* Of the least used expert, all layers taken together. */
static int least(const Usage *u)
{
        int64_t x = INT64_MAX;
        for (int k = 0; k < E; k++) {
                int64_t sum = 0;
                for (int l = 0; l < MAX_LAYERS; l++)
                        sum += u->slots[l][k];
                x = sum < x ? sum : x;
        }
        return (int)x;
}

/* ---- training ---- */

static Outcome train(int layers, const char *aux_coef)
{
        const char *define[] = { layers == 1 ? "n_layer=1" : "n_layer=2",
                                 "n_embd=32",
                                 "n_head=4",
                                 "n_kv_head=2",
                                 "head_dim=8",
                                 "n_ff=32",
                                 "vocab=128",
                                 "ctx=32",
                                 "n_expert=8",
                                 "top_k=2",
                                 "router_bias=true",
                                 aux_coef };
        int ids[B * T], targets[B * T];
        Outcome o = { 0 };
        Data d = { 0 };
        Trial r;
        TrainResult got;
        Err e = { 0 };
        must(file_read_text(TEXT, 1 << 24, &d.text, &d.n, &e), &e);
        run_compile(&r,
                    (BuildOptions) { .kind = MODEL_LUA,
                                     .model = "models/moe.lua",
                                     .define = define,
                                     .n_define = sizeof define / sizeof *define,
                                     .mode = BUILD_TRAIN,
                                     .opt = 3,
                                     .batch = B,
                                     .block = T },
                    NULL);
        run_start(&r, run_on_gpu() ? DEV_CUDA : DEV_CPU);
        favour_two(&r);
        o.before = count(&r, layers, &d);
        TrainStep in = { .B = B,
                         .T = T,
                         .n_micro = 1,
                         .ids = ids,
                         .targets = targets,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .lr = 5e-3,
                         .clip = 1 };
        for (in.step = 0; in.step < STEPS; in.step++) {
                window(&d, in.step, ids, targets);
                must(session_train_step(r.s, &in, &got, &e), &e);
                CHECK(!got.bad);
                if (in.step == 0) {
                        o.first_loss = got.loss;
                        o.first_aux = got.aux_loss;
                }
        }
        o.last_loss = got.loss;
        o.last_aux = got.aux_loss;
        o.after = count(&r, layers, &d);
        for (int l = 0; l < layers; l++)
                for (int k = 0; k < E; k++)
                        NOTE("%s: layer %d, expert %d: %d slots, then %d", aux_coef, l, k,
                             (int)o.before.slots[l][k], (int)o.after.slots[l][k]);
        NOTE("%s: loss %.3f to %.3f, balance %.3f to %.3f", aux_coef, o.first_loss, o.last_loss,
             o.first_aux, o.last_aux);
        run_end(&r);
        free(d.text);
        return o;
}

/* The first batch's choices, and whether anything was learned. */
static void check_run(const Outcome *o, int layers)
{
        for (int l = 0; l < layers; l++)
                CHECK_MSG(o->before.slots[l][0] + o->before.slots[l][1] == SLOTS,
                          "layer %d begins with other experts", l);
        CHECK_MSG(o->last_loss < o->first_loss - 1, "loss %.3f after %.3f", o->last_loss,
                  o->first_loss);
}

/* Even use is SLOTS / E a layer; the balance loss of an even choice of two is 2. */
static void check_balance(int layers)
{
        Outcome o = train(layers, "aux_coef=0.02");
        check_run(&o, layers);
        CHECK_MSG(least(&o.after) >= layers * SLOTS / E / 4, "an expert gets %d of %d slots",
                  least(&o.after), layers * SLOTS);
        CHECK_MSG(o.first_aux > 4 && o.last_aux < 2.5, "balance loss %.3f after %.3f", o.last_aux,
                  o.first_aux);
}

TEST (the_balance_loss_brings_every_expert_into_use) {
        check_balance(1);
}
TEST (and_over_two_layers_taken_together) {
        check_balance(2);
}

/* So that was the loss's doing. */
TEST (without_it_experts_stay_unused) {
        Outcome o = train(1, "aux_coef=0");
        check_run(&o, 1);
        CHECK_MSG(least(&o.after) == 0, "all experts are used all the same");
}

TEST_MAIN
