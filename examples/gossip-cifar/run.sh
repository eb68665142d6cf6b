#!/bin/sh
# run.sh [OPTIONS OF main.py]: a process for each node of nodes.yaml; waits for all. --alone: one, on all images, without the others.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
needed='import torch, tqdm, dpwa.adapters.pytorch'
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && ! "$python" -c "$needed" 2>/dev/null && /usr/bin/python3 -c "$needed" 2>/dev/null; then
  python=/usr/bin/python3 # Debian's, which has Debian's PyTorch
  echo "run.sh: python3 lacks something, $python has it all"
fi
"$python" -c "$needed" || {
  echo "run.sh: $python lacks something: source ../../build/activate, and see requirements.txt" >&2
  exit 1
}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # a processor each
if [ "${1:-}" = --alone ]; then
  exec "$python" main.py "$@" --log logs/alone.csv
fi
[ -f nodes.yaml ] || { echo "run ./prepare.sh first" >&2; exit 1; }
if [ -f logs/pids ]; then
  echo "nodes are running already, or were killed: ./stop.sh first" >&2
  exit 1
fi
find logs \( -name '*.csv' ! -name alone.csv \) -o -name '*.out' | xargs rm -f
: >logs/pids
trap './stop.sh; wait; exit 130' INT TERM # which processes in the background do not hear by themselves
names=$("$python" -c 'from dpwa.dpwa import DpwaConfiguration
for node in DpwaConfiguration("nodes.yaml").get_nodes(): print(node["name"])')
cores=
if command -v taskset >/dev/null; then cores=$("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); fi
rest=
for name in $names; do
  # A core of its own, as long as there are any; then the same ones again.
  rest=${rest:-$cores}
  pin=${rest:+taskset -c ${rest%% *}}
  case $rest in *\ *) rest=${rest#* } ;; *) rest= ;; esac
  # What a node says goes to its log; its progress bar, to this terminal.
  # shellcheck disable=SC2086 # a command and its arguments, or nothing
  $pin "$python" main.py --config nodes.yaml --name "$name" --log "logs/$name.csv" --bars 3 "$@" 3>&2 >"logs/$name.out" 2>&1 &
  echo $! >>logs/pids
done
failed=0
for pid in $(cat logs/pids); do wait "$pid" || failed=1; done
rm -f logs/pids
for name in $names; do tail -n 1 "logs/$name.out"; done
exit "$failed"
