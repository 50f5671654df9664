#!/usr/bin/env python3
"""Writes tests/data/vectors.safetensors: inputs, weights and outputs of single blocks and of a
small GPT, float32, computed in double precision.

    python3 tests/data/make_vectors.py                  needs torch and safetensors

A tensor is named TEST_PART, as tests/test_infer_vectors.c asks for it.  x of the blocks is (2, 3,
4); attention's and rope's are (4, 12, 64), of 16 keys.
"""
import math, os
import torch, torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
r = torch.Generator().manual_seed(3)
out = {}


def new(name, *shape, scale=1.0, at=0.0):
        """Random, as float32 holds it."""
        x = (at + scale * torch.randn(*shape, generator=r)).float()
        out[name] = x
        return x.double()


def keep(name, x):
        out[name] = x.float().contiguous()


def norm(x, t, gain, bias):
        return F.layer_norm(x, x.shape[-1:], new(f"{t}_{gain}", 4, at=1.0, scale=0.3),
                            new(f"{t}_{bias}", 4, scale=0.3), 1e-5)


def mlp(x, t, w1, b1, w2, b2):
        h = F.gelu(x @ new(f"{t}_{w1}", 8, 4).T + new(f"{t}_{b1}", 8))
        return h @ new(f"{t}_{w2}", 4, 8).T + new(f"{t}_{b2}", 4)


def mhsa(x, t, p=""):
        B, T = x.shape[:2]
        w = {n: new(f"{t}_{p}w_{n}", 4, 4) for n in "qkvo"}
        q, k, v = ((x @ w[n].T).view(B, T, 2, 2).transpose(1, 2) for n in "qkv")
        s = (q @ k.transpose(2, 3) / math.sqrt(2)).masked_fill(
            torch.ones(T, T).triu(1).bool(), -math.inf)
        return ((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, 4) @ w["o"].T
                + new(f"{t}_{p}w_o_bias", 4))


def block(x, t):
        x = x + mhsa(norm(x, t, "ln1_gamma", "ln1_beta"), t, "mhsa_")
        return x + mlp(norm(x, t, "ln2_gamma", "ln2_beta"), t, "mlp_w1", "mlp_b1", "mlp_w2",
                       "mlp_b2")


def gpt(t, ids):
        x = new(f"{t}_token_embedding", 10, 4)[ids] + new(f"{t}_pos_embedding", 5, 4)[:len(ids)]
        x = x[None]
        for l in range(2):
                x = block(x, f"{t}_layer_{l}")
        keep(f"{t}_logits",
             (norm(x, t, "final_ln_gamma", "final_ln_beta")
              @ new(f"{t}_lm_head_weight", 10, 4).T)[0])


def sdpa():
        q, k, v = new("sdpa_q", 4, 12, 64), new("sdpa_k", 4, 16, 64), new("sdpa_v", 4, 16, 64)
        mask = torch.rand(4, 12, 16, generator=r) > 0.4
        mask[:, :, 0] = True                            # nobody sees nothing
        keep("sdpa_mask", mask)
        s = (q @ k.transpose(1, 2) / 8).masked_fill(~mask, -math.inf)
        keep("sdpa_out", s.softmax(-1) @ v)


def rope():
        x = new("rope_x", 4, 12, 64)
        a = torch.arange(12).double()[:, None] / 10000 ** (torch.arange(0, 64, 2).double() / 64)
        u, v = x[..., 0::2], x[..., 1::2]               # neighbours turn together
        keep("rope_out",
             torch.stack([u * a.cos() - v * a.sin(), u * a.sin() + v * a.cos()], -1).flatten(2))


if __name__ == "__main__":
        for t, f in (("layernorm_test", lambda x, t: norm(x, t, "gamma", "beta")),
                     ("mlp_test",
                      lambda x, t: mlp(x, t, "linear1_weight", "linear1_bias", "linear2_weight",
                                       "linear2_bias")), ("mhsa_test", mhsa),
                     ("transformer_block_test", block)):
                keep(f"{t}_output", f(new(f"{t}_input", 2, 3, 4), t))
        gpt("gpt_forward_single_token_test", [3])
        gpt("gpt_forward_multi_token_test", [1, 4, 2, 7])
        sdpa()
        rope()
        save_file(out, f"{HERE}/vectors.safetensors")
        print(len(out), "tensors,", os.path.getsize(f"{HERE}/vectors.safetensors"), "bytes")
