/* tok_class.c: character classes as Hugging Face tokenizers defines them.
 *
 * That library's Unicode tables are of several versions, and PCRE2 and utf8proc have others.
 * tok_unicode.h has that library's answer for every character where these could differ. */
#include "tok.h"
#include <utf8proc.h>

typedef struct StandIn {
        uint32_t from, to, as;
} StandIn;
typedef struct Lower {
        uint32_t from, to;
        int32_t by;
} Lower;
#include "tok_unicode.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The range among n sorted ones that cp is in, or NULL.  Rows of all tables begin with `from,
 * to`. */
static const void *find(const void *table, size_t n, size_t size, uint32_t cp)
{
        const char *row = table;

        while (n) {
                const char *mid = row + n / 2 * size;
                const Range *r = (const Range *)(const void *)mid;
                if (cp >= r->from && cp <= r->to)
                        return mid;
                if (cp > r->to) {
                        row = mid + size;
                        n -= n / 2 + 1;
                } else {
                        n /= 2;
                }
        }
        return NULL;
}
#define FIND(table, cp) ((const void *)find(table, COUNT(table), sizeof *(table), cp))

/* Blocks of common scripts in which every place was taken long ago. */
static bool settled(uint32_t cp)
{
        return cp < 0x378 || (cp >= 0x384 && cp < 0x530 && cp > 0x3a2) ||
               (cp >= 0x4e00 && cp < 0xa48d) || (cp >= 0xac00 && cp < 0xd7a4) ||
               (cp >= 0x2010 && cp < 0x2065) || (cp >= 0x3041 && cp < 0x3097) ||
               (cp >= 0x3099 && cp < 0x3100);
}

/* Libraries may not know it yet, or know it only now. */
static bool cp_is_young(uint32_t cp) { return !settled(cp) && FIND(young, cp); }

uint32_t cp_stand_in(uint32_t cp)
{
        const StandIn *s;

        if (settled(cp))
                return cp;
        if (!(s = FIND(young, cp)))
                s = FIND(other_class, cp);
        return s ? s->as : cp;
}

bool cp_is_inert(uint32_t cp)
{
        if (cp == 0x11a7) /* the place before the first final of Hangul: utf8proc 2.8 swallows it */
                return true;
        return cp >= 0x378 && (cp_is_young(cp) || FIND(inert, cp));
}

bool cp_joins(uint32_t cp) { return cp >= 0x897 && FIND(joins, cp); }

bool cp_is_accent(uint32_t cp) { return cp >= 0x300 && FIND(accent, cp); }

bool cp_is_nonspacing(uint32_t cp) { return cp >= 0x300 && FIND(nonspacing, cp); }

bool cp_is_unclean(uint32_t cp) { return FIND(unclean, cp); }

bool cp_is_han(uint32_t cp)
{
        static const Range han[] = { { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },
                                     { 0xf900, 0xfaff },   { 0x20000, 0x2a6df },
                                     { 0x2a700, 0x2b81f }, { 0x2b920, 0x2ceaf },
                                     { 0x2f800, 0x2fa1f } };
        return cp >= 0x3400 && FIND(han, cp);
}

bool cp_in(const Range *r, size_t n, uint32_t cp) { return find(r, n, sizeof *r, cp); }

const Range *const cp_punctuation = punctuation, *const cp_digit = digit;
const size_t n_cp_punctuation = COUNT(punctuation), n_cp_digit = COUNT(digit);

const Range cp_space[] = { { 0x9, 0xd },       { 0x20, 0x20 },     { 0x85, 0x85 },
                           { 0xa0, 0xa0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200a },
                           { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
                           { 0x3000, 0x3000 } };
const size_t n_cp_space = COUNT(cp_space);

bool cp_is_space(uint32_t cp) { return cp_in(cp_space, n_cp_space, cp); }

bool cp_is_word(uint32_t cp)
{
        static const Range more[] = { /* Join_Control, and the symbols among Other_Alphabetic */
                                      { 0x200c, 0x200d },
                                      { 0x24b6, 0x24e9 },
                                      { 0x1f130, 0x1f149 },
                                      { 0x1f150, 0x1f169 },
                                      { 0x1f170, 0x1f189 }
        };

        switch (utf8proc_category((utf8proc_int32_t)cp_stand_in(cp))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: return cp_in(more, COUNT(more), cp);
        }
}

/* Small letters; U+0130, whose small form is two characters, is the caller's. */
uint32_t cp_lower(uint32_t cp)
{
        const Lower *l;

        if (cp < 0x80)
                return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
        if ((l = FIND(lower, cp)))
                return (uint32_t)((int32_t)cp + l->by);
        return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}
