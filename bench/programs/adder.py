"""Additions of float32 in one process. Operations, on BYTES bytes each:

numpy    a += b, of arrays
table    add() of an array, to a table in a cluster of one process
tensor   a += b, of tensors
"""

import batch
import numpy as np
import polyverso

node = polyverso.init()


class Numpy:
    def __init__(self, count):
        self.sum, self.ones = np.zeros(count, np.float32), np.ones(count, np.float32)

    def clear(self):
        self.sum.fill(0)

    def add(self):
        self.sum += self.ones

    def values(self):
        return self.sum


class Table:
    def __init__(self, count):
        self.table, self.ones = node.array(count), np.ones(count, np.float32)

    def clear(self):
        self.table.set(np.zeros_like(self.ones))

    def add(self):
        self.table.add(self.ones)

    def values(self):
        return self.table.get()


class Tensor:
    def __init__(self, count):
        self.sum, self.ones = polyverso.Tensor.zeros(count), polyverso.Tensor.ones(count)

    def clear(self):
        self.sum.fill(0)

    def add(self):
        self.sum += self.ones

    def values(self):
        return self.sum.numpy()


KINDS = {"numpy": Numpy, "table": Table, "tensor": Tensor}
made = {}  # by operation and elements


def prepare(operation, size):
    if operation not in KINDS:
        batch.fail(f"unknown operation {operation}")
    count = size // 4
    if (operation, count) not in made:
        made[operation, count] = KINDS[operation](count)
    adder = made[operation, count]
    adder.clear()
    done = 0

    def repeat(times):
        nonlocal done
        for _ in range(times):
            adder.add()
        done += times

    def check():
        if not (adder.values() == done).all():
            batch.fail(f"{operation}: not all values are {done} after so many adds of 1")

    return repeat, check


batch.serve(prepare)
node.shutdown()
