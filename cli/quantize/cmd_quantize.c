/* cmd_quantize.c: tgc quantize: rewrites a GGUF file with its tensors in other types, one tensor
 * after the other. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../runtime/util/file.h"
#include "../../runtime/weights/block_encode.h"
#include "../../runtime/weights/gguf_out.h"
#include "../load/gguf_model.h"
#include "../export/gguf_write.h"
#include "imatrix.h"
#include "mixtures.h"
#include "quantize.h"

typedef struct Job {
        const Args *a;
        Gguf *g;
        Imatrix *imatrix; /* or NULL */
        int mixture;
        CkTensor *out; /* as they are written; data is the source's */
        int without;   /* tensors that the importance matrix lacks */
} Job;

static int plan(Job *j, Err *e)
{
        const int n_tensors = gguf_n_tensors(j->g);
        for (int i = 0; i < n_tensors; i++)
                j->out[i] = *gguf_tensor(j->g, i);
        int code = check_patterns(j->a, j->out, n_tensors, e);
        for (int i = 0; i < n_tensors && !code; i++) {
                CkTensor *t = &j->out[i];
                int64_t n;
                const int kept = kept_type(j->a, t, e),
                          type = kept == -1 ? mixture_type(j->mixture, j->g, t) : kept;
                if (kept == -2)
                        return TGC_USAGE;
                if (type != t->dtype && !ck_dtype_is_float(t->dtype))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s is of type %s, which cannot be read",
                                       j->a->pos[0], t->name, ck_dtype_name(t->dtype));
                ck_count(t->rank, t->dim, &n);
                t->dtype = type;
                t->bytes = (size_t)(n / ck_block_values(type)) * ck_block_bytes(type);
        }
        return code;
}

static int write_tensor(Job *j, GgufOut *o, const CkTensor *from, const CkTensor *to, Err *e)
{
        int64_t n;
        if (from->dtype == to->dtype)
                return gguf_out_write(o, from->data, from->bytes, e);
        ck_count(from->rank, from->dim, &n);
        float *v = malloc((size_t)n * sizeof *v + 1);
        void *mem = malloc(to->bytes + 1);
        int code = v && mem ? TGC_OK
                            : err_set(e, TGC_NO_MEMORY, "%s: no memory for %.200s", j->a->pos[0],
                                      to->name);
        if (!code) {
                ck_convert(v, CK_F32, from->data, from->dtype, (size_t)n, 1);
                if (ck_can_encode(to->dtype))
                        code = encode_tensor(j->a->pos[0], j->imatrix, to, mem, v, n, &j->without,
                                             e);
                else
                        ck_convert(mem, to->dtype, v, CK_F32, (size_t)n, 1);
        }
        if (!code)
                code = gguf_out_write(o, mem, to->bytes, e);
        free(v);
        free(mem);
        return code;
}

static int write_all(Job *j, const char *path, Err *e)
{
        GgufKeys *set = gguf_keys_new();
        Progress talk = progress_new(j->a);
        const int n = gguf_n_tensors(j->g);
        GgufOut *o;
        if (set) {
                gguf_put_u32(set, "general.file_type", (uint32_t)mixture_file_type(j->mixture));
                gguf_put_u32(set, "general.quantization_version", 2);
        }
        int code = gguf_out_open(&o, path, j->g, set, j->out, n, e);
        gguf_keys_free(set);
        if (code)
                return code;
        for (int i = 0; i < n && !code; i++) {
                progress_bar(&talk, (double)i / n, "%d of %d tensors", i, n);
                code = write_tensor(j, o, gguf_tensor(j->g, i), &j->out[i], e);
        }
        progress_bar_end(&talk);
        if (code) {
                gguf_out_abort(o);
                return code;
        }
        return gguf_out_commit(o, e);
}

static int quantize_gguf(const Args *a, Err *e)
{
        Job j = { .a = a, .mixture = mixture_find(opt_str(a, O_TYPE)) };
        const char *imatrix = opt_str(a, O_IMATRIX);
        if (j.mixture < 0)
                return err_set(e, TGC_USAGE, "--type %.40s: a GGUF file can become %s",
                               opt_str(a, O_TYPE), mixture_names());
        int code = gguf_open(&j.g, a->pos[0], e);
        if (!code && imatrix)
                code = imatrix_open(&j.imatrix, imatrix, e);
        if (!code && opt_str(a, O_CALIBRATE))
                code = imatrix_calibrate(&j.imatrix, a, e);
        if (!code && !(j.out = calloc((size_t)gguf_n_tensors(j.g) + 1, sizeof *j.out)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", a->pos[0]);
        if (!code && !(code = plan(&j, e)))
                code = check_importance(a, j.imatrix, j.out, gguf_n_tensors(j.g), e);
        if (!code)
                code = write_all(&j, opt_str(a, O_OUT), e);
        if (!code)
                say_tensors(a, opt_str(a, O_OUT), j.out, gguf_n_tensors(j.g), j.without);
        free(j.out);
        imatrix_close(j.imatrix);
        if (j.g)
                gguf_free(j.g);
        return code;
}

static int folder_to_gguf(const Args *a, Err *e)
{
        Imatrix *m = NULL;
        int code = opt_str(a, O_IMATRIX)     ? imatrix_open(&m, opt_str(a, O_IMATRIX), e)
                   : opt_str(a, O_CALIBRATE) ? imatrix_calibrate(&m, a, e)
                                             : TGC_OK;
        if (!code)
                code = gguf_of_folder(&(GgufOf) { .a = a,
                                                  .folder = a->pos[0],
                                                  .type = opt_str(a, O_TYPE),
                                                  .imatrix = m },
                                      opt_str(a, O_OUT), e);
        imatrix_close(m);
        return code;
}

int cmd_quantize(const Args *a, Err *e)
{
        if (!opt_str(a, O_OUT))
                return err_set(e, TGC_USAGE, "quantize: give -o OUT");
        if (!opt_str(a, O_TYPE))
                return err_set(e, TGC_USAGE,
                               "quantize: give --type: %s of a GGUF file or a folder; nf4, int4 "
                               "or fp8 of a folder",
                               mixture_names());
        if (file_is_dir(a->pos[0]))
                return is_gguf_type(opt_str(a, O_TYPE)) ? folder_to_gguf(a, e)
                                                        : quantize_folder(a, e);
        if (is_gguf(a->pos[0]))
                return quantize_gguf(a, e);
        if (access(a->pos[0], F_OK))
                return err_set(e, TGC_IO, "%s: no such file or folder", a->pos[0]);
        return err_set(e, TGC_USAGE, "%s: quantize takes a GGUF file or a Hugging Face folder",
                       a->pos[0]);
}
