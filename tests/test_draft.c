/* test_draft.c: drafts do not change what is said: the same tokens, of the same random numbers, and
 * the same log-probabilities to rounding. */
#include <math.h>
#include "small_gpt.h"
#include "runtime/session/session_impl.h"

/* ---- what is said ---- */

typedef struct Said {
        Session *s;
        int ids[CTX + 1], n, most;
        float logprob[CTX + 1];
        int asked; /* masks */
        uint32_t bits[(V + 31) / 32];
} Said;

static int on_token(void *user, int i, const int *token, int B)
{
        Said *x = user;
        (void)i;
        CHECK(B == 1 && x->n < x->most);
        x->logprob[x->n] = session_drawn(x->s, 0)->logprob;
        x->ids[x->n++] = *token;
        return x->n == x->most;
}

/* A third of the vocabulary, which depends on the last token. */
static const uint32_t *next_mask(void *user, int sequence, int token)
{
        Said *x = user;
        CHECK(!sequence && token == (x->n ? x->ids[x->n - 1] : -1));
        x->asked++;
        memset(x->bits, 0, sizeof x->bits);
        for (int k = (token + 1) % 3; k < V; k += 3)
                x->bits[k / 32] |= 1u << k % 32;
        return x->bits;
}

/* The prompt repeats itself, so that there are drafts from the first step on. */
static void speak(Bench *x, const Sampling *how, int prompt, int n, int stop_after, Draft *d,
                  Said *out)
{
        int ids[CTX];
        Sampling h = *how;
        *out = (Said) { .s = x->s, .most = stop_after };
        for (int i = 0; i < prompt; i++)
                ids[i] = i * i % 23 % V;
        h.mask_user = out;
        h.logprobs = true;
        MUST(session_reset(x->s, &e));
        MUST(session_prefill(x->s, ids, 1, prompt, &e));
        MUST(session_decode_drafted(x->s, &h, n, d, on_token, out, &e));
        CHECK(session_pos(x->s) == (prompt + out->n < CTX ? prompt + out->n : CTX));
}

static int accepted;

static void compare(Bench *x, const Sampling *how, int prompt, int n, int stop_after, int most,
                    const char *what)
{
        static Said with, without;
        Draft d = { .most = most };
        speak(x, how, prompt, n, stop_after, &d, &with);
        speak(x, how, prompt, n, stop_after, NULL, &without);
        CHECK_MSG(with.n == without.n, "%s: %d tokens, without drafts %d", what, with.n, without.n);
        CHECK(with.asked == without.asked);
        for (int i = 0; i < with.n; i++) {
                CHECK_MSG(with.ids[i] == without.ids[i], "%s: token %d is %d, without drafts %d",
                          what, i, with.ids[i], without.ids[i]);
                CHECK_MSG(fabsf(with.logprob[i] - without.logprob[i]) < 2e-2f,
                          "%s: token %d: %g, %g", what, i, (double)with.logprob[i],
                          (double)without.logprob[i]);
        }
        CHECK_MSG(d.accepted <= d.proposed && d.accepted < with.n + !with.n, "%s: %d of %d", what,
                  d.accepted, d.proposed);
        accepted += d.accepted;
}

static void compare_all(Bench *x, int n, unsigned seed, const char *what)
{
        Sampling how = sampling_default();
        char name[100];
        accepted = 0;
        for (int i = 0; i < 7; i++) {
                how = sampling_default();
                how.seed = seed + (unsigned)i;
                how.temp = i % 2 ? 0.9f : 0.f;
                if (i == 2 || i == 3)
                        how.repeat_penalty = 1.2f, how.dry_multiplier = 0.5f;
                if (i == 4)
                        how.mirostat = 2, how.temp = 1;
                if (i == 5)
                        how.top_k = 0, how.xtc_probability = 0.5f, how.typical_p = 0.9f;
                if (i == 6)
                        how.mask = next_mask;
                snprintf(name, sizeof name, "%s, sampling %d", what, i);
                compare(x, &how, 3 + 12 * i, n, n, 1 + i * 2, name);
        }
        CHECK_MSG(accepted > 0, "%s: no draft was right", what);
}

TEST (on_the_cpu) {
        Bench x;
        Sampling greedy = sampling_default();
        greedy.temp = 0;
        for (int batch = 1; batch < 7; batch += 5) {
                open_model(&x, "f32", batch, 0, DEV_CPU);
                compare_all(&x, 60, 5, batch > 1 ? "pages" : "no pages");
                compare(&x, &greedy, 40, 60, 7, 8, "stopped");
                compare(&x, &greedy, 40, 1, 1, 8, "one token");
                compare(&x, &greedy, 1, 30, 30, DRAFT_MOST, "long drafts");
                compare(&x, &greedy, CTX - 20, 21, 100, 16, "to the end of the context");
                close_model(&x);
        }
}

TEST (in_the_emulator) {
        Bench x;
        open_model(&x, "f32", 1, 0, DEV_EMULATE);
        compare_all(&x, 10, 5, "emulated");
        close_model(&x);
        CHECK(!setenv("TGC_EMULATE_ARCH", "sm_90a", 1));
        open_model(&x, "bf16", 2, 0, DEV_EMULATE);
        /* of nearly even chances a draw between two tokens is either's after bf16's rounding (seed
         * 5) */
        compare_all(&x, 8, 6, "sm_90a, pages");
        close_model(&x);
        unsetenv("TGC_EMULATE_ARCH");
}

/* One after the other, as a conversation has it. */
TEST (goes_on) {
        Bench x;
        static Said a, b;
        Draft d = { .most = 8 };
        Sampling greedy = sampling_default();
        greedy.temp = 0;
        open_model(&x, "f32", 1, 0, DEV_CPU);
        speak(&x, &greedy, 30, 9, 9, &d, &a);
        a.most = 30;
        MUST(session_decode(x.s, &greedy, 5, on_token, &a, &e));
        MUST(session_decode_drafted(x.s, &greedy, 16, &d, on_token, &a, &e));
        speak(&x, &greedy, 30, 30, 30, NULL, &b);
        CHECK(a.n == 30 && !memcmp(a.ids, b.ids, sizeof(int) * 30));
        close_model(&x);
}

TEST (wrong_drafts) {
        Bench x;
        int ids[4] = { 1, 2, 3, 4 };
        Draft d = { .most = DRAFT_MOST + 1 };
        open_model(&x, "f32", 6, 0, DEV_CPU);
        MUST(session_prefill(x.s, ids, 1, 4, &e));
        CHECK(session_decode_drafted(x.s, NULL, 4, &d, NULL, NULL, &e) == TGC_USAGE);
        d.most = 0;
        CHECK(session_decode_drafted(x.s, NULL, 4, &d, NULL, NULL, &e) == TGC_USAGE);
        MUST(session_reset(x.s, &e));
        d.most = 3;
        MUST(session_prefill(x.s, ids, 2, 2, &e));
        CHECK(session_decode_drafted(x.s, NULL, 4, &d, NULL, NULL, &e) == TGC_USAGE &&
              strstr(e.msg, "one sequence, and there are 2"));
        close_model(&x);
}

/* ---- the drafts ---- */

/* By its definition: the longest match of 4 to 2 tokens, of these the latest. */
static int plain_ngram(const int *ids, int n, int most, int *out)
{
        for (int len = 4; len >= 2; len--)
                for (int i = n - len - 1; i >= 0; i--)
                        if (!memcmp(ids + i, ids + n - len, (size_t)len * sizeof *ids)) {
                                int all[300];
                                memcpy(all, ids, (size_t)n * sizeof *ids);
                                for (int k = 0; k < most; k++)
                                        out[k] = all[n + k] = all[i + len + k];
                                return most;
                        }
        return 0;
}

TEST (ngrams) {
        unsigned rng = 3;
        int ids[200], a[64], b[64], found = 0;
        for (int round = 0; round < 20000; round++) {
                const int n = 1 + round % 190, most = 1 + round % 64;
                for (int i = 0; i < n; i++) {
                        rng = rng * 1664525u + 1013904223u;
                        ids[i] = (int)((rng >> 16) % (2u + (unsigned)round % 12));
                }
                const int k = ngram_draft(ids, n, most, a);
                found += k > 0;
                CHECK(k == plain_ngram(ids, n, most, b) && !memcmp(a, b, sizeof *a * (size_t)k));
        }
        CHECK(found > 10000 && found < 20000);
}

TEST_MAIN
