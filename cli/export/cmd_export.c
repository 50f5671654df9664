/* cmd_export.c: tgc export: a plan as a Hugging Face folder, or its weights alone. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../../runtime/device/host_cc.h"
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "../load/gguf_model.h"
#include "gguf_write.h"
#include "../load/lora.h"
#include "../quantize/mixtures.h"
#include "../train/train.h"
#include "../load/open.h"

static int copy(const char *dir, const char *name, const char *folder, Err *e)
{
        char *from = file_join(dir, name), *to = file_join(folder, name);
        FileMap m;
        int code = from && to ? file_map(&m, from, e)
                              : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code) {
                code = file_write_atomic(to, m.data, m.size, e);
                file_unmap(&m);
        }
        free(from);
        free(to);
        return code;
}

static int copy_config(const char *from, const char *folder, Err *e)
{
        char *text, *to = file_join(folder, "config.json");
        size_t n;
        int code = to ? file_read_text(from, 1 << 20, &text, &n, e)
                      : err_set(e, TGC_NO_MEMORY, "%s: no memory", from);
        if (!code) {
                code = file_write_atomic(to, text, n, e);
                free(text);
        }
        free(to);
        return code;
}

static bool is_file(const char *out)
{
        size_t n = strlen(out);
        return n > 12 && !strcmp(out + n - 12, ".safetensors");
}

/* 5GB, 200MB, 1GiB ...: as transformers' max_shard_size; 0: it is no size. */
static uint64_t size_of(const char *s)
{
        static const struct {
                const char *unit;
                double bytes;
        } unit[] = { { "", 1 },          { "B", 1 },
                     { "KB", 1e3 },      { "MB", 1e6 },
                     { "GB", 1e9 },      { "TB", 1e12 },
                     { "KIB", 1024 },    { "MIB", 1 << 20 },
                     { "GIB", 1 << 30 }, { "TIB", 1099511627776. } };
        char *end;
        double x = c_strtod(s, &end);
        end += *end == ' ';
        for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
                if (end > s && !strcasecmp(end, unit[i].unit) && x * unit[i].bytes >= 1 &&
                    x * unit[i].bytes < 9e18)
                        return (uint64_t)(x * unit[i].bytes);
        return 0;
}

/* What there is to know of the folder, by name. */
static void say_files(const Progress *talk, const Loaded *l, const char *folder, const char *model,
                      bool own, bool tokenizer)
{
        if (*model)
                say(talk,
                    "%s: config.json names %s, the model: tgc runs the folder, other programs do "
                    "not know it (--config FILE puts their config.json there)\n",
                    folder, model);
        else if (!plan_find(&l->plan, "file.config.json") && !own)
                say(talk, "%s: the config.json that was there stays\n", folder);
        if (!tokenizer && l->tok)
                say(talk,
                    "%s: no tokenizer: the plan's own was no file of a folder, and tokenizer.json "
                    "is written of byte-level BPE alone; give `tgc run` --tokenizer FILE\n",
                    folder);
}

/* merged: with the adapters, from the checkpoint `base`. */
typedef struct Merged {
        const Adapters *adapters;
        const char *base, *dtype; /* that it was written in */
} Merged;

static int write_folder(const Loaded *l, const Args *a, const char *folder, const char *dtype,
                        uint64_t shard, Merged *merged, Err *e)
{
        const bool all = !opt_flag(a, O_WEIGHTS_ONLY);
        const char *own = opt_str(a, O_CONFIG);
        Progress talk = progress_new(a);
        char stored[32] = "f32", model[200] = "";
        bool tokenizer = false;
        int code = make_folder(folder, e), n = 0;
        manifest_word(&l->plan, "dtype", stored, sizeof stored);
        if (!code)
                code = merged ? merge_export(&l->plan, merged->base, merged->adapters, folder,
                                             &dtype, shard, &n, e)
                              : weights_export(&l->plan, folder, dtype, shard, &n, e);
        if (merged)
                merged->dtype = dtype;
        if (!code && all)
                code = model_files_write(l, folder, dtype ? dtype : stored, own, model, &tokenizer,
                                         e);
        if (!code && own)
                code = copy_config(own, folder, e);
        if (code)
                return code;
        if (n > 1)
                say(&talk, "%s/model.safetensors.index.json: written, and %d files of weights\n",
                    folder, n);
        else
                say(&talk, "%s/model.safetensors: written\n", folder);
        if (all)
                say_files(&talk, l, folder, model, own, tokenizer);
        return TGC_OK;
}

/* Of a folder that training left: its own files, in float32; else what the plan has. */
static int write_adapter(const Loaded *l, const Args *a, const char *folder, const Progress *talk,
                         Err *e)
{
        static const char *const name[] = { "adapter_config.json", "README.md",
                                            "adapter_model.safetensors" };
        char *from = file_join(a->pos[0], "adapter");
        int code = from ? make_folder(folder, e) : err_set(e, TGC_NO_MEMORY, "no memory");
        if (!code && (!file_is_dir(a->pos[0]) || !file_is_dir(from)))
                code = adapter_export(NULL, &l->plan, folder, NULL, NULL, e);
        else
                for (int i = 0; i < 3 && !code; i++)
                        code = copy(from, name[i], folder, e);
        free(from);
        if (!code)
                say(talk, "%s/adapter_model.safetensors: written\n", folder);
        return code;
}

/* ---- --gguf ---- */

/* By way of a temporary folder. */
static int write_gguf_file(const Loaded *l, const Args *a, const char *path, uint64_t shard,
                           Merged *merged, Err *e)
{
        const char *type = opt_set(a, O_TYPE) ? opt_str(a, O_TYPE) : "f16";
        char name[200] = "model", dir[512];
        Args quiet = *a;
        ChatSource chat = { 0 };
        const Section *s = plan_find(&l->plan, "chat");
        if (!is_gguf_type(type))
                return err_set(e, TGC_USAGE, "--type %.40s: a GGUF file has %s, F32, F16, BF16",
                               type, mixture_names());
        if (!plan_find(&l->plan, "file.config.json") && !opt_str(a, O_CONFIG))
                return err_set(
                        e, TGC_USAGE,
                        "%s: a model of Lua, and GGUF files are of architectures that other "
                        "programs know: give --config FILE, the config.json that its weights "
                        "have in Hugging Face's words",
                        a->pos[0]);
        quiet.v[O_QUIET].i = 1;
        manifest_word(&l->plan, "model", name, sizeof name);
        int code = tmpdir_make(dir, e);
        if (!code)
                code = write_folder(l, &quiet, dir, NULL, shard, merged, e);
        if (!code && s)
                code = chat_source_unpack(&chat, s->data, s->size, path, e);
        if (!code)
                code = gguf_of_folder(&(GgufOf) { .a = a,
                                                  .folder = dir,
                                                  .name = name,
                                                  .type = type,
                                                  .tok = l->tok,
                                                  .chat = &chat },
                                      path, e);
        chat_source_free(&chat);
        if (*dir)
                tmpdir_remove(dir);
        return code;
}

/* ---- --merge ---- */

/* Of a folder or a GGUF file `out`, which was written in dtype. */
static void say_change(const Args *a, const char *out, const char *dtype, const Progress *talk)
{
        const char *type = !opt_str(a, O_GGUF)  ? dtype
                           : opt_set(a, O_TYPE) ? opt_str(a, O_TYPE)
                                                : "f16";
        double change, largest;
        Err why;
        if (merge_compare(a, out, dtype, &change, &largest, &why))
                say(talk, "%s: logits were not compared: %s\n", out, why.msg);
        else
                say(talk,
                    "%s: merged, in %s: of 16 tokens no logit is off by more than %.2g (the "
                    "largest is %.3g)\n",
                    out, type, change, largest);
}

/* Of MODEL and --lora DIR ... */
static int merge(const Args *a, const char *out, const char *dtype, uint64_t shard,
                 const Progress *talk, Err *e)
{
        Args plain = *a;
        Adapters s;
        Loaded l;
        Merged how = { &s, a->pos[0], NULL };
        const bool gguf = opt_str(a, O_GGUF);
        bool there = true;
        int code;
        if (!gguf && is_file(out) && !file_is_dir(out))
                return err_set(e, TGC_USAGE, "export: --merge writes a folder, and %s is not one",
                               out);
        if (paths_same(out,
                       a->pos[0])) /* of a run's folder outputs_check does not know its model */
                return err_set(
                        e, TGC_USAGE,
                        "--output %s is the folder of the model that --merge reads: write to "
                        "another one",
                        out);
        if ((code = adapters_open(&s, a->v[O_LORA].list, a->v[O_LORA].n, a->pos[0], e)))
                return code;
        if (!s.a[0].dir)
                code = err_set(e, TGC_USAGE,
                               "--lora %.100s: --merge wants the folder of an adapter",
                               a->v[O_LORA].list[0]);
        plain.v[O_DTYPE].set = false;
        plain.v[O_OPT].i = 0;
        plain.v[O_QUICK_CHECK].i = 0;
        if (!code && !(code = load(&l, &plain, &(LoadHow) { .no_weights = true }, e))) {
                if (l.kind == MODEL_HF)
                        code = folder_weights(a->pos[0], "give another folder", &there, e);
                if (!code && (!there || l.kind == MODEL_LUA || l.kind == MODEL_JSON))
                        code = err_set(e, TGC_USAGE, "%s: there are no weights to merge with",
                                       a->pos[0]);
                if (!code)
                        code = gguf ? write_gguf_file(&l, a, out, shard, &how, e)
                                    : write_folder(&l, a, out, dtype, shard, &how, e);
                loaded_free(&l);
        }
        adapters_free(&s);
        if (!code)
                say_change(a, out, how.dtype, talk);
        return code;
}

/* Of a folder that training left: its model and its adapter. */
static int merge_run(const Args *a, const char *out, const char *dtype, uint64_t shard,
                     const Progress *talk, Err *e)
{
        const char *dir = a->pos[0];
        char *adapter = file_join(dir, "adapter"), *model = NULL;
        Args of = *a;
        int code = adapter ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
        if (!code && !file_is_dir(adapter))
                code = err_set(
                        e, TGC_USAGE,
                        "export: %s has no adapter, as `tgc train --lora` leaves it: --merge "
                        "has no effect",
                        dir);
        if (!code && !(code = again_model(dir, &model, e)) && !file_exists(model) &&
            !file_is_dir(model))
                code = err_set(
                        e, TGC_USAGE,
                        "%s: no such file, and %s was made from it; if it has moved: tgc export "
                        "MODEL --merge --lora %s %s %s",
                        model, dir, adapter, opt_str(a, O_GGUF) ? "--gguf" : "-o", out);
        if (!code) {
                const char *pos = model, *lora = adapter;
                of.pos = &pos;
                of.v[O_LORA].list = &lora;
                of.v[O_LORA].n = 1;
                of.v[O_LORA].set = true;
                code = merge(&of, out, dtype, shard, talk, e);
        }
        free(model);
        free(adapter);
        return code;
}

int cmd_export(const Args *a, Err *e)
{
        const char *gguf = opt_str(a, O_GGUF), *out = gguf ? gguf : opt_str(a, O_OUT),
                   *dtype = opt_set(a, O_DTYPE) ? opt_str(a, O_DTYPE) : NULL;
        Progress talk = progress_new(a);
        Loaded l;
        if (!out)
                return err_set(e, TGC_USAGE,
                               "export: -o FOLDER is missing: tgc export %s -o "
                               "FOLDER",
                               a->pos[0]);
        if (gguf && opt_str(a, O_OUT))
                return err_set(e, TGC_USAGE, "export: --gguf and -o: one at a time");
        const bool file = is_file(out) && !file_is_dir(out);
        if (file && (opt_str(a, O_CONFIG) || opt_set(a, O_MAX_SHARD)))
                return err_set(e, TGC_USAGE, "export: --%s has no effect: %s is not a folder",
                               opt_str(a, O_CONFIG) ? "config" : "max-shard-size", out);
        const uint64_t shard = size_of(opt_str(a, O_MAX_SHARD));
        if (!shard)
                return err_set(e, TGC_USAGE, "--max-shard-size %.60s: give a size, as 5GB",
                               opt_str(a, O_MAX_SHARD));
        if (opt_flag(a, O_MERGE) && a->v[O_LORA].n && path_has(a->pos[0], "model.plan") &&
            path_has(a->pos[0], "adapter"))
                return err_set(
                        e, TGC_USAGE,
                        "export: %s is a run with an adapter of its own, which --merge takes "
                        "without --lora; --lora %.200s goes with the model that it is of",
                        a->pos[0], a->v[O_LORA].list[0]);
        if (opt_flag(a, O_MERGE))
                return (a->v[O_LORA].n ? merge : merge_run)(a, out, dtype, shard, &talk, e);
        Args plain = *a; /* here --dtype is the file's, not the plan's */
        /* which is bf16 for weights in blocks, and would round what f32, f16 or blocks hold then */
        plain.v[O_DTYPE].set = path_has_blocks(a->pos[0]) &&
                               (gguf || (dtype && strcmp(dtype, "bf16")));
        plain.v[O_DTYPE].s = "f32";
        int code = load(&l, &plain, &(LoadHow) { 0 }, e);
        if (code)
                return code;
        if (plan_has_lora(&l.plan))
                code = file || gguf
                               ? err_set(e, TGC_USAGE,
                                         "export: %s has an adapter: -o FOLDER gets it as PEFT has "
                                         "them, --merge makes it one with the model",
                                         a->pos[0])
                               : write_adapter(&l, a, out, &talk, e);
        else if (gguf)
                code = write_gguf_file(&l, a, gguf, shard, NULL, e);
        else if (!file)
                code = write_folder(&l, a, out, dtype, shard, NULL, e);
        else if (!(code = weights_export(&l.plan, out, dtype, 0, NULL, e)))
                say(&talk, "%s: written\n", out);
        loaded_free(&l);
        return code;
}
