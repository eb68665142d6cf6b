"""What the modules for other packages say if these are not installed."""

import subprocess
import sys

import pytest

# Makes Python say that a package is not installed, whether it is or not.
WITHOUT = """
import sys
class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {0!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without)
import {1}
"""


def last_line(package, module):
    """The end of the message of `import module` without the package."""
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(package, module)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("module", "package"), [
    ("polyverso.ray", "ray"), ("polyverso.jax", "jax"), ("polyverso.torch", "torch"), ("polyverso.keras", "keras"),
    ("polyverso.gossip.torch", "torch"), ("polyverso.gossip.keras", "keras"),
])
def test_a_missing_package_is_named_with_what_installs_it(module, package):
    assert last_line(package, module) == (
        f"ModuleNotFoundError: this module needs {package}, which is not installed: "
        f"`python3 -m pip install 'polyverso[{package}]'` installs it")


def test_other_missing_modules_stay_as_they_are():
    assert "polyverso[" not in last_line("numpy", "polyverso.gossip.torch")


RAY = """
import os, pathlib, sys, time
from unittest.mock import MagicMock
for name in ("ray", "ray.exceptions", "ray.util", "ray.util.placement_group", "ray.util.scheduling_strategies"):
    sys.modules[name] = MagicMock()
from polyverso.ray import _Worker

before, file = dict(os.environ), pathlib.Path(sys.argv[1])
rank = 1 - int(before["POLYVERSO_RANK"])
worker = _Worker()
if rank == 0:
    file.with_suffix(".new").write_text(f"127.0.0.1:{worker.listen('127.0.0.1')}")
    file.with_suffix(".new").rename(file)
while not file.exists():
    time.sleep(0.01)
place = {"rank": rank, "nodes": 2, "role": "all", "master": file.read_text(), "secret": "of ray", "bind": "127.0.0.1"}
result = worker.work(lambda node, text: (text, node.rank, node.num_workers), ["arguments"], place)
assert result == (("arguments", rank, 2),), result
assert dict(os.environ) == before
print("worked")
"""


def test_workers_of_ray_in_processes_of_polyverso_run_have_a_cluster_of_their_own(tmp_path):
    """Rank 0 dropped its socket, because the run's address was another one. tests/engines has the real Ray."""
    command = ["polyverso", "run", "-n", "2", "--", sys.executable, "-c", RAY, str(tmp_path / "master")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("worked") == 2, done.stdout + done.stderr
