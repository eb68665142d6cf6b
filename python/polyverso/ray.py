"""A cluster whose processes Ray starts.

    import polyverso.ray

    def train(node, rounds):
        weights = node.array(1000, name="weights")
        ...
        return loss

    losses = polyverso.ray.run(train, 20, workers=4)       # one result for each worker

Each worker is an actor with a process of its own, in one placement group. This package has to be installed wherever Ray
places workers. docs/launchers.md has more.
"""

from __future__ import annotations

import re
import secrets
import socket
import traceback
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._extras import advice

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ModuleNotFoundError as missing:
    raise advice(missing, "ray") from None

from . import capi
from .errors import ArgumentError, PeerError, TimeoutError
from .leaving import reason_of
from .node import join

__all__ = ["WorkerError", "run"]

_GRACE = 5.0  # seconds: after a first failure, the one that caused it may still be under way


class WorkerError(RuntimeError):
    """A worker's function has failed, or its process has died. `worker` is its number, `reason` what happened, `trace`
    its traceback ("" if the process died)."""

    def __init__(self, worker: int, workers: int, reason: str, trace: str = "") -> None:
        super().__init__(worker, workers, reason, trace)
        self.worker, self.workers, self.reason, self.trace = worker, workers, reason, trace

    def __str__(self) -> str:
        return f"worker {self.worker} of {self.workers}: {self.reason}" + (f"\n{self.trace}" if self.trace else "")


def run(
    function: Callable[..., Any],
    *arguments: Any,
    workers: int = 4,
    cpus: float = 1,
    resources: Optional[Mapping[str, float]] = None,
    strategy: str = "PACK",
    placement_timeout: float = 60.0,
    settings: Optional[Mapping[str, Any]] = None,
) -> List[Any]:
    """Calls function(node, *arguments) in `workers` processes, which are one cluster, and returns their results in the
    order of worker ids.

    cpus, resources: what each worker takes of Ray's resources ({"GPU": 1}). strategy: "PACK", "SPREAD", "STRICT_PACK"
    or "STRICT_SPREAD". placement_timeout: seconds in which Ray must find room for all workers.
    settings: of polyverso.init(), for all workers: {"sync": True}; not those that name the cluster.

    Ray is started if the program has not done so. If a worker fails, the others are ended, and WorkerError names it; if
    Ray has no room, TimeoutError names the missing resources. All actors are gone when this function returns.
    """
    if workers < 1:
        raise ArgumentError(capi.MV_EINVAL, f"polyverso.ray.run(): workers is {workers}: expected 1 or more")
    taken = sorted(set(settings or {}) & {"rank", "nodes", "master", "bind", "advertise", "secret", "role"})
    if taken:
        raise ArgumentError(capi.MV_EINVAL, f"polyverso.ray.run(): settings has {', '.join(taken)}: run() sets these itself")
    if not ray.is_initialized():
        ray.init()
    bundle = {"CPU": float(cpus), **{name: float(amount) for name, amount in (resources or {}).items()}}
    room = placement_group([bundle] * workers, strategy=strategy)
    actors: List[Any] = []
    try:
        if not room.wait(placement_timeout):
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in bundle.items())
            raise TimeoutError(
                capi.MV_ETIMEOUT, f"Ray had no room for {workers} workers with {wanted} each ({strategy}) within {placement_timeout:g} s"
            )
        actors += [_start(room, index, cpus, resources) for index in range(workers)]
        places = _describe_clusters_place(actors)
        calls = [actor.work.remote(function, arguments, {**(settings or {}), **place}) for actor, place in zip(actors, places)]
        return _results(calls)
    finally:
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(room)


def _start(room: PlacementGroup, index: int, cpus: float, resources: Optional[Mapping[str, float]]) -> Any:
    others = dict(resources or {})
    where = PlacementGroupSchedulingStrategy(placement_group=room, placement_group_bundle_index=index)
    made = ray.remote(_Worker).options(
        num_cpus=cpus, num_gpus=others.pop("GPU", None), resources=others or None, max_restarts=0, scheduling_strategy=where
    )
    return made.remote()


def _describe_clusters_place(actors: Sequence[Any]) -> List[Dict[str, Any]]:
    """What each worker passes to init(). The first one listens before the others hear where: nobody guesses a port."""
    count = len(actors)
    if count == 1:
        return [{"nodes": 1, "role": "all"}]
    found = [_value_of(actor.place.remote(), worker, count) for worker, actor in enumerate(actors)]
    addresses = [address for _, address in found]
    if len({host for host, _ in found}) == 1:
        addresses = ["127.0.0.1"] * count
    port = _value_of(actors[0].listen.remote(addresses[0]), 0, count)
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    common = {"nodes": count, "role": "all", "master": f"{host}:{port}", "secret": secrets.token_hex(16)}
    return [{"rank": rank, "bind": addresses[rank], **common} for rank in range(count)]


def _value_of(call: Any, worker: int, workers: int) -> Any:
    """The value of a call to an actor. A dead actor is named."""
    try:
        return ray.get(call)
    except RayError as error:
        raise _death(worker, workers, error) from error


def _death(worker: int, workers: int, error: BaseException) -> WorkerError:
    """A WorkerError for an error of Ray's. Of its page of text, the end of a traceback is worth reading, if a process could
    not begin, else the first line. A living actor's error is that its result could not be sent, for example."""
    if isinstance(error, RayTaskError):
        return WorkerError(worker, workers, reason_of(error.cause), str(error))
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()] or [type(error).__name__]
    found = re.search(r"pid: (\d+)", str(error))
    process = f"its process (pid {found[1]})" if found else "its process"
    return WorkerError(worker, workers, f"{process} died, or Ray lost it: {lines[-1 if 'creation task' in lines[0] else 0].strip()}")


class _Failure(NamedTuple):
    """What _Worker.work() returns for an exception, which itself may be impossible to send."""

    reason: str
    trace: str
    is_consequence: bool  # another worker has failed before


def _results(calls: Sequence[Any]) -> List[Any]:
    results: Dict[int, Any] = {}
    failures: List[Tuple[bool, WorkerError]] = []
    numbers, pending = {call: worker for worker, call in enumerate(calls)}, list(calls)
    while pending:
        ended, pending = ray.wait(pending, num_returns=len(pending) if failures else 1, timeout=_GRACE if failures else None)
        for call in ended:
            worker = numbers[call]
            try:
                result = ray.get(call)
            except RayError as error:
                death = _death(worker, len(calls), error)
                death.__cause__ = error
                failures.append((False, death))
                continue
            if isinstance(result, _Failure):
                failures.append((result.is_consequence, WorkerError(worker, len(calls), result.reason, result.trace)))
            else:
                results[worker] = result[0]
        if failures and (not all(consequence for consequence, _ in failures) or not ended):
            break
    if failures:
        raise min(failures, key=lambda failure: failure[0])[1]  # a cause before its consequences
    return [results[worker] for worker in range(len(calls))]


class _Worker:
    """The actor: a process of Ray that becomes a worker."""

    def __init__(self) -> None:
        self._listener: Optional[socket.socket] = None

    def place(self) -> Tuple[str, str]:
        """Ray's name of the machine, and an address of it for others."""
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def listen(self, address: str) -> int:
        """Listens as the cluster's rank 0, at a free port."""
        self._listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        return int(self._listener.getsockname()[1])

    def work(self, function: Callable[..., Any], arguments: Sequence[Any], settings: Mapping[str, Any]) -> Any:
        """(result,) of the function, or a _Failure."""
        try:
            with join(self._listener, **settings) as node:
                return (function(node, *arguments),)
        except Exception as error:
            return _Failure(reason_of(error), traceback.format_exc(), isinstance(error, PeerError))
