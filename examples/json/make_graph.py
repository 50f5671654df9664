#!/usr/bin/env python3
"""make_graph.py LAYERS: a residual MLP language model as a tgc graph, on standard output."""
import json
import sys

V, C, F = 65, 32, 64
nodes = []


def node(name, op, *inputs, type=None, **attr):
    nodes.append({"name": name, "op": op, **({"in": list(inputs)} if inputs else {}),
                  **({"attr": attr} if attr else {}), **({"type": type} if type else {})})
    return name


def weight(name, *shape):  # init 2: normal, a: its deviation
    return node(name, "param", type="f32[%s]" % ",".join(map(str, shape)), init=2, a=0.1, decay=1)


ids, targets = (node(n, "input", type="i32[B,T]") for n in ("ids", "targets"))
x = node("x", "gather", weight("wte", V, C), ids)
for i in range(int(sys.argv[1])):
    h = node(f"norm{i}", "rmsnorm", x, x=1e-5)
    h = node(f"up{i}", "matmul", h, weight(f"up{i}.weight", F, C), tb=1)
    h = node(f"act{i}", "gelu", h)
    h = node(f"down{i}", "matmul", h, weight(f"down{i}.weight", C, F), tb=1)
    x = node(f"sum{i}", "add", x, h)
logits = node("logits", "matmul", x, weight("head", V, C), tb=1)
each = node("flat", "reshape", node("each", "ce", logits, targets), type="f32[B*T]")
total = node("total", "reshape", node("sum", "sum", each), type="f32[]")
loss = node("loss", "mul", total, node("mean", "inv_tokens"))
json.dump({"tgc_graph": 1, "name": "mlp", "ctx": 32, "nodes": nodes,
           "outputs": {"logits": logits, "loss": loss}},
          sys.stdout, indent=1)
