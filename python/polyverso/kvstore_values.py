"""The arguments of a store's calls as tensors."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

from . import capi, dtypes
from ._numpy import np
from ._capi import tensor_views
from .arrays import in_place
from .errors import ArgumentError
from .foreign import array_of, device_of, readable
from .tensor import Tensor

# The keys of a store are all int or all str.
Key = Union[int, str]
# polyverso.Tensor, numpy.ndarray, or anything with __dlpack__, such as a PyTorch tensor in this machine's memory.
Value = Any
# For one key a value, or a list with one value for each device; for a list of keys a list of these.
Values = Union[Value, Sequence[Value], Sequence[Sequence[Value]]]
# (copy that a pull fills, array that gets its values)
Copies = List[Tuple[np.ndarray, np.ndarray]]


def _tensor(value: Value, copies: Optional[Copies]) -> Tensor:
    """A tensor over the value's own memory. An array that is not C-contiguous or not writable is copied; `copies`, if
    given, receives (copy, array), so that the caller can copy results back."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray):
        if device_of(value) is not None:  # the store copies its values through the host
            return Tensor.view(value)
        if hasattr(value, "detach"):  # PyTorch: the values without their history
            return Tensor.from_dlpack(value.detach())
        given, value = value, array_of(value)
        if value is None:
            numbers = isinstance(given, (int, float))
            raise TypeError(
                "a value must be a polyverso.Tensor, a numpy array or an object with __dlpack__ or a buffer, not "
                f"{type(given).__name__}{': make an array of the list, as by numpy.array(); a list has one array for each device' if numbers else ''}"
            )
        if copies is not None and not value.flags.writeable:
            raise ArgumentError(capi.MV_EINVAL, f"this {type(given).__name__} is read-only: pull into a numpy array")
        if value.dtype == dtypes.BITS and hasattr(given, "__dlpack__"):  # bfloat16
            return Tensor.from_dlpack(given)
    fits = value.flags.c_contiguous and value.flags.writeable
    array = value if fits else np.array(value, order="C")
    if array is not value and copies is not None:
        copies.append((array, value))
    return Tensor.view(in_place(array))


def tensors_of(keys: Any, values: Values, copies: Optional[Copies] = None) -> Sequence[Union[Tensor, List[Tensor]]]:
    """The tensors of a call: for each key one, or a list. With a list of keys, `values` has one element for each key.

    copies: None = the values are only read.
    """
    if values is None:
        missing = "no value given" if copies is None else "no out given: pass an array for the value, out=numpy.empty(shape)"
        raise ArgumentError(capi.MV_EINVAL, missing)
    if not isinstance(keys, (list, tuple)):
        values = [values]
    elif not isinstance(values, (list, tuple)) or len(values) != len(keys):
        some = f"{len(values)} values" if isinstance(values, (list, tuple)) else "one value"
        raise ArgumentError(capi.MV_ESHAPE, f"{some} for {len(keys)} keys: a list with one element per key is needed")
    kinds = set(map(type, values))
    if kinds == {Tensor}:  # returned unchanged: thousands of keys need no loop
        return values
    if kinds == {np.ndarray}:
        views = tensor_views(values, Tensor)
        if views is not None:
            return views
    return [
        [_tensor(value, copies) for value in (some if isinstance(some, (list, tuple)) else [some])] for some in values
    ]


def row_ids_of(keys: Any, row_ids: Any) -> List[List[Tensor]]:
    """The row ids of a call: for each key a list with one tensor for all of its outputs, or one for each output."""
    if row_ids is None:
        raise ArgumentError(capi.MV_EINVAL, "no row_ids given")
    if not isinstance(keys, (list, tuple)):
        row_ids = [row_ids]
    elif not isinstance(row_ids, (list, tuple)) or len(row_ids) != len(keys):
        row_ids = [row_ids] * len(keys)
    return [[_ids(ids) for ids in (some if _is_list_of_ids(some) else [some])] for some in row_ids]


def _is_list_of_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(hasattr(item, "__len__") for item in value)


def _ids(ids: Any) -> Tensor:
    """Row ids as a tensor, from numbers of any dtype. The library refuses those that are not whole."""
    if isinstance(ids, Tensor):
        return ids
    array = np.asarray(ids if not hasattr(ids, "__dlpack__") or isinstance(ids, np.ndarray) else Tensor.from_dlpack(ids).numpy())
    if array.size and array.dtype.kind not in "biuf":
        raise ArgumentError(capi.MV_EDTYPE, f"row ids must be integers, not {array.dtype}")
    return Tensor.copy_of(array.astype(np.float64 if array.size and array.dtype.kind == "f" else np.int64))


def keep_returned(key: Key, returned: Any, stored: Tensor) -> None:
    """Stores what an updater returned for a key. None: it has changed `stored` itself."""
    if returned is None or returned is stored:
        return
    values = returned if isinstance(returned, Tensor) else readable(returned)
    shape = getattr(values, "shape", None)
    if shape is None or tuple(shape) != stored.shape:
        what = type(returned).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
        needed = f"return the new values, of shape {stored.shape}, or change `stored` and return None"
        raise TypeError(f"key {key!r}: the updater returned a {what}: {needed}")
    stored.assign(values)
