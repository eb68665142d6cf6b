#!/bin/bash
# Builds the trees of the given presets and runs their tests; a failure does not stop the others. Ends with ctest's
# summaries and one line: "test: ok ..." or "test: FAILED ...".
#   test.sh PRESET...       AHEAD="PRESET...": trees that somebody needs later, to be built beside the tests
#                           THOROUGH=yes: in the release tree also the tests with the label "thorough"
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
. tools/make/ahead.sh
jobs=${JOBS:-$(nproc)}
release=${THOROUGH:+thorough}
release=${release:-release}
started=$SECONDS
summaries=
failed=
repeated=

# GCC 12's sanitizers need address ranges that kernels with 32 bits of address randomization do not always leave free.
steady=()
if setarch "$(uname -m)" -R true 2>/dev/null; then steady=(setarch "$(uname -m)" -R); fi

run_tests() { # PRESET [OPTION OF CTEST...]
  local preset=$1
  shift
  case $preset in
    # The release tests run in the activated environment, as a user would.
    # Many of them wait for other processes, so four share two processors.
    release) (. build/activate && ctest --preset "$release" -j $((2 * jobs)) "$@") ;;
    *) "${steady[@]}" ctest --preset "$preset" -j "$jobs" "$@" ;;
  esac
}

# In CI, tests that have failed run once more, alone. One that passes then does not refuse a change, but the log names it: it, or the library,
# depends on what else the machine does. Elsewhere a failure stays a failure.
repeat_failed() { # PRESET
  [ "${CI:-}" = true ] || return 1
  echo "== $1: the tests that failed run once more, alone"
  run_tests "$1" --rerun-failed -j 1 2>&1 | tee "build/test-$1-again.log" || return 1
  repeated+=" $(grep -c ' Passed ' "build/test-$1-again.log") ($1)"
}

while [ $# -gt 0 ]; do
  preset=$1
  shift
  targets=()
  if [ "$preset" = release ] && [ "$release" = thorough ]; then targets=(all thorough); fi
  tools/make/tree.sh "$preset" "${targets[@]}" || { echo "test: FAILED: $preset does not build"; exit 1; }
  log=build/test-$preset.log
  echo "== tests, $preset"
  # shellcheck disable=SC2086 # several presets
  build_ahead "$@" ${AHEAD:-} # stopped before failed tests are repeated
  run_tests "$preset" 2>&1 | tee "$log"
  passed=${PIPESTATUS[0]}
  stop_ahead
  [ "$passed" = 0 ] || repeat_failed "$preset" || failed+=" $preset"
  summaries+="$preset: $(grep -E 'tests passed' "$log" || echo 'no tests ran')"$'\n'
done
printf '\n%s' "$summaries"
[ -z "$repeated" ] || echo "test: passed only when they ran alone:$repeated"
[ -z "$failed" ] || { echo "test: FAILED:$failed, after $((SECONDS - started)) s"; exit 1; }
echo "test: ok, in $((SECONDS - started)) s"
