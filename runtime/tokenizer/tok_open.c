/* tok_open.c: a tokenizer from a path, with the settings that lie beside it. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tok.h"
#include "../util/line_reader.h"

/* ---- files ----------------------------------------------------------------------- */

static int read_file(const char *path, Buf *out, Err *e)
{
        struct stat st;
        FILE *f;
        char part[65536];
        size_t n;

        if (!stat(path, &st) && !S_ISREG(st.st_mode)) /* opening a pipe would wait for its writer */
                return err_set(e, TGC_BAD_FILE, "%s: not a regular file", path);
        if (!(f = fopen(path, "rb")))
                return err_set(e, errno == ENOENT ? TGC_BAD_FILE : TGC_IO, "%s: %s", path,
                               strerror(errno));
        if (!fstat(fileno(f), &st) && st.st_size <= TOK_MAX_FILE)
                buf_room(out, (size_t)st.st_size + 1); /* and a NUL, so that it need not grow */
        while ((n = fread(part, 1, sizeof part, f)) && out->n + n <= TOK_MAX_FILE)
                buf_put(out, part, n);
        if (ferror(f)) {
                err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
                fclose(f);
                return TGC_IO;
        }
        fclose(f);
        if (n)
                return err_set(e, TGC_BAD_FILE, "%s: larger than %d bytes", path, TOK_MAX_FILE);
        return out->bad ? tok_no_memory(e) : TGC_OK;
}

/* folder/name as a new string, or NULL. */
static char *join(const char *folder, size_t n, const char *name)
{
        char *p = NULL;

        if (asprintf(&p, "%.*s%s%s", (int)n, folder, n && folder[n - 1] != '/' ? "/" : "", name) <
            0)
                return NULL;
        return p;
}

static bool is_there(const char *folder, const char *name)
{
        struct stat st;
        char path[4400]; /* the system opens none that is longer */
        return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
               !stat(path, &st) && S_ISREG(st.st_mode);
}

/* ---- tokenizer_config.json, generation_config.json, config.json -------------------- */

/* What the files say.  An earlier file wins for BOS.  EOS is what transformers' generate takes: the
 * ids of generation_config.json where there is that file, else those of config.json.  Only where
 * these name none, a text ends as the tokenizer says, which transformers does not ask. */
typedef struct Config {
        int bos, adds_bos, eos[TOK_MAX_EOS], n_eos;
        bool generation; /* there is a generation_config.json */
} Config;

/* An id, a token's text, or an added token's object with the text as "content"; -1: none of
 * them. */
static int token_id(const Tokenizer *t, Json o, JsonBuf *b)
{
        const char *s;
        double x;
        size_t n;

        if (json_type(o) == '{')
                o = json_get(o, "content");
        if ((s = json_string(o, b, &n)))
                return vocab_find(&t->vocab, s, n);
        x = json_number(o);
        return x >= 0 && x < t->vocab.n && x == (int)x ? (int)x : -1;
}

/* A number that is no id is refused: a text would never end there.  A text that is no token is not:
 * tokenizer_config.json may name tokens of other files.  Nor is GPT2_END: transformers writes it
 * into the folder of every GPT-2 that says nothing of its own, whatever its vocabulary, and no text
 * ends there then. */
enum { GPT2_END = 50256 };
static int check_id(const Tokenizer *t, const char *key, Json o, int id, Err *e)
{
        int line = 1;

        if (id >= 0 || json_type(o) != '0' || json_number(o) == GPT2_END)
                return TGC_OK;
        for (const char *s = o.in->text; s < o.at; s++)
                line += *s == '\n';
        return err_set(e, TGC_BAD_FILE,
                       "%s:%d: \"%s\": %.10g is the id of none of the tokenizer's %d tokens; write "
                       "null if there is no such token",
                       o.in->name, line, key, json_number(o), t->vocab.n);
}

static int add_eos(const Tokenizer *t, Config *c, const char *key, Json o, JsonBuf *b, Err *e)
{
        int id = token_id(t, o, b);

        for (int i = 0; i < c->n_eos; i++)
                if (c->eos[i] == id)
                        return TGC_OK;
        if (id >= 0 && c->n_eos == TOK_MAX_EOS)
                return err_set(e, TGC_BAD_FILE, "%s: \"%s\" has more than %d ids", o.in->name, key,
                               TOK_MAX_EOS);
        if (id >= 0)
                c->eos[c->n_eos++] = id;
        return check_id(t, key, o, id, e);
}

/* BOS and EOS of one file. */
static int take_ids(const Tokenizer *t, Config *c, Config *found, Json o, JsonBuf *b, Err *e)
{
        static const char *const bos[] = { "bos_token", "bos_token_id" };
        static const char *const eos[] = { "eos_token", "eos_token_id" };
        int rc = TGC_OK;

        for (int i = 0; i < 2 && rc == TGC_OK; i++) {
                Json x = json_get(o, bos[i]);
                const int id = token_id(t, x, b);

                if (c->bos < 0)
                        c->bos = id;
                rc = check_id(t, bos[i], x, id, e);
                x = json_get(o, eos[i]);
                if (rc == TGC_OK && json_type(x) != '[')
                        rc = add_eos(t, found, eos[i], x, b, e);
                else if (rc == TGC_OK)
                        for (JsonEach k = json_each(x); rc == TGC_OK && json_next(&k);)
                                rc = add_eos(t, found, eos[i], k.value, b, e);
        }
        return rc;
}

static int read_config(const Tokenizer *t, const char *folder, size_t n, const char *name,
                       Config *c, Err *e)
{
        char *path = join(folder, n, name);
        JsonText text;
        JsonBuf name_of = { 0 };
        Buf b = { 0 };
        Json o, x;
        int rc;

        if (!path)
                return tok_no_memory(e);
        if (access(path, F_OK) != 0) { /* every one of them may be missing */
                free(path);
                return TGC_OK;
        }
        rc = read_file(path, &b, e);
        if (rc == TGC_OK)
                rc = json_open(&text, &o, b.n ? b.p : "", b.n, path, true, e);
        if (rc == TGC_OK) {
                const bool generation = !strcmp(name, "generation_config.json");
                Config found = { 0 };
                c->generation |= generation;
                rc = take_ids(t, c, &found, o, &name_of, e);
                if (found.n_eos && (generation || !c->generation)) {
                        memcpy(c->eos, found.eos, sizeof c->eos);
                        c->n_eos = found.n_eos;
                }
                x = json_get(o, "add_bos_token");
                if (json_type(x) == 't' || json_type(x) == 'f')
                        c->adds_bos = json_type(x) == 't';
                json_close(&text);
                json_buf_free(&name_of);
        }
        buf_free(&b);
        free(path);
        return rc;
}

static int apply_configs(Tokenizer *t, const char *folder, size_t n, Err *e)
{
        static const char *const name[] = { "tokenizer_config.json", "generation_config.json",
                                            "config.json" };
        Config c = { .bos = -1, .adds_bos = -1 };
        int rc;

        for (int i = 0; i < 3; i++)
                if ((rc = read_config(t, folder, n, name[i], &c, e)) != TGC_OK)
                        return rc;
        if (c.n_eos && (rc = tokenizer_set_eos(t, c.eos, c.n_eos, e)) != TGC_OK)
                return rc;
        /* A template says what goes in front better than a single id does. */
        return tokenizer_set_bos(t, t->n_prefix || c.bos < 0 ? t->bos : c.bos,
                                 c.adds_bos >= 0 ? c.adds_bos : t->adds_bos, e);
}

/* ---- opening ------------------------------------------------------------------------ */

/* tokenizer_config.json, if it is there, and a NUL. */
static int read_settings(const char *path, size_t n_folder, Buf *b, Err *e)
{
        char *name = join(path, n_folder, "tokenizer_config.json");
        int rc = !name ? tok_no_memory(e) : access(name, F_OK) ? TGC_OK : read_file(name, b, e);

        free(name);
        buf_put(b, "", 1);
        return rc;
}

/* second (NULL: none) follows the first file behind a NUL. */
static int open_files(Tokenizer **out, const char *path, const char *second, int kind, int limit,
                      Err *e)
{
        const char *slash = strrchr(path, '/');
        Err why = { 0 };
        Buf b = { 0 };
        size_t n_folder = slash ? (size_t)(slash - path) + 1 : 0;
        int rc = kind == TOK_BERT ? read_settings(path, n_folder, &b, &why) : TGC_OK;

        if (rc == TGC_OK)
                rc = read_file(path, &b, &why);
        if (rc == TGC_OK && second) {
                buf_put(&b, "", 1);
                rc = read_file(second, &b, &why);
        }
        if (kind == TOK_TIKTOKEN && b.n && b.p[0] == '\n') /* a protobuf's first tag */
                kind = TOK_SPM;
        if (rc == TGC_OK)
                rc = tok_take(out, kind, limit, &b, &why);
        if (rc == TGC_OK && (kind == TOK_HF || kind == TOK_GPT2 || kind == TOK_BERT))
                rc = apply_configs(*out, path, n_folder, &why);
        buf_free(&b);
        if (rc == TGC_OK)
                return TGC_OK;
        tokenizer_free(*out);
        *out = NULL;
        if (strstr(why.msg, path))
                return err_set(e, rc, "%s", why.msg);
        return err_set(e, rc, "%s: %s", path, why.msg);
}

static int open_folder(Tokenizer **out, const char *folder, int limit, Err *e)
{
        static const struct {
                const char *first, *second;
                int kind;
        } known[] = { { "tokenizer.json", NULL, TOK_HF },
                      { "encoder.json", "vocab.bpe", TOK_GPT2 },
                      { "vocab.json", "merges.txt", TOK_GPT2 },
                      { "vocab.txt", NULL, TOK_BERT },
                      { "tokenizer.model", NULL, TOK_TIKTOKEN },
                      { "tokenizer.bin", NULL, TOK_LLAMA2C } };

        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
                char *a, *b;
                int rc;

                if (!is_there(folder, known[i].first) ||
                    (known[i].second && !is_there(folder, known[i].second)))
                        continue;
                a = join(folder, strlen(folder), known[i].first);
                b = known[i].second ? join(folder, strlen(folder), known[i].second) : NULL;
                rc = a && (b || !known[i].second) ? open_files(out, a, b, known[i].kind, limit, e)
                                                  : tok_no_memory(e);
                free(a);
                free(b);
                return rc;
        }
        return err_set(e, TGC_BAD_FILE,
                       "%s: no tokenizer.json, encoder.json + vocab.bpe, vocab.json + merges.txt, "
                       "vocab.txt, tokenizer.model or tokenizer.bin in this folder",
                       folder);
}

int tokenizer_open(Tokenizer **out, const char *path, int vocab_hint, Err *e)
{
        static const struct {
                const char *end;
                int kind;
        } known[] = { { ".json", TOK_HF },
                      { ".bin", TOK_LLAMA2C },
                      { ".tiktoken", TOK_TIKTOKEN },
                      { ".model", TOK_TIKTOKEN },
                      { ".txt", TOK_BERT } };
        struct stat st;

        *out = NULL;
        if (vocab_hint < 0 || vocab_hint > TOK_MAX_VOCAB)
                return err_set(e, TGC_USAGE, "tokenizer: a vocabulary of %d, at most %d",
                               vocab_hint, TOK_MAX_VOCAB);
        if (stat(path, &st) != 0)
                return err_set(e, TGC_BAD_FILE, "%s: %s", path, strerror(errno));
        if (S_ISDIR(st.st_mode))
                return open_folder(out, path, vocab_hint, e);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (text_ends(path, known[i].end))
                        return open_files(out, path, NULL, known[i].kind, vocab_hint, e);
        return err_set(
                e, TGC_BAD_FILE,
                "%s: not a tokenizer; .json, .bin, .tiktoken, .model, .txt or a folder is expected",
                path);
}
