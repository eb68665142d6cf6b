#!/bin/sh
# Checks the larger instances of the models, which take too long for `make test`.
set -eu
cd "$(dirname "$0")"
failed=0
for model in *.pml; do
  for switch in $(sed '/\*\//q' "$model" | sed -n 's/^ \* *\(NIGHTLY_[A-Z0-9_]*\):.*/\1/p'); do
    ./run.sh "$model" "$switch" || failed=1
  done
done
exit $failed
