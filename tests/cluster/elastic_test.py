"""Workers join a cluster while others train, and leave it: max_workers, `polyverso run --max-workers` and `--join`."""

import json
import subprocess
import sys
import time

import pytest
from conftest import COMMAND
from scale_test import status_of, wait_for

# Adds ones until it is told to stop, but once at least. Then says how many times.
ADDER = """
import select
node = pv.init()
table = node.array(1000, name="t", dtype="float64"{options})
say("up as", node.worker_id, "of", node.num_workers, "with", node.active_workers)
adds = 0
while adds == 0 or not select.select([sys.stdin], [], [], 0)[0]:
    table.add(np.ones(1000))
    adds += 1
    {each}
    time.sleep(0.001)  # others start meanwhile
say("added", adds)
node.shutdown()
"""
# The number of adds so far, as everybody sees it.
PEEK = """
node = pv.init()
table = node.array(1000, name="t", dtype="float64")
say("up")
while wait_for_word() == "look":
    values = table.peek()
    assert (values == values[0]).all()
    say("sum", int(values[0]))
node.shutdown()
"""


def adder(options="", each=""):
    return ADDER.format(options=options, each=each)


def late(job, script, **settings):
    return job.python(0, script, rank=None, role="worker", **settings)


def up(node):
    """(worker_id, num_workers, active_workers)"""
    words = node.hear("up as").split()
    return int(words[2]), int(words[4]), int(words[6])


def stop(node):
    """Its number of adds."""
    node.tell("stop")
    adds = int(node.hear("added").split()[1])
    node.ends()
    return adds


def go_on(nodes, steps):
    """Each of them says so many new ones."""
    for node in nodes:
        node.forget()
        for _ in range(steps):
            node.hear("step")


def look(node):
    node.tell("look")
    return int(node.hear("sum").split()[1])


@pytest.mark.parametrize("servers, settings", [(1, {}), (3, {"replicas": 1})])
def test_workers_come_and_leave(cluster, servers, settings):
    job = cluster(2, servers, max_workers=4, **settings)
    others = [job.server(number) for number in range(servers)]
    watcher, first = job.python(0, PEEK), job.python(1, adder())
    assert up(first) == (1, 2, 2)
    second, third = late(job, adder()), late(job, adder())
    assert sorted((up(second)[0], up(third)[0])) == [2, 3]
    # There are four now, and no place for a fifth, until one of them leaves.
    refused = late(job, adder())
    assert "max_workers makes room" in refused.hear("already complete")
    refused.ends(1)
    total = stop(second) + stop(first)
    fourth = late(job, adder())
    assert up(fourth)[0] == 1  # the lowest place that is free
    fifth = late(job, adder())
    assert up(fifth)[1:] == (4, 4)
    total += stop(third) + stop(fourth) + stop(fifth)
    watcher.hear("up")
    assert look(watcher) == total > 0
    watcher.tell("end")
    watcher.ends()
    for server in others:
        server.ends(seconds=10)


@pytest.mark.parametrize("servers, settings", [(2, {}), (3, {"replicas": 1})])
def test_merged_rounds_go_on_while_a_newcomer_starts_and_then_count_it(cluster, servers, settings):
    """The updater gets the sum of the round: 2, and 3 once the newcomer has begun."""
    options = ', merge=True, updater="momentum rate=1 momentum=0"'
    step = "seen = table.get(); assert (seen == seen[0]).all(); say('value', int(-seen[0]))"
    job = cluster(2, servers, max_workers=3, **settings)
    others = [job.server(number) for number in range(servers)]
    nodes = [job.python(rank, adder(options, step)) for rank in range(2)]
    for node in nodes:
        up(node)
    newcomer = late(job, adder(options, step).replace("node = pv.init()", "node = pv.init(); say('joined'); wait_for_word()"))
    newcomer.hear("joined")
    for node in nodes:  # it has joined, and nobody waits for it
        node.forget()
        at = int(node.hear("value").split()[1])
        while int(node.hear("value").split()[1]) < at + 20:
            pass
    newcomer.tell("go")
    assert up(newcomer)[0] == 2

    def rise(node):
        before = int(node.hear("value").split()[1])
        return int(node.hear("value").split()[1]) - before

    nodes[0].forget()
    assert wait_for(lambda: rise(nodes[0]) == 3)
    stop(newcomer)
    nodes[0].forget()
    assert wait_for(lambda: rise(nodes[0]) == 2)
    for node in reversed(nodes):  # the master ends last
        stop(node)
    for server in others:
        server.ends(seconds=10)


def test_a_newcomer_starts_at_the_slowest_clock(cluster):
    each = "table.clock(); table.get()"
    job = cluster(2, 2, max_workers=3)
    others = [job.server(number) for number in range(2)]
    nodes = [job.python(rank, adder(", staleness=2", each)) for rank in range(2)]
    for node in nodes:
        up(node)
    newcomer = late(job, adder(", staleness=2", each))
    assert up(newcomer)[0] == 2
    ended = [stop(node) for node in (newcomer, *reversed(nodes))]
    assert min(ended) > 0
    for server in others:
        server.ends(seconds=10)


@pytest.mark.parametrize("servers, settings", [(2, {}), (3, {"replicas": 1})])
def test_in_sync_mode_a_newcomer_joins_at_a_round(cluster, servers, settings):
    """All workers read the same bits at the same get, before, while and after it joins; it ends when the others do."""
    script = """
node = pv.init()
table = node.array(3000, name="t", dtype="float64", staleness=0)
say("up as", node.worker_id)
values = []
while not values or values[-1] < 6000:
    table.add(np.full(3000, 1.0))
    table.add(np.full(3000, 0.1 * (1 + node.worker_id)))
    got = table.get()
    assert (got == got[0]).all()
    values.append(got[0])
say("values", *[value.hex() for value in values])
node.shutdown()
"""
    job = cluster(2, servers, max_workers=3, **settings)
    others = [job.server(number) for number in range(servers)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        node.hear("up as")
    newcomer = late(job, script)
    assert newcomer.hear("up as").split()[2] == "2"
    lists = [node.hear("values", 60).split()[1:] for node in (*nodes, newcomer)]
    for node in (*nodes, newcomer):
        node.ends()
    assert lists[0] == lists[1] and len(lists[0]) > len(lists[2]) > 0
    assert lists[0][-len(lists[2]):] == lists[2]  # those that it saw, it saw as the others did
    for server in others:
        server.ends(seconds=10)


# One step after the other on two tables; stops between them when it is told to.
STEPS = """
import select
node = pv.init()
first, second = (node.array(1000, name=name, dtype="float64"{options}) for name in ("first", "second"))
say("up as", node.worker_id, "of", node.num_workers, "with", node.active_workers)
word = ""
while word != "stop":
    first.add(np.ones(1000))
    one = first.get()
    word = sys.stdin.readline().strip() if select.select([sys.stdin], [], [], 0)[0] else ""
    if word == "pause":
        say("between")
        word = wait_for_word()
    second.add(np.ones(1000))
    two = second.get()
    assert (one == one[0]).all() and (two == one).all(), (one[0], two[0])
    say("step", int(one[0]))
node.shutdown()
"""


@pytest.mark.parametrize("servers, settings", [(2, {}), (3, {"replicas": 1})])
@pytest.mark.parametrize("options", [", merge=True", ", staleness=0"])
def test_a_newcomer_begins_at_the_same_point_on_all_tables(cluster, servers, settings, options):
    """It joins while the others are between two tables: in the middle of a step for them, and it begins with a step."""
    script = STEPS.format(options=options)
    job = cluster(2, servers, max_workers=4, **settings)
    others = [job.server(number) for number in range(servers)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        up(node)
    for _ in range(2):  # the second one joins three
        nodes[-1].hear("step")
        nodes[0].tell("pause")
        nodes[0].hear("between")  # the others wait for it in `second`
        nodes.append(late(job, script))
        up(nodes[-1])
        time.sleep(0.2)  # its first add is there
        nodes[0].tell("go on")
        go_on(nodes, 10)
    for node in (*nodes[2:], *reversed(nodes[:2])):
        node.forget()
        node.tell("stop")
        node.ends()
    for server in others:
        server.ends(seconds=10)


@pytest.mark.parametrize("options", [", merge=True", ", staleness=0"])
def test_newcomers_that_come_at_once_begin_with_the_first_of_several_adds(cluster, options):
    """A step adds to one table in a row, then to the other one, then to the first one again, before it reads them."""
    script = """
import select
node = pv.init()
first, second = (node.array(1000, name=name, dtype="float64"OPTIONS) for name in ("first", "second"))
while not select.select([sys.stdin], [], [], 0)[0]:
    for table in (first, first, second, second, first):
        table.add(np.ones(1000))
        time.sleep(0.005)
    one, two = first.get(), second.get()
    assert (one * 2 == two * 3).all(), (one[0], two[0])
    say("step", int(two[0]))
node.shutdown()
""".replace("OPTIONS", options)
    job = cluster(1, 2, max_workers=4)
    others = [job.server(number) for number in range(2)]
    nodes = [job.python(0, script)]
    nodes[0].hear("step")
    nodes += [late(job, script) for _ in range(3)]
    for node in nodes[1:]:
        node.hear("step")
    go_on(nodes, 5)
    for node in (*nodes[1:], nodes[0]):
        node.forget()
        node.tell("stop")
        node.ends()
    for server in others:
        server.ends(seconds=10)


@pytest.mark.parametrize("servers, settings", [(2, {}), (3, {"replicas": 1})])
@pytest.mark.parametrize("options", [", merge=True", ", staleness=0"])
def test_a_newcomer_that_is_killed_before_it_begins_costs_the_others_nothing(cluster, servers, settings, options):
    """It has asked a host, which has not made the call yet. The next newcomer begins as if there had been no other."""
    script = STEPS.format(options=options)
    job = cluster(2, servers, max_workers=3, **settings)
    others = [job.server(number) for number in range(servers)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        up(node)
    nodes[0].tell("pause")
    nodes[0].hear("between")
    killed = late(job, script)
    up(killed)
    time.sleep(0.2)  # its first add is there
    killed.kill()
    nodes[0].tell("go on")
    nodes.append(late(job, script))
    up(nodes[-1])
    go_on(nodes, 10)
    for node in reversed(nodes):
        node.tell("stop")
        node.ends()
    for server in others:
        server.ends(seconds=10)


# Does what it is told to, once for each word.
TOLD = """
node = pv.init()
table = node.matrix(10, 4, name="t", dtype="float64", merge=True)
other = node.array(10, name="other", merge=True)
spare = node.array(10, name="spare", merge=True)
say("up as", node.worker_id, "of", node.num_workers, "with", node.active_workers)
def add():
    table.add(np.ones((2, 4)), rows=[0, 1])
    other.add(np.ones(10))
words = dict(
    add=add,
    soon=lambda: attempt(lambda: table.add(np.ones((2, 4)), rows=[0, 1], timeout=0.5)),
    get=lambda: say("row", table.get(rows=[1])[0].tolist()),
    destroy=lambda: (attempt(lambda: spare.add(np.ones(10), timeout=0.5)), spare.destroy()),
    save=lambda: node.save({folder!r}),
    load=lambda: node.load({folder!r}),
)
while (word := wait_for_word()) in words:
    words[word]()
    say("done", word)
node.shutdown()
"""


def test_a_newcomer_that_waits_for_the_others_may_do_other_things(cluster, tmp_path):
    """Give up, destroy a table, load a checkpoint: then it begins with its next call and that of another worker."""
    script = TOLD.format(folder=str(tmp_path / "saved"))
    job = cluster(2, 2, max_workers=4)
    servers = [job.server(number) for number in range(2)]
    nodes = [job.python(rank, script) for rank in range(2)]

    def all_do(word):
        for node in nodes:
            node.tell(word)
        for node in nodes:
            node.hear(f"done {word}")

    def newcomer_adds():
        nodes[-1].tell("add")
        time.sleep(0.3)
        for node in nodes[:-1]:
            node.tell("add")
        for node in nodes:
            node.hear("done add")

    def row(expected):
        for node in nodes:
            node.tell("get")
        for node in nodes:
            assert node.hear("row") == f"row [{expected}, {expected}, {expected}, {expected}]"
            node.hear("done get")

    for node in nodes:
        up(node)
    all_do("add")
    all_do("save")
    all_do("add")
    row(4.0)
    newcomer = late(job, script)
    up(newcomer)
    for word, table in (("destroy", "spare"), ("soon", "t")):  # to the first one nobody adds
        newcomer.tell(word)
        told = newcomer.hear("after")
        assert f'TimeoutError: MV_ETIMEOUT: table "{table}": this worker has joined later, and begins with the next add of worker 0' in told, told
        newcomer.hear(f"done {word}")
    nodes.append(newcomer)
    all_do("load")
    row(2.0)
    newcomer_adds()
    row(5.0)
    second = late(job, script.replace('spare = node.array(10, name="spare", merge=True)', "spare = None"))
    up(second)
    nodes.append(second)
    newcomer_adds()  # by row
    row(9.0)
    all_do("load")
    all_do("add")
    row(6.0)
    for node in (*nodes[2:], *reversed(nodes[:2])):
        node.tell("end")
        node.ends()
    for server in servers:
        server.ends(seconds=10)


def test_a_newcomer_that_only_reads_delays_nobody(cluster):
    """Neither those that work nor the next newcomer."""
    job = cluster(2, 2, max_workers=3)
    servers = [job.server(number) for number in range(2)]
    options, step = ", merge=True", "say('value', int(table.get()[0]))"
    first, second = (job.python(rank, adder(options, step)) for rank in range(2))
    for node in (first, second):
        up(node)
    stop(second)
    peek = PEEK.replace("    assert (values == values[0]).all()\n", "")  # a reader isn't counted: servers may be a round apart
    reader = late(job, peek.replace('dtype="float64"', 'dtype="float64", merge=True').replace("table.peek()", "table.get()"))
    reader.hear("up")  # as worker 1
    assert look(reader) > 0
    newcomer = late(job, adder(options, step))
    assert up(newcomer)[0] == 2
    for node in (first, newcomer):
        for _ in range(10):
            node.hear("value")
    reader.tell("end")
    reader.ends()
    for node in (newcomer, first):
        stop(node)
    for server in servers:
        server.ends(seconds=10)


@pytest.mark.parametrize("options", [", merge=True", ", staleness=0"])
@pytest.mark.parametrize("how", ["second.add(np.ones(10), timeout=0.2)", "cancelled(second.add_async(np.ones(10)))"])
def test_a_newcomer_gives_up_its_first_call_and_begins_with_another_table(cluster, options, how):
    script = """
import select
node = pv.init()
first, second = (node.array(10, name=name OPTIONS) for name in ("first", "second"))
def cancelled(request):
    time.sleep(0.2)
    request.cancel()
    request.wait()
if node.worker_id == 2:
    attempt(lambda: HOW)
word = ""
while word != "stop":
    if select.select([sys.stdin], [], [], 0)[0]:
        word = wait_for_word()
    first.add(np.ones(10))
    one = first.get()
    if word == "pause":
        say("between")
        word = wait_for_word()
    second.add(np.ones(10))
    two = second.get()
    assert (one == one[0]).all() and (two == one).all(), (one[0], two[0])
    say("step", int(one[0]))
node.shutdown()
""".replace("OPTIONS", options).replace("HOW", how)
    job = cluster(2, 2, max_workers=3)
    for number in range(2):
        job.server(number)
    first, second = (job.python(rank, script) for rank in range(2))
    for node in (first, second):
        node.hear("step")
    first.tell("pause")
    first.hear("between")
    newcomer = late(job, script)
    assert "MV_ETIMEOUT" in (ending := newcomer.hear_attempt()[1]) or "MV_ECANCELED" in ending
    time.sleep(0.2)  # it waits for the others on the first table
    first.tell("go on")
    go_on((first, second, newcomer), 10)
    for node in (first, second, newcomer):
        node.kill()


def test_a_newcomer_destroys_the_table_of_its_first_call(cluster):
    """It then begins with its next call, on another table."""
    script = """
node = pv.init()
first, second = (node.array(10, name=name, merge=True) for name in ("first", "second"))
say("up")
if node.worker_id == 1:
    sent = [table.add_async(np.ones(10)) for table in (first, second)]
    time.sleep(0.2)
    first.destroy()
    attempt(sent[0].wait)
    sent[1].wait()
    say("row", second.get()[0])
else:
    wait_for_word()
    second.add(np.ones(10))
    say("row", second.get()[0])
node.shutdown()
"""
    job = cluster(1, 2, max_workers=2)
    servers = [job.server(number) for number in range(2)]
    nodes = [job.python(0, script)]
    nodes[0].hear("up")
    nodes.append(late(job, script))
    nodes[1].hear("after")
    nodes[0].tell("go")
    for node in nodes:
        assert node.hear("row") == "row 2.0"
    for node in reversed(nodes):
        node.ends()
    for server in servers:
        server.ends(seconds=10)


@pytest.mark.parametrize("kind, settings", [("dist_sync", {}), ("dist_async", {}), ("dist_sync", {"replicas": 1})])
def test_a_store_gets_another_worker(cluster, kind, settings):
    """It initialises the keys as the others did, and does not wait for them, as they may wait for its pushes."""
    script = f"""
from polyverso import optimizer
node = pv.init()
kv = pv.kvstore.create("{kind}")
if kv.rank == 0 and kv.type == "dist_async": kv.set_optimizer(optimizer.SGD(learning_rate=0.1))
for key in ("w", "v"):
    kv.init(key, np.zeros(8, np.float32))
say("up as", kv.rank, "of", kv.num_workers, "with", node.active_workers)
out = np.empty(8, np.float32)
import select
while not select.select([sys.stdin], [], [], 0)[0]:
    for key in ("w", "v"):
        kv.push(key, np.ones(8, np.float32))
        kv.pull(key, out=out)
    say("value", int(out[0]))
say("added")
node.shutdown()
"""
    job = cluster(2, 3, max_workers=3, **settings)
    others = [job.server(number) for number in range(3)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        up(node)
        node.hear("value")
    newcomer = late(job, script)
    assert up(newcomer) == (2, 3, 3)
    if kind == "dist_sync":
        wait_for(lambda: "value 3" == newcomer.hear("value"))  # the sum of three pushes
    for node in (newcomer, *reversed(nodes)):
        node.tell("stop")
        node.hear("added")
    for node in (newcomer, *reversed(nodes)):
        node.ends()
    for server in others:
        server.ends(seconds=10)


@pytest.mark.parametrize("servers, settings", [(2, {}), (3, {"replicas": 1})])
@pytest.mark.parametrize("options, each", [("", ""), (", staleness=2", "table.clock()")])
def test_newcomers_that_are_killed_cost_the_others_nothing(cluster, servers, settings, options, each):
    """In their start, while they open the table, and in their work; each of them makes room for the next one."""
    job = cluster(2, servers, max_workers=3, **settings)
    others = [job.server(number) for number in range(servers)]
    peek = PEEK.replace("    assert (values == values[0]).all()\n", "")  # servers apply parts of an add at different moments
    peek = peek.replace('dtype="float64"', 'dtype="float64"' + options)
    watcher, first = job.python(0, peek), job.python(1, adder(options, each))
    watcher.hear("up")
    up(first)
    for delay in (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.8):
        killed = late(job, adder(options, each))
        time.sleep(delay)
        killed.kill()
        killed.process.wait()
        before = look(watcher)
        assert wait_for(lambda: look(watcher) > before)
    newcomer = late(job, adder(options, each))
    assert up(newcomer)[0] == 2
    stop(newcomer)
    assert stop(first) > 0
    watcher.tell("end")
    watcher.ends()
    for server in others:
        server.ends(seconds=10)


def test_a_newcomer_finds_the_master_after_the_first_one(cluster):
    """Rank 0 is killed: the next master takes workers in, too."""
    job = cluster(2, 3, max_workers=3, replicas=1, heartbeat_timeout_ms=2000)
    others = [job.server(number) for number in range(3)]
    tells = "node = pv.init(); say('members', *(member['address'] for member in node.status()['members']))"
    master, first = job.python(0, PEEK), job.python(1, adder().replace("node = pv.init()", tells))
    master.hear("up")
    addresses = first.hear("members").split()[1:]
    up(first)
    master.kill()
    others[0].hear("this process is the master now")
    newcomer = late(job, adder(), master=",".join(addresses))
    assert up(newcomer) == (0, 2, 2)  # in the place of the lost one
    stop(newcomer)
    assert stop(first) > 0
    for server in others:
        server.ends(seconds=10)


# Joins and leaves `times` times, as a job of short workers does.
SHORT = """
for turn in range({times}):
    node = pv.init()
    table = node.array(1000, name="t", dtype="float64")
    table.add(np.ones(1000))
    node.shutdown()
say("done")
"""
# Says how many bytes of its heap are in use.
MEMORY = """
import ctypes
class Use(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Use
node = pv.init()
if node.worker_id >= 0:
    table = node.array(1000, name="t", dtype="float64")
say("up")
while wait_for_word() == "look":
    say("uses", mallinfo2().uordblks)
node.shutdown()
"""


@pytest.mark.parametrize("servers, settings", [(1, {}), (2, {"replicas": 1})])
def test_workers_that_have_left_take_no_memory(cluster, servers, settings):
    """Nothing stays of the streams of requests with each of them, nor of what a checkpoint would have asked them."""
    job = cluster(1, servers, max_workers=2, **settings)
    nodes = [job.python(rank, MEMORY) for rank in range(1 + servers)]
    for node in nodes:
        node.hear("up")

    def used_after(times):
        short = late(job, SHORT.format(times=times))
        short.hear("done")
        short.ends()
        for node in nodes:
            node.tell("look")
        return [int(node.hear("uses").split()[1]) for node in nodes]

    first = used_after(20)
    for before, after in zip(first, used_after(100)):
        assert after - before < 100 * 1000
    for node in nodes:
        node.tell("stop")
    for node in nodes:
        node.ends()


def test_members_hear_of_it(cluster):
    script = """
node = pv.init()
say("up")
for _ in range(2):
    while (event := node.next_event(timeout=20)) is None: pass
    say("event", event["kind"], event["rank"], node.active_workers)
node.shutdown()
"""
    job = cluster(1, 1, max_workers=2)
    server, node = job.server(0), job.python(0, script)
    node.hear("up")
    newcomer = late(job, "node = pv.init()\nwait_for_word()\nnode.shutdown()\n")
    assert node.hear("event") == "event joined 2 2"
    newcomer.tell("end")
    newcomer.ends()
    assert node.hear("event") == "event left 2 1"
    node.ends()
    server.ends(seconds=10)


def test_run_join_adds_workers_to_a_run(start, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        """
import os, time, numpy as np, polyverso as pv
node = pv.init()
table = node.array(100, name="t", dtype="int64")
print("up", node.worker_id, flush=True)
while not os.path.exists(os.environ["STOP"]):
    table.add(np.ones(100, np.int64)); time.sleep(0.001)
node.shutdown()
"""
    )
    env = {"STOP": str(tmp_path / "stop")}
    job = start("run", "-n", "2", "--servers", "2", "--max-workers", "4", "--no-color", "--", sys.executable, str(script), env=env)
    for _ in range(2):
        job.read_until("up")
    state = status_of(job.process.pid)
    assert state["max_workers"] == 4 and sum(member["worker"] is not None for member in state["members"]) == 2, state
    text = subprocess.run([COMMAND, "status", str(job.process.pid)], capture_output=True, text=True, timeout=30).stdout
    assert text.startswith("2 workers (at most 4), 2 servers, async mode"), text
    added = start("run", "--join", str(job.process.pid), "-n", "2", "--no-color", "--", sys.executable, str(script), env=env)
    for _ in range(2):
        added.read_until("up")
    assert sum(member["worker"] is not None for member in status_of(job.process.pid)["members"]) == 4
    (tmp_path / "stop").touch()
    status, out, err = added.finish(60)
    assert (status, err) == (0, ""), (out, err)
    status, out, err = job.finish(60)
    assert (status, err) == (0, ""), (out, err)


def test_workers_for_a_run_that_has_ended_do_not_begin_one(start, tmp_path):
    gone = tmp_path / "gone"
    waits = "import polyverso as pv, sys; pv.init(); print('up', flush=True); sys.stdin.readline()"
    job = start("run", "-n", "2", "--no-color", "--", "python3", "-c", waits, stdin=subprocess.PIPE)
    job.read_until("up")
    script = f"import os, time, polyverso as pv\nwhile not os.path.exists({str(gone)!r}): time.sleep(0.01)\npv.init()"
    added = start("run", "--join", str(job.process.pid), "--set", "init_timeout_ms=1000", "--no-color", "--", "python3", "-c", script)
    time.sleep(0.5)
    job.process.kill()
    job.process.wait()
    gone.touch()
    status, _, err = added.finish(30)
    assert status == 1 and "Is rank 0 running there?" in err, (status, err)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (("-n", "4", "--max-workers", "2"), "at least 4, the number of workers at the start"),
        (("-n", "1", "--max-workers", "2"), "no cluster that could grow"),
        (("--join", "--servers", "1"), "--join adds workers only"),
        (("--join=1",), "none of your runs"),
    ],
)
def test_what_is_refused(arguments, reason):
    refused = subprocess.run([COMMAND, "run", *arguments, "--", "true"], capture_output=True, text=True, timeout=30)
    assert refused.returncode == 2 and reason in refused.stderr, refused


def test_the_status_is_whole_json_with_vacant_places(cluster):
    job = cluster(1, 1, max_workers=9, max_servers=3)
    server, node = job.server(0), job.python(0, "node = pv.init()\nimport json; say(json.dumps(node.status()))\nwait_for_word()\nnode.shutdown()\n")
    state = json.loads(node.hear("{"))
    assert (state["max_workers"], state["max_servers"], len(state["members"])) == (9, 3, 2)
    node.tell("end")
    node.ends()
    server.ends(seconds=10)


def test_an_init_that_a_loss_made_fail_is_repeated(cluster):
    script = """
node = pv.init()
store = pv.kvstore.create("dist_sync")
node.barrier()
say("up as", store.rank, "of", store.num_workers, "with", node.active_workers)
while (word := wait_for_word()) != "end":
    attempt(store.init, word, np.zeros(8, np.float32))
attempt(store.push, "a", np.ones(8, np.float32))
out = np.empty(8, np.float32)
for _ in range(2):  # the key tells of the loss, too
    attempt(store.pull, "a", out=out)
say("value", out[0])
node.shutdown()
"""
    job = cluster(2, 3, max_workers=3)
    servers = [job.server(number) for number in range(3)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        up(node)
    nodes[0].tell("a")
    nodes[1].kill()
    endings = [nodes[0].hear_attempt()[1]]
    while endings[-1] != "ok" and len(endings) < 4:
        nodes[0].tell("a")
        endings.append(nodes[0].hear_attempt()[1])
    assert endings[-1] == "ok" and all("worker 1" in ending and "MV_EPEERLOST" in ending for ending in endings[:-1]), endings
    nodes[0].tell("a")
    assert "already initialised" in nodes[0].hear_attempt()[1]
    nodes[0].tell("end")
    pushed, _, pulled = (nodes[0].hear_attempt()[1] for _ in range(3))
    assert (pushed, pulled) == ("ok", "ok")
    assert nodes[0].hear("value") == "value 1.0"
    nodes[0].ends()
    for server in servers:
        server.ends(seconds=10)


@pytest.mark.parametrize("one_knows", [False, True])
def test_two_workers_meet_in_repeated_inits(cluster, one_knows):
    """Also if one of them had heard of the loss before its first call. While the news spreads, any number of calls may fail."""
    script = """
node = pv.init()
store = pv.kvstore.create("dist_sync")
node.barrier()
say("up as", store.rank, "of", store.num_workers, "with", node.active_workers)
if wait_for_word() == "hear of it":
    attempt(node.barrier)
    wait_for_word()
reasons, initialised = [], False
while not initialised and len(reasons) < 1000:
    try:
        store.init("a", np.zeros(8, np.float32))
        initialised = True
    except pv.Error as error:
        reasons.append(str(error))
        time.sleep(0.01)
say("reasons", json.dumps(reasons))
attempt(store.init, "a", np.zeros(8, np.float32))
attempt(store.push, "a", np.ones(8, np.float32))
out = np.empty(8, np.float32)
for _ in range(2):  # the key reports the loss, too
    attempt(store.pull, "a", out=out)
say("value", out[0])
node.shutdown()
"""
    job = cluster(3, 3, max_workers=4)
    servers = [job.server(number) for number in range(3)]
    nodes = [job.python(rank, "import json, time\n" + script) for rank in range(3)]
    for node in nodes:
        up(node)
    if one_knows:
        nodes[2].kill()
        nodes[1].tell("hear of it")
        assert "MV_EPEERLOST" in nodes[1].hear_attempt()[1]
    for node in nodes[:2]:
        node.tell("go on")
    if not one_knows:
        nodes[2].kill()
    for node in nodes[:2]:
        reasons = json.loads(node.hear("reasons").removeprefix("reasons "))
        assert len(reasons) < 1000 and all("worker 2" in reason and "MV_EPEERLOST" in reason for reason in reasons), reasons
        again, pushed, _, pulled = (node.hear_attempt()[1] for _ in range(4))
        assert "already initialised" in again
        assert (pushed, pulled) == ("ok", "ok")
        assert node.hear("value") == "value 2.0"
    for node in reversed(nodes[:2]):
        node.ends()
    for server in servers:
        server.ends(seconds=10)


# Pushes, saves, loads and takes part in barriers as it is told.
COMPRESSES = """
from polyverso import kvstore
node = pv.init()
store = kvstore.create("dist_sync")
store.set_gradient_compression("2bit threshold=1000")
store.init("a", np.zeros(10, np.float32))
if node.worker_id == 0:
    store.set_optimizer("mx.sgd learning_rate=1")
say("up as", node.worker_id, "of", node.num_workers, "with", node.active_workers)
while (words := wait_for_word().split()) != ["end"]:
    if words[0] == "push":
        attempt(store.push, "a", np.full(10, float(words[1]), np.float32))
    elif words[0] == "pull":
        out = np.empty(10, np.float32)
        store.pull("a", out=out)
        say("value", out[0])
    elif words[0] == "plain":
        attempt(store.set_gradient_compression, "none")
    elif words[0] == "barrier":
        attempt(store.barrier)
    else:
        attempt({"save": store.save_optimizer_states, "load": store.load_optimizer_states}[words[0]], words[1])
node.shutdown()
"""


def do(node, words):
    node.tell(words)
    _, ending = node.hear_attempt()
    assert ending == "ok", (words, ending)


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("loader", [0, 1])
def test_residuals_find_their_workers_when_some_have_joined(cluster, tmp_path, loader, rank):
    """By rank 3, a worker joins beyond places that are vacant."""
    job = cluster(1, 1, max_workers=4)
    server, first = job.server(0), job.python(0, COMPRESSES)
    assert up(first) == (0, 1, 1)
    second = job.python(3, COMPRESSES, role="worker") if rank else late(job, COMPRESSES)
    nodes = [first, second]
    up(second)
    for node, value in ((first, 3), (second, 5)):  # below the threshold: all of it is left out
        node.tell(f"push {value}")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"
    for words, by in ((f"save {tmp_path}/states", first), (f"load {tmp_path}/states", nodes[loader])):
        other = nodes[1 - nodes.index(by)]
        other.tell("barrier")
        do(by, words)
        do(by, "barrier")
        assert other.hear_attempt()[1] == "ok"
    first.tell("push 0")  # with the threshold, so what it has is sent only without the codec
    second.tell("push 0")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"
        do(node, "plain")
    for node in nodes * 2:
        node.tell("push 0")
    for node in nodes * 2:
        assert node.hear_attempt()[1] == "ok"
    first.tell("pull")  # the newcomer may have begun a round later
    assert float(first.hear("value").split()[1]) == -8  # both residuals, once
    for node in nodes:
        node.tell("end")
    for node in nodes:
        node.ends()
    server.ends(seconds=10)
