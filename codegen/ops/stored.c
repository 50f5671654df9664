/* stored.c: on CUDA, products whose weights lie in blocks (Node storage; kernels/common/stored.cuh).
 *
 * A few rows of x: gemv_stored.cuh decodes as it reads.  More rows of 16 bits: gemm_stored.cuh does.
 * Another kernel that knows no blocks: a launch of its own decodes the weight, once for the product, into memory of the
 * activations' arena, which the next product uses again.  The kernel that follows waits for it
 * before it reads. */
#include "ops.h"

Storage blocks_of(const Emit *e, Ref base)
{
        return e->decoded && e->decoded[base] ? STORAGE_PLAIN : node_storage(NODE(e->g, base));
}

void blocks_decode(Emit *e, const Group *gr, Ref param)
{
        enum { THREADS = 128 };
        const Node *p = NODE(e->g, param);
        const Storage s = node_storage(p);
        const long long n = type_elems(&p->type).n;
        const int size = dt_size[p->type.dt], work = work_new(e, DIM(n), size);
        const char *type = c_type(p->type.dt);
        Build b = build_start(e, gr, "stored", "decode");
        const char *from = arg_of(e, &b.args, param, false),
                   *to = arg_work(e, &b.args, work, type, "decoded");
        b.any.threads = THREADS;
        b.bytes = (double)storage_bytes(s, n) + (double)n * size;
        build_line(&b, "stored_decode_task<Stored_%s, %s, %d>(a.%s, a.%s, %lldl, tile);",
                   storage_name[s], type, THREADS, to, from, n);
        build_end(&b, arena_fmt(e->tmp, "%lld", (n / 32 + THREADS - 1) / THREADS));
        e->decoded[param] = work + 1;
}

void blocks_done(Emit *e, Ref param) { e->decoded[param] = 0; }

/* prologue, gain, keep and epilogue are there; ends the kernel. */
void gemv_stored(Build *b, const Mat *w, int M, int64_t N, int64_t K, const char *norm,
                 const char *eps, const char *finish, const char *keep)
{
        enum { THREADS = GEMV_STORED_THREADS, ROWS = 2 };
        const GemvStored s = gemv_stored_shape(M, (int)K, THREADS, ROWS);
        b->any.include = "gemv_stored";
        b->any.threads = THREADS;
        b->any.smem = s.smem;
        build_line(
                b,
                "gemv_stored_task<Stored_%s, %d, %lld, %lld, %d, %d, %s>(%s, %s, %s, tile, smem, "
                "prologue, epilogue%s);",
                storage_name[w->blocks], M, (long long)N, (long long)K, THREADS, ROWS, norm, w->arg,
                w->ld, eps, finish);
        if (keep)
                build_line(b, "%s", keep);
        build_end(b, arena_fmt(b->e->tmp, "ceil(%lld/%d)", (long long)N, s.cols));
}

bool gemm_stored(Build *b, Ref x, Ref w, Dim M)
{
        Emit *e = b->e;
        const Node *n = NODE(e->g, w);
        StoredGemm p = { .dt = n->type.dt,
                         .blocks = blocks_of(e, w),
                         .M = dim_most(e, M),
                         .N = n->type.dim[0].n,
                         .K = n->type.dim[1].n,
                         .rows = M,
                         .splits = !e->ragged && dim_known(e, M) };
        Mat a, blocks;
        StoredPick k;
        if (n->type.rank != 2 || NODE(e->g, value_base(e->g, x))->type.dt != p.dt ||
            !stored_gemm_takes(p.blocks, p.dt) ||
            storage_bytes(p.blocks, p.N * p.K) > INT32_MAX || !(k = stored_gemm_pick(&p)).t)
                return false;
        mat_need(e, b, x, 0, &a);
        mat_need(e, b, w, 0, &blocks);
        p.align = align_bytes(p.dt, a.align, pow2_of(DIM(p.K)));
        p.operands = arena_fmt(e->tmp, "%s, %s, %s", a.arg, a.ld, blocks.arg);
        /* programs of different numbers of sequences share kernels */
        p.M_text = e->paged && dim_known(e, M)
                           ? arena_fmt(e->tmp, "*a.%s", arg_int(e, &b->args, (int)p.M, "rows"))
                           : dim_c(e, M);
        build_functor(b, &b->gr->epilogue[0], "epilogue");
        build_line(b, "\1_epilogue epilogue = { a };");
        b->flops = 2.0 * (double)p.M * (double)p.N * (double)p.K;
        b->bytes += (double)storage_bytes(p.blocks, p.N * p.K) +
                    (double)p.M * (double)p.K * dt_size[p.dt];
        b->alone = true;
        forms_add(b, FAMILY_stored_gemm, &p);
        stored_gemm_body(b, &p, &k, &b->any);
        build_end(b, b->any.grid);
        return true;
}
