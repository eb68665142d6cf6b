"""Multiverso's API, as existing scripts use it."""

import contextlib
import copy
import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import multiverso as mv
import polyverso
from multiverso.theano_ext import param_manager


@pytest.fixture(params=[False, True], ids=["async", "sync"])
def joined(request):
    mv.init(sync=request.param)
    yield
    mv.shutdown()


def positional(function):
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind == parameter.POSITIONAL_OR_KEYWORD]


def test_signatures_are_multiversos():
    assert str(inspect.signature(mv.init)).startswith("(sync: bool = False)")
    assert positional(mv.ArrayTableHandler) == ["size", "init_value"]
    assert list(inspect.signature(mv.ArrayTableHandler.add).parameters) == ["self", "data", "sync"]
    assert positional(mv.MatrixTableHandler) == ["num_row", "num_col", "init_value"]
    assert list(inspect.signature(mv.MatrixTableHandler.add).parameters) == ["self", "data", "row_ids", "sync"]
    assert list(inspect.signature(mv.MatrixTableHandler.get).parameters) == ["self", "row_ids"]


def test_ones_place(joined):
    mv.barrier()
    assert (mv.workers_num(), mv.worker_id(), mv.server_id(), mv.is_master_worker()) == (1, 0, 0, True)


def test_without_init_its_own_functions_are_named():
    script = """
import multiverso as mv
for call in (lambda: mv.ArrayTableHandler(3), lambda: mv.MatrixTableHandler(3, 2), mv.barrier, mv.shutdown, mv.workers_num,
             mv.worker_id, mv.server_id, mv.is_master_worker, lambda: mv.ArrayTableHandler(1, [2], init="average")):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""
    lines = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    names = "ArrayTableHandler MatrixTableHandler barrier shutdown workers_num worker_id server_id is_master_worker ArrayTableHandler"
    assert lines == [f"MV_ESTATE: multiverso.{name}(): call multiverso.init() first" for name in names.split()]


def test_tables_after_shutdown():
    mv.init()
    table = mv.MatrixTableHandler(3, 2)
    assert repr(table) == "<multiverso.MatrixTableHandler 3 x 2>"
    mv.shutdown()
    with pytest.raises(ValueError, match="this MatrixTableHandler is used after shutdown"):
        table.get()


def test_a_models_parameters_have_a_name_in_messages():
    class Manager(param_manager.MVModelParamManager):
        def get_all_param_values(self):
            return self.model

        def set_all_param_values(self, params):
            self.model = params

    mv.init()
    manager = Manager([np.ones(3, np.float32)])
    manager.model = [np.ones(5, np.float32)]
    with pytest.raises(ValueError, match="this Manager: there were 3 values, and there are now 5"):
        manager.sync_all_param()
    manager.model = [np.ones(3, np.float32)]
    mv.shutdown()
    with pytest.raises(ValueError, match="this Manager is used after shutdown"):
        manager.sync_all_param()


def test_array(joined):
    table = mv.ArrayTableHandler(100)
    mv.barrier()
    for i in range(20):
        table.add(range(1, 101))
        table.add(list(range(1, 101)))
        mv.barrier()
        values = table.get()
        assert values.dtype == np.float32 and values.shape == (100,)
        assert (values == np.arange(1, 101) * 2 * (i + 1)).all()


@pytest.mark.parametrize("init_value", [range(4), (0, 1, 2, 3), [0, 1, 2, 3], np.arange(4), np.arange(4, dtype="f8")])
def test_initial_values_are_there_at_once(joined, init_value):
    table = mv.ArrayTableHandler(4, init_value=init_value)
    assert table.get().tolist() == [0, 1, 2, 3]


AVERAGE = """
    import numpy as np, multiverso as mv
    mv.init(sync={sync})
    mine = [1 + 3 * mv.worker_id(), 2]
    array = mv.ArrayTableHandler(2, mine, init="average")
    matrix = mv.MatrixTableHandler(1, 2, [mine], init="average")
    of_master = mv.MatrixTableHandler(1, 2, [mine])
    print(array.get().tolist(), matrix.get().tolist(), of_master.get().tolist())
    mv.barrier()
    mv.shutdown()
"""


@pytest.mark.parametrize("sync", [False, True])
def test_initial_values_may_be_the_average(cluster, sync):
    workers = [cluster.start(AVERAGE.format(sync=sync), nodes=2) for _ in range(2)]
    for worker in workers:
        output, errors = worker.communicate(timeout=60)
        assert (output, errors) == ("[2.5, 2.0] [[2.5, 2.0]] [[1.0, 2.0]]\n", "")


def test_the_average_of_one(joined):
    assert mv.ArrayTableHandler(2, [1, 2], init="average").get().tolist() == [1, 2]
    assert mv.MatrixTableHandler(1, 2, init="average").get().tolist() == [[0, 0]]
    for call in (lambda: mv.ArrayTableHandler(2, [1, 2], init="mean"), lambda: mv.ArrayTableHandler(2, [1], init="average")):
        with pytest.raises(ValueError):
            call()


def test_matrix(joined):
    rows, cols = 11, 10
    table = mv.MatrixTableHandler(rows, cols, init_value=np.zeros(rows * cols))
    some = [0, 1, 5, 10]
    everything = np.arange(rows * cols)
    for count in range(1, 21):
        table.add(everything.reshape(rows, cols))
        table.add([list(range(row * cols, row * cols + cols)) for row in some], some)
        mv.barrier()
        values = table.get()
        assert values.dtype == np.float32 and values.shape == (rows, cols)
        for row in range(rows):
            assert (values[row] == np.arange(row * cols, row * cols + cols) * count * (2 if row in some else 1)).all()
        picked = table.get(some)
        assert picked.shape == (4, cols)
        assert (picked == values[some]).all()


def test_blocking_adds(joined):
    table = mv.MatrixTableHandler(2, 2)
    table.add([1, 2, 3, 4], sync=True)
    table.add([[1, 1]], row_ids=(1,), sync=True)
    assert table.get().tolist() == [[1, 2], [4, 5]]
    assert table.get([1]).tolist() == [[4, 5]]
    assert table.get([]).shape == (0, 2)


def test_every_get_is_fresh(joined):
    table = mv.ArrayTableHandler(2)
    table.get()[:] = 7
    assert table.get().tolist() == [0, 0]


def test_wrong_sizes(joined):
    array, matrix = mv.ArrayTableHandler(3), mv.MatrixTableHandler(3, 2)
    for call in (
        lambda: array.add([1, 2]),
        lambda: array.add(None),
        lambda: matrix.add(),
        lambda: matrix.add([1, 2, 3]),
        lambda: matrix.add([1, 2, 3], [0]),
        lambda: matrix.get([3]),
        lambda: matrix.get([-1]),
        lambda: mv.ArrayTableHandler(3, [1, 2]),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("size", [3.0, 2.5, "3", None, True, np.bool_(True), [3]])
def test_sizes_are_ints(joined, size):
    calls = {"ArrayTableHandler(): size": lambda: mv.ArrayTableHandler(size),
             "MatrixTableHandler(): num_row": lambda: mv.MatrixTableHandler(size, 2),
             "MatrixTableHandler(): num_col": lambda: mv.MatrixTableHandler(2, size)}
    for name, call in calls.items():
        with pytest.raises(polyverso.ArgumentError, match=re.escape(f"multiverso.{name} must be an int, not {size!r}")):
            call()


def test_sizes_of_numpy(joined):
    assert mv.ArrayTableHandler(np.int32(3)).get().shape == (3,)
    assert mv.MatrixTableHandler(np.uint8(3), np.int64(2)).get([0]).shape == (1, 2)


@pytest.mark.parametrize("shape", [(2, 3), (6, 1)])
def test_other_shapes_are_no_matrix(joined, shape):
    table = mv.MatrixTableHandler(3, 2)
    for call in (
        lambda: table.add(np.ones(shape)),
        lambda: table.add(np.ones(shape), [0, 1, 2]),
        lambda: mv.MatrixTableHandler(3, 2, init_value=np.ones(shape)),
    ):
        with pytest.raises(ValueError, match=r"\(3, 2\) needed"):
            call()
    assert not table.get().any()
    array = mv.ArrayTableHandler(6, init_value=np.ones(shape))  # a layer's weights, as a shared variable passes them
    array.add(np.ones(shape))
    assert array.get().tolist() == [2] * 6


def test_get_takes_the_guides_argument(joined):
    table, matrix = mv.ArrayTableHandler(2, [1, 2]), mv.MatrixTableHandler(2, 1, [1, 2])
    assert table.get(sync=True).tolist() == table.get(sync=False).tolist() == [1, 2]
    assert matrix.get(sync=True).tolist() == [[1], [2]]
    assert matrix.get([1], sync=True).tolist() == matrix.get(row_ids=[1]).tolist() == [[2]]
    with pytest.raises(TypeError):
        table.get(synch=True)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_tables_are_not_copied(joined, copied):
    for table in (mv.ArrayTableHandler(2), mv.MatrixTableHandler(2, 2)):
        with pytest.raises(TypeError, match="TableHandler belongs to this process"):
            copied(table)


@pytest.mark.parametrize("modes", [(True, False), (False, True)])
def test_workers_agree_on_the_mode(cluster, modes):
    workers = [cluster.start(f"import multiverso as mv; mv.init({mode}); mv.shutdown()", nodes=2, POLYVERSO_INIT_TIMEOUT_MS="3000")
               for mode in modes]
    errors = [worker.communicate(timeout=60)[1] for worker in workers]
    assert any("MV_EDISAGREE" in error and "sync=" in error for error in errors), errors
    assert all(worker.returncode for worker in workers)


def test_a_crash_is_told_to_the_others(cluster):
    waiting = cluster.start("import multiverso as mv; mv.init(); mv.barrier(); mv.shutdown()", nodes=2)
    cluster.start("import multiverso as mv; mv.init(); raise OSError('no data')", nodes=2)
    _, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 1 and re.search(r"worker \d: OSError: no data \(rank", errors), errors


def test_a_script_may_forget_shutdown(cluster):
    workers = [cluster.start("import multiverso as mv; mv.init(); mv.ArrayTableHandler(2).add([1, 2]); mv.barrier()", nodes=2) for _ in "ab"]
    for worker in workers:
        assert worker.communicate(timeout=60) == ("", "") and worker.returncode == 0


@pytest.mark.parametrize(("set", "asked", "made", "warnings"), [("1", False, True, 1), ("1", True, True, 0), ("0", False, False, 0)])
def test_the_launchers_mode(monkeypatch, set, asked, made, warnings):
    monkeypatch.setenv("POLYVERSO_SYNC", set)
    with contextlib.ExitStack() as stack:
        if warnings:
            stack.enter_context(pytest.warns(RuntimeWarning, match="POLYVERSO_SYNC=1 overrules it"))
        mv.init(asked)
    assert polyverso.capi.mv_is_sync(0) == made
    mv.shutdown()


def test_before_init():
    with pytest.raises(polyverso.StateError):
        mv.ArrayTableHandler(3)
    with pytest.raises(polyverso.StateError):
        mv.barrier()
