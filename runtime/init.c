/* init.c: initial parameters, the same on every machine and for every number of
 * threads.  Philox4x32-10 (Salmon et al., SC 2011): element i of parameter number
 * `index` uses word i&3 of counter {i>>2 low, i>>2 high, index, "init"} under the
 * seed as key; two neighbouring words give two normals (Box and Muller, 1958).
 *
 * LANES counters are drawn at once in vectors.  Logarithm, sine and cosine are sums here, and not
 * libm's: those take most of the time, and their last bits differ between machines. */
#include <math.h>
#include <string.h>
#include "session/session.h"

enum { LANES = 8, INIT_ID = 0x74696e69 };
typedef double Real __attribute__((vector_size(8 * LANES)));
typedef int64_t Long __attribute__((vector_size(8 * LANES)));
typedef uint64_t Word __attribute__((vector_size(8 * LANES))); /* of 32 bits */

static inline __attribute__((always_inline)) void philox(Word c[4], uint32_t k0, uint32_t k1)
{
        for (int r = 0; r < 10; r++) {
                const Word a = c[0] * 0xD2511F53u, b = c[2] * 0xCD9E8D57u;
                const Word next[4] = { (b >> 32) ^ c[1] ^ k0, b & 0xffffffffu,
                                       (a >> 32) ^ c[3] ^ k1, a & 0xffffffffu };
                memcpy(c, next, sizeof next);
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
}

/* |x| < 2^51; SSE2 has no instruction for it. */
static inline __attribute__((always_inline)) Real real_of(Long x)
{
        const Long bits = x + 0x4338000000000000; /* 1.5 * 2^52 and x */
        Real v;
        memcpy(&v, &bits, sizeof v);
        return v - 0x1.8p52;
}

/* In the open interval (0, 1). */
static inline __attribute__((always_inline)) Real unit(Word x)
{
        return (real_of((Long)x) + 0.5) * 0x1p-32;
}

/* -2 log(u).  u = m 2^e, m in [1/sqrt 2, sqrt 2); log m = 2 artanh(s), s = (m - 1) / (m + 1). */
static inline __attribute__((always_inline)) Real minus_2_log(Real u)
{
        Long bits;
        memcpy(&bits, &u, sizeof bits);
        const Word over = (Word)bits + (((uint64_t)64 << 52) - 0x3fe6a09e667f3bcd);
        const Long e = (Long)(over >> 52) - 64;
        bits -= (Long)((Word)e << 52);
        Real m;
        memcpy(&m, &bits, sizeof m);
        const Real s = (m - 1) / (m + 1), z = s * s;
        Real sum = z * (1 / 21.);
        for (int k = 19; k > 1; k -= 2)
                sum = z * (1. / k + sum);
        return -2 * (real_of(e) * 0.6931471805599453 + 2 * (s + s * sum));
}

/* cos and sin of a whole turn times (x + 1/2) 2^-32: of at most an eighth of one, exactly, and the
 * quarter that it is in. */
static inline __attribute__((always_inline)) void turn(Word x, Real *cosine, Real *sine)
{
        static const double C[] = { -1 / 2.,           1 / 24.,
                                    -1 / 720.,         1 / 40320.,
                                    -1 / 3628800.,     1 / 479001600.,
                                    -1 / 87178291200., 1 / 20922789888000. },
                            S[] = { -1 / 6.,
                                    1 / 120.,
                                    -1 / 5040.,
                                    1 / 362880.,
                                    -1 / 39916800.,
                                    1 / 6227020800.,
                                    -1 / 1307674368000.,
                                    1 / 355687428096000. };
        const Long quarter = (Long)((x + 0x20000000u) >> 30);
        const Real a = (real_of((Long)x - (Long)((Word)quarter << 30)) + 0.5) *
                       (6.283185307179586 * 0x1p-32),
                   z = a * a;
        Real c = z * C[7], s = z * S[7];
        for (int k = 6; k >= 0; k--)
                c = z * (C[k] + c), s = z * (S[k] + s);
        c = 1 + c;
        s = a + a * s;
        const Long swap = -(quarter & 1), minus_c = ((quarter + 1) & 2) << 62,
                   minus_s = (quarter & 2) << 62;
        Long cb, sb;
        memcpy(&cb, &c, sizeof cb), memcpy(&sb, &s, sizeof sb);
        const Long ct = ((cb & ~swap) | (sb & swap)) ^ minus_c,
                   st = ((sb & ~swap) | (cb & swap)) ^ minus_s;
        memcpy(cosine, &ct, sizeof ct), memcpy(sine, &st, sizeof st);
}

/* Four elements each of LANES counters from quad on. */
static inline __attribute__((always_inline)) void draw(const Param *p, int index, uint64_t seed,
                                                       uint64_t quad, float *out)
{
        const double *arg = p->init_arg;
        Word c[4], at;
        Real x[4];
        for (int l = 0; l < LANES; l++)
                at[l] = quad + (uint64_t)l;
        c[0] = at & 0xffffffffu;
        c[1] = at >> 32;
        c[2] = at * 0 + (uint32_t)index;
        c[3] = at * 0 + INIT_ID;
        philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
        for (int i = 0; i < 4 && p->init == INIT_UNIFORM; i++)
                x[i] = arg[0] + (arg[1] - arg[0]) * unit(c[i]);
        for (int i = 0; i < 4 && p->init != INIT_UNIFORM; i += 2) {
                Real r = minus_2_log(unit(c[i])), cosine, sine;
                for (int l = 0; l < LANES; l++)
                        r[l] = sqrt(r[l]);
                r *= arg[0];
                turn(c[i + 1], &cosine, &sine);
                x[i] = r * cosine;
                x[i + 1] = r * sine;
        }
        for (int l = 0; l < LANES; l++)
                for (int i = 0; i < 4; i++)
                        out[4 * l + i] = (float)x[i][l];
}

static inline __attribute__((always_inline)) void fill(const Param *p, int index, uint64_t seed,
                                                       uint64_t first, uint64_t n, float *out)
{
        enum { AT_ONCE = 4 * LANES };
        float some[AT_ONCE];
        for (uint64_t i = 0; i < n;) {
                const uint64_t at = first + i, quad = at / 4, skip = at % 4,
                               k = n - i < AT_ONCE - skip ? n - i : AT_ONCE - skip;
                draw(p, index, seed, quad, k == AT_ONCE ? out + i : some);
                if (k < AT_ONCE)
                        memcpy(out + i, some + skip, k * sizeof *out);
                i += k;
        }
}

typedef void Fill(const Param *p, int index, uint64_t seed, uint64_t first, uint64_t n, float *out);

static void fill_any(const Param *p, int index, uint64_t seed, uint64_t first, uint64_t n,
                     float *out)
{
        fill(p, index, seed, first, n, out);
}

#if defined __x86_64__ && defined __GNUC__
/* The same operations, of LANES at once: no product is added unrounded (fma). */
__attribute__((target("avx512f,avx512dq"))) static void fill_avx512(const Param *p, int index,
                                                                    uint64_t seed, uint64_t first,
                                                                    uint64_t n, float *out)
{
        fill(p, index, seed, first, n, out);
}

static Fill *best_fill(void)
{
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? fill_avx512
                                                                                       : fill_any;
}
#else
static Fill *best_fill(void) { return fill_any; }
#endif

void param_init(const Param *p, int index, uint64_t seed, uint64_t first, uint64_t n, float *out)
{
        if (p->init != INIT_NORMAL && p->init != INIT_UNIFORM) {
                float v = p->init == INIT_ONES    ? 1.f
                          : p->init == INIT_VALUE ? (float)p->init_arg[0]
                                                  : 0.f;
                for (uint64_t i = 0; i < n; i++)
                        out[i] = v;
                return;
        }
        best_fill()(p, index, seed, first, n, out);
}
