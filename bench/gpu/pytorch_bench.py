# SPDX-License-Identifier: Apache-2.0
"""PyTorch's times for the operations and shapes of kernels_bench.cu, eager and through torch.compile.

Prints lines of that form: torch_eager or torch_compile, name, type, shape, bytes, microseconds (median of CUDA events).
An operation's backward pass is timed alone, the graph of its forward pass being kept.
"""
import argparse
import statistics
import sys
import time

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--seconds", type=float, default=120, help="no operation begins after as many")
options = parser.parse_args()
began = time.monotonic()
torch._functorch.config.donated_buffer = False  # it does not go with a graph that is kept
torch.manual_seed(1)
bf16, f32 = torch.bfloat16, torch.float32
names = {bf16: "bf16", f32: "f32"}


def median_us(run, repetitions=10 if options.quick else 30):
    for _ in range(3):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) * 1000


def report(who, name, kind, shape, bytes_moved, microseconds):
    print(f"{who}\t{name}\t{kind}\t{shape}\t{bytes_moved:.0f}\t{microseconds:.2f}", flush=True)


def normal(*shape, kind=bf16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=kind, requires_grad=grad)


def both(name, kind, shape, bytes_forward, function, inputs, name_backward=None, bytes_backward=0):
    """Forward, without gradients, and backward of function(*inputs), eager and compiled."""
    if time.monotonic() - began > options.seconds:
        print(f"pytorch_bench: no time left for {name}", file=sys.stderr)
        return
    for who, call in (("torch_eager", function), ("torch_compile", torch.compile(function, dynamic=False))):
        try:
            with torch.no_grad():
                report(who, name, kind, shape, bytes_forward, median_us(lambda: call(*inputs)))
            if name_backward:
                y = call(*inputs)
                dy = torch.randn_like(y)
                needed = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
                backward = lambda: torch.autograd.grad(y, needed, dy, retain_graph=True)
                report(who, name_backward, kind, shape, bytes_backward, median_us(backward))
        except Exception as error:  # one operation that fails leaves the others
            print(f"pytorch_bench: {who} {name}: {error}", file=sys.stderr)
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def norms(rows, n, kind):
    each = rows * n * kind.itemsize
    x, gamma, beta = normal(rows, n, kind=kind, grad=True), normal(n, kind=kind, grad=True), normal(n, kind=kind, grad=True)
    residual = normal(rows, n, kind=kind)
    shape = f"{rows}x{n}"
    both("layer_norm", names[kind], shape, 2 * each, lambda x, g, b: F.layer_norm(x, (n,), g, b, 1e-5), (x, gamma, beta),
         "layer_norm_backward", 3 * each)

    def with_residual(x, r, g, b):
        s = x + r
        return s, F.layer_norm(s, (n,), g, b, 1e-5)

    both("layer_norm_residual", names[kind], shape, 4 * each, with_residual, (x, residual, gamma, beta))
    both("rms_norm", names[kind], shape, 2 * each, lambda x, g: F.rms_norm(x, (n,), g, 1e-5), (x, gamma),
         "rms_norm_backward", 3 * each)


def elements(count, kind):
    each, shape = count * kind.itemsize, str(count)
    x, y = normal(count, kind=kind, grad=True), normal(count, kind=kind)
    for form, name in (("tanh", "gelu_tanh"), ("none", "gelu_exact")):
        both(name, names[kind], shape, 2 * each, lambda x, form=form: F.gelu(x, approximate=form), (x,),
             name + "_backward", 3 * each)
    both("add", names[kind], shape, 3 * each, lambda x, y: x + y, (x, y))
    both("dropout", names[kind], shape, 2 * each, lambda x: F.dropout(x, 0.125), (x,))
    both("squared_norm", names[kind], shape, each, lambda x: torch.linalg.vector_norm(x, dtype=f32), (x,))


def losses(rows, columns, kind):
    if time.monotonic() - began > options.seconds:
        return
    logits = normal(rows, columns, kind=kind, grad=True)
    targets = torch.randint(columns, (rows,), device="cuda")
    function = lambda x, t: F.cross_entropy(x.float(), t)
    for who, call in (("torch_eager", function), ("torch_compile", torch.compile(function, dynamic=False))):
        run = lambda: torch.autograd.grad(call(logits, targets), logits)
        report(who, "cross_entropy", names[kind], f"{rows}x{columns}", 2 * rows * columns * kind.itemsize, median_us(run))
    torch._dynamo.reset()


def swiglu(x):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


def rotate(x, cosines, sines):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), dim=-1)


def attentions(batch, sequence, heads, head_dim, causal):
    """By cuDNN where it takes them, else by the kernel that PyTorch chooses."""
    q, k, v = (normal(batch, heads, sequence, head_dim, grad=True) for _ in range(3))
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends, set_priority=True):
        both("attention_causal" if causal else "attention_full", "bf16", f"{batch}x{sequence}x{heads}x{head_dim}", 8 * q.numel(),
             lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v),
             ("attention_causal" if causal else "attention_full") + "_backward", 16 * q.numel())


def adamw(count):
    parameter = torch.nn.Parameter(normal(count, kind=f32))
    parameter.grad = normal(count, kind=f32)
    optimizer = torch.optim.AdamW([parameter], lr=1e-4, fused=True)
    report("torch_eager", "adamw", "f32", str(count), 28 * count, median_us(optimizer.step))


norms(131072, 768, bf16)
norms(32768, 4096, bf16)
losses(8192, 50304, bf16)
elements(1 << 27, bf16)
adamw(124439808)
x = normal(16384, 22016, grad=True)
both("swiglu", "bf16", "16384x11008", 6 * 16384 * 11008, swiglu, (x,), "swiglu_backward", 10 * 16384 * 11008)
x = normal(131072, 1024, grad=True)
both("softmax", "bf16", "131072x1024", 4 << 27, lambda x: F.softmax(x, dim=-1), (x,), "softmax_backward", 6 << 27)
x = normal(8, 2048, 64, 128)
both("rotary", "bf16", "16384x8192", 4 * x.numel(), rotate, (x, normal(2048, 1, 64), normal(2048, 1, 64)))
x = normal(65536, 3072)
both("column_sum", "bf16", "65536x3072", 2 * x.numel(), lambda x: x.sum(0, dtype=f32), (x,))
both("add_bias", "bf16", "65536x3072", 4 * x.numel(), lambda x, b: x + b, (x, normal(3072)))
both("transpose", "bf16", "65536x3072", 4 * x.numel(), lambda x: x.t().contiguous(), (x,))
table = normal(50304, 768, grad=True)
ids = (torch.rand(262144, device="cuda") ** 4 * 50304).long()
both("embedding", "bf16", "262144x768", 4 * 262144 * 768, lambda w, i: F.embedding(i, w), (table, ids),
     "embedding_backward", 2 * 262144 * 768 + 4 * 50304 * 768)
for causal in (True, False):
    attentions(4, 4096, 32, 64, causal)
    attentions(4, 4096, 16, 128, causal)
norms(16384, 4096, f32)
