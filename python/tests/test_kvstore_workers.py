"""polyverso.kvstore: several workers, signals during calls, and servers that execute commands."""

import pytest
from polyverso import StateError, kvstore

TOGETHER = """
import numpy as np, polyverso
from polyverso import kvstore, optimizer
with polyverso.init():
    kv = kvstore.create("dist_sync")
    a = np.full((2, 3), kv.rank + 1.0, np.float32)
    kv.init("w", a)                                  # worker 0's
    kv.pull("w", out=a)
    assert (a == 1).all(), a
    for i in range(1, 5):
        kv.push("w", np.full((2, 3), i * (kv.rank + 1), np.float32))
        kv.pull("w", out=a)
        assert (a == i * 6).all(), a
    kv.barrier()
    if kv.rank == 0:
        kv.set_optimizer(optimizer.create("sgd", learning_rate=0.5))
    kv.barrier()
    kv.pushpull("w", np.ones((2, 3), np.float32), out=a)
    assert (a == 24 - 1.5).all(), a
    free = kvstore.create("dist_async")
    free.init([1, 2], [a, a])
    if kv.rank == 1:
        free.set_optimizer("mx.test")
    free.barrier()
    free.push([1, 2], [np.ones((2, 3), np.float32)] * 2)
    polyverso.capi.mv_barrier(0)
    free.pull(2, out=a)
    assert (a == 22.5 + 3).all(), a
    if kv.rank == 2:
        kv.leave()
    else:
        kv.pushpull("w", np.ones((2, 3), np.float32), out=a)
    print(kv.rank, kv.num_workers, kv.type, "well")
"""


def test_workers_of_one_store(cluster):
    workers = [cluster.start(TOGETHER, 3) for _ in range(3)]
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        assert out.split()[1:] == ["3", "dist_sync", "well"]


INTERRUPTED = """
import signal, time
import numpy as np, polyverso
from polyverso import kvstore
signals = 0
def count(*ignored):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, count)
with polyverso.init(inflight_bytes=1 << 20):
    kv = kvstore.create("dist_sync")
    if kv.rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    keys = list(range(8))
    big = [np.full(200000, kv.rank + key, np.float32) for key in keys]
    out = [np.zeros(200000, np.float32) for key in keys]
    if kv.rank == 1:
        time.sleep(0.3)
    kv.init(keys, big)
    for i in range(3):
        if kv.rank == 1:
            time.sleep(0.3)
        kv.push(keys, big)
        kv.pull(keys, out=out)
        for key in keys:
            assert (out[key] == 2 * key + 1).all(), (key, out[key])
    if kv.rank == 1:
        time.sleep(0.3)
    kv.set_optimizer("mx.test")
    kv.barrier()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("well", signals)
"""


# Each worker adds 1 before each barrier. Behind the i-th one all have added i times: who misses one that the others have passed is one behind
# from then on.
IN_STEP = """
import os, random, signal, time
import numpy as np, polyverso
from polyverso import kvstore
signals = 0
def count(*ignored):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, count)
with polyverso.init(transport="tcp") as node:
    kv = kvstore.create("dist_sync")
    table = node.array(1, dtype="int64", name="before")
    draw = random.Random(5)
    interrupted = node.worker_id == int(os.environ["INTERRUPTED"])
    late = 0
    for i in range(1, 401):
        table.add(np.ones(1, np.int64))
        if interrupted:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0003, 0.0012))
        elif i % 2:
            time.sleep(draw.uniform(0, 0.0008))
        kv.barrier()
        late += int(table.get()[0]) < 2 * i
    signal.setitimer(signal.ITIMER_REAL, 0)
    node.barrier()
    print("late", late, not interrupted or signals > 50)
"""


@pytest.mark.parametrize("interrupted", ["0", "1"])
def test_signals_do_not_put_a_barrier_out_of_step(cluster, interrupted):
    for worker in [cluster.start(IN_STEP, 2, INTERRUPTED=interrupted) for _ in range(2)]:
        out, err = worker.communicate(timeout=120)
        assert (worker.returncode, out) == (0, "late 0 True\n"), err


def test_signals_lose_and_repeat_nothing(cluster):
    workers = [cluster.start(INTERRUPTED, 2) for _ in range(2)]
    for rank, worker in enumerate(workers):
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        assert out.startswith("well")
        assert rank == 1 or int(out.split()[1]) > 20


SERVER = """
import polyverso
from polyverso import kvstore, kvstore_server
seen = []
def controller(head, body):
    seen.append((head, body))
    if head == 13:
        raise ValueError("no such command")
with polyverso.init(role="server"):
    kv = kvstore.create("DIST_sync")
    print(kv.type, kv.rank, kv.num_workers)
    try:
        kv.init(3, [1.0])
    except polyverso.StateError as error:
        print(error.name)
    kvstore_server.KVStoreServer(kv, controller).run()
    print(seen)
"""
COMMANDING = """
import polyverso
from polyverso import kvstore
with polyverso.init(role="worker"):
    kv = kvstore.create("dist_sync")
    kv._send_command_to_servers(7, "hello")
    try:
        kv.send_command(13, "x" * 5000)
    except polyverso.ArgumentError as error:
        print("refused", error.name, "ValueError: no such command" in str(error))
    kv.send_command(8, "", timeout=30)
    print("well")
"""


def test_a_python_process_serves_and_executes_commands(cluster):
    server, worker = cluster.start(SERVER, 2), cluster.start(COMMANDING, 2)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out.split()) == (0, ["refused", "MV_EINVAL", "True", "well"]), err
    out, err = server.communicate(timeout=60)
    assert server.returncode == 0, err
    assert "no such command" in err
    assert out == f"dist_sync 0 1\nMV_ESTATE\n{[(7, 'hello'), (13, 'x' * 5000), (8, '')]}\n"


def test_a_worker_that_serves_executes_its_own_commands(node):
    seen = []
    kvstore.set_controller(lambda head, body: seen.append((head, body)), node)
    kv = kvstore.create("dist_sync", node)
    kv.send_command(1, "one")
    kv.send_command(2, "two")
    assert seen == [(1, "one"), (2, "two")]
    assert kvstore.run_commands(node=node)
    kvstore.set_controller(None, node)
    with pytest.raises(StateError):
        kv.send_command(3, "nobody")
