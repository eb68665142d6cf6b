#!/usr/bin/env python3
"""abi.py notices what it is there for: a field that moved, a parameter, an enumerator, a symbol that leaked.

    abi_test.py COMPILER
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HEADER = """
#include <stdint.h>
#define API __attribute__((visibility("default")))
enum colour { RED = 1, GREEN = 2 };
typedef struct point { uint32_t x; uint64_t y, z; } point;
API int32_t paint(const point *where, enum colour colour);
"""
SOURCE = '#include "shape.h"\nint32_t paint(const point *where, enum colour colour) { return (int32_t)where->x + (int32_t)colour; }\n'

CHANGES = {
    "a field moved": (HEADER.replace("y, z", "z, y"), SOURCE),
    "an enumerator": (HEADER.replace("GREEN = 2", "GREEN = 3"), SOURCE),
    "a parameter": (HEADER.replace("const point", "point"), SOURCE.replace("const point", "point")),
    "a leak": (HEADER, SOURCE + "void helper(void) {}\n"),
    "not exported": (HEADER + "API void missing(void);\n", SOURCE),
}


def run(folder, action, compiler, header, source):
    (folder / "shape.h").write_text(header)
    (folder / "shape.c").write_text(source)
    library = folder / "libshape.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "shape.c"], check=True)
    arguments = [action, folder / "abi.txt", "--header", folder / "shape.h", "--library", library, "--compiler", compiler]
    done = subprocess.run([sys.executable, Path(__file__).with_name("abi.py"), *arguments], stdout=subprocess.PIPE, text=True)
    return done.stdout  # empty: nothing to complain about


def main():
    compiler = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = []
        if run(folder, "update", compiler, HEADER, SOURCE) or run(folder, "check", compiler, HEADER, SOURCE):
            wrong.append("the unchanged library is refused")
        wrong += [f"not noticed: {what}" for what, (header, source) in CHANGES.items() if not run(folder, "check", compiler, header, source)]
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
