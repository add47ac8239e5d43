# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel on gloo: f32, or bf16 by autocast; SDPA; fused AdamW. Started by torchrun."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpt
import measure

o = measure.options()
dist.init_process_group("gloo")
ids, targets = measure.tokens(o)
model = gpt.Gpt(o)
parameters = sum(p.numel() for p in model.parameters())
replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(gpt.groups(model), **measure.adamw, fused=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bf16"):
        loss = replica(ids, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


measure.report(o, step, parameters, o.batch * o.sequence)
dist.destroy_process_group()
