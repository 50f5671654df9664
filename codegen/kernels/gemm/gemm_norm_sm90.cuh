/* gemm_norm_sm90.cuh: gemm_norm.cuh on the tiles of gemm_single_wave_sm90.cuh: the former's
 * arguments, the latter's tensor maps.
 *
 *      gemm_norm_single_wave<T, Tile, TRANS_A, TRANS_B, PREFETCH, RowNorm<KIND, CLUSTER>>(map_a,
 *              map_b, M, N, K, eps, tile, smem, epilogue, finish) */
#ifndef TGC_GEMM_NORM_SM90_CUH
#define TGC_GEMM_NORM_SM90_CUH

#include "gemm_norm.cuh"
#include "gemm_single_wave_sm90.cuh"
#ifdef TGC_SM90A

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int PREFETCH, class Norm, class Epilogue,
          class Finish>
TGC_DEV void gemm_norm_single_wave(const void *map_a, const void *map_b, int M, int N, int K,
                                   float eps, int tile, char *smem, const Epilogue &epilogue,
                                   const Finish &finish)
{
        const auto normed = norm_begin<Tile, Norm>(M, N, eps, tile, smem, epilogue, finish);
        const TileAt at = { normed.m, normed.n };
        single_wave_tile<T, Tile, TRANS_A, TRANS_B, PREFETCH>(map_a, map_b, M, N, K, at, smem,
                                                              normed);
}

#endif
#endif
