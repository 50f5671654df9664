/* line_editor.c: line editing by libedit (BSD licence), which is opened at run time if it is
 * installed.
 *
 * This uses libedit's own interface, not its imitation of readline.  The imitation catches Ctrl-C
 * with a handler that sends the signal on to the whole process group, and between two prompts it
 * puts the terminal back into canonical mode.  A Ctrl-D typed there arrives as a NUL, which libedit
 * takes for "insert the next key as it is"; from then on Ctrl-D ended nothing.
 *
 * Here the terminal is never in canonical mode while there is an editor.  At a prompt ISIG is off:
 * Ctrl-C, Ctrl-Z and Ctrl-\ are keys, so no signal can arrive between a check and a read.
 * Elsewhere ISIG is on: Ctrl-C stops an answer, and what else is typed waits for the next
 * prompt. */
#include <dlfcn.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include "chat.h"

/* Of histedit.h, which need not be installed. */
enum { EL_PROMPT = 0, EL_EDITOR = 2, EL_SIGNAL = 3, EL_BIND = 4, EL_SETTY = 8, EL_ADDFN = 9 };
enum { EL_HIST = 10, EL_EDITMODE = 11, EL_PREP_TERM = 16 };
enum { CC_EOF = 2, CC_REDISPLAY = 8 };
enum { H_SETSIZE = 1, H_ENTER = 10, H_LOAD = 17, H_SAVE = 18 };
typedef struct HistEvent {
        int num;
        const char *str;
} HistEvent;
typedef unsigned char Key(void *el, int key);

enum { MOST_HISTORY = 1000 };

/* One, because a process has one terminal, and libedit calls back without an argument of ours. */
static struct {
        void *lib, *el, *past;
        const char *prompt;
        bool interrupted;
        locale_t was, utf8;
        char file[4400]; /* of the history; "": none */
        void *(*el_init)(const char *name, FILE *in, FILE *out, FILE *err);
        int (*el_set)(void *el, int what, ...);
        int (*el_get)(void *el, int what, ...);
        int (*el_source)(void *el, const char *path);
        const char *(*el_gets)(void *el, int *n);
        void (*el_end)(void *el);
        void *(*history_init)(void);
        int (*history)(void *past, HistEvent *ev, int what, ...);
        void (*history_end)(void *past);
        Key *complete; /* a file's name; may be NULL */
} ed;

/* ---- keys ---- */

static char *prompt(void *el)
{
        (void)el;
        return (char *)ed.prompt;
}

static unsigned char interrupt(void *el, int key)
{
        (void)el, (void)key;
        ed.interrupted = true;
        return CC_EOF;
}

/* As the terminal would: the shell gets it as it was. */
static unsigned char send(int number)
{
        struct termios now;
        const bool ok = !tcgetattr(STDIN_FILENO, &now);
        terminal_give_back();
        raise(number);
        if (ok)
                tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
        return CC_REDISPLAY;
}

static unsigned char suspend(void *el, int key)
{
        (void)el, (void)key;
        return send(SIGTSTP);
}

static unsigned char quit(void *el, int key)
{
        (void)el, (void)key;
        return send(SIGQUIT);
}

static void bind_keys(void)
{
        static const char *const key[][2] = {
                { "^R", "em-inc-search-prev" },   { "\\e[1~", "ed-move-to-beg" },
                { "\\e[4~", "ed-move-to-end" },   { "\\e[7~", "ed-move-to-beg" },
                { "\\e[8~", "ed-move-to-end" },   { "\\e[H", "ed-move-to-beg" },
                { "\\e[F", "ed-move-to-end" },    { "\\e[3~", "ed-delete-next-char" },
                { "\\e[1;5C", "em-next-word" },   { "\\e[1;5D", "ed-prev-word" },
                { "\\e[2~", "ed-quoted-insert" },
        };
        for (size_t i = 0; i < sizeof key / sizeof *key; i++)
                ed.el_set(ed.el, EL_BIND, key[i][0], key[i][1], (char *)NULL);
        if (!ed.complete)
                return;
        ed.el_set(ed.el, EL_ADDFN, "tgc-complete", "complete a file's name", ed.complete);
        ed.el_set(ed.el, EL_BIND, "^I", "tgc-complete", (char *)NULL);
}

/* After ~/.editrc, which may choose another map of keys. */
static void bind_signals(void)
{
        static const struct {
                const char *key, *name, *what;
                Key *f;
        } own[] = {
                { "^C", "tgc-interrupt", "leave the line", interrupt },
                { "^Z", "tgc-suspend", "stop the process", suspend },
                { "^\\", "tgc-quit", "end the process", quit },
        };
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
                ed.el_set(ed.el, EL_ADDFN, own[i].name, own[i].what, own[i].f);
                ed.el_set(ed.el, EL_BIND, own[i].key, own[i].name, (char *)NULL);
                ed.el_set(ed.el, EL_BIND, "-a", own[i].key, own[i].name, (char *)NULL); /* vi */
        }
        /* A Ctrl-D that was typed while the model was loaded (see above); Ctrl-Space. */
        ed.el_set(ed.el, EL_BIND, "^@", "ed-ignore", (char *)NULL);
}

/* ---- opening ---- */

static bool load_library(void)
{
        static const char *const name[] = { "libedit.so.2", "libedit.so.0", "libedit.so" };
        for (int i = 0; i < 3 && !ed.lib; i++)
                ed.lib = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
        if (!ed.lib)
                return false;
        const struct {
                void *f;
                const char *name;
        } symbol[] = {
                { &ed.el_init, "el_init" },
                { &ed.el_set, "el_set" },
                { &ed.el_get, "el_get" },
                { &ed.el_source, "el_source" },
                { &ed.el_gets, "el_gets" },
                { &ed.el_end, "el_end" },
                { &ed.history_init, "history_init" },
                { &ed.history, "history" },
                { &ed.history_end, "history_end" },
        };
        for (size_t i = 0; i < sizeof symbol / sizeof *symbol; i++)
                if (!(*(void **)symbol[i].f = dlsym(ed.lib, symbol[i].name)))
                        return false;
        *(void **)&ed.complete = dlsym(ed.lib, "_el_fn_complete");
        return true;
}

static void find_history(void)
{
        const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
        char dir[4096];
        if (state && *state == '/')
                snprintf(dir, sizeof dir, "%s", state);
        else if (home && *home == '/')
                snprintf(dir, sizeof dir, "%s/.local/state", home);
        else
                return;
        if (make_folder(dir, NULL))
                return;
        strncat(dir, "/tgc", sizeof dir - strlen(dir) - 1);
        if (!make_folder(dir, NULL))
                snprintf(ed.file, sizeof ed.file, "%s/chat_history", dir);
}

/* libedit drops bytes that the locale has no character for, and the command line runs in "C". */
static void use_utf8(void)
{
        locale_t mine = duplocale(uselocale((locale_t)0)), utf8;
        if (!mine)
                return;
        if (!(utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", mine)) &&
            !(utf8 = newlocale(LC_CTYPE_MASK, "", mine))) {
                freelocale(mine);
                return;
        }
        ed.was = uselocale(utf8);
        ed.utf8 = utf8;
}

bool editor_open(void)
{
        HistEvent ev;
        int editing = 0;
        terminal_keep();
        use_utf8();
        if (!load_library() || !(ed.past = ed.history_init()) ||
            !(ed.el = ed.el_init("tgc", stdin, stdout, stderr))) {
                editor_close();
                return false;
        }
        ed.el_set(ed.el, EL_SIGNAL, 0);
        ed.el_set(ed.el, EL_PROMPT, prompt);
        ed.el_set(ed.el, EL_HIST, ed.history, ed.past);
        ed.el_set(ed.el, EL_EDITOR, "emacs");
        bind_keys();
        ed.el_source(ed.el, NULL);
        bind_signals();
        ed.el_get(ed.el, EL_EDITMODE, &editing);
        if (!editing || /* ~/.editrc: edit off */
            ed.el_set(ed.el, EL_SETTY, "-d", "-isig", (char *)NULL) ||
            ed.el_set(ed.el, EL_SETTY, "-x", "-icanon", "-echo", (char *)NULL)) {
                editor_close();
                return false;
        }
        find_history();
        ed.history(ed.past, &ev, H_SETSIZE, MOST_HISTORY);
        if (*ed.file)
                ed.history(ed.past, &ev, H_LOAD, ed.file);
        return true;
}

void editor_close(void)
{
        if (ed.el) {
                ed.el_set(ed.el, EL_EDITMODE, 0); /* so that el_end keeps what is typed already */
                ed.el_end(ed.el);
        }
        if (ed.past)
                ed.history_end(ed.past);
        if (ed.lib)
                dlclose(ed.lib);
        if (ed.utf8) {
                uselocale(ed.was);
                freelocale(ed.utf8);
        }
        memset(&ed, 0, sizeof ed);
        terminal_give_back();
}

/* ---- lines ---- */

char *editor_line(const char *p, bool *interrupted)
{
        int n = 0;
        ed.prompt = p;
        ed.interrupted = false;
        ed.el_set(ed.el, EL_PREP_TERM, 1); /* before the prompt is there to be answered */
        const char *line = ed.el_gets(ed.el, &n);
        *interrupted = ed.interrupted;
        if (!line || n <= 0 || ed.interrupted)
                return NULL;
        return strndup(line, (size_t)n - (line[n - 1] == '\n'));
}

void editor_remember(const char *line)
{
        HistEvent ev;
        ed.history(ed.past, &ev, H_ENTER, line);
        mode_t was = umask(077);
        if (*ed.file)
                ed.history(ed.past, &ev, H_SAVE, ed.file);
        umask(was);
}
