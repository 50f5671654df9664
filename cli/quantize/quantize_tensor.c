/* quantize_tensor.c: what every way to quantize does with one tensor: its type by --keep, its
 * blocks; and what is said of all. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "../../runtime/weights/block_encode.h"
#include "quantize.h"

/* A type by its name: of elements, or of blocks that can be written. */
static int named_type(const char *name)
{
        for (int t = 0; t < CK_N_DTYPES; t++)
                if (!strcasecmp(name, ck_dtype_name(t)) &&
                    (ck_can_encode(t) || t == CK_F32 || t == CK_F16 || t == CK_BF16))
                        return t;
        return -1;
}

int kept_type(const Args *a, const CkTensor *t, Err *e)
{
        const OptionValue *v = &a->v[O_KEEP_TYPE];
        for (int i = 0; i < v->n; i++) {
                const char *at = strrchr(v->list[i], '=');
                char pattern[200];
                const int type = at ? named_type(at + 1) : -1;
                if (!at || type < 0 || at - v->list[i] >= (int)sizeof pattern) {
                        err_set(e, TGC_USAGE,
                                "--keep %.100s: give PATTERN=TYPE, as 'output.weight=f16' or "
                                "'blk.0.*=q8_0'",
                                v->list[i]);
                        return -2;
                }
                snprintf(pattern, sizeof pattern, "%.*s", (int)(at - v->list[i]), v->list[i]);
                if (fnmatch(pattern, t->name, 0))
                        continue;
                if (t->rank < 1 || t->dim[t->rank - 1] % ck_block_values(type)) {
                        err_set(e, TGC_USAGE,
                                "--keep %.100s: rows of %.200s have %lld values, a block of %s %d",
                                v->list[i], t->name, t->rank ? (long long)t->dim[t->rank - 1] : 1,
                                ck_dtype_name(type), ck_block_values(type));
                        return -2;
                }
                return type;
        }
        return -1;
}

int check_importance(const Args *a, const Imatrix *m, const CkTensor *to, int n, Err *e)
{
        const char *option = opt_str(a, O_IMATRIX) ? "--imatrix" : "--calibrate",
                   *file = opt_str(a, O_IMATRIX) ? opt_str(a, O_IMATRIX) : opt_str(a, O_CALIBRATE),
                   *name = NULL;
        int could = 0;
        for (int i = 0; m && i < n; i++) {
                const float *means = NULL;
                int64_t matrices;
                if (!ck_can_weigh(to[i].dtype))
                        continue;
                int code = imatrix_find(m, to[i].name, to[i].dim[to[i].rank - 1], &means, &matrices,
                                        e);
                if (code || means)
                        return code;
                name = name ? name : to[i].name;
                could++;
        }
        if (could)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the importance matrix has means for none of %d tensors, as "
                               "%.200s; is it of this model?",
                               file, could, name);
        return m ? err_set(e, TGC_USAGE,
                           "%s %s has no effect: all tensors become Q8_0, MXFP4 or floats, whose "
                           "scales leave nothing to choose",
                           option, file)
                 : TGC_OK;
}

int check_patterns(const Args *a, const CkTensor *tensor, int n, Err *e)
{
        const OptionValue *v = &a->v[O_KEEP_TYPE];
        for (int i = 0; i < v->n; i++) {
                char pattern[200];
                const char *at = strrchr(v->list[i], '=');
                bool any = false;
                snprintf(pattern, sizeof pattern, "%.*s", at ? (int)(at - v->list[i]) : 0,
                         v->list[i]);
                for (int k = 0; k < n; k++)
                        any |= !fnmatch(pattern, tensor[k].name, 0);
                if (at && !any)
                        return err_set(e, TGC_USAGE, "--keep %.100s: no tensor has such a name",
                                       v->list[i]);
        }
        return TGC_OK;
}

int finite_values(const char *file, const char *name, const float *v, int64_t n, Err *e)
{
        for (int64_t i = 0; i < n; i++)
                if (!isfinite(v[i]))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: value %lld of %lld is %g, which blocks "
                                       "cannot hold",
                                       file, name, (long long)i, (long long)n, (double)v[i]);
        return TGC_OK;
}

int encode_tensor(const char *file, Imatrix *imatrix, const CkTensor *to, void *mem, const float *v,
                  int64_t n, int *without, Err *e)
{
        const int64_t cols = to->dim[to->rank - 1];
        const float *means = NULL;
        int64_t matrices = 1;
        int code = finite_values(file, to->name, v, n, e);
        if (!code && imatrix)
                code = imatrix_find(imatrix, to->name, cols, &means, &matrices, e);
        if (code)
                return code;
        *without += imatrix && !means;
        const int64_t rows = n / cols, each = rows / matrices;
        if (rows % matrices)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the tensor has %lld rows, the importance "
                               "matrix means of %lld matrices",
                               to->name, (long long)rows, (long long)matrices);
        for (int64_t m = 0; m < matrices; m++)
                if (!ck_encode((char *)mem +
                                       (size_t)(m * each * cols / ck_block_values(to->dtype)) *
                                               ck_block_bytes(to->dtype),
                               to->dtype, v + m * each * cols, each, cols,
                               means ? means + m * cols : NULL))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: its values are beyond what the halves "
                                       "of %s can scale; --keep '%.60s=f32'",
                                       file, to->name, ck_dtype_name(to->dtype), to->name);
        return TGC_OK;
}

void say_tensors(const Args *a, const char *path, const CkTensor *tensor, int n, int without)
{
        Progress talk = progress_new(a);
        char line[400] = "";
        size_t at = 0;
        uint64_t bytes = 0, values = 0;
        for (int t = 0; t < CK_N_DTYPES; t++) {
                int k = 0;
                for (int i = 0; i < n; i++)
                        k += tensor[i].dtype == t;
                if (k && at < sizeof line)
                        at += (size_t)snprintf(line + at, sizeof line - at, "%s%d %s",
                                               at ? ", " : "", k, ck_dtype_name(t));
        }
        for (int i = 0; i < n; i++) {
                int64_t count;
                ck_count(tensor[i].rank, tensor[i].dim, &count);
                values += (uint64_t)count;
                bytes += tensor[i].bytes;
        }
        char size[32];
        say(&talk, "%s: %s, %.2f bits a value: %s\n", path,
            text_bytes(size, sizeof size, (double)bytes),
            values ? 8.0 * (double)bytes / (double)values : 0.0, line);
        if (without)
                say(&talk, "%s: the importance matrix has no means for %d of the tensors\n",
                    opt_str(a, O_IMATRIX) ? opt_str(a, O_IMATRIX) : opt_str(a, O_CALIBRATE),
                    without);
}
