/* host_cc.h: the system's compiler, and the temporary folders it works in.
 *
 * Children get an argv, no shell, and an environment of PATH, TMPDIR,
 * LD_LIBRARY_PATH and LC_ALL only; no file descriptor but 0, 1 and 2. */
#ifndef TGC_HOST_CC_H
#define TGC_HOST_CC_H

#include <stddef.h>
#include "../util/err.h"
#include "../plan/plan.h"
#include "../util/stop.h"

/* command: words, "ccache gcc" */
typedef struct HostCc {
        char command[512];
        char version[256];
        int cxx;
} HostCc;

/* CC or CXX, which must run where it is set; else gcc cc clang or g++ c++ clang++, the first that
 * runs. */
int host_cc_find(HostCc *cc, int cxx, Err *e);

/* How many run at once: TGC_COMPILERS, else one a core. */
int host_compilers(void);

typedef struct HostBuild {
        const char *const *flag; /* NULL-terminated */
        const Pack *units, *headers;
        const char *suffix; /* ".c", ".cu": names the saved source */
        const char *what;   /* "source.cpu", for messages */
        Stop *stop;         /* or NULL */
        /* an object that is linked with them; NULL: none */
        const void *object;
        size_t object_size;
} HostBuild;

/* Build a shared object from units [first, first+n), compiled in parallel.
 * *so is malloc'd.  On failure the message has the compiler's first lines and
 * the path where the offending source was kept.  TGC_STOPPED: as b->stop asked. */
int host_cc_build(const HostCc *cc, const HostBuild *b, int first, int n, void **so, size_t *size,
                  Err *e);
/* The same of unit `first` alone, and not linked: what may be another build's `object`. */
int host_cc_object(const HostCc *cc, const HostBuild *b, int first, void **object, size_t *size,
                   Err *e);

/* Load a shared object from memory; close with so_close. */
typedef struct SharedObject {
        void *handle;
        int fd;
} SharedObject;
int so_open(SharedObject *so, const void *data, size_t size, Err *e);
/* after so_open of code with OpenMP: unloading must not unmap its threads */
void so_pin_openmp(void);
void *so_symbol(const SharedObject *so, const char *name);
void so_close(SharedObject *so);

/* Identifies this processor's instruction set and model: 32 hex digits. */
void host_cpu_key(char hex[33]);

int tmpdir_make(char path[512], Err *e);
void tmpdir_remove(const char *path); /* with everything in it */
/* Save text where it outlives a failed build; the path for the message, or "". */
void keep_source(const char *name, const char *text, size_t n, char *path, size_t cap);

#endif
