/* tok_split.c: pre-tokenisers, which cut a text into the pieces merges stay within.
 *
 * A step reads pieces and writes pieces.  All the ways of cutting are one, a
 * pattern and what becomes of its matches; tok_json.c holds the table. */
#include <limits.h>
#include "tok.h"

/* The piece being written ends here; an empty one vanishes. */
static void end_piece(Pieces *p)
{
        if (p->text.n > (p->end.n ? (size_t)p->end.p[p->end.n - 1] : 0))
                ints_put(&p->end, (int)p->text.n);
}

/* Whether a part, a match or the gap between two, goes on with the part before it. */
static bool joins(int cut, bool match, bool was_match)
{
        switch (cut) {
        case CUT_CONTIGUOUS: return match == was_match;
        case CUT_WITH_PREVIOUS: return match && !was_match;
        case CUT_WITH_NEXT: return !match && was_match;
        default: return false;
        }
}

static int cut_piece(const Split *step, Scan *s, const char *text, size_t n, Pieces *out, Err *e)
{
        bool first = true, was_match = false;
        size_t at = 0, from, to;
        int more;

        scan_text(s, text, n);
        do {
                if ((more = scan_next(s, &from, &to, e)) < 0)
                        return e ? e->code : TGC_FAIL;
                if (!more)
                        from = to = n;
                /* the gap, then the match */
                for (int match = from == at; match <= more; match++) {
                        bool is = match != step->invert;
                        if (first || !joins(step->cut, is, was_match))
                                end_piece(out);
                        if (!(is && step->cut == CUT_REMOVED))
                                buf_put(&out->text, text + (match ? from : at),
                                        match ? to - from : from - at);
                        first = false;
                        was_match = is;
                }
                at = to;
        } while (more);
        end_piece(out);
        return TGC_OK;
}

static void put_bytes(const char *text, size_t n, Pieces *out)
{
        char s[4];

        for (size_t i = 0; i < n; i++)
                buf_put(&out->text, s, utf8_put(s, byte_level_cp((unsigned char)text[i])));
        end_piece(out);
}

static void put_prefixed(const Split *step, const char *text, size_t n, bool here, Pieces *out)
{
        size_t k = strlen(step->with);

        if (here && (n < k || memcmp(text, step->with, k)))
                buf_put(&out->text, step->with, k);
        buf_put(&out->text, text, n);
        end_piece(out);
}

/* in's pieces through one step to out, which is empty. */
static int apply(const Split *step, const Pieces *in, bool at_start, Pieces *out, Err *e)
{
        int rc = TGC_OK;
        size_t at = 0;
        Scan s;

        if (step->op == SPLIT_PATTERN && (rc = scan_open(&s, &step->pattern, e)) != TGC_OK)
                return rc;
        for (size_t i = 0; i < in->end.n && rc == TGC_OK; i++) {
                const char *text = in->text.p + at;
                size_t n = (size_t)in->end.p[i] - at;

                switch (step->op) {
                case SPLIT_PATTERN: rc = cut_piece(step, &s, text, n, out, e); break;
                case SPLIT_PREFIX:
                        put_prefixed(step, text, n,
                                     step->when == PREFIX_ALWAYS || (at_start && i == 0), out);
                        break;
                case SPLIT_REPLACE:
                        rc = pattern_replace(&step->pattern, text, n, step->with,
                                             strlen(step->with), &out->text, e);
                        end_piece(out);
                        break;
                default: put_bytes(text, n, out);
                }
                if (out->text.n > INT_MAX - TOK_MAX_FILE)
                        rc = err_set(e, TGC_FAIL, "tokenizer: the text grows beyond %d bytes",
                                     INT_MAX - TOK_MAX_FILE);
                at += n;
        }
        if (step->op == SPLIT_PATTERN)
                scan_close(&s);
        return rc;
}

int split_text(const Split *step, int n_step, const char *text, size_t n, bool at_start,
               Pieces *out, Err *e)
{
        Pieces other = { 0 };
        int rc = TGC_OK;

        out->text.n = out->end.n = 0;
        buf_put(&out->text, text, n);
        end_piece(out);
        for (int i = 0; i < n_step && rc == TGC_OK; i++) {
                Pieces swap = other;
                other = *out;
                *out = swap;
                out->text.n = out->end.n = 0;
                rc = apply(&step[i], &other, at_start, out, e);
                if (other.text.bad || other.end.bad)
                        rc = tok_no_memory(e);
        }
        pieces_free(&other);
        return rc != TGC_OK ? rc : out->text.bad || out->end.bad ? tok_no_memory(e) : TGC_OK;
}

void pieces_free(Pieces *p)
{
        buf_free(&p->text);
        ints_free(&p->end);
}

void split_free(Split *s)
{
        pattern_free(&s->pattern);
        *s = (Split) { 0 };
}
