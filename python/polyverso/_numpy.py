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
        global ndarray
        try:
            value = getattr(importlib.import_module("numpy"), name)
            ndarray = importlib.import_module("numpy").ndarray
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


ndarray: Any = ()  # numpy.ndarray, once this package has used numpy: every get and add asks, and np.ndarray takes longer


def is_ndarray(value: Any) -> bool:
    """Whether it is a numpy array. Doesn't import numpy for that: without numpy there is none."""
    global ndarray
    if not ndarray and "numpy" in sys.modules:
        ndarray = np.ndarray
    return isinstance(value, ndarray)
