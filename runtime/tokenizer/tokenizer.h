/* tokenizer.h: text to token ids and back, for the formats models come with.
 *
 * A Tokenizer is read-only once built, apart from the setters below, so any number of threads may
 * encode and decode with one.  Every input file may be hostile; what is not supported is refused by
 * name.
 *
 * What ids a text gets:
 *   HF          ids equal those of Hugging Face tokenizers: BPE, Unigram, WordPiece, WordLevel
 *   LLAMA2C     ids equal those of llama2.c's run.c (for text that is UTF-8)
 *   GPT2        encoder.json + vocab.bpe (or vocab.json + merges.txt), byte level
 *   TIKTOKEN    `base64 rank` lines; the split pattern is known by the count
 *   BERT        vocab.txt: WordPiece, as Hugging Face's BertTokenizer cuts and cleans text
 *   SPM         ids equal those of sentencepiece (for text that is UTF-8)
 *   CHAR        one id per code point; a code point outside is an error
 *   PARTS       pieces in memory, as GGUF files have them (tok_from_parts) */
#ifndef TGC_TOKENIZER_H
#define TGC_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

typedef struct Tokenizer Tokenizer;

enum {               /* kind, and what the blob holds                     */
       TOK_CHAR = 1, /* UTF-8: the vocabulary's code points in id order   */
       TOK_HF,       /* tokenizer.json                                    */
       TOK_LLAMA2C,  /* tokenizer.bin                                     */
       TOK_GPT2,     /* encoder.json, a NUL byte, vocab.bpe               */
       TOK_TIKTOKEN, /* lines of `base64(token) rank`                     */
       TOK_SPM,      /* sentencepiece's tokenizer.model                   */
       TOK_PARTS,    /* what tok_from_parts writes                        */
       TOK_BERT      /* tokenizer_config.json (may be empty), a NUL byte, vocab.txt */
};

#define TOK_MAX_EOS 8           /* ids that end a text                               */
#define TOK_MAX_VOCAB (1 << 22) /* ids are below this                                */
#define TOK_MAX_FILE (1 << 28)  /* bytes of a tokenizer file                         */
#define TOK_MAX_TEXT (1 << 30)  /* bytes of one text to encode                       */

/* Build from n bytes, which are copied.  *out is NULL after a failure. */
int tokenizer_new(Tokenizer **out, int kind, const void *blob, size_t n, Err *e);

/* path: tokenizer.json, tokenizer.bin, *.tiktoken, tokenizer.model (tiktoken's, or a
 * sentencepiece BPE), or a folder with one of them, with
 * encoder.json + vocab.bpe, or with vocab.json + merges.txt.  Beside a JSON tokenizer,
 * tokenizer_config.json, generation_config.json and config.json give BOS, EOS (the ids of
 * generation_config.json, or without that file of config.json, as transformers' generate) and
 * whether BOS is added.  vocab_hint (0: unknown) is the model's
 * vocabulary: tokenizer.bin is cut to it, and encode refuses text that needs an id
 * from there on (tokenizers may know more tokens than their model). */
int tokenizer_open(Tokenizer **out, const char *path, int vocab_hint, Err *e);

/* A vocabulary in memory, with the facts that GGUF's keys `tokenizer.ggml.*` hold.  Everything is
 * copied.  Begin with TOK_PARTS_NONE; -1 means "not said", and the model's own habit holds. */
typedef struct TokText {
        const char *p;
        size_t n;
} TokText;
enum { TOK_NORMAL = 1, TOK_UNKNOWN, TOK_CONTROL, TOK_USER_DEFINED, TOK_UNUSED, TOK_BYTE };
typedef struct TokParts {
        /* llama (sentencepiece's BPE), gpt2 (byte-level BPE), bert (WordPiece; a piece that begins
         * a word begins with U+2581), t5 (sentencepiece's Unigram) */
        const char *model;
        const char *pre; /* gpt2: how text is cut, by llama.cpp's name (tok_pre.c) */
        int n_piece, n_merge;
        const TokText *piece; /* (n_piece) by id                                  */
        const float *score;   /* (n_piece) or NULL                                */
        const int *kind;      /* (n_piece) or NULL: all TOK_NORMAL                */
        const TokText *merge; /* (n_merge) "left right", best first               */
        const void *charsmap; /* n_charsmap bytes: sentencepiece's character map  */
        size_t n_charsmap;
        int bos, unk, sep;           /* ids                                       */
        int eos[TOK_MAX_EOS], n_eos; /* every id that ends a text                 */
        int add_bos, add_eos, add_space_prefix, remove_extra_whitespaces; /* 0, 1, -1 */
        int lowercase; /* bert: small letters, without accents (-1: yes) */
} TokParts;
#define TOK_PARTS_NONE                                                                  \
        {                                                                               \
                .bos = -1, .unk = -1, .sep = -1, .add_bos = -1, .add_eos = -1,          \
                .add_space_prefix = -1, .remove_extra_whitespaces = -1, .lowercase = -1 \
        }
int tok_from_parts(Tokenizer **out, const TokParts *parts, Err *e);

/* ---- tok_to_parts.c: the other way ---------------------------------------------------
 *
 * Parts that cut text as t does, which texts that are hard to cut must show; refused where none do.
 * n: how many pieces there shall be; ids that t has not are [PADn].  free() what *owned is. */
int tok_to_parts(const Tokenizer *t, int n, TokParts *out, void **owned, Err *e);
const char *tok_pre_name(int i); /* tok_pre.c: the first name of each row; NULL behind the last */

/* tok_bert_write.c: a WordPiece vocabulary as tokenizer_config.json and vocab.txt, both malloc'ed;
 * NULL where it is none, or one that those do not say. */
int tokenizer_vocab_txt(const Tokenizer *t, char **settings, char **text, size_t *n, Err *e);

/* tok_json_write.c: a byte-level BPE as tokenizer.json and tokenizer_config.json, both malloc'ed;
 * chat: its template, or NULL.  NULL where it is none, or cuts text as no name of tok_pre.c. */
int tokenizer_json(const Tokenizer *t, const char *chat, char **json, char **settings, Err *e);

/* ---- tok_train.c: a byte-level BPE learned from text --------------------------------
 *
 * Special tokens get the first ids and are never merged.  add may be called again and again; run
 * once, at the end: *json, malloc'ed, is a tokenizer.json that cuts as GPT-2 does.  Fewer tokens
 * than asked for mean that no pair is left. */
typedef struct TokTrainer TokTrainer;
typedef struct TokTrained {
        uint64_t bytes; /* of text */
        size_t words;   /* different ones */
        int vocab, merges;
} TokTrained;
int tok_trainer_new(TokTrainer **out, int vocab_size, const char *const *special, int n_special,
                    Err *e);
int tok_trainer_add(TokTrainer *t, const char *text, size_t n, Err *e);
int tok_trainer_run(TokTrainer *t, char **json, size_t *n, TokTrained *what, Err *e);
void tok_trainer_free(TokTrainer *t);

/* One self-contained blob (kind, settings, original bytes); *blob is malloc'ed.
 * Packing the same tokenizer twice gives the same bytes. */
int tokenizer_pack(const Tokenizer *t, void **blob, size_t *n, Err *e);
int tokenizer_unpack(Tokenizer **out, const void *blob, size_t n, Err *e);

void tokenizer_free(Tokenizer *t);

/* The char vocabulary of a text: its distinct code points, sorted, as a TOK_CHAR
 * blob.  *blob is malloc'ed.  Text that is not UTF-8 is refused with the offset. */
int tokenizer_char_blob(const char *text, size_t n, char **blob, size_t *blob_n, Err *e);

int tokenizer_kind(const Tokenizer *t);
int tokenizer_vocab(const Tokenizer *t); /* largest id + 1              */
int tokenizer_find(const Tokenizer *t, const char *piece, size_t n); /* id, or -1   */
const char *tokenizer_piece(const Tokenizer *t, int id, size_t *n);  /* as stored, or NULL */

int tokenizer_bos(const Tokenizer *t);      /* -1: none                    */
int tokenizer_adds_bos(const Tokenizer *t); /* 1: its files ask for a BOS before a text */
/* What the tokenizer's template puts behind a text ([SEP], </s>); encode does not.  How many; *ids
 * stay t's. */
int tokenizer_suffix(const Tokenizer *t, const int **ids);
int tokenizer_eos(const Tokenizer *t, const int **ids); /* how many; *ids stay t's     */
int tokenizer_is_eos(const Tokenizer *t, int id);
int tokenizer_is_special(const Tokenizer *t, int id);

/* Ids must be below the vocabulary (bos may be -1); TGC_USAGE otherwise. */
int tokenizer_set_bos(Tokenizer *t, int bos, int adds_bos, Err *e);
int tokenizer_set_eos(Tokenizer *t, const int *ids, int n, Err *e);

/* Ids of n bytes of text, *ids malloc'ed (never NULL after success).  add_bos: 1
 * puts BOS, or what the tokenizer's template puts there, in front; 0 does not; -1
 * as tokenizer_adds_bos says.  Nothing is added at the end. */
int tokenizer_encode(const Tokenizer *t, const char *text, size_t n, int add_bos, int **ids,
                     int *n_ids, Err *e);

/* A text in the making; zeroed at its start. */
typedef struct TokStream {
        int begun, stripped;
} TokStream;

/* The n bytes that id adds to the text; they stay t's.  Special tokens and ids outside the
 * vocabulary add nothing.  A character may be spread over several tokens, so these bytes
 * need not be UTF-8, and all of them together are what a model said, byte for byte. */
const char *tokenizer_next(const Tokenizer *t, TokStream *s, int id, size_t *n);

/* The text of n_ids ids as Hugging Face writes it: UTF-8, with U+FFFD for bytes that are
 * none.  *text is malloc'ed, with a NUL behind it that does not count. */
int tokenizer_text(const Tokenizer *t, const int *ids, int n_ids, char **text, size_t *n, Err *e);

#endif
