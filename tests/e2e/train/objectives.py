"""Objectives in PyTorch and in tgc: loss, second number and gradient norm of every step.

    python3 objectives.py TGC [STEPS]           (needs torch, transformers, peft, safetensors; from
            the top of the tree)

smoothing   torch's cross_entropy(label_smoothing) and the mean square of logsumexp
distill     t^2 KL(teacher || model) at temperature t, and the cross-entropy; the teacher has other
            weights
dpo         -log sigmoid of the difference of log-ratios, as trl has it; the reference is the base
            beneath a PEFT adapter
grpo        min(ratio A, clip(ratio) A) and k3, as trl has them (loss_type "grpo"); the samples are
            greedy, so that both sides have the same ones, the advantages given; two steps learn
            from each sample
polychromic cross-entropy less w times 1 - the mean cosine over pairs of the mean last hidden states
            of continuations; a step,
            of what tgc sampled

Differences are of the larger of both numbers, or of 1; beyond 1e-3 this exits with 1.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

tgc, STEPS = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
B, T, LR = 4, 16, 1e-2
base, story = "tests/e2e/lora/base", "tests/data/models/story"
torch.manual_seed(5)
torch.set_num_threads(1)
dir = tempfile.TemporaryDirectory()
worst = 0.0


def run(name, model, theirs, *options):
    """theirs: (loss, aux_loss, gradient norm) of each step"""
    global worst
    log = os.path.join(dir.name, name + ".csv")
    subprocess.run([tgc, "train", model, "--device", "cpu", "-t", "1", "-q", "--max_iters",
                    str(len(theirs)), "--learning_rate", str(LR), "--no-decay_lr", "--warmup_iters",
                    "0", "--weight_decay", "0", "--log_csv", log, "-o",
                    os.path.join(dir.name, name), *options], check=True)
    rows = list(csv.DictReader(open(log)))
    far = 0.0
    for ours, their in zip(rows, theirs, strict=True):
        for key, x in zip(("loss", "aux_loss", "grad_norm"), their):
            y = float(ours[key])
            far = max(far, abs(x - y) / max(1, abs(x), abs(y)))
    print(f"{name}: {len(theirs)} steps, the largest difference is {far:.1e}; the last loss "
          f"{theirs[-1][0]:.5f} and {rows[-1]['loss']}")
    worst = max(worst, far)


def train(params, steps, loss_of):
    opt = torch.optim.AdamW(params, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    out = []
    for step in range(steps):
        minimised, said, aux = loss_of(step)
        opt.zero_grad()
        minimised.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        out.append(tuple(float(torch.as_tensor(x).detach()) for x in (said, aux, norm)))
    return out


# ---- windows of a stream
ids = np.fromfile("tests/e2e/lora/text.bin", np.uint16).astype(np.int64)
offsets = np.load("tests/e2e/lora/windows.npy")[:STEPS]
np.save(os.path.join(dir.name, "at.npy"), offsets)
stream = ["--data", "tests/e2e/lora/text.bin", "--block-size", str(T), "--batch_offsets",
          os.path.join(dir.name, "at.npy")]


def window(step):
    x = torch.tensor(np.stack([ids[o:o + T + 1] for o in offsets[step, 0]]))
    return x[:, :-1], x[:, 1:].reshape(-1)


m = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")


def smoothed(step):
    x, y = window(step)
    z = m(x).logits.flatten(0, 1)
    total = F.cross_entropy(z, y, label_smoothing=0.1) + 0.01 * z.logsumexp(-1).square().mean()
    return total, F.cross_entropy(z, y), total


run("smoothing", base, train(list(m.parameters()), STEPS, smoothed), *stream, "--objective",
    "smoothing,smoothing=0.1,z=0.01")

m = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
teacher = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32,
                                               attn_implementation="eager").eval()
with torch.no_grad():
    for p in teacher.parameters():
        p += 0.1 * torch.randn_like(p)
teacher.save_pretrained(os.path.join(dir.name, "teacher"))


def distilled(step, t=2.0, a=0.7):
    x, y = window(step)
    z = m(x).logits.flatten(0, 1)
    with torch.no_grad():
        other = teacher(x).logits.flatten(0, 1)
    kl = F.kl_div(F.log_softmax(z / t, -1), F.log_softmax(other / t, -1), log_target=True,
                  reduction="batchmean")
    ce = F.cross_entropy(z, y)
    return a * t * t * kl + (1 - a) * ce, ce, kl


run("distill", base, train(list(m.parameters()), STEPS, distilled), *stream, "--objective",
    "distill,temperature=2,alpha=0.7", "--reference", os.path.join(dir.name, "teacher"))

# ---- texts: answers of a story model with an adapter
tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(story, "tokenizer.json"))
folder = os.path.join(dir.name, "story")
os.mkdir(folder)
for f in ("config.json", "model.safetensors", "tokenizer.json"):
    os.symlink(os.path.abspath(os.path.join(story, f)), os.path.join(folder, f))


def adapted(name):
    m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                             attn_implementation="eager")
    m = get_peft_model(m, LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM",
                                     target_modules=["q_proj", "v_proj", "up_proj"],
                                     init_lora_weights=True))
    m.save_pretrained(os.path.join(dir.name, name))
    return m, [p for p in m.parameters() if p.requires_grad]


def logp(m, ids, n_prompt):
    """of each token behind the prompt"""
    x = torch.tensor([ids])
    return F.log_softmax(m(x).logits[0, :-1], -1).gather(1, x[0, 1:, None])[n_prompt - 1:, 0]


pairs = [("Once upon a time, there was a", " happy cat named Tom.", " sad dog."),
         ("One day, Lily went", " to the park and was happy.", " away."),
         ("Tom saw a big", " red ball. He was so happy!", " box and was sad."),
         ("The little girl said,", " \"I am happy!\"", " nothing.")]
EOS = 2
path = os.path.join(dir.name, "pairs.jsonl")
with open(path, "w") as f:
    f.writelines(json.dumps(dict(zip(("prompt", "chosen", "rejected"), p))) + "\n" for p in pairs)
m, params = adapted("dpo_begin")
answers = []
for prompt, *both in pairs:
    n = len(tok(prompt)["input_ids"])
    for a in both:
        whole = tok(prompt + a)["input_ids"]
        assert whole[:n] == tok(prompt)["input_ids"]
        answers.append((whole + [EOS], n))
with torch.no_grad(), m.disable_adapter():
    reference = torch.stack([logp(m, *a).sum() for a in answers])


def preferred(step, beta=0.3):
    gain = (torch.stack([logp(m, *a).sum() for a in answers]) - reference).reshape(-1, 2)
    margin = beta * (gain[:, 0] - gain[:, 1])
    loss = -F.logsigmoid(margin).mean()
    return loss, loss, margin.mean()


common = ["--val_fraction", "0", "--template", "none", "--block-size", "96", "-b", "2",
          "--gradient_accumulation_steps", "2"]
run("dpo", folder, train(params, min(STEPS, 8), preferred), *common, "--data", path, "--objective",
    "dpo,beta=0.3", "--lora", os.path.join(dir.name, "dpo_begin"))

LR, CLIP, BETA, MOST = 1e-2, 0.05, 0.1, 8
m, params = adapted("grpo_begin")
prompts = [(tok(p)["input_ids"], a) for (p, _, _), a in zip(pairs, (1.0, -0.5, 0.75, -1.0))]
path = os.path.join(dir.name, "prompts.jsonl")
with open(path, "w") as f:
    f.writelines(json.dumps({"prompt": p}) + "\n" for p, _, _ in pairs)
with open(os.path.join(dir.name, "greedy.lua"), "w") as f:
    f.write(
        'local g = require "grpo"\ng.params.temp = 0.0\n'
        'local a = { Once = 1.0, One = -0.5, Tom = 0.75, The = -1.0 }\n'
        'g.reward = nil\ng.group = function(x) for k, v in pairs(a) do\n'
        'for i = 1, #x.prompt do if x.prompt:sub(i, i + #k) == k .. " " then return { advantage = '
        'v } end end end end\nreturn g\n')
samples = []


def grouped(step):
    if step % 2 == 0:
        samples.clear()
        for ids, a in prompts:
            whole = list(ids)
            with torch.no_grad():
                while len(whole) < len(ids) + MOST and whole[-1] != EOS:
                    whole.append(int(m(torch.tensor([whole])).logits[0, -1].argmax()))
                old = logp(m, whole, len(ids))
                with m.disable_adapter():
                    samples.append((whole, len(ids), a, old, logp(m, whole, len(ids))))
    loss = kl = 0
    for whole, n, a, old, ref in samples:
        now = logp(m, whole, n)
        ratio, d = (now - old).exp(), ref - now
        k3 = d.exp() - d - 1
        loss = loss + (BETA * k3 - torch.minimum(ratio * a,
                                                 ratio.clamp(1 - CLIP, 1 + CLIP) * a)).mean() / len(
                                                     samples)
        kl = kl + k3.mean() / len(samples)
    return loss, loss, kl


run("grpo", folder, train(params, min(STEPS, 8) // 2 * 2, grouped), *common, "--eval_interval", "2",
    "--data", path, "--objective",
    f"{dir.name}/greedy.lua,samples=1,max_tokens={MOST},updates=2,clip={CLIP},beta={BETA}",
    "--lora", os.path.join(dir.name, "grpo_begin"))

# ---- what tgc samples is printed, and PyTorch takes it
m, params = adapted("poly_begin")
path = os.path.join(dir.name, "sft.jsonl")
with open(path, "w") as f:
    f.writelines(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c, _ in pairs)
with open(os.path.join(dir.name, "shown.lua"), "w") as f:
    f.write('local p = require "polychromic"\np.group = function(g) for i, c in ipairs(g) do\n'
            'print("SAID", g.prompt, table.concat(c.ids, " ")) end return { diversity = 0 } '
            'end\nreturn p\n')
WEIGHT, N = 2.0, 4
shown = ["--val_fraction", "0", "--template", "none", "--block-size", "160", "-b", "2",
         "--gradient_accumulation_steps", "2", "--data", path, "--objective",
         f"{dir.name}/shown.lua,weight={WEIGHT},samples={N},max_tokens=8,temp=1,top_p=1", "--lora",
         os.path.join(dir.name, "poly_begin")]
said = subprocess.run([tgc, "train", folder, "--device", "cpu", "-t", "1", "--max_iters", "1",
                       "--learning_rate", "0", "--warmup_iters", "0", "-o",
                       os.path.join(dir.name, "shown"), *shown], check=True, capture_output=True,
                       text=True).stderr
groups = {}
for line in said.splitlines():
    if line.startswith("SAID"):
        _, prompt, ids = line.split("\t")
        groups.setdefault(prompt, []).append([int(x) for x in ids.split()])
assert len(groups) == len(pairs) and all(len(g) == N for g in groups.values()), said


def diverse(step):
    nll, spread = [], 0
    for prompt, completion, _ in pairs:
        start = tok(prompt)["input_ids"]
        nll.append(-logp(m, tok(prompt + completion)["input_ids"] + [EOS], len(start)))
        e = []
        for ids in groups[prompt]:
            ids = ids[:-1] if ids[-1] == EOS else ids
            h = m(torch.tensor([start + ids]), output_hidden_states=True).hidden_states[-1][0,
                len(start):]
            e.append(F.normalize(h.mean(0), dim=0))
        cos = torch.stack(e) @ torch.stack(e).T
        spread = spread + (1 - (cos.sum() - N) / (N * (N - 1))) / len(pairs)
    ce = torch.cat(nll).mean()
    return ce - WEIGHT * spread, ce, spread


run("polychromic", folder, train(params, 1, diverse), *shown)
sys.exit(worst > 1e-3)
