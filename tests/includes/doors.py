#!/usr/bin/env python3
"""Checks the doors of docs/design.md: which room of the sources may include which.

    doors.py ROOT

Prints one line a forbidden include, `file:line: rule`, and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path

# The rooms of core/, each with the rooms that it may use besides itself. What is not listed here has no door.
BASE = {"base"}
NUMBERS = BASE | {"math"}
TENSORS = NUMBERS | {"tensor"}
WIRE = TENSORS | {"wire"}
STORAGE = WIRE | {"table", "codec"}
RPC = STORAGE | {"engine/rpc"}
CLUSTER = RPC | {"engine/cluster"}
PS = CLUSTER | {"engine/ps"}
ROADS = {"io/inproc", "io/shm", "io/tcp", "io/faulty"}
ENGINES = PS | {"engine/status", "engine/kvstore", "engine/collective", "engine/gossip"}  # and "engine" itself: one node's engines together
LOOP = BASE | {"wire", "io/loop"}  # and "io" itself: what all roads have in common

DOORS = {
    "base": set(),
    "math": BASE,
    "tensor": NUMBERS,
    "wire": TENSORS,
    "table": WIRE,
    "codec": TENSORS,
    "telemetry": BASE,
    "engine/rpc": STORAGE,
    "engine/cluster": RPC,
    "engine/ps": CLUSTER,
    "engine/kvstore": PS,
    "engine/collective": PS,
    "engine/gossip": PS | {"telemetry"},
    "engine/status": PS | {"engine/collective"},  # which groups there are, and who waits in them
    "engine": ENGINES,
    "onehost": TENSORS | {"engine/collective"},  # of that what an operation is, and no messages
    "io/loop": BASE | {"wire"},
    "io": LOOP,
    **{road: LOOP | {"io"} for road in ROADS},
    "io/http": BASE | {"io"},
}
DOORS["node"] = set(DOORS)
DOORS["kvstore"] = STORAGE | {"node"}  # keys over tables: no wire, loop or engine of its own
DOORS["distlearn"] = STORAGE | {"node", "engine/collective"}  # strategies over groups and tables; of the engine, what operations are

# Folders outside core/ that may include it: capi/src wraps it, the others see it through polyverso_testing.
MAY_INCLUDE_CORE = ("capi/src", "tests/unit", "tests/optimizers", "tests/sim", "tests/transport", "tests/fuzz", "tests/schedules", "tests/capi/unit", "bench")

# Single headers of core/ for others: pure functions without anything of core/'s.
MAY_INCLUDE_HEADER = {"lua/native": {"wire/cpace.hpp"}}

# Engines, and everything below them, have no I/O.
SYSTEM_IO = re.compile(r"uv\.h|sys/(socket|un|epoll|eventfd)\.h|(netinet|arpa)/.*|netdb\.h|poll\.h")
MAY_DO_IO = {"node", "io", "io/loop", "io/http"} | ROADS

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".c", ".h", ".cc", ".cpp", ".hpp", ".i"}
PUBLIC_HEADER = "polyverso/"


def room_of(path):
    """The room that a path relative to core/ lies in, or None."""
    folders = path.split("/")[:-1]
    name = "/".join(folders[:2] if folders[:1] in (["engine"], ["io"]) else folders[:1])
    return name if name in DOORS else None


def includes(file):
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def core_path(target, file, core):
    """The path relative to core/ that an include from `file` means, or None if it means something else."""
    if room_of(target):
        return target
    beside = (file.parent / target).resolve()
    return str(beside.relative_to(core)) if beside.is_file() and beside.is_relative_to(core) else None


def check_room(file, core):
    room = room_of(str(file.relative_to(core)))
    if room is None:
        yield 1, f"core/{file.relative_to(core)} lies in no room of core/: add its folder to tests/includes/doors.py and docs/design.md"
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
        elif not quoted and SYSTEM_IO.fullmatch(target) and room not in MAY_DO_IO:
            yield number, f"{room} may not include <{target}>: only io and node have I/O"


def check_outside(file, root, core):
    where = str(file.relative_to(root))
    if where.startswith(tuple(f"{folder}/" for folder in MAY_INCLUDE_CORE)):
        return
    allowed = MAY_INCLUDE_HEADER.get(str(file.parent.relative_to(root)), set())
    for number, _, target in includes(file):
        if target in allowed:
            continue
        inner = core_path(target, file, core)
        # A room's name alone is no proof: an <io/...> could be anybody's. The file must exist.
        if inner and (core / inner).is_file() or target.startswith("core/"):
            yield number, f'"{target}": outside core/ only {", ".join(MAY_INCLUDE_CORE)} include it; use <polyverso/polyverso.h>'


def check(root):
    """All forbidden includes below root as (file, line, rule)."""
    root = root.resolve()
    core = root / "core"
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
        print(f"{len(bad)} includes go through no door; the rooms and their order are drawn in docs/design.md")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
