/* pipeline_sm90.cuh: the ring of shared memory stages between producer and consumer warps (as
 * CUTLASS's PipelineTmaAsync).
 *
 * Stage s has two mbarriers: full[s] (its loads have landed) and empty[s] (every consumer warp has
 * read it).  Producer and consumers each advance a Pipeline of their own; both see the same
 * sequence of stages and parities.
 *
 * Layout at smem: STAGES stages of Tile::STAGE bytes (operand A, then B from A_BYTES on), full[],
 * empty[]. */
#ifndef TGC_PIPELINE_SM90_CUH
#define TGC_PIPELINE_SM90_CUH

#include "ptx.cuh"
#ifdef TGC_SM90A

/* TGC_BOUNDED: trap after about two seconds instead of hanging. */
TGC_DEV void pipeline_wait(Mbar *bar, unsigned parity)
{
#ifdef TGC_BOUNDED
        if (mbarrier_try_wait(bar, parity))
                return;
        for (const long long from = clock64(); !mbarrier_try_wait(bar, parity);)
                if (clock64() - from > 4000000000LL)
                        __trap();
#else
        mbarrier_wait(bar, parity);
#endif
}

/* One side's position: the stage, and the parity of its rounds through the ring. */
template <class Tile>
struct Pipeline {
        char *smem;
        int stage;
        unsigned round;

        __device__ __forceinline__ Pipeline(char *smem_) : smem(smem_), stage(0), round(0) {}
        __device__ __forceinline__ Mbar *full(int s) const
        {
                return (Mbar *)(smem + Tile::STAGES * Tile::STAGE) + s;
        }
        __device__ __forceinline__ Mbar *empty(int s) const { return full(s) + Tile::STAGES; }
        __device__ __forceinline__ char *a() const { return smem + stage * Tile::STAGE; }
        __device__ __forceinline__ char *b() const { return a() + Tile::A_BYTES; }
        __device__ __forceinline__ void wait_full() const { pipeline_wait(full(stage), round); }
        /* A consumer warp releases stage s; with Tile::PAIR in both blocks of the cluster. */
        __device__ __forceinline__ void leave(int s, int lane) const
        {
                if constexpr (Tile::PAIR) {
                        if (lane < 2)
                                mbarrier_arrive_cluster(empty(s), lane);
                } else if (lane == 0) {
                        mbarrier_arrive(empty(s));
                }
        }
        __device__ __forceinline__ bool is_full() const
        {
                return mbarrier_try_wait(full(stage), round);
        }
        /* Passes at once in the first round: a fresh mbarrier counts the phase before its first,
         * of the other parity, as complete. */
        __device__ __forceinline__ void wait_empty() const
        {
                pipeline_wait(empty(stage), round ^ 1);
        }
        /* Advances over n stages that others handle. */
        __device__ __forceinline__ void skip(int n)
        {
                const int to = stage + n;
                stage = to % Tile::STAGES;
                round ^= to / Tile::STAGES & 1;
        }
        __device__ __forceinline__ void next()
        {
                if (++stage == Tile::STAGES)
                        stage = 0, round ^= 1;
        }
        /* The stage used `back` steps ago. */
        __device__ __forceinline__ int before(int back) const
        {
                return stage >= back ? stage - back : stage - back + Tile::STAGES;
        }
};

#endif
#endif
