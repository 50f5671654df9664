#!/usr/bin/env python3
"""Writes tests/data/quant: small quantised Hugging Face folders of every kind that tgc reads, all
codes random, and of each weight what the package that defines the kind decodes: hashes of its
float32 values, in decoded.json.

    python3 tests/data/make_quant.py            needs numpy, torch, bitsandbytes, compressed-tensors

bitsandbytes and compressed-tensors decode their own.  Of GPTQ, AWQ, fp8 and gpt-oss the definition
is here, in numpy.
"""
import json, os, struct
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quant")
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32",
         np.dtype(np.int64): "I64", np.dtype(np.int8): "I8", np.dtype(np.uint8): "U8"}


class As:
    """Bytes of a type that numpy has not."""
    def __init__(self, dtype, array):
        self.dtype, self.array = dtype, array


def write(path, tensors):
    head, at, data = {"__metadata__": {"format": "pt"}}, 0, []
    def size(t):
        a = t.array if isinstance(t, As) else t
        return -a.itemsize
    for name in sorted(tensors, key=lambda k: (size(tensors[k]), k)):
        t = tensors[name]
        dtype, a = (t.dtype, t.array) if isinstance(t, As) else (NAMES[t.dtype], t)
        raw = np.ascontiguousarray(a).tobytes()
        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def bf16(x):
    """float32 to bf16's 16 bits, and back."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return As("BF16", ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16))


def of_bf16(a):
    return (a.array.astype(np.uint32) << 16).view(np.float32)


def e4m3(b):
    import torch
    return torch.from_numpy(b.copy()).view(torch.float8_e4m3fn).to(torch.float32).numpy()


def pack(codes, bits):
    """Along the last axis, into int32, without gaps."""
    n, k = codes.shape
    stream = (codes[:, :, None] >> np.arange(bits) & 1).astype(np.uint8).reshape(n, k * bits)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    return np.packbits(stream, axis=1, bitorder="little").view(np.int32)


def scales(rng, shape, dtype=np.float32, small=True):
    """Finite, most of usual size, some subnormal or 0 or negative."""
    s = np.exp(rng.normal(-4, 1, shape))
    if small:
        s = np.where(rng.random(shape) < .02, s * (6e-8 if dtype == np.float16 else 1e-38), s)
        s = np.where(rng.random(shape) < .01, 0, s)
        s = np.where(rng.random(shape) < .02, -s, s)
    return s.astype(dtype)


# ---- each returns tensors with names behind the layer's, and the decoded weight (N,K) in float32 -

def bnb4(kind, double=False, block=64):
    def make(rng, N, K, name):
        import torch, bitsandbytes.functional as F
        n = N * K
        code = rng.integers(0, 256, ((n + 1) // 2, 1), dtype=np.uint8)
        blocks = -(-n // block)
        absmax = np.abs(scales(rng, blocks))
        table = F.get_4bit_type(kind, device="cpu").float().numpy()
        state = {"quant_type": kind, "blocksize": block, "dtype": "float32", "shape": [N, K]}
        t = {"": code, ".quant_map": table}
        if double:
            nested, offset = (np.abs(scales(rng, -(-blocks // 256), small=False)),
                              float(np.float32(rng.random() * .01)))
            map8, u8 = (F.create_dynamic_map().float().numpy(),
                        rng.integers(0, 256, blocks, dtype=np.uint8))
            state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=offset)
            t.update({".absmax": u8, ".nested_absmax": nested, ".nested_quant_map": map8})
            absmax = F.dequantize_blockwise(torch.from_numpy(u8), absmax=torch.from_numpy(nested),
                                            code=torch.from_numpy(map8),
                                            blocksize=256).numpy() + np.float32(offset)
        else:
            t[".absmax"] = absmax
        # the package's general form; its AVX-512 one begins a block with each row, unlike its CUDA
        from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
        want = _dequantize_4bit_compute(torch.from_numpy(code).reshape(-1),
                                        torch.from_numpy(absmax), torch.from_numpy(table), block,
                                        (N, K), torch.float32).numpy()
        t[f".quant_state.bitsandbytes__{kind}"] = np.frombuffer(
            json.dumps(state).encode(), np.uint8)
        return {".weight" + k: v for k, v in t.items()}, want
    return make, {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                  "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double,
                  "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
                  "llm_int8_skip_modules": None, "llm_int8_threshold": 6.0}


def bnb8():
    def make(rng, N, K, name):
        import torch, bitsandbytes.functional as F
        q, s = rng.integers(-127, 128, (N, K), dtype=np.int8), scales(rng, N)
        want = F.int8_vectorwise_dequant(torch.from_numpy(q), torch.from_numpy(s)).numpy()
        return {".weight": q, ".SCB": s, ".weight_format": np.array(0, np.uint8)}, want
    return make, {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
                  "llm_int8_threshold": 6.0, "llm_int8_skip_modules": ["lm_head"]}


def gptq(bits, group=16, v2=False, act=False, bias=False):
    def make(rng, N, K, name):
        g = group if group > 0 else K
        G = -(-K // g)
        q, z = rng.integers(0, 1 << bits, (K, N)), rng.integers(0 if v2 else 1, 1 << bits, (G, N))
        s, index = scales(rng, (G, N), np.float16), (np.arange(K) // g).astype(np.int32)
        if act:
            index = rng.permutation(index).astype(np.int32)
        want = (q.astype(np.float32) - z[index].astype(np.float32)) * s[index].astype(np.float32)
        t = {".qweight": pack(q.T, bits).T, ".qzeros": pack(z if v2 else z - 1, bits), ".scales": s,
             ".g_idx": index}
        if bias:
            t[".bias"] = np.zeros(N, np.float16)
        return t, np.ascontiguousarray(want.T)
    return make, {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act,
                  "sym": False, "lm_head": False, "checkpoint_format": "gptq_v2" if v2 else "gptq",
                  "damp_percent": 0.01, "true_sequential": True}


def awq(group=16):
    def make(rng, N, K, name):
        order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
        def words(m):
            m = m.reshape(m.shape[0], -1, 8)[:, :, order].astype(np.uint32)
            return (m << (4 * np.arange(8, dtype=np.uint32))).sum(
                -1, dtype=np.uint32).view(np.int32)
        q, z, s = (rng.integers(0, 16, (K, N)), rng.integers(0, 16, (K // group, N)),
                   scales(rng, (K // group, N), np.float16))
        i = np.arange(K) // group
        want = (q.astype(np.float32) - z[i].astype(np.float32)) * s[i].astype(np.float32)
        return ({".qweight": words(q), ".qzeros": words(z), ".scales": s},
                np.ascontiguousarray(want.T))
    return make, {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                  "version": "gemm", "modules_to_not_convert": ["lm_head"]}


def ct_args(**kw):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    kw.pop("actorder", None)                # the package of today knows no other order of groups
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**kw))


def ct(form, more=None, **kw):
    """compressed-tensors: `form` decodes what is made here by kw, the weights' scheme."""
    def make(rng, N, K, name):
        import torch
        from compressed_tensors.compressors import BaseCompressor
        T = lambda a: torch.from_numpy(np.ascontiguousarray(a))
        t, by, bits, strategy = {}, {}, kw["num_bits"], kw["strategy"]
        G = K // kw["group_size"] if strategy in ("group", "tensor_group") else 1
        shape = {"tensor": (1,), "channel": (N, 1),
                 "block": tuple(-(-a // b)
                                for a, b in zip((N, K), kw.get("block_structure", (1, 1))))}
        s = bf16(scales(rng, shape.get(strategy, (N, G))))
        if form == "pack-quantized":
            q = rng.integers(0, 1 << bits, (N, K))
            t = {"weight_packed": pack(q, bits), "weight_shape": np.array([N, K], np.int64),
                 "weight_scale": s}
            if not kw["symmetric"]:
                t["weight_zero_point"] = np.ascontiguousarray(
                    pack(rng.integers(0, 1 << bits, (G, N)), bits).T)
        elif form in ("int-quantized", "float-quantized"):
            b = rng.integers(0, 256, (N, K), dtype=np.uint8)
            b[b & 127 == 127] = 0           # NaN
            t = {"weight": b.view(np.int8) if form[0] == "i" else As("F8_E4M3", b),
                 "weight_scale": s}
            if not kw["symmetric"]:
                t["weight_zero_point"] = rng.integers(-128, 128, s.array.shape, dtype=np.int8)
            if form[0] == "f":
                t["input_scale"] = np.array([.5], np.float32)
        else:
            t = {"weight_packed": rng.integers(0, 256, (N, K // 2), dtype=np.uint8)}
            if form == "nvfp4-pack-quantized":
                t["weight_scale"] = As("F8_E4M3", rng.integers(0, 127, (N, G), dtype=np.uint8))
                t["weight_global_scale"] = np.array([rng.random() * 1000 + 1], np.float32)
            else:
                t["weight_scale"] = rng.integers(90, 140, (N, G), dtype=np.uint8)
        for k, v in t.items():
            by[k] = (T(of_bf16(v)) if isinstance(v, As) and v.dtype == "BF16" else
                     T(v.array).view(torch.float8_e4m3fn) if isinstance(v, As) else T(v))
        if form == "int-quantized" or form == "float-quantized":
            by["weight_scale"] = by["weight_scale"].float()
        if form == "nvfp4-pack-quantized" or form == "mxfp4-pack-quantized":
            # the package computes in bf16; its formula in float32
            low, high = t["weight_packed"] & 15, t["weight_packed"] >> 4
            v = E2M1[np.stack([low, high], -1).reshape(N, K)]
            sc = t["weight_scale"]
            sc = (e4m3(sc.array) / t["weight_global_scale"] if isinstance(sc, As)
                  else np.exp2(sc.astype(np.float32) - 127))
            want = v * np.repeat(sc.astype(np.float32), K // G, 1)
            package = BaseCompressor.get_value_from_registry(form).decompress(
                by, ct_args(**kw))["weight"].float().numpy()
            assert np.abs(package - want).max() <= 2 ** -6 * np.abs(want).max()
        else:
            want = BaseCompressor.get_value_from_registry(form).decompress(
                by, ct_args(**kw))["weight"].float().numpy()
        if kw.get("actorder") == "group":
            # of each column its own group's numbers
            index = rng.permutation(np.arange(K) // kw["group_size"]).astype(np.int32)
            t["weight_g_idx"] = index
            z = (np.stack([[int(np.asarray(t["weight_zero_point"])
                                .view(np.uint32)[n * bits // 32, g])
                            >> n * bits % 32 & ((1 << bits) - 1) for g in range(G)]
                           for n in range(N)])
                 if "weight_zero_point" in t else np.full((N, G), 1 << bits - 1))
            want = ((q - z[:, index]).astype(np.float32)) * of_bf16(s)[:, index]
        return {"." + k: v for k, v in t.items()}, np.ascontiguousarray(want, np.float32)
    weights = {"dynamic": False, "group_size": None, "block_structure": None, "actorder": None,
               "observer": "minmax", "observer_kwargs": {}, **kw}
    return make, {"quant_method": "compressed-tensors", "format": form,
                  "quantization_status": "compressed", "ignore": ["lm_head"],
                  "global_compression_ratio": None, "kv_cache_scheme": None, **(more or {}),
                  "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                                "input_activations": None,
                                                "output_activations": None}}}


def fp8(block, scale_name=".weight_scale_inv"):
    def make(rng, N, K, name):
        b = rng.integers(0, 256, (N, K), dtype=np.uint8)
        b[b & 127 == 127] = 0
        if not block:
            s = scales(rng, (), small=False)
            return ({".weight": As("F8_E4M3", b), scale_name: s,
                     ".input_scale": np.array(1, np.float32)}, e4m3(b) * s)
        s = scales(rng, (-(-N // block[0]), -(-K // block[1])))
        want = e4m3(b) * np.repeat(np.repeat(s, block[0], 0)[:N], block[1], 1)[:, :K]
        return {".weight": As("F8_E4M3", b), scale_name: s}, want
    return make, {"quant_method": "fp8", "activation_scheme": "dynamic" if block else "static",
                  "fmt": "e4m3", "weight_block_size": block}


def mxfp4():
    """Experts of gpt-oss: (E,R,G,16) to (E,32G,R)."""
    def make(rng, E, R, K, name):
        b = rng.integers(0, 256, (E, R, K // 32, 16), dtype=np.uint8)
        s = rng.integers(100, 130, (E, R, K // 32), dtype=np.uint8)
        v = E2M1[np.stack([b & 15, b >> 4], -1).reshape(E, R, K // 32, 32)]
        want = (v * np.exp2(s.astype(np.float32) - 127)[..., None]).reshape(E, R, K)
        return {"_blocks": b, "_scales": s}, np.ascontiguousarray(want.transpose(0, 2, 1))
    return (make,
            {"quant_method": "mxfp4",
             "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                        "model.embed_tokens", "lm_head"]})


KINDS = {"bnb_nf4": lambda: bnb4("nf4"), "bnb_nf4_double": lambda: bnb4("nf4", True),
         "bnb_fp4": lambda: bnb4("fp4", block=128),
         "bnb_int8": bnb8,
         "gptq_4": lambda: gptq(4, bias=True), "gptq_4_act_v2": lambda: gptq(4, v2=True, act=True),
         "gptq_3": lambda: gptq(3, 32),
         "gptq_2_act": lambda: gptq(2, act=True), "gptq_8_column": lambda: gptq(8, -1),
         "awq": awq,
         "ct_int4": lambda: ct("pack-quantized", num_bits=4, type="int", strategy="group",
                               group_size=16, symmetric=True),
         "ct_int4_zero_act": lambda: ct("pack-quantized", num_bits=4, type="int", strategy="group",
                                        group_size=16, symmetric=False, actorder="group"),
         "ct_int3_channel_zero": lambda: ct("pack-quantized", num_bits=3, type="int",
                                            strategy="channel", symmetric=False),
         "ct_int8_zero": lambda: ct("int-quantized", num_bits=8, type="int", strategy="tensor",
                                    symmetric=False),
         "ct_fp8": lambda: ct("float-quantized", num_bits=8, type="float", strategy="tensor",
                              symmetric=True),
         "ct_fp8_block": lambda: ct("float-quantized", num_bits=8, type="float", strategy="block",
                                    block_structure=[24, 20], symmetric=True),
         "ct_nvfp4": lambda: ct("nvfp4-pack-quantized", num_bits=4, type="float",
                                strategy="tensor_group", group_size=16, symmetric=True),
         "ct_mxfp4": lambda: ct("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group",
                                group_size=32, symmetric=True),
         "fp8_block": lambda: fp8([24, 20]), "fp8_tensor": lambda: fp8(None),
}
ROWS = {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32), "o_proj": (32, 32)}
MLP = {"gate_proj": (64, 32), "up_proj": (64, 32), "down_proj": (32, 64)}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16,
         "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
         "bos_token_id": 1, "eos_token_id": 2}
GPTOSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 16,
          "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
          "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 8,
          "layer_types": ["full_attention"], "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 10000.0,
          "rope_scaling": {"rope_type": "default"}, "bos_token_id": 1, "eos_token_id": 2}


def fnv(a):
    h = 0xCBF29CE484222325
    for b in np.ascontiguousarray(a).tobytes():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def folder(out, config, quant, tensors, want):
    os.makedirs(out, exist_ok=True)
    write(f"{out}/model.safetensors", tensors)
    with open(f"{out}/config.json", "w") as f:
        f.write(json.dumps({**config, "quantization_config": quant}) +  "\n")
    with open(f"{out}/decoded.json", "w") as f:
        f.write(json.dumps({k: fnv(np.asarray(v, np.float32)) for k, v in sorted(want.items())},
                           indent=1) + "\n")


def common(rng, V=16, C=32):
    r = lambda *s: bf16(rng.normal(0, .3, s))
    return {"model.embed_tokens.weight": r(V, C), "lm_head.weight": r(V, C),
            "model.norm.weight": r(C), "model.layers.0.input_layernorm.weight": r(C),
            "model.layers.0.post_attention_layernorm.weight": r(C)}


def llama(kind):
    rng = np.random.default_rng(sum(map(ord, kind)))
    make, quant = KINDS[kind]()
    tensors, want = common(rng), {}
    for part, layers in (("self_attn", ROWS), ("mlp", MLP)):
        for name, (N, K) in layers.items():
            base = f"model.layers.0.{part}.{name}"
            t, want[base + ".weight"] = make(rng, N, K, name)
            tensors.update({base + k: v for k, v in t.items()})
    folder(f"{OUT}/{kind}", LLAMA, quant, tensors, want)


def gptoss():
    rng = np.random.default_rng(5)
    make, quant = mxfp4()
    tensors, want, at = common(rng), {}, "model.layers.0."
    for name, (N, K) in {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32),
                         "o_proj": (32, 32)}.items():
        tensors[f"{at}self_attn.{name}.weight"] = bf16(rng.normal(0, .3, (N, K)))
        tensors[f"{at}self_attn.{name}.bias"] = bf16(rng.normal(0, .3, N))
    tensors.update({at + "self_attn.sinks": bf16(rng.normal(0, 1, 2)),
                    at + "mlp.router.weight": bf16(rng.normal(0, 1, (3, 32))),
                    at + "mlp.router.bias": bf16(rng.normal(0, 1, 3)),
                    at + "mlp.experts.gate_up_proj_bias": bf16(rng.normal(0, .3, (3, 64))),
                    at + "mlp.experts.down_proj_bias": bf16(rng.normal(0, .3, (3, 32)))})
    for name, R in (("gate_up_proj", 64), ("down_proj", 32)):
        t, want[f"{at}mlp.experts.{name}"] = make(rng, 3, R, 32, name)
        tensors.update({f"{at}mlp.experts.{name}{k}": v for k, v in t.items()})
    folder(f"{OUT}/mxfp4", GPTOSS, quant, tensors, want)


if __name__ == "__main__":
    for kind in KINDS:
        llama(kind)
    gptoss()
