#!/bin/bash
# The tests that take too long for `make test`: simulator seeds that no earlier night has used, killed ranks, and an
# hour of fuzzing. A failing seed prints the command that replays it.
#   nightly.sh     NIGHTLY_SEEDS=200000  NIGHTLY_CALLS=10000000  NIGHTLY_RUNS=1000 (clusters)  NIGHTLY_FUZZ_SECONDS=1200 (for each parser)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
seeds=${NIGHTLY_SEEDS:-200000}
first=$(date +%s)
failed=

tools/make/test.sh release asan tsan || failed+=" test"
echo "== simulator, seeds from $first"
build/bin/sim_test --seeds "$first..$((first + seeds))" || failed+=" seeds"
build/bin/sim_test --replicas 1 --seeds "$first..$((first + seeds))" || failed+=" replicas"
build/bin/sim_test --replicas 2 --seeds "$first..$((first + seeds))" || failed+=" chains"
build/bin/sim_test --replicas 1 --masters --seeds "$first..$((first + seeds))" || failed+=" masters"
build/bin/sim_test --replicas 2 --masters --seeds "$first..$((first + seeds))" || failed+=" masters-of-chains"
for how in drains grows; do
  build/bin/sim_test --$how --replicas 1 --masters --seeds "$first..$((first + seeds))" || failed+=" $how-and-masters"
done
build/bin/sim_test --elastic --replicas 1 --masters --seeds "$first..$((first + seeds))" || failed+=" elastic-masters"
for how in drains grows elastic; do
  build/bin/sim_test --$how --seeds "$first..$((first + seeds))" || failed+=" $how"
  for replicas in 1 2; do
    build/bin/sim_test --$how --replicas $replicas --seeds "$first..$((first + seeds))" || failed+=" $how-with-$replicas-replicas"
  done
done
build/bin/sim_test --seeds "$first..$((first + seeds / 500))" --nodes 200 || failed+=" many-nodes"
for how in "" "--replicas 1 --masters" "--drains --replicas 2" "--grows --replicas 1" "--elastic --replicas 1"; do
  # shellcheck disable=SC2086 # several options
  build/asan/bin/sim_test $how --seeds "$first..$((first + seeds / 40))" || failed+=" asan-seeds$how"
done
for replicas in 0 1 2; do
  build/bin/sim_checkpoints --replicas $replicas --seeds "$first..$((first + seeds / 2))" || failed+=" checkpoints-with-$replicas-replicas"
  build/bin/sim_rounds --replicas $replicas --seeds "$first..$((first + seeds / 2))" || failed+=" rounds-with-$replicas-replicas"
done
build/bin/sim_checkpoints --replicas 3 --seeds "$first..$((first + seeds / 2))" || failed+=" checkpoints-of-long-chains"
build/bin/sim_status --seeds "$first..$((first + seeds / 50))" || failed+=" status"
build/bin/sim_channel --seeds "$first..$((first + seeds / 50))" || failed+=" channel"
build/bin/sim_collective --seeds "$first..$((first + seeds / 10))" || failed+=" collective"
build/bin/sim_collective --seeds "$first..$((first + seeds / 20000))" --nodes 300 || failed+=" many-ranks"
build/bin/sim_gossip --seeds "$first..$((first + seeds / 50))" || failed+=" gossip"
build/bin/sim_members --seeds "$first..$((first + seeds / 50))" || failed+=" members"
for members in 100 1000 10000; do
  build/bin/sim_members --seed "$first" --nodes "$members" || failed+=" $members-members"
done
echo "== ranks beside one that scribbles over its memory"
build/asan/bin/unit_intranode_vandal_test 1000000 "$first" || failed+=" vandal"
echo "== every allocation fails once"
(. build/activate && ALLOCATION_WORKER=build/bin/allocation_worker python3 -B tests/faults/allocations.py) || failed+=" allocations"
(. build/activate && ALLOCATION_WORKER=build/bin/allocation_worker python3 -B tests/faults/give_back.py --sample 300) || failed+=" give-back"
echo "== system calls fail"
(. build/activate && SYSTEM_CALL_WORKER=build/bin/system_call_worker python3 -B tests/faults/system_calls.py --seeds "$first..$((first + seeds / 100))") ||
  failed+=" system-calls"
echo "== schedules of threads"
for scenario in loop intranode shm queue; do
  build/bin/schedules "$scenario" --seeds "$first..$((first + seeds / 4))" || failed+=" $scenario-schedules"
done
echo "== models"
tests/models/nightly.sh || failed+=" models"
echo "== random calls on random handles, seed $first"
calls=${NIGHTLY_CALLS:-10000000}
export ASAN_OPTIONS=detect_leaks=1:handle_sigill=1:check_initialization_order=1:strict_string_checks=1
export TSAN_OPTIONS="second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp"
for tree in build/asan build/tsan; do
  setarch "$(uname -m)" -R "$tree/bin/capi_random_handles" --seed "$first" --calls "$calls" || failed+=" $tree-handles"
  tests/parity/random_handles.sh build "$PWD/$tree" "$first" $((calls / 100)) || failed+=" $tree-languages"
done
echo "== clusters of random members"
(. build/activate && python3 -B tests/soak/soak.py --seeds "$first-$((first + ${NIGHTLY_RUNS:-1000} - 1))") || failed+=" soak"
echo "== servers with back-ups are killed and stopped"
(. build/activate && HISTORY_WORKER=build/bin/history_worker python3 -B tests/history/history.py --gap 0.5 1.5 --seeds "$first-$((first + ${NIGHTLY_RUNS:-1000} - 1))") ||
  failed+=" history"
(. build/activate && HISTORY_WORKER=build/bin/history_worker python3 -B tests/history/history.py --faults 10 --gap 0.5 1.5 --seeds "$first-$((first + ${NIGHTLY_RUNS:-1000} / 5))") ||
  failed+=" returns"
(. build/activate && HISTORY_WORKER=build/bin/history_worker python3 -B tests/history/history.py --faults 10 --etcd --seeds "$first-$((first + ${NIGHTLY_RUNS:-1000} / 5))")
case $? in 0 | 77) ;; *) failed+=" history-with-etcd" ;; esac
for how in "--masters" "--consistency merged" "--consistency sync" "--hosts" "--hosts --masters --consistency any"; do
  # shellcheck disable=SC2086 # several options
  (. build/activate && HISTORY_WORKER=build/bin/history_worker python3 -B tests/history/history.py --faults 10 $how --seeds "$first-$((first + ${NIGHTLY_RUNS:-1000} / 10))")
  case $? in 0 | 77) ;; *) failed+=" history$how" ;; esac
done
echo "== groups, 200 ranks killed or stopped"
(. build/activate && cd tests/cluster && POLYVERSO_TEST_KILLS=200 python3 -B -m pytest -q -p no:cacheprovider groups_test.py) || failed+=" kills"
echo "== fuzzing"
tools/make/fuzz.sh "${NIGHTLY_FUZZ_SECONDS:-1200}" || failed+=" fuzz"
[ -z "$failed" ] || { echo "nightly: FAILED:$failed"; exit 1; }
echo "nightly: ok"
