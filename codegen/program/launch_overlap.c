/* launch_overlap.c: programmatic dependent launch (PDL) on sm_90a.
 * needs: launches in their order, pieces in their launches.  keeps: what each computes, bit by bit.
 *
 * About two microseconds pass between two small launches.  Half of that is the next launch's blocks
 * starting and loading their first bytes.  With PDL those blocks start as soon as the previous
 * launch triggers them and leaves room.  pdl_wait then waits for the previous launch; all launches
 * before that one have ended by then.  So a block may prefetch, before it waits, operands that the
 * previous launch does not write: weights, values kept for the backward pass, one operand of a
 * weight's gradient.
 *
 * Waiting blocks would be spread unevenly: the first to start fill whichever multiprocessor is
 * idle.  So a launch is overlapped only if its blocks take so much shared memory that no
 * multiprocessor holds more than its share.
 *
 * In decode and short prompts, kernels trigger the next launch before they wait themselves; only
 * weights are prefetched there.  A few trigger after the wait: where the next launch must know
 * which weights to load, or where that measured faster.  GEMVs over weights in blocks trigger once
 * all their weights are requested: the next launch's weights are then fetched while memory would
 * idle. */
#include "program.h"
#include <string.h>

/* A multiprocessor's shared memory, and what a block takes beside its own; a share that is still
 * spread, and its threads. */
enum { BLOCK_MORE = 1 << 10, MOST_SHARE = 4, MOST_THREADS = 1536 };

/* sm_90a leaves it out. */
static bool is_none(const Launch *l) { return l->form[ARCH_SM90A].none; }

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
        return triggers_first(e) && l->n_pieces == 1 && l->piece[0]->after_wait;
}

/* What piece k may have before it waits. */
static void decide(Emit *e, Launch *before, Launch *l, int k)
{
        static const char *const which[] = { "0", "PREFETCH_A", "PREFETCH_B",
                                             "PREFETCH_A | PREFETCH_B" };
        const Prefetch *x = l->piece[k]->prefetch;
        Piece *own = arena_alloc(e->m->arena, sizeof *own);
        *own = *l->piece[k];
        l->piece[k] = own;
        if (x->kind == PREFETCH_EACH) {
                int both = is_there(e, before, &x->slot[0]) + 2 * is_there(e, before, &x->slot[1]);
                l->overlaps |= both; /* such tiles have a multiprocessor to themselves */
                own->prefetches = which[both];
        } else {
                bool rest = x->kind == PREFETCH_REST,
                     all = rest ? reads_ready(e, before, l, &x->slot[0])
                                : both_ready(e, before, l, x->slot);
                own->form[own->prefetch_in == N_ARCHS ? ARCH_ANY : own->prefetch_in].waits |= all;
                own->prefetches = !rest ? NULL : all ? "true" : "false";
        }
}

/* Gives the blocks so much shared memory that no multiprocessor takes more than its share of them,
 * whoever leaves first. */
static bool spread(Launch *l)
{
        Form *own = &l->form[ARCH_SM90A];
        bool is = form_is(l->form, ARCH_SM90A);
        int threads = own->threads, smem = own->smem;
        int64_t blocks = grid_count(is ? &own->grid : &l->any.grid),
                share = (blocks + SM90A_SMS - 1) / SM90A_SMS;
        for (int i = 0; i < l->n_pieces && !is; i++) {
                const Form *f = &l->piece[i]->any;
                threads = f->threads > threads ? f->threads : threads;
                smem = f->smem > smem ? f->smem : smem;
        }
        if (blocks < 1 || share > MOST_SHARE || share * threads > MOST_THREADS ||
            (is && own->persistent))
                return false;
        int least = (int)(SM90A_SM_SMEM / (share + 1) - BLOCK_MORE + 128) & ~127;
        *(is ? &own->smem : &l->spread) = smem > least ? smem : least;
        return true;
}

void launches_overlap(Emit *e)
{
        Launch *before = NULL;
        for (int i = 0; i < e->n_launch; i++) {
                Launch *l = &e->launch[i];
                for (int k = 0; k < l->n_pieces; k++)
                        if (l->piece[k]->prefetch)
                                decide(e, before, l, k);
                l->triggers_after_wait |= better_after_wait(e, l);
                l->triggers_late = triggers_first(e);
                for (int k = 0; k < l->n_pieces; k++)
                        l->triggers_late &= l->piece[k]->late;
                if (is_none(l))
                        continue;
                if (before && !l->overlaps && before->form[ARCH_SM90A].smem > SM90A_SM_SMEM / 2 &&
                    !triggers_first(e))
                        l->overlaps = spread(l);
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
