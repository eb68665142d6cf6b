#!/bin/bash
# Builds the given presets' trees and runs their tests, all of them even when one fails. Ends with ctest's summaries and
# one line: "test: ok ..." or "test: FAILED ...".
#   test.sh PRESET...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
jobs=${JOBS:-$(nproc)}
started=$SECONDS
summaries=
failed=

# GCC 12's sanitizers want memory where kernels that randomize addresses by 32 bits do not always put it.
steady=()
if setarch "$(uname -m)" -R true 2>/dev/null; then steady=(setarch "$(uname -m)" -R); fi

run_tests() {
  case $1 in
    # Its tests see what a user sees: the activated environment.
    release) (. build/activate && ctest --preset release -j "$jobs") ;;
    *) "${steady[@]}" ctest --preset "$1" -j "$jobs" ;;
  esac
}

for preset in "$@"; do
  tools/make/tree.sh "$preset" || { echo "test: FAILED: $preset does not build"; exit 1; }
done
for preset in "$@"; do
  log=build/test-$preset.log
  echo "== tests, $preset"
  run_tests "$preset" 2>&1 | tee "$log" || failed+=" $preset"
  summaries+="$preset: $(grep -E 'tests passed' "$log" || echo 'no tests ran')"$'\n'
done
printf '\n%s' "$summaries"
[ -z "$failed" ] || { echo "test: FAILED:$failed, after $((SECONDS - started)) s"; exit 1; }
echo "test: ok, in $((SECONDS - started)) s"
