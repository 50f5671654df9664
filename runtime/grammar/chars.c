/* chars.c: characters as a JSON string writes them: plain or escaped. */
#include <stdlib.h>
#include <string.h>
#include "rules.h"

static const char escaped[] = "\"\\\b\f\n\r\t/", letter[] = "\"\\bfnrt/";

static bool has(const CharRange *r, int n, bool negated, uint32_t c)
{
        bool in = false;
        for (int i = 0; i < n; i++)
                in |= r[i].lo <= c && c <= r[i].hi;
        return in != negated;
}

/* u00XX of a control character, in either case of its letters */
static void add_control(Build *b, int rule, int c)
{
        static const CharRange least[] = { { 'a', 'f' }, { 'A', 'F' } };
        int low = c & 15;
        gr_text(b, rule, "u00", 3);
        gr_bytes(b, rule, '0' + (c >> 4), '0' + (c >> 4));
        if (low < 10) {
                gr_bytes(b, rule, '0' + low, '0' + low);
        } else {
                CharRange both[2] = {
                        { least[0].lo + (uint32_t)low - 10, least[0].lo + (uint32_t)low - 10 },
                        { least[1].lo + (uint32_t)low - 10, least[1].lo + (uint32_t)low - 10 }
                };
                gr_ref(b, rule, gr_class(b, both, 2, false));
        }
}

int gr_json_class(Build *b, const CharRange *r, int n, bool negated)
{
        CharRange *plain = malloc(((size_t)n + 4) * sizeof *plain);
        int rule = gr_rule(b), k = 0;
        if (!plain) {
                b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                return rule;
        }
        /* what stands for itself */
        if (negated) {
                if (n)
                        memcpy(plain, r, (size_t)n * sizeof *plain);
                k = n;
                plain[k++] = (CharRange) { 0, 0x1f };
                plain[k++] = (CharRange) { '"', '"' };
                plain[k++] = (CharRange) { '\\', '\\' };
                gr_ref(b, rule, gr_class(b, plain, k, true));
        } else {
                static const CharRange itself[] = { { 0x20, 0x21 },
                                                    { 0x23, 0x5b },
                                                    { 0x5d, 0x10ffff } };
                CharRange *part = malloc(((size_t)n * 3 + 1) * sizeof *part);
                for (int i = 0; i < n && part; i++)
                        for (int j = 0; j < 3; j++) {
                                uint32_t lo = r[i].lo > itself[j].lo ? r[i].lo : itself[j].lo,
                                         hi = r[i].hi < itself[j].hi ? r[i].hi : itself[j].hi;
                                if (lo <= hi)
                                        part[k++] = (CharRange) { lo, hi };
                        }
                if (part)
                        gr_ref(b, rule, gr_class(b, part, k, false));
                else
                        b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                free(part);
        }
        free(plain);
        /* behind one backslash, which is one place of a matcher instead of forty */
        int behind = 0;
        for (int i = 0; i < 8 + 0x20 && !b->code; i++) {
                if (!has(r, n, negated, i < 8 ? (unsigned char)escaped[i] : (uint32_t)i - 8))
                        continue;
                if (behind)
                        gr_alt(b, behind);
                else
                        behind = gr_rule(b);
                if (i < 8)
                        gr_text(b, behind, &letter[i], 1);
                else
                        add_control(b, behind, i - 8);
        }
        if (behind) {
                gr_alt(b, rule);
                gr_text(b, rule, "\\", 1);
                gr_ref(b, rule, behind);
        }
        return rule;
}

void gr_json_text(Build *b, int rule, const char *text, size_t n)
{
        for (size_t i = 0; i < n && !b->code; i++) {
                const unsigned char c = (unsigned char)text[i];
                const char *k = c && c != '/' ? strchr(escaped, c) : NULL;
                if (k) {
                        gr_text(b, rule, (char[]) { '\\', letter[k - escaped] }, 2);
                } else if (c < 0x20) {
                        CharRange one = { c, c };
                        gr_ref(b, rule, gr_json_class(b, &one, 1, false));
                } else {
                        gr_bytes(b, rule, c, c);
                }
        }
}
