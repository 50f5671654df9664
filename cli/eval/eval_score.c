/* eval_score.c: see eval_score.h. */
#include "eval_score.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../../runtime/util/c_locale.h"

int eval_score_parse(EvalScore *s, const char *typed, Err *e)
{
        int most = 1;
        *s = (EvalScore) { 0 };
        for (const char *c = typed; *c; c++)
                most += *c == ',';
        s->text = strdup(typed);
        s->word = calloc((size_t)most, sizeof *s->word);
        if (!s->text || !s->word)
                return err_set(e, TGC_NO_MEMORY, "no memory for --eval_score");
        for (char *at = s->text, *next; at; at = next) {
                char *equals, *end;
                if ((next = strchr(at, ',')))
                        *next++ = 0;
                at += strspn(at, " ");
                equals = strrchr(at, '=');
                const double weight = equals ? c_strtod(equals + 1, &end) : 0;
                if (!equals || equals == at || end == equals + 1 || *end || !isfinite(weight))
                        return err_set(e, TGC_USAGE,
                                       "--eval_score: '%.60s': give WORD=WEIGHT,..., as "
                                       "'obviously=1,sigh=2'",
                                       at);
                *equals = 0;
                s->word[s->n].word = at;
                s->word[s->n++].weight = weight;
        }
        return TGC_OK;
}

void eval_score_free(EvalScore *s)
{
        free(s->text);
        free(s->word);
        *s = (EvalScore) { 0 };
}

double eval_score(const EvalScore *s, const char *text, size_t n)
{
        double sum = 0;
        for (int i = 0; i < s->n; i++) {
                const size_t k = strlen(s->word[i].word);
                for (size_t at = 0; at + k <= n;) {
                        const bool there = !strncasecmp(text + at, s->word[i].word, k);
                        sum += there ? s->word[i].weight : 0;
                        at += there ? k : 1;
                }
        }
        return sum;
}
