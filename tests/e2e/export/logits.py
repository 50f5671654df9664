"""logits.py TGC FOLDER...: transformers gives a folder and what `tgc export` makes of it equal
logits, whole and in shards.

By hand: needs torch and transformers.  Without folders: all of tests/data/families."""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()


def logits(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.arange(1, 12)[None] % model.config.vocab_size
    with torch.no_grad():
        return model(ids).logits


def main(tgc, *folders):
    families = pathlib.Path(__file__).parents[2] / "data/families"
    wrong = 0
    for folder in folders or sorted(families.iterdir()):
        with tempfile.TemporaryDirectory() as tmp:
            plan, want, same = tmp + "/m.plan", logits(folder), True
            subprocess.run([tgc, "compile", folder, "-q", "-o", plan], check=True)
            for out, how in ("/hf", []), ("/shards", ["--max-shard-size", "30KB"]):
                subprocess.run([tgc, "export", plan, "-q", "-o", tmp + out, *how], check=True)
                same = same and torch.equal(want, logits(tmp + out))
            shards = len(list(pathlib.Path(tmp + "/shards").glob("model-*.safetensors")))
        print("ok" if same and shards > 1 else "not ok", pathlib.Path(folder).name,
              f"({shards} shards)", flush=True)
        wrong += not same or shards < 2
    return wrong > 0


sys.exit(main(*sys.argv[1:]))
