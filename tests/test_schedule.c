/* test_schedule.c: which launches schedule.c puts together, as text.
 *
 * A launch is a line `NAME THREADS SMEM GRID ARG...`; a grid has factors N, N/PART and BT/PART; an
 * argument is `N` (scratch N is read), `N!` (written) or `dN` (added to gradient N); a NAME
 * with a * has blocks that take long, and NAME:MxNxK is a short product for sm_90a.  Joined side by
 * side: a+b; in turn: a;b; sm90: blocks there.  Launches stand in the order of a program.
 *
 * Of what starts early (launch_overlap.c): NAME@I@J may load scratch I and J early, NAME^I all but
 * scratch I; # fills sm_90a's multiprocessors, 0 does not run there. */
#include "test.h"
#include <stdlib.h>
#include "codegen/forms/forms.h"

enum { MOST = 32 };

static Grid grid_of(const Emit *e, char *text)
{
        Grid g = { 0 };
        char *rest;
        for (char *s = strtok_r(text, "*", &rest); s; s = strtok_r(NULL, "*", &rest)) {
                const char *by = strchr(s, '/');
                const Dim d = *s == 'B' ? dim_mul(DIM_SYM(SYM_B), DIM_SYM(SYM_T)) : DIM(atoi(s));
                g = grid_times(g, by ? grid_ceil(e, d, atoi(by + 1)) : grid_dim(e, d));
        }
        return g;
}

static void add(Emit *e, const char *line)
{
        static char name[MOST][32];
        char grid[32], args[80], *word, *rest, *shape;
        int threads, smem;
        CHECK(sscanf(line, "%31s %d %d %31s %79[^\n]", name[e->n_launch], &threads, &smem, grid,
                     args) == 5);
        Build b = build_start(e, NULL, "map", name[e->n_launch]);
        b.any.threads = threads;
        b.any.smem = smem;
        b.us = strchr(name[e->n_launch], '*') ? 5 : 0;
        b.plain = strchr(name[e->n_launch], '-');
        if ((shape = strpbrk(name[e->n_launch], "@^"))) {
                int of[2] = { 0 }, n = sscanf(shape + 1, "%d@%d", &of[0], &of[1]);
                Slot s[2] = { { .kind = SLOT_WORK, .id = of[0] },
                              { .kind = SLOT_WORK, .id = of[1] } };
                build_prefetch(&b, n > 1 ? PREFETCH_EACH : PREFETCH_REST, &s[0],
                               n > 1 ? &s[1] : NULL);
                *shape = 0;
        }
        if (strchr(name[e->n_launch], '#'))
                b.form[ARCH_SM90A] = (Form) { .threads = threads,
                                              .smem = 200 << 10,
                                              .grid = grid_blocks(100),
                                              .cluster = 1 };
        if (strchr(name[e->n_launch], '0'))
                b.form[ARCH_SM90A] = (Form) {
                        .threads = threads, .grid = grid_blocks(0), .none = true, .persistent = true
                };
        if ((shape = strchr(name[e->n_launch], ':'))) {
                SingleWave *s = arena_alloc(e->m->arena, sizeof *s);
                long long M, N, K;
                CHECK(sscanf(shape, ":%lldx%lldx%lld", &M, &N, &K) == 3);
                s->p = (Gemm) { .dt = DT_BF16,
                                .M = M,
                                .N = N,
                                .K = K,
                                .align = 16,
                                .epilogue_bytes = 2,
                                .fixed = true,
                                .single_wave = true };
                b.single_wave = s;
                b.form[ARCH_SM90A] = (Form) { .threads = 160,
                                              .grid = grid_blocks(1),
                                              .cluster = 1 };
                b.tile = "S64x64s";
                *shape = 0;
        }
        for (word = strtok_r(args, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
                const CType type = *word == 'h' ? C_BF16 : C_F32;
                word += *word == 'h';
                int n = atoi(word + (*word == 'd'));
                while (*word != 'd' && e->n_work <= n)
                        work_new(e, DIM(1), 4);
                if (*word == 'd')
                        arg_grad(e, &b.args, n, DT_F32);
                else
                        (strchr(word, '!') ? arg_work : arg_done)(e, &b.args, n, type, "x");
        }
        build_end(&b, grid_of(e, grid));
}

/* What the pass makes of a program, as `show` says it. */
static void compare(int tokens, const char *program, void (*pass)(Emit *, Arena *),
                    void (*show)(const Emit *, Text *), const char *want)
{
        Arena *a = arena_new();
        Graph *g = graph_new("schedule");
        Emit e = { .m = module_new(a, TARGET_CUDA), .g = g, .tmp = a };
        Text got = { 0 };
        static char copy[2000];
        g->sizes.v[SYM_T] = tokens;
        for (int i = 0; i < 4; i++)
                graph_leaf(g, OP_PARAM, type_of(DT_F32, 1, DIM(1)), &(Attr) { 0 }, (Loc) { 0 },
                           "p");
        snprintf(copy, sizeof copy, "%s", program);
        char *line, *rest;
        for (line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
                add(&e, line);
        pass(&e, a);
        show(&e, &got);
        CHECK_MSG(!strcmp(got.s, want), "got:\n%swant:\n%s", got.s, want);
        text_free(&got);
        free(e.launch);
        free(e.work);
        graph_free(g);
        arena_free(a);
}

static void show_launches(const Emit *e, Text *out)
{
        for (int i = 0; i < e->n_launch; i++) {
                const Launch *l = &e->launch[i];
                for (int k = 0; k < l->n_pieces; k++)
                        text_add(out, "%s%s", k ? l->in_turn ? ";" : "+" : "", l->piece[k]->title);
                text_add(out, " %s", grid_text(e->tmp, &l->any.grid));
                if (form_is(l->form, ARCH_SM90A))
                        text_add(out, " sm90 %s", grid_text(e->tmp, &l->form[ARCH_SM90A].grid));
                text_add(out, "\n");
        }
}

static void expect(const char *program, const char *want)
{
        compare(0, program, schedule_launches, show_launches, want);
}

/* Each launch: ! where it is announced, what it has early, its shared memory on sm_90a if it was
 * raised. */
static void show_early(const Emit *e, Text *out)
{
        for (int i = 0; i < e->n_launch; i++) {
                const Launch *l = &e->launch[i];
                text_add(out, "%s%s", l->piece[0]->title, l->overlaps ? "!" : "");
                if (l->piece[0]->prefetch)
                        text_add(out, " %s", l->piece[0]->prefetches);
                int smem = l->spread ? l->spread : l->form[ARCH_SM90A].smem;
                if (smem > 0)
                        text_add(out, " %d", smem);
                text_add(out, "\n");
        }
}

static void early(Emit *e, Arena *a)
{
        (void)a;
        launches_overlap(e);
}

static void expect_early(int tokens, const char *program, const char *want)
{
        compare(tokens, program, early, show_early, want);
}

/* a writes 0; b may have 1 before a has ended and not 0; nobody knows what ran before a. */
TEST (what_the_launch_before_does_not_write_is_early) {
        expect_early(64,
                     "a#@1@2 192 0 9 1 2 0!\n"
                     "b#@0@1 192 0 9 0 1 3!\n"
                     "c#@0@1 192 0 9 0 1 4!\n"
                     "d#@3@4 192 0 9 3 4 5!\n",
                     "a# 0 204800\n"
                     "b#! PREFETCH_B 204800\n"
                     "c#! PREFETCH_A | PREFETCH_B 204800\n"
                     "d#! PREFETCH_A 204800\n");
}

/* What does not run on sm_90a (x0, though it writes 1) is not before anything. */
TEST (what_is_left_out_is_before_nothing) {
        expect_early(64, "a# 192 0 9 0!\nx0 128 0 9 0 1!\nb#@0@1 192 0 9 0 1 3!\n",
                     "a# 204800\nx0\nb#! PREFETCH_B 204800\n");
}

TEST (all_but_one_is_early) {
        expect_early(64, "a# 128 0 9 0!\nb^0 128 0 9 0 1 2!\n", "a# 204800\nb! true 115840\n");
        expect_early(64, "a# 128 0 9 0! 1!\nb^0 128 0 9 0 1 2!\n", "a# 204800\nb! false 115840\n");
        expect_early(64, "b^0 128 0 9 0 1 2!\n", "b false\n");
}

/* No multiprocessor of 132 takes more than its share: one, three; of 600 nobody can tell.  Nor
 * behind what leaves it room. */
TEST (blocks_that_start_early_are_spread) {
        expect_early(64, "a# 128 0 9 0!\nb 128 256 132 0 1!\n", "a# 204800\nb! 115840\n");
        expect_early(64, "a# 128 0 9 0!\nb 128 256 384 0 1!\n", "a# 204800\nb! 57472\n");
        expect_early(64, "a# 128 0 9 0!\nb 128 90000 384 0 1!\n", "a# 204800\nb! 90000\n");
        expect_early(64, "a# 128 0 9 0!\nb 128 256 600 0 1!\n", "a# 204800\nb\n");
        expect_early(64, "a# 128 0 9 0!\nb 1024 256 264 0 1!\n", "a# 204800\nb\n");
        expect_early(64, "a 128 0 9 0!\nb 128 256 132 0 1!\n", "a\nb\n");
}

/* There the launch before the one before may be running as well. */
TEST (of_one_token_nothing_is_sure) {
        expect_early(1, "a# 128 0 9 0!\nb#@1@2 192 0 9 1 2 3!\nc^3 128 0 9 3 1 4!\n",
                     "a# 204800\nb# 0 204800\nc false\n");
}

TEST (a_chain_stays_as_it_is) {
        expect("a 128 0 10 0!\nb 128 0 10 0 1!\nc 128 0 10 1 2!\n", "a 10\nb 10\nc 10\n");
}

TEST (what_nothing_waits_for_joins_the_next_level) {
        expect("dy 128 0 8 0!\n"
               "dx 128 17408 100 0 1!\n"
               "dw 128 17408 100 0 2!\n"
               "sum 256 0 4 2 d1\n"
               "norm 128 256 8 1 3!\n"
               "last 128 256 8 3 4!\n",
               "dy 8\ndx+dw 200\nnorm+sum 12\nlast 8\n");
}

TEST (sums_without_company_gather_at_the_end) {
        expect("dy 512 20000 8 0!\n"
               "s 128 0 4 0 d1\n"
               "x 512 20000 8 0 1!\n"
               "t 128 0 5 0 d2\n"
               "y 512 20000 8 1 2!\n",
               "dy 8\nx 8\ny 8\ns+t 9\n");
}

TEST (what_takes_long_joins_what_takes_as_long) {
        expect("dy 128 0 8 0!\nsum 128 0 4 d1\ndx 128 0 8 0 1!\nnorm* 128 0 8 1 2!\n",
               "dy+sum 12\ndx 8\nnorm* 8\n");
        expect("dy 128 0 8 0!\nsort* 128 0 4 d1\ndx 128 0 8 0 1!\nnorm* 128 0 8 1 2!\n",
               "dy 8\ndx 8\nnorm*+sort* 12\n");
}

/* Read after write, write after read, write after write. */
TEST (order_is_kept) {
        expect("a 128 0 2 0!\nb 128 0 2 0 1!\nc 128 0 2 0!\n", "a 2\nb 2\nc 2\n");
        expect("a 128 0 2 d1 0!\nb 128 0 2 d1 1!\n", "a 2\nb 2\n");
        expect("a 128 0 1 d1 0!\nb 128 0 1 d2 1!\n", "a+b 2\n");
}

/* Threads may leave between the pieces, and not come back. */
TEST (one_block_does_both_in_turn) {
        expect("a 256 0 1 0!\nb 128 0 1 0 1!\nc 128 0 3/4 1 2!\n", "a;b;c 1\n");
        expect("a 128 0 1 0!\nb 256 0 1 0 1!\n", "a 1\nb 1\n");
        expect("a 128 0 1 0!\nb 128 0 2 0 1!\n", "a 1\nb 2\n");
        expect("a 128 0 1 0!\nb 128 0 1 1!\nc 128 0 1 0 1 2!\n", "a+b 2\nc 1\n");
}

TEST (tiles_are_joined_by_as_many_threads_only) {
        expect("a 128 17408 9 0!\nb 256 17408 9 1!\nc 128 0 9 2!\nd 256 0 9 3!\n",
               "a+c 18\nb+d 18\n");
}

/* 16-bit arguments allow functions that float32 ones do not. */
TEST (what_calls_no_functions_joins_either) {
        expect("a 128 0 4 0!\nb 128 0 4 h1!\nc- 128 0 4 h2!\n", "a+c- 8\nb 4\n");
        expect("b 128 0 4 h1!\na 128 0 4 0!\nc- 128 0 4 h2!\n", "b+c- 8\na 4\n");
}

TEST (what_fills_the_gpu_stays_alone) {
        expect("a 128 17408 200 0!\nb 128 17408 100 1!\nc 128 17408 60 2!\n", "a+c 260\nb 100\n");
        expect("a 128 0 5000 0!\nb 128 0 1 1!\n", "a 5000\nb 1\n");
        expect("a 128 0 1 0!\nb 128 0 BT/64 1!\nc 128 0 2*9/4 2!\n", "a+c 7\nb ceil(B*T/64)\n");
}

/* Alone in small tiles; with others in larger ones, which all fit at once; one that need not be
 * there where it costs the launch least. */
TEST (single_wave_gemms_share_the_gpu) {
        expect("dx:1536x384x1536 128 98304 72 0!\n", "dx 72 sm90 72\n");
        expect("dx:1536x384x1536 128 98304 72 0!\n"
               "dw:384x1536x1536 128 98304 72 d1\n"
               "dv:1536x384x1536 128 98304 72 d2\n",
               "dx+dw+dv 216 sm90 108\n");
        expect("dx:1536x384x384 128 98304 72 0!\n"
               "dw:384x384x1536 128 98304 36 d1\n"
               "dy:1536x384x1536 128 98304 72 0 1!\n",
               "dx 72 sm90 72\ndy+dw 108 sm90 90\n");
}

/* Neither other launches nor more than fit. */
TEST (single_wave_gemms_stay_alone) {
        expect("dx:1536x384x1536 128 98304 72 0!\nsum 128 98304 4 d1\n", "dx 72 sm90 72\nsum 4\n");
        expect("a:1536x1536x384 128 98304 72 0!\nb:1536x1536x384 128 98304 72 1!\n",
               "a 72 sm90 96\nb 72 sm90 96\n");
}

TEST (equal_pieces_stand_together) {
        expect("a 128 0 3 0!\nb 128 0 2 1!\na 128 0 3 2!\n", "a+a+b 8\n");
}

TEST_MAIN
