/* windows.c: the data of a step as a function of (seed, step, micro, row), so that
 * a resumed run sees what an uninterrupted one does. */
#include "work.h"

/* The finaliser of splitmix64: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x)
{
        x += 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return x ^ x >> 31;
}

static int64_t random_offset(const Windows *w, int64_t step, int micro, int row)
{
        uint64_t n = (uint64_t)(w->end - w->begin - w->T);
        uint64_t x = mix(mix(mix(w->seed) ^ (uint64_t)step) ^
                         ((uint64_t)micro << 32 | (uint64_t)row));
        return w->begin + (int64_t)(x % n); /* n is far below 2^64: no bias to speak of */
}

void windows_fill(const Windows *w, int64_t step, int micro, int n_micro, int B, int *ids,
                  int *targets)
{
        for (int b = 0; b < B; b++) {
                int64_t at = w->offset ? w->offset[(step * n_micro + micro) * B + b]
                                       : random_offset(w, step, micro, b);
                for (int t = 0; t < w->T; t++) {
                        ids[(size_t)b * (size_t)w->T + (size_t)t] = w->ids[at + t];
                        targets[(size_t)b * (size_t)w->T + (size_t)t] = w->ids[at + t + 1];
                }
        }
}
