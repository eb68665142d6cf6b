"""Synchronises the weights of a Keras model."""

from typing import Any, List

import numpy as np
from polyverso.keras.callbacks import fresh

from ..param_manager import MVModelParamManager


class KerasParamManager(MVModelParamManager):
    """MVModelParamManager of a built Keras model, with its non-trainable weights, but without its optimizer's state."""

    def get_all_param_values(self) -> List[np.ndarray]:
        return self.model.get_weights()

    def set_all_param_values(self, params: List[np.ndarray]) -> None:
        self.model.set_weights(params)

    def _copy(self, values: np.ndarray, dtype: np.dtype) -> Any:
        return fresh(values, dtype)  # set_weights() would copy NumPy's copy once more
