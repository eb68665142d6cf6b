"""Arrays of other libraries, wherever arrays are taken: by DLPack, __array_interface__ or a buffer, from pandas and PyTorch."""

import array as arrays

import numpy as np
import pytest

import polyverso
from polyverso import Tensor, distlearn, gossip, kvstore
from polyverso.group import Group


class ByDlpack:
    """Known only by its DLPack interface."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape

    def __dlpack__(self, **wishes):
        return self.values.__dlpack__()


class Constant(ByDlpack):
    """Like a JAX array of bfloat16: numpy gets a read-only view of it, and it has no buffer."""

    def __array__(self, dtype=None, copy=None):
        view = self.values.view()
        view.flags.writeable = False
        return view


class ByInterface:
    """Known only by __array_interface__."""

    def __init__(self, values):
        self.values = values
        self.__array_interface__ = values.__array_interface__


class WithGradient:
    """Like a PyTorch tensor that requires a gradient: it exports its memory only after detach()."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape

    def __dlpack__(self, **wishes):
        raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")

    def detach(self):
        return Detached(self.values)


class Detached(ByDlpack):
    dtype = "float32"

    def detach(self):
        return self

    def cpu(self):
        return self

    def contiguous(self):
        return self


class Column:
    """Like a pandas column: a view by to_numpy(), or with `copies` a copy."""

    def __init__(self, values, copies=False):
        self.values = values
        self.copies = copies

    def to_numpy(self):
        return self.values.copy() if self.copies else self.values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def of_numpy(values):
    return values


def in_buffer(values):
    return memoryview(values)


KINDS = [of_numpy, in_buffer, ByDlpack, ByInterface, WithGradient, Column, Tensor.view]


@pytest.fixture
def group(node):
    with Group(node) as group:
        yield group


@pytest.fixture(params=KINDS, ids=lambda kind: getattr(kind, "__name__", "Tensor"))
def kind(request):
    return request.param


def floats(*values):
    return np.array(values, "f4")


def test_arrays_that_do_not_change(node, group):
    values = floats(1, 2)
    given = Constant(values)
    table, kv = node.array(2), kvstore.create("local")
    kv.init("w", given)
    kv.push("w", given)
    table.add(given)
    for call in (
        lambda: table.get(out=given),
        lambda: group.allreduce(given),
        lambda: group.allreduce_custom(given, lambda mine, theirs: mine),
        lambda: kv.pull("w", out=given),
        lambda: distlearn.AllReduceSGD(group).synchronize_parameters([given]),
        lambda: gossip.ArrayAdapter(given, "a", {"nodes": [{"name": "a", "host": "127.0.0.1", "port": 0}]}),
    ):
        with pytest.raises(polyverso.ArgumentError, match="read-only"):
            call()
    assert values.tolist() == table.get().tolist() == group.allgather(given)[0].tolist() == [1, 2]


def test_tables(node, kind):
    table = node.array(3, init=kind(floats(1, 2, 3)))
    table.add(kind(floats(1, 1, 1)))
    table.add(kind(np.array([5])), rows=kind(np.array([2])))
    out = floats(0, 0, 0)
    given = kind(out)
    assert table.get(out=given) is given
    assert out.tolist() == [2, 3, 9]
    table.set(kind(floats(7, 8, 9)))
    assert table.get_async(out=given).wait() is given
    assert out.tolist() == [7, 8, 9]


def test_groups(group, kind):
    values = floats(1, 2)
    given = kind(values)
    assert group.allreduce(given) is given
    assert group.broadcast(given) is given
    group.allreduce_many([given])
    group.broadcast_many([given])
    group.reduce(given)
    assert group.allgather(given).tolist() == [[1, 2]]
    assert group.reduce_scatter(given).tolist() == [1, 2]
    with distlearn.AllReduceEA(group, tau=1, alpha=0.5) as ea:
        ea.synchronize_parameters([given, {"a": given}])
        values += 2
        ea.average_parameters([[given], given])
    assert values.tolist() == [1.5, 2.5]  # moved twice


def test_stores(kind):
    kv = kvstore.create("local")
    kv.init("w", kind(floats(1, 2)))
    kv.push("w", [kind(floats(1, 1)), kind(floats(2, 2))])
    out = floats(0, 0)
    kv.pull("w", out=kind(out))
    assert out.tolist() == [3, 3]


def test_gossip(kind):
    lone = [{"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000} for name in "ab"]
    own, other = floats(0, 0), floats(4, 2)
    with gossip.ArrayAdapter([kind(own)], "a", lone[0]) as a, gossip.ArrayAdapter([kind(other)], "b", lone[1]) as b:
        a.gossip.add_peer("b", "127.0.0.1", int(b.gossip.state["address"].rsplit(":", 1)[1]))
        b.update_send(1)
        a.update_send(1)
        assert a.update_wait(1) == 0.5
    assert own.tolist() == [2, 1]


def test_bytes_of_standard_arrays(node):
    out = arrays.array("f", [0, 0])
    node.array(2, init=arrays.array("f", [1, 2])).get(out=out)
    assert list(out) == [1, 2]


@pytest.mark.parametrize("make", [lambda values: Column(values, copies=True), list, lambda values: values.tobytes(), lambda _: 3.0])
def test_results_need_memory(node, group, make):
    for call in (node.array(2).get, group.allreduce, group.broadcast):
        with pytest.raises(polyverso.ArgumentError):
            call(**{"out" if call.__name__ == "get" else "array": make(floats(1, 2))})
    kv = kvstore.create("local")
    kv.init("w", floats(1, 2))
    with pytest.raises((polyverso.ArgumentError, TypeError)):
        kv.pull("w", out=[make(floats(1, 2))])


def test_a_column_that_copies_is_read(node):
    table = node.array(2, init=Column(floats(1, 2), copies=True))
    assert table.get().tolist() == [1, 2]
    kv = kvstore.create("local")
    kv.init("w", Column(floats(1, 2), copies=True))


def test_pytorch(node, group):
    torch = pytest.importorskip("torch")
    weights = torch.ones(2, 3, requires_grad=True)
    table = node.matrix(2, 3)
    table.add(weights)
    table.add([row for row in weights])
    table.add(torch.ones(3, 2).T)  # a copy in rows
    table.add(torch.ones(2, 3, dtype=torch.int16))
    table.add(torch.full((2, 3), 2, dtype=torch.bfloat16))
    table.add(torch.ones(2, 3, dtype=torch.bool), rows=torch.tensor([0, 1]))
    out = torch.zeros(2, 3, requires_grad=True)
    assert table.get(out=out) is out
    assert out.tolist() == [[7] * 3] * 2
    group.allreduce(weights)
    kv = kvstore.create("local")
    kv.init("w", weights)
    kv.pull("w", out=out)
    assert out.tolist() == [[1] * 3] * 2
    halves = node.array(2, dtype="bf16", init=torch.tensor([1.5, 2], dtype=torch.bfloat16))
    taken = torch.zeros(2, dtype=torch.bfloat16)
    halves.get(out=taken)
    assert taken.tolist() == [1.5, 2]
    with pytest.raises(polyverso.ArgumentError, match="contiguous"):
        table.get(out=torch.zeros(3, 2).T)
