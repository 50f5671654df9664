#!/usr/bin/env python3
"""batching.py: requests of mixed lengths, tgc beside transformers' continuous batching, on one GPU.

    python3 tests/bench/batching.py --tgc build/tgc [--requests 64,256] [--new 64] [--graphs off,on]
            [--dir DIR]

A model of Llama-3.2-1B's shape with random weights in bf16 is made in DIR (2.5 GB, kept; --layers
makes it smaller, for both).  Every request has a prompt of 16 to 1000 random ids and gets --new
tokens, greedy, no end token.  Each number of requests is a round of its own, the cheapest first.
transformers: generate_batch with SDPA over its paged cache, --warm requests first to warm up, a
cache of --memory of the GPU, as more leaves its masks no room.  Its own choice is no CUDA graphs
where attention takes a mask, as SDPA's does; --graphs says with which it is timed.  Its worker's
errors are printed.  tgc: `run --prompts`, the time it prints, which is without load and
compilation, and with reading the prompts.  Each stage is printed when it ends, so that a run that
is cut off leaves its figures.
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
    config = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192,
                         num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=64, max_position_embeddings=2048, rope_theta=500000.0,
                         tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(1)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.cpu().save_pretrained(folder)


def by_tgc(args, prompts, folder):
    path = os.path.join(folder, "prompts.jsonl")
    with open(path, "w") as f:
        for p in prompts:
            f.write(json.dumps({"prompt_ids": p}) + "\n")
    command = [args.tgc, "run", folder, "--dtype", "bf16", "--prompts", path, "-n", str(args.new),
               "--temp", "0", "--print-ids", "--device", args.device, "--cache-tokens",
               str(args.cache_tokens)]
    rates = []
    for _ in range(args.reps):
        r = subprocess.run(command, capture_output=True, text=True)
        m = re.search(r"(\d+) tokens in ([\d.]+) s", r.stderr)
        if r.returncode or not m:
            sys.exit("tgc: " + r.stderr[-600:])
        rates.append(int(m.group(1)) / float(m.group(2)))
        say("tgc: %d requests, %s tokens, %.0f tok/s" % (len(prompts), m.group(1), rates[-1]))
    return sorted(rates)[len(rates) // 2]


class Transformers:
    def __init__(self, args, folder):
        import inspect, torch
        from transformers import AutoModelForCausalLM, GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
        self.args, self.torch, self.config = args, torch, ContinuousBatchingConfig
        self.known = inspect.signature(ContinuousBatchingConfig).parameters
        self.how = GenerationConfig(max_new_tokens=args.new, do_sample=False, eos_token_id=-1,
                                    pad_token_id=0)
        # releases spell it one way or the other
        for attention in "sdpa", "paged|sdpa":
            self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16,
                attn_implementation=attention)
            self.model = self.model.to(args.torch_device).eval()
            try:
                if self.batch([[5] * 16], False):
                    break
            except ValueError as e:
                say("transformers: %s: %s" % (attention, str(e)[:200]))
        say("transformers: model there, %s" % attention)

    def batch(self, prompts, graphs):
        wanted = {"use_cuda_graph": graphs, "auto_switch_to_flash": False,
                  "max_memory_percent": self.args.memory}
        config = self.config(**{k: v for k, v in wanted.items() if k in self.known})
        with self.torch.no_grad():
            out = self.model.generate_batch(inputs=prompts, generation_config=self.how,
                                            continuous_batching_config=config)
        if self.args.torch_device == "cuda":
            self.torch.cuda.synchronize()
        return out

    def rate(self, prompts, graphs):
        rates = []
        for rep in range(1 + self.args.reps):
            t0 = time.time()
            out = self.batch(prompts if rep else prompts[:self.args.warm], graphs)
            made = sum(len(o.generated_tokens) for o in out.values())
            rates.append(made / (time.time() - t0))
            say("transformers: %d requests, %d tokens, graphs %s, %.0f tok/s%s"
                % (len(out), made, "on" if graphs else "off", rates[-1],
                   "" if rep else " (warming up)"))
        return sorted(rates[1:])[len(rates[1:]) // 2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tgc", required=True)
    p.add_argument("--requests", default="64,256")
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--reps", type=int, default=1)
    p.add_argument("--warm", type=int, default=16)
    p.add_argument("--graphs", default="off,on")
    p.add_argument("--memory", type=float, default=0.4)
    p.add_argument("--cache-tokens", type=int, default=300000)
    p.add_argument("--device", default="cuda")
    p.add_argument("--torch-device", default="cuda")
    p.add_argument("--dir", default=os.path.join(tempfile.gettempdir(), "tgc-batching"))
    args = p.parse_args()
    rng = random.Random(3)
    counts = sorted(int(n) for n in args.requests.split(","))
    prompts = [[rng.randrange(3, 128256) for _ in range(rng.randrange(16, 1001))]
               for _ in range(counts[-1])]
    make_model(args.dir, args.layers)
    say("model of %d layers made" % args.layers)
    ours = {n: by_tgc(args, prompts[:n], args.dir) for n in counts}
    peer = Transformers(args, args.dir)
    for graphs in args.graphs.split(","):
        for n in counts:
            theirs = peer.rate(prompts[:n], graphs == "on")
            say("%d requests, %d prompt tokens, %d new each: tgc %.0f tok/s, transformers with "
                "graphs %s %.0f tok/s, %.2fx"
                % (n, sum(map(len, prompts[:n])), args.new, ours[n], graphs, theirs,
                   ours[n] / theirs))


main()
