/* cpu_rows.h: ops along the last axis (norms, softmax, reductions), elementwise maps, and column
 * sums.  A tile is one row, unless a comment says otherwise.
 *
 * N may be a run-time value.  A row is held in scratch, and prologues are called once.  For rows
 * longer than TGC_ROW_MAX (prologues of two sources: half of that) they are called up to three
 * times.  Norms hold their rows: at most LIMIT_NORM_ROW columns. */
#ifndef TGC_CPU_ROWS_H
#define TGC_CPU_ROWS_H

#include "cpu_limits.h"
#include "cpu_math.h"
#include "cpu_gemv.h" /* NORM_RMS, NORM_LAYER */

/* for each segment of a row: `col` from 0, `n` long */
#define EACH_SEG(col, n, N) \
        for (long col = 0, n; col < (N) && (n = tgc_min((N)-col, TGC_SEG)) > 0; col += TGC_SEG)

/* A row, in scratch or not; row_seg gives columns col..col+n either way. */
typedef struct Row {
        const void *args;
        PrologueFn *prologue;
        long row;
        float *held;
} Row;

TGC_INLINE Row row_fetch(long N, long row, const void *args, PrologueFn *prologue, float *room,
                         long room_n)
{
        Row r = { args, prologue, row, N <= room_n ? room : 0 };
        if (r.held)
                EACH_SEG(c, n, N)
        prologue(args, row, (int)c, (int)n, room + c);
        return r;
}

/* buf: TGC_SEG floats, used when the row is not held. */
TGC_INLINE float *row_seg(Row r, PrologueFn *prologue, long col, long n, float *buf)
{
        if (r.held)
                return r.held + col;
        prologue(r.args, r.row, (int)col, (int)n, buf);
        return buf;
}

TGC_INLINE void row_out(long N, long row, float *x, const void *args, EpilogueFn *epilogue)
{
        EACH_SEG(c, n, N)
        epilogue(args, row, (int)c, (int)n, x + c);
}

/* Sums with TGC_VEC partial sums, so that they vectorise in a fixed order. */
TGC_INLINE float sum_n(const float *x, long n)
{
        Vec s = vec_all(0.f);
        float t = 0.f;
        long i = 0;
        for (; i + TGC_VEC <= n; i += TGC_VEC)
                s += vec_load(x + i);
        for (; i < n; i++)
                t += x[i];
        return vec_sum(s) + t;
}

TGC_INLINE float dot_n(const float *x, const float *y, long n)
{
        Vec s = vec_all(0.f);
        float t = 0.f;
        long i = 0;
        for (; i + TGC_VEC <= n; i += TGC_VEC)
                s = vec_load(x + i) * vec_load(y + i) + s;
        for (; i < n; i++)
                t += x[i] * y[i];
        return vec_sum(s) + t;
}

/* Ignores NaN; n = 0: -inf. */
TGC_INLINE float max_n(const float *x, long n)
{
        Vec m = vec_all(-INFINITY);
        float t = -INFINITY;
        long i = 0;
        for (; i + TGC_VEC <= n; i += TGC_VEC)
                m = vec_max(vec_load(x + i), m);
        for (; i < n; i++)
                t = x[i] > t ? x[i] : t;
        return vec_top(vec_max(m, vec_all(t)));
}

_Static_assert(3 * LIMIT_NORM_ROW <= TGC_SCRATCH && TGC_ROW_MAX <= TGC_SCRATCH, "scratch");

/* ---- norms ------------------------------------------------------------- */

/* epilogue gets (x - mean) * rstd; RMS: mean = 0, rstd = 1/sqrt(mean(x^2) + eps).  mean and
 * rstd, one value per row, are stored where not NULL.  N <= LIMIT_NORM_ROW. */
TGC_INLINE void norm_task(int kind, long N, float eps, float *mean, float *rstd, long row,
                          const void *args, PrologueFn *prologue, EpilogueFn *epilogue)
{
        float *x = tgc_scratch, m, r;
        EACH_SEG(c, n, N)
        prologue(args, row, (int)c, (int)n, x + c);
        r = norm_row(kind, eps, x, N, &m);
        if (mean)
                mean[row] = m;
        if (rstd)
                rstd[row] = r;
        row_out(N, row, x, args, epilogue);
}

/* g[0..N), the gradient of xhat = x[0..N), becomes that of the norm's input. */
TGC_INLINE void norm_grad_row(int kind, long N, float rstd, const float *x, float *g)
{
        float gx = dot_n(g, x, N) / (float)N;
        float gm = kind == NORM_LAYER ? sum_n(g, N) / (float)N : 0.f;
        for (long c = 0; c < N; c++)
                g[c] = rstd * (g[c] - gm - x[c] * gx);
}

/* Two sources: x from prologue_x, g (gradient of the standardised value, gain already
 * multiplied in) from prologue_g; epilogue gets rstd * (g - [mean(g)] - xhat * mean(g * xhat)).
 * mean, rstd: what norm_task stored; rstd NULL: computed again from x.
 * N <= LIMIT_NORM_ROW. */
TGC_INLINE void norm_grad_task(int kind, long N, float eps, const float *mean, const float *rstd,
                               long row, const void *args, PrologueFn *prologue_x,
                               PrologueFn *prologue_g, EpilogueFn *epilogue)
{
        float *x = tgc_scratch, *g = x + N, m, r;
        EACH_SEG(c, n, N)
        {
                prologue_x(args, row, (int)c, (int)n, x + c);
                prologue_g(args, row, (int)c, (int)n, g + c);
        }
        if (rstd) {
                m = mean ? mean[row] : 0.f;
                r = rstd[row];
                for (long c = 0; c < N; c++)
                        x[c] = (x[c] - m) * r;
        } else {
                r = norm_row(kind, eps, x, N, &m);
        }
        norm_grad_row(kind, N, r, x, g);
        row_out(N, row, g, args, epilogue);
}

/* The same with the gradients of gain and bias.  prologue_dy fills dy (= g * gain) and g, the
 * gradient of the whole output.  Tile t of `tiles` (norm_acc_tiles) has rows t, t + tiles, ...
 * dgain, dbias: float (tiles, N), or NULL: sums of g * xhat and of g over its rows, for
 * column_sum_task.  N <= LIMIT_NORM_ROW. */
typedef void ProloguePairFn(const void *args, long row, int col, int n, float *dy, float *g);

enum { NORM_ACC_TILES = 64 };
TGC_INLINE long norm_acc_tiles(long rows) { return tgc_min(rows, NORM_ACC_TILES); }

TGC_INLINE void norm_grad_acc_task(int kind, long N, float eps, long rows, float *dgain,
                                   float *dbias, long tile, const void *args,
                                   PrologueFn *prologue_x, ProloguePairFn *prologue_dy,
                                   EpilogueFn *epilogue)
{
        long tiles = norm_acc_tiles(rows);
        float *x = tgc_scratch, *dy = x + N, *g = dy + N, m;
        if (dgain)
                memset(dgain + tile * N, 0, sizeof(float) * (size_t)N);
        if (dbias)
                memset(dbias + tile * N, 0, sizeof(float) * (size_t)N);
        for (long row = tile; row < rows; row += tiles) {
                EACH_SEG(c, n, N)
                {
                        prologue_x(args, row, (int)c, (int)n, x + c);
                        prologue_dy(args, row, (int)c, (int)n, dy + c, g + c);
                }
                float r = norm_row(kind, eps, x, N, &m);
                if (dgain)
                        for (long c = 0; c < N; c++)
                                dgain[tile * N + c] += g[c] * x[c];
                if (dbias)
                        for (long c = 0; c < N; c++)
                                dbias[tile * N + c] += g[c];
                norm_grad_row(kind, N, r, x, dy);
                row_out(N, row, dy, args, epilogue);
        }
}

/* ---- softmax ----------------------------------------------------------- */

/* x[0..n) becomes exp(x - max); returns the sum.  max = -inf counts as 0. */
TGC_INLINE float exp_row(float *x, long n, float max)
{
        float m = max == -INFINITY ? 0.f : max;
        for (long i = 0; i < n; i++)
                x[i] = fast_exp_negf(x[i] - m);
        return sum_n(x, n);
}

/* Maximum and sum of exp(x - maximum) of a row, however long. */
TGC_INLINE float row_expsum(Row r, PrologueFn *prologue, long N, float *max)
{
        float buf[TGC_SEG], e[TGC_SEG], m = -INFINITY, sum = 0.f;
        EACH_SEG(c, n, N)
        {
                float t = max_n(row_seg(r, prologue, c, n, buf), n);
                m = t > m ? t : m;
        }
        EACH_SEG(c, n, N)
        {
                load_float(e, row_seg(r, prologue, c, n, buf), (int)n);
                sum += exp_row(e, n, m);
        }
        *max = m;
        return sum;
}

/* A row of nothing but -inf gives 0. */
TGC_INLINE void softmax_task(long N, long row, const void *args, PrologueFn *prologue,
                             EpilogueFn *epilogue)
{
        float buf[TGC_SEG], m;
        Row r = row_fetch(N, row, args, prologue, tgc_scratch, TGC_ROW_MAX);
        if (r.held) {
                m = max_n(r.held, N);
                float s = exp_row(r.held, N, m);
                float inv = s == 0.f ? 0.f : 1.f / s;
                for (long c = 0; c < N; c++)
                        r.held[c] *= inv;
                row_out(N, row, r.held, args, epilogue);
                return;
        }
        float s = row_expsum(r, prologue, N, &m), inv = s == 0.f ? 0.f : 1.f / s;
        EACH_SEG(c, n, N)
        {
                row_seg(r, prologue, c, n, buf);
                exp_row(buf, n, m);
                for (long i = 0; i < n; i++)
                        buf[i] *= inv;
                epilogue(args, row, (int)c, (int)n, buf);
        }
}

/* y from prologue_y, dy from prologue_dy; epilogue gets y * (dy - sum(y*dy)). */
TGC_INLINE void softmax_grad_task(long N, long row, const void *args, PrologueFn *prologue_y,
                                  PrologueFn *prologue_dy, EpilogueFn *epilogue)
{
        float by[TGC_SEG], bd[TGC_SEG], sum = 0.f;
        Row y = row_fetch(N, row, args, prologue_y, tgc_scratch, TGC_ROW_MAX / 2);
        Row d = row_fetch(N, row, args, prologue_dy, tgc_scratch + TGC_ROW_MAX / 2,
                          TGC_ROW_MAX / 2);
        EACH_SEG(c, n, N)
        sum += dot_n(row_seg(y, prologue_y, c, n, by), row_seg(d, prologue_dy, c, n, bd), n);
        EACH_SEG(c, n, N)
        {
                float *p = row_seg(y, prologue_y, c, n, by), *q = row_seg(d, prologue_dy, c, n, bd);
                for (long i = 0; i < n; i++)
                        q[i] = p[i] * (q[i] - sum);
                epilogue(args, row, (int)c, (int)n, q);
        }
}

/* ---- reductions -------------------------------------------------------- */

/* One value per row: epilogue(row, 0, 1, v).  N = 0: 0, -inf, -inf. */
enum { RED_SUM, RED_MAX, RED_LOGSUMEXP };
TGC_INLINE void reduce_task(int kind, long N, long row, const void *args, PrologueFn *prologue,
                            EpilogueFn *epilogue)
{
        float buf[TGC_SEG], v = kind == RED_SUM ? 0.f : -INFINITY;
        if (kind == RED_LOGSUMEXP) {
                float s = row_expsum(row_fetch(N, row, args, prologue, tgc_scratch, TGC_ROW_MAX),
                                     prologue, N, &v);
                v = v == -INFINITY ? v : v + fast_logf(s);
        } else {
                EACH_SEG(c, n, N)
                {
                        prologue(args, row, (int)c, (int)n, buf);
                        float t = kind == RED_SUM ? sum_n(buf, n) : max_n(buf, n);
                        v = kind == RED_SUM ? v + t : t > v ? t : v;
                }
        }
        epilogue(args, row, 0, 1, &v);
}

/* Index of the largest, the first if equal; NaN counts as -inf. */
TGC_INLINE int argmax_task(long N, long row, const void *args, PrologueFn *prologue)
{
        float buf[TGC_SEG], best = -INFINITY;
        long at = 0;
        EACH_SEG(c, n, N)
        {
                prologue(args, row, (int)c, (int)n, buf);
                float t = max_n(buf, n);
                if (t > best) {
                        best = t;
                        long i = 0;
                        while (buf[i] != t)
                                i++;
                        at = c + i;
                }
        }
        return (int)at;
}

/* ---- maps -------------------------------------------------------------- */

enum { MAP_TILE = 8192 }; /* elements of a tile, about */

/* body(args, row, col, n, v) loads, computes and stores by itself; v is scratch.  A tile is a run
 * of rows, or part of one long row. */
TGC_INLINE long map_parts(long N) { return tgc_ceil_div(tgc_max(N, 1), MAP_TILE); }
TGC_INLINE long map_rows(long N) { return N >= MAP_TILE ? 1 : MAP_TILE / tgc_max(N, 1); }

TGC_INLINE long map_tiles(long rows, long N)
{
        return tgc_ceil_div(rows, map_rows(N)) * map_parts(N);
}

TGC_INLINE void map_task(long rows, long N, long tile, const void *args, PrologueFn *body)
{
        float v[TGC_SEG];
        long parts = map_parts(N), r0 = tile / parts * map_rows(N), c0 = tile % parts * MAP_TILE;
        long r1 = tgc_min(rows, r0 + map_rows(N)), c1 = tgc_min(N, c0 + MAP_TILE);
        for (long r = r0; r < r1; r++)
                for (long c = c0; c < c1; c += TGC_SEG)
                        body(args, r, (int)c, (int)tgc_min(c1 - c, TGC_SEG), v);
}

/* ---- column sums ------------------------------------------------------- */

/* Sums over all rows; a tile is a strip of columns: epilogue(0, col, n, v).  Rows are added in
 * blocks of COLUMN_BLOCK, whose sums are added in order. */
enum { COLUMN_STRIP = 64, COLUMN_BLOCK = 64 };

TGC_INLINE long column_sum_tiles(long N) { return tgc_ceil_div(N, COLUMN_STRIP); }

TGC_INLINE void column_sum_task(long rows, long N, long tile, const void *args,
                                PrologueFn *prologue, EpilogueFn *epilogue)
{
        float sum[COLUMN_STRIP] = { 0 }, part[COLUMN_STRIP], v[COLUMN_STRIP];
        int c = (int)(tile * COLUMN_STRIP), n = (int)tgc_min(N - c, COLUMN_STRIP);
        for (long r = 0; r < rows;) {
                memset(part, 0, sizeof part);
                for (long end = tgc_min(rows, r + COLUMN_BLOCK); r < end; r++) {
                        prologue(args, r, c, n, v);
                        for (int i = 0; i < n; i++)
                                part[i] += v[i];
                }
                for (int i = 0; i < n; i++)
                        sum[i] += part[i];
        }
        epilogue(args, 0, c, n, sum);
}

#endif
