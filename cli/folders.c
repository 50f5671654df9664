/* folders.c: makes a folder, and asks what one has. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../runtime/util/file.h"
#include "cli.h"

int make_folder(const char *path, Err *e)
{
        char part[4096];
        if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
                return err_set(e, TGC_USAGE, "%.60s...: the path is too long", path);
        for (char *s = part + 1;; s++)
                if (*s == '/' || !*s) {
                        char end = *s;
                        *s = 0;
                        if (mkdir(part, 0777) && errno != EEXIST)
                                return err_set(e, TGC_IO, "%s: %s", part, strerror(errno));
                        *s = end;
                        if (!end)
                                break;
                }
        if (!file_is_dir(path))
                return err_set(e, TGC_IO, "%s: is a file, and a folder is needed", path);
        if (access(path, W_OK | X_OK))
                return err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        return TGC_OK;
}

bool path_has(const char *dir, const char *name)
{
        char path[4400]; /* the system opens none that is longer */
        return (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path &&
               file_exists(path);
}
