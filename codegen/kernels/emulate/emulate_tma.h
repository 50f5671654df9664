/* emulate_tma.h: Hopper's mbarriers, TMA and clusters.
 *
 * A TMA load's destination is NaNs until a thread checks its barrier.  A TMA store reads its
 * source when a thread waits for the store. */
#ifndef TGC_EMULATE_TMA_H
#define TGC_EMULATE_TMA_H
/* clang-format off: a line an instruction */

EMU_NAMESPACE
{
        /* ---- mbarrier --------------------------------------------------------------- */

        /* The 64 bits of an mbarrier.  count 0: not initialised. */
        struct MbarBits {
                int bytes;
                unsigned short pending;
                unsigned short count : 15, phase : 1;
        };
        static_assert(sizeof(MbarBits) == sizeof(Mbar), "an mbarrier has 64 bits");

        inline MbarBits *mbar_bits(const char *what, Mbar *bar)
        {
                MbarBits *m = (MbarBits *)bar;
                if (m->count == 0 || m->count == 0x7fff)
                        fail("thread %d: %s of a barrier that was not initialised", self()->number,
                             what);
                return m;
        }

        /* The block, among those that run in turns, whose shared memory holds p. */
        inline Block *block_of(const void *p)
        {
                Block *b = self()->block;
                for (int i = 0; i < b->n_with; i++)
                        if ((const char *)p >= b->with[i]->smem &&
                            (const char *)p < b->with[i]->smem + b->with[i]->smem_size)
                                return b->with[i];
                fail("thread %d: %p is in no block's shared memory", self()->number, p);
        }

        inline void mbar_settle(MbarBits * m)
        {
                if (m->pending || m->bytes)
                        return;
                m->phase ^= 1;
                m->pending = m->count;
                Block *b = block_of(m);
                for (int i = 0; i < b->n; i++)
                        if (b->thread[i].state == AT_MBARRIER && b->thread[i].mbar == m)
                                set_state(&b->thread[i], READY);
        }

        void mbar_init(Mbar * bar, unsigned count)
        {
                check_smem("mbarrier_init", bar, 8);
                MbarBits m = { 0, (unsigned short)count, (unsigned short)count, 0 };
                memcpy(bar, &m, sizeof m);
        }

        void mbar_inval(Mbar * bar)
        {
                for (const Fetch &f : block_of(bar)->fetch)
                        if (f.mbar == bar)
                                fail("thread %d: invalidation of a barrier, of which a fetched "
                                     "tile was never waited for",
                                     self()->number);
                memset(bar, 0xff, sizeof *bar);
        }

        void mbar_arrive(Mbar * bar, int bytes)
        {
                MbarBits *m = mbar_bits("an arrival", bar);
                if (!m->pending)
                        fail("thread %d: an arrival, more than the barrier's %d", self()->number,
                             m->count);
                m->bytes += bytes;
                m->pending--;
                mbar_settle(m);
        }

        inline void mbar_bytes(Mbar * bar, int bytes)
        {
                MbarBits *m = mbar_bits("bytes", bar);
                m->bytes -= bytes;
                mbar_settle(m);
        }

        /* ---- tiles ------------------------------------------------------------------- */

        inline int box_bytes(const Map *m) { return m->box_bytes * m->box_rows; }

        /* Swizzle: xors `bits` bits of the address, from bit 4 on, with the bits three further
         * up. */
        inline unsigned swizzled(unsigned at, int bits)
        {
                return at ^ (at >> 3 & ((1u << bits) - 1) << 4);
        }

        /* Calls each(element of the matrix or NULL outside, its address in shared memory) for the
         * box at (x, y) whose first byte is at `base`. */
        template <class Each>
        inline void box_each(const Map *m, unsigned base, int x0, int y0, const Each &each)
        {
                const int bits = m->box_bytes == 128  ? 3
                                 : m->box_bytes == 64 ? 2
                                                      : 1,
                          cols = m->box_bytes / (int)m->elem;
                for (int y = 0; y < m->box_rows; y++)
                        for (int x = 0; x < cols; x++) {
                                uint64_t row = (uint64_t)(int64_t)(y0 + y),
                                         col = (uint64_t)(int64_t)(x0 + x);
                                each(row < m->rows && col < m->cols
                                             ? m->matrix + (row * m->ld + col) * m->elem
                                             : nullptr,
                                     swizzled(base + (unsigned)(y * m->box_bytes) +
                                                      (unsigned)x * (unsigned)m->elem,
                                              bits));
                        }
        }

        inline void fetch_now(const Fetch *f)
        {
                const Map *m = &f->map;
                Block *b = block_of(f->to);
                if (f->flat) {
                        memcpy(f->to, f->flat, f->bytes);
                        mbar_bytes((Mbar *)f->mbar, (int)f->bytes);
                        return;
                }
                box_each(m, (unsigned)(f->to - b->smem), f->x, f->y,
                         [&](const char *p, unsigned at) {
                                 unsigned v = 0;
                                 if (p)
                                         memcpy(&v, p, m->elem);
                                 if (m->elem == 4)
                                         v = emu_to_tf32(__uint_as_float(v));
                                 memcpy(b->smem + at, &v, m->elem);
                         });
                mbar_bytes((Mbar *)f->mbar, box_bytes(m));
        }

        void send(const void *source, const void *map, int x, int y)
        {
                Thread *t = self();
                const Map *m = (const Map *)map;
                const char *from = (const char *)source;
                const long long at = from - t->block->smem;
                if (at < 0 || at % 128 || at + box_bytes(m) > (long long)t->block->smem_size)
                        fail("thread %d: a tile of %d bytes to store at byte %lld of %zu bytes of "
                             "shared memory, or not at a multiple of 128",
                             t->number, box_bytes(m), at, t->block->smem_size);
                t->sends.push_back({ from, *m, t->sent, x, y });
        }

        void sends_deliver(int left)
        {
                Thread *t = self();
                size_t i = 0;
                for (; i < t->sends.size() && t->sends[i].group < t->sent - left; i++) {
                        const Send *s = &t->sends[i];
                        const Block *b = t->block;
                        box_each(&s->map, (unsigned)(s->from - b->smem), s->x, s->y,
                                 [&](const char *p, unsigned at) {
                                         if (p)
                                                 memcpy((char *)p, b->smem + at, s->map.elem);
                                 });
                }
                t->sends.erase(t->sends.begin(), t->sends.begin() + (long)i);
        }

        inline void fetches_deliver(const Mbar *bar)
        {
                Block *b = block_of(bar);
                for (size_t i = 0; i < b->fetch.size();)
                        if (b->fetch[i].mbar == bar) {
                                Fetch f = b->fetch[i];
                                b->fetch.erase(b->fetch.begin() + i);
                                fetch_now(&f);
                        } else {
                                i++;
                        }
        }

        /* Completes the loads that somebody waits for. */
        inline void fetch_awaited(Block * b, const Mbar *bar)
        {
                for (int i = 0; i < b->n; i++)
                        if (b->thread[i].state == AT_MBARRIER && b->thread[i].mbar == bar) {
                                fetches_deliver(bar);
                                break;
                        }
        }

        inline void fetch_to(Block * b, char *to, const void *map, Mbar *bar, int x, int y)
        {
                const int bytes = box_bytes((const Map *)map);
                if ((to - b->smem) % 1024 || to + bytes > b->smem + b->smem_size)
                        fail("thread %d: a tile of %d bytes at byte %lld of %zu bytes of shared "
                             "memory, or not at a multiple of 1024",
                             self()->number, bytes, (long long)(to - b->smem), b->smem_size);
                memset(to, 0xff, bytes);
                b->fetch.push_back({ to, *(const Map *)map, bar, x, y, nullptr, 0 });
                fetch_awaited(b, bar);
        }

        void fetch(void *to, const void *map, Mbar *bar, int x, int y)
        {
                fetch_to(self()->block, (char *)to, map, bar, x, y);
        }

        void fetch_multicast(void *to, const void *map, Mbar *bar, int x, int y, unsigned mask)
        {
                for (unsigned rank = 0; rank < 16; rank++)
                        if (mask >> rank & 1) {
                                char *there = (char *)in_cluster(to, rank);
                                fetch_to(block_of(there), there, map, (Mbar *)in_cluster(bar, rank),
                                         x, y);
                        }
        }

        void fetch_flat(void *dest, const void *source, unsigned bytes, Mbar *bar)
        {
                Block *b = self()->block;
                char *to = (char *)dest;
                const char *from = (const char *)source;
                check_smem("bulk_load", to, 16);
                check_smem("bulk_load", to + bytes - 16, 16);
                check_access("bulk_load", from, 16);
                check_access("bulk_load", from + bytes - 16, 16);
                if (bytes % 16)
                        fail("thread %d: bulk_load of %u bytes", self()->number, bytes);
                memset(to, 0xff, bytes);
                b->fetch.push_back({ to, Map(), bar, 0, 0, from, bytes });
                fetch_awaited(b, bar);
        }

        void *in_cluster(const void *p, unsigned rank)
        {
                Block *b = self()->block;
                int first = b->rank - b->rank % b->cluster;
                if ((int)rank >= b->cluster)
                        fail("thread %d: block %u of a cluster of %d", self()->number, rank,
                             b->cluster);
                return b->with[first + (int)rank]->smem + ((const char *)p - b->smem);
        }

        void send_cluster(void *p, Mbar *bar, unsigned rank, unsigned x)
        {
                memcpy(in_cluster(p, rank), &x, 4);
                mbar_bytes((Mbar *)in_cluster(bar, rank), 4);
        }

        /* ---- waiting ----------------------------------------------------------------------- */

        inline void wait_at(State state, const char *what, EMU_AT)
        {
                Thread *t = self();
                t->what = what;
                t->file = file;
                t->line = line;
                wait_in(t, state);
        }

        bool mbar_try_wait(Mbar * bar, unsigned parity)
        {
                fetches_deliver(bar);
                MbarBits *m = mbar_bits("a wait", bar);
                if (m->phase == parity)
                        yield();
                return m->phase != parity;
        }

        void mbar_wait(Mbar * bar, unsigned parity, EMU_AT)
        {
                fetches_deliver(bar);
                while (mbar_bits("a wait", bar)->phase == parity) {
                        self()->mbar = bar;
                        wait_at(AT_MBARRIER, "mbarrier_wait", file, line);
                }
        }

        /* ---- the cluster's barrier -------------------------------------------------------- */

        inline Block *cluster_first(Block * b) { return b->with[b->rank - b->rank % b->cluster]; }

        void cluster_come()
        {
                Thread *t = self();
                Block *first = cluster_first(t->block);
                t->round = first->round;
                if (++first->arrived < first->cluster * first->n)
                        return;
                first->arrived = 0;
                first->round++;
                for (int k = 0; k < first->cluster; k++) {
                        Block *b = first->with[first->rank + k];
                        for (int i = 0; i < b->n; i++)
                                if (b->thread[i].state == AT_CLUSTER)
                                        set_state(&b->thread[i], READY);
                }
        }

        void cluster_wait(EMU_AT)
        {
                Thread *t = self();
                while (cluster_first(t->block)->round == t->round)
                        wait_at(AT_CLUSTER, "cluster_wait", file, line);
        }

}  // namespace emu

#endif
