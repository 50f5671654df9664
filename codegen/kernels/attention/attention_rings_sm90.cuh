/* attention_rings_sm90.cuh: rings of stages in shared memory for the keys and values of
 * attention_decode_ring_sm90.cuh, one ring a warp, 16 keys and values a stage.
 *
 *      AttWalk         the steps of one warp
 *      AttCopies       of 8-bit caches: a lane copies by cp.async what it will read itself
 *      AttBoxes        of 16-bit caches: TMA boxes of 16 rows and 64 columns with 128-byte swizzle
 *
 *      begin(walk)     the steps to request from now on
 *      copy()          requests the next step, if there is one, into the next stage
 *      take(step, n0, s1)      waits for the oldest stage and loads it: keys from n0 on, below s1
 *      drop(n)         waits for n stages, and forgets them
 *      AHEAD           stages to fill at the start
 *
 * A copy() may overwrite the stage of the last take().  So it belongs behind that step's products:
 * they need the loads' results.  A load that was merely issued may come after the copy engine's
 * write, and give wrong values.  `row` is looked up one step early, as a page number takes as long
 * to load as keys do. */
#ifndef TGC_ATTENTION_RINGS_SM90_CUH
#define TGC_ATTENTION_RINGS_SM90_CUH

#include "attention_decode.cuh"

#ifdef TGC_SM90A

/* The steps of one warp: 16 keys from `key` on, `step` apart, `steps` of them in a part; then
 * `skip` keys are other blocks'. */
struct AttWalk {
        int key, end, step, steps, skip, i;

        __device__ __forceinline__ bool more() const { return key < end; }
        __device__ __forceinline__ void next()
        {
                key += step;
                if (++i == steps) {
                        i = 0;
                        key += skip;
                }
        }
};

/* 8-bit caches: a lane copies by cp.async what it will read itself. */
template <class E, class Att, class Tile, int STAGES>
struct AttCopies {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        static constexpr int STAGE = Tile::THREADS * Sh::Step::PIECES, /* in 16-byte pieces */
                SIZE = STAGES * STAGE * 16, AHEAD = STAGES - 1;
        uint4 *ring;
        const AttKeys<E, Att> &k, &v;
        AttWalk walk;
        int put, at;
        long row;

        __device__ __forceinline__ AttCopies(char *smem, const AttKeys<E, Att> &k_,
                                             const AttKeys<E, Att> &v_)
            : ring((uint4 *)smem), k(k_), v(v_), put(0), at(0), row(0)
        {
        }
        __device__ __forceinline__ void begin(const AttWalk &w)
        {
                walk = w;
                look();
        }
        __device__ __forceinline__ void look()
        {
                row = walk.more() ? k.row(walk.key) - walk.key : 0;
        }
        __device__ __forceinline__ void copy()
        {
                if (walk.more())
                        Sh::Step::copy(ring + put * STAGE, k.base + row * k.step, k.step,
                                       v.base + row * v.step, v.step, walk.key, walk.end);
                cp_async_commit();
                walk.next();
                look();
                put = put + 1 < STAGES ? put + 1 : 0;
        }
        __device__ __forceinline__ void drop(int)
        {
                cp_async_wait<0>();
                at = put;
        }
        __device__ __forceinline__ void take(typename Sh::Step &step, int, int)
        {
                cp_async_wait<STAGES - 2>();
                step.take_codes(ring + at * STAGE, k.base.shift());
                at = at + 1 < STAGES ? at + 1 : 0;
        }
};

/* 16-bit caches: TMA boxes of 16 rows and 64 columns with 128-byte swizzle, first keys, then
 * values. */
template <class E, class Att, class Tile, int STAGES>
struct AttBoxes {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        static constexpr int KEYS = 16, BOX = KEYS * 128, HALF = KEYS * Att::D * 2,
                             STAGE = 2 * HALF, RINGS = Tile::THREADS / 32 * STAGES * STAGE,
                             SIZE = RINGS + Tile::THREADS / 32 * STAGES * 8, AHEAD = STAGES;
        const AttKeys<E, Att> &k;
        const AttMap &map_k, &map_v;
        char *ring;
        Mbar *bar;
        AttWalk walk;
        int hk, base, put, at, row;
        unsigned round;

        /* base_: row of the sequence's first key if there are no pages */
        __device__ __forceinline__ AttBoxes(char *smem, const AttKeys<E, Att> &k_, const AttMap &mk,
                                            const AttMap &mv, int hk_, int base_)
            : k(k_), map_k(mk), map_v(mv), ring(smem + (threadIdx.x >> 5) * (STAGES * STAGE)),
              bar((Mbar *)(smem + RINGS) + (threadIdx.x >> 5) * STAGES), hk(hk_), base(base_),
              put(0), at(0), row(0), round(0)
        {
                if ((threadIdx.x & 31) == 0) {
                        for (int i = 0; i < STAGES; i++)
                                mbarrier_init(bar + i, 1);
                        fence_barrier_init();
                        fence_proxy_async();
                }
        }
        __device__ __forceinline__ void begin(const AttWalk &w)
        {
                walk = w;
                look();
        }
        __device__ __forceinline__ void look()
        {
                row = walk.more() ? base + (int)k.row(walk.key) : 0;
        }
        __device__ __forceinline__ void copy()
        {
                __syncwarp(); /* all lanes have this stage's values in registers */
                if (walk.more() && (threadIdx.x & 31) == 0) {
                        char *to = ring + put * STAGE;
                        mbarrier_expect_tx(bar + put, STAGE);
#pragma unroll
                        for (int c = 0; c < Att::D / 64; c++)
                                tma_load_2d(to + c * BOX, map_k.map, bar + put,
                                            map_k.col + hk * map_k.head + c * 64, row);
#pragma unroll
                        for (int c = 0; c < Att::D / 64; c++)
                                tma_load_2d(to + HALF + c * BOX, map_v.map, bar + put,
                                            map_v.col + hk * map_v.head + c * 64, row);
                }
                walk.next();
                look();
                put = put + 1 < STAGES ? put + 1 : 0;
        }
        __device__ __forceinline__ void wait() { mbarrier_wait(bar + at, round); }
        __device__ __forceinline__ void pass()
        {
                at = at + 1 < STAGES ? at + 1 : 0;
                round ^= at == 0;
        }
        __device__ __forceinline__ void drop(int n)
        {
                for (; n; n--) {
                        wait();
                        pass();
                }
                put = at;
        }
        /* Behind the last key there may be anything: scores are masked, values set to 0. */
        __device__ __forceinline__ void take(typename Sh::Step &step, int n0, int s1)
        {
                typedef typename Sh::Step Step;
                const int g = Step::g(), t = Step::t();
                const char *from = ring + at * STAGE;
                wait();
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int c = 0; c < Step::KC; c++)
                                step.k[i][c] = *(const uint4 *)(from + c / 2 * BOX +
                                                                (g + 8 * i) * 128 +
                                                                ((c % 2 * 4 + t) ^ g) * 16);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int key = Step::key(i);
#pragma unroll
                        for (int c = 0; c < Step::VC; c++) {
                                step.v[i][c] = *(const uint4 *)(from + HALF + c * BOX + key * 128 +
                                                                (g ^ (key & 7)) * 16);
                                if (n0 + key >= s1)
                                        step.v[i][c] = uint4 { 0, 0, 0, 0 };
                        }
                }
                pass();
        }
};
#endif

#endif
