#!/usr/bin/env python3
"""Seeds of the tokenizer targets, made small from tests/data/tokenizers: tests/fuzz/seeds.py"""
import glob
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../data/tokenizers")
FEW = 24


def put(target, name, data):
    folder = os.path.join(HERE, "seeds", target)
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, name), "wb").write(data if isinstance(data, bytes) else data.encode())


def few(model, keep):
    """The vocabulary and merges with only a few tokens, which keep their order."""
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m for m in model["merges"]]
    some = [t for t in tokens if t in keep] + [t for t in tokens if len(t) == 1 and t not in keep][:FEW]
    for a, b in merges:
        if a in some and b in some and len(some) < 2 * FEW:
            some.append(a + b)
    return {t: i for i, t in enumerate(dict.fromkeys(some))}, [m for m in merges if m[0] in some and m[1] in some and m[0] + m[1] in some]


def main():
    for path in sorted(glob.glob(DATA + "/*.json")):
        t = json.load(open(path, encoding="utf-8"))
        keep = {"<unk>", "<s>", "</s>", "<0x41>", "<0xE4>"}
        vocab, merges = few(t["model"], keep)
        t["model"].update(vocab=vocab, merges=merges)
        n = len(vocab)
        for a in t["added_tokens"]:
            a["id"] = vocab.get(a["content"], n)
            n += a["content"] not in vocab
        post = t.get("post_processor") or {}
        for s in post.get("special_tokens", {}).values():
            s["ids"] = [next(a["id"] for a in t["added_tokens"] if a["content"] == s["id"])]
        put("tok_json", os.path.basename(path)[:-5], json.dumps(t, ensure_ascii=False, separators=(",", ":")))
        put("json", os.path.basename(path)[:-5], json.dumps(t["model"], ensure_ascii=len(path) % 2 == 0))
    for name in ("pieces", "pieces_user", "pieces_unk"):
        put("tok_spm", name, open(DATA + "/%s.model" % name, "rb").read())
    data, at, rows = open(DATA + "/pieces.bin", "rb").read(), 4, 0
    while rows < 300:
        at += 8 + struct.unpack_from("<i", data, at + 4)[0]
        rows += 1
    put("tok_llama2c", "pieces", data[:at])
    put("tok_gpt2", "gpt2", open(DATA + "/gpt2/vocab.json", "rb").read() + b"\0" + open(DATA + "/gpt2/merges.txt", "rb").read())
    put("tok_gpt2", "few", '{"a":0,"b":1,"ab":2,"<|endoftext|>":3,"\\u0120":4}\0#version: 0.2\na b\r\n')
    put("tok_ranks", "few", "YQ== 0\nYg== 1\r\nYWI= 2\n\n/////w== 3\n")
    put("tok_char", "few", "\n aAb\u00e9\u4e2d\U0001f600")
    put("json", "few", '[{"a":-0.5e-3,"\\ud83d\\ude00":"\\u0000\\n","b":[[],{},null,true,false]},1e300,12345678901234567890]')


main()
