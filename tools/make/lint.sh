#!/bin/sh
# Runs clang-tidy on the C++ sources that ship, luacheck on the Lua sources, and shellcheck on the scripts if it is installed.
set -eu
cd "$(dirname "$0")/../.."
tools/make/sizes.py
git ls-files '*.lua' | xargs luacheck -q --no-color
tools/make/tree.sh debug polyverso_wire  # its compile commands list each file; other trees compile files together
if command -v shellcheck >/dev/null; then shellcheck -S warning tools/make/*.sh packaging/*/*.sh .ci/run; fi
git ls-files 'core/*.cpp' 'capi/src/*.cpp' 'tools/*.cpp' |
  xargs -r -n 1 -P "${JOBS:-$(nproc)}" clang-tidy -p build/debug --quiet --warnings-as-errors='*'
