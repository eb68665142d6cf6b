"""A table shared by all workers."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from . import capi
from .arrays import DTYPES, as_rows, as_values, milliseconds
from .request import Request


def call_options(flags: int, timeout: Optional[float]) -> Union[int, Dict[str, int], None]:
    """mv_call_options in its shortest form."""
    if timeout is None:
        return flags or None
    return {"flags": flags, "timeout_ms": milliseconds(timeout)}


class Table:
    """An array or matrix of float32 or float64; from Node.array(), Node.matrix() or Node.open().

    `rows` in every method: None for the whole table, or row ids (of an array: element ids) in any order. Then the
    values have the shape (len(rows), cols), of an array (len(rows),). Values go in as anything numpy converts; an array
    of the table's dtype that is C-contiguous goes in without a copy.
    Wrong sizes, dtypes and row ids are an ArgumentError, and nothing is sent.
    """

    def __init__(self, node: int, handle: int) -> None:
        self._node = node
        self._handle = handle
        info = capi.mv_table_describe(handle)
        self._matrix = info["kind"] == capi.MV_MATRIX
        self._rows: int = info["rows"]
        self._cols: int = info["cols"]
        self._dtype = DTYPES[info["dtype"]]
        self._name: str = info["name"]

    @property
    def handle(self) -> int:
        """The mv_table, for functions of polyverso.capi."""
        return self._handle

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        return (self._rows, self._cols) if self._matrix else (self._rows,)

    def info(self) -> Dict[str, Any]:
        """The fields of mv_table_info: name, kind, dtype, rows, cols, flags, servers, bytes, adds, gets."""
        return capi.mv_table_describe(self._handle)

    # ------------------------------------------------------------------ reading

    def get(self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None) -> np.ndarray:
        """The table's values, with all earlier adds of this worker; in sync mode the same bits on all workers.

        out: where to put them, an array of the table's dtype, C-contiguous and writable; None = a fresh one.
        timeout: seconds; None = the node's default.
        """
        return self._read(capi.mv_table_get, capi.mv_table_get_rows, rows, out, call_options(0, timeout))[0]

    def peek(self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None) -> np.ndarray:
        """get() past sync mode's rounds: what the servers hold now. One worker alone may call it."""
        return self._read(capi.mv_table_peek, capi.mv_table_peek_rows, rows, out, call_options(0, timeout))[0]

    def get_async(self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None) -> Request:
        """get() to be awaited or waited for; `out` belongs to the call until then."""
        options = call_options(capi.MV_ASYNC, timeout)
        out, handle = self._read(capi.mv_table_get, capi.mv_table_get_rows, rows, out, options)
        return Request(self._node, handle, out)

    def _read(self, whole: Any, some: Any, rows: Any, out: Any, options: Any) -> Tuple[np.ndarray, Any]:
        if rows is None:
            if out is None:
                out = np.empty(self.shape, self._dtype)
            return out, whole(self._handle, out, options)
        ids = as_rows(rows)
        if out is None:
            out = np.empty((ids.size, self._cols) if self._matrix else ids.size, self._dtype)
        return out, some(self._handle, ids, out, options)

    # ------------------------------------------------------------------ writing

    def add(self, data: Any, rows: Any = None, wait: bool = True, timeout: Optional[float] = None) -> None:
        """Adds `data` element by element; repeated rows add up.

        wait: return when every server has applied it; False = at once, its error, if any, comes from the next call on
        the table, barrier() or shutdown().
        """
        options = call_options(0 if wait else capi.MV_FORGET, timeout)
        self._write(capi.mv_table_add, capi.mv_table_add_rows, data, rows, options)

    def add_async(self, data: Any, rows: Any = None, timeout: Optional[float] = None) -> Request:
        """add() to be awaited or waited for; `data` is copied."""
        options = call_options(capi.MV_ASYNC, timeout)
        return Request(self._node, self._write(capi.mv_table_add, capi.mv_table_add_rows, data, rows, options))

    def set(self, data: Any, rows: Any = None, timeout: Optional[float] = None) -> None:
        """Assigns values, past updater and sync mode's rounds: for loading a model, between two barriers."""
        self._write(capi.mv_table_set, capi.mv_table_set_rows, data, rows, call_options(0, timeout))

    def _write(self, whole: Any, some: Any, data: Any, rows: Any, options: Any) -> Any:
        values = as_values(data, self._dtype)
        if rows is None:
            return whole(self._handle, values, options)
        return some(self._handle, as_rows(rows), values, options)

    # ------------------------------------------------------------------ ending

    def close(self) -> None:
        """Gives this handle back; the table lives on."""
        capi.mv_table_close(self._handle)

    def destroy(self) -> None:
        """Frees the table on all servers. One worker calls it, when nobody uses the table any more."""
        capi.mv_table_destroy(self._handle)

    def __repr__(self) -> str:
        return f"<polyverso.Table {self._name!r} {self.shape} {self._dtype}>"
