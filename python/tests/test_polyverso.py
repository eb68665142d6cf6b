"""The polyverso package: nodes, tables, requests."""

import asyncio
import os

import numpy as np
import pytest

import polyverso
from polyverso import kvstore


def test_a_cluster_of_one():
    with polyverso.init(sync=True, log_level="error") as node:
        assert (node.rank, node.worker_id, node.server_id) == (0, 0, 0)
        assert (node.size, node.num_workers, node.num_servers) == (1, 1, 1)
        assert node.is_master and node.is_sync
        node.barrier(timeout=5)
    with pytest.raises(polyverso.StateError):
        node.rank


def test_leaving_the_block_with_an_error_shuts_down():
    with pytest.raises(KeyError):
        with polyverso.init():
            raise KeyError
    with pytest.raises(polyverso.StateError):
        polyverso.capi.mv_rank(0)


def test_a_block_may_shut_its_node_down_itself():
    with polyverso.init() as node:
        node.shutdown()
    with polyverso.open_node() as other:
        other.shutdown()
        with pytest.raises(polyverso.HandleError):
            other.barrier()


def test_unknown_settings_are_named():
    with pytest.raises(polyverso.ArgumentError, match="sink"):
        polyverso.init(sink=True)


def test_further_nodes(node):
    with polyverso.open_node(sync=True) as other:
        assert other.is_sync and not node.is_sync
        other.array(2, name="w")
        assert [table["name"] for table in other.tables()] == ["w"]
        assert node.tables() == []


@pytest.mark.parametrize("dtype", ["f4", "f8", np.float32, float])
def test_an_array(node, dtype):
    table = node.array(4, dtype=dtype, init=range(4))
    assert (table.shape, table.dtype) == ((4,), np.dtype(dtype))
    assert table.get().tolist() == [0, 1, 2, 3]
    table.add([1, 1, 1, 1])
    table.add((0.5, 0.5), rows=[3, 0])
    assert table.get(rows=range(2, 4)).tolist() == [3, 4.5]
    assert table.get(rows=0).tolist() == [1.5]


def test_a_matrix(node):
    table = node.matrix(3, 2, name="m", init=[[1, 2], [3, 4], [5, 6]])
    assert (table.name, table.shape, table.info()["servers"]) == ("m", (3, 2), 1)
    table.add(np.ones((3, 2), int))
    table.add([[10, 10], [20, 20]], rows=np.array([1, 1]), wait=False)
    assert table.get().tolist() == [[2, 3], [34, 35], [6, 7]]
    table.set([[0, 0]], rows=[2])
    assert table.peek(rows=[2, 0]).tolist() == [[0, 0], [2, 3]]
    assert node.open("m").get().tolist() == table.get().tolist()
    table.destroy()
    with pytest.raises(polyverso.ArgumentError):
        node.open("m")


def test_results_are_fresh_or_where_one_wants_them(node):
    table = node.array(3, init=[1, 2, 3])
    first, second = table.get(), table.get()
    first[:] = 9
    assert second.tolist() == [1, 2, 3]
    out = np.empty(3, "f4")
    assert table.get(out=out) is out
    assert out.tolist() == [1, 2, 3]
    with pytest.raises(polyverso.ArgumentError):
        table.get(out=np.empty(3, "f8"))
    with pytest.raises(polyverso.ArgumentError):
        table.get(out=np.empty(2, "f4"))


@pytest.mark.parametrize("rows", [[0.5], [True, False, True], ["a"], [3], [-1]])
def test_wrong_rows(node, rows):
    table = node.array(3)
    with pytest.raises(polyverso.ArgumentError):
        table.get(rows=rows)


@pytest.mark.parametrize("data", [[1, 2], None, [[1, 2, 3, 4]]])
def test_wrong_data(node, data):
    table = node.array(3)
    with pytest.raises(polyverso.ArgumentError):
        table.add(data)
    assert table.info()["adds"] == 0


@pytest.mark.parametrize("dtype", ["i2", "u4", "f12", "u2", bool, object, "complex"])
def test_other_dtypes_of_tables_are_refused(node, dtype):
    with pytest.raises(TypeError):
        node.array(3, dtype=dtype)


def test_refused_values(node):
    table = node.array(2, reject_nonfinite=True)
    with pytest.raises(polyverso.ArgumentError) as caught:
        table.add([1, np.nan])
    assert caught.value.name == "MV_ENONFINITE"


def test_requests_are_waited_for(node):
    table = node.array(2)
    add = table.add_async([1, 2])
    assert add.wait(timeout=5) is None
    get = table.get_async()
    assert get.wait().tolist() == [1, 2]
    assert get.wait().tolist() == [1, 2]
    assert get.done() and get.handle is None
    barrier = node.barrier_async()
    while not barrier.done():
        pass
    barrier.wait()
    cancelled = table.get_async()
    cancelled.cancel()
    with pytest.raises(polyverso.Error):
        cancelled.wait()


def test_requests_are_awaited(node):
    table = node.array(2)

    async def work(i):
        await table.add_async([1, i])
        return (await table.get_async()).tolist()

    async def main():
        results = await asyncio.gather(*(work(i) for i in range(50)))
        await node.barrier_async()
        return results, (await table.get_async()).tolist()

    for again in (1, 2):
        results, final = asyncio.run(main())
        assert len(results) == 50
        assert final == [50 * again, 1225 * again]


def test_an_awaited_error_is_raised(node):
    table = node.array(2)

    async def main():
        await table.add_async([1, 2, 3])

    with pytest.raises(polyverso.ArgumentError):
        asyncio.run(main())


def test_awaiting_leaves_other_tasks_running(cluster):
    """The barrier ends when the other process calls it; the event loop of this one runs other tasks meanwhile."""
    first = cluster.start(
        """
        import asyncio, polyverso
        async def main(node):
            barrier = asyncio.ensure_future(wait(node.barrier_async()))
            ticks = 0
            while not barrier.done():
                await asyncio.sleep(0.01)
                ticks += 1
            await barrier
            print(ticks > 10)
        async def wait(request):
            await request
        with polyverso.init() as node:
            asyncio.run(main(node))
        """,
        nodes=2,
    )
    cluster.start(
        """
        import time, polyverso
        with polyverso.init() as node:
            time.sleep(0.5)
            node.barrier()
        """,
        nodes=2,
    )
    output, errors = first.communicate(timeout=30)
    assert (output, errors) == ("True\n", "")


def test_the_local_device(monkeypatch):
    for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", "POLYVERSO_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert polyverso.local_device() == 0
    with polyverso.init():
        assert polyverso.local_device() == 0
        monkeypatch.setenv("LOCAL_RANK", "3")
        assert polyverso.local_device() == 3


def test_paths(node, tmp_path):
    """Text, bytes and path objects; also names of files that are not UTF-8, as os.listdir() returns them."""
    node.array(2, name="weights")
    folder = os.fsencode(tmp_path)
    for path in (tmp_path / "object", str(tmp_path / "text"), folder + b"/bytes", os.fsdecode(folder + b"/latin1 \xdf")):
        node.save(path)
        node.load(path)
        assert polyverso.inspect_checkpoint(path)["what"] == "directory"
        kv, states = kvstore.create("local"), os.path.join(path, b"states" if isinstance(path, bytes) else "states")
        kv.init("w", np.ones(2))
        kv.set_optimizer("mx.sgd")
        kv.save_optimizer_states(states)
        kv.load_optimizer_states(states)
    assert sorted(os.listdir(folder)) == [b"bytes", b"latin1 \xdf", b"object", b"text"]
    with pytest.raises(polyverso.NotFoundError, match="nowhere \ufffd"):
        node.load(folder + b"/nowhere \xdf")
