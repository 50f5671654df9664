/* train_data.c: opens a run's data: its files, vocabulary and records, and the validation split. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/device/cache.h"
#include "../objective/objective.h"

/* The day that Llama's templates take where there is no clock: a run that is resumed tomorrow has
 * the same text. */
enum { TEMPLATE_DAY = 1721952000 };

int data_find(Train *t, Err *e)
{
        const OptionValue *data = &t->a->v[O_TRAIN_DATA], *val = &t->a->v[O_VAL_DATA];
        int code = sources_find(&t->data, data->list, data->n, "data", e);
        if (!code)
                code = sources_find(&t->val_data, val->list, val->n, "val_data", e);
        t->records = !code &&
                     (sources_have_records(&t->data) || sources_have_records(&t->val_data));
        return code;
}

static ObjectiveData kind_of(const Train *t)
{
        return t->aim.objective ? objective_facts(t->aim.objective)->data : OBJECTIVE_PLAIN;
}

bool data_packs(const Train *t)
{
        if (kind_of(t))
                return true;
        return t->records && opt_flag(t->a, O_PACKING) && !opt_int(t->a, O_PAD_TO);
}

static bool is_text(const Source *s) { return !s->records && !is_bin(s->file[0]); }

/* ---- the vocabulary of a text ---- */

static bool plan_has_tokenizer(const char *path, Err *e, int *code)
{
        Plan p;
        bool has = false;
        if (!(*code = plan_open(&p, path, e))) {
                has = plan_find(&p, "tokenizer");
                plan_close(&p);
        }
        return has;
}

static int chars_of(const Train *t, Tokenizer **tok, Err *e)
{
        char *all = NULL;
        size_t n = 0;
        int code = TGC_OK;
        FILE *f = open_memstream(&all, &n);
        for (int i = 0; i < t->data.n && f && !code; i++)
                for (int k = 0; k < t->data.source[i].n_files && !code; k++) {
                        char *text;
                        size_t m;
                        if (!is_text(&t->data.source[i]))
                                continue;
                        if (!(code = file_read_text(t->data.source[i].file[k], TOK_MAX_TEXT, &text,
                                                    &m, e))) {
                                fwrite(text, 1, drop_mark(text, m, "", NULL), f);
                                free(text);
                        }
                }
        if (!f || fclose(f) || !all)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the text");
        Err inner;
        const char *name = t->data.source[0].name;
        if (!code && (code = tokenizer_from_text(tok, all, n, &inner)))
                err_set(e, code, "%s: %s", name, inner.msg);
        else if (!code)
                say(&t->talk, "%s: %d different characters are the vocabulary\n", name,
                    tokenizer_vocab(*tok));
        free(all);
        return code;
}

int data_tokenizer(const Train *t, ModelKind kind, const char *path, Tokenizer **tok, Err *e)
{
        const char *spec = opt_str(t->a, O_TOKENIZER);
        const bool own = kind == MODEL_HF || kind == MODEL_LLAMA2C || kind == MODEL_GGUF;
        int code = TGC_OK;
        *tok = NULL;
        if (!is_text(&t->data.source[0]) || (spec && strcmp(spec, "char")))
                return TGC_OK;
        if (!spec && own && ((code = tokenizer_for(tok, NULL, path, kind, 0, e)) || *tok))
                return code;
        if (!spec && kind == MODEL_PLAN && (plan_has_tokenizer(path, e, &code) || code))
                return code;
        return chars_of(t, tok, e);
}

/* ---- reading ---- */

static int identity(const Train *t, char hex[33], Err *e)
{
        const char *file = opt_str(t->a, O_TEMPLATE), *vars = opt_str(t->a, O_CHAT_KWARGS),
                   *fields = opt_str(t->a, O_FIELDS);
        char *chat = NULL, *text = NULL, n_vocab[32];
        void *blob = NULL;
        size_t n = 0, m = 0, k = 0;
        int code = chat_source_pack(&t->chat.source, &chat, &n, e);
        if (!code && t->l.tok)
                code = tokenizer_pack(t->l.tok, &blob, &k, e);
        if (!code && file && strcmp(file, "none"))
                code = file_read_text(file, 4 << 20, &text, &m, e);
        if (!code) {
                CacheKey key;
                cache_key_begin(&key);
                snprintf(n_vocab, sizeof n_vocab, "%d %d %d", t->m.vocab, (int)t->a->v[O_LOSS].i,
                         (int)kind_of(t));
                cache_key_text(&key, n_vocab);
                cache_key_add(&key, blob, k);
                cache_key_add(&key, chat, n);
                cache_key_add(&key, text, m);
                cache_key_text(&key, file && !text ? file : "");
                cache_key_text(&key, vars ? vars : "");
                cache_key_text(&key, fields ? fields : "");
                cache_key_end(&key, hex);
        }
        free(chat);
        free(text);
        free(blob);
        return code;
}

/* nanoGPT's val.bin beside train.bin. */
static int val_beside(Train *t, Err *e)
{
        const char *path = t->data.source[0].file[0], *slash = strrchr(path, '/'),
                   *name = slash ? slash + 1 : path;
        char *dir = strndup(path, (size_t)(name - path)),
             *val = dir && !strcmp(name, "train.bin") ? file_join(*dir ? dir : ".", "val.bin")
                                                      : NULL;
        int code = TGC_OK;
        if (val && file_exists(val) && t->data.n == 1 && !t->val_data.n && !t->offsets.rank) {
                sources_free(&t->val_data);
                code = opt_set(t->given, O_VAL_FRACTION)
                               ? err_set(e, TGC_USAGE,
                                         "train: --val_fraction has no effect: %s, beside the "
                                         "data, is what is validated on",
                                         val)
                               : sources_find(&t->val_data, (const char *const *)&val, 1,
                                              "val_data", e);
        }
        free(dir);
        free(val);
        return code;
}

/* Of options that are about records, what has no effect with another. */
static int check_records(const Train *t, bool join, Err *e)
{
        const LossOn loss = (LossOn)t->a->v[O_LOSS].i;
        const int pad_to = opt_int(t->a, O_PAD_TO);
        if (loss == LOSS_MARKED && join)
                return err_set(e, TGC_USAGE,
                               "--loss marked: a chat template marks answers, and --template none "
                               "has none; --loss answer learns completions");
        if (loss == LOSS_PADDING && !pad_to)
                return err_set(e, TGC_USAGE,
                               "--loss padding: there is no padding to learn; --pad_to N makes "
                               "some");
        if (pad_to && opt_set(t->given, O_PACKING) && opt_flag(t->a, O_PACKING))
                return err_set(e, TGC_USAGE,
                               "--packing: several records share a row, and with --pad_to %d each "
                               "has its own; give one of the two",
                               pad_to);
        return TGC_OK;
}

int data_read(Train *t, Err *e)
{
        const char *template = opt_str(t->a, O_TEMPLATE);
        char hex[33];
        Err no_chat = { 0 };
        bool warned = false;
        int code = val_beside(t, e);
        RecordsHow how = { .kind = (RecordsKind)kind_of(t),
                           .tok = t->l.tok,
                           .vocab = t->m.vocab,
                           .join = template && !strcmp(template, "none"),
                           .loss = (LossOn)t->a->v[O_LOSS].i,
                           .fields = opt_str(t->a, O_FIELDS),
                           .identity = hex,
                           .talk = &t->talk,
                           .no_chat = no_chat.msg,
                           .warned = &warned };
        if (code || (t->records && (code = check_records(t, how.join, e))))
                return code;
        if (t->records && how.join)
                err_set(&no_chat, TGC_USAGE, "messages need a chat template (--template none)");
        else if (t->records && !(code = chat_open(&t->chat, t->a, plan_find(&t->l.plan, "chat"),
                                                  t->a->pos[0], &no_chat)))
                how.chat = &t->chat;
        if (code && code != TGC_USAGE)
                return err_set(e, code, "%s", no_chat.msg);
        if (code && template)
                return err_set(e, code, "%s", no_chat.msg);
        t->chat.now = TEMPLATE_DAY;
        if ((code = identity(t, hex, e)) || (code = sources_read(&t->data, &how, e)))
                return code;
        if ((code = sources_read(&t->val_data, &how, e)))
                return code;
        for (int i = 0; i < t->val_data.n; i++)
                if (!t->val_data.source[i].records)
                        say(&t->talk, "%s: %lld tokens to validate on\n",
                            t->val_data.source[i].name, (long long)t->val_data.source[i].tokens.n);
        return TGC_OK;
}

uint64_t data_hash(const Train *t)
{
        const uint64_t h = sources_hash(&t->data, 0);
        return t->val_data.n ? sources_hash(&t->val_data, h) : h;
}

/* ---- views ---- */

typedef struct Fit {
        int64_t dropped, cut, longest;
        int sequence; /* the longest prompt and what is to be drawn after it */
} Fit;

/* Tokens of a record in a row of its own: T inputs have T targets. */
static int most_tokens(const Train *t)
{
        const int pad_to = opt_int(t->a, O_PAD_TO);
        return pad_to ? pad_to : t->T + 1;
}

/* Records `which` of the source that fit, as rows. */
static int pack_view(Train *t, View *v, const int *which, int n, Fit *f, Err *e)
{
        const Records *r = &v->source->r;
        const int most = most_tokens(t);
        const bool cut = !strcmp(opt_str(t->a, O_LONG), "cut");
        int *length = malloc(((size_t)n + 1) * sizeof *length);
        v->which = malloc(((size_t)n + 1) * sizeof *v->which);
        if (!length || !v->which) {
                free(length);
                return err_set(e, TGC_NO_MEMORY, "no memory for %d records", n);
        }
        for (int i = 0; i < n; i++) {
                if (kind_of(t)) { /* whole, in a row of its own */
                        const int places = aim_places(t, r, which[i]);
                        f->longest = places > f->longest ? places : f->longest;
                        if (kind_of(t) == OBJECTIVE_PROMPTS) {
                                const int all = aim_sequence(t, r, which[i]);
                                f->sequence = all > f->sequence ? all : f->sequence;
                        }
                        f->dropped += places < 1 || places > t->T;
                        if (places < 1 || places > t->T)
                                continue;
                        length[v->n] = places;
                        v->which[v->n++] = which[i];
                        continue;
                }
                const uint64_t start = r->start[which[i]];
                const int64_t size = (int64_t)(r->start[which[i] + 1] - start);
                const int keep = size < most ? (int)size : most;
                bool counted = false;
                for (int k = 1; k < keep; k++)
                        counted |= (r->id[start + (uint64_t)k] & RECORD_COUNTS) != 0;
                f->longest = size > f->longest ? size : f->longest;
                if ((size > most && !cut) || !counted) {
                        f->dropped++;
                        continue;
                }
                f->cut += size > most;
                length[v->n] = keep - 1;
                v->which[v->n++] = which[i];
        }
        int code = v->n ? packing_new(&v->pack, length, v->n, t->T, kind_of(t) || !data_packs(t), e)
                        : TGC_OK;
        free(length);
        return code;
}

static Windows windows_of(const Train *t, uint64_t seed)
{
        const int *eos, n_eos = t->l.tok ? tokenizer_eos(t->l.tok, &eos) : 0, vocab = t->m.vocab;
        return (Windows) { .T = t->T,
                           .seed = seed,
                           .separator = t->m.documents,
                           .pad = n_eos && eos[0] < vocab ? eos[0] : 0,
                           .pad_to = opt_int(t->a, O_PAD_TO),
                           .count_padding = (LossOn)t->a->v[O_LOSS].i == LOSS_PADDING };
}

/* Of a stream the end is kept for validation, of records the last of a shuffled list that is always
 * the same. */
static int add_view(Train *t, Windows *w, const Source *s, double kept, bool val, Fit *f, Err *e)
{
        View *v = &w->view[w->n];
        const int64_t n = !s->records                     ? s->tokens.n
                          : kind_of(t) == OBJECTIVE_PAIRS ? s->r.n / 2
                                                          : s->r.n,
                      first = n - (int64_t)((double)n * kept), a = val ? first : 0,
                      b = val ? n : first;
        *v = (View) { .source = s, .begin = a, .end = b };
        if (!s->records) {
                w->n += b - a >= t->T + 1;
                return TGC_OK;
        }
        int *list = malloc(((size_t)n + 1) * sizeof *list);
        if (!list)
                return err_set(e, TGC_NO_MEMORY, "no memory for %lld records", (long long)n);
        for (int64_t i = 0; i < n; i++)
                list[i] = (int)i;
        for (int64_t i = n - 1; i > 0 && first < n; i--) {
                const int64_t k = (int64_t)(mix64(0x73706c6974 + (uint64_t)i) % ((uint64_t)i + 1));
                const int x = list[i];
                list[i] = list[k];
                list[k] = x;
        }
        int code = pack_view(t, v, list + a, (int)(b - a), f, e);
        free(list);
        if (!code && v->n)
                w->n++;
        else
                free(v->which);
        return code;
}

static int no_window(const Train *t, const Source *s, const Fit *f, Err *e)
{
        if (!s->records)
                return err_set(e, TGC_BAD_FILE,
                               "%s: %lld tokens; a window of %d and its targets need %d", s->name,
                               (long long)s->tokens.n, t->T, t->T + 1);
        if (kind_of(t) == OBJECTIVE_PROMPTS && f->sequence > t->m.ctx)
                return err_set(e, TGC_BAD_FILE,
                               "%s: no record fits: the longest prompt and max_tokens=%d make %d "
                               "tokens, the model's context is %d; a smaller max_tokens=, or a "
                               "larger context",
                               s->name, aim_facts(t)->max_tokens, f->sequence, (int)t->m.ctx);
        if (kind_of(t) == OBJECTIVE_PROMPTS && !f->longest)
                return err_set(e, TGC_BAD_FILE,
                               "%s: no record has a prompt%s: the objective asks for one", s->name,
                               aim_facts(t)->completion ? " and a completion" : "");
        const char *larger = opt_int(t->a, O_PAD_TO) ? "pad_to" : "block-size";
        if (!kind_of(t) && !strcmp(opt_str(t->a, O_LONG), "cut"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: no record fits: each begins with %d tokens of which none is to "
                               "be learned; a larger --%s",
                               s->name, most_tokens(t), larger);
        if (!kind_of(t))
                return err_set(e, TGC_BAD_FILE,
                               "%s: no record fits: the longest has %lld tokens, a row has room "
                               "for %d; a larger --%s, or --long cut",
                               s->name, (long long)f->longest, most_tokens(t), larger);
        return err_set(e, TGC_BAD_FILE,
                       "%s: no record fits: the longest has %lld tokens %s, the window %d; a "
                       "larger --block-size, or %s",
                       s->name, (long long)f->longest,
                       kind_of(t) == OBJECTIVE_PROMPTS ? "with its continuations"
                                                       : "in both its answers",
                       t->T,
                       kind_of(t) == OBJECTIVE_PROMPTS ? "smaller samples= or max_tokens="
                                                       : "shorter ones");
}

/* all: a source without a window is an error, even beside others. */
static int views(Train *t, Windows *w, const Sources *s, double kept, bool val, bool all, Fit *f,
                 Err *e)
{
        int code = TGC_OK;
        if (!(w->view = calloc((size_t)s->n + 1, sizeof *w->view)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %d sources", s->n);
        for (int i = 0; i < s->n && !code; i++) {
                const int n = w->n;
                code = add_view(t, w, &s->source[i], kept, val, f, e);
                if (!code && all && w->n == n)
                        code = no_window(t, &s->source[i], f, e);
        }
        return code ? code : windows_mix(w, e);
}

static void say_records(const Train *t, const Fit *f)
{
        int64_t used = 0, rows = 0, n = 0, val = 0;
        for (int i = 0; i < t->train.n; i++) {
                const View *v = &t->train.view[i];
                for (int k = 0; k < v->n; k++)
                        used += v->pack.length[k];
                n += v->n;
                rows += v->pack.n_rows;
        }
        for (int i = 0; i < t->val.n; i++)
                val += t->val.view[i].n;
        if (n)
                say(&t->talk,
                    "%lld records in %lld rows of %d tokens, %.0f%% full, %lld to validate on\n",
                    (long long)n, (long long)rows, t->T,
                    100. * (double)used / ((double)rows * t->T), (long long)val);
        if (n && t->train.n == 1)
                say(&t->talk, "an epoch is %.4g steps\n",
                    (double)rows / ((double)t->B * t->n_micro));
        if (f->dropped)
                say(&t->talk,
                    "%lld records are left out: they, or their answers, do not fit %d tokens (the "
                    "longest has %lld)%s\n",
                    (long long)f->dropped, kind_of(t) ? t->T : most_tokens(t),
                    (long long)f->longest,
                    kind_of(t) || !strcmp(opt_str(t->a, O_LONG), "cut")
                            ? ""
                            : "; --long cut keeps their beginnings");
        if (f->cut)
                say(&t->talk, "%lld records are cut to the window (the longest has %lld tokens)\n",
                    (long long)f->cut, (long long)f->longest);
}

/* The end of each source is kept for validation, unless there are files for it or offsets say what
 * is read. */
int data_split(Train *t, Err *e)
{
        enum { SEED = 0x76616c };
        const bool own = t->val_data.n > 0;
        double kept = t->offsets.rank || own || kind_of(t) == OBJECTIVE_PROMPTS
                              ? 0
                              : opt_num(t->a, O_VAL_FRACTION);
        Fit f = { 0 };
        const Source *only = t->data.n == 1 ? &t->data.source[0] : NULL;
        /* of a stream that holds no window beside what is kept, nothing is */
        if (only && !only->records &&
            only->tokens.n - (int64_t)((double)only->tokens.n * kept) < t->T + 1)
                kept = 0;
        t->train = windows_of(t, t->state.seed);
        t->val = windows_of(t, SEED);
        t->train.offset = t->offsets.rank ? t->offsets.u.i64 : NULL;
        int code = views(t, &t->train, &t->data, kept, false, true, &f, e);
        if (!code && (own || kept > 0))
                code = views(t, &t->val, own ? &t->val_data : &t->data, own ? 1 : kept, true, own,
                             &f, e);
        if (code)
                return code;
        t->val.once = t->val.n == 1 && t->val.view[0].source->records;
        if (t->records)
                say_records(t, &f);
        const bool wanted = opt_int(t->a, O_EVAL_ITERS) > 0;
        if (wanted && !t->val.n && (own || kept > 0))
                say(&t->talk,
                    "no validation: its part of the text is too short, a window needs %d tokens\n",
                    t->T + 1);
        if (!t->val.n || !wanted || !program_find(&t->p, "eval") || kind_of(t) == OBJECTIVE_PROMPTS)
                t->val.T = 0;
        return TGC_OK;
}

void data_close(Train *t)
{
        windows_free(&t->train);
        windows_free(&t->val);
        sources_free(&t->data);
        sources_free(&t->val_data);
        chat_close(&t->chat);
}
