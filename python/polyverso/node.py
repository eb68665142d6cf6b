"""Nodes: members of a cluster."""

from __future__ import annotations

import json
import operator
import os
import socket
import sys
from typing import Any, Callable, Dict, List, Optional, Union

from . import capi, handles, leaving, membership
from .arrays import as_table_values, check_shape, code_of, milliseconds
from .devices import Device
from .errors import ArgumentError, Error
from .names import suggests
from .optimizer import Optimizer, updater_text
from .request import Request
from .table import Table, call_options, forget_tables, open_tables


def _options(settings: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """mv_init_options as a mapping. log_level is not a field of it, and moves to the field `text`."""
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(given.get("metrics"), int):
        given["metrics"] = str(given["metrics"])
    level = given.pop("log_level", None)
    if level is not None:
        given["text"] = f"{given.get('text') or ''} log_level={level}"
    return given or None


@suggests
def init(
    *,
    sync: Optional[bool] = None,
    role: Union[str, int, None] = None,
    rank: Optional[int] = None,
    nodes: Optional[int] = None,
    master: Optional[str] = None,
    bind: Optional[str] = None,
    advertise: Optional[str] = None,
    secret: Optional[str] = None,
    transport: Optional[str] = None,
    timeout_ms: Optional[int] = None,
    gate_timeout_ms: Optional[int] = None,
    init_timeout_ms: Optional[int] = None,
    heartbeat_timeout_ms: Optional[int] = None,
    inflight_bytes: Optional[int] = None,
    spin_us: Optional[int] = None,
    checkpoint: Optional[str] = None,
    checkpoint_every_ms: Optional[int] = None,
    checkpoint_keep: Optional[int] = None,
    metrics: Union[str, int, None] = None,
    replicas: Optional[int] = None,
    log_level: Optional[str] = None,
    faults: Optional[str] = None,
    text: Optional[str] = None,
) -> "Node":
    """Joins the cluster that the settings or the environment describe. Returns when all of its processes have joined.

    Every setting that is None comes from its variable POLYVERSO_<NAME>, else from the launcher, or has its default.
    Without settings and `polyverso run`, this process is a cluster of one.

    sync: True = sync mode, False = async; None = as other processes set it.
    role: "all" (worker and server, the default), "worker" or "server".
    rank, nodes, master: the place of this process among `nodes` processes; "host:port" where rank 0 listens.
    bind, advertise: the network interface or address to listen at, and what others are told instead.
    secret: the shared secret that members prove to each other.
    transport: "auto", "shm", "tcp", "ucx", "mpi" or "inproc"; docs/transports.md describes them.
    timeout_ms, gate_timeout_ms, init_timeout_ms, heartbeat_timeout_ms: the limits of requests, of barriers and other
    waits for workers, of joining, and of silence.
    inflight_bytes: the limit of unfinished asynchronous adds. spin_us: how long a wait spins before it sleeps.
    checkpoint, checkpoint_every_ms, checkpoint_keep: a directory for automatic checkpoints, how often, how many are kept.
    replicas: the number of other servers that keep a copy of each server's tables, and take over if it dies (default: 0).
    metrics: the port of an HTTP server with metrics. log_level: "off", "error", "warn", "info", "debug" or "trace".
    faults: of the network, for tests. text: settings as one text, "sync=1 timeout_ms=500".

    Calls are counted: each init() needs one shutdown(), which the end of `with polyverso.init() as node:` makes.
    Raises StateError if settings contradict an earlier init(), PeerError or TimeoutError if joining failed.
    """
    capi.mv_init(_options(dict(locals())))
    return Node(0)


@suggests
def open_node(
    *,
    sync: Optional[bool] = None,
    role: Union[str, int, None] = None,
    rank: Optional[int] = None,
    nodes: Optional[int] = None,
    master: Optional[str] = None,
    bind: Optional[str] = None,
    advertise: Optional[str] = None,
    secret: Optional[str] = None,
    transport: Optional[str] = None,
    timeout_ms: Optional[int] = None,
    gate_timeout_ms: Optional[int] = None,
    init_timeout_ms: Optional[int] = None,
    heartbeat_timeout_ms: Optional[int] = None,
    inflight_bytes: Optional[int] = None,
    spin_us: Optional[int] = None,
    checkpoint: Optional[str] = None,
    checkpoint_every_ms: Optional[int] = None,
    checkpoint_keep: Optional[int] = None,
    metrics: Union[str, int, None] = None,
    replicas: Optional[int] = None,
    log_level: Optional[str] = None,
    faults: Optional[str] = None,
    text: Optional[str] = None,
) -> "Node":
    """Starts a further node in this process, for tests and for several clusters at once. Settings as for init()."""
    return Node(capi.mv_node_open(_options(dict(locals()))))


def join(listener: Optional[socket.socket] = None, **settings: Any) -> "Node":
    """init() of the cluster that the settings describe, wherever the launcher has placed this process. listener: rank 0's
    socket, which listens at the master's address already; the node takes it over."""
    # The library drops a socket that comes with another master's address than the environment's.
    places = [f"POLYVERSO_{name}" for name in ("RANK", "ROLE", "MASTER", "KEEPER", "LISTEN_FD", "EXITS")]
    before = {name: os.environ.pop(name) for name in places if name in os.environ}
    if listener is not None:
        os.environ["POLYVERSO_LISTEN_FD"] = str(listener.detach())
    try:
        return init(**settings)
    finally:
        os.environ.pop("POLYVERSO_LISTEN_FD", None)
        os.environ.update(before)


def inspect_checkpoint(path: Any) -> Any:
    """The contents of a checkpoint, a directory of checkpoints, or one of their files: tables with their specs, files,
    sizes, checksums, and "damage": what is wrong with it, if anything. Needs no node. ArgumentError (MV_ENOTFOUND) if
    there is none."""
    return json.loads(capi.mv_checkpoint_inspect(os.fspath(path)))


def doctor(reach: bool = False) -> Dict[str, Any]:
    """Reports what was detected, and how to fix what does not work; docs/operations.md lists the fields. Describes the
    running node after init(), otherwise what init() would do. With reach, tests only the connection to the master that
    POLYVERSO_MASTER names."""
    return json.loads(capi.mv_doctor_text(0, capi.MV_JSON | (capi.MV_REACH if reach else 0)))


class Node(handles.Handle):
    """A member of a cluster; from init() or open_node()."""

    _instead = "call polyverso.init() in the other process, with a rank of its own"

    def __init__(self, handle: int) -> None:
        self._handle = handle
        if handle:
            handles.remember(handle, self)
        leaving.opened(handle)

    @property
    def handle(self) -> int:
        """The mv_node, for functions of polyverso.capi."""
        return self._handle

    @property
    def rank(self) -> int:
        """The rank of this process in the cluster, 0 .. size - 1."""
        return capi.mv_rank(self._handle)

    @property
    def size(self) -> int:
        """The number of processes in the cluster."""
        return capi.mv_size(self._handle)

    @property
    def worker_id(self) -> int:
        """The number of this process among the workers; -1 for a process that is only a server."""
        return capi.mv_worker_id(self._handle)

    @property
    def num_workers(self) -> int:
        """The number of workers when this process joined; active_workers counts those that are there now."""
        return capi.mv_num_workers(self._handle)

    @property
    def active_workers(self) -> int:
        """The number of workers that have neither finished nor are lost, as far as this process knows. With room for
        more (max_workers, `polyverso run --max-workers`), new ones may join at any time."""
        return capi.mv_active_workers(self._handle)

    @property
    def server_id(self) -> int:
        """The number of this process among the servers; -1 for a process that is only a worker."""
        return capi.mv_server_id(self._handle)

    @property
    def num_servers(self) -> int:
        """The number of servers in the cluster."""
        return capi.mv_num_servers(self._handle)

    @property
    def is_master(self) -> bool:
        """True on worker 0."""
        return bool(capi.mv_is_master(self._handle))

    @property
    def is_sync(self) -> bool:
        """True in sync mode."""
        return bool(capi.mv_is_sync(self._handle))

    @property
    def event_fd(self) -> int:
        """Readable while finished requests wait for poll(). Never read or close it."""
        return capi.mv_event_fd(self._handle)

    def poll(self, capacity: int = 64, timeout: float = 0) -> List[int]:
        """At most `capacity` handles of requests that have finished since the last call; `timeout`: seconds to wait for
        the first. Runs the callback of on_membership() for what has happened; that ends the wait, too."""
        finished = capi.mv_poll(self._handle, capacity, milliseconds(timeout) if timeout else 0)
        membership.hand_out(self._handle)
        return finished

    def next_event(self, timeout: float = 0) -> Optional[Dict[str, Any]]:
        """The oldest change of the cluster's membership that was not returned yet, or None; `timeout`: seconds to wait for one.

        kind: "joined", "left", "lost", "draining", "drained" or "took_over"; rank, role: the member's; part: the rank
        whose tables a server has taken over; epoch: of the list of members; reason: a sentence; dropped: older events
        that were dropped, because more than 256 waited."""
        return membership.next_event(self._handle, milliseconds(timeout) if timeout else 0)

    def on_membership(self, callback: Optional[Callable[[Dict[str, Any]], Any]]) -> None:
        """Calls `callback` with each event, as next_event() returns it, inside poll() or while asyncio waits for a
        request. None: no longer."""
        if callback is not None and not callable(callback):
            raise TypeError(f"on_membership() takes a function or None, not {callback!r}")
        membership.news_of(self._handle).callback = callback
        membership.hand_out(self._handle)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Waits until this worker's adds are applied and every worker has called it."""
        capi.mv_barrier(self._handle, call_options(0, timeout))

    def barrier_async(self, timeout: Optional[float] = None) -> Request:
        """barrier() without blocking: returns a request."""
        return Request(self._handle, capi.mv_barrier(self._handle, call_options(capi.MV_ASYNC, timeout)))

    @suggests
    def array(
        self,
        size: int,
        dtype: Any = "float32",
        name: Optional[str] = None,
        init: Any = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Union[str, Optimizer, None] = None,
        staleness: Optional[int] = None,
        no_backups: bool = False,
        device: Any = None,
    ) -> Table:
        """Creates an array of `size` numbers. Collective: every worker makes the same call.

        dtype: float32, float64, int64, int32, uint8, int8, float16, or "bf16".
        init: (size,) initial values; worker 0's are used; None = zeros.
        reject_nonfinite: refuse adds, sets and initial values with NaN or infinity.
        merge: every worker's i-th add is its part of round i; the sum of a round goes through the updater once.
        updater: how the servers apply adds, "adagrad rate=0.1" or an optimizer of polyverso.optimizer; None = add.
        Table.set_updater() changes it.
        staleness: how many clocks (Table.clock()) a worker may be ahead of the slowest one in its gets; 0 = sync mode
        for this table; None = the node's mode.
        no_backups: replicas=0 for this table: in a cluster with replicas its calls cost as without them, and if one of
        its servers is lost, calls on that part fail until the table is loaded, or destroyed and created again.
        device: "cuda:0": each server keeps its part in the memory of its device of this number, and applies adds there;
        None = the host's memory.
        Raises StateError (MV_EDISAGREE) if the workers' calls differ, ArgumentError if `init` does not fit.
        """
        spec = {"kind": capi.MV_ARRAY, "size": _length(size), "name": name, "updater": updater, "staleness": staleness}
        spec["device"] = Device(device).number
        return self._create(spec, dtype, init, reject_nonfinite, merge, no_backups)

    @suggests
    def matrix(
        self,
        rows: int,
        cols: int,
        dtype: Any = "float32",
        name: Optional[str] = None,
        init: Any = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Union[str, Optimizer, None] = None,
        staleness: Optional[int] = None,
        no_backups: bool = False,
        device: Any = None,
    ) -> Table:
        """Creates a matrix of shape (rows, cols); otherwise like array()."""
        rows, cols = _whole("rows", rows), _whole("cols", cols)
        spec = {"kind": capi.MV_MATRIX, "rows": rows, "cols": cols, "name": name, "updater": updater}
        spec.update(staleness=staleness, device=Device(device).number)
        return self._create(spec, dtype, init, reject_nonfinite, merge, no_backups)

    @suggests
    def sparse(
        self,
        rows: int,
        cols: int,
        dtype: Any = "float32",
        name: Optional[str] = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Union[str, Optimizer, None] = None,
        staleness: Optional[int] = None,
        no_backups: bool = False,
        initial: float = 0.0,
        initial_range: float = 0.0,
        seed: int = 0,
        device: Any = None,
    ) -> Table:
        """Creates a sparse matrix of shape (rows, cols): only rows that were changed are stored and transferred.

        initial: the value of all elements in the other rows.
        initial_range, seed: with a range, each of these elements is random in initial +- initial_range instead, always
        the same for the same seed, row and column.
        Otherwise like array().
        """
        rows, cols = _whole("rows", rows), _whole("cols", cols)
        spec = {"kind": capi.MV_SPARSE, "rows": rows, "cols": cols, "name": name, "updater": updater}
        spec.update(staleness=staleness, initial=initial, initial_range=initial_range, seed=seed, device=Device(device).number)
        return self._create(spec, dtype, None, reject_nonfinite, merge, no_backups)

    @suggests
    def keyvalue(
        self,
        cols: int = 1,
        dtype: Any = "float32",
        name: Optional[str] = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Union[str, Optimizer, None] = None,
        staleness: Optional[int] = None,
        no_backups: bool = False,
        initial: float = 0.0,
        initial_range: float = 0.0,
        seed: int = 0,
        capacity: int = 0,
        device: Any = None,
    ) -> Table:
        """Creates a key-value table: `cols` numbers under any 64-bit key. Only keys that were changed are stored.

        capacity: keys kept on all servers together; beyond it, each server drops its least recently used keys.
        0 = no limit; not on devices.
        Otherwise like sparse().
        """
        spec = {"kind": capi.MV_KEYVALUE, "rows": 0, "cols": _whole("cols", cols), "name": name, "updater": updater}
        spec.update(staleness=staleness, initial=initial, initial_range=initial_range, seed=seed, capacity=capacity, device=Device(device).number)
        return self._create(spec, dtype, None, reject_nonfinite, merge, no_backups)

    def _create(self, spec: Dict[str, Any], dtype: Any, init: Any, reject_nonfinite: bool, merge: bool, no_backups: bool) -> Table:
        spec["dtype"] = code_of(dtype)
        spec["updater"] = updater_text(spec["updater"])
        spec.update(reject_nonfinite=int(reject_nonfinite), merge=int(merge), no_backups=int(no_backups))
        values = None if init is None else as_table_values(init, spec["dtype"])
        if values is not None and "cols" in spec:
            check_shape("init", values.shape, (spec["rows"], spec["cols"]))
        try:
            return Table(self._handle, capi.mv_table_create(self._handle, spec, values))
        except Error as failure:
            failure.rename("node.array()", f"node.{_KINDS[spec['kind']]}()")
            raise

    def open(self, name: str) -> Table:
        """Opens an existing table. ArgumentError (MV_ENOTFOUND) if there is none of this name."""
        return Table(self._handle, capi.mv_table_open(self._handle, name))

    def doctor(self) -> Dict[str, Any]:
        """polyverso.doctor() of this node: the transport to each peer, why not a better one, and its response time."""
        return json.loads(capi.mv_doctor_text(self._handle, capi.MV_JSON))

    def tables(self) -> List[Dict[str, Any]]:
        """The cluster's tables: [{"name": ..., "kind": ..., "dtype": ..., "rows": ..., "cols": ..., ...}]."""
        return json.loads(capi.mv_table_list(self._handle))

    def status(self) -> Dict[str, Any]:
        """The status of the cluster: its members, its tables, and which process waits for which. docs/operations.md
        lists the fields. Answers within four seconds, even if other processes are stopped, silent or lost."""
        return json.loads(capi.mv_status_text(self._handle, capi.MV_JSON))

    def status_text(self) -> str:
        """status() as text for people."""
        return capi.mv_status_text(self._handle, 0)

    def report(self, name: str, value: float) -> None:
        """Shows a number of this program, such as report("loss", loss), in the cluster's status and in metrics(): the
        latest of each name. At most 64 names. Sends nothing, and never waits."""
        capi.mv_report(self._handle, name, float(value))

    def metrics(self) -> str:
        """This process's metrics in Prometheus's text format."""
        return capi.mv_metrics_text(self._handle)

    def trace(self) -> Dict[str, Any]:
        """The last messages, calls and waits of this process in Chrome's trace event format: json.dump() it for
        ui.perfetto.dev."""
        return json.loads(capi.mv_trace_text(self._handle))

    def save(self, directory: Any, keep: int = 0, timeout: Optional[float] = None) -> None:
        """Saves all tables, with their updaters' states and clocks, and returns when they are on the disk. Collective:
        every worker calls it. The checkpoint includes everything that each worker did before its call, and nothing
        after it.

        directory: must have this path on all servers, which create it if it is missing, with its parents, and warn of
        those; the checkpoint is "checkpoint-<number>" in it.
        keep: how many checkpoints are kept in it, the newest ones; 0 = all.
        Raises SystemFailure (MV_ESYSTEM) with the file and the reason, such as a full disk; earlier checkpoints are
        untouched.
        """
        capi.mv_checkpoint_save(self._handle, os.fspath(directory), keep, call_options(0, timeout))

    def save_async(self, directory: Any, keep: int = 0, timeout: Optional[float] = None) -> Request:
        """save() without blocking: returns a request, as soon as training may continue."""
        options = call_options(capi.MV_ASYNC, timeout)
        return Request(self._handle, capi.mv_checkpoint_save(self._handle, os.fspath(directory), keep, options))

    def load(self, path: Any, timeout: Optional[float] = None) -> None:
        """Loads all tables of a checkpoint, on any number of servers. Collective, between two barriers. Missing tables
        are created; array(), matrix() and so on, or open(), then find them with their values.

        path: a checkpoint, or a directory of checkpoints: then its newest complete one.
        Raises ArgumentError if there is none or it is damaged, with the reason, and StateError (MV_EDISAGREE) if an
        existing table has another spec than the checkpoint's. Nothing was changed then.
        """
        capi.mv_checkpoint_load(self._handle, os.fspath(path), call_options(0, timeout))

    def load_async(self, path: Any, timeout: Optional[float] = None) -> Request:
        """load() without blocking: returns a request."""
        options = call_options(capi.MV_ASYNC, timeout)
        return Request(self._handle, capi.mv_checkpoint_load(self._handle, os.fspath(path), options))

    def shutdown(self) -> None:
        """Leaves the cluster. A process that is also a server serves until every worker has finished. The end of a
        `with` calls it, unless it was called already; so does the end of a process that exits with status 0."""
        capi.mv_shutdown(self._handle)
        self.is_closed = True
        if not self._is_alive():
            self._forget()

    def drain(self, timeout: float = 30.0) -> None:
        """Hands the tables of this process, which must be a server, over to other servers. Afterwards shutdown() does
        not wait for the workers. Nothing is lost, and workers' calls only take longer. `polyverso server` does it at
        SIGTERM. A process that is also a worker finishes as a worker first: it can use no tables, stores or groups any
        more, and no other worker waits for it.

        timeout: in seconds; math.inf: no limit; 0: only begin. After a TimeoutError the drain continues, and this
        server still serves."""
        capi.mv_cluster_drain(self._handle, milliseconds(timeout) if timeout else 0)

    def resize(self, servers: int, timeout: float = 60.0) -> None:
        """Changes the number of the cluster's servers, if it was started with room for them (max_servers,
        `polyverso run --max-servers`). With fewer than now, those with the highest ranks drain and leave; with more,
        `polyverso run` starts the missing ones. Workers continue meanwhile; their calls only take longer.

        servers is 1 to max_servers, timeout the seconds to wait until the cluster has them. math.inf: no limit; 0: only
        for the master's answer. After a TimeoutError the change continues; the message says what is missing."""
        capi.mv_cluster_resize(self._handle, servers, milliseconds(timeout) if timeout else 0)

    def abort(self, reason: str = "") -> None:
        """Leaves the cluster as lost, without waiting: other processes' calls that need this one fail with a PeerError
        that has the reason. An exception that leaves a `with polyverso.init():`, or that nothing catches, does so."""
        capi.mv_abort(self._handle, reason)
        self.is_closed = True
        self._forget()

    def _forget(self) -> None:
        leaving.ended(self._handle)
        membership.forget(self._handle)
        forget_tables(self._handle)
        watch = sys.modules.get(f"{__package__}.watch")  # not imported before somebody awaits
        if watch is not None:
            watch.forget(self._handle)

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if self.is_closed:
            return
        if not leaving.is_failure(error):
            with leaving.unless_forked():
                self.shutdown()
            return
        leaving.abort(self._handle, leaving.reason_of(error))
        self.is_closed = True
        self._forget()

    def _is_alive(self) -> bool:
        """False after the last shutdown()."""
        try:
            capi.mv_rank(self._handle)
        except Error:
            return False
        return True

    def __repr__(self) -> str:
        try:
            mode = "sync" if self.is_sync else "async"
            if self.worker_id >= 0:
                place = f"worker {self.worker_id} of {self.num_workers}"
            else:
                place = f"server {self.server_id} of {self.num_servers}"
        except Error:
            return "<polyverso.Node after shutdown>"
        count = open_tables(self._handle)
        return f"<polyverso.Node {place}, {mode}, {count} table{'' if count == 1 else 's'}>"


_KINDS = {capi.MV_ARRAY: "array", capi.MV_MATRIX: "matrix", capi.MV_SPARSE: "sparse", capi.MV_KEYVALUE: "keyvalue"}


def _whole(name: str, value: Any) -> int:
    """A length, from any number without a fraction."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(capi.MV_EINVAL, f"{name} is {value!r}: a whole number is needed") from None


def _length(size: Any) -> int:
    if isinstance(size, (tuple, list)):
        if len(size) != 1:
            lengths = ", ".join(map(str, size))
            raise ArgumentError(capi.MV_EINVAL, f"node.array(({lengths})): an array has one dimension; node.matrix({lengths}) has two")
        size = size[0]
    return _whole("size", size)
