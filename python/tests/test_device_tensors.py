"""Tensors on a device, by the emulation of a plug-in that DEVICE_EMULATION names, or by a real one: the results of the host, bit by bit; DLPack
and __cuda_array_interface__; stores; errors."""

import ctypes
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import polyverso
from polyverso import Device, Tensor, capi, distlearn, gossip, kvstore, optimizer

EMULATION = os.environ.get("DEVICE_EMULATION")
if not EMULATION:
    pytest.skip("DEVICE_EMULATION names no plug-in: run this test through ctest", allow_module_level=True)
os.environ["POLYVERSO_DEVICE_PLUGIN"] = EMULATION

IS_EMULATED = "emulation" in os.path.basename(EMULATION)
two_devices = pytest.mark.skipif(Device.count() < 2, reason="needs two devices")
DTYPES = ("f32", "f64", "i64", "i32", "u8", "i8", "f16", "bf16")


def bits(tensor):
    """What a tensor holds, wherever it is: dtype, shape, and the bytes."""
    if tensor.row_sparse:
        ids, values = tensor.parts()
        return (*bits(values), ids.to_list())
    return tensor.dtype, tensor.shape, tensor.numpy().tobytes()


def same(compute, *operands):
    """compute() gives on the device what it gives on the host."""
    host = compute(*(one.copy() for one in operands))
    device = compute(*(one.to("cuda:0") for one in operands))
    if isinstance(host, Tensor):
        assert device.device == "cuda:0" and host.device == "cpu"
        assert bits(device) == bits(host)
    else:
        assert device == host


def numbers(dtype, seed, shape=(9, 70)):
    return Tensor.uniform(shape, seed, 1, 100, dtype=dtype)


def _assign(tensor, key, value):
    tensor[key] = value
    return tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_function_of_tensors_gives_the_hosts_bits(dtype):
    a, b, row = numbers(dtype, 1), numbers(dtype, 2), numbers(dtype, 3, (70,))
    other = numbers("f16" if dtype != "f16" else "i32", 4)
    for compute in (
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a == b, lambda a, b: a != b,
        lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: a.minimum(b),
        lambda a, b: a.maximum(b), lambda a, b: a.axpy(3, b), lambda a, b: a.assign(b), lambda a, b: a.dot(b), lambda a, b: a.close(b),
        lambda a, b: a.equal(a),
    ):
        same(compute, a, b)
        same(compute, a, other)
    same(lambda a, row: a + row, a, row)
    same(lambda a, row: row - a, a, row)
    for compute in (
        lambda a: 3 - a, lambda a: a * 2, lambda a: a / 4, lambda a: 7 / a, lambda a: a >= 50, lambda a: -a, abs,
        lambda a: a.sqrt(), lambda a: a.exp(), lambda a: a.log(), lambda a: a.transpose(), lambda a: a.reshape(-1, 7), lambda a: a.row(2),
        lambda a: a.slice(1, 4), lambda a: a.take([8, 0, 0]), lambda a: a[3], lambda a: a[2:5], lambda a: a[3, 4], lambda a: a.copy(),
        lambda a: a.fill(5), lambda a: a.cast("f64"), lambda a: a.cast("bf16"), lambda a: a.cast("i8"), lambda a: a.to_sparse(),
        lambda a: a.get(3, 4), lambda a: a.to_list(), lambda a: a.sum().item(), lambda a: len(a), lambda a: float(a[0, 0]),
        lambda a: a + [1.0] * 70, lambda a: a.__iadd__(a), lambda a: a.__imul__(3), lambda a: _assign(a, 1, 9),
        lambda a: _assign(a, 1, [2.0] * 70),
    ):
        same(compute, a)
    if IS_EMULATED:
        same(lambda a: a ** 2, a)
    assert (a.to("cuda:0") ** 2).to("cpu").close(a ** 2, 1e-15)  # a device has its own pow()
    for axis in (None, 0, 1):
        for name in ("sum", "mean", "min", "max", "argmin", "argmax", "norm"):
            same(lambda a: getattr(a, name)(axis), a)
    if dtype in ("f32", "f64"):
        same(lambda a, b: a.matmul(b, transpose_b=True), a.cast("i32").cast(dtype), b.cast("i32").cast(dtype))
    same(lambda values: Tensor.sparse([5, 1, 5], values, 8), numbers(dtype, 5, (3, 4)))
    rows, more = Tensor.sparse([5, 1, 7], numbers(dtype, 5, (3, 4)), 8), Tensor.sparse([1, 2], numbers(dtype, 6, (2, 4)), 8)
    for compute in (
        lambda a, b: a + b, lambda a, b: a - b if dtype != "u8" else b, lambda a, b: a * 2, lambda a, b: a.to_dense(), lambda a, b: a.take([7, 2, 5]),
        lambda a, b: a.axpy(2, b), lambda a, b: a.parts()[1], lambda a, b: b.to_dense().axpy(2, a),
    ):
        same(compute, rows, more)


@two_devices
def test_constructors_make_tensors_on_a_device():
    for make in (
        lambda device: Tensor.zeros((2, 3), "f64", device), lambda device: Tensor.ones(4, device=device),
        lambda device: Tensor.full((2, 2), 7, "i32", device=device), lambda device: Tensor.range(9, 1, 2, device=device),
        lambda device: Tensor.uniform((5, 5), 42, device=device), lambda device: Tensor.normal(100, 42, 3, 2, device=device),
        lambda device: Tensor.copy_of([[1, 2], [3, 4]], device=device), lambda device: Tensor.copy_of(np.arange(5), "f16", device=device),
    ):
        made = make("cuda:1")
        assert made.device == "cuda:1" and made.info()["device"] == 1 and bits(made) == bits(make(None)) == bits(make("cpu"))
        assert make(Device("gpu:1")).device == make(1).device == "cuda:1"
    assert str(Tensor.ones(2, device="cuda")) == "f32 (2,) on cuda:0\n[1, 1]"
    assert Tensor.copy_of(Tensor.ones(2, device="cuda:1")).device == "cuda:1"


@two_devices
def test_tensors_move():
    tensor = Tensor.range(6, device="cuda:0")
    other = tensor.to("cuda:1")
    assert other.device == "cuda:1" and bits(other) == bits(tensor)
    other.fill(3)
    assert tensor.to("cpu").to_list() == [0, 1, 2, 3, 4, 5]
    tensor.assign(other)  # from device to device
    assert tensor.to_list() == [3] * 6
    restored = pickle.loads(pickle.dumps(tensor))
    assert restored.device == "cpu" and restored.to_list() == [3] * 6
    sparse = pickle.loads(pickle.dumps(tensor.reshape(2, 3).to_sparse()))
    assert sparse.device == "cpu" and sparse.row_sparse
    assert tensor.numpy().flags.writeable and tensor.numpy().base is not None


@two_devices
def test_tensors_in_two_places_are_refused():
    here, there, beyond = Tensor.ones(3), Tensor.ones(3, device="cuda:0"), Tensor.ones(3, device="cuda:1")
    with pytest.raises(polyverso.Error, match=r"f32 \(3,\) is on cuda:0, f32 \(3,\) on cuda:1: copy one of them with tensor.to\(\)"):
        there + beyond
    with pytest.raises(polyverso.Error, match="is on the host"):
        here += there
    with pytest.raises(polyverso.Error, match=r"is on cuda:0: tensor.to\(\) copies it to the host"):
        memoryview(there)
    with pytest.raises(polyverso.Error, match="Tensor.zeros.*there is no cuda:7"):
        Tensor.zeros(3, device="cuda:7")
    with pytest.raises(polyverso.Error, match='"tpu:0" is not a device'):
        Tensor.zeros(3, device="tpu:0")
    with pytest.raises(polyverso.Error, match="free tensors"):
        Tensor.zeros(1 << 50, device="cuda:0")
    assert there.close(here)


class DlTensor(ctypes.Structure):
    """Of DLPack's ABI."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


def described(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DlTensor.from_address(pointer(capsule, b"dltensor"))


@two_devices
def test_dlpack_describes_memory_of_a_device():
    tensor = Tensor.range(6, dtype="f16", device="cuda:1").reshape(2, 3)
    about = described(capsule := tensor.__dlpack__(stream=2))
    assert (about.data, about.device_type, about.device_id) == (capi.mv_tensor_address(tensor), 2, 1) and tensor.__dlpack_device__() == (2, 1)
    assert (about.ndim, about.code, about.bits, about.lanes) == (2, 2, 16, 1) and about.shape[:2] == [2, 3]
    host = described(other := tensor.__dlpack__(dl_device=(1, 0)))  # a copy on the host
    assert host.device_type == 1 and host.data != about.data
    del capsule, other
    with pytest.raises(BufferError, match="cuda:1"):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    copied = described(capsule := tensor.__dlpack__(copy=True, stream=-1))
    assert copied.device_id == 1 and copied.data != capi.mv_tensor_address(tensor)
    del capsule
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(tensor)  # numpy needs the host's memory


class Foreign:
    """An array of another library on a device."""

    def __init__(self, tensor):
        self.tensor, self.streams = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


def used(number=0):
    about = Device(number).info()
    return about["memory"] - about["unused"]


def test_arrays_of_other_libraries_are_viewed_without_a_copy():
    before = used()
    array = Foreign(Tensor.range(6, device="cuda:0").reshape(2, 3))
    for view in (Tensor.from_dlpack(array), Tensor.view(array)):
        assert view.device == "cuda:0" and view.shape == (2, 3) and view.info()["is_lent"]
        assert capi.mv_tensor_address(view) == capi.mv_tensor_address(array.tensor)
    assert array.streams == [Device(0).stream] * 2
    view.fill(4)
    assert array.tensor.to_list() == [[4, 4, 4], [4, 4, 4]]
    assert Tensor.copy_of(array, "f64").device == "cuda:0"
    row = view.row(1)
    del array
    view.free()
    assert row.to_list() == [4, 4, 4]  # the last tensor on the memory keeps its owner
    del row, view
    assert used() == before or not IS_EMULATED  # CUDA keeps the memory


class OnlyCuda:
    """An array with __cuda_array_interface__ alone."""

    def __init__(self, tensor, **changes):
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changes}
        self.tensor = tensor


def test_the_cuda_array_interface():
    tensor = Tensor.range(6, device="cuda:0").reshape(2, 3)
    about = tensor.__cuda_array_interface__
    assert about["shape"] == (2, 3) and about["typestr"] == "<f4" and about["data"] == (capi.mv_tensor_address(tensor), False)
    assert about["version"] == 3 and about["strides"] is None and about["stream"] == Device(0).stream != 0
    for without in (Tensor.ones(2), Tensor.ones(2, "bf16", device="cuda:0")):
        assert not hasattr(without, "__cuda_array_interface__")
    for changes in ({}, {"stream": None}, {"stream": 1}, {"strides": (12, 4)}):
        view = Tensor.view(OnlyCuda(tensor, **changes))
        view.fill(len(changes) + 5)
        assert view.device == "cuda:0" and tensor.to_list() == view.to_list()
    with pytest.raises(polyverso.Error, match="row-major"):
        Tensor.view(OnlyCuda(tensor, strides=(4, 8)))
    with pytest.raises(TypeError, match="<c8"):
        Tensor.view(OnlyCuda(tensor, typestr="<c8"))
    for strides in ((12, 4), (0, 0), (4, 8)):
        assert Tensor.view(OnlyCuda(tensor, shape=(0, 3), strides=strides, data=(0, False))).shape == (0, 3)
    with pytest.raises(polyverso.Error, match="mask"):
        Tensor.view(OnlyCuda(tensor, mask=np.ones(6)))
    constant = OnlyCuda(tensor, data=(about["data"][0], True))
    with pytest.raises(polyverso.Error, match="read-only.*copy_of"):
        Tensor.view(constant)
    assert bits(Tensor.copy_of(constant)) == bits(tensor) and Tensor.copy_of(constant).device == "cuda:0"


def test_numpy_makes_no_arrays_of_tensors_on_devices():
    tensor = Tensor.range(6).reshape(2, 3)
    for make in (np.asarray, np.array, lambda given: given.__array__(), lambda given: np.asarray([given, given])):
        with pytest.raises(polyverso.Error, match=r"is on device cuda:0, and is needed on the host: copy it there, as by tensor.to\('cpu'\)"):
            make(tensor.to("cuda:0"))
        with pytest.raises(polyverso.Error, match="row-sparse"):
            make(tensor.to_sparse())
        assert np.array_equal(make(tensor).reshape(-1)[:6], np.arange(6)) and make(tensor).dtype == np.float32
    for dtype in DTYPES:
        here = numbers(dtype, 1)
        assert np.asarray(here).dtype == here.numpy().dtype and np.shares_memory(np.asarray(here), here.numpy())
    assert tensor.__array__(np.float64).dtype == np.float64 and not np.shares_memory(tensor.__array__(copy=True), tensor.numpy())


@two_devices
def test_devices_and_their_streams():
    assert Device.count() == 2 and str(Device("gpu:1")) == "cuda:1" and Device("cpu").number == capi.MV_HOST and Device(0) == Device("cuda")
    assert Device(0).info()["name"] == "cuda:0"
    own = Device(0).stream
    Device(0).set_stream(1)
    assert Device(0).stream == 1 and Tensor.ones(2, device=0).to_list() == [1, 1]
    Device(0).follow(own)
    Device(0).order(own)
    Device(0).set_stream(0)
    assert Device(0).stream == own
    Device(0).wait()
    with pytest.raises(polyverso.Error, match=r"device.wait\(\): there is no cuda:9"):
        Device(9).wait()


@two_devices
@pytest.mark.parametrize("kind", ["local", "device"])
def test_stores_take_and_fill_tensors_of_devices(kind):
    with polyverso.kvstore.create(kind) as kv:
        kv.init("w", Tensor.zeros((2, 2), device="cuda:0"))
        values = [Tensor.full((2, 2), 1, device="cuda:0"), Foreign(Tensor.full((2, 2), 2, device="cuda:1")), Tensor.ones((2, 2))]
        kv.push("w", values)
        kv.pull("w", out=values)
        assert values[0].to_list() == values[1].tensor.to_list() == values[2].to_list() == [[4, 4], [4, 4]]
        rows = Tensor.sparse([0, 2], Tensor.ones((2, 2)), 4).to("cuda:0")
        kv.init("rows", rows)
        out = Tensor.sparse([1], Tensor.ones((1, 2)), 4).to("cuda:1")
        kv.row_sparse_pull("rows", out=out, row_ids=Tensor.range(3, dtype="i64", device="cuda:0"))
        assert out.device == "cuda:1" and out.to_dense().to_list() == [[1, 1], [0, 0], [1, 1], [0, 0]]


@two_devices
def test_updaters_of_device_stores_compute_on_the_device():
    with polyverso.kvstore.create("device") as kv:
        kv.init("w", Tensor.ones(3, device="cuda:1"))
        places = []

        def update(key, merged, stored):
            places.append((merged.device, stored.device))
            stored += merged * 2

        kv.set_updater(update)
        kv.push("w", [Tensor.ones(3, device="cuda:0"), np.ones(3, np.float32)])
        out = np.zeros(3, np.float32)
        kv.pull("w", out=out)
        assert out.tolist() == [5, 5, 5] and places == [("cuda:1", "cuda:1")]


def test_tables_on_a_device_are_used_from_the_host(node):
    table = node.matrix(4, 3, updater="sgd rate=1", device="cuda:0", init=np.ones((4, 3), np.float32))
    table.add(np.ones((2, 3), np.float32), rows=[2, 0])
    assert table.get().tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]]
    assert table.get(rows=[3, 0]).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert node.array(2, device="cpu").get().tolist() == [0, 0]
    with pytest.raises(polyverso.Error, match="on server 0: there is no cuda:9"):
        node.array(2, device="cuda:9")
    for keyed in (node.sparse(4, 2, device="cuda:0", initial=5), node.keyvalue(2, device="cuda:0", initial=5)):
        keyed.add(np.ones((1, 2), np.float32), rows=[3])
        assert keyed.get(rows=[3, 0]).tolist() == [[6, 6], [5, 5]]
    with pytest.raises(polyverso.Error, match="leave out capacity, or device"):
        node.keyvalue(2, device="cuda:0", capacity=3)


def crossed():
    """The bytes that were copied between the host and devices so far."""
    emulation = ctypes.CDLL(EMULATION)
    emulation.emulation_crossed.restype = ctypes.c_uint64
    return emulation.emulation_crossed()


@pytest.mark.parametrize("device", [None, "cuda:0", "cuda:1"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i64", "u8"])
def test_tables_take_arrays_on_devices(node, dtype, device):
    if device == "cuda:1" and Device.count() < 2:
        pytest.skip("needs two devices")
    numpy_type = {"f32": "float32", "f64": "float64", "f16": "float16", "i64": "int64", "u8": "uint8", "bf16": "bf16"}[dtype]
    updater = "adagrad rate=0.1" if dtype in ("f32", "f64") else "add"
    first = numbers(dtype, 99, (40, 3))
    there, here = (node.matrix(40, 3, numpy_type, updater=updater, device=device, init=init) for init in (first.to("cuda:0"), first.numpy()))
    assert there.get().tobytes() == here.get().tobytes() == first.numpy().tobytes()
    rows = [5, 9, 5, 39]

    def into(count, method="get", **how):
        out = Tensor.full((count, 3), 77, dtype, device="cuda:0")
        made = getattr(there, method)(out=out, **how)
        if method.endswith("_async"):
            made = made.wait()
        assert made is out
        return out.to("cpu").numpy().tobytes()

    for turn in range(3):
        whole, some = numbers(dtype, turn, (40, 3)), numbers(dtype, turn + 10, (4, 3))
        for values, how in ((whole, {}), (some, {"rows": rows}), (numbers(dtype, turn + 20, (2, 3)), {"rows": [1, 30]})):
            here.add(values.numpy(), **how)
            given = values.to("cuda:0")
            if turn == 0:
                there.add(Foreign(given), **how)
            elif turn == 1:
                there.add_async(given, **how).wait()
            else:
                there.add(given, wait=False, **how)
                node.barrier()
            assert there.get().tobytes() == here.get().tobytes()
        here.set(some.numpy(), rows=[0, 1, 2, 3])
        there.set(some.to("cuda:0"), rows=[0, 1, 2, 3])
        for method in ("get", "peek", "get_async", "peek_async"):
            assert into(40, method) == here.get().tobytes()
            assert into(4, method, rows=rows) == here.get(rows=rows).tobytes()


def test_what_does_not_fit_a_table_is_refused_on_devices(node):
    table = node.matrix(2, 3)
    for method in (table.add, table.set, lambda values, **how: table.get(out=values, **how)):
        with pytest.raises(polyverso.Error, match="6 values|3 columns need 6|shape"):
            method(Tensor.ones((3, 3), device="cuda:0"))
        with pytest.raises(polyverso.Error, match="row 2 is outside"):
            method(Tensor.ones((1, 3), device="cuda:0"), rows=[2])
        with pytest.raises(polyverso.Error, match="row-sparse"):
            method(Tensor.sparse([0, 1], Tensor.ones((2, 3)), 2).to("cuda:0"))
    with pytest.raises(polyverso.Error, match="holds f32, i64 was given"):
        table.get(out=Tensor.ones((2, 3), "i64", device="cuda:0"))
    with pytest.raises(polyverso.Error, match="needed on the host"):
        table.add(Tensor.ones((2, 3), device="cuda:0"), rows=Tensor.range(2, dtype="i64", device="cuda:0"))
    strict = node.array(3, reject_nonfinite=True)
    with pytest.raises(polyverso.Error, match="rejects NaN"):
        strict.add(Tensor.full(3, float("nan"), device="cuda:0"))
    table.add(Tensor.ones((2, 3), "f64", device="cuda:0"))  # floats are converted
    assert table.get().tolist() == [[1] * 3] * 2 and strict.get().tolist() == [0] * 3


@pytest.mark.skipif(not IS_EMULATED, reason="counts copies of the emulation")
def test_a_table_on_the_same_device_is_reached_without_the_host(node):
    table = node.matrix(100, 50, device="cuda:0")
    values, out = Tensor.ones((100, 50), device="cuda:0"), Tensor.zeros((100, 50), device="cuda:0")
    some = Tensor.ones((2, 50), device="cuda:0")
    before = crossed()
    table.add(values)
    table.add(some, rows=[3, 99])
    table.get(out=out)
    table.get(rows=[99, 0], out=some)
    assert crossed() - before < 500  # ids
    assert out.to_list()[3] == [2] * 50 and some.to_list() == [[2] * 50, [1] * 50]


def test_views_of_tables_take_arrays_on_devices(node):
    table = node.matrix(4, 2)
    table[:] = Tensor.ones((4, 2), device="cuda:0")
    table[[1, 3]] += Tensor.full((2, 2), 2, device="cuda:0")
    table[0] -= Tensor.full(2, 5, device="cuda:0")
    table[2] = Tensor.full(2, 9, device="cuda:0")
    assert table.get().tolist() == [[-4, -4], [3, 3], [9, 9], [3, 3]]


@pytest.mark.skipif(not IS_EMULATED, reason="lets the emulation fail")
@pytest.mark.parametrize("call", ["table.add(x)", "table.get(out=x)", "table.set(x, rows=[0])", "table.get_async(out=x).wait()", "node.array(1, init=x)",
                                  "group.allreduce(x)", "group.broadcast(y)"])
@pytest.mark.parametrize("how", ["lost", "forked"])
def test_arrays_on_devices_are_never_taken_for_the_hosts(how, call):
    """Where the plug-in can't say any more where an address is."""
    script = f"""
        import os
        import polyverso
        from polyverso import Tensor
        from polyverso.group import Group
        x = Tensor.ones(1, device="cuda:0")
        whole = Tensor.ones(3, device="cuda:0")
        y = Tensor.view(whole[1:2])
        if {how!r} == "forked" and (child := os.fork()) != 0:
            raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        node = polyverso.init()
        table, group = node.array(1), Group(node)
        if {how!r} == "lost":
            os.environ["POLYVERSO_EMULATION"] = "guard=1,launches=0"
        try:
            {call}
        except polyverso.Error as error:
            print(error, flush=True)
        table.add([1])
        print(table.get(), flush=True)
        os._exit(0)
    """
    said = run(script, POLYVERSO_EMULATION="guard=1")
    assert ("MV_EFORK" if how == "forked" else "MV_ESYSTEM") in said and "[1.]" in said, said


SECOND = "cuda:1" if Device.count() > 1 else "cuda:0"
CODECS = ["1bit", "2bit threshold=2", "fp16", "bf16", "int8 block=16", "topk ratio=0.1"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("kind", ["local", "device"])
def test_compressed_pushes_have_the_bits_of_the_host(kind, dtype, codec, tmp_path):
    """The residual of each sender follows its values, also between places, and through a file."""
    places = [("cuda:0", SECOND, "cpu"), ("cuda:0", "cuda:0", SECOND), ("cpu", SECOND, "cuda:0"), (SECOND, "cpu", "cpu")]

    def train(kv, place_of):
        shape = (3, 47)
        kv.set_gradient_compression(codec)
        for key, place in (("a", "cuda:0"), ("b", SECOND), ("c", "cpu")):
            kv.init(key, numbers(dtype, 1, shape).to(place_of(place)))
        kv.set_optimizer("mx.sgd learning_rate=0.1 momentum=0.9")
        for turn in range(8):
            for at, key in enumerate("abc"):
                pushed = [Tensor.normal(shape, 100 * turn + 10 * at + sender, 0, 3, dtype=dtype).to(place_of(place))
                          for sender, place in enumerate(places[turn % 4])]
                kv.push(key, pushed)
            kv.push(["c", "a", "b"], [[Tensor.normal(shape, turn, dtype=dtype).to(place_of(SECOND))]] * 3)
            if turn == 3:
                kv.save_optimizer_states(str(tmp_path / "states"))
            if turn == 4:
                kv.load_optimizer_states(str(tmp_path / "states"))
        kv.set_gradient_compression("none")
        for key in "abc":
            kv.push(key, numbers(dtype, 5, shape).to(place_of("cuda:0")))  # with what was left
        outs = [Tensor.zeros(shape, dtype) for _ in "abc"]
        kv.pull(["a", "b", "c"], out=outs)
        return [bits(out) for out in outs]

    with polyverso.kvstore.create("local") as on_host, polyverso.kvstore.create(kind) as on_devices:
        assert train(on_devices, lambda place: place) == train(on_host, lambda place: "cpu")


@pytest.mark.skipif(not IS_EMULATED, reason="counts copies of the emulation")
@pytest.mark.parametrize("kind, most", [("local", 1 / 16), ("device", 0)])
def test_only_encoded_values_leave_the_device(kind, most):
    count = 1 << 16
    with polyverso.kvstore.create(kind) as kv:
        kv.set_gradient_compression("2bit")
        kv.init("w", Tensor.zeros(count, device="cuda:0"))
        gradient = Tensor.full(count, 0.3, device="cuda:0")
        kv.push("w", gradient)
        before = crossed()
        kv.push("w", [gradient, gradient])
        assert crossed() - before <= 2 * most * 4 * count + 1000
        out = Tensor.zeros(count)
        kv.pull("w", out=out)
        assert out.to_list()[:3] == [0.5] * 3


def pushed_without_memory(kv, keys, values, number):
    """Pushes while the allocation of this number fails, and again if that was among the push's. Whether it was not."""
    emulation = ctypes.CDLL(EMULATION)
    emulation.emulation_allocations.restype = ctypes.c_int64
    os.environ["POLYVERSO_EMULATION"] = f"allocations={emulation.emulation_allocations() + number}"
    try:
        kv.push(keys, values)
        return True
    except polyverso.Error as error:
        assert "MV_ENOMEM" in str(error), error
    finally:
        del os.environ["POLYVERSO_EMULATION"]
    kv.push(keys, values)
    return False


@pytest.mark.skipif(not IS_EMULATED, reason="lets allocations of the emulation fail")
@pytest.mark.parametrize("optimizer", ["mx.adam learning_rate=0.1", "mx.lamb", "sgd rate=0.5"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_push_that_lacks_memory_changes_nothing(dtype, optimizer):
    """Each allocation of a compressed push of several keys fails once; the push is then repeated."""
    shape = (5, 40)
    with polyverso.kvstore.create("local") as on_host, polyverso.kvstore.create("device") as on_device:
        for kv, place in ((on_host, "cpu"), (on_device, "cuda:0")):
            kv.set_gradient_compression("2bit threshold=0.25")
            kv.init(["a", "b", "c"], [Tensor.zeros(shape, dtype).to(place)] * 3)
            kv.set_optimizer(optimizer)
        failures = 0
        for number in range(100):
            values = [[Tensor.normal(shape, 10 * number + 3 * key + sender, dtype=dtype) for sender in range(2)] for key in range(3)]
            on_host.push(["a", "b", "c"], values)
            there = [[first.to("cuda:0"), second.to("cpu" if number % 2 else "cuda:1")] for first, second in values]
            done = pushed_without_memory(on_device, ["a", "b", "c"], there, number)
            failures += not done
            outs = [[Tensor.zeros(shape, dtype) for _ in range(3)] for _ in range(2)]
            on_host.pull(["a", "b", "c"], out=outs[0])
            on_device.pull(["a", "b", "c"], out=outs[1])
            assert [bits(out) for out in outs[0]] == [bits(out) for out in outs[1]], number
            if done and number > 3:
                break
        assert 8 < failures < 60


@pytest.mark.skipif(not IS_EMULATED, reason="lets allocations of the emulation fail")
@pytest.mark.parametrize("codec", ["none", "2bit threshold=0.25"])
@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_a_push_of_rows_or_from_the_host_that_lacks_memory_changes_nothing(place, codec):
    shape = (600, 600)  # more than a message takes
    with polyverso.kvstore.create("local") as on_host, polyverso.kvstore.create("device") as on_device:
        for kv, home in ((on_host, "cpu"), (on_device, "cuda:0")):
            kv.set_gradient_compression(codec)
            kv.init(["a", "rows", "b"], [Tensor.zeros(shape).to(home), Tensor.zeros((9, 4)).to_sparse().to(home), Tensor.zeros(shape).to(home)])
            kv.set_optimizer("sgd rate=0.5")
        failures = 0
        for number in range(60):
            dense = [Tensor.normal(shape, 10 * number + key) for key in range(2)]
            rows = Tensor.sparse([number % 9, 3], Tensor.normal((2, 4), number), 9)
            on_host.push(["a", "rows", "b"], [dense[0], rows, dense[1]])
            there = [dense[0].to(place), rows.to("cuda:0"), dense[1].to(place)]
            done = pushed_without_memory(on_device, ["a", "rows", "b"], there, number)
            failures += not done
            for key, kept in (("a", Tensor.zeros(shape)), ("rows", Tensor.zeros((9, 4))), ("b", Tensor.zeros(shape))):
                other = Tensor.zeros(kept.shape)
                on_host.pull(key, out=kept, ignore_sparse=False)
                on_device.pull(key, out=other, ignore_sparse=False)
                assert bits(kept) == bits(other), (number, key)
            if done and number > 3:
                break
        assert 1 < failures < 50


@pytest.mark.parametrize("places", [("cuda:0", SECOND, "cpu"), (SECOND, "cuda:0", "cuda:0"), ("cpu", SECOND, "cuda:0"), ("cuda:0", "cuda:0", "cuda:0")])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_keys_that_share_a_state_are_updated_in_the_order_of_the_call(places, dtype):
    def train(kv, places):
        keys = ["a", "b", "rows"]
        values = [Tensor.ones(5), Tensor.ones(5, dtype), Tensor.ones((4, 2)).to_sparse()]
        kv.init(keys, [value.to(place) for value, place in zip(values, places)])
        kv.set_optimizer("mx.nadam learning_rate=0.1")
        given = [Tensor.full(5, 0.5), Tensor.full(5, 1.5, dtype), Tensor.sparse([0, 3], Tensor.full((2, 2), 0.5), 4)]
        for order in ((0, 1, 2), (2, 0), (1, 2, 0), (0, 1)):
            kv.push([keys[i] for i in order], [given[i].to(places[i]) for i in order])
        outs = [Tensor.zeros(5), Tensor.zeros(5, dtype), Tensor.zeros((4, 2))]
        kv.pull(keys, out=outs, ignore_sparse=False)
        return [bits(out) for out in outs]

    with polyverso.kvstore.create("local") as on_host, polyverso.kvstore.create("device") as on_devices:
        assert train(on_devices, places) == train(on_host, ("cpu",) * 3)


@pytest.mark.parametrize(("optimizer", "codec"), [("mx.signum", "none"), ("mx.lion", "none"), ("sgd rate=1", "int8 block=16")])
def test_not_a_number_has_the_effect_that_it_has_on_the_host(optimizer, codec):
    values = np.tile(np.array([np.nan, -np.nan, 1, -2, np.inf, 3, 0, -0.0, np.nan], np.float32), 9)

    def train(kind, place):
        with polyverso.kvstore.create(kind) as kv:
            kv.set_gradient_compression(codec)
            kv.init("w", Tensor.ones(len(values)).to(place))
            kv.set_optimizer(optimizer)
            for _ in range(2):
                kv.push("w", Tensor.copy_of(values).to(place))
            out = Tensor.zeros(len(values))
            kv.pull("w", out=out)
            return out.numpy().copy()

    np.testing.assert_array_equal(train("device", "cuda:0"), train("local", "cpu"))


def test_an_updater_gets_what_the_codec_sent():
    with polyverso.kvstore.create("device") as kv:
        kv.set_gradient_compression("2bit")
        kv.init("w", Tensor.zeros(3, device="cuda:0"))
        merged = []
        kv.set_updater(lambda key, value, stored: merged.append(value.to_list()))
        for _ in range(2):
            kv.push("w", [Tensor.full(3, 0.3, device="cuda:0"), np.full(3, 0.7, np.float32)])
        assert merged == [[0.5] * 3, [1] * 3]


def strategies(group, node):
    yield distlearn.AllReduceEA(group, tau=1, alpha=0.5), "average_parameters"
    yield distlearn.CompressedAllReduce(group, "powersgd rank=2"), "average_gradients"
    yield distlearn.CompressedAllReduce(group, "int8"), "average_gradients"
    yield distlearn.AsyncEA(node.array(2 * 70 * 9 + 5), tau=1, alpha=0.5), "average_parameters"


@pytest.mark.skipif(not IS_EMULATED, reason="lets allocations of the emulation fail")
@pytest.mark.parametrize("number", [0, 1, 2, 3, 6, 8])
def test_strategies_compute_on_the_host_what_their_device_has_no_memory_for(node, number):
    emulation = ctypes.CDLL(EMULATION)
    emulation.emulation_allocations.restype = ctypes.c_int64

    def train(place, fails):
        seen = []
        for strategy, step in strategies(polyverso.Group(node), node):
            with strategy:
                arrays = [numbers("f32", 1).to(place), numbers("f32", 2).to(place), numbers("f32", 3, (5,)).to(place)]
                for _ in range(3):
                    if fails:
                        os.environ["POLYVERSO_EMULATION"] = f"allocations={emulation.emulation_allocations() + number}"
                    getattr(strategy, step)(arrays)
                    os.environ.pop("POLYVERSO_EMULATION", None)
                    seen += [array.to("cpu").numpy().copy() for array in arrays]
                    for array in arrays:
                        array += 0.25
        return seen

    for host, device in zip(train("cpu", False), train("cuda:0", True), strict=True):
        np.testing.assert_allclose(device, host, rtol=1e-5)  # cuBLAS has its own order


def nodes_of_gossip(*names):
    nodes = [gossip.Gossip({"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000}, name) for name in names]
    for node in nodes:
        for other in nodes:
            if node is not other:
                node.add_peer(other.name, "127.0.0.1", int(other.state["address"].rsplit(":", 1)[1]))
    return nodes


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
def test_gossip_averages_arrays_on_devices(dtype):
    def average(place):
        own, other = ([numbers(dtype, seed, (4, 3)).to(place), numbers(dtype, seed + 9, (5,)).to(place)] for seed in (1, 2))
        nodes = nodes_of_gossip("own", "other")
        nodes[1].publish(other, loss=0.5)
        assert nodes[0].update_send(own, loss=0.5) and nodes[0].fetch_wait(0.5)["peer"] == "other"
        for array in own if place == "cpu" else map(Foreign, own):  # a tensor, or an array of another library
            nodes[0].average(array)
        nodes[0].update_send(map(Foreign, own) if place != "cpu" else own, loss=0.5)
        nodes[0].fetch_wait(0.5)
        out = Tensor.zeros((4, 3), dtype, device=place)
        nodes[0].read(out)
        assert bits(out) == bits(other[0])
        for node in nodes:
            node.close()
        return [bits(array) for array in own]

    assert average("cuda:0") == average("cpu")


def test_the_adapter_of_gossip_takes_arrays_on_devices():
    settings = {"nodes": [{"name": "own", "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000}
    own, array = Tensor.ones((2, 3), device="cuda:0"), Foreign(Tensor.full(4, 5, device="cuda:0"))
    (peer,) = nodes_of_gossip("peer")
    with gossip.ArrayAdapter([own, array], "own", settings) as adapter, peer:
        adapter.gossip.add_peer("peer", "127.0.0.1", int(peer.state["address"].rsplit(":", 1)[1]))
        peer.publish([np.full((2, 3), 3, np.float32), Tensor.full(4, 7)], loss=1)
        adapter.update_send(1)
        assert adapter.update_wait(1) == 0.5
        assert own.to_list() == [[2, 2, 2], [2, 2, 2]] and array.tensor.to_list() == [6, 6, 6, 6]
        with pytest.raises(polyverso.Error, match="NaN"):
            peer.publish([Tensor.full(3, float("nan"), device="cuda:0")], loss=1)
        with pytest.raises(polyverso.Error, match="row-sparse"):
            peer.publish([own.to_sparse()], loss=1)
    with pytest.raises(polyverso.Error, match="row-sparse"):
        gossip.ArrayAdapter([own.to_sparse()], "own", settings)


def run(script, **environment):
    """Runs a script that prints, in another process."""
    given = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=given, capture_output=True, text=True, check=True, timeout=60).stdout


def test_what_is_missing_is_told():
    script = """
        from polyverso import Device, Error, Tensor
        try:
            Tensor.zeros(3, device="cuda:0")
        except Error as error:
            print(Device.count(), error, Tensor.ones(1).item())
    """
    assert "0 MV_ENOSYS: Tensor.zeros(): there are no devices in this process" in run(script, POLYVERSO_DEVICE_PLUGIN="/nowhere.so")
    if not IS_EMULATED:
        return
    assert "no driver: install it; the CPU still works 1.0" in run(script, POLYVERSO_EMULATION="driver=0")


def test_a_forked_child_is_told():
    script = """
        import os
        from polyverso import Device, Error, Tensor
        tensor = Tensor.ones(3, device="cuda:0")
        if os.fork() == 0:
            try:
                tensor.to_list()
            except Error as error:
                print(error, Device.count(), Tensor.ones(1).item(), flush=True)
            os._exit(0)
        os.wait()
        print(tensor.to_list())
    """
    assert "spawn" in (said := run(script)) and said.startswith("MV_EFORK") and said.endswith("0 1.0\n[1.0, 1.0, 1.0]\n")


class Halves(optimizer.Optimizer):
    def create_state(self, index, weight):
        return {"sum": Tensor.zeros(weight.shape, device=weight.device), "parts": [Tensor.zeros(weight.shape, device=weight.device), 1]}

    def update(self, index, weight, gradient, state):
        state["sum"] += gradient
        state["parts"][0] += gradient
        weight += state["sum"] * -0.5


def test_states_that_are_loaded_go_to_the_device_of_their_key(tmp_path):
    store = kvstore.create("device")
    store.init("w", Tensor.zeros(3, device="cuda:0"))
    store.set_optimizer(Halves())
    gradient, value = Tensor.ones(3, device="cuda:0"), Tensor.zeros(3, device="cuda:0")
    store.push("w", gradient)
    store.save_optimizer_states(tmp_path / "states")
    store.push("w", gradient)
    store.load_optimizer_states(tmp_path / "states")
    store.push("w", gradient)
    store.pull("w", out=value)
    assert value.to_list() == [-2.5] * 3


def test_what_can_not_be_shown_has_a_repr_nevertheless():
    script = """
        import os
        from polyverso import Tensor
        tensor = Tensor.ones(3, device="cuda:0")
        if os.fork() == 0:
            print(repr(tensor), flush=True)
            os._exit(0)
        os.wait()
    """
    assert "<polyverso.Tensor: MV_EFORK" in run(script)
