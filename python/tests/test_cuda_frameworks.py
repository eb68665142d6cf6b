"""Arrays of PyTorch, CuPy and JAX on a CUDA device: shared both ways without a copy, in the order of their streams. Needs a device of NVIDIA's,
the plug-in in CUDA_PLUGIN, and these libraries; see docs/cuda.md."""

import os

import pytest

import polyverso
from polyverso import Device, Tensor, capi

PLUGIN = os.environ.get("CUDA_PLUGIN")
if not PLUGIN:
    pytest.skip("CUDA_PLUGIN names no plug-in for a real device: see docs/cuda.md", allow_module_level=True)
os.environ["POLYVERSO_DEVICE_PLUGIN"] = PLUGIN
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
MANY = 1 << 26  # elements: work on them takes long enough that a missing order shows


def test_pytorch_sees_a_tensors_memory():
    torch = pytest.importorskip("torch")
    tensor = Tensor.range(6, device="cuda:0").reshape(2, 3)
    array = torch.from_dlpack(tensor)
    assert array.device == torch.device("cuda:0") and array.data_ptr() == capi.mv_tensor_address(tensor)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    array += 1
    torch.cuda.synchronize()
    assert tensor.to_list() == [[1, 2, 3], [4, 5, 6]]
    del tensor
    assert array.sum().item() == 21  # the array keeps the memory


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "int8", "float16", "bfloat16"])
def test_a_tensor_sees_pytorchs_memory(dtype):
    torch = pytest.importorskip("torch")
    array = torch.arange(6, device="cuda", dtype=getattr(torch, dtype)).reshape(2, 3)
    for view in (Tensor.view(array), Tensor.from_dlpack(array)):
        assert view.device == "cuda:0" and view.shape == (2, 3) and capi.mv_tensor_address(view) == array.data_ptr()
        assert view.to_list() == array.tolist()
        view.fill(7)
        Device(0).wait()
        assert array.tolist() == [[7, 7, 7], [7, 7, 7]]
        array.copy_(torch.arange(6).reshape(2, 3))
    with pytest.raises((polyverso.Error, BufferError)):
        Tensor.view(array.t())


def test_streams_of_pytorch_are_ordered():
    torch = pytest.importorskip("torch")
    own = torch.cuda.Stream()
    for stream in (torch.cuda.default_stream(), own):
        for _ in range(20):
            with torch.cuda.stream(stream):
                array = torch.zeros(MANY, device="cuda")
                for _ in range(20):
                    array += 1
                view = Tensor.from_dlpack(array)  # without an order, it would be read before all 20
                copy = view * 2
                back = torch.from_dlpack(copy)
                assert bool((back + 0 == 40).all())
            del view, copy, back


def test_work_on_pytorchs_stream():
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    Device(0).set_stream(stream.cuda_stream)
    try:
        with torch.cuda.stream(stream):
            array = torch.zeros(MANY, device="cuda")
            view = Tensor.view(array)
            for _ in range(20):
                view += 1
                array += 1
            assert bool((array == 40).all()) and view.sum().item() == 40 * MANY
    finally:
        Device(0).wait()
        Device(0).set_stream(0)


def test_memory_comes_back():
    torch = pytest.importorskip("torch")
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        array = torch.ones(1 << 20, device="cuda")
        view = Tensor.view(array)
        row = view.reshape(1 << 10, -1).row(1)
        del array, view
        assert torch.cuda.memory_allocated() > before
        del row
    assert torch.cuda.memory_allocated() == before


def test_cupy():
    cupy = pytest.importorskip("cupy")
    tensor = Tensor.range(6, device="cuda:0").reshape(2, 3)
    for array in (cupy.from_dlpack(tensor), cupy.asarray(tensor)):
        assert array.data.ptr == capi.mv_tensor_address(tensor) and array.tolist() == tensor.to_list()
        array *= 2
        cupy.cuda.Device(0).synchronize()
        assert tensor.to_list() == array.tolist()
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            array = cupy.zeros(MANY, dtype="f4")
            for _ in range(20):
                array += 1
            view = Tensor.view(array)
            assert view.device == "cuda:0" and capi.mv_tensor_address(view) == array.data.ptr and view.min().item() == 20


def test_jax():
    jax = pytest.importorskip("jax")
    array = jax.numpy.arange(6, dtype="float32", device=jax.devices("gpu")[0]).reshape(2, 3) + 1
    view = Tensor.from_dlpack(array)
    assert view.device == "cuda:0" and view.to_list() == array.tolist() and (view * 2).sum().item() == 42
    tensor = Tensor.range(6, device="cuda:0")
    assert jax.dlpack.from_dlpack(tensor).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_store_takes_and_fills_pytorchs_tensors():
    torch = pytest.importorskip("torch")
    with polyverso.kvstore.create("local") as store:
        value = torch.ones(1000, 10, device="cuda")
        store.init("w", value)
        value += 1
        store.push("w", [value, value * 2, Tensor.full((1000, 10), 3, device="cuda:0")])
        store.pull("w", out=value)
        assert bool((value == 9).all())
        with pytest.raises(polyverso.Error, match="holds f32"):
            store.push("w", value.half())
