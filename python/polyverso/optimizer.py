"""MXNet's optimizers by their names: descriptions of what the servers, or a local store, do with what is pushed.

    from polyverso import kvstore, lr_scheduler, optimizer

    kv.set_optimizer(optimizer.create("adam", learning_rate=0.01, wd=1e-4))
    kv.set_optimizer(optimizer.SGD(momentum=0.9, lr_scheduler=lr_scheduler.FactorScheduler(1000, 0.5)))

What travels is text, str(optimizer): the formulas are in the library, and docs/optimizers.md has them with their defaults. A
class of one's own, with create_state() and update(), works in stores of one process:

    @optimizer.register
    class Halves(optimizer.Optimizer):
        def update(self, key, weight, gradient, state):
            weight -= gradient * 0.5
"""

from __future__ import annotations

import operator
from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Tuple, Type, Union

from . import capi, updater_states
from .lr_scheduler import LRScheduler
from .tensor import Tensor

_known: Dict[str, Type["Optimizer"]] = {}

Key = Union[int, str]


class Optimizer:
    """What all of them have. Parameters are attributes; one that the class does not have is a TypeError. In MXNet's order they need
    no names: SGD(0.9), Adam(0.01).

    learning_rate, lr: the rate, where a schedule begins. Without it the schedule's base_lr, else the optimizer's default.
    rescale_grad, clip_gradient: gradients are multiplied with, and then cut to +- this; None = they are not cut.
    wd: weight decay. With names of parameters, param_idx2name = {key: name}, only those that end in _weight or _gamma decay.
    lr_scheduler: a polyverso.lr_scheduler.
    begin_num_update: updates that count as made before.
    multi_precision: update() keeps a half's value in 32 bits besides; stores do so always.
    sym: is taken, as MXNet's scripts give it, and means nothing.
    """

    kind = ""  # its name on the servers
    learning_rate: Optional[float] = None
    rescale_grad: float = 1.0
    wd: float = 0.0
    clip_gradient: Optional[float] = None
    begin_num_update: int = 0
    multi_precision: bool = False

    # Parameters that need no name, where they are not the class's own in their order; and other spellings.
    positional: ClassVar[Sequence[str]] = (
        "rescale_grad param_idx2name wd clip_gradient learning_rate lr_scheduler sym begin_num_update multi_precision param_dict"
    ).split()
    aliases: ClassVar[Dict[str, str]] = {}
    _getter: ClassVar[Callable[[Any], Any]]  # of all parameters; each class has its own

    def __init__(
        self,
        *values: Any,
        param_idx2name: Optional[Dict[Key, str]] = None,
        lr_scheduler: Optional[LRScheduler] = None,
        sym: Any = None,
        param_dict: Optional[Dict[Key, Any]] = None,
        **parameters: Any,
    ) -> None:
        if values:
            named = {"param_idx2name": param_idx2name, "lr_scheduler": lr_scheduler, "sym": sym, "param_dict": param_dict}
            parameters.update({name: value for name, value in named.items() if value is not None})
            Optimizer.__init__(self, **self._by_name(values, parameters))
            return
        known = self.parameter_names()
        parameters = {self.aliases.get(name, name): value for name, value in parameters.items()}
        for name, value in parameters.items():
            if name not in known:
                also = "lr_scheduler, param_idx2name, param_dict"
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}; known: {', '.join(known)}, {also}")
            setattr(self, name, value)
        if param_idx2name is not None and not isinstance(param_idx2name, dict):
            raise TypeError("param_idx2name is a dict of the keys' names")
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and self.learning_rate is not None:
            lr_scheduler.base_lr = self.learning_rate
        self.idx2name: Dict[Key, str] = dict(param_idx2name or {})
        self.param_dict: Dict[Key, Any] = dict(param_dict or {})
        self.lr_mult: Dict[Key, float] = {}
        self.wd_mult: Dict[Key, float] = {}
        self.set_wd_mult({})
        self.num_update = self.begin_num_update  # those of the key with most of them, in get_updater() and in stores of this process
        self._index_update_count: Dict[Key, int] = {}
        self._shared: Optional[Tensor] = None

    @classmethod
    def _by_name(cls, values: Sequence[Any], named: Dict[str, Any]) -> Dict[str, Any]:
        own = list(vars(cls).get("__annotations__", {}))
        names = cls.positional if "positional" in vars(cls) or not own else own
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__} takes {len(names)} parameters without a name, {', '.join(names)}: {len(values)} were given")
        given = dict(zip(names, values))
        twice = sorted(given.keys() & named.keys())
        if twice:
            raise TypeError(f"{cls.__name__} was given {', '.join(twice)} twice")
        return {**given, **named}

    @classmethod
    def parameter_names(cls) -> List[str]:
        """The optimizer's own parameters, and then those that all have."""
        names: Dict[str, None] = {}
        for one in cls.__mro__:
            names.update(dict.fromkeys(name for name in vars(one).get("__annotations__", {})))
        return [name for name in names if name not in ("positional", "aliases", "_getter")]

    def __getattr__(self, name: str) -> Any:
        other = type(self).aliases.get(name)
        if other is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return getattr(self, other)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self.aliases.get(name, name), value)

    @property
    def lr(self) -> float:
        """The rate before schedules and factors."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 0.01 if self.lr_scheduler is None else self.lr_scheduler.base_lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self.learning_rate = rate

    def set_learning_rate(self, rate: float) -> None:
        """Takes effect with the next push to a store of this process, in others with the next KVStore.set_optimizer()."""
        if self.lr_scheduler is not None:
            raise ValueError("the rate is the lr_scheduler's: there is no other to be set")
        self.learning_rate = rate

    def set_lr_mult(self, factors: Dict[Key, float]) -> None:
        """Factors of the rate, by key or by name."""
        self.lr_mult = dict(factors)

    def set_wd_mult(self, factors: Dict[Key, float]) -> None:
        """Factors of the weight decay, by key or by name; of named parameters that are neither weights nor gammas 0 else."""
        named = self.idx2name.values()
        self.wd_mult = {name: 0.0 for name in named if not name.endswith(("_weight", "_gamma"))}
        self.wd_mult.update(factors)

    def factors_of(self, key: Key) -> Tuple[float, float]:
        """The factors of rate and weight decay for a key."""
        if key in self.param_dict:
            return self.param_dict[key].lr_mult, self.param_dict[key].wd_mult
        name = self.idx2name.get(key, key)
        factors = (self.lr_mult, self.wd_mult)
        rate, decay = (some.get(key, some.get(name, 1.0)) for some in factors)
        return rate, decay

    # What update() of a class of one's own goes by, with MXNet's names.

    def _update_count(self, index: Union[Key, Sequence[Key]]) -> None:
        """Counts an update of a key, or of several."""
        counts = self._index_update_count
        for key in index if isinstance(index, (list, tuple)) else [index]:
            counts[key] = counts.get(key, self.begin_num_update) + 1
            self.num_update = max(self.num_update, counts[key])

    def _get_lrs(self, indices: Sequence[Key]) -> List[float]:
        """The keys' rates now, with their factors."""
        rate = self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)
        return [rate * self.factors_of(key)[0] for key in indices]

    def _get_wds(self, indices: Sequence[Key]) -> List[float]:
        """The keys' weight decay, with their factors."""
        return [self.wd * self.factors_of(key)[1] for key in indices]

    def _get_lr(self, index: Key) -> float:
        return self._get_lrs([index])[0]

    def _get_wd(self, index: Key) -> float:
        return self._get_wds([index])[0]

    def _keeps_floats(self, weight: Tensor) -> bool:
        return self.multi_precision and weight.dtype in ("f16", "bf16")

    def create_state(self, key: Key, weight: Tensor) -> Any:
        """What update() needs to remember of a key: here the tensors that the library's formula wants, behind a half's value as floats
        with multi_precision."""
        if not self.kind:
            return None
        dtype = "f64" if weight.dtype == "f64" else "f32"
        own, shared = capi.kv_optimizer_states(str(self))
        states = [Tensor.zeros(weight.shape, dtype) for _ in range(own)]
        if shared and self._shared is None:
            self._shared = Tensor.zeros(shared, "f64")
        values = [weight.to_dense().cast("f32")] if self._keeps_floats(weight) else []
        return values + states + ([self._shared] if shared else [])

    def update(self, key: Key, weight: Tensor, gradient: Tensor, state: Any) -> None:
        """Steps a weight in place. Halves are stepped as 32-bit floats, which multi_precision keeps."""
        if not self.kind:
            raise NotImplementedError(f"{type(self).__name__} has no update()")
        rate, decay = self.factors_of(key)
        before = self.num_update
        self._update_count(key)
        if weight.dtype in ("f32", "f64"):
            wide = weight
        elif self._keeps_floats(weight):
            wide, *state = state
        else:
            wide = weight.cast("f32")
        own: Dict[str, Any] = {"lr_mult": rate, "wd_mult": decay}
        if self.lr_scheduler is not None and not self.lr_scheduler.is_native:
            own["learning_rate"] = self.lr_scheduler(self.num_update)
        begun = self.begin_num_update
        count = self._index_update_count[key] - begun
        capi.kv_optimizer_step(self._text(**own), count, before - begun, wide, gradient, state or None)
        if wide is not weight:
            weight.assign(wide)

    @property
    def is_native(self) -> bool:
        """Whether the library knows it, so that servers can step with it."""
        return type(self).update is Optimizer.update and (self.lr_scheduler is None or self.lr_scheduler.is_native)

    def __str__(self) -> str:
        """The text that kv_set_optimizer() and the tables' updaters take."""
        return self._text()

    def _settings(self) -> Tuple[Any, ...]:
        """All that its text says, to be compared: a push looks at it each time."""
        getter = vars(type(self)).get("_getter")
        if getter is None:
            getter = type(self)._getter = operator.attrgetter(*self.parameter_names())
        schedule = self.lr_scheduler
        return (getter(self), None if schedule is None else (schedule, dict(vars(schedule))))

    def _text(self, **of_key: Any) -> str:
        parameters = {name: getattr(self, name) for name in self.parameter_names() if name not in _UNUSED}
        if self.lr_scheduler is not None and self.lr_scheduler.is_native:
            parameters.update(self.lr_scheduler.parameters())
        parameters.update(of_key)
        words = [f"{name}={_text(value)}" for name, value in parameters.items() if value is not None]
        return " ".join([self.kind, *words])

    def __repr__(self) -> str:
        return f"<polyverso.optimizer.{type(self).__name__} {self}>"


# Parameters that mean nothing in the library.
_UNUSED = {"multi_precision"}


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def register(made: Type[Optimizer]) -> Type[Optimizer]:
    """Makes a class known to create(), by its name in small letters. For use as a decorator."""
    _known[made.__name__.lower()] = made
    return made


def create(name: str, **parameters: Any) -> Optimizer:
    """create("adam", learning_rate=0.01): the optimizer of that name, in letters of any size."""
    made = _known.get(name.lower())
    if made is None:
        raise ValueError(f"there is no optimizer {name!r}; known: {', '.join(sorted(_known))}")
    return made(**parameters)


class Updater:
    """An optimizer with the states of its keys: updater(key, gradient, weight) steps the weight in place."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: Dict[Key, Any] = {}

    def __call__(self, key: Key, gradient: Any, weight: Any) -> None:
        value, step = (one if isinstance(one, Tensor) else Tensor.view(one) for one in (weight, gradient))
        if key not in self.states:
            self.states[key] = self.optimizer.create_state(key, value)
        self.optimizer.update(key, value, step, self.states[key])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """States and counts as the bytes of a safetensors file: tensors, arrays, numbers, text, and lists, tuples and dicts of them;
        with dump_optimizer the optimizer's parameters, too. TypeError for a state that is anything else."""
        return updater_states.to_bytes(self, dump_optimizer)

    def set_states(self, states: bytes) -> None:
        """Goes on from get_states(), with an optimizer of the same class. ArgumentError for other bytes, damaged or pickled ones, and for
        another class's; nothing changes then."""
        updater_states.from_bytes(self, states)


def get_updater(optimizer: Optimizer) -> Updater:
    """For weights that one keeps oneself, and for KVStore.set_updater()."""
    return Updater(optimizer)


Optimizer.register = staticmethod(register)  # type: ignore[attr-defined]  # as in MXNet
Optimizer.create_optimizer = staticmethod(create)  # type: ignore[attr-defined]


@register
class SGD(Optimizer):
    """Steps against the gradient, with momentum."""

    kind = "mx.sgd"
    momentum: float = 0.0
    lazy_update: bool = True


@register
class NAG(Optimizer):
    """Nesterov's accelerated gradient."""

    kind = "mx.nag"
    momentum: float = 0.0


@register
class Signum(Optimizer):
    """Steps of one length, in the direction of the momentum's sign."""

    kind = "mx.signum"
    learning_rate: Optional[float] = 0.01
    momentum: float = 0.9
    wd_lh: float = 0.0


@register
class FTML(Optimizer):
    """Follow the moving leader."""

    kind = "mx.ftml"
    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8


@register
class LBSGD(Optimizer):
    """SGD for large batches, whose rate warms up: warmup_strategy linear, power2, sqrt or lars."""

    kind = "mx.lbsgd"
    positional = (
        "momentum multi_precision warmup_strategy warmup_epochs batch_scale updates_per_epoch begin_epoch num_epochs"
    ).split()
    aliases = {"warmup_startegy": "warmup_strategy"}
    momentum: float = 0.0
    warmup_strategy: str = "linear"
    warmup_epochs: int = 5
    batch_scale: int = 1
    updates_per_epoch: int = 32
    begin_epoch: int = 0
    num_epochs: int = 60


@register
class DCASGD(Optimizer):
    """SGD that makes up for the gradients' delay."""

    kind = "mx.dcasgd"
    aliases = {"lambda": "lamda"}
    momentum: float = 0.0
    lamda: float = 0.04


@register
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: steps with noise."""

    kind = "mx.sgld"
    seed: int = 0


@register
class Adam(Optimizer):
    """Adaptive moments."""

    kind = "mx.adam"
    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    lazy_update: bool = True


@register
class AdamW(Optimizer):
    """Adam with weight decay apart from the gradient."""

    kind = "mx.adamw"
    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


@register
class Adamax(Optimizer):
    """Adam with the largest gradient instead of the mean of squares."""

    kind = "mx.adamax"
    learning_rate: Optional[float] = 0.002
    beta1: float = 0.9
    beta2: float = 0.999


@register
class Nadam(Optimizer):
    """Adam with Nesterov's momentum."""

    kind = "mx.nadam"
    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule_decay: float = 0.004


@register
class AdaGrad(Optimizer):
    """Rates that fall with the sum of a value's squared gradients."""

    kind = "mx.adagrad"
    aliases = {"float_stable_eps": "eps"}
    eps: float = 1e-7


@register
class AdaDelta(Optimizer):
    """Steps as long as the last ones were; it has no rate."""

    kind = "mx.adadelta"
    rho: float = 0.9
    epsilon: float = 1e-5


@register
class RMSProp(Optimizer):
    """Rates that fall with the mean of a value's squared gradients; centered: with their variance."""

    kind = "mx.rmsprop"
    learning_rate: Optional[float] = 0.001
    gamma1: float = 0.9
    gamma2: float = 0.9
    epsilon: float = 1e-8
    centered: bool = False
    clip_weights: Optional[float] = None


@register
class Ftrl(Optimizer):
    """Follow the regularized leader: values without enough evidence are zero."""

    kind = "mx.ftrl"
    positional = ("lamda1", "learning_rate", "beta")
    aliases = {"lambda1": "lamda1"}
    learning_rate: Optional[float] = 0.1
    lamda1: float = 0.01
    beta: float = 1.0


@register
class LAMB(Optimizer):
    """Adam whose steps are as long, layer by layer, as the weights are large."""

    kind = "mx.lamb"
    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    lower_bound: Optional[float] = None
    upper_bound: Optional[float] = None
    bias_correction: bool = True


@register
class Lion(Optimizer):
    """Steps of one length, in the direction of the sign of what momentum and gradient agree upon."""

    kind = "mx.lion"
    learning_rate: Optional[float] = 0.0001
    beta1: float = 0.9
    beta2: float = 0.99


@register
class Test(Optimizer):
    """Adds the gradient: for tests."""

    kind = "mx.test"
