/* specs.c: decides which programs a plan has, and their sizes.
 *
 * Training has `step` and `eval`.  Text generation has `prefill`, `score`, and a `decode` for each
 * number of sequences in `buckets`; under --fast `mixed`, which does both.  An encoder has only
 * `embed`.  A plan that measures inputs has only `sums`. */
#include "pipeline.h"
#include "../runtime/rt.h"

/* Tokens of a prefill call: CHUNK fill a GPU badly and LONG well, but their tiles are too large for
 * a short prompt. */
enum { CHUNK = 512, LONG = 2048, CONTEXT_STEP = 256 };

/* Tokens that a cache of pages has room for.  Page 0 is nobody's: rows of a call that stand for no
 * sequence write there.  0: one sequence's cache has no pages. */
int64_t cache_rows(const CompileOptions *o, int ctx)
{
        const int64_t each = (ctx + CACHE_PAGE - 1) / CACHE_PAGE,
                      wanted = (o->cache_tokens + CACHE_PAGE - 1) / CACHE_PAGE;
        const int batch = o->train ? o->sequences : o->batch;
        const int64_t some = each + 32768 / CACHE_PAGE, all = batch * each;
        if (!o->infer || batch < 2)
                return 0;
        return (1 + (o->cache_tokens > 0                 ? wanted
                     : o->cache_tokens < 0 && some < all ? some
                                                         : all)) *
               CACHE_PAGE;
}

/* How far layers look back, 0 being farthest: *wide is the most, *narrow the most of the others, or
 * 0 where there are none. */
static void windows_of(const Graph *g, int64_t *wide, int64_t *narrow)
{
        *wide = *narrow = -1;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const int64_t w = NODE(g, r)->op == OP_ATTENTION ? NODE(g, r)->a.att.window : -1;
                if (w == 0 || (*wide != 0 && w > *wide)) {
                        *narrow = w != *wide ? *wide : *narrow;
                        *wide = w;
                } else if (w != *wide && w > *narrow) {
                        *narrow = w;
                }
        }
        *wide = *wide < 0 ? 0 : *wide;
        *narrow = *narrow < 0 ? 0 : *narrow;
}

/* A sequence keeps what TGC_KEPT says, and a call's prompts have pages beside that. */
int64_t narrow_rows(const Model *m, const CompileOptions *o, int ctx, int64_t *window,
                    int64_t *narrow)
{
        const int64_t rows = cache_rows(o, ctx), batch = o->train ? o->sequences : o->batch;
        windows_of(m->graph, window, narrow);
        if (!rows || !*narrow)
                return 0;
        const int64_t each = TGC_KEPT(*narrow),
                      wanted = (1 + batch * each + (o->chunk ? o->chunk : LONG) / CACHE_PAGE) *
                               CACHE_PAGE;
        return wanted < rows ? wanted : 0;
}

/* Numbers of sequences that have a decode program of their own, and one CUDA graph; a call of fewer
 * takes the next. */
static const struct {
        int b;
        const char *name;
} buckets[] = {
        { 1, "decode1" },   { 2, "decode2" },   { 4, "decode4" },     { 8, "decode8" },
        { 16, "decode16" }, { 24, "decode24" }, { 32, "decode32" },   { 48, "decode48" },
        { 64, "decode64" }, { 96, "decode96" }, { 128, "decode128" }, { 192, "decode192" }
};

int specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block, Spec *s)
{
        Graph *g = m->graph;
        int n = 0;
        bool logits = graph_out(g, "logits") != 0, loss = graph_out(g, "loss") != 0;
        if (m->width && o->train)
                error_at(NODE(g, graph_out(g, "hidden"))->loc,
                         "an encoder (it returns hidden, no loss) cannot be trained; compile with "
                         "--mode infer");
        if (m->width) { /* texts one after the other: T is all their tokens */
                s[0] = (Spec) { "embed", EMBED, 1, chunk, { { 1, 0, 0 } }, { "hidden" } };
                return 1;
        }
        if (o->reference) {
                s[0] = (Spec) { "reference",     EVAL, o->batch, block, { { o->batch, block, 0 } },
                                { o->reference } };
                return 1;
        }
        if (o->sums) { /* one text, its first token at position 0 */
                s[0] = (Spec) { "sums", SUMS, 1, chunk, { { 1, 0, 0 } }, { NULL } };
                return 1;
        }
        if (o->train) {
                if (!loss || !has_input(g, "targets"))
                        error_at(NODE(g, graph_out(g, loss ? "loss" : "logits"))->loc,
                                 "the model returns no loss (or has no input `targets`), so "
                                 "it cannot be trained; compile with --mode infer");
                Sizes z = { { o->batch, block, 0 } };
                s[n++] = (Spec) { "step", STEP, o->batch, block, z, { "loss", "aux_loss", "ce" } };
                s[n++] = (Spec) { "eval", EVAL, o->batch, block, z, { "loss", "aux_loss", "ce" } };
                if (graph_out(g, "logp")) /* an objective's */
                        s[n++] = (Spec) { "logp", EVAL, o->batch, block, z, { "logp" } };
        }
        if (o->infer) {
                /* a plan that trains as well samples one sequence at a time: fewer kernels to
                 * build */
                int batch = !o->train ? o->batch : o->sequences > 1 ? o->sequences : 1;
                if (!logits)
                        error_at((Loc) { m->name, 0, 0 },
                                 "the model returns no logits, so it cannot be run; compile with "
                                 "--mode train");
                /* of several sequences T is all their tokens (a ragged call, rt.h) */
                int more = batch > 1 || ctx > LONG ? LONG : ctx;
                s[n++] = (Spec) {
                        "prefill", PREFILL, batch, chunk, { { 1, 0, ctx } }, { "logits" }
                };
                if (more > chunk && !o->chunk && !o->train)
                        s[n++] = (Spec) { "prefill_long", PREFILL | GPU,     batch,
                                          more,           { { 1, 0, ctx } }, { "logits" } };
                if (o->fast && batch > 1 && !o->train) {
                        const int most = o->chunk ? chunk : more;
                        if (o->cuda)
                                s[n++] = (Spec) { "mixed", MIXED | GPU,       batch,
                                                  most,    { { 1, 0, ctx } }, { "logits" } };
                        if (o->cpu)
                                s[n++] = (Spec) { "mixed", MIXED | CPU,       batch,
                                                  chunk,   { { 1, 0, ctx } }, { "logits" } };
                }
                s[n++] = (Spec) { "score", SCORE, batch, chunk, { { 1, 0, ctx } }, { "logits" } };
                for (size_t k = 0; k < sizeof buckets / sizeof *buckets; k++)
                        if (buckets[k].b < (o->train ? 2 : batch) && buckets[k].b < batch)
                                s[n++] = (Spec) { buckets[k].name,
                                                  DECODE,
                                                  buckets[k].b,
                                                  1,
                                                  { { buckets[k].b, 1, ctx } },
                                                  { "logits" } };
                s[n++] = (Spec) { "decode", DECODE, batch, 1, { { batch, 1, ctx } }, { "logits" } };
        }
        return n;
}

/* Kernels know the context's size.  Rounded up, many sizes share one compilation: to a power of
 * two, at most to the model's own. */
int context_of(const Model *m, const CompileOptions *o)
{
        int ctx = CONTEXT_STEP;
        if (!o->ctx || !o->ctx_at_least || o->ctx > m->ctx)
                return o->ctx ? o->ctx : (int)m->ctx;
        while (ctx < o->ctx)
                ctx *= 2;
        return ctx < m->ctx ? ctx : (int)m->ctx;
}

/* Tokens of a call that embeds: texts that lie in it whole. */
static int embed_tokens(const Model *m, const CompileOptions *o, int ctx)
{
        if (o->chunk && o->chunk < ctx)
                error_code(2, (Loc) { m->name, 0, 0 },
                           "--chunk-size %d: an encoder reads a text whole, and one may have %d "
                           "tokens; give that, or a smaller --ctx-size",
                           o->chunk, ctx);
        return o->chunk ? o->chunk : ctx > LONG ? ctx : LONG;
}

int prefill_tokens(const Model *m, const CompileOptions *o, int ctx)
{
        return m->width                             ? embed_tokens(m, o, ctx)
               : o->chunk                           ? o->chunk
               : ctx < CHUNK && !cache_rows(o, ctx) ? ctx
                                                    : CHUNK;
}

int window_tokens(const Model *m, const CompileOptions *o)
{
        return o->block ? o->block : o->ctx ? o->ctx : m->ctx < 1024 ? (int)m->ctx : 1024;
}
