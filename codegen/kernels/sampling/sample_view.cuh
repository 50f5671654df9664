/* sample_view.cuh: searches a row of logits, or what is left of it, with one block.
 *
 * Weights are integers, weight(d) = (u64)(expf(d) * 2^32) truncated, so a sum does not depend on
 * its order, and a logit 22.2 below the largest weighs nothing.  A dropped value is -infinity. */
#ifndef TGC_SAMPLE_VIEW_CUH
#define TGC_SAMPLE_VIEW_CUH

#include "order.cuh"

#define SAMPLE_LIST 4096 /* candidates held in shared memory */
#define SAMPLE_AHEAD 8   /* loads in flight per lane */
#define SAMPLE_SMEM (512 + 8 * SAMPLE_LIST)

/* Shared memory of the sampler. */
struct SampleSmem {
        u64 *red;   /* 32 */
        int *count; /* 32 */
        int *token; /* the token drawn */
        float *val; /* SAMPLE_LIST values */
        int *idx;   /* and their tokens */
        __device__ explicit SampleSmem(char *smem)
            : red((u64 *)smem), count((int *)(smem + 256)), token((int *)(smem + 384)),
              val((float *)(smem + 512)), idx((int *)(smem + 512) + SAMPLE_LIST)
        {
        }
};

/* The candidates: logits in global memory, or a list in shared memory, ascending by index. */
struct SampleView {
        float *x;
        float *val; /* null: x */
        int *idx;
        int n;
        __device__ float at(int i) const
        {
                float v = val ? val[i] : x[i];
                return v == v ? v : -INFINITY;
        }
        __device__ void set(int i, float v) const { (val ? val : x)[i] = v; }
        __device__ int index(int i) const { return val ? idx[i] : i; }
};

TGC_DEV u64 sample_weight(float d) { return (u64)(expf(d) * 4294967296.f); }

/* The fraction p of z, at least 1. */
TGC_DEV u64 sample_share(float p, u64 z)
{
        u64 need = p > 0.f ? (u64)(p * (double)z) : 0;
        return need ? need : 1;
}

/* How much of the view has keys at or above t: weight relative to max, or count. */
template <int THREADS, bool WEIGHT, class Key>
TGC_DEV u64 sample_mass_by(const SampleView &view, unsigned t, float max, u64 *red, const Key &key)
{
        u64 sum = 0;
#pragma unroll 8
        for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                float v = view.at(i);
                if (key(v) >= t)
                        sum += WEIGHT ? sample_weight(v - max) : 1;
        }
        return block_sum_u64<THREADS>(sum, red);
}

template <int THREADS, bool WEIGHT>
TGC_DEV u64 sample_mass(const SampleView &view, unsigned t, float max, u64 *red)
{
        return sample_mass_by<THREADS, WEIGHT>(view, t, max, red,
                                               [](float v) { return order_key(v); });
}

/* The largest key t whose mass is at least need; 0 if there is none. */
template <int THREADS, bool WEIGHT, class Key>
TGC_DEV unsigned sample_threshold_by(const SampleView &view, u64 need, float max, u64 *red,
                                     const Key &key)
{
        unsigned t = 0;
        for (unsigned bit = 0x80000000u; bit; bit >>= 1)
                if (sample_mass_by<THREADS, WEIGHT>(view, t | bit, max, red, key) >= need)
                        t |= bit;
        return t;
}

template <int THREADS, bool WEIGHT>
TGC_DEV unsigned sample_threshold(const SampleView &view, u64 need, float max, u64 *red)
{
        return sample_threshold_by<THREADS, WEIGHT>(view, need, max, red,
                                                    [](float v) { return order_key(v); });
}

/* Items i, i + 32, ... of the view, all loads before the first use; -inf from end on. */
TGC_DEV void sample_load(float (&v)[SAMPLE_AHEAD], const SampleView &view, int i, int end)
{
#pragma unroll
        for (int j = 0; j < SAMPLE_AHEAD; j++)
                v[j] = i + j * 32 < end ? view.at(i + j * 32) : -INFINITY;
}

/* This warp's share of n items, in order of warps. */
template <int THREADS>
TGC_DEV void sample_segment(int n, int &begin, int &end)
{
        int per = ((n + THREADS / 32 - 1) / (THREADS / 32) + 31) & ~31,
            at = (int)threadIdx.x / 32 * per;
        begin = at < n ? at : n;
        end = n - begin < per ? n : begin + per;
}

/* Copies values at or above t to the list, in order; returns its length, or -1 if it is too
 * long. */
template <int THREADS>
TGC_DEV int sample_gather(const SampleView &view, unsigned t, const SampleSmem &s)
{
        int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, begin, end, n = 0, at = 0,
            total = 0;
        sample_segment<THREADS>(view.n, begin, end);
#pragma unroll 8
        for (int i = begin + lane; i < end; i += 32)
                n += order_key(view.at(i)) >= t;
#pragma unroll
        for (int d = 16; d; d >>= 1)
                n += __shfl_xor_sync(0xffffffffu, n, d);
        __syncthreads();
        if (lane == 0)
                s.count[warp] = n;
        __syncthreads();
        for (int w = 0; w < THREADS / 32; w++) {
                at += w < warp ? s.count[w] : 0;
                total += s.count[w];
        }
        if (total > SAMPLE_LIST)
                return -1;
        for (int i0 = begin; n && i0 < end; i0 += 32 * SAMPLE_AHEAD) {
                float ahead[SAMPLE_AHEAD];
                sample_load(ahead, view, i0 + lane, end);
#pragma unroll
                for (int j = 0; j < SAMPLE_AHEAD; j++) {
                        int i = i0 + j * 32 + lane;
                        bool in = i < end && order_key(ahead[j]) >= t;
                        unsigned all = __ballot_sync(0xffffffffu, in);
                        if (in) {
                                int to = at + __popc(all & ((1u << lane) - 1));
                                s.val[to] = ahead[j];
                                s.idx[to] = view.index(i);
                        }
                        at += __popc(all);
                }
        }
        __syncthreads();
        return total;
}

/* For a row in global memory: makes a list, if short, of all that may be among the largest that
 * make up `need`.  best: the largest logit this thread saw, NaN if none.  The k-th largest of
 * these is a lower bound of the k-th largest of all; likewise for weights. */
template <int THREADS, bool WEIGHT>
TGC_DEV SampleView sample_narrow(const SampleView &all, float best, u64 need, float max,
                                 const SampleSmem &s)
{
        __syncthreads();
        s.val[threadIdx.x] = best;
        __syncthreads();
        SampleView bests = { 0, s.val, 0, all.n < THREADS ? all.n : THREADS };
        unsigned bound = sample_threshold<THREADS, WEIGHT>(bests, need, max, s.red);
        __syncthreads();
        int n = sample_gather<THREADS>(all, bound, s);
        return n < 0 ? all : SampleView { all.x, s.val, s.idx, n };
}

/* Draws among values at or above key t and within `least` of max, by weight((x - max) / temp): the
 * first index, ascending, at which the running sum exceeds floor(u * total / 2^32).  Every thread
 * gets the token; values that are not finite weigh nothing. */
template <int THREADS>
TGC_DEV int sample_draw(const SampleView &view, unsigned t, float least, float max, float temp,
                        unsigned u, const SampleSmem &s)
{
        int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, begin, end;
        u64 sum = 0, total = 0, before = 0;
        sample_segment<THREADS>(view.n, begin, end);
#pragma unroll 8
        for (int i = begin + lane; i < end; i += 32) {
                float v = view.at(i);
                sum += order_key(v) >= t && v - max >= least ? sample_weight((v - max) / temp) : 0;
        }
        sum = warp_sum_u64(sum);
        __syncthreads();
        if (lane == 0)
                s.red[warp] = sum;
        __syncthreads();
        for (int w = 0; w < THREADS / 32; w++) {
                before += w < warp ? s.red[w] : 0;
                total += s.red[w];
        }
        u64 r = (total >> 32) * u + (((total & 0xffffffffu) * u) >> 32);
        if (r >= before && r < before + sum)
                for (int i0 = begin; i0 < end && before <= r; i0 += 32 * SAMPLE_AHEAD) {
                        float ahead[SAMPLE_AHEAD];
                        sample_load(ahead, view, i0 + lane, end);
#pragma unroll
                        for (int j = 0; j < SAMPLE_AHEAD; j++) {
                                bool in = order_key(ahead[j]) >= t && ahead[j] - max >= least;
                                u64 w = in ? sample_weight((ahead[j] - max) / temp) : 0, to = w;
#pragma unroll
                                for (int d = 1; d < 32; d <<= 1) {
                                        unsigned lo = __shfl_up_sync(0xffffffffu, (unsigned)to, d);
                                        unsigned hi = __shfl_up_sync(0xffffffffu,
                                                                     (unsigned)(to >> 32), d);
                                        to += lane >= d ? (u64)hi << 32 | lo : 0;
                                }
                                if (before + to > r && before + to - w <= r)
                                        *s.token = view.index(i0 + j * 32 + lane);
                                unsigned lo = __shfl_sync(0xffffffffu, (unsigned)to, 31);
                                unsigned hi = __shfl_sync(0xffffffffu, (unsigned)(to >> 32), 31);
                                before += (u64)hi << 32 | lo;
                        }
                }
        __syncthreads();
        return *s.token;
}

#endif
