"""tinylm.py: the four figures of TinyLM-RMSnorm, by one command.

    python3 tests/bench/jobs/tinylm.py [--tgc build/tgc] [--full] [--out DIR] [--device D]
            [--dtype f16] [--data FILE] [--only PARTS]

kv_cache.svg    ms of a token behind n others: from the cache, and with all n read again
norm.svg        loss by step with RMSNorm, with LayerNorm, with no norm at all
memory.svg      bytes on the device by context: of generating, of a training step
loss.svg        the loss of the model itself, in f16 with a loss scale, and its validation
job.csv         what the curves are made of

Without --full sizes are small, for a CPU.  --full is the repository's own job: 6 layers of 384, 6
heads, 4,096 tokens, windows of 192 in batches of 8, f16 with loss scaling.  The data are made up,
unless --data names a text.  --only cache,loss,memory: these figures alone.
"""
import argparse
import csv
import json
import os
import random
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import svg  # noqa: E402

a = argparse.ArgumentParser()
a.add_argument("--tgc", default="build/tgc")
a.add_argument("--full", action="store_true")
a.add_argument("--out", default="tinylm-figures")
a.add_argument("--device", default="auto")
a.add_argument("--dtype", default="f16")
a.add_argument("--data")
a.add_argument("--steps", type=int)
a.add_argument("--only", default="cache,loss,memory")
a = a.parse_args()
only = a.only.split(",")
if set(only) - {"cache", "loss", "memory"}:
    sys.exit(f"--only {a.only}: of cache, loss and memory")
os.makedirs(a.out, exist_ok=True)

SHAPE = dict(n_layer=6, n_head=6, n_embd=384, vocab=4096) if a.full else dict(n_layer=2, n_head=2,
    n_embd=32, vocab=512)
CTX = 1024 if a.full else 128
BLOCK, BATCH = (192, 8) if a.full else (32, 4)
STEPS = a.steps or (2000 if a.full else 60)
LENGTHS = [n for n in ((32, 64, 128, 256, 512, 1000) if a.full else (16, 48, 112)) if n < CTX]
CONTEXTS = (128, 256, 512, 1024) if a.full else (64, 128)

NORMS = {
    "rmsnorm": "",
    "layernorm": 'b.rmsnorm = function(x, name, o) return b.layernorm(x, name, '
        '{ eps = o.eps, from = o.from, bias = false }) end\n',
    "none": "b.rmsnorm = function(x, name, o) return x end\n"}
for name, change in NORMS.items():
    with open(os.path.join(a.out, name + ".lua"), "w") as f:
        f.write(f'local b = require "blocks"\n{change}return require "tinylm"\n')


def tgc(*args):
    r = subprocess.run([a.tgc, *args], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(args)}: {r.stderr[-600:]}")
    return r.stdout


def shape(ctx=CTX):
    return [x for k, v in dict(SHAPE, ctx=ctx).items() for x in ("-D", f"{k}={v}")]


common = ["--dtype", a.dtype, "--device", a.device]
rows = []

# ---- data: words by a chain, so that there is something to learn
text = a.data or os.path.join(a.out, "text.txt")
if not a.data:
    r = random.Random(3)
    words = ["".join(r.choice("bcdfghklmnprstvw") + r.choice("aeiou")
                     for _ in range(r.randint(1, 3))) for _ in range(400)]
    after = {w: r.sample(words, 4) for w in words}
    with open(text, "w") as f:
        w = words[0]
        for i in range(300_000 if a.full else 20_000):
            f.write(w + (".\n" if r.random() < 0.1 else " "))
            w = r.choice(after[w])
tokenizer = os.path.join(a.out, "tokenizer.json")
tgc("tokenizer", "train", text, "-o", tokenizer, "--vocab-size", str(SHAPE["vocab"]))

# ---- 1: the cache
plan = os.path.join(a.out, "tinylm.plan")
figures = {}
if "cache" in only:
    tgc("compile", "tinylm.lua", *shape(), "--mode", "infer", "--dtype", a.dtype, "-q", "-o", plan)
cached, again = [], []
for n in LENGTHS if "cache" in only else ():
    one = json.loads(tgc("bench", plan, "--device", a.device, "--json", "--prefill", "--decode",
                         "--prompt-tokens", str(n), "-r", "20"))
    cached.append((n, one["decode"]["median_ms"]))
    again.append((n, one["prefill"]["median_ms"]))
    rows += [("kv_cache", "cached", n, cached[-1][1]), ("kv_cache", "read again", n, again[-1][1])]
if "cache" in only:
    figures["kv_cache.svg"] = svg.plot("A token behind n others, ms", "n",
                                       "ms", [("from the cache", cached), ("all read again",
                                           again)])

# ---- 2 and 4: losses
curves = {}
for name in NORMS if "loss" in only else ():
    out = os.path.join(a.out, "run_" + name)
    said = tgc("train", os.path.join(a.out, name + ".lua"), *shape(), "--tokenizer", tokenizer,
               "--data", text, *common, "--batch_size", str(BATCH), "--block_size", str(BLOCK),
               "--max_iters", str(STEPS), "--learning_rate", "1e-3", "--warmup_iters",
               str(STEPS // 20), "--eval_interval", str(max(1, STEPS // 10)), "--eval_iters", "5",
               "--max_skips", "1000", "-q", "--out_dir", out)
    log = list(csv.DictReader(open(os.path.join(out, "log.csv"))))
    curves[name] = [(int(r["step"]), float(r["loss"])) for r in log if r["loss"]
                    and int(r["step"]) >= 0]
    rows += [("norm", name, *p) for p in curves[name]]
    if name == "rmsnorm":
        val = [(int(r["step"]) + 1, float(r["val_loss"])) for r in log if r.get("val_loss")]
        rows += [("loss", "validation", *p) for p in val]
thin = max(1, STEPS // 200)
names = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "none": "no norm"}
if "loss" in only:
    figures["norm.svg"] = svg.plot("Loss by step, by norm", "step",
                                   "nats per token", [(names[k], [p for p in v
                                       if p[1] == p[1]][::thin]) for k, v in curves.items()])
    figures["loss.svg"] = svg.plot(f"TinyLM in {a.dtype}", "step",
                                   "nats per token", [("training",
                                                       curves["rmsnorm"][::thin]), ("validation",
                                                           val)])

# ---- 3: memory
generating, training = [], []
for ctx in CONTEXTS if "memory" in only else ():
    for what, to, more in (("generating", generating, ["--decode", "--prompt-tokens", "8"]),
                           ("training", training, ["--train", "-b", str(BATCH), "--block-size",
                                                   str(ctx)])):
        m = json.loads(tgc("bench", "tinylm.lua", *shape(ctx), "--dtype", a.dtype, "--device",
                           a.device, "--json", "-r", "1", *more))
        to.append((ctx, m["memory_bytes"] / 2**20))
        rows.append(("memory", what, ctx, m["memory_bytes"]))
if "memory" in only:
    figures["memory.svg"] = svg.plot("Memory by length", "tokens",
                                     "MiB", [("generating",
                                              generating), (f"a step of {BATCH} windows",
                                                            training)])

for name, picture in figures.items():
    with open(os.path.join(a.out, name), "w") as f:
        f.write(picture)
with open(os.path.join(a.out, "job.csv"), "w", newline="") as f:
    csv.writer(f).writerows([("figure", "curve", "x", "y"), *rows])
print(f"{a.out}: " + ", ".join(figures))
if cached:
    print(
        f"behind {cached[-1][0]} tokens: {cached[-1][1]:.3f} ms from the cache, "
        f"{again[-1][1]:.3f} ms without")
if curves:
    print("last losses: " + ", ".join(f"{names[k]} {v[-1][1]:.4f}" for k, v in curves.items()))
for what, to in (("generating", generating), ("a training step", training)):
    if to:
        print(f"memory of {what}: " + ", ".join(f"{mib:.0f} MiB of {n}" for n, mib in to))
