#!/usr/bin/env python3
"""Quantises random blocks with tgc and with the package gguf: the bytes must be equal. Of types
that the package does not write, the root mean square error relative to the values', decoded by the
package.

    make build/tests/e2e/quant/encode && python3 tests/e2e/quant/encode.py [BLOCKS [TYPE ...]]
            needs gguf, numpy

Values are normal, of scales from 1e-30 to 150 a block; some blocks are 0, some have one large
value.
"""
import os, subprocess, sys
import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

TGC = f"{os.path.dirname(os.path.abspath(__file__))}/../../../build/tests/e2e/quant/encode"
EQUAL = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
OTHER = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]


def blocks_of(kind, n, rng, plain):
    values, _ = GGML_QUANT_SIZES[T[kind]]
    x = rng.normal(size=(n, values)).astype(np.float32)
    if not plain:
        x *= np.exp(rng.uniform(-69, 5, (n, 1))).astype(np.float32)
        x[rng.random(n) < .01] = 0
        large = rng.random(n) < .05
        x[large, 3] *= 50
    return x


def ours(kind, x):
    return np.frombuffer(subprocess.run([TGC, str(int(T[kind]))], input=x.tobytes(),
                                        stdout=subprocess.PIPE, check=True).stdout,
                         np.uint8).reshape(len(x), -1)


if __name__ == "__main__":
    n, bad = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6, 0
    for kind in sys.argv[2:] or EQUAL + OTHER:
        rng = np.random.default_rng(2)
        if kind in EQUAL:
            differ = 0
            for at in range(0, n, 1 << 17):
                x = blocks_of(kind, min(1 << 17, n - at), rng, False)
                with np.errstate(all="ignore"):
                    want = quants.quantize(x, T[kind]).reshape(len(x), -1)
                differ += int((want != ours(kind, x)).any(1).sum())
            bad += differ
            print(f"{kind}: {n} blocks, {differ} differ", flush=True)
        else:
            x = blocks_of(kind, min(n, 4096), rng, True)
            y = quants.dequantize(np.ascontiguousarray(ours(kind, x)), T[kind])
            print(f"{kind}: error {np.sqrt(((x - y) ** 2).mean() / (x ** 2).mean()):.5f}",
                  flush=True)
    sys.exit(1 if bad else 0)
