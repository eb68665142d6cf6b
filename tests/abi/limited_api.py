"""Whether the sources of the Python module use only CPython's stable ABI, to which wheels are limited. The module of this
build tree is not limited, so its compiler would not notice.

    limited_api.py CC SOURCE_ROOT
"""

import pathlib
import re
import subprocess
import sys
import sysconfig


def declared(compiler):
    """All identifiers that <Python.h> declares or defines for the limited API."""
    command = [compiler, "-E", "-dD", "-DPy_LIMITED_API=0x030B0000", f"-I{sysconfig.get_path('include')}", "-xc", "-"]
    text = subprocess.run(command, input="#include <Python.h>\n", capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\b_?Py\w+", text))


def used(path):
    """{identifier: line} of what a file takes from CPython."""
    text = path.read_text()
    plain = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|//[^\n]*", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.S)
    return {found.group(): plain.count("\n", 0, found.start()) + 1 for found in re.finditer(r"\b_?Py[A-Z_]?\w+\b", plain)}


def main(compiler, root):
    known = declared(compiler)
    wrong = [
        f"{path}:{line}: {name} is not in the limited API of CPython 3.11, for which wheels are compiled"
        for path in sorted(pathlib.Path(root, "swig").glob("*.[hi]"))
        for name, line in used(path).items()
        if name not in known
    ]
    for line in wrong:
        print(line)
    print(f"{len(known)} identifiers of the limited API, {len(wrong)} others used")
    return 1 if wrong or len(known) < 500 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
