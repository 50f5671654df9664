/* eval_models.h: models with the weights of a checkpoint, computed in double precision. */
#ifndef TGC_EVAL_MODELS_H
#define TGC_EVAL_MODELS_H

#include "../runtime/weights/checkpoint.h"
#include "../runtime/weights/weight_map.h"
#include "read_models.h"

typedef struct Loaded {
        Model *m;
        WeightParam *p;
        float **data;
        int n;
} Loaded;

/* All parameters of m from a checkpoint, which must hold nothing else.  names: how its tensors make
 * those that m's map names (weight_map_compose); NULL: they are called so. */
static inline Loaded load_named(Model *m, const char *path, const char *names)
{
        Loaded l = { .m = m };
        WeightMap *map, *more = NULL;
        WeightReport report = { 0 };
        Checkpoint *ck;
        Text text = { 0 };
        model_map_text(m, &text);
        l.p = calloc((size_t)m->graph->n_nodes, sizeof *l.p);
        l.data = calloc((size_t)m->graph->n_nodes, sizeof *l.data);
        for (Ref r = 1; r < m->graph->n_nodes; r++) {
                const Node *n = NODE(m->graph, r);
                if (n->op != OP_PARAM)
                        continue;
                WeightParam *p = &l.p[l.n];
                *p = (WeightParam) { .name = n->name, .dtype = CK_F32, .rank = n->type.rank };
                for (int i = 0; i < p->rank; i++)
                        p->dim[i] = n->type.dim[i].n;
                p->data = l.data[l.n++] = calloc((size_t)type_elems(&n->type).n, sizeof(float));
        }
        CHECK_MSG(!weight_map_parse(&map, text.s, path, &err), "%s", err.msg);
        CHECK_MSG(!checkpoint_open(&ck, path, &err), "%s", err.msg);
        CHECK_MSG(!names || (!weight_map_parse(&more, names, path, &err) &&
                             !weight_map_compose(map, more, ck, &err)),
                  "%s", err.msg);
        WeightSet set = { .n = l.n, .param = l.p };
        CHECK_MSG(!weight_map_import(map, ck, &set, &report, &err), "%s: %s", path, err.msg);
        CHECK_MSG(!report.n_absent, "%s: parameter %s was not filled", path, report.absent[0]);
        weight_report_free(&report);
        weight_map_free(map);
        weight_map_free(more);
        checkpoint_close(ck);
        text_free(&text);
        return l;
}

static inline Loaded load(Model *m, const char *path) { return load_named(m, path, NULL); }

static inline void unload(Loaded *l)
{
        for (int i = 0; i < l->n; i++)
                free(l->data[i]);
        free(l->data);
        free(l->p);
        model_free(l->m);
}

static inline Eval *evaluate(Loaded *l, int b, int t, const double *ids, const double *targets)
{
        EvalCtx c = {
                .sizes = { { b, t, t } }, .share = 1, .inv_tokens = 1.0 / (b * t), .n_micro = 1
        };
        Eval *e = eval_new(l->m->graph, &c);
        for (int i = 0; i < l->n; i++) {
                int64_t n = 1;
                for (int k = 0; k < l->p[i].rank; k++)
                        n *= l->p[i].dim[k];
                double *v = malloc((size_t)n * sizeof *v);
                for (int64_t k = 0; k < n; k++)
                        v[k] = l->data[i][k];
                eval_set(e, l->p[i].name, v, n);
                free(v);
        }
        eval_set(e, "ids", ids, b * t);
        eval_set(e, "targets", targets, b * t);
        eval_run(e);
        return e;
}

static inline Model *hf_model(const char *dir, const Defines *defines)
{
        char *config = NULL;
        CHECK_MSG(!hf_config_read(dir, &config, &err), "%s", err.msg);
        Model *m = family(NULL, config, defines);
        free(config);
        return m;
}

#endif
