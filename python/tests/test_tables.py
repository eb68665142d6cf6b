"""Dtypes, sparse and key-value tables, updaters, staleness."""

import inspect

import numpy as np
import pytest

import polyverso
from polyverso import capi, dtypes


@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [
        ("f32", "f4"), ("f64", "f8"), ("i64", "i8"), ("i32", "i4"), ("u8", "u1"), ("f16", "f2"), ("i8", "i1"),
        (np.int32, "i4"), (np.int8, "i1"), ("int64", "i8"),
    ],
)
def test_every_dtype(node, dtype, numpy):
    table = node.matrix(2, 2, dtype=dtype, init=[[1, 2], [3, 4]])
    assert table.dtype == np.dtype(numpy)
    table.add([10, 10], rows=[1])
    values = table.get()
    assert values.dtype == np.dtype(numpy)
    assert values.tolist() == [[1, 2], [13, 14]]
    assert node.open(table.name).dtype == table.dtype


def test_integers_are_exact_and_wrap(node):
    large = node.array(1, dtype="i64", init=[2**63 - 1])
    assert large.get()[0] == 2**63 - 1
    large.add([1])
    assert large.get()[0] == -(2**63)
    small = node.array(1, dtype="u8", init=[250])
    small.add(np.array([10], np.int64))
    assert small.get()[0] == 4


@pytest.mark.parametrize("data", [[1.5], np.array([1.0]), [300], [-1], [2**70], ["1"], [None]])
def test_nothing_is_cut_on_the_way_to_integers(node, data):
    table = node.array(1, dtype="u8")
    with pytest.raises(polyverso.ArgumentError):
        table.add(data)
    assert table.info()["adds"] == 0


def test_empty_and_boolean_data_are_integers(node):
    table = node.array(2, dtype="i32")
    table.add([], rows=[])
    table.add([True, False])
    assert table.get().tolist() == [1, 0]


def test_half_width_sums_do_not_lose_what_each_add_is_too_small_for(node):
    table = node.array(1, dtype="f16", init=[2048])
    for _ in range(4):
        table.add([0.5])
    assert table.get()[0] == 2050


def bits_of(values):
    """The bits of numbers that bfloat16 represents exactly."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_as_bits(node):
    table = node.array(2, dtype="bf16", init=bits_of([1, -2]))
    assert table.dtype == dtypes.BF16
    table.add(bits_of([0.5, 0.5]))
    assert table.get().view(np.uint16).tolist() == bits_of([1.5, -1.5]).tolist()
    out = np.empty(2, np.uint16)
    assert table.get(out=out) is out
    assert out.tolist() == bits_of([1.5, -1.5]).tolist()


def test_bfloat16_without_its_package(node, monkeypatch):
    monkeypatch.setattr(dtypes, "BF16", dtypes.BITS)
    monkeypatch.setitem(dtypes.DTYPES, capi.MV_BF16, dtypes.BITS)
    table = node.array(2, dtype="bf16")
    table.add(bits_of([1, 2]))
    assert table.get().tolist() == bits_of([1, 2]).tolist()
    with pytest.raises(polyverso.ArgumentError, match="ml_dtypes"):
        table.add([1.0, 2.0])
    with pytest.raises(TypeError, match="bf16"):
        node.array(2, dtype=np.uint16)


def test_bfloat16_with_its_package(node):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in ("bf16", ml_dtypes.bfloat16):
        table = node.keyvalue(2, dtype=dtype, initial=0.5)
        table.add([[1, 2.25]], keys=[9])
        values = table.get(keys=[9, 4])
        assert values.dtype == ml_dtypes.bfloat16
        assert values.astype(float).tolist() == [[1.5, 2.75], [0.5, 0.5]]
        ids, scanned = next(table.scan())
        assert (ids.tolist(), scanned.dtype) == ([9], ml_dtypes.bfloat16)
        out = np.empty((1, 2), ml_dtypes.bfloat16)
        assert table.get(keys=[9], out=out) is out
        assert out.astype(float).tolist() == [[1.5, 2.75]]


# ---------------------------------------------------------------------------- sparse


def test_a_sparse_matrix_stores_what_was_changed(node):
    table = node.sparse(10**9, 3, name="words", initial=0.5)
    assert (table.shape, len(table), table.info()["stored"]) == ((10**9, 3), 10**9, 0)
    table.add([[1, 2, 3], [1, 1, 1]], rows=[999_999_999, 999_999_999])
    assert table.get(rows=[5, 999_999_999]).tolist() == [[0.5] * 3, [2.5, 3.5, 4.5]]
    assert table.info()["stored"] == 1
    table.set([[7, 7, 7]], rows=[5])
    assert {int(i): v.tolist() for ids, values in table.scan() for i, v in zip(ids, values)} == {
        5: [7, 7, 7], 999_999_999: [2.5, 3.5, 4.5]
    }
    table.erase([5, 6])
    assert table.peek(rows=[5]).tolist() == [[0.5] * 3]
    assert table.info()["stored"] == 1
    for rows in ([10**9], [-1]):
        with pytest.raises(polyverso.ArgumentError, match="outside"):
            table.get(rows=rows)


def test_random_initial_values_are_a_function_of_seed_id_and_column(node):
    first = node.sparse(100, 8, initial=1, initial_range=0.25, seed=7).get(rows=range(100))
    again = node.keyvalue(8, initial=1, initial_range=0.25, seed=7).get(keys=range(100))
    other = node.sparse(100, 8, initial=1, initial_range=0.25, seed=8).get(rows=range(100))
    assert (first == again).all()
    assert (first != other).mean() > 0.9
    assert (abs(first - 1) <= 0.25).all() and first.std() > 0.1


def test_a_whole_sparse_matrix_is_its_rows(node):
    table = node.sparse(3, 2, initial=1)
    table.add([[1, 1]], rows=[2])
    assert table.get().tolist() == [[1, 1], [1, 1], [2, 2]]


# ---------------------------------------------------------------------------- key-value


def test_keys_are_any_integers_of_64_bits(node):
    table = node.keyvalue(dtype="i64")
    keys = [0, -1, 2**63 - 1, -(2**63), 12345678901234567]
    table.add([1, 2, 3, 4, 5], keys=keys)
    table.add([10, 10], rows=[keys[2], keys[2]], wait=False)
    assert table.get(keys=keys).tolist() == [1, 2, 23, 4, 5]
    assert table.get(keys=np.array([7, 0], np.uint64)).tolist() == [0, 1]
    assert (len(table), table.shape, bool(table)) == (5, (), True)
    stored = {int(k): int(v) for ids, values in table.scan(chunk=2) for k, v in zip(ids, values)}
    assert stored == dict(zip(keys, [1, 2, 23, 4, 5]))
    table.erase(keys=keys[:3], wait=False)
    assert len(table) == 2
    table.erase([keys[3], keys[4]])
    assert len(table) == 0 and table
    assert list(table.scan()) == []


@pytest.mark.parametrize("keys", [[2**63], [-(2**63) - 1], [2**64], np.array([2**63], np.uint64), [1.5], ["a"], [None]])
def test_other_keys_are_refused(node, keys):
    table = node.keyvalue()
    with pytest.raises(polyverso.ArgumentError, match="64"):
        table.get(keys=keys)


def test_keys_have_to_be_named_once(node):
    table = node.keyvalue(2)
    for call in (table.get, table.peek, lambda: table.add([1, 1]), lambda: table.get([1], keys=[1])):
        with pytest.raises(polyverso.ArgumentError, match="key"):
            call()
    assert table.get(keys=[]).shape == (0, 2)
    table.erase([])


def test_results_and_scans_are_fresh(node):
    table = node.keyvalue()
    table.set(np.arange(100), keys=range(100))
    chunks = list(table.scan(chunk=7))
    assert all(0 < ids.size <= 7 and ids.shape == values.shape for ids, values in chunks)
    assert sorted(int(i) for ids, _ in chunks for i in ids) == list(range(100))
    assert all((ids == values).all() for ids, values in chunks)


def test_a_capacity_drops_what_was_least_recently_used(node):
    table = node.keyvalue(capacity=100)
    for key in range(1000):
        table.add([1], keys=[key])
        table.add([1], keys=[-7])
    assert len(table) <= 100
    assert table.get(keys=[-7])[0] == 1000
    assert table.get(keys=[0])[0] == 0


def test_asynchronous_calls_with_keys(node):
    table = node.keyvalue(2)
    table.add_async([[1, 2]], keys=[5]).wait()
    assert table.get_async(keys=[5, 6]).wait().tolist() == [[1, 2], [0, 0]]


def test_what_can_wait_can_be_asynchronous(node):
    table = node.sparse(10, 2)
    assert table.set_async([[1, 2], [3, 4]], rows=[5, 6], timeout=5).wait() is None
    out = np.zeros((2, 2), np.float32)
    assert table.peek_async([5, 6], out=out).wait() is out and out.tolist() == [[1, 2], [3, 4]]
    assert table.erase_async([5]).wait(timeout=5) is None
    assert table.peek([5, 6]).tolist() == [[0, 0], [3, 4]]
    table.set_updater_async("assign").wait()
    table.add([[7, 8]], rows=[6])
    assert table.get([5, 6]).tolist() == [[0, 0], [7, 8]]
    whole = node.array(3)
    whole.set_async([1, 2, 3]).wait()
    assert whole.peek_async().wait().tolist() == [1, 2, 3]
    with pytest.raises(polyverso.ArgumentError):
        table.set_updater_async("sdg")
    with pytest.raises(polyverso.ArgumentError):
        whole.erase_async([0])


@pytest.mark.parametrize("call", ["get", "peek", "add", "set", "erase", "set_updater"])
def test_calls_take_a_timeout_and_have_an_asynchronous_twin(call):
    for name in (call, call + "_async"):
        assert "timeout" in inspect.signature(getattr(polyverso.Table, name)).parameters


def test_text_with_a_zero_byte_is_not_taken_for_what_is_before_it(node):
    node.array(1, name="t")
    calls = [
        lambda: node.array(1, name="t2\0"), lambda: node.open("t\0x"), lambda: node.save("/tmp\0/x"),
        lambda: node.array(1, updater="add\0sgd"), lambda: polyverso.open_node(bind="127.0.0.1\0x"),
    ]
    for call in calls:
        with pytest.raises(polyverso.ArgumentError, match="zero byte"):
            call()
    with pytest.raises(TypeError, match="text"):
        capi.mv_table_open(node.handle, 5)


def test_only_keyed_tables_erase_and_scan(node):
    table = node.matrix(2, 2)
    for call in (lambda: table.erase([0]), lambda: next(table.scan())):
        with pytest.raises(polyverso.ArgumentError):
            call()
    with pytest.raises(polyverso.ArgumentError, match="chunk|capacity|row"):
        next(node.keyvalue().scan(chunk=0))


# ---------------------------------------------------------------------------- updaters, clocks


def test_updaters(node):
    table = node.array(2, init=[1, 2], updater="sgd rate=0.5")
    table.add([1, 1])
    assert table.get().tolist() == [0.5, 1.5]
    table.set_updater("sgd rate=0.25")
    table.add([2, 2])
    assert table.get().tolist() == [0, 1]
    table.set_updater("assign", timeout=5)
    table.add([7, 8])
    assert table.get().tolist() == [7, 8]
    assert table.info()["updater"] == "assign"
    node.sparse(5, 2, updater="adagrad rate=0.1")
    for call in (lambda: table.set_updater("sdg"), lambda: node.array(2, updater="sgd speed=1")):
        with pytest.raises(polyverso.ArgumentError) as caught:
            call()
        assert "sgd" in caught.value.text
    with pytest.raises(polyverso.ArgumentError):
        node.array(2, dtype="i32", updater="sgd rate=0.1")


def test_clocks(node):
    table = node.array(1, staleness=2)
    assert (table.info()["staleness"], table.info()["clock"]) == (2, 0)
    for _ in range(5):
        table.add([1])
        table.clock()
        table.get()
    assert table.info()["clock"] == 5
    assert node.array(1).info()["staleness"] == capi.MV_UNSET
    with pytest.raises(polyverso.ArgumentError):
        node.array(1, staleness=-2)


# ---------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_brings_the_tables_back(tmp_path):
    with polyverso.init() as node:
        node.matrix(2, 2, name="m", init=[[1, 2], [3, 4]])
        node.keyvalue(dtype="i64", name="kv").add([5], keys=[-9])
        node.save(tmp_path)
        node.open("m").add([[1, 1], [1, 1]])
        node.save_async(tmp_path, keep=1).wait(timeout=30)
    described = polyverso.inspect_checkpoint(tmp_path)
    assert "kv" in str(described)
    with polyverso.init() as node:
        node.load(tmp_path)
        assert node.open("m").get().tolist() == [[2, 3], [4, 5]]
        kv = node.keyvalue(dtype="i64", name="kv")
        assert kv.get(keys=[-9, 1]).tolist() == [5, 0]
        kv.add([1], keys=[1])
        node.load_async(str(tmp_path)).wait(timeout=30)
        assert kv.get(keys=[-9, 1]).tolist() == [5, 0]


def test_what_is_no_checkpoint_is_refused(node, tmp_path):
    for call in (lambda: node.load(tmp_path), lambda: polyverso.inspect_checkpoint(tmp_path / "none")):
        with pytest.raises(polyverso.ArgumentError) as caught:
            call()
        assert caught.value.name == "MV_ENOTFOUND"
    (tmp_path / "file").write_text("")
    with pytest.raises(polyverso.Error) as caught:
        node.save(tmp_path / "file")
    assert str(tmp_path) in caught.value.text


def test_tables_of_bf16_take_tensors():
    node = polyverso.init()
    table = node.array(3, dtype="bf16")
    table.add(polyverso.Tensor.ones(3, "bf16"))
    table.add(polyverso.Tensor.full(3, 0.5, "f32"))
    out = polyverso.Tensor.zeros(3, "bf16")
    table.get(out=out)
    assert out.to_list() == [1.5] * 3
    node.shutdown()
