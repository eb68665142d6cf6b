#!/usr/bin/env python3
"""doors.py finds each kind of forbidden include in a small made-up tree, and nothing else.

    doors_test.py
"""

import sys
import tempfile
from pathlib import Path

import doors

# path -> (contents, what the complaint about line 1 must contain, or None where nothing is wrong)
SAMPLE = {
    "core/base/clock.hpp": ("#include <chrono>\n", None),
    "core/base/up.hpp": ('#include "wire/frame.hpp"\n', "base may not include wire"),
    "core/wire/frame.hpp": ('#include "base/clock.hpp"\n', None),
    "core/table/shard.cpp": ('#include "engine/ps/server.hpp"\n', "table may not include engine/ps"),
    "core/table/beside.cpp": ('#include "../base/clock.hpp"\n', "by its room"),
    "core/engine/ps/server.hpp": ('#include "engine/rpc/rpc.hpp"\n#include "table/shard.hpp"\n', None),
    "core/engine/ps/io.cpp": ('#include "io/tcp/tcp.hpp"\n', "engine/ps may not include io/tcp"),
    "core/engine/ps/loop.cpp": ("#include <uv.h>\n", "only io and node have I/O"),
    "core/engine/rpc/rpc.hpp": ('#include "engine/cluster/cluster.hpp"\n', "engine/rpc may not include engine/cluster"),
    "core/engine/gossip/gossip.cpp": ('#include "engine/kvstore/store.hpp"\n', "engine/gossip may not include engine/kvstore"),
    "core/io/tcp/tcp.hpp": ('#include "io/loop/loop.hpp"\n#include <uv.h>\n', None),
    "core/io/tcp/clever.cpp": ('  #  include "engine/rpc/rpc.hpp"\n', "io/tcp may not include engine/rpc"),
    "core/node/node.cpp": ('#include "engine/ps/server.hpp"\n#include "io/tcp/tcp.hpp"\n', None),
    "core/util/strings.hpp": ("", "lies in no room"),
    "capi/src/table.cpp": ('#include "node/node.hpp"\n', None),
    "tools/main.cpp": ('#include "base/clock.hpp"\n', "outside core/"),
    "tests/capi/sneaky.cpp": ('#include "../../core/base/clock.hpp"\n', "outside core/"),
    "tests/unit/clock_test.cpp": ('#include "base/clock.hpp"\n', None),
    "examples/clock.c": ('#include "base/clock.h"  /* somebody else\'s */\n', None),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        for path, (text, _) in SAMPLE.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        found = {str(path): rule for path, line, rule in doors.check(Path(folder)) if line == 1}
    wrong = 0
    for path, (_, expected) in SAMPLE.items():
        rule = found.pop(path, None)
        if (rule is None) != (expected is None) or expected and expected not in rule:
            print(f"{path}: expected {expected!r}, got {rule!r}")
            wrong += 1
    return 1 if wrong or found else 0


if __name__ == "__main__":
    sys.exit(main())
