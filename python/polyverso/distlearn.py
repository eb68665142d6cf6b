"""Distributed training on the ranks of a group, for any loop: torch-distlearn's AllReduceSGD, AllReduceEA, and more.

    from polyverso import distlearn

    sgd = distlearn.AllReduceSGD(group)
    sgd.synchronize_parameters(params)          # all ranks start with the same values
    for batch in batches:                       # ranks may have different numbers of batches
        grads = gradients(params, batch)
        sgd.sum_and_normalize_gradients(grads)
        step(params, grads)
    sgd.synchronize_parameters(params)          # waits for the other ranks; all get the same bits

Arrays are numpy arrays, PyTorch tensors on the CPU or polyverso.Tensors, C-contiguous and changed in place; or nested
lists, tuples and dicts of them. Dicts are traversed by sorted key, numbers before strings. The ranks compare keys and
shapes: a StateError (MV_EDISAGREE) if they differ.
docs/distlearn.md has a training loop for each class.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import capi
from ._numpy import np
from .arrays import in_place, label_of, milliseconds, on_device
from .errors import ArgumentError, Error
from .foreign import memory_of
from .group import Group
from .handles import Handle, remember
from .leaving import unless_forked
from .names import listing
from .tensor import Tensor

__all__ = ["AllReduceEA", "AllReduceSGD", "AsyncEA", "CompressedAllReduce", "DiLoCo", "LocalSGD", "Meter"]
__dir__ = listing(__all__)


class Meter(NamedTuple):
    """The traffic of a strategy, and for comparison (dense_bytes) that of an all-reduce of all arrays in every step."""

    steps: int
    operations: int
    payload_bytes: int
    dense_bytes: int


def _sorted_keys(values: Dict[Any, Any]) -> List[Any]:
    """Numbers before strings, each sorted: the order in all languages."""
    return sorted(values, key=lambda key: (isinstance(key, str), key))


def _leaves(values: Any) -> Iterator[np.ndarray]:
    """The arrays of nested lists and dicts (dicts by sorted key), as numpy views of their memory."""
    return (array for _, array in _named(values))


def _named(values: Any, name: str = "") -> Iterator[Tuple[str, np.ndarray]]:
    """_leaves(), each with the keys of the dicts that it is in: "layer1.bias"."""
    if isinstance(values, np.ndarray):
        yield name, in_place(values)
    elif isinstance(values, dict):
        for key in _sorted_keys(values):
            yield from _named(values[key], _name_below(name, str(key)))
    elif (tensor := on_device(values)) is not None:
        yield name, tensor
    elif isinstance(values, Tensor) or hasattr(values, "detach"):
        yield name, np.asarray(memory_of(values))
    elif not isinstance(values, np.generic) and (_is_array(values) or isinstance(values, memoryview)):
        yield name, np.asarray(in_place(values))
    elif hasattr(values, "__iter__") and not isinstance(values, (str, bytes, np.generic)):
        for value in values:
            yield from _named(value, name)
    else:
        raise ArgumentError(
            capi.MV_EDTYPE, f"writable arrays are needed, alone or in lists and dicts, not {type(values).__name__}"
        )


def _name_below(name: str, key: str) -> str:
    """The name of an element of `name`. An integer adds nothing: in Lua, a list is a table with integers for keys."""
    if key.lstrip("-").isdecimal():
        return name
    return f"{name}.{key}" if name else key


def _is_array(values: Any) -> bool:
    return any(hasattr(values, name) for name in ("__array_interface__", "__dlpack__", "to_numpy"))


def _nested(values: Any) -> Any:
    """The same values, with lists in place of one-shot iterables."""
    if isinstance(values, dict):
        return {key: _nested(value) for key, value in values.items()}
    if hasattr(values, "shape") or isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        return values
    return [_nested(value) for value in values]


def _rows(arrays: Any) -> Iterator[int]:
    """For each array, its number of rows as a matrix; 0 for vectors. Convolution kernels: one row for each output."""
    if isinstance(arrays, dict):
        for key in _sorted_keys(arrays):
            yield from _rows(arrays[key])
    elif hasattr(arrays, "shape"):
        yield arrays.shape[0] if len(arrays.shape) > 1 else 0
    else:
        for value in arrays:
            yield from _rows(value)


class _Strategy(Handle):
    """Base class of the strategies. Owns the handle of an `open` function; `_close` closes it."""

    _close: Callable[[int], None]
    _has_peers = True  # which compare the arrays' names and shapes
    _instead = "make one of the group of the other process"

    def __init__(self, handle: int) -> None:
        self._handle = handle
        remember(handle, self)

    def _call(self, function: Callable[..., Any], values: Any, *more: Any, timeout: Optional[float] = None) -> Any:
        named = list(_named(values))
        arrays: List[np.ndarray] = [array for _, array in named]
        options = {"timeout_ms": milliseconds(timeout)}
        if self._has_peers:
            options["label"] = label_of(tuple(name for name, _ in named), tuple(array.shape for array in arrays))
        try:
            return function(self._handle, arrays, *more, options)
        except Error:
            raise
        except BaseException:  # a signal's handler raised: the call must not continue in memory that may soon be freed
            capi.mv_strategy_cancel(self._handle)
            raise

    @property
    def meter(self) -> Meter:
        """The traffic so far."""
        return Meter(*capi.mv_strategy_meter(self._handle))

    def close(self) -> None:
        """Closes the strategy. Its group, or table, stays open."""
        if not self.is_closed:
            self.is_closed = True
            type(self)._close(self._handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        with unless_forked():
            self.close()

    def __repr__(self) -> str:
        return f"<polyverso.{type(self).__name__}{' closed' if self.is_closed else ''}>"


def _group(group: Any) -> int:
    if not isinstance(group, (int, Group)):
        raise TypeError(f"a polyverso.Group is needed, not {type(group).__name__}: Group(node) is one of all workers")
    return group if isinstance(group, int) else group.handle


class AllReduceSGD(_Strategy):
    """Data-parallel SGD: one mini-batch divided among the ranks of `group`."""

    _close = staticmethod(capi.mv_sgd_close)

    def __init__(self, group: Any) -> None:
        super().__init__(capi.mv_sgd_open(_group(group)))

    def sum_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """gradients = their sum over all ranks. Returns the number of contributors."""
        return self._call(capi.mv_sgd_sum_gradients, gradients, timeout=timeout)

    def sum_and_normalize_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """sum_gradients(), divided by the number of contributors of this step."""
        return self._call(capi.mv_sgd_sum_and_normalize, gradients, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still make steps. Then all ranks get the parameters of the rank with the most steps (of
        several, the lowest)."""
        self._call(capi.mv_sgd_synchronize, parameters, timeout=timeout)


class AllReduceEA(_Strategy):
    """Elastic averaging: every `tau` steps the parameters move towards a centre, by `alpha` times their difference."""

    _close = staticmethod(capi.mv_ea_close)

    def __init__(self, group: Any, tau: int, alpha: float) -> None:
        super().__init__(capi.mv_ea_open(_group(group), tau, alpha))

    def average_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Call after each step."""
        self._call(capi.mv_ea_average, parameters, timeout=timeout)

    def synchronize_center(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still make steps. Then all have the same centre; parameters stay each rank's own."""
        self._call(capi.mv_ea_synchronize_center, parameters, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still make steps. Then all ranks get the lowest rank's parameters, which also become the
        centre."""
        self._call(capi.mv_ea_synchronize_parameters, parameters, timeout=timeout)

    def read_center(self, parameters: Any) -> None:
        """parameters = the centre."""
        capi.mv_ea_read_center(self._handle, list(_leaves(parameters)))


class AsyncEA(_Strategy):
    """Elastic averaging with a table as centre, to which each worker synchronizes independently."""

    _close = staticmethod(capi.mv_async_ea_close)
    _has_peers = False  # only a table

    def __init__(self, table: Any, tau: int, alpha: float) -> None:
        super().__init__(capi.mv_async_ea_open(table if isinstance(table, int) else table.handle, tau, alpha))

    def average_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Call after each step."""
        self._call(capi.mv_async_ea_average, parameters, timeout=timeout)

    def read_center(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """parameters = the centre."""
        self._call(capi.mv_async_ea_read, parameters, timeout=timeout)


class LocalSGD(_Strategy):
    """Ranks train by themselves and exchange parameters every `inner_steps` steps. With an outer rate and momentum this
    is DiLoCo; with fragments and an overlap, Streaming DiLoCo. `settings` as for mv_local_sgd_open()."""

    _close = staticmethod(capi.mv_local_sgd_close)

    def __init__(self, group: Any, inner_steps: int, **settings: float) -> None:
        named: Dict[str, Any] = {"inner_steps": inner_steps, **settings}
        text = " ".join(f"{key}={value!r}" for key, value in named.items())
        super().__init__(capi.mv_local_sgd_open(_group(group), text))

    def step(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Call after each inner step."""
        self._call(capi.mv_local_sgd_step, parameters, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still make steps. Then all ranks have the same bits."""
        self._call(capi.mv_local_sgd_synchronize, parameters, timeout=timeout)


def DiLoCo(group: Any, inner_steps: int, outer_rate: float = 0.7, outer_momentum: float = 0.9, **settings: float) -> LocalSGD:
    """LocalSGD with DiLoCo's outer step."""
    try:
        return LocalSGD(group, inner_steps, outer_rate=outer_rate, outer_momentum=outer_momentum, **settings)
    except Error as error:
        error.rename("distlearn.LocalSGD", "distlearn.DiLoCo")
        raise


class CompressedAllReduce(_Strategy):
    """Averages of gradients that are transferred compressed: `how` is "int8", "topk ratio=0.01", "powersgd rank=4"."""

    _close = staticmethod(capi.mv_compressed_close)

    def __init__(self, group: Any, how: str) -> None:
        super().__init__(capi.mv_compressed_open(_group(group), how))

    def average_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """gradients = approximately their average over the contributors. Returns the number of contributors."""
        arrays = _nested(gradients)
        return self._call(capi.mv_compressed_average, arrays, self._shape(arrays), timeout=timeout)

    def finish(self, gradients: Any, timeout: Optional[float] = None) -> None:
        """Takes part in the averages of ranks that still make steps, without a contribution. The gradients' values have
        no effect."""
        arrays = _nested(gradients)
        self._call(capi.mv_compressed_finish, arrays, self._shape(arrays), timeout=timeout)

    @staticmethod
    def _shape(gradients: Any) -> np.ndarray:
        return np.fromiter(_rows(gradients), dtype=np.int64)
