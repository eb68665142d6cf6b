"""MXNet's KVStore as the peer in comparisons: the only worker of a cluster that bench/harness/mxnet.py starts.

It has two of the operations of table_worker.c, and the halves of the first:
add_get   push, then pull, waiting for both
push      push, waiting for it
pull      pull, waiting for it
forget    asynchronous pushes, with one wait for all of them at the end of each block

The store is dist_sync: with one worker, that means push and pull without a server-side optimizer. In dist_async, MXNet
runs a Python optimizer for each push. The server assigns what it receives, which is less work than adding it.
"""

import batch
import mxnet as mx

store = mx.kv.create("dist_sync")
arrays = {}  # by size: key, pushed, pulled


def make(count):
    key = str(len(arrays))
    arrays[count] = (key, mx.nd.ones((count,)), mx.nd.zeros((count,)))
    store.init(key, mx.nd.zeros((count,)))
    mx.nd.waitall()


def prepare(operation, size):
    count = size // 4
    if count not in arrays:
        make(count)
    key, pushed, pulled = arrays[count]

    def add_get(times):
        for _ in range(times):
            store.push(key, pushed)
            store.pull(key, out=pulled)
            pulled.wait_to_read()

    def forget(times):
        for _ in range(times):
            store.push(key, pushed)
        store.pull(key, out=pulled)  # waits for the pushes, which the server acknowledges one by one
        mx.nd.waitall()

    def push(times):
        for _ in range(times):
            store.push(key, pushed)
            mx.nd.waitall()

    def pull(times):
        for _ in range(times):
            store.pull(key, out=pulled)
            pulled.wait_to_read()

    def check():
        if operation == "push":
            pull(1)
        if pulled[count - 1].asscalar() != 1:
            batch.fail(f"{operation}: {pulled[count - 1].asscalar()} pulled after pushing 1")

    repeat = {"add_get": add_get, "forget": forget, "push": push, "pull": pull}.get(operation)
    if operation == "pull":
        push(1)
    if repeat is None:
        batch.fail(f"unknown operation {operation}")
    return repeat, check


batch.serve(prepare)
