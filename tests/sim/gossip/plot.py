#!/usr/bin/env python3
"""Plots how fast nodes come to a consensus, from what `sim_gossip --consensus-data FILE --seed 1` has written.

    plot.py FILE PICTURE
"""

import csv
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main(data, picture):
    curves = defaultdict(list)  # (exchange, nodes): spreads, step by step
    with open(data, newline="") as file:
        for row in csv.DictReader(file):
            curves[row["exchange"], int(row["nodes"])].append(float(row["spread"]))
    figure, (over_time, over_size) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for (exchange, nodes), spreads in curves.items():
        if exchange == "pull":
            over_time.semilogy(spreads, label=f"{nodes}")
    over_time.set(xlabel="steps", ylabel="largest less smallest value, of the first", title="a pull of everybody each step")
    over_time.legend(title="nodes", fontsize="small")
    for exchange in ("pull", "symmetric"):
        sizes = sorted(nodes for kind, nodes in curves if kind == exchange)
        over_size.semilogx(sizes, [len(curves[exchange, nodes]) - 1 for nodes in sizes], "o-", base=2, label=exchange)
    over_size.set(xlabel="nodes", ylabel="steps to a thousandth", title="a line is O(log n)")
    over_size.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
