/* session_embed.c: turns texts into vectors, by an encoder.
 *
 * A call of program `embed` holds whole texts, one after the other.  Its input `documents` gives
 * the begin and end of each token's text.  Attention reads only those tokens, and positions count
 * from the begin.  The host pools, with sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../weights/ck_tensor.h"
#include "session_impl.h"

typedef struct Embed {
        Session *s;
        const Prog *g;
        int C;
        const Io *io;
        void *mem;
        int *ids, *documents; /* (T), (T,2) */
        void *raw;            /* (T,C) as stored */
        float *row;           /* (T,C) */
        double *sum;          /* (C) */
} Embed;

static void embed_close(Embed *x)
{
        free(x->ids);
        free(x->documents);
        free(x->raw);
        free(x->row);
        free(x->sum);
}

static int embed_open(Embed *x, Session *s, Err *e)
{
        size_t bytes;
        *x = (Embed) { .s = s, .C = s->m.hidden };
        if (!s->m.hidden)
                return err_set(e, TGC_USAGE,
                               "the plan is of a model that generates text; only encoders (BERT) "
                               "embed");
        int code = find_prog(s, "embed", &x->g, e);
        if (code || (code = find_io(s, "embed", "hidden", &x->io, &x->mem, &bytes, e)))
                return code;
        const size_t T = (size_t)x->g->T, n = T * (size_t)x->C;
        if (x->g->B != 1 || bytes < n * x->io->elem || ck_dtype_find(x->io->dtype) < 0)
                return err_set(e, TGC_BAD_FILE,
                               "program embed: hidden has %zu bytes of %s, and %zu tokens of %d "
                               "numbers are needed: compile the model again",
                               bytes, x->io->dtype, T, x->C);
        x->ids = malloc(T * sizeof *x->ids);
        x->documents = malloc(2 * T * sizeof *x->documents);
        x->raw = malloc(n * x->io->elem);
        x->row = malloc(n * sizeof *x->row);
        x->sum = malloc((size_t)x->C * sizeof *x->sum);
        if (!x->ids || !x->documents || !x->raw || !x->row || !x->sum)
                return err_set(e, TGC_NO_MEMORY, "no memory to embed calls of %zu tokens", T);
        return TGC_OK;
}

/* Texts 0 .. n - 1, which fit in one call; their vectors to x->row. */
static int embed_call(Embed *x, const EmbedText *text, int n, Err *e)
{
        int at = 0, code;
        for (int i = 0; i < n; i++) {
                memcpy(x->ids + at, text[i].ids, (size_t)text[i].n * sizeof *x->ids);
                for (int t = at; t < at + text[i].n; t++)
                        x->documents[2 * t] = at, x->documents[2 * t + 1] = at + text[i].n;
                at += text[i].n;
        }
        const size_t T = (size_t)at, count = T * (size_t)x->C;
        if ((code = session_write(x->s, "embed", "ids", x->ids, T * sizeof *x->ids, e)) ||
            (prog_io(x->g, "documents") &&
             (code = session_write(x->s, "embed", "documents", x->documents,
                                   2 * T * sizeof *x->documents, e))) ||
            (code = session_run(x->s, "embed", 1, at, e)) ||
            (code = dev_download(x->s->d, x->raw, x->mem, count * x->io->elem, e)))
                return code;
        return ck_convert(x->row, CK_F32, x->raw, ck_dtype_find(x->io->dtype), count, 1)
                       ? TGC_OK
                       : err_set(e, TGC_BAD_FILE,
                                 "program embed: hidden is of type %s, and must be f32, bf16 or "
                                 "f16: compile the model again",
                                 x->io->dtype);
}

/* row (n,C) */
static int pool(Embed *x, const float *row, int n, Pooling how, bool unit, float *out, Err *e)
{
        const int C = x->C, first = how == POOL_LAST ? n - 1 : 0, end = how == POOL_CLS ? 1 : n;
        const double scale = how == POOL_MEAN ? 1.0 / n : how == POOL_MEAN_SQRT ? 1 / sqrt(n) : 1;
        double squares = 0;
        for (int c = 0; c < C; c++)
                x->sum[c] = row[(size_t)first * (size_t)C + (size_t)c];
        for (int t = first + 1; t < end; t++)
                for (int c = 0; c < C; c++) {
                        const double v = row[(size_t)t * (size_t)C + (size_t)c];
                        x->sum[c] = how != POOL_MAX     ? x->sum[c] + v
                                    : !(v <= x->sum[c]) ? v
                                                        : x->sum[c];
                }
        for (int c = 0; c < C; c++) {
                x->sum[c] *= scale;
                squares += x->sum[c] * x->sum[c];
        }
        if (!isfinite(squares))
                return err_set(e, TGC_NON_FINITE, "the vector of a text of %d tokens is not finite",
                               n);
        /* as torch.nn.functional.normalize */
        const double length = unit ? fmax(sqrt(squares), 1e-12) : 1;
        for (int c = 0; c < C; c++)
                out[c] = (float)(x->sum[c] / length);
        return TGC_OK;
}

static int check_texts(const Embed *x, const EmbedText *text, int n, Err *e)
{
        const int most = x->s->m.ctx < x->g->T ? x->s->m.ctx : x->g->T;
        int code = TGC_OK;
        for (int i = 0; i < n && !code; i++)
                code = text[i].n < 1 || text[i].n > most
                               ? err_set(e, TGC_USAGE,
                                         "a text of %d tokens to embed; the plan takes 1 to %d",
                                         text[i].n, most)
                               : session_check_ids(x->s, text[i].ids, (size_t)text[i].n, e);
        return code;
}

/* All texts, a call after the other; v: of all their tokens (how N_POOLINGS), or of each. */
static int embed_all(Embed *x, const EmbedText *text, int n, int how, bool unit, float *v, Err *e)
{
        const size_t C = (size_t)x->C;
        int code = check_texts(x, text, n, e);
        for (int at = 0, k = 0; at < n && !code; at += k) {
                int tokens = 0, row = 0;
                for (k = 0; at + k < n && tokens + text[at + k].n <= x->g->T; k++)
                        tokens += text[at + k].n;
                if ((code = embed_call(x, text + at, k, e)))
                        break;
                if (how == N_POOLINGS) {
                        memcpy(v, x->row, (size_t)tokens * C * sizeof *v);
                        v += (size_t)tokens * C;
                        continue;
                }
                for (int i = 0; i < k && !code; row += text[at + i++].n, v += C)
                        code = pool(x, x->row + (size_t)row * C, text[at + i].n, (Pooling)how, unit,
                                    v, e);
        }
        return code;
}

int session_embed(Session *s, const EmbedText *text, int n, Pooling how, bool unit, float *out,
                  Err *e)
{
        Embed x;
        int code = embed_open(&x, s, e);
        if (!code)
                code = embed_all(&x, text, n, (int)how, unit, out, e);
        embed_close(&x);
        return code;
}

int session_embed_tokens(Session *s, const EmbedText *text, int n, float *out, Err *e)
{
        Embed x;
        int code = embed_open(&x, s, e);
        if (!code)
                code = embed_all(&x, text, n, N_POOLINGS, false, out, e);
        embed_close(&x);
        return code;
}
