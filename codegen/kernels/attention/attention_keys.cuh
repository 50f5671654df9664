/* attention_keys.cuh: rows of keys and values in memory: contiguous or paged, of 16 or 32 bits or
 * e4m3.
 *
 * A paged cache (Att::PAGE) is a pool of pages, (pages, PAGE, K, D).  rt->pages has a row of page
 * numbers per slot, from rt->pages[POOL] on; key s of a sequence is row s % PAGE of its page
 * s / PAGE. */
#ifndef TGC_ATTENTION_KEYS_CUH
#define TGC_ATTENTION_KEYS_CUH

#include "attention_problem.cuh"
#include "ptx.cuh"

/* Keys or values of one head of one sequence; at(s) is key s. */
template <class E, class Att>
struct AttKeys {
        typedef typename AttStored<E, Att::FP8>::Element Stored;
        typedef typename AttStored<E, Att::FP8>::Row Row;
        Row base;
        long step;
        const int *pages; /* the sequence's page numbers; Att::PAGE only */

        static __device__ __forceinline__ Row row_at(const Stored *p, int hk)
        {
                if constexpr (Att::FP8) /* exponents are stored behind the codes of all heads */
                        return { p, Att::K * Att::D - hk * (Att::D - 1) };
                else
                        return p;
        }
        __device__ __forceinline__ AttKeys(const Stored *p, const Strides &s, const Rt *rt, int b,
                                           int hk)
            : base(row_at(p + (Att::PAGE ? 0 : b * s.b) + hk * s.h, hk)), step(s.t),
              pages(Att::PAGE ? rt->pages[Att::POOL] + (long)rt->slot[b] * rt->slot_pages : nullptr)
        {
        }
        /* Row number of key s; with pages, in the whole pool. */
        __device__ __forceinline__ long row(int s) const
        {
                if (!Att::PAGE)
                        return s;
                constexpr int PAGE = Att::PAGE ? Att::PAGE : 1;
                return (long)pages[s / PAGE] * PAGE + s % PAGE;
        }
        __device__ __forceinline__ Row at(int s) const { return base + row(s) * step; }
        /* near(s0) + s * step is at(s) for keys s of s0's page. */
        __device__ __forceinline__ Row near(int s0) const
        {
                return Att::PAGE ? base + (row(s0) - s0) * step : base;
        }
        /* V elements of a key as floats. */
        template <int V>
        __device__ __forceinline__ void read(float (&u)[V], int s, int col) const
        {
                if constexpr (Att::FP8)
                        fp8_read<false>(u, at(s), col);
                else
                        load(u, at(s) + col);
        }
};

/* Prefetches column d of a row into L2. */
template <class E>
TGC_DEV void att_prefetch(const E *row, int d)
{
        prefetch_l2(row + d);
}
TGC_DEV void att_prefetch(Fp8Row row, int d)
{
        prefetch_l2(row.p + d);
        if (d == 0)
                prefetch_l2(row.p + row.aside);
}

#endif
