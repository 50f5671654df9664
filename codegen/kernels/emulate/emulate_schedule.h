/* emulate_schedule.h: schedules a block's threads from start to end.
 *
 * One warp at a time gets a pass: each of its lanes that can run does so until it waits or ends.
 * `order` chooses the warp and the order of its lanes.  Blocks that may wait for each other
 * alternate, a pass each. */
#ifndef TGC_EMULATE_SCHEDULE_H
#define TGC_EMULATE_SCHEDULE_H

EMU_NAMESPACE
{
        inline void thread_end(Thread * t)
        {
                Block *b = t->block;
                Warp *w = t->warp;
                if (!t->copies.empty())
                        fail("thread %d ends with %zu asynchronous copies not waited for",
                             t->number, t->copies.size());
                if (!t->sends.empty())
                        fail("thread %d ends with %zu stores of the copy engine not waited for",
                             t->number, t->sends.size());
                if (!t->wgmma.empty())
                        fail("thread %d ends with %zu wgmma's not waited for", t->number,
                             t->wgmma.size());
                for (Meeting *i = w->meeting; i < w->meeting + w->n_meetings; i++)
                        if (i->mask >> t->lane & 1) {
                                Thread *o = w->lane[__builtin_ctz(i->here)];
                                fail("thread %d ends while thread %d waits for it in %s at %s:%d",
                                     t->number, o->number, o->what, file_name(o->file), o->line);
                        }
                if (t->number >= b->live)
                        b->gone++;
                else if (b->barrier[0].arrived)
                        fail("divergent barrier: thread %d ends while others wait at %s:%d",
                             t->number, file_name(b->barrier[0].file), b->barrier[0].line);
                set_state(t, ENDED);
                w->ended |= 1u << t->lane;
                b->ended++;
        }

        bool surplus(int n)
        {
                Thread *t = self();
                t->block->live = n < t->block->n ? n : t->block->n;
                return t->number >= n;
        }

        inline void thread_main()
        {
                Thread *t = self();
                fiber_entered(&t->block->host);
                const Kernel *k = t->block->kernel;
                k->call(k->fn, t->block->args);
                thread_end(t);
                context_switch(&t->context, &t->block->host, true);
                abort();
        }

        /* The warp to run next; NULL when none can. */
        inline Warp *pick_warp(Block * b)
        {
                unsigned ready = b->ready;
                if (!ready)
                        return 0;
                if (b->spun) {
                        unsigned other = ready & ~(1u << b->last),
                                 later = other & ~((2u << b->last) - 1);
                        b->spun = false;
                        ready = later ? later & -later : other ? other & -other : ready;
                }
                if (b->order == BACKWARD)
                        return &b->warp[31 - __builtin_clz(ready)];
                if (b->order > BACKWARD) { /* the first from a random one on */
                        unsigned later = ready & (~0u << (random_next(b) & 31));
                        ready = later ? later : ready;
                }
                return &b->warp[__builtin_ctz(ready)];
        }

        inline void warp_pass(Block * b, Warp * w)
        {
                b->last = w->number;
                unsigned first = 0, step = 1;
                if (b->order == BACKWARD)
                        first = 31, step = 31;
                else if (b->order > BACKWARD)
                        first = random_next(b), step = random_next(b) | 1;
                for (unsigned i = 0; i < 32 && !b->failed; i++) {
                        unsigned l = (first + i * step) & 31;
                        if (w->ready >> l & 1) {
                                tgc_emulate_self = w->lane[l];
                                context_switch(&b->host, &w->lane[l]->context, false);
                        }
                }
        }

        /* Deadlock: reports who waits where, the first few places. */
        inline void fail_stuck(Block * b)
        {
                char text[480];
                size_t len = 0;
                const Thread *shown[4];
                int n_shown = 0;
                for (int i = 0; i < b->n && n_shown < 4; i++) {
                        const Thread *t = &b->thread[i];
                        bool seen = t->state == ENDED;
                        for (int j = 0; j < n_shown; j++)
                                seen |= shown[j]->what == t->what && shown[j]->line == t->line;
                        if (seen)
                                continue;
                        shown[n_shown++] = t;
                        int k = snprintf(text + len, sizeof text - len,
                                         "%s thread %d in %s at %s:%d", len ? "," : "", i, t->what,
                                         file_name(t->file), t->line);
                        len = len + k < sizeof text ? len + k : sizeof text - 1;
                }
                block_fail(b, "nobody can go on: %d of %d threads have ended; waiting:%s", b->ended,
                           b->n, text);
        }

        /* Prepares a block.  The caller has set kernel, name, args, idx, dim, grid, n, thread
         * (contexts with stacks from stacks_map), smem, smem_size, order, with, n_with, rank and
         * cluster. */
        inline void block_start(Block * b, char *stacks)
        {
                b->ended = b->gone = 0;
                b->live = b->n;
                b->failed = b->spun = false;
                b->last = 0;
                b->ready = 0;
                b->arrived = 0;
                b->round = 0;
                b->fetch.clear();
                memset(b->done, 0, sizeof b->done);
                memset(b->warp, 0, sizeof b->warp);
                memset(b->barrier, 0, sizeof b->barrier);
                b->random = ((uint64_t)b->order << 32 | b->idx.x) * 0x9e3779b97f4a7c15u | 1;
                memset(b->smem, 0xff, b->smem_size);
                for (int i = 0; i < b->n; i++) {
                        Thread *t = &b->thread[i];
                        t->idx = { (unsigned)i, 0, 0 };
                        t->number = i;
                        t->lane = i & 31;
                        t->block = b;
                        t->in = b;
                        t->warp = &b->warp[i >> 5];
                        t->warp->number = i >> 5;
                        t->warp->lane[t->lane] = t;
                        t->warp->exists |= 1u << t->lane;
                        t->copies.clear();
                        t->sends.clear();
                        t->wgmma.clear();
                        t->group = t->sent = t->spins = 0;
                        t->issued = t->wgroup = 0;
                        set_state(t, READY);
                        fiber_start(&t->context, stacks + (i + 1) * stack_stride() - STACK, i * 5,
                                    thread_main);
                }
        }

        /* Passes of one warp of each block, until all have ended or one has failed (b->failed,
         * b->message). */
        inline void blocks_run(Block * *with, int n)
        {
                for (bool moved = true, failed = false; moved && !failed;) {
                        moved = false;
                        for (int i = 0; i < n && !failed; i++) {
                                Warp *w = pick_warp(with[i]);
                                if (w) {
                                        warp_pass(with[i], w);
                                        moved = true;
                                        failed = with[i]->failed;
                                }
                        }
                }
                for (int i = 0; i < n; i++)
                        if (with[i]->failed)
                                return;
                for (int i = 0; i < n; i++) {
                        Block *b = with[i];
                        if (b->ended < b->n) {
                                fail_stuck(b);
                                return;
                        }
                        for (int k = 1; k < 16; k++)
                                if (!b->failed && b->barrier[k].arrived)
                                        block_fail(
                                                b,
                                                "ends with %d of %d arrivals at named barrier %d",
                                                b->barrier[k].arrived, b->barrier[k].expected, k);
                }
        }

}  // namespace emu

#endif
