"""Trains the same model three times and compares the results: in one process, with a Perl, a Python and a Lua worker in
sync mode, and with the same three workers in async mode.

In sync mode, the three workers together take exactly the steps that the single process takes. They must reach the same
accuracy, and all three must hold the same bits. In async mode, no worker waits for another. `make demo` runs this
script; to run it manually, `source build/activate` first. The exit status is 0 only if every target is met.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = 449  # test images, see data/README.md
TARGETS = {"single": 0.93, "sync": 0.93, "async": 0.92}
LIMIT_S = 100  # limit of one training; each takes a few seconds

EPOCH = re.compile(r"epoch (\d+) loss ([\d.]+) accuracy ([\d.]+) seconds ([\d.]+)")
FINAL = re.compile(r"final accuracy ([\d.]+) seconds ([\d.]+)")


class Failure(Exception):
    """An error message for the person who ran `make demo`."""


def find(*programs):
    for program in programs:
        if shutil.which(program):
            return program
    raise Failure(f"{' or '.join(programs)} is not on PATH: run `make demo`, or `source build/activate` first")


class Training:
    """One training. Turns the output of its processes, as it arrives, into a curve and a progress line."""

    def __init__(self, name, command, folder, epochs):
        self.name = name
        self.folder = folder / name
        self.epochs = epochs
        self.curve = []  # (seconds, loss)
        self.accuracy = None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.run(command)

    def run(self, command):
        # One thread per worker: NumPy's matrix products would otherwise use the cores of the other workers.
        environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment)
        watchdog = threading.Timer(LIMIT_S, process.terminate)
        watchdog.start()
        try:
            for line in process.stdout:
                self.read(line)
            status = process.wait()
        finally:
            watchdog.cancel()
            if process.poll() is None:
                process.terminate()
                process.wait()
        if status != 0 or self.accuracy is None:
            raise Failure(f"{self.name}: training ended with status {status}" + ("" if self.accuracy else ", without a result"))

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


def shown(path):
    """The path relative to the working directory if it lies below it, otherwise the path itself."""
    here = pathlib.Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


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
