/* test_cpu_sample.c: the sampler in C against sample_reference.h, that against the vectors of
 * sampling/reference.py, and draws against their distribution. */
#include "cpu_kernels.h"
#include "cpu_sample.h"
#include "sample_reference.h"

enum { CAP = 64, SLOTS = 3 };

/* A call of B rows over V tokens. */
typedef struct Call {
        Rt rt;
        int V, B;
        float *logits, *scratch;
        int *slots, next[SLOTS];
        RtDrawn *drawn;
} Call;

static Call *call_new(int V, int B)
{
        Call *c = calloc(1, sizeof *c);
        c->V = V, c->B = c->rt.B = c->rt.sampled = B, c->rt.T = 1;
        c->logits = calloc((size_t)(V * B), sizeof *c->logits);
        c->scratch = calloc((size_t)(2 * V * SLOTS), sizeof *c->scratch);
        c->slots = calloc((size_t)RT_SLOT_WORDS(V, CAP) * SLOTS, sizeof *c->slots);
        c->drawn = calloc(SLOTS * RT_DRAWN, sizeof *c->drawn);
        for (int b = 0; b < B; b++)
                c->rt.slot[b] = b;
        return c;
}

static void call_free(Call *c)
{
        free(c->logits), free(c->scratch), free(c->slots), free(c->drawn), free(c);
}

static int *slot_of(Call *c, int slot) { return c->slots + slot * RT_SLOT_WORDS(c->V, CAP); }

static void call_run(Call *c)
{
        for (long tile = 0; tile < c->B + 1; tile++)
                sample_task(&c->rt, c->logits, c->V, c->V, c->scratch, c->slots, c->drawn, SLOTS,
                            CAP, c->next, tile);
}

/* Put a case and a history into a slot. */
static void slot_fill(Call *c, int slot, const RefCase *rc, const int *hist, int n_hist,
                      const unsigned *mask, const unsigned *single)
{
        int *to = slot_of(c, slot);
        RtSample s = rc->s;
        s.n_hist = n_hist;
        memcpy(to, &s, sizeof s);
        for (int p = n_hist > CAP ? n_hist - CAP : 0; p < n_hist; p++)
                to[RT_SLOT_HISTORY + p % CAP] = hist[p];
        memcpy(to + RT_SLOT_BIAS(CAP), rc->bias, sizeof rc->bias);
        memcpy(to + RT_SLOT_BREAKER(CAP), rc->breaker, sizeof rc->breaker);
        memcpy(to + RT_SLOT_BREAK_MASK(CAP), single, (size_t)RT_MASK_WORDS(c->V) * 4);
        memcpy(to + RT_SLOT_MASK(c->V, CAP), mask, (size_t)RT_MASK_WORDS(c->V) * 4);
}

static void words_of(const RtSample *s, uint32_t word[2])
{
        uint32_t r[4] = { (uint32_t)s->drawn, 0, SAMPLE_ID, 0 };
        philox(r, s->seed[0], s->seed[1]);
        word[0] = r[0], word[1] = r[1];
}

static void random_logits(float *x, int V, int kind)
{
        for (int i = 0; i < V; i++) {
                x[i] = 4.f * noise() + (below(9) ? 0.f : 3.f);
                x[i] = kind % 3 == 1 ? roundf(x[i]) : x[i]; /* ties */
                x[i] = kind % 3 == 2 && below(4) == 0 ? -INFINITY : x[i];
        }
        if (kind % 3 == 2)
                x[below(V)] = 1.f;
}

TEST (random_chains) {
        static const int sizes[] = { 2, 33, 300, 1000 };
        int checked = 0, total = 0;
        for (int n = 0; n < 6000; n++) {
                const int V = sizes[n % 4], odd = n % 50 == 7, n_hist = below(2 * CAP);
                Call *c = call_new(V, 2);
                unsigned mask[64] = { 0 }, single[64] = { 0 };
                int hist[2 * CAP];
                RefCase rc = ref_case(below, V);
                for (int i = 0; i < n_hist; i++)
                        hist[i] = below(V < 5 ? V : below(3) ? 5 : V);
                for (int i = 0; i < V; i++) {
                        mask[i / 32] |= (unsigned)(below(3) > 0) << i % 32;
                        single[i / 32] |= (unsigned)(below(9) == 0) << i % 32;
                }
                random_logits(c->logits + V, V, n);
                if (odd)
                        c->logits[V + below(V)] = n % 100 > 50 ? NAN : INFINITY;
                c->rt.slot[1] = 2; /* the other row is greedy */
                c->rt.n_out[1] = 21;
                slot_fill(c, 2, &rc, hist, n_hist, mask, single);
                RefInput in = { &rc.s, V,      c->logits + V, hist,       n_hist,
                                mask,  single, rc.bias,       rc.breaker, { 0 } };
                float raw[1000];
                memcpy(raw, in.x, (size_t)V * sizeof *raw);
                words_of(&rc.s, in.word);
                Ref r = ref_run(&in);
                call_run(c);
                const RtDrawn *d = c->drawn + (21 % RT_DRAWN) * SLOTS + 1;
                CHECK(!memcmp(raw, in.x, (size_t)V * sizeof *raw) && c->rt.n_out[1] == 22);
                CHECK_MSG((d->token < 0) == r.bad, "case %d: token %d", n, d->token);
                total++;
                if (!r.bad && r.margin > 1e-4) {
                        double far = ref_distance(&r, c->next[1]);
                        CHECK_MSG(d->token == c->next[1] && far < 1e-5 && r.p[d->token] > 0,
                                  "case %d: token %d of %d is %g from where it is drawn", n,
                                  d->token, V, far);
                        if (rc.s.mirostat && rc.s.what & SAMPLE_CHAIN)
                                NEAR(d->mirostat_mu,
                                     rc.s.mirostat_mu - rc.s.mirostat_eta * (-log2(r.p[d->token]) -
                                                                             rc.s.mirostat_tau),
                                     1e-4, "mu of case %d", n);
                        checked++;
                }
                if (!r.bad)
                        CHECK(slot_of(c, 2)[RT_SLOT_HISTORY + n_hist % CAP] == c->next[1]);
                RtSample after;
                memcpy(&after, slot_of(c, 2), sizeof after);
                CHECK(after.drawn == rc.s.drawn + 1 && after.n_hist == n_hist + 1);
                ref_free(&r);
                call_free(c);
        }
        CHECK_MSG(checked * 10 > total * 7, "%d of %d cases were clear", checked, total);
}

/* Neither the row nor the slot nor the others in the call change what a sequence says. */
TEST (alone_and_in_company) {
        const int V = 300;
        unsigned mask[10], single[10] = { 0 };
        memset(mask, 0xff, sizeof mask);
        for (int n = 0; n < 200; n++) {
                RefCase rc = ref_case(below, V), other = ref_case(below, V);
                int hist[40], said[2];
                float x[300];
                random_logits(x, V, n);
                for (int i = 0; i < 40; i++)
                        hist[i] = below(20);
                for (int k = 0; k < 2; k++) {
                        Call *c = call_new(V, k ? 3 : 1);
                        const int row = k ? 1 : 0, slot = k ? 2 : 0;
                        c->rt.slot[row] = slot;
                        for (int b = 0; b < c->B; b++)
                                memcpy(c->logits + b * V, x, sizeof x);
                        if (k)
                                c->rt.slot[2] = 1, slot_fill(c, 1, &other, hist, 12, mask, single);
                        slot_fill(c, slot, &rc, hist, 40, mask, single);
                        call_run(c);
                        said[k] = c->next[row];
                        call_free(c);
                }
                CHECK_MSG(said[0] == said[1], "case %d: %d, then %d", n, said[0], said[1]);
        }
}

TEST (rows_without_a_slot) {
        Call *c = call_new(5, 2);
        c->logits[3] = c->logits[5 + 2] = 1;
        c->rt.slot[0] = -1, c->next[0] = 77, c->rt.pos[0] = 4;
        call_run(c);
        CHECK(c->next[0] == 77 && c->rt.pos[0] == 5 && c->rt.n_out[0] == 0 && c->next[1] == 2);
        call_free(c);
}

/* Chi-square of 20,000 draws: with k - 1 degrees of freedom it exceeds k + 5 sqrt(2 k) + 10 once in
 * more than a million times. */
TEST (draws_follow_the_distribution) {
        enum { DRAWS = 20000 };
        const int V = 60;
        unsigned mask[2] = { ~0u, ~0u }, single[2] = { 0 };
        for (int n = 0; n < 60; n++) {
                Call *c = call_new(V, 1);
                RefCase rc = ref_case(below, V);
                int hist[50], count[60] = { 0 };
                rc.s.temp = rc.s.temp > 0 ? rc.s.temp : 1;
                rc.s.what |= rc.s.what & SAMPLE_CHAIN ? 0 : SAMPLE_DRAW;
                rc.s.mirostat = 0;
                rc.s.xtc_probability = rc.s.xtc_probability > 0 ? 1 : 0;
                random_logits(c->logits, V, n);
                for (int i = 0; i < 50; i++)
                        hist[i] = below(9);
                RefInput in = { &rc.s, V,      c->logits, hist,       50,
                                mask,  single, rc.bias,   rc.breaker, { 0 } };
                Ref r = ref_run(&in);
                for (int i = 0; i < DRAWS && r.margin > 1e-4 && !r.bad; i++) {
                        slot_fill(c, 0, &rc, hist, 50, mask, single);
                        ((RtSample *)slot_of(c, 0))->drawn = i;
                        call_run(c);
                        count[c->next[0]]++;
                }
                double chi = 0;
                int k = 0;
                for (int i = 0; i < V && r.margin > 1e-4 && !r.bad; i++) {
                        double want = r.p[i] * DRAWS;
                        CHECK_MSG(r.p[i] > 0 || !count[i], "case %d: token %d, which was dropped",
                                  n, i);
                        if (want >= 5)
                                chi += (count[i] - want) * (count[i] - want) / want, k++;
                }
                CHECK_MSG(chi < k + 5 * sqrt(2. * k) + 10, "case %d: chi-square %g of %d", n, chi,
                          k);
                ref_free(&r);
                call_free(c);
        }
}

TEST (log_probabilities) {
        const int V = 301;
        for (int n = 0; n < 200; n++) {
                Call *c = call_new(V, 1);
                RtSample *s = (RtSample *)slot_of(c, 0);
                double sum = 0;
                random_logits(c->logits, V, n);
                s->what = SAMPLE_LOGPROBS | (n % 2 ? SAMPLE_DRAW : 0);
                s->temp = 0.5f, s->top_p = 0.9f, s->n_logprobs = n % 21;
                call_run(c);
                for (int i = 0; i < V; i++)
                        sum += exp(c->logits[i]);
                const RtDrawn *d = c->drawn;
                NEAR(d->logprob, c->logits[d->token] - log(sum), 1e-5, "chosen, case %d", n);
                for (int k = 0; k < RT_LOGPROBS; k++) {
                        int better = 0, t = d->best[k];
                        if (k >= n % 21) {
                                CHECK(t == -1);
                                continue;
                        }
                        for (int i = 0; i < V; i++)
                                better += c->logits[i] > c->logits[t] ||
                                          (c->logits[i] == c->logits[t] && i < t);
                        CHECK_MSG(better == k, "case %d: best %d is number %d", n, k, better);
                        if (c->logits[t] > -INFINITY)
                                NEAR(d->best_logprob[k], c->logits[t] - log(sum), 1e-5, "best %d",
                                     k);
                }
                call_free(c);
        }
}

/* tests/sampling/vectors.txt, by reference.py: a case is `case`, lines of `name numbers`, `end`. */
TEST (vectors_of_the_definitions) {
        FILE *f = fopen("tests/sampling/vectors.txt", "r");
        char line[4096], name[64];
        int n = 0;
        CHECK(f);
        static float x[64];
        static double want[64];
        static int hist[64], breaker[64];
        unsigned single[2] = { 0 };
        RefCase rc;
        RefInput in = { 0 };
        while (fgets(line, sizeof line, f)) {
                double v[64];
                int k = 0, at = 0, used;
                if (*line == '#' || sscanf(line, "%63s%n", name, &at) != 1)
                        continue;
                while (k < 64 && sscanf(line + at, "%lf%n", &v[k], &used) == 1)
                        at += used, k++;
                RtSample *s = &rc.s;
                const struct {
                        const char *name;
                        float *f;
                        int *i;
                } field[] = { { "temp", &s->temp, 0 },
                              { "dynatemp_range", &s->dynatemp_range, 0 },
                              { "dynatemp_exponent", &s->dynatemp_exponent, 0 },
                              { "top_k", 0, &s->top_k },
                              { "top_p", &s->top_p, 0 },
                              { "min_p", &s->min_p, 0 },
                              { "typical_p", &s->typical_p, 0 },
                              { "top_n_sigma", &s->top_n_sigma, 0 },
                              { "xtc_probability", &s->xtc_probability, 0 },
                              { "xtc_threshold", &s->xtc_threshold, 0 },
                              { "repeat_penalty", &s->repeat_penalty, 0 },
                              { "presence_penalty", &s->presence_penalty, 0 },
                              { "frequency_penalty", &s->frequency_penalty, 0 },
                              { "repeat_last_n", 0, &s->repeat_last_n },
                              { "dry_multiplier", &s->dry_multiplier, 0 },
                              { "dry_base", &s->dry_base, 0 },
                              { "dry_allowed_length", 0, &s->dry_allowed_length },
                              { "dry_last_n", 0, &s->dry_last_n },
                              { "mirostat", 0, &s->mirostat },
                              { "mirostat_mu", &s->mirostat_mu, 0 } };
                for (size_t i = 0; i < sizeof field / sizeof *field && k; i++)
                        if (!strcmp(name, field[i].name)) {
                                if (field[i].f)
                                        *field[i].f = (float)v[0];
                                else
                                        *field[i].i = (int)v[0];
                        }
                if (!strcmp(name, "case")) {
                        memset(&rc, 0, sizeof rc);
                        memset(single, 0, sizeof single);
                        s->what = SAMPLE_CHAIN;
                        in = (RefInput) { s, 0, x, hist, 0, 0, single, 0, breaker, { 0, 0 } };
                } else if (!strcmp(name, "order")) {
                        for (int i = 0; i < k; i++)
                                s->order[i] = (unsigned char)v[i];
                } else if (!strcmp(name, "logits")) {
                        in.V = k;
                        for (int i = 0; i < k; i++)
                                x[i] = (float)v[i];
                } else if (!strcmp(name, "history")) {
                        in.n_hist = k;
                        for (int i = 0; i < k; i++)
                                hist[i] = (int)v[i];
                } else if (!strcmp(name, "breaker")) {
                        s->n_breaker = k;
                        for (int i = 0; i < k; i++)
                                breaker[i] = (int)v[i];
                } else if (!strcmp(name, "single")) {
                        for (int i = 0; i < k; i++)
                                single[(int)v[i] / 32] |= 1u << (int)v[i] % 32;
                } else if (!strcmp(name, "probabilities")) {
                        memcpy(want, v, sizeof want);
                } else if (!strcmp(name, "end")) {
                        Ref r = ref_run(&in);
                        for (int i = 0; i < in.V; i++)
                                NEAR(r.p[i], want[i], 1e-6, "case %d token %d", n, i);
                        ref_free(&r);
                        n++;
                }
        }
        fclose(f);
        CHECK_MSG(n >= 100, "%d cases", n);
}

TEST_MAIN
