/* test_documents.c: documents packed into rows train as if each had a row of its own.
 *
 * Rows hold several documents; in the other batch each has a row of its own and what is left of
 * that is filled up with tokens whose targets do not count.  Loss and gradients must be the same:
 * positions, windows and slopes begin anew with each document, and no gradient crosses from one to
 * the other. */
#include "e2e/infer/run.h"

enum { FIRST = 3, VOCAB = 29, MOST = 48 * 640 };

/* Document d lies in row row[d], after those before it there. */
typedef struct Layout {
        int T, rows, n;
        const int *row, *length;
} Layout;
typedef struct Batch {
        int ids[MOST], targets[MOST];
} Batch;

/* A row may begin in the middle of a text; all other documents begin with FIRST. */
static void batches(const Layout *l, Batch *packed, Batch *apart)
{
        unsigned rng = 5;
        int filled[8] = { 0 }, T = l->T;
        for (int i = 0; i < l->n * T; i++)
                apart->ids[i] = 0, apart->targets[i] = -1;
        for (int d = 0; d < l->n; d++)
                for (int t = 0; t < l->length[d]; t++) {
                        int at = l->row[d] * T + filled[l->row[d]]++;
                        rng = rng * 1664525u + 1013904223u;
                        int id = (int)(rng >> 8) % (VOCAB - FIRST - 1) + FIRST + 1;
                        packed->ids[at] = apart->ids[d * T + t] = t || at % T == 0 ? id : FIRST;
                        packed->targets[at] = apart->targets[d * T + t] = (int)(rng >> 16) % VOCAB;
                }
        for (int r = 0; r < l->rows; r++)
                CHECK(filled[r] == T);
}

typedef struct Model {
        const char *path, *dtype, *const *define;
        int n;
        bool emulate;
} Model;
typedef struct Learnt {
        double loss, eval;
        float *grads;
        uint64_t n;
} Learnt;

static Learnt learn(const Model *model, const Layout *lay, const Batch *x, bool split)
{
        static const int first = FIRST;
        int B = split ? lay->rows : lay->n, T = lay->T;
        Trial r;
        Learnt l = { 0 };
        TrainResult got;
        uint64_t counted;
        Err e = { 0 };
        run_compile(&r,
                    (BuildOptions) { .kind = MODEL_LUA,
                                     .model = model->path,
                                     .dtype = model->dtype,
                                     .define = (const char **)model->define,
                                     .n_define = model->n,
                                     .mode = BUILD_TRAIN,
                                     .opt = 3,
                                     .batch = B,
                                     .block = T,
                                     .cuda = model->emulate,
                                     .documents = split ? &first : NULL },
                    NULL);
        run_start(&r, run_on_gpu() ? DEV_CUDA : model->emulate ? DEV_EMULATE : DEV_CPU);
        const Manifest *m = session_manifest(r.s);
        CHECK(m->documents == (split ? FIRST : -1));
        must(session_eval(r.s, x->ids, x->targets, B, T, &l.eval, &counted, &e), &e);
        CHECK(counted == (uint64_t)(lay->rows * T));
        TrainStep in = { .B = B,
                         .T = T,
                         .n_micro = 1,
                         .ids = x->ids,
                         .targets = x->targets,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8 };
        must(session_train_step(r.s, &in, &got, &e), &e);
        l.loss = got.loss;
        l.n = m->n_train;
        l.grads = calloc(m->n_train, sizeof *l.grads);
        for (int i = 0; i < m->n_params; i++)
                if (m->param[i].trainable)
                        must(session_part_read(r.s, PART_GRAD, i, l.grads + m->param[i].offset, &e),
                             &e);
        run_end(&r);
        return l;
}

/* tolerance: of gradients, over the largest; a loss is the mean of many tokens. */
static void same_lesson(const Model *model, const Layout *lay, double tolerance)
{
        static Batch packed, apart;
        batches(lay, &packed, &apart);
        Learnt a = learn(model, lay, &packed, true), b = learn(model, lay, &apart, false);
        CHECK(a.n == b.n);
        CHECK_MSG(fabs(a.loss - b.loss) < tolerance / 5, "loss %.8f, apart %.8f", a.loss, b.loss);
        CHECK_MSG(fabs(a.eval - b.eval) < tolerance / 5, "loss of eval %.8f, apart %.8f", a.eval,
                  b.eval);
        double off = worst(a.grads, b.grads, a.n), size = largest(b.grads, b.n);
        CHECK_MSG(off <= tolerance * size, "gradients differ by %.3g of %.3g", off, size);
        NOTE("%s: loss %.8f and %.8f, gradients differ by %.3g of %.3g", model->path, a.loss,
             b.loss, off, size);
        free(a.grads);
        free(b.grads);
}

#define SMALL "vocab=29", "ctx=61", "n_layer=2", "n_embd=32", "n_head=4"
#define SAME(model, on_emulator, ...)                                                        \
        do {                                                                                 \
                static const char *const define[] = { SMALL, __VA_ARGS__ };                  \
                static const int row[] = { 0, 0, 0, 1, 1 }, length[] = { 7, 35, 19, 1, 60 }; \
                same_lesson(&(Model) { "models/" model ".lua", "f32", define,                \
                                       sizeof define / sizeof *define, on_emulator },        \
                            &(Layout) { 61, 2, 5, row, length }, 1e-5);                      \
        } while (0)

TEST (learned_positions) {
        SAME("gpt", false, "dropout=0");
}
TEST (rotary_positions) {
        SAME("llama", false, "n_kv_head=2", "head_dim=8", "n_ff=40");
}
TEST (windows) {
        SAME("llama", false, "n_kv_head=1", "head_dim=12", "n_ff=40", "window=9");
}
TEST (slopes) {
        SAME("mpt", false, "bias_max=8");
}
TEST (learned_positions_emulated) {
        SAME("gpt", true, "dropout=0");
}

/* Attention's second form on sm_90a, with query heads that share keys: a document is longer than
 * its ring of steps, and begins where the second half of a block's keys does. */
TEST (long_documents_on_a_gpu) {
        static const char *const define[] = { "vocab=29", "ctx=640",     "n_layer=1",   "n_embd=64",
                                              "n_head=4", "n_kv_head=2", "head_dim=64", "n_ff=64" };
        enum { ROWS = 8, EACH = 6 };
        static const int of_row[EACH] = { 5, 100, 420, 3, 70, 42 };
        int row[ROWS * EACH], length[ROWS * EACH];
        if (!run_on_gpu())
                SKIP("no GPU was asked for");
        for (int d = 0; d < ROWS * EACH; d++)
                row[d] = d / EACH, length[d] = of_row[(d / EACH + d) % EACH];
        same_lesson(&(Model) { "models/llama.lua", "bf16", define, sizeof define / sizeof *define,
                               true },
                    &(Layout) { 640, ROWS, ROWS * EACH, row, length }, 2e-2);
}

TEST (where_documents_begin_and_end) {
        static const char *const define[] = { SMALL };
        static const int first = FIRST, ids[2 * 5] = { 9, 9, 3, 9, 3, 3, 3, 9, 9, 9 },
                         want[2 * 5 * 2] = { 0, 2, 0, 2, 2, 4, 2, 4, 4, 5,
                                             0, 1, 1, 5, 1, 5, 1, 5, 1, 5 };
        int got[2 * 5 * 2];
        Trial r;
        run_compile(&r,
                    (BuildOptions) { .kind = MODEL_LUA,
                                     .model = "models/gpt.lua",
                                     .define = (const char **)define,
                                     .n_define = 5,
                                     .mode = BUILD_TRAIN,
                                     .batch = 2,
                                     .block = 5,
                                     .documents = &first },
                    NULL);
        run_start(&r, run_on_gpu() ? DEV_CUDA : DEV_CPU);
        session_documents(r.s, ids, 2, 5, got);
        CHECK(!memcmp(got, want, sizeof want));
        run_end(&r);
}

TEST_MAIN
