/* cpu_gemv.h: Y = X op(W) for M = 1..16 rows (decoding): weights pass through the registers once,
 * nothing is packed.
 *
 * A tile is a range of output columns for all M rows; a small layer is one tile.  Every thread
 * calls the prologue for all of X (M x K): the prologue must be pure.  The order of a sum depends
 * only on K and the vector width. */
#ifndef TGC_CPU_GEMV_H
#define TGC_CPU_GEMV_H

#include "cpu_gemm.h"

/* Put before a kernel with these dot products: at -O2 gcc keeps their sums in memory, at half the
 * speed.  (The rest stays at -O2: at -O3 gcc 12's if-conversion miscompiles some selections, in
 * rows of 15.) */
#if defined __GNUC__ && !defined __clang__
#define TGC_UNROLLED __attribute__((optimize("O3", "no-tree-loop-if-convert")))
#else
#define TGC_UNROLLED
#endif

#ifdef TGC_STORED
#include "cpu_stored.h"
#endif

/* Norm of each row of X: RMS x*rstd, LAYER (x-mean)*rstd. */
enum { NORM_NONE, NORM_RMS, NORM_LAYER };

enum {
        GEMV_M_MAX = 16,
        GEMV_K_MAX = 131072, /* largest M * (K + 32): beyond it use gemm_task */
        GEMV_NT = 512,       /* most columns of a tile */
        GEMV_WORK = 65536,   /* weights per tile, about */
        GEMV_AHEAD = 8192,   /* prefetch distance of a single stream, in bytes */
        GEMV_TAKEN = GEMV_K_MAX + GEMV_M_MAX * GEMV_NT, /* x and y, in the scratch */
        GEMV_TILES = 48,                                /* at least, if there is enough work */
        GEMV_LEAST = 16                                 /* columns */
};

/* Lane i of the result: the sum of s[i], always by halves, as in vec_sum. */
TGC_INLINE Vec vec_sums(Vec *s)
{
#ifdef TGC_SHUFFLE
#define LO(l, h) ((l) / (h)&1 ? TGC_VEC + (l) - (h) : (l))
#define HI(l, h) ((l) / (h)&1 ? TGC_VEC + (l) : (l) + (h))
#if TGC_VEC == 16
#define LANES(f, h)                                                                               \
        f(0, h), f(1, h), f(2, h), f(3, h), f(4, h), f(5, h), f(6, h), f(7, h), f(8, h), f(9, h), \
                f(10, h), f(11, h), f(12, h), f(13, h), f(14, h), f(15, h)
#elif TGC_VEC == 8
#define LANES(f, h) f(0, h), f(1, h), f(2, h), f(3, h), f(4, h), f(5, h), f(6, h), f(7, h)
#else
#define LANES(f, h) f(0, h), f(1, h), f(2, h), f(3, h)
#endif
/* Merges vectors i and i+h, each in groups of h lanes, into one with twice as many rows. */
#define FOLD(h)                                                    \
        for (int i = 0; i < h; i++)                                \
                s[i] = TGC_SHUFFLE(s[i], s[i + h], LANES(LO, h)) + \
                       TGC_SHUFFLE(s[i], s[i + h], LANES(HI, h));
#if TGC_VEC == 16
        FOLD(8)
#endif
#if TGC_VEC >= 8
        FOLD(4)
#endif
        FOLD(2)
        FOLD(1)
#undef FOLD
#undef LANES
#undef LO
#undef HI
        return s[0];
#else
        float x[TGC_VEC];
        for (int i = 0; i < TGC_VEC; i++)
                x[i] = vec_sum(s[i]);
        return vec_load(x);
#endif
}

/* s[i*n + r] += x[i*ldx + k ...] * w[row[r] + k ...], one vector of k, r < n; `part` of it only
 * where K < TGC_VEC.  ahead: prefetch distance in elements, 0: none.  A single stream is
 * prefetched to L2, as the hardware prefetcher alone does not keep up. */
TGC_INLINE void gemv_step(int m, int n, int part, int ty, const void *w, const long *row, long k,
                          const float *x, long ldx, long ahead, Vec *s)
{
#pragma GCC unroll 16
        for (int r = 0; r < n; r++) {
                Vec v = part ? vec_load_part(ty, w, row[r] + k, part)
                             : vec_load_ty(ty, w, row[r] + k);
                if (ahead && n == 1)
                        TGC_PREFETCH_L2((const char *)w + (row[r] + k + ahead) * ty_size(ty));
                else if (ahead)
                        TGC_PREFETCH((const char *)w + (row[r] + k + ahead) * ty_size(ty));
#pragma GCC unroll 16
                for (int i = 0; i < m; i++)
                        s[i * n + r] = v * vec_load(x + i * ldx) + s[i * n + r];
        }
}

/* s[i*R + r] = sum_k x[i*ldx + k] w[row[r] + k], by lanes, r < n; few enough rows for sums in
 * registers. */
TGC_INLINE void gemv_few(int m, int R, int n, int ty, const void *w, const long *row, long K,
                         const float *x, long ldx, long ahead, Vec *s)
{
        long part = K % TGC_VEC, whole = K - part;
        Vec t[TGC_VEC];
#pragma GCC unroll 16
        for (int i = 0; i < m * n; i++)
                t[i] = vec_all(0.f);
        for (long k = 0; k < whole; k += TGC_VEC)
                gemv_step(m, n, 0, ty, w, row, k, x + k, ldx, ahead, t);
        if (part && whole)
                gemv_step(m, n, 0, ty, w, row, K - TGC_VEC, x + K, ldx, 0, t);
        else if (part)
                gemv_step(m, n, (int)part, ty, w, row, 0, x + K, ldx, 0, t);
#pragma GCC unroll 16
        for (int i = 0; i < m; i++)
#pragma GCC unroll 16
                for (int r = 0; r < n; r++)
                        s[i * R + r] = t[i * n + r];
}

/* Rows of W read at a time.  With one row of x, long rows of W are read one by one: the hardware
 * prefetcher feeds one stream at two to three times the rate of four.  With more rows of x this
 * does not pay, since x would be read again for every row of W; there the next rows of W are
 * prefetched.  Nor for short rows of W, whose time is mostly the final reduction. */
TGC_INLINE int gemv_streams(int m, long K) { return m == 1 && K >= 8 * TGC_VEC ? 1 : 4; }

/* y[i*ldy + j + r] = sum_k x[i*ldx + k] w[at + (j + r)*ld + k], i < m, r < R, j + r < N: R rows of
 * W make one vector of sums, m*R <= TGC_VEC.  `streams` of them are read at a time, which does not
 * change the order of a sum. */
TGC_INLINE void gemv_group(int m, int R, int streams, int ty, const void *w, long at, long ld,
                           long j, long N, long K, const float *x, long ldx, long ahead, float *y,
                           long ldy)
{
        Vec s[TGC_VEC];
        long row[TGC_VEC];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
                row[r] = at + (j + r < N ? j + r : N - 1) * ld;
#pragma GCC unroll 16
        for (int i = m * R; i < TGC_VEC; i++)
                s[i] = vec_all(0.f);
#pragma GCC unroll 16
        for (int r = 0; r < R; r += streams)
                gemv_few(m, R, R - r < streams ? R - r : streams, ty, w, row + r, K, x, ldx, ahead,
                         s + r);
        if (m * R == 1) {
                y[j] = vec_sum(s[0]);
                return;
        }
        float out[TGC_VEC];
        vec_store(out, vec_sums(s));
        for (int i = 0; i < m; i++)
                if (j + R <= N)
                        memcpy(y + i * ldy + j, out + i * R, sizeof(float) * (size_t)R);
                else
                        for (int r = 0; j + r < N; r++)
                                y[i * ldy + j + r] = out[i * R + r];
}

/* y[i*ldy + j] = sum_k x[i*ldx + k] w[at + j*ld + k], j < N, i < m.  A row of x has TGC_VEC extra
 * elements (gemv_pad): its last vector, with zeros for what whole vectors have covered.  So the
 * last load of a row of W starts early instead of reading past its end.  A group of rows of W is
 * multiplied by four rows of x at a time, from cache after the first. */
TGC_INLINE void gemv_dots(int m, int ty, const void *w, long at, long ld, long N, long K,
                          const float *x, long ldx, float *y, long ldy)
{
        enum { MANY_R = TGC_VEC / 4 };
        const long ahead = MANY_R * ld;
        if (m == 1) {
                const int one = gemv_streams(1, K) == 1;
                for (long j = 0; j < N; j += TGC_VEC)
                        if (one)
                                gemv_group(1, TGC_VEC, 1, ty, w, at, ld, j, N, K, x, ldx,
                                           GEMV_AHEAD / ty_size(ty), y, ldy);
                        else
                                gemv_group(1, TGC_VEC, 4, ty, w, at, ld, j, N, K, x, ldx, 0, y,
                                           ldy);
        } else if (m == 2) {
                for (long j = 0; j < N; j += TGC_VEC / 2)
                        gemv_group(2, TGC_VEC / 2, 4, ty, w, at, ld, j, N, K, x, ldx,
                                   TGC_VEC / 2 * ld, y, ldy);
        } else {
                for (long j = 0; j < N; j += MANY_R)
                        for (int i = 0; i < m; i += 4) {
                                const float *xi = x + i * ldx;
                                float *yi = y + i * ldy;
#define GEMV_GROUP(n, ahead)                                                       \
        gemv_group(n, MANY_R, 4, ty, w, at, ld, j, N, K, xi, ldx, ahead, yi, ldy); \
        break
                                switch (m - i) {
                                case 1: GEMV_GROUP(1, 0);
                                case 2: GEMV_GROUP(2, 0);
                                case 3: GEMV_GROUP(3, ahead);
                                default: GEMV_GROUP(4, ahead);
                                }
#undef GEMV_GROUP
                        }
        }
}

/* Fills x[K..K + TGC_VEC) for gemv_dots. */
TGC_INLINE void gemv_pad(float *x, long K)
{
        long part = K % TGC_VEC;
        for (long l = 0; l < TGC_VEC; l++)
                x[K + l] = 0.f;
        for (long l = 0; l < part; l++)
                x[K + (K < TGC_VEC ? l : TGC_VEC - part + l)] = x[K - part + l];
}

/* s[r][c] += x[r*ldx] * w[at + c vectors ...]. */
TGC_INLINE void gemv_axpy_step(int m, int C, int part, int ty, const void *w, long at,
                               const float *x, long ldx, Vec (*s)[4])
{
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
                Vec v = part ? vec_load_part(ty, w, at, part)
                             : vec_load_ty(ty, w, at + c * TGC_VEC);
#pragma GCC unroll 8
                for (int r = 0; r < m; r++)
                        s[r][c] = v * vec_all(x[r * ldx]) + s[r][c];
        }
}

/* C vectors of columns.  Of the last, only lanes from `from` on are stored, and if part > 0 only
 * the first `part` columns exist.  P alternating sums, so that adds do not wait for each other. */
TGC_INLINE void gemv_axpy(int m, int C, int P, int part, int from, int ty, const void *w, long at,
                          long ld, long K, const float *x, long ldx, float *y, long ldy, int add)
{
        Vec s[8][4]; /* [phase * m + row][column vector] */
#pragma GCC unroll 8
        for (int i = 0; i < P * m; i++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++)
                        s[i][c] = vec_all(0.f);
        long k = 0;
        for (; k + P <= K; k += P)
#pragma GCC unroll 8
                for (int p = 0; p < P; p++)
                        gemv_axpy_step(m, C, part, ty, w, at + (k + p) * ld, x + k + p, ldx,
                                       s + p * m);
#pragma GCC unroll 8
        for (int p = 0; p < P - 1; p++)
                if (k + p < K)
                        gemv_axpy_step(m, C, part, ty, w, at + (k + p) * ld, x + k + p, ldx,
                                       s + p * m);
#pragma GCC unroll 8
        for (int r = 0; r < m; r++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) {
                        Vec t = s[r][c];
                        float *o = y + r * ldy + c * TGC_VEC;
#pragma GCC unroll 8
                        for (int p = 1; p < P; p++)
                                t += s[p * m + r][c];
                        if (part || from) {
                                float out[TGC_VEC];
                                vec_store(out, t);
                                for (int l = from; l < (part ? part : TGC_VEC); l++)
                                        o[l] = add ? o[l] + out[l] : out[l];
                        } else {
                                vec_store(o, add ? vec_load(o) + t : t);
                        }
                }
}

/* y[i*ldy + j] (+)= sum_k x[i*ldx + k] w[at + k*ld + j], j < N, i < m. */
TGC_INLINE void gemv_axpys(int m, int C, int P, int ty, const void *w, long at, long ld, long N,
                           long K, const float *x, long ldx, float *y, long ldy, int add)
{
        long j = 0;
        for (; j + C * TGC_VEC <= N; j += C * TGC_VEC)
                gemv_axpy(m, C, P, 0, 0, ty, w, at + j, ld, K, x, ldx, y + j, ldy, add);
        for (; j + TGC_VEC <= N; j += TGC_VEC)
                gemv_axpy(m, 1, 8 / m, 0, 0, ty, w, at + j, ld, K, x, ldx, y + j, ldy, add);
        int part = (int)(N % TGC_VEC);
        if (part && j > 0) /* the last vector starts early and computes some columns twice */
                gemv_axpy(m, 1, 8 / m, 0, TGC_VEC - part, ty, w, at + N - TGC_VEC, ld, K, x, ldx,
                          y + N - TGC_VEC, ldy, add);
        else if (part)
                gemv_axpy(m, 1, 8 / m, part, 0, ty, w, at, ld, K, x, ldx, y, ldy, add);
}

/* y (m,N) = x (m,K) op(W), any m; W's first element at `at`.  add (only with trans 0): y += . */
TGC_INLINE void gemv_plain_rows(int m, int ty, int trans, const void *w, long at, long ld, long N,
                                long K, const float *x, long ldx, float *y, long ldy, int add)
{
        enum { MOST = TGC_VEC < 8 ? TGC_VEC : 8 };
        if (trans) {
                gemv_dots(m, ty, w, at, ld, N, K, x, ldx, y, ldy);
                return;
        }
        for (int now; m > 0; m -= now, x += now * ldx, y += now * ldy) {
                now = m < MOST ? m : MOST;
#define GEMV_CASE(m)                                                                  \
        case m:                                                                       \
                gemv_axpys(m,                                                         \
                           m <= 2   ? 4                                               \
                           : m <= 4 ? 2                                               \
                                    : 1,                                              \
                           m == 1 ? 2 : 1, ty, w, at, ld, N, K, x, ldx, y, ldy, add); \
                break;
                switch (now) {
                        /* clang-format off: it finds no rest here */
                        GEMV_CASE(1)
                        GEMV_CASE(2)
                        GEMV_CASE(3)
                        GEMV_CASE(4)
                        /* clang-format on */
#if TGC_VEC >= 8
                        /* clang-format off: it finds no rest here */
                        GEMV_CASE(5)
                        GEMV_CASE(6)
                        GEMV_CASE(7)
                        GEMV_CASE(8)
                        /* clang-format on */
#endif
                }
#undef GEMV_CASE
        }
}

/* The same; W may be block-quantised, as rows of K.  One row of x is multiplied during decoding;
 * for more, as many rows of W are decoded first as fit in the scratch beside x and y. */
#ifdef TGC_STORED
TGC_NOINLINE TGC_UNROLLED void gemv_decoded_rows(int m, int ty, const void *w, long at, long ld,
                                                 long N, long K, const float *x, long ldx, float *y,
                                                 long ldy)
{
        enum { MOST = 32 };
        float *rows = tgc_scratch + GEMV_TAKEN;
        const long fit = (TGC_SCRATCH - GEMV_TAKEN) / K, most = fit < MOST ? fit : MOST;
        for (long j = 0; j < N; j += most) {
                const long n = tgc_min(most, N - j);
                for (long r = 0; r < n; r++)
                        stored_load(ty, rows + r * K, w, at + (j + r) * ld, (int)K);
                gemv_plain_rows(m, TY_F32, 1, rows, 0, K, n, K, x, ldx, y + j, ldy, 0);
        }
}
#endif

/* The scratch behind x and y. */
TGC_INLINE float *gemv_room(void)
{
        float *room = tgc_scratch + GEMV_TAKEN;
        TGC_HIDE(room); /* else gcc looks up the thread's scratch for every block */
        return room;
}

/* Prepares x for block-quantised weights (one row), in the scratch behind it. */
TGC_INLINE void gemv_rounds(int m, int ty, const float *x, long K)
{
#ifdef TGC_STORED
        if (TY_IS_STORED(ty) && m == 1)
                stored_rounds(ty, x, K, gemv_room());
#endif
        (void)m, (void)ty, (void)x, (void)K;
}

TGC_INLINE void gemv_rows(int m, int ty, int trans, const void *w, long at, long ld, long N, long K,
                          const float *x, long ldx, float *y, long ldy, int add)
{
#ifdef TGC_STORED
        if (TY_IS_STORED(ty) && m == 1) {
                stored_dots(ty, w, at, ld, N, K, x, gemv_room(), y);
                return; /* gemv_rounds has prepared x */
        }
        if (TY_IS_STORED(ty)) {
                gemv_decoded_rows(m, ty, w, at, ld, N, K, x, ldx, y, ldy);
                return;
        }
#endif
        gemv_plain_rows(m, ty, trans, w, at, ld, N, K, x, ldx, y, ldy, add);
}

/* Standardises x[0..K) in place; returns rstd, and the mean through *mean. */
TGC_INLINE float norm_row(int norm, float eps, float *x, long K, float *mean)
{
        Vec s = vec_all(0.f), q = vec_all(0.f);
        float rest = 0.f, m = 0.f;
        long whole = K - K % TGC_VEC;
        if (norm == NORM_LAYER) {
                for (long k = 0; k < whole; k += TGC_VEC)
                        s += vec_load(x + k);
                for (long k = whole; k < K; k++)
                        rest += x[k];
                m = (vec_sum(s) + rest) / (float)K;
        }
        rest = 0.f;
        for (long k = 0; k < whole; k += TGC_VEC) {
                Vec d = vec_load(x + k) - m;
                q = d * d + q;
        }
        for (long k = whole; k < K; k++)
                rest += (x[k] - m) * (x[k] - m);
        float rstd = 1.f / sqrtf((vec_sum(q) + rest) / (float)K + eps);
        for (long k = 0; k < K; k++)
                x[k] = (x[k] - m) * rstd;
        *mean = m;
        return rstd;
}

/* Rows row.. (m of them) of the prologue to x, ldx >= K + TGC_VEC apart.  gain (or NULL) is called
 * like an epilogue and changes the standardised values. */
TGC_INLINE void gemv_fill(int norm, float eps, int m, long row, long K, float *x, long ldx,
                          const void *args, PrologueFn *prologue, EpilogueFn *gain)
{
        float mean;
        for (int i = 0; i < m; i++, x += ldx) {
                for (long k = 0; k < K; k += TGC_SEG)
                        prologue(args, row + i, (int)k, (int)tgc_min(K - k, TGC_SEG), x + k);
                if (norm != NORM_NONE)
                        norm_row(norm, eps, x, K, &mean);
                if (gain)
                        for (long k = 0; k < K; k += TGC_SEG)
                                gain(args, row + i, (int)k, (int)tgc_min(K - k, TGC_SEG), x + k);
                gemv_pad(x, K);
        }
}

/* ---- the task ---------------------------------------------------------- */

/* Columns of a tile: GEMV_WORK weights, and at least GEMV_TILES tiles, so that threads finish at
 * about the same time. */
TGC_INLINE long gemv_nt(long N, long K)
{
        const long n = tgc_min(GEMV_WORK / tgc_max(K, 1), N / GEMV_TILES) / TGC_VEC * TGC_VEC;
        return n < GEMV_LEAST ? GEMV_LEAST : n > GEMV_NT ? GEMV_NT : n;
}

/* w as Mat b of gemm_task: op(W) is (K,N); trans 1: stored (N,K).  N <= GEMV_NT is one tile: then
 * the prologue is called once. */
TGC_INLINE long gemv_tiles(long N, long K)
{
        return N <= GEMV_NT && N * K <= 2 * GEMV_WORK ? 1 : tgc_ceil_div(N, gemv_nt(N, K));
}

TGC_INLINE long gemv_ldx(long K) { return (tgc_ceil_div(K, TGC_VEC) + 1) * TGC_VEC; }

/* X to the thread's scratch, for weights of type ty, before its first tile. */
TGC_INLINE void gemv_begin(int norm, float eps, int ty, int M, long K, const void *args,
                           PrologueFn *prologue, EpilogueFn *gain)
{
        float *x = tgc_scratch;
        TGC_HIDE(x); /* else the thread's scratch is looked up again and again */
        /* called, not inlined: their loops are vectorised at -O2, but not here, where
         * TGC_UNROLLED turns if-conversion off */
        TGC_HIDE(prologue);
        if (gain)
                TGC_HIDE(gain);
        gemv_fill(norm, eps, M, 0, K, x, gemv_ldx(K), args, prologue, gain);
        gemv_rounds(M, ty, x, K);
}

TGC_INLINE void gemv_tile(Mat w, int M, long N, long K, long tile, const void *args,
                          EpilogueFn *keep, EpilogueFn *epilogue)
{
        long nt = gemv_tiles(N, K) == 1 ? N : gemv_nt(N, K), n0 = tile * nt,
             n = tgc_min(nt, N - n0), ldx = gemv_ldx(K);
        float *x = tgc_scratch, *y;
        TGC_HIDE(x);
        y = x + GEMV_K_MAX;
        TGC_HIDE(epilogue);
        for (int i = 0; i < M && keep && tile == 0; i++)
                for (long k = 0; k < K; k += TGC_SEG)
                        keep(args, i, (int)k, (int)tgc_min(K - k, TGC_SEG), x + i * ldx + k);
        gemv_rows(M, w.ty, w.trans, w.p, w.trans ? n0 * w.ld : n0, w.ld, n, K, x, ldx, y, GEMV_NT,
                  0);
        for (int i = 0; i < M; i++)
                for (long j = 0; j < n; j += TGC_SEG)
                        epilogue(args, i, (int)(n0 + j), (int)tgc_min(n - j, TGC_SEG),
                                 y + i * GEMV_NT + j);
}

TGC_INLINE void gemv_gain_task(int norm, float eps, Mat w, int M, long N, long K, long tile,
                               const void *args, PrologueFn *prologue, EpilogueFn *gain,
                               EpilogueFn *keep, EpilogueFn *epilogue)
{
        gemv_begin(norm, eps, w.ty, M, K, args, prologue, gain);
        gemv_tile(w, M, N, K, tile, args, keep, epilogue);
}

TGC_INLINE void gemv_task(int norm, float eps, Mat w, int M, long N, long K, long tile,
                          const void *args, PrologueFn *prologue, EpilogueFn *epilogue)
{
        gemv_gain_task(norm, eps, w, M, N, K, tile, args, prologue, NULL, NULL, epilogue);
}

#endif
