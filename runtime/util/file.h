/* file.h: reads and writes whole files.
 *
 * Reading maps the file.  Writing never shows a half-written file: the bytes go to a temporary file
 * beside the target, which replaces it after fsync.  The temporary file (temp.h) stays only if the
 * process is killed, until the next process writes there.  Every message names the path and the
 * system's reason. */
#ifndef TGC_FILE_H
#define TGC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

/* A read-only view of a regular file.  size 0 is allowed (data is then "").  Small files are
 * copied.  When a large one is cut by others while it is mapped, what reads it beyond its new end
 * gets SIGBUS: the command line then says which file and exits with 8 (cli/signals.c).  Who cannot
 * have that copies. */
typedef struct FileMap {
        const void *data;
        size_t size;
} FileMap;

/* TGC_IO, or TGC_BAD_FILE if not a regular file */
int file_map(FileMap *m, const char *path, Err *e);
/* the same, read into memory; TGC_IO where it got shorter meanwhile */
int file_copy(FileMap *m, const char *path, Err *e);
void file_unmap(FileMap *m); /* harmless on a zeroed FileMap */

/* The file as a string with a NUL behind it (not counted in *size, which may be
 * NULL); the caller frees.  TGC_BAD_FILE when larger than max bytes, or in UTF-16. */
int file_read_text(const char *path, size_t max, char **text, size_t *size, Err *e);
/* TGC_BAD_FILE if the text called `name` begins with UTF-16's mark. */
int text_is_utf8(const char *text, size_t n, const char *name, Err *e);
/* How many bytes UTF-8's mark takes, which editors of Windows put in front: 3 or 0. */
size_t text_mark(const char *text, size_t n);

/* Up to n first bytes of a regular file; how many, 0 of what is none. */
size_t file_head(const char *path, void *head, size_t n);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* "dir/name", freed by the caller; NULL when out of memory. */
char *file_join(const char *dir, const char *name);

/* A file being written.  Follow a symbolic link to its target; write straight
 * into what is not a regular file (a pipe, /dev/null).  After an error the
 * writer remains valid and must still be aborted. */
typedef struct FileOut FileOut;

int file_out_open(FileOut **out, const char *path, Err *e);
int file_out_write(FileOut *f, const void *data, size_t size, Err *e);
uint64_t file_out_size(const FileOut *f); /* bytes accepted so far */
/* over bytes accepted before */
int file_out_patch(FileOut *f, uint64_t at, const void *data, size_t size, Err *e);
/* flush, fsync, rename, fsync folder; frees f, also on error */
int file_out_commit(FileOut *f, Err *e);
void file_out_abort(FileOut *f); /* remove the temporary, free; NULL is allowed */

/* Hold `path`, a file of its own, for as long as the process lives or until file_unlock; made when
 * it is not there, and left.  TGC_USAGE with the holder's number when another process has it; *fd
 * -1 where there are no locks. */
int file_lock(int *fd, const char *path, const char *what, Err *e);
void file_unlock(int fd);

int file_write_atomic(const char *path, const void *data, size_t size, Err *e);
int file_write_in(const char *dir, const char *name, const void *data, size_t size, Err *e);

#endif
