/* tok_pattern.c: literal strings, sets of characters and regular expressions of tokenizer files.
 *
 * Hugging Face runs these on Oniguruma, in Ruby's dialect; tgc runs PCRE2.  The few constructs that
 * the dialects read differently are translated or refused.  The two also know different versions of
 * Unicode.  So each character that is too young is replaced, for matching, by one of the same class
 * and length in bytes. */
#include "tok.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MAX_REGEX 65536        /* bytes of one pattern                         */
#define MATCH_LIMIT 10000000u  /* backtracking steps of one match              */
#define HEAP_LIMIT (64u << 10) /* KiB of backtracking memory of one match      */

/* \s and \w as Oniguruma has them, to stand inside [ ]: PCRE2's \s also takes in
 * U+180E, and its \w leaves out marks and circled letters; of numbers that are no
 * digits Oniguruma has those in Latin-1. */
#define SPACE "\\x{9}-\\x{d}\\x{20}\\x{85}\\p{Z}"
#define WORD                                                                    \
        "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" \
        "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX "0-9a-fA-F"

static void put(Buf *b, const char *s) { buf_put(b, s, strlen(s)); }

/* A class escape: [set] or [^set] outside of brackets, set within.  A negated one within brackets
 * has no such form, and stays as it is: false. */
static bool put_class(Buf *out, char c, bool inside)
{
        static const struct {
                char lower, upper;
                const char *set;
        } class[] = { { 's', 'S', SPACE }, { 'w', 'W', WORD }, { 'h', 'H', HEX } };

        for (size_t i = 0; i < sizeof class / sizeof *class; i++) {
                bool not = c == class[i].upper;
                if (!not &&c != class[i].lower)
                        continue;
                if (inside && not )
                        return false;
                put(out, inside ? "" : not ? "[^" : "[");
                put(out, class[i].set);
                put(out, inside ? "" : "]");
                return true;
        }
        return false;
}

/* \b and \B. */
static void put_boundary(Buf *out, char c)
{
        static const char in[] = "[" WORD "]";

        put(out, "(?:(?<=");
        put(out, in);
        put(out, c == 'b' ? ")(?!" : ")(?=");
        put(out, in);
        put(out, ")|(?<!");
        put(out, in);
        put(out, c == 'b' ? ")(?=" : ")(?!");
        put(out, in);
        put(out, "))");
}

/* [:name:] at s, within a class; its length, 0 where the dialects differ. */
static size_t put_posix(Buf *out, const char *s)
{
        static const struct {
                const char *name, *set;
        } posix[] = { { "[:space:]", SPACE },
                      { "[:word:]", WORD },
                      { "[:digit:]", "\\p{Nd}" },
                      { "[:xdigit:]", HEX },
                      { "[:punct:]", "\\p{P}\\p{S}" } };

        for (size_t i = 0; i < sizeof posix / sizeof *posix; i++)
                if (!strncmp(s, posix[i].name, strlen(posix[i].name))) {
                        put(out, posix[i].set);
                        return strlen(posix[i].name);
                }
        return 0;
}

/* Length of a {2,3} at s, 0 where it is none. */
static size_t repeat_len(const char *s)
{
        size_t n = 1 + strspn(s + 1, "0123456789,");
        return n > 1 && s[n] == '}' ? n + 1 : 0;
}

static int refuse(const char *regex, const char *what, Err *e)
{
        return err_set(e, TGC_BAD_FILE,
                       "tokenizer: regular expression '%.200s': %s is not supported", regex, what);
}

/* Ruby's dialect in PCRE2's words. */
static int translate(const char *regex, Buf *out, Err *e)
{
        int inside = 0; /* how many classes deep */
        size_t n;

        for (const char *s = regex; *s; s++) {
                if (*s == '\\' && s[1]) {
                        s++;
                        if (strchr("QECRXKGNOyYvV", *s) || (inside && strchr("WH", *s)))
                                return refuse(regex, (char[]) { '\\', *s, 0 }, e);
                        if (!inside && (*s == 'b' || *s == 'B')) {
                                put_boundary(out, *s);
                                continue;
                        }
                        if (put_class(out, *s, inside))
                                continue;
                        buf_put(out, s - 1, 2);
                        if (s[1] == '{' && (n = strcspn(s, "}")) && s[n]) { /* \p{L}, \x{41} */
                                buf_put(out, s + 1, n);
                                s += n;
                        }
                } else if (inside) {
                        if (*s == '[' && s[1] != ':') { /* a class within a class adds to it */
                                if (strchr("^]&", s[1]) || s[-1] == '-')
                                        return refuse(regex, "this class within a class", e);
                                inside++;
                                continue;
                        }
                        if (*s == '&' && s[1] == '&')
                                return refuse(regex, "&& within a class", e);
                        if (*s == '[') { /* [:space:] */
                                if (!(n = put_posix(out, s)))
                                        return refuse(regex, "this [: :]", e);
                                s += n - 1;
                                continue;
                        }
                        if (*s == ']' && --inside)
                                continue;
                        buf_put(out, s, 1);
                } else if (*s == '[') {
                        inside = 1;
                        n = s[1] == '^' ? 2 : 1;
                        n += s[n] == ']'; /* a ] that comes first is itself */
                        buf_put(out, s, n);
                        s += n - 1;
                } else if (*s == '{' && (n = repeat_len(s)) && s[n] == '+') {
                        return refuse(regex, "+ after {}", e);
                } else if (*s == '(' && s[1] == '*') {
                        return refuse(regex, "(*", e);
                } else if (*s == '(' && s[1] == '?' &&
                           memchr(s, 'm', 2 + strspn(s + 2, "imxsUJ-"))) {
                        return refuse(regex, "the flag m", e);
                } else {
                        buf_put(out, s, 1);
                }
        }
        return out->bad ? tok_no_memory(e) : TGC_OK;
}

int pattern_literal(Pattern *p, const char *s, size_t n, Err *e)
{
        *p = (Pattern) { 0 };
        if (!(p->literal = malloc(n + 1)))
                return tok_no_memory(e);
        memcpy(p->literal, s, n);
        p->literal[n] = 0;
        p->n = n;
        return TGC_OK;
}

void pattern_set(Pattern *p, const Range *set, size_t n) { *p = (Pattern) { .set = set, .n = n }; }

int pattern_regex(Pattern *p, const char *regex, Err *e)
{
        const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        pcre2_compile_context *limits;
        PCRE2_UCHAR why[128];
        PCRE2_SIZE at;
        Buf b = { 0 };
        int code, rc;

        *p = (Pattern) { .known = known_pattern(regex) };
        if (p->known)
                return TGC_OK;
        if ((rc = translate(regex, &b, e)) != TGC_OK) {
                buf_free(&b);
                return rc;
        }
        if (!(limits = pcre2_compile_context_create(NULL))) {
                buf_free(&b);
                return tok_no_memory(e);
        }
        pcre2_set_max_pattern_length(limits, MAX_REGEX);
        p->code = pcre2_compile((PCRE2_SPTR)(b.p ? b.p : ""), b.n, options, &code, &at, limits);
        pcre2_compile_context_free(limits);
        buf_free(&b);
        if (!p->code) {
                pcre2_get_error_message(code, why, sizeof why);
                return err_set(e, TGC_BAD_FILE, "tokenizer: regular expression '%.200s': %s", regex,
                               (char *)why);
        }
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* where it cannot, matching is slower */
        return TGC_OK;
}

void pattern_free(Pattern *p)
{
        free(p->literal);
        pcre2_code_free(p->code);
        *p = (Pattern) { 0 };
}

int scan_open(Scan *s, const Pattern *p, Err *e)
{
        *s = (Scan) { .p = p };
        if (!p->code)
                return TGC_OK;
        s->data = pcre2_match_data_create_from_pattern(p->code, NULL);
        s->limits = pcre2_match_context_create(NULL);
        if (!s->data || !s->limits) {
                scan_close(s);
                return tok_no_memory(e);
        }
        pcre2_set_match_limit(s->limits, MATCH_LIMIT);
        pcre2_set_depth_limit(s->limits, MATCH_LIMIT);
        pcre2_set_heap_limit(s->limits, HEAP_LIMIT);
        return TGC_OK;
}

/* The first young character of a text, or n. */
static size_t first_young(const char *text, size_t n)
{
        size_t i = 0, len;
        uint64_t eight;
        uint32_t cp;

        while (i < n) {
                if (n - i >= 8 && (memcpy(&eight, text + i, 8), !(eight & 0x8080808080808080u))) {
                        i += 8;
                } else if ((unsigned char)text[i] < 0xcd) { /* below U+0340 */
                        i++;
                } else if (!(len = utf8_get(text + i, n - i, &cp))) {
                        i++;
                } else if (cp_stand_in(cp) != cp) {
                        break;
                } else {
                        i += len;
                }
        }
        return i;
}

static void put_stand_ins(Buf *b, const char *text, size_t n)
{
        size_t len;
        uint32_t cp;
        char s[4];

        b->n = 0;
        for (size_t at = first_young(text, n);; at = first_young(text, n)) {
                buf_put(b, text, at);
                if (at == n)
                        return;
                text += at;
                n -= at;
                len = utf8_get(text, n, &cp);
                buf_put(b, s, utf8_put(s, cp_stand_in(cp)));
                text += len;
                n -= len;
        }
}

void scan_text(Scan *s, const char *text, size_t n)
{
        s->text = s->seen = text;
        if (s->p->code && first_young(text, n) < n) {
                put_stand_ins(&s->swapped, text, n);
                s->seen = s->swapped.p;
        }
        s->n = n;
        s->pos = s->run = s->run_end = 0;
        s->last = SIZE_MAX;
}

void scan_close(Scan *s)
{
        buf_free(&s->swapped);
        pcre2_match_data_free(s->data);
        pcre2_match_context_free(s->limits);
        s->data = s->limits = NULL;
}

static int match_failed(int rc, Err *e)
{
        PCRE2_UCHAR why[128];

        pcre2_get_error_message(rc, why, sizeof why);
        err_set(e, TGC_FAIL, "tokenizer: a regular expression gave up on this text: %s",
                (char *)why);
        return -1;
}

static int next_literal(Scan *s, size_t *from, size_t *to)
{
        const char *at;

        if (!s->p->n || !(at = memmem(s->text + s->pos, s->n - s->pos, s->p->literal, s->p->n)))
                return 0;
        *from = (size_t)(at - s->text);
        s->pos = *to = *from + s->p->n;
        return 1;
}

static int next_of_set(Scan *s, size_t *from, size_t *to)
{
        size_t len;
        uint32_t cp;

        for (; s->pos < s->n; s->pos += len ? len : 1)
                if ((len = utf8_get(s->text + s->pos, s->n - s->pos, &cp)) &&
                    cp_in(s->p->set, s->p->n, cp)) {
                        *from = s->pos;
                        s->pos = *to = *from + len;
                        return 1;
                }
        return 0;
}

int scan_next(Scan *s, size_t *from, size_t *to, Err *e)
{
        const PCRE2_SIZE *span;
        uint32_t cp;
        int rc;

        if (!s->n)
                return 0;
        if (s->p->literal)
                return next_literal(s, from, to);
        if (s->p->set)
                return next_of_set(s, from, to);
        if (s->swapped.bad) {
                tok_no_memory(e);
                return -1;
        }
        for (;;) {
                PCRE2_SPTR run;
                if (s->pos >= s->run_end) {
                        size_t valid = 0;
                        while (s->pos < s->n &&
                               !(valid = utf8_valid(s->text + s->pos, s->n - s->pos)))
                                s->pos++;
                        if (!valid)
                                return 0;
                        s->run = s->pos;
                        s->run_end = s->pos + valid;
                }
                if (s->p->known) {
                        *from = s->pos;
                        s->pos = *to = s->run + known_scan(s->p->known, s->text + s->run,
                                                           s->run_end - s->run, s->pos - s->run);
                        return 1;
                }
                run = (PCRE2_SPTR)s->seen + s->run;
                rc = pcre2_match(s->p->code, run, s->run_end - s->run, s->pos - s->run,
                                 PCRE2_NO_UTF_CHECK, s->data, s->limits);
                if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
                        rc = pcre2_match(s->p->code, run, s->run_end - s->run, s->pos - s->run,
                                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->limits);
                if (rc == PCRE2_ERROR_NOMATCH) {
                        s->pos = s->run_end;
                        continue;
                }
                if (rc < 0)
                        return match_failed(rc, e);
                span = pcre2_get_ovector_pointer(s->data);
                *from = s->run + span[0];
                *to = s->run + span[1];
                if (*from < s->pos || *to < *from) /* \K, lookbehind tricks */
                        return match_failed(PCRE2_ERROR_BADOFFSET, e);
                /* an empty match right behind the last one */
                if (*from == *to && *to == s->last) {
                        s->pos = *to + (*to < s->run_end
                                                ? utf8_get(s->text + *to, s->run_end - *to, &cp)
                                                : 1);
                        continue;
                }
                s->pos = s->last = *to;
                return 1;
        }
}

int pattern_replace(const Pattern *p, const char *text, size_t n, const char *with, size_t n_with,
                    Buf *out, Err *e)
{
        size_t at = 0, from, to;
        Scan s;
        int more, rc = scan_open(&s, p, e);

        if (rc != TGC_OK)
                return rc;
        scan_text(&s, text, n);
        while ((more = scan_next(&s, &from, &to, e)) > 0) {
                buf_put(out, text + at, from - at);
                buf_put(out, with, n_with);
                at = to;
                if (out->n > TOK_MAX_TEXT) {
                        scan_close(&s);
                        return err_set(e, TGC_FAIL, "tokenizer: the text grows beyond %d bytes",
                                       TOK_MAX_TEXT);
                }
        }
        scan_close(&s);
        buf_put(out, text + at, n - at);
        return more < 0 ? e ? e->code : TGC_FAIL : out->bad ? tok_no_memory(e) : TGC_OK;
}
