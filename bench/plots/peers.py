"""Plots a run's all-reduce: our time divided by the peer's time, for each size."""

import hashlib
import re

NAME = re.compile(r"all-reduce of (\d+) (KiB|MiB)( over TCP)?, (\d+) ranks, (.*)")
PANELS = (
    ("2 ranks on one host; peer: Open MPI", (False, 2)),
    ("4 ranks on one host; peer: Open MPI", (False, 4)),
    ("over TCP; peer: Gloo", (True, None)),
)


def read(run):
    """{panel: {line: {bytes: (ratio, least, most)}}}"""
    panels = {}
    for row in run["rows"]:
        match = NAME.fullmatch(row["name"])
        if not match or row["ratio"] is None:
            continue
        size = int(match[1]) << (10 if match[2] == "KiB" else 20)
        is_tcp, ranks = bool(match[3]), int(match[4])
        panel = (is_tcp, None if is_tcp else ranks)
        line = f"{ranks} ranks, {match[5]}" if is_tcp else match[5]
        panels.setdefault(panel, {}).setdefault(line, {})[size] = (row["ratio"], *row["ratio_range"])
    return panels


def mark_of(run):
    """A text that the picture carries, and that changes with the figures."""
    return "figures " + hashlib.sha256(repr(read(run)).encode()).hexdigest()[:16]


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def panel(axes, title, lines, sizes):
    from matplotlib import ticker

    for at, (name, points) in enumerate(lines.items()):
        places = [sizes.index(size) + 0.06 * (at - 1.5) for size in points]
        ratios, least, most = zip(*points.values())
        errors = [[r - low for r, low in zip(ratios, least)], [high - r for r, high in zip(ratios, most)]]
        axes.errorbar(places, ratios, yerr=errors, marker="o", markersize=4, linewidth=1.4, capsize=2, elinewidth=0.8, label=name)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(sizes)), map(size_text, sizes))
    axes.set_title(title, fontsize=10)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7.5, loc="lower right")


def draw(path, run):
    import matplotlib  # imported here, because mark_of() needs none

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "polyverso"  # equal figures give equal files
    from matplotlib import pyplot

    panels = read(run)
    sizes = sorted({size for lines in panels.values() for points in lines.values() for size in points})
    figure, all_axes = pyplot.subplots(1, len(PANELS), figsize=(11, 3.9), sharey=True, constrained_layout=True)
    for axes, (title, key) in zip(all_axes, PANELS):
        panel(axes, title, panels.get(key, {}), sizes)
    all_axes[0].set_ylabel("our time / the peer's time\n(below 1: Polyverso is faster)", fontsize=9)
    figure.supxlabel(f"{run['processor']}; {run['date']}", fontsize=7, color="gray")
    figure.savefig(path, metadata={"Date": None, "Description": mark_of(run)})
    pyplot.close(figure)
