"""Tables where numpy is not installed. tests/packages/python.sh tries them in an environment without it."""

import array

import pytest

from polyverso import ArgumentError, arrays, capi, plain


@pytest.fixture
def without_numpy(monkeypatch):
    monkeypatch.setattr(arrays, "has_numpy", lambda: False)


def test_lists_and_buffers(node, without_numpy):
    table = node.matrix(2, 3)
    table.add([[1, 2, 3], [4, 5, 6]])
    table.add(array.array("d", [1] * 6))
    table.add(array.array("f", [1] * 3), rows=array.array("q", [1]))
    assert isinstance(table.get(), memoryview)
    assert table.get().tolist() == [[2, 3, 4], [6, 7, 8]]
    assert table.get([1, 0]).tolist() == [[6, 7, 8], [2, 3, 4]]
    assert table.get([]).tolist() == []
    assert table.get(1).tolist() == [[6, 7, 8]]


@pytest.mark.parametrize("code", sorted({capi.MV_F32, capi.MV_F64, capi.MV_I64, capi.MV_I32, capi.MV_U8, capi.MV_I8}))
def test_every_dtype(code):
    assert plain.as_values([1, 2], code).tolist() == [1, 2]


def test_buffers_of_the_dtype_are_not_copied():
    values = array.array("f", [1, 2])
    assert plain.as_values(values, capi.MV_F32).obj is values
    assert plain.as_rows(array.array("q", [1])).tolist() == [1]


def test_bits_of_bfloat16():
    assert plain.as_values(array.array("H", [0x3F80]), capi.MV_BF16).tolist() == [0x3F80]
    with pytest.raises(ArgumentError, match="bits"):
        plain.as_values([1.0], capi.MV_BF16)


@pytest.mark.parametrize(
    "data, code, part",
    [
        (None, capi.MV_F32, "no data"),
        ([1.5], capi.MV_I64, "not an integer"),
        ([300], capi.MV_U8, "does not fit"),
        ("text", capi.MV_F32, "does not fit"),
        ([1, None], capi.MV_F32, "does not fit"),
        ([[1, 2], [3]], capi.MV_F32, "different lengths"),
        ([[1], 2], capi.MV_F32, "different lengths"),
    ],
)
def test_refused_values(data, code, part):
    with pytest.raises(ArgumentError, match=part):
        plain.as_values(data, code)


@pytest.mark.parametrize("rows", ["a", [1.5], [True], ["a"]])
def test_refused_rows(rows):
    with pytest.raises(ArgumentError, match="64-bit integers"):
        plain.as_rows(rows)
