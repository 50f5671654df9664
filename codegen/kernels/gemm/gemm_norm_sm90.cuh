/* gemm_norm_sm90.cuh: gemm_norm.cuh in tiles of gemm_single_wave_sm90.cuh: the arguments of the one, maps of the other.
 *
 *      matmul_norm_short<T, Tile, TRANS_A, TRANS_B, EARLY, RowNorm<KIND, CLUSTER>>(map_a, map_b, M, N, K, eps, tile, smem, tail, finish) */
#ifndef TGC_MATMUL_NORM_SHORT_SM90_CUH
#define TGC_MATMUL_NORM_SHORT_SM90_CUH

#include "gemm_norm.cuh"
#include "gemm_single_wave_sm90.cuh"
#ifdef TGC_SM90A

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int EARLY, class Norm, class Tail, class Finish>
TGC_DEV void matmul_norm_short(const void *map_a, const void *map_b, int M, int N, int K, float eps, int tile, char *smem,
                               const Tail &tail, const Finish &finish)
{
        typedef NormTail<Tile, Norm, Tail, Finish> Normed;
        const int rank = tile % Norm::CLUSTER;
        const TileAt at = { tile / Norm::CLUSTER * Tile::BM, rank * Tile::BN };
        char *sums = smem + Tile::SMEM;
        norm_begin<Normed, Norm>(sums);
        const Normed normed = { { tail }, finish, eps, at.m, at.n, M, N, rank, sums };
        short_tile<T, Tile, TRANS_A, TRANS_B, EARLY>(map_a, map_b, M, N, K, at, smem, normed);
}

#endif
#endif
