/* source.c: records the files and parameters that made a Lua model's graph, as JSON.
 *
 *      {"params": {"n_layer": 12, "tied": true, ...},
 *       "files": [{"name": "my.lua", "text": "..."}, ...]}
 *
 * The model's own file comes first.  A file that comes with tgc is included only if a node's line
 * is in it; the others are the same in every tgc that can read the model. */
#include <math.h>
#include <string.h>
#include "../../runtime/util/json.h"
#include "read.h"

static bool is_named(const Graph *g, const char *name)
{
        char file[LOC_NAME];
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Loc loc = NODE(g, r)->loc;
                if (loc.line && loc.file && !strcmp(loc_name(loc, file), name))
                        return true;
        }
        return false;
}

static bool is_text(const ModelSource *s)
{
        return !memchr(s->text, 0, s->n) && json_utf8_ok(s->text, s->n);
}

static void put_file(const ModelSource *s, const char *sep, Text *out)
{
        text_add(out, "%s\n  {\"name\": ", sep);
        json_put_string(out, s->name);
        text_add(out, ", \"text\": ");
        json_put_string(out, s->text);
        text_add(out, "}");
}

static bool is_json(const ModelParam *p)
{
        return json_utf8_ok(p->name, strlen(p->name)) && isfinite(p->number) &&
               (!p->word || json_utf8_ok(p->word, strlen(p->word)));
}

static void put_param(const ModelParam *p, const char *sep, Text *out)
{
        char num[32];
        text_add(out, "%s", sep);
        json_put_string(out, p->name);
        switch (p->kind) {
        case PARAM_BOOLEAN: text_add(out, ": %s", p->number ? "true" : "false"); break;
        case PARAM_INTEGER: text_add(out, ": %.0f", p->number); break;
        case PARAM_REAL:
                num_text(p->number, num);
                text_add(out, ": %s", num);
                break;
        case PARAM_WORD: text_add(out, ": "); json_put_string(out, p->word);
        }
}

void write_source(const Model *m, Text *out)
{
        if (!m->n_source || !is_text(&m->source[m->main_source]))
                return;
        for (int i = 0; i < m->n_params; i++)
                if (!is_json(&m->params[i]))
                        return;
        text_add(out, "{\"params\": {");
        for (int i = 0; i < m->n_params; i++)
                put_param(&m->params[i], i ? ", " : "", out);
        text_add(out, "},\n \"files\": [");
        put_file(&m->source[m->main_source], "", out);
        for (int i = 0; i < m->n_source; i++) {
                const ModelSource *s = &m->source[i];
                if (i != m->main_source && is_text(s) && (!s->ours || is_named(m->graph, s->name)))
                        put_file(s, ",", out);
        }
        text_add(out, "\n ]}\n");
}
