/* model_files.c: the files of a Hugging Face folder that a plan keeps as they are, in sections
 * file.NAME, so that `tgc export` can write the folder again. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/weights/sentence.h"
#include "open.h"

enum { MOST_BYTES = 256 << 20 };

/* of the model, the first of its graph; the rest is of the tokenizer */
static const char *const model_file[] = { "config.json", "generation_config.json" },
                         *const tokenizer_file[] = { "tokenizer.json",
                                                     "tokenizer.model",
                                                     "vocab.json",
                                                     "vocab.txt",
                                                     "merges.txt",
                                                     "encoder.json",
                                                     "vocab.bpe",
                                                     "tokenizer.bin",
                                                     "tokenizer_config.json",
                                                     "added_tokens.json",
                                                     "chat_template.jinja",
                                                     "special_tokens_map.json" };
enum { N_MODEL = 2, N_TOKENIZER = sizeof tokenizer_file / sizeof *tokenizer_file };

static void section_name(char out[32], const char *name) { snprintf(out, 32, "file.%s", name); }

static int keep(Plan *p, const char *dir, const char *name, Err *e)
{
        char *path = file_join(dir, name), *text, section[32];
        size_t n;
        int code = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        section_name(section, name);
        if (path && file_exists(path) && !(code = file_read_text(path, MOST_BYTES, &text, &n, e))) {
                code = plan_add(p, section, text, n, e);
                free(text);
        }
        free(path);
        return code;
}

int model_files_keep(Plan *p, const char *dir, bool model, bool tokenizer, Err *e)
{
        int code = TGC_OK;
        for (int i = model ? 0 : 1; i < N_MODEL && !code; i++)
                code = keep(p, dir, model_file[i], e);
        for (int i = 0; i < N_TOKENIZER && tokenizer && !code; i++)
                code = keep(p, dir, tokenizer_file[i], e);
        return code;
}

void model_files_drop_tokenizer(Plan *p)
{
        char section[32];
        for (int i = 0; i < N_TOKENIZER; i++) {
                section_name(section, tokenizer_file[i]);
                plan_remove(p, section);
        }
}

/* ---- out again ---- */

/* The value of a member of the outermost object, a string or null: where it is; 0: there is none.
 * The text has been read as JSON before.  It is changed as text, since 1.0 and 1 are two things to
 * Python. */
static size_t member(const char *s, size_t n, const char *key, size_t *end)
{
        int depth = 0;
        for (size_t i = 0; i < n; i++) {
                if (s[i] == '{' || s[i] == '[')
                        depth++;
                if (s[i] == '}' || s[i] == ']')
                        depth--;
                if (s[i] != '"')
                        continue;
                size_t from = i + 1;
                for (i++; i < n && s[i] != '"'; i++)
                        i += s[i] == '\\';
                size_t at = i + 1;
                while (at < n && strchr(" \t\r\n", s[at]))
                        at++;
                if (depth != 1 || at >= n || s[at] != ':' || i - from != strlen(key) ||
                    memcmp(s + from, key, i - from))
                        continue;
                for (at++; at < n && strchr(" \t\r\n", s[at]);)
                        at++;
                for (*end = at + 1; *end < n && !strchr(",}\n", s[*end]);)
                        ++*end;
                return at;
        }
        return 0;
}

static const char *type_word(const char *dtype)
{
        return !strcmp(dtype, "f32") ? "float32" : !strcmp(dtype, "bf16") ? "bfloat16" : "float16";
}

/* Behind the value that begins at s[i]. */
static size_t value_end(const char *s, size_t n, size_t i)
{
        for (int depth = 0; i < n; i++) {
                if (s[i] == '"')
                        for (i++; i < n && s[i] != '"'; i++)
                                i += s[i] == '\\';
                else if (s[i] == '{' || s[i] == '[')
                        depth++;
                else if (s[i] == '}' || s[i] == ']')
                        if (!depth--)
                                return i;
                if (!depth && i + 1 < n && strchr(",}]", s[i + 1]))
                        return i + 1;
        }
        return n;
}

/* Takes a member out of the outermost object, with the comma that parts it from another; the
 * length that is left. */
static size_t without(char *s, size_t n, const char *key)
{
        size_t end, at = member(s, n, key, &end);
        if (!at)
                return n;
        end = value_end(s, n, at);
        for (at--; s[at] != ':';)
                at--;
        while (s[at] != '"')
                at--;
        at -= strlen(key) + 1;
        while (end < n && strchr(" \t\r\n", s[end]))
                end++;
        if (end < n && s[end] == ',')
                end++;
        else
                while (at && s[at] != ',' && s[at] != '{')
                        at--;
        if (s[at] == '{')
                at++;
        memmove(s + at, s + end, n - end);
        return n - (end - at);
}

/* The file's type of weights is what config.json says they have: who loads them goes by it.  They
 * are not quantised any more. */
static int put_config(const char *dir, const Section *s, const char *word, Err *e)
{
        char *text = malloc(s->size + 1);
        if (!text)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for config.json", dir);
        memcpy(text, s->data, s->size);
        const size_t size = without(text, s->size, "quantization_config");
        const char *brace = memchr(text, '{', size);
        size_t end = 0, at = member(text, size, "dtype", &end), n = 0;
        char *out = NULL;
        FILE *f = brace ? open_memstream(&out, &n) : NULL;
        if (!at)
                at = member(text, size, "torch_dtype", &end);
        if (f && at) {
                fwrite(text, 1, at, f);
                fprintf(f, "\"%s\"", word);
                fwrite(text + end, 1, size - end, f);
        } else if (f) {
                size_t head = (size_t)(brace - text) + 1;
                fwrite(text, 1, head, f);
                fprintf(f, "\n  \"torch_dtype\": \"%s\",", word);
                fwrite(brace + 1, 1, size - head, f);
        }
        const bool whole = f && !ferror(f);
        int code = f && !fclose(f) && whole && out
                           ? file_write_in(dir, "config.json", out, n, e)
                           : err_set(e, TGC_NO_MEMORY, "%s: no memory for config.json", dir);
        free(out);
        free(text);
        return code;
}

/* A vocabulary of characters, as the package tokenizers reads it: merges of none. */
static int put_characters(const char *dir, const Tokenizer *tok, Err *e)
{
        static const char head[] =
                "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
                "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
                "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":";
        cJSON *o = cJSON_CreateObject();
        bool whole = o;
        for (int id = 0; id < tokenizer_vocab(tok) && whole; id++) {
                TokStream at = { 0 };
                char name[16];
                size_t n;
                const char *s = tokenizer_next(tok, &at, id, &n);
                snprintf(name, sizeof name, "%.*s", (int)n, s);
                if (n == 1 && !*s) {
                        cJSON_Delete(o);
                        return err_set(
                                e, TGC_USAGE,
                                "export: the vocabulary has the character NUL, which "
                                "tokenizer.json cannot hold here; --weights-only does without");
                }
                whole = cJSON_AddNumberToObject(o, name, id) != NULL;
        }
        char *vocab = whole ? cJSON_PrintUnformatted(o) : NULL, *text = NULL;
        cJSON_Delete(o);
        const size_t room = vocab ? sizeof head + strlen(vocab) + 20 : 0;
        int n = vocab && (text = malloc(room))
                        ? snprintf(text, room, "%s%s,\"merges\":[]}}\n", head, vocab)
                        : -1;
        int code = n >= 0 ? file_write_in(dir, "tokenizer.json", text, (size_t)n, e)
                          : err_set(e, TGC_NO_MEMORY, "%s: no memory for tokenizer.json", dir);
        free(text);
        free(vocab);
        return code;
}

/* A WordPiece vocabulary that was no file of a folder. */
static int put_vocab_txt(const char *dir, const Tokenizer *tok, bool *done, Err *e)
{
        char *settings, *text;
        size_t n;
        int code = tokenizer_vocab_txt(tok, &settings, &text, &n, e);
        if (!code && (*done = text != NULL) &&
            !(code = file_write_in(dir, "tokenizer_config.json", settings, strlen(settings), e)))
                code = file_write_in(dir, "vocab.txt", text, n, e);
        free(settings);
        free(text);
        return code;
}

/* A byte-level BPE that was no file of a folder, as GGUF files have it, and its chat template. */
static int put_tokenizer_json(const Plan *p, const char *dir, const Tokenizer *tok, bool *done,
                              Err *e)
{
        const Section *s = plan_find(p, "chat");
        const char *template = NULL;
        char *json = NULL, *settings = NULL;
        ChatSource chat = { 0 };
        int code = s ? chat_source_unpack(&chat, s->data, s->size, dir, e) : TGC_OK;
        for (int i = 0; i < chat.n_templates && !code; i++)
                if (!template || !strcmp(chat.template[i].name, "default"))
                        template = chat.template[i].text;
        if (!code)
                code = tokenizer_json(tok, template, &json, &settings, e);
        if (!code && (*done = json != NULL) &&
            !(code = file_write_in(dir, "tokenizer.json", json, strlen(json), e)))
                code = file_write_in(dir, "tokenizer_config.json", settings, strlen(settings), e);
        chat_source_free(&chat);
        free(json);
        free(settings);
        return code;
}

/* How an encoder's texts get their vectors. */
static int put_sentence(const Plan *p, const char *dir, Err *e)
{
        const Section *x = plan_find(p, "embedding");
        char width[32];
        Sentence s;
        if (!x || !manifest_word(p, "hidden", width, sizeof width))
                return TGC_OK;
        int code = sentence_unpack(&s, x->data, x->size, e);
        if (code)
                return code;
        char *sub = file_join(dir, "1_Pooling");
        code = sub ? make_folder(sub, e) : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code)
                code = sentence_write(&s, dir, atoi(width), e);
        free(sub);
        sentence_free(&s);
        return code;
}

int model_files_write(const Loaded *l, const char *dir, const char *dtype, bool own,
                      char model[200], bool *tokenizer, Err *e)
{
        const Plan *p = &l->plan;
        const Section *config = plan_find(p, "file.config.json");
        char section[32];
        *model = 0;
        *tokenizer = false;
        int code = own      ? TGC_OK
                   : config ? put_config(dir, config, type_word(dtype), e)
                            : model_source_write(p, dir, type_word(dtype), model, e);
        for (int i = 1; i < N_MODEL + N_TOKENIZER && !code; i++) {
                const char *name = i < N_MODEL ? model_file[i] : tokenizer_file[i - N_MODEL];
                section_name(section, name);
                const Section *s = plan_find(p, section);
                if (!s)
                        continue;
                code = file_write_in(dir, name, s->data, s->size, e);
                *tokenizer |= i >= N_MODEL;
        }
        if (!code && !*tokenizer && l->tok && tokenizer_kind(l->tok) == TOK_CHAR)
                *tokenizer = !(code = put_characters(dir, l->tok, e));
        else if (!code && !*tokenizer && l->tok)
                code = put_vocab_txt(dir, l->tok, tokenizer, e);
        if (!code && !*tokenizer && l->tok)
                code = put_tokenizer_json(p, dir, l->tok, tokenizer, e);
        return code ? code : put_sentence(p, dir, e);
}
