"""numpy, imported at its first use: `import polyverso` takes less time, and works without numpy."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any


class _Later(types.ModuleType):
    """Stands for numpy, and keeps what was asked of it."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(importlib.import_module("numpy"), name)
        except ModuleNotFoundError as missing:
            if missing.name != "numpy" or name.startswith("__"):
                raise
            raise ImportError(
                "this call needs numpy: install it with `apt install python3-numpy` or `python3 -m pip install numpy`. "
                "Without numpy, tables take and return lists and buffers, such as array.array; docs/installing.md has the list",
                name="numpy",
            ) from None
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Later("numpy")


@functools.cache
def has_numpy() -> bool:
    """Whether numpy is installed."""
    return "numpy" in sys.modules or importlib.util.find_spec("numpy") is not None


_ndarray: Any = ()  # numpy.ndarray once numpy is imported: every get and add asks


def is_ndarray(value: Any) -> bool:
    """Whether it is a numpy array. Doesn't import numpy for that: without numpy there is none."""
    global _ndarray
    if not _ndarray and "numpy" in sys.modules:
        _ndarray = np.ndarray
    return isinstance(value, _ndarray)
