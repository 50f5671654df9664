#!/usr/bin/env python3
"""Writes docs/families.md of what test_infer measured: every folder of tests/data/families.

    make build/tests/test_infer
    VERBOSE=1 build/tests/test_infer > log                                     some minutes of compiling
    python3 tests/e2e/families/bf16.py > bf16                                  some more
    python3 tests/e2e/families/table.py log ... bf16
"""
import os, re, sys

TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../../..")
COLUMNS = [r" f32: score (\S+)$", r": prompts .* tokens (\S+)$",
           r": cache against whole pass (\S+)$"]
names = re.findall(r"FAMILY\((\w+)\)", open(f"{TOP}/tests/families.def").read())
log = "".join(open(f).read() for f in sys.argv[1:])


def of(name, column):
    found = re.findall(rf"# tests/data/families/{name}{column}", log, re.M)
    return found[-1] if found else "not run"


def bf16(name):
    found = re.findall(rf"^{name}((?: [\d.e-]+){{4}})$", log, re.M)
    return found[-1].split() if found else ["not run"] * 4


rows = [f"| {name} | " + " | ".join([of(name, c) for c in COLUMNS] + bf16(name)) + " |"
        for name in names]
with open(f"{TOP}/docs/families.md", "w") as f:
    f.write("""# Families of Hugging Face folders

Each row is a small random model that transformers made (`tests/data/make_families.py`), compiled by tgc for the CPU. The
numbers are the largest differences of logits.

- whole: a pass over 40 tokens in float32, against transformers; allowed 1e-4.
- prompts: the token after each prompt, read in chunks of 16, against transformers; allowed 1e-4.
- cache: 32 tokens decoded one by one, against a whole pass; allowed 1e-4. The tokens are transformers' where its best
  logit leads by 1e-3.
- bf16: a pass in bfloat16 over 40 tokens, and transformers' own, against transformers in float32; the largest difference
  and the root mean square, relative to the largest logit (`tests/e2e/families/bf16.py`, transformers 5.24). All experts are taken.
  tgc's root mean square is below transformers' in all but Gemma 3, where it is 1% more. Where the largest difference is above
  2e-2, transformers' is as well, but for gpt_oss and gptj, where one of 3,840 logits has it.

DeepSeek V3 adds a correction to its scores to choose experts (`e_score_correction_bias`). It is stored as other parameters
are, in 16 bits with `--dtype bf16` or `f16`, where transformers keeps float32: of experts that lie within its rounding
another may be chosen. Scores and gates stay float32.

Positions of the kinds `longrope` and `dynamic` turn by other factors in texts longer than the original context. A plan has
one set of them, so that keys in the cache and new ones agree. `longrope` has two: the short factors where `--ctx-size` (or
`-D ctx=N`) is within the original context, else the long ones at every length, as vLLM chooses them. So texts longer than the
original context have transformers' logits, and shorter ones where the plan is as short. `dynamic` has other factors at every
length: a context beyond the original is refused, and `-D rope_use=long` takes those of texts of `ctx` tokens, which are
transformers' for texts of that length.

Of config.json 73 to 140 changes of each are in its `changes.json`, which `test_families` compares. Measured on two cores of
an AMD EPYC with `tests/e2e/families/table.py`.

| folder | whole | prompts | cache | bf16 | rms | transformers' bf16 | rms |
| --- | --- | --- | --- | --- | --- | --- | --- |
""" + "\n".join(rows) + "\n")
