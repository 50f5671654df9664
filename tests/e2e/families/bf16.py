#!/usr/bin/env python3
"""Errors of bfloat16 next to transformers' own: logits of every folder of tests/data/families over
its prompt of 40 tokens, by tgc on the CPU and by transformers, both in bfloat16, against
transformers in float32.  Relative to the largest logit: the largest difference, and the root of the
mean square.  All experts are taken, for a rounded score may choose others.

    make build/tgc
    python3 tests/e2e/families/bf16.py [NAME ...]              needs torch and transformers; some
            minutes of compiling

Prints NAME, tgc's two, transformers' two.  Fails where tgc's root mean square is above 1.1 of
transformers', or its largest above 2e-2 and twice transformers': the largest of 3,840 rounded
numbers is one draw of many.
"""
import json, os, subprocess, sys, tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

transformers.logging.set_verbosity(50)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../../..")
FAMILIES = f"{TOP}/tests/data/families"


def reference(folder, ids, dtype):
    """Logits, and the parameters by which tgc takes all experts."""
    config, define = AutoConfig.from_pretrained(folder), []
    config._experts_implementation = "eager"
    experts = next((getattr(config, k) for k in ("num_local_experts", "num_experts",
                                                 "n_routed_experts") if getattr(config, k, None)),
                                                 0)
    if experts:
        config.num_experts_per_tok = experts
        define = [f"top_k={experts}"]
        if getattr(config, "topk_group", None):
            config.topk_group = config.n_group
            define += [f"top_group={config.n_group}"]
    how = "sdpa" if config.model_type == "falcon" else "eager"      # eager adds ALiBi twice
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=dtype,
                                                 attn_implementation=how).eval()
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy(), define


def ours(folder, ids, define, work):
    run = lambda *a: subprocess.run([f"{TOP}/build/tgc", *a], check=True, capture_output=True,
                                    text=True)
    with open(f"{work}/ids", "w") as f:
        f.write(" ".join(map(str, ids)))
    run("compile", folder, "--dtype", "bf16", "--target", "cpu", "--mode", "infer", "-o",
        f"{work}/plan", *(x for d in define for x in ("-D", d)))
    run("eval", f"{work}/plan", "--ids", f"{work}/ids", "--logits", f"{work}/logits.npy",
        "--device", "cpu")
    return np.load(f"{work}/logits.npy").astype(np.float64)


worse = []
for name in sys.argv[1:] or sorted(os.listdir(FAMILIES)):
    folder = f"{FAMILIES}/{name}"
    ids = json.load(open(f"{folder}/expected.json"))["prompt_ids"]
    want, define = reference(folder, ids, torch.float32)
    theirs, _ = reference(folder, ids, torch.bfloat16)
    with tempfile.TemporaryDirectory() as work:
        got = ours(folder, ids, define, work)
    want, theirs = want[:len(got)], theirs[:len(got)]
    error = lambda x: (np.abs(x - want).max() / np.abs(want).max(),
                       np.sqrt(((x - want) ** 2).mean()) / np.abs(want).max())
    a, b = error(got), error(theirs)
    print(f"{name} {a[0]:.2e} {a[1]:.2e} {b[0]:.2e} {b[1]:.2e}", flush=True)
    if a[0] > 2e-2 and a[0] > 2 * b[0] or a[1] > 1.1 * b[1]:
        worse.append(name)
if worse:
    sys.exit("worse than transformers: " + ", ".join(worse))
