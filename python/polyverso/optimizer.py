"""MXNet's optimizers, under their names: they describe how the servers, or a local store, apply pushed gradients.

    from polyverso import kvstore, lr_scheduler, optimizer

    kv.set_optimizer(optimizer.create("adam", learning_rate=0.01, wd=1e-4))
    kv.set_optimizer(optimizer.SGD(momentum=0.9, lr_scheduler=lr_scheduler.FactorScheduler(1000, 0.5)))

Servers receive text, str(optimizer), and never code: the library implements the formulas, which docs/optimizers.md
lists with their defaults. A user-defined class, with create_state() and update(), works in stores of one process:

    @optimizer.register
    class Halves(optimizer.Optimizer):
        def update(self, key, weight, gradient, state):
            weight -= gradient * 0.5
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, List, Optional, Sequence, Set, Tuple, Type, Union

from . import capi, updater_states
from .errors import ArgumentError, ParameterError
from .lr_scheduler import LRScheduler
from .names import did_you_mean, listing
from .tensor import Tensor

_known: Dict[str, Type["Optimizer"]] = {}

__all__ = [
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DCASGD",
    "FTML",
    "Ftrl",
    "LAMB",
    "LBSGD",
    "Lion",
    "NAG",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "SGD",
    "SGLD",
    "Signum",
    "Test",
    "Updater",
    "create",
    "get_updater",
    "register",
]
__dir__ = listing(__all__)

Key = Union[int, str]


class Optimizer:
    """Base class of all optimizers. Parameters are attributes; an unknown one is a TypeError. In MXNet's order they
    need no names: SGD(0.9), Adam(0.01).

    learning_rate, lr: the rate, at which a schedule begins. Without it: the schedule's base_lr, or a default.
    rescale_grad, clip_gradient: gradients are multiplied by the first, then clipped to +- the second; None = no clip.
    wd: weight decay. With names of parameters, param_idx2name = {key: name}, only those that end in _weight or _gamma decay.
    lr_scheduler: a polyverso.lr_scheduler.
    begin_num_update: updates that count as made before.
    multi_precision: update() keeps a 32-bit copy of a 16-bit weight; stores always do so.
    sym: accepted because MXNet's scripts pass it; no effect.
    """

    kind = ""  # its name on the servers
    learning_rate: Optional[float] = None
    rescale_grad: float = 1.0
    wd: float = 0.0
    clip_gradient: Optional[float] = None
    begin_num_update: int = 0
    multi_precision: bool = False

    # Parameters that can be passed without a name, if not the class's own in their order; and alternative spellings.
    positional: ClassVar[Sequence[str]] = (
        "rescale_grad param_idx2name wd clip_gradient learning_rate lr_scheduler sym begin_num_update multi_precision param_dict"
    ).split()
    aliases: ClassVar[Dict[str, str]] = {}
    if TYPE_CHECKING:  # other annotations are parameters. Like MXNet: the functions of this module.
        register: ClassVar[Callable[[Type["Optimizer"]], Type["Optimizer"]]]
        create_optimizer: ClassVar[Callable[..., "Optimizer"]]
    _getter: ClassVar[Callable[[Any], Any]]  # gets all parameters; one for each class

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
                every = [*known, "lr_scheduler", "param_idx2name", "param_dict"]
                raise ParameterError(
                    capi.MV_EINVAL,
                    f"{type(self).__name__} has no parameter {name!r}{did_you_mean(name, every)}; known: {', '.join(every)}",
                )
            setattr(self, name, value)
        if param_idx2name is not None and not isinstance(param_idx2name, dict):
            raise TypeError("param_idx2name must be a dict from keys to names")
        if lr_scheduler is not None and not callable(lr_scheduler):
            raise TypeError(f"lr_scheduler is {lr_scheduler!r}: a schedule of polyverso.lr_scheduler is needed")
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and self.learning_rate is not None:
            lr_scheduler.base_lr = self.learning_rate
        self.idx2name: Dict[Key, str] = dict(param_idx2name or {})
        self.param_dict: Dict[Key, Any] = dict(param_dict or {})
        self.lr_mult: Dict[Key, float] = {}
        self.wd_mult: Dict[Key, float] = {}
        self.set_wd_mult({})
        self.num_update = self.begin_num_update  # highest count of any key; for get_updater() and stores of one process
        self._index_update_count: Dict[Key, int] = {}
        self._shared: Optional[Tensor] = None

    @classmethod
    def _by_name(cls, values: Sequence[Any], named: Dict[str, Any]) -> Dict[str, Any]:
        own = list(vars(cls).get("__annotations__", {}))
        names = cls.positional if "positional" in vars(cls) or not own else own
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__} takes {len(names)} positional parameters ({', '.join(names)}): {len(values)} were given")
        given = dict(zip(names, values))
        twice = sorted(given.keys() & named.keys())
        if twice:
            raise TypeError(f"{cls.__name__} got multiple values for {', '.join(twice)}")
        return {**given, **named}

    @classmethod
    def parameter_names(cls) -> List[str]:
        """The names of the optimizer's own parameters, then of the common ones."""
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
        """The rate before schedules and multipliers."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 0.01 if self.lr_scheduler is None else self.lr_scheduler.base_lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self.learning_rate = rate

    def set_learning_rate(self, rate: float) -> None:
        """Sets the rate. Takes effect at the next push to a store of one process; in dist stores, at the next
        KVStore.set_optimizer()."""
        if self.lr_scheduler is not None:
            raise ValueError("the lr_scheduler sets the learning rate: it can't be set directly")
        self.learning_rate = rate

    def set_lr_mult(self, factors: Dict[Key, float]) -> None:
        """Sets multipliers of the rate, by key or by name."""
        self.lr_mult = dict(factors)

    def set_wd_mult(self, factors: Dict[Key, float]) -> None:
        """Sets multipliers of the weight decay, by key or by name. The default is 1, but 0 for named parameters that
        are neither weights nor gammas."""
        named = self.idx2name.values()
        self.wd_mult = {name: 0.0 for name in named if not name.endswith(("_weight", "_gamma"))}
        self.wd_mult.update(factors)

    def factors_of(self, key: Key) -> Tuple[float, float]:
        """The multipliers of rate and weight decay for a key."""
        if key in self.param_dict:
            return self.param_dict[key].lr_mult, self.param_dict[key].wd_mult
        name = self.idx2name.get(key, key)
        factors = (self.lr_mult, self.wd_mult)
        rate, decay = (some.get(key, some.get(name, 1.0)) for some in factors)
        return rate, decay

    # For update() of user-defined classes, with MXNet's names.

    def _update_count(self, index: Union[Key, Sequence[Key]]) -> None:
        """Counts an update of one key, or of each of several."""
        counts = self._index_update_count
        for key in index if isinstance(index, (list, tuple)) else [index]:
            counts[key] = counts.get(key, self.begin_num_update) + 1
            self.num_update = max(self.num_update, counts[key])

    def _get_lrs(self, indices: Sequence[Key]) -> List[float]:
        """The current rates of the keys, including their multipliers."""
        rate = self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)
        return [rate * self.factors_of(key)[0] for key in indices]

    def _get_wds(self, indices: Sequence[Key]) -> List[float]:
        """The weight decay of the keys, including their multipliers."""
        return [self.wd * self.factors_of(key)[1] for key in indices]

    def _get_lr(self, index: Key) -> float:
        return self._get_lrs([index])[0]

    def _get_wd(self, index: Key) -> float:
        return self._get_wds([index])[0]

    def _keeps_floats(self, weight: Tensor) -> bool:
        return self.multi_precision and weight.dtype in ("f16", "bf16")

    def create_state(self, key: Key, weight: Tensor) -> Any:
        """The state that update() keeps for a key. Here: the tensors that the library's formula needs; with
        multi_precision, preceded by a 32-bit copy of a 16-bit weight."""
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
        """Updates a weight in place. A 16-bit weight is updated as 32-bit floats, which multi_precision keeps."""
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
        """Whether the library implements it, so that servers can use it."""
        return type(self).update is Optimizer.update and (self.lr_scheduler is None or self.lr_scheduler.is_native)

    def __str__(self) -> str:
        """The text that kv_set_optimizer() and the tables' updaters take."""
        return self._text()

    def _settings(self) -> Tuple[Any, ...]:
        """Everything that determines the text, for a fast comparison at every push."""
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


# Parameters that have no effect in the library.
_UNUSED = {"multi_precision"}


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def register(made: Type[Optimizer]) -> Type[Optimizer]:
    """Registers a class for create(), under its name in lower case. Use it as a decorator."""
    _known[made.__name__.lower()] = made
    return made


def create(name: str, **parameters: Any) -> Optimizer:
    """create("adam", learning_rate=0.01): the optimizer of that name, which is case-insensitive."""
    made = _known.get(name.lower())
    if made is None:
        raise ArgumentError(
            capi.MV_EINVAL, f"unknown optimizer {name!r}{did_you_mean(name.lower(), _known)}; known: {', '.join(sorted(_known))}"
        )
    return made(**parameters)


def updater_text(updater: Any) -> Optional[str]:
    """A table's updater as the library takes it: the text itself, or an optimizer's."""
    if updater is None or isinstance(updater, str):
        return updater
    if isinstance(updater, Optimizer):
        return str(updater)
    raise TypeError(f'updater is {updater!r}: text is needed, such as "sgd rate=0.1", or an optimizer of polyverso.optimizer')


def _moved(state: Any, device: str) -> Any:
    """A state that was loaded to the host, with its tensors on the weight's device."""
    if isinstance(state, Tensor):
        return state if state.device == device else state.to(device)
    if isinstance(state, dict):
        return {name: _moved(part, device) for name, part in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_moved(part, device) for part in state)
    return state


class Updater:
    """An optimizer with the states of its keys: updater(key, gradient, weight) updates the weight in place."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: Dict[Key, Any] = {}
        self._loaded: Set[Key] = set()  # not used since

    def __call__(self, key: Key, gradient: Any, weight: Any) -> None:
        value, step = (one if isinstance(one, Tensor) else Tensor.view(one) for one in (weight, gradient))
        if key not in self.states:
            self.states[key] = self.optimizer.create_state(key, value)
        elif key in self._loaded:
            self.states[key] = _moved(self.states[key], value.device)
        self._loaded.discard(key)
        self.optimizer.update(key, value, step, self.states[key])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """States and update counts as the bytes of a safetensors file; with dump_optimizer, the optimizer's parameters,
        schedule and factors, too, but not a schedule of a class of your own. States may be tensors, arrays, numbers, strings, and lists, tuples and dicts of them; TypeError for
        others."""
        return updater_states.to_bytes(self, dump_optimizer)

    def set_states(self, states: bytes) -> None:
        """Continues from get_states() of an optimizer of the same class. ArgumentError for other bytes, such as damaged
        or pickled ones, and for the states of another class; nothing changes then."""
        updater_states.from_bytes(self, states)
        self._loaded = set(self.states)


def get_updater(optimizer: Optimizer) -> Updater:
    """An updater for weights that the caller keeps, and for KVStore.set_updater()."""
    return Updater(optimizer)


def _native(made: Type[Optimizer]) -> Type[Optimizer]:
    """Registers a class that the library implements. It declares the parameters of its own, in their order, with the
    defaults; its docstring describes it."""
    made.kind = f"mx.{made.__name__.lower()}"
    return register(made)


Optimizer.register = staticmethod(register)
Optimizer.create_optimizer = staticmethod(create)


@_native
class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    momentum: float = 0.0
    lazy_update: bool = True


@_native
class NAG(Optimizer):
    """Nesterov's accelerated gradient."""

    momentum: float = 0.0


@_native
class Signum(Optimizer):
    """Steps of equal length, in the direction of the sign of the momentum."""

    learning_rate: Optional[float] = 0.01
    momentum: float = 0.9
    wd_lh: float = 0.0


@_native
class FTML(Optimizer):
    """Follow the moving leader."""

    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8


@_native
class LBSGD(Optimizer):
    """SGD for large batches, with a warm-up of the rate: warmup_strategy is linear, power2, sqrt or lars."""

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


@_native
class DCASGD(Optimizer):
    """SGD that compensates for the delay of gradients."""

    aliases = {"lambda": "lamda"}
    momentum: float = 0.0
    lamda: float = 0.04


@_native
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: steps with noise."""

    seed: int = 0


@_native
class Adam(Optimizer):
    """Adaptive moments."""

    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    lazy_update: bool = True


@_native
class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


@_native
class Adamax(Optimizer):
    """Adam with a decaying maximum of the gradients (infinity norm) instead of the mean of their squares."""

    learning_rate: Optional[float] = 0.002
    beta1: float = 0.9
    beta2: float = 0.999


@_native
class Nadam(Optimizer):
    """Adam with Nesterov's momentum."""

    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule_decay: float = 0.004


@_native
class AdaGrad(Optimizer):
    """Divides the rate of each value by the root of the sum of its squared gradients."""

    aliases = {"float_stable_eps": "eps"}
    eps: float = 1e-7


@_native
class AdaDelta(Optimizer):
    """Scales the gradient by the RMS of earlier steps over the RMS of gradients; it has no rate."""

    rho: float = 0.9
    epsilon: float = 1e-5


@_native
class RMSProp(Optimizer):
    """Divides the rate of each value by the RMS of its gradients; with centered, by their standard deviation."""

    learning_rate: Optional[float] = 0.001
    gamma1: float = 0.9
    gamma2: float = 0.9
    epsilon: float = 1e-8
    centered: bool = False
    clip_weights: Optional[float] = None


@_native
class Ftrl(Optimizer):
    """Follow the regularized leader: values whose |z| is at most lamda1 are zero."""

    positional = ("lamda1", "learning_rate", "beta")
    aliases = {"lambda1": "lamda1"}
    learning_rate: Optional[float] = 0.1
    lamda1: float = 0.01
    beta: float = 1.0


@_native
class LAMB(Optimizer):
    """Adam with step lengths that are scaled, layer by layer, to the norm of the weights."""

    learning_rate: Optional[float] = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    lower_bound: Optional[float] = None
    upper_bound: Optional[float] = None
    bias_correction: bool = True


@_native
class Lion(Optimizer):
    """Steps of equal length, in the direction of the sign of an interpolation between momentum and gradient."""

    learning_rate: Optional[float] = 0.0001
    beta1: float = 0.9
    beta2: float = 0.99


@_native
class Test(Optimizer):
    """Adds the gradient; for tests."""
