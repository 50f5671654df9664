"""replies.py: the job of Sohailm25/reply-guyd: replies to tweets by LoRA, in four phases, and how
much they differ.

    python3 tests/bench/jobs/replies.py [--tgc build/tgc] [--full] [--out DIR] [--device D]
            [--encoder FOLDER] [--peer] [--steps N] [--only PARTS] [--layers N]

phases      baseline (cross-entropy), polychromic as published (a metric without gradient: the
            weights are the baseline's), polychromic with a gradient, and GRPO from the baseline's
            adapter (4 samples, the reward is the distance from the other samples of the group)
results.csv a row a phase: loss, the three metrics of the project (1 - mean cosine of embeddings,
            1 - Self-BLEU-2, distinct-2) of its own samples for prompts that were not trained on,
            tokens/s
profile.csv where the time of each phase went, before (what the project says of itself: 70%
            generation, 20% diversity, 10% attention) and here
generate    8 continuations of one prompt: one after the other, together, and with --peer
            transformers' generate (num_return_sequences=8)

Weights are random and the tweets made up, of the project's lengths.  --full is Qwen3-8B's shape, r
16 on seven linears, windows of 1,536 tokens (an answer with three samples of 100 tokens); else all
is small, for a CPU.  --encoder: MiniLM's folder; without it a tiny one of the tests.  --only
baseline,published,differentiable,grpo,metrics,generate: these parts alone (grpo and the comparison
go with baseline).
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys
import time

from made_up import Words, folder, run

a = argparse.ArgumentParser()
a.add_argument("--tgc", default="build/tgc")
a.add_argument("--full", action="store_true")
a.add_argument("--out", default="replies-job")
a.add_argument("--device", default="auto")
a.add_argument("--encoder", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                 "../../data/encoders/minilm"))
a.add_argument("--peer", action="store_true")
a.add_argument("--steps", type=int)
a.add_argument("--layers", type=int, default=36, help="of --full")
PARTS = ("baseline", "published", "differentiable", "grpo", "metrics", "generate")
a.add_argument("--only", default=",".join(PARTS))
a = a.parse_args()
only = a.only.split(",")
if set(only) - set(PARTS) or ("grpo" in only and "baseline" not in only):
    sys.exit(f"--only {a.only}: of {', '.join(PARTS)}; grpo goes with baseline")
os.makedirs(a.out, exist_ok=True)


def at(name):
    return os.path.join(a.out, name)


SHAPE = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=a.layers,
             num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=151936,
             tie_word_embeddings=False) if a.full else \
        dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, vocab_size=1024)
RECORDS, TWEET, REPLY, BLOCK, MOST = (4800, 180, 90, 1536, 100) if a.full else (40, 24, 20, 352, 8)
STEPS = a.steps or (556 if a.full else 4)
BATCH, ACCUM = (2, 8) if a.full else (2, 1)
RANK, DTYPE = (16, "bf16") if a.full else (4, "f32")

# ---- tweets and replies
w = Words(11)
with open(at("data.jsonl"), "w") as f, open(at("text.txt"), "w") as plain:
    for _ in range(RECORDS):
        tweet, reply = w.text(w.length(TWEET, 0.5, 2 * TWEET)), w.text(w.length(REPLY, 0.5,
            2 * REPLY))
        f.write(json.dumps({
            "prompt": f"Generate an engaging Twitter reply to this tweet:\n\n{tweet}\n\nReply:",
            "completion": reply}) + "\n")
        plain.write(tweet + "\n" + reply + "\n")
held = [f"Generate an engaging Twitter reply to this tweet:\n\n{w.text(TWEET)}\n\nReply:"
        for _ in range(4)]
with open(at("held.jsonl"), "w") as f:
    f.writelines(json.dumps({"prompt": p, "completion": w.text(REPLY)}) + "\n" for p in held)
model = folder(a.tgc, at("model"), at("text.txt"), family="qwen3",
               vocab_in_use=min(4096, SHAPE["vocab_size"]), **SHAPE)
with open(at("distance.lua"), "w") as f:
    f.write('''-- GRPO: a continuation is worth its mean distance from the others of its group.
local grpo, texts = require "grpo", require "texts"
grpo.reward = nil
grpo.group = function(g, p)
        local v, mean = embed(texts.of(g)), 0
        for i, c in ipairs(g) do
                c.reward = 0
                for k = 1, #v do
                        if k ~= i then
                                c.reward = c.reward + (1 - texts.cosine(v[i], v[k])) / (#v - 1)
                        end
                end
                mean = mean + c.reward / #v
        end
        return { advantage = texts.advantages(g), score = mean }
end
return grpo
''')
with open(at("metrics.lua"), "w") as f:
    f.write('''-- The three metrics, one a step: nothing is learned (the learning rate is 0).
local poly, texts = require "polychromic", require "texts"
poly.params.which = "embedding"
poly.group = function(g, p)
        local said = texts.of(g)
        local d = p.which == "bleu" and 1 - texts.self_bleu(said, 2)
                or p.which == "distinct" and texts.distinct(said, 2) or texts.spread(embed(said))
        return { diversity = d, score = d }
end
return poly
''')

common = ["--device", a.device, "--dtype", DTYPE, "--batch_size", str(BATCH),
          "--gradient_accumulation_steps", str(ACCUM), "--block_size", str(BLOCK),
          "--learning_rate", "2e-4", "--warmup_iters", str(max(1, 3 * STEPS // 100)),
          "--weight_decay", "0.01", "--max_iters", str(STEPS), "--log_interval", "1000000"]
lora = f"r={RANK},alpha={RANK},dropout=0.1,targets=all-linear"
samples = f"samples=3,max_tokens={MOST},temp=0.9,top_p=0.9,every=5"
PHASES = {"baseline": (lora, "polychromic,published=true,metric=distinct,weight=0,samples=3,"
                             "max_tokens=1,every=1000000"),
          "as published": (lora, f"polychromic,published=true,weight=0.3,{samples}"),
          "differentiable": (lora, f"polychromic,weight=0.3,{samples}"),
          "GRPO": (at("out_baseline/adapter"),
                   f"{at('distance.lua')},samples=4,max_tokens={MOST},temp=0.8,beta=0.1"),
}


def train(out, adapter, objective, data, *more):
    _, said = run(a.tgc, "train", model, "--data", at(data), "--lora", adapter, "--objective",
                  objective, "--embedder", a.encoder, *common, "--out_dir", at(out), *more)
    rows = [json.loads(x) for x in open(os.path.join(at(out), "log.jsonl"))]
    return said, [r for r in rows if "loss" in r]


results, profile = [], [("the project's own", "70% generation, 20% diversity, 10% attention")]
for part, (name, (adapter, objective)) in zip(PARTS, PHASES.items()):
    if part not in only:
        continue
    out = "out_" + name.split()[0].lower()
    said, rows = train(out, adapter, objective, "data.jsonl")
    parts = re.search(r"time: (.*)", said)
    profile.append((name, parts.group(1) if parts else ""))
    metric = []
    for which in ("embedding", "bleu", "distinct") if "metrics" in only else ():
        _, seen = train("metrics", os.path.join(at(out), "adapter"),
                        f"{at('metrics.lua')},published=true,weight=0,samples=3,"
                        f"max_tokens={MOST},which={which}",
                        "held.jsonl", "--learning_rate", "0", "--max_iters", "2",
                        "--weight_decay", "0")
        metric.append(sum(r["score"] for r in seen) / len(seen))
    results.append((name, rows[-1]["loss"], *(metric or [float("nan")] * 3),
                    rows[-1].get("tokens_per_s", 0)))
both = [x for x in ("baseline", "published") if x in only] == ["baseline", "published"]
same = both and open(at("out_baseline/adapter/adapter_model.safetensors"),
                     "rb").read() == open(at("out_as/adapter/adapter_model.safetensors"),
                                          "rb").read()

with open(at("results.csv"), "w", newline="") as f:
    csv.writer(f).writerows([("phase", "loss", "1 - cosine", "1 - Self-BLEU-2", "distinct-2",
                              "tokens_per_s"), *results])
with open(at("profile.csv"), "w", newline="") as f:
    csv.writer(f).writerows([("phase", "time"), *profile])
for r in results:
    print(f"{r[0]:16} loss {r[1]:8.4f}   1 - cosine {r[2]:.3f}   1 - Self-BLEU-2 {r[3]:.3f}   "
          f"distinct-2 {r[4]:.3f}")
for p in profile:
    print(f"{p[0]:18} {p[1]}")
if both:
    print("as published and baseline: " + ("the same weights, byte for byte" if same
                                           else "OTHER WEIGHTS"))

# ---- 8 continuations of a prompt
if "generate" not in only:
    sys.exit()
N = 8
plan = at("both.plan")
run(a.tgc, "compile", model, "--weights", "random", "--mode", "infer", "--dtype", DTYPE,
    "--batch-size", str(N), "--ctx-size", "512", "-q", "-o", plan)


def seconds_of(*how):
    """of prompt and continuations, by what the program says of itself"""
    _, err = run(a.tgc, "run", plan, "-p", held[0], "-n", str(MOST), "--ignore-eos", "--temp",
                 "0.9", "--device", a.device, *how)
    many = re.search(r"sequences, \d+ tokens in ([0-9.]+) s", err)
    return float(many.group(1)) if many else sum(int(n) / float(rate)
                                                 for n, rate in re.findall(
                                                     r"(\d+) tokens at ([0-9.]+) tok/s", err))


alone = N * seconds_of("--seed", "1")
together = seconds_of("--parallel", str(N), "--seed", "1")
print(f"{N} continuations of {MOST} tokens: {alone:.4f} s one after the other, {together:.4f} s "
      f"together: {alone / together:.1f}x")
if a.peer:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    cuda = torch.cuda.is_available() and a.device != "cpu"
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"))
    m = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model),
                                         dtype=torch.bfloat16 if cuda else torch.float32).to("cuda"
                                             if cuda else "cpu").eval()
    x = torch.tensor([tok(held[0])["input_ids"]], device=m.device)
    for _ in range(2):
        began = time.perf_counter()
        with torch.no_grad():
            m.generate(x, do_sample=True, temperature=0.9, num_return_sequences=N,
                       max_new_tokens=MOST, min_new_tokens=MOST, pad_token_id=3)
        if cuda:
            torch.cuda.synchronize()
        theirs = time.perf_counter() - began
    print(f"transformers' generate: {theirs:.4f} s: {theirs / together:.1f}x tgc's")
