#!/usr/bin/env python3
"""How fast tgc encodes a text, next to the package `tokenizers`, on one core.

    taskset -c 0 tests/bench/tokenizer_speed.py [--rounds 5] [--text FILE] PATH...

PATH as for tests/tokenizers/compare.py.  The two take turns; medians of MB/s of processor time.
The package encodes the text whole and by lines, with offsets and without (`encode_batch_fast`), on
one thread; its fastest way counts.  Lines: the lines of the text, one call each, for both.
"""
import argparse
import ctypes
import os
import statistics
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tokenizers"))
import compare

TEXT = os.path.join(compare.ROOT, "../shared/data/text/war-and-peace.txt")


def timed(f, *args):
    t = time.process_time()
    f(*args)
    return time.process_time() - t


def ours(lib, t, texts):
    ids, n, e = ctypes.POINTER(ctypes.c_int)(), ctypes.c_int(), compare.Err()
    calls = [(t.t, s, ctypes.c_size_t(len(s)), 0,
              ctypes.byref(ids), ctypes.byref(n), ctypes.byref(e)) for s in texts]

    def run():
        for c in calls:
            lib.tokenizer_encode(*c)
            t.free(ids)
    return run


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--text", default=TEXT)
    p.add_argument("path", nargs="+")
    args = p.parse_args()
    text = open(args.text, encoding="utf-8", newline="").read()
    lines = text.splitlines(keepends=True)
    size = len(text.encode()) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        lib = compare.build(folder)
        for path in args.path:
            t, ref = compare.Ours(lib, path), compare.reference(path)
            fast = getattr(ref.t, "encode_batch_fast", None) if isinstance(ref,
                compare.Whole) else None
            ways = {"tgc": ours(lib, t, [text.encode()]),
                    "tgc lines": ours(lib, t, [s.encode() for s in lines]),
                    "ref": lambda: ref.encode(text), "ref lines": lambda: [ref.encode(s)
                        for s in lines]}
            if fast:
                ways["ref fast"] = lambda: fast([text], add_special_tokens=False)
                ways["ref fast lines"] = lambda: fast(lines, add_special_tokens=False)
            took = {k: [] for k in ways}
            for _ in range(args.rounds):
                for k, f in ways.items():
                    took[k].append(timed(f))
            rate = {k: size / statistics.median(v) for k, v in took.items()}
            best = max(v for k, v in rate.items() if k.startswith("ref"))
            print("%s: %s; tgc is %.1f times the fastest of the package" %
                  (os.path.basename(path.rstrip("/")),
                   ", ".join("%s %.1f MB/s" % kv for kv in rate.items()), rate["tgc"] / best),
                  flush=True)


if __name__ == "__main__":
    main()
