#!/bin/bash
# Builds the trees of the given presets and runs their tests; a failure does not stop the others. Ends with ctest's
# summaries and one line: "test: ok ..." or "test: FAILED ...".
#   test.sh PRESET...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
jobs=${JOBS:-$(nproc)}
started=$SECONDS
summaries=
failed=

# GCC 12's sanitizers need address ranges that kernels with 32 bits of address randomization do not always leave free.
steady=()
if setarch "$(uname -m)" -R true 2>/dev/null; then steady=(setarch "$(uname -m)" -R); fi

run_tests() {
  case $1 in
    # The release tests run in the activated environment, as a user would.
    # Many of them wait for other processes, so three share two processors.
    release) (. build/activate && ctest --preset release -j $((jobs + jobs / 2))) ;;
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
