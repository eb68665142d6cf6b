"""The cost of a call from Python, in a cluster of one process. caller.pl and caller.lua have the same operations:

add, get                 the C functions under their own names
method_add, method_get   the table's methods
"""

import batch
import numpy as np
import polyverso
from polyverso import capi

node = polyverso.init()
tables = {}  # by size


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


def prepare(operation, size):
    count = size // 4
    if count not in tables:
        make(count)
    table, data, out = tables[count]
    table.set([0], rows=[count - 1])
    repeat = calls(operation, table, data, out)
    done = 0

    def counted(times):
        nonlocal done
        repeat(times)
        done += times

    def check():
        if operation.endswith("add") and table.get(rows=[count - 1])[0] != done:
            batch.fail(f"{operation}: {table.get(rows=[count - 1])[0]} after {done} adds of 1")

    return counted, check


batch.serve(prepare)
node.shutdown()
