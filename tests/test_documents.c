/* test_documents.c: documents packed into rows train as if each had a row of its own.
 *
 * Two rows of 61 tokens hold five documents; in the other batch each has its own row and what is left of that is filled up
 * with tokens whose targets do not count.  Loss and gradients must be the same: positions, windows and slopes begin anew
 * with each document, and no gradient crosses from one to the other. */
#include "e2e/infer/run.h"

enum { T = 61, ROWS = 2, DOCUMENTS = 5, FIRST = 3, VOCAB = 29 };
static const int row_of[DOCUMENTS] = { 0, 0, 0, 1, 1 }, length[DOCUMENTS] = { 7, 35, 19, 1, 60 };

typedef struct Batch { int ids[DOCUMENTS * T], targets[DOCUMENTS * T]; } Batch;

/* A row may begin in the middle of a text; all other documents begin with FIRST. */
static void batches(Batch *packed, Batch *apart)
{
        unsigned rng = 5;
        int filled[ROWS] = { 0 };
        for (int i = 0; i < DOCUMENTS * T; i++)
                apart->ids[i] = 0, apart->targets[i] = -1;
        for (int d = 0; d < DOCUMENTS; d++)
                for (int t = 0; t < length[d]; t++) {
                        int at = row_of[d] * T + filled[row_of[d]]++;
                        rng = rng * 1664525u + 1013904223u;
                        int id = (int)(rng >> 8) % (VOCAB - FIRST - 1) + FIRST + 1;
                        packed->ids[at] = apart->ids[d * T + t] = t || at % T == 0 ? id : FIRST;
                        packed->targets[at] = apart->targets[d * T + t] = (int)(rng >> 16) % VOCAB;
                }
        CHECK(filled[0] == T && filled[1] == T);
}

typedef struct Learnt { double loss, eval; float *grads; uint64_t n; } Learnt;

static Learnt learn(const char *model, const char *const *define, int n, const Batch *x, int B, bool split, bool emulate)
{
        static const int first = FIRST;
        Trial r;
        Learnt l = { 0 };
        TrainResult got;
        uint64_t counted;
        Err e = { 0 };
        run_compile(&r, (BuildOptions){ .kind = MODEL_LUA, .model = model, .define = (const char **)define, .n_define = n,
                                        .mode = BUILD_TRAIN, .opt = 3, .batch = B, .block = T, .cuda = emulate,
                                        .documents = split ? &first : NULL }, NULL);
        run_start(&r, run_on_gpu() ? DEV_CUDA : emulate ? DEV_EMULATE : DEV_CPU);
        const Manifest *m = session_manifest(r.s);
        CHECK(m->documents == (split ? FIRST : -1));
        must(session_eval(r.s, x->ids, x->targets, B, T, &l.eval, &counted, &e), &e);
        CHECK(counted == ROWS * T);
        TrainStep in = { .B = B, .T = T, .n_micro = 1, .ids = x->ids, .targets = x->targets, .beta1 = 0.9, .beta2 = 0.95,
                         .eps = 1e-8 };
        must(session_train_step(r.s, &in, &got, &e), &e);
        l.loss = got.loss;
        l.n = m->n_train;
        l.grads = calloc(m->n_train, sizeof *l.grads);
        for (int i = 0; i < m->n_params; i++)
                if (m->param[i].trainable)
                        must(session_part_read(r.s, PART_GRAD, i, l.grads + m->param[i].offset, &e), &e);
        run_end(&r);
        return l;
}

static void same_lesson(const char *model, const char *const *define, int n, bool emulate)
{
        static Batch packed, apart;
        batches(&packed, &apart);
        Learnt a = learn(model, define, n, &packed, ROWS, true, emulate),
               b = learn(model, define, n, &apart, DOCUMENTS, false, emulate);
        CHECK(a.n == b.n);
        CHECK_MSG(fabs(a.loss - b.loss) < 2e-6, "loss %.8f, apart %.8f", a.loss, b.loss);
        CHECK_MSG(fabs(a.eval - b.eval) < 2e-6, "loss of eval %.8f, apart %.8f", a.eval, b.eval);
        double off = worst(a.grads, b.grads, a.n), size = largest(b.grads, b.n);
        CHECK_MSG(off <= 1e-5 * size, "gradients differ by %.3g of %.3g", off, size);
        NOTE("%s: loss %.8f and %.8f, gradients differ by %.3g of %.3g", model, a.loss, b.loss, off, size);
        free(a.grads);
        free(b.grads);
}

#define SMALL "vocab=29", "ctx=61", "n_layer=2", "n_embd=32", "n_head=4"
#define SAME(model, emulate, ...) do { \
        static const char *const define[] = { SMALL, __VA_ARGS__ }; \
        same_lesson("models/" model ".lua", define, sizeof define / sizeof *define, emulate); } while (0)

TEST(learned_positions)          { SAME("gpt", false, "dropout=0"); }
TEST(rotary_positions)           { SAME("llama", false, "n_kv_head=2", "head_dim=8", "n_ff=40"); }
TEST(windows)                    { SAME("llama", false, "n_kv_head=1", "head_dim=12", "n_ff=40", "window=9"); }
TEST(slopes)                     { SAME("mpt", false, "bias_max=8"); }
TEST(learned_positions_emulated) { SAME("gpt", true, "dropout=0"); }

TEST(where_documents_begin_and_end)
{
        static const char *const define[] = { SMALL };
        static const int first = FIRST, ids[2 * 5] = { 9, 9, 3, 9, 3, 3, 3, 9, 9, 9 },
                         want[2 * 5 * 2] = { 0, 2, 0, 2, 2, 4, 2, 4, 4, 5, 0, 1, 1, 5, 1, 5, 1, 5, 1, 5 };
        int got[2 * 5 * 2];
        Trial r;
        run_compile(&r, (BuildOptions){ .kind = MODEL_LUA, .model = "models/gpt.lua", .define = (const char **)define,
                                        .n_define = 5, .mode = BUILD_TRAIN, .batch = 2, .block = 5, .documents = &first },
                    NULL);
        run_start(&r, run_on_gpu() ? DEV_CUDA : DEV_CPU);
        session_documents(r.s, ids, 2, 5, got);
        CHECK(!memcmp(got, want, sizeof want));
        run_end(&r);
}

TEST_MAIN
