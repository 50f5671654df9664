"""families.py: adapters of every family in tests/data/families, trained by tgc, loaded by PEFT: the
same logits?

    python3 tests/e2e/lora/families.py --tgc build/tgc [FAMILY ...]     needs torch, transformers,
            peft

Four steps at a high learning rate make an adapter that matters.  Prints for each family the largest
difference of a logit from PEFT's, and what the adapter changed, both over the largest logit; or the
refusal.  Exit code 1 where one is above 1e-5.
"""
import argparse, os, subprocess, sys, tempfile, warnings
import numpy as np, torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

warnings.filterwarnings("ignore")
here = os.path.dirname(os.path.abspath(__file__))
data = os.path.normpath(os.path.join(here, "..", "..", "data", "families"))
# experts have no adapters, nor have weights whose columns are cut
ATTENTION = "q_proj,k_proj,v_proj,o_proj"
TARGETS = {"mixtral": ATTENTION, "olmoe": ATTENTION, "qwen2_moe": ATTENTION, "qwen3_moe": ATTENTION,
           "gpt_oss": ATTENTION}
TOKENS, LIMIT = 24, 1e-5


def tgc(args, *command):
    env = dict(os.environ, TGC_CFLAGS="-O0 -DTGC_CALLS")
    r = subprocess.run([args.tgc, *command, "-q", "--device", "cpu"], capture_output=True,
                       text=True, env=env)
    return r.stderr.strip() if r.returncode else ""


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()


def compare(args, family, work):
    folder = os.path.join(data, family)
    path = lambda name: os.path.join(work, name)
    ids = np.random.default_rng(1).integers(3, AutoConfig.from_pretrained(folder).vocab_size,
                                            600).astype(np.uint16)
    ids.tofile(path("text.bin"))
    with open(path("ids"), "w") as f:
        f.write(" ".join(map(str, ids[:TOKENS])))
    bad = tgc(args, "train", folder, "--lora", "r=4,alpha=8,targets=" + TARGETS.get(family,
        "all-linear"), "--data", path("text.bin"),
              "--max_iters", "4", "--warmup_iters", "0", "--learning_rate", "5e-2", "--block_size",
              "16", "--batch_size", "2", "--eval_iters", "0", "--no-check", "--out_dir",
              path(family))
    adapter = os.path.join(path(family), "adapter")
    bad = bad or tgc(args, "eval", folder, "--lora", adapter, "--ids", path("ids"), "--logits",
                     path("x.npy"))
    if bad:
        print("%-16s refused: %s" % (family, bad[-200:]), flush=True)
        return True
    ours = np.load(path("x.npy")).reshape(TOKENS, -1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    base = logits(model, ids[:TOKENS])
    theirs = logits(PeftModel.from_pretrained(model, adapter).eval(), ids[:TOKENS])
    most = np.abs(theirs).max()
    off = np.abs(ours - theirs).max() / most
    print("%-16s %.1e   changed by %.1e" % (family, off, np.abs(base - theirs).max() / most),
          flush=True)
    return off <= LIMIT


p = argparse.ArgumentParser()
p.add_argument("--tgc", required=True)
p.add_argument("families", nargs="*")
args = p.parse_args()
with tempfile.TemporaryDirectory() as work:
    ok = [compare(args, f, work) for f in args.families or sorted(os.listdir(data))]
sys.exit(not all(ok))
