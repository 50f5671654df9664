/* weight_map.c: the text of a weight map.  It is printed to what reads back the same; weights of a
 * small checkpoint go through it into small parameters, and out again. */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../runtime/weights/weight_map.h"

static const struct {
        const char *name;
        int rank;
        int64_t dim[3];
} map_tensor[] = {
        { "a", 2, { 4, 6 } }, { "b", 1, { 6 } }, { "c", 3, { 2, 4, 6 } },
        { "d.weight", 2, { 8, 4 } },
        { "e", 0, { 0 } },
}, map_param[] = {
        { "p", 2, { 4, 6 } }, { "q", 1, { 6 } }, { "r", 2, { 6, 4 } }, { "s", 3, { 2, 4, 6 } },
        { "t", 2, { 8, 6 } }, { "u", 0, { 0 } },
};
enum {
        N_TENSORS = sizeof map_tensor / sizeof *map_tensor,
        N_PARAMS = sizeof map_param / sizeof *map_param
};

static void move_weights(WeightMap *m, unsigned which)
{
        WeightParam p[N_PARAMS];
        Checkpoint *ck;
        int64_t n;
        int n_params = 0;
        float *data[N_TENSORS];
        Err e;

        HOLDS(!checkpoint_new(&ck, "fuzz", &e));
        for (int i = 0; i < N_TENSORS; i++) {
                CkTensor t = { .name = map_tensor[i].name,
                               .dtype = CK_F32,
                               .rank = map_tensor[i].rank };
                memcpy(t.dim, map_tensor[i].dim, sizeof map_tensor[i].dim);
                HOLDS(ck_count(t.rank, t.dim, &n));
                t.bytes = (size_t)n * 4;
                t.data = data[i] = malloc(t.bytes);
                for (int64_t k = 0; k < n; k++)
                        data[i][k] = (float)(i * 64 + k);
                HOLDS(!checkpoint_add(ck, &t, &e));
        }
        HOLDS(!checkpoint_seal(ck, &e));
        weight_map_annotate(m, ck);
        for (int i = 0; i < N_PARAMS; i++)
                if (which >> i & 1) {
                        WeightParam *x = &p[n_params++];
                        *x = (WeightParam) { .name = map_param[i].name,
                                             .dtype = CK_F32,
                                             .rank = map_param[i].rank };
                        memcpy(x->dim, map_param[i].dim, sizeof map_param[i].dim);
                        HOLDS(ck_count(x->rank, x->dim, &n));
                        x->data = calloc((size_t)n, 4);
                }
        WeightSet set = { .n = n_params, .param = p };
        WeightReport report = { 0 };
        if (!weight_map_import(m, ck, &set, &report, &e)) {
                weight_report_free(&report);
                weight_map_export(m, &set, CK_BF16, "/dev/null", NULL, 0, &e);
        }
        for (int i = 0; i < n_params; i++)
                free(p[i].data);
        for (int i = 0; i < N_TENSORS; i++)
                free(data[i]);
        checkpoint_close(ck);
}

FUZZ(weight_map)
{
        char *text = text_of_bytes(data, n), *once, *twice;
        WeightMap *m, *again;
        unsigned which = 0;
        Err e;

        for (size_t i = 0; i < N_PARAMS; i++) { /* those that it names */
                char line[32];
                snprintf(line, sizeof line, "map %s", map_param[i].name);
                for (const char *s = text; (s = strstr(s, line)); s++)
                        which |= strchr(" [=", s[strlen(line)]) && s[strlen(line)] ? 1u << i : 0;
        }
        if (!weight_map_parse(&m, text, "fuzz", &e)) {
                HOLDS((once = weight_map_print(m)) && !weight_map_parse(&again, once, "again", &e));
                HOLDS((twice = weight_map_print(again)) && !strcmp(once, twice));
                move_weights(m, which);
                weight_map_free(m);
                weight_map_free(again);
                free(once);
                free(twice);
        } else {
                HOLDS(*e.msg);
        }
        free(text);
}
