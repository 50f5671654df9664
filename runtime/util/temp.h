/* temp.h: temporary files and folders.
 *
 * Each is on a list while it exists, so that a signal that ends the process removes it.  Its owner
 * locks it, so that the next process that writes there can remove what a killed one left.  Names
 * say whose they are: ".NAME.tgc-PID-K" for files beside their target, "tgc-PID-XXXXXX" for
 * folders, in which TEMP_OWNER is the locked file. */
#ifndef TGC_TEMP_H
#define TGC_TEMP_H

#include <stdbool.h>

#define TEMP_OWNER ".owner"

void temp_begin(const char *path);        /* before it is made */
void temp_made(const char *path, int fd); /* fd: a descriptor of it, which stays the caller's */
void temp_end(const char *path);          /* it is gone, or has its real name now */
void temp_sweep(const char *dir, bool folders); /* those of owners that are gone */

/* For a handler of signals which then ends the process: unlinks every file that is known. */
void temps_unlink(void);

#endif
