/* tgc.c: runs the command that the arguments name, and turns its error into an exit code. */
#include <fcntl.h>
#include <string.h>
#include "../ir/ir.h"
#include "../runtime/util/c_locale.h"
#include "../runtime/util/temp.h"
#include "../runtime/tgc.h"
#include "load/load.h"

static int run(CommandId cmd, int argc, char **argv, Err *e)
{
        Args a;
        int code = args_parse(&a, cmd, argc, argv, e);
        if (!code && a.help)
                help_command(cmd);
        else if (!code && !(code = outputs_check(&a, e)) && !(code = effects_check(&a, e)))
                code = command_info[cmd].run(&a, e);
        args_free(&a);
        return code ? code : out_done(e);
}

/* What nothing below catches, no memory for a compiler's text above all, ends here: with a message
 * and a code. */
static int run_command(CommandId cmd, int argc, char **argv, Err *e)
{
        Diag d = { 0 };
        if (!DIAG_CATCH(&d)) {
                temps_unlink();
                return err_set(e, d.code ? d.code : TGC_FAIL, "%s", d.msg);
        }
        int code = run(cmd, argc, argv, e);
        diag_end(&d);
        return code;
}

/* Where one of the three is closed, the next file opened would take its place and
 * our text would land in it.  What stands in for it cannot be read or written. */
static void fill_standard_files(void)
{
        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
                        return;
}

int tgc_main(int argc, char **argv)
{
        Err e = { 0 };
        int code, cmd;
        locale_t was = c_locale_begin();
        fill_standard_files();
        signals_install();
        json_start();
        plain_arguments(argc, argv);
        if (argc < 2) {
                help_overview();
                c_locale_end(was);
                return TGC_USAGE;
        }
        if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
                cmd = CMD_HELP;
        else if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
                cmd = CMD_VERSION;
        else
                cmd = command_find(argv[1], &e);
        code = cmd < 0 ? e.code : run_command((CommandId)cmd, argc - 2, argv + 2, &e);
        if (code && code < 128) /* 129, 130 and 143: interrupted, said already */
                say_error(e.msg);
        c_locale_end(was);
        return code;
}
