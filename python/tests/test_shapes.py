"""Arguments whose numbers would silently go to wrong places, or be other numbers, are errors."""

import array as arrays
import warnings

import numpy as np
import pytest

import polyverso
from polyverso import ArgumentError, gossip, kvstore


@pytest.fixture
def matrix(node):
    return node.matrix(3, 2, name="weights", init=[[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize("shape", [(2, 3), (6, 1), (1, 6), (1, 3, 2)])
def test_a_matrix_takes_no_other_shape(node, matrix, shape):
    data = np.ones(shape, "f4")
    for call in (
        lambda: matrix.add(data),
        lambda: matrix.add(data.tolist()),
        lambda: matrix.add_async(data),
        lambda: matrix.set(data),
        lambda: matrix.set_async(data),
        lambda: matrix.add(polyverso.Tensor.copy_of(data)),
        lambda: matrix.get(out=data),
        lambda: matrix.get_async(out=data),
        lambda: matrix.peek(out=polyverso.Tensor.copy_of(data)),
        lambda: node.matrix(3, 2, init=data),
    ):
        with pytest.raises(ArgumentError, match=r"shape \(.*\) given, \(3, 2\) needed, or 6 values") as caught:
            call()
        assert caught.value.name == "MV_ESHAPE"
    assert matrix.get().tolist() == [[1, 2], [3, 4], [5, 6]] and (data == 1).all()
    with pytest.raises(ArgumentError, match='table "weights"'):
        matrix.add(data)


def test_rows_take_no_other_shape(node, matrix):
    sparse, keyed = node.sparse(9, 2), node.keyvalue(cols=2)
    for table in (matrix, sparse, keyed):
        for data in (np.ones((4, 1)), np.ones((1, 4)), [[1], [1], [1], [1]]):
            with pytest.raises(ArgumentError, match=r"\(2, 2\) needed"):
                table.add(data, rows=[0, 2])
            with pytest.raises(ArgumentError, match=r"\(2, 2\) needed"):
                table.set(data, rows=[0, 2])
        with pytest.raises(ArgumentError, match=r"\(2, 2\) needed"):
            table.get(rows=[0, 2], out=np.empty((4, 1), "f4"))


def test_one_dimension_fits(node, matrix):
    matrix.add(range(6))
    matrix.add([0, 1, 2, 3], rows=[0, 2])
    matrix.add([1, 1], rows=1)
    matrix.add(np.ones((2, 2, 2)), rows=[[0, 1], [2, 2]])  # the shape of the ids, and of a row
    flat = arrays.array("f", [0] * 6)
    assert matrix.get(out=flat) is flat
    assert list(flat) == [2, 5, 7, 9, 13, 16]
    line = node.array(6, init=np.ones((2, 3)))
    line.add(np.ones((2, 3)))
    assert line.get().tolist() == [2] * 6
    column = node.keyvalue()
    column.add([[1], [2]], keys=[5, 6])
    assert column.get(keys=[5, 6]).tolist() == [1, 2]


def test_no_other_numbers(matrix):
    masked = np.ma.array(np.ones((3, 2)), mask=[[1, 0]] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data, reason in (
            ([[1, 2], [3], [4, 5]], "inhomogeneous"),
            ([1, 2, 3, None, 5, 6], "None"),
            (np.ones((3, 2)) + 1j, "complex"),
            (np.zeros((3, 2), "M8[s]"), "datetime64"),
            (masked, "masked"),
        ):
            with pytest.raises(ArgumentError, match=reason):
                matrix.add(data)
    matrix.add(masked.filled(0))
    assert matrix.get().tolist() == [[1, 3], [3, 5], [5, 7]]


def test_what_an_updater_returns_is_the_new_value():
    kv = kvstore.create("local")
    kv.init("w", np.ones(2, "f4"))
    out = np.zeros(2, "f4")
    for updater, value in (
        (lambda key, merged, stored: stored + merged, 3),
        (lambda key, merged, stored: merged.numpy() * 5, 10),
        (lambda key, merged, stored: stored.axpy(1, merged), 12),
        (lambda key, merged, stored: None, 12),
    ):
        kv.set_updater(updater)
        kv.push("w", np.full(2, 2, "f4"))
        kv.pull("w", out=out)
        assert out.tolist() == [value] * 2
    for wrong in (7.0, "text", True, np.ones(3, "f4"), np.ones((1, 2), "f4")):
        kv.set_updater(lambda key, merged, stored, wrong=wrong: wrong)
        with pytest.raises(TypeError, match=r"key 'w': the updater returned a .* shape \(2,\)"):
            kv.push("w", np.ones(2, "f4"))
        kv.pull("w", out=out)
        assert out.tolist() == [12] * 2


@pytest.mark.parametrize("wrong", [3, "adam", ()])
def test_an_updater_is_a_function(wrong):
    kv = kvstore.create("local")
    with pytest.raises(TypeError, match="an updater is a function"):
        kv.set_updater(wrong)
    kv.set_updater(None)


@pytest.mark.parametrize("arrays", [[[1.0, 1.0]], [1.0], ["text"], [None], [np.ones(2, complex)], [np.float32(1)], b"bytes"])
def test_what_can_not_be_averaged_is_refused_at_once(arrays):
    with pytest.raises(ArgumentError, match="array 0"):
        gossip.ArrayAdapter(arrays, "w1", {"nodes": [{"name": "w1", "host": "127.0.0.1", "port": 0}]})
