/* file_hold.h: files that are whole in memory and not on the disk yet.
 *
 * From file_hold_begin to file_hold_end what this thread writes through FileOut (file.h) is held:
 * nothing is created or renamed, and a commit succeeds.  Then any thread may write the files, one
 * by one, with all that file_out_commit promises.  Devices and pipes are held like files. */
#ifndef TGC_FILE_HOLD_H
#define TGC_FILE_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

typedef struct FileHold FileHold;

/* *h NULL: a new one, which the caller frees; else it is emptied, and its memory used again. */
int file_hold_begin(FileHold **h, Err *e);
void file_hold_end(void);
int file_hold_count(
        const FileHold *h); /* in the order in which they were opened; aborted ones too */
/* File i, to the disk; one that was aborted is nothing. */
int file_hold_write(FileHold *h, int i, Err *e);
void file_hold_free(FileHold *h);

/* ---- for file.c ---- */

typedef struct HeldFile HeldFile;
bool file_holding(void);
int held_open(HeldFile **f, const char *path, Err *e);
int held_write(HeldFile *f, const void *data, size_t size, Err *e);
void held_patch(HeldFile *f, uint64_t at, const void *data,
                size_t size); /* over bytes written before */
void held_drop(HeldFile *f);

#endif
