/* page_plan.c: kernels, launches, buffers and memory of a plan for its page.
 *
 * Kernels and launches come from program.*, by the runtime's own parser.  Section `launches` says
 * which nodes each launch computes, and what it reads and writes. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/plan/program.h"
#include "../../runtime/util/line_reader.h"
#include "page.h"

/* A section as a copy that a LineReader may cut up. */
static int reader(LineReader *w, const Plan *p, const char *section, const char *path, Err *e)
{
        const Section *s = plan_find(p, section);
        *w = (LineReader) { .what = section, .e = e };
        if (!s)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the plan has no section %s, so an older tgc made it: compile "
                               "the model again",
                               path, section);
        if (!(w->rest = malloc(s->size + 1)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", path, section);
        memcpy(w->rest, s->data, s->size);
        w->rest[s->size] = 0;
        return TGC_OK;
}

/* ---- texts of kernels ---- */

/* Where the text of a kernel ends in a C unit, which holds several: behind its entry points. */
static const char *text_end(const char *s, const char *end, const char *name)
{
        char entry[256];
        size_t n = (size_t)snprintf(entry, sizeof entry, "TGC_KERNEL(%.200s)\n", name);
        for (; s + n <= end; s++)
                if (!memcmp(s, entry, n))
                        return s + n;
        return end;
}

/* Kernels of a unit stand in it in their own order; at[u]: what is read of unit u. */
static void put_text(JsonOut *j, const Pack *units, const char **at, const KernelDef *k, bool whole)
{
        for (int u = 0; u < units->n; u++) {
                const PackFile *f = &units->file[u];
                const char *end = f->data + f->size, *to;
                if (strcmp(f->name, k->unit))
                        continue;
                if (!at[u])
                        at[u] = f->data;
                while (at[u] < end && *at[u] == '\n')
                        at[u]++;
                to = whole ? end : text_end(at[u], end, k->name);
                js_strn(j, "text", at[u], (size_t)(to - at[u]));
                at[u] = to;
                return;
        }
}

/* Of an architecture that has none: nothing. */
static void put_form(JsonOut *j, int arch, const FormDef *f)
{
        if (arch != FORM_ANY && !f->threads)
                return;
        js_begin(j, NULL, '{');
        js_str(j, "arch", arch == FORM_ANY ? "" : program_archs[arch].name);
        js_num(j, "threads", f->threads);
        js_num(j, "smem", f->smem);
        js_num(j, "cluster", f->cluster);
        js_num(j, "persistent", f->persistent);
        js_end(j, '}');
}

static int put_kernels(JsonOut *j, const Plan *p, const Program *g, const char *target,
                       const char *path, Err *e)
{
        char section[32];
        Pack units = { 0 };
        snprintf(section, sizeof section, "source.%s", target);
        const Section *s = plan_find(p, section);
        if (!s)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the plan has no section %s: compile the model again", path,
                               section);
        int code = pack_units(&units, s->data, s->size, section, e);
        const char **at = code ? NULL : calloc((size_t)units.n + 1, sizeof *at);
        if (!code && !at)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", path, section);
        js_begin(j, "kernels", '[');
        for (int i = 0; i < g->n_kernels && !code; i++) {
                const KernelDef *k = &g->kernel[i];
                js_begin(j, NULL, '{');
                js_str(j, "name", k->name);
                js_str(j, "title", k->title ? k->title : "");
                js_num(j, "pdl", k->pdl);
                js_num(j, "flops", k->flops);
                js_num(j, "bytes", k->bytes);
                js_begin(j, "forms", '[');
                for (int a = 0; a < N_FORMS; a++)
                        put_form(j, a, &k->form[a]);
                js_end(j, ']');
                put_text(j, &units, at, k, !strcmp(target, "cuda"));
                js_end(j, '}');
        }
        js_end(j, ']');
        free(at);
        pack_free(&units);
        return code;
}

/* ---- launches ---- */

static bool stands(const LineReader *w, const char *word)
{
        const size_t n = strlen(word);
        return w->at && !strncmp(w->at, word, n) && w->at[n] == ' ';
}

static void put_buffer(JsonOut *j, LineReader *w)
{
        const bool written = line_optional(w, "write");
        if (!written)
                line_keyword(w, "read");
        js_begin(j, NULL, '[');
        js_num(j, NULL, written);
        js_str(j, NULL, line_need(w, "kind"));
        js_num(j, NULL, (double)line_int(w, "bytes", (uint64_t)1 << 62));
        js_str(j, NULL, line_rest(w));
        js_end(j, ']');
}

/* The current line is the first of a piece; afterwards it is the one behind it. */
static bool put_piece(JsonOut *j, LineReader *w)
{
        bool more;
        line_keyword(w, "piece");
        js_begin(j, NULL, '{');
        js_num(j, "group", (double)line_int(w, "group", 1 << 30));
        js_num(j, "threads", (double)line_int(w, "threads", 1 << 20));
        js_num(j, "flops", line_real(w, "FLOPs"));
        js_num(j, "bytes", line_real(w, "bytes"));
        js_str(j, "grid", line_need(w, "grid"));
        js_str(j, "title", line_rest(w));
        js_begin(j, "buffers", '[');
        while ((more = line_next(w)) && (stands(w, "read") || stands(w, "write")) && !w->code)
                put_buffer(j, w);
        js_end(j, ']');
        js_end(j, '}');
        return more;
}

static void put_grid(JsonOut *j, int arch, const char *grid, const Prog *p)
{
        js_begin(j, NULL, '{');
        js_str(j, "arch", arch == FORM_ANY ? "" : program_archs[arch].name);
        js_str(j, "grid", grid);
        js_num(j, "blocks", (double)expr_eval(grid, p->B, p->T));
        js_end(j, '}');
}

/* Of the programs of one target, which stand in both texts in the same order. */
static int put_programs(JsonOut *j, const Program *g, const char *target, LineReader *w, bool more)
{
        js_begin(j, "programs", '[');
        for (int i = 0; i < g->n_progs && !w->code; i++) {
                const Prog *p = &g->prog[i];
                if (!more)
                        return line_fail(w, "program %s is missing", p->name);
                line_keyword(w, "program");
                line_keyword(w, target);
                line_keyword(w, p->name);
                more = line_next(w);
                js_begin(j, NULL, '{');
                js_str(j, "name", p->name);
                js_num(j, "B", p->B);
                js_num(j, "T", p->T);
                js_begin(j, "launches", '[');
                for (int r = 0; r < p->n_run && !w->code; r++) {
                        const Run *run = &p->run[r];
                        if (!more)
                                return line_fail(w, "launch %d of program %s is missing", r,
                                                 p->name);
                        line_keyword(w, "launch");
                        line_keyword(w, g->kernel[run->kernel].name);
                        more = line_next(w);
                        js_begin(j, NULL, '{');
                        js_num(j, "kernel", run->kernel);
                        js_begin(j, "grids", '[');
                        for (int a = 0; a < N_FORMS; a++)
                                if (run->grid[a])
                                        put_grid(j, a, run->grid[a], p);
                        js_end(j, ']');
                        js_begin(j, "pieces", '[');
                        while (more && stands(w, "piece") && !w->code)
                                more = put_piece(j, w);
                        js_end(j, ']');
                        js_end(j, '}');
                }
                js_end(j, ']');
                js_end(j, '}');
        }
        js_end(j, ']');
        return w->code;
}

/* `compile --target` drops a target's program; its launches stay in the text. */
static int skip_programs(LineReader *w, const char *target)
{
        char head[32];
        snprintf(head, sizeof head, "program %s", target);
        for (bool ours = stands(w, head); ours && line_next(w);)
                ours = !stands(w, "program") || stands(w, head);
        return w->code;
}

static int put_target(JsonOut *j, const Plan *p, const char *target, LineReader *w,
                      const char *path, Err *e)
{
        char section[32];
        Program g;
        snprintf(section, sizeof section, "program.%s", target);
        const Section *s = plan_find(p, section);
        if (!s)
                return skip_programs(w, target);
        int code = program_parse(&g, s->data, s->size, section, e);
        if (code)
                return code;
        js_begin(j, NULL, '{');
        js_str(j, "name", target);
        js_begin(j, "arenas", '[');
        for (int i = 0; i < g.n_arenas; i++) {
                js_begin(j, NULL, '[');
                js_str(j, NULL, g.arena[i].name);
                js_num(j, NULL, (double)g.arena[i].size);
                js_end(j, ']');
        }
        js_end(j, ']');
        if (!(code = put_kernels(j, p, &g, target, path, e)))
                code = put_programs(j, &g, target, w, w->at != NULL);
        js_end(j, '}');
        program_free(&g);
        return code;
}

/* ---- memory, and what was not fused ---- */

/* Tables of `tgc dump --memory`, one after the other. */
static int put_memory(JsonOut *j, const Plan *p, const char *path, Err *e)
{
        LineReader w;
        bool open = false;
        long long off, bytes, first, last;
        int at = 0;
        if (!plan_find(p, "memory"))
                return TGC_OK;
        int code = reader(&w, p, "memory", path, e);
        char *text = w.rest;
        if (code)
                return code;
        js_begin(j, "memory", '[');
        while (line_next(&w)) {
                char *colon = strchr(w.line, ':');
                if (colon && sscanf(colon, ": %lld bytes of activations", &bytes) == 1) {
                        if (open) {
                                js_end(j, ']');
                                js_end(j, '}');
                        }
                        open = true;
                        js_begin(j, NULL, '{');
                        js_strn(j, "program", w.line, (size_t)(colon - w.line));
                        js_num(j, "bytes", (double)bytes);
                        js_begin(j, "buffers", '[');
                } else if (open && sscanf(w.line, " %lld %lld %lld %lld %n", &off, &bytes, &first,
                                          &last, &at) == 4) {
                        js_begin(j, NULL, '[');
                        js_num(j, NULL, (double)off);
                        js_num(j, NULL, (double)bytes);
                        js_num(j, NULL, (double)first);
                        js_num(j, NULL, (double)last);
                        js_str(j, NULL, w.line + at);
                        js_end(j, ']');
                }
        }
        if (open) {
                js_end(j, ']');
                js_end(j, '}');
        }
        js_end(j, ']');
        free(text);
        return TGC_OK;
}

static void put_why(JsonOut *j, const Plan *p)
{
        const Section *s = plan_find(p, "why");
        const char *at = s ? s->data : "", *end = at + (s ? s->size : 0);
        js_begin(j, "why", '[');
        while (at < end) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                const size_t n = (size_t)((eol ? eol : end) - at);
                if (n)
                        js_strn(j, NULL, at, n);
                at += n + 1;
        }
        js_end(j, ']');
}

int page_plan(JsonOut *j, const Plan *p, const char *path, Err *e)
{
        LineReader w;
        int code = reader(&w, p, "launches", path, e);
        char *text = w.rest;
        if (code)
                return code;
        if (line_next(&w)) {
                line_keyword(&w, "tgc-launches");
                line_keyword(&w, "1");
                line_end(&w);
                line_next(&w);
        }
        js_begin(j, "targets", '[');
        if (!(code = w.code) && !(code = put_target(j, p, "cuda", &w, path, e)))
                code = put_target(j, p, "cpu", &w, path, e);
        js_end(j, ']');
        free(text);
        if (!code && !(code = put_memory(j, p, path, e)))
                put_why(j, p);
        return code;
}
