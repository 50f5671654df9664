"""Each optimiser beside PyTorch's own: the loss of 200 steps of a small GPT-2 in float32.

    python3 optimizers.py [TGC] [--device D] [OPTIMIZER...]

It needs torch 2.9 or later, numpy and safetensors.  Both sides begin with the weights of
tests/data/training/gpt2, and take the same windows of stories.txt.  The losses differ by 1e-3 at
most, or this exits with 1.  Lion is in no release of torch: its rule is written here (Chen et al.,
2023).  Muon's hidden matrices are torch.optim.Muon's, the rest AdamW's; its iteration is in bf16
on both sides.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

a = argparse.ArgumentParser()
a.add_argument("tgc", nargs="?", default="build/tgc")
a.add_argument("optimizer", nargs="*", default=[])
a.add_argument("--device", default="cpu")
a.add_argument("--steps", type=int, default=200)
a = a.parse_args()
torch.set_num_threads(1)

data = os.path.join(os.path.dirname(__file__), "../../data")
init, text = data + "/training/gpt2/init", data + "/text/stories.txt"
shape = json.load(open(init + "/config.json"))
LAYERS, HEADS, BLOCK, BATCH = shape["n_layer"], shape["n_head"], 48, 4
RATE = {"adamw": 1e-3, "lion": 1e-4, "sgd": 1e-1, "muon": 1e-3}
BOUND = 1e-3


def forward(p, ids):
    x = p["wte.weight"][ids] + p["wpe.weight"][:ids.shape[1]]
    width = x.shape[-1:]

    def norm(x, name):
        return F.layer_norm(x, width, p[name + ".weight"], p[name + ".bias"],
                            shape["layer_norm_epsilon"])

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    for i in range(LAYERS):
        b = f"h.{i}."
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for t in linear(norm(x, b + "ln_1"), b + "attn.c_attn").chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + linear(h, b + "attn.c_proj")
        h = F.gelu(linear(norm(x, b + "ln_2"), b + "mlp.c_fc"), approximate="tanh")
        x = x + linear(h, b + "mlp.c_proj")
    return norm(x, "ln_f") @ p["wte.weight"].T


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.sub_(g["lr"] * (0.9 * m + 0.1 * p.grad).sign())
                m.mul_(0.99).add_(p.grad, alpha=0.01)


def optimizers(name, p):
    lr = RATE[name]
    hidden = [v for k, v in p.items()
              if name == "muon" and v.dim() == 2 and k.startswith("h.")]
    rest = [v for v in p.values() if not any(v is h for h in hidden)]
    groups = [{"params": [v for v in rest if v.dim() > 1], "weight_decay": 0.1},
              {"params": [v for v in rest if v.dim() < 2], "weight_decay": 0.0}]
    if name == "lion":
        return [Lion(groups, lr)]
    if name == "sgd":
        return [torch.optim.SGD(groups, lr=lr, momentum=0.9)]
    out = [torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)]
    if hidden:
        out.append(torch.optim.Muon(hidden, lr=lr, weight_decay=0.1, momentum=0.95, nesterov=True,
                                    adjust_lr_fn="match_rms_adamw"))
    return out


def weights(folder):
    t = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".safetensors"):
            t.update(load_file(os.path.join(folder, f)))
    return {k.removeprefix("transformer."): v for k, v in t.items()}


chars = sorted(set(open(text, encoding="utf-8").read()))
ids = np.array([chars.index(c) for c in open(text, encoding="utf-8").read()])
offsets = np.random.default_rng(3).integers(0, len(ids) - BLOCK - 1, size=(a.steps, 1, BATCH))
failed = False
for name in a.optimizer or RATE:
    with tempfile.TemporaryDirectory() as d:
        np.save(d + "/offsets.npy", offsets.astype(np.int64))
        subprocess.run([a.tgc, "train", init, "--data", text, "--tokenizer", "char", "--device",
                        a.device, "--block-size", str(BLOCK), "--batch_offsets",
                        d + "/offsets.npy", "--optimizer", name, "--learning_rate",
                        str(RATE[name]), "--warmup_iters", "0", "--weight_decay", "0.1",
                        "--grad_clip", "1", "--log_csv", d + "/loss.csv", "--out_dir", d + "/out",
                        "-q"], check=True)
        got = {k.removeprefix("transformer."): v
               for k, v in load_file(d + "/out/ckpt.safetensors").items()}
        mine = [float(r["loss"]) for r in csv.DictReader(open(d + "/loss.csv"))]
    p = {k: torch.nn.Parameter(v.clone()) for k, v in weights(init).items()
         if not k.endswith((".attn.bias", "masked_bias", "lm_head.weight"))}
    opts, theirs = optimizers(name, p), []
    for step in range(a.steps):
        w = torch.tensor(np.stack([ids[o:o + BLOCK + 1] for o in offsets[step, 0]]))
        loss = F.cross_entropy(forward(p, w[:, :-1]).flatten(0, 1), w[:, 1:].flatten())
        for o in opts:
            o.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        for o in opts:
            o.step()
        theirs.append(loss.item())
    assert len(mine) == a.steps, (len(mine), a.steps)
    off = [abs(x - y) for x, y in zip(mine, theirs)]
    far = max((got[k] - v).abs().max().item() for k, v in p.items() if k in got)
    print(f"{name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}; the largest difference of {a.steps} "
          f"steps is {max(off):.2g} (step {off.index(max(off))}), of the first 100 "
          f"{max(off[:100]):.2g}; of weights {far:.2g}")
    failed |= max(off) > BOUND
sys.exit(failed)
