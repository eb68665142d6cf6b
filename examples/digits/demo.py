"""Shows two things with handwritten digits, and draws both into one picture.

Three languages, one model: the same training in one process, then with a Perl, a Python and a Lua worker in sync mode,
then with these three in async mode. In sync mode, the three workers together take the steps of the single process: the
losses agree at every step, and all three workers end with the same bits. In async mode, no worker waits for another.
These steps are too short for a second worker to save time.

One worker against two, on two cores: a larger network (network.py), trained by one worker and by two. Both do the same work, each
worker pinned to a core of its own; the best of several runs counts. If two workers are not faster here, the demo says so.

`make demo` runs this script; to run it manually, `source build/activate` first. The exit status is 0 if the trainings
reach their accuracies and agree. The measured times do not affect it.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import time
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402: in the folder above
from jobs import Failure, find, shown  # noqa: E402

TESTS = 449  # test images, see data/README.md
TARGETS = {"single": 0.93, "sync": 0.93, "async": 0.92, "network": 0.94}
SAME_LOSS = 0.01  # relative difference: of losses at one step, computed by adding floats in different orders
PAYS = 1.05  # times as fast
LIMIT_S = 600  # of one training, against hangs: each takes a few seconds, and many more where other programs use the cores

EPOCH = re.compile(r"epoch (\d+) loss ([\d.]+) accuracy ([\d.]+) seconds ([\d.]+)")
FINAL = re.compile(r"final accuracy ([\d.]+) seconds ([\d.]+)")
STEP = re.compile(r"step (\d+) loss ([\d.]+) seconds ([\d.]+)")
CPU = re.compile(r"worker (\d+) cpu ([\d.]+)")


# ------------------------------------------------------------------ three languages, one model


class Training(jobs.Job):
    """One training. Turns the output of its processes, as it arrives, into a curve and a progress line."""

    def __init__(self, name: str, command: Sequence[str], folder: pathlib.Path, epochs: int) -> None:
        self.folder = folder / name
        self.epochs = epochs
        self.curve: list[tuple[int, float]] = []  # (epoch, loss)
        self.accuracy = self.seconds = 0.0  # until the training ends
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        super().__init__(name, command, LIMIT_S)
        self.watch(self.read)
        if not self.seconds:
            raise Failure(f"{name}: training ended without a result")

    def read(self, line: str) -> None:
        epoch, final = EPOCH.search(line), FINAL.search(line)
        if epoch:
            number, loss, accuracy, seconds = int(epoch[1]), float(epoch[2]), float(epoch[3]), float(epoch[4])
            self.curve.append((number, loss))
            self.show(f"epoch {number:3}/{self.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  {seconds:5.2f} s", number)
        elif final:
            self.accuracy, self.seconds = float(final[1]), float(final[2])
            self.show(f"test accuracy {self.accuracy:.4f} after {self.seconds:.2f} s".ljust(60), None)
        else:
            print(line, end="", flush=True)

    def show(self, text: str, epoch: int | None) -> None:
        """Prints a line that overwrites itself on a terminal; elsewhere, one line for every 100 epochs."""
        if sys.stdout.isatty():
            print(f"\r{self.name:8}{text}", end="\n" if epoch is None else "", flush=True)
        elif epoch is None or epoch % 100 == 0:
            print(f"{self.name:8}{text.rstrip()}", flush=True)

    def weights(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("weights-*.txt"))}


def train_in_three_languages(folder: pathlib.Path, epochs: int) -> list[Training]:
    """The trainings single, sync and async."""
    polyverso, perl, lua = find("polyverso"), find("perl"), find("luajit", "lua5.1", "lua5.4", "lua")
    workers = [[perl, str(HERE / "train.pl")], [sys.executable, str(HERE / "train.py")], [lua, str(HERE / "train.lua")]]

    def train(name: str, launcher: Sequence[str], commands: Sequence[list[str]]) -> Training:
        options = ["--epochs", str(epochs), "--save", str(folder / name)]
        line = list(launcher)
        for command in commands:
            line += ([] if command is commands[0] else ["---"]) + command + options
        return Training(name, line, folder, epochs)

    cluster = [polyverso, "run", "--servers", "1"]
    print(f"three languages, one model: one server, three workers: {perl}, python3, {lua}", flush=True)
    return [
        train("single", [], workers[1:2]),
        train("sync", [*cluster, "--sync", "--"], workers),
        train("async", [*cluster, "--"], workers),
    ]


def largest_difference(one: Sequence[tuple[int, float]], other: Sequence[tuple[int, float]]) -> float:
    """Of two curves' losses at the same step, relative to the loss."""
    return max(abs(a - b) / a for (_, a), (_, b) in zip(one, other, strict=True))


def missed_targets(trainings: Sequence[Training]) -> list[str]:
    single, sync, _ = trainings
    missed = [
        f"{training.name}: accuracy {training.accuracy:.4f}, wanted {TARGETS[training.name]}"
        for training in trainings
        if training.accuracy < TARGETS[training.name]
    ]
    if sync.accuracy < single.accuracy - 1.5 / TESTS:
        missed.append(f"sync: accuracy {sync.accuracy:.4f}, more than one image behind the single process's {single.accuracy:.4f}")
    difference = largest_difference(single.curve, sync.curve)
    if difference > SAME_LOSS:
        missed.append(f"sync: a loss differs by {difference:.1%} from the single process's at the same step")
    weights = sync.weights()
    if len(weights) != 3 or len(set(weights.values())) != 1:
        missed.append(f"sync: the workers' weights differ, see {sync.folder}")
    return missed


# ------------------------------------------------------------------ one worker against two


class Measured(jobs.Job):
    """One run of network.py: the curve, the wall time, and the processor time of each worker."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.curve: list[tuple[int, float, float]] = []  # (step, seconds, loss)
        self.cpu: list[float] = []
        self.accuracy = self.seconds = 0.0  # until the training ends
        super().__init__(name, command, LIMIT_S)
        self.watch(self.read)
        if not self.seconds:
            raise Failure(f"{name}: training ended without a result")
        print(f"{name:12}{self.text()}, loss {self.loss:.4f}, test accuracy {self.accuracy:.4f}", flush=True)

    def read(self, line: str) -> None:
        step, final, cpu = STEP.search(line), FINAL.search(line), CPU.search(line)
        if step:
            self.curve.append((int(step[1]), float(step[3]), float(step[2])))
        elif final:
            self.accuracy, self.seconds = float(final[1]), float(final[2])
        elif cpu:
            self.cpu.append(float(cpu[2]))
        else:
            print(line, end="", flush=True)

    @property
    def loss(self) -> float:
        return self.curve[-1][2]

    def text(self) -> str:
        return f"{self.seconds:.2f} s ({' + '.join(f'{cpu:.2f}' for cpu in self.cpu)} s of processor time)"


def cpus() -> list[int]:
    """The CPUs of the workers: two of those that this process may use, or one if there are no more."""
    return sorted(os.sched_getaffinity(0))[:2]


def measure_network(repeats: int) -> list[Measured]:
    """The fastest run of one worker, and of two. The runs alternate, so other load on the machine affects both."""
    polyverso, taskset = find("polyverso"), shutil.which("taskset")

    def worker(number: int) -> list[str]:
        mine = cpus()[number % len(cpus())]
        return ([taskset, "-c", str(mine)] if taskset else []) + [sys.executable, str(HERE / "network.py")]

    runs = [
        (Measured("one worker", worker(0)), Measured("two workers", [polyverso, "run", "--", *worker(0), "---", *worker(1)]))
        for _ in range(repeats)
    ]
    return [min(runs_of_one, key=lambda run: run.seconds) for runs_of_one in zip(*runs)]


def machine() -> str:
    """What the times depend on: the model of the CPU, how many of its cores the workers use, and the load of the last minute."""
    model = os.uname().machine
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = " ".join(line.split(":", 1)[1].replace("(R)", "").split())
            break
    return f"{model}, {len(cpus())} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the measurement"


def verdict(one: Measured, two: Measured, cores: int) -> str:
    """Whether the second worker paid, as a sentence; if it did not, with the reason that the processor times show."""
    ratio = one.seconds / two.seconds
    times = f"one worker took {one.seconds:.2f} s, two took {two.seconds:.2f} s for the same steps"
    if ratio > PAYS:
        return f"working together pays: {times}, {ratio:.2f} times as fast"
    if cores < 2:
        reason = "there is only one core"
    elif max(two.cpu) < 0.8 * two.seconds:
        reason = f"the two workers had a core for only {max(two.cpu):.2f} s; other programs may use them, so try again on a quiet machine"
    else:
        reason = f"the two workers needed {sum(two.cpu):.2f} s of processor time, one needed {one.cpu[0]:.2f} s"
    return f"working together does not pay in this measurement: {times}; {reason}"


def disagreements(one: Measured, two: Measured) -> list[str]:
    """What one and two workers must have in common, whatever their speed."""
    missed = [
        f"network, {name}: accuracy {run.accuracy:.4f}, wanted {TARGETS['network']}"
        for name, run in (("one worker", one), ("two workers", two))
        if run.accuracy < TARGETS["network"]
    ]
    difference = largest_difference(*([(step, loss) for step, _, loss in run.curve] for run in (one, two)))
    if difference > SAME_LOSS:
        missed.append(f"network: the losses of one and of two workers differ by {difference:.1%} at the same step")
    return missed


# ------------------------------------------------------------------ the picture


def draw(trainings: Sequence[Training], one: Measured, two: Measured, about: str, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "polyverso"  # equal results give equal files
    from matplotlib import pyplot, ticker

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    single, sync = trainings[:2]  # in async mode each worker counts steps of its own
    left.plot(*zip(*single.curve), color="silver", linewidth=6, label=f"one Python process: test accuracy {single.accuracy:.3f}")
    left.plot(*zip(*sync.curve), color="C0", linewidth=1.8, label=f"Perl + Python + Lua: test accuracy {sync.accuracy:.3f}")
    left.set(xlabel="step", title="Three languages train one model in sync mode:\nthe steps are those of a single process")

    for name, run, color in (("one worker", one, "silver"), ("two workers", two, "C0")):
        _, seconds, losses = zip(*run.curve)
        label = f"{name}: {run.seconds:.1f} s; processor time {' + '.join(f'{cpu:.1f}' for cpu in run.cpu)} s"
        right.plot(seconds, losses, marker="o", markersize=3.5, color=color, linewidth=2, label=label)
    ratio = one.seconds / two.seconds
    outcome = f"two workers are {ratio:.2f} times as fast as one" if ratio > PAYS else f"two workers save no time here ({ratio:.2f} times as fast)"
    right.set(xlabel="seconds", xlim=(0, None), title=f"A larger network, {one.curve[-1][0]} steps:\n{outcome}")
    for axes in (left, right):
        axes.set(yscale="log", ylabel="training loss")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda loss, _: f"{loss:g}"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=9)
    pinned = ", pinned to a core" if shutil.which("taskset") else ""
    figure.supxlabel(f"Right: {about}. A worker is a Python process with one thread{pinned}.", fontsize=8, color="dimgray")
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def demo(folder: pathlib.Path, epochs: int, repeats: int, picture: pathlib.Path) -> int:
    begun = time.monotonic()
    trainings = train_in_three_languages(folder, epochs)
    single, sync, _ = trainings
    missed = missed_targets(trainings)
    if not missed:
        difference = largest_difference(single.curve, sync.curve)
        print("sync: the three workers' weights are the same, bit for bit")
        print(f"sync: at every step, the loss is that of the single process (largest difference: {difference:.2%} of the loss)")
    if sync.seconds > single.seconds:
        print(f"sync: three workers took {sync.seconds:.1f} s, one took {single.seconds:.1f} s: so short a step is mostly waiting")

    about = machine()
    print(f"one worker against two: {about}", flush=True)
    one, two = measure_network(repeats)
    missed += disagreements(one, two)
    print(verdict(one, two, len(cpus())))

    draw(trainings, one, two, about, picture)
    print(f"loss against steps and against time: {shown(picture)}")
    for sentence in missed:
        print(f"missed: {sentence}")
    results = [f"{training.name}={training.accuracy:.3f}" for training in trainings]
    results += [f"one={one.seconds:.2f}s", f"two={two.seconds:.2f}s", f"seconds={time.monotonic() - begun:.1f}"]
    print(f"demo: {' '.join(results)} plot={shown(picture)}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "demo", help="folder for weights and plot (build/demo)")
    parser.add_argument("--picture", type=pathlib.Path, help="file of the plot, .png or .svg (FOLDER/loss.png)")
    parser.add_argument("--epochs", type=int, default=300, help="steps of the trainings in three languages")
    parser.add_argument("--repeats", type=int, default=2, help="runs of the larger network, of which the fastest counts")
    options = parser.parse_args()
    folder = options.folder.resolve()
    picture = options.picture.resolve() if options.picture else folder / "loss.png"
    try:
        return demo(folder, options.epochs, options.repeats, picture)
    except Failure as failure:
        print(f"demo: failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
