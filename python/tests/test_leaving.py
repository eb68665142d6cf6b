"""How a process ends, and what the others hear of it."""

import contextlib
import re
import sys

import pytest

import polyverso
from polyverso import leaving

# The other worker waits for the failing one in a barrier, and prints the error.
OTHER = """
    import polyverso
    node = polyverso.init()
    try:
        node.barrier()
        print("well")
    except polyverso.PeerError as error:
        print(error.text)
    node.shutdown()
"""


def heard(cluster, script, status):
    """What the other worker prints when this one ends, and this one's standard error."""
    other = cluster.start(OTHER, nodes=2)
    failing = cluster.start(script, nodes=2)
    output, errors = other.communicate(timeout=60)
    _, failed = failing.communicate(timeout=60)
    assert (other.returncode, failing.returncode) == (0, status), (output, errors, failed)
    return output.strip(), failed


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise ValueError('7 is not\\n  a rate')", "ValueError: 7 is not a rate"),
        ("raise ValueError", "ValueError"),
        ("{}['a']", "KeyError: 'a'"),
        ("class Own(Exception): pass\n        raise Own('x' * 1000)", "Own: " + "x" * 492 + "..."),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
@pytest.mark.parametrize("block", ["with polyverso.init() as node:", "node = polyverso.init()\n    if node:"])
def test_an_exception_is_told_to_the_others(cluster, block, statement, reason):
    script = f"""
    import polyverso
    {block}
        {statement}
    """
    status = -2 if "Keyboard" in statement else 1  # Python then ends by the signal
    text, errors = heard(cluster, script, status)
    assert re.search(rf"worker \d: {re.escape(reason)} \(rank \d, pid \d+", text), text
    assert reason.split(":")[0] in errors


@pytest.mark.parametrize(
    ("statement", "reason", "status"),
    [
        ("sys.exit(3)", "SystemExit: 3", 3),
        ("sys.exit('no data')", "SystemExit: no data", 1),
        ("raise SystemExit(True)", "SystemExit: True", 1),
    ],
)
def test_an_exit_with_a_status_in_the_block(cluster, statement, reason, status):
    text, _ = heard(cluster, f"import sys, polyverso\n    \nwith polyverso.init():\n    {statement}", status)
    assert f": {reason} (rank" in text


def test_an_exit_with_a_status_without_a_block(cluster):
    text, _ = heard(cluster, "import sys, polyverso; node = polyverso.init(); sys.exit(3)", 3)
    assert "its process ended with exit status 3 without calling shutdown()" in text


@pytest.mark.parametrize(
    "script",
    [
        "with polyverso.init(): sys.exit(0)",
        "with polyverso.init(): sys.exit()",
        "polyverso.init(); sys.exit(0)",
        "node = polyverso.init()",
        "polyverso.init(); polyverso.capi.mv_shutdown(0)",
    ],
)
def test_a_good_end_leaves_properly(cluster, script):
    text, errors = heard(cluster, f"import sys, polyverso\n{script}", 0)
    assert (text, errors) == ("well", "")


# The other worker waits for the failing one inside of a block, and prints the error.
INSIDE = """
    import numpy as np
    import polyverso
    from polyverso import distlearn, kvstore
    from polyverso.group import Group
    with polyverso.init() as node:
        try:
            with {block}:
                {before}
                {call}
        except polyverso.PeerError as error:
            print(error.text)
"""
FAILING = """
    import numpy as np
    import polyverso
    from polyverso import distlearn, kvstore
    from polyverso.group import Group
    with polyverso.init() as node, {block}:
        {before}
        raise ValueError("7 is not a rate")
"""


@pytest.mark.parametrize(
    ("block", "before", "call"),
    [
        ("Group(node) as group", "group.barrier()", "group.allreduce(np.ones(3))"),
        ("Group(node) as group", "group.barrier()", "group.allreduce_zeros()"),
        ("Group(node) as group", "group.barrier()", "group.allreduce_custom(np.ones(3), lambda mine, theirs: mine)"),
        ("Group(node) as group, distlearn.AllReduceSGD(group) as sgd", "group.barrier()", "sgd.synchronize_parameters([np.ones(3)])"),
        ("node.array(3, staleness=0) as table", "node.barrier()", "table.get(), table.add([1, 1, 1]), table.get()"),
        ("kvstore.create('dist_sync') as kv", "kv.init('w', np.ones(3))", "kv.barrier()"),
    ],
)
def test_the_reason_leaves_blocks_inside_of_the_nodes(cluster, block, before, call):
    other = cluster.start(INSIDE.format(block=block, before=before, call=call), nodes=2)
    failing = cluster.start(FAILING.format(block=block, before=before), nodes=2)
    output, errors = other.communicate(timeout=60)
    _, failed = failing.communicate(timeout=60)
    assert (other.returncode, failing.returncode) == (0, 1), (output, errors, failed)
    assert "ValueError: 7 is not a rate" in output


def test_an_exception_that_is_caught_outside_of_a_groups_block_leaves_the_group_only(cluster):
    script = """
    import numpy as np
    import polyverso
    from polyverso.group import Group
    with polyverso.init() as node:
        try:
            with Group(node) as group:
                group.barrier()
                if node.rank == 1:
                    raise ValueError
                group.barrier()
        except polyverso.PeerError as error:
            print(error.text)
        except ValueError:
            try:
                group.barrier()
            except polyverso.errors.HandleError as error:
                print(error.text)
            group.close()
        node.barrier()
        print("well")
    """
    told, mine = (one.communicate(timeout=60)[0] for one in [cluster.start(script, nodes=2), cluster.start(script, nodes=2)])
    assert "has left the group: ValueError" in told and told.endswith("well\n")
    assert mine == "group.barrier(): this Group is closed\nwell\n"


def test_the_others_continue_without_a_rank_that_has_aborted_the_group(cluster):
    script = """
    import numpy as np
    import polyverso
    with polyverso.init() as node, polyverso.Group(node) as group:
        if node.rank == 1:
            group.abort("its data has a mistake")
            group.abort()
            print(repr(group))
        else:
            try:
                group.allreduce(np.ones(2))
            except polyverso.PeerError as error:
                print(error.text)
            with group.shrink() as survivors:
                print(survivors.members, survivors.allreduce(np.ones(2)))
        node.barrier()
    """
    ranks = [cluster.start(script, nodes=3) for _ in range(3)]
    printed = sorted(rank.communicate(timeout=60)[0] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert printed[0].startswith("<polyverso.Group rank 1 of 3, closed>")
    for text in printed[1:]:
        assert "rank 1 of the group, worker 1" in text and "has left the group: its data has a mistake" in text
        assert text.endswith("[0, 2] [2. 2.]\n")


def test_a_rank_that_aborts_at_once_stops_no_other_from_opening_the_group(cluster):
    script = """
    import numpy as np
    import polyverso
    with polyverso.init() as node:
        for _ in range(100):
            group = polyverso.Group(node)
            if node.rank == 1:
                group.abort("it has no data")
            else:
                try:
                    group.allreduce(np.ones(2))
                except polyverso.PeerError as error:
                    assert "it has no data" in error.text, error.text
                with group.shrink() as survivors:
                    assert survivors.members == [0, 2], survivors.members
                group.close()
        node.barrier()
    """
    ranks = [cluster.start(script, nodes=3) for _ in range(3)]
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], errors


def test_a_barrier_says_what_the_others_do_instead(cluster):
    script = """
    import polyverso
    with polyverso.init(heartbeat_timeout_ms=2000) as node, polyverso.Group(node) as group:
        if node.rank == 0:
            try:
                node.barrier(timeout=3)
            except TimeoutError as error:
                print(error)
        group.barrier()
    """
    waits, _ = (one.communicate(timeout=60)[0] for one in [cluster.start(script, nodes=2), cluster.start(script, nodes=2)])
    assert "worker 1" in waits and "waits in barrier" in waits


def test_a_caught_exception_is_no_end(cluster):
    script = """
    import contextlib, polyverso
    with polyverso.init() as node:
        with contextlib.suppress(ValueError):
            raise ValueError
        node.barrier()
    """
    assert heard(cluster, script, 0) == ("well", "")


def test_an_open_node_is_told_of_too(cluster):
    text, _ = heard(cluster, "import polyverso\nnode = polyverso.open_node()\nraise OSError('disk')", 1)
    assert ": OSError: disk (rank" in text


def test_abort(cluster):
    script = "import polyverso\nnode = polyverso.init()\nnode.abort('no more data')\nnode.abort()\nprint(repr(node))"
    text, _ = heard(cluster, script, 0)
    assert ": no more data (rank" in text


def test_a_closed_node_is_left_alone():
    with pytest.raises(ValueError), polyverso.init() as node:
        node.shutdown()
        raise ValueError
    with pytest.raises(ValueError), polyverso.init() as node:
        raise ValueError
    assert repr(node) == "<polyverso.Node after shutdown>"
    with polyverso.init() as node:  # and the next one works
        assert node.array(1).get().tolist() == [0]


def test_a_generator_that_is_not_used_up_is_no_failure():
    def batches():
        with polyverso.init() as node:
            yield node.rank
            yield node.rank

    made = batches()
    assert next(made) == 0
    with contextlib.closing(made):
        pass
    assert [error for error in (GeneratorExit(), SystemExit(), SystemExit(0), None) if leaving.is_failure(error)] == []


@pytest.mark.parametrize(("interactive", "aborted"), [(False, True), (True, False)])
def test_an_interactive_session_goes_on_after_an_exception(monkeypatch, interactive, aborted):
    monkeypatch.setattr(sys, "last_value", ValueError("of an earlier line"), raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with polyverso.init() as node:
        leaving._at_exit()
        assert (repr(node) == "<polyverso.Node after shutdown>") == aborted
        node.is_closed = aborted


def test_reasons_are_one_line():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    assert leaving.reason_of(Silent()) == "Silent"
    assert leaving.reason_of(ValueError("a\n\tb ")) == "ValueError: a b"
    assert len(leaving.reason_of(ValueError("x" * 9999))) == 500
    assert leaving.reason_of(ValueError("caf\udce9")) == "ValueError: caf\\udce9"
