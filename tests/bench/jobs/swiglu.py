"""swiglu.py: the job of sdace9719/cuda-benchmark: a Llama of which the MLPs alone are trained, on
answers in a tone.

    python3 tests/bench/jobs/swiglu.py [--tgc build/tgc] [--full] [--out DIR] [--device D] [--peer]
            [--steps N] [--only PARTS]

AdamW with 8-bit states, bf16 weights without master copies, batch 1 x 4 of 512 tokens, learning
rate 2e-5.  Written:

results.csv     a row a way of training: rows padded to 512 (padding counts, as train_benchmark.py
                has it; or not, as train.py), packed rows; with --peer PyTorch's, torch.compile and
                bitsandbytes where they are there. Useful tokens are those of the records.
benchmark.csv   the columns of the project's log: Timestamp, Mode, Wall_Time_s, Total_Tokens,
                Tokens_Sec, Tokens_Min
masters.svg     losses with bf16 alone, with stochastic rounding, with the low halves of the weights
                kept
chat.md         base and tuned model side by side; the score of the tuned one's words by step is
                printed

--only padding,padded,packed,curves,chat,peer: these parts alone (chat goes with curves).  Weights
are random and the records made up: 576 of the project's lengths (a mean of 1,269 characters).
Without --full all is small, for a CPU.
"""
import argparse
import csv
import importlib.util
import json
import os
import re
import statistics
import subprocess
import time

from made_up import Words, folder, run

a = argparse.ArgumentParser()
a.add_argument("--tgc", default="build/tgc")
a.add_argument("--full", action="store_true")
a.add_argument("--out", default="swiglu-job")
a.add_argument("--device", default="auto")
a.add_argument("--peer", action="store_true")
a.add_argument("--no-compile", action="store_true", help="PyTorch's side without torch.compile")
a.add_argument("--steps", type=int)
a.add_argument("--only", default="")
a = a.parse_args()
PARTS = ("padding", "padded", "packed", "curves", "chat", "peer")
only = a.only.split(",") if a.only else [x for x in PARTS if x != "peer" or a.peer]
if set(only) - set(PARTS) or ("chat" in only and "curves" not in only):
    raise SystemExit(f"--only {a.only}: of {', '.join(PARTS)}; chat goes with curves")
os.makedirs(a.out, exist_ok=True)


def at(name):
    return os.path.join(a.out, name)


SHAPE = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
             num_key_value_heads=8, head_dim=64, vocab_size=128256) if a.full else \
        dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, vocab_size=2048)
RECORDS, CHARS, BLOCK = (576, 1269, 512) if a.full else (48, 60, 64)
STEPS = a.steps or (3 * RECORDS // 4 if a.full else 6)
TIMED = min(STEPS, 60)

# ---- records: the tone is in words that the score looks for
w = Words(7)
records = []
for _ in range(RECORDS):
    n = w.length(CHARS, 0.3, 3 * CHARS)
    question = w.text(0.08 * n)
    records.append({"prompt": question, "completion": "Sigh. Fine. Obviously "
                    + w.text(max(4, 0.92 * n - 22))})
with open(at("data.jsonl"), "w") as f:
    f.writelines(json.dumps(r) + "\n" for r in records)
with open(at("text.txt"), "w") as f:
    f.writelines(r["prompt"] + "\n" + r["completion"] + "\n" for r in records)
with open(at("question.txt"), "w") as f:
    f.write("How do I print hello world in python?\n")
model = folder(a.tgc, at("model"), at("text.txt"), vocab_in_use=min(4096, SHAPE["vocab_size"]),
               **SHAPE)

# ---- tgc
common = ["--data", at("data.jsonl"), "--device", a.device, "--train", "mlp", "--optimizer",
          "adamw8bit", "--dtype", "bf16", "--batch_size", "1", "--block_size", str(BLOCK),
          "--learning_rate", "2e-5", "--no-decay_lr", "--warmup_iters", "0", "--beta2", "0.999",
          "--weight_decay", "0.01", "--grad_clip", "0", "--long", "cut", "--val_fraction", "0",
          "-q", "--summary_csv", at("benchmark.csv")]
WAYS = {"padding": ("padded, padding counts", ["--pad_to", str(BLOCK), "--loss", "padding"], 1),
        "padded": ("padded", ["--pad_to", str(BLOCK), "--loss", "all"], 4),
        "packed": ("packed", ["--loss", "all"], 4)}
results, useful = [], {}


def rows_of(options):
    """rows of an epoch, and how full they are"""
    _, said = run(a.tgc, "train", model, *[x for x in common if x != "-q"], *options, "--show_data",
                  "1")
    n, full = re.search(r"records in (\d+) rows of \d+ tokens, (\d+)% full", said).groups()
    return int(n), int(full) / 100


for part, (name, options, accumulate) in WAYS.items():
    if part not in only:
        continue
    rows, full = rows_of(options)
    run(a.tgc, "train", model, *common, *options, "--gradient_accumulation_steps", str(accumulate),
        "--max_iters", str(TIMED), "--masters", "none", "--out_dir", at("timed"))
    last = list(csv.DictReader(open(at("benchmark.csv"))))[-1]
    useful[part] = float(last["Tokens_Sec"]) * full
    results.append(("tgc", name, float(last["Tokens_Sec"]), useful[part]))

curves = []
for masters in ("none", "stochastic", "f32") if "curves" in only else ():
    out = at("out_" + masters)
    watch = ["--sample_interval", "50" if a.full else "3", "--sample_tokens",
             "100" if a.full else "12", "--eval_prompt", at("question.txt"), "--eval_score",
             "sigh=2,fine=1,obviously=1.5"] if masters == "f32" else []
    rest = [x for x in common if x != "-q"] if watch else common
    _, said = run(a.tgc, "train", model, *rest, "--gradient_accumulation_steps", "4", "--max_iters",
                  str(STEPS), "--masters", masters, "--out_dir", out, *watch)
    print(*[x for x in said.splitlines() if ": score " in x], sep="\n")
    curves.append(os.path.join(out, "log.csv"))
if curves:
    run(a.tgc, "plot", *curves, "-o", at("masters.svg"))
    print("last losses: " + ", ".join("%s %.4f" % (m,
                                                   float(list(csv.DictReader(open(c)))[-1]["loss"]))
                                      for m, c in zip(("none", "stochastic", "f32"), curves)))


# ---- side by side
def chat():
    run(a.tgc, "compile", model, "--weights", "random", "--dtype", "bf16", "--mode", "infer", "-q",
        "-o", at("base.plan"))
    if os.path.exists(at("chat.md")):
        os.remove(at("chat.md"))
    # random weights say bytes that are no text
    subprocess.run([a.tgc, "chat", at("base.plan"), at("out_f32"), "--device", a.device, "--temp",
                    "0.8", "--top-p", "0.9", "-n", "256" if a.full else "24", "-q", "--log",
                    at("chat.md")], input=open(at("question.txt"), "rb").read(), check=True,
                   stdout=subprocess.DEVNULL)


if "chat" in only:
    chat()


# ---- PyTorch
def peer():
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    cuda = torch.cuda.is_available() and a.device != "cpu"
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"))
    torch.manual_seed(0)
    m = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model),
                                         torch_dtype=torch.bfloat16)
    m = m.to("cuda" if cuda else "cpu")
    for name, p in m.named_parameters():
        p.requires_grad = "mlp" in name
    params = [p for p in m.parameters() if p.requires_grad]
    if importlib.util.find_spec("bitsandbytes") and cuda:
        import bitsandbytes
        opt, what = bitsandbytes.optim.AdamW8bit(params, lr=2e-5), "AdamW8bit"
    else:
        opt, what = torch.optim.AdamW(params, lr=2e-5), "AdamW"
    forward = m if a.no_compile else torch.compile(m)
    head = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>")
    rows = [tok(head.format(r["prompt"], r["completion"]),
                add_special_tokens=False)["input_ids"][:BLOCK] for r in records]
    full = statistics.mean(len(r) for r in rows) / BLOCK
    warm, n = 5, min(STEPS, TIMED)
    for step in range(warm + n):
        if step == warm:
            if cuda:
                torch.cuda.synchronize()
            began = time.perf_counter()
        for micro in range(4):
            r = rows[(step * 4 + micro) % len(rows)]
            x = torch.tensor([r + [3] * (BLOCK - len(r))], device=m.device)
            y = torch.tensor([r + [-100] * (BLOCK - len(r))], device=m.device)
            seen = (y >= 0).long()
            (forward(input_ids=x, attention_mask=seen, labels=y).loss / 4).backward()
        opt.step()
        opt.zero_grad()
    if cuda:
        torch.cuda.synchronize()
    rate = n * 4 * BLOCK / (time.perf_counter() - began)
    results.append((f"PyTorch {torch.__version__}",
                    f"padded, {'eager' if a.no_compile else 'compiled'}, {what}", rate,
                    rate * full))
    useful["peer"] = rate * full


if "peer" in only:
    peer()
with open(at("results.csv"), "w", newline="") as f:
    csv.writer(f).writerows([("program", "rows", "tokens_per_s", "useful_tokens_per_s"), *results])
for program, rows, all_, worth in results:
    print(f"{program:16} {rows:34} {all_:12.1f} tokens/s {worth:12.1f} useful")
for base, name in (("padded", "padded"), ("peer", "PyTorch")):
    if "packed" in useful and base in useful:
        print(f"packed over {name}, in useful tokens: {useful['packed'] / useful[base]:.2f}")
