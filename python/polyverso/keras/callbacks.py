"""Callbacks for fit(). Each process has its own model and data, and calls fit() with its own callback."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import keras
import numpy as np

from .. import capi, distlearn, dtypes, kvstore, optimizer as optimizers
from ..arrays import as_bits, label_of
from ..gossip.keras import values_of
from ..group import OPERATIONS, Group
from ..node import init
from .gradients import GradientAverage, attach, detach, on_host, owner_of

_EXCHANGED = {str(dtype) for dtype in dtypes.DTYPES.values()}


def _read(variables: Sequence[Any]) -> List[np.ndarray]:
    """Copies of the variables' values, in memory of the host."""
    return [np.array(values_of(variable), order="C") for variable in variables]


def _write(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(variables, values):
        variable.assign(value)


def fresh(values: np.ndarray, dtype: Any) -> Any:
    """A copy to assign to a variable. On JAX, one of JAX's own, which the assignment does not copy again."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.device_put(values.astype(dtype, copy=False), may_alias=False)
    return np.array(values, dtype)


def _exchanged(variables: Sequence[Any]) -> List[Any]:
    """Without those of dtypes that no group reduces: the states of random numbers stay each rank's own."""
    return [variable for variable in variables if variable.dtype in _EXCHANGED]


def _label(names: Sequence[str], arrays: Sequence[np.ndarray]) -> Dict[str, int]:
    return {"label": label_of(tuple(names), tuple(array.shape for array in arrays))}


class _Callback(keras.callbacks.Callback):
    """What the callbacks have in common: equal first values, equal values at the end of each epoch, average metrics."""

    def __init__(self, group: Optional[Group], average_metrics: bool, print_all: bool) -> None:
        super().__init__()
        self._is_own = group is None
        self.group = Group() if group is None else group
        self._average_metrics = average_metrics
        self._print_all = print_all
        self._is_in_epoch = False
        self._execution = 1  # batches of one call of the compiled step: Keras's steps_per_execution
        self._exchanged = self._ended = 0  # batches of this epoch, up to the last exchange, and after the current call
        self._attached: List[Tuple[Any, Any]] = []  # models, and their optimizers whose methods are replaced

    def set_params(self, params: Any) -> None:
        if params and self.group.rank != 0 and not self._print_all:
            params["verbose"] = 0  # Keras's progress bar comes later in the list, and gets the same dict
        super().set_params(params)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        model = self.model
        variables = self._trained(model) + self._statistics(model) + self._of_optimizer(model)
        values = _read(variables)
        capi.mv_broadcast_many(self.group.handle, [as_bits(value) for value in values], 0, _label([""] * len(values), values))
        _write(variables, values)
        self._execution = model.steps_per_execution
        self._exchanged = self._ended = 0
        self._begin(model)

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._is_in_epoch = True

    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._end_epoch()  # before the validation, so that all ranks validate the same model

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._end_epoch()
        if logs and self._average_metrics:
            logs.update(self.average(logs))  # the callbacks after this one get the same dict

    def _end_epoch(self) -> None:
        if not self._is_in_epoch:
            return
        self._is_in_epoch = False
        model = self.model
        self._synchronize(model)
        self._exchanged = self._ended = 0
        variables = self._statistics(model)
        values = _read(variables)
        if values:
            self.group.allreduce_many(values, op="avg")
            _write(variables, values)

    def _begin_batch(self, batch: int) -> int:
        """Batches since the last exchange, when the one of this number begins."""
        batches = (self.params or {}).get("steps")  # the last call may have fewer than the others
        self._ended = batch + self._execution if batches is None else min(batch + self._execution, batches)
        return batch - self._exchanged

    def average(self, logs: Dict[str, Any]) -> Dict[str, Any]:
        """The averages over all ranks of what model.evaluate(..., return_dict=True) returns. Collective; a StateError
        (MV_EDISAGREE) if the ranks have different metrics."""
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        values = np.array([float(logs[name]) for name in names])
        capi.mv_allreduce(self.group.handle, values, OPERATIONS["avg"], _label(names, [value for value in values]))
        return {**logs, **dict(zip(names, values.tolist()))}

    def close(self) -> None:
        """Ends the exchange. The last call: afterwards the model trains alone."""
        if self._is_own:
            self.group.close()

    def _detach(self, owner: Any) -> None:
        for model, optimizer in self._attached:
            if owner_of(optimizer) is owner:
                detach(optimizer)
                model.train_function = None  # a compiled one has the replaced methods
        self._attached.clear()

    @staticmethod
    def _trained(model: Any) -> List[Any]:
        return list(model.trainable_variables)

    @staticmethod
    def _statistics(model: Any) -> List[Any]:
        """Of BatchNormalization and the like."""
        return [variable for variable in _exchanged(model.non_trainable_variables) if "float" in variable.dtype]

    @staticmethod
    def _of_optimizer(model: Any) -> List[Any]:
        return [] if model.optimizer is None else _exchanged(model.optimizer.variables)

    def _begin(self, model: Any) -> None:
        """All ranks have rank 0's values."""

    def _synchronize(self, model: Any) -> None:
        """Waits for the other ranks, and gives all the same parameters."""
        raise NotImplementedError


class AllReduceCallback(_Callback):
    """Averages the gradients of all ranks in every step: data-parallel training as with Horovod.

        model.fit(x, y, callbacks=[polyverso.keras.AllReduceCallback(), ...])      # the first of the callbacks

    The result is that of one process with all ranks' batches as one batch. It changes the optimizer's apply(), until
    close(). Ranks may have different numbers of batches; they then make the steps of the rank with the most.
    group: by default one of all workers, which is opened here. average_metrics: the logs of an epoch are the averages
    over all ranks, each of which counts once. print_all: ranks other than 0 print what fit() prints. Collective, as are
    fit() and the epochs in it: all ranks have the same number of epochs."""

    def __init__(self, group: Optional[Group] = None, *, average_metrics: bool = True, print_all: bool = False) -> None:
        super().__init__(group, average_metrics, print_all)
        self._gradients = GradientAverage(self.group)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if model.optimizer is not None and owner_of(model.optimizer) is not self._gradients:
            self._gradients.attach(model.optimizer)
            self._attached.append((model, model.optimizer))
            model.train_function = None  # a compiled one has the earlier apply()

    def _synchronize(self, model: Any) -> None:
        variables = self._trained(model) + self._of_optimizer(model)
        # The strategy takes floats only. float64 holds an optimizer's counters.
        values = [value.astype(np.float64) if value.dtype.kind in "iu" else value for value in _read(variables)]
        self._gradients.strategy.synchronize_parameters(values)
        _write(variables, values)

    @property
    def meter(self) -> distlearn.Meter:
        """The traffic so far."""
        return self._gradients.strategy.meter

    def close(self) -> None:
        self._detach(self._gradients)
        self._gradients.strategy.close()
        super().close()


class LocalSGDCallback(_Callback):
    """Averages the parameters of all ranks, not the gradients, every `inner_steps` batches and at the end of each epoch.

    Each rank's optimizer keeps its own state. settings: as for polyverso.distlearn.LocalSGD: outer_rate,
    outer_momentum, fragments, overlap and others. The rest as for AllReduceCallback."""

    def __init__(
        self, inner_steps: int, group: Optional[Group] = None, *, average_metrics: bool = True, print_all: bool = False, **settings: float
    ) -> None:
        super().__init__(group, average_metrics, print_all)
        # Without fragments, the strategy has nothing to do between the exchanges: then it is called for these only, because
        # every call copies the parameters.
        self._is_streaming = settings.get("fragments", 1) != 1 or settings.get("overlap", 0) != 0
        if not inner_steps >= 1:
            raise ValueError(f"inner_steps={inner_steps}: the number of batches between two exchanges must be at least 1")
        self._every = 1 if self._is_streaming else inner_steps
        self._strategy = distlearn.LocalSGD(self.group, inner_steps if self._is_streaming else 1, **settings)
        self._batches = 0  # of all epochs, up to the last exchange

    def _begin(self, model: Any) -> None:
        self._strategy.synchronize_parameters(_read(self._trained(model)))  # the first exchange starts from these

    # Not on_train_batch_end: JAX's steps would then no longer overlap with Keras's loop.
    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        batches = self._begin_batch(batch)
        if batches >= self._every:
            self._step(self.model, batches)
            self._exchanged = batch

    def _step(self, model: Any, batches: int) -> None:
        """After so many batches since the last one."""
        steps = batches if self._is_streaming else 1

        def step(values: List[np.ndarray]) -> None:
            for _ in range(steps):
                self._strategy.step(values)

        self._exchange(model, step)
        self._batches += batches

    def _synchronize(self, model: Any) -> None:
        if self._ended > self._exchanged:
            self._step(model, self._ended - self._exchanged)
        self._exchange(model, self._strategy.synchronize_parameters)

    def _exchange(self, model: Any, function: Any) -> None:
        variables = self._trained(model)
        values = _read(variables)
        function(values)
        _write(variables, values)

    @property
    def meter(self) -> distlearn.Meter:
        """The traffic so far, and what an all-reduce in every step would have sent."""
        meter = self._strategy.meter
        return meter._replace(steps=self._batches, dense_bytes=meter.dense_bytes // max(meter.steps, 1) * self._batches)

    def close(self) -> None:
        self._strategy.close()
        super().close()


class DiLoCoCallback(LocalSGDCallback):
    """LocalSGDCallback with DiLoCo's outer step. With `fragments` and `overlap` it is Streaming DiLoCo."""

    def __init__(
        self, inner_steps: int, group: Optional[Group] = None, *, outer_rate: float = 0.7, outer_momentum: float = 0.9, **settings: Any
    ) -> None:
        super().__init__(inner_steps, group, outer_rate=outer_rate, outer_momentum=outer_momentum, **settings)


class ServerCallback(_Callback):
    """Parameter servers: workers do not wait for each other within an epoch.

        ServerCallback(freq=10)                                     # Multiverso's scheme
        ServerCallback(optimizer="adam", learning_rate=0.001)       # the optimizer runs on the servers

    Without `optimizer`, each worker has an optimizer of its own. Every `freq` batches it adds the changes of its
    parameters to a table of float32 on the servers, and loads the sum of all workers' changes. `optimizer` names one of
    polyverso.optimizer's, which takes `parameters`: each step pushes the gradients to the servers, which make a step
    for each push, and pulls the weights. The model's own optimizer, its learning rate and its constraints then have no
    effect, and another fit() continues with the servers' weights. At the end of each epoch all workers wait for each
    other. The other arguments are those of AllReduceCallback."""

    def __init__(
        self, freq: int = 1, optimizer: Optional[str] = None, group: Optional[Group] = None, *, compression: Any = None,
        average_metrics: bool = True, print_all: bool = False, **parameters: Any
    ) -> None:
        if not freq >= 1:
            raise ValueError(f"freq={freq}: the number of batches between two exchanges must be at least 1")
        if optimizer is None and (parameters or compression is not None):
            raise TypeError(f"{', '.join([*parameters, *(['compression'] if compression else [])])}: only with an optimizer")
        if optimizer is not None and freq != 1:
            raise ValueError(f"freq={freq} with an optimizer: gradients are pushed in every step")
        super().__init__(group, average_metrics, print_all)
        self._made = None if optimizer is None else optimizers.create(optimizer, **parameters)
        self._compression = compression
        self._freq = freq
        self._node = init()
        self._is_closed = False
        self._table: Any = None
        self._store: Any = None
        self._optimizer: Any = None
        self._last = np.empty(0, np.float32)  # the servers' values as of the last exchange
        self._change = np.empty(0, np.float32)  # fresh arrays in every exchange would take twice the time

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if self._made is None or model.optimizer is None or owner_of(model.optimizer) is self:
            return
        if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
            raise ValueError("the servers' optimizer does not know the scale of the loss of mixed_float16: use mixed_bfloat16")
        detach(model.optimizer)
        attach(model.optimizer, "apply", self._apply, self)
        self._optimizer = model.optimizer
        self._attached.append((model, model.optimizer))
        model.train_function = None

    def _begin(self, model: Any) -> None:
        values = _read(self._trained(model))
        if self._made is None:
            self._last = np.concatenate([value.reshape(-1).astype(np.float32) for value in values])
            self._change = np.empty_like(self._last)
            if self._table is None:
                self._table = self._node.array(self._last.size, init=self._last)
            elif self.group.rank == 0:  # another fit()
                self._table.set(self._last)
            self._assign(model)  # float64 is rounded to the table's values
            self.group.barrier()
        elif self._store is None:
            self._store = kvstore.create("dist_async")
            self._store.init([str(place) for place in range(len(values))], values)
            if self._compression is not None:
                self._store.set_gradient_compression(self._compression)
            if self.group.rank == 0:
                self._store.set_optimizer(self._made)
            self.group.barrier()  # no push before the optimizer is set
        else:
            self._load(model)

    # Not on_train_batch_end: see LocalSGDCallback.
    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._made is not None:
            return
        if self._begin_batch(batch) >= self._freq:
            model = self.model
            self._add_changes(model, wait=False)
            self._table.get(out=self._last)
            self._assign(model)
            self._exchanged = batch

    def _apply(self, _: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Instead of the optimizer's: pushes gradients, and assigns the weights that the servers then have."""
        model_optimizer = self._optimizer
        known = list(model_optimizer._trainable_variables)
        variables = known if trainable_variables is None else list(trainable_variables)
        places = {id(variable): str(place) for place, variable in enumerate(known)}
        pushed = [(places[id(variable)], variable, grad) for variable, grad in zip(variables, grads) if grad is not None]
        keys = [key for key, _, _ in pushed]

        def exchange(arrays: List[Any]) -> None:
            self._store.push(keys, arrays)
            self._store.pull(keys, arrays)

        for (_, variable, _), value in zip(pushed, on_host(exchange, [grad for _, _, grad in pushed])):
            variable.assign(value)
        model_optimizer._iterations.assign_add(1)  # `iterations` is no variable if the optimizer accumulates gradients

    def _synchronize(self, model: Any) -> None:
        if self._made is None:
            self._add_changes(model, wait=True)
        self.group.barrier()  # all changes are on the servers
        self._load(model)

    def _load(self, model: Any) -> None:
        """The servers' values, as rank 0 sees them, on all ranks."""
        variables = self._trained(model)
        values = _read(variables)
        if self._made is None:
            if self.group.rank == 0:
                self._table.get(out=self._last)
            self.group.broadcast(self._last)
            self._assign(model)
            return
        if self.group.rank == 0:
            self._store.pull([str(place) for place in range(len(values))], values)
        self.group.broadcast_many(values)
        _write(variables, values)

    def _add_changes(self, model: Any, wait: bool) -> None:
        for variable, place in self._places(model):
            values = values_of(variable).reshape(-1)
            # A variable of 16 bits holds the servers' values rounded, which is no change of this worker's.
            loaded = self._last[place].astype(values.dtype, copy=False)
            np.subtract(values, loaded, out=self._change[place], dtype=np.result_type(values, self._change), casting="unsafe")
        self._table.add(self._change, wait=wait)

    def _assign(self, model: Any) -> None:
        for variable, place in self._places(model):
            variable.assign(fresh(self._last[place].reshape(variable.shape), variable.dtype))

    def _places(self, model: Any) -> Iterator[Tuple[Any, slice]]:
        """The variables, and where each one's values are in the table."""
        end = 0
        for variable in self._trained(model):
            begin, end = end, end + int(np.prod(variable.shape))
            yield variable, slice(begin, end)

    def close(self) -> None:
        self._detach(self)
        for one in (self._table, self._store):
            if one is not None:
                one.close()
        super().close()
        if not self._is_closed:
            self._is_closed = True
            self._node.shutdown()
