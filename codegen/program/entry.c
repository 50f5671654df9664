/* entry.c: turns pieces into entry points; equal entry points become one kernel.
 *
 * A kernel of one piece gives all its blocks to that piece.  A kernel of several picks the piece by
 * the block's number, and the arguments too if pieces are equal:
 *
 *      k3(const Rt *rt, float *p0_y, const float *p0_x, float *p1_sum, ..., float *p2_sum, ...)
 *              if (block < 128) {                      piece 0
 *                      const k3_0_args a = { rt, p0_y, p0_x };
 *                      const int tile = block;
 *                      ...
 *              } else if (block < 128 + 2 * 12) {      pieces 1 and 2, which are equal
 *
 * Pieces that run one after the other are brace blocks with barriers between them.
 *
 * Tensor maps are kernel parameters by value; pieces get the parameter's address.
 *
 * Texts hold \1 in place of the kernel's name, so that the kernels of equal layers are equal
 * texts. */
#include "program.h"
#include <stdlib.h>
#include <string.h>

static bool text_equal(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool form_equal(const Form *a, const Form *b)
{
        return text_equal(a->include, b->include) && text_equal(a->decl, b->decl) &&
               text_equal(a->body, b->body) && grid_equal(&a->grid, &b->grid) &&
               a->threads == b->threads && a->smem == b->smem && a->min_blocks == b->min_blocks;
}

bool piece_equal(const Piece *a, const Piece *b)
{
        bool forms = true;
        for (int i = 0; i < N_ARCHS && forms; i++)
                forms = form_equal(&a->form[i], &b->form[i]);
        return forms && !strcmp(a->decl, b->decl) && !strcmp(a->body, b->body) &&
               text_equal(a->tile, b->tile) && text_equal(a->prefetches, b->prefetches) &&
               a->fast == b->fast;
}

/* How many pieces from i on are equal. */
static int run_of(Piece *const *p, int n, int i)
{
        int k = 1;
        while (i + k < n && piece_equal(p[i], p[i + k]))
                k++;
        return k;
}

/* ---- entry points -------------------------------------------------------- */

/* On the GPU every kernel is started before the one before it has ended, and waits for that
 * itself (pdl_wait in ptx.cuh), each block before it touches memory that another kernel
 * writes: so the kernel before that one has ended too, and copies and events, which wait for
 * a whole kernel, mean what they did. */
static bool has_pdl(const Emit *e) { return is_cuda(e); }

static bool one_token(const Emit *e) { return e->g->sizes.v[SYM_T] == 1; }

/* One token, or a prompt too short to fill the GPU: the kernel after comes as soon as all blocks of
 * this one run (pdl_launch), and loads weights meanwhile.  Otherwise only where launch_overlap.c
 * says so: blocks that wait beside running ones are spread unevenly, which slows training
 * steps and long prompts (docs/notebook/training.md, prefill.md). */
enum { FEW_ROWS = 512 };
bool triggers_first(const Emit *e)
{
        return has_pdl(e) &&
               (one_token(e) || (!e->g->sizes.v[SYM_T] && e->most_b * e->most_t <= FEW_ROWS));
}

void text_as(Text *out, const char *text, const char *to, const char *indent)
{
        for (bool start = true; *text; text++) {
                if (start && *text != '\n')
                        text_add(out, "%s", indent);
                start = *text == '\n';
                if (*text == '\1')
                        text_add(out, "%s", to);
                else
                        text_put(out, text, 1);
        }
}

static void put_sizes(const Emit *e, Text *t)
{
        for (int i = SYM_B; i <= SYM_T; i++) {
                int64_t known = e->g->sizes.v[i];
                if (known)
                        text_add(t, "        const int %c = %lld;\n        (void)%c;\n", "BT"[i],
                                 (long long)known, "BT"[i]);
                else
                        text_add(t, "        const int %c = rt->%c;\n        (void)%c;\n", "BT"[i],
                                 "BT"[i], "BT"[i]);
        }
}

/* One token of one sequence whose weights an H100's L2 holds, with room for the cache and
 * values. */
static bool weights_stay(Emit *e)
{
        if (!has_pdl(e) || !one_token(e) || e->g->sizes.v[SYM_B] != 1)
                return false;
        for (Ref r = e->weights ? e->g->n_nodes : 1; r < e->g->n_nodes; r++) {
                if (e->g->node[r].op == OP_PARAM)
                        e->weights += buffer_bytes(e, &(Slot) { .kind = SLOT_NODE, .id = r });
        }
        return e->weights <= 40 << 20;
}

/* Some piece of it waits for the launch before by itself: then each of the others' branches
 * does. */
static bool one_waits(const Launch *l)
{
        bool one = false;
        for (int i = 0; i < l->n_pieces; i++)
                one |= form_waits(l->piece[i]);
        return one;
}

/* By a piece before the nth. */
static bool included(const Launch *l, int n, const char *name)
{
        for (int i = 0; i < n; i++) {
                const char *include[N_ARCHS + 1];
                form_includes(l->piece[i], include);
                for (int k = 0; include[k]; k++)
                        if (!strcmp(include[k], name))
                                return true;
        }
        return false;
}

/* The types of blocks that a launch reads. */
static uint64_t stored_by(const Emit *e, const Launch *l)
{
        uint64_t bits = 0;
        for (int i = 0; i < l->n_args; i++) {
                const Storage s = l->arg[i].kind == SLOT_NODE
                                          ? node_storage(NODE(e->g, l->arg[i].id))
                                          : STORAGE_PLAIN;
                bits |= (uint64_t)(s != 0) << s;
        }
        return bits;
}

static void put_includes(Emit *e, const Launch *l, Text *t)
{
        bool cuda = is_cuda(e), fast = false, weights = false;
        for (int i = 0; i < l->n_pieces; i++) {
                fast |= l->piece[i]->fast;
                weights |= l->piece[i]->streams;
        }
        if (cuda && fast)
                text_add(t, "#define TGC_FAST_MATH 1\n");
        if (e->m->tf32)
                text_add(t, "#define TGC_TF32 1\n");
        const uint64_t blocks = cuda ? stored_by(e, l) : 0;
        const Launch *next = launch_next(e, l);
        if (l->triggers_after_wait)
                text_add(t, "#define TGC_PDL_AFTER_WAIT 1\n");
        else if (l->triggers_late)
                text_add(t, "#define TGC_PDL_LATE 1\n");
        if (has_pdl(e) && !triggers_first(e) && next && next->overlaps)
                text_add(t, "#ifdef TGC_SM90A\n#define TGC_PDL_AFTER_WAIT 1\n#endif\n");
        if (weights && weights_stay(e))
                text_add(t, "#define TGC_WEIGHTS_STAY 1\n");
        for (int i = 0; i < l->n_pieces; i++) {
                const char *include[N_ARCHS + 1];
                form_includes(l->piece[i], include);
                for (int k = 0; include[k]; k++)
                        if (!included(l, i, include[k]))
                                text_add(t,
                                         cuda ? "#include \"%s.cuh\"\n" : "#include \"cpu_%s.h\"\n",
                                         include[k]);
        }
        if (blocks)
                text_add(t, "#include \"stored.cuh\"\n");
        stored_types_text(blocks, t);
        text_add(t, cuda ? "#include \"functor.cuh\"\n\n"
                         : "#include \"cpu_functor.h\"\n#include \"cpu_team.h\"\n\n");
        if (has_pdl(e))
                text_add(t, "#include \"ptx.cuh\"\n\n");
}

/* `extern "C" ... \1(const Rt *rt, ...` and the opening brace.  The names of several pieces'
 * arguments get the piece's number. */
static void put_signature(const Launch *l, int threads, int min_blocks, Text *t)
{
        const char *word = "#if";
        text_add(t, "extern \"C\" __global__ void");
        for (int i = ARCH_ANY + 1; i < N_ARCHS; i++)
                if (form_is(l->form, i)) {
                        text_add(t, "\n%s defined(%s)\n__launch_bounds__(%d, 1)%s", word,
                                 archs[i].macro, l->form[i].threads,
                                 l->piece[0]->form[i].pairs ? " __cluster_dims__(2, 1, 1)" : "");
                        word = "#elif";
                }
        if (word[1] == 'i')
                text_add(t, " __launch_bounds__(%d, %d)\n", threads, min_blocks);
        else
                text_add(t, "\n#else\n__launch_bounds__(%d, %d)\n#endif\n", threads, min_blocks);
        text_add(t, "\1(const Rt *rt");
        for (int i = 0; i < l->n_pieces; i++)
                for (int k = 0; k < l->piece[i]->n_args; k++)
                        if (l->n_pieces == 1)
                                text_add(t, ", %s%s", l->piece[i]->type[k], l->piece[i]->name[k]);
                        else
                                text_add(t, ", %sp%d_%s", l->piece[i]->type[k], i,
                                         l->piece[i]->name[k]);
        text_add(t, ")\n{\n");
}

static void put_args(const Launch *l, int i, Text *t)
{
        text_add(t, "{ rt");
        for (int k = 0; k < l->piece[i]->n_args; k++) {
                const char *by = l->piece[i]->type[k] == map_param ? "&" : "";
                if (l->n_pieces == 1)
                        text_add(t, ", %s%s", by, l->piece[i]->name[k]);
                else
                        text_add(t, ", %sp%d_%s", by, i, l->piece[i]->name[k]);
        }
        text_add(t, " }");
}

static void put_waits(const Emit *e, const Launch *l, bool waits, Text *t)
{
        if (triggers_first(e) && !l->triggers_after_wait && !l->triggers_late)
                text_add(t, "        pdl_launch();\n");
        if (has_pdl(e) && !waits)
                text_add(t, "        pdl_wait();\n");
}

/* Of piece p as `own`, its lines indented by `indent`. */
static void put_body(const Piece *p, const char *own, const char *indent, Text *t)
{
        Text body = { 0 };
        form_body(p, &body);
        text_as(t, body.s ? body.s : "", own, indent);
        text_free(&body);
}

static void put_decl(const Piece *p, const char *own, Text *t)
{
        Text decl = { 0 };
        form_decl(p, &decl);
        text_as(t, decl.s ? decl.s : "", own, "");
        text_free(&decl);
}

static void entry_one(const Emit *e, const Launch *l, Text *t)
{
        const Piece *p = l->piece[0];
        form_decl(p, t);
        if (is_cuda(e)) {
                put_signature(l, p->any.threads, p->any.min_blocks, t);
                text_add(t, "        const \1_args a = ");
                put_args(l, 0, t);
                text_add(t, ";\n        const int tile = (int)blockIdx.x;\n");
                if (p->any.smem)
                        text_add(t, "        TGC_SMEM(smem);\n");
                put_waits(e, l, form_waits(p), t);
        } else {
                text_add(t,
                         "%svoid \1_part(const Rt *rt, void *const *arg, TeamView *view)\n{\n"
                         "        const \1_args a = { rt",
                         p->streams ? "TGC_UNROLLED " : "");
                for (int i = 0; i < p->n_args; i++)
                        text_add(t, ", arg[%d]", i + 1);
                text_add(t, " };\n");
        }
        put_sizes(e, t);
        if (!is_cuda(e) && !p->shared)
                text_add(t, "        TeamWork work = team_begin(view, 1, 0);\n"
                            "        while (team_next(&work)) {\n");
        put_body(p, "\1", is_cuda(e) || p->shared ? "" : "        ", t);
        if (!is_cuda(e) && !p->shared)
                text_add(t, "        }\n");
        text_add(t, is_cuda(e) ? "}\n" : "}\nTGC_KERNEL(\1)\n");
}

/* FIRST0, EACH0, FIRST1, ...: the first block of piece i, and those of a piece, by `arch`. */
static void put_enum(const Launch *l, int arch, Text *t)
{
        int64_t first = 0;
        text_add(t, "        enum { FIRST0 = 0");
        for (int i = 0; i < l->n_pieces; i++) {
                int64_t each = grid_count(&l->piece[i]->form[arch].grid);
                text_add(t, ", EACH%d = %lld, FIRST%d = %lld", i, (long long)each, i + 1,
                         (long long)(first += each));
        }
        text_add(t, " };\n");
}

/* Names for what differs between forms. */
static void put_firsts(const Launch *l, Text *t)
{
        const char *word = "#if";
        for (int i = ARCH_ANY + 1; i < N_ARCHS; i++)
                if (form_is(l->form, i)) {
                        text_add(t, "%s defined(%s)\n", word, archs[i].macro);
                        put_enum(l, i, t);
                        word = "#elif";
                }
        text_add(t, "#else\n");
        put_enum(l, ARCH_ANY, t);
        text_add(t, "#endif\n");
}

/* Some form is another than ARCH_ANY's. */
static bool has_forms(const Launch *l)
{
        bool one = false;
        for (int i = ARCH_ANY + 1; i < N_ARCHS; i++)
                one |= form_is(l->form, i);
        return one;
}

/* The blocks from `from` on of n equal pieces from piece i on. */
static void put_branch(const Launch *l, int i, int n, int64_t from, int threads, Text *t)
{
        const Piece *p = l->piece[i];
        int64_t by = grid_count(&p->any.grid);
        char own[16], first[24], end[24], each[24];
        bool names = has_forms(l);
        snprintf(own, sizeof own, "\1_%d", i);
        snprintf(first, sizeof first, names ? "FIRST%lld" : "%lld",
                 names ? (long long)i : (long long)from);
        snprintf(end, sizeof end, names ? "FIRST%lld" : "%lld",
                 names ? (long long)(i + n) : (long long)(from + n * by));
        snprintf(each, sizeof each, names ? "EACH%lld" : "%lld",
                 names ? (long long)i : (long long)by);
        text_add(t, "if (block < %s) {%s%s\n", end, "       // ", p->title);
        if (p->any.threads < threads)
                text_add(t, "                TGC_SURPLUS(%d);\n", p->any.threads);
        for (int k = ARCH_ANY + 1; k < N_ARCHS; k++)
                if (p->form[k].threads < l->form[k].threads)
                        text_add(t, "#if defined(%s)\n                TGC_SURPLUS(%d);\n#endif\n",
                                 archs[k].macro, p->form[k].threads);
        if (n == 1) {
                text_add(t,
                         "                const int tile = block - %s;\n                const "
                         "%s_args a = ",
                         first, own);
                put_args(l, i, t);
                text_add(t, ";\n");
        } else {
                text_add(t,
                         "                const int which = (block - %s) / %s, tile = (block - %s) "
                         "%% %s;\n                %s_args a = ",
                         first, each, first, each, own);
                put_args(l, i, t);
                text_add(t, ";\n");
                for (int k = 1; k < n; k++) {
                        text_add(t,
                                 "                if (which == %d)\n                        a = ",
                                 k);
                        put_args(l, i + k, t);
                        text_add(t, ";\n");
                }
        }
        if (!form_waits(p) && one_waits(l))
                text_add(t, "                pdl_wait();\n");
        put_body(p, own, "        ", t);
        text_add(t, "        }");
}

static void entry_many(const Emit *e, const Launch *l, const Kernel *k, Text *t)
{
        int64_t first = 0;
        char own[16];
        int min_blocks = l->piece[0]->any.min_blocks;
        bool light = k->any.smem <= LIGHT_SMEM; /* of tiles, the registers of all must fit */
        for (int i = 0, n; i < l->n_pieces; i += n) {
                int own_blocks = l->piece[i]->any.min_blocks;
                n = run_of(l->piece, l->n_pieces, i);
                snprintf(own, sizeof own, "\1_%d", i);
                put_decl(l->piece[i], own, t);
                if (light ? own_blocks > min_blocks : own_blocks < min_blocks)
                        min_blocks = own_blocks;
        }
        put_signature(l, k->any.threads, min_blocks, t);
        text_add(t, "        const int block = (int)blockIdx.x;\n");
        if (k->any.smem)
                text_add(t, "        TGC_SMEM(smem);\n");
        put_waits(e, l, one_waits(l), t);
        put_sizes(e, t);
        if (has_forms(l))
                put_firsts(l, t);
        text_add(t, "        ");
        for (int i = 0, n; i < l->n_pieces; i += n) {
                n = run_of(l->piece, l->n_pieces, i);
                put_branch(l, i, n, first, k->any.threads, t);
                first += n * grid_count(&l->piece[i]->any.grid);
                text_add(t, i + n < l->n_pieces ? " else " : "\n");
        }
        text_add(t, "}\n");
}

static void entry_in_turn(const Emit *e, const Launch *l, const Kernel *k, Text *t)
{
        char own[16];
        for (int i = 0; i < l->n_pieces; i++) {
                snprintf(own, sizeof own, "\1_%d", i);
                put_decl(l->piece[i], own, t);
        }
        put_signature(l, k->any.threads, 1, t);
        text_add(t, "        const int tile = 0;\n");
        if (k->any.smem)
                text_add(t, "        TGC_SMEM(smem);\n");
        put_waits(e, l, form_waits(l->piece[0]), t);
        put_sizes(e, t);
        for (int i = 0; i < l->n_pieces; i++) {
                const Piece *p = l->piece[i];
                snprintf(own, sizeof own, "\1_%d", i);
                if (i)
                        text_add(t, "        __syncthreads();\n");
                if (i && p->any.threads < l->piece[i - 1]->any.threads)
                        text_add(t, "        TGC_SURPLUS(%d);\n", p->any.threads);
                text_add(t, "        {       // %s\n                const %s_args a = ", p->title,
                         own);
                put_args(l, i, t);
                text_add(t, ";\n");
                put_body(p, own, "        ", t);
                text_add(t, "        }\n");
        }
        text_add(t, "}\n");
}

/* ---- kernels ------------------------------------------------------------- */

/* "matmul + 2 colsum": what a kernel does. */
static const char *title_of(Arena *a, const Launch *l)
{
        Text t = { 0 };
        if (l->n_pieces == 1)
                return l->piece[0]->title;
        for (int i = 0; i < l->n_pieces; i++) {
                int n = 0;
                bool seen = false;
                for (int j = 0; j < l->n_pieces; j++)
                        if (!strcmp(l->piece[j]->title, l->piece[i]->title)) {
                                seen |= j < i;
                                n++;
                        }
                if (!seen && n > 1)
                        text_add(&t, "%s%d %s", i ? " + " : "", n, l->piece[i]->title);
                else if (!seen)
                        text_add(&t, "%s%s", i ? " + " : "", l->piece[i]->title);
        }
        const char *s = arena_str(a, t.s);
        text_free(&t);
        return s;
}

static Kernel *kernel_new(Module *m)
{
        m->kernel = arena_grow(m->arena, m->kernel, m->n_kernels, &m->cap, sizeof *m->kernel);
        return &m->kernel[m->n_kernels++];
}

static bool same_smem(const Kernel *a, const Kernel *b)
{
        bool same = true;
        for (int i = ARCH_ANY + 1; i < N_ARCHS; i++)
                same &= a->form[i].smem == b->form[i].smem;
        return same;
}

static const char *intern(Module *m, const Kernel *k)
{
        unsigned h = 2166136261u;
        for (const char *s = k->text; *s; s++)
                h = (h ^ (unsigned char)*s) * 16777619u;
        for (int i = 0; i < m->n_kernels; i++)
                if (m->kernel[i].hash == h && !strcmp(m->kernel[i].text, k->text) &&
                    m->kernel[i].spread == k->spread && same_smem(&m->kernel[i], k)) {
                        m->kernel[i].n_now++;
                        return m->kernel[i].name;
                }
        int number = m->n_kernels;
        Kernel *to = kernel_new(m);
        *to = *k;
        to->name = k->n_pieces == 1 ? arena_fmt(m->arena, "k%d_%s", number, k->title)
                                    : arena_fmt(m->arena, "k%d_%s_and_%d", number,
                                                k->piece[0]->title, k->n_pieces - 1);
        to->text = arena_str(m->arena, k->text);
        to->hash = h;
        to->n_now = 1;
        return to->name;
}

void kernels_name(Emit *e)
{
        Module *m = e->m;
        for (int i = 0; i < e->n_launch; i++) {
                Launch *l = &e->launch[i];
                Text t = { 0 };
                Kernel k = { .title = title_of(m->arena, l),
                             .n_args = l->n_args + 1,
                             .pdl = has_pdl(e),
                             .piece = l->piece,
                             .n_pieces = l->n_pieces,
                             .used = "",
                             .spread = l->spread };
                memcpy(k.form, l->form, sizeof k.form);
                k.any.threads = k.any.smem = 0;
                for (int j = 0; j < l->n_pieces; j++) {
                        const Piece *p = l->piece[j];
                        k.any.threads = p->any.threads > k.any.threads ? p->any.threads
                                                                       : k.any.threads;
                        k.any.smem = p->any.smem > k.any.smem ? p->any.smem : k.any.smem;
                        k.flops += p->flops;
                        k.bytes += p->bytes;
                }
                put_includes(e, l, &t);
                if (l->n_pieces == 1)
                        entry_one(e, l, &t);
                else if (l->in_turn)
                        entry_in_turn(e, l, &k, &t);
                else
                        entry_many(e, l, &k, &t);
                if (is_cuda(e))
                        text_add(&t, "TGC_KERNEL(\1, %d)\n", k.n_args);
                k.text = t.s;
                l->kernel = intern(m, &k);
                text_free(&t);
        }
}
