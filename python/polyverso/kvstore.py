"""Key-value stores in the style of MXNet's `mx.kv`: tensors under keys, pushed by all workers, merged, updated, pulled.

    from polyverso import kvstore

    kv = kvstore.create("local")
    kv.init(3, np.ones((2, 3)))
    kv.push(3, [gradient_of_one_device, gradient_of_another])     # summed
    kv.pull(3, out=weights)

Types that begin with "dist" need a polyverso.init() first. docs/kvstore.md describes the guarantees of each type.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import capi, kvstore_server
from ._capi import TensorMemory
from .arrays import milliseconds
from .errors import ArgumentError, Error, StateError
from .handles import Handle, remember
from .kvstore_values import Copies, Key, Values, keep_returned, row_ids_of, tensors_of
from .leaving import report, unless_forked
from .names import listing
from .node import Node
from .optimizer import Optimizer, Updater as OptimizerUpdater, get_updater
from .request import Request
from .table import call_options
from .tensor import Tensor

__all__ = ["KVStore", "KVStoreOfServer", "create", "run_commands", "set_controller"]
__dir__ = listing(__all__)

# updater(key, merged, stored) changes `stored` in place, or returns its new values.
Updater = Callable[[Any, Tensor, Tensor], Any]
# controller(head, body)
Controller = Callable[[int, str], None]


def create(name: str = "local", node: Optional[Node] = None) -> "KVStore":
    """Creates a store of one of MXNet's types; `name` is case-insensitive.

    local, local_update_cpu, local_allreduce_cpu, local_allreduce_device, device, nccl, row_sparse: in this process alone.
    dist_sync (dist, dist_sync_device, dist_device_sync): all workers' pushes to a key are merged and update it once.
    dist_async (dist_async_device): every push updates at once.
    node: a member of the cluster; None = the node of polyverso.init(). Workers create their stores in the same order.
    In a process that is only a server, a store of a dist type only has its type, rank and number of workers; see
    polyverso.kvstore_server.
    Raises ArgumentError for another name, and lists the known types.
    """
    number = 0 if node is None else node.handle
    try:
        return KVStore(capi.kv_create(number, name), number)
    except StateError:
        if not _is_server_only(number):
            raise
    return KVStoreOfServer(name.lower(), number)


def _is_server_only(node: int) -> bool:
    try:
        return capi.mv_worker_id(node) < 0
    except Error:  # there is no node
        return False


class KVStore(Handle):
    """A store, as one process sees it; from create().

    A key is an int or a str; a list of keys needs a list of values. Each key has one value, or a list with one value
    for each device: a push sums them, and a pull fills all of them. Arrays are used in place; only those
    with gaps between elements, or read-only, are copied. Calls on one key take effect in order, and a pushed value is a
    snapshot. Wrong keys, shapes and dtypes are an ArgumentError; nothing was done then.
    priority: queued requests are sent by descending priority. timeout: seconds; None = the node's default.
    """

    _instead = "pass the values that pull() returns, or call kvstore.create() there"

    def __init__(self, handle: int, node: int) -> None:
        self._handle = handle
        self._node = node
        remember(handle, self)
        self._has_numbers = False
        self._keys: List[Key] = []
        self._type: str = capi.kv_type(handle)
        self._is_dist = self._type.startswith(("dist", "p3"))
        self._optimizer: Optional[Optimizer] = None  # the one that this process has set
        self._told: Tuple[Any, ...] = ()  # its settings and multipliers, as last passed to the library
        self._factors: Dict[Key, Tuple[float, float]] = {}  # multipliers of rate and weight decay, if not 1
        self._updater: Optional[Updater] = None
        self._thread = 0  # the thread that set the updater, and runs it
        self._is_updating = False

    def close(self) -> None:
        """Releases the store in this process, as the end of `with kvstore.create() as kv:` does. A dist type's values
        stay on the servers."""
        if not self.is_closed:
            self.is_closed = True
            try:
                capi.kv_free(self._handle)
            except StateError as refusal:
                self.is_closed = refusal.status != capi.MV_EREENTRANT  # inside of its updater, the store stays open
                raise

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter exits, or the node and its stores are closed
            pass

    def __enter__(self) -> "KVStore":
        return self

    def __exit__(self, *_: object) -> None:
        with unless_forked():
            self.close()

    @property
    def handle(self) -> int:
        """The kv_store, for functions of polyverso.capi."""
        return self._handle

    @property
    def node(self) -> int:
        """The mv_node of a dist type, for functions of polyverso.capi."""
        return self._node

    @property
    def type(self) -> str:
        """The type passed to create(), in lower case."""
        return capi.kv_type(self._handle)

    @property
    def rank(self) -> int:
        """The number of this process among the workers, 0 .. num_workers - 1."""
        return capi.kv_rank(self._handle)

    @property
    def num_workers(self) -> int:
        """The number of workers of the cluster; 1 for stores of one process."""
        return capi.kv_num_workers(self._handle)

    def init(self, key: Union[Key, Sequence[Key]], value: Values) -> None:
        """Creates keys in the store. Dist types: collective, every worker makes the same call; worker 0's values are
        used; returns when they are stored."""
        capi.kv_init(self._handle, key, tensors_of(key, value))
        keys = list(key) if isinstance(key, (list, tuple)) else [key]
        self._has_numbers = not any(isinstance(one, str) for one in keys)
        self._keys += keys
        self._set_factors(keys)

    def push(
        self, key: Union[Key, Sequence[Key]], value: Values, priority: int = 0, *, timeout: Optional[float] = None
    ) -> None:
        """Pushes values through the keys' optimizer; without an optimizer they replace the stored values. A dist_sync
        store first merges all workers' pushes of the same number."""
        values = {"tensors": tensors_of(key, value), "priority": priority}
        self._follow()
        capi.kv_push(self._handle, key, values, call_options(0, timeout))
        if self._optimizer is not None and not self._is_dist:
            self._optimizer._update_count(key)
        self.update()

    def pull(
        self,
        key: Union[Key, Sequence[Key]],
        out: Values = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        timeout: Optional[float] = None,
    ) -> None:
        """Pulls values into `out`. They include this worker's earlier pushes; in a dist_sync store, they also
        include all other pushes of the same rounds. Row-sparse tensors are skipped unless ignore_sparse is False."""
        copies: Copies = []
        values = {"tensors": tensors_of(key, out, copies), "priority": priority}
        options = call_options(0 if ignore_sparse else capi.KV_SPARSE_TOO, timeout)
        self._updated(lambda: capi.kv_pull(self._handle, key, values, options))
        for array, wanted in copies:
            wanted[...] = array

    def pull_async(
        self,
        key: Union[Key, Sequence[Key]],
        out: Values,
        timeout: Optional[float] = None,
        *,
        priority: int = 0,
        ignore_sparse: bool = True,
    ) -> Request:
        """pull() without blocking: returns a request. `out` must not be used before it has finished; its arrays must be
        C-contiguous and writable."""
        copies: Copies = []
        values = {"tensors": tensors_of(key, out, copies), "priority": priority}
        if copies:
            raise ArgumentError(capi.MV_EINVAL, "an asynchronous pull needs C-contiguous, writable arrays")
        options = call_options(capi.MV_ASYNC | (0 if ignore_sparse else capi.KV_SPARSE_TOO), timeout)
        return Request(self._node, self._updated(lambda: capi.kv_pull(self._handle, key, values, options)), out)

    def row_sparse_pull(
        self,
        key: Union[Key, Sequence[Key]],
        out: Values = None,
        priority: int = 0,
        row_ids: Any = None,
        *,
        timeout: Optional[float] = None,
    ) -> None:
        """Pulls some rows of row-sparse keys into row-sparse tensors, which then hold exactly these rows.

        row_ids: ids in any order and shape, repeats allowed. For one key: one array for all outputs, or a list with one
        for each output. For several keys: a list of these, or one for all.
        """
        values, ids = {"tensors": tensors_of(key, out), "priority": priority}, row_ids_of(key, row_ids)
        options = call_options(0, timeout)
        self._updated(lambda: capi.kv_row_sparse_pull(self._handle, key, values, ids, options))

    def row_sparse_pull_async(
        self,
        key: Union[Key, Sequence[Key]],
        out: Values,
        row_ids: Any,
        timeout: Optional[float] = None,
        *,
        priority: int = 0,
    ) -> Request:
        """row_sparse_pull() without blocking: returns a request. `out` must not be used before it has finished."""
        values, ids = {"tensors": tensors_of(key, out), "priority": priority}, row_ids_of(key, row_ids)
        options = call_options(capi.MV_ASYNC, timeout)
        request = self._updated(lambda: capi.kv_row_sparse_pull(self._handle, key, values, ids, options))
        return Request(self._node, request, out)

    def pushpull(
        self,
        key: Union[Key, Sequence[Key]],
        value: Values,
        out: Values = None,
        priority: int = 0,
        *,
        timeout: Optional[float] = None,
    ) -> None:
        """push(), then pull() into `out`, or into `value` if `out` is None."""
        self.push(key, value, priority, timeout=timeout)
        self.pull(key, value if out is None else out, priority, timeout=timeout)

    def broadcast(self, key: Union[Key, Sequence[Key]], value: Values, out: Values, priority: int = 0) -> None:
        """init(), then pull()."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_optimizer(self, optimizer: Union[Optimizer, str]) -> None:
        """Sets the optimizer of all present and future keys: an object of polyverso.optimizer, or its text,
        "mx.adam learning_rate=0.001". One worker calls it, before the pushes to which it should apply; setting an
        equal one again changes nothing. An optimizer with an update() or a schedule in Python works only in a store of
        one process.

        A store of one process follows the object: a changed rate, rescale_grad or multiplier takes effect at the next
        push and keeps the states, and the object counts the updates."""
        if not isinstance(optimizer, (Optimizer, str)):
            raise TypeError(f"an optimizer is an object of polyverso.optimizer or text, not {type(optimizer).__name__}")
        if isinstance(optimizer, Optimizer) and not optimizer.is_native:
            return self.set_updater(get_updater(optimizer))
        before = self._optimizer
        self._optimizer = optimizer if isinstance(optimizer, Optimizer) else None
        try:
            # Reset the old multipliers first: the new optimizer may not support any.
            self._set_factors(self._keys, lambda factors: factors == (1, 1))
            capi.kv_set_optimizer(self._handle, str(optimizer))
        except Exception:
            self._optimizer = before
            self._set_factors(self._keys)
            raise
        self._updater = None
        self._set_factors(self._keys)
        self._told = self._to_tell()

    def _to_tell(self) -> Tuple[Any, ...]:
        made = self._optimizer
        if made is None:
            return ()
        objects = {key: (one.lr_mult, one.wd_mult) for key, one in made.param_dict.items()}
        return made._settings(), dict(made.lr_mult), dict(made.wd_mult), objects

    def _follow(self) -> None:
        """Passes changes of the optimizer object to the library, if there are any since the last time."""
        if self._optimizer is None or self._is_dist:
            return
        now = self._to_tell()
        if now == self._told:
            return
        if not self._optimizer.is_native:  # it now has a schedule in Python
            return self.set_optimizer(self._optimizer)
        if now[0] != self._told[0]:
            capi.kv_set_optimizer(self._handle, str(self._optimizer))
        self._set_factors(self._keys)
        self._told = now

    def _set_factors(self, keys: Sequence[Key], which: Callable[[Tuple[float, float]], bool] = lambda _: True) -> None:
        """Sends the optimizer's multipliers of single keys to the servers, and resets those of an earlier optimizer."""
        for key in keys:
            factors = (1.0, 1.0) if self._optimizer is None else self._optimizer.factors_of(key)
            if which(factors) and factors != self._factors.get(key, (1.0, 1.0)):
                self.set_key_parameters(key, "" if factors == (1, 1) else f"lr_mult={factors[0]} wd_mult={factors[1]}")
                self._factors[key] = factors

    def set_key_parameters(self, key: Union[Key, Sequence[Key]], parameters: str) -> None:
        """Sets multipliers of single keys for MXNet's optimizers, "lr_mult=0.1 wd_mult=0"; "" removes them. An
        optimizer's set_lr_mult(), set_wd_mult() and param_idx2name do so automatically."""
        capi.kv_set_key_parameters(self._handle, key, parameters)

    def set_updater(self, updater: Optional[Updater]) -> None:
        """Sets the updater, which handles pushes in a store of one process instead of replacing the value:
        updater(key, merged, stored) changes `stored` in place, or returns its new values, an array of the same shape.
        It runs on the calling thread, inside that thread's calls on the store. When this thread's push returns, the
        updater has handled it; pushes of other threads wait for this thread's next push, pull or update(). An
        exception in it is the push's error, and the value stays as it was. A tensor that the updater keeps becomes a
        copy when it returns. None: no updater. StateError for dist types, whose values are updated on the servers."""
        if updater is not None and not callable(updater):
            raise TypeError(f"an updater is a function (key, merged, stored), not {type(updater).__name__}")
        capi.kv_set_updater(self._handle, updater is not None)
        self._updater, self._thread = updater, threading.get_ident()
        if updater is not None:
            self._optimizer = None

    _set_updater = set_updater  # MXNet's name

    def update(self) -> None:
        """Runs the updates that wait for this thread's updater. After all have run, raises the first error, if any."""
        if self._updater is None or self._is_updating or threading.get_ident() != self._thread:
            return
        self._is_updating = True
        failure: Optional[Exception] = None
        try:
            merged, stored, key = capi.kv_next_update(self._handle)
            while merged:
                raised = self._update_one(key, merged, stored)
                failure = failure or raised
                merged, stored, key = capi.kv_next_update(self._handle)
        finally:
            self._is_updating = False
        if failure is not None:
            raise failure

    def _update_one(self, key: str, merged: int, stored: int) -> Optional[Exception]:
        outcome = capi.MV_ECANCELED  # if a signal's handler raises
        tensors = [_Lent(merged), _Lent(stored)]
        lent = [weakref.ref(tensor) for tensor in tensors]
        try:
            name = int(key) if self._has_numbers else key
            keep_returned(name, self._updater(name, *tensors), tensors[1])
            outcome = capi.MV_OK
        except Exception as failure:
            outcome = report(failure)
            return failure
        finally:
            tensors.clear()
            for tensor in lent:
                kept = tensor()  # alive: the updater, or the traceback of its exception, refers to it
                if kept is not None:
                    kept.keep_copy()
            capi.kv_update_done(self._handle, outcome)
        return None

    def _updated(self, pull: Callable[[], Any]) -> Any:
        """Calls pull(), and again after update() as long as pushes wait for this thread's updater (MV_EPENDING)."""
        while True:
            try:
                return pull()
            except StateError as failure:
                if failure.status != capi.MV_EPENDING or self._updater is None:
                    raise
            self.update()

    def set_reject_nonfinite(self, on: bool = True) -> None:
        """Keys that are initialised from now on refuse NaN and infinity: a push of such values is an ArgumentError.
        Dist types: all workers make the same call."""
        capi.kv_set_reject_nonfinite(self._handle, int(on))

    def set_gradient_compression(self, compression_params: Union[str, Dict[str, Any]]) -> None:
        """Sets the codec that compresses pushes from now on: {"type": "2bit", "threshold": 0.5}, or as text, "2bit
        threshold=0.5". The sender keeps the residual and adds it to the next push. docs/kvstore.md lists the codecs."""
        capi.kv_set_gradient_compression(self._handle, _codec(compression_params))

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Saves the optimizer's states of all keys from all servers into one file of this process; with dump_optimizer,
        the optimizer and its update counts too. One worker calls it, between two barriers. For an optimizer with an
        update() in Python, the file contains Updater.get_states()."""
        if isinstance(self._updater, OptimizerUpdater):
            return _write_whole(os.fspath(fname), self._updater.get_states(dump_optimizer))
        capi.kv_save_optimizer_states(self._handle, os.fspath(fname), capi.KV_DUMP_OPTIMIZER if dump_optimizer else 0)

    def load_optimizer_states(self, fname: Any) -> None:
        """Loads a file of save_optimizer_states(). A file that does not fit changes nothing."""
        if isinstance(self._updater, OptimizerUpdater):
            with open(fname, "rb") as file:
                states = file.read()
            try:
                return self._updater.set_states(states)
            except ArgumentError as failure:
                raise ArgumentError(failure.status, f"{os.fspath(fname)}: {failure.text}") from failure
        capi.kv_load_optimizer_states(self._handle, os.fspath(fname))

    def send_command(self, head: int, body: str, timeout: Optional[float] = None) -> None:
        """Sends a command of the program's own to all servers, and returns when the controller of each has executed it.
        set_controller() and polyverso.kvstore_server set a controller. If this thread executes commands itself, it
        continues to do so meanwhile."""
        if not _is_controller(self._node):
            return capi.kv_send_command(self._handle, head, body, call_options(0, timeout))
        request = capi.kv_send_command(self._handle, head, body, call_options(capi.MV_ASYNC, timeout))
        while not capi.mv_request_test(request):
            _run_commands(self._node, _MEANWHILE_MS)

    _send_command_to_servers = send_command  # MXNet's name

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Returns when all workers have called it. It does not wait for pushes: their rounds may be open."""
        capi.kv_barrier(self._handle, call_options(0, timeout))

    _barrier = barrier  # MXNet's name

    def leave(self) -> None:
        """This worker stops pushing: rounds continue without it. It may still pull."""
        capi.kv_leave(self._handle)

    def __repr__(self) -> str:
        try:
            return f"<polyverso.KVStore {self.type}, rank {self.rank} of {self.num_workers}>"
        except Error:
            return f"<polyverso.KVStore {self._type}, {self._end}>"


class KVStoreOfServer(KVStore):
    """A store in a process that is only a server: type, rank and number of workers. Everything else is a StateError."""

    def __init__(self, name: str, node: int) -> None:
        self._type, self._node = name, node
        self.is_closed = True  # there is nothing to release

    def __getattr__(self, name: str) -> Any:  # such as _handle, which only a worker's store has
        raise StateError(capi.MV_ESTATE, "this process is only a server: call polyverso.kvstore_server.KVStoreServer(kv).run()")

    @property
    def type(self) -> str:
        """The type passed to create(), in lower case."""
        return self._type

    @property
    def rank(self) -> int:
        """The number of this process among the servers."""
        return capi.mv_server_id(self._node)

    @property
    def num_workers(self) -> int:
        """The number of workers of the cluster."""
        return capi.mv_num_workers(self._node)


class _Lent(Tensor):
    """A tensor that a store lends to its updater. The store owns the handle."""

    __slots__ = ("_is_lent", "__weakref__")

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self._is_lent = True

    def keep_copy(self) -> None:
        """Turns this object into a tensor that owns a copy of the values."""
        copy = self.copy()
        mine = copy.handle
        TensorMemory.__init__(copy, 0)
        TensorMemory.__init__(self, mine)
        self._is_lent = False

    def __del__(self) -> None:
        if self._is_lent:
            TensorMemory.__init__(self, 0)


def _write_whole(path: str, data: bytes) -> None:
    """Writes a file atomically: completely or not at all."""
    partial = f"{path}.{os.getpid()}.part"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _codec(parameters: Union[str, Dict[str, Any]]) -> str:
    if isinstance(parameters, str):
        return parameters
    if not isinstance(parameters, Mapping):
        raise TypeError(f"compression_params is a {type(parameters).__name__}: a dict or text is needed, {{'type': '2bit', 'threshold': 0.5}}")
    words = dict(parameters)
    if "type" not in words:
        example = {"type": "2bit", **(words or {"threshold": 0.5})}
        raise ArgumentError(capi.MV_EINVAL, f"compression_params has no type, as in {example}")
    return " ".join([str(words.pop("type")), *(f"{name}={value}" for name, value in words.items())])


# For each node: the thread that executes the commands sent to its server, and the controller.
_controllers: Dict[int, Tuple[int, Controller]] = {}
_MEANWHILE_MS = 5  # between two tests of a request


def _is_controller(node: int) -> bool:
    return node in _controllers and _controllers[node][0] == threading.get_ident()


def set_controller(controller: Optional[Controller], node: Optional[Node] = None) -> None:
    """Sets the controller, which executes the commands of KVStore.send_command() in this process, a server:
    controller(head, body). It runs on this thread, inside run_commands() and send_command(). Its exception is reported
    to the sender."""
    _set_controller(0 if node is None else node.handle, controller)


def _set_controller(number: int, controller: Optional[Controller]) -> None:
    capi.kv_set_controller(number, controller is not None)
    _controllers.pop(number, None)
    if controller is not None:
        _controllers[number] = (threading.get_ident(), controller)


def serve(node: int, controller: Controller) -> None:
    """Executes commands in this process, which is only a server, until all workers have finished."""
    _set_controller(node, controller)
    while _run_commands(node, -1):
        pass


def run_commands(timeout: float = 0, node: Optional[Node] = None) -> bool:
    """Executes the queued commands. If there are none, waits up to `timeout` seconds for one. False once all workers
    have finished."""
    return _run_commands(0 if node is None else node.handle, milliseconds(timeout) if timeout else 0)


def _run_commands(node: int, timeout_ms: int) -> bool:
    found, head, body = capi.kv_next_command(node, timeout_ms)
    while found == capi.KV_COMMAND_HERE:
        _execute(node, head, body)
        found, head, body = capi.kv_next_command(node, 0)
    return found != capi.KV_COMMAND_NEVER


def _execute(node: int, head: int, body: str) -> None:
    outcome = capi.MV_ECANCELED  # if a signal's handler raises
    try:
        _controllers[node][1](head, body)
        outcome = capi.MV_OK
    except Exception as failure:
        outcome = report(failure)
    finally:
        capi.kv_command_done(node, outcome)


# Last, because it does not return in a process that a DMLC tracker started as server or scheduler.
kvstore_server._init_kvstore_server_module()
