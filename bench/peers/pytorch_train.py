# SPDX-License-Identifier: Apache-2.0
"""PyTorch on one rank, eager or through torch.compile: f32, or bf16 by autocast; SDPA; fused AdamW."""
import torch

import gpt
import measure

o = measure.options()
ids, targets = measure.tokens(o)
model = gpt.Gpt(o)
optimizer = torch.optim.AdamW(gpt.groups(model), **measure.adamw, fused=True)
loss_of = torch.compile(model) if o.compile else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bf16"):
        loss = loss_of(ids, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


measure.report(o, step, sum(p.numel() for p in model.parameters()), ids.numel())
