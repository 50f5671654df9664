/* open.c: opens sessions, reads ids, prints JSON. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "open.h"

/* GNU's OpenMP spins for milliseconds at every barrier, which on a processor that others use
 * too waits for a thread that is not running: a training step took 70 times as long.  After
 * this many turns, some 0.1 ms, a thread sleeps.  Read when the kernels' library is loaded. */
static void spin_briefly(void)
{
        if (!getenv("OMP_WAIT_POLICY"))
                setenv("GOMP_SPINCOUNT", "2000", 0);
}

static void say_compiling(void *to, int n, const char *what, const char *target)
{
        Progress talk = progress_new(to);
        say(&talk, "compiling %d %s for %s ...\n", n, what, target);
}

/* Integer products want instructions that kernels are compiled for where the processor has them. */
static bool multiplies_bytes(void)
{
#if defined __x86_64__ && defined __GNUC__
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
        return false;
#endif
}

/* Whose sequences choose an adapter serves the batch engine alone. */
static int choosers(const Plan *p, const Args *a, Err *e)
{
        char n[16];
        if (!manifest_word(p, "adapters", n, sizeof n) ||
            (a->cmd == CMD_RUN && opt_str(a, O_PROMPTS)))
                return TGC_OK;
        return err_set(e, TGC_USAGE,
                       "%s: the plan was compiled with --lora-switch; it is for tgc run --prompts "
                       "FILE, whose lines name adapters (and for the library's batches)",
                       a->n_pos ? a->pos[0] : "the plan");
}

int offload_check(const Session *s, const Args *a, Err *e)
{
        ArenaUse use[64];
        bool states = false, rests = false;
        for (int i = 0, n = session_arenas(s, use, 64); i < n && i < 64; i++) {
                const bool host = !strcmp(use[i].name, "host");
                states |= use[i].host && !host;
                rests |= host;
        }
        if (offloads_states(a) && !states)
                return err_set(e, TGC_USAGE,
                               "--offload optimizer has no effect: this plan has neither master "
                               "weights nor optimiser states");
        if (offloads_activations(a) && dev_which(session_device(s)) == DEV_CPU)
                return err_set(e, TGC_USAGE,
                               "--offload activations has no effect on %s: all of its memory is "
                               "the host's",
                               dev_name(session_device(s)));
        if (offloads_activations(a) && !rests)
                return err_set(e, TGC_USAGE,
                               "--offload activations has no effect: no value of this step rests "
                               "long enough to be copied out and back");
        return TGC_OK;
}

int open_session(Session **s, const Plan *p, const Args *a, int mode, uint64_t seed,
                 const char *ready, int batch, Err *e)
{
        const char *name = opt_str(a, O_DEVICE) ? opt_str(a, O_DEVICE) : getenv("TGC_DEVICE");
        int kind = name && *name ? dev_kind(name) : DEV_AUTO;
        *s = NULL;
        int code = choosers(p, a, e);
        if (code)
                return code;
        spin_briefly();
        if (kind < 0)
                return err_set(e, TGC_USAGE,
                               "TGC_DEVICE: '%.60s' is not one of auto, cpu, cuda, emulate", name);
        SessionOptions o = { .device = (DevKind)kind,
                             .mode = mode,
                             .seed = seed,
                             .ready = ready,
                             .batch = batch,
                             .offload = (mode & SESSION_TRAIN) && offloads_states(a),
                             .dev = { .index = opt_int(a, O_GPU),
                                      .threads = opt_int(a, O_THREADS),
                                      .stop = signals_stop(),
                                      .compiling = say_compiling,
                                      .compiling_to = (void *)a } };
        Err why;
        code = session_open(s, p, &o, &why);
        if (code == TGC_STOPPED)
                code = 128 + signal_seen();
        if (!code && opt_set(a, O_GPU) && dev_which(session_device(*s)) != DEV_CUDA) {
                session_close(*s);
                *s = NULL;
                return err_set(
                        e, TGC_USAGE,
                        "%s: --gpu has no effect: there is no GPU here that can be used (`tgc "
                        "doctor` tells why), so this would run on the CPU",
                        command_info[a->cmd].name);
        }
        if (code == TGC_NO_DEVICE && kind == DEV_CUDA)
                return err_set(e, code,
                               "%s; `tgc doctor` tells what is missing, --device cpu does without",
                               why.msg);
        if (code)
                return err_set(e, code, "%s", why.msg);
        const char *warning = dev_load_warning(session_device(*s));
        Progress talk = progress_new(a);
        if (*warning)
                say(&talk, "%s: %s\n", a->pos[0], warning);
        if (session_manifest(*s)->act8 && dev_which(session_device(*s)) == DEV_CPU &&
            !multiplies_bytes())
                say(&talk,
                    "%s: --act int8 changes nothing here: this processor has no AVX2, and products "
                    "are of float32\n",
                    a->pos[0]);
        return TGC_OK;
}

void say_random(const Args *a, const Loaded *l)
{
        Progress talk = progress_new(a);
        if (!plan_find(&l->plan, "weights") && l->kind != MODEL_HF)
                say(&talk,
                    "%s: compiled without weights, so they will be random; --weights gives a "
                    "model some, and what `tgc train` learns is in its --out_dir\n",
                    a->pos[0]);
}

/* What cJSON_Add* could not add is missed by nobody but json_print. */
static bool json_lost;

static void *json_alloc(size_t n)
{
        void *p = malloc(n);
        json_lost |= !p;
        return p;
}

void json_add_text(cJSON *o, const char *key, const char *text, size_t n)
{
        char *out = malloc(6 * n + 3), *to = out;
        if (!out) {
                json_lost = true;
                return;
        }
        *to++ = '"';
        for (size_t i = 0, k; i < n; i += k) {
                unsigned char c = (unsigned char)text[i];
                const char *known = c ? strchr("\nn\tt\rr\"\"\\\\", c) : NULL;
                k = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
                if (i + k > n || !json_utf8_ok(text + i, k)) { /* part of a character */
                        to += sprintf(to, "\\ufffd");
                        k = 1;
                } else if (k > 1)
                        to = mempcpy(to, text + i, k);
                else if (c >= 32 && c != '"' && c != '\\')
                        *to++ = (char)c;
                else if (known)
                        to += sprintf(to, "\\%c", known[1]);
                else
                        to += sprintf(to, "\\u%04x", (unsigned)c);
        }
        memcpy(to, "\"", 2);
        cJSON_AddRawToObject(o, key, out);
        free(out);
}

void json_start(void)
{
        cJSON_InitHooks(&(cJSON_Hooks) { .malloc_fn = json_alloc, .free_fn = free });
}

static int put(cJSON *o, bool pretty, Err *e)
{
        char *text = json_lost ? NULL : pretty ? cJSON_Print(o) : cJSON_PrintUnformatted(o);
        cJSON_Delete(o);
        if (!text || json_lost) {
                free(text);
                return err_set(e, TGC_NO_MEMORY, "no memory for the JSON");
        }
        put_json(stdout, text);
        putchar('\n');
        free(text);
        return out_done(e);
}

int json_print(cJSON *o, Err *e) { return put(o, true, e); }
int json_print_line(cJSON *o, Err *e) { return put(o, false, e); }

int ids_of_text(const Tokenizer *tok, const char *s, size_t n, int bos, int vocab,
                const char *where, int **ids, int *k, Err *e)
{
        Err why;
        int code = tokenizer_encode(tok, s, n, bos, ids, k, &why);
        if (code) {
                *ids = NULL;
                return err_set(e, code == TGC_USAGE ? TGC_BAD_FILE : code, "%s: %s", where,
                               why.msg);
        }
        for (int i = 0; i < *k && !code; i++)
                if ((*ids)[i] >= vocab)
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: the tokenizer gives id %d, the model's vocabulary is "
                                       "%d",
                                       where, (*ids)[i], vocab);
        if (code) {
                free(*ids);
                *ids = NULL;
        }
        return code;
}

int ids_of_text_file(const Tokenizer *tok, const char *path, int vocab, const Progress *talk,
                     int **ids, int *n, Err *e)
{
        char *text;
        size_t size;
        int code = file_read_text(path, TOK_MAX_TEXT, &text, &size, e);
        *ids = NULL;
        if (code)
                return code;
        size = drop_mark(text, size, path, talk);
        code = ids_of_text(tok, text, size, 0, vocab, path, ids, n, e);
        free(text);
        return code;
}

int ids_of_id_file(const char *path, int vocab, int **ids, int *n, Err *e)
{
        char *text;
        size_t size;
        int code = file_read_text(path, TOK_MAX_TEXT, &text, &size, e);
        *ids = NULL;
        if (code)
                return code;
        code = ids_parse(text, size, vocab, path, ids, n, e);
        free(text);
        return code;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return x < y ? -1 : x > y;
}

TrainStep plain_step(const Prog *p, const int *ids)
{
        return (TrainStep) { .B = p->B,
                             .T = p->T,
                             .n_micro = 1,
                             .ids = ids,
                             .targets = ids,
                             .lr = 1e-5,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .clip = 1 };
}

double times_median(Times *t)
{
        if (!t->n)
                return 0;
        qsort(t->v, (size_t)t->n, sizeof *t->v, by_value);
        return t->n % 2 ? t->v[t->n / 2] : (t->v[t->n / 2 - 1] + t->v[t->n / 2]) / 2;
}
