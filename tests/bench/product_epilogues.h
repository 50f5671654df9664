/* product_epilogues.h: epilogues as generated ones are, for the tests and benches of Hopper's
 * products.
 *
 * A Mode says what a product's launch does and what its ws is: of ADDED, TWICE and SPREAD what is
 * added, and behind it the second result.  WIDE: epilogues that are called for eight.  HALVES: a
 * second result of every other column, ws. SPREAD: (M,2N), of each sum that plus one value, and
 * minus another.  SPLIT: parts of K, added up by a second kernel; SUMMED: with sums of A's rows. 
 * GELU: of the sum and a bias, the first row of ws, and behind M x N of ws its slope; TIMES: each
 * sum times ws. */
#ifndef BENCH_PRODUCT_EPILOGUES_H
#define BENCH_PRODUCT_EPILOGUES_H

#define TGC_FAST_MATH 1 /* as programs of 16-bit storage have it */
#include "functor.cuh"

enum Mode {
        PERSISTENT,
        ADDED,
        TWICE,
        WIDE,
        WIDE_ADDED,
        HALVES,
        SPREAD,
        SPLIT,
        SUMMED,
        SUMMED_SPLIT,
        GELU,
        TIMES
};
static __host__ __device__ constexpr bool adds(Mode m)
{
        return m == ADDED || m == TWICE || m == WIDE_ADDED;
}

/* STORES_ 0: an epilogue that cannot be called for pairs.  V: as generated ones have it. */
template <class T, int STORES_, int V_ = 16 / sizeof(T)>
struct Store {
        static constexpr int MAXV = V_, MINV = 1, STORES = STORES_, WIDTH0 = 2, WIDTH1 = 0,
                             READ = 0;
        T *c;
        int N;
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V],
                                                   const Out &out = Out()) const
        {
                out.template put<0>(c + (long)row * N + col, v);
        }
};

/* An epilogue that reads ahead, as generated ones do: a residual and something like a bias. 
 * STORES_ 2: stores twice. */
template <class T, int STORES_>
struct AddStore {
        static constexpr int MAXV = 16 / sizeof(T), MINV = 1, ROW_READS = sizeof(T) / 2,
                             READS = 2 * ROW_READS;
        static constexpr int STORES = STORES_, WIDTH0 = 2, WIDTH1 = 2, READ = 2;
        T *c, *other;
        const T *add;
        int N;
        template <int V>
        struct In {
                Raw<V, T> add, bias;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.add.get(add + (long)row * N + col);
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int col, In<V> &in) const
        {
                in.bias.get(add + col);
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float r[V], s[V], minus[V];
                in.add.template floats<0, 1>(r);
                in.bias.template floats<0, 1>(s);
#pragma unroll
                for (int i = 0; i < V; i++) {
                        v[i] += r[i] + s[i];
                        minus[i] = -v[i];
                }
                out.template put<0>(c + (long)row * N + col, v);
                if constexpr (STORES > 1)
                        out.template put<1>(other + (long)row * N + col, minus);
        }
};

/* A bias, GELU, and the slope that its gradient takes. */
template <class T>
struct GeluStore {
        static constexpr int MAXV = 8, MINV = 1, ROW_READS = 0, READS = 1, STORES = 2, WIDTH0 = 2,
                             WIDTH1 = 2, READ = 0;
        T *c, *slope;
        const T *bias;
        int N;
        template <int V>
        struct In {
                Raw<V, T> bias;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int, int, In<V> &) const
        {
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int col, In<V> &in) const
        {
                in.bias.get(bias + col);
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float b[V], y[V], s[V];
                in.bias.template floats<0, 1>(b);
#pragma unroll
                for (int i = 0; i < V; i++) {
                        y[i] = gelu_tanh(v[i] + b[i]);
                        s[i] = gelu_tanh_slope(v[i] + b[i]);
                }
                out.template put<0>(c + (long)row * N + col, y);
                out.template put<1>(slope + (long)row * N + col, s);
        }
};

/* That gradient: times a slope that is read. */
template <class T>
struct TimesStore {
        static constexpr int MAXV = 8, MINV = 1, ROW_READS = 1, READS = 1, STORES = 1, WIDTH0 = 2,
                             WIDTH1 = 0, READ = 2;
        T *c;
        const T *by;
        int N;
        template <int V>
        struct In {
                Raw<V, T> by;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.by.get(by + (long)row * N + col);
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int, In<V> &) const
        {
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float by[V];
                in.by.template floats<0, 1>(by);
#pragma unroll
                for (int i = 0; i < V; i++)
                        v[i] *= by[i];
                out.template put<0>(c + (long)row * N + col, v);
        }
};

/* As a gated activation's forward product: the first of each pair once more. */
template <class T>
struct Halves {
        static constexpr int MAXV = 8, MINV = 2, STORES = 2, WIDTH0 = 2, WIDTH1 = 1, READ = 0;
        T *c, *half;
        int N;
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V],
                                                   const Out &out = Out()) const
        {
                float h[V / 2];
#pragma unroll
                for (int i = 0; i < V / 2; i++)
                        h[i] = v[2 * i];
                out.template put<0>(c + (long)row * N + col, v);
                out.template put<1>(half + (long)row * (N / 2) + col / 2, h);
        }
};

/* As its backward product: two values are read for each sum, and two stored. */
template <class T>
struct Spread {
        static constexpr int MAXV = 8, MINV = 1, READS = 2, ROW_READS = 2, STORES = 1, WIDTH0 = 4,
                             WIDTH1 = 0, READ = 4;
        T *to;
        const T *from;
        int N;
        template <int V>
        struct In {
                Raw<2 * V, T> pairs;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.pairs.get(from + ((long)row * N + col) * 2);
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int, In<V> &) const
        {
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float a[V], b[V], o[2 * V];
                in.pairs.template floats<0, 2>(a);
                in.pairs.template floats<1, 2>(b);
#pragma unroll
                for (int i = 0; i < V; i++) {
                        o[2 * i] = v[i] + a[i];
                        o[2 * i + 1] = -b[i];
                }
                out.template put<0>(to + ((long)row * N + col) * 2, o);
        }
};

#endif
