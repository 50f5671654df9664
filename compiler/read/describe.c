/* describe.c: prints the language of models and the built-in models, as text or Markdown.
 *
 * Nothing is typed twice: ops come from ir/ops.def with the words of language.def, blocks from the
 * comments of models/blocks.lua, models and their defaults from the Lua files themselves. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include "read.h"

enum { WIDTH = 100, TEXT_COLUMN = 36, MOST_PARAMS = 256 };

typedef struct Out {
        Text *t;
        bool markdown;
} Out;

/* Pieces ------------------------------------------------------------------- */

static void heading(const Out *o, int level, const char *s)
{
        if (o->markdown)
                text_add(o->t, "\n%.*s %s\n\n", level, "####", s);
        else
                text_add(o->t, "%s%s%s\n", o->t->n ? "\n" : "", level > 2 ? "  " : "", s);
}

static void table_head(const Out *o, const char *left, const char *right)
{
        if (o->markdown)
                text_add(o->t, "| %s | %s |\n|---|---|\n", left, right);
}

/* Words from column `at` on; further lines begin there. */
static void wrap(const Out *o, const char *s, int at)
{
        int column = at, blanks = 0;
        for (int n; *s; s += n, blanks = (int)strspn(s, " "), s += blanks) {
                n = (int)strcspn(s, " ");
                if (column > at && column + blanks + n > WIDTH) {
                        text_add(o->t, "\n%*s", at, "");
                        column = at;
                        blanks = 0;
                }
                text_add(o->t, "%*s%.*s", blanks, "", n, s);
                column += blanks + n;
        }
        text_add(o->t, "\n");
}

static void cell(const Out *o, const char *s)
{
        for (; *s; s++)
                text_add(o->t, *s == '|' ? "\\%c" : "%c", *s);
}

static void row(const Out *o, const char *left, const char *right)
{
        if (o->markdown) {
                text_add(o->t, "| `");
                cell(o, left);
                text_add(o->t, "` | ");
                cell(o, right);
                text_add(o->t, " |\n");
                return;
        }
        int n = (int)strlen(left) + 4;
        text_add(o->t, "    %s", left);
        if (!*right) {
                text_add(o->t, "\n");
                return;
        }
        if (n + 2 > TEXT_COLUMN) {
                text_add(o->t, "\n");
                n = 0;
        }
        text_add(o->t, "%*s", TEXT_COLUMN - n, "");
        wrap(o, right, TEXT_COLUMN);
}

/* Ops ------------------------------------------------------------------------ */

static const struct {
        Op op;
        const char *inputs, *text;
} op_text[] = {
#define OP_TEXT(op, inputs, text) { OP_##op, inputs, text },
#include "language.def"
};
enum { N_OP_TEXT = sizeof op_text / sizeof *op_text };

static bool is_inner(const char *field)
{
        static const char *const inner[] = {
#define INNER(attribute) #attribute,
#include "language.def"
        };
        for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
                if (!strcmp(field, inner[i]))
                        return true;
        return false;
}

/* " {axis, start, len, step=1}": what is not 0 unless said has its value. */
static void attributes(Op op, Text *t)
{
        const char *sep = " {";
        char num[32];
        for (const AttrField *f = attr_fields[op_info[op].attr]; f->name; f++) {
                if (is_inner(f->name))
                        continue;
                text_add(t, "%s%s", sep, f->name);
                if (f->dflt != 0) {
                        num_text(f->dflt, num);
                        text_add(t, "=%s", num);
                }
                sep = ", ";
        }
        text_add(t, *sep == ',' ? "}" : "");
}

static void describe_op(const Out *o, int i)
{
        const OpInfo *x = &op_info[op_text[i].op];
        Text left = { 0 }, right = { 0 };
        text_add(&left, "%s(%s)", x->text, op_text[i].inputs);
        attributes(x->op, &left);
        text_add(&right, "%s%s", op_text[i].text,
                 x->grad == op_info[OP_INPUT].grad ? "; no gradient" : "");
        row(o, left.s, right.s);
        text_free(&left);
        text_free(&right);
}

static void describe_ops(const Out *o)
{
        static const char *const title[N_CLASS] = {
                [CLASS_MAP] = "elementwise",
                [CLASS_ROW] = "over the last axis",
                [CLASS_COL] = "over leading axes",
                [CLASS_MATMUL] = "GEMM",
                [CLASS_ATTENTION] = "attention",
                [CLASS_GATHER] = "lookup",
                [CLASS_VIEW] = "views",
                [CLASS_ROUTE] = "choosing and sorting",
        };
        heading(o, 2, "Ops");
        wrap(o,
             "op.NAME(inputs..., {attributes}), or x:NAME(more inputs..., {attributes}).  A "
             "number where an elementwise op takes a tensor is a constant; elsewhere it is the "
             "first attribute: x:rmsnorm(1e-5), x:topk(2).  What is not given is 0, or what "
             "stands behind the =.",
             0);
        for (int c = 1; c < N_CLASS; c++) {
                if (!title[c])
                        continue;
                heading(o, 3, title[c]);
                table_head(o, "op", "what it computes");
                for (int i = 0; i < N_OP_TEXT; i++)
                        if ((int)op_info[op_text[i].op].cls == c && *op_info[op_text[i].op].inputs)
                                describe_op(o, i);
        }
}

bool describe_knows(Op op)
{
        for (int i = 0; i < N_OP_TEXT; i++)
                if (op_text[i].op == op)
                        return true;
        return false;
}

/* Blocks --------------------------------------------------------------------- */

static const ModelFile *file_named(const char *name)
{
        for (const ModelFile *f = model_files; f->name; f++)
                if (!strcmp(f->name, name))
                        return f;
        return NULL;
}

static int line_length(const char *s) { return (int)strcspn(s, "\n"); }
static const char *next_line(const char *s)
{
        return s + line_length(s) + (s[line_length(s)] == '\n');
}

/* "-- Weight maps -----" */
static bool is_title(const char *s)
{
        return !strncmp(s, "-- ", 3) && line_length(s) > 20 &&
               !strncmp(s + line_length(s) - 8, "--------", 8);
}

/* Comment lines [from, to) as one text. */
static void comment(const char *from, const char *to, Text *t)
{
        for (; from < to; from = next_line(from)) {
                const char *s = from + 2 + strspn(from + 2, " ");
                text_add(t, "%s%.*s", t->n ? " " : "", (int)(from + line_length(from) - s), s);
        }
}

static void describe_blocks(const Out *o)
{
        const ModelFile *f = file_named("blocks.lua");
        const char *begin = NULL, *s, *title = NULL;
        heading(o, 2, "Blocks: local b = require \"blocks\"");
        if (o->markdown)
                text_add(o->t, "%s", "Of `models/blocks.lua`, with its comments.\n");
        for (s = f ? f->text : ""; *s; s = next_line(s)) {
                if (is_title(s)) {
                        title = s + 3;
                        begin = NULL;
                } else if (!strncmp(s, "--", 2)) {
                        begin = begin ? begin : s;
                } else {
                        int n = (int)strcspn(s, ")\n");
                        if (!strncmp(s, "function b.", 11) && s[n] == ')') {
                                Text left = { 0 }, right = { 0 };
                                if (title) {
                                        Text h = { 0 };
                                        text_add(&h, "%.*s", (int)strcspn(title, "-") - 1, title);
                                        heading(o, 3, h.s);
                                        table_head(o, "block", "what it makes");
                                        text_free(&h);
                                        title = NULL;
                                }
                                text_add(&left, "%.*s", n + 1 - 9, s + 9);
                                text_add(&right, "%s", "");
                                if (begin)
                                        comment(begin, s, &right);
                                row(o, left.s, right.s ? right.s : "");
                                text_free(&left);
                                text_free(&right);
                        }
                        begin = NULL;
                }
        }
}

/* The language ----------------------------------------------------------------- */

void describe_language(Text *out, bool markdown)
{
        Out o = { out, markdown };
        heading(&o, 2, "The file");
        wrap(&o, "A model is a Lua file that returns a table.", 0);
        text_add(out, "\n");
        table_head(&o, "field", "what it is");
#define MODULE(name, text) row(&o, #name, text);
#include "language.def"
        heading(&o, 3, "what graph returns");
        table_head(&o, "output", "what it is");
#define OUTPUT(name, text) row(&o, #name, text);
#include "language.def"
        heading(&o, 2, "Words");
        table_head(&o, "word", "what it means");
#define GLOBAL(name, usage, text) row(&o, usage, text);
#include "language.def"
        heading(&o, 3, "options of param");
        table_head(&o, "option", "what it means");
#define PARAM_OPTION(name, text) row(&o, #name, text);
#include "language.def"
        heading(&o, 3, "what is left of Lua's own libraries");
        table_head(&o, "library", "functions");
#define LUA(library, names) row(&o, *library ? library : "Lua", names);
#include "language.def"
        heading(&o, 2, "Tensors");
        table_head(&o, "tensor", "what it is");
#define OPERATOR(usage, text) row(&o, usage, text);
#include "language.def"
#define FIELD(name, text) row(&o, "x." #name, text);
#include "language.def"
#define METHOD(name, usage, text) row(&o, usage, text);
#include "language.def"
        describe_ops(&o);
        heading(&o, 2, "Weight maps: the text of from");
        table_head(&o, "part", "what it means");
#define MAP_PART(usage, text) row(&o, usage, text);
#include "language.def"
        describe_blocks(&o);
}

/* Models ------------------------------------------------------------------------- */

typedef struct Param {
        const char *name, *value, *at;
} Param;

typedef struct Models {
        Out o;
        const char *only;
        int n;
} Models;

static bool is_word(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
}

/* Where the text says "NAME = "; NULL: nowhere. */
static const char *assigned(const char *text, const char *name)
{
        size_t n = strlen(name);
        for (const char *s = text; (s = strstr(s, name)); s++)
                if ((s == text || !is_word(s[-1])) && !strncmp(s + n, " = ", 3))
                        return s;
        return NULL;
}

/* The comment behind "NAME = ..." where that is the last on its line, and the lines below it that
 * are comments in its column. */
static bool param_comment(const char *text, const char *at, Text *t)
{
        const char *end = at + line_length(at), *dashes = strstr(at, "--"),
                   *other = strstr(at + 1, " = ");
        if (!dashes || dashes >= end)
                return false;
        other = other && other < dashes ? strstr(other + 1, " = ") : NULL;
        if (other && other < dashes)
                return false;
        const char *line = at;
        while (line > text && line[-1] != '\n')
                line--;
        const size_t column = (size_t)(dashes - line);
        while (dashes) {
                dashes += 2 + strspn(dashes + 2, " ");
                text_add(t, "%s%.*s", t->n ? " " : "", (int)(end - dashes), dashes);
                line = next_line(end);
                end = line + line_length(line);
                dashes = strspn(line, " ") == column && !strncmp(line + column, "--", 2)
                                 ? line + column
                                 : NULL;
        }
        return true;
}

static int by_place(const void *a, const void *b)
{
        const Param *x = a, *y = b;
        if (!x->at != !y->at)
                return x->at ? -1 : 1;
        if (x->at != y->at)
                return x->at < y->at ? -1 : 1;
        return strcmp(x->name, y->name);
}

/* The head of the file, without its name; to is_title or the first line of code. */
static void head_comment(const ModelFile *f, Text *t)
{
        const char *s = f->text, *end = s;
        while (!strncmp(end, "-- ", 3))
                end = next_line(end);
        comment(s, end, t);
        size_t n = strlen(f->name);
        if (t->n > n + 2 && !strncmp(t->s, f->name, n))
                memmove(t->s, t->s + n + 2, strlen(t->s + n + 2) + 1);
}

/* The model_types that families.lua gives to the file. */
static void families_of(lua_State *L, const char *module, Text *t)
{
        const char *name[64];
        int n = 0;
        sandbox_require(L, "families");
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
                if (lua_type(L, -2) == LUA_TSTRING && !strcmp(lua_tostring(L, -1), module) &&
                    n < 64 && *lua_tostring(L, -2) >= 'a')
                        name[n++] = lua_tostring(L, -2);
        for (int i = 0; i < n; i++) /* few: sorted by selection */
                for (int k = i + 1; k < n; k++)
                        if (strcmp(name[k], name[i]) < 0) {
                                const char *x = name[i];
                                name[i] = name[k];
                                name[k] = x;
                        }
        for (int i = 0; i < n; i++)
                text_add(t, "%s%s", i ? ", " : "", name[i]);
        lua_pop(L, 1);
}

/* The table `params` on top of the stack, in the order of the file. */
static int params_of(lua_State *L, const ModelFile *f, Param *p)
{
        const char *text = strstr(f->text, "params = {");
        int n = 0;
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
                if (n == MOST_PARAMS)
                        luaL_error(L, "%s has more than %d parameters", f->name, MOST_PARAMS);
                const char *name = lua_tostring(L, -2);
                p[n].name = name;
                p[n].value = luaL_tolstring(L, -1, NULL);
                p[n].at = text ? assigned(text, name) : NULL;
                p[n].value = arena_str(reader_of(L)->m->arena, p[n].value);
                n++;
                lua_pop(L, 1);
        }
        qsort(p, (size_t)n, sizeof *p, by_place);
        return n;
}

static void describe_param(const Models *m, const ModelFile *own, const Param *p)
{
        Text left = { 0 }, right = { 0 };
        text_add(&left, "-D %s=%s", p->name, p->value);
        text_add(&right, "%s", "");
        bool found = p->at && param_comment(own->text, p->at, &right);
        for (const ModelFile *f = model_files; f->name && !found && !p->at; f++) {
                const char *table = strstr(f->text, "params = {"),
                           *at = table ? assigned(table, p->name) : NULL;
                found = at && param_comment(f->text, at, &right);
        }
        row(&m->o, left.s, right.s ? right.s : "");
        text_free(&left);
        text_free(&right);
}

static void describe_model(lua_State *L, const Models *m, const ModelFile *f, const char *module)
{
        Param p[MOST_PARAMS];
        Text head = { 0 }, families = { 0 }, line = { 0 };
        const int n = params_of(L, f, p);
        head_comment(f, &head);
        families_of(L, module, &families);
        if (m->o.markdown) {
                text_add(m->o.t, "\n### %s\n\n%s\n\n", module, head.s ? head.s : "");
        } else {
                text_add(m->o.t, "%s%-11s", m->n ? "\n" : "", module);
                wrap(&m->o, head.s ? head.s : "", 11);
        }
        if (families.s)
                text_add(&line, "reads folders of %s%s", families.s, m->o.markdown ? ".\n\n" : "");
        if (line.s) {
                if (!m->o.markdown)
                        text_add(m->o.t, "%11s", "");
                wrap(&m->o, line.s, m->o.markdown ? 0 : 11);
        }
        text_free(&line);
        if (m->only || m->o.markdown) {
                table_head(&m->o, "parameter", "what it means");
                for (int i = 0; i < n; i++)
                        describe_param(m, f, &p[i]);
        } else {
                text_add(&line, "%s", "parameters (-D):");
                for (int i = 0; i < n; i++)
                        text_add(&line, " %s=%s", p[i].name, p[i].value);
                text_add(m->o.t, "%11s", "");
                wrap(&m->o, line.s, 11);
        }
        text_free(&head);
        text_free(&families);
        text_free(&line);
}

/* Runs under sandbox_call; the upvalue is a Models. */
static int describe_all(lua_State *L)
{
        Models *m = lua_touserdata(L, lua_upvalueindex(1));
        for (const ModelFile *f = model_files; f->name; f++) {
                char module[64];
                snprintf(module, sizeof module, "%.*s", (int)strcspn(f->name, "."), f->name);
                if (m->only && strcmp(m->only, module))
                        continue;
                lua_settop(L, 0);
                sandbox_require(L, module);
                if (!lua_istable(L, 1) || lua_getfield(L, 1, "graph") != LUA_TFUNCTION ||
                    lua_getfield(L, 1, "params") != LUA_TTABLE)
                        continue; /* a library */
                describe_model(L, m, f, module);
                m->n++;
        }
        return 0;
}

bool describe_models(const char *name, Text *out, bool markdown)
{
        ReadOptions o = { 0 };
        Reader r = { .o = &o, .m = model_new("help") };
        Models m = { .o = { out, markdown }, .only = name };
        r.used.a = r.m->arena;
        sandbox_open(&r);
        if (!r.msg[0]) {
                lua_pushlightuserdata(r.L, &m);
                lua_pushcclosure(r.L, describe_all, 1);
                sandbox_call(&r, 0, 0);
        }
        sandbox_close(&r);
        model_free(r.m);
        if (r.msg[0])
                error_code(r.code, (Loc) { 0 }, "%s", r.msg);
        return m.n > 0;
}
