"""Renders templates here and with jinja2, and compares byte for byte; errors must be errors in
both.

    pip install jinja2 (3.1.6)
    python3 tests/chat/compare.py                       expressions.txt, own templates, 2000 random
            ones
    python3 tests/chat/compare.py --random 10000 --seed 7
    python3 tests/chat/compare.py --templates DIR ...   also every *.jinja below these folders
    python3 tests/chat/compare.py --write               rewrites tests/data/chat

What tgc refuses by name ("is not supported") where jinja2 renders is counted, and listed with -v.
"""
import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import conversations
import generate
import reference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
os.environ["TZ"] = "UTC"
warnings.simplefilter("ignore", SyntaxWarning)


def build():
    out = ROOT / "build" / "chat" / "render"
    out.parent.mkdir(parents=True, exist_ok=True)
    sources = [HERE / "render.c"] + sorted((ROOT / "runtime" / "chat").glob("*.c")) + \
        sorted((ROOT / "runtime" / "util").glob("*.c"))
    headers = list((ROOT / "runtime").glob("*/*.h"))
    if not out.exists() or out.stat().st_mtime < max(f.stat().st_mtime for f in sources + headers):
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-g",
                        "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
                        "-o", out, *sources, "-lcjson", "-lutf8proc", "-lm", "-lpthread"],
                       check=True)
    return out


class Tgc:
    def __init__(self):
        self.p = subprocess.Popen([build()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, case):
        line = json.dumps({**case, "now": reference.NOW}, ensure_ascii=False)
        self.p.stdin.write(line.encode() + b"\n")
        self.p.stdin.flush()
        out = self.p.stdout.readline()
        if not out:
            raise SystemExit("tgc's side ended at: " + line)
        return json.loads(out)


def expected(case):
    try:
        text, spans = reference.render(case)
        return {"text": text, "spans": spans}
    except RecursionError:
        return {"error": "RecursionError"}
    except Exception as e:  # noqa: BLE001
        return {"error": "%s: %s" % (type(e).__name__, e)}


class Score:
    def __init__(self, verbose):
        self.n = self.same = self.errors = 0
        self.refused, self.wrong, self.verbose = {}, [], verbose

    def add(self, name, case, want, got):
        self.n += 1
        if "text" in want and "text" in got:
            ok = want["text"] == got["text"] and want["spans"] == got["spans"]
            self.same += ok
        elif "error" in want and "error" in got:
            ok = True
            self.errors += 1
        elif "error" in got and ("not supported" in got["error"] or "more than" in got["error"]
                                 or "nested deeper" in got["error"]):
            ok = True
            self.refused.setdefault(got["error"].split("error: ")[-1], []).append(name)
        else:
            ok = False
        if not ok:
            self.wrong.append((name, case, want, got))
            if len(self.wrong) <= 15:
                print("WRONG %s\n  template %r\n  jinja2   %r\n  tgc      %r" %
                      (name, case["template"][:300], want, got))
        return ok

    def say(self, what):
        print("%s: %d cases, %d texts equal, %d errors in both, %d refused by name, %d wrong" %
              (what, self.n, self.same, self.errors, sum(map(len, self.refused.values())),
               len(self.wrong)))
        if self.verbose:
            for why, names in sorted(self.refused.items(), key=lambda x: -len(x[1])):
                print("    %5d %s (%s)" % (len(names), why, names[0]))


def expression_cases():
    base = {"conversation": conversations.CONVERSATIONS["pair"],
            "tokens": conversations.TOKENS, "vars": {}, "prompt": True}
    for line in (HERE / "expressions.txt").read_text().splitlines():
        if line.strip():
            yield {"name": line, "template": "{{ %s }}" % line, **base}
    for path in sorted((HERE / "statements").glob("*.jinja")):
        yield {"name": path.name, "template": path.read_text(), **base}


def own_templates():
    return sorted((HERE / "templates").glob("*.jinja"))


def template_cases(paths):
    for path in paths:
        text = path.read_bytes().decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        for case in conversations.cases(text):
            yield {**case, "name": "%s %s" % (path, case["name"])}


def run(tgc, cases, what, verbose):
    score = Score(verbose)
    for case in cases:
        name = case.pop("name")
        score.add(name, case, expected(case), tgc.render(case))
    score.say(what)
    return not score.wrong


def fnv(text):
    h = 14695981039346656037
    for b in text.encode():
        h = (h ^ b) * 1099511628211 % 2**64
    return "%016x" % h


def line(f, **members):
    f.write(json.dumps(members, ensure_ascii=False, separators=(",", ":")) + "\n")


def outcome(case, whole):
    """The text, or where there are many its hash; an error is an error whatever it says."""
    want = expected(case)
    if "error" in want:
        return {"error": True}
    return want if whole else {"fnv": fnv(want["text"]), "spans": want["spans"]}


def write():
    out = ROOT / "tests" / "data" / "chat"
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "expressions.jsonl", "w") as f:
        for case in expression_cases():
            line(f, template=case["template"], **outcome(case, True))
    with open(out / "templates.jsonl", "w") as f:
        for path in own_templates():
            line(f, template=path.read_text(), name=path.stem)
            for case in conversations.cases(path.read_text()):
                conversation, k, prompt = case["name"].split("/")
                whole = k == "0" and prompt == "1"
                line(f, use=conversation, vars=int(k), prompt=prompt == "1",
                     **outcome(case, whole))
    with open(out / "conversations.json", "w") as f:
        json.dump({"now": reference.NOW, "conversations": conversations.CONVERSATIONS,
                   "vars": conversations.VARS, "tokens": conversations.TOKENS}, f,
                  ensure_ascii=False, indent=1)
        f.write("\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--templates", nargs="*", default=[])
    a.add_argument("--random", type=int, default=2000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--write", action="store_true")
    a.add_argument("-v", action="store_true")
    a = a.parse_args()
    if a.write:
        return write()
    tgc, ok = Tgc(), True
    ok &= run(tgc, expression_cases(), "expressions", a.v)
    ok &= run(tgc, template_cases(own_templates()), "own templates", a.v)
    for d in a.templates:
        paths = sorted(p for p in Path(d).rglob("*.jinja"))
        ok &= run(tgc, template_cases(paths), "%s (%d templates)" % (d, len(paths)), a.v)
    ok &= run(tgc, generate.cases(a.seed, a.random), "random", a.v)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
