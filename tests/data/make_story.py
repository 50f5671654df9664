#!/usr/bin/env python3
"""Writes tests/data/models/story: a model that tgc itself trains on text/stories.txt, as a Hugging
Face folder and in the two versions of llama2.c's format, and tests/data/expected: what the
reference below gives.

    make build/tgc
    python3 tests/data/make_story.py                    needs torch, numpy, safetensors and
            tokenizers

The reference is the small Llama below, in double precision, on the exported weights; texts and ids
are the `tokenizers` package's.  expected: story_ids.txt (a prompt and the greedy tokens after it),
story_logits.f32 (float32, the first 16 rows of logits there), story_text.txt and story_alone.txt
(the greedy text after a prompt, after nothing), sample_text.txt, sample_ids.txt, sample_nll.txt (a
text, its ids, nats per token).
"""
import json, os, shutil, struct, subprocess, sys, tempfile
import numpy as np, torch
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TGC = os.environ.get("TGC", f"{HERE}/../../build/tgc")
DIR, WANT = f"{HERE}/models/story", f"{HERE}/expected"
V, C, F, L, H, K, CTX, GROUP, EPS = 512, 48, 128, 2, 4, 2, 256, 4, 1e-5
D = C // H
PROMPT, N_IDS, ROWS = "Once upon a time", 160, 16


def tokenizer(text):
        """Pieces as sentencepiece has them: <unk>, <s>, </s>, 256 bytes, then what is merged, by
        rank."""
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                             normalizers.Replace(" ", "▁")])
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        words = text.replace(" ", "▁").replace("\n", "▁").split("▁")
        t.train_from_iterator([w for w in words if w],
                              trainers.BpeTrainer(vocab_size=V, special_tokens=special,
                                                  show_progress=False))
        model = json.loads(t.to_str())
        model["normalizer"] = json.loads(t.to_str())["normalizer"]
        # bytes are pieces, not texts
        model["added_tokens"] = [a for a in model["added_tokens"] if a["id"] < 3]
        vocab = model["model"]["vocab"]
        assert len(vocab) == V and vocab["<0x00>"] == 3
        t = Tokenizer.from_str(json.dumps(model))
        t.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(content=" ", left=1, right=0)])
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair=None, special_tokens=[("<s>", 1)])
        return t


def tok_bin(t, path):
        """llama2.c's file: a score is minus the rank of the merge that makes a piece; characters
        have none."""
        model = json.loads(t.to_str())["model"]
        rank = {"".join(m): i for i, m in enumerate(model["merges"])}
        piece = sorted(model["vocab"], key=model["vocab"].get)
        text = lambda i, p: "\n<s>\n" if i == 1 else "\n</s>\n" if i == 2 else p.replace("▁", " ")
        body = b""
        for i, p in enumerate(piece):
                s = text(i, p).encode()
                score = -float(rank[p]) if p in rank else 0.0 if i < 259 else -1e6
                body += struct.pack("<fi", score, len(s)) + s
        with open(path, "wb") as f:
                f.write(struct.pack("<i",
                                    max(len(text(i, p).encode()) for i, p in enumerate(piece)))
                        + body)


def config():
        return dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=V,
                    hidden_size=C, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
                    num_key_value_heads=K, max_position_embeddings=CTX, rms_norm_eps=EPS,
                    rope_theta=10000.0, hidden_act="silu", attention_bias=False, mlp_bias=False,
                    tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, torch_dtype="float32",
                    use_cache=True)


def train(t):
        """Random weights, then tgc."""
        r = np.random.default_rng(4)
        w = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,)}
        for i in range(L):
                p = f"model.layers.{i}."
                w |= {p + "self_attn.q_proj.weight": (C, C),
                      p + "self_attn.k_proj.weight": (K * D, C),
                      p + "self_attn.v_proj.weight": (K * D, C),
                      p + "self_attn.o_proj.weight": (C, C), p + "mlp.gate_proj.weight": (F, C),
                      p + "mlp.up_proj.weight": (F, C), p + "mlp.down_proj.weight": (C, F),
                      p + "input_layernorm.weight": (C,),
                      p + "post_attention_layernorm.weight": (C,)}
        w = {k: (np.ones(s) if len(s) == 1 else r.normal(0, 0.05, s)).astype(np.float32)
             for k, s in w.items()}
        with tempfile.TemporaryDirectory() as tmp:
                init, out = f"{tmp}/init", f"{tmp}/out"
                os.makedirs(init)
                save_file(w, f"{init}/model.safetensors", {"format": "pt"})
                json.dump(config(), open(f"{init}/config.json", "w"), indent=2)
                t.save(f"{init}/tokenizer.json")
                run = lambda *a: subprocess.run([TGC, *a], check=True)
                run("train", init, "--data", f"{HERE}/text/stories.txt", "--device", "cpu", "-b",
                    "8", "--block-size", "128", "--max_iters", "1500", "--learning_rate", "4e-3",
                    "--warmup_iters", "50", "--eval_interval", "500", "--eval_iters", "4",
                    "--out_dir", out)
                shutil.rmtree(DIR, ignore_errors=True)
                run("export", out, "-o", DIR, "--config", f"{init}/config.json")
        t.save(f"{DIR}/tokenizer.json")
        tok_bin(t, f"{DIR}/tok.bin")


# ---- llama2.c's files ----

def to_llama2c(w):
        """Its tensors, layers together; its rotary pairs are neighbours, where Hugging Face's are
        halves of a head."""
        turn = lambda x, n: x.reshape(n, 2, D // 2, C).transpose(0, 2, 1, 3).reshape(n * D, C)
        layers = lambda name, f=lambda x: x: [f(w[f"model.layers.{i}.{name}.weight"])
                                              for i in range(L)]
        return dict(tok_emb=[w["model.embed_tokens.weight"]], rms_att=layers("input_layernorm"),
                    wq=layers("self_attn.q_proj", lambda x: turn(x, H)),
                    wk=layers("self_attn.k_proj", lambda x: turn(x, K)),
                    wv=layers("self_attn.v_proj"), wo=layers("self_attn.o_proj"),
                    rms_ffn=layers("post_attention_layernorm"), w1=layers("mlp.gate_proj"),
                    w2=layers("mlp.down_proj"), w3=layers("mlp.up_proj"),
                    rms_final=[w["model.norm.weight"]])


def q80(x):
        g = x.reshape(-1, GROUP)
        scale = (np.abs(g).max(1) / 127).astype(np.float32)
        q = np.round(g / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8)
        return q.tobytes() + scale.tobytes()


def write_llama2c(t):
        norms, matrices = (["rms_att", "rms_ffn", "rms_final"],
                           ["tok_emb", "wq", "wk", "wv", "wo", "w1", "w2", "w3"])
        sizes = struct.pack("<7i", C, F, L, H, K, V, CTX)
        flat = lambda names, f=lambda x: x.tobytes(): b"".join(
            f(np.ascontiguousarray(x, np.float32)) for n in names for x in t[n])
        with open(f"{DIR}/story.bin", "wb") as f:
                f.write(sizes
                        + flat(["tok_emb", "rms_att", "wq", "wk", "wv", "wo", "rms_ffn", "w1", "w2",
                                "w3", "rms_final"]) + bytes(CTX * D * 4))
        with open(f"{DIR}/story_q80_gs4.bin", "wb") as f:
                f.write((struct.pack("<Ii", 0x616b3432, 2) + sizes + b"\1"
                         + struct.pack("<i", GROUP)).ljust(256, b"\0") + flat(norms)
                        + flat(matrices, q80))


# ---- the reference ----

def logits(w, ids):
        """(n, V) in double precision."""
        n, g = len(ids), {k: torch.from_numpy(v).double() for k, v in w.items()}
        norm = lambda x, s: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * s
        angle = torch.arange(n).double()[:, None] / 10000.0 ** (torch.arange(0, D, 2).double() / D)
        cos, sin = torch.cos(angle), torch.sin(angle)

        def heads(x, n_heads):                          # (heads, n, D), turned
                a, b = x.view(n, n_heads, D).transpose(0, 1).split(D // 2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        x = g["model.embed_tokens.weight"][torch.tensor(ids)]
        for i in range(L):
                p = lambda name: g[f"model.layers.{i}.{name}.weight"]
                h = norm(x, p("input_layernorm"))
                q, k = (heads(h @ p("self_attn.q_proj").T, H),
                        heads(h @ p("self_attn.k_proj").T, K).repeat_interleave(H // K, 0))
                v = (h @ p("self_attn.v_proj").T).view(n, K, D).transpose(
                    0, 1).repeat_interleave(H // K, 0)
                s = (q @ k.transpose(1, 2) / D ** 0.5).masked_fill(
                    torch.ones(n, n).triu(1).bool(), -torch.inf)
                x = x + (s.softmax(-1) @ v).transpose(0, 1).reshape(n, C) @ p("self_attn.o_proj").T
                h = norm(x, p("post_attention_layernorm"))
                x = x + (torch.nn.functional.silu(h @ p("mlp.gate_proj").T)
                         * (h @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T
        return norm(x, g["model.norm.weight"]) @ g["model.embed_tokens.weight"].T


def greedy(w, ids, n):
        lead = []
        while len(ids) < n:
                best = torch.topk(logits(w, ids)[-1], 2)
                lead.append(float(best.values[0] - best.values[1]))
                ids = ids + [int(best.indices[0])]
        print("leads:", sorted(lead)[:4])
        return ids


def put(name, text):
        with open(f"{WANT}/{name}", "w", newline="\n") as f:
                f.write(text)


def expect(t):
        os.makedirs(WANT, exist_ok=True)
        w = load_file(f"{DIR}/model.safetensors")
        ids = greedy(w, t.encode(PROMPT).ids, N_IDS)
        put("story_ids.txt", " ".join(map(str, ids)) + "\n")
        put("story_text.txt", t.decode(ids) + "\n")
        put("story_alone.txt", t.decode(greedy(w, [1], 120)) + "\n")
        logits(w, ids[:ROWS]).float().numpy().tofile(f"{WANT}/story_logits.f32")
        sample = open(f"{HERE}/text/stories.txt").read().split("\n\n")[-2]
        ids = t.encode(sample).ids
        nll = torch.nn.functional.cross_entropy(logits(w, ids)[:-1], torch.tensor(ids[1:]))
        put("sample_text.txt", sample)
        put("sample_ids.txt", " ".join(map(str, ids)) + "\n")
        put("sample_nll.txt", f"{float(nll):.9f}\n")
        print(f"{len(ids)} ids, {float(nll):.6f} nats each")


if __name__ == "__main__":
        if "--expected" not in sys.argv:
                train(tokenizer(open(f"{HERE}/text/stories.txt").read()))
        t = Tokenizer.from_file(f"{DIR}/tokenizer.json")
        write_llama2c(to_llama2c(load_file(f"{DIR}/model.safetensors")))
        expect(t)
