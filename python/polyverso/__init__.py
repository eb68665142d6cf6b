"""Model parameters shared between processes of any language.

    import polyverso

    with polyverso.init(sync=True) as node:
        weights = node.matrix(10, 64, name="weights")
        weights.add(gradient)            # a numpy array, a list, anything that numpy converts
        values = weights.get()           # a fresh (10, 64) float32 array

A script that runs alone is a cluster of one process; `polyverso run -n 4 -- python3 script.py` makes a cluster of four.
`polyverso.capi` has the C functions under their own names, `polyverso.errors` the exceptions.
"""

try:
    import numpy as _numpy  # noqa: F401  (imported first: a missing numpy gets a clear message)
except ImportError as missing:
    raise ImportError(
        "polyverso needs numpy: install it with `apt install python3-numpy` or `python3 -m pip install numpy`"
    ) from missing

import importlib as _importlib
import typing as _typing

from . import capi, lr_scheduler, optimizer
from .errors import (
    ArgumentError,
    Error,
    HandleError,
    Interrupted,
    OutOfStepError,
    PeerError,
    StateError,
    SystemFailure,
    TimeoutError,
)
from .node import Node, doctor, init, inspect_checkpoint, open_node
from .request import Request
from .table import Table
from .tensor import Tensor

if _typing.TYPE_CHECKING:
    from . import kvstore, kvstore_server

    kv = kvstore  # like mx.kv


def __getattr__(name: str) -> _typing.Any:
    """Imports the stores on first use: under a DMLC tracker, the import turns a server's process into a server."""
    if name not in ("kv", "kvstore", "kvstore_server"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module("polyverso.kvstore_server" if name == "kvstore_server" else "polyverso.kvstore")


__version__ = capi.mv_version_text()

__all__ = [
    "ArgumentError",
    "Error",
    "HandleError",
    "Interrupted",
    "Node",
    "OutOfStepError",
    "PeerError",
    "Request",
    "StateError",
    "SystemFailure",
    "Table",
    "Tensor",
    "TimeoutError",
    "capi",
    "doctor",
    "init",
    "inspect_checkpoint",
    "kv",
    "kvstore",
    "kvstore_server",
    "lr_scheduler",
    "open_node",
    "optimizer",
]
