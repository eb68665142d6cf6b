"""numpy at the border: what goes into a call, and the memory that comes out."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from . import capi
from .errors import ArgumentError

DTYPES = {capi.MV_F32: np.dtype(np.float32), capi.MV_F64: np.dtype(np.float64)}


def as_values(data: Any, dtype: np.dtype) -> np.ndarray:
    """`data` as a C-contiguous array of the dtype: itself, if it is one already."""
    if type(data) is np.ndarray and data.dtype == dtype and data.flags.c_contiguous:
        return data
    if data is None:
        raise ArgumentError(capi.MV_ESHAPE, "no data given")
    return np.ascontiguousarray(data, dtype=dtype)


def as_rows(rows: Any) -> np.ndarray:
    """Row ids as int64. Floats are refused, not cut, and a mask of booleans is not taken for ids."""
    ids = np.atleast_1d(np.asarray(rows))
    if ids.size and ids.dtype.kind not in "iu":
        raise ArgumentError(capi.MV_EDTYPE, f"row ids must be integers, not {ids.dtype}")
    return np.ascontiguousarray(ids, dtype=np.int64)


def code_of(dtype: Any) -> int:
    """MV_F32 or MV_F64 for anything that numpy.dtype() understands."""
    wanted = np.dtype(dtype)
    for code, known in DTYPES.items():
        if known == wanted:
            return code
    raise TypeError(f"a table holds float32 or float64, not {wanted}")


def milliseconds(timeout: Optional[float]) -> int:
    """Seconds as the C API counts: None = the node's default, infinite or negative = for ever."""
    if timeout is None:
        return 0
    if timeout < 0 or math.isinf(timeout):
        return capi.MV_FOREVER
    return max(1, math.ceil(timeout * 1000))
