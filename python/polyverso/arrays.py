"""Conversions between numpy arrays and the memory that the C functions take."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from . import capi
from .errors import ArgumentError

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = np.uint16

# numpy itself has no bfloat16: the package ml_dtypes adds it; without that package, uint16 holds the bits.
BF16 = np.dtype(_bfloat16)
BITS = np.dtype(np.uint16)

DTYPES = {
    capi.MV_F32: np.dtype(np.float32),
    capi.MV_F64: np.dtype(np.float64),
    capi.MV_I64: np.dtype(np.int64),
    capi.MV_I32: np.dtype(np.int32),
    capi.MV_U8: np.dtype(np.uint8),
    capi.MV_I8: np.dtype(np.int8),
    capi.MV_F16: np.dtype(np.float16),
    capi.MV_BF16: BF16,
}
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
_NAMES = {**CODES, "bfloat16": capi.MV_BF16}


def code_of(dtype: Any) -> int:
    """The mv_dtype of a table's dtype: "f32", "bf16" and so on, or anything that numpy.dtype() accepts."""
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    wanted = np.dtype(dtype)
    for code, known in DTYPES.items():
        if known == wanted and known != BITS:
            return code
    raise TypeError(
        f"a table holds float32, float64, int64, int32, uint8, int8, float16 or bfloat16 (dtype=\"bf16\"), not {wanted}"
    )


def as_values(data: Any, dtype: np.dtype) -> np.ndarray:
    """`data` as a C-contiguous array of the dtype, without a copy if it is one already. Floats are never truncated to
    integers: ArgumentError."""
    if type(data) is np.ndarray and data.dtype == dtype and data.flags.c_contiguous:
        return data
    if data is None:
        raise ArgumentError(capi.MV_ESHAPE, "no data given")
    if dtype.kind in "iu":
        return _as_integers(data, dtype)
    return np.ascontiguousarray(data, dtype=dtype)


def _as_integers(data: Any, dtype: np.dtype) -> np.ndarray:
    given = np.asarray(data)
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


def as_table_values(data: Any, code: int) -> np.ndarray:
    """as_values() for a table's mv_dtype, as the C functions take it: bfloat16 as uint16, also accepted here."""
    if code != capi.MV_BF16:
        return as_values(data, DTYPES[code])
    if getattr(data, "dtype", None) == BITS:
        return np.ascontiguousarray(data)
    if BF16 == BITS:
        raise ArgumentError(
            capi.MV_EDTYPE, "numpy has no bfloat16: pass the bits as uint16, or install ml_dtypes"
        )
    return as_values(data, BF16).view(BITS)


def as_bits(out: Any) -> Any:
    """Memory for results as the C functions take it: bfloat16 as a view of uint16."""
    if isinstance(out, np.ndarray) and out.dtype == BF16:
        return out.view(BITS)
    return out


def in_place(array: Any) -> Any:
    """A caller's memory as the C functions take it, if only its own dtype identifies it. uint16 is refused: the C
    functions would take the integers for the bits of bfloat16."""
    if getattr(array, "dtype", None) == BITS or getattr(array, "format", None) == "H" or getattr(array, "typecode", None) == "H":
        raise ArgumentError(
            capi.MV_EDTYPE,
            "uint16 is not supported here: for bits of bfloat16, use polyverso.Tensor.view() or ml_dtypes.bfloat16",
        )
    return as_bits(array)


def as_rows(rows: Any) -> np.ndarray:
    """Row ids or keys as int64. Floats and boolean masks are refused: ArgumentError."""
    ids = np.atleast_1d(np.asarray(rows))
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
    """Seconds as the milliseconds of the C API: None = the node's default, infinite or negative = for ever."""
    if timeout is None:
        return 0
    if timeout < 0 or math.isinf(timeout):
        return capi.MV_FOREVER
    return max(1, math.ceil(timeout * 1000))
