#!/bin/bash
# Builds the site into build/site from the documents, headers, docstrings, POD and comments of the tree. The tree must be built.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=build/site-tools

stamp="$(build/venv/bin/python3 -c 'import sys; print(sys._base_executable)') $(cksum <docs/site/requirements.txt)"
if [ ! -f "$tools/stamp" ] || [ "$(cat "$tools/stamp")" != "$stamp" ]; then
  rm -rf "$tools"
  "${stamp%% *}" -m venv "$tools"
  "$tools/bin/python3" -m pip install -q --disable-pip-version-check -r docs/site/requirements.txt </dev/null
  echo "$stamp" >"$tools/stamp"
fi

# shellcheck disable=SC1091 # generated
. build/activate
doxygen docs/site/Doxyfile
rm -rf build/site
"$tools/bin/python3" -B -m sphinx -q -W --keep-going -E -d build/site-tools/doctrees -c docs/site -b html . build/site
echo "site: open file://$PWD/build/site/index.html"
