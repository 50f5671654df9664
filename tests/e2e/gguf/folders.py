#!/usr/bin/env python3
"""GGUF files that tgc makes of folders, read by the package gguf: every tensor against the folder's
weights as tests/data/make_gguf.py lays them out, every type decoded by the package.

    python3 tests/e2e/gguf/folders.py [FOLDER...]       needs numpy and gguf; build/tgc
"""
import os, subprocess, sys, tempfile
import numpy as np
from gguf import GGUFReader, quants

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, f"{TOP}/tests/data")
import make_gguf

ALLOWED = {"f32": 0, "f16": 1e-3, "bf16": 8e-3, "q8_0": 0.02, "q4_k_m": 0.25}


def check(folder, kind):
    out = tempfile.mktemp(suffix=".gguf")
    made = subprocess.run([f"{TOP}/build/tgc", "quantize", folder, "--type", kind, "-o", out, "-q"],
                          stderr=subprocess.PIPE, text=True)
    if made.returncode:
        print(f"{folder} {kind}: {made.stderr.strip()}")
        return
    r = GGUFReader(out)
    field = lambda key: r.fields[key].contents()
    arch = field("general.architecture")
    heads = field(f"{arch}.attention.head_count")
    kv = (field(f"{arch}.attention.head_count_kv") if f"{arch}.attention.head_count_kv" in r.fields
          else heads)
    config, tensors = make_gguf.read_folder(folder)
    if config.get("tie_word_embeddings", arch in ("gemma", "gemma2")):
        tensors.pop("lm_head.weight", None)
    want, _ = make_gguf.converted(arch, tensors, heads, kv)
    got = {t.name: quants.dequantize(t.data, t.tensor_type).reshape([int(x)
        for x in reversed(t.shape)]) for t in r.tensors}
    got.pop("rope_freqs.weight", None)
    assert set(got) == set(want), (folder, sorted(set(got) ^ set(want)))
    worst = 0
    for name, w in want.items():
        assert got[name].shape == w.shape, (name, got[name].shape, w.shape)
        worst = max(worst, float(np.abs(got[name] - w).max() / (np.abs(w).max() + 1e-30)))
    assert worst <= ALLOWED[kind], (folder, kind, worst)
    print(
        f"{folder} {kind}: {len(got)} tensors, largest difference {worst:.2g} of the largest value")
    os.unlink(out)


for folder in sys.argv[1:] or sorted(f.path for f in os.scandir(f"{TOP}/tests/data/families")
                                     if f.is_dir()):
    for kind in ALLOWED:
        check(folder, kind)
