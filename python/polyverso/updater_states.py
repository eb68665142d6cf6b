"""The states of an optimizer.Updater as bytes: a description in JSON, and the tensors it refers to. kv_encode_states()
makes a safetensors file of them, which contains no code.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Dict, List

from . import capi, lr_scheduler
from ._numpy import np
from .errors import ArgumentError, Error
from .names import listing
from .tensor import Tensor

if TYPE_CHECKING:
    from .optimizer import Updater

__all__ = ["from_bytes", "to_bytes"]
__dir__ = listing(__all__)

_FORMAT = "polyverso-python-updater-1"
_FACTORS = ("lr_mult", "wd_mult")  # of the optimizer, by key or name


def to_bytes(updater: "Updater", dump_optimizer: bool) -> bytes:
    """The states of all keys, and the update counts; with `dump_optimizer` also the optimizer's parameters, its schedule, if
    it is one of the library's, and the factors of keys."""
    optimizer = updater.optimizer
    arrays: List[Tensor] = []
    states = [[key, _described(state, arrays)] for key, state in updater.states.items()]
    counts = {"num_update": optimizer.num_update, "keys": list(optimizer._index_update_count.items())}
    about = {"class": type(optimizer).__name__, "states": states, "counts": counts}
    if dump_optimizer:
        about["parameters"] = {name: getattr(optimizer, name) for name in optimizer.parameter_names()}
        about.update({name: list(getattr(optimizer, name).items()) for name in _FACTORS})
        schedule = optimizer.lr_scheduler
        if schedule is None or schedule.is_native:
            about["schedule"] = schedule and {"class": schedule.kind, "parameters": vars(schedule)}
    return memoryview(Tensor(capi.kv_encode_states(_FORMAT, json.dumps(about), arrays))).tobytes()


def from_bytes(updater: "Updater", data: bytes) -> None:
    """Gives an updater the states of to_bytes(). Raises ArgumentError, and changes nothing, if they do not fit."""
    try:
        text, handles = capi.kv_decode_states(_FORMAT, bytes(data))
        arrays, about = dict(enumerate(map(Tensor, handles))), json.loads(text)
        optimizer = updater.optimizer
        if about["class"] != type(optimizer).__name__:
            raise _refused(f"the states belong to {about['class']}, but the optimizer is {type(optimizer).__name__}", capi.MV_EDISAGREE)
        states = {_key(key): _made(state, arrays) for key, state in about["states"]}
        counts = {_key(key): int(count) for key, count in about["counts"]["keys"]}
        num_update = int(about["counts"]["num_update"])
        if min(num_update, *counts.values(), 0) < 0:
            raise ValueError("a count is negative")
        saved = about.get("parameters", {})
        parameters = {name: saved[name] for name in saved.keys() & set(optimizer.parameter_names())}
        parameters.update({name: {_key(key): float(factor) for key, factor in about[name]} for name in _FACTORS if name in about})
        if "schedule" in about:
            parameters["lr_scheduler"] = about["schedule"] and _schedule(**about["schedule"])
        # Whether the library accepts the parameters must be known before anything changes.
        changed = copy.copy(optimizer)
        vars(changed).update(parameters)
        shared = capi.kv_optimizer_states(str(changed))[1] if changed.kind else 0
    except Error:
        raise
    except Exception as failure:
        raise _refused(f"the states are damaged: {failure!r}") from failure
    vars(optimizer).update(parameters)
    optimizer._index_update_count, optimizer.num_update = counts, num_update
    if shared > 0:  # all keys share one tensor
        lists = [state for state in states.values() if isinstance(state, list) and state]
        for state in lists:
            optimizer._shared = state[-1] = lists[0][-1]
    updater.states = states


def _schedule(parameters: Dict[str, Any], **kind: str) -> lr_scheduler.LRScheduler:
    made = next(known for known in vars(lr_scheduler).values() if getattr(known, "kind", "") == kind["class"])
    schedule = made.__new__(made)
    vars(schedule).update(parameters)
    schedule(0)  # an error if a parameter is missing or wrong
    return schedule


def _refused(text: str, status: int = capi.MV_EINVAL) -> ArgumentError:
    return ArgumentError(status, text)


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


def _made(described: Any, arrays: Dict[int, Tensor]) -> Any:
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
