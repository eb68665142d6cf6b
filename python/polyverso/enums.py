"""The numbers of the C interface as enums. They are equal to the numbers: Kind.MATRIX == polyverso.capi.MV_MATRIX."""

from __future__ import annotations

import enum
from typing import Any, Dict

from . import capi


class Kind(enum.IntEnum):
    """The kind of a table."""

    ARRAY = capi.MV_ARRAY
    MATRIX = capi.MV_MATRIX
    SPARSE = capi.MV_SPARSE
    KEYVALUE = capi.MV_KEYVALUE


class DType(enum.IntEnum):
    """The dtype of a table's or a tensor's elements."""

    F32 = capi.MV_F32
    F64 = capi.MV_F64
    I64 = capi.MV_I64
    I32 = capi.MV_I32
    U8 = capi.MV_U8
    I8 = capi.MV_I8
    F16 = capi.MV_F16
    BF16 = capi.MV_BF16


class TableFlag(enum.IntFlag):
    """How a table was created."""

    REJECT_NONFINITE = capi.MV_REJECT_NONFINITE
    MERGE = capi.MV_MERGE
    NO_BACKUPS = capi.MV_NO_BACKUPS


_ENUMS = {"kind": Kind, "dtype": DType, "flags": TableFlag}


def described(info: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of an info with enums in place of their numbers."""
    return {name: _ENUMS[name](value) if name in _ENUMS else value for name, value in info.items()}
