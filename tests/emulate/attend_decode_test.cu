/* attend_decode_test.cu: kernels/attention/attention_decode_sm90.cuh in the emulator: a cache's
 * parts in clusters, through rings, in pages and of 8 bits.
 *
 * They are compared with attention_decode_task over the same q and cache, or with each other to the
 * bit.  Cache rows that are not written yet hold NaN. */
#include "heads.h"

/* Sequences of T queries over caches of CAP keys; SPLITS parts of each, in clusters of CLUSTER. */
struct Queries {
        const void *q, *k, *v;
        void *o, *plain;
        float *work;
        int *done;
        const float *slopes;
        const Rt *rt;
        int B, T, cap;
        TmaMap map_k, map_v; /* of rings of 16 bits */
};

/* Rows of a cache, in boxes of 16. */
static TmaMap boxes_of(const void *p, size_t rows, int cols)
{
        const emu::Map m = {
                (const char *)p, 2, (unsigned)rows, (unsigned)cols, (unsigned)cols, 16, 128
        };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

/* Bytes of a token in a cache of 8 bits. */
template <class A>
constexpr int code_row()
{
        return (A::K * A::D + A::K + 15) / 16 * 16;
}

template <class E, class A>
TGC_DEV AttIn<E, A> cached(const Queries &a)
{
        typedef typename AttIn<E, A>::Stored Stored;
        const int D = A::D, HD = A::H * D, KD = A::FP8 ? code_row<A>() : A::K * D;
        return { (const E *)a.q,
                 (const Stored *)a.k,
                 (const Stored *)a.v,
                 { (long)a.T * HD, HD, D },
                 { (long)a.cap * KD, KD, D },
                 { (long)a.cap * KD, KD, D },
                 0,
                 0,
                 0,
                 1,
                 a.slopes,
                 0 };
}

template <class E, class A>
struct PutRow {
        static constexpr int MAXV = 8, MINV = 1;
        E *p;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long)row * A::H * A::D + col, v);
        }
};

template <class E, class A, class Tile, int N>
void in_clusters(const Queries *a)
{
        TGC_SMEM(smem);
        attention_decode_cluster<E, A, Tile, N>(cached<E, A>(*a), a->work, a->done, a->B, a->T,
                                                a->rt, (int)blockIdx.x, smem,
                                                PutRow<E, A> { (E *)a->o });
}

/* The same through rings of STAGES steps; LEAST as in AttDecode. */
template <class E, class A, class Tile, int BLOCKS, int CLUSTERS, int STAGES>
void in_rings(const Queries *a)
{
        TGC_SMEM(smem);
        attention_decode_ring<E, A, Tile, BLOCKS, CLUSTERS, STAGES>(AttMap { &a->map_k, 0, A::D },
                                                                    AttMap { &a->map_v, 0, A::D },
                                                                    cached<E, A>(*a), a->work,
                                                                    a->done, a->B, a->T, a->rt,
                                                                    (int)blockIdx.x, smem,
                                                                    PutRow<E, A> { (E *)a->o });
}

template <class E, class A, class Tile>
void by_one(const Queries *a)
{
        TGC_SMEM(smem);
        attention_decode_task<E, A, Tile>(cached<E, A>(*a), 0, 0, a->B, a->T, a->rt,
                                          (int)blockIdx.x, smem, PutRow<E, A> { (E *)a->plain });
}

/* ---- a case of two sequences, each cache CAP rows ---- */

template <class E, class A, int ROWS, int SPLITS, int CAP>
struct Decode {
        enum { B = 2, THREADS = 64, HD = A::H * A::D, KD = A::K * A::D };
        typedef AttDecode<ROWS, SPLITS, THREADS> Tile;
        typedef AttDecode<ROWS, 1, THREADS> One;
        const char *what;
        const int T, pos, blocks; /* blocks: of an unsplit launch */
        std::vector<E> q, k, v, o, plain;
        std::vector<float> slopes, work;
        std::vector<int> done;
        Rt rt;
        unsigned seed;
        Queries a;

        Decode(const char *what_, int T_, int pos_)
            : what(what_), T(T_), pos(pos_),
              blocks(B * A::K * ((T * (A::H / A::K) + ROWS - 1) / ROWS)), q(B * T * HD),
              k(B * CAP * KD), v(B * CAP * KD), o(B * T * HD), plain(B * T * HD), slopes(A::H),
              work((size_t)B * T * A::H * SPLITS * att_record<A>()), done(blocks), seed(pos + 1)
        {
                memset((void *)&rt, 0, sizeof rt);
                rt.B = B, rt.T = T;
                for (int b = 0; b < B; b++)
                        rt.pos[b] = b ? pos / 2 : pos;
                for (auto &e : q)
                        from_float(&e, noise(&seed));
                for (auto &e : slopes)
                        e = (noise(&seed) + 1) / 8;
                a = { q.data(),     k.data(),    v.data(),    o.data(),
                      plain.data(), work.data(), done.data(), slopes.data(),
                      &rt,          B,           T,           CAP,
                      {},           {} };
        }
        Decode(const Decode &) = delete;

        /* Rows that are not written hold NaN. */
        void fill_caches()
        {
                for (int b = 0; b < B; b++)
                        for (int i = 0; i < CAP * KD; i++) {
                                const bool there = i < (rt.pos[b] + T) * KD;
                                from_float(&k[b * CAP * KD + i], there ? noise(&seed) : NAN);
                                from_float(&v[b * CAP * KD + i], there ? noise(&seed) : NAN);
                        }
        }

        /* The three kernels, of heads X: A, or A with another cache. */
        template <class X, int N>
        void run_clusters()
        {
                run(what, in_clusters<E, X, Tile, N>, blocks * SPLITS, N, THREADS,
                    attention_decode_cluster_smem<E, X, Tile, N>(), &a);
        }
        template <class X, int LEAST, int BLOCKS, int CLUSTERS, int STAGES>
        void run_rings()
        {
                typedef AttDecode<ROWS, SPLITS, THREADS, LEAST> Parts;
                std::fill(o.begin(), o.end(), E());
                run(what, in_rings<E, X, Parts, BLOCKS, CLUSTERS, STAGES>,
                    blocks * BLOCKS * CLUSTERS, BLOCKS, THREADS,
                    attention_decode_ring_smem<E, X, Parts, BLOCKS, CLUSTERS, STAGES>(), &a);
        }
        template <class X>
        void run_one()
        {
                run(what, by_one<E, X, One>, blocks, 1, THREADS, attention_decode_smem<E, X, One>(),
                    &a);
        }

        void expect(const std::vector<E> &got, const std::vector<E> &want, double tol,
                    const char *by) const
        {
                for (size_t i = 0; i < want.size(); i++)
                        CHECK_NEAR(to_float(got[i]), to_float(want[i]), tol, "output %d at %d%s",
                                   (int)i, pos, by);
        }
};

template <class E, class A, int ROWS, int SPLITS, int N>
void merges(const char *what, int T)
{
        for (int pos : { 0, 1, 30, 250, 1300 }) {
                Decode<E, A, ROWS, SPLITS, 1400> d(what, T, pos);
                d.fill_caches();
                for (int twice = 0; twice < 2; twice++)
                        d.template run_clusters<A, N>();
                d.template run_one<A>();
                d.expect(d.o, d.plain, sizeof(E) == 2 ? 2e-2 : 1e-5, "");
                for (int n : d.done)
                        CHECK_NEAR(n, 0, 0, "a counter at %d", pos);
        }
        printf("ok %s\n", what);
}

template <class Base>
struct Paged : Base {
        static constexpr int PAGE = 64;
};

/* The rows of B caches as pages of a pool, the last first; one page more is nobody's. */
template <class E>
static std::vector<E> in_pages(const std::vector<E> &flat, int pages, int page)
{
        std::vector<E> pool((size_t)(pages + 1) * page);
        E none;
        from_float(&none, NAN);
        std::fill(pool.begin(), pool.end(), none);
        for (int i = 0; i < pages; i++)
                std::copy(flat.begin() + (size_t)i * page, flat.begin() + (size_t)(i + 1) * page,
                          pool.begin() + (size_t)(pages - i) * page);
        return pool;
}

/* Positions that the launch before writes: blocks that start early see old ones. */
static struct Late {
        Rt *rt;
        int pos[2];
} late;

static void write_positions()
{
        for (int b = 0; b < 2; b++)
                __atomic_store_n(late.rt->pos + b, late.pos[b], __ATOMIC_RELAXED);
}

/* Rings: near to what one block says; the bits are the same whatever the number of blocks, clusters
 * and stages, in one piece and in pages. */
template <class E, class A, int ROWS, int SPLITS, int LEAST>
void rings(const char *what, int T)
{
        enum { CAP = 2176, PAGES = CAP / 64, MOST = SPLITS < 8 ? SPLITS : 8 };
        typedef Decode<E, A, ROWS, SPLITS, CAP> D;
        for (int pos : { 0, 31, 250, 777, 2100 }) {
                D d(what, T, pos);
                d.fill_caches();
                d.a.map_k = boxes_of(d.k.data(), D::B * CAP, D::KD);
                d.a.map_v = boxes_of(d.v.data(), D::B * CAP, D::KD);
                d.template run_rings<A, LEAST, 1, 1, 2>();
                const std::vector<E> one = d.o;
                d.template run_one<A>();
                d.expect(one, d.plain, 2e-2, "");
                d.template run_rings<A, LEAST, 2, 1, 3>();
                d.expect(d.o, one, 0, ", two blocks");
                for (int twice = 0; twice < 2; twice++) {
                        d.template run_rings<A, LEAST, MOST, SPLITS / MOST, 2>();
                        d.expect(d.o, one, 0, ", a block for each part");
                        for (int n : d.done)
                                CHECK_NEAR(n, 0, 0, "a counter at %d", pos);
                }
                for (int old : { 0, pos / 2, pos + 70 < CAP ? pos + 70 : pos }) {
                        late = { &d.rt, { d.rt.pos[0], d.rt.pos[1] } };
                        d.rt.pos[0] = d.rt.pos[1] = old;
                        emu::before_ends = write_positions;
                        d.template run_rings<A, LEAST, 2, 1, 2>();
                        emu::before_ends = 0;
                        d.expect(d.o, one, 0, ", an old position at first");
                }

                const std::vector<E> kp = in_pages(d.k, D::B * PAGES, 64 * D::KD),
                                     vp = in_pages(d.v, D::B * PAGES, 64 * D::KD);
                std::vector<int> table(D::B * PAGES);
                for (int i = 0; i < D::B * PAGES; i++)
                        table[i] = D::B * PAGES - i;
                for (int b = 0; b < D::B; b++)
                        d.rt.slot[b] = b;
                d.rt.pages[0] = table.data(), d.rt.slot_pages = PAGES;
                d.a.k = kp.data(), d.a.v = vp.data();
                d.a.map_k = boxes_of(kp.data(), kp.size() / D::KD, D::KD);
                d.a.map_v = boxes_of(vp.data(), vp.size() / D::KD, D::KD);
                d.template run_rings<Paged<A>, LEAST, 1, 1, 3>();
                const std::vector<E> paged = d.o;
                d.template run_one<Paged<A>>();
                d.expect(paged, d.plain, 2e-2, ", paged");
                if (!A::WINDOW) /* parts begin with a page, not with the window */
                        d.expect(paged, one, 0, ", paged");
                d.template run_rings<Paged<A>, LEAST, MOST, 1, 2>();
                d.expect(d.o, paged, 0, ", paged, more blocks");
        }
        printf("ok %s\n", what);
}

/* An element at a time. */
template <int H, int K, int D>
struct Narrow : Heads<H, K, D> {
        static constexpr int VEC = 1;
};

template <class Base>
struct Codes : Base {
        static constexpr bool FP8 = true;
};

static float value_of(unsigned c, unsigned exponent)
{
        const int m = c & 7, e = c >> 3 & 15;
        const float x = e ? ldexpf(8.f + m, e - 10) : ldexpf(m, -9);
        return (c & 128 ? -x : x) * ldexpf(1, (int)exponent - 127);
}

/* Random codes, all of them, of many sizes; rows that are not written are not finite.  wide: the
 * same as elements. */
template <class E, class A>
static void make_codes(std::vector<unsigned char> &c, std::vector<E> &wide, int rows, int there,
                       unsigned *seed)
{
        for (int r = 0; r < rows; r++)
                for (int h = 0; h < A::K; h++) {
                        unsigned char *row = c.data() + (size_t)r * code_row<A>();
                        noise(seed);
                        const unsigned exponent = r < there ? 114 + (*seed >> 16) % 9 : 255;
                        row[A::K * A::D + h] = (unsigned char)exponent;
                        for (int d = 0; d < A::D; d++) {
                                noise(seed);
                                unsigned code = *seed >> 16 & 255;
                                code = (code & 127) == 127 ? code - 1 : code;
                                row[h * A::D + d] = (unsigned char)code;
                                from_float(&wide[((size_t)r * A::K + h) * A::D + d],
                                           r < there ? value_of(code, exponent) : NAN);
                        }
                }
}

/* A cache of 8 bits gives the bits of one of E that holds the same values: by one block, in
 * clusters and (STAGES > 0) through rings. */
template <class E, class A, int ROWS, int SPLITS, int N, int STAGES>
void codes(const char *what, int T)
{
        enum { CAP = 700 };
        typedef Codes<A> C;
        typedef Decode<E, A, ROWS, SPLITS, CAP> D;
        for (int pos : { 0, 31, 250, 660 }) {
                D d(what, T, pos);
                std::vector<unsigned char> k8(D::B * CAP * code_row<A>()), v8(k8.size());
                std::vector<E> o8(d.o.size()), plain8(d.o.size());
                for (int b = 0; b < D::B; b++) {
                        std::vector<unsigned char> c(CAP * code_row<A>());
                        std::vector<E> wide(CAP * D::KD);
                        for (int i = 0; i < 2; i++) {
                                make_codes<E, A>(c, wide, CAP, d.rt.pos[b] + T, &d.seed);
                                std::copy(c.begin(), c.end(), (i ? v8 : k8).begin() + b * c.size());
                                std::copy(wide.begin(), wide.end(),
                                          (i ? d.v : d.k).begin() + b * wide.size());
                        }
                }
                d.template run_clusters<A, N>();
                d.template run_one<A>();
                d.a.k = k8.data(), d.a.v = v8.data(), d.a.o = o8.data(), d.a.plain = plain8.data();
                d.template run_clusters<C, N>();
                d.template run_one<C>();
                d.expect(o8, d.o, 0, "");
                d.expect(plain8, d.plain, 0, " by one");
                if constexpr (STAGES > 0) {
                        d.template run_rings<C, 0, 1, 1, STAGES>();
                        const std::vector<E> by_ring = o8;
                        d.template run_rings<C, 0, N, 1, STAGES>();
                        d.expect(o8, by_ring, 0, ", more blocks");
                        d.a.k = d.k.data(), d.a.v = d.v.data(), d.a.o = d.o.data();
                        d.a.map_k = boxes_of(d.k.data(), D::B * CAP, D::KD);
                        d.a.map_v = boxes_of(d.v.data(), D::B * CAP, D::KD);
                        d.template run_rings<A, 0, 1, 1, STAGES>();
                        d.expect(by_ring, d.o, 0, ", rings");
                }
        }
        printf("ok %s\n", what);
}

/* Tiles of a query to a key, two, four, all; windows, slopes; on tensor cores or not. */
int main()
{
        merges<float, Heads<4, 2, 16>, 2, 8, 8>("two rows in one cluster", 1);
        merges<float, Heads<4, 1, 32>, 4, 32, 8>("four rows in four clusters", 1);
        merges<float, Heads<3, 1, 16, 0, true>, 8, 16, 8>("three rows of two queries, slopes", 2);
        merges<float, Heads<2, 2, 48, 60>, 1, 4, 4>("a window, three queries", 3);
        merges<bf16, Heads<4, 2, 64>, 2, 2, 2>("two blocks in bf16", 1);
        merges<bf16, Wide<8, 2, 64>, 4, 16, 8>("four rows on tensor cores in two clusters", 1);
        merges<f16, Wide<8, 2, 128, 600>, 8, 32, 8>("two queries of four rows, a window", 2);
        rings<bf16, Wide<8, 2, 64>, 4, 4, 128>("rings of four parts", 1);
        rings<f16, Wide<6, 2, 128>, 4, 8, 0>("rings of eight parts, three queries to a key", 1);
        rings<bf16, Wide<8, 2, 128, 600>, 8, 16, 64>("rings of a long cache, a window", 2);
        codes<bf16, Wide<4, 1, 64>, 4, 8, 8, 3>("8 bits, four queries to a key", 1);
        codes<f16, Wide<8, 2, 128>, 4, 16, 8, 2>("8 bits, heads of 128, halves", 1);
        codes<float, Heads<2, 2, 20>, 1, 4, 4, 0>("8 bits, floats, heads of 20", 1);
        codes<bf16, Heads<3, 3, 12, 100>, 1, 4, 4, 0>("8 bits, heads of 12, a window", 1);
        codes<f16, Narrow<2, 1, 7>, 2, 4, 4, 0>("8 bits, heads of 7", 1);
        return finish();
}
