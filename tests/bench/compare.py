"""compare.py: whole workloads, tgc next to PyTorch, on one GPU in one run.

    python3 tests/bench/compare.py --tgc build/tgc [--only NAME,...] [--modes MODE,...] [--quick]
            [--once] [--out DIR]

Prints a table and writes compare.csv, results.json and SVG charts to DIR after every workload, so
that a run that is cut short loses nothing.  Each side's time is the median of three rounds; a round
is the mean over steps or tokens in a row, as many for both sides, after warm-up.  Rounds of tgc (a
process each) and of PyTorch's first mode are in turn, those of its other modes follow; the fastest
mode counts.  Times at other contexts are one round of each side.  The ceilings are measured first:
a copy's bytes a second and the FLOPs a second of an 8192^3 bf16 product.  Needs torch, and nothing
else that Python does not have.
"""
import argparse
import contextlib
import csv
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import svg
import torch
import torch_models
from torch_models import Shape

MODES = ("eager", "compile", "graphs")
ROUNDS = 3


@dataclass
class Workload:
    name: str
    kind: str                   # train, decode
    model: str                  # file in models/
    params: dict                # -D of that file
    shape: Shape                # the same for PyTorch
    target: float = None        # train: least ratio to PyTorch; decode: most ms a token
    dtype: str = "bf16"
    batch: int = 1
    tokens: int = 64            # train: of a window; decode: of the prompt
    contexts: tuple = ()        # decode: also after so many tokens
    modes: tuple = MODES        # in the order of trying, the fastest first by experience
    options: tuple = ()         # tgc's

    def prompt(self, tokens):
        return [] if self.kind == "train" else ["--prompt-tokens", str(tokens)]

    def steps(self, tokens, quick):
        """Of a round: steps, or tokens after `tokens` others, as the context holds them with tgc's
        warm-up."""
        n = 20 if self.kind == "train" and self.batch * self.tokens > 4096 else 200
        n = n if self.kind == "train" else min(n, self.shape.ctx - tokens - 4)
        return max(3, n // 5) if quick else n

    def flags(self):
        f = ["--dtype", self.dtype, "-b", str(self.batch), f"--{self.kind}", *self.options]
        for k, v in self.params.items():
            f += ["-D", f"{k}={v}"]
        return f + (["--block-size", str(self.tokens)] if self.kind == "train" else [])


GPT2 = ("gpt.lua", dict(vocab=50304), Shape(50304, 1024, 768, 12, 12, act="gelu_tanh"))
LLAMA_SHAPE = dict(norm="rms", pos="rope", act="swiglu", bias=False, qkv_bias=False)
LLAMA1B = ("llama.lua", dict(ctx=2048), Shape(128256, 2048, 2048, 16, 32, K=8, F=8192,
                                              **LLAMA_SHAPE))
LLAMA8B = ("llama.lua", dict(ctx=2048, n_layer=32, n_embd=4096, head_dim=128, n_ff=14336,
                             tied="false"),
           Shape(128256, 2048, 4096, 32, 32, K=8, F=14336, tied=False, **LLAMA_SHAPE))
STORIES = ("llama.lua", dict(vocab=32000, ctx=256, n_layer=6, n_embd=288, n_head=6, n_kv_head=6,
                             head_dim=48, n_ff=768, rope_theta=10000),
                             Shape(32000, 256, 288, 6, 6, F=768, **LLAMA_SHAPE))
NAIVE_SHAPE = dict(qkv_bias=False, post_norm=True, tied=False, head_bias=True)
CHAR = ("naive_gpt.lua", dict(vocab=80, dropout=0), Shape(80, 64, 128, 4, 4, **NAIVE_SHAPE))
DENSE = ("naive_moe.lua", dict(dense="true", ctx=512), Shape(95, 512, 768, 12, 8, **NAIVE_SHAPE))
MOE = ("moe.lua", dict(vocab=95, ctx=512, n_layer=12, n_embd=768, n_head=8, n_kv_head=8,
                       head_dim=96, n_ff=3072, n_expert=8, top_k=2),
                       Shape(95, 512, 768, 12, 8, F=3072, experts=8, tied=False, **LLAMA_SHAPE))
MOE_TRAIN = ("moe.lua", dict(vocab=32000, ctx=1024, n_layer=8, n_embd=1024, n_head=16, n_kv_head=16,
                             head_dim=64, n_ff=2048, n_expert=8, top_k=2, aux_coef=0),
             Shape(32000, 1024, 1024, 8, 16, F=2048, experts=8, tied=False, **LLAMA_SHAPE))


def tinylm(ctx):
    return ("tinylm.lua", dict(vocab=65, ctx=ctx),
            Shape(65, ctx, 384, 6, 6, norm="rms", pos="rope", act="silu", bias=False,
                  qkv_bias=False, tied=False))


BIG, SMALL = ("compile", "graphs", "eager"), ("graphs", "compile", "eager")
WORKLOADS = (
    Workload("gpt2-124m-train", "train", *GPT2, target=1.25, batch=32, tokens=1024, modes=BIG),
    Workload("llama-1b-decode", "decode", *LLAMA1B, target=1.0, tokens=512,
             contexts=(64, 1024, 1900), modes=SMALL),
    # PyTorch's products have TF32's factors there (main), so tgc's may
    Workload("char-gpt-train", "train", *CHAR, target=10, dtype="f32", batch=16, tokens=64,
             modes=SMALL, options=("--tf32",)),
    Workload("gpt2-124m-tf32-train", "train", *GPT2, dtype="f32", batch=8, tokens=1024, modes=BIG,
             options=("--tf32",)),
    Workload("gpt2-124m-decode", "decode", *GPT2, target=0.17, contexts=(512, 900), modes=SMALL),
    Workload("llama-1b-train", "train", *LLAMA1B, target=1.2, batch=4, tokens=2048, modes=BIG),
    Workload("moe-train", "train", *MOE_TRAIN, batch=4, tokens=1024, modes=BIG),
    Workload("naive-moe-decode", "decode", *MOE, target=0.3, modes=SMALL),
    Workload("tinylm-train", "train", *tinylm(192), target=5, batch=8, tokens=192, modes=SMALL),
    Workload("tinylm-decode", "decode", *tinylm(512), target=0.05, modes=SMALL),
    Workload("naive-dense-decode", "decode", *DENSE, target=0.15, modes=SMALL),
    Workload("stories15m-decode", "decode", *STORIES, target=0.05, tokens=8, modes=SMALL),
    Workload("gpt2-124m-decode-batch8", "decode", *GPT2, batch=8, modes=SMALL),
    Workload("llama-1b-decode-batch8", "decode", *LLAMA1B, batch=8, tokens=512, modes=SMALL),
    Workload("llama-8b-decode", "decode", *LLAMA8B, target=5.9, tokens=512, modes=SMALL),
)


@dataclass
class Row:
    """What was measured of a workload; what could not be says why in errors."""
    w: Workload
    # ms, rounds, cold_s, warm_s, memory_bytes, contexts, kernels, load
    tgc: dict = field(default_factory=dict)
    torch: dict = field(default_factory=dict)   # mode: ms, rounds, first_s, memory_bytes, contexts
    errors: list = field(default_factory=list)

    def best(self):
        return min(self.torch, key=lambda m: self.torch[m]["ms"], default=None)

    def ratio(self):
        return self.torch[self.best()]["ms"] / self.tgc[
            "ms"] if self.torch and "ms" in self.tgc else None

    def share(self, copy, flops):
        """Of the machine's ceiling: weights read once, or all products at the product's rate."""
        if "ms" not in self.tgc:
            return None
        s = self.w.shape
        if self.w.kind == "train":
            floor = s.train_flops(self.w.batch, self.w.tokens) / flops
        else:
            floor = s.weights()[1] * (4 if self.w.dtype == "f32" else 2) / copy
        return floor / (self.tgc["ms"] * 1e-3)

    def reached(self):
        got = self.ratio() if self.w.kind == "train" else self.tgc.get("ms")
        if got is None or self.w.target is None:
            return ""
        return "yes" if (got >= self.w.target if self.w.kind == "train"
                         else got <= self.w.target) else "no"


class Compare:
    def __init__(self, a):
        self.a, self.rows, self.start = a, [], time.monotonic()
        self.models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")
        self.copy, self.flops = torch_models.ceilings()
        p = torch.cuda.get_device_properties(0)
        self.machine = (
            f"{p.name}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}; copy "
            f"{self.copy / 1e12:.2f} TB/s, bf16 8192^3 product {self.flops / 1e12:.0f} TFLOP/s")

    def time_left(self):
        return not self.a.budget or time.monotonic() - self.start < self.a.budget

    # ---- tgc ----

    def bench(self, row, cache, *more):
        """tgc bench's JSON, or None and an error in the row."""
        w = row.w
        command = [self.a.tgc, "bench", os.path.join(self.models, w.model), *w.flags(), "--device",
                   "cuda", "--json"]
        try:
            r = subprocess.run(command + list(more), capture_output=True, text=True,
                               timeout=self.a.timeout, env={**os.environ, "TGC_CACHE_DIR": cache})
            if r.returncode == 0:
                return json.loads(r.stdout)
            why = f"status {r.returncode}: {r.stderr.strip()[-600:]}"
        except subprocess.TimeoutExpired:
            why = f"took more than {self.a.timeout} s"
        except (OSError, ValueError) as e:
            why = str(e)
        row.errors.append(f"tgc bench {w.model} {' '.join(w.flags())} {' '.join(more)}: {why}")
        return None

    def round_tgc(self, row, cache):
        """One process: its mean is a round; the first one says where the time goes too.  False: it
        failed."""
        w, t = row.w, row.tgc
        first = "rounds" not in t
        r = self.bench(row, cache, "-r", str(w.steps(w.tokens, self.a.quick)), *w.prompt(w.tokens),
                       *(["--kernels"] if first else []))
        if not r:
            return False
        load = r["compile_s"] + r["open_s"]
        if first:
            t.update(bench=r[w.kind], cold_s=load, load=r["load"], memory_bytes=r["memory_bytes"])
            t["kernels"] = [k for name in ("step", "update", "decode")
                            for k in r.get(name + "_kernels", [])]
        else:
            t["warm_s"] = load
        add_round(t, r[w.kind]["mean_ms"])
        return True

    def context_tgc(self, row, cache, c):
        r = self.bench(row, cache, "-r", str(row.w.steps(c, self.a.quick)), *row.w.prompt(c))
        if r:
            row.tgc.setdefault("contexts", {})[c] = r[row.w.kind]["mean_ms"]

    # ---- PyTorch ----

    def modes(self, w):
        return [m for m in w.modes if m in self.a.modes or "first" in self.a.modes
                and m == w.modes[0]]

    def peer(self, row, mode):
        """Its model, ready for rounds, or None and an error in the row."""
        w = row.w
        with tried(row, mode):
            if w.kind == "train":
                return torch_models.train(w.shape, w.batch, w.tokens, w.dtype, mode)
            return torch_models.decode(w.shape, w.batch, w.tokens, w.dtype, mode)

    def round_torch(self, row, mode, peer):
        with tried(row, mode):
            ms = peer.ms(row.w.steps(row.w.tokens, self.a.quick), row.w.tokens)
            t = row.torch.setdefault(mode, {"first_s": peer.first_s})
            add_round(t, ms)
            t["memory_bytes"] = torch.cuda.max_memory_allocated()

    def context_torch(self, row, mode, peer, c):
        with tried(row, mode):
            ms = peer.ms(row.w.steps(c, self.a.quick), c)
            row.torch[mode].setdefault("contexts", {})[c] = ms

    # ---- both ----

    def in_turn(self, row, cache, mode):
        """Rounds of tgc and of a mode of PyTorch's, or of tgc alone without one."""
        peer, runs = self.peer(row, mode) if mode else None, True
        for _ in range(ROUNDS):
            runs = runs and self.round_tgc(row, cache)
            if peer:
                self.round_torch(row, mode, peer)
        for c in () if self.a.once else row.w.contexts:
            if runs and self.time_left():
                self.context_tgc(row, cache, c)
            if mode in row.torch and self.time_left():
                self.context_torch(row, mode, peer, c)

    def alone(self, row, mode):
        peer = self.peer(row, mode)
        for _ in range(ROUNDS if peer else 0):
            self.round_torch(row, mode, peer)

    def measure(self, row):
        modes = self.modes(row.w) or [None]
        torch_models.clean()
        with contextlib.nullcontext(
                self.a.cache) if self.a.cache else tempfile.TemporaryDirectory() as cache:
            self.in_turn(row, cache, modes[0])
        for mode in modes[1:]:
            if self.time_left():
                self.alone(row, mode)
        torch_models.clean()

    # ---- reports ----

    def table(self):
        head = ("workload", "tgc ms", "PyTorch ms", "mode", "ratio", "of ceiling", "target",
                "reached", "GiB", "its GiB", "cold s", "warm s")
        lines = [head]
        for r in self.rows:
            best = r.torch.get(r.best(), {})

            def f(x, digits=3):
                return "" if x is None else f"{x:.{digits}f}"

            def gib(d):
                return f(d["memory_bytes"] / 2**30, 2) if "memory_bytes" in d else ""
            share = r.share(self.copy, self.flops)
            target = ("" if r.w.target is None else f">= {r.w.target:g}x" if r.w.kind == "train"
                      else f"<= {r.w.target:g} ms")
            lines.append((r.w.name, f(r.tgc.get("ms")), f(best.get("ms")), r.best() or "",
                          f(r.ratio(), 2), "" if share is None else f"{share:.0%}", target,
                          r.reached(), gib(r.tgc), gib(best), f(r.tgc.get("cold_s"), 2),
                          f(r.tgc.get("warm_s"), 2)))
        return lines

    def show(self):
        lines = self.table()
        width = [max(len(x[i]) for x in lines) for i in range(len(lines[0]))]
        print(self.machine)
        for x in lines:
            cells = (c.ljust(n) if i in (0, 3) else c.rjust(n)
                     for i, (c, n) in enumerate(zip(x, width)))
            print("  ".join(cells).rstrip())
        print(
            f"ms: of a step, or of a token of each sequence; the median of {ROUNDS} rounds on both "
            f"sides, tgc's (a process each) and PyTorch's in turn\n    (its modes after the first "
            f"alone), a round the mean of as many steps or tokens in a row")
        for r in self.rows:
            for e in r.errors:
                print(f"{r.w.name}: {e}")

    def write(self):
        def put(name, content):
            with open(os.path.join(self.a.out, name), "w") as f:
                f.write(content)
        with open(os.path.join(self.a.out, "compare.csv"), "w", newline="") as f:
            csv.writer(f).writerows(self.table())
        put("results.json", json.dumps({"machine": self.machine, "rows": [
            {"workload": r.w.name, "tgc": r.tgc, "torch": r.torch, "errors": r.errors}
            for r in self.rows]}, indent=1))
        put("ratios.svg", svg.bars("PyTorch's time to tgc's; dashed: as fast", [
            (r.w.name, r.ratio(), f"{r.ratio():.2f}x, {r.tgc['ms']:.3f} ms") for r in self.rows
            if r.ratio()], 1))
        put("contexts.svg", svg.plot("Milliseconds a token by context", "tokens before", "ms", [
            (f"{r.w.name[:-7]} {side}", [(r.w.tokens, d["ms"])] + list(d["contexts"].items()))
            for r in self.rows if r.w.contexts
            for side, d in (("tgc", r.tgc), ("PyTorch", r.torch.get(r.w.modes[0], {})))
            if d.get("contexts")]))
        bars = []
        for r in self.rows:
            k = sorted(r.tgc.get("kernels", []), key=lambda k: -k["ms"])
            total = sum(x["ms"] for x in k)
            bars += [(f"{r.w.name}: {total:.3f} ms in "
                      f"{sum(x['launches'] for x in k)} launches",)] if k else []
            bars += [(label(x), x["ms"] / total, f"{x['ms']:.3f} ms, {x['launches']}x")
                     for x in k[:8]]
        put("kernels.svg", svg.bars("Where the time goes: share of each program's kernels", bars))
        points = [(r.w.name, [(k["flops"] / k["bytes"], k["flops"] * k["launches"] / k["ms"] / 1e9)
                              for k in r.tgc.get("kernels", [])
                              if min(k["flops"], k["bytes"], k["ms"]) > 0])
                  for r in self.rows]
        ridge = self.flops / self.copy
        roof = [(1e-3, self.copy * 1e-15), (ridge, self.flops / 1e12), (1e6, self.flops / 1e12)]
        put("roofline.svg", svg.plot("Kernels under the roof", "FLOPs per byte",
                                     "TFLOP/s", [p for p in points if p[1]], log=True, joined=False,
                                     roofs=[roof]))

    def run(self):
        for w in WORKLOADS:
            if self.a.only and not any(o in w.name for o in self.a.only):
                continue
            if not self.time_left():
                print(f"{w.name}: not begun, the budget is spent")
                continue
            row = Row(w)
            self.rows.append(row)
            begun = time.monotonic()
            self.measure(row)
            self.write()
            peer = ", ".join(f"{m} {r['ms']:.3f} ms" for m, r in row.torch.items())
            print(f"{w.name}: tgc {row.tgc.get('ms', 0):.3f} ms, {row.tgc.get('load')}; PyTorch "
                  f"{peer}; measured in {time.monotonic() - begun:.0f} s", *row.errors, sep="\n  ",
                  flush=True)
        self.show()


@contextlib.contextmanager
def tried(row, mode):
    """What fails, out of memory or a compiler, is told in the row: the others are measured
    still."""
    try:
        yield
    except Exception as e:
        why = f"PyTorch {mode}: {type(e).__name__}: {str(e)[:300]}"
        row.errors += [] if why in row.errors else [why]        # of three rounds, once


def add_round(side, ms):
    side.setdefault("rounds", []).append(ms)
    side["ms"] = statistics.median(side["rounds"])


def label(kernel):
    name, title = kernel["kernel"], kernel["title"]
    return name if name.endswith(title) else f"{name} {title}"


def words(s):
    return s.split(",")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                epilog=__doc__.split("\n\n")[2],
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tgc", default="build/tgc", help="the program")
    p.add_argument("--only", type=words, help="workloads whose names contain one of these")
    p.add_argument(
        "--modes", type=words, default=MODES,
        help="PyTorch's: eager, compile, graphs; first: each workload's fastest by experience")
    p.add_argument("--quick", action="store_true", help="few steps a round")
    p.add_argument("--once", action="store_true",
                   help="short: the same rounds, but no other contexts")
    p.add_argument("--budget", type=float, default=0,
                   help="begin nothing new after so many seconds")
    p.add_argument("--cache", metavar="DIR",
                   help="keep compiled kernels there; the first load is then no cold one")
    p.add_argument("--timeout", type=float, default=300, help="seconds for one tgc bench")
    p.add_argument("--out", default="build/compare", help="where results go")
    a = p.parse_args()
    if not torch.cuda.is_available():
        p.exit(4, "compare.py: PyTorch finds no GPU\n")
    os.makedirs(a.out, exist_ok=True)
    torch.set_float32_matmul_precision("high")          # PyTorch may use TF32 as tgc does by --tf32
    Compare(a).run()


main()
