"""A server with a back-up is killed or stopped while each kind of table and store is in use: the values are, bit for bit, those of a run in which
nothing happens."""

import signal

import pytest

STEPS, VALUES = 60, 20_000

# Each worker reports a digest of what it got in each step, or of what all of them have at the end.
COMMON = f"""
import hashlib
from polyverso import kvstore, optimizer
node = pv.init()
STEPS, VALUES = {STEPS}, {VALUES}
random = np.random.default_rng(node.worker_id)
part = lambda: random.standard_normal(VALUES).astype(np.float32)
digest = hashlib.sha256()

def step(number):
    if number % 10 == 0:
        say("step", number)

def end(values):
    digest.update(np.ascontiguousarray(values).tobytes())
    say("digest", digest.hexdigest())
    wait_for_word()
    attempt(node.shutdown)
"""

# Sync mode: every worker's i-th get sees the first i adds of all.
SYNC = """
table = node.array(VALUES, name="t", updater=optimizer.Adam())
say("up")
wait_for_word()
for number in range(STEPS):
    table.add(part())
    digest.update(table.get().tobytes())
    step(number)
end(table.get())
"""

# Staleness: what a get sees depends on time, what it must see at least does not. Whole numbers, so their order makes no difference.
STALE = """
table = node.array(VALUES, name="t", staleness=2)
say("up")
wait_for_word()
for number in range(STEPS):
    table.add(np.full(VALUES, node.worker_id + 1, np.float32))
    table.clock()
    least = table.get().min()
    assert least >= max(0, number - 1) * 3 + node.worker_id + 1, (number, least)
    step(number)
attempt(node.barrier)
end(table.get())
"""

# Merged rounds: the updater is applied to each round's sum, once.
MERGED = """
table = node.array(VALUES, name="t", merge=True, updater=optimizer.Adam())
say("up")
wait_for_word()
for number in range(STEPS):
    table.add(part())
    step(number)
attempt(node.barrier)
end(table.get())
"""

# A store whose servers have an optimizer, and whose pushes leave something behind in each worker.
STORE = """
store = kvstore.create("dist_sync")
store.set_gradient_compression("2bit threshold=0.5")
store.init("key", np.zeros(VALUES, np.float32))
store.set_optimizer(optimizer.Adam())
node.barrier()
out = np.empty(VALUES, np.float32)
say("up")
wait_for_word()
for number in range(STEPS):
    store.push("key", part())
    store.pull("key", out=out)
    digest.update(out.tobytes())
    step(number)
end(out)
"""

# Rows by key, and an updater with states for each row.
KEYED = """
table = node.sparse(1 << 40, 8, name="t", merge=True, updater=optimizer.AdaGrad())
keys = np.arange(500, dtype=np.int64) * 7919
say("up")
wait_for_word()
for number in range(STEPS):
    table.add(random.standard_normal((500, 8)).astype(np.float32), rows=keys)
    step(number)
attempt(node.barrier)
end(table.get(rows=keys))
"""

KINDS = {"sync": SYNC, "stale": STALE, "merged": MERGED, "store": STORE, "keyed": KEYED}


def run(cluster, kind, how=None):
    """Both workers' digests. `how`: the signal to a server, in the middle."""
    job = cluster(2, 3, replicas=1, heartbeat_timeout_ms=1500, sync=int(kind == "sync"))
    nodes, servers = [job.python(rank, COMMON + KINDS[kind]) for rank in range(2)], [job.server(number) for number in range(3)]
    for node in nodes:
        node.hear("up")
    for node in nodes:
        node.tell("go on")
    if how is not None:
        nodes[0].hear("step 10")
        servers[1].kill(how)
    digests = [node.hear("digest ", 60).split()[1] for node in nodes]
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        node.ends()
    if how == signal.SIGSTOP:
        servers[1].kill()
    for number in (0, 2) if how else (0, 1, 2):
        servers[number].ends(seconds=10)
    return digests


@pytest.fixture(scope="module")
def undisturbed():
    return {}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("kind", KINDS)
def test_the_values_are_those_of_an_undisturbed_run(cluster, undisturbed, kind, how):
    if kind not in undisturbed:
        undisturbed[kind] = run(cluster, kind)
    assert run(cluster, kind, how) == undisturbed[kind]
    assert len(set(undisturbed[kind])) == 1  # both workers got the same
