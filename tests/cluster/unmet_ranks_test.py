"""Ranks of a group connect when one of them first has a message for the other. What becomes of the others they hear from rank 0
while the group opens, from the master, or when they ask."""

import pytest

SECONDS = 60.0  # limit of each wait; generous, for a busy machine
RANKS = 6

# Obeys line by line.
MEMBER = """
from polyverso.group import Group

node = pv.init()
group = None

def open_group(workers):
    global group
    group = Group(node, workers)

def total():
    say("sum", group.allreduce(np.array([1.0]))[0])

def close():
    global group
    group.close()
    group = None

say("up")
while True:
    word, *more = wait_for_word().split()
    if word == "open":
        attempt(open_group, list(map(int, more[1:])) or None)
    elif word == "sum":
        attempt(total)
    elif word == "close":
        attempt(close)
    elif word == "receive":
        attempt(group.recv, np.zeros(1), *map(int, more))
    elif word == "drain":
        attempt(group.drain)
    elif word == "shrink":
        group = group.shrink()
        say("shrunk", group.size)
    else:
        break
node.shutdown()
say("ended")
"""


def begin(cluster, **settings):
    job = cluster(RANKS, 1, **settings)  # rank 0 is the master
    job.server(0)
    nodes = [job.python(rank, MEMBER) for rank in range(RANKS)]
    for node in nodes:
        node.hear("up", SECONDS)
    return nodes


@pytest.fixture(params=["tcp", "auto"])
def nodes(cluster, request):
    """The ranks, in one group."""
    nodes = begin(cluster, transport=request.param)
    expect(nodes, "open", "ok")
    return nodes


def tell(nodes, words):
    for node in nodes:
        node.tell(words)


def expect(nodes, words, *parts):
    """What all of them say of the end of this call. Returns the seconds that it has taken each."""
    tell(nodes, words)
    spans = []
    for node in nodes:
        took, told = node.hear_attempt(SECONDS)
        assert all(part in told for part in parts), told
        spans.append(took)
    return spans


def end(nodes):
    tell(nodes, "end")
    for node in nodes:
        node.ends(0)


@pytest.mark.parametrize("missing", [0, 3, 5])
def test_all_name_the_rank_that_has_not_opened(cluster, missing):
    nodes = begin(cluster, gate_timeout_ms=5000)
    others = nodes[:missing] + nodes[missing + 1:]
    tell(others, "open")
    for node in others:
        _, told = node.hear_attempt(SECONDS)
        assert "not opened the group" in told or "gave up opening" in told, told  # the one that gave up first tells the others, which try again
        named = told.split("have not opened the group: ")[-1]
        assert f"worker {missing} " in named, told
    expect(nodes, "open", "ok")  # their numbers are in step
    expect(nodes, "sum", "ok")
    end(nodes)


@pytest.mark.parametrize("first", [0, 1])
def test_a_member_that_ends_before_it_has_opened_is_named(cluster, first):
    nodes = begin(cluster)
    waits, comes = (nodes[1:5], nodes[:1]) if first else (nodes[:1], nodes[1:5])
    tell(waits, "open")
    nodes[5].tell("end")
    nodes[5].ends(0)
    tell(comes, "open")
    for node in nodes[:5]:
        took, told = node.hear_attempt(SECONDS)
        assert took < 30 and "MV_EPEERLOST" in told and "worker 5 " in told, told
    end(nodes[:5])


def test_without_a_master_a_killed_member_that_has_not_opened_is_named(cluster):
    nodes = begin(cluster)
    nodes[0].kill()
    tell(nodes[1:5], "open of 1 2 3 4 5")
    nodes[5].kill()
    for node in nodes[1:5]:
        took, told = node.hear_attempt(SECONDS)
        assert took < 30 and "MV_EPEERLOST" in told and "worker 5 " in told, told
    for node in nodes[1:5]:
        node.kill()


def test_a_receive_from_a_rank_that_has_closed_the_group_fails(nodes):
    expect([nodes[5]], "close", "ok")
    assert max(expect([nodes[3]], "receive 5", "MV_EPEERLOST", "left the group")) < 20
    end(nodes)


def test_a_receive_from_a_rank_that_closes_the_group_later_fails(nodes):
    nodes[2].tell("receive 4")
    expect([nodes[5]], "close", "ok")  # nobody waits for this one
    expect([nodes[4]], "close", "ok")
    took, told = nodes[2].hear_attempt(SECONDS)
    assert took < 20 and "left the group" in told, told
    end(nodes)


@pytest.mark.parametrize("how", ["close", "end"])
def test_an_operation_without_a_rank_that_has_left_fails_on_all(nodes, how):
    nodes[5].tell(how)
    nodes[5].ends(0) if how == "end" else nodes[5].hear_attempt(SECONDS)
    assert max(expect(nodes[:5], "sum", "MV_EPEERLOST")) < 20
    tell(nodes[:5], "shrink")
    for node in nodes[:5]:
        assert node.hear("shrunk", SECONDS) == "shrunk 5"
    expect(nodes[:5], "sum", "ok")
    end(nodes[:5] if how == "end" else nodes)


def test_a_drain_without_a_rank_that_has_left_fails(nodes):
    expect(nodes, "sum", "ok")
    expect([nodes[5]], "close", "ok")
    assert max(expect(nodes[:5], "drain", "MV_EPEERLOST")) < 20
    end(nodes)


def test_a_killed_rank_is_lost_for_all(nodes):
    tell(nodes[:5], "sum")
    nodes[5].kill()
    for node in nodes[:5]:
        took, told = node.hear_attempt(SECONDS)
        assert took < 20 and "worker 5" in told, told
    tell(nodes[:5], "shrink")
    for node in nodes[:5]:
        assert node.hear("shrunk", SECONDS) == "shrunk 5"
    end(nodes[:5])


def test_without_the_master_the_ranks_notice_whom_they_lose(nodes):
    nodes[0].kill()
    expect(nodes[1:], "sum", "MV_EPEERLOST")
    tell(nodes[1:], "shrink")
    for node in nodes[1:]:
        assert node.hear("shrunk", SECONDS) == "shrunk 5"
    tell(nodes[1:5], "sum")
    nodes[5].kill()
    for node in nodes[1:5]:
        _, told = node.hear_attempt(SECONDS)
        assert "worker 5" in told, told
    tell(nodes[1:5], "shrink")
    for node in nodes[1:5]:
        assert node.hear("shrunk", SECONDS) == "shrunk 4"
    expect(nodes[1:5], "sum", "ok")
    for node in nodes[1:5]:
        node.kill()
