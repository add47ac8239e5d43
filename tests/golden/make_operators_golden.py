# SPDX-License-Identifier: Apache-2.0
"""Writes operators_expected.safetensors: values and gradients of operators as PyTorch computes them, in f64.

Usage: python make_operators_golden.py [directory]   (default: the folder of this script). README.md lists what the file holds.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

generator = torch.Generator().manual_seed(12)
out: dict[str, torch.Tensor] = {}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def record(name: str, function, **inputs: torch.Tensor) -> None:
    """Stores <name>.<input>, <name>.y, <name>.dy and <name>.d<input> for every input."""
    leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    y = function(**leaves)
    dy = normal(*y.shape)
    y.backward(dy)
    for key, leaf in leaves.items():
        out[f"{name}.{key}"], out[f"{name}.d{key}"] = leaf.detach(), leaf.grad
    out[f"{name}.y"], out[f"{name}.dy"] = y.detach(), dy


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    positive = normal(2, 3, 4).abs() + 0.5
    for name in ("tanh", "sigmoid", "exp", "square"):
        record(name, getattr(torch, name), x=2 * normal(2, 3, 4))
    for name in ("log", "sqrt"):
        record(name, getattr(torch, name), x=positive)
    record("quotient", lambda x, v: x / v, x=normal(2, 3, 4), v=normal(3, 1).abs() + 0.5)
    record("difference", lambda x, v: v - x, x=normal(2, 3, 4), v=normal(4))
    record("numbers", lambda x: 3.0 / x - (1.0 - x) / 7.0, x=positive)
    record("mean", lambda x: x.mean(1), x=normal(2, 3, 4))
    record("max", lambda x: x.max(1).values, x=(2 * normal(2, 6, 4)).round())  # with equal elements
    ids = torch.randint(0, 3, (2, 5), generator=generator)
    out["gather.ids"] = ids.to(torch.int32)
    record("gather", lambda x: torch.take_along_dim(x, ids[:, :, None], 1), x=normal(2, 3, 4))
    mask = torch.randint(0, 2, (2, 3), generator=generator)
    out["where.mask"] = mask.to(torch.uint8)
    record("where", lambda x, v: torch.where(mask[:, :, None] != 0, x, v), x=normal(2, 3, 4), v=normal(2, 3, 4))
    record("conv2d", lambda x, weight, bias: F.conv2d(x, weight, bias, stride=2).flatten(2).transpose(1, 2),
           x=normal(2, 3, 4, 6), weight=normal(5, 3, 2, 2), bias=normal(5))
    save_file({name: t.contiguous() for name, t in out.items()}, folder / "operators_expected.safetensors",
              metadata={"format": "pt"})


if __name__ == "__main__":
    main()
