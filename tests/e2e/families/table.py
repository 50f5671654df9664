#!/usr/bin/env python3
"""Writes the table of docs/families.md: what test_infer measured of every folder of
tests/data/families.

    make build/tests/test_infer
    VERBOSE=1 build/tests/test_infer > log              some minutes of compiling
    python3 tests/e2e/families/bf16.py > bf16           some more
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
path = f"{TOP}/docs/families.md"
with open(path) as f:
    text = f.read()
begin = text.index("| gpt2 |")
with open(path, "w") as f:
    f.write(text[:begin] + "\n".join(rows) + text[text.index("\n\n", begin):])
