/* signals.c: Ctrl-C, kill and a terminal that goes.  The only state of the command line that is global. */
#include <signal.h>
#include <unistd.h>
#include "cli.h"

static volatile sig_atomic_t deferred, seen;
static Stop stop;

static void on_signal(int number)
{
        if ((!deferred && !atomic_load(&stop.working)) || seen)
                _exit(128 + number);
        seen = number;
        atomic_store(&stop.asked, 1);
}

void signals_install(void)
{
        struct sigaction hup, a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        sigemptyset(&a.sa_mask);
        sigaction(SIGINT, &a, NULL);
        sigaction(SIGTERM, &a, NULL);
        if (!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler != SIG_IGN)        /* nohup's stays ignored */
                sigaction(SIGHUP, &a, NULL);
        signal(SIGXFSZ, SIG_IGN);               /* a file too large is an error of write */
}

/* Also: who stops reading our talk must not stop the work. */
void signals_defer(void)
{
        signal(SIGPIPE, SIG_IGN);
        deferred = 1;
}

int signal_seen(void)
{
        return seen;
}

Stop *signals_stop(void)
{
        return &stop;
}
