"""Nodes: members of a cluster."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from . import capi
from .arrays import as_table_values, code_of, milliseconds
from .request import Request
from .table import Table, call_options


def _options(settings: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """mv_init_options as a mapping. log_level is not a field of it, and moves to the field `text`."""
    level = settings.pop("log_level", None)
    if level is not None:
        settings["text"] = f"{settings.get('text') or ''} log_level={level}"
    return settings or None


def init(**settings: Any) -> "Node":
    """Joins the cluster that the settings or the environment describe. Returns when all of its processes have joined.

    settings: the fields of mv_init_options in polyverso.h (sync=True, rank=0, nodes=4, master="host:port", secret=...,
    timeout_ms=...), and log_level="info". Without settings and `polyverso run`, this process is a cluster of one.
    Calls are counted: each init() needs one shutdown(), which the end of `with polyverso.init() as node:` makes.
    Raises StateError if settings contradict an earlier init(), PeerError or TimeoutError if joining failed.
    """
    capi.mv_init(_options(settings))
    return Node(0)


def open_node(**settings: Any) -> "Node":
    """Starts a further node in this process, for tests and for several clusters at once. Settings as for init()."""
    return Node(capi.mv_node_open(_options(settings)))


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


class Node:
    """A member of a cluster; from init() or open_node()."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._is_shut_down = False

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
        return capi.mv_num_workers(self._handle)

    @property
    def server_id(self) -> int:
        """The number of this process among the servers; -1 for a process that is only a worker."""
        return capi.mv_server_id(self._handle)

    @property
    def num_servers(self) -> int:
        return capi.mv_num_servers(self._handle)

    @property
    def is_master(self) -> bool:
        """True on worker 0."""
        return bool(capi.mv_is_master(self._handle))

    @property
    def is_sync(self) -> bool:
        return bool(capi.mv_is_sync(self._handle))

    @property
    def event_fd(self) -> int:
        """Readable while finished requests wait for poll(). Never read or close it."""
        return capi.mv_event_fd(self._handle)

    def poll(self, capacity: int = 64, timeout: float = 0) -> List[int]:
        """At most `capacity` handles of requests that have finished since the last call; `timeout`: seconds to wait for
        the first."""
        return capi.mv_poll(self._handle, capacity, milliseconds(timeout) if timeout else 0)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Waits until this worker's adds are applied and every worker has called it."""
        capi.mv_barrier(self._handle, call_options(0, timeout))

    def barrier_async(self, timeout: Optional[float] = None) -> Request:
        """barrier() without blocking: returns a request."""
        return Request(self._handle, capi.mv_barrier(self._handle, call_options(capi.MV_ASYNC, timeout)))

    def array(
        self,
        size: int,
        dtype: Any = "float32",
        name: Optional[str] = None,
        init: Any = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Optional[str] = None,
        staleness: Optional[int] = None,
    ) -> Table:
        """Creates an array of `size` numbers. Collective: every worker makes the same call.

        dtype: float32, float64, int64, int32, uint8, int8, float16, or "bf16".
        init: (size,) initial values; worker 0's are used; None = zeros.
        reject_nonfinite: refuse adds, sets and initial values with NaN or infinity.
        merge: every worker's i-th add is its part of round i; the sum of a round goes through the updater once.
        updater: how the servers apply adds, "adagrad rate=0.1"; None = add. Table.set_updater() changes it.
        staleness: how many clocks (Table.clock()) a worker may be ahead of the slowest one in its gets; 0 = sync mode
        for this table; None = the node's mode.
        Raises StateError (MV_EDISAGREE) if the workers' calls differ, ArgumentError if `init` does not fit.
        """
        spec = {"kind": capi.MV_ARRAY, "rows": size, "name": name, "updater": updater, "staleness": staleness}
        return self._create(spec, dtype, init, reject_nonfinite, merge)

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
        updater: Optional[str] = None,
        staleness: Optional[int] = None,
    ) -> Table:
        """Creates a matrix of shape (rows, cols); otherwise like array()."""
        spec = {"kind": capi.MV_MATRIX, "rows": rows, "cols": cols, "name": name, "updater": updater}
        spec["staleness"] = staleness
        return self._create(spec, dtype, init, reject_nonfinite, merge)

    def sparse(
        self,
        rows: int,
        cols: int,
        dtype: Any = "float32",
        name: Optional[str] = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Optional[str] = None,
        staleness: Optional[int] = None,
        initial: float = 0.0,
        initial_range: float = 0.0,
        seed: int = 0,
    ) -> Table:
        """Creates a sparse matrix of shape (rows, cols): only rows that were changed are stored and transferred.

        initial: the value of all elements in the other rows.
        initial_range, seed: with a range, each of these elements is random in initial +- initial_range instead, always
        the same for the same seed, row and column.
        Otherwise like array().
        """
        spec = {"kind": capi.MV_SPARSE, "rows": rows, "cols": cols, "name": name, "updater": updater}
        spec.update(staleness=staleness, initial=initial, initial_range=initial_range, seed=seed)
        return self._create(spec, dtype, None, reject_nonfinite, merge)

    def keyvalue(
        self,
        cols: int = 1,
        dtype: Any = "float32",
        name: Optional[str] = None,
        reject_nonfinite: bool = False,
        merge: bool = False,
        *,
        updater: Optional[str] = None,
        staleness: Optional[int] = None,
        initial: float = 0.0,
        initial_range: float = 0.0,
        seed: int = 0,
        capacity: int = 0,
    ) -> Table:
        """Creates a key-value table: `cols` numbers under any 64-bit key. Only keys that were changed are stored.

        capacity: keys kept on all servers together; beyond it, each server drops its least recently used keys.
        0 = no limit.
        Otherwise like sparse().
        """
        spec = {"kind": capi.MV_KEYVALUE, "rows": 0, "cols": cols, "name": name, "updater": updater}
        spec.update(staleness=staleness, initial=initial, initial_range=initial_range, seed=seed, capacity=capacity)
        return self._create(spec, dtype, None, reject_nonfinite, merge)

    def _create(self, spec: Dict[str, Any], dtype: Any, init: Any, reject_nonfinite: bool, merge: bool) -> Table:
        spec["dtype"] = code_of(dtype)
        spec.update(reject_nonfinite=int(reject_nonfinite), merge=int(merge))
        values = None if init is None else as_table_values(init, spec["dtype"])
        return Table(self._handle, capi.mv_table_create(self._handle, spec, values))

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

        directory: must have this path on all servers; the checkpoint is "checkpoint-<number>" in it.
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
        `with` calls it, unless it was called already."""
        capi.mv_shutdown(self._handle)
        self._is_shut_down = True

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_shut_down:
            self.shutdown()

    def __repr__(self) -> str:
        return f"<polyverso.Node mv_node {self._handle}>"
