"""Handles are no values: they can't be copied. Tensors are values."""

import copy
import pickle

import numpy as np
import pytest

from polyverso import Tensor, distlearn, gossip, kvstore
from polyverso.group import Group

LONE = {"nodes": [{"name": "w1", "host": "127.0.0.1", "port": 0}]}


@pytest.fixture
def handles(node):
    table = node.array(2, name="weights")
    group = Group(node)
    adapter = gossip.ArrayAdapter(np.ones(2), "w1", LONE)
    request = table.get_async()
    yield [node, table, group, request, kvstore.create("local"), distlearn.AllReduceSGD(group), adapter, adapter.gossip]
    request.wait()
    adapter.close()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps, lambda it: pickle.dumps(it, protocol=0)])
def test_handles_are_not_copied(handles, copied):
    for handle in handles:
        for value in (handle, {"held": [handle]}) if copied is not copy.copy else (handle,):
            with pytest.raises(TypeError, match=f"a polyverso {type(handle).__name__} belongs to this process"):
                copied(value)


def test_a_table_says_how_another_process_opens_it(node):
    with pytest.raises(TypeError, match=r"node\.open\('weights'\)"):
        pickle.dumps(node.array(2, name="weights"))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8", "f16", "bf16"])
def test_tensors_are_copied_as_values(dtype):
    tensor = Tensor.copy_of(np.arange(6).reshape(2, 3), dtype)
    for copied in (copy.copy(tensor), copy.deepcopy([tensor])[0], pickle.loads(pickle.dumps(tensor))):
        assert copied.dtype == dtype and copied.shape == (2, 3) and copied.equal(tensor)
        copied.fill(9)
        assert tensor[1, 2] == 5


def test_row_sparse_tensors_are_pickled():
    sparse = Tensor.sparse([1, 4], np.ones((2, 2)), 6)
    again = pickle.loads(pickle.dumps(sparse))
    assert again.row_sparse and again.shape == (6, 2) and again.to_dense().equal(sparse.to_dense())
