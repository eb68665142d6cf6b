"""Groups: workers that reduce arrays together. docs/allreduce.md has the algorithms.

    from polyverso.group import Group

    with Group(node) as group:                  # all workers
        group.allreduce(gradient)               # its sum over all ranks, in place
        group.allreduce(loss, op="avg")
        group.broadcast(weights, root=0)
        losses = group.allgather(loss)          # of shape (ranks, *loss.shape)

Arrays are C-contiguous memory of a dtype of tables, which is changed in place. All ranks make the same calls in the same order.
docs/groups.md tells more.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

from . import capi
from .arrays import DTYPES, as_bits, as_rows, in_place, milliseconds
from .errors import Error

OPERATIONS = {
    "sum": capi.MV_REDUCE_SUM,
    "prod": capi.MV_REDUCE_PROD,
    "min": capi.MV_REDUCE_MIN,
    "max": capi.MV_REDUCE_MAX,
    "avg": capi.MV_REDUCE_AVG,
}
_NAMES = {code: name for name, code in OPERATIONS.items()}


def _code(op: str) -> int:
    if op not in OPERATIONS:
        raise ValueError(f"op is {op!r}: expected one of {', '.join(OPERATIONS)}")
    return OPERATIONS[op]


def _own(array: Any) -> Any:
    """The array, if its dtype tells what it is."""
    in_place(array)
    return array


def _options(timeout: Optional[float]) -> Dict[str, Optional[int]]:
    return {"timeout_ms": milliseconds(timeout)}


class Drained(NamedTuple):
    """What the others reduce next, for a rank that drains."""

    arrays: List[Tuple[int, np.dtype]]  # of each how many elements
    op: Optional[str]  # None: by a function of their own, allreduce_custom()


class _ByHand:
    """Values on their way through the steps of a reduction by a function."""

    def __init__(self, values: Any, function: Callable[[Any, Any], Any], draining: bool) -> None:
        self._several = isinstance(values, (list, tuple))
        self._function = function
        given = values if self._several else [values]
        self.mine = [np.asarray(value if draining else _own(value)) for value in given]
        self.theirs = [np.empty_like(array) for array in self.mine]

    def next(self, custom: int) -> bool:
        """Waits for what another rank has, which is in `theirs` then."""
        return bool(capi.mv_custom_next(custom, [as_bits(array) for array in self.theirs]))

    def reduce(self) -> None:
        mine = list(self.mine)  # in which a function may also put new ones
        if self._several:
            made = self._function(mine, list(self.theirs))
            made = mine if made is None else made
        else:
            result = self._function(mine[0], self.theirs[0])
            made = mine if result is None else [result]
        for array, value in zip(self.mine, made, strict=True):
            if value is not array:
                array[...] = value


class Group:
    """`workers`, by their ids; all of the node's cluster by default. Opened by all of them together."""

    def __init__(self, node: Any = 0, workers: Optional[Iterable[int]] = None, *, handle: int = 0) -> None:
        ids = None if workers is None else as_rows(list(workers))
        self._handle = handle or capi.mv_group_open(getattr(node, "handle", node), ids)
        about = self.info
        self.rank: int = about["rank"]
        self.size: int = about["ranks"]

    @classmethod
    def of_host(cls, node: Any = 0) -> Group:
        """The workers of this machine."""
        return cls(handle=capi.mv_group_open_host(getattr(node, "handle", node)))

    @property
    def handle(self) -> int:
        return self._handle

    @property
    def info(self) -> Dict[str, Any]:
        """rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, and what broke the group, if anything did."""
        return capi.mv_group_describe(self._handle)

    @property
    def members(self) -> List[int]:
        """The worker ids of its ranks."""
        ids = np.empty(self.size, dtype=np.int64)
        return ids[: capi.mv_group_members(self._handle, ids)].tolist()

    def allreduce(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> Any:
        """array = all ranks' reduced, with the same bits on all; returns it."""
        capi.mv_allreduce(self._handle, in_place(array), _code(op), _options(timeout))
        return array

    def allreduce_many(self, arrays: Iterable[Any], op: str = "sum", draining: bool = False, timeout: Optional[float] = None) -> int:
        """Several arrays in one operation; how many ranks contributed. A draining rank only takes part."""
        flags = capi.MV_DRAINING if draining else 0
        lent = as_bits if draining else in_place  # what drain() told of is bfloat16 where numpy has but bits for it
        return capi.mv_allreduce_many(self._handle, [lent(array) for array in arrays], _code(op), flags, _options(timeout))

    def allreduce_custom(
        self, values: Any, function: Callable[[Any, Any], Any], draining: bool = False, timeout: Optional[float] = None
    ) -> int:
        """values, an array or a list of arrays = all ranks', reduced two by two: function(mine, theirs), of as many, changes mine in place, or
        returns what is to be in its place. How many ranks contributed. What the function raises fails the operation on all ranks."""
        by_hand = _ByHand(values, function, draining)
        flags = capi.MV_DRAINING if draining else 0
        custom = capi.mv_custom_begin(self._handle, [as_bits(array) for array in by_hand.mine], flags, _options(timeout))
        try:
            while by_hand.next(custom):
                try:
                    by_hand.reduce()
                except BaseException:
                    with contextlib.suppress(Error):  # the operation's, which fails: waited for, so that it is not withdrawn
                        capi.mv_custom_done(custom, capi.MV_ECANCELED)
                        by_hand.next(custom)
                    raise
                capi.mv_custom_done(custom, capi.MV_OK)
        except BaseException:
            with contextlib.suppress(Error):
                capi.mv_custom_end(custom)
            raise
        return capi.mv_custom_end(custom)

    def drain(self, timeout: Optional[float] = None) -> Optional[Drained]:
        """For a rank that is through: waits for what the others reduce next, in which it is to take part with draining=True. None: all are."""
        told = capi.mv_allreduce_drain(self._handle, _options(timeout))
        if told["finished"]:
            return None
        return Drained([(array["count"], DTYPES[array["dtype"]]) for array in told["arrays"]], _NAMES.get(told["reduction"]))

    def allreduce_zeros(self, timeout: Optional[float] = None) -> None:
        """Takes part in the others' all-reduces, with zeros, until all ranks have come here."""
        capi.mv_allreduce_zeros(self._handle, _options(timeout))

    def reduce(self, array: Any, op: str = "sum", root: int = 0, timeout: Optional[float] = None) -> Any:
        """As allreduce(), but only the root has the result; the others' arrays stay what they are."""
        capi.mv_reduce(self._handle, in_place(array), _code(op), root, _options(timeout))
        return array

    def broadcast(self, array: Any, root: int = 0, timeout: Optional[float] = None) -> Any:
        """array = the root's, on all ranks; returns it."""
        capi.mv_broadcast(self._handle, in_place(array), root, _options(timeout))
        return array

    def broadcast_many(self, arrays: Iterable[Any], root: int = 0, timeout: Optional[float] = None) -> None:
        capi.mv_broadcast_many(self._handle, [in_place(array) for array in arrays], root, _options(timeout))

    def allgather(self, array: Any, timeout: Optional[float] = None) -> np.ndarray:
        """All ranks' arrays, which have one shape, in the order of ranks: of shape (ranks, *shape)."""
        mine = np.asarray(_own(array))
        gathered = np.empty((self.size, *mine.shape), mine.dtype)
        gathered[self.rank] = mine
        capi.mv_allgather(self._handle, as_bits(gathered), _options(timeout))
        return gathered

    def reduce_scatter(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> np.ndarray:
        """As allreduce(), but each rank has only its own part of the result, of as many rows for each; a view of it, the rest stays what it is."""
        whole = np.asarray(_own(array))
        rows, over = divmod(len(whole), self.size)
        if over:
            raise ValueError(f"{len(whole)} rows can't be as many for each of {self.size} ranks")
        capi.mv_reduce_scatter(self._handle, as_bits(whole), _code(op), _options(timeout))
        return whole[self.rank * rows : (self.rank + 1) * rows]

    def barrier(self, timeout: Optional[float] = None) -> None:
        capi.mv_group_barrier(self._handle, _options(timeout))

    def shrink(self, timeout: Optional[float] = None) -> Group:
        """After a rank was lost: a group of the survivors, who all call this."""
        return type(self)(handle=capi.mv_group_shrink(self._handle, _options(timeout)))

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            capi.mv_group_close(handle)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
