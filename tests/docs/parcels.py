#!/usr/bin/env python3
"""Checks that the compatibility parcels are separate from the core, and that the table "What it takes from the core" in
the README of each parcel lists exactly the modules and headers that its sources use.

    parcels.py SOURCE
"""

import re
import sys
from pathlib import Path

PARCELS = (
    "capi/multiverso",
    "perl/AI-MXNet",
    "python/compat/dpwa",
    "python/compat/multiverso",
    "lua/compat/ipc",
    "lua/compat/multiverso",
    "lua/compat/torch",
)
TESTS = ("t", "tests", "spec")

# What a source of each kind uses: modules of Polyverso, and headers outside the parcel.
USES = {
    ".pm": re.compile(r"^\s*(?:use|require) (Polyverso(?:::\w+)*)", re.MULTILINE),
    ".py": re.compile(r"^\s*(?:from (polyverso(?:\.\w+)*) import|import (polyverso(?:\.\w+)*)|from (polyverso) import (\w+))", re.MULTILINE),
    ".lua": re.compile(r"require\(?\s*[\"'](polyverso(?:\.\w+)*)"),
    ".c": re.compile(r'#include [<"]((?:polyverso|wire)/\w+\.h(?:pp)?)[>"]'),
}
USES[".cpp"] = USES[".hpp"] = USES[".h"] = USES[".c"]

# What the core must not name: a module of a parcel, where it is loaded.
FOREIGN = re.compile(
    r"^[^#\n]*\b(?:use|require|import|from) *\(?[\"']?(?:AI::MXNet|multiverso\b|dpwa\b|libipc|ipc\.|torch[\"']|distlearn\.|regress)", re.MULTILINE
)
CORES = ("perl/lib", "python/polyverso", "lua/polyverso")
TABLE = re.compile(r"^## What it takes from the core\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def sources(folder, kinds):
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in kinds and path.is_file()]
    return [path for path in files if path.relative_to(folder).parts[0] not in TESTS]


def own_modules(folder):
    """The modules named polyverso... that the parcel itself contains."""
    compiled = {"polyverso.ipc"} if (folder / "native").is_dir() else set()
    return compiled | {f"polyverso.{path.stem}" for path in (folder / "polyverso").glob("*.lua")}


def used(folder):
    found = set()
    for path in sources(folder, USES):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".pm":
            text = re.sub(r"^=\w.*?(?:^=cut$|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)
        for match in USES[path.suffix].finditer(text):
            found.add(next(filter(None, match.groups())))
        if path.suffix == ".py":  # from polyverso import capi, gossip
            for names in re.findall(r"^\s*from polyverso import ([\w, ]+)", text, re.MULTILINE):
                found |= {f"polyverso.{name}" for name in names.replace(" ", "").split(",")}
                found.discard("polyverso")
    # A library's own modules are loaded by the main one.
    return found - own_modules(folder) - {"Polyverso::CAPI"}


def listed(readme):
    table = TABLE.search(readme.read_text(encoding="utf-8"))
    return set(re.findall(r"^\| `([^`]+)`", table[1], re.MULTILINE)) if table else set()


def main():
    source = Path(sys.argv[1]).resolve()
    bad = 0
    for parcel in PARCELS:
        folder = source / parcel
        readme, uses = listed(folder / "README.md"), used(folder)
        for name in sorted(uses - readme):
            print(f"{parcel}/README.md: it does not list {name}, which the sources use")
        for name in sorted(readme - uses):
            print(f"{parcel}/README.md: it lists {name}, which no source uses")
        bad += len(uses ^ readme)
        if not uses:
            print(f"{parcel}: no source uses the core")
            bad += 1
    for core in CORES:
        for path in sources(source / core, {".pm", ".py", ".lua"}):
            for match in FOREIGN.finditer(path.read_text(encoding="utf-8")):
                print(f"{path.relative_to(source)}: the core must not load a compatibility module: {match[0].strip()}")
                bad += 1
    print(f"{len(PARCELS)} parcels, {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
