/* plan.c: a plan's sections: name, newline, text, NUL, and so on; written, opened again, and every
 * one of them used as commands use it, but for the code: the device here launches nothing.  Its
 * memory ends where it was asked to. */
#include "../../runtime/util/line_reader.h"
#include "folder.h"
#include "../../cli/bench/tune.h"
#include "../../cli/check/oracle.h"
#include "../../runtime/device/dev_impl.h"
#include "../../runtime/tokenizer/tokenizer.h"
#include "../../runtime/weights/weight_map.h"

/* ---- a device without code, instead of runtime/device/dev_cpu.c ---- */

enum { MOST_MEMORY = 16 << 20 };

static int lame_alloc(Device *d, size_t size, void **mem, Err *e)
{
        (void)d;
        *mem = size > MOST_MEMORY ? NULL : calloc(size, 1);
        return *mem ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no %zu bytes of memory", size);
}

static void lame_free(Device *d, void *mem, size_t size) { (void)d, (void)size, free(mem); }
static void lame_close(Device *d) { free(d); }
static int lame_launch(Device *d, int k, unsigned grid, void *const *arg, Err *e)
{
        const Program *p = d->prog;
        (void)grid, (void)e;
        for (int i = 0; i < p->kernel[k].n_args; i++)
                HOLDS(arg[i] || i);
        return TGC_OK;
}

static int lame_load(Device *d, const Plan *plan, const char *need, Err *e)
{
        Pack units, headers;
        int *unit_of, code = plan_source(plan, "cpu", &units, &headers, e);
        (void)need;
        if (code)
                return code;
        if (!(code = kernel_units(d->prog, &units, &unit_of, e)))
                free(unit_of);
        pack_free(&units);
        pack_free(&headers);
        return code;
}

int dev_open_cpu(Device **out, const DevOptions *o, Err *e)
{
        static const DevOps ops = { HOST_OPS, .close = lame_close, .load = lame_load,
                                    .launch = lame_launch };
        static DevOps mine;
        HostDevice *d = calloc(1, sizeof *d);
        (void)e;
        HOLDS(d);
        mine = ops;
        mine.alloc = lame_alloc;
        mine.free = lame_free;
        d->d.ops = &mine;
        d->d.kind = DEV_CPU;
        d->d.opt = *o;
        *out = &d->d;
        return TGC_OK;
}

int cpu_compile_plan(const Plan *plan, int no_cache, Stop *stop, void **pack, size_t *size, Err *e)
{
        (void)plan, (void)no_cache, (void)stop, (void)pack, (void)size;
        return err_set(e, TGC_NO_DEVICE, "no compiler here");
}

/* ---- what commands do ---- */

static int three_tokens(void *user, int i, const int *token, int B)
{
        (void)user, (void)token, (void)B;
        return i == 2;
}

static void use_session(Session *s)
{
        const Manifest *m = session_manifest(s);
        const Program *p = session_program(s);
        Sampling how = sampling_default();
        TrainResult r;
        double loss, nll[5];
        uint64_t counted;
        Err e;
        static const int zeros[MOST_MEMORY / 4];
        for (int i = 0; i < 2; i++) {
                int B = i ? m->batch : 1;
                session_reset(s, &e);
                if (m->ctx >= 3 && (int64_t)B * 3 < MOST_MEMORY / 4 &&
                    !session_prefill(s, zeros, B, 3, &e))
                        session_decode(s, &how, 5, three_tokens, NULL, &e);
                how.repeat_penalty = 1.5f;
        }
        session_score(s, zeros, m->ctx < 5 ? m->ctx : 5, NULL, nll, &e);
        const Prog *step = program_find(p, "step");
        if (step && (int64_t)step->B * step->T <= 4096) {
                TrainStep in = { .B = step->B,
                                 .T = step->T,
                                 .n_micro = 2,
                                 .ids = zeros,
                                 .targets = zeros,
                                 .lr = 0.1,
                                 .clip = 1 };
                session_train_step(s, &in, &r, &e);
                session_eval(s, zeros, zeros, step->B, step->T, &loss, &counted, &e);
        }
        for (int i = 0; i < m->n_params && i < 64; i++)
                if (m->param[i].count < MOST_MEMORY / 4) {
                        float *x = malloc(m->param[i].count * sizeof *x);
                        HOLDS(x);
                        if (!session_param_get(s, i, x, &e))
                                session_param_set(s, i, x, &e);
                        free(x);
                }
}

static void use_ir(const Section *s)
{
        const unsigned seed[2] = { 1, 2 };
        Oracle *o = NULL;
        Err e;

        for (int grads = 0; grads < 2; grads++) {
                if (!oracle_new(&o, s->data, s->size, grads, 1, 3, seed, NULL, &e))
                        oracle_run(o, &e);
                oracle_free(o);
                o = NULL;
        }
}

/* The model's text: found, and written into a folder that is read again. */
static void use_model(const Plan *p)
{
        char name[200], *own;
        cJSON *source;
        Err e;
        if (!model_source(p, &source, &e))
                model_source_find(source, "my.lua");
        cJSON_Delete(source);
        unlink(in_folder("config.json"));
        if (model_source_write(p, in_folder("."), "float32", name, &e) || !*name)
                return;
        if (!folder_model(in_folder("."), &own, &e)) {
                HOLDS(own && !unlink(own));
                free(own);
        }
}

static void use_plan(const Plan *p)
{
        const SessionOptions o = { .device = DEV_CPU, .dev.no_cache = 1, .seed = 1 };
        const Section *s;
        Session *session;
        WeightMap *m;
        Tokenizer *t;
        Tune tune = { 0 };
        Plan again = { 0 };
        char *mem, word[64];
        Err e;

        manifest_word(p, "vocab", word, sizeof word);
        if (!session_open(&session, p, &o, &e)) {
                use_session(session);
                session_close(session);
        }
        if ((mem = manifest_map(p)) && !weight_map_parse(&m, mem, "manifest", &e))
                weight_map_free(m);
        free(mem);
        if ((s = plan_find(p, "tokenizer")) && !tokenizer_unpack(&t, s->data, s->size, &e))
                tokenizer_free(t);
        mem = NULL;
        tune_products(&tune, p, true, &mem, &e);
        free(tune.product);
        free(mem);
        if ((s = plan_find(p, "ir")))
                use_ir(s);
        if (plan_find(p, "graph.json"))
                plan_rebuild(&again, p, &e);
        plan_close(&again);
        use_model(p);
}

FUZZ(plan)
{
        Plan p = { 0 };
        Err e;

        while (n) {
                size_t m;
                const uint8_t *s = part_of_bytes(&data, &n, &m), *text = memchr(s, '\n', m);
                size_t k = text ? (size_t)(text - s) : m;
                char name[33] = "";
                memcpy(name, s, k < 32 ? k : 32);
                plan_add(&p, name, s + k + (text != NULL), m - k - (text != NULL), &e);
        }
        const char *path = in_folder("fuzz.plan");
        HOLDS(!plan_write(&p, path, &e));
        plan_close(&p);
        HOLDS(!plan_open(&p, path, &e));
        use_plan(&p);
        plan_close(&p);
}
