/* jinja_unicode.c: characters as Python's str knows them. */
#include <string.h>
#include <utf8proc.h>
#include "jinja.h"

/* The text is UTF-8: templates and messages are looked at before. */
uint32_t next_code(const char **p, const char *end)
{
        const unsigned char *s = (const unsigned char *)*p;
        int more = *s < 0x80 ? 0 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : 3;
        uint32_t c = !more ? *s : *s & (0x3fu >> more);
        for (s++; more && s < (const unsigned char *)end; more--, s++)
                c = c << 6 | (*s & 0x3f);
        *p = (const char *)s;
        return c;
}

size_t put_code(char out[4], uint32_t c)
{
        return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

size_t count_codes(const char *p, size_t n)
{
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
                k += ((unsigned char)p[i] & 0xc0) != 0x80;
        return k;
}

const char *skip_codes(const char *p, const char *end, size_t n)
{
        for (; n && p < end; n--)
                for (p++; p < end && ((unsigned char)*p & 0xc0) == 0x80;)
                        p++;
        return p;
}

static int category(uint32_t c) { return (int)utf8proc_category((utf8proc_int32_t)c); }

bool is_space_code(uint32_t c)
{
        return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 ||
               c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
               c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_name_begin(uint32_t c)
{
        if (c < 128)
                return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        int k = category(c);
        return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
               k == UTF8PROC_CATEGORY_NL;
}

bool is_name_code(uint32_t c)
{
        if (is_name_begin(c) || (c >= '0' && c <= '9'))
                return true;
        int k = c < 128 ? 0 : category(c);
        return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
               k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
}

bool is_printable(uint32_t c)
{
        if (c < 127)
                return c >= ' ';
        switch (category(c)) {
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS: return false;
        default: return true;
        }
}

bool is_class(uint32_t c, CodeClass what)
{
        int k = category(c);
        bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO,
             decimal = k == UTF8PROC_CATEGORY_ND,
             number = decimal || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
        switch (what) {
        case CLASS_ALPHA: return alpha;
        case CLASS_DECIMAL: return decimal;
        case CLASS_DIGIT: /* and superscripts, and digits in circles */
                return decimal || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
                       (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
                       (c >= 0x2460 && c <= 0x2468);
        case CLASS_NUMERIC: return number;
        default: return alpha || number;
        }
}

/* ---- case ---- */

static const struct {
        uint32_t c;
        const char *to[3]; /* by Case */
} several[] = {
#define ROW(c, lower, upper, title)        \
        {                                  \
                c, { lower, upper, title } \
        }
#include "jinja_case.h"
};

static const char *several_of(uint32_t c, Case how)
{
        size_t lo = 0, hi = sizeof several / sizeof *several;
        while (lo < hi) {
                size_t mid = (lo + hi) / 2;
                if (several[mid].c == c)
                        return several[mid].to[how];
                if (several[mid].c < c)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return NULL;
}

bool is_lower_code(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_upper_code(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

bool is_cased(uint32_t c)
{
        int k = category(c);
        return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool is_ignorable(uint32_t c)
{
        if (c < 128 ? strchr("'.:^`", (int)c) && c : c == 0xb7 || c == 0x2019 || c == 0x2018)
                return true;
        switch (category(c)) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK: return true;
        default: return false;
        }
}

/* A capital sigma at a word's end: a cased letter before it, none behind. */
static bool is_final_sigma(const char *begin, const char *at, const char *end)
{
        const char *p = at, *q;
        uint32_t c = 0;
        bool before = false;
        while (p > begin && !before) {
                for (p--; p > begin && ((unsigned char)*p & 0xc0) == 0x80;)
                        p--;
                q = p;
                c = next_code(&q, end);
                if (is_ignorable(c))
                        continue;
                if (!is_cased(c))
                        return false;
                before = true;
        }
        if (!before)
                return false;
        p = at;
        next_code(&p, end);
        while (p < end) {
                c = next_code(&p, end);
                if (!is_ignorable(c))
                        return !is_cased(c);
        }
        return true;
}

/* The character at `at`, which stands in begin..end. */
void put_case(J *j, Buf *b, Case how, const char *begin, const char *at, const char *end)
{
        const char *p = at, *text;
        uint32_t c = next_code(&p, end);
        if (c < 128) {
                bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z',
                     up = how == CASE_UPPER || how == CASE_TITLE;
                char out = (char)(c ^ (unsigned)(up ? lower : upper) << 5);
                out_put(j, b, &out, 1);
        } else if ((text = several_of(c, how))) {
                out_text(j, b, text);
        } else if (c == 0x3a3 && how == CASE_LOWER) {
                out_code(j, b, is_final_sigma(begin, at, end) ? 0x3c2 : 0x3c3);
        } else {
                utf8proc_int32_t k = (utf8proc_int32_t)c;
                out_code(j, b,
                         (uint32_t)(how == CASE_UPPER   ? utf8proc_toupper(k)
                                    : how == CASE_TITLE ? utf8proc_totitle(k)
                                                        : utf8proc_tolower(k)));
        }
}
