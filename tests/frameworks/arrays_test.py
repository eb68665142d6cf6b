"""Arrays of JAX and pandas, wherever arrays are taken. Both are read-only, so results go into numpy's."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pandas  # noqa: E402
import pytest  # noqa: E402
from conftest import lone  # noqa: E402

import polyverso  # noqa: E402
from polyverso import Tensor, distlearn, gossip, kvstore, optimizer  # noqa: E402
from polyverso.group import Group  # noqa: E402

MAKERS = {
    "jax": lambda values: jnp.asarray(values, jnp.float32),
    "jax bfloat16": lambda values: jnp.asarray(values, jnp.bfloat16),
    "pandas": lambda values: pandas.Series(values, dtype="float32"),
}


@pytest.fixture
def node():
    with polyverso.init() as node:
        yield node


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    return request.param


def values_of(array):
    if isinstance(array, Tensor):  # numpy gets the bits of bfloat16
        return array.cast("f32").to_list()
    return np.asarray(array).astype("f4").tolist()


def test_tables(node, make):
    for dtype in ("f32", "f64", "bf16"):
        table = node.array(3, dtype=dtype, init=make([1, 2, 3]))
        table.add(make([1, 1, 1]))
        table.add_async(make([1, 1, 1])).wait()
        table[:] += make([1, 1, 1])
        assert values_of(table.get()) == [4, 5, 6]
        table.set(make([7, 8, 9]))
        assert values_of(table.get()) == [7, 8, 9]
        given = make([0, 0, 0])
        with pytest.raises(polyverso.ArgumentError):
            table.get(out=given)
        assert values_of(given) == [0, 0, 0]


@pytest.mark.parametrize("ids", [jnp.asarray, pandas.Series, pandas.Index], ids=["jax", "series", "index"])
def test_row_ids_and_keys(node, ids):
    table, counts = node.matrix(4, 2), node.keyvalue(dtype="i64")
    table.add(np.ones((2, 2)), rows=ids([3, 1]))
    assert table.get(rows=ids([1, 2])).tolist() == [[1, 1], [0, 0]]
    counts.add(ids([5, 6]), keys=ids([10, 20]))
    assert counts.get(keys=ids([20])).tolist() == [6]
    with pytest.raises(polyverso.ArgumentError, match="64-bit integers"):
        table.get(rows=ids([1.5]))


def test_frames(node):
    frame = pandas.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6]})
    table = node.matrix(3, 2, dtype="f64", init=frame)
    table.add(frame)
    assert table.get().tolist() == [[2, 8], [4, 10], [6, 12]]
    with Group(node) as group:
        assert group.allgather(frame).tolist() == [[[1, 4], [2, 5], [3, 6]]]
    with pytest.raises(polyverso.ArgumentError, match="not made of numbers|text"):
        table.add(pandas.DataFrame({"a": ["x"] * 3, "b": ["y"] * 3}))


def test_groups(node, make):
    given = make([1, 2])
    with Group(node) as group, distlearn.AllReduceSGD(group) as strategy:
        gathered = group.allgather(given)
        assert values_of(gathered) == [[1, 2]] and gathered.dtype == np.asarray(given).dtype
        for call in (
            lambda: group.allreduce(given),
            lambda: group.allreduce_many([given]),
            lambda: group.allreduce_custom(given, lambda mine, theirs: mine),
            lambda: group.broadcast(given),
            lambda: group.reduce_scatter(given),
            lambda: strategy.sum_and_normalize_gradients({"w": given}),
            lambda: strategy.synchronize_parameters([given]),
        ):
            with pytest.raises(polyverso.ArgumentError, match="read-only"):
                call()
        copy = np.array(given)
        assert group.allreduce(copy) is copy
    assert values_of(given) == [1, 2]


def test_stores(make):
    kv = kvstore.create("local")
    kv.init("w", make([1, 1]))
    kv.push("w", [make([1, 2]), make([3, 4])])
    out = np.zeros(2, np.asarray(make([1])).dtype)
    kv.pull("w", out=out)
    assert values_of(out) == [4, 6]
    given = make([0, 0])
    with pytest.raises(polyverso.ArgumentError, match="read-only"):
        kv.pull("w", out=given)
    assert values_of(given) == [0, 0]


def test_an_updater_outside_of_a_store(make):
    update, weights = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.5)), np.ones(2, np.asarray(make([1])).dtype)
    tensor = Tensor.copy_of(weights)
    update("w", Tensor.copy_of(make([1, 2])), tensor)
    assert values_of(tensor) == [0.5, 0]


def test_gossip(make):
    one, other = (gossip.Gossip(lone(name), name) for name in "ab")
    with one, other:
        other.publish([make([3, 5])], 0.5)
        one.add_peer("b", "127.0.0.1", int(other.state["address"].rsplit(":", 1)[1]))
        mine = np.ones(2, np.asarray(make([1])).dtype)
        one.update_send([mine], 0.5)
        assert one.fetch_wait(0.5)["got"]
        one.average(mine)
        assert values_of(mine) == [2, 3]
    with pytest.raises(polyverso.ArgumentError, match="read-only"):
        gossip.ArrayAdapter(make([1, 2]), "a", lone("a"))


def test_tensors(make):
    given = make([1, 2, 3])
    for tensor in (Tensor.copy_of(given), Tensor.zeros(3) + given):
        assert values_of(tensor) == [1, 2, 3]
    assert values_of(Tensor.zeros(3).assign(given)) == [1, 2, 3]
    with pytest.raises(polyverso.ArgumentError, match="read-only"):
        Tensor.view(given)


def test_tensors_as_their_arrays():
    tensor = Tensor.range(3, 1)
    assert jnp.from_dlpack(tensor).tolist() == jnp.asarray(tensor).tolist() == pandas.Series(np.asarray(tensor)).tolist() == [1, 2, 3]
