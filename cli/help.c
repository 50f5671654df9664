/* help.c: prints help and the man page from the tables of commands and options. */
#include <stdio.h>
#include <string.h>
#include "../runtime/tgc.h"
#include "option.h"

enum { HELP_COLUMN = 34 };

static const char INTRO[] =
        "tgc compiles transformers ahead of time: a graph becomes fused CUDA and C kernels in one "
        "plan file,\n"
        "which trains and generates text without Python.\n";

static const char CODES[] =
        "0 ok, 1 failure, 2 usage, 3 bad input file, 4 device or compiler unusable, 5 out of "
        "memory, 6 not finite,\n"
        "7 check failed, 8 input or output, 129, 130 and 143 interrupted (training: after "
        "saving).\n";

static const struct {
        const char *name, *what;
} variable[] = {
        { "TGC_DEVICE", "auto, cpu, cuda or emulate, where --device does not say" },
        { "TGC_CACHE_DIR", "compiled kernels (else XDG_CACHE_HOME/tgc, else ~/.cache/tgc)" },
        { "TGC_CACHE_MAX", "most bytes of them, like 500M or 4G; 0: any [2G]" },
        { "TGC_COMPILERS", "how many C or C++ compilers run at once [one a core]" },
        { "TGC_LOG", "quiet: errors only on standard error" },
        { "TGC_EMULATE_ARCH", "sm_90a: the emulator plays the form that kernels have on Hopper" },
        { "CUDA_VISIBLE_DEVICES", "GPUs to be seen" },
        { "OMP_NUM_THREADS", "CPU threads, where --threads does not say" },
        { "NO_COLOR", "no colours and no progress bar" },
        { "CC, CXX", "the compilers of CPU code and of the emulator" }
};
#define N_VARIABLES (int)(sizeof variable / sizeof *variable)

/* "  -n, --predict N"; returns its width. */
static int print_option(const OptionInfo *x)
{
        int n = x->letter ? printf("  -%c, ", x->letter) : printf("      ");
        n += printf("--%s", x->name);
        return n + (x->meta ? printf(" %s", x->meta) : 0);
}

/* First option of a group, so that groups come in the table's order. */
static bool opens_group(CommandId cmd, int o)
{
        for (int k = 0; k < o; k++)
                if ((option_info[k].commands >> cmd & 1) &&
                    !strcmp(option_info[k].group, option_info[o].group))
                        return false;
        return true;
}

static bool shows_default(const OptionInfo *x)
{
        return x->dflt && x->kind != OPT_FLAG && strcmp(x->dflt, "0") && strcmp(x->dflt, "-1");
}

static void print_row(const OptionInfo *x)
{
        int n = print_option(x);
        if (n >= HELP_COLUMN)
                n = printf("\n") - 1;
        printf("%*s%s", HELP_COLUMN - n, "", x->help);
        if (shows_default(x))
                printf(" [%s]", x->dflt);
        else if (x->kind == OPT_FLAG && x->dflt && *x->dflt == '1')
                printf(" [on; --no-%s]", x->name);
        printf("\n");
}

static void print_group(CommandId cmd, const char *group)
{
        printf("\n%s:\n", group);
        for (int o = 0; o < N_OPTIONS; o++) {
                const OptionInfo *x = &option_info[o];
                if (!(x->commands >> cmd & 1) || strcmp(x->group, group))
                        continue;
                print_row(x);
        }
}

/* What a MODEL may be given besides is for those who compile it: these commands mostly get a
 * PLAN. */
static const char MODEL_GROUP[] = "Model";
static bool runs_plans(CommandId cmd)
{
        return cmd == CMD_RUN || cmd == CMD_CHAT || cmd == CMD_EVAL || cmd == CMD_EMBED;
}

static bool matters_to_run(int o)
{
        return o == O_DTYPE || o == O_CTX || o == O_WEIGHTS || o == O_TOKENIZER;
}

static void print_model_options(CommandId cmd)
{
        int column = 0;
        printf("\nWith a MODEL for PLAN:\n");
        for (int o = 0; o < N_OPTIONS; o++)
                if ((option_info[o].commands >> cmd & 1) && matters_to_run(o))
                        print_row(&option_info[o]);
        printf("  and of `tgc help compile`:");
        column = 28;
        for (int o = 0; o < N_OPTIONS; o++) {
                const OptionInfo *x = &option_info[o];
                if (!(x->commands >> cmd & 1) || strcmp(x->group, MODEL_GROUP) || matters_to_run(o))
                        continue;
                if (column + (int)strlen(x->name) + 3 > 100)
                        column = printf("\n   ") - 1;
                column += printf(" --%s", x->name);
        }
        printf("\n");
}

static void print_indented(const char *text)
{
        for (const char *s = text; *s; s += strcspn(s, "\n"), s += *s == '\n')
                printf("  %.*s\n", (int)strcspn(s, "\n"), s);
}

void help_overview(void)
{
        printf("%s\nusage: tgc COMMAND ...\n\n", INTRO);
        for (int c = 0; c < N_COMMANDS; c++)
                printf("  %-10s %s\n", command_info[c].name, command_info[c].brief);
        printf("\nBegin with:\n");
        print_indented("tgc compile gpt.lua -o gpt.plan\n"
                       "tgc train gpt.plan --data input.txt --out_dir out\n"
                       "tgc run out -p \"Once upon a time\"\n");
        printf("\n"
               "`tgc help COMMAND` tells more, `tgc help models` lists the models inside tgc, "
               "`tgc help lua` is how to write one.\n"
               "\n"
               "Environment:\n");
        for (int i = 0; i < N_VARIABLES; i++)
                printf("  %-21s %s\n", variable[i].name, variable[i].what);
        printf("\nExit codes: %s", CODES);
}

void help_command(CommandId cmd)
{
        const CommandInfo *c = &command_info[cmd];
        printf("tgc %s: %s\n\nusage: tgc %s%s%s [options]\n", c->name, c->brief, c->name,
               *c->usage ? " " : "", c->usage);
        if (*c->text)
                printf("\n%s\n", c->text);
        if (*c->examples) {
                printf("\nExamples:\n");
                print_indented(c->examples);
        }
        for (int o = 0; o < N_OPTIONS; o++)
                if ((option_info[o].commands >> cmd & 1) && opens_group(cmd, o))
                        if (!runs_plans(cmd) || strcmp(option_info[o].group, MODEL_GROUP))
                                print_group(cmd, option_info[o].group);
        if (runs_plans(cmd))
                print_model_options(cmd);
}

/* ---- roff ---- */

static void roff(const char *s)
{
        bool start = true;
        for (; *s; start = *s == '\n', s++) {
                if (start && (*s == '.' || *s == '\''))
                        printf("\\&");
                if (*s == '-')
                        printf("\\-");
                else if (*s == '\\')
                        printf("\\e");
                else
                        putchar(*s);
        }
}

static void man_option(const OptionInfo *x)
{
        printf(".TP\n.B ");
        if (x->letter)
                printf("\\-%c, ", x->letter);
        printf("\\-\\-");
        roff(x->name);
        printf("%s", x->meta ? " \\fI" : "");
        roff(x->meta ? x->meta : "");
        printf("%s\n", x->meta ? "\\fR" : "");
        roff(x->help);
        if (shows_default(x)) {
                printf(" [");
                roff(x->dflt);
                printf("]");
        }
        printf("\n");
}

void help_man(void)
{
        printf(".TH TGC 1 \"\" \"tgc %s\"\n"
               ".SH NAME\n"
               "tgc \\- ahead\\-of\\-time compiler for transformers\n"
               ".SH SYNOPSIS\n.B tgc\n"
               "COMMAND [arguments] [options]\n"
               ".SH DESCRIPTION\n",
               TGC_VERSION);
        roff(INTRO);
        for (int c = 0; c < N_COMMANDS; c++) {
                const CommandInfo *k = &command_info[c];
                printf(".SH \"tgc %s %s\"\n%s.\n", k->name, k->usage, k->brief);
                if (*k->text)
                        printf(".PP\n");
                roff(k->text);
                printf("\n");
                for (int o = 0; o < N_OPTIONS; o++)
                        if (option_info[o].commands >> c & 1)
                                man_option(&option_info[o]);
                if (*k->examples) {
                        printf(".PP\nExamples:\n.PP\n.nf\n");
                        roff(k->examples);
                        printf(".fi\n");
                }
        }
        printf(".SH ENVIRONMENT\n");
        for (int i = 0; i < N_VARIABLES; i++)
                printf(".TP\n.B %s\n%s.\n", variable[i].name, variable[i].what);
        printf(".SH EXIT STATUS\n%s", CODES);
}
