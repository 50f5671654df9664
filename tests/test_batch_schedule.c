/* test_batch_schedule.c: pages.c and schedule.c by themselves: random traces of sequences that
 * come, are served within a budget, and end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "test.h"
#include "runtime/batch/pages.h"
#include "runtime/batch/schedule.h"

static uint64_t state = 88172645463325252u;
static int random_below(int n)
{
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (int)(state % (uint64_t)n);
}

/* ---- pages ---- */

TEST (pages_are_taken_shared_and_found) {
        Err e;
        Pages *p;
        int a[4] = { 1, 2, 3, 4 }, b[4] = { 1, 2, 3, 5 };
        CHECK(!pages_new(&p, 5, 4, &e) && pages_free_count(p) == 4);
        const int first = pages_take(p), second = pages_take(p);
        CHECK(first && second && first != second && pages_free_count(p) == 2);
        pages_name(p, first, 0, a);
        pages_name(p, second, first, a);
        CHECK(pages_find(p, 0, a) == first && pages_find(p, first, a) == second);
        CHECK(!pages_find(p, 0, b) && !pages_find(p, second, a));
        pages_share(p, first);
        pages_drop(p, first);
        pages_drop(p, first);
        pages_drop(p, second);
        CHECK(pages_free_count(p) == 4 && pages_find(p, 0, a) == first); /* still there */
        CHECK(pages_take(p) != first && pages_take(p) != first); /* nameless ones go first */
        CHECK(pages_take(p) == first);
        CHECK(!pages_find(p, 0, a));
        CHECK(!pages_find(p, first, a)); /* what followed the old `first` */
        CHECK(pages_sound(p));
        pages_delete(p);
}

TEST (pages_random) {
        enum { N = 24, EACH = 2, SEQS = 8, MOST = 6 };
        for (int trace = 0; trace < 2000; trace++) {
                Err e;
                Pages *p;
                int held[SEQS][MOST], n[SEQS] = { 0 }, text[SEQS][MOST * EACH];
                CHECK(!pages_new(&p, N, EACH, &e));
                for (int step = 0; step < 200; step++) {
                        const int s = random_below(SEQS);
                        int page;
                        if (random_below(4) == 0) {
                                while (n[s])
                                        pages_drop(p, held[s][--n[s]]);
                        } else if (n[s] < MOST) {
                                int *ids = text[s] + n[s] * EACH;
                                const int before = n[s] ? held[s][n[s] - 1] : 0;
                                for (int i = 0; i < EACH; i++)
                                        ids[i] = random_below(2);
                                if ((page = pages_find(p, before, ids))) {
                                        pages_share(p, page);
                                } else if ((page = pages_take(p))) {
                                        CHECK(pages_owners(p, page) == 1);
                                        pages_name(p, page, before, ids);
                                }
                                if (page)
                                        held[s][n[s]++] = page;
                        }
                        /* whoever shares a page has the same text up to its end */
                        for (int a = 0; a < SEQS; a++)
                                for (int b = 0; b < a; b++)
                                        for (int i = 0; i < n[a] && i < n[b]; i++)
                                                CHECK((held[a][i] == held[b][i]) ==
                                                      !memcmp(text[a], text[b],
                                                              sizeof(int) * EACH *
                                                                      (size_t)(i + 1)));
                        int owned = 0;
                        for (int a = 0; a < SEQS; a++)
                                owned += n[a];
                        for (int i = 1; i < N; i++)
                                owned -= pages_owners(p, i);
                        CHECK(owned == 0 && pages_sound(p));
                }
                pages_delete(p);
        }
}

/* ---- schedule ---- */

typedef struct Seq {
        SchedSeq s;
        int total; /* tokens in the cache when it is done */
        int comes; /* the call before which it is added */
        int done;  /* the call in which it ended; 0: not yet */
} Seq;

/* Pages of both pools: free ones, and what a trace's layers look back (0: all). */
typedef struct Pool {
        int pages[SCHED_POOLS], used[SCHED_POOLS], window[SCHED_POOLS];
} Pool;

static void pool_take(Pool *p, Seq *q, int n)
{
        for (int k = 0; k < SCHED_POOLS; k++) {
                p->used[k] += n;
                q->s.held[k] += n;
        }
}

/* All its pages, which it holds again when it comes back. */
static void pool_give(Pool *p, const Seq *q, int sign)
{
        for (int k = 0; k < SCHED_POOLS; k++)
                p->used[k] += sign * q->s.held[k];
}

/* Pages that no query looks at any more. */
static void pool_trim(Pool *p, Seq *q, int each)
{
        for (int k = 0; k < SCHED_POOLS; k++)
                while (p->window[k] && (q->s.gone[k] + 1) * each + p->window[k] <= q->s.pos) {
                        q->s.gone[k]++;
                        q->s.held[k]--;
                        p->used[k]--;
                }
}

static bool pool_holds(const Pool *p)
{
        for (int k = 0; k < SCHED_POOLS; k++)
                if (p->used[k] < 0 || p->used[k] > p->pages[k])
                        return false;
        return true;
}

/* One trace; the number of calls, or 0 if some rule was broken. */
static int trace(int *why)
{
        enum { MOST = 8 };
        const int n = 1 + random_below(MOST), each = 1 + random_below(4),
                  longest = 1 + random_below(24), ahead = random_below(3);
        Pool pool = { { 0 }, { 0 }, { 0 } };
        /* one pool counted twice; or windows in the second, or in both */
        const int kind = random_below(3);
        for (int k = 0; k < SCHED_POOLS; k++) {
                const int window = k + 1 + random_below(8);
                pool.window[k] = k + kind >= 2 ? window : 0;
                /* a window, and a page that is begun at either end */
                const int kept = pool.window[k] + 2 * each;
                pool.pages[k] = sched_pages((pool.window[k] && kept < longest ? kept : longest) +
                                                    1 + ahead,
                                            each) +
                                random_below(12);
                if (kind == 0 && k)
                        pool = (Pool) { { pool.pages[0], pool.pages[0] }, { 0 }, { 0 } };
        }
        SchedBudget b = { .rows = 1 + random_below(5),
                          .tokens = 1 + random_below(9),
                          .each = each,
                          .ahead = ahead,
                          .prompts_first = random_below(3) == 0 };
        Seq seq[MOST];
        int ended = 0, calls = 0, most = 0;
        for (int i = 0; i < n; i++) {
                const int prompt = random_below(longest);
                seq[i] = (Seq) { .s = { .prompt = prompt },
                                 .total = prompt + 1 + random_below(longest - prompt),
                                 .comes = i ? seq[i - 1].comes + random_below(6) : 0 };
                most += seq[i].total + 2 * n;
        }
        most = most * 4 + seq[n - 1].comes;
        for (; ended < n; calls++) {
                SchedSeq in[MOST];
                SchedDo out[MOST];
                int who[MOST], m = 0, rows = 0, tokens = 0, started = 0;
                for (int i = 0; i < n; i++)
                        if (!seq[i].done && seq[i].comes <= calls) {
                                in[m] = seq[i].s;
                                who[m++] = i;
                        }
                for (int k = 0; k < SCHED_POOLS; k++)
                        b.pages[k] = pool.pages[k] - pool.used[k];
                schedule(in, m, &b, out);
                for (int k = 0; k < m; k++)
                        if (out[k].act == SCHED_LEAVE) {
                                Seq *q = &seq[who[k]];
                                if (k == 0 || q->s.state == SCHED_AWAY)
                                        return *why = 1, 0; /* the first one never leaves */
                                pool_give(&pool, q, -1);
                                q->s.state = SCHED_AWAY;
                        }
                for (int k = 0; k < m; k++) {
                        Seq *q = &seq[who[k]];
                        if (out[k].act == SCHED_RETURN) {
                                if (q->s.state != SCHED_AWAY || out[k].take != q->s.held[0])
                                        return *why = 2, 0;
                                pool_give(&pool, q, 1);
                                q->s.state = q->s.pos < q->s.prompt ? SCHED_WAITS : SCHED_DECODES;
                        } else if (out[k].act == SCHED_PREFILL) {
                                tokens += out[k].tokens;
                                pool_take(&pool, q, out[k].take);
                                q->s.pos += out[k].tokens;
                                q->s.started = true;
                                if (q->s.pos > q->s.prompt ||
                                    sched_pages(q->s.pos, each) > q->s.held[0] + q->s.gone[0] ||
                                    !pool_holds(&pool))
                                        return *why = 3, 0;
                                pool_trim(&pool, q, each);
                                if (q->s.pos == q->s.prompt)
                                        q->s.state = SCHED_DECODES;
                        } else if (out[k].act == SCHED_DECODE) {
                                rows++;
                                pool_take(&pool, q, out[k].take);
                                q->s.pos++;
                                if (sched_pages(q->s.pos + ahead, each) >
                                            q->s.held[0] + q->s.gone[0] ||
                                    !pool_holds(&pool))
                                        return *why = 4, 0;
                                pool_trim(&pool, q, each);
                                if (q->s.pos == q->total) {
                                        pool_give(&pool, q, -1);
                                        q->done = calls + 1;
                                        ended++;
                                }
                        }
                }
                for (int i = 0; i < n; i++)
                        started += !seq[i].done && seq[i].s.started;
                if (rows > b.rows || tokens > b.tokens || started > b.rows || !pool_holds(&pool))
                        return *why = 5, 0;
                if (calls > most)
                        return *why = 6, 0; /* somebody starves */
        }
        if (pool.used[0] || pool.used[1])
                return *why = 7, 0; /* a page leaked */
        return calls;
}

TEST (schedule_random_traces) {
        const int n = getenv("TGC_LONG") ? 1000000 : 100000;
        for (int i = 0; i < n; i++) {
                int why = 0;
                const uint64_t seed = state;
                if (!trace(&why)) {
                        CHECK_MSG(0, "trace %d of state %llu breaks rule %d", i,
                                  (unsigned long long)seed, why);
                        return;
                }
        }
}

TEST_MAIN
