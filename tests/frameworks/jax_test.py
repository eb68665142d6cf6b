"""polyverso.jax among processes with the real JAX, in jit and outside of it."""

import json
import os
import subprocess
import sys
import textwrap

os.environ["JAX_PLATFORMS"] = "cpu"

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from conftest import ROOT, run_in_workers  # noqa: E402

import polyverso  # noqa: E402
import polyverso.jax as pj  # noqa: E402

BEGIN = """
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import polyverso
import polyverso.jax as pj

def same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-6), one, other)
    assert jax.tree.structure(one) == jax.tree.structure(other), (one, other)

with polyverso.init() as node:
    rank, ranks = node.worker_id, node.num_workers
"""


def run(ranks, script):
    """Runs the script in all ranks, with the names node, rank and ranks."""
    body = textwrap.indent(textwrap.dedent(script), "    ")
    said = run_in_workers(ranks, f"{BEGIN}\n{body}\n    print('done', flush=True)")
    assert said.count("done") == ranks, said


@pytest.mark.parametrize("ranks", [1, 3])
def test_operations_on_trees_in_jit_and_outside(ranks):
    run(ranks, """
    for way in (lambda function: function, jax.jit):
        tree = {"w": jnp.full((2, 3), rank + 1.0), "more": [jnp.arange(3), jnp.full(4, rank, jnp.bfloat16), jnp.zeros((0, 2))], "loss": 2.0}
        total = sum(range(1, ranks + 1))
        result = way(pj.allreduce)(tree)
        same(result, {"w": np.full((2, 3), total), "more": [np.arange(3) * ranks, np.full(4, total - ranks), np.zeros((0, 2))], "loss": 2 * ranks})
        assert [leaf.dtype.name for leaf in jax.tree.leaves(result)] == ["float32", "int32", "bfloat16", "float32", "float32"]
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result))
        same(way(lambda tree: pj.allreduce(tree, op="max"))(tree)["w"], np.full((2, 3), ranks))
        same(way(pj.pmean)(jnp.array([rank, 1.0])), jnp.array([(ranks - 1) / 2, 1]))
        keys = {"key": jax.random.key_data(jax.random.key(rank)), "first": jnp.array([rank == 0])}
        same(way(pj.broadcast)(keys), {"key": jax.random.key_data(jax.random.key(0)), "first": np.array([True])})
        same(way(lambda tree: pj.broadcast(tree, root=ranks - 1))(jnp.array(rank)), np.array(ranks - 1))
        gathered = way(pj.allgather)((jnp.full(2, rank, jnp.int8), jnp.array(rank * 0.5)))
        same(gathered, (np.repeat(np.arange(ranks), 2).reshape(ranks, 2), np.arange(ranks) / 2))
        assert gathered[0].dtype == jnp.int8
    assert pj.allreduce({}) == {} and pj.allgather([]) == []
    """)


def test_arrays_of_numpy_stay_so():
    with polyverso.init():
        given = {"a": np.arange(3.0), "b": np.arange(3, dtype=np.int64)}
        result = pj.allreduce(given)
        assert result["a"] is not given["a"] and result["a"].dtype == np.float64 and result["b"].dtype == np.int64
        assert isinstance(result["a"], np.ndarray) and isinstance(pj.allreduce(1.5), jnp.ndarray)


def test_scalars_of_numpy_keep_their_dtypes():
    """They became JAX's numbers, of 32 bits."""
    run(2, """
    tree = {"many": np.int64(2**31 + 5), "exact": np.float64(0.1), "half": np.float16(0.5)}
    wanted = {"many": np.int64(2**32 + 10), "exact": np.float64(0.2), "half": np.float16(1)}
    result = pj.allreduce(tree)
    assert result == wanted and all(isinstance(leaf, np.ndarray) for leaf in result.values()), result
    assert all(result[name].dtype == wanted[name].dtype for name in wanted), result
    assert pj.broadcast(np.int64(2**40 + rank)) == 2**40
    assert pj.allgather(np.int64(2**40 + rank)).tolist() == [2**40, 2**40 + 1]
    """)


def test_gradients_pass_through():
    run(2, """
    x = jnp.arange(3.0) + rank
    both = jnp.stack([jnp.arange(3.0), jnp.arange(3.0) + 1])
    for way in (lambda function: function, jax.jit):
        # The losses of both ranks together are a function of both ranks' arrays: the same gradients as in one process.
        mean = lambda both: jnp.stack([both.mean(0)] * 2)
        for own, whole in (
            (lambda x: (pj.pmean(x) ** 2).sum(), lambda both: (mean(both) ** 2).sum()),
            (lambda x: (pj.allreduce(x) ** 2).sum() * (rank + 1), lambda both: (both.sum(0) ** 2).sum() * 3),
            (lambda x: (pj.broadcast(x, root=1) ** 3).sum(), lambda both: 2 * (both[1] ** 3).sum()),
            (lambda x: (pj.allgather(x) * jnp.array([[1.0], [5.0]]) ** 2).sum(), lambda both: 2 * (both * jnp.array([[1.0], [5.0]]) ** 2).sum()),
        ):
            same(way(jax.grad(own))(x), jax.grad(whole)(both)[rank])
        value, gradient = way(jax.value_and_grad(lambda tree: pj.allreduce(tree)["x"].sum()))({"x": x, "n": jnp.float32(2)})
        same(gradient, {"x": jnp.full(3, 2.0), "n": jnp.float32(0)})
    for op in ("min", "max", "prod"):
        with pytest.raises(TypeError, match="no gradients pass through"):
            jax.grad(lambda x: pj.allreduce(x, op=op).sum())(x)
    """)


def test_in_loops_and_on_constants():
    run(2, """
    x = jnp.arange(3.0) + rank
    last, _ = jax.jit(lambda x: jax.lax.scan(lambda carry, step: (pj.pmean(carry) + step + rank, None), x, jnp.arange(3.0)))(x)
    same(last, jnp.arange(3.0) + 0.5 + 3 + 1 + rank)
    same(jax.lax.fori_loop(0, 100, lambda step, x: pj.pmean(x) + rank, x), jnp.arange(3.0) + 0.5 * 100 + rank)
    constant = jnp.full(2, rank + 1.0)
    summed = jax.jit(lambda factor: pj.allreduce(constant) * factor)
    before = pj._group(None).info["operations"]
    same([summed(1.0), summed(2.0)], [np.full(2, 3.0), np.full(2, 6.0)])
    assert pj._group(None).info["operations"] == before + 2  # each time it is called, not when it is traced
    large = jnp.full((1000, 1000), rank + 1.0)
    same(jax.jit(lambda x: pj.allreduce(x @ x).sum() + x[0, 0])(large), 1e6 * 5000 + rank + 1)
    with polyverso.Group(node, [0, 1]) as group:
        same(pj.allreduce(x, group, "min"), np.arange(3.0))
    """)


def test_what_is_refused():
    run(2, """
    x = jnp.ones(3)
    for function in (jax.vmap(pj.allreduce), jax.jit(jax.vmap(pj.pmean)), jax.vmap(jax.jit(pj.broadcast)), jax.vmap(pj.allgather)):
        with pytest.raises(TypeError, match="jax.vmap: call it outside"):
            function(jnp.ones((3, 2)))
    for function, given, text in (
        (pj.pmean, {"a": jnp.arange(3)}, "array \\\\['a'\\\\] is int32: only arrays of float32"),
        (pj.allreduce, [x > 0], "array \\\\[0\\\\] is bool"),
        (pj.broadcast, jax.random.key(1), "key_data"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=text):
            function(given)
        with pytest.raises(polyverso.ArgumentError, match=text):
            jax.jit(function)(given)
    with pytest.raises(ValueError, match="sum, prod, min, max, avg"):
        pj.allreduce(x, op="mean")
    for given in ({f"name{rank}": x}, jnp.ones((2, 3)) if rank else jnp.ones((3, 2))):
        for function in (pj.allreduce, pj.allgather):
            with polyverso.Group(node) as group, pytest.raises(polyverso.StateError, match="other names or shapes"):
                function(given, group)
    with polyverso.Group(node) as group, pytest.raises(polyverso.StateError, match="MV_EDISAGREE"):
        pj.broadcast(jnp.ones(2 + rank), group)
    with polyverso.Group(node) as group, pytest.raises(jax.errors.JaxRuntimeError, match="MV_EDISAGREE"):
        jax.block_until_ready(jax.jit(lambda x: pj.allreduce(x, group))({f"name{rank}": x}))
    """)


def test_without_a_node_and_after_another():
    with pytest.raises(polyverso.StateError, match="init"):
        pj.pmean(1.0)
    for _ in range(2):
        with polyverso.init():
            assert pj.pmean(1.5) == 1.5


def test_the_example_has_the_same_losses_with_any_number_of_processes():
    losses = []
    for launcher in ([], ["polyverso", "run", "-n", "2", "--"]):
        command = [*launcher, sys.executable, str(ROOT / "examples" / "jax" / "train.py"), "--steps", "100", "--hidden", "16"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout
        losses.append(json.loads(said[said.index("{"):])["loss"])
    assert abs(losses[0] - losses[1]) < 1e-4 and losses[0] < 2, losses
