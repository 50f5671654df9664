/* args.c: a command's name and its arguments, a NUL after each */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../cli/option.h"

FUZZ(args)
{
        char *text = text_of_bytes(data, n), *argv[64];
        int argc = 0, cmd;
        Err e;
        Args a;

        for (size_t i = 0; i < n && argc < 64; i += strlen(text + i) + 1)
                argv[argc++] = text + i;
        if (argc && (cmd = command_find(argv[0], &e)) >= 0) {
                if (args_parse(&a, (CommandId)cmd, argc - 1, argv + 1, &e) == TGC_OK && !a.help)
                        HOLDS(a.n_pos >= command_info[cmd].min_args &&
                              a.n_pos <= command_info[cmd].max_args);
                args_free(&a);
        }
        free(text);
}
