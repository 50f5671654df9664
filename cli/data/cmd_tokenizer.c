/* cmd_tokenizer.c: tgc tokenizer train */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../load/open.h"

/* One text; standard input where path is -. */
static int add_text(TokTrainer *t, const char *path, const Progress *talk, Err *e)
{
        FileMap m = { 0 };
        char *text;
        size_t n;
        int code;

        if (!strcmp(path, "-")) {
                if ((code = read_stdin(&text, &n, e)))
                        return code;
                n = drop_mark(text, n, "standard input", talk);
                code = tok_trainer_add(t, text, n, e);
                free(text);
                return code;
        }
        if ((code = file_map(&m, path, e)))
                return code;
        const size_t mark = text_mark(m.data, m.size);
        if (mark)
                say(talk, "%s: begins with a byte order mark (U+FEFF), which is left out\n", path);
        if (!(code = text_is_utf8(m.data, m.size, path, e)))
                code = tok_trainer_add(t, (const char *)m.data + mark, m.size - mark, e);
        file_unmap(&m);
        return code;
}

static int say_result(const Args *a, const char *path, TokTrained r, double took, Err *e)
{
        Progress talk = progress_new(a);
        int asked = opt_int(a, O_VOCAB_SIZE);
        cJSON *o;

        if (!opt_flag(a, O_JSON)) {
                say(&talk, "%s: %d tokens, %d merges from %.1f MB of text, %zu words, %.1f s\n",
                    path, r.vocab, r.merges, (double)r.bytes / 1e6, r.words, took);
                if (r.vocab < asked)
                        say(&talk,
                            "%s: %d tokens were asked for, but in this text no two "
                            "tokens stand side by side any more\n",
                            path, asked);
                return TGC_OK;
        }
        o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "path", path);
        cJSON_AddNumberToObject(o, "vocab_size", r.vocab);
        cJSON_AddNumberToObject(o, "merges", r.merges);
        cJSON_AddNumberToObject(o, "text_bytes", (double)r.bytes);
        cJSON_AddNumberToObject(o, "words", (double)r.words);
        cJSON_AddNumberToObject(o, "seconds", took);
        return json_print(o, e);
}

static int train(const Args *a, TokTrainer *t, const char *path, Err *e)
{
        const Progress talk = progress_new(a);
        double begun = clock_s();
        TokTrained result;
        char *json = NULL;
        size_t n;
        int code = TGC_OK;

        for (int i = 1; i < a->n_pos && !code; i++)
                code = add_text(t, a->pos[i], &talk, e);
        if (!code)
                code = tok_trainer_run(t, &json, &n, &result, e);
        if (!code)
                code = file_write_atomic(path, json, n, e);
        free(json);
        return code ? code : say_result(a, path, result, clock_s() - begun, e);
}

int cmd_tokenizer(const Args *a, Err *e)
{
        const char *out = opt_str(a, O_OUT);
        const OptionValue *special = &a->v[O_SPECIAL];
        char *inside = NULL;
        TokTrainer *t = NULL;
        int code;

        if (strcmp(a->pos[0], "train"))
                return err_set(
                        e, TGC_USAGE,
                        "tokenizer: '%.60s' is not known; tgc tokenizer train TEXT... -o FILE",
                        a->pos[0]);
        if (a->n_pos < 2)
                return err_set(
                        e, TGC_USAGE,
                        "tokenizer train: TEXT is missing: tgc tokenizer train TEXT... -o FILE");
        if (!out)
                return err_set(e, TGC_USAGE, "tokenizer train: -o tokenizer.json is missing");
        if (file_is_dir(out) && !(out = inside = file_join(out, "tokenizer.json")))
                return err_set(e, TGC_NO_MEMORY, "no memory for a path");
        code = tok_trainer_new(&t, opt_int(a, O_VOCAB_SIZE), special->list, special->n, e);
        if (!code)
                code = train(a, t, out, e);
        tok_trainer_free(t);
        free(inside);
        return code;
}
