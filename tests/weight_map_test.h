/* weight_map_test.h: checkpoints and models in memory, for tests of weight maps. */
#ifndef WEIGHT_MAP_TEST_H
#define WEIGHT_MAP_TEST_H

#include <stdlib.h>
#include <unistd.h>
#include "../runtime/util/file.h"
#include "../runtime/weights/weight_map.h"
#include "test.h"

static Err err;
static char out_path[300], out_path2[310];

__attribute__((constructor)) static void make_path(void)
{
        const char *base = getenv("TMPDIR");
        snprintf(out_path, sizeof out_path, "%s/tgc-weight-map-%ld", base ? base : P_tmpdir,
                 (long)getpid());
        snprintf(out_path2, sizeof out_path2, "%s-2", out_path);
}

__attribute__((destructor)) static void remove_path(void)
{
        unlink(out_path);
        unlink(out_path2);
}

static unsigned long long random_state = 1;
static inline int random_below(int n)
{
        random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
        return (int)((random_state >> 33) % (unsigned)n);
}

/* A checkpoint in memory: tensors whose element i is i (float32), given as "name 3x4, name2 5". */
static inline Checkpoint *numbers(const char *spec)
{
        Checkpoint *ck;
        char *text = strdup(spec), *save, *w;

        CHECK(!checkpoint_new(&ck, "mem", &err) && !checkpoint_own(ck, free, text, &err));
        for (w = strtok_r(text, ",", &save); w; w = strtok_r(0, ",", &save)) {
                CkTensor t = { .dtype = CK_F32 };
                char *sp;
                int64_t n;
                float *v;

                while (*w == ' ')
                        w++;
                t.name = w;
                sp = strchr(w, ' ');
                if (sp) {
                        *sp++ = 0;
                        while (*sp) {
                                t.dim[t.rank++] = strtoll(sp, &sp, 10);
                                sp += *sp == 'x';
                        }
                }
                CHECK(ck_count(t.rank, t.dim, &n));
                t.bytes = 4 * (size_t)n;
                v = malloc(t.bytes + 1);
                for (int64_t i = 0; i < n; i++)
                        v[i] = (float)i;
                t.data = v;
                CHECK(!checkpoint_own(ck, free, v, &err) && !checkpoint_add(ck, &t, &err));
        }
        CHECK(!checkpoint_seal(ck, &err));
        return ck;
}

/* Parameters from the same spec, float32, filled with -1. */
typedef struct Model {
        WeightParam p[32];
        WeightSet set;
        char *text;
} Model;

static inline void model_make(Model *m, const char *spec, int dtype)
{
        char *save, *w;

        memset(m, 0, sizeof *m);
        m->text = strdup(spec);
        m->set.param = m->p;
        for (w = strtok_r(m->text, ",", &save); w; w = strtok_r(0, ",", &save)) {
                WeightParam *p = &m->p[m->set.n++];
                char *sp;
                int64_t n;
                float minus = -1;

                while (*w == ' ')
                        w++;
                p->name = w;
                p->dtype = dtype;
                sp = strchr(w, ' ');
                if (sp) {
                        *sp++ = 0;
                        while (*sp) {
                                p->dim[p->rank++] = strtoll(sp, &sp, 10);
                                sp += *sp == 'x';
                        }
                }
                CHECK(ck_count(p->rank, p->dim, &n));
                p->data = malloc((size_t)n * ck_dtype_size(dtype) + 1);
                for (int64_t i = 0; i < n; i++)
                        ck_convert((char *)p->data + (size_t)i * ck_dtype_size(dtype), dtype,
                                   &minus, CK_F32, 1, 1);
        }
}

static inline void model_free(Model *m)
{
        for (int i = 0; i < m->set.n; i++)
                free(m->p[i].data);
        free(m->text);
}

static inline WeightMap *parse(const char *text)
{
        WeightMap *m;
        CHECK_MSG(!weight_map_parse(&m, text, "test.map", &err), "%s", err.msg);
        return m;
}

#endif
