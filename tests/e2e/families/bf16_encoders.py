#!/usr/bin/env python3
"""Errors of bfloat16 next to sentence-transformers' own: vectors of every encoder of
tests/data/encoders over its texts, not normalised, by tgc on the CPU and by sentence-transformers,
both in bfloat16, against sentence-transformers in float32.

    make build/tgc
    python3 tests/e2e/families/bf16_encoders.py         needs torch, transformers (5.24) and
            sentence-transformers (6.2)

Prints NAME, tgc's largest difference and root of the mean square, relative to the largest element,
and theirs.  Fails where tgc's root mean square is above 1.1 of theirs.  nomic is a GGUF file: they
read the folder that tgc exports of it.
"""
import json, os, subprocess, sys, tempfile

os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"] = "", "1"
import numpy as np
import torch
from sentence_transformers import SentenceTransformer, models

torch.set_num_threads(1)
TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../../..")
DATA = f"{TOP}/tests/data"
# prompt, pooling and the most tokens
ENCODERS = {"minilm": ("", "mean", 14), "plain": ("", "mean", None),
            "roberta": ("quick: ", "cls", None), "nomic": ("", "mean", None)}


def tgc(*args):
    return subprocess.run([f"{TOP}/build/tgc", *args], check=True, capture_output=True,
                          text=True).stdout


def theirs(folder, texts, pooling, most, dtype):
    transformer = models.Transformer(folder, max_seq_length=most, model_kwargs={"dtype": dtype})
    st = SentenceTransformer(modules=[transformer, models.Pooling(24, pooling_mode=pooling)],
                             device="cpu")
    each = [st.encode([t], convert_to_numpy=False, convert_to_tensor=True)[0].float().numpy()
            for t in texts]
    return np.stack(each).astype(np.float64)


worse = []
for name, (prompt, pooling, most) in ENCODERS.items():
    with open(f"{DATA}/encoders/{name}/expected.json") as f:
        texts = [x["text"] for x in json.load(f)]
    with tempfile.TemporaryDirectory() as work:
        folder = source = f"{DATA}/encoders/{name}"
        if name == "nomic":
            folder, source = f"{work}/folder", f"{DATA}/gguf/nomic.gguf"
            tgc("compile", source, "-q", "-o", f"{work}/plan")
            tgc("export", f"{work}/plan", "-q", "-o", folder)
        args = [x for t in texts for x in ("-p", t)]
        out = tgc("embed", source, "-q", "--device", "cpu", "--no-normalize", "--dtype", "bf16",
                  *args)
        got = np.array([[float(v) for v in line.split()] for line in out.splitlines()])
        texts = [prompt + t for t in texts]
        want, their = (theirs(folder, texts, pooling, most, d)
                       for d in (torch.float32, torch.bfloat16))
    error = lambda x: (np.abs(x - want).max() / np.abs(want).max(),
                       np.sqrt(((x - want) ** 2).mean()) / np.abs(want).max())
    a, b = error(got), error(their)
    print(f"{name} {a[0]:.2e} {a[1]:.2e} {b[0]:.2e} {b[1]:.2e}", flush=True)
    if a[1] > 1.1 * b[1]:
        worse.append(name)
if worse:
    sys.exit("worse than sentence-transformers: " + ", ".join(worse))
