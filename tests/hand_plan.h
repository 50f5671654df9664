/* hand_plan.h: a plan written by hand, and sessions over it: a "model" whose next token is the sum
 * of all tokens so far plus the first weight, and whose loss is the mean of (x[id] - target)^2. */
#ifndef TGC_HAND_PLAN_H
#define TGC_HAND_PLAN_H

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../runtime/util/file.h"
#include "../runtime/device/host_cc.h"
#include "../runtime/session/session_impl.h"
#include "test.h"

enum { V = 16, CTX = 32, BATCH = 3, CHUNK = 5, N = 40 };

/* ---- the plan ---- */

static const char manifest[] = "tgc 1\n"
                               "model sum\n"
                               "dtype f32\n"
                               "mode both\n"
                               "vocab 16\nctx 32\n"
                               "batch 3\n"
                               "chunk 5\n"
                               "params 33 33 40\n"
                               "param x 3x11 0 trainable normal 0.5\n"
                               "param frozen 7 33 frozen uniform 2 3\n";

/* act: ids 0, targets 256, logits 1024 (3*32*16*4), next 8192, loss 8448, norm 8452, bad 8456 */
#define PROGRAM(p_arena, master)                                                               \
        "tgc-program 2\n"                                                                      \
        "arena w 160\n" p_arena                                                                \
        "arena g 132\narena m 132\narena v 132\narena kv 384\narena act 16384\n"               \
        "kernel k_logits unit infer threads 64 smem 0 args 5 flops 0 bytes 0 title logits\n"   \
        "kernel k_sample unit infer threads 32 smem 128 args 4 flops 0 bytes 0 title argmax\n" \
        "kernel k_grad unit train threads 64 smem 0 args 6 flops 0 bytes 0 title gradient\n"   \
        "kernel k_update unit train threads 64 smem 0 args 7 flops 0 bytes 0 title descent\n"  \
        "program prefill B 3 T 5\n"                                                            \
        "io ids i32 act+0 B*T\nio logits f32 act+1024 B*T*16\n"                                \
        "run k_logits grid B*T args rt act+0 kv+0 w+0 act+1024\nend\n"                         \
        "program score B 1 T 8\n"                                                              \
        "io ids i32 act+0 B*T\nio logits f32 act+1024 B*T*16\n"                                \
        "run k_logits grid B*T args rt act+0 kv+0 w+0 act+1024\nend\n"                         \
        "program decode B 1 T 1\n"                                                             \
        "io ids i32 act+0 B\nio next i32 act+8192 B\n"                                         \
        "run k_logits grid B args rt act+0 kv+0 w+0 act+1024\n"                                \
        "run k_sample grid 1 args rt rt act+1024 act+8192\n"                                   \
        "end\n"                                                                                \
        "program decode3 B 3 T 1\n"                                                            \
        "io ids i32 act+8192 B\nio next i32 act+8192 B\n"                                      \
        "run k_logits grid B args rt act+8192 kv+0 w+0 act+1024\n"                             \
        "run k_sample grid 1 args rt rt act+1024 act+8192\nend\n"                              \
        "program step B 2 T 4\n"                                                               \
        "io ids i32 act+0 B*T\nio targets i32 act+256 B*T\nio loss f32 act+8448 1\n"           \
        "run k_grad grid 1 args rt act+0 act+256 " master " g+0 act+8448\nend\n"               \
        "program eval B 2 T 4\n"                                                               \
        "io ids i32 act+0 B*T\nio targets i32 act+256 B*T\nio loss f32 act+8448 1\n"           \
        "run k_grad grid 1 args rt act+0 act+256 " master " g+0 act+8448\nend\n"               \
        "program update B 1 T 1\nio grad_norm f32 act+8452 1\nio bad i32 act+8456 1\n"         \
        "run k_update grid 1 args rt " master " g+0 m+0 v+0 act+8452 act+8456\nend\n"          \
        "zero kv+0 384\n"

static const char source_cpu[] =
        "//@ unit infer\n"
        "#include \"small.h\"\n"
        "#include \"rt.h\"\n"
        "void k_logits(const Rt *rt, void *const *arg)\n{\n"
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
        "                                logits[(b * rt->T + t) * V + v] = v == sum % V ? 3.f : "
        "0.f;\n"
        "                }\n}\n"
        "void k_sample(const Rt *crt, void *const *arg)\n{\n"
        "        Rt *rt = arg[1];\n"
        "        const float *logits = arg[2];\n"
        "        int *next = arg[3];\n"
        "        for (int b = 0; b < rt->B; b++) {\n"
        "                int best = 0;\n"
        "                for (int v = 0; v < V; v++)\n"
        "                        if (logits[b * V + v] > logits[b * V + best]) best = v;\n"
        "                next[b] = best;\n"
        "                rt->pos[b] += rt->T;\n        }\n"
        "        for (int b = 0; b < rt->B; b++) rt->n_out[b]++;\n"
        "        (void)crt;\n}\n"
        "//@ unit train\n"
        "#include <math.h>\n"
        "#include \"small.h\"\n"
        "#include \"rt.h\"\n"
        "void k_grad(const Rt *rt, void *const *arg)\n{\n"
        "        const int *ids = arg[1], *targets = arg[2];\n"
        "        const float *x = arg[3];\n"
        "        float *g = arg[4], *loss = arg[5], sum = 0;\n"
        "        for (int i = 0; i < NTRAIN && rt->micro == 0; i++) g[i] = 0;\n"
        "        for (int i = 0; i < rt->B * rt->T; i++) {\n"
        "                if (targets[i] < 0) continue;\n"
        "                float d = x[ids[i]] - (float)targets[i];\n"
        "                sum += d * d;\n"
        "                g[ids[i]] += 2 * d * rt->inv_tokens * rt->share;\n        }\n"
        "        *loss = sum * rt->inv_tokens;\n}\n"
        "void k_update(const Rt *rt, void *const *arg)\n{\n"
        "        float *x = arg[1], *g = arg[2], *norm = arg[5], sum = 0;\n"
        "        int *bad = arg[6];\n"
        "        for (int i = 0; i < NTRAIN; i++) sum += g[i] * g[i];\n"
        "        *norm = sqrtf(sum);\n"
        "        if ((*bad = !(*norm < 1e30f))) return;\n"
        "        for (int i = 0; i < NTRAIN; i++) x[i] -= rt->lr * g[i];\n}\n";

static const char source_cuda[] =
        "//@ unit infer\n"
        "#include \"tgc.cuh\"\n"
        "#include \"small.h\"\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_logits(const Rt *rt, const int *ids, int *kv, const float *w, float *logits)\n{\n"
        "        int b = blockIdx.x / rt->T, t = blockIdx.x % rt->T, sum = (int)w[33], *row = kv "
        "+ b * CTX;\n"
        "        if (threadIdx.x == 0) row[rt->pos[b] + t] = ids[b * rt->T + t];\n"
        "        __syncthreads();\n"
        "        for (int i = 0; i < rt->pos[b]; i++) sum += row[i];\n"
        "        for (int i = 0; i <= t; i++) sum += ids[b * rt->T + i];\n"
        "        for (int v = threadIdx.x; v < V; v += blockDim.x)\n"
        "                logits[(b * rt->T + t) * V + v] = v == sum % V ? 3.f : 0.f;\n}\n"
        "TGC_KERNEL(k_logits, 5)\n"
        "extern \"C\" __global__ void __launch_bounds__(32)\n"
        "k_sample(const Rt *crt, Rt *rt, const float *logits, int *next)\n{\n"
        "        TGC_SMEM(smem);\n"
        "        int *red = (int *)smem;\n"
        "        for (int b = 0; b < crt->B; b++) {\n"
        "                int lane = threadIdx.x;\n"
        "                red[lane] = lane < V && logits[b * V + lane] == 3.f ? lane : -1;\n"
        "                __syncthreads();\n"
        "                if (lane == 0) {\n"
        "                        for (int i = 0; i < V; i++) if (red[i] >= 0) next[b] = red[i];\n"
        "                        rt->pos[b] += rt->T;\n"
        "                        if (b == 0) for (int b = 0; b < rt->B; b++) rt->n_out[b]++;\n"
        "                }\n"
        "                __syncthreads();\n        }\n}\n"
        "TGC_KERNEL(k_sample, 4)\n"
        "//@ unit train\n"
        "#include \"tgc.cuh\"\n"
        "#include \"small.h\"\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_grad(const Rt *rt, const int *ids, const int *targets, const float *x, float *g, float "
        "*loss)\n"
        "{\n"
        "        if (threadIdx.x) return;\n"
        "        float sum = 0;\n"
        "        for (int i = 0; i < NTRAIN && rt->micro == 0; i++) g[i] = 0;\n"
        "        for (int i = 0; i < rt->B * rt->T; i++) {\n"
        "                if (targets[i] < 0) continue;\n"
        "                float d = x[ids[i]] - (float)targets[i];\n"
        "                sum += d * d;\n"
        "                g[ids[i]] += 2 * d * rt->inv_tokens * rt->share;\n        }\n"
        "        *loss = sum * rt->inv_tokens;\n}\n"
        "TGC_KERNEL(k_grad, 6)\n"
        "extern \"C\" __global__ void __launch_bounds__(64)\n"
        "k_update(const Rt *rt, float *x, const float *g, float *m, float *v, float *norm, int "
        "*bad)\n"
        "{\n"
        "        if (threadIdx.x) return;\n"
        "        float sum = 0;\n"
        "        for (int i = 0; i < NTRAIN; i++) sum += g[i] * g[i];\n"
        "        *norm = sqrtf(sum);\n"
        "        if ((*bad = !(*norm < 1e30f))) return;\n"
        "        for (int i = 0; i < NTRAIN; i++) x[i] -= rt->lr * g[i];\n}\n"
        "TGC_KERNEL(k_update, 7)\n";

static const char small_h[] = "#pragma once\nenum { V = 16, CTX = 32, NTRAIN = 33 };\n";

/* small.h and the kernel headers that lie in the tree. */
static inline void add_headers(Plan *p)
{
        static const char *const dirs[] = { "codegen/kernels/common", "codegen/kernels/emulate",
                                            "runtime" };
        PackFile f[80] = { { .name = "small.h", .data = small_h, .size = sizeof small_h - 1 } };
        char path[600], *text;
        int n = 1;
        void *blob;
        size_t size;
        Err e;

        for (int i = 0; i < 3; i++) {
                DIR *d = opendir(dirs[i]);
                for (struct dirent *x; d && (x = readdir(d)) && n < 80;) {
                        const char *dot = strrchr(x->d_name, '.');
                        int wanted = i == 2 ? !strcmp(x->d_name, "rt.h")
                                            : dot && (!strcmp(dot, ".cuh") ||
                                                      !strncmp(x->d_name, "emulate", 7));
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
        CHECK(!plan_add(p, "headers.cuda", blob, size, &e) &&
              !plan_add(p, "headers.cpu", blob, size, &e));
        free(blob);
        while (--n)
                free((void *)f[n].data);
}

static inline Plan make_plan(const char *manifest_text, const char *program)
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

static inline void remove_cache(void)
{
        chmod(cache_path, 0700);
        tmpdir_remove(cache_path);
}

/* All tests share one fresh cache. */
static inline void use_cache(void)
{
        if (!*cache_path) {
                strcpy(cache_path, "/tmp/tgc-test-cache-XXXXXX");
                CHECK(mkdtemp(cache_path));
                atexit(remove_cache);
        }
        setenv("TGC_CACHE_DIR", cache_path, 1);
}

/* Before anything is allocated: skip where the device is not. */
static inline void need(DevKind kind)
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

static inline Session *open_on(const Plan *p, DevKind kind, int mode)
{
        SessionOptions o = { .device = kind, .mode = mode, .seed = 42, .dev.threads = 2 };
        Session *s;
        Err e;
        use_cache();
        int code = session_open(&s, p, &o, &e);
        CHECK_MSG(!code, "%s", e.msg);
        return s;
}

#endif
