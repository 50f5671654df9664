/* attention_work_sm90.cuh: tiles of forward attention on Hopper (attention_sm90.cuh), and the
 * static schedule of its persistent blocks. */
#ifndef TGC_ATTENTION_WORK_SM90_CUH
#define TGC_ATTENTION_WORK_SM90_CUH

#include "attention_panel_sm90.cuh"
#ifdef TGC_SM90A

/* STAGES: panels of keys or values in flight.  TURNS: ping-pong, groups issue their GEMMs one
 * after the other. */
template <int D_, int GROUPS_, int BN_, int STAGES_, bool TURNS_>
struct AttTileSm90 {
        static constexpr int D = D_, GROUPS = GROUPS_, BM = 64 * GROUPS, BN = BN_, STAGES = STAGES_;
        static constexpr bool TURNS = TURNS_;
        static constexpr int THREADS = 128 * (GROUPS + 1);
        static constexpr int STAGE = AttPanel<BN, D>::BYTES, Q = AttPanel<64, D>::BYTES;
        static constexpr int SMEM = 2 * GROUPS * Q + STAGES * STAGE + (2 * STAGES + 4 * GROUPS) * 8;
        /* Registers per thread (setmaxnreg): at entry; FEW for the producer; MANY for the
         * consumers, which share what the producer gives up. */
        static constexpr int ENTRY = 65536 / THREADS / 8 * 8, FEW = GROUPS == 3 ? 32 : 24;
        static constexpr int MANY = (ENTRY * (GROUPS + 1) - FEW) / GROUPS / 8 * 8;
};

/* A block of queries of sequence b, head h, from m0 on; it meets n panels of keys from panel n0
 * on. */
struct AttBlock {
        int b, h, m0, n0, n;
        int row0, T; /* RAGGED: the sequence's first row, and its tokens */
};

template <class E, class Att, class Tile>
struct AttWork {
        const AttIn<E, Att> &in;
        const Rt *rt;
        int B, T, first, step;

        __device__ __forceinline__ AttHead<E, Att> head(const AttBlock &w) const
        {
                if (Att::RAGGED)
                        return AttHead<E, Att>(in, rt, AttSequence { w.b, w.row0, w.T, 0 }, w.h);
                return AttHead<E, Att>(in, rt, w.b, w.h, T);
        }
        /* The i-th query block of this thread block.  Heads go in sets whose keys and values fit
         * in L2: as many heads as there are thread blocks, or an equal part of them.  In a set the
         * queries with most keys come first, and every second round is dealt in reverse, which
         * balances the work within a few percent.  Blocks are aligned to the sequence's end; what
         * does not divide is cut from the first one, whose groups then have m0 < 0 (under CAUSAL,
         * where keys are fewest). */
        __device__ __forceinline__ bool get(int i, AttBlock &w) const
        {
                int t = i * step + (i & 1 ? step - 1 - first : first), T = this->T,
                    heads = B * Att::H;
                if constexpr (Att::RAGGED) {
                        const AttSequence q = att_sequence<Tile::BM, Att::MIXED>(rt, Att::H, t);
                        if (q.b == rt->B)
                                return false;
                        t = q.tile, T = q.T, heads = Att::H;
                        w.b = q.b, w.row0 = q.start, w.T = q.T;
                }
                const int blocks = (T + Tile::BM - 1) / Tile::BM;
                if (t >= heads * blocks)
                        return false;
                /* of `step` heads */
                const long bytes = (long)T * Att::D * 4 * step / (Att::H / Att::K);
                const int parts = (int)(bytes / (24 << 20)) + 1,
                          set = parts < step ? step / parts : 1;
                const int s = t / (set * blocks), j = t - s * set * blocks, left = heads - s * set;
                const int n = left < set ? left : set, bh = s * set + j % n;
                if (!Att::RAGGED)
                        w.b = bh / Att::H;
                w.h = bh % Att::H, w.m0 = (T + 63) / 64 * 64 - (j / n + 1) * Tile::BM;
                const AttHead<E, Att> hd = head(w);
                w.n0 = hd.first_key(w.m0 < 0 ? 0 : w.m0) / Tile::BN;
                w.n = (hd.end_key(w.m0 + Tile::BM) + Tile::BN - 1) / Tile::BN - w.n0;
                return true;
        }
};

#endif
#endif
