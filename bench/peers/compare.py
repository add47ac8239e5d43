# SPDX-License-Identifier: Apache-2.0
"""./dspp bench peers: dspp and each peer by turns on the same threads and batches; a table, and rows of JSON.

A comparison is dspp's program and a peer's, started one after the other in each round. A peer that fails ends its own
comparison with one line that says why. `--targets` prints the programs of dspp that the workloads need, one a line.
"""
import argparse
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import figures

here = Path(__file__).parent
baby = {"layers": 6, "width": 384, "heads": 6, "sequence": 256, "batch": 8, "vocabulary": 256, "steps": 10}
gpt2 = {"layers": 12, "width": 768, "heads": 12, "sequence": 64, "batch": 4, "vocabulary": 50257, "steps": 5}
workloads = {"A": baby,
             "A2": {**baby, "steps": 5},
             "B": gpt2,
             "B2": gpt2,
             "C": {**gpt2, "sequence": 512, "batch": 2, "vocabulary": 32000},
             "D": {**baby, "sequence": 4096, "batch": 1, "steps": 5},
             "E": {**gpt2, "steps": 10},
             "F": {"layers": 2, "width": 208, "heads": 8, "sequence": 64, "batch": 8, "vocabulary": 256, "seconds": 55}}
one_rank = [("PyTorch eager", ["pytorch_train.py"], 0), ("PyTorch compile", ["pytorch_train.py", "--compile"], 0)]
two_ranks = [("PyTorch DDP", ["pytorch_ddp.py"], 0), ("PyTorch FSDP2", ["pytorch_fsdp2.py"], 3)]
two_ranks += [(f"DeepSpeed ZeRO {s}", ["deepspeed_zero.py", "--stage", str(s)], s) for s in range(4)]
on_text = [("PyTorch eager", ["pytorch_text.py"]), ("PyTorch compile", ["pytorch_text.py", "--compile"])]


def comparisons(name):
    """(peer, its command, dspp's ZeRO stage, type, ranks, how dspp's ranks are started)"""
    if name == "E":  # under autocast PyTorch's parameters are f32, too
        return [("PyTorch fused AdamW", ["pytorch_adamw.py"], 0, "f32", 1, "thread")]
    if name == "F":  # dspp's two ranks beside one of two threads, PyTorch's quicker way
        return [(*peer, 2, dtype, 2, "threads") for dtype in ("f32", "bf16") for peer in on_text]
    if name not in ("A2", "B2"):
        return [(*peer, dtype, 1, "thread") for dtype in ("f32", "bf16") for peer in one_rank]
    ways = ["threads", "MPI"] if o.mpirun else ["threads"]
    return [(*peer, dtype, 2, way) for dtype in ("f32", "bf16") for peer in two_ranks for way in ways]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, help="the folder of dspp's programs")
    parser.add_argument("--peers", type=Path, default=here, help="the folder of the peers' programs")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every run, all ranks together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=900, help="after which a run is ended")
    parser.add_argument("--only", default="", help="of the comparisons, those whose peer, type and ranks contain it")
    parser.add_argument("--mpirun", default="", help="empty: no MPI ranks")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("workload", nargs="*")
    options = parser.parse_args()
    for name in options.workload:
        if name not in workloads:
            sys.exit(f'dspp: bench peers knows no workload "{name}", but it knows {", ".join(workloads)}.')
    options.workload = options.workload or list(workloads)
    return options


class Failed(Exception):
    """Of a run, with the reason in words."""


def reason_of(stderr, status):
    """The last line that begins with the name of an error, torchrun's own for its ranks' apart; else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if re.search(r"\w", line)]
    named = re.compile(r"(\[rank\d+\]: *)?[\w.]+Error(:|$)")
    errors = [line for line in lines if named.match(line) and "ChildFailed" not in line]
    return ((errors or lines or [""])[-1] or f"it ended with status {status}")[:200]


def processes_of(mark):
    """Those with this entry in their environment."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environment.read_bytes().split(b"\0"):
                yield int(environment.parent.name)
        except OSError:  # it has ended, or is another user's
            continue


def end(process, mark):
    """Ends a run and its ranks, which torchrun starts in sessions of their own and may leave behind: else they go on
    beside the next run."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
    for _ in range(100):  # a rank may start others until it ends
        ranks = list(processes_of(mark))
        for rank in ranks:
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not ranks:
            break
        time.sleep(0.05)
    process.wait()


def start(command, ranks):
    """Runs a program with its share of the threads; returns what its line of JSON says."""
    share, run_name = str(max(o.threads // ranks, 1)), f"{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, "OMP_NUM_THREADS": share, "MKL_NUM_THREADS": share, "DS_ACCELERATOR": "cpu"}
    if os.geteuid() == 0:  # as ./dspp train --mpi: Open MPI else refuses
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment["DSPP_PEERS_RUN"] = run_name
    mark = f"DSPP_PEERS_RUN={run_name}"
    try:
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Failed(str(error)) from None
    try:
        out, errors = run.communicate(timeout=o.seconds)
    except subprocess.TimeoutExpired:
        end(run, mark)
        raise Failed(f"it took more than {o.seconds:g} s") from None
    except BaseException:
        end(run, mark)
        raise
    lines = [line for line in out.splitlines() if line.startswith('{"items"')]
    if run.returncode != 0 or not lines:
        raise Failed(reason_of(errors, run.returncode))
    try:
        return json.loads(lines[-1])
    except json.JSONDecodeError:
        raise Failed(f"its figures are no JSON: {lines[-1][:200]}") from None


def commands(name, comparison):
    """dspp's command and the peer's."""
    _, peer, stage, dtype, ranks, way = comparison
    sizes = [text for key, value in workloads[name].items() for text in ("--" + key, str(value))]
    if name == "F":
        sizes += ["--data", (o.programs / "default_text").read_text(encoding="utf-8")]
        ours = [sys.executable, str(here / "dspp_text.py"), str(o.programs / f"peers_text_{dtype}"), *sizes]
        return [*ours, "--ranks", "2"], [sys.executable, str(o.peers / peer[0]), *peer[1:], *sizes, "--dtype", dtype]
    program = str(o.programs / f"peers_zero{stage}_{dtype}")
    ours = [program, *sizes, *(["--update"] if name == "E" else [])]
    if way == "MPI":
        ours = [o.mpirun, "-n", str(ranks), *ours]
    elif ranks > 1:
        ours += ["--ranks", str(ranks)]
    theirs = [str(o.peers / peer[0]), *peer[1:], *sizes, "--dtype", dtype]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        return ours, [sys.executable, *launcher, *theirs]
    return ours, [sys.executable, *theirs]


def compare(name, comparison):
    """Rounds of both; (figures, dspp's GEMM limit), or raises Failed."""
    ours, theirs, ranks = [], [], comparison[4]
    mine, others = commands(name, comparison)
    for _ in range(o.rounds):
        try:
            ours.append(start(mine, ranks))
        except Failed as failure:
            raise Failed(f"dspp: {failure}") from None
        theirs.append(start(others, 1 if name == "F" else ranks))
        different = figures.difference(ours[-1], theirs[-1])
        if different:
            raise Failed(different)
    limits = sorted(run.get("limit", 0) for run in ours)
    return figures.compared(ours, theirs, unit_of(name)), limits[len(limits) // 2] or None


def unit_of(name):
    return "parameters/s" if name == "E" else "tokens/s"


def ranks_of(comparison):
    return "1" if comparison[4] == 1 else f"{comparison[4]} {comparison[5]}"


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine():
    model = "an unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "deepspeed", "numpy"))
    return (f"{os.cpu_count()} cores of {model} ({', '.join(has) or 'no AVX2'}), load {os.getloadavg()[0]:.1f} at the "
            f"start; {o.threads} threads a run, all ranks together; {o.rounds} rounds; Python "
            f"{platform.python_version()}, {versions}.")


def write(rows):
    """After each comparison: a run of hours that is ended has what it measured."""
    if o.json:
        o.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def main():
    asked = [(name, c) for name in o.workload for c in comparisons(name) if o.only in f"{c[0]} {c[3]} {ranks_of(c)}"]
    if not asked:
        sys.exit(f'dspp: bench peers needs a comparison whose peer, type and ranks contain "{o.only}", but '
                 f'{", ".join(o.workload)} has none. Leave it out, and the table names all.')
    print(machine(), "\n", sep="")
    print("| workload | peer | type | ranks | dspp /s | GEMM limit /s | peer /s | ratio | dspp MiB | peer MiB | ratio "
          "| step spread, dspp | peer |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    rows, remarks = [], []
    for name, comparison in asked:
        peer, _, stage, dtype, _, _ = comparison
        ranks, unit = ranks_of(comparison), unit_of(name)
        row = {"workload": name[0], "peer": peer, "dtype": dtype, "ranks": ranks, "stage": stage}
        try:
            by_unit, limit = compare(name, comparison)
        except Failed as failure:
            rows.append({**row, "ours": None, "theirs": None, "ratio": None, "unit": unit, "reason": str(failure)})
            remarks.append(f"{name} {peer}, {dtype}, {ranks}: {failure}.")
            by_unit, limit = dict.fromkeys((unit, "MiB", "% step spread"), (None, None, None)), None
        else:
            rows += [{**row, "ours": a, "theirs": b, "ratio": ratio, "unit": what}
                     for what, (a, b, ratio) in by_unit.items()]
        write(rows)
        if "nats/byte" in by_unit:
            remarks.append("{} {}, {}: held out, dspp's loss is {:.4f} nats a byte, the peer's {:.4f}.".format(
                name, peer, dtype, *by_unit["nats/byte"]))
        pace, memory, steps = (tuple(map(figures.shown, x)) for x in list(by_unit.values())[:3])
        print("|", " | ".join([name[0], peer, dtype, ranks, pace[0], figures.shown(limit), *pace[1:], *memory,
                               *(x if x == "-" else x + " %" for x in steps[:2])]), "|", flush=True)
    print("\n" + "".join(f"- {remark}\n" for remark in remarks) if remarks else "")
    if o.json:
        print(f"dspp: the figures are in {o.json}")
    return 0 if any(row["ours"] for row in rows) else 1


o = read_options()
if o.targets:
    print("\n".join(sorted({f"peers_{'text' if name == 'F' else f'zero{c[2]}'}_{c[3]}"
                            for name in o.workload for c in comparisons(name)})))
else:
    sys.exit(main())
