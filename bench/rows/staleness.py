"""The benefit of bounded staleness if one worker is slow, and its cost."""

from dataclasses import dataclass, field

from harness import machine
from harness.bench import measurement
from harness.compare import Spread
from harness.process import Process
from harness.result import Row, at_most

WORKERS = 4
SETTINGS = {"async": -1, "ssp 4": 4, "ssp 2": 2, "ssp 1": 1, "sync": 0}
SLOW = {"always the same one": 0, "another one every 5 iterations": 5}


@dataclass
class Found:
    """The results of one setting: iterations/s of all workers together, by run; gets by the number of clocks behind."""

    speeds: list = field(default_factory=list)
    behind: list = field(default_factory=list)

    @property
    def most(self):
        return max(clocks for clocks, gets in enumerate(self.behind) if gets > 0)

    def note(self, workers):
        self.speeds.append(sum(worker["iterations"] / worker["seconds"] for worker in workers))
        gets = [sum(column) for column in zip(*(worker["behind"] for worker in workers))]
        self.behind = [a + b for a, b in zip(self.behind or [0] * len(gets), gets)]


@measurement
def staleness_with_one_slow_worker(bench):
    """iterations and observed staleness of 4 workers, one of them slow: async, ssp 4, 2, 1, sync"""
    seconds = 0.5 if bench.quick else 0.8
    pictures = {}
    for slow, turn in SLOW.items():
        found = {setting: Found() for setting in SETTINGS}
        for setting, staleness in SETTINGS.items():
            bench.progress(f"slow: {slow}, {setting}")
            found[setting].note(train(bench, staleness, seconds, turn))
        pictures[slow] = {setting: (one.speeds, one.behind) for setting, one in found.items()}
        for setting, staleness in SETTINGS.items():
            yield from rows(setting, staleness, slow, found[setting], found["sync"])
    title = f"{WORKERS} workers, 2 ms of work an iteration, 8 ms for the slow one"
    bench.pictures["staleness"] = lambda path, caption: draw(path, pictures, title, caption)


def draw(path, pictures, title, caption):
    from plots import staleness  # imported here: matplotlib may be missing, and the figures count without it

    staleness.draw(path, pictures, title, caption)


def train(bench, staleness, seconds, turn):
    """Returns the reports of the workers."""
    program = bench.parties.programs / "staleness_worker"
    command = [*bench.parties.run_words(WORKERS, "auto"), program, staleness, seconds, turn]
    run = Process("polyverso run", command, ",".join(map(str, machine.cpus())), bench.environment)
    try:
        workers = [run.hear(60 + 10 * seconds) for _ in range(WORKERS)]
        run.end_well()
        return workers
    except BaseException:
        run.end(seconds=1)
        raise


def rows(setting, staleness, slow, found, sync):
    gets = sum(found.behind)
    mean = sum(clocks * count for clocks, count in enumerate(found.behind)) / gets
    beside_sync = {
        "peer": "/s, sync",
        "peer_value": Spread.of(sync.speeds),
        "ratio": Spread.of([ours / theirs for ours, theirs in zip(found.speeds, sync.speeds)]),
    }
    yield Row(
        name=f"iterations, {setting}; slow: {slow}",
        ours=Spread.of(found.speeds),
        unit="/s",
        **({} if setting == "sync" else beside_sync),
        runs=len(found.speeds),
        note=f"all {WORKERS} workers together; a get was {mean:.2f} clocks behind the slowest in the mean",
    )
    if staleness < 0:
        return
    yield Row(
        name=f"most clocks that a get was behind, {setting}; slow: {slow}",
        ours=Spread.of([found.most]),
        unit="clocks",
        target=at_most(staleness),
        runs=len(found.speeds),
        note=f"of {gets:,} gets; each worker counts its adds in the table",
    )
