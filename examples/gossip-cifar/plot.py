"""Draws logs/w*.csv: each node's loss, and how far the models are from each other. Writes gossip.png."""

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def main():
    logs = {file.stem: np.loadtxt(file, delimiter=",", ndmin=2) for file in sorted((HERE / "logs").glob("w*.csv"))}
    if not logs:
        raise SystemExit("there are no logs: ./run.sh first")
    figure, (losses, distances) = plt.subplots(1, 2, figsize=(10, 4))
    for name, log in logs.items():
        losses.plot(log[:, 1], log[:, 2], label=name)
    losses.set(xlabel="epoch", ylabel="loss of the last batch", yscale="log")
    losses.legend()
    epochs = min(len(log) for log in logs.values())
    sketches = np.stack([log[:epochs, 4:] for log in logs.values()])  # node, epoch, direction
    spread = np.sqrt(((sketches - sketches.mean(axis=0)) ** 2).sum(axis=2)).max(axis=0)
    size = np.sqrt((sketches.mean(axis=0) ** 2).sum(axis=1))
    distances.plot(np.arange(1, epochs + 1), spread / size)
    distances.set(xlabel="epoch", ylabel="largest distance from the mean model, of its size", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(HERE / "gossip.png", dpi=120)
    print(HERE / "gossip.png")


if __name__ == "__main__":
    main()
