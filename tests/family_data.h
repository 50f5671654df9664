/* family_data.h: where small models of every family lie: the project's own, made by tests/data/make_families.py,
 * and those beside the repository, where there are some. */
#ifndef TGC_FAMILY_DATA_H
#define TGC_FAMILY_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include "../runtime/file.h"

enum { FAMILY_PLACES = 2 };

/* False: there is no such family at that place. */
static inline bool family_dir(char *path, size_t n, int place, const char *name)
{
        static const char *const root[FAMILY_PLACES] = { "tests/data/families", "../shared/data/families" };
        snprintf(path, n, "%s/%s", root[place], name);
        return file_is_dir(path);
}

#endif
