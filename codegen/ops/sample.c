/* sample.c: emits the sampler, one tile for each row of a call.
 *
 * Arena `keep` holds the slots of sequences (runtime/rt.h, the ABI of kernels and runtime) and the
 * drawn tokens.  Each is one array, which all decode programs of a plan share. */
#include "../../runtime/rt.h"
#include "ops.h"

void gen_sample(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Type *t = &NODE(e->g, n->in[0])->type;
        const Dim rows = t->dim[0];
        Access a;
        const int64_t V = t->dim[t->rank - 1].n, cap = RT_HISTORY_OF(e->g->sizes.v[SYM_S]),
                      slots = e->slots, cuda = is_cuda(e);
        access_need(e->g, e->place, n->in[0], &a);
        if (NODE(e->g, a.base)->type.dt != DT_F32)
                error_at(n->loc, "sample: logits are float32");
        Build b = build_start(e, gr, "sample", "sample");
        const char *logits = arg_of(e, &b.args, a.base, true),
                   *next = arg_of(e, &b.args, gr->anchor, true);
        const char *scratch = arg_work(e, &b.args,
                                       work_new(e, dim_mul(rows, DIM(cuda ? V : 2 * V)), 4), C_F32,
                                       "scratch");
        const char *slot = arg_work(e, &b.args,
                                    work_keep(e, DIM(slots * RT_SLOT_WORDS(V, cap)), 4, "slots"),
                                    C_I32, "slots");
        const char *drawn = arg_work(e, &b.args,
                                     work_keep(e,
                                               DIM(slots * RT_DRAWN * (int64_t)sizeof(RtDrawn) / 4),
                                               4, "drawn"),
                                     C_I32, "drawn");
        b.bytes = (double)V * 4;
        if (cuda) {
                b.any.threads = 1024;
                b.any.smem = 1024 + 8 * 4096;
                build_line(
                        &b,
                        "sample_task<%lld, %lld, 1024>((Rt *)rt, a.%s, %lld, a.%s, a.%s, (RtDrawn "
                        "*)a.%s, %lld, a.%s, tile, smem);",
                        (long long)V, (long long)cap, logits, (long long)V, scratch, slot, drawn,
                        (long long)slots, next);
                build_end(&b, grid_dim(e, rows));
        } else {
                build_line(&b, "for (long tile = 0; tile < %s; tile++)",
                           e->ragged ? dim_c(e, rows) : "B");
                build_line(&b,
                           "        sample_task((Rt *)rt, a.%s, %lld, %lld, a.%s, a.%s, (RtDrawn "
                           "*)a.%s, %lld, %lld, a.%s, tile);",
                           logits, (long long)V, (long long)V, scratch, slot, drawn,
                           (long long)slots, (long long)cap, next);
                build_end(&b, grid_blocks(1));
        }
}
