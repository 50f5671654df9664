/* continuations.c: lines of `tgc eval --continuations` */
#include "file.h"
#include "../../cli/eval/continuations.h"

FUZZ(continuations)
{
        char *text = text_of_bytes(data, n);
        Continuations c;
        Err e;

        if (continuations_read(&c, text, n, "fuzz", NULL, 500, 8, &e) == TGC_OK)
                HOLDS(c.n > 0);
        else
                HOLDS(*e.msg);
        for (int i = 0; i < c.n; i++) {
                const Continuation *x = &c.list[i];
                HOLDS(x->from >= 1 && x->from < x->n && x->n <= 9 && x->cut >= 0);
                for (int k = 0; k < x->n; k++)
                        HOLDS(x->ids[k] >= 0 && x->ids[k] < 500);
        }
        continuations_free(&c);
        free(text);
}
