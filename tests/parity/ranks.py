"""One rank of mixed_test.py, in Python; ranks.pl and ranks.lua do the same. All ranks print the same lines."""

import numpy as np

import polyverso
from polyverso import distlearn
from polyverso.group import Group


def show(name, array):
    print(name, *("%g" % value for value in np.ravel(array)))


def keep_greater(mine, theirs):
    return theirs if theirs[0][0] > mine[0][0] else mine


def fail(mine, theirs):
    raise ValueError("of one's own")


with polyverso.init() as node, Group(node) as group:
    rank, size = group.rank, group.size
    show("gathered", group.allgather(np.array([[rank, 10.0 * rank]], "f4")))
    part = group.reduce_scatter(np.arange(2 * size, dtype="f8") * (rank + 1))
    show("scattered", group.allgather(part))

    gathered = group.gather(np.array([rank, 5.0], "f4"), root=1)
    own = np.zeros(2)
    group.scatter(own, None if rank else np.arange(2.0 * size).reshape(size, 2))
    given = group.alltoall(np.arange(size, dtype="f8") + 100 * rank)
    rows = [(rank + to) % 3 for to in range(size)]  # as many from each rank as for it
    uneven = group.alltoall(np.full(sum(rows), rank, "i4"), rows, rows)
    request = group.allreduce_async(np.full(2, rank + 1.0))
    group.send(np.array([rank]), (rank + 1) % size, tag=3)
    taken = np.zeros(1, "i8")
    source = group.recv(taken, tag=3)
    word = np.zeros(8)
    word[:] = own.sum(), given.sum() - rank * size, uneven.sum() + rank, len(uneven), taken[0] - source, (source + 1 - rank) % size, *request.wait()
    show("exchanged", group.allreduce(word))
    show("gathered at 1", group.broadcast(np.zeros((size, 2), "f4") if gathered is None else gathered, root=1))

    best = [np.array([(rank * 7 + 1) % 5], "f8"), np.array([rank])]
    show("best", [group.allreduce_custom(best, keep_greater), *best[0], *best[1]])

    total = np.zeros(3)
    for step in range(rank + 1):
        if step % 2:
            values = np.full(2, rank + 1.0)
            contributors = group.allreduce_custom(values, np.add)
        else:
            values = np.full(3, rank + 1, "f4")
            contributors = group.allreduce_many([values])
        total += contributors, values[0], 1
    while coming := group.drain():
        nothing = [np.zeros(count, dtype) for count, dtype in coming.arrays]
        if coming.op is None:
            group.allreduce_custom(nothing[0], np.add, draining=True)
        else:
            group.allreduce_many(nothing, op=coming.op, draining=True)
        total[2] += 1
    show("steps", group.allreduce(total, op="max"))

    try:
        group.allreduce_custom(np.zeros(2), fail)
    except ValueError as error:
        print("failed" if str(error) == "of one's own" else error)
    except polyverso.Error as error:
        print("failed" if error.name == "MV_ECANCELED" else error)
    show("after", group.allreduce(np.ones(1)))

    # Numeric keys come before text keys, in numeric order.
    named = {key: np.full(1, value) for key, value in [("b", 3.0), (10, 2.0), (9, 1.0), ("a10", 5.0), ("a9", 4.0)]}
    with distlearn.AllReduceSGD(group) as sgd:
        sgd.sum_gradients(named)
    show("keys", [named[key][0] for key in (9, 10, "b", "a9", "a10")])
