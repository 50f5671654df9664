/* test_runtime.c: devices, cache and sessions, over a program written by hand: a
 * "model" whose next token is the sum of all tokens so far plus the first weight,
 * and whose loss is the mean of (x[id] - target)^2. */
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../cli/cli.h"
#include "../runtime/cache.h"
#include "../runtime/ck_tensor.h"
#include "../runtime/cuda_api.h"
#include "../runtime/file.h"
#include "../runtime/host_cc.h"
#include "../runtime/session_impl.h"
#include "../runtime/tgc.h"
#include "test.h"

enum { V = 16, CTX = 32, BATCH = 3, CHUNK = 5, N = 40 };

/* ---- the plan ---- */

static const char manifest[] =
        "tgc 1\nmodel sum\ndtype f32\nmode both\nvocab 16\nctx 32\nbatch 3\nchunk 5\nparams 33 33 40\n"
        "param x 3x11 0 trainable normal 0.5\nparam frozen 7 33 frozen uniform 2 3\n";

/* act: ids 0, targets 256, logits 1024 (3*32*16*4), next 8192, loss 8448, norm 8452, bad 8456 */
#define PROGRAM(p_arena, master) \
        "tgc-program 1\n" \
        "arena w 160\n" p_arena "arena g 132\narena m 132\narena v 132\narena kv 384\narena act 16384\n" \
        "kernel k_logits unit infer threads 64 smem 0 args 5 flops 0 bytes 0 title logits\n" \
        "kernel k_sample unit infer threads 32 smem 128 args 4 flops 0 bytes 0 title argmax\n" \
        "kernel k_grad unit train threads 64 smem 0 args 6 flops 0 bytes 0 title gradient\n" \
        "kernel k_update unit train threads 64 smem 0 args 7 flops 0 bytes 0 title descent\n" \
        "program prefill B 3 T 5\n" \
        "io ids i32 act+0 B*T\nio logits f32 act+1024 B*T*16\n" \
        "run k_logits grid B*T args rt act+0 kv+0 w+0 act+1024\nend\n" \
        "program score B 1 T 8\n" \
        "io ids i32 act+0 B*T\nio logits f32 act+1024 B*T*16\n" \
        "run k_logits grid B*T args rt act+0 kv+0 w+0 act+1024\nend\n" \
        "program decode B 1 T 1\n" \
        "io ids i32 act+0 B\nio next i32 act+8192 B\n" \
        "run k_logits grid B args rt act+0 kv+0 w+0 act+1024\nrun k_sample grid 1 args rt rt act+1024 act+8192\nend\n" \
        "program decode3 B 3 T 1\n" \
        "io ids i32 act+8192 B\nio next i32 act+8192 B\n" \
        "run k_logits grid B args rt act+8192 kv+0 w+0 act+1024\n" \
        "run k_sample grid 1 args rt rt act+1024 act+8192\nend\n" \
        "program step B 2 T 4\n" \
        "io ids i32 act+0 B*T\nio targets i32 act+256 B*T\nio loss f32 act+8448 1\n" \
        "run k_grad grid 1 args rt act+0 act+256 " master " g+0 act+8448\nend\n" \
        "program eval B 2 T 4\n" \
        "io ids i32 act+0 B*T\nio targets i32 act+256 B*T\nio loss f32 act+8448 1\n" \
        "run k_grad grid 1 args rt act+0 act+256 " master " g+0 act+8448\nend\n" \
        "program update B 1 T 1\nio grad_norm f32 act+8452 1\nio bad i32 act+8456 1\n" \
        "run k_update grid 1 args rt " master " g+0 m+0 v+0 act+8452 act+8456\nend\n" \
        "zero kv+0 384\n"

static const char source_cpu[] =
        "//@ unit infer\n"
        "#include \"small.h\"\n"
        "#include \"rt.h\"\n"
        "void k_logits(const Rt *rt, void *const *arg)\n"
        "{\n"
        "        const int *ids = arg[1];\n"
        "        int *kv = arg[2];\n"
        "        const float *w = arg[3];\n"
        "        float *logits = arg[4];\n"
        "#pragma omp parallel for\n"
        "        for (int b = 0; b < rt->B; b++)\n"
        "                for (int t = 0; t < rt->T; t++) {\n"
        "                        int sum = (int)w[33], *row = kv + b * CTX;\n"
        "                        row[rt->pos[b] + t] = ids[b * rt->T + t];\n"
        "                        for (int i = 0; i <= rt->pos[b] + t; i++)\n"
        "                                sum += row[i];\n"
        "                        for (int v = 0; v < V; v++)\n"
        "                                logits[(b * rt->T + t) * V + v] = v == sum % V ? 3.f : 0.f;\n"
        "                }\n"
        "}\n"
        "void k_sample(const Rt *crt, void *const *arg)\n"
        "{\n"
        "        Rt *rt = arg[1];\n"
        "        const float *logits = arg[2];\n"
        "        int *next = arg[3];\n"
        "        for (int b = 0; b < rt->B; b++) {\n"
        "                int best = 0;\n"
        "                for (int v = 0; v < V; v++)\n"
        "                        if (logits[b * V + v] > logits[b * V + best]) best = v;\n"
        "                next[b] = best;\n"
        "                rt->pos[b] += rt->T;\n"
        "        }\n"
        "        rt->n_out++;\n"
        "        (void)crt;\n"
        "}\n"
        "//@ unit train\n"
        "#include <math.h>\n"
        "#include \"small.h\"\n"
        "#include \"rt.h\"\n"
        "void k_grad(const Rt *rt, void *const *arg)\n"
        "{\n"
        "        const int *ids = arg[1], *targets = arg[2];\n"
        "        const float *x = arg[3];\n"
        "        float *g = arg[4], *loss = arg[5], sum = 0;\n"
        "        for (int i = 0; i < NTRAIN && rt->micro == 0; i++) g[i] = 0;\n"
        "        for (int i = 0; i < rt->B * rt->T; i++) {\n"
        "                if (targets[i] < 0) continue;\n"
        "                float d = x[ids[i]] - (float)targets[i];\n"
        "                sum += d * d;\n"
        "                g[ids[i]] += 2 * d * rt->inv_tokens * rt->share;\n"
        "        }\n"
        "        *loss = sum * rt->inv_tokens;\n"
        "}\n"
        "void k_update(const Rt *rt, void *const *arg)\n"
        "{\n"
        "        float *x = arg[1], *g = arg[2], *norm = arg[5], sum = 0;\n"
        "        int *bad = arg[6];\n"
        "        for (int i = 0; i < NTRAIN; i++) sum += g[i] * g[i];\n"
        "        *norm = sqrtf(sum);\n"
        "        if (!(*norm < 1e30f)) { *bad = 1; return; }\n"
        "        for (int i = 0; i < NTRAIN; i++) x[i] -= rt->lr * g[i];\n"
        "}\n";

static const char source_cuda[] =
        "//@ unit infer\n"
        "#include \"tgc.cuh\"\n"
        "#include \"small.h\"\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_logits(const Rt *rt, const int *ids, int *kv, const float *w, float *logits)\n"
        "{\n"
        "        int b = blockIdx.x / rt->T, t = blockIdx.x % rt->T, sum = (int)w[33], *row = kv + b * CTX;\n"
        "        if (threadIdx.x == 0) row[rt->pos[b] + t] = ids[b * rt->T + t];\n"
        "        __syncthreads();\n"
        "        for (int i = 0; i < rt->pos[b]; i++) sum += row[i];\n"
        "        for (int i = 0; i <= t; i++) sum += ids[b * rt->T + i];\n"
        "        for (int v = threadIdx.x; v < V; v += blockDim.x)\n"
        "                logits[(b * rt->T + t) * V + v] = v == sum % V ? 3.f : 0.f;\n"
        "}\n"
        "TGC_KERNEL(k_logits, 5)\n"
        "extern \"C\" __global__ void __launch_bounds__(32)\n"
        "k_sample(const Rt *crt, Rt *rt, const float *logits, int *next)\n"
        "{\n"
        "        TGC_SMEM(smem);\n"
        "        int *red = (int *)smem;\n"
        "        for (int b = 0; b < crt->B; b++) {\n"
        "                int lane = threadIdx.x;\n"
        "                red[lane] = lane < V && logits[b * V + lane] == 3.f ? lane : -1;\n"
        "                __syncthreads();\n"
        "                if (lane == 0) {\n"
        "                        for (int i = 0; i < V; i++) if (red[i] >= 0) next[b] = red[i];\n"
        "                        rt->pos[b] += rt->T;\n"
        "                        if (b == 0) rt->n_out++;\n"
        "                }\n"
        "                __syncthreads();\n"
        "        }\n"
        "}\n"
        "TGC_KERNEL(k_sample, 4)\n"
        "//@ unit train\n"
        "#include \"tgc.cuh\"\n"
        "#include \"small.h\"\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_grad(const Rt *rt, const int *ids, const int *targets, const float *x, float *g, float *loss)\n"
        "{\n"
        "        if (threadIdx.x) return;\n"
        "        float sum = 0;\n"
        "        for (int i = 0; i < NTRAIN && rt->micro == 0; i++) g[i] = 0;\n"
        "        for (int i = 0; i < rt->B * rt->T; i++) {\n"
        "                if (targets[i] < 0) continue;\n"
        "                float d = x[ids[i]] - (float)targets[i];\n"
        "                sum += d * d;\n"
        "                g[ids[i]] += 2 * d * rt->inv_tokens * rt->share;\n"
        "        }\n"
        "        *loss = sum * rt->inv_tokens;\n"
        "}\n"
        "TGC_KERNEL(k_grad, 6)\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_update(const Rt *rt, float *x, const float *g, float *m, float *v, float *norm, int *bad)\n"
        "{\n"
        "        if (threadIdx.x) return;\n"
        "        float sum = 0;\n"
        "        for (int i = 0; i < NTRAIN; i++) sum += g[i] * g[i];\n"
        "        *norm = sqrtf(sum);\n"
        "        if (!(*norm < 1e30f)) { *bad = 1; return; }\n"
        "        for (int i = 0; i < NTRAIN; i++) x[i] -= rt->lr * g[i];\n"
        "}\n"
        "TGC_KERNEL(k_update, 7)\n";

static const char small_h[] = "#pragma once\nenum { V = 16, CTX = 32, NTRAIN = 33 };\n";

/* small.h and the kernel headers that lie in the tree. */
static void add_headers(Plan *p)
{
        static const char *const dirs[] = { "codegen/kernels", "runtime" };
        PackFile f[80] = { { "small.h", small_h, sizeof small_h - 1 } };
        char path[600], *text;
        int n = 1;
        void *blob;
        size_t size;
        Err e;

        for (int i = 0; i < 2; i++) {
                DIR *d = opendir(dirs[i]);
                for (struct dirent *x; d && (x = readdir(d)) && n < 80; ) {
                        const char *dot = strrchr(x->d_name, '.');
                        int wanted = i == 1 ? !strcmp(x->d_name, "rt.h")
                                   : dot && (!strcmp(dot, ".cuh") || !strncmp(x->d_name, "emulate", 7));
                        if (!wanted || strlen(x->d_name) >= sizeof f->name)
                                continue;
                        snprintf(path, sizeof path, "%s/%s", dirs[i], x->d_name);
                        CHECK(!file_read_text(path, 1 << 24, &text, &size, &e));
                        snprintf(f[n].name, sizeof f->name, "%.90s", x->d_name);
                        f[n].data = text;
                        f[n++].size = size;
                }
                if (d)
                        closedir(d);
        }
        if (n < 3)
                SKIP("not run from the root of the source tree");
        CHECK(!pack_write(f, n, &blob, &size, &e));
        CHECK(!plan_add(p, "headers.cuda", blob, size, &e) && !plan_add(p, "headers.cpu", blob, size, &e));
        free(blob);
        while (--n)
                free((void *)f[n].data);
}

static Plan make_plan(const char *manifest_text, const char *program)
{
        Plan p = { 0 };
        Err e;
        CHECK(!plan_add(&p, "manifest", manifest_text, strlen(manifest_text), &e));
        CHECK(!plan_add(&p, "program.cpu", program, strlen(program), &e));
        CHECK(!plan_add(&p, "program.cuda", program, strlen(program), &e));
        CHECK(!plan_add(&p, "source.cpu", source_cpu, strlen(source_cpu), &e));
        CHECK(!plan_add(&p, "source.cuda", source_cuda, strlen(source_cuda), &e));
        add_headers(&p);
        return p;
}

static char cache_path[64];

static void remove_cache(void)
{
        chmod(cache_path, 0700);
        tmpdir_remove(cache_path);
}

/* All tests share one fresh cache. */
static void use_cache(void)
{
        if (!*cache_path) {
                strcpy(cache_path, "/tmp/tgc-test-cache-XXXXXX");
                CHECK(mkdtemp(cache_path));
                atexit(remove_cache);
        }
        setenv("TGC_CACHE_DIR", cache_path, 1);
}

/* Before anything is allocated: skip where the device is not. */
static void need(DevKind kind)
{
        static Err e;
        Device *d;
        HostCc cc;
        if (kind == DEV_CUDA) {
                if (dev_open(&d, kind, 0, &e))
                        SKIP(e.msg);
                dev_close(d);
        } else if (host_cc_find(&cc, kind == DEV_EMULATE, &e))
                SKIP(e.msg);
}

static Session *open_on(const Plan *p, DevKind kind, int mode)
{
        SessionOptions o = { .device = kind, .mode = mode, .seed = 42, .dev.threads = 2 };
        Session *s;
        Err e;
        use_cache();
        int code = session_open(&s, p, &o, &e);
        CHECK_MSG(!code, "%s", e.msg);
        return s;
}

/* ---- the same on every device ---- */

typedef struct Got { int n, stop_at, token[BATCH][64]; } Got;

static int collect(void *user, int i, const int *token, int B)
{
        Got *g = user;
        for (int b = 0; b < B; b++)
                g->token[b][i] = token[b];
        g->n = i + 1;
        return g->n == g->stop_at;
}

/* What the "model" answers to a history of n tokens. */
static int answer(const int *h, int n)
{
        int sum = 2;                            /* (int)w[33], uniform in 2..3 */
        for (int i = 0; i < n; i++)
                sum += h[i];
        return sum % V;
}

static void check_inference(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, SESSION_INFER);
        Err e;
        Got g = { 0 };
        int h[BATCH][64] = { { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5 } }, n = 11;

        CHECK_MSG(session_decode(s, 0, 1, collect, &g, &e) == TGC_USAGE, "decoded without a prompt");
        CHECK_MSG(!session_prefill(s, h[0], 1, 4, &e), "%s", e.msg);
        CHECK_MSG(!session_prefill(s, h[0] + 4, 1, 7, &e), "%s", e.msg);        /* two calls, three chunks */
        CHECK(session_pos(s) == 11);
        CHECK_MSG(!session_decode(s, 0, 6, collect, &g, &e), "%s", e.msg);
        CHECK(g.n == 6 && session_pos(s) == 17);
        for (int i = 0; i < 6; i++, n++)
                CHECK_MSG((h[0][n] = answer(h[0], n)) == g.token[0][i], "token %d: %d, not %d", i, g.token[0][i],
                          h[0][n]);
        g.stop_at = 2;                          /* the callback's wish, then go on from there */
        CHECK(!session_decode(s, 0, 6, collect, &g, &e) && g.n == 2 && session_pos(s) == 19);
        for (int i = 0; i < 2; i++, n++)
                CHECK((h[0][n] = answer(h[0], n)) == g.token[0][i]);
        g.stop_at = 0;                          /* to the end of the context: 32 digested, 33 in all */
        CHECK(session_decode(s, 0, 100, collect, &g, &e) == TGC_USAGE && strstr(e.msg, "context"));
        CHECK_MSG(g.n == 14, "%d tokens", g.n);
        for (int i = 0; i < 14; i++, n++)
                CHECK((h[0][n] = answer(h[0], n)) == g.token[0][i]);
        CHECK(session_decode(s, 0, 1, collect, &g, &e) == TGC_USAGE);
        CHECK(session_prefill(s, h[0], 1, 1, &e) == TGC_USAGE);

        session_reset(s, &e);                   /* three sequences at once, ids and next one buffer */
        int batch[3][7] = { { 1, 2, 3, 4, 5, 6, 7 }, { 7, 7, 7, 7, 7, 7, 7 }, { 0, 0, 15, 0, 0, 0, 1 } };
        CHECK_MSG(!session_prefill(s, batch[0], 3, 7, &e), "%s", e.msg);
        CHECK(session_prefill(s, batch[0], 2, 7, &e) == TGC_USAGE);
        CHECK_MSG(!session_decode(s, 0, 4, collect, &g, &e), "%s", e.msg);
        for (int b = 0; b < 3; b++) {
                memcpy(h[b], batch[b], sizeof batch[b]);
                for (int i = 0; i < 4; i++)
                        CHECK((h[b][7 + i] = answer(h[b], 7 + i)) == g.token[b][i]);
        }
        session_reset(s, &e);
        CHECK(session_prefill(s, (int[]){ 16 }, 1, 1, &e) == TGC_USAGE && strstr(e.msg, "vocabulary"));
        CHECK(session_prefill(s, h[0], 4, 1, &e) == TGC_USAGE);
        TrainResult r;
        CHECK(session_train_step(s, &(TrainStep){ 0 }, &r, &e) == TGC_USAGE);
        session_close(s);
        plan_close(&p);
}

static void check_score(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, 0);
        Err e;
        int ids[CTX];
        static float logits[CTX][V];
        double nll[CTX], Z = log(exp(3.0) + V - 1);

        for (int i = 0; i < CTX; i++)
                ids[i] = i * 5 % V;
        ids[4] = answer(ids, 4);
        CHECK_MSG(!session_score(s, ids, CTX, logits[0], nll, &e), "%s", e.msg);
        for (int i = 0; i < CTX; i++) {
                int want = answer(ids, i + 1);
                CHECK(logits[i][want] == 3.f && logits[i][(want + 1) % V] == 0.f);
                if (i + 1 < CTX)
                        CHECK(fabs(nll[i] - (Z - (ids[i + 1] == want ? 3 : 0))) < 1e-6);
        }
        CHECK(!session_score(s, ids, 1, 0, nll, &e) && !session_score(s, ids, 3, 0, 0, &e));
        CHECK(session_score(s, ids, CTX + 1, 0, nll, &e) == TGC_USAGE);
        CHECK(session_pos(s) == 0);
        session_close(s);
        plan_close(&p);
}

/* Two steps under way give the bits that one at a time gives. */
static void check_overlapped(const Plan *p, DevKind kind, int *ids, int *targets, double first_loss, const float *want)
{
        Session *s = open_on(p, kind, SESSION_TRAIN);
        TrainStep in = { .B = 2, .T = 4, .n_micro = 4, .ids = ids, .targets = targets, .lr = 0.1, .beta1 = 0.9,
                         .beta2 = 0.999 };
        TrainResult r;
        float x[33];
        Err e;
        CHECK(session_train_end(s, &r, &e) == TGC_USAGE);
        CHECK_MSG(!session_train_begin(s, &in, &e), "%s", e.msg);
        for (in.step = 1; in.step < 4; in.step++) {
                CHECK_MSG(!session_train_begin(s, &in, &e), "%s", e.msg);
                CHECK(session_train_begin(s, &in, &e) == TGC_USAGE && session_train_step(s, &in, &r, &e) == TGC_USAGE);
                CHECK(!session_train_end(s, &r, &e) && r.tokens == 25);
                CHECK(in.step > 1 || r.loss == first_loss);
        }
        CHECK(!session_train_end(s, &r, &e) && r.loss < first_loss);
        CHECK(!session_param_get(s, 0, x, &e) && !memcmp(x, want, sizeof x));
        session_close(s);
}

static void check_training(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Err e;
        int ids[4][8], targets[4][8], flat_targets[8];
        float x[2][33], before[33];
        double losses[2], norms[2];
        TrainResult r;

        for (int i = 0; i < 32; i++) {
                ids[i / 8][i % 8] = i * 3 % V;
                targets[i / 8][i % 8] = i % 5 == 0 ? -1 : i % 7;
        }
        /* 4 micro-steps of 2x4; the same as 16 of 1x2: more than the ring of slots holds */
        for (int way = 0; way < 2; way++) {
                Session *s = open_on(&p, kind, SESSION_TRAIN);
                TrainStep in = { .B = way ? 1 : 2, .T = way ? 2 : 4, .n_micro = way ? 16 : 4, .ids = ids[0],
                                 .targets = targets[0], .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999 };
                double sum = 0;
                CHECK(!session_param_get(s, 0, before, &e));
                for (in.step = 0; in.step < 4; in.step++) {
                        CHECK_MSG(!session_train_step(s, &in, &r, &e), "%s", e.msg);
                        CHECK(!r.bad && r.tokens == 25);
                        if (in.step == 0) {
                                losses[way] = r.loss;
                                norms[way] = r.grad_norm;
                        }
                }
                CHECK(fabs(session_rt(s)->bias2 - (1 - pow(0.999, 4))) < 1e-9);
                for (int i = 0; i < 32; i++) {
                        double d = targets[i / 8][i % 8] < 0 ? 0 : before[ids[i / 8][i % 8]] - targets[i / 8][i % 8];
                        sum += d * d / 25;
                }
                CHECK_MSG(fabs(losses[way] - sum) < 1e-5 * sum, "loss %g, not %g", losses[way], sum);
                CHECK(!session_param_get(s, 0, x[way], &e));
                double loss;
                uint64_t tokens;
                CHECK_MSG(!session_eval(s, ids[0], targets[0], 2, 4, &loss, &tokens, &e), "%s", e.msg);
                CHECK(tokens == 6 && loss > 0 && loss < 30);
                session_close(s);
        }
        CHECK(fabs(norms[0] - norms[1]) < 1e-5 * norms[0]);
        check_overlapped(&p, kind, ids[0], targets[0], losses[0], x[0]);
        for (int i = 0; i < 33; i++)
                CHECK_MSG(fabsf(x[0][i] - x[1][i]) <= 1e-5f * (1 + fabsf(x[0][i])), "x[%d]: %g and %g", i, x[0][i],
                          x[1][i]);

        Session *s = open_on(&p, kind, SESSION_TRAIN);
        TrainStep in = { .B = 2, .T = 4, .n_micro = 1, .ids = ids[0], .targets = targets[0], .lr = 0.1 };
        for (int i = 0; i < 33; i++)
                x[0][i] = 0;
        x[0][3] = NAN;                          /* tokens 3 and 6 are in the batch */
        CHECK(!session_param_set(s, 0, x[0], &e) && !session_train_step(s, &in, &r, &e) && r.bad);
        CHECK(!session_param_get(s, 0, x[1], &e) && x[1][6] == 0.f);
        x[0][3] = 0;
        CHECK(!session_param_set(s, 0, x[0], &e) && !session_train_step(s, &in, &r, &e) && !r.bad);
        memset(flat_targets, 255, sizeof flat_targets);
        in.targets = flat_targets;
        CHECK(session_train_step(s, &in, &r, &e) == TGC_USAGE);
        in.targets = targets[0];
        in.T = 5;
        CHECK(session_train_step(s, &in, &r, &e) == TGC_USAGE);
        CHECK(session_prefill(s, ids[0], 1, 3, &e) == TGC_USAGE && !session_has(s, "decode") && session_has(s, "step"));
        session_close(s);
        plan_close(&p);
}

static void check_timing(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, 0);
        Err e;
        double ms[4];
        int n;
        CHECK_MSG(!session_time_kernels(s, "decode", 1, 1, ms, 4, &n, &e), "%s", e.msg);
        CHECK(n == 2 && ms[0] >= 0 && ms[1] >= 0);
        session_close(s);
        plan_close(&p);
}

TEST(cpu_inference)      { check_inference(DEV_CPU); }
TEST(cpu_score)          { check_score(DEV_CPU); }
TEST(cpu_training)       { check_training(DEV_CPU); }
TEST(cpu_timing)         { check_timing(DEV_CPU); }
TEST(emulate_inference)  { check_inference(DEV_EMULATE); }
TEST(emulate_score)      { check_score(DEV_EMULATE); }
TEST(emulate_training)   { check_training(DEV_EMULATE); }
TEST(cuda_inference)     { check_inference(DEV_CUDA); }
TEST(cuda_score)         { check_score(DEV_CUDA); }
TEST(cuda_training)      { check_training(DEV_CUDA); }
TEST(cuda_timing)        { check_timing(DEV_CUDA); }

/* ---- memory of the device is given back ---- */

/* Of the decode program for one sequence. */
static bool has_graph(const Session *s)
{
        const Prog *g = program_find(&s->p, session_has(s, "decode1") ? "decode1" : "decode");
        return s->prog[g - s->p.prog].graph;
}

/* Open, train two steps, decode until graphs run, close.  *during: free memory while it is open. */
static void use_all_of(const Plan *p, Device *watch, uint64_t *during)
{
        enum { PROMPT = 7, N_DECODE = 20, MOST = 4096 };
        static int ids[MOST];
        SessionOptions o = { .device = dev_which(watch), .seed = 42 };
        uint64_t total;
        Session *s;
        TrainResult r;
        Got g = { 0 };
        Err e = { 0 };
        CHECK_MSG(!session_open(&s, p, &o, &e), "%s", e.msg);
        const Prog *step = program_find(session_program(s), "step");
        CHECK(step && step->B * step->T <= MOST);
        for (int i = 0; i < MOST; i++)
                ids[i] = i * 7 % session_manifest(s)->vocab;
        TrainStep in = { .B = step->B, .T = step->T, .n_micro = 1, .ids = ids, .targets = ids, .lr = 1e-3, .beta1 = 0.9,
                         .beta2 = 0.95, .eps = 1e-8, .clip = 1 };
        for (; in.step < 2; in.step++)
                CHECK_MSG(!session_train_step(s, &in, &r, &e), "%s", e.msg);
        CHECK_MSG(!session_prefill(s, ids, 1, PROMPT, &e) && !session_decode(s, 0, N_DECODE, collect, &g, &e), "%s",
                  e.msg);
        CHECK(g.n == N_DECODE && (!dev_can_capture(session_device(s)) || has_graph(s)));
        CHECK(!dev_memory(watch, during, &total, &e));
        session_close(s);
}

/* To the byte, three times, after a first use in which the driver makes what it keeps as long as the
 * context lives (the stack of kernels, room for launches).  `watch` holds the context, which would go
 * with the last session.  The driver counts the whole GPU: nobody else may be using it. */
static void check_memory_returns(const Plan *p)
{
        enum { ROUNDS = 3 };
        uint64_t before, during, after[ROUNDS], largest = 0, total;
        Device *watch;
        Err e;
        use_cache();
        CHECK(!dev_open(&watch, DEV_CUDA, 0, &e));
        use_all_of(p, watch, &during);
        CHECK(!dev_memory(watch, &before, &total, &e));
        for (int i = 0; i < ROUNDS; i++) {
                use_all_of(p, watch, &during);
                CHECK(!dev_memory(watch, &after[i], &total, &e));
        }
        dev_close(watch);
        Program prog;
        const Section *text = plan_find(p, "program.cuda");
        CHECK_MSG(!program_parse(&prog, text->data, text->size, text->name, &e), "%s", e.msg);
        for (int i = 0; i < prog.n_arenas; i++)
                largest = prog.arena[i].size > largest ? prog.arena[i].size : largest;
        program_free(&prog);
        CHECK_MSG(during + largest <= before, "%llu bytes are free with a session, %llu without: nothing was measured",
                  (unsigned long long)during, (unsigned long long)before);
        CHECK_MSG(after[0] == before && after[1] == before && after[2] == before, "free before: %llu bytes; after each "
                  "round %lld, %lld, %lld fewer", (unsigned long long)before, (long long)(before - after[0]),
                  (long long)(before - after[1]), (long long)(before - after[2]));
}

/* Experts in bf16: every arena, kernels with much shared memory, some forty launches in a graph. */
static Plan make_real_plan(void)
{
        static const char *define[] = {
                "n_layer=2", "n_embd=256", "n_head=4", "n_kv_head=2", "head_dim=64", "n_ff=384", "n_expert=4",
                "vocab=1000", "ctx=128"
        };
        BuildOptions o = { .kind = MODEL_LUA, .model = "models/moe.lua", .dtype = "bf16", .define = define,
                           .n_define = sizeof define / sizeof *define, .mode = BUILD_INFER | BUILD_TRAIN, .opt = 3,
                           .batch = 2, .block = 64, .cuda = true };
        Plan p = { 0 };
        Err e;
        CHECK_MSG(!build_plan(&p, &o, &e) && !plan_add_headers(&p, &e), "%s", e.msg);
        return p;
}

TEST(cuda_leaves_memory_as_it_was)
{
        need(DEV_CUDA);
        if (dlsym(RTLD_DEFAULT, "fake_live"))
                SKIP("the driver is a played one");
        Plan p = make_real_plan();
        check_memory_returns(&p);
        plan_close(&p);
}

/* ---- parameters ---- */

static void check_masters(const char *program)
{
        need(DEV_CPU);
        static const char m[] =
                "tgc 1\nmodel sum\ndtype bf16\nmode both\nvocab 16\nctx 32\nbatch 3\nchunk 5\nparams 33 33 40\n"
                "param x 3x11 0 trainable normal 0.5\nparam frozen 7 33 frozen uniform 2 3\n";
        Plan p = make_plan(m, program);
        Session *s = open_on(&p, DEV_CPU, 0);
        Err e;
        float x[33], y[33];
        uint16_t w[40], again[33];

        CHECK(session_has_part(s, PART_MASTER) && session_part_size(s, PART_WEIGHT, 0) == 66);
        CHECK(session_part_size(s, PART_MASTER, 0) == 132 && session_part_size(s, PART_MASTER, 1) == 0);
        CHECK(!session_param_get(s, 0, x, &e) && !session_part_read(s, PART_WEIGHT, 0, w, &e));
        for (int i = 0; i < 33; i++)
                CHECK(ck_bf16_from_f32(x[i]) == w[i] && x[i] == x[i]);
        for (int i = 0; i < 33; i++)
                x[i] = 1.f + (float)i / 1000;
        CHECK(!session_param_set(s, 0, x, &e) && !session_param_get(s, 0, y, &e) && !memcmp(x, y, sizeof x));
        CHECK(!session_part_read(s, PART_WEIGHT, 0, again, &e) && again[9] == ck_bf16_from_f32(x[9]));
        CHECK(!session_part_write(s, PART_V, 0, x, &e) && !session_part_read(s, PART_V, 0, y, &e));
        CHECK(!memcmp(x, y, sizeof x));
        CHECK(session_part_read(s, PART_M, 1, y, &e) == TGC_USAGE);
        CHECK(!session_param_get(s, 1, y, &e) && y[0] >= 2.f && y[6] <= 3.f);
        session_close(s);
        for (int i = 0; i < 40; i++)            /* weights of the plan become masters */
                w[i] = ck_bf16_from_f32((float)i);
        CHECK(!plan_add(&p, "weights", w, sizeof w, &e));
        s = open_on(&p, DEV_CPU, SESSION_TRAIN);
        CHECK(!session_param_get(s, 0, x, &e) && !session_part_read(s, PART_WEIGHT, 1, again, &e));
        CHECK(x[0] == 0.f && x[32] == 32.f && again[6] == w[39]);
        session_close(s);
        plan_close(&p);
}

TEST(bf16_masters) { check_masters(PROGRAM("arena p 132\n", "p+0")); }
TEST(bf16_masters_in_halves) { check_masters(PROGRAM("arena lo 66\n", "lo+0")); }

TEST(weights_of_the_plan)
{
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        static _Alignas(64) float w[40];
        float x[33];
        Err e;
        for (int i = 0; i < 40; i++)
                w[i] = (float)i / 8;
        CHECK(!plan_add(&p, "weights", w, sizeof w, &e));
        Session *s = open_on(&p, DEV_CPU, SESSION_INFER);       /* uses the plan's bytes themselves */
        CHECK(!session_param_get(s, 0, x, &e) && !memcmp(x, w, sizeof x));
        x[5] = 77;
        CHECK(!session_param_set(s, 0, x, &e) && w[5] == 5.f / 8);
        x[5] = 0;
        CHECK(!session_param_get(s, 0, x, &e) && x[5] == 77.f);
        CHECK(!session_prefill(s, (int[]){ 1, 2, 3 }, 1, 3, &e));       /* kernels see the copy */
        session_close(s);
        p.section[p.n_sections - 1].size = 156;
        CHECK(session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e) == TGC_BAD_FILE && !s);
        plan_close(&p);
}

TEST(init_is_reproducible)
{
        enum { M = 100000 };
        static float a[M], b[M];
        Param p = { .name = "x", .count = M, .init = INIT_NORMAL, .init_arg = { 0.02 } };
        double sum = 0, square = 0;
        param_init(&p, 3, 42, 0, M, a);
        for (uint64_t at = 0; at < M; at += 997)        /* in pieces that do not fit the quads */
                param_init(&p, 3, 42, at, M - at < 997 ? M - at : 997, b + at);
        CHECK(!memcmp(a, b, sizeof a));
        for (int i = 0; i < M; i++) {
                sum += a[i];
                square += (double)a[i] * a[i];
        }
        CHECK(fabs(sum / M) < 5 * 0.02 / sqrt(M) && fabs(sqrt(square / M) - 0.02) < 0.02 * 5 / sqrt(2.0 * M));
        param_init(&p, 4, 42, 0, M, b);
        CHECK(a[0] != b[0] && a[17] != b[17]);
        param_init(&p, 3, 43, 0, M, b);
        CHECK(a[0] != b[0] && a[17] != b[17]);
        p.init = INIT_UNIFORM;
        p.init_arg[0] = -1;
        p.init_arg[1] = 1;
        param_init(&p, 0, 1, 0, M, b);
        for (int i = 0; i < M; i++)
                CHECK(b[i] >= -1.f && b[i] <= 1.f);
}

/* ---- memory ---- */

TEST(too_large_is_refused_with_numbers)
{
        Plan p = make_plan(manifest, "tgc-program 1\narena w 160\narena kv 999999999999999\narena act 64\n");
        Session *s;
        Err e;
        use_cache();
        CHECK(session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e) == TGC_NO_MEMORY && !s);
        CHECK_MSG(strstr(e.msg, "kv") && strstr(e.msg, "GB free"), "%s", e.msg);
        plan_close(&p);
}

/* ---- compiler and cache ---- */

static int count_files(const char *dir, char *first, size_t cap)
{
        DIR *d = opendir(dir);
        int n = 0;
        for (struct dirent *x; d && (x = readdir(d)); )
                if (*x->d_name != '.' && n++ == 0 && first)
                        snprintf(first, cap, "%s/%s", dir, x->d_name);
        if (d)
                closedir(d);
        return n;
}

TEST(cache_folder)
{
        static const char *const var[] = { "TGC_CACHE_DIR", "XDG_CACHE_HOME", "HOME" };
        static const char *const want[] = { "/a", "/b/tgc", "/c/.cache/tgc", "" };
        char *old[3], dir[64];
        int bad = 0;
        for (int i = 0; i < 3; i++)
                old[i] = getenv(var[i]) ? strdup(getenv(var[i])) : 0;
        setenv(var[0], "/a", 1);
        setenv(var[1], "/b", 1);
        setenv(var[2], "/c", 1);
        for (int i = 0; i < 4; i++) {
                cache_dir(dir, sizeof dir);
                bad |= strcmp(dir, want[i]) != 0;
                if (i < 3)
                        unsetenv(var[i]);
        }
        for (int i = 0; i < 3; i++) {
                old[i] ? setenv(var[i], old[i], 1) : unsetenv(var[i]);
                free(old[i]);
        }
        CHECK(!bad);
}

TEST(cache_entries)
{
        static char dir[64], path[512];
        CacheKey k;
        char hex[33], other[33];
        void *data;
        size_t n;
        Err e;

        CHECK(!tmpdir_make(path, &e));
        snprintf(dir, sizeof dir, "%.60s", path);
        setenv("TGC_CACHE_DIR", dir, 1);
        cache_key_begin(&k);
        cache_key_text(&k, "ab");
        cache_key_text(&k, "c");
        cache_key_end(&k, hex);
        cache_key_begin(&k);
        cache_key_text(&k, "a");
        cache_key_text(&k, "bc");
        cache_key_end(&k, other);
        CHECK(strlen(hex) == 32 && strcmp(hex, other));
        CHECK(!cache_get(hex, &data, &n) && cache_put(hex, "value", 5) && cache_get(hex, &data, &n));
        CHECK(n == 5 && !memcmp(data, "value", 5));
        free(data);
        CHECK(count_files(dir, path, sizeof path) == 1);
        char *bytes;
        size_t size;
        CHECK(!file_read_text(path, 1 << 20, &bytes, &size, &e));
        for (size_t i = 0; i < size; i++) {             /* damage of any byte is seen, and the entry goes */
                bytes[i] ^= 1;
                FILE *f = fopen(path, "wb");
                CHECK(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
                CHECK_MSG(!cache_get(hex, &data, &n), "byte %zu", i);
                CHECK(access(path, F_OK));
                bytes[i] ^= 1;
        }
        free(bytes);
        CHECK(cache_put(hex, "", 0) && cache_get(hex, &data, &n) && n == 0);
        free(data);
        tmpdir_remove(dir);
        setenv("TGC_CACHE_DIR", "/dev/null/no", 1);     /* cannot be made: no cache, no failure */
        CHECK(!cache_put(hex, "x", 1) && !cache_get(hex, &data, &n));
        *cache_path ? setenv("TGC_CACHE_DIR", cache_path, 1) : unsetenv("TGC_CACHE_DIR");
}

TEST(cpu_object_is_cached_and_rebuilt)
{
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        char path[600];
        Err e;
        Session *s = open_on(&p, DEV_CPU, 0);
        session_close(s);
        s = open_on(&p, DEV_CPU, 0);
        CHECK_MSG(strstr(dev_load_note(session_device(s)), "from the cache"), "%s", dev_load_note(session_device(s)));
        session_close(s);
        setenv("TGC_CACHE_DIR", "/dev/null/no", 1);
        CHECK_MSG(!session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e), "%s", e.msg);
        CHECK(strstr(dev_load_note(session_device(s)), "compiled"));
        session_close(s);
        CHECK(count_files(cache_path, path, sizeof path) > 0);
        plan_close(&p);
}

TEST(cpu_object_of_the_plan)
{
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, DEV_CPU, 0);
        void *pack;
        size_t n;
        Err e;
        session_close(s);
        CHECK_MSG(!cpu_compile_plan(&p, 0, NULL, &pack, &n, &e), "%s", e.msg);
        CHECK(!plan_add(&p, "object.cpu", pack, n, &e));
        s = open_on(&p, DEV_CPU, 0);
        CHECK(strstr(dev_load_note(session_device(s)), "from the plan"));
        session_close(s);
        ((char *)pack)[12] ^= 1;                        /* another processor's */
        CHECK(!plan_add(&p, "object.cpu", pack, n, &e));
        s = open_on(&p, DEV_CPU, 0);
        CHECK(strstr(dev_load_note(session_device(s)), "cache"));
        session_close(s);
        free(pack);
        plan_close(&p);
}

TEST(broken_source_is_kept)
{
        need(DEV_CPU);
        static const char bad[] = "//@ unit infer\nvoid k_logits(void) { this is not C; }\n//@ unit train\n";
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s;
        Err e;
        char path[300] = "";
        use_cache();
        CHECK(!plan_add(&p, "source.cpu", bad, strlen(bad), &e));
        int code = session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e);
        CHECK(code == TGC_NO_DEVICE && !s);
        CHECK_MSG(strstr(e.msg, "unit infer") && strstr(e.msg, "error"), "%s", e.msg);
        const char *at = strstr(e.msg, "kept in ");
        CHECK(at && sscanf(at, "kept in %299[^)]", path) == 1 && !access(path, R_OK));
        unlink(path);
        plan_close(&p);
}

TEST(no_compiler_says_what_to_install)
{
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s;
        Err e;
        char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *cc = getenv("CC") ? strdup(getenv("CC")) : 0;
        use_cache();
        setenv("PATH", "/nonexistent", 1);
        unsetenv("CC");
        int code = session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e);
        setenv("PATH", path, 1);
        if (cc)
                setenv("CC", cc, 1);
        free(path);
        free(cc);
        CHECK_MSG(code == TGC_NO_DEVICE && strstr(e.msg, "install"), "%s", e.msg);
        plan_close(&p);
}

TEST(compilers_inherit_no_secrets)
{
        static const char script[] = "#!/bin/sh\n"
                "echo \"$(env | grep -c TGC_TEST_SECRET) $([ -e /proc/self/fd/9 ]; echo $?)\"\n";
        char dir[512], path[600], *cc = getenv("CC") ? strdup(getenv("CC")) : 0;
        HostCc found;
        Err e;
        CHECK(!tmpdir_make(dir, &e));
        snprintf(path, sizeof path, "%s/cc", dir);
        CHECK(!file_write_atomic(path, script, sizeof script - 1, &e) && !chmod(path, 0700));
        setenv("CC", path, 1);
        setenv("TGC_TEST_SECRET", "x", 1);
        CHECK(dup2(1, 9) == 9);
        int code = host_cc_find(&found, 0, &e);
        close(9);
        cc ? setenv("CC", cc, 1) : unsetenv("CC");
        unsetenv("TGC_TEST_SECRET");
        tmpdir_remove(dir);
        free(cc);
        if (code || strcmp(found.path, path))
                SKIP("no shell to play a compiler");
        CHECK_MSG(!strcmp(found.version, "0 1"), "secrets seen, descriptor closed: %s", found.version);
}

TEST(temporary_folders_are_removed)
{
        char path[512], file[600];
        Err e;
        CHECK(!tmpdir_make(path, &e));
        snprintf(file, sizeof file, "%s/x", path);
        CHECK(!file_write_atomic(file, "1", 1, &e));
        tmpdir_remove(path);
        CHECK(access(path, F_OK));
        tmpdir_remove("");
}

TEST(program_and_plan_must_agree)
{
        need(DEV_CPU);
        Plan p = make_plan(manifest, "tgc-program 1\narena w 160\n"
                           "kernel nosuch unit infer threads 1 smem 0 args 1 flops 0 bytes 0 title x\n");
        Session *s;
        Err e;
        use_cache();
        int code = session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e);
        CHECK_MSG(code == TGC_BAD_FILE && strstr(e.msg, "nosuch"), "%s", e.msg);
        plan_remove(&p, "program.cpu");
        CHECK(session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e) == TGC_NO_DEVICE);
        CHECK_MSG(strstr(e.msg, "--target cpu"), "%s", e.msg);
        plan_remove(&p, "manifest");
        CHECK(session_open(&s, &p, &(SessionOptions){ .device = DEV_CPU }, &e) != TGC_OK);
        plan_close(&p);
}

/* ---- NVRTC without a GPU ---- */

TEST(nvrtc_compiles_for_other_machines)
{
        static const char *const arch[] = { "sm_80", "sm_90a" };
        Nvrtc n;
        Err e;
        void *pack;
        size_t size;
        Pack k;

        use_cache();
        if (nvrtc_open(&n, 0, &e))
                SKIP("no NVRTC");
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        for (int i = 0; i < 2; i++) {
                for (int again = 0; again < 2; again++) {
                        CHECK_MSG(!cuda_compile_plan(&p, arch[i], 0, &pack, &size, &e), "%s", e.msg);
                        CHECK_MSG(!pack_read(&k, pack, size, "cubin", &e), "%s", e.msg);
                        CHECK(k.n == 2 && !strcmp(k.file[0].name, "infer") && !memcmp(k.file[0].data, "\177ELF", 4));
                        pack_free(&k);
                        free(pack);
                }
        }
        void *twice;
        size_t size2;
        CHECK(!cuda_compile_plan(&p, "sm_80", 1, &pack, &size, &e));
        CHECK(!cuda_compile_plan(&p, "sm_80", 1, &twice, &size2, &e));
        CHECK_MSG(size == size2 && !memcmp(pack, twice, size), "compiled twice, the bytes differ");
        free(pack);
        free(twice);
        CHECK(cuda_compile_plan(&p, "sm_12", 0, &pack, &size, &e) == TGC_USAGE);
        CHECK(cuda_compile_plan(&p, "hopper", 0, &pack, &size, &e) == TGC_USAGE);
        /* alone, and beside others, which children compile */
#define BAD "//@ unit infer\n__global__ void k() { int x = ; }\n"
        static const char *const bad[] = { BAD, "//@ unit first\n__global__ void k1() {}\n" BAD "//@ unit last\n__global__ void k2() {}\n" };
#undef BAD
        for (int i = 0; i < 2; i++) {
                CHECK(!plan_add(&p, "source.cuda", bad[i], strlen(bad[i]), &e));
                CHECK(cuda_compile_plan(&p, "sm_80", i, &pack, &size, &e) == TGC_NO_DEVICE);
                CHECK_MSG(strstr(e.msg, "infer.cu(1)") && strstr(e.msg, "kept in"), "%s", e.msg);
                char path[300];
                if (sscanf(strstr(e.msg, "kept in "), "kept in %299[^)]", path) == 1)
                        unlink(path);
        }
        plan_close(&p);
}

TEST(no_gpu_is_said_clearly)
{
        Device *d;
        Err e;
        if (!dev_open(&d, DEV_CUDA, 0, &e)) {
                dev_close(d);
                SKIP("there is a GPU");
        }
        CHECK_MSG(strstr(e.msg, "driver") || strstr(e.msg, "GPU"), "%s", e.msg);
        CHECK(!dev_open(&d, DEV_AUTO, 0, &e) && dev_which(d) == DEV_CPU);
        dev_close(d);
}

/* ---- CUDA over a driver that is played by tests/fake_cuda.c ---- */

static const char fake_extra[] =
        "#include <string.h>\n"
        "int fake_n_args(const char *name)\n"
        "{\n"
        "        return !strcmp(name, \"k_logits\") ? 5 : !strcmp(name, \"k_sample\") ? 4\n"
        "             : !strcmp(name, \"k_grad\") ? 6 : 7;\n"
        "}\n";

/* Make libcuda.so.1 known to the loader; what dlopen finds is this one from then on. */
static void *load_fake_driver(void)
{
        char dir[512], path[640], command[2048], *file;
        void *lib = dlopen("libcuda.so.1", RTLD_NOW);
        HostCc cc;
        size_t n;
        Err e;

        if (lib && dlsym(lib, "fake_live"))
                return lib;
        if (lib)
                SKIP("there is a real driver");
        if (host_cc_find(&cc, 0, &e))
                SKIP("no C compiler");
        CHECK(!tmpdir_make(dir, &e));
        snprintf(path, sizeof path, "%s/kernels.c", dir);
        file = malloc(sizeof source_cpu + sizeof fake_extra);
        n = (size_t)sprintf(file, "%s%s", source_cpu, fake_extra);
        CHECK(!file_write_atomic(path, file, n, &e));
        snprintf(path, sizeof path, "%s/small.h", dir);
        CHECK(!file_write_atomic(path, small_h, sizeof small_h - 1, &e));
        free(file);
        snprintf(command, sizeof command, "%s -w -D_GNU_SOURCE -O1 -shared -fPIC -Iruntime "
                 "-Wl,-soname,libcuda.so.1 -o %s/libcuda.so.1 %s/kernels.c tests/fake_cuda.c -ldl -lm", cc.path, dir,
                 dir);
        CHECK_MSG(!system(command), "%s", command);
        snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
        lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        CHECK_MSG(lib, "%s", dlerror());
        tmpdir_remove(dir);
        return lib;
}

TEST(played_driver)
{
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *replays = dlsym(lib, "fake_replays");
        int *launches = dlsym(lib, "fake_launches");
        Nvrtc n;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        check_inference(DEV_CUDA);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        CHECK(*launches > 0 && *replays > 0);
        check_score(DEV_CUDA);
        check_training(DEV_CUDA);
        check_timing(DEV_CUDA);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        check_memory_returns(&p);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        DevOptions each = { .sync = 1 };
        Device *d;
        Err e;
        CHECK(!dev_open(&d, DEV_CUDA, &each, &e) && !dev_can_capture(d) && strstr(dev_name(d), "sm_90a"));
        Ceiling most;                   /* a clock of 132 kHz, 132 multiprocessors, half a millisecond a copy */
        CHECK(!dev_ceiling(d, &most, &e) && most.flops[1] == 132e3 * 132 * 4096 && most.bytes > 5e11 && most.bytes < 6e11);
        static char big[50 << 20];                      /* more than the pinned memory holds */
        static char back[sizeof big];
        void *mem;
        for (size_t i = 0; i < sizeof big; i++)
                big[i] = (char)(i * 31 >> 3);
        CHECK(!dev_alloc(d, sizeof big, &mem, &e) && !dev_download(d, back, mem, 99, &e) && back[7] == 0);
        CHECK(!dev_upload(d, mem, big, sizeof big, &e) && !dev_download(d, back, mem, sizeof back, &e));
        CHECK(!memcmp(big, back, sizeof big));
        dev_free(d, mem, sizeof big);
        dev_close(d);
        CHECK(*live == 0);
        each.index = 1;
        CHECK(dev_open(&d, DEV_CUDA, &each, &e) == TGC_NO_DEVICE && *live == 0);
}

/* *used: driver calls until the session is closed, which may not fail. */
static int use_everything(const Plan *p, const int *calls, int *used, Err *e)
{
        SessionOptions o = { .device = DEV_CUDA };
        TrainStep in = { .B = 1, .T = 2, .n_micro = 1, .ids = (int[]){ 1, 2 }, .targets = (int[]){ 3, 4 }, .lr = 0.1 };
        Session *s;
        TrainResult r;
        float x[33];
        double ms[4];
        int n, code = session_open(&s, p, &o, e);
        if (code)
                return code;
        if (!(code = session_prefill(s, (int[]){ 1, 2, 3 }, 1, 3, e))
            && !(code = session_decode(s, 0, 5, 0, 0, e)) && !(code = session_train_step(s, &in, &r, e))
            && !(code = session_param_get(s, 0, x, e)) && !(code = session_param_set(s, 0, x, e))
            && !(code = session_score(s, (int[]){ 1, 2 }, 2, 0, ms, e)))
                code = session_time_kernels(s, "decode", 1, 1, ms, 4, &n, e);
        *used = *calls;
        session_close(s);
        return code;
}

/* Let every call to the driver fail in turn: always an error, never a leak. */
TEST(played_driver_fails)
{
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *calls = dlsym(lib, "fake_calls"), *fail_at = dlsym(lib, "fake_fail_at");
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        use_cache();
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        *calls = *fail_at = 0;
        int total, used;
        CHECK_MSG(!use_everything(&p, calls, &total, &e), "%s", e.msg);
        CHECK(total > 100 && *live == 0);
        for (int i = 1; i <= total; i++) {
                *calls = 0;
                *fail_at = i;
                int code = use_everything(&p, calls, &used, &e);
                CHECK_MSG(code == TGC_NO_MEMORY || code == TGC_NO_DEVICE || code == TGC_BAD_FILE,
                          "call %d of %d failed, which went unnoticed", i, total);
                CHECK_MSG(*live == 0, "call %d of %d failed: %d things were not given back", i, total, *live);
        }
        *fail_at = 0;
        plan_close(&p);
}

/* ---- the public interface ---- */

static int first_token(void *user, int token)
{
        *(int *)user = token;
        return 1;
}

TEST(public_interface)
{
        need(DEV_CPU);
        char path[] = "/tmp/tgc-test-XXXXXX";
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Err e;
        TgcError err;
        Tgc *t;
        int token = -1, fd = mkstemp(path);
        double nll[2];
        float x[33];
        use_cache();
        close(fd);
        CHECK_MSG(!plan_write(&p, path, &e), "%s", e.msg);
        plan_close(&p);
        int code = tgc_open(&t, path, &(TgcOptions){ .device = "cpu" }, &err);
        CHECK_MSG(!code, "%s", err.message);
        CHECK(tgc_vocab(t) == V && tgc_context(t) == CTX && tgc_batch(t) == BATCH);
        CHECK(!tgc_prompt(t, (int[]){ 1, 2, 3 }, 3, &err) && !tgc_generate(t, 0, 9, first_token, &token, &err));
        CHECK(token == 8);
        CHECK(!tgc_score(t, (int[]){ 1, 3, 2 }, 3, 0, nll, &err) && nll[0] < nll[1]);
        CHECK(tgc_encode(t, "a", 1, 0, 0, &err) == TGC_STATUS_USAGE);
        CHECK(tgc_param_count(t) == 2 && !strcmp(tgc_param_name(t, 0), "x") && !tgc_param_name(t, 2));
        CHECK(!tgc_param_get(t, 0, x, &err) && tgc_param_get(t, 9, x, &err));
        TgcStep step = { .batch = 1, .tokens = 2, .micro = 1, .ids = (int[]){ 1, 2 },
                         .targets = (int[]){ 3, 4 }, .lr = 0.1 };
        CHECK(!tgc_train_step(t, &step, &err) && step.loss > 0 && step.grad_norm > 0 && !step.skipped);
        tgc_close(t);
        CHECK(tgc_open(&t, path, &(TgcOptions){ .device = "tpu" }, &err) == TGC_STATUS_USAGE && !t);
        CHECK(tgc_open(&t, "/nonexistent", 0, &err) == TGC_STATUS_IO && strstr(err.message, "/nonexistent"));
        unlink(path);
}

TEST_MAIN
