#!/usr/bin/env python3
"""First seeds of the targets, made small from files of tests/ and models/ (and plans of build/tgc):
tests/fuzz/seeds.py"""
import glob
import json
import os
import random
import re
import struct
import subprocess
import tempfile

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
    merges = [m for m in model.get("merges", [])]
    some = [t for t in tokens if t in keep] + [t for t in tokens if len(t) == 1
                                               and t not in keep][:FEW]
    for a, b in merges:
        if a in some and b in some and len(some) < 2 * FEW:
            some.append(a + b)
    return {t: i for i, t in enumerate(dict.fromkeys(some))}, [m for m in merges if m[0] in some
        and m[1] in some and m[0] + m[1] in some]


def parts(model, pre, pieces, kinds, scores=None, merges=(), charsmap=b"", ids=(1, 0, -1),
          flags=(-1, -1, -1, -1, -1), eos=(2,)):
    """The blob of runtime/tokenizer/tok_parts.c."""
    text = lambda list: b"".join(s.encode() for s in list)
    head = [len(model), len(pre), len(pieces), len(merges), len(charsmap), scores is not None, 1,
            *ids, *flags, len(eos), *eos]
    data = b"tgcparts" + struct.pack("<24i", *head, *[0] * (24 - len(head)))
    data += b"".join(struct.pack("<I", len(s.encode())) for s in [*pieces, *merges])
    data += struct.pack("<%df" % len(pieces), *scores) if scores is not None else b""
    return data + bytes(kinds) + charsmap + (model + pre).encode() + text(pieces) + text(merges)


def main():
    pieces = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581a", "\u4e2d",
              "<|x|>", ""]
    kinds = [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 5]
    put("tok_parts", "llama", parts("llama", "", pieces,
                                    kinds, [0.0] * 4 + [-float(i) for i in range(8)]))
    pieces = ["\u0120", "a", "b", "ab", "\u0120a", "1", "2", "12", "!", "\u010a", "A", "e", "<|x|>"]
    for name in ("gpt-2", "llama-bpe", "deepseek-llm", "falcon"):
        put("tok_parts", name, parts("gpt2", name, pieces, [1] * 12 + [3],
                                     None, ["a b", "\u0120 a", "1 2"], ids=(12, -1, -1), eos=(12,)))
    for path in sorted(glob.glob(DATA + "/*.json")):
        t = json.load(open(path, encoding="utf-8"))
        keep = {"<unk>", "<s>", "</s>", "<0x41>", "<0xE4>", "[UNK]", "[CLS]", "[SEP]"}
        if t["model"]["type"] == "Unigram":
            t["model"]["vocab"] = t["model"]["vocab"][:2 * FEW] + [[s, -9]
                for s in ("<0x41>", "<0xE4>")]
            vocab = {p: i for i, (p, _) in enumerate(t["model"]["vocab"])}
        else:
            vocab, merges = few(t["model"], keep)
            t["model"].update(vocab=vocab, **({"merges": merges} if "merges" in t["model"] else {}))
        n = len(vocab)
        for a in t["added_tokens"]:
            a["id"] = vocab.get(a["content"], n)
            n += a["content"] not in vocab
        post = t.get("post_processor") or {}
        for s in post.get("special_tokens", {}).values():
            s["ids"] = [next(a["id"] for a in t["added_tokens"] if a["content"] == s["id"])]
        put("tok_json", os.path.basename(path)[:-5],
            json.dumps(t, ensure_ascii=False, separators=(",", ":")))
        put("json", os.path.basename(path)[:-5], json.dumps(t["model"],
                                                            ensure_ascii=len(path) % 2 == 0))
    put("tok_bert", "few",
        '{"do_lower_case":true}\0[UNK]\n[CLS]\n[SEP]\na\n##b\n##c\nab\r\n\u4e2d\n!\n')
    put("tok_bert", "bare", "\0[UNK]\nab\n##1\n")
    put("tok_parts", "bert", parts("bert", "", ["[UNK]", "[CLS]", "[SEP]", "\u2581ab", "b",
                                                "\u2581a", "12", "\u2581\u4e2d"], [2, 3, 3, 1, 1, 1,
                                                    1, 1],
                                   ids=(1, 0, 2)))
    put("tok_parts", "t5", parts("t5", "", ["<pad>", "</s>", "<unk>", "\u2581", "a", "b",
                                            "\u2581ab", "<x>"], [3, 3, 2, 1, 1, 1, 1, 4],
                                 [0., 0., 0., -2., -3., -4., -5., 0.],
                                 charsmap=struct.pack("<IIII", 12, 1 << 10, 0x161, 0) + b"b\0",
                                 ids=(-1, 2, -1), eos=(1,)))
    for name in ("pieces", "pieces_user", "pieces_unk", "spm_unigram", "spm_bytes", "spm_plain",
                 "spm_bpe"):
        put("tok_spm", name, open(DATA + "/%s.model" % name, "rb").read())
    data, at, rows = open(DATA + "/pieces.bin", "rb").read(), 4, 0
    while rows < 300:
        at += 8 + struct.unpack_from("<i", data, at + 4)[0]
        rows += 1
    put("tok_llama2c", "pieces", data[:at])
    put("tok_gpt2", "gpt2", open(DATA + "/gpt2/vocab.json", "rb").read() + b"\0"
        + open(DATA + "/gpt2/merges.txt", "rb").read())
    put("tok_gpt2", "few",
        '{"a":0,"b":1,"ab":2,"<|endoftext|>":3,"\\u0120":4}\0#version: 0.2\na b\r\n')
    put("tok_ranks", "few", "YQ== 0\nYg== 1\r\nYWI= 2\n\n/////w== 3\n")
    put("tok_train", "few", "ab aab <|x|>aaaa aaaa, don't 12 12\n\n  \u4e2d\u6587 \u00e9<|x|>")
    put("tok_train", "bytes", bytes(range(256)) + b"\xff\xfe\xe4\xb8 the the then")
    put("tok_char", "few", "\n aAb\u00e9\u4e2d\U0001f600")
    put("json", "few",
        '[{"a":-0.5e-3,"\\ud83d\\ude00":"\\u0000\\n","b":[[],{},null,true,false]},1e300,'
        '12345678901234567890]')


def one(*path):
    return open(os.path.join(HERE, "..", *path), encoding="utf-8").read()


SMALL = """local b = require "blocks"
return { name = "m", params = { vocab = 5, C = 4, n_layer = 1, ctx = 6 }, graph = function(p)
 local ids, targets = b.inputs()
 local x = b.embedding(ids, "tok", p.vocab, p.C, { std = 1 })
 for i = 1, p.n_layer do x = x + b.linear(b.rmsnorm(x, "n" .. i, { eps = 1e-5 }):silu(), \
"l" .. i, p.C, { bias = true }) end
 return b.outputs(b.linear(x, "head", p.vocab, {}), targets)
end }
"""


def safetensors(head, data=b"", hash=False):
    return json.dumps(head, separators=(",", ":")).encode() + b"\0" + data


def imatrix_seeds():
    put("imatrix", "dat", struct.pack("<ii3sii4f", 1, 3, b"a.w", 2, 4, 2, 4, 6,
                                      8) + struct.pack("<ii", 1, 1) + b"t")
    put("imatrix", "gguf",
        gguf({"general.type": (8, "imatrix")}, [("a.w.in_sum2", 0, [4, 1],
                                                 struct.pack("<4f", 1, 2, 3, 4)), ("a.w.counts",
                                                     0, [1, 1], struct.pack("<f", 2))]))


def quant_seeds():
    """A layer of each kind of quantised folder, all bytes 1."""
    size = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}
    ct = lambda **kw: {"quant_method": "compressed-tensors",
                       "config_groups": {"a": {"weights": kw}}}
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "shape": [8, 16],
                        "nested_blocksize": 256, "nested_offset": 0.5}).encode()
    nf4 = {"weight": ("U8", 64, 1), "weight.absmax": ("F32", 2), "weight.quant_map": ("F32", 16),
           "weight.quant_state.bitsandbytes__nf4": ("U8", len(state))}
    nested = {**nf4, "weight.absmax": ("U8", 2), "weight.nested_absmax": ("F32", 1),
              "weight.nested_quant_map": ("F32", 256)}
    gptq = {"qweight": ("I32", 4, 8), "qzeros": ("I32", 2, 1), "scales": ("F16", 2, 8),
            "g_idx": ("I32", 32), "bias": ("F16", 8)}
    kinds = {
        "nf4": ({"quant_method": "bitsandbytes"}, nf4),
        "nf4_nested": ({"quant_method": "bitsandbytes"}, nested),
        "int8": ({"quant_method": "bitsandbytes"}, {"weight": ("I8", 8, 8), "SCB": ("F32", 8)}),
        "gptq": ({"quant_method": "gptq", "bits": 4}, gptq),
        "gptq_v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, gptq),
        "gptq_3": ({"quant_method": "gptq", "bits": 3},
                   {**gptq, "qweight": ("I32", 3, 32), "qzeros": ("I32", 2, 3),
                    "scales": ("F16", 2, 32)}), "awq": ({"quant_method": "awq", "version": "gemm"},
                                                        {"qweight": ("I32", 16, 1),
                                                         "qzeros": ("I32", 2, 1),
                                                         "scales": ("F16", 2, 8)}),
                                                         "ct_int4": (ct(num_bits=4),
                                                             {"weight_packed": ("I32", 8, 2),
                                                                 "weight_scale": ("BF16", 8, 2),
                                                                     "weight_zero_point": ("I32", 1,
                                                                         2),
                                     "weight_g_idx": ("I32", 16), "weight_shape": ("I64", 2)}),
        "ct_int8": (ct(num_bits=8), {"weight": ("I8", 8, 8), "weight_scale": ("F32", 8, 1),
                                     "weight_zero_point": ("I8", 8, 1)}),
        "ct_block": (ct(num_bits=8, block_structure=[4, 4]),
                     {"weight": ("F8_E4M3", 6, 8), "weight_scale": ("F32", 2, 2)}),
        "ct_nvfp4": (ct(num_bits=4), {"weight_packed": ("U8", 4, 16),
                                      "weight_scale": ("F8_E4M3", 4, 2),
                                      "weight_global_scale": ("F32", 1)}),
        "fp8": ({"quant_method": "fp8", "weight_block_size": [4, 4]},
                {"weight": ("F8_E4M3", 6, 8), "weight_scale_inv": ("F32", 2, 2)}),
        "mxfp4": ({"quant_method": "mxfp4"}, {"_blocks": ("U8", 2, 3, 1, 16),
                                              "_scales": ("U8", 2, 3, 1)}),
    }
    for name, (config, parts) in kinds.items():
        head, at, data = {}, 0, b""
        for part, (dtype, *shape) in parts.items():
            n = size[dtype]
            for d in shape:
                n *= d
            key = "a" + part if part[0] == "_" else "a." + part
            head[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
            at += n
            data += state if "quant_state" in part else struct.pack("<2q", 8,
                16) if dtype == "I64" else bytes([
                    1]) * n if dtype != "I32" or "g_idx" not in part else bytes(n)
        put("quant_folder", name, json.dumps({"quantization_config": config},
                                             separators=(",", ":")).encode() + b"\0"
                                             + json.dumps(head, separators=(",", ":")).encode()
                                             + b"\0" + data)


def gguf(keys, tensors, version=3, alignment=32):
    """A GGUF file: keys {name: (type, value)}, tensors [(name, type, dims, bytes)]; dims begin with
    the contiguous one."""
    text = lambda s: struct.pack("<Q", len(s)) + s
    flat = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}

    def value(t, v):
        if t == 8:
            return text(v.encode())
        if t == 9:
            return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
        return struct.pack(flat[t], v)

    head, data = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)), b""
    for k, (t, v) in keys.items():
        head += text(k.encode()) + struct.pack("<I", t) + value(t, v)
    for name, t, dims, b in tensors:
        data += bytes(-len(data) % alignment)
        head += text(name.encode()) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, t,
                                                  len(data))
        data += b
    return head + bytes(-len(head) % alignment) + data


def gguf_seeds():
    r = random.Random(1)
    some = lambda n: bytes(r.randrange(256) for _ in range(n))
    f32 = lambda n: struct.pack("<%df" % n, *[1.0] * n)
    sizes = {"context_length": (4, 16), "embedding_length": (4, 32), "block_count": (4, 1),
             "feed_forward_length": (4, 32), "attention.head_count": (4, 2)}
    rms, eps = {"attention.layer_norm_rms_epsilon": (6, 1e-5)}, {"attention.layer_norm_epsilon": (6,
        1e-5)}

    def model(arch, keys, layer, tok={}, norm="output_norm"):
        outer = [("token_embd.weight", 2, [32, 6], some(6 * 18)), (norm + ".weight", 0, [32],
            f32(32))]
        names = {"general.architecture": (8, arch), "general.quantization_version": (4, 2)}
        put("gguf", arch,
            gguf({**names, **{arch + "." + k: v for k, v in {**sizes, **keys}.items()}, **tok},
                 outer + layer))

    q8 = lambda name, n, k=32: ("blk.0." + name, 8, [k, n], some(n * k // 32 * 34))
    norm = lambda name: ("blk.0." + name, 0, [32], f32(32))
    att = [norm("attn_norm.weight"), q8("attn_q.weight", 32), q8("attn_k.weight", 32),
           q8("attn_v.weight", 32), q8("attn_output.weight", 32)]
    mlp = [norm("ffn_norm.weight"), q8("ffn_gate.weight", 32), q8("ffn_up.weight", 32),
           q8("ffn_down.weight", 32)]
    spm = {"tokenizer.ggml.model": (8, "llama"),
           "tokenizer.ggml.tokens": (9, (8, ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a"])),
           "tokenizer.ggml.scores": (9, (6, [0, 0, 0, -1, -2, -3])),
           "tokenizer.ggml.token_type": (9, (5, [2, 3, 3, 1, 1, 1])),
           "tokenizer.ggml.bos_token_id": (4, 1), "tokenizer.ggml.eos_token_id": (4, 2),
           "tokenizer.chat_template": (8, "{{ x }}")}
    bpe = {"tokenizer.ggml.model": (8, "gpt2"), "tokenizer.ggml.pre": (8, "gpt-2"),
           "tokenizer.ggml.tokens": (9, (8, ["a", "b", "ab", "\u0120", "\u0120a", "<|x|>"])),
           "tokenizer.ggml.merges": (9, (8, ["a b", "\u0120 a"]))}
    model("llama", {**rms, "attention.head_count_kv": (9, (4, [2])),
                    "rope.dimension_count": (4, 16)},
          att + mlp + [("rope_freqs.weight", 0, [8], f32(8))], spm)
    model("gemma2", {**rms, "attention.sliding_window": (4, 8)},
          att + mlp + [norm("post_attention_norm.weight"), norm("post_ffw_norm.weight")])
    last = [("output_norm.bias", 0, [32], f32(32))]
    bias = lambda name, n=32: ("blk.0." + name + ".bias", 0, [n], f32(n))
    qkv = last + [norm("attn_norm.weight"), norm("attn_norm.bias"), q8("attn_qkv.weight", 96),
                  q8("attn_output.weight", 32),
           q8("ffn_up.weight", 32), q8("ffn_down.weight", 32)]
    model("falcon", {**eps, "attention.head_count_kv": (4, 2)}, qkv)
    model("gpt2", eps, qkv + [norm("ffn_norm.weight"), norm("ffn_norm.bias"), bias("attn_qkv", 96),
                              bias("attn_output"), bias("ffn_up"),
                              bias("ffn_down"), ("position_embd.weight", 1, [32, 16], some(1024))],
                              bpe)
    put("gguf", "blocks",
        gguf({}, [("t%d" % t, t, [256], some(n)) for t, n in ((10, 84), (12, 144), (14, 210), (39,
            136), (40, 144))]))
    words = {"tokenizer.ggml.model": (8, "bert"), "tokenizer.ggml.cls_token_id": (4, 1),
             "tokenizer.ggml.seperator_token_id": (4, 2),
             "tokenizer.ggml.tokens": (9, (8, ["[UNK]", "[CLS]", "[SEP]", "\u2581a", "a",
                                               "\u2581A"])),
                                               "tokenizer.ggml.token_type": (9, (5, [3, 3, 3, 1, 1,
                                                   1])),
                                                   "tokenizer.ggml.normalizer.lowercase": (7, True)}
    both = lambda name, n=32: [(name + ".weight", 0, [n], f32(n)), (name + ".bias", 0, [n], f32(n))]
    model("bert", {**eps, "attention.causal": (7, False), "pooling_type": (4, 2)},
          [("token_embd_norm.bias", 0, [32], f32(32)), ("token_types.weight", 1, [32, 2],
                                                        some(128)),
           ("position_embd.weight", 1, [32, 16], some(1024)), *both("blk.0.attn_output_norm"),
           *both("blk.0.layer_output_norm")] +
          [x for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")
           for x in (q8(n + ".weight", 32), bias(n))],
          words, "token_embd_norm")
    model("nomic-bert", {**eps, "attention.causal": (7, False), "pooling_type": (4, 1),
                         "rope.freq_base": (6, 1000.0)},
          [("token_embd_norm.bias", 0, [32], f32(32)), ("token_types.weight", 1, [32, 2],
                                                        some(128)),
           *both("blk.0.attn_output_norm"), *both("blk.0.layer_output_norm"),
           q8("attn_qkv.weight", 96), q8("attn_output.weight", 32), q8("ffn_up.weight", 32),
           q8("ffn_gate.weight", 32), q8("ffn_down.weight", 32)],
          {**words, "tokenizer.ggml.pre": (8, "jina-v2-en")}, "token_embd_norm")


def readers():
    gguf_seeds()
    quant_seeds()
    imatrix_seeds()
    put("continuations", "ids",
        '{"prompt_ids":[1,2,3],"continuation_ids":[4,5],"doc":{"a":[1]}}\n\n'
        '{"prompt_ids":[1,2,3,4,5,6,7],"continuation_ids":[8,9,499]}\r\n')
    put("continuations", "texts",
        '{"prompt":"a \\u00e9","continuation":" b"}\n{"prompt":"","continuation":"x"}')
    put("continuations", "numbers", '{"prompt_ids":[1.5,-2],"continuation_ids":[]}')
    put("records", "kinds",
        '{"prompt": "a b", "completion": "c"}\n{"messages": [{"role": "user", "content": "x"}, '
        '{"role": "assistant", "content": "y z"}], "tools": []}\n\n'
        '{"text": "plain"}\r\n')
    put("records", "list",
        '[{"q": "a\\"b", "a": "c"},\n {"q": "d", "a": "e"}]\0prompt=q,completion=a')
    put("records", "pairs",
        '{"prompt": "a b", "chosen": "c", "rejected": "d e"}\n{"chosen": [{"role": "user", '
        '"content": "x"}, {"role": "assistant", "content": "y"}], "rejected": [{"role": "user", '
        '"content": "x"}, {"role": "assistant", "content": "z"}]}')
    put("records", "prompts", '{"prompt": "a b"}\n{"prompt": "c", "completion": "d"}\n')
    put("records", "wrong", '{"messages": [{"role": "assistant", "content": ""}]}')
    put("token_bin", "nanogpt", struct.pack("<5H", 1, 2, 3, 4, 50256))
    put("token_bin", "llmc", struct.pack("<256i3H", 20240520, 1, 3, *[0] * 253, 7, 8, 9))
    put("token_bin", "llama3", struct.pack("<256i2I", 20240801, 7, 2, *[0] * 253, 7, 128000))
    put("token_bin", "short", struct.pack("<256i3H", 20240520, 1, 4, *[0] * 253, 7, 8, 9))
    """Those of models, weights, plans and the command line."""
    for name in ("ok_no_ids", "ok_order", "unfed_input", "many_nodes", "map_rows", "concat_bomb",
                 "no_metatables", "slice_range"):
        put("lua", name, one("read", name + ".lua"))
    put("lua", "small", SMALL)
    for name in ("smoothing", "distill", "dpo", "grpo", "polychromic"):
        put("objective", name, open(os.path.join(HERE, "../../models", name + ".lua"), "rb").read())
    put("objective", "own",
        'local t, o = require "texts", require "objective"\nreturn { params = { weight = 2.0 }, '
        'data = "prompts", feeds = { "advantage", "member" },\n'
        'loss = function(m, p) return { loss = o.mean(m.nll * m.advantage * p.weight), ce = '
        'o.mean(m.nll) } end,\n'
        'reward = function(c, p) print(c.ids[1]) return t.distinct({ c.text }, 1) + t.self_bleu({ '
        'c.text, "b c d" }, 2) end,\n'
        'group = function(g) return { advantage = t.advantages(g), member = '
        't.spread(embed(t.of(g))), score = g[1].tokens } end }')
    for name in ("heads_of_one", "loss_is_a_sum", "table_of_one"):
        put("graph_json", name, one("random", name + ".json"))
    for name in ("cache_kv", "differentiate", "few_experts", "fuse_loss_grad", "fuse", "keep_slope",
                 "split_documents"):
        text = re.split(r"(?m)^# (?:----|====).*\n", one("passes", name + ".tg"))
        put("graph_text", name, min((t for t in text if "graph @" in t),
                                    key=lambda t: abs(len(t) - 700)))
    put("graph_text", "all_ops", one("ir", "all_ops.tg"))
    families = ["falcon", "gemma2", "gpt2", "gpt_neox", "llama", "llama2c", "mistral", "mixtral",
                "mpt", "phi3", "qwen2", "qwen3", "qwen3_moe"]
    for i, f in enumerate(families):
        if f == "llama2c":
            c = dict(dim=8, hidden_dim=16, n_layers=1, n_heads=2, n_kv_heads=1, vocab_size=9,
                     seq_len=16, shared=True)
        else:
            c = json.loads(one("data/families", f, "config.json"))
        put("config", f, bytes([i + 1]) + json.dumps(c, separators=(",", ":")).encode())
    put("config", "llama31",
        b"\0" + json.dumps(json.loads(one("data/families/llama31/config.json"))).encode())

    head = {"__metadata__": {"format": "pt", "b": "a"},
            "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "c": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
            "d": {"dtype": "I64", "shape": [0, 2], "data_offsets": [26, 26]}}
    put("safetensors", "few", safetensors(head, bytes(range(1, 27))))
    put("safetensors", "hash",
        safetensors({"__metadata__": {"xxh3": "0" * 16},
                     "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}, b"ab"))
    put("safetensors", "whole",
        struct.pack("<Q", 61) + b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}        '
        + b"ab")
    a, b = ({n: {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}} for n in ("x", "y"))
    index = {"metadata": {"total_size": 32}, "weight_map": {"x": "a.safetensors",
                                                            "y": "b.safetensors"}}
    put("shards", "two", b"\0".join(json.dumps(x, separators=(",", ":")).encode()
                                    for x in ({"model_type": "llama"}, index, a, b)) + b"\0")
    put("shards", "metadata", b"\0".join(json.dumps(x, separators=(",", ":")).encode() for x in (
        {}, {"weight_map": {"x": "a.safetensors"}}, {"__metadata__": {"y": "x"}, **a})) + b"\0")
    for name, dims in (("tied", (4, 6, 1, 2, 1, 5, 3)), ("untied", (4, 6, 2, 2, 2, -5, 3))):
        put("llama2c", "v0_" + name, struct.pack("<7i", *dims))
    for v, group in ((1, 0), (2, 2)):
        put("llama2c", "v%d" % v, struct.pack("<Ii7iBi", 0x616b3432, v, 4, 6, 1, 2, 1, 6, 3, v - 1,
                                              group) + bytes(256 - 41))
    for name, kind, shape, data in (("offsets", "<i8", "(2, 1, 2)",
                                     struct.pack("<4q", 0, 5, 1 << 40, -1)), ("floats", "<f4",
                                         "(3,)", struct.pack("<3f", 1, 2, 3)),
                                    ("scalar", "<f4", "()", struct.pack("<f", 1))):
        text = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)).encode()
        put("npy", name, b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data)
        put("npy", name + "_v2", b"\x93NUMPY\2\0" + struct.pack("<I", len(text)) + text + data)
    put("ids", "few", "[0, 1,2]\n17;499 -3 500 99999999999999999999")
    put("ids", "plain", "1 2 3\n")
    for line in ("compile x.lua -o y --dtype bf16 -O2 -D a=1 -D b=2 --batch-size=3 --no-check",
                 "train m.lua --data=x --lr 1e-3 --batch_size 4 --max_iters 10 -q",
                 "run p -p text -n 5 --temp 0.5 --top-k 3 --json --device cpu",
                 "dump p --ir --kernel k3", "bench -- -p", "help run", "eval p --ids 1,2 -h"):
        put("args", line.split()[0], line.replace(" ", "\0") + "\0")

    gpu = ("tgc-choices 1\ngpu NVIDIA H100 80GB HBM3, sm_90a\nchoose "
           "bf16:32768x3072x768:nt:add+gelu_tanh:4 128x128x32/1\n")
    put("choices", "few",
        gpu + "# one more\nchoose bf16:3072x768x32768:tn:accum:2:sums S256x128/4\n")
    put("weight_map", "few",
        "# few\nmap p = a: 4x6\nmap q[0:3] = b: 6 | rows 0 3\nmap q[3:6] =? b2 || b | rows 3 6 | "
        "scale 2\n"
        "map ignore c\nmap ignore d.*\nmap ignore e=b\n")
    put("weight_map", "moves",
        "map r = a | t\nmap s[1] = c | index 0 | rope 2 2\nmap s[0:1:1][:][:] = c: 2x4x6 | rows 0 "
        "1\n"
        "map t[0:8:2] = a\nmap t[1:8:2] = c | index 1\nmap u = e: scalar\nmap ignore *\n")
    state = {"__metadata__": {"accumulation": "1", "batch": "4", "best": "1.5", "block": "8",
                              "graph": "17", "run.dtype": "f32", "run.define": "a=1\nb=2",
                              "run.learning_rate": "0.001", "run.lr": "0.001", "seed": "1337",
                              "step": "20", "text": "3", "tokens": "99", "xxh3": "0" * 16},
             "p.w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    put("state", "few", safetensors(state, bytes(8)))

    packs = "//@ file a.h 3\nx=1\n//@ file b.cuh 0\n\n"
    put("pack", "files", packs)
    put("pack", "units", "//@ unit a\nint x;\n//@ unit b\n\n")
    rng = random.Random(3)
    for i in range(6):
        put("run", "r%d" % i, bytes(rng.randrange(256) for _ in range(16 + 8 * i)))
    with tempfile.TemporaryDirectory() as tmp:
        for name, path, how in (("experts", "tests/random/table_of_one.json", ["--mode",
                "both"]), ("small", "small.lua", ["--mode", "both", "--dtype", "bf16"])):
            if path == "small.lua":
                path = os.path.join(tmp, path)
                open(path, "w").write(SMALL)
            plan = os.path.join(tmp, "plan")
            subprocess.run(["build/tgc", "compile", path, "-o", plan, "-O3", "--batch-size", "2",
                            "--ctx-size", "6", "--no-check", "-q", *how], check=True,
                           cwd=os.path.join(HERE, "../.."))
            whole = open(plan, "rb").read()
            s = {}
            for i in range(struct.unpack_from("<I", whole, 16)[0]):
                n, at, size = struct.unpack_from("<32sQQ", whole, 64 + 56 * i)
                s[n.rstrip(b"\0").decode()] = whole[at:at + size]
            put("manifest", name, s["manifest"])
            put("program", name, s["program.cuda" if name == "small" else "program.cpu"])
            units = b"".join(re.findall(rb"(?m)^//@ unit .*\n", s["source.cpu"]))
            kept = {"manifest": s["manifest"], "program.cpu": s["program.cpu"], "source.cpu": units,
                    "products": s["products"]}
            if name == "small":
                kept.update({"graph.json": s["graph.json"],
                             "ir": s["ir"][:s["ir"].index(b"\n}\n") + 3]})
            if name == "small":
                kept["model"] = (
                    b'{"params": {"n": 2, "x": 0.5, "w": "a", "b": true},\n "files": [{"name": '
                    b'"my.lua", "text": "return {}\\n"}, {"name": "part.lua", "text": ""}]}\n')
            put("plan", name, b"".join(k.encode() + b"\n" + v + b"\0" for k, v in kept.items()))
    head = b"tgcplan\n" + struct.pack("<4I2Q24x", 1, 0x01020304, 2, 0, 0, 0)
    table = struct.pack("<32s3Q", b"manifest", 4096, 2, 0) + struct.pack("<32s3Q", b"w", 8192, 0, 0)
    put("plan_file", "two", (head + table).ljust(4096, b"\0") + b"ab".ljust(4096, b"\0"))


readers()
if os.path.isdir(DATA):
    main()
else:
    print("no %s: the seeds of tokenizers stay as they are" % os.path.normpath(DATA))
