/* expr.c: expressions of a plan: products of numbers, B, T, ceil(PRODUCT/NUMBER) and (A+B...). */
#include <string.h>
#include "program.h"

enum { MAX_DEPTH = 8 };
#define MAX_VALUE ((int64_t)1 << 62)

typedef struct Scan {
        const char *p;
        int B, T, depth;
} Scan;

static int64_t scan_product(Scan *s);

static int64_t scan_int(Scan *s)
{
        int64_t x = -1;
        for (; *s->p >= '0' && *s->p <= '9'; s->p++) {
                x = (x < 0 ? 0 : x) * 10 + (*s->p - '0');
                if (x > MAX_VALUE / 16)
                        return -1;
        }
        return x;
}

/* (PRODUCT+PRODUCT...) */
static int64_t scan_sum(Scan *s)
{
        int64_t x = 0, y;
        if (++s->depth > MAX_DEPTH)
                return -1;
        do {
                s->p++;
                if ((y = scan_product(s)) < 0 || (x += y) > MAX_VALUE)
                        return -1;
        } while (*s->p == '+');
        s->depth--;
        if (*s->p != ')')
                return -1;
        s->p++;
        return x;
}

static int64_t scan_factor(Scan *s)
{
        if (*s->p == '(')
                return scan_sum(s);
        if (*s->p == 'B')
                return s->p++, s->B;
        if (*s->p == 'T')
                return s->p++, s->T;
        if (strncmp(s->p, "ceil(", 5))
                return scan_int(s);
        if (++s->depth > MAX_DEPTH)
                return -1;
        s->p += 5;
        int64_t a = scan_product(s);
        if (a < 0 || *s->p != '/')
                return -1;
        s->p++;
        int64_t b = scan_int(s);
        if (b <= 0 || *s->p != ')')
                return -1;
        s->p++;
        s->depth--;
        return a / b + (a % b != 0);
}

static int64_t scan_product(Scan *s)
{
        int64_t x = scan_factor(s), y;
        while (x >= 0 && *s->p == '*') {
                s->p++;
                y = scan_factor(s);
                if (y < 0 || __builtin_mul_overflow(x, y, &x) || x > MAX_VALUE)
                        return -1;
        }
        return x;
}

int64_t expr_eval(const char *expr, int B, int T)
{
        Scan s = { expr, B, T, 0 };
        int64_t x = scan_product(&s);
        return *s.p ? -1 : x;
}
