# shellcheck shell=bash
# For scripts that run tests: builds the trees of other presets meanwhile, with the processors' time that the tests leave.
# They run only when a processor has nothing else to do.

ahead=

# build_ahead PRESET...: begins, in the background.
build_ahead() {
  [ $# -gt 0 ] || return 0
  stop_ahead
  # shellcheck disable=SC2016 # the inner shell's
  setsid chrt --idle 0 bash -c 'for preset; do tools/make/tree.sh "$preset" || exit; done' build_ahead "$@" >build/ahead.log 2>&1 &
  ahead=$!
}

# stop_ahead: ends it, with all that it has started. What is built stays.
stop_ahead() {
  [ -n "$ahead" ] || return 0
  kill -- "-$ahead" 2>/dev/null
  wait "$ahead" 2>/dev/null
  while kill -0 -- "-$ahead" 2>/dev/null; do sleep 0.1; done
  ahead=
}
trap stop_ahead EXIT
