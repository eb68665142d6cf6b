"""Tables, groups and errors where numpy is not installed: docs/installing.md lists what works."""

import array
import importlib.util
import sys

import polyverso

assert importlib.util.find_spec("numpy") is None


def refused(error, part, call):
    """Checks that the call raises this error with a text that contains `part`."""
    try:
        call()
    except error as failure:
        assert part in str(failure), failure
        return
    raise AssertionError(f"no {error.__name__}: {part}")


with polyverso.init(sync=True) as node:
    weights = node.array(3, init=[1, 2, 3], updater="sgd rate=0.1")
    for _ in range(10):
        weights.add([2 * value / node.num_workers for value in weights.get()])
    assert [round(value, 3) for value in weights.get()] == [0.107, 0.215, 0.322]

    matrix = node.matrix(2, 3)
    matrix.add([[1, 2, 3], [4, 5, 6]])
    assert matrix.get().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert matrix.get([1, 0]).tolist() == [[4, 5, 6], [1, 2, 3]]
    assert matrix.get([]).tolist() == []
    matrix.add(array.array("f", [1] * 3), rows=array.array("q", [1]))
    matrix.add(array.array("d", [1] * 6))
    assert matrix.get_async().wait().tolist() == [[2, 3, 4], [6, 7, 8]]
    out = array.array("f", [0] * 6)
    assert matrix.get(out=out) is out and list(out) == [2, 3, 4, 6, 7, 8]

    integers = node.array(2, dtype="int64")
    integers.add([1, 2])
    assert integers.get().tolist() == [1, 2]
    keys = node.keyvalue(cols=2)
    keys.add([[1, 2]], keys=[7])
    assert keys.get(keys=[7]).tolist() == [[1, 2]] and len(keys) == 1

    refused(polyverso.ArgumentError, "not an integer", lambda: integers.add([1.5, 2]))
    refused(polyverso.ArgumentError, "different lengths", lambda: matrix.add([[1, 2], [3]]))
    refused(polyverso.ArgumentError, "(1, 2) given", lambda: matrix.add([[1, 2]]))
    refused(polyverso.ArgumentError, "integers", lambda: matrix.get("a"))
    refused(TypeError, "did you mean", lambda: node.array(2, dtype="flaot32"))
    for call in (lambda: matrix.dtype, lambda: matrix[0], lambda: next(matrix.scan())):
        refused(ImportError, "this call needs numpy", call)

    values = array.array("f", [1, 2])
    polyverso.Group(node).allreduce(values)
    assert list(values) == [1, 2]
assert "numpy" not in sys.modules
print("well")
