/* tok_added.c: finds added tokens in the whole text, before any other stage.
 *
 * A trie in one array.  The leftmost token wins, then the longest that starts there.  Tokens may
 * require white space around them, or word ends. */
#include "tok.h"

static int child_of(const AddedSet *s, int node, unsigned char byte)
{
        int i = s->node[node].child;

        while (i && s->node[i].byte != byte)
                i = s->node[i].next;
        return i;
}

static int new_node(AddedSet *s, AddedNode node)
{
        if (s->n == s->cap) {
                int cap = s->cap ? 2 * s->cap : 64;
                AddedNode *p = realloc(s->node, (size_t)cap * sizeof *p);
                if (!p)
                        return -1;
                s->node = p;
                s->cap = cap;
        }
        s->node[s->n] = node;
        return s->n++;
}

int added_put(AddedSet *s, const char *text, size_t n, int which, Err *e)
{
        int node = 0;

        if (n > TOK_MAX_ADDED)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: added token '%.40s...' is longer than %d bytes", text,
                               TOK_MAX_ADDED);
        if (!s->n && new_node(s, (AddedNode) { 0 }) < 0)
                return tok_no_memory(e);
        for (size_t i = 0; i < n; i++) {
                unsigned char byte = (unsigned char)text[i];
                int child = child_of(s, node, byte);
                if (!child) {
                        child = new_node(s,
                                         (AddedNode) { .next = s->node[node].child, .byte = byte });
                        if (child < 0)
                                return tok_no_memory(e);
                        s->node[node].child = child;
                }
                node = child;
        }
        if (node && !s->node[node].added)
                s->node[node].added = which + 1;
        return TGC_OK;
}

/* Where the code point before `at` begins, and which it is; false where there is none. */
static bool before(const char *text, size_t *at, uint32_t *cp)
{
        size_t i = *at, end = *at;

        while (i > 0 && end - i < 4) {
                i--;
                if (((unsigned char)text[i] & 0xc0) != 0x80)
                        break;
        }
        if (i == end || utf8_get(text + i, end - i, cp) != end - i)
                return false;
        *at = i;
        return true;
}

static bool word_around(const char *text, size_t n, size_t from, size_t to)
{
        uint32_t cp;

        return (before(text, &from, &cp) && cp_is_word(cp)) ||
               (to < n && utf8_get(text + to, n - to, &cp) && cp_is_word(cp));
}

bool added_next(const AddedSet *s, const Added *added, const char *text, size_t n, size_t *pos,
                size_t *from, size_t *to, int *which)
{
        uint32_t cp;

        for (size_t at = *pos; s->n && at < n; at++) {
                size_t end = 0, len, start;
                int found = 0;

                for (size_t node = 0, i = at; i < n;) {
                        if (!(node = (size_t)child_of(s, (int)node, (unsigned char)text[i++])))
                                break;
                        if (s->node[node].added) {
                                found = s->node[node].added;
                                end = i;
                        }
                }
                if (!found)
                        continue;
                if (added[found - 1].single_word && word_around(text, n, at, end)) {
                        at = end - 1;
                        continue;
                }
                *which = found - 1;
                for (start = at; added[*which].lstrip && start > *pos; at = start)
                        if (!before(text, &start, &cp) || start < *pos || !cp_is_space(cp))
                                break;
                while (added[*which].rstrip && end < n &&
                       (len = utf8_get(text + end, n - end, &cp)) && cp_is_space(cp))
                        end += len;
                *from = at;
                *pos = *to = end;
                return true;
        }
        return false;
}

size_t added_at(const AddedSet *s, const char *text, size_t n)
{
        size_t end = 0;

        for (size_t node = 0, i = 0; s->n && i < n;) {
                if (!(node = (size_t)child_of(s, (int)node, (unsigned char)text[i++])))
                        break;
                if (s->node[node].added)
                        end = i;
        }
        return end;
}

void added_free(AddedSet *s)
{
        free(s->node);
        *s = (AddedSet) { 0 };
}
