"""`polyverso run` with a keeper, and master with keeper: processes that know the name only find the cluster."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import COMMAND, Run
from etcd import Etcd, is_installed
from named import JOIN
from nodes import PRELUDE, Cluster
from ports import free_ports

# Works until a file is there.
WORK = PRELUDE + """
import pathlib
node = pv.init()
table = node.array(2, name="sums")
table.add(np.ones(2, np.float32))
node.barrier()
say("sum", *table.get().astype(int), "of", node.num_workers)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
    table.get()
node.shutdown()
"""
ETCD = pytest.param("etcd", marks=pytest.mark.skipif(not is_installed(), reason="etcd is missing: apt install etcd-server"))


@pytest.fixture(params=["file", ETCD])
def keeper(request, tmp_path):
    """The setting of a cluster "job"."""
    if request.param == "file":
        yield f"file://{tmp_path}/job"
        return
    server = Etcd().start()
    yield server.keeper("job")
    server.end()


def outside(keeper, **settings):
    """The environment of a process that knows the name only: no run of this user is to be found there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_") and key != "XDG_RUNTIME_DIR"}
    told = dict(keeper=keeper, init_timeout_ms=60000, **settings)
    return {**environment, **{f"POLYVERSO_{key.upper()}": str(value) for key, value in told.items()}}


def ask(keeper, *arguments, **settings):
    """(status, standard output, standard error) of a `polyverso status` there."""
    done = subprocess.run([COMMAND, "status", *arguments], env=outside(keeper, **settings), text=True, capture_output=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def working(start, keeper, end, *arguments, workers=2, **more):
    """A run whose workers work until `end` exists."""
    job = start("run", "-n", str(workers), *arguments, "--set", f"keeper={keeper}", "--", sys.executable, "-c", WORK, str(end), **more)
    for _ in range(workers):
        job.read_until(f"sum {workers} {workers} of {workers}")
    return job


def test_a_run_is_found_by_its_name(start, keeper, tmp_path):
    job = working(start, keeper, tmp_path / "end")
    status, out, err = ask(keeper)
    assert status == 0, err
    assert 'cluster "job": this process is rank 0, kept by' in out and out.startswith("2 workers, 2 servers"), out
    own = subprocess.run([COMMAND, "status", str(job.process.pid)], text=True, capture_output=True, timeout=30)
    assert own.returncode == 0 and 'cluster "job"' in own.stdout, own.stderr
    (tmp_path / "end").touch()
    assert job.finish()[0] == 0
    status, _, err = ask(keeper)
    assert status != 0 and 'no cluster "job" runs' in err, err
    again = working(start, keeper, tmp_path / "end")  # the name is free at once
    assert again.finish()[0] == 0


def test_a_second_run_of_the_name_is_refused_and_the_first_goes_on(start, run, keeper, tmp_path):
    first = working(start, keeper, tmp_path / "end", "--set", "heartbeat_timeout_ms=1000")
    settings = ["--set", f"keeper={keeper}", "--set", "heartbeat_timeout_ms=1000"]
    begun = time.monotonic()
    status, out, err = run("-n", "2", *settings, "--", sys.executable, "-c", WORK, str(tmp_path / "end"))
    assert status != 0 and out == "", out
    assert 'the cluster "job" has a rank 0 already: pid' in err and "Start this one under another name\n" in err, err
    assert time.monotonic() - begun < 40
    assert ask(keeper)[0] == 0
    (tmp_path / "end").touch()
    assert first.finish()[0] == 0


def test_a_lost_server_is_replaced_by_a_process_that_knows_the_name(start, keeper, tmp_path):
    job = working(start, keeper, tmp_path / "end", "-s", "2", "--replicas", "1", "--set", "heartbeat_timeout_ms=2000")
    late = subprocess.run([COMMAND, "server"], env=outside(keeper, nodes=4), text=True, capture_output=True, timeout=30)
    assert late.returncode != 0 and "already complete" in late.stderr, late.stderr
    os.kill(job.pid_of(3), signal.SIGKILL)
    again = Run("server", env=outside(keeper, nodes=4, replicas=1, log_level="info"))
    try:
        told = again.process.stderr.readline()
        while "serving as server 1 of 2" not in told:
            assert told, "it has ended"
            told = again.process.stderr.readline()
        (tmp_path / "end").touch()
        assert job.finish()[0] == 0
        assert again.finish()[0] == 0
    finally:
        again.end()


def test_the_name_of_a_killed_run_is_free_again(start, keeper, tmp_path):
    job = working(start, keeper, tmp_path / "end", "--set", "heartbeat_timeout_ms=1000")
    job.process.kill()  # the guard ends the workers
    job.process.communicate()
    job.wait_until_gone()
    (tmp_path / "end").touch()
    begun = time.monotonic()
    assert working(start, keeper, tmp_path / "end").finish()[0] == 0
    assert time.monotonic() - begun < 40


def test_a_run_of_one_process_is_found(start, keeper, tmp_path):
    job = working(start, keeper, tmp_path / "end", workers=1)
    status, out, err = ask(keeper)
    assert status == 0 and out.startswith("1 worker, 1 server"), out + err
    (tmp_path / "end").touch()
    assert job.finish()[0] == 0


def test_the_secret_is_the_environments(start, tmp_path):
    keeper = f"file://{tmp_path}/job"
    job = working(start, keeper, tmp_path / "end", env={"POLYVERSO_SECRET": "a secret of the user"})
    assert ask(keeper, secret="a secret of the user")[0] == 0
    status, _, err = ask(keeper)
    assert status != 0 and "secret" in err, err
    (tmp_path / "end").touch()
    assert job.finish()[0] == 0


def test_a_keeper_in_the_environment_counts_and_a_setting_overrides_it(start, tmp_path):
    keeper = f"file://{tmp_path}/job"
    script = [sys.executable, "-c", WORK, str(tmp_path / "end")]
    job = start("run", "-n", "2", "--", *script, env={"POLYVERSO_KEEPER": keeper})
    job.read_until("sum 2 2 of 2")
    assert ask(keeper)[0] == 0
    other = working(start, f"file://{tmp_path}/other", tmp_path / "end", env={"POLYVERSO_KEEPER": keeper})
    assert ask(f"file://{tmp_path}/other")[0] == 0
    (tmp_path / "end").touch()
    assert [job.finish()[0], other.finish()[0]] == [0, 0]


def test_clusters_of_their_own_inside_of_a_run_leave_the_name_alone(start, tmp_path):
    keeper = f"file://{tmp_path}/job"
    script = PRELUDE + "node = pv.init(nodes=1)\nsay('alone', node.num_workers)\nwait_for_word()\nnode.shutdown()\n"
    job = start("run", "-n", "1", "--set", f"keeper={keeper}", "--", sys.executable, "-c", script, stdin=subprocess.PIPE)
    job.read_until("alone 1")
    status, _, err = ask(keeper)
    assert status != 0 and 'no cluster "job" runs' in err, err
    assert job.finish()[0] == 0


def test_a_run_inside_of_a_run_leaves_the_name_alone(run, tmp_path):
    inner = [COMMAND, "run", "-n", "2", "--", sys.executable, "-c", WORK, str(tmp_path / "end")]
    (tmp_path / "end").touch()
    script = f"import subprocess, polyverso\nwith polyverso.init() as node:\n    subprocess.run({inner!r}, check=True)\n    node.barrier()"
    status, out, err = run("-n", "2", "--set", f"keeper=file://{tmp_path}/job", "--", sys.executable, "-c", script)
    assert status == 0 and out.count("sum 2 2 of 2") == 4, err


def test_a_keeper_that_does_not_answer_ends_the_run(run):
    port = free_ports()
    status, out, err = run("-n", "2", "--set", f"keeper=etcd://127.0.0.1:{port}/job", "--set", "init_timeout_ms=1500", "--",
                           sys.executable, "-c", WORK, "nothing")
    assert status != 0 and out == "", out
    assert f"etcd at 127.0.0.1:{port} does not answer" in err and "is it running?" in err, err


def test_addresses_beyond_loopback_need_a_secret(run, tmp_path):
    status, _, err = run("-n", "2", "--set", f"keeper=file://{tmp_path}/job", "--set", "bind=0.0.0.0", "--", sys.executable, "-c", WORK, "nothing")
    assert status != 0 and "bind=0.0.0.0 reaches beyond this machine's loopback and needs a secret" in err, err


def test_processes_that_meet_at_a_master_have_a_name_too(tmp_path):
    """With and without ranks, and without a launcher."""
    keeper = f"file://{tmp_path}/job"
    for ranks in ((0, 1), (None, None)):
        job = Cluster(2, keeper=keeper, secret=None, master=f"127.0.0.1:{free_ports()}")
        job.listener.close()
        job.listener = None
        (tmp_path / "end").unlink(missing_ok=True)
        try:
            nodes = [job.start(number, [sys.executable, "-c", WORK, str(tmp_path / "end")], rank=rank) for number, rank in enumerate(ranks)]
            for node in nodes:
                node.hear("sum 2 2 of 2")
            status, out, err = ask(keeper, "--json")
            assert status == 0 and json.loads(out)["members"][0]["address"] == job.settings["master"], out + err
            # The same name with another master is refused.
            other = job.start(0, [sys.executable, "-c", PRELUDE + JOIN], rank=0, master=f"127.0.0.1:{free_ports()}", heartbeat_timeout_ms=1000)
            assert "has a rank 0 already" in other.hear_attempt()[1]
            (tmp_path / "end").touch()
            for node in nodes:
                node.ends()
        finally:
            job.end()


@pytest.mark.skipif(not is_installed(), reason="etcd is missing: apt install etcd-server")
@pytest.mark.parametrize("bind", ["10.77.0.2", "0.0.0.0"])
def test_a_run_on_one_host_is_found_from_another(network, start, tmp_path, bind):
    hosts = network(2)
    server = Etcd(host=hosts[1]).start()
    keeper, secret = server.keeper("job"), "a secret of the user"
    assert hosts[0].address == "10.77.0.2"
    arguments = ["-s", "2", "--replicas", "1", "--set", f"bind={bind}", "--set", "heartbeat_timeout_ms=2000"]
    there = [*hosts[1].inside, COMMAND]
    again = None
    try:
        with hosts[0].enter():
            job = working(start, keeper, tmp_path / "end", *arguments, env={"POLYVERSO_SECRET": secret})
        told = subprocess.run([*there, "status", "--json"], env=outside(keeper, secret=secret), text=True, capture_output=True, timeout=30)
        assert told.returncode == 0, told.stderr
        assert all(member["address"].startswith("10.77.0.2:") for member in json.loads(told.stdout)["members"]), told.stdout
        os.kill(job.pid_of(3), signal.SIGKILL)
        again = subprocess.Popen([*there, "server"], env=outside(keeper, secret=secret, nodes=4, replicas=1, bind=hosts[1].address, log_level="info"),
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = []
        while "serving as server 1 of 2" not in "".join(lines[-1:]):
            lines.append(again.stderr.readline())
            assert lines[-1], lines
        (tmp_path / "end").touch()
        assert job.finish()[0] == 0
        assert again.wait(30) == 0
    finally:
        if again is not None:
            again.kill()
            again.communicate()
        server.end()
