"""Synchronises the weights of a Keras model."""

from typing import List

import numpy as np

from ..param_manager import MVModelParamManager


class KerasParamManager(MVModelParamManager):
    """MVModelParamManager of a built Keras model, with its non-trainable weights, but without its optimizer's state."""

    def get_all_param_values(self) -> List[np.ndarray]:
        return self.model.get_weights()

    def set_all_param_values(self, params: List[np.ndarray]) -> None:
        self.model.set_weights(params)
