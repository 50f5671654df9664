#!/usr/bin/env python3
"""Writes tests/data/gguf: models of tests/data/families and tests/data/encoders as GGUF files, one
with every block type, and blocks of every type with their values.

    make build/tests/e2e/families/logits && python3 tests/data/make_gguf.py [NAME ...]

It needs numpy and gguf (0.19).  Names, permutations and metadata are those of llama.cpp's
convert_hf_to_gguf.py.  Most files hold the folder's own weights, in float16, and must give
transformers' logits (families/NAME/expected_logits.npy).  What GGUF cannot say (windows of qwen2,
experts' weights that do not sum to 1) or what is made smaller here (Q8_0) has logits of its own in
expected.json: those of the last of 40 ids, from tgc's double-precision evaluator on a folder with
the changed configuration and the weights that the file decodes to, which the package gguf decodes.
"""
import json, os, shutil, struct, subprocess, sys, tempfile
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T, GGUFWriter, quants

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = f"{HERE}/gguf"
KINDS = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL,
         T.IQ4_XS, T.MXFP4, T.NVFP4]
DTYPES = {"F32": np.float32, "F16": np.float16}


# ---- folders ----

def read_folder(folder):
    with open(f"{folder}/model.safetensors", "rb") as f:
        data = f.read()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a:8 + n + b],
                                      DTYPES[t["dtype"]]).reshape(t["shape"]).astype(np.float32)
    with open(f"{folder}/config.json") as f:
        return json.load(f), out


def write_folder(folder, config, tensors):
    head, at = {}, 0
    for name, x in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + 4 * x.size]}
        at += 4 * x.size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text
                + b"".join(x.astype(np.float32).tobytes() for x in tensors.values()))
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f)


def evaluated(config, tensors, ids):
    """Logits of the last token by tgc's evaluator."""
    folder = tempfile.mkdtemp()
    write_folder(folder, config, tensors)
    ask = f"logits {folder} {len(ids)} {' '.join(map(str, ids))}\n"
    out = subprocess.run([f"{HERE}/../../build/tests/e2e/families/logits"], input=ask,
                         stdout=subprocess.PIPE, text=True, check=True)
    assert out.stdout.startswith("ok"), out.stdout
    got = np.fromfile(f"{folder}/got.f64").reshape(len(ids), -1)[-1]
    shutil.rmtree(folder)
    return [round(float(x), 6) for x in got]


# ---- names and layouts: GGUF's, the folder's, what is done to the folder's tensor ----

def permute(heads):                             # to pairs that are neighbours
    return lambda w, H, K: w.reshape(
        {"H": H, "K": K}[heads], 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def split_groups(w, H, K):                      # (K, q... k v) to all of q, all of k, all of v
    g = w.reshape(K, H // K + 2, -1, *w.shape[1:])
    return np.concatenate([g[:, :-2].reshape(-1, *w.shape[1:]), g[:, -2].reshape(-1, *w.shape[1:]),
                           g[:, -1].reshape(-1, *w.shape[1:])])


def inverse(f, w, H, K):
    """What f makes w of: f is a permutation of elements, plus 1, or a transposition."""
    if f is None:
        return w
    if f is plus_one:
        return w - np.float32(1)
    if f is transpose:
        return transpose(w, H, K)
    order = f(np.arange(w.size).reshape(w.shape), H, K).reshape(-1)
    out = np.empty_like(w).reshape(-1)
    out[order] = w.reshape(-1)
    return out.reshape(w.shape)


def plus_one(w, H, K):
    return w + np.float32(1)


def transpose(w, H, K):
    return np.ascontiguousarray(w.T) if w.ndim == 2 else w


LLAMA = [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head"),
         ("attn_norm", "input_layernorm"), ("attn_q", "self_attn.q_proj"),
         ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"),
         ("attn_output", "self_attn.o_proj"), ("ffn_norm", "post_attention_layernorm"),
         ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")]
QK_NORM = [("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm")]
NAMES = {
    "llama": LLAMA
        + [("ffn_gate_inp", "block_sparse_moe.gate"),
           ("ffn_gate_exps", "block_sparse_moe.experts.*.w1"),
           ("ffn_up_exps", "block_sparse_moe.experts.*.w3"),
           ("ffn_down_exps", "block_sparse_moe.experts.*.w2")],
    "qwen2": LLAMA, "qwen3": LLAMA + QK_NORM,
    "qwen3moe": LLAMA + QK_NORM
        + [("ffn_gate_inp", "mlp.gate"), ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
           ("ffn_up_exps", "mlp.experts.*.up_proj"), ("ffn_down_exps", "mlp.experts.*.down_proj")],
    "qwen2moe": [x for x in LLAMA if x[0] not in ("ffn_gate", "ffn_up", "ffn_down")]
        + [("ffn_gate_inp", "mlp.gate"), ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
           ("ffn_up_exps", "mlp.experts.*.up_proj"), ("ffn_down_exps", "mlp.experts.*.down_proj"),
           ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
           ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
           ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
           ("ffn_down_shexp", "mlp.shared_expert.down_proj")],
    "deepseek2": LLAMA
        + [("attn_q_a", "self_attn.q_a_proj"), ("attn_q_a_norm", "self_attn.q_a_layernorm"),
           ("attn_q_b", "self_attn.q_b_proj"), ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
           ("attn_kv_a_norm", "self_attn.kv_a_layernorm"), ("attn_kv_b", "self_attn.kv_b_proj"),
           ("ffn_gate_inp", "mlp.gate"), ("exp_probs_b", "mlp.gate.e_score_correction"),
           ("ffn_gate_exps", "mlp.experts.*.gate_proj"), ("ffn_up_exps", "mlp.experts.*.up_proj"),
           ("ffn_down_exps", "mlp.experts.*.down_proj"),
           ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
           ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
           ("ffn_down_shexp", "mlp.shared_experts.down_proj")],
    "gpt-oss": [x for x in LLAMA if not x[0].startswith("ffn_")]
        + [("post_attention_norm", "post_attention_layernorm"), ("attn_sinks", "self_attn.sinks"),
           ("ffn_gate_inp", "mlp.router"), ("ffn_gate_exps", "mlp.experts.gate_proj"),
           ("ffn_up_exps", "mlp.experts.up_proj"), ("ffn_down_exps", "mlp.experts.down_proj")],
    "gemma2": [x for x in LLAMA if x[0] != "ffn_norm"]
        + [("post_attention_norm", "post_attention_layernorm"),
           ("ffn_norm", "pre_feedforward_layernorm"),
           ("post_ffw_norm", "post_feedforward_layernorm")],
    "gemma3": [x for x in LLAMA if x[0] != "ffn_norm"] + QK_NORM
        + [("post_attention_norm", "post_attention_layernorm"),
           ("ffn_norm", "pre_feedforward_layernorm"),
           ("post_ffw_norm", "post_feedforward_layernorm")],
    "phi3": [x for x in LLAMA if x[0] != "ffn_up"]
        + [("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
    "olmo2": [x for x in LLAMA if x[0] not in ("attn_norm", "ffn_norm")] + QK_NORM
        + [("post_attention_norm", "post_attention_layernorm"),
           ("post_ffw_norm", "post_feedforward_layernorm")],
    "smollm3": LLAMA, "granite": LLAMA, "gemma": LLAMA,
    "olmoe": LLAMA + QK_NORM
        + [("ffn_gate_inp", "mlp.gate"), ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
           ("ffn_up_exps", "mlp.experts.*.up_proj"), ("ffn_down_exps", "mlp.experts.*.down_proj")],
    "starcoder2": [x for x in LLAMA if not x[0].startswith("ffn_") or x[0] == "ffn_norm"]
        + [("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
    "stablelm": LLAMA
        + [("attn_q_norm", "self_attn.q_layernorm.norms.*"),
           ("attn_k_norm", "self_attn.k_layernorm.norms.*")],
    "olmo": [x for x in LLAMA if not x[0].endswith("norm")],
    "exaone4": [x for x in LLAMA if x[0] not in ("attn_norm", "ffn_norm")] + QK_NORM
        + [("post_attention_norm", "post_attention_layernorm"),
           ("post_ffw_norm", "post_feedforward_layernorm")],
    "glm4": [x for x in LLAMA if x[0] != "ffn_up"]
        + [("post_attention_norm", "post_self_attn_layernorm"),
           ("post_ffw_norm", "post_mlp_layernorm"), ("ffn_up", "mlp.gate_up_proj")],
    "chatglm": [x for x in LLAMA if x[0] != "ffn_up"] + [("ffn_up", "mlp.gate_up_proj")],
    "ernie4_5": LLAMA,
    "hunyuan-dense": LLAMA
        + [("attn_q_norm", "self_attn.query_layernorm"),
           ("attn_k_norm", "self_attn.key_layernorm")],
    "cohere2": [x for x in LLAMA if x[0] != "ffn_norm"],
    "command-r": [x for x in LLAMA if x[0] != "ffn_norm"] + QK_NORM,
    "bloom": [("token_embd", "transformer.word_embeddings"),
              ("token_embd_norm", "transformer.word_embeddings_layernorm"),
              ("output_norm", "transformer.ln_f"), ("attn_norm", "input_layernorm"),
              ("attn_qkv", "self_attention.query_key_value"),
              ("attn_output", "self_attention.dense"), ("ffn_norm", "post_attention_layernorm"),
              ("ffn_up", "mlp.dense_h_to_4h"), ("ffn_down", "mlp.dense_4h_to_h")],
    "phi2": [("token_embd", "model.embed_tokens"), ("output_norm", "model.final_layernorm"),
             ("output", "lm_head"), ("attn_norm", "input_layernorm"),
             ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
             ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.dense"),
             ("ffn_up", "mlp.fc1"), ("ffn_down", "mlp.fc2")],
    "gpt2": [("token_embd", "transformer.wte"), ("position_embd", "transformer.wpe"),
             ("output_norm", "transformer.ln_f"), ("attn_norm", "ln_1"),
             ("attn_qkv", "attn.c_attn"), ("attn_output", "attn.c_proj"), ("ffn_norm", "ln_2"),
             ("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
    "gptneox": [("token_embd", "gpt_neox.embed_in"), ("output_norm", "gpt_neox.final_layer_norm"),
                ("output", "embed_out"), ("attn_norm", "input_layernorm"),
                ("attn_qkv", "attention.query_key_value"), ("attn_output", "attention.dense"),
                ("ffn_norm", "post_attention_layernorm"), ("ffn_up", "mlp.dense_h_to_4h"),
                ("ffn_down", "mlp.dense_4h_to_h")],
    "falcon": [("token_embd", "transformer.word_embeddings"), ("output_norm", "transformer.ln_f"),
               ("output", "lm_head"), ("attn_norm", "input_layernorm"),
               ("attn_qkv", "self_attention.query_key_value"),
               ("attn_output", "self_attention.dense"), ("ffn_up", "mlp.dense_h_to_4h"),
               ("ffn_down", "mlp.dense_4h_to_h")],
    "mpt": [("token_embd", "transformer.wte"), ("output_norm", "transformer.norm_f"),
            ("attn_norm", "norm_1"), ("attn_qkv", "attn.Wqkv"), ("attn_output", "attn.out_proj"),
            ("ffn_norm", "norm_2"), ("ffn_up", "ffn.up_proj"), ("ffn_down", "ffn.down_proj")],
}
PERMUTED = {"attn_q": permute("H"), "attn_k": permute("K")}
CHANGES = {"llama": PERMUTED, "olmo": PERMUTED, "smollm3": PERMUTED, "granite": PERMUTED,
           "gemma": {x: plus_one for x in ("attn_norm", "ffn_norm", "output_norm")},
           "gemma3": {x: plus_one
                      for x in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm",
                                "output_norm", "attn_q_norm", "attn_k_norm")},
           "gemma2": {x: plus_one
                      for x in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm",
                                "output_norm")},
           "gpt2": {x: transpose for x in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
           "bloom": {"attn_qkv": split_groups}, "gptneox": {"attn_qkv": split_groups},
           "falcon": {"attn_qkv": split_groups},}
HEADS = ("model.layers.", "transformer.h.", "gpt_neox.layers.", "transformer.blocks.")


def gpt_oss_names(tensors):
    """The folder's experts (E,C,2F) and (E,F,C), gate and up in turn, by themselves and as linears
    lie; .weight and .bias."""
    out = {}
    for name, x in tensors.items():
        if "gate_up_proj" in name:
            for at, part in enumerate(("gate_proj", "up_proj")):
                y = x[..., at::2]
                out[name.replace("gate_up_proj_bias", f"{part}.bias")
                    .replace("gate_up_proj", f"{part}.weight")] = (
                    np.ascontiguousarray(y.swapaxes(1, 2)) if y.ndim == 3
                    else np.ascontiguousarray(y))
        elif "down_proj" in name:
            out[name.replace("down_proj_bias", "down_proj.bias") if x.ndim == 2
                else f"{name}.weight"] = (
                x if x.ndim == 2 else np.ascontiguousarray(x.swapaxes(1, 2)))
        else:
            out[f"{name}.weight" if name.endswith("sinks") else name] = x
    return out


def gpt_oss_folder(tensors):
    """The inverse."""
    out = {}
    for name, x in tensors.items():
        x = np.ascontiguousarray(x.swapaxes(1, 2)) if x.ndim == 3 else x
        if "gate_proj" in name or "up_proj" in name:
            both = (name.replace("gate_proj", "gate_up_proj") if "gate_proj" in name
                    else name.replace("up_proj", "gate_up_proj"))
            both = both.replace(".weight", "").replace("proj.bias", "proj_bias")
            out.setdefault(both, np.empty((*x.shape[:-1], 2 * x.shape[-1]), np.float32))[
                ..., int("gate_proj" not in name)::2] = x
        elif "down_proj" in name or "sinks" in name:
            out[name.replace(".weight", "").replace("proj.bias", "proj_bias")] = x
        else:
            out[name] = x
    return out


def converted(arch, tensors, H, K):
    """GGUF's tensors of a folder's, and for each of them: the folder's names, the change."""
    names = {hf: g for g, hf in NAMES[arch]}
    out, where = {}, {}
    for name, x in tensors.items():
        base, suffix = name.replace("e_score_correction_bias",
                                    "e_score_correction.bias").rsplit(".", 1)
        head = next((h for h in HEADS if base.startswith(h) and base[len(h)].isdigit()), None)
        layer, inner = base[len(head):].split(".", 1) if head else (None, base)
        parts = inner.split(".")
        expert = next((p for p in parts if p.isdigit()), None)
        inner = ".".join("*" if p.isdigit() else p for p in parts)
        g = f"{f'blk.{layer}.' if head else ''}{names[inner]}.{suffix}"
        change = CHANGES.get(arch, {}).get(names[inner])
        x = change(x, H, K) if change else x
        if expert is None:
            out[g], where[g] = x, ([name], change)
        else:
            out.setdefault(g, []).append(x)
            where.setdefault(g, ([], None))[0].append(name)
    return {g: np.stack(x) if isinstance(x, list) else x for g, x in out.items()}, where


# ---- files ----

def rope_factors(r, theta, dims):
    """As the converter computes Llama 3's."""
    out = []
    for i in range(dims // 2):
        wave = 2 * np.pi / (1.0 / theta ** (2 * i / dims))
        low = r["original_max_position_embeddings"] / r["low_freq_factor"]
        high = r["original_max_position_embeddings"] / r["high_freq_factor"]
        if wave < high:
            out.append(1.0)
        elif wave > low:
            out.append(r["factor"])
        else:
            smooth = (r["original_max_position_embeddings"] / wave
                      - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
            out.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, np.float32)


def put_config(w, arch, c):
    """Metadata; c in Llama's words."""
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    if arch != "gpt2":
        w.add_head_count_kv(c["num_key_value_heads"])
    if arch == "deepseek2":
        three = c["model_type"] == "deepseek_v3"
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        if c["split"]:
            w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
            w.add_value_length(c["kv_lora_rank"])
        (w.add_key_length_mla if c["split"] else w.add_key_length)(
            c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        (w.add_value_length_mla if c["split"] else w.add_value_length)(c["v_head_dim"])
        if c["q_lora_rank"]:
            w.add_q_lora_rank(c["q_lora_rank"])
        w.add_kv_lora_rank(c["kv_lora_rank"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        if three:
            w.add_expert_weights_norm(c["norm_topk_prob"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if three
                                 else gguf.ExpertGatingFuncType.SOFTMAX)
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
        if "rope_scaling" in c:
            w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            w.add_rope_scaling_factor(c["rope_scaling"]["factor"])
            w.add_rope_scaling_orig_ctx_len(c["rope_scaling"]["original_max_position_embeddings"])
            w.add_rope_scaling_yarn_log_mul(0.1 * c["rope_scaling"]["mscale_all_dim"])
    elif "rms_norm_eps" in c:
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
    else:
        w.add_layer_norm_eps(c["layer_norm_eps"])
    if arch == "olmo":
        w.add_clamp_kqv(c["clip_qkv"])
    if arch in ("command-r", "cohere2"):
        w.add_logit_scale(c["logit_scale"])
        w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if arch not in ("gpt2", "mpt", "bloom"):
        w.add_rope_freq_base(c["rope_theta"])
        w.add_rope_dimension_count(c["rotary"])
    if "sliding_window" in c:
        w.add_sliding_window(c["sliding_window"])
        if arch in ("olmo2", "exaone4"):
            w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    if arch == "hunyuan-dense":
        w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        w.add_rope_scaling_factor(1)
        w.add_rope_scaling_orig_ctx_len(c["max_position_embeddings"])
    if "experts" in c:
        w.add_expert_count(c["experts"][0])
        w.add_expert_used_count(c["experts"][1])
    if arch == "gpt-oss":
        r = c["rope_parameters"]
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(r["factor"])
        w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
        w.add_expert_feed_forward_length(c["intermediate_size"])
    if arch in ("qwen2moe", "qwen3moe"):
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if arch == "qwen2moe":
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if arch == "gemma2":
        w.add_attn_logit_softcapping(50.0)
        w.add_final_logit_softcapping(30.0)
    if arch == "gemma3" and c.get("final_logit_softcapping"):
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
    if arch == "granite":
        w.add_attention_scale(c["attention_multiplier"])
        w.add_embedding_scale(c["embedding_multiplier"])
        w.add_residual_scale(c["residual_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
    if arch in ("gptneox", "stablelm"):
        w.add_parallel_residual(c.get("use_parallel_residual", True))
    if arch == "mpt":
        w.add_max_alibi_bias(8.0)
    if arch == "falcon":
        w.add_tensor_data_layout("jploski")


def common_words(arch, c):
    """The configuration in Llama's words."""
    rope = c.get("rope_parameters") or {}
    out = dict(c, num_hidden_layers=c.get("num_hidden_layers") or c.get("n_layer") or c["n_layers"],
               hidden_size=c.get("hidden_size") or c.get("n_embd") or c["d_model"],
               num_attention_heads=c.get("num_attention_heads") or c.get("n_head") or c["n_heads"],
               max_position_embeddings=c.get("max_position_embeddings") or c.get("n_positions")
                   or c.get("seq_length") or c["max_seq_len"],
               rope_theta=c.get("rope_theta")
                   or rope.get("rope_theta", rope.get("full_attention", {}).get("rope_theta"))
                   or (1e6 if c["model_type"] == "mixtral" else 10000.0),
               layer_norm_eps=c.get("layer_norm_eps") or c.get("layer_norm_epsilon")
                   or c.get("norm_epsilon") or 1e-5)
    out["num_key_value_heads"] = (1 if arch == "falcon"
                                  else c.get("num_key_value_heads") or out["num_attention_heads"])
    out["intermediate_size"] = (c.get("intermediate_size") or c.get("ffn_hidden_size")
                                or 4 * out["hidden_size"])
    out["head_dim"] = c.get("head_dim") or out["hidden_size"] // out["num_attention_heads"]
    out["rotary"] = int(out["head_dim"] * rope.get("partial_rotary_factor", 1.0))
    if arch in ("qwen2", "qwen3", "qwen2moe", "qwen3moe") or out.get("sliding_window") is None:
        out.pop("sliding_window", None)
    if arch == "deepseek2":
        # kv_b in two tensors, as newer files have it
        out["split"] = c["model_type"] == "deepseek_v3"
        if out["split"]:
            out["num_key_value_heads"] = 1
        out["rotary"], out["experts"] = (c["qk_rope_head_dim"],
                                         (c["n_routed_experts"], c["num_experts_per_tok"]))
    if "num_local_experts" in c or arch in ("olmoe", "qwen2moe"):
        out["experts"] = c.get("num_local_experts") or c["num_experts"], c["num_experts_per_tok"]
    return out


def write_model(name, arch, words, tensors, kind, more=lambda w: None):
    """kind(name, x): the tensor's type.  The tensors as they are decoded again."""
    w, decoded = GGUFWriter(f"{OUT}/{name}.gguf", arch), {}
    w.add_name(name)
    put_config(w, arch, words)
    more(w)
    for g, x in tensors.items():
        t = T.F32 if x.ndim == 1 else kind(g, x)
        data = (quants.quantize(x, t) if t in (T.F32, T.F16) or t not in KIND_BYTES
                else KIND_BYTES[t](x))
        decoded[g] = quants.dequantize(data, t).reshape(x.shape)
        if t in (T.F32, T.F16):
            w.add_tensor(g, data)
        else:
            w.add_tensor(g, data.view(np.uint8), raw_dtype=t)
    w.add_quantization_version(2)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return decoded


def folder_of(decoded, where, H, K):
    out = {}
    for g, x in decoded.items():
        names, change = where[g]
        for i, name in enumerate(names):
            out[name] = inverse(change, x[i] if len(names) > 1 else x, H, K)
    return out


# ---- blocks of random bytes ----

HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0],
          T.IQ4_XS: [0], T.MXFP4: [], T.NVFP4: []}


def random_blocks(t, n, rng, std=None):
    """n blocks whose values are about std; None: all bytes are random."""
    values, size = gguf.GGML_QUANT_SIZES[t]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if std is None:
        return b
    for at in HALVES[t]:
        b[:, at:at + 2] = np.full((n, 1), 1.0, np.float16).view(np.uint8)
    if t == T.MXFP4:
        b[:, 0] = 127
    if t == T.NVFP4:
        b[:, :4] = 56
    scale = std / quants.dequantize(b, t).std()
    for at in HALVES[t]:
        b[:, at:at + 2] = (scale * rng.uniform(0.7, 1.4, (n, 1))).astype(np.float16).view(np.uint8)
    if t == T.MXFP4:
        b[:, 0] = 127 + round(np.log2(scale))
    if t == T.NVFP4:
        b[:, :4] = 56 + 8 * round(np.log2(scale)) + rng.integers(0, 4, (n, 4))
    return b


RNG = np.random.default_rng(7)
KIND_BYTES = {t: (lambda t: lambda x: random_blocks(t, x.size // gguf.GGML_QUANT_SIZES[t][0], RNG,
                                                    0.08).reshape(*x.shape[:-1], -1))(t)
              for t in KINDS if t != T.Q8_0}


def write_blocks():
    """blocks.gguf: 2 x 256 values of each type, from random bytes, and behind .f32 what they
    are."""
    w, rng = GGUFWriter(f"{OUT}/blocks.gguf", "blocks"), np.random.default_rng(3)
    for t in KINDS:
        b = random_blocks(t, 512 // gguf.GGML_QUANT_SIZES[t][0], rng)
        with np.errstate(all="ignore"):
            values = quants.dequantize(b, t).reshape(2, 256)
        w.add_tensor(t.name, b.reshape(2, -1), raw_dtype=t)
        w.add_tensor(f"{t.name}.f32", values.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- the models ----

MODELS = {  # name: architecture, change of the configuration, of Q8_0
    "olmo3": ("olmo2", {}, False), "glm": ("chatglm", {}, False),
    "ernie4_5": ("ernie4_5", {}, False),
    "hunyuan_v1_dense": ("hunyuan-dense", {}, False), "exaone4_windows": ("exaone4", {}, False),
    "cohere2": ("cohere2", dict(layer_types=["sliding_attention"] * 3), True),
    "llama31": ("llama", {}, False), "llama_tied_bias": ("llama", {}, True),
    "mixtral": ("llama", {}, True),
    "qwen2": ("qwen2", dict(use_sliding_window=False), True),
    "qwen3": ("qwen3", dict(use_sliding_window=False, layer_types=None), True),
    "qwen2_moe": ("qwen2moe", dict(mlp_only_layers=[], use_sliding_window=False,
                                   layer_types=["full_attention"] * 3), True),
    "deepseek_v2": ("deepseek2", dict(rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7,
        mscale_all_dim=0.7)), True),
    "deepseek_v3": ("deepseek2", {}, False),
    "gpt_oss": ("gpt-oss", dict(swiglu_limit=7.0), True),
    "qwen3_moe": ("qwen3moe", dict(norm_topk_prob=True), True),
    "gemma2": ("gemma2", {}, False), "phi3": ("phi3", {}, False),
    "olmo2": ("olmo2", {}, False), "smollm3": ("smollm3", dict(no_rope_layers=[1, 1, 1]), True),
    "olmoe": ("olmoe", dict(clip_qkv=None), True),
    "starcoder2": ("starcoder2", dict(sliding_window=None), True),
    "stablelm": ("stablelm", {}, False), "phi": ("phi2", dict(qk_layernorm=False), True),
    "olmo": ("olmo", {}, False), "glm4": ("glm4", {}, False),
    "exaone4": ("exaone4", dict(sliding_window=None, layer_types=["full_attention"] * 3), True),
    "cohere": ("command-r", {}, False), "bloom": ("bloom", {}, False), "gpt2": ("gpt2", {}, False),
    "gpt_neox": ("gptneox", {}, False), "falcon": ("falcon", {}, True),
    "mpt": ("mpt", dict(n_layers=1), True),
}


FOLDERS = {"exaone4_windows": "exaone4"}        # where that is not the name


def story_tokenizer(w):
    """tests/data/models/story's sentencepiece vocabulary, as the converter writes one."""
    with open(f"{HERE}/models/story/tok.bin", "rb") as f:
        data, at, tokens, scores, kinds = f.read(), 4, [], [], []
    while at < len(data):
        score, n = struct.unpack("<fi", data[at:at + 8])
        piece = data[at + 8:at + 8 + n]
        at += 8 + n
        i = len(tokens)
        kinds.append(2 if i == 0 else 3 if i < 3 else 6 if piece.startswith(b"<0x") else 1)
        tokens.append({0: b"<unk>", 1: b"<s>", 2: b"</s>"}.get(
            i, piece.replace(b" ", "\u2581".encode())))
        scores.append(score)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_chat_template(
        "{% for m in messages %}<{{ m.role }}> {{ m.content }}{{ eos_token }}{% endfor %}")
    return len(tokens)


def every_kind():
    """kinds.gguf: a small Llama with a tensor at least of every block type, and a vocabulary."""
    H, K, D, C, F, V = 2, 1, 32, 256, 64, 512
    words = dict(max_position_embeddings=128, hidden_size=C, num_hidden_layers=2,
                 intermediate_size=F, num_attention_heads=H, num_key_value_heads=K,
                 rms_norm_eps=1e-5, head_dim=D, rope_theta=10000.0, rotary=D)
    shapes = {"token_embd.weight": (V, C), "output_norm.weight": (C,)}
    for i in range(2):
        shapes.update({f"blk.{i}.{n}.weight": s
                       for n, s in dict(attn_norm=(C,), attn_q=(H * D, C), attn_k=(K * D, C),
                                        attn_v=(K * D, C), attn_output=(C, H * D), ffn_norm=(C,),
                                        ffn_gate=(F, C), ffn_up=(F, C), ffn_down=(C, F)).items()})
    layers = [dict(attn_q=T.Q4_K, attn_k=T.Q5_K, attn_v=T.Q6_K, ffn_gate=T.Q2_K, ffn_up=T.IQ4_XS,
                   attn_output=T.Q4_0, ffn_down=T.NVFP4),
              dict(attn_q=T.Q3_K, attn_k=T.Q4_1, attn_v=T.Q5_1, ffn_gate=T.MXFP4, ffn_up=T.Q4_K,
                   attn_output=T.Q5_0, ffn_down=T.Q8_0)]
    kinds = {g: layers[int(g.split(".")[1])].get(g.split(".")[2]) if g.startswith("blk")
             else T.IQ4_NL for g in shapes}
    tensors = {g: (RNG.standard_normal(s) * 0.08).astype(np.float32) if len(s) == 2
               else RNG.uniform(0.5, 1.5, s).astype(np.float32) for g, s in shapes.items()}
    decoded = write_model("kinds", "llama", words, tensors, lambda g, x: kinds[g], story_tokenizer)
    config = dict(words, model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=V,
                  tie_word_embeddings=True)
    del config["rotary"]
    hf = {g: h for g, h in LLAMA}
    where = {g: ([f"model.layers.{g.split('.')[1]}.{hf[g.split('.')[2]]}.weight"
                  if g.startswith("blk") else f"{hf[g[:-7]]}.weight"],
                 CHANGES["llama"].get(g.split(".")[2] if g.startswith("blk") else ""))
             for g in decoded}
    ids = [(7 * i * i + 3 * i) % V for i in range(40)]
    return evaluated(config, folder_of(decoded, where, H, K), ids)


# ---- encoders ----

BERT = [("token_embd", "embeddings.word_embeddings"),
        ("token_types", "embeddings.token_type_embeddings"),
        ("position_embd", "embeddings.position_embeddings"),
        ("token_embd_norm", "embeddings.LayerNorm"), ("attn_q", "attention.self.query"),
        ("attn_k", "attention.self.key"), ("attn_v", "attention.self.value"),
        ("attn_output", "attention.output.dense"),
        ("attn_output_norm", "attention.output.LayerNorm"), ("ffn_up", "intermediate.dense"),
        ("ffn_down", "output.dense"), ("layer_output_norm", "output.LayerNorm")]


def encoder(name, pooling):
    """A folder of tests/data/encoders: its weights in float16, its vocabulary, its pooling."""
    folder = f"{HERE}/encoders/{name}"
    c, tensors = read_folder(folder)
    with open(f"{folder}/tokenizer.json") as f:
        tok = json.load(f)
    vocab, hf = tok["model"]["vocab"], {h: g for g, h in BERT}
    first = c["pad_token_id"] + 1 if c["model_type"] == "roberta" else 0
    special = {t["id"] for t in tok["added_tokens"] if t["special"]}
    pieces = sorted(vocab, key=vocab.get) + [f"[PAD{i}]"
                                             for i in range(len(vocab), c["vocab_size"])]
    w = GGUFWriter(f"{OUT}/{name}.gguf", "bert")
    w.add_context_length(c["max_position_embeddings"] - first)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_eps(c["layer_norm_eps"])
    w.add_causal_attention(False)
    w.add_pooling_type(pooling)
    w.add_token_type_count(c["type_vocab_size"])
    if first:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("roberta-bpe")
        w.add_token_merges([m if isinstance(m, str) else " ".join(m)
                            for m in tok["model"]["merges"]])
        w.add_add_bos_token(True)
        w.add_add_eos_token(True)
        ends = ("<s>", "</s>", "<unk>")
    else:  # as files of 2024 are: no bos, no kind of normalising
        w.add_tokenizer_model("bert")
        w.add_tokenizer_pre("jina-v2-en")
        pieces = [p if i in special else p[2:] if p.startswith("##") else "\u2581" + p
                  for i, p in enumerate(pieces)]
        ends = ("[CLS]", "[SEP]", "[UNK]")
    w.add_token_list(pieces)
    w.add_token_types([3 if i in special else 1 if i < len(vocab) else 5
                       for i in range(len(pieces))])
    if first:
        w.add_bos_token_id(vocab[ends[0]])
        w.add_eos_token_id(vocab[ends[1]])
    else:
        w.add_uint32("tokenizer.ggml.cls_token_id", vocab[ends[0]])
    w.add_sep_token_id(vocab[ends[1]])
    w.add_unk_token_id(vocab[ends[2]])
    for n, x in tensors.items():
        base, suffix = n.rsplit(".", 1)
        layer, inner = (base[len("encoder.layer."):].split(".", 1)
                        if base.startswith("encoder.layer.") else (None, base))
        if inner in hf:
            x = x[first:] if inner.endswith("position_embeddings") else x
            w.add_tensor(f"{f'blk.{layer}.' if layer else ''}{hf[inner]}.{suffix}",
                         x.astype(np.float16 if x.ndim > 1 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


ENCODERS = {"minilm": gguf.PoolingType.MEAN, "roberta": gguf.PoolingType.CLS}


def main(names):
    """All of them, or these; expected.json keeps the others."""
    os.makedirs(OUT, exist_ok=True)
    expected = json.load(open(f"{OUT}/expected.json")) if names else {}
    for name, (arch, change, small) in MODELS.items():
        if names and name not in names:
            continue
        config, tensors = read_folder(f"{HERE}/families/{FOLDERS.get(name, name)}")
        if name == "qwen2_moe":  # the folder's second layer is dense: it gets the third one's
            tensors = {k: x for k, x in tensors.items() if ".layers.1.mlp." not in k}
            tensors.update({k.replace(".2.", ".1.", 1): x for k, x in tensors.items()
                            if ".layers.2.mlp." in k})
        if change.get("qk_layernorm") is False:
            tensors = {k: x for k, x in tensors.items()
                       if "_layernorm" not in k.split("self_attn")[-1] or "self_attn" not in k}
        words = common_words(arch, dict(config, **change))
        if name == "mpt":                       # one layer of three: the files should be small
            tensors = {k: x for k, x in tensors.items() if ".blocks." not in k or ".blocks.0." in k}
        if arch == "gpt-oss":
            tensors = gpt_oss_names(tensors)
        H, K = words["num_attention_heads"], words["num_key_value_heads"]
        g, where = converted(arch, tensors, H, K)
        if words.get("split"):
            for k in [k for k in g if "attn_kv_b" in k]:
                both = g.pop(k).reshape(H, -1, words["kv_lora_rank"])
                g[k.replace("kv_b", "k_b")] = np.ascontiguousarray(
                    both[:, :words["qk_nope_head_dim"]].swapaxes(1, 2))
                g[k.replace("kv_b", "v_b")] = np.ascontiguousarray(
                    both[:, words["qk_nope_head_dim"]:])
        if arch == "chatglm":  # the second layer as the newer folders' files have it
            for k in [k for k in g if "attn_q." in k and not k.startswith("blk.1.")]:
                g[k.replace("attn_q", "attn_qkv")] = np.concatenate(
                    [g.pop(k.replace("attn_q", f"attn_{x}")) for x in "qkv"])
        if name == "llama31":
            g["rope_freqs.weight"] = rope_factors(config["rope_scaling"], words["rope_theta"],
                                                  words["rotary"])
        decoded = write_model(name, arch, words, g,
                              lambda g, x: T.F16 if not small or x.shape[-1] % 32 else T.MXFP4
                              if name == "gpt_oss" and "_exps" in g and x.ndim == 3 else T.Q8_0)
        if small:
            with open(f"{HERE}/families/{name}/expected.json") as f:
                ids = json.load(f)["prompt_ids"]
            folder = folder_of(decoded, where, H, K)
            changed = {k: v for k, v in dict(config, **change).items()
                       if v is not None or k in config}
            expected[name] = evaluated(changed,
                                       gpt_oss_folder(folder) if arch == "gpt-oss" else folder, ids)
    for name, pooling in ENCODERS.items():
        if not names or name in names:
            encoder(name, pooling)
    if not names:
        expected["kinds"] = every_kind()
        write_blocks()
    with open(f"{OUT}/expected.json", "w") as f:
        json.dump(expected, f)
        f.write("\n")
    print(sum(os.path.getsize(f"{OUT}/{x}") for x in os.listdir(OUT)), "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
