"""Gradient compression between processes: what travels is what the formula says, by shared memory as by TCP."""

import pytest

from metrics_test import parse, total

# Pushes of two keys, one that is a message and one that is many; the text of the metrics before and after them.
PUSH = """
from polyverso import capi, kvstore
node = pv.init()
kv = kvstore.create("dist_sync")
capi.kv_set_gradient_compression(kv.handle, CODEC)
small, large = np.arange(40000, dtype=np.float32) % 3 - 1, np.full(2_000_001, 0.75, np.float32)
kv.init(["small", "large"], [small, large])
node.barrier()
say("before", node.metrics().encode().hex())
for i in range(8):
    kv.push(["small", "large"], [small, large])
node.barrier()
say("after", node.metrics().encode().hex())
kv.pull(["small", "large"], out=[small, large])
say("values", small[:3].tolist(), large[[0, -1]].tolist())
wait_for_word()
node.shutdown()
"""
PUSHES, VALUES = 8, (40_000, 2_000_001)
MESSAGE = 1 << 18  # values of a message, at most


def heard(node, word):
    return parse(bytes.fromhex(node.hear(word, 60).split()[1]).decode())


def push(cluster, codec, **settings):
    """What one of two workers has sent: bytes of all messages, and what tables say of the encoded ones."""
    job = cluster(2, 1, **settings)
    nodes = [job.python(rank, f"CODEC = {codec!r}\n" + PUSH) for rank in range(2)]
    server = job.server(0)
    sent, encoded, values = [], [], []
    for node in nodes:
        before, after = heard(node, "before "), heard(node, "after ")
        sent.append(total(after, "polyverso_peer_sent_bytes_total", peer="2") - total(before, "polyverso_peer_sent_bytes_total", peer="2"))
        encoded.append({key: total(after, "polyverso_table_compressed_bytes_total", table=f"kv-0/{key}", form="sent") for key in ("small", "large")})
        values.append(node.hear("values", 60))
    for node in nodes:
        node.tell("end")
    for node in [*nodes, server]:
        node.ends()
    assert values[0] == values[1]
    return sent, encoded, values[0]


@pytest.mark.parametrize("io", ["auto", "tcp"])
@pytest.mark.parametrize(
    "codec, formula",
    [
        ("2bit", lambda count: 4 * -(-count // 16)),
        ("int8 block=128", lambda count: count + 4 * -(-count // 128)),
    ],
)
def test_bytes_on_the_wire_are_the_formulas(cluster, io, codec, formula):
    sent, encoded, values = push(cluster, codec, io=io)
    for by_worker in encoded:
        small, large = (PUSHES * sum(formula(min(MESSAGE, count - first)) for first in range(0, count, MESSAGE)) for count in VALUES)
        assert by_worker == {"small": small, "large": large}
    payload = small + large
    messages = PUSHES * sum(-(-count // MESSAGE) for count in VALUES)
    for there in sent:  # each message has a header, and there are a few others
        assert payload + messages * 64 < there < payload + messages * 300 + 16384
    if codec == "2bit":  # two workers' thresholds: of 0.75 each push, the residual included
        assert values.endswith("[1.0, 1.0]")
