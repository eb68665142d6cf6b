"""Ranks of a group compare the names and shapes of their arrays."""

import textwrap

import numpy as np
import pytest

from polyverso.arrays import label_of

BEGIN = """
import numpy as np, polyverso
from polyverso import distlearn, Group
node = polyverso.init()
group = Group(node)
rank = group.rank
def said(call):
    try:
        print(call())
    except polyverso.Error as error:
        print(error)
"""
END = """
print(group.allreduce(np.ones(1)))  # and the group goes on
group.close(); node.shutdown()
"""


@pytest.fixture(params=["auto", "tcp"])
def printed(cluster, request):
    """The lines of each rank of a cluster."""

    def run(script, nodes=2):
        text = BEGIN + textwrap.dedent(script) + END
        ranks = [cluster.start(text, nodes=nodes, POLYVERSO_TRANSPORT=request.param) for _ in range(nodes)]
        outputs = [rank.communicate(timeout=60) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * nodes, outputs
        lines = [text.splitlines() for text, _ in outputs]
        assert {of_rank.pop() for of_rank in lines} == {f"[{nodes}.]"}
        return lines

    return run


@pytest.mark.parametrize(
    "call",
    [
        "group.allreduce(np.ones(shape))",
        "group.allreduce_many([np.ones(3), np.ones(shape)])",
        "group.allreduce_custom(np.ones(shape), lambda mine, theirs: mine + theirs)",
        "group.allgather(np.ones(shape))",
        "group.reduce_scatter(np.ones(shape))",
        "group.alltoall(np.ones(shape))",
        "group.alltoall(np.ones((2, *shape)), [1, 1], [1, 1])",
    ],
)
def test_shapes_differ(printed, call):
    script = f"shape = (2, 6) if rank == 0 else (6, 2)\nsaid(lambda: {call})\nsaid(lambda: group.allreduce(np.ones(1))[0])"
    for lines in printed(script):
        assert lines[0].startswith("MV_EDISAGREE") and "other names or shapes" in lines[0], lines
        assert lines[1:] == ["2.0"]  # the group goes on


@pytest.mark.parametrize(
    "call",
    [
        "group.reduce(np.ones(shape), root=1)",
        "group.broadcast(np.ones(shape), root=1)",
        "group.broadcast_many([np.ones(3), np.ones(shape)])",
        "group.gather(np.ones(shape))",
        "group.scatter(np.ones(shape), np.ones((2, *shape)))",
    ],
)
def test_shapes_differ_from_the_roots(printed, call):
    # By messages, a rank may have done its part before the other one comes. It then hears of it in its next operation,
    # and the group is broken: the ranks continue in another one.
    script = f"""
    shape = (2, 6) if rank == 0 else (6, 2)
    said(lambda: str({call})[:1])
    said(lambda: group.allreduce(np.ones(1)))
    group = Group(node)
    """
    for lines in printed(script):
        error = next(line for line in lines if line.startswith("MV_EDISAGREE"))
        assert "other names or shapes" in error, lines


def test_ranks_exchange_different_numbers_of_rows(printed):
    script = """
    mine = np.full(([3, 0][rank], 2), rank + 1.0)
    said(lambda: group.alltoall(mine, [[1, 2], [0, 0]][rank], [[1, 0], [2, 0]][rank]).shape)
    """
    assert printed(script) == [["(1, 2)"], ["(2, 2)"]]


def test_one_dimension_fits_all(printed):
    script = """
    said(lambda: group.allreduce(np.ones([(2, 3), 6, (2, 3)][rank])).sum())
    said(lambda: group.allgather(np.ones([(2, 3), 6, 6][rank])).sum())
    """
    assert printed(script, nodes=3) == [["18.0", "18.0"]] * 3


@pytest.mark.parametrize("shapes", ["[(2, 3), (2, 3), (3, 2)]", "[(3, 2), (2, 3), (2, 3)]", "[(2, 3), (3, 2), (2, 3)]"])
def test_the_odd_one_of_three_is_found(printed, shapes):
    for lines in printed(f"said(lambda: group.allreduce(np.ones({shapes}[rank])))", nodes=3):
        assert len(lines) == 1 and lines[0].startswith("MV_EDISAGREE") and "other names or shapes" in lines[0]


@pytest.mark.parametrize("call", ["sum_gradients", "sum_and_normalize_gradients", "synchronize_parameters"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a": np.ones(3)}', '{"b": np.ones(3)}'),
        ('{"a": np.ones(3), "b": np.zeros(3)}', '{"a": np.ones(3), "c": np.zeros(3)}'),
        ('{"a": {"w": np.ones(3)}}', '{"a": {"b": np.ones(3)}}'),
        ("[np.ones((2, 3))]", "[np.ones((3, 2))]"),
        ('{"w": np.ones((2, 3))}', '[np.ones((3, 2))]'),
    ],
)
def test_names_differ(printed, call, first, second):
    script = f"""
    sgd = distlearn.AllReduceSGD(group)
    said(lambda: sgd.{call}({first} if rank == 0 else {second}))
    same = {{"w": np.ones((2, 3)), "b": [np.ones(2)], 3: np.ones(1)}}
    said(lambda: (sgd.sum_gradients(same), same["w"].sum()))
    """
    for lines in printed(script):
        assert lines[0].startswith("MV_EDISAGREE") and "other names or shapes" in lines[0], lines
        assert lines[1] == "(2, 12.0)" or lines[1] == "(2, np.float64(12.0))", lines


def test_ranks_with_uneven_steps_compare_too(printed):
    script = """
    sgd = distlearn.AllReduceSGD(group)
    params = {"w": np.zeros((2, 2))}
    steps = 0
    for step in range(rank + 1):
        grads = {"w": np.ones((2, 2))}
        steps += sgd.sum_gradients(grads)
    sgd.synchronize_parameters(params)
    print(steps)
    """
    assert printed(script, nodes=3) == [["3"], ["5"], ["6"]]


def test_labels():
    assert label_of(("",), ((6,),)) == label_of((), ()) == label_of(("",), ((),)) == 0
    different = [(("",), ((2, 3),)), (("",), ((3, 2),)), (("a",), ((6,),)), (("b",), ((6,),)), (("a", "b"), ((6,), (6,))), (("a",), ((2, 3),))]
    assert len({label_of(*each) for each in different}) == len(different)
    assert label_of(("w",), ((2, 3),)) == 0x725A3632  # the CRC-32 of "w 2x3\n", in every language
