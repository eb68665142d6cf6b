#!/usr/bin/env python3
"""Every function of the C headers is called by the C++ headers, or is in the list below with the reason.

    every_function.py SOURCE
"""

import re
import sys
from pathlib import Path

MANUAL = "for languages whose functions must not be called from C; C++ has a callback"
NOT_CALLED = {
    "kv_next_update": MANUAL,
    "kv_update_done": MANUAL,
    "kv_next_command": MANUAL,
    "kv_command_done": MANUAL,
    "mv_custom_begin": MANUAL,
    "mv_custom_next": MANUAL,
    "mv_custom_done": MANUAL,
    "mv_custom_end": MANUAL,
}


def main():
    include = Path(sys.argv[1]) / "capi/include/polyverso"
    headers = "\n".join(path.read_text() for path in sorted(include.glob("*.h")))
    wrapper = "\n".join(path.read_text() for path in sorted(include.rglob("*.hpp")))
    wrapper = re.sub(r"//.*", "", wrapper)
    functions = re.findall(r"^MV_API [^;]*?\b((?:mv|kv)_\w+)\(", headers, re.MULTILINE)
    if len(functions) < 150:
        sys.exit(f"only {len(functions)} functions found in {include}: has the headers' form changed?")
    called = set(re.findall(r"\b(?:mv|kv)_\w+", wrapper))
    forgotten = [name for name in functions if name not in called and name not in NOT_CALLED]
    stale = [name for name in NOT_CALLED if name in called or name not in functions]
    for name in forgotten:
        print(f"{name}: no C++ header calls it; add a function to capi/include/polyverso/cpp/, or a reason to {__file__}")
    for name in stale:
        print(f"{name}: is called, or does not exist; remove it from the list in {__file__}")
    print(f"{len(functions)} functions, {len(functions) - len(forgotten) - len(NOT_CALLED)} called")
    return 1 if forgotten or stale else 0


sys.exit(main())
