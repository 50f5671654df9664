/* type.c: element types and shapes.  A dimension is a monomial in the symbols
 * B, T, S, so that products of dimensions stay exact and printable. */
#include "ir.h"
#include <string.h>

const char *const dt_name[N_DT] = { "f32", "bf16", "f16", "i32", "fp8" };
const int dt_size[N_DT] = { 4, 2, 2, 4, 1 };

bool dt_is_float(DType dt) { return dt != DT_I32; }

bool dim_eq(Dim a, Dim b) { return a.n == b.n && !memcmp(a.e, b.e, sizeof a.e); }

Dim dim_mul(Dim a, Dim b)
{
        for (int i = 0; i < N_SYM; i++)
                a.e[i] = (signed char)(a.e[i] + b.e[i]);
        a.n *= b.n;
        return a;
}

bool dim_div(Dim a, Dim b, Dim *q)
{
        if (b.n == 0 || a.n % b.n)
                return false;
        a.n /= b.n;
        for (int i = 0; i < N_SYM; i++)
                if ((a.e[i] = (signed char)(a.e[i] - b.e[i])) < 0)
                        return false;
        *q = a;
        return true;
}

bool dim_is_const(Dim a) { return !a.e[0] && !a.e[1] && !a.e[2]; }

int64_t dim_value(Dim a, const Sizes *s)
{
        for (int i = 0; i < N_SYM; i++)
                for (int j = 0; j < a.e[i]; j++)
                        a.n *= s->v[i];
        return a.n;
}

bool shape_eq(const Type *a, const Type *b)
{
        if (a->rank != b->rank)
                return false;
        for (int i = 0; i < a->rank; i++)
                if (!dim_eq(a->dim[i], b->dim[i]))
                        return false;
        return true;
}

bool type_eq(const Type *a, const Type *b) { return a->dt == b->dt && shape_eq(a, b); }

Dim type_elems(const Type *t)
{
        Dim d = DIM(1);
        for (int i = 0; i < t->rank; i++)
                d = dim_mul(d, t->dim[i]);
        return d;
}

Dim type_rows(const Type *t)
{
        Dim d = DIM(1);
        for (int i = 0; i + 1 < t->rank; i++)
                d = dim_mul(d, t->dim[i]);
        return d;
}

int64_t type_count(const Type *t, const Sizes *s) { return dim_value(type_elems(t), s); }

Type type_of(DType dt, int rank, ...)
{
        Type t = { .dt = dt, .rank = rank };
        va_list ap;
        va_start(ap, rank);
        for (int i = 0; i < rank; i++)
                t.dim[i] = va_arg(ap, Dim);
        va_end(ap);
        return t;
}

const char *dim_text(Dim d, char *buf)
{
        static const char sym[N_SYM + 1] = "BTS";
        int n = 0;
        bool any = false;
        if (d.n != 1 || dim_is_const(d)) {
                n = snprintf(buf, 64, "%lld", (long long)d.n);
                any = true;
        }
        for (int i = 0; i < N_SYM; i++)
                for (int j = 0; j < d.e[i] && n < 60; j++) {
                        n += snprintf(buf + n, (size_t)(64 - n), "%s%c", any ? "*" : "", sym[i]);
                        any = true;
                }
        return buf;
}

const char *shape_text(const Type *t, char *buf)
{
        int n = snprintf(buf, 256, "[");
        char d[64];
        for (int i = 0; i < t->rank && n < 200; i++)
                n += snprintf(buf + n, (size_t)(256 - n), "%s%s", i ? "," : "",
                              dim_text(t->dim[i], d));
        snprintf(buf + n, (size_t)(256 - n), "]");
        return buf;
}

const char *type_text(const Type *t, char *buf)
{
        char s[256];
        snprintf(buf, 256, "%s%.240s", dt_name[t->dt], shape_text(t, s));
        return buf;
}
