/* gguf_model.c: implements gguf_model.h.  Calls the compiler, whose Lua interprets the metadata. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../compiler/compiler.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "../../runtime/util/line_reader.h"
#include "../../runtime/weights/checkpoint.h"
#include "../../runtime/weights/gguf.h"
#include "../../runtime/weights/quant_folder.h"
#include "gguf_model.h"

bool is_gguf(const char *path)
{
        char magic[4];
        return file_head(path, magic, sizeof magic) == sizeof magic && !memcmp(magic, "GGUF", 4);
}

bool path_has_blocks(const char *path)
{
        if (file_is_dir(path))
                return folder_is_quantised(path);
        return is_gguf(path) || (text_ends(path, ".bin") && llama2c_has_blocks(path));
}

/* ---- the model ---- */

/* The types in blocks that GGUF files have and kernels read. */
static const char *readable(char text[400])
{
        size_t n = 0;
        *text = 0;
        for (int t = 0; t < CK_N_DTYPES; t++)
                if (ck_block_values(t) > 1 && ck_dtype_is_float(t) && ck_gguf_of_dtype(t) >= 0 &&
                    n < 400)
                        n += (size_t)snprintf(text + n, 400 - n, "%s%s", n ? ", " : "",
                                              ck_dtype_name(t));
        return text;
}

/* A model, in types that are read. */
static int check(const Gguf *g, bool *blocks, Err *e)
{
        char text[400];
        const GgufValue *type = gguf_find(g, "general.type"),
                        *version = gguf_find(g, "general.quantization_version");
        const char *path = gguf_path(g);
        int64_t v = 2;
        size_t n = 0;
        const char *s = gguf_string(type, &n);
        if (type && (!s || n != 5 || memcmp(s, "model", 5)))
                return err_set(e, TGC_BAD_FILE,
                               "%s: general.type is '%.*s'; a model is wanted, and no other file",
                               path, s ? (int)(n < 60 ? n : 60) : 1, s ? s : "?");
        *blocks = false;
        for (int i = 0; i < gguf_n_tensors(g); i++) {
                const CkTensor *t = gguf_tensor(g, i);
                const bool in_blocks = ck_block_values(t->dtype) > 1;
                *blocks |= in_blocks;
                if (in_blocks && !ck_dtype_is_float(t->dtype))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %s is of type %s, which cannot be read yet; "
                                       "these can: %s",
                                       path, t->name, ck_dtype_name(t->dtype), readable(text));
        }
        if (*blocks && version && (!gguf_int(version, &v) || v != 2))
                return err_set(e, TGC_BAD_FILE,
                               "%s: general.quantization_version is %lld, only 2 is known", path,
                               (long long)v);
        return TGC_OK;
}

/* What is in t; NULL where that is nothing. */
static int take(char **out, Text *t, Err *e)
{
        *out = t->n ? strndup(t->s, t->n) : NULL;
        const bool lost = t->n && !*out;
        text_free(t);
        return lost ? err_set(e, TGC_NO_MEMORY, "no memory for a configuration") : TGC_OK;
}

int gguf_model(GgufModel *m, const char *path, bool own, Err *e)
{
        Text config = { 0 }, names = { 0 };
        Gguf *g;
        Diag d = { 0 };
        *m = (GgufModel) { 0 };
        int code = gguf_open(&g, path, e);
        if (code)
                return code;
        if (!(code = check(g, &m->blocks, e)))
                code = gguf_json(g, &m->meta, e);
        gguf_free(g);
        if (!code && DIAG_CATCH(&d)) {
                read_gguf(m->meta, own, &config, &names);
                diag_end(&d);
        } else if (!code) {
                static const char word[] = "error: ";
                const bool is_word = !strncmp(d.msg, word, sizeof word - 1);
                code = err_set(e, d.code ? d.code : TGC_BAD_FILE, "%s: %s", path,
                               d.msg + (is_word ? sizeof word - 1 : 0));
        }
        int kept = take(&m->config, &config, code ? NULL : e),
            also = take(&m->names, &names, code ? NULL : e);
        code = code ? code : kept ? kept : also;
        if (code)
                gguf_model_free(m);
        return code;
}

void gguf_model_free(GgufModel *m)
{
        free(m->config);
        free(m->names);
        free(m->meta);
        *m = (GgufModel) { 0 };
}

/* ---- the tokenizer ---- */

#define KEY "tokenizer.ggml."

/* What parts point to. */
typedef struct Lists {
        TokText *piece, *merge;
        float *score;
        int *kind;
        char *model, *pre;
} Lists;

static void lists_free(Lists *l)
{
        free(l->piece);
        free(l->merge);
        free(l->score);
        free(l->kind);
        free(l->model);
        free(l->pre);
}

static int wrong(const Gguf *g, const char *key, const char *want, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        return err_set(e, TGC_BAD_FILE, "%s: %s is %s%s, not %s", gguf_path(g), key,
                       v ? gguf_type_name(v->type) : "missing",
                       v && v->type == GGUF_ARRAY ? " of another kind or length" : "", want);
}

/* A list of strings; *n its length, 0 where there is none. */
static int take_texts(const Gguf *g, const char *key, TokText **out, int *n, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        *n = 0;
        if (!v)
                return TGC_OK;
        if (v->type != GGUF_ARRAY || v->item != GGUF_STRING || v->n > INT_MAX / 2)
                return wrong(g, key, "a list of strings", e);
        if (!(*out = malloc(((size_t)v->n + 1) * sizeof **out)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", gguf_path(g), key);
        for (GgufEach i = gguf_each(v); gguf_next(&i); ++*n)
                (*out)[*n].p = gguf_string(&i.value, &(*out)[*n].n);
        return TGC_OK;
}

static int take_scores(const Gguf *g, const char *key, float **out, int n, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        if (!v)
                return TGC_OK;
        if (v->type != GGUF_ARRAY || v->item != GGUF_F32 || v->n != (uint64_t)n)
                return wrong(g, key, "a list of numbers (f32), one for each token", e);
        if (!(*out = malloc(((size_t)n + 1) * sizeof **out)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", gguf_path(g), key);
        memcpy(*out, v->at, (size_t)n * sizeof **out);
        return TGC_OK;
}

static int take_kinds(const Gguf *g, const char *key, int **out, int n, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        int64_t x;
        int at = 0;
        if (!v)
                return TGC_OK;
        if (v->type != GGUF_ARRAY || v->n != (uint64_t)n)
                return wrong(g, key, "a list of whole numbers, one for each token", e);
        if (!(*out = malloc(((size_t)n + 1) * sizeof **out)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", gguf_path(g), key);
        for (GgufEach i = gguf_each(v); gguf_next(&i); at++) {
                if (!gguf_int(&i.value, &x) || x < 0 || x > 255)
                        return wrong(g, key, "a list of whole numbers, one for each token", e);
                (*out)[at] = (int)x;
        }
        return TGC_OK;
}

/* *out stays as it is where there is no such key. */
static int take_id(const Gguf *g, const char *key, int n, int *out, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        int64_t x;
        if (!v)
                return TGC_OK;
        if (!gguf_int(v, &x) || x < 0 || x >= n)
                return err_set(e, TGC_BAD_FILE, "%s: %s is the id of none of the %d tokens",
                               gguf_path(g), key, n);
        *out = (int)x;
        return TGC_OK;
}

static int take_flag(const Gguf *g, const char *key, int *out, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        bool yes;
        if (!v)
                return TGC_OK;
        if (!gguf_bool(v, &yes))
                return wrong(g, key, "a bool", e);
        *out = yes;
        return TGC_OK;
}

static int take_word(const Gguf *g, const char *key, char **out, Err *e)
{
        const GgufValue *v = gguf_find(g, key);
        size_t n;
        const char *s = gguf_string(v, &n);
        if (!v)
                return TGC_OK;
        if (!s || n > 200 || memchr(s, 0, n))
                return wrong(g, key, "a word", e);
        if (!(*out = strndup(s, n)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", gguf_path(g));
        return TGC_OK;
}

/* Every id that ends a text or a turn. */
static int take_ends(const Gguf *g, TokParts *p, Err *e)
{
        static const char *const key[] = { KEY "eos_token_id", KEY "eot_token_id",
                                           KEY "eom_token_id" };
        for (int i = 0; i < 3; i++) {
                int id = -1, code = take_id(g, key[i], p->n_piece, &id, e), k = 0;
                if (code)
                        return code;
                while (k < p->n_eos && p->eos[k] != id)
                        k++;
                if (id >= 0 && k == p->n_eos)
                        p->eos[p->n_eos++] = id;
        }
        return TGC_OK;
}

/* A piece with a capital letter, which no text in small letters could become. */
static bool has_capital(const TokParts *p)
{
        for (int i = 0; i < p->n_piece; i++) {
                const TokText *t = &p->piece[i];
                if ((p->kind && p->kind[i] != TOK_NORMAL) || (t->n && *t->p == '['))
                        continue;
                for (size_t k = 0; k < t->n; k++)
                        if (t->p[k] >= 'A' && t->p[k] <= 'Z')
                                return true;
        }
        return false;
}

/* The id of a piece of this text, or id where that is known already. */
static int id_or_piece(const TokParts *p, int id, const char *text)
{
        const size_t n = strlen(text);
        for (int i = 0; i < p->n_piece && id < 0; i++)
                if (p->piece[i].n == n && !memcmp(p->piece[i].p, text, n))
                        return i;
        return id;
}

/* WordPiece: files of before 2025 do not say whether letters become small, nor all special ids. */
static int take_bert(const Gguf *g, TokParts *p, Err *e)
{
        int code, accents = -1;
        if ((code = take_flag(g, KEY "normalizer.lowercase", &p->lowercase, e)) ||
            (code = take_flag(g, KEY "normalizer.strip_accents", &accents, e)) ||
            (p->bos < 0 && (code = take_id(g, KEY "cls_token_id", p->n_piece, &p->bos, e))))
                return code;
        if (p->lowercase < 0)
                p->lowercase = accents >= 0 ? accents : !has_capital(p);
        if (accents >= 0 && accents != p->lowercase)
                return err_set(e, TGC_BAD_FILE,
                               "%s: " KEY "normalizer.strip_accents is %s where letters %s small, "
                               "which is not supported",
                               gguf_path(g), accents ? "true" : "false",
                               p->lowercase ? "become" : "do not become");
        p->bos = id_or_piece(p, p->bos, "[CLS]");
        p->sep = id_or_piece(p, p->sep, "[SEP]");
        p->unk = id_or_piece(p, p->unk, "[UNK]");
        return TGC_OK;
}

static int take_parts(const Gguf *g, Lists *l, TokParts *p, Err *e)
{
        const GgufValue *map = gguf_find(g, KEY "precompiled_charsmap");
        int code = take_word(g, KEY "model", &l->model, e);
        if (code || (code = take_word(g, KEY "pre", &l->pre, e)) ||
            (code = take_texts(g, KEY "tokens", &l->piece, &p->n_piece, e)) ||
            (code = take_texts(g, KEY "merges", &l->merge, &p->n_merge, e)) ||
            (code = take_scores(g, KEY "scores", &l->score, p->n_piece, e)) ||
            (code = take_kinds(g, KEY "token_type", &l->kind, p->n_piece, e)) ||
            (code = take_id(g, KEY "bos_token_id", p->n_piece, &p->bos, e)) ||
            (code = take_id(g, KEY "unknown_token_id", p->n_piece, &p->unk, e)) ||
            (code = take_id(g, KEY "seperator_token_id", p->n_piece, &p->sep, e)) ||
            (code = take_ends(g, p, e)) ||
            (code = take_flag(g, KEY "add_bos_token", &p->add_bos, e)) ||
            (code = take_flag(g, KEY "add_eos_token", &p->add_eos, e)) ||
            (code = take_flag(g, KEY "add_space_prefix", &p->add_space_prefix, e)) ||
            (code = take_flag(g, KEY "remove_extra_whitespaces", &p->remove_extra_whitespaces, e)))
                return code;
        if (map && (map->type != GGUF_ARRAY || (map->item != GGUF_U8 && map->item != GGUF_I8)))
                return wrong(g, KEY "precompiled_charsmap", "a list of bytes", e);
        p->model = l->model;
        p->pre = l->pre;
        p->piece = l->piece;
        p->merge = l->merge;
        p->score = l->score;
        p->kind = l->kind;
        p->charsmap = map ? map->at : NULL;
        p->n_charsmap = map ? (size_t)map->n : 0;
        return l->model && !strcmp(l->model, "bert") ? take_bert(g, p, e) : TGC_OK;
}

int gguf_tokenizer(Tokenizer **tok, const char *path, int vocab, Err *e)
{
        TokParts p = TOK_PARTS_NONE;
        Lists l = { 0 };
        Err why;
        Gguf *g;
        *tok = NULL;
        int code = gguf_open(&g, path, e);
        if (code)
                return code;
        code = take_parts(g, &l, &p, e);
        const bool none = !l.model || !strcmp(l.model, "none") || !strcmp(l.model, "no_vocab");
        if (!code && !none && vocab && p.n_piece > vocab)
                code = err_set(e, TGC_BAD_FILE, "%s: %s has %d, the model's vocabulary is %d", path,
                               KEY "tokens", p.n_piece, vocab);
        if (!code && !none && (code = tok_from_parts(tok, &p, &why)))
                err_set(e, code, "%s: %s", path, why.msg);
        lists_free(&l);
        gguf_free(g);
        return code;
}

/* ---- vectors of texts ---- */

int gguf_sentence(Sentence *s, const char *path, Err *e)
{
        enum { NONE, MEAN, CLS, LAST }; /* llama.cpp's numbers */
        char key[100];
        size_t n = 0;
        int64_t kind = NONE;
        Gguf *g;
        int code = gguf_open(&g, path, e);
        *s = (Sentence) { .pooling = POOL_MEAN, .unit = true };
        if (code)
                return code;
        const char *arch = gguf_string(gguf_find(g, "general.architecture"), &n);
        snprintf(key, sizeof key, "%.*s.pooling_type", (int)(n < 64 ? n : 64), arch ? arch : "");
        const GgufValue *v = gguf_find(g, key);
        if (v && (!gguf_int(v, &kind) || kind < NONE || kind > LAST))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: %s is %lld, which is not supported; 1 (mean), 2 (first token) "
                               "and 3 (last token) are",
                               path, key, (long long)kind);
        if (!code && kind != NONE)
                s->pooling = kind == MEAN ? POOL_MEAN : kind == CLS ? POOL_CLS : POOL_LAST;
        gguf_free(g);
        return code;
}

/* ---- chat ---- */

/* A string of the file; a NUL in it is refused. */
static int take_string(const Gguf *g, const char *key, const GgufValue *v, char **out, Err *e)
{
        size_t n;
        const char *s = gguf_string(v, &n);
        if (!s || memchr(s, 0, n) || !json_utf8_ok(s, n))
                return wrong(g, key, "text in UTF-8", e);
        if (!(*out = strndup(s, n)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", gguf_path(g), key);
        return TGC_OK;
}

static int add_token(const Gguf *g, ChatSource *to, const char *key, const char *name, Err *e)
{
        const GgufValue *tokens = gguf_find(g, KEY "tokens");
        char *text = NULL;
        int id = -1, at = 0;
        int code = take_id(g, key, tokens && tokens->type == GGUF_ARRAY ? (int)tokens->n : 0, &id,
                           e);
        for (GgufEach i = gguf_each(tokens); !code && id >= 0 && gguf_next(&i); at++)
                if (at == id) {
                        if (!(code = take_string(g, KEY "tokens", &i.value, &text, e)))
                                code = chat_add_token(to, name, text, e);
                        break;
                }
        free(text);
        return code;
}

int gguf_chat(ChatSource *to, const char *path, Err *e)
{
        static const char head[] = "tokenizer.chat_template";
        static const char *const token[][2] = { { KEY "bos_token_id", "bos_token" },
                                                { KEY "eos_token_id", "eos_token" },
                                                { KEY "unknown_token_id", "unk_token" },
                                                { KEY "padding_token_id", "pad_token" },
                                                { KEY "seperator_token_id", "sep_token" } };
        Gguf *g;
        int code = gguf_open(&g, path, e);
        if (code)
                return code;
        for (int i = 0; i < gguf_n_keys(g) && !code; i++) {
                const GgufKey *k = gguf_key(g, i);
                const char *rest = k->name + sizeof head - 1;
                char *text = NULL;
                if (strncmp(k->name, head, sizeof head - 1) || (*rest && *rest != '.'))
                        continue;
                if (!(code = take_string(g, k->name, &k->value, &text, e)))
                        code = chat_add_template(to, *rest ? rest + 1 : "default", text, e);
                free(text);
        }
        for (size_t i = 0; i < sizeof token / sizeof *token && !code; i++)
                code = add_token(g, to, token[i][0], token[i][1], e);
        gguf_free(g);
        return code;
}
