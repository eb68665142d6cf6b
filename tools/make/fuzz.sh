#!/bin/bash
# Fuzzes each parser for SECONDS. Inputs that reach new code are collected in build/fuzz/corpus. An input that fails is
# kept in build/fuzz/broken, and the command that reproduces it is printed.
#   fuzz.sh SECONDS
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/make/tree.sh fuzz
mkdir -p build/fuzz/corpus build/fuzz/broken

fuzz() {
  local program=$1 seconds=$2 name
  name=$(basename "$program")
  mkdir -p "build/fuzz/corpus/$name"
  if "$program" -max_total_time="$seconds" -timeout=10 -artifact_prefix="build/fuzz/broken/$name-" -print_final_stats=1 \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log") inputs, none broke it"
  else
    tail -n 40 "build/fuzz/$name.log"
    echo "$name: BROKEN; to see it again: $program build/fuzz/broken/$name-..."
    return 1
  fi
}
export -f fuzz
printf '%s\0' build/fuzz/bin/fuzz_* | xargs -0 -P "${JOBS:-$(nproc)}" -I{} bash -c 'fuzz "$1" "$2"' fuzz {} "$1"
