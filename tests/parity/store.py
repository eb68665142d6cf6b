"""One worker of mixed_test.py's stores, in Python; store.pl and store.lua do the same. Prints the result of every
pull."""

import numpy as np
import polyverso
from polyverso import kvstore

SHAPE, ROUNDS = (5, 3), 6


def delta(worker, turn):
    # Thirds are not exact in float, so another order of the additions gives other bits.
    values = [((k * 7 + worker * 13 + turn * 29) % 31 - 15) / 3 * 10**worker for k in range(15)]
    return np.array(values, np.float32).reshape(SHAPE)


def show(name, values):
    print(name, *("%.9g" % value for value in values.ravel()))


with polyverso.init():
    named, numbered = kvstore.create("dist_sync"), kvstore.create("dist_sync")
    worker = named.rank
    w, b, out = delta(worker, 99), delta(worker, 98), np.zeros(SHAPE, np.float32)
    named.init(["w", "b"], [w, b])
    numbered.init([3, 7], [w, b])
    if worker == 0:
        named.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
    named.barrier()
    for turn in range(ROUNDS):
        named.push(["w", "b"], [[delta(worker, turn), delta(worker, turn + 50)], [delta(worker, -turn)]])
        numbered.push(7, delta(worker, turn))
        named.pull(["b", "w"], out=[b, w])
        numbered.pull(7, out=out)
        for name, values in {"w": w, "b": b, "7": out}.items():
            show(name, values)
    numbered.pull(3, out=out)
    show("3", out)
