# SPDX-License-Identifier: Apache-2.0
"""Writes ops_expected.safetensors: values and gradients of single operations as PyTorch computes them, in f64.

Usage: python make_ops_golden.py [directory]   (default: the folder of this script). README.md lists what the file holds.
"""

import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

generator = torch.Generator().manual_seed(11)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def record(out: dict, name: str, function, inputs: dict, dy: torch.Tensor | None = None) -> None:
    """Stores <name>.<input>, <name>.y, <name>.dy and <name>.d<input> for every input."""
    leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    y = function(**leaves)
    dy = normal(*y.shape) if dy is None else dy
    y.backward(dy)
    for key, leaf in leaves.items():
        out[f"{name}.{key}"] = leaf.detach()
        out[f"{name}.d{key}"] = leaf.grad
    out[f"{name}.y"] = y.detach().reshape(y.shape or (1,))
    out[f"{name}.dy"] = dy.reshape(dy.shape or (1,))


def pointwise(out: dict) -> None:
    x = torch.cat([torch.tensor([-30.0, -6.0, -1e-8, 0.0, 1e-8, 6.0, 30.0], dtype=torch.float64), normal(10)])
    record(out, "gelu_erf", lambda x: F.gelu(x), {"x": x})
    record(out, "gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), {"x": x})
    record(out, "silu", lambda x: F.silu(x), {"x": x})


def rows(out: dict) -> None:
    record(out, "layer_norm", lambda x, weight, bias: F.layer_norm(x, (7,), weight, bias, 1e-5),
           {"x": 3 * normal(2, 3, 7) + 1, "weight": normal(7), "bias": normal(7)})
    record(out, "softmax", lambda x: F.softmax(x, -1), {"x": 5 * normal(3, 5)})
    targets = torch.randint(0, 9, (6,), generator=generator)
    out["cross_entropy.targets"] = targets.to(torch.int32)
    one = torch.ones((), dtype=torch.float64)
    record(out, "cross_entropy", lambda logits: F.cross_entropy(logits, targets), {"logits": 4 * normal(6, 9)}, one)


def attention(out: dict) -> None:
    """q, k, v are [batch 2, heads 3, sequence 5, head size 4]; scores are scaled by 1/sqrt(4)."""
    def attend(q, k, v, causal):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            above = torch.ones(5, 5, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(above, -math.inf)
        return scores.softmax(-1) @ v

    inputs = {key: normal(2, 3, 5, 4) for key in "qkv"}
    record(out, "attention_causal", lambda q, k, v: attend(q, k, v, True), inputs)
    record(out, "attention_full", lambda q, k, v: attend(q, k, v, False), inputs)


def adamw(out: dict) -> None:
    """Four steps of lr 0.01, betas (0.9, 0.95), eps 1e-8, weight decay 0.1; row t of adamw.after is the state after step t."""
    parameter = torch.nn.Parameter(normal(8))
    gradients = normal(4, 8)
    out["adamw.before"], out["adamw.gradients"] = parameter.detach().clone(), gradients
    optimizer = torch.optim.AdamW([parameter], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    after = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
        after.append(parameter.detach().clone())
    out["adamw.after"] = torch.stack(after)


def rounding(out: dict) -> None:
    """f32 values, as given by their bit patterns, beside their bf16: ties, overflow, subnormals, infinities, signed zeros."""
    bits = [0x00000000, 0x80000000, 0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808000, 0xBF818000,
            0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x00000001, 0x00008000, 0x00008001,
            0x00018000, 0x007FFFFF, 0x80008001, 0x40490FDB, 0x402DF854, 0xC2F6E979]
    values = [struct.unpack("<f", struct.pack("<I", b))[0] for b in bits]
    x = torch.tensor(values, dtype=torch.float32)
    out["rounding.f32"], out["rounding.bf16"] = x, x.to(torch.bfloat16)


def smoothed(out: dict) -> None:
    """cross_entropy with label_smoothing 0.1 and an ignored target; `weighted` counts each target by its weight."""
    targets, weights = torch.tensor([3, 0, -100, 8, 8, 1]), torch.tensor([1.0, 0.5, 3.0, 0.0, 2.0, 1.0])
    logits = 4 * torch.randn((6, 9), generator=generator, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    out["smoothed.targets"], out["weighted.weights"] = targets.to(torch.int32), weights
    weights = weights * (targets >= 0)

    def weighted(logits):
        return (weights * F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")).sum() / weights.sum()

    record(out, "smoothed", lambda logits: F.cross_entropy(logits, targets, label_smoothing=0.1), {"logits": logits}, one.clone())
    record(out, "weighted", weighted, {"logits": logits}, one)


def class_weighted(out: dict) -> None:
    """cross_entropy with a weight for each class: torch divides by the sum of those of the targets that count."""
    targets = torch.tensor([3, 0, -100, 8, 8, 1])
    classes = torch.tensor([2.0, 1.0, 9.0, 0.5, 1.0, 1.0, 1.0, 4.0, 0.25])
    logits = 4 * torch.randn((6, 9), generator=generator, dtype=torch.float64)
    out["class_weighted.classes"] = classes
    record(out, "class_weighted", lambda logits: F.cross_entropy(logits, targets, classes.double()), {"logits": logits},
           torch.ones((), dtype=torch.float64))


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out: dict[str, torch.Tensor] = {}
    for fill in (pointwise, rows, attention, adamw, rounding, smoothed, class_weighted):
        fill(out)
    save_file({name: t.contiguous() for name, t in out.items()}, folder / "ops_expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
