"""Collective operations on trees of JAX arrays among processes, inside and outside of jax.jit.

    import polyverso
    import polyverso.jax as pj

    with polyverso.init():
        parameters = pj.broadcast(parameters)           # rank 0's, on all ranks
        gradients = pj.pmean(gradients)                 # the average over all ranks; also in a function under jit

A tree is one operation, whatever its number of arrays. Results are new arrays with the shapes and dtypes of the given
ones: JAX arrays for JAX arrays and numbers, numpy arrays for numpy arrays and scalars. All ranks make the same calls in
the same order, with trees of the same keys and shapes, otherwise all raise StateError (MV_EDISAGREE); a broadcast
compares only the numbers of elements. `group`: a polyverso.Group, or None: all workers of polyverso.init(), as one group
that this module opens at its first operation. timeout: seconds, None = the node's default.

Inside of jit an operation is an ordered jax.experimental.io_callback: its errors are JAX's, with the library's text in
them. Wait for such a function's results (jax.block_until_ready) before another operation of the same group outside of
it. Under jax.vmap, an operation is a TypeError; inside of jax.checkpoint, JAX raises NotImplementedError. Reverse-mode
gradients pass through sums, averages, broadcasts and gathers; they are those of the sum of all ranks' losses, so all
ranks must compute them.
docs/jax.md is the guide.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._extras import advice

try:
    import jax
    import jax.numpy as jnp
    from jax.custom_batching import custom_vmap
    from jax.experimental import io_callback
except ModuleNotFoundError as missing:
    raise advice(missing, "jax") from None

import numpy as np

from . import capi, dtypes
from .arrays import as_bits, label_of, milliseconds
from .errors import ArgumentError, HandleError
from .group import OPERATIONS, Group

__all__ = ["allgather", "allreduce", "broadcast", "pmean"]

# Changes arrays in place: copies of the given ones, writable and C-contiguous.
InPlace = Callable[[List[np.ndarray]], None]

_ALIGNED = 64  # bytes: JAX uses such memory of the host without a copy


# ------------------------------------------------------------------ operations


def allreduce(tree: Any, group: Optional[Group] = None, op: str = "sum", timeout: Optional[float] = None) -> Any:
    """The reduction of all ranks' trees: "sum", "avg" (floats), "prod", "min" or "max". The same bits on all ranks.
    Gradients pass through "sum" and "avg"."""
    if op not in OPERATIONS:
        raise ValueError(f"op is {op!r}: expected one of {', '.join(OPERATIONS)}")
    leaves, names, structure = _flat(tree, "averaged" if op == "avg" else "reduced")

    def reduce(arrays: List[np.ndarray]) -> None:
        options = _options(names, arrays, timeout)
        capi.mv_allreduce_many(_group(group).handle, [as_bits(array) for array in arrays], OPERATIONS[op], 0, options)

    def transpose(cotangents: List[Any]) -> List[Any]:
        if op not in ("sum", "avg"):
            raise TypeError(f'no gradients pass through polyverso.jax.allreduce(op="{op}"), only through "sum" and "avg"')
        return allreduce(cotangents, group, op, timeout)

    return structure.unflatten(_differentiable(lambda arrays: on_host(reduce, arrays), transpose, leaves))


def pmean(tree: Any, group: Optional[Group] = None, timeout: Optional[float] = None) -> Any:
    """The average over all ranks: allreduce() with op="avg". Like jax.lax.pmean, over processes."""
    return allreduce(tree, group, "avg", timeout)


def broadcast(tree: Any, group: Optional[Group] = None, root: int = 0, timeout: Optional[float] = None) -> Any:
    """Rank root's tree, on all ranks. Arrays of any dtype."""
    leaves, names, structure = _flat(tree)

    def send(arrays: List[np.ndarray]) -> None:
        options = _options(names, arrays, timeout)
        capi.mv_broadcast_many(_group(group).handle, [_bytes_of(array) for array in arrays], root, options)

    def transpose(cotangents: List[Any]) -> List[Any]:
        whole = allreduce(cotangents, group, "sum", timeout)
        return whole if _group(group).rank == root else [jnp.zeros_like(part) for part in whole]

    return structure.unflatten(_differentiable(lambda arrays: on_host(send, arrays), transpose, leaves))


def allgather(tree: Any, group: Optional[Group] = None, timeout: Optional[float] = None) -> Any:
    """All ranks' trees: each array of shape (ranks, *shape), in the order of ranks. Arrays of any dtype."""
    leaves, names, structure = _flat(tree)
    members = _group(group)

    def gather(arrays: List[np.ndarray]) -> List[np.ndarray]:
        mine = np.concatenate([_bytes_of(array) for array in arrays]) if arrays else np.empty(0, np.uint8)
        gathered = np.empty((members.size, mine.size), np.uint8)
        gathered[members.rank] = mine
        capi.mv_allgather(_group(group).handle, gathered, _options(names, arrays, timeout))
        whole = _uninitialised([((members.size, *array.shape), array.dtype) for array in arrays])
        first = 0
        for array, result in zip(arrays, whole):
            result.view(np.uint8).reshape(members.size, -1)[...] = gathered[:, first : first + array.nbytes]
            first += array.nbytes
        return whole

    def transpose(cotangents: List[Any]) -> List[Any]:
        return [whole[members.rank] for whole in allreduce(cotangents, group, "sum", timeout)]

    def operate(arrays: Sequence[Any]) -> List[Any]:
        if not _is_traced(arrays):
            return [_like(made, given) for made, given in zip(gather(_copies(arrays)), arrays)]
        return _staged(gather, [((members.size, *array.shape), array.dtype) for array in arrays], arrays)

    return structure.unflatten(_differentiable(operate, transpose, leaves))


# ------------------------------------------------------------------ trees


def _flat(tree: Any, purpose: str = "") -> Tuple[List[Any], Tuple[str, ...], Any]:
    """The tree's arrays, their names, and its structure. purpose: "averaged" (floats only), "reduced" (tables' dtypes),
    or "" (any dtype)."""
    named, structure = jax.tree_util.tree_flatten_with_path(tree)
    # JAX would make 32 bits of numpy's scalars, such as the sum of an array.
    leaves = [np.asarray(leaf) if isinstance(leaf, np.generic) else leaf for _, leaf in named]
    leaves = [leaf if isinstance(leaf, (jax.Array, np.ndarray)) else jnp.asarray(leaf) for leaf in leaves]
    names = tuple(_name_of(path) for path, _ in named)
    for (path, _), leaf in zip(named, leaves):
        where = f"the array {jax.tree_util.keystr(path)}" if path else "the array"
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise ArgumentError(capi.MV_EDTYPE, f"{where} is {leaf.dtype}: pass jax.random.key_data() of random keys")
        allowed = [dtype for dtype in dtypes.DTYPES.values() if purpose == "reduced" or jnp.issubdtype(dtype, jnp.floating)]
        if purpose and np.dtype(leaf.dtype) not in allowed:
            known = ", ".join(map(str, allowed))
            raise ArgumentError(capi.MV_EDTYPE, f"{where} is {leaf.dtype}: only arrays of {known} can be {purpose}")
    return leaves, names, structure


def _name_of(path: Tuple[Any, ...]) -> str:
    """As polyverso.distlearn names an array: the keys of dicts and the names of attributes, but no places in lists."""
    keys = (getattr(part, "key", getattr(part, "name", None)) for part in path)
    return ".".join(str(key) for key in keys if key is not None and not str(key).lstrip("-").isdecimal())


def _options(names: Tuple[str, ...], arrays: Sequence[np.ndarray], timeout: Optional[float]) -> Dict[str, int]:
    return {"timeout_ms": milliseconds(timeout), "label": label_of(names, tuple(array.shape for array in arrays))}


_all: Optional[Group] = None


def _group(group: Optional[Group]) -> Group:
    """The group, by default that of all workers: one for all operations of a node."""
    global _all
    if group is not None:
        return group
    if _all is not None:
        try:
            capi.mv_group_describe(_all.handle)
            return _all
        except HandleError:  # of an earlier node
            _all = None
    _all = Group()
    return _all


# ------------------------------------------------------------------ on the host, and through JAX's transformations


def on_host(function: InPlace, arrays: Sequence[Any]) -> List[Any]:
    """New arrays: copies of the given ones as `function` has changed them. Inside of jit it is called when the compiled
    function runs, ordered among all such calls."""
    if not _is_traced(arrays):
        copies = _copies(arrays)
        function(copies)
        return [_like(made, given) for made, given in zip(copies, arrays)]

    def call(copies: List[np.ndarray]) -> List[np.ndarray]:
        function(copies)
        return copies

    # Not as one flat array: XLA would compute the gradients inside of the concatenation, many times slower.
    return _staged(call, [(array.shape, array.dtype) for array in arrays], arrays)


def _staged(function: Callable[[List[np.ndarray]], List[np.ndarray]], results: Sequence[Tuple[Any, Any]], arrays: Sequence[Any]) -> List[Any]:
    """function(copies of the arrays), called when the compiled function runs. results: shapes and dtypes."""

    @custom_vmap
    def call(*values: Any) -> Any:
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
        return tuple(io_callback(lambda *given: tuple(function(_copies(given))), shapes, *values, ordered=True))

    @call.def_vmap
    def _(size: int, batched: Any, *values: Any) -> Any:
        raise TypeError(
            "an operation of polyverso.jax can't be under jax.vmap: call it outside, on the whole batch, which is one operation"
        )

    return list(call(*arrays))


def _is_traced(arrays: Sequence[Any]) -> bool:
    """Whether JAX traces a function: an operation on its constants, too, must happen whenever the function runs."""
    return any(isinstance(array, jax.core.Tracer) for array in (*arrays, jnp.array(0)))


def _copies(arrays: Sequence[Any]) -> List[np.ndarray]:
    made = _uninitialised([(array.shape, array.dtype) for array in arrays])
    for copy, array in zip(made, arrays):
        copy[...] = np.asarray(array)
    return made


def _uninitialised(shapes: Sequence[Tuple[Any, Any]]) -> List[np.ndarray]:
    """Arrays in one block of memory, from which JAX can make its own without another copy."""
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes]
    places = np.cumsum([0] + [-(-size // _ALIGNED) * _ALIGNED for size in sizes])
    block = np.empty(int(places[-1]) + _ALIGNED, np.uint8)
    block = block[-block.ctypes.data % _ALIGNED :]
    return [block[place : place + size].view(dtype).reshape(shape) for place, size, (shape, dtype) in zip(places, sizes, shapes)]


def _like(made: np.ndarray, given: Any) -> Any:
    """The result as an array of the given one's kind, and on its device."""
    if isinstance(given, np.ndarray):
        return made
    if made.ndim == given.ndim and len(given.sharding.device_set) > 1:
        return jax.device_put(made, given.sharding)
    return jax.device_put(made, next(iter(given.sharding.device_set)), may_alias=True)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _differentiable(operate: Callable[[Sequence[Any]], List[Any]], transpose: Callable[[List[Any]], List[Any]], leaves: List[Any]) -> List[Any]:
    """operate(leaves), whose gradient is transpose(cotangents of the results that are floats)."""
    if not leaves:
        return []
    floats = [place for place, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if not _is_traced(leaves):
        return operate(leaves)

    @jax.custom_vjp
    def call(*values: Any) -> Any:
        return tuple(operate(values))

    def backward(_: Any, cotangents: Any) -> Any:
        passed: List[Any] = [None] * len(leaves)
        for place, cotangent in zip(floats, transpose([cotangents[place] for place in floats])):
            passed[place] = cotangent
        return tuple(passed)

    call.defvjp(lambda *values: (call(*values), None), backward)
    return list(call(*leaves))
