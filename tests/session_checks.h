/* session_checks.h: what a session over the plan of hand_plan.h does on every device. */
#ifndef TGC_SESSION_CHECKS_H
#define TGC_SESSION_CHECKS_H

#include <math.h>
#include "hand_plan.h"

typedef struct Got {
        int n, stop_at, token[BATCH][64];
} Got;

static inline int collect(void *user, int i, const int *token, int B)
{
        Got *g = user;
        for (int b = 0; b < B; b++)
                g->token[b][i] = token[b];
        g->n = i + 1;
        return g->n == g->stop_at;
}

/* What the "model" answers to a history of n tokens. */
static inline int answer(const int *h, int n)
{
        int sum = 2; /* (int)w[33], uniform in 2..3 */
        for (int i = 0; i < n; i++)
                sum += h[i];
        return sum % V;
}

static inline void check_inference(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, SESSION_INFER);
        Err e;
        Got g = { 0 };
        int h[BATCH][64] = { { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5 } }, n = 11;

        CHECK_MSG(session_decode(s, 0, 1, collect, &g, &e) == TGC_USAGE,
                  "decoded without a prompt");
        CHECK_MSG(!session_prefill(s, h[0], 1, 4, &e), "%s", e.msg);
        /* two calls, three chunks */
        CHECK_MSG(!session_prefill(s, h[0] + 4, 1, 7, &e), "%s", e.msg);
        CHECK(session_pos(s) == 11);
        CHECK_MSG(!session_decode(s, 0, 6, collect, &g, &e), "%s", e.msg);
        CHECK(g.n == 6 && session_pos(s) == 17);
        for (int i = 0; i < 6; i++, n++)
                CHECK_MSG((h[0][n] = answer(h[0], n)) == g.token[0][i], "token %d: %d, not %d", i,
                          g.token[0][i], h[0][n]);
        g.stop_at = 2; /* the callback's wish, then go on from there */
        CHECK(!session_decode(s, 0, 6, collect, &g, &e) && g.n == 2 && session_pos(s) == 19);
        for (int i = 0; i < 2; i++, n++)
                CHECK((h[0][n] = answer(h[0], n)) == g.token[0][i]);
        g.stop_at = 0; /* to the end of the context: 32 digested, 33 in all */
        CHECK(session_decode(s, 0, 100, collect, &g, &e) == TGC_USAGE && strstr(e.msg, "context"));
        CHECK_MSG(g.n == 14, "%d tokens", g.n);
        for (int i = 0; i < 14; i++, n++)
                CHECK((h[0][n] = answer(h[0], n)) == g.token[0][i]);
        CHECK(session_decode(s, 0, 1, collect, &g, &e) == TGC_USAGE);
        CHECK(session_prefill(s, h[0], 1, 1, &e) == TGC_USAGE);

        session_reset(s, &e); /* three sequences at once, ids and next one buffer */
        int batch[3][7] = { { 1, 2, 3, 4, 5, 6, 7 },
                            { 7, 7, 7, 7, 7, 7, 7 },
                            { 0, 0, 15, 0, 0, 0, 1 } };
        CHECK_MSG(!session_prefill(s, batch[0], 3, 7, &e), "%s", e.msg);
        CHECK(session_prefill(s, batch[0], 2, 7, &e) == TGC_USAGE);
        CHECK_MSG(!session_decode(s, 0, 4, collect, &g, &e), "%s", e.msg);
        for (int b = 0; b < 3; b++) {
                memcpy(h[b], batch[b], sizeof batch[b]);
                for (int i = 0; i < 4; i++)
                        CHECK((h[b][7 + i] = answer(h[b], 7 + i)) == g.token[b][i]);
        }
        session_reset(s, &e);
        CHECK(session_prefill(s, (int[]) { 16 }, 1, 1, &e) == TGC_USAGE &&
              strstr(e.msg, "vocabulary"));
        CHECK(session_prefill(s, h[0], 4, 1, &e) == TGC_USAGE);
        TrainResult r;
        CHECK(session_train_step(s, &(TrainStep) { 0 }, &r, &e) == TGC_USAGE);
        session_close(s);
        plan_close(&p);
}

static inline void check_score(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, 0);
        Err e;
        int ids[CTX];
        static float logits[CTX][V];
        double nll[CTX], Z = log(exp(3.0) + V - 1);

        for (int i = 0; i < CTX; i++)
                ids[i] = i * 5 % V;
        ids[4] = answer(ids, 4);
        CHECK_MSG(!session_score(s, ids, CTX, logits[0], nll, &e), "%s", e.msg);
        for (int i = 0; i < CTX; i++) {
                int want = answer(ids, i + 1);
                CHECK(logits[i][want] == 3.f && logits[i][(want + 1) % V] == 0.f);
                if (i + 1 < CTX)
                        CHECK(fabs(nll[i] - (Z - (ids[i + 1] == want ? 3 : 0))) < 1e-6);
        }
        CHECK(!session_score(s, ids, 1, 0, nll, &e) && !session_score(s, ids, 3, 0, 0, &e));
        CHECK(session_score(s, ids, CTX + 1, 0, nll, &e) == TGC_USAGE);
        CHECK(session_pos(s) == 0);
        session_close(s);
        plan_close(&p);
}

/* Two steps under way give the bits that one at a time gives. */
static inline void check_overlapped(const Plan *p, DevKind kind, int *ids, int *targets,
                                    double first_loss, const float *want)
{
        Session *s = open_on(p, kind, SESSION_TRAIN);
        TrainStep in = { .B = 2,
                         .T = 4,
                         .n_micro = 4,
                         .ids = ids,
                         .targets = targets,
                         .lr = 0.1,
                         .beta1 = 0.9,
                         .beta2 = 0.999 };
        TrainResult r;
        float x[33];
        Err e;
        CHECK(session_train_end(s, &r, &e) == TGC_USAGE);
        CHECK_MSG(!session_train_begin(s, &in, &e), "%s", e.msg);
        for (in.step = 1; in.step < 4; in.step++) {
                CHECK_MSG(!session_train_begin(s, &in, &e), "%s", e.msg);
                CHECK(session_train_begin(s, &in, &e) == TGC_USAGE &&
                      session_train_step(s, &in, &r, &e) == TGC_USAGE);
                CHECK(!session_train_end(s, &r, &e) && r.tokens == 25);
                CHECK(in.step > 1 || r.loss == first_loss);
        }
        CHECK(!session_train_end(s, &r, &e) && r.loss < first_loss);
        CHECK(!session_param_get(s, 0, x, &e) && !memcmp(x, want, sizeof x));
        session_close(s);
}

/* A snapshot stays as the session was, whatever becomes of that, and its memory is used again. */
static inline void check_snapshot(Session *s, const TrainStep *in)
{
        static const Part part[] = { PART_MASTER, PART_M, PART_V };
        float x[33], was[33], states[3][33];
        Session *copy = NULL;
        TrainStep next = *in;
        TrainResult r;
        Err e;
        for (int round = 0; round < 2; round++, next.step++) {
                CHECK(!session_param_get(s, 0, was, &e));
                for (int k = 0; k < 3; k++)
                        if (session_part_size(s, part[k], 0))
                                CHECK(!session_part_read(s, part[k], 0, states[k], &e));
                CHECK_MSG(!session_snapshot(s, SNAPSHOT_STATE, &copy, &e), "%s", e.msg);
                CHECK_MSG(!session_train_step(s, &next, &r, &e), "%s", e.msg);
                CHECK(!session_param_get(copy, 0, x, &e) && !memcmp(x, was, sizeof x));
                for (int k = 0; k < 3; k++) {
                        const size_t n = session_part_size(s, part[k], 0);
                        CHECK(session_part_size(copy, part[k], 0) == n);
                        if (n)
                                CHECK(!session_part_read(copy, part[k], 0, x, &e) &&
                                      !memcmp(x, states[k], n));
                }
                CHECK(!session_param_get(s, 0, x, &e) && memcmp(x, was, sizeof x));
        }
        CHECK(session_snapshot_bytes(s, SNAPSHOT_STORAGE) >=
              session_snapshot_bytes(s, SNAPSHOT_STATE));
        session_snapshot_free(copy);
}

static inline void check_training(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Err e;
        int ids[4][8], targets[4][8], flat_targets[8];
        float x[2][33], before[33];
        double losses[2], norms[2];
        TrainResult r;

        for (int i = 0; i < 32; i++) {
                ids[i / 8][i % 8] = i * 3 % V;
                targets[i / 8][i % 8] = i % 5 == 0 ? -1 : i % 7;
        }
        /* 4 micro-steps of 2x4; the same as 16 of 1x2: more than the ring of slots holds */
        for (int way = 0; way < 2; way++) {
                Session *s = open_on(&p, kind, SESSION_TRAIN);
                TrainStep in = { .B = way ? 1 : 2,
                                 .T = way ? 2 : 4,
                                 .n_micro = way ? 16 : 4,
                                 .ids = ids[0],
                                 .targets = targets[0],
                                 .lr = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999 };
                double sum = 0;
                CHECK(!session_param_get(s, 0, before, &e));
                for (in.step = 0; in.step < 4; in.step++) {
                        CHECK_MSG(!session_train_step(s, &in, &r, &e), "%s", e.msg);
                        CHECK(!r.bad && r.tokens == 25);
                        if (in.step == 0) {
                                losses[way] = r.loss;
                                norms[way] = r.grad_norm;
                        }
                }
                CHECK(fabs(session_rt(s)->bias2 - (1 - pow(0.999, 4))) < 1e-9);
                for (int i = 0; i < 32; i++) {
                        double d = targets[i / 8][i % 8] < 0
                                           ? 0
                                           : before[ids[i / 8][i % 8]] - targets[i / 8][i % 8];
                        sum += d * d / 25;
                }
                CHECK_MSG(fabs(losses[way] - sum) < 1e-5 * sum, "loss %g, not %g", losses[way],
                          sum);
                CHECK(!session_param_get(s, 0, x[way], &e));
                double loss;
                uint64_t tokens;
                CHECK_MSG(!session_eval(s, ids[0], targets[0], 2, 4, &loss, &tokens, &e), "%s",
                          e.msg);
                CHECK(tokens == 6 && loss > 0 && loss < 30);
                check_snapshot(s, &in);
                session_close(s);
        }
        CHECK(fabs(norms[0] - norms[1]) < 1e-5 * norms[0]);
        check_overlapped(&p, kind, ids[0], targets[0], losses[0], x[0]);
        for (int i = 0; i < 33; i++)
                CHECK_MSG(fabsf(x[0][i] - x[1][i]) <= 1e-5f * (1 + fabsf(x[0][i])),
                          "x[%d]: %g and %g", i, x[0][i], x[1][i]);

        Session *s = open_on(&p, kind, SESSION_TRAIN);
        TrainStep in = {
                .B = 2, .T = 4, .n_micro = 1, .ids = ids[0], .targets = targets[0], .lr = 0.1
        };
        for (int i = 0; i < 33; i++)
                x[0][i] = 0;
        x[0][3] = NAN; /* tokens 3 and 6 are in the batch */
        CHECK(!session_param_set(s, 0, x[0], &e) && !session_train_step(s, &in, &r, &e) && r.bad);
        CHECK(!session_param_get(s, 0, x[1], &e) && x[1][6] == 0.f);
        x[0][3] = 0;
        CHECK(!session_param_set(s, 0, x[0], &e) && !session_train_step(s, &in, &r, &e) && !r.bad);
        memset(flat_targets, 255, sizeof flat_targets);
        in.targets = flat_targets;
        CHECK(session_train_step(s, &in, &r, &e) == TGC_USAGE);
        in.targets = targets[0];
        in.T = 5;
        CHECK(session_train_step(s, &in, &r, &e) == TGC_USAGE);
        CHECK(session_prefill(s, ids[0], 1, 3, &e) == TGC_USAGE && !session_has(s, "decode") &&
              session_has(s, "step"));
        session_close(s);
        plan_close(&p);
}

static inline void check_timing(DevKind kind)
{
        need(kind);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, kind, 0);
        Err e;
        double ms[4];
        int n;
        CHECK_MSG(!session_time_kernels(s, "decode", 1, 1, ms, 4, &n, &e), "%s", e.msg);
        CHECK(n == 2 && ms[0] >= 0 && ms[1] >= 0);
        /* from a position without room it would write behind the cache */
        session_rt(s)->pos[0] = 32;
        session_rt_changed(s);
        CHECK(session_time_kernels(s, "decode", 1, 1, ms, 4, &n, &e) == TGC_USAGE);
        CHECK(session_run(s, "decode", 1, 1, &e) == TGC_USAGE);
        CHECK_MSG(strstr(e.msg, "beyond the context of 32"), "%s", e.msg);
        CHECK(!session_reset(s, &e) && !session_run(s, "decode", 1, 1, &e));
        session_close(s);
        plan_close(&p);
}

/* ---- memory of the device is given back ---- */

/* Of the decode program for one sequence. */
static inline bool has_graph(const Session *s)
{
        const Prog *g = program_find(&s->p, session_has(s, "decode1") ? "decode1" : "decode");
        return s->prog[g - s->p.prog].graph;
}

/* Open, train two steps, decode until graphs run, close.  *during: free memory while it is open. */
static inline void use_all_of(const Plan *p, Device *watch, uint64_t *during)
{
        enum { PROMPT = 7, N_DECODE = 20, MOST = 4096 };
        static int ids[MOST];
        SessionOptions o = { .device = dev_which(watch), .seed = 42 };
        uint64_t total;
        Session *s;
        TrainResult r;
        Got g = { 0 };
        Err e = { 0 };
        CHECK_MSG(!session_open(&s, p, &o, &e), "%s", e.msg);
        const Prog *step = program_find(session_program(s), "step");
        CHECK(step && step->B * step->T <= MOST);
        for (int i = 0; i < MOST; i++)
                ids[i] = i * 7 % session_manifest(s)->vocab;
        TrainStep in = { .B = step->B,
                         .T = step->T,
                         .n_micro = 1,
                         .ids = ids,
                         .targets = ids,
                         .lr = 1e-3,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .clip = 1 };
        for (; in.step < 2; in.step++)
                CHECK_MSG(!session_train_step(s, &in, &r, &e), "%s", e.msg);
        CHECK_MSG(!session_prefill(s, ids, 1, PROMPT, &e) &&
                          !session_decode(s, 0, N_DECODE, collect, &g, &e),
                  "%s", e.msg);
        CHECK(g.n == N_DECODE && (!dev_can_capture(session_device(s)) || has_graph(s)));
        CHECK(!dev_memory(watch, during, &total, &e));
        session_close(s);
}

/* To the byte, three times, after a first use in which the driver makes what it keeps as long as
 * the context lives (the stack of kernels, room for launches).  `watch` holds the context, which
 * would go with the last session.  The driver counts the whole GPU: nobody else may be using it. */
static inline void check_memory_returns(const Plan *p)
{
        enum { ROUNDS = 3 };
        uint64_t before, during, after[ROUNDS], largest = 0, total;
        Device *watch;
        Err e;
        use_cache();
        CHECK(!dev_open(&watch, DEV_CUDA, 0, &e));
        use_all_of(p, watch, &during);
        CHECK(!dev_memory(watch, &before, &total, &e));
        for (int i = 0; i < ROUNDS; i++) {
                use_all_of(p, watch, &during);
                CHECK(!dev_memory(watch, &after[i], &total, &e));
        }
        dev_close(watch);
        Program prog;
        const Section *text = plan_find(p, "program.cuda");
        CHECK_MSG(!program_parse(&prog, text->data, text->size, text->name, &e), "%s", e.msg);
        for (int i = 0; i < prog.n_arenas; i++)
                largest = prog.arena[i].size > largest ? prog.arena[i].size : largest;
        program_free(&prog);
        CHECK_MSG(during + largest <= before,
                  "%llu bytes are free with a session, %llu without: nothing was measured",
                  (unsigned long long)during, (unsigned long long)before);
        CHECK_MSG(after[0] == before && after[1] == before && after[2] == before,
                  "free before: %llu bytes; after each "
                  "round %lld, %lld, %lld fewer",
                  (unsigned long long)before, (long long)(before - after[0]),
                  (long long)(before - after[1]), (long long)(before - after[2]));
}

#endif
