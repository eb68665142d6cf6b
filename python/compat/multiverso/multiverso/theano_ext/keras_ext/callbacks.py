"""The callback that synchronises a Keras model while it trains.

    model.fit(x, y, callbacks=[MVCallback(model, freq=1)])
"""

from typing import Any

import keras

from .param_manager import KerasParamManager


class MVCallback(keras.callbacks.Callback):
    """Synchronises the model after every `freq` batches, or as soon afterwards as Keras ends a call of the compiled step,
    which has `steps_per_execution` batches."""

    def __init__(self, model: Any, freq: int = 1) -> None:
        """model: a built model, whose weights become the master worker's. freq: batches, at least 1, otherwise
        ValueError. Collective: every worker makes one."""
        super().__init__()
        if not freq >= 1:
            raise ValueError(f"freq={freq}: the number of batches between two syncs must be at least 1")
        if not model.weights:
            raise ValueError(f"the model {model.name} has no weights yet: build it first, for example with a keras.Input")
        self.freq = freq
        self.cur_n = 0  # batches so far
        self._batches = 0  # of this epoch
        self.kpm = KerasParamManager(model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        before, self.cur_n = self.cur_n, self.cur_n + batch + 1 - self._batches
        self._batches = batch + 1
        if before // self.freq == self.cur_n // self.freq:
            return
        # Reading `model` makes the JAX backend write its state into the model's weights, and read them again.
        model = self.model
        if model is not None and model is not self.kpm.model:
            raise ValueError(f"the callback was made for another model, {self.kpm.model.name}: make one for {model.name}")
        self.kpm.sync_all_param()
