"""examples/gossip-cifar works as documented in its README."""

import io
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
from conftest import ROOT
from ports import free_ports

EXAMPLE = ROOT / "examples" / "gossip-cifar"
ENVIRONMENT = {**os.environ, "PYTHON": sys.executable}


@pytest.fixture
def folder(tmp_path):
    """A copy of the example, because it keeps its logs in its folder."""
    folder = tmp_path / "examples" / "gossip-cifar"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("logs", "nodes.yaml", "*.png", "__pycache__"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    return folder


def prepare(folder, nodes):
    return subprocess.run([folder / "prepare.sh", str(nodes), str(free_ports(nodes))], check=True, capture_output=True, text=True).stdout


def run(folder, *options):
    done = subprocess.run([folder / "run.sh", *options], capture_output=True, text=True, timeout=250, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return [float(word) for word in re.findall(r"final accuracy ([\d.]+)", done.stdout)]


def test_each_node_gets_as_far_as_one_alone_on_all_images(folder):
    prepare(folder, 2)
    reached, (alone,) = run(folder), run(folder, "--alone")
    assert len(reached) == 2 and min(reached) >= alone - 0.01
    assert "the repository's digits: 674 of 1348 images" in (folder / "logs" / "w1.out").read_text()
    assert subprocess.run([folder / "stop.sh"], capture_output=True, text=True, check=True).stdout == "no nodes are running\n"
    logs = [np.loadtxt(folder / "logs" / f"{name}.csv", delimiter=",") for name in ("w1", "w2")]
    assert all(log.shape == (30, 4 + 16) and log[-1, 2] < 0.2 * log[0, 2] for log in logs)
    # Sketches of unrelated models are about as far apart as they are long.
    assert np.linalg.norm(logs[0][-1, 4:] - logs[1][-1, 4:]) < 0.1 * np.linalg.norm(logs[0][-1, 4:])
    plot = subprocess.run([sys.executable, folder / "plot.py"], capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    assert pathlib.Path(plot.strip()).read_bytes().startswith(b"\x89PNG")
    subprocess.run([sys.executable, folder / "plot.py", folder / "gossip.svg"], capture_output=True, check=True, env=ENVIRONMENT)
    assert "<svg" in (folder / "gossip.svg").read_text()


def test_a_node_for_each_processor(folder):
    processors = int(subprocess.check_output(["nproc"]))
    said = subprocess.run([folder / "prepare.sh"], check=True, capture_output=True, text=True).stdout
    assert said == f"nodes.yaml: {processors} nodes from port 45000 on\n"
    assert (folder / "nodes.yaml").read_text().count("name: w") == processors


@pytest.mark.parametrize("layout", [
    "nodes:\n  - name: red\n    host: localhost\n    port: {0}\n  - {{name: blue, host: localhost, port: {1}}}\ninterpolation: clock\n",
    "- nodes:\n- {{name: red, host: localhost, port: {0}}}\n- {{name: blue, host: localhost, port: {1}}}\n",
])
def test_any_layout_of_the_configuration(layout, folder):
    port = free_ports(2)
    (folder / "nodes.yaml").write_text(layout.format(port, port + 1))
    assert len(run(folder, "--epochs", "1")) == 2
    assert "674 of 1348 images" in (folder / "logs" / "blue.out").read_text()
    assert subprocess.run([sys.executable, folder / "plot.py"], capture_output=True, check=False, env=ENVIRONMENT).returncode == 0


@pytest.fixture
def running(folder):
    """Two nodes during training, started by run.sh."""
    prepare(folder, 2)
    # Like from a terminal: background processes of a shell ignore SIGINT.
    nodes = subprocess.Popen([folder / "run.sh", "--epochs", "100000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=ENVIRONMENT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        logs = [folder / "logs" / f"w{place}.out" for place in (1, 2)]
        for _ in range(600):
            if all(log.exists() and "epoch 1/" in log.read_text() for log in logs):
                break
            assert nodes.poll() is None, nodes.stdout.read()
            time.sleep(0.1)
        yield nodes, (folder / "logs" / "pids").read_text().split()
    finally:
        subprocess.run([folder / "stop.sh"], capture_output=True, check=False)
        nodes.wait(30)
        nodes.stdout.close()


def test_stopping_ends_exactly_those(folder, running):
    nodes, pids = running
    # An unrelated process with the same arguments.
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "main.py", "--config", "nodes.yaml"])
    try:
        again = subprocess.run([folder / "run.sh"], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        assert again.returncode == 1 and "stop.sh" in again.stderr
        said = subprocess.run([folder / "stop.sh"], capture_output=True, text=True, check=True).stdout
        assert said == "".join(f"stopped {pid}\n" for pid in pids)
        assert nodes.wait(30) == 1
        assert not any(pathlib.Path("/proc", pid).exists() for pid in pids)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_interrupt_ends_them_all(running):
    nodes, pids = running
    nodes.send_signal(signal.SIGINT)
    assert nodes.wait(30) == 130
    assert not any(pathlib.Path("/proc", pid).exists() for pid in pids)


# ------------------------------------------------------------------ CIFAR-10's archives, with a few images


def noise(seed, count):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3 * 32 * 32), dtype=np.uint8), random.integers(0, 10, count).tolist()


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def python_archive(path):
    def batch(seed, count):
        pixels, labels = noise(seed, count)
        return pickle.dumps({b"batch_label": b"a batch", b"labels": labels, b"data": pixels, b"filenames": [b"x.png"] * count}, protocol=2)

    members = {f"cifar-10-batches-py/data_batch_{seed}": batch(seed, 20) for seed in range(1, 6)}
    write_archive(path, {**members, "cifar-10-batches-py/test_batch": batch(6, 30), "cifar-10-batches-py/readme.html": b"<html>"})


def binary_archive(path):
    def batch(seed, count):
        pixels, labels = noise(seed, count)
        return b"".join(bytes([label]) + image.tobytes() for image, label in zip(pixels, labels))

    members = {f"cifar-10-batches-bin/data_batch_{seed}.bin": batch(seed, 20) for seed in range(1, 6)}
    write_archive(path, {**members, "cifar-10-batches-bin/test_batch.bin": batch(6, 30), "cifar-10-batches-bin/batches.meta.txt": b"cat\n"})


@pytest.mark.parametrize("make", [python_archive, binary_archive])
def test_cifar_is_read_from_its_archives(make, folder, monkeypatch, tmp_path):
    archive = tmp_path / "cifar-10.tar.gz"
    make(archive)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import images

    what, train, labels, test, test_labels = images.read_images(archive)
    assert what == "CIFAR-10"
    pixels, first = noise(1, 20)
    assert train.shape == (100, 3, 32, 32) and labels[:20].tolist() == first
    assert np.array_equal(train[:20], pixels.reshape(-1, 3, 32, 32).astype(np.float32) / 128 - 1)
    assert np.array_equal((test * 128 + 128).astype(np.uint8).reshape(30, -1), noise(6, 30)[0]) and test_labels.tolist() == noise(6, 30)[1]

    prepare(folder, 2)
    assert len(run(folder, "--data", str(archive), "--epochs", "1")) == 2
    assert "learning from CIFAR-10: 50 of 100 images" in (folder / "logs" / "w2.out").read_text()


def test_pickles_of_either_numpy_are_read(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import images

    pixels, labels = noise(1, 2)
    content = pickle.dumps({b"labels": labels, b"data": pixels}, protocol=2)
    for other in (content.replace(b"numpy._core", b"numpy.core"), content.replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", b"numpy._core")):
        assert images._read_pickle(other)[1].tolist() == labels


def test_what_is_no_archive_of_cifar_s(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import images

    write_archive(tmp_path / "other.tar.gz", {"a.txt": b"a"})
    with pytest.raises(SystemExit, match="not a CIFAR-10 archive"):
        images.read_images(tmp_path / "other.tar.gz")
    evil = pickle.dumps({b"data": subprocess.Popen, b"labels": []})
    write_archive(tmp_path / "evil.tar.gz", {"data_batch_1": evil, "test_batch": evil})
    with pytest.raises(pickle.UnpicklingError, match="subprocess"):
        images.read_images(tmp_path / "evil.tar.gz")
