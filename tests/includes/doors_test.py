#!/usr/bin/env python3
"""Checks that doors.py finds each kind of forbidden include in a small sample tree, and nothing else.

    doors_test.py
"""

import shutil
import sys
import tempfile
from pathlib import Path

import doors

# path -> (contents, a part of the expected complaint about line 1, or None if there is none)
SAMPLE = {
    "core/base/clock.hpp": ("#include <chrono>\n", None),
    "core/base/up.hpp": ('#include "wire/frame.hpp"\n', "base may not include wire"),
    "core/wire/frame.hpp": ('#include "base/clock.hpp"\n', None),
    "core/shard/shard.cpp": ('#include "engine/table/server/server.hpp"\n', "shard may not include engine/table"),
    "core/shard/beside.cpp": ('#include "../base/clock.hpp"\n', "by its room"),
    "core/engine/table/server/server.hpp": ('#include "engine/rpc/rpc.hpp"\n#include "shard/shard.hpp"\n', None),
    "core/engine/table/io.cpp": ('#include "transport/tcp/tcp.hpp"\n', "engine/table may not include transport/tcp"),
    "core/engine/table/loop.cpp": ("#include <uv.h>\n", "have I/O"),
    "core/engine/rpc/rpc.hpp": ('#include "engine/cluster/cluster.hpp"\n', "engine/rpc may not include engine/cluster"),
    "core/engine/gossip/gossip.cpp": ('#include "engine/collective/group.hpp"\n', "engine/gossip may not include engine/collective"),
    "core/transport/tcp/tcp.hpp": ('#include "transport/loop/loop.hpp"\n#include <uv.h>\n', None),
    "core/transport/tls/openssl/deep.cpp": ('#include "transport/transport.hpp"\n', "transport/tls/openssl may not include transport"),
    "core/transport/tcp/clever.cpp": ('  #  include "engine/rpc/rpc.hpp"\n', "transport/tcp may not include engine/rpc"),
    "core/runtime/runtime.cpp": ('#include "engine/table/server/server.hpp"\n#include "transport/tcp/tcp.hpp"\n', None),
    "core/util/strings.hpp": ("", "lies in no room"),
    "core/shard/keyed/index.hpp": ("", None),
    "core/shard/forgotten/index.hpp": ("", None),
    "capi/src/table.cpp": ('#include "api/node/node.hpp"\n', None),
    "tools/main.cpp": ('#include "base/clock.hpp"\n', "outside core/"),
    "tests/capi/sneaky.cpp": ('#include "../../core/base/clock.hpp"\n', "outside core/"),
    "tests/unit/clock_test.cpp": ('#include "base/clock.hpp"\n', None),
    "examples/clock.c": ('#include "base/clock.h"  /* somebody else\'s */\n', None),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "docs").mkdir()
        shutil.copy(Path(__file__).resolve().parents[2] / "docs" / "design.md", Path(folder, "docs"))
        for path, (text, _) in SAMPLE.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        found = {str(path): rule for path, line, rule in doors.check(Path(folder)) if line == 1}
    wrong = 0 if "does not name forgotten/" in found.pop("core/shard/forgotten", "") else 1
    for path, (_, expected) in SAMPLE.items():
        rule = found.pop(path, None)
        if (rule is None) != (expected is None) or expected and expected not in rule:
            print(f"{path}: expected {expected!r}, got {rule!r}")
            wrong += 1
    return 1 if wrong or found else 0


if __name__ == "__main__":
    sys.exit(main())
