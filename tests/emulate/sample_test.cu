/* sample_test.cu: the sampler against sample_reference.h, with ties, -infinity, NaN and odd
 * vocabularies.  Built as update_test.cu is, with -Itests. */
#include "near.h"
#include "sample.cuh"
#include "../sample_reference.h"

static unsigned long long state = 88172645463325252ull;
static int below(int n)
{
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (int)((double)(state >> 11) * 0x1p-53 * n);
}

template <int V, int CAP>
struct SampleRun {
        Rt *rt;
        float *logits;
        int ld;
        float *scratch;
        int *slots;
        RtDrawn *drawn;
        int n_slots, *next;
        __device__ void operator()(int tile, char *smem) const
        {
                sample_task<V, CAP, 1024>(rt, logits, ld, scratch, slots, drawn, n_slots, next,
                                          tile, smem);
        }
};

static void philox_words(const RtSample *s, unsigned *word)
{
        unsigned c[4] = { (unsigned)s->drawn, 0, SAMPLE_ID, 0 }, k0 = s->seed[0], k1 = s->seed[1];
        for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
                unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
                unsigned d[4] = { (unsigned)(b >> 32) ^ c[1] ^ k0, (unsigned)b,
                                  (unsigned)(a >> 32) ^ c[3] ^ k1, (unsigned)a };
                memcpy(c, d, sizeof c);
        }
        word[0] = c[0], word[1] = c[1];
}

static void check_logprobs(const RtDrawn *d, const float *x, int V, int n)
{
        double sum = 0;
        for (int i = 0; i < V; i++)
                sum += exp((double)x[i]);
        CHECK_NEAR(d->logprob, x[d->token] - log(sum), 1e-4, "log-probability of %d", d->token);
        for (int k = 0; k < RT_LOGPROBS; k++) {
                int better = 0, t = d->best[k];
                if (k >= n || k >= V) {
                        CHECK_NEAR(t, -1, 0, "alternative %d", k);
                        continue;
                }
                for (int i = 0; i < V; i++)
                        better += x[i] > x[t] || (x[i] == x[t] && i < t);
                CHECK_NEAR(better, k, 0, "alternative %d of %d", k, V);
                if (x[t] > -INFINITY)
                        CHECK_NEAR(d->best_logprob[k], x[t] - log(sum), 1e-4, "of alternative %d",
                                   k);
        }
}

template <int V, int CAP>
static void sample_tests(int cases)
{
        enum { B = 2, SLOTS = 3, WORDS = RT_SLOT_WORDS(V, CAP) };
        int checked = 0;
        for (int n = 0; n < cases; n++) {
                const int ld = V + (n % 2 ? 3 : 0), n_hist = below(2 * CAP), odd = n % 16 == 5;
                Buf<Rt> rts(1);
                Rt *rt = rts.p;
                Buf<float> logits((size_t)B * ld), scratch((size_t)B * V);
                Buf<int> slots(SLOTS * WORDS), next(B + 1), hist(2 * CAP);
                Buf<RtDrawn> drawn(RT_DRAWN * SLOTS);
                RefCase rc = ref_case(below, V);
                memset((void *)rt, 0, sizeof *rt);
                memset((void *)slots.p, 0, slots.n * sizeof(int));
                rt->B = B + 1, rt->sampled = B, rt->T = 2, rt->pos[1] = 9;
                rt->slot[0] = n % 3 ? 0 : -1, rt->slot[1] = 2, rt->n_out[1] = 18;
                for (int i = 0; i < B * ld; i++) {
                        float x = (float)below(9000) * 0.001f;
                        logits[i] = n % 3 == 1                    ? (float)(int)x
                                    : n % 3 == 2 && below(4) == 0 ? -INFINITY
                                                                  : x;
                }
                logits[ld + V / 2] = 1;
                if (odd)
                        logits[ld + V - 1] = n % 32 > 16 ? NAN : INFINITY;
                for (int i = 0; i < n_hist; i++)
                        hist[i] = below(V < 5 ? V : below(3) ? 5 : V);
                int *slot = slots.p + 2 * WORDS;
                RtSample s = rc.s;
                s.n_hist = n_hist;
                if (n % 2)
                        s.what |= SAMPLE_LOGPROBS, s.n_logprobs = n % 21;
                memcpy((void *)slot, (void *)&s, sizeof s);
                for (int p = n_hist > CAP ? n_hist - CAP : 0; p < n_hist; p++)
                        slot[RT_SLOT_HISTORY + p % CAP] = hist[p];
                memcpy((void *)(slot + RT_SLOT_BIAS(CAP)), (void *)rc.bias, sizeof rc.bias);
                memcpy((void *)(slot + RT_SLOT_BREAKER(CAP)), (void *)rc.breaker,
                       sizeof rc.breaker);
                unsigned *single = (unsigned *)slot + RT_SLOT_BREAK_MASK(CAP),
                         *mask = (unsigned *)slot + RT_SLOT_MASK(V, CAP);
                for (int i = 0; i < V; i++) {
                        mask[i / 32] |= (unsigned)(below(3) > 0) << i % 32;
                        single[i / 32] |= (unsigned)(below(9) == 0) << i % 32;
                }
                RefInput in = { &rc.s, V,      logits.p + ld, hist.p,     n_hist,
                                mask,  single, rc.bias,       rc.breaker, { 0, 0 } };
                philox_words(&rc.s, in.word);
                Ref r = ref_run(&in);
                shell_run<1024>(B + 1, SAMPLE_SMEM,
                                SampleRun<V, CAP> { rt, logits.p, ld, scratch.p, slots.p, drawn.p,
                                                    SLOTS, next.p });
                const RtDrawn *d = drawn.p + (18 % RT_DRAWN) * SLOTS + 1;
                RtSample after;
                memcpy((void *)&after, (void *)slot, sizeof after);
                CHECK_NEAR(d->token < 0, r.bad, 0, "V %d case %d: token %d", V, n, d->token);
                if (!r.bad && r.margin > 1e-4) {
                        CHECK_NEAR(ref_distance(&r, d->token), 0, 1e-5,
                                   "V %d case %d: how far token %d is from where it is drawn", V, n,
                                   d->token);
                        if (rc.s.mirostat && rc.s.what & SAMPLE_CHAIN)
                                CHECK_NEAR(d->mirostat_mu,
                                           rc.s.mirostat_mu -
                                                   0.1 * (-log2(r.p[d->token]) - rc.s.mirostat_tau),
                                           1e-3, "mu of case %d", n);
                        checked++;
                }
                if (!r.bad && n % 2)
                        check_logprobs(d, in.x, V, n % 21);
                CHECK_NEAR(next[1], r.bad ? 0 : d->token, 0, "next");
                CHECK_NEAR(slot[RT_SLOT_HISTORY + n_hist % CAP], next[1], 0, "history");
                CHECK_NEAR(after.drawn + after.n_hist, rc.s.drawn + n_hist + 2, 0, "counters");
                CHECK_NEAR(rt->pos[1] * 100 + rt->n_out[1], 1019, 0, "pos and n_out");
                CHECK_NEAR(rt->pos[0] * 100 + rt->n_out[0], n % 3 ? 101 : 100, 0, "of row 0");
                ref_free(&r);
        }
        CHECK_NEAR(checked * 10 > cases * 6, true, 0, "V %d: %d of %d cases were clear", V, checked,
                   cases);
}

static void all_sample()
{
        sample_tests<5, 64>(30), sample_tests<1000, 41>(50), sample_tests<9001, 100>(8);
}

int main(int argc, char **argv)
{
        static const NamedTest tests[] = {
                { "sample", all_sample },
        };
        return run_tests(tests, argc, argv);
}
