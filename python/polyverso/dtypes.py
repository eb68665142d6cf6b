"""The numpy dtypes of tables and tensors. Made at their first use, because they take numpy."""

from __future__ import annotations

from typing import Any, Dict

from . import capi
from ._numpy import np

# numpy itself has no bfloat16: the package ml_dtypes adds it; without that package, uint16 holds the bits.
BF16: np.dtype[Any]
BITS: np.dtype[Any]
DTYPES: Dict[int, np.dtype[Any]]  # of each mv_dtype


def __getattr__(name: str) -> Any:
    if name not in ("BF16", "BITS", "DTYPES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    bits = np.dtype(np.uint16)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        bfloat16 = np.uint16
    bf16 = np.dtype(bfloat16)
    known = {
        capi.MV_F32: np.dtype(np.float32),
        capi.MV_F64: np.dtype(np.float64),
        capi.MV_I64: np.dtype(np.int64),
        capi.MV_I32: np.dtype(np.int32),
        capi.MV_U8: np.dtype(np.uint8),
        capi.MV_I8: np.dtype(np.int8),
        capi.MV_F16: np.dtype(np.float16),
        capi.MV_BF16: bf16,
    }
    globals().update(BF16=bf16, BITS=bits, DTYPES=known)
    return globals()[name]
