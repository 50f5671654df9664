/* program_parse.c: parses program.*, a statement a line.  expr.c has its expressions. */
#include "program.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "../rt.h"
#include "../util/line_reader.h"

enum { MAX_MOVES = 4096, MAX_ARENAS = 64, MAX_KERNELS = 1 << 16, MAX_PROGS = 256, MAX_IO = 4096 };
#define MAX_BYTES ((uint64_t)1 << 60)

typedef struct Parse {
        LineReader w;
        Program *p;
        Io *io; /* next free of the whole text's */
        Run *run;
        Move *move;
        Ref *ref;
        uint32_t *slot, mask; /* kernels by name: index + 1, 0 is free */
} Parse;

static int kernel_slot(const Parse *s, const char *name)
{
        uint32_t i = (uint32_t)XXH3_64bits(name, strlen(name)) & s->mask;
        while (s->slot[i] && strcmp(s->p->kernel[s->slot[i] - 1].name, name))
                i = (i + 1) & s->mask;
        return (int)i;
}

static Ref parse_ref(Parse *s, char *word)
{
        Ref r = { REF_RT, 0 };
        if (!strcmp(word, "rt"))
                return r;
        if (!strncmp(word, "map:", 4)) {
                r.arena = REF_MAP;
                if (!s->p->n_maps || !text_int(word + 4, (uint64_t)s->p->n_maps - 1, &r.offset))
                        line_fail(&s->w, "'%.60s' is not one of the %d tensor maps", word,
                                  s->p->n_maps);
                return r;
        }
        char *plus = strchr(word, '+');
        if (!plus) {
                line_fail(&s->w, "'%.60s' is neither rt nor ARENA+OFFSET nor map:NUMBER", word);
                return r;
        }
        *plus = 0;
        r.arena = program_arena(s->p, word);
        if (r.arena < 0)
                line_fail(&s->w, "no arena named '%.60s'", word);
        else if (!text_int(plus + 1, s->p->arena[r.arena].size, &r.offset))
                line_fail(&s->w, "offset %.40s is not a number inside arena %s of %llu bytes",
                          plus + 1, word, (unsigned long long)s->p->arena[r.arena].size);
        return r;
}

static Ref parse_arena_ref(Parse *s, const char *name)
{
        char *word = line_need(&s->w, name);
        Ref r = parse_ref(s, word);
        if (r.arena < 0)
                line_fail(&s->w, "%s must be ARENA+OFFSET", name);
        return r;
}

static void check_extent(Parse *s, Ref r, uint64_t size)
{
        if (s->w.code || r.arena < 0)
                return;
        const ArenaDef *a = &s->p->arena[r.arena];
        if (size > a->size - r.offset)
                line_fail(&s->w, "%llu bytes at %s+%llu reach beyond the arena's %llu",
                          (unsigned long long)size, a->name, (unsigned long long)r.offset,
                          (unsigned long long)a->size);
}

static const char *parse_expr(Parse *s, const char *name, const Prog *g, int64_t max,
                              int64_t *value)
{
        char *text = line_need(&s->w, name);
        *value = expr_eval(text, g->B, g->T);
        if (*value < 0)
                line_fail(&s->w, "%s: '%.100s' is not an expression, or too large at B=%d T=%d",
                          name, text, g->B, g->T);
        else if (*value > max)
                line_fail(&s->w, "%s: %.100s is %lld at B=%d T=%d, most is %lld", name, text,
                          (long long)*value, g->B, g->T, (long long)max);
        return text;
}

static void parse_arena(Parse *s)
{
        ArenaDef a = { line_need(&s->w, "arena name"), line_int(&s->w, "arena size", MAX_BYTES) };
        line_end(&s->w);
        if (s->p->n_arenas == MAX_ARENAS)
                line_fail(&s->w, "more than %d arenas", MAX_ARENAS);
        else if (program_arena(s->p, a.name) >= 0 || !strcmp(a.name, "rt"))
                line_fail(&s->w, "arena %.60s is declared twice", a.name);
        else
                s->p->arena[s->p->n_arenas++] = a;
}

static void parse_kernel(Parse *s)
{
        LineReader *w = &s->w;
        KernelDef k = { .name = line_need(w, "kernel name") };
        if (line_keyword(w, "unit"))
                k.unit = line_need(w, "unit name");
        if (line_keyword(w, "threads"))
                k.form[FORM_ANY].threads = (int)line_int(w, "threads", PROGRAM_MAX_THREADS);
        if (line_keyword(w, "smem"))
                k.form[FORM_ANY].smem = (unsigned)line_int(w, "smem", PROGRAM_MAX_SMEM);
        if (line_keyword(w, "args"))
                k.n_args = (int)line_int(w, "args", PROGRAM_MAX_ARGS);
        if (line_keyword(w, "flops"))
                k.flops = line_real(w, "flops");
        if (line_keyword(w, "bytes"))
                k.bytes = line_real(w, "bytes");
        if (line_keyword(w, "title"))
                k.title = line_rest(w);
        if (w->code)
                return;
        if (s->p->n_kernels == MAX_KERNELS)
                line_fail(w, "more than %d kernels", MAX_KERNELS);
        int i = kernel_slot(s, k.name);
        if (s->slot[i])
                line_fail(w, "kernel %.60s is declared twice", k.name);
        if (k.n_args < 1)
                line_fail(w, "kernel %.60s: rt is always the first argument, so args is at least 1",
                          k.name);
        if (w->code)
                return;
        s->p->kernel[s->p->n_kernels++] = k;
        s->slot[i] = (uint32_t)s->p->n_kernels;
}

static KernelDef *named_kernel(Parse *s)
{
        char *name = line_need(&s->w, "kernel name");
        uint32_t k = s->slot[kernel_slot(s, name)];
        if (!k)
                line_fail(&s->w, "no kernel named '%.60s'", name);
        return k ? &s->p->kernel[k - 1] : NULL;
}

static void parse_pdl(Parse *s)
{
        KernelDef *k = named_kernel(s);
        line_end(&s->w);
        if (k)
                k->pdl = 1;
}

/* form ARCH KERNEL threads N smem N persistent | cluster N */
static void parse_form(Parse *s)
{
        char *name = line_need(&s->w, "architecture");
        int arch = arch_of(name);
        FormDef f = { 0 };
        if (arch == FORM_ANY)
                line_fail(&s->w, "no forms are known for '%.40s'; a newer tgc may know them", name);
        KernelDef *k = named_kernel(s);
        if (line_keyword(&s->w, "threads"))
                f.threads = (int)line_int(&s->w, "threads", PROGRAM_MAX_THREADS);
        if (line_keyword(&s->w, "smem"))
                f.smem = (unsigned)line_int(&s->w, "smem", PROGRAM_MAX_SMEM);
        f.persistent = line_optional(&s->w, "persistent");
        if (!f.persistent && line_keyword(&s->w, "cluster"))
                f.cluster = (unsigned)line_int(&s->w, "blocks of a cluster", PROGRAM_MAX_CLUSTER);
        line_end(&s->w);
        if (k && !s->w.code && (f.threads < 1 || (!f.persistent && !f.cluster)))
                line_fail(&s->w, "kernel %.60s needs threads, and blocks in a cluster, on %.40s",
                          k->name, name);
        if (k && !s->w.code)
                k->form[arch] = f;
}

/* The copy engine wants rows that start at multiples of 16 bytes. */
static void parse_map(Parse *s)
{
        LineReader *w = &s->w;
        MapDef m = { 0 };
        char *number = line_need(w, "number of the tensor map");
        uint64_t n;
        if (!text_int(number, INT32_MAX, &n) || n != (uint64_t)s->p->n_maps)
                line_fail(w, "tensor map %d is due, not '%.40s': compile the model again",
                          s->p->n_maps, number);
        char *dtype = line_need(w, "dtype");
        m.type = !strcmp(dtype, "f16") ? MAP_F16 : !strcmp(dtype, "tf32") ? MAP_TF32 : MAP_BF16;
        m.elem = m.type == MAP_TF32 ? 4 : 2;
        if (m.type == MAP_BF16 && strcmp(dtype, "bf16"))
                line_fail(w, "a tensor map of '%.20s': bf16, f16 or tf32 is wanted", dtype);
        m.of = parse_arena_ref(s, "place of the matrix");
        m.rows = line_int(w, "rows", INT32_MAX);
        m.cols = line_int(w, "columns", INT32_MAX);
        m.ld = line_int(w, "row stride", INT32_MAX);
        m.box_rows = 128 / (int)m.elem;
        m.box_bytes = 128;
        char *box = line_word(w);
        if (box && strcmp(box, "box"))
                line_fail(w, "'%.20s' behind a tensor map: box is wanted, or nothing", box);
        else if (box) {
                m.box_rows = (int)line_int(w, "rows of a box", 256);
                m.box_bytes = (int)line_int(w, "bytes of a box's row", 128);
                if (!w->code && (m.box_rows < 1 ||
                                 (m.box_bytes != 32 && m.box_bytes != 64 && m.box_bytes != 128)))
                        line_fail(
                                w,
                                "a tensor map's box of %d rows of %d bytes: 1 to 256 of 32, 64 or "
                                "128 are wanted",
                                m.box_rows, m.box_bytes);
        }
        line_end(w);
        if (!w->code &&
            (m.rows < 1 || m.cols < 1 || m.ld < m.cols || m.ld * m.elem % 16 || m.of.offset % 16))
                line_fail(w,
                          "a tensor map of %llu x %llu with stride %llu cannot be made: rows must "
                          "not overlap, and start at multiples of 16 bytes",
                          (unsigned long long)m.rows, (unsigned long long)m.cols,
                          (unsigned long long)m.ld);
        if (!w->code)
                check_extent(s, m.of, ((m.rows - 1) * m.ld + m.cols) * m.elem);
        s->p->map[s->p->n_maps++] = m;
}

static void parse_zero(Parse *s)
{
        Zero z = { .at = parse_arena_ref(s, "place to clear") };
        z.size = line_int(&s->w, "bytes to clear", MAX_BYTES);
        line_end(&s->w);
        check_extent(s, z.at, z.size);
        s->p->zero[s->p->n_zeros++] = z;
}

static void parse_cache(Parse *s)
{
        CacheDef c = { .at = parse_arena_ref(s, "place of a cache") };
        c.page_bytes = line_int(&s->w, "bytes of a page", MAX_BYTES >> 24);
        c.pages = (int)line_int(&s->w, "pages", 1 << 24);
        c.pool = line_optional(&s->w, "narrow");
        line_end(&s->w);
        check_extent(s, c.at, c.page_bytes * (uint64_t)c.pages);
        s->p->cache[s->p->n_caches++] = c;
}

static void parse_io(Parse *s, Prog *g)
{
        static const struct {
                const char *name;
                size_t size;
        } type[] = { { "f32", 4 }, { "i32", 4 }, { "bf16", 2 }, { "f16", 2 } };
        Io io = { .name = line_need(&s->w, "io name"), .dtype = line_need(&s->w, "dtype") };
        int64_t n;
        for (size_t i = 0; i < sizeof type / sizeof *type; i++)
                if (!strcmp(io.dtype, type[i].name))
                        io.elem = type[i].size;
        if (!io.elem)
                line_fail(&s->w, "io %.60s: unknown dtype '%.20s'", io.name, io.dtype);
        io.at = parse_arena_ref(s, "place");
        io.shape = parse_expr(s, "shape", g, (int64_t)(MAX_BYTES / 4), &n);
        line_end(&s->w);
        if (!s->w.code)
                check_extent(s, io.at, (uint64_t)n * io.elem);
        if (prog_io(g, io.name))
                line_fail(&s->w, "io %.60s is declared twice", io.name);
        if (g->n_io == MAX_IO)
                line_fail(&s->w, "more than %d io in one program", MAX_IO);
        g->io[g->n_io++] = io;
        s->io++;
}

/* Whether its arguments of run r are tensor maps or addresses agrees with the runs before. */
static void check_maps(Parse *s, KernelDef *k, const Run *r)
{
        for (int i = 0; k->arg && i < k->n_args; i++)
                if ((k->arg[i].arena == REF_MAP) != (r->arg[i].arena == REF_MAP))
                        line_fail(
                                &s->w,
                                "argument %d of %s is a tensor map in some runs and not in others",
                                i, k->name);
        if (!k->arg)
                k->arg = r->arg;
}

static void check_form(Parse *s, uint32_t k, int arch, int64_t grid)
{
        const KernelDef *def = k ? &s->p->kernel[k - 1] : NULL;
        if (def && !def->form[arch].threads)
                line_fail(&s->w, "%s has no form for %s, and its run has one", def->name,
                          program_archs[arch].name);
        else if (def && def->form[arch].cluster && grid % def->form[arch].cluster)
                line_fail(&s->w, "%s: %lld blocks on %s are not whole clusters", def->name,
                          (long long)grid, program_archs[arch].name);
}

static void parse_run(Parse *s, Prog *g)
{
        LineReader *w = &s->w;
        char *name = line_need(w, "kernel name"), *word;
        uint32_t k = s->slot[kernel_slot(s, name)];
        int64_t grid;
        int n = 0;
        if (!k)
                line_fail(w, "no kernel named '%.60s'", name);
        Run r = { .kernel = (int)k - 1, .arg = s->ref };
        if (line_keyword(w, "grid"))
                r.grid[FORM_ANY] = parse_expr(s, "grid", g, INT32_MAX, &grid);
        for (int i = FORM_ANY + 1; i < N_FORMS; i++)
                if (line_optional(w, program_archs[i].name)) {
                        r.grid[i] = parse_expr(s, "grid of a form", g, INT32_MAX, &grid);
                        check_form(s, k, i, grid);
                } else if (k && s->p->kernel[k - 1].form[i].threads) {
                        line_fail(w, "%s has a form for %s, and its run has none", name,
                                  program_archs[i].name);
                }
        if (line_keyword(w, "args"))
                while (!w->code && (word = line_word(w))) {
                        *s->ref++ = parse_ref(s, word);
                        n++;
                }
        line_end(w);
        if (w->code)
                return;
        if (n != s->p->kernel[r.kernel].n_args)
                line_fail(w, "%s takes %d arguments, %d are given", name,
                          s->p->kernel[r.kernel].n_args, n);
        else if (r.arg[0].arena != REF_RT)
                line_fail(w, "the first argument of %s must be rt", name);
        else
                check_maps(s, &s->p->kernel[r.kernel], &r);
        g->run[g->n_run++] = r;
        s->run++;
}

/* move out|in act+OFFSET host+OFFSET BYTES BEGIN END */
static void parse_move(Parse *s, Prog *g)
{
        LineReader *w = &s->w;
        Move m = { 0 };
        const char *way = line_need(w, "out or in");
        m.out = !strcmp(way, "out");
        m.here = parse_arena_ref(s, "place to move");
        m.host = parse_arena_ref(s, "place in arena host");
        m.size = line_int(w, "bytes to move", MAX_BYTES);
        m.begin = (int)line_int(w, "run before which it begins", INT32_MAX);
        m.end = (int)line_int(w, "run before which it is done", INT32_MAX);
        line_end(w);
        if (!w->code && !m.out && strcmp(way, "in"))
                line_fail(w, "'%.20s' is neither out nor in", way);
        if (!w->code && (strcmp(s->p->arena[m.host.arena].name, "host") ||
                         strcmp(s->p->arena[m.here.arena].name, "act")))
                line_fail(w, "a move is between arena act and arena host");
        if (!w->code && (m.begin > m.end || (g->n_move && m.begin < g->move[g->n_move - 1].begin)))
                line_fail(w,
                          "a move from run %d to run %d: moves stand in the order in which they "
                          "begin, and end behind that",
                          m.begin, m.end);
        if (!w->code && g->n_move == MAX_MOVES)
                line_fail(w, "more than %d moves in one program", MAX_MOVES);
        check_extent(s, m.here, m.size);
        check_extent(s, m.host, m.size);
        if (w->code)
                return;
        g->move[g->n_move++] = m;
        s->move++;
}

static void check_moves(Parse *s, const Prog *g)
{
        for (int i = 0; i < g->n_move; i++)
                if (g->move[i].end > g->n_run)
                        line_fail(&s->w, "program %.60s: move %d ends before run %d of %d", g->name,
                                  i, g->move[i].end, g->n_run);
}

static void parse_prog(Parse *s)
{
        LineReader *w = &s->w;
        Prog *g = &s->p->prog[s->p->n_progs];
        *g = (Prog) {
                .name = line_need(w, "program name"), .io = s->io, .run = s->run, .move = s->move
        };
        if (line_keyword(w, "B"))
                g->B = (int)line_int(w, "B", TGC_MAX_BATCH);
        if (line_keyword(w, "T"))
                g->T = (int)line_int(w, "T", INT32_MAX / TGC_MAX_BATCH);
        line_end(w);
        if (s->p->n_progs == MAX_PROGS)
                line_fail(w, "more than %d programs", MAX_PROGS);
        else if (program_find(s->p, g->name))
                line_fail(w, "program %.60s is declared twice", g->name);
        else if (!w->code && (g->B < 1 || g->T < 1))
                line_fail(w, "program %.60s: B and T are at least 1", g->name);
        while (!w->code) {
                if (!line_next(w)) {
                        line_fail(w, "program %s has no end", g->name);
                        break;
                }
                char *word = line_need(w, "statement");
                if (!strcmp(word, "end")) {
                        line_end(w);
                        check_moves(s, g);
                        s->p->n_progs++;
                        return;
                }
                if (!strcmp(word, "io"))
                        parse_io(s, g);
                else if (!strcmp(word, "zero"))
                        parse_zero(s);
                else if (!strcmp(word, "run"))
                        parse_run(s, g);
                else if (!strcmp(word, "move"))
                        parse_move(s, g);
                else
                        line_fail(w, "'%.60s' is not io, zero, run, move or end", word);
        }
}

static void parse_text(Parse *s)
{
        LineReader *w = &s->w;
        if (!line_next(w) || !line_keyword(w, "tgc-program") || line_int(w, "version", 99) != 2)
                line_fail(w, "the first line must be 'tgc-program 2': compile the model again");
        line_end(w);
        while (!w->code && line_next(w)) {
                char *word = line_need(w, "statement");
                if (!strcmp(word, "arena"))
                        parse_arena(s);
                else if (!strcmp(word, "kernel"))
                        parse_kernel(s);
                else if (!strcmp(word, "pdl"))
                        parse_pdl(s);
                else if (!strcmp(word, "form"))
                        parse_form(s);
                else if (!strcmp(word, "map"))
                        parse_map(s);
                else if (!strcmp(word, "zero"))
                        parse_zero(s);
                else if (!strcmp(word, "cache"))
                        parse_cache(s);
                else if (!strcmp(word, "program"))
                        parse_prog(s);
                else
                        line_fail(w, "'%.60s' is not arena, kernel, map, zero, cache or program",
                                  word);
        }
}

/* Carve n objects of `size` bytes from a block whose use is *at. */
static void *carve(char *mem, size_t *at, size_t n, size_t size)
{
        void *p = mem ? mem + *at : 0;
        *at += (n * size + 15) / 16 * 16;
        return p;
}

/* Every array has the length its keyword's lines allow, every argument is a
 * word: the block is at most some thirty times the text. */
static size_t lay_out(Parse *s, char *mem, const char *text, size_t size)
{
        size_t at = 0, words = 1, kernels = text_count(text, size, "kernel"), slots = 16;
        for (size_t i = 0; i < size; i++)
                words += text[i] == ' ' || text[i] == '\n';
        while (slots < 2 * kernels)
                slots *= 2;
        s->mask = (uint32_t)slots - 1;
        s->w.rest = carve(mem, &at, size + 1, 1);
        s->slot = carve(mem, &at, slots, sizeof *s->slot);
        s->ref = carve(mem, &at, words, sizeof *s->ref);
        s->io = carve(mem, &at, text_count(text, size, "io") + 1, sizeof *s->io);
        s->run = carve(mem, &at, text_count(text, size, "run") + 1, sizeof *s->run);
        s->move = carve(mem, &at, text_count(text, size, "move") + 1, sizeof *s->move);
        s->p->arena = carve(mem, &at, text_count(text, size, "arena") + 1, sizeof *s->p->arena);
        s->p->kernel = carve(mem, &at, kernels + 1, sizeof *s->p->kernel);
        s->p->prog = carve(mem, &at, text_count(text, size, "program") + 1, sizeof *s->p->prog);
        s->p->zero = carve(mem, &at, text_count(text, size, "zero") + 1, sizeof *s->p->zero);
        s->p->cache = carve(mem, &at, text_count(text, size, "cache") + 1, sizeof *s->p->cache);
        s->p->map = carve(mem, &at, text_count(text, size, "map") + 1, sizeof *s->p->map);
        return at;
}

int program_parse(Program *p, const char *text, size_t size, const char *what, Err *e)
{
        Parse s = { .p = p, .w = { .what = what, .e = e } };
        *p = (Program) { 0 };
        if (size > PROGRAM_MAX_TEXT || memchr(text, 0, size))
                return err_set(e, TGC_BAD_FILE, "%s: %s", what,
                               size > PROGRAM_MAX_TEXT ? "longer than 256 MiB"
                                                       : "a zero byte in the text");
        p->mem = calloc(1, lay_out(&s, 0, text, size));
        if (!p->mem)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", what);
        lay_out(&s, p->mem, text, size);
        memcpy(s.w.rest, text, size);
        parse_text(&s);
        if (s.w.code)
                program_free(p);
        return s.w.code;
}
