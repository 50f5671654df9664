#!/usr/bin/env python3
"""Every key of every family's configuration class, changed, against transformers.

    make build/tgc build/tests/e2e/families/logits
    python3 tests/e2e/families/variants.py [-v] [--device] [FAMILY[.KEY] ...]      needs torch and
            transformers

A tiny random model is made of each changed config.json by transformers, in float32 with eager
attention, and by tgc.  Right is: the same logits to 1e-4, or a refusal by `tgc` with exit code 3
that names the key.  What transformers itself refuses must be refused as well.  Sizes left out are
too large to run: there the number of parameters and the context are compared.  logits.c computes in
double precision without kernels, so that a variant takes milliseconds; --device runs `tgc eval` on
the CPU instead (some 10 s each: name a family or a key).  Exit code 1: something is wrong.
"""
import argparse, collections, json, os, re, shutil, subprocess, sys, tempfile

import numpy as np
from reference import FAMILIES, IDS, Reference, apply, difference, variants, write

TGC = os.environ.get("TGC", "build/tgc")
LOGITS = os.environ.get("LOGITS", "build/tests/e2e/families/logits")


class Ours:
    """One process of logits.c, and the command line for refusals."""

    def __init__(self):
        self.p = subprocess.Popen([LOGITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)

    def ask(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        said = ""
        while True:
            answer = self.p.stdout.readline()
            if not answer:
                raise SystemExit(f"logits died at: {line}")
            if re.match(r"ok|error \d", answer):
                return answer.strip() + ("  " + said.strip() if said else "")
            said += answer

    def logits(self, folder, ids):
        answer = self.ask(f"logits {folder} {len(ids)} " + " ".join(map(str, ids)))
        return np.fromfile(f"{folder}/got.f64").reshape(len(ids),
                                                        -1) if answer.startswith("ok") else answer

    @staticmethod
    def on_device(folder, ids):
        open(f"{folder}/ids.txt", "w").write(" ".join(map(str, ids)))
        r = subprocess.run([TGC, "eval", folder, "--ids", f"{folder}/ids.txt", "--logits",
                            f"{folder}/got.npy", "--device", "cpu", "-q"], capture_output=True,
                            text=True)
        return (np.load(f"{folder}/got.npy") if r.returncode == 0
                else f"error {r.returncode} {r.stderr.strip()}")


ALIASES = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "n_embed": "hidden_size",
           "num_attention_heads": "n_head", "num_experts": "num_local_experts"}


def refused(folder, key):
    """By the command, with exit code 3 and the key's name: None, or what it said instead."""
    r = subprocess.run([TGC, "dump", folder, "--graph"], capture_output=True, text=True)
    names = [key] if isinstance(key, str) else list(key)
    names += [ALIASES[k] for k in names if k in ALIASES] + ["d_model"] * ("hidden_size" in names)
    if r.returncode == 3 and any(k in r.stderr for k in names):
        return None
    return f"exit {r.returncode}: {r.stderr.strip()[:200]}"


def judge(ours, folder, config, key, device, base_logits, base_folder):
    """used, free, refused, both refuse, stricter (there, about a key without effect), size,
    accepted, WRONG; and why."""
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, config)
    try:
        ref = Reference(folder, config)
        ids = [i % ref.config.vocab_size for i in IDS][:ref.ctx]
        if ref.model:
            want = ref.logits(ids)
            if not np.isfinite(want).all():
                raise ValueError("logits are not finite")
    # whatever it raises, it does not take this configuration
    except Exception as e:
        why = refused(folder, key)
        if not why:
            return "both refuse", ""
        # a key without effect here may be of a wrong type there
        if base_logits is not None:
            shutil.copy(f"{base_folder}/model.safetensors", folder)
            got = ours.logits(folder, IDS)
            if not isinstance(got, str) and difference(base_logits, got) < 1e-4:
                return "stricter", ""
        return "accepted", f"transformers: {type(e).__name__} {str(e)[:100]!r}; {why}"
    if not ref.model:
        answer, want = ours.ask(f"size {folder}").split(), ["ok", str(ref.size), str(ref.ctx)]
        if answer[0] == "error":
            why = refused(folder, key)
            return ("refused", "") if not why else ("WRONG", why)
        return ("size", "") if answer == want else ("WRONG", f"{answer} instead of {want}")
    answer = ours.ask(f"size {folder}")
    if answer.startswith("error"):
        why = refused(folder, key)
        return ("refused", "") if not why else ("WRONG", why)
    if int(answer.split()[2]) != ref.ctx:
        return "WRONG", f"context {answer.split()[2]} instead of {ref.ctx}"
    ref.save(folder)
    got = ours.on_device(folder, ids) if device else ours.logits(folder, ids)
    if isinstance(got, str):
        return "WRONG", got
    worst = difference(want, got)
    if not worst < 1e-4:
        return "WRONG", f"logits differ by {worst:.2g}"
    same = base_logits is not None and want.shape == base_logits.shape and difference(base_logits,
        want) < 1e-5
    return ("free" if same else "used"), f"{worst:.1g}"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("only", nargs="*")
    a.add_argument("-v", action="store_true")
    a.add_argument("--device", action="store_true")
    a = a.parse_args()
    ours, wrong, totals = Ours(), 0, collections.Counter()
    root = tempfile.mkdtemp(prefix="tgc-variants-")
    folder = f"{root}/m"
    for family, base in FAMILIES.items():
        keys = [o.split(".", 1)[1] for o in a.only if o.startswith(family + ".")]
        if a.only and family not in a.only and not keys:
            continue
        base = dict(base, model_type=family, initializer_range=0.02)
        kind, why = judge(ours, folder, base, "", a.device, None, None)
        counts, by_key = collections.Counter(), {}
        if kind != "used":
            print(f"{family}: the base configuration: {kind} {why}")
            wrong += 1
            continue
        base_logits = Reference(folder, base).logits(IDS)
        base_folder = f"{root}/{family}"
        os.rename(folder, base_folder)
        for key, change in variants(family, base):
            if keys and key not in keys and not (isinstance(key, tuple) and set(key) & set(keys)):
                continue
            kind, why = judge(ours, folder, apply(base, change), key, a.device, base_logits,
                              base_folder)
            counts[kind] += 1
            by_key.setdefault(key if isinstance(key, str) else "several",
                              collections.Counter())[kind] += 1
            if kind in ("WRONG", "accepted") or a.v:
                print(f"  {kind:12} {family} {json.dumps(change)}: {why}", flush=True)
        wrong += counts["WRONG"] + counts["accepted"]
        totals.update(counts)
        print(f"{family}: {sum(counts.values())} variants of {len(by_key)} keys: " +
              ", ".join(f"{n} {k}" for k, n in sorted(counts.items())), flush=True)
        if a.v:
            for key, c in by_key.items():
                print(f"    {key:40} " + ", ".join(f"{n} {k}" for k, n in sorted(c.items())))
    print(f"all: {sum(totals.values())} variants: " + ", ".join(f"{n} {k}"
        for k, n in sorted(totals.items())))
    shutil.rmtree(root)
    print(f"WRONG = {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
