/* keep_blocks.c: decides which parameters stay in blocks, and sets their attribute `storage`.  A
 * parameter does if the weights' file has it in blocks and all its readers take whole rows.
 * Without a file, the mixture decides its type.  Includes the compiler's headers. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/weights/packed.h"
#include "../../runtime/weights/weight_map.h"
#include "keep_blocks.h"
#include "../quantize/mixtures.h"

/* The graph's parameters, by the names and shapes that the map knows them by. */
static int params_of(const Graph *g, WeightParam *p, Ref *ref)
{
        int n = 0;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *x = &g->node[r];
                if (x->op != OP_PARAM || x->type.rank > CK_MAX_RANK)
                        continue;
                p[n] = (WeightParam) { .name = x->name, .dtype = CK_F32, .rank = x->type.rank };
                for (int i = 0; i < x->type.rank; i++)
                        p[n].dim[i] = x->type.dim[i].n;
                ref[n++] = r;
        }
        return n;
}

static void mark(Graph *g, const Ref *ref, const int *type, int n, const bool *may)
{
        for (int i = 0; i < n; i++) {
                Node *x = NODE(g, ref[i]);
                Node frozen = *x;
                frozen.a.param.trainable = 0;
                /* both enums have the table's rows, one of them after STORAGE_PLAIN */
                const Storage s = (Storage)(type[i] + STORAGE_F64 - CK_F64);
                if (type[i] < 0 || storage_fault(&frozen, s, may[ref[i]]))
                        continue;
                x->a.param.storage = s;
                x->a.param.trainable = 0;
        }
}

/* Activations have a scale for as many columns as a block of the weights' scales, where there are
 * such blocks; else one for a token. */
static int act_columns(const Checkpoint *ck, const char *weights, int *columns, Err *e)
{
        const CkTensor *of = NULL; /* whose blocks these are */
        *columns = ACT_TOKEN;
        for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < checkpoint_count(ck); i++) {
                        const CkTensor *t = checkpoint_at(ck, i);
                        const Packed *p = t->packed;
                        if (!p || p->code.kind != CODES_F8)
                                continue;
                        const bool cut = p->group < p->code.cols;
                        if (!of && cut) {
                                of = t;
                                *columns = (int)p->group;
                        }
                        if (of && (cut ? p->group != *columns : p->code.cols > *columns))
                                return err_set(e, TGC_USAGE,
                                               "--act fp8: %s: the scales of %.200s are of %d "
                                               "columns, those of %.200s of %lld: activations "
                                               "would have two kinds of scales",
                                               weights, of->name, *columns, t->name,
                                               (long long)p->group);
                }
        return TGC_OK;
}

int keep_blocks(Model *m, const char *weights, int *act_fp8, Err *e)
{
        Graph *g = m->graph;
        const size_t most = (size_t)g->n_nodes;
        WeightParam *p = calloc(most, sizeof *p);
        Ref *ref = calloc(most, sizeof *ref);
        int *type = calloc(most, sizeof *type), code = TGC_OK;
        bool *may = calloc(most, sizeof *may);
        WeightMap *map = NULL, *names = NULL;
        Checkpoint *ck = NULL;
        Text text = { 0 };
        if (!p || !ref || !type || !may)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", weights);
        if (!code && !(code = checkpoint_open(&ck, weights, e))) {
                model_map_text(m, &text);
                code = weight_map_for(text.s ? text.s : "", ck, &map, &names, e);
        }
        if (!code) {
                WeightSet set = { .n = params_of(g, p, ref), .param = p };
                storage_mark(g, may);
                if (!(code = weight_map_blocks(map, ck, &set, type, e)))
                        mark(g, ref, type, set.n, may);
                if (!code && act_fp8)
                        code = act_columns(ck, weights, act_fp8, e);
        }
        weight_map_free(map);
        weight_map_free(names);
        checkpoint_close(ck);
        text_free(&text);
        free(may);
        free(type);
        free(ref);
        free(p);
        return code;
}

/* What rules of mixtures ask, of a graph. */
static MixtureModel model_of(const Graph *g)
{
        MixtureModel m = { .tied = true };
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *x = &g->node[r];
                int layer;
                if (x->op == OP_ATTENTION) {
                        const int64_t kv = NODE(g, x->in[1])->type.dim[2].n;
                        m.grouped |= kv && NODE(g, x->in[0])->type.dim[2].n / kv >= 4;
                }
                if (x->op != OP_PARAM)
                        continue;
                m.tied &= strcmp(x->name, "logits.weight") != 0;
                if (sscanf(x->name, "blk%d.", &layer) == 1 && layer >= m.n_layers)
                        m.n_layers = layer + 1;
                if (x->type.rank == 3)
                        m.experts = x->type.dim[0].n;
        }
        return m;
}

/* What a quantised folder has: CK_* of the linears in its layers; -1: a mixture's name. */
static int folder_type(const char *name)
{
        static const struct {
                const char *name;
                int type;
        } types[] = { { "int4:32", CK_I4_32 }, { "int4:64", CK_I4_64 }, { "int4:128", CK_I4_128 },
                      { "nf4", CK_NF4 },       { "fp8", CK_F8_128 },    { "fp8:128", CK_F8_128 } };
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
                if (!strcmp(name, types[i].name))
                        return types[i].type;
        return -1;
}

int keep_mixture(Model *m, const char *mixture, int *act_fp8, Err *e)
{
        Graph *g = m->graph;
        const size_t most = (size_t)g->n_nodes;
        WeightParam *p = calloc(most, sizeof *p);
        Ref *ref = calloc(most, sizeof *ref);
        int *type = calloc(most, sizeof *type), code = TGC_OK;
        bool *may = calloc(most, sizeof *may);
        const int folder = folder_type(mixture),
                  number = mixture_find(folder < 0 ? mixture : "q8_0");
        if (!p || !ref || !type || !may) {
                code = err_set(e, TGC_NO_MEMORY, "--weight-type %s: no memory", mixture);
        } else {
                const MixtureModel facts = model_of(g);
                const int n = params_of(g, p, ref);
                for (int i = 0; i < n; i++) {
                        const int64_t cols = p[i].rank ? p[i].dim[p[i].rank - 1] : 0;
                        type[i] = mixture_type_of(number, &facts, p[i].name, p[i].rank, cols);
                        if (folder >= 0)
                                type[i] = type[i] < 0 || strncmp(p[i].name, "blk", 3) ||
                                                          cols % ck_block_values(folder)
                                                  ? -1
                                                  : folder;
                }
                storage_mark(g, may);
                mark(g, ref, type, n, may);
                if (act_fp8 && !strcmp(mixture, "fp8:128"))
                        *act_fp8 = 128;
        }
        free(may);
        free(type);
        free(ref);
        free(p);
        return code;
}
