/* cmd_dump.c: tgc dump: prints sections of a plan as text. */
#include <stdlib.h>
#include <string.h>
#include "page.h"
#include "../load/open.h"

static const struct {
        OptionId option;
        const char *section;
} part[] = { { O_D_GRAPH, "graph" },      { O_D_IR, "ir" },        { O_D_FUSED, "fused" },
             { O_D_CUDA, "source.cuda" }, { O_D_C, "source.cpu" }, { O_D_PROGRAM, "program.cuda" },
             { O_D_MEMORY, "memory" },    { O_D_DOT, "dot" },      { O_D_MANIFEST, "manifest" },
             { O_D_CHOICES, "choices" } };
enum { N_PARTS_TO_DUMP = sizeof part / sizeof *part };

static int no_section(const char *path, const char *name, Err *e)
{
        const bool code = !strncmp(name, "source.", 7) || !strncmp(name, "program.", 8);
        return err_set(e, TGC_BAD_FILE, "%s: the plan has no section %s: compile the model %s",
                       path, name,
                       code ? "with --target cpu or cuda, whichever it is of" : "again");
}

static int print_section(const Plan *p, const char *name, const char *path, Err *e)
{
        const Section *s = plan_find(p, name);
        if (!s && !strcmp(name, "choices"))
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: no tiles were chosen for this plan; `tgc tune` measures them on a GPU",
                        path);
        if (!s)
                return no_section(path, name, e);
        put_plain(stdout, s->data, s->size);
        if (s->size && ((const char *)s->data)[s->size - 1] != '\n')
                printf("\n");
        return TGC_OK;
}

/* k3_matmul, or k3 for short; -1: none. */
static int find_kernel(const Program *g, const char *name)
{
        size_t n = strlen(name);
        for (int i = 0; i < g->n_kernels; i++)
                if (!strncmp(g->kernel[i].name, name, n) &&
                    (!g->kernel[i].name[n] || g->kernel[i].name[n] == '_'))
                        return i;
        return -1;
}

/* The unit that holds a kernel: its source as one would compile it. */
static int print_kernel(const Plan *p, const char *source, const char *kernel, const char *path,
                        Err *e)
{
        const Section *s = plan_find(p, source),
                      *t = plan_find(p, !strcmp(source, "source.cuda") ? "program.cuda"
                                                                       : "program.cpu");
        Program g;
        Pack units;
        int code = s && t ? program_parse(&g, t->data, t->size, t->name, e)
                          : no_section(path, source, e);
        if (code)
                return code;
        int k = find_kernel(&g, kernel);
        if (k < 0)
                code = err_set(e, TGC_USAGE,
                               "%s: no kernel %.60s; it has %d, see `tgc dump %s --fused`", path,
                               kernel, g.n_kernels, path);
        else if (!(code = pack_units(&units, s->data, s->size, source, e))) {
                for (int i = 0; i < units.n; i++)
                        if (!strcmp(units.file[i].name, g.kernel[k].unit))
                                put_plain(stdout, units.file[i].data, units.file[i].size);
                pack_free(&units);
        }
        program_free(&g);
        return code;
}

int cmd_dump(const Args *a, Err *e)
{
        const char *path = a->pos[0], *kernel = opt_str(a, O_D_KERNEL);
        Loaded l;
        int code, asked = 0;
        for (int i = 0; i < N_PARTS_TO_DUMP; i++)
                asked += opt_flag(a, part[i].option);
        if (a->n_pos > 1 && (asked || !opt_str(a, O_D_HTML)))
                return err_set(e, TGC_USAGE,
                               "dump: two PLANs need --html FILE, which compares "
                               "them");
        if (!asked && !opt_str(a, O_D_HTML) && !opt_set(a, O_PRINT_AFTER) &&
            !opt_set(a, O_TIME_PASSES))
                return err_set(e, TGC_USAGE,
                               "dump: give one of --graph, --ir, --fused, --cuda, --c, --program, "
                               "--memory, "
                               "--dot, "
                               "--choices, --manifest or --html FILE");
        if ((code = load(&l, a, &(LoadHow) { .no_weights = true }, e)))
                return code;
        for (int i = 0; i < N_PARTS_TO_DUMP && !code; i++) {
                const char *name = part[i].section;
                if (!opt_flag(a, part[i].option))
                        continue;
                if (part[i].option == O_D_GRAPH && opt_flag(a, O_JSON))
                        name = "graph.json";
                if (part[i].option == O_D_PROGRAM && !plan_find(&l.plan, name))
                        name = "program.cpu";
                code = kernel && !strncmp(name, "source", 6)
                               ? print_kernel(&l.plan, name, kernel, path, e)
                               : print_section(&l.plan, name, path, e);
                if (!code && part[i].option == O_D_FUSED && opt_flag(a, O_D_WHY))
                        code = plan_find(&l.plan, "why") ? print_section(&l.plan, "why", path, e)
                                                         : TGC_OK;
        }
        if (!code && opt_str(a, O_D_HTML))
                code = page_write(&l, a, e);
        loaded_free(&l);
        return code;
}
