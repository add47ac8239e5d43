# SPDX-License-Identifier: Apache-2.0
"""Writes <model>_golden.safetensors for the models of examples/models: what PyTorch computes of the same models in f64.

Usage: python make_models_golden.py [directory]   (default: the folder of this script). README.md lists what the files hold.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

STEPS, SAMPLES = 10, 4


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x):
        y = x + self.attention(self.norm1(x))
        return y + self.mlp(self.norm2(y))


class Vit(nn.Module):
    def __init__(self, layers=2, width=16, heads=4, patches=4, pixels=12, classes=4):
        super().__init__()
        self.embed, self.positions = nn.Linear(pixels, width), nn.Embedding(patches, width)
        self.blocks = nn.ModuleList(VitBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, patches):
        y = self.embed(patches) + self.positions.weight
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y).mean(1))

    def loss(self, patches, labels):
        return F.cross_entropy(self(patches), labels)


def initialise(model):
    """Element i of parameter n, in the order of names: 0.3 sin(1 + 0.37 i + 1.7 n), and 1 more for the weights of norms."""
    with torch.no_grad():
        for n, (name, parameter) in enumerate(sorted(model.named_parameters())):
            i = torch.arange(parameter.numel(), dtype=torch.float64)
            norm = "norm" in name and name.endswith("weight")
            parameter.copy_((float(norm) + 0.3 * torch.sin(1 + 0.37 * i + 1.7 * n)).reshape(parameter.shape))


def compute(model, batch):
    """The gradients of the first loss, and the losses of ten steps of AdamW on the same batch."""
    model = model.to(torch.float64)
    initialise(model)
    model.loss(**batch).backward()
    result = {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
    decayed = [p for name, p in model.named_parameters() if "norm" not in name and not name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if "norm" in name or name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=1e-2, weight_decay=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(20)
    patches = torch.randn(SAMPLES, 4, 12, generator=generator)  # f32: fields of a batch are
    labels = torch.tensor([0, 3, 1, 3])
    tensors = compute(Vit(), {"patches": patches.double(), "labels": labels})
    save_file(tensors | {"patches": patches, "labels": labels.int()}, folder / "vit_golden.safetensors")


if __name__ == "__main__":
    main()
