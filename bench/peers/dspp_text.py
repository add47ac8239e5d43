# SPDX-License-Identifier: Apache-2.0
"""Starts train_gpt, and prints of its run the line of JSON that the peers print: dspp_text.py <train_gpt> <sizes>."""
import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

uncounted_steps = 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    for name in ("layers", "width", "heads", "sequence", "batch", "vocabulary", "seconds", "ranks"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--data")
    o = parser.parse_args()
    extents = {name: getattr(o, name) for name in ("layers", "width", "heads", "sequence", "seconds", "ranks", "data")}
    command = [o.program.resolve(), "--micro-batch", str(o.batch // o.ranks), "--sample", "0", "--json", "job.json"]
    for name, value in extents.items():
        command += ["--" + name, str(value)]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode != 0:
            sys.exit(run.returncode)
        job = json.loads((Path(folder) / "job.json").read_text(encoding="utf-8"))
        (metrics,) = Path(folder).glob("runs/*/metrics.jsonl")
        steps = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    ends = [step["seconds"] for step in steps]
    print(json.dumps({"items": o.batch * o.sequence,
                      "seconds": [b - a for a, b in zip(ends[uncounted_steps - 1:], ends[uncounted_steps:])],
                      "resident_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
                      "loss": steps[0]["loss"], "parameters": job["params"], "nats": job["val_loss"],
                      "limit": float(re.search(r"GEMM limit \((\d+)\)", run.stdout)[1])}))


main()
