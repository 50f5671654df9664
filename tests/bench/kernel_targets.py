"""kernel_targets.py: the kernels that have a target, each next to the library's, on one GPU in one
run.

    python3 tests/bench/kernel_targets.py [--bin DIR] [--only PATTERN] [--out DIR]

From the repository's root; needs nvcc and torch.  The benches of this folder are built into DIR,
unless they are there already, and run for one problem after the other, in turn with PyTorch (cuBLAS
by the bench of products itself); they compare with float64 what they time, but for attention's
forward pass, whose test is a part of its own.  Of a product the fastest tile counts.  Prints a
table and writes kernels.csv.  Times are microseconds of launches in a row; GB/s counts each operand
once.
"""
import argparse
import csv
import os
import re
import glob
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_kernels import normal, time_ms

NVCC = ("nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -w "
        "-Iruntime -Itests -Itests/bench").split() + [f"-I{d}" for d in ("codegen/forms",
            *sorted(glob.glob("codegen/kernels/*/")))]
MOST_ERROR = 0.02       # of 16-bit results, as rows_bench.h counts it
BENCHES = ("gemm_sm90_bench", "attention_sm90_bench", "attention_backward_sm90_bench", "rows_bench",
           "update_bench")


def us(call, calls=10, graph=True):
    return time_ms(lambda i: call(), calls, graph) * 1e3


# ---- the peers ------------------------------------------------------------------------


def norm(rms, rows, n):
    x, w, b = normal(rows, n), normal(n), normal(n)
    return us((lambda: F.rms_norm(x, (n,), w)) if rms else (lambda: F.layer_norm(x, (n,), w, b)))


def norm_grad(rms, rows, n):
    x, w, b = (normal(*s).requires_grad_() for s in ((rows, n), (n,), (n,)))
    y = F.rms_norm(x, (n,), w) if rms else F.layer_norm(x, (n,), w, b)
    g, leaves = normal(rows, n), (x, w) if rms else (x, w, b)
    return us(lambda: torch.autograd.grad(y, leaves, g, retain_graph=True), 10, False)


def swiglu(rows, n):
    g, u = normal(rows, n), normal(rows, n)
    f = torch.compile(lambda g, u: F.silu(g) * u)
    return us(lambda: f(g, u))


def swiglu_grad(rows, n):
    g, u, dy = normal(rows, n).requires_grad_(), normal(rows, n).requires_grad_(), normal(rows, n)
    y = torch.compile(lambda g, u: F.silu(g) * u)(g, u)
    return us(lambda: torch.autograd.grad(y, (g, u), dy, retain_graph=True), 10, False)


def adamw(n):
    p = torch.nn.Parameter(normal(n, dtype=torch.float32))
    p.grad = normal(n, dtype=torch.float32)
    opt = torch.optim.AdamW([p], lr=1e-4, fused=True)
    return us(opt.step, 5, False)


def attention(b, h, kv, d, t, back):
    """The faster of cuDNN and flash."""
    q, k, v = (normal(b, t, n, d).transpose(1, 2).requires_grad_() for n in (h, kv, kv))
    g, best = normal(b, t, h, d).transpose(1, 2), []
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            def forward():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != kv)
            if back:
                out = forward()
                best.append(us(lambda: torch.autograd.grad(out, (q, k, v), g,
                                                           retain_graph=True), 5, False))
            else:
                with torch.no_grad():
                    best.append(us(forward, 5, False))
    return min(best)


# ---- what tgc's benches print ---------------------------------------------------------


class Benches:
    def __init__(self, folder):
        self.folder = folder
        self.products = {}      # shape -> what product() gave

    def build(self):
        os.makedirs(self.folder, exist_ok=True)
        missing = [b for b in BENCHES if not os.path.exists(os.path.join(self.folder, b))]
        jobs = [(b, subprocess.Popen([*NVCC, f"tests/bench/{b}.cu", "-lcublas", "-lcublasLt", "-o",
                                      os.path.join(self.folder, b)]))
                for b in missing]
        for b, job in jobs:
            if job.wait():
                sys.exit(f"{b} does not build")

    def lines(self, bench, *args):
        r = subprocess.run([os.path.join(self.folder, bench), *args], text=True,
                           capture_output=True, timeout=300)
        if r.returncode or re.search("WRONG|FAIL", r.stdout) or any(
                not float(x) < MOST_ERROR for x in re.findall(r"error +(\S+)$", r.stdout, re.M)):
            raise RuntimeError(f"{bench} {' '.join(args)}: " + (r.stdout + r.stderr)[-300:])
        return r.stdout.splitlines()

    def product(self, shape):
        """{epilogue: (us of the best tile, us of the library with the same epilogue or None)}."""
        if shape in self.products:
            return self.products[shape]
        best, library = {}, {}
        for l in self.lines("gemm_sm90_bench", shape):
            m = re.match(r"\d\d (\S+) +(\S.*?) +([0-9.]+) ms", l)
            if m and m[1] == shape.split()[1]:
                peer, words = m[2].startswith("cuBLAS"), m[2].split()
                epilogue = (words[1] if len(words) > 1 else "PERSISTENT") if peer else words[0]
                epilogue = {"SPLIT": "PERSISTENT", "SUMMED_SPLIT": "SUMMED"}.get(epilogue, epilogue)
                to = library if peer else best
                to[epilogue] = min(to.get(epilogue, 1e9), float(m[3]) * 1e3)
        self.products[shape] = {epilogue: (t, library.get(epilogue))
                                for epilogue, t in best.items()}
        return self.products[shape]

    def least(self, bench, args, *parts, pick=min):
        """The sum over parts of the least of the lines that have one."""
        got = self.lines(bench, *args)

        def of(part):
            return pick([float(m[1]) for m in (re.search(part + r".* ([0-9.]+) us", l) for l in got)
                         if m])
        return sum(of(p) for p in parts)


# ---- the table ------------------------------------------------------------------------


@dataclass
class Row:
    name: str
    tgc: object                 # Benches -> us, or (us, the library's us)
    peer: object = None         # () -> us
    flop: float = 0
    bytes: float = 0
    least: float = 0            # GB/s to reach; 0: what counts is
    ratio: float = 0            # the peer's time to tgc's


# A mode of gemm_sm90_bench -> what its epilogue does. Those that cuBLASLt has no epilogue for are
# compared with cuBLAS, which
# does nothing to its sums.  Parts of dy's sums a step adds up in one launch for all products.
EPILOGUES = {"PERSISTENT": "", "ADDED": ", bias and residual added",
             "GELU": ", bias, GELU and its slope", "TIMES": " times a slope",
         "SUMMED": " with sums of dy (in parts)",
         "HALVES": ", three results a pair, next to a plain one",
         "SPREAD": ", two read and stored a sum, next to a plain one"}


def product_rows(op, m, n, k, *epilogues, ratio=1):
    def of(epilogue):
        def measured(benches):
            got = benches.product(f"{op} {m}x{n}x{k}")
            us, peer = got[epilogue]
            return us, peer or got["PERSISTENT"][1]
        return measured
    name = {"01": "x Wt", "00": "dy W", "10": "dyt x"}[op]
    return [Row(f"{name} {m}x{n}x{k}{EPILOGUES[t]}", of(t), flop=2 * m * n * k, ratio=ratio)
            for t in epilogues or ("PERSISTENT",)]


def attention_rows(part, b, h, d, t, ratio):
    flop = 2 * b * h * t * t * d
    grads = (" once ",) if t <= 1024 else (r" dq \d", r" dkv \d")
    name = f"B{b} H{h} D{d} T{t}"
    return (Row(f"attention {name}", lambda x: x.least("attention_sm90_bench", ("speed", part),
                                                       "groups"),
                lambda: attention(b, h, h, d, t, False), flop=flop, ratio=ratio),
            Row(f"attention's gradients {name}",
                lambda x: x.least("attention_backward_sm90_bench", ("speed", part),
                                  *grads), lambda: attention(b, h, h, d, t,
                                      True), flop=2.5 * flop, ratio=ratio))


def rows_row(name, part, peer, n, operands, least=2700):
    return Row(name, lambda b: b.least("rows_bench", (part,),
                                       re.escape(part)), peer, bytes=n * operands * 2, least=least)


BIG = (16384, 2048)
TABLE = (
    rows_row("rmsnorm 16384x2048", "rmsnorm bf16 16384x2048", lambda: norm(True, *BIG), 1 << 25, 2),
    rows_row("rmsnorm's gradients 16384x2048", "rmsnorm_back bf16 16384x2048",
             lambda: norm_grad(True, *BIG), 1 << 25, 3),
    rows_row("layernorm 16384x2048", "layernorm bf16 16384x2048",
             lambda: norm(False, *BIG), 1 << 25, 2),
    rows_row("layernorm's gradients 16384x2048", "layernorm_back bf16 16384x2048",
             lambda: norm_grad(False, *BIG), 1 << 25, 3),
    rows_row("SwiGLU 16384x8192", "silu(g)*u bf16 16384x8192",
             lambda: swiglu(16384, 8192), 1 << 27, 3),
    rows_row("SwiGLU's gradients 16384x8192", "silu(g)*u gradients bf16 16384x8192",
             lambda: swiglu_grad(16384, 8192), 1 << 27, 5),
    Row("AdamW 124M, with a bf16 copy", lambda b: b.least("update_bench", ("adamw",),
                                                          r"adamw \+ bf16 copy 124M",
                                                          pick=lambda t: t[0]),
        lambda: adamw(124000000), bytes=30 * 124000000, least=2700),
    *attention_rows("gpt2 B16", 16, 12, 64, 1024, 1),
    *attention_rows("B4 H32 D64 T2048", 4, 32, 64, 2048, 1),
    *attention_rows("B2 H32 D128 T4096", 2, 32, 128, 4096, 1 / 1.1),
    # GPT-2's step, logits in parts of 8192 rows
    *product_rows("01", 32768, 2304, 768),
    *product_rows("01", 32768, 768, 768, "ADDED"),
    *product_rows("01", 32768, 3072, 768, "PERSISTENT", "GELU"),
    *product_rows("01", 32768, 768, 3072, "PERSISTENT", "ADDED"),
    *product_rows("01", 8192, 50304, 768),
    *product_rows("00", 32768, 768, 2304),
    *product_rows("00", 32768, 768, 768),
    *product_rows("00", 32768, 768, 3072),
    *product_rows("00", 32768, 3072, 768, "TIMES"),
    *product_rows("00", 8192, 768, 50304),
    *product_rows("10", 2304, 768, 32768, "SUMMED"),
    *product_rows("10", 768, 768, 32768, "SUMMED"),
    *product_rows("10", 3072, 768, 32768, "SUMMED"),
    *product_rows("10", 768, 3072, 32768, "SUMMED"),
    *product_rows("10", 50304, 768, 8192),
    # Llama-1B's
    *product_rows("01", 8192, 8192, 2048, ratio=0.97),
    *product_rows("01", 8192, 2048, 8192, "PERSISTENT", "ADDED", ratio=0.97),
    *product_rows("01", 4096, 4096, 4096, ratio=0.97),
    *product_rows("01", 8192, 3072, 2048),
    *product_rows("01", 8192, 2048, 2048, "ADDED"),
    *product_rows("01", 8192, 16384, 2048, "HALVES"),
    *product_rows("01", 8192, 128256, 2048),
    *product_rows("00", 8192, 2048, 3072),
    *product_rows("00", 8192, 2048, 2048),
    *product_rows("00", 8192, 8192, 2048, "SPREAD"),
    *product_rows("00", 8192, 2048, 16384),
    *product_rows("00", 8192, 2048, 128256),
    *product_rows("10", 3072, 2048, 8192),
    *product_rows("10", 2048, 2048, 8192),
    *product_rows("10", 16384, 2048, 8192),
    *product_rows("10", 2048, 8192, 8192),
    *product_rows("10", 128256, 2048, 8192),
)


def measure(row, benches):
    """(us, the peer's us)."""
    got = row.tgc(benches)
    return got if isinstance(got, tuple) else (got, row.peer())


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--bin", default=os.path.join(tempfile.gettempdir(), "tgc_benches"))
    a.add_argument("--only", default="", help="a pattern of a line's name")
    a.add_argument("--out", default=".")
    a = a.parse_args()
    benches = Benches(a.bin)
    benches.build()
    os.makedirs(a.out, exist_ok=True)
    print(f"{torch.cuda.get_device_properties(0).name}, PyTorch {torch.__version__}")
    print(f"{'kernel':<60} {'us':>8} {'library':>8} {'ratio':>6} {'rate':>14}  target")
    with open(os.path.join(a.out, "kernels.csv"), "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(("kernel", "us", "library_us", "ratio", "rate", "unit", "target", "reached"))
        for row in TABLE:
            if not re.search(a.only, row.name):
                continue
            try:
                t, peer = measure(row, benches)
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
                print(f"{row.name:<60} not measured: {e}", flush=True)
                continue
            rate, unit = (row.bytes / t * 1e-3, "GB/s") if row.bytes else (row.flop / t * 1e-6,
                "TFLOP/s")
            target = f"{row.least:.0f} GB/s" if row.least else f"{row.ratio:.2f}x"
            reached = "yes" if (rate >= row.least if row.least else peer / t >= row.ratio) else "no"
            print(f"{row.name:<60} {t:8.1f} {peer:8.1f} {peer / t:6.2f} "
                  f"{rate:6.0f} {unit:<7}  {target}: {reached}", flush=True)
            out.writerow((row.name, t, peer, peer / t, rate, unit, target, reached))
            f.flush()


if __name__ == "__main__":
    main()
