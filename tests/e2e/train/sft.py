"""Fine-tuning on records in PyTorch and in tgc: the loss of every step, over the answers alone.

    python3 sft.py TGC FOLDER DATA [STEPS]      (needs torch, transformers, safetensors)

FOLDER: a Llama-like model with weights, tokenizer.json and chat_template.jinja.  DATA: a JSONL or a
JSON list with prompt and completion, or the passive-aggressive records.  Both sides take the same
16 records (those whose text fits) in every step: here padded, in micro-batches of four, with labels
of -100 where nothing counts and the loss divided by the tokens that count in the step; there packed
into rows.  Both differ by 1e-3 at most, or this exits with 1.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

tgc, folder, data = sys.argv[1:4]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 20
BLOCK, FITS, RECORDS, LR = 256, 128, 16, 1e-3
text = open(data, encoding="utf-8").read()
records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(x)
    for x in text.splitlines() if x.strip()]
keys = ("instruction", "output_passive_aggressive") if "instruction" in records[0] else ("prompt",
    "completion")

tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
template = open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8").read()


def ids(messages, answer):
    text = tok.apply_chat_template(messages, chat_template=template, tokenize=False,
                                   add_generation_prompt=answer)
    return tok(text, add_special_tokens=False)["input_ids"]


batch, kept = [], []
for r in records:
    talk = [{"role": "user", "content": r[keys[0]]}, {"role": "assistant", "content": r[keys[1]]}]
    begin, whole = ids(talk[:1], True), ids(talk, False)
    assert whole[:len(begin)] == begin
    if len(whole) <= FITS and len(batch) < RECORDS:
        batch.append((whole, [-100] * len(begin) + whole[len(begin):]))
        kept.append({"prompt": r[keys[0]], "completion": r[keys[1]]})
assert len(batch) == RECORDS, len(batch)
counted = sum(y != -100 for _, labels in batch for y in labels[1:])

model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                             attn_implementation="eager")
matrices = [p for p in model.parameters() if p.dim() >= 2]
vectors = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                         {"params": vectors, "weight_decay": 0.0}],
                        lr=LR, betas=(0.9, 0.95), eps=1e-8)
theirs = []
for step in range(steps):
    total = 0.0
    for at in range(0, RECORDS, 4):
        part = batch[at:at + 4]
        n = max(len(x) for x, _ in part)
        x = torch.tensor([a + [0] * (n - len(a)) for a, _ in part])
        y = torch.tensor([b + [-100] * (n - len(b)) for _, b in part])
        seen = torch.tensor([[1] * len(a) + [0] * (n - len(a)) for a, _ in part])
        logits = model(input_ids=x, attention_mask=seen).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                 y[:, 1:].reshape(-1), ignore_index=-100,
                                                 reduction="sum") / counted
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    theirs.append(total)

with tempfile.TemporaryDirectory() as dir:
    path = os.path.join(dir, "sft.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in kept)
    common = [tgc, "train", folder, "--data", path, "--device", "cpu", "--val_fraction", "0",
              "--block-size", str(BLOCK)]
    shown = subprocess.run([*common, "--show_data", "1", "-b", "1"], check=True,
                           capture_output=True, text=True).stderr
    rows = int(next(line for line in shown.splitlines() if "records in" in line).split()[3])
    subprocess.run([*common, "-b", "1", "--gradient_accumulation_steps", str(rows), "--max_iters",
                    str(steps), "--learning_rate", str(LR), "--no-decay_lr", "--warmup_iters", "0",
                    "-q", "--weight_decay", "0.1", "--log_csv", os.path.join(dir, "log.csv"), "-o",
                    os.path.join(dir, "out")], check=True)
    with open(os.path.join(dir, "log.csv")) as f:
        ours = [float(r["loss"]) for r in csv.DictReader(f) if int(r["step"]) >= 0]
worst = max(abs(a - b) for a, b in zip(ours, theirs))
for i, (a, b) in enumerate(zip(ours, theirs)):
    print(f"step {i}: tgc {a:.6f}, PyTorch {b:.6f}")
print(f"{RECORDS} records in {rows} rows, {counted} tokens count, {len(ours)} steps: losses differ "
      f"by {worst:.2e}")
sys.exit(worst > 1e-3 or len(ours) != steps)
