"""Trains the same model three times and compares the results: in one process, with a Perl, a Python and a Lua worker in
sync mode, and with the same three workers in async mode.

In sync mode, the three workers together take exactly the steps that the single process takes. They must reach the same
accuracy, and all three must hold the same bits. In async mode, no worker waits for another. `make demo` runs this
script; to run it manually, `source build/activate` first. The exit status is 0 only if every target is met.
"""

import argparse
import pathlib
import re
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402: in the folder above
from jobs import Failure, find, shown  # noqa: E402

TESTS = 449  # test images, see data/README.md
TARGETS = {"single": 0.93, "sync": 0.93, "async": 0.92}
LIMIT_S = 100  # limit of one training; each takes a few seconds

EPOCH = re.compile(r"epoch (\d+) loss ([\d.]+) accuracy ([\d.]+) seconds ([\d.]+)")
FINAL = re.compile(r"final accuracy ([\d.]+) seconds ([\d.]+)")


class Training(jobs.Job):
    """One training. Turns the output of its processes, as it arrives, into a curve and a progress line."""

    def __init__(self, name, command, folder, epochs):
        self.folder = folder / name
        self.epochs = epochs
        self.curve = []  # (seconds, loss)
        self.accuracy = None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        super().__init__(name, command, LIMIT_S)
        self.watch(self.read)
        if self.accuracy is None:
            raise Failure(f"{name}: training ended without a result")

    def read(self, line):
        epoch, final = EPOCH.search(line), FINAL.search(line)
        if epoch:
            number, loss, accuracy, seconds = int(epoch[1]), float(epoch[2]), float(epoch[3]), float(epoch[4])
            self.curve.append((seconds, loss))
            self.show(f"epoch {number:3}/{self.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  {seconds:5.2f} s", number)
        elif final:
            self.accuracy = float(final[1])
            self.show(f"test accuracy {self.accuracy:.4f} after {float(final[2]):.2f} s".ljust(60), None)
        else:
            print(line, end="", flush=True)

    def show(self, text, epoch):
        """Prints a line that overwrites itself on a terminal; elsewhere, one line for every 50 epochs."""
        if sys.stdout.isatty():
            print(f"\r{self.name:8}{text}", end="\n" if epoch is None else "", flush=True)
        elif epoch is None or epoch % 50 == 0:
            print(f"{self.name:8}{text.rstrip()}", flush=True)

    def weights(self):
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("weights-*.txt"))}


def draw(trainings, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for training, style in zip(trainings, (":", "-", "-")):
        seconds, losses = zip(*training.curve)
        axes.plot(seconds, losses, style, label=f"{training.name}, test accuracy {training.accuracy:.3f}")
    axes.set(yscale="log", xlabel="seconds", ylabel="training loss", title="Digits: Perl, Python and Lua on one table")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def missed_targets(trainings):
    single, sync, _ = trainings
    missed = [
        f"{training.name}: accuracy {training.accuracy:.4f}, wanted {TARGETS[training.name]}"
        for training in trainings
        if training.accuracy < TARGETS[training.name]
    ]
    if sync.accuracy < single.accuracy - 1.5 / TESTS:
        missed.append(f"sync: accuracy {sync.accuracy:.4f}, more than one image behind the single process's {single.accuracy:.4f}")
    weights = sync.weights()
    if len(weights) != 3 or len(set(weights.values())) != 1:
        missed.append(f"sync: the workers' weights differ, see {sync.folder}")
    return missed


def demo(folder, epochs):
    begun = time.monotonic()
    polyverso, perl, lua = find("polyverso"), find("perl"), find("luajit", "lua5.1", "lua5.4", "lua")
    workers = [[perl, str(HERE / "train.pl")], [sys.executable, str(HERE / "train.py")], [lua, str(HERE / "train.lua")]]

    def train(name, launcher, commands):
        options = ["--epochs", str(epochs), "--save", str(folder / name)]
        line = list(launcher)
        for command in commands:
            line += ([] if command is commands[0] else ["---"]) + command + options
        return Training(name, line, folder, epochs)

    cluster = [polyverso, "run", "--servers", "1"]
    print(f"one server, three workers: {perl}, python3, {lua}", flush=True)
    trainings = [
        train("single", [], workers[1:2]),
        train("sync", [*cluster, "--sync", "--"], workers),
        train("async", [*cluster, "--"], workers),
    ]
    missed = missed_targets(trainings)
    if not missed:
        print("sync: the three workers' weights are the same, bit for bit")
    plot = folder / "loss.png"
    draw(trainings, plot)
    print(f"loss against time: {shown(plot)}")
    for sentence in missed:
        print(f"missed: {sentence}")
    results = " ".join(f"{training.name}={training.accuracy:.3f}" for training in trainings)
    print(f"demo: {results} seconds={time.monotonic() - begun:.1f} plot={shown(plot)}", flush=True)
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "demo", help="folder for weights and plot (build/demo)")
    parser.add_argument("--epochs", type=int, default=300)
    options = parser.parse_args()
    try:
        return demo(options.folder.resolve(), options.epochs)
    except Failure as failure:
        print(f"demo: failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
