/* sample.cuh: from logits to the next token, one sequence per tile.
 *
 *      sample_task<V, CAP, THREADS>(rt, logits, ld, scratch, slots, drawn, n_slots, next, tile,
 *      smem)
 *
 * logits: float (B, ld), of the last token of each row; kept.  scratch: float (B, V).  slots:
 * rt.h's slots of n_slots sequences, with histories of CAP tokens.  drawn: RtDrawn (RT_DRAWN,
 * n_slots).  next: int (B).  The token for row b goes to next[b], to drawn[n_out % RT_DRAWN][b] and
 * to the history of slot rt->slot[b]; then rt->pos[b] and rt->n_out[b] grow by 1.  A row of
 * no slot changes nothing but pos; a tile from rt->sampled on does nothing.
 *
 * Which token (RtSample.what says which steps there are; the C back end does the same):
 *  1. If an x is NaN or +infinity, or all are -infinity, there is nothing to choose: next[b] is 0,
 *     which the steps under way may read, and drawn's token -1.  Done.
 *  2. SAMPLE_MASK: x is -infinity where the slot's mask has no bit.  SAMPLE_BIAS: x += bias.  The
 *     same test again.
 *  3. SAMPLE_CHAIN: sample_chain.cuh.
 *  4. SAMPLE_DRAW: top_k, top_p, min_p as there, all on the logits, then the draw by
 *     weight((x - max) / temp).  Neither: the largest x, the lowest index on a tie.
 * Random numbers: Philox at counter {tokens drawn by the sequence, 0, SAMPLE_ID, 0} under its key;
 * the first word draws, the second is XTC's.  Neither row nor slot matters, nor who else is in the
 * call.
 *
 * tiles: B.  THREADS: 1024, __launch_bounds__(1024, 1).  shared memory: SAMPLE_SMEM. */
#ifndef TGC_SAMPLE_CUH
#define TGC_SAMPLE_CUH

#include "sample_chain.cuh"
#include "sample_logprobs.cuh"

#define SAMPLE_ID 0x73616d70u

/* This thread's largest logit, the first of equal ones, and its index; -infinity and the first
 * index if it has none.  finite: none is NaN or +infinity.  16 bytes per load where rows allow:
 * one multiprocessor reads the whole row, bound by memory latency. */
template <int V, int THREADS>
TGC_DEV float sample_most(const float *x, bool wide, int *where, bool *finite)
{
        constexpr int WIDE = 4, N = V % WIDE == 0 ? WIDE : 1;
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
                const float v = x[i];
                at = v > most ? i : at;
                most = v > most ? v : most;
                less = less && v < INFINITY;
        }
        *where = at;
        *finite = less;
        return most;
}

/* Step 4.  best: as in sample_narrow. */
template <int V, int THREADS>
TGC_DEV int sample_pick(const RtSample *s, float *x, float best, float max, unsigned u,
                        const SampleSmem &m)
{
        const int k = s->top_k;
        const float p = s->top_p, min_p = s->min_p;
        SampleView view = { x, 0, 0, V };
        bool top_k = k > 0 && k < V, top_p = p < 1.f;
        unsigned t = 0;

        if (top_k || top_p) {
                u64 need = top_k ? (u64)k
                                 : sample_share(p, sample_mass<THREADS, true>(view, 0, max, m.red));
                view = top_k ? sample_narrow<THREADS, false>(view, best, need, max, m)
                             : sample_narrow<THREADS, true>(view, best, need, max, m);
                if (top_k)
                        t = sample_threshold<THREADS, false>(view, need, max, m.red);
                if (top_k && top_p)
                        need = sample_share(p, sample_mass<THREADS, true>(view, t, max, m.red));
                if (top_p) {
                        unsigned tp = sample_threshold<THREADS, true>(view, need, max, m.red);
                        t = tp > t ? tp : t;
                }
        }
        float least = min_p > 0.f ? logf(min_p) : -INFINITY;
        return sample_draw<THREADS>(view, t, least, max, s->temp, u, m);
}

template <int V, int CAP, int THREADS>
TGC_DEV void sample_task(Rt *rt, float *logits, int ld, float *scratch, int *slots, RtDrawn *drawn,
                         int n_slots, int *next, int tile, char *smem)
{
        static_assert(SAMPLE_LIST >= THREADS, "sample: the list also holds one value per thread");
        /* rt's members are loaded together, and with the logits */
        const int B = rt->sampled, S = rt->pos[tile] + 1, row = rt->slot[tile],
                  turn = rt->n_out[tile];
        const bool nobody = row < 0 || row >= n_slots;
        float *x = logits + (long long)tile * ld;
        const SampleSmem m(smem);
        const bool wide = ld % 4 == 0;
        int at, token;
        bool finite;
        int *slot = slots + (long long)(nobody ? 0 : row) * RT_SLOT_WORDS(V, CAP);
        RtSample *s = (RtSample *)slot;
        const int what = s->what, n_drawn = s->drawn, n_hist = s->n_hist;
        float most = sample_most<V, THREADS>(x, wide, &at, &finite);
        if (tile >= B)
                return;
        /* above the key of every number */
        u64 best = !finite ? ~(u64)0 : at < V ? order_key_at(most, at) : 0;
        u64 top = block_max_u64<THREADS>(best, m.red);
        const float raw = order_value((unsigned)(top >> 32));
        float max = raw;
        float *y = x;
        finite = max > -INFINITY && max < INFINITY;
        if (what & (SAMPLE_MASK | SAMPLE_BIAS | SAMPLE_CHAIN) && finite && !nobody) {
                y = scratch + (long long)tile * V;
                sample_copy<V, THREADS>(y, x,
                                        what & SAMPLE_MASK ? (unsigned *)slot + RT_SLOT_MASK(V, CAP)
                                                           : 0);
                if (what & SAMPLE_BIAS)
                        sample_bias<V, THREADS>(y, (const RtBias *)(slot + RT_SLOT_BIAS(CAP)),
                                                s->n_bias);
                most = sample_most<V, THREADS>(y, V % 4 == 0, &at, &finite);
                best = !finite ? ~(u64)0 : at < V ? order_key_at(most, at) : 0;
                top = block_max_u64<THREADS>(best, m.red);
                max = order_value((unsigned)(top >> 32));
                finite = max > -INFINITY && max < INFINITY;
        }
        token = finite ? order_index(top) : 0;
        if (what & (SAMPLE_DRAW | SAMPLE_CHAIN) && finite && !nobody) {
                const uint4 r = philox(make_uint4((unsigned)n_drawn, 0, SAMPLE_ID, 0), s->seed[0],
                                       s->seed[1]);
                token = what & SAMPLE_CHAIN
                                ? sample_chain<V, CAP, THREADS>(s, y, slot, r, m)
                                : sample_pick<V, THREADS>(s, y, order_value((unsigned)(best >> 32)),
                                                          max, r.x, m);
        }
        RtDrawn *d = drawn + (turn % RT_DRAWN * n_slots + tile);
        if (what & SAMPLE_LOGPROBS && finite && !nobody)
                sample_logprobs<V, THREADS>(d, x, raw, token, s->n_logprobs, m);
        __syncthreads();
        if (threadIdx.x == 0) {
                rt->pos[tile] = S;
                for (int i = 0; i < TGC_POOLS; i++)
                        if (rt->pages[i] && row >= 0 && S / TGC_PAGE < rt->slot_pages)
                                rt->place[i][tile] =
                                        rt->pages[i][(long)row * rt->slot_pages + S / TGC_PAGE] *
                                                TGC_PAGE +
                                        S % TGC_PAGE;
                if (!nobody) {
                        next[tile] = token;
                        d->token = finite ? token : -1;
                        d->mirostat_mu = s->mirostat_mu;
                        slot[RT_SLOT_HISTORY + n_hist % CAP] = token;
                        s->n_hist = n_hist + 1;
                        s->drawn = n_drawn + 1;
                        rt->n_out[tile] = turn + 1;
                }
        }
        __syncthreads();
}

#endif
