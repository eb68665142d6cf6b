"""The calls of a key-value store program that differ between Polyverso and MXNet."""

import numpy as np


class Polyverso:
    piles_up = False

    def __init__(self, dist):
        import polyverso
        from polyverso import kvstore, optimizer

        self.kv, self.optimizers, self._tensor = kvstore, optimizer, polyverso.Tensor
        self._node = polyverso.init() if dist else None

    def array(self, values):
        return self._tensor.copy_of(values)

    def row_sparse(self, values):
        return self.array(values).to_sparse()

    def no_rows(self, shape):
        return self._tensor.zeros(shape).to_sparse()

    def ids(self, values):
        return self._tensor.copy_of(values)

    def numbers(self, array):
        return array.numpy()

    def rows_of(self, array):
        ids, rows = array.parts()
        return ids.numpy(), rows.numpy()

    def wait(self, array):
        """Does nothing: a pull is blocking."""

    def finish(self):
        """Waits until the servers have applied all pushes."""
        self._node.barrier()

    def done(self):
        if self._node is not None:
            self._node.shutdown()


class MXNet:
    # Without an optimizer, MXNet's servers add the merged values of two workers to those of the earlier rounds.
    piles_up = True

    def __init__(self, dist):
        import mxnet

        self.kv, self.optimizers, self._mx = mxnet.kv, mxnet.optimizer, mxnet

    def array(self, values):
        return self._mx.nd.array(values, dtype=values.dtype)

    def row_sparse(self, values):
        return self.array(values).tostype("row_sparse")

    def no_rows(self, shape):
        return self._mx.nd.sparse.zeros("row_sparse", shape)

    def ids(self, values):
        return self._mx.nd.array(values, dtype=np.int64)

    def numbers(self, array):
        return array.asnumpy()

    def rows_of(self, array):
        return array.indices.asnumpy(), array.data.asnumpy()

    def wait(self, array):
        array.wait_to_read()

    def done(self):
        self._mx.nd.waitall()


LIBRARIES = {"polyverso": Polyverso, "mxnet": MXNet}
