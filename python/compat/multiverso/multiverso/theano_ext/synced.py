"""An array that each worker changes freely, and whose changes are summed in a table."""

from typing import Any, Sequence, Tuple

import numpy as np

from polyverso import capi
from polyverso.arrays import code_of
from polyverso.errors import Error, HandleError
from polyverso.handles import Handle, remember


class SyncedArray(Handle):
    """A table with the sum of all workers' changes to one array. Collective: every worker makes the same instances, in
    the same order."""

    def __init__(self, value: np.ndarray, label: str) -> None:
        """value: initial values of any shape; the dtype is the table's. Worker 0's are used: see `latest`. `label` is
        what messages call the array. Raises TypeError for a dtype that no table has."""
        try:
            dtype = code_of(value.dtype)
        except (TypeError, ValueError, Error) as error:
            raise TypeError(f"no table can hold values of dtype {value.dtype}") from error
        self._label = label
        self.latest = np.array(value, order="C")  # as of the last sync: changed only here
        self._change = np.empty_like(self.latest)  # a fresh array for each sync would take twice the time
        self._table = 0
        if self.latest.size > 0:
            spec = {"kind": capi.MV_ARRAY, "rows": self.latest.size, "dtype": dtype}
            self._table = capi.mv_table_create(0, spec, self.latest.reshape(-1))
            remember(self._table, self)
            self._get()
            capi.mv_barrier(0)  # otherwise the first change of a fast worker would be among a slow one's initial values

    @property
    def label(self) -> str:
        return self._label

    def sync(self, value: np.ndarray) -> np.ndarray:
        """Adds what has changed in `value` since the last sync to the table, and returns the table's values: this
        object's own array, which the caller must not change."""
        if value.shape != self.latest.shape:
            raise ValueError(f"{self.label}: the shape was {self.latest.shape} and is now {value.shape}: it must stay the same")
        return self.sync_parts([value])

    def sync_parts(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """As sync(), of an array that is given in parts, one after the other: nobody has to concatenate them. A part may
        have another dtype than the table, to which the caller has converted the table's values."""
        last, change = self.latest.reshape(-1), self._change.reshape(-1)
        sizes = [part.size for part in parts]
        if sum(sizes) != last.size:
            raise ValueError(f"{self.label}: there were {last.size} values, and there are now {sum(sizes)}: "
                             "their number must stay the same")
        if self._table:
            for part, first in zip(parts, np.cumsum([0, *sizes])):
                place = slice(first, first + part.size)
                # A part of another dtype holds the table's values rounded to it, which is no change of this worker's.
                loaded = last[place].astype(part.dtype, copy=False)
                np.subtract(part.reshape(-1), loaded, out=change[place], dtype=np.result_type(part, change), casting="unsafe")
            capi.mv_table_add(self._table, change, capi.MV_FORGET)
            self._get()
        return self.latest

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return type(None), ()  # a copy in another process, or of another variable, has no table: it is None

    def is_open(self) -> bool:
        """Whether the table still exists: a shutdown() ends it."""
        if not self._table:
            return True
        try:
            capi.mv_table_describe(self._table)
        except HandleError:
            return False
        return True

    def _get(self) -> None:
        capi.mv_table_get(self._table, self.latest.reshape(-1))
