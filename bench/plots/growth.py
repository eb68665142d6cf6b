"""The time of a call against the amount of its work."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def draw(path, panels, caption):
    """panels: {title: (unit of the work, [(amount, seconds)], slope)}"""
    figure, all_axes = pyplot.subplots(2, (len(panels) + 1) // 2, figsize=(11, 6.4), constrained_layout=True)
    for axes in list(all_axes.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, (unit, points, slope)) in zip(all_axes.flat, panels.items()):
        amounts, seconds = zip(*points)
        axes.loglog(amounts, seconds, marker="o", linewidth=2)
        linear = [seconds[-1] * amount / amounts[-1] for amount in amounts]
        axes.loglog(amounts, linear, color="gray", linewidth=1, linestyle="--", label="in proportion")
        axes.set_title(f"{title}: slope {slope:.2f}", fontsize=9)
        axes.set(xlabel=unit, ylabel="seconds")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
