# SPDX-License-Identifier: Apache-2.0
"""PyTorch's FSDP2 on gloo: f32, or bf16 by its MixedPrecisionPolicy; SDPA; fused AdamW. Started by torchrun."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gpt
import measure

o = measure.options()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (measure.ranks,))
ids, targets = measure.tokens(o)
model = gpt.Gpt(o)
parameters = sum(p.numel() for p in model.parameters())
bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
sharding = {"mesh": mesh, "mp_policy": bf16 if o.dtype == "bf16" else MixedPrecisionPolicy()}
for block in model.blocks:
    fully_shard(block, **sharding)
fully_shard(model, **sharding)
optimizer = torch.optim.AdamW(gpt.groups(model), **measure.adamw, fused=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(ids, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


measure.report(o, step, parameters, o.batch * o.sequence)
dist.destroy_process_group()
