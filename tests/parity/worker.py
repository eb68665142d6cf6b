"""One worker of mixed_test.py, in Python; worker.pl and worker.lua do the same. Prints the result of every get."""

import polyverso

ROWS, COLS, ROUNDS = 5, 3, 12


def delta(worker, turn):
    # Thirds are not exact in float, so another order of the additions gives other bits.
    return [((k * 7 + worker * 13 + turn * 29) % 31 - 15) / 3 * 10**worker for k in range(ROWS * COLS)]


with polyverso.init() as node:
    table = node.matrix(ROWS, COLS, name="mixed")
    worker = node.worker_id
    for turn in range(ROUNDS):
        table.add(delta(worker, turn), wait=False)
        table.add([1 / 3, -2 / 3, 1 + worker] * 2, rows=[worker, ROWS - 1])
        print("get", *("%.9g" % value for value in table.get().ravel()))
    node.barrier()
    print("end", *("%.9g" % value for value in table.peek().ravel()))
