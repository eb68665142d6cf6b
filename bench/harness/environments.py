"""Environments for packages of PyPI that a peer needs, so that the build tree's own Python stays as it is."""

import shutil
import subprocess
import sys
from dataclasses import dataclass

LIMIT_S = 300  # limit of one command of an installation
DEBIAN = "/usr/bin/python3"


class Unavailable(Exception):
    """A package is not available here; the text says why."""


@dataclass(frozen=True)
class Environment:
    """title: of the package, for messages. folder: the environment's. probe: Python that fails if the package does not
    work. debian: Python that Debian's interpreter must run before; the environment then has that interpreter and sees
    Debian's packages."""

    title: str
    folder: str
    requirements: tuple
    probe: str
    debian: str = ""

    def interpreter(self, parent, progress):
        """Returns the interpreter of the environment in the folder `parent`. Installs the environment unless it is there."""
        folder = parent / self.folder
        python, stamp = folder / "bin" / "python3", folder / "complete"
        wanted = "\n".join(self.requirements) + "\n"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return python
        progress(f"{self.title}: installing it into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for command in self.commands(folder, python):
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"{self.title} can't be installed: {last_line(error)}") from error
        stamp.write_text(wanted, encoding="utf-8")
        return python

    def commands(self, folder, python):
        if self.debian:
            yield [DEBIAN, "-c", self.debian]
            yield [DEBIAN, "-m", "venv", "--system-site-packages", str(folder)]
        else:
            base = getattr(sys, "_base_executable", sys.executable)  # not this environment, which may see other packages
            yield [base, "-m", "venv", str(folder)]
        yield [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *self.requirements]
        yield [str(python), "-c", self.probe]


def last_line(error):
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
