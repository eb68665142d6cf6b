"""Values and row ids of tables where numpy is not installed: lists of numbers and buffers, as memoryviews."""

from __future__ import annotations

import math
import struct
import sys
from typing import Any, Iterator, List, Sequence, Tuple

from . import capi
from ._numpy import np
from .errors import ArgumentError

# The format of each mv_dtype in Python's struct module, which has none for bfloat16: its bits.
_FORMATS = {
    capi.MV_F32: "f",
    capi.MV_F64: "d",
    capi.MV_I64: "q",
    capi.MV_I32: "i",
    capi.MV_U8: "B",
    capi.MV_I8: "b",
    capi.MV_F16: "e",
    capi.MV_BF16: "H",
}


def empty(shape: Tuple[int, ...], code: int) -> memoryview:
    """Zeros of an mv_dtype. A memoryview has no empty dimensions: without elements, it has one dimension."""
    if code == capi.MV_F16 and sys.version_info < (3, 12):  # whose memoryviews have no such elements
        np.float16  # noqa: B018  (an ImportError)
    memory = memoryview(bytearray(math.prod(shape) * struct.calcsize(_FORMATS[code])))
    return memory.cast(_FORMATS[code], shape) if math.prod(shape) and len(shape) > 1 else memory.cast(_FORMATS[code])


def as_values(data: Any, code: int) -> memoryview:
    """A number, a list of numbers, a list of such lists, or a buffer, as numbers of an mv_dtype. A contiguous buffer of
    this dtype is used without a copy. Floats are never truncated to integers: ArgumentError."""
    if data is None:
        raise ArgumentError(capi.MV_ESHAPE, "no data given")
    view = _buffer(data)
    if view is not None and _format(view) == _FORMATS[code] and view.c_contiguous:
        return view
    if code == capi.MV_BF16:
        raise ArgumentError(capi.MV_EDTYPE, "Python has no bfloat16: pass the bits, as by array.array('H'), or install numpy and ml_dtypes")
    values = data if view is None else view.tolist()
    shape = tuple(_shape(values))
    return _packed(list(_numbers(values, len(shape))), shape, code)


def as_rows(rows: Any) -> memoryview:
    """Row ids or keys as int64 in one dimension."""
    view = _buffer(rows)
    if view is not None and _format(view) == "q" and view.c_contiguous:
        return view
    ids = view.tolist() if view is not None else rows if hasattr(rows, "__iter__") else [rows]
    if isinstance(ids, (str, bytes)) or not all(hasattr(one, "__index__") and not isinstance(one, bool) for one in ids):
        raise ArgumentError(capi.MV_EDTYPE, "row ids and keys must be 64-bit integers")
    return _packed(list(ids), (len(ids),), capi.MV_I64)


def _buffer(data: Any) -> Any:
    if isinstance(data, (list, tuple, str)):
        return None
    try:
        return memoryview(data)
    except (TypeError, BufferError):
        return None


def _format(view: memoryview) -> str:
    """The format of the struct module for these elements: "l" and "q" are the same where both have eight bytes."""
    plain = view.format.lstrip("@=<" if struct.pack("=h", 1)[0] else "@=>")
    if plain in ("l", "q", "n") and view.itemsize == 8:
        return "q"
    return "i" if plain == "l" and view.itemsize == 4 else plain


def _shape(values: Any) -> Iterator[int]:
    while isinstance(values, (list, tuple)):
        yield len(values)
        values = values[0] if values else None


def _numbers(values: Any, dims: int) -> Iterator[Any]:
    if dims == 0:
        yield values
        return
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(capi.MV_ESHAPE, "the lists are not equally deep")
    for part in values:
        if dims > 1 and (not isinstance(part, (list, tuple)) or len(part) != len(values[0])):
            raise ArgumentError(capi.MV_ESHAPE, "the lists have different lengths")
        yield from _numbers(part, dims - 1)


def _packed(numbers: List[Any], shape: Sequence[int], code: int) -> memoryview:
    made = empty(tuple(shape), code)
    try:
        struct.pack_into(f"={len(numbers)}{_FORMATS[code]}", made.cast("B"), 0, *numbers)
    except (struct.error, OverflowError, TypeError) as failure:
        raise ArgumentError(capi.MV_EDTYPE, f"the data does not fit the table's dtype: {failure}") from None
    return made
