"""Groups: of one rank in this process, and of ranks in several processes."""

import os

import numpy as np
import pytest

import polyverso
from polyverso import capi
from polyverso.group import Drained, Group

BEGIN = """
    import numpy as np, polyverso
    from polyverso.group import Group
    node = polyverso.init()
    group = Group(node)
    rank = group.rank
"""
END = """
    group.close(); node.shutdown()
"""

needs_devices = pytest.mark.skipif("DEVICE_EMULATION" not in os.environ, reason="DEVICE_EMULATION names no plug-in: run this test through ctest")
DEVICES = {"POLYVERSO_DEVICE_PLUGIN": os.environ.get("DEVICE_EMULATION", "")}


@pytest.fixture
def group(node):
    with Group(node) as group:
        yield group


def printed(cluster, script, nodes=3, **settings):
    """The output of each rank of a cluster, in the order of ranks."""
    ranks = [cluster.start(BEGIN + script + END, nodes=nodes, **settings) for _ in range(nodes)]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * nodes, outputs
    return [text for text, _ in outputs]


def test_all_get_what_each_has_and_each_a_part(cluster):
    script = """
    print(group.allgather(np.full((1, 2), rank, "i4")).tolist(), group.allgather(10.0 * rank).tolist())
    whole = np.arange(12.0).reshape(6, 2)
    part = group.reduce_scatter(whole, op="avg")
    print(part.tolist(), part.base is whole or part.base is whole.base)
    for wrong in (np.zeros(4), np.zeros((2, 3))):
        try:
            group.reduce_scatter(wrong)
        except ValueError as error:
            print(error)
    """
    for rank, text in enumerate(printed(cluster, script)):
        lines = text.splitlines()
        assert lines[0] == "[[[0, 0]], [[1, 1]], [[2, 2]]] [0.0, 10.0, 20.0]"
        assert lines[1] == f"{np.arange(12.0).reshape(6, 2)[2 * rank : 2 * rank + 2].tolist()} True"
        assert lines[2:] == ["4 rows can't be divided evenly among 3 ranks", "2 rows can't be divided evenly among 3 ranks"]


TRANSPORTS = {"shm": {}, "messages": {"POLYVERSO_TRANSPORT": "tcp"}}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_arrays_are_gathered_scattered_and_exchanged(cluster, transport):
    script = """
    assert group.info["transport"] == "%s"
    for begin in (lambda name, *more, **named: getattr(group, name)(*more, **named),
                  lambda name, *more, **named: getattr(group, name + "_async")(*more, **named).wait()):
        gathered = begin("gather", np.full((1, 2), rank, "i4"), root=1)
        print(None if gathered is None else gathered.tolist())
        part = np.zeros(2, "f4")
        assert begin("scatter", part, np.arange(6.0, dtype="f4").reshape(3, 2) if rank == 2 else None, root=2) is part
        print(part.tolist(), begin("alltoall", np.arange(3.0) + 10 * rank).tolist())
        rows = [rank + 1, 0, 1]  # for the ranks
        theirs = [[1, 0, 1], [2, 0, 1], [3, 0, 1]]
        out = np.zeros((sum(row[rank] for row in theirs), 2), "i4")
        given = np.repeat(np.arange(3), rows).reshape(-1, 1) + np.array([[10 * rank, 0]])
        made = begin("alltoall", given.astype("i4"), rows, [row[rank] for row in theirs], out=out)
        print(made is out, out.tolist())
    for wrong in (lambda: group.alltoall(np.zeros(4)), lambda: group.alltoall(np.zeros(3), [1, 1], [1, 1, 1]),
                  lambda: group.alltoall(np.zeros(3), [1, 1, 0], [1, 1, 1]), lambda: group.alltoall(np.zeros(3), [1, 1, 1])):
        try:
            wrong()
        except ValueError as error:
            print(error)
    try:  # rank 1 wants one row more of each
        group.alltoall(np.zeros(6), [2, 2, 2], [2 + (rank == 1)] * 3)
    except polyverso.StateError as error:
        print(error.name)
    print(group.allreduce(np.ones(1))[0])
    """ % transport
    for rank, text in enumerate(printed(cluster, script, **TRANSPORTS[transport])):
        rows = [[[0, 0], [10, 0], [10, 0], [20, 0], [20, 0], [20, 0]], [], [[2, 2], [12, 2], [22, 2]]][rank]
        once = [
            "[[[0, 0]], [[1, 1]], [[2, 2]]]" if rank == 1 else "None",
            f"{[2.0 * rank, 2.0 * rank + 1]} {[float(rank), 10.0 + rank, 20.0 + rank]}",
            f"True {[[row[0], row[1]] for row in rows]}",
        ]
        assert text.splitlines() == once * 2 + [
            "4 rows can't be divided evenly among 3 ranks",
            "send_rows: a number of rows for each of 3 ranks is needed",
            "send_rows has 2 rows, and the array 3",
            "send_rows and receive_rows are needed both, or none of them",
            "MV_EDISAGREE",
            "3.0",
        ]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_ranks_send_and_receive(cluster, transport):
    script = """
    long = np.full(1 << 18, float(rank))
    sent = group.send_async(long, (rank + 1) % 3, tag=5)
    other = np.zeros(1 << 18)
    print(group.recv(other, (rank + 2) % 3, tag=5), other.min(), other.max(), sent.wait())
    for to in range(3):
        if to != rank:
            group.send(np.array([rank, to]), to)
    received = [np.zeros(2, "i8") for _ in range(2)]
    print(sorted(group.recv(array) for array in received), sorted(array.tolist() for array in received))
    group.barrier()
    group.send(np.zeros((2, 3)), (rank + 1) % 3)
    group.send(np.zeros(6, "f4"), (rank + 1) % 3)
    request = group.send_async(np.full(6, float(rank)), (rank + 1) % 3)
    whole = np.zeros((3, 2))
    for _ in range(2):
        try:
            group.recv(whole)
        except polyverso.ArgumentError as error:
            print(error.name)
    print(group.recv_async(whole, (rank + 2) % 3).wait() == (rank + 2) % 3, whole.max(), request.wait())
    from_any = group.recv_async(whole, tag=7)
    group.send(np.full(6, rank + 10.0), (rank + 1) % 3, tag=7)
    assert (from_any.wait(), from_any.wait(), whole.max()) == ((rank + 2) % 3, (rank + 2) % 3, (rank + 2) % 3 + 10)
    dropped = group.recv_async(np.zeros(6), tag=8)  # its places live as long as the operation
    del dropped
    group.send(np.zeros(6), (rank + 1) % 3, tag=8)
    try:
        group.recv(whole, (rank + 2) % 3, tag=9, timeout=0.05)
    except polyverso.TimeoutError as error:
        print("tag 9" in str(error))
    print(group.allreduce(np.ones(1))[0])
    """
    for rank, text in enumerate(printed(cluster, script, **TRANSPORTS[transport])):
        previous = (rank + 2) % 3
        others = [other for other in range(3) if other != rank]
        assert text.splitlines() == [
            f"{previous} {previous}.0 {previous}.0 None",
            f"{others} {[[other, rank] for other in others]}",
            "MV_ESHAPE",
            "MV_EDTYPE",
            f"True {previous}.0 None",
            "True",
            "3.0",
        ]


@needs_devices
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_parts_and_places_of_a_scatter_may_be_on_several_devices(cluster, transport):
    script = """
    from polyverso import Tensor
    values = np.arange(18, dtype="f4").reshape(3, 2, 3)
    on_host = [(values, np.zeros((2, 3), "f4"))]
    for dtype in ("f32", "bf16"):
        there = [(Tensor.copy_of(values, dtype, place), Tensor.zeros((2, 3), dtype, place)) for place in ("cpu", "cuda:0", "cuda:1")]
        pairs = there + on_host if dtype == "f32" else there  # NumPy has no bfloat16
        for turn, (parts, own) in enumerate((parts, own) for parts, _ in pairs for _, own in pairs):
            root = turn % 3
            own[:] = Tensor.zeros((2, 3)) if isinstance(own, Tensor) else 0
            if turn % 2:
                assert group.scatter(own, parts if rank == root else None, root=root) is own
            else:
                assert group.scatter_async(own, parts if rank == root else None, root=root).wait() is own
            assert Tensor.copy_of(own, "f32", "cpu").to_list() == values[rank].tolist()
    if rank == 0:
        for wrong in (Tensor.zeros((3, 2, 2), device="cuda:0"), Tensor.zeros((3, 2, 3), "f64", device="cuda:0"), None):
            try:
                group.scatter(np.zeros((2, 3), "f4"), wrong)
            except polyverso.ArgumentError as error:
                print(error.name)
    print(group.allreduce(np.ones(1))[0])  # nothing was sent
    """
    for rank, text in enumerate(printed(cluster, script, **TRANSPORTS[transport], **DEVICES)):
        assert text == "MV_ESHAPE\nMV_ESHAPE\nMV_EDTYPE\n" * (rank == 0) + "3.0\n"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "call",
    [
        "group.gather(np.ones(50000), root=0)",
        "group.scatter(np.ones(50000), np.ones((3, 50000)), root=0)",
        "group.alltoall(np.ones(150000))",
        "group.alltoall(np.ones(9), [3, 3, 3], [3, 3, 3])",
        "group.recv(np.ones(3), 2)",
        "group.send(np.ones(150000), 2)",
    ],
)
def test_a_rank_that_dies_ends_what_waits_for_it(cluster, transport, call):
    script = f"""
    import os, signal
    if rank == 2:
        group.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.barrier()  # rank 2 may leave it, and die, before the others have its last message
        while True:  # a rank that only sends may not notice at once
            {call}
    except polyverso.PeerError as error:
        print(error.name, "worker 2" in str(error))
    survivors = group.shrink()
    print(survivors.size, survivors.alltoall(np.full(2, float(rank))).tolist())
    survivors.close()
    """
    ranks = [cluster.start(BEGIN + script + END, nodes=3, **TRANSPORTS[transport]) for _ in range(3)]
    for rank in ranks[:2]:
        text, errors = rank.communicate(timeout=60)
        assert text == "MV_EPEERLOST True\n2 [0.0, 1.0]\n", errors


@needs_devices
def test_a_function_of_ones_own_gets_tensors_for_tensors(cluster):
    script = """
    from polyverso import Tensor
    for place in ("cpu", "cuda:0"):
        for dtype in ("f32", "bf16"):
            seen = set()
            def add(mine, theirs):
                seen.add((type(mine).__name__, mine.dtype, mine.device, type(theirs).__name__, theirs.dtype, theirs.device))
                theirs += mine
                return theirs
            values = Tensor.full(3, 1.5, dtype, device=place)
            assert group.allreduce_custom(values, add) == 3 and values.to_list() == [4.5] * 3
            assert seen <= {("Tensor", dtype, place) * 2}
            pair = [Tensor.full(3, 1.5, dtype, device=place), np.ones(2)]
            def both(mine, theirs):
                mine[0] += theirs[0]
                return [mine[0], np.maximum(mine[1], theirs[1])]
            assert group.allreduce_custom(pair, both) == 3 and pair[0].to_list() == [4.5] * 3 and pair[1].tolist() == [1, 1]
    add = lambda mine, theirs: mine + theirs
    if rank == 0:
        while drained := group.drain():  # it reports bfloat16 as bits, if NumPy lacks it
            group.allreduce_custom(np.zeros(2, drained.arrays[0][1]), add, draining=True)
    else:
        values = Tensor.full(2, 1.5, "bf16")
        assert group.allreduce_custom(values, add) == 2 and values.to_list() == [3] * 2
        assert group.drain() is None
    """
    assert printed(cluster, script, **DEVICES) == [""] * 3


def test_a_function_of_ones_own_reduces(cluster):
    script = """
    def in_place(mine, theirs):
        mine += theirs
    def one_of_the_list(mine, theirs):
        mine[1] = np.maximum(mine[1], theirs[1])
    def another(mine, theirs):
        return theirs if theirs[0] > mine[0] else mine
    values, best = np.full((2, 2), rank + 1, "f4"), [np.array([5 - rank]), np.array([rank], "f2")]
    print(group.allreduce_custom(values, in_place), values.tolist())
    print(group.allreduce_custom(best, one_of_the_list), [array.tolist() for array in best])
    print(group.allreduce_custom(np.array([rank, 1 - rank]), another))
    """
    for text in printed(cluster, script):
        assert text == "3 [[6.0, 6.0], [6.0, 6.0]]\n3 [[5], [2.0]]\n3\n"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_function_of_ones_own_cannot_wait_for_its_own_group(cluster, transport):
    script = """
    refused = set()
    with Group(node) as another:
        def nested(mine, theirs):
            for call in (lambda: group.allreduce(np.ones(2)), group.barrier, lambda: group.allreduce_custom(np.ones(2), nested), group.shrink):
                try:
                    call()
                except polyverso.Error as error:
                    refused.add(error.name)
            mine += theirs
        values = np.ones(2)
        group.allreduce_custom(values, nested)
        for usable in (group, another):
            sum = np.ones(1)
            usable.allreduce(sum)
            print(values.tolist(), sorted(refused), sum.tolist())
    """
    texts = printed(cluster, script, **TRANSPORTS[transport])
    refusing, others = ("[3.0, 3.0] ['MV_EREENTRANT'] [3.0]\n" * 2, "[3.0, 3.0] [] [3.0]\n" * 2)
    assert refusing in texts and set(texts) <= {refusing, others}, texts  # a leaf of the tree does not call its function


def test_manual_steps_check_what_is_to_take_the_values(cluster):
    script = """
    from polyverso import capi
    try:
        capi.mv_allgather(group.handle, np.zeros(4))
    except polyverso.Error as error:
        print(error.name)
    values, theirs, refused = np.full(2, rank + 1.0), np.zeros(2), 0
    custom = capi.mv_custom_begin(group.handle, [values], 0)
    while True:
        try:
            if not capi.mv_custom_next(custom, [np.zeros(3)]):
                break
        except polyverso.ArgumentError:
            refused += 1
            assert capi.mv_custom_next(custom, [theirs]) == 1  # still there
            values += theirs
            capi.mv_custom_done(custom, capi.MV_OK)
    print(capi.mv_custom_end(custom), values.tolist(), refused)
    """
    first, *others = printed(cluster, script)
    assert first == "MV_ESHAPE\n3 [6.0, 6.0] 2\n"
    assert others == ["MV_ESHAPE\n3 [6.0, 6.0] 0\n"] * 2


def test_a_function_that_fails_fails_on_all_ranks(cluster):
    script = """
    def fail(mine, theirs):
        raise KeyError("of one's own")
    for values in (np.zeros(3), [np.zeros(3), np.zeros(1)]):
        try:
            group.allreduce_custom(values, fail)
        except KeyError as error:
            print(error.args[0])
        except polyverso.Error as error:
            print(error.name, "the reducer failed: KeyError: " in str(error))
    print(group.allreduce(np.ones(1))[0])  # and the group goes on
    """
    first, *others = printed(cluster, script)
    assert first == "of one's own\nof one's own\n3.0\n"
    assert others == ["MV_ECANCELED True\nMV_ECANCELED True\n3.0\n"] * 2


def test_ranks_that_are_through_drain(cluster):
    script = """
    def add(mine, theirs):
        mine += theirs
    seen = []
    for step in range(2 * rank):
        if step % 2:
            seen.append(group.allreduce_custom(np.ones(step), add))
        else:
            seen.append(group.allreduce_many([np.ones(step + 1, "i8"), np.ones(2)], op="max"))
    while coming := group.drain():
        seen.append(([(count, dtype.name) for count, dtype in coming.arrays], coming.op))
        nothing = [np.zeros(count, dtype) for count, dtype in coming.arrays]
        if coming.op:
            group.allreduce_many(nothing, op=coming.op, draining=True)
        else:
            group.allreduce_custom(nothing[0], add, draining=True)
    print(seen)
    """
    steps = [
        ([(1, "int64"), (2, "float64")], "max"),
        ([(1, "float64")], None),
        ([(3, "int64"), (2, "float64")], "max"),
        ([(3, "float64")], None),
    ]
    assert printed(cluster, script) == [f"{seen}\n" for seen in (steps, [2, 2, *steps[2:]], [2, 2, 1, 1])]


def test_asynchronous_operations_run_in_the_order_of_the_calls(cluster):
    script = """
    import asyncio, gc
    async def awaited():
        return await asyncio.gather(group.allgather_async(rank), group.barrier_async())
    sums = np.ones(2)
    many = [np.full(3, rank + 1, "i4"), np.full((2, 2), rank, "f4")]
    begun = [group.allreduce_async(sums) for _ in range(4)]  # each of the result before: 3, 9, 27, 81
    begun.append(group.allreduce_many_async(many, op="max"))
    most = np.array([float(rank)])
    group.allreduce(most, op="max")  # a blocking operation waits for its turn
    print(begun[3].done(), begun[4].done(), sums[0], most[0])
    print([request.wait() is sums for request in begun[:4]], begun[4].wait()[1] is many[1], [float(array.max()) for array in many])
    sent, at_root = np.full(2, rank), np.full(2, rank)
    requests = [group.broadcast_async(sent, root=1), group.reduce_async(at_root, op="prod", root=2)]
    requests += [group.broadcast_many_async([np.full(1, rank), np.zeros((2, 2))]), group.allgather_async(10.0 * rank)]
    whole = np.arange(12.0).reshape(6, 2)
    requests += [group.reduce_scatter_async(whole, op="avg")]
    print(*[np.asarray(request.wait()[0]).tolist() for request in requests])
    print(asyncio.run(awaited())[0].tolist())
    group.barrier()
    if rank == 0:  # the others come later: the array is kept although only the request knows it
        request = group.allreduce_async(np.ones(1 << 18))
        gc.collect()
        junk = [np.full(1 << 18, 7.0) for _ in range(4)]
        print(bool((request.wait() == 3).all()), all((array == 7).all() for array in junk))
    else:
        print(group.allreduce(np.ones(1 << 18))[0], True)
    group.allreduce_async(np.ones(1 << 18))  # dropped, and carried out
    group.barrier()
    """
    for rank, text in enumerate(printed(cluster, script)):
        lines = text.splitlines()
        assert lines[0] == "True True 81.0 2.0"
        assert lines[1] == "[True, True, True, True] True [3.0, 2.0]"
        part = np.arange(12.0).reshape(6, 2)[2 * rank].tolist()
        assert lines[2] == f"1 {0 if rank == 2 else rank} [0] 0.0 {part}"
        assert lines[3] == "[0, 1, 2]"
        assert lines[4] == ("True True" if rank == 0 else "3.0 True")


def test_a_request_of_a_group_tells_of_its_failure(cluster):
    script = """
    wrong = group.allreduce_async(np.ones(2 + (rank == 1)))
    right = group.allreduce_async(np.ones(2))
    try:
        wrong.wait()
    except polyverso.StateError as error:
        print(error.name, right.wait().tolist())
    if rank == 0:
        try:
            late = group.barrier_async(timeout=0.05)
            late.wait()
        except polyverso.TimeoutError as error:
            print(error.name)
    else:
        import time
        while not group.info["broken"]:
            time.sleep(0.01)
        print(group.info["broken"] == polyverso.capi.MV_ETIMEOUT)
    """
    first, *others = printed(cluster, script)
    assert first == "MV_EDISAGREE [3.0, 3.0]\nMV_ETIMEOUT\n"
    assert others == ["MV_EDISAGREE [3.0, 3.0]\nTrue\n"] * 2


def test_a_group_of_one(group):
    assert group.allgather(np.float32(3)).tolist() == [3]
    assert group.gather(np.float32(3)).tolist() == [3]
    fixed = np.arange(6.0).reshape(2, 3).T
    fixed.flags.writeable = False
    assert group.alltoall(fixed).tolist() == group.gather(fixed)[0].tolist() == fixed.tolist()
    with pytest.raises(polyverso.ArgumentError, match=r"parts is float64 of shape \(2,\)"):
        group.scatter(np.zeros(2), np.zeros(2))
    with pytest.raises(polyverso.ArgumentError, match="group.send.*: rank 0 is this rank itself"):
        group.send(np.zeros(2), 0)
    whole = np.zeros((1, 2), np.float32)
    assert group.allgather(np.array([1, 2], np.float32), out=whole) is whole and whole.tolist() == [[1, 2]]
    for wrong in (np.zeros(2, np.float32), np.zeros((1, 2))):
        with pytest.raises(polyverso.ArgumentError, match="float32 of shape .1, 2. is needed"):
            group.allgather_async(np.ones(2, np.float32), out=wrong)
    assert group.reduce_scatter([[1.0, 2.0]]).tolist() == [[1, 2]]
    assert group.allreduce_custom([], lambda mine, theirs: None) == 1
    assert group.allreduce_custom(np.zeros(2), lambda mine, theirs: None, draining=True) == 0
    assert group.drain() is None
    assert Drained([], None).op is None
    with pytest.raises(polyverso.Error, match="C-contiguous"):
        group.allreduce_custom(np.zeros((3, 3))[:, 0], np.add)
    with pytest.raises(ValueError, match="op is 'mean'"):
        group.reduce_scatter(np.zeros(2), op="mean")


def test_integers_of_16_bits_are_not_taken_for_bfloat16(group):
    numbers = np.full(2, 1000, np.uint16)
    names = ["allreduce", "reduce", "broadcast", "allgather", "reduce_scatter"]
    for call in [getattr(group, name + ending) for name in names for ending in ("", "_async")]:
        with pytest.raises(polyverso.ArgumentError, match="uint16"):
            call(numbers)
    for call in (group.allreduce_many, group.broadcast_many, lambda arrays: group.allreduce_custom(arrays, np.add)):
        with pytest.raises(polyverso.ArgumentError, match="uint16"):
            call([numbers])
    assert numbers.tolist() == [1000, 1000]
    bits = polyverso.Tensor.view(np.full(2, 0x3F80, np.uint16))
    assert group.allreduce(bits).to_list() == [1, 1]


def test_manual_reductions_keep_their_arrays(group):
    values = bytearray(8 * 4)
    custom = capi.mv_custom_begin(group.handle, [memoryview(values).cast("d")], 0)
    with pytest.raises(BufferError):
        values.clear()
    with pytest.raises(polyverso.Error, match="2 arrays given, 1 needed"):
        capi.mv_custom_next(custom, [np.zeros(4), np.zeros(4)])
    assert capi.mv_custom_next(custom, [np.zeros(4)]) == 0
    assert capi.mv_custom_end(custom) == 1
    values.clear()


@pytest.mark.parametrize("call, told", [
    (lambda group: group.alltoall(np.ones(3), [1.5], [3]), "send_rows must be integers, not float64"),
    (lambda group: group.alltoall(np.ones(3), [3], ["3"]), "receive_rows must be integers"),
    (lambda group: group.alltoall(np.float32(3)), "the array is a single number"),
    (lambda group: group.reduce_scatter(np.array(3.0)), "the array is a single number"),
])
def test_what_cannot_be_divided_is_named(group, call, told):
    with pytest.raises(polyverso.ArgumentError, match=told):
        call(group)
