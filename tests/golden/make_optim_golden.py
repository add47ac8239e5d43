# SPDX-License-Identifier: Apache-2.0
"""Writes optim_expected.safetensors: four steps of each optimizer on given gradients, as PyTorch computes them, in f64.

Usage: python make_optim_golden.py [directory]   (default: the folder of this script). README.md lists what the file holds.

torch.optim has no Lion and no LAMB: those are written here from their papers. torch.optim.Muon rounds the matrix to bf16
before it iterates; here it iterates in f64.
"""

import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

STEPS = 4
generator = torch.Generator().manual_seed(23)

# The parameters of laws/given_gradients.hpp: matrices of the block, vectors, and matrices outside of the block.
SHAPES = {"table": (7, 4), "block.up": (12, 5), "block.down": (4, 12), "block.square": (6, 6), "block.bias": (12,),
          "block.norm": (5,), "head": (3, 4)}
HIDDEN = ("block.up", "block.down", "block.square")
UNDECAYED = ("block.bias", "block.norm")


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.sub_(group["lr"] * (direction + group["weight_decay"] * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class Lamb(torch.optim.Optimizer):
    """You et al. 2019, arXiv:1904.00962, algorithm 2; the ratio of the norms is clamped as DeepSpeed's FusedLamb does."""

    def __init__(self, params, lr, betas, eps, weight_decay, smallest=0.01, largest=10.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.smallest, self.largest, self.t = smallest, largest, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad**2)
                m_hat, v_hat = m / (1 - beta1**self.t), v / (1 - beta2**self.t)
                update = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * p
                norm, of_update = p.norm().item(), update.norm().item()
                ratio = min(max(norm / of_update, self.smallest), self.largest) if norm > 0 and of_update > 0 else 1.0
                p.sub_(group["lr"] * ratio * update)


class Several:
    """Optimizers of parts of the parameters, as one."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def muon(hidden, others, **settings):
    torch.bfloat16 = torch.float64  # iterate in f64
    return Several(torch.optim.Muon(hidden, **settings),
                   *(torch.optim.AdamW(group["params"], lr=0.004, betas=(0.9, 0.95), eps=1e-8,
                                       weight_decay=group["weight_decay"], foreach=False) for group in others))


def record(out: dict, name: str, make) -> None:
    parameters = {key: torch.nn.Parameter(out[f"before.{key}"].clone()) for key in SHAPES}

    def groups(decay: float, among=tuple(SHAPES)) -> list:
        return [{"params": [parameters[k] for k in among if k not in UNDECAYED], "weight_decay": decay},
                {"params": [parameters[k] for k in among if k in UNDECAYED], "weight_decay": 0.0}]

    optimizer = make(parameters, groups)
    after: dict[str, list] = {key: [] for key in SHAPES}
    for t in range(STEPS):
        for key, p in parameters.items():
            p.grad = out[f"gradients.{key}"][t].clone()
        optimizer.step()
        for key, p in parameters.items():
            after[key].append(p.detach().clone())
    for key in SHAPES:
        out[f"{name}.{key}"] = torch.stack(after[key])


def schedules(out: dict) -> None:
    """Rates, and momenta, at DeepSpeed's last_batch_iteration -1 to 40, by the formulas of runtime/lr_schedules.py (2026)."""
    iterations = range(-1, 41)

    def table(name: str, function) -> None:
        out[f"schedule.{name}"] = torch.tensor([float(function(i)) for i in iterations], dtype=torch.float64)

    def cycle(low, high, i, first, second, stairs_up, stairs_down, after):
        total = float(first + second)
        if i >= total:
            return after(i - total + 1)
        passed = i + 1
        x = passed / total - math.floor(passed / total)
        rises = x <= first / total
        scale = x / (first / total) if rises else (x - 1) / (first / total - 1)
        stairs = stairs_up if rises else stairs_down
        if stairs > 0:
            at = passed % total
            scale = math.floor(at * stairs / first if at <= first else (total - at) * stairs / second) / stairs
        return low + (high - low) * scale

    table("one_cycle", lambda i: cycle(0.1, 0.5, i, 7, 7, 0, 0, lambda n: 0.1))
    table("one_cycle.momentum", lambda i: cycle(0.9, 0.8, i, 7, 7, 0, 0, lambda n: 0.9))
    table("one_cycle_decay", lambda i: cycle(0.1, 0.5, i, 7, 12, 0, 0, lambda n: 0.1 / (1 + 0.25 * (n / 3))))
    table("one_cycle_decay.momentum", lambda i: cycle(0.95, 0.7, i, 7, 12, 0, 0, lambda n: 0.95 * (1 + 0.01 * (n / 3))))
    table("one_cycle_stairs", lambda i: cycle(0.1, 0.5, i, 7, 12, 3, 5, lambda n: 0.1))
    table("range_test", lambda i: 0.01 * (1 + 2.5 * ((i + 1) / 6)))
    table("range_test_staircase", lambda i: 0.01 * (1 + 2.5 * math.floor((i + 1) / 6)))
    log = lambda i, n: math.log(i + 1) / math.log(n) if i < n else 1.0
    linear = lambda i, n: i / n if i < n else 1.0
    table("warmup", lambda i: 0.1 + 0.4 * log(i, 9) if i >= 0 else 0)
    table("warmup_linear", lambda i: 0.1 + 0.4 * linear(i, 9) if i >= 0 else 0)
    fall = lambda i: max(0.0, (33 - i) / max(1.0, 33 - 9))
    table("warmup_decay", lambda i: 0 if i < 0 else 0.1 + 0.4 * (log(i, 9) if i < 9 else fall(i)))

    def cosine(i):
        if i < 0:
            return 0.0
        if i < 9:
            return 0.5 * (0.2 + 0.8 * log(i, 9))
        return 0.5 * max(0.0, 0.1 + 0.9 * (1 + math.cos(math.pi * min(1.0, (i - 9 + 1) / (33 - 9)))) / 2)

    table("warmup_cosine", cosine)


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out: dict[str, torch.Tensor] = {}
    for key, shape in SHAPES.items():
        out[f"before.{key}"], out[f"gradients.{key}"] = normal(*shape), normal(STEPS, *shape)
    schedules(out)
    optim = torch.optim
    others = tuple(key for key in SHAPES if key not in HIDDEN)
    record(out, "adamw", lambda p, groups: optim.AdamW(groups(0.1), lr=0.01, betas=(0.9, 0.95), eps=1e-8, foreach=False))
    record(out, "sgd", lambda p, groups: optim.SGD(groups(0.1), lr=0.01, foreach=False))
    record(out, "momentum_sgd", lambda p, groups: optim.SGD(groups(0.1), lr=0.01, momentum=0.9, nesterov=True, foreach=False))
    record(out, "adagrad", lambda p, groups: optim.Adagrad(groups(0.1), lr=0.01, lr_decay=0.25, eps=1e-10, foreach=False))
    record(out, "lion", lambda p, groups: Lion(groups(0.1), 0.01, (0.8, 0.5), 0.0))
    record(out, "lamb", lambda p, groups: Lamb(groups(0.1), 0.01, (0.9, 0.95), 1e-6, 0.0))
    record(out, "muon", lambda p, groups: muon([p[k] for k in HIDDEN], groups(0.1, others), lr=0.02, weight_decay=0.1,
                                               momentum=0.95, nesterov=True))
    record(out, "muon_rms", lambda p, groups: muon([p[k] for k in HIDDEN], groups(0.1, others), lr=0.02, weight_decay=0,
                                                   momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw"))
    # Groups: the matrices of the block at twice the rate and a decay of their own; the table is frozen.
    record(out, "groups", lambda p, groups: optim.AdamW(
        [{"params": [p[k] for k in HIDDEN], "lr": 0.02, "weight_decay": 0.3},
         {"params": [p["head"]], "weight_decay": 0.1},
         {"params": [p[k] for k in UNDECAYED], "weight_decay": 0.0}],
        lr=0.01, betas=(0.9, 0.95), eps=1e-8, foreach=False))
    save_file({name: t.contiguous() for name, t in out.items()}, folder / "optim_expected.safetensors",
              metadata={"format": "pt"})


if __name__ == "__main__":
    main()
