"""Groups whose ranks run ahead of each other: messages that are taken late hold up nothing but what they have to."""

import pytest

GROUPS = """
from polyverso.group import Group
node = pv.init()
a, b = Group(node), Group(node)
rank = a.rank
say("open")
wait_for_word()
"""

# Rank 0 begins many operations of one kind, and then an all-reduce; rank 1 makes the all-reduce first.
AHEAD = GROUPS + """
count, size, how, same = COUNT, SIZE, HOW, SAME
data = [np.full(size, i, "f4") for i in range(count)]
begun = []
if rank == 0:
    begun = [a.send_async(each, 1) if how == "send" else a.broadcast_async(each) for each in data]
attempt(lambda: (a if same else b).allreduce(np.ones(10), timeout=20))
if rank == 1:
    into = np.zeros(size, "f4")
    for i in range(count):
        a.recv(into, 0) if how == "send" else a.broadcast(into)
        assert (into == i).all()
attempt(lambda: [each.wait() for each in begun])
"""


def both(cluster, script, transport="tcp", **settings):
    job = cluster(2, transport=transport, **settings)
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        node.hear("open")
    for node in nodes:
        node.tell("go on")
    return nodes


def ends(nodes, attempts, seconds=30):
    for node in nodes:
        for _ in range(attempts):
            took, ending = node.hear_attempt(seconds)
            assert ending == "ok" and took < 15, (took, ending)
        node.ends()


@pytest.mark.parametrize("how, same", [("send", False), ("send", True), ("broadcast", False)])
@pytest.mark.parametrize("count, size", [(300, 10), (2, 4_000_000)])
def test_messages_that_are_received_later_hold_up_no_other_operation(cluster, how, same, count, size):
    script = AHEAD.replace("COUNT", str(count)).replace("SIZE", str(size)).replace("HOW", repr(how)).replace("SAME", str(same))
    ends(both(cluster, script), 2)


def test_sends_in_both_directions_that_are_received_after_a_collective(cluster):
    script = GROUPS + """
requests = [a.send_async(np.full(10, i, "f4"), 1 - rank) for i in range(600)]
attempt(lambda: (a.allreduce(np.ones(10), timeout=20), a.alltoall(np.ones(2, "f4"), timeout=20), a.barrier(timeout=20)))
into = np.zeros(10, "f4")
for i in range(600):
    a.recv(into, 1 - rank)
    assert (into == i).all()
attempt(lambda: [each.wait() for each in requests])
"""
    ends(both(cluster, script), 2)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_thousands_of_operations_are_unfinished_at_once(cluster, transport):
    script = GROUPS + """
data = np.full((8000, 10), rank + 1, "f4")
attempt(lambda: [each.wait() for each in [a.allreduce_async(row) for row in data]])
assert (data == 3).all()
"""
    ends(both(cluster, script, transport), 1)


def test_operations_end_after_a_stall(cluster):
    script = GROUPS + """
data = np.full((600, 100), rank + 1, "f4")
attempt(lambda: [each.wait() for each in [a.allreduce_async(row, timeout=20) for row in data]])
assert (data == 3).all()
"""
    ends(both(cluster, script, faults="delay_ms=150"), 1)


def test_a_time_out_is_told_when_all_have_answered(cluster):
    script = GROUPS + """
if rank == 0:
    attempt(lambda: a.allreduce(np.ones(4), timeout=0.5))
wait_for_word()
"""
    nodes = both(cluster, script)
    took, ending = nodes[0].hear_attempt()
    assert "MV_ETIMEOUT" in ending and "have not arrived: rank 1" in ending and 0.5 <= took < 1.2, (took, ending)
