"""Threads make random calls on random objects, which other threads close and drop meanwhile. Every call must succeed or
raise an error of the library.

It runs in a process of its own, because a failure may be a crash; a hang prints all stacks. tests/capi/random_handles.c
is the larger test.
"""

import os
import subprocess
import sys

SCRIPT = """
import faulthandler, random, sys, threading
import numpy as np
import polyverso
from polyverso import Tensor, distlearn, kvstore
from polyverso.gossip import Gossip
from polyverso.group import Group

SEED, CALLS, THREADS, SECONDS = (int(one) for one in sys.argv[1:])
SETTINGS = dict(timeout_ms=200, gate_timeout_ms=200, init_timeout_ms=2000, log_level="off")
GOSSIP = {"nodes": [{"name": "a", "host": "127.0.0.1", "port": 0}], "timeout_ms": 20}
faulthandler.dump_traceback_later(SECONDS, exit=True)
ALONE = polyverso.init(**SETTINGS).size == 1  # it stays, so that there is always something to call
places = {kind: [None] * 6 for kind in ("node", "table", "request", "tensor", "store", "gossip", "group", "strategy")}
ones = np.ones(64, np.float32)


def pick(chance, kind):
    for _ in range(4):
        found = chance.choice(places[kind])
        if found is not None:
            return found
    return chance.choice([one for some in places.values() for one in some])  # of another kind, perhaps nothing


def put(chance, kind, made):
    places[kind][chance.randrange(6)] = made  # what was there is dropped


def node_of(chance):
    return pick(chance, "node") if chance.random() < 0.5 else polyverso.Node(0)


def make_table(chance):
    node, name = node_of(chance), chance.choice("abcdef")
    put(chance, "table", chance.choice([
        lambda: node.array(64, name=name), lambda: node.matrix(8, 8, name=name), lambda: node.keyvalue(2, name=name),
        lambda: node.array(64, name=name, staleness=1), lambda: node.open(name),
    ])())


def use_table(chance):
    table, rows = pick(chance, "table"), [chance.randrange(10) for _ in range(2)]
    result = chance.choice([
        lambda: table.add(ones, timeout=0.05), lambda: table.add_async(ones), lambda: table.get(timeout=0.05), lambda: table.get_async(),
        lambda: table.get_async(rows=rows), lambda: table.peek_async(), lambda: table.add_async(ones[:16], rows=rows),
        lambda: table.set_async(ones), lambda: table.erase_async(rows=rows), lambda: table.info(), lambda: table.clock(),
        lambda: table.close() if chance.random() < 0.2 else None, lambda: table.destroy() if chance.random() < 0.2 else None,
    ])()
    if isinstance(result, polyverso.Request):
        put(chance, "request", result)


def use_request(chance):
    request = pick(chance, "request")
    chance.choice([lambda: request.done(), lambda: request.wait(0.005), lambda: request.cancel(), lambda: put(chance, "request", None)])()


def use_tensor(chance):
    tensor = pick(chance, "tensor")
    put(chance, "tensor", chance.choice([
        lambda: Tensor.zeros((8, 8)), lambda: Tensor.range(64), lambda: tensor + 1, lambda: tensor.reshape(64), lambda: tensor[1:3],
        lambda: tensor.sum(), lambda: Tensor.view(tensor.numpy()), lambda: tensor.free(), lambda: tensor.copy(),
    ])())


def use_store(chance):
    store, key = pick(chance, "store"), chance.randrange(4)
    result = chance.choice([
        lambda: kvstore.create(chance.choice(["local", "dist_async", "dist_sync"])), lambda: store.init(key, ones),
        lambda: store.push(key, ones, timeout=0.05), lambda: store.pull(key, ones.copy(), timeout=0.05),
        lambda: store.pull_async(key, ones.copy()), lambda: store.rank,
    ])()
    if result is not None and not isinstance(result, int):
        put(chance, "request" if isinstance(result, polyverso.Request) else "store", result)


def use_gossip(chance):
    gossip = pick(chance, "gossip")
    made = chance.choice([
        lambda: Gossip(GOSSIP, "a") if chance.random() < 0.05 else None, lambda: gossip.publish([ones], 1), lambda: gossip.fetch_start(),
        lambda: gossip.fetch_wait(1), lambda: gossip.state, lambda: gossip.close() if chance.random() < 0.1 else None,
    ])()
    if isinstance(made, Gossip):
        put(chance, "gossip", made)


def use_group(chance):
    group, strategy = pick(chance, "group"), pick(chance, "strategy")
    made = chance.choice([
        lambda: Group(node_of(chance)), lambda: group.allreduce(ones.copy(), timeout=0.02), lambda: group.barrier(timeout=0.02),
        lambda: group.broadcast(ones.copy(), timeout=0.02), lambda: group.info, lambda: group.close() if chance.random() < 0.3 else None,
        lambda: distlearn.AllReduceSGD(group), lambda: distlearn.AllReduceEA(group, 2, 0.1), lambda: distlearn.AsyncEA(pick(chance, "table"), 1, 0.1),
        lambda: strategy.sum_gradients([ones.copy()], timeout=0.02), lambda: strategy.average_parameters([ones.copy()], timeout=0.02),
        lambda: strategy.meter, lambda: strategy.close(),
    ])()
    if isinstance(made, Group):
        put(chance, "group", made)
    elif hasattr(made, "meter"):
        put(chance, "strategy", made)


def use_node(chance):
    node = node_of(chance)
    result = chance.choice([
        lambda: node.rank, lambda: node.poll(4), lambda: node.barrier(0.02), lambda: node.barrier_async(), lambda: node.tables(),
        lambda: polyverso.open_node(**SETTINGS) if ALONE and chance.random() < 0.05 else None,
        lambda: node.shutdown() if node.handle != 0 and chance.random() < 0.1 else None,
    ])()
    if isinstance(result, polyverso.Request):
        put(chance, "request", result)
    elif isinstance(result, polyverso.Node):
        put(chance, "node", result)


WORK = [make_table] * 2 + [use_table] * 20 + [use_request] * 10 + [use_tensor] * 10 + [use_store] * 4
WORK += [use_gossip] * 3 + [use_group] * 4 + [use_node] * 4
failures = []
succeeded = [0] * THREADS


def work(number):
    chance = random.Random(SEED * 1000 + number)
    try:
        for _ in range(CALLS // THREADS):
            call = chance.choice(WORK)
            try:
                call(chance)
                succeeded[number] += 1
            except polyverso.Error as error:
                if error.name == "MV_EINTERNAL":
                    raise
            except (AttributeError, TypeError, IndexError, ValueError, BufferError):
                pass  # an object of another kind, or none
    except BaseException as failure:
        failures.append(failure)
        raise


threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
nodes = [node for node in places["node"] if node is not None] + [polyverso.Node(0)]
places.clear()
for node in nodes:
    try:
        node.shutdown()
    except polyverso.Error:
        pass  # it may tell of a call that was dropped
print(sum(succeeded), "of", CALLS)
sys.exit(1 if failures or sum(succeeded) < CALLS // 10 else 0)
"""


def test_random_calls_on_random_objects():
    seed = os.environ.get("POLYVERSO_TEST_SEED", "1")
    calls = os.environ.get("POLYVERSO_TEST_CALLS", "100000")
    seconds = os.environ.get("POLYVERSO_TEST_SECONDS", "200")
    command = [sys.executable, "-c", SCRIPT, seed, calls, "4", seconds]
    done = subprocess.run(command, timeout=int(seconds) + 50, capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}, {calls} calls: {done.returncode} {done.stdout}\n{done.stderr[-8000:]}"
