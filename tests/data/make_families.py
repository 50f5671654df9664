#!/usr/bin/env python3
"""Writes tests/data/families: a small random model of every family, with the logits and tokens that
transformers gives, and changed configurations of it with theirs.

    make build/tgc build/tests/e2e/families/logits
    python3 tests/data/make_families.py [NAME ...]                 needs torch and transformers

Of each folder: config.json, model.safetensors (float16, 2 or 3 layers), expected.json (40 prompt
ids; a prompt of 16 and the 32 greedy tokens after it, each from a whole pass, with the margin of
the best logit), expected_logits.npy (the prompt's last 8 or all 40 tokens x vocabulary, float32)
and changes.json: a line per change of config.json, with every 12th logit of the last token, or the
key that tgc refuses.  tests/e2e/families/variants.py says what a change is and checks tgc before
its answer is written.
"""
import json, os, shutil, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../e2e/families")
import numpy as np
from reference import ABSENT, BRIEF, FAMILIES, IDS, LLAMA3, Reference, apply, old, variants, write
from variants import Ours, judge

WRONG = []
PROMPT, START, LENGTH, STEP, LAST = 40, 16, 48, 12, 8
# name: family, change of its configuration, as transformers 5 writes it (or as most published files
# are)
MODELS = {f: (f, {}, f not in ("qwen2", "gemma2", "mixtral")) for f in FAMILIES}
MODELS["llama31"] = ("llama", dict(rope_theta=5000.0, rope_scaling=old(LLAMA3, rope_type="llama3")),
                     False)
MODELS["llama_tied_bias"] = (
    "llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True), False)


def greedy(ref):
    ids, margins = IDS[:START], []
    while len(ids) < LENGTH:
        last = ref.logits(ids)[-1]
        order = np.argsort(-last)
        margins.append(round(float(last[order[0]] - last[order[1]]), 6))
        ids = ids + [int(order[0])]
    return ids, margins


def changes(ours, name, family, base, folder, ref):
    """Lines of changes.json: of every key at most two that change the logits, one that does not,
    one refused."""
    out, seen, work = [], {}, tempfile.mkdtemp()
    base_logits = ref.logits(IDS)
    for key, change in variants(family, base):
        config = apply(base, change)
        kind, why = judge(ours, f"{work}/m", config, key, False, base_logits, folder)
        if kind in ("WRONG", "accepted"):
            print(f"{name} {json.dumps(change)}: {kind} {why}", flush=True)
            WRONG.append(change)
        some = (4, 2, 6) if family in BRIEF else (8, 3, 12)
        most = {"used": some[0] if "rope" in str(key) else some[1] if isinstance(key, str)
                    else some[2], "free": family not in BRIEF, "refused": 1}.get(kind, 0)
        count = seen[key, kind] = seen.get((key, kind), 0) + 1
        if count > most:
            continue
        line = {"set": {k: v for k, v in change.items() if v != ABSENT},
                "drop": [k for k, v in change.items() if v == ABSENT]}
        if kind == "refused":
            line["refused"] = [key] if isinstance(key, str) else list(key)
        else:
            new = Reference(f"{work}/m", config)
            if new.shapes != ref.shapes or new.ctx < PROMPT:
                continue
            last = new.logits(IDS[:PROMPT])[-1]
            line["logits"] = [round(float(x), 5) for x in last[::STEP]]
        out.append(json.dumps(line))
    shutil.rmtree(work)
    return out


# Texts longer than the original context, with what tgc must be told: changes of config.json, -D.
FACTORS = dict(factor=4.0, short_factor=[1.0 + i / 10 for i in range(8)],
               long_factor=[2.0 + i / 7 for i in range(8)])
LONGER = {
    "llama": [(dict(rope_scaling=dict(rope_type="dynamic", factor=f), max_position_embeddings=16),
               ["ctx=40", "rope_use=long"]) for f in (2.0, 1.0, 3.5)]
        + [(dict(rope_scaling=dict(rope_type="longrope", original_max_position_embeddings=original,
                                   **FACTORS)), define)
           for original, define in ((16, []), (39, []), (40, ["ctx=40"]), (64, []),
                                    (16, ["rope_use=long"]), (64, ["rope_use=short"]))],}


def longer(name, config):
    """Lines of changes.json of LONGER."""
    out, work = [], tempfile.mkdtemp()
    for change, define in LONGER.get(name, []):
        change = {k: ABSENT if v is None else v for k, v in change.items()}
        new = apply(config, change)
        write(work, new)
        last = Reference(work, new).logits(IDS[:PROMPT])[-1]
        line = {"set": {k: v for k, v in change.items() if v != ABSENT},
                "drop": [k for k, v in change.items() if v == ABSENT]}
        out.append(json.dumps(dict(line, define=define,
                                   logits=[round(float(x), 5) for x in last[::STEP]])))
    shutil.rmtree(work)
    return out


def make(ours, name):
    family, change, new = MODELS[name]
    folder = f"{HERE}/families/{name}"
    base = dict(apply(dict(FAMILIES[family], model_type=family), change))
    write(folder, base)
    ref = Reference(folder, base)
    ref.save(folder)
    os.remove(f"{folder}/generation_config.json")
    os.chmod(f"{folder}/model.safetensors", 0o644)
    if new:
        config = dict(ref.config.to_dict(), architectures=[type(ref.model).__name__],
                      dtype="float16")
        config = json.loads(json.dumps({k: v for k, v in config.items()
                                        if k not in ("_name_or_path",)}, default=str))
    else:
        config = dict(base, architectures=[type(ref.model).__name__], torch_dtype="float16",
                      transformers_version="4.46.0")
    write(folder, config)
    ref = Reference(folder, config)
    ids, margins = greedy(ref)
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({"prompt_ids": IDS[:PROMPT], "greedy_ids": ids, "margins": margins}, f)
        f.write("\n")
    logits = ref.logits(IDS[:PROMPT])
    np.save(f"{folder}/expected_logits.npy", logits[-LAST:] if family in BRIEF else logits)
    lines = changes(ours, name, family, config, folder, ref) + longer(name, config)
    with open(f"{folder}/changes.json", "w") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")
    size = sum(os.path.getsize(f"{folder}/{x}") for x in os.listdir(folder))
    print(f"{name}: {size // 1024} KB, {len(lines)} changes, smallest margin {min(margins)}",
          flush=True)


if __name__ == "__main__":
    tgc = Ours()
    for name in sys.argv[1:] or MODELS:
        make(tgc, name)
    sys.exit(1 if WRONG else 0)
