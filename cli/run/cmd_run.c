/* cmd_run.c: tgc run */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../chat/chat.h"
#include "run.h"
#include "sampling.h"
#include "stop_text.h"
#include "../load/open.h"

/* How much may be shown of what would be ready, with --stop. */
static size_t cut_at_stop(Gen *r, size_t ready)
{
        const OptionValue *stop = &r->a->v[O_STOP];
        const char *own = r->hold + r->own;
        const size_t n = r->n_hold - r->own, at = stop_find(stop->list, stop->n, own, n);
        if (at != STOP_NONE) {
                r->n_hold = r->own + at;
                r->stop = "stop";
                return r->n_hold;
        }
        const size_t most = r->n_hold - stop_begun(stop->list, stop->n, own, n);
        return ready < most ? ready : most;
}

/* own: the model said it, not the prompt. */
static void put_text(Gen *r, const char *s, size_t n, bool own)
{
        if (r->n_hold + n > r->cap_hold) {
                size_t cap = (r->n_hold + n) * 2 + 64;
                char *p = realloc(r->hold, cap);
                if (!p) {
                        r->code = err_set(r->e, TGC_NO_MEMORY, "no memory for the text");
                        return;
                }
                r->hold = p;
                r->cap_hold = cap;
        }
        if (n)
                memcpy(r->hold + r->n_hold, s, n);
        r->n_hold += n;
        if (!r->n_hold)
                return;
        size_t ready = utf8_ready(r->hold, r->n_hold);
        if (own)
                ready = cut_at_stop(r, ready);
        if (r->text)
                put_generated(r->hold, ready);
        if (fflush(stdout) || ferror(stdout))
                r->code = out_done(r->e);
        memmove(r->hold, r->hold + ready, r->n_hold -= ready);
        r->own -= r->own < ready ? r->own : ready;
}

static void put_id(Gen *r, int i, bool own)
{
        size_t n;
        if (!(r->text || r->a->v[O_STOP].n) || r->code)
                return;
        const char *s = tokenizer_next(r->tok, &r->at, r->ids[i], &n);
        put_text(r, s, n, own);
}

static int add_id(Gen *r, int id)
{
        if (r->n == r->cap) {
                int cap = r->cap * 2 + 256, *p = realloc(r->ids, (size_t)cap * sizeof *p);
                if (!p)
                        return err_set(r->e, TGC_NO_MEMORY, "no memory for ids");
                r->ids = p;
                r->cap = cap;
        }
        r->ids[r->n++] = id;
        return TGC_OK;
}

static int keep_logprobs(Gen *r, const RtDrawn *drawn)
{
        if (!opt_set(r->a, O_LOGPROBS))
                return TGC_OK;
        if (!(r->n_drawn & (r->n_drawn - 1))) { /* doubles */
                size_t n = r->n_drawn ? 2 * (size_t)r->n_drawn : 1;
                RtDrawn *d = realloc(r->drawn, n * sizeof *d);
                if (!d)
                        return err_set(r->e, TGC_NO_MEMORY, "no memory for log-probabilities");
                r->drawn = d;
        }
        r->drawn[r->n_drawn++] = *drawn;
        return TGC_OK;
}

int gen_take(Gen *r, int token, const RtDrawn *drawn)
{
        if (r->tok && !opt_flag(r->a, O_IGNORE_EOS) &&
            (tokenizer_is_eos(r->tok, token) || token == r->end_of_turn)) {
                r->stop = "eos";
                return 1;
        }
        if ((r->code = add_id(r, token)) || (r->code = keep_logprobs(r, drawn)))
                return 1;
        put_id(r, r->n - 1, true);
        if (signal_seen())
                r->stop = "signal";
        return r->code || r->stop;
}

static int on_token(void *user, int i, const int *token, int B)
{
        Gen *r = user;
        (void)i, (void)B;
        return gen_take(r, *token, session_drawn(r->session, 0));
}

/* ---- the work ---- */

static uint64_t pick_seed(const Args *a)
{
        struct timespec t;
        if (a->v[O_SEED].i >= 0)
                return (uint64_t)a->v[O_SEED].i;
        clock_gettime(CLOCK_REALTIME, &t);
        return ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec) & 0x1fffffffffffffu;
}

static int prompt_too_long(const Gen *r, int n, int ctx, int asked, Err *e)
{
        char rows[32] = "0";
        manifest_word(r->plan, "meta positions", rows, sizeof rows);
        if (asked)
                return err_set(e, TGC_USAGE, "the prompt has %d tokens, --ctx-size is %d", n,
                               asked);
        if (*rows != '0' && atoi(rows) <= ctx)
                return err_set(
                        e, TGC_USAGE,
                        "the prompt has %d tokens, the plan's context is %d, and the model has no "
                        "positions beyond; shorten the prompt, or compile a model with more of "
                        "them (one in Lua: -D ctx=%d)",
                        n, ctx, n);
        return err_set(e, TGC_USAGE,
                       "the prompt has %d tokens, the plan's context is %d; compile with a larger "
                       "--ctx-size",
                       n, ctx);
}

/* Before any of them runs. */
static int check_lengths(const Gen *r, const Session *s, const Prompts *p, Err *e)
{
        const int ctx = session_manifest(s)->ctx, asked = opt_int(r->a, O_CTX);
        if (asked > ctx)
                return err_set(e, TGC_USAGE, "--ctx-size %d: the plan was compiled for %d", asked,
                               ctx);
        for (int i = 0; i < p->n; i++)
                if (p->prompt[i].n > (asked ? asked : ctx))
                        return prompt_too_long(r, p->prompt[i].n, asked ? asked : ctx, asked, e);
        return TGC_OK;
}

int shift_keeps(const Args *a, const Tokenizer *tok, const int *ids, int n, int ctx, int *keep,
                Err *e)
{
        enum { ROOM = 4 }; /* llama.cpp's: so that half of the rest is something */
        const int bos = tok && n && tokenizer_adds_bos(tok) && ids[0] == tokenizer_bos(tok);
        *keep = opt_int(a, O_SHIFT_KEEP);
        *keep = *keep < 0 || *keep > n ? n : *keep + bos < n ? *keep + bos : n;
        if (*keep <= ctx - ROOM || !opt_flag(a, O_CONTEXT_SHIFT))
                return TGC_OK;
        return err_set(e, TGC_USAGE,
                       "--keep %d: of a context of %d at most %d tokens can stay, and that is %d",
                       opt_int(a, O_SHIFT_KEEP), ctx, ctx - ROOM, *keep);
}

/* Until `most` tokens are said (below 0: no limit), something ends it, or the context is full. */
static int decode(Gen *r, Session *s, const Sampling *how, int most, int keep, Err *e)
{
        int code = TGC_OK, held = r->n, gone; /* tokens of the context */
        bool fills = false;
        for (const int first = r->n; !code && !r->code && !r->stop;) {
                const int room = r->ctx - held + 1,
                          left = most < 0 ? room + 1 : most - (r->n - first);
                if (!left)
                        break;
                fills = left > room;
                code = session_decode_drafted(s, how, fills ? room : left,
                                              r->draft.most ? &r->draft : NULL, on_token, r, e);
                if (!fills || code || r->code || r->stop || !opt_flag(r->a, O_CONTEXT_SHIFT))
                        break;
                if ((code = session_shift(s, keep, &gone, e)))
                        break;
                held = session_pos(s);
                r->shifts++;
                r->grammar.goes_on = true;
                r->grammar.last = r->ids[r->n - 1];
        }
        if (code == TGC_NON_FINITE)
                r->stop = "non_finite";
        if (!r->stop)
                r->stop = fills ? "context" : "length";
        return code;
}

static int generate(Gen *r, Session *s, const Sampling *how, Clock *c, Err *e)
{
        int ctx = session_manifest(s)->ctx, asked = opt_int(r->a, O_CTX),
            most = opt_int(r->a, O_PREDICT), keep, code;
        if (asked)
                ctx = asked;
        r->n_prompt = r->n;
        r->ctx = ctx;
        double t = clock_s();
        if ((code = shift_keeps(r->a, r->tok, r->ids, r->n, ctx, &keep, e)) ||
            (r->which && (code = session_reset(s, e))))
                return code;
        if ((code = session_prefill(s, r->ids, 1, r->n, e)) || (code = session_sync(s, e)))
                return code;
        c->prompt = clock_s() - t;
        if (r->text && r->of > 1)
                printf("%s==> prompt %d of %d <==\n", r->which ? "\n" : "", r->which + 1, r->of);
        for (int i = 0; i < r->n && !r->answers; i++)
                put_id(r, i, false);
        r->own = r->n_hold;
        t = clock_s();
        code = decode(r, s, how, most, keep, e);
        c->decode = clock_s() - t;
        return code ? code : r->code;
}

/* Prefill leaves the prompt's last token to decoding: it is not counted there. */
static double rate(int n, double s) { return s > 0 ? n / s : 0; }

/* All of it, but for what --stop cuts off. */
static int text_of(const Gen *r, char **text, size_t *n, Err *e)
{
        const OptionValue *stop = &r->a->v[O_STOP];
        char *prompt;
        size_t k;
        const int from = r->answers ? r->n_prompt : 0;
        int code = tokenizer_text(r->tok, r->ids + from, r->n - from, text, n, e);
        if (code || strcmp(r->stop, "stop"))
                return code;
        if ((code = tokenizer_text(r->tok, r->ids + from, r->n_prompt - from, &prompt, &k, e))) {
                free(*text);
                return code;
        }
        k = k < *n ? k : *n;
        const size_t at = stop_find(stop->list, stop->n, *text + k, *n - k);
        *n = at == STOP_NONE ? *n : k + at;
        free(prompt);
        return TGC_OK;
}

/* All digits: a number of cJSON is a double, which it prints as 1.79e+15 where that is shorter. */
static void add_seed(cJSON *o, uint64_t seed)
{
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, seed);
        cJSON_AddRawToObject(o, "seed", text);
}

static int report_json(const Gen *r, const Clock *c, const Session *s, uint64_t seed, Err *e)
{
        int n = r->n - r->n_prompt;
        cJSON *o = cJSON_CreateObject();
        if (r->of > 1)
                cJSON_AddNumberToObject(o, "prompt", r->which + 1);
        if (r->tok) {
                char *text;
                size_t bytes;
                int code = text_of(r, &text, &bytes, e);
                if (code) {
                        cJSON_Delete(o);
                        return code;
                }
                json_add_text(o, "text", text, bytes);
                free(text);
        }
        cJSON_AddItemToObject(o, "ids", cJSON_CreateIntArray(r->ids, r->n));
        if (opt_set(r->a, O_LOGPROBS))
                cJSON_AddItemToObject(o, "logprobs", logprobs_json(r->tok, r->drawn, r->n_drawn));
        cJSON_AddNumberToObject(o, "prompt_tokens", r->n_prompt);
        cJSON_AddNumberToObject(o, "generated_tokens", n);
        cJSON_AddStringToObject(o, "stopped_by", r->stop);
        cJSON_AddNumberToObject(o, "context_tokens", r->ctx);
        if (opt_flag(r->a, O_CONTEXT_SHIFT))
                cJSON_AddNumberToObject(o, "context_shifts", r->shifts);
        add_seed(o, seed);
        cJSON_AddStringToObject(o, "device", dev_name(session_device(s)));
        cJSON_AddNumberToObject(o, "load_s", c->load);
        if (!r->whole) { /* of several together there is one rate (run_together.c) */
                cJSON_AddNumberToObject(o, "prompt_tokens_per_s", rate(r->n_prompt - 1, c->prompt));
                cJSON_AddNumberToObject(o, "decode_tokens_per_s", rate(n, c->decode));
        }
        if (r->draft.most) {
                cJSON_AddNumberToObject(o, "draft_proposed", r->draft.proposed);
                cJSON_AddNumberToObject(o, "draft_accepted", r->draft.accepted);
        }
        return r->of > 1 ? json_print_line(o, e) : json_print(o, e);
}

int gen_report(Gen *r, const Clock *c, const Session *s, uint64_t seed, Err *e)
{
        Progress talk = progress_new(r->a);
        int n = r->n - r->n_prompt;
        if (opt_flag(r->a, O_JSON))
                return report_json(r, c, s, seed, e);
        if (opt_flag(r->a, O_PRINT_IDS) || !r->tok) {
                for (int i = 0; i < r->n; i++)
                        printf("%s%d", i ? " " : "", r->ids[i]);
                printf("\n");
        } else if (r->whole) {
                char *text;
                size_t bytes;
                int code = text_of(r, &text, &bytes, e);
                if (code)
                        return code;
                if (r->of > 1)
                        printf("%s==> prompt %d of %d <==\n", r->follows ? "\n" : "", r->which + 1,
                               r->of);
                put_generated(text, bytes);
                printf("\n");
                free(text);
        } else {
                put_generated(r->hold, r->n_hold); /* a sequence that never ended */
                printf("\n");
        }
        fflush(stdout);
        if (r->whole)
                return out_done(e);
        char prefill[64] = "1 token"; /* the first one that decoding reads: it has no rate */
        if (r->n_prompt > 1)
                snprintf(prefill, sizeof prefill, "%d tokens at %.1f tok/s", r->n_prompt,
                         rate(r->n_prompt - 1, c->prompt));
        say(&talk, "%s: load %.2f s, prompt %s, decode %d token%s at %.1f tok/s%s\n",
            dev_name(session_device(s)), c->load, prefill, n, n == 1 ? "" : "s", rate(n, c->decode),
            !strcmp(r->stop, "eos") ? ", end of text" : "");
        if (r->draft.most)
                say(&talk, "draft: %d of %d proposed tokens accepted\n", r->draft.accepted,
                    r->draft.proposed);
        if (!strcmp(r->stop, "context"))
                say(&talk, "context full (%d tokens); --context-shift goes on with half of them\n",
                    r->ctx);
        if (r->shifts)
                say(&talk, "context of %d tokens shifted %d time%s\n", r->ctx, r->shifts,
                    r->shifts == 1 ? "" : "s");
        if (opt_num(r->a, O_TEMP) > 0 && opt_int(r->a, O_SEED) < 0)
                say(&talk, "seed %llu\n", (unsigned long long)seed);
        return out_done(e);
}

/* Each prompt is what it would be alone: with the cache empty and the same seed. */
int gen_begin(Gen *r, const Prompt *p)
{
        r->n = 0;
        r->n_hold = r->own = 0;
        r->n_drawn = 0;
        r->shifts = 0;
        r->stop = NULL;
        r->at = (TokStream) { 0 };
        for (int i = 0; i < p->n; i++) {
                int code = add_id(r, p->ids[i]);
                if (code)
                        return code;
        }
        r->n_prompt = r->n;
        return TGC_OK;
}

void gen_free(Gen *r)
{
        free(r->ids);
        free(r->hold);
        free(r->drawn);
}

/* A cache without pages holds one text: several wait for each other. */
static void say_in_turn(const Gen *r)
{
        Progress talk = progress_new(r->a);
        if (r->of > 1)
                say(&talk,
                    "%s was compiled for one sequence, so these %d go one after the other; compile "
                    "with --mode infer --batch-size %d, and they decode together\n",
                    r->a->pos[0], r->of, r->of < TGC_MAX_BATCH ? r->of : TGC_MAX_BATCH);
}

static int run_one(Gen *r, const Prompt *p, Session *s, const Sampling *how, Clock *c, Err *e)
{
        int code = gen_begin(r, p);
        if (!code)
                code = generate(r, s, how, c, e);
        if (!code)
                return gen_report(r, c, s, how->seed, e);
        if (code == TGC_NON_FINITE) /* what was said before it stands */
                gen_report(r, c, s, how->seed, NULL);
        return code;
}

/* Sequences that the first calls decode, of n: their kernels are wanted at once. */
static int rows_of(const Plan *p, int n)
{
        char most[32] = "1";
        manifest_word(p, "batch", most, sizeof most);
        return n < atoi(most) ? n : atoi(most);
}

static int run(Gen *r, const Loaded *l, double start, Prompts *p, Err *e)
{
        const Args *a = r->a;
        uint64_t seed = pick_seed(a);
        SamplingOptions how = { 0 };
        GrammarUse grammar = { 0 };
        uint64_t weights = a->v[O_SEED].i >= 0 ? seed : WEIGHTS_SEED; /* not by the clock */
        Session *s;
        Clock c = { 0 };
        char vocab[32] = "0";
        int code;
        manifest_word(&l->plan, "vocab", vocab, sizeof vocab);
        for (int i = 0; i < a->v[O_STOP].n; i++)
                if (!*a->v[O_STOP].list[i] || !r->tok)
                        return err_set(e, TGC_USAGE, "run: --stop: %s",
                                       r->tok ? "the text is empty"
                                              : "the model has no tokenizer, so it says no text");
        if (opt_flag(a, O_IGNORE_EOS) && !r->tok)
                return err_set(
                        e, TGC_USAGE,
                        "run: --ignore-eos has no effect: %s has no tokenizer, so no token ends a "
                        "text",
                        a->pos[0]);
        const double before = clock_s();
        const int parallel = opt_int(a, O_PARALLEL);
        code = r->answers ? messages_prompt(a, &l->plan, r->tok, atoi(vocab), p, &r->end_of_turn, e)
                          : prompts_read(p, a, &l->plan, r->tok, atoi(vocab), e);
        if (code)
                return code;
        start += clock_s() - before; /* who types it may take his time */
        r->of = p->n * parallel;
        if ((code = open_session(&s, &l->plan, a, SESSION_INFER, weights,
                                 opt_set(a, O_DRAFT) ? "prefill prefill_long decode score"
                                                     : "prefill prefill_long decode mixed",
                                 rows_of(&l->plan, r->of), e)))
                return code;
        say_random(a, l);
        c.load = clock_s() - start;
        signals_defer();
        code = check_lengths(r, s, p, e);
        if (!code)
                code = sampling_read(&how, a, r->tok, session_manifest(s)->vocab, seed, e);
        if (!code)
                code = grammar_begin(&grammar, a, r->tok, session_manifest(s)->vocab, e);
        r->grammar.use = &grammar;
        if (grammar.grammar) {
                how.s.mask = grammar_mask;
                how.s.mask_user = &r->grammar;
        }
        r->session = s;
        r->draft.most = opt_set(a, O_DRAFT) ? opt_int(a, O_DRAFT_MAX) : 0;
        if (!code && session_manifest(s)->pages && (r->of > 1 || session_manifest(s)->n_adapters)) {
                code = run_together(r, s, p, parallel, &how.s, &c, e);
        } else if (!code) {
                if (!session_manifest(s)->pages)
                        say_in_turn(r);
                for (; r->which < r->of && !code && !signal_seen(); r->which++) {
                        how.s.seed = seed + (uint64_t)(r->which % parallel);
                        code = run_one(r, &p->prompt[r->which / parallel], s, &how.s, &c, e);
                }
        }
        session_close(s);
        sampling_free(&how);
        grammar_text_end(&r->grammar);
        grammar_end(&grammar);
        return code ? code : signal_seen() ? 128 + signal_seen() : TGC_OK;
}

int cmd_run(const Args *a, Err *e)
{
        Loaded l;
        Prompts p = { 0 };
        double start = clock_s();
        int code = load(&l, a, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        Gen r = { .a = a,
                  .plan = &l.plan,
                  .tok = l.tok,
                  .e = e,
                  .answers = opt_str(a, O_MESSAGES) != NULL,
                  .end_of_turn = -1,
                  .text = l.tok && !opt_flag(a, O_JSON) && !opt_flag(a, O_PRINT_IDS) };
        code = run(&r, &l, start, &p, e);
        prompts_free(&p);
        gen_free(&r);
        loaded_free(&l);
        return code;
}
