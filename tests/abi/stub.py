#!/usr/bin/env python3
"""Prints a C file that defines every function of a public header, without content.

    stub.py HEADER COMPILER

Compiled with debug information it has the ABI that the header promises, in a form that abidiff reads, for any commit and in
seconds. abi.py checks that the real library exports these functions, and no others.
"""

import re
import sys
from pathlib import Path

from abi import functions, preprocessed


def main():
    header, compiler = Path(sys.argv[1]), sys.argv[2]
    print(f'#include "{header.resolve()}"')
    for _, prototype in functions(preprocessed(header, compiler)):
        prototype = re.sub(r'extern "C" \{?', "", prototype).strip()
        print(f"{prototype} {{ return 0; }}")


if __name__ == "__main__":
    main()
