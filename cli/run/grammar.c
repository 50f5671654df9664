/* grammar.c: --grammar and --json-schema: masks, token by token, what the grammar forbids. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "sampling.h"

int grammar_begin(GrammarUse *u, const Args *a, const Tokenizer *tok, int vocab, Err *e)
{
        const char *gbnf = opt_str(a, O_GRAMMAR), *schema = opt_str(a, O_JSON_SCHEMA),
                   *path = gbnf ? gbnf : schema;
        const char *option = gbnf ? "--grammar" : "--json-schema";
        char *text;
        size_t n;
        *u = (GrammarUse) { 0 };
        if (!path)
                return TGC_OK;
        if (gbnf && schema)
                return err_set(e, TGC_USAGE, "%s: --grammar and --json-schema: one of them",
                               command_info[a->cmd].name);
        if (!tok)
                return err_set(e, TGC_USAGE,
                               "%s: %s needs a tokenizer, and the model has none; "
                               "--tokenizer FILE gives one",
                               command_info[a->cmd].name, option);
        if (opt_flag(a, O_IGNORE_EOS))
                return err_set(e, TGC_USAGE,
                               "%s: --ignore-eos cannot be used with %s: the "
                               "grammar must be able to end the text",
                               command_info[a->cmd].name, option);
        int code = file_read_text(path, GR_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        code = gbnf ? grammar_gbnf(&u->grammar, text, n, path, e)
                    : grammar_schema(&u->grammar, text, n, path, e);
        free(text);
        return code ? code : token_trie_new(&u->trie, tok, vocab, e);
}

void grammar_end(GrammarUse *u)
{
        while (u->n_spare)
                matcher_free(u->spare[--u->n_spare]);
        free(u->spare);
        token_trie_free(u->trie);
        grammar_free(u->grammar);
}

void grammar_text_end(GrammarText *t)
{
        GrammarUse *u = t->use;
        if (!t->matcher)
                return;
        if (u->n_spare == u->cap_spare) {
                const int cap = u->cap_spare ? 2 * u->cap_spare : 8;
                Matcher **p = realloc(u->spare, (size_t)cap * sizeof *p);
                if (p) {
                        u->spare = p;
                        u->cap_spare = cap;
                }
        }
        if (u->n_spare < u->cap_spare)
                u->spare[u->n_spare++] = t->matcher;
        else
                matcher_free(t->matcher);
        t->matcher = NULL;
}

const uint32_t *grammar_mask(void *user, int sequence, int token)
{
        GrammarText *t = user;
        GrammarUse *u = t->use;
        (void)sequence;
        if (token < 0 && t->goes_on)
                token = t->last;
        t->goes_on = false;
        if (!t->matcher && u->n_spare)
                t->matcher = u->spare[--u->n_spare];
        else if (!t->matcher && matcher_new(&t->matcher, u->grammar, u->trie, NULL))
                return NULL;
        if (token < 0)
                matcher_reset(t->matcher);
        else if (!matcher_token(t->matcher, token))
                return NULL;
        const uint32_t *bits = matcher_mask(t->matcher);
        return bits && matcher_some(t->matcher) ? bits : NULL;
}
