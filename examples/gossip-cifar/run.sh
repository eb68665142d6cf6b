#!/bin/sh
# run.sh [OPTIONS OF main.py]: a process for each node of nodes.yaml; waits for all. --alone: one, on all images, without the others.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
python=${PYTHON:-python3}
"$python" -c 'import torch, yaml, tqdm, dpwa.adapters.pytorch' || {
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
rm -f logs/w*.csv logs/w*.out
: >logs/pids
trap './stop.sh; wait; exit 130' INT TERM # which processes in the background do not hear by themselves
for name in $(sed -n 's/.*{name: *\([^,]*\),.*/\1/p' nodes.yaml); do
  # What a node says goes to its log; its progress bar, to this terminal.
  "$python" main.py --config nodes.yaml --name "$name" --log "logs/$name.csv" --bars 3 "$@" 3>&2 >"logs/$name.out" 2>&1 &
  echo $! >>logs/pids
done
failed=0
for pid in $(cat logs/pids); do wait "$pid" || failed=1; done
rm -f logs/pids
tail -n 1 logs/w*.out
exit "$failed"
