#!/bin/sh
# run.sh [OPTIONS OF main.py]: starts one process for each node of nodes.yaml and waits for all. --alone: one process,
# on all images.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
needed='import torch, tqdm, dpwa.adapters.pytorch'
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && ! "$python" -c "$needed" 2>/dev/null && /usr/bin/python3 -c "$needed" 2>/dev/null; then
  python=/usr/bin/python3 # Debian's Python, which finds Debian's PyTorch
  echo "run.sh: python3 lacks a required module, using $python"
fi
"$python" -c "$needed" || {
  echo "run.sh: $python lacks a required module: source ../../build/activate, and see requirements.txt" >&2
  exit 1
}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # one processor for each node
if [ "${1:-}" = --alone ]; then
  exec "$python" main.py "$@" --log logs/alone.csv
fi
[ -f nodes.yaml ] || { echo "run ./prepare.sh first" >&2; exit 1; }
if [ -f logs/pids ]; then
  echo "nodes are running already, or were killed: run ./stop.sh first" >&2
  exit 1
fi
find logs \( -name '*.csv' ! -name alone.csv \) -o -name '*.out' | xargs rm -f
: >logs/pids
trap './stop.sh; wait; exit 130' INT TERM # background processes ignore SIGINT, and SIGTERM reaches only this shell
names=$("$python" -c 'from dpwa.dpwa import DpwaConfiguration
for node in DpwaConfiguration("nodes.yaml").get_nodes(): print(node["name"])')
cores=
if command -v taskset >/dev/null; then cores=$("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); fi
rest=
for name in $names; do
  # Pin each node to a core of its own; reuse the cores if there are more nodes.
  rest=${rest:-$cores}
  pin=${rest:+taskset -c ${rest%% *}}
  case $rest in *\ *) rest=${rest#* } ;; *) rest= ;; esac
  # The node's output goes to its log, its progress bar to this terminal.
  # shellcheck disable=SC2086 # a command and its arguments, or nothing
  $pin "$python" main.py --config nodes.yaml --name "$name" --log "logs/$name.csv" --bars 3 "$@" 3>&2 >"logs/$name.out" 2>&1 &
  echo $! >>logs/pids
done
failed=0
for pid in $(cat logs/pids); do wait "$pid" || failed=1; done
rm -f logs/pids
for name in $names; do tail -n 1 "logs/$name.out"; done
exit "$failed"
