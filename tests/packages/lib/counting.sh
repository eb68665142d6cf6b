# Counts tests, for the scripts of tests/packages that source it.
#   check NAME COMMAND...   runs it; its output is shown if it fails
#   result                  prints `N passed, N failed`; the status is 1 if one failed
# shellcheck shell=bash
passed=0
failed=0
counting_log=$(mktemp)

check() {
  # Names that no command uses: a function that is called here sees these locals.
  local check_name=$1 check_started=$SECONDS check_status=0
  shift
  "$@" >"$counting_log" 2>&1 </dev/null || check_status=$?
  if [ $check_status = 0 ]; then
    passed=$((passed + 1))
    echo "ok: $check_name, $((SECONDS - check_started)) s"
  else
    failed=$((failed + 1))
    tail -n 100 "$counting_log"
    echo "FAILED: $check_name: exit status $check_status, $((SECONDS - check_started)) s"
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
