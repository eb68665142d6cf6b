"""libmultiverso.so as a binding for Multiverso calls it through ctypes: no argtypes, strings in an array without an
end, handles as c_void_p, float32 arrays by their address."""

import ctypes

import numpy as np

LIBRARY = ctypes.cdll.LoadLibrary("libmultiverso.so")
LIBRARY.MV_NumWorkers.restype = ctypes.c_int
FLOATS = ctypes.POINTER(ctypes.c_float)


def init(sync=False):
    words = [b"", b"-sync=true"] if sync else [b""]
    array = (ctypes.c_char_p * len(words))(*map(ctypes.c_char_p, words))
    LIBRARY.MV_Init(ctypes.pointer(ctypes.c_int(len(words))), array)


def floats(data):
    return np.ascontiguousarray(data, dtype=np.float32)


def address(array):
    return array.ctypes.data_as(FLOATS)


def ids(rows):
    return (ctypes.c_int * len(rows))(*rows)


class Table:
    def initialise(self, values):
        """The master's values, added once; every worker adds, so that sync mode stays in step."""
        if values is not None:
            self.add(values if LIBRARY.MV_WorkerId() == 0 else np.zeros_like(floats(values)), sync=True)


class Array(Table):
    def __init__(self, size, values=None):
        self.handler, self.size = ctypes.c_void_p(), size
        LIBRARY.MV_NewArrayTable(size, ctypes.byref(self.handler))
        self.initialise(values)

    def get(self):
        data = np.zeros(self.size, np.float32)
        LIBRARY.MV_GetArrayTable(self.handler, address(data), self.size)
        return data

    def add(self, data, sync=False):
        data = floats(data)
        function = LIBRARY.MV_AddArrayTable if sync else LIBRARY.MV_AddAsyncArrayTable
        function(self.handler, address(data), self.size)


class Matrix(Table):
    def __init__(self, rows, cols, values=None):
        self.handler, self.shape = ctypes.c_void_p(), (rows, cols)
        LIBRARY.MV_NewMatrixTable(rows, cols, ctypes.byref(self.handler))
        self.initialise(values)

    def get(self, rows=None):
        cols = self.shape[1]
        if rows is None:
            data = np.zeros(self.shape, np.float32)
            LIBRARY.MV_GetMatrixTableAll(self.handler, address(data), data.size)
        else:
            data = np.zeros((len(rows), cols), np.float32)
            LIBRARY.MV_GetMatrixTableByRows(self.handler, address(data), data.size, ids(rows), len(rows))
        return data

    def add(self, data, rows=None, sync=False):
        data = floats(data)
        if rows is None:
            function = LIBRARY.MV_AddMatrixTableAll if sync else LIBRARY.MV_AddAsyncMatrixTableAll
            function(self.handler, address(data), data.size)
        else:
            function = LIBRARY.MV_AddMatrixTableByRows if sync else LIBRARY.MV_AddAsyncMatrixTableByRows
            function(self.handler, address(data), data.size, ids(rows), len(rows))
