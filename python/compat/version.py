"""The version of polyverso-compat, for its build: the library's, which is written only in its header."""

import pathlib
import re

_header = pathlib.Path(__file__).resolve().parents[2] / "capi/include/polyverso/polyverso.h"
__version__ = ".".join(re.findall(r"^#define MV_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", _header.read_text(), re.M))
