/* kernel.c: kernels under construction: arguments, text, and finding equal ones.
 *
 * A kernel's text does not contain its name but \1, so that the kernels of equal
 * layers are equal texts and become one. */
#include "codegen.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool is_cuda(const Emit *e) { return e->m->target == TARGET_CUDA; }

const char *c_type(DType dt)
{
        static const char *const name[N_DT] = { "float", "bf16", "f16", "int" };
        return name[dt];
}

Module *module_new(Arena *a, int target)
{
        Module *m = arena_alloc(a, sizeof *m);
        m->arena = a;
        m->target = target;
        return m;
}

/* Words a value cannot be named: of C and C++, of the system's headers, and of generated bodies. */
static bool taken(const char *s)
{
        static const char words[] = " auto bool break case catch char class const continue default delete do double "
                                    "else enum explicit export extern"
                                    " false float for friend goto if inline int long mutable namespace new operator "
                                    "private protected public register"
                                    " restrict return short signed sizeof static struct switch template this throw "
                                    "true try typedef typename union"
                                    " unsigned using virtual void volatile while and or not xor asm"
                                    " abs acos asin assert atan ceil cos cosh erf errno exp fabs floor fma index j0 "
                                    "j1 linux log max min pow rint round"
                                    " signal sin sinh sqrt stderr stdin stdout tan tanh unix y0 y1"
                                    " accumulate bf16 dropout f16 from_float gelu gelu_grad gelu_tanh gelu_tanh_grad "
                                    "load rope share sigmoid silu silu_grad store to_float"
                                    " B T V a arg args att col dloss dout head head_dy in j n out row rt scale_ sg "
                                    "smem so tail tail_k tail_v tile"
                                    " tiles v work ";
        size_t n = strlen(s);
        for (const char *p = words; (p = strstr(p, s)); p += n)
                if (p[-1] == ' ' && p[n] == ' ')
                        return true;
        if (n > 5 && !strcmp(s + n - 5, "_task"))
                return true;
        /* p0 c1 n2 o3: the functors' own */
        return strchr("pcno", s[0]) && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1);
}

/* The last part of a node's name that is not a number, as a C identifier. */
const char *short_name(Emit *e, Ref r)
{
        const char *s = NODE(e->g, r)->name, *end = s + strlen(s), *b;
        char buf[40];
        int n = 0;
        for (;;) {
                b = end;
                while (b > s && b[-1] != '.')
                        b--;
                size_t len = (size_t)(end - b);
                bool dull = strspn(b, "0123456789") >= len || (len == 6 && !strncmp(b, "weight", 6)) ||
                            (len == 4 && !strncmp(b, "bias", 4));
                if (!dull || b == s)
                        break;
                end = b - 1;
        }
        if (!isalpha((unsigned char)*b))
                buf[n++] = 'x';
        for (; b < end && n < 30; b++)
                buf[n++] = isalnum((unsigned char)*b) ? *b : '_';
        while (n > 1 && isdigit((unsigned char)buf[n - 1]))     /* k0, k1 of two layers are one name */
                n--;
        buf[n] = 0;
        if (taken(buf))
                strcat(buf, "_");
        return arena_str(e->tmp, buf);
}

const char *dim_c(Emit *e, Dim d)
{
        const Sizes *s = &e->g->sizes;
        char buf[64];
        for (int i = 0; i < N_SYM; i++)
                while (d.e[i] && s->v[i]) {
                        d.n *= s->v[i];
                        d.e[i]--;
                }
        dim_text(d, buf);
        return strchr(buf, '*') ? arena_fmt(e->tmp, "(%s)", buf) : arena_str(e->tmp, buf);
}

const char *dim_grid(Emit *e, Dim d)
{
        const char *s = dim_c(e, d);
        return *s == '(' ? arena_fmt(e->tmp, "%.*s", (int)strlen(s) - 2, s + 1) : s;
}

/* ---- arguments ---------------------------------------------------------- */

static const char *arg_add(Emit *e, Args *a, Slot s, const char *type, const char *name, bool write)
{
        char unique[64];
        for (int i = 0; i < a->n; i++)
                if (a->slot[i].kind == s.kind && a->slot[i].id == s.id &&
                    (s.kind != SLOT_ARENA || !strcmp(a->slot[i].arena, s.arena))) {
                        a->written[i] |= write;
                        return a->name[i];
                }
        if (a->n == 64) {
                fprintf(stderr, "tgc: internal error: a kernel has more than 64 arguments\n");
                abort();
        }
        snprintf(unique, sizeof unique, "%.40s", name);
        for (int i = 0, k = 1; i < a->n; i++)
                if (!strcmp(a->name[i], unique)) {
                        snprintf(unique, sizeof unique, "%.40s%d", name, ++k);
                        i = -1;
                }
        a->slot[a->n] = s;
        a->type[a->n] = type;
        a->name[a->n] = arena_str(e->tmp, unique);
        a->written[a->n] = write;
        return a->name[a->n++];
}

const char *arg_of(Emit *e, Args *a, Ref base, bool write)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_NODE, .id = base }, c_type(NODE(e->g, base)->type.dt),
                       short_name(e, base), write);
}

const char *arg_grad(Emit *e, Args *a, Ref param)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_GRAD, .id = param }, "float",
                       arena_fmt(e->tmp, "d_%s", short_name(e, param)), true);
}

const char *arg_work(Emit *e, Args *a, int work, const char *type, const char *name)
{
        return arg_add(e, a, (Slot){ .kind = SLOT_WORK, .id = work }, type, name, true);
}

const char *arg_arena(Emit *e, Args *a, const char *arena, const char *type, const char *name)
{
        return arg_add(e, a, (Slot){ .kind = SLOT_ARENA, .arena = arena }, type, name, true);
}

const char *arg_int(Emit *e, Args *a, int value, const char *name)
{
        return arg_add(e, a, (Slot){ .kind = SLOT_INT, .id = value }, "int", name, false);
}

int work_new(Emit *e, Dim elems, int size)
{
        if (e->n_work == e->cap_work) {
                e->cap_work = e->cap_work ? e->cap_work * 2 : 16;
                e->work = realloc(e->work, (size_t)e->cap_work * sizeof *e->work);
                if (!e->work)
                        abort();
        }
        e->work[e->n_work] = (Work){ elems, size, NULL };
        return e->n_work++;
}

int work_keep(Emit *e, Dim elems, int size, const char *name)
{
        int w = work_new(e, elems, size);
        e->work[w].keep = name;
        return w;
}

/* ---- text --------------------------------------------------------------- */

Build build_start(Emit *e, const Group *gr, const char *include, const char *title)
{
        return (Build){ .e = e, .gr = gr, .include = include, .title = title, .threads = 128, .min_blocks = 1 };
}

void build_line(Build *b, const char *fmt, ...)
{
        char buf[2048];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(buf, sizeof buf, fmt, ap);
        va_end(ap);
        text_add(&b->body, "        %s\n", buf);
}

FunctorText build_functor(Build *b, const Functor *f, const char *name)
{
        FunctorText t;
        functor_emit(b->e, &b->args, f, arena_fmt(b->e->tmp, "\1_%s", name), &t);
        text_put(&b->decl, t.text.s, t.text.n);
        text_free(&t.text);
        b->flops += t.flops;
        b->bytes += t.bytes;
        return t;
}

enum { PARALLEL_WORK = 1000000 };       /* operations below which a second thread costs more than it brings */

void build_cpu_loop(Build *b, const char *tiles, double work, const char *call)
{
        const Sizes *s = &b->e->g->sizes;
        bool fixed = s->v[SYM_T] && s->v[SYM_B];
        build_line(b, "const long tiles = %s;", tiles);
        if (!fixed || work > PARALLEL_WORK)
                text_add(&b->body, "#pragma omp parallel for schedule(dynamic, 1) if (tiles > 1%s)\n",
                         fixed ? "" : " && rt->T > 1");
        build_line(b, "for (long tile = 0; tile < tiles; tile++)");
        build_line(b, "        %s", call);
}

void build_shift(Build *b, const char *arg, int64_t bytes)
{
        for (int i = 0; i < b->args.n; i++)
                if (!strcmp(b->args.name[i], arg))
                        b->args.slot[i].off = bytes;
}

/* What was merged, and from which lines: a comment for people and for dumps. */
static const char *where_text(Emit *e, const Group *gr)
{
        Text t = { 0 };
        const char *s;
        for (int i = 0; gr && i < gr->n_nodes; i++) {
                const Node *n = NODE(e->g, gr->node[i]);
                if (op_info[n->op].cls == CLASS_VIEW)
                        continue;
                text_add(&t, "%%%s = %s(", n->name, op_info[n->op].text);
                for (int j = 0; j < n->n_in; j++)
                        text_add(&t, "%s%%%s", j ? ", " : "", NODE(e->g, n->in[j])->name);
                text_add(&t, ")");
                if (n->loc.file && n->loc.line)
                        text_add(&t, "\t%s:%d", n->loc.file, n->loc.line);
                text_add(&t, "\n");
        }
        s = arena_str(e->m->arena, t.s ? t.s : "");
        text_free(&t);
        return s;
}

/* Names of the arguments that are only read, or written. */
static const char *arg_names(Build *b, bool written)
{
        Text t = { 0 };
        for (int i = 0; i < b->args.n; i++)
                if (b->args.written[i] == written)
                        text_add(&t, "%s%s", t.n ? ", " : "", b->args.name[i]);
        const char *s = arena_str(b->e->m->arena, t.s ? t.s : "");
        text_free(&t);
        return s;
}

/* On the GPU every kernel is started before the one before it has ended, and waits for that
 * itself (pdl_wait in ptx.cuh), each block before it touches memory that another kernel
 * writes: so the kernel before that one has ended too, and copies and events, which wait for
 * a whole kernel, mean what they did. */
static bool is_early(const Emit *e) { return is_cuda(e); }

/* One token: the kernel after comes as soon as all blocks of this one run (pdl_launch), and
 * loads weights meanwhile.  Otherwise only when they have ended: blocks that wait beside
 * running ones are spread unevenly, which made a training step of the character model
 * 0.76 to 1.19 ms on an H100, against 0.66. */
static bool calls_next(const Emit *e) { return is_early(e) && e->g->sizes.v[SYM_T] == 1; }

static const char *intern(Build *b, const char *text, const char *grid)
{
        Module *m = b->e->m;
        for (int i = 0; i < m->n_kernels; i++)
                if (!strcmp(m->kernel[i].text, text)) {
                        m->kernel[i].n_now++;
                        return m->kernel[i].name;
                }
        if (m->n_kernels == m->cap) {
                int cap = m->cap ? m->cap * 2 : 64;
                Kernel *k = arena_alloc(m->arena, (size_t)cap * sizeof *k);
                if (m->n_kernels)
                        memcpy(k, m->kernel, (size_t)m->n_kernels * sizeof *k);
                m->kernel = k;
                m->cap = cap;
        }
        Kernel *k = &m->kernel[m->n_kernels];
        k->name = arena_fmt(m->arena, "k%d_%s", m->n_kernels, b->title);
        k->title = arena_str(m->arena, b->title);
        k->text = arena_str(m->arena, text);
        k->threads = b->threads;
        k->smem = b->smem;
        k->n_args = b->args.n + 1;
        k->early = is_early(b->e);
        k->flops = b->flops;
        k->bytes = b->bytes;
        k->where = where_text(b->e, b->gr);
        k->grid = arena_str(m->arena, grid);
        k->reads = arg_names(b, false);
        k->writes = arg_names(b, true);
        k->used = "";
        k->n_now = 1;
        m->n_kernels++;
        return k->name;
}

void build_end(Build *b, const char *grid)
{
        Emit *e = b->e;
        bool cuda = is_cuda(e);
        Args *a = &b->args;
        Text t = { 0 };
        for (int i = 0; cuda && i < a->n; i++)
                if (!strcmp(a->type[i], "bf16") || !strcmp(a->type[i], "f16")) {
                        text_add(&t, "#define TGC_FAST_MATH 1\n");
                        break;
                }
        text_add(&t,
                 cuda ? "#include \"%s.cuh\"\n#include \"tail.cuh\"\n\n"
                      : "#include \"cpu_%s.h\"\n#include \"cpu_tail.h\"\n\n",
                 b->include);
        if (is_early(e))
                text_add(&t, "#include \"ptx.cuh\"\n\n");
        text_add(&t, "%sstruct \1_args {\n        const Rt *rt;\n", cuda ? "" : "typedef ");
        for (int i = 0; i < a->n; i++)
                text_add(&t, "        %s%s *%s;\n", a->written[i] ? "" : "const ", a->type[i], a->name[i]);
        text_add(&t, cuda ? "};\n\n" : "} \1_args;\n\n");
        if (b->decl.s)
                text_put(&t, b->decl.s, b->decl.n);
        if (cuda) {
                text_add(&t, "extern \"C\" __global__ void __launch_bounds__(%d, %d)\n\1(const Rt *rt", b->threads,
                         b->min_blocks);
                for (int i = 0; i < a->n; i++)
                        text_add(&t, ", %s%s *%s", a->written[i] ? "" : "const ", a->type[i], a->name[i]);
                text_add(&t, ")\n{\n        const \1_args a = { rt");
                for (int i = 0; i < a->n; i++)
                        text_add(&t, ", %s", a->name[i]);
                text_add(&t, " };\n        const int tile = (int)blockIdx.x;\n");
                if (b->smem)
                        text_add(&t, "        TGC_SMEM(smem);\n");
                if (calls_next(e))
                        text_add(&t, "        pdl_launch();\n");
                if (is_early(e) && !b->waits)
                        text_add(&t, "        pdl_wait();\n");
        } else {
                text_add(&t, "void \1(const Rt *rt, void *const *arg)\n{\n        const \1_args a = { rt");
                for (int i = 0; i < a->n; i++)
                        text_add(&t, ", arg[%d]", i + 1);
                text_add(&t, " };\n");
        }
        for (int i = SYM_B; i <= SYM_T; i++) {
                int64_t known = e->g->sizes.v[i];
                if (known)
                        text_add(&t, "        const int %c = %lld;\n        (void)%c;\n", "BT"[i], (long long)known,
                                 "BT"[i]);
                else
                        text_add(&t, "        const int %c = rt->%c;\n        (void)%c;\n", "BT"[i], "BT"[i], "BT"[i]);
        }
        text_add(&t, "%s", b->body.s ? b->body.s : "");
        text_add(&t, "}\n");
        if (cuda)
                text_add(&t, "TGC_KERNEL(\1, %d)\n", a->n + 1);

        if (e->n_launch == e->cap_launch) {
                e->cap_launch = e->cap_launch ? e->cap_launch * 2 : 256;
                e->launch = realloc(e->launch, (size_t)e->cap_launch * sizeof *e->launch);
                if (!e->launch)
                        abort();
        }
        Launch *l = &e->launch[e->n_launch++];
        l->kernel = intern(b, t.s, grid);
        l->grid = arena_str(e->m->arena, grid);
        l->n_args = a->n;
        l->arg = arena_alloc(e->m->arena, (size_t)(a->n + 1) * sizeof *l->arg);
        memcpy(l->arg, a->slot, (size_t)a->n * sizeof *l->arg);
        l->group = b->gr ? b->gr->id : 0;
        text_free(&t);
        text_free(&b->decl);
        text_free(&b->body);
}

void module_count(Module *m, const char *program)
{
        for (int i = 0; i < m->n_kernels; i++) {
                Kernel *k = &m->kernel[i];
                if (k->n_now)
                        k->used = arena_fmt(m->arena, "%s%s%s %d", k->used, *k->used ? ", " : "", program, k->n_now);
                k->n_now = 0;
        }
}

void module_fused(const Module *m, Text *out)
{
        for (int i = 0; i < m->n_kernels; i++) {
                const Kernel *k = &m->kernel[i];
                text_add(out, "kernel %s\n", k->name);
                for (const char *s = k->where; *s; ) {
                        size_t n = strcspn(s, "\n"), tab = strcspn(s, "\t");
                        if (tab < n)
                                text_add(out, "    %-84.*s %.*s\n", (int)tab, s, (int)(n - tab - 1), s + tab + 1);
                        else
                                text_add(out, "    %.*s\n", (int)n, s);
                        s += n + (s[n] == '\n');
                }
                if (m->target == TARGET_CUDA)
                        text_add(out, "    launch  grid %s, %d threads, %d bytes shared\n", k->grid, k->threads,
                                 k->smem);
                text_add(out, "    reads   %s\n    writes  %s\n", k->reads, k->writes);
                text_add(out, "    work    %.4g MB moved, %.4g MFLOP", k->bytes / 1e6, k->flops / 1e6);
                if (k->bytes > 0)
                        text_add(out, " (%.3g FLOP a byte)", k->flops / k->bytes);
                text_add(out, "\n    used    %s\n\n", k->used);
        }
}

/* The source with names put in. */
static void put_named(Text *out, const char *text, const char *name)
{
        for (const char *p; (p = strchr(text, '\1')); text = p + 1) {
                text_put(out, text, (size_t)(p - text));
                text_add(out, "%s", name);
        }
        text_add(out, "%s", text);
}

enum { CPU_UNITS = 4 };

void module_text(const Module *m, Text *kernels, Text *source)
{
        for (int i = 0; i < m->n_kernels; i++) {
                const Kernel *k = &m->kernel[i];
                if (m->target == TARGET_CUDA)
                        text_add(kernels, "kernel %s unit %s", k->name, k->name);
                else
                        text_add(kernels, "kernel %s unit cpu%d", k->name, i % CPU_UNITS);
                text_add(kernels, " threads %d smem %d args %d flops %.0f bytes %.0f title %s\n", k->threads, k->smem,
                         k->n_args, k->flops, k->bytes, k->title);
                if (k->early)
                        text_add(kernels, "early %s\n", k->name);
        }
        for (int u = 0; u < (m->target == TARGET_CUDA ? m->n_kernels : CPU_UNITS); u++) {
                bool open = false;
                for (int i = 0; i < m->n_kernels; i++) {
                        const Kernel *k = &m->kernel[i];
                        if (m->target == TARGET_CUDA ? i != u : i % CPU_UNITS != u)
                                continue;
                        if (!open && m->target == TARGET_CUDA)
                                text_add(source, "//@ unit %s\n", k->name);
                        else if (!open)
                                text_add(source, "//@ unit cpu%d\n", u);
                        open = true;
                        for (const char *s = k->where; *s; ) {
                                size_t n = strcspn(s, "\n");
                                text_add(source, "// %.*s\n", (int)n, s);
                                s += n + (s[n] == '\n');
                        }
                        put_named(source, k->text, k->name);
                        text_add(source, "\n");
                }
        }
}
