"""The raw C functions: arguments, results and errors."""

import array
import gc
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import polyverso
from polyverso import capi


@pytest.fixture
def table(node):
    return capi.mv_table_create(node.handle, {"kind": "matrix", "rows": 4, "cols": 3}, None)


def values_of(table, count=12):
    out = np.empty(count, np.float32)
    capi.mv_table_get(table, out)
    return out


@pytest.mark.parametrize(
    "data",
    [
        np.arange(12, dtype="f4"),
        np.arange(12, dtype="f4").reshape(4, 3),
        array.array("f", range(12)),
        memoryview(np.arange(12, dtype="f4")),
        np.arange(12, dtype="f4").tobytes(),
        bytearray(np.arange(12, dtype="f4").tobytes()),
        memoryview(np.arange(12, dtype="f4").tobytes()),
    ],
    ids=["1-d", "2-d", "array.array", "memoryview", "bytes", "bytearray", "memoryview of bytes"],
)
def test_any_contiguous_buffer_goes_in(table, data):
    capi.mv_table_add(table, data)
    assert values_of(table).tolist() == list(range(12))


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (np.ones(12, "f8"), "f64"),
        (np.ones(12, "i4"), "i32"),
        (np.ones(12, "i8"), "i64"),
        (np.ones(12, "u1"), "u8"),
        (np.ones(12, "i1"), "i8"),
        (np.ones(12, "f2"), "f16"),
        (np.ones(12, "u2"), "bf16"),
        (np.ones(12, ">f4"), "astype"),
        (np.ones(12, "i2"), "astype"),
        (np.ones(12, "u8"), "astype"),
        (np.ones(12, "?"), "astype"),
        (np.ones((4, 6), "f4")[:, ::2], "ascontiguousarray"),
        (np.asfortranarray(np.ones((4, 3), "f4")), "ascontiguousarray"),
        ([1.0] * 12, "asarray"),
        ("twelve bytes", "asarray"),
        (12, "asarray"),
    ],
)
def test_other_data_is_refused_with_advice(table, data, advice):
    with pytest.raises(polyverso.ArgumentError) as caught:
        capi.mv_table_add(table, data)
    assert caught.value.status == capi.MV_EDTYPE
    assert advice in caught.value.text
    assert not values_of(table).any()


@pytest.mark.parametrize("out", [bytes(48), np.broadcast_to(np.float32(0), 12).copy()])
def test_results_need_writable_memory(table, out):
    if isinstance(out, np.ndarray):
        out.flags.writeable = False
    with pytest.raises(polyverso.ArgumentError, match="read-only"):
        capi.mv_table_get(table, out)


def test_results_go_straight_into_the_buffer(table):
    capi.mv_table_add(table, np.arange(12, dtype="f4"))
    for out in (np.empty((4, 3), "f4"), array.array("f", bytes(48)), bytearray(48), memoryview(bytearray(48))):
        capi.mv_table_get(table, out)
        assert bytes(memoryview(out).cast("B")) == np.arange(12, dtype="f4").tobytes()


def test_row_ids_are_int64_buffers(table):
    capi.mv_table_add_rows(table, array.array("q", [2, 2]), np.ones(6, "f4"))
    assert values_of(table).tolist() == [0] * 6 + [2] * 3 + [0] * 3
    for rows in (np.array([1, 2], "i4"), np.array([1.0, 2.0])):
        with pytest.raises(polyverso.ArgumentError, match="int64"):
            capi.mv_table_add_rows(table, rows, np.ones(6, "f4"))
    with pytest.raises(polyverso.ArgumentError, match="asarray"):
        capi.mv_table_add_rows(table, [1, 2], np.ones(6, "f4"))


@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [("f32", "f4"), ("f64", "f8"), ("i64", "i8"), ("i32", "i4"), ("u8", "u1"), ("i8", "i1"), ("f16", "f2"), ("bf16", "u2")],
)
def test_every_dtype_is_a_buffer(node, dtype, numpy):
    table = capi.mv_table_create(node.handle, {"rows": 3, "dtype": dtype}, np.array([1, 2, 3], numpy))
    out = np.empty(3, numpy)
    capi.mv_table_get(table, out)
    assert out.tolist() == [1, 2, 3]
    raw = bytearray(out.nbytes)
    capi.mv_table_get(table, raw)
    assert bytes(raw) == out.tobytes()


def test_a_scan_fills_both_buffers(node):
    table = capi.mv_table_create(node.handle, {"kind": "keyvalue", "cols": 2, "dtype": "f64"}, None)
    keys = np.array([-5, 1 << 62, 7], "i8")
    capi.mv_table_add_rows(table, keys, np.arange(6, dtype="f8"))
    ids, values, seen, cursor = np.zeros(2, "i8"), np.zeros((2, 2)), {}, 0
    while cursor != -1:
        cursor, found = capi.mv_table_scan(table, cursor, ids, values)
        seen.update(zip(ids[:found].tolist(), values[:found].tolist()))
    assert seen == {-5: [0, 1], 1 << 62: [2, 3], 7: [4, 5]}
    assert capi.mv_table_scan(table, 0, np.zeros(8, "i8"), None) == [-1, 3]
    for ids, values, name in (
        (None, values, "EINVAL"), (bytes(16), values, "EINVAL"), (np.zeros(2, "i4"), values, "EDTYPE"),
        (np.zeros(2, "i8"), np.zeros(3), "ESHAPE"), (np.zeros(2, "i8"), np.zeros(4, "f4"), "EDTYPE"),
    ):
        with pytest.raises(polyverso.ArgumentError) as caught:
            capi.mv_table_scan(table, 0, ids, values)
        assert caught.value.name == "MV_" + name


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"initial": "much"}, "initial"), ({"initial": []}, ""), ({"capacity": -1}, "capacity"),
        ({"capacity": 0.5}, "64-bit"), ({"seed": 1 << 63}, "64-bit"), ({"updater": 3}, "text"),
        ({"dtype": "i16"}, "dtype"), ({"kind": "list"}, "kind"),
    ],
)
def test_wrong_specs_are_refused(node, spec, message):
    with pytest.raises((polyverso.ArgumentError, TypeError), match=message):
        capi.mv_table_create(node.handle, {"kind": "keyvalue", **spec}, None)


def test_numbers_of_a_spec_may_be_any(node):
    for initial in (1, 1.0, np.float32(1), np.int8(1)):
        table = capi.mv_table_create(node.handle, {"kind": "keyvalue", "initial": initial, "seed": -1}, None)
        out = np.zeros(1, "f4")
        capi.mv_table_get_rows(table, np.array([3]), out)
        assert out[0] == 1


def test_counts_are_not_negative(node):
    with pytest.raises(polyverso.ArgumentError, match="keep"):
        capi.mv_checkpoint_save(node.handle, "/nowhere", -1)
    with pytest.raises(TypeError, match="keep"):
        capi.mv_checkpoint_save(node.handle, "/nowhere", "all")


def test_numbers_are_checked():
    with pytest.raises(TypeError, match="mv_rank: argument 1 .mv_node. must be an int, not str"):
        capi.mv_rank("0")
    with pytest.raises(TypeError, match="float"):
        capi.mv_rank(0.5)
    with pytest.raises(OverflowError):
        capi.mv_rank(1 << 70)
    with pytest.raises(OverflowError):
        capi.mv_log_level_set(1 << 40)
    with pytest.raises(TypeError):
        capi.mv_rank()


def test_numpy_integers_are_integers(table):
    assert capi.mv_table_describe(np.int64(table))["rows"] == 4


@pytest.mark.parametrize("options", [None, 0, {}, {"timeout_ms": 1000}, {"flags": None}])
def test_options(table, options):
    assert capi.mv_table_add(table, np.ones(12, "f4"), options) is None


@pytest.mark.parametrize(
    "options",
    [
        "flags", -1, 1 << 80, [1], {"flag": 1}, {1: 2}, {"flags": "async"}, {"flags": -1}, {"flags": 1 << 40},
        {"timeout_ms": 0.5},
    ],
)
def test_wrong_options_are_refused(table, options):
    with pytest.raises((polyverso.ArgumentError, TypeError)):
        capi.mv_table_add(table, np.ones(12, "f4"), options)
    assert not values_of(table).any()


def test_init_arguments_keep_what_is_not_ours():
    assert capi.mv_init_args(["train.py", "-sync=true", "data.txt", "--lr=0.1"]) == ["train.py", "data.txt", "--lr=0.1"]
    assert capi.mv_is_sync(0) == 1
    capi.mv_shutdown(0)
    with pytest.raises(polyverso.ArgumentError):
        capi.mv_init_args("train.py")
    with pytest.raises(TypeError):
        capi.mv_init_args([1])


def test_table_list_of_any_length(node):
    for i in range(100):
        node.array(1, name=f"a table with quite a long name {i}")
    assert len(node.tables()) == 100


def test_errors_are_of_a_class_a_family():
    expected = {
        capi.MV_ESHAPE: (polyverso.ArgumentError, ValueError),
        capi.MV_EHANDLE: (polyverso.HandleError, ValueError),
        capi.MV_EFORK: (polyverso.StateError, RuntimeError),
        capi.MV_ETIMEOUT: (polyverso.TimeoutError, TimeoutError),
        capi.MV_EPEERLOST: (polyverso.PeerError, ConnectionError),
        capi.MV_EOUTOFSTEP: (polyverso.OutOfStepError, RuntimeError),
        capi.MV_EINTR: (polyverso.Interrupted, Exception),
        capi.MV_ENOMEM: (polyverso.SystemFailure, Exception),
    }
    for status, classes in expected.items():
        error = polyverso.errors.from_status(status, "because")
        assert all(isinstance(error, kind) for kind in (*classes, polyverso.Error))
        assert (error.status, error.name, error.text) == (status, capi.mv_status_name(status), "because")
        assert str(error) == f"{error.name}: because"


def test_an_asynchronous_get_holds_its_buffer(node, table):
    capi.mv_table_add(table, np.ones(12, "f4"))
    out = bytearray(48)
    request = capi.mv_table_get(table, out, capi.MV_ASYNC)
    with pytest.raises(BufferError):
        out.clear()
    assert capi.mv_poll(node.handle, 8, 5000) == [request]
    assert capi.mv_request_test(request) == 1
    assert np.frombuffer(bytes(out), "f4").tolist() == [1] * 12
    out.clear()


def test_a_dropped_buffer_outlives_its_request(node, table):
    requests = [capi.mv_table_get(table, np.empty(12, "f4"), capi.MV_ASYNC) for _ in range(100)]
    gc.collect()
    for request in requests:
        capi.mv_request_wait(request, 0)


def test_no_reference_is_lost_or_kept(node, table):
    data = np.ones(12, "f4")
    options = {"timeout_ms": 1000}
    rows = np.arange(4)
    before = [sys.getrefcount(thing) for thing in (data, options, rows, None)]
    for _ in range(1000):
        capi.mv_table_add_rows(table, rows, data, options)
        capi.mv_table_get(table, data, options)
        capi.mv_request_wait(capi.mv_table_get(table, data, capi.MV_ASYNC), 0)
        with pytest.raises(polyverso.ArgumentError):
            capi.mv_table_add(table, data[:3], options)
    after = [sys.getrefcount(thing) for thing in (data, options, rows, None)]
    assert all(abs(b - a) < 50 for a, b in zip(before, after))


def test_other_threads_run_while_one_waits(node):
    ticks = 0

    def wait():
        nonlocal waited
        started = time.monotonic()
        assert capi.mv_poll(node.handle, 1, 500) == []
        waited = time.monotonic() - started

    waited = 0.0
    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        ticks += 1
        time.sleep(0.005)
    thread.join()
    assert waited >= 0.4
    assert ticks > 20


def test_the_stub_names_what_is_there():
    stub = (pathlib.Path(polyverso.__file__).parent / "capi.pyi").read_text()
    in_stub = set(re.findall(r"^(?:def )?([mk]v_\w+|[MK]V_\w+)", stub, re.MULTILINE))
    assert in_stub == {name for name in vars(capi) if name.startswith(("mv_", "MV_", "kv_", "KV_"))}


def test_the_library_stays_though_its_runtime_unloads_it():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "/libpolyverso.so" in line)
    script = f"""
import _ctypes, ctypes
handle = _ctypes.dlopen({path!r}, 2)
store = ctypes.c_int64()
assert ctypes.CDLL(None, handle=handle).kv_create(ctypes.c_int64(0), b"local", ctypes.byref(store)) == 0
_ctypes.dlclose(handle)  # as Lua does with its modules when it ends; a node's thread goes on
assert {path!r} in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
