"""Gossip: every process trains a model of its own and averages it, now and then, with a peer's.

    from polyverso import gossip

    model = gossip.ArrayAdapter([weights, biases], "w1", "nodes.yaml")   # numpy arrays, averaged in place
    for batch in batches:
        model.update_send(loss)     # lets the others see the arrays, begins to fetch a peer's
        loss = train(batch)
        model.update_wait(loss)     # averages with what has come

docs/gossip.md has the configuration. PyTorch's modules have `polyverso.gossip.torch.TorchAdapter`, Keras's models
`polyverso.gossip.keras.GossipCallback`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import weakref
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np

from .. import capi
from ..errors import Error

MOST_DIMS = 8  # whose lengths are told

Config = Union[str, "os.PathLike[str]", Dict[str, Any], List[Any]]


class Gossip:
    """One node: `config` is a YAML file, or what such a file holds; `name` says which of its nodes this is."""

    def __init__(self, config: Config, name: str) -> None:
        self._handle = 0
        self.fetching = False  # whether a fetch is under way
        if isinstance(config, (dict, list)):
            self._handle = capi.mv_gossip_open_text(json.dumps(config), name)  # JSON is YAML
        else:
            self._handle = capi.mv_gossip_open(os.fspath(config), name)
        self.name = name
        self._dropped = weakref.finalize(self, _close_quietly, self._handle)  # gives the port back
        self._dropped.atexit = False  # the process's end does, too

    def publish(self, arrays: Iterable[Any], loss: float) -> None:
        """Lets peers see these arrays, as one version with this node's clock, which grows by 1. A peer whose array has as many elements
        but other dimensions, two or more on both sides, takes nothing of it."""
        loss = float(loss)
        try:
            for array in arrays:
                self._add(array)
        except BaseException:
            with contextlib.suppress(Error):
                capi.mv_gossip_publish(self._handle, math.nan)  # drops what was added
            raise
        capi.mv_gossip_publish(self._handle, loss)

    def _add(self, array: Any) -> None:
        if array is None:
            raise TypeError("None is no array, nor a payload")
        shape = [int(length) for length in getattr(array, "shape", ())]
        if 2 <= len(shape) <= MOST_DIMS:
            capi.mv_gossip_add_shaped(self._handle, array, shape)
        else:
            capi.mv_gossip_add(self._handle, array)

    def fetch_start(self) -> bool:
        """Begins to fetch a peer's arrays, unless chance (fetch_probability) decides against it."""
        self.fetching = bool(capi.mv_gossip_fetch_start(self._handle))
        return self.fetching

    def fetch_wait(self, loss: float) -> Optional[Dict[str, Any]]:
        """Waits for them: a dict with factor, peer, peer_clock, peer_loss and bytes; None if nothing came."""
        fetched = capi.mv_gossip_fetch_wait(self._handle, float(loss))
        self.fetching = False
        return fetched if fetched["got"] else None

    def update_send(self, arrays: Iterable[Any], loss: float) -> bool:
        """Publishes, and begins to fetch; where a fetch is under way still, that goes on. Whether one is."""
        self.publish(arrays, loss)
        return self.fetching or self.fetch_start()

    def average(self, array: Any) -> None:
        """array = factor * peer's + (1 - factor) * array, in place, for the next of the arrays that were fetched."""
        capi.mv_gossip_average(self._handle, array)

    def read(self, array: Any) -> None:
        """Copies the next of the arrays that were fetched into `array`."""
        capi.mv_gossip_read(self._handle, array)

    @property
    def state(self) -> Dict[str, Any]:
        """Clock, loss, last factor, disagreement, and the peers with their scores."""
        return json.loads(capi.mv_gossip_state_text(self._handle, capi.MV_JSON))

    @property
    def clock(self) -> float:
        """The model's age in updates, mixed with those of the peers that it was averaged with. It can be set, to go on from a checkpoint."""
        return self.state["clock"]

    @clock.setter
    def clock(self, clock: float) -> None:
        capi.mv_gossip_set_clock(self._handle, float(clock))

    @property
    def metrics(self) -> str:
        """The same in Prometheus's text format."""
        return capi.mv_gossip_metrics_text(self._handle)

    @property
    def disagreement(self) -> float:
        """How far the last peer's model was from this one: the root mean square of their difference."""
        return self.state["disagreement"]

    @property
    def peers(self) -> List[Dict[str, Any]]:
        return self.state["peers"]

    def add_peer(self, name: str, host: str, port: int) -> None:
        capi.mv_gossip_add_peer(self._handle, name, host, port)

    def remove_peer(self, name: str) -> None:
        capi.mv_gossip_remove_peer(self._handle, name)

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            self._dropped.detach()
            capi.mv_gossip_close(handle)

    def __enter__(self) -> Gossip:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __str__(self) -> str:
        return capi.mv_gossip_state_text(self._handle, 0)


def _close_quietly(handle: int) -> None:
    with contextlib.suppress(Error):
        capi.mv_gossip_close(handle)


def status(config: Union[str, "os.PathLike[str]"]) -> List[Dict[str, Any]]:
    """How all nodes of a configuration's file stand, as `Gossip.state` of each; those that give no answer have `error`."""
    return json.loads(capi.mv_gossip_status_text(os.fspath(config), capi.MV_JSON))


class Adapter:
    """dpwa's two calls around a training step. What the parameters are, a subclass says."""

    def __init__(self, name: str, config: Config) -> None:
        self.gossip = Gossip(config, name)

    def _published(self) -> Iterable[Any]:
        raise NotImplementedError

    def _average(self) -> None:
        raise NotImplementedError

    def update_send(self, loss: float) -> None:
        """Lets the others see the parameters, and begins to fetch a peer's."""
        self.gossip.update_send(self._published(), loss)

    def update_wait(self, loss: float) -> float:
        """Waits for them and averages; the factor of the peer's share, 0 where nobody was there."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return 0.0
        self._average()
        return fetched["factor"]

    def close(self) -> None:
        self.gossip.close()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class ArrayAdapter(Adapter):
    """Averages numpy arrays, or one, in place."""

    def __init__(self, arrays: Union[np.ndarray, Iterable[np.ndarray]], name: str, config: Config) -> None:
        super().__init__(name, config)
        self.arrays = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)

    def _published(self) -> Iterable[np.ndarray]:
        return (np.ascontiguousarray(array) for array in self.arrays)

    def _average(self) -> None:
        for array in self.arrays:
            if array.flags.c_contiguous:
                self.gossip.average(array)
                continue
            copy = np.ascontiguousarray(array)
            self.gossip.average(copy)
            array[...] = copy


class Connection:
    """Payloads of bytes, of which only their owner knows what they mean, with the factor for averaging them."""

    def __init__(self, name: str, config: Config) -> None:
        self.gossip = Gossip(config, name)

    def update_send(self, payload: bytes, loss: float) -> bool:
        """Lets the others see `payload`, and begins to fetch a peer's; whether it did."""
        return self.gossip.update_send([payload], loss)

    def update_wait(self, loss: float) -> Tuple[Optional[bytes], float]:
        """A peer's payload and the factor of its share; (None, 0) where nobody was there."""
        payload, fetched = self.fetched(loss)
        return payload, fetched.get("factor", 0)

    def fetched(self, loss: float) -> Tuple[Optional[bytes], Dict[str, Any]]:
        """A peer's payload and what Gossip.fetch_wait() tells of it; (None, {}) where nobody was there."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return None, {}
        payload = bytearray(fetched["bytes"])
        self.gossip.read(payload)
        return bytes(payload), fetched

    def close(self) -> None:
        self.gossip.close()
