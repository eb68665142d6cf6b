"""One member of soak.py's clusters, in Python; member.pl, member.lua and member.c do the same.

It reads commands from the FIFO $SOAK/in-$POLYVERSO_RANK, one per line, "NUMBER NAME ARGUMENTS", and writes the outcome
of each to $SOAK/out-$POLYVERSO_RANK:

    NUMBER begin                    before the call
    NUMBER ok RESULT                its end; for an asynchronous add, after the wait for it
    NUMBER again STATUS TEXT        it failed because a peer was lost, and is retried
    NUMBER error STATUS TEXT        it failed
    NUMBER skip                     the object that it uses could not be created

Elements belong to workers: element i to worker i modulo `width`. An add or a push adds 1 to all elements of one worker.
Values that were read are reported as the least and the greatest of each worker's elements. A size is a multiple of the
width.
"""

import os
import sys

import numpy as np

import polyverso
from polyverso import distlearn, gossip, kvstore
from polyverso.group import Group

KEYS = ["a", "b", "c"]
PLACE = os.path.join(os.environ["SOAK"], "%s-" + os.environ["POLYVERSO_RANK"])
things = {}  # tables, the store, the group, the gossiping node, by name
later = []  # asynchronous adds: their commands and requests


def tell(*words):
    out.write(" ".join(map(str, words)).replace("\n", " ") + "\n")
    out.flush()


def ones(worker, size, width):
    values = np.zeros(int(size), np.float32)
    values[int(worker) :: int(width)] = 1
    return values


def extremes(values, width):
    return " ".join(f"{values[w::width].min():g} {values[w::width].max():g}" for w in range(width))


def table(name, kind, consistency, size, width):
    more = {"async": {}, "sync": {"staleness": 0}, "stale": {"staleness": 2}, "merge": {"merge": True}}[consistency]
    if kind == "array":
        things[name] = node.array(int(size), name=name, **more), int(size), int(width)
    else:
        things[name] = node.keyvalue(1, name=name, **more), int(size), int(width)


def keys_of(made, size):
    return None if len(made.shape) else list(range(size))


def add(name, worker, how):
    made, size, width = things[name]
    values, keys = ones(worker, size, width), None
    if keys_of(made, size):
        keys = list(range(int(worker), size, width))
        values = values[keys]
    if how == "async":
        later.append((number, made.add_async(values, keys=keys)))
    else:
        made.add(values, keys=keys)


def wait():
    for of, request in later:
        try:
            request.wait()
            tell(of, "ok")
        except polyverso.Error as error:
            tell(of, "error", error.name, error.text)
    later.clear()


def get(name):
    made, size, width = things[name]
    return extremes(made.get(keys=keys_of(made, size)), width)


def look(name):
    made, size, width = things[name]
    return extremes(made.peek(keys=keys_of(made, size)), width)


def peek(name, element):
    return "%g" % things[name][0].peek(rows=[int(element)])[0]


def store(kind, size, width):
    made = kvstore.create(kind)
    made.init(KEYS, [np.zeros(int(size), np.float32)] * 3)
    if made.rank == 0:
        made.set_optimizer("sgd rate=1")
    if kind.startswith("dist"):
        made.barrier()
    things["store"] = made, int(size), int(width)


def push(worker):
    made, size, width = things["store"]
    made.push(KEYS, [-ones(worker, size, width)] * 3)


def pull():
    made, size, width = things["store"]
    out = [np.empty(size, np.float32) for _ in KEYS]
    made.pull(KEYS, out=out)
    return extremes(np.concatenate(out), width)


def group():
    things["group"] = Group(node)


def reduce(count):
    made = things["group"]
    values = made.allreduce(np.ones(int(count), np.float32))
    return f"{made.size} {values.min():g} {values.max():g}"


def shrink():
    old = things["group"]
    things["group"] = old.shrink()
    old.close()
    return things["group"].size


def elastic(steps):
    values = np.full(300, node.worker_id, np.float32)
    with distlearn.AllReduceEA(things["group"], 2, 0.1) as strategy:
        for _ in range(int(steps)):
            strategy.average_parameters([values])
        strategy.synchronize_center([values])
        strategy.read_center([values])
    return f"{values.min():g} {values.max():g}"


def gossip_open(name, value):
    config = {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 500}
    model = np.full(1000, float(value), np.float32)
    made = gossip.ArrayAdapter([model], name, config)
    things["gossip"] = made, model
    return made.gossip.state["address"].rsplit(":", 1)[1]


def peer(name, port):
    things["gossip"][0].gossip.add_peer(name, "127.0.0.1", int(port))


def step():
    made, model = things["gossip"]
    made.update_send(1)
    factor = made.update_wait(1)
    return f"{factor:g} {model.min():.9g} {model.max():.9g}"


def init():
    global node
    node = polyverso.init()
    return node.worker_id


def shutdown():
    node.shutdown()


CALLS = {
    "init": init, "table": table, "add": add, "wait": wait, "get": get, "look": look, "peek": peek, "barrier": lambda: node.barrier(),
    "clock": lambda name: things[name][0].clock(), "status": lambda: len(node.status_text()), "store": store, "push": push, "pull": pull,
    "group": group, "reduce": reduce, "shrink": shrink, "elastic": elastic, "gossip": gossip_open, "peer": peer, "step": step,
    "shutdown": shutdown,
}
REPEATED = {"get", "pull", "barrier"}

with open(PLACE % "out", "w") as out, open(PLACE % "in") as commands:
    tell(0, "up")
    while True:
        number, name, *arguments = commands.readline().split()
        if name == "quit":
            break
        tell(number, "begin")
        for left in reversed(range(5)):
            try:
                result = CALLS[name](*arguments)
                if not later or later[-1][0] != number:
                    tell(number, "ok", "" if result is None else result)
                break
            except (KeyError, NameError):
                tell(number, "skip")
                break
            except polyverso.Error as error:
                again = name in REPEATED and left > 0 and error.name == "MV_EPEERLOST"
                tell(number, "again" if again else "error", error.name, error.text)
                if not again:
                    break
sys.stdout.flush()
