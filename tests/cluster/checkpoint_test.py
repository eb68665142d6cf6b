"""Checkpoints of real processes: killed at any moment, and resumed with a different number of processes."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

from conftest import COMMAND

# A training that depends only on the number of its steps: in each step, each row belongs to one worker.
TRAINING = """
import hashlib, os, resource, sys, time
import numpy as np
import polyverso as pv

ROWS, COLS = 101, 7

def create(node):
    return (node.matrix(ROWS, COLS, name="dense", updater="adagrad rate=0.3", staleness=3),
            node.sparse(10**12, COLS, dtype="float64", name="sparse", updater="momentum rate=0.1", initial=2.0),
            node.keyvalue(COLS, dtype="int64", name="keys"),
            node.array(ROWS, dtype="float16", updater="sgd rate=0.5"))

def train(node, tables, first, last):
    dense, sparse, keys, half = tables
    mine = np.arange(node.worker_id, ROWS, node.num_workers)
    for step in range(first, last):
        gradient = ((mine[:, None] * 7 + np.arange(COLS) + step) % 5 - 2).astype(np.float32)
        dense.add(gradient, rows=mine)
        sparse.add(gradient.astype(np.float64), rows=mine * 7919)
        keys.add(gradient.astype(np.int64), keys=mine * 31 - 1000 - step)
        half.add((gradient[:, 0] / 4).astype(np.float16), rows=mine)
        dense.clock()
        node.barrier()

def digest(node, tables):
    dense, sparse, keys, half = tables
    told = hashlib.sha1(dense.peek().tobytes() + half.get().tobytes())
    for table in (sparse, keys):
        pieces = list(table.scan())
        ids, values = (np.concatenate([piece[i] for piece in pieces]) for i in range(2))
        order = np.argsort(ids)
        told.update(ids[order].tobytes() + values[order].tobytes())
    return f"{told.hexdigest()} clock {dense.info()['clock']}"

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece
    sys.stdout.flush()
"""

RUN = TRAINING + """
directory, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with pv.init() as node:
    if first > 0:
        node.load(directory)
    tables = create(node)
    if first > 0:
        assert tables[0].info()["clock"] == first, tables[0].info()
    train(node, tables, first, last)
    say("digest", digest(node, tables))
    node.barrier()
    node.save(directory, keep=2)
    say("saved")
    if len(sys.argv) > 4:  # goes on until it is killed
        train(node, tables, last, 10**9)
"""


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def digest_of(line):
    return line.partition("digest ")[2].strip()


def killed_after_saving(start, arguments, workers):
    job = start("run", *arguments)
    told = digest_of(job.read_until("digest"))
    for _ in range(workers):
        job.read_until("saved")
    for pid in job.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.wait_until_gone()
    return told


def test_a_killed_training_goes_on_with_other_numbers_of_servers_and_workers(start, run, tmp_path):
    command = script(tmp_path, RUN)
    status, out, err = run("-n", "1", "--", *command, str(tmp_path / "undisturbed"), "0", "30")
    assert status == 0, err
    undisturbed = digest_of(next(line for line in out.splitlines() if "digest" in line))
    directory = str(tmp_path / "checkpoints")
    killed_after_saving(start, ["-n", "2", "--servers", "1", "--", *command, directory, "0", "10", "on"], 2)
    killed_after_saving(start, ["-n", "3", "--", *command, directory, "10", "20", "on"], 3)
    status, out, err = run("-n", "1", "--servers", "2", "--", *command, directory, "20", "30")
    assert status == 0, err
    assert digest_of(next(line for line in out.splitlines() if "digest" in line)) == undisturbed
    assert sorted(os.listdir(directory)) == ["checkpoint-000002", "checkpoint-000003"]


LARGE = TRAINING + """
directory = sys.argv[1]
node = pv.init()
table = node.array(40_000_000, name="large")
table.add(np.ones(40_000_000, np.float32))
node.barrier()
node.save(directory)
say("saved")
table.add(np.ones(40_000_000, np.float32))
try:
    node.save(directory)
    say("saved again")
except pv.Error as error:
    say("failed:", type(error).__name__, error)
try:
    node.shutdown()
except pv.Error:
    pass
"""

LOOK = TRAINING + """
with pv.init() as node:
    node.load(sys.argv[1])
    values = node.open("large").get()
    assert values.min() == values.max()
    say("loaded", values[0])
"""


def test_a_server_that_is_killed_while_it_writes_leaves_the_older_checkpoint(cluster, run, tmp_path):
    directory = tmp_path / "checkpoints"
    job = cluster(1, 2)
    worker = job.start(0, [*script(tmp_path, LARGE), str(directory)])
    servers = [job.server(number) for number in range(2)]
    worker.hear("saved")
    second = directory / "checkpoint-000002"
    deadline = time.monotonic() + 20
    while not (second / "server-1.safetensors.part").exists() and not (second / "server-1.safetensors").exists():
        assert time.monotonic() < deadline
    servers[1].kill()
    ending = worker.hear("", 30)
    whole = (second / "manifest.json").exists()  # the kill came too late
    assert whole == (ending == "saved again"), ending
    if not whole:
        assert "MV_EPEERLOST" in ending and "server 1" in ending, ending
    status, out, err = run("-n", "1", "--", *script(tmp_path, LOOK), str(directory))
    assert status == 0, err
    assert ("loaded 2.0" if whole else "loaded 1.0") in out


FULL = TRAINING + """
directory = sys.argv[1]
with pv.init() as node:
    table = node.array(1_000_000, name="large")
    node.save(directory)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    table.add(np.ones(1_000_000, np.float32))
    try:
        node.save(directory)
    except pv.Error as error:
        say("failed:", type(error).__name__, error)
    left = sorted(os.listdir(directory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    node.barrier()
    node.save(directory)
    say("left", *left)
"""


def test_a_full_disk_is_an_error_with_its_reason_and_the_next_save_works(run, tmp_path):
    directory = tmp_path / "checkpoints"
    status, out, err = run("-n", "1", "--", *script(tmp_path, FULL), str(directory))
    assert status == 0, err
    assert "failed: SystemFailure" in out and "server-0.safetensors: File too large" in out, out
    assert "left checkpoint-000001\n" in out, out
    assert sorted(os.listdir(directory)) == ["checkpoint-000001", "checkpoint-000002"]
    assert inspect(directory)[0] == 0


def inspect(path, *more):
    command = [COMMAND, "checkpoint", "inspect", str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def read_manually(path):
    """Returns the tensors and the metadata of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


@pytest.fixture
def saved(run, tmp_path):
    directory = tmp_path / "checkpoints"
    status, _, err = run("-n", "2", "--", *script(tmp_path, RUN), str(directory), "0", "5")
    assert status == 0, err
    return directory


def test_anybody_can_read_the_files(saved):
    tensors, metadata = read_manually(saved / "checkpoint-000001" / "server-1.safetensors")
    tables = {table["name"]: table for table in json.loads(metadata["tables"])}
    assert metadata["server"] == "1" and metadata["servers"] == "2"
    keyed = {"sparse.ids", "sparse.values", "sparse.state0", "keys.ids", "keys.values"}
    assert set(tensors) == keyed | {"dense", "dense.state0", "table-0"}
    assert tensors["dense"].shape == (50, 7) and tables["dense"]["first"] == 51 and tables["dense"]["clock"] == 5
    assert tables["table-0"]["dtype"] == "f16" and tensors["table-0"].dtype == np.float32
    assert len(tensors["sparse.ids"]) == len(tensors["sparse.values"]) and (tensors["sparse.ids"] % 2 == 1).all()


def test_the_safetensors_package_reads_them_too(saved):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors, _ = read_manually(saved / "checkpoint-000001" / "server-1.safetensors")
    for name, tensor in safetensors.load_file(saved / "checkpoint-000001" / "server-1.safetensors").items():
        assert (tensor == tensors[name]).all()


def test_inspecting_tells_what_is_there_and_what_is_wrong(saved):
    status, told = inspect(saved)
    assert status == 0 and "sound" in told, told
    dense = next(line for line in told.splitlines() if line.strip().startswith("dense")).split()
    assert dense[1:7] == ["matrix", "f32", "101", "x", "7", "101"] and "adagrad" in dense, told
    status, text = inspect(saved / "checkpoint-000001", "--json")
    report = json.loads(text)
    assert status == 0 and report["servers"] == 2 and report["damage"] == [] and len(report["tables"]) == 4
    file = saved / "checkpoint-000001" / "server-0.safetensors"
    assert inspect(file)[0] == 0
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    for path in (saved, saved / "checkpoint-000001", file):
        status, told = inspect(path)
        assert status == 1 and "DAMAGED" in told and "checksum" in told, told
    file.write_bytes(data[:1000])
    status, told = inspect(file)
    assert status == 1 and "truncated" in told, told
    status, told = inspect(saved / "nothing")
    assert status == 1 and "no such file" in told


CLOCKED = TRAINING + """
with pv.init() as node:
    tables = create(node)
    for step in range(10**9):
        train(node, tables, step, step + 1)
        enough = os.path.exists(sys.argv[1] + "/checkpoint-000004/manifest.json") if node.worker_id == 0 else False
        dense = node.open("dense")
        flag = node.array(1, name=f"flag{step}", init=np.array([float(enough)], np.float32))
        if flag.get()[0] > 0:
            break
"""


SYNC = """
import os, sys
import polyverso as pv

with pv.init(sync=True) as node:
    if os.path.exists(sys.argv[1]):
        node.load(sys.argv[1])
    table = node.array(2, name="weights")
    print("begins at", table.info()["clock"], flush=True)
    for step in range(3):
        table.add([1, 1])
        table.get()
        table.clock()
    node.save(sys.argv[1])
"""


def test_a_table_of_sync_mode_continues_at_its_clock(run, tmp_path):
    for begins in (0, 3, 6):
        status, out, err = run("-n", "2", "--", *script(tmp_path, SYNC), str(tmp_path / "run"), timeout=60)
        assert status == 0 and out.count(f"begins at {begins}") == 2, (out, err)


def test_checkpoints_are_made_by_the_clock(run, tmp_path):
    directory = tmp_path / "by-the-clock"
    settings = [f"checkpoint={directory}", "checkpoint_every_ms=50", "checkpoint_keep=2", "log_level=info"]
    words = [word for setting in settings for word in ("--set", setting)]
    status, _, err = run("-n", "2", *words, "--", *script(tmp_path, CLOCKED), str(directory), timeout=60)
    assert status == 0, err
    assert "saving a checkpoint to" in err and "complete" in err, err
    whole = [name for name in sorted(os.listdir(directory)) if (directory / name / "manifest.json").exists()]
    assert len(whole) == 2 and whole[-1] >= "checkpoint-000004", whole
    assert inspect(directory)[0] == 0


FOLLOWED = """
import sys, time
import numpy as np
import polyverso as pv

def train(node, directory, until):
    table = node.array(10_000, name="t")
    while time.monotonic() < until:
        table.add(np.ones(10_000))
        node.save(directory, keep=1)

def evaluate(node, directory, until):
    newest = 0
    while time.monotonic() < until:
        node.load(directory)
        values = node.open("t").get()
        assert (values == values[0]).all() and values[0] >= newest, values
        newest = values[0]

with pv.init() as node:
    {"train": train, "evaluate": evaluate}[sys.argv[1]](node, sys.argv[2], time.monotonic() + 4)
"""


def test_an_evaluation_follows_a_training_that_keeps_one_checkpoint(tmp_path):
    """The training removes checkpoints while the evaluation loads them. It loads the newer one then."""
    directory = tmp_path / "run"
    training = subprocess.Popen([*script(tmp_path, FOLLOWED), "train", str(directory)])
    while not list(directory.glob("*/manifest.json")):
        time.sleep(0.01)
    evaluation = subprocess.run([*script(tmp_path, FOLLOWED), "evaluate", str(directory)], capture_output=True, text=True)
    assert training.wait(30) == 0
    assert evaluation.returncode == 0, evaluation.stderr


def test_a_worker_that_dies_fails_the_save_that_waits_for_it_and_no_other(run, tmp_path):
    text = """
import os, sys, time
import polyverso as pv

node = pv.init(log_level="off")
table = node.array(3, name="t")
node.barrier()
if node.worker_id == 1:
    time.sleep(0.5)
    os._exit(0)
for _ in range(3):
    try:
        node.save(sys.argv[1])
        print("saved")
    except pv.PeerError as error:
        print("worker 1" in error.text)
node.shutdown()
"""
    _, out, err = run("-n", "3", "--servers", "1", "--keep-going", "--", *script(tmp_path, text), str(tmp_path / "run"))
    for worker in (0, 2):
        assert [line.split()[1] for line in out.splitlines() if line.startswith(f"[w{worker}]")] == ["True", "saved", "saved"], out + err
