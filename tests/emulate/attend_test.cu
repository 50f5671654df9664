/* attend_test.cu: kernels/attention/qkv_attention_sm90.cuh in the emulator, in clusters.
 *
 * The product is compared with plain loops in double, the attention with attention_decode_task over
 * the same q and cache.  Cache rows that are not written yet hold NaN. */
#include "heads.h"
#include "qkv_attention_sm90.cuh"

enum { CLUSTER = 8 };

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

template <class E_, class Att_, class Tile_, int EMBED_, int NORM_, bool SWAP_ = false>
struct Case {
        typedef E_ E;
        typedef Att_ Att;
        typedef Tile_ Tile;
        static constexpr int EMBED = EMBED_, NORM = NORM_;
        static constexpr bool SWAP = SWAP_;
};

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
        return finish();
}
