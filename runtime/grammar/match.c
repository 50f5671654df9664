/* match.c: matches a growing text with a grammar, byte by byte or token by token (rules.h).
 * match_state.c makes its states, match_mask.c the masks of tokens that may come next. */
#include <stdlib.h>
#include "match_impl.h"

bool matcher_bytes(Matcher *m, const char *p, size_t n)
{
        int s = m->at;
        for (size_t i = 0; i < n && s >= 0; i++) {
                s = match_step(m, s, (unsigned char)p[i]);
                if (s >= 0 && (m->n_state > 2 * MAX_STATES || m->n_stack > MAX_STACKS)) {
                        m->at = s;
                        match_forget(m);
                        s = m->at;
                }
        }
        if (s >= 0)
                m->at = s;
        return s >= 0;
}

bool matcher_complete(const Matcher *m) { return m->at >= 0 && m->state[m->at].complete; }

bool matcher_token(Matcher *m, int token)
{
        for (int i = 0; i < m->t->n_eos; i++)
                if (m->t->eos[i] == token)
                        return matcher_complete(m);
        if (token < 0 || token >= m->t->vocab || m->t->at[token + 1] == m->t->at[token])
                return false;
        return matcher_bytes(m, m->t->bytes + m->t->at[token],
                             m->t->at[token + 1] - m->t->at[token]);
}

void matcher_reset(Matcher *m)
{
        match_begin(m);
        for (int k = m->g->root;; k++) {
                match_add_place(m, k, 0);
                while (!match_ends(&m->g->elem[k]))
                        k++;
                if (m->g->elem[k].kind == ELEM_END)
                        break;
        }
        m->at = match_make_state(m);
        m->no_memory |= m->at < 0;
}

int matcher_new(Matcher **out, const Grammar *g, const TokenTrie *t, Err *e)
{
        Matcher *m = calloc(1, sizeof *m);
        *out = NULL;
        if (m) {
                m->g = g;
                m->t = t;
                m->more = calloc(t ? match_words(m) + 1 : 1, sizeof *m->more);
                m->path = calloc(t ? (size_t)t->deepest + 1 : 1, sizeof *m->path);
                m->path_next = calloc(t ? (size_t)t->deepest + 1 : 1, sizeof *m->path_next);
                if (match_grow(m, &m->stack, &m->cap_stack, 16, sizeof *m->stack))
                        m->stack[m->n_stack++] = (Stack) { 0 };
        }
        if (!m || !m->more || !m->path || !m->path_next || m->no_memory ||
            (matcher_reset(m), m->no_memory)) {
                matcher_free(m);
                return err_set(e, TGC_NO_MEMORY, "no memory for a grammar");
        }
        *out = m;
        return TGC_OK;
}

void matcher_free(Matcher *m)
{
        if (!m)
                return;
        match_free_states(m);
        free(m->state);
        free(m->base);
        free(m->bases.slot);
        free(m->group);
        free(m->more);
        free(m->stack);
        free(m->stacks.slot);
        free(m->states.slot);
        free(m->place);
        free(m->seen);
        free(m->path);
        free(m->path_next);
        free(m);
}
