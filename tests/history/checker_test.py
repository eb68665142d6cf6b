"""history.py's checks: they accept what can happen, and notice each kind of what can't."""

from checks import COUNTERS, DIGIT, UNKNOWN, wrong_in

ZEROS = [0] * COUNTERS
WORKER = [("a", 10, 20, 0), ("a", 30, 40, 0), ("a", 50, 60, 1)]


def values(first, second):
    return [first, second, *ZEROS[2:]]


def checked(*reads, adds=WORKER, final=values(2, 1)):
    """The verdict on these gets of the dense table, and on the last ones of both tables."""
    gets = [("g", *read) for read in reads]
    return wrong_in([adds, [*gets, ("g", 100, 110, final), ("G", 120, 130, ZEROS)]])


def test_gets_that_can_happen():
    assert checked((1, 5, values(0, 0)), (12, 15, values(0, 0)), (15, 18, values(1, 0)), (21, 29, values(1, 0)), (35, 55, values(2, 1))) == []


def test_a_lost_add():
    assert "saw 0, where 1 to 1 adds" in checked((21, 29, values(0, 0)))[0]
    assert "1 at the end, and 2 adds were made" in checked(final=values(1, 1))[-1]


def test_an_add_that_was_applied_twice():
    assert "saw 2, where 1 to 1 adds" in checked((21, 29, values(2, 0)))[0]
    assert "3 at the end, and 2 adds were made" in checked(final=values(3, 1))[-1]


def test_a_value_that_was_seen_and_is_gone():
    assert "saw 0, where 1 to 1 adds" in checked((12, 14, values(1, 0)), (15, 18, values(0, 0)))[0]


def test_gets_at_the_same_time_may_differ():
    assert checked((12, 18, values(1, 0)), (13, 17, values(0, 0))) == []


def test_the_add_in_which_a_worker_was_killed():
    """It may have been applied, at any time after its begin, and at most once."""
    adds = [*WORKER, ("a", 60, UNKNOWN, 0)]
    assert checked((71, 75, values(2, 1)), (81, 85, values(3, 1)), adds=adds, final=values(3, 1)) == []
    assert checked((71, 75, values(2, 1)), adds=adds) == []
    assert "saw 3, where 2 to 2 adds" in checked((45, 55, values(3, 0)), adds=adds, final=values(3, 1))[0]
    assert "saw 2, where 3 to 3 adds" in checked((71, 75, values(3, 1)), (81, 85, values(2, 1)), adds=adds, final=values(3, 1))[0]
    assert "4 at the end, and 2 adds were made and 1 perhaps" in checked(adds=adds, final=values(4, 1))[-1]


# Merged tables. Both workers make three adds; in the last ones the workers add to different counters.
FIRST = [("a", 10, 20, 0), ("a", 30, 40, 0), ("a", 50, 60, 1)]
SECOND = [("a", 12, 22, 0), ("a", 32, 42, 0), ("a", 52, 62, 2)]


def of_both(first, second):
    """A counter to which the workers have made so many adds."""
    return first + second * DIGIT


def merged(*reads, first=FIRST, second=SECOND, final=None):
    """The verdict on these gets of the second worker, and on the last ones of the first."""
    final = final or [of_both(2, 2), of_both(1, 0), of_both(0, 1), *ZEROS[3:]]
    calls = sorted([*second, *(("g", *read) for read in reads)], key=lambda call: call[1])
    return wrong_in([[*first, ("g", 100, 110, final), ("G", 120, 130, ZEROS)], calls], "merged")


def round_of(count):
    return [of_both(count, count), *ZEROS[1:]]


def test_rounds_that_can_happen():
    assert merged((1, 5, round_of(0)), (23, 24, round_of(1)), (25, 31, round_of(1)), (43, 44, round_of(2))) == []
    assert merged((43, 55, round_of(2))) == merged((43, 55, [of_both(2, 2), of_both(1, 0), of_both(0, 1), *ZEROS[3:]])) == []


def test_a_torn_round():
    for torn in (of_both(1, 0), of_both(0, 1), of_both(2, 1)):
        assert "which no number of whole rounds gives" in merged((23, 36, [torn, *ZEROS[1:]]))[0]


def test_a_lost_round():
    assert "saw rounds up to 0, where 1 to 1 had been made" in merged((23, 24, round_of(0)))[0]
    assert "[1, 1] at the end, and [2, 2] adds were made" in merged(final=[of_both(1, 1), of_both(1, 0), of_both(0, 1), *ZEROS[3:]])[-1]


def test_a_round_of_own_adds_only_is_waited_for():
    """The first worker is behind: the second one's get has to wait for it."""
    assert "saw rounds up to 1, where 2 to 3 had been made" in merged((43, 55, round_of(1)), first=[*FIRST[:1], ("a", 41, 45, 0), FIRST[2]])[0]


def test_a_round_that_was_merged_twice_or_too_early():
    assert "saw rounds up to 2, where 1 to 1 had been made" in merged((23, 24, round_of(2)))[0]
    assert "which no number of whole rounds gives" in merged((43, 55, round_of(3)))[0]
    assert "[3, 2] at the end, and [2, 2] adds were made" in merged(final=[of_both(3, 2), of_both(1, 0), of_both(0, 1), *ZEROS[3:]])[-1]


def test_a_round_that_was_seen_and_is_gone():
    """By a third worker, which makes no add."""
    first, second = [("a", 10, 40, 0), ("g", 100, 110, round_of(1)), ("G", 120, 130, ZEROS)], [("a", 12, 40, 0)]
    reader = [("g", 33, 34, round_of(1)), ("g", 35, 36, round_of(0))]
    assert "saw rounds up to 0, where 1 to 1 had been made" in wrong_in([first, second, reader], "merged")[0]


def test_rounds_go_on_without_a_worker_that_has_finished():
    more = [*FIRST, ("a", 70, 80, 0), ("g", 81, 82, [of_both(3, 2), of_both(1, 0), of_both(0, 1), *ZEROS[3:]])]
    final = [of_both(3, 2), of_both(1, 0), of_both(0, 1), *ZEROS[3:]]
    assert merged(first=more, final=final) == []
    assert "saw rounds up to" in merged(first=[*more[:-1], ("g", 81, 82, [of_both(2, 2), *final[1:]])], final=final)[0]


def sync(first=values(3, 0), second=values(3, 0), last=values(3, 2)):
    """The verdict on these gets of the first worker, and one of the second, which then makes one more add and finishes."""
    ours = [("a", 10, 20, 0), ("a", 30, 40, 0), ("g", 50, 60, first), ("a", 70, 80, 1), ("g", 90, 95, last), ("G", 120, 130, ZEROS)]
    theirs = [("a", 11, 21, 0), ("g", 31, 60, second), ("a", 61, 65, 1)]
    return wrong_in([ours, theirs], "sync")


def test_turns_that_can_happen():
    assert sync() == []


def test_turns_that_cannot_happen():
    assert "get number 1 of the workers differs" in sync(second=values(2, 0))[0]
    lost, twice = values(2, 0), values(4, 0)
    assert "get number 1 saw" in sync(lost, lost)[0]
    assert "get number 1 saw" in sync(twice, twice)[0]
    assert "get number 1 saw" in sync(values(3, 1), values(3, 1))[0]  # an add of the next turn
    assert "get number 2 saw" in sync(last=values(3, 1))[0]
