"""Plots all-reduce among up to 1,024 simulated ranks: simulated times (points) and the cost model (lines).

    python3 -m bench.plots.allreduce PROGRAM PICTURE     PROGRAM: build/bench/bin/bench_collectives
"""

import json
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "polyverso"  # equal measurements give equal files
from matplotlib import pyplot  # noqa: E402

from bench.plots.curves import size_text  # noqa: E402


def draw(path, rows, caption):
    sizes = sorted({row["bytes"] for row in rows})
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    figure, all_axes = pyplot.subplots(1, len(sizes), figsize=(4 * len(sizes), 4.2), constrained_layout=True)
    for axes, size in zip(all_axes, sizes):
        for at, name in enumerate(names):
            of_one = [row for row in rows if row["bytes"] == size and row["algorithm"] == name]
            ranks = [row["ranks"] for row in of_one]
            axes.plot(ranks, [row["modelled"] for row in of_one], color=f"C{at}", linewidth=1, label=name)
            axes.plot(ranks, [row["simulated"] for row in of_one], color=f"C{at}", linestyle="", marker="o", markersize=4)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(size_text(size))
        axes.set_xlabel("ranks")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("seconds (points: simulated, lines: model)")
    all_axes[0].legend(fontsize=8)
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main():
    program, picture = sys.argv[1:]
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    draw(picture, [json.loads(line) for line in lines], "alpha 12 µs, beta 0.9 ns/byte, gamma 0.1 ns/byte: the defaults for TCP")


if __name__ == "__main__":
    main()
