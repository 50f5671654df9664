/* cmd_help.c: tgc help, tgc version */
#include <string.h>
#include "../runtime/tgc.h"
#include "cli.h"

int cmd_help(const Args *a, Err *e)
{
        if (opt_flag(a, O_MAN)) {
                help_man();
        } else if (opt_set(a, O_COMPLETION)) {
                help_completion(opt_str(a, O_COMPLETION));
        } else if (a->n_pos && (!strcmp(a->pos[0], "lua") || !strcmp(a->pos[0], "models"))) {
                return help_models(a->pos[0], a->n_pos > 1 ? a->pos[1] : NULL,
                                   opt_flag(a, O_MARKDOWN), e);
        } else if (a->n_pos) {
                if (a->n_pos > 1)
                        return err_set(e, TGC_USAGE, "help: '%.60s' is one argument too many",
                                       a->pos[1]);
                int cmd = command_find(a->pos[0], e);
                if (cmd < 0)
                        return e->code;
                help_command((CommandId)cmd);
        } else {
                help_overview();
        }
        return TGC_OK;
}

int cmd_version(const Args *a, Err *e)
{
        (void)e;
        if (opt_flag(a, O_JSON))
                printf("{\"version\": \"%s\", \"commit\": \"%s\", \"compiler\": \"%s\"}\n",
                       TGC_VERSION, build_commit, build_compiler);
        else
                printf("tgc %s (commit %s, %s)\n", TGC_VERSION, build_commit, build_compiler);
        return TGC_OK;
}
