/* schedule.c: merges small launches that do not wait for each other into one.
 *
 * The launches of a training step form a graph of who waits for whom (launch_waits.c).  A launch's
 * level is the longest path to it.  The launches on the critical path cannot move; each starts a
 * team.  Every other launch (gradients of weights and biases, sums of splits: only the update waits
 * for them) joins the first team that it may join and that has room.  A launch with slow blocks
 * (Piece.us) joins the first team that takes as long, else the longest; or it waits until the end
 * for others of its kind.  A team is one launch: entry.c lets the block's number choose the piece.
 *
 *      dx = dy W; dW = dy^T x                one launch
 *      norm's gradient; sum of dW's parts    one launch
 *
 * Single-wave GEMMs of sm_90a (sm90_gemm.c) join each other where that lengthens the launch least.
 * Their tiles are chosen for the whole launch.
 *
 * If two launches have one block each and the second waits for the first, they become one block
 * that does both in turn.
 *
 * This pays where launch latency dominates: in a step of a small model, or its next token.  A
 * launch that fills the GPU stays alone.  So does one whose grid depends on B or T.
 * needs: launches in a valid order.  keeps: what each computes, bit by bit. */
#include "../forms/forms.h"
#include <string.h>

/* Blocks of a team: tiles, as many as fit twice on the largest GPUs where two fit on a
 * multiprocessor, more where more do; light ones, 1024 threads a multiprocessor, twice that for one
 * token, where blocks do nothing but stream weights.  A kernel with more shared memory than
 * LIGHT_SMEM keeps tiles in registers, and is joined only by blocks of as many threads.  Arguments
 * of a kernel: PROGRAM_MAX_ARGS of the runtime, and the 4096 bytes of parameters that every driver
 * takes, in words of 8; MAP_WORDS with what aligns a map to 128 bytes. */
enum {
        TILE_BLOCKS = 2 * ANY_SMS,
        LIGHT_THREADS = ANY_SMS << 10,
        MOST_ARGS = 250,
        MOST_WORDS = 512,
        MAP_WORDS = 16 + 15
};

/* us: the longest of its members'; of short products, what the launch takes. */
typedef struct Team {
        int level, *member, n, cap, blocks, room, threads, args, words, next;
        bool heavy;
        double us;
} Team;

/* What single_waves_pick said of products of these kinds. */
typedef struct Picked {
        int n, kind[MOST_SINGLE_WAVES]; /* n 0: nothing here yet */
        double us;
        const Tile *tile[MOST_SINGLE_WAVES];
} Picked;

typedef struct Steps {
        Emit *e;
        Arena *a;
        int n;
        /* of each launch: first and last level it can have; the one it got, or -1 */
        int *early, *late, *level;
        int **waits, *n_waits; /* launch i waits for waits[i][0] ... */
        Team *team;
        /* teams of a level, a list by `next`, in the order they were made */
        int n_teams, *first, *end;
        bool *joins;       /* may_join */
        int *room, *words; /* room_of, words_of */
        int *n_open[2];    /* of a level: teams that might take another; of short products [1]; */
        uint64_t *open[2]; /* a bit for each level that has any */
        /* short products: of each launch 1 + its kind (0: not known yet), the first of each kind,
         * and a table of what was picked for them together */
        int *kind, n_kinds, cap_kinds, n_picked, cap_picked;
        const SingleWave **of_kind;
        Picked *picked;
} Steps;

static void find_levels(Steps *s)
{
        int last = 0;
        launch_waits(s->e, s->a, s->waits, s->n_waits);
        for (int i = 0; i < s->n; i++) {
                for (int k = 0; k < s->n_waits[i]; k++)
                        if (s->early[s->waits[i][k]] >= s->early[i])
                                s->early[i] = s->early[s->waits[i][k]] + 1;
                if (s->early[i] > last)
                        last = s->early[i];
        }
        for (int i = 0; i < s->n; i++) {
                s->late[i] = last;
                s->level[i] = -1;
        }
        for (int i = s->n - 1; i >= 0; i--)
                for (int k = 0; k < s->n_waits[i]; k++) {
                        const int j = s->waits[i][k];
                        s->late[j] = s->late[i] - 1 < s->late[j] ? s->late[i] - 1 : s->late[j];
                }
        s->first = arena_alloc(s->a, ((size_t)last + 2) * sizeof *s->first);
        s->end = arena_alloc(s->a, ((size_t)last + 2) * sizeof *s->end);
        for (int k = 0; k < 2; k++) {
                s->n_open[k] = arena_alloc(s->a, ((size_t)last + 2) * sizeof *s->n_open[k]);
                s->open[k] = arena_alloc(s->a, ((size_t)last / 64 + 2) * sizeof *s->open[k]);
        }
        for (int v = 0; v <= last + 1; v++)
                s->first[v] = s->end[v] = -1;
}

/* ---- teams ---------------------------------------------------------------- */

static bool is_light(const Piece *p) { return p->any.smem <= LIGHT_SMEM; }

/* Its blocks; of tiles more than two of which share a multiprocessor, so many pairs.  -1: B or T
 * decide. */
static int room_of(const Launch *l)
{
        const Piece *p = l->piece[0];
        int64_t blocks = grid_count(&l->any.grid);
        if (is_light(p) || p->any.min_blocks <= 2 || blocks < 0)
                return (int)blocks;
        return (int)((blocks * 2 + p->any.min_blocks - 1) / p->any.min_blocks);
}

static int light_threads(const Emit *e)
{
        return e->most_b * e->most_t == 1 ? 2 * LIGHT_THREADS : LIGHT_THREADS;
}

static bool may_join(const Emit *e, const Launch *l)
{
        const Piece *p = l->piece[0];
        int room = room_of(l);
        return !p->alone && (p->single_wave || p->joins || !form_is(p->form, ARCH_SM90A)) &&
               room > 0 && room <= (is_light(p) ? light_threads(e) / p->any.threads : TILE_BLOCKS);
}

/* fast: the one may use functions that the other may not. */
static bool agree(const Piece *a, const Piece *b)
{
        return (a->fast == b->fast || a->plain || b->plain) && a->joins == b->joins &&
               (!a->joins || a->form[ARCH_SM90A].threads == b->form[ARCH_SM90A].threads) &&
               ((is_light(a) && is_light(b)) || a->any.threads == b->any.threads);
}

static int kind_of(Steps *s, int launch)
{
        const SingleWave *x = s->e->launch[launch].piece[0]->single_wave;
        if (s->kind[launch])
                return s->kind[launch] - 1;
        int k = 0;
        while (k < s->n_kinds && !single_wave_same(x, s->of_kind[k]))
                k++;
        if (k == s->n_kinds) {
                s->of_kind = arena_grow(s->a, s->of_kind, k, &s->cap_kinds, sizeof *s->of_kind);
                s->of_kind[s->n_kinds++] = x;
        }
        s->kind[launch] = k + 1;
        return k;
}

/* Where the table has these kinds, or room for them. */
static Picked *picked(Steps *s, const Picked *want)
{
        uint64_t h = (uint64_t)want->n;
        for (int i = 0; i < want->n; i++)
                h = (h ^ (uint64_t)want->kind[i]) * 0x9E3779B97F4A7C15u;
        for (uint64_t at = h >> 32;; at++) {
                Picked *p = &s->picked[at & (uint64_t)(s->cap_picked - 1)];
                if (!p->n || (p->n == want->n && !memcmp(p->kind, want->kind, sizeof p->kind)))
                        return p;
        }
}

static void grow_picked(Steps *s)
{
        const Picked *old = s->picked;
        const int n = s->cap_picked;
        s->cap_picked = n ? n * 2 : 64;
        s->picked = arena_alloc(s->a, (size_t)s->cap_picked * sizeof *s->picked);
        for (int i = 0; i < n; i++)
                if (old[i].n)
                        *picked(s, &old[i]) = old[i];
}

/* Microseconds and tiles of a team of short products, with launch `more` unless that is -1; 0: it
 * cannot be. */
static double team_us(Steps *s, const Team *t, int more, const Tile **tile)
{
        const SingleWave *all[MOST_SINGLE_WAVES];
        Picked want = { 0 };
        for (int k = 0; k < t->n + (more >= 0); k++) {
                const int launch = k < t->n ? t->member[k] : more;
                if (!s->e->launch[launch].piece[0]->single_wave || want.n == MOST_SINGLE_WAVES)
                        return 0;
                want.kind[want.n] = kind_of(s, launch);
                all[want.n] = s->of_kind[want.kind[want.n]];
                want.n++;
        }
        if (s->n_picked * 2 >= s->cap_picked)
                grow_picked(s);
        Picked *p = picked(s, &want);
        if (!p->n) {
                *p = want;
                p->us = single_waves_pick(all, want.n, p->tile);
                s->n_picked++;
        }
        memcpy(tile, p->tile, sizeof p->tile);
        return p->us;
}

/* Words that the arguments of a launch take at most. */
static int words_of(const Launch *l)
{
        int n = 0;
        for (int i = 0; i < l->n_args; i++)
                n += l->arg[i].kind == SLOT_MAP ? MAP_WORDS : 1;
        return n;
}

/* Arguments, and rt, fit a kernel. */
static bool args_fit(int args, int words) { return args <= MOST_ARGS && 1 + words <= MOST_WORDS; }

static bool has_room(const Steps *s, const Team *t, int i)
{
        const Launch *l = &s->e->launch[i];
        const bool light = is_light(l->piece[0]) && !t->heavy;
        const int threads = l->piece[0]->any.threads > t->threads ? l->piece[0]->any.threads
                                                                  : t->threads;
        if (!args_fit(t->args + l->n_args, t->words + s->words[i]) ||
            t->room + s->room[i] > (light ? light_threads(s->e) / threads : TILE_BLOCKS))
                return false;
        for (int k = 0; k < t->n; k++) {
                const Launch *m = &s->e->launch[t->member[k]];
                if (!s->joins[t->member[k]] || !agree(m->piece[0], l->piece[0]) ||
                    !m->piece[0]->single_wave != !l->piece[0]->single_wave)
                        return false;
        }
        return true;
}

/* Might it take another launch?  Of others than short products, if all that are in it may join. */
static bool is_open(const Steps *s, const Team *t, bool single_wave)
{
        return single_wave ? t->n < MOST_SINGLE_WAVES
                           : s->joins[t->member[0]] && s->joins[t->member[t->n - 1]];
}

static void count_open(Steps *s, int level, bool single_wave, int by)
{
        const int n = s->n_open[single_wave][level] += by;
        const uint64_t bit = (uint64_t)1 << (level & 63);
        s->open[single_wave][level / 64] = n ? s->open[single_wave][level / 64] | bit
                                             : s->open[single_wave][level / 64] & ~bit;
}

/* The first level from v to hi with such a team; else one behind hi. */
static int next_open(const Steps *s, bool single_wave, int v, int hi)
{
        while (v <= hi && !(s->open[single_wave][v / 64] >> (v & 63) & 1))
                v = s->open[single_wave][v / 64] >> (v & 63) ? v + 1 : (v | 63) + 1;
        return v;
}

/* Launch i gets a place in a team of levels lo to hi, or in one of its own at level `own`. */
static void place(Steps *s, int i, int lo, int hi, int own)
{
        const Launch *l = &s->e->launch[i];
        const Tile *tile[MOST_SINGLE_WAVES];
        bool single_wave = l->piece[0]->single_wave;
        double us = single_wave ? team_us(s, &(Team) { .n = 0 }, i, tile) : l->piece[0]->us,
               least = single_wave ? us : 0;
        Team *t = NULL;
        for (int v = next_open(s, single_wave, lo, hi);
             v <= hi && s->joins[i] && !(t && least <= 0); v = next_open(s, single_wave, v + 1, hi))
                for (int k = s->first[v]; k >= 0; k = s->team[k].next) {
                        Team *x = &s->team[k];
                        if (!has_room(s, x, i))
                                continue;
                        double all = single_wave ? team_us(s, x, i, tile) : us;
                        if (single_wave ? all > 0 && all - x->us < least : !t || us - x->us < least)
                                t = x, least = all - x->us;
                }
        if (t) {
                count_open(s, t->level, single_wave, -is_open(s, t, single_wave));
        } else {
                *(s->first[own] < 0 ? &s->first[own] : &s->team[s->end[own]].next) = s->n_teams;
                s->end[own] = s->n_teams;
                t = &s->team[s->n_teams++];
                *t = (Team) { .level = own, .next = -1 };
        }
        t->member = arena_grow(s->a, t->member, t->n, &t->cap, sizeof *t->member);
        t->member[t->n++] = i;
        t->blocks += (int)grid_count(&l->any.grid);
        t->room += s->room[i];
        t->heavy |= !is_light(l->piece[0]);
        t->threads = l->piece[0]->any.threads > t->threads ? l->piece[0]->any.threads : t->threads;
        t->args += l->n_args;
        t->words += s->words[i];
        t->us = single_wave ? team_us(s, t, -1, tile) : us > t->us ? us : t->us;
        s->level[i] = t->level;
        count_open(s, t->level, single_wave, is_open(s, t, single_wave));
}

/* A launch that is not where it must be, unless one that it waits for has no place yet. */
static void place_later(Steps *s, int i)
{
        int first = 0;
        if (s->level[i] >= 0)
                return;
        for (int k = 0; k < s->n_waits[i]; k++) {
                const int j = s->waits[i][k];
                if (s->level[j] < 0)
                        return;
                first = s->level[j] + 1 > first ? s->level[j] + 1 : first;
        }
        place(s, i, first, s->late[i], s->joins[i] ? s->late[i] : first);
}

/* Of short products those that come last have the fewest places to choose from. */
static void make_teams(Steps *s)
{
        for (int i = 0; i < s->n; i++)
                if (s->early[i] == s->late[i])
                        place(s, i, s->early[i], s->early[i], s->early[i]);
        for (int i = s->n - 1; i >= 0; i--)
                if (s->e->launch[i].piece[0]->single_wave)
                        place_later(s, i);
        for (int i = 0; i < s->n; i++)
                place_later(s, i);
}

/* ---- one launch of a team ------------------------------------------------- */

static void add(Launch *to, const Launch *l)
{
        memcpy(to->arg + to->n_args, l->arg, (size_t)l->n_args * sizeof *l->arg);
        memcpy(to->use + to->n_args, l->use, (size_t)l->n_args * sizeof *l->use);
        to->n_args += l->n_args;
        to->piece[to->n_pieces++] = l->piece[0];
}

/* Short products of the team get their tiles; the launch on sm_90a. */
static Form choose_tiles(Steps *s, const Team *t)
{
        Arena *m = s->e->m->arena;
        const Tile *tile[MOST_SINGLE_WAVES];
        Form all = { .cluster = 1 };
        int64_t blocks = 0;
        team_us(s, t, -1, tile);
        for (int i = 0; i < t->n; i++) {
                Launch *l = &s->e->launch[t->member[i]];
                Piece *p = arena_alloc(m, sizeof *p);
                *p = *l->piece[0];
                l->piece = arena_alloc(m, sizeof *l->piece);
                l->piece[0] = p;
                const Form f = single_wave_form(tile[i], p->single_wave);
                Form *own = &p->form[ARCH_SM90A];
                own->threads = f.threads, own->smem = f.smem, own->grid = f.grid;
                p->tile = tile[i]->name;
                all.threads = f.threads > all.threads ? f.threads : all.threads;
                all.smem = f.smem > all.smem ? f.smem : all.smem;
                blocks += grid_count(&f.grid);
        }
        all.grid = grid_blocks(blocks);
        return all;
}

/* The forms of pieces that join, side by side. */
static Form forms_beside(Steps *s, const Team *t)
{
        Form all = s->e->launch[t->member[0]].piece[0]->form[ARCH_SM90A];
        int64_t blocks = 0;
        for (int i = 0; i < t->n; i++) {
                const Form *f = &s->e->launch[t->member[i]].piece[0]->form[ARCH_SM90A];
                all.smem = f->smem > all.smem ? f->smem : all.smem;
                blocks += grid_count(&f->grid);
        }
        all.grid = grid_blocks(blocks);
        return all;
}

static Launch merged(Steps *s, const Team *t)
{
        const Launch *all = s->e->launch;
        Arena *m = s->e->m->arena;
        Launch to = { .form[ARCH_ANY] = { .grid = grid_blocks(t->blocks) } };
        bool *done = arena_alloc(s->a, (size_t)t->n);
        if (all[t->member[0]].piece[0]->single_wave)
                to.form[ARCH_SM90A] = choose_tiles(s, t);
        else if (all[t->member[0]].piece[0]->joins)
                to.form[ARCH_SM90A] = forms_beside(s, t);
        if (t->n == 1) {
                Launch one = all[t->member[0]];
                one.form[ARCH_SM90A] = one.piece[0]->form[ARCH_SM90A];
                return one;
        }
        to.arg = arena_alloc(m, (size_t)t->args * sizeof *to.arg);
        to.use = arena_alloc(m, (size_t)t->args * sizeof *to.use);
        to.piece = arena_alloc(m, (size_t)t->n * sizeof *to.piece);
        for (int i = 0; i < t->n; i++)
                for (int k = i; k < t->n; k++) /* with it, those equal to it */
                        if (!done[k] &&
                            piece_equal(all[t->member[i]].piece[0], all[t->member[k]].piece[0])) {
                                add(&to, &all[t->member[k]]);
                                done[k] = true;
                        }
        return to;
}

/* ---- one block, one thing after the other ---------------------------------- */

static bool one_block(const Launch *l)
{
        return grid_count(&l->any.grid) == 1 && !form_is(l->piece[0]->form, ARCH_SM90A) &&
               (l->n_pieces == 1 || l->in_turn);
}

/* Threads that the next piece has no use for leave before it; none come back. */
static bool may_follow(const Launch *l, const Launch *next)
{
        const Piece *last = l->piece[l->n_pieces - 1], *p = next->piece[0];
        return one_block(l) && one_block(next) && next->n_pieces == 1 &&
               p->any.threads <= last->any.threads && p->fast == last->fast &&
               args_fit(l->n_args + next->n_args, words_of(l) + words_of(next));
}

static Launch in_turn(const Steps *s, const Launch *l, const Launch *next)
{
        Arena *m = s->e->m->arena;
        Launch to = *l;
        int n = l->n_args + next->n_args;
        to.arg = arena_alloc(m, (size_t)n * sizeof *to.arg);
        to.use = arena_alloc(m, (size_t)n * sizeof *to.use);
        to.piece = arena_alloc(m, (size_t)(l->n_pieces + 1) * sizeof *to.piece);
        memcpy(to.arg, l->arg, (size_t)l->n_args * sizeof *l->arg);
        memcpy(to.use, l->use, (size_t)l->n_args * sizeof *l->use);
        memcpy(to.piece, l->piece, (size_t)l->n_pieces * sizeof *l->piece);
        to.in_turn = true;
        add(&to, next);
        return to;
}

static int join_in_turn(const Steps *s, Launch *l, int n)
{
        int k = 0;
        for (int i = 0; i < n; i++)
                if (k && may_follow(&l[k - 1], &l[i]))
                        l[k - 1] = in_turn(s, &l[k - 1], &l[i]);
                else
                        l[k++] = l[i];
        return k;
}

void schedule_launches(Emit *e, Arena *a)
{
        size_t n = (size_t)e->n_launch;
        Steps s = { .e = e, .a = a, .n = e->n_launch };
        int last = 0, k = 0;
        s.early = arena_alloc(a, n * sizeof *s.early);
        s.late = arena_alloc(a, n * sizeof *s.late);
        s.level = arena_alloc(a, n * sizeof *s.level);
        s.waits = arena_alloc(a, n * sizeof *s.waits);
        s.n_waits = arena_alloc(a, n * sizeof *s.n_waits);
        s.joins = arena_alloc(a, n);
        s.room = arena_alloc(a, n * sizeof *s.room);
        s.kind = arena_alloc(a, n * sizeof *s.kind);
        s.words = arena_alloc(a, n * sizeof *s.words);
        for (int i = 0; i < s.n; i++) {
                s.joins[i] = may_join(e, &e->launch[i]);
                s.room[i] = room_of(&e->launch[i]);
                s.words[i] = words_of(&e->launch[i]);
        }
        s.team = arena_alloc(a, n * sizeof *s.team);
        find_levels(&s);
        make_teams(&s);
        Launch *to = arena_alloc(a, n * sizeof *to);
        for (int i = 0; i < s.n_teams; i++)
                last = s.team[i].level > last ? s.team[i].level : last;
        for (int v = 0; v <= last; v++)
                for (int i = s.first[v]; i >= 0; i = s.team[i].next)
                        to[k++] = merged(&s, &s.team[i]);
        k = join_in_turn(&s, to, k);
        memcpy(e->launch, to, (size_t)k * sizeof *to);
        e->n_launch = k;
}
