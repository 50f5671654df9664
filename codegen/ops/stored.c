/* stored.c: emits, on CUDA, GEMMs whose weights lie in blocks (Node storage;
 * kernels/common/stored.cuh).
 *
 * For a few rows of x, gemv_stored.cuh or gemv_chunks.cuh reads the blocks.  For more rows of 16
 * bits gemm_stored.cuh does, and its forms on sm_90a.  Any other kernel gets its weight decoded by
 * a launch before it, into memory of the activations' arena, which the next GEMM uses again.  The
 * kernel that follows waits for that launch before it reads.  Where sm_90a alone has a kernel over
 * blocks (gemm_stored_persistent_sm90.cuh, many rows), that launch is left out there. */
#include "ops.h"

Storage blocks_of(const Emit *e, Ref base)
{
        return e->decoded && e->decoded[base] ? STORAGE_PLAIN : node_storage(NODE(e->g, base));
}

void blocks_decode(Emit *e, const Group *gr, Ref param, bool on_sm90a)
{
        enum { THREADS = 128, BLOCK = THREADS / 32 * 1024 }; /* 1024: STORED_DECODED of a warp */
        const Node *p = NODE(e->g, param);
        const Storage s = node_storage(p);
        const long long n = type_elems(&p->type).n;
        const int size = dt_size[p->type.dt], work = work_new(e, DIM(n), size);
        const char *type = c_type(p->type.dt);
        Build b = build_start(e, gr, "stored_decode", "decode");
        const char *from = arg_of(e, &b.args, param, false),
                   *to = arg_work(e, &b.args, work, ctype_of(p->type.dt), "decoded");
        b.any.threads = THREADS;
        b.bytes = (double)storage_bytes(s, n) + (double)n * size;
        build_line(&b, "stored_decode_task<Stored_%s, %s, %d>(a.%s, a.%s, %lldl, tile);",
                   storage_name[s], type, THREADS, to, from, n);
        if (!on_sm90a)
                form_leave_out(&b, ARCH_SM90A);
        build_end(&b, grid_blocks((n + BLOCK - 1) / BLOCK));
        e->decoded[param] = work + 1;
}

const char *blocks_arg(Emit *e, Args *a, Ref param)
{
        const int decoded = e->decoded ? e->decoded[param] : 0;
        if (decoded)
                e->decoded[param] = 0;
        const char *name = arg_of(e, a, param, false);
        if (decoded)
                e->decoded[param] = decoded;
        return name;
}

void blocks_done(Emit *e, Ref param) { e->decoded[param] = 0; }

/* What a lane reads at once, in units of 16 values, and how many scales they have
 * (kernels/common/stored_dot.cuh); are the codes bytes?  A type that is not here is read by chunks
 * of 32 values. */
typedef struct Lane {
        int units, runs;
        bool bytes;
} Lane;

static Lane lane_of(Storage s)
{
        switch (s) {
        case STORAGE_NVFP4: return (Lane) { 2, 2, true };
        case STORAGE_Q4_K:
        case STORAGE_Q5_K: return (Lane) { 4, 2, true };
        case STORAGE_Q2_K:
        case STORAGE_Q3_K:
        case STORAGE_Q6_K: return (Lane) { 4, 4, true };
        case STORAGE_Q4_0:
        case STORAGE_Q4_1:
        case STORAGE_Q5_0:
        case STORAGE_Q5_1:
        case STORAGE_Q8_0:
        case STORAGE_IQ4_NL:
        case STORAGE_IQ4_XS:
        case STORAGE_MXFP4:
        case STORAGE_I4_32:
        case STORAGE_I4_64:
        case STORAGE_I4_128:
        case STORAGE_I8_32:
        case STORAGE_I8_64:
        case STORAGE_I8_128:
        case STORAGE_SCB_32:
        case STORAGE_SCB_64:
        case STORAGE_SCB_128: return (Lane) { 2, 1, true };
        default: return (Lane) { 2, 1, false };
        }
}

int gemv_stored_threads(Storage s)
{
        const int values = storage_values(s);
        const Lane lane = lane_of(s);
        return 32 * (lane.bytes
                             ? gemv_stored_warps(values, (int)storage_bytes(s, values), lane.units)
                             : 8);
}

/* prologue, gain, keep and epilogue are there; ends the kernel. */
void gemv_stored(Build *b, const Mat *w, int M, int64_t N, int64_t K, NormKind norm,
                 const char *eps, const char *finish, const char *keep)
{
        enum { ROWS = 2 };
        Emit *e = b->e;
        const Storage type = w->blocks;
        const Lane lane = lane_of(type);
        const int digits = w->dt == DT_F32 ? 3 : 2;
        const char *problem = arena_fmt(e->tmp, "Stored_%s, %d, %lld, %lld", storage_name[type], M,
                                        (long long)N, (long long)K);
        const int threads = gemv_stored_threads(type);
        int cols;
        b->any.threads = threads;
        const GemvStoredWork work = { .blocks = type,
                                      .dt = w->dt,
                                      .units = lane.units,
                                      .runs = lane.runs,
                                      .M = M,
                                      .N = N,
                                      .K = K,
                                      .norm = norm,
                                      .operands = arena_fmt(e->tmp, "%s, %s, %s", w->arg, w->ld,
                                                            eps),
                                      .finish = finish };
        const bool form = !keep && w->stride == K && forms_add(b, FAMILY_gemv_stored, &work);
        if (lane.bytes) {
                const GemvStored s = gemv_stored_shape(
                        storage_values(type), (int)storage_bytes(type, storage_values(type)),
                        lane.units, lane.runs, digits, M, N, (int)K, ANY_SMS);
                b->any.include = "gemv_stored";
                b->any.smem = s.smem;
                b->any.min_blocks = 2; /* of two launches */
                b->any.waits = b->late = true;
                cols = s.cols;
                build_line(b,
                           "gemv_stored_task<%s, %d, DotTile<%d, %d, %d, %d, %d, %d>, %s>(%s, %s, "
                           "%s, tile, smem, prologue, epilogue%s);",
                           problem, digits, s.warps, s.rows, s.split, s.rounds, s.stages, s.ksteps,
                           norm_text(norm), w->arg, w->ld, eps, finish);
        } else {
                const GemvChunks s = gemv_chunks_shape(M, (int)K, threads, ROWS);
                b->any.include = "gemv_chunks";
                b->any.smem = s.smem;
                cols = s.cols;
                if (form) { /* which waits for itself */
                        b->any.waits = b->late = true;
                        build_line(b, "pdl_wait();");
                }
                build_line(b,
                           "gemv_chunks_task<%s, %d, %d, %s>(%s, %s, %s, tile, smem, prologue, "
                           "epilogue%s);",
                           problem, threads, ROWS, norm_text(norm), w->arg, w->ld, eps, finish);
        }
        if (keep)
                build_line(b, "%s", keep);
        build_end(b, grid_ceil(e, DIM(N), cols));
}

bool gemm_stored_problem(Emit *e, Ref x, Ref w, Dim M, StoredGemm *p)
{
        const Node *n = NODE(e->g, w);
        const Ref base = value_base(e->g, x);
        if (n->type.rank != 2 || NODE(e->g, base)->type.dt != n->type.dt ||
            !stored_gemm_takes(node_storage(n), n->type.dt))
                return false;
        *p = (StoredGemm) { .dt = n->type.dt,
                            .blocks = node_storage(n),
                            .M = dim_most(e, M),
                            .N = n->type.dim[0].n,
                            .K = n->type.dim[1].n,
                            .rows = M,
                            .splits = !e->ragged && dim_known(e, M),
                            .M_text = dim_c(e, M),
                            .w = w };
        p->boxes = slot_of(e, x, &p->x, &p->ldx) && p->ldx % 8 == 0 && p->x.off % 16 == 0;
        return storage_bytes(p->blocks, p->N * p->K) <= INT32_MAX;
}

bool gemm_stored(Build *b, Ref x, Ref w, Dim M)
{
        Emit *e = b->e;
        StoredGemm p;
        Mat a, blocks;
        StoredPick k = { 0 };
        const Ref base = value_base(e->g, x);
        const bool codes = sm90_fp8_codes(e, base), takes = gemm_stored_problem(e, x, w, M, &p);
        if (takes && codes) {
                const int64_t columns = NODE(e->g, base)->a.k.k;
                p.columns = columns && columns < p.K ? columns : p.K;
                p.codes = "";
        }
        if (!takes || !(k = stored_gemm_pick(&p)).t) {
                if (codes)
                        error_internal(NODE(e->g, w)->loc,
                                       "%s meets codes, and has no kernel for them",
                                       NODE(e->g, w)->name);
                return false;
        }
        mat_need(e, b, x, 0, &a);
        mat_need(e, b, w, 0, &blocks);
        p.align = align_bytes(p.dt, a.align | p.K);
        p.operands = arena_fmt(e->tmp, "%s, %s, %s", a.arg, a.ld, blocks.arg);
        if (p.codes && !p.boxes)
                error_internal(NODE(e->g, w)->loc, "%s has no memory of its own",
                               NODE(e->g, x)->name);
        if (p.codes)
                p.codes = arena_fmt(e->tmp, "(const unsigned char *)%s, %lldl, %s", a.arg,
                                    (long long)(2 * p.K), blocks.arg);
        /* programs of different numbers of sequences share kernels */
        if (e->paged && dim_known(e, M))
                p.M_text = arena_fmt(e->tmp, "*a.%s", arg_int(e, &b->args, (int)p.M, "rows"));
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
