/* tok_split.c: pre-tokenisers, which split a text into pieces.  No merge crosses a piece's border.
 *
 * A step maps pieces to pieces.  Every way of splitting is a pattern and what becomes of its
 * matches; tok_json_split.c holds the table. */
#include <limits.h>
#include "tok.h"

/* An empty piece vanishes. */
static void put_piece(Pieces *p, size_t from, size_t to)
{
        if (to <= from)
                return;
        ints_put(&p->at, (int)from);
        ints_put(&p->at, (int)to);
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

/* Cut s[base] .. s[base + n]; a piece is a stretch of it. */
static int cut_piece(const Split *step, Scan *s, const char *text, size_t base, size_t n,
                     Pieces *out, Err *e)
{
        size_t at = 0, from, to, begun = 0; /* the piece at hand is begun .. at */
        bool was_match = false;
        int more;

        scan_text(s, text + base, n);
        do {
                if ((more = scan_next(s, &from, &to, e)) < 0)
                        return e ? e->code : TGC_FAIL;
                if (!more)
                        from = to = n;
                /* the gap, then the match */
                for (int match = from == at; match <= more; match++) {
                        bool is = match != step->invert;
                        size_t end = match ? to : from;
                        if (at > begun && !joins(step->cut, is, was_match)) {
                                put_piece(out, base + begun, base + at);
                                begun = at;
                        }
                        if (is && step->cut == CUT_REMOVED)
                                begun = end;
                        at = end;
                        was_match = is;
                }
        } while (more);
        put_piece(out, base + begun, base + at);
        return TGC_OK;
}

void put_byte_level(const char *text, size_t n, Buf *out)
{
        char s[4];

        for (size_t i = 0; i < n; i++)
                buf_put(out, s, utf8_put(s, byte_level_cp((unsigned char)text[i])));
}

static void put_prefixed(const Split *step, const char *text, size_t n, bool here, Buf *out)
{
        size_t k = strlen(step->with);

        if (here && (n < k || memcmp(text, step->with, k)))
                buf_put(out, step->with, k);
        buf_put(out, text, n);
}

/* Cut in's pieces; the text stays. */
static int cut(const Split *step, Pieces *in, Pieces *out, Err *e)
{
        int rc;
        Scan s;

        if ((rc = scan_open(&s, &step->pattern, e)) != TGC_OK)
                return rc;
        for (size_t i = 0; i < in->at.n && rc == TGC_OK; i += 2) {
                size_t from = (size_t)in->at.p[i];
                rc = cut_piece(step, &s, in->s, from, (size_t)in->at.p[i + 1] - from, out, e);
        }
        scan_close(&s);
        Buf swap = out->text; /* which s may be of */
        out->text = in->text;
        in->text = swap;
        out->s = in->s;
        out->from_start = in->from_start && out->at.n && out->at.p[0] == in->at.p[0];
        return rc;
}

/* Write in's pieces, changed. */
static int rewrite(const Split *step, const Pieces *in, Pieces *out, Err *e)
{
        int rc = TGC_OK;

        out->text.n = 0;
        for (size_t i = 0; i < in->at.n && rc == TGC_OK; i += 2) {
                const char *text = in->s + in->at.p[i];
                size_t n = (size_t)(in->at.p[i + 1] - in->at.p[i]), begun = out->text.n;

                switch (step->op) {
                case SPLIT_PREFIX:
                        put_prefixed(step, text, n,
                                     step->when == PREFIX_ALWAYS || (in->from_start && i == 0),
                                     &out->text);
                        break;
                case SPLIT_REPLACE:
                        rc = pattern_replace(&step->pattern, text, n, step->with,
                                             strlen(step->with), &out->text, e);
                        break;
                default: put_byte_level(text, n, &out->text);
                }
                if (out->text.n > INT_MAX - TOK_MAX_FILE)
                        rc = err_set(e, TGC_FAIL, "tokenizer: the text grows beyond %d bytes",
                                     INT_MAX - TOK_MAX_FILE);
                put_piece(out, begun, out->text.n);
        }
        out->s = out->text.p;
        out->from_start = in->from_start;
        return rc;
}

int split_text(const Split *step, int n_step, const char *text, size_t n, bool at_start,
               Pieces *out, Err *e)
{
        Pieces other = { 0 };
        int rc = TGC_OK;

        out->at.n = 0;
        out->s = text;
        out->from_start = at_start;
        put_piece(out, 0, n);
        for (int i = 0; i < n_step && rc == TGC_OK; i++) {
                Pieces swap = other;
                other = *out;
                *out = swap;
                out->at.n = 0;
                rc = step[i].op == SPLIT_PATTERN ? cut(&step[i], &other, out, e)
                                                 : rewrite(&step[i], &other, out, e);
                if (other.text.bad || other.at.bad || out->text.bad || out->at.bad)
                        rc = tok_no_memory(e);
        }
        pieces_free(&other);
        return rc != TGC_OK ? rc : out->text.bad || out->at.bad ? tok_no_memory(e) : TGC_OK;
}

void pieces_free(Pieces *p)
{
        buf_free(&p->text);
        ints_free(&p->at);
}

void split_free(Split *s)
{
        pattern_free(&s->pattern);
        *s = (Split) { 0 };
}
