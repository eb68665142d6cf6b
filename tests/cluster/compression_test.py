"""Gradient compression between processes: the bytes sent match the formula, over shared memory and over TCP."""

import pytest

# Pushes two keys, one that fits in a message and one that takes several. Reports the bytes sent before and after.
PUSH = """
import time

from polyverso import kvstore
node = pv.init()
kv = kvstore.create("dist_sync")
kv.set_gradient_compression(CODEC)
keys, values = ["small", "large"], [np.arange(count, dtype=np.float32) % 3 - 1 for count in VALUES]
values[1][:] = 0.75
kv.init(keys, values)
node.barrier()

def count(name, *labels):
    lines = [line for line in node.metrics().splitlines() if line.startswith(f"polyverso_{name}") and all(label in line for label in labels)]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)

# What is under way while the connection changes to shared memory is repeated, and counted twice.
while TRANSPORT == "auto" and count("peer_sent_messages_total", 'peer="2"', 'transport="shm"') == 0:
    kv.pull("small", out=values[0])
    time.sleep(0.01)

before = count("peer_sent_bytes_total", 'peer="2"')
for i in range(PUSHES):
    kv.push(keys, values)
node.barrier()
after = count("peer_sent_bytes_total", 'peer="2"')
say("sent", after - before, *[count("table_compressed_bytes_total", f'"kv-0/{key}"', 'form="sent"') for key in keys])
kv.pull(keys, out=values)
say("values", values[0][:3].tolist(), values[1][[0, -1]].tolist())
wait_for_word()
node.shutdown()
"""
PUSHES, VALUES = 3, (40_000, 700_001)
MESSAGE = 1 << 18  # the most values in one message


def push(cluster, codec, **settings):
    """Returns for each of two workers: bytes of all messages to the server, and of the encoded values of each key."""
    job = cluster(2, 1, heartbeat_timeout_ms=60000, **settings)
    script = f"CODEC, PUSHES, VALUES, TRANSPORT = {codec!r}, {PUSHES}, {VALUES}, {settings.get('transport', 'auto')!r}\n" + PUSH
    nodes = [job.python(rank, script) for rank in range(2)]
    server = job.server(0)
    sent = [[int(number) for number in node.hear("sent ", 60).split()[1:]] for node in nodes]
    values = [node.hear("values", 60) for node in nodes]
    for node in nodes:
        node.tell("end")
    for node in [*nodes, server]:
        node.ends()
    assert values[0] == values[1]
    return sent, values[0]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize(
    "codec, formula",
    [
        ("2bit", lambda count: 4 * -(-count // 16)),
        ("int8 block=128", lambda count: count + 4 * -(-count // 128)),
    ],
    ids=["2bit", "int8"],
)
def test_bytes_on_the_wire_are_the_formulas(cluster, transport, codec, formula):
    sent, values = push(cluster, codec, transport=transport)
    small, large = (PUSHES * sum(formula(min(MESSAGE, count - first)) for first in range(0, count, MESSAGE)) for count in VALUES)
    messages = PUSHES * sum(-(-count // MESSAGE) for count in VALUES)
    for all_of_it, *encoded in sent:
        assert encoded == [small, large]
        # Each message has a header, and a few other messages are sent.
        assert small + large + messages * 64 < all_of_it < small + large + messages * 300 + 16384
    if codec == "2bit":  # with values of 0.75, each push of each of the two workers sends a threshold
        assert values.endswith("[1.0, 1.0]")

# Three workers, of which one saves what the codec has left out of all workers' pushes, and another one loads it.
RESIDUALS = """
from polyverso import kvstore
node = pv.init()
COUNT = 3_000_000  # several messages

def make(index):
    kv = kvstore.create("dist_sync")
    kv.set_gradient_compression("2bit threshold=1000")
    kv.init("a", np.zeros(COUNT, np.float32))
    if index == 0:
        kv.set_optimizer("mx.sgd learning_rate=1")
    kv.barrier()
    return kv

kv = make(node.worker_id)
value = np.empty(COUNT, np.float32)
kv.push("a", np.arange(COUNT, dtype=np.float32) % 7 * (node.worker_id + 1))
kv.pull("a", out=value)
say("left out", not value.any())
if node.worker_id == 1:
    kv.save_optimizer_states(PATH)
begun = time.monotonic()
kv.barrier()
say("barrier took", time.monotonic() - begun)
kv = make(node.worker_id)
if node.worker_id == 0:
    kv.load_optimizer_states(PATH)
kv.barrier()
kv.set_gradient_compression("none")
kv.push("a", np.zeros(COUNT, np.float32))
kv.pull("a", out=value)
say("came back", np.array_equal(value, np.arange(COUNT, dtype=np.float32) % 7 * -6))
say("tables", node.tables())
wait_for_word()
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_residuals_pass_between_workers_that_are_not_connected(cluster, transport, tmp_path):
    job = cluster(3, 1, transport=transport)
    script = f"PATH = {str(tmp_path / 'states')!r}\n" + RESIDUALS
    nodes = [job.python(rank, script) for rank in range(3)]
    server = job.server(0)
    for node in nodes:
        assert node.hear("left out", 60).endswith("True")
        assert node.hear("came back", 60).endswith("True")
        assert "between" not in node.hear("tables", 10)
        node.tell("end")
    for node in [*nodes, server]:
        node.ends()


# What was loaded into a store without a codec is saved again.
RESAVED = """
from polyverso import kvstore
node = pv.init()

def make(codec, load=None, save=None, push=None):
    kv = kvstore.create("dist_sync")
    if codec:
        kv.set_gradient_compression("2bit threshold=1000")
    kv.init("a", np.zeros(10, np.float32))
    if node.worker_id == 0:
        kv.set_optimizer("mx.sgd learning_rate=1")
    kv.barrier()
    if load and node.worker_id == 0:
        kv.load_optimizer_states(load)
    kv.barrier()
    if codec and load:
        kv.set_gradient_compression("none")
    out = np.empty(10, np.float32)
    if push is not None:
        kv.push("a", np.full(10, push, np.float32))
        kv.pull("a", out=out)
    kv.barrier()
    if save and node.worker_id == 1:
        kv.save_optimizer_states(save)
    kv.barrier()
    return out[0]

make(True, save=PATH + "1", push=node.worker_id + 1)
make(False, load=PATH + "1", save=PATH + "2")
say("came back", make(True, load=PATH + "2", push=0))
node.shutdown()
"""


def test_loaded_residuals_are_saved_again_without_a_codec(cluster, tmp_path):
    job = cluster(2, 1)
    nodes = [job.python(rank, f"PATH = {str(tmp_path / 'states')!r}\n" + RESAVED) for rank in range(2)]
    server = job.server(0)
    for node in nodes:
        assert float(node.hear("came back").split()[2]) == -3
        node.ends()
    server.ends()
