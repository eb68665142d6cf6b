"""table[rows]: some rows of a table, as numpy users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple

from ._numpy import np
from .arrays import as_rows, on_device
from .foreign import readable

if TYPE_CHECKING:
    from .table import Table


class TableView(np.lib.mixins.NDArrayOperatorsMixin):
    """Rows of a table, as they are on the servers: each use as an array is a Table.get() of these rows.

    `view += data` and `view -= data` are a Table.add(), through the table's updater. They read nothing, so concurrent
    adds of several workers all count. numpy.array(view) is a copy that does not change any more.
    """

    __slots__ = ("_table", "_key", "_rows", "_shape", "_added")

    def __init__(self, table: "Table", key: Any) -> None:
        self._table = table
        self._key = key
        self._rows, self._shape = _selected(table, key)
        self._added = False

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the values."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """The table's dtype."""
        return self._table.dtype

    def get(self) -> np.ndarray:
        """The values, in a fresh array."""
        return self._table.get(self._rows).reshape(self._shape)

    def set(self, data: Any) -> None:
        """Assigns values, which are broadcast to the shape; an array on a CUDA device must have it."""
        self._table.set(self._whole(data), self._rows)

    def _whole(self, data: Any) -> np.ndarray:
        """Data of the shape of the rows."""
        if (tensor := on_device(data)) is not None:
            return tensor
        whole = np.broadcast_to(readable(data), self._shape)
        return whole if self._rows is None else whole.reshape(self._rows.size, *self._table.row_shape)

    def __iadd__(self, data: Any) -> "TableView":
        self._table.add(self._whole(data), self._rows)
        self._added = True
        return self

    def __isub__(self, data: Any) -> "TableView":
        return self.__iadd__(np.negative(readable(data)) if (tensor := on_device(data)) is None else -tensor)

    def _refuse(self, _: Any) -> Any:
        raise TypeError("only += and -= change a table in place: others are table[rows] = table[rows] * 2 and the like")

    __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _refuse
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _refuse

    def is_added_to(self, key: Any) -> bool:
        """Whether table[key] = self is the end of table[key] += data, which is complete already."""
        added, self._added = self._added, False
        return added and (key is self._key or (isinstance(key, slice) and key == self._key))

    # ------------------------------------------------------------------ as an array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return np.asarray(self.get(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **named: Any) -> Any:
        if any(isinstance(one, TableView) for one in out):
            self._refuse(None)
        if out:
            named["out"] = out
        return getattr(ufunc, method)(*(one.get() if isinstance(one, TableView) else one for one in inputs), **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.get(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.get()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("assign to the table's rows, table[rows] = values")

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("one element has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    __hash__ = None  # type: ignore[assignment]


def _selected(table: "Table", key: Any) -> Tuple[Optional[np.ndarray], Tuple[int, ...]]:
    """The row ids of table[key], None for all rows; and the shape of the values."""
    if key is Ellipsis:
        key = slice(None)
    if isinstance(key, slice):
        if table.is_keyed:
            raise TypeError("a key-value table has no slices: name the keys, table[[3, 5]]")
        if key == slice(None):
            return None, table.shape
        ids = np.arange(*key.indices(len(table)), dtype=np.int64)
        return ids, (ids.size, *table.row_shape)
    if isinstance(key, tuple):
        raise TypeError("a table is indexed by rows: table[rows][..., columns] reads some columns")
    given = np.asarray(readable(key))
    ids = as_rows(given)
    if not table.is_keyed:
        ids = np.where(ids < 0, ids + len(table), ids)
    return ids, (*given.shape, *table.row_shape)
