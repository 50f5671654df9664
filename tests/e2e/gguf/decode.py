#!/usr/bin/env python3
"""Decodes random blocks of every storage type with tgc and with the package gguf: the bits must be
equal, NaN as NaN.

    make build/tests/e2e/gguf/decode && python3 tests/e2e/gguf/decode.py [BLOCKS [TYPE ...]]
            needs gguf, numpy

All bytes are random, so a scale is NaN or infinite once in 32, subnormal as often.  With gguf 0.19
and 10^7 blocks a type nothing differs.
"""
import os, subprocess, sys
import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

TGC = f"{os.path.dirname(os.path.abspath(__file__))}/../../../build/tests/e2e/gguf/decode"
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"]


def compare(name, n, rng):
    """How many of n blocks differ."""
    kind, differ = T[name], 0
    values, size = GGML_QUANT_SIZES[kind]
    at_once = (1 << 22) // values
    for at in range(0, n, at_once):
        blocks = rng.integers(0, 256, (min(at_once, n - at), size), dtype=np.uint8)
        out = subprocess.run([TGC, str(int(kind))], input=blocks.tobytes(), stdout=subprocess.PIPE,
                             check=True).stdout
        got = np.frombuffer(out, np.uint32)
        with np.errstate(all="ignore"):
            want = np.ascontiguousarray(quants.dequantize(blocks, kind)).reshape(-1).view(np.uint32)
        both_nan = ((want & 0x7FFFFFFF) > 0x7F800000) & ((got & 0x7FFFFFFF) > 0x7F800000)
        differ += int((~(both_nan | (want == got))).reshape(len(blocks), values).any(axis=1).sum())
    return differ


if __name__ == "__main__":
    n, bad = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7, 0
    for name in sys.argv[2:] or TYPES:
        differ = compare(name, n, np.random.default_rng(1))
        bad += differ
        print(f"{name}: {n} blocks, {differ} differ", flush=True)
    sys.exit(1 if bad else 0)
