"""What the `polyverso` command makes of the words it is given: mistakes are told in one line that says what was meant."""

import subprocess

import pytest

from conftest import COMMAND


def polyverso(*words):
    result = subprocess.run([COMMAND, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["run", "--join", "abc", "--", "true"], '--join: "abc" is not a whole number in 0 .. '),
        (["run", "--replicas", "1.5", "--", "true"], '--replicas: "1.5" is not a whole number in 0 .. 15'),
        (["run", "--servers", "many", "--", "true"], '--servers: "many" is not a whole number in 0 .. 4096'),
        (["scale", "--servers", "2", "--timeout", "nan"], '--timeout: "nan" is not a number of seconds in 0 .. 86400'),
        (["server", "--grace", "nan"], '--grace: "nan" is not a number of seconds in 0 .. 86400'),
        (["status", "--watch=nan"], '--watch: "nan" is not a number of seconds in 0.1 .. 86400'),
        (["export", "--otlp", "http://localhost", "--interval", "-1"], '--interval: "-1" is not a number of seconds in 0.1 .. 86400'),
        (["scale", "--servers", "0"], '--servers: "0" is not a whole number in 1 .. 65535'),
        (["rnu", "-n", "2", "--", "true"], 'there is no command "rnu"; did you mean "run"?'),
        (["sever"], 'did you mean "server"?'),
        (["checkpoint", "inspcet", "x"], 'checkpoint: there is no command "inspcet"; did you mean "inspect"?'),
        (["checkpoint"], "checkpoint: name a command: inspect"),
        (["help", "statsu"], 'did you mean "status"?'),
        (["python3", "train.py"], "to start a program: polyverso run -- python3 train.py"),
        (["-n", "2", "--", "python3", "b.py"], "did you mean polyverso run -n 2 -- python3 b.py?"),
        (["--", "python3", "b.py"], "did you mean polyverso run -- python3 b.py?"),
        (["--verison"], 'there is no option --verison; did you mean "--version"?'),
        (["run", "--serves", "2", "--", "true"], 'run: there is no option --serves; did you mean "--servers"?'),
        (["run", "--worker=4", "--", "true"], 'there is no option --worker; did you mean "--workers"?'),
        (["run", "-workers", "4", "--", "true"], 'did you mean "--workers"?'),
        (["run", "-N", "4", "--", "true"], 'there is no option -N; did you mean "-n"?'),
        (["run", "--frobnicate", "--", "true"], "there is no option --frobnicate; polyverso run --help lists the options"),
        (["status", "--mastre", "host:1"], 'status: there is no option --mastre; did you mean "--master"?'),
        (["status", "1", "2", "3"], "status: unexpected: 2 3"),
        (["status", "foo"], '"foo" is not the process id of a `polyverso run`'),
        (["trace", "0"], '"0" is not the process id of a `polyverso run`'),
        (["status", "1", "--master", "host:1"], "run excludes --master: give only one of them"),
        (["status", "--gossip", "nodes.yaml", "--master", "host:1"], "--gossip excludes --master"),
        (["status", "--gossip", "nodes.yaml", "--log", "1"], "--gossip excludes --log"),
        (["dashboard", "1", "--gossip", "nodes.yaml"], "--gossip excludes run"),
        (["trace", "--http", "1", "--master", "host:1"], "--http excludes --master"),
        (["export", "1", "--otlp", "http://host:1", "--http", "1"], "--http excludes run"),
        (["trace", "--seconds", "0"], "--seconds: 0 is not a number of seconds above 0"),
        (["trace", "--seconds", "abc"], "--seconds: abc is not a number of seconds above 0"),
        (["doctor", "--set", "heartbeat_timeout=3"], "there is no setting heartbeat_timeout;"),
        (["doctor", "--", "python3"], "doctor: unexpected: -- python3"),
        (["run", "-n", "0", "--", "true"], '--workers: "0" is not a whole number in 1 .. 4096'),
        (["run", "-n", "two", "--", "true"], '--workers: "two" is not a whole number in 1 .. 4096'),
        (["run", "-s", "-1", "--", "true"], '--servers: "-1" is not a whole number in 0 .. 4096'),
        (["run", "--set", "heartbeat=5", "--", "true"], 'did you mean "heartbeat_timeout_ms"?'),
        (["run", "--set", "timout_ms=5", "--", "true"], 'did you mean "timeout_ms"?'),
        (["run", "--server-command", "true", "--", "true"], "give their number with --servers"),
        (["run", "-s", "1", "--server-command", "", "--", "true"], "--server-command: no command given"),
        (["run", "-s", "1", "--server-command", "sh 'x", "--", "true"], "the quote ' is never closed"),
        (["run", "-s", "1", "--server-command", "no-such-program", "--", "true"], 'can\'t run "no-such-program"'),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_was_meant(words, sentence):
    status, out, err = polyverso(*words)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1 and sentence in err, err


@pytest.mark.parametrize(
    "words, unexpected, line",
    [
        (["python3", "b.py"], "python3 b.py", "run -- python3 b.py"),
        (["-n", "2", "python3", "b.py", "--epochs", "3"], "python3 b.py --epochs 3", "run -n 2 -- python3 b.py --epochs 3"),
        (["--sync", "sh", "-c", "echo 'a b'"], r"sh -c 'echo '\''a b'\'''", r"run --sync -- sh -c 'echo '\''a b'\'''"),
    ],
)
def test_a_command_without_dashes_before_it_is_shown_in_its_order(words, unexpected, line):
    status, out, err = polyverso("run", *words)
    assert (status, out) == (2, "")
    assert f"unexpected: {unexpected}; the workers' command follows after --, as in: polyverso {line}\n" in err


@pytest.mark.parametrize("words, same_as", [
    (["help"], ["--help"]),
    (["help", "help"], ["--help"]),
    (["help", "run"], ["run", "--help"]),
    (["help", "checkpoint"], ["checkpoint", "--help"]),
    (["help", "checkpoint", "inspect"], ["checkpoint", "inspect", "--help"]),
])
def test_help_is_a_command_too(words, same_as):
    status, out, err = polyverso(*words)
    assert (status, err) == (0, "") and out == polyverso(*same_as)[1]
    assert "Usage: polyverso" in out


def test_the_help_lists_every_command_and_option():
    out = polyverso("--help")[1]
    for command in ("run", "server", "checkpoint", "trace", "doctor", "status", "help"):
        assert f"\n  {command} " in out
    out = polyverso("run", "--help")[1]
    for option in ("-n,--workers", "-s,--servers", "--server-command", "--sync", "--set", "--no-color", "--metrics", "--keep-going", "-v,--verbose"):
        assert f"\n  {option} " in out


def test_options_are_read_in_all_their_forms():
    for words in (["-n2"], ["-n", "2"], ["--workers", "2"], ["--workers=2"]):
        status, out, _ = polyverso("run", *words, "--", "echo", "x")
        assert status == 0 and len(out.splitlines()) == 2


def test_servers_may_have_a_command_of_their_own():
    script = "echo $POLYVERSO_ROLE $POLYVERSO_RANK/$POLYVERSO_NODES"
    status, out, err = polyverso("run", "-n", "2", "-s", "2", "--server-command", f"sh -c '{script}; echo \"$0 $1\"' 'a  b' c\\ d", "--", "sh", "-c", script)
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == ["[s0] a  b c d", "[s0] server 2/4", "[s1] a  b c d", "[s1] server 3/4", "[w0] worker 0/4", "[w1] worker 1/4"]


SERVER = """
import polyverso
node = polyverso.init()
print("serves", node.server_id, "of", node.num_servers, flush=True)
node.shutdown()
print("done", flush=True)
"""

WORKER = """
import numpy as np, polyverso
with polyverso.init() as node:
    table = node.array(10)
    table.add(np.ones(10))
    node.barrier()
    print("sum", table.get().sum(), flush=True)
"""


def test_a_script_serves_as_the_default_server_does(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "worker.py").write_text(WORKER)
    status, out, err = polyverso("run", "-n", "2", "-s", "1", "--server-command", f"python3 '{tmp_path}/server.py'", "--", "python3", str(tmp_path / "worker.py"))
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == ["[s0] done", "[s0] serves 0 of 1", "[w0] sum 20.0", "[w1] sum 20.0"]


def test_help_says_what_is_true():
    assert "does not encrypt" not in polyverso("server", "--help")[1]
    for command in ("trace", "dashboard", "export"):
        assert "default: your only run" in polyverso(command, "--help")[1]
    assert "default: all your runs" in polyverso("status", "--help")[1]
    text = polyverso("checkpoint", "--help")[1]
    assert "polyverso checkpoint inspect" in text and "polyverso run" not in text


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["doctor"], ["status", "--help"]])
def test_output_that_cannot_be_written_is_an_error(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode != 0 and "can't write the output: No space left on device" in done.stderr
