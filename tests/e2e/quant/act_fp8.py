#!/usr/bin/env python3
"""Activations of --act fp8 against float8_e4m3fn of another package, by the formula of
compressed-tensors and DeepSeek: scale = largest / 448, in float32; x / scale becomes e4m3.

    python3 tests/e2e/quant/act_fp8.py [VALUES]        needs numpy, and torch or ml_dtypes
"""
import os, subprocess, sys, tempfile
import numpy as np

try:
    import torch
    def e4m3(x): return torch.from_numpy(x).to(torch.float8_e4m3fn).to(torch.float32).numpy()
except ImportError:
    import ml_dtypes
    def e4m3(x): return x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)

TOP = os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../../..")
n, bad = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6, 0
rng = np.random.default_rng(8)
with tempfile.TemporaryDirectory() as d:
    subprocess.run(["cc", "-O2", f"{TOP}/tests/e2e/quant/act_fp8.c", f"{TOP}/ir/fp8.c", "-lm", "-o",
                    f"{d}/round"], check=True)
    for group in (32, 128, 4096):
        x = (rng.normal(size=(n // group, group)) *
             np.exp(rng.uniform(-12, 8, (n // group, 1)))).astype(np.float32)
        x[1] *= 0
        out = subprocess.run([f"{d}/round", str(group)], input=x.tobytes(), check=True,
                             stdout=subprocess.PIPE).stdout
        got = np.frombuffer(out, np.float32).reshape(x.shape)
        scale = np.maximum(np.abs(x).max(1, keepdims=True) / np.float32(448),
                           np.float32(2.0**-126))
        want = e4m3(np.clip(x / scale, -448, 448)) * scale
        other = np.abs(got - want) > 1e-6 * np.abs(want)
        # x / scale is rounded in float32 there: a tie then, and a hair beside one here
        near = np.abs(np.abs(x)[other] - (np.abs(got) + np.abs(want))[other] / 2)
        hair = near < 1e-6 * np.abs(x)[other]
        bad += int((~hair).sum())
        print(f"{group} to a scale: {int((~hair).sum())} of {x.size} values differ, "
              f"{int(hair.sum())} by a rounded quotient")
sys.exit(1 if bad else 0)
