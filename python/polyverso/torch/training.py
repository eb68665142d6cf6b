"""Training of a torch.nn.Module in many processes without DistributedDataParallel, or with less traffic."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist

from .. import distlearn, kvstore, optimizer
from ..group import Group
from ..node import Node, init
from ..request import Request
from .process_group import ProcessGroup
from .work import Call, Futures, Work


def _group_of(group: Any) -> Tuple[Group, bool]:
    """A group of the library, and whether it was opened here: of a ProcessGroup, or of the default one, or of all workers."""
    if isinstance(group, Group):
        return group, False
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if isinstance(group, ProcessGroup):
        return group.group, False
    if group is not None:
        raise TypeError(f"group is a {type(group).__name__}: a process group of the backend polyverso or a polyverso.Group is needed")
    return Group(), True


def _in_memory_order(tensor: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A view of the tensor without its history, with its dimensions in the order that the weight's have in memory. A
    weight in a format such as channels_last is then contiguous."""
    tensor = tensor.detach()
    if not weight.is_contiguous():
        tensor = tensor.permute(sorted(range(weight.dim()), key=weight.stride, reverse=True))
    return tensor


def _places(model: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The trained parameters' own memory."""
    return {name: _in_memory_order(parameter, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad}


@contextlib.contextmanager
def _parameters(model: torch.nn.Module) -> Iterator[Dict[str, torch.Tensor]]:
    """The trained parameters' values, contiguous, to be changed in place. They are the parameters' own memory, or copies
    if this has gaps, which are copied back at the end."""
    places = _places(model)
    values = {name: place.contiguous() for name, place in places.items()}
    yield values
    for name, place in places.items():
        if values[name] is place:
            place.view(-1)[:0].zero_()  # writes no element: tells autograd that the memory changed
        else:
            place.copy_(values[name])


# ------------------------------------------------------------------ rare exchanges


class _Exchange:
    """A strategy of polyverso.distlearn for the trained parameters of a model."""

    _strategy: Any

    def __init__(self, model: torch.nn.Module, group: Any) -> None:
        self._model = model
        self._group, self._is_own = _group_of(group)

    @property
    def meter(self) -> distlearn.Meter:
        """The traffic so far, and what an all-reduce in every step would have sent."""
        return self._strategy.meter

    def close(self) -> None:
        self._strategy.close()
        if self._is_own:
            self._group.close()


class LocalSGD(_Exchange):
    """Each rank trains `model` with an optimizer of its own; every `inner_steps` steps the ranks exchange parameters.

        local = polyverso.torch.LocalSGD(model, inner_steps=50)
        for batch in batches:                   # ranks may have different numbers of batches
            ...
            optimizer.step()
            local.step()
        local.synchronize()                     # waits for the other ranks; all have the same bits

    All ranks begin with rank 0's parameters. Buffers stay each rank's own. `group`: a process group of this backend, a
    polyverso.Group, or None: the default process group, without one all workers of the cluster. `settings` as for
    polyverso.distlearn.LocalSGD: outer_rate, outer_momentum, fragments, overlap and others."""

    def __init__(self, model: torch.nn.Module, inner_steps: int, group: Any = None, **settings: float) -> None:
        super().__init__(model, group)
        with _parameters(model) as parameters:
            self._group.broadcast_many(parameters.values())
        self._strategy = distlearn.LocalSGD(self._group, inner_steps, **settings)
        self.synchronize()  # the first call's parameters are what the first exchange starts from

    def step(self) -> None:
        """Call after each step of the optimizer."""
        with _parameters(self._model) as parameters:
            self._strategy.step(parameters)

    def synchronize(self) -> None:
        """Waits for ranks that still make steps. Then all ranks have the same parameters."""
        with _parameters(self._model) as parameters:
            self._strategy.synchronize_parameters(parameters)


class DiLoCo(LocalSGD):
    """LocalSGD with DiLoCo's outer step. With `fragments` and `overlap` it is Streaming DiLoCo."""

    def __init__(
        self, model: torch.nn.Module, inner_steps: int, group: Any = None, *, outer_rate: float = 0.7, outer_momentum: float = 0.9, **settings: float
    ) -> None:
        super().__init__(model, inner_steps, group, outer_rate=outer_rate, outer_momentum=outer_momentum, **settings)


class ElasticAveraging(_Exchange):
    """Elastic averaging: each rank trains `model` with an optimizer of its own; every `tau` steps the parameters and a
    centre, of which each rank has a copy, move towards each other by `alpha` times their difference.

        elastic = polyverso.torch.ElasticAveraging(model, tau=10, alpha=0.2)
        for batch in batches:                   # ranks may have different numbers of batches
            ...
            optimizer.step()
            elastic.step()
        elastic.synchronize()                   # waits for the other ranks; all have the same centre
        elastic.load_center()                   # all have the same parameters

    All ranks begin with rank 0's parameters, which are also the first centre. Unstable for alpha > 2 / (ranks + 1).
    `group` as for LocalSGD. Buffers stay each rank's own."""

    def __init__(self, model: torch.nn.Module, tau: int, alpha: float, group: Any = None) -> None:
        super().__init__(model, group)
        self._strategy = distlearn.AllReduceEA(self._group, tau, alpha)
        with _parameters(model) as parameters:
            self._strategy.synchronize_parameters(parameters)

    def step(self) -> None:
        """Call after each step of the optimizer."""
        with _parameters(self._model) as parameters:
            self._strategy.average_parameters(parameters)

    def synchronize(self) -> None:
        """Waits for ranks that still make steps. Then all have the same centre; parameters stay each rank's own."""
        with _parameters(self._model) as parameters:
            self._strategy.synchronize_center(parameters)

    def load_center(self) -> None:
        """The parameters become the centre, which is often the better model."""
        with _parameters(self._model) as parameters:
            self._strategy.read_center(parameters)


# ------------------------------------------------------------------ compressed gradients of DDP


class CompressedGradients:
    """The communication hook of a DistributedDataParallel model whose gradients are averaged compressed.

        compressed = polyverso.torch.CompressedGradients(model, "int8")
        ...
        print(compressed.meter)

    `how` is a codec as for polyverso.distlearn.CompressedAllReduce: "fp16", "bf16", "int8", "2bit threshold=0.5",
    "topk ratio=0.01", "powersgd rank=4". Each rank keeps what a codec has left out, and adds it to its next gradients. The
    process group must be one of this backend. Collective among its ranks. Parameters are on the CPU and not sparse."""

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel, how: str) -> None:
        group, _ = _group_of(model.process_group)
        # A group for the hook's thread alone: DDP may use the other one at the same time.
        self._group = Group(group.node, group.members)
        self._how = how
        self._strategies: Dict[Any, distlearn.CompressedAllReduce] = {}
        self._futures = Futures()
        model.register_comm_hook(None, self._hook)

    def _hook(self, _, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
        gradients, buffer = bucket.gradients(), bucket.buffer()
        key = (bucket.index(), *(gradient.shape for gradient in gradients))  # DDP changes its buckets after the first step
        if key not in self._strategies:
            self._strategies[key] = distlearn.CompressedAllReduce(self._group, self._how)
        average = self._strategies[key].average_gradients
        future = Work(self._futures, Call(lambda: average(gradients)), [buffer]).get_future()
        return future.then(lambda ended: ended.value()[0])

    @property
    def meter(self) -> distlearn.Meter:
        """The traffic so far, and what an all-reduce in every step would have sent. Steps are those of single buckets."""
        meters = [strategy.meter for strategy in self._strategies.values()]
        return distlearn.Meter(*(sum(numbers) for numbers in zip(*meters))) if meters else distlearn.Meter(0, 0, 0, 0)

    def close(self) -> None:
        """Call it when the model has made its last step."""
        self._futures.close()
        for strategy in self._strategies.values():
            strategy.close()
        self._group.close()


# ------------------------------------------------------------------ parameter servers


class ServerOptimizer:
    """An optimizer whose steps the servers make: gradients are pushed to them, and weights pulled.

        optimizer = polyverso.torch.ServerOptimizer(model, "adam", learning_rate=0.001)
        for batch in batches:
            optimizer.zero_grad()
            loss(model(batch)).backward()       # pushes each gradient as soon as it is complete, and pulls its weight
            optimizer.step()                    # waits for the weights

    name, parameters: one of polyverso.optimizer's, with its parameters. The workers' gradients are averaged: their sum is
    divided by the number of workers, also after close() of some of them. The others' gradients then count as if the closed
    ones had gradients of zero.
    kind: "dist_sync" (a step is one of all workers' gradients, merged), "dist_async" (each push is a step of its own), or
    "local". Weights of the first layers are transferred first, because the next forward pass needs them first.
    compression: of the gradients, as for KVStore.set_gradient_compression().
    All workers make it together, and begin with worker 0's weights. One backward() per step(). With "dist_sync", a weight
    that a worker's backward() does not reach has a gradient of zero there. Freeze a weight (requires_grad_(False)) on all
    workers, before the same step."""

    def __init__(
        self, model: torch.nn.Module, name: str = "sgd", *, kind: str = "dist_sync", compression: Any = None, **parameters: Any
    ) -> None:
        self._node: Optional[Node] = None if kind == "local" else init()
        self.store = kvstore.create(kind)
        self._is_merging = kind == "dist_sync"
        self._weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        # Pulls go to copies: until step(), the backward pass still reads the weights.
        self._pulled = {name: place.clone(memory_format=torch.contiguous_format) for name, place in _places(model).items()}
        self._priorities = {key: -place for place, key in enumerate(self._weights)}
        self._pulls: List[Tuple[str, Request]] = []
        self.store.init(list(self._pulled), list(self._pulled.values()))
        if compression is not None:
            self.store.set_gradient_compression(compression)
        if self.store.rank == 0:
            rescale = 1 / self.store.num_workers if self._is_merging else 1.0
            self.store.set_optimizer(optimizer.create(name, **{"rescale_grad": rescale, **parameters}))
        if self._node is not None:
            self.store.barrier()  # no push before the optimizer is set
        self._hooks = [_when_complete(weight, self._exchange(key)) for key, weight in self._weights.items()]
        for key in self._weights:
            self._pull(key)
        self.step()

    def _exchange(self, key: str) -> Callable[[torch.Tensor], None]:
        def exchange(weight: torch.Tensor) -> None:
            assert weight.grad is not None
            self._push(key, _in_memory_order(weight.grad, weight).contiguous())
            self._pull(key)

        return exchange

    def _push(self, key: str, gradient: torch.Tensor) -> None:
        self.store.push(key, gradient, self._priorities[key])

    def _pull(self, key: str) -> None:
        self._pulls.append((key, self.store.pull_async(key, self._pulled[key], priority=self._priorities[key])))

    def _exchange_unused(self) -> None:
        """Other workers may have used the weights that this worker's backward pass has not reached."""
        exchanged = {key for key, _ in self._pulls}
        for key, weight in self._weights.items() if exchanged else ():
            if key not in exchanged and weight.requires_grad:
                if self._is_merging:  # the others' round waits for this worker's part
                    self._push(key, torch.zeros_like(self._pulled[key]))
                self._pull(key)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Waits until the model has the weights after the step of the gradients of the last backward(). `closure`, if any,
        is called first, and its result returned."""
        loss = None if closure is None else closure()
        self._exchange_unused()
        pulls, self._pulls = self._pulls, []
        for key, pull in pulls:
            pull.wait()
            weight = self._weights[key]
            _in_memory_order(weight, weight).copy_(self._pulled[key])
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in self._weights.values():
            if weight.grad is not None:
                weight.grad = None if set_to_none else weight.grad.zero_()

    def close(self) -> None:
        """Ends this worker's part: the others' steps continue without it, and are smaller (see the class)."""
        for hook in self._hooks:
            hook.remove()
        node, self._node = self._node, None  # None when it is called again, too
        if node is not None:
            self.store.leave()
        self.store.close()
        if node is not None:
            node.shutdown()


def _when_complete(weight: torch.Tensor, function: Callable[[torch.Tensor], None]) -> Any:
    """Calls function(weight) when a backward pass has completed weight.grad. Returns a handle with remove()."""
    if hasattr(weight, "register_post_accumulate_grad_hook"):  # PyTorch 2.1
        return weight.register_post_accumulate_grad_hook(function)
    accumulation = weight.expand_as(weight).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    handle = accumulation.register_hook(lambda *_: function(weight))
    handle.accumulation = accumulation  # the hook lives as long as this object
    return handle


class ParameterServer:
    """Asynchronous training in Multiverso's way: each worker trains `model` with an optimizer of its own, and
    synchronizes when it calls sync(). The servers hold the sum of all workers' changes.

        server = polyverso.torch.ParameterServer(model)
        for step, batch in enumerate(batches):
            ...
            optimizer.step()
            if step % 10 == 9:
                server.sync()

    All workers make it together, and begin with worker 0's parameters. name: the name of the servers' float32 table."""

    def __init__(self, model: torch.nn.Module, name: str = "model") -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        node = init()
        self._node: Optional[Node] = node
        mine = self._vector()
        self.table = node.array(mine.numel(), name=name, init=mine)
        self._load()
        node.barrier()  # no change before all have loaded

    def sync(self) -> None:
        """Adds what has changed since the last sync() to the servers' parameters, and loads the sum."""
        self.table.add(self._vector() - self._loaded)
        self._load()

    def _load(self) -> None:
        parts = torch.from_numpy(self.table.get()).split([parameter.numel() for parameter in self._parameters])
        with torch.no_grad():
            for parameter, part in zip(self._parameters, parts):
                parameter.copy_(part.view(parameter.shape))
        self._loaded = self._vector()  # not the table's values: rounded to 16 bits, they would count as changed by training

    def _vector(self) -> torch.Tensor:
        return torch.cat([parameter.detach().reshape(-1).float() for parameter in self._parameters])

    def close(self) -> None:
        self.table.close()
        node, self._node = self._node, None
        if node is not None:
            node.shutdown()
