/* session.c: opens and closes a session: checks the plan, loads its kernels.  session_arenas.c has
 * its memory; session_run.c runs a program. */
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

/* ---- what a plan must have ---- */

/* Is it a program that the runtime gives tokens to?  PREDICTS: tokens alone; EMBEDS: and where
 * texts begin and end; LEARNS: targets, too. */
enum { OTHER, PREDICTS, EMBEDS, LEARNS };

static int kind_of(const char *prog)
{
        if (!strncmp(prog, "prefill", 7) || !strncmp(prog, "decode", 6) || !strcmp(prog, "mixed"))
                return PREDICTS;
        if (!strcmp(prog, "embed"))
                return EMBEDS;
        return !strcmp(prog, "step") || !strcmp(prog, "eval") || !strcmp(prog, "score") ||
                               !strcmp(prog, "logp") || !strcmp(prog, "reference")
                       ? LEARNS
                       : OTHER;
}

/* A program that reads what nothing writes would answer from whatever lies there. */
static int check_io(const Session *s, const Prog *g, const Io *x, const char *text, Err *e)
{
        static const struct {
                const char *name;
                int each, least;
        } in[] = { { "ids", 1, PREDICTS }, { "targets", 1, LEARNS }, { "documents", 2, EMBEDS } };
        static const char *const out[] = { "logits",    "next",     "slots",  "drawn",
                                           "loss",      "aux_loss", "ce",     "nll",
                                           "grad_norm", "bad",      "hidden", "logp" };
        for (size_t i = 0; i < sizeof out / sizeof *out; i++)
                if (!strcmp(x->name, out[i]))
                        return TGC_OK;
        const int64_t tokens = (int64_t)g->B * g->T;
        if (!strncmp(x->name, "objective.", 10) && kind_of(g->name) == LEARNS &&
            !strcmp(x->dtype, "f32") && tokens > 0 && expr_eval(x->shape, g->B, g->T) > 0 &&
            expr_eval(x->shape, g->B, g->T) % tokens == 0)
                return TGC_OK;
        if (!strcmp(x->name, "adapters") && kind_of(g->name) != OTHER && !strcmp(x->dtype, "f32") &&
            s->m.n_adapters &&
            expr_eval(x->shape, g->B, g->T) ==
                    (is_ragged(s, g) ? 1 : (int64_t)g->B) * g->T * s->m.n_adapters)
                return TGC_OK;
        if (!strcmp(x->name, "sampled") && !strcmp(g->name, "mixed") && !strcmp(x->dtype, "i32") &&
            expr_eval(x->shape, g->B, g->T) == g->B)
                return TGC_OK;
        for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
                int64_t want = (is_ragged(s, g) ? 1 : (int64_t)g->B) * g->T * in[i].each;
                if (strcmp(x->name, in[i].name) || kind_of(g->name) < in[i].least)
                        continue;
                if (!strcmp(x->dtype, "i32") && expr_eval(x->shape, g->B, g->T) == want)
                        return TGC_OK;
                return err_set(e, TGC_BAD_FILE,
                               "%s: input %.60s of program %.60s has %lld numbers of type %s, and "
                               "must have %lld of i32: compile the model again",
                               text, x->name, g->name, (long long)expr_eval(x->shape, g->B, g->T),
                               x->dtype, (long long)want);
        }
        return err_set(e, TGC_BAD_FILE,
                       "%s: nothing feeds or reads %.60s of program %.60s; its inputs are ids%s",
                       text, x->name, g->name,
                       kind_of(g->name) == LEARNS   ? ", targets and documents"
                       : kind_of(g->name) == EMBEDS ? " and documents"
                                                    : "");
}

static int check_inputs(const Session *s, const char *text, Err *e)
{
        const Program *p = &s->p;
        int code = TGC_OK;
        for (int i = 0; i < p->n_progs; i++)
                for (int k = 0; k < p->prog[i].n_io && !code && kind_of(p->prog[i].name) != OTHER;
                     k++)
                        code = check_io(s, &p->prog[i], &p->prog[i].io[k], text, e);
        return code;
}

static int parse_texts(Session *s, Err *e)
{
        char name[32] = "program.";
        const Section *m = plan_find(s->plan, "manifest"), *p;
        int code;

        strncat(name, dev_target(s->d), 8);
        p = plan_find(s->plan, name);
        if (!m)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has no manifest: compile the model again");
        if (!p)
                return err_set(
                        e, TGC_NO_DEVICE,
                        "the plan was not compiled for %s: compile the model with --target %s",
                        dev_target(s->d), dev_target(s->d));
        if ((code = manifest_parse(&s->m, m->data, m->size, e)))
                return code;
        if ((code = program_parse(&s->p, p->data, p->size, name, e)))
                return code;
        return check_inputs(s, name, e);
}

/* ---- kernels ---- */

static bool has_word(const char *list, const char *word)
{
        size_t n = strlen(word);
        for (; *list; list += strcspn(list, " "), list += strspn(list, " "))
                if (strcspn(list, " ") == n && !memcmp(list, word, n))
                        return true;
        return false;
}

/* Those of programs that are ready, or shall be. */
int session_load_kernels(Session *s, Err *e)
{
        char *need = calloc((size_t)s->p.n_kernels + 1, 1);
        if (!need)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d kernels", s->p.n_kernels);
        for (int i = 0; i < s->p.n_progs; i++)
                for (int r = 0; r < s->p.prog[i].n_run && s->prog[i].ready; r++)
                        need[s->p.prog[i].run[r].kernel] = 1;
        int code = dev_load(s->d, s->plan, &s->p, need, e);
        free(need);
        return code;
}

static int load_first(Session *s, const SessionOptions *o, Err *e)
{
        bool all = !o->ready || dev_which(s->d) != DEV_CUDA;
        const int most = o->batch ? o->batch : s->m.batch;
        const Prog *decode = program_decode(&s->p, most);
        for (int i = 0; i < s->p.n_progs; i++) {
                const Prog *g = &s->p.prog[i];
                if (strncmp(g->name, "decode", 6))
                        s->prog[i].ready = all || has_word(o->ready, g->name);
                else /* sequences of a batch come and go: fewer of them, with no compiler then */
                        s->prog[i].ready = all || (has_word(o->ready, "decode") &&
                                                   (g == decode || (decode && s->m.pages &&
                                                                    most > 1 && g->B < decode->B)));
        }
        return all ? dev_load(s->d, s->plan, &s->p, 0, e) : session_load_kernels(s, e);
}

/* ---- opening and closing ---- */

static int open_session(Session *s, const SessionOptions *o, Err *e)
{
        DevKind kind = o->device;
        int code, has;

        if (kind == DEV_AUTO && !plan_find(s->plan, "program.cuda"))
                kind = DEV_CPU;
        if ((code = dev_open(&s->d, kind, &o->dev, e)) || (code = parse_texts(s, e)))
                return code;
        has = (s->m.infer ? SESSION_INFER : 0) | (s->m.train ? SESSION_TRAIN : 0);
        s->mode = o->mode ? o->mode : has;
        if (s->mode & ~has)
                return err_set(
                        e, TGC_USAGE,
                        "the plan was compiled for %s only: compile the model with --mode both",
                        s->m.infer ? "inference" : "training");
        s->offload = o->offload;
        s->seed = o->seed;
        s->rt.sms = dev_sms(s->d);
        set_seed(s, o->seed);
        s->arena = calloc((size_t)s->p.n_arenas + 1, sizeof *s->arena);
        s->prog = calloc((size_t)s->p.n_progs + 1, sizeof *s->prog);
        s->map = aligned_alloc(MAP_BYTES, ((size_t)s->p.n_maps + 1) * MAP_BYTES);
        if (!s->arena || !s->prog || !s->map)
                return err_set(e, TGC_NO_MEMORY, "no memory for a session");
        memset(s->map, 0, ((size_t)s->p.n_maps + 1) * MAP_BYTES);
        if ((code = session_alloc_arenas(s, e)) || (code = load_first(s, o, e)) ||
            (code = session_resolve(s, e)) || (code = session_fill_arenas(s, e)) ||
            (code = session_pages_open(s, e)))
                return code;
        return dev_sync(s->d, e);
}

int session_open(Session **out, const Plan *plan, const SessionOptions *o, Err *e)
{
        static const SessionOptions none;
        *out = 0;
        Session *s = calloc(1, sizeof *s);
        if (!s)
                return err_set(e, TGC_NO_MEMORY, "no memory for a session");
        s->plan = plan;
        session_rt_changed(s);
        s->rt.n_micro = 1;
        for (int b = 0; b < TGC_MAX_BATCH; b++)
                s->rt.slot[b] = b;
        int code = open_session(s, o ? o : &none, e);
        if (code)
                session_close(s);
        else
                *out = s;
        return code;
}

void session_close(Session *s)
{
        if (!s)
                return;
        for (int i = 0; s->prog && i < s->p.n_progs; i++) {
                dev_graph_free(s->d, s->prog[i].graph);
                free(s->prog[i].addr);
        }
        for (int i = 0; s->arena && i < s->p.n_arenas; i++)
                if (s->arena[i].host)
                        dev_free_host(s->d, s->arena[i].mem);
                else if (!s->arena[i].borrowed)
                        dev_free(s->d, s->arena[i].mem, s->p.arena[i].size);
        for (int i = 0; i < 2 && s->d; i++)
                dev_free(s->d, s->rt_mem[i], sizeof(Rt));
        session_pages_close(s);
        dev_close(s->d);
        manifest_free(&s->m);
        program_free(&s->p);
        free(s->arena);
        free(s->prog);
        free(s->map);
        free(s->hist);
        free(s->drawn);
        free(s);
}

/* ---- what it is ---- */

const Manifest *session_manifest(const Session *s) { return &s->m; }
const Program *session_program(const Session *s) { return &s->p; }
Device *session_device(const Session *s) { return s->d; }

bool session_borrows(const Session *s)
{
        for (int i = 0; i < s->p.n_arenas; i++)
                if (s->arena[i].borrowed)
                        return true;
        return false;
}

int session_mode(const Session *s) { return s->mode; }

bool session_has(const Session *s, const char *prog)
{
        const Prog *g = program_find(&s->p, prog);
        return g && s->prog[g - s->p.prog].lacks < 0;
}

int session_arenas(const Session *s, ArenaUse *use, int cap)
{
        for (int i = 0; i < s->p.n_arenas && i < cap; i++)
                use[i] = (ArenaUse) { s->p.arena[i].name, s->p.arena[i].size, s->arena[i].mem != 0,
                                      s->arena[i].host };
        return s->p.n_arenas;
}

Rt *session_rt(Session *s) { return &s->rt; }

void session_rt_changed(Session *s) { s->rt_changed[0] = s->rt_changed[1] = true; }

void set_seed(Session *s, uint64_t seed)
{
        s->rt.seed[0] = (unsigned)seed;
        s->rt.seed[1] = (unsigned)(seed >> 32);
        session_rt_changed(s);
}

int session_sync(Session *s, Err *e) { return dev_sync(s->d, e); }
