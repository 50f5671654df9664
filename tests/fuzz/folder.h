/* folder.h: a folder of a few files, in memory where there is such a place. */
#ifndef TGC_FUZZ_FOLDER_H
#define TGC_FUZZ_FOLDER_H

#include "file.h"

static char folder[64];

static void folder_remove(void)
{
        char line[80];
        snprintf(line, sizeof line, "rm -rf %.60s", folder);
        if (system(line))
                perror(folder);
}

/* A path in it, until the fourth call after. */
static inline const char *in_folder(const char *name)
{
        static char path[4][160];
        static int k;

        if (!*folder) {
                strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/tgc-fuzz-XXXXXX"
                                                        : "/dev/shm/tgc-fuzz-XXXXXX");
                HOLDS(mkdtemp(folder));
                atexit(folder_remove);
        }
        k = (k + 1) % 4;
        snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
        return path[k];
}

/* With nothing in it the file goes. */
static inline void folder_put(const char *name, const uint8_t *data, size_t n)
{
        const char *path = in_folder(name);

        if (!n) {
                unlink(path);
                return;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        HOLDS(fd >= 0 && write(fd, data, n) == (ssize_t)n && !close(fd));
}

#endif
