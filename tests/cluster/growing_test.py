"""Groups that grow: fresh processes in the places of killed ones, several at once, one that dies meanwhile, and a training that loses
nothing."""

import pathlib
import re
import signal
import sys
import time

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "distlearn"
SECONDS = 60.0  # limit of each wait; generous, for a busy machine

# Obeys line by line: reduce, grow RANKS, end. What a newcomer does first is in its environment.
MEMBER = """
from polyverso.group import Group
from polyverso.errors import Error

node = pv.init()
if os.environ.get("JOINS"):
    say("joins")
    group = Group.join(node, "team", timeout=60)
    say("joined", group.rank, group.size, *group.members, "elder", group.info["elder"], group.info["generation"], group.info["transport"])
else:
    group = Group(node)
    say("up")
while True:
    word, *more = wait_for_word().split()
    try:
        if word == "reduce":
            say("sum", group.allreduce(np.array([1.0 + group.rank]))[0])
        elif word == "grow":
            grown = group.grow(int(more[0]), more[1] if len(more) > 1 else "team", timeout=float(more[2]) if len(more) > 2 else 60)
            if grown is None:
                say("as before")
                continue
            group.close()
            group = grown
            say("grown", group.rank, group.size, *group.members, "elder", group.info["elder"], group.info["generation"], group.info["transport"])
        elif word == "news":
            told = [(event["kind"], event["rank"], event["epoch"]) for event in node.status()["events"]]
            drawn = [(event["name"], event["args"]["rank"], event["args"]["epoch"]) for event in node.trace()["traceEvents"] if event["ph"] == "i"]
            say("told", told, "drawn", drawn)
            say(*[line for line in node.status_text().splitlines() if "lost" in line and "ago" in line])
        elif word == "shrink":
            group = group.shrink()
            say("shrunk", group.size)
        else:
            break
    except Error as error:
        say("failed", type(error).__name__, error)
node.shutdown()
say("ended")
"""


def members(cluster, count, **settings):
    """Workers, and one server that is the last rank; rank 0, a worker, is the master."""
    job = cluster(count, 1, **settings)
    server = job.server(0)
    nodes = [job.python(rank, MEMBER) for rank in range(count)]
    for node in nodes:
        node.hear("up", SECONDS)
    return job, nodes, server


def tell(nodes, words):
    for node in nodes:
        node.tell(words)


def joins(job, rank):
    node = job.python(rank, 'os.environ["JOINS"] = "1"\n' + MEMBER)
    node.hear("joins", SECONDS)
    return node


def expect(nodes, word, line):
    for rank, node in enumerate(nodes):
        assert node.hear(word, SECONDS) == line.replace("RANK", str(rank))


def expect_sum(nodes):
    tell(nodes, "reduce")
    for node in nodes:
        assert node.hear("sum", SECONDS) == f"sum {len(nodes) * (len(nodes) + 1) / 2}"


def end(nodes, server):
    tell(nodes, "end")
    for node in nodes:
        node.ends(0)
    server.ends(0)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_fresh_processes_take_the_places_of_killed_ones(cluster, transport):
    job, nodes, server = members(cluster, 4, transport=transport)
    kind = "messages" if transport == "tcp" else "shm"
    expect_sum(nodes)
    tell(nodes, "grow 0")
    expect(nodes, "as before", "as before")
    expect_sum(nodes)
    for victim in (1, 3):
        nodes[victim].kill()
    left = [nodes[0], nodes[2]]
    tell(left, "grow 4")
    nodes[1], nodes[3] = joins(job, 1), joins(job, 3)
    for rank, node in enumerate(nodes):
        word = "joined" if rank in (1, 3) else "grown"
        assert node.hear(word, SECONDS) == f"{word} {rank} 4 0 1 2 3 elder 0 1 {kind}"
    expect_sum(nodes)
    # The one that was there before is not always rank 0.
    nodes[1].kill()
    tell([nodes[0], nodes[2], nodes[3]], "shrink")
    expect([nodes[0], nodes[2], nodes[3]], "shrunk", "shrunk 3")
    fresh = joins(job, 1)
    # Nobody waits for it, but it is taken in as soon as all know of it.
    others = [nodes[0], nodes[2], nodes[3]]
    tell(others, "grow 4")
    assert fresh.hear("joined", SECONDS) == f"joined 1 4 0 1 2 3 elder 0 3 {kind}"
    nodes[1] = fresh
    for rank in (0, 2, 3):
        assert nodes[rank].hear("grown", SECONDS) == f"grown {rank} 4 0 1 2 3 elder 0 3 {kind}"
    expect_sum(nodes)
    end(nodes, server)


def test_status_and_traces_show_who_comes_and_goes(cluster):
    job, nodes, server = members(cluster, 2, trace_events=10000)
    nodes[1].kill()
    nodes[0].tell("grow 2")
    nodes[1] = joins(job, 1)
    nodes[0].hear("grown", SECONDS)
    nodes[0].tell("news")
    told = re.fullmatch(
        r"told \[\('lost', 1, (\d+)\), \('joined', 1, (\d+)\)\] drawn \[\('worker 1 lost', 1, (\d+)\), \('worker 1 joined', 1, (\d+)\)\]",
        nodes[0].hear("told", SECONDS),
    )
    assert told and told[1] == told[3] and told[2] == told[4] and int(told[1]) < int(told[2])
    line = nodes[0].hear("ago", SECONDS)
    assert re.search(r"[\d.]+ s ago +worker 1 \(rank 1\) +lost +\d+ +worker 1 .* is gone", line), line
    end(nodes, server)


def test_a_member_and_a_newcomer_die_while_the_group_grows(cluster):
    job, nodes, server = members(cluster, 4)
    nodes[3].kill()
    tell([nodes[0], nodes[1]], "grow 4")
    newcomer = joins(job, 3)
    nodes[2].kill()  # which has not called grow(): the others go on without it, and now wait for two
    newcomer.kill()
    nodes[2], nodes[3] = joins(job, 2), joins(job, 3)
    for rank, node in enumerate(nodes):
        word = "joined" if rank > 1 else "grown"
        assert re.fullmatch(rf"{word} {rank} 4 0 1 2 3 elder 0 \d+ shm", node.hear(word, SECONDS))
    expect_sum(nodes)
    end(nodes, server)


def test_a_newcomer_that_dies_while_the_grown_group_opens_is_replaced(cluster):
    """The members have agreed on a group with it, and agree again."""
    job, nodes, server = members(cluster, 4)
    nodes[3].kill()
    nodes[2].kill()
    tell([nodes[0], nodes[1]], "grow 4")
    newcomer = joins(job, 3)
    time.sleep(0.5)  # it has asked
    newcomer.kill(signal.SIGSTOP)
    nodes[2] = joins(job, 2)
    time.sleep(0.5)  # the others wait for the one that is stopped
    newcomer.kill()
    nodes[3] = joins(job, 3)
    for rank, node in enumerate(nodes):
        word = "joined" if rank > 1 else "grown"
        assert re.fullmatch(rf"{word} {rank} 4 0 1 2 3 elder 0 \d+ shm", node.hear(word, SECONDS))
    expect_sum(nodes)
    end(nodes, server)


def test_what_goes_wrong_is_said(cluster):
    job, nodes, server = members(cluster, 3)
    tell(nodes[:2], "grow 0")
    nodes[2].tell("reduce")  # another operation
    for node in nodes:
        told = node.hear("failed", SECONDS)
        assert "StateError" in told and "calls grow" in told and "allreduce" in told, told
    tell(nodes[:2], "grow 0")
    nodes[2].tell("grow 0 others")
    for node in nodes:
        assert "grow the group by different names" in node.hear("failed", SECONDS)
    expect_sum(nodes)  # the group still works
    nodes[2].kill()
    tell(nodes[:2], "grow 3 team 1")
    for node in nodes[:2]:
        told = node.hear("failed", SECONDS)
        assert "TimeoutError" in told and '0 workers have asked to join it by the name "team"' in told and "worker 2" in told, told
    tell(nodes[:2], "grow 3")
    nodes[2] = joins(job, 2)
    assert nodes[2].hear("joined", SECONDS).startswith("joined 2 3 0 1 2 elder 0 ")
    for node in nodes[:2]:
        node.hear("grown", SECONDS)
    expect_sum(nodes)
    end(nodes, server)


LONE = """
from polyverso.group import Group
node = pv.init()
attempt(Group.join, node, "nobody", timeout=0.5)
node.shutdown()
"""


def test_a_newcomer_that_no_group_takes_gives_up(cluster):
    job = cluster(2, 1)
    server = job.server(0)
    lone = job.python(0, LONE)
    other = job.python(1, "node = pv.init()\nnode.shutdown()\n")
    took, told = lone.hear_attempt(SECONDS)
    assert took < 10 and told.startswith('TimeoutError: ') and 'no group has grown by the name "nobody"' in told, told
    for node in (lone, other, server):
        node.ends(0)


LANGUAGES = {
    "python": [sys.executable, EXAMPLES / "elastic.py"],
    "perl": ["perl", EXAMPLES / "elastic.pl"],
    "lua": ["luajit", EXAMPLES / "elastic.lua"],
}


def trained(cluster, folder, kills):
    """Trains in four workers, some of which are killed at some steps. Returns the last line of worker 0, and all parameters."""
    folder.mkdir()
    programs = [LANGUAGES[name] for name in ("python", "python", "perl", "lua")]
    settings = ["--steps", "300", "--every", "10", "--save", folder]
    job = cluster(4, 1)
    server = job.server(0)
    nodes = [job.start(rank, [*map(str, [*program, *settings])]) for rank, program in enumerate(programs)]
    for at, victims in kills:
        nodes[0].hear(f"step {at} is done", SECONDS)
        for victim in victims:
            nodes[victim].kill(signal.SIGKILL)
        for victim in victims:
            nodes[victim] = job.start(victim, [*map(str, [*programs[victim], *settings, "--join", "1"])])
        nodes[0].hear("a group of 4", SECONDS)
    last = nodes[0].hear("loss", SECONDS)
    for node in nodes:
        node.ends(0, SECONDS)
    server.ends(0)
    return last, [(folder / f"parameters-{rank}.txt").read_text() for rank in range(4)]


def test_a_training_through_kills_ends_as_an_undisturbed_one(cluster, tmp_path):
    calm, values = trained(cluster, tmp_path / "calm", [])
    through, same = trained(cluster, tmp_path / "through", [(30, [1]), (90, [2]), (150, [3]), (210, [2, 3])])
    assert through == calm
    assert float(re.match(r"loss ([\d.]+)", calm)[1]) < 0.2
    assert all(text == values[0] for text in values + same)  # the same bits
