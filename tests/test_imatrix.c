/* test_imatrix.c: what `tgc imatrix` sums, against the double evaluator: each linear's input as an
 * output of its own, squared and added here. */
#include <math.h>
#include "../cli/quantize/imatrix.h"
#include "../runtime/util/file.h"
#include "eval_models.h"

enum { WINDOW = 12, WINDOWS = 2, N_IDS = WINDOW * WINDOWS + 3, MOST = 64 };

static const char *const ids_file = "build/imatrix.ids";

static int id_of(int i) { return 1 + i * 7 % 29; }

static void write_ids(void)
{
        char text[8 * N_IDS];
        int n = 0;
        for (int i = 0; i < N_IDS; i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%d ", id_of(i));
        CHECK_MSG(!file_write_atomic(ids_file, text, (size_t)n, &err), "%s", err.msg);
}

/* The tensor that a parameter is made of, if it is all of one. */
static bool tensor_of(const Model *m, const char *param, char name[200], int64_t expert)
{
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                if (strcmp(l->param, param) || (expert >= 0 && l->begin != expert))
                        continue;
                const char *at = l->rest + strspn(l->rest, "=? ");
                snprintf(name, 200, "%.*s", (int)strcspn(at, " :|"), at);
                return true;
        }
        return false;
}

typedef struct Linear {
        Ref w;
        char x[16], perm[16], offs[16]; /* outputs */
        int64_t E, K;
        bool sorted; /* x has a row for each slot, in order */
        int64_t adiv;
        double sum[8][256], count[8];
} Linear;

static int find_linears(Graph *g, Linear *l)
{
        int n = 0;
        const Ref end = g->n_nodes;
        for (Ref r = 1; r < end; r++) {
                if (NODE(g, r)->op == OP_DROPOUT)
                        NODE(g, r)->a.drop.p = 0;
                if (NODE(g, r)->op == OP_ATTENTION)
                        NODE(g, r)->a.att.p = 0;
                const Node x = *NODE(g, r);
                if ((x.op != OP_MATMUL && x.op != OP_EXPERT_MATMUL) ||
                    NODE(g, x.in[1])->op != OP_PARAM)
                        continue;
                CHECK(n < MOST);
                Linear *to = &l[n];
                *to = (Linear) { .w = x.in[1] };
                const Type *t = &NODE(g, x.in[0])->type;
                to->K = t->dim[t->rank - 1].n;
                to->E = x.op == OP_MATMUL ? 0 : NODE(g, x.in[1])->type.dim[0].n;
                CHECK(to->K <= 256 && to->E <= 8);
                snprintf(to->x, sizeof to->x, "x%d", n);
                graph_output(g, arena_str(g->arena, to->x), x.in[0]);
                if (to->E) {
                        to->adiv = x.a.expert.adiv;
                        snprintf(to->perm, sizeof to->perm, "p%d", n);
                        snprintf(to->offs, sizeof to->offs, "o%d", n);
                        graph_output(g, arena_str(g->arena, to->perm), x.in[2]);
                        graph_output(g, arena_str(g->arena, to->offs), x.in[3]);
                }
                n++;
        }
        return n;
}

static void add_row(Linear *l, int64_t e, const double *x)
{
        for (int64_t k = 0; k < l->K; k++)
                l->sum[e][k] += x[k] * x[k];
        l->count[e]++;
}

static void add_window(Eval *v, Linear *l)
{
        int64_t n, m;
        const double *x = eval_output(v, l->x, &n);
        if (!l->E) {
                for (int64_t r = 0; r < n / l->K; r++)
                        add_row(l, 0, x + r * l->K);
                return;
        }
        const double *perm = eval_output(v, l->perm, &m), *offs = eval_output(v, l->offs, &m);
        for (int64_t e = 0; e < l->E; e++)
                for (int64_t p = (int64_t)offs[e]; p < (int64_t)offs[e + 1]; p++)
                        add_row(l, e, x + (l->adiv ? (int64_t)perm[p] / l->adiv : p) * l->K);
}

static void compare(const Imatrix *m, const Model *model, const Linear *l)
{
        const char *param = NODE(model->graph, l->w)->name;
        for (int64_t e = 0; e < (l->E ? l->E : 1); e++) {
                char name[200];
                const float *means;
                int64_t matrices;
                if (!tensor_of(model, param, name, l->E ? e : -1) &&
                    !tensor_of(model, param, name, -1))
                        continue;
                CHECK_MSG(!imatrix_find(m, name, l->K, &means, &matrices, &err), "%s", err.msg);
                CHECK_MSG(means, "nothing for %s", name);
                const int64_t at = matrices > 1 ? e : 0;
                for (int64_t k = 0; k < l->K; k++) {
                        const double want = l->count[e] > 0 ? l->sum[e][k] / l->count[e] : 1,
                                     got = means[at * l->K + k];
                        CHECK_MSG(fabs(got - want) <= 2e-5 * (want + 1e-6), "%s %d,%d: %g, not %g",
                                  name, (int)e, (int)k, got, want);
                }
        }
}

static void measure(const char *dir)
{
        static Linear l[MOST];
        Calibration c = {
                .model = dir, .ids = ids_file, .device = "cpu", .window = WINDOW, .quiet = true
        };
        Imatrix *m;
        write_ids();
        const int code = imatrix_measure(&m, &c, &err);
        if (code == TGC_NO_DEVICE)
                SKIP("no C compiler");
        CHECK_MSG(!code, "%s: %s", dir, err.msg);
        Loaded x = load(hf_model(dir, NULL), dir);
        const int n = find_linears(x.m->graph, l);
        for (int w = 0; w < WINDOWS; w++) {
                double ids[WINDOW];
                for (int i = 0; i < WINDOW; i++)
                        ids[i] = id_of(w * WINDOW + i);
                Eval *v = evaluate(&x, 1, WINDOW, ids, ids);
                for (int i = 0; i < n; i++)
                        add_window(v, &l[i]);
                eval_free(v);
        }
        for (int i = 0; i < n; i++)
                compare(m, x.m, &l[i]);
        imatrix_close(m);
        unload(&x);
}

TEST (linears) {
        measure("tests/data/families/llama");
        measure("tests/data/families/gpt2");
        measure("tests/data/families/phi3");
}

TEST (experts) {
        measure("tests/data/families/mixtral");
        measure("tests/data/families/qwen3_moe");
}

/* What is written is what is read, and the same again. */
TEST (files) {
        static const char *const path[] = { "build/tests/a.imatrix", "build/tests/b.imatrix" };
        Calibration c = { .model = "tests/data/gguf/mixtral.gguf",
                          .ids = ids_file,
                          .device = "cpu",
                          .window = WINDOW,
                          .quiet = true };
        Imatrix *m, *again;
        char *text[2];
        size_t size[2];
        write_ids();
        for (int i = 0; i < 2; i++) {
                const int code = imatrix_measure(&m, &c, &err);
                if (code == TGC_NO_DEVICE)
                        SKIP("no C compiler");
                CHECK_MSG(!code && !imatrix_write(m, path[i], &err), "%s", err.msg);
                CHECK_MSG(!file_read_text(path[i], 1 << 20, &text[i], &size[i], &err), "%s",
                          err.msg);
                if (!i)
                        imatrix_close(m);
        }
        CHECK(size[0] == size[1] && !memcmp(text[0], text[1], size[0]));
        CHECK_MSG(!imatrix_open(&again, path[0], &err), "%s", err.msg);
        CHECK(imatrix_count(again) == imatrix_count(m));
        const float *a, *b;
        int64_t na, nb;
        CHECK(!imatrix_find(m, "blk.0.ffn_down_exps.weight", 64, &a, &na, &err) &&
              !imatrix_find(again, "blk.0.ffn_down_exps.weight", 64, &b, &nb, &err));
        CHECK(a && b && na == 4 && nb == 4);
        for (int i = 0; i < 256; i++)
                CHECK(fabsf(a[i] - b[i]) <= 1e-6f * a[i]);
        imatrix_close(m);
        imatrix_close(again);
        for (int i = 0; i < 2; i++) {
                free(text[i]);
                unlink(path[i]);
        }
        c.model = "tests/data/families/llama/tokenizer.json";
        CHECK(imatrix_measure(&m, &c, &err) && !m);
}

TEST_MAIN
