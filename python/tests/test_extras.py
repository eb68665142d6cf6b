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
