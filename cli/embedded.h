/* embedded.h: files embedded in the binary.  The Makefile generates the tables (build/embedded.c);
 * each ends with name NULL. */
#ifndef TGC_EMBEDDED_H
#define TGC_EMBEDDED_H

#include <stddef.h>

struct EmbeddedFile {
        const char *name;
        const char *text;
        size_t n;
};

extern const struct EmbeddedFile kernel_files_cuda[], kernel_files_cpu[], model_files[],
        page_files[];

#endif
