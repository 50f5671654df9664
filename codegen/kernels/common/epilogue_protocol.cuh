/* epilogue_protocol.cuh: the contract between a family and its epilogue, and the traits by which a
 * family asks what its epilogue offers.
 *
 * codegen/lower/functor.c and functor_read.c emit epilogues; so do codegen/ops/loss*.c.
 *
 * Required.  V: a power of two from MINV to MAXV that the family chooses.
 *
 *      static constexpr int MAXV, MINV                          8, 4, 2 or 1; MINV: 2 or 1
 *      operator()(int row, int col, float (&v)[V])              v: columns col .. col+V-1 of row
 *
 * col is a multiple of V.  The call computes and stores; it may change v.  One thread calls; it
 * neither shuffles nor waits.  Elements come in any order, none outside of rows x cols.
 *
 * Optional: early reads (EpilogueReads).  Such an epilogue starts its loads before its values are
 * ready.  The required call stays, and reads by itself.
 *
 *      READS, ROW_READS                                         16-byte reads at V = 8; of rows
 *      template <int V> struct In                               what was read, first of rows
 *      get_rows(int row, int col, In<V> &)                      starts reads that depend on the row
 *      get_cols(int col, In<V> &)                               starts those that all rows share
 *      operator()(int row, int col, float (&v)[V], const In<V> &)      the rest
 *
 * Optional: stores through an output object (EpilogueStores), so that a family can stage them in
 * shared memory.  The last call above (with In, if there is one) takes another argument, `const Out
 * &out`, by default Straight, and calls out.put<k>(address, values) for k < STORES.
 *
 *      STORES            number of such stores, of 16-bit values; 0: the epilogue stores by itself
 *      WIDTH0, WIDTH1    values of store k per two neighbouring columns: 2; 1 (one per pair); or 4
 *      READ              likewise, 16-bit values read from rows (the first member of In); 0: none,
 *                        -1: several arrays
 *
 * The family may call more than once for an element, with an Out that only takes addresses.  Such
 * an epilogue without SUMS may also be called outside of rows x cols; its puts are dropped there,
 * and it makes no reads except by In.
 *
 * Optional: numbers of a row (EpilogueSums), with stores.
 *
 *      SUMS                                             1: out.sum is called; 0: of_row alone
 *      float get_row(int row)                           a number of the row; the epilogue asks for
 *                                                       it as out.of_row(*this, row)
 *      put_sum(int row, int across, float sum)          SUMS 1: takes the sum of what it passed to
 *                                                       out.sum(v), over the row's columns in tile
 *                                                       `across` of N
 *
 * PairEpilogue, whose warps own whole rows of a tile, asks once per tile and sums; Straight asks
 * each time and sums nothing.
 *
 * Optional: whole rows (EpilogueRows).  An epilogue with a type WholeRows wraps another of that
 * type, its member `epilogue`, which computes the values v.  It wants whole rows of a tile at once,
 * from families that support it.  None is emitted; gemm_norm.cuh has the one. */
#ifndef TGC_EPILOGUE_PROTOCOL_CUH
#define TGC_EPILOGUE_PROTOCOL_CUH

#include "tgc.cuh"

/* Is there such a type, such a constant? */
template <class>
struct Exists {
        typedef void T;
};
template <int>
struct Number {
        typedef void T;
};

/* ---- early reads ---- */

/* Early reads of V columns; of epilogues without them, nothing. */
template <class Epilogue, int V, class = void>
struct EpilogueReads {
        static constexpr int N = 0, ROWS = 0;
        __device__ __forceinline__ void get_rows(const Epilogue &, int, int) {}
        __device__ __forceinline__ void get_cols(const Epilogue &, int) {}
        __device__ __forceinline__ void get(const Epilogue &, int, int) {}
        template <class... Out>
        __device__ __forceinline__ void call(const Epilogue &epilogue, int row, int col,
                                             float (&v)[V], const Out &...out) const
        {
                epilogue(row, col, v, out...);
        }
};

template <class Epilogue, int V>
struct EpilogueReads<Epilogue, V, typename Exists<typename Epilogue::template In<V>>::T> {
        static constexpr int N = Epilogue::READS, ROWS = Epilogue::ROW_READS;
        typename Epilogue::template In<V> in;
        __device__ __forceinline__ void get_rows(const Epilogue &epilogue, int row, int col)
        {
                epilogue.get_rows(row, col, in);
        }
        __device__ __forceinline__ void get_cols(const Epilogue &epilogue, int col)
        {
                epilogue.get_cols(col, in);
        }
        __device__ __forceinline__ void get(const Epilogue &epilogue, int row, int col)
        {
                get_rows(epilogue, row, col);
                get_cols(epilogue, col);
        }
        template <class... Out>
        __device__ __forceinline__ void call(const Epilogue &epilogue, int row, int col,
                                             float (&v)[V], const Out &...out) const
        {
                epilogue(row, col, v, in, out...);
        }
};

/* ---- stores ---- */

/* The Out that stores directly. */
struct Straight {
        template <int K, int V, class T>
        __device__ __forceinline__ void put(T *p, const float (&v)[V]) const
        {
                store<V>(p, v);
        }
        template <class Epilogue>
        __device__ __forceinline__ float of_row(const Epilogue &epilogue, int row) const
        {
                return epilogue.get_row(row);
        }
        template <int V>
        __device__ __forceinline__ void sum(const float (&)[V]) const
        {
        }
};

/* STORES, READ and WIDTHk; of epilogues without them, 0, 2 and 2. */
template <class Epilogue, class = void>
struct EpilogueStores {
        static constexpr int N = 0, READ = 2;
        static __device__ __forceinline__ constexpr int width(int) { return 2; }
        static __device__ __forceinline__ constexpr bool pairs() { return false; }
};
template <class Epilogue>
struct EpilogueStores<Epilogue, typename Number<Epilogue::STORES>::T> {
        static constexpr int N = Epilogue::STORES, READ = Epilogue::READ ? Epilogue::READ : 2;
        static __device__ __forceinline__ constexpr int width(int k)
        {
                return k ? Epilogue::WIDTH1 : Epilogue::WIDTH0;
        }
        /* Do two neighbouring columns fill whole 16-byte chunks, in 16 rows of at most 128
         * columns? */
        static __device__ __forceinline__ constexpr bool pairs()
        {
                return (N == 1 || (N == 2 && width(0) + width(1) != 5)) &&
                       (!Epilogue::READ || Epilogue::READ == width(0)) && Epilogue::READ >= 0;
        }
};

/* ---- numbers of a row ---- */

template <class Epilogue, class = void>
struct EpilogueSums {
        static constexpr bool ASKS = false, SUMS = false;
};
template <class Epilogue>
struct EpilogueSums<Epilogue, typename Number<Epilogue::SUMS>::T> {
        static constexpr bool ASKS = true, SUMS = Epilogue::SUMS;
};

/* ---- whole rows ---- */

template <class Epilogue, class = void>
struct EpilogueRows {
        typedef Epilogue Values;
        static constexpr bool WHOLE = false;
        static __device__ __forceinline__ const Values &of_values(const Epilogue &t) { return t; }
};
template <class Epilogue>
struct EpilogueRows<Epilogue, typename Exists<typename Epilogue::WholeRows>::T> {
        typedef typename Epilogue::WholeRows Values;
        static constexpr bool WHOLE = true;
        static __device__ __forceinline__ const Values &of_values(const Epilogue &t)
        {
                return t.epilogue;
        }
};

#endif
