"""Key-value stores in the manner of MXNet's `mx.kv`: tensors under keys, pushed by all workers, merged, updated, pulled.

    from polyverso import kvstore

    kv = kvstore.create("local")
    kv.init(3, np.ones((2, 3)))
    kv.push(3, [gradient_of_one_device, gradient_of_another])     # summed up
    kv.pull(3, out=weights)

Types that begin with "dist" want a polyverso.init() first; docs/kvstore.md tells what each of them promises.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import capi
from .arrays import as_bits
from .errors import ArgumentError
from .node import Node
from .optimizer import Optimizer
from .table import call_options
from .tensor import Tensor

# Keys of one store are all int or all str.
Key = Union[int, str]
# polyverso.Tensor, numpy.ndarray, or anything with __dlpack__, such as a PyTorch tensor in this machine's memory.
Value = Any
# Of one key a value, or a list of one a device; of a list of keys a list of these.
Values = Union[Value, Sequence[Value], Sequence[Sequence[Value]]]


def create(name: str = "local", node: Optional[Node] = None) -> "KVStore":
    """A store of one of MXNet's types, in letters of any size.

    local, local_update_cpu, local_allreduce_cpu, local_allreduce_device, device, nccl, row_sparse: in this process alone.
    dist_sync (dist, dist_sync_device, dist_device_sync): what all workers push to a key is merged and updates it once.
    dist_async (dist_async_device): every push updates at once.
    node: whose cluster; None = that of polyverso.init(). Workers create their stores in the same order.
    Raises ArgumentError, with the known types, for another name.
    """
    return KVStore(capi.kv_create(0 if node is None else node.handle, name))


# What was pulled into a copy, and the array it is for.
Copies = List[Tuple[np.ndarray, np.ndarray]]


def _tensor(value: Value, copies: Optional[Copies]) -> Tensor:
    """The tensor upon a value's memory; of an array with gaps upon a copy, which goes back where it is written to."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        fits = value.flags.c_contiguous and value.flags.writeable
        array = value if fits else np.array(value, order="C")
        if array is not value and copies is not None:
            copies.append((array, value))
        return Tensor.view(as_bits(array))
    if hasattr(value, "__dlpack__"):
        return Tensor.from_dlpack(value)
    raise TypeError(
        f"a value is a polyverso.Tensor, a numpy array or an object with __dlpack__, not {type(value).__name__}"
    )


def _tensors(keys: Any, values: Values, copies: Optional[Copies] = None) -> List[List[Tensor]]:
    """The tensors of a call, a list of each key's: in a list of keys each has one element of the list of values.

    copies: None = the values are only read.
    """
    if values is None:
        raise ArgumentError(capi.MV_EINVAL, "no values given")
    if not isinstance(keys, (list, tuple)):
        values = [values]
    elif not isinstance(values, (list, tuple)) or len(values) != len(keys):
        some = f"{len(values)} values" if isinstance(values, (list, tuple)) else "one value"
        raise ArgumentError(capi.MV_ESHAPE, f"{some} for {len(keys)} keys: a list with one element a key is needed")
    return [
        [_tensor(value, copies) for value in (some if isinstance(some, (list, tuple)) else [some])] for some in values
    ]


class KVStore:
    """One process's view of a store; from create().

    A key is an int or a str, a list of keys goes with a list of values. Of each key there is one value, or a list of
    several, one a device: they are summed up when they are pushed, and all receive what is pulled. Arrays are used in
    place, and only one with gaps between its elements is copied. What happens to one key happens in the order of the calls, and
    what was pushed is a snapshot. Wrong keys, shapes and dtypes are an ArgumentError; nothing was done then.
    timeout: seconds; None = the node's default.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __del__(self) -> None:
        try:
            capi.kv_free(self._handle)
        except Exception:  # the interpreter ends, or the node has ended and its stores with it
            pass

    @property
    def handle(self) -> int:
        """The kv_store, for functions of polyverso.capi."""
        return self._handle

    @property
    def type(self) -> str:
        """The type as it was given, in lower case."""
        return capi.kv_type(self._handle)

    @property
    def rank(self) -> int:
        """Place among the workers, 0 .. num_workers - 1."""
        return capi.kv_rank(self._handle)

    @property
    def num_workers(self) -> int:
        return capi.kv_num_workers(self._handle)

    def init(self, key: Union[Key, Sequence[Key]], value: Values) -> None:
        """Brings keys into the store. Of dist types every worker calls it alike; worker 0's values count, and they are
        stored when it returns."""
        capi.kv_init(self._handle, key, _tensors(key, value))

    def push(
        self, key: Union[Key, Sequence[Key]], value: Values, priority: int = 0, *, timeout: Optional[float] = None
    ) -> None:
        """Pushes values through the keys' optimizer; without one they replace what is there. In a dist_sync store all
        workers' pushes of the same number are merged first."""
        capi.kv_push(self._handle, key, _tensors(key, value), call_options(0, timeout))

    def pull(
        self,
        key: Union[Key, Sequence[Key]],
        out: Values = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        timeout: Optional[float] = None,
    ) -> None:
        """Pulls into `out`, which holds this worker's earlier pushes then, in a dist_sync store with all that belongs to
        their rounds."""
        copies: Copies = []
        capi.kv_pull(self._handle, key, _tensors(key, out, copies), call_options(0, timeout))
        for array, wanted in copies:
            wanted[...] = array

    def pushpull(
        self,
        key: Union[Key, Sequence[Key]],
        value: Values,
        out: Values = None,
        priority: int = 0,
        *,
        timeout: Optional[float] = None,
    ) -> None:
        """push(), then pull() into `out`, or into `value` without it."""
        self.push(key, value, priority, timeout=timeout)
        self.pull(key, value if out is None else out, priority, timeout=timeout)

    def broadcast(self, key: Union[Key, Sequence[Key]], value: Values, out: Values, priority: int = 0) -> None:
        """init(), then pull()."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_optimizer(self, optimizer: Union[Optimizer, str]) -> None:
        """Sets the optimizer of all keys, those of today and those to come: one of polyverso.optimizer's, or its text,
        "mx.adam learning_rate=0.001". One worker calls it, before the pushes that it is for; an equal one set again
        changes nothing."""
        capi.kv_set_optimizer(self._handle, str(optimizer))

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Returns when all workers have called it. It waits for no pushes: their rounds may be open."""
        capi.kv_barrier(self._handle, call_options(0, timeout))

    _barrier = barrier  # as it is called in MXNet

    def leave(self) -> None:
        """This worker pushes no more: rounds go on without it."""
        capi.kv_leave(self._handle)

    def __repr__(self) -> str:
        return f"<polyverso.KVStore {self.type}>"
