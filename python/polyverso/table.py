"""Tables: numbers shared by all workers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple, Union

from . import _numpy, capi, dtypes, handles
from ._numpy import np
from .arrays import CODES, as_bits, as_rows, as_table_values, check_shape, empty, milliseconds, on_device, rows_or_keys
from .enums import described
from .errors import Error
from .optimizer import Optimizer, updater_text
from .request import Request

if TYPE_CHECKING:
    from .table_view import TableView


def call_options(flags: int, timeout: Optional[float]) -> Union[int, Dict[str, int], None]:
    """mv_call_options in its shortest form."""
    if timeout is None:
        return flags or None
    return {"flags": flags, "timeout_ms": milliseconds(timeout)}


class Table(handles.Handle):
    """An array, a matrix, a sparse matrix or a key-value table; from Node.array(), matrix(), sparse(), keyvalue(),
    open().

    `rows` in every method: None for the whole table, or row ids (for an array: element ids) in any order, repeats
    allowed. For a key-value table they are any 64-bit integers, can be passed as `keys` too, and are always required.
    The values then have the shape (len(rows), cols); for arrays, and key-value tables with one column, (len(rows),).
    Values are anything that numpy converts; a C-contiguous array of the table's dtype is used without a copy. Floats
    are not truncated to integers. Values and `out` may also be arrays in the memory of a CUDA device: a Tensor, or an
    array of PyTorch, CuPy or JAX. bfloat16 is ml_dtypes' if that package is installed, otherwise its bits as uint16,
    which are accepted in both cases.
    Without numpy, values and row ids are lists of numbers or buffers such as array.array, results are memoryviews, and
    table[rows], scan() and what returns a dtype raise ImportError.
    Wrong sizes, dtypes and row ids are an ArgumentError, and nothing is sent.

    table[rows] reads rows, table[rows] = values sets them, and table[rows] += data is add(data, rows): it reads and
    sets nothing, so the adds of several workers all count. The end of `with node.array(9) as table:` closes it.
    """

    def __init__(self, node: int, handle: int) -> None:
        self._node = node
        self._handle = handle
        info = capi.mv_table_describe(handle)
        self._kind: int = info["kind"]
        self._rows: int = info["rows"]
        self._cols: int = info["cols"]
        self._code: int = info["dtype"]
        self._name: str = info["name"]
        flat = self._kind == capi.MV_ARRAY or (self._kind == capi.MV_KEYVALUE and self._cols == 1)
        self._row: Tuple[int, ...] = () if flat else (self._cols,)
        self._shape = self._row if self._kind == capi.MV_KEYVALUE else (self._rows, *self._row)
        handles.remember(handle, self)
        _open_tables.setdefault(node, {})[handle] = self._name

    @property
    def handle(self) -> int:
        """The mv_table, for functions of polyverso.capi."""
        return self._handle

    @property
    def name(self) -> str:
        """The name in the cluster, by which Node.open() finds the table."""
        return self._name

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of its values."""
        return dtypes.DTYPES[self._code]

    @property
    def shape(self) -> Tuple[int, ...]:
        """(rows,) or (rows, cols). For a key-value table, the shape of one key's values: () or (cols,)."""
        return self._shape

    @property
    def row_shape(self) -> Tuple[int, ...]:
        """The shape of one row: (cols,), or () for arrays and for key-value tables with one column."""
        return self._row

    @property
    def is_keyed(self) -> bool:
        """Whether rows are found by keys: whether this is a key-value table."""
        return self._kind == capi.MV_KEYVALUE

    @property
    def label(self) -> str:
        """What messages call it: table "weights"."""
        return f'table "{self._name}"'

    def info(self) -> Dict[str, Any]:
        """The fields of mv_table_info: name, kind (a Kind), dtype (a DType), rows, cols, flags (TableFlag), servers,
        bytes, adds, gets, updater, staleness, clock, stored, memory_bytes, state_bytes, updates. Queries the servers."""
        return described(capi.mv_table_describe(self._handle))

    def __len__(self) -> int:
        """The number of rows. For a key-value table, the number of stored keys, which queries the servers."""
        return self.info()["stored"] if self._kind == capi.MV_KEYVALUE else self._rows

    def __bool__(self) -> bool:
        return True

    # ------------------------------------------------------------------ as an array

    def __getitem__(self, rows: Any) -> TableView:
        """The values of a row, of a list of rows or of a slice, as a view: see TableView. `table[rows] += data` is
        add(data, rows)."""
        from .table_view import TableView  # which needs numpy

        return TableView(self, rows)

    def __setitem__(self, rows: Any, values: Any) -> None:
        """Assigns values, like set(); they are broadcast to the shape."""
        from .table_view import TableView

        if not (isinstance(values, TableView) and values.is_added_to(rows)):
            TableView(self, rows).set(values)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return np.asarray(self.get(), dtype)

    def __iter__(self) -> Iterator[Any]:
        """The rows of one get()."""
        return iter(self.get())

    # ------------------------------------------------------------------ reading

    def get(
        self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> np.ndarray:
        """The table's values, including all earlier adds of this worker. In sync mode they have the same bits on all
        workers. With a staleness they lag behind any worker by at most that many clocks. Rows and keys that are not
        stored have their initial value.

        out: receives the values: an array of the table's dtype, C-contiguous and writable; None = a fresh one.
        timeout: seconds; None = the node's default.
        """
        ids = rows_or_keys(rows, keys)
        return self._read(capi.mv_table_get, capi.mv_table_get_rows, ids, out, call_options(0, timeout))[0]

    def peek(
        self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> np.ndarray:
        """get() without waiting for sync mode's rounds or staleness: the values on the servers at this moment. It
        counts as no get, so one worker alone may call it."""
        ids = rows_or_keys(rows, keys)
        return self._read(capi.mv_table_peek, capi.mv_table_peek_rows, ids, out, call_options(0, timeout))[0]

    def peek_async(
        self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> Request:
        """peek() without blocking: see get_async()."""
        options = call_options(capi.MV_ASYNC, timeout)
        ids = rows_or_keys(rows, keys)
        out, handle = self._read(capi.mv_table_peek, capi.mv_table_peek_rows, ids, out, options)
        return Request(self._node, handle, out)

    def get_async(
        self, rows: Any = None, out: Optional[np.ndarray] = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> Request:
        """get() without blocking: returns a request. `out` belongs to the call until the request has finished."""
        options = call_options(capi.MV_ASYNC, timeout)
        ids = rows_or_keys(rows, keys)
        out, handle = self._read(capi.mv_table_get, capi.mv_table_get_rows, ids, out, options)
        return Request(self._node, handle, out)

    def _read(self, whole: Any, some: Any, rows: Any, out: Any, options: Any) -> Tuple[np.ndarray, Any]:
        ids = None if rows is None else as_rows(rows)
        if out is None:
            out, memory = empty(self._shape if ids is None else (math.prod(ids.shape), *self._row), self._code)
        else:
            memory = None if type(out) is _numpy.ndarray else on_device(out)
            if memory is None:
                memory = as_bits(out)
            self._check_shape(getattr(memory, "shape", ()), ids)
        if ids is None:
            return out, whole(self._handle, memory, options)
        return out, some(self._handle, ids, memory, options)

    def scan(self, chunk: int = 16384) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Iterates over the stored rows of a sparse or key-value table: (ids, values) of at most `chunk` rows, as fresh
        arrays of int64 and the table's dtype, with the shapes (n,) and (n, cols) or (n,). A row that is stored during
        the whole scan is returned exactly once; one that is added or removed meanwhile, at most once. The order has no
        meaning.
        """
        ids = np.empty(chunk, np.int64)
        values, memory = empty((chunk, *self._row), self._code)
        cursor = 0
        while cursor != -1:
            cursor, found = capi.mv_table_scan(self._handle, cursor, ids, memory)
            if found:
                yield ids[:found].copy(), values[:found].copy()

    # ------------------------------------------------------------------ writing

    def add(
        self, data: Any, rows: Any = None, wait: bool = True, timeout: Optional[float] = None, *, keys: Any = None
    ) -> None:
        """Adds `data` element by element, through the table's updater. The values of repeated rows are summed first.

        wait: return when every server has applied it. False = return at once; an error is raised by the next call on
        the table, barrier() or shutdown().
        """
        options = call_options(0 if wait else capi.MV_FORGET, timeout)
        self._write(capi.mv_table_add, capi.mv_table_add_rows, data, rows_or_keys(rows, keys), options)

    def add_async(
        self, data: Any, rows: Any = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> Request:
        """add() without blocking: returns a request. `data` is copied."""
        options = call_options(capi.MV_ASYNC, timeout)
        ids = rows_or_keys(rows, keys)
        return Request(self._node, self._write(capi.mv_table_add, capi.mv_table_add_rows, data, ids, options))

    def set(self, data: Any, rows: Any = None, timeout: Optional[float] = None, *, keys: Any = None) -> None:
        """Assigns values, without the updater and sync mode's rounds: for loading a model, between two barriers. Of
        repeated rows the last one wins."""
        options = call_options(0, timeout)
        self._write(capi.mv_table_set, capi.mv_table_set_rows, data, rows_or_keys(rows, keys), options)

    def set_async(
        self, data: Any, rows: Any = None, timeout: Optional[float] = None, *, keys: Any = None
    ) -> Request:
        """set() without blocking: returns a request. `data` is copied."""
        options = call_options(capi.MV_ASYNC, timeout)
        ids = rows_or_keys(rows, keys)
        return Request(self._node, self._write(capi.mv_table_set, capi.mv_table_set_rows, data, ids, options))

    def _write(self, whole: Any, some: Any, data: Any, rows: Any, options: Any) -> Any:
        values = as_table_values(data, self._code)
        ids = None if rows is None else as_rows(rows)
        shape = values.shape
        if len(shape) > 1:
            self._check_shape(shape, ids)
        if ids is None:
            return whole(self._handle, values, options)
        return some(self._handle, ids, values, options)

    def _check_shape(self, shape: Tuple[int, ...], ids: Any) -> None:
        """ArgumentError if values of this shape would be reordered on their way to the table or from it."""
        if ids is not None:
            if shape == (*ids.shape, *self._row):  # the most frequent, before a text is made
                return
            check_shape(f'table "{self._name}"', shape, (math.prod(ids.shape), *self._row), (*ids.shape, *self._row))
        elif self._kind != capi.MV_KEYVALUE:
            check_shape(f'table "{self._name}"', shape, self._shape)

    def erase(
        self, rows: Any = None, wait: bool = True, timeout: Optional[float] = None, *, keys: Any = None
    ) -> None:
        """Removes rows of a sparse table, or keys of a key-value table, with their updater state: they read as their
        initial value again. Ids that are not stored are skipped. `wait` as for add()."""
        self._erase(rows_or_keys(rows, keys), call_options(0 if wait else capi.MV_FORGET, timeout))

    def erase_async(self, rows: Any = None, timeout: Optional[float] = None, *, keys: Any = None) -> Request:
        """erase() without blocking: returns a request."""
        return Request(self._node, self._erase(rows_or_keys(rows, keys), call_options(capi.MV_ASYNC, timeout)))

    def _erase(self, rows: Any, options: Any) -> Any:
        return capi.mv_table_erase_rows(self._handle, as_rows([] if rows is None else rows), options)

    # ------------------------------------------------------------------ updater and clock

    def set_updater(self, updater: Union[str, Optimizer], timeout: Optional[float] = None) -> None:
        """Sets the updater, by which the servers apply adds from now on, or its parameters: "adagrad rate=0.05".
        mv_table_set_updater() in polyverso.h has the list. One worker calls it.

        Raises ArgumentError for an unknown updater or parameter, and lists the known ones.
        """
        capi.mv_table_set_updater(self._handle, updater_text(updater), call_options(0, timeout))

    def set_updater_async(self, updater: Union[str, Optimizer], timeout: Optional[float] = None) -> Request:
        """set_updater() without blocking: returns a request."""
        handle = capi.mv_table_set_updater(self._handle, updater_text(updater), call_options(capi.MV_ASYNC, timeout))
        return Request(self._node, handle)

    def clock(self) -> None:
        """Ends one of this worker's iterations on a table with a staleness. Never waits."""
        capi.mv_table_clock(self._handle)

    # ------------------------------------------------------------------ closing

    def _copied_how(self) -> str:
        return f"pass the values of get(), or open the table by its name there: node.open({self._name!r})"

    def close(self) -> None:
        """Closes this handle; the table remains. A second call does nothing."""
        if not self.is_closed:
            capi.mv_table_close(self._handle)
            self._forget()

    def destroy(self) -> None:
        """Frees the table on all servers. One worker calls it, when no worker uses the table any more."""
        capi.mv_table_destroy(self._handle)
        self._forget()

    def _forget(self) -> None:
        self.is_closed = True
        _open_tables.get(self._node, {}).pop(self._handle, None)

    def _is_stale(self) -> bool:
        try:
            self._read(capi.mv_table_peek, capi.mv_table_peek_rows, [], None, None)  # no rows: asks nobody
        except Error:
            return True
        return False

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *_: object) -> None:
        if not (self.is_closed or self._is_stale()):
            self.close()

    def __repr__(self) -> str:
        end = ", closed" if self.is_closed else ", after shutdown" if self._is_stale() else ""
        lengths = " x ".join(map(str, self._shape)) if self._shape else "1"
        keys = "keys x " if self.is_keyed else ""
        return f'<polyverso.Table "{self._name}", {keys}{lengths} {_DTYPE_NAMES[self._code]}{end}>'


# {node: {handle: name}}: the tables that this process has created or opened, and not closed.
_open_tables: Dict[int, Dict[int, str]] = {}
_DTYPE_NAMES = {code: name for name, code in CODES.items()}


def open_tables(node: int) -> int:
    """How many tables of a node are open in this process."""
    return len(set(_open_tables.get(node, {}).values()))


def forget_tables(node: int) -> None:
    """For a node that has ended: its tables are closed."""
    _open_tables.pop(node, None)
