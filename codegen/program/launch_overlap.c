/* launch_overlap.c: what of a launch may run before the launch before has ended, on sm_90a.
 *
 * Between two small launches two microseconds pass, of which the next one's blocks need half to
 * start and to get their first bytes.  They may start as soon as blocks of the launch before leave
 * room, if that announces them, and wait where they need what it makes (pdl_wait); all launches
 * before that one have ended then.  So a block may have, without waiting, what the launch before
 * does not write: weights, values kept for the backward pass, one factor of a weight's gradient.
 *
 * Blocks that wait beside running ones are spread unevenly: those that start first fill whatever
 * multiprocessor is idle.  So only launches are announced whose blocks have so much shared memory
 * that a multiprocessor never takes more than its share. (Of one token, and of short prompts,
 * kernels announce the next before they wait themselves: there nothing but weights is sure to be
 * there.  Some wait first: where the next one wants to know by then which weights, or by
 * measurement.) needs: launches in their order, pieces in their launches.  keeps: what each
 * computes, bit by bit. */
#include "../codegen.h"
#include <string.h>

/* A multiprocessor's shared memory, and what a block takes beside its own; a share that is still
 * spread, and its threads. */
enum { SM_SMEM = 228 << 10, BLOCK_MORE = 1 << 10, MOST_SHARE = 4, MOST_THREADS = 1536 };

/* sm_90a leaves it out. */
static bool is_none(const Launch *l) { return l->on90.threads && !strcmp(l->on90.grid, "0"); }

static bool writes_slot(const Emit *e, const Launch *l, const Slot *s)
{
        for (int i = 0; i < l->n_args; i++)
                if (l->use[i].written && same_storage(e, &l->arg[i], s))
                        return true;
        return false;
}

/* It is there while the launch before runs. */
static bool is_there(const Emit *e, const Launch *before, const Slot *s)
{
        if (!before ||
            (triggers_first(e) && !(s->kind == SLOT_NODE && NODE(e->g, s->id)->op == OP_PARAM)))
                return false;
        return !writes_slot(e, before, s);
}

/* All that it touches but `late` is there. */
static bool reads_ready(const Emit *e, const Launch *before, const Launch *l, const Slot *late)
{
        if (!before || triggers_first(e))
                return false;
        for (int i = 0; i < l->n_args; i++)
                if (!same_storage(e, &l->arg[i], late) && writes_slot(e, before, &l->arg[i]))
                        return false;
        return true;
}

/* Neither slot is written by the launch before, on any GPU, which will have waited for those before
 * it when it announces this one. */
static bool both_ready(const Emit *e, Launch *before, const Launch *l, const Slot *s)
{
        if (!before || before != l - 1 || !triggers_first(e) || writes_slot(e, before, &s[0]) ||
            writes_slot(e, before, &s[1]))
                return false;
        return before->triggers_after_wait = true;
}

/* Of one token: whose next launch had better come later, as its blocks take registers and memory's
 * time.  H100, us a token: large products, six layers of Llama-1B's shape 294.9 -> 291.6; q, k and
 * v with attention, GPT-2 156.9 -> 154.8, TinyLM 45.0 -> 43.9, experts 243.0 -> 238.6.  Not: short
 * products, GPT-2 156.9 -> 168.1; those of several sequences, its eight 232.0 -> 235.3. */
static bool better_after_wait(const Emit *e, const Launch *l)
{
        const char *family = l->piece[0]->include;
        return triggers_first(e) && l->n_pieces == 1 &&
               (!strcmp(family, "gemv") || !strcmp(family, "qkv_attention_sm90"));
}

/* Piece k with what it may have early in place of \3. */
static void decide(Emit *e, Launch *before, Launch *l, int k)
{
        static const char *const which[] = { "0", "PREFETCH_A", "PREFETCH_B",
                                             "PREFETCH_A | PREFETCH_B" };
        const Piece *p = l->piece[k];
        const Slot *s = p->early->slot;
        const char *at = strchr(p->body, '\3'), *what;
        Piece *own = arena_alloc(e->m->arena, sizeof *own);
        *own = *p;
        if (p->early->kind != PREFETCH_EACH) {
                bool all = p->early->kind == PREFETCH_REST ? reads_ready(e, before, l, &s[0])
                                                           : both_ready(e, before, l, s);
                own->waits |= all;
                what = all ? "true" : "false";
        } else {
                int both = is_there(e, before, &s[0]) + 2 * is_there(e, before, &s[1]);
                l->early |= both; /* such tiles have a multiprocessor to themselves */
                what = which[both];
        }
        if (at)
                own->body = arena_fmt(e->m->arena, "%.*s%s%s", (int)(at - p->body), p->body, what,
                                      at + 1);
        l->piece[k] = own;
}

/* Gives the blocks so much shared memory that no multiprocessor takes more than its share of them,
 * whoever leaves first. */
static bool spread(Launch *l)
{
        bool on90 = l->on90.threads;
        int threads = l->on90.threads, smem = l->on90.smem;
        int64_t blocks = grid_count(on90 ? l->on90.grid : l->grid),
                share = (blocks + SMS - 1) / SMS;
        for (int i = 0; i < l->n_pieces && !on90; i++) {
                threads = l->piece[i]->threads > threads ? l->piece[i]->threads : threads;
                smem = l->piece[i]->smem > smem ? l->piece[i]->smem : smem;
        }
        if (blocks < 1 || share > MOST_SHARE || share * threads > MOST_THREADS ||
            (on90 && !l->on90.cluster))
                return false;
        int least = (int)(SM_SMEM / (share + 1) - BLOCK_MORE + 128) & ~127;
        *(on90 ? &l->on90.smem : &l->spread) = smem > least ? smem : least;
        return true;
}

void launches_overlap(Emit *e)
{
        Launch *before = NULL;
        for (int i = 0; i < e->n_launch; i++) {
                Launch *l = &e->launch[i];
                for (int k = 0; k < l->n_pieces; k++)
                        if (l->piece[k]->early)
                                decide(e, before, l, k);
                l->triggers_after_wait |= better_after_wait(e, l);
                if (is_none(l))
                        continue;
                if (before && !l->early && before->on90.smem > SM_SMEM / 2 && !triggers_first(e))
                        l->early = spread(l);
                before = l;
        }
}

const Launch *launch_next(const Emit *e, const Launch *l)
{
        while (++l < e->launch + e->n_launch)
                if (!is_none(l))
                        return l;
        return NULL;
}
