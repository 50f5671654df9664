/* gemm_operand.cuh: copies panels of gemm.cuh's operands from global to shared memory. */
#ifndef TGC_GEMM_OPERAND_CUH
#define TGC_GEMM_OPERAND_CUH

#include "gemm_tile.cuh"

/* Maps row r of the operand to a row of the matrix: here itself; grouped_gemm.cuh gathers. */
struct SameRows {
        static constexpr bool GATHER = false;
        __device__ __forceinline__ int operator()(int r) const { return r; }
};

/* The panel of one operand that a block needs per K-tile: EXTENT rows or columns of C by BK of K.
 * KMAJOR: K is contiguous in memory and a row of the panel is a row of the matrix; else C's side
 * is contiguous and the panel's rows are K. */
template <class T, bool KMAJOR, int EXTENT, int BK, int THREADS, int ALIGN, class Rows>
struct Panel {
        static constexpr int ROWS = KMAJOR ? EXTENT : BK, COLS = KMAJOR ? BK : EXTENT;
        static constexpr int UNIT = ALIGN / (int)sizeof(T); /* elements per copy */
        static constexpr int PER_ROW = COLS / UNIT, COPIES = ROWS * PER_ROW / THREADS;
        static_assert(ROWS * PER_ROW % THREADS == 0, "every thread copies as much");

        const T *src, *base; /* the matrix; the source of this thread's first copy at k = 0 */
        long ld;
        Rows rows;
        int K, first, limit; /* on C's side: first of the tile, end of the matrix */
        long at[KMAJOR && Rows::GATHER ? COPIES : 1];

        /* Position in the panel of this thread's copy i. */
        static __device__ __forceinline__ int row(int i)
        {
                if constexpr (THREADS % PER_ROW == 0)
                        return (int)threadIdx.x / PER_ROW + i * (THREADS / PER_ROW);
                else
                        return ((int)threadIdx.x + i * THREADS) / PER_ROW;
        }
        static __device__ __forceinline__ int col(int i)
        {
                if constexpr (THREADS % PER_ROW == 0)
                        return (int)threadIdx.x % PER_ROW * UNIT;
                else
                        return ((int)threadIdx.x + i * THREADS) % PER_ROW * UNIT;
        }

        __device__ __forceinline__ Panel(const T *src_, long ld_, int first_, int limit_, int K_,
                                         Rows rows_)
            : src(src_), ld(ld_), rows(rows_), K(K_), first(first_), limit(limit_)
        {
                if constexpr (Rows::GATHER && KMAJOR) {
                        base = src + col(0);
#pragma unroll
                        for (int i = 0; i < COPIES; i++)
                                at[i] = (long)rows(inside(first + row(i), 1)) * ld;
                } else if constexpr (KMAJOR) {
                        base = src + rows(inside(first + row(0), 1)) * ld + col(0);
                } else {
                        base = src + (Rows::GATHER ? 0 : rows(row(0)) * ld) +
                               inside(first + col(0), UNIT);
                }
        }

        /* x, clamped to the last position where `unit` elements fit. */
        __device__ __forceinline__ int inside(int x, int unit) const
        {
                return x <= limit - unit ? x : limit - unit;
        }

        /* inside(first + x) - inside(first + x0); simply x - x0 if the whole tile is inside. */
        __device__ __forceinline__ int apart(int x, int x0, int unit) const
        {
                return limit % EXTENT == 0 ? x - x0
                                           : inside(first + x, unit) - inside(first + x0, unit);
        }

        /* Source of copy i of the K-tile at k0; false beyond K.  Written as base + a term common
         * to all copies + a constant (for literal sizes). */
        __device__ __forceinline__ bool source(int i, int k0, const T *&p) const
        {
                const int k = k0 + (KMAJOR ? col(i) : row(i));
                const bool valid = K % BK == 0 || k < K;
                if constexpr (KMAJOR && Rows::GATHER)
                        p = base + k0 + (at[i] + (col(i) - col(0)));
                else if constexpr (KMAJOR)
                        p = base + k0 + (apart(row(i), row(0), 1) * ld + (col(i) - col(0)));
                else if constexpr (Rows::GATHER)
                        p = base + (rows(valid ? k : 0) * ld + apart(col(i), col(0), UNIT));
                else
                        p = base + k0 * ld + ((row(i) - row(0)) * ld + apart(col(i), col(0), UNIT));
                if (!valid)
                        p = src;
                return valid;
        }
};

/* Swizzle: byte offset of 16-byte chunk c of row r in a panel of 16-bit elements.  Chunk c of
 * eight rows lies in eight different bank groups, so ldmatrix and the copies have no conflicts. */
template <int COLS>
TGC_DEV int swizzle(int r, int c)
{
        constexpr int N = COLS / 8;
        const int x = N >= 8 ? r & 7 : N == 4 ? (r >> 1) & 3 : (r >> 2) & 1;
        return (r * N + (c ^ x)) * 16;
}

/* The same in wgmma's layout: a panel wider than 64 columns is stored in blocks of 64 columns, one
 * after the other. */
template <int ROWS, int COLS>
TGC_DEV int swizzle_blocks(int r, int c)
{
        if constexpr (COLS < 64)
                return swizzle<COLS>(r, c);
        else
                return c / 8 * (ROWS * 128) + swizzle<64>(r, c % 8);
}

/* Starts those copies of the K-tile at k0 whose index is `part` modulo PARTS. */
template <int PARTS, bool BLOCKS, class P>
TGC_DEV void panel_copy(const P &p, char *smem, int k0, int part)
{
        typedef decltype(p.src) Ptr;
        constexpr int BYTES = P::UNIT * 2;
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                if (i % PARTS != part)
                        continue;
                Ptr from;
                const bool valid = p.source(i, k0, from);
                const int c = P::col(i);
                const int at = BLOCKS ? swizzle_blocks<P::ROWS, P::COLS>(P::row(i), c / 8)
                                      : swizzle<P::COLS>(P::row(i), c / 8);
                char *to = smem + at + c % 8 * 2;
                if constexpr (BYTES == 16)
                        cp_async16(to, from, valid);
                else if constexpr (BYTES == 8)
                        cp_async8(to, from, valid);
                else if constexpr (BYTES == 4)
                        cp_async4(to, from, valid);
                else
                        *(unsigned short *)to = valid ? *(const unsigned short *)from
                                                      : (unsigned short)0;
        }
}

#endif
