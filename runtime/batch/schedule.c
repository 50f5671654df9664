/* schedule.c: implements schedule.h.
 *
 * One pass over the sequences in order of arrival: the oldest takes pages first. */
#include "schedule.h"

typedef struct Pass {
        const SchedSeq *seq;
        int n;
        const SchedBudget *b;
        SchedDo *out;
        int pages[SCHED_POOLS], tokens, rows; /* left */
        int begin; /* sequences that may still begin; 0 once somebody must wait */
} Pass;

static const int one[SCHED_POOLS] = { 1, 1 };

static int least(int a, int b) { return a < b ? a : b; }

/* Pages it lacks for positions below pos. */
static int lacks(const Pass *p, const SchedSeq *s, int pos)
{
        const int n = sched_pages(pos, p->b->each) - s->gone[0] - s->held[0];
        return n > 0 ? n : 0;
}

/* Pages that every pool has. */
static int pages_left(const Pass *p)
{
        int n = p->pages[0];
        for (int k = 1; k < SCHED_POOLS; k++)
                n = least(n, p->pages[k]);
        return n;
}

static bool enough(const Pass *p, const int *need)
{
        for (int k = 0; k < SCHED_POOLS; k++)
                if (p->pages[k] < need[k])
                        return false;
        return true;
}

static void add_pages(Pass *p, const int *n, int times)
{
        for (int k = 0; k < SCHED_POOLS; k++)
                p->pages[k] += n[k] * times;
}

/* `need` pages of each pool for sequence i, if need be of those that came last. */
static bool get_pages(Pass *p, int i, const int *need)
{
        for (int k = p->n - 1; k > i && !enough(p, need); k--) {
                const SchedSeq *s = &p->seq[k];
                if (s->state == SCHED_AWAY || !s->held[0] || p->out[k].act == SCHED_LEAVE)
                        continue;
                add_pages(p, s->held, 1);
                p->out[k] = (SchedDo) { SCHED_LEAVE, 0, 0 };
        }
        if (!enough(p, need))
                return false;
        add_pages(p, need, -1);
        return true;
}

static bool get_each(Pass *p, int i, int n)
{
        int need[SCHED_POOLS];
        for (int k = 0; k < SCHED_POOLS; k++)
                need[k] = n;
        return get_pages(p, i, need);
}

static void decode(Pass *p, int i)
{
        const SchedSeq *s = &p->seq[i];
        const int need = lacks(p, s, s->pos + 1 + p->b->ahead);
        if (p->rows == 0 || !get_each(p, i, need))
                return;
        p->out[i] = (SchedDo) { SCHED_DECODE, 0, need };
        p->rows--;
}

/* It comes back with room for a page more, or it would leave at once; the first one in any case. */
static void come_back(Pass *p, int i)
{
        const SchedSeq *s = &p->seq[i];
        int more[SCHED_POOLS];
        for (int k = 0; k < SCHED_POOLS; k++)
                more[k] = s->held[k] + 1;
        if ((i == 0 || enough(p, more)) && get_pages(p, i, s->held))
                p->out[i] = (SchedDo) { SCHED_RETURN, 0, s->held[0] };
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
        if (take > 0 && lacks(p, s, s->pos + take) > pages_left(p)) {
                const int room = (s->gone[0] + s->held[0] + pages_left(p)) * p->b->each - s->pos;
                take = least(take, room);
                /* a prompt that is on its way takes a page of who came later, a new one waits */
                if (take <= 0 && s->started && get_each(p, i, 1)) {
                        take = least(least(left, p->tokens), p->b->each);
                        add_pages(p, one, 1); /* it is counted below */
                }
        }
        if (take <= 0 && left > 0) {
                p->begin = 0;
                return;
        }
        const int need = lacks(p, s, s->pos + take);
        p->out[i] = (SchedDo) { SCHED_PREFILL, take, need };
        add_pages(p, one, -need);
        p->tokens -= take;
        p->begin -= !s->started;
}

static void hold_decodes(SchedDo *out, int n)
{
        bool reads = false;
        for (int i = 0; i < n; i++)
                reads |= out[i].act == SCHED_PREFILL;
        for (int i = 0; i < n && reads; i++)
                if (out[i].act == SCHED_DECODE)
                        out[i] = (SchedDo) { SCHED_NOTHING, 0, 0 };
}

void schedule(const SchedSeq *seq, int n, const SchedBudget *b, SchedDo *out)
{
        Pass p = { .seq = seq,
                   .n = n,
                   .b = b,
                   .out = out,
                   .tokens = b->tokens,
                   .rows = b->rows,
                   .begin = b->rows };
        add_pages(&p, b->pages, 1);
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
        if (b->prompts_first)
                hold_decodes(out, n);
}
