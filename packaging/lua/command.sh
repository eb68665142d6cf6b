#!/bin/sh
# The `polyverso` command, which lies next to the module polyverso.capi and the library that they share.
here=$(dirname "$(readlink -f "$0")")
for file in "$here"/../lib/lua/5.*/polyverso/polyverso; do
  if [ -x "$file" ]; then exec "$file" "$@"; fi
done
echo "polyverso: there is no $here/../lib/lua/5.*/polyverso/polyverso; install the rock again" >&2
exit 127
