"""The classes of polyverso.distlearn: in clusters of one in this process, and on ranks in several processes."""

import numpy as np
import pytest

import polyverso
from polyverso import capi, distlearn
from polyverso.group import Group

RANKS = """
    import numpy as np, polyverso
    from polyverso import distlearn
    from polyverso.group import Group
    node = polyverso.init()
    group = Group(node)
    sgd = distlearn.AllReduceSGD(group)
    params = {"b": np.full(2, float(group.rank + 1)), "a": [np.zeros((2, 2), "f4")]}
    sgd.synchronize_parameters(params)
    assert params["b"].tolist() == [1, 1]
    seen = []
    for step in range(1 + group.rank):                      # 1, 2 and 3 steps
        grads = {"b": np.full(2, group.rank + 1.0), "a": [np.ones((2, 2), "f4")]}
        seen.append(sgd.sum_and_normalize_gradients(grads))
        params["b"] -= grads["b"]
    sgd.synchronize_parameters(params)
    ea = distlearn.AllReduceEA(group, tau=1, alpha=0.25)
    ea.synchronize_parameters(params)
    params["b"] += 4.0 * group.rank
    ea.average_parameters(params)
    ea.synchronize_center(params)
    print(seen, params["b"][0])
    ea.close(); sgd.close(); group.close(); node.shutdown()
"""


@pytest.fixture
def group(node):
    with Group(node) as group:
        yield group


def test_ranks_with_uneven_steps(cluster):
    ranks = [cluster.start(RANKS, nodes=3) for _ in range(3)]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], outputs
    # SGD ends at 1 - 2 - 2.5 - 3 = -6.5. The centre moves by 0 + 1 + 2 to -3.5. Then the ranks move towards it again.
    ends = [-6.5 + 3 * rank for rank in range(3)]
    ends = [end - 0.25 * (end + 3.5) for end in ends]
    assert [text for text, _ in outputs] == [f"{[3, 2, 1][: rank + 1]} {end}\n" for rank, end in enumerate(ends)]


def test_arrays_are_changed_in_place(group):
    with distlearn.AllReduceEA(group, tau=1, alpha=0.5) as ea:
        params = [np.zeros(3), (np.zeros((2, 2), "f4"), {"x": np.zeros(1, "f2")})]
        ea.synchronize_parameters(params)
        params[0] += 4
        ea.average_parameters(params)
        assert params[0].tolist() == [2, 2, 2]
        centre = [np.empty(3), (np.empty((2, 2), "f4"), {"x": np.empty(1, "f2")})]
        ea.read_center(centre)
        assert centre[0].tolist() == [2, 2, 2]
        assert ea.meter.steps == 1


def test_torch_tensors_are_changed_in_place(group):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
    halves = torch.ones(2, dtype=torch.bfloat16)
    with distlearn.AllReduceEA(group, tau=1, alpha=0.5) as ea:
        ea.synchronize_parameters([list(layer.parameters()), halves])
        with torch.no_grad():
            layer.bias.fill_(3)
        halves.fill_(3)
        ea.average_parameters([list(layer.parameters()), halves])
        assert layer.bias.item() == 2 and halves.tolist() == [2, 2]


def test_a_centre_in_a_table(node):
    table = node.array(2, dtype="f64")
    with distlearn.AsyncEA(table, tau=1, alpha=0.5) as ea:
        params = np.full(2, 8.0)
        ea.average_parameters(params)
        assert params.tolist() == [4, 4]
        ea.read_center(params)
        assert params.tolist() == [4, 4]


def test_steps_between_exchanges(group):
    with distlearn.LocalSGD(group, 4) as local:
        params = np.zeros(10)
        local.synchronize_parameters(params)
        before = local.meter.payload_bytes
        for _ in range(8):
            params += 1
            local.step(params)
        assert (local.meter.payload_bytes - before) * 4 == local.meter.dense_bytes
        assert params.tolist() == [8] * 10
    with distlearn.DiLoCo(group, 4, fragments=2, overlap=1, mixing=0.5) as local:
        local.step(params)
        local.synchronize_parameters(params)


@pytest.mark.parametrize("how", ["int8", "topk ratio=1", "powersgd rank=1"])
def test_compressed_gradients(group, how):
    with distlearn.CompressedAllReduce(group, how) as compressed:
        gradient = np.outer(np.arange(1, 9), np.arange(1, 7)).astype("f4")
        wanted = gradient.copy()
        assert compressed.average_gradients([gradient]) == 1
        np.testing.assert_allclose(gradient, wanted, atol=0.5)
        compressed.finish([gradient])


def test_gradients_may_be_a_generator(group):
    layers = [np.full((4, 3), 2.0, "f4"), np.full(3, 2.0, "f4")]
    with distlearn.CompressedAllReduce(group, "powersgd rank=1") as compressed:
        assert compressed.average_gradients(layer for layer in layers) == 1
        compressed.finish({"a": (layer for layer in layers)})
    np.testing.assert_allclose(layers[0], 2, atol=1e-4)


def test_numbers_come_before_texts_among_keys(group):
    named = {"b": np.zeros(4), 10: np.zeros(3), 9: np.zeros(2), "a": np.zeros(1)}
    assert [len(leaf) for leaf in distlearn._leaves(named)] == [2, 3, 1, 4]
    assert list(distlearn._rows({"b": np.zeros((2, 1)), 3: np.zeros((4, 1))})) == [4, 2]


def test_tensors_are_arrays(group):
    value = polyverso.Tensor.full(3, 2, "bf16")
    with distlearn.AllReduceSGD(group) as sgd:
        assert sgd.sum_gradients({"v": value}) == 1
    assert value.to_list() == [2, 2, 2]


@pytest.mark.parametrize("leaf", [None, 1.5, np.float32(1), "text", np.zeros(2, np.uint16), memoryview(np.zeros(2, np.uint16))])
def test_what_is_no_array_is_refused(group, leaf):
    with distlearn.AllReduceSGD(group) as sgd, pytest.raises(polyverso.ArgumentError, match="MV_EDTYPE"):
        sgd.sum_gradients([np.zeros(2), {"deeper": leaf}])


def test_mistakes_are_exceptions(group):
    with pytest.raises(polyverso.ArgumentError, match="tau is 0"):
        distlearn.AllReduceEA(group, tau=0, alpha=0.5)
    with distlearn.AllReduceSGD(group) as sgd:
        with pytest.raises(polyverso.Error, match="array 0 is i64"):
            sgd.sum_gradients([np.zeros(3, "i8")])
        with pytest.raises(polyverso.Error, match="C-contiguous"):
            sgd.sum_gradients([np.zeros((4, 4))[:, :2]])
        with pytest.raises(polyverso.Error, match="read-only"):
            frozen = np.zeros(3)
            frozen.flags.writeable = False
            sgd.sum_gradients([frozen])
        with pytest.raises(polyverso.Error, match="not an AllReduceEA"):
            capi.mv_ea_average(sgd._handle, [])
    with pytest.raises(polyverso.Error, match="inner_step"):
        distlearn.LocalSGD(group, 0)
