/* program.c: a plan's program.  What holds of one that is accepted is in runtime/plan/program.h. */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../runtime/plan/program.h"

static void ref_holds(const Program *p, Ref r)
{
        HOLDS(r.arena == REF_RT || (r.arena == REF_MAP && r.offset < (uint64_t)p->n_maps) ||
              (r.arena >= 0 && r.arena < p->n_arenas && r.offset <= p->arena[r.arena].size));
}

FUZZ(program)
{
        Program p;
        Err e;

        if (program_parse(&p, (const char *)data, n, "fuzz", &e)) {
                HOLDS(*e.msg);
                return;
        }
        for (int i = 0; i < p.n_progs; i++) {
                const Prog *g = &p.prog[i];
                HOLDS(g->B > 0 && g->T > 0);
                for (int k = 0; k < g->n_io; k++) {
                        ref_holds(&p, g->io[k].at);
                        for (int b = 1; b <= g->B && b < 4; b++)
                                HOLDS(expr_eval(g->io[k].shape, b, g->T) >= 0);
                }
                for (int k = 0; k < g->n_run; k++) {
                        HOLDS(g->run[k].kernel >= 0 && g->run[k].kernel < p.n_kernels);
                        HOLDS(expr_eval(g->run[k].grid[FORM_ANY], g->B, g->T) >= 0 &&
                              expr_eval(g->run[k].grid[FORM_ANY], 1, 1) >= 0);
                        for (int f = 0; f < N_FORMS; f++)
                                HOLDS(!g->run[k].grid[f] ||
                                      expr_eval(g->run[k].grid[f], g->B, g->T) >= 0);
                        for (int a = 0; a < p.kernel[g->run[k].kernel].n_args; a++)
                                ref_holds(&p, g->run[k].arg[a]);
                }
        }
        for (int i = 0; i < p.n_zeros; i++)
                HOLDS(p.zero[i].at.arena >= 0 &&
                      p.zero[i].at.offset + p.zero[i].size <= p.arena[p.zero[i].at.arena].size);
        program_free(&p);
}
