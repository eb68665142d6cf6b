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
