/* train_settings.c: the settings of a run, which are stored in its state for --resume.
 *
 * A setting on the command line overrides the stored one, and the difference is reported.  A change
 * after which the steps could not have come from any single run is refused. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/weights/checkpoint.h"
#include "train.h"

typedef enum { FREE, FIXED } Kind;

/* key NULL: "run.NAME".  of_model: it is about compiling, so a PLAN has its own. */
static const struct {
        OptionId o;
        Kind kind;
        bool of_model;
        const char *key;
} saved[] = {
        { O_LR, FREE, false, NULL },
        { O_MIN_LR, FREE, false, NULL },
        { O_WARMUP, FREE, false, NULL },
        { O_DECAY_ITERS, FREE, false, NULL },
        { O_DECAY_LR, FREE, false, NULL },
        { O_MAX_ITERS, FREE, false, NULL },
        { O_WEIGHT_DECAY, FREE, false, NULL },
        { O_LR_SCHEDULE, FREE, false, NULL },
        { O_COOLDOWN, FREE, false, NULL },
        { O_BETA1, FREE, false, NULL },
        { O_BETA2, FREE, false, NULL },
        { O_EPS, FREE, false, NULL },
        { O_LOSS_SCALE, FREE, false, NULL },
        { O_LOSS_SCALE_WINDOW, FREE, false, NULL },
        { O_CLIP, FREE, false, NULL },
        { O_MAX_SKIPS, FREE, false, NULL },
        { O_SKIP_SPIKES, FREE, false, NULL },
        { O_EMA, FREE, false, NULL },
        { O_EMA_USE, FREE, false, NULL },
        { O_EVAL_INTERVAL, FREE, false, NULL },
        { O_EVAL_ITERS, FREE, false, NULL },
        { O_ALWAYS_SAVE, FREE, false, NULL },
        { O_VAL_FRACTION, FIXED, false, NULL },
        { O_LOSS, FIXED, false, NULL },
        { O_LONG, FIXED, false, NULL },
        { O_PACKING, FIXED, false, NULL },
        { O_PAD_TO, FIXED, false, NULL },
        { O_TRAIN_SEED, FIXED, false, "seed" },
        { O_ACCUM, FIXED, false, "accumulation" },
        { O_BATCH, FIXED, true, "batch" },
        { O_BLOCK, FIXED, true, "block" },
        { O_DTYPE, FIXED, true, NULL },
        { O_OPTIMIZER, FIXED, true, NULL },
        { O_MASTERS, FIXED, true, NULL },
        { O_TF32, FIXED, true, NULL },
        { O_OPT, FIXED, true, NULL },
        { O_CTX, FIXED, true, NULL },
        { O_CHUNK, FREE, true, NULL },
        { O_RECOMPUTE, FREE, true, NULL },
        { O_WEIGHT_TYPE, FIXED, true, NULL },
};
enum {
        N_SAVED = sizeof saved / sizeof *saved,
        TUNED = N_SAVED,
        OFFSETS,
        LISTS,
        N_MORE = LISTS - N_SAVED + N_LISTS
};

static const OptionId list[N_LISTS] = { O_DEFINE, O_TRAIN_ONLY, O_GROUP, O_LORA, O_OBJECTIVE };

_Static_assert((int)N_SAVED + N_MORE <= MOST_SETTINGS, "settings");

static const char *key_of(int i, char buf[64])
{
        if (i < N_SAVED && saved[i].key)
                return saved[i].key;
        snprintf(buf, 64, "run.%s",
                 option_info[i == TUNED     ? O_TUNED
                             : i == OFFSETS ? O_BATCH_OFFSETS
                             : i >= LISTS   ? list[i - LISTS]
                                            : saved[i].o]
                         .name);
        return buf;
}

/* The plan says it, whatever was typed. */
static bool of_plan_itself(OptionId o)
{
        return o == O_DTYPE || o == O_OPTIMIZER || o == O_MASTERS || o == O_TF32 || o == O_OPT;
}

static bool is_string(OptionId o)
{
        return option_info[o].kind == OPT_CHOICE || option_info[o].kind == OPT_STR;
}

static void value_text(const OptionValue *v, OptionId o, char buf[64])
{
        if (is_string(o))
                snprintf(buf, 64, "%.60s", v->s ? v->s : "");
        else if (option_info[o].kind == OPT_NUM)
                for (int digits = 15; digits <= 17; digits++) { /* the shortest that reads back */
                        c_format(buf, 64, "%.*g", digits, v->d);
                        if (c_strtod(buf, NULL) == v->d)
                                break;
                }
        else
                snprintf(buf, 64, "%lld", (long long)v->i);
}

static int differs(OptionId o, const char *was, const char *now, Err *e)
{
        return err_set(e, TGC_USAGE, "--%s %.60s: the run before had --%s %.60s",
                       option_info[o].name, now, option_info[o].name, was);
}

/* ---- from the state ---- */

/* Values of list k, a line each; the graph is compared as a whole. */
static int take_list(Train *t, int k, const char *text, Err *e)
{
        OptionValue *v = &t->args.v[list[k]];
        int n = 1;
        if (v->n || !text || !*text)
                return TGC_OK;
        for (const char *s = text; *s; s++)
                n += *s == '\n';
        if (!(t->list_text[k] = strdup(text)) ||
            !(t->list[k] = calloc((size_t)n, sizeof *t->list[k])))
                return err_set(e, TGC_NO_MEMORY, "no memory for the run's settings");
        v->list = t->list[k];
        for (char *s = strtok(t->list_text[k], "\n"); s; s = strtok(NULL, "\n"))
                v->list[v->n++] = s;
        return TGC_OK;
}

/* What a setting was called before: --recompute was a flag, for what is `cheap` now. */
static const char *renamed(OptionId o, const char *was)
{
        return o != O_RECOMPUTE    ? was
               : !strcmp(was, "0") ? "none"
               : !strcmp(was, "1") ? "cheap"
                                   : was;
}

static int take_one(Train *t, int i, const char *was, bool plan, Err *e)
{
        const OptionId o = saved[i].o;
        char now[64];
        was = renamed(o, was);
        if (!opt_set(&t->args, o))
                return plan && saved[i].of_model ? TGC_OK : option_set(&t->args, o, was, e);
        value_text(&t->args.v[o], o, now);
        Args other = t->args; /* both in one spelling */
        char before[64];
        int code = option_set(&other, o, was, e);
        if (code)
                return code;
        value_text(&other.v[o], o, before);
        if (!strcmp(now, before))
                return TGC_OK;
        if (saved[i].kind == FIXED)
                return differs(o, before, now, e);
        say(&t->talk, "--%s %s: the run before had %s\n", option_info[o].name, now, before);
        return TGC_OK;
}

static void say_schedule(const Train *t, bool more_steps)
{
        const Args *a = &t->args;
        const int end = opt_int(a, O_DECAY_ITERS), warm = opt_int(a, O_WARMUP),
                  from = end > warm ? end : warm;
        if (more_steps && opt_flag(a, O_DECAY_LR) &&
            opt_int(a, O_LR_SCHEDULE) != SCHEDULE_CONSTANT && opt_int(a, O_MAX_ITERS) > from)
                say(&t->talk,
                    "the run's schedule stays: from step %d on the learning rate is min_lr; "
                    "--lr_decay_iters sets another\n",
                    from);
}

int settings_take(Train *t, const char *path, bool plan, Err *e)
{
        const bool more_steps = opt_set(&t->args, O_MAX_ITERS),
                   own_end = opt_set(&t->args, O_DECAY_ITERS);
        Checkpoint *ck;
        char buf[64];
        int code = checkpoint_open(&ck, path, e);
        if (code)
                return code;
        for (int i = 0; i < N_SAVED + N_MORE && !code; i++) {
                const char *was = checkpoint_meta(ck, key_of(i, buf));
                if (!was)
                        continue;
                if (!(t->was[i] = strdup(was)))
                        code = err_set(e, TGC_NO_MEMORY, "no memory for the run's settings");
                else if (i < N_SAVED)
                        code = take_one(t, i, t->was[i], plan, e);
                else if (i >= LISTS && !plan)
                        code = take_list(t, i - LISTS, was, e);
        }
        checkpoint_close(ck);
        if (code)
                return code == TGC_USAGE
                               ? code
                               : err_set(e, code, "%s: the settings of the run cannot be read",
                                         path);
        if (t->was[0])
                say_schedule(t, more_steps && !own_end);
        return TGC_OK;
}

/* ---- what the run has ---- */

/* Of the second line of `products`: "compiled dtype f32 opt 3 ...". */
static int compiled_word(const Plan *p, const char *word, char out[16])
{
        const Section *s = plan_find(p, "products");
        char head[256] = "", key[32];
        if (s)
                snprintf(head, sizeof head, "%.*s", (int)(s->size < 255 ? s->size : 255),
                         (const char *)s->data);
        snprintf(key, sizeof key, " %s ", word);
        const char *at = strstr(head, key), *end = strchr(head, '\n');
        end = end ? strchr(end + 1, '\n') : NULL;
        snprintf(out, 16, "0");
        return at && end && at < end ? sscanf(at + strlen(key), "%15s", out) : 0;
}

static void hash_text(const void *data, size_t n, char buf[64])
{
        snprintf(buf, 64, "%016llx", n ? (unsigned long long)XXH3_64bits(data, n) : 0ull);
}

/* The value in effect, not what was typed. */
static void effective(const Train *t, int i, char buf[64])
{
        const Section *choices = plan_find(&t->l.plan, "choices");
        OptionValue v = i < N_SAVED ? t->a->v[saved[i].o] : (OptionValue) { 0 };
        char word[16];
        if (i == TUNED) {
                hash_text(choices ? choices->data : NULL, choices ? choices->size : 0, buf);
                return;
        }
        if (i == OFFSETS) {
                hash_text(t->offsets.u.i64, (size_t)t->offsets.count * sizeof(int64_t), buf);
                return;
        }
        switch (saved[i].o) {
        case O_MIN_LR: v.d = t->schedule.min_lr; break;
        case O_COOLDOWN: v.i = t->schedule.cooldown; break;
        case O_BETA1: v.d = t->beta1; break;
        case O_BETA2: v.d = t->beta2; break;
        case O_EPS: v.d = t->eps; break;
        case O_MASTERS:
                snprintf(buf, 64, "f32");
                manifest_word(&t->l.plan, "meta masters", buf, 64);
                return;
        case O_OPTIMIZER:
                snprintf(buf, 64, "adamw");
                manifest_word(&t->l.plan, "optimizer", buf, 64);
                return;
        case O_DECAY_ITERS: v.i = t->schedule.decay_steps; break;
        case O_DECAY_LR: v.i = t->schedule.decay; break;
        case O_MAX_ITERS: v.i = t->max_steps; break;
        case O_DTYPE: manifest_word(&t->l.plan, "dtype", buf, 64); return;
        case O_TF32:
        case O_OPT:
                compiled_word(&t->l.plan, saved[i].o == O_OPT ? "opt" : "tf32", word);
                snprintf(buf, 64, "%s", word);
                return;
        default: break;
        }
        value_text(&v, saved[i].o, buf);
}

int settings_same(const Train *t, Err *e)
{
        char now[64];
        for (int i = 0; i < N_SAVED + N_MORE; i++) {
                const bool of_plan = i < N_SAVED && of_plan_itself(saved[i].o);
                if (!t->was[i] || !(of_plan || i == TUNED || i == OFFSETS))
                        continue;
                effective(t, i, now);
                if (!strcmp(now, t->was[i]))
                        continue;
                if (of_plan)
                        return differs(saved[i].o, t->was[i], now, e);
                return err_set(e, TGC_USAGE, "--%s: the run before had %s",
                               i == TUNED ? "tuned" : "batch_offsets",
                               strspn(t->was[i], "0") == 16 ? "none" : "other ones");
        }
        return TGC_OK;
}

int settings_keep(Train *t, bool plan, Err *e)
{
        char buf[64], *value;
        t->state.n_settings = 0;
        for (int i = 0; i < N_SAVED + N_MORE; i++) {
                const bool of_plan = i < N_SAVED && of_plan_itself(saved[i].o);
                const bool model = i >= LISTS || (i < N_SAVED && saved[i].of_model && !of_plan);
                if (i < N_SAVED && saved[i].key) /* a number of the state's own */
                        continue;
                if (model && plan && !t->was[i])
                        continue;
                if (model && plan) {
                        value = strdup(t->was[i]);
                } else if (i >= LISTS) {
                        const OptionValue *v = &t->a->v[list[i - LISTS]];
                        size_t n = 1;
                        for (int k = 0; k < v->n; k++)
                                n += strlen(v->list[k]) + 1;
                        if ((value = calloc(n, 1)))
                                for (int k = 0; k < v->n; k++)
                                        strcat(strcat(value, k ? "\n" : ""), v->list[k]);
                } else {
                        effective(t, i, buf);
                        value = strdup(buf);
                }
                char *key = strdup(key_of(i, buf));
                t->state.setting[t->state.n_settings++] = (StMeta) { key, value };
                if (!key || !value)
                        return err_set(e, TGC_NO_MEMORY, "no memory for the run's settings");
        }
        return TGC_OK;
}

void settings_free(Train *t)
{
        for (int i = 0; i < MOST_SETTINGS; i++)
                free(t->was[i]);
        for (int i = 0; i < t->state.n_settings; i++) {
                free((char *)t->state.setting[i].key);
                free((char *)t->state.setting[i].value);
        }
        for (int i = 0; i < N_LISTS; i++) {
                free(t->list[i]);
                free(t->list_text[i]);
        }
}
