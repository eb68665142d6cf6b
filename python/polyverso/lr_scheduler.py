"""Schedules of the learning rate, under MXNet's names. They are sent to the servers with their optimizer.

The rate is computed where the updates are made, from the number of a key's updates; docs/optimizers.md has the
formulas. A schedule called with a number of updates returns the rate after them: lr_scheduler.PolyScheduler(100)(50).

A user-defined class overrides __call__, and works in stores of one process:

    class Halving(lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            return self.base_lr / 2**num_update
"""

from __future__ import annotations

from typing import Any, Dict, Sequence, Union

from . import capi
from .names import listing

__all__ = [
    "CosineScheduler",
    "FactorScheduler",
    "LRScheduler",
    "MultiFactorScheduler",
    "PolyScheduler",
]
__dir__ = listing(__all__)


class LRScheduler:
    """Base class of all schedules: the initial rate, and a warm-up in the first `warmup_steps` updates."""

    kind = ""

    # An optimizer with a learning_rate sets base_lr to it. warmup_final_lr keeps the initial base_lr: the warm-up ends
    # at it, and poly and cosine begin at it.

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"
    ) -> None:
        if warmup_begin_lr > base_lr:
            raise ValueError(f"warmup_begin_lr={warmup_begin_lr} must not exceed base_lr={base_lr}")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(f"warmup_mode must be linear or constant, not {warmup_mode}")
        self.base_lr = base_lr
        self.warmup_final_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode

    def parameters(self) -> Dict[str, Any]:
        """This schedule as parameters of the optimizer's text."""
        warmup: Dict[str, Any] = {}
        if self.warmup_steps:
            warmup["warmup_steps"] = self.warmup_steps
            warmup["warmup_begin_lr"] = self.warmup_begin_lr
            warmup["warmup_mode"] = self.warmup_mode
        return {"lr_scheduler": self.kind, "base_lr": self.warmup_final_lr, **warmup}

    @property
    def is_native(self) -> bool:
        """Whether the library implements it, so that servers can use it."""
        return bool(self.kind) and type(self).__call__ is LRScheduler.__call__

    def __call__(self, num_update: int) -> float:
        """The rate after `num_update` updates."""
        if not self.kind:
            raise NotImplementedError(f"{type(self).__name__} does not implement __call__()")
        parameters = {"learning_rate": self.base_lr, **self.parameters()}
        words = (f"{name}={value}" for name, value in parameters.items())
        return capi.kv_optimizer_rate(" ".join(["mx.sgd", *words]), num_update)


class FactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after every `step` updates, down to stop_factor_lr at the lowest."""

    kind = "factor"

    def __init__(
        self, step: int, factor: float = 1, stop_factor_lr: float = 1e-8, base_lr: float = 0.01, **warmup: Any
    ) -> None:
        super().__init__(base_lr, **warmup)
        if step < 1:
            raise ValueError(f"step={step}: must be at least 1")
        if factor > 1:
            raise ValueError(f"factor={factor}: must be 1 or less, so that the rate does not grow")
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr

    def parameters(self) -> Dict[str, Any]:
        """This schedule as parameters of the optimizer's text."""
        own = {"step": self.step, "factor": self.factor, "stop_factor_lr": self.stop_factor_lr}
        return {**super().parameters(), **own}


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` at each of the updates in `step`, an ascending list."""

    kind = "multifactor"

    def __init__(self, step: Sequence[int], factor: float = 1, base_lr: float = 0.01, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        if not step or list(step) != sorted(set(step)) or step[0] < 1:
            raise ValueError(f"step={list(step)}: update numbers must be ascending and at least 1")
        if factor > 1:
            raise ValueError(f"factor={factor}: must be 1 or less, so that the rate does not grow")
        self.step = list(step)
        self.factor = factor

    def parameters(self) -> Dict[str, Any]:
        """This schedule as parameters of the optimizer's text."""
        return {**super().parameters(), "step": ":".join(map(str, self.step)), "factor": self.factor}


class PolyScheduler(LRScheduler):
    """Decays to final_lr at max_update, by the power `pwr` of the remaining fraction of the updates."""

    kind = "poly"

    def __init__(
        self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0, **warmup: Any
    ) -> None:
        super().__init__(base_lr, **warmup)
        self.max_update = _length(max_update)
        self.power = pwr
        self.final_lr = final_lr

    def parameters(self) -> Dict[str, Any]:
        """This schedule as parameters of the optimizer's text."""
        own = {"max_update": self.max_update, "final_lr": self.final_lr, "pwr": self.power}
        return {**super().parameters(), **own}


class CosineScheduler(LRScheduler):
    """Decays to final_lr at max_update, along half a cosine."""

    kind = "cosine"

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        self.max_update = _length(max_update)
        self.final_lr = final_lr

    def parameters(self) -> Dict[str, Any]:
        """This schedule as parameters of the optimizer's text."""
        return {**super().parameters(), "max_update": self.max_update, "final_lr": self.final_lr}


def _length(max_update: Union[int, float]) -> int:
    if max_update < 1 or max_update != int(max_update):
        raise ValueError(f"max_update={max_update}: must be an integer of at least 1")
    return int(max_update)
