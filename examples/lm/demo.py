#!/usr/bin/env python3
"""Trains word vectors with a Python, a Perl and a Lua worker. Kills workers and servers in the middle, and resumes from
the newest checkpoint with two servers instead of one. Draws the loss of both parts and shows what the vectors have
learned.

`make lm` runs this script; to run it manually, `source build/activate` first. The exit status is 0 only if the loss
fell, the resumed loss continues where it was, and the vectors agree with word vectors computed from counts.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

import corpus
import nearest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "kjv"))

import jobs  # noqa: E402: in the folder above
from jobs import Failure, find, shown  # noqa: E402
from verses import Missing  # noqa: E402

WORKERS = 3
LIMIT_S = 400  # limit of each part
KILLED_AT = 0.5  # part of the whole training, but not before the first checkpoint
BAR = 30

LINE = re.compile(r"block (\d+) of (\d+)  loss ([\d.]+)  ([\d.]+) words/s  ([\d.]+) s")
SAVED = re.compile(r"saved after round (\d+) of \d+")


class Part(jobs.Job):
    """One `polyverso run` of the training. It ends by itself or is killed."""

    def __init__(self, name: str, servers: int, arguments: Sequence[object]) -> None:
        self.curve: list[tuple[int, float]] = []  # (block, loss)
        self.saved = 0  # blocks in the newest checkpoint
        self.total = 0
        trainers = [[sys.executable, "train.py"], [find("perl"), "train.pl"], [find("luajit"), "train.lua"]]
        line = [find("polyverso"), "run", "--servers", str(servers), "--"]
        for at, (interpreter, script) in enumerate(trainers):
            line += ["---"] * (at > 0) + [interpreter, str(HERE / script), *map(str, arguments)]
        super().__init__(name, line, LIMIT_S)

    def run(self, killed_at: float | None = None) -> None:
        """Reads worker 0's output. With `killed_at`, kills all processes once this part is done and a checkpoint
        exists."""
        self.watch(self._read, (lambda: self.saved and self._part() >= killed_at) if killed_at else None)
        if not self.curve:
            raise Failure(f"{self.name}: training printed nothing")

    def _part(self) -> float:
        """The part of the whole training that is done, 0 .. 1."""
        return self.curve[-1][0] / self.total if self.curve else 0

    def _read(self, line: str) -> None:
        at, saved = LINE.search(line), SAVED.search(line)
        if at:
            done, self.total = int(at[1]), int(at[2])
            self.curve.append((done, float(at[3])))
            loss, speed, seconds = map(float, at.groups()[2:])
            self._show(self._part(), f"loss {loss:.3f}  {speed / 1000:5.0f} k words/s  {seconds:5.1f} s")
        elif saved:
            self.saved = WORKERS * int(saved[1])
        elif "trained: " not in line:
            print(line, end="", flush=True)

    def _show(self, part: float, text: str) -> None:
        """Prints a bar that overwrites itself on a terminal; elsewhere, one line for every tenth of the training."""
        full = round(BAR * part)
        line = f"{self.name:8}[{'#' * full}{'.' * (BAR - full)}] {100 * part:5.1f} %  {text}"
        if sys.stdout.isatty():
            print(f"\r{line}", end="\n" if part >= 1 else "", flush=True)
        elif part >= 1 or len(self.curve) == 1 or int(10 * part) > int(10 * self.curve[-2][0] / self.total):
            print(line, flush=True)


def loss_at(curve: Sequence[tuple[int, float]], count: int, last: bool) -> float:
    """The mean of `count` reports at the start or the end of a curve. A single report covers only a few blocks."""
    some = curve[-count:] if last else curve[:count]
    return statistics.fmean(loss for _, loss in some)


def draw(first: Part, second: Part, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(*zip(*first.curve), label="one server, until killed")
    axes.plot(*zip(*second.curve), label="two servers, from the checkpoint")
    axes.axvline(first.saved, color="gray", linestyle=":", label="the checkpoint")
    axes.set(xlabel="blocks of a thousand words", ylabel="loss for each pair of words")
    axes.set_title("Word vectors: killed and resumed")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def missed_targets(first: Part, second: Part, shared: float, chance: float) -> Iterator[str]:
    begun, before = first.curve[0][1], loss_at(first.curve, 3, last=True)
    after, ended = loss_at(second.curve, 3, last=False), loss_at(second.curve, 3, last=True)
    print(f"loss: {begun:.3f} at first, {before:.3f} when killed, {after:.3f} once resumed, {ended:.3f} at the end")
    fallen = begun - before
    if fallen < 0.1:
        yield f"the loss fell by {fallen:.3f} only before the kill"
    if after > before + 0.35 * fallen:
        yield f"the resumed training has a loss of {after:.3f}; it was {before:.3f}, and {begun:.3f} at first"
    if ended > after:
        yield f"the loss rose from {after:.3f} to {ended:.3f} after the resumption"
    if second.curve[0][0] < first.saved:
        yield f"the resumed training was at block {second.curve[0][0]}, before the checkpoint's {first.saved}"
    if shared < 20 * chance or shared < 0.05:
        yield f"of ten nearest words, only {10 * shared:.2f} match those found by counting"


def demo(folder: pathlib.Path, tokens: int | None, epochs: int, save_every: int, report: float) -> int:
    begun = time.monotonic()
    words, count = corpus.make(folder, tokens)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    print(f"{count:,} tokens of {words:,} words, {epochs} times; workers: Python, Perl, LuaJIT", flush=True)
    arguments = ["--folder", folder, "--epochs", epochs, "--save-every", save_every, "--report", report]
    first = Part("first", 1, arguments)
    first.run(killed_at=KILLED_AT)
    if sys.stdout.isatty():
        print()
    done = f"at block {first.curve[-1][0]} of {first.total}"
    print(f"killed all processes {done}; the checkpoint holds {first.saved}", flush=True)
    second = Part("resumed", 2, [*arguments, "--resume", 1])
    second.run()
    shared, chance = nearest.show(folder)
    missed = list(missed_targets(first, second, shared, chance))
    plot = folder / "loss.png"
    draw(first, second, plot)
    for sentence in missed:
        print(f"missed: {sentence}")
    print(f"lm: shared={shared:.2f} seconds={time.monotonic() - begun:.1f} plot={shown(plot)}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=corpus.FOLDER, help="(build/lm)")
    parser.add_argument("--smoke", action="store_true", help="quick check with a small part of the text")
    options = parser.parse_args()
    folder = options.folder.resolve()
    try:
        if options.smoke:
            return demo(folder, tokens=120_000, epochs=5, save_every=20, report=0.25)
        return demo(folder, tokens=None, epochs=8, save_every=200, report=1)
    except (Failure, Missing) as failure:
        print(f"lm: failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
