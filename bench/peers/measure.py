# SPDX-License-Identifier: Apache-2.0
"""What every peer's program has in common: options, tokens, and the line of JSON that dspp_train.cpp prints, too."""
import argparse
import json
import os
import time

import torch

uncounted_steps = 2
most_seconds = 30  # after which no further step begins, if one counted
adamw = {"lr": 3e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # of torchrun


def options():
    parser = argparse.ArgumentParser()
    for name in ("layers", "width", "heads", "sequence", "batch", "vocabulary", "steps", "stage", "seconds", "data"):
        parser.add_argument("--" + name, type=str if name == "data" else int, default=0)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--compile", action="store_true")
    torch.manual_seed(1)
    return parser.parse_args()


def tokens(o):
    """This rank's rows of the batch, whose ids are drawn as in dspp_train.cpp, and of the ids that follow them."""
    state, drawn = 1, []
    for _ in range(o.batch * (o.sequence + 1)):
        state = (1664525 * state + 1013904223) % 2**32
        drawn.append((state >> 8) % o.vocabulary)
    rows = torch.tensor(drawn).view(o.batch, o.sequence + 1).chunk(ranks)[rank]
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def peak_resident_mib():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def report(o, step, parameters, items):
    """Times steps, of which each returns its loss, and prints the first loss, the times and the memory of all ranks."""
    seconds, losses, begin = [], [], time.perf_counter()
    for i in range(uncounted_steps + o.steps):
        late = torch.tensor(time.perf_counter() - begin > most_seconds and i > uncounted_steps)
        if ranks > 1:
            torch.distributed.broadcast(late, 0)
        if late:
            break
        start = time.perf_counter()
        losses.append(float(step()))
        seconds.append(time.perf_counter() - start)
    facts = torch.tensor([peak_resident_mib(), losses[0] / ranks], dtype=torch.float64)
    if ranks > 1:
        torch.distributed.all_reduce(facts)
        torch.distributed.barrier()  # a rank that ends earlier breaks the others' connections
    if rank == 0:
        resident, loss = facts.tolist()
        print(json.dumps({"items": items, "seconds": seconds[uncounted_steps:], "resident_mib": resident, "loss": loss,
                          "parameters": parameters}), flush=True)
