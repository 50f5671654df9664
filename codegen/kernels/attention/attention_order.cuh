/* attention_order.cuh: which head, sequence and queries a tile is.
 *
 *      att_order        tile -> head of the batch, row block
 *      att_sequence     RAGGED: tile -> sequence */
#ifndef TGC_ATTENTION_ORDER_CUH
#define TGC_ATTENTION_ORDER_CUH

#include "attention_problem.cuh"

/* RAGGED: the sequence that `tile` belongs to, and the tile's number within it.  Sequences take
 * `each` tiles per BM tokens, one sequence after the other.  b is rt->B behind the last.  MIXED as
 * in AttBase. */
struct AttSequence {
        int b, start, T, tile;
};
template <int BM, bool MIXED>
TGC_DEV AttSequence att_sequence(const Rt *rt, int each, int tile)
{
        const int B = rt->B, first = MIXED ? rt->sampled : 0;
        int start = first;
#pragma unroll 4
        for (int b = first; b < B; b++) {
                const int end = rt->start[b + 1], n = (end - start + BM - 1) / BM * each;
                if (tile < n)
                        return { b, start, end - start, tile };
                tile -= n;
                start = end;
        }
        return { B, 0, 0, 0 };
}

/* Tile -> (head of the batch, row block).  Heads go in groups whose keys and values fit in L2
 * together.  Within a group the longest blocks start first, so that short ones fill the gaps at
 * the end. */
template <class E, class Att>
TGC_DEV void att_order(int tile, int heads, int per_kv, int blocks, int T, bool last_first, int &bh,
                       int &m)
{
        int group = (int)((16 << 20) / ((long)T * Att::D * 2 * (int)sizeof(E)) + 1) * per_kv;
        group = group < heads ? group : heads;
        int g = tile / (group * blocks), i = tile % (group * blocks);
        int n = heads - g * group < group ? heads - g * group : group;
        bh = g * group + i % n;
        m = last_first ? blocks - 1 - i / n : i / n;
}

#endif
