"""polyverso doctor: faked launchers, blocked ports, wrong secrets, strangers at the port, and real peers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from conftest import COMMAND
from launchers_test import environment
from ports import free_ports

FIELDS = {
    "schema": int, "version": str, "well": bool, "host": str, "pid": int, "running": bool, "rank": int, "nodes": int, "role": str, "address": str,
    "launcher": (str, type(None)), "launchers_seen": list, "settings": list, "findings": list, "peers": list,
}
SETTING = {"name": str, "value": str, "source": str, "from": str, "unused": list}
FINDING = {"area": str, "subject": str, "verdict": str, "text": str, "todo": str}
PEER = {
    "rank": int, "role": str, "host": str, "pid": int, "address": str, "state": str, "needed": bool, "transport": str, "why_not_shm": str, "cipher": str,
    "round_trip_us": (float, int, type(None)),
}


def call(*arguments, languages=False, **variables):
    """Returns (status, standard output, standard error). Without languages, finds no interpreter: that is faster."""
    program = [shutil.which(COMMAND), "doctor", *arguments]
    nowhere = {} if languages else {"PATH": "/nowhere"}
    done = subprocess.run(program, env=environment(**variables) | nowhere, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def has_form(value, form):
    assert list(value) == list(form)
    for key, kind in form.items():
        assert isinstance(value[key], kind), (key, value[key])


def check_form(report):
    """Checks that the JSON has the form of docs/operations.md."""
    has_form(report, FIELDS)
    assert report["schema"] == 1
    for setting in report["settings"]:
        has_form(setting, SETTING)
        assert setting["source"] in ("default", "launcher", "environment", "explicit")
        assert (setting["source"] == "default") == (setting["from"] == "")
    for finding in report["findings"]:
        has_form(finding, FINDING)
        assert finding["verdict"] in ("ok", "note", "problem")
        assert (finding["verdict"] == "ok") == (finding["todo"] == ""), finding
    for peer in report["peers"]:
        has_form(peer, PEER)
        assert peer["transport"] in ("none", "inproc", "shm", "tcp", "ucx", "mpi") and peer["state"] in ("here", "finished", "lost")
    assert report["well"] == all(finding["verdict"] != "problem" for finding in report["findings"])


def examine(*arguments, languages=False, **variables):
    status, out, err = call("--json", *arguments, languages=languages, **variables)
    assert out, err
    report = json.loads(out)
    check_form(report)
    assert status == (0 if report["well"] else 1)
    return report


def findings(report, area, subject=None):
    return [f for f in report["findings"] if f["area"] == area and subject in (None, f["subject"])]


def finding(report, area, subject):
    found = findings(report, area, subject)
    assert len(found) == 1, report["findings"]
    return found[0]


def setting(report, name):
    return next(s for s in report["settings"] if s["name"] == name)


# ---- a single process


def test_nothing_in_the_environment_is_a_cluster_of_one():
    report = examine()
    assert not report["running"] and report["nodes"] == 1 and report["peers"] == [] and report["launcher"] is None
    assert "cluster of one" in finding(report, "settings", "place")["text"]
    assert all(s["source"] == "default" for s in report["settings"] if s["name"] != "init_timeout_ms")
    assert {f["area"] for f in report["findings"]} >= {"settings", "processors", "memory", "network", "devices", "build"}
    assert report["version"] in finding(report, "build", "library")["text"]


def test_what_can_be_tried_is_tried():
    report = examine()
    assert "127.0.0.1 works" in finding(report, "network", "loopback")["text"]
    assert "same memory" in finding(report, "memory", "passing descriptors")["text"]
    assert "memfd" in finding(report, "memory", "shared memory")["text"]
    assert socket.gethostname() in finding(report, "network", "host name")["text"]
    assert "lo 127.0.0.1" in finding(report, "network", "interfaces")["text"]
    assert str(os.cpu_count()) in finding(report, "processors", "processors")["text"]


def test_the_modules_of_this_build_are_found():
    found = {f["subject"]: f for f in findings(examine(languages=True), "languages")}
    assert found["python3"]["verdict"] == "ok" and found["perl"]["verdict"] == "ok", found
    assert any(found[lua]["verdict"] == "ok" for lua in ("luajit", "lua5.1", "lua5.4") if lua in found)


LIBRARIES = ["matrix products", "all-reduces"]


def test_devices_and_what_they_lack_are_told():
    found, *_ = findings(examine(), "devices")
    assert found["verdict"] == "ok" and "make cuda" in found["text"] or "driver" in found["text"] or found["subject"] == "cuda:0"
    emulation = os.environ["DEVICE_EMULATION"]
    here = findings(examine(POLYVERSO_DEVICE_PLUGIN=emulation, POLYVERSO_EMULATION="memory=1073741824"), "devices")
    assert [f["subject"] for f in here] == ["cuda:0", "cuda:1", *LIBRARIES] and {f["verdict"] for f in here} == {"ok"}
    assert here[3]["text"] == "between devices, by emulated NCCL 1.0"
    lacking = findings(examine(POLYVERSO_DEVICE_PLUGIN=emulation, POLYVERSO_EMULATION="blas=0,comm=0"), "devices")
    assert [f["verdict"] for f in lacking] == ["ok", "ok", "note", "note"]
    for found, library in zip(lacking[2:], ("cuBLAS", "NCCL 2.14")):
        assert "is missing" in found["text"] and f"install {library}" in found["todo"]
    assert "emulated device 0" in here[0]["text"] and "1.0 GiB of 1.0 GiB free" in here[0]["text"] and "reaches cuda:1 directly" in here[0]["text"]
    for variables, text, todo in (
        ({"POLYVERSO_DEVICE_PLUGIN": "/nowhere.so"}, "make cuda", "correct or unset POLYVERSO_DEVICE_PLUGIN"),
        ({"POLYVERSO_DEVICE_PLUGIN": emulation, "POLYVERSO_EMULATION": "driver=0"}, "there is no driver: install it", "the plug-in is found"),
        ({"POLYVERSO_DEVICE_PLUGIN": emulation, "POLYVERSO_EMULATION": "devices=0"}, "finds no device", "the plug-in is found"),
    ):
        missing, = findings(examine(**variables), "devices")
        assert missing["verdict"] == "problem" and text in missing["text"] and todo in missing["todo"]
        assert "POLYVERSO_DEVICE_PLUGIN" in missing["todo"]


def test_a_module_that_is_not_found_is_told_of():
    found = {f["subject"]: f for f in findings(examine(languages=True, PERL5LIB="/nowhere"), "languages")}
    assert found["perl"]["verdict"] == "note" and "PERL5LIB" in found["perl"]["todo"]
    assert found["perl"]["text"].startswith("can't load its module: Can't locate Polyverso.pm in @INC"), found["perl"]
    assert "/nowhere" not in found["perl"]["text"]  # no list of all folders


def test_the_reason_that_an_interpreter_gives_is_shown():
    nowhere = {name: "/nowhere" for name in ("PYTHONPATH", "LUA_PATH", "LUA_PATH_5_4")}
    found = {f["subject"]: f["text"] for f in findings(examine(languages=True, **nowhere), "languages")}
    assert found["python3"] == "can't load its module: ModuleNotFoundError: No module named 'polyverso'"
    for lua in {"luajit", "lua5.1", "lua5.4"} & set(found):
        assert found[lua].endswith("module 'polyverso' not found"), found[lua]


def test_the_text_says_the_same_as_the_json():
    status, out, _ = call(languages=True)
    assert status == 0 and out.endswith("\nall is well\n")
    for part in ("settings", "processors", "memory", "network", "devices", "build", "languages"):
        assert f"\n{part}\n" in out
    status, out, _ = call(POLYVERSO_NODES="many")
    assert status == 1 and "POLYVERSO_NODES=many in the environment is not a whole number" in out and "all is well" not in out
    assert out.endswith("\nthere are problems: see the lines with ->\n")


def test_spinning_is_no_problem_on_one_processor_and_none_at_all_is_a_matter_to_note():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        report = examine()
    finally:
        os.sched_setaffinity(0, allowed)
    assert "1 for this process" in finding(report, "processors", "processors")["text"]
    assert "up to 50 us" in finding(report, "processors", "spin")["text"]
    assert "leave spin_us unset" in finding(examine(POLYVERSO_SPIN_US="0"), "processors", "spin")["todo"]


def test_too_few_descriptors_for_the_cluster_are_a_problem():
    small = f"ulimit -n 64; exec {COMMAND} doctor --json"
    done = subprocess.run(
        ["sh", "-c", small], capture_output=True, text=True, timeout=60,
        env=environment(POLYVERSO_NODES="100", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}"),
    )
    report = json.loads(done.stdout)
    found = finding(report, "network", "descriptors")
    assert done.returncode == 1 and found["verdict"] == "problem" and "ulimit -n" in found["todo"]


def test_a_slip_of_the_pen_is_told():
    report = examine(POLYVERSO_NODE="4", POLYVERSO_HOME="/somewhere")
    assert finding(report, "settings", "environment") == {
        "area": "settings", "subject": "environment", "verdict": "problem", "text": "POLYVERSO_NODE is not a setting: it is ignored",
        "todo": "did you mean POLYVERSO_NODES?",
    }


def test_wrong_usage_is_told():
    for words in (["--set", "rank"], ["--secret-file", "/nowhere/at/all"], ["--join", "--master", "a:1"], ["word"]):
        status, _, err = call(*words)
        assert status == 2 and "polyverso: " in err
    status, out, _ = call("--help")
    assert status == 0 and "examples:" in out and "The exit status is 0" in out


# ---- launchers


def test_a_launcher_is_named_with_its_variables():
    report = examine(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_LOCAL_SIZE="4", PMIX_NAMESPACE="job", PMIX_SERVER_TMPDIR="/tmp/x")
    assert report["launcher"] == "Open MPI" and report["rank"] == 1 and report["nodes"] == 4 and report["well"]
    rank = setting(report, "rank")
    assert rank["source"] == "launcher" and rank["from"] == "OMPI_COMM_WORLD_RANK=1 in the environment"
    assert finding(report, "master", "address")["verdict"] == "note"  # rank 0 does not run


def test_settings_that_beat_a_launchers_are_told():
    report = examine(
        OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_LOCAL_SIZE="4", PMIX_NAMESPACE="job", PMIX_SERVER_TMPDIR="/tmp/x",
        POLYVERSO_RANK="2",
    )
    rank = setting(report, "rank")
    assert rank["value"] == "2" and rank["source"] == "environment"
    assert rank["unused"] == ["POLYVERSO_RANK=2 in the environment overrides OMPI_COMM_WORLD_RANK=1 in the environment"]
    assert finding(report, "settings", "rank")["verdict"] == "note"


def test_launchers_that_differ_are_a_problem_that_names_both():
    report = examine(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4")
    text = finding(report, "settings", "place")["text"]
    assert "WORLD_SIZE=2 (torchrun) and OMPI_COMM_WORLD_SIZE=4 (Open MPI) disagree" in text and not report["well"]


def test_half_a_launcher_is_a_problem():
    report = examine(OMPI_COMM_WORLD_SIZE="2")
    assert "OMPI_COMM_WORLD_RANK is not" in finding(report, "settings", "place")["text"] and not report["well"]


def test_a_script_inside_an_allocation_is_noted():
    report = examine(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_JOB_ID="7")
    assert report["nodes"] == 1
    assert any("not started by srun" in f["text"] and f["verdict"] == "note" for f in findings(report, "settings", "launcher"))


def test_mpirun_gives_each_process_its_place(tmp_path):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing: apt install openmpi-bin")
    allowed = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    script = f"{COMMAND} doctor --json > {tmp_path}/$OMPI_COMM_WORLD_RANK"
    subprocess.run(["mpirun", "--oversubscribe", "-np", "2", "sh", "-c", script], env=environment(**allowed), timeout=60)
    for rank in (0, 1):
        report = json.loads((tmp_path / str(rank)).read_text())
        check_form(report)
        assert (report["rank"], report["nodes"], report["launcher"]) == (rank, 2, "Open MPI")


# ---- the connection to a master


@pytest.fixture
def master(tmp_path):
    """A process that waits for one more, and its address."""
    port = free_ports()
    script = "import polyverso\nwith polyverso.init():\n    pass\n"
    variables = dict(POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"127.0.0.1:{port}", POLYVERSO_SECRET="a secret of the tests")
    process = subprocess.Popen([sys.executable, "-c", script], env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert process.poll() is None, process.communicate()
    yield process, f"127.0.0.1:{port}", variables
    process.kill()
    process.communicate()


def test_a_master_is_reached_and_not_disturbed(master, tmp_path):
    process, address, variables = master
    file = tmp_path / "secret"
    file.write_text("a secret of the tests\n")
    for _ in range(3):
        report = examine("--master", address, "--secret-file", str(file))
        assert [f["subject"] for f in findings(report, "master")] == ["name", "connection", "hello", "secret", "encryption"]
        assert report["well"], report
    script = "import polyverso\nwith polyverso.init():\n    pass\n"
    done = subprocess.run([sys.executable, "-c", script], env=environment(**dict(variables, POLYVERSO_RANK="1")), timeout=30)
    assert done.returncode == 0 and process.wait(30) == 0
    assert process.stdout.read() == ""  # the doctor's connections are not logged


def test_another_secret_is_told(master):
    _, address, _ = master
    report = examine("--master", address, POLYVERSO_SECRET="another secret than theirs")
    found = finding(report, "master", "secret")
    assert found["verdict"] == "problem" and "POLYVERSO_SECRET" in found["todo"] and "has a different secret" in found["text"]


def test_a_process_sees_its_master_before_it_joins(master):
    _, _, variables = master
    report = examine(**dict(variables, POLYVERSO_RANK="1"))
    assert finding(report, "master", "secret")["verdict"] == "ok" and report["well"]


def test_a_master_that_has_not_started_is_no_problem_for_the_others_yet():
    report = examine(POLYVERSO_NODES="2", POLYVERSO_RANK="1", POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}")
    assert finding(report, "master", "connection")["verdict"] == "note" and report["well"]


def test_nobody_at_the_port():
    report = examine("--master", f"127.0.0.1:{free_ports()}")
    found = finding(report, "master", "connection")
    assert found["verdict"] == "problem" and "refused" in found["text"] and "start rank 0" in found["todo"]


def test_somebody_else_at_the_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            client, _ = listener.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        report = examine("--master", "127.0.0.1:%d" % listener.getsockname()[1])
        thread.join()
    found = finding(report, "master", "hello")
    assert found["verdict"] == "problem" and "not in Polyverso's protocol" in found["text"]


def test_somebody_who_hangs_at_the_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report = examine("--master", "127.0.0.1:%d" % listener.getsockname()[1])
    assert "it does not answer" in finding(report, "master", "hello")["text"]


def test_a_name_that_does_not_exist():
    found = finding(examine("--master", "no-such-host.invalid:7000"), "master", "name")
    assert found["verdict"] == "problem" and "spelling" in found["todo"]


def test_a_blocked_port_is_told_to_rank_0():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        report = examine(POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"127.0.0.1:{port}")
    found = finding(report, "network", "listening")
    assert found["verdict"] == "problem" and f"can't listen on 127.0.0.1:{port}" in found["text"] and "ss -ltnp" in found["todo"]


def test_an_address_that_is_not_ours_is_told():
    report = examine(POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER="198.51.100.1:7000", POLYVERSO_SECRET="a secret of the tests")
    assert finding(report, "network", "listening")["verdict"] == "problem"


def test_what_others_would_be_told_is_told():
    place = dict(POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}")
    assert "peers are told 10.1.2.3:77" in finding(examine(**place, POLYVERSO_ADVERTISE="10.1.2.3:77"), "network", "listening")["text"]


def test_a_name_that_means_loopback_to_its_own_machine_is_noted(on_debian):
    variables = environment(POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"debian:{free_ports()}", POLYVERSO_SECRET="a secret of the tests")
    done = subprocess.run(on_debian([COMMAND, "doctor", "--json"]), env=variables, capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    name = finding(report, "network", "host name")
    assert name["verdict"] == "note" and name["text"].startswith("debian is 127.0.1.1") and "POLYVERSO_ADVERTISE" in name["todo"]
    listening = finding(report, "network", "listening")
    if listening["verdict"] == "ok":  # otherwise the machine has only loopback
        assert "on 0.0.0.0:" in listening["text"] and "told 127." not in listening["text"]


# ---- with peers


def test_two_processes_join_and_see_each_other_in_shared_memory(tmp_path):
    script = f"{COMMAND} doctor --join --json > {tmp_path}/$POLYVERSO_RANK"
    done = subprocess.run([COMMAND, "run", "-n", "2", "--", "sh", "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    for rank in (0, 1):
        report = json.loads((tmp_path / str(rank)).read_text())
        check_form(report)
        (peer,) = report["peers"]
        assert report["running"] and report["rank"] == rank and peer["rank"] == 1 - rank
        assert peer["transport"] == "shm" and peer["why_not_shm"] == "" and 0 < peer["round_trip_us"] < 1e6
        assert report["address"].startswith("127.0.0.1:") and report["address"] in finding(report, "network", "listening")["text"]
        assert setting(report, "nodes")["from"] == "POLYVERSO_NODES=2 in the environment"


def test_why_it_is_not_shared_memory_is_told_on_both_sides(tmp_path):
    script = f"[ $POLYVERSO_RANK = 1 ] && export POLYVERSO_TRANSPORT=tcp; {COMMAND} doctor --join --json > {tmp_path}/$POLYVERSO_RANK"
    done = subprocess.run([COMMAND, "run", "-n", "2", "--", "sh", "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    why = [json.loads((tmp_path / str(rank)).read_text())["peers"][0] for rank in (0, 1)]
    assert [peer["transport"] for peer in why] == ["tcp", "tcp"]
    assert "transport=tcp there" in why[0]["why_not_shm"] and why[1]["why_not_shm"] == "transport=tcp is set here"


def test_a_stopped_peer_and_a_lost_one_are_told(cluster):
    look = """
import json
with pv.init() as node:
    node.barrier()
    say("there")
    while wait_for_word() == "look":
        peers = [f for f in node.doctor()["findings"] if f["area"] == "peers"]
        say("seen", json.dumps(peers))
"""
    job = cluster(2, 1, heartbeat_timeout_ms=60000)
    watcher, other, server = job.python(0, look), job.python(1, look), job.server(0)
    watcher.hear("there")
    other.hear("there")

    def seen():
        watcher.tell("look")
        return {f["subject"]: f for f in json.loads(watcher.hear("seen ").partition("seen ")[2])}

    assert "by shm" in seen()["rank 2"]["text"] and "by shm" in seen()["rank 1"]["text"]
    server.kill(19)  # SIGSTOP
    stopped = seen()["rank 2"]
    assert stopped["verdict"] == "problem" and "does not answer within a second" in stopped["text"] and str(server.process.pid) in stopped["todo"]
    server.kill(18)  # SIGCONT
    assert "by shm" in seen()["rank 2"]["text"]
    other.kill()
    other.process.wait()
    for _ in range(100):
        if ": lost: " in (lost := seen()["rank 1"])["text"]:
            break
    assert ": lost: " in lost["text"] and "new worker" in lost["todo"]
    watcher.tell("end")
    watcher.ends()
    server.ends()


def test_processes_of_polyverso_run_that_do_not_join_have_no_problem(tmp_path):
    script = f"{COMMAND} doctor --json > {tmp_path}/$POLYVERSO_RANK"
    done = subprocess.run([COMMAND, "run", "-n", "2", "--", "sh", "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    first, second = (json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1))
    assert "has bound" in finding(first, "network", "listening")["text"] and findings(first, "master") == []
    assert {f["subject"]: f["verdict"] for f in findings(second, "master")}.get("hello", "note") == "note"


def test_joining_alone_tells_why_it_fails():
    status, out, err = call("--join", POLYVERSO_NODES="2", POLYVERSO_RANK="0", POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}", init_timeout="300")
    assert status == 1 and "can't join" in err and "only 1 of 2 processes have arrived" in err and "rank 0 of 2 processes" in out
