/* test_cpu_stored.c: products with weights in blocks, every type of ir/storage.def: against the
 * values that the importer's decoders give, summed in double. */
// clang-format off
#define TGC_STORED(X) \
        X(Q4_0, 32, 18, q4_0) X(Q4_1, 32, 20, q4_1) X(Q5_0, 32, 22, q5_0) X(Q5_1, 32, 24, q5_1) \
        X(Q8_0, 32, 34, q8_0) X(Q2_K, 256, 84, q2_k) X(Q3_K, 256, 110, q3_k) \
        X(Q4_K, 256, 144, q4_k) X(Q5_K, 256, 176, q5_k) X(Q6_K, 256, 210, q6_k) \
        X(IQ4_NL, 32, 18, iq4_nl) X(IQ4_XS, 256, 136, iq4_xs) X(MXFP4, 32, 17, mxfp4) \
        X(NVFP4, 64, 36, nvfp4) X(NF4, 64, 36, nf4) X(FP4, 64, 36, fp4) \
        X(I4_32, 32, 20, i4) X(I4_64, 64, 36, i4) X(I4_128, 128, 68, i4) \
        X(I8_32, 32, 36, i8) X(I8_64, 64, 68, i8) X(I8_128, 128, 132, i8) \
        X(SCB_32, 32, 36, scb) X(SCB_64, 64, 68, scb) X(SCB_128, 128, 132, scb) \
        X(F8_32, 32, 36, f8) X(F8_64, 64, 68, f8) X(F8_128, 128, 132, f8)
// clang-format on
#define TGC_BF16 1
#include "cpu_kernels.h"
#include "cpu_gemv.h"
#include "cpu_grouped_gemm.h"
#include "../runtime/weights/ck_tensor.h"

static const struct {
        const char *name;
        int ty, ck, values, bytes;
} types[] = {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode) { name, TY_##e, CK_##e, values, bytes },
#include "../ir/storage.def"
};
enum { N_TYPES = sizeof types / sizeof *types };

/* Random blocks whose values are numbers near 1: scales are what is no byte of all patterns. */
typedef struct Weights {
        unsigned char *p;
        float *x; /* decoded */
} Weights;

static void put_half(unsigned char *p, float x)
{
        const f16 h = f16_from_float(x);
        memcpy(p, &h, 2);
}

static void put_float(unsigned char *p, float x) { memcpy(p, &x, 4); }

static void random_block(int ck, unsigned char *b, int bytes)
{
        for (int i = 0; i < bytes; i++)
                b[i] = (unsigned char)below(256);
        switch (ck) {
        case CK_Q4_1:
        case CK_Q5_1:
        case CK_Q4_K:
        case CK_Q5_K: put_half(b + 2, 0.01f * noise()); /* fall through */
        case CK_Q4_0:
        case CK_Q5_0:
        case CK_Q8_0:
        case CK_IQ4_NL:
        case CK_IQ4_XS: put_half(b, 0.01f * noise()); break;
        case CK_Q2_K: put_half(b + 82, 0.01f * noise()); /* fall through */
        case CK_Q3_K:
        case CK_Q6_K: put_half(b + bytes - (ck == CK_Q2_K ? 4 : 2), 0.01f * noise()); break;
        case CK_NF4:
        case CK_FP4:
        case CK_I8_32:
        case CK_I8_64:
        case CK_I8_128:
        case CK_SCB_32:
        case CK_SCB_64:
        case CK_SCB_128: put_float(b, 0.01f * noise()); break;
        case CK_I4_32:
        case CK_I4_64:
        case CK_I4_128:
                put_float(b, ck_f32_from_bf16(ck_bf16_from_f32(0.01f * noise())));
                b[0] = (unsigned char)below(17);
                break;
        case CK_F8_32:
        case CK_F8_64:
        case CK_F8_128:
                put_float(b, 0.01f * noise());
                for (int i = 4; i < bytes; i++) /* no NaN */
                        b[i] = (b[i] & 0x7f) == 0x7f ? 0x38 : b[i];
                break;
        case CK_MXFP4: b[0] = (unsigned char)(120 + below(6)); break;
        default:
                for (int i = 0; i < 4; i++)
                        b[i] = (unsigned char)(40 + below(30));
        }
}

static Weights weights_of(int t, long rows, long K)
{
        const long blocks = rows * K / types[t].values;
        Weights w = { malloc((size_t)(blocks * types[t].bytes)), floats(rows * K) };
        for (long i = 0; i < blocks; i++)
                random_block(types[t].ck, w.p + i * types[t].bytes, types[t].bytes);
        CHECK(ck_convert(w.x, CK_F32, w.p, types[t].ck, (size_t)(rows * K), 1));
        for (long i = 0; i < rows * K; i++)
                CHECK_MSG(isfinite(w.x[i]), "%s: %g", types[t].name, (double)w.x[i]);
        return w;
}

static void weights_free(Weights *w)
{
        free(w->p);
        free(w->x);
}

TEST (elements_from_anywhere) {
        for (int t = 0; t < N_TYPES; t++) {
                const long K = 512, rows = 3;
                Weights w = weights_of(t, rows, K);
                float v[600];
                for (int i = 0; i < 200; i++) {
                        const long at = below((int)(rows * K));
                        const int n = 1 + below((int)(rows * K - at < 600 ? rows * K - at : 600));
                        stored_load(types[t].ty, v, w.p, at, n);
                        for (int k = 0; k < n; k++)
                                NEAR(v[k], (double)w.x[at + k], 1e-6 * (1 + fabs(w.x[at + k])),
                                     "%s %ld+%d", types[t].name, at, k);
                        CHECK(stored_get(types[t].ty, w.p, at) == v[0]);
                }
                weights_free(&w);
        }
}

/* y = x W^T, rows of x as the kernels ask for them. */
static const float *given_x;
static long given_K;
static void head(const void *args, long row, int col, int n, float *v)
{
        (void)args;
        memcpy(v, given_x + row * given_K + col, sizeof(float) * (size_t)n);
}
static float *got_y;
static long got_N;
static void tail(const void *args, long row, int col, int n, float *v)
{
        (void)args;
        memcpy(got_y + row * got_N + col, v, sizeof(float) * (size_t)n);
}

static void compare(int t, const float *y, const float *x, const float *w, long M, long N, long K)
{
        for (long i = 0; i < M; i++)
                for (long j = 0; j < N; j++) {
                        double s = 0, size = 0;
                        for (long k = 0; k < K; k++) {
                                s += (double)x[i * K + k] * w[j * K + k];
                                size += fabs((double)x[i * K + k] * w[j * K + k]);
                        }
#ifdef TGC_ACT_INT8 /* x is at most 1, and off by half a step of 127 */
                        for (long k = 0; k < K; k++)
                                size += fabs((double)w[j * K + k]) / 254 * 1e6;
#endif
                        NEAR(y[i * N + j], s, 1e-6 * (size + 1e-3), "%s, %ldx%ldx%ld: (%ld,%ld)",
                             types[t].name, M, N, K, i, j);
                }
}

/* Each family once, in a function of its own, which gcc compiles in less time. */
TGC_NOINLINE void gemv(Mat w, int M, long N, long K, long tile)
{
        gemv_task(NORM_NONE, 0.f, w, M, N, K, tile, NULL, head, tail);
}
TGC_NOINLINE void gemm(Mat x, Mat w, long M, long N, long K, long tile)
{
        gemm_task(x, w, 1, M, N, K, tile, NULL, tail);
}

/* Rows of x made ready: the same bits, by integers (with tiles and without). */
static void ready(int t, Mat x, Mat w, long M, long N, long K)
{
        const long tiles = ready_tiles(x, w, M, K);
        const size_t bytes = sizeof(float) * (size_t)(M * N);
        float *y = malloc(bytes), *was = got_y;
        void *room = malloc((size_t)((M + 15) / 16 * (K / 32) * READY_BYTES));
        for (long tile = 0; tile < tiles; tile++)
                ready_task(x, w, M, K, room, tile);
        x.ready = room;
#ifdef TGC_AMX_PLAYED
        for (amx_refused = 0; amx_refused < 2; amx_refused++)
#endif
        {
                got_y = y;
                memset(y, 0, bytes);
                for (long tile = 0; tile < gemm_tiles(x, w, 1, M, N, K); tile++)
                        gemm(x, w, M, N, K, tile);
                CHECK_MSG(!memcmp(y, was, bytes), "%s, %ldx%ldx%ld", types[t].name, M, N, K);
        }
#ifdef TGC_AMX_PLAYED
        amx_refused = 0;
#endif
        got_y = was;
        free(y), free(room);
}

static void product(int t, long M, long N, long K)
{
        Weights w = weights_of(t, N, K);
        float *x = floats(M * K), *y = floats(M * N);
        const Mat wm = { w.p, types[t].ty, 1, K, 0 }, xm = { x, TY_F32, 0, K, 0 };
        given_x = x, given_K = K, got_y = y, got_N = N;
        if (M <= GEMV_M_MAX) {
                for (long tile = 0; tile < gemv_tiles(N, K); tile++)
                        gemv(wm, (int)M, N, K, tile);
                compare(t, y, x, w.x, M, N, K);
        }
        memset(y, 0, sizeof(float) * (size_t)(M * N));
        for (long tile = 0; tile < gemm_tiles(xm, wm, 1, M, N, K); tile++)
                gemm(xm, wm, M, N, K, tile);
        compare(t, y, x, w.x, M, N, K);
        ready(t, xm, wm, M, N, K);
        free(x);
        free(y);
        weights_free(&w);
}

TEST (products_of_every_type) {
        static const long M[] = { 1, 2, 3, 5, 8, 9, 16, 33 };
        static const long N[] = { 1, 7, 64, 130, 513 };
        for (int t = 0; t < N_TYPES; t++)
                for (size_t m = 0; m < sizeof M / sizeof *M; m++)
                        for (size_t n = 0; n < sizeof N / sizeof *N; n++)
                                if (M[m] * N[n] <= 2100)
                                        product(t, M[m], N[n],
                                                types[t].values *
                                                        (1 + below(256 / types[t].values + 2)));
        for (int t = 0; t < N_TYPES; t++) /* longer than a panel of K; several tiles each way */
                product(t, 1, 19, 2048), product(t, 17, 19, 768 + types[t].values),
                        product(t, 130, 600, 256);
}

/* A value that is no number is in no maximum, and still in every product. */
TEST (no_number_stays_none) {
        static const float none[] = { NAN, INFINITY, -INFINITY };
        for (int t = 0; t < N_TYPES; t++)
                for (int m = 0; m < 6; m++) {
                        const long M = m % 2 ? 17 : 1, N = 9, K = 3 * (long)types[t].values;
                        Weights w = weights_of(t, N, K);
                        float *x = floats(M * K), *y = floats(M * N);
                        const Mat wm = { w.p, types[t].ty, 1, K, 0 }, xm = { x, TY_F32, 0, K, 0 };
                        given_x = x, given_K = K, got_y = y, got_N = N;
                        x[below((int)K)] = none[m / 2];
                        if (M == 1)
                                gemv(wm, 1, N, K, 0);
                        else
                                for (long tile = 0; tile < gemm_tiles(xm, wm, 1, M, N, K); tile++)
                                        gemm(xm, wm, M, N, K, tile);
                        for (long j = 0; j < N; j++)
                                CHECK_MSG(!isfinite(y[j]), "%s, M %ld, %g: %g", types[t].name, M,
                                          (double)none[m / 2], (double)y[j]);
                        free(x);
                        free(y);
                        weights_free(&w);
                }
}

static void slot_tail(const void *args, long row, int col, int n, float *v, int expert)
{
        (void)expert;
        tail(args, row, col, n, v);
}

/* Two slots of four experts, unsorted and sorted, few and many. */
TEST (products_of_experts) {
        enum { E = 4, N = 33 };
        for (int t = 0; t < N_TYPES; t++) {
                const long K = types[t].values * 2;
                Weights w = weights_of(t, E * N, K);
                float *x = floats(6 * K), *y = floats(6 * N);
                const int ids[6] = { 2, 0, 3, 2, 1, 2 }, perm[6] = { 1, 4, 0, 3, 5, 2 },
                          offs[5] = { 0, 1, 2, 5, 6 };
                const Mat wm = { w.p, types[t].ty, 1, K, N * K };
                given_x = x, given_K = K, got_y = y, got_N = N;
                for (int way = 0; way < 3; way++) {
                        memset(y, 0, sizeof(float) * 6 * N);
                        for (long tile = 0; way == 0 && tile < grouped_rows_tiles(6, N, K); tile++)
                                grouped_rows_task(wm, N, K, 1, 0, ids, TY_F32, NULL, NULL, tile,
                                                  NULL, head, tail);
                        for (long tile = 0; way == 1 && tile < grouped_gemv_tiles(6, N, K); tile++)
                                grouped_gemv_task(NORM_NONE, 0.f, wm, E, N, K, 1, perm, offs, 1,
                                                  tile, NULL, head, slot_tail);
                        for (long tile = 0; way == 2 && tile < grouped_gemm_tiles(E, 6, N); tile++)
                                grouped_gemm_task(x, TY_F32, K, 1, wm, E, N, K, perm, offs, 1, tile,
                                                  NULL, slot_tail);
                        for (int p = 0; p < 6; p++)
                                compare(t, y + p * N, x + p * K, w.x + ids[p] * N * K, 1, N, K);
                }
                free(x);
                free(y);
                weights_free(&w);
        }
}

/* bf16 by bf16, which some processors multiply two at a time; the lines are longer than K. */
TGC_NOINLINE void gemm_bf16(Mat x, Mat w, long Z, long M, long N, long K, long tile)
{
        x.ty = w.ty = TY_BF16, x.trans = 0, w.trans = 1;
        gemm_task(x, w, Z, M, N, K, tile, NULL, tail);
}

TEST (products_of_bf16) {
        static const long size[][4] = { { 1, 1, 1, 32 },     { 1, 9, 33, 64 },
                                        { 2, 17, 50, 288 },  { 1, 200, 600, 544 },
                                        { 1, 30, 16, 1024 }, { 2, 8, 65, 40 } };
        for (size_t c = 0; c < sizeof size / sizeof *size; c++) {
                const long *s = size[c], Z = s[0], M = s[1], N = s[2], K = s[3], ld = K + 8;
                float *x = floats(Z * M * ld), *w = floats(Z * N * ld), *y = floats(Z * M * N);
                if (c == 2)
                        x[3 * ld + 5] = NAN, x[4 * ld + 7] = INFINITY;
                bf16 *xs = malloc(2 * (size_t)(Z * M * ld)), *ws = malloc(2 * (size_t)(Z * N * ld));
                for (long i = 0; i < Z * M * ld; i++)
                        xs[i] = bf16_from_float(x[i]), x[i] = bf16_to_float(xs[i]);
                for (long i = 0; i < Z * N * ld; i++)
                        ws[i] = bf16_from_float(w[i]), w[i] = bf16_to_float(ws[i]);
                Mat xm = { xs, TY_BF16, 0, ld, M * ld };
                const Mat wm = { ws, TY_BF16, 1, ld, N * ld };
                void *room = malloc((size_t)((M + 15) / 16 * (K / 32 + 1) * READY_BYTES));
                for (long tile = 0; tile < ready_tiles(xm, wm, M, K); tile++)
                        ready_task(xm, wm, M, K, room, tile);
                xm.ready = Z == 1 ? room : NULL;
                got_y = y, got_N = N;
                for (long tile = 0; tile < gemm_tiles(xm, wm, Z, M, N, K); tile++)
                        gemm_bf16(xm, wm, Z, M, N, K, tile);
                for (long i = 0; i < Z * M; i++)
                        for (long j = 0; j < N; j++) {
                                double sum = 0, most = 0;
                                for (long k = 0; k < K; k++) {
                                        const double p = (double)x[i * ld + k] *
                                                         (double)w[(i / M * N + j) * ld + k];
                                        sum += p, most += fabs(p);
                                }
                                const float got = y[i * N + j];
                                if (isfinite(sum))
                                        NEAR(got, sum, 1e-6 * (most + 1e-3),
                                             "%ldx%ldx%ld: (%ld,%ld)", M, N, K, i, j);
                                else
                                        CHECK_MSG(!isfinite(got), "(%ld,%ld): %g", i, j,
                                                  (double)got);
                        }
                free(x), free(w), free(y), free(xs), free(ws), free(room);
        }
}

#ifdef TGC_AMX_PLAYED
TEST (tiles_were_used) {
#if defined __AVX512VNNI__ && defined __AVX512BW__
        CHECK(amx_uses > 0);
#endif
}
#endif

TEST_MAIN
