"""Dropped requests: their handles and buffers are released, for every kind of call and every way of dropping them."""

import asyncio
import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

import polyverso
from polyverso import Tensor, capi, kvstore


def slot(handle):
    """The slot of a handle. The highest one shows how many requests existed at the same time."""
    return handle & 0xFFFFFF


def newest_slot(node):
    request = node.barrier_async()
    used = slot(request.handle)
    request.wait()
    return used


def test_dropped_adds_go_on(node):
    table = node.array(16)
    one = np.ones(16, np.float32)
    most = 0
    for _ in range(200_000):
        most = max(most, slot(table.add_async(one).handle))
    assert most < 100
    node.barrier()
    assert table.get()[0] == 200_000
    assert node.poll() == []


def test_dropped_gets_keep_their_arrays_until_they_are_over(node):
    table = node.array(1000, init=np.arange(1000))
    most = max(slot(table.get_async().handle) for _ in range(20_000))
    most = max(most, max(slot(table.peek_async(rows=[1, 2]).handle) for _ in range(2_000)))
    assert most < 1_000


def test_a_dropped_get_that_waits_keeps_its_array():
    """Two workers in sync mode: one's get waits for the other."""
    ready, results = threading.Event(), []

    def live(rank):
        options = {"transport": "inproc", "nodes": 2, "rank": rank, "master": "dropped-gets", "sync": True}
        with polyverso.open_node(**options) as node:
            table = node.array(1 << 20, name="w")
            table.add(np.ones(1 << 20, np.float32))
            if rank == 0:
                table.get_async()
                gc.collect()
                junk = [np.full(1 << 20, 7, np.float32) for _ in range(4)]
                ready.set()
                results.append(bool(table.get()[0] == 2))
                assert all((one == 7).all() for one in junk)
            else:
                ready.wait()
                table.get()
                table.get()

    threads = [threading.Thread(target=live, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True]


def test_dropped_calls_of_every_kind(node, tmp_path):
    table = node.matrix(4, 3)
    keyed = node.keyvalue()
    kv = kvstore.create("dist_sync")
    kv.init(1, np.zeros(8, np.float32))
    out, tensor = np.zeros(8, np.float32), Tensor.zeros(8)
    before = newest_slot(node)
    for _ in range(300):
        table.set_async(np.ones((4, 3), np.float32))
        table.add_async(np.ones((1, 3), np.float32), rows=[2])
        keyed.add_async([1.0], keys=[5])
        keyed.erase_async(keys=[5])
        node.barrier_async()
        kv.push(1, out)
        kv.pull_async(1, out)
        kv.pull_async(1, tensor)
    for number in range(3):
        node.save_async(tmp_path, keep=1)
        node.barrier()
    node.barrier()
    assert newest_slot(node) < before + 100


def test_an_awaiter_that_is_cancelled_drops_its_request(node):
    table = node.array(4)

    async def awaits():
        for _ in range(300):
            task = asyncio.ensure_future(one())
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
        await table.get_async()

    async def one():
        await table.get_async()
        await node.barrier_async()

    asyncio.run(awaits())
    assert newest_slot(node) < 100


@pytest.mark.parametrize("how", ["abort", "shutdown"])
def test_a_task_does_not_outwait_its_node(how):
    """The node ends, in another thread, while tasks await a get and a barrier that need the other worker."""
    settings = {"transport": "inproc", "nodes": 2, "master": f"ends-by-{how}", "sync": True}

    async def outcome(request):
        try:
            return await request
        except polyverso.Error as error:
            return error.name

    async def live(node, table):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        table.add_async([1])
        tasks = [asyncio.ensure_future(outcome(request)) for request in (table.get_async(), node.barrier_async())]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(getattr(node, how))
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    def other():
        with polyverso.open_node(rank=1, **settings) as node:
            node.array(1, name="w")
            ending.wait(30)

    ending, failures = threading.Event(), []
    thread = threading.Thread(target=other)
    thread.start()
    node = polyverso.open_node(rank=0, **settings)
    table = node.array(1, name="w")
    threading.Timer(0.5, ending.set).start()  # a shutdown waits for the other worker
    got, passed = asyncio.run(live(node, table))
    assert got in ("MV_ESTATE", 1) and passed == "MV_ESTATE"
    assert failures == []
    thread.join(30)


def test_a_loop_without_readers_refuses_each_await():
    def refuse(*_):
        raise NotImplementedError

    async def awaits(request):
        await request

    def other():
        with polyverso.open_node(rank=1, **settings) as node:
            tried.wait(30)
            node.barrier()

    settings = {"transport": "inproc", "nodes": 2, "master": "no-readers"}
    tried = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    loop = asyncio.SelectorEventLoop()
    loop.add_reader = refuse  # as a loop without them does
    with polyverso.open_node(rank=0, **settings) as node:
        barrier = node.barrier_async()
        for _ in range(2):
            with pytest.raises(NotImplementedError):
                loop.run_until_complete(asyncio.wait_for(awaits(barrier), 10))
        tried.set()
        barrier.wait()
    loop.close()
    thread.join(30)


def test_requests_dropped_by_other_threads_and_in_cycles(node):
    table = node.array(4)
    one = np.ones(4, np.float32)

    def work():
        for _ in range(2_000):
            request = table.add_async(one)
            request.cycle = [request]  # only the cyclic garbage collector frees it

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    node.barrier()
    assert table.get()[0] == 8_000
    for _ in range(1_000):
        table.add_async(one)
    assert newest_slot(node) < 9_000


def test_a_request_that_outlives_its_node_or_its_process():
    with polyverso.init() as node:
        table = node.array(4)
        request, got = table.add_async([1, 1, 1, 1]), table.get_async()
        child = os.fork()
        if child == 0:
            del request, got
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert request.wait() is None
        request = table.add_async([1, 1, 1, 1])
    del request, got
    gc.collect()


def test_a_child_forked_while_a_thread_waits_is_told_so():
    """The child's copy of the request is one that a thread of the parent waits for."""
    statuses, met = [], threading.Barrier(2, timeout=60)

    def live(rank):
        options = {"transport": "inproc", "nodes": 2, "rank": rank, "master": "forked-requests", "sync": True}
        with polyverso.open_node(**options) as node:
            table = node.array(2, name="w")
            if rank == 1:
                met.wait()
                table.add([1, 1])
                table.get()
                return
            table.add([1, 1])
            request = table.get_async()
            waits = threading.Thread(target=request.wait)
            waits.start()
            while not request._turn.locked():
                time.sleep(0.001)
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs ends
                try:
                    request.wait()
                except polyverso.Error as error:
                    os._exit(-error.status if not request.done() else 0)
                os._exit(0)
            statuses.append(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            met.wait()
            waits.join()
            assert request.wait()[0] == 2

    workers = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert statuses == [capi.MV_EFORK]


def test_threads_and_tasks_get_the_outcome_of_one_request():
    """A get that waits for the other worker, and five that wait for it."""
    meeting, outcomes = threading.Barrier(2, timeout=60), []

    async def wait_thrice(request):
        async def wait():
            return await request

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0.005)
        meeting.wait()
        return [float(array[0]) for array in await asyncio.wait_for(asyncio.gather(*tasks), 30)]

    def live(rank):
        options = {"transport": "inproc", "nodes": 2, "rank": rank, "master": "shared-requests", "sync": True}
        with polyverso.open_node(**options) as node:
            table = node.array(8, name="w")
            for number in range(1, 31):
                if rank == 1:
                    meeting.wait()
                    table.add(np.ones(8, np.float32))
                    table.get()
                    continue
                table.add(np.ones(8, np.float32))
                request = table.get_async()
                mine = []
                threads = [threading.Thread(target=lambda mine=mine: mine.append(float(request.wait(30)[0]))) for _ in range(2)]
                for thread in threads:
                    thread.start()
                mine += asyncio.run(wait_thrice(request))
                for thread in threads:
                    thread.join()
                outcomes.append(mine == [2 * number] * 5)
                assert request.wait()[0] == 2 * number

    workers = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert outcomes == [True] * 30


def test_a_wait_has_its_own_deadline_while_another_thread_waits():
    meeting, reached = threading.Event(), []

    def live(rank):
        options = {"transport": "inproc", "nodes": 2, "rank": rank, "master": "own-deadlines", "sync": True}
        with polyverso.open_node(**options) as node:
            table = node.array(8, name="w")
            if rank == 1:
                meeting.wait(60)
            table.add(np.ones(8, np.float32))
            request = table.get_async()
            if rank == 0:
                other = threading.Thread(target=request.wait)
                other.start()
                time.sleep(0.05)
                with pytest.raises(polyverso.TimeoutError):
                    request.wait(0.05)
                assert not request.done()
                meeting.set()
                other.join()
            reached.append(float(request.wait()[0]))

    workers = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert reached == [2, 2]
