/* gemm_sm90.cuh: C = op(A) op(B) for bf16, f16 and tf32 on Hopper (sm_90a): warp-specialised,
 * persistent, TMA and wgmma.  Operands, epilogue and tile order are those of gemm.cuh.
 *
 *      gemm_tma_persistent<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, K, first, step, smem,
 *              epilogue)
 *      gemm_tma_batch<T, Tile, TRANS_A, TRANS_B, TRIANGLE>(map_a, map_b, M, N, K, batch, first,
 *              step, smem, epilogue)
 *      gemm_tma_split_k_parts<T, Tile, TRANS_A, TRANS_B, V>(map_a, map_b, M, N, K, splits, ws,
 *              first, step, smem)
 *      gemm_tma_split_k<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, K, ws, joined, sms, smem,
 *              epilogue)
 *
 * A block computes tiles first, first + step, ..., and loads a tile during the previous one's
 * epilogue.  M, N and K >= 1 are arbitrary.  M may be less than the rows of A's map (prompts):
 * extra rows reach only rows of C that are not stored.  An optional last argument, RowSums, sums
 * A's rows on the way.
 *
 * T float: float32 matrices, which TMA rounds to tf32.  A box row has 32 values and a wgmma 8 of
 * K, so all byte counts stay.  But tf32 wgmma needs K contiguous in shared memory.  So B without
 * TRANS_B is passed as a transposed copy (Slabs<Tile>, with TRANS_B), and A with TRANS_A goes
 * through registers (gemm_tf32_rs_sm90.cuh).
 *
 * Tensor maps (the caller encodes one per operand): cuTensorMapEncodeTiled, BFLOAT16, FLOAT16 or
 * TFLOAT32, rank 2, dims {columns, rows} of the matrix in memory, one stride of ld elements (a
 * multiple of 16 bytes; address 16-byte aligned), box 64x64 (float: 32x32), element strides 1, no
 * interleave, SWIZZLE_128B, L2 promotion 256 B, out of bounds zero.  A map is a kernel parameter,
 * by value (TmaMap in tgc.cuh).  One map serves every tile shape and both orientations.
 *
 * Roles.  Warpgroup 0 is the producer: one thread loads into a pipeline (pipeline_sm90.cuh), ahead
 * into the next tile too (gemm_producer_sm90.cuh).  It gives most of its registers to the two
 * consumer warpgroups (gemm_consumer_sm90.cuh).  Epilogues overlap with wgmma in one of two ways:
 *
 *      cooperative     The consumers share a tile.  Consumer 0 starts LEAD steps ahead of
 *                      consumer 1, which still multiplies during 0's epilogue.  This hides at most
 *                      what the pipeline holds, but 128x256 tiles need the least shared memory
 *                      traffic.
 *      ping-pong       (S...t) Each consumer has whole tiles, and its epilogue, however long,
 *                      overlaps with the other's mainloop.  A named barrier passes the turn after
 *                      the last step was issued.  (A parity distinguishes only adjacent rounds of a
 *                      stage, so nobody may wait for a stage whose previous round is still to
 *                      come.)
 *
 * Pairs (S...p): the two blocks of a cluster take vertically adjacent tiles, which read the same
 * part of B.  Each block multicasts every other box of it to both.  A stage is empty when the
 * warps of both blocks have read it.  Without pairs, 128x128 tiles need more than the 48 bytes per
 * clock that L2 gives a multiprocessor.  The number of tile rows is even (in cooperative form an
 * odd last one is computed in vain).  The kernel has __cluster_dims__(2, 1, 1); first is
 * blockIdx.x, step gridDim.x, an even number.
 *
 * SplitK (S...pN): N pairs of blocks split a tile's K (gemm_split_k_sm90.cuh). */
#ifndef TGC_GEMM_SM90_CUH
#define TGC_GEMM_SM90_CUH

#include "gemm_split_k_sm90.cuh"
#ifdef TGC_SM90A

/* A block's life: barriers, then producer and consumers, then the barriers' end. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS, class Load, class Work,
          class Sums>
TGC_DEV void gemm_tma_run(const Load &load, char *smem, const Work &work, const Sums &rows)
{
        /* 168 registers per thread at entry (65536 / 384, rounded down to a multiple of 8); the
         * consumers share what the producer gives up */
        constexpr int REGS = (3 * 168 - Load::REGS) / 2;
        /* and barriers of fetched panels */
        constexpr int FETCHED = EpilogueBoxes<typename Work::End>::FETCHED ? 8 * Tile::BOTH : 0;
        Pipeline<Tile> pipe(smem);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(pipe.full(s), 1 + Tile::COPIERS);
                        mbarrier_init(pipe.empty(s), 4 * Tile::SHARE * (Tile::PAIR ? 2 : 1));
                }
                for (int s = 0; s < FETCHED; s++)
                        mbarrier_init((Mbar *)(smem + Tile::RING) + s, 1);
                fence_barrier_init();
                fence_proxy_async();
        }
        if constexpr (Sums::ON) {
                if (threadIdx.x < ROW_SUMS_SMEM / sizeof(T)) {
                        from_float((T *)(smem + Tile::SMEM) + threadIdx.x, 1.f);
                        fence_proxy_async();
                }
        }
        __syncthreads();
        if (Tile::PAIR)
                cluster_sync(); /* the other block's barriers are initialised */
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Load::REGS>();
                if (threadIdx.x < Load::THREADS)
                        load.template run<WAITS>(pipe, work);
                __syncwarp();
        } else {
                setmaxnreg_inc<REGS>();
                if (WAITS)
                        pdl_wait();
                if constexpr (Tile::PARTS > 1)
                        wgmma_split_k<T, Tile, TRANS_A, TRANS_B>(pipe, work);
                else
                        wgmma_consume<T, Tile, TRANS_A, TRANS_B>(pipe, work, work.N, rows);
        }
        __syncthreads();
        if (EpilogueBoxes<typename Work::End>::ON)
                bulk_wait<0>(); /* here: right after the sums are done ptxas would spill them */
        if (Tile::PAIR)
                cluster_sync(); /* the other block is done with this one's barriers */
        if (threadIdx.x == 0)
                for (int s = 0; s < 2 * Tile::STAGES + FETCHED; s++)
                        mbarrier_inval(pipe.full(s));
        __syncthreads();
}

/* Tiles first, first + step, ...  WAITS: see Loader. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS = false, class Epilogue,
          class Sums = NoSums>
TGC_DEV void gemm_tma_persistent(const void *map_a, const void *map_b, int M, int N, int K,
                                 int first, int step, char *smem, const Epilogue &epilogue,
                                 const Sums &rows = Sums())
{
        typedef TileOf<T, Tile> Own;
        const TileWork<Own, Epilogue> work = {
                M, N, K, first, gemm_tiles<Own>(M, N), step, epilogue
        };
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        gemm_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, rows);
}

/* The same for BatchWork; each map covers all matrices of an operand. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool TRIANGLE, class Epilogue>
TGC_DEV void gemm_tma_batch(const void *map_a, const void *map_b, int M, int N, int K, int batch,
                            int first, int step, char *smem, const Epilogue &epilogue)
{
        const BatchWork<Tile, Epilogue, TRIANGLE> work = { M, N, K, batch, first, step, epilogue };
        typedef BatchProducts<Tile::BK, TRANS_A, TRANS_B> Places;
        const Loader<Tile, TRANS_A, TRANS_B, Places> load = { map_a, map_b, N, { M, N, K } };
        gemm_tma_run<T, Tile, TRANS_A, TRANS_B, false>(load, smem, work, NoSums());
}

/* Split-K within one launch: a tile has PARTS blocks, PARTS <= ceil(K / 64); tile rows are rounded
 * up to pairs.  joined: one int more than tiles, 0 at program start, then reused by kernels with
 * the same PARTS.  ws: (PARTS - 1) * BM * BN floats per tile.  sms: multiprocessors, or 0. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS = false, class Epilogue>
TGC_DEV void gemm_tma_split_k(const void *map_a, const void *map_b, int M, int N, int K, float *ws,
                              int *joined, int sms, char *smem, const Epilogue &epilogue)
{
        typedef TileOf<T, Tile> Own;
        const SplitKWork<Own, Epilogue> work = {
                M, N, K, ws, joined, sms, (int *)(smem + Tile::RING - 8), epilogue
        };
        if (threadIdx.x == 0 && cluster_rank() == 0 && !work.in_order())
                work.start();
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        gemm_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, NoSums());
}

/* Split-K into ws: tiles of all splits; V divides N, splits <= ceil(K / 64). */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int V, bool WAITS = false,
          class Sums = NoSums>
TGC_DEV void gemm_tma_split_k_parts(const void *map_a, const void *map_b, int M, int N, int K,
                                    int splits, float *ws, int first, int step, char *smem,
                                    const Sums &rows = Sums())
{
        typedef TileOf<T, Tile> Own;
        const SplitWork<Own, V> work = { M, N, K, splits, first, step, ws };
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        gemm_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, rows);
}

#endif
#endif
