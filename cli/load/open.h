/* open.h: from a plan to a session, and what commands do with one: the part of load.h that needs
 * the runtime's headers. */
#ifndef TGC_CLI_OPEN_H
#define TGC_CLI_OPEN_H

#include <cjson/cJSON.h>
#include "../../runtime/session/session.h"
#include "../../runtime/weights/safetensors.h"
#include "load.h"

/* ---- open.c ---- */

/* A session as --device, --gpu, --threads and TGC_DEVICE say. */
/* ready, batch: SessionOptions', programs whose kernels are wanted at once; NULL: all. */
int open_session(Session **s, const Plan *p, const Args *a, int mode, uint64_t seed,
                 const char *ready, int batch, Err *e);
/* --offload moves something of the session that is trained, or of its step. */
int offload_check(const Session *s, const Args *a, Err *e);
/* A plan without weights gets those that `tgc train` begins with: says so, unless load did. */
enum { WEIGHTS_SEED = 1337 }; /* train's default */
void say_random(const Args *a, const Loaded *l);
/* UTF-8; NUL is a character */
void json_add_text(cJSON *o, const char *key, const char *text, size_t n);
int json_print(cJSON *o, Err *e);      /* to stdout, with a newline; deletes o */
int json_print_line(cJSON *o, Err *e); /* the same, on one line */
/* Text as ids; refuses ids that the model does not have.  *ids is malloc'd, or NULL.  Errors begin
 * with where. */
int ids_of_text(const Tokenizer *tok, const char *s, size_t n, int bos, int vocab,
                const char *where, int **ids, int *k, Err *e);
int ids_of_text_file(const Tokenizer *tok, const char *path, int vocab, const Progress *talk,
                     int **ids, int *n, Err *e);
int ids_of_id_file(const char *path, int vocab, int **ids, int *n, Err *e);

/* Repeated measurements. */
typedef struct Times {
        double *v;
        int n;
} Times;
double times_median(Times *t); /* sorts */
/* A step of program p on these ids, whose time is measured. */
TrainStep plain_step(const Prog *p, const int *ids);

/* ---- model_files.c ---- */

/* A plan keeps these files of a folder, as they are, in sections file.NAME. */
int model_files_keep(Plan *p, const char *dir, bool model, bool tokenizer, Err *e);
void model_files_drop_tokenizer(Plan *p);
/* Into dir, config.json with the type that the weights have there.  own: the user has another
 * config.json.  model: the file that tgc's own config.json names, "" where it is a family's; and
 * whether there is a tokenizer. */
int model_files_write(const Loaded *l, const char *dir, const char *dtype, bool own,
                      char model[200], bool *tokenizer, Err *e);

#endif
