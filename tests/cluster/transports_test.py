"""Shared memory and TCP: which one is chosen, and that both give the same bits."""

import pathlib

import pytest

TRAIN = """
import hashlib
node = pv.init()
table = node.matrix(400, 300, name="weights", updater="adagrad rate=0.1")
rng = np.random.default_rng(node.worker_id)
digest = hashlib.sha256()
for i in range(12):
    table.add(rng.normal(size=(400, 300)) * 10.0 ** rng.integers(-8, 8))
    rows = np.arange(i, 400, 7)
    table.add(rng.normal(size=(len(rows), 300)), rows=rows)
    digest.update(table.get().tobytes())
    digest.update(table.get(rows=rows).tobytes())
say("digest", digest.hexdigest())
wait_for_word()
node.shutdown()
"""


def rings(node):
    """The number of shared-memory rings that a process has mapped."""
    return pathlib.Path(f"/proc/{node.process.pid}/maps").read_text(encoding="utf-8").count("memfd:polyverso-ring")


def train(cluster, **settings):
    job = cluster(2, 2, **settings)
    nodes = [job.python(rank, TRAIN) for rank in range(2)]
    servers = [job.server(0), job.server(1)]
    digests = [node.hear("digest ", 60).split()[1] for node in nodes]
    mapped = [rings(node) for node in [*nodes, *servers]]
    for node in nodes:
        node.tell("go on")
    for node in [*nodes, *servers]:
        node.ends()
    return digests, mapped


def test_the_same_bits_come_by_shared_memory_and_by_tcp(cluster):
    by_memory, mapped = train(cluster, transport="auto", sync=1)
    assert all(count >= 2 for count in mapped), mapped  # a pair for each connection
    by_tcp, unmapped = train(cluster, transport="tcp", sync=1)
    assert unmapped == [0, 0, 0, 0]
    assert by_memory == by_tcp
    assert by_memory[0] == by_memory[1]  # sync mode


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_worker_sees_its_own_adds(cluster, transport):
    job = cluster(1, 1, transport=transport)
    worker = job.python(0, """
node = pv.init()
table = node.array(100000, name="sum")
for i in range(1, 200):
    table.add(np.ones(100000), wait=False)
    if i % 3 == 0:
        table.add(np.ones(1), rows=[5])
        assert table.get(rows=[5])[0] == i + i // 3, (i, table.get(rows=[5]))
    values = table.get()
    assert values.min() == i, (i, values.min())
say("seen")
node.shutdown()
""")
    server = job.server(0)
    worker.hear("seen", 60)
    worker.ends()
    server.ends()


MAPPED = """
def mapped():
    with open("/proc/self/maps") as file:
        return sum("memfd:polyverso-table" in line for line in file)

def wait_until_mapped(count):
    deadline = time.monotonic() + 10
    while mapped() != count and time.monotonic() < deadline:
        kept.get()
        time.sleep(0.01)
    return mapped()

node = pv.init()
kept = node.array(100000, name="kept")
say("mapped", wait_until_mapped(1))
left = []
for i in range(20):
    left.append(node.array(100000, name=f"t{i}"))
    deadline = time.monotonic() + 10
    while mapped() < 2 and time.monotonic() < deadline:
        left[-1].get()
    left[-1].destroy()
say("with the destroyed", mapped())
last = node.array(10, dtype="u8", name="last")
last.get()
say("in the end", wait_until_mapped(2), kept.get().sum())
last.close()
say("without the last", wait_until_mapped(1))
node.shutdown()
"""


def test_tables_that_were_destroyed_are_unmapped_though_nobody_closes_them(cluster):
    job = cluster(1, 1)
    worker, server = job.python(0, MAPPED), job.server(0)
    assert worker.hear("mapped") == "mapped 1"
    assert int(worker.hear("with the destroyed").split()[-1]) <= 4
    assert worker.hear("in the end") == "in the end 2 0.0"
    assert worker.hear("without the last") == "without the last 1"
    worker.ends()
    server.ends()


FORK = """
def memory():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return sorted(link.split(":")[1].split(" ")[0] for link in links if "memfd:polyverso" in link)

node = pv.init()
table = node.matrix(1000, 100, name="w")
tensor = pv.Tensor.ones((1000, 100))
table.get()
table.add(np.ones((1000, 100)))
node.barrier()
say("parent", *memory())
child = os.fork()
if child == 0:
    say("child", len(memory()))
    os._exit(0)
os.waitpid(child, 0)
node.barrier()
table.add(tensor)
node.barrier()
assert table.get().min() == 2 * node.num_workers
say("again", len(memory()))
node.shutdown()
"""


def test_a_forked_child_holds_no_descriptor_of_shared_memory(cluster):
    job = cluster(2)
    nodes = [job.python(rank, FORK) for rank in range(2)]
    for node in nodes:
        parent = node.hear("parent").split()[1:]
        assert {"polyverso-ring", "polyverso-table", "polyverso-tensors"} <= set(parent), parent
        assert node.hear("child") == "child 0"
        node.hear("again")
        node.ends()
