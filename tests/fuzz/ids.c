/* ids.c: token ids as text, of the command line or a file */
#include "file.h"
#include "../../cli/load/load.h"

FUZZ(ids)
{
        char *text = text_of_bytes(data, n);
        int *ids, n_ids;
        Err e;

        if (ids_parse(text, n, 500, "fuzz", &ids, &n_ids, &e) == TGC_OK) {
                HOLDS(n_ids > 0);
                for (int i = 0; i < n_ids; i++)
                        HOLDS(ids[i] >= 0 && ids[i] < 500);
        } else {
                HOLDS(!ids && !n_ids && *e.msg);
        }
        free(ids);
        free(text);
}
