"""Conversions between numpy arrays and the memory that the C functions take."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import zlib
from typing import Any, Optional, Sequence, Tuple

from . import _numpy, capi, dtypes, plain
from ._numpy import has_numpy, is_ndarray, np
from .errors import ArgumentError
from .foreign import device_of, memory_of, readable
from .names import did_you_mean

# The dtype names of polyverso.h. numpy gives some of them another meaning: its "u8" and "i8" have eight bytes.
CODES = {
    "f32": capi.MV_F32,
    "f64": capi.MV_F64,
    "i64": capi.MV_I64,
    "i32": capi.MV_I32,
    "u8": capi.MV_U8,
    "i8": capi.MV_I8,
    "f16": capi.MV_F16,
    "bf16": capi.MV_BF16,
}
_NAMES = {
    **CODES,
    "float32": capi.MV_F32,
    "float64": capi.MV_F64,
    "int64": capi.MV_I64,
    "int32": capi.MV_I32,
    "uint8": capi.MV_U8,
    "int8": capi.MV_I8,
    "float16": capi.MV_F16,
    "bfloat16": capi.MV_BF16,
}
_DTYPE_NAMES = {code: name for name, code in CODES.items()}
_FLOATS = {capi.MV_F32, capi.MV_F64, capi.MV_F16, capi.MV_BF16}


def code_of(dtype: Any) -> int:
    """The mv_dtype of a table's dtype: "f32", "bf16" and so on, or anything that numpy.dtype() accepts."""
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    if not has_numpy():
        raise TypeError(f"a table holds {', '.join(CODES)}, not {dtype!r}{did_you_mean(str(dtype), _NAMES)}")
    with contextlib.suppress(TypeError):  # numpy knows no such dtype
        wanted = np.dtype(dtype)
        for code, known in dtypes.DTYPES.items():
            if known == wanted and known != dtypes.BITS:
                return code
    hint = did_you_mean(dtype, _NAMES) if isinstance(dtype, str) else ""
    raise TypeError(
        f"a table holds float32, float64, int64, int32, uint8, int8, float16 or bfloat16 (dtype=\"bf16\"), not {dtype!r}{hint}"
    )


def as_values(data: Any, dtype: np.dtype) -> np.ndarray:
    """`data` as a C-contiguous array of the dtype, without a copy if it is one already. Floats are never truncated to
    integers: ArgumentError."""
    if type(data) is _numpy.ndarray and (data.dtype is dtype or data.dtype == dtype) and data.flags.c_contiguous:
        return data
    if data is None:
        raise ArgumentError(capi.MV_ESHAPE, "no data given")
    given = _numbers(readable(data))
    if dtype.kind in "iu":
        return _as_integers(given, dtype)
    try:
        return np.ascontiguousarray(given, dtype=dtype)
    except (TypeError, ValueError) as failure:
        raise ArgumentError(capi.MV_EDTYPE, f"the data, a {type(data).__name__}, is not made of numbers: {failure}") from None


def _numbers(data: Any) -> np.ndarray:
    """`data` as an array of real numbers. What numpy would silently turn into other numbers is refused."""
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        raise ArgumentError(capi.MV_EDTYPE, "some values are masked: fill them with .filled(value)")
    try:
        given = np.asarray(data)
    except ValueError as failure:  # lists of different lengths
        raise ArgumentError(capi.MV_ESHAPE, str(failure)) from None
    if given.dtype.kind in "cmM":
        raise ArgumentError(capi.MV_EDTYPE, f"the data is {given.dtype}: convert it to real numbers")
    if given.dtype.kind in "US":
        raise ArgumentError(capi.MV_EDTYPE, "the data is text: convert it to numbers, as by numpy.asarray(data, dtype=float)")
    if given.dtype.kind == "O" and any(value is None for value in given.flat):
        raise ArgumentError(capi.MV_EDTYPE, "a value is None: all values must be numbers")
    return given


def _as_integers(given: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if given.size and given.dtype.kind not in "iub":
        raise ArgumentError(capi.MV_EDTYPE, f"the table holds {dtype}, not {given.dtype}: round or cast it yourself")
    if given.size and given.dtype.kind != "b":
        limits = np.iinfo(dtype)
        least, most = int(given.min()), int(given.max())
        if least < limits.min or most > limits.max:
            raise ArgumentError(
                capi.MV_EDTYPE, f"the table holds {dtype}, {limits.min} .. {limits.max}; the data has {least} .. {most}"
            )
    return np.ascontiguousarray(given, dtype=dtype)


def as_table_values(data: Any, code: int) -> Any:
    """as_values() for a table's mv_dtype, as the C functions take it: bfloat16 as uint16, also accepted here. An array,
    or a memoryview without numpy, or a tensor over an array on a device, whose floats are converted to those of the table."""
    if type(data) is _numpy.ndarray:
        if data.dtype is dtypes.DTYPES[code] and code != capi.MV_BF16 and data.flags.c_contiguous:  # the most frequent
            return data
    elif (tensor := on_device(data)) is not None:
        own = CODES[tensor.dtype]
        return tensor.cast(_DTYPE_NAMES[code]) if own != code and {own, code} <= _FLOATS else tensor
    if not has_numpy():
        return plain.as_values(data, code)
    if code != capi.MV_BF16:
        return as_values(data, dtypes.DTYPES[code])
    from .tensor import Tensor  # which imports this module

    if isinstance(data, Tensor) and CODES[data.dtype] in _FLOATS:
        return data if data.dtype == "bf16" else data.cast("bf16")
    data = readable(data, bits=True)
    if getattr(data, "dtype", None) == dtypes.BITS:
        return np.ascontiguousarray(data)
    if dtypes.BF16 == dtypes.BITS:
        raise ArgumentError(
            capi.MV_EDTYPE, "numpy has no bfloat16: pass the bits as uint16, or install ml_dtypes"
        )
    return as_values(data, dtypes.BF16).view(dtypes.BITS)


def empty(shape: Tuple[int, ...], code: int) -> Tuple[Any, Any]:
    """A fresh array of an mv_dtype for results, a memoryview without numpy; and the same memory as the C functions take
    it."""
    if not has_numpy():
        made = plain.empty(shape, code)
        return made, made
    out = np.empty(shape, dtypes.DTYPES[code])
    return out, out.view(dtypes.BITS) if code == capi.MV_BF16 else out


def check_shape(table: str, shape: Sequence[int], *needed: Tuple[int, ...]) -> None:
    """ArgumentError if data with several dimensions has none of the shapes needed. One dimension fits everything, and
    everything fits one dimension: the C functions compare the number of elements."""
    if len(shape) > 1 and len(needed[0]) > 1 and tuple(shape) not in needed:
        count = math.prod(needed[0])
        raise ArgumentError(
            capi.MV_ESHAPE, f'{table}: shape {tuple(shape)} given, {needed[0]} needed, or {count} values in one dimension'
        )


@functools.lru_cache(maxsize=1024)
def label_of(names: Tuple[str, ...], shapes: Tuple[Tuple[int, ...], ...]) -> int:
    """The label of arrays, by which the ranks of a group compare their names and shapes; 0 for unnamed arrays of one
    dimension, which fit everything with as many elements. The same in every language: CRC-32 of a line for each
    array, its name, a space, and if it has several dimensions their lengths joined by "x"."""
    if not any(names) and all(len(shape) <= 1 for shape in shapes):
        return 0
    lines = (f"{name} {'x'.join(map(str, shape)) if len(shape) > 1 else ''}\n" for name, shape in zip(names, shapes))
    return zlib.crc32("".join(lines).encode()) or 1


def shape_of(array: Any) -> Tuple[int, ...]:
    """The shape that an array has for its owner: () if it does not say."""
    return tuple(getattr(array, "shape", ()))


def as_bits(out: Any) -> Any:
    """Memory for results as the C functions take it: bfloat16 as a view of uint16."""
    memory = memory_of(out)
    if getattr(memory, "itemsize", 0) == 2 and is_ndarray(memory) and memory.dtype == dtypes.BF16:
        return memory.view(dtypes.BITS)
    return memory


def on_device(array: Any) -> Any:
    """A tensor over an array in the memory of a CUDA device, for the functions of tables, groups, strategies and gossip, which
    take it in place; None for an array in the host's memory."""
    if is_ndarray(array) or device_of(array) is None:
        return None
    from .tensor import Tensor  # which imports this module

    if not isinstance(array, Tensor):
        return Tensor.view(array)
    if array.row_sparse:
        raise ArgumentError(capi.MV_EINVAL, "this tensor is row-sparse, a dense one is needed: use tensor.to_dense() or tensor.parts()")
    return array


def tensor_or_bits(array: Any) -> Any:
    """A caller's memory as the C functions take it, where uint16 is the bits of bfloat16."""
    tensor = on_device(array)
    return tensor if tensor is not None else as_bits(array)


def in_place(array: Any) -> Any:
    """A caller's memory as the C functions take it, if only its own dtype identifies it. uint16 is refused: the C
    functions would take the integers for the bits of bfloat16."""
    if (tensor := on_device(array)) is not None:
        return tensor
    if (hasattr(array, "dtype") and has_numpy() and array.dtype == dtypes.BITS) or getattr(array, "format", None) == "H" or getattr(array, "typecode", None) == "H":
        raise ArgumentError(
            capi.MV_EDTYPE,
            "uint16 is not supported here: for bits of bfloat16, use polyverso.Tensor.view() or ml_dtypes.bfloat16",
        )
    return as_bits(array)


def as_rows(rows: Any) -> Any:
    """Row ids or keys as int64: an array, or a memoryview without numpy. Floats and boolean masks are refused: ArgumentError."""
    if type(rows) is _numpy.ndarray and rows.dtype is dtypes.DTYPES[capi.MV_I64] and rows.ndim == 1 and rows.flags.c_contiguous:
        return rows
    if not has_numpy():
        return plain.as_rows(rows)
    ids = np.atleast_1d(np.asarray(readable(rows)))
    if ids.size and (ids.dtype.kind in "US" or isinstance(ids.flat[0], (str, bytes))):
        raise ArgumentError(
            capi.MV_EDTYPE, "row ids and keys must be 64-bit integers, not text: hash words, but not by hash(), as docs/tables.md shows"
        )
    if ids.size and ids.dtype == bool:
        raise ArgumentError(capi.MV_EDTYPE, "row ids and keys must be 64-bit integers, not bool: numpy.flatnonzero(mask) has the rows of a mask")
    if ids.size and ids.dtype.kind not in "iu":
        raise ArgumentError(capi.MV_EDTYPE, f"row ids and keys must be 64-bit integers, not {ids.dtype}")
    if ids.size and ids.dtype == np.uint64 and int(ids.max()) >= 1 << 63:
        raise ArgumentError(
            capi.MV_EDTYPE,
            f"key {int(ids.max())} does not fit int64: reinterpret the bits of hashes with .view('int64')",
        )
    return np.ascontiguousarray(ids, dtype=np.int64)


def rows_or_keys(rows: Any, keys: Any) -> Any:
    """The ids of a call: `keys` is another name of `rows`, for key-value tables."""
    if keys is None:
        return rows
    if rows is not None:
        raise ArgumentError(capi.MV_EINVAL, "rows and keys mean the same: pass only one of them")
    return keys


def milliseconds(timeout: Optional[float]) -> int:
    """Seconds as the milliseconds of the C API: None = the node's default, infinite or -1 (MV_FOREVER) = no limit."""
    if timeout is None:
        return 0
    if type(timeout) is not float and not isinstance(timeout, numbers.Real):  # the second test is slow
        raise TypeError(f"timeout is {timeout!r}: a number of seconds is needed, or None for the node's default")
    if timeout in (math.inf, capi.MV_FOREVER):
        return capi.MV_FOREVER
    if not timeout >= 0:
        text = "a number of seconds is needed, 0 or more; math.inf means no limit, None the node's default"
        raise ArgumentError(capi.MV_EINVAL, f"timeout is {timeout!r}: {text}")
    return max(1, math.ceil(timeout * 1000))
