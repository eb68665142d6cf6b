"""Plots the measured all-reduce of docs/benchmarks.md: our time divided by the peer's time, for each size.

    python3 -m bench.plots.peers [--check] DOCUMENT PICTURE     docs/benchmarks.md docs/pictures/allreduce-peers.svg

The document's table is the data, so the picture and the page show the same figures. --check draws nothing, and fails if
the picture was drawn from another table.
"""

import argparse
import hashlib
import pathlib
import re
import sys

HEADER = re.compile(r"^\| our time / the peer's time \|(.*)\|$", re.MULTILINE)
CELL = re.compile(r"([\d.]+)(?: \(([\d.]+)–([\d.]+)\))?")
PANELS = (
    ("2 ranks on one host; peer: Open MPI", re.compile(r"2 ranks, (?:tensors|private)")),
    ("4 ranks on one host; peer: Open MPI", re.compile(r"4 ranks, (?:tensors|private)")),
    ("over TCP; peer: Gloo", re.compile(r"\d ranks over TCP")),
)


def read(document):
    """The sizes, and {row: [(column, ratio, least, most)]}; least and most are the ratio where the table has no range."""
    text = document.read_text(encoding="utf-8")
    header = HEADER.search(text)
    if not header:
        sys.exit(f"{document}: there is no table of all-reduce")
    rows = {}
    for line in text[header.end() :].lstrip("\n").splitlines()[1:]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        points = [(column, CELL.fullmatch(cell)) for column, cell in enumerate(cells) if cell]
        rows[name.split(";")[0]] = [(column, *(float(match[group] or match[1]) for group in (1, 2, 3))) for column, match in points]
    return [size.strip() for size in header[1].split("|")], rows


def mark_of(sizes, rows):
    """A text that the picture carries, and that changes with the table."""
    return "table " + hashlib.sha256(repr((sizes, rows)).encode()).hexdigest()[:16]


def panel(axes, title, rows, sizes):
    from matplotlib import ticker

    for at, (name, points) in enumerate(rows):
        columns, ratios, least, most = zip(*points)
        places = [column + 0.06 * (at - 1.5) for column in columns]
        errors = [[r - low for r, low in zip(ratios, least)], [high - r for r, high in zip(ratios, most)]]
        label = name.replace("2 ranks, ", "").replace("4 ranks, ", "").replace(" over TCP", "")
        axes.errorbar(places, ratios, yerr=errors, marker="o", markersize=4, linewidth=1.4, capsize=2, elinewidth=0.8, label=label)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_title(title, fontsize=10)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7.5, loc="lower right")


def draw(path, sizes, rows):
    import matplotlib  # imported here, because --check needs none

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "polyverso"  # equal tables give equal files
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(PANELS), figsize=(11, 3.8), sharey=True, constrained_layout=True)
    shown = set()
    for axes, (title, pattern) in zip(all_axes, PANELS):
        chosen = [(name, points) for name, points in rows.items() if pattern.match(name)]
        shown.update(name for name, _ in chosen)
        panel(axes, title, chosen, sizes)
    if shown != rows.keys():
        sys.exit(f"no panel shows {', '.join(rows.keys() - shown)}")
    all_axes[0].set_ylabel("our time / the peer's time\n(below 1: Polyverso is faster)", fontsize=9)
    figure.savefig(path, metadata={"Date": None, "Description": mark_of(sizes, rows)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    sizes, rows = read(options.document)
    if not options.check:
        draw(options.picture, sizes, rows)
    elif mark_of(sizes, rows) not in options.picture.read_text(encoding="utf-8"):
        sys.exit(f"{options.picture} shows another table than {options.document}: draw it again")


if __name__ == "__main__":
    main()
