"""Comparison in interleaved pairs: A B A B ... Other load on the machine then affects all sides alike."""

import contextlib
import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Batch:
    """A request to repeat an operation; see bench/programs/batch.h."""

    operation: str
    bytes: int
    block: int = 1


@dataclass(frozen=True)
class Effort:
    """The amount of work: rounds of fresh processes, pairs of batches per round, seconds per batch."""

    rounds: int
    pairs: int
    seconds: float

    def less(self, rounds=None, pairs=None, seconds=None):
        """Limits the effort, for measurements that start slowly or converge fast."""
        return Effort(
            min(self.rounds, rounds or self.rounds),
            min(self.pairs, pairs or self.pairs),
            min(self.seconds, seconds or self.seconds),
        )


FULL = Effort(rounds=2, pairs=3, seconds=0.05)
QUICK = Effort(rounds=1, pairs=2, seconds=0.03)


@dataclass(frozen=True)
class Spread:
    """A median and the range of the runs."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values):
        return Spread(statistics.median(values), min(values), max(values))

    def map(self, function):
        """Converts units. A function that reverses the order (speed from time) also swaps the ends."""
        ends = function(self.least), function(self.most)
        return Spread(function(self.median), min(ends), max(ends))


@dataclass
class Comparison:
    """Seconds per repetition, by side. The i-th samples of the sides were measured next to each other."""

    seconds: dict = field(default_factory=dict)

    def note(self, side, seconds):
        self.seconds.setdefault(side, []).append(seconds)

    @property
    def runs(self):
        return min(len(values) for values in self.seconds.values())

    def of(self, side):
        return Spread.of(self.seconds[side])

    def ratio(self, above, below):
        """The ratio of the times, pair by pair."""
        return Spread.of([a / b for a, b in zip(self.seconds[above], self.seconds[below])])

    def difference(self, above, below):
        return Spread.of([a - b for a, b in zip(self.seconds[above], self.seconds[below])])


AGREEMENT = 0.05


def settled(comparison, sides, pairs):
    """Whether the last `pairs` samples of each side differ by so little that further ones would tell nothing."""
    if pairs < 3:
        return False
    spreads = [Spread.of(comparison.seconds[side][-pairs:]) for side in sides]
    return all(spread.most - spread.least <= AGREEMENT * spread.median for spread in spreads)


def compare(sides, cases, effort, progress, figure="median"):
    """Measures each case on each side.

    sides: {side: function that starts its Party}
    cases: {case: {side: Batch}}; a side may be missing from a case
    figure: of a batch's answer: "median", "p99"
    Returns {case: Comparison}. Each round starts fresh processes, so that lucky addresses do not look like speed. A case is
    over for a round once its samples agree.
    """
    comparisons = {case: Comparison() for case in cases}
    for round_number in range(effort.rounds):
        with contextlib.ExitStack() as stack:
            parties = {}
            for side, start in sides.items():
                progress(f"round {round_number + 1}/{effort.rounds}: starting {side}")
                parties[side] = stack.enter_context(start())
            for case, batches in cases.items():
                for pair in range(effort.pairs):
                    if settled(comparisons[case], batches, pair):
                        break
                    progress(f"round {round_number + 1}/{effort.rounds}, {case}, pair {pair + 1}/{effort.pairs}")
                    for side, batch in batches.items():
                        comparisons[case].note(side, parties[side].do(batch, effort.seconds)[figure])
    return comparisons
