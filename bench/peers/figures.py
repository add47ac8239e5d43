# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of ./dspp bench peers: what runs of dspp and of a peer, alternating, give."""
import statistics


def spread(seconds):
    """How far apart the slow and the fast steps of a run are: 90th less 10th percentile, in percent of the median."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return 100 * (ordered[round(0.9 * last)] - ordered[round(0.1 * last)]) / statistics.median(ordered)


def run_figures(run, unit):
    """The figures of one run, by unit: its pace by the median step, its memory, its spread; a text's held-out loss."""
    return {unit: run["items"] / statistics.median(run["seconds"]),
            "MiB": run["resident_mib"],
            "% step spread": spread(run["seconds"]),
            **({"nats/byte": run["nats"]} if "nats" in run else {})}


def compared(ours, theirs, unit):
    """By unit: the medians of both, and the median of the pairwise ratios ours / theirs (None where theirs are 0)."""
    pairs = [(run_figures(a, unit), run_figures(b, unit)) for a, b in zip(ours, theirs)]
    if not pairs:
        raise ValueError("no pair of runs")
    figures = {}
    for name in pairs[0][0]:
        ratios = [a[name] / b[name] for a, b in pairs if b[name]]
        figures[name] = (statistics.median(a[name] for a, _ in pairs), statistics.median(b[name] for _, b in pairs),
                         statistics.median(ratios) if ratios else None)
    return figures


def difference(ours, theirs):
    """Why the two runs are not of one model and batch, in words; empty if they are."""
    if ours["parameters"] != theirs["parameters"]:
        return f"it trains {theirs['parameters']} parameters, dspp {ours['parameters']}"
    if ours["items"] != theirs["items"]:
        return f"its step has {theirs['items']} items, dspp's {ours['items']}"
    near = 0.5 if "nats" in ours else 0.15  # a text has frequent bytes, whose initial values count most
    if not abs(ours["loss"] - theirs["loss"]) <= near:  # neither is NaN
        return f"its first loss is {theirs['loss']:.3f}, dspp's {ours['loss']:.3f}"
    return ""


def shown(number):
    """Four digits, as in a table; a dash for what was not measured."""
    if number is None:
        return "-"
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}" if number >= 10 else f"{number:.2f}"
