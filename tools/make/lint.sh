#!/bin/sh
# clang-tidy on the C++ sources that ship, shellcheck on the scripts where it is there.
set -eu
cd "$(dirname "$0")/../.."
tools/make/tree.sh debug polyverso_wire  # it has a line for each file, which are compiled together elsewhere
if command -v shellcheck >/dev/null; then shellcheck -S warning tools/make/*.sh .ci/run; fi
git ls-files 'core/*.cpp' 'capi/src/*.cpp' 'tools/*.cpp' |
  xargs -r -n 1 -P "${JOBS:-$(nproc)}" clang-tidy -p build/debug --quiet --warnings-as-errors='*'
