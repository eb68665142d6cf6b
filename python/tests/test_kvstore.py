"""polyverso.kvstore: the examples of MXNet's manual, types of values, optimizers and updaters."""

import asyncio
import gc
import json
import pickle
import re
import sys
import threading

import numpy as np
import polyverso
import pytest
from polyverso import ArgumentError, StateError, Tensor, capi, kvstore, lr_scheduler, optimizer

SHAPE = (2, 3)


def ones(shape=SHAPE):
    return np.ones(shape, np.float32)


def zeros(shape=SHAPE):
    return np.zeros(shape, np.float32)


def holds(array, value):
    np.testing.assert_array_equal(array, np.full_like(array, value))


@pytest.fixture
def kv():
    return kvstore.create("local")


# ------------------------------------------------------------------ MXNet's examples, in their order


def test_init(kv):
    kv.init(3, ones() * 2)
    a = zeros()
    kv.pull(3, out=a)
    holds(a, 2)
    keys = [5, 7, 9]
    kv.init(keys, [ones()] * len(keys))
    kv.pull(9, out=a)
    holds(a, 1)


def test_push(kv):
    kv.init(3, ones() * 2)
    a = zeros()
    kv.push(3, ones() * 8)
    kv.pull(3, out=a)  # pull out the value
    holds(a, 8)
    # aggregate the value and then push
    kv.push(3, [ones() for _ in range(4)])
    kv.pull(3, out=a)
    holds(a, 4)
    # push a list of keys: single device
    keys = [5, 7, 9]
    kv.init(keys, [zeros()] * len(keys))
    kv.push(keys, [ones()] * len(keys))
    b = [zeros() for _ in keys]
    kv.pull(keys, out=b)
    holds(b[1], 1)
    # multiple devices
    b = [[ones() for _ in range(4)] for _ in keys]
    kv.push(keys, b)
    kv.pull(keys, out=b)
    holds(b[1][1], 4)


def test_pull(kv):
    kv.init(3, ones() * 2)
    a = zeros()
    kv.pull(3, out=a)
    holds(a, 2)
    # pull into multiple devices
    b = [ones() for _ in range(4)]
    kv.pull(3, out=b)
    holds(b[1], 2)
    # a list of keys: on a single device, and on several
    keys = [5, 7, 9]
    kv.init(keys, [ones() * 2] * len(keys))
    b = [zeros() for _ in keys]
    kv.pull(keys, out=b)
    holds(b[1], 2)
    b = [[ones() for _ in range(4)] for _ in keys]
    kv.pull(keys, out=b)
    holds(b[1][1], 2)


def test_integers_of_16_bits_are_not_taken_for_bfloat16(kv):
    numbers = np.full(2, 1000, np.uint16)
    for keys, values in (("u", numbers), (["u"], [numbers]), (["u"], [[numbers]])):
        with pytest.raises(ArgumentError, match="uint16"):
            kv.init(keys, values)


def test_type_rank_and_workers(kv):
    assert (kv.type, kv.rank, kv.num_workers) == ("local", 0, 1)
    assert kvstore.create("Local_AllReduce_CPU").type == "local_allreduce_cpu"
    assert polyverso.kv.create().type == "local"
    with pytest.raises(ArgumentError, match="dist_sync"):
        kvstore.create("dist_sink")
    with pytest.raises(StateError, match="polyverso.init"):
        kvstore.create("dist")


def sparse_zeros(shape):
    return Tensor.sparse([], np.zeros((0, *shape[1:]), np.float32), shape[0])


def test_row_sparse_pull(kv):
    shape = (3, 3)
    kv.init("3", Tensor.ones(shape).to_sparse())
    a = sparse_zeros(shape)
    kv.row_sparse_pull("3", out=a, row_ids=np.array([0, 2], dtype="int64"))
    np.testing.assert_array_equal(a.to_dense().numpy(), [[1, 1, 1], [0, 0, 0], [1, 1, 1]])
    duplicate_row_ids = np.array([2, 2], dtype="int64")
    kv.row_sparse_pull("3", out=a, row_ids=duplicate_row_ids)
    np.testing.assert_array_equal(a.to_dense().numpy(), [[0, 0, 0], [0, 0, 0], [1, 1, 1]])
    unsorted_row_ids = np.array([1, 0], dtype="int64")
    kv.row_sparse_pull("3", out=a, row_ids=unsorted_row_ids)
    np.testing.assert_array_equal(a.to_dense().numpy(), [[1, 1, 1], [1, 1, 1], [0, 0, 0]])


def test_set_gradient_compression(kv):
    kv.init(3, zeros())
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    a = zeros()
    for step, expected in ((0.3, 0), (0.3, 0.5), (-1.2, -0.5)):  # the residual is added to the next push
        kv.push(3, ones() * step)
        kv.pull(3, out=a)
        holds(a, expected)
    for wrong in ({"type": "3bit"}, {"type": "2bit", "threshhold": 1}, {"threshold": 0.5}):
        with pytest.raises(ArgumentError, match="2bit|threshold"):
            kvstore.create("local").set_gradient_compression(wrong)


def test_set_updater(kv, capsys):
    kv.init(3, ones() * 4)

    def update(key, input, stored):
        print(f"update on key: {key}")
        stored += input * 2

    a = zeros()
    kv._set_updater(update)
    kv.pull(3, out=a)
    holds(a, 4)
    kv.push(3, ones())
    assert capsys.readouterr().out == "update on key: 3\n"
    kv.pull(3, out=a)
    holds(a, 6)


# ------------------------------------------------------------------ rows, and asynchronous pulls


def test_row_ids_of_any_kind(kv):
    kv.init(["a", "b"], [Tensor.range(12).reshape(4, 3).to_sparse() for _ in range(2)])
    outs = [sparse_zeros((4, 3)) for _ in range(3)]

    def held(tensor):
        return tensor.parts()[0].to_list()

    for ids, expected in (
        ([3, 1], [1, 3]),
        (np.array([[0, 3], [3, 0]]), [0, 3]),
        (np.array([2.0]), [2]),
        (np.array([1], np.uint16), [1]),
        ([], []),
        (Tensor.copy_of([3], "i32"), [3]),
    ):
        kv.row_sparse_pull("a", out=outs[0], row_ids=ids)
        assert held(outs[0]) == expected
    kv.row_sparse_pull("a", out=outs, row_ids=[2])
    assert [held(out) for out in outs] == [[2]] * 3
    kv.row_sparse_pull("a", out=outs[:2], row_ids=[np.array([0]), np.array([1])])
    kv.row_sparse_pull(["a", "b"], out=[outs[2], outs[2].copy()], row_ids=[3])
    assert [held(out) for out in outs] == [[0], [1], [3]]
    for wrong, name in (([4], "MV_ERANGE"), ([-1], "MV_ERANGE"), ([0.5], "MV_EINVAL")):
        with pytest.raises(ArgumentError, match=name):
            kv.row_sparse_pull("a", out=outs[0], row_ids=wrong)
    before = held(outs[0])
    kv.pull("a", out=outs[0])  # row-sparse outputs are ignored
    assert held(outs[0]) == before
    kv.pull("a", out=outs[0], ignore_sparse=False)
    assert held(outs[0]) == [0, 1, 2, 3]
    dense = np.zeros((4, 3), np.float32)
    kv.pull("a", out=dense)
    np.testing.assert_array_equal(dense.ravel(), np.arange(12))
    with pytest.raises(ArgumentError, match="row-sparse"):
        kv.row_sparse_pull("a", out=dense, row_ids=[0])


def test_pull_meanwhile(kv):
    kv.init([1, 2], [ones(), ones() * 2])
    out = [zeros(), zeros()]
    request = kv.pull_async([1, 2], out)
    assert request.wait(5) is out
    assert (out[0][0, 0], out[1][0, 0]) == (1, 2)

    async def awaited():
        return await kv.pull_async(1, out[1])

    holds(asyncio.run(awaited()), 1)
    with pytest.raises(ArgumentError, match="contiguous"):
        kv.pull_async(1, np.zeros((3, 2), np.float32).T)


def test_pull_rows_meanwhile(kv):
    kv.init("w", Tensor.ones((4, 2)).to_sparse())
    out = sparse_zeros((4, 2))
    assert kv.row_sparse_pull_async("w", out, [3, 1, 3], priority=2).wait(5) is out
    assert out.parts()[0].numpy().tolist() == [1, 3]
    for ignores, rows in ((True, []), (False, [0, 1, 2, 3])):
        out = sparse_zeros((4, 2))
        kv.pull_async("w", out, priority=1, ignore_sparse=ignores).wait(5)
        assert out.parts()[0].numpy().tolist() == rows


def test_a_store_may_refuse_what_is_not_finite(kv):
    kv.set_reject_nonfinite()
    kv.init("w", ones())
    for bad in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match="MV_ENONFINITE"):
            kv.push("w", ones() * bad)
    a = zeros()
    kv.pull("w", out=a)
    holds(a, 1)


# ------------------------------------------------------------------ user-defined updaters


def test_an_updater_sees_every_key_and_what_it_raises_is_the_pushs_error(kv):
    seen = []

    def update(key, merged, stored):
        seen.append((key, merged.numpy().copy()))
        if key in ("bad", "worse"):
            raise RuntimeError(f"not {key}")
        stored += merged

    kv.init(["good", "bad", "worse", "late"], [ones(), ones(), ones(), ones()])
    kv.set_updater(update)
    with pytest.raises(RuntimeError, match="^not bad$"):  # the first of two
        kv.push(["good", "bad", "worse", "late"], [[ones(), ones()], ones(), ones(), ones()])
    assert [key for key, _ in seen] == ["good", "bad", "worse", "late"]
    holds(seen[0][1], 2)
    out = [zeros() for _ in range(3)]
    kv.pull(["good", "bad", "late"], out=out)
    assert [values[0, 0] for values in out] == [3, 1, 2]
    kv.set_updater(None)
    kv.push("bad", ones() * 9)
    kv.pull("bad", out=out[0])
    holds(out[0], 9)


def test_what_another_thread_pushed_is_updated_by_the_thread_that_set_the_updater(kv):
    threads = set()

    def update(key, merged, stored):
        threads.add(threading.get_ident())
        stored += merged

    kv.init(1, zeros())
    kv.set_updater(update)
    other = threading.Thread(target=lambda: [kv.push(1, ones()) for _ in range(3)])
    other.start()
    other.join()
    a = zeros()
    kv.pull(1, out=a)
    holds(a, 3)
    assert threads == {threading.get_ident()}


def test_an_optimizer_of_ones_own(kv):
    class Halves(optimizer.Optimizer):
        def create_state(self, key, weight):
            return []

        def update(self, key, weight, gradient, state):
            state.append(key)
            weight -= gradient * 0.5

    kv.init(1, ones())
    made = Halves()
    kv.set_optimizer(made)
    kv.push(1, ones())
    kv.push(1, ones())
    a = zeros()
    kv.pull(1, out=a)
    holds(a, 0)
    kv.set_optimizer("mx.sgd learning_rate=1")  # the last call wins
    kv.pushpull(1, ones(), out=a)
    holds(a, -1)


@pytest.mark.parametrize("name", sorted(set(optimizer._known) - {"sgld"}))
def test_get_updater_steps_as_a_store_does(kv, name):
    made, twin = (optimizer.create(name, wd=0.01) for _ in range(2))  # two, because each counts its updates
    stored = np.linspace(-1, 1, 6, dtype=np.float32).reshape(SHAPE)
    kept = stored.copy()
    kv.init("w", stored)
    kv.set_optimizer(made)
    updater = optimizer.get_updater(twin)
    for gradient in (0.5, -0.25, 2):
        kv.pushpull("w", ones() * gradient, out=stored)
        updater("w", ones() * gradient, kept)
    np.testing.assert_array_equal(stored, kept)
    assert made.num_update == twin.num_update == 3


def pulled(kv, key="w"):
    out = zeros()
    kv.pull(key, out=out)
    assert (out == out[0, 0]).all()
    return out[0, 0]


def test_a_store_goes_by_the_object(kv):
    kv.init(["w", "v"], [ones(), ones()])
    made = optimizer.SGD(0.5, learning_rate=0.5)
    kv.set_optimizer(made)
    seen = []
    for change in (
        lambda: None,
        lambda: made.set_learning_rate(0),  # the momentum is kept
        lambda: (setattr(made, "lr", 0.5), setattr(made, "rescale_grad", 0)),
        lambda: (setattr(made, "rescale_grad", 1), made.set_lr_mult({"w": 0})),
        lambda: made.set_lr_mult({}),
    ):
        change()
        kv.push("w", ones())
        seen.append(pulled(kv))
    assert seen == [0.5, 0.25, 0.125, 0.0625, -0.46875]
    assert (made.num_update, made._index_update_count) == (5, {"w": 5})


def test_a_refused_optimizer_leaves_the_old_one(kv):
    kv.init(["a", "z"], [ones(), np.ones(SHAPE, np.int32)])
    with pytest.raises(ArgumentError, match='"z"'):
        kv.set_optimizer(optimizer.SGD(learning_rate=0.5))
    kv.push("a", ones() * 5)
    assert pulled(kv, "a") == 5


def test_what_an_updater_keeps_is_a_copy(kv):
    kept = []

    def update(key, merged, stored):
        stored += merged
        kept.extend([merged, stored])

    kv.init("w", ones())
    kv.set_updater(update)
    kv.push("w", ones() * 7)
    kv.push("w", ones())
    assert [one.numpy()[0, 0] for one in kept] == [7, 8, 1, 9]
    kept[3] += 1
    assert pulled(kv) == 9


def test_an_updater_may_keep_tensors_anywhere(kv):
    """In a closure, an object, another thread, the base of a view, or the traceback of its exception."""
    kept, stop = {}, threading.Event()

    def update(key, merged, stored):
        stored += merged
        if key == "thread":
            holder = threading.Thread(target=lambda tensor: stop.wait(), args=(merged,))
            holder.start()
            kept["thread"] = holder
        elif key == "closure":
            kept["closure"] = lambda: merged.numpy()[0, 0]
        elif key == "raises":
            raise ValueError("with the tensors in its frame")

    kv.init(["thread", "closure", "raises", "plain"], [ones()] * 4)
    kv.set_updater(update)
    for key in ("thread", "closure", "plain"):
        kv.push(key, ones() * 7)
        kv.push(key, ones())
    with pytest.raises(ValueError) as failure:
        kv.push("raises", ones())
    frame = failure.value.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_locals["merged"].numpy()[0, 0] == 1
    stop.set()
    kept["thread"].join()
    assert kept["closure"]() == 1
    assert [pulled(kv, key) for key in ("thread", "closure", "plain")] == [9, 9, 9]


def test_a_large_tensor_has_norms(kv):
    """The norms of LAMB and LARS for a key of several MiB, against the formulas in numpy."""
    w, g = (np.random.default_rng(seed).uniform(-1, 1, 700_001) for seed in (1, 2))
    for made, step in (
        (optimizer.LAMB(0.1, wd=0.01), lambda w: np.sign(g) + 0.01 * w),
        (optimizer.LBSGD(warmup_startegy="lars", learning_rate=0.1), None),
    ):
        store = kvstore.create("local")
        store.init("w", w.astype(np.float32))
        store.set_optimizer(made)
        store.push("w", g.astype(np.float32))
        out = np.zeros(len(w), np.float32)
        store.pull("w", out=out)
        norm = np.linalg.norm
        if step is None:
            expected = w - 0.1 * norm(w) / norm(g) * g
        else:
            expected = w - 0.1 * norm(w) / norm(step(w)) * step(w)
        big = np.abs(g) > 0.01  # epsilon dominates the others
        np.testing.assert_allclose(out[big], expected[big], rtol=1e-3, atol=2e-4)


def test_manual_updates_of_halves_keep_floats():
    for multi_precision, expected in ((False, 1), (True, 0.999)):
        weight = np.ones(2, np.float16)
        updater = optimizer.get_updater(optimizer.SGD(learning_rate=1e-4, multi_precision=multi_precision))
        for _ in range(10):
            updater("w", np.ones(2, np.float16), weight)
        np.testing.assert_allclose(weight.astype(float), expected, atol=2e-4)


def test_parameters_without_names_and_with_other_names():
    assert (optimizer.SGD(0.9, False).momentum, optimizer.SGD(0.9, False).lazy_update) == (0.9, False)
    adam = optimizer.Adam(0.5, 0.8, wd=0.1)
    assert (adam.learning_rate, adam.lr, adam.beta1, adam.wd) == (0.5, 0.5, 0.8, 0.1)
    assert (optimizer.Ftrl(0.2, 0.3).lamda1, optimizer.Ftrl(0.2, 0.3).learning_rate) == (0.2, 0.3)
    assert optimizer.LBSGD(0.5, True, "sqrt").warmup_strategy == "sqrt"
    assert optimizer.LBSGD(warmup_startegy="sqrt").warmup_startegy == "sqrt"
    assert optimizer.AdaGrad(float_stable_eps=0.5, sym=None).eps == 0.5
    assert optimizer.DCASGD(**{"lambda": 0.5}).lamda == 0.5
    assert optimizer.SGD().lr == 0.01
    for wrong in (lambda: optimizer.SGD(0.9, momentum=0.8), lambda: optimizer.NAG(1, 2), lambda: optimizer.SGD(warmup_startegy="x")):
        with pytest.raises(TypeError):
            wrong()
    schedule = lr_scheduler.FactorScheduler(10, 0.5)
    optimizer.SGD(learning_rate=1, lr_scheduler=schedule)
    assert (schedule.base_lr, schedule(0)) == (1, 1)


class Decays(optimizer.Optimizer):
    """A user-defined optimizer, in MXNet's style."""

    def __init__(self, momentum=0.0, **kwargs):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, key, weight):
        return {"sum": np.zeros(weight.shape, np.float32), "steps": 0}

    def update(self, key, weight, gradient, state):
        self._update_count(key)
        lr, wd = self._get_lr(key), self._get_wd(key)
        assert ([lr], [wd]) == (self._get_lrs([key]), self._get_wds([key]))
        state["sum"] += gradient.numpy()
        state["steps"] += 1
        weight -= (Tensor.copy_of(state["sum"]) + weight * wd) * lr


def test_own_optimizers_have_rates_and_counts(kv, tmp_path):
    made = Decays(learning_rate=0.5, wd=0.5, begin_num_update=2)
    made.set_lr_mult({"w": 0.5})
    kv.init("w", ones())
    kv.set_optimizer(made)
    kv.push("w", ones())
    assert pulled(kv) == 1 - 0.25 * 1.5
    assert made.num_update == 3
    path = tmp_path / "states"
    kv.save_optimizer_states(path)
    kv.push("w", ones())
    expected = pulled(kv)

    other = kvstore.create("local")
    other.init("w", ones() * (1 - 0.25 * 1.5))
    twin = Decays(learning_rate=0.5, wd=0.5)
    twin.set_lr_mult({"w": 0.5})
    other.set_optimizer(twin)
    other.load_optimizer_states(path)
    assert twin.num_update == 3
    other.push("w", ones())
    assert pulled(other) == expected


def test_own_schedules(kv):
    class Halving(lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            return self.base_lr / 2**num_update

    kv.init("w", zeros())
    kv.set_optimizer(optimizer.SGD(learning_rate=1, lr_scheduler=Halving()))
    seen = []
    for _ in range(3):
        kv.push("w", -ones())
        seen.append(pulled(kv))
    assert seen == [0.5, 0.75, 0.875]


@pytest.mark.parametrize("name", ["adam", "nadam", "lamb"])
def test_states_of_an_updater(name):
    first, second = (optimizer.get_updater(optimizer.create(name, learning_rate=0.1)) for _ in range(2))
    weights = {key: ones() for key in (3, "v")}
    for _ in range(3):
        for key, weight in weights.items():
            first(key, ones(), weight)
    states = first.get_states(dump_optimizer=True)
    second.set_states(states)
    copies = {key: weight.copy() for key, weight in weights.items()}
    for key in weights:
        first(key, ones(), weights[key])
        second(key, ones(), copies[key])
        np.testing.assert_array_equal(weights[key], copies[key])
    before = second.get_states()
    flipped = bytearray(states)
    flipped[-1] ^= 1
    wrong = [(bytes(flipped), "checksum"), (states[:-9], "damaged"), (b"", "not the states"), (pickle.dumps({1: 2}), "pickled")]
    wrong += [(pickle.dumps({1: 2}, 0), "pickled")]
    for data, reason in wrong:
        with pytest.raises(ArgumentError, match=reason):
            second.set_states(data)
    with pytest.raises(ArgumentError, match="SGD"):
        optimizer.get_updater(optimizer.SGD()).set_states(states)
    assert second.get_states() == before
    for length in range(90, 250):  # the header's length may begin like a pickle
        first.states["x"] = "x" * length
        second.set_states(first.get_states())
    first.states["x"] = object()
    with pytest.raises(TypeError, match="object"):
        first.get_states()


@pytest.mark.parametrize("schedule", [
    lr_scheduler.PolyScheduler(10, base_lr=1, pwr=1), lr_scheduler.MultiFactorScheduler([2, 4], 0.5, base_lr=1), None,
    lr_scheduler.CosineScheduler(10, final_lr=0.1, warmup_steps=5), lr_scheduler.FactorScheduler(2, 0.5, base_lr=1, warmup_steps=4, warmup_begin_lr=0.5)])
def test_an_optimizer_s_states_have_its_schedule(schedule):
    class Plain(optimizer.Optimizer):
        def update(self, key, weight, gradient, state):
            self._update_count(key)
            weight -= self._get_lr(key) * gradient

    for made in (optimizer.SGD, Plain):
        first, second = (optimizer.get_updater(made(lr_scheduler=one)) for one in (schedule, lr_scheduler.FactorScheduler(7, 0.1)))
        first.optimizer.set_lr_mult({"w": 0.25})
        weights = [ones(), ones()]
        for _ in range(3):
            first("w", ones(), ones())
        second.set_states(first.get_states(dump_optimizer=True))
        for _ in range(6):
            for updater, weight in zip((first, second), weights):
                updater("w", ones(), weight)
            np.testing.assert_array_equal(*weights)


def changed_header(states, change):
    """The bytes with another header, and the checksum as it was."""
    end = 8 + int.from_bytes(states[:8], "little")
    header = json.loads(states[8:end])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + states[end:]


def changed_description(states, change):
    """The bytes with another description, and the checksum that it has."""
    text, handles = capi.kv_decode_states("polyverso-python-updater-1", states)
    about = json.loads(text)
    change(about)
    tensors = [Tensor(handle) for handle in handles]
    return memoryview(Tensor(capi.kv_encode_states("polyverso-python-updater-1", json.dumps(about), tensors))).tobytes()


def test_invalid_states_of_an_updater_change_nothing(tmp_path):
    first, second = (optimizer.get_updater(optimizer.SGD(momentum=0.5)) for _ in range(2))
    first("w", ones(), ones())
    states, before = first.get_states(dump_optimizer=True), second.get_states(dump_optimizer=True)
    headers = [
        lambda header: header["state.0"].update(shape=[3, 2]),
        lambda header: header["state.0"].update(dtype="I32"),
        lambda header: header["state.0"].update(data_offsets=[0, 4]),
        lambda header: header["__metadata__"].pop("sha256"),
        lambda header: header["__metadata__"].update(format="polyverso-python-updater-2"),
        lambda header: header.pop("state.0"),
    ]
    descriptions = [
        lambda about: about.update(parameters={"momentum": "fast"}),
        lambda about: about.update(parameters=[1]),
        lambda about: about.update(schedule={"class": "halving", "parameters": {}}),
        lambda about: about.update(schedule={"class": "factor", "parameters": {"base_lr": 1}}),
        lambda about: about.update(schedule={"class": "", "parameters": {}}),
        lambda about: about.update(lr_mult=[["w", "fast"]]),
        lambda about: about["counts"].update(num_update=-1),
        lambda about: about["counts"].update(keys=[["w", -1]]),
        lambda about: about.pop("counts"),
        lambda about: about.update(states=[["w", {"list": [{"array": -1, "numpy": False, "row_sparse": False}]}]]),
        lambda about: about.update(states=[[["w"], {"value": 1}]]),
    ]
    for wrong in [changed_header(states, change) for change in headers] + [changed_description(states, change) for change in descriptions]:
        with pytest.raises(ArgumentError):
            second.set_states(wrong)
        assert second.get_states(dump_optimizer=True) == before

    class Python(optimizer.SGD):
        def update(self, key, weight, gradient, state):
            pass

    store, path = kvstore.create("local"), tmp_path / "damaged"
    store.set_optimizer(Python())
    path.write_bytes(states[:-1])
    with pytest.raises(ArgumentError, match=f"^MV_EINVAL: {path}: .*damaged"):
        store.load_optimizer_states(path)


def test_states_of_an_updater_stay_readable():
    header = {
        "state.0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "__metadata__": {
            "format": "polyverso-python-updater-1",
            "about": '{"class": "SGD", "states": [["w", {"list": [{"array": 0, "numpy": false, "row_sparse": false}]}]], '
            '"counts": {"num_update": 3, "keys": [["w", 3]]}}',
            "sha256": "324fc3fa46394ceb23b54e5c35878d4e7cb7e0558351d151b2061ebfb92666e2",
        },
    }
    text = json.dumps(header).encode()
    updater = optimizer.get_updater(optimizer.SGD(momentum=0.5))
    updater.set_states(len(text).to_bytes(8, "little") + text + np.array([0.25, 0.5], np.float32).tobytes())
    assert updater.states["w"][0].numpy().tolist() == [0.25, 0.5] and updater.optimizer.num_update == 3


# ------------------------------------------------------------------ values and keys


def test_pushpull_and_broadcast(kv):
    a, b = ones(), zeros()
    kv.broadcast("w", a, out=b)
    holds(b, 1)
    kv.pushpull("w", [a, a, a], out=[a, b])
    holds(a, 3)
    holds(b, 3)
    kv.pushpull("w", a)
    holds(a, 3)


def test_what_was_pushed_is_a_snapshot(kv):
    a = ones()
    kv.init("w", a)
    a[:] = 5
    kv.push("w", a)
    a[:] = 6
    kv.pull("w", out=a)
    holds(a, 5)


def test_tensors_arrays_and_dlpack(kv):
    class Foreign:
        """An array of another library, known only by its DLPack interface."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **wishes):
            return self.array.__dlpack__()

    kv.init("w", Tensor.full(SHAPE, 2))
    into = [Tensor.zeros(SHAPE), zeros(), Foreign(zeros())]
    kv.pull("w", out=into)
    holds(into[0].numpy(), 2)
    holds(into[1], 2)
    holds(into[2].array, 2)
    kv.push("w", into)
    kv.pull("w", out=into[1])
    holds(into[1], 6)


def test_many_keys_in_one_call(kv):
    keys = [f"layer{i}" for i in range(200)]
    pushed = [Tensor.full(SHAPE, i) for i in range(200)]
    kv.init(keys, [Tensor.zeros(SHAPE) for _ in keys])
    for order in (1, -1):  # the same keys again, and in another order
        for values in (pushed, tuple(pushed), [value.numpy() for value in pushed], [[value, value] for value in pushed]):
            devices = 2 if isinstance(values[0], list) else 1
            kv.push(keys[::order], values)
            tensors, arrays = [Tensor.zeros(SHAPE) for _ in keys], [zeros() for _ in keys]
            kv.pull(keys[::order], out=tensors)
            kv.pull(tuple(keys), out=arrays)
            for i, (tensor, array) in enumerate(zip(tensors, arrays[::order])):
                holds(tensor.numpy(), devices * i)
                holds(array, devices * i)
    with pytest.raises(ArgumentError, match="199 values for 200 keys"):
        kv.push(keys, pushed[1:])
    with pytest.raises(TypeError, match="not str"):
        kv.push(keys, pushed[1:] + ["a"])


def test_arrays_with_gaps_and_read_only_ones(kv):
    given = np.arange(12, dtype=np.float32).reshape(4, 3).T[:, 1:3]
    assert not given.flags.c_contiguous
    kv.init("w", given)
    room = np.full((6, 4), -1, np.float32)
    out = room.T[1:4, 2:4]
    kv.pull("w", out=out)
    np.testing.assert_array_equal(out, given)
    assert (room == -1).sum() == room.size - given.size
    with pytest.raises(ArgumentError, match="MV_ESHAPE"):
        kv.pull("w", out=room.T)
    fixed = np.ascontiguousarray(given)
    fixed.flags.writeable = False
    kv.push("w", fixed)
    with pytest.raises(ValueError):
        kv.pull("w", out=fixed)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "int8"])
def test_dtypes(kv, dtype):
    kv.init(1, np.zeros(5, dtype))
    kv.push(1, [np.arange(5).astype(dtype), np.full(5, 2, dtype)])
    out = np.empty(5, dtype)
    kv.pull(1, out=out)
    np.testing.assert_array_equal(out, np.arange(5) + 2)
    with pytest.raises(ArgumentError, match="MV_EDTYPE"):
        kv.push(1, np.zeros(5, "float64" if dtype != "float64" else "float32"))


def test_keys_are_all_numbers_or_all_names(kv):
    kv.init(np.int64(1), ones())
    with pytest.raises(ArgumentError, match="numbers"):
        kv.init("w", ones())
    with pytest.raises(ArgumentError, match="all names"):
        kv.push([1, "w"], [ones(), ones()])
    with pytest.raises(ArgumentError, match="float"):
        kv.push(1.5, ones())


def test_what_is_wrong_leaves_the_store_alone(kv):
    kv.init(["a", "b"], [ones(), ones()])
    for wrong, reason in {
        lambda: kv.push("c", ones()): r"kv\.push\(\): .*call kv\.init\(\) first",
        lambda: kv.push(["a", "a"], [ones(), ones()]): "twice",
        lambda: kv.init("a", ones()): "already",
        lambda: kv.push("a", ones((3, 2))): r"\(2, 3\)",
        lambda: kv.push(["a", "b"], ones()): "one value for 2 keys",
        lambda: kv.push(["a", "b"], [ones()] * 3): "3 values for 2 keys",
        lambda: kv.push("a", []): "0",
        lambda: kv.pull("a"): "no out given",
        lambda: kv.set_optimizer("mx.adam learning_rat=3"): "learning_rate",
        lambda: kv.set_optimizer("mx.adom"): "adam",
    }.items():
        with pytest.raises((ArgumentError, StateError), match=reason):
            wrong()
    for nothing in (5.0, "text", object(), [3.0]):
        with pytest.raises(TypeError, match="__dlpack__"):
            kv.push("a", nothing)
    a = zeros()
    kv.pull("b", out=a, timeout=5)
    holds(a, 1)


# ------------------------------------------------------------------ optimizers


def test_an_optimizer_updates_what_is_there_and_what_comes(kv):
    kv.init(1, ones())
    kv.set_optimizer(optimizer.create("sgd", learning_rate=0.5))
    kv.init(2, ones())
    a = zeros()
    for key in (1, 2):
        kv.pushpull(key, ones(), out=a)
        holds(a, 0.5)


@pytest.mark.parametrize("name", sorted(optimizer._known))
def test_defaults_are_those_of_the_library(name):
    made = optimizer.create(name.upper())
    out = []
    for spec in (made, made.kind):
        kv = kvstore.create("local")
        kv.init("w", ones())
        kv.set_optimizer(spec)
        for gradient in (1, -0.25, 3):
            kv.push("w", ones() * gradient)
        out.append(zeros())
        kv.pull("w", out=out[-1])
    np.testing.assert_array_equal(*out)


def test_parameters_and_schedules_become_text():
    schedule = lr_scheduler.MultiFactorScheduler([100, 200], 0.1, base_lr=0.2, warmup_steps=10)
    made = optimizer.SGD(momentum=0.9, wd=1e-4, lr_scheduler=schedule)
    words = str(made).split()
    assert words[0] == "mx.sgd"
    assert {"momentum=0.9", "wd=0.0001", "lr_scheduler=multifactor", "step=100:200", "base_lr=0.2"} <= set(words)
    assert not any(word.startswith("learning_rate") for word in words)
    assert "learning_rate=0.001" in str(optimizer.Adam(lr_scheduler=schedule)).split()
    for schedule in (
        lr_scheduler.FactorScheduler(2, 0.5),
        lr_scheduler.PolyScheduler(10, warmup_steps=3, warmup_mode="constant"),
        lr_scheduler.CosineScheduler(10, base_lr=0.3, final_lr=0.1),
    ):
        kvstore.create("local").set_optimizer(optimizer.create("adam", lr_scheduler=schedule))
    with pytest.raises(TypeError, match="momentum"):
        optimizer.SGD(momentun=0.9)
    with pytest.raises(ValueError, match="adagrad"):
        optimizer.create("adamant")
    with pytest.raises(ValueError, match="ascending"):
        lr_scheduler.MultiFactorScheduler([5, 3])


def test_a_schedule_tells_its_rates():
    falls = lr_scheduler.FactorScheduler(2, 0.5, base_lr=1)
    assert [falls(updates) for updates in (1, 2, 3, 5)] == [1, 1, 0.5, 0.25]
    steps = lr_scheduler.MultiFactorScheduler([100, 200], 0.1, base_lr=0.2, warmup_steps=10)
    assert [steps(updates) for updates in (0, 5, 100, 101)] == [0, 0.1, 0.2, pytest.approx(0.02)]
    assert lr_scheduler.PolyScheduler(10, base_lr=1)(5) == 0.25
    assert lr_scheduler.CosineScheduler(10, base_lr=0.3, final_lr=0.1)(5) == pytest.approx(0.2)
    with pytest.raises(NotImplementedError):
        lr_scheduler.LRScheduler()(1)


def test_an_updater_of_a_row_sparse_key_is_given_rows(kv):
    seen = []

    def update(key, merged, stored):
        seen.append((merged.row_sparse, stored.row_sparse, stored.parts()[0].numpy().tolist()))
        stored += merged * 2
        stored -= merged

    kv.init("w", Tensor.zeros([4, 3]).to_sparse())
    kv.set_updater(update)
    for row in (2, 0, 2):
        kv.push("w", Tensor.sparse([row], np.ones((1, 3), np.float32), 4))
    out = np.zeros((4, 3), np.float32)
    kv.pull("w", out=out)
    assert out[:, 1].tolist() == [1, 0, 2, 0]
    assert seen == [(True, True, []), (True, True, [2]), (True, True, [0, 2])]
    kv.set_updater(optimizer.get_updater(optimizer.SGD(learning_rate=1)))
    kv.push("w", Tensor.sparse([2], np.ones((1, 3), np.float32), 4))
    kv.pull("w", out=out)
    assert out[:, 1].tolist() == [1, 0, 1, 0]


def test_a_schedule_is_followed(kv):
    kv.init("w", zeros())
    kv.set_optimizer(optimizer.SGD(lr_scheduler=lr_scheduler.FactorScheduler(2, 0.5, base_lr=1.0)))
    seen = []
    for _ in range(6):
        kv.push("w", -ones())
        a = zeros()
        kv.pull("w", out=a)
        seen.append(a[0, 0])
    np.testing.assert_allclose(np.diff([0, *seen]), [1, 1, 0.5, 0.5, 0.25, 0.25])


def test_factors_of_named_parameters():
    made = optimizer.SGD(wd=0.1, param_idx2name={0: "fc_weight", 1: "fc_bias", 2: "bn_gamma", 3: "bn_beta"})
    assert [made.factors_of(key) for key in (0, 1, 2, 3)] == [(1, 1), (1, 0), (1, 1), (1, 0)]
    made.set_lr_mult({"fc_bias": 2, 0: 0.5})
    made.set_wd_mult({"bn_beta": 0.25})
    assert [made.factors_of(key) for key in (0, 1, 3, "fc_bias")] == [(0.5, 1), (2, 0), (1, 0.25), (2, 0)]


def test_named_parameters_have_factors_of_their_own(kv):
    made = optimizer.SGD(learning_rate=1, wd=0.5, param_idx2name={0: "fc_weight", 1: "fc_bias"})
    made.set_lr_mult({"fc_weight": 0.5})
    kv.init(0, ones())
    kv.set_optimizer(made)
    kv.init(1, ones())  # later ones too
    a = zeros()
    for key, expected in ((0, 1 - 0.5 * 0.5), (1, 1)):
        kv.pushpull(key, zeros(), out=a)
        holds(a, expected)
    kv.set_optimizer(optimizer.SGD(learning_rate=1, wd=0.5))
    kv.pushpull(1, zeros(), out=a)
    holds(a, 0.5)
    kv.set_key_parameters([0, 1], "wd_mult=0")
    kv.pushpull(1, zeros(), out=a)
    holds(a, 0.5)
    with pytest.raises(ArgumentError, match="lr_mult"):
        kv.set_key_parameters(1, "momentum=3")
    kv.set_key_parameters([0, 1], "")
    kv.set_optimizer(made)
    kv.set_optimizer("sgd rate=1")  # which has no multipliers
    kv.pushpull(0, zeros(), out=a)


def test_states_are_saved_while_a_checkpoint_is(node, tmp_path):
    with kvstore.create("dist_async") as kv:
        shape = (1000, 1000)
        kv.init("w", np.zeros(shape, np.float32))
        kv.set_optimizer("mx.sgd learning_rate=1 momentum=0.5")
        kv.push("w", np.ones(shape, np.float32))
        for number in range(3):
            saving = node.save_async(str(tmp_path / "run"))
            kv.save_optimizer_states(str(tmp_path / "states"))
            saving.wait()
        kv.load_optimizer_states(str(tmp_path / "states"))


def test_states_are_saved_and_loaded(kv, tmp_path):
    def train(store, steps):
        a = zeros()
        for step in range(steps):
            store.pushpull("w", ones() * (step - 1.5), out=a)
        return a

    path = tmp_path / "adam.states"
    kv.init("w", ones())
    kv.set_optimizer(optimizer.Adam(learning_rate=0.1))
    begun = train(kv, 3)
    kv.save_optimizer_states(path, dump_optimizer=True)
    expected = train(kv, 4)
    other = kvstore.create("local")
    other.init("w", begun)
    other.load_optimizer_states(path)
    np.testing.assert_array_equal(train(other, 4), expected)
    stranger = kvstore.create("local")
    stranger.init("v", ones())
    stranger.set_optimizer(optimizer.Adam(learning_rate=0.1))
    pickled = tmp_path / "mxnet.states"
    pickled.write_bytes(pickle.dumps({0: [1.0, 2.0]}))
    for wrong, reason in ((path, "w"), (pickled, "pickle"), (tmp_path / "none", "none")):
        with pytest.raises((ArgumentError, OSError, polyverso.Error), match=reason):
            stranger.load_optimizer_states(wrong)
    stranger.push("v", ones())


def test_classes_have_the_parameters_and_defaults_of_the_library():
    for name in "sgd nag signum ftml lbsgd dcasgd sgld adam adamw adamax nadam adagrad adadelta rmsprop ftrl lamb lion test".split():
        made = optimizer.create(name)
        with pytest.raises(ArgumentError) as refused:  # lists all parameters, its own before the common ones
            capi.kv_optimizer_rate(f"{made.kind} no_such_parameter=1", 1)
        library = dict(re.findall(r"(\w+)=(\S+) \(", refused.value.text.partition(" wd=")[0]))
        library.pop("multi_precision", None)
        own = {key: getattr(made, key) for key in vars(type(made)).get("__annotations__", {})}
        own["learning_rate"] = made.learning_rate or 0.01
        told = {key: value if isinstance(value, str) else float(value or 0) for key, value in own.items()}
        assert told == {key: value if value.isalpha() else float(value) for key, value in library.items()}, name


def test_an_asynchronous_pushpull_keeps_what_it_pulls_into(kv):
    kv.init("w", ones())
    for into_pushed in (False, True):
        value, out = Tensor.copy_of(ones()), Tensor.copy_of(zeros())
        into = value if into_pushed else out
        references = sys.getrefcount(into)
        request = capi.kv_pushpull(kv.handle, "w", value, None if into_pushed else out, {"flags": capi.MV_ASYNC})
        assert sys.getrefcount(into) > references
        capi.mv_request_wait(request, 0)
        gc.collect()
        assert sys.getrefcount(into) == references


def test_a_store_that_could_not_be_closed_inside_its_updater_can_be_later():
    kv = kvstore.create("local")
    kv.init(1, ones())
    kv.set_updater(lambda key, merged, stored: kv.close())
    with pytest.raises(StateError, match="MV_EREENTRANT"):
        kv.push(1, ones())
    kv.set_updater(None)
    kv.close()
    with pytest.raises(polyverso.Error):
        kv.push(1, ones())
