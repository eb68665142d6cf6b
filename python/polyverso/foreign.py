"""Arrays of other libraries: PyTorch tensors, JAX arrays, pandas columns, and anything with a buffer,
__array_interface__ or __dlpack__.
"""

from __future__ import annotations

from typing import Any, Optional

from . import capi
from ._numpy import is_ndarray, np
from ._capi import TensorMemory, tensor_from_dlpack
from .errors import ArgumentError


def device_of(array: Any) -> Optional[int]:
    """The number of the CUDA device on which an array of another library is; None for the host's memory."""
    if is_ndarray(array):
        return None
    if not hasattr(array, "__dlpack_device__"):
        return 0 if hasattr(array, "__cuda_array_interface__") else None  # which does not tell its device: the first one
    try:
        kind, number = array.__dlpack_device__()
    except Exception:  # of another library, for memory that DLPack does not describe
        return None
    return int(number) if int(kind) in (2, 13) else None


def memory_of(array: Any) -> Any:
    """The array's own memory as an object with a buffer, for calls that change it in place. An object without such
    memory is returned as it is: the C functions say what is wrong with it."""
    if is_ndarray(array):
        return array
    if hasattr(array, "detach"):  # PyTorch: the values without their history
        return _of_dlpack(array.detach())
    if _has_buffer(array):
        return array
    if hasattr(array, "__array_interface__"):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        memory = _of_dlpack(array)
        memory.flags.writeable = not _is_constant(array)
        return memory
    if hasattr(array, "to_numpy"):  # pandas: a view, or a copy whose changes would be lost
        view = array.to_numpy()
        return view if np.shares_memory(view, array.to_numpy()) else array
    return array


def array_of(value: Any) -> Optional[np.ndarray]:
    """The memory of an array of another library, as a numpy array; None for anything else. For pandas, if its own
    memory is not available, a read-only copy."""
    if isinstance(value, (str, bytes, np.generic)):
        return None
    memory = memory_of(value)
    if isinstance(memory, np.ndarray):
        return memory
    if _has_buffer(memory):
        return np.asarray(memoryview(memory))
    if not hasattr(value, "to_numpy"):
        return None
    copy = value.to_numpy()
    copy.flags.writeable = False
    return copy


def readable(data: Any, bits: bool = False) -> Any:
    """Data as something that numpy.asarray() converts, without a copy where possible. bits: a PyTorch tensor of
    bfloat16 becomes its bits as uint16, otherwise float32."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, (list, tuple)):
        return [readable(part) for part in data] if data and hasattr(data[0], "detach") else data
    if hasattr(data, "detach"):
        return _of_torch(data.detach(), bits)
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array__") and not _has_buffer(data):
        return _of_dlpack(data)
    return data


def _of_torch(tensor: Any, bits: bool) -> Any:
    host = tensor.cpu().contiguous()
    if not bits and str(host.dtype) == "torch.bfloat16":
        host = host.float()
    try:
        return _of_dlpack(host)
    except (ArgumentError, BufferError, RuntimeError):
        if host.is_complex():
            raise
        return _of_dlpack(host.long())  # bool, or integers of a dtype that tables lack


def _of_dlpack(array: Any) -> np.ndarray:
    """An array over the memory of one with __dlpack__, which it keeps alive. bfloat16 becomes its bits as uint16."""
    number = device_of(array)
    if number is not None:
        raise ArgumentError(capi.MV_EINVAL, f"this array is on CUDA device {number}, and is needed on the host: copy it there, as by Tensor.to('cpu')")
    return np.asarray(TensorMemory(tensor_from_dlpack(array.__dlpack__())))


def _is_constant(array: Any) -> bool:
    """Whether numpy may only read the array, as those of JAX. DLPack does not tell, and bfloat16 has no buffer that
    would."""
    try:
        return hasattr(array, "__array__") and not np.asarray(array).flags.writeable
    except Exception:  # of another library, for memory that numpy can't use
        return False


def _has_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except Exception:
        return False
    return True
