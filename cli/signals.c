/* signals.c: handles Ctrl-C, kill and a terminal that hangs up.  Holds the command line's only
 * global state. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "../runtime/util/temp.h"
#include "cli.h"

static volatile sig_atomic_t deferred, seen, prompting;
static int wake[2] = { -1, -1 }; /* a pipe: a byte for a Ctrl-C at the prompt */
static Stop stop;

/* ---- the terminal ---- */

static struct termios before;
static volatile sig_atomic_t kept;

void terminal_give_back(void)
{
        if (kept && tcgetpgrp(STDIN_FILENO) == getpgrp()) /* else it is another's, and SIGTTOU */
                tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void terminal_keep(void)
{
        if (!kept && !tcgetattr(STDIN_FILENO, &before)) {
                kept = 1;
                atexit(terminal_give_back);
        }
}

/* ---- signals that end, or ask for an end ---- */

static void end(int code)
{
        terminal_give_back();
        temps_unlink();
        _exit(code);
}

static void on_signal(int number)
{
        if (prompting && number == SIGINT && !deferred && !atomic_load(&stop.working)) {
                const int was = errno;
                if (write(wake[1], "", 1) < 0) /* full: one byte is as good as many */
                        errno = was;
                errno = was;
                return;
        }
        if ((!deferred && !atomic_load(&stop.working)) || seen)
                end(128 + number);
        seen = number;
        atomic_store(&stop.asked, 1);
}

/* ---- a file that got shorter while it was mapped, or whose disk failed ---- */

/* Plain text on standard error, from a signal handler. */
static void put(const char *s, size_t n)
{
        while (n) {
                ssize_t k = write(2, s, n);
                if (k <= 0)
                        return;
                s += k;
                n -= (size_t)k;
        }
}

/* One line of /proc/self/maps, "from-to perms offset dev inode   path": does it hold the address? 
 *                                                                Its path. */
static const char *path_of(char *line, uintptr_t address)
{
        uintptr_t end[2] = { 0, 0 };
        int k = 0;
        for (; *line && *line != ' '; line++) {
                const char *digits = "0123456789abcdef", *d = strchr(digits, *line);
                if (*line == '-')
                        k = 1;
                else if (d)
                        end[k] = end[k] * 16 + (uintptr_t)(d - digits);
        }
        for (char *c = line; *c; c++)
                if ((unsigned char)*c < ' ' || *c == 127)
                        *c = '?';
        return address >= end[0] && address < end[1] ? strchr(line, '/') : NULL;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
        static char line[5000], part[512];
        static const char before[] = "tgc: error: ",
                          after[] = ": the file got shorter while it was read, or cannot be read\n",
                          unknown[] = "a file";
        const char *path = NULL;
        size_t n = 0;
        int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        (void)number, (void)context;
        for (ssize_t k; fd >= 0 && !path && (k = read(fd, part, sizeof part)) > 0;)
                for (ssize_t i = 0; i < k && !path; i++) {
                        if (part[i] != '\n') {
                                line[n] = part[i];
                                n += n + 1 < sizeof line;
                                continue;
                        }
                        line[n] = 0;
                        path = path_of(line, (uintptr_t)info->si_addr);
                        n = 0;
                }
        put(before, sizeof before - 1);
        put(path ? path : unknown, path ? strlen(path) : sizeof unknown - 1);
        put(after, sizeof after - 1);
        terminal_give_back();
        _exit(TGC_IO);
}

void signals_install(void)
{
        struct sigaction bus = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
        sigemptyset(&bus.sa_mask);
        sigaction(SIGBUS, &bus, NULL);
        struct sigaction hup, a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        sigemptyset(&a.sa_mask);
        sigaction(SIGINT, &a, NULL);
        sigaction(SIGTERM, &a, NULL);
        if (!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler != SIG_IGN) /* nohup's stays ignored */
                sigaction(SIGHUP, &a, NULL);
        signal(SIGXFSZ, SIG_IGN); /* a file too large is an error of write */
}

/* Also: who stops reading our talk must not stop the work. */
void signals_defer(void)
{
        signal(SIGPIPE, SIG_IGN);
        deferred = 1;
}

static volatile sig_atomic_t save_asked;

static void on_save(int number)
{
        (void)number;
        save_asked = 1;
}

void signals_save(void)
{
        struct sigaction a = { .sa_handler = on_save, .sa_flags = SA_RESTART };
        sigemptyset(&a.sa_mask);
        sigaction(SIGUSR1, &a, NULL);
}

bool signal_save_seen(void)
{
        const bool was = save_asked;
        save_asked = 0;
        return was;
}

int signal_seen(void) { return seen; }

void signals_prompt(bool on)
{
        if (on && wake[0] < 0 && pipe2(wake, O_CLOEXEC | O_NONBLOCK))
                wake[0] = wake[1] = -1;
        prompting = on && wake[0] >= 0;
}

int signals_prompt_fd(void) { return wake[0]; }

/* In this order: a signal in between is of no answer. */
void signals_forget(void)
{
        deferred = 0;
        seen = 0;
        atomic_store(&stop.asked, 0);
}

Stop *signals_stop(void) { return &stop; }
