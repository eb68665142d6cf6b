#!/bin/sh
# Configures a preset's build tree if necessary, and builds it.
#   tree.sh PRESET [TARGET...]
set -eu
cd "$(dirname "$0")/../.."
preset=$1
shift
case $preset in
  release) folder=build ;;
  *) folder=build/$preset ;;
esac
# Only these trees contain the Python module.
case $preset in release | debug) tools/make/venv.sh "$folder" ;; esac
if [ ! -f "$folder/build.ninja" ] || [ ! -f "$folder/CMakeCache.txt" ] || [ -n "${CMAKE_FLAGS:-}" ]; then
  mkdir -p "$folder"
  # shellcheck disable=SC2086 # several flags
  cmake --preset "$preset" ${CMAKE_FLAGS:-} >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; exit 1; }
fi
cmake --build "$folder" --parallel "${JOBS:-$(nproc)}" ${1:+--target "$@"}
