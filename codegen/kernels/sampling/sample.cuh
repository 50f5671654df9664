/* sample.cuh: from logits to the next token, one sequence per tile.
 *
 *      sample_task<T, V, THREADS>(rt, logits, ld, hist, cap, rows, next, tile, smem)
 *
 * logits: T (B, ld), of the last token of each sequence; overwritten.
 * hist: int (cap, rows), the tokens so far: position p of sequence b is hist[p % cap][b]; the host
 * puts the prompt there.  next: int (B).  With S = rt->pos[b] + rt->T, the token chosen for
 * position S goes to next[b] and hist[S % cap][b]; then rt->pos[b] = S, and tile 0 adds 1 to
 * rt->n_out. A tile from rt->B on does nothing.
 *
 * Which token, exactly (the C back end does the same, in the order of llama.cpp's default chain):
 *  1. Penalty.  Each distinct token x[i] among the last min(repeat_last_n, S, cap) of hist
 *  (negative
 *     repeat_last_n: min(S, cap)): x > 0 ? x / p :
 *     x * p with p = repeat_penalty, rounded to T.  Skipped if p is 1 or the window is empty.
 *  2. If an x is NaN or +inf, or all are -inf, there is nothing to choose: next[b] is 0, which the
 *  steps under way may
 *     read, and hist[S % cap][b] is -1, which tells the host.  Done.
 *     M = max x.  If temp <= 0: the largest x, lowest index on a tie.  Done.
 *  3.  weight(d) = (u64)(expf(d) * 2^32), truncated; so anything 22.2 below M has weight 0.
 *     Sums of weights are integers and have no order.
 *  4. top_k in [1, V): t = the k-th largest x; keep x >= t (all of a tie).
 *  5. top_p < 1: Z = sum of weight(x - M) over what is kept; t = the largest value with
 *     sum of weight(x - M) over kept x >= t at least (u64)(top_p * (double)Z), and at least 1; keep
 *     x >= t.
 *  6. min_p > 0: keep only x - M >= logf(min_p).
 *  7. w = weight((x - M) / temp) over what is kept, Z their sum, u = first word of Philox at
 *  counter
 *     {S, b, SAMPLE_ID, 0} with key rt->seed, r = floor(u * Z / 2^32): the first index, in rising
 *     order, at which the running sum of w exceeds r.
 * M itself is always kept, so Z > 0.
 *
 * tiles: B.  THREADS: 1024, __launch_bounds__(1024, 1).  shared memory: SAMPLE_SMEM. */
#ifndef TGC_SAMPLE_CUH
#define TGC_SAMPLE_CUH

#include "order.cuh"

#define SAMPLE_ID 0x73616d70u
#define SAMPLE_LIST 4096 /* candidates held in shared memory */
#define SAMPLE_AHEAD 8   /* loads a lane has under way */
#define SAMPLE_SMEM (512 + 8 * SAMPLE_LIST)

/* Values to choose from: all logits in global memory, or a list of candidates, in
 * rising order of index, in shared memory. */
template <class T>
struct SampleView {
        const T *x;
        const float *val; /* null: x */
        const int *idx;
        int n;
        __device__ float at(int i) const
        {
                float v = val ? val[i] : to_float(x[i]);
                return v == v ? v : -INFINITY;
        }
        __device__ int index(int i) const { return val ? idx[i] : i; }
};

TGC_DEV u64 sample_weight(float d) { return (u64)(expf(d) * 4294967296.f); }

/* The part p of z, at least 1. */
TGC_DEV u64 sample_share(float p, u64 z)
{
        u64 need = p > 0.f ? (u64)(p * (double)z) : 0;
        return need ? need : 1;
}

/* How much of the view is at or above key t: its weight relative to max, or its number. */
template <int THREADS, bool WEIGHT, class View>
TGC_DEV u64 sample_mass(const View &view, unsigned t, float max, u64 *red)
{
        u64 sum = 0;
#pragma unroll 8
        for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                float v = view.at(i);
                if (order_key(v) >= t)
                        sum += WEIGHT ? sample_weight(v - max) : 1;
        }
        return block_sum_u64<THREADS>(sum, red);
}

/* The largest key t with a mass of at least need; 0 if there is none. */
template <int THREADS, bool WEIGHT, class View>
TGC_DEV unsigned sample_threshold(const View &view, u64 need, float max, u64 *red)
{
        unsigned t = 0;
        for (unsigned bit = 0x80000000u; bit; bit >>= 1)
                if (sample_mass<THREADS, WEIGHT>(view, t | bit, max, red) >= need)
                        t |= bit;
        return t;
}

/* Items i, i + 32, ... of the view, all loads before the first use; -inf from end on. */
template <class View>
TGC_DEV void sample_load(float (&v)[SAMPLE_AHEAD], const View &view, int i, int end)
{
#pragma unroll
        for (int j = 0; j < SAMPLE_AHEAD; j++)
                v[j] = i + j * 32 < end ? view.at(i + j * 32) : -INFINITY;
}

/* The part of n items that belongs to this warp, in order of warps. */
template <int THREADS>
TGC_DEV void sample_segment(int n, int &begin, int &end)
{
        int per = ((n + THREADS / 32 - 1) / (THREADS / 32) + 31) & ~31,
            at = (int)threadIdx.x / 32 * per;
        begin = at < n ? at : n;
        end = n - begin < per ? n : begin + per;
}

/* Copy what is at or above t to the list, in order; its length, or -1 if it is too long. */
template <int THREADS, class View>
TGC_DEV int sample_gather(const View &view, unsigned t, float *val, int *idx, int *count)
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
        if (lane == 0)
                count[warp] = n;
        __syncthreads();
        for (int w = 0; w < THREADS / 32; w++) {
                at += w < warp ? count[w] : 0;
                total += count[w];
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
                                val[to] = ahead[j];
                                idx[to] = view.index(i);
                        }
                        at += __popc(all);
                }
        }
        __syncthreads();
        return total;
}

/* Step 7: draw from what is kept; the token for every thread. */
template <int THREADS, class View>
TGC_DEV int sample_draw(const View &view, unsigned t, float least, float max, float temp,
                        unsigned u, u64 *red, int *token)
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
                red[warp] = sum;
        __syncthreads();
        for (int w = 0; w < THREADS / 32; w++) {
                before += w < warp ? red[w] : 0;
                total += red[w];
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
                                        *token = view.index(i0 + j * 32 + lane);
                                unsigned lo = __shfl_sync(0xffffffffu, (unsigned)to, 31);
                                unsigned hi = __shfl_sync(0xffffffffu, (unsigned)(to >> 32), 31);
                                before += (u64)hi << 32 | lo;
                        }
                }
        __syncthreads();
        return *token;
}

/* Step 1, in place, for the n last tokens. */
template <class T, int V, int THREADS>
TGC_DEV void sample_penalty(float penalty, int n, T *x, const int *hist, int cap, int rows, int S)
{
        for (int i = (int)threadIdx.x; i < n; i += THREADS) {
                int token = hist[(S - 1 - i) % cap * rows];
                bool first = token >= 0 && token < V;
                for (int j = 0; j < i && first; j++)
                        first = hist[(S - 1 - j) % cap * rows] != token;
                if (first) {
                        float v = to_float(x[token]);
                        from_float(x + token, v > 0.f ? v / penalty : v * penalty);
                }
        }
        __syncthreads();
}

/* The largest of this thread's logits, the first of equal ones, and where; -infinity and its first
 * place if there are none. finite: none of them is NaN or +infinity.
 * 16 bytes a load where rows allow it: one multiprocessor reads it all, and waits for memory. */
template <class T, int V, int THREADS>
TGC_DEV float sample_most(const T *x, bool wide, int *where, bool *finite)
{
        constexpr int WIDE = 16 / (int)sizeof(T), N = V % WIDE == 0 ? WIDE : 1;
        float most = -INFINITY;
        bool less = true;
        int at = (int)threadIdx.x * (wide ? N : 1);
        const int first = at;
#pragma unroll 4
        for (int i = first; wide && i < V; i += THREADS * N) {
                float v[N];
                load<N>(v, x + i);
#pragma unroll
                for (int j = 0; j < N; j++) {
                        at = v[j] > most ? i + j : at;
                        most = v[j] > most ? v[j] : most;
                        less = less && v[j] < INFINITY;
                }
        }
#pragma unroll 8
        for (int i = first; !wide && i < V; i += THREADS) {
                const float v = to_float(x[i]);
                at = v > most ? i : at;
                most = v > most ? v : most;
                less = less && v < INFINITY;
        }
        *where = at;
        *finite = less;
        return most;
}

/* Steps 4 to 7.  best: this thread's largest logit of those it alone looked at, NaN if
 * it looked at none.  The k-th largest of these is a lower bound of the k-th largest of all, and
 * likewise for weights: what is above the bound is usually a short list. */
template <class T, int V, int THREADS>
TGC_DEV int sample_pick(const Rt *rt, const T *x, float best, float max, unsigned u, char *smem)
{
        u64 *red = (u64 *)smem;
        int *count = (int *)(smem + 256), *token = (int *)(smem + 384),
            *idx = (int *)(smem + 512) + SAMPLE_LIST;
        float *val = (float *)(smem + 512);
        SampleView<T> all = { x, 0, 0, V }, view = all;
        bool top_k = rt->top_k > 0 && rt->top_k < V, top_p = rt->top_p < 1.f;
        unsigned t = 0;

        if (top_k || top_p) {
                u64 need = top_k ? (u64)rt->top_k : 0;
                if (!top_k)
                        need = sample_share(rt->top_p,
                                            sample_mass<THREADS, true>(all, 0, max, red));
                val[threadIdx.x] = best;
                __syncthreads();
                SampleView<T> prologues = { 0, val, 0, V < THREADS ? V : THREADS };
                unsigned bound = top_k ? sample_threshold<THREADS, false>(prologues, need, max, red)
                                       : sample_threshold<THREADS, true>(prologues, need, max, red);
                __syncthreads();
                int n = sample_gather<THREADS>(all, bound, val, idx, count);
                if (n >= 0)
                        view = SampleView<T> { x, val, idx, n };
                if (top_k)
                        t = sample_threshold<THREADS, false>(view, need, max, red);
                if (top_k && top_p)
                        need = sample_share(rt->top_p,
                                            sample_mass<THREADS, true>(view, t, max, red));
                if (top_p) {
                        unsigned tp = sample_threshold<THREADS, true>(view, need, max, red);
                        t = tp > t ? tp : t;
                }
        }
        float least = rt->min_p > 0.f ? logf(rt->min_p) : -INFINITY;
        return sample_draw<THREADS>(view, t, least, max, rt->temp, u, red, token);
}

template <class T, int V, int THREADS>
TGC_DEV void sample_task(Rt *rt, T *logits, int ld, int *hist, int cap, int rows, int *next,
                         int tile, char *smem)
{
        static_assert(SAMPLE_LIST >= THREADS, "sample: the list also holds one value per thread");
        /* what rt says is on its way together, and with the logits, which are read again where
         * there is a penalty */
        const int B = rt->B, S = rt->pos[tile] + rt->T, repeat = rt->repeat_last_n,
                  n_out = rt->n_out;
        const float temp = rt->temp, penalty = rt->repeat_penalty;
        T *x = logits + (long long)tile * ld;
        const bool wide = ld % (16 / (int)sizeof(T)) == 0;
        int at, token;
        bool finite;
        float most = sample_most<T, V, THREADS>(x, wide, &at, &finite);
        if (tile >= B)
                return;
        hist += tile;
        if (penalty != 1.f) {
                const int n = S < cap ? S : cap;
                __syncthreads();
                sample_penalty<T, V, THREADS>(penalty, repeat < 0 || repeat > n ? n : repeat, x,
                                              hist, cap, rows, S);
                most = sample_most<T, V, THREADS>(x, wide, &at, &finite);
        }
        /* above the key of every number */
        const u64 best = !finite ? ~(u64)0 : at < V ? order_key_at(most, at) : 0;
        u64 top = block_max_u64<THREADS>(best, (u64 *)smem);
        float max = order_value((unsigned)(top >> 32));
        finite = max > -INFINITY && max < INFINITY;
        token = finite ? order_index(top) : 0;
        if (temp > 0.f && finite) {
                uint4 r = philox(make_uint4((unsigned)S, (unsigned)tile, SAMPLE_ID, 0), rt->seed[0],
                                 rt->seed[1]);
                token = sample_pick<T, V, THREADS>(rt, x, order_value((unsigned)(best >> 32)), max,
                                                   r.x, smem);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
                next[tile] = token;
                hist[S % cap * rows] = finite ? token : -1;
                rt->pos[tile] = S;
                if (rt->pages && S / TGC_PAGE < rt->slot_pages)
                        rt->place[tile] =
                                rt->pages[(long)rt->slot[tile] * rt->slot_pages + S / TGC_PAGE] *
                                        TGC_PAGE +
                                S % TGC_PAGE;
                if (tile == 0)
                        rt->n_out = n_out + 1;
        }
        __syncthreads();
}

#endif
