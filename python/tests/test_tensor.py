"""polyverso.Tensor, with numpy as the oracle: bit for bit where IEEE 754 defines the bits."""

import gc
import math
import os
import random
import statistics
import subprocess
import sys

import numpy as np
import polyverso
import pytest
from polyverso import Tensor, capi

NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "u8": np.uint8, "i8": np.int8, "f16": np.float16}
FLOATS = ("f32", "f64", "f16")
INTEGERS = ("i64", "i32", "u8", "i8")


def some(rng, shape, dtype, low=-100, high=100):
    """Random numbers of a dtype, in a range that all dtypes can represent."""
    if dtype in INTEGERS:
        return rng.integers(0 if dtype == "u8" else low, high, shape).astype(NUMPY[dtype])
    return (rng.uniform(low, high, shape)).astype(NUMPY[dtype])


def same(tensor, array):
    """Asserts equal shape, dtype and bits; all NaNs are equal."""
    got = tensor.numpy()
    assert got.dtype == array.dtype and got.shape == array.shape, (got.dtype, array.dtype, got.shape, array.shape)
    np.testing.assert_array_equal(got, array)


def shapes(rng):
    """Two shapes that can be broadcast together."""
    whole = [int(rng.integers(0, 6)) for _ in range(rng.integers(0, 4))]
    first = [n if rng.random() < 0.7 else 1 for n in whole]
    second = [n if rng.random() < 0.7 else 1 for n in whole]
    return tuple(first[rng.integers(0, len(first) + 1) :] if rng.random() < 0.3 else first), tuple(second)


OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("seed", range(40))
def test_operators_of_any_shapes_and_dtypes(seed):
    rng = np.random.default_rng(seed)
    for name, operate in OPERATORS.items():
        left, right = shapes(rng)
        one, two = rng.choice(list(NUMPY), 2)
        a, b = some(rng, left, one), some(rng, right, two)
        common = np.result_type(a.dtype, b.dtype)  # from dtypes only: numpy 1 also considers 0-d values
        common = np.dtype(np.int32) if common == np.int16 else common  # i8 with u8: tensors have no i16
        x, y = a.astype(common), b.astype(common)
        with np.errstate(all="ignore"):
            expected = np.asarray(operate(x, y))
            made = operate(Tensor.copy_of(a), Tensor.copy_of(b))
            low, high = np.minimum(x, y), np.maximum(x, y)
        if name == "truediv" and one in INTEGERS and two in INTEGERS:
            expected = expected.astype(np.float64)
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            expected = expected.astype(np.uint8)
        same(made, expected)
        same(Tensor.copy_of(a).minimum(Tensor.copy_of(b)), np.asarray(low))
        same(Tensor.copy_of(a).maximum(Tensor.copy_of(b)), np.asarray(high))


@pytest.mark.parametrize("count", [1, 7, 64, 511, 512, 513, 5000])
@pytest.mark.parametrize("dtype", NUMPY)
def test_long_runs_and_scalars(dtype, count):
    rng = np.random.default_rng(count)
    a, b = some(rng, count, dtype), some(rng, count, dtype)
    s, t = Tensor.copy_of(a), Tensor.copy_of(b)
    with np.errstate(all="ignore"):
        same(s + t, a + b)
        same(s * t, a * b)
        same(s - 3, a - a.dtype.type(3))
        same(3 - s, a.dtype.type(3) - a)
        same(s * 7, a * a.dtype.type(7))
        same(s < 2.5, (a < 2.5).astype(np.uint8))
        same(abs(s), np.abs(a))
        same(-s, np.negative(a))
        if dtype == "f64":
            np.testing.assert_array_max_ulp((s**2).numpy(), a * a, 1)
        else:
            same(s**2, a * a)
        if dtype in FLOATS:
            same(s / t, a / b)
            same(s * 0.1, a * a.dtype.type(0.1))
            same(abs(s).sqrt(), np.sqrt(np.abs(a)))
            near = {"rtol": 2e-3 if dtype == "f16" else 1e-6}
            np.testing.assert_allclose((s / 20).exp().numpy(), np.exp(a / a.dtype.type(20)), **near)
            np.testing.assert_allclose(abs(s).log().numpy(), np.log(np.abs(a)), atol=1e-3, **near)


def test_exp_and_log_of_doubles_are_right_to_the_last_places():
    values = np.concatenate([np.linspace(-740, 709, 20001), np.linspace(-1, 1, 20001)])
    np.testing.assert_array_max_ulp(Tensor.copy_of(values).exp().numpy(), np.exp(values), 2)
    values = np.concatenate([np.logspace(-300, 300, 20001), np.linspace(0.5, 2, 20001)])
    np.testing.assert_array_max_ulp(Tensor.copy_of(values).log().numpy(), np.log(values), 2)
    special = np.array([0.0, -1.0, np.inf, -np.inf, np.nan, 5e-324])
    with np.errstate(all="ignore"):
        same(Tensor.copy_of(special).log(), np.log(special))
        np.testing.assert_array_max_ulp(Tensor.copy_of(special).exp().numpy(), np.exp(special), 1)


def test_nan_infinity_and_signed_zero():
    values = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 65504.0, 1e-8]
    for dtype in FLOATS:
        with np.errstate(all="ignore"):
            a = np.array([x for x in values for _ in values]).astype(NUMPY[dtype])
            b = np.array([y for _ in values for y in values]).astype(NUMPY[dtype])
            for operate in OPERATORS.values():
                made, expected = operate(Tensor.copy_of(a), Tensor.copy_of(b)), operate(a, b)
                same(made, expected.astype(np.uint8) if expected.dtype == np.bool_ else expected)
            same(Tensor.copy_of(a).minimum(b), np.minimum(a, b))
            same(Tensor.copy_of(a).maximum(b), np.maximum(a, b))


@pytest.mark.parametrize("to", NUMPY)
@pytest.mark.parametrize("dtype", NUMPY)
def test_casts(dtype, to):
    rng = np.random.default_rng(1)
    a = some(rng, 3000, dtype, 0, 127)
    same(Tensor.copy_of(a).cast(to), a.astype(NUMPY[to]))
    if dtype in FLOATS and to in FLOATS:
        with np.errstate(over="ignore"):
            a = (rng.standard_normal(3000) * 10.0 ** rng.integers(-9, 6, 3000)).astype(NUMPY[dtype])
            same(Tensor.copy_of(a).cast(to), a.astype(NUMPY[to]))
    if dtype in INTEGERS and to in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        a = rng.integers(limits.min, limits.max, 3000, dtype=NUMPY[dtype], endpoint=True)
        same(Tensor.copy_of(a).cast(to), a.astype(NUMPY[to]))


def test_floats_become_integers_within_their_range():
    wild = Tensor.copy_of(np.array([1e300, -1e300, np.nan, np.inf, -np.inf, -0.9, 300.7]))
    same(wild.cast("u8"), np.array([255, 0, 0, 255, 0, 0, 255], np.uint8))
    top, bottom = 2**63 - 1, -(2**63)
    same(wild.cast("i64"), np.array([top, bottom, 0, top, bottom, 0, 300]))


def test_wide_integers_round_once_on_their_way_to_halves():
    for value in (2049, 2051, (1 << 60) + (1 << 52) + 1, (1 << 60) + (1 << 52), -(1 << 62) - (1 << 54) - 1):
        bits = int(Tensor.copy_of(np.array([value])).cast("bf16").numpy()[0])
        got = float(np.array([bits << 16], np.uint32).view(np.float32)[0])
        exponent = math.floor(math.log2(abs(value))) - 7
        assert got == round(value / 2**exponent) * 2.0**exponent or abs(value) > 2**53
        neighbours = [float(np.array([(bits + d) << 16], np.uint32).view(np.float32)[0]) for d in (-1, 1)]
        assert all(abs(int(got) - value) <= abs(int(near) - value) for near in neighbours)
    halves = Tensor.copy_of(np.array([2049, 2051, 65519, 65520])).cast("f16")
    same(halves, np.array([2048, 2052, 65504, np.inf], np.float16))


REDUCTIONS = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max, "argmin": np.argmin, "argmax": np.argmax}


@pytest.mark.parametrize("seed", range(20))
def test_reductions(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 40, rng.integers(1, 4)))
    for dtype in NUMPY:
        a = some(rng, shape, dtype)
        tensor = Tensor.copy_of(a)
        for axis in [None, *range(len(shape))]:
            for name, reduction in REDUCTIONS.items():
                made = getattr(tensor, name)(axis)
                if name in ("sum", "mean"):
                    exact = reduction(a.astype(np.float64), axis)
                    wanted = np.float64 if dtype == "f64" or dtype in INTEGERS else np.float32
                    wanted = np.int64 if name == "sum" and dtype in INTEGERS else wanted
                    assert made.numpy().dtype == wanted
                    relative = 1e-6 if wanted == np.float32 else 1e-12
                    np.testing.assert_allclose(made.numpy(), exact, rtol=relative, atol=1e-5)
                else:
                    same(made, np.asarray(reduction(a, axis)))
            norm = np.sqrt(np.sum(a.astype(np.float64) ** 2, axis))
            np.testing.assert_allclose(tensor.norm(axis).numpy(), norm, rtol=1e-6)


def test_nan_is_least_and_greatest():
    a = np.array([[1.0, np.nan, 3.0], [np.nan, 0.0, np.nan]])
    for name in ("min", "max", "argmin", "argmax"):
        for axis in (None, 0, 1):
            same(getattr(Tensor.copy_of(a), name)(axis), np.asarray(getattr(np, name)(a, axis)))


def test_sums_lose_next_to_nothing():
    rng = np.random.default_rng(3)
    values = rng.standard_normal(300_001) * 10.0 ** rng.integers(-8, 8, 300_001)
    exact = math.fsum(values)
    scale = math.fsum(abs(values))
    assert abs(Tensor.copy_of(values).sum().item() - exact) <= 1e-15 * scale
    assert abs(Tensor.copy_of(values.reshape(-1, 1)).sum(0)[0] - exact) <= 1e-15 * scale
    columns = np.stack([values, -values], axis=1)
    assert abs(Tensor.copy_of(columns).sum(0)[1] + exact) <= 2e-16 * max(scale, 1)
    assert Tensor.copy_of(np.array([1e308, 1e308, -np.inf])).sum().item() == -np.inf
    assert abs(Tensor.copy_of(values).dot(values) - math.fsum(values * values)) <= 1e-14 * math.fsum(values * values)


def test_integers_wrap_in_sums():
    big = np.array([2**62, 2**62, 2**62])
    assert Tensor.copy_of(big).sum().item() == int(np.sum(big))
    same(Tensor.copy_of(np.stack([big, big])).sum(1), np.sum(np.stack([big, big]), 1))


@pytest.mark.parametrize("seed", range(30))
def test_in_place_upon_itself(seed):
    rng = np.random.default_rng(seed)
    a = some(rng, (12, 3), rng.choice(FLOATS))
    tensor = Tensor.copy_of(a)
    for _ in range(5):
        i, j, n = (int(x) for x in rng.integers(0, 6, 3))
        with np.errstate(all="ignore"):
            kind = rng.integers(0, 4)
            if kind == 0:
                a[i : i + n] += a[j : j + n]
                tensor[i : i + n] += tensor[j : j + n]
            elif kind == 1:
                a -= a[i]
                tensor -= tensor[i]
            elif kind == 2:
                a[i : i + n] = a[j : j + n]
                tensor[i : i + n] = tensor[j : j + n]
            else:
                a[i] *= 0.5
                tensor[i] *= 0.5
        same(tensor, a)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_matrices_of_halves_are_multiplied_as_floats(dtype):
    a, b = Tensor.normal((7, 9), 1, dtype=dtype), Tensor.normal((9, 5), 2, dtype=dtype)
    expected = a.cast("f32").matmul(b.cast("f32")).cast(dtype)
    assert a.matmul(b).equal(expected) and a.matmul(b).dtype == dtype
    with pytest.raises(polyverso.Error, match="same float dtype"):
        a.matmul(b.cast("f32"))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_matrices_are_multiplied_in_the_order_of_k(dtype):
    rng = np.random.default_rng(5)
    for m, k, n in ((1, 1, 1), (3, 5, 7), (17, 33, 65), (5, 0, 4), (0, 3, 3)):
        a, b = rng.standard_normal((m, k)).astype(NUMPY[dtype]), rng.standard_normal((k, n)).astype(NUMPY[dtype])
        expected = np.zeros((m, n), NUMPY[dtype])
        for i in range(k):
            expected += a[:, i : i + 1] * b[i : i + 1]
        same(Tensor.copy_of(a) @ Tensor.copy_of(b), expected)
        same(Tensor.copy_of(a.T).matmul(Tensor.copy_of(b.T), True, True), expected)
    for kind in NUMPY:
        a = some(rng, (19, 37), kind)
        same(Tensor.copy_of(a).transpose(), a.T)


def test_indices_and_slices():
    a = np.arange(24, dtype=np.float64).reshape(4, 3, 2)
    tensor = Tensor.copy_of(a)
    same(tensor[1], a[1])
    same(tensor[-1, 2], a[-1, 2])
    same(tensor[1:3], a[1:3])
    same(tensor[-2:], a[-2:])
    same(tensor[3:1], a[3:1])
    assert tensor[3, 2, 1] == 23 and len(tensor) == 4 and [row.shape for row in tensor] == [(3, 2)] * 4
    tensor[0, 1] = [7, 8]
    tensor[1:] = 5
    a[0, 1], a[1:] = [7, 8], 5
    same(tensor, a)
    same(tensor.take([2, 0, 2]), a[[2, 0, 2]])
    same(tensor.reshape(2, -1), a.reshape(2, -1))
    assert tensor.to_list() == a.tolist() and float(Tensor.full((), 3)) == 3
    assert Tensor.copy_of(np.array([2**63 - 1]))[0] == 2**63 - 1
    with pytest.raises(polyverso.ArgumentError, match=r"row 4"):
        tensor.row(4)
    with pytest.raises(IndexError):
        tensor[0:4:2]
    with pytest.raises(polyverso.ArgumentError, match=r"f64 \(4, 3, 2\)"):
        tensor.set(0, 1, 5)
    with pytest.raises(TypeError):
        Tensor.zeros(3, "complex64")


def test_row_sparse():
    rng = np.random.default_rng(9)
    rows = rng.integers(0, 50, 30)
    values = some(rng, (30, 4), "f32")
    dense = np.zeros((50, 4))
    np.add.at(dense, rows, values.astype(np.float64))
    sparse = Tensor.sparse(rows, values, 50)
    ids, held = sparse.parts()
    same(ids, np.unique(rows))
    np.testing.assert_allclose(held.numpy(), dense[np.unique(rows)], rtol=1e-5)
    np.testing.assert_allclose(sparse.to_dense().numpy(), dense, rtol=1e-5)
    assert sparse.to_dense().to_sparse().parts()[0].equal(ids)
    kept = sparse.take([49, int(ids[0]), int(ids[0])])
    assert kept.shape == (50, 4) and int(ids[0]) in kept.parts()[0].to_list()
    total = Tensor.ones((50, 4)).axpy(2, sparse)
    np.testing.assert_allclose(total.numpy(), 1 + 2 * dense, rtol=1e-5)
    halves = Tensor.sparse([3] * 2048, Tensor.ones((2048, 1), "f16"), 5)
    assert halves.parts()[1][0, 0] == 2048  # summed as floats; a sum of halves would stop growing at 2048
    empty = Tensor.sparse([], np.zeros((0, 2), np.float32), 4)
    same(empty.to_dense(), np.zeros((4, 2), np.float32))


def philox(counter, key):
    mask = 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(q >> 32) ^ counter[1] ^ key[0], q & mask, (p >> 32) ^ counter[3] ^ key[1], p & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def words(seed, stream, count):
    seed &= 2**64 - 1
    for i in range(count):
        block = philox([i // 2 & 0xFFFFFFFF, i // 2 >> 32, 0, stream], [seed & 0xFFFFFFFF, seed >> 32])
        yield block[2 * (i % 2)] | block[2 * (i % 2) + 1] << 32


def test_random_numbers_are_philoxs():
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's own test vector
    for seed in (0, 42, -1, 2**63 - 1):
        uniform = np.array([(word >> 11) * 2.0**-53 for word in words(seed, 0, 33)])
        same(Tensor.uniform(33, seed, dtype="f64"), uniform)
        same(Tensor.uniform(33, seed, -2, 3), (-2 + uniform * 5).astype(np.float32))
        same(Tensor.uniform(33, seed, 10, 20, "i64"), np.array([10 + (word * 10 >> 64) for word in words(seed, 0, 33)]))
        inverse = statistics.NormalDist().inv_cdf
        normal = np.array([inverse(((word >> 12) + 0.5) * 2.0**-52) for word in words(seed, 1, 33)])
        np.testing.assert_allclose(Tensor.normal(33, seed, dtype="f64").numpy(), normal, rtol=1e-13)


def test_memory_outlives_what_was_made_of_it():
    tensor = Tensor.range(1000)
    array, view = tensor.numpy(), memoryview(tensor[10:20])
    assert array.flags.writeable and array.__array_interface__["data"][0] % 64 == 0
    del tensor
    gc.collect()
    others = [Tensor.full(1000, -1) for _ in range(50)]
    assert array[999] == 999 and view.tolist() == list(range(10, 20))
    del others
    mine = np.arange(6.0)
    lent = Tensor.view(mine.reshape(2, 3))
    row = lent[1]
    del lent
    row += 1
    assert mine.tolist() == [0, 1, 2, 4, 5, 6] and row.info()["is_lent"] == 1
    with pytest.raises(BufferError):
        bytearray_view = bytearray(8)
        held = Tensor.view(np.frombuffer(bytearray_view, np.float32))
        bytearray_view.extend(b"x")  # a tensor holds the buffer, so it must not move
    del held
    freed = Tensor.zeros(3)
    freed.free()
    freed.free()
    with pytest.raises(polyverso.HandleError):
        freed.sum()


def test_dlpack():
    tensor = Tensor.range(6, dtype="f64").reshape(2, 3)
    array = np.from_dlpack(tensor)  # which numpy makes read-only
    tensor[0, 0] = 9
    assert array[0, 0] == 9
    del tensor
    gc.collect()
    assert array[1, 2] == 5
    theirs = np.arange(4, dtype=np.int32)
    ours = Tensor.from_dlpack(theirs)
    ours += 1
    assert theirs.tolist() == [1, 2, 3, 4] and ours.dtype == "i32"
    assert Tensor.from_dlpack(np.empty((2, 0, 3))[:, ::2]).shape == (2, 0, 3)  # strides of no elements mean nothing
    with pytest.raises(polyverso.ArgumentError, match="row-major"):
        Tensor.from_dlpack(np.arange(10.0)[::2])
    with pytest.raises(polyverso.ArgumentError, match="dtype"):
        Tensor.from_dlpack(np.arange(4, dtype=np.int16))


def test_a_thousand_tensors_need_few_descriptors():
    def segments():
        links = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                pass
        return sum("polyverso-tensors" in link for link in links)

    gc.collect()
    before = segments()
    tensors = [Tensor.zeros(random.Random(i).randrange(1, 2000)) for i in range(1000)]
    assert segments() - before <= 2 and all(tensor.info()["is_shared"] for tensor in tensors)
    del tensors
    gc.collect()
    assert segments() <= before + 1
    large = Tensor.full((1 << 20,), 3)
    where = capi.mv_tensor_data(large)[0]
    del large
    again = Tensor.zeros((1 << 20,))
    assert capi.mv_tensor_data(again)[0] == where and again.max().item() == 0


def test_a_forked_child_keeps_tensors_as_its_own():
    """In a process of its own, because this one may have threads."""
    script = """
import os, polyverso
from polyverso import Tensor

small, large = Tensor.full(3, 2), Tensor.full(1 << 20, 2)
array = large.numpy()
freed = Tensor.full(1 << 20, 5).numpy()
go, gone = os.pipe()
child = os.fork()
if child == 0:
    code = 0
    array[:] = 7
    large += 1
    small *= 3
    if large.sum().item() != 8 << 20 or small.sum().item() != 18:
        code = 1
    os.read(go, 1)
    if not (freed == 5).all():  # though the parent has none of it any more
        code = 2
    try:
        polyverso.Node(0).rank
        code = 3
    except polyverso.StateError:
        pass
    with polyverso.init() as node:
        table = node.array(3)
        table.add(small)
        code = code or (0 if table.get().tolist() == [6, 6, 6] else 4)
        del small, large
        other = Tensor.full(1 << 20, 9)
    os._exit(code)
del freed
others = [Tensor.full(1 << 20, 1) for _ in range(4)]
os.write(gone, b"x")
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 0, code
assert (array == 2).all() and small.sum().item() == 6
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_pool_of_forked_workers_reads_the_parents_tensors():
    """Like PyTorch's DataLoader; in a process of its own."""
    script = """
import multiprocessing, polyverso
from polyverso import Tensor

data = Tensor.range(1000).reshape(10, 100)

def batch(row):
    data[row].numpy()[:] += 1  # in place, in the worker
    return float(data[row].sum().item())

with polyverso.init() as node:
    table = node.array(1000)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        for step in range(1, 4):
            table.add(data.reshape(1000))
            sums = pool.map(batch, range(10), chunksize=10)
            assert table.get().sum() == step * 499500, step
        assert sums[0] >= 4950 + 100
    assert data.sum().item() == 499500
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_tensors_are_a_tables_values():
    with polyverso.init() as node:
        table = node.matrix(4, 3)
        delta = Tensor.range(12).reshape(4, 3)
        table.add(delta)
        table.add(delta[1:2], rows=[3])
        got = Tensor.zeros((4, 3))
        table.get(out=got)
        expected = np.arange(12, dtype=np.float32).reshape(4, 3)
        expected[3] += expected[1]
        same(got, expected)
        with pytest.raises(polyverso.ArgumentError):
            table.get(out=Tensor.zeros((4, 2)))


def test_wrong_uses_say_what_they_are():
    tensor = Tensor.zeros((2, 3))
    with pytest.raises(polyverso.ArgumentError, match=r"\(2, 3\) and \(2,\)"):
        tensor + Tensor.zeros(2)
    with pytest.raises(polyverso.ArgumentError, match="i64"):
        Tensor.zeros(2, "i64") * 0.5
    with pytest.raises(polyverso.ArgumentError, match="negative"):
        Tensor.ones(2, "i64") ** -1
    with pytest.raises(polyverso.ArgumentError):
        Tensor.view(np.zeros(3, np.int16))
    assert not tensor.equal(Tensor.zeros((3, 2))) and tensor.close(tensor + 1e-9)


def test_a_tensor_that_no_memory_holds_is_an_error_at_once():
    with pytest.raises(polyverso.Error, match="MV_ENOMEM.*this machine has"):
        Tensor.ones([1 << 40])
