/* data.h: training data: files as streams of tokens, or as records.
 *
 * A stream is text or a .bin of ids; rows of a batch are windows of it, drawn at random.  A record
 * is an example: a prompt and its answer, a conversation, or a text.  Each of its tokens is a
 * target or not.  Several records share a row, each with positions of its own, or each has a row.
 * A row depends only on the seed and the row's number, so a resumed run sees the rows of an
 * uninterrupted one. */
#ifndef TGC_DATA_H
#define TGC_DATA_H

#include "../../runtime/util/file.h"
#include "../chat/chat.h"
#include "../load/open.h"

/* ---- token_bin.c: a stream in parts ---- */

typedef struct TokenPart {
        FileMap map; /* or mem has the ids */
        void *mem;
        const void *data;
        int width; /* bytes of an id: 2 or 4 */
        int64_t n;
} TokenPart;

typedef struct Tokens {
        TokenPart *part;
        int n_parts;
        int64_t n; /* ids in all */
} Tokens;

/* A .bin: nanoGPT's (uint16, nothing else) or llm.c's (a header, uint16 or uint32). */
int token_bin_open(TokenPart *p, const char *path, Err *e);
void token_part_close(TokenPart *p);
int tokens_add(Tokens *t, TokenPart *p, Err *e); /* takes it over, also after an error */
void tokens_copy(const Tokens *t, int64_t at, int64_t n, int *to); /* ids at..at+n */
void tokens_free(Tokens *t);
bool is_bin(const char *path);

/* ---- records.c: examples of a JSONL ---- */

#define RECORD_COUNTS 0x80000000u /* in an id: it counts as a target */

typedef struct Records {
        uint32_t *id;    /* one record after the other */
        uint64_t *start; /* (n + 1) where each begins in id */
        int64_t n, cap;
        uint64_t cap_ids;
        void *mem; /* not NULL: both lie in it */
} Records;

typedef enum { LOSS_ANSWER, LOSS_LAST, LOSS_MARKED, LOSS_ALL, LOSS_PADDING } LossOn; /* --loss */

/* What a record is.  Of pairs each makes two: chosen, rejected.  Of prompts one may end where the
 * answer would begin. */
typedef enum { RECORDS_TEXTS, RECORDS_PAIRS, RECORDS_PROMPTS } RecordsKind;

typedef struct RecordsHow {
        RecordsKind kind;
        const Tokenizer *tok;
        int vocab;
        const Chat *chat; /* NULL: there is no template, and no_chat says what to do */
        const char *no_chat;
        bool join; /* --template none: prompt and completion as they are, one text */
        LossOn loss;
        const char *fields;   /* --fields, or NULL */
        const char *identity; /* a hash of all this, for the cache */
        const Progress *talk;
        bool *warned; /* of two BOS */
} RecordsHow;

/* text: lines of JSON objects, or one JSON list of them.  Messages begin NAME:LINE. */
int records_read(Records *r, const RecordsHow *how, const char *text, size_t n, const char *name,
                 Err *e);
void records_free(Records *r);
/* One block of bytes, and back; what is no such block is TGC_BAD_FILE. */
int records_pack(const Records *r, void **data, size_t *n, Err *e);
int records_unpack(Records *r, void *data, size_t n, int vocab, Err *e); /* takes data over */

/* ---- packing.c: records into rows ---- */

typedef struct Packing {
        int n, n_rows; /* records, rows */
        int *length;   /* (n) places of each slot, falling */
        int *slot;     /* (n) slots, row by row */
        int *row;      /* (n_rows + 1) where those of a row begin */
        int *sorted;   /* (n) records by length */
        int64_t epoch; /* of what follows; -1: none */
        uint64_t seed;
        int *record; /* (n) which record a slot has */
        int *order;  /* (n_rows) which row comes when */
} Packing;

/* length (n): places that a record takes, 1 to T.  alone: a row each. */
int packing_new(Packing *p, const int *length, int n, int T, bool alone, Err *e);
void packing_free(Packing *p);
/* Shuffles: equal lengths change places, then rows.  Depends on seed and epoch alone. */
void packing_epoch(Packing *p, uint64_t seed, int64_t epoch);
uint64_t mix64(uint64_t x); /* splitmix64's finaliser */

/* ---- data_sources.c: the files of --data ---- */

typedef struct Source {
        char *name;  /* the file, or the pattern */
        char **file; /* what it stands for, sorted */
        int n_files;
        double weight; /* of all sources' */
        bool records;
        Tokens tokens; /* a stream's */
        Records r;
        int n_marks;        /* texts that began with a byte order mark */
        const char *marked; /* the first */
} Source;

typedef struct Sources {
        Source *source;
        int n;
} Sources;

/* FILE, PATTERN, FILE:WEIGHT: what is there, and of what kind. */
int sources_find(Sources *s, const char *const *typed, int n, const char *option, Err *e);
int sources_read(Sources *s, const RecordsHow *how, Err *e);
void sources_free(Sources *s);
/* Ids of all, as XXH3_64bits has it of int32; then of records where they begin and what counts. */
uint64_t sources_hash(const Sources *s, uint64_t seed);
int64_t sources_tokens(const Sources *s);
bool sources_have_records(const Sources *s);

#endif
