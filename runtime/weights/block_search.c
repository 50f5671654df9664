/* block_search.c: implements block_search.h. */
#include "block_search.h"
#include <math.h>
#include <string.h>
#include "ck_tensor.h"

enum { RANGES = 9, ROUNDS = 2 };

/* As a half; what would be 0 is the least there is, so that scales of parts can make up for it. */
static float as_half(float x)
{
        const float h = ck_f32_from_f16(ck_f16_from_f32(x));
        return h == 0 && x != 0 ? copysignf(0x1p-24f, x) : h;
}

static int nearest(float x, int low, int high)
{
        const int i = (int)(x < 0 ? x - 0.5f : x + 0.5f);
        return i < low ? low : i > high ? high : i;
}

void search_weights(float *w, const float *x, int n, const float *importance)
{
        float square = 0;
        for (int i = 0; i < n; i++)
                square += x[i] * x[i];
        for (int i = 0; i < n; i++)
                w[i] = (importance ? importance[i] : 1) * sqrtf(square / (float)n + x[i] * x[i]);
}

/* ---- a scale and a minimum ---- */

/* The weighted error of n values as d*q - m, with the best q. */
static float min_error(const float *x, const float *w, int n, int most, float d, float m)
{
        const float by = d > 0 ? 1 / d : 0;
        float sum = 0;
        for (int i = 0; i < n; i++) {
                float q = (float)(int)((x[i] + m) * by + 0.5f);
                q = x[i] + m < 0 ? 0 : q > (float)most ? (float)most : q;
                const float off = d * q - m - x[i];
                sum += w[i] * off * off;
        }
        return sum;
}

/* Scale and minimum of one part, not yet rounded. */
static void fit_min(const float *x, const float *w, int n, int most, float *d, float *m)
{
        float low = 0, high = x[0], best = INFINITY;
        for (int i = 0; i < n; i++) {
                low = x[i] < low ? x[i] : low;
                high = x[i] > high ? x[i] : high;
        }
        *d = 0;
        *m = -low;
        if (high <= low)
                return;
        for (int r = -RANGES; r <= RANGES; r++) {
                const float by = ((float)most + 0.1f * (float)r) / (high - low);
                double sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
                for (int i = 0; i < n; i++) {
                        const double q = nearest(by * (x[i] - low), 0, most);
                        sw += w[i];
                        sq += w[i] * q;
                        sqq += w[i] * q * q;
                        sx += (double)w[i] * x[i];
                        sxq += (double)w[i] * x[i] * q;
                }
                const double det = sw * sqq - sq * sq;
                double scale = sqq > 0 ? sxq / sqq : 0, shift = 0; /* a minimum is not below 0 */
                if (det > 1e-12 * sw * sqq && sqq * sx < sq * sxq) {
                        scale = (sw * sxq - sq * sx) / det;
                        shift = (sqq * sx - sq * sxq) / det;
                }
                if (!(scale > 0))
                        continue;
                const float error = min_error(x, w, n, most, (float)scale, (float)-shift);
                if (error < best) {
                        best = error;
                        *d = (float)scale;
                        *m = (float)-shift;
                }
        }
}

/* The best of a part's neighbouring scales and minima. */
static void better_min(MinBlock *b, int s, const float *x, const float *w)
{
        const int scale = b->scale[s], min = b->min[s];
        float best = INFINITY;
        for (int i = scale - 1; i <= scale + 1; i++)
                for (int k = min - 1; k <= min + 1; k++) {
                        if (i < 0 || k < 0 || i > b->scales || k > b->scales)
                                continue;
                        const float error = min_error(x, w, b->len, b->most, b->d * (float)i,
                                                      b->m * (float)k);
                        if (error < best) {
                                best = error;
                                b->scale[s] = (uint8_t)i;
                                b->min[s] = (uint8_t)k;
                        }
                }
}

static void min_codes(MinBlock *b, const float *x)
{
        for (int s = 0; s < b->subs; s++) {
                const float d = b->d * (float)b->scale[s], m = b->m * (float)b->min[s],
                            by = d > 0 ? 1 / d : 0;
                for (int i = s * b->len; i < (s + 1) * b->len; i++)
                        b->q[i] = (uint8_t)nearest((x[i] + m) * by, 0, b->most);
        }
}

/* d and m of the whole block by least squares, everything else held; kept where they are better. */
static void refit_min(MinBlock *b, const float *x, const float *w)
{
        double aa = 0, ac = 0, cc = 0, ax = 0, cx = 0;
        for (int i = 0; i < b->subs * b->len; i++) {
                const double a = b->scale[i / b->len] * b->q[i], c = -(double)b->min[i / b->len];
                aa += w[i] * a * a;
                ac += w[i] * a * c;
                cc += w[i] * c * c;
                ax += (double)w[i] * a * x[i];
                cx += (double)w[i] * c * x[i];
        }
        const double det = aa * cc - ac * ac;
        double d = aa > 0 ? ax / aa : 0, m = 0;
        if (det > 1e-9 * aa * cc) {
                d = (ax * cc - cx * ac) / det;
                m = (aa * cx - ac * ax) / det;
        }
        const float old_d = b->d, old_m = b->m, new_d = as_half((float)d),
                    new_m = as_half((float)m);
        float was = 0, is = 0;
        if (!(new_d > 0) || !(new_m >= 0) || !isfinite(new_d) || !isfinite(new_m))
                return;
        for (int s = 0; s < b->subs; s++) {
                const float *at = x + s * b->len, *by = w + s * b->len;
                was += min_error(at, by, b->len, b->most, old_d * (float)b->scale[s],
                                 old_m * (float)b->min[s]);
                is += min_error(at, by, b->len, b->most, new_d * (float)b->scale[s],
                                new_m * (float)b->min[s]);
        }
        if (is < was) {
                b->d = new_d;
                b->m = new_m;
        }
}

void search_min(MinBlock *b, const float *x, const float *w)
{
        float d[16] = { 0 }, m[16] = { 0 }, most_d = 0, most_m = 0;
        for (int s = 0; s < b->subs; s++) {
                fit_min(x + s * b->len, w + s * b->len, b->len, b->most, &d[s], &m[s]);
                most_d = d[s] > most_d ? d[s] : most_d;
                most_m = m[s] > most_m ? m[s] : most_m;
        }
        b->d = as_half(most_d / (float)b->scales);
        b->m = as_half(most_m / (float)b->scales);
        for (int s = 0; s < b->subs; s++) {
                b->scale[s] = (uint8_t)(b->d > 0 ? nearest(d[s] / b->d, 0, b->scales) : 0);
                b->min[s] = (uint8_t)(b->m > 0 ? nearest(m[s] / b->m, 0, b->scales) : 0);
        }
        for (int r = 0; r < ROUNDS; r++) {
                for (int s = 0; s < b->subs; s++)
                        better_min(b, s, x + s * b->len, w + s * b->len);
                min_codes(b, x);
                refit_min(b, x, w);
        }
        min_codes(b, x);
}

/* ---- a scale, and values of a table ---- */

/* The index of the value next to x. */
static int next_to(const ValueBlock *b, float x)
{
        const int8_t *v = b->value;
        if (v[1] == v[0] + 1 && v[b->values - 1] == v[0] + b->values - 1)
                return nearest(x, v[0], v[b->values - 1]) - v[0];
        int i = 0;
        for (int k = 1; k < b->values; k++)
                i += x > 0.5f * (float)(v[k - 1] + v[k]);
        return i;
}

static float value_error(const ValueBlock *b, const float *x, const float *w, float d)
{
        const float by = d != 0 ? 1 / d : 0;
        float sum = 0;
        for (int i = 0; i < b->len; i++) {
                const float off = d * (float)b->value[next_to(b, x[i] * by)] - x[i];
                sum += w[i] * off * off;
        }
        return sum;
}

/* The scale of one part, not yet rounded; of either sign, since tables are not symmetric. */
static float fit_values(const ValueBlock *b, const float *x, const float *w)
{
        float most = 0, best = INFINITY, d = 0;
        for (int i = 0; i < b->len; i++)
                most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
        if (most == 0)
                return 0;
        for (int side = 0; side < 2; side++)
                for (int r = -RANGES; r <= RANGES; r++) {
                        const float end = (float)b->value[side ? b->values - 1 : 0],
                                    by = end * (1 + 0.0125f * (float)r) / most;
                        double sxv = 0, svv = 0;
                        for (int i = 0; i < b->len; i++) {
                                const double v = b->value[next_to(b, x[i] * by)];
                                sxv += (double)w[i] * x[i] * v;
                                svv += (double)w[i] * v * v;
                        }
                        const float scale = svv > 0 ? (float)(sxv / svv) : 0;
                        const float error = value_error(b, x, w, scale);
                        if (error < best) {
                                best = error;
                                d = scale;
                        }
                }
        return d;
}

static void value_codes(ValueBlock *b, const float *x)
{
        for (int s = 0; s < b->subs; s++) {
                const float d = b->d * (float)b->scale[s], by = d != 0 ? 1 / d : 0;
                for (int i = s * b->len; i < (s + 1) * b->len; i++)
                        b->q[i] = (uint8_t)next_to(b, x[i] * by);
        }
}

static void better_scale(ValueBlock *b, int s, const float *x, const float *w)
{
        const int scale = b->scale[s];
        float best = INFINITY;
        for (int i = scale - 1; i <= scale + 1; i++) {
                if (i < b->low || i > b->high)
                        continue;
                const float error = value_error(b, x, w, b->d * (float)i);
                if (error < best) {
                        best = error;
                        b->scale[s] = (int8_t)i;
                }
        }
}

static void refit_values(ValueBlock *b, const float *x, const float *w)
{
        double vv = 0, vx = 0;
        float was = 0, is = 0;
        for (int i = 0; i < b->subs * b->len; i++) {
                const double v = b->scale[i / b->len] * b->value[b->q[i]];
                vv += w[i] * v * v;
                vx += (double)w[i] * v * x[i];
        }
        const float d = vv > 0 ? as_half((float)(vx / vv)) : 0;
        if (d == 0 || !isfinite(d))
                return;
        for (int s = 0; s < b->subs; s++) {
                const float *at = x + s * b->len, *by = w + s * b->len;
                was += value_error(b, at, by, b->d * (float)b->scale[s]);
                is += value_error(b, at, by, d * (float)b->scale[s]);
        }
        if (is < was)
                b->d = d;
}

void search_values(ValueBlock *b, const float *x, const float *w)
{
        float d[16] = { 0 }, most = 0;
        for (int s = 0; s < b->subs; s++) {
                d[s] = fit_values(b, x + s * b->len, w + s * b->len);
                most = fabsf(d[s]) > fabsf(most) ? d[s] : most;
        }
        /* `low` has one step more than `high`, so the largest scale goes there */
        b->d = as_half(b->low == b->high ? most : most / (float)b->low);
        for (int s = 0; s < b->subs; s++)
                b->scale[s] = (int8_t)(b->low == b->high ? 1
                                       : b->d != 0       ? nearest(d[s] / b->d, b->low, b->high)
                                                         : 0);
        for (int r = 0; r < ROUNDS; r++) {
                for (int s = 0; s < b->subs && b->low != b->high; s++)
                        better_scale(b, s, x + s * b->len, w + s * b->len);
                value_codes(b, x);
                refit_values(b, x, w);
        }
        value_codes(b, x);
}
