"""llama2c_speed.py: shapes of llama2.c's models on the CPU, one thread, beside its run.c.

        python3 tests/bench/llama2c_speed.py LLAMA2C [--rounds N] [--tokens N] [SHAPE...]

LLAMA2C is a clone of karpathy/llama2.c; its run.c is built with `gcc -Ofast -march=native`, changed
in one line so that it does not end at BOS.  Weights are random, in its format.  All take turns.  A
figure is tokens a second of processor time between two lengths, which leaves out loading: the
machine may be shared.  Too few tokens drown in how much loading varies.  Medians and, in brackets,
the best."""
import argparse, os, resource, statistics, struct, subprocess, tempfile
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TGC = os.environ.get("TGC", os.path.join(HERE, "../../build/tgc"))
SHAPES = {  # dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
    "15M": (288, 768, 6, 6, 6, 32000, 256),
    "42M": (512, 1376, 8, 8, 8, 32000, 1024),
    "110M": (768, 2048, 12, 12, 12, 32000, 1024),
}


def write_weights(path, dims):
    """token_embedding, rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3, rms_final, and two tables
    nobody reads."""
    C, F, L, H, K, V, T = dims
    r = np.random.default_rng(1)
    kv = C // H * K
    with open(path, "wb") as f:
        f.write(struct.pack("<7i", *dims))
        for shape in ((V, C), (L, C), (L, C, C), (L, kv, C), (L, kv, C), (L, C, C), (L, C), (L, F,
                C), (L, C, F), (L, F, C), (C,)):
            gain = shape in ((L, C), (C,))
            f.write((np.ones(shape) if gain else r.normal(0, 0.02,
                                                          shape)).astype(np.float32).tobytes())
        f.write(bytes(T * (C // H) * 4))


def processor(args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def build_peer(clone, tmp):
    with open(f"{clone}/run.c") as f:
        text = f.read()
    stop = "if (next == 1) { break; }"
    if text.count(stop) != 1:
        raise SystemExit(f"{clone}/run.c: expected one line {stop!r}")
    with open(f"{tmp}/run.c", "w") as f:
        f.write(text.replace(stop, ""))
    subprocess.run(["gcc", "-Ofast", "-march=native", "-o", f"{tmp}/run", f"{tmp}/run.c", "-lm"],
                   check=True)
    return f"{tmp}/run"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("clone")
    p.add_argument("shape", nargs="*", default=["15M", "110M"])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=200)
    a = p.parse_args()
    few = a.tokens // 5
    with tempfile.TemporaryDirectory() as tmp:
        peer = build_peer(a.clone, tmp)
        for name in a.shape:
            model = f"{tmp}/{name}.bin"
            write_weights(model, SHAPES[name])
            how = {"run.c": lambda n: [peer, model, "-z", f"{a.clone}/tokenizer.bin", "-t", "0",
                                       "-n", str(n + 1)]}
            for dt in ("f32", "bf16", "f16"):
                plan = f"{tmp}/{name}.{dt}.plan"
                subprocess.run([TGC, "compile", model, "-o", plan, "--dtype", dt, "--target", "cpu",
                                "-q"], check=True)
                how["tgc " + dt] = lambda n, plan=plan: [TGC, "run", plan, "--prompt-ids", "1",
                                                         "--temp", "0", "-n", str(n), "-t", "1",
                                                         "--device", "cpu"]
            speed = {k: [] for k in how}
            for _ in range(a.rounds):
                for k, args in how.items():
                    speed[k].append((a.tokens - few) / (processor(args(a.tokens))
                                                        - processor(args(few))))
            base = statistics.median(speed["run.c"])
            for k, s in speed.items():
                m = statistics.median(s)
                print(f"{name:5} {k:9} {m:7.1f} tok/s ({max(s):.1f})  {m / base:.2f}", flush=True)


main()
