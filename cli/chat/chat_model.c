/* chat_model.c: a model that answers a conversation.
 *
 * Each answer renders the whole conversation anew.  The longest beginning that its ids share with
 * the cache is not computed again. */
#include <stdlib.h>
#include <string.h>
#include "chat.h"
#include "../run/run.h"
#include "../run/stop_text.h"

int chat_model_open(ChatModel *m, const Args *a, int which, uint64_t seed, Err *e)
{
        *m = (ChatModel) { .a = a, .own = *a, .name = a->pos[which], .end_of_turn = -1 };
        m->own.pos = a->pos + which;
        m->own.n_pos = 1;
        uint64_t weights = a->v[O_SEED].i >= 0 ? seed : WEIGHTS_SEED;
        int code = load(&m->l, &m->own, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        if (!m->l.tok)
                return err_set(e, TGC_USAGE,
                               "chat: %s has no tokenizer; --tokenizer FILE gives one", m->name);
        code = chat_open(&m->chat, a, plan_find(&m->l.plan, "chat"), m->name, e);
        if (!code)
                code = open_session(&m->s, &m->l.plan, &m->own, SESSION_INFER, weights,
                                    "prefill prefill_long decode", 1, e);
        if (code)
                return code;
        const int asked = opt_int(a, O_CTX);
        m->ctx = session_manifest(m->s)->ctx;
        m->vocab = session_manifest(m->s)->vocab;
        if (asked > m->ctx)
                return err_set(e, TGC_USAGE, "--ctx-size %d: %s was compiled for %d", asked,
                               m->name, m->ctx);
        m->ctx = asked ? asked : m->ctx;
        m->end_of_turn = chat_end_of_turn(&m->chat, m->l.tok);
        say_random(&m->own, &m->l);
        for (int i = 0; i < a->v[O_STOP].n; i++)
                if (!*a->v[O_STOP].list[i])
                        return err_set(e, TGC_USAGE, "chat: --stop: the text is empty");
        if ((code = sampling_read(&m->how, a, m->l.tok, m->vocab, seed, e)) ||
            (code = grammar_begin(&m->grammar, a, m->l.tok, m->vocab, e)))
                return code;
        m->text.use = &m->grammar;
        if (m->grammar.grammar) {
                m->how.s.mask = grammar_mask;
                m->how.s.mask_user = &m->text;
        }
        return TGC_OK;
}

void chat_model_close(ChatModel *m)
{
        session_close(m->s);
        chat_close(&m->chat);
        sampling_free(&m->how);
        grammar_text_end(&m->text);
        grammar_end(&m->grammar);
        free(m->said);
        loaded_free(&m->l);
        free(m->ids);
        free(m->answer);
        *m = (ChatModel) { 0 };
}

/* ---- an answer ---- */

typedef struct Answer {
        ChatModel *m;
        ChatPut *put;
        void *to;
        TokStream at;
        size_t shown;
        Err *e;
        int code;
} Answer;

static int add_text(ChatModel *m, const char *s, size_t n, Err *e)
{
        if (m->n_answer + n + 1 > m->cap_answer) {
                size_t cap = (m->n_answer + n) * 2 + 256;
                char *p = realloc(m->answer, cap);
                if (!p)
                        return err_set(e, TGC_NO_MEMORY, "no memory for the answer");
                m->answer = p;
                m->cap_answer = cap;
        }
        if (n)
                memcpy(m->answer + m->n_answer, s, n);
        m->answer[m->n_answer += n] = 0;
        return TGC_OK;
}

static int add_said(ChatModel *m, int token, Err *e)
{
        if (m->n_said == m->cap_said) {
                const int cap = m->cap_said * 2 + 256;
                int *p = realloc(m->said, (size_t)cap * sizeof *p);
                if (!p)
                        return err_set(e, TGC_NO_MEMORY, "no memory for the answer");
                m->said = p;
                m->cap_said = cap;
        }
        m->said[m->n_said++] = token;
        return TGC_OK;
}

/* How much of the text may be shown, with --stop; the text ends where one stands. */
static size_t cut_at_stop(ChatModel *m, size_t ready)
{
        const OptionValue *stop = &m->a->v[O_STOP];
        const size_t at = stop_find(stop->list, stop->n, m->answer, m->n_answer);
        if (at != STOP_NONE) {
                m->stop = "stop";
                m->answer[m->n_answer = at] = 0;
                return at;
        }
        const size_t most = m->n_answer - stop_begun(stop->list, stop->n, m->answer, m->n_answer);
        return ready < most ? ready : most;
}

static void show(Answer *x, size_t upto)
{
        ChatModel *m = x->m;
        if (x->put && upto > x->shown)
                x->put(x->to, m->answer + x->shown, upto - x->shown);
        x->shown = upto;
}

static int on_token(void *user, int i, const int *token, int B)
{
        Answer *x = user;
        ChatModel *m = x->m;
        size_t n;
        (void)i, (void)B;
        if (m->n < m->cap)
                m->ids[m->n++] = *token;
        if (!opt_flag(m->a, O_IGNORE_EOS) &&
            (tokenizer_is_eos(m->l.tok, *token) || *token == m->end_of_turn)) {
                m->stop = "eos";
                return 1;
        }
        if ((x->code = add_said(m, *token, x->e)))
                return 1;
        const char *s = tokenizer_next(m->l.tok, &x->at, *token, &n);
        if ((x->code = add_text(m, s, n, x->e)))
                return 1;
        show(x,
             cut_at_stop(m, x->shown + utf8_ready(m->answer + x->shown, m->n_answer - x->shown)));
        if (signal_seen())
                m->stop = "signal";
        return m->stop != NULL;
}

/* The ids as the next prompt: what the cache has of them stays. */
static int feed(ChatModel *m, int *ids, int n, Err *e)
{
        int k = 0, code;
        while (k < n && k < m->n && ids[k] == m->ids[k])
                k++;
        if (k > session_pos(m->s))
                k = session_pos(m->s);
        m->n_kept = k;
        m->n_prompt = n;
        double t = clock_s();
        if (!(code = session_truncate(m->s, k, e)) && k < n)
                code = session_prefill(m->s, ids + k, 1, n - k, e);
        if (!code)
                code = session_sync(m->s, e);
        m->prompt_s = clock_s() - t;
        free(m->ids);
        m->ids = ids;
        m->n = n;
        m->cap = n;
        int *more = code ? NULL : realloc(ids, ((size_t)m->ctx + 1) * sizeof *ids);
        if (more) {
                m->ids = more;
                m->cap = m->ctx + 1;
        }
        return code || more ? code : err_set(e, TGC_NO_MEMORY, "no memory for ids");
}

/* Ids in the cache are those of the session. */
static int shift(ChatModel *m, int keep, Err *e)
{
        int gone, code = session_shift(m->s, keep, &gone, e);
        if (code)
                return code;
        m->n -= gone;
        memmove(m->ids + keep, m->ids + keep + gone, (size_t)(m->n - keep) * sizeof *m->ids);
        m->shifts++;
        m->text.goes_on = true;
        m->text.last = m->ids[m->n - 1];
        return TGC_OK;
}

static int say_answer(ChatModel *m, int keep, Answer *x, Err *e)
{
        const int most = opt_int(m->a, O_CHAT_PREDICT);
        bool fills = false;
        double t = clock_s();
        int code = TGC_OK;
        while (!code && !x->code && !m->stop) {
                const int room = m->ctx - m->n + 1, left = most < 0 ? room + 1 : most - m->n_said;
                if (!left)
                        break;
                fills = left > room;
                code = session_decode(m->s, &m->how.s, fills ? room : left, on_token, x, e);
                if (!fills || code || x->code || m->stop || !opt_flag(m->a, O_CONTEXT_SHIFT))
                        break;
                code = shift(m, keep, e);
        }
        grammar_text_end(&m->text);
        m->text.goes_on = false;
        m->answer_s = clock_s() - t;
        if (!m->stop)
                m->stop = fills ? "context" : "length";
        show(x, m->n_answer);
        return code ? code : x->code;
}

/* A conversation that is longer than the context loses the older half of what --keep does not hold,
 * until it fits. */
static int fit(ChatModel *m, int *ids, int *n, int *keep, Err *e)
{
        int code = shift_keeps(m->a, m->l.tok, ids, *n, m->ctx, keep, e);
        if (code || *n <= m->ctx)
                return code;
        if (!opt_flag(m->a, O_CONTEXT_SHIFT))
                return err_set(e, TGC_USAGE,
                               "the conversation has %d tokens, the context of %s is %d: /undo and "
                               "/reset make room, --context-shift drops its older half, a larger "
                               "--ctx-size at compilation makes more",
                               *n, m->name, m->ctx);
        for (; *n > m->ctx; m->shifts++) {
                const int gone = (*n - *keep) / 2;
                *n -= gone;
                memmove(ids + *keep, ids + *keep + gone, (size_t)(*n - *keep) * sizeof *ids);
        }
        return TGC_OK;
}

int chat_answer(ChatModel *m, const char *messages, size_t n, ChatPut *put, void *to, Err *e)
{
        JsonText in;
        Json talk;
        int *ids, k, keep, code = json_open(&in, &talk, messages, n, "the conversation", true, e);
        if (code)
                return code;
        code = chat_ids(&m->chat, &m->own, talk, m->l.tok, m->vocab, &ids, &k, e);
        json_close(&in);
        if (code)
                return code;
        m->shifts = 0;
        if ((code = fit(m, ids, &k, &keep, e))) {
                free(ids);
                return code;
        }
        m->n_answer = 0;
        m->n_said = 0;
        m->stop = NULL;
        Answer x = { .m = m, .put = put, .to = to, .e = e };
        if ((code = add_text(m, "", 0, e))) {
                free(ids);
                return code;
        }
        signals_defer();
        if (!(code = feed(m, ids, k, e)))
                code = say_answer(m, keep, &x, e);
        m->all_prompt += m->n_prompt - m->n_kept;
        m->all_prompt_s += m->prompt_s;
        m->all_said += m->n_said;
        m->all_answer_s += m->answer_s;
        return code;
}
