/* emulate_sm90.h: the part of ptx_sm90.cuh that kernels use, for the emulator, name by name.
 *
 * What arrives late on a GPU arrives late here.  A tile that the copy engine fetches is NaNs until
 * a thread checks its barrier.  A wgmma reads its operands, for all 128 threads, when the first of
 * them waits for it.  So a missing wait, or a slot given back too early, shows.  Descriptors and
 * swizzles follow the PTX ISA. */
#ifndef TGC_PTX_SM90_CUH
#define TGC_PTX_SM90_CUH
/* clang-format off: a line an instruction */

typedef unsigned long long Mbar;

/* 8 bits, as a tag of wgmma's. */
struct e4m3 {
        unsigned char code;
};

EMU_NAMESPACE
{
        /* ---- mbarrier --------------------------------------------------------------- */

        /* The 64 bits of an mbarrier.  count 0: it is none. */
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

        /* The block, of those that run by turns, in whose shared memory p lies. */
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

        inline void mbar_arrive(const char *what, Mbar *bar, int bytes)
        {
                MbarBits *m = mbar_bits(what, bar);
                if (!m->pending)
                        fail("thread %d: %s, more than the barrier's %d", self()->number, what,
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

        /* Bits 4 and up of an address, xor'ed with those three further up: `bits` of them. */
        inline unsigned swizzled(unsigned at, int bits)
        {
                return at ^ (at >> 3 & ((1u << bits) - 1) << 4);
        }

        /* each(element of the matrix or NULL outside, its place in shared memory) of the box at (x,
         * y) whose first byte is at `base`. */
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
                                         v = to_tf32(__uint_as_float(v));
                                 memcpy(b->smem + at, &v, m->elem);
                         });
                mbar_bytes((Mbar *)f->mbar, box_bytes(m));
        }

        /* What the copy engine stores is read when somebody waits for it: what was written there
         * since shows. */
        inline void send(const char *from, const void *map, int x, int y)
        {
                Thread *t = self();
                const Map *m = (const Map *)map;
                const long long at = from - t->block->smem;
                if (at < 0 || at % 128 || at + box_bytes(m) > (long long)t->block->smem_size)
                        fail("thread %d: a tile of %d bytes to store at byte %lld of %zu bytes of "
                             "shared memory, or not at a multiple of 128",
                             t->number, box_bytes(m), at, t->block->smem_size);
                t->sends.push_back({ from, *m, t->sent, x, y });
        }

        /* Oldest first, all groups but the `left` latest. */
        inline void sends_deliver(Thread * t, int left)
        {
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

        /* What somebody waits for comes now. */
        inline void fetch_awaited(Block * b, const Mbar *bar)
        {
                for (int i = 0; i < b->n; i++)
                        if (b->thread[i].state == AT_MBARRIER && b->thread[i].mbar == bar) {
                                fetches_deliver(bar);
                                break;
                        }
        }

        inline void fetch(Block * b, char *to, const void *map, Mbar *bar, int x, int y)
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

        inline void fetch_flat(char *to, const char *from, unsigned bytes, Mbar *bar)
        {
                Block *b = self()->block;
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

        /* The same place in the shared memory of block `rank` of the cluster. */
        template <class T>
        inline T *in_cluster(T * p, unsigned rank)
        {
                Block *b = self()->block;
                int first = b->rank - b->rank % b->cluster;
                if ((int)rank >= b->cluster)
                        fail("thread %d: block %u of a cluster of %d", self()->number, rank,
                             b->cluster);
                return (T *)(b->with[first + (int)rank]->smem + ((char *)p - b->smem));
        }

        /* ---- the cluster's barrier -------------------------------------------------------- */

        inline Block *cluster_first(Block * b) { return b->with[b->rank - b->rank % b->cluster]; }

        inline void cluster_come()
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

        /* ---- wgmma ------------------------------------------------------------------------- */

        /* The element (n, k), of `elem` bytes, of a tile as its descriptor says.  n_major: n, not
         * k, is the contiguous axis. */
        inline unsigned tile_at(const Block *b, unsigned long long desc, bool n_major, int n, int k,
                                int elem)
        {
                static const int bits[4] = { 0, 3, 2, 1 }, wide[4] = { 16, 128, 64, 32 };
                int mode = (int)(desc >> 62);
                unsigned at = (unsigned)(desc & 0x3fff) << 4,
                         lbo = (unsigned)(desc >> 16 & 0x3fff) << 4,
                         sbo = (unsigned)(desc >> 32 & 0x3fff) << 4;
                if (n_major)
                        at += n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * elem;
                else if (mode)
                        at += n / 8 * sbo + n % 8 * wide[mode] + k * elem;
                else
                        at += n / 8 * sbo + n % 8 * 16 + k * elem / 16 * lbo + k * elem % 16;
                at = swizzled(at, bits[mode]);
                unsigned v = elem == 4 ? 0x7fffffff : 0x7fff;
                if (at + elem <= b->smem_size)
                        memcpy(&v, b->smem + at, elem);
                return v;
        }

        /* Element e of a word of four. */
        inline float half_of(unsigned w, int e, e4m3)
        {
                const unsigned b = w >> 8 * e & 255, x = b >> 3 & 15, m = b & 7;
                const float v = x == 15 && m == 7 ? NAN
                                : x               ? ldexpf((float)(8 + m), (int)x - 10)
                                                  : ldexpf((float)m, -9);
                return b & 0x80 ? -v : v;
        }

        /* What `w`, the same of all threads of warpgroup `group`, does.  REGS: A is in
         * registers. */
        template <int R, bool REGS, int TA, int TB, class T>
        inline void wgmma_all(Block * b, int group, const Wgmma *w)
        {
                /* W: elements of a word */
                constexpr int N = 2 * R, EACH = sizeof(T), K = 32 / EACH, W = 4 / EACH;
                static __thread float a[64][K], bt[K][N], d[64][N];
                const Wgmma *of[128];
                for (int i = 0; i < 128; i++) {
                        const Thread *t = &b->thread[group * 128 + i];
                        of[i] = &t->wgmma[w->number - t->wgmma[0].number];
                        if (of[i]->b != w->b || of[i]->add != w->add || (!REGS && of[i]->a != w->a))
                                fail("threads %d and %d of a warpgroup do not issue the same wgmma",
                                     group * 128, group * 128 + i);
                }
                for (int k = 0; k < K; k++)
                        for (int n = 0; n < N; n++)
                                bt[k][n] = half_of(tile_at(b, w->b, TB, n, k, EACH), 0, T());
                for (int m = 0; m < 64 && !REGS; m++)
                        for (int k = 0; k < K; k++)
                                a[m][k] = half_of(tile_at(b, w->a, TA, m, k, EACH), 0, T());
                for (int i = 0; i < 128; i++) {
                        int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int e = 0; e < 4 * W && REGS; e++)
                                a[row + e / W % 2 * 8][i % 4 * W + e / (2 * W) * (K / 2) + e % W] =
                                        half_of(of[i]->regs[e / W], e % W, T());
                        for (int j = 0; j < R; j++)
                                d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2] =
                                        w->add ? of[i]->d[j] : 0.f;
                }
                for (int m = 0; m < 64; m++)
                        for (int k = 0; k < K; k++)
                                for (int n = 0; n < N; n++)
                                        d[m][n] += a[m][k] * bt[k][n];
                for (int i = 0; i < 128; i++) {
                        int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int j = 0; j < R; j++)
                                of[i]->d[j] = d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2];
                }
        }

        inline void wgmma_issue(void (*run)(Block *, int, const Wgmma *), float *d,
                                const unsigned *regs, unsigned long long a, unsigned long long b,
                                int add)
        {
                Thread *t = self();
                Wgmma w = { run, d, { 0, 0, 0, 0 }, t->issued++, t->wgroup, a, b, add != 0 };
                if (regs)
                        memcpy(w.regs, regs, sizeof w.regs);
                t->wgmma.push_back(w);
        }

        /* Until at most `left` groups of this thread are under way. */
        inline void wgmma_settle(int left)
        {
                Thread *t = self();
                Block *b = t->block;
                int group = t->number / 128;
                unsigned upto = t->issued;
                while (upto > t->issued - t->wgmma.size() &&
                       t->wgmma[upto - 1 - t->wgmma[0].number].group + left >= t->wgroup)
                        upto--;
                for (int i = 0; i < 128;) /* all of the warpgroup have issued it */
                        if (b->thread[group * 128 + i].issued < upto)
                                yield();
                        else
                                i++;
                for (; (int)(upto - b->done[group]) > 0; b->done[group]++) {
                        const Wgmma *w = &t->wgmma[b->done[group] - t->wgmma[0].number];
                        w->run(b, group, w);
                }
                size_t n = t->wgmma.empty() ? 0 : upto - t->wgmma[0].number;
                t->wgmma.erase(t->wgmma.begin(), t->wgmma.begin() + n);
        }

        /* ---- matrices ------------------------------------------------------------------------ */

        struct MatrixStore {
                const unsigned *r;
                void *row;
        };

        template <int N, bool TRANS>
        inline void stmatrix_all(Warp * w, unsigned)
        {
                check_aligned(w);
                for (int m = 0; m < N; m++)
                        for (int l = 0; l < 32; l++)
                                for (int e = 0; e < 2; e++) {
                                        int g = l / 4, c = l % 4 * 2 + e;
                                        uint16_t v =
                                                (uint16_t)(((MatrixStore *)w->lane[l]->operands)
                                                                   ->r[m] >>
                                                           16 * e);
                                        MatrixStore *to = (MatrixStore *)w
                                                                  ->lane[8 * m + (TRANS ? c : g)]
                                                                  ->operands;
                                        ((uint16_t *)to->row)[TRANS ? g : c] = v;
                                }
        }

        template <int N, bool TRANS>
        inline void stmatrix(void *smem, const unsigned *r, const char *file, int line)
        {
                MatrixStore m = { r, smem };
                if (self()->lane < 8 * N)
                        check_smem("stmatrix", smem, 16);
                meet(TRANS ? "stmatrix_trans" : "stmatrix", 0xffffffffu, &m, stmatrix_all<N, TRANS>,
                     file, line);
        }

}  // namespace emu

/* ---- mbarrier ------------------------------------------------------------------------ */

TGC_DEV void mbarrier_init(Mbar *bar, unsigned count)
{
        emu::check_smem("mbarrier_init", bar, 8);
        emu::MbarBits m = { 0, (unsigned short)count, (unsigned short)count, 0 };
        memcpy(bar, &m, sizeof m);
}
TGC_DEV void fence_barrier_init() {}
TGC_DEV void mbarrier_inval(Mbar *bar)
{
        for (const emu::Fetch &f : emu::block_of(bar)->fetch)
                if (f.mbar == bar)
                        emu::fail("thread %d: invalidation of a barrier, of which a fetched tile "
                                  "was never waited for",
                                  emu::self()->number);
        memset(bar, 0xff, sizeof *bar);
}
TGC_DEV void mbarrier_arrive(Mbar *bar) { emu::mbar_arrive("an arrival", bar, 0); }
TGC_DEV void mbarrier_expect_tx(Mbar *bar, unsigned bytes)
{
        emu::mbar_arrive("an arrival", bar, (int)bytes);
}
TGC_DEV void mbarrier_arrive_cluster(Mbar *bar, unsigned rank)
{
        emu::mbar_arrive("an arrival", emu::in_cluster(bar, rank), 0);
}
TGC_DEV void cp_async_arrive(Mbar *bar)
{
        emu::copies_deliver(emu::self(), -1);
        emu::mbar_arrive("an arrival", bar, 0);
}

TGC_DEV bool mbarrier_try_wait(Mbar *bar, unsigned parity)
{
        emu::fetches_deliver(bar);
        emu::MbarBits *m = emu::mbar_bits("a wait", bar);
        if (m->phase == parity)
                emu::yield();
        return m->phase != parity;
}

TGC_DEV void mbarrier_wait(Mbar *bar, unsigned parity, EMU_SITE)
{
        emu::Thread *t = emu::self();
        emu::fetches_deliver(bar);
        while (emu::mbar_bits("a wait", bar)->phase == parity) {
                t->mbar = bar;
                t->what = "mbarrier_wait";
                t->file = file;
                t->line = line;
                emu::wait_in(t, emu::AT_MBARRIER);
        }
}

/* ---- tiles --------------------------------------------------------------------------- */

TGC_DEV void tma_prefetch_map(const void *) {}
TGC_DEV void tma_load_2d(void *smem, const void *map, Mbar *bar, int x, int y)
{
        emu::fetch(emu::self()->block, (char *)smem, map, bar, x, y);
}
TGC_DEV void tma_load_2d_multicast(void *smem, const void *map, Mbar *bar, int x, int y,
                                   unsigned short mask)
{
        for (unsigned rank = 0; rank < 16; rank++)
                if (mask >> rank & 1) {
                        char *to = emu::in_cluster((char *)smem, rank);
                        emu::fetch(emu::block_of(to), to, map, emu::in_cluster(bar, rank), x, y);
                }
}
TGC_DEV void tma_store_2d(const void *map, const void *smem, int x, int y)
{
        emu::send((const char *)smem, map, x, y);
}
TGC_DEV void bulk_load(void *smem, const void *gmem, unsigned bytes, Mbar *bar)
{
        emu::fetch_flat((char *)smem, (const char *)gmem, bytes, bar);
}
TGC_DEV void bulk_commit() { emu::self()->sent++; }
template <int N>
TGC_DEV void bulk_wait()
{
        emu::sends_deliver(emu::self(), N);
}
template <int N>
TGC_DEV void bulk_wait_read()
{
        emu::sends_deliver(emu::self(), N);
}
TGC_DEV void fence_proxy_async() {}

/* ---- global memory --------------------------------------------------------------------- */

TGC_DEV unsigned load_acquire(const unsigned *p) { return (unsigned)load_acquire((const int *)p); }

/* ---- clusters, warps, registers ---------------------------------------------------------- */

TGC_DEV unsigned cluster_rank()
{
        return (unsigned)(emu::self()->block->rank % emu::self()->block->cluster);
}
TGC_DEV void cluster_arrive() { emu::cluster_come(); }
TGC_DEV void cluster_arrive_relaxed() { emu::cluster_come(); }
TGC_DEV void cluster_wait(EMU_SITE)
{
        emu::Thread *t = emu::self();
        while (emu::cluster_first(t->block)->round == t->round) {
                t->what = "cluster_wait";
                t->file = file;
                t->line = line;
                emu::wait_in(t, emu::AT_CLUSTER);
        }
}
TGC_DEV void cluster_sync()
{
        cluster_arrive();
        cluster_wait();
}
TGC_DEV void cluster_arrive_block()
{
        __syncthreads();
        cluster_arrive();
}

TGC_DEV void send_cluster(void *p, Mbar *bar, unsigned rank, unsigned x)
{
        memcpy(emu::in_cluster((char *)p, rank), &x, 4);
        emu::mbar_bytes(emu::in_cluster(bar, rank), 4);
}
TGC_DEV void st_cluster(float *p, unsigned rank, float x) { *emu::in_cluster(p, rank) = x; }
TGC_DEV int ld_cluster(const int *p, unsigned rank) { return *emu::in_cluster(p, rank); }
template <int V>
TGC_DEV void load_cluster(float (&v)[V], const float *p, unsigned rank)
{
        memcpy(v, emu::in_cluster(p, rank), sizeof v);
}

TGC_DEV bool elect_one() { return emu::self()->lane == 0; }
TGC_DEV bool bar_any(int id, int n, bool x, EMU_SITE)
{
        return emu::barrier("bar_any", id, n, true, x, file, line) != 0;
}
template <int N>
TGC_DEV void setmaxnreg_inc()
{
}
template <int N>
TGC_DEV void setmaxnreg_dec()
{
}

TGC_DEV void stmatrix_x4(void *smem, const unsigned (&r)[4], EMU_SITE)
{
        emu::stmatrix<4, false>(smem, r, file, line);
}
TGC_DEV void stmatrix_x2(void *smem, const unsigned (&r)[2], EMU_SITE)
{
        emu::stmatrix<2, false>(smem, r, file, line);
}
TGC_DEV void stmatrix_x4_trans(void *smem, const unsigned (&r)[4], EMU_SITE)
{
        emu::stmatrix<4, true>(smem, r, file, line);
}

/* ---- wgmma ------------------------------------------------------------------------------- */

enum WgmmaSwizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

TGC_DEV size_t __cvta_generic_to_shared(const void *p)
{
        return (size_t)((const char *)p - emu::self()->block->smem);
}
TGC_DEV void *__cvta_shared_to_generic(size_t at) { return emu::self()->block->smem + at; }
TGC_DEV unsigned smem_addr(const void *p)
{
        return (unsigned)((const char *)p - emu::self()->block->smem);
}
TGC_DEV unsigned long long wgmma_desc(const void *smem, unsigned lbo, unsigned sbo,
                                      WgmmaSwizzle swizzle)
{
        return (unsigned long long)((smem_addr(smem) & 0x3ffff) >> 4) |
               (unsigned long long)(lbo >> 4) << 16 | (unsigned long long)(sbo >> 4) << 32 |
               (unsigned long long)swizzle << 62;
}
TGC_DEV unsigned long long wgmma_desc_k128(const void *smem)
{
        return wgmma_desc(smem, 16, 1024, SWIZZLE_128);
}

TGC_DEV void wgmma_fence() {}
TGC_DEV void wgmma_commit() { emu::self()->wgroup++; }
template <int N>
TGC_DEV void wgmma_wait()
{
        emu::wgmma_settle(N);
}
template <int N>
TGC_DEV void wgmma_hold(float (&)[N])
{
}
template <int N>
TGC_DEV void wgmma_move(float (&x)[N], const float (&from)[N])
{
        memcpy(x, from, sizeof x);
        for (emu::Wgmma &w : emu::self()->wgmma)
                if (w.d == from)
                        w.d = x;
}

template <int TA, int TB, int R, class T>
TGC_DEV void wgmma(float (&d)[R], unsigned long long a, unsigned long long b, int accumulate, T)
{
        emu::wgmma_issue(emu::wgmma_all<R, false, TA, TB, T>, d, 0, a, b, accumulate);
}
template <int TB, int R, class T>
TGC_DEV void wgmma(float (&d)[R], const unsigned (&a)[4], unsigned long long b, int accumulate, T)
{
        emu::wgmma_issue(emu::wgmma_all<R, true, 0, TB, T>, d, a, 0, b, accumulate);
}

TGC_DEV unsigned pick_below_8(unsigned a, unsigned b, unsigned at)
{
        const unsigned long long all = a | (unsigned long long)b << 32;
        unsigned d = 0;
        if (all & 0x8080808080808080ull)
                emu::fail("thread %d: pick_below_8 of a byte above 127", emu::self()->number);
        for (int i = 0; i < 4; i++) {
                const unsigned n = at >> 4 * i & 15;
                d |= n < 8 ? (unsigned)(all >> 8 * n & 255) << 8 * i : 0;
        }
        return d;
}

TGC_DEV void e4m3_halves(unsigned w, unsigned &low, unsigned &high)
{
        unsigned half[4];
        for (int i = 0; i < 4; i++)
                half[i] = emu_to_f16(emu::half_of(w, i, e4m3()));
        low = half[0] | half[1] << 16;
        high = half[2] | half[3] << 16;
}

#endif
