"""What the modules for other packages say if these are not installed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("module", "package"), [
    ("polyverso.ray", "ray"), ("polyverso.jax", "jax"), ("polyverso.torch", "torch"), ("polyverso.keras", "keras"),
    ("polyverso.gossip.torch", "torch"), ("polyverso.gossip.keras", "keras"),
])
def test_a_missing_package_is_named_with_what_installs_it(module, package):
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"  # as if it were not installed
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: this module needs {package}, which is not installed: "
        f"`python3 -m pip install 'polyverso[{package}]'` installs it")


def test_other_missing_modules_stay_as_they_are():
    program = "import sys; sys.modules['numpy'] = None; import polyverso.gossip.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "polyverso[" not in done.stderr.splitlines()[-1]
