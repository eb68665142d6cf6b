"""Tables in the memory of the servers' devices, which are emulated: two workers train them, a checkpoint moves them to the host's memory, and a
device fails."""

import os
import signal
import time

import pytest

EMULATION = os.environ.get("DEVICE_EMULATION")
if EMULATION is None:
    pytest.skip("DEVICE_EMULATION names no plug-in: run this test through ctest", allow_module_level=True)

# The same on a device and on the host: equal calls must give equal bits.
TRAIN = """
node = pv.init()
pairs = [
    [node.matrix(1000, 30, "float32", updater=updater, staleness=staleness, merge=merge, device=device) for device in ("cuda:1", None)]
    for updater, staleness, merge in [(None, 0, False), ("mx.adam", None, True), ("adagrad rate=0.1", 0, False), ("mx.sgld", None, True)]
]
random = np.random.default_rng(node.worker_id)
for step in range(6):
    for pair in pairs:
        values, rows = random.normal(size=(1000, 30)).astype(np.float32), np.sort(random.choice(1000, 50, replace=False))
        for table in pair:
            if step % 2:
                table.add(values)
            else:
                table.add(values[:50], rows=rows)
        seen = [table.get() for table in pair]
        assert np.array_equal(*seen), (step, pair[0].info()["updater"])
        assert np.array_equal(*[table.get(rows=rows) for table in pair])
node.barrier()
say("trained", node.worker_id)
node.barrier()
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_tables_on_devices_have_the_bits_of_the_host(cluster, transport):
    job = cluster(2, 2, transport=transport)
    nodes = [job.python(number, TRAIN, device_plugin=EMULATION) for number in range(2)]
    servers = [job.server(number, device_plugin=EMULATION) for number in range(2)]
    for node in nodes:
        node.hear("trained", 60)
    for node in nodes + servers:
        node.ends()


# Keys in the memory of devices: each worker adds, sets and erases its own ones and some that all have.
KEYED = """
node = pv.init()
pairs = [
    [make("float32", updater=updater, merge=merge, initial=0.5, initial_range=0.25, seed=9, device=device) for device in ("cuda:1", None)]
    for make, updater, merge in [
        (lambda *how, **more: node.keyvalue(6, *how, **more), None, False),
        (lambda *how, **more: node.keyvalue(6, *how, **more), "mx.adam", True),
        (lambda *how, **more: node.sparse(10000, 6, *how, **more), "adagrad rate=0.1", False),
    ]
]
random = np.random.default_rng(node.worker_id)
for step in range(6):
    for pair in pairs:
        keys = np.unique(random.integers(0, 2000, 80)) * 2 + node.worker_id
        values = random.normal(size=(len(keys), 6)).astype(np.float32)
        for table in pair:
            table.add(values, rows=keys)
            if "adam" not in table.info()["updater"]:  # that table merges
                table.set(values[:5], rows=keys[:5])
                table.erase(keys[5:9])
    node.barrier()
    for pair in pairs:
        asked = random.integers(0, 5000, 300)
        assert np.array_equal(*[table.get(rows=asked) for table in pair]), (step, pair[0].info())
        assert len(set(table.info()["stored"] for table in pair)) == 1
    node.barrier()
for pair in pairs:
    there, here = [[(list(ids), values.tolist()) for ids, values in table.scan(chunk=50)] for table in pair]
    assert there == here and len(here) > 2
say("trained", node.worker_id)
node.barrier()
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_keyed_tables_on_devices_have_the_bits_of_the_host(cluster, transport):
    job = cluster(2, 2, transport=transport)
    nodes = [job.python(number, KEYED, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    servers = [job.server(number, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    for node in nodes:
        node.hear("trained", 60)
    for node in nodes + servers:
        node.ends()


CROSSED = """
import ctypes

def crossed():
    emulation = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"])
    emulation.emulation_crossed.restype = ctypes.c_uint64
    return emulation.emulation_crossed()
"""

ALONE = CROSSED + """
node = pv.init()
tables = [make(2, updater="adagrad", device="cuda:0") for make in (node.keyvalue, lambda *how, **more: node.sparse(50, *how, **more))]
for table in tables:
    there = pv.Tensor.range(4, device="cuda:0").reshape((2, 2))
    table.add(there, rows=[7, 40])
    out = pv.Tensor.zeros((3, 2), device="cuda:0")
    table.get(rows=[7, 8, 40], out=out)
    assert np.array_equal(out.numpy(), table.get(rows=[7, 8, 40])), out
    assert table.info()["stored"] == 2
wide, rows = node.keyvalue(100, device="cuda:0"), np.arange(100)
there = pv.Tensor.ones((100, 100), device="cuda:0")
for step in range(2):
    before = crossed()
    wide.add(there, rows=rows)
    wide.get(rows=rows, out=there)
    assert crossed() - before < 10000, crossed() - before  # ids and slots; the values are 40,000 bytes
everything = pv.Tensor.ones((50, 2), device="cuda:0")
tables[1].add(everything)  # one by one, by the host
tables[1].get(out=everything)
assert np.array_equal(everything.numpy(), tables[1].get())
for how, text in [(dict(capacity=10), "capacity"), (dict(updater="dcasgd"), "keep the table on the host")]:
    try:
        node.keyvalue(2, device="cuda:0", **how)
    except pv.Error as error:
        assert text in str(error), error
    else:
        raise AssertionError(how)
say("done")
node.shutdown()
"""


def test_a_process_alone_has_keyed_tables_on_its_device(cluster):
    node = cluster(1).python(0, ALONE, device_plugin=EMULATION)
    node.hear("done", 30)
    node.ends()


# A server is lost while a keyed table on its device grows: the back-up has all of it.
GROWING = """
node = pv.init()
table = node.keyvalue(4, updater="momentum", device="cuda:0", name="keys")
for step in range(40):
    keys = np.arange(step * 50, step * 50 + 100)
    table.add(np.full((100, 4), step, np.float32), rows=keys)
    if step == 10:
        say("growing")
        wait_for_word()
same = node.keyvalue(4, updater="momentum", name="same")
for step in range(40):
    same.add(np.full((100, 4), step, np.float32), rows=np.arange(step * 50, step * 50 + 100))
keys = np.arange(3000)
assert np.array_equal(table.get(rows=keys), same.get(rows=keys))
say("equal", table.info()["stored"])
node.shutdown()
"""


def test_a_backup_replaces_a_server_with_keys_on_a_device(cluster):
    job = cluster(1, 3, replicas=1, heartbeat_timeout_ms=1500)
    worker = job.python(0, GROWING, device_plugin=EMULATION)
    servers = [job.server(number, device_plugin=EMULATION) for number in range(3)]
    worker.hear("growing", 60)
    servers[1].kill()
    worker.tell("go on")
    worker.hear("equal 2050", 60)
    worker.ends()
    for number in (0, 2):
        servers[number].ends(seconds=10)


CREATE = """
node = pv.init()
attempt(node.array, 100, device="cuda:0")
node.barrier()
fine = node.array(100)
fine.add(np.ones(100))
node.barrier()
say("sum", fine.get().sum())
node.shutdown()
"""


def test_a_server_without_a_device_is_an_error_for_all(cluster):
    job = cluster(2, 2)
    nodes = [job.python(number, CREATE, device_plugin=EMULATION) for number in range(2)]
    servers = [job.server(0, device_plugin=EMULATION), job.server(1, device_plugin="/nowhere/libpolyverso_cuda.so")]
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "MV_ENOSYS" in ending and "on server 1: " in ending and "/nowhere" in ending, ending
        node.hear("sum 200")
    for node in nodes + servers:
        node.ends()


# The device of server 0 fails in the middle.
FAIL = """
node = pv.init()
there, here = node.array(3000, "float64", device="cuda:0"), node.array(3000, "float64")
say("up")
for number in range(40):
    there.add(np.ones(3000))
    here.add(np.ones(3000))
say("sums", there.get().min(), there.get().max(), here.get().min(), here.get().max())
node.shutdown()
"""


def test_a_backup_replaces_a_server_whose_device_fails(cluster):
    job = cluster(1, 3, replicas=1, heartbeat_timeout_ms=1500)
    node = job.python(0, FAIL)
    servers = [
        job.server(number, device_plugin=EMULATION, emulation="launches=20" if number == 1 else "devices=2") for number in range(3)
    ]
    node.hear("up")
    node.hear("sums 40.0 40.0 40.0 40.0", 60)
    node.ends()
    assert servers[1].process.wait(20) != 0
    servers[0].ends()
    servers[2].ends()


LOSE = """
node = pv.init()
there, here = node.array(3000, "float64", device="cuda:0"), node.array(3000, "float64")
for number in range(40):
    try:
        there.add(np.ones(3000))
    except pv.Error as error:
        say("failed", error)
        break
here.add(np.ones(3000))
attempt(there.get)
say("sum", here.get().sum())
node.shutdown()
"""


def test_without_backups_calls_tell_what_failed(cluster):
    job = cluster(1, 1)
    node = job.python(0, LOSE)
    server = job.server(0, device_plugin=EMULATION, emulation="launches=20")
    assert "the device is lost" in node.hear("failed")
    _, ending = node.hear_attempt()
    assert "MV_ESYSTEM" in ending and "the device is lost" in ending, ending
    node.hear("sum 3000.0")
    node.ends()
    server.ends()


# Every process is a worker and a server. The memory of rank 0's device is missing for a moment; then its device fails.
SHORT = """
node = pv.init()
there = node.matrix(40, 1000, "float16", device="cuda:0", merge={merge})
here = node.array(100)
for number in range(3):
    there.add(np.ones((40, 1000), np.float16))
there.get()
node.barrier()
if node.worker_id == 0:
    os.environ["POLYVERSO_EMULATION"] = "memory=100000"
    import ctypes
    ctypes.CDLL(None).setenv(b"POLYVERSO_EMULATION", b"memory=100000", 1)
    attempt(there.get)
    attempt(there.add, np.ones((40, 1000), np.float16))
    ctypes.CDLL(None).unsetenv(b"POLYVERSO_EMULATION")
here.add(np.ones(100))
node.barrier()
say("sum", here.get().sum(), there.peek().shape)
node.shutdown()
"""


def test_what_a_device_lacks_for_a_moment_ends_nothing(cluster):
    job = cluster(2)
    nodes = [job.python(number, SHORT.format(merge=False), device_plugin=EMULATION) for number in range(2)]
    for _ in range(2):
        _, ending = nodes[0].hear_attempt()
        assert "MV_ENOMEM" in ending, ending
    for node in nodes:
        node.hear("sum 200.0 (40, 1000)")
        node.ends()


MERGED = """
node = pv.init()
there, here = node.array(3000, "float64", device="cuda:0", merge=True), node.array(3000, "float64")
failed = 0
for number in range(40):
    try:
        there.add(np.ones(3000))
        there.get()
    except pv.Error as error:
        failed += 1
        text = str(error)
say("failed", failed > 0, text)
here.add(np.ones(3000))
node.barrier()
say("sum", here.get().sum())
node.shutdown()
"""


def test_a_device_that_fails_in_a_round_ends_its_table_only(cluster):
    job = cluster(2, 1)
    nodes = [job.python(number, MERGED) for number in range(2)]
    server = job.server(0, device_plugin=EMULATION, emulation="launches=20")
    for node in nodes:
        assert "the device is lost" in node.hear("failed True")
    for node in nodes:
        node.hear("sum 6000.0")
        node.ends()
    server.ends()


def test_a_process_may_end_without_leaving(cluster):
    script = """
node = pv.init()
table = node.array(10, device="cuda:1")
table.add(np.ones(10))
store = pv.kvstore.create("device")
store.init("w", pv.Tensor.ones(3, device="cuda:0"))
say("sum", table.get().sum())
"""
    for _ in range(3):
        job = cluster(1)
        node = job.python(0, script, device_plugin=EMULATION)
        node.hear("sum 10.0")
        node.ends()


SAVE = """
node = pv.init()
table = node.matrix(500, 7, "float16", name="t", updater="mx.adam", device={device!r})
{work}
node.shutdown()
"""
FIRST = """
for number in range(3): table.add(np.full((500, 7), number, np.float16))
node.save({folder!r})
table.add(np.ones((500, 7), np.float16))
say("value", table.get().astype("float64").sum())
"""
SECOND = """
node.load({folder!r})
table.add(np.ones((500, 7), np.float16))
say("value", table.get().astype("float64").sum())
"""


def test_a_checkpoint_keeps_the_device(cluster, tmp_path):
    for work in ("table = node.array(10, name='t', device='cuda:1')\ntable.add(np.ones(10))\nnode.save({folder!r})",
                 "node.load({folder!r})\ntable = node.array(10, name='t', device='cuda:1')"):
        job = cluster(1)
        script = "node = pv.init()\n" + work.format(folder=str(tmp_path)) + "\nsay('sum', table.get().sum())\nnode.shutdown()\n"
        node = job.python(0, script, device_plugin=EMULATION)
        node.hear("sum 10.0")
        node.ends()


KEYS = """
node = pv.init()
table = node.keyvalue(3, "float16", name="k", updater="mx.adam", device={device!r})
{work}
node.shutdown()
"""
KEYS_FIRST = """
table.add(np.arange(1500).reshape(500, 3).astype(np.float16), rows=np.arange(500) * 11)
node.save({folder!r})
""" + (KEYS_LAST := """
table.add(np.ones((300, 3), np.float16), rows=np.arange(300) * 22)
table.erase(np.arange(0, 5000, 55))
say("value", sorted((key, *row) for ids, rows in table.scan() for key, row in zip(ids.tolist(), rows.tolist())))
""")


@pytest.mark.parametrize(("before", "after"), [("cuda:0", None), (None, "cuda:1"), ("cuda:0", "cuda:1")])
def test_checkpoints_move_keyed_tables(cluster, tmp_path, before, after):
    values = []
    for device, work, servers in [(before, KEYS_FIRST, 2), (after, "node.load({folder!r})" + KEYS_LAST, 1)]:
        plugin = {"device_plugin": EMULATION} if device else {}  # a table on the host is loaded where no device is
        job = cluster(1, servers)
        node = job.python(0, KEYS.format(device=device, work=work.format(folder=str(tmp_path))), **plugin)
        others = [job.server(number, **plugin) for number in range(servers)]
        values.append(node.hear("value", 30))
        for each in [node, *others]:
            each.ends()
    assert values[0] == values[1]


@pytest.mark.parametrize(("before", "after"), [("cuda:0", None), (None, "cuda:1"), ("cuda:0", "cuda:1")])
def test_checkpoints_move_tables(cluster, tmp_path, before, after):
    values = []
    for device, work, servers in [(before, FIRST, 2), (after, SECOND, 1)]:
        plugin = {"device_plugin": EMULATION} if device else {}  # a table on the host is loaded where no device is
        job = cluster(1, servers)
        node = job.python(0, SAVE.format(device=device, work=work.format(folder=str(tmp_path))), **plugin)
        others = [job.server(number, **plugin) for number in range(servers)]
        values.append(node.hear("value", 30))
        for each in [node, *others]:
            each.ends()
    assert values[0] == values[1]


# ---- groups and strategies

GROUP = """
import ctypes
import os
from polyverso import capi
from polyverso.group import Group
from polyverso.distlearn import AllReduceEA, AllReduceSGD, LocalSGD

node = pv.init()
group = Group(node)
random = np.random.default_rng(node.worker_id)

def both(shape, dtype="float32"):
    values = random.normal(size=shape).astype(dtype)
    there = pv.Tensor.copy_of(values).to(f"cuda:{node.worker_id % 2}")
    return values, there

def same(here, there, what):
    for a, b in zip(here, there):
        assert b.device.startswith("cuda") and np.array_equal(a, b.numpy()), what

for dtype in ("float32", "float64", "float16"):
    for count in (1, 1000, 300_000):
        pairs = [both(count, dtype), both((count, 2), dtype)]
        here, there = zip(*pairs)
        for op in ("sum", "max", "avg"):
            for a, b in pairs:
                group.allreduce(a, op=op)
                assert group.allreduce(b, op=op) is b
            same(here, there, op)
        assert group.allreduce_many(list(here)) == group.allreduce_many(list(there)) == group.size
        same(here, there, "several")
        more = [both(count, dtype), both((count, 2), dtype)]
        requests = [group.allreduce_async(b) for b in there] + [group.allreduce_many_async([b for _, b in more])]
        for a in here:
            group.allreduce(a)
        group.allreduce_many([a for a, _ in more])
        for request in requests:
            request.wait()
        same(here, there, "asynchronous")
        same(*zip(*more), "asynchronous, several")
        if node.worker_id == 0:
            here[0].fill(3)
            there[0].fill(3)
        for a, b in pairs:
            group.broadcast(a, root=0)
            group.broadcast(b, root=0)
            roots = b.numpy()
            group.reduce(a, root=1)
            group.reduce(b, root=1)
        same(here, there, "of a root")
        a, b = pairs[1]
        if node.worker_id == 0:
            group.send(b, to=1)
        elif node.worker_id == 1:
            into = pv.Tensor.zeros((count, 2), dtype, device="cuda:0")
            group.recv(into, 0)
            assert np.array_equal(into.numpy(), roots)
for dtype in ("float32", "float16"):
    here, there = both((3, 4), dtype)
    mine = f"cuda:{node.worker_id % 2}"

    def equal(a, b):
        assert b.device == mine and b.shape == a.shape and b.dtype == there.dtype and np.array_equal(a, b.numpy()), (a, b)

    equal(group.allgather(here), group.allgather(there))
    out = pv.Tensor.zeros((3, 3, 4), there.dtype, device=mine)
    assert group.allgather_async(there, out=out).wait() is out
    equal(group.allgather(here), out)
    equal(group.allgather(here[0, 0]), group.allgather(there[0].slice(0, 1).reshape(())))
    for a, b in ((group.gather(here, root=1), group.gather(there, root=1)), (group.gather(here), group.gather_async(there).wait())):
        assert (a is None and b is None) or equal(a, b) is None
    here, there = both((3, 4), dtype)
    equal(group.reduce_scatter(here), group.reduce_scatter(there))
    equal(here, there)
    parts, parts_there = both((3, 3, 4), dtype)
    assert group.scatter(here, parts, root=2) is here and group.scatter(there, parts_there, root=2) is there
    equal(here, there)
for wrong in (lambda: group.allgather(there, out=np.zeros((3, 3, 4), np.float16)), lambda: group.allgather(there, out=there)):
    try:
        wrong()
    except pv.ArgumentError as error:
        assert "out is " in str(error) and f"is needed, on cuda:{node.worker_id % 2}" in str(error), error
    else:
        raise AssertionError("a wrong out")
for dtype in ("float32", "float16"):
    here, there = both((6, 5), dtype)
    equal(group.alltoall(here), group.alltoall(there))
    equal(group.alltoall(here), group.alltoall_async(there).wait())
    here, there = both((3, 2), dtype)
    counts = dict(send_rows=[1, 2, 0], receive_rows=[[1] * 3, [2] * 3, [0] * 3][node.worker_id])
    out = pv.Tensor.zeros((sum(counts["receive_rows"]), 2), there.dtype, device=mine)
    assert group.alltoall(there, **counts, out=out) is out
    equal(group.alltoall(here, **counts), out)
try:
    capi.mv_alltoall_counts(group.handle, [there, pv.Tensor.full(3, 1, "i64", device=mine), out, pv.Tensor.full(3, 1, "i64", device=mine)])
except pv.ArgumentError as error:
    assert "counts" in str(error) and "tensor.to() copies it" in str(error), error
else:
    raise AssertionError("counts on a device")
for _ in range(2):
    first, second = both(300), both((7, 3), "float16")
    there = first[1]

    def greatest(mine, theirs):
        is_there = isinstance(mine, pv.Tensor)
        assert not is_there or mine.device == theirs.device == f"cuda:{node.worker_id % 2}"
        return mine.maximum(theirs) if is_there else np.maximum(mine, theirs)

    def each(mine, theirs):  # one in place, one replaced
        mine[0] += theirs[0]
        mine[1] = greatest(mine[1], theirs[1])

    assert group.allreduce_custom(first[0], greatest) == group.allreduce_custom(first[1], greatest) == 3
    equal(*first)
    assert group.allreduce_custom([first[0], second[0]], each) == group.allreduce_custom([first[1], second[1]], each) == 3
    equal(*first)
    assert np.array_equal(second[0], second[1].numpy())
    mixed = [second[0].copy(), first[1]]
    group.allreduce_custom(mixed, lambda mine, theirs: [mine[0] + theirs[0], mine[1] + theirs[1]])
    group.allreduce(second[0])
    group.allreduce(first[0])
    assert np.array_equal(mixed[0], second[0]) and np.array_equal(first[1].numpy(), first[0])


def fails(mine, theirs):
    if node.worker_id == 0:
        raise RuntimeError("no")


kept = first[1].copy()
try:
    group.allreduce_custom(first[1], fails)
except (RuntimeError, pv.Error) as error:
    assert node.worker_id > 0 or str(error) == "no"
else:
    raise AssertionError("a reduction that fails")
assert group.allreduce_custom(kept, greatest) == 3
for make in (lambda: AllReduceSGD(group).sum_and_normalize_gradients, lambda: AllReduceEA(group, 1, 0.3).average_parameters,
             lambda: AllReduceEA(group, 3, 0.3).average_parameters, lambda: LocalSGD(group, 2).step):
    here, there = zip(*[both(1000), both((50, 3))])
    first, second = make(), make()
    for _ in range(4):
        first(list(here))
        second(list(there))
        same(here, there, make)
        for a, b in zip(here, there):
            a += 1
            b += 1
crossed = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"]).emulation_crossed
crossed.restype = ctypes.c_int64
for step in (AllReduceEA(group, 3, 0.3).average_parameters, LocalSGD(group, 3).step):
    step(second := list(there))
    before = crossed()
    step(second)
    assert crossed() == before, "a step that exchanges nothing copies nothing"
    step(second)
    assert crossed() > before
say("reduced", node.worker_id)
group.close()
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_groups_and_strategies_take_arrays_on_devices(cluster, transport):
    """Copies on the host give the host's bits; nccl_test.py tests all-reduces between devices."""
    job = cluster(3, transport=transport, collective="own")
    nodes = [job.python(number, GROUP, device_plugin=EMULATION, emulation="guard=1") for number in range(3)]
    for node in nodes:
        node.hear("reduced", 60)
    for node in nodes:
        node.ends()


PERL_GROUP = """
use Polyverso;
use Polyverso::Group;
$| = 1;
my $node = Polyverso->init;
my $group = Polyverso::Group->open($node);
my $there = Polyverso::Tensor->full([4], 10, 'f32', 'cuda:1');
$group->allreduce($there);
print "sum @{ $there->to_list } on ${\\ $there->device }\\n";
my $rows = Polyverso::Tensor->copy_of([map { 10 + $_ } 0 .. 2], 'f32')->to('cuda:1');
my @made = ($group->allgather($there), $group->alltoall($rows));
$group->allreduce_custom($rows, sub { my ($mine, $theirs) = @_; return $mine->maximum($theirs) });
$group->allreduce_custom([$there, $rows], sub { my ($mine, $theirs) = @_; $_->[0] += $_->[1] for map { [$mine->[$_], $theirs->[$_]] } 0, 1; return });
print "more " . join(' ', map { (@{ $_->reshape([-1])->to_list }, 'on', $_->device) } @made, $rows, $there) . "\\n";
$group->broadcast($there, root => 0);
print "root @{ $there->to_list }\\n";
$group->close;
$node->shutdown;
"""
LUA_GROUP = """
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local node = polyverso.init()
local group = require("polyverso.group").open(node)
local there = tensor.full({4}, 100, "f32", "cuda:0")
group:allreduce(there)
print("sum " .. table.concat(there:to_list(), " ") .. " on " .. there:device())
local rows = tensor.copy_of({20, 21, 22}, "f32"):to("cuda:0")
local made = {group:allgather(there), group:alltoall(rows)}
group:allreduce_custom(rows, function(mine, theirs) return mine:maximum(theirs) end)
group:allreduce_custom({there, rows}, function(mine, theirs)
  for i = 1, 2 do mine[i]:assign(mine[i] + theirs[i]) end
end)
made[3], made[4] = rows, there
local texts = {}
for i, each in ipairs(made) do texts[i] = table.concat(each:reshape({-1}):to_list(), " ") .. " on " .. each:device() end
print("more " .. table.concat(texts, " "))
group:broadcast(there, {root = 0})
print("root " .. table.concat(there:to_list(), " "))
group:close()
node:shutdown()
"""
PYTHON_GROUP = """
from polyverso.group import Group
node = pv.init()
group = Group(node)
there = pv.Tensor.full(4, 1, device="cuda:1")
group.allreduce(there)
say("sum", *map(int, there.to_list()), "on", there.device)
rows = pv.Tensor.copy_of([0, 1, 2], "f32").to("cuda:1")
made = [group.allgather(there), group.alltoall(rows), rows, there]
group.allreduce_custom(rows, lambda mine, theirs: mine.maximum(theirs))
group.allreduce_custom([there, rows], lambda mine, theirs: [a + b for a, b in zip(mine, theirs)])
say("more", *(word for each in made for word in (*map(int, each.reshape(-1).to_list()), "on", each.device)))
there.fill(7)
group.broadcast(there, root=0)
say("root", *map(int, there.to_list()))
group.close()
node.shutdown()
"""


def test_ranks_in_three_languages_reduce_arrays_on_devices(cluster):
    job = cluster(3)
    how = dict(device_plugin=EMULATION, emulation="guard=1")
    nodes = [job.python(0, PYTHON_GROUP, **how), job.start(1, ["perl", "-e", PERL_GROUP], **how), job.start(2, ["lua5.4", "-e", LUA_GROUP], **how)]
    for node, device in zip(nodes, ("cuda:1", "cuda:1", "cuda:0")):
        assert node.hear("sum").replace(".0", "") == f"sum 111 111 111 111 on {device}"
    for node, device, own in zip(nodes, ("cuda:1", "cuda:1", "cuda:0"), range(3)):
        gathered, exchanged = " ".join(["111"] * 12), f"{own} {10 + own} {20 + own}"
        expected = f"more {gathered} on {device} {exchanged} on {device} 60 63 66 on {device} 333 333 333 333 on {device}"
        assert node.hear("more").replace(".0", "") == expected
    for node in nodes:
        assert node.hear("root").replace(".0", "") == "root 7 7 7 7"
        node.ends()


# ---- stores

OVERLAPPED = CROSSED + """
node = pv.init()
shape, keys = (200, 100), 6
kv = pv.kvstore.create("dist_sync")
names = [f"{place}{key}" for place in ("here", "there") for key in range(keys)]
kv.init(names, [pv.Tensor.zeros(shape)] * len(names))
kv.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
out = pv.Tensor.zeros(shape)
for turn in range(3):
    values = [[pv.Tensor.normal(shape, 100 * turn + 10 * key + node.worker_id, 0, 2) for _ in range(1 + turn % 2)] for key in range(keys)]
    kv.push(names[:keys], values)
    kv.push(names[keys:], [[value.to(f"cuda:{(key + i) % 2}") for i, value in enumerate(some)] for key, some in enumerate(values)])
    for key in range(keys):
        kv.pull(names[key], out)
        here = out.numpy().copy()
        kv.pull(names[keys + key], out)
        assert np.array_equal(here, out.numpy()), (turn, key)
emulation = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"])
emulation.emulation_most_arriving.restype = ctypes.c_uint64
assert emulation.emulation_most_arriving() == keys, emulation.emulation_most_arriving()
say("done", node.worker_id)
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_copies_of_several_keys_overlap(cluster, transport):
    job = cluster(2, transport=transport)
    nodes = [job.python(number, OVERLAPPED, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    for node in nodes:
        node.hear("done", 60)
    for node in nodes:
        node.ends()


# One large value is sent while its later parts are still copied: 17 MiB in pieces of 1 MiB.
IN_PARTS = CROSSED + """
node = pv.init()
shape = ((17 << 18) + 1001,)
kv = pv.kvstore.create("dist_sync")
kv.init(["here", "there"], [pv.Tensor.zeros(shape)] * 2)
kv.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
tables = [node.array(shape[0], "float32", merge=merge) for merge in (False, True)]
out = pv.Tensor.zeros(shape)
for turn in range(2):
    values = [pv.Tensor.normal(shape, 100 * turn + 10 * i + node.worker_id, 0, 2) for i in range(1 + turn)]
    kv.push("here", values)
    kv.push("there", [value.to(f"cuda:{i}") for i, value in enumerate(values)])
    kv.pull("here", out)
    here = out.numpy().copy()
    kv.pull("there", out)
    assert np.array_equal(here, out.numpy()), turn
    numbers = np.arange(shape[0], dtype="float32") % 1000  # their sums are exact
    there = pv.Tensor.copy_of(numbers, device="cuda:1")
    for table in tables:
        table.add(there)
        table.add(there, wait=False)
    node.barrier()
    for table in tables:
        assert np.array_equal(table.get(), 4 * (turn + 1) * numbers), turn
    node.barrier()
emulation = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"])
emulation.emulation_most_arriving.restype = ctypes.c_uint64
assert emulation.emulation_most_arriving() >= 17, emulation.emulation_most_arriving()
say("done", node.worker_id)
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_large_value_is_sent_in_parts(cluster, transport):
    job = cluster(2, transport=transport)
    nodes = [job.python(number, IN_PARTS, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    for node in nodes:
        node.hear("done", 60)
    for node in nodes:
        node.ends()


# Values are freed as soon as the calls have returned: no device may still use them.
ORDERED = """
import ctypes
node = pv.init()
random = np.random.default_rng(node.worker_id)
shapes = {"small": (10, 10), "large": (300, 301), "rows": (70001,)}
stores = [pv.kvstore.create(kind) for kind in ("device", "dist_sync")]
for kv in stores:
    kv.init(list(shapes), [pv.Tensor.zeros(shape, device="cuda:0") for shape in shapes.values()])
    kv.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
reference = pv.kvstore.create("local")
reference.init(list(shapes), [pv.Tensor.zeros(shape) for shape in shapes.values()])
reference.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
for turn in range(12):
    places = [f"cuda:{i}" for i in random.permutation(4)[:random.integers(1, 5)]]
    values = [[pv.Tensor.normal(shape, int(random.integers(1 << 30)), 0, 1) for _ in places] for shape in shapes.values()]
    reference.push(list(shapes), values)
    for kv in stores:
        there = [[value.to(place) for value, place in zip(some, places)] for some in values]
        kv.push(list(shapes), there)
        del there
        outs = [[pv.Tensor.zeros(shape, device=place) for place in places] for shape in shapes.values()]
        kv.pull(list(shapes), outs)
        if kv is stores[0]:
            for key, some in zip(shapes, outs):
                expected = pv.Tensor.zeros(shapes[key])
                reference.pull(key, expected)
                assert all(np.array_equal(expected.numpy(), out.numpy()) for out in some), (turn, key)
        del outs
order = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"])
order.order_races.restype = ctypes.c_int64
assert order.order_races() == 0
say("done", node.worker_id)
node.shutdown()
"""


def test_work_of_several_devices_is_in_order(cluster, monkeypatch):
    monkeypatch.setenv("ORDERED_PLUGIN", EMULATION)
    job = cluster(2)
    nodes = [job.python(number, ORDERED, device_plugin=EMULATION.replace("emulation", "order"), emulation="guard=1,devices=4") for number in range(2)]
    for node in nodes:
        node.hear("done", 60)
    for node in nodes:
        node.ends()


# ---- compressed stores

COMPRESSED = CROSSED + """
node = pv.init()
shape = (1000, 33)
for codec in ("2bit threshold=1", "1bit", "int8", "fp16", "bf16", "topk ratio=0.1"):
    for dtype in ("f32", "f16", "f64"):
        kv = pv.kvstore.create("dist_sync")
        kv.set_gradient_compression(codec)
        kv.init(["here", "there"], [pv.Tensor.zeros(shape, dtype)] * 2)
        kv.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
        outs = [pv.Tensor.zeros(shape, dtype), pv.Tensor.zeros(shape, dtype, device="cuda:1")]
        for turn in range(4):
            values = [pv.Tensor.normal(shape, 10 * turn + 5 * node.worker_id + sender, 0, 2, dtype=dtype) for sender in range(3)]
            places = [("cuda:0", "cuda:1", "cuda:0"), ("cuda:1", "cpu", "cuda:0"), ("cpu", "cuda:0", "cpu"), ("cuda:0",)][turn]
            before = crossed()
            kv.push("there", [value.to(place) for value, place in zip(values, places)])
            if turn == 3 and node.worker_id > 0 and codec.startswith("2bit") and dtype == "f32":
                # the copy to the device, the residual, and a sixteenth
                assert crossed() - before < 2.2 * 4 * 33000, crossed() - before
            kv.push("here", values[:len(places)])
            kv.pull(["here", "there"], out=outs)
            assert outs[0].numpy().tobytes() == outs[1].to("cpu").numpy().tobytes(), (codec, dtype, turn)
            assert len(set(outs[0].reshape((33000,)).to_list()[:100])) > 1
        kv.close()
say("equal", node.worker_id)
node.shutdown()
"""


@pytest.mark.parametrize("transport, servers", [("auto", 0), ("tcp", 2)])
def test_compressed_values_on_devices_have_the_bits_of_the_host(cluster, transport, servers):
    """Without servers each process is a worker and a server, and has a part of each key."""
    job = cluster(2, servers, transport=transport)
    nodes = [job.python(number, COMPRESSED, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    others = [job.server(number) for number in range(servers)]
    for node in nodes:
        node.hear("equal", 60)
    for node in [*nodes, *others]:
        node.ends()


PULLED = """
import ctypes

emulation = ctypes.CDLL(os.environ["POLYVERSO_DEVICE_PLUGIN"])
crossed, allocations = emulation.emulation_crossed, emulation.emulation_allocations
crossed.restype = allocations.restype = ctypes.c_int64

def bytes_of(tensor):
    return tensor.to("cpu").numpy().tobytes()

node = pv.init()
shape, count = (1001, 701), 1001 * 701  # several messages for each server, of lengths that are no multiples of a word
for codec in ("fp16", "bf16", "int8"):
    for dtype in ("f32", "f16", "f64"):
        kv = pv.kvstore.create("dist_sync")
        kv.set_gradient_compression(f"none pull={codec}")
        kv.init("w", pv.Tensor.zeros(shape, dtype))
        for turn in range(2):
            kv.push("w", pv.Tensor.normal(shape, 10 * turn + node.worker_id, 0, 2, dtype=dtype))
            outs = [pv.Tensor.zeros(shape, dtype, device=place) for place in ("cuda:1", "cpu", "cuda:0", "cuda:0", "cpu")]
            kv.pull("w", out=outs)
            host = pv.Tensor.zeros(shape, dtype)
            kv.pull("w", out=host)
            for out in outs:
                assert bytes_of(out) == bytes_of(host), (codec, dtype, turn)
            there = [pv.Tensor.zeros(shape, dtype, device="cuda:0") for _ in range(3)]
            before = crossed()
            kv.pull("w", out=there)
            moved = crossed() - before
            encoded = count * (1 + 4 / 256) if codec == "int8" else count * 2
            if dtype == "f64":
                assert moved == 3 * 8 * count, moved
            else:
                assert encoded <= moved < 1.01 * encoded, (codec, dtype, moved, encoded)
            for out in there:
                assert bytes_of(out) == bytes_of(host), (codec, dtype, turn)
        if node.worker_id == 0 and dtype != "f64":
            for missing in range(1 if dtype == "f32" else 2):  # also memory for floats
                os.environ["POLYVERSO_EMULATION"] = f"allocations={allocations() + missing}"
                try:
                    kv.pull("w", out=there[0])
                    raise AssertionError("it needs no memory")
                except pv.Error as error:
                    assert "MV_ENOMEM" in str(error) and 'key "w"' in str(error), error
            os.environ["POLYVERSO_EMULATION"] = ""
            there[0].fill(7)
            kv.pull("w", out=there[0])
            assert bytes_of(there[0]) == bytes_of(host)
        kv.close()
say("equal", node.worker_id)
node.shutdown()
"""


@pytest.mark.parametrize("transport, servers", [("auto", 0), ("tcp", 2)])
def test_pulled_values_are_decoded_on_the_device_with_the_bits_of_the_host(cluster, transport, servers):
    """Only encoded bytes are copied to a device, once for all tensors there. No device has f64: such values are copied whole."""
    job = cluster(2, servers, transport=transport)
    nodes = [job.python(number, PULLED, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    others = [job.server(number) for number in range(servers)]
    for node in nodes:
        node.hear("equal", 60)
    for node in [*nodes, *others]:
        node.ends()


# ---- tables of other processes

PERL_TABLE = """
use Polyverso;
use Polyverso::Tensor;
$| = 1;
my $node = Polyverso->init;
my $table = $node->matrix(rows => 4, cols => 2, name => 't');
$table->add(Polyverso::Tensor->full([4, 2], 10, 'f32', 'cuda:1'));
$table->add(Polyverso::Tensor->full([2, 2], 10, 'f32', 'cuda:0'), rows => [3, 0], async => 1)->wait;
$node->barrier;
my $out = Polyverso::Tensor->zeros([2, 2], 'f32', 'cuda:0');
$table->get(rows => [0, 1], out => $out);
print "rows @{[map { @$_ } @{ $out->to_list }]}\n";
eval { $table->get(rows => Polyverso::Tensor->zeros([2], 'i64', 'cuda:0'), out => $out) };
print "refused ", $@ =~ /cuda:0|device/ ? 'yes' : $@, "\n";
$node->shutdown;
"""
LUA_TABLE = """
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local node = polyverso.init()
local t = node:matrix{rows = 4, cols = 2, name = "t"}
t:add(tensor.full({4, 2}, 100, "f32", "cuda:0"))
t:add(tensor.full({2, 2}, 100, "f32", "cuda:0"), {rows = {3, 0}, async = true}):wait()
node:barrier()
local out = tensor.zeros({2, 2}, "f32", "cuda:1")
t:get({rows = {0, 1}, out = out})
local l = out:to_list()
print("rows " .. l[1][1] .. " " .. l[1][2] .. " " .. l[2][1] .. " " .. l[2][2])
local ok, err = pcall(t.get, t, {rows = tensor.zeros({2}, "i64", "cuda:0"), out = out})
print("refused " .. ((not ok and (tostring(err):find("cuda:0") or tostring(err):find("device"))) and "yes" or tostring(err)))
node:shutdown()
"""
PYTHON_TABLE = """
node = pv.init()
table = node.matrix(4, 2, name="t")
table.add(pv.Tensor.full((4, 2), 1, device="cuda:1"))
table.add_async(pv.Tensor.full((2, 2), 1, device="cuda:1"), rows=[3, 0]).wait()
node.barrier()
out = pv.Tensor.zeros((2, 2), device="cuda:1")
request = table.get_async(rows=[0, 1], out=out)
assert request.wait() is out
say("rows", *map(int, out.reshape((4,)).to_list()))
try:
    table.get(rows=pv.Tensor.zeros(2, "i64", device="cuda:0"), out=out)
except pv.Error as error:
    say("refused", "yes" if "device" in str(error) else error)
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_workers_in_three_languages_add_arrays_on_devices(cluster, transport):
    job = cluster(3, 2, transport=transport)
    how = dict(device_plugin=EMULATION, emulation="guard=1")
    nodes = [job.python(0, PYTHON_TABLE, **how), job.start(1, ["perl", "-e", PERL_TABLE], **how), job.start(2, ["lua5.4", "-e", LUA_TABLE], **how)]
    servers = [job.server(number) for number in range(2)]
    for node in nodes:
        assert node.hear("rows").replace(".0", "") == "rows 222 222 111 111"
        assert node.hear("refused") == "refused yes"
    for node in [*nodes, *servers]:
        node.ends()


PERL_KEYS = """
use Polyverso;
$| = 1;
my $node = Polyverso->init;
my $table = $node->keyvalue(cols => 2, name => 'k', device => 'cuda:0');
my $rows = $node->sparse(rows => 100, cols => 2, name => 's', device => 'cuda:1');
$_->add([[10, 20], [10, 10]], rows => [5, 77]) for $table, $rows;
$node->barrier;
print "rows @{[map { map { @$_ } @{ $_->get(rows => [5, 77, 78], as => 'array') } } $table, $rows]}\n";
$node->shutdown;
"""
LUA_KEYS = """
local polyverso = require("polyverso")
local node = polyverso.init()
local all = {}
local tables = {node:keyvalue{cols = 2, name = "k", device = "cuda:0"}, node:sparse{rows = 100, cols = 2, name = "s", device = "cuda:1"}}
for _, t in ipairs(tables) do t:add({{100, 200}, {100, 100}}, {rows = {5, 77}}) end
node:barrier()
for _, t in ipairs(tables) do
  for _, row in ipairs(t:get{rows = {5, 77, 78}}) do
    for _, value in ipairs(row) do all[#all + 1] = string.format("%.0f", value) end
  end
end
print("rows " .. table.concat(all, " "))
node:shutdown()
"""
PYTHON_KEYS = """
node = pv.init()
tables = [node.keyvalue(2, name="k", device="cuda:0"), node.sparse(100, 2, name="s", device="cuda:1")]
for table in tables:
    table.add([[1, 2], [1, 1]], rows=[5, 77])
node.barrier()
say("rows", *[int(value) for table in tables for value in table.get(rows=[5, 77, 78]).ravel()])
node.shutdown()
"""


def test_three_languages_have_keyed_tables_on_devices(cluster):
    job = cluster(3, 2)
    how = dict(device_plugin=EMULATION)
    nodes = [job.python(0, PYTHON_KEYS, **how), job.start(1, ["perl", "-e", PERL_KEYS], **how), job.start(2, ["lua5.4", "-e", LUA_KEYS], **how)]
    servers = [job.server(number, device_plugin=EMULATION) for number in range(2)]
    for node in nodes:
        assert node.hear("rows") == "rows 111 222 111 111 0 0 111 222 111 111 0 0"
    for node in [*nodes, *servers]:
        node.ends()


INTERRUPTED = """
import signal
node = pv.init()
count = 4 << 20
table, other = node.array(count, name="table"), node.array(count, name="other")
values, more = pv.Tensor.ones(count, device="cuda:0"), pv.Tensor.full(count, 7, device="cuda:0")
table.get()

def handler(*_):
    say("interrupted")
    other.add(more, wait=False)  # which needs memory of the host, too

signal.signal(signal.SIGALRM, handler)
say("ready")
wait_for_word()
signal.setitimer(signal.ITIMER_REAL, 0.2)
table.add(values)
say("values", np.unique(table.get()))
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_an_add_that_a_signal_interrupts_keeps_its_values(cluster, transport):
    job = cluster(1, 1, transport=transport)
    node, server = job.python(0, INTERRUPTED, device_plugin=EMULATION), job.server(0)
    node.hear("ready")
    server.kill(signal.SIGSTOP)
    node.tell("go")
    node.hear("interrupted")
    time.sleep(0.3)
    server.kill(signal.SIGCONT)
    assert node.hear("values") == "values [1.]"
    for each in (node, server):
        each.ends()


# Signals interrupt the calls of strategies, which go on in the caller's arrays on a device, or in copies of these.
STRATEGIES = """
import signal
from polyverso import Tensor, distlearn
node = pv.init()
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
group = pv.Group(node)

def train(place):
    seen = []
    for make, step in (
        (lambda: distlearn.AllReduceSGD(group), "sum_gradients"), (lambda: distlearn.AllReduceEA(group, 1, 0.25), "average_parameters"),
        (lambda: distlearn.CompressedAllReduce(group, "int8"), "average_gradients"), (lambda: distlearn.LocalSGD(group, 1), "step"),
    ):
        with make() as strategy:
            arrays = [Tensor.uniform((70, 30), node.worker_id + 1, -1, 1).to(place), Tensor.uniform((5,), node.worker_id + 7, -1, 1).to(place)]
            for number in range(4):
                if number % 2 == node.worker_id:
                    time.sleep(0.03)
                getattr(strategy, step)(arrays)
            seen += [array.to("cpu").numpy().tobytes() for array in arrays]
    return seen

on_host = train("cpu")
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
there = train("cuda:0")
signal.setitimer(signal.ITIMER_REAL, 0)
say("same", there == on_host, len(ticks) > 50)
node.barrier()
attempt(node.shutdown)
"""


def test_signals_do_not_disturb_strategies_on_devices(cluster):
    job = cluster(2)
    nodes = [job.python(number, STRATEGIES, device_plugin=EMULATION, emulation="guard=1") for number in range(2)]
    assert [node.hear("same ", 60) for node in nodes] == ["same True True"] * 2
    for node in nodes:
        node.hear_attempt()
        node.ends()


FULL = """
node = pv.init()
here = node.array(100, name="here")
there = node.keyvalue(1000, name="there", dtype="f32", device=device, no_backups=True)
for number in range(100):
    try:
        there.add(np.ones((10, 1000), np.float32), keys=range(10 * number, 10 * number + 10))
    except pv.Error as error:
        say("full", error)
        break
here.add(np.ones(100))
say("sum", here.get().sum(), len(there.get(keys=[0])))
node.shutdown()
"""


def test_a_table_without_backups_that_fills_its_device_ends_no_server(cluster):
    job = cluster(1, 2, replicas=1, device_plugin=EMULATION, emulation="memory=1000000,spill=0")
    node, servers = job.python(0, "device = 'cuda:0'\n" + FULL), [job.server(number) for number in range(2)]
    assert "MV_ENOMEM" in node.hear("full")
    node.hear("sum 100.0 1")
    for each in (node, *servers):
        each.ends()
