"""made_up.py: data and models of the jobs' sizes, without anyone's data: words that follow each
other by a chain, so that there is something to learn, and folders of a Llama's or Qwen3's shape
without weights (tgc and PyTorch draw their own)."""
import json
import os
import random
import subprocess
import sys
import time

SPECIAL = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")


class Words:
    def __init__(self, seed=1, n=600):
        self.r = random.Random(seed)
        self.words = sorted({"".join(self.r.choice("bcdfghklmnprstvw") + self.r.choice("aeiou")
                                     for _ in range(self.r.randint(1, 3)))
                             for _ in range(n)})
        self.after = {w: self.r.sample(self.words, 5) for w in self.words}

    def text(self, length):
        """About so many characters."""
        w, out, size = self.r.choice(self.words), [], 0
        while size < length:
            end = "." if self.r.random() < 0.1 else ""
            out.append(w + end)
            size += len(w) + 1 + len(end)
            w = self.r.choice(self.after[w])
        return " ".join(out)

    def length(self, mean, spread, most):
        return min(most, max(8, int(self.r.lognormvariate(0, spread) * mean)))


BEGAN = time.monotonic()


def run(tgc, *args, quiet=True):
    if os.environ.get("JOB_TIMES"):
        print(f"{time.monotonic() - BEGAN:6.1f} s: tgc {args[0]}", file=sys.stderr, flush=True)
    r = subprocess.run([tgc, *args], capture_output=quiet, text=True, errors="replace")
    if r.returncode:
        sys.exit(f"tgc {' '.join(args)}: exit code {r.returncode}\n{(r.stderr or '')[-800:]}")
    return r.stdout or "", r.stderr or ""


def folder(tgc, path, text, family="llama", vocab_in_use=4096, **shape):
    """config.json, a tokenizer of the text, a chat template.  shape: keys of config.json."""
    os.makedirs(path, exist_ok=True)
    run(tgc, "tokenizer", "train", text, "-o", os.path.join(path, "tokenizer.json"), "--vocab-size",
        str(vocab_in_use), *[x for s in SPECIAL for x in ("--special", s)])
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 500000.0,
              "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
              "bos_token_id": 0, "eos_token_id": 3, "initializer_range": 0.02,
              "torch_dtype": "bfloat16", **shape}
    if family == "qwen3":
        config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", rms_norm_eps=1e-6,
                      rope_theta=1000000.0)
        config.pop("mlp_bias")
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": SPECIAL[0], "eos_token": SPECIAL[3]}, f)
    with open(os.path.join(path, "chat_template.jinja"), "w") as f:
        f.write(TEMPLATE)
    return path
