/* quantize_folder.c: a Hugging Face folder's linears in another type. */
#include "quantize.h"

int quantize_folder(const Args *a, Err *e)
{
        return err_set(e, TGC_USAGE, "%s: a GGUF file is quantised", a->pos[0]);
}
