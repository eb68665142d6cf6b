"""A worker on a key-value store, the same program for Polyverso and for MXNet.

    kv_worker.py polyverso|mxnet TYPE CASE BYTES [accompany]

push_pull   push and pull of one key, until the pulled value has arrived
push        push of one key, until the server has applied it; only for Polyverso
pull        pull of one key
devices     the same with four arrays in and four out
adam        push_pull with Adam on the side that stores the values
rows        row_sparse_pull of one row in a hundred of a matrix with 64 columns
many        push of 1 KiB to each of BYTES / 1 KiB keys in one call, then pull in another

One worker runs the batches that the driver requests, see batch.py. The other workers accompany it: they push and pull
as often as it does, without knowing the number in advance. Element 0 signals the end: all workers push 0 there until
the measuring worker pushes 1.
"""

import sys

import batch
import numpy as np
from kv_libraries import LIBRARIES

DEVICES, COLUMNS, PART = 4, 64, 100
KEY = "w"


class PushPull:
    """Push and pull of one key. The arrays hold ones, except element 0."""

    devices = 1
    optimizer = None

    def __init__(self, library, store, size):
        self.library, self.store = library, store
        ones = np.ones(size // 4, np.float32)
        ones[0] = 0
        if self.optimizer and store.rank == 0:
            store.set_optimizer(library.optimizers.create(self.optimizer))
        store.init(KEY, library.array(np.zeros_like(ones)))
        self.pushed = [library.array(ones) for _ in range(self.devices)]
        self.pulled = [library.array(np.zeros_like(ones)) for _ in range(self.devices)]

    def once(self):
        self.store.push(KEY, self.pushed)
        self.store.pull(KEY, out=self.pulled)
        for array in self.pulled:
            self.library.wait(array)

    def repeat(self, times):
        for _ in range(times):
            self.once()

    def check(self):
        wanted = self.devices * self.store.num_workers
        for array in self.pulled:
            if not self.is_right(self.library.numbers(array)[1:], wanted):
                batch.fail("what was pulled is wrong")

    def is_right(self, values, wanted):
        if self.library.piles_up and self.store.num_workers > 1:
            return (values == values[:1]).all() and (values > 0).all()
        return (values == wanted).all()

    def say_end(self):
        last = np.zeros(len(self.library.numbers(self.pushed[0])), np.float32)
        last[0] = 1
        self.pushed = [self.library.array(last)] * self.devices
        self.once()

    def accompany(self):
        while self.library.numbers(self.pulled[0])[0] == 0:
            self.once()


class Push(PushPull):
    def once(self):
        self.store.push(KEY, self.pushed)
        self.library.finish()

    def check(self):
        self.store.pull(KEY, out=self.pulled)
        super().check()


class Pull(PushPull):
    def __init__(self, library, store, size):
        super().__init__(library, store, size)
        super().once()

    def once(self):
        self.store.pull(KEY, out=self.pulled)
        for array in self.pulled:
            self.library.wait(array)


class Devices(PushPull):
    devices = DEVICES


class Adam(PushPull):
    optimizer = "adam"

    def is_right(self, values, wanted):
        return (values < 0).all() and (values == values[:1]).all()


class Rows:
    def __init__(self, library, store, size):
        self.library, self.store = library, store
        self.height = size // 4 // COLUMNS
        values = np.repeat(np.arange(1, self.height + 1, dtype=np.float32), COLUMNS).reshape(-1, COLUMNS)
        store.init(KEY, library.row_sparse(values))
        self.wanted = np.sort(np.random.default_rng(1).choice(self.height, self.height // PART, replace=False))
        self.ids = library.ids(np.random.default_rng(2).permutation(self.wanted))
        self.out = library.no_rows(values.shape)

    def repeat(self, times):
        for _ in range(times):
            self.store.row_sparse_pull(KEY, out=self.out, row_ids=self.ids)
            self.library.wait(self.out)

    def check(self):
        ids, rows = self.library.rows_of(self.out)
        if not (np.array_equal(ids, self.wanted) and (rows == self.wanted[:, None] + 1).all()):
            batch.fail("the rows that were pulled are wrong")


class Many:
    def __init__(self, library, store, size):
        self.library, self.store = library, store
        self.keys = [str(number) for number in range(size >> 10)]
        values = np.ones(256, np.float32)
        store.init(self.keys, [library.array(0 * values) for _ in self.keys])
        self.pushed = [library.array((1 + number) * values) for number in range(len(self.keys))]
        self.pulled = [library.array(0 * values) for _ in self.keys]

    def repeat(self, times):
        for _ in range(times):
            self.store.push(self.keys, self.pushed)
            self.store.pull(self.keys, out=self.pulled)
            for array in self.pulled:
                self.library.wait(array)

    def check(self):
        for number, array in enumerate(self.pulled):
            if not (self.library.numbers(array) == 1 + number).all():
                batch.fail(f"what was pulled of key {number} is wrong")


CASES = {"push_pull": PushPull, "push": Push, "pull": Pull, "devices": Devices, "adam": Adam, "rows": Rows, "many": Many}


def main(name, type_name, case_name, size, *accompanies):
    library = LIBRARIES[name](type_name.startswith("dist"))
    store = library.kv.create(type_name)
    case = CASES[case_name](library, store, int(size))
    # `polyverso run` gives all workers the same arguments. MXNet assigns ranks in any order; each worker has its own.
    if accompanies or (name == "polyverso" and store.rank != 0):
        case.accompany()
    else:
        batch.serve(lambda *_: (case.repeat, case.check))
        if store.num_workers > 1:
            case.say_end()
    library.done()


if __name__ == "__main__":
    main(*sys.argv[1:])
