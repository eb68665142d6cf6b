"""Row-sparse keys and non-blocking pulls between real processes: two workers, two servers."""

import pytest

WORKER = """
from polyverso import capi
from polyverso.tensor import Tensor

def received():
    lines = [line for line in node.metrics().splitlines() if line.startswith("polyverso_peer_received_bytes_total{")]
    return sum(float(line.split()[-1]) for line in lines)

def rows(ids, value):
    return Tensor.sparse(ids, Tensor.full((len(ids), WIDE), value), HIGH)

HIGH, WIDE = 20000, 64  # 5 MB: spread over both servers
node = pv.init()
kv = capi.kv_create(node.handle, "dist_sync")
me = capi.kv_rank(kv)
capi.kv_init(kv, "w", rows(range(HIGH), 1 + me))
out = rows([], 0)
node.barrier()
before = received()
capi.kv_row_sparse_pull(kv, "w", out, Tensor.copy_of([[19999, 0], [5, 19999]], "f64"))
got = received() - before
assert got < 20000, got
assert out.parts()[0].to_list() == [0, 5, 19999] and out.parts()[1].min() == out.parts()[1].max() == 1
# Rounds: one row of each worker's own, one of both, far apart.
for number in range(1, 4):
    capi.kv_push(kv, "w", rows([me, HIGH - 1], number))
    capi.kv_row_sparse_pull(kv, "w", out, Tensor.copy_of([HIGH - 1, 0, 1, 2], "i64"))
    assert out.parts()[0].to_list() == [0, 1, 2, HIGH - 1]
    assert [row[0] for row in out.parts()[1].to_list()] == [number, number, 0, 2 * number]
node.barrier()
if me == 0:
    capi.kv_set_optimizer(kv, "mx.adam learning_rate=0.5")
capi.kv_barrier(kv)
capi.kv_push(kv, "w", rows([7], 1))
dense = Tensor.zeros((HIGH, WIDE))
capi.kv_pull(kv, "w", dense)
values = dense.numpy()
assert np.allclose(values[7], -0.5) and not values[8:HIGH - 1].any() and values[0, 0] == 3
say("done")
wait_for_word()
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["tcp", ""])
def test_rows_travel_and_merge(cluster, transport):
    job = cluster(2, 2)
    more = {"transport": transport} if transport else {}
    nodes = [job.python(rank, WORKER, **more) for rank in range(2)] + [job.server(number, **more) for number in range(2)]
    for worker in nodes[:2]:
        worker.hear("done", 60)
    for worker in nodes[:2]:
        worker.tell("end")
    for node in nodes:
        node.ends()


SMALL = """
from polyverso import kvstore

def sent():
    total = {}
    for line in node.metrics().splitlines():
        if line.startswith("polyverso_peer_sent_bytes_total{"):
            peer = line.split('peer="')[1].split('"')[0]
            total[peer] = total.get(peer, 0) + float(line.split()[-1])
    return total

node = pv.init()
kv = kvstore.create("dist_sync")
names = [f"layer{i}_weight" for i in range(200)]
kv.init(names, [np.full((4, 3), i, np.float32) for i in range(200)])
outs = [np.zeros((4, 3), np.float32) for _ in names]
before = sent()
for number in range(1, 3):
    kv.push(names, [np.full((4, 3), i * number, np.float32) for i in range(200)])
    kv.pull(names, out=outs)
    assert all((outs[i] == 2 * i * number).all() for i in range(200))
after = sent()
to_servers = [after[peer] - before.get(peer, 0) for peer in ("2", "3")]
assert min(to_servers) > max(to_servers) / 2, to_servers
node.shutdown()
"""


def test_small_keys_lie_on_both_servers(cluster):
    job = cluster(2, 2)
    workers = [job.python(rank, SMALL) for rank in range(2)]
    servers = [job.server(number) for number in range(2)]
    for node in workers + servers:
        node.ends(seconds=60)
