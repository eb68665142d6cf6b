"""Gossip: every process trains a model of its own, and sometimes averages it with a peer's.

    from polyverso import gossip

    model = gossip.ArrayAdapter([weights, biases], "w1", "nodes.yaml")   # averaged in place
    for batch in batches:
        model.update_send(loss)     # makes the arrays visible to peers, begins to fetch a peer's
        loss = train(batch)
        model.update_wait(loss)     # averages with the fetched arrays

Arrays are NumPy's, tensors, or other memory, also in the memory of a CUDA device. docs/gossip.md describes the
configuration. Use `polyverso.gossip.torch.TorchAdapter` for PyTorch modules, and
`polyverso.gossip.keras.GossipCallback` for Keras models.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import weakref
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from .. import capi, dtypes
from .._numpy import is_ndarray, np
from ..arrays import as_bits, on_device, tensor_or_bits
from ..errors import ArgumentError, Error, Interrupted
from ..foreign import memory_of, readable
from ..handles import Handle, remember
from ..leaving import unless_forked
from ..names import listing

__all__ = ["Adapter", "ArrayAdapter", "Connection", "Gossip", "status"]
__dir__ = listing(__all__)

MOST_DIMS = 8  # of a shape that is published; arrays with more have none

Config = Union[str, "os.PathLike[str]", Dict[str, Any], List[Any]]


class Gossip(Handle):
    """A gossiping node. `config` is a YAML file, or its parsed content; `name` is the name of this node in it."""

    _instead = "each process opens a gossiping node of its own name"

    def __init__(self, config: Config, name: str) -> None:
        self._handle = 0
        self.fetching = False  # whether a fetch is running
        if isinstance(config, (dict, list)):
            self._handle = capi.mv_gossip_open_text(json.dumps(config), name)  # JSON is YAML
        else:
            self._handle = capi.mv_gossip_open(os.fspath(config), name)
        remember(self._handle, self)
        self.name = name
        self._dropped = weakref.finalize(self, _close_quietly, self._handle)  # releases the port
        self._dropped.atexit = False  # the exit of the process releases it too

    def publish(self, arrays: Iterable[Any], loss: float) -> None:
        """Makes these arrays visible to peers, as one snapshot, with `loss` and this node's clock, which grows by 1. A
        peer refuses the snapshot if an array has two or more dimensions on both sides and these differ, even with the
        same number of elements."""
        loss = _loss(loss)
        try:
            for array in arrays:
                self._add(array)
        except BaseException:
            with contextlib.suppress(Error):
                capi.mv_gossip_publish(self._handle, math.nan)  # drops the incomplete snapshot
            raise
        capi.mv_gossip_publish(self._handle, loss)

    def _add(self, array: Any) -> None:
        if array is None:
            raise TypeError("an array or a payload is needed, not None")
        shape = [int(length) for length in getattr(array, "shape", ())]
        values = on_device(array)
        if values is None:
            values = as_bits(readable(array, bits=True))
        if isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values)
        if 2 <= len(shape) <= MOST_DIMS:
            capi.mv_gossip_add_shaped(self._handle, values, shape)
        else:
            capi.mv_gossip_add(self._handle, values)

    def fetch_start(self) -> bool:
        """Begins to fetch a peer's arrays, with the configuration's fetch_probability. Returns whether it did."""
        self.fetching = bool(capi.mv_gossip_fetch_start(self._handle))
        return self.fetching

    def fetch_wait(self, loss: float) -> Optional[Dict[str, Any]]:
        """Waits for the fetched arrays: a dict of factor, peer, peer_clock, peer_loss and bytes; None without any."""
        loss = _loss(loss)
        try:
            fetched = capi.mv_gossip_fetch_wait(self._handle, loss)
        except Exception as error:
            self.fetching = isinstance(error, Interrupted)  # then the fetch continues
            raise
        self.fetching = False
        return fetched if fetched["got"] else None

    def update_send(self, arrays: Iterable[Any], loss: float) -> bool:
        """Publishes, and begins to fetch unless a fetch is still running. Returns whether a fetch is running."""
        self.publish(arrays, loss)
        return self.fetching or self.fetch_start()

    def average(self, array: Any) -> None:
        """array = factor * peer's + (1 - factor) * array, in place, with the next fetched array."""
        capi.mv_gossip_average(self._handle, tensor_or_bits(array))

    def read(self, array: Any) -> None:
        """Copies the next fetched array into `array`."""
        capi.mv_gossip_read(self._handle, tensor_or_bits(array))

    @property
    def state(self) -> Dict[str, Any]:
        """This node's state: clock, loss, last factor, disagreement, the peers with their scores, and more."""
        return json.loads(capi.mv_gossip_state_text(self._handle, capi.MV_JSON))

    @property
    def clock(self) -> float:
        """The model's age in updates, averaged with the clocks of peers like the model itself. Set it to continue from
        a checkpoint."""
        return self.state["clock"]

    @clock.setter
    def clock(self, clock: float) -> None:
        capi.mv_gossip_set_clock(self._handle, float(clock))

    @property
    def metrics(self) -> str:
        """The figures of `state` in Prometheus's text format."""
        return capi.mv_gossip_metrics_text(self._handle)

    @property
    def disagreement(self) -> float:
        """The root mean square of the difference between the last peer's model and this one."""
        return self.state["disagreement"]

    @property
    def peers(self) -> List[Dict[str, Any]]:
        """The peers: name, address, score, fetched and more of each."""
        return self.state["peers"]

    def add_peer(self, name: str, host: str, port: int) -> None:
        """Adds a peer, which may be fetched from at once."""
        capi.mv_gossip_add_peer(self._handle, name, host, port)

    def remove_peer(self, name: str) -> None:
        """Removes a peer."""
        capi.mv_gossip_remove_peer(self._handle, name)

    def close(self) -> None:
        """Closes the node and releases its port."""
        if not self.is_closed:
            self.is_closed = True
            self._dropped.detach()
            capi.mv_gossip_close(self._handle)

    def __enter__(self) -> Gossip:
        return self

    def __exit__(self, *_: Any) -> None:
        with unless_forked():
            self.close()

    def __str__(self) -> str:
        return capi.mv_gossip_state_text(self._handle, 0)

    def __repr__(self) -> str:
        try:
            return f"<polyverso.Gossip {self.name}, {len(self.peers)} peers>"
        except Error:
            return f"<polyverso.Gossip {self.name}, closed>"


def _close_quietly(handle: int) -> None:
    with contextlib.suppress(Error):
        capi.mv_gossip_close(handle)


def status(config: Union[str, "os.PathLike[str]"]) -> List[Dict[str, Any]]:
    """The `Gossip.state` of all nodes of a configuration file; nodes that do not answer have `error`."""
    return json.loads(capi.mv_gossip_status_text(os.fspath(config), capi.MV_JSON))


def _loss(loss: Any) -> float:
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"loss is {loss!r}: a number is needed") from None


class Adapter(Handle):
    """Base class of the adapters: dpwa's two calls around a training step. Subclasses supply the parameters."""

    def __init__(self, name: str, config: Config) -> None:
        self.gossip = Gossip(config, name)

    def _published(self) -> Iterable[Any]:
        raise NotImplementedError

    def _average(self) -> None:
        raise NotImplementedError

    def update_send(self, loss: float) -> None:
        """Makes the parameters visible to peers, and begins to fetch a peer's."""
        self.gossip.update_send(self._published(), loss)

    def update_wait(self, loss: float) -> float:
        """Waits for the fetched parameters and averages with them. Returns the peer's share, 0 without a peer."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return 0.0
        self._average()
        return fetched["factor"]

    def close(self) -> None:
        """Closes the gossiping node."""
        self.gossip.close()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: Any) -> None:
        with unless_forked():
            self.close()

    def __str__(self) -> str:
        return str(self.gossip)

    def __repr__(self) -> str:
        return repr(self.gossip).replace("Gossip", type(self).__name__, 1)


class ArrayAdapter(Adapter):
    """Averages one or several arrays in place: numpy arrays, tensors and PyTorch tensors, on CUDA devices or not, or others with
    writable memory."""

    def __init__(self, arrays: Any, name: str, config: Config) -> None:
        self.arrays = [arrays] if hasattr(arrays, "shape") else list(arrays)
        self._writable()  # errors here, not after the first step
        super().__init__(name, config)

    def _writable(self) -> List[Any]:
        return [_writable(place, array) for place, array in enumerate(self.arrays)]

    def _published(self) -> Iterable[Any]:
        return (np.ascontiguousarray(array) if is_ndarray(array) else array for array in self._writable())

    def _average(self) -> None:
        for array in self._writable():
            if not is_ndarray(array) or array.flags.c_contiguous:
                self.gossip.average(array)
                continue
            copy = np.ascontiguousarray(array)
            self.gossip.average(copy)
            array[...] = copy


def _writable(place: int, array: Any) -> Any:
    """The array's own memory: a NumPy array, or a tensor on a device. ArgumentError for what can't be averaged in place."""
    if (tensor := on_device(array)) is not None:
        return tensor
    memory = memory_of(array)
    try:
        view = np.asarray(memoryview(memory)) if not isinstance(memory, np.ndarray) else memory
    except TypeError:
        raise ArgumentError(
            capi.MV_EDTYPE, f"array {place} is a {type(array).__name__}: arrays in memory of their own are needed, such as numpy.array()"
        ) from None
    if not view.flags.writeable:
        raise ArgumentError(capi.MV_EINVAL, f"array {place} is read-only: it can't be averaged in place")
    if view.dtype not in (*dtypes.DTYPES.values(), dtypes.BITS):
        raise ArgumentError(capi.MV_EDTYPE, f"array {place} holds {view.dtype}, which can't be averaged")
    return view


class Connection(Handle):
    """Exchanges opaque byte payloads. The caller averages them, with the factor that it receives."""

    def __init__(self, name: str, config: Config) -> None:
        self.gossip = Gossip(config, name)

    def update_send(self, payload: bytes, loss: float) -> bool:
        """Makes `payload` visible to peers, and begins to fetch a peer's. Returns whether a fetch is running."""
        return self.gossip.update_send([payload], loss)

    def update_wait(self, loss: float) -> Tuple[Optional[bytes], float]:
        """A peer's payload and its share; (None, 0) if nothing was fetched."""
        payload, fetched = self.fetched(loss)
        return payload, fetched.get("factor", 0)

    def fetched(self, loss: float) -> Tuple[Optional[bytes], Dict[str, Any]]:
        """A peer's payload and the result of Gossip.fetch_wait(); (None, {}) if nothing was fetched."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return None, {}
        payload = bytearray(fetched["bytes"])
        self.gossip.read(payload)
        return bytes(payload), fetched

    def close(self) -> None:
        """Closes the gossiping node."""
        self.gossip.close()
