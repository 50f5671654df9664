/* epilogue_tma_sm90.cuh: wrappers of epilogues whose results TMA stores, and whose reads TMA
 * loads; epilogue_pair_boxes_sm90.cuh and epilogue_pair_reads_sm90.cuh handle them. */
#ifndef TGC_EPILOGUE_TMA_SM90_CUH
#define TGC_EPILOGUE_TMA_SM90_CUH

#include "tgc.cuh"
#ifdef TGC_SM90A

/* Boxed: box[k] is the tensor map of store k's matrix.  Its boxes are 16 rows by as many columns
 * as fill a row of store k's part of the panel (PairEpilogue).  TMA clips at the matrix's edges.
 * COLUMNS: columns of C per panel that the map was made for, or 0. */
template <class Epilogue, int COLUMNS>
struct Boxed : Epilogue {
        const void *box[2];
};
template <int COLUMNS = 0, class Epilogue>
TGC_DEV Boxed<Epilogue, COLUMNS> boxed(const Epilogue &epilogue, const void *first,
                                       const void *second = nullptr)
{
        return { epilogue, { first, second } };
}
/* Fetched (ping-pong only): also, `from` is the map of what the epilogue reads of rows, with boxes
 * like the first store's. */
template <class Epilogue, int COLUMNS>
struct Fetched : Boxed<Epilogue, COLUMNS> {
        const void *from;
};
template <int COLUMNS = 0, class Epilogue>
TGC_DEV Fetched<Epilogue, COLUMNS> fetched(const Epilogue &epilogue, const void *from,
                                           const void *first, const void *second = nullptr)
{
        return { { epilogue, { first, second } }, from };
}
template <class Epilogue>
struct EpilogueBoxes {
        static constexpr bool ON = false, FETCHED = false;
        static constexpr int COLUMNS = 0;
};
template <class Epilogue, int N>
struct EpilogueBoxes<Boxed<Epilogue, N>> {
        static constexpr bool ON = true, FETCHED = false;
        static constexpr int COLUMNS = N;
};
template <class Epilogue, int N>
struct EpilogueBoxes<Fetched<Epilogue, N>> {
        static constexpr bool ON = true, FETCHED = true;
        static constexpr int COLUMNS = N;
};

#endif
#endif
