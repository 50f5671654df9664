/* load.c: where a PLAN is wanted, a plan is mapped and a MODEL is compiled. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../runtime/util/file.h"
#include "../runtime/plan/manifest.h"
#include "../runtime/util/line_reader.h"
#include "../runtime/weights/sentence.h"
#include "gguf_model.h"
#include "bench.h"
#include "lora.h"

static bool ends(const char *s, const char *tail)
{
        size_t n = strlen(s), m = strlen(tail);
        return n >= m && !strcmp(s + n - m, tail);
}

static bool has(const char *dir, const char *name)
{
        char path[4400]; /* the system opens none that is longer */
        return (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path &&
               file_exists(path);
}

bool is_plan(const char *path)
{
        char magic[8];
        return file_head(path, magic, sizeof magic) == sizeof magic &&
               !memcmp(magic, "tgcplan\n", sizeof magic);
}

static int folder_kind(const char *path, ModelKind *kind, char *real, size_t cap, Err *e)
{
        char *plan;
        int code = run_file(path, "model.plan", &plan, e);
        if (code)
                return code;
        bool there = file_exists(plan);
        if (there) {
                snprintf(real, cap, "%s", plan);
                *kind = MODEL_PLAN;
        }
        free(plan);
        if (there)
                return TGC_OK;
        *kind = MODEL_HF;
        if (has(path, "config.json"))
                return TGC_OK;
        if (has(path, "state.safetensors"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: training has not finished here, so there is no model.plan; go "
                               "on with "
                               "`tgc train MODEL --out_dir %s --resume`",
                               path, path);
        return err_set(e, TGC_BAD_FILE, "%s: a folder with neither config.json nor model.plan",
                       path);
}

int model_kind(const char *path, ModelKind *kind, char *real, size_t cap, Err *e)
{
        static const struct {
                const char *tail;
                ModelKind kind;
        } by_name[] = { { ".lua", MODEL_LUA },
                        { ".json", MODEL_JSON },
                        { ".bin", MODEL_LLAMA2C },
                        { ".gguf", MODEL_GGUF },
                        { ".plan", MODEL_PLAN } };
        struct stat st;
        if (!*path)
                return err_set(e, TGC_USAGE, "the name of the MODEL or PLAN is empty");
        snprintf(real, cap, "%s", path);
        if (file_is_dir(path))
                return folder_kind(path, kind, real, cap, e);
        if (!file_exists(path)) { /* the name of a model inside tgc is left to the reader */
                *kind = MODEL_LUA;
                if (!strpbrk(path, "/.") || (ends(path, ".lua") && !strchr(path, '/')))
                        return TGC_OK;
                return err_set(e, TGC_IO, "%s: no such file or folder", path);
        }
        if (stat(path, &st) || !S_ISREG(st.st_mode)) /* opening a pipe would wait for its writer */
                return err_set(e, TGC_BAD_FILE, "%s: a device or pipe, not a regular file", path);
        if (is_plan(path)) {
                *kind = MODEL_PLAN;
                return TGC_OK;
        }
        if (is_gguf(path)) { /* whatever its name: some programs keep models under a hash */
                *kind = MODEL_GGUF;
                return TGC_OK;
        }
        if (ends(path, "config.json") && strlen(path) > 12)
                return err_set(e, TGC_USAGE, "%s: give the folder it lies in", path);
        for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++)
                if (ends(path, by_name[i].tail)) {
                        *kind = by_name[i].kind;
                        return TGC_OK;
                }
        return err_set(e, TGC_BAD_FILE,
                       "%s: neither a plan nor a .lua, .json, .bin, .gguf or Hugging Face folder",
                       path);
}

/* ---- tokenizers ---- */

int tokenizer_from_text(Tokenizer **tok, const char *text, size_t n, Err *e)
{
        char *blob;
        size_t size;
        int code = tokenizer_char_blob(text, n, &blob, &size, e);
        if (code)
                return code;
        code = tokenizer_new(tok, TOK_CHAR, blob, size, e);
        free(blob);
        return code;
}

static int char_tokenizer(Tokenizer **tok, const char *path, Err *e)
{
        char *text;
        size_t n;
        Err inner;
        int code = file_read_text(path, TOK_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        if ((code = tokenizer_from_text(tok, text, n, &inner)))
                err_set(e, code, "%s: %s", path, inner.msg);
        free(text);
        return code;
}

/* tok*.bin beside a llama2.c file, the first by name; "" if there is none. */
static void tok_beside(const char *model, char *out, size_t cap)
{
        const char *slash = strrchr(model, '/');
        char dir[4096], best[256] = "";
        struct dirent *x;
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - model) : 1, slash ? model : ".");
        DIR *d = opendir(*dir ? dir : "/");
        while (d && (x = readdir(d)))
                if (!strncmp(x->d_name, "tok", 3) && ends(x->d_name, ".bin") &&
                    (!*best || strcmp(x->d_name, best) < 0))
                        snprintf(best, sizeof best, "%s", x->d_name);
        if (d)
                closedir(d);
        *out = 0;
        if (*best)
                snprintf(out, cap, "%s/%s", dir, best);
}

static bool holds_tokenizer(const char *dir)
{
        static const char *const name[] = { "tokenizer.json", "tokenizer.model", "tokenizer.bin",
                                            "encoder.json",   "vocab.json",      "vocab.txt" };
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                if (has(dir, name[i]))
                        return true;
        return false;
}

int tokenizer_for(Tokenizer **tok, const char *spec, const char *model, ModelKind kind, int vocab,
                  Err *e)
{
        char beside[4400];
        *tok = NULL;
        if (spec && !strcmp(spec, "char"))
                return err_set(
                        e, TGC_USAGE,
                        "--tokenizer char takes the characters of a training text; say which: "
                        "--tokenizer char:FILE");
        if (spec && !strncmp(spec, "char:", 5))
                return char_tokenizer(tok, spec + 5, e);
        if (spec)
                return tokenizer_open(tok, spec, vocab, e);
        if (kind == MODEL_HF && holds_tokenizer(model))
                return tokenizer_open(tok, model, vocab, e);
        if (kind == MODEL_GGUF)
                return gguf_tokenizer(tok, model, vocab, e);
        if (kind != MODEL_LLAMA2C)
                return TGC_OK;
        tok_beside(model, beside, sizeof beside);
        return *beside ? tokenizer_open(tok, beside, vocab, e) : TGC_OK;
}

/* The folder whose chat template goes with the tokenizer; "" where there is none. */
static void chat_folder(const char *spec, const char *model, ModelKind kind, char *dir, size_t cap)
{
        const char *from = spec ? spec : kind == MODEL_HF ? model : "";
        snprintf(dir, cap, "%s", strncmp(from, "char:", 5) ? from : "");
        if (*dir && !file_is_dir(dir)) {
                char *slash = strrchr(dir, '/');
                snprintf(slash ? slash : dir, slash ? cap - (size_t)(slash - dir) : cap, "%s",
                         slash ? "" : ".");
        }
}

int plan_add_chat(Plan *p, const ChatSource *s, Err *e)
{
        char *text;
        size_t n;
        int code = chat_source_pack(s, &text, &n, e);
        plan_remove(p, "chat");
        if (!code && text)
                code = plan_add(p, "chat", text, n, e);
        free(text);
        return code;
}

/* The section `chat`, of what lies beside the tokenizer. */
static int add_chat(Plan *p, const char *spec, const char *model, ModelKind kind, Err *e)
{
        ChatSource s = { 0 };
        char dir[4400];
        chat_folder(spec, model, kind, dir, sizeof dir);
        int code = !spec && kind == MODEL_GGUF ? gguf_chat(&s, model, e)
                   : *dir                      ? chat_source_folder(&s, dir, e)
                                               : TGC_OK;
        if (!code)
                code = plan_add_chat(p, &s, e);
        chat_source_free(&s);
        return code;
}

/* The section `embedding` of an encoder, of what lies in its folder. */
static int add_embedding(Plan *p, const char *path, Err *e)
{
        Sentence s;
        char *text, word[32];
        size_t n;
        int code;
        if (!manifest_word(p, "hidden", word, sizeof word))
                return TGC_OK;
        if ((code = sentence_folder(&s, path, e)))
                return code;
        if (!(code = sentence_pack(&s, &text, &n, e))) {
                code = plan_add(p, "embedding", text, n, e);
                free(text);
        }
        sentence_free(&s);
        return code;
}

int plan_add_tokenizer(Plan *p, const Tokenizer *tok, Err *e)
{
        void *blob;
        size_t n;
        int code = tokenizer_pack(tok, &blob, &n, e);
        if (code)
                return code;
        code = plan_add(p, "tokenizer", blob, n, e);
        free(blob);
        return code;
}

/* ---- plans ---- */

int manifest_word(const Plan *p, const char *key, char *out, size_t cap)
{
        const Section *s = plan_find(p, "manifest");
        const char *at = s ? s->data : "", *end = at + (s ? s->size : 0);
        size_t len = strlen(key);
        while (at < end) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                size_t n = (size_t)((eol ? eol : end) - at);
                if (n > len && !memcmp(at, key, len) && at[len] == ' ') {
                        snprintf(out, cap, "%.*s", (int)(n - len - 1), at + len + 1);
                        return 1;
                }
                at += n + 1;
        }
        return 0;
}

static int check_batch(const Args *a, const Plan *p, const char *path, Err *e)
{
        char batch[32];
        if (!opt_set(a, O_BATCH) || !manifest_word(p, "batch", batch, sizeof batch) ||
            opt_int(a, O_BATCH) <= atoi(batch))
                return TGC_OK;
        return err_set(e, TGC_USAGE, "--batch-size %d: %s was compiled for %s", opt_int(a, O_BATCH),
                       path, batch);
}

/* Were the same parameters laid out in the same way? */
static int same_layout(const Plan *a, const Plan *b, Err *e)
{
        const Section *s = plan_find(a, "manifest"), *t = plan_find(b, "manifest");
        Manifest m, n;
        int code;
        if (!s || !t)
                return err_set(e, TGC_BAD_FILE, "the plan has no manifest");
        if ((code = manifest_parse(&m, s->data, s->size, e)))
                return code;
        if (!(code = manifest_parse(&n, t->data, t->size, e))) {
                bool same = m.n_all == n.n_all && m.n_params == n.n_params && m.dtype == n.dtype;
                for (int i = 0; same && i < m.n_params; i++) {
                        const Param *p = &m.param[i], *q = &n.param[i];
                        same = !strcmp(p->name, q->name) && p->offset == q->offset &&
                               p->blocks == q->blocks && p->n_dims == q->n_dims &&
                               !memcmp(p->dim, q->dim, (size_t)p->n_dims * sizeof *p->dim);
                }
                if (!same)
                        code = err_set(
                                e, TGC_BAD_FILE,
                                "the plan's weights do not lie where its graph puts them; it was "
                                "compiled by another tgc, or changed: compile the model again");
                manifest_free(&n);
        }
        manifest_free(&m);
        return code;
}

static int rebuild(Loaded *l, const char *path, Err *e)
{
        Err why;
        l->given = l->plan;
        l->plan = (Plan) { 0 };
        int code = plan_rebuild(&l->plan, &l->given, &why);
        if (!code && plan_find(&l->given, "weights"))
                code = same_layout(&l->given, &l->plan, &why);
        return code ? err_set(e, code, "%s: --rebuild: %s", path, why.msg) : TGC_OK;
}

static int load_plan(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        const Section *s;
        char vocab[32] = "0";
        int code = plan_open(&l->plan, path, e);
        if (code || (opt_flag(a, O_REBUILD) && (code = rebuild(l, path, e))) ||
            (code = check_batch(a, &l->plan, path, e)))
                return code;
        (void)how;
        manifest_word(&l->plan, "vocab", vocab, sizeof vocab);
        if (!l->tok && opt_str(a, O_TOKENIZER) &&
            (code = tokenizer_for(&l->tok, opt_str(a, O_TOKENIZER), path, MODEL_PLAN, atoi(vocab),
                                  e)))
                return code;
        if (l->tok) { /* what is written of the plan has it too */
                model_files_drop_tokenizer(&l->plan);
                if (opt_str(a, O_TOKENIZER) &&
                    (code = add_chat(&l->plan, opt_str(a, O_TOKENIZER), path, MODEL_PLAN, e)))
                        return code;
                return plan_add_tokenizer(&l->plan, l->tok, e);
        }
        if ((s = plan_find(&l->plan, "tokenizer")))
                code = tokenizer_unpack(&l->tok, s->data, s->size, e);
        return code;
}

static int mode_of(const Args *a, const LoadHow *how, ModelKind kind)
{
        static const int by_word[] = { BUILD_INFER, BUILD_TRAIN, BUILD_INFER | BUILD_TRAIN };
        if (opt_set(a, O_MODE))
                return by_word[opt_int(a, O_MODE)];
        if (how->mode)
                return how->mode;
        return kind == MODEL_LUA || kind == MODEL_JSON ? BUILD_INFER | BUILD_TRAIN : BUILD_INFER;
}

/* Weights by the names that other programs give them; tgc reads none of these but a .gguf, which is
 * a model by itself. */
static bool is_foreign_weights(const char *name)
{
        static const char *const tail[] = { ".safetensors", ".pth",     ".pt",
                                            ".h5",          ".msgpack", ".gguf" };
        for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
                if (ends(name, tail[i]))
                        return true;
        return ends(name, ".bin.index.json") ||
               (!strncmp(name, "pytorch_model", 13) && ends(name, ".bin"));
}

int folder_weights(const char *dir, const char *way_out, bool *there, Err *e)
{
        char first[256] = "";
        struct dirent *x;
        *there = has(dir, "model.safetensors") || has(dir, "model.safetensors.index.json");
        DIR *d = *there ? NULL : opendir(dir);
        while (d && (x = readdir(d)))
                if (is_foreign_weights(x->d_name) && (!*first || strcmp(x->d_name, first) < 0))
                        snprintf(first, sizeof first, "%s", x->d_name);
        if (d)
                closedir(d);
        if (ends(first, ".gguf"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: neither model.safetensors nor model.safetensors.index.json is "
                               "here; a GGUF file is: give its name, %s/%s, or say %s",
                               dir, dir, first, way_out);
        if (*first)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: neither model.safetensors nor model.safetensors.index.json is here; %s "
                        "cannot be read in their place: save the model as safetensors, or say %s",
                        dir, first, way_out);
        return TGC_OK;
}

/* A folder is a checkpoint: it runs on random weights only when that was asked for. */
static int find_weights(const Loaded *l, const Args *a, const char *path, const LoadHow *how,
                        const char **from, Err *e)
{
        bool there, trains = !(mode_of(a, how, l->kind) & BUILD_INFER);
        int code;
        *from = how->weights ? how->weights : opt_str(a, O_WEIGHTS);
        if (how->no_weights || (*from && !strcmp(*from, "random"))) {
                *from = NULL;
                return TGC_OK;
        }
        if (!*from && (l->kind == MODEL_LLAMA2C || l->kind == MODEL_GGUF))
                *from = path;
        if (*from || l->kind != MODEL_HF)
                return TGC_OK;
        if ((code = folder_weights(path, "--weights random", &there, how->any_weights ? NULL : e)))
                return how->any_weights ? TGC_OK : code;
        if (there)
                *from = path;
        if (there || trains || how->any_weights)
                return TGC_OK;
        return err_set(
                e, TGC_BAD_FILE,
                "%s: no weights: neither model.safetensors nor model.safetensors.index.json is here; "
                "--weights FILE names others, --weights random does without",
                path);
}

/* --lora; training puts them into its session, and what does not run needs none. */
static int add_adapters(Loaded *l, const Args *a, Err *e)
{
        const OptionValue *v = &a->v[O_LORA];
        Adapters s;
        int code = v->n && a->cmd != CMD_TRAIN ? adapters_open(&s, v->list, v->n, a->pos[0], e)
                                               : TGC_OK;
        if (code || !v->n || a->cmd == CMD_TRAIN)
                return code;
        const bool needs = a->cmd == CMD_RUN || a->cmd == CMD_CHAT || a->cmd == CMD_EVAL ||
                           a->cmd == CMD_COMPILE;
        if (l->weights)
                code = adapters_import(&l->plan, l->weights, &s, e);
        else if (needs && s.a[0].dir)
                code = err_set(e, TGC_USAGE,
                               "--lora %.200s: the model beneath it has no weights (--weights)",
                               s.a[0].dir);
        adapters_free(&s);
        return code;
}

static int add_weights(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        const char *from;
        Progress talk = progress_new(a);
        int code = find_weights(l, a, path, how, &from, e);
        if (!code && from)
                code = weights_import(&l->plan, from, &l->weights, &talk, e);
        return code ? code : add_adapters(l, a, e);
}

/* --tuned: a text, or the one in a plan; NULL: there is no such option.  Caller frees. */
static int read_choices(const Args *a, char **text, Err *e)
{
        const char *path = opt_str(a, O_TUNED);
        const Section *s;
        size_t n;
        Plan p;
        *text = NULL;
        if (!path)
                return TGC_OK;
        if (!is_plan(path))
                return file_read_text(path, MANIFEST_MAX_TEXT, text, &n, e);
        int code = plan_open(&p, path, e);
        if (code)
                return code;
        if (!(s = plan_find(&p, "choices")))
                code = err_set(e, TGC_BAD_FILE, "%s: `tgc tune` chose no tiles in this plan", path);
        else if (!(*text = strndup(s->data, s->size)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        plan_close(&p);
        return code;
}

static void say_passed_over(const Plan *p, const Args *a, const char *choices)
{
        const Section *s = plan_find(p, "choices");
        size_t all = text_count(choices, strlen(choices), "choose"),
               taken = s ? text_count(s->data, s->size, "choose") : 0;
        Progress talk = progress_new(a);
        if (taken < all)
                say(&talk, "%s: %zu of %zu choices are of products that this model has not\n",
                    opt_str(a, O_TUNED), all - taken, all);
}

/* --documents: an id, or the text of a token; -1: there is no such option. */
static int documents_token(const Loaded *l, const Args *a, const char *path, int *id, Err *e)
{
        const char *word = opt_str(a, O_DOCUMENTS);
        Tokenizer *tok = NULL;
        uint64_t n;
        int code = TGC_OK;
        *id = -1;
        if (!word)
                return TGC_OK;
        if (text_int(word, TOK_MAX_VOCAB, &n)) {
                *id = (int)n;
                return TGC_OK;
        }
        if (!l->tok && (code = tokenizer_for(&tok, opt_str(a, O_TOKENIZER), path, l->kind, 0, e)))
                return code;
        if (!l->tok && !tok)
                code = err_set(
                        e, TGC_USAGE,
                        "--documents %.60s: there is no tokenizer to look it up in; give its id",
                        word);
        else if ((*id = tokenizer_find(l->tok ? l->tok : tok, word, strlen(word))) < 0)
                code = err_set(e, TGC_USAGE, "--documents %.60s: the tokenizer has no such token",
                               word);
        tokenizer_free(tok);
        return code;
}

/* The compiler's error, as a note. */
static void say_no_infer(const Args *a, const char *msg)
{
        static const char word[] = "error: ";
        const char *at = strstr(msg, word);
        Progress talk = progress_new(a);
        if (at)
                say(&talk, "%.*snote: %s\n", (int)(at - msg), msg, at + sizeof word - 1);
        if (at)
                say(&talk, "no programs to generate text: training alone\n");
}

/* Lines of a file that hold something; 0: it cannot be read, which others say. */
static int count_lines(const char *path)
{
        char *text;
        size_t n, lines = 0;
        if (file_read_text(path, TOK_MAX_TEXT, &text, &n, NULL))
                return 0;
        for (const char *s = text; *s && lines < TGC_MAX_BATCH; s += strcspn(s, "\n"))
                lines += *(s += strspn(s, "\r\n")) != 0;
        free(text);
        return (int)lines;
}

/* Sequences at once: of `eval` what it says; of `run` as many as it will have, up to MOST, rounded up so that other numbers of
 * them need no other kernels. */
static int batch_of(const Args *a)
{
        enum { MOST = 64, CONTINUATIONS = 16 };
        int n, bucket = 1;
        if (a->cmd == CMD_EMBED)
                return 1;
        if (a->cmd == CMD_EVAL)
                return opt_int(a, O_TOGETHER)   ? opt_int(a, O_TOGETHER)
                       : opt_str(a, O_REQUESTS) ? CONTINUATIONS
                                                : 1;
        if (a->cmd == CMD_BENCH && (n = sequences_most(a)))
                return n > 1 ? n : 2; /* one of several, as the table compares */
        if (a->cmd != CMD_RUN)
                return opt_int(a, O_BATCH);
        n = opt_str(a, O_PROMPTS) ? count_lines(opt_str(a, O_PROMPTS)) : a->v[O_PROMPT].n;
        n = (n > 1 ? n : 1) * opt_int(a, O_PARALLEL);
        while (bucket < n && bucket < MOST)
                bucket *= 2;
        return bucket;
}

/* -1: the compiler's choice for texts whose lengths nobody knows. */
static int64_t cache_tokens_of(const Args *a)
{
        if (a->cmd == CMD_EVAL || a->cmd == CMD_EMBED)
                return -1;
        if (opt_int(a, O_CACHE_TOKENS) || (a->cmd != CMD_RUN && a->cmd != CMD_BENCH))
                return opt_int(a, O_CACHE_TOKENS);
        return a->cmd == CMD_RUN ? -1
                                 : sequences_most(a) * ((sequences_tokens(a) + TGC_PAGE - 1) /
                                                        TGC_PAGE * TGC_PAGE);
}

static int compile_model(Loaded *l, const Args *a, const char *path, const LoadHow *how,
                         const GgufModel *gguf, Err *e)
{
        char vocab[32] = "0", *choices, says[CHECK_SAYS] = "";
        const bool check = a->cmd == CMD_COMPILE || a->cmd == CMD_TRAIN || a->cmd == CMD_RUN ||
                           a->cmd == CMD_CHAT || a->cmd == CMD_EVAL;
        const char *own = opt_str(a, O_MODEL_FILE) ? opt_str(a, O_MODEL_FILE) : l->own;
        Progress talk = progress_new(a);
        Err no_infer = { 0 };
        int code = TGC_OK, documents;
        bool is_char = opt_str(a, O_TOKENIZER) && !strncmp(opt_str(a, O_TOKENIZER), "char:", 5);
        if (!l->tok && is_char &&
            (code = tokenizer_for(&l->tok, opt_str(a, O_TOKENIZER), path, l->kind, 0, e)))
                return code;
        if ((code = documents_token(l, a, path, &documents, e)) ||
            (code = read_choices(a, &choices, e)))
                return code;
        const char *blocks = opt_str(a, O_WEIGHTS) ? opt_str(a, O_WEIGHTS) : path;
        const bool keeps = path_has_blocks(blocks) && opt_int(a, O_WEIGHT_TYPE) == 0,
                   random_blocks = opt_int(a, O_WEIGHT_TYPE) > 1;
        BuildOptions o = {
                .keep = keeps ? blocks : NULL,
                .sums = how->sums,
                .mixture = random_blocks ? opt_str(a, O_WEIGHT_TYPE) : NULL,
                .kind = l->kind,
                .model = path,
                .own = own,
                .config = gguf->config ? gguf->config : gguf->meta,
                .quiet = talk.quiet,
                /* blocks hold less than bf16 does; float32 would say the same in twice the memory */
                .dtype = gguf->blocks && !opt_set(a, O_DTYPE) &&
                                         !(mode_of(a, how, l->kind) & BUILD_TRAIN)
                                 ? "bf16"
                                 : opt_str(a, O_DTYPE),
                .cache = opt_str(a, O_CACHE_TYPE),
                .define = a->v[O_DEFINE].list,
                .n_define = a->v[O_DEFINE].n,
                .mode = mode_of(a, how, l->kind),
                .opt = opt_int(a, O_OPT),
                .no_infer = opt_set(a, O_MODE) ? NULL : &no_infer,
                .batch = batch_of(a),
                .cache_tokens = cache_tokens_of(a),
                .ctx = opt_int(a, O_CTX),
                .ctx_at_least = a->cmd == CMD_RUN || a->cmd == CMD_CHAT || a->cmd == CMD_EVAL ||
                                a->cmd == CMD_EMBED, /* they keep to it themselves */
                .chunk = opt_int(a, O_CHUNK),
                .block = opt_int(a, O_BLOCK),
                .cuda = true,
                .cpu = true,
                .recompute = opt_int(a, O_RECOMPUTE),
                .optimizer = optimizer_find(opt_str(a, O_OPTIMIZER)),
                .masters = (Masters)opt_int(a, O_MASTERS),
                .tf32 = opt_flag(a, O_TF32),
                .act_int8 = (keeps || random_blocks) && opt_int(a, O_ACT) == 1,
                .lua_seconds = opt_num(a, O_LUA_TIMEOUT) > 0 ? opt_num(a, O_LUA_TIMEOUT) : -1,
                .print_after = opt_str(a, O_PRINT_AFTER),
                .time_passes = opt_flag(a, O_TIME_PASSES),
                .choices = choices,
                .choices_name = opt_str(a, O_TUNED),
                .documents = documents >= 0 || how->bounds ? &documents : NULL,
                .train = a->v[O_TRAIN_ONLY].list,
                .n_train = a->v[O_TRAIN_ONLY].n,
                .group = a->v[O_GROUP].list,
                .n_group = a->v[O_GROUP].n,
                .lr = a->cmd == CMD_TRAIN ? opt_num(a, O_LR) : 0,
                .lora = a->v[O_LORA].list,
                .n_lora = a->v[O_LORA].n,
                .check = check && opt_flag(a, O_QUICK_CHECK) &&
                                         (own || !model_is_ours(l->kind, path) ||
                                          a->v[O_OBJECTIVE].n)
                                 ? says
                                 : NULL,
                .vocab = l->tok && tokenizer_kind(l->tok) == TOK_CHAR ? tokenizer_vocab(l->tok) : 0
        };
        o.objective = a->v[O_OBJECTIVE].n ? a->v[O_OBJECTIVE].list[0] : NULL;
        o.sequences = how->sequences;
        o.reference = how->reference;
        if (o.reference) {
                o.check = NULL;
                o.objective = strcmp(o.reference, "logp") ? NULL : o.objective;
        }
        if (o.sequences > 1) /* each has room for a row */
                o.cache_tokens = o.block ? (int64_t)o.sequences * ((o.block + 63) / 64 * 64) : -1;
        code = a->v[O_OBJECTIVE].n > 1
                       ? err_set(e, TGC_USAGE, "--objective: one is wanted, and here are %d",
                                 a->v[O_OBJECTIVE].n)
                       : build_plan(&l->plan, &o, e);
        if (!code)
                say_no_infer(a, no_infer.msg);
        if (!code && *says)
                say(&talk, "%s: %s\n", path, says);
        if (!code && choices)
                say_passed_over(&l->plan, a, choices);
        free(choices);
        if (code || (code = plan_add_headers(&l->plan, e)))
                return code;
        manifest_word(&l->plan, "vocab", vocab, sizeof vocab);
        if (!l->tok &&
            (code = tokenizer_for(&l->tok, opt_str(a, O_TOKENIZER), path, l->kind, atoi(vocab), e)))
                return code;
        if (l->tok && ((code = plan_add_tokenizer(&l->plan, l->tok, e)) ||
                       (code = add_chat(&l->plan, opt_str(a, O_TOKENIZER), path, l->kind, e))))
                return code;
        if (l->kind == MODEL_HF &&
            (code = model_files_keep(&l->plan, path, !a->v[O_DEFINE].n && !own,
                                     !opt_str(a, O_TOKENIZER) && holds_tokenizer(path), e)))
                return code;
        if (l->kind == MODEL_HF && (code = add_embedding(&l->plan, path, e)))
                return code;
        /* `tgc export` writes a folder with it */
        if (gguf->config && !a->v[O_DEFINE].n && !own &&
            (code = plan_add(&l->plan, "file.config.json", gguf->config, strlen(gguf->config), e)))
                return code;
        return add_weights(l, a, path, how, e);
}

static int load_model(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        GgufModel g = { 0 };
        int code = l->kind == MODEL_GGUF ? gguf_model(&g, path, opt_str(a, O_MODEL_FILE), e)
                                         : TGC_OK;
        if (!code)
                code = compile_model(l, a, path, how, &g, e);
        gguf_model_free(&g);
        return code;
}

/* Encoders embed, the others do everything else. */
static int check_kind(const Loaded *l, const Args *a, Err *e)
{
        enum { SAYS = ON_SAY | ON_EVAL | ON_TRAIN | ON_BENCH | ON_TUNE };
        char word[32];
        const bool encoder = manifest_word(&l->plan, "hidden", word, sizeof word);
        if (encoder && SAYS >> a->cmd & 1)
                return err_set(e, TGC_USAGE,
                               "%s: %s is an encoder, whose tokens see those behind them, so it "
                               "makes no text; `tgc embed %s -p TEXT` makes vectors",
                               command_info[a->cmd].name, a->pos[0], a->pos[0]);
        if (!encoder && a->cmd == CMD_EMBED)
                return err_set(e, TGC_USAGE,
                               "embed: %s generates text, and only encoders (BERT, MiniLM, "
                               "RoBERTa) make vectors; `tgc run %s -p TEXT` goes on with a text",
                               a->pos[0], a->pos[0]);
        return TGC_OK;
}

int load(Loaded *l, const Args *a, const LoadHow *how, Err *e)
{
        char path[4400];
        double start = clock_s();
        *l = (Loaded) { .tok = how->tok };
        int code = model_kind(a->pos[0], &l->kind, path, sizeof path, e);
        if (!code && l->kind == MODEL_HF)
                code = folder_model(path, &l->own, e);
        if (!code)
                code = l->kind == MODEL_PLAN ? load_plan(l, a, path, how, e)
                                             : load_model(l, a, path, how, e);
        l->seconds = clock_s() - start;
        if (!code)
                code = check_kind(l, a, e);
        if (code)
                loaded_free(l);
        return code;
}

void loaded_free(Loaded *l)
{
        tokenizer_free(l->tok);
        plan_close(&l->plan);
        plan_close(&l->given);
        free(l->weights);
        free(l->own);
        *l = (Loaded) { 0 };
}
