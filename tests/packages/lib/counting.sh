# Counts tests, for the scripts of tests/packages that source it.
#   check NAME COMMAND...   runs it; its output is shown if it fails
#   result                  prints `N passed, N failed`; the status is 1 if one failed
# shellcheck shell=bash
passed=0
failed=0
counting_log=$(mktemp)

check() {
  local name=$1 started=$SECONDS status=0
  shift
  "$@" >"$counting_log" 2>&1 </dev/null || status=$?
  if [ $status = 0 ]; then
    passed=$((passed + 1))
    echo "ok: $name, $((SECONDS - started)) s"
  else
    failed=$((failed + 1))
    tail -n 100 "$counting_log"
    echo "FAILED: $name: exit status $status, $((SECONDS - started)) s"
  fi
}

# A reason to end early, which counts as a failed test.
fatal() {
  echo "FAILED: $*"
  failed=$((failed + 1))
  result
  exit 1
}
fail() { fatal "$@"; }

result() {
  rm -f "$counting_log"
  echo "$passed passed, $failed failed"
  [ $failed = 0 ]
}
