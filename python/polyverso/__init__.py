"""Model parameters shared between processes of any language.

    import polyverso

    with polyverso.init(sync=True) as node:                     # its end leaves the cluster
        weights = node.matrix(10, 64, name="weights")
        weights.add(gradient)            # a numpy array, a list, anything that numpy converts
        values = weights.get()           # a fresh (10, 64) float32 array

A script that runs alone is a cluster of one process; `polyverso run -n 4 -- python3 script.py` makes a cluster of four.
Without numpy, tables take lists and buffers, and return memoryviews.
`polyverso.capi` has the C functions under their own names, `polyverso.errors` the exceptions.
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

try:
    from . import capi
except ImportError as _error:
    import importlib.machinery as _machinery
    import pathlib as _pathlib

    _built = [file.name for file in _pathlib.Path(__file__).parent.glob("_capi.*")]
    if not _built or any(name == "_capi" + suffix for name in _built for suffix in _machinery.EXTENSION_SUFFIXES):
        raise
    raise ImportError(
        f"{__name__}: {_built[0]} was compiled for another Python than this one, {_sys.implementation.cache_tag} ({_sys.executable}): "
        "use the Python that it was compiled for, or install the wheel, or build Polyverso for this Python"
    ) from _error
from . import errors, lr_scheduler, optimizer
from .enums import DType, Kind, TableFlag
from .devices import Device, local_device
from .errors import (
    ArgumentError,
    Error,
    HandleError,
    Interrupted,
    NotFoundError,
    OutOfStepError,
    PeerError,
    StateError,
    SystemFailure,
    TimeoutError,
)
from .names import listing as _listing
from .node import Node, doctor, init, inspect_checkpoint, open_node
from .request import Request
from .table import Table
from .tensor import Tensor

if _typing.TYPE_CHECKING:
    from . import distlearn, gossip, group, kvstore, kvstore_server
    from .group import Group
    from .kvstore import KVStore

    kv = kvstore  # like mx.kv

# What is imported on first use, with its module. Under a DMLC tracker, the import of the stores turns a server's
# process into a server.
_LATER = {
    "Group": "group",
    "KVStore": "kvstore",
    "distlearn": "distlearn",
    "gossip": "gossip",
    "group": "group",
    "kv": "kvstore",
    "kvstore": "kvstore",
    "kvstore_server": "kvstore_server",
}


def __getattr__(name: str) -> _typing.Any:
    """Imports what _LATER names."""
    if name not in _LATER:
        text = f"module {__name__!r} has no attribute {name!r}"
        if hasattr(Node, name):
            text += f": it is a method of a node, as in node = polyverso.init(); node.{name}"
        raise AttributeError(text, name=name, obj=_sys.modules[__name__])  # Python adds a similar name
    module = _importlib.import_module(f"polyverso.{_LATER[name]}")
    return getattr(module, name) if name[0].isupper() else module


__version__ = capi.mv_version_text()

__all__ = [
    "ArgumentError",
    "DType",
    "Device",
    "Error",
    "Group",
    "HandleError",
    "Interrupted",
    "KVStore",
    "Kind",
    "Node",
    "NotFoundError",
    "OutOfStepError",
    "PeerError",
    "Request",
    "StateError",
    "SystemFailure",
    "Table",
    "TableFlag",
    "Tensor",
    "TimeoutError",
    "capi",
    "distlearn",
    "doctor",
    "errors",
    "gossip",
    "group",
    "init",
    "inspect_checkpoint",
    "kv",
    "kvstore",
    "kvstore_server",
    "local_device",
    "lr_scheduler",
    "open_node",
    "optimizer",
]
__dir__ = _listing(__all__, "__path__", "__version__")
