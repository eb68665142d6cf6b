"""Training spread over the ranks of a group, beside any training loop: torch-distlearn's AllReduceSGD and AllReduceEA, and more.

    from polyverso import distlearn

    sgd = distlearn.AllReduceSGD(group)
    sgd.synchronize_parameters(params)          # all ranks begin with the same values
    for batch in batches:                       # ranks may have different numbers of them
        grads = gradients(params, batch)
        sgd.sum_and_normalize_gradients(grads)
        step(params, grads)
    sgd.synchronize_parameters(params)          # waits for the others, and has the same bits as they have

Arrays are numpy's, PyTorch's or polyverso.Tensors, on the CPU, C-contiguous, changed in place; or lists, tuples and dicts of those, in the order of their sorted keys: numbers
before texts.
docs/distlearn.md has a loop for each class.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

from . import capi
from .arrays import in_place, milliseconds
from .errors import ArgumentError, Error
from .tensor import Tensor


class Meter(NamedTuple):
    """What a strategy has sent, beside what an all-reduce of everything in every step would have been."""

    steps: int
    operations: int
    payload_bytes: int
    dense_bytes: int


def _sorted_keys(values: Dict[Any, Any]) -> List[Any]:
    """Numbers before texts, each in their order, as all languages walk."""
    return sorted(values, key=lambda key: (isinstance(key, str), key))


def _leaves(values: Any) -> Iterator[np.ndarray]:
    """The arrays of nested lists and dicts, the latter by sorted keys, as numpy sees their memory."""
    if isinstance(values, np.ndarray):
        yield in_place(values)
    elif isinstance(values, dict):
        for key in _sorted_keys(values):
            yield from _leaves(values[key])
    elif hasattr(values, "detach"):
        yield _torch_memory(values.detach())
    elif isinstance(values, Tensor):
        yield np.asarray(values)
    elif not isinstance(values, np.generic) and (hasattr(values, "__array_interface__") or isinstance(values, memoryview)):
        yield np.asarray(in_place(values))
    elif hasattr(values, "__iter__") and not isinstance(values, (str, bytes, np.generic)):
        for value in values:
            yield from _leaves(value)
    else:
        raise ArgumentError(
            capi.MV_EDTYPE, f"arrays that can be changed in place are needed, alone or in lists and dicts, not {type(values).__name__}"
        )


def _torch_memory(tensor: Any) -> np.ndarray:
    import torch

    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _nested(values: Any) -> Any:
    """The same, with lists in place of what can be gone through but once."""
    if isinstance(values, dict):
        return {key: _nested(value) for key, value in values.items()}
    if hasattr(values, "shape") or isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        return values
    return [_nested(value) for value in values]


def _rows(arrays: Any) -> Iterator[int]:
    """Of each array how many rows it has as a matrix: convolutions' kernels, too, one row an output."""
    if isinstance(arrays, dict):
        for key in _sorted_keys(arrays):
            yield from _rows(arrays[key])
    elif hasattr(arrays, "shape"):
        yield arrays.shape[0] if len(arrays.shape) > 1 else 0
    else:
        for value in arrays:
            yield from _rows(value)


class _Strategy:
    """A handle that an `open` function gave, and the one that closes it."""

    _close: Callable[[int], None]

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def _call(self, function: Callable[..., Any], values: Any, *more: Any, timeout: Optional[float] = None) -> Any:
        arrays: List[np.ndarray] = list(_leaves(values))
        try:
            return function(self._handle, arrays, *more, {"timeout_ms": milliseconds(timeout)})
        except Error:
            raise
        except BaseException:  # a signal's handler has raised: the call is not to go on in memory that may soon be gone
            capi.mv_strategy_cancel(self._handle)
            raise

    @property
    def meter(self) -> Meter:
        return Meter(*capi.mv_strategy_meter(self._handle))

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            type(self)._close(handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _group(group: Any) -> int:
    return group if isinstance(group, int) else group.handle


class AllReduceSGD(_Strategy):
    """One mini-batch spread over the ranks of `group`."""

    _close = staticmethod(capi.mv_sgd_close)

    def __init__(self, group: Any) -> None:
        super().__init__(capi.mv_sgd_open(_group(group)))

    def sum_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """gradients = their sum over all ranks; how many ranks contributed."""
        return self._call(capi.mv_sgd_sum_gradients, gradients, timeout=timeout)

    def sum_and_normalize_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """The same, divided by the ranks that contributed to this step."""
        return self._call(capi.mv_sgd_sum_and_normalize, gradients, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still step; then all have the parameters of the one with most steps, or the lowest rank's."""
        self._call(capi.mv_sgd_synchronize, parameters, timeout=timeout)


class AllReduceEA(_Strategy):
    """Elastic averaging: every `tau` steps the parameters move towards a centre, by `alpha` of their difference to it."""

    _close = staticmethod(capi.mv_ea_close)

    def __init__(self, group: Any, tau: int, alpha: float) -> None:
        super().__init__(capi.mv_ea_open(_group(group), tau, alpha))

    def average_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """After each step."""
        self._call(capi.mv_ea_average, parameters, timeout=timeout)

    def synchronize_center(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still step; then all have the same centre. Parameters stay each rank's own."""
        self._call(capi.mv_ea_synchronize_center, parameters, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still step; then all have the lowest rank's parameters, and those for a centre."""
        self._call(capi.mv_ea_synchronize_parameters, parameters, timeout=timeout)

    def read_center(self, parameters: Any) -> None:
        """parameters = the centre."""
        capi.mv_ea_read_center(self._handle, list(_leaves(parameters)))


class AsyncEA(_Strategy):
    """Elastic averaging against a centre in a table, which each worker meets alone."""

    _close = staticmethod(capi.mv_async_ea_close)

    def __init__(self, table: Any, tau: int, alpha: float) -> None:
        super().__init__(capi.mv_async_ea_open(table if isinstance(table, int) else table.handle, tau, alpha))

    def average_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        self._call(capi.mv_async_ea_average, parameters, timeout=timeout)

    def read_center(self, parameters: Any, timeout: Optional[float] = None) -> None:
        self._call(capi.mv_async_ea_read, parameters, timeout=timeout)


class LocalSGD(_Strategy):
    """Ranks train by themselves and meet every `inner_steps`; with an outer rate and momentum this is DiLoCo, with fragments and an
    overlap its streaming variant."""

    _close = staticmethod(capi.mv_local_sgd_close)

    def __init__(self, group: Any, inner_steps: int, **settings: float) -> None:
        named: Dict[str, Any] = {"inner_steps": inner_steps, **settings}
        text = " ".join(f"{key}={value!r}" for key, value in named.items())
        super().__init__(capi.mv_local_sgd_open(_group(group), text))

    def step(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """After each inner step."""
        self._call(capi.mv_local_sgd_step, parameters, timeout=timeout)

    def synchronize_parameters(self, parameters: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still step; then all have the same bits."""
        self._call(capi.mv_local_sgd_synchronize, parameters, timeout=timeout)


def DiLoCo(group: Any, inner_steps: int, outer_rate: float = 0.7, outer_momentum: float = 0.9, **settings: float) -> LocalSGD:
    """LocalSGD with DiLoCo's outer step."""
    return LocalSGD(group, inner_steps, outer_rate=outer_rate, outer_momentum=outer_momentum, **settings)


class CompressedAllReduce(_Strategy):
    """Averages of gradients that travel as less than they are: `how` is "int8", "topk ratio=0.01", "powersgd rank=4"."""

    _close = staticmethod(capi.mv_compressed_close)

    def __init__(self, group: Any, how: str) -> None:
        super().__init__(capi.mv_compressed_open(_group(group), how))

    def average_gradients(self, gradients: Any, timeout: Optional[float] = None) -> int:
        """gradients = about their average over the ranks that contribute; how many those are."""
        arrays = _nested(gradients)
        return self._call(capi.mv_compressed_average, arrays, self._shape(arrays), timeout=timeout)

    def finish(self, gradients: Any, timeout: Optional[float] = None) -> None:
        """Waits for ranks that still step. The gradients' values don't matter."""
        arrays = _nested(gradients)
        self._call(capi.mv_compressed_finish, arrays, self._shape(arrays), timeout=timeout)

    @staticmethod
    def _shape(gradients: Any) -> np.ndarray:
        return np.fromiter(_rows(gradients), dtype=np.int64)
