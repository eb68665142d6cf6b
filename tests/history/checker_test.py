"""history.py's check: it accepts what can happen, and notices each kind of what can't."""

import history

ZEROS = [0] * history.COUNTERS
WORKER = [("a", 10, 20, 0), ("a", 30, 40, 0), ("a", 50, 60, 1)]


def values(first, second):
    return [first, second, *ZEROS[2:]]


def checked(*reads, adds=WORKER, final=values(2, 1)):
    """The verdict on these gets of the dense table, and on the last ones of both tables."""
    gets = [("g", *read) for read in reads]
    return history.wrong_in([adds, [*gets, ("g", 100, 110, final), ("G", 120, 130, ZEROS)]])


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
    adds = [*WORKER, ("a", 60, history.UNKNOWN, 0)]
    assert checked((71, 75, values(2, 1)), (81, 85, values(3, 1)), adds=adds, final=values(3, 1)) == []
    assert checked((71, 75, values(2, 1)), adds=adds) == []
    assert "saw 3, where 2 to 2 adds" in checked((45, 55, values(3, 0)), adds=adds, final=values(3, 1))[0]
    assert "saw 2, where 3 to 3 adds" in checked((71, 75, values(3, 1)), (81, 85, values(2, 1)), adds=adds, final=values(3, 1))[0]
    assert "4 at the end, and 2 adds were made and 1 perhaps" in checked(adds=adds, final=values(4, 1))[-1]
