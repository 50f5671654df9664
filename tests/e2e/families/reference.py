"""Small random models of every family, changed configurations of them, and what transformers makes
of these.

Used by variants.py beside this file and by tests/data/make_families.py; needs torch and
transformers.
"""
import copy, dataclasses, json, os, zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.activations import ACT2CLS

transformers.logging.set_verbosity(50)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

ABSENT = "(absent)"
# longer than windows and original contexts
IDS = [int(i) for i in np.random.default_rng(1).integers(0, 96, 48)]
HUGE = 1_000_000                                # parameters: beyond, only sizes are compared

LLAMA = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, hidden_act="silu",
             max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=1, eos_token_id=2)
WINDOW = dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)
FAMILIES = {
    "gpt2": dict(vocab_size=96, n_positions=64, n_embd=48, n_layer=3, n_head=3, bos_token_id=1,
                 eos_token_id=2),
    "llama": dict(LLAMA, attention_bias=False, mlp_bias=False),
    "mistral": dict(LLAMA, sliding_window=8),
    "qwen2": dict(LLAMA, **WINDOW),
    "qwen3": dict(LLAMA, **WINDOW),
    "phi3": dict(LLAMA, pad_token_id=0, sliding_window=16),
    "gemma2": dict(LLAMA, hidden_activation="gelu_pytorch_tanh", sliding_window=8,
                   query_pre_attn_scalar=16, tie_word_embeddings=True),
    "gpt_neox": dict(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                     intermediate_size=64, max_position_embeddings=64, rotary_pct=0.25,
                     bos_token_id=1, eos_token_id=2),
    "falcon": dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                   ffn_hidden_size=128, max_position_embeddings=64, bos_token_id=1, eos_token_id=2),
    "mpt": dict(d_model=48, n_heads=3, n_layers=3, max_seq_len=64, vocab_size=96),
    "mixtral": dict(LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(LLAMA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                      sliding_window=8),
}
del FAMILIES["gemma2"]["hidden_act"]

# Smaller ones.
SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
SLIDING = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention",
                                              "sliding_attention"])
MLA = dict(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=12,
           n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
           moe_intermediate_size=8)
BEFORE = set(FAMILIES)
FAMILIES.update({
    "smollm3": dict(SMALL, pad_token_id=0, no_rope_layers=[1, 0, 1]),
    "olmo": dict(SMALL, num_hidden_layers=2, clip_qkv=1.5),
    "olmo2": dict(SMALL, num_hidden_layers=2),
    "olmo3": dict(SMALL, **SLIDING),
    "stablelm": dict(SMALL, use_qkv_bias=True, qk_layernorm=True, num_hidden_layers=2,
                     partial_rotary_factor=0.5),
    "granite": dict(SMALL, num_hidden_layers=2, embedding_multiplier=3.0, attention_multiplier=0.2,
                    residual_multiplier=0.6, logits_scaling=2.0, attention_bias=True,
                    mlp_bias=True),
    "phi": dict(SMALL, num_hidden_layers=2, qk_layernorm=True),
    "starcoder2": dict(SMALL, num_hidden_layers=2, sliding_window=8),
    "gemma": dict(SMALL, num_hidden_layers=2, head_dim=16, tie_word_embeddings=True),
    "gemma3_text": dict(SMALL, head_dim=16, tie_word_embeddings=True, query_pre_attn_scalar=16,
                        **SLIDING),
    "cohere": dict(SMALL, num_hidden_layers=2, tie_word_embeddings=True, use_qk_norm=True,
                   logit_scale=0.5),
    "cohere2": dict(SMALL, tie_word_embeddings=True, logit_scale=0.5, **SLIDING),
    "opt": dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, ffn_dim=40,
                max_position_embeddings=64, num_attention_heads=4, word_embed_proj_dim=24,
                dropout=0.0, bos_token_id=1, eos_token_id=2),
    "bloom": dict(vocab_size=96, hidden_size=36, n_layer=2, n_head=3, seq_length=64),
    "gptj": dict(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=2, rotary_dim=8,
                 n_inner=40, bos_token_id=1, eos_token_id=2),
    "exaone4": dict(SMALL, **SLIDING),
    "gpt_oss": dict(SMALL, head_dim=16, intermediate_size=16, num_local_experts=4,
                    num_experts_per_tok=2, swiglu_limit=1.5, num_hidden_layers=2, sliding_window=8,
                    layer_types=["sliding_attention", "full_attention"],
                    rope_parameters=dict(rope_type="yarn", factor=4.0, truncate=False,
                                         rope_theta=150000.0, original_max_position_embeddings=16)),
    "deepseek_v2": dict(SMALL, num_hidden_layers=2, num_key_value_heads=4, **MLA,
                        topk_method="group_limited_greedy", q_lora_rank=None,
                        first_k_dense_replace=1),
    "deepseek_v3": dict(SMALL, num_hidden_layers=2, num_key_value_heads=4, **MLA, q_lora_rank=12,
                        n_shared_experts=1, first_k_dense_replace=0),
    "olmoe": dict(SMALL, num_hidden_layers=2, intermediate_size=16, num_experts=4,
                  num_experts_per_tok=2, clip_qkv=1.5, pad_token_id=0),
    "qwen2_moe": dict(SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                      shared_expert_intermediate_size=24, mlp_only_layers=[1]),
    "glm": dict(SMALL, num_hidden_layers=2, head_dim=16, pad_token_id=0, eos_token_id=2),
    "glm4": dict(SMALL, num_hidden_layers=2, head_dim=16, pad_token_id=0, eos_token_id=2),
    "ernie4_5": dict(SMALL, num_hidden_layers=2, head_dim=16, use_bias=True, pad_token_id=0),
    "hunyuan_v1_dense": dict(SMALL, num_hidden_layers=2, head_dim=16, pad_token_id=0),
})
for name in ("olmo", "olmo2", "olmo3", "cohere", "cohere2", "gemma", "gemma3_text"):
    FAMILIES[name] = dict(FAMILIES[name], pad_token_id=0)
BRIEF = set(FAMILIES) - BEFORE                  # with less of each in tests/data

S, F = "sliding_attention", "full_attention"
LINEAR = dict(rope_type="linear", factor=2.0)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="longrope", factor=4.0, short_factor=[1.0, 1.1, 1.2, 1.3],
            long_factor=[2.0] * 4, original_max_position_embeddings=64)


def old(r, **more):                             # transformers 4 called it "type"
    return dict({("type" if k == "rope_type" else k): v for k, v in r.items()}, **more)


def without(r, key):
    return {k: v for k, v in r.items() if k != key}


ROPES = [
    {}, LINEAR, dict(LINEAR, rope_theta=500.0), old(LINEAR), dict(LINEAR, factor=1.0),
    without(LINEAR, "factor"), dict(LINEAR, factor=None), dict(LINEAR, type="llama3"), LLAMA3,
    old(LLAMA3), dict(LLAMA3, low_freq_factor=2.0),
    without(LLAMA3, "original_max_position_embeddings"), without(LLAMA3, "low_freq_factor"), YARN,
    old(YARN), dict(YARN, beta_fast=8.0, beta_slow=2.0), dict(YARN, beta_fast=None),
    dict(YARN, attention_factor=1.5), dict(YARN, mscale=0.7, mscale_all_dim=1.3),
    dict(YARN, mscale=0.7), dict(YARN, truncate=False), dict(YARN, finetuned=True),
    without(YARN, "original_max_position_embeddings"), without(YARN, "factor"),
    dict(YARN, factor=None), dict(rope_type="dynamic", factor=2.0), dict(rope_type="proportional"),
    dict(rope_type="longrope", factor=4.0, short_factor=[1.0] * 4, long_factor=[2.0] * 4,
         original_max_position_embeddings=16),
    dict(rope_type="default"), dict(rope_type="default", rope_theta=50.0),
    dict(rope_type="default", factor=3.0), dict(rope_theta=50.0), dict(rope_theta=None),
    dict(rope_type=None), dict(rope_type="mrope", mrope_section=[1, 1, 2]),
    dict(rope_type="default", partial_rotary_factor=0.5), dict(LINEAR, partial_rotary_factor=0.5),
    dict(YARN, partial_rotary_factor=0.5), dict(partial_rotary_factor=0.3),
    {F: dict(LINEAR), S: dict(LINEAR)}, dict(LINEAR, frobnicate=1), "linear",
    dict(rope_type="dynamic", factor=2.0, alpha=1000.0), dict(rope_type="dynamic"), LONG, old(LONG),
    dict(LONG, attention_factor=1.2), dict(LONG, factor=None), without(LONG, "factor"),
    without(LONG, "long_factor"), dict(LONG, short_factor=[1.0] * 5),
    dict(LONG, short_factor=[1.0, "x", 1.0, 1.0]), dict(LONG, original_max_position_embeddings=16),
    old(LONG, type="su"), dict(LONG, short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                               long_factor=[2.0] * 8), dict(LINEAR, partial_rotary_factor=0.5),
                               dict(LLAMA3, partial_rotary_factor=0.5),
                               {F: dict(LINEAR, rope_theta=50.0)}, {F: YARN},
                               {F: dict(YARN, attention_factor=1.5), S: dict(rope_type="default")},
    {F: LONG}, {F: dict(rope_type="default", rope_theta=50.0),
                S: dict(rope_type="default", rope_theta=70.0)},
    {F: dict(rope_type="default")}, {S: dict(rope_theta=70.0)}, {F: None}, {S: YARN},
    {F: dict(YARN, truncate=False)},
]
PARTS = [0.5, 0.25, 0.3, 1.0, 0.0, 1.5]
SPECIAL = {                                     # key: values; more for what needs several keys
    "rope_scaling": ROPES, "rope_parameters": ROPES, "rope_theta": [50.0, 10000, 1e6, 0.5, "x"],
    "rotary_emb_base": [50.0, 10000], "rotary_pct": PARTS, "partial_rotary_factor": PARTS,
    "original_max_position_embeddings": [16],
    "layer_types": [[S, F, S], [F] * 3, [S] * 3, [F, S], ["attention", S, F],
                                                              ["chunked_attention", F, F], ["mamba",
                                                                  F, F]],
    "sliding_window": [8, 5, 1, 47, 48, 1000, 0], "max_window_layers": [0, 1, 2, 3, 28],
    "attn_config": [{}, None, dict(softmax_scale=0.5), dict(softmax_scale=0.0),
                    dict(softmax_scale=None), dict(alibi=False), dict(alibi_bias_max=4),
                    dict(clip_qkv=1.0), dict(clip_qkv=None), dict(qk_ln=True), dict(prefix_lm=True),
                    dict(attn_type="multiquery_attention"), dict(attn_impl="flash"),
                    dict(attn_uses_sequence_id=True), dict(attn_pdrop=0),
                    dict(dtype="float32", model_type=""), dict(rope=True), dict(kv_n_heads=2)],
    "mlp_only_layers": [[], [1], [0, 2], None, [7], ["x"]], "decoder_sparse_step": [2, 3],
    "pruned_heads": [{}, {"0": [1]}], "dtype": ["float32", "bfloat16"],
    "torch_dtype": ["float32", "float16"], "per_layer_config": [None, {"0": {}}],
    "architectures": [["X"], None], "norm_type": ["layernorm", "low_precision_rmsnorm"],
    "logit_scale": [0.5, "inv_sqrt_d_model"],
    "quantization_config": [{"quant_method": "hqq", "bits": 4}], "id2label": [{"0": "a", "1": "b"}],
    "label2id": [{"a": 0}], "problem_type": ["regression"], "num_ln_in_parallel_attn": [0, 1, 2, 3],
    "num_kv_heads": [1, 2, 4], "transformers_version": ["4.40.0"],
    "no_rope_layers": [[1, 1, 1], [0, 0, 0], [0, 1, 0], [1, 0], [1, 2, 0], None],
    "no_rope_layer_interval": [1, 2, 0], "clip_qkv": [None, 0.5, 0.0, -1.0],
    "sliding_window_pattern": [1, 2, 3, 0, None, "LLLG"], "rotary_dim": [4, 16, 7, 0, 20],
    "layer_switch": [2], "word_embed_proj_dim": [32, 24, 40],
    "embedding_multiplier": [2, 0.0, -1.0], "seq_length": [64, 32],
    "attention_multiplier": [1, 0.5, 0.0, -1.0], "residual_multiplier": [1, 0.0],
    "logits_scaling": [4, 0.0, -2.0], "rope_local_base_freq": [50.0, 1e6],
    "swiglu_limit": [0.5, 7.0, 0.0, -1.0], "swiglu_alpha": [1.0, 0.0],
    "topk_method": ["greedy", "x", "noaux_tc"], "n_group": [1, 2, 4, 8, 3, None],
    "topk_group": [1, 3, 4, 5, None], "first_k_dense_replace": [0, 1, 2, 3],
    "q_lora_rank": [None, 12], "routed_scaling_factor": [2.5, 1.0, 0.0],
    "scoring_func": ["softmax", "sigmoid"], "moe_layer_freq": [1, 2], "experts_per_token": [2],
    "use_bidirectional_attention": [True, False], "order_of_interleaved_layers": ["x"],
    "task_specific_params": [{"text-generation": {}}], "eos_token_id": [3, [2, 3]],
    "summary_type": ["mean"],
}
# keys of older and other classes, that occur in files
EXTRA = [
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "original_max_position_embeddings", "rotary_emb_base", "rotary_pct", "head_dim", "hidden_act",
    "hidden_activation", "layer_types", "sliding_window", "use_sliding_window", "max_window_layers",
    "attention_bias", "mlp_bias", "num_experts", "num_local_experts", "n_ctx", "n_embed", "n_inner",
    "torch_dtype", "pretraining_tp", "is_decoder", "is_causal", "add_cross_attention",
    "cross_attention_hidden_size", "use_bidirectional_attention", "attention_chunk_size",
    "per_layer_config", "pruned_heads", "quantization_config", "output_attentions", "num_labels",
    "auto_map", "tokenizer_class", "_name_or_path", "max_length", "temperature",
    "cache_implementation", "query_pre_attn_scalar", "logit_scale", "attn_logit_softcapping",
    "final_logit_softcapping", "use_mrope", "qk_layernorm", "tie_encoder_decoder",
    "task_specific_params", "apply_residual_connection_post_layernorm", "frobnicate", "norm_eps",
    "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "embd_pdrop", "rope_interleaved",
    "full_attn_mod", "hidden_size", "n_embd", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings", "n_positions", "n_layer", "clip_qkv", "rope_local_base_freq",
    "sliding_window_pattern", "use_qk_norm", "layer_switch", "order_of_interleaved_layers",
    "position_embedding_type", "use_parallel_block", "scoring_func", "moe_layer_freq",
    "topk_method", "experts_per_token", "seq_length", "n_head", "model_max_length", "rotary",
    "mlp_type", "is_llama_config", "quantization", "sliding_window_size", "_num_labels",
    "max_sequence_length",
]
GUESS = {                                       # what such keys may be
    "head_dim": 16, "sliding_window": 8, "num_experts": 4, "num_local_experts": 4, "n_ctx": 32,
    "n_embed": 32, "n_inner": 24, "rotary_pct": 0.5, "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0, "logit_scale": 0.5,
    "cache_implementation": "hybrid", "attention_chunk_size": 8, "_name_or_path": "x",
    "tokenizer_class": "LlamaTokenizer", "max_length": 20, "temperature": 0.7, "num_labels": 3,
    "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "clip_qkv": 1.0,
    "auto_map": {"AutoModel": "m.M"}, "norm_eps": 1e-3, "layer_norm_eps": 1e-3,
    "layer_norm_epsilon": 1e-3, "rms_norm_eps": 1e-3, "rope_interleaved": True, "frobnicate": 7,
    "cross_attention_hidden_size": 8, "max_window_layers": 1, "partial_rotary_factor": 0.5,
    "is_causal": False, "full_attn_mod": 2, "is_llama_config": True, "quantization": {"bits": 4},
    "sliding_window_size": 4, "_num_labels": 1, "max_sequence_length": 16, "use_qk_norm": True,
    "position_embedding_type": "x", "use_parallel_block": False, "model_max_length": 9,
    "rotary": False, "mlp_type": "gated",
}
COMBOS = {                                      # several keys at once
    "rope_theta absent, both spellings": [dict(rope_scaling=LINEAR,
                                               rope_parameters=dict(rope_theta=50.0)),
                                          dict(rope_scaling={}, rope_parameters=dict(LINEAR)),
                                          dict(rope_scaling=None, rope_parameters=dict(LINEAR)),
                                          dict(rope_theta=50.0, rope_scaling=old(LINEAR)),
                                          dict(rope_theta=50.0,
                                               rope_parameters=dict(LINEAR, rope_theta=70.0)),
                                          dict(rope_theta=None, rope_scaling=old(LINEAR)),
                                          dict(rope_scaling=LLAMA3,
                                               original_max_position_embeddings=32),
                                          dict(rope_scaling=YARN,
                                               original_max_position_embeddings=32),
                                          dict(rope_scaling=without(YARN,
                                              "original_max_position_embeddings"),
                                               rope_theta=100.0)],
    "qwen2 windows": [dict(use_sliding_window=u, sliding_window=w, max_window_layers=m,
                           layer_types=t)
                      for u in (True, False, ABSENT) for w in (8, None, ABSENT)
                      for m, t in ((1, ABSENT), (ABSENT, ABSENT), (0,
                          None), (1, [S, F, S]), (3, [F, F, F]))],
    "gemma2 windows": [dict(sliding_window=w, layer_types=t, head_dim=8) for w in (8, None)
                       for t in (ABSENT, None, [F, F, F], [S, F, F])],
    "gpt2 scales": [dict(scale_attn_weights=a, scale_attn_by_inverse_layer_idx=b)
                    for a in (True, False)
                    for b in (True, False)],
    "falcon shapes": [dict(new_decoder_architecture=n, multi_query=m, parallel_attn=p,
                           num_kv_heads=k, bias=b, alibi=a, num_ln_in_parallel_attn=l)
                      for n, k in ((True, 2), (True, 4), (False, ABSENT), (False, 4), (False, 2))
                      for m in (True, False)
                      for p in (True, False) for a in (True, False) for b in (True,)
                      for l in (ABSENT, 1, 2)],
    "falcon alibi": [dict(alibi=True, num_attention_heads=h, max_position_embeddings=c)
                     for h in (1, 2, 4, 8, 16, 3)
                     for c in (64, 257, 512)],
    "mpt heads": [dict(n_heads=h) for h in (1, 2, 3, 5, 8)] + [dict(tie_word_embeddings=False)],
    "gpt_neox parts": [dict(rotary_pct=p, rope_scaling=r) for p in (0.25, 0.5, 1.0, 0.3)
                       for r in (LINEAR, LLAMA3, YARN)],
    "phi3 longrope": [dict(head_dim=ABSENT, rope_scaling=dict(LONG, **m),
                           original_max_position_embeddings=o)
                      for m in ({}, dict(attention_factor=1.2), dict(factor=None),
                                dict(rope_type="su")) for o in (64, 16, ABSENT)],
    "smollm3 windows": [dict(use_sliding_window=u, sliding_window=8, layer_types=t,
                             no_rope_layers=n) for u in (True, False)
                        for t in (ABSENT, [S, F, S], [F, F, F]) for n in ([1, 0, 1], ABSENT)],
    "exaone4 windows": [dict(sliding_window=w, sliding_window_pattern=n, layer_types=t)
                        for w in (8, None)
                        for n in (2, None, "LLLG", ABSENT) for t in (ABSENT, [F, F, F], [S, S, F])],
    "cohere2 windows": [dict(sliding_window=w, sliding_window_pattern=n, layer_types=t)
                        for w in (8, None)
                        for n in (2, ABSENT) for t in (ABSENT, [F, F, F], [S, S, F])],
    "gemma3_text windows": [dict(sliding_window=w, sliding_window_pattern=n, layer_types=t)
                            for w in (8, None)
                            for n in (2, ABSENT) for t in (ABSENT, [F, F, F], [S, S, F])],
    "gemma3_text ropes": [dict(rope_theta=50.0, rope_local_base_freq=70.0, rope_scaling=r,
                               rope_parameters=q)
                          for r in (ABSENT, LINEAR)
                          for q in (ABSENT, {F: dict(rope_type="default", rope_theta=90.0)})],
    "olmo3 ropes": [dict(rope_theta=50.0, rope_scaling=r, rope_parameters=q)
                    for r in (ABSENT, LINEAR) for q in (ABSENT,
                                                        {F: dict(rope_type="default",
                                                            rope_theta=90.0)})],
    "stablelm shapes": [dict(use_parallel_residual=a, qk_layernorm=b, use_qkv_bias=c,
                             partial_rotary_factor=p)
                        for a in (True, False) for b in (True, False) for c in (True, False)
                        for p in (0.5, 1.0)],
    "phi shapes": [dict(qk_layernorm=b, partial_rotary_factor=p, num_key_value_heads=k)
                   for b in (True, False)
                   for p in (0.25, 1.0) for k in (1, 4)],
    "cohere shapes": [dict(use_qk_norm=b, num_key_value_heads=k, attention_bias=a)
                      for b in (True, False) for k in (1, 4)
                      for a in (True, False)],
    "opt shapes": [dict(do_layer_norm_before=a, word_embed_proj_dim=w, _remove_final_layer_norm=r,
                        layer_norm_elementwise_affine=f, enable_bias=e) for a in (True, False)
                        for w in (24, None)
                   for r in (True, False) for f in (True, False) for e in (True, False)],
    "heads": [dict(num_attention_heads=h, num_key_value_heads=k, head_dim=d)
              for h, k in ((4, 4), (4, 1), (2, 2))
              for d in (8, 16, None, ABSENT)],
}


def seeded(model):
    """Weights by name: equal names and shapes get equal numbers, large enough that mistakes
    show."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = np.random.default_rng(zlib.crc32(name.encode()))
            x = r.standard_normal(tuple(p.shape)).astype(np.float32)
            if p.ndim > 1:
                x *= (1.0 if "emb" in name or "wte" in name or "wpe" in name
                      else 1.5 / p.shape[-1] ** 0.5)
            elif name.endswith("bias"):
                x *= 0.3
            else:
                x = 0.2 * x + (0.0 if model.config.model_type.startswith("gemma") else 1.0)
            p.copy_(torch.from_numpy(x.astype(np.float16).astype(np.float32)))     # as half, too
        for name, p in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                r = np.random.default_rng(zlib.crc32(name.encode()))
                p.copy_(torch.from_numpy((0.3 * r.standard_normal(tuple(p.shape))).astype(
                    np.float16).astype(np.float32)))


def write(folder, config):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


class Reference:
    """transformers on a folder's config.json."""

    def __init__(self, folder, config):
        self.config = AutoConfig.from_pretrained(folder)
        # Falcon's eager attention adds ALiBi twice; what runs by default adds it once
        how = "sdpa" if config.get("model_type") == "falcon" and config.get("alibi") else "eager"
        with torch.device("meta"):
            meta = AutoModelForCausalLM.from_config(self.config, attn_implementation=how)
        self.size = sum(p.numel() for p in meta.parameters())
        self.size += sum(p.numel() for n, p in meta.named_buffers()
                         if n.endswith("e_score_correction_bias"))
        self.shapes = {n: tuple(p.shape) for n, p in meta.named_parameters()}
        self.ctx = next(getattr(self.config, k) for k in ("max_position_embeddings", "max_seq_len",
                                                          "seq_length")
                        if hasattr(self.config, k))
        self.model = None
        if self.size <= HUGE:
            fresh = AutoConfig.from_pretrained(folder)
            fresh._experts_implementation = "eager"     # others want widths in multiples
            self.model = AutoModelForCausalLM.from_config(fresh, attn_implementation=how,
                                                          dtype=torch.float32).eval()
            seeded(self.model)

    def save(self, folder):
        """The weights, as float16, which holds them; config.json stays."""
        config = open(f"{folder}/config.json").read()
        copy.deepcopy(self.model).half().save_pretrained(folder)
        open(f"{folder}/config.json", "w").write(config)

    def logits(self, ids):
        with torch.no_grad():
            return self.model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def difference(want, got):
    return float(
        np.max(np.abs(got - want) / (1 + np.abs(want)))) if want.shape == got.shape else float(
            "inf")


def values(key, default, base):
    now = base.get(key, default)
    out = list(SPECIAL.get(key, []))
    if key in ("hidden_act", "hidden_activation", "activation_function", "activation"):
        out += list(ACT2CLS) + ["frob"]
    elif isinstance(now, bool):
        out += [True, False]
    elif isinstance(now, int):
        out += [now * 2, now // 2, now + 1, 0] if not out else []
    elif isinstance(now, float):
        out += [now * 2, now / 2, 0.0, 0.1]
    if key in GUESS:
        out += [GUESS[key]]
    elif now is None and not out:
        out += [True, False, 8, 0.5]
    return [ABSENT, None] + [v for i, v in enumerate(out) if v not in out[:i]
                             or isinstance(v, bool)]


def variants(family, base):
    """(key, {key: value, ...}) of every key that the class has, and more."""
    config_class = type(AutoConfig.for_model(family))
    fields = {f.name: f.default for f in dataclasses.fields(config_class)}
    own = set(fields) | set(EXTRA)
    for key in config_class.attribute_map:
        fields.setdefault(key, base.get(config_class.attribute_map[key]))
    for key in EXTRA:
        fields.setdefault(key, None)
    for key in fields:
        if key != "model_type":
            default = fields[key] if isinstance(fields[key], (bool, int, float, str)) else None
            for v in values(key, default, base):
                if apply(base, {key: v}) != base:
                    yield key, {key: v}
    for name, group in COMBOS.items():
        for change in group:
            if own >= set(change) and (name.split()[0] not in FAMILIES or name.split()[0] == family
                          or name == "qwen2 windows" and family in ("qwen2", "qwen3", "qwen3_moe",
                                  "qwen2_moe")):
                yield tuple(change), change


def apply(base, change):
    out = dict(base)
    for k, v in change.items():
        out.pop(k, None)
        if v != ABSENT:
            out[k] = v
    return out
