"""Model parameters shared between processes, in any language.

    import polyverso

    with polyverso.init(sync=True) as node:
        weights = node.matrix(10, 64, name="weights")
        weights.add(gradient)            # numpy array, list, anything numpy converts
        values = weights.get()           # a fresh (10, 64) float32 array

A script alone is a cluster of one process; `polyverso run -n 4 -- python3 script.py` makes it a cluster of four.
The C functions under their own names are in `polyverso.capi`; the exceptions are in `polyverso.errors`.
"""

try:
    import numpy as _numpy  # noqa: F401  (checked here, once, so that the message is about the cause)
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

    kv = kvstore  # as mx.kv


def __getattr__(name: str) -> _typing.Any:
    """Stores are imported when they are first used: under a DMLC tracker that makes of a server's process a server."""
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
