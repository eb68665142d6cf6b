"""Clusters whose processes know no address: only the name of their cluster, and where it is known."""

from nodes import Cluster

WORK = """
import json
node = pv.init()
table = node.array(2, name="sums")
table.add(np.array([1, 1 + node.worker_id], np.float32))
node.barrier()
say("sum", *table.get().astype(int), "of", node.num_workers, "rank", node.rank, "at", f"{time.monotonic():.2f}")
while word := wait_for_word():
    if word == "step":
        attempt(lambda: (table.add(np.ones(2, np.float32)), node.barrier()))
    elif word == "add":
        attempt(lambda: (table.add(np.ones(2, np.float32)), table.get()))
    elif word == "doctor":
        for finding in node.doctor()["findings"]:
            if finding["area"] == "keeper":
                say("keeper", finding["verdict"], finding["text"], "->", finding["todo"])
        say("examined")
attempt(node.shutdown)
"""
JOIN = "attempt(pv.init)\n"


class Named(Cluster):
    """Every process gets the same settings, and no rank unless a test gives it one."""

    def __init__(self, workers, keeper, servers=0, **settings):
        super().__init__(workers, servers, keeper=keeper, master=None, **settings)
        self.listener.close()
        self.listener = None

    def environment(self, rank, /, **settings):
        return super().environment(rank, **{"rank": None, **settings})

    def begin(self, count=None, script=WORK):
        return [self.python(number, script) for number in range(self.workers if count is None else count)]


def sums(nodes, seconds=30):
    """What the processes of one cluster say, each once: [(ones, sum of numbers, size, rank)...]"""
    return sorted(tuple(int(word) for word in (line.split()[1], line.split()[2], line.split()[4], line.split()[6]))
                  for line in (node.hear("sum ", seconds) for node in nodes))


def whole(workers):
    """What sums() has for a whole cluster."""
    return [(workers, workers * (workers + 1) // 2, workers, rank) for rank in range(workers)]


def end(nodes):
    for node in nodes:
        node.tell("")
    for node in nodes:
        node.ends()
