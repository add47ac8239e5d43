# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO stages on gloo: f32, or its bf16; SDPA; its AdamW, which it compiles. Started by torchrun."""
import deepspeed
import torch.distributed as dist

import gpt
import measure

o = measure.options()
deepspeed.init_distributed(dist_backend="gloo")
ids, targets = measure.tokens(o)
model = gpt.Gpt(o)
parameters = sum(p.numel() for p in model.parameters())
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=gpt.groups(model), config={
    "train_micro_batch_size_per_gpu": ids.shape[0],
    "zero_optimization": {"stage": o.stage},
    "bf16": {"enabled": o.dtype == "bf16"},
    "optimizer": {"type": "AdamW", "params": measure.adamw},
})


def step():
    loss = engine(ids, targets)
    engine.backward(loss)
    engine.step()
    return loss.detach()


measure.report(o, step, parameters, o.batch * o.sequence)
dist.destroy_process_group()
