/* gemm_sm90.cuh: C = op(A) op(B) for bf16, f16 and tf32 on Hopper (sm_90a): wgmma fed by
 * a pipeline of shared memory stages.  Operands, epilogue and tiles are those of gemm.cuh;
 * only the way there differs, so a kernel built for sm_90a calls
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
 * where it called gemm_task or gemm_split_k_task: tiles first, first + step, ... of all, so that
 * the loads of a tile run under the epilogue of the one before.  Rows and columns at the edge of C,
 * and K, may be any size, K >= 1. M may be less than the rows that A's map has (prompts): what
 * these hold reaches only rows of C that are not stored. One more argument, RowSums, has A's rows
 * summed by the way.
 *
 * T float: of float32 matrices, whose values the copy engine rounds to tf32.  In bytes all is the
 * same, since a row of a box has 32 values and a wgmma 8 of K; but it takes words with K contiguous
 * alone.  So B without TRANS_B comes as a copy that has (Slabs<Tile>, and TRANS_B then), and
 * TRANS_A's operand goes through registers (gemm_tf32_rs_sm90.cuh).
 *
 * Operands come through tensor maps: one thread issues boxes of 64x64 values, of float 32x32; the
 * copy engine swizzles and fills with zeros outside.  What the caller does once per operand, when
 * its address is known: cuTensorMapEncodeTiled, BFLOAT16, FLOAT16 or TFLOAT32, rank 2, dims
 * {columns, rows} of the matrix as it lies in memory, one stride of ld elements (in bytes a
 * multiple of 16; address 16-byte aligned), that box, element strides 1, no interleave,
 * SWIZZLE_128B, L2 promotion 256 B, out of bounds zero.  The 128 bytes are a parameter of the
 * kernel, by value (TmaMap in tgc.cuh), and map_a and map_b its address.  One map serves every tile
 * shape and both uses of a matrix (transposed or not).
 *
 * How the warpgroups meet.  Warpgroup 0 loads into a pipeline (pipeline_sm90.cuh), ahead into the
 * next tile too (gemm_producer_sm90.cuh), and gives most of its registers to the two consumers
 * (gemm_consumer_sm90.cuh).  An epilogue runs while the tensor cores are busy, in one of two ways:
 *
 *      cooperative     The consumers share a tile.  Consumer 0 starts LEAD steps ahead of consumer
 *                      1, which still multiplies while 0 is in its epilogue.  What is hidden is at
 *                      most what the pipeline holds, but a 128x256 tile needs the least shared
 *                      memory traffic.
 *      ping-pong       (S...t) Each consumer has whole tiles, and one's epilogue, however long,
 *                      hides under the other's products.  A named barrier hands the turn over once
 *                      the last step has begun.  A parity tells only neighbouring rounds of a stage
 *                      apart, so nobody may wait for a stage while the round before is still to
 *                      come.
 *
 * In pairs (S...p) the two blocks of a cluster take tiles one above the other, which read the same
 * part of B.  Each block loads every other box of it into both.  A stage is empty when the warps of
 * both blocks are done with it.  Without pairs 128x128 tiles ask for more than the 48 bytes a clock
 * that L2 gives a multiprocessor.  The number of rows of tiles is even (in cooperative form an odd
 * last one is multiplied for nothing).  The kernel has __cluster_dims__(2, 1, 1); first is
 * blockIdx.x and step gridDim.x, an even number.
 *
 * SplitK (S...pN) pairs of blocks have a tile's K in parts (gemm_split_k_sm90.cuh). */
#ifndef TGC_GEMM_SM90_CUH
#define TGC_GEMM_SM90_CUH

#include "gemm_split_k_sm90.cuh"
#ifdef TGC_SM90A

template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS, class Load, class Work,
          class Sums>
TGC_DEV void gemm_tma_run(const Load &load, char *smem, const Work &work, const Sums &rows)
{
        /* 168 registers at entry (65536 / 384, down to a multiple of 8); what a loading thread
         * gives up two multiplying ones share. */
        constexpr int REGS = (3 * 168 - Load::REGS) / 2;
        /* and barriers of its panels */
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
                cluster_sync(); /* the other block's barriers are there */
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
                bulk_wait<0>(); /* here: where the sums are just done ptxas spills them for it */
        if (Tile::PAIR)
                cluster_sync(); /* and are no longer needed */
        if (threadIdx.x == 0)
                for (int s = 0; s < 2 * Tile::STAGES + FETCHED; s++)
                        mbarrier_inval(pipe.full(s));
        __syncthreads();
}

/* Tiles first, first + step, ... of all.  WAITS: see Loader. */
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

/* The same of BatchWork; maps are of all matrices of an operand. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool TRIANGLE, class Epilogue>
TGC_DEV void gemm_tma_batch(const void *map_a, const void *map_b, int M, int N, int K, int batch,
                            int first, int step, char *smem, const Epilogue &epilogue)
{
        const BatchWork<Tile, Epilogue, TRIANGLE> work = { M, N, K, batch, first, step, epilogue };
        typedef BatchProducts<Tile::BK, TRANS_A, TRANS_B> Places;
        const Loader<Tile, TRANS_A, TRANS_B, Places> load = { map_a, map_b, N, { M, N, K } };
        gemm_tma_run<T, Tile, TRANS_A, TRANS_B, false>(load, smem, work, NoSums());
}

/* A part of a tile, of PARTS blocks for each, the rows of tiles rounded up to pairs; PARTS <=
 * ceil(K / 64). joined: 0 at the start of the program, then left to kernels of as many parts, an
 * int more than tiles; ws: (PARTS - 1) * BM * BN floats for each tile; sms: multiprocessors, or
 * 0. */
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

/* Tiles of splits: first, first + step, ...; V divides N.  splits <= ceil(K / 64). */
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
