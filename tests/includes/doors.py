#!/usr/bin/env python3
"""Checks the includes of the sources against the table in docs/design.md: which room may include which. Also checks that
each folder of core/ is in the table: as a room, or by its name in the row of its room.

    doors.py ROOT

Prints one line for each forbidden include, `file:line: rule`, and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path

# A row of the table in docs/design.md: | `room` | what it is | rooms that it may include |
LINE = re.compile(r"^\| `([a-z_/]+)` \| ([^|]*) \|([a-z_/ ]*)\|$")

# Folders outside core/ that may include it: capi/src wraps it, the others use it through polyverso_testing.
MAY_INCLUDE_CORE = ("capi/src", "tests/unit", "tests/optimizers", "tests/sim", "tests/transport", "tests/fuzz", "tests/schedules", "tests/capi/unit", "bench")

# Headers of core/ that other folders may include: their sources do no I/O, and are compiled into these folders' programs.
MAY_INCLUDE_HEADER = {"lua/compat/ipc/native": {"wire/handshake.hpp"}, "tools": {"base/similar.hpp", "base/standard_descriptors.hpp"}, "tools/run": {"base/similar.hpp"}}

# Engines, and all rooms below them, have no I/O.
SYSTEM_IO = re.compile(r"uv\.h|sys/(socket|un|epoll|eventfd)\.h|(netinet|arpa)/.*|netdb\.h|poll\.h")
MAY_DO_IO = ("transport", "runtime", "doctor", "api/call", "api/gossip")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".c", ".h", ".cc", ".cpp", ".cu", ".hpp", ".i"}
PUBLIC_HEADER = "polyverso/"


DOORS = {}  # the table of docs/design.md: the rooms that each room may include, besides itself
ABOUT = {}  # what the table says about each room


def read_doors(root):
    text = (root / "docs" / "design.md").read_text(encoding="utf-8")
    rows = [match for match in map(LINE.match, text.splitlines()) if match]
    DOORS.clear()
    DOORS.update((row[1], set(row[3].split())) for row in rows)
    ABOUT.clear()
    ABOUT.update((row[1], row[2]) for row in rows)
    unknown = sorted({room for rooms in DOORS.values() for room in rooms} - DOORS.keys())
    if not DOORS or unknown:
        sys.exit(f"docs/design.md: {'the table of rooms is missing' if not DOORS else 'no such rooms: ' + ', '.join(unknown)}")


def room_of(path):
    """The room of a path relative to core/, or None."""
    folders = path.split("/")[:-1]
    names = ("/".join(folders[:depth]) for depth in (3, 2, 1) if len(folders) >= depth)
    return next((name for name in names if name in DOORS), None)


def does_io(room):
    return any(room == name or room.startswith(name + "/") for name in MAY_DO_IO)


def includes(file):
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def core_path(target, file, core):
    """The path relative to core/ of an include in `file`, or None if the file is outside core/."""
    if room_of(target):
        return target
    beside = (file.parent / target).resolve()
    return str(beside.relative_to(core)) if beside.is_file() and beside.is_relative_to(core) else None


def check_room(file, core):
    room = room_of(str(file.relative_to(core)))
    if room is None:
        yield 1, f"core/{file.relative_to(core)} lies in no room of core/: add its folder to the table in docs/design.md"
        return
    for number, quoted, target in includes(file):
        if ".." in target.split("/"):
            yield number, f'"{target}": name a header by its room, as in "base/result.hpp"'
            continue
        inner = core_path(target, file, core)
        used = room_of(inner) if inner else None
        if used and used != room and used not in DOORS[room]:
            below = ", ".join(sorted(DOORS[room])) or "no other room"
            yield number, f"{room} may not include {used}: {room} uses {below}"
        elif not used and quoted and not target.startswith(PUBLIC_HEADER):
            yield number, f'"{target}": no such room; what is not of core/ goes in angle brackets'
        elif not quoted and SYSTEM_IO.fullmatch(target) and not does_io(room):
            yield number, f"{room} may not include <{target}>: only {', '.join(MAY_DO_IO)} have I/O"


def check_folders(core):
    """Yields the folders with sources that the table does not name: as a room, or as `name/` in the row of their room."""
    for folder in sorted({file.parent for file in core.rglob("*") if file.suffix in SOURCES and file.parent != core}):
        path = str(folder.relative_to(core))
        room = room_of(f"{path}/")
        if room and room != path and f"{folder.name}/" not in re.findall(r"\w+/", ABOUT[room]):
            yield folder, f"the row of {room} in docs/design.md does not name {folder.name}/"


def check_outside(file, root, core):
    where = str(file.relative_to(root))
    if where.startswith(tuple(f"{folder}/" for folder in MAY_INCLUDE_CORE)):
        return
    allowed = MAY_INCLUDE_HEADER.get(str(file.parent.relative_to(root)), set())
    for number, _, target in includes(file):
        if target in allowed:
            continue
        inner = core_path(target, file, core)
        # A room's name alone proves nothing: <io/...> could be another project's. The file must exist.
        if inner and (core / inner).is_file() or target.startswith("core/"):
            yield number, f'"{target}": outside core/ only {", ".join(MAY_INCLUDE_CORE)} include it; use <polyverso/polyverso.h>'


def check(root):
    """Yields all forbidden includes below root as (file, line, rule)."""
    root = root.resolve()
    core = root / "core"
    read_doors(root)
    yield from ((folder.relative_to(root), 1, rule) for folder, rule in check_folders(core))
    for folder in ("core", "capi", "swig", "perl", "python", "lua", "tools", "examples", "tests", "bench"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            found = check_room(file, core) if folder == "core" else check_outside(file, root, core)
            yield from ((file.relative_to(root), number, rule) for number, rule in found)


def main():
    bad = list(check(Path(sys.argv[1])))
    for file, number, rule in bad:
        print(f"{file}:{number}: {rule}")
    if bad:
        print(f"{len(bad)} places contradict the table of rooms in docs/design.md")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
