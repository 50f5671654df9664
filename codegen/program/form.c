/* form.c: writes a kernel's forms as text.
 *
 * A kernel has one problem and one form for each architecture that computes it in its own way;
 * ARCH_ANY's form serves all others.  The emitters fill forms (form_begin).  This file alone writes
 * the preprocessor's branches between them:
 *
 *      ...                                     what all forms begin with
 *      #if defined(TGC_SM90A)
 *              gemm_tma_persistent<...>(...);
 *      #else
 *              gemm_task<...>(...);
 *      #endif
 *
 * A new architecture needs a row of runtime/plan/arch.def, and forms. */
#include "program.h"
#include <string.h>

const Arch archs[N_ARCHS] = {
#define ARCH(id, name, macro, sms, smem_sm, smem) { name, macro },
#include "../../runtime/plan/arch.def"
#undef ARCH
};

/* ---- while a kernel is written ------------------------------------------- */

Text *build_body(Build *b) { return &b->text[b->at].body; }
Text *build_decl(Build *b) { return &b->text[b->at].decl; }

Form *form_begin(Build *b, ArchId arch, const char *include)
{
        b->at = arch;
        if (include)
                b->form[arch].include = include;
        return &b->form[arch];
}

void form_leave_out(Build *b, ArchId arch)
{
        b->form[arch] = (Form) { .threads = b->any.threads, .grid = grid_blocks(0), .none = true };
        b->at = ARCH_ANY;
}

const char *form_constant(Build *b, const char *name, const char *any, ArchId arch, int64_t value)
{
        text_add(build_body(b), "#if defined(%s)\n        enum { %s = %lld };\n", archs[arch].macro,
                 name, (long long)value);
        text_add(build_body(b), "#else\n        enum { %s = %s };\n#endif\n", name, any);
        return name;
}

/* ---- the texts ------------------------------------------------------------ */

bool form_waits(const Piece *p)
{
        bool one = false;
        for (int i = 0; i < N_ARCHS; i++)
                one |= p->form[i].waits;
        return one;
}

/* What schedule.c and launch_overlap.c decided. */
static void put_decisions(const Piece *p, ArchId where, Text *out)
{
        if (p->tile && where == ARCH_SM90A)
                text_add(out, "        using Tile = %s;\n", p->tile);
        if (p->prefetches && p->prefetch_in == where)
                text_add(out, "        constexpr auto PREFETCH = %s;\n", p->prefetches);
}

/* The body of form i: it waits for the launch before if none of its own lines does and another
 * form's do. */
static void put_own(const Piece *p, int i, bool waits, Text *out)
{
        put_decisions(p, (ArchId)i, out);
        if (waits && !p->form[i].waits)
                text_add(out, "        pdl_wait();\n");
        text_add(out, "%s", p->form[i].body ? p->form[i].body : "");
}

/* Branches, ARCH_ANY's the last; nothing where no form has lines of its own. */
static void put_branches(const Piece *p, bool decl, bool waits, Text *out)
{
        const char *word = "#if";
        for (int i = ARCH_ANY + 1; i < N_ARCHS; i++) {
                const Form *f = &p->form[i];
                const char *own = decl ? f->decl : f->body;
                if (!own && !(f->none && (decl ? p->any.decl : p->any.body)))
                        continue;
                text_add(out, "%s defined(%s)\n", word, archs[i].macro);
                if (decl)
                        text_add(out, "%s", own ? own : "");
                else if (own)
                        put_own(p, i, waits, out);
                word = "#elif";
        }
        const bool alone = *word == '#' && word[1] == 'i';
        const char *own = decl ? p->any.decl : p->any.body;
        if (!own && alone)
                return;
        if (!alone && own)
                text_add(out, "#else\n");
        if (own && decl)
                text_add(out, "%s", own);
        else if (own)
                put_own(p, ARCH_ANY, waits, out);
        if (!alone)
                text_add(out, "#endif\n");
}

void form_decl(const Piece *p, Text *out)
{
        text_add(out, "%s", p->decl);
        put_branches(p, true, false, out);
}

void form_body(const Piece *p, Text *out)
{
        bool own = false;
        for (int i = 0; i < N_ARCHS; i++)
                own |= p->form[i].body != NULL;
        put_decisions(p, N_ARCHS, out);
        text_add(out, "%s", p->body);
        put_branches(p, false, own && form_waits(p), out);
}

/* Headers of all forms, each once; NULL ends the list. */
void form_includes(const Piece *p, const char *include[N_ARCHS + 1])
{
        int n = 0;
        for (int i = 0; i < N_ARCHS; i++) {
                bool seen = !p->form[i].include;
                for (int k = 0; k < n && !seen; k++)
                        seen = !strcmp(include[k], p->form[i].include);
                if (!seen)
                        include[n++] = p->form[i].include;
        }
        include[n] = NULL;
}
