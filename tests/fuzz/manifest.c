/* manifest.c: a plan's manifest */
#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../runtime/plan/manifest.h"

FUZZ(manifest)
{
        Manifest m;
        Err e;

        if (manifest_parse(&m, (const char *)data, n, &e)) {
                HOLDS(*e.msg);
                return;
        }
        for (int i = 0; i < m.n_params; i++) {
                const Param *p = &m.param[i];
                HOLDS(p->offset + p->count <= m.n_all &&
                      (!p->trainable || p->offset + p->count <= m.n_train));
                HOLDS(manifest_param(&m, p->name) == i);
        }
        manifest_free(&m);
}
