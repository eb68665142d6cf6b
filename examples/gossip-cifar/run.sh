#!/bin/sh
# run.sh [OPTIONS OF main.py]: a process for each node of nodes.yaml; waits for all. --alone: one, on all images, without the others.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
python=${PYTHON:-python3}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # a processor each
if [ "${1:-}" = --alone ]; then
  exec "$python" main.py "$@" --log logs/alone.csv
fi
[ -f nodes.yaml ] || { echo "run ./prepare.sh first" >&2; exit 1; }
rm -f logs/w*.csv
: >logs/pids
for name in $(sed -n 's/.*{name: *\([^,]*\),.*/\1/p' nodes.yaml); do
  "$python" main.py --config nodes.yaml --name "$name" --log "logs/$name.csv" "$@" >"logs/$name.out" 2>&1 &
  echo $! >>logs/pids
done
failed=0
for pid in $(cat logs/pids); do wait "$pid" || failed=1; done
rm -f logs/pids
tail -n 1 logs/w*.out
exit "$failed"
