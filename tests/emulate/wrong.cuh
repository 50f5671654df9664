/* wrong.cuh: kernels with one mistake each, that the emulator must name. */
#include "ptx.cuh"

#define WRONG(name, body)                                   \
        extern "C" __global__ void name(const Rt *, int *y) \
        {                                                   \
                TGC_SMEM(smem);                             \
                int i = threadIdx.x;                        \
                (void)smem;                                 \
                (void)i;                                    \
                (void)y;                                    \
                body                                        \
        }                                                   \
        TGC_KERNEL(name, 2)

extern "C" __global__ void w_two_places(const Rt *, int *y)
{
        if (threadIdx.x < 32) {
                y[0] = 1;
                __syncthreads();
        } else {
                y[1] = 1;
                __syncthreads();
        }
}
TGC_KERNEL(w_two_places, 2)

WRONG(w_half_barrier, if (i < 32) __syncthreads(); y[i] = i;)
WRONG(w_early_exit, if (i == 40) return; __syncthreads(); y[i] = i;)
WRONG(w_surplus_exit, TGC_SURPLUS(48); if (i == 40) return; __syncthreads(); y[i] = i;)
WRONG(w_missing_lane, if (i != 7) y[i] = __shfl_xor_sync(0xffffffffu, i, 1);)
WRONG(w_own_lane, y[i] = __shfl_sync(0x7fffffffu, i, 0);)
WRONG(w_outside_mask, if (i < 16) y[i] = __shfl_sync(0x0000ffffu, i, 20);)
WRONG(w_two_calls,
      y[i] = i & 1 ? __shfl_sync(0xffffffffu, i, 0) : (int)__ballot_sync(0xffffffffu, i);)
WRONG(w_barrier_and_shuffle, if (i & 1) __syncthreads();
      else y[i] = __shfl_sync(0xffffffffu, i, 0);)
WRONG(w_named, if (i < 32) bar_sync(1, 64); else bar_sync(2, 64);)
WRONG(w_left_arrivals, if (i < 32) bar_arrive(3, 64);)
WRONG(w_not_waited, cp_async4(smem + 4 * i, y + i); cp_async_commit();)
WRONG(w_misaligned, unsigned r[4]; ldmatrix_x4(r, smem + 8 * (i & 31)); y[i] = (int)r[0];)
WRONG(w_foreign, unsigned r[4]; ldmatrix_x4(r, smem + 1024 - 256 + 16 * (i & 31));
      y[i] = (int)r[0];)
WRONG(w_copy_outside, cp_async16(smem + 16 * (i + 1), y + i % 32 * 4); cp_async_commit();
      cp_async_wait<0>();)
#ifndef EMU_ASAN /* which names it first, and ends the program */
WRONG(w_overrun, smem[1024 + i] = 0; y[i] = i;)
#endif
WRONG(w_unaligned_load, float v[4]; load<4>(v, y + i); y[i] = (int)v[0];)
WRONG(w_outside, float v[2]; load<2>(v, y + 2 * i); store<2>(y + 64 + 2 * i, v);)
WRONG(w_outside_copy, cp_async4(smem + 4 * i, y + 128 + i); cp_async_commit(); cp_async_wait<0>();)
WRONG(w_outside_nc, y[i] = load_nc(y - 1 + i);)
WRONG(w_unaligned_code, unsigned r[4]; unsigned at = 16 * (i & 31);
      if (i & 1) ldmatrix_x4(r, smem + at, "a", 1); else ldmatrix_x4(r, smem + at, "a", 2);
      y[i] = (int)r[0];)
WRONG(w_spin, while (load_acquire(y) != 12345) {})

/* Races: right only in some orders. */
WRONG(r_left, int *s = (int *)smem; s[i] = i; y[i] = s[(i + 63) & 63];)
WRONG(r_right, int *s = (int *)smem; s[i] = i; y[i] = s[(i + 1) & 63];)
WRONG(r_warp, int *s = (int *)smem; s[i] = i; __syncwarp(); y[i] = s[i ^ 32];)
WRONG(r_again, int *s = (int *)smem; s[i] = i; __syncthreads(); int v = s[i ^ 32]; s[i] = -v;
      y[i] = v;)
