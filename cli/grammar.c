/* grammar.c: --grammar and --json-schema: what may be said is masked, token by token. */
#include <stdlib.h>
#include <string.h>
#include "../runtime/util/file.h"
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
                return err_set(e, TGC_USAGE, "run: --grammar and --json-schema: one of them");
        if (!tok)
                return err_set(e, TGC_USAGE, "run: %s is of text, and the model has no tokenizer",
                               option);
        if (opt_flag(a, O_IGNORE_EOS))
                return err_set(e, TGC_USAGE, "run: --ignore-eos and %s: the text must end", option);
        int code = file_read_text(path, GR_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        code = gbnf ? grammar_gbnf(&u->grammar, text, n, path, e)
                    : grammar_schema(&u->grammar, text, n, path, e);
        free(text);
        if (!code)
                code = token_trie_new(&u->trie, tok, vocab, e);
        return code ? code : matcher_new(&u->matcher, u->grammar, u->trie, e);
}

void grammar_end(GrammarUse *u)
{
        matcher_free(u->matcher);
        token_trie_free(u->trie);
        grammar_free(u->grammar);
}

const uint32_t *grammar_mask(void *user, int sequence, int token)
{
        GrammarUse *u = user;
        (void)sequence;
        if (token < 0)
                matcher_reset(u->matcher);
        else if (!matcher_token(u->matcher, token))
                return NULL;
        const uint32_t *bits = matcher_mask(u->matcher);
        return bits && matcher_some(u->matcher) ? bits : NULL;
}
