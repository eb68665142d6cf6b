"""The loss of trainings, over steps and over bytes."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def draw(path, runs, caption):
    """runs: {name: reports of examples/torch/train.py}"""
    figure, (by_step, by_bytes) = pyplot.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    for name, reports in runs.items():
        losses = [report["loss"] for report in reports]
        by_step.plot([report["step"] for report in reports], losses, label=name)
        by_bytes.plot([report["bytes"] / 1e6 for report in reports], losses, label=name)
    by_step.set(xlabel="step", ylabel="loss of the test set", yscale="log")
    by_bytes.set(xlabel="MB that a rank has passed to operations", yscale="log", xscale="log")
    by_step.legend()
    figure.supxlabel(caption, fontsize=7, color="gray")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
