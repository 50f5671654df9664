/* show_data.c: tgc train --show_data: prints the first training rows.  Targets are green on a
 * terminal, in [[brackets]] elsewhere. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../train/train.h"

typedef struct Show {
        const Tokenizer *tok;
        bool color;
        char *text; /* of one run of tokens that all count, or do not */
        size_t n;
        FILE *f;
        TokStream at;
} Show;

static void flush(Show *s, bool counted)
{
        fflush(s->f);
        if (!s->n)
                return;
        fputs(!counted ? "" : s->color ? "\033[32m" : "[[", stdout);
        put_plain(stdout, s->text, s->n);
        fputs(!counted ? "" : s->color ? "\033[0m" : "]]", stdout);
        rewind(s->f);
        fflush(s->f);
        s->n = 0;
}

static void put_token(Show *s, int id)
{
        size_t n = 0;
        const char *p = NULL;
        if (!s->tok)
                fprintf(s->f, "%d ", id);
        else if (tokenizer_is_special(s->tok, id))
                p = tokenizer_piece(s->tok, id, &n);
        else
                p = tokenizer_next(s->tok, &s->at, id, &n);
        if (p)
                fwrite(p, 1, n, s->f);
}

/* Tokens from..upto of a row, and the last one's target. */
static void show_part(Show *s, const int *x, const int *y, int from, int upto)
{
        bool was = false;
        s->at = (TokStream) { 0 };
        put_token(s, x[from]);
        for (int t = from; t < upto; t++) {
                const bool counts = y[t] >= 0;
                if (t + 1 == upto && !counts)
                        break;
                if (counts != was)
                        flush(s, was);
                was = counts;
                put_token(s, t + 1 < upto ? x[t + 1] : y[t]);
        }
        flush(s, was);
        putchar('\n');
}

static void show_row(Show *s, const Train *t, int row, int n)
{
        const int *x = t->x + (size_t)row * (size_t)t->T, *y = t->y + (size_t)row * (size_t)t->T;
        int end = t->T;
        /* what fills the row up */
        while (t->records && end > 1 && y[end - 1] < 0 && x[end - 1] == t->train.pad)
                end--;
        for (int from = 0, upto; from < end; from = upto) {
                int counted = 0;
                upto = t->d ? t->d[2 * (row * t->T + from) + 1] : end;
                upto = upto < end ? upto : end;
                for (int k = from; k < upto; k++)
                        counted += y[k] >= 0;
                if (!counted)
                        continue;
                printf("--- row %d, tokens %d to %d, %d count\n", n, from, upto, counted);
                show_part(s, x, y, from, upto);
        }
}

int data_show(Train *t, Err *e)
{
        const char *no = getenv("NO_COLOR");
        Show s = { .tok = t->l.tok, .color = isatty(1) && !(no && *no) };
        if (!(s.f = open_memstream(&s.text, &s.n)))
                return err_set(e, TGC_NO_MEMORY, "no memory for what is shown");
        for (int row = 0, n = opt_int(t->a, O_SHOW_DATA); row < n; row++) {
                /* as batches of one micro-step have them */
                if (row % t->B == 0)
                        windows_fill(&t->train, row / t->B / t->n_micro, row / t->B % t->n_micro,
                                     t->n_micro, t->B, t->x, t->y, t->d);
                if (row)
                        putchar(10);
                show_row(&s, t, row % t->B, row);
        }
        fclose(s.f);
        free(s.text);
        return out_done(e);
}
