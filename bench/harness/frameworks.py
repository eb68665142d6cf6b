"""The interpreters that have PyTorch or Theano: those of `make test-frameworks`."""

import subprocess
import sys

SKIPPED = "skipped: make test-frameworks installs it"


def interpreter(build, name, modules, environment):
    """The first interpreter that has these modules, beside ours: of build/frameworks/NAME, this one, or Debian's. None
    if there is none."""
    for python in (build / "frameworks" / name / "bin" / "python3", sys.executable, "/usr/bin/python3"):
        command = [python, "-B", "-c", "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]", "polyverso", *modules]
        try:
            if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False).returncode == 0:
                return python
        except OSError:
            pass  # it does not exist
    return None
