/* stop_text.c: finds texts that end a generation, even if they straddle tokens. */
#include <string.h>
#include "stop_text.h"

size_t stop_find(const char *const *stop, int n, const char *text, size_t len)
{
        size_t first = STOP_NONE;
        for (int i = 0; i < n; i++) {
                const char *at = memmem(text, len, stop[i], strlen(stop[i]));
                if (at && (size_t)(at - text) < first)
                        first = (size_t)(at - text);
        }
        return first;
}

size_t stop_begun(const char *const *stop, int n, const char *text, size_t len)
{
        size_t most = 0;
        for (int i = 0; i < n; i++) {
                size_t k = strlen(stop[i]) - 1;
                for (k = k < len ? k : len; k > most; k--)
                        if (!memcmp(text + len - k, stop[i], k))
                                most = k;
        }
        return most;
}
