/* file.h: bytes as a file, for readers that want a path. */
#ifndef TGC_FUZZ_FILE_H
#define TGC_FUZZ_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz.h"

/* A path to a file in memory that holds them, until the next call. */
static inline const char *file_of_bytes(const uint8_t *data, size_t n)
{
        static char path[64];
        static int fd = -1;

        if (fd < 0)
                fd = memfd_create("fuzz", MFD_CLOEXEC);
        HOLDS(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, n, 0) == (ssize_t)n);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return path;
}

/* The bytes as a string; the caller frees. */
static inline char *text_of_bytes(const uint8_t *data, size_t n)
{
        char *s = malloc(n + 1);

        HOLDS(s);
        memcpy(s, data, n);
        s[n] = 0;
        return s;
}

/* The next part of *data, up to a NUL (which goes) or the end. */
static inline const uint8_t *part_of_bytes(const uint8_t **data, size_t *n, size_t *part)
{
        const uint8_t *p = *data, *nul = *n ? memchr(p, 0, *n) : NULL;

        *part = nul ? (size_t)(nul - p) : *n;
        *data = p + *part + (nul != NULL);
        *n -= *part + (nul != NULL);
        return p;
}

#endif
