/* attention_backward_tile_sm90.cuh: what Hopper's backward kernels share (attention_dq_sm90.cuh,
 * attention_dkv_sm90.cuh): shared memory, jobs, resident operands, the pipeline.
 *
 * A job owns 128 rows of one head, resident in shared memory: keys and values of a kv head, or
 * queries and gradients of the output.  The rows they meet stream through a pipeline, 64 per step.
 * Warpgroup 0 is the producer.  Warpgroups 1 and 2 own 64 rows each and exchange nothing. */
#ifndef TGC_ATTENTION_BACKWARD_TILE_SM90_CUH
#define TGC_ATTENTION_BACKWARD_TILE_SM90_CUH

#include "attention_backward.cuh"
#include "attention_panel_sm90.cuh"
#ifdef TGC_SM90A

/* pipeline_wait, with an exit that is never taken: without it ptxas 13.0 serialises wgmma (warning
 * C7514). */
TGC_DEV void att_wait_sm90(Mbar *bar, unsigned parity)
{
#ifdef TGC_BOUNDED
        pipeline_wait(bar, parity);
#else
        for (int tries = 0; !mbarrier_try_wait(bar, parity); tries++)
                if (tries == 1 << 30)
                        __trap();
#endif
}

struct AttGradMaps {
        AttMap q, k, v, g;
        const int *documents; /* as AttIn's */
};

template <class E>
struct AttGradRows {
        const E *o;
        Strides so;
        const E *g;
        Strides sg;
};

template <class E, class Att>
__host__ __device__ constexpr bool att_grad_sm90_serves()
{
        return sizeof(E) == 2 && (Att::D == 64 || Att::D == 128) && !AttHead<E, Att>::SHAPED &&
               !Att::MASK && !Att::CACHED && Att::DROPOUT == 0.f &&
               (!Att::DOCUMENTS || Att::CAUSAL);
}

/* OWNS: jobs whose own rows fit in shared memory; with 2 the next job's rows load during the
 * current one.  KEEP: both resident operands stay in registers, so that wgmma reads only the
 * step's from shared memory. */
template <int D_, int STAGES_, int OWNS_, bool KEEP_>
struct AttBackwardTileSm90 {
        static constexpr int D = D_, BM = 128, BN = 64, STAGES = STAGES_, OWNS = OWNS_,
                             THREADS = 384;
        static constexpr bool KEEP = KEEP_;
        typedef AttPanel<BM, D> Own;
        typedef AttPanel<BN, D> Step;
        /* Shared memory: own rows of both operands; the pipeline and its barriers; full and empty
         * barriers of the own rows; lse and delta of each stage. */
        static constexpr int STAGE = 2 * Step::BYTES, OWN = 2 * Own::BYTES, RING = OWNS * OWN;
        static constexpr int OWN_BAR = RING + STAGES * (STAGE + 16), ROWS = OWN_BAR + OWNS * 16;
        static constexpr int SMEM = ROWS + STAGES * BN * 8;
        /* Added to a step's descriptor with k = D, gives the one with k = rows: another lbo. */
        static constexpr unsigned TALL = (BN * 128 - 16) >> 4 << 16;
        static_assert(D == 64 || D == 128, "whole boxes");

        /* Job i: its own rows, their barriers, and how many phases those completed before. */
        static __device__ __forceinline__ char *own(char *smem, int i)
        {
                return smem + i % OWNS * OWN;
        }
        static __device__ __forceinline__ Mbar *full(char *smem, int i)
        {
                return (Mbar *)(smem + OWN_BAR) + i % OWNS;
        }
        static __device__ __forceinline__ Mbar *empty(char *smem, int i)
        {
                return full(smem, i) + OWNS;
        }
        static __device__ __forceinline__ unsigned round(int i) { return i / OWNS & 1; }
};

/* ---- jobs ------------------------------------------------------------------- */

/* Job i of a block: head of the batch, row block; false: none left.  Causal jobs differ in length.
 * Many jobs: a long and a short one of the same head alternate, and adjacent blocks share heads,
 * which stay in L2.  Few jobs: longest first over all heads, dealt back and forth. */
TGC_DEV bool att_job(int i, int first, int step, int heads, int blocks, bool last_first, int &bh,
                     int &m)
{
        if (blocks % 2 == 0 && heads * (blocks / 2) >= 4 * step) {
                const int t = first + i / 2 * step, half = blocks / 2;
                bh = t / half;
                m = i & 1 ? blocks - 1 - t % half : t % half;
                return bh < heads;
        }
        const int t = i * step + (i & 1 ? step - 1 - first : first);
        bh = t % heads;
        m = last_first ? blocks - 1 - t / heads : t / heads;
        return t < heads * blocks;
}

/* A job's own rows [row, row + 128), and the steps [lo, hi) that some of them meet. */
struct AttJob {
        int b, h, row, lo, hi;
};

/* Requests the own rows, two operands, of a block's job i.  One thread. */
template <class Tile, class Job>
TGC_DEV void att_load_own_sm90(char *smem, int i, const AttMap &a, const AttMap &b, const Job &j,
                               int T)
{
        Mbar *full = Tile::full(smem, i);
        pipeline_wait(Tile::empty(smem, i), Tile::round(i) ^ 1);
        mbarrier_expect_tx(full, Tile::OWN);
        Tile::Own::load(Tile::own(smem, i), a, j.h, j.b * T + j.row, full);
        Tile::Own::load(Tile::own(smem, i) + Tile::Own::BYTES, b, j.h, j.b * T + j.row, full);
}

/* Requests step m of a sequence whose rows begin at `from`. */
template <class Tile>
TGC_DEV void att_load_step_sm90(Pipeline<Tile> &pipe, const AttMap &a, const AttMap &b, int h,
                                int from, int m)
{
        Mbar *full = pipe.full(pipe.stage);
        pipe.wait_empty();
        mbarrier_expect_tx(full, Tile::STAGE);
        Tile::Step::load(pipe.a(), a, h, from + m * 64, full);
        Tile::Step::load(pipe.a() + Tile::Step::BYTES, b, h, from + m * 64, full);
        pipe.next();
}

/* ---- registers ----------------------------------------------------------------- */

/* A descriptor from its lower word: all panels have the same swizzle and 1024 bytes per 8 rows. */
TGC_DEV unsigned long long att_desc_sm90(unsigned low)
{
        return low | (unsigned long long)(1024 >> 4) << 32 | (unsigned long long)SWIZZLE_128 << 62;
}

/* 64 own rows (16 of them this warp's) as A operand: in registers if kept, else loaded at each
 * use. */
template <class Tile>
struct AttOwn {
        unsigned f[Tile::KEEP ? Tile::D / 16 : 1][4];

        /* panel: of all own rows; row: this warp's first one. */
        __device__ __forceinline__ void init(const char *panel, int row)
        {
                const int lane = threadIdx.x & 31, r = row + (lane & 15);
                if constexpr (Tile::KEEP)
#pragma unroll
                        for (int ks = 0; ks < Tile::D / 16; ks++)
                                ldmatrix_x4(f[ks],
                                            panel + ks / 4 * (Tile::BM * 128) + r * 128 +
                                                    ((ks % 4 * 2 + (lane >> 4)) ^ (r & 7)) * 16);
        }
        /* x = own rows times the step's rows, transposed. */
        template <class E>
        __device__ __forceinline__ void product(float (&x)[32], unsigned own_, unsigned step_,
                                                E tag) const
        {
                const unsigned long long own = att_desc_sm90(own_), step = att_desc_sm90(step_);
#pragma unroll
                for (int ks = 0; ks < Tile::D / 16; ks++)
                        if constexpr (Tile::KEEP)
                                wgmma<0>(x, f[ks], step + Tile::Step::wide_k(ks), ks > 0, tag);
                        else
                                wgmma<0, 0>(x, own + Tile::Own::wide_k(ks),
                                            step + Tile::Step::wide_k(ks), ks > 0, tag);
        }
};

/* acc (64,D) += p (64,64) times the step's rows. */
template <class Tile, class E>
TGC_DEV void att_add_sm90(float (&acc)[Tile::D / 2], const unsigned (&p)[4][4], unsigned step_,
                          E tag)
{
        const unsigned long long step = att_desc_sm90(step_ + Tile::TALL);
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
                wgmma<1>(acc, p[ks], step + Tile::Step::tall_k(ks), 1, tag);
}

/* Does the pair of x[j] attend?  gap: query minus key at x[0].  Along a row of x the query grows
 * (ROW_QUERY), or the key, which exists below `end` (counted from x[0]'s).  reach: documents: the
 * maximum distance of query and key + 1, for either row. */
template <class Att, bool ROW_QUERY>
TGC_DEV bool att_attends_sm90(int j, int gap, int end, const int (&reach)[2])
{
        const int along = j / 4 * 8 + (j & 1), down = (j >> 1 & 1) * 8;
        const int d = gap + (ROW_QUERY ? along - down : down - along);
        return (!Att::CAUSAL || d >= 0) && (Att::WINDOW == 0 || d < Att::WINDOW) &&
               (!Att::DOCUMENTS || d < reach[j >> 1 & 1]) &&
               (Att::CAUSAL || ROW_QUERY || along < end);
}

/* Shared memory index of a step's column c of 64: what one lane reads is contiguous. */
TGC_DEV int att_column_sm90(int c) { return c / 16 * 16 + c % 8 / 2 * 4 + c / 8 % 2 * 2 + c % 2; }

/* ---- a warpgroup's position in the pipeline ----------------------------------------- */

/* here: the stage of this step; before: that of the previous step, not yet released, or -1. */
template <class Tile>
struct AttPlaceSm90 {
        Pipeline<Tile> pipe;
        int here, before;
        unsigned step; /* descriptor of the pipeline's first panel */
        /* documents: how far each of this lane's two rows reaches; edge: up to where all rows of
         * the warp meet everything (keys: end of the first row's document; queries: begin of the
         * last row's) */
        int reach[2], edge;

        __device__ __forceinline__ AttPlaceSm90(char *smem)
            : pipe(smem + Tile::RING), here(0), before(-1),
              step((unsigned)Tile::Step::wide(smem + Tile::RING))
        {
        }

        __device__ __forceinline__ unsigned at(int stage, int panel) const
        {
                return step + stage * (Tile::STAGE / 16) + panel * (Tile::Step::BYTES / 16);
        }
        __device__ __forceinline__ void enter()
        {
                att_wait_sm90(pipe.full(pipe.stage), pipe.round);
                here = pipe.stage;
                pipe.next();
        }
        static __device__ __forceinline__ void arrive(Mbar *bar)
        {
                if ((threadIdx.x & 31) == 0)
                        mbarrier_arrive(bar);
        }
        /* Releases the previous step's stage; its wgmmas have been waited for. */
        __device__ __forceinline__ void give_back(int now)
        {
                if (before >= 0)
                        arrive(pipe.empty(before));
                before = now;
        }
        /* Releases this step's stage too, before a wait for steps that may need it. */
        __device__ __forceinline__ void give_back_now()
        {
                wgmma_wait<0>();
                give_back(-1);
        }
        /* Skips n steps that the warpgroup's rows do not meet. */
        __device__ __forceinline__ void skip(int n)
        {
                for (; n > 0; n--) {
                        att_wait_sm90(pipe.full(pipe.stage), pipe.round);
                        arrive(pipe.empty(pipe.stage));
                        pipe.next();
                }
        }
};

/* A warp's 16 rows of acc, scaled, to the epilogue: tokens row0 + .. below `end`, head h. */
template <int D>
struct AttShareSm90 {
        static constexpr int WM = 16, WN = D;
};

template <int D, class Epilogue>
TGC_DEV void att_put_sm90(float (&acc)[D / 2], float scale, int row0, int end, int h,
                          const Epilogue &epilogue)
{
        att_scale(acc, scale);
        mma_epilogue<AttShareSm90<D>, 2>(reinterpret_cast<const float(&)[1][D / 8][4]>(acc), row0,
                                         h * D, end, h * D + D, epilogue);
}

/* ---- a block ------------------------------------------------------------------------- */

template <class Tile, class Work>
TGC_DEV void att_grad_sm90_run(const Work &work, char *smem)
{
        Pipeline<Tile> pipe(smem + Tile::RING);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(pipe.full(s), work.loaders());
                        mbarrier_init(pipe.empty(s), 8);
                }
                for (int i = 0; i < Tile::OWNS; i++) {
                        mbarrier_init(Tile::full(smem, i), 1);
                        mbarrier_init(Tile::empty(smem, i), 8);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
                setmaxnreg_dec<24>();
                if (threadIdx.x == 0)
                        work.load(smem);
                else if (threadIdx.x / 32 == 1)
                        work.load_rows(smem);
                __syncwarp();
        } else {
                setmaxnreg_inc<240>();
                work.multiply(smem);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
                for (int s = 0; s < 2 * Tile::STAGES; s++)
                        mbarrier_inval(pipe.full(s));
                for (int i = 0; i < 2 * Tile::OWNS; i++)
                        mbarrier_inval(Tile::full(smem, 0) + i);
        }
        __syncthreads();
}

#endif
#endif
