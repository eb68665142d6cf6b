"""Throughput against size."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

GIGA = 1e9


def size_text(size, _position=None):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def draw(path, series, title, caption):
    """series: {label: [(bytes, bytes per second)]}"""
    figure, axes = pyplot.subplots(figsize=(8, 5), constrained_layout=True)
    for label, points in series.items():
        style = {"linewidth": 2.5} if label.startswith("Polyverso") else {"linewidth": 1.2, "linestyle": "--"}
        axes.plot(*zip(*points), marker="o", label=label, **style)
    axes.set_xscale("log", base=4)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(size_text))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda speed, _: f"{speed / GIGA:g}"))
    axes.set_xlabel("size")
    axes.set_ylabel("GB/s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
