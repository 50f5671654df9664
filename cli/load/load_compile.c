/* load_compile.c: compiles a MODEL to a plan, by a command's options. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/plan/manifest.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/line_reader.h"
#include "../bench/bench.h"
#include "gguf_model.h"
#include "load_impl.h"

int load_mode(const Args *a, const LoadHow *how, ModelKind kind)
{
        static const int by_word[] = { BUILD_INFER, BUILD_TRAIN, BUILD_INFER | BUILD_TRAIN };
        if (opt_set(a, O_MODE))
                return by_word[opt_int(a, O_MODE)];
        if (how->mode)
                return how->mode;
        return kind == MODEL_LUA || kind == MODEL_JSON ? BUILD_INFER | BUILD_TRAIN : BUILD_INFER;
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
                say(&talk, "%s: %zu of %zu choices are for GEMMs that this model does not have\n",
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
                        "--documents %.60s: there is no tokenizer that knows this token; give "
                        "its id",
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
        for (size_t i = 0; i < n && lines < TGC_MAX_BATCH; i++)
                lines += text[i] != '\r' && text[i] != '\n' && (!i || text[i - 1] == '\n');
        free(text);
        return (int)lines;
}

/* Sequences at once: of `eval` what it says; of `run` as many as it will have, up to MOST, rounded
 * up so that other numbers of them need no other kernels. */
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

int load_compiled(Loaded *l, const Args *a, const char *path, const LoadHow *how,
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
                /* blocks hold less than bf16 does; float32 would say the same in twice the
                 * memory */
                .dtype = gguf->blocks && !opt_set(a, O_DTYPE) &&
                                         !(load_mode(a, how, l->kind) & BUILD_TRAIN)
                                 ? "bf16"
                                 : opt_str(a, O_DTYPE),
                .cache = opt_str(a, O_CACHE_TYPE),
                .define = a->v[O_DEFINE].list,
                .n_define = a->v[O_DEFINE].n,
                .mode = load_mode(a, how, l->kind),
                .opt = opt_int(a, O_OPT),
                .no_infer = opt_set(a, O_MODE) ? NULL : &no_infer,
                .batch = batch_of(a),
                .cache_tokens = cache_tokens_of(a),
                .ctx = opt_int(a, O_CTX),
                .ctx_at_least = a->cmd == CMD_RUN || a->cmd == CMD_CHAT || a->cmd == CMD_EVAL ||
                                a->cmd == CMD_EMBED, /* they keep to it themselves */
                .chunk = opt_int(a, O_CHUNK),
                .block = opt_int(a, O_BLOCK),
                .block_at_most = a->cmd == CMD_CHECK && !opt_set(a, O_BLOCK) &&
                                 !opt_set(a, O_TOKENS),
                .cuda = true,
                .cpu = true,
                .recompute = opt_int(a, O_RECOMPUTE),
                .offload = offloads_activations(a),
                .optimizer = optimizer_find(opt_str(a, O_OPTIMIZER)),
                .masters = (Masters)opt_int(a, O_MASTERS),
                .ema = opt_num(a, O_EMA) > 0,
                .tf32 = opt_flag(a, O_TF32),
                .fast = opt_flag(a, O_FAST),
                .act_int8 = (keeps || random_blocks) && opt_int(a, O_ACT) == 1,
                .act_fp8 = opt_int(a, O_ACT) == 2,
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
                .switch_lora = opt_flag(a, O_LORA_SWITCH),
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
                       ? err_set(e, TGC_USAGE, "--objective: give one, not %d", a->v[O_OBJECTIVE].n)
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
        if (l->tok &&
            ((code = plan_add_tokenizer(&l->plan, l->tok, e)) ||
             (code = plan_add_chat_beside(&l->plan, opt_str(a, O_TOKENIZER), path, l->kind, e))))
                return code;
        if (l->kind == MODEL_HF &&
            (code = model_files_keep(&l->plan, path, !a->v[O_DEFINE].n && !own,
                                     !opt_str(a, O_TOKENIZER) && folder_has_tokenizer(path), e)))
                return code;
        if ((l->kind == MODEL_HF || l->kind == MODEL_GGUF) &&
            (code = plan_add_embedding(&l->plan, path, l->kind, e)))
                return code;
        /* `tgc export` writes a folder with it */
        if (gguf->config && !a->v[O_DEFINE].n && !own &&
            (code = plan_add(&l->plan, "file.config.json", gguf->config, strlen(gguf->config), e)))
                return code;
        return load_weights(l, a, path, how, e);
}
