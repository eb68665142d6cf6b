"""Checks what history.py's workers have recorded. The promises depend on the consistency of the tables:

async   A counter shows at least the adds that had ended before the get began, and at most those that had begun before it ended. It never falls.
        At the end it shows all adds. An add whose worker was killed may have been applied or not.
merged  A counter shows the sum of whole rounds: round i consists of the i-th add of every worker that made so many. A get has at least the rounds
        of its worker's own adds, those to which all workers' adds had ended before it began, and those that an earlier get has shown. It has no
        round to which the add of a worker had not begun. At the end a counter shows all adds.
sync    The i-th get returns the same bits to every worker: the adds that each of them made before its own i-th get, and no others.

Records are lists of (kind, begin, end, what), one for each worker: "a" and "A" are adds of 1 to counter `what` of the dense and the key-value
table, "g" and "G" are gets of all their counters.
"""

import bisect
import itertools
import math

COUNTERS = 12
UNKNOWN = 1 << 63  # the end of a call whose worker was killed meanwhile: after everything else
CONSISTENCIES = ("async", "merged", "sync")
DIGIT = 1 << 20  # in a merged table, worker i adds DIGIT ** i instead of 1, so that counters show how many adds of each worker they contain


def wrong_in(by_worker, consistency="async"):
    """What no sequence of the calls can explain."""
    check = {"async": wrong_counts, "merged": wrong_rounds, "sync": wrong_turns}[consistency]
    wrong = []
    for table, add, get in (("dense", "a", "g"), ("keyed", "A", "G")):
        adds = [[(begin, end, which) for kind, begin, end, which in calls if kind == add] for calls in by_worker]
        gets = [[(begin, end, values) for kind, begin, end, values in calls if kind == get] for calls in by_worker]
        wrong += [f"table {table}, {what}" for what in check(adds, gets)]
    return wrong


def wrong_counts(adds, gets):
    reads = sorted(itertools.chain(*gets))
    for counter in range(COUNTERS):
        made = [(begin, end) for begin, end, which in itertools.chain(*adds) if which == counter]
        begins, ends = sorted(begin for begin, _ in made), sorted(end for _, end in made)  # unknown ends are after all gets
        earlier = highest((end, values[counter]) for _, end, values in reads)
        for begin, end, values in reads:
            value, least, most = values[counter], bisect.bisect_left(ends, begin), bisect.bisect_right(begins, end)
            least = max(least, earlier(begin))
            if not least <= value <= most:
                yield f"counter {counter}: a get saw {value}, where {least} to {most} adds had been made"
    final = reads[-1][2]
    for counter in range(COUNTERS):
        made = [end != UNKNOWN for _, end, which in itertools.chain(*adds) if which == counter]
        if not sum(made) <= final[counter] <= len(made):
            unknown = f" and {len(made) - sum(made)} perhaps" if not all(made) else ""
            yield f"counter {counter}: {final[counter]} at the end, and {sum(made)} adds were made{unknown}"


def highest(values):
    """A function of a time: the highest of these (time, value) before it."""
    so_far = []
    for end, value in sorted(values):
        so_far.append((end, max(value, so_far[-1][1] if so_far else 0)))

    def before(time):
        index = bisect.bisect_left(so_far, (time, -1))
        return so_far[index - 1][1] if index > 0 else 0

    return before


def wrong_rounds(adds, gets):
    begins, ends = ([[call[i] for call in made] for made in adds] for i in (0, 1))
    bounds = []  # (begin, end, values, the least and the most rounds that a get may show)
    for worker, reads in enumerate(gets):
        for begin, end, values in reads:
            own = bisect.bisect_left(begins[worker], begin)
            ended = min(bisect.bisect_left(made, begin) for made in ends)
            begun = [bisect.bisect_right(made, end) for made in begins]
            open_to = [count for count, made in zip(begun, begins) if count < len(made)]  # the others have perhaps finished
            bounds.append((begin, end, values, max(own, ended), min(open_to, default=max(begun))))
    bounds.sort()
    for counter in range(COUNTERS):
        counts = [[0, *itertools.accumulate(which == counter for _, _, which in made)] for made in adds]  # [worker][adds that it has made]
        spans = [rounds_with(values[counter], counts) for _, _, values, _, _ in bounds]
        earlier = highest((end, max(first, least)) for (_, end, _, least, _), (first, last) in zip(bounds, spans) if first <= last)
        for (begin, _, values, least, most), (first, last) in zip(bounds, spans):
            least = max(least, earlier(begin))
            if first > last:
                yield f"counter {counter}: a get saw {digits(values[counter], len(adds))} adds of the workers, which no number of whole rounds gives"
            elif last < least or first > most:
                yield f"counter {counter}: a get saw rounds up to {first}, where {least} to {most} had been made"
        final, made = digits(bounds[-1][2][counter], len(adds)), [count[-1] for count in counts]
        if final != made:
            yield f"counter {counter}: {final} at the end, and {made} adds were made"


def digits(value, workers):
    """How many adds of each worker there are in it."""
    return [value // DIGIT**worker % DIGIT for worker in range(workers - 1)] + [value // DIGIT ** (workers - 1)]


def rounds_with(value, counts):
    """The first and the last number of rounds after which a counter has this value. The last is before the first if there is none."""
    first, last = 0, math.inf
    for digit, count in zip(digits(value, len(counts)), counts):
        first = max(first, bisect.bisect_left(count, digit))
        if digit != count[-1]:  # otherwise no further round changes it
            last = min(last, bisect.bisect_right(count, digit) - 1)
    return first, last


def wrong_turns(adds, gets):
    made, counted = [0] * COUNTERS, [0] * len(adds)  # of each worker's adds, the first ones are in `made`
    for turn in range(max(map(len, gets))):
        seen = [reads[turn][2] for reads in gets if turn < len(reads)]
        for worker, (calls, reads) in enumerate(zip(adds, gets)):
            until = reads[turn][0] if turn < len(reads) else math.inf  # it has finished
            while counted[worker] < len(calls) and calls[counted[worker]][0] < until:
                made[calls[counted[worker]][2]] += 1
                counted[worker] += 1
        if any(values != seen[0] for values in seen):
            yield f"get number {turn + 1} of the workers differs: {seen}"
        elif seen[0] != made:
            yield f"get number {turn + 1} saw {seen[0]}, where {made} adds had been made"
