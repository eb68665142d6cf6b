"""Synchronises the parameters of a Lasagne network.

    lpm = param_manager.LasagneParamManager(network)
    ...                   # train
    lpm.sync_all_param()
"""

from typing import List

import lasagne
import numpy as np

from ..param_manager import MVModelParamManager


class LasagneParamManager(MVModelParamManager):
    """MVModelParamManager of the network that ends in the given layer, or list of layers."""

    def get_all_param_values(self) -> List[np.ndarray]:
        return lasagne.layers.get_all_param_values(self.model)

    def set_all_param_values(self, params: List[np.ndarray]) -> None:
        lasagne.layers.set_all_param_values(self.model, params)
