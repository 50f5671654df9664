#!/usr/bin/env python3
"""Writes tests/data/training: small float32 training runs in PyTorch, every step of them.

    python3 tests/data/make_training.py [NAME ...]                 needs torch, transformers,
            safetensors and numpy

Of each: init and final (weights), starts.npy (int64 [steps, accumulation, batch], where windows of
text/stories.txt begin), grad_step0_clipped.safetensors, loss.csv (step, learning rate,
cross-entropy, balance loss, norm of the gradient before clipping).  The vocabulary is the text's
characters, sorted.  AdamW, decay on what has two or more dimensions, a linear rise of 5 steps and
then a constant rate, clipping at 1.  tests/e2e/train/README.md says what tgc does with them.
"""
import math, os, sys
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig,
                          MixtralForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, WARMUP, RATE, V, C = 100, 5, 1e-3, 65, 32


class Block(nn.Module):
        """Norms after the sums, a linear for each head's key, query and value."""
        def __init__(self, c, n_head, T):
                super().__init__()
                head = lambda: nn.ModuleDict({k: nn.Linear(c, c // n_head, bias=False)
                                              for k in ("key", "query", "value")})
                self.heads = nn.ModuleList(head() for _ in range(n_head))
                self.proj, self.fc1, self.fc2 = (nn.Linear(c, c), nn.Linear(c, 4 * c),
                                                 nn.Linear(4 * c, c))
                self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
                self.register_buffer("later", torch.ones(T, T).triu(1).bool(), persistent=False)

        def forward(self, x):
                T, out = x.shape[1], []
                for h in self.heads:
                        q, k, v = h["query"](x), h["key"](x), h["value"](x)
                        s = (q @ k.transpose(1, 2)
                             / math.sqrt(q.shape[-1])).masked_fill(self.later[:T, :T], -math.inf)
                        out.append(s.softmax(-1) @ v)
                x = self.ln1(x + self.proj(torch.cat(out, -1)))
                return self.ln2(x + self.fc2(F.gelu(self.fc1(x))))


class Naive(nn.Module):
        def __init__(self, c=C, n_head=4, n_layer=2, T=32):
                super().__init__()
                self.tok, self.pos = nn.Embedding(V, c), nn.Embedding(T, c)
                self.blocks = nn.ModuleList(Block(c, n_head, T) for _ in range(n_layer))
                self.ln_f, self.head = nn.LayerNorm(c), nn.Linear(c, V)
                for p in self.parameters():
                        if p.dim() > 1:
                                nn.init.normal_(p, std=0.02)

        def forward(self, ids):
                x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
                for b in self.blocks:
                        x = b(x)
                return self.head(self.ln_f(x))


NARROW = dict(vocab_size=V, max_position_embeddings=64, hidden_size=C, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0,
              tie_word_embeddings=False)

JOBS = {  # model, windows of a batch, their tokens, accumulation, decay, balance loss's weight
        "naive_postnorm": (Naive, 8, 32, 1, 0.01, 0),
        "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(
            vocab_size=V, n_positions=64, n_embd=C, n_layer=2, n_head=4, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)), 8, 48, 1, 0.1, 0),
        "llama_accum2": (lambda: LlamaForCausalLM(LlamaConfig(
            intermediate_size=80, head_dim=8, rms_norm_eps=1e-6, **NARROW)), 4, 48, 2, 0.1, 0),
        "mixtral_aux": (lambda: MixtralForCausalLM(MixtralConfig(
            intermediate_size=48, num_local_experts=4, num_experts_per_tok=2,
            router_aux_loss_coef=0.01, sliding_window=None, **NARROW)), 8, 32, 1, 0.1, 0.01),
}


def save(model, path):
        if isinstance(model, Naive):
                save_file(model.state_dict(), path + ".safetensors")
        else:
                model.save_pretrained(path)
                os.remove(path + "/generation_config.json")


def losses(model, ids, targets, aux):
        """Mean cross-entropy, balance loss."""
        if isinstance(model, Naive):
                logits, balance = model(ids), torch.zeros(())
        elif aux:
                out = model(ids, output_router_logits=True)
                logits, balance = out.logits, out.aux_loss
        else:
                logits, balance = model(ids).logits, torch.zeros(())
        return F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1)), balance


def train(name, text):
        make, B, T, n_micro, decay, aux = JOBS[name]
        torch.manual_seed(1)
        model, dir = make().float(), f"{HERE}/training/{name}"
        os.makedirs(dir, exist_ok=True)
        save(model, f"{dir}/init")
        starts = np.random.default_rng(2).integers(0, len(text) - T - 1, (STEPS, n_micro, B),
                                                   dtype=np.int64)
        np.save(f"{dir}/starts.npy", starts)
        wide = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() < 2]
        opt = torch.optim.AdamW([dict(params=wide, weight_decay=decay),
                                 dict(params=rest, weight_decay=0.0)], lr=RATE, betas=(0.9, 0.95),
                                eps=1e-8)
        rows = ["step,lr,loss,aux_loss,grad_norm"]
        model.train()
        for step in range(STEPS):
                rate = RATE * min(1, (step + 1) / WARMUP)
                for g in opt.param_groups:
                        g["lr"] = rate
                opt.zero_grad()
                ce = balance = 0.0
                for part in starts[step]:
                        ids = torch.stack([text[s:s + T] for s in part])
                        targets = torch.stack([text[s + 1:s + T + 1] for s in part])
                        a, b = losses(model, ids, targets, aux)
                        ((a + aux * b) / n_micro).backward()
                        ce, balance = (ce + float(a.detach()) / n_micro,
                                       balance + float(b.detach()) / n_micro)
                norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
                if step == 0:
                        grads = {n: p.grad.contiguous() for n, p in model.named_parameters()}
                        save_file(grads, f"{dir}/grad_step0_clipped.safetensors")
                opt.step()
                rows.append(f"{step},{rate:.9g},{ce:.8f},{balance:.8f},{norm:.8f}")
        save(model, f"{dir}/final")
        with open(f"{dir}/loss.csv", "w") as f:
                f.write("\n".join(rows) + "\n")
        print(name, sum(p.numel() for p in model.parameters()), "parameters, loss",
              rows[1].split(",")[2], "to", rows[-1].split(",")[2])


if __name__ == "__main__":
        torch.set_num_threads(1)
        with open(f"{HERE}/text/stories.txt", newline="") as f:
                text = f.read()
        ids = {c: i for i, c in enumerate(sorted(set(text)))}
        assert len(ids) == V
        text = torch.tensor([ids[c] for c in text])
        for name in sys.argv[1:] or JOBS:
                train(name, text)
