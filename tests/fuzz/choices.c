/* choices.c: tiles that were chosen, `tgc tune`'s text */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../codegen/forms/forms.h"

FUZZ(choices)
{
        char *text = text_of_bytes(data, n);
        Arena *a = arena_new();
        Choices *c = choices_read(a, text, "fuzz"), *d;
        Text out = { 0 }, again = { 0 };

        for (int i = 0; i < c->n; i++)
                c->choice[i].used = true;
        if (!c->wrong) { /* what is kept in a plan is read again */
                HOLDS(choices_used(c, &out) == c->n);
                d = choices_read(a, out.s, "again");
                HOLDS(!d->wrong && d->n == c->n);
                for (int i = 0; i < d->n; i++)
                        d->choice[i].used = true;
                choices_used(d, &again);
                HOLDS(again.n == out.n && !memcmp(again.s, out.s, out.n));
        }
        text_free(&out);
        text_free(&again);
        arena_free(a);
        free(text);
}
