"""States of bitsandbytes' AdamW8bit after 100 steps, for tests/test_cpu_update.c.

    python3 adamw8bit.py OUT.bin      (needs torch, triton and bitsandbytes; bitsandbytes' own
            PyTorch reference runs)

OUT.bin: m as bytes, v as bytes, then the largest m and v of each 256 as float32, then the
parameters.
"""
import sys

import bitsandbytes.functional as F
import numpy as np
import torch
torch.compile = lambda f=None, **k: f if f else (lambda g: g)
from bitsandbytes.backends.triton import kernels_optim as K

N, STEPS = 4096 + 512, 100
word = np.uint32(1)


def numbers(n):
    """The same in C: x = 1664525 x + 1013904223, the top 24 bits from -1 to 1, cubed: small ones
    are many."""
    global word
    out = np.empty(n, np.float32)
    x = int(word)
    for i in range(n):
        x = (1664525 * x + 1013904223) & 0xFFFFFFFF
        f = np.float32(x >> 8) * np.float32(1 / 8388608) - np.float32(1)
        out[i] = f * f * f
    word = np.uint32(x)
    return torch.from_numpy(out)


signed, unsigned = F.create_dynamic_map(signed=True), F.create_dynamic_map(signed=False)
p = numbers(N)
m, v = torch.zeros(N, dtype=torch.uint8), torch.zeros(N, dtype=torch.uint8)
mm, vm = torch.zeros(N // 256), torch.zeros(N // 256)
for step in range(1, STEPS + 1):
    K.optimizer_update_8bit_blockwise_pytorch(
        p, numbers(N), m, v, 0.9, 0.95, 0.0, 0.0, 1e-8, step, 1e-3, signed, unsigned, mm, vm, 0.1,
        1.0, False, optimizer_name="adam")
with open(sys.argv[1], "wb") as f:
    for t in (m, v, mm, vm, p):
        f.write(t.numpy().tobytes())
