"""Multiverso's functions: joining and leaving a cluster, and the roles of this process in it."""

import functools
import os
import warnings
from typing import Any, Callable, TypeVar

from polyverso import capi
from polyverso.errors import Error

# Polyverso's names in the messages of its errors, and this module's.
_NAMES = {
    "polyverso.init()": "multiverso.init()",
    "node.shutdown()": "multiverso.shutdown()",
    "node.barrier()": "multiverso.barrier()",
    "node.num_workers": "multiverso.workers_num()",
    "node.worker_id": "multiverso.worker_id()",
    "node.server_id": "multiverso.server_id()",
    "node.is_master": "multiverso.is_master_worker()",
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def in_our_words(function: _Function) -> _Function:
    """Makes a function raise errors that have this module's names."""

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except Error as failure:
            for theirs, ours in _NAMES.items():
                failure.rename(theirs, ours)
            raise

    return call  # type: ignore[return-value]


@in_our_words
def init(sync: bool = False) -> None:
    """Joins the cluster; call it once, before training.

    sync: every worker makes the same adds and gets in the same order, and the get() of all workers return the same
    values. Otherwise (async) workers run freely; barrier() and add(sync=True) order them where necessary. All workers
    must pass the same. `polyverso run --sync` (POLYVERSO_SYNC=1) overrules False, with a RuntimeWarning.
    `polyverso run` or the environment define the cluster; without them it consists of this process alone.
    Raises polyverso.StateError if a second init() contradicts the first, PeerError or TimeoutError if joining failed.
    """
    follows = not sync and "POLYVERSO_SYNC" in os.environ
    capi.mv_init(None if follows else {"sync": int(bool(sync))})
    if follows and capi.mv_is_sync(0):
        text = f"multiverso.init(sync=False): POLYVERSO_SYNC={os.environ['POLYVERSO_SYNC']} overrules it: sync mode"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


@in_our_words
def shutdown() -> None:
    """Leaves the cluster; call it once, after training. Waits until this worker's adds are applied."""
    capi.mv_shutdown(0)


@in_our_words
def barrier() -> None:
    """Waits until all workers have called it and all their earlier adds are applied."""
    capi.mv_barrier(0)


@in_our_words
def workers_num() -> int:
    """The number of workers."""
    return capi.mv_num_workers(0)


@in_our_words
def worker_id() -> int:
    """This worker's number, 0 .. workers_num() - 1; -1 in a process that is only a server."""
    return capi.mv_worker_id(0)


@in_our_words
def server_id() -> int:
    """This server's number, from 0; -1 in a process that is only a worker."""
    return capi.mv_server_id(0)


@in_our_words
def is_master_worker() -> bool:
    """Whether this is worker 0, whose initial values are used, and which should validate and print."""
    return bool(capi.mv_is_master(0))
