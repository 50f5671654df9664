/* init.c: initial parameters, the same on every machine and for every number of
 * threads.  Philox4x32-10 (Salmon et al., SC 2011): element i of parameter number
 * `index` uses word i&3 of counter {i>>2 low, i>>2 high, index, "init"} under the
 * seed as key; two neighbouring words give two normals (Box and Muller, 1958). */
#include <math.h>
#include "session/session.h"

#define INIT_ID 0x74696e69u

static void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
        for (int r = 0; r < 10; r++) {
                uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
                uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                                     (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a };
                for (int i = 0; i < 4; i++)
                        c[i] = next[i];
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
}

/* In the open interval (0, 1). */
static double unit(uint32_t x) { return ((double)x + 0.5) * 0x1p-32; }

static void draw(const Param *p, int index, uint64_t seed, uint64_t quad, double out[4])
{
        uint32_t c[4] = { (uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)index, INIT_ID };
        philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
        if (p->init == INIT_UNIFORM) {
                for (int i = 0; i < 4; i++)
                        out[i] = p->init_arg[0] + (p->init_arg[1] - p->init_arg[0]) * unit(c[i]);
                return;
        }
        for (int i = 0; i < 4; i += 2) {
                double r = p->init_arg[0] * sqrt(-2 * log(unit(c[i]))),
                       a = 6.283185307179586 * unit(c[i + 1]);
                out[i] = r * cos(a);
                out[i + 1] = r * sin(a);
        }
}

void param_init(const Param *p, int index, uint64_t seed, uint64_t first, uint64_t n, float *out)
{
        double x[4];
        if (p->init != INIT_NORMAL && p->init != INIT_UNIFORM) {
                float v = p->init == INIT_ONES    ? 1.f
                          : p->init == INIT_VALUE ? (float)p->init_arg[0]
                                                  : 0.f;
                for (uint64_t i = 0; i < n; i++)
                        out[i] = v;
                return;
        }
        for (uint64_t i = 0; i < n; i++) {
                uint64_t at = first + i;
                if (i == 0 || at % 4 == 0)
                        draw(p, index, seed, at / 4, x);
                out[i] = (float)x[at % 4];
        }
}
