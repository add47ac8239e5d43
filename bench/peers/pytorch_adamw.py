# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused AdamW alone, on a GPT's parameters and gradients of a constant."""
import torch

import gpt
import measure

o = measure.options()
model = gpt.Gpt(o)
parameters = sum(p.numel() for p in model.parameters())
for p in model.parameters():
    p.grad = torch.full_like(p, 1e-3)
optimizer = torch.optim.AdamW(gpt.groups(model), **measure.adamw, fused=True)


def step():
    optimizer.step()
    return 0


measure.report(o, step, parameters, parameters)
