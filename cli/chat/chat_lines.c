/* chat_lines.c: reads what a person types.  On a terminal there is an editor with a history
 * (line_editor.c); otherwise lines of standard input are read. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "chat.h"

void lines_open(Lines *l)
{
        *l = (Lines) { .tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) };
        if (!l->tty)
                return;
        l->editor = editor_open();
        signals_prompt(true);
}

void lines_close(Lines *l)
{
        if (l->editor)
                editor_close();
        if (l->tty)
                signals_prompt(false);
        *l = (Lines) { 0 };
}

/* The prompt, and until a line or the end is there; false: Ctrl-C.  The signal comes as a byte of a
 * pipe: whenever it came, and whichever thread took it, it is not lost. */
static bool line_comes(const char *prompt)
{
        struct pollfd on[2] = { { STDIN_FILENO, POLLIN, 0 }, { signals_prompt_fd(), POLLIN, 0 } };
        char byte[64];
        while (read(on[1].fd, byte, sizeof byte) > 0) /* those before the prompt */
                ;
        fputs(prompt, stdout);
        fflush(stdout);
        while (poll(on, 2, -1) < 0 && errno == EINTR)
                ;
        return !on[1].revents;
}

/* Without the newline; NULL: the end, or Ctrl-C. */
static char *one_line(Lines *l, const char *prompt)
{
        char *line = NULL;
        size_t cap = 0;
        if (l->editor)
                return editor_line(prompt, &l->interrupted);
        if (l->tty && (l->interrupted = !line_comes(prompt)))
                return NULL;
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

/* Ctrl-C is no end of the input: what was typed is forgotten. */
static char *typed(Lines *l, const char *prompt)
{
        for (;;) {
                char *all = whole_message(l, prompt);
                if (!l->interrupted)
                        return all;
                l->interrupted = false;
                free(all);
                clearerr(stdin);
                fputs("\n", stdout);
        }
}

char *lines_read(Lines *l, const char *prompt)
{
        char *all = l->tty ? typed(l, prompt) : whole_message(l, prompt);
        if (all && *all && l->editor && !strchr(all, '\n'))
                editor_remember(all);
        return all;
}
