"""`python3 -m polyverso` runs the command-line tool `polyverso`; the wheel's command `polyverso` is the same.

    cc train.c $(python3 -m polyverso --includes) $(python3 -m polyverso --libs)
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import sys
import sysconfig
from typing import Optional

from . import capi

_HELP = """\
Of this Python package:
  --includes   prints the compiler's options for programs that include <polyverso/polyverso.h>
  --libs       prints the linker's options for these programs, with an rpath

Of the tool polyverso:
"""


def _beside(*names: str) -> Optional[pathlib.Path]:
    """The first of these paths that exists, relative to this package's folder, a folder around it, or a prefix."""
    for folder in pathlib.Path(__file__).absolute().parents:
        for name in names:
            if (folder / name).exists():
                return folder / name
    return None


def tool() -> Optional[str]:
    """The tool of the same wheel, build or prefix as this package, otherwise the one in PATH."""
    for folder in pathlib.Path(__file__).absolute().parents:
        beside = folder / "bin" / "polyverso"
        if os.access(beside, os.X_OK) and beside.absolute() != pathlib.Path(sys.argv[0]).absolute():
            return str(beside)
    found = shutil.which("polyverso")
    is_this = found is not None and os.path.realpath(found) == os.path.realpath(sys.argv[0])
    return None if is_this else found


def includes() -> str:
    """The compiler's options for the headers."""
    header = _beside("include/polyverso/polyverso.h", "capi/include/polyverso/polyverso.h")
    if header is None:
        sys.exit("python3 -m polyverso: the headers are not installed; Debian has them in the package libpolyverso-dev")
    return shlex.quote(f"-I{header.parent.parent}")


def libs() -> str:
    """The linker's options for the library."""
    name = f"libpolyverso.so.{capi.MV_VERSION_MAJOR}"
    library = _beside(f"lib/{name}", f"lib/{sysconfig.get_config_var('MULTIARCH')}/{name}")
    if library is None:
        sys.exit(f"python3 -m polyverso: there is no {name} beside this package; try pkg-config --libs polyverso")
    return shlex.join([f"-L{library.parent}", f"-l:{name}", f"-Wl,-rpath,{library.parent}"])


def main() -> None:
    """Prints what the package alone knows; for everything else, replaces this process by the tool."""
    wanted = sys.argv[1:]
    if wanted and all(one in ("--includes", "--libs") for one in wanted):
        print(*(includes() if one == "--includes" else libs() for one in wanted))
        return
    if wanted in (["--help"], ["-h"]):
        print(_HELP, end="", flush=True)
    found = tool()
    if found is None:
        own = _beside("bin/polyverso")
        if own is not None and not os.access(own, os.X_OK):
            sys.exit(f"python3 -m polyverso: {own} can't be executed: check its mode, and how its file system is mounted")
        sys.exit("python3 -m polyverso: there is no program polyverso in PATH; it is installed into the prefix's bin")
    os.execv(found, ["polyverso", *wanted])


if __name__ == "__main__":
    main()
