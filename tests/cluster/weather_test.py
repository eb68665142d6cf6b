"""A cluster on a bad network: messages are lost, duplicated and delayed, and workers die in the middle of
operations."""

import pytest

FAULTS = "drop=0.02 duplicate=0.02 delay_ms=3 seed={}"

SUMS = """
node = pv.init()
table = node.array(5000, name="sums")
rows = np.arange(0, 5000, 7)
for step in range(40):
    table.add(np.full(5000, node.worker_id + 1), wait=step % 2 == 0)
    table.add(np.ones(rows.size), rows=rows, wait=False)
node.barrier()
values = table.get()
workers = node.num_workers
expected = np.full(5000, 40 * workers * (workers + 1) // 2, np.float32)
expected[rows] += 40 * workers
say("right" if np.array_equal(values, expected) else f"wrong: {values[:9]} for {expected[:9]}")
node.shutdown()
"""

ROUNDS = """
import hashlib
node = pv.init()
table = node.array(5000, name="rounds")
seen = hashlib.sha256()
dice = np.random.default_rng(node.rank)
for step in range(30):
    table.add(dice.standard_normal(5000), wait=False)
    seen.update(table.get().tobytes())
say("seen", seen.hexdigest())
node.shutdown()
"""


def start(job, script, **settings):
    workers = [job.python(rank, script, **settings) for rank in range(job.workers)]
    servers = [job.server(number, **settings) for number in range(job.servers)]
    return workers, servers


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_add_is_lost_or_made_twice(cluster, seed):
    workers, servers = start(cluster(3, 2, faults=FAULTS.format(seed)), SUMS)
    for node in workers:
        node.hear("right", 60)
    for node in [*workers, *servers]:
        node.ends()


@pytest.mark.parametrize("seed", [1, 2])
def test_sync_mode_gives_all_workers_the_same_bits(cluster, seed):
    workers, servers = start(cluster(3, 2, sync=1, faults=FAULTS.format(seed)), ROUNDS)
    assert len({node.hear("seen", 60) for node in workers}) == 1
    for node in [*workers, *servers]:
        node.ends()


def test_weather_does_not_change_the_bits(cluster):
    seen = set()
    for faults in (None, FAULTS.format(5)):
        workers, _ = start(cluster(3, 1, sync=1, faults=faults), ROUNDS)
        seen.update(node.hear("seen", 60) for node in workers)
        for node in workers:
            node.ends()
    assert len(seen) == 1


def test_an_async_worker_goes_on_when_another_dies(cluster):
    job = cluster(3, 1)
    script = """
node = pv.init()
table = node.array(1000, name="t")
node.barrier()
say("up")
wait_for_word()
attempt(lambda: table.add(np.ones(1000)))
attempt(table.get)
attempt(node.shutdown)
"""
    workers, (server,) = start(job, script)
    for node in workers:
        node.hear("up")
    workers[2].kill()
    workers[2].process.wait()
    for node in workers[:2]:
        node.tell("go on")
    for node in workers[:2]:
        assert [node.hear_attempt()[1] for _ in range(3)] == ["ok"] * 3
        node.ends()
    server.ends()


def test_a_worker_killed_in_the_middle_of_an_add_leaves_whole_stripes(cluster):
    job = cluster(2, 1)
    count = 6 << 20  # floats: 24 MiB
    observer = job.python(0, f"""
node = pv.init()
table = node.array({count}, name="t")
say("up")
wait_for_word()
values = table.peek()
edges = np.flatnonzero(np.diff(values)) + 1
say("edges", len(edges), int(np.gcd.reduce(np.append(edges, {count}))), values[0] > 0)
node.shutdown()
""")
    victim = job.python(1, f"""
node = pv.init()
table = node.array({count}, name="t")
ones = np.ones({count}, np.float32)
table.add(ones)
say("adding")
while True: table.add(ones)
""")
    server = job.server(0)
    observer.hear("up")
    victim.hear("adding")
    victim.kill()
    victim.process.wait()
    observer.tell("look")
    _, edges, stride, some = observer.hear("edges").split()
    assert some == "True"
    assert int(edges) <= 24 and int(stride) >= 64 << 10, (edges, stride)  # a stripe, or a whole number of stripes
    observer.ends()
    server.ends()


def test_many_clusters_in_a_row_leave_nothing_behind(start):
    job = """
import polyverso as pv
node = pv.init(); table = node.array(10, name="t"); table.add([1] * 10); node.barrier(); assert table.get()[0] == 4; node.shutdown()
"""
    for _ in range(5):
        running = start("run", "-n", "4", "--servers", "1", "--", "python3", "-c", job)
        assert running.finish() == (0, "", "")
        running.wait_until_gone(0.5)
