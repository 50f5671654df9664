/* module.c: collects all kernels of one target as texts, for people and for the plan. */
#include "program.h"
#include <string.h>

Module *module_new(Arena *a, int target)
{
        Module *m = arena_alloc(a, sizeof *m);
        m->arena = a;
        m->target = target;
        return m;
}

void module_count(Module *m, const char *program)
{
        for (int i = 0; i < m->n_kernels; i++) {
                Kernel *k = &m->kernel[i];
                if (k->n_now)
                        k->used = arena_fmt(m->arena, "%s%s%s %d", k->used, *k->used ? ", " : "",
                                            program, k->n_now);
                k->n_now = 0;
        }
}

/* ---- for people ---------------------------------------------------------- */

static void piece_fused(const Piece *p, Text *out)
{
        for (const char *s = p->where; *s;) {
                size_t n = strcspn(s, "\n"), tab = strcspn(s, "\t");
                if (tab < n)
                        text_add(out, "    %-84.*s %.*s\n", (int)tab, s, (int)(n - tab - 1),
                                 s + tab + 1);
                else
                        text_add(out, "    %.*s\n", (int)n, s);
                s += n + (s[n] == '\n');
        }
}

static void piece_buffers(const Piece *p, Text *out)
{
        text_add(out, "    reads   %s\n    writes  %s\n", p->reads, p->writes);
        text_add(out, "    work    %.4g MB moved, %.4g MFLOP", p->bytes / 1e6, p->flops / 1e6);
        if (p->bytes > 0)
                text_add(out, " (%.3g FLOP a byte)", p->flops / p->bytes);
        text_add(out, "\n");
}

void module_fused(const Module *m, Text *out)
{
        for (int i = 0; i < m->n_kernels; i++) {
                const Kernel *k = &m->kernel[i];
                text_add(out, "kernel %s\n", k->name);
                for (int j = 0; j < k->n_pieces; j++) {
                        const Piece *p = k->piece[j];
                        if (k->n_pieces > 1)
                                text_add(out, "  %s, grid %s, %d threads\n", p->title,
                                         grid_text(m->arena, &p->any.grid), p->any.threads);
                        piece_fused(p, out);
                        if (k->n_pieces > 1)
                                piece_buffers(p, out);
                }
                if (m->target == TARGET_CUDA)
                        text_add(out, "%slaunch  grid %s, %d threads, %d bytes shared\n",
                                 k->n_pieces > 1 ? "  " : "    ", grid_text(m->arena, &k->any.grid),
                                 k->any.threads, k->any.smem);
                if (k->spread)
                        text_add(
                                out,
                                "%ssm_90a  grid %s, %d threads, %d bytes shared: it starts early\n",
                                k->n_pieces > 1 ? "  " : "    ", grid_text(m->arena, &k->any.grid),
                                k->any.threads, k->spread);
                for (int j = ARCH_ANY + 1; j < N_ARCHS; j++) {
                        const Form *f = &k->form[j];
                        if (f->threads)
                                text_add(out, "    %s  grid %s %s, %d threads, %d bytes shared\n",
                                         archs[j].name, grid_text(m->arena, &f->grid),
                                         f->cluster ? "in clusters"
                                                    : "or one block a multiprocessor",
                                         f->threads, f->smem);
                }
                if (k->n_pieces == 1)
                        piece_buffers(k->piece[0], out);
                text_add(out, "%sused    %s\n\n", k->n_pieces > 1 ? "  " : "    ", k->used);
        }
}

/* ---- for the plan -------------------------------------------------------- */

enum { CPU_UNITS = 4 };

/* The ops of all pieces, as comments; lines that the piece before has too but once. */
static void put_comments(const Kernel *k, Text *source)
{
        for (int i = 0; i < k->n_pieces; i++)
                for (const char *s = k->piece[i]->where;
                     *s && !(i && !strcmp(s, k->piece[i - 1]->where));) {
                        size_t n = strcspn(s, "\n");
                        text_add(source, "// %.*s\n", (int)n, s);
                        s += n + (s[n] == '\n');
                }
}

/* form sm_90a k3_matmul threads 384 smem 230400 persistent */
static void form_text(const Form *f, const char *arch, const char *kernel, Text *out)
{
        if (!f->threads)
                return;
        if (!f->cluster == !f->persistent && !f->none)
                error_at((Loc) { kernel, 0, 0 }, "internal error: blocks stay, or form clusters");
        text_add(out, "form %s %s threads %d smem %d", arch, kernel, f->threads, f->smem);
        text_add(out, f->cluster ? " cluster %d\n" : " persistent\n", f->cluster);
}

static int compile_ms(const Kernel *k)
{
        int ms = 0;
        for (int i = 0; i < k->n_pieces; i++)
                if (!i || !piece_equal(k->piece[i], k->piece[i - 1]))
                        ms += k->piece[i]->compile_ms;
        return ms;
}

/* Does a kernel of the CPU's unit u multiply bf16?  The others need not compile what does. */
static bool unit_multiplies_bf16(const Module *m, int u)
{
        bool one = false;
        for (int i = u; i < m->n_kernels; i += CPU_UNITS)
                for (int k = 0; k < m->kernel[i].n_pieces; k++)
                        one |= m->kernel[i].piece[k]->multiplies_bf16;
        return one;
}

void module_text(const Module *m, Text *kernels, Text *source)
{
        for (int i = 0; i < m->n_kernels; i++) {
                const Kernel *k = &m->kernel[i];
                if (m->target == TARGET_CUDA)
                        text_add(kernels, "kernel %s unit %s", k->name, k->name);
                else
                        text_add(kernels, "kernel %s unit cpu%d", k->name, i % CPU_UNITS);
                text_add(kernels, " threads %d smem %d args %d flops %.0f bytes %.0f title %s\n",
                         k->any.threads, k->any.smem, k->n_args, k->flops, k->bytes, k->title);
                if (k->pdl)
                        text_add(kernels, "pdl %s\n", k->name);
                if (k->spread)
                        text_add(kernels, "form %s %s threads %d smem %d cluster 1\n",
                                 archs[ARCH_SM90A].name, k->name, k->any.threads, k->spread);
                for (int j = ARCH_ANY + 1; j < N_ARCHS; j++)
                        form_text(&k->form[j], archs[j].name, k->name, kernels);
        }
        for (int u = 0; u < (m->target == TARGET_CUDA ? m->n_kernels : CPU_UNITS); u++) {
                bool open = false;
                for (int i = 0; i < m->n_kernels; i++) {
                        const Kernel *k = &m->kernel[i];
                        if (m->target == TARGET_CUDA ? i != u : i % CPU_UNITS != u)
                                continue;
                        if (!open && m->target == TARGET_CUDA)
                                text_add(source, "//@ unit %s compile %d\n", k->name,
                                         compile_ms(k));
                        else if (!open) {
                                text_add(source, "//@ unit cpu%d\n", u);
                                stored_list_text(m->stored, source);
                                if (m->act_int8)
                                        text_add(source, "#define TGC_ACT_INT8 1\n");
                                if (unit_multiplies_bf16(m, u))
                                        text_add(source, "#define TGC_BF16 1\n");
                        }
                        open = true;
                        put_comments(k, source);
                        text_as(source, k->text, k->name, "");
                        text_add(source, "\n");
                }
        }
}
