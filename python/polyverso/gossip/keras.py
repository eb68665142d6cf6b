"""Gossip for Keras models, for Keras 3 on any of its backends.

    model.fit(x, y, callbacks=[GossipCallback("w1", "nodes.yaml")])
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from .._extras import advice

try:
    import keras
except ModuleNotFoundError as missing:
    raise advice(missing, "keras") from None

import numpy as np

from . import Adapter, Config


class KerasAdapter(Adapter):
    """Averages a model's trainable weights; with `buffers`, also its running statistics. For custom training loops; see
    also GossipCallback."""

    def __init__(self, model: keras.Model, name: str, config: Config, buffers: bool = False) -> None:
        super().__init__(name, config)
        self.model = model
        self.buffers = buffers

    def _variables(self) -> List[Any]:
        variables = list(self.model.trainable_variables)
        if self.buffers:  # floats only: states of random number generators must not be averaged
            variables += [variable for variable in self.model.non_trainable_variables if "float" in str(variable.dtype)]
        return variables

    def _published(self) -> Iterable[np.ndarray]:
        return (_array_of(np.ascontiguousarray(values_of(variable))) for variable in self._variables())

    def _average(self) -> None:
        for variable in self._variables():
            values = np.array(values_of(variable), order="C")  # a copy: the backend must not see its memory change
            self.gossip.average(_array_of(values))
            variable.assign(values)


def values_of(variable: Any) -> np.ndarray:
    """A view if possible; Keras's own function copies on JAX."""
    return np.asarray(variable.value) if keras.backend.backend() == "jax" else keras.ops.convert_to_numpy(variable)


def _array_of(values: np.ndarray) -> np.ndarray:
    """The same memory. numpy itself has no bfloat16: its bits are passed as uint16."""
    return values.view(np.uint16) if values.dtype.name == "bfloat16" else values


class GossipCallback(keras.callbacks.Callback):
    """Makes the fitted model a gossiping node, from the beginning of fit() until close() or the exit of the process: a
    node that has finished training continues to serve its peers. `loss` is the entry of Keras's logs that is used as
    the model's loss. There is none before the first batch, so gossip begins with the second."""

    def __init__(self, name: str, config: Config, buffers: bool = False, loss: str = "loss") -> None:
        super().__init__()
        self.adapter: Optional[KerasAdapter] = None
        self._arguments = name, config, buffers
        self._entry = loss
        self._loss: Optional[float] = None
        self._sent = False

    def _node(self) -> KerasAdapter:
        """The node, with up-to-date weights: reading `self.model` makes Keras copy them back from JAX."""
        model = self.model
        if self.adapter is None:
            self.adapter = KerasAdapter(model, *self._arguments)
        self.adapter.model = model
        return self.adapter

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._node()

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._sent = self._loss is not None
        if self._loss is not None:
            self._node().update_send(self._loss)

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._loss = float((logs or {})[self._entry])
        if self._sent:
            self._node().update_wait(self._loss)

    def close(self) -> None:
        if self.adapter is not None:
            self.adapter.close()
            self.adapter = None
