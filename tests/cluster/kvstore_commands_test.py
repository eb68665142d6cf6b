"""Commands to real servers: servers in the program's own process, killed, stopped or without a controller."""

import signal

WORKER = """
from polyverso import capi
node = pv.init()
store = capi.kv_create(0, "dist_sync")
"""

# A server in the program's own process, in Python. It polls for commands and executes them, and ends after the workers.
SERVER = """
from polyverso import capi
node = pv.init()
capi.kv_set_controller(0, True)
say("up")
while True:
    found, head, body = capi.kv_next_command(0, -1)
    if found == capi.KV_COMMAND_NEVER:
        break
    if found != capi.KV_COMMAND_HERE:
        continue
    say("executes", head, body)
    if body == "wait":
        wait_for_word()
    capi.kv_command_done(0, capi.MV_EINVAL if body == "fail" else capi.MV_OK)
say("done")
node.shutdown()
"""


def test_every_server_executes_each_command_once(cluster):
    job = cluster(2, 2)
    nodes = [
        job.python(rank, WORKER + """
for i in range(50):
    capi.kv_send_command(store, 100 * node.rank + i, "text %d" % i)
attempt(capi.kv_send_command, store, 999, "fail")
node.barrier()
node.shutdown()
""")
        for rank in range(2)
    ]
    servers = [job.python(rank, SERVER) for rank in (2, 3)]
    for node in nodes:
        _, ending = node.hear_attempt()
        assert ending.startswith("ArgumentError") and "controller" in ending, ending
        node.ends()
    for server in servers:
        server.hear("done")
        server.ends()
        executed = [line.split()[1:] for line in server.lines if line.startswith("executes")]
        for rank in range(2):
            heads = [int(head) for head, *_ in executed if int(head) // 100 == rank]
            assert heads == list(range(100 * rank, 100 * rank + 50))
        assert [head for head, *_ in executed].count("999") == 2


def test_commands_wait_for_a_server_that_has_not_set_its_controller(cluster):
    job = cluster(1, 1)
    worker = job.python(0, WORKER + """
attempt(capi.kv_send_command, store, 5, "early")
node.shutdown()
""")
    server = job.python(1, SERVER.replace("node = pv.init()\n", "node = pv.init()\nsay('joined')\nwait_for_word()\n"))
    server.hear("joined")
    server.tell("go on")
    server.hear("executes 5 early")
    assert worker.hear_attempt()[1] == "ok"
    worker.ends()
    server.ends()


def test_a_plain_server_is_named(cluster):
    job = cluster(1, 1)
    worker = job.python(0, WORKER + """
attempt(capi.kv_send_command, store, 5, "early")
node.shutdown()
""")
    server = job.server(0)
    _, ending = worker.hear_attempt()
    assert ending.startswith("StateError") and "server 0" in ending and "kv_run_server" in ending, ending
    worker.ends()
    server.ends()


def test_a_server_that_dies_while_it_executes_is_named_at_once(cluster):
    job = cluster(1, 2)
    worker = job.python(0, WORKER + """
attempt(capi.kv_send_command, store, 5, "wait")
attempt(node.shutdown)
""")
    servers = [job.python(rank, SERVER) for rank in (1, 2)]
    for server in servers:
        server.hear("executes 5 wait")
    servers[1].kill(signal.SIGKILL)
    servers[0].tell("go on")
    _, ending = worker.hear_attempt()
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    worker.hear_attempt()
    worker.ends()
    servers[0].ends()


def test_a_deadline_names_the_server_and_takes_the_command_back(cluster):
    job = cluster(1, 1)
    worker = job.python(0, WORKER + """
wait_for_word()
attempt(capi.kv_send_command, store, 5, "late", {"timeout_ms": 200})
say("asked")
wait_for_word()
attempt(capi.kv_send_command, store, 6, "again")
node.shutdown()
""")
    server = job.python(1, SERVER.replace("while True:", "wait_for_word()\nwhile True:", 1))
    server.hear("up")
    worker.tell("go on")
    _, ending = worker.hear_attempt()
    assert ending.startswith("TimeoutError") and "server 0" in ending, ending
    server.tell("go on")
    worker.tell("go on")
    assert worker.hear_attempt()[1] == "ok"
    worker.ends()
    server.hear("done")
    assert [line for line in server.lines if line.startswith("executes")] == ["executes 6 again"]
    server.ends()


def test_the_status_tells_of_commands_that_wait(cluster):
    job = cluster(2, 1)
    sender = job.python(0, WORKER + """
capi.kv_send_command(store, 5, "wait")
node.shutdown()
""")
    looks_on = job.python(1, WORKER + """
wait_for_word()
for line in node.status_text().splitlines():
    if "command" in line:
        say("told", line)
node.shutdown()
""")
    server = job.python(2, SERVER)
    server.hear("executes 5 wait")
    looks_on.tell("look")
    line = looks_on.hear("told")
    assert "in command 5 for server 0" in line and "(is executing it" in line, line
    server.tell("go on")
    for node in (sender, looks_on, server):
        node.ends()
