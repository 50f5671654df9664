/* option.h: one table of options and one of commands.  Parsing, help, the man
 * page and shell completion all come from them, so none can disagree. */
#ifndef TGC_OPTION_H
#define TGC_OPTION_H

#include <stdbool.h>
#include <stdint.h>
#include "../runtime/util/err.h"

/* Commands as bits: an option's row says where it belongs. */
typedef enum {
#define COMMAND(id, ...) CMD_##id,
#include "commands.def"
#undef COMMAND
        N_COMMANDS
} CommandId;

enum {
#define COMMAND(id, ...) ON_##id = 1 << CMD_##id,
#include "commands.def"
#undef COMMAND
        ON_SAY = ON_RUN | ON_CHAT,
        ON_MODEL = ON_COMPILE | ON_SAY | ON_TRAIN | ON_EVAL | ON_EMBED | ON_DUMP | ON_CHECK |
                   ON_BENCH | ON_TUNE | ON_INFO,
        ON_DEVICE = ON_SAY | ON_TRAIN | ON_EVAL | ON_EMBED | ON_CHECK | ON_BENCH | ON_TUNE,
        ON_ALL = (1 << N_COMMANDS) - 1
};

typedef enum {
        OPT_FLAG, /* --x, --no-x, --x=true|false */
        OPT_INT,
        OPT_NUM, /* lo and hi bound them */
        OPT_STR,
        OPT_FILE,
        OPT_DIR,
        OPT_CHOICE, /* meta lists the words: a|b|c */
        OPT_LIST    /* may be given again and again */
} OptKind;

typedef enum {
#define OPTION(id, ...) O_##id,
#include "options.def"
#undef OPTION
        N_OPTIONS
} OptionId;

typedef struct OptionInfo {
        const char *name; /* '-' and '_' are alike: --batch-size is --batch_size */
        char letter;      /* 0: none */
        OptKind kind;
        const char *dflt; /* as typed; NULL: none */
        double lo, hi;
        unsigned commands;
        const char *meta, *group, *help;
} OptionInfo;

typedef struct Args Args;

typedef struct CommandInfo {
        const char *name;
        int min_args, max_args;
        const char *usage, *brief;
        const char *text, *examples; /* for `tgc help NAME` */
        int (*run)(const Args *a, Err *e);
} CommandInfo;

/* What users of another program type. */
typedef struct HabitInfo {
        const char *typed;
        unsigned commands;
        const char *what;
} HabitInfo;
enum {
        N_HABITS = 0
#define HABIT(...) +1
#include "habits.def"
#undef HABIT
};

extern const HabitInfo habit_info[N_HABITS];
extern const OptionInfo option_info[N_OPTIONS];
extern const CommandInfo command_info[N_COMMANDS];

typedef struct OptionValue {
        bool set;      /* given by the user */
        const char *s; /* as typed, else the default; may be NULL */
        int64_t i;     /* OPT_INT, OPT_FLAG (0, 1), OPT_CHOICE (index) */
        double d;
        const char **list;
        int n; /* OPT_LIST */
} OptionValue;

/* Strings are argv's. */
struct Args {
        CommandId cmd;
        OptionValue v[N_OPTIONS];
        const char **pos;
        int n_pos; /* what is no option */
        bool help; /* --help was among them */
};

/* argv[0..argc): what follows the command's name.  TGC_USAGE with a message that
 * says what would have been right. */
int args_parse(Args *a, CommandId cmd, int argc, char **argv, Err *e);
void args_free(Args *a);
/* as if --NAME=S was given; s stays the caller's */
int option_set(Args *a, OptionId o, const char *s, Err *e);
int command_find(const char *name, Err *e); /* or -1, with a suggestion in e */

static inline bool opt_set(const Args *a, OptionId o) { return a->v[o].set; }
static inline bool opt_flag(const Args *a, OptionId o) { return a->v[o].i != 0; }
static inline int opt_int(const Args *a, OptionId o) { return (int)a->v[o].i; }
static inline double opt_num(const Args *a, OptionId o) { return a->v[o].d; }
static inline const char *opt_str(const Args *a, OptionId o) { return a->v[o].s; }
/* --offload none|optimizer|activations|both */
static inline bool offloads_states(const Args *a) { return opt_int(a, O_OFFLOAD) & 1; }
static inline bool offloads_activations(const Args *a) { return opt_int(a, O_OFFLOAD) & 2; }

/* Edits (insert, delete, replace, swap neighbours) between two words. */
int edit_distance(const char *a, const char *b);

/* ---- help.c: to stdout ---- */
void help_overview(void);
void help_command(CommandId cmd);
void help_man(void); /* roff */

/* ---- completion.c: to stdout ---- */
void help_completion(const char *shell); /* bash, zsh or fish */

#endif
