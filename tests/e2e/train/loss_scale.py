"""The scales of torch.amp.GradScaler over 200 steps, some of which overflow: the numbers in
tests/test_cli.c.

    python3 loss_scale.py        (needs torch)
"""
import torch

scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=7)
p = torch.nn.Parameter(torch.zeros(1))
opt = torch.optim.SGD([p], lr=0.0)
x, out = 1, []
for step in range(200):
    x = (1103515245 * x + 12345) % 2147483648        # bad: about one step in nine
    bad = (x >> 16) % 9 == 0
    opt.zero_grad()
    scaler.scale((p * (float("inf") if bad else 1.0)).sum()).backward()
    scaler.step(opt)
    scaler.update()
    out.append(int(torch.tensor(scaler.get_scale()).log2()))
print(", ".join(map(str, out)))
