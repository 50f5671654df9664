/* pack.c: a plan's packs of files, and sources in units */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../runtime/plan/plan.h"

FUZZ(pack)
{
        Pack k, again;
        Err e;
        void *blob;
        size_t size;

        if (!pack_read(&k, data, n, "fuzz", &e)) {
                HOLDS(!pack_write(k.file, k.n, &blob, &size, &e) && size <= n &&
                      !pack_read(&again, blob, size, "again", &e));
                HOLDS(again.n == k.n);
                for (int i = 0; i < k.n; i++)
                        HOLDS(!strcmp(again.file[i].name, k.file[i].name) &&
                              again.file[i].size == k.file[i].size);
                pack_free(&again);
                free(blob);
                pack_free(&k);
        }
        if (!pack_units(&k, data, n, "fuzz", &e)) {
                for (int i = 0; i < k.n; i++)
                        HOLDS(k.file[i].size <= n && !k.file[i].data[k.file[i].size]);
                pack_free(&k);
        }
}
