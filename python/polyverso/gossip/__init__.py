"""Gossip: every process trains a model of its own and averages it, now and then, with a peer's.

    from polyverso import gossip

    model = gossip.ArrayAdapter([weights, biases], "w1", "nodes.yaml")   # numpy arrays, averaged in place
    for batch in batches:
        model.update_send(loss)     # lets the others see the arrays, begins to fetch a peer's
        loss = train(batch)
        model.update_wait(loss)     # averages with what has come

docs/gossip.md has the configuration. PyTorch's modules have `polyverso.gossip.torch.TorchAdapter`.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np

from .. import capi

Config = Union[str, "os.PathLike[str]", Dict[str, Any], List[Any]]


class Gossip:
    """One node: `config` is a YAML file, or what such a file holds; `name` says which of its nodes this is."""

    def __init__(self, config: Config, name: str) -> None:
        self._handle = 0
        if isinstance(config, (dict, list)):
            self._handle = capi.mv_gossip_open_text(json.dumps(config), name)  # JSON is YAML
        else:
            self._handle = capi.mv_gossip_open(os.fspath(config), name)
        self.name = name

    def publish(self, arrays: Iterable[Any], loss: float) -> None:
        """Lets peers see these arrays, as one version with this node's clock, which grows by 1."""
        for array in arrays:
            capi.mv_gossip_add(self._handle, array)
        capi.mv_gossip_publish(self._handle, float(loss))

    def fetch_start(self) -> bool:
        """Begins to fetch a peer's arrays, unless chance (fetch_probability) decides against it."""
        return bool(capi.mv_gossip_fetch_start(self._handle))

    def fetch_wait(self, loss: float) -> Optional[Dict[str, Any]]:
        """Waits for them: a dict with factor, peer, peer_clock, peer_loss and bytes; None if nothing came."""
        fetched = capi.mv_gossip_fetch_wait(self._handle, float(loss))
        return fetched if fetched["got"] else None

    def average(self, array: Any) -> None:
        """array = factor * peer's + (1 - factor) * array, in place, for the next of the arrays that were fetched."""
        capi.mv_gossip_average(self._handle, array)

    def read(self, array: Any) -> None:
        """Copies the next of the arrays that were fetched into `array`."""
        capi.mv_gossip_read(self._handle, array)

    @property
    def state(self) -> Dict[str, Any]:
        """Clock, loss, last factor, and the peers with their scores."""
        return json.loads(capi.mv_gossip_state_text(self._handle, capi.MV_JSON))

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
            capi.mv_gossip_close(handle)

    def __enter__(self) -> Gossip:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __str__(self) -> str:
        return capi.mv_gossip_state_text(self._handle, 0)


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
        self.gossip.publish(self._published(), loss)
        self.gossip.fetch_start()

    def update_wait(self, loss: float) -> float:
        """Waits for them and averages; the factor of the peer's share, 0 where nobody was there."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return 0.0
        self._average()
        return fetched["factor"]

    def close(self) -> None:
        self.gossip.close()


class ArrayAdapter(Adapter):
    """Averages numpy arrays in place."""

    def __init__(self, arrays: Iterable[np.ndarray], name: str, config: Config) -> None:
        super().__init__(name, config)
        self.arrays = list(arrays)

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
        self.gossip.publish([payload], loss)
        return self.gossip.fetch_start()

    def update_wait(self, loss: float) -> Tuple[Optional[bytes], float]:
        """A peer's payload and the factor of its share; (None, 0) where nobody was there."""
        fetched = self.gossip.fetch_wait(loss)
        if fetched is None:
            return None, 0
        payload = bytearray(fetched["bytes"])
        self.gossip.read(payload)
        return bytes(payload), fetched["factor"]
