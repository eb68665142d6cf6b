"""Keras optimizers whose gradients are exchanged between the processes before each step."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import keras

from .. import distlearn
from ..group import Group

_ATTACHED = "_polyverso_gradients"


def DistributedOptimizer(optimizer: Any, group: Optional[Group] = None) -> Any:
    """The optimizer, changed so that each step applies the average of all ranks' gradients.

        model.compile(polyverso.keras.DistributedOptimizer(keras.optimizers.Adam()), "mse")

    optimizer: a Keras optimizer, or its name. It keeps its class, and a saved model does not depend on this library.
    group: by default one of all workers. Collective: all ranks make it, and then make the same number of steps. fit()
    also needs AllReduceCallback, for equal first values and for different numbers of batches. Under the global policy
    mixed_float16, the optimizer is returned in a keras.optimizers.LossScaleOptimizer, so that all ranks skip a step, or
    none. Do not put it into another LossScaleOptimizer."""
    optimizer = keras.optimizers.get(optimizer)
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    GradientAverage(Group() if group is None else group).attach(optimizer)
    return optimizer


def attach(optimizer: Any, name: str, function: Callable[..., Any], owner: Any) -> None:
    """Replaces a method of this optimizer object by function(method, ...)."""
    method = getattr(optimizer, name)
    setattr(optimizer, name, lambda *arguments, **named: function(method, *arguments, **named))
    setattr(optimizer, _ATTACHED, owner)


def detach(optimizer: Any) -> None:
    """Gives the optimizer, and the one inside of a LossScaleOptimizer, their own methods back."""
    for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        if getattr(one, _ATTACHED, None) is not None:
            for name in ("apply", "stateless_apply"):
                vars(one).pop(name, None)
            setattr(one, _ATTACHED, None)


def owner_of(optimizer: Any) -> Any:
    return getattr(optimizer, _ATTACHED, None)


def on_host(function: Callable[[List[Any]], None], tensors: Sequence[Any]) -> List[Any]:
    """function(arrays in memory of the host) changes them in place. Returns the changed tensors: with JAX new ones, with
    PyTorch the given ones."""
    backend = keras.backend.backend()
    if backend == "jax":
        from ..jax import on_host as on_host_of_jax

        return on_host_of_jax(function, tensors)
    if backend == "torch":
        given = [tensor.detach() for tensor in tensors]
        hosts = [tensor.cpu().contiguous() for tensor in given]  # the same tensor where it is both already
        function(hosts)
        for tensor, host in zip(given, hosts):
            if host is not tensor:
                tensor.copy_(host)
        return list(tensors)
    raise NotImplementedError(
        f"gradients of Keras's backend {backend} can't be exchanged, only those of jax and torch: use LocalSGDCallback, or "
        "ServerCallback without an optimizer"
    )


class GradientAverage:
    """The average of all ranks' gradients. Ranks that make no step at the time do not count."""

    def __init__(self, group: Group) -> None:
        self.strategy = distlearn.AllReduceSGD(group)

    def attach(self, optimizer: Any) -> None:
        detach(optimizer)
        attach(optimizer, "apply", self._apply, self)
        # A LossScaleOptimizer does not come to apply() on JAX.
        if type(optimizer).stateless_apply is not keras.optimizers.Optimizer.stateless_apply:
            attach(optimizer, "stateless_apply", self._stateless_apply, self)

    def _apply(self, apply: Any, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        return apply(self._average(grads), trainable_variables)

    def _stateless_apply(self, apply: Any, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any) -> Any:
        return apply(optimizer_variables, self._average(grads), trainable_variables)

    def _average(self, gradients: Sequence[Any]) -> List[Any]:
        averaged = iter(on_host(self.strategy.sum_and_normalize_gradients, [one for one in gradients if one is not None]))
        return [None if one is None else next(averaged) for one in gradients]
