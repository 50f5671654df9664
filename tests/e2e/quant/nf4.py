#!/usr/bin/env python3
"""`tgc quantize FOLDER --type nf4` against bitsandbytes: codes and scales must be its bytes.

    python3 tests/e2e/quant/nf4.py [VALUES]            needs numpy, torch, bitsandbytes
"""
import json, os, subprocess, sys, tempfile
import numpy as np, torch
import bitsandbytes.functional as F
from safetensors.numpy import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../../data")
import make_quant as q

n, bad = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6, 0
rng = np.random.default_rng(4)
# 100: blocks lie over the ends of rows, the last one may be short
for K in (256, 100):
    x = (rng.normal(size=(n // K, K)) * np.exp(rng.uniform(-20, 3, (n // K, 1)))).astype(np.float32)
    x[3] = 0
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(f"{d}/in")
        q.write(f"{d}/in/model.safetensors", {"model.layers.0.a.weight": x})
        with open(f"{d}/in/config.json", "w") as f:
            json.dump({"model_type": "llama"}, f)
        subprocess.run([f"{HERE}/../../../build/tgc", "quantize", f"{d}/in", "--type", "nf4", "-o",
                        f"{d}/out", "-q"], check=True)
        got = load_file(f"{d}/out/model.safetensors")
    want, state = F.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
    codes = int((got["model.layers.0.a.weight"] != want.numpy()).sum())
    scales = int((got["model.layers.0.a.weight.absmax"] != state.absmax.numpy()).sum())
    bad += codes + scales
    print(f"rows of {K}: {codes} of {want.numel()} bytes and {scales} of {state.absmax.numel()} "
          f"scales differ")
sys.exit(1 if bad else 0)
