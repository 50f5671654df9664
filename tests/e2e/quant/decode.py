#!/usr/bin/env python3
"""Decodes random layers of every kind of quantised folder with tgc and with the package that
defines the kind (of GPTQ, AWQ, fp8 and gpt-oss with the definition in tests/data/make_quant.py):
the bits of the float32 values must be equal.

    make build/tests/e2e/quant/unpack && python3 tests/e2e/quant/decode.py [VALUES [KIND ...]]

needs numpy, torch, bitsandbytes, compressed-tensors.  Codes are random, scales finite, some of them
subnormal, 0 or negative.  With bitsandbytes 0.50.2 and compressed-tensors 0.20 and 10^7 values a
kind nothing differs.
"""
import json, os, subprocess, sys, tempfile
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../../data")
import make_quant as q

UNPACK = f"{HERE}/../../../build/tests/e2e/quant/unpack"


def compare(kind, values, rng):
    """How many of so many values differ; rows and columns are odd where the kind allows it."""
    make, quant = q.mxfp4() if kind == "mxfp4" else q.KINDS[kind]()
    columns = 96 * int(rng.integers(8, 20))
    rows = max(16, values // columns // 16 * 16)
    with tempfile.TemporaryDirectory() as d:
        if kind == "mxfp4":
            t, want = make(rng, 4, rows // 4, columns, "x")
        else:
            t, want = make(rng, rows, columns, "x")
        q.write(f"{d}/model.safetensors", {"x" + k: v for k, v in t.items()})
        with open(f"{d}/config.json", "w") as f:
            json.dump({"quantization_config": quant}, f)
        got = np.frombuffer(subprocess.run([UNPACK, d, "x" if kind == "mxfp4" else "x.weight"],
                                           stdout=subprocess.PIPE, check=True).stdout, np.uint32)
    return int((got != np.ascontiguousarray(want,
                                            np.float32).reshape(-1).view(
                                                np.uint32)).sum()), want.size


if __name__ == "__main__":
    values, bad = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7, 0
    for kind in sys.argv[2:] or [*q.KINDS, "mxfp4"]:
        differ, n = compare(kind, values, np.random.default_rng(3))
        bad += differ
        print(f"{kind}: {n} values, {differ} differ", flush=True)
    sys.exit(1 if bad else 0)
