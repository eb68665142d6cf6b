"""Multiverso's tables: float32, shared by all workers."""

import functools
import operator
from typing import Any, Callable, Optional, Tuple

import numpy as np

from polyverso import capi
from polyverso.arrays import as_rows, as_values, check_shape
from polyverso.errors import ArgumentError, Error
from polyverso.handles import Handle, remember

from .api import in_our_words

_F32 = np.dtype(np.float32)


def _add_flags(sync: bool) -> Optional[int]:
    return None if sync else capi.MV_FORGET


def _as_size(owner: "TableHandler", name: str, size: Any) -> int:
    """`size` as an int. operator.index() alone would take True for 1."""
    try:
        if not isinstance(size, (bool, np.bool_)):
            return operator.index(size)
    except TypeError:
        pass
    raise ArgumentError(capi.MV_EINVAL, f"multiverso.{type(owner).__name__}(): {name} must be an int, not {size!r}")


def _takes_sync(get: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Multiverso's guide calls get(sync=True). Every get waits for its values, so that `sync` changes nothing."""

    @functools.wraps(get)
    def get_with_sync(self: "TableHandler", *row_ids: Any, sync: bool = True, **named: Any) -> np.ndarray:
        return get(self, *row_ids, **named)

    return get_with_sync


class TableHandler(Handle):
    """Base class of the two tables."""

    _instead = "pass the values of get()"

    @in_our_words
    def __init__(self, spec: dict, shape: Tuple[int, ...], init_value: Any, init: str) -> None:
        if init not in ("master", "average"):
            raise ArgumentError(capi.MV_EINVAL, f'init is "{init}": "master" or "average" is expected')
        values = None if init_value is None else as_values(init_value, _F32)
        if values is not None:
            check_shape("init_value", values.shape, shape)
        averages = init == "average" and values is not None
        try:
            self._table = capi.mv_table_create(0, spec, np.zeros_like(values) if averages else values)
        except Error as failure:
            failure.rename("node.array()", f"multiverso.{type(self).__name__}()")
            raise
        if averages:
            capi.mv_table_add(self._table, values / np.float32(capi.mv_num_workers(0)))
            capi.mv_barrier(0)
        self._shape = shape
        remember(self._table, self)

    def get(self) -> np.ndarray:
        """The table's values, a fresh array."""
        raise NotImplementedError

    def add(self, data: Any, sync: bool = False) -> None:
        """Adds `data` to the table; with `sync`, returns when the servers have applied it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<multiverso.{type(self).__name__} {' x '.join(map(str, self._shape))}>"


class ArrayTableHandler(TableHandler):
    """A one-dimensional float32 table shared by all workers."""

    def __init__(self, size: int, init_value: Any = None, *, init: str = "master") -> None:
        """Creates the table; every worker makes the same call.

        size: the number of values.
        init_value: (size,) initial values, anything that numpy converts to float32; None = zeros, on all workers. The
        table has them when this returns.
        init: "master": the master worker's values are used. "average": the mean of all workers' values is used; every
        worker must pass values, and makes one add.
        Raises polyverso.ArgumentError if init_value has another size, StateError if the workers' calls differ.
        """
        size = _as_size(self, "size", size)
        super().__init__({"kind": capi.MV_ARRAY, "rows": size}, (size,), init_value, init)
        self._size = size

    @_takes_sync
    def get(self) -> np.ndarray:
        """The table's values: a fresh float32 array of shape (size,). `sync` is accepted, and has no effect."""
        values = np.empty(self._size, _F32)
        capi.mv_table_get(self._table, values)
        return values

    def add(self, data: Any, sync: bool = False) -> None:
        """Adds `data`, (size,) values, anything that numpy converts to float32.

        sync: wait until the servers have applied it; otherwise return at once.
        Raises polyverso.ArgumentError if the size is wrong.
        """
        capi.mv_table_add(self._table, as_values(data, _F32), _add_flags(sync))


class MatrixTableHandler(TableHandler):
    """A two-dimensional float32 table shared by all workers."""

    def __init__(self, num_row: int, num_col: int, init_value: Any = None, *, init: str = "master") -> None:
        """Creates the table; every worker makes the same call.

        num_row, num_col: the shape.
        init_value: num_row * num_col initial values, two- or one-dimensional, row by row; None = zeros, on all workers.
        The table has them when this returns.
        init: "master" or "average", as for ArrayTableHandler.
        Raises polyverso.ArgumentError if init_value has another size, StateError if the workers' calls differ.
        """
        num_row, num_col = _as_size(self, "num_row", num_row), _as_size(self, "num_col", num_col)
        super().__init__({"kind": capi.MV_MATRIX, "rows": num_row, "cols": num_col}, (num_row, num_col), init_value, init)
        self._num_row = num_row
        self._num_col = num_col

    @_takes_sync
    def get(self, row_ids: Any = None) -> np.ndarray:
        """The table's values: a fresh float32 array of shape (num_row, num_col), or (len(row_ids), num_col).

        row_ids: ids in any order, repeats allowed; None = all rows. `sync` is accepted, and has no effect.
        Raises polyverso.ArgumentError if an id is outside the table.
        """
        if row_ids is None:
            values = np.empty((self._num_row, self._num_col), _F32)
            capi.mv_table_get(self._table, values)
        else:
            ids = as_rows(row_ids)
            values = np.empty((ids.size, self._num_col), _F32)
            capi.mv_table_get_rows(self._table, ids, values)
        return values

    def add(self, data: Any = None, row_ids: Any = None, sync: bool = False) -> None:
        """Adds `data`, num_row * num_col values, or len(row_ids) * num_col; anything that numpy converts to float32.

        Data with two dimensions must have the shape that get() returns.
        row_ids: ids in any order, the values of repeated ids are summed; None = all rows.
        sync: wait until the servers have applied it; otherwise return at once.
        Raises polyverso.ArgumentError if the size is wrong or an id is outside the table.
        """
        values = as_values(data, _F32)
        if row_ids is None:
            check_shape("data", values.shape, (self._num_row, self._num_col))
            capi.mv_table_add(self._table, values, _add_flags(sync))
        else:
            ids = as_rows(row_ids)
            check_shape("data", values.shape, (ids.size, self._num_col))
            capi.mv_table_add_rows(self._table, ids, values, _add_flags(sync))
