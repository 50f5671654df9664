/* test_cpu_team.c: threads that share the tiles of one kernel after the other. */
#include <pthread.h>
#include <sched.h>
#include "cpu_kernels.h"
#include "cpu_team.h"

enum { KERNELS = 400, THREADS = 7, MOST = 200 };

/* Kernel i has tiles[i] tiles; each tile of it takes the whole result of the one before. */
static int tiles[KERNELS], alone[KERNELS], result[KERNELS][MOST], firsts[KERNELS], bad;
static Team team;

static void step(const Rt *rt, void *const *arg, TeamView *view)
{
        const int i = *(const int *)arg[1];
        (void)rt;
        TeamWork work = team_begin(view, tiles[i], !alone[i]);
        while (team_next(&work)) {
                if (work.first)
                        __atomic_add_fetch(&firsts[i], 1, __ATOMIC_RELAXED);
                for (long tile = work.from; tile < work.to; tile++) {
                        int sum = 1;
                        for (int k = 0; i && k < tiles[i - 1]; k++)
                                if (result[i - 1][k] != i)
                                        __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
                        if ((tile * 7 + i) % 31 == 0)
                                sched_yield(); /* held up with a tile in hand */
                        __atomic_add_fetch(&result[i][tile], sum + i, __ATOMIC_RELAXED);
                }
        }
        if ((i + view->me) % 97 == 0)
                sched_yield(); /* and between two kernels */
}

static int number[KERNELS];
static void *args[KERNELS][2];
static void *const *arg[KERNELS];
static TeamPart *part[KERNELS];

static void *follow(void *me)
{
        TeamView v = { &team, (int)(long)me, THREADS, 0, 0, 0 };
        team_follow(&v, KERNELS, part, arg);
        return 0;
}

static void begin(void)
{
        memset(result, 0, sizeof result);
        memset(firsts, 0, sizeof firsts);
        memset(&team, 0, sizeof team);
        bad = 0;
        for (int i = 0; i < KERNELS; i++) {
                tiles[i] = i % 13 == 5 ? 0 : 1 + (i * 37) % MOST;
                alone[i] = i % 5 == 2;
                number[i] = i;
                args[i][1] = &number[i];
                arg[i] = args[i];
                part[i] = step;
        }
}

static void check(int most)
{
        CHECK(!bad);
        for (int i = 0; i < KERNELS; i++) {
                for (int k = 0; k < MOST; k++)
                        CHECK_MSG(result[i][k] == (k < tiles[i] ? i + 1 : 0),
                                  "kernel %d, tile %d: %d", i, k, result[i][k]);
                CHECK_MSG(firsts[i] >= 1 && firsts[i] <= (alone[i] ? 1 : most), "kernel %d: %d", i,
                          firsts[i]);
        }
}

/* Every tile once, and none before all of the kernel before. */
TEST (threads_follow_kernels) {
        pthread_t thread[THREADS];
        for (int round = 0; round < 2; round++) {
                begin();
                team.spin = round ? TEAM_SPIN : 0;
                for (long t = 0; t < THREADS; t++)
                        CHECK(!pthread_create(&thread[t], 0, follow, (void *)t));
                for (int t = 0; t < THREADS; t++)
                        pthread_join(thread[t], 0);
                check(THREADS);
        }
}

TEST (one_thread) {
        begin();
        tgc_replay(KERNELS, part, arg);
        check(1);
        begin();
        for (int i = 0; i < KERNELS; i++)
                team_alone(step, 0, arg[i]);
        check(1);
}

/* A thread that comes late to a kernel finds no tile of it, whatever it believes of them. */
TEST (late) {
        begin();
        TeamView v = { &team, 0, 2, 1, 0, 0 }, late = { &team, 1, 2, 1, 0, 0 };
        tiles[0] = 3;
        step(0, arg[0], &v);
        CHECK(team.at == 1);
        TeamWork w = team_begin(&late, 50, 1); /* the plan says three */
        CHECK(!team_next(&w) && team.at == 1);
        v.step = 2;
        alone[1] = 0;
        TeamWork next = team_begin(&v, 50, 1);
        CHECK(team_next(&next));
        w = team_begin(&late, 50, 1);
        CHECK(!team_next(&w) && team.at == 1 && !late.units);
}

TEST_MAIN
