# SPDX-License-Identifier: Apache-2.0
"""PyTorch, eager or compiled before the time begins, on train_gpt's default job for as many seconds: its text and what is
held out of it, its distributions of initial values, its AdamW and schedule."""
import json
import os
import pathlib
import time

import torch

import gpt
import measure

o, block, peak = measure.options(), 64 * 1024, 2e-3
paths = sorted((os.fsencode(p.relative_to(o.data)), p) for p in pathlib.Path(o.data).rglob("*") if p.is_file())
text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for _, p in paths)), dtype=torch.uint8)
parts = [(i % 10 == 9 and len(part) == block, part) for i, part in enumerate(text.split(block))]
training, held_out = (torch.cat([part for held, part in parts if held == which]) for which in (False, True))
model = gpt.Gpt(o)
s, i = torch.arange(o.sequence)[:, None], torch.arange(o.width)
angle = s / 1000 ** (i // 2 * 2 / o.width)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "norm" not in name:  # weights have a deviation of 0.02 so far
            to_residual = "output" in name or "down" in name
            parameter.mul_(0 if parameter.dim() < 2 else 3 / (2 * o.layers)**0.5 if to_residual else 3)
    model.positions.weight.copy_(0.1 * torch.where(i % 2 == 0, angle.sin(), angle.cos()))
optimizer = torch.optim.AdamW(gpt.groups(model), lr=peak, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
compiled = torch.compile(model) if o.compile else model


def loss_at(starts, rows, function):
    windows = rows[starts[:, None] + torch.arange(o.sequence + 1)].long()
    with torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bf16"):
        return function(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())


def train_step(rate):
    optimizer.zero_grad(set_to_none=True)
    loss = loss_at(torch.randint(len(training) - o.sequence, (o.batch,)), training, compiled)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    if rate:
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = rate
        optimizer.step()
    return float(loss)


first_loss, ends, begin = train_step(0), [0.0, 0.0], time.perf_counter()
while ends[-1] + (ends[-1] - ends[-2]) / 2 <= o.seconds:  # as train_gpt's Pace
    step = len(ends) - 1
    total = round((step - 1) * o.seconds / ends[-1]) + 1 if step > 1 else 10**9
    warmup = min(max(total // 10, 2), 60)
    train_step(peak * min(step / warmup, max(1e-9, total - step) / max(1, total - warmup)))
    ends.append(time.perf_counter() - begin)
starts = torch.arange(2048) * ((len(held_out) - 1) // o.sequence) // 2048 * o.sequence  # windows evenly spaced
nats = [float(loss_at(some, held_out, model)) for some in starts.split(64)]
print(json.dumps({"items": o.batch * o.sequence, "seconds": [b - a for a, b in zip(ends[3:], ends[4:])], "loss": first_loss,
                  "resident_mib": measure.peak_resident_mib(), "nats": sum(nats) / len(nats),
                  "parameters": sum(p.numel() for p in model.parameters())}))
