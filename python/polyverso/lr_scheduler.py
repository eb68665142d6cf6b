"""Schedules of the learning rate, with MXNet's names: they go to the servers with the optimizer they belong to.

The rate is worked out where the updates are made, from the number of a key's updates; docs/optimizers.md has the formulas. Called
with a number of updates, a schedule tells the rate then: lr_scheduler.PolyScheduler(100)(50).

A class of one's own overrides __call__, and works in stores of this process:

    class Halving(lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            return self.base_lr / 2**num_update
"""

from __future__ import annotations

from typing import Any, Dict, Sequence, Union

from . import capi


class LRScheduler:
    """What all schedules have: the rate before they begin, and a warm-up of the first `warmup_steps` updates."""

    kind = ""

    # base_lr becomes the learning_rate of the optimizer it belongs to. warmup_final_lr: base_lr as it was at first, where the warm-up
    # ends, and poly and cosine begin.

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"
    ) -> None:
        if warmup_begin_lr > base_lr:
            raise ValueError(f"the rate grows in a warm-up, but warmup_begin_lr={warmup_begin_lr} > base_lr={base_lr}")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(f"warmup_mode is linear or constant, not {warmup_mode}")
        self.base_lr = base_lr
        self.warmup_final_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode

    def parameters(self) -> Dict[str, Any]:
        """The optimizer's parameters that mean this schedule."""
        warmup: Dict[str, Any] = {}
        if self.warmup_steps:
            warmup["warmup_steps"] = self.warmup_steps
            warmup["warmup_begin_lr"] = self.warmup_begin_lr
            warmup["warmup_mode"] = self.warmup_mode
        return {"lr_scheduler": self.kind, "base_lr": self.warmup_final_lr, **warmup}

    @property
    def is_native(self) -> bool:
        """Whether the library knows it, so that servers can follow it."""
        return bool(self.kind) and type(self).__call__ is LRScheduler.__call__

    def __call__(self, num_update: int) -> float:
        """The rate after so many updates."""
        if not self.kind:
            raise NotImplementedError(f"{type(self).__name__} is no schedule")
        parameters = {"learning_rate": self.base_lr, **self.parameters()}
        words = (f"{name}={value}" for name, value in parameters.items())
        return capi.kv_optimizer_rate(" ".join(["mx.sgd", *words]), num_update)


class FactorScheduler(LRScheduler):
    """Multiplies the rate with `factor` after each `step` updates, not below stop_factor_lr."""

    kind = "factor"

    def __init__(
        self, step: int, factor: float = 1, stop_factor_lr: float = 1e-8, base_lr: float = 0.01, **warmup: Any
    ) -> None:
        super().__init__(base_lr, **warmup)
        if step < 1:
            raise ValueError(f"step={step}: at least 1 update lies between two changes")
        if factor > 1:
            raise ValueError(f"factor={factor}: a factor above 1 would let the rate grow")
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr

    def parameters(self) -> Dict[str, Any]:
        own = {"step": self.step, "factor": self.factor, "stop_factor_lr": self.stop_factor_lr}
        return {**super().parameters(), **own}


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate with `factor` at each of the updates in `step`, which ascend."""

    kind = "multifactor"

    def __init__(self, step: Sequence[int], factor: float = 1, base_lr: float = 0.01, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        if not step or list(step) != sorted(set(step)) or step[0] < 1:
            raise ValueError(f"step={list(step)}: numbers of updates are needed, ascending, from 1 on")
        if factor > 1:
            raise ValueError(f"factor={factor}: a factor above 1 would let the rate grow")
        self.step = list(step)
        self.factor = factor

    def parameters(self) -> Dict[str, Any]:
        return {**super().parameters(), "step": ":".join(map(str, self.step)), "factor": self.factor}


class PolyScheduler(LRScheduler):
    """Down to final_lr at max_update, along a power of what is left."""

    kind = "poly"

    def __init__(
        self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0, **warmup: Any
    ) -> None:
        super().__init__(base_lr, **warmup)
        self.max_update = _length(max_update)
        self.power = pwr
        self.final_lr = final_lr

    def parameters(self) -> Dict[str, Any]:
        own = {"max_update": self.max_update, "final_lr": self.final_lr, "pwr": self.power}
        return {**super().parameters(), **own}


class CosineScheduler(LRScheduler):
    """Down to final_lr at max_update, along half a cosine."""

    kind = "cosine"

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        self.max_update = _length(max_update)
        self.final_lr = final_lr

    def parameters(self) -> Dict[str, Any]:
        return {**super().parameters(), "max_update": self.max_update, "final_lr": self.final_lr}


def _length(max_update: Union[int, float]) -> int:
    if max_update < 1 or max_update != int(max_update):
        raise ValueError(f"max_update={max_update}: a whole number of updates, at least 1, is needed")
    return int(max_update)
