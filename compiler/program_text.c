/* program_text.c: writes the lines of a program's text that belong to no kernel: arenas, the
 * cache's size, and the products for `tgc tune`. */
#include "pipeline.h"
#include "../runtime/rt.h"

/* Float32 states: of all parameters, or of the small. */
static int64_t n_states(const Shared *sh)
{
        int64_t n = 0;
        if (sh->optimizer != OPTIMIZER_ADAMW8BIT)
                return sh->n_train;
        for (int i = 0; i < sh->n_params; i++)
                if (sh->param[i].offset < sh->n_train && sh->param[i].count < OPTIMIZER_SMALL)
                        n += (sh->param[i].count + OPTIMIZER_BLOCK - 1) / OPTIMIZER_BLOCK *
                             OPTIMIZER_BLOCK;
        return n;
}

static long long pages_of(const Shared *sh, int pool)
{
        return (long long)(pool ? sh->narrow_rows : sh->cache_rows) / CACHE_PAGE;
}

void arenas_text(const Shared *sh, DType dt, bool train, int target, Text *t)
{
        text_add(t, "arena w %lld\n", (long long)(sh->n_all * dt_size[dt]));
        if (train) {
                if (sh->masters == MASTERS_F32 && dt == DT_BF16 && target == TARGET_CUDA)
                        text_add(t, "arena lo %lld\n", (long long)sh->n_train * 2);
                else if (sh->masters == MASTERS_F32 && dt != DT_F32)
                        text_add(t, "arena p %lld\n", (long long)sh->n_train * 4);
                text_add(t, "arena g %lld\n", (long long)(sh->n_train * 4 - sh->n_low * 2));
                if (sh->n_low)
                        text_add(t, "arena gsum %lld\n", (long long)sh->n_low * 4);
                if (sh->optimizer == OPTIMIZER_ADAMW8BIT)
                        text_add(t,
                                 "arena m8 %lld\narena v8 %lld\narena mmax %lld\narena vmax %lld\n",
                                 (long long)sh->n_train, (long long)sh->n_train,
                                 (long long)sh->n_train / OPTIMIZER_BLOCK * 4,
                                 (long long)sh->n_train / OPTIMIZER_BLOCK * 4);
                for (int i = 0; i < optimizer_info[sh->optimizer].states; i++)
                        text_add(t, "arena %c %lld\n", "mv"[i], (long long)n_states(sh) * 4);
                if (sh->ema)
                        text_add(t, "arena ema %lld\n", (long long)sh->n_train * 4);
        }
        text_add(t, "arena const %lld\narena kv %lld\narena keep %lld\narena act %lld\n",
                 (long long)sh->consts.n, (long long)sh->kv_bytes, (long long)sh->keep_bytes,
                 (long long)sh->act_bytes);
        if (sh->host_bytes)
                text_add(t, "arena host %lld\n", (long long)sh->host_bytes);
        for (int i = 0; i < sh->n_state && sh->cache_rows; i++) {
                const int pool = sh->state[i].pool;
                const long long pages = pages_of(sh, pool);
                text_add(t, "cache kv+%lld %lld %lld%s\n", (long long)sh->state[i].offset,
                         (long long)sh->state[i].bytes / pages, pages, pool ? " narrow" : "");
        }
        for (int i = 0; i < sh->n_map; i++)
                text_add(t, "map %d %s\n", i, sh->map[i]);
}

/* For people: of what `tgc run` says it used so much. */
void cache_text(const Shared *sh, Text *t)
{
        const long long pages = pages_of(sh, 0), all = sh->kv_bytes;
        long long bytes[TGC_POOLS] = { 0 };
        int layers[TGC_POOLS] = { 0 };
        text_add(t, "cache of keys and values: %lld bytes", all);
        for (int i = 0; i < sh->n_state; i++) {
                bytes[sh->state[i].pool] += (long long)sh->state[i].bytes;
                layers[sh->state[i].pool]++;
        }
        if (pages)
                text_add(t,
                         ", %lld pages of %d tokens, %lld bytes each; sequences share pages "
                         "of equal beginnings",
                         pages, CACHE_PAGE, bytes[0] / pages);
        text_add(t, "\n");
        if (sh->narrow_rows)
                text_add(t,
                         "of %d layers %d look back %lld tokens at most: %lld of these bytes, %lld "
                         "pages, %lld bytes each, of which a sequence keeps %d\n",
                         (layers[0] + layers[1]) / 2, layers[1] / 2, (long long)sh->narrow,
                         bytes[1], pages_of(sh, 1), bytes[1] / pages_of(sh, 1),
                         (int)TGC_KEPT(sh->narrow));
}

void blocks_text(const Graph *g, const Shared *sh, DType dt, Text *t)
{
        int64_t in_blocks = 0, elems = 0;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                const int64_t count = type_count(&n->type, &g->sizes);
                if (!node_storage(n))
                        continue;
                in_blocks += storage_bytes(node_storage(n), count);
                elems += count;
        }
        if (elems)
                text_add(t,
                         "weights: %lld bytes, %lld of them in blocks, which would be %lld as "
                         "elements of %s\n",
                         (long long)(sh->n_all * dt_size[dt]), (long long)in_blocks,
                         (long long)(elems * dt_size[dt]), dt_name[dt]);
}

/* What `tgc tune` needs: how this was compiled, products with their tiles, and their launches. */
void tune_text(const CompileOptions *o, Module *m, int ctx, int block, const Text *launched,
               Compiled *out)
{
        Text *t = &out->products;
        char act[32] = "";
        if (o->act_fp8)
                snprintf(act, sizeof act, " act_fp8 %d", o->act_fp8);
        text_add(t,
                 "tgc-products 1\n"
                 "compiled dtype %s opt %d infer %d train %d batch %d ctx %d chunk %d block %d "
                 "recompute %d%s%s%s%s%s%s%s%s%s%s%s\n",
                 dt_name[o->dtype], o->opt, o->infer, o->train, o->batch, ctx, o->chunk, block,
                 o->recompute, o->tf32 ? " tf32 1" : "", o->optimizer ? " optimizer " : "",
                 o->optimizer ? optimizer_info[o->optimizer].name : "",
                 o->masters == MASTERS_NONE ? " masters none"
                 : o->masters               ? " masters stochastic"
                                            : "",
                 o->cache ? " cache " : "", o->cache ? dt_name[*o->cache] : "",
                 o->act_int8 ? " act8 1" : "", act, o->ema ? " ema 1" : "",
                 o->fast ? " fast 1" : "", o->offload ? " offload 1" : "");
        products_text(m, t);
        text_put(t, launched->s ? launched->s : "", launched->n);
        if (m->choices) {
                out->n_choices = m->choices->n;
                out->n_chosen = choices_used(m->choices, &out->choices);
        }
}
