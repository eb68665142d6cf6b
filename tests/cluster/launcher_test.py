"""`polyverso run` as a launcher of ordinary programs."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from conftest import COMMAND
from nodes import state_of


def lines(text):
    return sorted(text.splitlines())


def last_line(text):
    return text.splitlines()[-1]


# ---- the environment of the processes


def test_each_process_learns_its_place(run):
    status, out, _ = run("-n", "3", "--", "sh", "-c", "echo $POLYVERSO_RANK/$POLYVERSO_NODES $POLYVERSO_ROLE")
    assert status == 0
    assert lines(out) == ["[w0] 0/3 all", "[w1] 1/3 all", "[w2] 2/3 all"]


def test_all_share_one_master_and_one_fresh_secret(run):
    script = "echo $POLYVERSO_MASTER $POLYVERSO_SECRET"
    seen = []
    for _ in range(2):
        _, out, _ = run("-n", "2", "--", "sh", "-c", script)
        told = {line.split(" ", 1)[1] for line in out.splitlines()}
        assert len(told) == 1
        seen.append(told.pop())
        assert re.fullmatch(r"127\.0\.0\.1:\d+ [0-9a-f]{64}", seen[-1])
    assert seen[0].split()[1] != seen[1].split()[1]


def test_rank_0_inherits_the_masters_socket_which_listens_already(run):
    script = (
        "import os, socket\n"
        "listener = socket.socket(fileno=int(os.environ['POLYVERSO_LISTEN_FD']))\n"
        "print('%s:%d' % listener.getsockname())\n"
        "host, port = os.environ['POLYVERSO_MASTER'].split(':')\n"
        "socket.create_connection((host, int(port)), 5).close()\n"
        "print(os.environ['POLYVERSO_MASTER'])\n"
    )
    status, out, err = run("-n", "1", "--", "python3", "-c", script)
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first == second
    status, out, _ = run("-n", "2", "--", "sh", "-c", "echo ${POLYVERSO_LISTEN_FD:-none}")
    assert lines(out) == ["[w0] 3", "[w1] none"]


@pytest.mark.parametrize("other", ["os.open('/dev/null', os.O_RDONLY)", "socket.create_server(('127.0.0.1', 0)).detach()"])
def test_a_second_init_leaves_the_file_alone_that_has_the_number_of_the_masters_socket(run, other):
    script = (
        "import os, socket, polyverso\n"
        "polyverso.init().shutdown()\n"
        f"mine = [{other} for _ in range(3)]\n"
        "before = [os.fstat(fd) for fd in mine]\n"
        "with polyverso.init() as node:\n"
        "    node.barrier()\n"
        "    assert os.environ['POLYVERSO_RANK'] != '0' or 3 in mine, mine\n"
        "assert [os.fstat(fd) for fd in mine] == before\n"
    )
    status, _, err = run("-n", "2", "--", "python3", "-c", script)
    assert status == 0, err


def test_the_processes_share_a_session_but_no_process_group(run):
    """A session is a group of the scheduler: only within it can processes on one processor yield to each other."""
    script = "import os; print('places', os.getsid(0), os.getpgid(0) == os.getpid())"
    status, out, err = run("-n", "3", "--", "python3", "-c", script)
    places = {line.split("places ")[1] for line in lines(out)}
    assert status == 0 and len(places) == 1 and places.pop().endswith("True"), (out, err)


def test_no_other_descriptor_is_inherited(run):
    script = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])"
    status, out, _ = run("-n", "2", "--", "python3", "-c", script)
    assert status == 0
    assert lines(out) == ["[w0] [0, 1, 2, 3]", "[w1] [0, 1, 2]"]


def test_a_place_in_another_run_is_not_passed_on(run):
    env = {"POLYVERSO_LISTEN_FD": "7", "POLYVERSO_SECRET": "old", "POLYVERSO_ROLE": "server", "POLYVERSO_TIMEOUT_MS": "9"}
    script = "echo ${POLYVERSO_LISTEN_FD:-none} $POLYVERSO_ROLE $POLYVERSO_TIMEOUT_MS; test $POLYVERSO_SECRET != old"
    status, out, _ = run("-n", "2", "--", "sh", "-c", script, env=env)
    assert status == 0
    assert lines(out) == ["[w0] 3 all 9", "[w1] none all 9"]


def test_settings_reach_all_processes(run):
    script = "echo $POLYVERSO_SYNC $POLYVERSO_TIMEOUT_MS $POLYVERSO_LOG_LEVEL"
    arguments = ["-n", "2", "--sync", "--set", "timeout_ms=500", "--set", "log_level=debug"]
    _, out, _ = run(*arguments, "--", "sh", "-c", script)
    assert lines(out) == ["[w0] 1 500 debug", "[w1] 1 500 debug"]


@pytest.mark.parametrize("script, warnings", [("sync=False", 1), ("sync=True", 0), ("", 0), ("sync=False, nodes=1", 0)])
def test_a_script_that_overrides_the_launchers_sync_warns_once(run, script, warnings):
    status, _, err = run("-n", "2", "--sync", "--", "python3", "-c", f"import polyverso; polyverso.init({script}).shutdown()")
    assert status == 0
    assert err.count("sets sync=0, which overrides POLYVERSO_SYNC=1 in the environment, as of `polyverso run --sync`: the mode is async") == warnings
    assert len(err.splitlines()) == warnings, err


def test_each_worker_may_have_its_own_command(run):
    status, out, _ = run("--", "echo", "A", "--", "x", "---", "echo", "B", "---", "sh", "-c", "echo C")
    assert status == 0
    assert lines(out) == ["[w0] A -- x", "[w1] B", "[w2] C"]


# ---- the command line


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["-n", "3", "--", "true", "---", "true"], "-n 3, but 2 commands"),
        (["-n", "3", "--"], "no command given"),
        (["-n", "3", "--", "true", "---"], "no command given"),
        (["-n", "3", "python3"], "the workers' command follows after --"),
        (["-n", "2", "--servers", "-1", "--", "true"], '--servers: "-1" is not a whole number'),
        (["-n", "-2", "--", "true"], "not a whole number in 1 .. 4096"),
        (["-n", "2", "--", "no-such-program"], 'can\'t run "no-such-program": no such program'),
        (["-n", "2", "--", "/no/such/program"], 'can\'t run "/no/such/program": no such program'),
        (["-n", "2", "--", "/etc/passwd"], 'can\'t run "/etc/passwd": it is not executable: use chmod +x /etc/passwd'),
        (["-n", "2", "--", "/etc"], 'can\'t run "/etc": it is a directory'),
        (["--set", "timeout=5", "--", "true"], "there is no setting timeout"),
        (["--set", "timeout_ms", "--", "true"], "expected key=value"),
        (["--set", "rank=1", "--", "true"], "itself sets rank"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_starts_nothing(run, arguments, sentence):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1 and sentence in err


def test_help_shows_examples():
    for words in (["--help"], ["run", "--help"], ["server", "--help"]):
        result = subprocess.run([COMMAND, *words], capture_output=True, text=True)
        assert result.returncode == 0 and "examples:" in result.stdout
    assert re.fullmatch(r"polyverso \d+\.\d+\.\d+\n", subprocess.check_output([COMMAND, "--version"], text=True))


# ---- input and output


def test_lines_stay_whole_however_they_are_written(run):
    script = (
        "import os, sys\n"
        "rank = os.environ['POLYVERSO_RANK']\n"
        "text = ''.join('%s:%d:%s\\n' % (rank, i, rank * (i % 97)) for i in range(3000)).encode()\n"
        "for i in range(0, len(text), 1001): os.write(1, text[i:i + 1001])\n"
    )
    status, out, _ = run("-n", "3", "--", "python3", "-c", script)
    assert status == 0
    for rank in "012":
        mine = [line for line in out.splitlines() if line.startswith(f"[w{rank}] ")]
        assert mine == [f"[w{rank}] {rank}:{i}:{rank * (i % 97)}" for i in range(3000)]


def test_the_rest_of_a_line_is_not_lost(run):
    assert run("-n", "1", "--", "printf", "no newline")[1] == "[w0] no newline\n"


def test_an_endless_line_is_cut_and_not_hoarded(run):
    _, out, _ = run("-n", "1", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x")
    assert "".join(line.removeprefix("[w0] ") for line in out.splitlines()) == "x" * 200000
    assert len(out.splitlines()) == 4


def test_carriage_returns_pass(run):
    _, out, _ = run("-n", "1", "--", "printf", r"10%%\r\r20%%\r\nend\r\n")
    # (text=True has turned \r and \r\n into \n, so compare the pieces)
    assert out.split("\n") == ["[w0] 10%", "[w0] 20%", "[w0] end", ""]


def test_standard_error_stays_standard_error(run):
    _, out, err = run("-n", "1", "--", "sh", "-c", "echo out; echo err >&2")
    assert (out, err) == ("[w0] out\n", "[w0] err\n")


def test_output_is_a_pipe_that_can_be_reopened(run):
    assert run("-n", "1", "--", "sh", "-c", "echo again >/dev/stdout")[1] == "[w0] again\n"


def test_input_goes_to_worker_0_only(start):
    job = start("run", "-n", "2", "--", "cat", stdin=subprocess.PIPE)
    job.process.stdin.write("hello\n")
    job.process.stdin.close()
    job.process.stdin = None
    assert job.finish()[:2] == (0, "[w0] hello\n")


def test_the_run_ends_when_nobody_reads_its_output(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "while echo y; do sleep 0.01; done")
    job.read_until("y")
    job.process.stdout.close()
    assert job.process.wait(5) == -signal.SIGPIPE
    job.process.stderr.close()
    job.wait_until_gone()


def test_a_run_whose_output_cannot_be_written_goes_on_and_says_so(start, tmp_path):
    with open("/dev/full", "w") as full:
        job = start("run", "-n", "2", "--", "sh", "-c", f"echo lost; sleep 0.2; echo lost; echo done > {tmp_path}/$POLYVERSO_RANK", stdout=full)
        status, _, err = job.finish()
    assert status == 1 and sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert err == "polyverso run: can't write to standard output: No space left on device; the run continues, but its output is incomplete\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_are_no_place_for_others(closed):
    """libuv ends a process that closes one of its own with such a number."""
    program = "import polyverso, os; n = polyverso.init(); os.write(2, b'text'); n.array(3).add([1, 2, 3]); n.shutdown()"
    commands = (f'"{sys.executable}" -c "{program}" {closed}', f"{COMMAND} run -n 2 -- true {closed}", f"{COMMAND} status 1 {closed}")
    for command, status in zip(commands, (0, 0, 2)):
        assert subprocess.run(["sh", "-c", command], timeout=60).returncode == status, command


class Terminal:
    """A run on a terminal of its own."""

    def __init__(self, start, *arguments, env=None):
        self.master, slave = pty.openpty()
        self.job = start("run", *arguments, stdin=slave, stdout=slave, stderr=slave, env=dict({"TERM": "xterm", "NO_COLOR": None}, **(env or {})))
        os.close(slave)

    def output(self):
        text = b""
        while True:
            try:
                piece = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            text += piece
        os.close(self.master)
        self.job.process.wait(10)
        return text.decode().replace("\r\n", "\n")


def test_labels_are_coloured_on_a_terminal(start):
    out = Terminal(start, "-n", "2", "--", "echo", "x").output()
    assert lines(out) == ["\x1b[33m[w1]\x1b[0m x", "\x1b[36m[w0]\x1b[0m x"]


@pytest.mark.parametrize("arguments, env", [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})])
def test_colours_can_be_turned_off(start, arguments, env):
    assert Terminal(start, *arguments, "-n", "1", "--", "echo", "x", env=env).output() == "[w0] x\n"


def test_progress_lines_are_overwritten_on_a_terminal(start):
    out = Terminal(start, "--no-color", "-n", "1", "--", "sh", "-c", r"printf '\r10%%'; sleep 0.1; printf '\r20%%'; sleep 0.1; printf '\rdone\n'").output()
    shown = out.replace("\x1b[K", "").split("\r")
    assert shown[0] == "[w0] 10%" and shown[-1] == "[w0] done\n"
    assert out.endswith("\x1b[K[w0] done\n")  # the progress line is erased first


def test_a_terminals_input_is_left_alone(start):
    assert Terminal(start, "--no-color", "-n", "1", "--", "sh", "-c", "cat; echo end").output() == "[w0] end\n"


# ---- the end of a run


def test_the_first_failure_ends_the_others_and_is_named(start):
    job = start("run", "-n", "3", "--", "sh", "-c", "test $POLYVERSO_RANK = 1 && exit 3; sleep 100")
    begun = time.monotonic()
    status, _, err = job.finish()
    assert status == 3
    assert time.monotonic() - begun < 5
    assert re.fullmatch(r"polyverso run: worker 1 \(pid \d+, rank 1\) exited with 3", last_line(err))


def test_the_others_may_report_and_end_by_themselves_after_a_failure(start):
    job = start("run", "-n", "3", "--", "sh", "-c", "test $POLYVERSO_RANK = 1 && exit 3; sleep 0.5; echo misses 1; exit 4")
    begun = time.monotonic()
    status, out, err = job.finish()
    assert status == 3 and "exited with 3" in last_line(err)
    assert lines(out) == ["[w0] misses 1", "[w2] misses 1"]
    assert time.monotonic() - begun < 2


def test_the_cause_is_named_even_if_its_victims_end_before_it(start, tmp_path):
    script = f"""case $POLYVERSO_RANK in
      0) echo "MV_EPEERLOST: worker 1: a wrong rate" >&2; exit 1;;
      1) while ! test -e {tmp_path}/over; do sleep 0.02; done; exit 3;;
      2) echo "MV_EPEERLOST: worker 1: a wrong rate" >&2; touch {tmp_path}/over; exit 1;;
    esac"""
    status, _, err = start("run", "-n", "3", "--", "sh", "-c", script).finish()
    assert status == 3
    assert re.fullmatch(r"polyverso run: worker 1 \(pid \d+, rank 1\) exited with 3", last_line(err))


def test_failures_of_unknown_cause_are_listed_in_their_order(start, tmp_path):
    script = f"""cd {tmp_path}; case $POLYVERSO_RANK in
      0) while ! test -s pid || kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done; exit 4;;
      1) echo $$ > part; mv part pid; exit 6;;
    esac"""
    status, _, err = start("run", "-n", "2", "--", "sh", "-c", script).finish()
    assert status == 6
    assert re.fullmatch(r"polyverso run: worker 1 \(pid \d+, rank 1\) exited with 6; then worker 0 exited with 4", last_line(err))


def test_with_keep_going_the_others_go_on_to_their_ends(start):
    script = "test $POLYVERSO_RANK = 1 && exit 3; test $POLYVERSO_RANK = 2 && kill -9 $$; sleep 3; echo through"
    status, out, err = start("run", "-n", "4", "--servers", "1", "--keep-going", "--", "sh", "-c", script).finish()
    assert status in (3, 128 + signal.SIGKILL)  # both happen at the same time
    assert lines(out) == ["[w0] through", "[w3] through"]
    assert re.search(r"worker 1 .* exited with 3", err) and re.search(r"worker 2 .* was killed by SIGKILL", err)


def test_with_replicas_the_last_line_and_the_status_are_a_workers(start, tmp_path):
    """The server's end does not count, although it came first."""
    script = tmp_path / "server.sh"
    script.write_text("kill -9 $$\n")
    server = ["--server-command", f"sh {script}"]
    status, _, err = start("run", "-n", "2", "--servers", "2", "--replicas", "1", *server, "--", "sh", "-c", "sleep 1; exit $((3 + POLYVERSO_RANK))").finish()
    named = re.search(r"worker (\d) .*? exited with (\d)", last_line(err))
    assert named and status == int(named[2])


SHRINKS = """
import os, signal
import numpy as np, polyverso
from polyverso.group import Group
from polyverso.errors import PeerError

node = polyverso.init()
group = Group(node)
value = np.ones(3)
group.allreduce(value)
if group.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    group.barrier()
except PeerError as lost:
    print("told", "worker 1" in str(lost), flush=True)
    group = group.shrink()
value[:] = 1
print(group.allreduce(value)[2], flush=True)
node.shutdown()
"""


def test_survivors_shrink_their_group_and_go_on(start):
    status, out, _ = start("run", "-n", "3", "--keep-going", "--", "python3", "-c", SHRINKS).finish()
    assert status == 128 + signal.SIGKILL
    assert lines(out) == ["[w0] 2.0", "[w0] told True", "[w2] 2.0", "[w2] told True"]


def test_a_killed_process_is_named_with_its_signal(start):
    job = start("run", "-n", "3", "--", "sh", "-c", "echo up; exec sleep 100")
    for _ in range(3):
        job.read_until("up")
    pid = job.pid_of(2)
    os.kill(pid, signal.SIGKILL)
    status, _, err = job.finish()
    assert status == 128 + signal.SIGKILL
    assert last_line(err) == f"polyverso run: worker 2 (pid {pid}, rank 2) was killed by SIGKILL"


def test_the_killed_one_is_to_blame_not_those_that_fail_because_of_it(start, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    # Worker 0 ends with status 1 as soon as worker 1, which holds the pipe's other end, has died.
    script = f"if test $POLYVERSO_RANK = 0; then read x <{tmp_path}/pipe; exit 1; else exec 9>{tmp_path}/pipe; kill -9 $$; fi"
    status, _, err = start("run", "-n", "2", "--", "sh", "-c", script).finish()
    assert status == 128 + signal.SIGKILL
    assert "worker 1" in last_line(err)


def test_a_worker_that_ends_well_ends_nobody(run):
    status, out, err = run("-n", "2", "--", "sh", "-c", "test $POLYVERSO_RANK = 0 || { sleep 0.5; echo late; }")
    assert (status, out, err) == (0, "[w1] late\n", "")


def test_who_ignores_sigterm_is_killed_after_five_seconds(start):
    begun = time.monotonic()
    job = start("run", "-n", "2", "--", "sh", "-c", "test $POLYVERSO_RANK = 1 && sleep 0.3 && exit 7; trap '' TERM; while :; do sleep 1; done")
    assert job.finish()[0] == 7
    assert 4 < time.monotonic() - begun < 9


def test_a_stopped_process_is_ended_too(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "test $POLYVERSO_RANK = 1 && sleep 0.3 && exit 7; kill -STOP $$")
    begun = time.monotonic()
    assert job.finish()[0] == 7
    assert time.monotonic() - begun < 5


def test_what_a_process_leaves_behind_is_swept_away(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "sleep 1000 & echo up")
    assert job.finish()[0] == 0
    job.wait_until_gone(0.5)


# ---- signals


def test_an_interrupt_reaches_every_worker_and_ends_the_launcher_the_same_way(start):
    job = start("run", "-n", "3", "--", "sh", "-c", "trap 'echo bye; exit 9' INT; echo up; while :; do sleep 0.05; done")
    for _ in range(3):
        job.read_until("up")
    job.process.send_signal(signal.SIGINT)
    status, out, err = job.finish()
    assert status == -signal.SIGINT
    assert lines(out) == ["[w0] bye", "[w1] bye", "[w2] bye"]
    assert last_line(err) == "polyverso run: interrupted by SIGINT"


def test_workers_that_end_well_on_a_signal_make_a_good_end(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
    for _ in range(2):
        job.read_until("up")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 0


def test_a_second_interrupt_kills(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "trap '' INT TERM; echo up; while :; do sleep 0.05; done")
    for _ in range(2):
        job.read_until("up")
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    assert job.finish(2)[0] == -signal.SIGINT


def test_user_signals_are_passed_on(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done")
    for _ in range(2):
        job.read_until("up")
    job.process.send_signal(signal.SIGUSR1)
    status, out, _ = job.finish()
    assert (status, lines(out)) == (0, ["[w0] usr1", "[w1] usr1"])


def test_a_suspended_run_stands_still_and_goes_on(start):
    job = start("run", "-n", "2", "--", "sh", "-c", "echo up; read x </dev/zero; :")
    for _ in range(2):
        job.read_until("up")
    workers = [job.pid_of(0), job.pid_of(1)]
    job.process.send_signal(signal.SIGTSTP)
    deadline = time.monotonic() + 2
    while [state_of(pid) for pid in [job.process.pid, *workers]] != ["T"] * 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.process.send_signal(signal.SIGCONT)
    while any(state_of(pid) == "T" for pid in [job.process.pid, *workers]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.process.send_signal(signal.SIGTERM)
    job.finish()


def test_nohup_is_respected(start):
    job = start("run", "-n", "1", "--", "sh", "-c", "echo up; sleep 0.5; echo done",
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    job.read_until("up")
    job.process.send_signal(signal.SIGHUP)
    assert job.finish()[:2] == (0, "[w0] done\n")


@pytest.mark.parametrize("shell", ["exec sleep 1000", "sleep 1000 & wait", "trap '' INT TERM HUP; while :; do sleep 1; done"])
def test_nothing_survives_a_killed_launcher(start, shell):
    job = start("run", "-n", "3", "--", "sh", "-c", "echo up; " + shell)
    for _ in range(3):
        job.read_until("up")
    deadline = time.monotonic() + 2
    while len(job.processes()) < 5:  # launcher, guard and workers; a process in the middle of exec is not found
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    job.wait_until_gone(1.0)
    job.finish()


def test_the_port_is_free_again_once_the_run_is_over(run):
    _, out, _ = run("-n", "1", "--", "sh", "-c", "echo $POLYVERSO_MASTER")
    port = int(out.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
