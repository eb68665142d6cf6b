#!/usr/bin/env python3
"""Checks that docs/ffi.md shows the marked lines of each runtime's program in this folder, and at most eight of them.

    docs_test.py DOCUMENT
"""

import re
import sys
from pathlib import Path

from run import HERE, RUNTIMES

MARKED = re.compile(r"^[^\n]*docs: begin\n(.+?)^[^\n]*docs: end$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```[^\n]+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST = 8


def main():
    document = Path(sys.argv[1])
    shown = FENCED.findall(document.read_text(encoding="utf-8"))
    bad = 0
    for runtime in RUNTIMES.values():
        marked = MARKED.findall((HERE / runtime.file).read_text(encoding="utf-8"))
        if len(marked) != 1 or marked[0].count("\n") > MOST:
            print(f"tests/ffi/{runtime.file}: {MOST} lines at most between `docs: begin` and `docs: end`, once")
            bad += 1
        elif marked[0] not in shown:
            print(f"{document.name} does not show the marked lines of tests/ffi/{runtime.file}, which are\n{marked[0]}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
