#!/usr/bin/env python3
"""`tgc eval --kl` against numpy: a text of one window, its logits by two models (--logits), the
protocol's numbers of them.

    python3 tests/e2e/quant/kl.py MODEL BASE IDS            needs numpy; IDS: a file of as many ids
            as the window has, the first the one that begins texts
"""
import json, os, subprocess, sys, tempfile
import numpy as np

TGC = f"{os.path.dirname(os.path.abspath(__file__))}/../../../build/tgc"
model, base, ids = sys.argv[1:]
id = np.array(open(ids).read().split(), int)
n, first = len(id), len(id) // 2
with tempfile.TemporaryDirectory() as d:
    def logits(m):
        subprocess.run([TGC, "eval", m, "--ids", ids, "--logits", f"{d}/x.npy", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        x = np.load(f"{d}/x.npy").astype(np.float64)
        x -= x.max(1, keepdims=True)
        return (x - np.log(np.exp(x).sum(1, keepdims=True)))[first:n - 1]
    p, q = logits(base), logits(model)
got = json.loads(subprocess.run([TGC, "eval", model, "--kl", base, "--ids", ids, "--window", str(n),
                                 "--json", "-q"], check=True,
                                stdout=subprocess.PIPE).stdout)
kl, at = (np.exp(p) * (p - q)).sum(1), np.arange(n - 1 - first)
lp, lq = p[at, id[first + 1:]], q[at, id[first + 1:]]
dp = np.exp(lq) - np.exp(lp)
want = {"perplexity": np.exp(-lq.mean()), "base_perplexity": np.exp(-lp.mean()),
        "perplexity_ratio": np.exp(lp.mean() - lq.mean()), "kl_mean": kl.mean(),
        "kl_median": np.median(kl), "kl_99": np.percentile(kl, 99), "kl_max": kl.max(),
        "dp_mean": dp.mean(), "dp_rms": np.sqrt((dp ** 2).mean()), "dp_5": np.percentile(dp, 5),
        "correlation": np.corrcoef(lp, lq)[0, 1], "same_top": (p.argmax(1) == q.argmax(1)).mean(),
        "tokens": len(kl)}
bad = [k for k, v in want.items() if abs(got[k] - v) > 1e-9 + 1e-7 * abs(v)]
for k, v in want.items():
    print(f"{k:18} {got[k]:.9g} {v:.9g}{' DIFFERS' if k in bad else ''}")
sys.exit(1 if bad else 0)
