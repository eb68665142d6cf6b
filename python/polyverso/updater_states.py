"""The states of an optimizer.Updater as the bytes of a safetensors file, which contains no code.

Layout: u64 length, header in JSON, bytes of the tensors. The header's metadata holds the assignment of tensors to keys
as JSON, and a checksum of everything.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import numpy as np

from . import capi
from .errors import ArgumentError, Error
from .tensor import Tensor

if TYPE_CHECKING:
    from .optimizer import Updater

_FORMAT = "polyverso-python-updater-1"


def to_bytes(updater: "Updater", dump_optimizer: bool) -> bytes:
    optimizer = updater.optimizer
    arrays: List[Tensor] = []
    states = [[key, _described(state, arrays)] for key, state in updater.states.items()]
    counts = {"num_update": optimizer.num_update, "keys": list(optimizer._index_update_count.items())}
    about = {"class": type(optimizer).__name__, "states": states, "counts": counts}
    if dump_optimizer:
        about["parameters"] = {name: getattr(optimizer, name) for name in optimizer.parameter_names()}
    header: Dict[str, Any] = {}
    data = bytearray()
    for i, array in enumerate(arrays):
        begin = len(data)
        data += bytes(memoryview(array).cast("B")) if array.info()["count"] else b""
        place = [begin, len(data)]
        header[f"state.{i}"] = {"dtype": array.dtype.upper(), "shape": list(array.shape), "data_offsets": place}
    text = json.dumps(about)
    digest = _digest(text, header, bytes(data))
    header["__metadata__"] = {"format": _FORMAT, "about": text, "sha256": digest}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + bytes(data)


def from_bytes(updater: "Updater", data: bytes) -> None:
    try:
        about, arrays = _read(bytes(data))
        optimizer = updater.optimizer
        if about["class"] != type(optimizer).__name__:
            raise _refused(f"the states belong to {about['class']}, but the optimizer is {type(optimizer).__name__}", capi.MV_EDISAGREE)
        states = {_key(key): _made(state, arrays) for key, state in about["states"]}
        counts = {_key(key): int(count) for key, count in about["counts"]["keys"]}
        num_update = int(about["counts"]["num_update"])
        parameters = dict(about.get("parameters", {}))
    except Error:
        raise
    except Exception as failure:
        raise _refused(f"the states are damaged: {failure!r}") from failure
    for name in parameters.keys() & set(optimizer.parameter_names()):
        setattr(optimizer, name, parameters[name])
    optimizer._index_update_count, optimizer.num_update = counts, num_update
    if optimizer.kind and capi.kv_optimizer_states(str(optimizer))[1] > 0:  # all keys share one tensor
        lists = [state for state in states.values() if isinstance(state, list) and state]
        for state in lists:
            optimizer._shared = state[-1] = lists[0][-1]
    updater.states = states


def _refused(text: str, status: int = capi.MV_EINVAL) -> ArgumentError:
    return ArgumentError(status, text)


def _digest(text: str, header: Dict[str, Any], data: bytes) -> str:
    tensors = {name: about for name, about in header.items() if name != "__metadata__"}
    return hashlib.sha256(text.encode() + json.dumps(tensors, sort_keys=True).encode() + data).hexdigest()


def _read(data: bytes) -> Tuple[Dict[str, Any], List[Tensor]]:
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end]) if 8 < end <= len(data) else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        if data[:1] == b"\x80" or (data[:1] in (b"(", b"]", b"}", b"c") and data.rstrip().endswith(b".")):
            raise _refused("these states are pickled, and unpickling can run code: save them again with get_states()")
        raise _refused("these are not the states of an updater, or they are damaged")
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != _FORMAT:
        raise _refused("these are not the states of an updater")
    if metadata["sha256"] != _digest(metadata["about"], header, data[end:]):
        raise _refused("the states are damaged: the checksum does not match")
    arrays = []
    while f"state.{len(arrays)}" in header:
        about = header[f"state.{len(arrays)}"]
        begin, stop = about["data_offsets"]
        array = Tensor.zeros(about["shape"], about["dtype"].lower())
        values = data[end + begin : end + stop]
        if array.info()["count"]:
            memoryview(array).cast("B")[:] = values
        arrays.append(array)
    return json.loads(metadata["about"]), arrays


def _key(key: Any) -> Any:
    if not isinstance(key, (int, str)):
        raise ValueError(f"{key!r} is not a key")
    return key


def _described(state: Any, arrays: List[Tensor]) -> Any:
    """A state as JSON; its arrays are appended to `arrays`."""
    if isinstance(state, (Tensor, np.ndarray)):
        of_numpy = isinstance(state, np.ndarray)
        sparse = not of_numpy and bool(state.row_sparse)
        arrays.append(Tensor.copy_of(state) if of_numpy else state.to_dense() if sparse else state)
        return {"array": len(arrays) - 1, "numpy": of_numpy, "row_sparse": sparse}
    if isinstance(state, (list, tuple)):
        return {"tuple" if isinstance(state, tuple) else "list": [_described(one, arrays) for one in state]}
    if isinstance(state, dict):
        return {"dict": [[_key(key), _described(one, arrays)] for key, one in state.items()]}
    if state is None or isinstance(state, (bool, int, float, str)):
        return {"value": state}
    if isinstance(state, np.generic):
        return {"value": state.item()}
    raise TypeError(f"a state with a {type(state).__name__} can't be saved: only tensors, arrays, numbers, text, lists and dicts can")


def _made(described: Any, arrays: List[Tensor]) -> Any:
    if "array" in described:
        array = arrays[described["array"]]
        if described["numpy"]:
            return array.numpy().copy()
        return array.to_sparse() if described["row_sparse"] else array
    if "list" in described or "tuple" in described:
        parts = [_made(one, arrays) for one in described.get("list", described.get("tuple"))]
        return tuple(parts) if "tuple" in described else parts
    if "dict" in described:
        return {_key(key): _made(one, arrays) for key, one in described["dict"]}
    return described["value"]
