/* sm90_gemv_stored.c: linears of few rows with block-quantised weights on sm_90a
 * (kernels/gemv/gemv_stored_sm90.cuh).  Every number of rows takes this form, so that a row's bits
 * do not depend on its company. */
#include "forms.h"
#include "gemv_shape.h"
#include <string.h>

bool sm90_gemv_stored(Build *b, const void *problem)
{
        const GemvStoredWork *p = problem;
        const int values = storage_values(p->blocks);
        if (p->dt == DT_F32 || p->norm == NORM_LAYER)
                return false;
        const GemvBlocksMma s = gemv_blocks_mma(values, (int)storage_bytes(p->blocks, values),
                                                p->units, p->runs, p->M, p->N, (int)p->K,
                                                SM90A_SMS);
        if (!s.blocks)
                return false;
        Form *f = form_begin(b, ARCH_SM90A, "gemv_stored_sm90");
        f->threads = (s.warps + 1) * 32;
        f->smem = s.smem;
        f->min_blocks = 2; /* of two launches */
        f->cluster = 1;    /* all blocks run, also where launches are joined or a GPU is smaller */
        f->grid = grid_blocks(s.blocks);
        f->waits = true;
        b->joins = true;
        build_line(b,
                   "gemv_stored_sm90_task<Stored_%s, %d, %lld, %lld, BlocksMmaTile<%d, %d, %d, %d, "
                   "%d>, %s>(%s, tile, smem, prologue, epilogue%s);",
                   storage_name[p->blocks], p->M, (long long)p->N, (long long)p->K, s.warps,
                   s.blocks, s.stages, s.ksteps, s.group, norm_text(p->norm), p->operands,
                   p->finish);
        return true;
}
