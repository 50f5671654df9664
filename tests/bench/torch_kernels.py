"""torch_kernels.py: PyTorch's time for the shapes of gemm_bench, attention_bench and rows_bench.

    python3 tests/bench/torch_kernels.py [part of a line's name]

Medians over replays of a CUDA graph of several calls, random inputs; the gemvs walk over copies of
W that together exceed the L2, as gemm_bench does.
"""
import sys
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

only = sys.argv[1] if len(sys.argv) > 1 else ""


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def time_ms(call, calls=10, graph=True):
    """Milliseconds per call; call(i) is the i-th of a run."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for i in range(3):
            call(i)
    torch.cuda.synchronize()
    if graph:
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            for i in range(calls):
                call(i)
        run = g.replay
    else:
        def run():
            for i in range(calls):
                call(i)
    run()
    torch.cuda.synchronize()
    t = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        run()
        b.record()
        b.synchronize()
        t.append(a.elapsed_time(b) / calls)
    return sorted(t)[2]


def line(name, what, ms, rate, unit):
    print(f"{name:<36} {what:<24} {ms:9.4f} {rate:8.2f} {unit}", flush=True)


def matmuls():
    bf = torch.bfloat16
    cases = [("01", m, n, k, bf) for m, n, k in (
        (32768, 2304, 768), (32768, 768, 768), (32768, 3072, 768), (32768, 768, 3072), (8192, 50304,
            768),
        (8192, 3072, 2048), (8192, 2048, 2048), (8192, 16384, 2048), (8192, 2048, 8192), (4096,
            4096, 4096),
        (512, 2048, 2048), (32, 8192, 2048), (16, 8192, 2048))]
    cases += [("00", m, n, k, bf) for m, n, k in (
        (32768, 768, 2304), (32768, 768, 3072), (8192, 768, 50304), (8192, 2048, 16384))]
    cases += [("10", m, n, k, bf) for m, n, k in (
        (3072, 768, 32768), (16384, 2048, 8192), (50304, 768, 8192), (2304, 768, 32768), (768, 768,
            32768),
        (2048, 2048, 8192))]
    cases += [("01", m, n, k, torch.float32) for m, n, k in (
        (4096, 4096, 4096), (1024, 128, 128), (1024, 384, 128), (1024, 512, 128), (1024, 128, 512))]
    cases += [("00", 1024, 128, 384, torch.float32), ("10", 512, 128, 1024, torch.float32),
              ("10", 128, 128, 1024, torch.float32)]
    for t, m, n, k, dt in cases:
        name = f"{'bf16' if dt == bf else 'float'} {t[0]} {t[1]} {m}x{n}x{k}"
        if only not in name:
            continue
        a = normal(k, m, dtype=dt).t() if t[0] == "1" else normal(m, k, dtype=dt)
        b = normal(n, k, dtype=dt).t() if t[1] == "1" else normal(k, n, dtype=dt)
        out = torch.empty(m, n, device="cuda", dtype=dt)
        ms = time_ms(lambda i: torch.mm(a, b, out=out))
        line(name, "cublas", ms, 2 * m * n * k / ms * 1e-9, "TF")


def gemvs():
    for n, k in ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192), (128256, 2048), (2304,
        768), (768, 768),
                 (3072, 768), (768, 3072), (50304, 768)):
        name = f"gemv bf16 1x{n}x{k}"
        if only not in name:
            continue
        copies = (256 << 20) // (n * k * 2) + 1
        calls = copies * (8 // copies + 1 if copies < 8 else 1)
        w, x = normal(copies, n, k), normal(1, k)
        ms = time_ms(lambda i: F.linear(x, w[i % copies]), calls)
        line(name, "F.linear", ms, 2 * (n * k + n + k) / ms * 1e-9, "TB")


def attention():
    for name, b, h, kv, d, t in (("gpt2 B16 H12 D64 T1024", 16, 12, 12, 64, 1024),
                                 ("gpt2 B32 H12 D64 T1024", 32, 12, 12, 64, 1024),
                                 ("llama-1B B4 H32/8 D64 T2048", 4, 32, 8, 64, 2048),
                                 ("causal H32 D64 T2048 B4", 4, 32, 32, 64, 2048),
                                 ("llama B2 H32/8 D128 T4096", 2, 32, 8, 128, 4096),
                                 ("llama B4 H32/8 D128 T2048", 4, 32, 8, 128, 2048)):
        if only not in name:
            continue
        flop = 2. * b * h * t * t * d
        q = normal(b, t, h, d).transpose(1, 2).requires_grad_()
        k = normal(b, t, kv, d).transpose(1, 2).requires_grad_()
        v = normal(b, t, kv, d).transpose(1, 2).requires_grad_()
        g = normal(b, t, h, d).transpose(1, 2)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            what = backend.name.split("_")[0].lower()
            try:
                with sdpa_kernel(backend):
                    def forward(i):
                        return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                            enable_gqa=h != kv)
                    with torch.no_grad():
                        ms = time_ms(forward, 5, False)
                    line(name, what + " forward", ms * 1e3, flop / ms * 1e-9, "us, TFLOP/s")
                    out = forward(0)
                    ms = time_ms(lambda i: torch.autograd.grad(out, (q, k, v), g,
                        retain_graph=True), 5, False)
                    line(name, what + " backward", ms * 1e3, 2.5 * flop / ms * 1e-9, "us, TFLOP/s")
            except RuntimeError as e:
                print(name, what, "not run:", str(e).splitlines()[0][:90])


def rows():
    def show(name, what, ms, nbytes):
        if only in name:
            line(name, what, ms * 1e3, nbytes / ms * 1e-6, "us, GB/s")
    x, y = normal(1 << 30), torch.empty(1 << 30, device="cuda", dtype=torch.bfloat16)
    show("copy 2 GiB", "copy_", time_ms(lambda i: y.copy_(x), 5), 4. * x.numel())
    del x, y
    for n, r in ((768, 32768), (2048, 16384), (4096, 8192)):
        x, w, b = normal(r, n), normal(n), normal(n)
        show(f"rms_norm {r}x{n}", "F.rms_norm", time_ms(lambda i: F.rms_norm(x, (n,), w)),
             4. * x.numel())
        show(f"layer_norm {r}x{n}", "F.layer_norm", time_ms(lambda i: F.layer_norm(x, (n,), w, b)),
             4. * x.numel())
    x, w, b = normal(32768, 768).requires_grad_(), normal(768).requires_grad_(), normal(
        768).requires_grad_()
    o, g = F.layer_norm(x, (768,), w, b), normal(32768, 768)
    show("layer_norm grad 32768x768", "autograd",
         time_ms(lambda i: torch.autograd.grad(o, (x, w, b), g, retain_graph=True), 10, False),
         6. * x.numel())
    x = normal(32768, 3072)
    show("gelu 32768x3072", "F.gelu", time_ms(lambda i: F.gelu(x, approximate="tanh")),
         4. * x.numel())
    x, t = normal(8192, 50304).requires_grad_(), torch.randint(0, 50257, (8192,), device="cuda")
    o = F.cross_entropy(x, t)
    show("cross_entropy 8192x50304", "forward", time_ms(lambda i: F.cross_entropy(x, t), 3, False),
         2. * x.numel())
    show("cross_entropy 8192x50304", "backward",
         time_ms(lambda i: torch.autograd.grad(o, x, retain_graph=True), 3, False), 4. * x.numel())
    del x, o
    p = torch.nn.Parameter(normal(124000000, dtype=torch.float32))
    p.grad = normal(124000000, dtype=torch.float32)
    opt = torch.optim.AdamW([p], lr=1e-4, fused=True)
    show("AdamW 124000000 f32", "fused", time_ms(lambda i: opt.step(), 5, False), 28. * p.numel())


def main():
    p = torch.cuda.get_device_properties(0)
    print(f"{p.name}, PyTorch {torch.__version__}")
    torch.backends.cuda.matmul.allow_tf32 = False
    for part in (matmuls, gemvs, rows, attention):
        try:
            part()
        except RuntimeError as e:
            print(part.__name__, "failed:", str(e).splitlines()[0])


if __name__ == "__main__":
    main()
