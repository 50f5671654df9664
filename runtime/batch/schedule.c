/* schedule.c: see schedule.h.
 *
 * One pass in order of arrival: whoever came first takes pages first. */
#include "schedule.h"

typedef struct Pass {
        const SchedSeq *seq;
        int n;
        const SchedBudget *b;
        SchedDo *out;
        int pages, tokens, rows; /* left */
        int begin;               /* sequences that may still begin; 0 once somebody must wait */
} Pass;

static int least(int a, int b) { return a < b ? a : b; }

/* Pages it lacks for positions below pos. */
static int lacks(const Pass *p, const SchedSeq *s, int pos)
{
        const int n = sched_pages(pos, p->b->each) - s->gone - s->held;
        return n > 0 ? n : 0;
}

/* `need` pages for sequence i, if need be of those that came last. */
static bool get_pages(Pass *p, int i, int need)
{
        for (int k = p->n - 1; k > i && p->pages < need; k--) {
                const SchedSeq *s = &p->seq[k];
                if (s->state == SCHED_AWAY || !s->held || p->out[k].act == SCHED_LEAVE)
                        continue;
                p->pages += s->held;
                p->out[k] = (SchedDo) { SCHED_LEAVE, 0, 0 };
        }
        if (p->pages < need)
                return false;
        p->pages -= need;
        return true;
}

static void decode(Pass *p, int i)
{
        const SchedSeq *s = &p->seq[i];
        const int need = lacks(p, s, s->pos + 1 + p->b->ahead);
        if (p->rows == 0 || !get_pages(p, i, need))
                return;
        p->out[i] = (SchedDo) { SCHED_DECODE, 0, need };
        p->rows--;
}

/* It comes back with room for a page more, or it would leave at once; the first one in any case. */
static void come_back(Pass *p, int i)
{
        const SchedSeq *s = &p->seq[i];
        if ((i == 0 || p->pages > s->held) && get_pages(p, i, s->held))
                p->out[i] = (SchedDo) { SCHED_RETURN, 0, s->held };
        else
                p->begin = 0;
}

static void prefill(Pass *p, int i)
{
        const SchedSeq *s = &p->seq[i];
        const int left = s->prompt - s->pos;
        int take = least(left, p->tokens);
        if (!s->started && p->begin == 0)
                return;
        if (take > 0 && lacks(p, s, s->pos + take) > p->pages) {
                const int room = (s->gone + s->held + p->pages) * p->b->each - s->pos;
                take = least(take, room);
                /* a prompt that is on its way takes a page of who came later, a new one waits */
                if (take <= 0 && s->started && get_pages(p, i, 1)) {
                        take = least(least(left, p->tokens), p->b->each);
                        p->pages++; /* it is counted below */
                }
        }
        if (take <= 0 && left > 0) {
                p->begin = 0;
                return;
        }
        const int need = lacks(p, s, s->pos + take);
        p->out[i] = (SchedDo) { SCHED_PREFILL, take, need };
        p->pages -= need;
        p->tokens -= take;
        p->begin -= !s->started;
}

void schedule(const SchedSeq *seq, int n, const SchedBudget *b, SchedDo *out)
{
        Pass p = { seq, n, b, out, b->pages, b->tokens, b->rows, b->rows };
        for (int i = 0; i < n; i++) {
                out[i] = (SchedDo) { SCHED_NOTHING, 0, 0 };
                p.begin -= seq[i].started;
        }
        for (int i = 0; i < n; i++) {
                if (out[i].act == SCHED_LEAVE)
                        continue;
                switch (seq[i].state) {
                case SCHED_DECODES: decode(&p, i); break;
                case SCHED_AWAY: come_back(&p, i); break;
                case SCHED_WAITS: prefill(&p, i); break;
                }
        }
}
