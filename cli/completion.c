/* completion.c: writes the completion scripts of bash, zsh and fish from the tables of commands and
 * options. */
#include <stdio.h>
#include <string.h>
#include "../runtime/tgc.h"
#include "option.h"

static bool has(int cmd, int o) { return option_info[o].commands >> cmd & 1; }

/* a|b|c with other separators. */
static void print_words(const char *s, const char *sep)
{
        for (; *s; s++)
                if (*s == '|')
                        printf("%s", sep);
                else
                        putchar(*s);
}

/* Inside '...' of a shell; zsh wants its own signs escaped too. */
static void print_quoted(const char *s, const char *escaped)
{
        for (; *s; s++) {
                if (*s == '\'')
                        printf("'\\'");
                else if (strchr(escaped, *s))
                        putchar('\\');
                putchar(*s);
        }
}

static void print_commands(void)
{
        for (int c = 0; c < N_COMMANDS; c++)
                printf("%s%s", c ? " " : "", command_info[c].name);
}

/* ---- bash ---- */

static void bash_words(int cmd)
{
        for (int o = 0; o < N_OPTIONS; o++)
                if (has(cmd, o))
                        printf(" --%s", option_info[o].name);
        printf(" --help");
}

static void bash(void)
{
        printf("# bash completion of tgc %s\n_tgc()\n{\n", TGC_VERSION);
        printf("        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
               "words=\n"
               "        COMPREPLY=()\n"
               "        if [ \"$COMP_CWORD\" = 1 ]; then\n                words=\"");
        print_commands();
        printf("\"\n                COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "                return\n        fi\n        case $prev in\n");
        for (int o = 0; o < N_OPTIONS; o++)
                if (option_info[o].kind == OPT_CHOICE) {
                        printf("        --%s) words=\"", option_info[o].name);
                        print_words(option_info[o].meta, " ");
                        printf("\" ;;\n");
                }
        printf("        esac\n        if [ -z \"$words\" ] && [[ $cur == -* ]]; then\n"
               "                case ${COMP_WORDS[1]} in\n");
        for (int c = 0; c < N_COMMANDS; c++) {
                printf("                %s) words=\"", command_info[c].name);
                bash_words(c);
                printf("\" ;;\n");
        }
        printf("                esac\n        fi\n"
               "        if [ -n \"$words\" ]; then\n"
               "                COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "        elif [ \"${COMP_WORDS[1]}\" = help ]; then\n"
               "                COMPREPLY=($(compgen -W \"lua models ");
        print_commands();
        printf("\" -- \"$cur\"))\n        else\n"
               "                COMPREPLY=($(compgen -f -- \"$cur\"))\n        fi\n}\n"
               "complete -o filenames -F _tgc tgc\n");
}

/* ---- zsh ---- */

/* '(-n --predict)'{-n+,--predict=}'[tokens to generate]:N:' */
static void zsh_option(const OptionInfo *x)
{
        const char *again = x->kind == OPT_LIST ? "*" : "";
        const bool value = x->kind != OPT_FLAG;
        printf(" \\\n                        ");
        if (x->letter && !*again)
                printf("'(-%c --%s)'", x->letter, x->name);
        if (x->letter)
                printf("{'%s-%c%s','%s--%s%s'}", again, x->letter, value ? "+" : "", again, x->name,
                       value ? "=" : "");
        else
                printf("'%s--%s%s'", again, x->name, value ? "=" : "");
        printf("'[");
        print_quoted(x->help, "[]\\:");
        printf("]");
        if (x->kind == OPT_CHOICE) {
                printf(":value:(");
                print_words(x->meta, " ");
                printf(")");
        } else if (value) {
                printf(":");
                print_quoted(x->meta ? x->meta : "value", "[]\\:");
                printf(x->kind == OPT_FILE ? ":_files" : x->kind == OPT_DIR ? ":_files -/" : ": ");
        }
        printf("'");
        if (x->kind == OPT_FLAG)
                printf(" '--no-%s[not --%s]'", x->name, x->name);
}

static void zsh(void)
{
        printf("#compdef tgc\n# zsh completion of tgc %s\n_tgc()\n{\n        local -a commands=(\n",
               TGC_VERSION);
        for (int c = 0; c < N_COMMANDS; c++) {
                printf("                '%s:", command_info[c].name);
                print_quoted(command_info[c].brief, "\\:");
                printf("'\n");
        }
        printf("        )\n"
               "        if (( CURRENT == 2 )); then\n"
               "                _describe -t commands command commands\n                return\n"
               "        fi\n"
               "        local cmd=$words[2]\n"
               "        shift words\n"
               "        (( CURRENT-- ))\n"
               "        case $cmd in\n");
        for (int c = 0; c < N_COMMANDS; c++) {
                printf("        %s)\n                _arguments -s '--help[help]'",
                       command_info[c].name);
                for (int o = 0; o < N_OPTIONS; o++)
                        if (has(c, o))
                                zsh_option(&option_info[o]);
                if (c == CMD_HELP) {
                        printf(" \\\n                        '1:what:(lua models ");
                        print_commands();
                        printf(")' '2:model: '");
                } else {
                        printf(" \\\n                        '*:file:_files'");
                }
                printf("\n                ;;\n");
        }
        printf("        esac\n}\n"
               "if [ \"$funcstack[1]\" = _tgc ]; then _tgc \"$@\"; else compdef _tgc tgc; fi\n");
}

/* ---- fish ---- */

static void fish_option(int cmd, const OptionInfo *x)
{
        printf("complete -c tgc -n '__fish_seen_subcommand_from %s' -l %s", command_info[cmd].name,
               x->name);
        if (x->letter)
                printf(" -s %c", x->letter);
        if (x->kind == OPT_CHOICE) {
                printf(" -x -a '");
                print_words(x->meta, " ");
                printf("'");
        } else if (x->kind == OPT_FILE || x->kind == OPT_DIR) {
                printf(" -r -F");
        } else if (x->kind != OPT_FLAG) {
                printf(" -x");
        }
        printf(" -d '");
        print_quoted(x->help, "\\");
        printf("'\n");
}

static void fish(void)
{
        printf("# fish completion of tgc %s\n", TGC_VERSION);
        for (int c = 0; c < N_COMMANDS; c++) {
                printf("complete -c tgc -n __fish_use_subcommand -f -a %s -d '",
                       command_info[c].name);
                print_quoted(command_info[c].brief, "\\");
                printf("'\n");
        }
        printf("complete -c tgc -n '__fish_seen_subcommand_from help' -f -a 'lua models ");
        print_commands();
        printf("'\n");
        printf("complete -c tgc -l help -d 'help'\n");
        for (int c = 0; c < N_COMMANDS; c++)
                for (int o = 0; o < N_OPTIONS; o++)
                        if (has(c, o))
                                fish_option(c, &option_info[o]);
}

void help_completion(const char *shell)
{
        if (!strcmp(shell, "zsh"))
                zsh();
        else if (!strcmp(shell, "fish"))
                fish();
        else
                bash();
}
