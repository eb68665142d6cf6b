#!/usr/bin/env python3
"""Trains a small neural network through a key-value store with two servers, and draws the loss. The parts:

1. Four Perl workers in sync mode, with Adam on the servers and gradients of two bits. Workers and servers are killed in
   the middle; the training resumes from saved parameters and optimizer states.
2. Four Perl workers in async mode.
3. Perl, Python and Lua workers on one store.

`make kvstore` runs this script; to run it manually, `source build/activate` first. The exit status is 0 only if each
part classifies 95 % of the test images correctly and the resumed loss continues where it was.
"""

import argparse
import pathlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402: in the folder above
from jobs import Failure, find, shown  # noqa: E402

TARGET = 0.95
LIMIT_S = 120  # limit of each part, which takes some seconds
BAR = 30
EPOCH = re.compile(r"epoch (\d+) loss ([\d.]+) accuracy ([\d.]+) seconds ([\d.]+)")
FINAL = re.compile(r"final accuracy ([\d.]+) seconds ([\d.]+)")
PERL, PYTHON, LUA = "train.pl", "train.py", "train.lua"


class Part(jobs.Job):
    """One training of some workers. Each worker is a script; all get the same arguments."""

    def __init__(self, name: str, scripts: Sequence[str], epochs: int, arguments: Sequence[object]) -> None:
        self.curve: list[tuple[int, float]] = []  # (epoch, loss)
        self.accuracy = 0.0  # until the training ends
        self._epochs = epochs
        interpreters = {PERL: find("perl"), PYTHON: sys.executable, LUA: find("luajit")}
        line = [find("polyverso"), "run", "--servers", "2", "--"]
        for at, script in enumerate(scripts):
            line += ["---"] * (at > 0) + [interpreters[script], str(HERE / script), "--epochs", str(epochs), *map(str, arguments)]
        super().__init__(name, line, LIMIT_S)

    def run(self, killed_after: int | None = None) -> None:
        """Runs the training. With `killed_after`, kills all processes once that epoch is over."""
        self.watch(self._read, (lambda: self.curve and self.curve[-1][0] >= killed_after) if killed_after else None)
        if not self.curve or (not self.accuracy and not killed_after):
            raise Failure(f"{self.name}: training printed nothing")

    def _read(self, line: str) -> None:
        epoch, final = EPOCH.search(line), FINAL.search(line)
        if epoch:
            self.curve.append((int(epoch[1]), float(epoch[2])))
            self._show(int(epoch[1]) + 1, f"loss {epoch[2]}  accuracy {epoch[3]}  {float(epoch[4]):5.1f} s")
        elif final:
            self.accuracy = float(final[1])
        else:
            print(line, end="", flush=True)

    def _show(self, done: int, text: str) -> None:
        """Prints a bar that overwrites itself on a terminal; elsewhere, one line for every tenth of the epochs."""
        full = round(BAR * done / self._epochs)
        line = f"{self.name:9}[{'#' * full}{'.' * (BAR - full)}] epoch {done:3}  {text}"
        if sys.stdout.isatty():
            print(f"\r{line}", end="\n" if done == self._epochs else "", flush=True)
        elif done == self._epochs or done % max(1, self._epochs // 10) == 0:
            print(line, flush=True)


def draw(first: Part, second: Part, others: Sequence[Part], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for part in others:
        axes.plot(*zip(*part.curve), alpha=0.5, label=part.name)
    axes.plot(*zip(*first.curve), label="dist_sync, two bits, until killed")
    axes.plot(*zip(*second.curve), label="resumed")
    axes.axvline(second.curve[0][0], color="gray", linestyle=":")
    axes.set(xlabel="epoch", ylabel="loss", yscale="log", title="A network on a key-value store: killed and resumed")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def missed_targets(first: Part, second: Part, parts: Sequence[Part]) -> Iterator[str]:
    begun, before, after = first.curve[0][1], first.curve[-1][1], second.curve[0][1]
    print(f"loss: {begun:.4f} at first, {before:.4f} when killed, {after:.4f} once resumed, {second.curve[-1][1]:.4f} at the end")
    if after > before + 0.1 * (begun - before):
        yield f"the resumed training has a loss of {after:.4f}; it was {before:.4f}, and {begun:.4f} at first"
    if not 0 < second.curve[0][0] <= first.curve[-1][0] + 1:
        yield f"the resumed training began with epoch {second.curve[0][0]}, the killed one had done {first.curve[-1][0]}"
    for part in parts:
        print(f"{part.name}: test accuracy {part.accuracy:.4f}")
        if part.accuracy < TARGET:
            yield f"{part.name}: a test accuracy of {part.accuracy:.4f}, less than {TARGET}"


def demo(folder: pathlib.Path, epochs: int) -> int:
    states = folder / "states"
    shutil.rmtree(states, ignore_errors=True)
    states.mkdir(parents=True)
    two_bits = ["--save", states]
    first = Part("sync", [PERL] * 4, epochs, two_bits)
    first.run(killed_after=epochs // 3)
    print(f"\nkilled all processes after epoch {first.curve[-1][0]}", flush=True)
    second = Part("resumed", [PERL] * 4, epochs, [*two_bits, "--resume"])
    second.run()
    nobody_waits = Part("async", [PERL] * 4, epochs, ["--type", "dist_async", "--rate", 0.005])
    nobody_waits.run()
    mixed = Part("mixed", [PERL, PERL, PYTHON, LUA], epochs, [])
    mixed.run()
    missed = list(missed_targets(first, second, [second, nobody_waits, mixed]))
    plot = folder / "loss.png"
    draw(first, second, [nobody_waits, mixed], plot)
    for sentence in missed:
        print(f"missed: {sentence}")
    print(f"kvstore: accuracy={second.accuracy:.4f} plot={shown(plot)}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=HERE.parents[1] / "build" / "kvstore", help="(build/kvstore)")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    try:
        return demo(options.folder.resolve(), options.epochs)
    except Failure as failure:
        print(f"kvstore: failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
