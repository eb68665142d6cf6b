"""Servers with back-ups: one is killed or stopped while workers in two languages change its tables, and nobody notices more than a delay."""

import re
import signal
import sys
import time
import urllib.request

import pytest

ROUNDS = 400

# Adds 1 to all elements again and again, and checks that it sees its own adds.
PYTHON = f"""
node = pv.init()
table = node.array(3000, name="dense", dtype="float64")
say("up")
wait_for_word()
for number in range({ROUNDS}):
    table.add(np.ones(3000))
    if number % 50 == 0:
        seen = table.get()
        assert (seen > number).all(), (number, seen.min())
        say("round", number)
attempt(node.barrier)
seen = table.get()
say("sum", seen.min(), seen.max())
wait_for_word()
attempt(node.shutdown)
"""

PERL = f"""
use Polyverso;
$| = 1;
my $node = Polyverso->init;
my $table = $node->array(size => 3000, name => 'dense', dtype => 'float64');
print "up\\n";
<STDIN>;
$table->add([(1) x 3000]) for 1 .. {ROUNDS};
$node->barrier;
my @values = @{{$table->get(as => 'array')}};
print "sum $values[0] $values[-1]\\n";
<STDIN>;
$node->shutdown;
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_dies_costs_no_value(cluster, transport, how):
    job = cluster(3, 3, replicas=1, transport=transport, heartbeat_timeout_ms=1500)
    nodes = [job.python(0, PYTHON), job.python(1, PYTHON), job.start(2, ["perl", "-e", PERL])]
    servers = [job.server(number) for number in range(3)]
    for node in nodes:
        node.hear("up")
    for node in nodes:
        node.tell("go on")
    nodes[0].hear("round 50")
    servers[1].kill(how)
    for node in nodes:
        _, least, most = node.hear("sum ", 60).split()
        assert float(least) == float(most) == 3 * ROUNDS
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        node.ends()
    if how == signal.SIGSTOP:
        servers[1].kill()
    for number in (0, 2):
        servers[number].ends(seconds=10)


# Small changes, one after another: their servers acknowledge them when they are in memory shared with the back-up.
SMALL = """
node = pv.init()
table = node.array(4, name="small", dtype="float64")
say("up")
wait_for_word()
for number in range(1, 8001):
    table.add(np.ones(4))
    if number % 500 == 0:
        assert (table.get() == number).all(), (number, table.get())
        say("round", number)
attempt(node.barrier)
say("sum", *table.get())
wait_for_word()
attempt(node.shutdown)
"""


def journaled(server):
    port = int(server.hear("metrics at http://").rsplit(":", 1)[1].split("/")[0])

    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return int(re.search(r"^polyverso_journaled_inputs_total (\d+)", answer.read().decode(), re.MULTILINE)[1])

    return read


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_only_shared_memory_has_survives_its_server(cluster, how):
    job = cluster(1, 3, replicas=1, heartbeat_timeout_ms=1500, metrics=0, log_level="info")
    node, servers = job.python(0, SMALL, metrics=""), [job.server(number) for number in range(3)]
    counts = [journaled(server) for server in servers]
    node.hear("up")
    node.tell("go on")
    node.hear("round 2000")
    assert all(count() > 100 for count in counts)
    servers[1].kill(how)
    node.hear("round 4000", 60)
    if how == signal.SIGSTOP:
        servers[1].kill(signal.SIGCONT)  # it still believes that it is the server of its part
    assert node.hear("sum ", 60).split()[1:] == ["8000.0"] * 4
    node.tell("go on")
    node.ends()
    for number in (0, 2):
        servers[number].ends(seconds=10)


# A table that no back-up keeps, beside one that is kept.
WITHOUT = """
node = pv.init()
kept, bare = (node.array(3000, name=name, dtype="float64", no_backups=name == "bare") for name in ("kept", "bare"))
assert bare.info()["flags"] == pv.TableFlag.NO_BACKUPS and not kept.info()["flags"]
for _ in range(50):
    kept.add(np.ones(3000))
    bare.add(np.ones(3000))
# saved
say("up")
wait_for_word()
assert (kept.get() == 50).all()
# told
for _ in range(50):
    kept.add(np.ones(3000))
assert (kept.get() == 100).all()
say("kept")
wait_for_word()
attempt(node.shutdown)
"""

LOST = """
for call in (bare.get, lambda: bare.add(np.ones(3000)), lambda: bare.add(np.ones(1), rows=[1500]), lambda: node.save(PATH + "2")):
    attempt(call)
assert bare.get(rows=[0])[0] == 51 and bare.get(rows=[2999])[0] == 51  # the other servers have applied their parts
node.load(PATH)
assert (bare.get() == 50).all() and (kept.get() == 50).all()
bare.add(np.ones(3000))
assert (bare.get() == 51).all()
"""


def test_a_table_without_backups_is_lost_with_a_server_until_it_is_loaded(cluster, tmp_path):
    path = f"PATH = {str(tmp_path / 'saved')!r}\n"
    script = path + WITHOUT.replace("# saved", "node.save(PATH)").replace("# told", LOST)
    job = cluster(1, 3, replicas=1)
    node, servers = job.python(0, script), [job.server(number) for number in range(3)]
    node.hear("up", 30)
    servers[1].kill()
    node.hear("serves the tables of server 1")  # until then it reads the dead server's memory, which it has mapped
    node.tell("go on")
    for _ in range(4):
        said = node.hear_attempt(30)[1]
        assert 'table "bare" has no back-ups: server 1' in said, said
    node.hear("kept", 30)
    node.tell("go on")
    node.ends()
    for number in (0, 2):
        servers[number].ends(seconds=10)


def test_a_table_without_backups_moves_with_its_values(cluster):
    job = cluster(1, 3, replicas=1)
    script = WITHOUT.replace("# told", "assert (bare.get() == 50).all()\nbare.add(np.ones(3000))\nassert (bare.get() == 51).all()")
    node, servers = job.python(0, script), [job.server(number) for number in range(3)]
    node.hear("up", 30)
    servers[1].kill(signal.SIGTERM)
    servers[1].ends(seconds=20)
    node.tell("go on")
    node.hear("kept", 30)
    node.tell("go on")
    node.ends()
    for number in (0, 2):
        servers[number].ends(seconds=10)


# DC-ASGD's server keeps the values that a worker last got: the gets of both tables must be in the copy. Dense and keyed.
AFTER_GETS = """
node = pv.init()
updater = "dcasgd rate=0.5 lambda=1"
dense = [node.array(3000, name=name, init=np.ones(3000), updater=updater, dtype="float64") for name in ("never", "before")]
rows = np.arange(100)
keyed = [node.keyvalue(2, name="keyed " + name, updater=updater, dtype="float64") for name in ("never", "before")]
def add(tables):
    for table in tables:
        table.add(np.ones(3000)) if table in dense else table.add(np.ones((100, 2)), keys=rows)
def get():
    for table in dense:
        table.get()
    for table in keyed:
        table.get(keys=rows)
# before
get()
add(dense + keyed)
add([dense[0], keyed[0]])
say("up")
wait_for_word()
add([dense[1], keyed[1]])
expected = [1 - 0.5 - 0.5 * (1 + 1 * (0.5 - 1)), 0 - 0.5 - 0.5 * (1 + 1 * (-0.5 - 0))]
say("wrong", [int((table.get() != expected[0]).sum()) for table in dense], [int((table.get(keys=rows) != expected[1]).sum()) for table in keyed])
attempt(node.shutdown)
"""


def test_what_gets_leave_behind_is_in_the_copy(cluster):
    job = cluster(1, 2, replicas=1)
    node, servers = job.python(0, AFTER_GETS), [job.server(number) for number in range(2)]
    node.hear("up")
    servers[1].kill()
    node.tell("go on")
    assert node.hear("wrong", 30).split(maxsplit=1)[1] == "[0, 0] [0, 0]"
    node.hear_attempt()
    node.ends()
    servers[0].ends(seconds=10)


def test_a_new_backup_has_what_gets_leave_behind(cluster):
    """The first server that dies leaves two parts without a copy; then the new copies serve."""
    job = cluster(1, 3, replicas=1)
    node, servers = job.python(0, AFTER_GETS), [job.server(number, log_level="info") for number in range(3)]
    node.hear("up")
    servers[1].kill()
    for server in (servers[0], servers[2]):
        server.hear("back-up again")
    servers[2].kill()
    node.tell("go on")
    assert node.hear("wrong", 30).split(maxsplit=1)[1] == "[0, 0] [0, 0]"
    node.hear_attempt()
    node.ends()
    servers[0].ends(seconds=10)


def test_a_load_gives_the_backup_what_gets_leave_behind(cluster, tmp_path):
    job = cluster(1, 2, replicas=1)
    script = AFTER_GETS.replace("# before", f"get()\nnode.save({str(tmp_path / 'run')!r})\nadd(dense + keyed)\nnode.load({str(tmp_path / 'run')!r})")
    node, servers = job.python(0, script), [job.server(number) for number in range(2)]
    node.hear("up")
    servers[1].kill()
    node.tell("go on")
    assert node.hear("wrong", 30).split(maxsplit=1)[1] == "[0, 0] [0, 0]"
    node.hear_attempt()
    node.ends()
    servers[0].ends(seconds=10)


# Every worker is a server, too: one of them dies with its part. Its own adds count as far as they were acknowledged.
OWN = """
node = pv.init()
table = node.array(3000, name="dense")
node.barrier()
say("up")
wait_for_word()
for number in range(300):
    table.add(np.ones(3000, np.float32))
    say("added", number + 1)
say("done")
wait_for_word()
values = table.get()
say("sum", values.min(), values.max())
attempt(node.shutdown)
"""


def test_a_worker_that_is_a_server_leaves_its_part_to_another(cluster):
    job = cluster(3, 0, replicas=1)
    nodes = [job.python(rank, OWN) for rank in range(3)]
    for node in nodes:
        node.hear("up")
    for node in nodes:
        node.tell("go on")
    nodes[2].hear("added 100")
    nodes[2].kill()
    for node in nodes[:2]:
        node.hear("done")
    for node in nodes[:2]:
        node.tell("go on")
    for node in nodes[:2]:
        _, least, most = node.hear("sum ").split()
        assert float(most) - float(least) <= 1 and 700 <= float(least) <= 900  # its last add may have reached a part of the servers
        node.hear_attempt()
        node.ends()


# A table with a capacity evicts the rows that were not used for longest, and gets are uses. 100 rows, about 50 on each server: the first 40
# are read, so of 80 and 40 more it is the others that go.
ORDER_OF_USE = """
node = pv.init()
table = node.keyvalue(1, name="few", capacity=100, dtype="int64")
rows = np.arange(120)
table.add(np.ones((80, 1), np.int64), keys=rows[:80])
table.get(keys=rows[:40])
say("up")
wait_for_word()
table.add(np.ones((40, 1), np.int64), keys=rows[80:])
say("left", int(table.get(keys=rows[:40]).sum()), int(table.get(keys=rows[40:80]).sum()) < 40)
attempt(node.shutdown)
"""


def test_the_order_in_which_rows_were_used_is_in_the_copy(cluster):
    job = cluster(1, 2, replicas=1)
    node, servers = job.python(0, ORDER_OF_USE), [job.server(number) for number in range(2)]
    node.hear("up")
    servers[1].kill()
    node.tell("go on")
    assert node.hear("left", 30) == "left 40 True"
    node.hear_attempt()
    node.ends()
    servers[0].ends(seconds=10)


SHOWN = """
import time
import urllib.request
node = pv.init()
table = node.array(3000, name="dense")
def show():
    told = node.status()
    while any(part["backup"] is None for part in told["parts"]):
        time.sleep(0.01)
        told = node.status()
    server = f"http://{told['members'][3]['metrics']}/metrics"
    lines = urllib.request.urlopen(server, timeout=20).read().decode().splitlines()
    figures = [line.split()[1] for line in lines if line.startswith(("polyverso_parts{", "polyverso_copies_d", 'polyverso_table_stored_rows{table="dense"'))]
    parts = [(part["served_by"], part["backup"]) for part in told["parts"]]
    say("parts", parts, sorted(part["stored"] for part in told["tables"][0]["servers"]), figures)
table.add(np.ones(3000, np.float32))
show()
wait_for_word()
table.add(np.ones(3000, np.float32))
show()
print(node.status_text(), flush=True)
attempt(node.shutdown)
"""


def test_the_status_shows_who_serves_and_who_has_a_copy(cluster):
    job = cluster(1, 3, replicas=1, metrics=0)
    node, servers = job.python(0, SHOWN), [job.server(number) for number in range(3)]
    assert node.hear("parts") == "parts [(1, 2), (2, 3), (3, 1)] [1000, 1000, 1000] ['1', '0', '0', '1000']"
    servers[1].kill()
    node.tell("go on")
    assert node.hear("parts", 30) == "parts [(1, 3), (3, 1), (3, 1)] [1000, 2000] ['2', '0', '0', '2000']"
    node.hear("back-up")
    assert node.hear("server 1 ").split() == ["server", "1", "server", "2", "server", "0"]
    node.hear_attempt()
    node.ends()


# A dense table in sync mode would do the same; these are the kinds of tables, with an updater that has states.
OUTLIVED = """
import time
node = pv.init()
dense = node.array(30_000, name="dense", dtype="float64", updater="momentum rate=1 momentum=0.5")
keyed = node.keyvalue(2, name="keyed", dtype="int64")
rows = np.arange(1000)
say("up")
adds = 0
while wait_for_word() != "end":
    for number in range(50):
        dense.add(np.ones(30_000))
        keyed.add(np.ones((1000, 2), np.int64), keys=rows)
        adds += 1
    parts = node.status()["parts"]
    say("parts", len({part["served_by"] for part in parts}), sum(part["backup"] is None for part in parts))
velocity = value = 0.0
for number in range(adds):
    velocity = 0.5 * velocity + 1
    value -= velocity
say("wrong", np.abs(dense.get() - value).max() > 1e-9, int((keyed.get(keys=rows) != adds).sum()), adds)
attempt(node.shutdown)
"""


@pytest.mark.parametrize("replicas, victims", [(1, (1, 3, 0)), (2, (1, 3, 0, 4))])
def test_servers_die_one_after_another(cluster, replicas, victims):
    """Each when all parts have as many copies again as there can be. All but server 2."""
    count = len(victims) + 1
    job = cluster(1, count, replicas=replicas)
    script = OUTLIVED.replace('part["backup"] is None', f'len(part["backups"]) < {replicas}')
    node, servers = job.python(0, script), [job.server(number) for number in range(count)]
    node.hear("up")
    left = count
    for victim in victims:
        servers[victim].kill()
        left -= 1
        for _ in range(200):
            node.tell("go on")
            _, serving, missing = node.hear("parts", 30).split()
            if int(serving) == left and int(missing) == (0 if left > replicas else count):
                break
        else:
            raise AssertionError((left, serving, missing))
    node.tell("end")
    assert node.hear("wrong", 30).split()[1:3] == ["False", "0"]
    node.hear_attempt()
    node.ends()
    servers[2].ends(seconds=10)


@pytest.mark.parametrize("victims", [(0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_with_two_backups_two_servers_die_at_once(cluster, transport, victims):
    """Of five servers and a worker, which votes too if it is the master, any two may die. The chains of some parts lose their first two processes,
    those of others the last two, or the first and the last."""
    job = cluster(3, 5, replicas=2, transport=transport)
    nodes = [job.python(0, PYTHON), job.python(1, PYTHON), job.start(2, ["perl", "-e", PERL])]
    servers = [job.server(number) for number in range(5)]
    for node in nodes:
        node.hear("up")
    for node in nodes:
        node.tell("go on")
    nodes[0].hear("round 50")
    for victim in victims:
        servers[victim].kill()
    for node in nodes:
        _, least, most = node.hear("sum ", 60).split()
        assert float(least) == float(most) == 3 * ROUNDS
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        node.ends()
    for number in set(range(5)) - set(victims):
        servers[number].ends(seconds=10)


def test_a_new_process_takes_the_place_of_a_dead_server(cluster):
    job = cluster(1, 2, replicas=1)
    node, servers = job.python(0, OUTLIVED), [job.server(number) for number in range(2)]

    def until(serving, missing):
        for _ in range(200):
            node.tell("go on")
            if node.hear("parts", 30).split()[1:] == [str(serving), str(missing)]:
                return
        raise AssertionError((serving, missing))

    node.hear("up")
    for victim in (1, 0, 1):
        servers[victim].kill()
        until(1, 2)
        servers[victim] = job.server(victim)
        until(1, 0)
    node.tell("end")
    assert node.hear("wrong", 30).split()[1:3] == ["False", "0"]
    node.hear_attempt()
    node.ends()
    for server in servers:
        server.ends(seconds=10)


# Saves and loads again and again. A checkpoint that was saved holds just what was there; a load brings it back, also in the copies.
SAVED = """
node = pv.init()
dense = node.array(SIZE, name="dense", dtype="float64", updater="momentum rate=1 momentum=0.5")
keyed = node.keyvalue(2, name="keyed", dtype="int64")
rows = np.arange(1000) + 1000 * node.rank
where = "WHERE"
def step():
    dense.add(np.ones(SIZE))
    keyed.add(np.ones((1000, 2), np.int64), keys=rows)
def values():
    node.barrier()
    seen = dense.get().copy(), keyed.get(keys=rows).copy()
    node.barrier()
    return seen
step()
say("up")
turns, wrong = 0, 0
while wait_for_word() != "end":
    before = values()
    if GOES_ON:
        saving = node.save_async(where, keep=2)
        step()
        saving.wait()
    else:
        node.save(where, keep=2)
        step()
    node.load(where)
    after = values()
    wrong += sum(int((b != a).sum()) for b, a in zip(before, after))
    step()
    turns += 1
    parts = node.status()["parts"]
    say("turn", turns, wrong, len({part["served_by"] for part in parts}), sum(part["backup"] is None for part in parts))
say("end", wrong)
attempt(node.shutdown)
"""


@pytest.mark.parametrize("transport, goes_on", [("auto", False), ("tcp", False), ("auto", True), ("tcp", True)])
def test_checkpoints_are_saved_and_loaded_while_servers_die(cluster, tmp_path, transport, goes_on):
    """goes_on: training goes on while the files, which are larger then, are written."""
    script = SAVED.replace("WHERE", str(tmp_path / "run")).replace("GOES_ON", str(goes_on)).replace("SIZE", "1_000_000" if goes_on else "30_000")
    job = cluster(2, 4, replicas=1, transport=transport)
    nodes = [job.python(rank, script) for rank in range(2)]
    servers = [job.server(number) for number in range(4)]

    def turn(kill=None):
        for node in nodes:
            node.tell("go on")
        if kill is not None:
            kill.kill()  # somewhere in the turn
        heard = [node.hear("turn", 60).split()[2:] for node in nodes]
        assert [wrong for wrong, _, _ in heard] == ["0", "0"], heard
        return int(heard[0][1]), int(heard[0][2])

    for node in nodes:
        node.hear("up")
    turn()
    left = 4
    for victim in (0, 2, 3):  # server 0 directs checkpoints
        turn(kill=servers[victim])
        left -= 1
        for _ in range(200):
            if turn() == (left, 0 if left > 1 else 4):
                break
        else:
            raise AssertionError(left)
    for node in nodes:
        node.tell("end")
    for node in nodes:
        assert node.hear("end", 30) == "end 0"
        node.hear_attempt()
        node.ends()
    servers[1].ends(seconds=10)


def test_a_new_process_may_come_before_the_loss_is_noticed(cluster):
    job = cluster(1, 2, replicas=1, heartbeat_timeout_ms=1500)
    node, servers = job.python(0, OUTLIVED), [job.server(number) for number in range(2)]
    node.hear("up")
    servers[1].kill(signal.SIGSTOP)
    servers.append(job.server(1))
    for _ in range(400):
        node.tell("go on")
        if node.hear("parts", 30).split()[1:] == ["1", "0"]:
            break
    else:
        raise AssertionError("the new process did not become a back-up")
    one_more = job.python(1, "attempt(pv.init)", role="server")  # all are alive: it is told at once
    _, ending = one_more.hear_attempt()
    assert "already complete" in ending, ending
    node.tell("end")
    assert node.hear("wrong", 30).split()[1:3] == ["False", "0"]
    node.hear_attempt()
    node.ends()
    servers[1].kill()
    for server in (servers[0], servers[2]):
        server.ends(seconds=10)


# Every process is a worker and a server. One after another dies, and a new one takes its place as both.
BOTH = """
node = pv.init()
dense = node.array(3000, name="dense", dtype="float64", updater="momentum rate=1 momentum=0.5")
few = node.keyvalue(1, name="few", capacity=100, dtype="int64")
say("up")
while (word := wait_for_word()) != "end":
    if word == "add":
        for number in range(20):
            dense.add(np.ones(3000))
            few.add(np.ones((80, 1), np.int64), keys=np.arange(80) + 40 * number)
    say("missing", sum(part["backup"] is None for part in node.status()["parts"]))
seen = dense.get()
say("values", seen.min(), seen.max(), int(few.get(keys=np.arange(1000)).sum()))
attempt(node.shutdown)
"""


def test_a_new_process_takes_the_place_of_a_worker_that_was_a_server(cluster):
    job = cluster(3, 0, replicas=1)
    nodes = [job.python(rank, BOTH) for rank in range(3)]

    def until_all_have_copies(rank):
        for _ in range(400):
            nodes[rank].tell("look")
            if nodes[rank].hear("missing", 30) == "missing 0":
                return
        raise AssertionError(rank)

    for node in nodes:
        node.hear("up")
    adds = 0
    for victim in (1, 2, 1):
        nodes[0].tell("add")
        nodes[0].hear("missing", 30)
        adds += 20
        nodes[victim].kill()
        until_all_have_copies(0)
        nodes[victim] = job.python(victim, BOTH)
        nodes[victim].hear("up", 30)
        nodes[victim].tell("add")
        nodes[victim].hear("missing", 30)
        adds += 20
        until_all_have_copies(victim)
    velocity = value = 0.0
    for _ in range(adds):
        velocity = 0.5 * velocity + 1
        value -= velocity
    said = []
    for node in nodes:
        node.tell("end")
        said.append([float(number) for number in node.hear("values", 30).split()[1:]])
    assert said == [said[0]] * 3 and abs(said[0][0] - value) < 1e-6 and said[0][0] == said[0][1], (said, value)
    for node in nodes:
        node.hear_attempt()
        node.ends()


def test_settings_must_agree_and_there_must_be_another_server(cluster):
    job = cluster(2, 0)
    nodes = [job.python(rank, "attempt(pv.init)", replicas=rank) for rank in range(2)]
    _, ending = nodes[1].hear_attempt()
    assert "replicas=1 here, but replicas=0 at the master" in ending, ending
    alone = cluster(2, 1, replicas=1)
    nodes = [alone.python(rank, "attempt(pv.init)") for rank in range(2)]
    alone.server(0)
    _, ending = nodes[0].hear_attempt()
    assert "replicas=1 needs at least 2 servers, and this cluster has 1" in ending, ending

    too_many = cluster(2, 2, replicas=16)
    _, ending = too_many.python(0, "attempt(pv.init)").hear_attempt()
    assert "POLYVERSO_REPLICAS=16 in the environment is outside 0 .. 15" in ending, ending


UNDER_LAUNCHER = """
import os, signal, sys
import numpy as np
import polyverso as pv
with pv.init() as node:
    table = node.array(100, name="dense")
    [victim] = [member["pid"] for member in node.status()["members"] if member["server"] == 1]
    node.barrier()
    for number in range(200):
        if number == 50 and node.worker_id == 0:
            os.kill(victim, signal.SIGKILL)
        table.add(np.ones(100, np.float32))
    node.barrier()
    values = table.get()
    print("sum", values.min(), values.max())
    is_last = node.worker_id == node.num_workers - 1
sys.exit(int(sys.argv[1]) if is_last else 0)
"""


def test_the_launcher_goes_on_without_a_server(run):
    for replicas in (["--replicas", "1"], ["--set", "replicas=1"]):
        for workers_status in (0, 3):
            status, out, err = run("-n", "2", "--servers", "3", *replicas, "--", sys.executable, "-c", UNDER_LAUNCHER, str(workers_status))
            assert out.count("sum 400.0 400.0") == 2, out + err
            assert "server 1" in err and "was killed by SIGKILL" in err, err
            assert (status == 0) == (workers_status == 0), (status, err)


# A process that was stopped while it wrote a checkpoint goes on when another process has written it instead.
LATE = """
node = pv.init()
table = node.array(SIZE, name="table", dtype="float64")
keyed = node.keyvalue(2, name="keyed", dtype="int64")
keys = np.arange(200_000) + 1_000_000 * node.rank
def step():
    table.add(np.ones(SIZE))
    keyed.add(np.ones((200_000, 2), np.int64), keys=keys)
step()
node.barrier()
saving = node.save_async("WHERE")
say("saving")
step()
saving.wait()
while len({part["served_by"] for part in node.status()["parts"]}) == 4:  # the stopped one is not lost yet
    time.sleep(0.01)
say("saved")
wait_for_word()
node.load("WHERE")
seen, rows = table.get(), keyed.get(keys=keys)
say("loaded", seen.min(), seen.max(), rows.min(), rows.max())
attempt(node.shutdown)
"""


@pytest.mark.parametrize("after", [0, 0.02, 0.06])
def test_a_stopped_coordinator_leaves_the_checkpoint_to_its_successor(cluster, tmp_path, after):
    job = cluster(2, 4, replicas=1, heartbeat_timeout_ms=1000)
    script = LATE.replace("WHERE", str(tmp_path / "run")).replace("SIZE", "8_000_000")
    nodes = [job.python(rank, script) for rank in range(2)]
    servers = [job.server(number) for number in range(4)]
    nodes[0].hear("saving", 60)
    time.sleep(after)
    servers[0].kill(signal.SIGSTOP)
    for node in nodes:
        node.hear("saved", 60)
    servers[0].kill(signal.SIGCONT)
    servers[0].process.wait(30)  # it was declared lost
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        assert node.hear("loaded", 60) == "loaded 2.0 2.0 1 1"
        assert node.hear_attempt()[1] == "ok"
        node.ends()
    for server in servers[1:]:
        server.ends(seconds=20)


def test_a_server_that_was_stopped_for_too_long_says_so(cluster):
    """The others have gone on without it, and have closed their connections. It does not end as if its work were done."""
    job = cluster(1, 3, replicas=1, heartbeat_timeout_ms=1000)
    worker = job.python(0, "node = pv.init()\ntable = node.array(10, name='t')\nsay('up')\nwait_for_word()\nnode.shutdown()\n")
    servers = [job.server(number) for number in range(3)]
    worker.hear("up")
    servers[1].kill(signal.SIGSTOP)
    worker.hear("serves the tables of server 1")
    servers[1].kill(signal.SIGCONT)
    servers[1].hear("without it")
    servers[1].ends(1)
    worker.tell("end")
    for node in (worker, servers[0], servers[2]):
        node.ends()


TOO_LARGE = """
node = pv.init()
kept = node.array(100, name="kept")
kept.add(np.ones(100, np.float32))
attempt(node.array, 2**46, name="other")
node.barrier()  # all have been told
other = node.array(100, name="other")
other.add(np.ones(100, np.float32))
node.barrier()
say("sums", kept.get().sum(), other.get().sum())
node.shutdown()
"""


def test_a_table_that_is_too_large_costs_no_server(cluster):
    job = cluster(2, 3, replicas=1)
    nodes = [job.python(rank, TOO_LARGE) for rank in range(2)]
    servers = [job.server(number) for number in range(3)]
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "MV_ENOMEM" in ending and '"other"' in ending, ending
    for node in nodes:
        node.hear("sums 200.0 200.0")
        node.ends()
    for server in servers:
        server.ends()
