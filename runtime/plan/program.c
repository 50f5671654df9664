/* program.c: what a parsed program holds, by name; the architectures of its forms. */
#include "program.h"
#include <stdlib.h>
#include <string.h>

const ArchDef program_archs[N_FORMS] = {
#define ARCH(id, name, macro, sms, ...) { name, macro, sms },
#include "arch.def"
#undef ARCH
};

int arch_of(const char *name)
{
        int i = N_FORMS;
        while (--i > FORM_ANY && strcmp(program_archs[i].name, name))
                ;
        return i;
}

void program_free(Program *p)
{
        free(p->mem);
        *p = (Program) { 0 };
}

#define FIND(array, n, key)           \
        for (int i = 0; i < (n); i++) \
                if (!strcmp((array)[i].name, key))

int program_arena(const Program *p, const char *name)
{
        FIND(p->arena, p->n_arenas, name) return i;
        return -1;
}

const Prog *program_find(const Program *p, const char *name)
{
        FIND(p->prog, p->n_progs, name) return &p->prog[i];
        return 0;
}

const Prog *program_decode(const Program *p, int B)
{
        const Prog *best = 0;
        for (const Prog *g = p->prog; g < p->prog + p->n_progs; g++)
                if (!strncmp(g->name, "decode", 6) && g->B >= B && (!best || g->B < best->B))
                        best = g;
        return best;
}

const Io *prog_io(const Prog *p, const char *name)
{
        FIND(p->io, p->n_io, name) return &p->io[i];
        return 0;
}
