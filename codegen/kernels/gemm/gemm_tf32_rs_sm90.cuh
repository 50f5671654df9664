/* gemm_tf32_rs_sm90.cuh: tf32 wgmma with A from registers, for a float32 A stored with K as rows.
 * wgmma reads tf32 from shared memory only with K contiguous; register fragments may come from
 * anywhere. */
#ifndef TGC_GEMM_TF32_RS_SM90_CUH
#define TGC_GEMM_TF32_RS_SM90_CUH

#include "gemm_producer_sm90.cuh"
#ifdef TGC_SM90A

/* Does T's A need this? */
template <class T, bool TRANS_A>
TGC_DEV constexpr bool by_words()
{
        return sizeof(T) == 4 && TRANS_A;
}

/* A stage's A, as register fragments (mma_1688_tf32's), 8 of K each, for MI times 64 rows of C.
 * Lane 4g + t reads rows g and g + 8, k = t and t + 4.  For the same k, lanes with g >= 4 find
 * their row in another swizzled chunk and would share banks with g < 4; so they read t + 4
 * first. */
template <int MI>
struct WordsOfA {
        int at;
        bool turned;

        /* row0: of C, within the tile. */
        __device__ __forceinline__ WordsOfA(int row0, int lane) : turned(lane & 16)
        {
                const int g = lane / 4, k = lane % 4 + g / 4 * 4, m = row0 % 32 + g;
                at = row0 / 32 * 4096 + k * 128 + (m / 4 ^ k) * 16 + m % 4 * 4;
        }
        __device__ __forceinline__ unsigned read(const char *panel, int m, int ks, int row,
                                                 int k) const
        {
                return *(const unsigned *)(panel + (at ^ row * 32 ^ k * (512 + 64)) + m * 8192 +
                                           ks * 1024);
        }
        __device__ __forceinline__ void read(unsigned (&a)[4], const char *panel, int m,
                                             int ks) const
        {
#pragma unroll
                for (int row = 0; row < 2; row++) {
                        const unsigned x = read(panel, m, ks, row, 0),
                                       y = read(panel, m, ks, row, 1);
                        a[row] = turned ? y : x;
                        a[row + 2] = turned ? x : y;
                }
        }
};

/* K-step k of a tile whose A goes through registers. */
template <bool SUM, class T, class Tile, int MI>
TGC_DEV void words_step(Pipeline<Tile> &pipe, const WordsOfA<MI> &words, unsigned long long b0,
                        float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4],
                        unsigned (&a)[MI][4][4], int k, int lane)
{
        const unsigned long long at = (unsigned long long)(pipe.stage * (Tile::STAGE / 16));
        pipe.wait_full();
#pragma unroll
        for (int i = 0; i < MI * 4; i++) {
                unsigned(&f)[4] = a[i / 4][i % 4];
                words.read(f, pipe.a(), i / 4, i % 4);
                if (SUM) {
                        sums[i / 4][0] += __uint_as_float(f[0]) + __uint_as_float(f[2]);
                        sums[i / 4][2] += __uint_as_float(f[1]) + __uint_as_float(f[3]);
                }
        }
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
                for (int m = 0; m < MI; m++)
                        wgmma<0>(reinterpret_cast<float(&)[Tile::BN / 2]>(acc[m]), a[m][ks],
                                 b0 + at + ks * desc_k<true>(), ks > 0 || k > 0, T());
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0)
                pipe.leave(pipe.before(1), lane);
        pipe.next();
}

/* Steps in pairs: while one step's wgmmas read their registers, the next one's words are loaded
 * into others.  (If ptxas cannot prove that, it serialises wgmma.) */
template <bool SUM, class T, class Tile, int MI>
TGC_DEV void words_steps(Pipeline<Tile> &pipe, const WordsOfA<MI> &words, unsigned long long b0,
                         float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4], int k0, int k1,
                         int lane, int lead)
{
        unsigned a[2][MI][4][4];
        int k = k0;
#pragma unroll 1
        for (; k + 2 <= k1; k += 2) {
                words_step<SUM, T>(pipe, words, b0, acc, sums, a[0], k, lane);
                words_step<SUM, T>(pipe, words, b0, acc, sums, a[1], k + 1, lane);
                if (Tile::LEAD > 0 && (k == lead - 2 || k == lead - 1))
                        bar_arrive(1, 256);
        }
        if (k < k1) {
                wgmma_wait<0>();
                words_step<SUM, T>(pipe, words, b0, acc, sums, a[0], k, lane);
                if (Tile::LEAD > 0 && k == lead - 1)
                        bar_arrive(1, 256);
        }
        wgmma_wait<0>();
}

#endif
#endif
