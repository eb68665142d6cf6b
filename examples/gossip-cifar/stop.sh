#!/bin/sh
# stop.sh: stops the processes that run.sh has started, and no others.
cd "$(dirname "$0")" || exit 1
[ -f logs/pids ] || { echo "no nodes are running"; exit 0; }
while read -r pid; do
  # The kernel may have reused the process id: check the command line.
  if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q 'main.py --config nodes.yaml'; then kill "$pid" && echo "stopped $pid"; fi
done <logs/pids
rm -f logs/pids
