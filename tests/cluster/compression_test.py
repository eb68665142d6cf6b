"""Gradient compression between processes: the bytes sent match the formula, over shared memory and over TCP."""

import pytest

# Pushes two keys, one that fits in a message and one that takes several. Reports the bytes sent before and after.
PUSH = """
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
    script = f"CODEC, PUSHES, VALUES = {codec!r}, {PUSHES}, {VALUES}\n" + PUSH
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
