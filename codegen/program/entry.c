/* entry.c: pieces to entry points; equal ones become one kernel.
 *
 * A kernel of one piece gives its blocks to it.  One of several picks the piece, and of equal
 * pieces the arguments, by the block's number:
 *
 *      k3(const Rt *rt, float *p0_y, const float *p0_x, float *p1_sum, ..., float *p2_sum, ...)
 *              if (block < 128) {                      piece 0
 *                      const k3_0_args a = { rt, p0_y, p0_x };
 *                      const int tile = block;
 *                      ...
 *              } else if (block < 128 + 2 * 12) {      pieces 1 and 2, which are equal
 *
 * Pieces in turn are blocks of braces one after the other, with barriers between them.
 *
 * Tensor maps are parameters by value; what pieces get is the address of the parameter.
 *
 * Nothing here knows a kernel's name: texts hold \1 in its place, so that the kernels of equal
 * layers are equal texts. */
#include "../codegen.h"
#include <stdlib.h>
#include <string.h>

bool piece_equal(const Piece *a, const Piece *b)
{
        return !strcmp(a->decl, b->decl) && !strcmp(a->body, b->body) &&
               !strcmp(a->include, b->include) && !strcmp(a->grid, b->grid) &&
               a->threads == b->threads && a->smem == b->smem && a->min_blocks == b->min_blocks &&
               a->fast == b->fast;
}

/* A product of factors in the manifest's EXPR; -1 where it depends on B or T. */
static int64_t product(const char **s)
{
        int64_t x = 1;
        for (;; ++*s) {
                int64_t f = 0;
                if (!strncmp(*s, "ceil(", 5)) {
                        *s += 5;
                        int64_t over = product(s),
                                by = **s == '/' ? strtoll(*s + 1, (char **)s, 10) : 0;
                        if (over < 0 || by < 1)
                                return -1;
                        f = (over + by - 1) / by;
                        ++*s; /* ) */
                } else {
                        char *end;
                        f = strtoll(*s, &end, 10);
                        if (end == *s)
                                return -1;
                        *s = end;
                }
                x *= f;
                if (**s != '*')
                        return x;
        }
}

int64_t grid_count(const char *expr) { return product(&expr); }

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
 * says so: blocks that wait beside running ones are spread unevenly, which made a training step of
 * the character model 0.76 to 1.19 ms on an H100, against 0.66.  (Llama-1B's prompt of 511 tokens:
 * 1.97 to 1.88, of 1999: 6.74 to 6.78.) */
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
                const Type *t = &e->g->node[r].type;
                if (e->g->node[r].op == OP_PARAM)
                        e->weights += dim_value(type_elems(t), &e->g->sizes) * dt_size[t->dt];
        }
        return e->weights <= 40 << 20;
}

/* Some piece of it waits for the launch before by itself: then each of the others' branches
 * does. */
static bool one_waits(const Launch *l)
{
        bool one = false;
        for (int i = 0; i < l->n_pieces; i++)
                one |= l->piece[i]->waits;
        return one;
}

static void put_includes(Emit *e, const Launch *l, Text *t)
{
        bool cuda = is_cuda(e), fast = false, weights = false;
        for (int i = 0; i < l->n_pieces; i++) {
                fast |= l->piece[i]->fast;
                weights |= !strncmp(l->piece[i]->include, "gemv", 4) ||
                           !strcmp(l->piece[i]->include, "qkv_attention_sm90");
        }
        if (cuda && fast)
                text_add(t, "#define TGC_FAST_MATH 1\n");
        if (e->m->tf32)
                text_add(t, "#define TGC_TF32 1\n");
        const Launch *next = launch_next(e, l);
        if (l->triggers_after_wait)
                text_add(t, "#define TGC_PDL_AFTER_WAIT 1\n");
        if (has_pdl(e) && !triggers_first(e) && next && next->early)
                text_add(t, "#ifdef TGC_SM90A\n#define TGC_PDL_AFTER_WAIT 1\n#endif\n");
        if (weights && weights_stay(e))
                text_add(t, "#define TGC_WEIGHTS_STAY 1\n");
        for (int i = 0; i < l->n_pieces; i++) {
                bool seen = false;
                for (int j = 0; j < i; j++)
                        seen |= !strcmp(l->piece[i]->include, l->piece[j]->include);
                if (!seen)
                        text_add(t, cuda ? "#include \"%s.cuh\"\n" : "#include \"cpu_%s.h\"\n",
                                 l->piece[i]->include);
        }
        text_add(t, cuda ? "#include \"functor.cuh\"\n\n" : "#include \"cpu_functor.h\"\n\n");
        if (has_pdl(e))
                text_add(t, "#include \"ptx.cuh\"\n\n");
}

/* `extern "C" ... \1(const Rt *rt, ...` and the opening brace.  The names of several pieces'
 * arguments get the piece's number. */
static void put_signature(const Launch *l, int threads, int min_blocks, Text *t)
{
        int threads90 = l->on90.threads;
        const char *pairs = l->piece[0]->on90.pairs ? " __cluster_dims__(2, 1, 1)" : "";
        text_add(t, "extern \"C\" __global__ void");
        if (threads90)
                text_add(
                        t,
                        "\n#ifdef TGC_SM90A\n__launch_bounds__(%d, 1)%s\n#else\n__launch_bounds__(%d, %d)\n#endif\n",
                        threads90, pairs, threads, min_blocks);
        else
                text_add(t, " __launch_bounds__(%d, %d)\n", threads, min_blocks);
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
        if (triggers_first(e) && !l->triggers_after_wait)
                text_add(t, "        pdl_launch();\n");
        if (has_pdl(e) && !waits)
                text_add(t, "        pdl_wait();\n");
}

static void entry_one(const Emit *e, const Launch *l, Text *t)
{
        const Piece *p = l->piece[0];
        text_add(t, "%s", p->decl);
        if (is_cuda(e)) {
                put_signature(l, p->threads, p->min_blocks, t);
                text_add(t, "        const \1_args a = ");
                put_args(l, 0, t);
                text_add(t, ";\n        const int tile = (int)blockIdx.x;\n");
                if (p->smem)
                        text_add(t, "        TGC_SMEM(smem);\n");
                put_waits(e, l, p->waits, t);
        } else {
                text_add(
                        t,
                        "%svoid \1(const Rt *rt, void *const *arg)\n{\n        const \1_args a = { rt",
                        !strcmp(p->include, "gemv") ? "TGC_UNROLLED " : "");
                for (int i = 0; i < p->n_args; i++)
                        text_add(t, ", arg[%d]", i + 1);
                text_add(t, " };\n");
        }
        put_sizes(e, t);
        text_add(t, "%s}\n", p->body);
}

/* Names for what differs on sm_90a: the first block of piece i, and those of a piece. */
static void put_firsts(const Launch *l, Text *t)
{
        int64_t first = 0, first90 = 0;
        text_add(t, "#ifdef TGC_SM90A\n        enum { FIRST0 = 0");
        for (int i = 0; i < l->n_pieces; i++)
                text_add(t, ", EACH%d = %s, FIRST%d = %lld", i, l->piece[i]->on90.grid, i + 1,
                         (long long)(first90 += grid_count(l->piece[i]->on90.grid)));
        text_add(t, " };\n#else\n        enum { FIRST0 = 0");
        for (int i = 0; i < l->n_pieces; i++)
                text_add(t, ", EACH%d = %lld, FIRST%d = %lld", i,
                         (long long)grid_count(l->piece[i]->grid), i + 1,
                         (long long)(first += grid_count(l->piece[i]->grid)));
        text_add(t, " };\n#endif\n");
}

/* The blocks from `from` on of n equal pieces from piece i on. */
static void put_branch(const Launch *l, int i, int n, int64_t from, int threads, Text *t)
{
        const Piece *p = l->piece[i];
        int64_t by = grid_count(p->grid);
        char own[16], first[24], end[24], each[24];
        bool names = l->on90.threads;
        snprintf(own, sizeof own, "\1_%d", i);
        snprintf(first, sizeof first, names ? "FIRST%lld" : "%lld",
                 names ? (long long)i : (long long)from);
        snprintf(end, sizeof end, names ? "FIRST%lld" : "%lld",
                 names ? (long long)(i + n) : (long long)(from + n * by));
        snprintf(each, sizeof each, names ? "EACH%lld" : "%lld",
                 names ? (long long)i : (long long)by);
        text_add(t, "if (block < %s) {%s%s\n", end, "       // ", p->title);
        if (p->threads < threads)
                text_add(t, "                TGC_SURPLUS(%d);\n", p->threads);
        if (p->on90.threads < l->on90.threads)
                text_add(t, "#ifdef TGC_SM90A\n                TGC_SURPLUS(%d);\n#endif\n",
                         p->on90.threads);
        if (n == 1) {
                text_add(
                        t,
                        "                const int tile = block - %s;\n                const %s_args a = ",
                        first, own);
                put_args(l, i, t);
                text_add(t, ";\n");
        } else {
                text_add(
                        t,
                        "                const int which = (block - %s) / %s, tile = (block - %s) %% %s;\n"
                        "                %s_args a = ",
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
        if (!p->waits && one_waits(l))
                text_add(t, "                pdl_wait();\n");
        text_as(t, p->body, own, "        ");
        text_add(t, "        }");
}

static void entry_many(const Emit *e, const Launch *l, const Kernel *k, Text *t)
{
        int64_t first = 0;
        char own[16];
        int min_blocks = l->piece[0]->min_blocks;
        bool light = k->smem <= LIGHT_SMEM; /* of tiles, the registers of all must fit */
        for (int i = 0, n; i < l->n_pieces; i += n) {
                int own_blocks = l->piece[i]->min_blocks;
                n = run_of(l->piece, l->n_pieces, i);
                snprintf(own, sizeof own, "\1_%d", i);
                text_as(t, l->piece[i]->decl, own, "");
                if (light ? own_blocks > min_blocks : own_blocks < min_blocks)
                        min_blocks = own_blocks;
        }
        put_signature(l, k->threads, min_blocks, t);
        text_add(t, "        const int block = (int)blockIdx.x;\n");
        if (k->smem)
                text_add(t, "        TGC_SMEM(smem);\n");
        put_waits(e, l, one_waits(l), t);
        put_sizes(e, t);
        if (l->on90.threads)
                put_firsts(l, t);
        text_add(t, "        ");
        for (int i = 0, n; i < l->n_pieces; i += n) {
                n = run_of(l->piece, l->n_pieces, i);
                put_branch(l, i, n, first, k->threads, t);
                first += n * grid_count(l->piece[i]->grid);
                text_add(t, i + n < l->n_pieces ? " else " : "\n");
        }
        text_add(t, "}\n");
}

static void entry_in_turn(const Emit *e, const Launch *l, const Kernel *k, Text *t)
{
        char own[16];
        for (int i = 0; i < l->n_pieces; i++) {
                snprintf(own, sizeof own, "\1_%d", i);
                text_as(t, l->piece[i]->decl, own, "");
        }
        put_signature(l, k->threads, 1, t);
        text_add(t, "        const int tile = 0;\n");
        if (k->smem)
                text_add(t, "        TGC_SMEM(smem);\n");
        put_waits(e, l, l->piece[0]->waits, t);
        put_sizes(e, t);
        for (int i = 0; i < l->n_pieces; i++) {
                const Piece *p = l->piece[i];
                snprintf(own, sizeof own, "\1_%d", i);
                if (i)
                        text_add(t, "        __syncthreads();\n");
                if (i && p->threads < l->piece[i - 1]->threads)
                        text_add(t, "        TGC_SURPLUS(%d);\n", p->threads);
                text_add(t, "        {       // %s\n                const %s_args a = ", p->title,
                         own);
                put_args(l, i, t);
                text_add(t, ";\n");
                text_as(t, p->body, own, "        ");
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

/* The marks about short products' tiles are for schedule.c. */
static void drop_marks(char *s)
{
        char *to = s;
        for (; *s; s++)
                if (*s != '\2')
                        *to++ = *s;
        *to = 0;
}

static const char *intern(Module *m, const Kernel *k)
{
        unsigned h = 2166136261u;
        for (const char *s = k->text; *s; s++)
                h = (h ^ (unsigned char)*s) * 16777619u;
        for (int i = 0; i < m->n_kernels; i++)
                if (m->kernel[i].hash == h && !strcmp(m->kernel[i].text, k->text) &&
                    m->kernel[i].spread == k->spread && m->kernel[i].on90.smem == k->on90.smem) {
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
                             .early = has_pdl(e),
                             .piece = l->piece,
                             .n_pieces = l->n_pieces,
                             .grid = l->grid,
                             .used = "",
                             .on90 = l->on90,
                             .spread = l->spread };
                for (int j = 0; j < l->n_pieces; j++) {
                        const Piece *p = l->piece[j];
                        k.threads = p->threads > k.threads ? p->threads : k.threads;
                        k.smem = p->smem > k.smem ? p->smem : k.smem;
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
                drop_marks(t.s);
                k.text = t.s;
                l->kernel = intern(m, &k);
                text_free(&t);
        }
}
