/* attention_backward_sm90.cuh: attention_backward.cuh's kernels on Hopper (sm_90a): bf16 and f16,
 * heads of 64 or 128, no soft cap, alibi, mask or dropout; documents only if causal.
 *
 *      attention_dq_tma         attention_dq_sm90.cuh
 *      attention_dkv_tma        attention_dkv_sm90.cuh
 *      attention_both_tma<E, Att, Tile>(in, rows, lse, delta, B, T, tile, smem, epilogue,
 *              epilogue_k, epilogue_v)
 *              both in one launch, for problems where neither fills the GPU: one block per job;
 *              jobs of keys compute the deltas they need.  rows: o and its gradient.  H = K; shared
 *              memory: att_both_sm90_smem.  (With both kinds in one kernel ptxas serialises wgmma,
 *              warning C7515; for short jobs that costs less than a launch.)
 *
 * Every sum is one thread's own, in the order of rows. */
#ifndef TGC_ATTENTION_BACKWARD_SM90_CUH
#define TGC_ATTENTION_BACKWARD_SM90_CUH

#include "attention_dq_sm90.cuh"
#include "attention_dkv_sm90.cuh"
#ifdef TGC_SM90A

template <class Tile>
__host__ __device__ constexpr int att_both_sm90_smem(int T)
{
        return Tile::SMEM + (T + 63) / 64 * 256;
}

/* A job of one of two kinds. */
template <class Keys, class Queries>
struct AttEitherSm90 {
        const bool is_keys;
        const AttGradMaps &in;
        const Keys &keys;
        const Queries &queries;

        __device__ __forceinline__ int loaders() const
        {
                return is_keys ? keys.loaders() : queries.loaders();
        }
        __device__ __forceinline__ void load(char *smem) const
        {
                is_keys ? keys.load(smem) : queries.load(smem);
        }
        __device__ __forceinline__ void load_rows(char *smem) const
        {
                is_keys ? keys.load_rows(smem) : queries.load_rows(smem);
        }
        __device__ __forceinline__ void multiply(char *smem) const
        {
                is_keys ? keys.multiply(smem) : queries.multiply(smem);
        }
};

/* Blocks go by the length of their jobs, longest first: under CAUSAL, row block r of keys takes as
 * long as the r-th last row block of queries.  In every second pair queries go first, as the last
 * row block may be partial. */
template <class E, class Att, class Tile, class Epilogue, class EpilogueK, class EpilogueV>
TGC_DEV void attention_both_tma(const AttGradMaps &in, const AttGradRows<E> &rows, const float *lse,
                                float *delta, int B, int T, int tile, char *smem, Epilogue epilogue,
                                EpilogueK epilogue_k, EpilogueV epilogue_v)
{
        static_assert(att_grad_sm90_serves<E, Att>() && Tile::D == Att::D,
                      "what the Hopper form computes");
        static_assert(Att::H == Att::K, "as many jobs of either kind");
        typedef AttDkvSm90<E, Att, Tile, true, EpilogueK, EpilogueV> Keys;
        typedef AttDqSm90<E, Att, Tile, Epilogue> Queries;
        const int heads = B * Att::H, jobs = heads * ((T + Tile::BM - 1) / Tile::BM);
        const int row = tile / heads, pair = row / 2, first = pair * heads + tile % heads;
        const Keys keys = { in, rows, lse, delta, B, T, first, jobs, epilogue_k, epilogue_v };
        const Queries queries = { in, rows.o, rows.so, lse, delta, B, T, first, jobs, epilogue };
        const AttEitherSm90<Keys, Queries> work = { row % 2 == pair % 2, in, keys, queries };
        att_grad_sm90_run<Tile>(work, smem);
}

#endif
#endif
