"""A store that loses one of its servers: errors name it, and keys on the other servers remain usable."""

import signal

import pytest

TRAIN = """
from polyverso import kvstore
node = pv.init()
kv = kvstore.create(TYPE)
keys = [f"key {i}" for i in range(16)]
kv.init(keys, [np.zeros(3, np.float32)] * 16)
kv.set_optimizer("mx.sgd learning_rate=1")
say("up")
wait_for_word()
lost = 0
for key in keys:
    out = np.zeros(3, np.float32)
    try:
        kv.push(key, np.ones(3, np.float32))
        kv.pull(key, out=out)
        assert out.tolist() == [-1, -1, -1], out
    except pv.errors.PeerError as error:
        assert "server 1" in str(error), error
        lost += 1
other = kvstore.create("local")
other.init(1, np.ones(2))
say("lost", lost)
attempt(node.shutdown)
"""


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_keys_of_living_servers_go_on(cluster, kind):
    job = cluster(1, 2)
    worker = job.python(0, f"TYPE = {kind!r}\n" + TRAIN)
    servers = [job.server(number) for number in range(2)]
    worker.hear("up")
    servers[1].kill(signal.SIGKILL)
    servers[1].process.wait()
    worker.tell("go on")
    assert 0 < int(worker.hear("lost").split()[1]) < 16
    worker.hear_attempt()
    worker.ends()
    servers[0].kill()


ROUNDS = """
from polyverso import kvstore
node = pv.init()
kv = kvstore.create("dist_sync")
ones, out = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
kv.init("w", out)
kv.push("w", ones)
kv.pull("w", out=out)
say("sum", out.min(), out.max())
wait_for_word()
if node.rank == 1:
    node.abort("it ran out of data")
    sys.exit(0)
for step in range(2):
    kv.push("w", ones)
    try:
        kv.pull("w", out=out)
        say("sum", out.min(), out.max())
    except pv.errors.PeerError as error:
        say("told", "worker 1: it ran out of data" in str(error))
node.shutdown()
"""


# Whole or by stripes; worker 0 reads its own part, mapped memory, or answers of a server. (Without servers, the lost
# process would have some of the stripes.)
@pytest.mark.parametrize("servers, size", [(0, 8), (1, 8), (1, 3_000_000)])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_no_sum_lacks_the_part_of_a_lost_worker_without_an_error(cluster, servers, size, transport):
    job = cluster(2, servers, transport=transport)
    workers = [job.python(rank, f"SIZE = {size}\n" + ROUNDS) for rank in range(2)]
    stores = [job.server(number) for number in range(servers)]
    for worker in workers:
        assert worker.hear("sum") == "sum 2.0 2.0"
    workers[1].tell("abort")
    workers[1].ends()
    workers[0].tell("go on")
    assert workers[0].hear("told") == "told True"
    assert workers[0].hear("sum") == "sum 1.0 1.0"
    workers[0].ends()
    for store in stores:
        store.ends()
