/* files_test.h: a folder for files of one run, files of given bytes, reproducible numbers. */
#ifndef TGC_FILES_TEST_H
#define TGC_FILES_TEST_H

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>
#include "../runtime/util/file.h"
#include "test.h"

static Err err;
static char dir[256];

/* A file name in a folder of this run, removed at exit. */
static inline const char *tmp(const char *name)
{
        static char path[4][512];
        static int k;

        k = (k + 1) % 4;
        snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
        return path[k];
}

static inline int files_in_dir(bool remove_them)
{
        DIR *d = opendir(dir);
        struct dirent *f;
        int n = 0;

        while (d && (f = readdir(d)))
                if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) {
                        n++;
                        if (remove_them)
                                unlink(tmp(f->d_name));
                }
        if (d)
                closedir(d);
        return n;
}

static inline void clean(void)
{
        files_in_dir(true);
        rmdir(dir);
}

__attribute__((constructor)) static void make_dir(void)
{
        const char *base = getenv("TMPDIR");

        snprintf(dir, sizeof dir, "%s/tgc-formats-XXXXXX", base ? base : P_tmpdir);
        if (!mkdtemp(dir))
                perror(dir);
        atexit(clean);
}

static inline void put(const char *path, const void *data, size_t n)
{
        FILE *f = fopen(path, "wb");

        CHECK(f && fwrite(data, 1, n, f) == n && !fclose(f));
}

static inline bool holds(const char *path, const void *data, size_t n)
{
        FileMap m;
        bool same;

        if (file_map(&m, path, &err))
                return false;
        same = m.size == n && !memcmp(m.data, data, n);
        file_unmap(&m);
        return same;
}

static unsigned long long random_state = 1;
static inline unsigned random_u(void)
{
        random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
        return (unsigned)(random_state >> 33);
}

#endif
