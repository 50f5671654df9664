/* gemm_consumer_sm90.cuh: the two consumer warpgroups of gemm_sm90.cuh: mainloop and epilogue.
 *
 * The epilogue's reads start LAST_STEPS K-steps before the end of the mainloop, as many as there
 * are registers for, so that the epilogue does not wait for memory. */
#ifndef TGC_GEMM_CONSUMER_SM90_CUH
#define TGC_GEMM_CONSUMER_SM90_CUH

#include "gemm_tf32_rs_sm90.cuh"
#ifdef TGC_SM90A

/* ---- RowSums: sums of op(A)'s rows (TRANS_A: A's columns): bias gradients beside dW ----- */

/* parts: float (splits * tiles across N, M), to be added up in order.  Tiles that share rows of A
 * divide its K-steps among themselves; each adds a wgmma against a matrix of ones, which lies in
 * ROW_SUMS_SMEM bytes behind the tile's.  An A that goes through registers is summed there. */
enum { ROW_SUMS_SMEM = 256 };
struct RowSums {
        static constexpr bool ON = true;
        float *parts;
};
struct NoSums {
        static constexpr bool ON = false;
};

/* ---- steps ---------------------------------------------------------------------- */

/* K-step k of a tile: issues its wgmmas, waits for those of the previous step.  SUM: from step
 * `first` on, also A times ones. */
template <bool SUM, class T, class Tile, bool TRANS_A, bool TRANS_B, int MI>
TGC_DEV void wgmma_step(Pipeline<Tile> &pipe, unsigned long long a0, unsigned long long b0,
                        unsigned long long ones, float (&acc)[MI][Tile::BN / 8][4],
                        float (&sums)[MI][4], int k, int first, int lane)
{
        const unsigned long long at = (unsigned long long)(pipe.stage * (Tile::STAGE / 16));
        pipe.wait_full();
        if (Tile::COPIERS)
                fence_proxy_async(); /* makes cp.async's writes visible to wgmma */
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) /* of 32 bytes */
#pragma unroll
                for (int m = 0; m < MI; m++) {
                        const unsigned long long am = a0 + at + m * desc_64<!TRANS_A, Tile::BK>() +
                                                      ks * desc_k<!TRANS_A>();
                        wgmma<TRANS_A, !TRANS_B>(reinterpret_cast<float(&)[Tile::BN / 2]>(acc[m]),
                                                 am, b0 + at + ks * desc_k<TRANS_B>(),
                                                 ks > 0 || k > 0, T());
                        if constexpr (SUM)
                                wgmma<TRANS_A, 0>(sums[m], am, ones, ks > 0 || k > first, T());
                }
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0)
                pipe.leave(pipe.before(1), lane);
        pipe.next();
}

/* Operands of a warpgroup's mainloop: in shared memory, or A in registers (by_words). */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int MI>
struct Mainloop {
        typedef float Acc[MI][Tile::BN / 8][4];
        unsigned long long a0, b0, ones; /* descriptors of stage 0; of the matrix of ones */
        int lane;
        const WordsOfA<MI> &words;

        /* K-steps [k0, k1) of a tile; after `lead` of all the other consumer may start. */
        template <bool SUM>
        __device__ __forceinline__ void steps(Pipeline<Tile> &pipe, Acc &acc, float (&sums)[MI][4],
                                              int k0, int k1, int lead) const
        {
                if constexpr (by_words<T, TRANS_A>()) {
                        words_steps<SUM, T>(pipe, words, b0, acc, sums, k0, k1, lane, lead);
                } else {
#pragma unroll 1 /* unrolled last steps would take half of ptxas's time */
                        for (int k = k0; k < k1; k++) {
                                wgmma_step<SUM, T, Tile, TRANS_A, TRANS_B>(pipe, a0, b0, ones, acc,
                                                                           sums, k, k0, lane);
                                if (Tile::LEAD > 0 && k == lead - 1)
                                        bar_arrive(1, 256);
                        }
                }
        }
};

/* A piece without K-steps. */
template <int MI, int NI>
TGC_DEV void zero_sums(float (&acc)[MI][NI][4])
{
#pragma unroll
        for (int m = 0; m < MI * NI * 4; m++)
                acc[m / (NI * 4)][m / 4 % NI][m % 4] = 0.f;
}

/* RowSums: stores a warp's sums, of rows row0 + 64 m + (0 .. 15); zeros if it has none.  All
 * columns are equal: those of the quad's first lane are taken.  BY_WORDS: each lane of the quad has
 * a part of K. */
template <bool BY_WORDS, int MI>
TGC_DEV void put_row_sums(float *to, float (&sums)[MI][4], int row0, int M, bool some, int lane)
{
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        const int row = row0 + m * 64 + h * 8 + lane / 4;
                        wgmma_hold(sums[m]);
                        if (BY_WORDS)
                                sums[m][2 * h] = quad_sum(sums[m][2 * h]);
                        if (lane % 4 == 0 && row < M)
                                to[row] = some ? sums[m][2 * h] : 0.f;
                }
}

/* ---- epilogues ------------------------------------------------------------------------ */

/* Which of the three epilogues a consumer warp uses.  PanelEpilogue with 192 accumulators has no
 * registers for a panel's rows and reads. */
enum { BY_TRADING, BY_PANEL, BY_PAIRS };
template <class Tile, class Epilogue>
TGC_DEV constexpr int end_of()
{
        if (Epilogue::MAXV == 8 && EpilogueStores<Epilogue>::pairs())
                return BY_PAIRS;
        if (Epilogue::MAXV == 8 && Tile::SHARE < 2 &&
            (Tile::BN < 192 || EpilogueReads<Epilogue, 8>::N == 0))
                return BY_PANEL;
        return BY_TRADING;
}

/* Rows of the matrix that a piece belongs to; in a batch, of one of the stacked matrices. */
template <class Work>
TGC_DEV int whole_rows(const Work &, int M)
{
        return M;
}
template <class Tile, class Epilogue, bool TRIANGLE>
TGC_DEV int whole_rows(const BatchWork<Tile, Epilogue, TRIANGLE> &work, int)
{
        return work.M;
}

/* No tile is cut by C's edge. */
template <class Tile>
TGC_DEV constexpr bool is_whole(int M, int N)
{
        return M % Tile::WHOLE_M == 0 && N % Tile::WHOLE_N == 0;
}

template <class Tile, int MI, int SPARE, class Epilogue, int HOW = end_of<Tile, Epilogue>()>
struct Ends : MmaEpilogue<MI, Tile::BN, 64, SPARE, Epilogue> {
        static_assert(!EpilogueBoxes<Epilogue>::ON, "panels are what boxes come from");
        __device__ __forceinline__ Ends(const Epilogue &epilogue, char *, int row0, int col0, int M,
                                        int N, bool whole)
            : MmaEpilogue<MI, Tile::BN, 64, SPARE, Epilogue>(epilogue, row0, col0, M, N, whole)
        {
        }
};
template <class Tile, int MI, int SPARE, class Epilogue>
struct Ends<Tile, MI, SPARE, Epilogue, BY_PANEL> : PanelEpilogue<MI, Tile::BN, SPARE, Epilogue> {
        static_assert(!EpilogueBoxes<Epilogue>::ON, "panels of sums are none of results");
        __device__ __forceinline__ Ends(const Epilogue &epilogue, char *smem, int row0, int col0,
                                        int M, int N, bool whole)
            : PanelEpilogue<MI, Tile::BN, SPARE, Epilogue>(
                      epilogue, smem + Tile::PANELS + (int)(threadIdx.x / 32 - 4) * Tile::PANEL,
                      row0, col0, M, N, whole)
        {
        }
};
/* Panels of a warp, or (Fetched) of two. */
template <class Tile, class Epilogue>
TGC_DEV constexpr int panels_of()
{
        return EpilogueBoxes<Epilogue>::FETCHED ? Tile::BOTH : Tile::EACH;
}

template <class Tile, int MI, int SPARE, class Epilogue>
struct Ends<Tile, MI, SPARE, Epilogue, BY_PAIRS>
    : PairEpilogue<MI, Tile::BN, SPARE, Epilogue, panels_of<Tile, Epilogue>()> {
        static constexpr int MOST = panels_of<Tile, Epilogue>();
        static_assert(MOST > 0, "tiles that take turns fetch");
        static __device__ __forceinline__ int first()
        {
                return (int)(EpilogueBoxes<Epilogue>::FETCHED ? threadIdx.x / 32 % 4
                                                              : threadIdx.x / 32 - 4) *
                       MOST;
        }
        __device__ __forceinline__ Ends(const Epilogue &epilogue, char *smem, int row0, int col0,
                                        int M, int N, bool whole)
            : PairEpilogue<MI, Tile::BN, SPARE, Epilogue, MOST>(epilogue,
                                                                smem + Tile::PANELS +
                                                                        first() * Tile::PANEL,
                                                                row0, col0, M, N, whole)
        {
        }
};

/* The same address, opaque to ptxas, which would otherwise recompute it in every step from the
 * block's rank in the cluster. */
TGC_DEV char *from_lane0(char *smem)
{
        return (char *)__cvta_shared_to_generic(
                __shfl_sync(0xffffffffu, (unsigned)__cvta_generic_to_shared(smem), 0));
}

/* ---- the consumer loop ------------------------------------------------------------- */

/* About two microseconds before the end of a tile. */
enum { LAST_STEPS = 4 };

/* The consumer loop of a warpgroup: for each piece the mainloop, the epilogue's early reads
 * LAST_STEPS before its end, and the epilogue. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work, class Sums>
TGC_DEV void wgmma_consume(Pipeline<Tile> pipe, const Work &work, int N, const Sums &rows)
{
        constexpr int MI = Tile::WM / 64, SUMS = MI * Tile::BN / 2;
        /* KEEPS: registers besides the sums (tf32: reads and stores of a call take more calls, and
         * A's words registers).  SPARE: 16-byte reads that fit in what is left. */
        constexpr int KEEPS = Work::KEEPS + (sizeof(T) == 4 ? 32 : 0) +
                              (by_words<T, TRANS_A>() ? MI * 32 : 0);
        constexpr int SPARE = SUMS + KEEPS > 172 ? 2 : (180 - KEEPS - SUMS) / 4;
        const int consumer = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4,
                  lane = threadIdx.x & 31;
        pipe.smem = from_lane0(pipe.smem);
        const int part = Tile::SHARE == 2 ? consumer : 0;
        const int row0 = part * Tile::WM + warp * 16;
        /* Warp-uniform, as wgmma requires of descriptors. */
        const unsigned long long a0 = panel_desc<!TRANS_A, Tile::BK>(pipe.smem) +
                                      __shfl_sync(0xffffffffu, part, 0) * MI *
                                              desc_64<!TRANS_A, Tile::BK>();
        const unsigned long long b0 = panel_desc<TRANS_B, Tile::BK>(pipe.smem + Tile::A_BYTES);
        const unsigned long long ones = wgmma_desc(pipe.smem + Tile::SMEM, 128, 128, SWIZZLE_NONE);
        typename Work::Part p, next;
        const WordsOfA<MI> words(row0, lane);
        const Mainloop<T, Tile, TRANS_A, TRANS_B, MI> mainloop = { a0, b0, ones, lane, words };

        for (int i = 0; work.get(i, p); i++) {
                /* ping-pong: the other consumer's piece */
                if (Tile::SHARE == 1 && (i & 1) != consumer) {
                        pipe.skip(p.kt1 - p.kt0);
                        continue;
                }
                /* ping-pong: wait for the turn; cooperative: consumer 1 starts LEAD steps late */
                if (Tile::SHARE == 1 ? i > 0 : Tile::LEAD > 0 && i == 0 && consumer == 1)
                        bar_sync(1 + (i & 1), 256);
                float acc[MI][Tile::BN / 8][4];
                const auto &epilogue = work.epilogue_of(p, i);
                const int M = work.rows(p);
                Ends<Tile, MI, SPARE, typename Work::End> ends(epilogue, pipe.smem, p.m + row0, p.n,
                                                               M, N,
                                                               is_whole<Tile>(whole_rows(work, M),
                                                                              N));
                const int steps = p.kt1 - p.kt0, early = !ends.READS_AHEAD    ? steps
                                                         : steps < LAST_STEPS ? 0
                                                                              : steps - LAST_STEPS;
                int more = Tile::SHARE == 1 && work.get(i + 1, next);
                /* evaluated here, not while the other consumer waits */
                asm volatile("" : "+r"(more));
                if constexpr (EpilogueBoxes<typename Work::End>::FETCHED) {
                        Mbar *const own = (Mbar *)(pipe.smem + Tile::RING) +
                                          (consumer * 4 + warp) * Tile::BOTH;
                        ends.fetch(own, own + (1 - 2 * consumer) * 4 * Tile::BOTH, i, more,
                                   next.m + row0, next.n);
                }
                const int lead = i > 0 || consumer > 0 ? 0
                                 : steps < Tile::LEAD  ? steps
                                                       : Tile::LEAD;
                const int across = (N + Tile::BN - 1) / Tile::BN, at = p.n / Tile::BN;
                float sums[MI][4];
                int k = 0, k0 = 0;
                if constexpr (Sums::ON) {
                        /* [k0, k) also sum A's rows.  The steps before and after share one copy of
                         * the code: ptxas spends most of its time on steps. */
                        k0 = steps * at / across, k = steps * (at + 1) / across;
                        if constexpr (by_words<T, TRANS_A>()) {
#pragma unroll
                                for (int m = 0; m < MI; m++)
                                        sums[m][0] = sums[m][2] = 0.f;
                        }
#pragma unroll 1
                        for (int round = 0, from = 0, to = k0;; round++, from = k, to = early) {
                                mainloop.template steps<false>(pipe, acc, sums, from, to, lead);
                                if (round)
                                        break;
                                mainloop.template steps<true>(pipe, acc, sums, k0, k, lead);
                        }
                } else {
                        mainloop.template steps<false>(pipe, acc, sums, 0, early, lead);
                }
                if constexpr (ends.READS_AHEAD) {
                        ends.start();
                        mainloop.template steps<false>(pipe, acc, sums, k > early ? k : early,
                                                       steps, lead);
                }
                /* ping-pong: pass the turn */
                if (more)
                        bar_arrive(1 + ((i + 1) & 1), 256);
                wgmma_wait<0>();
                if (!Work::EMPTY || steps > 0)
                        pipe.leave(pipe.before(1), lane);
#pragma unroll
                for (int m = 0; m < MI; m++)
                        wgmma_hold(reinterpret_cast<float(&)[Tile::BN / 2]>(acc[m]));
                if (Work::EMPTY && steps == 0) {
                        if (Tile::LEAD > 0 && i == 0 && consumer == 0)
                                bar_arrive(1, 256);
                        zero_sums(acc);
                }
                if constexpr (Sums::ON)
                        put_row_sums<by_words<T, TRANS_A>()>(rows.parts +
                                                                     (long)(p.split * across + at) *
                                                                             M,
                                                             sums, p.m + row0, M, k > k0, lane);
                ends.run(acc);
        }
}

#endif
#endif
