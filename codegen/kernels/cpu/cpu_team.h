/* cpu_team.h: the thread team that shares a kernel's tiles.
 *
 * A generated kernel has two entry points:
 *
 *      k3_part(rt, arg, view)  one thread's share: takes tiles until none is left
 *      k3(rt, arg)             the whole kernel, by threads that start and end here
 *
 * tgc_replay runs a list of kernels with one team.  A kernel is done when its tiles are, not when
 * all threads reach its end: a thread that the system suspends between two tiles delays nobody.
 * When it resumes, it finds its kernel over (`plan` names a later step) and joins the current one.
 *
 * Each thread owns a range of tiles, usually contiguous in memory; a thread with none left steals
 * from others, one by one.  A slot counts the tiles taken of a range, tagged with the step; a slot
 * of an earlier step counts as none taken. */
#ifndef TGC_CPU_TEAM_H
#define TGC_CPU_TEAM_H

#include "cpu_tgc.h"
#include <stdlib.h>
#include <strings.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
        TEAM_SLOTS = 64,  /* further threads have no range of their own */
        TEAM_SPIN = 4000, /* polls before a thread sleeps, about 0.1 ms; none if OpenMP's threads
                           * do not spin */
};

typedef struct TeamSlot {
        uint64_t taken; /* step << 32 | number of tiles taken */
        char pad[120];  /* slots share neither a cache line nor a pair of lines */
} TeamSlot;

typedef struct Team {
        TeamSlot slot[TEAM_SLOTS];
        uint64_t plan; /* step << 32 | units of that step's kernel */
        char pad0[120];
        unsigned done; /* finished units of the current step */
        char pad1[124];
        unsigned at; /* finished steps */
        int asleep;  /* threads that wait for `at` to change */
        int spin;    /* polls before a thread sleeps */
        char pad2[116];
} Team;

/* One thread's view; step counts from 1.  asks: the kernel only reports its number of units. */
typedef struct TeamView {
        Team *team; /* NULL: the thread is alone */
        int me, threads;
        unsigned step;
        int asks;
        long units;
} TeamView;

/* A thread's work in one kernel.  A unit is a tile or, for a single-threaded kernel, all of them:
 * from .. to.  first: none was taken before. */
typedef struct TeamWork {
        TeamView *v;
        long units, each, tiles, from, to;
        int next, taken, first;
} TeamWork;

typedef void TeamPart(const Rt *rt, void *const *arg, TeamView *v);

/* parallel: more than one thread pays. */
TGC_INLINE TeamWork team_begin(TeamView *v, long tiles, int parallel)
{
        TeamWork w = { .v = v, .tiles = tiles, .each = parallel && tiles > 0 ? 1 : tiles };
        w.units = parallel && tiles > 0 ? tiles : 1; /* at least one, which somebody must finish */
        if (v->asks) {
                v->units = w.units;
                w.units = -1;
        }
        if (!v->team)
                return w;
        const uint64_t step = (uint64_t)v->step << 32;
        uint64_t plan = __atomic_load_n(&v->team->plan, __ATOMIC_ACQUIRE);
        while (plan < step)
                if (__atomic_compare_exchange_n(&v->team->plan, &plan, step | (uint64_t)w.units, 0,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                        plan = step | (uint64_t)w.units;
        w.units = plan >> 32 == v->step ? (long)(plan & 0xffffffffu) : -1; /* -1: over */
        return w;
}

/* Takes one of slot s's range; -1: none left. */
TGC_INLINE long team_take(const TeamWork *w, int s, int slots)
{
        const long from = w->units * s / slots, n = w->units * (s + 1) / slots - from;
        const uint64_t step = (uint64_t)w->v->step << 32;
        uint64_t *taken = &w->v->team->slot[s].taken, was;
        if (!n)
                return -1;
        was = __atomic_load_n(taken, __ATOMIC_RELAXED);
        for (;;) {
                const uint64_t k = was < step ? 0 : was - step;
                if (k >= (uint64_t)n)
                        return -1;
                if (__atomic_compare_exchange_n(taken, &was, step + k + 1, 0, __ATOMIC_ACQ_REL,
                                                __ATOMIC_RELAXED))
                        return from + (long)k;
        }
}

TGC_INLINE void team_wake(Team *t)
{
#if defined __linux__
        if (__atomic_load_n(&t->asleep, __ATOMIC_SEQ_CST))
                syscall(SYS_futex, &t->at, FUTEX_WAKE_PRIVATE, 1 << 30, 0, 0, 0);
#else
        (void)t;
#endif
}

/* The next tiles, w->from .. w->to, or 0. */
static __attribute__((noinline, unused)) int team_next(TeamWork *w)
{
        TeamView *v = w->v;
        if (!v->team) {
                w->first = 1;
                w->to = w->tiles;
                return w->units > 0 && !w->taken++;
        }
        const int slots = v->threads < TEAM_SLOTS ? v->threads : TEAM_SLOTS;
        for (; w->units >= 0 && w->next < slots; w->next++) {
                const int s = (v->me + w->next) % slots;
                const long u = team_take(w, s, slots);
                if (u < 0)
                        continue;
                w->first = !w->taken++;
                w->from = u * w->each;
                w->to = w->from + w->each;
                return 1;
        }
        if (w->taken && __atomic_add_fetch(&v->team->done, (unsigned)w->taken, __ATOMIC_ACQ_REL) ==
                                (unsigned)w->units) {
                __atomic_store_n(&v->team->done, 0, __ATOMIC_RELAXED);
                __atomic_store_n(&v->team->at, v->step, __ATOMIC_SEQ_CST);
                team_wake(v->team);
        }
        return 0;
}

TGC_INLINE void team_pause(void)
{
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile("yield");
#endif
}

/* Waits until v's step is done. */
TGC_INLINE void team_wait(TeamView *v)
{
        Team *t = v->team;
        unsigned at;
        for (int i = 0; (at = __atomic_load_n(&t->at, __ATOMIC_ACQUIRE)) < v->step; i++) {
                if (i < t->spin) {
                        team_pause();
                        continue;
                }
#if defined __linux__
                __atomic_add_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
                if (__atomic_load_n(&t->at, __ATOMIC_SEQ_CST) == at)
                        syscall(SYS_futex, &t->at, FUTEX_WAIT_PRIVATE, at, 0, 0, 0);
                __atomic_sub_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
#endif
        }
}

TGC_INLINE int team_me(void)
{
#ifdef _OPENMP
        return omp_get_thread_num();
#else
        return 0;
#endif
}
TGC_INLINE int team_threads(void)
{
#ifdef _OPENMP
        return omp_get_num_threads();
#else
        return 1;
#endif
}

TGC_INLINE int team_most(void)
{
#ifdef _OPENMP
        return omp_get_max_threads();
#else
        return 1;
#endif
}

/* Is the kernel worth several threads? */
TGC_INLINE int team_many(TeamPart *part, const Rt *rt, void *const *arg)
{
        TeamView ask = { .asks = 1 };
        part(rt, arg, &ask);
        return ask.units > 1;
}

/* Runs one kernel alone. */
static __attribute__((noinline, unused)) void team_alone(TeamPart *part, const Rt *rt,
                                                         void *const *arg)
{
        if (team_most() == 1 || !team_many(part, rt, arg)) {
                part(rt, arg, &(TeamView) { 0 });
                return;
        }
        Team team;
        memset(&team, 0, sizeof team);
#ifdef _OPENMP
#pragma omp parallel
#endif
        {
                TeamView v = { &team, team_me(), team_threads(), 1, 0, 0 };
                part(rt, arg, &v);
        }
}

/* One thread's work in n kernels. */
TGC_INLINE void team_follow(TeamView *v, int n, TeamPart *const *part, void *const *const *arg)
{
        for (;;) {
                const unsigned at = __atomic_load_n(&v->team->at, __ATOMIC_ACQUIRE);
                if (at >= (unsigned)n)
                        return;
                v->step = at + 1;
                part[at](arg[at][0], arg[at], v);
                team_wait(v);
        }
}

#define TGC_KERNEL(name) \
        void name(const Rt *rt, void *const *arg) { team_alone(name##_part, rt, arg); }

/* Runs n kernels one after the other, with their arguments.  Every unit defines it; the linker
 * keeps one. */
__attribute__((weak, noinline)) void tgc_replay(int n, TeamPart *const *part,
                                                void *const *const *arg)
{
        int many = 0;
        for (int i = 0; i < n && !many && team_most() > 1; i++)
                many = team_many(part[i], arg[i][0], arg[i]);
        for (int i = 0; i < n && !many; i++)
                part[i](arg[i][0], arg[i], &(TeamView) { 0 });
        if (!many)
                return;
        const char *policy = getenv("OMP_WAIT_POLICY");
        Team team;
        memset(&team, 0, sizeof team);
        team.spin = policy && !strcasecmp(policy, "passive") ? 0 : TEAM_SPIN;
#ifdef _OPENMP
#pragma omp parallel
#endif
        {
                team_follow(&(TeamView) { &team, team_me(), team_threads(), 0, 0, 0 }, n, part,
                            arg);
        }
}

#endif
