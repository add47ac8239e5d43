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

    def forward(self, x, mask=None):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.output(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, gelu="tanh"):
        super().__init__()
        self.up, self.down, self.gelu = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), gelu

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate=self.gelu))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x):
        y = x + self.attention(self.norm1(x))
        return y + self.mlp(self.norm2(y))


class Vit(nn.Module):
    def __init__(self, layers=2, width=16, heads=4, image=4, patch=2, channels=3, classes=4):
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.positions = nn.Embedding((image // patch) ** 2, width)
        self.blocks = nn.ModuleList(VitBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        y = self.embed(images).flatten(2).transpose(1, 2) + self.positions.weight
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y).mean(1))

    def loss(self, images, labels):
        return F.cross_entropy(self(images), labels)


class BertBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.mlp = Attention(width, heads), Mlp(width, gelu="none")
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        y = self.norm1(x + self.attention(x, mask))
        return self.norm2(y + self.mlp(y))


class Bert(nn.Module):
    def __init__(self, layers=2, width=16, heads=4, vocabulary=61, positions=10, token_types=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.token_types = nn.Embedding(token_types, width)
        self.norm, self.head_norm = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.blocks = nn.ModuleList(BertBlock(width, heads) for _ in range(layers))
        self.head, self.decoder = nn.Linear(width, width), nn.Linear(width, vocabulary)
        self.decoder.weight = self.tokens.weight

    def forward(self, tokens, token_types, lengths):
        sequence = torch.arange(tokens.shape[1])
        x = self.norm(self.tokens(tokens) + self.positions(sequence) + self.token_types(token_types))
        mask = (sequence < lengths[:, None])[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.decoder(self.head_norm(F.gelu(self.head(x))))

    def loss(self, tokens, token_types, lengths, labels):
        return F.cross_entropy(self(tokens, token_types, lengths).flatten(0, 1), labels.flatten())


def rotate(x, theta):
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequencies
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class CappedAttention(nn.Module):
    def __init__(self, width, heads, kv_heads, theta, cap):
        super().__init__()
        self.size, self.times, self.theta, self.cap = width // heads, heads // kv_heads, theta, cap
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * kv_heads * self.size, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(self.size, 1e-6), nn.RMSNorm(self.size, 1e-6)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in (self.q(x), *self.kv(x).chunk(2, -1)))
        q, k = rotate(self.q_norm(q), self.theta), rotate(self.k_norm(k), self.theta)
        k, v = k.repeat_interleave(self.times, 1), v.repeat_interleave(self.times, 1)
        scores = self.cap * torch.tanh(q @ k.transpose(-1, -2) / self.size**0.5 / self.cap)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        y = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        return self.output(y.transpose(1, 2).flatten(2))


class GatedMlp(nn.Module):
    def __init__(self, width, ffn_width):
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * ffn_width, bias=False), nn.Linear(ffn_width, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class ParallelBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn_width, theta, cap):
        super().__init__()
        self.norm = nn.RMSNorm(width, 1e-6)
        self.attention, self.mlp = CappedAttention(width, heads, kv_heads, theta, cap), GatedMlp(width, ffn_width)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y) + self.mlp(y)


class ParallelLlama(nn.Module):
    def __init__(self, layers=2, width=16, heads=4, kv_heads=2, ffn_width=24, vocabulary=61, theta=100.0, score_cap=2.0,
                 logit_cap=3.0, label_smoothing=0.1):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width, 1e-6)
        self.blocks = nn.ModuleList(ParallelBlock(width, heads, kv_heads, ffn_width, theta, score_cap) for _ in range(layers))
        self.cap, self.label_smoothing = logit_cap, label_smoothing

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.cap * torch.tanh(self.norm(x) @ self.tokens.weight.T / self.cap)

    def loss(self, tokens, targets):
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing)


class Tower(nn.Module):
    def __init__(self, sequence, width, features):
        super().__init__()
        self.positions, self.norm, self.mlp = nn.Embedding(sequence, width), nn.LayerNorm(width), Mlp(width)
        self.head = nn.Linear(width, features, bias=False)

    def forward(self, x):
        y = self.norm(x + self.positions.weight)
        return F.normalize(self.head((y + self.mlp(y)).mean(1)), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, width=8, features=6, image=4, patch=2, channels=2, vocabulary=11, tokens=4, temperature=0.07):
        super().__init__()
        self.patches, self.words = nn.Conv2d(channels, width, patch, patch), nn.Embedding(vocabulary, width)
        self.image, self.text = Tower((image // patch) ** 2, width, features), Tower(tokens, width, features)
        self.scale, self.temperature = nn.Parameter(torch.zeros(1)), temperature

    def forward(self, images, tokens):
        a, b = self.image(self.patches(images).flatten(2).transpose(1, 2)), self.text(self.words(tokens))
        return a @ b.T * self.scale.exp() / self.temperature

    def loss(self, images, tokens, match):
        logits = self(images, tokens)
        return (F.cross_entropy(logits, match) + F.cross_entropy(logits.T, match)) / 2


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
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]  # norms, biases and a scale
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


def write(path, model, batch):
    save_file(compute(model, batch) | {name: ids.int() for name, ids in batch.items()}, path)


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(20)
    patches = torch.randn(SAMPLES, 4, 12, generator=generator)  # f32: fields of a batch are
    images = patches.reshape(SAMPLES, 2, 2, 3, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(SAMPLES, 3, 4, 4).contiguous()
    labels = torch.tensor([0, 3, 1, 3])
    tensors = compute(Vit(), {"images": images.double(), "labels": labels})
    save_file(tensors | {"images": images, "labels": labels.int()}, folder / "vit_golden.safetensors")

    tokens = torch.randint(0, 61, (SAMPLES, 8), generator=generator)
    lengths = torch.tensor([8, 5, 7, 3])
    labels = torch.full((SAMPLES, 8), -100)  # 1, 3, 2 and 1 targets, all of tokens that are not padding
    for sample, place, label in [(0, 6, 3), (1, 0, 60), (1, 2, 17), (1, 4, 3), (2, 1, 44), (2, 6, 0), (3, 2, 31)]:
        labels[sample, place] = label
    batch = {"tokens": tokens, "token_types": torch.randint(0, 2, (SAMPLES, 8), generator=generator), "lengths": lengths,
             "labels": labels}
    write(folder / "bert_golden.safetensors", Bert(), batch)

    targets = torch.randint(0, 61, (SAMPLES, 8), generator=generator)
    targets[0, 3:], targets[2, 5] = -100, -100
    write(folder / "parallel_llama_golden.safetensors", ParallelLlama(), {"tokens": tokens, "targets": targets})

    images = torch.randn(SAMPLES, 2, 4, 4, generator=generator)
    tokens, match = torch.randint(0, 11, (SAMPLES, 4), generator=generator), torch.arange(SAMPLES)
    tensors = compute(TwoTowers(), {"images": images.double(), "tokens": tokens, "match": match})
    save_file(tensors | {"images": images, "tokens": tokens.int(), "match": match.int()},
              folder / "two_towers_golden.safetensors")


if __name__ == "__main__":
    main()
