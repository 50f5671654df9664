/* test_cpu_attention.c: attention and its gradients in C, against plain loops in double. */
#include "cpu_kernels.h"
#include "cpu_attention.h"

typedef struct AttCase {
        int B, T, pos0, pos1, H, K, D, DV, causal, window, alibi, mask, ty;
        float softcap, drop;
        int documents; /* 1: rows hold several, no cache */
} AttCase;

static const AttCase att_case[] = {
        { 1, 1, 0, 0, 1, 1, 8, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 3, 0, 0, 4, 2, 16, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 1, 300, 7, 8, 4, 8, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 1, 299, 15, 8, 4, 16, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 1, 130, 33, 6, 2, 16, 0, 1, 50, 0, 0, TY_BF16, 0, 0, 0 },
        { 2, 1, 299, 0, 6, 1, 64, 0, 1, 100, 1, 0, TY_BF16, 0, 0, 0 },
        { 2, 65, 0, 0, 3, 3, 33, 20, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 1, 172, 40, 0, 4, 2, 64, 0, 1, 50, 0, 0, TY_F16, 0, 0, 0 },
        { 2, 65, 0, 0, 4, 2, 40, 0, 0, 0, 1, 1, TY_F32, 20, 0, 0 },
        { 1, 130, 0, 0, 2, 1, 128, 0, 1, 0, 0, 0, TY_F32, 0, .3f, 0 },
        { 2, 33, 0, 0, 4, 4, 5, 7, 1, 7, 1, 1, TY_BF16, 5, .1f, 0 },
        { 1, 3, 0, 0, 80, 1, 16, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 1, 200, 0, 0, 2, 2, 256, 0, 0, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 301, 0, 0, 4, 2, 24, 0, 1, 0, 0, 0, TY_F32, 0, 0, 1 },
        { 2, 140, 0, 0, 2, 2, 33, 20, 1, 9, 1, 0, TY_BF16, 0, .2f, 1 },
        { 1, 170, 0, 0, 2, 1, 16, 0, 0, 0, 0, 0, TY_F32, 3, 0, 1 },
};

/* Documents of 1 to 60 tokens: where that of each token begins and ends. */
static void documents_make(int *d, int T)
{
        for (int begin = 0, end; begin < T; begin = end) {
                end = begin + 1 + below(60);
                end = end < T ? end : T;
                for (int t = begin; t < end; t++)
                        d[2 * t] = begin, d[2 * t + 1] = end;
        }
}

/* A case with its tensors, (B,T,H,D) and (B,S,K,D) with a gap between heads. */
typedef struct Att {
        AttCase c;
        Rt rt;
        int S, DV;
        float *q, *k, *v, *slopes, *lse, *g;
        void *qs, *ks, *vs, *gs;
        float *mask;
        int *documents; /* (B,T,2) */
        Attention a;
        double *out, *ref_lse, *dq, *dk, *dv;
} Att;

static void att_make(Att *t, AttCase c)
{
        memset(t, 0, sizeof *t);
        t->c = c;
        t->rt.B = c.B, t->rt.T = c.T, t->rt.n_micro = 1;
        t->rt.pos[0] = c.pos0, t->rt.pos[1] = c.pos1;
        t->rt.seed[1] = 11;
        int DV = t->DV = c.DV ? c.DV : c.D, D = c.D,
            S = t->S = (c.pos0 > c.pos1 ? c.pos0 : c.pos1) + c.T;
        long dq = D + 1, dv = DV + 3;
        t->q = floats(c.B * c.T * c.H * dq), t->k = floats(c.B * S * c.K * dq),
        t->v = floats(c.B * S * c.K * dv);
        t->g = floats(c.B * c.T * c.H * DV), t->slopes = floats(c.H),
        t->lse = floats(c.B * c.H * c.T);
        t->qs = stored(c.ty, t->q, c.B * c.T * c.H * dq),
        t->ks = stored(c.ty, t->k, c.B * S * c.K * dq);
        t->vs = stored(c.ty, t->v, c.B * S * c.K * dv),
        t->gs = stored(c.ty, t->g, c.B * c.T * c.H * DV);
        t->mask = malloc((size_t)(c.B * c.T * S) * sizeof *t->mask);
        for (int i = 0; i < c.B * c.T * S; i++)
                t->mask[i] = below(4) != 0 && i / S % 5 != 2; /* some rows see nothing */
        t->documents = malloc((size_t)(c.B * c.T * 2) * sizeof *t->documents);
        for (int b = 0; b < c.B; b++)
                documents_make(t->documents + b * c.T * 2, c.T);
        t->a = (Attention) { .H = c.H,
                             .K = c.K,
                             .D = D,
                             .DV = c.DV,
                             .q = { t->qs, c.ty, c.T * c.H * dq, c.H * dq, dq },
                             .k = { t->ks, c.ty, S * c.K * dq, c.K * dq, dq },
                             .v = { t->vs, c.ty, S * c.K * dv, c.K * dv, dv },
                             .scale = 2.f / sqrtf((float)D),
                             .softcap = c.softcap,
                             .causal = c.causal,
                             .cached = !c.documents,
                             .window = c.window,
                             .slopes = c.alibi ? t->slopes : 0,
                             .mask = c.mask ? t->mask : 0,
                             .mask_b = c.T * S,
                             .mask_h = 0,
                             .mask_t = S,
                             .documents = c.documents ? t->documents : 0,
                             .drop = c.drop,
                             .drop_id = 3,
                             .lse = t->lse };
        /* the plain loops, forward and backward */
        size_t n = (size_t)(c.B * c.T * c.H), m = (size_t)(c.B * S * c.K);
        t->out = calloc(n * (size_t)DV, 8), t->ref_lse = calloc(n, 8),
        t->dq = calloc(n * (size_t)D, 8);
        t->dk = calloc(m * (size_t)D, 8), t->dv = calloc(m * (size_t)DV, 8);
        double *p = malloc(8 * (size_t)S), *dp = malloc(8 * (size_t)S), *sl = malloc(8 * (size_t)S);
        for (int b = 0; b < c.B; b++)
                for (int i = 0; i < c.T; i++)
                        for (int h = 0; h < c.H; h++) {
                                int pos = t->rt.pos[b], Sb = pos + c.T, kh = h / (c.H / c.K),
                                    at = pos + i;
                                float *q = t->q + ((b * c.T + i) * c.H + h) * dq,
                                      *g = t->g + ((long)(b * c.T + i) * c.H + h) * DV;
                                const int *of = t->documents + (b * c.T + i) * 2;
                                double max = -INFINITY, sum = 0., delta = 0.,
                                       *o = t->out + ((b * c.T + i) * c.H + h) * DV;
                                for (int s = 0; s < Sb; s++) {
                                        float *k = t->k + ((b * S + s) * c.K + kh) * dq;
                                        double x = 0.;
                                        for (int d = 0; d < D; d++)
                                                x += (double)q[d] * (double)k[d];
                                        x *= (double)t->a.scale;
                                        double th = c.softcap > 0.f ? tanh(x / (double)c.softcap)
                                                                    : 0.;
                                        x = c.softcap > 0.f ? (double)c.softcap * th : x;
                                        sl[s] = 1. - th * th;
                                        x += c.alibi ? (double)t->slopes[h] * (s - at) : 0.;
                                        int ok = (!c.causal || s <= at) &&
                                                 (!c.window || s > at - c.window) &&
                                                 (!c.mask || t->mask[(b * c.T + i) * S + s]) &&
                                                 (!c.documents || (s >= of[0] && s < of[1]));
                                        p[s] = ok ? x : -INFINITY;
                                        max = fmax(max, p[s]);
                                }
                                for (int s = 0; s < Sb; s++)
                                        sum += p[s] = max == -INFINITY ? 0. : exp(p[s] - max);
                                t->ref_lse[(b * c.H + h) * c.T + i] = max == -INFINITY
                                                                              ? -INFINITY
                                                                              : max + log(sum);
                                for (int s = 0; s < Sb; s++) {
                                        uint64_t at_s = (((uint64_t)b * (unsigned)c.H +
                                                          (unsigned)h) *
                                                                 (unsigned)c.T +
                                                         (unsigned)i) *
                                                                (unsigned)Sb +
                                                        (unsigned)s;
                                        double keep = c.drop > 0.f ? (double)dropout(1.f, c.drop, 3,
                                                                                     at_s, &t->rt)
                                                                   : 1.;
                                        float *v = t->v + ((b * S + s) * c.K + kh) * dv;
                                        p[s] = sum > 0. ? p[s] / sum : 0.;
                                        dp[s] = 0.;
                                        for (int d = 0; d < DV; d++) {
                                                o[d] += p[s] * keep * (double)v[d];
                                                dp[s] += keep * (double)g[d] * (double)v[d];
                                                t->dv[((b * S + s) * c.K + kh) * DV + d] +=
                                                        p[s] * keep * (double)g[d];
                                        }
                                }
                                for (int d = 0; d < DV; d++)
                                        delta += o[d] * (double)g[d];
                                for (int s = 0; s < Sb; s++) {
                                        double ds = p[s] * (dp[s] - delta) * sl[s] *
                                                    (double)t->a.scale;
                                        float *k = t->k + ((b * S + s) * c.K + kh) * dq;
                                        for (int d = 0; d < D; d++) {
                                                t->dq[((b * c.T + i) * c.H + h) * D + d] +=
                                                        ds * (double)k[d];
                                                t->dk[((b * S + s) * c.K + kh) * D + d] +=
                                                        ds * (double)q[d];
                                        }
                                }
                        }
        free(p), free(dp), free(sl);
}

static void att_drop_case(Att *t)
{
        free(t->q), free(t->k), free(t->v), free(t->g), free(t->slopes), free(t->lse),
                free(t->mask);
        free(t->documents);
        free(t->qs), free(t->ks), free(t->vs), free(t->gs);
        free(t->out), free(t->ref_lse), free(t->dq), free(t->dk), free(t->dv);
}

static void near_all(const float *got, const double *want, long n, double tol, const char *what,
                     unsigned c)
{
        for (long i = 0; i < n; i++)
                NEAR(got[i], want[i], tol * (1. + fabs(want[i])), "case %u, %s[%ld]", c, what, i);
}

/* Compiled once: a family with sizes and types known only at run time is much code. */
static __attribute__((noinline)) void att_forward(const Att *t, long tile, const Io *io)
{
        attention_task(&t->a, &t->rt, tile, io, epilogue0);
}

TEST (attention_forward) {
        bool parts = false;
        for (unsigned c = 0; c < sizeof att_case / sizeof *att_case; c++) {
                Att t;
                att_make(&t, att_case[c]);
                long n = (long)t.c.B * t.c.T * t.c.H;
                float *y = floats(n * t.DV);
                Io io = { .y0 = y, .n_out = t.c.H * t.DV };
                RUN(attention_tiles(&t.a, &t.rt), y, n * t.DV, att_forward(&t, tile, &io));
                near_all(y, t.out, n * t.DV, 2e-6, "out", c);
                for (long i = 0; i < n; i++)
                        CHECK(t.ref_lse[i] == -INFINITY
                                      ? t.lse[i] == -INFINITY
                                      : fabs((double)t.lse[i] - t.ref_lse[i]) < 1e-5);
                t.a.lse = NULL; /* then a decoding step's heads may be tiles of their own */
                RUN(attention_tiles(&t.a, &t.rt), y, n * t.DV, att_forward(&t, tile, &io));
                near_all(y, t.out, n * t.DV, 2e-6, "out in parts", c);
                parts |= attention_tiles(&t.a, &t.rt) > t.c.B * t.c.K && t.c.T == 1;
                free(y);
                att_drop_case(&t);
        }
        CHECK(parts);
}

TEST (attention_backward) {
        for (unsigned c = 0; c < sizeof att_case / sizeof *att_case; c++) {
                Att t;
                if (att_case[c].pos0 != att_case[c].pos1 && att_case[c].B > 1)
                        continue;
                att_make(&t, att_case[c]);
                long n = (long)t.c.B * t.c.T * t.c.H, m = (long)t.c.B * t.S * t.c.K;
                float *o = floats(n * t.DV), *dq = floats(n * t.c.D),
                      *dk = floats(m * (t.c.D + t.DV)), *dv = dk + m * t.c.D;
                Io io = { .y0 = o, .n_out = t.c.H * t.DV },
                   ioq = { .y0 = dq, .n_out = t.c.H * t.c.D };
                struct {
                        Io k;
                } iok = { { .y0 = dk, .y1 = dv, .n_out = t.c.K * t.c.D } };
                const Attention *a = &t.a;
                const Rt *rt = &t.rt;
                RUN(attention_tiles(a, rt), o, n * t.DV, att_forward(&t, tile, &io));
                Heads out = { o, TY_F32, t.c.T * t.c.H * t.DV, t.c.H * t.DV, t.DV };
                Heads g = { t.gs, t.c.ty, t.c.T * t.c.H * t.DV, t.c.H * t.DV, t.DV };
                RUN(attention_grad_q_tiles(a, rt), dq, n * t.c.D,
                    attention_grad_q_task(a, out, g, rt, tile, &ioq, epilogue0));
                near_all(dq, t.dq, n * t.c.D, 1e-5, "dq", c);
                if (t.DV == t.c.D) {
                        RUN(attention_grad_kv_tiles(a, rt), dk, m * 2 * t.c.D,
                            attention_grad_kv_task(a, out, g, rt, tile, &iok, epilogue0,
                                                   epilogue1));
                        near_all(dk, t.dk, m * t.c.D, 1e-5, "dk", c);
                        near_all(dv, t.dv, m * t.DV, 1e-5, "dv", c);
                }
                free(o), free(dq), free(dk);
                att_drop_case(&t);
        }
}

TEST_MAIN
