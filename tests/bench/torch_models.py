"""torch_models.py: the workloads of compare.py as a PyTorch user would write them.

Modes: eager; compile (torch.compile); graphs (torch.compile with CUDA graphs, mode
"reduce-overhead").  Training: float32 parameters, autocast for bf16, fused AdamW, gradients
clipped.  Decoding: weights in the dtype, a static cache of the whole context, greedy.
"""
import gc
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

COMPILE = {"compile": None, "graphs": "reduce-overhead"}
WARM_UP = 5                         # steps or tokens before those that are timed


@dataclass
class Shape:
    """Of a decoder: C channels, L layers, H heads, K key/value heads, D head width, F MLP width."""
    vocab: int
    ctx: int
    C: int
    L: int
    H: int
    K: int = 0
    F: int = 0
    norm: str = "layer"         # layer, rms
    pos: str = "learned"        # learned, rope
    act: str = "gelu"           # gelu, gelu_tanh, silu, swiglu
    bias: bool = True           # of out and the MLP
    qkv_bias: bool = True
    head_bias: bool = False
    post_norm: bool = False     # x = norm(x + f(x))
    tied: bool = True
    experts: int = 0
    top_k: int = 2

    def __post_init__(self):
        self.K = self.K or self.H
        self.F = self.F or 4 * self.C
        self.D = self.C // self.H

    def weights(self):
        """Parameters in all, and how many of them one decoded token reads."""
        qkv = self.C * (self.H + 2 * self.K) * self.D
        mlp = self.C * self.F * (3 if self.act == "swiglu" else 2)
        layer = qkv + self.C * self.H * self.D
        table = self.vocab * self.C
        total = self.L * (layer + mlp * max(1, self.experts)) + table * (1 if self.tied else 2)
        total += self.ctx * self.C if self.pos == "learned" else 0
        return total, self.L * (layer + mlp * (self.top_k if self.experts else 1)) + table

    def train_flops(self, B, T):
        """Forward and backward: 6 for each token and weight that it multiplies, and causal
        attention."""
        return B * T * (6 * self.weights()[1] + 6 * self.L * T * self.H * self.D)


class RMSNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def norm(s):
    return nn.LayerNorm(s.C) if s.norm == "layer" else RMSNorm(s.C)


def activation(s, h):
    if s.act == "swiglu":
        gate, up = h.chunk(2, -1)
        return F.silu(gate) * up
    return F.silu(h) if s.act == "silu" else F.gelu(h, approximate="tanh" if s.act == "gelu_tanh"
                                                    else "none")


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.up = nn.Linear(s.C, s.F * (2 if s.act == "swiglu" else 1), bias=s.bias)
        self.down = nn.Linear(s.F, s.C, bias=s.bias)

    def forward(self, x):
        return self.down(activation(self.s, self.up(x)))


class Experts(nn.Module):
    """Few tokens: the chosen experts' weights are gathered for each.  Many: tokens in the order of
    their experts, and a product of groups."""
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.router = nn.Linear(s.C, s.experts, bias=False)
        self.up = nn.Parameter(torch.empty(s.experts, 2 * s.F, s.C))
        self.down = nn.Parameter(torch.empty(s.experts, s.C, s.F))

    def forward(self, x):
        rows = x.flatten(0, 1)
        weight, which = self.router(rows).softmax(-1).topk(self.s.top_k, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        if self.training and rows.shape[0] > 64:
            return self.grouped(rows, weight, which).view_as(x)
        h = activation(self.s, torch.einsum("tc,tkfc->tkf", rows, self.up[which]))
        y = torch.einsum("tkf,tkcf->tkc", h, self.down[which])
        return (y * weight[..., None]).sum(1).view_as(x)

    def grouped(self, rows, weight, which):
        expert, slot = which.flatten().sort(stable=True)
        ends = torch.searchsorted(expert, torch.arange(self.s.experts, device=rows.device),
                                  right=True).int()
        token = slot // self.s.top_k
        up, down = (w.to(torch.bfloat16).transpose(1, 2) for w in (self.up, self.down))
        h = activation(self.s, F.grouped_mm(rows[token].to(torch.bfloat16), up, offs=ends))
        y = F.grouped_mm(h, down, offs=ends) * weight.flatten()[slot, None].to(torch.bfloat16)
        return torch.zeros_like(rows).index_add_(0, token, y.type_as(rows))


def rotate(x, turn):
    a, b = x.float().chunk(2, -1)
    cos, sin = turn
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).type_as(x)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.qkv = nn.Linear(s.C, (s.H + 2 * s.K) * s.D, bias=s.qkv_bias)
        self.out = nn.Linear(s.H * s.D, s.C, bias=s.bias)

    def make_cache(self, B):
        """Buffers, so that CUDA graphs may write to them in place."""
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(B, self.s.K, self.s.ctx, self.s.D),
                                 persistent=False)

    def forward(self, x, turn, at, mask):
        s, (B, T, _) = self.s, x.shape
        q, k, v = (y.view(B, T, -1, s.D).transpose(1, 2)
                   for y in self.qkv(x).split((s.H * s.D, s.K * s.D, s.K * s.D), -1))
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        if at is not None:
            k, v = self.k_cache.index_copy_(2, at, k), self.v_cache.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None,
                                           enable_gqa=s.H != s.K)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.post = s.post_norm
        self.norm1, self.att, self.norm2 = norm(s), Attention(s), norm(s)
        self.mlp = Experts(s) if s.experts else Mlp(s)

    def forward(self, x, turn, at, mask):
        if self.post:
            x = self.norm1(x + self.att(x, turn, at, mask))
            return self.norm2(x + self.mlp(x))
        x = x + self.att(self.norm1(x), turn, at, mask)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.tok = nn.Embedding(s.vocab, s.C)
        self.pos = nn.Embedding(s.ctx, s.C) if s.pos == "learned" else None
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.L))
        self.norm = norm(s)
        self.head = nn.Linear(s.C, s.vocab, bias=s.head_bias)
        if s.tied:
            self.head.weight = self.tok.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        freq = 1e4 ** (-torch.arange(0, s.D, 2, dtype=torch.float32) / s.D)
        angle = torch.arange(s.ctx, dtype=torch.float32)[:, None] * freq
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, targets=None, at=None):
        where = torch.arange(ids.shape[1], device=ids.device) if at is None else at
        mask = None if at is None else torch.arange(self.s.ctx, device=ids.device)[None] <= at[:,
            None]
        x, turn = self.tok(ids), None
        if self.pos is not None:
            x = x + self.pos(where)
        else:
            turn = self.cos[where], self.sin[where]
        for block in self.blocks:
            x = block(x, turn, at, mask)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, -1:])
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())


def clean():
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def seconds(call, n, rounds=3):
    """Of one call: median over rounds of n calls in a row; the GPU is waited for once a round."""
    took = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            call()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) / n)
    return sorted(took)[rounds // 2]


@dataclass
class Peer:
    """A model that has warmed up: ms(n, start) is one round of n steps, or of n tokens after
    `start`."""
    ms: object
    first_s: float              # of the first step or token: compiling


def train(shape, B, T, dtype, mode):
    clean()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Model(shape)
        ids, targets = (torch.randint(0, shape.vocab, (B, T)) for _ in range(2))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1,
                            fused=True, capturable=mode == "graphs")
    forward = torch.compile(model, mode=COMPILE[mode]) if mode in COMPILE else model

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

    def ms(n, start=0):
        seconds(step, WARM_UP, 1)
        return seconds(step, n, 1) * 1e3

    return Peer(ms, seconds(step, 1, 1))


def decode(shape, B, prompt, dtype, mode):
    """Rounds are milliseconds a token of each of B sequences."""
    clean()
    torch.manual_seed(0)
    torch.set_default_dtype({"bf16": torch.bfloat16, "f16": torch.float16,
                             "f32": torch.float32}[dtype])
    try:
        with torch.device("cuda"):
            model = Model(shape)
            for block in model.blocks:
                block.att.make_cache(B)
    finally:
        torch.set_default_dtype(torch.float32)

    def next_token(token, at):
        return model(token, at=at).argmax(-1)
    call = torch.compile(next_token, mode=COMPILE[mode],
                         fullgraph=True) if mode in COMPILE else next_token

    @torch.no_grad()
    def generate(start, k):
        token, at = torch.zeros(B, 1, dtype=torch.long, device="cuda"), torch.tensor([start],
            device="cuda")
        for _ in range(k):
            token, at = call(token, at).clone(), at + 1

    def ms(n, start=prompt):
        generate(start, WARM_UP)
        return seconds(lambda: generate(start, n), 1, 1) / n * 1e3

    with torch.no_grad():
        model(torch.randint(0, shape.vocab, (B, prompt), device="cuda"),
              at=torch.arange(prompt, device="cuda"))
    return Peer(ms, seconds(lambda: generate(prompt, 1), 1, 1))


def ceilings():
    """Bytes a second that a copy moves (read and written), FLOPs a second of an 8192^3 bf16
    product."""
    clean()
    a = torch.empty(4 << 30, dtype=torch.uint8, device="cuda").fill_(7)
    b = torch.empty_like(a)
    seconds(lambda: b.copy_(a), 3, 1)
    copy = 2 * a.numel() / seconds(lambda: b.copy_(a), 10)
    del a, b
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds(lambda: a @ b, 5, 1)
    return copy, 2 * 8192 ** 3 / seconds(lambda: a @ b, 20)
