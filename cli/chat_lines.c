/* chat_lines.c: what a person types, with line editing and a history.
 *
 * The editing is libedit's (BSD licence), opened at run time where it is there; else the terminal's
 * own.  What is no terminal is read line by line. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "chat.h"

enum { MOST_HISTORY = 1000 };

static void find_history(Lines *l)
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
                snprintf(l->history, sizeof l->history, "%s/chat_history", dir);
}

void lines_open(Lines *l)
{
        static const char *const name[] = { "libedit.so.2", "libedit.so.0", "libedit.so" };
        *l = (Lines) { .tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) };
        for (int i = 0; i < 3 && l->tty && !l->lib; i++)
                l->lib = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
        if (!l->lib)
                return;
        *(void **)&l->readline = dlsym(l->lib, "readline");
        *(void **)&l->add_history = dlsym(l->lib, "add_history");
        *(void **)&l->write_history = dlsym(l->lib, "write_history");
        void (*begin)(void), (*most)(int);
        int (*read)(const char *);
        *(void **)&begin = dlsym(l->lib, "using_history");
        *(void **)&most = dlsym(l->lib, "stifle_history");
        *(void **)&read = dlsym(l->lib, "read_history");
        if (!l->readline || !l->add_history || !l->write_history || !begin || !most || !read) {
                dlclose(l->lib);
                l->lib = NULL;
                return;
        }
        find_history(l);
        begin();
        most(MOST_HISTORY);
        if (*l->history)
                read(l->history);
}

void lines_close(Lines *l)
{
        if (l->lib)
                dlclose(l->lib);
        *l = (Lines) { 0 };
}

/* Without the newline; NULL: the end. */
static char *one_line(Lines *l, const char *prompt)
{
        char *line = NULL;
        size_t cap = 0;
        if (l->lib)
                return l->readline(prompt);
        if (l->tty) {
                fputs(prompt, stdout);
                fflush(stdout);
        }
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) {
                free(line);
                return NULL;
        }
        n -= n && line[n - 1] == '\n';
        n -= n && line[n - 1] == '\r';
        line[n] = 0;
        return line;
}

static char *append(char *all, const char *more, bool newline)
{
        size_t n = all ? strlen(all) : 0, m = strlen(more);
        char *p = realloc(all, n + m + 2);
        if (!p) {
                free(all);
                return NULL;
        }
        if (newline)
                p[n++] = '\n';
        memcpy(p + n, more, m + 1);
        return p;
}

/* Behind an opening """: up to the line that ends with another. */
static char *quoted(Lines *l, char *line)
{
        char *all = NULL, *rest = line + 3;
        for (bool first = true;; first = false) {
                size_t n = strlen(rest);
                bool last = n >= 3 && !strcmp(rest + n - 3, "\"\"\"");
                if (last)
                        rest[n - 3] = 0;
                if (!(first && !*rest)) /* the line of the """ alone is no line */
                        all = append(all, rest, all != NULL);
                free(line);
                if (last || !(line = rest = one_line(l, "... ")))
                        break;
        }
        if (all && *all && all[strlen(all) - 1] == '\n')
                all[strlen(all) - 1] = 0;
        return all ? all : strdup("");
}

static char *whole_message(Lines *l, const char *prompt)
{
        char *line = one_line(l, prompt), *all = NULL;
        if (line && !strncmp(line, "\"\"\"", 3))
                return quoted(l, line);
        for (; line; line = one_line(l, "... ")) {
                size_t n = strlen(line);
                bool more = n && line[n - 1] == '\\';
                if (more)
                        line[n - 1] = 0;
                all = append(all, line, all != NULL);
                free(line);
                if (!more || !all)
                        break;
        }
        return all;
}

/* Ctrl-C is no end of the input.  (With libedit it leaves the line as it is.) */
static char *typed(Lines *l, const char *prompt)
{
        for (;;) {
                signals_prompt(true);
                char *all = whole_message(l, prompt);
                signals_prompt(false);
                const bool again = !all && signal_seen() == SIGINT;
                signals_forget();
                if (!again)
                        return all;
                clearerr(stdin);
                fputs("\n", stdout);
        }
}

char *lines_read(Lines *l, const char *prompt)
{
        char *all = l->tty ? typed(l, prompt) : whole_message(l, prompt);
        if (all && *all && l->lib && !strchr(all, '\n')) {
                l->add_history(all);
                mode_t was = umask(077);
                if (*l->history)
                        l->write_history(l->history);
                umask(was);
        }
        return all;
}
