/* pipeline_sm90.cuh: a pipeline of shared memory stages between producer and consumer warps, on
 * Hopper.
 *
 * Stage s has two mbarriers: full[s] (loads have landed) and empty[s] (every warp that reads it is
 * done).  Each side counts steps through all its work; stage and parity follow from the count. */
#ifndef TGC_RING_SM90_CUH
#define TGC_RING_SM90_CUH

#include "ptx.cuh"
#ifdef TGC_SM90A

/* TGC_BOUNDED: give up with a trap after two seconds instead of hanging. */
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

/* Where one side stands: its stage, and how often (mod 2) it went round. */
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
        /* A warp is done with stage s. */
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
        /* In the first round nothing is to be waited for: a fresh barrier counts the phase before
         * its first, which has the other parity, as done. */
        __device__ __forceinline__ void wait_empty() const
        {
                pipeline_wait(empty(stage), round ^ 1);
        }
        /* Over n steps that others do. */
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
        /* The stage `back` steps ago. */
        __device__ __forceinline__ int before(int back) const
        {
                return stage >= back ? stage - back : stage - back + Tile::STAGES;
        }
};

#endif
#endif
