"""An array in the memory of another process of the machine: in a table at a server, or in Ray's object store.

    polyverso run -n 1 --servers 1 -- store_worker.py polyverso
    store_worker.py ray FOLDER                                     in Ray's environment; FOLDER: for its files

Operations, on BYTES bytes of float32:

get    into own memory, of what the other process holds
view   Ray only: ray.get() without the copy, a read-only view
put    from own memory: set() of the table, ray.put()
"""

import sys

import batch
import numpy as np

STORE_BYTES = 1 << 30  # of Ray's store


class Polyverso:
    def __init__(self):
        import polyverso

        self.node = polyverso.init()
        self.table = None

    def hold(self, values):
        if self.table is None:
            self.table = self.node.array(len(values))
        self.table.set(values)

    def get(self, out):
        self.table.get(out=out)

    put = hold

    def end(self):
        self.node.shutdown()


class Ray:
    def __init__(self, folder):
        import ray

        self.ray = ray
        ray.init(
            num_cpus=1, object_store_memory=STORE_BYTES, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            _temp_dir=folder, _node_ip_address="127.0.0.1",
        )

        class Holder:
            def put(self, values):
                return ray.put(values.copy())

        self.holder = ray.remote(num_cpus=0)(Holder).remote()
        self.held = None

    def hold(self, values):
        self.held = self.ray.get(self.holder.put.remote(values))

    def view(self, _):
        self.seen = self.ray.get(self.held)

    def get(self, out):
        np.copyto(out, self.ray.get(self.held))

    def put(self, values):
        self.held = None  # one object less to keep
        self.held = self.ray.put(values)

    def end(self):
        self.ray.shutdown()


def server(store):
    """The prepare() of batch.serve()."""
    batches = 0

    def prepare(operation, size):
        nonlocal batches
        batches += 1
        count = size // 4
        values, out = np.full(count, batches, np.float32), np.zeros(count, np.float32)
        if operation == "put":
            once, argument = store.put, values
        else:
            store.hold(values)
            once, argument = getattr(store, operation), out

        def repeat(times):
            for _ in range(times):
                once(argument)

        def check():
            if operation != "get":
                store.get(out)
            if not (out == batches).all():
                batch.fail(f"{operation}: the values are wrong")

        return repeat, check

    return prepare


def main(kind, *words):
    store = {"polyverso": Polyverso, "ray": Ray}[kind](*words)
    batch.serve(server(store))
    store.end()


main(*sys.argv[1:])
