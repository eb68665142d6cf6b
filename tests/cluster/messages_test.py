"""What errors say: what the others do, and what was probably meant."""

import re
import sys

import pytest


def script(body):
    return "import time\nimport numpy as np\nimport polyverso\nfrom polyverso import errors\nnode = polyverso.init()\n" + body


def texts(start, body, workers=2):
    status, out, err = start("run", "-n", str(workers), "--", sys.executable, "-c", script(body)).finish()
    assert status == 0, out + err
    return [line.split(" ", 1)[1] for line in out.splitlines()]


@pytest.mark.parametrize("caller", [0, 1])
def test_a_barrier_names_the_missing_and_what_they_do_instead(start, caller):
    # The others wait in the creation of a table, which the caller joins only after its barrier has failed.
    body = f"""
if node.worker_id == {caller}:
    time.sleep(0.5)
    try:
        node.barrier(timeout=1)
    except TimeoutError as late:
        print(late, flush=True)
table = node.array(4, name="weights")
node.shutdown()
"""
    (text,) = texts(start, body)
    other = 1 - caller
    assert re.search(rf'barrier: still waiting for worker {other} \(rank {other}, pid \d+ on [^)]+\), '
                     r'which waits in the creation of "weights"$', text), text


@pytest.mark.parametrize("what", ["save", "load"])
def test_a_checkpoint_names_the_missing_and_not_who_waits(start, what, tmp_path):
    body = f"""
node.array(4, name="weights")
node.save({str(tmp_path / "saved")!r})
if node.worker_id == 0:
    try:
        node.{what}({str(tmp_path / "saved")!r}, timeout=0.5)
    except TimeoutError as late:
        print(late, flush=True)
node.barrier()
node.shutdown()
"""
    (text,) = texts(start, body)
    assert re.search(r"checkpoint: still waiting for worker 1 \(rank 1, pid \d+ on [^)]+\)$", text), text


def test_a_barrier_says_that_the_others_are_alive(start):
    body = """
if node.worker_id == 1:
    try:
        node.barrier(timeout=1)
    except TimeoutError as late:
        print(late, flush=True)
else:
    time.sleep(2.5)
node.shutdown()
"""
    (text,) = texts(start, body, workers=3)
    assert text.count("which is alive and has not called it") == 2 and re.findall(r"worker (\d) ", text) == ["0", "2"], text


@pytest.mark.parametrize("call, meant", [
    ("polyverso.capi.mv_init_text('timout_ms=5')", "timeout_ms"),
    ("polyverso.capi.mv_init_text('snyc=1')", "sync"),
    ("polyverso.capi.mv_init_text('log_level=debgu')", "debug"),
    ("polyverso.capi.mv_init_text('transport=tpc')", "tcp"),
    ("node.array(4, updater='adagard')", "adagrad"),
    ("node.array(4, updater='sgd rat=1')", "rate"),
])
def test_a_mistyped_word_gets_a_suggestion(start, call, meant):
    body = f"""
try:
    {call}
except ValueError as wrong:
    print(str(wrong).replace(chr(10), ' '), flush=True)
node.shutdown()
"""
    (text,) = texts(start, body, workers=1)
    assert f'did you mean "{meant}"?' in text, text


def test_a_refused_number_says_what_is_allowed(start):
    body = """
for text in ("rank=two", "spin_us=fast", "timeout_ms=1.5"):
    try:
        polyverso.capi.mv_init_text(text)
    except ValueError as wrong:
        print(wrong, flush=True)
node.shutdown()
"""
    rank, spin, timeout = texts(start, body, workers=1)
    assert "is not a whole number in 0 .. 65534" in rank
    assert "is not a whole number in 0 .. 50" in spin
    assert "is not a whole number: use milliseconds, at least 1, or -1 for none" in timeout


def test_a_checkpoint_tells_of_directories_that_it_makes_above_its_own(start, tmp_path):
    body = f"""
table = node.array(4, name="w")
for directory in ("{tmp_path}/own", "{tmp_path}/no/such/runs", "{tmp_path}/no/such/runs"):
    node.save(directory)
node.shutdown()
"""
    status, out, err = start("run", "-n", "1", "--", sys.executable, "-c", script(body)).finish()
    assert (status, out) == (0, "")
    (line,) = err.splitlines()
    assert line.endswith(f"checkpoints: {tmp_path}/no did not exist: it was created, to save to {tmp_path}/no/such/runs")
    assert (tmp_path / "own" / "checkpoint-000001" / "manifest.json").exists()
    assert (tmp_path / "no" / "such" / "runs" / "checkpoint-000002" / "manifest.json").exists()
