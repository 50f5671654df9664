/* err.h: how the runtime reports failure: a status, which is also the process's exit code (the enum
 * below), and a message for a person, without newline. */
#ifndef TGC_ERR_H
#define TGC_ERR_H

enum {
        TGC_OK = 0,
        TGC_FAIL = 1,
        TGC_USAGE = 2,
        TGC_BAD_FILE = 3,
        TGC_NO_DEVICE = 4,
        TGC_NO_MEMORY = 5,
        TGC_NON_FINITE = 6,
        TGC_CHECK_FAILED = 7,
        TGC_IO = 8,
        TGC_STOPPED =
                9 /* by the caller's wish (stop.h); the command line exits with 129, 130 or 143 */
};

#include "mem.h"

typedef struct Err {
        int code;
        char msg[1024];
} Err;

/* Fill e (may be NULL) and return code, so that callers write
 * `return err_set(e, TGC_BAD_FILE, "%s: ...", path);`.  A message already there
 * is replaced.  With TGC_NO_MEMORY the size that was refused is added, where fmt does not say
 * it. */
int err_set(Err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
