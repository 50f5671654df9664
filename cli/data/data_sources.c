/* data_sources.c: finds the files of --data and --val_data and reads their tokens.
 *
 * An argument is a file, or a pattern (*, ?, [...]) whose files, in the order of their names, are
 * one source.  A number behind a colon is the source's weight.  The file's name decides its kind:
 * .bin holds ids, .jsonl and .json hold records, all others text.  Text and records become ids
 * once.  The ids are kept in the cache folder, under a key of the file's content, the tokenizer and
 * the template. */
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>
#include "../../runtime/device/cache.h"
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/line_reader.h"
#include "data.h"

enum { WORTH_KEEPING = 1 << 17 }; /* bytes; less is read again as quickly */

/* ---- which files ---- */

static bool is_records(const char *path)
{
        return text_ends(path, ".jsonl") || text_ends(path, ".json");
}

/* FILE:WEIGHT, unless a file has that name. */
static int read_weight(Source *s, const char *option, Err *e)
{
        char *colon = strrchr(s->name, ':'), *end;
        s->weight = 1;
        if (file_exists(s->name) || !colon || !colon[1] ||
            strspn(colon + 1, "0123456789.eE+-") != strlen(colon + 1))
                return TGC_OK;
        s->weight = c_strtod(colon + 1, &end);
        if (*end || !isfinite(s->weight) || s->weight <= 0)
                return err_set(e, TGC_USAGE,
                               "--%s %s: the weight behind the colon must be a "
                               "number above 0",
                               option, s->name);
        *colon = 0;
        return TGC_OK;
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int find_files(Source *s, const char *option, Err *e)
{
        glob_t g = { 0 };
        const bool one = file_exists(s->name) || !strpbrk(s->name, "*?[");
        const int failed = one ? 0 : glob(s->name, GLOB_NOSORT, NULL, &g);
        const size_t n = one ? 1 : failed ? 0 : g.gl_pathc;
        int code = TGC_OK;
        if (failed == GLOB_NOSPACE || !(s->file = calloc(n + 1, sizeof *s->file)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory for its files", s->name);
        else if (!n)
                code = err_set(e, TGC_IO, "--%s %s: no file has such a name", option, s->name);
        for (size_t i = 0; i < n && !code; i++) {
                const char *path = one ? s->name : g.gl_pathv[i];
                if (!(s->file[s->n_files++] = strdup(path)))
                        code = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
                else if (!file_exists(path))
                        code = err_set(e, TGC_IO, "%s: no such file", path);
                else if (is_bin(path) != is_bin(s->file[0]) ||
                         is_records(path) != is_records(s->file[0]))
                        code = err_set(
                                e, TGC_USAGE,
                                "--%s %s: %s and %s are not of one kind (text, .bin, .jsonl)",
                                option, s->name, s->file[0], path);
        }
        globfree(&g);
        if (!code)
                qsort(s->file, n, sizeof *s->file, by_name);
        s->records = !code && is_records(s->file[0]);
        return code;
}

int sources_find(Sources *s, const char *const *typed, int n, const char *option, Err *e)
{
        int code = TGC_OK;
        *s = (Sources) { .source = calloc((size_t)n + 1, sizeof *s->source) };
        if (!s->source)
                return err_set(e, TGC_NO_MEMORY, "no memory for the files of --%s", option);
        for (int i = 0; i < n && !code; i++) {
                Source *x = &s->source[s->n++];
                if (!*typed[i])
                        code = err_set(e, TGC_USAGE, "--%s: the name is empty", option);
                else if (!(x->name = strdup(typed[i])))
                        code = err_set(e, TGC_NO_MEMORY, "no memory for the files of --%s", option);
                else if (!(code = read_weight(x, option, e)))
                        code = find_files(x, option, e);
        }
        return code;
}

/* ---- their tokens ---- */

static void key_of(const RecordsHow *how, const char *kind, const char *text, size_t n,
                   char hex[33])
{
        CacheKey k;
        cache_key_begin(&k);
        cache_key_text(&k, "tgc tokens 1");
        cache_key_text(&k, kind);
        cache_key_text(&k, how->identity);
        cache_key_add(&k, text, n);
        cache_key_end(&k, hex);
}

/* Both kinds are kept as records; a text is one. */
static bool from_cache(Records *r, const char *hex, int vocab)
{
        void *data;
        size_t n;
        if (!cache_get(hex, &data, &n))
                return false;
        if (!records_unpack(r, data, n, vocab, NULL))
                return true;
        cache_remove(hex);
        return false;
}

static void to_cache(const Records *r, const char *hex)
{
        void *data;
        size_t n;
        if (records_pack(r, &data, &n, NULL))
                return;
        cache_put(hex, data, n);
        free(data);
}

static int encode_text(Records *r, const RecordsHow *how, const char *text, size_t n,
                       const char *path, Err *e)
{
        int *ids = NULL, k = 0;
        *r = (Records) { .n = 1, .start = calloc(2, sizeof *r->start) };
        int code = ids_of_text(how->tok, text, n, 0, how->vocab, path, &ids, &k, e);
        if (!code && !r->start)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        r->id = (uint32_t *)ids;
        if (code)
                records_free(r);
        else
                r->start[1] = (uint64_t)k;
        return code;
}

static int tokenise(Source *s, Records *r, const RecordsHow *how, const char *path, Err *e)
{
        const bool records = s->records;
        char *text, hex[33];
        size_t n;
        int code = file_read_text(path, TOK_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        if (!records && text_mark(text, n)) {
                if (!s->n_marks++)
                        s->marked = path;
                n = drop_mark(text, n, path, NULL);
        }
        const bool keep = n >= WORTH_KEEPING;
        if (keep)
                key_of(how, records ? "records" : "text", text, n, hex);
        if (keep && from_cache(r, hex, how->vocab)) {
                free(text);
                return TGC_OK;
        }
        const double began = clock_s();
        progress_bar(how->talk, 0, "%s: %zu MB to tokens", path, n >> 20);
        code = records ? records_read(r, how, text, n, path, e)
                       : encode_text(r, how, text, n, path, e);
        progress_bar_end(how->talk);
        if (!code && keep) {
                say(how->talk, "%s: %llu tokens of %.1f MB in %.1f s, kept for the next time\n",
                    path, (unsigned long long)r->start[r->n], (double)n / 1e6, clock_s() - began);
                to_cache(r, hex);
        }
        free(text);
        return code;
}

/* A text's ids become a part of a stream. */
static int add_text(Tokens *t, Records *r, Err *e)
{
        TokenPart p = { .data = r->id, .width = 4, .n = (int64_t)r->start[1] };
        p.mem = r->mem ? r->mem : r->id;
        if (!r->mem)
                free(r->start);
        *r = (Records) { 0 };
        return tokens_add(t, &p, e);
}

static int add_records(Records *to, Records *from, const char *path, Err *e)
{
        if (!to->n) {
                *to = *from;
                *from = (Records) { 0 };
                return TGC_OK;
        }
        const uint64_t a = to->start[to->n], b = from->start[from->n];
        Records all = { .n = to->n + from->n,
                        .id = malloc((size_t)(a + b) * sizeof *all.id),
                        .start = malloc(((size_t)(to->n + from->n) + 1) * sizeof *all.start) };
        int code = all.id && all.start ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        if (!code) {
                memcpy(all.id, to->id, (size_t)a * sizeof *all.id);
                memcpy(all.id + a, from->id, (size_t)b * sizeof *all.id);
                memcpy(all.start, to->start, (size_t)to->n * sizeof *all.start);
                for (int64_t i = 0; i <= from->n; i++)
                        all.start[to->n + i] = a + from->start[i];
                records_free(to);
                *to = all;
        } else {
                records_free(&all);
        }
        records_free(from);
        return code;
}

static int check_ids(const TokenPart *p, int vocab, const char *path, Err *e)
{
        enum { CHUNK = 1 << 14 };
        int ids[CHUNK];
        const Tokens one = { .part = (TokenPart *)p, .n_parts = 1, .n = p->n };
        for (int64_t at = 0; at < p->n; at += CHUNK) {
                const int64_t n = p->n - at < CHUNK ? p->n - at : CHUNK;
                tokens_copy(&one, at, n, ids);
                for (int64_t i = 0; i < n; i++)
                        if (ids[i] < 0 || ids[i] >= vocab)
                                return err_set(e, TGC_BAD_FILE,
                                               "%s: id %u at %lld, the vocabulary is %d", path,
                                               (unsigned)ids[i], (long long)(at + i), vocab);
        }
        return TGC_OK;
}

static int read_file(Source *s, const RecordsHow *how, const char *path, Err *e)
{
        Records r = { 0 };
        TokenPart p;
        int code;
        if (is_bin(path)) {
                if ((code = token_bin_open(&p, path, e)))
                        return code;
                if ((code = check_ids(&p, how->vocab, path, e))) {
                        token_part_close(&p);
                        return code;
                }
                return tokens_add(&s->tokens, &p, e);
        }
        if (!how->tok)
                return err_set(e, TGC_USAGE,
                               "%s: there is no tokenizer for it; --tokenizer FILE gives one",
                               path);
        if ((code = tokenise(s, &r, how, path, e)))
                return code;
        return s->records ? add_records(&s->r, &r, path, e) : add_text(&s->tokens, &r, e);
}

/* Once for all files. */
static void say_marks(const Sources *s, const Progress *talk)
{
        const char *first = NULL;
        int n = 0;
        for (int i = 0; i < s->n; i++) {
                n += s->source[i].n_marks;
                first = first ? first : s->source[i].marked;
        }
        if (n == 1)
                say(talk, "%s: begins with a byte order mark (U+FEFF), which is left out\n", first);
        else if (n)
                say(talk,
                    "%s and %d more begin with a byte order mark (U+FEFF), which is left out\n",
                    first, n - 1);
}

int sources_read(Sources *s, const RecordsHow *how, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < s->n && !code; i++)
                for (int k = 0; k < s->source[i].n_files && !code; k++)
                        code = read_file(&s->source[i], how, s->source[i].file[k], e);
        say_marks(s, how->talk);
        return code;
}

void sources_free(Sources *s)
{
        for (int i = 0; i < s->n; i++) {
                Source *x = &s->source[i];
                for (int k = 0; k < x->n_files; k++)
                        free(x->file[k]);
                free(x->file);
                free(x->name);
                tokens_free(&x->tokens);
                records_free(&x->r);
        }
        free(s->source);
        *s = (Sources) { 0 };
}

/* ---- of all ---- */

uint64_t sources_hash(const Sources *s, uint64_t seed)
{
        enum { CHUNK = 1 << 14 };
        int ids[CHUNK];
        XXH3_state_t state, *x = &state;
        XXH3_64bits_reset_withSeed(x, seed);
        for (int i = 0; i < s->n; i++) {
                const Source *y = &s->source[i];
                for (int64_t at = 0; at < y->tokens.n; at += CHUNK) {
                        const int64_t n = y->tokens.n - at < CHUNK ? y->tokens.n - at : CHUNK;
                        tokens_copy(&y->tokens, at, n, ids);
                        XXH3_64bits_update(x, ids, (size_t)n * sizeof *ids);
                }
                if (y->records) {
                        XXH3_64bits_update(x, y->r.id,
                                           (size_t)y->r.start[y->r.n] * sizeof *y->r.id);
                        XXH3_64bits_update(x, y->r.start,
                                           ((size_t)y->r.n + 1) * sizeof *y->r.start);
                }
                if (s->n > 1)
                        XXH3_64bits_update(x, &y->weight, sizeof y->weight);
        }
        return XXH3_64bits_digest(x);
}

int64_t sources_tokens(const Sources *s)
{
        int64_t n = 0;
        for (int i = 0; i < s->n; i++)
                n += s->source[i].records ? (int64_t)s->source[i].r.start[s->source[i].r.n]
                                          : s->source[i].tokens.n;
        return n;
}

bool sources_have_records(const Sources *s)
{
        for (int i = 0; i < s->n; i++)
                if (s->source[i].records)
                        return true;
        return false;
}
