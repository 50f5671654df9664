/* emulate_block.h: the threads of one block, where they wait, and what is checked.
 *
 * A lane may wait for a block barrier; for the other lanes of a mask, where the last to arrive
 * does the work for all; and on Hopper for an mbarrier or the cluster's barrier.
 * emulate_schedule.h decides who runs next. */
#ifndef TGC_EMULATE_BLOCK_H
#define TGC_EMULATE_BLOCK_H

EMU_NAMESPACE
{
        struct Block;
        struct Warp;

        enum State { READY, AT_MEETING, AT_BARRIER, AT_MBARRIER, AT_CLUSTER, ENDED };

        /* A cp.async in flight. */
        struct Copy {
                char *to;
                const char *from;
                int bytes;
                bool valid;
                int group;
        };

        /* A wgmma in flight: this thread's accumulators, and its A registers or a descriptor. */
        struct Wgmma {
                WgmmaShape shape;
                float *d;
                unsigned regs[4], number, group;
                unsigned long long a, b;
                bool add;
        };

        /* A TMA load in flight, to the block that owns the shared memory.  The map is a copy, as
         * the thread whose parameter it is may end first. */
        struct Fetch {
                char *to;
                Map map;
                const void *mbar;
                int x, y;
                const char *flat; /* not a box: a flat copy of bytes from here */
                unsigned bytes;
        };
        /* A TMA store in flight. */
        struct Send {
                const char *from;
                Map map;
                int group, x, y;
        };

        struct Thread : ThreadHead {
                Context context;
                State state;
                Block *block;
                Warp *warp;
                /* Where and for what the thread waits. */
                const char *what, *file;
                int line, barrier;
                unsigned mask;
                void *operands; /* on its stack, for the lane that does the work */
                /* In flight, oldest first. */
                std::vector<Copy> copies;
                std::vector<Send> sends; /* TMA stores */
                std::vector<Wgmma> wgmma;
                unsigned issued; /* wgmmas */
                int spins;
                const void *mbar; /* the mbarrier it waits for */
                unsigned round;   /* of the cluster's barrier */
        };

        /* Lanes that wait for the rest of a mask. */
        struct Meeting {
                unsigned mask, here;
                const char *what;
        };

        struct Warp {
                Thread *lane[32];
                int number;
                unsigned exists, ready, ended; /* lanes */
                Meeting meeting[32];           /* in progress: [n_meetings] */
                int n_meetings;
        };

        struct Barrier {
                int expected, arrived;
                const char *file;
                int line;
                int sum, result;
        };

        enum { FORWARD = 0, BACKWARD = 1 }; /* other seeds: random */

        /* The memory that the launch's arguments point to, if its sizes are known. */
        struct Regions {
                void *const *start;
                const size_t *size;
                int n;
        };

        struct Block : BlockHead {
                const Kernel *kernel;
                const char *name;
                void **args;
                int n, ended;
                int gone;       /* threads that ended as TGC_SURPLUS told them */
                Thread *thread; /* [n] */
                Warp warp[32];
                unsigned ready; /* warps with a lane that can run */
                Barrier barrier[16];
                Regions regions;
                size_t smem_size;
                unsigned order;
                uint64_t random;
                Context host;
                /* spun: a lane of the last warp waits in a loop, so another warp is next */
                bool failed, spun;
                int last; /* warp */
                char message[600];
                /* Hopper: the blocks that run in turns, every `cluster` of them a cluster; the
                 * cluster's barrier, kept by its first block */
                Block **with;
                int n_with;
                int arrived;
                unsigned round;
                unsigned done[8];         /* wgmmas of each warpgroup that have run */
                std::vector<Fetch> fetch; /* in flight */
        };

        extern "C" {
        __attribute__((visibility("hidden"))) __thread ThreadHead *tgc_emulate_self;
        }
        inline Thread *self() { return static_cast<Thread *>(tgc_emulate_self); }

        inline unsigned random_next(Block * b)
        {
                b->random ^= b->random << 13;
                b->random ^= b->random >> 7;
                b->random ^= b->random << 17;
                return (unsigned)(b->random >> 32);
        }

        /* ---- failing ----------------------------------------------------------- */

        inline const char *file_name(const char *path)
        {
                const char *p = path ? strrchr(path, '/') : 0;
                return p ? p + 1 : path ? path : "?";
        }

        inline bool same_file(const char *a, const char *b) { return a == b || !strcmp(a, b); }

        /* "k3: block 5: ..."; the first failure is the one reported.  A test's kernel may be named
         * by its whole C++ signature. */
        inline void vfail(Block * b, const char *fmt, va_list ap)
        {
                if (b->failed)
                        return;
                b->failed = true;
                int n = snprintf(b->message, sizeof b->message, "%.150s: block %u: ", b->name,
                                 b->idx.x);
                vsnprintf(b->message + n, sizeof b->message - n, fmt, ap);
        }

        __attribute__((format(printf, 2, 3))) inline void block_fail(Block * b, const char *fmt,
                                                                     ...)
        {
                va_list ap;
                va_start(ap, fmt);
                vfail(b, fmt, ap);
                va_end(ap);
        }

        void fail(const char *fmt, ...)
        {
                Thread *t = self();
                va_list ap;
                va_start(ap, fmt);
                vfail(t->block, fmt, ap);
                va_end(ap);
                context_switch(&t->context, &t->block->host, true);
                abort();
        }

        /* ---- waiting ----------------------------------------------------------- */

        inline void leave(Thread * t) { context_switch(&t->context, &t->block->host, false); }

        inline void set_state(Thread * t, State state)
        {
                Warp *w = t->warp;
                t->state = state;
                w->ready &= ~(1u << t->lane);
                if (state == READY)
                        w->ready |= 1u << t->lane;
                t->block->ready &= ~(1u << w->number);
                t->block->ready |= (unsigned)(w->ready != 0) << w->number;
        }

        inline void wait_in(Thread * t, State state)
        {
                set_state(t, state);
                leave(t);
        }

        void yield()
        {
                Thread *t = self();
                if (++t->spins > (t->block->n_with > 1 ? 1 << 22 : 1 << 16))
                        fail("thread %d waits in a loop for something that no running block does",
                             t->number);
                t->block->spun = true;
                leave(t);
        }

        /* Meets the other lanes of mask, all with the same `what`.  The last to arrive runs
         * all(warp, mask), which finds each lane's operands in its Thread. */
        inline void meet(const char *what, unsigned mask, void *operands,
                         void (*all)(Warp *, unsigned), const char *file, int line)
        {
                Thread *t = self();
                Warp *w = t->warp;
                if (!(mask >> t->lane & 1))
                        fail("thread %d calls %s at %s:%d with mask %08x, which leaves out its "
                             "own lane %d",
                             t->number, what, file_name(file), line, mask, t->lane);
                if (mask & (w->ended | ~w->exists)) {
                        int l = __builtin_ctz(mask & (w->ended | ~w->exists));
                        fail("thread %d calls %s at %s:%d, but lane %d of its mask %08x %s",
                             t->number, what, file_name(file), line, l, mask,
                             w->exists >> l & 1 ? "has ended" : "does not exist");
                }
                Meeting *m = 0;
                for (Meeting *i = w->meeting; i < w->meeting + w->n_meetings; i++)
                        if (i->mask == mask && i->what == what) {
                                m = i;
                        } else if (i->mask >> t->lane & 1 &&
                                   i->here & mask) { /* each waits for the other */
                                Thread *o = w->lane[__builtin_ctz(i->here & mask)];
                                fail("thread %d calls %s at %s:%d with mask %08x while thread %d "
                                     "waits in %s at %s:%d with mask %08x",
                                     t->number, what, file_name(file), line, mask, o->number,
                                     o->what, file_name(o->file), o->line, o->mask);
                        }
                if (!m) {
                        m = &w->meeting[w->n_meetings++];
                        *m = { mask, 0, what };
                }
                t->what = what;
                t->file = file;
                t->line = line;
                t->mask = mask;
                t->operands = operands;
                m->here |= 1u << t->lane;
                if (m->here != mask) {
                        wait_in(t, AT_MEETING);
                        return;
                }
                *m = w->meeting[--w->n_meetings];
                if (all)
                        all(w, mask);
                for (unsigned rest = mask & ~(1u << t->lane); rest; rest &= rest - 1)
                        set_state(w->lane[__builtin_ctz(rest)], READY);
        }

        int barrier(const char *what, int id, int expected, bool waits, int value, const char *file,
                    int line)
        {
                Thread *t = self();
                Block *b = t->block;
                if (id < 0 || id > 15 || expected < 1 || expected > b->n)
                        fail("thread %d: %s at %s:%d: barrier %d of %d threads does not exist in "
                             "a block of %d",
                             t->number, what, file_name(file), line, id, expected, b->n);
                Barrier *r = &b->barrier[id];
                if (id == 0 && b->ended > b->gone) {
                        int o = 0;
                        while (b->thread[o].state != ENDED)
                                o++;
                        fail("divergent barrier: thread %d calls %s at %s:%d, but thread %d has "
                             "ended",
                             t->number, what, file_name(file), line, o);
                }
                if (!r->arrived) {
                        r->expected = expected;
                        r->file = file;
                        r->line = line;
                        r->sum = 0;
                } else if (r->expected != expected) {
                        fail("thread %d calls %s at %s:%d for %d threads, others at %s:%d for %d",
                             t->number, what, file_name(file), line, expected, file_name(r->file),
                             r->line, r->expected);
                } else if (id == 0 && (r->line != line || !same_file(r->file, file))) {
                        fail("divergent barrier: thread %d calls %s at %s:%d while others wait at "
                             "%s:%d",
                             t->number, what, file_name(file), line, file_name(r->file), r->line);
                }
                r->sum += value;
                if (++r->arrived < expected) {
                        if (waits) {
                                t->what = what;
                                t->file = file;
                                t->line = line;
                                t->barrier = id;
                                wait_in(t, AT_BARRIER);
                        }
                        return r->result;
                }
                r->arrived = 0;
                r->result = r->sum;
                for (int i = 0; i < b->n; i++)
                        if (b->thread[i].state == AT_BARRIER && b->thread[i].barrier == id)
                                set_state(&b->thread[i], READY);
                return r->result;
        }

        /* ---- what is checked --------------------------------------------------- */

        void check_smem(const char *what, const void *p, int n)
        {
                Thread *t = self();
                Block *b = t->block;
                uintptr_t at = (uintptr_t)p - (uintptr_t)b->smem;
                if (at > b->smem_size || n > (int64_t)(b->smem_size - at))
                        fail("thread %d: %s at byte %lld of %zu bytes of shared memory", t->number,
                             what, (long long)at, b->smem_size);
                if (at % n)
                        fail("thread %d: %s at byte %zu of shared memory, not a multiple of %d",
                             t->number, what, (size_t)at, n);
        }

        void check_access(const char *what, const void *p, size_t n)
        {
                Thread *t = self();
                const Block *b = t->block;
                const Regions *r = &b->regions;
                uintptr_t at = (uintptr_t)p;
                auto within = [=](const void *start, size_t size) {
                        uintptr_t from = (uintptr_t)start;
                        return at >= from && at - from <= size && n <= size - (at - from);
                };
                if (at % (n < 16 ? n : 16))
                        fail("thread %d: %s of %zu bytes at the misaligned address %p", t->number,
                             what, n, p);
                if (!r->n || within(b->smem, b->smem_size) ||
                    within(t->context.stack, t->context.size))
                        return;
                int near = 0; /* the argument that starts closest before p, or the first */
                for (int i = 0; i < r->n; i++) {
                        if (within(r->start[i], r->size[i]))
                                return;
                        if ((uintptr_t)r->start[i] <= at &&
                            (at < (uintptr_t)r->start[near] || r->start[i] > r->start[near]))
                                near = i;
                }
                fail("thread %d: %s of %zu bytes at byte %lld of argument %d, which has %zu",
                     t->number, what, n, (long long)(at - (uintptr_t)r->start[near]), near,
                     r->size[near]);
        }

        /* Instructions that the PTX ISA calls .aligned must be reached by all lanes in one
         * place. */
        inline void check_aligned(Warp * w)
        {
                for (int l = 1; l < 32; l++)
                        if (w->lane[l]->line != w->lane[0]->line ||
                            !same_file(w->lane[l]->file, w->lane[0]->file))
                                fail("threads %d and %d call %s from different places, %s:%d and "
                                     "%s:%d",
                                     w->lane[0]->number, w->lane[l]->number, w->lane[0]->what,
                                     file_name(w->lane[0]->file), w->lane[0]->line,
                                     file_name(w->lane[l]->file), w->lane[l]->line);
        }

}  // namespace emu

#endif
