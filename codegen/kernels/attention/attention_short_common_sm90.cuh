/* attention_short_common_sm90.cuh: what attention of short sequences on Hopper shares, forward
 * (attention_short_sm90.cuh) and backward (attention_short_backward_sm90.cuh).
 *
 * Short: a sequence fits in shared memory.  Up to 256 tokens, bf16 and f16, D = 64, H = K, no soft
 * cap, alibi, mask, window, documents or dropout, 16-byte aligned rows.
 *
 * These launches take microseconds, which the general kernels spend waiting: for pipeline stages,
 * for the next tile, for a second wave of blocks.  Here all threads request all operands at once
 * (cp.async; tensor maps would have to be fetched first), everything is used once, and every
 * barrier has one phase.  A block computes one tile; it calls pdl_wait.
 *
 *      att_short_sm90_serves     which problems these are
 *      att_fetch_sm90            64 rows of an operand to a panel
 *      att_put_short             64 rows of results */
#ifndef TGC_ATTENTION_SHORT_COMMON_SM90_CUH
#define TGC_ATTENTION_SHORT_COMMON_SM90_CUH

#include "attention_dkv_sm90.cuh"
#ifdef TGC_SM90A

template <class E, class Att>
__host__ __device__ constexpr bool att_short_sm90_serves()
{
        return att_grad_sm90_serves<E, Att>() && Att::D == 64 && Att::H == Att::K &&
               Att::WINDOW == 0 && !Att::DOCUMENTS;
}

/* Copies tokens [t, t + 64) of head h of sequence b, those below T, to a panel; zeros behind.
 * Called by a warpgroup; its thread x copies 16 bytes of every 16th row. */
template <class E>
TGC_DEV void att_fetch_sm90(char *panel, const E *p, const Strides &s, int b, int h, int t, int T,
                            int x)
{
        const int k = x % 8;
        const E *from = p + b * s.b + h * s.h + k * 8;
#pragma unroll
        for (int i = 0; i < 512; i += 128) {
                const int r = (i + x) / 8;
                cp_async16(panel + r * 128 + ((k ^ r) & 7) * 16,
                           from + (t + r < T ? t + r : 0) * s.t, t + r < T);
        }
}

/* att_put_sm90 of 64 rows, specialised for the usual case that all exist: epilogue calls then do
 * not wait for each other. */
template <int N, class Epilogue>
TGC_DEV void att_put_short(float (&acc)[N], float scale, int row0, int end, int col0, bool whole,
                           const Epilogue &epilogue)
{
        att_scale(acc, scale);
        MmaEpilogue<1, 2 * N, 16, 2, Epilogue> t(epilogue, row0, col0, end, col0 + 2 * N, whole);
        t.start();
        t.run(reinterpret_cast<const float(&)[1][N / 4][4]>(acc));
}

#endif
#endif
