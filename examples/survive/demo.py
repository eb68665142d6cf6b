"""Kills a process of a training every five seconds, and shows that the training does not mind.

Four workers in Perl, Python and Lua train one model on three servers with back-ups (replicas=1). Every five seconds a server or a worker,
in turn, is killed with kill -9, and a fresh process takes its place. At the same time, the same training runs undisturbed. The picture
has the losses of both over time, the kills, and the calls a second. Rank 0 is spared, because it hands out the steps.

`make survive` runs this script; to run it manually, `source build/activate` first. The exit status is 0 if every acknowledged step of
either training was counted exactly once in every row of the weights, and both end with the same loss but for 1 %.
"""

import argparse
import json
import pathlib
import sys
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402: in the folder above
from jobs import Failure, shown  # noqa: E402

SAME_LOSS = 0.01  # relative: in async mode the steps of different workers come in another order each time
BIN_S = 0.25  # of the calls in the picture
CALLS = 2  # in a step: a get and an add


class Training(jobs.Job):
    """One run of training.py, with its result."""

    def __init__(self, name: str, folder: pathlib.Path, seconds: float, every: float, seed: int) -> None:
        self.path = folder / name / "result.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        arguments = ["--seconds", seconds, "--every", every, "--seed", seed, "--result", self.path]
        super().__init__(name, [sys.executable, str(HERE / "training.py"), *map(str, arguments)], 2 * seconds + 120)

    def finish(self) -> None:
        self.watch(lambda line: print(line, end="", flush=True))

    def result(self) -> dict[str, Any]:
        if not self.path.exists():
            raise Failure(f"{self.name}: training ended without a result")
        result: dict[str, Any] = json.loads(self.path.read_text())
        return result


def train(folder: pathlib.Path, seconds: float, every: float, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of the disturbed and of the undisturbed training, which run at the same time."""
    disturbed, undisturbed = Training("disturbed", folder, seconds, every, seed), Training("undisturbed", folder, seconds, 0, seed)
    other = threading.Thread(target=undisturbed.finish)
    other.start()
    try:
        disturbed.finish()
    finally:
        other.join()
    return disturbed.result(), undisturbed.result()


def counted(name: str, result: dict[str, Any]) -> list[str]:
    """Prints the counters of a training. Returns what is wrong with them."""
    wrong = []
    print(f"{name}: steps, and what the counters in the rows of the weights say")
    print("          lives  handed out  acknowledged  unknown  counted")
    for number, place in enumerate(result["places"], 1):
        least, most = place["least"], place["most"]
        text = str(most) if least == most else f"{least} .. {most}"
        print(f"  worker {number} {place['lives']:4} {place['handed_out']:11} {place['acknowledged']:13} {place['unknown']:8}  {text}")
        if least < place["acknowledged"]:
            wrong.append(f"{name}: {place['acknowledged'] - least} acknowledged steps of worker {number} were lost")
        if most > place["acknowledged"] + place["unknown"]:
            wrong.append(f"{name}: {most - place['acknowledged'] - place['unknown']} steps of worker {number} were counted twice")
    return wrong


def longest_step(result: dict[str, Any], begin: float, end: float) -> float:
    """Of the steps that were under way between these times, in seconds."""
    return max((done - at for at, done in result["calls"] if at < end and done > begin), default=0.0)


def draw(disturbed: dict[str, Any], undisturbed: dict[str, Any], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "polyverso"
    from matplotlib import pyplot

    figure, (losses, calls) = pyplot.subplots(2, 1, figsize=(10, 6), sharex=True, height_ratios=(3, 2), layout="constrained")
    losses.plot(*zip(*undisturbed["losses"]), color="silver", linewidth=6, label=f"undisturbed: loss {undisturbed['final']:.4f} at the end")
    label = f"{len(disturbed['kills'])} kills: loss {disturbed['final']:.4f} at the end"
    losses.plot(*zip(*disturbed["losses"]), color="C0", linewidth=1.8, label=label)
    losses.set(ylabel="training loss", title="Perl, Python and Lua train one model, while one process after another is killed")
    end = max(done for result in (disturbed, undisturbed) for _, done in result["calls"])
    bins = [number * BIN_S for number in range(int(end / BIN_S) + 1)]
    for result, color, width in ((undisturbed, "silver", 4), (disturbed, "C0", 1.2)):
        counts = [0] * len(bins)
        for _, done in result["calls"]:
            counts[min(int(done / BIN_S), len(bins) - 1)] += 1
        calls.step(bins[:-1], [CALLS * count / BIN_S for count in counts[:-1]], where="post", color=color, linewidth=width)
    calls.set(ylabel="calls a second", xlabel="seconds", xlim=(0, end), ylim=(0, None))
    for axes in (losses, calls):
        axes.grid(True, alpha=0.3)
        for color, of in (("C3", "server"), ("C1", "worker")):
            once: str | None = f"kill -9 of a {of}"
            for kill in disturbed["kills"]:
                if kill["who"].startswith(of):
                    axes.axvline(kill["at"], color=color, linestyle="--", linewidth=1, label=once)
                    once = None  # in the legend
    losses.legend(fontsize=9)
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def demo(folder: pathlib.Path, seconds: float, every: float, seed: int, picture: pathlib.Path) -> int:
    begun = time.monotonic()
    print(f"four workers, three servers: every {every:g} s one of them is killed; rank 0, which hands out the steps, is spared", flush=True)
    disturbed, undisturbed = train(folder, seconds, every, seed)
    wrong = counted("undisturbed", undisturbed) + counted("disturbed", disturbed)
    kills = disturbed["kills"]
    if not kills:
        wrong.append("no process was killed: give it more --seconds")
    difference = abs(disturbed["final"] / undisturbed["final"] - 1)
    if not difference <= SAME_LOSS:
        wrong.append(f"the losses at the end differ by {difference:.1%}: {disturbed['final']:.4f}, undisturbed {undisturbed['final']:.4f}")
    draw(disturbed, undisturbed, picture)
    of_servers = [longest_step(disturbed, kill["at"], kill["at"] + 1) for kill in kills if kill["who"].startswith("server")]
    if of_servers:
        print(f"a kill of a server: the longest step meanwhile took {1000 * max(of_servers):.0f} ms")
    print(f"undisturbed, the longest step took {1000 * longest_step(undisturbed, 0, seconds):.0f} ms")
    for sentence in wrong:
        print(f"missed: {sentence}")
    if not wrong:
        steps = sum(place["acknowledged"] for place in disturbed["places"])
        print(
            f"checked: {len(kills)} processes were killed; each of {steps} acknowledged steps was counted exactly once in all rows; "
            f"the loss at the end is that of the undisturbed training, but for {difference:.2%}"
        )
    print(f"survive: kills={len(kills)} loss={disturbed['final']:.4f} undisturbed={undisturbed['final']:.4f} "
          f"seconds={time.monotonic() - begun:.1f} plot={shown(picture)}", flush=True)  # fmt: skip
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of the trainings (60)")
    parser.add_argument("--every", type=float, default=5, help="seconds between kills (5)")
    parser.add_argument("--seed", type=int, default=1, help="chooses who is killed")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "survive", help="folder for results and plot (build/survive)")
    parser.add_argument("--picture", type=pathlib.Path, help="file of the plot, .png or .svg (FOLDER/loss.png)")
    options = parser.parse_args()
    if options.seconds <= 0 or options.every <= 0:
        parser.error("--seconds and --every must be above 0")
    folder = options.folder.resolve()
    try:
        return demo(folder, options.seconds, options.every, options.seed, options.picture.resolve() if options.picture else folder / "loss.png")
    except Failure as failure:
        print(f"survive: failed: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
