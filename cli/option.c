/* option.c: the tables of options and commands, and the parser that reads arguments by them. */
#include "option.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../runtime/util/c_locale.h"
#include "../runtime/util/file.h"
#include "cli.h"

const OptionInfo option_info[N_OPTIONS] = {
#define OPTION(id, name, letter, kind, dflt, lo, hi, commands, meta, group, help) \
        [O_##id] = { name, letter, OPT_##kind, dflt, lo, hi, commands, meta, group, help },
#include "options.def"
#undef OPTION
};

const CommandInfo command_info[N_COMMANDS] = {
#define COMMAND(id, name, least, most, usage, brief, text, examples) \
        [CMD_##id] = { #name, least, most, usage, brief, text, examples, cmd_##name },
#include "commands.def"
#undef COMMAND
};

const HabitInfo habit_info[N_HABITS] = {
#define HABIT(typed, commands, what) { typed, commands, what },
#include "habits.def"
#undef HABIT
};

enum { LONGEST_WORD = 64 };

static int least(int a, int b) { return a < b ? a : b; }

int edit_distance(const char *a, const char *b)
{
        int n = (int)strnlen(a, LONGEST_WORD), m = (int)strnlen(b, LONGEST_WORD);
        int d[LONGEST_WORD + 1][LONGEST_WORD + 1];
        for (int i = 0; i <= n; i++)
                for (int j = 0; j <= m; j++) {
                        if (!i || !j) {
                                d[i][j] = i + j;
                                continue;
                        }
                        d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1,
                                        d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
                }
        return d[n][m];
}

/* The distance, or what is surely more than 3: most words are far from each other in length. */
static int slip_distance(const char *a, const char *b)
{
        int longer = (int)strnlen(a, LONGEST_WORD) - (int)strnlen(b, LONGEST_WORD);
        return longer < -3 || longer > 3 ? 4 : edit_distance(a, b);
}

/* How many edits still look like a slip of the finger. */
static int near_enough(const char *word) { return strlen(word) < 4 ? 1 : strlen(word) < 8 ? 2 : 3; }

/* '-' and '_' are the same letter. */
static void plain_name(char out[LONGEST_WORD + 1], const char *s, size_t n)
{
        size_t i = 0;
        for (; i < n && i < LONGEST_WORD && s[i]; i++)
                out[i] = s[i] == '_' ? '-' : s[i];
        out[i] = 0;
}

/* ---- finding ---- */

static int find_long(CommandId cmd, const char *name)
{
        char row[LONGEST_WORD + 1];
        for (int o = 0; o < N_OPTIONS; o++) {
                plain_name(row, option_info[o].name, LONGEST_WORD);
                if ((option_info[o].commands >> cmd & 1) && !strcmp(row, name))
                        return o;
        }
        return -1;
}

static int find_letter(CommandId cmd, char c)
{
        for (int o = 0; o < N_OPTIONS; o++)
                if ((option_info[o].commands >> cmd & 1) && option_info[o].letter == c)
                        return o;
        return -1;
}

/* A habit of another program: what to type here. */
static int check_habit(CommandId cmd, const char *arg, Err *e)
{
        const size_t n = strcspn(arg, "=");
        for (int i = 0; i < N_HABITS; i++)
                if ((habit_info[i].commands >> cmd & 1) && strlen(habit_info[i].typed) == n &&
                    !strncmp(habit_info[i].typed, arg, n))
                        return err_set(e, TGC_USAGE, "%s: there is no %s: %s",
                                       command_info[cmd].name, habit_info[i].typed,
                                       habit_info[i].what);
        return TGC_OK;
}

static int unknown_option(CommandId cmd, const char *typed, const char *name, Err *e)
{
        const char *best = NULL, *elsewhere = NULL;
        int best_d = near_enough(name) + 1;
        char row[LONGEST_WORD + 1];
        for (int o = 0; o < N_OPTIONS; o++) {
                const OptionInfo *x = &option_info[o];
                plain_name(row, x->name, LONGEST_WORD);
                int d = slip_distance(row, name);
                if ((x->commands >> cmd & 1) && d < best_d) {
                        best = x->name;
                        best_d = d;
                }
                for (int c = 0; c < N_COMMANDS && !d && !elsewhere; c++)
                        if (x->commands >> c & 1)
                                elsewhere = command_info[c].name;
        }
        const bool model = (ON_MODEL >> cmd & 1) && !strncmp(typed, "--", 2) && strchr(typed, '=');
        if (best)
                return err_set(e, TGC_USAGE, "%s: unknown option %s; did you mean --%s?%s%s",
                               command_info[cmd].name, typed, best,
                               model ? " A parameter of the model is -D " : "",
                               model ? typed + 2 : "");
        if (elsewhere)
                return err_set(e, TGC_USAGE,
                               "%s: %s is not an option of this command, but of `tgc %s`",
                               command_info[cmd].name, typed, elsewhere);
        const bool spaced = cmd == CMD_TRAIN && !strncmp(typed, "--", 2) && !model;
        return err_set(e, TGC_USAGE,
                       "%s: unknown option %s; `tgc help %s` lists what there is%s%s%s",
                       command_info[cmd].name, typed, command_info[cmd].name,
                       spaced ? "; a parameter of the model has an equals sign: " : "",
                       spaced ? typed : "", spaced ? "=..." : "");
}

/* Words of other programs, and what they are here. */
static const struct {
        const char *typed, *what;
} other_commands[] = {
        { "generate", "it is tgc run MODEL -p TEXT" },
        { "serve",
          "there is no server; `tgc run` and `tgc chat` answer, and docs/library.md is C's way" },
        { "server",
          "there is no server; `tgc run` and `tgc chat` answer, and docs/library.md is C's way" },
        { "pull", "tgc downloads nothing: give the model's file or folder" },
        { "show", "it is tgc info MODEL" },
        { "convert",
          "models are read as they are: tgc run MODEL -p TEXT; tgc quantize writes GGUF files" },
        { "perplexity", "it is tgc eval MODEL --data TEXT" },
        { "finetune", "it is tgc train MODEL --data FILE" },
};

/* A word that is no command. */
static int other_command(const char *name, Err *e)
{
        for (size_t i = 0; i < sizeof other_commands / sizeof *other_commands; i++)
                if (!strcmp(name, other_commands[i].typed))
                        return err_set(e, TGC_USAGE, "there is no command '%s': %s", name,
                                       other_commands[i].what);
        if (file_exists(name) || file_is_dir(name))
                return err_set(e, TGC_USAGE,
                               "'%.200s' is a file, and a command comes first: tgc run %.200s "
                               "-p TEXT, tgc chat %.200s, tgc info %.200s",
                               name, name, name, name);
        return TGC_OK;
}

int command_find(const char *name, Err *e)
{
        int best = 0, best_d = LONGEST_WORD;
        for (int c = 0; c < N_COMMANDS; c++) {
                int d = slip_distance(name, command_info[c].name);
                if (!strcmp(name, command_info[c].name))
                        return c;
                if (d < best_d) {
                        best = c;
                        best_d = d;
                }
        }
        if (other_command(name, e))
                return -1;
        if (best_d <= near_enough(name))
                err_set(e, TGC_USAGE, "unknown command '%.60s'; did you mean %s?", name,
                        command_info[best].name);
        else
                err_set(e, TGC_USAGE, "unknown command '%.60s'; `tgc help` lists the commands",
                        name);
        return -1;
}

/* ---- values ---- */

static int set_flag(OptionValue *v, const OptionInfo *x, const char *s, Err *e)
{
        static const char *const yes[] = { "1", "true", "True", "yes", "on" }, *const no[] = {
                "0", "false", "False", "no", "off"
        };
        for (int k = 0; k < 5; k++)
                if (!strcmp(s, yes[k]) || !strcmp(s, no[k])) {
                        v->i = !strcmp(s, yes[k]);
                        return TGC_OK;
                }
        return err_set(e, TGC_USAGE, "--%s: '%.60s' is neither true nor false", x->name, s);
}

/* In as few digits as read back. */
static const char *bound(double x, char out[32])
{
        snprintf(out, 32, "%.15g", x);
        if (c_strtod(out, NULL) != x)
                snprintf(out, 32, "%.17g", x);
        return out;
}

static int set_number(OptionValue *v, const OptionInfo *x, const char *s, Err *e)
{
        char *end, low[32], high[32];
        const char *what = x->kind == OPT_INT ? "whole number" : "number";
        errno = 0;
        if (x->kind == OPT_INT) {
                v->i = strtoll(s, &end, 10);
                v->d = (double)v->i;
        } else {
                v->d = c_strtod(s, &end);
        }
        if (end == s || *end || isnan(v->d))
                return err_set(e, TGC_USAGE, "--%s: '%.60s' is not a %s (%s to %s)", x->name, s,
                               what, bound(x->lo, low), bound(x->hi, high));
        /* a whole number beyond 2^53 is none as a double */
        if ((errno == ERANGE && fabs(v->d) > 1) || v->d < x->lo || v->d > x->hi ||
            (x->kind == OPT_INT && v->i > (long long)x->hi))
                return err_set(e, TGC_USAGE, "--%s: %.60s is outside %s to %s", x->name, s,
                               bound(x->lo, low), bound(x->hi, high));
        return TGC_OK;
}

/* PyTorch's names of them, as nanoGPT has them. */
static const char *type_word(const char *s)
{
        static const char *const word[][2] = { { "float32", "f32" },
                                               { "bfloat16", "bf16" },
                                               { "float16", "f16" } };
        for (int i = 0; i < 3; i++)
                if (!strcmp(s, word[i][0]))
                        return word[i][1];
        return s;
}

static int set_choice(OptionValue *v, const OptionInfo *x, const char *s, Err *e)
{
        if (x == &option_info[O_DTYPE])
                v->s = s = type_word(s);
        size_t n = strlen(s);
        int k = 0;
        for (const char *w = x->meta; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL, k++)
                if (n == strcspn(w, "|") && !strncmp(w, s, n)) {
                        v->i = k;
                        return TGC_OK;
                }
        return err_set(e, TGC_USAGE, "--%s: '%.60s' is not one of %s", x->name, s, x->meta);
}

static int set_list(OptionValue *v, const OptionInfo *x, const char *s, Err *e)
{
        const char **p = realloc(v->list, (size_t)(v->n + 1) * sizeof *p);
        if (!p)
                return err_set(e, TGC_NO_MEMORY, "--%s: no memory", x->name);
        v->list = p;
        v->list[v->n++] = s;
        return TGC_OK;
}

static int set_value(OptionValue *v, const OptionInfo *x, const char *s, Err *e)
{
        v->s = s;
        switch (x->kind) {
        case OPT_FLAG: return set_flag(v, x, s, e);
        case OPT_INT:
        case OPT_NUM: return set_number(v, x, s, e);
        case OPT_CHOICE: return set_choice(v, x, s, e);
        case OPT_LIST: return set_list(v, x, s, e);
        case OPT_STR: return TGC_OK;
        case OPT_FILE:
        case OPT_DIR:
                return *s ? TGC_OK : err_set(e, TGC_USAGE, "--%s: the name is empty", x->name);
        }
        return TGC_OK;
}

int option_set(Args *a, OptionId o, const char *s, Err *e)
{
        a->v[o].set = true;
        return set_value(&a->v[o], &option_info[o], s, e);
}

/* ---- the line ---- */

typedef struct Line {
        Args *a;
        int argc, at;
        char **argv;
        Err *e;
} Line;

static int take_value(Line *l, int o, const char *attached)
{
        const OptionInfo *x = &option_info[o];
        OptionValue *v = &l->a->v[o];
        if (v->set && (o == O_FILE || o == O_PROMPT_IDS))
                return err_set(l->e, TGC_USAGE,
                               "--%s: given twice; several prompts are -p TEXT -p TEXT", x->name);
        v->set = true;
        if (!attached && x->kind == OPT_FLAG) {
                v->i = 1;
                return TGC_OK;
        }
        if (!attached && l->at == l->argc)
                return err_set(l->e, TGC_USAGE, "--%s needs a value: %s (%s)", x->name, x->meta,
                               x->help);
        return set_value(v, x, attached ? attached : l->argv[l->at++], l->e);
}

/* --n_layer=4 is -D n_layer=4: nanoGPT's names, and what is like no option here; the model refuses
 * those that it does not have. */
static bool is_model_key(CommandId cmd, const char *name)
{
        static const char *const known[] = { "n-layer", "n-head", "n-embd",
                                             "dropout", "bias",   "vocab-size" };
        char row[LONGEST_WORD + 1];
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (!strcmp(known[i], name))
                        return true;
        for (int o = 0; o < N_OPTIONS; o++) {
                plain_name(row, option_info[o].name, LONGEST_WORD);
                int d = slip_distance(row, name);
                if (!d || ((option_info[o].commands >> cmd & 1) && d <= near_enough(name)))
                        return false;
        }
        return true;
}

static int define(Line *l, const char *text)
{
        for (char *s = (char *)text; *s && *s != '='; s++) /* argv is ours */
                if (*s == '-')
                        *s = '_';
        l->a->v[O_DEFINE].set = true;
        return set_value(&l->a->v[O_DEFINE], &option_info[O_DEFINE], text, l->e);
}

static int take_long(Line *l, const char *arg)
{
        char name[LONGEST_WORD + 1];
        const char *eq = strchr(arg, '=');
        plain_name(name, arg + 2, eq ? (size_t)(eq - arg - 2) : strlen(arg + 2));
        if (!strcmp(name, "help")) {
                l->a->help = true;
                return TGC_OK;
        }
        int o = find_long(l->a->cmd, name),
            no = strncmp(name, "no-", 3) ? -1 : find_long(l->a->cmd, name + 3);
        if (o >= 0)
                return take_value(l, o, eq ? eq + 1 : NULL);
        if (eq && (ON_MODEL >> l->a->cmd & 1) && is_model_key(l->a->cmd, name))
                return define(l, arg + 2);
        if (no < 0 || eq || option_info[no].kind != OPT_FLAG)
                return unknown_option(l->a->cmd, arg, name, l->e);
        l->a->v[no].set = true;
        l->a->v[no].i = 0;
        return TGC_OK;
}

/* -n5, -n 5, -n=5; flags may be run together: -qx. */
static int take_short(Line *l, const char *arg)
{
        for (const char *c = arg + 1; *c; c++) {
                if (*c == 'h' && find_letter(l->a->cmd, 'h') < 0) {
                        l->a->help = true;
                        continue;
                }
                int o = find_letter(l->a->cmd, *c);
                if (o < 0)
                        return unknown_option(l->a->cmd, arg, arg + 1, l->e);
                if (option_info[o].kind != OPT_FLAG)
                        return take_value(l, o, c[1] ? c + 1 + (c[1] == '=') : NULL);
                take_value(l, o, NULL);
        }
        return TGC_OK;
}

static int check_count(const Args *a, Err *e)
{
        const CommandInfo *c = &command_info[a->cmd];
        if (a->n_pos < c->min_args)
                return err_set(e, TGC_USAGE, "%s: %.*s is missing; usage: tgc %s %s", c->name,
                               (int)strcspn(c->usage, " "), c->usage, c->name, c->usage);
        const bool text = a->cmd == CMD_RUN || a->cmd == CMD_TOKENIZE || a->cmd == CMD_EMBED;
        if (a->n_pos > c->max_args)
                return err_set(e, TGC_USAGE,
                               "%s: '%.60s' is one argument too many; %susage: tgc %s %s", c->name,
                               a->pos[c->max_args], text ? "a text is -p TEXT; " : "", c->name,
                               c->usage);
        return TGC_OK;
}

int args_parse(Args *a, CommandId cmd, int argc, char **argv, Err *e)
{
        Line l = { a, argc, 0, argv, e };
        bool only_pos = false;
        int code = TGC_OK;

        *a = (Args) { .cmd = cmd };
        a->pos = calloc((size_t)argc + 1, sizeof *a->pos);
        if (!a->pos)
                return err_set(e, TGC_NO_MEMORY, "no memory for the command line");
        for (int o = 0; o < N_OPTIONS && !code; o++)
                if (option_info[o].dflt)
                        code = set_value(&a->v[o], &option_info[o], option_info[o].dflt, e);
        while (l.at < argc && !code) {
                const char *arg = argv[l.at++];
                if (only_pos || *arg != '-' || !arg[1])
                        a->pos[a->n_pos++] = arg;
                else if (!strcmp(arg, "--"))
                        only_pos = true;
                else if (!(code = check_habit(cmd, arg, e)))
                        code = arg[1] == '-' ? take_long(&l, arg) : take_short(&l, arg);
        }
        if (!code && !a->help)
                code = check_count(a, e);
        return code;
}

void args_free(Args *a)
{
        for (int o = 0; o < N_OPTIONS; o++)
                free(a->v[o].list);
        free(a->pos);
        *a = (Args) { 0 };
}
