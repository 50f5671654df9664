/* test_options.c: an option that would change nothing is a usage error which names it.
 *
 * Every option of every command is walked: it has a line in effects.def, and where that line can
 * refuse it, a command line here is refused by it and one beside it is not. */
#include "../ir/optimizer.h"
#include "cli_quiet.h"

static bool set_up_done;

static void write_text(const char *name, const char *text)
{
        char path[300];
        Err e;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        CHECK_MSG(!file_write_atomic(path, text, strlen(text), &e), "%s", e.msg);
}

#define SMALL " -D n_layer=1 -D n_embd=8 -D n_head=1 -D vocab=20 -D ctx=16 "

static void set_up(void)
{
        static const char *const make[] = { "compile models/gpt.lua" SMALL "-b 2 -q -o @/both.plan",
                                            "compile models/gpt.lua" SMALL
                                            "-b 2 --mode infer -q -o @/infer.plan",
                                            "compile models/gpt.lua" SMALL
                                            "-b 2 --mode train -q -o @/train.plan" };
        if (set_up_done)
                return;
        for (size_t i = 0; i < sizeof make / sizeof *make; i++)
                CHECK_MSG(tgc(make[i]) == 0, "%s: %s", make[i], err);
        write_text("graph.json", "{}");
        write_text(
                "text",
                "abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc "
                "abc abc\n");
        set_up_done = true;
}

/* ---- the table ---- */

TEST (every_option_of_every_command_is_in_the_table) {
        for (int o = 0; o < N_OPTIONS; o++)
                for (int c = 0; c < N_COMMANDS; c++)
                        CHECK_MSG(effects_known((OptionId)o, (CommandId)c) ==
                                          (option_info[o].commands >> c & 1),
                                  "effects.def and options.def differ on --%s of tgc %s",
                                  option_info[o].name, command_info[c].name);
}

#define GPT "models/gpt.lua" SMALL
#define PLAN_GIVEN "is compiled already; give --"

/* refused: says so, naming the option, with exit code 2.  accepted: the nearest line that must not
 * be refused for this reason (it may be for another); NULL: there is none. */
static const struct {
        OptionId option;
        const char *refused, *why, *accepted;
} row[] = {
#define ON_PLAN(option, with, command)                                     \
        {                                                                  \
                O_##option, command " @/both.plan " with, PLAN_GIVEN, NULL \
        }
        /* of a plan all that is settled, by command */
        ON_PLAN(DEFINE, "-D vocab=5", "run"),
        ON_PLAN(DEFINE, "-D vocab=5", "info"),
        ON_PLAN(DTYPE, "--dtype f32", "eval"),
        ON_PLAN(DTYPE, "--dtype f32", "compile"),
        ON_PLAN(BATCH, "-b 2 -o @/x", "compile"),
        ON_PLAN(BATCH, "-b 2 --fused", "dump"),
        ON_PLAN(BATCH, "-b 2", "check"),
        ON_PLAN(BATCH, "-b 2", "tune"),
        ON_PLAN(BATCH, "-b 2", "info"),
        ON_PLAN(CTX, "-c 8", "check"),
        ON_PLAN(CTX, "-c 8", "train"),
        ON_PLAN(CTX, "-c 8", "bench"),
        ON_PLAN(CTX, "-c 8 --ir", "dump"),
        ON_PLAN(CTX, "-c 8", "info"),
        ON_PLAN(CTX, "-c 8", "tune"),
        ON_PLAN(CTX, "-c 8 --target cpu", "compile"),
        ON_PLAN(BLOCK, "--block-size 8", "check"),
        ON_PLAN(BLOCK, "--block-size 8", "bench"),
        ON_PLAN(BLOCK, "--block-size 8", "info"),
        ON_PLAN(DOCUMENTS, "--documents 1", "train"),
        ON_PLAN(DOCUMENTS, "--documents 1", "check"),
        ON_PLAN(CHUNK, "--chunk-size 4", "run"),
        ON_PLAN(CACHE_TOKENS, "--cache-tokens 128", "run"),
        ON_PLAN(CHUNK, "--chunk-size 4", "train"),
        ON_PLAN(WEIGHTS, "--weights w", "run"),
        ON_PLAN(WEIGHTS, "--weights w", "info"),
        ON_PLAN(WEIGHT_TYPE, "--weight-type keep", "run"),
        ON_PLAN(WEIGHT_TYPE, "--weight-type keep", "bench"),
        ON_PLAN(ACT, "--act int8", "run"),
        ON_PLAN(TOKENIZER, "--tokenizer char:@/text", "bench"),
        ON_PLAN(TOKENIZER, "--tokenizer char:@/text", "check"),
        ON_PLAN(TOKENIZER, "--tokenizer char:@/text --ir", "dump"),
        ON_PLAN(TOKENIZER, "--tokenizer char:@/text", "tune"),
        ON_PLAN(OPT, "-O1", "eval"),
        ON_PLAN(OPT, "-O1", "bench"),
        ON_PLAN(TF32, "--tf32", "run"),
        ON_PLAN(TF32, "--tf32", "train"),
        ON_PLAN(TF32, "--tf32 --target cpu", "compile"),
        ON_PLAN(FAST, "--fast", "run"),
        ON_PLAN(FAST, "--fast", "bench"),
        ON_PLAN(FAST, "--fast", "tune"),
        ON_PLAN(OPTIMIZER, "--optimizer lion", "train"),
        ON_PLAN(OPTIMIZER, "--optimizer lion --ir", "dump"),
        ON_PLAN(RECOMPUTE, "--recompute block", "train"),
        ON_PLAN(RECOMPUTE, "--recompute cheap", "tune"),
        ON_PLAN(RECOMPUTE, "--recompute cheap", "check"),
        ON_PLAN(TUNED, "--tuned x", "bench"),
        ON_PLAN(TRAIN_ONLY, "--train mlp", "train"),
        ON_PLAN(TRAIN_ONLY, "--train mlp", "check"),
        ON_PLAN(LORA, "--lora r=2", "train"),
        { O_LORA, "export @/both.plan --lora @ -o @/x", "it goes with --merge", NULL },
        { O_MERGE, "export @/both.plan --merge --lora @ -o @/x", "OUT_DIR/adapter", NULL },
        ON_PLAN(LORA, "--lora @", "run"),
        ON_PLAN(LORA, "--lora r=2", "info"),
        ON_PLAN(GROUP, "--group mlp:freeze", "train"),
        ON_PLAN(GROUP, "--group mlp:freeze", "check"),
        { O_TRAIN_ONLY, "dump " GPT "--train mlp --mode infer --ir", "nothing is trained here",
          "dump " GPT "--train mlp --ir" },
        { O_GROUP, "dump " GPT "--group mlp:freeze --mode infer --ir", "nothing is trained here",
          "dump " GPT "--group mlp:freeze --ir" },
        ON_PLAN(OBJECTIVE, "--objective smoothing", "train"),
        ON_PLAN(OBJECTIVE, "--objective smoothing", "check"),
        { O_REFERENCE, "train " GPT "--data @/text --reference @", "it goes with --objective",
          NULL },
        { O_EMBEDDER, "train " GPT "--data @/text --embedder @", "it goes with --objective", NULL },
        ON_PLAN(LORA_SWITCH, "--lora-switch", "run"),
        { O_LORA_SWITCH, "compile " GPT "--mode infer -b 2 --lora-switch -o @/x",
          "it goes with --lora", NULL },
        { O_OBJECTIVE, "dump " GPT "--objective smoothing --mode infer --ir",
          "nothing is trained here", "dump " GPT "--objective smoothing --ir" },
        ON_PLAN(MODE, "--mode infer", "info"),
        ON_PLAN(MODE, "--mode train --ir", "dump"),
        ON_PLAN(PRINT_AFTER, "--print-after fuse", "compile"),
        ON_PLAN(TIME_PASSES, "--time-passes", "dump"),

        { O_REBUILD, "run " GPT "--prompt-ids 1 --rebuild", "it is for plans",
          "dump @/both.plan --manifest --rebuild" },
        { O_QUICK_CHECK, "run @/both.plan --prompt-ids 1 --no-check", PLAN_GIVEN,
          "compile " GPT "--no-check -o @/again.plan" },
        { O_CTX, "compile " GPT "--mode train -c 8 --block-size 16 -o @/x", "--block-size says",
          "compile " GPT "--mode train -c 8 -q -o @/x" },
        { O_CTX, "bench " GPT "--train -c 8 --block-size 16", "--block-size says", NULL },
        { O_BLOCK, "compile " GPT "--mode infer --block-size 8 -o @/x", "nothing is trained here",
          "compile " GPT "--block-size 8 -q -o @/x" },
        { O_BLOCK, "dump " GPT "--mode infer --block-size 8 --ir", "nothing is trained here",
          "dump " GPT "--block-size 8 --ir" },
        { O_BLOCK, "bench " GPT "--block-size 8", "measured with --train", NULL },
        { O_DOCUMENTS, "compile " GPT "--mode infer --documents 1 -o @/x", "training alone",
          "compile " GPT "--documents 1 -q -o @/x" },
        { O_DOCUMENTS, "bench " GPT "--documents 1", "training alone", NULL },
        { O_CACHE_TOKENS, "compile " GPT "--mode infer --cache-tokens 128 -o @/x",
          "goes with --batch-size", NULL },
        { O_CACHE_TOKENS, "run " GPT "--prompt-ids 1 --cache-tokens 128",
          "goes with several prompts", NULL },
        { O_CHUNK, "compile " GPT "--mode train --chunk-size 4 -o @/x", "inference alone",
          "compile " GPT "--chunk-size 4 -q -o @/x" },
        { O_CHUNK, "bench " GPT "--train --chunk-size 4", "inference alone", NULL },
        { O_TOKENIZER, "eval " GPT "--ids @/text --tokenizer tok.json", "ids already", NULL },
        { O_TOKENIZER, "dump " GPT "--ir --tokenizer tok.json", "no text is read",
          "dump " GPT "--ir --tokenizer char:@/text" },
        { O_ACT, "compile tests/data/gguf/kinds.gguf --act int8 -o @/x", "--weight-type keep",
          "compile tests/data/gguf/kinds.gguf --act int8 --weight-type keep -q -o @/x" },
        { O_ACT, "check " GPT "--weight-type fp8 --lora r=4 --act fp8", "inference alone", NULL },
        { O_ACT, "compile " GPT "--weight-type fp8 --weights random --lora r=4 --act fp8 -o @/x",
          "this trains", NULL },
        { O_WEIGHT_TYPE, "run " GPT "--weight-type keep --prompt-ids 1", "only GGUF files", NULL },
        { O_WEIGHT_TYPE, "check " GPT "--weight-type keep", "only GGUF files", NULL },
        ON_PLAN(WEIGHT_TYPE, "--weight-type q8_0", "check"),
        { O_WEIGHT_TYPE, "compile tests/data/gguf/kinds.gguf --weight-type q8_0 -o @/x",
          "--weights random",
          "compile tests/data/gguf/kinds.gguf --weights random --weight-type q8_0 -q -o @/x" },
        { O_WEIGHT_TYPE,
          "compile tests/data/gguf/kinds.gguf --weights random --weight-type keep -o @/x",
          "only GGUF files", NULL },
        { O_WEIGHT_TYPE, "train " GPT "--data @/text --weight-type keep --out_dir @/x",
          "only GGUF files", NULL },
        { O_WEIGHT_TYPE,
          "compile tests/data/gguf/kinds.gguf --mode train --weight-type keep -o @/x",
          "weights in blocks are frozen",
          "compile tests/data/gguf/kinds.gguf --mode train --weight-type keep --lora r=2 -q "
          "-o @/x" },
        { O_WEIGHT_TYPE, "compile " GPT "--weight-type q8_0 -o @/x", "--mode infer",
          "compile " GPT "--weight-type q8_0 --mode infer -q -o @/x" },
        { O_WEIGHT_TYPE, "compile tests/data/gguf/kinds.gguf --mode both --weight-type keep -o @/x",
          "weights in blocks are frozen",
          "compile tests/data/gguf/kinds.gguf --weight-type keep -q -o @/x" },
        { O_LORA, "run " GPT "--lora r=4 --prompt-ids 1", "begins a new adapter", NULL },
        { O_TF32, "compile " GPT "--tf32 --target cpu -o @/x", "CPU alone",
          "compile " GPT "--tf32 -q -o @/x" },
        { O_TF32, "run " GPT "--tf32 --device cpu --prompt-ids 1", "CPU alone", NULL },
        { O_FAST, "compile " GPT "--fast --mode infer -o @/x", "no company", NULL },
        { O_FAST, "compile " GPT "--fast -b 2 -o @/x", "no company", NULL },
        { O_FAST, "run " GPT "--fast --prompt-ids 1", "no company", NULL },
        { O_TUNED, "check " GPT "--tuned x --device cpu", "CPU alone", NULL },
        ON_PLAN(MASTERS, "--masters none --ir", "dump"),
        { O_MASTERS, "compile " GPT "--mode train --masters none -o @/x", "weights are float32",
          "compile " GPT "--mode train --dtype bf16 --masters none -q -o @/x" },
        { O_MASTERS, "compile " GPT "--mode infer --dtype bf16 --masters none -o @/x",
          "nothing is trained", NULL },
        { O_MASTERS, "bench " GPT "--dtype bf16 --masters none", "measured with --train", NULL },
        { O_OFFLOAD, "bench " GPT "--offload optimizer", "measured with --train", NULL },
        { O_OFFLOAD, "bench " GPT "--train --device cpu --offload optimizer", "CPU alone", NULL },
        { O_OFFLOAD, "train " GPT "--data @/text --out_dir @/o --device cpu --offload optimizer",
          "CPU alone", NULL },
        { O_OFFLOAD, "check " GPT "--device cpu --offload activations", "CPU alone", NULL },
        { O_OFFLOAD, "check " GPT "--device emulate --offload optimizer", "changes nothing here",
          NULL },
        { O_OFFLOAD, "dump " GPT "--mode infer --offload activations --ir", "nothing is trained",
          "dump " GPT "--mode train --offload activations --memory" },
        ON_PLAN(OFFLOAD, "--offload both --ir", "dump"),
        { O_OPTIMIZER, "compile " GPT "--mode infer --optimizer sgd -o @/x", "nothing is trained",
          "compile " GPT "--mode train --optimizer sgd -q -o @/x" },
        { O_OPTIMIZER, "bench " GPT "--optimizer sgd", "measured with --train", NULL },
        { O_RECOMPUTE, "compile " GPT "--mode infer --recompute cheap -o @/x", "backward pass",
          "compile " GPT "--mode train --recompute block -q -o @/x" },
        { O_RECOMPUTE, "dump " GPT "--mode infer --recompute cheap --ir", "backward pass",
          "dump " GPT "--mode infer --recompute none --ir" },

        ON_PLAN(MODEL_FILE, "--model models/gpt.lua", "run"),
        { O_MODEL_FILE, "dump " GPT "--ir --model models/gpt.lua", "config.json means",
          "dump tests/data/families/gpt2 --graph --model models/gpt.lua" },
        ON_PLAN(LUA_TIMEOUT, "--lua-timeout 3", "info"),
        { O_LUA_TIMEOUT, "info @/graph.json --lua-timeout 3", "has no Lua", NULL },
        { O_IGNORE_EOS, "run @/both.plan --prompt-ids 1 --ignore-eos", "no tokenizer", NULL },
        { O_WINDOW, "eval @/both.plan --continuations @/text --window 4", "not cut into windows",
          NULL },
        { O_STRIDE, "eval @/both.plan --continuations @/text --stride 4", "not cut into windows",
          NULL },
        { O_IMATRIX, "quantize tests/data/quant/awq --type nf4 --imatrix @/text -o @/q", "mixtures",
          NULL },
        { O_TYPE, "export @/both.plan -o @/folder --type q8_0", "file of --gguf", NULL },
        { O_DTYPE, "export @/both.plan --gguf @/x.gguf --dtype bf16", "--type is the type", NULL },
        { O_WEIGHTS_ONLY, "export @/both.plan --gguf @/x.gguf --weights-only", "one of all", NULL },
        { O_MAX_SHARD, "export @/both.plan --gguf @/x.gguf --max-shard-size 1GB", "written whole",
          NULL },
        { O_CALIBRATE, "quantize tests/data/families/llama --type nf4 --calibrate @/text -o @/q",
          "nothing to choose", NULL },
        { O_CALIBRATE,
          "quantize tests/data/gguf/kinds.gguf --type q4_0 --imatrix @/text --calibrate @/text -o "
          "@/q",
          "what it would measure", NULL },
        { O_KL, "eval @/both.plan --continuations @/text --kl @/both.plan", "not compared", NULL },
        { O_KL, "eval @/both.plan --data @/text --kl @/both.plan --save-base @/x",
          "compares nothing", NULL },
        { O_SAVE_BASE, "eval @/both.plan --continuations @/text --save-base @/x", "not compared",
          NULL },
        { O_STRIDE, "eval @/both.plan --data @/text --kl @/both.plan --stride 4", "one behind",
          NULL },
        { O_TOGETHER, "eval @/both.plan --data @/text --kl @/both.plan --batch 1",
          "after the other", NULL },
        { O_LOGITS, "eval @/both.plan --data @/text --kl @/both.plan --logits @/l", "--kl needs",
          NULL },
        { O_JSON, "eval @/both.plan --data @/text --save-base @/x --json", "prints nothing", NULL },
        { O_LOGITS, "eval @/both.plan --continuations @/text --logits @/l", "are written", NULL },
        { O_JSON, "eval @/both.plan --continuations @/text --json", "objects as it is", NULL },
        ON_PLAN(CACHE_TYPE, "--cache-type f16", "run"),
        { O_CACHE_TYPE, "compile " GPT "--mode train --cache-type f16 -o @/x", "inference alone",
          "compile " GPT "--mode infer --cache-type f16 -q -o @/x" },
        { O_DRAFT, "run @/both.plan --prompt-ids 1 --parallel 2 --draft ngram", "it is for one",
          NULL },
        { O_DRAFT_MAX, "run @/both.plan --prompt-ids 1 --draft-max 3", "goes with --draft", NULL },
        { O_CONTEXT_SHIFT, "run @/both.plan -p a -p b --context-shift", "it is for one",
          "run @/both.plan --prompt-ids 1 -n 1 --temp 0 --context-shift" },
        { O_SHIFT_KEEP, "run @/both.plan --prompt-ids 1 --keep 3", "goes with --context-shift",
          NULL },
        { O_SHIFT_KEEP, "chat @/both.plan --keep 3", "goes with --context-shift", NULL },
        { O_LOGPROBS, "run @/both.plan --prompt-ids 1 --logprobs 3", "object of --json", NULL },
        { O_PRINT_IDS, "run @/both.plan --prompt-ids 1 --print-ids --json", "has the ids", NULL },

        { O_VAL_FRACTION,
          "train @/both.plan --data @/text --batch_offsets @/o.npy --val_fraction 0.2",
          "which windows", NULL },
        { O_INIT_FROM, "train @/both.plan --data @/text --resume --init_from w",
          "weights of the run", NULL },
        { O_LR_SCHEDULE, "train @/both.plan --data @/text --no-decay_lr --lr_schedule linear",
          "does not fall", NULL },
        { O_LOSS_SCALE_WINDOW,
          "train @/both.plan --data @/text --loss_scale 8 --loss_scale_window 3", "sets the scale",
          NULL },
        { O_EMA_USE, "train @/both.plan --data @/text --ema_use eval", "goes with --ema", NULL },
        { O_EMA, "train @/both.plan --data @/text --out_dir @/o --ema 0.9", "keeps no average",
          NULL },
        { O_COOLDOWN, "train @/both.plan --data @/text --lr_cooldown_iters 5", "goes with", NULL },
        { O_MIN_LR, "train @/both.plan --data @/text --no-decay_lr --min_lr 1", "does not fall",
          NULL },
        { O_MIN_LR, "train @/both.plan --data @/text --batch_offsets @/o.npy --min_lr 1",
          "does not fall",
          "train @/both.plan --data @/text --batch_offsets @/o.npy --min_lr 1 --decay_lr" },
        { O_DECAY_ITERS, "train @/both.plan --data @/text --no-decay_lr --lr_decay_iters 9",
          "does not fall", NULL },
        { O_EVAL_ITERS, "train @/both.plan --data @/text --batch_offsets @/o.npy --eval_iters 2",
          "kept for validation",
          "train @/both.plan --data @/text --batch_offsets @/o.npy --eval_iters 0" },
        { O_EVAL_ITERS, "train @/both.plan --data @/text --val_fraction 0 --eval_iters 2",
          "kept for validation", NULL },
        { O_VAL_FRACTION, "train @/both.plan --data @/text --val_data @/text --val_fraction 0.2",
          "what is validated on", NULL },
        { O_LOSS, "train @/both.plan --data @/text --loss all", "about records", NULL },
        { O_FIELDS, "train @/both.plan --data @/text --fields text=x", "about records", NULL },
        { O_LONG, "train @/both.plan --data @/text --long cut", "about records", NULL },
        { O_PACKING, "train @/both.plan --data @/text --no-packing", "about records", NULL },
        { O_PAD_TO, "train @/both.plan --data @/text --pad_to 9", "about records", NULL },
        { O_TEMPLATE, "train @/both.plan --data @/text --template none", "about records", NULL },
        { O_CHAT_KWARGS, "train @/both.plan --data @/text --chat-template-kwargs {}",
          "about records", NULL },
        { O_EVAL_ONLY, "train @/both.plan --data @/text --val_fraction 0 --eval_only",
          "no validation", NULL },
        { O_LOG_CSV, "train @/both.plan --data @/text --eval_only --log_csv @/x", "no step", NULL },
        { O_GRADS_OUT, "train @/both.plan --data @/text --eval_only --grads_out @/x", "no step",
          NULL },
        { O_SAMPLE_INTERVAL, "train @/both.plan --data @/text -q --sample_interval 3",
          "prints no samples", NULL },
        { O_EVAL_PROMPT, "train @/both.plan --data @/text --eval_prompt @/text",
          "goes with --sample_interval", NULL },
        { O_EVAL_SCORE, "train @/both.plan --data @/text --sample_interval 2 --eval_score a=1",
          "goes with --eval_prompt", NULL },
        { O_KEEP, "train @/both.plan --data @/text --eval_only --keep 2", "no step", NULL },
        { O_MAX_TIME, "train @/both.plan --data @/text --eval_only --max_time 9", "no step", NULL },
        { O_FIND_NAN, "train @/both.plan --data @/text --eval_only --find_nan", "no step", NULL },
        { O_TENSORBOARD, "train @/both.plan --data @/text --eval_only --tensorboard", "no step",
          NULL },
        { O_SUMMARY_CSV, "train @/both.plan --data @/text --eval_only --summary_csv @/x", "no step",
          NULL },
        { O_SAMPLE_PROMPT, "train @/both.plan --data @/text --sample_prompt a",
          "goes with --sample_interval", NULL },
        { O_SAMPLE_TOKENS, "train @/both.plan --data @/text --sample_tokens 5",
          "goes with --sample_interval", NULL },
        { O_LOG_INTERVAL, "train @/both.plan --data @/text -q --log_interval 3", "prints no lines",
          NULL },
        { O_ALWAYS_SAVE,
          "train @/both.plan --data @/text --no-always_save_checkpoint --eval_iters 0",
          "no validation", NULL },

        { O_MARKDOWN, "help train --markdown", "tgc help lua", "help models --markdown" },
        { O_D_WHY, "dump @/both.plan --ir --why", "goes with --fused",
          "dump @/both.plan --fused --why" },
        { O_D_MEASURED, "dump @/both.plan --ir --measured", "goes with --html", NULL },
        { O_DEVICE, "dump @/both.plan --html @/p.html --device cpu", "goes with --measured",
          "dump @/both.plan --html @/p.html" },
        { O_GPU, "dump @/both.plan --html @/p.html --gpu 1", "goes with --measured", NULL },
        { O_GPU, "dump @/both.plan --html @/p.html --measured --device cpu --gpu 1", "no GPU",
          NULL },
        { O_THREADS, "dump @/both.plan --html @/p.html -t 2", "goes with --measured", NULL },
        { O_D_KERNEL, "dump @/both.plan --ir --kernel k0", "goes with --cuda or --c",
          "dump @/both.plan --c --kernel k0" },
        { O_JSON, "dump @/both.plan --ir --json", "goes with --graph",
          "dump @/both.plan --graph --json" },
        { O_TOKENS, "check @/train.plan --tokens 3", "for training alone", NULL },
        { O_GREEDY, "check @/train.plan --greedy 3", "for training alone", NULL },
        { O_B_KERNELS, "bench @/infer.plan --sequences 1,2 --kernels", "times whole steps",
          "bench @/infer.plan --kernels --decode -r 2" },
        { O_BATCH, "bench @/infer.plan --sequences 1,2 -b 2", "says how many", NULL },
        { O_PROMPT_TOKENS, "bench @/both.plan --train --prompt-tokens 3", "has no prompt", NULL },
        { O_ADD_BOS, "tokenize @/both.plan --ids --bos", "ids already", NULL },
        { O_PROMPT, "tokenize @/both.plan --messages @/text -p a", "that of --messages", NULL },
        { O_ADD_BOS, "tokenize @/both.plan --messages @/text --bos", "in front itself", NULL },
        { O_VERBOSE, "chat @/both.plan -q --verbose", "says nothing of them", NULL },
        { O_SYSTEM, "run @/both.plan --prompt-ids 1 --system x", "goes with --messages", NULL },
        { O_SYSTEM, "tokenize @/both.plan --system x", "goes with --messages", NULL },
        { O_TEMPLATE, "run @/both.plan --prompt-ids 1 --template @/text", "goes with --messages",
          NULL },
        { O_CHAT_KWARGS, "tokenize @/both.plan --chat-template-kwargs {}", "goes with --messages",
          NULL },
        { O_GPU, "run @/both.plan --prompt-ids 1 --device cpu --gpu 1", "no GPU", NULL },
        { O_THREADS, "run @/both.plan --prompt-ids 1 --device cuda -t 2", "on the GPU", NULL },
};
enum { N_ROWS = sizeof row / sizeof *row };

/* Lines of the table that can refuse. */
static const struct {
        OptionId option;
        const char *needs;
} line[] = {
#define EFFECT(option, commands, needs, why) { O_##option, #needs },
#include "cli/effects.def"
#undef EFFECT
};

TEST (every_line_that_can_refuse_is_tried) {
        for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
                bool tried = !strcmp(line[i].needs, "always");
                for (int k = 0; k < N_ROWS; k++)
                        tried |= row[k].option == line[i].option;
                CHECK_MSG(tried, "--%s needs %s: no row here tries it",
                          option_info[line[i].option].name, line[i].needs);
        }
}

TEST (what_has_no_effect_is_refused) {
        char words[80];
        set_up();
        for (int i = 0; i < N_ROWS; i++) {
                snprintf(words, sizeof words, "--%s has no effect",
                         option_info[row[i].option].name);
                int code = tgc(row[i].refused);
                CHECK_MSG(code == TGC_USAGE && strstr(err, words) && strstr(err, row[i].why),
                          "tgc %s: exit code %d, '%s', '%s' wanted: %s", row[i].refused, code,
                          words, row[i].why, err);
                if (!row[i].accepted)
                        continue;
                code = tgc(row[i].accepted);
                CHECK_MSG(!strstr(err, "has no effect"), "tgc %s: %s", row[i].accepted, err);
                CHECK_MSG(code == 0 || strstr(row[i].accepted, "train "),
                          "tgc %s: exit code %d: %s", row[i].accepted, code, err);
        }
}

/* --optimizer lists the rows of ir/optimizers.def. */
TEST (every_optimiser_can_be_chosen) {
        char words[200] = "";
        for (int i = 0; i < N_OPTIMIZERS; i++)
                snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? "|" : "",
                         optimizer_info[i].name);
        CHECK_MSG(!strcmp(words, option_info[O_OPTIMIZER].meta), "--optimizer says %s, not %s",
                  option_info[O_OPTIMIZER].meta, words);
}

/* --batch-size, --block-size mean nothing where one sequence runs; --weights where none are
 * read. */
TEST (commands_do_not_have_what_they_would_ignore) {
        CHECK(!(option_info[O_BATCH].commands & (ON_RUN | ON_EVAL)) &&
              !(option_info[O_BLOCK].commands & (ON_RUN | ON_EVAL)));
        CHECK(!(option_info[O_WEIGHTS].commands & (ON_DUMP | ON_CHECK | ON_TRAIN)) &&
              !(option_info[O_THREADS].commands & ON_TUNE));
}

static int word_of(const char *plan, const char *program)
{
        char path[300];
        Plan p = { 0 };
        Program g;
        int T = -1;
        Err e;
        snprintf(path, sizeof path, "%s/%s", dir, plan);
        CHECK_MSG(!plan_open(&p, path, &e), "%s", e.msg);
        const Section *s = plan_find(&p, "program.cpu");
        CHECK(s && !program_parse(&g, s->data, s->size, s->name, &e));
        T = program_find(&g, program) ? program_find(&g, program)->T : -1;
        program_free(&g);
        plan_close(&p);
        return T;
}

/* --ctx-size is the length of every sequence: the window's too, unless --block-size says it. */
TEST (ctx_size_sets_the_window) {
        static const struct {
                const char *with;
                int T;
        } want[] = { { "--mode train -c 9", 9 },
                     { "-c 9", 9 },
                     { "", 16 },
                     { "-c 9 --block-size 7", 7 },
                     { "--mode train --block-size 7", 7 } };
        char text[400];
        set_up();
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
                snprintf(text, sizeof text, "compile " GPT "-q -o @/w.plan %s", want[i].with);
                CHECK_MSG(tgc(text) == 0, "%s", err);
                CHECK_MSG(word_of("w.plan", "step") == want[i].T, "%s: windows of %d, not %d",
                          want[i].with, word_of("w.plan", "step"), want[i].T);
        }
}

/* A tokenizer given with a plan travels in what is written of it. */
TEST (a_tokenizer_for_a_plan_stays_in_it) {
        char path[300];
        Plan p = { 0 };
        set_up();
        CHECK_MSG(tgc("compile @/both.plan --tokenizer char:@/text -q -o @/t.plan") == 0, "%s",
                  err);
        snprintf(path, sizeof path, "%s/t.plan", dir);
        CHECK(!plan_open(&p, path, NULL) && plan_find(&p, "tokenizer"));
        plan_close(&p);
        CHECK(tgc("compile @/both.plan -q -o @/t.plan") == TGC_USAGE &&
              strstr(err, "is a plan already"));
}

TEST (zz_clean_up) {
        char text[300];
        snprintf(text, sizeof text, "rm -rf '%s'", dir);
        CHECK(!*dir || system(text) == 0);
}

TEST_MAIN
