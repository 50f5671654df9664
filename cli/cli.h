/* cli.h: what every command uses: messages, signals, options.  Functions are grouped by the file
 * that defines them.  Data goes to stdout, messages to stderr. */
#ifndef TGC_CLI_H
#define TGC_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "option.h"
#include "../runtime/util/err.h"
#include "../runtime/util/stop.h"

/* ---- progress.c: talk ---- */

typedef struct Progress {
        bool quiet, color, tty;
} Progress;
Progress progress_new(const Args *a); /* NO_COLOR, TGC_LOG=quiet, --quiet */
void say(const Progress *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void say_error(const char *msg); /* "tgc: error: MSG", or the message's own place first */
/* A line that is written over by the next one; on a terminal only. */
void progress_bar(const Progress *s, double part, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void progress_bar_end(const Progress *s);
double clock_s(void);
const char *text_bytes(char *buf, size_t cap, double bytes); /* "1.50 GB" */
const char *text_count_si(char *buf, size_t cap, double n);  /* "124.4M" */
int out_done(Err *e); /* flush stdout; TGC_IO when it could not take all */

/* ---- plain.c: text from files, for people ---- */

/* What a terminal would obey is written as \x1b or \u009b, so is what is no UTF-8. */
void put_plain(FILE *f, const char *text, size_t n);
/* A message: what it repeats of the arguments stays in its line, as \x0a. */
void put_message(FILE *f, const char *text);
void plain_arguments(int argc, char **argv);
bool vprint_plain(FILE *f, const char *fmt, va_list ap); /* false: cut, no memory */
void json_start(void);                                   /* open.c; before any JSON is made */
/* What a model says, to stdout: as it is, but to a terminal without control characters. */
void put_generated(const char *text, size_t n);
void put_json(FILE *f, const char *text); /* JSON, its control characters as \u009b */
extern bool print_lost; /* some of it was not written: there was no memory (out_done) */
/* printf, through put_plain */
void print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- signals.c ---- */

/* Without signals_defer a signal ends the process at once.  With it the first one
 * is kept for signal_seen, the second ends.  While a compiler runs the first one
 * stops that, so that no temporary folder stays. */
void signals_install(void);
void signals_defer(void);
/* While on, Ctrl-C without signals_defer does nothing. */
void signals_prompt(bool on);
int signals_prompt_fd(void); /* readable after a Ctrl-C at the prompt */
void signals_forget(void);   /* as before signals_defer: what was seen is dealt with */
/* From signals_save on SIGUSR1 is kept: was there one since the last look? */
void signals_save(void);
bool signal_save_seen(void);
int signal_seen(void);    /* 0, SIGINT, SIGTERM or SIGHUP */
Stop *signals_stop(void); /* for what compiles; its TGC_STOPPED means 128 + signal_seen() */

/* How the terminal was is kept; what ends the process gives it back so. */
void terminal_keep(void);
void terminal_give_back(void);

/* ---- utf8.c ---- */

/* Bytes of s that may be printed now: all but a sequence at the end that further
 * bytes could complete. */
size_t utf8_ready(const char *s, size_t n);

/* ---- version.c, which the Makefile writes ---- */

extern const char build_commit[], build_compiler[]; /* "8346fc5b1e", "gcc 12.2.0" */

/* ---- help_models.c ---- */

/* what: "lua" or "models", of these `name` or, NULL, all. */
int help_models(const char *what, const char *name, bool markdown, Err *e);

/* ---- effects.c ---- */

/* TGC_USAGE where an option that was given would change nothing */
int effects_check(const Args *a, Err *e);
bool effects_known(OptionId o, CommandId cmd); /* effects.def has a line for it */

/* ---- outputs.c ---- */

/* TGC_USAGE where an output is a file that the command reads */
int outputs_check(const Args *a, Err *e);
/* Refuses a given --out_dir that is a file, where something is written to it. */
int out_dir_check(const Args *a, Err *e);
/* Do both stand for one file or folder that is there? */
bool paths_same(const char *a, const char *b);

/* ---- folders.c ---- */

int make_folder(const char *path, Err *e);        /* and its parents; one that is there is fine */
bool path_has(const char *dir, const char *name); /* a file, or a folder */

/* ---- commands ---- */
#define COMMAND(id, name, ...) int cmd_##name(const Args *a, Err *e);
#include "commands.def"
#undef COMMAND

int tgc_main(int argc, char **argv); /* tgc.c */

#endif
