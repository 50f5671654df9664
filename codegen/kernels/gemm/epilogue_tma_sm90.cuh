/* epilogue_tma_sm90.cuh: tails whose results the copy engine stores, and whose reads it fetches; epilogue_pair_sm90.cuh does both. */
#ifndef TGC_TAIL_BOXES_SM90_CUH
#define TGC_TAIL_BOXES_SM90_CUH

#include "tgc.cuh"
#ifdef TGC_SM90A

/* Boxed: box[k] is the map of store k's matrix, with boxes of 16 rows by as many columns as fill a row of store k's part of the
 * panel (PairTail).  Columns and rows outside of the matrix are left alone.  COLUMNS: of C that the maps' maker counted on for
 * a panel, or 0. */
template <class Tail, int COLUMNS> struct Boxed : Tail { const void *box[2]; };
template <int COLUMNS = 0, class Tail>
TGC_DEV Boxed<Tail, COLUMNS> boxed(const Tail &tail, const void *first, const void *second = nullptr)
{
        return { tail, { first, second } };
}
/* Fetched, where consumers take turns: and `from` is the map of what the tail reads of rows, with boxes as the first store's. */
template <class Tail, int COLUMNS> struct Fetched : Boxed<Tail, COLUMNS> { const void *from; };
template <int COLUMNS = 0, class Tail>
TGC_DEV Fetched<Tail, COLUMNS> fetched(const Tail &tail, const void *from, const void *first, const void *second = nullptr)
{
        return { { tail, { first, second } }, from };
}
template <class Tail> struct TailBoxes { static constexpr bool ON = false, FETCHED = false; static constexpr int COLUMNS = 0; };
template <class Tail, int N>
struct TailBoxes<Boxed<Tail, N>> { static constexpr bool ON = true, FETCHED = false; static constexpr int COLUMNS = N; };
template <class Tail, int N>
struct TailBoxes<Fetched<Tail, N>> { static constexpr bool ON = true, FETCHED = true; static constexpr int COLUMNS = N; };

#endif
#endif
