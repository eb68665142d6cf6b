"""What users of Python expect: indexing, context managers, enums, one import, docstrings, `python3 -m polyverso`."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

import polyverso
from polyverso import Kind, kvstore
from polyverso.table_view import TableView

VALUES = [[1, 2], [3, 4], [5, 6]]


@pytest.fixture
def matrix(node):
    return node.matrix(3, 2, name="weights", init=VALUES)


# ------------------------------------------------------------------ indexing


@pytest.mark.parametrize(
    "rows",
    [0, -1, np.int64(1), [0, 2], [2, 0, 2], [-1], [], np.array([[0, 1], [2, 0]]), slice(None), slice(1, 3), slice(None, None, -2), slice(3, 3), ...],
)
def test_rows_are_read_like_an_arrays(matrix, rows):
    wanted = np.array(VALUES, "f4")[np.array(rows, int) if isinstance(rows, list) else rows]
    got = matrix[rows]
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    assert got.tolist() == wanted.tolist() and repr(got) == repr(wanted)
    assert ((got * 2 + 1) == wanted * 2 + 1).all() and np.array_equal(1 - got, 1 - wanted)
    assert got.sum() == wanted.sum() and len(got) == len(wanted) and np.array([*got]).tolist() == np.array([*wanted]).tolist()
    assert np.add.reduce(got, axis=0).tolist() == np.add.reduce(wanted, axis=0).tolist()


@pytest.mark.parametrize("rows", [0, [0, 2], slice(None), slice(0, 2), ..., np.array([2])])
@pytest.mark.parametrize("data", [1, [10, 20], np.float64(2)])
def test_adding_is_an_add(matrix, rows, data):
    wanted = np.array(VALUES, "f4")
    wanted[rows] += data
    matrix[rows] += data
    info = matrix.info()
    assert (info["adds"], info["gets"]) == (1, 0)
    assert matrix.get().tolist() == wanted.tolist()
    matrix[rows] -= data
    assert matrix.info()["adds"] == 2
    assert matrix.get().tolist() == VALUES


def test_adding_goes_through_the_updater(node):
    table = node.array(3, updater="sgd rate=0.5")
    table[:] += [2, 4, 6]
    table[1] += 2
    table[[0, 0]] += 2  # repeated rows are summed
    assert table.get().tolist() == [-3, -3, -3]


def test_assigning_sets(matrix):
    matrix[0] = [7, 8]
    matrix[1:] = 9
    assert matrix.get().tolist() == [[7, 8], [9, 9], [9, 9]]
    matrix[:] = matrix[:] * 2
    matrix[[0]] = matrix[[1]]
    assert matrix.get().tolist() == [[18, 18]] * 3
    assert matrix.info()["adds"] == 0
    view = matrix[0]
    view += 1  # a view, like a slice of an array
    matrix[1] = view
    assert matrix.get().tolist() == [[19, 19], [19, 19], [18, 18]]


def test_keys(node):
    table = node.keyvalue(dtype="i64")
    table[[5, -7]] += [1, 2]
    table[5] += 1
    assert table[[5, -7, 9]].tolist() == [2, 2, 0]
    assert int(table[5]) == 2
    with pytest.raises(TypeError, match="no slices"):
        table[:]


def test_what_is_no_index(matrix):
    for call, reason in (
        (lambda: matrix[0, 1], r"table\[rows\]\[..., columns\]"),
        (lambda: matrix[[True, False, True]], "must be 64-bit integers"),
        (lambda: matrix[1.5], "must be 64-bit integers"),
        (lambda: matrix[3].get(), "outside 0 .. 2"),
        (lambda: matrix[-4].get(), "outside 0 .. 2"),
    ):
        with pytest.raises((TypeError, polyverso.ArgumentError), match=reason):
            call()
    with pytest.raises(TypeError, match="only .= and -="):
        matrix[0] *= 2
    with pytest.raises(TypeError, match="only .= and -="):
        np.multiply(1, 2, out=matrix[0])
    with pytest.raises(ValueError, match="broadcast"):
        matrix[:] += np.ones(3)
    with pytest.raises(TypeError, match="assign to the table's rows"):
        matrix[0][1] = 3
    assert matrix.get().tolist() == VALUES


def test_a_table_is_an_array(matrix):
    assert np.asarray(matrix).tolist() == VALUES and [row.tolist() for row in matrix] == VALUES
    before = matrix.info()["gets"]
    assert np.array_equal(matrix, VALUES) and [3, 4] in [row.tolist() for row in matrix]
    assert matrix.info()["gets"] == before + 2
    assert isinstance(matrix[0], TableView)


# ------------------------------------------------------------------ closing


def test_tables_and_stores_are_closed(node):
    with node.array(2, name="w") as table:
        table.add([1, 2])
    with pytest.raises(polyverso.HandleError):
        table.get()
    with node.open("w") as again:
        assert again.get().tolist() == [1, 2]
        again.close()
    with kvstore.create("local") as kv:
        kv.init("a", np.ones(1))
    with pytest.raises(polyverso.HandleError):
        kv.push("a", np.ones(1))
    kv.close()
    with polyverso.open_node() as other, other.array(1):
        pass


# ------------------------------------------------------------------ names


def test_enums(node):
    info = node.matrix(2, 2, "f64", merge=True).info()
    assert info["kind"] is Kind.MATRIX and info["dtype"] is polyverso.DType.F64
    assert info["flags"] is polyverso.TableFlag.MERGE and not node.array(1).info()["flags"]
    assert polyverso.Tensor.zeros(2).info()["dtype"] is polyverso.DType.F32
    assert json.loads(json.dumps(info))["kind"] == polyverso.capi.MV_MATRIX


def test_one_import_is_enough():
    script = """
import sys
import polyverso
assert not {"polyverso.kvstore", "polyverso.gossip", "polyverso.group", "polyverso.distlearn", "asyncio"} & set(sys.modules)
assert set(polyverso.__all__) <= set(dir(polyverso))
assert [name for name in dir(polyverso) if name[0] == "_" and name[1] != "_"] == []
for name in polyverso.__all__:
    assert getattr(polyverso, name) is not None
polyverso.group.Group is polyverso.Group
polyverso.distlearn.AllReduceSGD, polyverso.gossip.ArrayAdapter, polyverso.kvstore.create, polyverso.KVStore
from polyverso import *
"""
    subprocess.run([sys.executable, "-c", script.replace(', "asyncio"', "")], check=True)


def test_settings_are_named_parameters():
    for function in (polyverso.init, polyverso.open_node):
        parameters = inspect.signature(function).parameters.values()
        assert all(parameter.kind is parameter.KEYWORD_ONLY and parameter.default is None for parameter in parameters)
        assert all(parameter.annotation != parameter.empty for parameter in parameters)
        assert {"sync", "rank", "nodes", "master", "secret", "timeout_ms", "log_level"} <= {parameter.name for parameter in parameters}


def test_options_for_compilers_of_programs_in_c(tmp_path):
    options = subprocess.run([sys.executable, "-m", "polyverso", "--includes", "--libs"], capture_output=True, text=True, check=True).stdout
    source = tmp_path / "version.c"
    source.write_text("#include <polyverso/polyverso.h>\n#include <stdio.h>\nint main(void) { return puts(mv_version_text()) < 0; }\n")
    subprocess.run(["cc", source, *options.split(), "-o", tmp_path / "version"], check=True)
    assert subprocess.run([tmp_path / "version"], capture_output=True, text=True, check=True).stdout == polyverso.__version__ + "\n"


def test_the_import_loads_neither_numpy_nor_asyncio():
    script = "import sys, polyverso; sys.exit(any(name in sys.modules for name in ('numpy', 'asyncio')))"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_tool_as_a_module():
    done = subprocess.run([sys.executable, "-m", "polyverso", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"polyverso {polyverso.__version__}\n"
    wrong = subprocess.run([sys.executable, "-m", "polyverso", "no-such-command"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "polyverso: " in wrong.stderr


