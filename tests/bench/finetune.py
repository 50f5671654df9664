"""finetune.py: fine-tuning steps of tgc beside PEFT, bitsandbytes, Liger and torch.compile, both
sides in one run on one GPU.

    python3 tests/bench/finetune.py qlora|lora|mlp|sample [--tgc build/tgc] [--out DIR] [--layers N]
            [--steps N] [--variants LIST] [--small]

qlora   Qwen3-8B's shape over NF4 (double), r 16 on seven linears, 2 x 512, each layer's activations
        computed again: PEFT and bitsandbytes
lora    Llama-3.2-1B's shape in bf16, r 16 on seven linears, 8 x 1024: PEFT and Liger, torch.compile
mlp     Llama-3.2-1B's shape, the MLPs alone, AdamW with 8-bit states, bf16 without masters, records
        padded to 512, 1 x 4: torch.compile and bitsandbytes; and tgc's packed rows, by tokens of
        records
sample  8 continuations of 100 tokens, Qwen3-8B's shape in bf16: transformers'
        generate(num_return_sequences=8)

--variants: of PyTorch's side, in this order: eager, compiled, compiled-plain (without Liger),
eager-plain.  A line is printed as soon as it is known.  Weights are random.  --layers: fewer
layers, on both sides.  --small: tiny shapes, for a CPU.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs"))
from made_up import Words, folder, run  # noqa: E402

a = argparse.ArgumentParser()
a.add_argument("job", choices=("qlora", "lora", "mlp", "sample"))
a.add_argument("--tgc", default="build/tgc")
a.add_argument("--out", default="finetune")
a.add_argument("--layers", type=int)
a.add_argument("--steps", type=int, default=20)
a.add_argument("--variants")
a.add_argument("--device", default="cuda")
a.add_argument("--small", action="store_true")
a.add_argument("--no-tgc", action="store_true")
a = a.parse_args()
os.makedirs(a.out, exist_ok=True)
BEGAN = time.monotonic()


def at(name):
    return os.path.join(a.out, name)


def tell(text):
    print(f"[{time.monotonic() - BEGAN:5.1f} s] {text}", flush=True)


QWEN = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
            num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=False)
LLAMA = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
             num_key_value_heads=8, head_dim=64, vocab_size=128256)
TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=4096)
FAMILY = "qwen3" if a.job in ("qlora", "sample") else "llama"
SHAPE = dict(QWEN if FAMILY == "qwen3" else LLAMA)
if a.small:
    SHAPE.update(TINY)
if a.layers:
    SHAPE["num_hidden_layers"] = a.layers
B, T = {"qlora": (2, 512), "lora": (8, 1024), "mlp": (1, 512), "sample": (8, 512)}[a.job]
if a.small:
    T = 64
MICRO, WARM = (4 if a.job == "mlp" else 1), 3
rates = {}


def result(name, rate, note=""):
    """tokens a second; the ratio to what came first"""
    rates[name] = rate
    first = next(iter(rates))
    tell(f"{name:44} {rate:10.0f} tok/s" + (f"  {first} is {rates[first] / rate:.2f} x that"
                                            if name != first else "") + note)


# ---- records and the model's folder
w = Words(7)
records = []
for _ in range(576):
    n = w.length(1269 if not a.small else 60, 0.3, 3807)
    records.append((w.text(0.08 * n), "Sigh. Fine. " + w.text(max(4, 0.92 * n - 12))))
with open(at("data.jsonl"), "w") as f:
    f.writelines(json.dumps({"prompt": q, "completion": c}) + "\n" for q, c in records)
with open(at("text.txt"), "w") as f:
    f.writelines(q + "\n" + c + "\n" for q, c in records)
model = folder(a.tgc, at("model"), at("text.txt"), family=FAMILY,
               vocab_in_use=min(2048, SHAPE["vocab_size"]), **SHAPE)


# ---- tgc
def tgc_step(*more):
    out, said = run(a.tgc, "bench", model, "--dtype", "bf16", "--train", "--weights", "random",
                    "-b", str(B), "--block-size", str(T), "-c", str(T), "--lora",
                    "r=16,alpha=16,targets=all-linear", "--device", a.device, "-r", str(a.steps),
                    "--json", *more)
    return json.loads(out[out.index("{"):])


def tgc_trains(name, *more):
    """tokens a second once log.jsonl has WARM + steps rows, and how full rows are; the run is ended
    there, so that nothing is saved"""
    log = at(name + "/log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    p = subprocess.Popen([a.tgc, "train", model, "--data", at("data.jsonl"), "--device", a.device,
                          "--dtype", "bf16", "--out_dir", at(name), "--batch_size", str(B),
                          "--block_size", str(T), "--gradient_accumulation_steps", str(MICRO),
                          "--max_iters", "100000", "--eval_interval", "100000", "--learning_rate",
                          "2e-5", "--no-decay_lr", "--warmup_iters", "0", "--weight_decay", "0.01",
                          "--grad_clip", "0", "--long", "cut", "--val_fraction", "0", *more],
                          stdout=subprocess.DEVNULL,
                         stderr=open(at(name + ".err"), "w"))
    rows = []
    while p.poll() is None and len(rows) < WARM + a.steps:
        time.sleep(0.05)
        if os.path.exists(log):
            with open(log) as f:
                rows = [json.loads(x) for x in f.read().split("\n")[:-1]]
    if p.poll() is None:
        p.kill()
        p.wait()
    if len(rows) < WARM + a.steps:
        sys.exit(f"tgc train: {open(at(name + '.err')).read()[-600:]}")
    first, last = rows[WARM - 1], rows[-1]
    with open(at(name + ".err")) as f:
        full = int(re.search(r"rows of \d+ tokens, (\d+)% full", f.read()).group(1)) / 100
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"]), full


if not a.no_tgc:
    if a.job in ("qlora", "lora"):
        how = ("--weight-type", "nf4", "--recompute", "block") if a.job == "qlora" else ()
        r = tgc_step(*how)
        result(
            "tgc", r["train"]["tokens_per_s"],
            f"  {r['train']['median_ms']:.2f} ms, {r['memory_bytes'] / 2**30:.2f} GiB; {r['load']}")
    elif a.job == "mlp":
        mlp = ("--train", "mlp", "--optimizer", "adamw8bit", "--masters", "none", "--beta2",
               "0.999")
        rate, full = tgc_trains("padded", *mlp, "--pad_to", str(T), "--loss", "all")
        result("tgc", rate, f"  {full:.2f} full")
        packed, more = tgc_trains("packed", *mlp, "--loss", "all")
        useful = packed * more
        tell(f"tgc, packed: {packed:.0f} tok/s, {more:.2f} full; of records {useful:.0f}, padded "
             f"{rate * full:.0f}")

# ---- PyTorch
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: E402

torch.backends.cuda.matmul.allow_tf32 = True
DEV = a.device if a.device != "cpu" and torch.cuda.is_available() else "cpu"


def sync():
    if DEV != "cpu":
        torch.cuda.synchronize()


def fresh():
    torch.manual_seed(0)
    with torch.device(DEV):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model),
                                                dtype=torch.bfloat16)


def in_nf4(m):
    """every linear but the output in NF4 with double quantisation"""
    import bitsandbytes as bnb
    for name, x in list(m.named_modules()):
        if isinstance(x, torch.nn.Linear) and "lm_head" not in name:
            q = bnb.nn.Linear4bit(x.in_features, x.out_features, bias=False,
                                  compute_dtype=torch.bfloat16, compress_statistics=True,
                                  quant_type="nf4", device="meta")
            q.weight = bnb.nn.Params4bit(x.weight.data, requires_grad=False,
                                         compress_statistics=True, quant_type="nf4",
                                         module=q).to(DEV)
            m.get_submodule(name.rpartition(".")[0]).__setattr__(name.rpartition(".")[2], q)
            x.weight = None
    m.is_loaded_in_4bit = True
    return m


def timed(name, step, opt, note=""):
    for i in range(WARM + a.steps):
        if i == WARM:
            sync()
            began = time.perf_counter()
        if i in (0, 1):
            sync()
            tell(f"{name}: step {i}")
        for micro in range(MICRO):
            step(i * MICRO + micro)
        opt.step()
        opt.zero_grad(set_to_none=True)
    sync()
    s = (time.perf_counter() - began) / a.steps
    peak = torch.cuda.max_memory_allocated() if DEV != "cpu" else 0
    result(name, MICRO * B * T / s, f"  {1e3 * s:.2f} ms, {peak / 2**30:.2f} GiB{note}")


def peft_side(variant):
    import peft
    plain = variant.endswith("-plain")
    if a.job == "lora" and not plain:
        from liger_kernel.transformers import apply_liger_kernel_to_llama
        apply_liger_kernel_to_llama()
    m = fresh()
    if a.job == "qlora":
        m = in_nf4(m)
        m.config.use_cache = False
        m.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        m.enable_input_require_grads()
    m = peft.get_peft_model(m, peft.LoraConfig(r=16, lora_alpha=16, target_modules="all-linear",
                                               task_type="CAUSAL_LM"))
    m.train()
    learnt = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(learnt, lr=2e-4, weight_decay=0.01, fused=DEV != "cpu")
    if DEV != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    forward = torch.compile(m) if variant.startswith("compiled") else m
    x = torch.randint(0, 2048, (B, T), device=DEV)

    def step(i):
        with torch.autocast(DEV, dtype=torch.bfloat16):
            loss = forward(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()

    what = "PEFT and bitsandbytes" if a.job == "qlora" else "PEFT" + ("" if plain else " and Liger")
    timed(f"{what} ({variant})", step, opt, f"; {sum(p.numel() for p in learnt)} learnt")


def mlp_side(variant):
    m = fresh()
    for name, p in m.named_parameters():
        p.requires_grad = "mlp" in name
    learnt = [p for p in m.parameters() if p.requires_grad]
    if DEV == "cpu":
        opt, what = torch.optim.AdamW(learnt, lr=2e-5), "AdamW"
    else:
        import bitsandbytes as bnb
        opt, what = bnb.optim.AdamW8bit(learnt, lr=2e-5), "bitsandbytes"
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"))
    head = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>")
    rows = [tok(head.format(q, c), add_special_tokens=False)["input_ids"][:T] for q, c in records]
    full = statistics.mean(len(r) for r in rows) / T
    rows = [(torch.tensor([r + [3] * (T - len(r))], device=DEV),
             torch.tensor([r + [-100] * (T - len(r))], device=DEV)) for r in rows]
    forward = torch.compile(m) if variant.startswith("compiled") else m

    def step(i):
        x, y = rows[i % len(rows)]
        (forward(input_ids=x, attention_mask=(y >= 0).long(), labels=y,
                 use_cache=False).loss / MICRO).backward()

    timed(f"PyTorch and {what} ({variant})", step, opt, f"; full {full:.2f}")
    if not a.no_tgc:
        tell(f"packed, by tokens of records: "
             f"{useful / (rates[f'PyTorch and {what} ({variant})'] * full):.2f} x that")


if a.job == "sample":
    N, MOST = 8, 100
    if not a.no_tgc:
        plan = at("both.plan")
        run(a.tgc, "compile", model, "--weights", "random", "--mode", "infer", "--dtype", "bf16",
            "--batch-size", str(N), "--ctx-size", str(T), "-q", "-o", plan)
        prompt = w.text(180)
        _, err = run(a.tgc, "run", plan, "-p", prompt, "-n", str(MOST), "--ignore-eos", "--temp",
                     "0.9", "--device", a.device, "--parallel", str(N))
        s = float(re.search(r"sequences, \d+ tokens in ([0-9.]+) s", err).group(1))
        result("tgc", N * MOST / s, f"  {s:.3f} s")
    m = fresh().eval()
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"))
    x = torch.tensor([tok(prompt if not a.no_tgc else "some words")["input_ids"]], device=DEV)
    for _ in range(2):
        sync()
        began = time.perf_counter()
        with torch.no_grad():
            m.generate(x, do_sample=True, temperature=0.9, num_return_sequences=N,
                       max_new_tokens=MOST, min_new_tokens=MOST, pad_token_id=3)
        sync()
        s = time.perf_counter() - began
        tell(f"transformers' generate: {s:.3f} s")
    result("transformers' generate", N * MOST / s)
    sys.exit()
for variant in (a.variants or {"qlora": "eager", "lora": "compiled,eager",
                               "mlp": "compiled"}[a.job]).split(","):
    try:
        (mlp_side if a.job == "mlp" else peft_side)(variant)
    except Exception as why:  # the other variants are still of use
        tell(f"{variant}: {type(why).__name__}: {str(why)[:600]}")
