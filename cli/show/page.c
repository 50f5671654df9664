/* page.c: tgc dump --html: writes what is known about a plan as one HTML file.
 *
 * The page is html/page.html with its style, its script and one JSON object inserted.  All data of
 * the plan is in that object (page_json.c), and the script shows it as text. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "../embedded.h"
#include "page.h"

/* Of a name that is n bytes long; NULL: none. */
static const struct EmbeddedFile *page_file(const char *name, size_t n)
{
        for (const struct EmbeddedFile *f = page_files; f->name; f++)
                if (strlen(f->name) == n && !memcmp(f->name, name, n))
                        return f;
        return NULL;
}

/* The file that nodes' lines are of, where it was just read; NULL: a plan was given. */
static const char *model_file(const Loaded *l, const Args *a)
{
        if (l->kind == MODEL_PLAN)
                return NULL;
        return opt_str(a, O_MODEL_FILE) ? opt_str(a, O_MODEL_FILE) : a->pos[0];
}

static void put_manifest(JsonOut *j, const Plan *p)
{
        static const char *const key[] = { "model", "dtype", "mode", "vocab", "ctx", "batch" };
        char word[512];
        for (size_t i = 0; i < sizeof key / sizeof *key; i++)
                if (manifest_word(p, key[i], word, sizeof word))
                        js_str(j, key[i], word);
        if (manifest_word(p, "params", word, sizeof word)) {
                const char *last = strrchr(word, ' ');
                js_num(j, "params", c_strtod(last ? last : word, NULL));
        }
}

static int put_plan(JsonOut *j, const Loaded *l, const Args *a, Err *e)
{
        const char *path = a->pos[0], *slash = strrchr(path, '/');
        int code;
        js_begin(j, NULL, '{');
        js_str(j, "name", slash && slash[1] ? slash + 1 : path);
        put_manifest(j, &l->plan);
        if ((code = page_graphs(j, &l->plan, path, model_file(l, a), e)) ||
            (code = page_plan(j, &l->plan, path, e)))
                return code;
        if (opt_flag(a, O_D_MEASURED) && (code = page_times(j, &l->plan, a, e)))
                return code;
        js_end(j, '}');
        return TGC_OK;
}

/* html/page.html, in which lines of the form @NAME@ stand for a file or for the data. */
static int put_page(FileOut *f, const JsonOut *data, Err *e)
{
        const struct EmbeddedFile *page = page_file("page.html", 9);
        const char *at = page->text, *end = at + page->n;
        int code = TGC_OK;
        while (at < end && !code) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                const size_t n = eol ? (size_t)(eol - at) + 1 : (size_t)(end - at);
                const struct EmbeddedFile *part = *at == '@' ? page_file(at + 1, n - 3) : NULL;
                if (!strncmp(at, "@DATA@\n", n))
                        code = file_out_write(f, data->s, data->n, e);
                else if (part)
                        code = file_out_write(f, part->text, part->n, e);
                else
                        code = file_out_write(f, at, n, e);
                at += n;
        }
        return code;
}

static int write_file(const char *path, const JsonOut *data, Err *e)
{
        FileOut *f;
        int code = file_out_open(&f, path, e);
        if (code)
                return code;
        if (!(code = put_page(f, data, e)))
                return file_out_commit(f, e);
        file_out_abort(f);
        return code;
}

int page_write(const Loaded *l, const Args *a, Err *e)
{
        JsonOut j = { 0 };
        js_begin(&j, NULL, '[');
        int code = put_plan(&j, l, a, e);
        if (!code && a->n_pos > 1) {
                Args other = *a;
                Loaded m;
                other.pos = a->pos + 1;
                other.n_pos = 1;
                if (!(code = load(&m, &other, &(LoadHow) { .no_weights = true }, e))) {
                        code = put_plan(&j, &m, &other, e);
                        loaded_free(&m);
                }
        }
        js_end(&j, ']');
        if (!code && j.lost)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory for the page",
                               opt_str(a, O_D_HTML));
        if (!code)
                code = write_file(opt_str(a, O_D_HTML), &j, e);
        js_free(&j);
        return code;
}
