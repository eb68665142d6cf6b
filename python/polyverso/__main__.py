"""`python3 -m polyverso` runs the command-line tool `polyverso`."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import Optional


def tool() -> Optional[str]:
    """The tool of the same build or prefix as this package, otherwise the one in PATH."""
    for folder in pathlib.Path(__file__).absolute().parents:
        beside = folder / "bin" / "polyverso"
        if os.access(beside, os.X_OK):
            return str(beside)
    return shutil.which("polyverso")


def main() -> None:
    """Replaces this process by the tool."""
    found = tool()
    if found is None:
        sys.exit("python3 -m polyverso: there is no program polyverso in PATH; it is installed into the prefix's bin")
    os.execv(found, ["polyverso", *sys.argv[1:]])


if __name__ == "__main__":
    main()
