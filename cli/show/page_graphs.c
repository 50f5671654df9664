/* page_graphs.c: the graphs of a plan, for its page.  Includes the compiler's headers, not the
 * runtime's. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include "../../compiler/compiler.h"
#include "../../runtime/util/file.h"
#include "page.h"

/* The file of nodes whose line in the model is not known. */
static const char own[] = "ir";

/* [name, op, type, places of inputs from 0, group, 1 a leaf or 2 a view or 0, file, line] */
static void put_node(JsonOut *j, const Node *n)
{
        char type[256], file[LOC_NAME];
        js_begin(j, NULL, '[');
        js_str(j, NULL, n->name);
        js_str(j, NULL, op_info[n->op].text);
        js_str(j, NULL, type_text(&n->type, type));
        js_begin(j, NULL, '[');
        for (int i = 0; i < n->n_in; i++)
                js_num(j, NULL, n->in[i] - 1);
        js_end(j, ']');
        js_num(j, NULL, n->group);
        js_num(j, NULL,
               op_info[n->op].cls == CLASS_LEAF   ? 1
               : op_info[n->op].cls == CLASS_VIEW ? 2
                                                  : 0);
        if (n->loc.line && n->loc.file && strcmp(n->loc.file, own)) {
                js_str(j, NULL, loc_name(n->loc, file));
                js_num(j, NULL, n->loc.line);
        }
        js_end(j, ']');
}

static void put_graph(JsonOut *j, const Graph *g)
{
        js_begin(j, NULL, '{');
        js_str(j, "name", g->name);
        js_begin(j, "nodes", '[');
        for (Ref r = 1; r < g->n_nodes; r++)
                put_node(j, NODE(g, r));
        js_end(j, ']');
        js_end(j, '}');
}

/* The end of the graph that begins at s: behind a brace that stands alone. */
static char *graph_end(char *s)
{
        char *end = strstr(s, "\n}\n");
        return end ? end + 3 : s + strlen(s);
}

/* ---- the files that nodes' lines are of ---- */

enum { MOST_FILES = 64, MOST_TEXT = 8 << 20 };
typedef struct Files {
        char name[MOST_FILES][LOC_NAME];
        int n;
} Files;

static void find_files(const Graph *g, Files *f)
{
        char name[LOC_NAME];
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Loc loc = NODE(g, r)->loc;
                int i = 0;
                if (!loc.line || !loc.file || !strcmp(loc.file, own))
                        continue;
                loc_name(loc, name);
                while (i < f->n && strcmp(f->name[i], name))
                        i++;
                if (i == f->n && f->n < MOST_FILES)
                        strcpy(f->name[f->n++], name);
        }
}

/* The plan's text of it; or, where the model was just read, its own file, one beside it, or one
 * inside tgc; false: there is no such text. */
static bool put_file(JsonOut *j, const cJSON *source, const char *name, const char *model)
{
        const char *kept = model_source_find(source, name),
                   *slash = model ? strrchr(model, '/') : NULL;
        char path[4400], *text = NULL;
        size_t n = 0;
        if (kept)
                js_str(j, "text", kept);
        if (kept || !model)
                return kept;
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - model) + 1 : 0, model, name);
        if (file_exists(path) && !file_is_dir(path))
                file_read_text(path, MOST_TEXT, &text, &n, &(Err) { 0 });
        for (const ModelFile *f = model_files; f->name && !text; f++)
                if (!strcmp(f->name, name)) {
                        js_strn(j, "text", f->text, f->n);
                        return true;
                }
        if (text)
                js_strn(j, "text", text, n);
        free(text);
        return text != NULL;
}

static void put_files(JsonOut *j, const Files *f, const cJSON *source, const char *model)
{
        js_begin(j, "files", '[');
        for (int i = 0; i < f->n; i++) {
                js_begin(j, NULL, '{');
                js_str(j, "name", f->name[i]);
                put_file(j, source, f->name[i], model);
                js_end(j, '}');
        }
        js_end(j, ']');
}

int page_graphs(JsonOut *j, const Plan *p, const char *path, const char *model, Err *e)
{
        const Section *s = plan_find(p, "ir");
        Diag d = { 0 };
        Graph *volatile g = NULL;
        Files *volatile files = calloc(1, sizeof *files);
        char *volatile text = s ? malloc(s->size + 1) : NULL;
        cJSON *source;
        int code;
        if (!text || !files) {
                free(text);
                free(files);
                return s ? err_set(e, TGC_NO_MEMORY, "%s: no memory for its graphs", path)
                         : err_set(e, TGC_BAD_FILE,
                                   "%s: the plan has no section ir: compile the model again", path);
        }
        memcpy(text, s->data, s->size);
        text[s->size] = 0;
        if (!DIAG_CATCH(&d)) {
                if (g)
                        graph_free(g);
                free(text);
                free(files);
                return err_set(e, d.code ? d.code : TGC_BAD_FILE, "%s: %s", path, d.msg);
        }
        js_begin(j, "graphs", '[');
        for (char *at = text; *at;) {
                char *end = graph_end(at), keep = *end;
                *end = 0;
                g = graph_parse(at, own);
                *end = keep;
                put_graph(j, g);
                find_files(g, files);
                graph_free(g);
                g = NULL;
                at = end;
        }
        js_end(j, ']');
        diag_end(&d);
        if (!(code = model_source(p, &source, e)))
                put_files(j, files, source, model);
        cJSON_Delete(source);
        free(text);
        free(files);
        return code;
}
