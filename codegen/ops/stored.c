/* stored.c: on CUDA, products whose weights lie in blocks (Node storage; kernels/common/stored.cuh).
 *
 * A few rows of x: gemv_stored.cuh decodes as it reads.  More rows, or another kernel that knows no
 * blocks: a launch of its own decodes the weight, once for the product, into memory of the
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
