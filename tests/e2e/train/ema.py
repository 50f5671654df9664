"""--ema beside torch.optim.swa_utils.AveragedModel: 100 steps of AdamW from equal weights, on equal
windows.

    python3 ema.py [TGC] [--device D]        (needs torch, numpy and safetensors)

Compared: the averaged weights that ckpt.safetensors has, the weights themselves (in
state.safetensors).
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

a = argparse.ArgumentParser()
a.add_argument("tgc", nargs="?", default="build/tgc")
a.add_argument("--device", default="cpu")
a.add_argument("--decay", type=float, default=0.95)
a = a.parse_args()
VOCAB, CTX, WIDTH, BATCH, STEPS = 11, 8, 16, 4, 100

LUA = f'''local b = require "blocks"
return {{ name = "tiny", params = {{ vocab = {VOCAB}, ctx = {CTX}, n_embd = {WIDTH} }},
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, {{ std = 0.02, from = "tok" }})
                local h = b.attend(x, x, x, {{ n_head = 2, head_dim = p.n_embd // 2 }})
                local logits = b.linear(x + h, "logits", p.vocab, {{ std = 0.02, from = "head" }})
                return b.outputs(logits, targets)
        end }}
'''


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = torch.nn.Parameter(0.3 * torch.randn(VOCAB, WIDTH))
        self.head = torch.nn.Parameter(0.3 * torch.randn(VOCAB, WIDTH))

    def forward(self, ids):
        x = self.tok[ids]
        q = x.view(*ids.shape, 2, WIDTH // 2).transpose(1, 2)
        h = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(x.shape)
        return (x + h) @ self.head.T


torch.manual_seed(5)
m = Tiny()
text = "".join(f"{i}\n" for i in range(1, 301))
chars = sorted(set(text))
ids = np.array([chars.index(c) for c in text])
rng = np.random.default_rng(3)
offsets = rng.integers(0, len(ids) - CTX - 1, size=(STEPS, 1, BATCH))

with tempfile.TemporaryDirectory() as d:
    def at(name):
        return os.path.join(d, name)

    with open(at("tiny.lua"), "w") as f:
        f.write(LUA)
    with open(at("text.txt"), "w") as f:
        f.write(text)
    np.save(at("offsets.npy"), offsets.astype(np.int64))
    save_file({k + ".weight": v.detach() for k, v in m.named_parameters()}, at("init.safetensors"))
    subprocess.run([a.tgc, "train", at("tiny.lua"), "--data", at("text.txt"), "--val_data",
                    at("text.txt"), "--tokenizer", "char", "--device", a.device, "--init_from",
                    at("init.safetensors"), "--batch_offsets", at("offsets.npy"), "--learning_rate",
                    "1e-2", "--warmup_iters", "0", "--beta2", "0.99", "--weight_decay", "0.1",
                    "--grad_clip", "1", "--ema", str(a.decay), "--eval_interval", "50", "--out_dir",
                    at("out"), "-q"], check=True)
    got = load_file(at("out/ckpt.safetensors"))
    state = load_file(at("out/state.safetensors"))

average = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(a.decay))
opt = torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
for step in range(STEPS):
    w = torch.tensor(np.stack([ids[o:o + CTX + 1] for o in offsets[step, 0]]))
    opt.zero_grad()
    F.cross_entropy(m(w[:, :-1]).flatten(0, 1), w[:, 1:].flatten()).backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    average.update_parameters(m)

worst = 0
for name, p in m.named_parameters():
    mine = [t for k, t in state.items() if k.startswith("p.") and t.shape == p.shape]
    off = (got[name + ".weight"] - average.module.get_parameter(name)).abs().max().item()
    off_p = min((t - p).abs().max().item() for t in mine)
    moved = (average.module.get_parameter(name) - p).abs().max().item()
    print(f"{name}: the average is {off:.2g} from torch's, the weights {off_p:.2g}; average and "
          f"weights are {moved:.2g} apart")
    worst = max(worst, off, off_p)
sys.exit(worst > 2e-5)
