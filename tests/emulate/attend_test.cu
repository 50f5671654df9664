/* attend_test.cu: kernels/attention/qkv_attention_sm90.cuh and attention_decode_sm90.cuh in the
 * emulator, in clusters.
 *
 * The product is compared with plain loops in double, the attention with attention_decode_task over
 * the same q and cache.  Cache rows that are not written yet hold NaN. */
#define TGC_SM90A 1
#include "ptx.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

enum { CLUSTER = 8 };

#include "qkv_attention_sm90.cuh"
#include "attention_decode_sm90.cuh"

static int failures;

#define CHECK_NEAR(x, y, tol, ...)                                \
        do {                                                      \
                const double x_ = (x), y_ = (y);                  \
                if (!(fabs(x_ - y_) <= (tol))) {                  \
                        if (failures++ < 20) {                    \
                                printf("not ok %s: ", what);      \
                                printf(__VA_ARGS__);              \
                                printf(": %g, not %g\n", x_, y_); \
                        }                                         \
                }                                                 \
        } while (0)

struct Args {
        const void *w, *x;
        void *q, *k, *v, *o, *plain; /* q (H,D); k, v (cap,K,D); o (H,D) */
        const float *gain, *slopes;
        const Rt *rt;
};

/* S: E, Att, EMBED, NORM, Tile, ORDER (which of q, k, v comes first in the product). */
template <class S>
struct Where {
        typedef typename S::Att A;
        static constexpr int HD = A::H * A::D, KD = A::K * A::D, N = HD + 2 * KD;
        static constexpr int Q = S::SWAP ? 2 * KD : 0, K = S::SWAP ? 0 : HD,
                             V = S::SWAP ? KD : HD + KD;
        typedef QkvColumns<Q, K, V, HD> Columns;
};

template <class S>
struct Row {
        static constexpr int MAXV = 8, MINV = 1;
        const Args &a;
        template <int V>
        __device__ void operator()(int, int k, float (&v)[V]) const
        {
                load<V>(v, (const typename S::E *)a.x + k);
        }
};

template <class S>
struct Gain {
        static constexpr int MAXV = 8, MINV = 1;
        const Args &a;
        template <int V>
        __device__ void operator()(int, int k, float (&v)[V]) const
        {
                for (int j = 0; j < V; j++)
                        v[j] *= a.gain[k + j];
        }
};

template <class S>
struct Made {
        typedef Where<S> W;
        typedef typename S::E E;
        static constexpr int MAXV = 4, MINV = 1;
        const Args &a;
        template <int V>
        __device__ void operator()(int, int col, float (&v)[V]) const
        {
                const long at = (long)a.rt->pos[0] * W::KD;
                if (col >= W::Q && col < W::Q + W::HD)
                        store<V>((E *)a.q + col - W::Q, v);
                else if (col >= W::K && col < W::K + W::KD)
                        store<V>((E *)a.k + at + col - W::K, v);
                else
                        store<V>((E *)a.v + at + col - W::V, v);
        }
};

template <class E>
struct Put {
        static constexpr int MAXV = 8, MINV = 1;
        E *p;
        template <int V>
        __device__ void operator()(int, int col, float (&v)[V]) const
        {
                store<V>(p + col, v);
        }
};

template <class S>
TGC_DEV AttIn<typename S::E, typename S::Att> operands(const Args &a)
{
        typedef Where<S> W;
        typedef typename S::E E;
        const int D = S::Att::D;
        return { (const E *)a.q,
                 (const E *)a.k,
                 (const E *)a.v,
                 { W::HD, W::HD, D },
                 { 0, W::KD, D },
                 { 0, W::KD, D },
                 0,
                 0,
                 0,
                 1,
                 a.slopes,
                 0 };
}

template <class S>
void attend(const Args *a)
{
        typedef Where<S> W;
        typedef typename S::E E;
        TGC_SMEM(smem);
        Row<S> prologue = { *a };
        Args near = *a;
        const Made<S> epilogue = { near };
        Put<typename S::E> out = { (typename S::E *)a->o };
        qkv_attention_task<typename S::E, typename S::Att, typename S::Tile, typename W::Columns,
                           W::N, S::EMBED, S::NORM, 16>((const typename S::E *)a->w, S::EMBED,
                                                        1e-5f, operands<S>(*a), a->rt, smem,
                                                        (E *&)near.q, (E *&)near.k, (E *&)near.v,
                                                        prologue, epilogue, out, Gain<S> { *a });
}

template <class S>
void plain(const Args *a)
{
        TGC_SMEM(smem);
        attention_decode_task<typename S::E, typename S::Att, AttDecode<S::Tile::QUERIES, 1, 64>>(
                operands<S>(*a), 0, 0, 1, 1, a->rt, (int)blockIdx.x, smem,
                Put<typename S::E> { (typename S::E *)a->plain });
}

template <class A>
static void run(const char *what, void (*fn)(const A *), int grid, int cluster, int threads,
                int smem, const A *a)
{
        emu::Entry<1> k(what, fn);
        void *args[1] = { (void *)a };
        char err[600];
        tgc_emulate_clusters((unsigned)cluster, (unsigned)cluster);
        if (tgc_emulate_launch(what, (unsigned)grid, (unsigned)threads, (unsigned)smem, args, 1,
                               err, sizeof err) &&
            failures++ < 20)
                printf("not ok %s: %s\n", what, err);
        emu::kernels = k.next;
}

static float noise(unsigned *seed)
{
        return (float)((*seed = *seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
}

template <class S>
void test(const char *what)
{
        typedef typename S::E E;
        typedef typename S::Att A;
        typedef Where<S> W;
        enum { CAP = 700, C = S::EMBED };
        const double tol = sizeof(E) == 2 ? 2e-2 : 1e-5;
        for (int pos : { 0, 1, 7, 63, 200, 650 }) {
                std::vector<E> w(W::N * C), x(C), q(W::HD), k(CAP * W::KD), v(CAP * W::KD),
                        o(W::HD), plainly(W::HD);
                std::vector<float> gain(C), slopes(A::H);
                Rt rt;
                unsigned seed = pos + 1;
                memset((void *)&rt, 0, sizeof rt);
                rt.B = rt.T = 1;
                rt.pos[0] = pos;
                for (auto &e : w)
                        from_float(&e, noise(&seed) / 4);
                for (auto &e : x)
                        from_float(&e, noise(&seed));
                for (auto &e : gain)
                        e = 1 + noise(&seed) / 4;
                for (auto &e : slopes)
                        e = (noise(&seed) + 1) / 8;
                for (int i = 0; i < CAP * W::KD; i++) {
                        from_float(&k[i], i < pos * W::KD ? noise(&seed) : NAN);
                        from_float(&v[i], i < pos * W::KD ? noise(&seed) : NAN);
                }
                const Args a = { w.data(), x.data(),       q.data(),    k.data(),      v.data(),
                                 o.data(), plainly.data(), gain.data(), slopes.data(), &rt };
                run(what, attend<S>, A::K * CLUSTER, CLUSTER, S::Tile::THREADS,
                    attend_smem<E, A, typename S::Tile, typename W::Columns>(), &a);
                run(what, plain<S>, A::K, 1, 64,
                    attention_decode_smem<E, A, AttDecode<S::Tile::QUERIES, 1, 64>>(), &a);
                double square = 0, mean = 0, norm;
                for (int i = 0; i < C; i++)
                        square += (double)to_float(x[i]) * to_float(x[i]), mean += to_float(x[i]);
                mean = S::NORM == NORM_LAYER ? mean / C : 0;
                norm = S::NORM == NORM_NONE ? 1 : 1 / sqrt(square / C - mean * mean + 1e-5);
                for (int n = 0; n < W::N; n++) {
                        double y = 0;
                        for (int i = 0; i < C; i++)
                                y += (double)to_float(w[n * C + i]) * (to_float(x[i]) - mean) *
                                     norm * (S::NORM == NORM_NONE ? 1 : gain[i]);
                        const E *got = n >= W::Q && n < W::Q + W::HD   ? &q[n - W::Q]
                                       : n >= W::K && n < W::K + W::KD ? &k[pos * W::KD + n - W::K]
                                                                       : &v[pos * W::KD + n - W::V];
                        CHECK_NEAR(to_float(*got), y, tol, "column %d at %d", n, pos);
                }
                for (int i = 0; i < W::HD; i++)
                        CHECK_NEAR(to_float(o[i]), to_float(plainly[i]), tol, "output %d at %d", i,
                                   pos);
        }
        printf("ok %s\n", what);
}

template <int H_, int K_, int D_, int WINDOW_ = 0, bool ALIBI_ = false, int CAP = 0>
struct Heads : AttBase {
        static constexpr int D = D_, H = H_, K = K_, VEC = 4, WINDOW = WINDOW_;
        static constexpr float SCALE = 0.25f, SOFTCAP = CAP;
        static constexpr bool CAUSAL = true, CACHED = true, ALIBI = ALIBI_;
};

/* Of 16-bit values, eight at a time: tensor cores'. */
template <int H, int K, int D, int WINDOW = 0>
struct Wide : Heads<H, K, D, WINDOW> {
        static constexpr int VEC = 8;
};

template <class E_, class Att_, class Tile_, int EMBED_, int NORM_, bool SWAP_ = false>
struct Case {
        typedef E_ E;
        typedef Att_ Att;
        typedef Tile_ Tile;
        static constexpr int EMBED = EMBED_, NORM = NORM_;
        static constexpr bool SWAP = SWAP_;
};

/* Sequences of T queries over caches of CAP keys; SPLITS parts of each, in clusters of CLUSTER. */
struct Queries {
        const void *q, *k, *v;
        void *o, *plain;
        float *work;
        int *done;
        const float *slopes;
        const Rt *rt;
        int B, T, cap;
        TmaMap map_k, map_v; /* of a stream of 16 bits */
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

/* The same by one block for N, in a ring of STAGES steps. */
template <class E, class A, class Tile, int N, int STAGES>
void in_turn(const Queries *a)
{
        TGC_SMEM(smem);
        attention_decode_stream<E, A, Tile, N, STAGES>(AttMap { &a->map_k, 0, A::D },
                                                       AttMap { &a->map_v, 0, A::D },
                                                       cached<E, A>(*a), a->work, a->done, a->B,
                                                       a->T, a->rt, (int)blockIdx.x, smem,
                                                       PutRow<E, A> { (E *)a->plain });
}

template <class E, class A, class Tile>
void by_one(const Queries *a)
{
        TGC_SMEM(smem);
        attention_decode_task<E, A, Tile>(cached<E, A>(*a), 0, 0, a->B, a->T, a->rt,
                                          (int)blockIdx.x, smem, PutRow<E, A> { (E *)a->plain });
}

template <class E, class A, int ROWS, int SPLITS, int N>
void merges(const char *what, int T)
{
        enum { B = 2, CAP = 1400 };
        typedef AttDecode<ROWS, SPLITS, 64> Tile;
        typedef AttDecode<ROWS, 1, 64> One;
        const int HD = A::H * A::D, KD = A::K * A::D,
                  groups = (T * (A::H / A::K) + ROWS - 1) / ROWS;
        for (int pos : { 0, 1, 30, 250, 1300 }) {
                std::vector<E> q(B * T * HD), k(B * CAP * KD), v(B * CAP * KD), o(B * T * HD),
                        plainly(B * T * HD);
                std::vector<float> slopes(A::H),
                        work((size_t)B * T * A::H * SPLITS * att_record<A>());
                std::vector<int> done(B * A::K * groups);
                Rt rt;
                unsigned seed = pos + 1;
                memset((void *)&rt, 0, sizeof rt);
                rt.B = B, rt.T = T;
                for (auto &e : q)
                        from_float(&e, noise(&seed));
                for (auto &e : slopes)
                        e = (noise(&seed) + 1) / 8;
                for (int b = 0; b < B; b++) {
                        rt.pos[b] = b ? pos / 2 : pos;
                        for (int i = 0; i < CAP * KD; i++) {
                                const bool there = i < (rt.pos[b] + T) * KD;
                                from_float(&k[b * CAP * KD + i], there ? noise(&seed) : NAN);
                                from_float(&v[b * CAP * KD + i], there ? noise(&seed) : NAN);
                        }
                }
                const Queries a = {
                        q.data(),    k.data(),    v.data(),      o.data(), plainly.data(),
                        work.data(), done.data(), slopes.data(), &rt,      B,
                        T,           CAP
                };
                for (int twice = 0; twice < 2; twice++)
                        run(what, in_clusters<E, A, Tile, N>, B * A::K * groups * SPLITS, N, 64,
                            attention_decode_cluster_smem<E, A, Tile, N>(), &a);
                run(what, by_one<E, A, One>, B * A::K * groups, 1, 64,
                    attention_decode_smem<E, A, One>(), &a);
                for (size_t i = 0; i < o.size(); i++)
                        CHECK_NEAR(to_float(o[i]), to_float(plainly[i]),
                                   sizeof(E) == 2 ? 2e-2 : 1e-5, "output %d at %d", (int)i, pos);
                for (int d : done)
                        CHECK_NEAR(d, 0, 0, "a counter at %d", pos);
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

/* A stream's bits are the clusters', in one piece and in pages. */
template <class E, class A, int ROWS, int SPLITS, int N, int STAGES>
void streams(const char *what, int T)
{
        enum { B = 2, CAP = 2176, THREADS = 64, PAGES = CAP / 64 };
        typedef AttDecode<ROWS, SPLITS, THREADS> Tile;
        const int HD = A::H * A::D, KD = A::K * A::D,
                  groups = (T * (A::H / A::K) + ROWS - 1) / ROWS;
        for (int pos : { 0, 31, 250, 777, 2100 }) {
                std::vector<E> q(B * T * HD), k(B * CAP * KD), v(B * CAP * KD), o(B * T * HD),
                        turns(B * T * HD);
                std::vector<float> slopes(A::H),
                        work((size_t)B * T * A::H * SPLITS * att_record<A>());
                std::vector<int> done(B * A::K * groups);
                Rt rt;
                unsigned seed = pos + 1;
                memset((void *)&rt, 0, sizeof rt);
                rt.B = B, rt.T = T;
                for (auto &e : q)
                        from_float(&e, noise(&seed));
                for (int b = 0; b < B; b++) {
                        rt.pos[b] = b ? pos / 2 : pos;
                        for (int i = 0; i < CAP * KD; i++) {
                                const bool there = i < (rt.pos[b] + T) * KD;
                                from_float(&k[b * CAP * KD + i], there ? noise(&seed) : NAN);
                                from_float(&v[b * CAP * KD + i], there ? noise(&seed) : NAN);
                        }
                }
                Queries a = { q.data(),     k.data(),    v.data(),    o.data(),
                              turns.data(), work.data(), done.data(), slopes.data(),
                              &rt,          B,           T,           CAP,
                              {},           {} };
                a.map_k = boxes_of(k.data(), B * CAP, KD);
                a.map_v = boxes_of(v.data(), B * CAP, KD);
                run(what, in_clusters<E, A, Tile, N>, B * A::K * groups * SPLITS, N, THREADS,
                    attention_decode_cluster_smem<E, A, Tile, N>(), &a);
                for (int twice = 0; twice < 2; twice++)
                        run(what, in_turn<E, A, Tile, N, STAGES>, B * A::K * groups * SPLITS / N, 1,
                            THREADS, attention_decode_stream_smem<E, A, Tile, N, STAGES>(), &a);
                for (size_t i = 0; i < o.size(); i++)
                        CHECK_NEAR(to_float(turns[i]), to_float(o[i]), 0, "output %d at %d", (int)i,
                                   pos);

                const std::vector<E> kp = in_pages(k, B * PAGES, 64 * KD),
                                     vp = in_pages(v, B * PAGES, 64 * KD);
                std::vector<int> table(B * PAGES);
                for (int i = 0; i < B * PAGES; i++)
                        table[i] = B * PAGES - i;
                for (int b = 0; b < B; b++)
                        rt.slot[b] = b;
                rt.pages[0] = table.data(), rt.slot_pages = PAGES;
                a.k = kp.data(), a.v = vp.data();
                a.map_k = boxes_of(kp.data(), kp.size() / KD, KD);
                a.map_v = boxes_of(vp.data(), vp.size() / KD, KD);
                std::fill(turns.begin(), turns.end(), E());
                run(what, in_clusters<E, Paged<A>, Tile, N>, B * A::K * groups * SPLITS, N, THREADS,
                    attention_decode_cluster_smem<E, Paged<A>, Tile, N>(), &a);
                run(what, in_turn<E, Paged<A>, Tile, N, STAGES>, B * A::K * groups * SPLITS / N, 1,
                    THREADS, attention_decode_stream_smem<E, Paged<A>, Tile, N, STAGES>(), &a);
                for (size_t i = 0; i < o.size(); i++)
                        CHECK_NEAR(to_float(turns[i]), to_float(o[i]), 0, "output %d at %d, paged",
                                   (int)i, pos);
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
 * clusters and (STAGES > 0) as a stream. */
template <class E, class A, int ROWS, int SPLITS, int N, int STAGES>
void codes(const char *what, int T)
{
        enum { B = 2, CAP = 700, THREADS = 64 };
        typedef Codes<A> C;
        typedef AttDecode<ROWS, SPLITS, THREADS> Tile;
        typedef AttDecode<ROWS, 1, THREADS> One;
        const int HD = A::H * A::D, KD = A::K * A::D,
                  groups = (T * (A::H / A::K) + ROWS - 1) / ROWS;
        for (int pos : { 0, 31, 250, 660 }) {
                std::vector<E> q(B * T * HD), k(B * CAP * KD), v(B * CAP * KD), o(B * T * HD),
                        o8(B * T * HD), p(B * T * HD), p8(B * T * HD);
                std::vector<unsigned char> k8(B * CAP * code_row<A>()), v8(B * CAP * code_row<A>());
                std::vector<float> slopes(A::H),
                        work((size_t)B * T * A::H * SPLITS * att_record<A>());
                std::vector<int> done(B * A::K * groups);
                Rt rt;
                unsigned seed = pos + 1;
                memset((void *)&rt, 0, sizeof rt);
                rt.B = B, rt.T = T;
                for (auto &e : q)
                        from_float(&e, noise(&seed));
                for (int b = 0; b < B; b++) {
                        rt.pos[b] = b ? pos / 2 : pos;
                        std::vector<unsigned char> c(CAP * code_row<A>());
                        std::vector<E> wide(CAP * KD);
                        for (int i = 0; i < 2; i++) {
                                make_codes<E, A>(c, wide, CAP, rt.pos[b] + T, &seed);
                                std::copy(c.begin(), c.end(), (i ? v8 : k8).begin() + b * c.size());
                                std::copy(wide.begin(), wide.end(),
                                          (i ? v : k).begin() + b * wide.size());
                        }
                }
                Queries a = { q.data(), k.data(),    v.data(),    o.data(),
                              p.data(), work.data(), done.data(), slopes.data(),
                              &rt,      B,           T,           CAP,
                              {},       {} };
                const int one = B * A::K * groups;
                run(what, in_clusters<E, A, Tile, N>, one * SPLITS, N, THREADS,
                    attention_decode_cluster_smem<E, A, Tile, N>(), &a);
                run(what, by_one<E, A, One>, one, 1, THREADS, attention_decode_smem<E, A, One>(),
                    &a);
                a.k = k8.data(), a.v = v8.data(), a.o = o8.data(), a.plain = p8.data();
                run(what, in_clusters<E, C, Tile, N>, one * SPLITS, N, THREADS,
                    attention_decode_cluster_smem<E, C, Tile, N>(), &a);
                run(what, by_one<E, C, One>, one, 1, THREADS, attention_decode_smem<E, C, One>(),
                    &a);
                for (size_t i = 0; i < o.size(); i++) {
                        CHECK_NEAR(to_float(o8[i]), to_float(o[i]), 0, "output %d at %d", (int)i,
                                   pos);
                        CHECK_NEAR(to_float(p8[i]), to_float(p[i]), 0, "output %d at %d by one",
                                   (int)i, pos);
                }
                if constexpr (STAGES > 0) {
                        run(what, in_turn<E, C, Tile, N, STAGES>, one * SPLITS / N, 1, THREADS,
                            attention_decode_stream_smem<E, C, Tile, N, STAGES>(), &a);
                        for (size_t i = 0; i < o.size(); i++)
                                CHECK_NEAR(to_float(p8[i]), to_float(o[i]), 0,
                                           "output %d at %d, a stream", (int)i, pos);
                }
        }
        printf("ok %s\n", what);
}

/* Tiles as sm90_qkv_attention.c chooses them: a query to a key, two, four, all; windows, slopes,
 * caps; two warps that share K. */
int main()
{
        test<Case<float, Heads<2, 2, 16>, QkvAttentionTile<8, 96, 2, 1, 1>, 64, NORM_LAYER>>(
                "one query to a key");
        test<Case<float, Heads<4, 2, 16>, QkvAttentionTile<8, 64, 4, 1, 2>, 64, NORM_RMS>>(
                "two queries to a key");
        test<Case<float, Heads<4, 2, 16, 8>, QkvAttentionTile<8, 64, 4, 1, 2>, 64, NORM_RMS, true>>(
                "a window, keys first");
        test<Case<float, Heads<4, 2, 32, 40, false, 50>, QkvAttentionTile<8, 128, 4, 1, 2>, 64,
                  NORM_NONE>>("a window and a soft cap");
        test<Case<float, Heads<2, 2, 16, 0, true>, QkvAttentionTile<8, 96, 2, 1, 1>, 64,
                  NORM_LAYER>>("slopes");
        test<Case<float, Heads<4, 1, 16>, QkvAttentionTile<8, 96, 4, 1, 4>, 96, NORM_LAYER>>(
                "four queries to the key");
        test<Case<float, Heads<3, 1, 16>, QkvAttentionTile<8, 160, 2, 1, 4>, 64, NORM_RMS>>(
                "three queries to the key");
        test<Case<bf16, Heads<2, 2, 64>, QkvAttentionTile<8, 192, 4, 1, 1>, 256, NORM_RMS>>(
                "prologues of 64 in bf16");
        test<Case<bf16, Heads<2, 2, 48>, QkvAttentionTile<8, 288, 2, 1, 1>, 288, NORM_NONE>>(
                "prologues of 48 in bf16");
        test<Case<float, Heads<2, 2, 16>, QkvAttentionTile<8, 192, 2, 2, 1>, 520, NORM_LAYER>>(
                "two warps share K");
        merges<float, Heads<4, 2, 16>, 2, 8, 8>("two rows in one cluster", 1);
        merges<float, Heads<4, 1, 32>, 4, 32, 8>("four rows in four clusters", 1);
        merges<float, Heads<3, 1, 16, 0, true>, 8, 16, 8>("three rows of two queries, slopes", 2);
        merges<float, Heads<2, 2, 48, 60>, 1, 4, 4>("a window, three queries", 3);
        merges<bf16, Heads<4, 2, 64>, 2, 2, 2>("two blocks in bf16", 1);
        merges<bf16, Wide<8, 2, 64>, 4, 16, 8>("four rows on tensor cores in two clusters", 1);
        merges<f16, Wide<8, 2, 128, 600>, 8, 32, 8>("two queries of four rows, a window", 2);
        streams<bf16, Wide<8, 2, 64>, 4, 4, 4, 3>("a stream of four parts", 1);
        streams<f16, Wide<6, 2, 128>, 4, 8, 8, 2>("a stream of eight parts, two stages", 1);
        streams<bf16, Wide<8, 2, 128, 600>, 8, 16, 8, 3>("streams of a long cache, a window", 2);
        codes<bf16, Wide<4, 1, 64>, 4, 8, 8, 3>("8 bits, four queries to a key", 1);
        codes<f16, Wide<8, 2, 128>, 4, 16, 8, 2>("8 bits, heads of 128, halves", 1);
        codes<float, Heads<2, 2, 20>, 1, 4, 4, 0>("8 bits, floats, heads of 20", 1);
        codes<bf16, Heads<3, 3, 12, 100>, 1, 4, 4, 0>("8 bits, heads of 12, a window", 1);
        codes<f16, Narrow<2, 1, 7>, 2, 4, 4, 0>("8 bits, heads of 7", 1);
        if (failures)
                printf("%d failures\n", failures);
        return failures != 0;
}
