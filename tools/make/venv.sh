#!/bin/sh
# Makes DIR/venv: the Python that a build tree compiles its module for, tests with, and puts on PATH (DIR/activate).
#   venv.sh DIR
#
# One rule: it is made from the `python3` on PATH, or from /usr/bin/python3 where that one is older than 3.11, and sees
# that interpreter's own packages. Only what is missing of requirements.txt comes from PyPI; on Debian's python3, whose
# packages come from apt, that is nothing. Done again only when the interpreter or requirements.txt changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
venv=$build/venv

# In an activated shell `python3` is this very environment: look through it to the interpreter below.
describe='import sys; sys.version_info >= (3, 11) and print(getattr(sys, "_base_executable", sys.executable), sys.version.split()[0])'
base=
for candidate in python3 /usr/bin/python3; do
  base=$("$candidate" -c "$describe" 2>/dev/null) && [ -n "$base" ] && break
done
if [ -z "$base" ]; then
  echo "venv.sh: neither python3 on PATH nor /usr/bin/python3 is Python 3.11 or newer" >&2
  exit 1
fi

stamp="$base $(cksum <"$here/requirements.txt")"
if [ -f "$venv/stamp" ] && [ "$(cat "$venv/stamp")" = "$stamp" ]; then exit 0; fi

echo "venv: $venv from $base"
rm -rf "$venv"
"${base% *}" -m venv --system-site-packages --without-pip "$venv"
modules=$(sed -n 's/.*# module //p; t; s/^\([a-z][a-z0-9_]*\).*/\1/p' "$here/requirements.txt")
# shellcheck disable=SC2086 # one word a module
if ! "$venv/bin/python3" -c 'import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' $modules; then
  "$venv/bin/python3" -m ensurepip >/dev/null
  "$venv/bin/python3" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt" </dev/null
fi
# CMake remembers the headers of the interpreter that it found; with another one it has to look again.
rm -f "$build/CMakeCache.txt"
echo "$stamp" >"$venv/stamp"
