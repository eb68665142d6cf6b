"""One worker of tests/multiverso, over ctypes. worker.lua and worker.cs make the same calls in the same order.

    worker.py async|sync
"""

import signal
import sys

import numpy as np

import binding

SIZE, ROWS, COLS, SOME = 1000, 11, 10, [0, 1, 5, 10]
library = binding.LIBRARY


def expect(got, wanted):
    assert np.array_equal(got, wanted), f"{got} is not {wanted}"


binding.init(sync=sys.argv[1] == "sync")
workers = library.MV_NumWorkers()
assert 0 <= library.MV_WorkerId() < workers and library.MV_ServerId() >= 0

# A runtime's signals (timers, profilers, children) interrupt waits, and no call may fail or be done twice for it.
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

ramp = np.arange(1, SIZE + 1)
array = binding.Array(SIZE, ramp * (library.MV_WorkerId() + 1))
library.MV_Barrier()
for i in range(10):
    expect(array.get(), ramp * (1 + 2 * i * workers))
    library.MV_Barrier()
    array.add(ramp)
    array.add(ramp, sync=True)
    library.MV_Barrier()

matrix = binding.Matrix(ROWS, COLS)
library.MV_Barrier()
everything = np.arange(ROWS * COLS).reshape(ROWS, COLS)
twice = np.isin(np.arange(ROWS), SOME)[:, None] + 1
for i in range(1, 11):
    matrix.add(everything)
    matrix.add(everything[SOME], SOME, sync=i % 2 == 0)
    library.MV_Barrier()
    expect(matrix.get(), everything * twice * i * workers)
    expect(matrix.get(SOME), everything[SOME] * 2 * i * workers)
    library.MV_Barrier()

library.MV_ShutDown()
signal.setitimer(signal.ITIMER_REAL, 0)
assert signals or workers == 1  # alone it may be too quick for one
print("as it should be")
