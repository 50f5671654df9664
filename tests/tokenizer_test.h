/* tokenizer_test.h: ids wanted and text back, and a tokenizer.json put together from parts. */
#ifndef TGC_TOKENIZER_TEST_H
#define TGC_TOKENIZER_TEST_H

#include <stdlib.h>
#include <time.h>
#include "../runtime/tokenizer/tokenizer.h"
#include "test.h"

#define OWN "tests/data/tokenizers/" /* data/tokenizers/make.py */

/* A whole file, with a NUL behind it. */
static inline char *slurp(const char *path, size_t *n)
{
        char *s;
        long size;

        data_need(path);
        FILE *f = fopen(path, "rb");
        CHECK_MSG(f, "%s: cannot be opened", path);
        fseek(f, 0, SEEK_END);
        size = ftell(f);
        rewind(f);
        s = malloc((size_t)size + 1);
        *n = fread(s, 1, (size_t)size, f);
        fclose(f);
        CHECK(*n == (size_t)size);
        s[*n] = 0;
        return s;
}

/* Numbers in text, up to a line's end; returns how many. */
static inline int read_ids(const char **s, int *ids, int cap)
{
        int n = 0;

        while (**s && **s != '\n') {
                char *end;
                long x = strtol(*s, &end, 10);
                if (end == *s) {
                        (*s)++;
                        continue;
                }
                CHECK(n < cap);
                ids[n++] = (int)x;
                *s = end;
        }
        *s += **s == '\n';
        return n;
}

static inline void check_ids(const Tokenizer *t, const char *text, size_t n, int add_bos,
                             const int *want, int n_want)
{
        int *ids, n_ids;
        Err e = { 0 };

        CHECK_MSG(tokenizer_encode(t, text, n, add_bos, &ids, &n_ids, &e) == TGC_OK, "%s", e.msg);
        CHECK_MSG(n_ids == n_want, "'%.40s': %d ids, expected %d", text, n_ids, n_want);
        for (int i = 0; i < n_ids; i++)
                CHECK_MSG(ids[i] == want[i], "'%.40s': id %d is %d, expected %d", text, i, ids[i],
                          want[i]);
        free(ids);
}

static inline char *decode_all(const Tokenizer *t, const int *ids, int n_ids, size_t *n)
{
        size_t cap = 64;
        TokStream at = { 0 };
        char *s;

        for (int i = 0; i < n_ids; i++) {
                tokenizer_next(t, &at, ids[i], n);
                cap += *n;
        }
        s = malloc(cap);
        at = (TokStream) { 0 };
        cap = 0;
        for (int i = 0; i < n_ids; i++) {
                const char *part = tokenizer_next(t, &at, ids[i], n);
                memcpy(s + cap, part, *n);
                cap += *n;
        }
        s[cap] = 0;
        *n = cap;
        return s;
}

/* Encode, decode, compare; returns the seconds encoding took. */
static inline double check_round_trip(const Tokenizer *t, const char *text, size_t n)
{
        struct timespec a, b;
        int *ids, n_ids;
        Err e = { 0 };
        size_t m;
        char *s;

        clock_gettime(CLOCK_MONOTONIC, &a);
        CHECK_MSG(tokenizer_encode(t, text, n, -1, &ids, &n_ids, &e) == TGC_OK, "%s", e.msg);
        clock_gettime(CLOCK_MONOTONIC, &b);
        s = decode_all(t, ids, n_ids, &m);
        CHECK_MSG(m == n && !memcmp(s, text, n), "'%.40s' came back as '%.40s'", text, s);
        free(s);
        free(ids);
        return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* ---- each part of a tokenizer.json ------------------------------------------------------- */

/* JSON with ' for ": base vocabulary, and parts that are null unless a row gives them. */
#define VOCAB                                                                              \
        "'<unk>':0,'a':1,'b':2,'c':3,'▁':4,'ab':5,'▁a':6,'Ġ':7,'Ġa':8,'1':9,'2':10," \
        "'12':11,'!':12,'<0xC3>':13,'<0xA9>':14,'A':15,'e':16,'Ċ':17,"                    \
        "'abc':18,'ĠĠ':19,' ':20,'.':21,'Ã':22,'©':23,'bc':24"
#define MERGES "'a b','▁ a','Ġ a','1 2','b c','a bc','Ġ Ġ'"
#define MERGE_LISTS "['a','b'],['▁','a'],['Ġ','a'],['1','2'],['b','c'],['a','bc'],['Ġ','Ġ']"

#define ADDED(id, text, more) "{'id':" #id ",'content':'" text "'" more "}"
#define RAW ",'normalized':false"
#define SPECIAL ",'special':true,'normalized':false"
#define SPLIT(pattern, cut, invert) \
        "{'type':'Split','pattern':{" pattern "},'behavior':'" cut "','invert':" invert "}"
#define METASPACE(scheme, split) \
        "{'type':'Metaspace','replacement':'▁','prepend_scheme':'" scheme "','split':" split "}"
#define BYTES(prefix, more) \
        "{'type':'ByteLevel','add_prefix_space':" prefix ",'trim_offsets':true" more "}"
#define SEQUENCE(list, parts) "{'type':'Sequence','" list "':[" parts "]}"
#define FUSE "{'type':'Fuse'}"
#define LLAMA_NORM                                                    \
        SEQUENCE("normalizers", "{'type':'Prepend','prepend':'▁'}," \
                                "{'type':'Replace','pattern':{'String':' '},'content':'▁'}")
#define LLAMA_DECODE                                                                        \
        SEQUENCE("decoders", "{'type':'Replace','pattern':{'String':'▁'},'content':' '}," \
                             "{'type':'ByteFallback'}," FUSE                                \
                             ",{'type':'Strip','content':' ','start':1,'stop':0}")
#define TEMPLATE                                                                            \
        "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}}," \
        "{'Sequence':{'id':'A','type_id':0}}],'special_tokens':{'<s>':{'id':'<s>','ids':[25]}}}"

typedef struct Parts {
        const char *norm, *pre, *post, *dec, *model, *added, *vocab, *merges;
} Parts;

static inline char *hf_json(Parts p, size_t *n)
{
        char *s = NULL;
        int len = asprintf(
                &s,
                "{'added_tokens':[%s],'normalizer':%s,'pre_tokenizer':%s,'post_processor':%s,"
                "'decoder':%s,'model':{'type':'BPE',%s'vocab':{%s},'merges':[%s]}}",
                p.added ? p.added : "", p.norm ? p.norm : "null", p.pre ? p.pre : "null",
                p.post ? p.post : "null", p.dec ? p.dec : FUSE, p.model ? p.model : "",
                p.vocab ? p.vocab : VOCAB, p.merges ? p.merges : MERGES);

        for (char *c = s; *c; c++)
                if (*c == '\'')
                        *c = '"';
        *n = (size_t)len;
        return s;
}

static inline int hf_new(Tokenizer **t, Parts p, Err *e)
{
        size_t n;
        char *s = hf_json(p, &n);
        int rc = tokenizer_new(t, TOK_HF, s, n, e);

        free(s);
        return rc;
}

#endif
