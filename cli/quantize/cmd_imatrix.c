/* cmd_imatrix.c: tgc imatrix: measures the importance of columns and writes llama.cpp's file. */
#include "../cli.h"
#include "imatrix.h"

int cmd_imatrix(const Args *a, Err *e)
{
        const Calibration c = { .model = a->pos[0],
                                .text = opt_str(a, O_DATA),
                                .ids = opt_str(a, O_IDS),
                                .dtype = opt_str(a, O_DTYPE),
                                .device = opt_str(a, O_DEVICE),
                                .threads = opt_set(a, O_THREADS) ? opt_str(a, O_THREADS) : NULL,
                                .tokenizer = opt_str(a, O_TOKENIZER),
                                .window = opt_int(a, O_WINDOW),
                                .gguf_names = true,
                                .quiet = opt_flag(a, O_QUIET) };
        const char *path = opt_str(a, O_OUT);
        Progress talk = progress_new(a);
        Imatrix *m = NULL;
        if (!path)
                return err_set(e, TGC_USAGE, "imatrix: give -o FILE.gguf");
        if ((c.text != NULL) + (c.ids != NULL) != 1)
                return err_set(e, TGC_USAGE, "imatrix: give one of --data TEXT and --ids FILE");
        int code = imatrix_measure(&m, &c, e);
        if (!code && !(code = imatrix_write(m, path, e)))
                say(&talk, "%s: means of %d tensors\n", path, imatrix_count(m));
        imatrix_close(m);
        return code;
}
