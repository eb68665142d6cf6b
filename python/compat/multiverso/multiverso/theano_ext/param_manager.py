"""The base class for models of any framework whose parameters are synchronised through a table."""

from typing import Any, List

import numpy as np

from .synced import SyncedArray


class MVModelParamManager:
    """Synchronises all parameters of a model, as one table. A subclass defines get_all_param_values() and
    set_all_param_values(). Collective: every worker makes one for the same model."""

    def __init__(self, model: Any) -> None:
        """Sets the model's parameters, on all workers, to the master worker's. The table is of float64 if a parameter
        is, otherwise of float32. Raises polyverso.StateError without multiverso.init()."""
        self.model = model
        values = [np.asarray(value) for value in self.get_all_param_values()]
        self.shapes = [value.shape for value in values]
        self.sizes = [value.size for value in values]
        self.dtypes = [value.dtype for value in values]
        self._dtype = np.dtype(np.float64 if np.dtype(np.float64) in self.dtypes else np.float32)
        flat = [value.reshape(-1).astype(self._dtype) for value in values]
        self._synced = SyncedArray(np.concatenate(flat) if flat else np.zeros(0, self._dtype), f"this {type(self).__name__}")
        self._set()

    def get_all_param_values(self) -> List[np.ndarray]:
        """The model's parameters: a list of arrays, always the same shapes in the same order."""
        raise NotImplementedError(f"{type(self).__name__} must define get_all_param_values()")

    def set_all_param_values(self, params: List[np.ndarray]) -> None:
        """Sets the model's parameters; `params` has the shapes and dtypes of get_all_param_values()."""
        raise NotImplementedError(f"{type(self).__name__} must define set_all_param_values()")

    @property
    def all_param_list(self) -> np.ndarray:
        """All parameters, one after the other, as of the last sync."""
        return self._synced.latest

    def sync_all_param(self) -> None:
        """Adds the changes of the parameters since the last sync to the table, and sets them to the table's values."""
        self._synced.sync_parts([np.asarray(value) for value in self.get_all_param_values()])
        self._set()

    def _set(self) -> None:
        parts = np.split(self._synced.latest, np.cumsum(self.sizes)[:-1]) if self.sizes else []
        self.set_all_param_values([self._copy(part.reshape(shape), dtype)
                                   for part, shape, dtype in zip(parts, self.shapes, self.dtypes)])

    def _copy(self, values: np.ndarray, dtype: np.dtype) -> Any:
        """The values for set_all_param_values(), which may keep them: the next sync overwrites `values`."""
        return np.array(values, dtype)
