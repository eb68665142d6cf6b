"""Thousands of unfinished calls: what ends them all takes no process's time from its heartbeat."""

MANY = 24000

GIVEN_UP = f"""
node = pv.init()
table = node.array(2, name="merged", merge=True)
node.barrier()
if node.worker_id == 0:
    table.add_async(np.ones(2, np.float32))
    requests = [table.get_async(timeout=2) for _ in range({MANY})]
    reasons = set()
    for request in requests:
        try:
            request.wait()
        except pv.Error as error:
            reasons.add(str(error)[:60])
    say("given up", *reasons)
wait_for_word()
attempt(lambda: (table.add(np.ones(2, np.float32)) if node.worker_id else None, node.barrier()))
"""

PULLS = f"""
from polyverso import kvstore
node = pv.init()
store = kvstore.create("dist_sync")
keys, ones = list(range({MANY})), [np.ones(2, np.float32)] * {MANY}
store.init(keys, ones)
store.barrier()
if store.rank == 0:
    store.push(keys, ones)
    requests = [store.pull_async(key, out=np.zeros(2, np.float32)) for key in keys]
say("begun", store.rank)
wait_for_word()
failed = 0
for request in requests:
    try:
        request.wait()
    except pv.Error:
        failed += 1
say("ended", failed)
"""


def test_gets_that_time_out_together(cluster):
    job = cluster(2, heartbeat_timeout_ms=3000)
    nodes = [job.python(rank, GIVEN_UP) for rank in range(2)]
    reason = nodes[0].hear("given up", 60)
    assert "round 0 waits for worker 1" in reason and "gone" not in reason, reason
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        assert node.hear_attempt(30)[1] == "ok"
        node.ends()


def test_pulls_whose_server_is_lost(cluster):
    job = cluster(2, heartbeat_timeout_ms=3000)
    nodes = [job.python(rank, PULLS) for rank in range(2)]
    ranks = {int(node.hear("begun", 60).split()[1]): node for node in nodes}
    ranks[1].kill()
    ranks[0].tell("go on")
    assert ranks[0].hear("ended", 30) == f"ended {MANY}"
    ranks[0].kill()
