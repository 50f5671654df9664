"""TensorBoard's own reader on what `tgc train --tensorboard` writes, next to log.jsonl.

    python3 events.py OUT_DIR       (needs tensorboard)
"""
import json
import os
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = sys.argv[1]
acc = EventAccumulator(folder, size_guidance={"scalars": 0})
acc.Reload()
tags = acc.Tags()["scalars"]
wrong = 0
for tag in tags:
    want = {}
    for line in open(os.path.join(folder, "log.jsonl")):
        row = json.loads(line)
        if tag in row:
            want[row["step"] + 1] = row[tag]
    got = {e.step: e.value for e in acc.Scalars(tag)}
    off = [s for s in want if s not in got or abs(got[s] - want[s]) > 1e-6 * abs(want[s])
           + 1e-30] + [s for s in got if s not in want]
    print(f"{tag}: {len(got)} points, {len(off)} wrong")
    wrong += len(off)
sys.exit(wrong > 0 or not {"loss", "lr", "grad_norm", "tokens_per_s"} <= set(tags))
