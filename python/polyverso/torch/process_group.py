"""The backend "polyverso" of torch.distributed: a ProcessGroup over a group of workers. docs/pytorch.md is the guide."""

from __future__ import annotations

import collections
import datetime
import functools
import inspect
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from ..group import Group
from . import rendezvous
from .work import Futures, Message, Received, Work

# What the library reduces. Its float16 and bfloat16 are summed in float32.
_REDUCED = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.int8
}
_ReduceOp = dist.ReduceOp
_NAMES = {_ReduceOp.SUM: "sum", _ReduceOp.AVG: "avg", _ReduceOp.PRODUCT: "prod", _ReduceOp.MIN: "min", _ReduceOp.MAX: "max"}
# Reductions of bool, whose sum is a logical or, as with other backends.
_OF_BOOL = {
    _ReduceOp.SUM: "max", _ReduceOp.PRODUCT: "min", _ReduceOp.MIN: "min", _ReduceOp.MAX: "max", _ReduceOp.BAND: "min", _ReduceOp.BOR: "max"
}
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_BITWISE = {_ReduceOp.BAND: torch.bitwise_and, _ReduceOp.BOR: torch.bitwise_or, _ReduceOp.BXOR: torch.bitwise_xor}
# C++ of earlier versions keeps a Work, but not the Python object that does its work.
_CPP_FORGETS_WORKS = tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 8)


class ProcessGroup(dist.ProcessGroup):
    """torch.distributed's operations for tensors on the CPU, and on CUDA devices by copies in the host's memory. They are
    carried out one by one, in the order of the calls. Tensors that are not contiguous are copied. Errors are polyverso's, PeerError for a lost rank, and name the rank."""

    def __init__(self, group: Group, timeout: datetime.timedelta, leave: Callable[[], None]) -> None:
        super().__init__(group.rank, group.size)
        self.group = group
        self._timeout = timeout
        self._leave = leave
        self._futures = Futures()
        self._works: Deque[Work] = collections.deque(maxlen=64)
        self._name = self._desc = ""

    # ------------------------------------------------------------------ what torch.distributed asks

    def getBackendName(self) -> str:
        return "polyverso"

    def _get_backend(self, device: Any = None) -> ProcessGroup:
        return self

    get_backend = _get_backend

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    group_name = property(getGroupName)

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    def getGroupDesc(self) -> str:
        return self._desc

    group_desc = property(getGroupDesc)

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _start_coalescing(self, device: Any = None) -> None:
        pass

    def _end_coalescing(self, works: Any = None) -> None:
        pass

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """The limit of later operations."""
        self._timeout = timeout

    def shutdown(self) -> None:
        """Leaves the group. The last one of a process also leaves the cluster, if this backend has joined it."""
        self._close()
        self._leave()

    def abort(self) -> None:
        """Leaves the group; operations under way fail."""
        self._close()

    def _close(self) -> None:
        if not self.group.is_closed:
            self.group.close()
            self._futures.close()

    def __del__(self) -> None:
        if hasattr(self, "_works"):  # its __init__() has ended
            try:
                self._close()
            except Exception:  # the node has ended, or this is a forked child
                pass

    # ------------------------------------------------------------------ reductions

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        op, tensor = _op_of(opts), tensors[0]
        if not tensor.is_floating_point() and op in _BITWISE and tensor.dtype in _INTEGERS:
            return self._allreduce_bits(tensor, op, opts)
        place = _Place(tensor)
        return self._begin("allreduce", opts, list(tensors), place.ending, place.reducible(), _name_of(op, place))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        places = [_Place(tensor) for tensor in tensors]
        names = {_name_of(_op_of(opts), place) for place in places} or {"sum"}
        if len(names) > 1:
            raise TypeError("all_reduce of several tensors: bool and other dtypes can't be in one operation")
        return self._begin("allreduce_many", opts, list(tensors), _all(places), [place.reducible() for place in places], names.pop())

    def _allreduce_bits(self, tensor: torch.Tensor, op: Any, opts: Any) -> Work:
        """Bitwise operations, which the library lacks: all ranks' integers come to all."""
        function = _BITWISE[op]
        theirs = torch.empty((self.size(), *tensor.shape), dtype=tensor.dtype)

        def finish(_: Any = None) -> None:
            combined = theirs[0]
            for rank in range(1, self.size()):
                combined = function(combined, theirs[rank])
            tensor.detach().copy_(combined)

        return self._gather_into(theirs, tensor, opts, [tensor], finish)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        place = _Place(tensors[0])
        at_root = place.write_back if opts.rootRank == self.rank() else None
        name = _name_of(_op_of(opts), place)
        return self._begin("reduce", opts, list(tensors), at_root, place.reducible(), name, opts.rootRank)

    def reduce_scatter(self, output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[Sequence[torch.Tensor]], opts: Any = None) -> Work:
        inputs, (output,) = input_tensors[0], output_tensors
        if any(tensor.numel() != output.numel() for tensor in inputs):
            raise ValueError(
                f"reduce_scatter: all tensors must be of one size here; the sizes are {[tensor.numel() for tensor in inputs]}"
            )
        return self._reduce_scatter_of(torch.cat([tensor.detach().reshape(-1) for tensor in inputs]), output, opts)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        if input.numel() != output.numel() * self.size():
            raise ValueError(f"reduce_scatter_tensor: {input.numel()} elements can't be {self.size()} parts of {output.numel()}")
        # The operation is in place, but the input must keep its values. An asynchronous operation gets a copy, because others
        # may read the input before it ends. Otherwise the rank's part is swapped with the output.
        if getattr(opts, "asyncOp", True):
            return self._reduce_scatter_of(input.detach().clone(memory_format=torch.contiguous_format), output, opts)
        place, taken = _Place(input), _Place(output)
        part = place.flat.view(self.size(), -1)[self.rank()]
        taken.flat.copy_(part)

        def finish(_: Any = None) -> None:
            reduced = part.clone()
            part.copy_(taken.flat)
            taken.flat.copy_(reduced)
            taken.write_back()

        return self._begin("reduce_scatter", opts, [output], finish, place.reducible(), _name_of(_op_of(opts), place))

    def _reduce_scatter_of(self, whole: torch.Tensor, output: torch.Tensor, opts: Any) -> Work:
        """`whole` is overwritten."""
        place = _Place(whole)
        part = place.flat.view(self.size(), -1)[self.rank()]
        finish = lambda _: output.detach().copy_(part.view(output.shape))
        return self._begin("reduce_scatter", opts, [output], finish, place.reducible(), _name_of(_op_of(opts), place))

    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        return self._last([self._reduce_scatter_base(output, given, opts) for output, given in zip(outputs, inputs)], list(outputs))

    # ------------------------------------------------------------------ copies

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        places = [_Place(tensor) for tensor in tensors]
        root = getattr(opts, "rootRank", 0)
        if len(places) == 1:
            return self._begin("broadcast", opts, list(tensors), places[0].write_back, places[0].any_dtype(), root)
        return self._begin("broadcast_many", opts, list(tensors), _all(places), [place.any_dtype() for place in places], root)

    def allgather(self, output_tensors: Sequence[Sequence[torch.Tensor]], input_tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        (outputs,), (given,) = output_tensors, input_tensors
        if any(tensor.numel() != given.numel() for tensor in outputs):
            raise ValueError(f"all_gather: the input has {given.numel()} elements, the outputs {[tensor.numel() for tensor in outputs]}")
        whole = torch.empty((self.size(), given.numel()), dtype=given.dtype)

        def finish(_: Any = None) -> None:
            for tensor, part in zip(outputs, whole):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._gather_into(whole, given, opts, list(outputs), finish)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        if output.numel() != input.numel() * self.size():
            raise ValueError(f"all_gather_into_tensor: {self.size()} times {input.numel()} elements don't fit {output.numel()}")
        return self._gather_into(output, input, opts, [output])

    def _gather_into(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any, result: List[Any], finish: Optional[Callable[[Any], None]] = None
    ) -> Work:
        whole, mine = _Place(output), _Place(given)
        return self._begin("allgather", opts, result, whole.then(finish), mine.any_dtype(), out=whole.any_dtype().reshape(self.size(), -1))

    def allgather_coalesced(self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        """output_lists: by rank, as many tensors as there are inputs."""
        works = [self.allgather([list(outputs)], [given], opts) for outputs, given in zip(zip(*output_lists), inputs)]
        return self._last(works, [list(outputs) for outputs in output_lists])

    def allgather_into_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        return self._last([self._allgather_base(output, given, opts) for output, given in zip(outputs, inputs)], list(outputs))

    def gather(self, output_tensors: Sequence[Sequence[torch.Tensor]], input_tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        (given,), outputs = input_tensors, output_tensors[0] if output_tensors else []

        def finish(gathered: Any) -> None:
            for tensor, part in zip(outputs, gathered if opts.rootRank == self.rank() else []):
                tensor.detach().copy_(_as_tensor(part, given.dtype).view(tensor.shape))

        return self._begin("gather", opts, list(outputs), finish, _Place(given).any_dtype(), opts.rootRank)

    def gather_single(self, output: Optional[torch.Tensor], input: torch.Tensor, opts: Any) -> Work:
        outputs = [] if output is None or opts.rootRank != self.rank() else list(output.view(self.size(), *input.shape))
        return self.gather([outputs], [input], opts)

    gather_into_tensor = gather_single

    def scatter(self, output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[Sequence[torch.Tensor]], opts: Any) -> Work:
        (output,), parts = output_tensors, None
        place = _Place(output)
        if opts.rootRank == self.rank():
            whole = torch.stack([tensor.detach().reshape(-1) for tensor in input_tensors[0]])
            parts = _Place(whole).any_dtype().reshape(self.size(), -1)
        return self._begin("scatter", opts, [output], place.write_back, place.any_dtype(), parts, opts.rootRank)

    def alltoall_base(
        self, output: torch.Tensor, input: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Work:
        """Splits are numbers of rows for each rank; none: equal ones."""
        return self._exchange(output, self._elements(output, output_splits), input, self._elements(input, input_splits), opts, [output])

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        sizes = [tensor.numel() for tensor in outputs]
        whole = torch.empty(sum(sizes), dtype=outputs[0].dtype)
        given = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])

        def finish(_: Any) -> None:
            for tensor, part in zip(outputs, whole.split(sizes)):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._exchange(whole, sizes, given, [tensor.numel() for tensor in inputs], opts, list(outputs), finish)

    all_to_all_single = alltoall_base

    def _elements(self, tensor: torch.Tensor, rows: Sequence[int]) -> List[int]:
        length = tensor.shape[0] if tensor.dim() else 1
        if not rows and length % self.size():
            raise ValueError(f"all_to_all_single: {length} rows can't be divided evenly among {self.size()} ranks")
        each = tensor.numel() // length if length else 0
        return [count * each for count in rows or [length // self.size()] * self.size()]

    def _exchange(
        self, output: torch.Tensor, receives: List[int], given: torch.Tensor, sends: List[int], opts: Any, result: List[Any],
        finish: Optional[Callable[[Any], None]] = None,
    ) -> Work:
        whole, mine = _Place(output), _Place(given)
        sends, receives = ([count * mine.units for count in counts] for counts in (sends, receives))
        return self._begin("alltoall", opts, result, whole.then(finish), mine.any_dtype(), sends, receives, out=whole.any_dtype())

    def barrier(self, opts: Any = None) -> Work:
        return self._begin("barrier", opts, [], None)

    # ------------------------------------------------------------------ between two ranks

    def send(self, tensors: Sequence[torch.Tensor], destination: int, tag: int) -> Work:
        (tensor,) = tensors
        request = self.group.send_async(_Place(tensor).any_dtype(), destination, tag, timeout=self._timeout.total_seconds())
        return self._kept(Message(self._futures, request, list(tensors)))

    def recv(self, tensors: Sequence[torch.Tensor], source: int, tag: int) -> Work:
        place = _Place(tensors[0])
        request = self.group.recv_async(place.any_dtype(), source, tag, timeout=self._timeout.total_seconds())
        return self._kept(Message(self._futures, request, list(tensors), place.write_back))

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Work:
        place = _Place(tensors[0])
        request = self.group.recv_async(place.any_dtype(), None, tag, timeout=self._timeout.total_seconds())
        return self._kept(Received(self._futures, request, list(tensors), place.write_back))

    # Other names of PyTorch 2.15.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ------------------------------------------------------------------ how an operation begins

    def _begin(self, name: str, opts: Any, result: List[Any], finish: Optional[Callable[[Any], None]], *arguments: Any, **named: Any) -> Work:
        """Begins the group's operation of this name. A call that its caller waits for at once runs on this thread."""
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout.total_seconds() <= 0:  # not set
            timeout = self._timeout
        named["timeout"] = timeout.total_seconds()
        if getattr(opts, "asyncOp", True):
            request = getattr(self.group, f"{name}_async")(*arguments, **named)
            return self._kept(Work(self._futures, request, result, finish))
        made = getattr(self.group, name)(*arguments, **named)
        if finish is not None:
            finish(made)
        return self._kept(Work(self._futures, None, result))

    def _last(self, works: List[Work], result: List[Any]) -> Work:
        """One Work for several."""
        return self._kept(Work(self._futures, _Requests(works), result) if works else Work(self._futures, None, result))

    def _kept(self, work: Work) -> Work:
        if _CPP_FORGETS_WORKS:
            self._works.append(work)
        return work


class _Requests:
    """Several works, as one request."""

    def __init__(self, works: List[Work]) -> None:
        self._works = works
        self.handle: Optional[int] = 0

    def done(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def wait(self, timeout: Optional[float] = None) -> None:
        errors = [work.settle(timeout) for work in self._works]
        self.handle = None
        for error in filter(None, errors):
            raise error


def _is_here(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _copied_here(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in the host's memory, pinned for CUDA."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return copy.copy_(tensor)


class _Place:
    """A tensor's elements as contiguous memory of the host: its own, or a copy that write_back() copies back."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
            what = "sparse" if tensor.layout != torch.strided else f"on {tensor.device}"
            raise NotImplementedError(f'backend "polyverso": dense tensors on the CPU or on CUDA devices only; this one is {what}')
        self._tensor = tensor.detach() if tensor.requires_grad else tensor
        self._is_copy = not _is_here(tensor) or not tensor.is_contiguous()
        flat = _copied_here(self._tensor) if self._is_copy else self._tensor
        self.flat = flat if tensor.dim() == 1 else flat.view(-1)

    @property
    def ending(self) -> Optional[Callable[[Any], None]]:
        """write_back() if it has something to do."""
        return self.write_back if self._is_copy else None

    def write_back(self, _: Any = None) -> None:
        if self._is_copy:
            self._tensor.copy_(self.flat.view(self._tensor.shape))

    def then(self, finish: Optional[Callable[[Any], None]]) -> Callable[[Any], None]:
        """write_back(), and then what else is to be done."""

        def end(made: Any = None) -> None:
            self.write_back()
            if finish is not None:
                finish(made)

        return end

    def reducible(self) -> Any:
        """The memory for a reduction."""
        if self.flat.dtype == torch.bool:
            return self.flat.view(torch.uint8).numpy()
        if self.flat.dtype not in _REDUCED:
            names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in _REDUCED))
            raise TypeError(f'backend "polyverso": {self.flat.dtype} can\'t be reduced, only bool, {names}')
        return self._memory()

    def any_dtype(self) -> Any:
        """The memory for a copy, whose elements are bytes if the library lacks the dtype."""
        return self._memory() if self.flat.dtype in _REDUCED else self.flat.view(torch.uint8).numpy()

    @property
    def units(self) -> int:
        """Elements of any_dtype() for each of the tensor."""
        return 1 if self.flat.dtype in _REDUCED else self.flat.element_size()

    def _memory(self) -> Any:
        return self.flat if self.flat.dtype == torch.bfloat16 else self.flat.numpy()


def _all(places: List[_Place]) -> Callable[[Any], None]:
    def write_back(_: Any = None) -> None:
        for place in places:
            place.write_back()

    return write_back


def _as_tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """An array over the memory of such elements, as a tensor of one dimension."""
    return torch.from_numpy(array.reshape(-1).view("uint8")).view(dtype)


def _op_of(opts: Any) -> Any:
    """The reduction as an element of ReduceOp.RedOpType."""
    op = getattr(opts, "reduceOp", _ReduceOp.SUM)
    return getattr(op, "op", op)


def _name_of(op: Any, place: _Place) -> str:
    names: Dict[Any, str] = _OF_BOOL if place.flat.dtype == torch.bool else _NAMES
    name = names.get(op)
    if name is None:
        raise ValueError(f'backend "polyverso": {op} of {place.flat.dtype} is not supported')
    return name


@functools.lru_cache(None)
def _hide_from_compiler() -> None:
    """torch.compile would trace into the methods, and fail. Not at the import: this imports the compiler, which takes a
    second, and which programs without a process group may not need."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)  # PyTorch 2.1
    for name, method in list(vars(ProcessGroup).items()):
        if disable is not None and inspect.isfunction(method) and not name.startswith("__"):
            setattr(ProcessGroup, name, disable(method))


def create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> ProcessGroup:
    """What init_process_group() and new_group() call, in every process of the new group."""
    _hide_from_compiler()
    group, leave = rendezvous.open_group(store, rank, size, timeout)
    return ProcessGroup(group, timeout, leave)
