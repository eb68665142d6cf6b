"""How the ranks of torch.distributed become workers of a cluster, and the workers of a cluster ranks."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import math
import os
import secrets
import socket
import threading
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from .. import capi
from ..devices import local_device
from ..errors import StateError
from ..group import Group
from ..node import Node, init, join


class _Membership:
    """This process's place in the cluster, as long as process groups use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node: Optional[Node] = None
        self._groups: List[Group] = []

    def open_group(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Group:
        with self._lock:
            # Keys of an earlier process group in the same store must not be read again.
            store = dist.PrefixStore(str((store.add("opened", 1) - 1) // size), store)
            if self._node is None or not self._is_used():
                self._leave()
                self._node = _join(store, rank, size, timeout)
            group = Group(self._node, _workers(store, self._node, rank, size))
            self._groups.append(group)
            return group

    def leave(self) -> None:
        """Leaves the cluster, unless a group still uses it."""
        with self._lock:
            if not self._is_used():
                self._leave()

    def _is_used(self) -> bool:
        return any(not group.is_closed for group in self._groups)

    def _leave(self) -> None:
        node, self._node, self._groups = self._node, None, []
        if node is not None:
            node.shutdown()


_membership = _Membership()


def open_group(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Tuple[Group, Callable[[], None]]:
    """The group of a new process group. Joins a cluster first, unless this process is in one. The second result is to
    be called after the group was closed."""
    return _membership.open_group(store, rank, size, timeout), _membership.leave


def _workers(store: Any, node: Node, rank: int, size: int) -> List[int]:
    """The worker ids of the ranks."""
    store.set(f"worker {rank}", str(node.worker_id))
    workers = [int(store.get(f"worker {other}")) for other in range(size)]
    if workers != sorted(set(workers)):
        raise StateError(
            capi.MV_EDISAGREE, f"the ranks of torch.distributed are the workers {workers} of the cluster: they must be in the same order"
        )
    return workers


def _join(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Node:
    """Joins the cluster of all ranks: the one that this process is in already, or a new one, whose address and secret
    go through `store`."""
    if _in_cluster():
        return init()
    limit = max(1, math.ceil(timeout.total_seconds() * 1000))
    if size == 1:
        return init(nodes=1)
    store.set(f"host {rank}", socket.gethostname())
    if rank > 0:
        bind, master, secret = store.get("master").decode().split()
        return join(rank=rank, nodes=size, master=master, secret=secret, bind=bind, init_timeout_ms=limit)
    hosts = {store.get(f"host {other}") for other in range(size)}
    bind = "127.0.0.1" if len(hosts) == 1 else "0.0.0.0"
    address = bind if len(hosts) == 1 else os.environ.get("MASTER_ADDR") or socket.gethostname()
    with socket.create_server((bind, 0)) as listener:
        master, secret = f"{address}:{listener.getsockname()[1]}", secrets.token_hex(16)
        store.set("master", f"{bind} {master} {secret}")
        return join(listener, rank=0, nodes=size, master=master, secret=secret, bind=bind, init_timeout_ms=limit)


def _in_cluster() -> bool:
    with contextlib.suppress(StateError):
        capi.mv_rank(0)
        return True
    return False


# ------------------------------------------------------------------ without torchrun


def started_by_polyverso() -> bool:
    return "POLYVERSO_RANK" in os.environ and "POLYVERSO_NODES" in os.environ


def set_variables() -> None:
    """Under `polyverso run`, sets the variables that torchrun sets and scripts read, unless they are set."""
    if started_by_polyverso() and "RANK" not in os.environ and os.environ.get("POLYVERSO_ROLE", "all") == "all":
        os.environ["RANK"] = os.environ["POLYVERSO_RANK"]
        os.environ["WORLD_SIZE"] = os.environ["POLYVERSO_NODES"]
        os.environ["LOCAL_RANK"] = str(local_device())


def accept_clusters() -> None:
    """Extends the rendezvous env://, the default: without MASTER_ADDR it is made through the cluster that the launcher
    of this process has described to the library (`polyverso run`, mpirun, srun)."""
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    usual = handlers["env"]

    def handler(url: str, timeout: datetime.timedelta = default_pg_timeout, **named: Any) -> Iterator[Any]:
        if os.environ.get("MASTER_ADDR"):
            yield from usual(url, timeout=timeout, **named)
        else:
            yield _through_cluster(timeout)
            raise RuntimeError("env:// can't make a second rendezvous")

    handlers["env"] = handler


def _through_cluster(timeout: datetime.timedelta) -> Tuple[Any, int, int]:
    """A store for all workers, whose address rank 0 tells the others."""
    import numpy as np

    node = init()
    with Group(node) as group:
        address = np.zeros(256, np.uint8)
        server = None
        if group.rank == 0:
            host = "127.0.0.1" if group.info["hosts"] == 1 else socket.gethostname()
            server = dist.TCPStore(host, 0, group.size, True, timeout, wait_for_workers=False)
            text = f"{host} {server.port}".encode()
            address[: len(text)] = list(text)
        group.broadcast(address)
        host, port = address.tobytes().rstrip(b"\0").decode().split()
        store = server or dist.TCPStore(host, int(port), group.size, False, timeout, wait_for_workers=False)
        group.barrier()
        return store, group.rank, group.size
