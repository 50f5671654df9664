/* gemv_stored_ring.cuh: the ring by which a warp of gemv_stored.cuh reads its rows of W.
 *
 *      DotStep      a step: what 32 lanes read of a row at once
 *      DotRing      slots of one warp: where they are, requests, waits
 *
 * A K block is what a slot holds of a row: KSTEPS steps.  Copies are cp.async, on sm_90a bulk
 * copies where rows are multiples of 16 bytes.  Rows that are not start up to 15 bytes into their
 * slot. */
#ifndef TGC_GEMV_STORED_RING_CUH
#define TGC_GEMV_STORED_RING_CUH

#include "ptx.cuh"
#include "stored_dot.cuh"

#if defined TGC_SM90A && TGC_SM90A
constexpr bool DOT_BULK = true; /* bulk copies bring W, where rows are multiples of 16 bytes */
#else
constexpr bool DOT_BULK = false;
#endif

/* A step: what a warp's 32 lanes read of one row at once. */
template <class S, int K>
struct DotStep {
        typedef DotOf<S> D;
        static constexpr int VALUES = 512 * D::UNITS, STEPS = (K + VALUES - 1) / VALUES;
        static constexpr int BYTES = VALUES / S::VALUES * S::BYTES, ROW = K / S::VALUES * S::BYTES;
        static constexpr bool WHOLE = ROW % 16 == 0; /* rows are 16-byte aligned */
        static_assert(K % S::VALUES == 0, "rows are whole blocks");
};

/* STAGES slots, each a K block of ROWS rows.  K_BLOCK: its bytes of a row. */
template <class S, int N, int K, class Tile>
struct DotRing {
        typedef DotStep<S, K> Step;
        static constexpr int ROWS = Tile::ROWS, K_BLOCK = Tile::KSTEPS * Step::BYTES,
                             SLOT = Step::WHOLE ? K_BLOCK : (K_BLOCK + 31) / 16 * 16,
                             SIZE = ROWS * SLOT;
        static constexpr bool BULK = Tile::BULK && Step::WHOLE;
        static constexpr int BYTES = Tile::WARPS * Tile::STAGES * (SIZE + 16); /* with mbarriers */
        const unsigned char *w;
        long row_bytes;
        int lane, first, k_blocks; /* this warp's part of K: K blocks from `first` on */
        char *slots;

        /* Address of K block l of row n. */
        __device__ __forceinline__ const unsigned char *source(int n, int l) const
        {
                return w + (n < N ? n : N - 1) * row_bytes + (long)l * K_BLOCK;
        }
        /* Bytes between the 16-byte boundary below p, where copies start, and p. */
        __device__ __forceinline__ int shift(const unsigned char *p) const
        {
                return Step::WHOLE ? 0 : (int)((unsigned long long)p & 15);
        }
#ifdef TGC_SM90A
        __device__ __forceinline__ Mbar *bar(int i) const
        {
                return (Mbar *)(slots + Tile::STAGES * SIZE) + i;
        }
#endif
        __device__ __forceinline__ void begin() const
        {
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        if (lane == 0) {
                                for (int i = 0; i < Tile::STAGES; i++)
                                        mbarrier_init(bar(i), 1);
                                fence_barrier_init();
                        }
                        __syncwarp();
                }
#endif
        }
        __device__ __forceinline__ void end() const
        {
#ifdef TGC_SM90A
                if constexpr (BULK)
                        if (lane < Tile::STAGES)
                                mbarrier_inval(bar(lane));
#endif
                if (!BULK)
                        cp_async_wait<0>();
        }
        /* Waits until slot i has landed. */
        __device__ __forceinline__ void wait(int i, unsigned phase) const
        {
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        mbarrier_wait(bar(i), phase);
                        __syncwarp();
                        return;
                }
#endif
                cp_async_wait<Tile::STAGES - 1>();
                __syncwarp();
        }
        /* Requests K block l of rows n .. n+ROWS-1 into slot i. */
        __device__ __forceinline__ void fetch(int n, int l, int i) const
        {
                constexpr int PIECES = SLOT / 16;
                const int bytes = Step::ROW - l * K_BLOCK;
#ifdef TGC_SM90A
                if constexpr (BULK) {
                        const int each = Step::ROW % K_BLOCK && bytes < K_BLOCK ? bytes : K_BLOCK;
                        if (lane)
                                return;
                        mbarrier_expect_tx(bar(i), each * ROWS);
                        if constexpr (Step::ROW == K_BLOCK && N % ROWS == 0) {
                                bulk_load(slots + i * SIZE, source(n, l), each * ROWS, bar(i));
                        } else {
#pragma unroll
                                for (int r = 0; r < ROWS; r++)
                                        bulk_load(slots + i * SIZE + r * SLOT, source(n + r, l),
                                                  each, bar(i));
                        }
                        return;
                }
#endif
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const unsigned char *from = source(n + r, l);
                        const int by = shift(from), all = bytes + by;
                        char *const to = slots + i * SIZE + r * SLOT;
                        from -= by;
#pragma unroll
                        for (int p = 0; p < PIECES; p += 32) {
                                const int at = (p + lane) * 16;
                                if ((PIECES - p < 32 && p + lane >= PIECES) ||
                                    ((Step::ROW % K_BLOCK || !Step::WHOLE) && at >= all))
                                        continue;
                                if constexpr (Step::WHOLE)
                                        cp_async16(to + at, from + at);
                                else
                                        cp_async16_part(to + at, from + at, left(from + at));
                        }
                }
        }
        /* Bytes of W from p on, at most 16. */
        __device__ __forceinline__ int left(const unsigned char *p) const
        {
                const long n = w + (N - 1) * row_bytes + Step::ROW - p;
                return n < 16 ? (int)n : 16;
        }
        /* The lane's block in slot i: row n + r, step j of K block l. */
        __device__ __forceinline__ const unsigned char *block(int r, int n, int l, int j,
                                                              int i) const
        {
                return (const unsigned char *)slots + i * SIZE + r * SLOT +
                       shift(source(n + r, l)) + j * Step::BYTES +
                       lane / DotOf<S>::LANES * S::BYTES;
        }
};

#endif
