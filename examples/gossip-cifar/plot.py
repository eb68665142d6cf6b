"""Draws logs/*.csv: the loss of each node, and the distances between the models.

    python3 plot.py [FILE]        writes gossip.png, or FILE in the format of its extension
"""

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def read_logs(pattern: str) -> dict[str, np.ndarray]:
    files = sorted((HERE / "logs").glob(pattern), key=lambda file: (len(file.stem), file.stem))
    return {file.stem: np.loadtxt(file, delimiter=",", ndmin=2) for file in files}


def main() -> None:
    logs = read_logs("*.csv")
    logs.pop("alone", None)
    if not logs:
        raise SystemExit("no logs found: run ./run.sh first")
    figure, (losses, distances) = plt.subplots(1, 2, figsize=(10, 4))
    for name, log in logs.items():
        losses.plot(log[:, 1], log[:, 2], label=name)
    for log in read_logs("alone.csv").values():
        losses.plot(log[:, 1], log[:, 2], label="alone, on all images", color="black", linestyle="dotted")
    losses.set(xlabel="epoch", ylabel="loss", yscale="log")
    losses.legend()
    epochs = min(len(log) for log in logs.values())
    sketches = np.stack([log[:epochs, 4:] for log in logs.values()])  # node, epoch, projection
    mean = sketches.mean(axis=0)
    for name, own in zip(logs, sketches):
        distances.plot(np.arange(1, epochs + 1), np.linalg.norm(own - mean, axis=1) / np.linalg.norm(mean, axis=1), label=name)
    distances.set(xlabel="epoch", ylabel="distance from the mean model, of its length", ylim=(0, None))
    figure.tight_layout()
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "gossip.png"
    figure.savefig(file, dpi=120)
    print(file)


if __name__ == "__main__":
    main()
