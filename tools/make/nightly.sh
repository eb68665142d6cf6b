#!/bin/bash
# Looks where `make test` has no time to: seeds of the simulator that no night has tried, and an hour of fuzzing.
# A failing seed prints the command that replays it.
#   nightly.sh     NIGHTLY_SEEDS=200000  NIGHTLY_FUZZ_SECONDS=1200 (for each parser)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
seeds=${NIGHTLY_SEEDS:-200000}
first=$(date +%s)
failed=

tools/make/test.sh release asan tsan || failed+=" test"
echo "== simulator, seeds from $first"
build/bin/sim_test --seeds "$first..$((first + seeds))" || failed+=" seeds"
build/bin/sim_test --seeds "$first..$((first + seeds / 500))" --nodes 200 || failed+=" many-nodes"
build/asan/bin/sim_test --seeds "$first..$((first + seeds / 20))" || failed+=" asan-seeds"
echo "== fuzzing"
tools/make/fuzz.sh "${NIGHTLY_FUZZ_SECONDS:-1200}" || failed+=" fuzz"
[ -z "$failed" ] || { echo "nightly: FAILED:$failed"; exit 1; }
echo "nightly: ok"
