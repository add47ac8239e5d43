# SPDX-License-Identifier: Apache-2.0
"""PyTorch's times for the trainings of train_bench.cpp: bf16 by autocast, fused AdamW, eager and through torch.compile.

Prints lines of that form: torch_eager or torch_compile, name, type, shape, peak bytes, microseconds a step (median of steps
whose loss the host reads). Attention is scaled_dot_product_attention by the backend named, flash or cudnn.
"""
import argparse
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--only", default="", help="models whose name contains it")
parser.add_argument("--batch", type=int, default=0, help="samples a step; 0: each model's own")
parser.add_argument("--seconds", type=float, default=180, help="no model begins after as many")
parser.add_argument("--variants", default="eager,compile")
options = parser.parse_args()
began = time.monotonic()
torch.manual_seed(1)
torch.set_float32_matmul_precision("high")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, sequence, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary=50304, sequence=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def time_training(who, name, batch, compiled, layers, width, heads):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = Gpt(layers, width, heads).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    ids, targets = (torch.randint(0, 50257, (batch, 1024), device="cuda") for _ in range(2))
    loss_of = torch.compile(model, dynamic=False) if compiled else model

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(3):
        loss = step()
    seconds = []
    for _ in range(6 if options.quick else 20):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    median = statistics.median(seconds)
    print(f"{who}\t{name}\tbf16\t{batch}x1024\t{peak}\t{median * 1e6:.2f}", flush=True)
    print(f"{who} {name}: {batch * 1024 / median:.0f} tokens/s, loss {loss:.4f}, peak {peak >> 20} MiB", file=sys.stderr, flush=True)


for name, batch, *extents in (("train gpt2 124M", 32, 12, 768, 12), ("train gpt2 355M", 16, 24, 1024, 16),
                              ("train gpt2 1.56B", 8, 48, 1600, 25)):
    batch = options.batch or batch
    for variant in options.variants.split(","):
        for backend in (SDPBackend.FLASH_ATTENTION, getattr(SDPBackend, "CUDNN_ATTENTION", None)):
            if options.only not in name or backend is None:
                continue
            if time.monotonic() - began > options.seconds:
                print(f"pytorch_train: no time left for {name}", file=sys.stderr)
                continue
            who = f"torch_{variant}" + ("" if backend == SDPBackend.FLASH_ATTENTION else "_cudnn")
            try:
                with sdpa_kernel(backend):
                    time_training(who, name, batch, variant == "compile", *extents)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                print(f"pytorch_train: {who} {name}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.compiler.reset()
