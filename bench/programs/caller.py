"""The cost of a call from Python, in a cluster of one process. caller.pl and caller.lua have the same operations:

add, get                 the C functions under their own names
method_add, method_get   the table's methods
rows_add, rows_get       these on four rows of a matrix with four columns, whose ids are an array
keys_add, keys_get       the same on four keys of a key-value table
"""

import batch
import numpy as np
import polyverso
from polyverso import capi

node = polyverso.init()
tables = {}  # by size
matrix, keyvalue = node.matrix(1000, 4), node.keyvalue(4)
ids = np.array([7, 300, 12, 999])
block, received = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)


def make(count):
    for other in tables.values():
        other[0].destroy()
    tables.clear()
    tables[count] = (node.array(count), np.ones(count, np.float32), np.zeros(count, np.float32))


def calls(operation, table, data, out):
    handle = table.handle
    if operation == "add":
        function, arguments = capi.mv_table_add, (handle, data)
    elif operation == "get":
        function, arguments = capi.mv_table_get, (handle, out)
    elif operation == "method_add":
        function, arguments = table.add, (data,)
    elif operation == "method_get":
        function, arguments = table.get, (None, out)
    else:
        batch.fail(f"unknown operation {operation}")

    def repeat(times):
        for _ in range(times):
            function(*arguments)

    return repeat


def rows_add(times):
    for _ in range(times):
        matrix.add(block, rows=ids)


def rows_get(times):
    for _ in range(times):
        matrix.get(rows=ids, out=received)


def keys_add(times):
    for _ in range(times):
        keyvalue.add(block, keys=ids)


def keys_get(times):
    for _ in range(times):
        keyvalue.get(keys=ids, out=received)


SOME = {"rows_add": (matrix, rows_add), "rows_get": (matrix, rows_get), "keys_add": (keyvalue, keys_add), "keys_get": (keyvalue, keys_get)}


def whole_table(operation, size):
    """repeat(times) of a call on a whole table, and look(), which returns what the table then holds."""
    count = size // 4
    if count not in tables:
        make(count)
    table, data, out = tables[count]
    table.set([0], rows=[count - 1])
    return calls(operation, table, data, out), lambda: table.get(rows=[count - 1])


def some_rows(operation):
    """The same for calls on four rows or keys."""
    table, repeat = SOME[operation]
    table.set(0 * block, rows=ids)
    if operation.endswith("get"):
        table.set(block, rows=ids)
        received.fill(0)
        return repeat, lambda: received - 1
    return repeat, lambda: table.get(rows=ids)


def prepare(operation, size):
    repeat, look = some_rows(operation) if operation in SOME else whole_table(operation, size)
    adds, done = operation.endswith("add"), 0

    def counted(times):
        nonlocal done
        repeat(times)
        done += times if adds else 0

    def check():
        if (look() != done).any():
            batch.fail(f"{operation}: {look()} after {done} adds of 1")

    return counted, check


batch.serve(prepare)
node.shutdown()
