/* token_bin.c: a .bin of ids, nanoGPT's or llm.c's */
#include "file.h"
#include "../../cli/data/data.h"

FUZZ(token_bin)
{
        TokenPart p;
        Err e;
        int ids[16];
        if (token_bin_open(&p, file_of_bytes(data, n), &e)) {
                HOLDS(*e.msg && !p.data);
                return;
        }
        HOLDS((p.width == 2 || p.width == 4) && p.n >= 0 && (size_t)p.n * (size_t)p.width <= n);
        Tokens t = { 0 };
        HOLDS(!tokens_add(&t, &p, &e));
        for (int64_t at = 0; at < t.n; at += 16)
                tokens_copy(&t, at, t.n - at < 16 ? t.n - at : 16, ids);
        tokens_free(&t);
}
