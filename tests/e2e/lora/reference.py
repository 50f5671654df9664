"""reference.py: what transformers and PEFT make of a small Llama with adapters; writes the files
beside it.

    PYTHONHASHSEED=0 python3 reference.py       in an environment with torch, transformers, peft,
            safetensors, numpy, gguf

base/           a Llama of 2 layers, random weights, f32
NAME/           adapters as PEFT saves them: begin (r 4, all linears, B 0), tuned (begin after 100
                steps), mixed (rank_pattern, alpha_pattern, layers_to_transform, rsLoRA; random B)
text.bin        uint16 ids; windows.npy: which windows each of 100 steps has
base.gguf, tuned.gguf   the base and that adapter as llama.cpp's converters write them (needs gguf)
losses.txt      of the 100 steps, a line each
logits.npy      float32 [adapters + 1, tokens, vocab] of the first 24 ids: base, tuned, mixed, and
                the sum of both
"""
import os, shutil, sys
import numpy as np, torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
STEPS, B, T = 100, 4, 16
torch.manual_seed(1)
torch.set_num_threads(1)

config = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                     max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3)
base = LlamaForCausalLM(config).eval()
base.save_pretrained("base")
if os.path.exists("base/generation_config.json"):
    os.remove("base/generation_config.json")

rng = np.random.default_rng(2)
ids = np.zeros(600, np.uint16)
for i in range(1, len(ids)):                    # a text that can be learned
    ids[i] = (ids[i - 1] * 5 + 7 + rng.integers(0, 3)) % 48
ids.tofile("text.bin")
windows = rng.integers(0, len(ids) - T - 1, (STEPS, 1, B))
np.save("windows.npy", windows.astype(np.int64))


def logits(model):
    with torch.no_grad():
        return model(torch.tensor(ids[None, :24].astype(np.int64))).logits[0].numpy()


def save(model, name):
    model.save_pretrained(name)
    if os.path.exists(name + "/README.md"):
        os.remove(name + "/README.md")


out = [logits(base)]
linears = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
m = get_peft_model(LlamaForCausalLM.from_pretrained("base"),
                   LoraConfig(r=4, lora_alpha=8, target_modules=linears,
                                                                     task_type="CAUSAL_LM"))
save(m, "begin")
adapters = [p for p in m.parameters() if p.requires_grad]
opt = torch.optim.AdamW(adapters, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
m.train()
with open("losses.txt", "w") as f:
    for step in range(STEPS):
        x = torch.tensor(np.stack([ids[o:o + T + 1] for o in windows[step, 0]]).astype(np.int64))
        y = m(x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), x[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters, 1.0)
        opt.step()
        f.write("%.8f\n" % loss.item())
save(m, "tuned")
out.append(logits(m.eval()))

torch.manual_seed(3)
c = LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True,
               task_type="CAUSAL_LM", rank_pattern={"down_proj": 6,
                                                    r"layers\.1\.self_attn\.q_proj": 3},
                                                    alpha_pattern={"v_proj": 12},
               layers_to_transform=[1], init_lora_weights=False)
mixed = get_peft_model(LlamaForCausalLM.from_pretrained("base"), c)
save(mixed, "mixed")
out.append(logits(mixed.eval()))

both = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained("base"), "tuned",
                                 adapter_name="a")
both.load_adapter("mixed", adapter_name="b")
both.base_model.set_adapter(["a", "b"])
out.append(logits(both.eval()))
np.save("logits.npy", np.stack(out).astype(np.float32))

# ---- GGUF: rows of q and k become neighbouring pairs, those of their B as well ----

from gguf import GGUFWriter
from safetensors.numpy import load_file

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def named(module):
    if not module.startswith("model.layers."):
        return {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}[module]
    _, _, layer, rest = module.split(".", 3)
    return "blk.%s.%s" % (layer, NAMES[rest])


def turned(module, w):
    heads = {"q_proj": 4, "k_proj": 2}.get(module.split(".")[-1])
    return w if not heads else np.ascontiguousarray(w.reshape(heads, 2, -1, w.shape[1]).swapaxes(1,
        2).reshape(w.shape))


g = GGUFWriter("base.gguf", "llama")
g.add_context_length(64), g.add_embedding_length(32), g.add_block_count(
    2), g.add_feed_forward_length(40)
g.add_head_count(4), g.add_head_count_kv(2), g.add_layer_norm_rms_eps(
    1e-6), g.add_rope_dimension_count(8)
g.add_rope_freq_base(10000.0), g.add_vocab_size(48), g.add_type("model")
for name, w in load_file("base/model.safetensors").items():
    module = name[:-len(".weight")]
    g.add_tensor(named(module) + ".weight", turned(module, w))
g.write_header_to_file(), g.write_kv_data_to_file(), g.write_tensors_to_file(), g.close()

g = GGUFWriter("tuned.gguf", "llama")
g.add_type("adapter"), g.add_string("adapter.type", "lora"), g.add_float32("adapter.lora.alpha",
    8.0)
for name, w in load_file("tuned/adapter_model.safetensors").items():
    module, part = name[len("base_model.model."):-len(".weight")].rsplit(".", 1)
    g.add_tensor(named(module) + ".weight" + "." + part.lower(),
                 turned(module, w) if part == "lora_B" else w)
g.write_header_to_file(), g.write_kv_data_to_file(), g.write_tensors_to_file(), g.close()
print("losses", open("losses.txt").read().split()[::20], "sizes", [o.shape for o in out])
