"""Groups of workers that reduce arrays together. docs/groups.md is the guide, docs/allreduce.md has the algorithms.

    from polyverso.group import Group

    with Group(node) as group:                  # all workers
        group.allreduce(gradient)               # the sum over all ranks, in place
        group.allreduce(loss, op="avg")
        group.broadcast(weights, root=0)
        losses = group.allgather(loss)          # of shape (ranks, *loss.shape)
        group.send(activations, to=1)           # which calls group.recv(activations, 0)

Arrays are C-contiguous, of a dtype of tables, and changed in place. All ranks make the same calls in the same order.
An operation of arrays whose shapes differ among the ranks is a StateError (MV_EDISAGREE) on all ranks; an array of one
dimension fits any other with as many elements. A reduce and a broadcast compare only the numbers of elements.
Arrays may be in the memory of a CUDA device: tensors, or arrays of PyTorch, CuPy and JAX. Fresh results are then tensors
on that device. The function of allreduce_custom() gets tensors for tensors and for arrays on devices, and otherwise NumPy
arrays; but tensors also for bfloat16 that NumPy lacks.

Each operation whose name ends with `_async` returns a polyverso.Request: wait for it, or `await` it. Several may be
unfinished at once; a group carries them out in the order of the calls, blocking ones included. The request keeps the
arrays alive; their contents must not be read or changed until it has finished.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import capi, dtypes, leaving
from ._numpy import np
from .arrays import as_bits, in_place, is_ndarray, label_of, milliseconds, on_device, shape_of, tensor_or_bits
from .errors import ArgumentError, Error
from .foreign import memory_of
from .handles import Handle, remember
from .leaving import report
from .names import listing
from .request import Request
from .tensor import Tensor

__all__ = ["Drained", "Group", "OPERATIONS"]
__dir__ = listing(__all__)

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


def _lent(array: Any) -> Any:
    """The memory of one array for results, as the C functions take it."""
    if array is None:
        raise ArgumentError(capi.MV_EDTYPE, "an array is needed, not None")
    if isinstance(array, (list, tuple)) and any(hasattr(one, "shape") for one in array):
        raise ArgumentError(
            capi.MV_EDTYPE, f"one array is needed, not a {type(array).__name__} of arrays: allreduce_many() and broadcast_many() take several"
        )
    return in_place(array)


def _own(array: Any) -> Any:
    """The array's memory, after a check of its dtype: uint16 is refused."""
    _lent(array)
    memory = memory_of(array)
    return memory.view(dtypes.BF16) if hasattr(memory, "dtype") and memory.dtype == dtypes.BITS else memory  # of DLPack


def _node_of(node: Any) -> int:
    handle = getattr(node, "handle", node)
    if not isinstance(handle, int):
        raise TypeError(f"a node is needed, as polyverso.init() returns it, not {type(node).__name__}")
    return handle


def _bits(array: Any) -> Any:
    """As the C functions take it: a NumPy array, or a tensor on a device."""
    return as_bits(array) if is_ndarray(array) else array


def _place_like(tensor: Any, shape: Tuple[int, ...], given: Any) -> Any:
    """A tensor of this shape beside another one on a device: the caller's `out`, or a fresh one."""
    if given is None:
        return type(tensor).zeros(shape, tensor.dtype, device=tensor.device)
    place = on_device(given)
    if place is None or place.shape != shape or place.dtype != tensor.dtype:
        what = "on the host" if place is None else f"{place.dtype} of shape {place.shape}"
        raise ArgumentError(capi.MV_ESHAPE, f"out is {what}: {tensor.dtype} of shape {shape} is needed, on {tensor.device}")
    return place


def _to_lend(array: Any) -> np.ndarray:
    """The array for a C function that only reads it, but takes what it could write: a copy if necessary."""
    own = np.asarray(_own(array))
    return own if own.flags.c_contiguous and own.flags.writeable else own.copy()


def _integers(what: str, values: Iterable[Any]) -> np.ndarray:
    numbers = np.asarray(list(values))
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ArgumentError(capi.MV_EDTYPE, f"{what} must be integers, not {numbers.dtype}")
    return np.ascontiguousarray(numbers, np.int64)


def _need_rows(array: Any) -> None:
    if len(array.shape) == 0:
        raise ArgumentError(capi.MV_ESHAPE, "the array is a single number: one with rows is needed, which the ranks divide")


def _options(timeout: Optional[float], *arrays: Any, flags: int = 0) -> Dict[str, int]:
    """The call's options. The ranks compare the shapes of the arrays."""
    shapes = tuple(map(shape_of, arrays))
    return {"flags": flags, "timeout_ms": milliseconds(timeout), "label": label_of(("",) * len(shapes), shapes)}


def _source(rank: Optional[int]) -> int:
    return capi.MV_ANY_RANK if rank is None else rank


class Drained(NamedTuple):
    """The next operation of the other ranks, for a rank that drains."""

    arrays: List[Tuple[int, np.dtype]]  # (elements, dtype) of each
    op: Optional[str]  # None: allreduce_custom()


def _to_reduce(value: Any, draining: bool) -> Any:
    """What a custom reduction's function gets for this value: a tensor over it, or a NumPy array."""
    if (tensor := on_device(value)) is not None:
        return tensor
    if isinstance(value, Tensor):
        return _lent(value)
    array = np.asarray(memory_of(value) if draining else _own(value))  # drain() may report bfloat16 as uint16
    return Tensor.view(array) if array.dtype == dtypes.BITS else array


class _ManualReduction:
    """The values of a custom reduction, which this class drives step by step. The function gets `mine` and `theirs`; the
    group sends `sent` and writes `received`, which are copies on the host of arrays that are on devices."""

    def __init__(self, values: Any, function: Callable[[Any, Any], Any], draining: bool) -> None:
        self._several = isinstance(values, (list, tuple))
        self._function = function
        self.mine: List[Any] = []
        self.theirs: List[Any] = []
        self.sent: List[Any] = []
        self.received: List[Any] = []
        for value in values if self._several else [values]:
            mine = sent = _to_reduce(value, draining)
            if is_ndarray(mine):
                theirs = received = np.empty_like(mine)
            else:
                theirs = received = type(mine).zeros(mine.shape, mine.dtype, mine.device)
                if mine.device != "cpu":
                    sent, received = mine.to("cpu"), theirs.to("cpu")
            self.mine.append(mine)
            self.theirs.append(theirs)
            self.sent.append(sent)
            self.received.append(received)

    def next(self, custom: int) -> bool:
        """Waits for the next values of another rank, in `received`. False when the result is complete."""
        more = bool(capi.mv_custom_next(custom, [as_bits(array) for array in self.received]))
        if not more:
            _copy_to(self.mine, self.sent)
        return more

    def reduce(self) -> None:
        _copy_to(self.theirs, self.received)
        mine = list(self.mine)  # a copy: the function may also replace its elements
        if self._several:
            made = self._function(mine, list(self.theirs))
            made = mine if made is None else made
        else:
            result = self._function(mine[0], self.theirs[0])
            made = mine if result is None else [result]
        for array, value in zip(self.mine, made, strict=True):
            if value is array:
                continue
            if is_ndarray(array):
                array[...] = value
            else:
                array.assign(value)
        _copy_to(self.sent, self.mine)


def _copy_to(places: List[Any], values: List[Any]) -> None:
    """Copies between devices and the host, unless place and value are the same array."""
    for place, value in zip(places, values):
        if place is not value:
            capi.mv_tensor_copy(value, place)


class _Receive(Request):
    """A receive. Its result is the sender's rank."""

    def wait(self, timeout: Optional[float] = None) -> int:
        return int(super().wait(timeout)[0])


class Group(Handle):
    """A group of `workers`, given by ids; by default all of the node's cluster. All of them open it together.

    The end of a `with` block leaves the group. After an exception it calls abort(), which tells the other ranks the
    exception's text."""

    _instead = "open a group in the other process, polyverso.Group(node)"

    def __init__(self, node: Any = 0, workers: Optional[Iterable[int]] = None, *, handle: int = 0) -> None:
        ids = None if workers is None else _integers("workers", workers)
        self._node: int = _node_of(node)
        self._number = handle or capi.mv_group_open(self._node, ids)
        remember(self._number, self)
        about = self.info
        self.rank: int = about["rank"]
        self.size: int = about["ranks"]

    @classmethod
    def of_host(cls, node: Any = 0) -> Group:
        """Opens a group of the workers on this machine."""
        return cls(node, handle=capi.mv_group_open_host(_node_of(node)))

    @classmethod
    def join(cls, node: Any = 0, name: str = "", timeout: Optional[float] = None) -> Group:
        """Joins the group of other workers when they call grow() with this name: for a new process that replaces a lost one."""
        return cls(node, handle=capi.mv_group_join(_node_of(node), name, _options(timeout)))

    @property
    def handle(self) -> int:
        """The mv_group, for functions of polyverso.capi."""
        return self._handle

    @property
    def node(self) -> int:
        """The mv_node, for functions of polyverso.capi, and for opening another group: Group(group.node)."""
        return self._node

    @property
    def _handle(self) -> int:
        return self._number

    @property
    def info(self) -> Dict[str, Any]:
        """rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, elder, generation, collective and
        collective_why; tuning: how its all-reduces are chosen, as a text; if it is broken, the reason."""
        return capi.mv_group_describe(self._handle)

    @property
    def members(self) -> List[int]:
        """The worker ids of the group, in the order of ranks."""
        ids = np.empty(self.size, dtype=np.int64)
        return ids[: capi.mv_group_members(self._handle, ids)].tolist()

    def allreduce(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> Any:
        """array = the reduction of all ranks' arrays, the same bits on every rank. Returns the array. allreduce_many() of
        one array returns the number of contributors instead."""
        capi.mv_allreduce(self._handle, _lent(array), _code(op), _options(timeout, array))
        return array

    def allreduce_async(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> Request:
        """allreduce() without blocking. The request's result is the array."""
        return self._begin(array, capi.mv_allreduce, _lent(array), _code(op), _options(timeout, array, flags=capi.MV_ASYNC))

    def allreduce_many(self, arrays: Iterable[Any], op: str = "sum", draining: bool = False, timeout: Optional[float] = None) -> int:
        """Reduces several arrays, which must not overlap, in one operation. Returns the number of contributors; a draining
        rank is none."""
        flags = capi.MV_DRAINING if draining else 0
        lent = tensor_or_bits if draining else _lent  # drain() may report bfloat16 as uint16
        given = list(arrays)
        options = _options(timeout, *(() if draining else given))
        return capi.mv_allreduce_many(self._handle, [lent(array) for array in given], _code(op), flags, options)

    def allreduce_many_async(self, arrays: Iterable[Any], op: str = "sum", timeout: Optional[float] = None) -> Request:
        """allreduce_many() without blocking. The request's result is the list of the arrays."""
        given = list(arrays)
        options = _options(timeout, *given, flags=capi.MV_ASYNC)
        return self._begin(given, capi.mv_allreduce_many, [_lent(array) for array in given], _code(op), 0, options)

    def allreduce_custom(
        self, values: Any, function: Callable[[Any, Any], Any], draining: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Reduces values, an array or a list of arrays, over all ranks in place, by the caller's function.
        function(mine, theirs) takes two arrays or tensors, or two lists of them; it changes mine in place, or returns
        the new values. Returns the number of contributors. An exception in the function fails the operation on all ranks."""
        manual = _ManualReduction(values, function, draining)
        flags = capi.MV_DRAINING if draining else 0
        options = _options(timeout, *(() if draining else manual.mine))
        custom = capi.mv_custom_begin(self._handle, [as_bits(array) for array in manual.sent], flags, options)
        try:
            while manual.next(custom):
                try:
                    manual.reduce()
                except BaseException as failure:
                    report(failure)
                    with contextlib.suppress(Error):  # wait for the failure: mv_custom_end() would withdraw
                        capi.mv_custom_done(custom, capi.MV_ECANCELED)
                        manual.next(custom)
                    raise
                capi.mv_custom_done(custom, capi.MV_OK)
        except BaseException:
            with contextlib.suppress(Error):
                capi.mv_custom_end(custom)
            raise
        return capi.mv_custom_end(custom)

    def drain(self, timeout: Optional[float] = None) -> Optional[Drained]:
        """For a rank that has run out of data: waits for the next operation of the other ranks, in which it must take
        part with draining=True. None: all ranks drain."""
        told = capi.mv_allreduce_drain(self._handle, _options(timeout))
        if told["finished"]:
            return None
        return Drained([(array["count"], dtypes.DTYPES[array["dtype"]]) for array in told["arrays"]], _NAMES.get(told["reduction"]))

    def allreduce_zeros(self, timeout: Optional[float] = None) -> None:
        """Takes part in the other ranks' all-reduces, with neutral values (zeros for sums), until all ranks drain."""
        capi.mv_allreduce_zeros(self._handle, _options(timeout))

    def reduce(self, array: Any, op: str = "sum", root: int = 0, timeout: Optional[float] = None) -> Any:
        """Like allreduce(), but only `root` gets the result; the arrays of the other ranks stay unchanged."""
        capi.mv_reduce(self._handle, _lent(array), _code(op), root, _options(timeout, array))
        return array

    def reduce_async(self, array: Any, op: str = "sum", root: int = 0, timeout: Optional[float] = None) -> Request:
        """reduce() without blocking. The request's result is the array."""
        return self._begin(array, capi.mv_reduce, _lent(array), _code(op), root, _options(timeout, array, flags=capi.MV_ASYNC))

    def broadcast(self, array: Any, root: int = 0, timeout: Optional[float] = None) -> Any:
        """array = root's array, on all ranks. Returns the array."""
        capi.mv_broadcast(self._handle, _lent(array), root, _options(timeout, array))
        return array

    def broadcast_async(self, array: Any, root: int = 0, timeout: Optional[float] = None) -> Request:
        """broadcast() without blocking. The request's result is the array."""
        return self._begin(array, capi.mv_broadcast, _lent(array), root, _options(timeout, array, flags=capi.MV_ASYNC))

    def broadcast_many(self, arrays: Iterable[Any], root: int = 0, timeout: Optional[float] = None) -> None:
        """Broadcasts several arrays in one operation."""
        given = list(arrays)
        capi.mv_broadcast_many(self._handle, [_lent(array) for array in given], root, _options(timeout, *given))

    def broadcast_many_async(self, arrays: Iterable[Any], root: int = 0, timeout: Optional[float] = None) -> Request:
        """broadcast_many() without blocking. The request's result is the list of the arrays."""
        given = list(arrays)
        options = _options(timeout, *given, flags=capi.MV_ASYNC)
        return self._begin(given, capi.mv_broadcast_many, [_lent(array) for array in given], root, options)

    def allgather(self, array: Any, timeout: Optional[float] = None, *, out: Any = None) -> Any:
        """All ranks' arrays, which must have the same shape, in the order of ranks: a fresh (ranks, *shape) array, or
        `out`, memory of this shape and of the array's dtype."""
        gathered = self._with_mine(array, out)
        capi.mv_allgather(self._handle, _bits(gathered), _options(timeout, gathered[0]))
        return gathered

    def allgather_async(self, array: Any, timeout: Optional[float] = None, *, out: Any = None) -> Request:
        """allgather() without blocking. The request's result is the (ranks, *shape) array. `array` is copied at
        once."""
        gathered = self._with_mine(array, out)
        return self._begin(gathered, capi.mv_allgather, _bits(gathered), _options(timeout, gathered[0], flags=capi.MV_ASYNC))

    def reduce_scatter(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> Any:
        """Like allreduce(), but each rank gets only its own part of the result: a view of the array, with an equal
        number of rows for each rank. The rest of the array stays unchanged."""
        whole, part = self._in_parts(array)
        capi.mv_reduce_scatter(self._handle, _bits(whole), _code(op), _options(timeout, whole))
        return part

    def reduce_scatter_async(self, array: Any, op: str = "sum", timeout: Optional[float] = None) -> Request:
        """reduce_scatter() without blocking. The request's result is this rank's part, a view of the array."""
        whole, part = self._in_parts(array)
        options = _options(timeout, whole, flags=capi.MV_ASYNC)
        return self._begin(part, capi.mv_reduce_scatter, _bits(whole), _code(op), options)

    def gather(self, array: Any, root: int = 0, timeout: Optional[float] = None) -> Any:
        """All ranks' arrays, which must have the same shape, in the order of ranks: a fresh (ranks, *shape) array on
        `root`, None on the other ranks."""
        given = self._to_gather(array, root)
        capi.mv_gather(self._handle, _bits(given), root, _options(timeout, array))
        return given if self.rank == root else None

    def gather_async(self, array: Any, root: int = 0, timeout: Optional[float] = None) -> Request:
        """gather() without blocking. The request's result is that of gather()."""
        given = self._to_gather(array, root)
        result = given if self.rank == root else None
        return self._begin(result, capi.mv_gather, _bits(given), root, _options(timeout, array, flags=capi.MV_ASYNC))

    def scatter(self, array: Any, parts: Any = None, root: int = 0, timeout: Optional[float] = None) -> Any:
        """array = this rank's part of root's `parts`, an array of shape (ranks, *array.shape) and the array's dtype,
        on any device. The other ranks' `parts` is not used. Returns the array."""
        capi.mv_scatter(self._handle, self._to_scatter(array, parts, root), root, _options(timeout, array))
        return array

    def scatter_async(self, array: Any, parts: Any = None, root: int = 0, timeout: Optional[float] = None) -> Request:
        """scatter() without blocking. The request's result is the array."""
        options = _options(timeout, array, flags=capi.MV_ASYNC)
        return self._begin(array, capi.mv_scatter, self._to_scatter(array, parts, root), root, options)

    def alltoall(
        self, array: Any, send_rows: Any = None, receive_rows: Any = None, timeout: Optional[float] = None, *, out: Any = None
    ) -> Any:
        """Every rank sends some rows of its array to every rank, and receives theirs, in the order of ranks: a fresh
        array, or `out`, an array of the result's shape and dtype that does not overlap `array`.

        send_rows, receive_rows: by rank, the number of rows for and from that rank; an equal number for all ranks by
        default. A rank must receive as many rows as the other one sends, otherwise all ranks raise StateError.
        """
        function, arrays, result, labelled = self._to_exchange(array, send_rows, receive_rows, out)
        function(self._handle, arrays, _options(timeout, *labelled))
        return result

    def alltoall_async(
        self, array: Any, send_rows: Any = None, receive_rows: Any = None, timeout: Optional[float] = None, *, out: Any = None
    ) -> Request:
        """alltoall() without blocking. The request's result is that of alltoall()."""
        function, arrays, result, labelled = self._to_exchange(array, send_rows, receive_rows, out)
        return self._begin(result, function, arrays, _options(timeout, *labelled, flags=capi.MV_ASYNC))

    def send(self, array: Any, to: int, tag: int = 0, timeout: Optional[float] = None) -> None:
        """Sends the array to rank `to`, which calls recv() with this tag. Other ranks do not take part. A small array
        is sent before it is received; send() of a large one returns when it has been received."""
        capi.mv_send(self._handle, _lent(array), to, tag, _options(timeout, array))

    def send_async(self, array: Any, to: int, tag: int = 0, timeout: Optional[float] = None) -> Request:
        """send() without blocking."""
        return self._begin(None, capi.mv_send, _lent(array), to, tag, _options(timeout, array, flags=capi.MV_ASYNC))

    def recv(self, array: Any, source: Optional[int] = None, tag: int = 0, timeout: Optional[float] = None) -> int:
        """array = the next array that rank `source`, by default any rank, has sent to this rank with this tag. Returns
        the sender's rank. An array of another shape or dtype raises ArgumentError; it is lost, and the group
        continues. A time-out does not break the group if nothing has arrived."""
        sender = np.empty(1, np.int64)
        capi.mv_recv(self._handle, _lent(array), _source(source), tag, sender, _options(timeout, array))
        return int(sender[0])

    def recv_async(self, array: Any, source: Optional[int] = None, tag: int = 0, timeout: Optional[float] = None) -> Request:
        """recv() without blocking. The request's result is the sender's rank."""
        sender = np.empty(1, np.int64)
        options = _options(timeout, array, flags=capi.MV_ASYNC)
        return _Receive(self._node, capi.mv_recv(self._handle, _lent(array), _source(source), tag, sender, options), sender)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Waits until all ranks have called it."""
        capi.mv_group_barrier(self._handle, _options(timeout))

    def barrier_async(self, timeout: Optional[float] = None) -> Request:
        """barrier() without blocking."""
        return self._begin(None, capi.mv_group_barrier, _options(timeout, flags=capi.MV_ASYNC))

    def _begin(self, result: Any, function: Callable[..., int], *arguments: Any) -> Request:
        """The request of an asynchronous operation."""
        return Request(self._node, function(self._handle, *arguments), result)

    def _with_mine(self, array: Any, out: Any) -> Any:
        """The array for an all-gather's result, a fresh one or `out`, with this rank's part in its place."""
        if (tensor := on_device(array)) is not None:
            gathered = _place_like(tensor, (self.size, *tensor.shape), out)
            gathered[self.rank] = tensor
            return gathered
        mine = np.asarray(_own(array))
        shape = (self.size, *mine.shape)
        gathered = np.empty(shape, mine.dtype) if out is None else np.asarray(_own(out))
        if gathered.shape != shape or gathered.dtype != mine.dtype:
            text = f"out is {gathered.dtype} of shape {gathered.shape}: {mine.dtype} of shape {shape} is needed"
            raise ArgumentError(capi.MV_ESHAPE, text)
        gathered[self.rank] = mine
        return gathered

    def _to_gather(self, array: Any, root: int) -> Any:
        """The array that mv_gather() takes: on the root that of all ranks."""
        if (tensor := on_device(array)) is not None:
            return self._with_mine(tensor, None) if self.rank == root else tensor
        mine = _to_lend(array)
        if self.rank != root:
            return mine
        gathered = np.empty((self.size, *mine.shape), mine.dtype)
        gathered[root] = mine
        return gathered

    def _to_scatter(self, array: Any, parts: Any, root: int) -> Any:
        """The array that mv_scatter() takes: on the root that of all ranks, from which its own part is copied."""
        if self.rank != root:
            return _lent(array)
        own, whole = on_device(array), on_device(parts)
        on_host = own is None and whole is None
        if own is None:
            own = np.asarray(_own(array)) if on_host else Tensor.view(as_bits(_own(array)))
        if whole is None:
            whole = _to_lend(parts) if on_host else Tensor.view(as_bits(_to_lend(parts)))
        if whole.shape != (self.size, *own.shape) or whole.dtype != own.dtype:
            text = f"parts is {whole.dtype} of shape {whole.shape}: {own.dtype} of shape {(self.size, *own.shape)} is needed"
            raise ArgumentError(capi.MV_ESHAPE, text)
        if on_host:
            own[...] = whole[root]
        else:
            own.assign(whole.slice(root, root + 1).reshape(own.shape))
        return _bits(whole)

    def _to_exchange(
        self, array: Any, send_rows: Any, receive_rows: Any, out: Any
    ) -> Tuple[Callable[..., Any], List[Any], Any, List[Any]]:
        """The function of an alltoall, its arrays, the result, and the arrays whose shapes the ranks compare."""
        there = on_device(array)
        mine = _to_lend(array) if there is None else there
        if (send_rows is None) != (receive_rows is None):
            raise ValueError("send_rows and receive_rows are needed both, or none of them")
        _need_rows(mine)
        given = (("send_rows", send_rows), ("receive_rows", receive_rows))
        rows = [None if counts is None else _integers(name, counts) for name, counts in given]
        if send_rows is None and len(mine) % self.size:
            raise ValueError(f"{len(mine)} rows can't be divided evenly among {self.size} ranks")
        for name, counts in zip(("send_rows", "receive_rows"), rows):
            if counts is not None and (len(counts) != self.size or counts.min() < 0):
                raise ValueError(f"{name}: a number of rows for each of {self.size} ranks is needed")
        shape = mine.shape if rows[1] is None else (int(rows[1].sum()), *mine.shape[1:])
        if there is not None:
            result = _place_like(there, shape, out)
        else:
            result = np.empty(shape, mine.dtype) if out is None else np.asarray(_own(out))
        if result.shape != shape or result.dtype != mine.dtype:
            raise ArgumentError(capi.MV_ESHAPE, f"out is {result.dtype} of shape {result.shape}: {mine.dtype} of shape {shape} is needed")
        if rows[0] is None:
            return capi.mv_alltoall, [_bits(mine), _bits(result)], result, [mine]
        if rows[0].sum() != len(mine):
            raise ValueError(f"send_rows has {rows[0].sum()} rows, and the array {len(mine)}")
        row = int(np.prod(mine.shape[1:]))
        return capi.mv_alltoall_counts, [_bits(mine), rows[0] * row, _bits(result), rows[1] * row], result, [mine[:1]] if len(mine) else []

    def _in_parts(self, array: Any) -> Tuple[Any, Any]:
        """The array of a reduce-scatter, and this rank's part of it."""
        if (whole := on_device(array)) is None:
            whole = np.asarray(_own(array))
        _need_rows(whole)
        rows, over = divmod(len(whole), self.size)
        if over:
            raise ValueError(f"{len(whole)} rows can't be divided evenly among {self.size} ranks")
        return whole, whole[self.rank * rows : (self.rank + 1) * rows]

    def shrink(self, timeout: Optional[float] = None) -> Group:
        """Opens a new group of the survivors after a rank was lost. All survivors call it."""
        return type(self)(self._node, handle=capi.mv_group_shrink(self._handle, _options(timeout)))

    def grow(self, ranks: int = 0, name: str = "", timeout: Optional[float] = None) -> Optional[Group]:
        """Opens a new group of the ranks that are not lost and of workers that call join() with this name, once it has
        at least `ranks` ranks. All ranks call it. None if the group is not broken, has that many ranks, and no worker
        joins: the group continues. The rank info["elder"] of the new group was a member before and has the state of
        the training, which newcomers lack."""
        grown = capi.mv_group_grow(self._handle, name, ranks, _options(timeout))
        return type(self)(self._node, handle=grown) if grown else None

    def close(self) -> None:
        """Leaves the group. Ranks that wait for this one, now or later, get an error that names it."""
        if not self.is_closed:
            self.is_closed = True
            capi.mv_group_close(self._number)

    def abort(self, reason: str = "") -> None:
        """Leaves the group because this rank has failed: the operations of the other ranks, also later ones, raise
        PeerError with the reason. They can continue without this rank: shrink()."""
        if not self.is_closed:
            self.is_closed = True
            capi.mv_group_abort(self._number, reason)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if error is None or not leaving.is_failure(error):
            with leaving.unless_forked():
                self.close()
            return
        with contextlib.suppress(Error):  # the node has ended
            self.abort(leaving.reason_of(error))

    def __repr__(self) -> str:
        try:
            state = self.info["transport"]
        except Error:
            state = self._end
        return f"<polyverso.Group rank {self.rank} of {self.size}, {state}>"
