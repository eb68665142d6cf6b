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
folder() { if [ "$1" = release ]; then echo build; else echo "build/$1"; fi; }

for preset in "$@"; do
  tools/make/tree.sh "$preset" || { echo "test: FAILED: $preset does not build"; exit 1; }
done
for preset in "$@"; do
  log=$(folder "$preset")/test.log
  echo "== tests, $preset"
  if [ "$preset" = release ]; then
    # The release tree's tests see what a user sees: the activated environment.
    (. build/activate && ctest --test-dir build -j "$jobs" --output-on-failure --no-tests=error) 2>&1 | tee "$log"
  else
    ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error 2>&1 | tee "$log"
  fi || failed+=" $preset"
  summaries+="$preset: $(grep -E 'tests passed' "$log" || echo 'no tests ran')"$'\n'
done
printf '\n%s' "$summaries"
[ -z "$failed" ] || { echo "test: FAILED:$failed, after $((SECONDS - started)) s"; exit 1; }
echo "test: ok, in $((SECONDS - started)) s"
