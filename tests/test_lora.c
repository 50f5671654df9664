/* test_lora.c: adapters against PEFT's own numbers (e2e/lora, by reference.py there): logits of
 * one, of another shape, of two together; losses of 100 steps; what is written; what is refused. */
#include <math.h>
#include <sys/stat.h>
#include "runtime/weights/npy.h"
#include "cli_quiet.h"

#define FROM "tests/e2e/lora/"
#define HERE " --device cpu -q "
#define TRAIN                                                                             \
        "train " FROM "base --data " FROM "text.bin --batch_offsets " FROM "windows.npy " \
        "--learning_rate 1e-2 --warmup_iters 0 --weight_decay 0.1 --block_size 16" HERE

#define OK(...)                                                               \
        do {                                                                  \
                char line_[1024];                                             \
                snprintf(line_, sizeof line_, __VA_ARGS__);                   \
                int code_ = tgc(line_);                                       \
                CHECK_MSG(!code_, "%s exits with %d: %s", line_, code_, err); \
        } while (0)

static const char *in_dir(const char *name)
{
        static char path[4][400];
        static int i;
        char *p = path[i++ % 4];
        snprintf(p, 400, "%s/%s", dir, name);
        return p;
}

/* ---- logits ---- */

/* The largest difference of two files of logits; k: PEFT's, or -1: another file of ours. */
static double distance(const char *a, const char *b, int k)
{
        Npy x, y;
        Err e;
        CHECK_MSG(!npy_open(&x, a, &e), "%s", e.msg);
        CHECK_MSG(!npy_open(&y, b, &e), "%s", e.msg);
        CHECK(k < 0 ? x.count == y.count : x.count * y.dim[0] == y.count);
        double most = 0;
        for (int64_t i = 0; i < x.count; i++)
                most = worse(most,
                             fabs((double)x.u.f32[i] - y.u.f32[i + (k < 0 ? 0 : k * x.count)]));
        npy_close(&x);
        npy_close(&y);
        return most;
}

static void write_ids(void)
{
        unsigned short id[24];
        FILE *f = fopen(FROM "text.bin", "rb");
        CHECK(f && fread(id, sizeof id, 1, f) == 1);
        fclose(f);
        f = fopen(in_dir("ids"), "w");
        CHECK(f);
        for (int i = 0; i < 24; i++)
                fprintf(f, "%d ", id[i]);
        fclose(f);
}

static void logits_of(const char *model, const char *device)
{
        write_ids();
        OK("eval %s --ids @/ids --logits @/x.npy -q --device %s", model, device);
}

/* f32 on both sides; sums are in another order. */
static const double NEAR = 5e-5;

static void same_as_peft(const char *model, int k, const char *device)
{
        logits_of(model, device);
        const double d = distance(in_dir("x.npy"), FROM "logits.npy", k);
        CHECK_MSG(d < NEAR, "%s on %s: logits differ by %g from PEFT's", model, device, d);
}

TEST (logits_are_pefts) {
        tgc("version");
        same_as_peft(FROM "base", 0, "cpu");
        same_as_peft(FROM "base --lora " FROM "tuned", 1, "cpu");
        same_as_peft(FROM "base --lora " FROM "mixed", 2, "cpu");
        same_as_peft(FROM "base --lora " FROM "tuned --lora " FROM "mixed", 3, "cpu");
}

TEST (logits_are_pefts_emulated) {
        same_as_peft(FROM "base --lora " FROM "tuned --lora " FROM "mixed", 3, "emulate");
}

TEST (adapters_in_gguf_files) {
        same_as_peft(FROM "base.gguf --dtype f32 --lora " FROM "tuned.gguf", 1, "cpu");
        same_as_peft(FROM "base.gguf --dtype f32 --lora " FROM "tuned.gguf --lora " FROM "mixed", 3,
                     "cpu");
}

TEST (scales_are_of_the_whole) {
        same_as_peft(FROM "base --lora " FROM "tuned:2 --lora " FROM "tuned:-1", 1, "cpu");
        same_as_peft(FROM "base --lora " FROM "tuned:0.25 --lora " FROM "tuned:0.75", 1, "cpu");
}

/* ---- training ---- */

TEST (losses_are_pefts) {
        double want, got, most = 0;
        char line[400];
        int n = 0;
        OK(TRAIN "--lora " FROM "begin --out_dir @/out --log_csv @/l.csv");
        FILE *f = fopen(in_dir("l.csv"), "r"), *g = fopen(FROM "losses.txt", "r");
        CHECK(f && g && fgets(line, sizeof line, f));
        for (; fgets(line, sizeof line, f); n++) {
                CHECK(sscanf(line, "%*d,%*f,%lf", &got) == 1 && fscanf(g, "%lf", &want) == 1);
                most = worse(most, fabs(got - want));
        }
        fclose(f);
        fclose(g);
        CHECK_MSG(n == 100, "%d steps", n);
        CHECK_MSG(most < 1e-3, "losses differ by %g", most);
}

/* The first batch's loss, before any step. */
static double first_loss(const char *more)
{
        char line[400];
        double loss;
        OK(TRAIN "--out_dir @/first --log_csv @/f.csv --max_iters 1 %s", more);
        FILE *f = fopen(in_dir("f.csv"), "r");
        CHECK(f && fgets(line, sizeof line, f) && fgets(line, sizeof line, f));
        CHECK(sscanf(line, "%*d,%*f,%lf", &loss) == 1);
        fclose(f);
        return loss;
}

/* The folder's tensors do not reach an adapter that it lacks. */
TEST (a_new_adapter_changes_nothing) {
        const double base = first_loss("--train mlp"), with = first_loss("--lora r=4");
        CHECK_MSG(fabs(base - with) < 1e-5, "%g without an adapter, %g with a new one", base, with);
}

static bool same_file(const char *a, const char *b)
{
        FileMap x, y;
        Err e;
        CHECK_MSG(!file_map(&x, a, &e), "%s", e.msg);
        CHECK_MSG(!file_map(&y, b, &e), "%s", e.msg);
        const bool same = x.size == y.size && !memcmp(x.data, y.data, x.size);
        file_unmap(&x);
        file_unmap(&y);
        return same;
}

/* With dropout, and moments of a few parameters. */
TEST (a_resumed_run_is_exact) {
        const char *lora = "--lora r=3,alpha=6,dropout=0.2,targets=q_proj,v_proj,down_proj";
        OK(TRAIN
           "%s --max_iters 20 --lr_decay_iters 20 --decay_lr --eval_interval 10 --out_dir @/whole",
           lora);
        OK(TRAIN
           "%s --max_iters 10 --lr_decay_iters 20 --decay_lr --eval_interval 10 --out_dir @/cut",
           lora);
        OK("train @/cut --resume --max_iters 20 -q");
        CHECK(same_file(in_dir("whole/adapter/adapter_model.safetensors"),
                        in_dir("cut/adapter/adapter_model.safetensors")));
        CHECK(same_file(in_dir("whole/state.safetensors"), in_dir("cut/state.safetensors")));
        CHECK(same_file(in_dir("whole/model.plan"), in_dir("cut/model.plan")));
        CHECK(access(in_dir("whole/ckpt.safetensors"), F_OK));
        FileMap m; /* the state has adapters alone */
        Err e;
        CHECK_MSG(!file_map(&m, in_dir("whole/state.safetensors"), &e), "%s", e.msg);
        const bool base = memmem(m.data, m.size, "p.embed", 7) != NULL;
        file_unmap(&m);
        CHECK(!base);
}

/* The plan holds base and adapter, the folder beside it the adapter, an export the same. */
TEST (what_was_trained_runs) {
        if (access(in_dir("whole/model.plan"), F_OK))
                SKIP("no run");
        logits_of("@/whole", "cpu");
        CHECK(!rename(in_dir("x.npy"), in_dir("y.npy")));
        logits_of(FROM "base --lora @/whole/adapter", "cpu");
        CHECK(distance(in_dir("x.npy"), in_dir("y.npy"), -1) == 0);
        OK("export @/whole -o @/exported -q");
        CHECK(same_file(in_dir("whole/adapter/adapter_model.safetensors"),
                        in_dir("exported/adapter_model.safetensors")));
        OK("export @/whole/model.plan -o @/again -q");
        CHECK(same_file(in_dir("exported/adapter_model.safetensors"),
                        in_dir("again/adapter_model.safetensors")));
        OK("compile " FROM "base --lora @/again -o @/x.plan -q");
        logits_of("@/x.plan", "cpu");
        CHECK(distance(in_dir("x.npy"), in_dir("y.npy"), -1) == 0);
}

/* One model of both adapters, and what the sample of it says. */
TEST (merged_is_unmerged) {
        setenv("TGC_DEVICE", "cpu", 1);
        OK("export " FROM "base --merge --lora " FROM "tuned --lora " FROM "mixed -o @/merged");
        unsetenv("TGC_DEVICE");
        CHECK_MSG(strstr(err, "merged, in f32: of 16 tokens no logit is off by more than"), "%s",
                  err);
        logits_of("@/merged", "cpu");
        CHECK(distance(in_dir("x.npy"), FROM "logits.npy", 3) < NEAR);
        CHECK(same_file(in_dir("merged/config.json"), FROM "base/config.json"));
}

/* Both sides of the comparison have the written type, not bf16, the default of a file in blocks. */
TEST (merged_blocks_are_compared_in_their_type) {
        OK("quantize " FROM "base.gguf --type q8_0 -o @/blocks.gguf");
        setenv("TGC_DEVICE", "cpu", 1);
        OK("export @/blocks.gguf --merge --lora " FROM "tuned -o @/unblocked");
        unsetenv("TGC_DEVICE");
        const char *said = strstr(err,
                                  "merged, in f16: of 16 tokens no logit is off by more than ");
        CHECK_MSG(said && atof(strstr(said, "than ") + 5) < 0.1, "%s", err);
}

/* One command or two, by way of the merged folder: the same weights. */
TEST (merged_to_a_gguf_file) {
        OK("export " FROM "base --merge --lora " FROM "tuned -o @/merged -q");
        OK("quantize @/merged --type q8_0 -o @/two.gguf -q");
        setenv("TGC_DEVICE", "cpu", 1);
        OK("export " FROM "base --merge --lora " FROM "tuned --gguf @/one.gguf --type q8_0");
        unsetenv("TGC_DEVICE");
        CHECK_MSG(strstr(err, "one.gguf: merged, in q8_0: of 16 tokens"), "%s", err);
        logits_of("@/one.gguf", "cpu");
        CHECK(!rename(in_dir("x.npy"), in_dir("y.npy")));
        logits_of("@/two.gguf", "cpu");
        CHECK(distance(in_dir("x.npy"), in_dir("y.npy"), -1) == 0);
        CHECK(tgc("export " FROM "base --merge --lora " FROM "tuned --gguf @/no.gguf --type nf4") ==
                      TGC_USAGE &&
              strstr(err, "a GGUF file has Q4_0"));
}

/* A run's folder is merged with the model that it names. */
TEST (a_run_is_merged) {
        OK(TRAIN "--lora r=4 --max_iters 3 --out_dir @/run");
        setenv("TGC_DEVICE", "cpu", 1);
        OK("export @/run --merge -o @/whole");
        OK("export " FROM "base --merge --lora @/run/adapter -o @/whole2");
        unsetenv("TGC_DEVICE");
        CHECK(same_file(in_dir("whole/model.safetensors"), in_dir("whole2/model.safetensors")));
        OK("export @/run --merge --gguf @/whole.gguf -q");
        OK("export " FROM "base --merge --lora @/run/adapter --gguf @/whole2.gguf -q");
        CHECK(same_file(in_dir("whole.gguf"), in_dir("whole2.gguf")));
        /* that model's folder is not written over */
        CHECK(tgc("export @/run --merge --lora " FROM "begin -o @/no") == TGC_USAGE &&
              strstr(err, "is a run with an adapter of its own"));
        CHECK(tgc("export @/run --merge -o " FROM "base") == TGC_USAGE &&
              strstr(err, "is the folder of the model that --merge reads"));
        CHECK(tgc("export " FROM "base --merge --lora @/run/adapter -o " FROM "base") == TGC_USAGE);
}

TEST (gradients_agree_with_the_evaluator) {
        static const char *const spec[] = { "r=4,alpha=8", "r=3,alpha=3,dropout=0.3",
                                            "r=5,rslora=1,targets=.*(q|v|down)_proj" };
        static const char *const device[] = { "cpu", "emulate" };
        for (int i = 0; i < 3; i++)
                for (int k = 0; k < 2; k++)
                        /* weights of 0.3 make sharp attention: bf16 is off by 0.08 in q's */
                        OK("check " FROM "base --lora %s -q --device %s --dtype %s", spec[i],
                           device[k], i == 1 ? "bf16 --tolerance 0.15" : "f32");
        OK("check gpt -D n_layer=1 -D n_head=2 -D n_embd=32 -D vocab=50 -D ctx=32 --lora "
           "r=4,targets=c_attn,c_proj,c_fc -q --device cpu");
        OK("check models/moe.lua -D n_layer=1 -D n_embd=32 -D n_head=2 -D n_kv_head=1 -D "
           "head_dim=16 -D n_ff=32 -D vocab=50 -D ctx=32 --lora r=4,targets=q_proj,o_proj -q "
           "--device cpu");
        OK("check " FROM "base --lora r=4 --group lora_B:wd=0.7 -q --device cpu");
}

/* ---- what is refused ---- */

static void write_text(const char *path, const char *text)
{
        Err e;
        CHECK_MSG(!file_write_atomic(path, text, strlen(text), &e), "%s", e.msg);
}

/* A copy of an adapter with `was` replaced in its configuration. */
static void copy_with(const char *was, const char *now)
{
        char *text;
        size_t n;
        Err e;
        FileMap m;
        mkdir(in_dir("bad"), 0777);
        CHECK(!file_read_text(FROM "tuned/adapter_config.json", 1 << 20, &text, &n, &e));
        char *at = strstr(text, was), all[8192];
        CHECK_MSG(at, "no %s", was);
        snprintf(all, sizeof all, "%.*s%s%s", (int)(at - text), text, now, at + strlen(was));
        write_text(in_dir("bad/adapter_config.json"), all);
        free(text);
        CHECK(!file_map(&m, FROM "tuned/adapter_model.safetensors", &e));
        CHECK(!file_write_atomic(in_dir("bad/adapter_model.safetensors"), m.data, m.size, &e));
        file_unmap(&m);
}

static void refused(int code, const char *line, const char *says)
{
        const int got = tgc(line);
        CHECK_MSG(got == code && strstr(err, says), "%s exits with %d, %s; not %d, %s", line, got,
                  err, code, says);
}

TEST (hostile_adapters_are_refused_by_name) {
        static const struct {
                const char *was, *now, *says;
        } row[] = {
                { "\"r\": 4", "\"r\": 5", "[4,32], the map wants [5,32]" },
                { "\"r\": 4", "\"r\": 5", "its adapter_config.json and the model's linears say" },
                { "\"r\": 4", "\"r\": 0", "r 0: a number from 1 to" },
                { "\"r\": 4", "\"r\": 1.5", "r 1.5: a whole number is wanted" },
                { "\"bias\": \"none\"", "\"bias\": \"all\"", "bias \"all\"" },
                { "\"use_dora\": false", "\"use_dora\": true", "use_dora true: DoRA" },
                { "\"lora_bias\": false", "\"lora_bias\": true", "lora_bias true" },
                { "\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"",
                  "peft_type \"IA3\": only LORA" },
                { "\"revision\": null", "\"new_thing\": 3",
                  "new_thing 3: what the key means is not known" },
                { "\"task_type\": \"CAUSAL_LM\"", "\"task_type\": \"SEQ_CLS\"",
                  "task_type \"SEQ_CLS\"" },
                { "\"layer_replication\": null", "\"layer_replication\": [[0,2]]",
                  "layer_replication [[0,2]]" },
                { "\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"",
                  "init_lora_weights \"pissa\"" },
                { "\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]",
                  "modules_to_save [\"lm_head\"]" },
                { "\"q_proj\"", "\"x_proj\"",
                  "tensors that the model does not use: base_model.model" },
                { "\"layers_to_transform\": null", "\"layers_to_transform\": [7]",
                  "none of its target modules" },
                { "\"target_modules\": [", "\"target_modules\": \"(\", \"x\": [", "x [" },
                { "{", "{{", "adapter_config.json:" },
        };
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                copy_with(row[i].was, row[i].now);
                refused(3, "run " FROM "base --lora @/bad --prompt-ids 1" HERE, row[i].says);
                CHECK_MSG(!strstr(err, "in the model file"), "%s", err); /* not a file's to say */
        }
        copy_with("\"r\": 4", "\"r\": 4");
        unlink(in_dir("bad/adapter_model.safetensors"));
        refused(8, "run " FROM "base --lora @/bad --prompt-ids 1" HERE,
                "adapter_model.safetensors: ");
        refused(8, "run " FROM "base --lora @/none --prompt-ids 1" HERE, "no such folder");
        refused(2, "run " FROM "base --lora " FROM "tuned.gguf --prompt-ids 1" HERE,
                "goes with a model that is a GGUF file");
        refused(3, "run " FROM "base.gguf --lora " FROM "base.gguf --prompt-ids 1" HERE,
                "general.type is not adapter");
        refused(3, "run tests/data/gguf/gpt2.gguf --lora " FROM "tuned.gguf --prompt-ids 1" HERE,
                "shapes differ: tensor blk.0.attn_output.weight.lora_a");
        /* of another model */
        refused(3, "run examples/shakespeare --lora " FROM "tuned -p x" HERE,
                "none of its target modules is a linear of gpt");
}

TEST (lines_are_refused_by_name) {
        refused(2, "dump " FROM "base --ir --lora r=4,targets=q_porj", "nearest is q_proj");
        refused(2, "dump " FROM "base --ir --lora rank=4", "there are r, alpha, dropout, targets");
        refused(2, "dump " FROM "base --ir --lora r=4,targets=(", "regular expression '('");
        refused(2, "dump " FROM "base --ir --lora r=4,targets=(a+)+$b*",
                "none of its target modules");
        refused(2, "dump " FROM "base --ir --lora r=x", "a number is wanted");
        refused(2, "dump moe --ir --lora r=4", "experts' linears");
        refused(3, "dump gpt --ir --lora r=4,targets=wte", "its weight is used elsewhere, too");
        refused(2, TRAIN "--lora r=4 --train q_proj --out_dir @/no", "--lora trains only adapters");
        refused(2, TRAIN "--lora " FROM "begin --lora " FROM "begin --out_dir @/no",
                "trains one adapter");
        refused(2, TRAIN "--lora " FROM "begin:2 --out_dir @/no", "a scale has no effect");
        refused(2, "run " FROM "base --prompt-ids 1 --lora " FROM "begin:0" HERE,
                "a number "
                "other than 0");
        refused(2, "run @/x.plan --lora " FROM "begin --prompt-ids 1" HERE,
                "is compiled already; give --lora");
        refused(2, "export " FROM "base --merge -o @/no", "has no adapter");
        refused(2, "export " FROM "base --merge --lora r=4 -o @/no",
                "wants the folder of an adapter");
        refused(2, "export " FROM "base --lora " FROM "begin -o @/no", "it goes with --merge");
        refused(3, "export gpt --merge --lora " FROM "begin -o @/no", "none of its target modules");
        CHECK(access(in_dir("no"), F_OK));
}

/* ---- QLoRA: the base stays in blocks ---- */

#define KINDS "tests/data/gguf/kinds.gguf" /* every type of blocks */
#define KINDS_TRAIN                                                                       \
        "train " KINDS " --data @/ids.bin --batch_offsets @/at.npy --learning_rate 1e-3 " \
        "--warmup_iters 0 --block_size 24 --eval_interval 25" HERE

/* The gradient of an input goes through the blocks that the product forward reads. */
TEST (gradients_through_blocks_agree_with_the_evaluator) {
        static const char *const device[] = { "cpu", "emulate" };
        OK("quantize " FROM "base.gguf --type q8_0 -o @/q8.gguf -q");
        for (int k = 0; k < 2; k++) {
                OK("check " KINDS " --weight-type keep --lora r=4,alpha=8 -q --device %s",
                   device[k]);
                OK("check @/q8.gguf --weight-type keep --lora r=4 -q --device %s --dtype bf16 "
                   "--tolerance 0.15",
                   device[k]);
        }
        OK("check " KINDS " --weight-type keep -O0 --lora r=3,dropout=0.2 -q --device cpu");
        OK("check tests/data/quant/bnb_nf4_double --weight-type keep --lora r=4 -q --device "
           "emulate");
        OK("check tests/data/gguf/mixtral.gguf --weight-type keep --lora r=2,targets=q_proj,v_proj "
           "-q --device cpu");
        OK("check llama -D n_layer=1 -D n_embd=256 -D n_head=4 -D n_kv_head=2 -D n_ff=512 -D "
           "ctx=64 -D vocab=72 --weight-type q3_k_m --lora r=4 -q --device cpu -b 2 --block-size "
           "33 --dtype bf16");
}

TEST (gradients_through_blocks_on_hopper) {
        setenv("TGC_EMULATE_ARCH", "sm_90a", 1);
        OK("check llama -D n_layer=1 -D n_embd=256 -D n_head=4 -D n_kv_head=2 -D n_ff=512 -D "
           "ctx=64 -D vocab=8200 --weight-type q4_k_m --lora r=4 -q --device emulate -b 2 "
           "--block-size 64 --dtype bf16");
        unsetenv("TGC_EMULATE_ARCH");
}

/* Ids below 2^bits without a pattern, and where 50 steps begin. */
static void write_stream(int bits)
{
        enum { TOKENS = 4000, STEPS = 50 };
        static unsigned short id[TOKENS];
        static int64_t at[STEPS];
        FILE *f = fopen(in_dir("ids.bin"), "wb");
        unsigned x = 12345;
        for (int i = 0; i < TOKENS; i++)
                id[i] = (unsigned short)((x = x * 1664525 + 1013904223) >> (32 - bits));
        CHECK(f && fwrite(id, sizeof id, 1, f) == 1);
        fclose(f);
        for (int i = 0; i < STEPS; i++)
                at[i] = (x = x * 1664525 + 1013904223) % (TOKENS - 25);
        f = fopen(in_dir("at.npy"), "wb");
        CHECK(f && fwrite("\x93NUMPY\1\0v\0", 10, 1, f) == 1 &&
              fprintf(f, "%-117s\n",
                      "{'descr': '<i8', 'fortran_order': False, 'shape': (50, 1, 1), }") == 118 &&
              fwrite(at, sizeof at, 1, f) == 1);
        fclose(f);
}

/* Losses of a log, by the column. */
static int losses(const char *name, double *loss, int most)
{
        char line[400];
        int n = 0;
        FILE *f = fopen(in_dir(name), "r");
        CHECK(f && fgets(line, sizeof line, f));
        while (n < most && fgets(line, sizeof line, f))
                n += sscanf(line, "%*d,%*f,%lf", &loss[n]) == 1;
        fclose(f);
        return n;
}

/* The same adapter on the same values, decoded when the model is read or when they are used. */
TEST (losses_over_blocks_are_those_of_decoded_weights) {
        double a[50], b[50], most = 0;
        write_stream(8);
        OK(KINDS_TRAIN "--lora r=4,alpha=8 --max_iters 1 --eval_iters 0 --out_dir @/first");
        OK(KINDS_TRAIN
           "--lora @/first/adapter --eval_iters 0 --out_dir @/decoded --log_csv @/decoded.csv");
        OK(KINDS_TRAIN "--lora @/first/adapter --eval_iters 0 --weight-type keep --out_dir @/kept "
                       "--log_csv @/kept.csv");
        CHECK(losses("decoded.csv", a, 50) == 50 && losses("kept.csv", b, 50) == 50);
        for (int i = 0; i < 50; i++)
                most = worse(most, fabs(a[i] - b[i]));
        /* f32; sums are in another order, and random weights of 1 enlarge what differs */
        CHECK_MSG(most < 2e-3, "losses differ by %g", most);
        CHECK_MSG(a[49] < a[0] - 0.1, "nothing was learnt: %g to %g", a[0], a[49]);
}

TEST (an_adapter_over_blocks_runs_and_resumes) {
        static const char *const lora = "--lora r=4,alpha=8,dropout=0.1 --weight-type keep "
                                        "--decay_lr --lr_decay_iters 50";
        logits_of("@/kept", "cpu");
        CHECK(!rename(in_dir("x.npy"), in_dir("y.npy")));
        logits_of(KINDS " --dtype f32 --weight-type keep --lora @/kept/adapter", "cpu");
        CHECK(distance(in_dir("x.npy"), in_dir("y.npy"), -1) == 0);
        logits_of(KINDS " --dtype f32 --lora @/kept/adapter", "cpu");
        CHECK(distance(in_dir("x.npy"), in_dir("y.npy"), -1) < 1e-3);
        OK(KINDS_TRAIN "%s --eval_iters 0 --out_dir @/qwhole", lora);
        OK(KINDS_TRAIN "%s --eval_iters 0 --max_iters 25 --out_dir @/qcut", lora);
        OK("train @/qcut --resume --max_iters 50 -q");
        CHECK(same_file(in_dir("qwhole/state.safetensors"), in_dir("qcut/state.safetensors")));
        CHECK(same_file(in_dir("qwhole/model.plan"), in_dir("qcut/model.plan")));
}

/* A base of bitsandbytes, NF4 with scales of 8 bits. */
TEST (an_adapter_over_nf4_trains) {
        static const char *const base = "tests/data/quant/bnb_nf4_double";
        double a[20], b[20], most = 0;
        write_stream(4);
        for (int i = 0; i < 2; i++)
                OK("train %s --data @/ids.bin --batch_offsets @/at.npy --block_size 16 "
                   "--max_iters 20 --eval_iters 0 --lora r=4 --weight-type %s --out_dir @/nf4 "
                   "--log_csv @/nf4.%d" HERE,
                   base, i ? "keep" : "decode", i);
        CHECK(losses("nf4.0", a, 20) == 20 && losses("nf4.1", b, 20) == 20);
        for (int i = 0; i < 20; i++)
                most = worse(most, fabs(a[i] - b[i]));
        CHECK_MSG(most < 1e-4, "losses differ by %g", most);
}

TEST (what_cannot_be_over_blocks_is_refused) {
        refused(2, KINDS_TRAIN "--weight-type keep --out_dir @/no", "weights in blocks are frozen");
        refused(2, TRAIN "--weight-type keep --lora r=4 --out_dir @/no", "only GGUF files");
        refused(2, "train @/qcut --resume --weight-type decode --max_iters 60 -q",
                "is compiled already");
        refused(3,
                "train " KINDS " --weight-type keep --lora r=4 --data @/ids.bin --init_from "
                "@/q8.gguf --out_dir @/no" HERE,
                "");
        CHECK(access(in_dir("no"), F_OK));
}

TEST_MAIN
