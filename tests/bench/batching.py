#!/usr/bin/env python3
"""batching.py: requests of mixed lengths, tgc beside transformers' continuous batching, on one GPU.

    python3 tests/bench/batching.py --tgc build/tgc [--requests 256] [--new 128] [--layers 16] [--dir DIR]

A model of Llama-3.2-1B's shape with random weights in bf16 is made in DIR (2.5 GB, kept; --layers makes it smaller, for
both).  Every request has a prompt of 16 to 1000 random ids and gets --new tokens, greedy, no end token.  transformers:
generate_batch with paged SDPA, CUDA graphs where its version has the switch, --warm of the requests first to warm up.
tgc: `run --prompts`, the time it prints, which is without load and compilation.  Each stage is printed when it ends, so
that a run that is cut off leaves its figures.  Prints output tokens a second of both.
"""
import argparse, json, os, random, re, subprocess, sys, tempfile, time

BEGUN = time.time()


def say(what):
    print("[%5.1f s] %s" % (time.time() - BEGUN, what), flush=True)


def make_model(folder, layers):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    if os.path.exists(os.path.join(folder, "config.json")):
        return
    config = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers,
                         num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=2048,
                         rope_theta=500000.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(1)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.cpu().save_pretrained(folder)


def by_tgc(args, prompts, folder):
    path = os.path.join(folder, "prompts.jsonl")
    with open(path, "w") as f:
        for p in prompts:
            f.write(json.dumps({"prompt_ids": p}) + "\n")
    command = [args.tgc, "run", folder, "--dtype", "bf16", "--prompts", path, "-n", str(args.new), "--temp", "0",
               "--print-ids", "--device", args.device, "--cache-tokens", str(args.cache_tokens)]
    rates = []
    for _ in range(args.reps):
        r = subprocess.run(command, capture_output=True, text=True)
        m = re.search(r"(\d+) tokens in ([\d.]+) s", r.stderr)
        if r.returncode or not m:
            sys.exit("tgc: " + r.stderr[-600:])
        rates.append(int(m.group(1)) / float(m.group(2)))
        say("tgc: %s tokens, %.0f tok/s; %s" % (m.group(1), rates[-1], r.stderr.strip().splitlines()[-1]))
    return sorted(rates)[len(rates) // 2]


def by_transformers(args, prompts, folder):
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    how = GenerationConfig(max_new_tokens=args.new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    more = {}
    try:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
        import inspect
        if "use_cuda_graph" in inspect.signature(ContinuousBatchingConfig).parameters:
            more["continuous_batching_config"] = ContinuousBatchingConfig(use_cuda_graph=True)
    except ImportError:
        pass
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="paged|sdpa").to(args.torch_device).eval()
    say("transformers: model there")
    rates = []
    for rep in range(1 + args.reps):
        t0 = time.time()
        with torch.no_grad():
            out = model.generate_batch(inputs=prompts if rep else prompts[:args.warm], generation_config=how, **more)
        if args.torch_device == "cuda":
            torch.cuda.synchronize()
        rates.append(sum(len(o.generated_tokens) for o in out.values()) / (time.time() - t0))
        say("transformers: %d requests, %.0f tok/s%s" % (len(out), rates[-1], "" if rep else " (warming up)"))
    return sorted(rates[1:])[len(rates[1:]) // 2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tgc", required=True)
    p.add_argument("--requests", type=int, default=256)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--reps", type=int, default=1)
    p.add_argument("--warm", type=int, default=64)
    p.add_argument("--cache-tokens", type=int, default=300000)
    p.add_argument("--device", default="cuda")
    p.add_argument("--torch-device", default="cuda")
    p.add_argument("--dir", default=os.path.join(tempfile.gettempdir(), "tgc-batching"))
    args = p.parse_args()
    rng = random.Random(3)
    prompts = [[rng.randrange(3, 128256) for _ in range(rng.randrange(16, 1001))] for _ in range(args.requests)]
    make_model(args.dir, args.layers)
    say("model of %d layers made" % args.layers)
    ours = by_tgc(args, prompts, args.dir)
    theirs = by_transformers(args, prompts, args.dir)
    print("%d requests, %d prompt tokens, %d new each: tgc %.0f tok/s, transformers %.0f tok/s, %.2fx"
          % (args.requests, sum(map(len, prompts)), args.new, ours, theirs, ours / theirs))


main()
