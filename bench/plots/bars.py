"""A bar chart of our results and a peer's, with the range of the runs."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def draw(path, rows, title, caption):
    """rows: rows of results.json, all with the same unit and each with a peer."""
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.8 * len(rows)), constrained_layout=True)
    height = 0.38
    for at, row in enumerate(rows):
        bar(axes, at - height / 2, row["ours"], row["ours_range"], height, "tab:blue", "Polyverso" if at == 0 else None)
        name = row["peer"] if at == 0 else None
        bar(axes, at + height / 2, row["peer_value"], row["peer_range"], height, "silver", name)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(rows[0]["unit"])
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def bar(axes, at, value, ends, height, color, label):
    errors = [[max(0, value - ends[0])], [max(0, ends[1] - value)]]
    axes.barh(at, value, height, xerr=errors, color=color, label=label, error_kw={"elinewidth": 1, "capsize": 2})
    axes.annotate(f" {value:.3g}", (value, at), va="bottom", fontsize=8)
