/* load_tokenizer.c: finds a model's tokenizer, chat template and encoder settings, for the plan. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/line_reader.h"
#include "../../runtime/weights/sentence.h"
#include "gguf_model.h"
#include "load_impl.h"

int tokenizer_from_text(Tokenizer **tok, const char *text, size_t n, Err *e)
{
        char *blob;
        size_t size;
        int code = tokenizer_char_blob(text, n, &blob, &size, e);
        if (code)
                return code;
        code = tokenizer_new(tok, TOK_CHAR, blob, size, e);
        free(blob);
        return code;
}

static int char_tokenizer(Tokenizer **tok, const char *path, Err *e)
{
        char *text;
        size_t n;
        Err inner;
        int code = file_read_text(path, TOK_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        n = drop_mark(text, n, path, NULL);
        if ((code = tokenizer_from_text(tok, text, n, &inner)))
                err_set(e, code, "%s: %s", path, inner.msg);
        free(text);
        return code;
}

/* tok*.bin beside a llama2.c file, the first by name; "" if there is none. */
static void tok_beside(const char *model, char *out, size_t cap)
{
        const char *slash = strrchr(model, '/');
        char dir[4096], best[256] = "";
        struct dirent *x;
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - model) : 1, slash ? model : ".");
        DIR *d = opendir(*dir ? dir : "/");
        while (d && (x = readdir(d)))
                if (!strncmp(x->d_name, "tok", 3) && text_ends(x->d_name, ".bin") &&
                    (!*best || strcmp(x->d_name, best) < 0))
                        snprintf(best, sizeof best, "%s", x->d_name);
        if (d)
                closedir(d);
        *out = 0;
        if (*best)
                snprintf(out, cap, "%s/%s", dir, best);
}

bool folder_has_tokenizer(const char *dir)
{
        static const char *const name[] = { "tokenizer.json", "tokenizer.model", "tokenizer.bin",
                                            "encoder.json",   "vocab.json",      "vocab.txt" };
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                if (path_has(dir, name[i]))
                        return true;
        return false;
}

int tokenizer_for(Tokenizer **tok, const char *spec, const char *model, ModelKind kind, int vocab,
                  Err *e)
{
        char beside[4400];
        *tok = NULL;
        if (spec && !strcmp(spec, "char"))
                return err_set(e, TGC_USAGE,
                               "--tokenizer char takes the characters of a training text: give "
                               "--tokenizer char:FILE");
        if (spec && !strncmp(spec, "char:", 5))
                return char_tokenizer(tok, spec + 5, e);
        if (spec)
                return tokenizer_open(tok, spec, vocab, e);
        if (kind == MODEL_HF && folder_has_tokenizer(model))
                return tokenizer_open(tok, model, vocab, e);
        if (kind == MODEL_GGUF)
                return gguf_tokenizer(tok, model, vocab, e);
        if (kind != MODEL_LLAMA2C)
                return TGC_OK;
        tok_beside(model, beside, sizeof beside);
        return *beside ? tokenizer_open(tok, beside, vocab, e) : TGC_OK;
}

/* The folder whose chat template goes with the tokenizer; "" where there is none. */
static void chat_folder(const char *spec, const char *model, ModelKind kind, char *dir, size_t cap)
{
        const char *from = spec ? spec : kind == MODEL_HF ? model : "";
        snprintf(dir, cap, "%s", strncmp(from, "char:", 5) ? from : "");
        if (*dir && !file_is_dir(dir)) {
                char *slash = strrchr(dir, '/');
                snprintf(slash ? slash : dir, slash ? cap - (size_t)(slash - dir) : cap, "%s",
                         slash ? "" : ".");
        }
}

/* In place of what it had. */
static int plan_add_chat(Plan *p, const ChatSource *s, Err *e)
{
        char *text;
        size_t n;
        int code = chat_source_pack(s, &text, &n, e);
        plan_remove(p, "chat");
        if (!code && text)
                code = plan_add(p, "chat", text, n, e);
        free(text);
        return code;
}

/* The section `chat`, of what lies beside the tokenizer. */
int plan_add_chat_beside(Plan *p, const char *spec, const char *model, ModelKind kind, Err *e)
{
        ChatSource s = { 0 };
        char dir[4400];
        chat_folder(spec, model, kind, dir, sizeof dir);
        int code = !spec && kind == MODEL_GGUF ? gguf_chat(&s, model, e)
                   : *dir                      ? chat_source_folder(&s, dir, e)
                                               : TGC_OK;
        if (!code)
                code = plan_add_chat(p, &s, e);
        chat_source_free(&s);
        return code;
}

/* The section `embedding` of an encoder, of what lies in its folder or its file. */
int plan_add_embedding(Plan *p, const char *path, ModelKind kind, Err *e)
{
        Sentence s;
        char *text, word[32];
        size_t n;
        int code;
        if (!manifest_word(p, "hidden", word, sizeof word))
                return TGC_OK;
        code = kind == MODEL_GGUF ? gguf_sentence(&s, path, e) : sentence_folder(&s, path, e);
        if (code)
                return code;
        if (!(code = sentence_pack(&s, &text, &n, e))) {
                code = plan_add(p, "embedding", text, n, e);
                free(text);
        }
        sentence_free(&s);
        return code;
}

int plan_add_tokenizer(Plan *p, const Tokenizer *tok, Err *e)
{
        void *blob;
        size_t n;
        int code = tokenizer_pack(tok, &blob, &n, e);
        if (code)
                return code;
        code = plan_add(p, "tokenizer", blob, n, e);
        free(blob);
        return code;
}
