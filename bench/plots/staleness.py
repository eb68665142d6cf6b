"""The throughput of each consistency mode, and the staleness of its gets."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

MOST_SHOWN = 12  # clocks; the last bar includes all larger values


def draw(path, cases, title, caption):
    """cases: {case: {setting: ([iterations per second], [gets that were 0, 1, ... clocks behind])}}"""
    figure, axes = pyplot.subplots(len(cases), 2, figsize=(11, 3.6 * len(cases)), constrained_layout=True, squeeze=False)
    for (left, right), (case, settings) in zip(axes, cases.items()):
        throughput(left, settings, case)
        distribution(right, settings, case)
    figure.suptitle(title)
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def throughput(axes, settings, case):
    for at, (setting, (speeds, _)) in enumerate(settings.items()):
        middle = sorted(speeds)[len(speeds) // 2]
        errors = [[middle - min(speeds)], [max(speeds) - middle]]
        axes.bar(at, middle, yerr=errors, color=f"C{at}", error_kw={"elinewidth": 1, "capsize": 3})
        axes.annotate(f"{middle:.0f}", (at, middle), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(settings)), settings)
    axes.set_ylabel("iterations/s, all workers")
    axes.set_title(f"slow: {case}")
    axes.grid(axis="y", alpha=0.3)


def distribution(axes, settings, case):
    width = 0.8 / len(settings)
    for at, (setting, (_, behind)) in enumerate(settings.items()):
        shown = [*behind[:MOST_SHOWN], sum(behind[MOST_SHOWN:])]
        places = [clocks + (at - (len(settings) - 1) / 2) * width for clocks in range(len(shown))]
        axes.bar(places, [count / sum(behind) for count in shown], width, color=f"C{at}", label=setting)
    ticks = range(MOST_SHOWN + 1)
    axes.set_xticks(ticks, [f"{clocks}" if clocks < MOST_SHOWN else f"{clocks}+" for clocks in ticks])
    axes.set_xlabel("clocks that a get was behind the slowest worker")
    axes.set_ylabel("share of the gets")
    axes.set_title(f"observed staleness, slow: {case}")
    axes.legend()
    axes.grid(axis="y", alpha=0.3)
