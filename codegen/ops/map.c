/* map.c: emits a group without an anchor: one pass over its elements. */
#include "ops.h"

/* Nothing of it is a function, whose kind others of a launch might want otherwise. */
static bool calls_none(const Graph *g, const Functor *f)
{
        bool none = true;
        for (int i = 0; i < f->n_nodes; i++)
                none &= op_is(NODE(g, f->node[i])->op, FACT_PLAIN);
        return none;
}

void gen_map(Emit *e, const Group *gr)
{
        const Functor *f = &gr->epilogue[0];
        Build b = build_start(e, gr, "map",
                              op_info[NODE(e->g, gr->node[gr->n_nodes - 1])->op].text);
        b.any.include = is_cuda(e) ? "map" : "rows";
        build_functor(&b, f, "body");
        const char *rows = dim_c(e, f->rows);
        if (is_cuda(e)) {
                b.any.threads = 256;
                b.plain = calls_none(e->g, f);
                build_line(&b, "\1_body body = { a };");
                build_line(&b, "map_task<256, %lld>(%s, tile, body);", (long long)f->n, rows);
                build_end(&b, grid_ceil(e, dim_mul(f->rows, DIM(f->n)), 256 * 16));
        } else {
                build_cpu_loop(&b, arena_fmt(e->tmp, "map_tiles(%s, %lld)", rows, (long long)f->n),
                               b.flops * 4,
                               arena_fmt(e->tmp, "map_task(%s, %lld, tile, &a, \1_body);", rows,
                                         (long long)f->n));
                build_end(&b, grid_blocks(1));
        }
}
